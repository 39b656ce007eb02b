// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: writes and reads streams of bits. The first bit of a stream is the highest of its first byte.
///
/// Both keep a 64-bit word. The writer shifts codewords in from below and stores 8 bytes at a time; the reader loads 8
/// bytes and shifts codewords out at the top, where they index a table. Neither has a branch.

#include "../../core/arithmetic.hpp"

#include <cstddef>
#include <cstring>

namespace GLOBALQ_ABI::wire::detail {

GLOBALQ_ALWAYS_INLINE std::uint64_t swap_bytes(std::uint64_t x) {
#if defined(__GNUC__)
  return __builtin_bswap64(x);
#else
  std::uint64_t y = 0;
  for (int k = 0; k < 8; ++k) y |= ((x >> (8 * k)) & 0xff) << (56 - 8 * k);
  return y;
#endif
}

/// A codeword and its length in one integer: the length in the low six bits, the bits from bit 8 on. Shifting by it
/// shifts by the length, and the low bits of a sum are the sum of the lengths, so loops need no masks.
using codeword = std::uint32_t;
constexpr codeword make_codeword(std::uint32_t bits, int length) {
  return bits << 8 | static_cast<std::uint32_t>(length);
}
constexpr int length_of(codeword c) { return static_cast<int>(c & 63U); }
constexpr std::uint32_t bits_of(codeword c) { return c >> 8; }

/// Bytes after the last one that a writer may overwrite.
inline constexpr std::size_t writer_slack = 8;

/// Writes codewords. The target must have writer_slack bytes more than needed.
class bit_writer {
 public:
  explicit bit_writer(std::byte* out) : at_(out) {}

  /// @pre at most 56 bits since the last flush
  GLOBALQ_ALWAYS_INLINE void put(codeword c) {
    word_ = word_ << (c & 63U) | (c >> 8);
    used_ += c;
  }
  GLOBALQ_ALWAYS_INLINE void put(std::uint64_t bits, int length) {
    word_ = word_ << length | bits;
    used_ += static_cast<std::uint32_t>(length);
  }
  GLOBALQ_ALWAYS_INLINE void flush() {
    std::uint32_t const n = used_ & 63U;
    std::uint64_t const bytes = swap_bytes(word_ << ((64U - n) & 63U));
    std::memcpy(at_, &bytes, 8);
    at_ += n >> 3;
    used_ = n & 7U;
  }
  /// Fills the last byte with zeros. @returns the end of the bytes
  GLOBALQ_ALWAYS_INLINE std::byte* finish() {
    flush();
    return at_ + (used_ != 0 ? 1 : 0);
  }

 private:
  std::uint64_t word_ = 0;  // its lowest used_ bits are not stored yet; those above them are
  std::uint32_t used_ = 0;
  std::byte* at_;
};

/// Zero bytes that must follow the last byte of a reader's input.
inline constexpr std::size_t reader_slack = 16;

/// Reads codewords. Never reads beyond the end plus reader_slack, however much is taken.
///
/// There is no count of the bits taken: a 1 below the bits of the word moves up with them.
class bit_reader {
 public:
  bit_reader() = default;
  /// @param end  the end of all bytes, which may be after the end of this stream
  bit_reader(std::byte const* begin, std::byte const* end) : at_(begin), last_(end + 1) { load(0); }

  /// Loads the next bits, at least 56, into the word.
  GLOBALQ_ALWAYS_INLINE void refill() {
    int const taken = trailing_zeros(word_);
    at_ += taken >> 3;
    at_ = at_ < last_ ? at_ : last_;
    load(taken & 7);
  }
  /// The next bits, the first one on top.
  GLOBALQ_ALWAYS_INLINE std::uint64_t word() const { return word_; }
  /// @param length  in the low six bits
  /// @pre           at most 56 bits since the last refill
  GLOBALQ_ALWAYS_INLINE void take(std::uint32_t length) { word_ <<= length & 63U; }

  /// Whether exactly the bytes [begin, end) were read, except for zeros that fill the last one.
  bool ended(std::byte const* begin, std::byte const* end) {
    refill();
    int const taken = trailing_zeros(word_);
    auto const bits = (at_ - begin) * 8 + taken;
    if (bits > (end - begin) * 8 || bits <= (end - begin) * 8 - 8) return false;
    return taken == 0 || (static_cast<std::uint32_t>(*at_) & (0xffU >> taken)) == 0;
  }

 private:
  GLOBALQ_ALWAYS_INLINE void load(int taken) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, at_, 8);
    word_ = (swap_bytes(bytes) | 1U) << taken;
  }

  std::uint64_t word_ = 0;
  std::byte const* at_ = nullptr;
  std::byte const* last_ = nullptr;  // after any valid stream
};

}  // namespace GLOBALQ_ABI::wire::detail
