// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A source that nvcc compiles with -use_fast_math, -ftz=true or -prec-div=false is refused before it computes anything.

#include <globalq/kernel/stream.hpp>

#include <gtest/gtest.h>

TEST(FastMath, is_refused_with_a_sentence) {
  try {
    globalq::kernel::stream_executor<Kokkos::Cuda> const on{Kokkos::Cuda()};
    ADD_FAILURE() << "nothing was thrown";
  } catch (globalq::configuration_error const& e) {
    EXPECT_NE(std::string(e.what()).find("compile it without nvcc's -use_fast_math"), std::string::npos)
        << e.what();
  }
}
