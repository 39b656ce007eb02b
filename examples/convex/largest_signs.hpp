// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The quantizer for gradient descent: the signs of the largest values, times the norm of the vector.

#include <globalq/core/error.hpp>
#include <globalq/wire/coded.hpp>
#include <globalq/wire/elias.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <numeric>
#include <span>
#include <vector>

namespace convex {

/// The number of values kept of n: the square root, rounded up.
inline std::uint64_t most_signs(std::uint64_t n) {
  auto k = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (k * k < n) ++k;
  return k;
}

/// @brief Q(v) = ||v|| sign(v_i) for i in I, else 0, where I are the fewest largest values with sum |v_i| >= ||v||.
///
/// No randomness, and biased. With k = |I|: v . Q(v) >= ||v||^2, ||Q(v)||^2 = k ||v||^2, and k <= sqrt(n), rounded up, since
/// of k^2 >= n values the square of the sum of the k largest is at least that of the k largest squares plus
/// (k^2 - k) times the square of the k-th, which is more than all others have. Equal values attain it.
/// @param codes  -1, 0 or 1 for each value
/// @returns      ||v||
/// @source Alistarh et al. 2017 (QSGD), section 3.3, "Gradient Descent"; the set is that of the full version
inline double keep_largest_signs(std::span<double const> v, std::span<std::int8_t> codes) {
  std::fill(codes.begin(), codes.end(), std::int8_t{0});
  double squares = 0;
  for (double x : v) squares += x * x;
  double const norm = std::sqrt(squares);
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto const some = order.begin() + static_cast<std::ptrdiff_t>(most_signs(v.size()));
  std::partial_sort(order.begin(), some, order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(v[a]) != std::abs(v[b]) ? std::abs(v[a]) > std::abs(v[b]) : a < b;
  });
  double sum = 0;
  for (auto at = order.begin(); at != some && sum < norm && v[*at] != 0; ++at) {
    codes[*at] = v[*at] < 0 ? std::int8_t{-1} : std::int8_t{1};
    sum += std::abs(v[*at]);
  }
  return norm;
}

/// @brief Bits for k of n places, k signs and a float: log2 of n over k is at most k log2(e n / k).
///
/// With k = sqrt(n) that is sqrt(n) (log2(n) / 2 + log2(e) + 1) + F.
inline double bits_of_signs(double n, double k, double float_bits) {
  return k == 0 ? float_bits : float_bits + k * (1 + std::log2(std::numbers::e * n / k));
}

/// @brief Such a vector as bytes: the norm as float32, then the codes in the Elias code of the library.
class sign_frame {
 public:
  /// The most bytes of a frame.
  std::size_t capacity(std::uint64_t values) const { return sizeof(float) + code_.capacity(values); }

  /// @returns the bytes that are used
  /// @shape frame: capacity(codes.size())
  std::size_t encode(double norm, std::span<std::int8_t const> codes, std::span<std::byte> frame) {
    auto const scale = static_cast<float>(norm);
    std::memcpy(frame.data(), &scale, sizeof scale);
    return sizeof scale + code_.encode(alone{}, codes.data(), codes.size(), frame.subspan(sizeof scale));
  }

  /// @returns the norm
  /// @throws frame_error if encode() cannot have written the bytes
  double decode(std::span<std::byte const> frame, std::span<std::int8_t> codes) {
    float scale = 0;
    if (frame.size() >= sizeof scale) std::memcpy(&scale, frame.data(), sizeof scale);
    if (frame.size() < sizeof scale || !(scale >= 0 && std::isfinite(scale)) ||
        code_.decode(alone{}, frame.subspan(sizeof scale), codes.size(), codes.data()))
      throw globalq::frame_error("convex: a frame of signs cannot be read; its bytes were damaged");
    return static_cast<double>(scale);
  }

 private:
  /// Blocks one after the other.
  struct alone {
    template <class F>
    void items(std::uint64_t count, F const& f) const {
      for (std::uint64_t i = 0; i < count; ++i) f(i);
    }
  };
  globalq::wire::coded<globalq::wire::elias<>> code_{{}, 1};
};

}  // namespace convex
