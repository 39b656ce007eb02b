// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Runs the tests of one executable inside one Kokkos session. Without a GPU it says so and returns 77.

#include "tests/cuda/main.hpp"

#include <Kokkos_Core.hpp>

#include <gtest/gtest.h>

#include <cstdio>

std::optional<int> (*globalq_test::instead_of_tests)(int, char**) = nullptr;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  auto const code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("skipped: no GPU was found (%s)\n", cudaGetErrorString(code));
    return 77;
  }
  Kokkos::ScopeGuard const kokkos{argc, argv};
  if (globalq_test::instead_of_tests)
    if (auto const status = globalq_test::instead_of_tests(argc, argv)) return *status;
  return RUN_ALL_TESTS();
}
