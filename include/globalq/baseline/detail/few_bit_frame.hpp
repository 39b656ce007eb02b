// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: selected values in few bits: their places, and for each a sign and one of some magnitudes.

#include "../../core/arithmetic.hpp"
#include "../../kernel/executor.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace GLOBALQ_ABI::baseline::detail {

/// @brief A message of @p count of @p length values, of which each takes @p bits bits and its place about 2 + log2(length / count).
///
/// The values of a group share evenly spaced magnitudes, whose least one and distance are sent; with 2 bits there are two, the
/// means of the smaller and of the larger values. ||x - Q(x)|| <= ||x||: a value is no farther from its magnitude than from 0,
/// and with 2 bits the values of a magnitude together are not.
///
/// Words of 32 bits: magnitudes of each group; codes; low bits of places; and as many ones as places in a string of bits, place
/// k at its high bits + k. The number of words depends on the arguments only.
/// @source places: Elias 1974, Fano 1971
class few_bit_frame {
 public:
  static constexpr std::uint64_t group = 128;

  few_bit_frame() = default;
  /// @param bits  2 to 8
  few_bit_frame(std::uint64_t length, std::uint64_t count, int bits) : count_(count), bits_(bits) {
    low_ = count == 0 ? 0 : static_cast<int>(std::bit_width(length / count)) - 1;
    groups_ = divide_up(count, group);
    codes_ = 2 * groups_;
    lows_ = codes_ + groups_ * words_of_group(bits);
    highs_ = lows_ + groups_ * words_of_group(low_);
    words_ = highs_ + (count == 0 ? 0 : divide_up<std::uint64_t>(count + (length >> low_) + 1, 32));
  }

  std::uint64_t words() const { return words_; }

  /// @param places  ascending
  /// @param values  finite
  void write(kernel::host_executor const& on, std::uint32_t const* places, float const* values,
             std::uint32_t* to) const {
    std::fill(to, to + words_, 0U);
    on.items(groups_, [&](std::uint64_t g) {
      std::uint64_t const first = g * group, n = std::min(group, count_ - first);
      std::array<std::uint32_t, group> numbers{};
      magnitudes const m = spaced(values + first, n);
      std::memcpy(to + 2 * g, &m, sizeof m);
      for (std::uint64_t i = 0; i < n; ++i) {
        float const v = values[first + i];
        numbers[i] = 2 * m.nearest(std::abs(v), most()) + (v < 0 ? 1U : 0U);
      }
      pack(numbers.data(), bits_, to + codes_ + g * words_of_group(bits_));
      for (std::uint64_t i = 0; i < n; ++i) numbers[i] = places[first + i] & ((1U << low_) - 1);
      std::fill(numbers.begin() + static_cast<std::ptrdiff_t>(n), numbers.end(), 0U);
      pack(numbers.data(), low_, to + lows_ + g * words_of_group(low_));
    });
    for (std::uint64_t k = 0; k < count_; ++k) {
      std::uint64_t const at = (places[k] >> low_) + k;
      to[highs_ + at / 32] |= 1U << (at % 32);
    }
  }

  /// Safe for any words.
  /// @returns false if they are none that write() makes
  bool read(std::uint32_t const* from, std::uint32_t* places, float* values) const {
    std::uint64_t k = 0;
    for (std::uint64_t w = highs_; w < words_; ++w)
      for (std::uint32_t left = from[w]; left != 0; left &= left - 1) {
        if (k == count_) return false;
        std::uint64_t const at = 32 * (w - highs_) + static_cast<std::uint64_t>(std::countr_zero(left));
        places[k] = static_cast<std::uint32_t>((at - k) << low_);
        ++k;
      }
    if (k != count_) return false;
    for (std::uint64_t g = 0; g < groups_; ++g) {
      std::uint64_t const first = g * group, n = std::min(group, count_ - first);
      std::array<std::uint32_t, group> numbers;
      unpack(from + lows_ + g * words_of_group(low_), low_, numbers.data());
      for (std::uint64_t i = 0; i < n; ++i) places[first + i] |= numbers[i];
      magnitudes m{};
      std::memcpy(&m, from + 2 * g, sizeof m);
      if (!(is_finite(m.least) && is_finite(m.distance))) return false;
      unpack(from + codes_ + g * words_of_group(bits_), bits_, numbers.data());
      for (std::uint64_t i = 0; i < n; ++i) {
        float const v = m.at(numbers[i] >> 1);
        values[first + i] = (numbers[i] & 1) != 0 ? -v : v;
      }
    }
    return true;
  }

 private:
  struct magnitudes {
    float least, distance;

    /// Exact up to the last rounding, so that a fused multiply-add has the same bits.
    float at(std::uint32_t k) const {
      double const v = static_cast<double>(least) + static_cast<double>(k) * static_cast<double>(distance);
      constexpr double top = static_cast<double>(std::numeric_limits<float>::max());
      return static_cast<float>(std::clamp(v, -top, top));
    }
    std::uint32_t nearest(float v, std::uint32_t most) const {
      double const steps =
          distance > 0 ? (static_cast<double>(v) - static_cast<double>(least)) / static_cast<double>(distance)
                       : 0;
      return static_cast<std::uint32_t>(std::clamp(std::floor(steps + 0.5), 0.0, static_cast<double>(most)));
    }
  };
  static_assert(sizeof(magnitudes) == 2 * sizeof(std::uint32_t));

  /// The largest number of a magnitude.
  std::uint32_t most() const { return (1U << (bits_ - 1)) - 1; }
  static std::uint64_t words_of_group(int bits) { return group / 32 * static_cast<std::uint64_t>(bits); }

  magnitudes spaced(float const* values, std::uint64_t count) const {
    double least = std::abs(static_cast<double>(values[0])), largest = least;
    for (std::uint64_t i = 1; i < count; ++i) {
      double const v = std::abs(static_cast<double>(values[i]));
      least = std::min(least, v);
      largest = std::max(largest, v);
    }
    double const top = largest;
    if (bits_ == 2) two_means(values, count, least, largest);
    magnitudes m{static_cast<float>(least), static_cast<float>((largest - least) / most())};
    // no magnitude is above the largest value, whatever was rounded
    while (m.distance > 0 &&
           static_cast<double>(m.least) + static_cast<double>(most()) * static_cast<double>(m.distance) > top)
      m.distance = std::nextafter(m.distance, 0.0F);
    return m;
  }
  /// Replaces two magnitudes by the means of the values nearer to each (Lloyd 1982), a few times.
  static void two_means(float const* values, std::uint64_t count, double& least, double& largest) {
    for (int round = 0; round < 8; ++round) {
      double const middle = (least + largest) / 2;
      double below = 0, above = 0;
      std::uint64_t few = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        double const v = std::abs(static_cast<double>(values[i]));
        if (v < middle) {
          below += v;
          ++few;
        } else {
          above += v;
        }
      }
      if (few == 0 || few == count) return;
      double const low = below / static_cast<double>(few), high = above / static_cast<double>(count - few);
      if (low == least && high == largest) return;
      least = low;
      largest = high;
    }
  }

  /// 32 numbers of b bits, 0 to 31, are b words.
  static void pack(std::uint32_t const* numbers, int bits, std::uint32_t* to) {
    if (bits == 0) return;
    for (std::uint64_t part = 0; part < group; part += 32) {
      std::uint64_t left = 0;
      int held = 0;
      for (std::uint64_t i = 0; i < 32; ++i) {
        left |= static_cast<std::uint64_t>(numbers[part + i]) << held;
        held += bits;
        if (held >= 32) {
          *to++ = static_cast<std::uint32_t>(left);
          left >>= 32;
          held -= 32;
        }
      }
    }
  }
  static void unpack(std::uint32_t const* from, int bits, std::uint32_t* numbers) {
    std::uint32_t const mask = (1U << bits) - 1;
    for (std::uint64_t part = 0; part < group; part += 32) {
      std::uint64_t left = 0;
      int held = 0;
      for (std::uint64_t i = 0; i < 32; ++i) {
        if (held < bits) {
          left |= static_cast<std::uint64_t>(*from++) << held;
          held += 32;
        }
        numbers[part + i] = static_cast<std::uint32_t>(left) & mask;
        left >>= bits;
        held -= bits;
      }
    }
  }

  std::uint64_t count_ = 0, groups_ = 0, codes_ = 0, lows_ = 0, highs_ = 0, words_ = 0;
  int bits_ = 0, low_ = 0;
};

}  // namespace GLOBALQ_ABI::baseline::detail
