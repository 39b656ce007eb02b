// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The policies and the transport of examples/custom_policy keep to what all of them do; and calls with all of them, over all
/// schedules.

#include "examples/custom_policy/dithered.hpp"
#include "examples/custom_policy/funnel.hpp"
#include "examples/custom_policy/mailbox.hpp"
#include "examples/custom_policy/minifloat.hpp"
#include "examples/custom_policy/minifloat_sum.hpp"
#include "examples/custom_policy/network_order.hpp"
#include "examples/custom_policy/row_max.hpp"
#include "tests/levels/suite.hpp"
#include "tests/reduce/suite.hpp"
#include "tests/rounding/suite.hpp"
#include "tests/support/means.hpp"
#include "tests/support/values.hpp"
#include "tests/transport/suite.hpp"
#include "tests/wire/suite.hpp"

#include <globalq/globalq.hpp>

#include <gtest/gtest.h>

#include <algorithm>
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

INSTANTIATE_TYPED_TEST_SUITE_P(dithered, rounding_scheme_suite, dithered);
INSTANTIATE_TYPED_TEST_SUITE_P(dithered, unbiased_rounding_suite, dithered);

struct network_orders {
  using wire = network_order;
  static std::vector<wire> all() { return {{}}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(network_order, wire_format_suite, network_orders);

struct minifloat_sums {
  using reduce = minifloat_sum<3, 1>;
  static minifloat<3, 1> levels() { return {}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(minifloat_sum, reduce_operator_suite, minifloat_sums);

namespace {

constexpr gq::quantizer all_own{row_max{.bucket = 100}, minifloat<3, 1>{}, dithered{}, network_order{},
                                minifloat_sum<3, 1>{}};
template <class Use>
void over_all_schedules(Use const& use) {
  use(gq::schedule::ring{}, "ring");
  use(gq::schedule::tree{}, "tree");
  use(gq::schedule::sra{}, "sra");
  use(gq::schedule::allgather{}, "allgather");
  use(gq::schedule::hierarchical<>{2}, "hierarchical");
  use(gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::ring>{2}, "float32 in nodes");
  use(funnel{}, "funnel");
}

TEST(CustomPolicy, workers_get_the_same_bits_over_all_schedules) {
  over_all_schedules([](auto const& over, char const* name) {
    for (int workers = 1; workers <= 9; ++workers)
      support::expect_same(support::means(all_own, over, workers, 2),
                           support::means(all_own, over, workers, 2, 256), name);
  });
}

/// Each coordinate's mean over the steps lies within six of its standard deviations.
TEST(CustomPolicy, the_mean_has_no_bias) {
  over_all_schedules([](auto const& over, char const* name) {
    constexpr int workers = 4, steps = 600;
    support::expect_unbiased(support::means(all_own, over, workers, steps), workers, name);
  });
}

TEST(CustomPolicy, what_adds_is_the_own_reduce_operator) {
  EXPECT_EQ(gq::plan_for(all_own, funnel{}, 4, support::means_length).reduce, gq::method::own);
  EXPECT_EQ(gq::plan_for(all_own, gq::schedule::ring{}, 4, support::means_length).reduce, gq::method::own);
}

}  // namespace

}  // namespace globalq_test
