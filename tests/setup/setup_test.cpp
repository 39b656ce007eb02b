// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The set-up itself: the version header, and Kokkos started by the common main function.

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <globalq/version.hpp>
#include <string>

TEST(Setup, the_version_text_is_made_of_the_three_numbers) {
  std::string const text = std::to_string(GLOBALQ_VERSION_MAJOR) + "." +
                           std::to_string(GLOBALQ_VERSION_MINOR) + "." +
                           std::to_string(GLOBALQ_VERSION_PATCH);
  EXPECT_EQ(text, GLOBALQ_VERSION);
}

TEST(Setup, kokkos_is_ready_and_new_enough) {
  EXPECT_TRUE(Kokkos::is_initialized());
  EXPECT_GE(KOKKOS_VERSION, 40600);
}
