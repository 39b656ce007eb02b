// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: describes how the vectors of a call differ from the model layout.

#include "../../../call/vector_group.hpp"
#include "../../../core/dtype.hpp"
#include "../model_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace GLOBALQ_ABI::adapt::detail {

/// Why a vector does not hold all layers; empty if it does.
inline std::string unlike_layout(model_layout const& model, std::uint64_t length, dtype type) {
  if (length != model.length())
    return "the vector has " + std::to_string(length) + " values and the layout ends at " +
           std::to_string(model.length()) + "; pass the vector that the layout describes";
  for (layer const& l : model)
    if (l.type != type)
      return "layer \"" + l.name + "\" is of " + name_of(l.type) + " and the vector of " + name_of(type) +
             "; pass layers of several types as a vector_group";
  return {};
}

/// Why the vectors of a group do not match the layers; empty if they do.
inline std::string unlike_layout(model_layout const& model, vector_group const& tensors) {
  if (tensors.size() != model.size())
    return "the group has " + std::to_string(tensors.size()) + " vectors and the layout " +
           std::to_string(model.size()) +
           " layers; add one vector for each layer, in the order of the layout";
  for (std::size_t k = 0; k < model.size(); ++k) {
    auto const& m = tensors.members()[k];
    if (m.length != model[k].size || m.x.type != model[k].type)
      return "layer \"" + model[k].name + "\" has " + std::to_string(model[k].size) + " values of " +
             name_of(model[k].type) + " and vector " + std::to_string(k) + " has " +
             std::to_string(m.length) + " of " + name_of(m.x.type) +
             "; add one vector for each layer, in the order of the layout";
  }
  return {};
}

}  // namespace GLOBALQ_ABI::adapt::detail
