// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: Elias codes: short codewords for small codes and short gaps, without a table.

#include "block_code.hpp"
#include "detail/compact.hpp"
#include "detail/omega.hpp"
#include "detail/streams.hpp"

namespace GLOBALQ_ABI::wire {

/// @brief QSGD's code: Elias's omega code of gaps and levels (sparse form) or of levels alone (dense form).
///
/// The dense form has for each code omega(|code| + 1), followed by a sign unless the code is 0. The sparse form has for
/// each non-zero omega(distance to the previous non-zero), a sign and omega(|code|), and at the end of a stream
/// omega(distance to the position after its last code). The encoder uses the shorter form; the dense one if both are
/// equal. Few non-zeros share one stream, because directory and ends of four streams would be longer than the codes.
/// @shape a block
/// | bytes | content |
/// | --- | --- |
/// | 0 | form: 0 dense, 1 sparse, 2 sparse in one stream (<= one_stream_up_to non-zeros of >= streams_from codes) |
/// | 1.. | streams as in detail/streams.hpp; form 2 has one |
/// @tparam Int  std::int8_t or std::int16_t
/// @source Alistarh et al. 2017, section 3.1; docs/theory.md has the bounds on the length
template <class Int = std::int8_t>
class elias {
 public:
  using code_type = Int;
  struct table {};

  static constexpr char const* name() { return "elias"; }
  static constexpr std::uint64_t parameters() { return sizeof(Int); }
  static constexpr std::uint8_t identifier() { return sizeof(Int) == 1 ? 64 : 65; }
  static constexpr std::uint32_t largest_code() { return sizeof(Int) == 1 ? 127 : 32767; }
  /// The most non-zeros of a block that are written in one stream.
  static constexpr int one_stream_up_to = 256;

  table make_table(std::span<std::uint64_t const>, std::uint32_t) const { return {}; }
  std::size_t table_bytes(std::uint32_t) const { return 0; }
  void write_table(table const&, std::uint32_t, std::byte*) const {}
  bool read_table(std::byte const*, std::uint32_t, table&) const { return false; }

  std::size_t encode(table const&, code_type const* codes, int count, std::byte* out,
                     std::size_t room) const {
    detail::block_buffer block;
    lengths const l = measure(codes, count);
    std::byte* end = block.bytes + l.sparse;
    if (l.dense > l.sparse) end = encode_sparse(codes, count, block.bytes);  // else it is longer anyway
    if (l.dense <= static_cast<std::size_t>(end - block.bytes)) end = encode_dense(codes, count, block.bytes);
    return detail::deliver(block.bytes, end, out, room);
  }

  bool decode(table const& t, std::span<std::byte const> in, int count, std::uint32_t max_code,
              code_type* codes) const {
    return decode(t, in.data(), in.size(), count, max_code, codes);
  }
  bool decode(table const&, std::byte const* in, std::size_t size, int count, std::uint32_t max_code,
              code_type* codes) const {
    if (size == 0) return true;
    std::byte const form = in[0];
    bool bad = true;
    if (form == dense)
      bad = detail::read_prefix_code<true>(words().dense_entries, in + 1, size - 1, count, codes, read_dense);
    else if (form == sparse)
      bad = decode_sparse(in + 1, size - 1, count, detail::streams_of(count), codes);
    else if (form == sparse_one_stream)
      bad = count < detail::streams_from || decode_sparse(in + 1, size - 1, count, 1, codes);
    return bad || detail::beyond(codes, count, max_code);
  }

 private:
  static constexpr std::byte dense{0}, sparse{1}, sparse_one_stream{2};
  static constexpr int longest_word = sizeof(Int) == 1 ? 15 : 24;  // of a code in dense form

  /// Codewords of small codes and gaps; the others are computed.
  static constexpr int near_codes = 128, near_gaps = 256;
  struct tables {
    detail::codeword dense[2 * near_codes];  ///< by code; negative codes follow the others
    detail::codeword signed_level[2 * near_codes];
    detail::codeword gap[near_gaps];
    detail::table_entry dense_entries[1 << detail::table_bits];
    /// A gap, a sign and a level together: level * 1024 + gap * 64 + length.
    detail::table_entry unit_entries[1 << detail::table_bits];
  };

  static constexpr detail::codeword make_dense_word(std::int32_t code) {
    detail::codeword const w = detail::omega(static_cast<std::uint32_t>(code < 0 ? -code : code) + 1);
    if (code == 0) return w;
    return detail::make_codeword(detail::bits_of(w) << 1 | (code < 0 ? 1U : 0U), detail::length_of(w) + 1);
  }
  static constexpr detail::codeword make_signed_level(std::int32_t code) {
    detail::codeword const w = detail::omega(static_cast<std::uint32_t>(code < 0 ? -code : code));
    return detail::make_codeword((code < 0 ? 1U : 0U) << detail::length_of(w) | detail::bits_of(w),
                                 detail::length_of(w) + 1);
  }

  static constexpr void fill(detail::table_entry (&entries)[1 << detail::table_bits], std::uint32_t bits,
                             int length, std::int32_t what) {
    int const free = detail::table_bits - length;
    for (std::uint32_t i = bits << free; i < (bits + 1) << free; ++i)
      entries[i] = static_cast<detail::table_entry>(what + length);
  }

  static constexpr tables make_tables() {
    tables t{};
    for (std::int32_t code = -near_codes; code < near_codes; ++code) {
      auto const at = static_cast<std::size_t>(code & (2 * near_codes - 1));
      t.dense[at] = make_dense_word(code);
      if (code != 0) t.signed_level[at] = make_signed_level(code);
      if (detail::length_of(t.dense[at]) <= detail::table_bits)
        fill(t.dense_entries, detail::bits_of(t.dense[at]), detail::length_of(t.dense[at]), code * 64);
    }
    for (std::uint32_t gap = 1; gap < near_gaps; ++gap) {
      t.gap[gap] = detail::omega(gap);
      for (std::int32_t code = -15; gap < 16 && code < 16; ++code) {
        if (code == 0) continue;
        detail::codeword const g = t.gap[gap], l = make_signed_level(code);
        int const length = detail::length_of(g) + detail::length_of(l);
        if (length <= detail::table_bits)
          fill(t.unit_entries, detail::bits_of(g) << detail::length_of(l) | detail::bits_of(l), length,
               code * 1024 + static_cast<std::int32_t>(gap) * 64);
      }
    }
    return t;
  }
  static tables const& words() {
    static constexpr tables t = make_tables();
    return t;
  }

  GLOBALQ_ALWAYS_INLINE static detail::codeword dense_word(code_type code) {
    if constexpr (sizeof(Int) > 1)
      if (code < -near_codes || code >= near_codes) return make_dense_word(code);
    return words().dense[static_cast<std::size_t>(code & (2 * near_codes - 1))];
  }
  GLOBALQ_ALWAYS_INLINE static detail::codeword signed_level(code_type code) {
    if constexpr (sizeof(Int) > 1)
      if (code < -near_codes || code >= near_codes) return make_signed_level(code);
    return words().signed_level[static_cast<std::size_t>(code & (2 * near_codes - 1))];
  }
  GLOBALQ_ALWAYS_INLINE static detail::codeword gap_word(int gap) {
    return gap < near_gaps ? words().gap[static_cast<std::size_t>(gap)]
                           : detail::omega(static_cast<std::uint32_t>(gap));
  }

  /// Reads a codeword of the dense form that is not in the table.
  static int read_dense(std::uint64_t word, code_type& code) {
    detail::omega_value const v = detail::read_omega(word);
    if (v.length == 0 || v.value < 2 || v.value > largest_code() + 1) return 0;
    bool const negative = (word << v.length) >> 63 != 0;
    std::int32_t const level = static_cast<std::int32_t>(v.value) - 1;
    code = static_cast<code_type>(negative ? -level : level);
    return v.length + 1;
  }

  /// Bytes of both forms: exact for the dense one, a lower bound for the sparse one.
  struct lengths {
    std::size_t dense, sparse;
  };
  static lengths measure(code_type const* codes, int count) {
    int const streams = detail::streams_of(count), part = detail::part_values(count, streams);
    lengths bytes{1 + (streams == 1 ? 0 : detail::directory_bytes), 0};
    for (int j = 0; j < streams; ++j) {
      int const first = smaller(j * part, count), last = smaller((j + 1) * part, count);
      lengths const bits = measure_stream(codes + first, last - first);
      bytes.dense += (bits.dense + 7) / 8;
      bytes.sparse += bits.sparse;
    }
    bytes.sparse = 1 + (bytes.sparse + 7) / 8;
    return bytes;
  }
  /// The length of a codeword is a step function of its code; this sums the steps over all codes. In the sparse form,
  /// gaps count as if they were 1.
  GLOBALQ_LOOP static lengths measure_stream(code_type const* codes, int count) {
    using word = std::make_unsigned_t<Int>;
    lengths bits{0, 0};
    for (int first = 0; first < count; first += 256) {
      std::uint32_t dense_sum = 0, sparse_sum = 0;
      int const last = smaller(first + 256, count);
      for (int i = first; i < last; ++i) {
        std::int32_t const c = codes[i];
        auto const m = static_cast<word>(c < 0 ? -c : c);
        auto d = static_cast<word>(1 + 3 * (m >= 1) + 3 * (m >= 3) + (m >= 7) + 4 * (m >= 15) + (m >= 31) +
                                   (m >= 63) + (m >= 127));
        auto s = static_cast<word>(3 * (m >= 1) + 2 * (m >= 2) + 3 * (m >= 4) + (m >= 8) + 4 * (m >= 16) +
                                   (m >= 32) + (m >= 64));
        if constexpr (sizeof(Int) > 1) {
          d = static_cast<word>(d + 2 * (m >= 255) + (m >= 511) + (m >= 1023) + (m >= 2047) + (m >= 4095) +
                                (m >= 8191) + (m >= 16383) + (m >= 32767));
          s = static_cast<word>(s + (m >= 128) + 2 * (m >= 256) + (m >= 512) + (m >= 1024) + (m >= 2048) +
                                (m >= 4096) + (m >= 8192) + (m >= 16384));
        }
        dense_sum += d;
        sparse_sum += s;
      }
      bits.dense += dense_sum;
      bits.sparse += sparse_sum;
    }
    return bits;
  }

  /// Writes form and streams of the dense form. Not inlined, because the loop of the sparse form needs all registers.
  [[gnu::noinline]] static std::byte* encode_dense(code_type const* codes, int count, std::byte* out) {
    out[0] = dense;
    return detail::write_prefix_code<longest_word>(codes, count, out + 1,
                                                   [](code_type code) { return dense_word(code); });
  }
  /// The same for the sparse form.
  static std::byte* encode_sparse(code_type const* codes, int count, std::byte* out) {
    std::uint16_t at[block_values + detail::compact_slack];
    int const non_zeros = detail::compaction::positions(codes, count, at);
    bool const one = count >= detail::streams_from && non_zeros <= one_stream_up_to;
    out[0] = one ? sparse_one_stream : sparse;
    int const streams = one ? 1 : detail::streams_of(count), part = detail::part_values(count, streams);
    int k = 0;
    return detail::write_streams(streams, out + 1, [&](int j, std::byte* to) {
      detail::bit_writer w(to);
      int before = smaller(j * part, count) - 1;
      int const end = smaller((j + 1) * part, count);
      for (; k < non_zeros && at[k] < end; ++k) {
        w.put(gap_word(at[k] - before));
        w.put(signed_level(codes[at[k]]));
        w.flush();
        before = at[k];
      }
      w.put(gap_word(end - before));
      return w.finish();
    });
  }

  /// A non-zero of the sparse form, possibly invalid.
  struct unit {
    int gap, gap_length;  ///< length 0: invalid
    std::int32_t code;    ///< 0: invalid
    int length;           ///< of gap, sign and level
  };
  /// @param word  at least 44 bits
  [[gnu::noinline]] static unit read_unit(std::uint64_t word) {
    detail::omega_value const gap = detail::read_omega(word);
    std::uint64_t const rest = word << gap.length;
    detail::omega_value const level = detail::read_omega(rest << 1);
    std::int32_t const magnitude = level.value > largest_code() ? 0 : static_cast<std::int32_t>(level.value);
    return {static_cast<int>(gap.value), gap.length, rest >> 63 != 0 ? -magnitude : magnitude,
            gap.length + 1 + level.length};
  }

  /// One stream of the sparse form.
  struct gap_reader {
    detail::bit_reader bits;
    code_type* codes;
    int at, end;

    /// Reads the next non-zero. @returns false at the end of the stream; at == end then, unless the bits are bad
    GLOBALQ_ALWAYS_INLINE bool next(detail::table_entry const* entries) {
      std::int32_t const e = entries[bits.word() >> (64 - detail::table_bits)];
      int to = at + ((e >> 6) & 15), length = e & 63;
      std::int32_t code = e >> 10;
      if (e == 0) [[unlikely]] {
        bits.refill();
        unit const u = read_unit(bits.word());
        bool const bad = u.gap_length == 0 || (u.code == 0 && at + u.gap < end);
        to = bad ? end + 1 : at + u.gap;
        length = u.length;
        code = u.code;
      }
      if (to >= end) [[unlikely]] {
        if (to == end)
          bits.take(static_cast<std::uint32_t>(detail::omega_length(static_cast<std::uint32_t>(end - at))));
        at = to;
        return false;
      }
      at = to;
      codes[at] = static_cast<code_type>(code);
      bits.take(static_cast<std::uint32_t>(length));
      if (e == 0) [[unlikely]]
        bits.refill();
      return true;
    }
  };

  static bool decode_sparse(std::byte const* in, std::size_t size, int count, int streams, code_type* codes) {
    constexpr int each = 56 / detail::table_bits;
    detail::stream_reader block;
    if (block.open(in, size, streams)) return true;
    detail::clear(codes, count);
    detail::table_entry const* const entries = words().unit_entries;
    int const part = detail::part_values(count, streams);
    gap_reader readers[detail::most_streams];
    for (int j = 0; j < streams; ++j)
      readers[j] = {block.readers[j], codes, smaller(j * part, count) - 1, smaller((j + 1) * part, count)};
    bool open[detail::most_streams] = {true, true, true, true};
    if (streams == detail::most_streams) {
      gap_reader r0 = readers[0], r1 = readers[1], r2 = readers[2], r3 = readers[3];
      for (bool all = true; all;) {
        r0.bits.refill(), r1.bits.refill(), r2.bits.refill(), r3.bits.refill();
        for (int k = 0; k < each && all; ++k) {
          open[0] = r0.next(entries), open[1] = r1.next(entries);
          open[2] = r2.next(entries), open[3] = r3.next(entries);
          all = open[0] & open[1] & open[2] & open[3];
        }
      }
      readers[0] = r0, readers[1] = r1, readers[2] = r2, readers[3] = r3;
    }
    bool bad = false;
    for (int j = 0; j < streams; ++j) {
      gap_reader& r = readers[j];
      while (open[j]) {
        r.bits.refill();
        open[j] = r.next(entries);
      }
      block.readers[j] = r.bits;
      bad |= r.at != r.end || !block.ended(j);
    }
    if (bad) return true;
    if (count < detail::streams_from) return false;
    // the number of non-zeros determines the number of streams
    int const zeros = detail::zeros(codes, count);
    return (streams == 1) != (count - zeros <= one_stream_up_to);
  }
};

}  // namespace GLOBALQ_ABI::wire
