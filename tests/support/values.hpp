// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Short vectors of any type, and the comparison of all their bits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace support {

/// Multiples of 2^(exponent - 9) up to 1,000 of them either way: most exact in every type, some rounded to 16 bits.
template <class Value>
std::vector<Value> values_of(std::uint32_t seed, std::size_t d, int exponent = 0) {
  std::mt19937 draw(seed);
  std::vector<Value> x(d);
  for (Value& v : x) {
    double const drawn = std::ldexp(static_cast<int>(draw() % 2001) - 1000, -9 + exponent);
    if constexpr (std::is_same_v<Value, double>)
      v = drawn;
    else
      v = static_cast<Value>(static_cast<float>(drawn));
  }
  return x;
}

/// Multiples of 2^-9 up to 2,048 of them either way, exact in float32; one list for each seed from 0 on.
template <class Value = float>
std::vector<Value> values(std::size_t count, int seed) {
  std::mt19937 draw(static_cast<std::uint32_t>(seed) + 1);
  std::vector<Value> v(count);
  for (Value& x : v) x = Value(static_cast<float>(static_cast<int>(draw() % 4097) - 2048) * 0x1p-9F);
  return v;
}

inline bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

template <class Value>
void expect_same(std::vector<Value> const& a, std::vector<Value> const& b, std::string const& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  if (a.empty()) return;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(Value)), 0) << what;
}

}  // namespace support
