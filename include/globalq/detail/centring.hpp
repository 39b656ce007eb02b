// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: vectors around the midpoints of their buckets, and back.

#include "../core/arithmetic.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../kernel/executor.hpp"
#include "../options.hpp"
#include "opening.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace globalq::detail {

/// What values of a type are centred in: 16-bit values minus their midpoint would lose digits in their own type.
template <class Value>
using centred_value = std::conditional_t<std::is_same_v<Value, double>, double, float>;

/// The exact double, or float, that a value is.
template <class Value>
GLOBALQ_FUNCTION centred_value<Value> centred_from(Value v) {
  return static_cast<centred_value<Value>>(v);
}

/// About (min + max) / 2 of some values, with as many digits as float32 has, since it travels in that;
/// NaN is passed over here and found by the call.
template <class Value>
centred_value<Value> midpoint(Value const* x, std::uint64_t count) {
  using wide = centred_value<Value>;
  wide low = centred_from(x[0]), high = low;
  for (std::uint64_t i = 1; i < count; ++i) {
    wide const v = centred_from(x[i]);
    low = v < low ? v : low;
    high = high < v ? v : high;
  }
  if constexpr (std::is_same_v<wide, float>) {
    if (low == high) return low;  // exactly, also where half of it is no number
    return static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
  } else {
    constexpr std::uint64_t beyond_float32 = (std::uint64_t{1} << 29) - 1;
    return double_of(bits_of(low / 2 + high / 2) & ~beyond_float32);
  }
}

/// Values around their midpoints, and the midpoints; kept for the next call.
template <class Value>
struct centred_memory {
  std::vector<Value> values, midpoints;
};

/// How vectors are cut into buckets that share a midpoint, and who computes them.
class centring {
 public:
  /// @param bucket      values that share a midpoint; 0: the whole vector
  /// @param keeps_tail  whether a short last bucket stays as it is
  centring(std::uint64_t bucket, bool keeps_tail, non_finite mode, char const* operation,
           kernel::host_executor on)
      : bucket_(bucket), keeps_tail_(keeps_tail), mode_(mode), operation_(operation), on_(std::move(on)) {}

  std::uint64_t buckets_of(std::uint64_t length) const {
    return length == 0 ? 0 : (bucket_ == 0 ? 1 : divide_up(length, bucket_));
  }

  /// Writes x - midpoint for all values of buckets, and the midpoints.
  template <class Value, class Wide>
  void centre(Value const* x, std::uint64_t length, Wide* centred, Wide* midpoints) const {
    bool const keeps_tail = keeps_tail_;
    std::uint64_t const width = bucket_;
    each_bucket(length, [=](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
      // a tail that travels as float32 does so as it is
      bool const tail = keeps_tail && end - first < width;
      Wide const m = tail ? Wide{0} : midpoint(x + first, end - first);
      midpoints[b] = m;
      for (std::uint64_t i = first; i < end; ++i) centred[i] = centred_from(x[i]) - m;
    });
  }

  /// Adds the midpoints again, in the type of the values.
  /// @tparam Value  that type
  /// @returns whether all values are finite in it
  template <class Value, class Wide>
  bool restore(Wide* centred, Wide const* midpoints, std::uint64_t length) const {
    std::uint32_t beyond = 0;
    each_bucket(length, [=, &beyond](std::uint64_t b, std::uint64_t first, std::uint64_t end) {
      Wide const m = midpoints[b];
      bool bad = false;
      for (std::uint64_t i = first; i < end; ++i) {
        Value const v = static_cast<Value>(centred[i] + m);
        bad = bad || !is_finite(centred_from(v));
        centred[i] = centred_from(v);
      }
      if (bad) Kokkos::atomic_or(&beyond, 1U);
    });
    return beyond == 0;
  }

  /// Writes what was restored: as it is, or NaN where not all of it is finite.
  /// @throws non_finite_error if so configured, before anything is written
  template <class Value, class Wide>
  void write(Wide const* restored, Value* y, std::uint64_t length, bool finite) const {
    dtype const type = dtype_of<Value>::value;
    if (!finite && mode_ == non_finite::error)
      throw non_finite_error(non_finite_text(operation_, beyond_range_text(type), false));
    if (!finite) return fill({y, type}, length, true);
    each_bucket(length, [=](std::uint64_t, std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t i = first; i < end; ++i) y[i] = static_cast<Value>(restored[i]);
    });
  }

 private:
  /// f(bucket, its first value, its end)
  template <class F>
  void each_bucket(std::uint64_t length, F const& f) const {
    std::uint64_t const buckets = buckets_of(length), width = bucket_ == 0 ? length : bucket_;
    // buckets an item: enough values that an item is worth a thread
    std::uint64_t const group = width == 0 ? 1 : std::max<std::uint64_t>(1, 4096 / width);
    on_.items(divide_up(buckets, group), [&](std::uint64_t item) {
      for (std::uint64_t b = item * group, end = std::min(b + group, buckets); b < end; ++b)
        f(b, b * width, std::min((b + 1) * width, length));
    });
  }

  std::uint64_t bucket_;
  bool keeps_tail_;
  non_finite mode_;
  char const* operation_;
  kernel::host_executor on_;
};

/// The memory for values of a type, of two.
struct centred_memories {
  centred_memory<float> narrow;
  centred_memory<double> wide;

  template <class Value>
  auto& of() {
    if constexpr (std::is_same_v<Value, double>)
      return wide;
    else
      return narrow;
  }
};

}  // namespace globalq::detail
