// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: floors, which are loops that move the bytes of a kernel with minimal arithmetic.
///
/// A kernel is compared with a loop that reads and writes the same bytes and computes as little as possible. Floors use
/// the buffers of the kernel, but codes begin at the aligned start of a frame instead of after its header. Values of 16
/// bits are shifted and added as integers, because portable conversions would be slower than those of the kernel. Each
/// floor works on blocks of 4,096 values, and compilers vectorize it.

#include <globalq/core/arithmetic.hpp>

#include <cstdint>

namespace GLOBALQ_ABI::bench {

/// Values of one item of work, as in the kernels.
inline constexpr int block_values = 4096;

/// The type that holds a value of a vector: float, or 16 bits.
template <class Value>
using stored = std::conditional_t<sizeof(Value) == 2, std::uint16_t, float>;

/// Reads words: the largest magnitude of each block, as an integer.
template <class Word>
struct read_floor {
  Word const* x;
  Word* result;  ///< one a block

  void operator()(std::uint64_t block) const {
    constexpr int quarter = block_values / 4;
    constexpr Word magnitude = static_cast<Word>(static_cast<Word>(-1) >> 1);
    Word const* __restrict in = x + block * block_values;
    Word top[4] = {};  // a single maximum would be one dependency chain
    for (int i = 0; i < quarter; ++i)
      for (int k = 0; k < 4; ++k) {
        Word const m = static_cast<Word>(in[k * quarter + i] & magnitude);
        top[k] = top[k] < m ? m : top[k];
      }
    Word const low = top[0] < top[1] ? top[1] : top[0], high = top[2] < top[3] ? top[3] : top[2];
    result[block] = low < high ? high : low;
  }
};

/// Reads values, writes a byte each.
template <class Word>
struct narrow_floor {
  Word const* x;
  std::byte* codes;
  float factor;  ///< scales values to the range of a byte

  void operator()(std::uint64_t block) const {
    Word const* __restrict in = x + block * block_values;
    std::int8_t* __restrict out = reinterpret_cast<std::int8_t*>(codes) + block * block_values;
    float const f = factor;
    for (int i = 0; i < block_values; ++i) {
      if constexpr (sizeof(Word) == 4)
        out[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(in[i] * f));
      else
        out[i] = static_cast<std::int8_t>(in[i] >> 8);
    }
  }
};

/// Reads values, writes half a byte each, and a word for each bucket.
template <class Word, int Bucket>
struct pack_floor {
  Word const* x;
  std::byte* scales;
  std::byte* codes;
  float factor;  ///< scales values to the range of four bits

  void operator()(std::uint64_t block) const {
    constexpr int half = Bucket / 2, buckets = block_values / Bucket;
    Word const* __restrict in = x + block * block_values;
    std::uint32_t* __restrict words = reinterpret_cast<std::uint32_t*>(scales) + block * buckets;
    std::uint8_t* __restrict out = reinterpret_cast<std::uint8_t*>(codes) + block * (block_values / 2);
    float const f = factor;
    for (int b = 0; b < buckets; ++b) {
      words[b] = static_cast<std::uint32_t>(b);
      for (int j = 0; j < half; ++j) {  // partners half a bucket apart: no shuffles
        Word const low = in[b * Bucket + j], high = in[b * Bucket + half + j];
        if constexpr (sizeof(Word) == 4)
          out[b * half + j] = static_cast<std::uint8_t>((static_cast<std::int32_t>(low * f) & 15) |
                                                        (static_cast<std::int32_t>(high * f) << 4));
        else
          out[b * half + j] = static_cast<std::uint8_t>((low >> 12) | ((high >> 8) & 0xf0));
      }
    }
  }
};

/// Reads a byte each, writes values; or adds to them.
template <class Word, bool Add>
struct widen_floor {
  std::byte const* codes;
  Word* y;
  float factor;

  void operator()(std::uint64_t block) const {
    std::int8_t const* __restrict in = reinterpret_cast<std::int8_t const*>(codes) + block * block_values;
    Word* __restrict out = y + block * block_values;
    float const f = factor;
    for (int i = 0; i < block_values; ++i) {
      Word value{};
      if constexpr (sizeof(Word) == 4)
        value = static_cast<float>(in[i]) * f;
      else
        value = static_cast<Word>(in[i] << 8);
      out[i] = Add ? static_cast<Word>(out[i] + value) : value;
    }
  }
};

/// Adds bytes as integers, like the int8 reduction of a communication library.
struct sum_floor {
  std::byte const* a;
  std::byte const* b;
  std::byte* sum;

  void operator()(std::uint64_t block) const {
    auto const* __restrict first = reinterpret_cast<std::uint8_t const*>(a) + block * block_values;
    auto const* __restrict second = reinterpret_cast<std::uint8_t const*>(b) + block * block_values;
    auto* __restrict out = reinterpret_cast<std::uint8_t*>(sum) + block * block_values;
    for (int i = 0; i < block_values; ++i) out[i] = static_cast<std::uint8_t>(first[i] + second[i]);
  }
};

}  // namespace GLOBALQ_ABI::bench
