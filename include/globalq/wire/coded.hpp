// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: the body of a variable-length frame: an index, and blocks in variable or fixed width.

#include "../core/codec.hpp"
#include "../core/error.hpp"
#include "block_code.hpp"
#include "detail/streams.hpp"
#include "packed.hpp"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::wire {

namespace detail {

/// wire::int16 without alignment, because blocks begin at any byte.
struct unaligned_int16 {
  using code_type = std::int16_t;
  GLOBALQ_FUNCTION static std::uint64_t bytes(std::uint64_t n) { return 2 * n; }
  static void pack(std::int16_t const* codes, int count, std::byte* out, bool) {
    std::memcpy(out, codes, 2 * static_cast<std::size_t>(count));
  }
  static bool unpack(std::byte const* in, int count, std::int16_t* codes, bool) {
    std::memcpy(codes, in, 2 * static_cast<std::size_t>(count));
    return false;
  }
};

/// The fixed-width format that a block falls back to: wire::packed with the fewest bits, or wire::int16.
template <class Int>
using fixed_width = std::conditional_t<sizeof(Int) == 1, packed<>, unaligned_int16>;
template <class Int>
fixed_width<Int> make_fixed_width(std::uint32_t max_code, bool zero_free) {
  if constexpr (sizeof(Int) == 1)
    return packed<>(1 + static_cast<std::uint32_t>(bit_width(max_code - (zero_free ? 1 : 0))));
  else
    return {};
}

/// Packs and unpacks blocks in fixed width.
template <class Int>
struct in_fixed_width {
  fixed_width<Int> form;

  in_fixed_width(std::uint32_t max_code, bool zero_free) : form(make_fixed_width<Int>(max_code, zero_free)) {}
  std::uint64_t bytes(std::uint64_t n) const { return form.bytes(n); }
  void pack(Int const* codes, int count, std::byte* out, bool zero_free) const {
    form.pack(codes, count, out, zero_free);
  }
  bool unpack(std::byte const* in, int count, Int* codes, bool zero_free) const {
    return form.unpack(in, count, codes, zero_free);
  }
  static bool in_range(Int const* codes, int count, std::uint32_t max_code, bool zero_free) {
    return !beyond(codes, count, max_code) && !(zero_free && zeros(codes, count) != 0);
  }
};

}  // namespace detail

/// @brief Any number of codes as blocks of block_values, encoded and decoded in parallel.
///
/// A block that would not be shorter than in fixed width is sent in fixed width. A body is thus at most that long plus
/// 2 bytes per block and the table; a receiver needs that much memory.
/// @shape a body
/// | bytes | content |
/// | --- | --- |
/// | 0.. | the table of the code: table_bytes(max_code) |
/// | then | for each block two bytes, little-endian: the length of its code in bytes, or 0 if it is in fixed width |
/// | then | the blocks |
/// Without codes, a body is empty.
/// @tparam Code   a BlockCode
/// @tparam Fixed  packs and unpacks blocks in fixed width
/// @determinism the bytes depend only on the codes
template <BlockCode Code, class Fixed = detail::in_fixed_width<typename Code::code_type>>
class coded {
 public:
  using code_type = typename Code::code_type;

  /// @param max_code   the largest magnitude that occurs
  /// @param zero_free  0 does not occur, because zero is not a level
  /// @throws configuration_error when max_code is 0 or above Code::largest_code()
  coded(Code code, std::uint32_t max_code, bool zero_free = false)
      : code_(code), max_code_(checked(max_code)), zero_free_(zero_free), dense_(max_code, zero_free) {}

  /// The most bytes of a body.
  std::size_t capacity(std::uint64_t count) const {
    return count == 0 ? 0 : head_bytes(count) + dense_.bytes(count);
  }

  /// @brief Writes a body.
  /// @param on     calls f(i) for all i in [0, n), in any order: on.items(n, f), as kernel::host_executor does
  /// @param codes  @p count codes of magnitude up to max_code
  /// @param out    at least capacity(count) bytes; those after the body may be overwritten
  /// @returns      the bytes of the body
  /// @complexity   O(count); no memory is allocated after the first call of a length
  /// @throws configuration_error when @p out is too short
  template <class Executor>
  std::size_t encode(Executor const& on, code_type const* codes, std::uint64_t count,
                     std::span<std::byte> out) {
    if (out.size() < capacity(count))
      globalq::detail::fail<configuration_error>({"globalq: wire::coded: the output has ", out.size(),
                                                  " bytes and needs ", capacity(count),
                                                  "; pass capacity(count) bytes"});
    if (count == 0) return 0;
    std::uint64_t const blocks = blocks_of(count);
    make_table(on, codes, count);
    code_.write_table(table_, max_code_, out.data());

    // encode each block to its own place, then copy them together while they are in the cache
    std::span<std::byte> const scratch =
        scratch_.get(static_cast<std::size_t>(std::min(blocks, together)) * stride());
    places_.resize(std::min(blocks, together));
    std::byte* const index = out.data() + code_.table_bytes(max_code_);
    std::size_t at = head_bytes(count);
    for (std::uint64_t first = 0; first < blocks; first += together) {
      std::uint64_t const some = std::min(blocks - first, together);
      on.items(some, [&](std::uint64_t i) {
        int const n = values_of(first + i, count);
        code_type const* const from = codes + (first + i) * block_values;
        std::byte* const to = scratch.data() + i * stride();
        std::size_t const room = dense_.bytes(static_cast<std::uint64_t>(n)) - 1;
        std::size_t const size = code_.encode(table_, from, n, to, room);
        if (size == too_long) dense_.pack(from, n, to, zero_free_);
        places_[i] = {size == too_long ? 0 : size, 0};
      });
      for (std::uint64_t i = 0; i < some; ++i) {
        auto const size = static_cast<std::uint16_t>(places_[i].code_bytes);
        std::memcpy(index + 2 * (first + i), &size, 2);
        places_[i].at = at;
        at += bytes_of(places_[i], first + i, count);
      }
      on.items(some, [&](std::uint64_t i) {
        std::memcpy(out.data() + places_[i].at, scratch.data() + i * stride(),
                    bytes_of(places_[i], first + i, count));
      });
    }
    return at;
  }

  /// @brief Reads a body.
  /// @param in     exactly the body
  /// @param codes  room for count codes; unspecified when the bytes are bad
  /// @returns      true for bytes that encode() could not have written. Accesses nothing outside @p in and @p codes.
  /// @complexity   O(count); no memory is allocated after the first call of a length
  template <class Executor>
  bool decode(Executor const& on, std::span<std::byte const> in, std::uint64_t count, code_type* codes) {
    if (count == 0) return !in.empty();
    if (in.size() < head_bytes(count) || in.size() > capacity(count)) return true;
    if (code_.read_table(in.data(), max_code_, table_)) return true;
    std::uint64_t const blocks = blocks_of(count);
    std::byte const* const index = in.data() + code_.table_bytes(max_code_);
    places_.resize(blocks);
    std::size_t at = head_bytes(count);
    for (std::uint64_t b = 0; b < blocks; ++b) {
      std::uint16_t size = 0;
      std::memcpy(&size, index + 2 * b, 2);
      if (size >= dense_.bytes(static_cast<std::uint64_t>(values_of(b, count)))) return true;
      places_[b] = {size, at};
      at += bytes_of(places_[b], b, count);
    }
    if (at != in.size()) return true;
    std::atomic<bool> bad{false};
    on.items(blocks, [&](std::uint64_t b) {
      int const n = values_of(b, count);
      code_type* const to = codes + b * block_values;
      std::span<std::byte const> const from = in.subspan(places_[b].at, bytes_of(places_[b], b, count));
      bool const wrong = places_[b].code_bytes == 0
                             ? unpack(from.data(), n, to)
                             : code_.decode(table_, from, n, max_code_, to) ||
                                   (zero_free_ && !dense_.in_range(to, n, max_code_, true));
      if (wrong) bad.store(true, std::memory_order_relaxed);
    });
    return bad.load(std::memory_order_relaxed);
  }

  std::uint32_t max_code() const { return max_code_; }

 private:
  /// Blocks that are encoded before they are copied together: few enough to stay in the caches, and many enough that
  /// threads rarely wait for each other.
  static constexpr std::uint64_t together = 1024;
  /// The most shares of the blocks with their own counts.
  static constexpr std::uint64_t most_shares = 64;

  struct place {
    std::size_t code_bytes;  ///< 0: fixed width
    std::size_t at;          ///< first byte, in the body
  };

  static std::uint32_t checked(std::uint32_t max_code) {
    if (max_code == 0 || max_code > Code::largest_code())
      globalq::detail::fail<configuration_error>({"globalq: wire::coded: the largest code is ", max_code,
                                                  "; use 1 to ", Code::largest_code(), " with codes of ",
                                                  8 * sizeof(code_type), " bits"});
    return max_code;
  }

  static std::uint64_t blocks_of(std::uint64_t count) {
    return divide_up<std::uint64_t>(count, block_values);
  }
  static int values_of(std::uint64_t block, std::uint64_t count) {
    return static_cast<int>(std::min<std::uint64_t>(block_values, count - block * block_values));
  }
  std::size_t head_bytes(std::uint64_t count) const {
    return code_.table_bytes(max_code_) + 2 * blocks_of(count);
  }
  /// Distance of the blocks in the scratch memory, in bytes.
  std::size_t stride() const { return dense_.bytes(block_values); }

  std::size_t bytes_of(place const& p, std::uint64_t block, std::uint64_t count) const {
    return p.code_bytes != 0 ? p.code_bytes
                             : dense_.bytes(static_cast<std::uint64_t>(values_of(block, count)));
  }

  template <class Executor>
  void make_table(Executor const& on, code_type const* codes, std::uint64_t count) {
    if constexpr (std::is_empty_v<typename Code::table>) {
      table_ = code_.make_table({}, max_code_);
    } else {
      std::size_t const symbols = 2 * static_cast<std::size_t>(max_code_) + 1;
      std::uint64_t const shares = std::min(blocks_of(count), most_shares);
      counts_.assign(symbols * shares, 0);
      on.items(shares, [&](std::uint64_t s) {
        std::uint64_t const blocks = blocks_of(count);
        for (std::uint64_t b = blocks * s / shares; b < blocks * (s + 1) / shares; ++b)
          count_block(codes + b * block_values, values_of(b, count), counts_.data() + symbols * s);
      });
      for (std::uint64_t s = 1; s < shares; ++s)
        for (std::size_t i = 0; i < symbols; ++i) counts_[i] += counts_[symbols * s + i];
      table_ = code_.make_table(std::span(counts_.data(), symbols), max_code_);
    }
  }

  /// Uses four counters for each code, so that consecutive equal codes do not wait for each other's sums.
  void count_block(code_type const* codes, int n, std::uint64_t* counts) const {
    constexpr std::size_t range = std::size_t{2} * (Code::largest_code() + 1);
    std::uint16_t four[4][range];
    for (auto& one : four) std::fill_n(one, range, std::uint16_t{0});
    auto const of = [](code_type c) {
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(c)) & (range - 1);
    };
    int i = 0;
    for (; i + 4 <= n; i += 4)
      for (int k = 0; k < 4; ++k) ++four[k][of(codes[i + k])];
    for (; i < n; ++i) ++four[0][of(codes[i])];
    auto const most = static_cast<std::int32_t>(max_code_);
    for (std::int32_t c = -most; c <= most; ++c) {
      std::size_t const at = static_cast<std::uint32_t>(c) & (range - 1);
      counts[c + most] += static_cast<std::uint64_t>(four[0][at]) + four[1][at] + four[2][at] + four[3][at];
    }
  }

  bool unpack(std::byte const* in, int n, code_type* codes) const {
    if (dense_.unpack(in, n, codes, zero_free_)) return true;
    return !dense_.in_range(codes, n, max_code_, zero_free_);
  }

  Code code_;
  std::uint32_t max_code_;
  bool zero_free_;
  Fixed dense_;
  typename Code::table table_{};
  byte_buffer scratch_;
  std::vector<place> places_;
  std::vector<std::uint64_t> counts_;
};

}  // namespace GLOBALQ_ABI::wire
