// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: a block in four streams of bits, so that a processor decodes four codewords at a time.
///
/// A codeword's length must be known before the next one can be looked up, which takes some 7 cycles. Four independent
/// streams hide this latency. Stream j holds the codes from j * part_values(count) on; blocks of fewer than
/// streams_from codes have one stream.
///
/// | bytes | content |
/// | --- | --- |
/// | 0..5 | bytes of the streams 0, 1 and 2, two bytes each (not with one stream) |
/// | then | the streams, each padded with zeros to a whole byte |

#include "../block_code.hpp"
#include "bits.hpp"

#include <cstring>

namespace GLOBALQ_ABI::wire::detail {

inline constexpr int most_streams = 4;
inline constexpr int streams_from = 1024;
inline constexpr std::size_t directory_bytes = 2 * (most_streams - 1);

constexpr int streams_of(int count) { return count >= streams_from ? most_streams : 1; }
/// Codes of each stream but the last, which has the remaining ones.
constexpr int part_values(int count, int streams) { return divide_up(count, streams); }

/// The most bytes of an encoded block: up to 25 bits per value, and the directory.
inline constexpr std::size_t longest_block = 13 * 1024;

/// Receives a block before it is known whether it fits into the output.
struct block_buffer {
  std::byte bytes[longest_block + writer_slack];
};

/// Copies a block to its output if it fits; else returns too_long.
inline std::size_t deliver(std::byte const* block, std::byte const* end, std::byte* out, std::size_t room) {
  auto const size = static_cast<std::size_t>(end - block);
  if (size > room) return too_long;
  if (size != 0) std::memcpy(out, block, size);
  return size;
}

/// Writes streams one after the other. stream(j, out) returns its end.
template <class F>
std::byte* write_streams(int streams, std::byte* out, F const& stream) {
  std::byte* at = streams == 1 ? out : out + directory_bytes;
  for (int j = 0; j < streams; ++j) {
    std::byte* const end = stream(j, at);
    if (j + 1 < streams) {
      auto const size = static_cast<std::uint16_t>(end - at);
      std::memcpy(out + 2 * j, &size, 2);
    }
    at = end;
  }
  return at;
}

/// A copy of a block followed by zeros, so that readers may read a few bytes beyond its end.
class stream_reader {
 public:
  /// @returns true when the bytes are not valid streams
  bool open(std::byte const* in, std::size_t size, int streams) {
    std::size_t const directory = streams == 1 ? 0 : directory_bytes;
    if (size < directory || size > longest_block) return true;
    if (size != 0) std::memcpy(bytes_, in, size);
    std::memset(bytes_ + size, 0, reader_slack);
    begins_[0] = bytes_ + directory;
    begins_[streams] = bytes_ + size;
    for (int j = 0; j + 1 < streams; ++j) {
      std::uint16_t bytes = 0;
      std::memcpy(&bytes, bytes_ + 2 * j, 2);
      if (bytes > begins_[streams] - begins_[j]) return true;
      begins_[j + 1] = begins_[j] + bytes;
    }
    for (int j = 0; j < streams; ++j) readers[j] = bit_reader(begins_[j], begins_[streams]);
    return false;
  }
  /// Whether stream j was read from its begin to its end.
  bool ended(int j) { return readers[j].ended(begins_[j], begins_[j + 1]); }

  bit_reader readers[most_streams];

 private:
  std::byte const* begins_[most_streams + 1];
  std::byte bytes_[longest_block + reader_slack];
};

/// Bits that index a table of codewords.
inline constexpr int table_bits = 12;

/// The entry for a codeword that begins with these bits: code * 64 + length, or 0 for a longer one.
using table_entry = std::int16_t;

/// Writes codes as the codewords of a prefix code.
/// @param word_of  codeword of a code, at most Longest bits
/// @returns        the end of the bytes
template <int Longest, class Int, class F>
std::byte* write_prefix_code(Int const* codes, int count, std::byte* out, F const& word_of) {
  constexpr int each = 56 / Longest;  // between two flushes
  int const streams = streams_of(count), part = part_values(count, streams);
  return write_streams(streams, out, [&](int j, std::byte* at) {
    Int const* const first = codes + smaller(j * part, count);
    Int const* const last = codes + smaller((j + 1) * part, count);
    bit_writer w(at);
    Int const* c = first;
    for (; last - c >= each; c += each) {
      for (int k = 0; k < each; ++k) w.put(word_of(c[k]));
      w.flush();
    }
    for (; c != last; ++c) {
      w.put(word_of(*c));
      w.flush();
    }
    return w.finish();
  });
}

/// Reads one code of a stream. @returns whether the bits are bad
template <bool Escapes, class Int, class F>
GLOBALQ_ALWAYS_INLINE bool read_code(table_entry const* table, bit_reader& r, Int& code, F const& escape) {
  std::int32_t const e = table[r.word() >> (64 - table_bits)];
  if constexpr (Escapes) {
    if (e == 0) [[unlikely]] {
      r.refill();
      int const length = escape(r.word(), code);
      r.take(static_cast<std::uint32_t>(length));
      r.refill();
      return length == 0;
    }
  }
  code = static_cast<Int>(e >> 6);
  r.take(static_cast<std::uint32_t>(e));
  return false;
}

/// Reads what write_prefix_code() wrote.
/// @param escape  decodes a codeword that is not in the table: escape(word, code) returns its length, or 0 for bad bits
/// @returns       true for bad bytes
template <bool Escapes, class Int, class F>
bool read_prefix_code(table_entry const* table, std::byte const* in, std::size_t size, int count, Int* codes,
                      F const& escape) {
  constexpr int each = 56 / table_bits;
  int const streams = streams_of(count), part = part_values(count, streams);
  stream_reader block;
  if (block.open(in, size, streams)) return true;
  bool bad = false;
  int done = 0;
  if (streams == most_streams) {
    int const whole = (count - 3 * part) / each * each;  // of the last stream, which is the shortest
    bit_reader r0 = block.readers[0], r1 = block.readers[1], r2 = block.readers[2], r3 = block.readers[3];
    Int* const c1 = codes + part;
    Int* const c2 = c1 + part;
    Int* const c3 = c2 + part;
    for (; done < whole; done += each) {
      r0.refill(), r1.refill(), r2.refill(), r3.refill();
      for (int k = 0; k < each; ++k) {
        bad |= read_code<Escapes>(table, r0, codes[done + k], escape);
        bad |= read_code<Escapes>(table, r1, c1[done + k], escape);
        bad |= read_code<Escapes>(table, r2, c2[done + k], escape);
        bad |= read_code<Escapes>(table, r3, c3[done + k], escape);
      }
    }
    block.readers[0] = r0, block.readers[1] = r1, block.readers[2] = r2, block.readers[3] = r3;
  }
  for (int j = 0; j < streams; ++j) {
    bit_reader r = block.readers[j];
    int const end = smaller((j + 1) * part, count);
    for (int i = smaller(j * part, count) + done; i < end; ++i) {
      r.refill();
      bad |= read_code<Escapes>(table, r, codes[i], escape);
    }
    block.readers[j] = r;
    bad |= !block.ended(j);
  }
  return bad;
}

/// Sets all codes to zero. If count is 0, the address may be invalid.
template <class Int>
GLOBALQ_ALWAYS_INLINE void clear(Int* codes, int count) {
  if (count > 0) std::memset(codes, 0, static_cast<std::size_t>(count) * sizeof(Int));
}

/// The number of codes that are zero.
template <class Int>
GLOBALQ_LOOP int zeros(Int const* codes, int count) {
  int n = 0;
  for (int i = 0; i < count; ++i) n += codes[i] == 0 ? 1 : 0;
  return n;
}

/// Whether the magnitude of a code is above a limit.
template <class Int>
GLOBALQ_LOOP bool beyond(Int const* codes, int count, std::uint32_t limit) {
  std::int32_t const most = static_cast<std::int32_t>(limit);
  std::int32_t bad = 0;
  for (int i = 0; i < count; ++i) {
    std::int32_t const c = codes[i];
    bad |= static_cast<std::int32_t>(c > most) | static_cast<std::int32_t>(c < -most);
  }
  return bad != 0;
}

}  // namespace GLOBALQ_ABI::wire::detail
