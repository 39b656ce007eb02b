// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: a mean of an operator, with what holds for all of them.

#include "tests/support/cases.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/collective/allreduce_mean.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace support {

/// What all workers hold after a call. Expects that it is the same, in place too, and that they sent what the plan says.
template <class T>
std::vector<std::vector<T>> checked_mean(std::vector<std::vector<T>> const& x,
                                         globalq::any_quantizer const& op, std::string const& schedule,
                                         std::uint64_t step = 3) {
  std::string const what = op.facts().name + " on " + schedule;
  std::vector<std::vector<T>> y(x.size());
  std::vector<std::uint64_t> sent(x.size());
  globalq::plan planned;
  on_threads(static_cast<int>(x.size()), std::chrono::seconds{60}, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    globalq::allreduce_mean mean{workers, op, globalq::schedule::any{schedule}, {.seed = 5}};
    y[r].resize(x[r].size());
    std::uint64_t const before = workers.bytes_sent();
    mean(x[r], y[r], step);
    sent[r] = workers.bytes_sent() - before;
    if (r == 0) planned = mean.plan(x[r].size(), globalq::dtype_of<T>::value);
    auto in_place = x[r];
    mean(in_place, step);
    EXPECT_TRUE(same_bytes(in_place, y[r])) << what;
  });
  for (auto const& each : y) EXPECT_TRUE(same_bytes(each, y[0])) << what;
  bool const sends = y[0].empty() || std::isfinite(to_double(y[0][0]));  // nothing of values that are not
  if (sends && !planned.bytes_modeled) {
    EXPECT_EQ(*std::max_element(sent.begin(), sent.end()), planned.bytes_sent) << what;
  }
  return y;
}

}  // namespace support
