// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom wire format: integers of 16 bits, the higher byte first.

//! [network-order]
#include <globalq/core/concepts.hpp>

/// For a receiver that reads codes in network byte order.
struct network_order {
  using code_type = std::int16_t;  // type of codes in memory
  static constexpr char const* name = "network-order";

  static std::uint32_t largest_code(bool /*zero_free*/) { return 32767; }
  static int bits() { return 16; }                  // of a code
  static std::uint8_t identifier() { return 200; }  // in a frame's header; the library uses those below 128
  GLOBALQ_FUNCTION static std::uint64_t bytes(std::uint64_t n) { return 2 * n; }  // of n codes

  GLOBALQ_FUNCTION static void pack(code_type const* codes, int count, std::byte* out, bool /*zero_free*/) {
    for (int i = 0; i < count; ++i) {
      out[2 * i] = static_cast<std::byte>((codes[i] >> 8) & 0xff);
      out[2 * i + 1] = static_cast<std::byte>(codes[i] & 0xff);
    }
  }
  /// Returns whether pack() cannot have written the bytes. The library checks the range of codes.
  GLOBALQ_FUNCTION static bool unpack(std::byte const* in, int count, code_type* codes, bool /*zero_free*/) {
    for (int i = 0; i < count; ++i)
      codes[i] = static_cast<code_type>(static_cast<int>(in[2 * i]) << 8 | static_cast<int>(in[2 * i + 1]));
    return false;
  }
};

static_assert(globalq::WireFormat<network_order>);
//! [network-order]
