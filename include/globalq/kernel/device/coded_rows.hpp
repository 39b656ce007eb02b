// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the codes of a GPU thread's rows: reading them from a frame, checking them, and writing them to one.

#include "../executor.hpp"
#include "../loops.hpp"
#include "operands.hpp"
#include "registers.hpp"

namespace GLOBALQ_ABI::kernel::device {

/// The position of a thread's rows in a segment, and of their codes in frames.
/// @tparam Operands  operands of the call
/// @tparam Rows      4: all rows of a thread; 1: one row
template <class Operands, int Lanes, int Rows>
class coded_rows {
 public:
  static constexpr int N = row_values<Lanes>;
  static constexpr int R = Rows;
  static_assert(Lanes < 16 && (Rows == 4 || Rows == 1));
  using code_type = typename Operands::code_type;
  using wire_type = typename Operands::wire_type;

  /// The codes of all rows.
  struct codes {
    code_row<code_type, N> row[R];
  };

  GLOBALQ_FUNCTION coded_rows(Operands const& operands, std::uint64_t index, int lane, int row = 0)
      : o(operands),
        first_(index * tile_values + static_cast<std::uint64_t>(64 * row + 4 * lane)),
        row_(row) {
    std::uint64_t const rest = operands.count - index * tile_values;
    whole_ = rest >= tile_values;
    left_ = (whole_ ? tile_values : static_cast<int>(rest)) - 64 * row - 4 * lane;
  }

  /// Loads the bytes of the codes from a frame.
  GLOBALQ_FUNCTION void fetch(std::byte const* frame, codes& raw) const {
    constexpr int bytes = row_bytes<wire_type, N>;
    frame = global(frame);
    std::byte const* const p = frame + o.wire.bytes(first_);
    if constexpr (bytes != 0) {
      if (whole_ && aligned<bytes>(p)) {
        GLOBALQ_UNROLL
        for (int r = 0; r < R; ++r) load_whole<bytes>(p + r * row_stride, raw.row[r].word);
        return;
      }
    }
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) {
      if constexpr (is_integer)
        load_some<sizeof(code_type)>(p + r * row_stride, count(r), raw.row[r].word);
      else if constexpr (has_quads)
        load_some<1>(frame + o.wire.bytes(first_ + row_start(r)), bytes_of(count(r)), raw.row[r].word);
      else
        unpack_slowly(frame, r, raw.row[r]);
    }
  }

  /// Unpacks bytes to codes, in place; reports invalid bytes and codes out of range.
  /// @param limit  the largest code
  GLOBALQ_FUNCTION void unpack(codes& c, std::uint32_t limit) const {
    bool bad = false;
    if constexpr (!is_integer && has_quads) {
      if (!whole_) {
        GLOBALQ_UNROLL
        for (int r = 0; r < R; ++r) bad = unused_bits(c.row[r].word, count(r)) || bad;
      }
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        code_row<code_type, N> const raw = c.row[r];
        bad = o.wire.unpack_quads(raw.word, c.row[r].word, limit, o.zero_free) || bad;
      }
    }
    if constexpr (is_integer || !has_quads) bad = out_of_range(c, limit);
    if (bad) o.report(bad_code);
  }

  /// Reports codes out of range that a user-defined reduce operator returned.
  GLOBALQ_FUNCTION void check(codes const& c, std::uint32_t limit) const {
    if (out_of_range(c, limit)) o.report(bad_sum);
  }

  /// Writes codes to a frame.
  GLOBALQ_FUNCTION void write(codes const& c, std::byte* frame) const {
    constexpr int bytes = row_bytes<wire_type, N>;
    if constexpr (!is_integer && !has_quads) {
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) pack_slowly(c.row[r], r, frame);
    } else {
      codes packed;
      if constexpr (is_integer) {
        packed = c;
      } else {
        GLOBALQ_UNROLL
        for (int r = 0; r < R; ++r) o.wire.pack_quads(c.row[r].word, packed.row[r].word, o.zero_free);
      }
      std::byte* const p = frame + o.wire.bytes(first_);
      if constexpr (bytes != 0) {
        if (whole_ && aligned<bytes>(p)) {
          GLOBALQ_UNROLL
          for (int r = 0; r < R; ++r) store_whole<bytes>(p + r * row_stride, packed.row[r].word);
          return;
        }
      }
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        if constexpr (is_integer) {
          store_some<sizeof(code_type)>(p + r * row_stride, count(r), packed.row[r].word);
        } else {
          GLOBALQ_UNROLL
          for (int k = 0; k < N / 4; ++k) packed.row[r].word[k] &= used_mask(count(r), k);
          store_some<1>(frame + o.wire.bytes(first_ + row_start(r)), bytes_of(count(r)), packed.row[r].word);
        }
      }
    }
  }

  GLOBALQ_FUNCTION bool whole() const { return whole_; }

  /// The number of values in a row.
  GLOBALQ_FUNCTION int count(int r) const {
    int const left = left_ - 64 * r;
    return left < 0 ? 0 : (left < N ? left : N);
  }

 protected:
  GLOBALQ_FUNCTION static std::uint64_t row_start(int r) { return static_cast<std::uint64_t>(64 * r); }

  Operands const& o;
  std::uint64_t first_;  ///< of the first row, in the segment
  int row_;              ///< index of the first row
  int left_;             ///< values from there to the end of the tile or of the segment
  bool whole_;           ///< whether all values of the tile exist

 private:
  static constexpr bool is_integer = globalq::detail::is_integer_wire<wire_type>();
  /// Whether a packed wire can be packed and unpacked in registers.
  static constexpr bool has_quads =
      globalq::detail::SaysQuadBytes<wire_type> && !is_integer && sizeof(code_type) == 1;
  static constexpr int row_stride = row_bytes<wire_type, 64>;

  GLOBALQ_FUNCTION int bytes_of(int n) const {
    return static_cast<int>(o.wire.bytes(static_cast<std::uint64_t>(n)));
  }

  /// The bits of word k of a row that its n codes occupy.
  GLOBALQ_FUNCTION std::uint32_t used_mask(int n, int k) const {
    int const used = n * o.wire.bits() - 32 * k;
    return used <= 0 ? 0U : (used >= 32 ? ~0U : (1U << used) - 1U);
  }
  template <int W>
  GLOBALQ_FUNCTION bool unused_bits(std::uint32_t const (&word)[W], int n) const {
    std::uint32_t set = 0;
    GLOBALQ_UNROLL
    for (int k = 0; k < W; ++k) set |= word[k] & ~used_mask(n, k);
    return set != 0;
  }

  GLOBALQ_FUNCTION bool out_of_range(codes const& c, std::uint32_t limit) const {
    if constexpr (sizeof(code_type) == 1) {
      std::uint32_t bad = 0;
      if (limit < 128) {
        std::uint32_t const room = (127U - limit) * quad::ones;
        GLOBALQ_UNROLL
        for (int r = 0; r < R; ++r) {
          GLOBALQ_UNROLL
          for (int k = 0; k < N / 4; ++k) bad |= quad::beyond(c.row[r].word[k], room);
        }
      }
      if (o.zero_free) {
        GLOBALQ_UNROLL
        for (int r = 0; r < R; ++r) {
          GLOBALQ_UNROLL
          for (int k = 0; k < N / 4; ++k) {
            int const valid = count(r) - 4 * k;
            std::uint32_t const mask = valid <= 0 ? 0U : (valid >= 4 ? ~0U : (1U << (8 * valid)) - 1U);
            bad |= quad::zeros(c.row[r].word[k]) & mask;
          }
        }
      }
      return (bad & quad::tops) != 0;
    } else {
      std::int32_t low = 0, high = 0;
      bool zero = false;
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        GLOBALQ_UNROLL
        for (int i = 0; i < N; ++i) {
          std::int32_t const v = c.row[r].get(i);
          low = v < low ? v : low;
          high = high < v ? v : high;
          zero = zero || (v == 0 && i < count(r));
        }
      }
      std::int64_t const largest = limit;
      return high > largest || low < -largest || (o.zero_free && zero);
    }
  }

  /// For wires without functions for registers.
  GLOBALQ_FUNCTION void unpack_slowly(std::byte const* frame, int r, code_row<code_type, N>& out) const {
    code_type buffer[N];
    out.clear();
    if (count(r) == 0) return;
    if (o.wire.unpack(frame + o.wire.bytes(first_ + row_start(r)), count(r), buffer, o.zero_free))
      o.report(bad_code);
    for (int i = 0; i < N; ++i)
      if (i < count(r)) out.set(i, buffer[i]);
  }
  GLOBALQ_FUNCTION void pack_slowly(code_row<code_type, N> const& in, int r, std::byte* frame) const {
    code_type buffer[N];
    if (count(r) == 0) return;
    for (int i = 0; i < N; ++i) buffer[i] = static_cast<code_type>(in.get(i));
    o.wire.pack(buffer, count(r), frame + o.wire.bytes(first_ + row_start(r)), o.zero_free);
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
