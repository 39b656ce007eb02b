// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: min-max scaling instead of scaling by magnitude, for values far from zero.

#include "detail/midpoints.hpp"
#include "mapped.hpp"

#include <string>

namespace GLOBALQ_ABI {

/// @brief Encodes values relative to the midpoints of their buckets: affine frames {offset, scale}, as in CGX and QSDP.
///
/// Each worker subtracts the midpoint (min + max) / 2 of each bucket from its values. The operator averages the
/// differences, whose magnitude is at most half the range. Midpoints travel as float32 in the same frames, are
/// averaged, and are added again: mean(x) = mean(x - m) + mean(m). Min-max scaling thus works with every norm, reduce
/// and schedule that uses frames. With norm::local<infinity> and levels::uniform the grid spans a bucket's minimum to
/// maximum; with levels::symmetric{1/15, 3/15, .., 1} it has 16 levels, including both ends. A bucket of equal values
/// is exact, except for the float32 mean over workers; float64 values only if float32 has enough digits for them.
///
/// Works in every call in host memory: allreduce_mean over ring, tree, sra, allgather and hierarchical,
/// reduce_scatter_mean, all_gather (the quantized weights of QSDP), groups and layers. Schedule native, calls on a
/// stream and vector_codec refuse it. In centered{float32_tail{op}} a short last bucket is not centered.
///
/// Unbiased if the operator is, up to rounding x - m to float32 (float64 vectors: to float64), half a unit in the last
/// place of the range. Its variance is that of the operator on the centered vectors; for a value of a uniform grid with
/// s levels at most range^2 / 16 s^2. A plan's theta refers to the squares of the centered values.
///
/// Wire: 4 bytes more per bucket, and 16 bytes (a header) per frame. Memory: one vector more (two for 16-bit values).
/// @code
/// gq::all_gather gather{workers, gq::centered{gq::operators::qsdp<8>(1024)}, {.seed = 42}};
/// @endcode
/// @determinism as the operator's; the buckets of midpoints are compared in the fingerprint
/// @source Markov 2024 (thesis), chapters 3 and 5: scaling by minimum and maximum of each bucket
class centered : public mapped {
 public:
  /// One midpoint per bucket of the operator.
  /// @param op  a quantizer, any_quantizer or float32_tail
  template <class Operator>
  requires(!std::is_same_v<Operator, centered>) centered(Operator const& op)
      : centered(op, detail::facts_of(op).bucket) {}
  /// @param bucket  values that share a midpoint; 0: the whole vector
  template <class Operator>
  centered(Operator const& op, std::uint64_t bucket) : mapped(op, stage_of(detail::facts_of(op), bucket)) {
    static_assert(!std::is_same_v<Operator, uncompressed>,
                  "globalq: uncompressed values need no midpoints; use uncompressed without centered");
  }

 private:
  static std::shared_ptr<stage const> stage_of(detail::operator_facts const& f, std::uint64_t bucket) {
    return std::make_shared<detail::midpoints>(
        bucket, bucket == f.bucket ? "centered" : "centered in buckets of " + std::to_string(bucket),
        f.plain_tail && bucket == f.bucket);
  }
};

}  // namespace GLOBALQ_ABI
