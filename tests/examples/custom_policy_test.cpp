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
#include "tests/support/on_threads.hpp"
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
constexpr std::size_t length = 1500;

/// What workers get of some calls; the same for all.
template <class Schedule>
std::vector<float> means(Schedule const& over, int workers, int steps, std::uint64_t chunk = 0) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  support::on_threads(workers, [&](auto& t) {
    gq::allreduce_mean mean{t, all_own, over, {.seed = 3, .chunk_values = chunk}, Kokkos::Serial{}};
    std::vector<float> const x = support::values(length, t.rank());
    std::vector<float> y(length);
    auto& mine = all[static_cast<std::size_t>(t.rank())];
    for (int step = 0; step < steps; ++step) {
      mean(x, y, static_cast<std::uint64_t>(step));
      mine.insert(mine.end(), y.begin(), y.end());
    }
  });
  for (auto const& each : all) support::expect_same(each, all[0], std::to_string(workers) + " workers");
  return all[0];
}

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
      support::expect_same(means(over, workers, 2), means(over, workers, 2, 256), name);
  });
}

/// Each coordinate's mean over the steps lies within six of its standard deviations.
TEST(CustomPolicy, the_mean_has_no_bias) {
  over_all_schedules([](auto const& over, char const* name) {
    constexpr int workers = 4, steps = 600;
    std::vector<float> const results = means(over, workers, steps);
    std::vector<std::vector<float>> input;
    for (int rank = 0; rank < workers; ++rank) input.push_back(support::values(length, rank));
    for (std::size_t i = 0; i < length; ++i) {
      double exact = 0, sum = 0, squares = 0;
      for (auto const& x : input) exact += static_cast<double>(x[i]) / workers;
      for (std::size_t s = 0; s < steps; ++s) {
        double const error = static_cast<double>(results[s * length + i]) - exact;
        sum += error / steps;
        squares += error * error / steps;
      }
      double const deviation = std::sqrt(std::max(squares - sum * sum, 0.0) / steps);
      EXPECT_LE(std::fabs(sum), 6 * deviation + 1e-6) << name << ", value " << i;
    }
  });
}

TEST(CustomPolicy, what_adds_is_the_own_reduce_operator) {
  EXPECT_EQ(gq::plan_for(all_own, funnel{}, 4, length).reduce, gq::method::own);
  EXPECT_EQ(gq::plan_for(all_own, gq::schedule::ring{}, 4, length).reduce, gq::method::own);
}

}  // namespace

}  // namespace globalq_test
