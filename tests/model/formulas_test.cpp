// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Closed formulas: by hand, and the paper's claims about when compression wins.

#include "tests/support/refusal.hpp"

#include <globalq/model/costs.hpp>
#include <globalq/model/formulas.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gq = globalq;
namespace model = globalq::model;
using support::refusal;
using testing::HasSubstr;

namespace {

TEST(Formulas, give_what_was_computed_by_hand) {
  // 4 workers, 8 MB, 1 ms, 100 MB/s, 1 GB/s of additions
  model::parameters const p{1e-3, 1e8, 1e9};
  EXPECT_NEAR(model::tree_seconds(4, 8e6, p), 4 * 1e-3 + 4 * 0.08 + 2 * 0.008, 1e-12);
  EXPECT_NEAR(model::ring_seconds(4, 8e6, p), 6 * (1e-3 + 0.02) + 3 * 0.002, 1e-12);
  EXPECT_NEAR(model::scatter_reduce_allgather_seconds(4, 8e6, p), 2e-3 + 6 * 0.02 + 3 * 0.002, 1e-12);
  EXPECT_NEAR(model::allgather_seconds(4, 8e6, p), 1e-3 + 3 * 0.08, 1e-12);
  EXPECT_EQ(model::tree_levels(1), 0);
  EXPECT_EQ(model::tree_levels(2), 1);
  EXPECT_EQ(model::tree_levels(5), 3);
  EXPECT_EQ(model::tree_levels(4096), 12);
}

TEST(Formulas, cost_nothing_for_one_worker) {
  model::parameters const p{1, 1, 1};
  EXPECT_EQ(model::tree_seconds(1, 100, p), 0);
  EXPECT_EQ(model::ring_seconds(1, 100, p), 0);
  EXPECT_EQ(model::scatter_reduce_allgather_seconds(1, 100, p), 0);
  EXPECT_EQ(model::allgather_seconds(1, 100, p), 0);
}

TEST(WinningBandwidth, is_the_papers_six_omega_gamma_over_one_minus_four_omega) {
  for (double const omega : {1 / 79.0, 0.01, 0.1, 0.2})
    EXPECT_NEAR(model::winning_bandwidth(1, 2e12, {.rho = 4, .omega = omega}),
                6 * omega / (1 - 4 * omega) * 2e12, 1e-9 * 2e12);
  // "a training speed up if beta < 0.08 gamma", with NVLink's 53.9 GB/s well within on an A100
  double const border = model::winning_bandwidth(2, 2e12, {.rho = 4, .omega = 1 / 79.0});
  EXPECT_NEAR(border, 0.08 * 2e12, 1e-6 * 2e12);
  EXPECT_GT(border, 53.9e9);
  for (double const rho : {2.0, 4.0, 8.0, 16.0})
    for (double const omega : {0.01, 0.05})
      EXPECT_NEAR(model::winning_bandwidth(3, 1e9, {.rho = rho, .omega = omega}) /
                      (2 * omega * (rho - 1) / (1 - omega * rho) * 1e9),
                  1, 1e-12);
}

/// The speed-up of a long vector is above 1 below that bandwidth, and below 1 above it.
TEST(WinningBandwidth, is_where_the_two_times_are_equal) {
  for (double const rho : {2.0, 4.0, 8.0})
    for (double const omega : {1 / 79.0, 0.1, 0.5, 1.0})
      for (double const delta : {0.0, 1e-11, 1e-10, 1e-9})
        for (int const n : {2, 4, 16, 1024}) {
          model::compression const c{rho, omega, delta};
          double const gamma = 5e9, border = model::winning_bandwidth(model::tree_levels(n), gamma, c);
          auto const speed_up = [&](double beta) {
            double const bytes = 1e9,
                         codes = model::tree_seconds(n, bytes / c.rho, {0, beta, gamma * c.omega});
            return model::tree_seconds(n, bytes, {0, beta, gamma}) / (codes + c.delta * bytes);
          };
          if (std::isinf(border)) {
            for (double const beta : {1e6, 1e9, 1e12, 1e18}) EXPECT_GE(speed_up(beta), 1 - 1e-12);
          } else {
            EXPECT_GT(speed_up(border * 0.99), 1);
            EXPECT_LT(speed_up(border * 1.01), 1);
            EXPECT_NEAR(speed_up(border), 1, 1e-9);
          }
        }
}

bool wins_on_any_network(int levels, double gamma, model::compression const& c) {
  return std::isinf(model::winning_bandwidth(levels, gamma, c));
}

TEST(WinningBandwidth, has_no_end_once_omega_reaches_one_over_rho_and_encoding_is_free) {
  for (double const rho : {2.0, 3.0, 4.0, 8.0, 16.0}) {
    for (int const levels : {1, 2, 12}) {
      EXPECT_TRUE(wins_on_any_network(levels, 1e9, {.rho = rho, .omega = 1 / rho}));
      EXPECT_TRUE(wins_on_any_network(levels, 1e9, {.rho = rho, .omega = 1}));
      EXPECT_FALSE(wins_on_any_network(levels, 1e9, {.rho = rho, .omega = 0.999 / rho}));
      EXPECT_FALSE(wins_on_any_network(levels, 1e9, {.rho = rho, .omega = 1 / rho, .delta = 1e-15}));
    }
  }
}

TEST(WinningBandwidth, has_no_end_with_encoding_once_enough_levels_of_additions_are_saved) {
  // L (1 - 1/(rho omega)) / gamma > delta, here 0.75 L / gamma > delta
  double const gamma = 4e9;
  model::compression c{.rho = 4, .omega = 1};
  for (int levels = 1; levels <= 12; ++levels) {
    double const border = 0.75 * levels / gamma;
    c.delta = border * 0.999;
    EXPECT_TRUE(wins_on_any_network(levels, gamma, c));
    c.delta = border * 1.001;
    EXPECT_FALSE(wins_on_any_network(levels, gamma, c));
    EXPECT_TRUE(wins_on_any_network(levels + 1, gamma, c));
  }
}

TEST(WinningBandwidth, grows_with_omega_rho_and_the_number_of_workers_and_falls_with_delta) {
  double before = 0;
  for (double omega = 0.01; omega < 0.25; omega += 0.01) {
    double const b = model::winning_bandwidth(2, 1e9, {.rho = 4, .omega = omega});
    EXPECT_GT(b, before);
    before = b;
  }
  for (double const delta : {1e-10, 1e-9, 1e-8})
    EXPECT_LT(model::winning_bandwidth(2, 1e9, {.rho = 4, .omega = 0.1, .delta = delta * 2}),
              model::winning_bandwidth(2, 1e9, {.rho = 4, .omega = 0.1, .delta = delta}));
  EXPECT_GT(model::winning_bandwidth(3, 1e9, {.rho = 4, .omega = 1, .delta = 1e-8}),
            model::winning_bandwidth(2, 1e9, {.rho = 4, .omega = 1, .delta = 1e-8}));
  EXPECT_EQ(model::winning_bandwidth(2, 1e9, {.rho = 0.5, .omega = 1, .delta = 1e-9}), 0);
}

TEST(Formulas, refuse_impossible_numbers_with_a_remedy) {
  EXPECT_THAT(refusal([] { model::tree_seconds(4, 1, {.beta = 0}); }), HasSubstr("beta and gamma above 0"));
  EXPECT_THAT(refusal([] { model::tree_seconds(4, 1, {.alpha = -1}); }), HasSubstr("alpha of 0 or more"));
  EXPECT_THAT(refusal([] { model::ring_seconds(0, 1, {}); }), HasSubstr("give 1 worker or more"));
  EXPECT_THAT(refusal([] { model::ring_seconds(2, -1, {}); }), HasSubstr("0 bytes or more"));
  EXPECT_THAT(refusal([] { model::winning_bandwidth(1, 1, {.omega = 0}); }),
              HasSubstr("rho and omega above 0"));
  EXPECT_THAT(refusal([] { model::winning_bandwidth(0, 1, {}); }), HasSubstr("at least 1 level"));
  EXPECT_THAT(refusal([] { model::winning_bandwidth(1, 1, {.delta = std::nan("")}); }), HasSubstr("delta"));
}

}  // namespace
