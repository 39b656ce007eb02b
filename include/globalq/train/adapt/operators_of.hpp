// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: returns an operator for each layer of a model; a filter keeps some layers in float32.

#include "../../operator/any_quantizer.hpp"
#include "filter.hpp"
#include "model_layout.hpp"

#include <type_traits>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// @brief The same operator for all layers of a model, except `uncompressed` for those that a filter keeps.
inline std::vector<any_quantizer> operators_of(model_layout const& model, filter const& keep,
                                               any_quantizer const& op) {
  std::vector<any_quantizer> all;
  for (layer const& l : model) all.push_back(keep(l) ? any_quantizer(uncompressed{}) : op);
  return all;
}
/// @brief The same, with an operator that depends on the layer.
/// @param make  make(layer) -> a quantizer, any_quantizer or uncompressed
template <class Make>
requires std::is_invocable_v<Make const&, layer const&> std::vector<any_quantizer> operators_of(
    model_layout const& model, filter const& keep, Make const& make) {
  std::vector<any_quantizer> all;
  for (layer const& l : model)
    all.push_back(keep(l) ? any_quantizer(uncompressed{}) : any_quantizer(make(l)));
  return all;
}

}  // namespace GLOBALQ_ABI::adapt
