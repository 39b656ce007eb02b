// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief examples/compiled_once: kernels that another source compiled. tests/examples/no_kernels.cmake looks whether this
/// one did not.

#include "examples/compiled_once/gradient_operator.hpp"

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/operator/vector_codec.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace gq = globalq;

gq::any_quantizer any_width(gq::norm::local<2> norm, gq::levels::uniform<> levels, std::uint32_t bits);

TEST(CompiledOnce, kernels_of_another_source_make_the_frames_of_those_of_any_width) {
  std::vector<float> x(1000);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) * 0x1p-9F;
  auto const frame_of = [&](auto const& op) {
    gq::vector_codec codec{op, Kokkos::Serial()};
    std::vector<std::byte> frame(codec.frame_bytes(x.size()));
    codec.encode(x, {1, 2, 3}, frame);
    return frame;
  };
  gq::norm::local<2> const norm{.bucket = 128};
  gq::levels::uniform<> const levels{31};
  EXPECT_EQ(frame_of(gradient_operator{norm, levels, {}, {}}), frame_of(any_width(norm, levels, 6)));
}
