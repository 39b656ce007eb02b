// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the facts of an operator for single vectors, which are scaled by their own norms.

#include "../any_quantizer.hpp"

namespace GLOBALQ_ABI::detail {

/// The facts of an operator that encodes single vectors.
/// @throws configuration_error for floats, float32_tail, stages with side values or error feedback, and norm::fixed of mapped
///         values
template <class Operator>
operator_facts single_worker_facts(Operator const& op) {
  operator_facts facts = facts_of(op);
  if (!facts.has_codes())
    throw configuration_error("globalq: vector_codec: " + facts.name +
                              " has no codes; copy the vector, or convert its values");
  if (facts.plain_tail)
    throw configuration_error(
        "globalq: vector_codec: a float32 tail needs a scale that only a call agrees on; encode whole "
        "buckets "
        "without float32_tail, and send the remaining values as float32");
  if (facts.of_sums != nullptr)
    throw configuration_error("globalq: vector_codec: " + facts.name +
                              ": one vector has no sums; encode it by the first operator of second_half");
  if (feedback_of(facts.chain) != nullptr)
    throw configuration_error(
        "globalq: vector_codec: " + facts.name +
        ": a codec keeps no residuals; encode the vector plus the residual, and subtract what decode() "
        "returns");
  if (facts.has_sides())
    throw configuration_error(
        "globalq: vector_codec: " + facts.name +
        ": side values of stages travel in the frames of calls only; subtract them yourself, encode "
        "without the stage, and send them as float32");
  if (!facts.chain.empty() && facts.fixed_scale > 0)
    throw configuration_error(
        "globalq: vector_codec: " + facts.name +
        ": norm::fixed would limit mapped values, whose bound only a call agrees on; use a measured "
        "norm");
  facts.local = facts.fixed_scale == 0;
  facts.reduce = request::automatic;
  return facts;
}

/// The resolution for single vectors, with the number of levels.
/// @throws configuration_error when the policies do not fit together
inline resolution resolve_single_worker(operator_facts const& facts) {
  resolution const r = resolve(facts, {"vector_codec", 0, false, false, false, 0, true}, 1);
  if (!r.fits()) throw configuration_error(r.refusal);
  return r;
}

}  // namespace GLOBALQ_ABI::detail
