// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief centred_mean: the mean of vectors that lie far from zero: scaled by minimum and maximum instead of magnitude.

#include "allreduce_mean.hpp"
#include "detail/centring.hpp"

namespace globalq {

/// @brief Averages vectors around the midpoints of their buckets: affine frames {offset, unit}, as CGX and QSDP scale.
///
/// Each worker takes the midpoint (min + max) / 2 of each bucket off its values. What is left has the magnitude of half the
/// range and is averaged by the operator; the midpoints are averaged in float32 and added again:
/// mean(x) = mean(x - m) + mean(m). So the offsets travel once and not in every frame, and min-max scaling goes with every
/// norm, reduce and schedule, sums of codes included. With a norm::local<infinity> of the same buckets and levels::uniform
/// the grid lies between a bucket's minimum and maximum; with levels::symmetric{1/15, 3/15, .., 1} it has 16 levels, both
/// ends included. A bucket of equal values comes out exactly, but for the float32 mean of the workers; of float64 values,
/// where float32 has digits enough for them.
///
/// Unbiased where the operator is, up to rounding x - m to float32 (float64 vectors: to float64), half a unit in the last
/// place of the range. Variance: that of the operator on the centred vectors; a value of a uniform grid with s levels has
/// at most range^2 / 16 s^2.
/// @tparam Transport  of host memory; calls on a stream are refused
/// @determinism  bit-identical on all workers; independent of threads and chunks
/// @source Markov 2024 (thesis), chapters 3 and 5: scaling by minimum and maximum of each bucket
template <class Transport, class Operator, class Schedule>
class centred_mean {
 public:
  /// @param bucket  values that share a midpoint; 0: the whole vector
  /// @throws configuration_error as allreduce_mean does
  centred_mean(Transport& workers, Operator op, Schedule schedule, std::uint64_t bucket,
               options const& settings = {})
      : centred_mean(workers, std::move(op), std::move(schedule), bucket, settings,
                     detail::execution_of(workers)) {}

  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> centred_mean(Transport& workers, Operator op,
                                                            Schedule schedule, std::uint64_t bucket,
                                                            options const& settings, Space const& space)
      : centring_(bucket, detail::facts_of(op).plain_tail && detail::facts_of(op).bucket == bucket,
                  settings.non_finite, "centred_mean", kernel::host_executor(space)),
        mean_(workers, std::move(op), schedule, settings, space),
        offsets_(workers, uncompressed{}, schedule, settings, space) {
    static_assert(
        !transport::OnStream<Transport>,
        "globalq: centred_mean runs on the host. On a stream scale by magnitude (norm::local<infinity>), "
        "or take the midpoints off in a kernel of your own before allreduce_mean");
  }

  /// Averages in place.
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    (*this)(x, x, step);
  }

  /// Averages @p x into @p y, of the same length and type; they may be the same.
  /// @throws what allreduce_mean throws; @p y is untouched then unless a transfer had begun
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    auto const [in, out, length] = detail::pair_of(x, y, "centred_mean");
    using value = std::remove_pointer_t<std::remove_cv_t<decltype(out)>>;
    if (mean_.forced_to_float32()) return mean_(std::span(in, length), std::span(out, length), step);
    auto& kept = memory_.of<value>();
    kept.values.resize(length);
    kept.midpoints.resize(centring_.buckets_of(length));
    centring_.centre(in, length, kept.values.data(), kept.midpoints.data());
    mean_(kept.values, step);
    offsets_(kept.midpoints, step);
    // what is beyond the type's range is so on all workers, since all hold the same bits
    bool const finite = centring_.restore<value>(kept.values.data(), kept.midpoints.data(), length);
    centring_.write(kept.values.data(), out, length, finite);
  }

  /// What a call does and costs; theta counts the squares of the centred values instead of those of the vectors.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    dtype const inner = type == dtype::float64 ? type : dtype::float32;
    globalq::plan p = mean_.plan(length, inner);
    globalq::plan const extra = offsets_.plan(centring_.buckets_of(length), inner);
    p.bytes_sent += extra.bytes_sent;
    p.workspace_bytes += extra.workspace_bytes;
    if (length != 0)
      p.bits_per_value += extra.bits_per_value * static_cast<double>(centring_.buckets_of(length)) /
                          static_cast<double>(length);
    return p;
  }

 private:
  detail::centring centring_;
  allreduce_mean<Transport, Operator, Schedule> mean_;
  allreduce_mean<Transport, uncompressed, Schedule> offsets_;
  detail::centred_memories memory_;
};

template <class T, class Op, class S>
centred_mean(T&, Op, S, std::uint64_t) -> centred_mean<T, Op, S>;
template <class T, class Op, class S>
centred_mean(T&, Op, S, std::uint64_t, options) -> centred_mean<T, Op, S>;
template <class T, class Op, class S, class Space>
centred_mean(T&, Op, S, std::uint64_t, options, Space) -> centred_mean<T, Op, S>;

}  // namespace globalq
