// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of centered operators, which sends differences from midpoints, and midpoints as float32.
///
/// mean(x) = mean(x - m) + mean(m). A call subtracts the midpoints before it measures (center()); frames contain both,
/// and the codec adds the mean of the midpoints to the operator's mean.

#include "paired_codec.hpp"
#include "resolve.hpp"

#include <type_traits>

namespace GLOBALQ_ABI::detail {

/// The type of centered values: 16-bit values minus their midpoint would lose digits in their own type.
inline constexpr dtype centered_type(dtype type) { return type == dtype::float64 ? type : dtype::float32; }

/// The places of a centered vector's parts: its values, the midpoints of its buckets, and the means of midpoints.
struct centered_places {
  std::uint64_t midpoints, means, end;  ///< offsets in values

  static std::uint64_t buckets_of(std::uint64_t center, std::uint64_t length) {
    return length == 0 ? 0 : (center == 0 ? 1 : divide_up(length, center));
  }
  centered_places(std::uint64_t center, std::uint64_t length) {
    constexpr std::uint64_t line = 16;  // values that begin a cache line
    midpoints = divide_up(length, line) * line;
    means = midpoints + divide_up(buckets_of(center, length), line) * line;
    end = means + buckets_of(center, length);
  }
};

/// Calls f with a typed pointer to the values.
template <class F>
void with_values(const_vector x, F const& f) {
  switch (x.type) {
    case dtype::float64:
      return f(static_cast<double const*>(x.data));
    case dtype::float16:
      return f(static_cast<float16 const*>(x.data));
    case dtype::bfloat16:
      return f(static_cast<bfloat16 const*>(x.data));
    default:
      return f(static_cast<float const*>(x.data));
  }
}

/// (min + max) / 2 of finite values, with the digits of float32, in which it travels.
/// @tparam Wide  float, or double for double
template <class Wide, class Value>
GLOBALQ_LOOP Wide midpoint(Value const* x, std::uint64_t count) {
  constexpr std::uint64_t lanes = 16;
  Wide low[lanes], high[lanes];
  for (std::uint64_t k = 0; k < lanes; ++k) low[k] = high[k] = static_cast<Wide>(x[0]);
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::uint64_t k = 0; k < lanes; ++k) {
      Wide const v = static_cast<Wide>(x[i + k]);
      low[k] = v < low[k] ? v : low[k];
      high[k] = high[k] < v ? v : high[k];
    }
  for (; i < count; ++i) {
    Wide const v = static_cast<Wide>(x[i]);
    low[0] = v < low[0] ? v : low[0];
    high[0] = high[0] < v ? v : high[0];
  }
  Wide least = low[0], most = high[0];
  for (std::uint64_t k = 1; k < lanes; ++k) {
    least = low[k] < least ? low[k] : least;
    most = most < high[k] ? high[k] : most;
  }
  if constexpr (std::is_same_v<Wide, float>) {
    if (least == most) return least;  // exact, even if half of it is not representable
    return static_cast<float>((static_cast<double>(least) + static_cast<double>(most)) / 2);
  } else {
    constexpr std::uint64_t beyond_float32 = (std::uint64_t{1} << 29) - 1;
    return double_of(bits_of(least / 2 + most / 2) & ~beyond_float32);
  }
}

/// Calls f(bucket, its first value, its end) for all buckets of a part of a vector, on all threads.
template <class F>
void each_bucket(kernel::host_executor const& on, std::uint64_t center, segment part, F const& f) {
  if (part.empty()) return;
  std::uint64_t const width = center == 0 ? part.count : center, end = part.first + part.count;
  std::uint64_t const first_bucket = center == 0 ? 0 : part.first / center;
  // buckets per item: enough values to occupy a thread
  std::uint64_t const buckets = divide_up(part.count, width),
                      group = std::max<std::uint64_t>(1, 4096 / width);
  on.items(divide_up(buckets, group), [&](std::uint64_t item) {
    for (std::uint64_t b = item * group, last = std::min(b + group, buckets); b < last; ++b)
      f(first_bucket + b, part.first + b * width, std::min(part.first + (b + 1) * width, end));
  });
}

/// Writes x - midpoint for the values of a part of a vector, and the midpoints of its buckets.
/// @param x       a vector of finite values; may be that of @p to
/// @param part    begins at a bucket
/// @param to      room for centered_places; of type centered_type(x.type)
inline void center(kernel::host_executor const& on, operator_facts const& op, const_vector x,
                   std::uint64_t length, segment part, mutable_vector to) {
  // a float32 tail is not centered
  bool const keeps_tail = op.plain_tail && op.bucket == op.center;
  centered_places const places(op.center, length);
  auto const write = [&](auto const* values, auto* out) {
    using wide = std::remove_pointer_t<decltype(out)>;
    each_bucket(on, op.center, part, [=, &op](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
      wide const m =
          keeps_tail && end - first < op.center ? wide{0} : midpoint<wide>(values + first, end - first);
      out[places.midpoints + b] = m;
      for (std::uint64_t i = first; i < end; ++i) out[i] = static_cast<wide>(values[i]) - m;
    });
  };
  with_values(x, [&](auto const* values) {
    if constexpr (std::is_same_v<decltype(values), double const*>)
      write(values, static_cast<double*>(to.data));
    else
      write(values, static_cast<float*>(to.data));
  });
}

class centered_codec final : public paired_codec {
 public:
  static constexpr char const* stream_refusal =
      "midpoints are supported only in host memory; on a stream scale by magnitude (norm::local<infinity>), "
      "or "
      "subtract the midpoints in your own kernel before the call";

  /// @param quantized  the codec of the operator without centering
  centered_codec(std::unique_ptr<operator_codec> quantized, operator_facts const& op,
                 kernel::host_executor const& on)
      : paired_codec(std::move(quantized), on), center_(op.center), on_(on) {}

  /// @pre center() wrote c.x, with its midpoints
  void begin(call const& c) override {
    operator_codec::begin(c);
    centered_places const places(center_, c.length);
    auto* const values = const_cast<void*>(c.x.data);
    call quantized = c, plain = c;
    // if the mean has the type of the centered values, the midpoint is added in place
    if (c.y.type != c.x.type) quantized.y = {rounded_.get(c.length * size_of(c.x.type)).data(), c.x.type};
    plain.x = at(const_vector{values, c.x.type}, places.midpoints);
    plain.y = means_ = at(mutable_vector{values, c.x.type}, places.means);
    mean_ = quantized.y;
    begin_both(quantized, plain);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    paired_codec::finish(part, sources);
    if ((faults_ & kernel::out_of_range) != 0) return;
    auto const add = [&](auto const* mean, auto* out) {
      using wide = std::remove_cv_t<std::remove_pointer_t<decltype(mean)>>;
      using value = std::remove_pointer_t<decltype(out)>;
      auto const* const means = static_cast<wide const*>(means_.data);
      each_bucket(on_, center_, part, [=, this](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
        bool beyond = false;
        for (std::uint64_t i = first; i < end; ++i) {
          out[i] = static_cast<value>(mean[i] + means[b]);
          beyond = beyond || !is_finite(static_cast<wide>(out[i]));
        }
        if (beyond) Kokkos::atomic_or(&faults_, static_cast<std::uint32_t>(kernel::out_of_range));
      });
    };
    with_values(const_vector{call_.y.data, call_.y.type}, [&](auto const* out) {
      using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
      using wide = std::conditional_t<std::is_same_v<value, double>, double, float>;
      add(static_cast<wide const*>(mean_.data), const_cast<value*>(out));
    });
  }

 private:
  sections cut(segment part) const override { return with_midpoints(part, center_); }

  std::uint64_t center_;
  kernel::host_executor on_;
  byte_buffer rounded_;          ///< means of 16-bit values, before the midpoints are added
  mutable_vector mean_, means_;  ///< of centered values; of midpoints
};

}  // namespace GLOBALQ_ABI::detail
