// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Layers with more values than a vector can have are refused when a compressor is made, before any work for them.

#include "tests/support/refusal.hpp"

#include <globalq/baseline.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace cp = globalq::baseline;

namespace {

TEST(Limits, of_values_are_checked_before_anything_is_allocated) {
  for (std::uint64_t const columns : {std::uint64_t{1} << 25, std::uint64_t{1} << 20}) {
    globalq::adapt::model_layout layers;
    layers.add("a", {std::uint64_t{1} << 23, columns});
    auto const expect = [&](std::string const& name, auto const& make) {
      auto const start = std::chrono::steady_clock::now();
      EXPECT_THAT(support::refusal([&] { static_cast<void>(make(layers)); }),
                  testing::HasSubstr(name + ": the layers have " + std::to_string(layers.length()) +
                                     " values, and the limit is "));
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{1}) << name;
    };
    expect("top_k", [](auto const& l) { return cp::top_k{l}; });
    expect("rand_k", [](auto const& l) { return cp::rand_k<>{l}; });
    expect("send_first", [](auto const& l) { return cp::send_first<>{l}; });
    expect("sign_sgd", [](auto const& l) { return cp::sign_sgd{l}; });
    expect("one_bit", [](auto const& l) { return cp::one_bit{l}; });
    expect("thc", [](auto const& l) { return cp::thc<>{l}; });
    expect("int_sgd<int8>", [](auto const& l) { return cp::int_sgd<>{l}; });
#if defined(GLOBALQ_HAS_EIGEN)
    expect("power_sgd", [](auto const& l) { return cp::power_sgd<>{l}; });
#endif
  }
}

}  // namespace
