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
#include "examples/custom_policy/take_turns.hpp"
#include "examples/custom_policy/three_halves.hpp"
#include "tests/baseline/cases.hpp"
#include "tests/levels/suite.hpp"
#include "tests/norm/statistic_suite.hpp"
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

struct norms_of_three_halves {
  using norm = three_halves;
  static std::vector<norm> all() { return {{.bucket = 0}}; }
  static double exact(norm const&, std::vector<double> const& x) {
    double sum = 0;
    for (double v : x) sum += std::pow(std::fabs(v), 1.5);
    return std::pow(sum, 2.0 / 3);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(three_halves, norm_of_statistic_suite, norms_of_three_halves);

namespace {

constexpr gq::quantizer all_own{three_halves{.bucket = 100}, minifloat<3, 1>{}, dithered{}, network_order{},
                                minifloat_sum<3, 1>{}};
template <class Use>
void over_all_schedules(Use const& use) {
  support::over_schedules(use);
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
  EXPECT_EQ(gq::plan_for(all_own, funnel{}, 4, support::means_length).reduce, gq::method::user);
  EXPECT_EQ(gq::plan_for(all_own, gq::schedule::ring{}, 4, support::means_length).reduce, gq::method::user);
}

/// Over some steps every value is averaged once, and what is left over is the rest.
TEST(CustomPolicy, a_compressor_takes_turns) {
  auto const inputs = cases::inputs(3, 1000);
  std::vector<double> const exact = cases::mean_of(inputs);
  std::vector<float> sum(1000);
  for (std::uint64_t step = 0; step < 7; ++step) {
    auto const got = cases::run(
        inputs, [] { return take_turns(cases::one_layer(1000), 7, {}); }, step);
    cases::expect_same_means(got);
    cases::expect_mean_of_messages(inputs, got, 1e-4);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += got.mean[0][i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], exact[i], 1e-4);  // values up to 1,000
}

}  // namespace

}  // namespace globalq_test
