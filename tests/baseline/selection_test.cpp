// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The k largest magnitudes: one answer, whatever the values and the threads.

#include <globalq/baseline/selection.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace gq = globalq;
namespace cp = globalq::baseline;

namespace {

/// By definition: places sorted by magnitude as an integer, largest first, then by place.
std::vector<std::uint32_t> order_of(std::vector<float> const& x) {
  std::vector<std::uint32_t> places(x.size());
  std::iota(places.begin(), places.end(), 0U);
  auto const magnitude = [&](std::uint32_t i) { return gq::bits_of(x[i]) & gq::float_magnitude; };
  std::stable_sort(places.begin(), places.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return magnitude(a) > magnitude(b); });
  return places;
}

/// The first k of them, by place.
std::vector<std::uint32_t> first_of(std::vector<std::uint32_t> const& order, std::uint64_t k) {
  std::vector<bool> in(order.size());
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(k, order.size()); ++i) in[order[i]] = true;
  std::vector<std::uint32_t> places;
  for (std::uint32_t i = 0; i < order.size(); ++i)
    if (in[i]) places.push_back(i);
  return places;
}

/// Vectors of many kinds.
std::vector<std::vector<float>> kinds(std::uint64_t n) {
  std::mt19937 bits(static_cast<unsigned>(n) + 1);
  std::vector<std::vector<float>> all(8, std::vector<float>(n));
  for (std::uint64_t i = 0; i < n; ++i) {
    float const even = static_cast<float>(static_cast<int>(bits() >> 8)) - 8388608.0F;
    all[0][i] = even;
    all[1][i] = std::ldexp(even, static_cast<int>(bits() % 200) - 120);  // many magnitudes, subnormals
    all[2][i] = 3.5F;                                                    // all equal
    all[3][i] = i % 2 == 0 ? 0.0F : -0.0F;
    all[4][i] = static_cast<float>(bits() % 4);                    // many ties
    all[5][i] = bits() % 100 == 0 ? even : 0.0F;                   // sparse
    all[6][i] = i < n / 2 ? 1.0F : static_cast<float>(i);          // sorted, half of it one tie
    all[7][i] = gq::float_of(static_cast<std::uint32_t>(bits()));  // NaN and infinities among them
  }
  return all;
}

TEST(Selection, finds_exactly_the_k_largest_with_ties_by_the_lower_place) {
  cp::selection select;
  for (bool threads : {false, true}) {
    gq::kernel::host_executor const on = threads
                                             ? gq::kernel::host_executor(Kokkos::DefaultHostExecutionSpace())
                                             : gq::kernel::host_executor(Kokkos::Serial());
    for (std::uint64_t n : {0UL, 1UL, 2UL, 15UL, 16UL, 17UL, 4095UL, 4096UL, 4097UL, 9001UL, 40009UL})
      for (auto const& x : kinds(n)) {
        auto const order = order_of(x);
        for (std::uint64_t k : {0UL, 1UL, 2UL, n / 1000, n / 100, n / 10, n / 3, n - n / 10, n, n + 5}) {
          auto const got = select.largest(on, x, k);
          auto const wanted = first_of(order, k);
          ASSERT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end())) << n << " " << k;
        }
      }
  }
}

TEST(Selection, no_threshold_changes_the_answer) {
  gq::kernel::host_executor const on{Kokkos::DefaultHostExecutionSpace()};
  cp::selection select;
  std::uint64_t const n = 9973;
  for (auto const& x : kinds(n)) {
    auto const order = order_of(x);
    for (std::uint64_t k : {1UL, 100UL, 2500UL, 9000UL}) {
      auto const wanted = first_of(order, k);
      auto const guesses = {0U,          1U,          0x3f800000U, 0x40600000U, 0x40600001U,
                            0x4a000000U, 0x7f800000U, 0x7fffffffU, 0x80000000U};
      for (std::uint32_t least : guesses)
        for (std::uint32_t sure : guesses) {
          auto const got = select.largest_by(on, x, k, {least, sure});
          ASSERT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()))
              << k << " " << least << " " << sure;
        }
    }
  }
}

TEST(Selection, loops_written_out_keep_what_the_portable_loop_keeps) {
  for (std::uint64_t n : {0UL, 1UL, 15UL, 16UL, 31UL, 32UL, 33UL, 100UL, 4096UL})
    for (auto const& x : kinds(n))
      for (std::uint32_t least : {0U, 1U, 0x40000000U, 0x4a000000U, 0x7f800000U, 0x7fffffffU, 0x80000000U}) {
        std::vector<std::uint32_t> a(n + 16), b(n + 16), c(n + 16), d(n + 16);
        std::uint64_t const m = cp::detail::keep_large(x.data(), 7, n, least, {a.data(), b.data()});
        ASSERT_EQ(m, cp::detail::keep_large_portable(x.data(), 7, n, least, {c.data(), d.data()}));
        ASSERT_TRUE(std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(m), c.begin()));
        ASSERT_TRUE(std::equal(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(m), d.begin()));
      }
}

}  // namespace
