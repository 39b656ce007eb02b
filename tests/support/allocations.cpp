// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: operator new of every suite.

#include "tests/support/allocations.hpp"

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
#include <cstdlib>

// every allocation of the program goes through these
[[gnu::noinline]] void* operator new(std::size_t n) {
  return support::allocate(n, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return support::allocate(n, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  return support::allocate(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a) {
  return support::allocate(n, static_cast<std::size_t>(a));
}
// std::stable_sort and Kokkos ask like this; a sanitizer has its own
[[gnu::noinline]] void* operator new(std::size_t n, std::nothrow_t const&) noexcept {
  return support::allocate_or_null(n, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::nothrow_t const&) noexcept {
  return support::allocate_or_null(n, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a, std::nothrow_t const&) noexcept {
  return support::allocate_or_null(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a, std::nothrow_t const&) noexcept {
  return support::allocate_or_null(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::nothrow_t const&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::nothrow_t const&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t, std::nothrow_t const&) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t, std::nothrow_t const&) noexcept {
  std::free(p);
}
#endif
