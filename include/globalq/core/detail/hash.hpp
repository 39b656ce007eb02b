// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: hash functions, for fingerprints and names.

#include "../arithmetic.hpp"

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace GLOBALQ_ABI::detail {

GLOBALQ_LOOP std::uint64_t hash(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9E3779B97F4A7C15ULL + (h << 6) + (h >> 2);
  h ^= h >> 30;
  h *= 0xBF58476D1CE4E5B9ULL;
  h ^= h >> 27;
  h *= 0x94D049BB133111EBULL;
  return h ^ (h >> 31);
}
inline std::uint64_t hash(std::uint64_t h, std::string_view text) {
  h = hash(h, text.size());
  for (char c : text) h = hash(h, static_cast<unsigned char>(c));
  return h;
}

/// Hashes the fields of a struct in order: numbers by their bits, texts, and of pointers whether they are null.
template <class... Field>
std::uint64_t hash_fields(std::uint64_t h, Field const&... fields) {
  auto const add = [&h]<class T>(T const& x) {
    if constexpr (std::is_convertible_v<T const&, std::string_view>)
      h = hash(h, std::string_view(x));
    else if constexpr (std::is_pointer_v<T>)
      h = hash(h, std::uint64_t{x != nullptr});
    else if constexpr (std::is_floating_point_v<T>)
      h = hash(h, static_cast<std::uint64_t>(bits_of(x)));
    else
      h = hash(h, static_cast<std::uint64_t>(x));
  };
  (add(fields), ...);
  return h;
}

}  // namespace GLOBALQ_ABI::detail
