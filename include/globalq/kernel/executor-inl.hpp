// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the definitions of the executors of built-in spaces, for a compiled library.

#include "executor.hpp"

#if defined(GLOBALQ_COMPILED)
namespace GLOBALQ_ABI::kernel {

#if defined(KOKKOS_ENABLE_SERIAL)
template <>
host_executor::host_executor(Kokkos::Serial const& space)
    : host_executor(&run_on<Kokkos::Serial>, std::make_shared<Kokkos::Serial>(running(space)),
                    space.concurrency()) {}
template <>
void host_executor::run_on<Kokkos::Serial>(void const* space, std::uint64_t shares, std::uint64_t count,
                                           void const* context, work f) {
  run_shares<Kokkos::Serial>(space, shares, count, context, f);
}
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
template <>
host_executor::host_executor(Kokkos::OpenMP const& space)
    : host_executor(&run_on<Kokkos::OpenMP>, std::make_shared<Kokkos::OpenMP>(running(space)),
                    space.concurrency()) {}
template <>
void host_executor::run_on<Kokkos::OpenMP>(void const* space, std::uint64_t shares, std::uint64_t count,
                                           void const* context, work f) {
  run_shares<Kokkos::OpenMP>(space, shares, count, context, f);
}
#endif

}  // namespace GLOBALQ_ABI::kernel
#endif
