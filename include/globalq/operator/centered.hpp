// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator that scales by minimum and maximum instead of magnitude, for values far from zero.

#include "detail/centered_codec.hpp"
#include "detail/paired_operator.hpp"

#include <string>

namespace GLOBALQ_ABI {

/// @brief Encodes values around the midpoints of their buckets: affine frames {offset, unit}, as CGX and QSDP scale.
///
/// Each worker takes the midpoint (min + max) / 2 of each bucket off its values. What is left has the magnitude of half the
/// range and is averaged by the operator; midpoints travel as float32 in the same frames, are averaged, and are added again:
/// mean(x) = mean(x - m) + mean(m). So min-max scaling goes with every norm, reduce and schedule that frames have. With a
/// norm::local<infinity> and levels::uniform the grid lies between a bucket's minimum and maximum; with
/// levels::symmetric{1/15, 3/15, .., 1} it has 16 levels, both ends included. A bucket of equal values comes out exactly,
/// but for the float32 mean of the workers; of float64 values, where float32 has digits enough for them.
///
/// Goes wherever an operator goes in host memory: allreduce_mean over ring, tree, sra, allgather and hierarchical,
/// reduce_scatter_mean, all_gather (the quantized weights of QSDP), groups and layers. Refused with the remedy: schedule
/// native, calls on a stream, vector_codec. A short last bucket stays as it is in centered{float32_tail{op}}.
///
/// Unbiased where the operator is, up to rounding x - m to float32 (float64 vectors: to float64), half a unit in the last
/// place of the range. Variance: that of the operator on the centered vectors; a value of a uniform grid with s levels has
/// at most range^2 / 16 s^2. A plan's theta counts the squares of the centered values.
///
/// Wire: 4 bytes and a header of 16 bytes more a bucket and a frame. Memory: one vector besides (of 16-bit values two).
/// @code
/// gq::all_gather gather{workers, gq::centered{gq::operators::qsdp<8>(1024)}, {.seed = 42}};
/// @endcode
/// @determinism as the operator's; the buckets of midpoints are compared in the fingerprint
/// @source Markov 2024 (thesis), chapters 3 and 5: scaling by minimum and maximum of each bucket
class centered : public detail::paired_operator<detail::centered_codec> {
 public:
  /// Values that share a scale share a midpoint.
  /// @param op  a quantizer, any_quantizer or float32_tail
  template <class Operator>
  requires(!std::is_same_v<Operator, centered>) centered(Operator const& op)
      : centered(op, detail::facts_of(op).bucket) {}
  /// @param bucket  values that share a midpoint; 0: the whole vector
  template <class Operator>
  centered(Operator const& op, std::uint64_t bucket)
      : paired_operator(op, facts_in(detail::facts_of(op), bucket)) {
    static_assert(!std::is_same_v<Operator, uncompressed>,
                  "globalq: uncompressed values need no midpoints; use uncompressed by itself");
  }

 private:
  static detail::operator_facts facts_in(detail::operator_facts f, std::uint64_t bucket) {
    f.centered = detail::center;
    f.center = bucket;
    f.name += ", centered";
    if (bucket != f.bucket) f.name += " in buckets of " + std::to_string(bucket);
    return f;
  }
};

}  // namespace GLOBALQ_ABI
