// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Runs the tests of one executable inside one Kokkos session.

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>

#include "tests/support/crash.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  support::name_crashes();
  Kokkos::ScopeGuard const kokkos{argc, argv};
  return RUN_ALL_TESTS();
}
