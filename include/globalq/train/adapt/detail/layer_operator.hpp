// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: a layer's operator, resolved for a schedule and a number of workers.

#include "../../../operator/any_quantizer.hpp"
#include "../../../operator/detail/operator_codec.hpp"
#include "../../../operator/detail/resolve.hpp"
#include "../../../schedule/erased.hpp"

#include <cstdint>
#include <memory>

namespace GLOBALQ_ABI::adapt::detail {

/// The operator of one layer of a layered_mean.
struct layer_operator {
  globalq::detail::operator_facts facts;
  globalq::detail::resolution resolved;  ///< may be a refusal
  std::uint64_t hash = 0;                ///< does not cover the values of the levels
  std::unique_ptr<globalq::detail::operator_codec> codec;

  layer_operator() = default;
  /// Leaves the codec empty.
  layer_operator(any_quantizer const& op, globalq::schedule::erased const& schedule, int workers)
      : facts(op.facts()),
        resolved(globalq::detail::resolve(facts, schedule.facts(workers), workers)),
        hash(globalq::detail::fingerprint(facts, resolved)) {}
};

}  // namespace GLOBALQ_ABI::adapt::detail
