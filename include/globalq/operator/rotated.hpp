// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: a random rotation before an operator, for values of heavy tails.

#include "mapped.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include "detail/stream_rotation.hpp"
#else
#include "detail/rotation.hpp"
#endif

#include <bit>

namespace GLOBALQ_ABI {

/// @brief Rotates vectors by random rotations that all workers share before an operator, and back after its mean.
///
/// A rotated block of B values is close to normal whatever the vector, so the largest value is about sqrt(2 ln(2 B) / B)
/// of its norm. That helps uniform levels on vectors with heavy tails (4 to 13 times less variance at 4 bits on a Student
/// t distribution with 3 degrees of freedom), does nothing on normal vectors, and harms on sparse ones: measure it.
///
/// Works in every call, also native, before any quantizer and in host memory before float32_tail and centered, and in
/// vector_codec and stream_vector_codec. adapt::quantizers measures its error, so rules can choose it for a layer. Norms are those of rotated vectors, so `norm::fixed`, in host memory only, limits these.
///
/// Unbiased if the operator is, up to the rounding of sums in float32 (float64 vectors: float64). The variance is that of the
/// operator on the rotated vector, whose l2 norm is that of the vector. @n
/// Wire: the operator's. Memory: one vector more (two for 16-bit values). Time: log2(B) additions a value, twice.
/// @code
/// gq::allreduce_mean mean{workers, gq::rotated{gq::operators::qsgd<4>(1024), 1024}, gq::schedule::allgather{}};
/// @endcode
/// @determinism the same bits on every worker and instruction set: sums of two in a fixed order, without products
/// @source Vargaftik et al. 2021 (DRIVE), 2022 (EDEN), Li et al. 2024 (THC): the randomized Hadamard transform; blocks of
///         descending powers of two are ours
class rotated : public mapped {
 public:
  /// @param op     a quantizer, any_quantizer, float32_tail or centered
  /// @param block  values that are rotated together: a power of two from 2 to 2^20
  /// @throws configuration_error for another block
  template <class Operator>
  rotated(Operator const& op, std::uint64_t block) : mapped(op, stage_of(op, block)) {
    static_assert(!std::is_same_v<Operator, uncompressed>,
                  "globalq: uncompressed values need no rotation; use uncompressed without rotated");
  }

 private:
  static void expect_block(detail::operator_facts const& f, std::uint64_t block) {
    if (!std::has_single_bit(block) || block < 2 || block > std::uint64_t{1} << 20)
      throw configuration_error(detail::joined({"globalq: rotated: ", f.name, ": blocks of ", block,
                                                " values; use a power of two from 2 to 2^20"}));
  }
  /// A template, so that kernels are compiled only where it is used.
  template <class Operator>
  static std::shared_ptr<stage const> stage_of(Operator const& op, std::uint64_t block) {
    expect_block(detail::facts_of(op), block);
#if defined(KOKKOS_ENABLE_CUDA)
    return std::make_shared<detail::rotation_on<Kokkos::Cuda>>(block);
#else
    return std::make_shared<detail::rotation>(block);
#endif
  }
};

}  // namespace GLOBALQ_ABI
