// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator by itself, without other workers: every vector has the scale of its own norm.

#include "../any_quantizer.hpp"

namespace GLOBALQ_ABI::detail {

/// What an operator is made of when it encodes single vectors.
/// @throws configuration_error for uncompressed
template <class Operator>
operator_facts single_worker_facts(Operator const& op) {
  operator_facts facts = facts_of(op);
  if (facts.plain)
    throw configuration_error("globalq: vector_codec: uncompressed has no codes; copy the vector instead");
  if (facts.plain_tail)
    throw configuration_error(
        "globalq: vector_codec: a tail of float32 has a scale that workers agree on in a call; encode whole "
        "buckets by the operator without float32_tail, and send the values left over as they are");
  if (facts.centered)
    throw configuration_error(
        "globalq: vector_codec: midpoints have a scale that workers agree on in a call; take the midpoints "
        "off, encode "
        "by the operator without centered, and send the midpoints as they are");
  facts.local = facts.fixed_scale == 0;
  facts.reduce = request::automatic;
  return facts;
}

/// How many levels that leaves.
/// @throws configuration_error when the policies do not fit together
inline resolution resolve_single_worker(operator_facts const& facts) {
  resolution const r = resolve(facts, {"vector_codec", 0, false, false, false, 0, true}, 1);
  if (!r.fits()) throw configuration_error(r.refusal);
  return r;
}

}  // namespace GLOBALQ_ABI::detail
