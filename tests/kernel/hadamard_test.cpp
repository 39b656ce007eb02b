// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The Hadamard transform: its matrix, twice a multiple, the same bits as the definition; random signs.

#include "globalq/kernel/hadamard.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

namespace gq = globalq;

namespace hadamard_test {

template <class T>
std::vector<T> integers(std::uint64_t count) {
  std::mt19937 draw(3);
  std::vector<T> x(count);
  for (T& v : x) v = static_cast<T>(static_cast<int>(draw() % 201) - 100);
  return x;
}

template <class T>
class Hadamard : public testing::Test {};
using types = testing::Types<float, double>;
TYPED_TEST_SUITE(Hadamard, types);

/// Row r, column c: (-1)^(bits that both have).
TYPED_TEST(Hadamard, its_matrix_has_the_signs_of_common_bits) {
  for (std::uint64_t n : {1U, 8U, 16U, 64U, 256U})
    for (std::uint64_t c = 0; c < n; ++c) {
      std::vector<TypeParam> unit(n);
      unit[c] = 1;
      gq::kernel::hadamard(unit.data(), n);
      for (std::uint64_t r = 0; r < n; ++r) ASSERT_EQ(unit[r], std::popcount(r & c) % 2 != 0 ? -1 : 1);
    }
}

TYPED_TEST(Hadamard, twice_is_a_multiple) {
  for (std::uint64_t n = 1; n <= 8192; n *= 2) {
    std::vector<TypeParam> const x = integers<TypeParam>(n);
    auto y = x;
    gq::kernel::hadamard(y.data(), n);
    gq::kernel::hadamard(y.data(), n);
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], static_cast<TypeParam>(n) * x[i]) << n;
  }
}

TYPED_TEST(Hadamard, loops_of_instruction_sets_have_the_bits_of_the_definition) {
  for (std::uint64_t n = 1; n <= 8192; n *= 2) {
    auto x = integers<TypeParam>(n);
    for (TypeParam& v : x) v *= static_cast<TypeParam>(0.1);  // sums are rounded
    auto y = x;
    gq::kernel::hadamard(x.data(), n);
    for (std::uint64_t reach = 1; reach < n; reach *= 2) gq::kernel::butterflies(y.data(), n, reach);
    ASSERT_EQ(std::memcmp(x.data(), y.data(), n * sizeof(TypeParam)), 0) << n;
  }
}

TYPED_TEST(Hadamard, signs_of_a_part_are_those_of_the_whole_vector) {
  gq::random::stream const bits{1, 2, 0, gq::random::purpose::rotate};
  for (std::uint64_t n : {1U, 31U, 32U, 300U, 4096U}) {
    std::vector<TypeParam> whole(n, TypeParam{1}), part(n, TypeParam{1});
    gq::kernel::turn_signs(bits, 5, n, whole.data());
    for (std::uint64_t i = 0; i < n; ++i) gq::kernel::turn_signs(bits, 5 + i, 1, part.data() + i);
    EXPECT_EQ(whole, part);
    if (n == 4096) {
      TypeParam sum = 0;
      for (TypeParam v : whole) sum += v;
      EXPECT_LT(sum * sum, 25 * 4096);  // five deviations
    }
  }
}

}  // namespace hadamard_test
