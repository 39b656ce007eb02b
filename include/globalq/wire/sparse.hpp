// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: non-zeros in fields of one width, and their positions; coding runs at about memory bandwidth.

#include "block_code.hpp"
#include "detail/compact.hpp"
#include "detail/sparse_form.hpp"
#include "detail/streams.hpp"
#include "packed.hpp"

#include <cstring>

namespace GLOBALQ_ABI::wire {

/// @brief The non-zeros of each block, and either their positions or a bitmap, whichever is shorter.
///
/// A non-zero takes w bits, the fewest for the largest one of the block: sign above magnitude - 1, as in wire::packed
/// without zero (w = 1: only signs), or 16 if that needs more than 8. A position takes 12 bits; the bitmap is shorter
/// from about one non-zero in 12 on. Each block has exactly one valid encoding.
/// @shape a block
/// | bytes | content |
/// | --- | --- |
/// | 0 | w, plus 128 for positions; a single 0: no non-zeros |
/// | positions: 1..2 | their number minus one |
/// | then | positions: 12 bits each, the first in the lowest bits; else the bitmap, the first code in the lowest bit |
/// | then | the non-zeros, w bits each, as in wire::packed; w = 16: as in wire::int16 |
/// @tparam Int  std::int8_t or std::int16_t
/// @source Xin et al., Algorithm 1 (index, sign and level of the non-zeros)
template <class Int = std::int8_t>
class sparse {
 public:
  using code_type = Int;
  struct table {};

  static constexpr char const* name() { return "sparse"; }
  static constexpr std::uint64_t parameters() { return sizeof(Int); }
  static constexpr std::uint8_t identifier() { return sizeof(Int) == 1 ? 68 : 69; }
  static constexpr std::uint32_t largest_code() { return sizeof(Int) == 1 ? 127 : 32767; }

  table make_table(std::span<std::uint64_t const>, std::uint32_t) const { return {}; }
  std::size_t table_bytes(std::uint32_t) const { return 0; }
  void write_table(table const&, std::uint32_t, std::byte*) const {}
  bool read_table(std::byte const*, std::uint32_t, table&) const { return false; }

  std::size_t encode(table const&, code_type const* codes, int count, std::byte* out,
                     std::size_t room) const {
    values v;
    std::byte bitmap[block_values / 8 + 8];
    int const n = detail::compaction::non_zeros(codes, count, v.non_zeros, bitmap);
    if (n == 0) {
      if (room < 1) return too_long;
      out[0] = std::byte{0};
      return 1;
    }
    int const w = form::template width<Int>(form::asks(largest(v.non_zeros, n)));
    bool const positions = form::takes_positions(n, count);
    auto const where = static_cast<std::size_t>(form::where_bytes(n, count));
    auto const size = static_cast<std::size_t>(form::block_bytes(n, w, count));
    if (size > room) return too_long;
    out[0] = static_cast<std::byte>(w | (positions ? 128 : 0));
    if (positions)
      write_positions(codes, count, n, out + 1);
    else
      std::memcpy(out + 1, bitmap, where);
    pack(v.non_zeros, n, w, out + 1 + where);
    return size;
  }

  bool decode(table const& t, std::span<std::byte const> in, int count, std::uint32_t max_code,
              code_type* codes) const {
    return decode(t, in.data(), in.size(), count, max_code, codes);
  }
  bool decode(table const&, std::byte const* in, std::size_t size, int count, std::uint32_t max_code,
              code_type* codes) const {
    if (size == 0) return true;
    int const head = static_cast<std::uint8_t>(in[0]);
    if (head == 0) {
      detail::clear(codes, count);
      return size != 1;
    }
    int const w = head & 127;
    if (!(w >= 1 && w <= 8) && !(sizeof(Int) == 2 && w == 16)) return true;
    values v;
    return (head & 128) != 0 ? decode_positions(in + 1, size - 1, count, w, max_code, v, codes)
                             : decode_bitmap(in + 1, size - 1, count, w, max_code, v, codes);
  }

 private:
  using form = detail::sparse_form;

  /// Non-zeros of a block, and room for writing whole vectors.
  struct values {
    code_type non_zeros[block_values + detail::compact_slack];
  };

  GLOBALQ_LOOP static std::uint32_t largest(code_type const* non_zeros, int n) {
    std::int32_t most = 0;
    for (int i = 0; i < n; ++i) {
      std::int32_t const m = non_zeros[i] < 0 ? -non_zeros[i] : non_zeros[i];
      most = most < m ? m : most;
    }
    return static_cast<std::uint32_t>(most);
  }
  static void pack(code_type const* non_zeros, int n, int w, std::byte* out) {
    if constexpr (sizeof(Int) == 2) {
      if (w == 16) {
        std::memcpy(out, non_zeros, static_cast<std::size_t>(n) * 2);
        return;
      }
      std::int8_t narrow[block_values];
      for (int i = 0; i < n; ++i) narrow[i] = static_cast<std::int8_t>(non_zeros[i]);
      detail::packed_loops::pack(w, narrow, n, out, true);
    } else {
      detail::packed_loops::pack(w, non_zeros, n, out, true);
    }
  }
  /// @returns false if these are non-zeros of magnitude up to max_code, and w is their width
  static bool unpack(std::byte const* in, int n, int w, std::uint32_t max_code, code_type* non_zeros) {
    bool bad = false;
    if constexpr (sizeof(Int) == 2) {
      if (w == 16) {
        std::memcpy(non_zeros, in, static_cast<std::size_t>(n) * 2);
        bad = detail::zeros(non_zeros, n) != 0;
      } else {
        std::int8_t narrow[block_values];
        bad = detail::packed_loops::unpack(w, in, n, narrow, true);
        for (int i = 0; i < n; ++i) non_zeros[i] = narrow[i];
      }
    } else {
      bad = detail::packed_loops::unpack(w, in, n, non_zeros, true);
    }
    std::uint32_t const most = largest(non_zeros, n);
    return bad || most > max_code || form::template width<Int>(form::asks(most)) != w;
  }

  static void write_positions(code_type const* codes, int count, int n, std::byte* out) {
    std::uint16_t at[block_values + detail::compact_slack];
    detail::compaction::positions(codes, count, at);
    auto const number = static_cast<std::uint16_t>(n - 1);
    std::memcpy(out, &number, 2);
    out += 2;
    at[n] = 0;  // if the number is odd: the second half of the last three bytes
    for (int k = 0; k < n; k += 2, out += 3) {
      std::uint32_t const two = at[k] | static_cast<std::uint32_t>(at[k + 1]) << 12;
      std::memcpy(out, &two, k + 1 < n ? 3 : 2);
    }
  }

  static bool decode_positions(std::byte const* in, std::size_t size, int count, int w,
                               std::uint32_t max_code, values& v, code_type* codes) {
    std::uint16_t number = 0;
    if (size < 2) return true;
    std::memcpy(&number, in, 2);
    int const n = number + 1;
    if (n > count || !form::takes_positions(n, count)) return true;
    auto const where = static_cast<std::size_t>(form::where_bytes(n, count));
    if (size != where + static_cast<std::size_t>(form::field_bytes(n, w))) return true;
    if (unpack(in + where, n, w, max_code, v.non_zeros)) return true;
    detail::clear(codes, count);
    int before = -1;
    std::byte const* from = in + 2;
    for (int k = 0; k < n; k += 2, from += 3) {
      std::uint32_t two = 0;
      std::memcpy(&two, from, k + 1 < n ? 3 : 2);
      int const first = two & 4095U, second = k + 1 < n ? static_cast<int>(two >> 12) : count;
      if (first <= before || first >= count ||
          (k + 1 < n ? second <= first || second >= count : two >> 12 != 0))
        return true;
      codes[first] = v.non_zeros[k];
      if (k + 1 < n) codes[second] = v.non_zeros[k + 1];
      before = second;
    }
    return false;
  }

  static bool decode_bitmap(std::byte const* in, std::size_t size, int count, int w, std::uint32_t max_code,
                            values& v, code_type* codes) {
    auto const where = static_cast<std::size_t>(form::bitmap_bytes(count));
    if (size < where) return true;
    int n = 0;
    std::size_t i = 0;
    for (; i + 8 <= where; i += 8) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, in + i, 8);
      n += one_bits(bits);
    }
    for (; i < where; ++i) n += one_bits(static_cast<std::uint8_t>(in[i]));
    if (count % 8 != 0 && static_cast<int>(in[where - 1]) >> (count % 8) != 0) return true;
    if (n == 0 || form::takes_positions(n, count) ||
        size != where + static_cast<std::size_t>(form::field_bytes(n, w)))
      return true;
    if (unpack(in + where, n, w, max_code, v.non_zeros)) return true;
    detail::compaction::expand(in, v.non_zeros, count, codes);
    return false;
  }
};

}  // namespace GLOBALQ_ABI::wire
