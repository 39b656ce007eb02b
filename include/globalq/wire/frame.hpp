// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: the frame: a header of 16 bytes, scales if they travel, codes.
///
/// | bytes | content |
/// | --- | --- |
/// | 0..1 | 'g', 'q' |
/// | 2 | version of the format |
/// | 3 | wire format: 1, 2, 3: int8, int16, int32; 16 + B: packed B bits; 32, 33, 34: float32, bfloat16, float16; 64..: see below; 0: several frames, of a group or with float32 numbers |
/// | 4..7 | number of workers summed, little-endian |
/// | 8..13 | number of values, little-endian |
/// | 14..15 | frame_traits, little-endian: bits 0 and 1: bytes of a scale (0: no scales; 1: 1; 2: 4; 3: 8, a double); bits 2 to 15: a hash of levels, bucket, fixed scale, shift and encoding of scales; all 0 in wire formats 0 and 32 to 34 |
/// | 16.. | scales (norm::local; in vector_codec all norms but norm::fixed): 4 bytes each, see core/scale_word.hpp (float64 vectors: a double each; norm::shared_exponent: a byte; norm::two_level: 4 bytes for the vector, then a byte each), padded to 16 |
/// | then | codes |
/// | then | in frames of vector_codec: a checksum of all bytes before it, 4 bytes, little-endian, unless disabled; see wire/checksum.hpp |
///
/// Frames of variable length (wire formats 64 and above) have a header of 32 bytes:
///
/// | bytes | content |
/// | --- | --- |
/// | 16..23 | bytes of the whole frame without a checksum, little-endian |
/// | 24..31 | zero |
/// | 32.. | scales as above |
/// | then | codes, see wire/coded.hpp |

#include "../core/codec.hpp"
#include "../core/detail/compiled.hpp"
#include "../core/error.hpp"
#include "../core/scale_word.hpp"

#include <cstring>
#include <string>

namespace GLOBALQ_ABI::wire {

static_assert(std::endian::native == std::endian::little,
              "globalq: frames are little-endian and big-endian machines are not supported");

/// Rises when a release changes frames, the handshake, the messages after it, or results: docs/versions.md.
inline constexpr std::uint8_t format_version = 3;
inline constexpr std::uint8_t float32_identifier = 32;
inline constexpr std::size_t header_bytes = 16;
inline constexpr std::size_t long_header_bytes = 32;  ///< of frames of variable length

/// The first bytes of a frame.
struct frame_header {
  std::uint8_t magic[2] = {'g', 'q'};
  std::uint8_t version = format_version;
  std::uint8_t wire = 0;
  std::uint32_t terms = 1;
  std::uint64_t values = 0;  ///< word_of_values()
};
static_assert(sizeof(frame_header) == header_bytes);

/// Properties that decoding depends on besides the wire format: the bytes of a scale in bits 0 and 1, and a hash. A
/// header contains the low 16 bits.
using frame_traits = std::uint64_t;

/// @param scales  the encoding of scales; null: frames contain none
/// @param hash    of all other properties
constexpr frame_traits traits_of(scale_format const* scales, std::uint64_t hash) {
  unsigned const form =
      scales == nullptr ? 0U : (scale_bytes(*scales) == 8 ? 3U : (scale_bytes(*scales) == 4 ? 2U : 1U));
  return (hash & ~std::uint64_t{3}) | form;
}

/// The second word of a header.
/// @param count  below 2^48
constexpr std::uint64_t word_of_values(std::uint64_t count, frame_traits traits) {
  return count | traits << 48;
}
/// The number of values in the second word of a header.
GLOBALQ_FUNCTION constexpr std::uint64_t values_of_word(std::uint64_t word) {
  return word & ((std::uint64_t{1} << 48) - 1);
}

/// Bytes of @p scales scales, padded so that codes start at a multiple of 16.
GLOBALQ_FUNCTION constexpr std::size_t scale_section(std::uint64_t scales, scale_format format) {
  std::size_t const front = scales == 0 ? 0 : vector_scale_bytes(format);
  return divide_up<std::size_t>(front + scales * scale_bytes(format), 16) * 16;
}

/// Scales that fit into that section.
GLOBALQ_FUNCTION constexpr std::uint64_t scale_places(std::uint64_t scales, scale_format format) {
  return scales == 0 ? 0 : (scale_section(scales, format) - vector_scale_bytes(format)) / scale_bytes(format);
}

/// Bytes that a frame occupies inside another one.
constexpr std::size_t padded(std::size_t bytes) { return divide_up<std::size_t>(bytes, 16) * 16; }
/// Zeros the padding after such a frame, so that old contents of memory are not sent.
/// @param room  from the frame to the end of the other one
inline void pad(std::span<std::byte> room, std::size_t bytes) {
  std::memset(room.data() + bytes, 0, padded(bytes) - bytes);
}

/// The bytes of a scale, as text for an error.
GLOBALQ_DECL std::string scales_named(frame_traits traits);

inline void write_header(std::span<std::byte> frame, std::uint8_t wire, int terms, std::uint64_t count,
                         frame_traits traits = 0) {
  frame_header h;
  h.wire = wire;
  h.terms = static_cast<std::uint32_t>(terms);
  h.values = word_of_values(count, traits);
  std::memcpy(frame.data(), &h, sizeof h);
}

/// Writes the length into a long header.
inline void write_length(std::span<std::byte> frame, std::uint64_t bytes) {
  std::uint64_t const words[2] = {bytes, 0};
  std::memcpy(frame.data() + header_bytes, words, sizeof words);
}

/// Reads the length of a frame whose first long_header_bytes have arrived.
/// @param least,most  limits of a frame of this segment, in bytes
/// @throws frame_error when the length is outside the limits
GLOBALQ_DECL std::size_t read_length(std::span<std::byte const> frame, int worker, std::size_t least,
                                     std::size_t most);

/// Checks that the header of a frame is as expected, before anything else is read or written.
/// @throws frame_error that names the mismatch
GLOBALQ_DECL void check_header(source const& from, std::uint8_t wire, std::uint64_t count, std::size_t bytes,
                               frame_traits traits = 0);

}  // namespace GLOBALQ_ABI::wire

#if !defined(GLOBALQ_COMPILED)
#include "frame-inl.hpp"
#endif
