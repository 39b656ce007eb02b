// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the registers of a GPU thread: rows of values and codes, loaded and stored in wide accesses.
///
/// All indices are compile-time constants, so that nothing is placed in (slow) local memory. A test runs the same code
/// on a host.

#include "../../core/concepts.hpp"
#include "../../core/dtype.hpp"
#include "../../core/quad.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace GLOBALQ_ABI::kernel::device {

/// The width in bytes of the accesses that move Bytes bytes.
template <int Bytes>
inline constexpr int access_bytes = [] {
  int width = 1;
  while (width < 16 && Bytes % (2 * width) == 0) width *= 2;
  return width;
}();

/// The memory of one access. It may alias any type.
#if defined(__GNUC__) && !defined(__CUDACC__)
#define GLOBALQ_MAY_ALIAS [[gnu::may_alias]]
#else
#define GLOBALQ_MAY_ALIAS
#endif
template <int Words>
struct GLOBALQ_MAY_ALIAS alignas(4 * Words) words_of {
  std::uint32_t word[Words];
};
using uint16_alias GLOBALQ_MAY_ALIAS = std::uint16_t;

/// Lets a device compiler assume that a pointer is to global memory (which includes pinned memory).
template <class T>
GLOBALQ_FUNCTION T* global(T* p) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

/// Whether whole rows of Bytes bytes can be moved in accesses of access_bytes, if rows are multiples of 16 bytes apart.
template <int Bytes>
GLOBALQ_FUNCTION bool aligned(void const* p) {
  return reinterpret_cast<std::uintptr_t>(p) % access_bytes<Bytes> == 0;
}

/// Reads Bytes bytes into words, the first byte lowest.
/// @pre aligned<Bytes>(p)
template <int Bytes, int W>
GLOBALQ_FUNCTION void load_whole(std::byte const* p, std::uint32_t (&out)[W]) {
  constexpr int width = access_bytes<Bytes>;
  static_assert(Bytes <= 4 * W && (width >= 4 || Bytes == width));
  if constexpr (width >= 4) {
    GLOBALQ_UNROLL
    for (int k = 0; k < Bytes / width; ++k) {
      auto const v = reinterpret_cast<words_of<width / 4> const*>(p)[k];
      GLOBALQ_UNROLL
      for (int j = 0; j < width / 4; ++j) out[width / 4 * k + j] = v.word[j];
    }
  } else if constexpr (width == 2) {
    out[0] = *reinterpret_cast<uint16_alias const*>(p);
  } else {
    out[0] = static_cast<std::uint8_t>(*p);
  }
}

/// Writes Bytes bytes of words.
/// @pre aligned<Bytes>(p)
template <int Bytes, int W>
GLOBALQ_FUNCTION void store_whole(std::byte* p, std::uint32_t const (&in)[W]) {
  constexpr int width = access_bytes<Bytes>;
  static_assert(Bytes <= 4 * W && (width >= 4 || Bytes == width));
  if constexpr (width >= 4) {
    GLOBALQ_UNROLL
    for (int k = 0; k < Bytes / width; ++k) {
      words_of<width / 4> v;
      GLOBALQ_UNROLL
      for (int j = 0; j < width / 4; ++j) v.word[j] = in[width / 4 * k + j];
      reinterpret_cast<words_of<width / 4>*>(p)[k] = v;
    }
  } else if constexpr (width == 2) {
    *reinterpret_cast<uint16_alias*>(p) = static_cast<std::uint16_t>(in[0]);
  } else {
    *p = static_cast<std::byte>(in[0]);
  }
}

/// Reads the first @p count of at most 4 * W / Size elements of Size bytes, and sets the others to zero.
template <int Size, int W>
GLOBALQ_FUNCTION void load_some(std::byte const* p, int count, std::uint32_t (&out)[W]) {
  GLOBALQ_UNROLL
  for (int k = 0; k < W; ++k) out[k] = 0;
  GLOBALQ_UNROLL
  for (int i = 0; i < 4 * W / Size; ++i)
    if (i < count) {
      if constexpr (Size >= 4) {
        GLOBALQ_UNROLL
        for (int j = 0; j < Size / 4; ++j)
          out[Size / 4 * i + j] = reinterpret_cast<words_of<1> const*>(p)[Size / 4 * i + j].word[0];
      } else if constexpr (Size == 2) {
        out[i / 2] |= static_cast<std::uint32_t>(reinterpret_cast<uint16_alias const*>(p)[i])
                      << (16 * (i % 2));
      } else {
        out[i / 4] |= static_cast<std::uint32_t>(p[i]) << (8 * (i % 4));
      }
    }
}

/// Writes the first @p count elements of Size bytes.
template <int Size, int W>
GLOBALQ_FUNCTION void store_some(std::byte* p, int count, std::uint32_t const (&in)[W]) {
  GLOBALQ_UNROLL
  for (int i = 0; i < 4 * W / Size; ++i)
    if (i < count) {
      if constexpr (Size >= 4) {
        GLOBALQ_UNROLL
        for (int j = 0; j < Size / 4; ++j)
          reinterpret_cast<words_of<1>*>(p)[Size / 4 * i + j].word[0] = in[Size / 4 * i + j];
      } else if constexpr (Size == 2) {
        reinterpret_cast<uint16_alias*>(p)[i] = static_cast<std::uint16_t>(in[i / 2] >> (16 * (i % 2)));
      } else {
        p[i] = static_cast<std::byte>(in[i / 4] >> (8 * (i % 4)));
      }
    }
}

/// Loads or stores the elements of Size bytes of rows of N, 64 apart: in wide accesses if rows are whole and aligned,
/// otherwise one by one.
/// @param p      the first row
/// @param count  count(row): number of elements in a row; elements beyond it are zero, and not written
/// @{
template <int N, int Size, int R, int W, class Count>
GLOBALQ_FUNCTION void load_rows(std::byte const* p, bool whole, Count const& count,
                                std::uint32_t (&raw)[R][W]) {
  if (whole && aligned<N * Size>(p)) {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) load_whole<N * Size>(p + 64 * Size * r, raw[r]);
  } else {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) load_some<Size>(p + 64 * Size * r, count(r), raw[r]);
  }
}
template <int N, int Size, int R, int W, class Count>
GLOBALQ_FUNCTION void store_rows(std::byte* p, bool whole, Count const& count,
                                 std::uint32_t const (&raw)[R][W]) {
  if (whole && aligned<N * Size>(p)) {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) store_whole<N * Size>(p + 64 * Size * r, raw[r]);
  } else {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) store_some<Size>(p + 64 * Size * r, count(r), raw[r]);
  }
}
/// @}

/// N codes in registers, in the layout of an integer wire in memory.
template <class Int, int N>
struct code_row {
  static constexpr int width = 8 * static_cast<int>(sizeof(Int));
  static constexpr int each = 32 / width;  ///< codes per word

  std::uint32_t word[N / each];

  GLOBALQ_FUNCTION void clear() {
    GLOBALQ_UNROLL
    for (int k = 0; k < N / each; ++k) word[k] = 0;
  }
  GLOBALQ_FUNCTION std::int32_t get(int i) const {
    return static_cast<Int>(word[i / each] >> (width * (i % each)));
  }
  /// @pre the code at i is zero
  GLOBALQ_FUNCTION void set(int i, std::int32_t code) {
    word[i / each] |= static_cast<std::uint32_t>(static_cast<std::make_unsigned_t<Int>>(code))
                      << (width * (i % each));
  }
};

/// Bytes of N codes on a wire, if four codes take 1, 2 or a multiple of 4 bytes, known at compile time; otherwise 0.
template <class Wire, int N>
inline constexpr int row_bytes = globalq::detail::quad_bytes<Wire>() * (N / 4);

/// Lanes of a thread that processes values. One lane is 4 consecutive values, 16 bytes of float32, adjacent to those of
/// the next thread, so that a warp's accesses leave no gaps. Two lanes if four codes are not whole bytes.
template <class Wire>
inline constexpr int value_lanes = row_bytes<Wire, 4> != 0 ? 1 : 2;

/// Lanes of a thread that processes only codes: 16 bytes of codes, or fewer if codes are narrower than a byte.
template <class Wire>
inline constexpr int code_lanes = row_bytes<Wire, 4> == 0
                                      ? 2
                                      : (row_bytes<Wire, 4> > 4 ? 16 / row_bytes<Wire, 4> : 4);

/// Blocks of 256 threads that a multiprocessor must hold: 4 leave 64 registers per thread, 3 leave 80 and 2 leave 128.
/// Each number keeps enough loads in flight to hide the latency of memory.
/// @param heavy  whether a thread holds more than its values and their results
template <class Operands>
constexpr int blocks(int lanes, int rows, bool heavy) {
  bool const shared_word = !Operands::rounding_type::word_per_coordinate;
  bool const slow_wire = row_bytes<typename Operands::wire_type, 4> == 0;
  if (rows == 1 || slow_wire || (heavy && (lanes > 1 || shared_word))) return 2;
  return heavy || lanes > 1 || shared_word ? 3 : 4;
}

}  // namespace GLOBALQ_ABI::kernel::device
