// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: one two's-complement integer per code, so that frames can be added as integers.

#include "../core/concepts.hpp"

#include <limits>

namespace GLOBALQ_ABI::wire {

/// @brief Codes as little-endian signed integers of 8, 16 or 32 bits.
/// @shape n codes: n * sizeof(Int) bytes
template <class Int>
struct integer {
  using code_type = Int;
  static constexpr bool is_integer = true;
  static constexpr bool without_gaps = true;
  static constexpr int quad_bytes = 4 * static_cast<int>(sizeof(Int));  ///< of four codes

  static constexpr char const* name() {
    return sizeof(Int) == 1 ? "int8" : (sizeof(Int) == 2 ? "int16" : "int32");
  }
  static constexpr std::uint64_t parameters() { return sizeof(Int); }
  static constexpr std::uint32_t largest_code(bool /*zero_free*/) {
    return static_cast<std::uint32_t>(std::numeric_limits<Int>::max());
  }
  GLOBALQ_FUNCTION static constexpr std::uint64_t bytes(std::uint64_t n) { return n * sizeof(Int); }
  static constexpr std::uint8_t identifier() {
    return static_cast<std::uint8_t>(sizeof(Int) == 4 ? 3 : sizeof(Int));
  }
  static constexpr int bits() { return 8 * static_cast<int>(sizeof(Int)); }

  GLOBALQ_FUNCTION static void pack(Int const* codes, int count, std::byte* out, bool /*zero_free*/) {
    Int const* __restrict source = codes;
    Int* __restrict target = reinterpret_cast<Int*>(out);
    for (int i = 0; i < count; ++i) target[i] = source[i];
  }
  GLOBALQ_FUNCTION static bool unpack(std::byte const* in, int count, Int* codes, bool /*zero_free*/) {
    Int const* __restrict source = reinterpret_cast<Int const*>(in);
    Int* __restrict target = codes;
    for (int i = 0; i < count; ++i) target[i] = source[i];
    return false;
  }
};

using int8 = integer<std::int8_t>;
using int16 = integer<std::int16_t>;
using int32 = integer<std::int32_t>;

}  // namespace GLOBALQ_ABI::wire
