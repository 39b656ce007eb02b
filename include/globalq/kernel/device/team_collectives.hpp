// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: sums, bitwise ORs and maxima of the integers of a team's threads.
///
/// In CUDA kernels they are CUB's, which take fewer instructions than those of Kokkos' teams; elsewhere they are those of
/// the team. Integers make the order of the operands irrelevant. Sums of floating-point values have a fixed order and do
/// not belong here.
///
/// In a CUDA kernel a team has exactly Threads threads, and all of them call these functions.

#include "../../core/arithmetic.hpp"

#include <Kokkos_Core.hpp>
#include <cstdint>

#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/functional>
#include <cuda/std/functional>
#endif

namespace GLOBALQ_ABI::kernel::device {

#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDA_ARCH__)
/// Reduces the values of all threads of a block of 1 x Threads threads; every thread receives the result.
template <int Threads, class T, class Op>
__device__ __forceinline__ T reduce_block(T own, Op op) {
  using reduce =
      CUB_NS_QUALIFIER::BlockReduce<T, 1, CUB_NS_QUALIFIER::BLOCK_REDUCE_WARP_REDUCTIONS, Threads, 1>;
  __shared__ typename reduce::TempStorage memory;
  __shared__ T result;
  T const found = reduce(memory).Reduce(own, op);
  if (threadIdx.y == 0) result = found;
  __syncthreads();
  T const all = result;
  __syncthreads();  // the shared memory may be used again
  return all;
}
#endif

/// Computes sums over the threads of a team.
/// @tparam Threads  threads of a team in CUDA kernels
/// @param total     receives the sum of all threads
/// @returns the sum of the threads before this one
template <int Threads, class Team>
GLOBALQ_FUNCTION int prefix_sum(Team const& team, int own, int& total) {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDA_ARCH__)
  (void)team;
  using scan = CUB_NS_QUALIFIER::BlockScan<int, 1, CUB_NS_QUALIFIER::BLOCK_SCAN_RAKING, Threads, 1>;
  __shared__ typename scan::TempStorage memory;
  int before = 0;
  scan(memory).ExclusiveSum(own, before, total);
  __syncthreads();  // the shared memory may be used again
  return before;
#else
  int const before = team.team_scan(own);
  total = own;
  team.team_reduce(Kokkos::Sum<int>(total));
  return before;
#endif
}

/// @returns the sum of all threads
template <int Threads, class Team>
GLOBALQ_FUNCTION int sum_of_all(Team const& team, int own) {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDA_ARCH__)
  (void)team;
  return reduce_block<Threads>(own, ::cuda::std::plus<>{});
#else
  team.team_reduce(Kokkos::Sum<int>(own));
  return own;
#endif
}

/// @returns the bits that any thread has
template <int Threads, class Team>
GLOBALQ_FUNCTION std::uint32_t bits_of_all(Team const& team, std::uint32_t own) {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDA_ARCH__)
  (void)team;
  return reduce_block<Threads>(own, ::cuda::std::bit_or<>{});
#else
  team.team_reduce(Kokkos::BOr<std::uint32_t>(own));
  return own;
#endif
}

/// @returns the largest number of all threads
template <int Threads, class Team, class Word>
GLOBALQ_FUNCTION Word largest_of_all(Team const& team, Word own) {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDA_ARCH__)
  (void)team;
  return reduce_block<Threads>(own, ::cuda::maximum<>{});
#else
  team.team_reduce(Kokkos::Max<Word>(own));
  return own;
#endif
}

}  // namespace GLOBALQ_ABI::kernel::device
