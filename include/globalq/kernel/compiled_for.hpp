// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the name of a symbol that encodes the properties a compiled library and its users must share.
///
/// A source references, for example, globalq_0_2_0_for_kokkos_40700_host_openmp_release, and a library defines the
/// symbol of its own build. If the versions of globalq or Kokkos, the execution spaces or the standard library's debug
/// mode differ, the program does not link, and the linker's error names the symbol that the source needs.

#include "../core/detail/compiled.hpp"

#if defined(GLOBALQ_COMPILED)
#include <Kokkos_Macros.hpp>
#if __has_include(<globalq/version.hpp>)
#include <globalq/version.hpp>
#else
#error \
    "globalq: GLOBALQ_COMPILED needs globalq/version.hpp, which CMake writes: link globalq::globalq or globalq::compiled"
#endif

#if defined(KOKKOS_ENABLE_CUDA)
#define GLOBALQ_DEVICE_SPACE cuda
#elif defined(KOKKOS_ENABLE_HIP)
#define GLOBALQ_DEVICE_SPACE hip
#elif defined(KOKKOS_ENABLE_SYCL)
#define GLOBALQ_DEVICE_SPACE sycl
#else
#define GLOBALQ_DEVICE_SPACE host
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
#define GLOBALQ_THREAD_SPACE openmp
#elif defined(KOKKOS_ENABLE_THREADS)
#define GLOBALQ_THREAD_SPACE threads
#elif defined(KOKKOS_ENABLE_HPX)
#define GLOBALQ_THREAD_SPACE hpx
#else
#define GLOBALQ_THREAD_SPACE serial
#endif
#if defined(_GLIBCXX_DEBUG)
#define GLOBALQ_CONTAINERS debug
#else
#define GLOBALQ_CONTAINERS release
#endif

#define GLOBALQ_NAME_ANCHOR(major, minor, patch, kokkos, device, threads, containers) \
  globalq_##major##_##minor##_##patch##_for_kokkos_##kokkos##_##device##_##threads##_##containers
#define GLOBALQ_ANCHOR_OF(...) GLOBALQ_NAME_ANCHOR(__VA_ARGS__)
#define GLOBALQ_ANCHOR                                                                                   \
  GLOBALQ_ANCHOR_OF(GLOBALQ_VERSION_MAJOR, GLOBALQ_VERSION_MINOR, GLOBALQ_VERSION_PATCH, KOKKOS_VERSION, \
                    GLOBALQ_DEVICE_SPACE, GLOBALQ_THREAD_SPACE, GLOBALQ_CONTAINERS)

extern "C" char const GLOBALQ_ANCHOR;

#if defined(__GNUC__)
namespace GLOBALQ_ABI::detail {
[[gnu::used]] static char const* const compiled_for = &GLOBALQ_ANCHOR;
}  // namespace GLOBALQ_ABI::detail
#endif
#endif
