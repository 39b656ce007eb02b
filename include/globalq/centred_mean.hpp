// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief centred_mean: the mean of vectors that lie far from zero: scaled by minimum and maximum instead of magnitude.

#include "allreduce_mean.hpp"

namespace globalq {

namespace detail {

/// What values of a type are centred in: 16-bit values minus their midpoint would lose digits in their own type.
template <class Value>
using centred_value = std::conditional_t<std::is_same_v<Value, double>, double, float>;

/// The exact double, or float, that a value is.
template <class Value>
GLOBALQ_FUNCTION centred_value<Value> centred_from(Value v) {
  return static_cast<centred_value<Value>>(v);
}

/// (min + max) / 2 of some values, rounded to their centred type; NaN is passed over here and found by the mean.
template <class Value>
centred_value<Value> midpoint(Value const* x, std::uint64_t count) {
  using wide = centred_value<Value>;
  wide low = centred_from(x[0]), high = low;
  for (std::uint64_t i = 1; i < count; ++i) {
    wide const v = centred_from(x[i]);
    low = v < low ? v : low;
    high = high < v ? v : high;
  }
  if (low == high) return low;  // exactly, also where half of it is no number
  if constexpr (std::is_same_v<wide, float>)
    return static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
  else
    return low / 2 + high / 2;
}

}  // namespace detail

/// @brief Averages vectors around the midpoints of their buckets: affine frames {offset, unit}, as CGX and QSDP scale.
///
/// Each worker takes the midpoint (min + max) / 2 of each bucket off its values. What is left has the magnitude of half the
/// range and is averaged by the operator; the midpoints are averaged in float32 and added again:
/// mean(x) = mean(x - m) + mean(m). So the offsets travel once and not in every frame, and min-max scaling goes with every
/// norm, reduce and schedule, sums of codes included. With a norm::local<infinity> of the same buckets and levels::uniform
/// the grid lies between a bucket's minimum and maximum; with levels::symmetric{1/15, 3/15, .., 1} it has 16 levels, both
/// ends included. A bucket of equal values comes out exactly, but for the float32 mean of the workers.
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
      : centred_mean(workers, std::move(op), std::move(schedule), bucket, settings, execution_of(workers)) {}

  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> centred_mean(Transport& workers, Operator op,
                                                            Schedule schedule, std::uint64_t bucket,
                                                            options const& settings, Space const& space)
      : bucket_(bucket),
        keeps_tail_(detail::facts_of(op).plain_tail && detail::facts_of(op).bucket == bucket),
        mode_(settings.non_finite),
        mean_(workers, std::move(op), schedule, settings, space),
        offsets_(workers, uncompressed{}, schedule, settings, space),
        on_(space) {
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
    run(in, out, length, step, memory_of<detail::centred_value<value>>());
  }

  /// What a call does and costs; theta counts the squares of the centred values instead of those of the vectors.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    dtype const inner = type == dtype::float64 ? type : dtype::float32;
    globalq::plan p = mean_.plan(length, inner);
    globalq::plan const extra = offsets_.plan(buckets_of(length), inner);
    p.bytes_sent += extra.bytes_sent;
    p.workspace_bytes += extra.workspace_bytes;
    if (length != 0)
      p.bits_per_value +=
          extra.bits_per_value * static_cast<double>(buckets_of(length)) / static_cast<double>(length);
    return p;
  }

 private:
  /// Values around their midpoints, and the midpoints; kept for the next call.
  template <class Value>
  struct memory {
    std::vector<Value> values, midpoints;
  };

  template <class Value>
  memory<Value>& memory_of() {
    if constexpr (std::is_same_v<Value, double>)
      return wide_;
    else
      return narrow_;
  }

  static auto execution_of(Transport& workers) {
    if constexpr (transport::OwnExecution<Transport>)
      return workers.execution();
    else
      return Kokkos::DefaultHostExecutionSpace();
  }

  std::uint64_t buckets_of(std::uint64_t length) const {
    return length == 0 ? 0 : (bucket_ == 0 ? 1 : divide_up(length, bucket_));
  }

  template <class Value, class Wide>
  void run(Value const* x, Value* y, std::uint64_t length, std::uint64_t step, memory<Wide>& kept) {
    std::uint64_t const buckets = buckets_of(length), width = bucket_ == 0 ? length : bucket_;
    bool const keeps_tail = keeps_tail_;
    kept.values.resize(length);
    kept.midpoints.resize(buckets);
    // buckets an item: enough values that an item is worth a thread
    std::uint64_t const group = width == 0 ? 1 : std::max<std::uint64_t>(1, 4096 / width);
    auto const each_bucket = [&](auto const& f) {
      on_.items(divide_up(buckets, group), [&](std::uint64_t item) {
        for (std::uint64_t b = item * group, end = std::min(b + group, buckets); b < end; ++b)
          f(b, b * width, std::min((b + 1) * width, length));
      });
    };
    Wide *const centred = kept.values.data(), *const midpoints = kept.midpoints.data();
    each_bucket([=](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
      // a tail that travels as float32 does so as it is
      bool const tail = keeps_tail && end - first < width;
      Wide const m = tail ? Wide{0} : detail::midpoint(x + first, end - first);
      midpoints[b] = m;
      for (std::uint64_t i = first; i < end; ++i) centred[i] = detail::centred_from(x[i]) - m;
    });
    mean_(kept.values, step);
    offsets_(kept.midpoints, step);
    // beyond the type's range: the same on all workers, since all hold the same bits
    std::uint32_t beyond = 0;
    each_bucket([=, &beyond](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
      Wide const m = midpoints[b];
      bool bad = false;
      for (std::uint64_t i = first; i < end; ++i) {
        Value const v = static_cast<Value>(centred[i] + m);
        bad = bad || !is_finite(detail::centred_from(v));
        centred[i] = detail::centred_from(v);
      }
      if (bad) Kokkos::atomic_or(&beyond, 1U);
    });
    if (beyond != 0 && mode_ == non_finite::error)
      throw non_finite_error(
          detail::non_finite_text("centred_mean", detail::beyond_range_text(dtype_of<Value>::value), false));
    each_bucket([=](std::uint64_t, std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t i = first; i < end; ++i) y[i] = static_cast<Value>(centred[i]);
    });
    if (beyond != 0) fill({y, dtype_of<Value>::value}, length, true);
  }

  std::uint64_t bucket_;
  bool keeps_tail_;  ///< of the operator's buckets, which are those of the midpoints
  non_finite mode_;
  allreduce_mean<Transport, Operator, Schedule> mean_;
  allreduce_mean<Transport, uncompressed, Schedule> offsets_;
  kernel::host_executor on_;
  memory<float> narrow_;
  memory<double> wide_;
};

template <class T, class Op, class S>
centred_mean(T&, Op, S, std::uint64_t) -> centred_mean<T, Op, S>;
template <class T, class Op, class S>
centred_mean(T&, Op, S, std::uint64_t, options) -> centred_mean<T, Op, S>;
template <class T, class Op, class S, class Space>
centred_mean(T&, Op, S, std::uint64_t, options, Space) -> centred_mean<T, Op, S>;

}  // namespace globalq
