// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: canonical Huffman codes over the signed codes of a frame.

#include "../core/error.hpp"
#include "block_code.hpp"
#include "detail/package_merge.hpp"
#include "detail/streams.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace GLOBALQ_ABI::wire {

/// @brief An optimal prefix code for the frequencies of the codes; only the lengths of its codewords travel.
///
/// Each signed code has a codeword. The published code, codewords of levels followed by a sign bit for non-zeros, is a
/// special case, so the optimal code is never longer; decoding is one table look-up either way.
/// Codewords have at most 12 bits, and package-merge gives the best such code. Its length is at most
/// H + 1 + log2(1 / (1 - m / 4096)) bits per value, for entropy H of the signed codes and m codes that occur; for int8
/// codes at most H(level) + 1.1 and one bit per non-zero. Without the limit of 12 bits the bound is H + 1. If no code
/// is rarer than 1 in 610, the limit changes nothing.
/// @tparam Int  std::int8_t: codes up to 127; std::int16_t: up to 511
/// @shape a block: streams as in detail/streams.hpp; a table: 4 bits per code from -max_code on, its codeword's length
///    or 0
/// @source Faghri et al. 2020, appendix D; Larmore and Hirschberg 1990 (package-merge)
template <class Int = std::int8_t>
class huffman {
 public:
  using code_type = Int;
  static constexpr int longest_word = detail::table_bits;

  static constexpr char const* name() { return "huffman"; }
  static constexpr std::uint64_t parameters() { return sizeof(Int); }
  static constexpr std::uint8_t identifier() { return sizeof(Int) == 1 ? 66 : 67; }
  static constexpr std::uint32_t largest_code() { return sizeof(Int) == 1 ? 127 : 511; }

  /// The codewords of all codes, and the decoding table by leading bits.
  struct table {
    std::uint8_t lengths[2 * largest_code() + 1];      ///< by code + max_code; 0: the code does not occur
    detail::codeword words[2 * (largest_code() + 1)];  ///< by code; negative codes follow the others
    detail::table_entry entries[1 << longest_word];
  };

  /// @param counts  frequencies of the 2 * max_code + 1 codes from -max_code on
  /// @returns the optimal codewords for these counts. A code with count 0 has none; encode() returns too_long for a
  ///          block that contains it. Add one to each count if they come from a sample.
  /// @throws configuration_error when max_code is 0 or above largest_code(), or counts has another size
  /// @complexity O(m log m + 12 m), no allocation
  /// @determinism the same counts give the same codewords everywhere; the order of codes breaks ties
  table make_table(std::span<std::uint64_t const> counts, std::uint32_t max_code) const {
    if (max_code == 0 || max_code > largest_code())
      throw configuration_error("globalq: wire::huffman: the largest code is " + std::to_string(max_code) +
                                "; with this code type use 1 to " + std::to_string(largest_code()) +
                                ", or wire::elias");
    std::size_t const symbols = 2 * max_code + 1;
    if (counts.size() != symbols)
      throw configuration_error("globalq: wire::huffman: " + std::to_string(counts.size()) +
                                " counts; pass 2 * max_code + 1 = " + std::to_string(symbols));
    table t;
    detail::package_merge<2 * largest_code() + 1, longest_word> merge;
    merge(counts, std::span(t.lengths, symbols));
    build(max_code, t);
    return t;
  }

  std::size_t table_bytes(std::uint32_t max_code) const { return max_code + 1; }

  void write_table(table const& t, std::uint32_t max_code, std::byte* out) const {
    for (std::uint32_t i = 0; i <= max_code; ++i) {
      std::uint32_t const high = i < max_code ? t.lengths[2 * i + 1] : 0;
      out[i] = static_cast<std::byte>(t.lengths[2 * i] | high << 4);
    }
  }

  /// @returns false if the lengths form a complete prefix code
  bool read_table(std::byte const* in, std::uint32_t max_code, table& t) const {
    if (max_code == 0 || max_code > largest_code()) return true;
    std::uint32_t sum = 0;
    auto const add = [&](std::uint32_t i, std::uint32_t length) {
      t.lengths[i] = static_cast<std::uint8_t>(length);
      if (length > longest_word) sum = 2U << 24;
      if (length != 0 && length <= longest_word) sum += 1U << (longest_word - length);
    };
    for (std::uint32_t i = 0; i <= max_code; ++i) {
      auto const two = std::to_integer<std::uint32_t>(in[i]);
      add(2 * i, two & 15U);
      if (i < max_code)
        add(2 * i + 1, two >> 4);
      else if (two >> 4 != 0)
        return true;
    }
    if (sum != 1U << longest_word) return true;
    build(max_code, t);
    return false;
  }

  std::size_t encode(table const& t, code_type const* codes, int count, std::byte* out,
                     std::size_t room) const {
    detail::block_buffer block;
    detail::codeword flags = 0;
    std::byte* const end =
        detail::write_prefix_code<longest_word>(codes, count, block.bytes, [&](code_type c) {
          detail::codeword const w = t.words[index(c)];
          flags |= w;
          return w;
        });
    if ((flags & absent) != 0) return too_long;
    return detail::deliver(block.bytes, end, out, room);
  }

  bool decode(table const& t, std::span<std::byte const> in, int count, std::uint32_t max_code,
              code_type* codes) const {
    return decode(t, in.data(), in.size(), count, max_code, codes);
  }
  bool decode(table const& t, std::byte const* in, std::size_t size, int count, std::uint32_t /*max_code*/,
              code_type* codes) const {
    return detail::read_prefix_code<false>(t.entries, in, size, count, codes,
                                           [](std::uint64_t, code_type&) { return 0; });
  }

 private:
  static constexpr detail::codeword absent = 1U << 31;

  static constexpr std::size_t index(std::int32_t code) {
    return static_cast<std::uint32_t>(code) & (2 * (largest_code() + 1) - 1);
  }

  /// Computes codewords and entries from lengths: shorter codewords first, those of one length in the order of codes.
  /// @pre the lengths form a complete prefix code
  static void build(std::uint32_t max_code, table& t) {
    for (detail::codeword& w : t.words) w = absent;
    std::uint32_t next[longest_word + 1] = {}, number[longest_word + 1] = {};
    for (std::uint32_t i = 0; i < 2 * max_code + 1; ++i) ++number[t.lengths[i]];
    for (int l = 1; l < longest_word; ++l) next[l + 1] = (next[l] + number[l]) << 1;
    for (std::uint32_t i = 0; i < 2 * max_code + 1; ++i) {
      int const length = t.lengths[i];
      if (length == 0) continue;
      std::uint32_t const bits = next[length]++;
      std::int32_t const code = static_cast<std::int32_t>(i) - static_cast<std::int32_t>(max_code);
      t.words[index(code)] = detail::make_codeword(bits, length);
      int const free = longest_word - length;
      std::fill_n(t.entries + (bits << free), 1U << free,
                  static_cast<detail::table_entry>(code * 64 + length));
    }
  }
};

}  // namespace GLOBALQ_ABI::wire
