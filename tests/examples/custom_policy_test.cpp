// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The level scheme and the transport of examples/custom_policy keep to what all of them do.

#include "examples/custom_policy/mailbox.hpp"
#include "examples/custom_policy/minifloat.hpp"
#include "tests/levels/suite.hpp"
#include "tests/transport/suite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <thread>

namespace globalq_test {

struct mailbox_harness {
  using endpoint = mailbox;
  static std::vector<int> worlds() { return {1, 2, 3, 5}; }
  template <class Body>
  static void run(int workers, options settings, Body body) {
    letters all;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; ++rank)
      threads.emplace_back([&, rank] {
        mailbox endpoint(all, rank, workers, settings.deadline);
        body(endpoint);
      });
    for (std::thread& t : threads) t.join();
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(mailbox, transport_suite, mailbox_harness);

struct minifloat_cases {
  using scheme = minifloat<3, 1>;
  static constexpr long double slack = 0;
  static std::vector<scheme_case<scheme>> all() {
    std::vector<long double> levels{0};
    for (int e = 3; e > 0; --e)
      for (long double m : {1.0L, 1.5L}) levels.push_back(std::ldexp(m, -e));
    levels.push_back(1);
    return {{"minifloat", scheme{}, levels.size(), [levels](std::uint64_t k) { return levels[k]; },
             [](std::uint64_t k) { return static_cast<std::int32_t>(k); }}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(minifloat, level_scheme_suite, minifloat_cases);

}  // namespace globalq_test
