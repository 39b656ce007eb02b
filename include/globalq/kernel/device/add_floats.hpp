// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body of a device for floating-point numbers: adds in the given order, then writes a frame
/// or the mean.

#include "../floats.hpp"
#include "../load_store.hpp"
#include "value_rows.hpp"

namespace GLOBALQ_ABI::kernel::device {

/// kernel::add_floats in the registers of a GPU thread.
/// @tparam Sent  the type of the frame's values: float, bfloat16 or float16
template <class Sent = float>
struct add_floats : floats_call {
  static constexpr int device_lanes = 1;
  static constexpr bool fits_registers() { return true; }
  static constexpr int blocks(int /*lanes*/, int /*rows*/) { return 4; }

  agreed_call const* agreed;

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    if (out == nullptr && agreed != nullptr && !agreed->writes) return;
    value_rows const rows(part.count, index, lane);
    if (rows.empty()) return;
    int const power = agreed != nullptr ? agreed->wide : wide;
    value_rows::floats sum;
    add(rows, power, sum);
    if (out == nullptr) {
      if constexpr (size == 2) {
        std::uint32_t const most = largest_sum(power);
        value_rows::for_each([&](int r, int i) { sum[r][i] = limited(sum[r][i], most); });
      }
      write_mean(rows, scale_of_mean(power), sum);
    } else if constexpr (size == 4) {
      store<unscaled>(rows, out, store_scale(), sum);
    } else {
      round(rows, first_tile() + index, lane, sum);
    }
  }

 private:
  static constexpr int size = static_cast<int>(sizeof(Sent));
  /// Values of a frame, as they are stored.
  using stored = std::uint32_t[value_rows::R][size * value_rows::N / 4];

  GLOBALQ_FUNCTION static float value_of(stored const& v, int r, int i) {
    if constexpr (size == 4)
      return float_of(v[r][i]);
    else
      return Sent::widen(half_of(v[r], i));
  }
  template <int W>
  GLOBALQ_FUNCTION static std::uint16_t half_of(std::uint32_t const (&row)[W], int i) {
    return static_cast<std::uint16_t>(row[i / 2] >> (16 * (i % 2)));
  }

  /// Rounds a sum to 16 bits, into a frame.
  GLOBALQ_FUNCTION void round(value_rows const& rows, std::uint64_t tile, int lane,
                              value_rows::floats const& sum) const {
    stored raw = {};
    if (nearest) {
      value_rows::for_each([&](int r, int i) { put(Sent::round(sum[r][i]), i, raw[r]); });
    } else {
      random::stream s = words;
      if (step_at != nullptr) s.step = *step_at;
      random::words4 const drawn = s.group(16 * tile + static_cast<std::uint64_t>(lane));
      value_rows::for_each(
          [&](int r, int i) { put(Sent::round(sum[r][i], rotate_left(drawn.word[r], 8 * i)), i, raw[r]); });
    }
    rows.store<size>(out, raw);
  }

  /// Issues all loads before their use, including those of the next source.
  GLOBALQ_FUNCTION void add(value_rows const& rows, int power, value_rows::floats& sum) const {
    stored next{};
    if (sources.count > 0) rows.load<size>(sources[0].codes, next);
    load_own(rows, exponent_of_values(power), sum);
    GLOBALQ_NO_UNROLL
    for (int k = 0; k < sources.count; ++k) {
      stored now;
      GLOBALQ_UNROLL
      for (int r = 0; r < value_rows::R; ++r) {
        GLOBALQ_UNROLL
        for (int w = 0; w < size * value_rows::N / 4; ++w) now[r][w] = next[r][w];
      }
      if (k + 1 < sources.count) rows.load<size>(sources[k + 1].codes, next);
      value_rows::for_each([&](int r, int i) { sum[r][i] += value_of(now, r, i); });
    }
  }

  GLOBALQ_FUNCTION void load_own(value_rows const& rows, int exponent, value_rows::floats& sum) const {
    std::byte const* const values = static_cast<std::byte const*>(x.data) + part.first * size_of(x.type);
    if (!own) {
      value_rows::for_each([&](int r, int i) { sum[r][i] = 0.0F; });
    } else if (x.type == dtype::float64) {
      std::uint32_t raw[value_rows::R][2 * value_rows::N];
      rows.load<8>(values, raw);
      double const factor = power_of_two(exponent);
      value_rows::for_each([&](int r, int i) {
        sum[r][i] =
            kernel::detail::from_float64::scaled(double_of(pair(raw[r][2 * i], raw[r][2 * i + 1])), factor);
      });
    } else if (x.type == dtype::float32) {
      value_rows::words raw;
      rows.load<4>(values, raw);
      value_rows::for_each([&](int r, int i) { sum[r][i] = float_of(raw[r][i]); });
      if (exponent == 0) return;  // so that a NaN keeps its bits
      float const factor = power_of_two_float(exponent);
      value_rows::for_each([&](int r, int i) { sum[r][i] = multiply(sum[r][i], factor); });
    } else if (x.type == dtype::bfloat16) {
      load_halves<bfloat16>(rows, values, exponent, sum);
    } else {
      load_halves<float16>(rows, values, exponent, sum);
    }
  }
  template <class Half>
  GLOBALQ_FUNCTION static void load_halves(value_rows const& rows, std::byte const* values, int exponent,
                                           value_rows::floats& sum) {
    std::uint32_t raw[value_rows::R][value_rows::N / 2];
    rows.load<2>(values, raw);
    float const factor = power_of_two_float(exponent);
    value_rows::for_each([&](int r, int i) {
      sum[r][i] = kernel::detail::from_half<Half>::scaled(half_of(raw[r], i), factor);
    });
  }

  GLOBALQ_FUNCTION void write_mean(value_rows const& rows, store_scale const& scale,
                                   value_rows::floats const& sum) const {
    using namespace kernel::detail;
    std::byte* const values = static_cast<std::byte*>(y.data) + part.first * size_of(y.type);
    bool beyond = false;
    switch (y.type) {
      case dtype::float64:
        beyond = store<to_float64>(rows, values, scale, sum) >= double_infinity;
        break;
      case dtype::float16:
        beyond = store<to_half<float16>>(rows, values, scale, sum) >= 0x7c00U;
        break;
      case dtype::bfloat16:
        beyond = store<to_half<bfloat16>>(rows, values, scale, sum) >= 0x7f80U;
        break;
      default:
        beyond = store<to_float32>(rows, values, scale, sum) >= float_infinity;
    }
    if (beyond) Kokkos::atomic_or(faults, static_cast<std::uint32_t>(out_of_range));
  }

  /// Stores a sum unscaled, into a frame.
  struct unscaled : kernel::detail::to_float32 {
    template <bool Add>
    GLOBALQ_FUNCTION static float stored(float v, store_scale const&, float) {
      return v;
    }
  };

  /// Converts and writes values. Returns the bit pattern of the largest magnitude.
  template <class Type>
  GLOBALQ_FUNCTION static typename Type::word store(value_rows const& rows, std::byte* values,
                                                    store_scale const& scale, value_rows::floats const& v) {
    constexpr int size = static_cast<int>(sizeof(Type::template stored<false>(0.0F, scale, 0)));
    std::uint32_t raw[value_rows::R][size * value_rows::N / 4] = {};
    typename Type::word largest = 0;
    value_rows::for_each([&](int r, int i) {
      auto const result = Type::template stored<false>(v[r][i], scale, 0);
      put(bits_of_any(result), i, raw[r]);
      typename Type::word const m = Type::magnitude(result);
      if (i < rows.count(r)) largest = largest < m ? m : largest;
    });
    rows.store<size>(values, raw);
    return largest;
  }

  GLOBALQ_FUNCTION static std::uint16_t bits_of_any(std::uint16_t v) { return v; }
  GLOBALQ_FUNCTION static std::uint32_t bits_of_any(float v) { return bits_of(v); }
  GLOBALQ_FUNCTION static std::uint64_t bits_of_any(double v) { return bits_of(v); }

  /// Sets value i of a row that was zero.
  template <class Bits, int W>
  GLOBALQ_FUNCTION static void put(Bits bits, int i, std::uint32_t (&row)[W]) {
    if constexpr (sizeof(Bits) == 8) {
      row[2 * i] = static_cast<std::uint32_t>(bits);
      row[2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
    } else if constexpr (sizeof(Bits) == 4) {
      row[i] = bits;
    } else {
      row[i / 2] |= static_cast<std::uint32_t>(bits) << (16 * (i % 2));
    }
  }

  GLOBALQ_FUNCTION static std::uint64_t pair(std::uint32_t low, std::uint32_t high) {
    return (static_cast<std::uint64_t>(high) << 32) | low;
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
