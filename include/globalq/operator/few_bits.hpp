// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operators: rotation and the best levels for 1 to 4 bits per value.

#include "eden.hpp"
#include "operators.hpp"
#include "rotated.hpp"

namespace GLOBALQ_ABI::operators {

namespace detail {

template <int Bits>
inline constexpr bool is_few_bits = Bits >= 1 && Bits <= 4;

/// The 2^(bits-1) levels above zero that minimize the variance of stochastic rounding of rotated blocks.
///
/// The values of a rotated block are nearly normal, so the law of |y| / max |y| is a mixture of truncated normals. These are
/// the solutions of learn::optimal for blocks of 1,024 values; a test computes them again. They are constants, because workers
/// would disagree where their machines have different mathematical functions.
inline levels::symmetric levels_of_rotated(int bits) {
  switch (bits) {
    case 1:
      return {1};
    case 2:
      return {0.226832, 1};
    case 3:
      return {0.088690, 0.278728, 0.522207, 1};
    default:
      return {0.040287, 0.121982, 0.207259, 0.299341, 0.403249, 0.528405, 0.697615, 1};
  }
}

}  // namespace detail

/// @name Few bits: vectors are rotated, so that the best levels are the same for all of them
/// @{

/// @brief Rotated blocks, rounded to the 2^Bits best levels without zero by correlated rounding: exactly unbiased.
///
/// The largest level is the largest value of a block, so nothing is clipped, and all 2^Bits patterns are in use. The levels
/// are those of blocks of 1,024 values; for blocks of 128 to 4,096 values others have at most 6 % less variance. @n
/// Relative variance of one encoding in blocks of 1,024 values: 10.96, 0.660, 0.103, 0.0215 at 1 to 4 bits, and less where one
/// value dominates a block. In the mean of n equal vectors correlated rounding divides it by up to n once more. @n
/// Wire: @p Bits per value and 32 bits per block. Bound: as amq's on rotated vectors.
/// @param block  values that are rotated together and share a scale: a power of two from 2 to 2^20
/// @source levels: Faghri et al. 2020 (ALQ); rounding: Suresh et al. 2022; rotation: Suresh et al. 2017; the composition is
///         ours
template <int Bits = 2>
rotated rotated_optimal(std::uint64_t block = 1024) {
  static_assert(
      detail::is_few_bits<Bits>,
      "globalq: operators::rotated_optimal: this number of bits is not supported; use 1 to 4, or rotated{} "
      "before another operator");
  return {quantizer{norm::local<infinity>{block}, detail::levels_of_rotated(Bits), rounding::correlated{},
                    wire_of<Bits>{}},
          block};
}

/// @brief EDEN: a rotation for each worker and the 2^Bits centroids of normal values, nearly unbiased, with the least variance.
///
/// Relative variance of one encoding: 0.571, 0.133, 0.0358, 0.0096 at 1 to 4 bits. Best over allgather; see globalq::eden. @n
/// Wire: @p Bits per value and 32 bits per block. Bound: none.
/// @param block  values that are rotated together and share a scale: a power of two from 2 to 2^20; 1,024 or more for the bias and
///               variance of docs/theory.md
/// @source Vargaftik et al. 2022 (EDEN)
template <int Bits = 2>
globalq::eden eden(std::uint64_t block = 1024) {
  static_assert(detail::is_few_bits<Bits>,
                "globalq: operators::eden: this number of bits is not supported; use 1 to 4, or rotated{} "
                "before another "
                "operator");
  return globalq::eden{quantizer{norm::local<2>{block}, globalq::detail::levels_of_eden(Bits),
                                 rounding::nearest{}, wire_of<Bits>{}}};
}

/// @}

}  // namespace GLOBALQ_ABI::operators
