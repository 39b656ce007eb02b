// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Counts what a test program allocates, and lets allocations fail: support/allocations.cpp replaces operator new.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// The thread sanitizer brings its own operator new, and some versions let nobody replace it.
#if defined(__SANITIZE_THREAD__) || defined(__CUDACC__)  // which would make it a function of the device too
#define GLOBALQ_TEST_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GLOBALQ_TEST_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef GLOBALQ_TEST_COUNTS_ALLOCATIONS
#define GLOBALQ_TEST_COUNTS_ALLOCATIONS 1
#endif

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS

namespace support {

/// Of all threads, and of this one, since the program started.
inline std::atomic<std::size_t> allocations{0};
inline thread_local std::size_t own_allocations = 0;

/// Counts the allocations of the threads that name it in `failing`, and lets one of them fail, or it and all later ones.
struct allocation_failure {
  std::atomic<bool> on{false};     ///< counts and fails
  std::atomic<bool> fired{false};  ///< one has failed
  std::atomic<std::size_t> seen{0};
  std::size_t at = ~std::size_t{0};  ///< number of the first that fails
  bool lasting = false;              ///< and all later ones

  bool now() {
    if (!on.load(std::memory_order_relaxed)) return false;
    std::size_t const mine = seen.fetch_add(1, std::memory_order_relaxed);
    bool const fails = mine == at || (lasting && mine > at);
    if (fails) fired.store(true);
    return fails;
  }
};
inline thread_local allocation_failure* failing = nullptr;

[[gnu::noinline]] inline void* allocate(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  ++own_allocations;
  if (failing != nullptr && failing->now()) throw std::bad_alloc();
  void* p = nullptr;
  if (posix_memalign(&p, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes == 0 ? 1 : bytes) != 0)
    throw std::bad_alloc();
  return p;
}

inline void* allocate_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  try {
    return allocate(bytes, alignment);
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}

}  // namespace support

#endif
