// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: quantizes whole buckets and sends a short last bucket as float32.

#include "detail/sectioned_codec.hpp"
#include "detail/wrapped_operator.hpp"

#include <string>

namespace GLOBALQ_ABI {

/// @brief Quantizes whole buckets by an operator, and sends a short last bucket as float32: network-wise buckets.
///
/// The gradient of a network is one vector, divided into buckets without regard to layers. Its last length % bucket
/// values are averaged in float32 and in the order of the schedule, as by `uncompressed`. On every schedule, whole
/// buckets have the same bits, and so the same variance, as with the operator alone. In a group each vector has a tail.
///
/// Works in every call in host memory: allreduce_mean over ring, tree, sra, allgather and hierarchical,
/// reduce_scatter_mean, all_gather, groups, and inside centered (the tail is not centered). Schedule native, calls on a
/// stream, vector_codec and operators without buckets refuse it.
///
/// Wire: 32 bits for each value of the tail, and a header of 16 bytes in the frame that contains it. @n
/// Bound: that of the operator; a vector that is shorter than a bucket is not quantized.
/// @code
/// gq::allreduce_mean mean{workers, gq::float32_tail{gq::operators::alq(levels, 8192)}, gq::schedule::allgather{}};
/// @endcode
/// @determinism as the operator's; tails are compared in the fingerprint
/// @source Faghri et al. 2020 (ALQ, AMQ), appendix K: buckets across layers, a short last one in full precision
class float32_tail : public detail::wrapped_operator {
 public:
  /// @param op  a quantizer or any_quantizer, with a bucket
  /// @throws configuration_error for a centered operator; use centered{float32_tail{op}}
  template <class Operator>
  requires(!std::is_same_v<Operator, float32_tail>) float32_tail(Operator const& op)
      : wrapped_operator(op, with_tail(detail::facts_of(op)), wrap) {
    static_assert(!std::is_same_v<Operator, uncompressed>,
                  "globalq: all of an uncompressed vector is float32 already; remove float32_tail");
  }

 private:
  static detail::operator_facts with_tail(detail::operator_facts f) {
    if (!f.chain.empty())
      throw configuration_error(
          "globalq: float32_tail: " + f.name +
          ": a tail of an operator with stages is not supported; put the stages before it, as in "
          "centered{float32_tail{op}}");
    f.plain_tail = true;
    f.name += ", tail float32";
    return f;
  }
  static std::unique_ptr<detail::operator_codec> wrap(std::unique_ptr<detail::operator_codec> inner,
                                                      detail::operator_facts const& f,
                                                      detail::resolution const&, std::size_t,
                                                      kernel::host_executor const& on) {
    return std::make_unique<detail::tail_codec>(std::move(inner), f.bucket, on);
  }
};

}  // namespace GLOBALQ_ABI
