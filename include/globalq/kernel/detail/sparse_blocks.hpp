// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: common parts of the kernels of sparse bodies: blocks and their parts, fields of one width, moving
/// bytes.
///
/// A team of threads processes a block. A part is 32 codes, one word of the bitmap. On a GPU each thread has one part;
/// on a host the only thread of a team has all. Fields are processed in groups of eight, which are whole bytes, so no
/// two threads write the same byte. A block is assembled in scratch memory and copied from there in words, because it
/// may begin at any byte.

#include "../../core/quad.hpp"
#include "../../wire/coded.hpp"
#include "../../wire/detail/sparse_form.hpp"
#include "../device/registers.hpp"

#include <Kokkos_BitManipulation.hpp>

namespace GLOBALQ_ABI::wire::detail {

inline constexpr int part_codes = 32;
inline constexpr int block_parts = block_values / part_codes;

/// The division of a body into blocks, and the constraints on its codes.
template <class Int>
struct sparse_layout {
  std::uint64_t count;
  std::uint32_t max_code;
  bool zero_free;
  fixed_width<Int> dense;

  GLOBALQ_FUNCTION std::uint64_t blocks() const { return divide_up<std::uint64_t>(count, block_values); }
  GLOBALQ_FUNCTION int values_of(std::uint64_t b) const {
    std::uint64_t const left = count - b * block_values;
    return left < block_values ? static_cast<int>(left) : block_values;
  }
  GLOBALQ_FUNCTION int dense_bytes(int n) const {
    return static_cast<int>(dense.bytes(static_cast<std::uint64_t>(n)));
  }
  /// The bytes of the index.
  GLOBALQ_FUNCTION std::uint64_t head_bytes() const { return 2 * blocks(); }
  /// The most bytes of a body.
  GLOBALQ_FUNCTION std::uint64_t capacity() const { return head_bytes() + dense.bytes(count); }
};

/// Calls f(group, first, values) for each group of eight of n values.
template <class Team, class F>
GLOBALQ_FUNCTION void for_each_eight(Team const& team, int n, F const& f) {
  for (int g = team.team_rank(); 8 * g < n; g += team.team_size()) f(g, 8 * g, n - 8 * g < 8 ? n - 8 * g : 8);
}

/// The first part of a thread; its parts are consecutive.
template <class Team>
GLOBALQ_FUNCTION int first_part(Team const& team, int thread, int parts) {
  return static_cast<int>(static_cast<std::uint32_t>(thread * parts) /
                          static_cast<std::uint32_t>(team.team_size()));
}

/// A summary of the codes of a part.
struct part_summary {
  std::uint32_t mask = 0;   ///< a bit for each non-zero
  std::uint32_t asked = 0;  ///< sparse_form::asks() of all codes, combined by or
};

/// @param n  codes of the part, at most 32
template <class Int>
GLOBALQ_FUNCTION part_summary summarize(Int const* codes, int n) {
  part_summary s;
  if constexpr (sizeof(Int) == 1) {
    if (n == part_codes) {
      std::uint32_t four[part_codes / 4], asked = 0;
      kernel::device::load_whole<part_codes>(reinterpret_cast<std::byte const*>(codes), four);
      GLOBALQ_UNROLL
      for (int k = 0; k < part_codes / 4; ++k) {
        std::uint32_t const m = quad::magnitude(four[k], quad::signs(four[k]));
        std::uint32_t const is = (~quad::zeros(four[k]) >> 7) & quad::ones;
        s.mask |= ((is * 0x01020408U) >> 24 & 15U) << (4 * k);
        asked |= (m - is) | (m & quad::tops);
      }
      asked |= asked >> 16;
      s.asked = (asked | asked >> 8) & 255U;
      return s;
    }
  }
  for (int i = 0; i < n; ++i) {
    std::int32_t const c = codes[i];
    s.mask |= (c != 0 ? 1U : 0U) << i;
    s.asked |= sparse_form::asks(static_cast<std::uint32_t>(c < 0 ? -c : c));
  }
  return s;
}

/// A code of w bits, w <= 8, as in wire::packed.
/// @param origin  1 if there is no zero
GLOBALQ_FUNCTION std::uint64_t field_of(std::int32_t c, int w, int origin) {
  std::int32_t const m = c < 0 ? -c : c;
  return static_cast<std::uint32_t>(m - origin) | (c < 0 ? 1U << (w - 1) : 0U);
}

/// Packs up to eight codes into fields of w bits, as wire::packed does, or for w = 16 as wire::int16.
template <class Int>
GLOBALQ_FUNCTION void pack_fields(Int const* codes, int n, int w, int origin, std::byte* out) {
  auto* const bytes = reinterpret_cast<std::uint8_t*>(out);
  if (w == 16) {
    for (int k = 0; k < n; ++k) {
      bytes[2 * k] = static_cast<std::uint8_t>(codes[k]);
      bytes[2 * k + 1] = static_cast<std::uint8_t>(codes[k] >> 8);
    }
    return;
  }
  std::uint64_t bits = 0;
  for (int k = 0; k < n; ++k) bits |= field_of(codes[k], w, origin) << (w * k);
  for (int k = 0; k < sparse_form::field_bytes(n, w); ++k)
    bytes[k] = static_cast<std::uint8_t>(bits >> (8 * k));
}

/// A summary of unpacked fields.
struct fields_summary {
  std::uint32_t asked = 0;  ///< sparse_form::asks() of all codes, combined by or
  bool bad = false;         ///< a code is zero or above the largest, or bits after the last field are set
};

template <class Int>
GLOBALQ_FUNCTION fields_summary unpack_fields(std::byte const* in, int n, int w, std::uint32_t max_code,
                                              Int* codes) {
  auto const* const bytes = reinterpret_cast<std::uint8_t const*>(in);
  fields_summary s;
  std::uint64_t bits = 0;
  if (w != 16) {
    for (int k = 0; k < sparse_form::field_bytes(n, w); ++k)
      bits |= static_cast<std::uint64_t>(bytes[k]) << (8 * k);
    s.bad = n < 8 && (bits >> (n * w)) != 0;
  }
  for (int k = 0; k < n; ++k) {
    std::int32_t c = 0;
    if (w == 16) {
      c = static_cast<std::int16_t>(bytes[2 * k] | bytes[2 * k + 1] << 8);
    } else {
      auto const field = static_cast<std::uint32_t>(bits >> (w * k)) & ((1U << w) - 1);
      auto const m = static_cast<std::int32_t>(field & ((1U << (w - 1)) - 1)) + 1;
      c = (field >> (w - 1)) != 0 ? -m : m;
    }
    auto const m = static_cast<std::uint32_t>(c < 0 ? -c : c);
    s.bad = s.bad || m == 0 || m > max_code;
    s.asked |= sparse_form::asks(m);
    codes[k] = static_cast<Int>(c);
  }
  return s;
}

/// Packs up to eight codes in fixed width.
/// @param codes  aligned to eight bytes
template <class Int>
GLOBALQ_FUNCTION void pack_dense(sparse_layout<Int> const& of, Int const* codes, int n, std::byte* out) {
  int const origin = of.zero_free ? 1 : 0;
  if constexpr (sizeof(Int) == 1) {
    int const w = of.dense.bits();
    if (n == 8) {
      std::uint32_t quads[2];
      std::uint64_t bits = 0;
      kernel::device::load_whole<8>(reinterpret_cast<std::byte const*>(codes), quads);
      GLOBALQ_UNROLL
      for (int k = 0; k < 8; ++k)
        bits |= field_of(static_cast<std::int8_t>(quads[k / 4] >> (8 * (k % 4))), w, origin) << (w * k);
      for (int k = 0; k < w; ++k) out[k] = static_cast<std::byte>(bits >> (8 * k));
      return;
    }
    pack_fields(codes, n, w, origin, out);
  } else {
    pack_fields(codes, n, 16, origin, out);
  }
}

/// @returns whether the bytes cannot result from encoding
template <class Int>
GLOBALQ_FUNCTION bool unpack_dense(sparse_layout<Int> const& of, std::byte const* in, int n, Int* codes) {
  bool bad = false;
  if constexpr (sizeof(Int) == 2) {
    auto const* const bytes = reinterpret_cast<std::uint8_t const*>(in);
    for (int k = 0; k < n; ++k) codes[k] = static_cast<Int>(bytes[2 * k] | bytes[2 * k + 1] << 8);
  } else {
    bad = of.dense.unpack(in, n, codes, of.zero_free);
  }
  for (int k = 0; k < n; ++k) {
    std::int32_t const c = codes[k];
    bad = bad || static_cast<std::uint32_t>(c < 0 ? -c : c) > of.max_code || (of.zero_free && c == 0);
  }
  return bad;
}

/// Copies n bytes, in words except at the edges.
/// @pre from and to have the same remainder modulo 4
template <class Team>
GLOBALQ_FUNCTION void move_bytes(Team const& team, std::byte const* from, std::byte* to, int n) {
  using word = kernel::device::words_of<1>;
  int const edge = static_cast<int>(-reinterpret_cast<std::uintptr_t>(to) & 3U);
  int const before = edge < n ? edge : n, words = (n - before) / 4;
  auto const* const source = reinterpret_cast<word const*>(from + before);
  auto* const target = reinterpret_cast<word*>(to + before);
  for (int i = team.team_rank(); i < words; i += team.team_size()) target[i] = source[i];
  for (int i = team.team_rank(); i < n - 4 * words; i += team.team_size()) {
    int const at = i < before ? i : i + 4 * words;
    to[at] = from[at];
  }
}

/// The start of a block in scratch memory, with the same remainder modulo 4 as its place @p p in the body.
GLOBALQ_FUNCTION std::byte* as_aligned(std::byte* stage, std::byte const* p) {
  return stage + (reinterpret_cast<std::uintptr_t>(p) & 3U);
}

/// Threads per team, if kernels run on a device.
inline constexpr int sparse_threads = block_parts;

}  // namespace GLOBALQ_ABI::wire::detail
