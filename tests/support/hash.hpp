// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: hashes, which are data that no generator of a library changes.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace support {

/// A well-mixed function of its arguments (splitmix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) { return mix(mix(a, b) ^ c); }

inline std::uint64_t hash_bytes(void const* data, std::size_t bytes) {
  auto const* p = static_cast<unsigned char const*>(data);
  std::uint64_t h = bytes;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t w = 0;
    std::memcpy(&w, p + i, 8);
    h = (h ^ w) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
  }
  for (; i < bytes; ++i) h = (h ^ p[i]) * 0x100000001B3ULL;
  return mix(h);
}

}  // namespace support
