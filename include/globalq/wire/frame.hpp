// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: the frame: a header of 16 bytes, scales if they travel, codes.
///
/// | bytes | content |
/// | --- | --- |
/// | 0..1 | 'g', 'q' |
/// | 2 | version of the format |
/// | 3 | wire format of the codes: 1, 2, 3: int8, int16, int32; 16 + B: packed B bits; 32: float32 |
/// | 4..7 | number of workers summed, little-endian |
/// | 8..15 | number of values, little-endian |
/// | 16.. | scales (norm::local only): 4 bytes each, see core/scale_word.hpp (float64 vectors: a double each), padded to 16 |
/// | then | codes |

#include "../core/codec.hpp"
#include "../core/error.hpp"
#include "../core/scale_word.hpp"

#include <cstring>
#include <string>

namespace globalq::wire {

static_assert(std::endian::native == std::endian::little,
              "globalq: frames are little-endian and big-endian machines are not supported");

/// Changes when the bytes of a frame change.
inline constexpr std::uint8_t format_version = 1;
inline constexpr std::uint8_t float32_identifier = 32;
inline constexpr std::size_t header_bytes = 16;

/// The first bytes of a frame.
struct frame_header {
  std::uint8_t magic[2] = {'g', 'q'};
  std::uint8_t version = format_version;
  std::uint8_t wire = 0;
  std::uint32_t terms = 1;
  std::uint64_t count = 0;
};
static_assert(sizeof(frame_header) == header_bytes);

/// Bytes of @p scales scales, padded so that codes start at a multiple of 16.
constexpr std::size_t scale_section(std::uint64_t scales, dtype type) {
  return divide_up<std::size_t>(scales * scale_bytes(type), 16) * 16;
}

inline void write_header(std::span<std::byte> frame, std::uint8_t wire, int terms, std::uint64_t count) {
  frame_header h;
  h.wire = wire;
  h.terms = static_cast<std::uint32_t>(terms);
  h.count = count;
  std::memcpy(frame.data(), &h, sizeof h);
}

/// Checks that a frame is what the receiver expects, before anything is read or written.
/// @throws frame_error naming what differs
inline void check_header(source const& from, std::uint8_t wire, std::uint64_t count, std::size_t bytes) {
  auto const fail = [&](std::string const& what) {
    throw frame_error("globalq: decode: bad frame from worker " + std::to_string(from.worker) + ": " + what +
                      "; the bytes were damaged or made by another version or operator");
  };
  if (from.frame.size() != bytes)
    fail(std::to_string(from.frame.size()) + " bytes instead of " + std::to_string(bytes));
  frame_header h;
  std::memcpy(&h, from.frame.data(), sizeof h);
  if (h.magic[0] != 'g' || h.magic[1] != 'q') fail("it does not start with \"gq\"");
  if (h.version != format_version)
    fail("format version " + std::to_string(h.version) + " instead of " + std::to_string(format_version));
  if (h.wire != wire) fail("wire format " + std::to_string(h.wire) + " instead of " + std::to_string(wire));
  if (h.terms != static_cast<std::uint32_t>(from.terms))
    fail("sum of " + std::to_string(h.terms) + " workers instead of " + std::to_string(from.terms));
  if (h.count != count) fail(std::to_string(h.count) + " values instead of " + std::to_string(count));
}

}  // namespace globalq::wire
