// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator for whole buckets; the values they leave over travel as float32.

#include "detail/paired_operator.hpp"
#include "detail/tail_codec.hpp"

#include <string>

namespace GLOBALQ_ABI {

/// @brief Whole buckets by an operator, and a short last bucket unquantized: the layout of network-wise buckets.
///
/// The gradient of a network is one vector, cut into buckets without regard to layers; its last length % bucket values are
/// averaged as `uncompressed` averages a vector, in float32 and in the order of the schedule. Whole buckets have the bits,
/// and so the variance, that the operator by itself gives them, on every schedule. In a group each vector has a tail of its own.
///
/// Goes wherever an operator goes in host memory: allreduce_mean over ring, tree, sra, allgather and hierarchical,
/// reduce_scatter_mean, all_gather, groups, inside centered (the tail is not centered). Refused with the
/// remedy: schedule native, calls on a stream, vector_codec, operators without buckets.
///
/// Wire: 32 bits for each value left over, and a header of 16 bytes in the frame that holds them. @n
/// Bound: that of the operator; a vector that is shorter than a bucket is not quantized at all.
/// @code
/// gq::allreduce_mean mean{workers, gq::float32_tail{gq::operators::alq(levels, 8192)}, gq::schedule::allgather{}};
/// @endcode
/// @determinism as the operator's; tails are compared in the fingerprint
/// @source Faghri et al. 2020 (ALQ, AMQ), appendix K: buckets across layers, the last one in full precision if it is short
class float32_tail : public detail::paired_operator<detail::tail_codec> {
 public:
  /// @param op  a quantizer or any_quantizer, with a bucket
  /// @throws configuration_error for a centered operator: that is centered{float32_tail{op}}
  template <class Operator>
  requires(!std::is_same_v<Operator, float32_tail>) float32_tail(Operator const& op)
      : paired_operator(op, with_tail(detail::facts_of(op))) {
    static_assert(!std::is_same_v<Operator, uncompressed>,
                  "globalq: all of an uncompressed vector is float32 already; use uncompressed by itself");
  }

 private:
  static detail::operator_facts with_tail(detail::operator_facts f) {
    if (f.centered)
      throw configuration_error("globalq: float32_tail: " + f.name +
                                ": a tail is left as it is before anything is centered; write "
                                "centered{float32_tail{op}}");
    f.plain_tail = true;
    f.name += ", tail float32";
    return f;
  }
};

}  // namespace GLOBALQ_ABI
