// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Four bytes in a register: what each function does to every byte, beside every neighbor that could carry into it.

#include <globalq/core/quad.hpp>

#include <gtest/gtest.h>

namespace quad = globalq::quad;

namespace {

/// The bytes of @p x with @p a at place @p k, between neighbors of all ones or of none.
std::uint32_t among(std::uint32_t neighbors, std::uint32_t a, int k) {
  return (neighbors & ~(0xffU << (8 * k))) | (a << (8 * k));
}
std::uint32_t byte_of(std::uint32_t x, int k) { return (x >> (8 * k)) & 0xffU; }

/// f(word, byte, place) for every byte at every place beside each kind of neighbor.
template <class F>
void for_each_byte(F const& f) {
  for (std::uint32_t neighbors : {0U, ~0U, 0x80808080U, 0x7f7f7f7fU, 0x01010101U})
    for (std::uint32_t a = 0; a < 256; ++a)
      for (int k = 0; k < 4; ++k) f(among(neighbors, a, k), a, k);
}

}  // namespace

TEST(Quad, signs_and_zeros_of_each_byte) {
  for_each_byte([](std::uint32_t x, std::uint32_t a, int k) {
    ASSERT_EQ(byte_of(quad::signs(x), k), a >= 128 ? 0xffU : 0U);
    ASSERT_EQ(byte_of(quad::zeros(x), k) >> 7, a == 0 ? 1U : 0U);
  });
}

TEST(Quad, magnitudes_and_their_signs) {
  for_each_byte([](std::uint32_t x, std::uint32_t a, int k) {
    std::uint32_t const m = a < 128 ? a : 256 - a, sign = quad::signs(x);
    ASSERT_EQ(byte_of(quad::magnitude(x, sign), k), m);
    if (m < 128) {
      ASSERT_EQ(byte_of(quad::with_sign(quad::magnitude(x, sign), sign), k), a);
    }
    for (std::uint32_t limit : {1U, 7U, 100U, 127U})
      ASSERT_EQ(byte_of(quad::beyond(x, (127U - limit) * quad::ones), k) >> 7, m > limit ? 1U : 0U) << a;
  });
}

TEST(Quad, sums_do_not_carry) {
  for_each_byte([](std::uint32_t x, std::uint32_t a, int k) {
    for (std::uint32_t neighbors : {0U, ~0U})
      for (std::uint32_t b : {0U, 1U, 127U, 128U, 200U, 255U})
        ASSERT_EQ(byte_of(quad::add(x, among(neighbors, b, k)), k), (a + b) & 0xffU);
  });
}

TEST(Quad, bytes_are_chosen_from_eight) {
  std::uint32_t const low = 0x33221100U, high = 0x77665544U;
  for (std::uint32_t a = 0; a < 8; ++a)
    for (int k = 0; k < 4; ++k) EXPECT_EQ(byte_of(quad::permute(low, high, a << (4 * k)), k), 0x11U * a);
  EXPECT_EQ(quad::permute(low, high, 0x7160U), 0x77116600U);
}
