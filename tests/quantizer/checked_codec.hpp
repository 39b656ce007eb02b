// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: frames of single vectors, which decode to the mean of a call over allgather.

#include "tests/support/cases.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace support {

/// Expects that the mean of the frames of three workers has the bits of a call, that one frame can be added, and that a damaged
/// frame is refused and changes nothing.
/// @param other_keys  with which the frame of worker 1, of seed 5 and step 3, is refused
template <class T>
void expect_codec_of_call(std::vector<std::vector<T>> const& x, globalq::any_quantizer const& op,
                          std::vector<globalq::encoding_key> const& other_keys = {}) {
  constexpr int n = 3;
  std::size_t const d = x[0].size();
  std::vector<T> expected;
  on_threads(n, [&](auto& workers) {
    auto mine = x[static_cast<std::size_t>(workers.rank())];
    globalq::allreduce_mean mean{workers, op, globalq::schedule::allgather{}, {.seed = 5}};
    mean(mine, 3);
    if (workers.rank() == 0) expected = mine;
  });
  globalq::vector_codec codec(op);
  std::vector<std::vector<std::byte>> frames;
  std::vector<globalq::source> sources;
  for (std::uint32_t r = 0; r < n; ++r) {
    frames.emplace_back(codec.frame_bytes(d, globalq::dtype_of<T>::value));
    frames.back().resize(codec.encode(x[r], {5, 3, r}, frames.back()));
  }
  for (int r = 0; r < n; ++r) sources.push_back({frames[static_cast<std::size_t>(r)], 1, r});
  std::vector<T> y(d), added(d), one(d);
  codec.mean(sources, {5, 3, 0}, y);
  EXPECT_TRUE(same_bytes(y, expected)) << op.facts().name << ", " << d;
  codec.decode(frames[1], {5, 3, 1}, one);
  codec.decode_add(frames[1], {5, 3, 1}, added);
  for (std::size_t i = 0; i < d; ++i)
    ASSERT_EQ(to_double(added[i]), to_double(one[i])) << op.facts().name << i;
  codec.decode_add(frames[1], {5, 3, 1}, added);
  for (std::size_t i = 0; i < d; ++i)
    ASSERT_NEAR(to_double(added[i]), 2 * to_double(one[i]), std::abs(to_double(one[i])) * 0x1p-6) << i;
  for (globalq::encoding_key const& other : other_keys)
    EXPECT_THROW(codec.decode(frames[1], other, y), globalq::frame_error) << "another key";
  frames[1][frames[1].size() / 2] ^= std::byte{4};
  EXPECT_THROW(codec.decode(frames[1], {5, 3, 1}, y), globalq::frame_error);
  EXPECT_TRUE(same_bytes(y, expected)) << "a damaged frame changes nothing";
}

}  // namespace support
