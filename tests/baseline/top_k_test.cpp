// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Top-K: what is sent, what is left, and that feedback makes up for it.

#include <globalq/baseline/density.hpp>
#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/top_k.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tests/baseline/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

TEST(TopK, all_worlds_lengths_and_scopes_send_the_largest_and_give_the_mean_of_the_messages) {
  for (auto scope : {cp::scope::layer, cp::scope::whole})
    cases::for_worlds(
        [&](auto layers) {
          return cp::top_k{layers, {.density = 0.1, .scope = scope}};
        },
        [&](auto const& x, auto const& got) {
          cases::expect_mean_of_messages(x, got, 1e-3);
          for (std::size_t r = 0; r < x.size(); ++r) {
            double const share = x[r].empty() ? 1
                                              : std::ceil(0.1 * static_cast<double>(x[r].size())) /
                                                    static_cast<double>(x[r].size());
            // the contraction: the k largest hold at least k/d of the squares
            EXPECT_LE(cases::norm2(got.rest[r]), (1 - share) * cases::norm2(x[r]) * (1 + 1e-12));
            float least_sent = 1e9F, most_kept = 0;
            for (std::size_t i = 0; i < x[r].size(); ++i) {
              ASSERT_TRUE(got.rest[r][i] == 0 || got.rest[r][i] == x[r][i]);
              if (got.rest[r][i] != 0)
                most_kept = std::max(most_kept, std::abs(x[r][i]));
              else if (x[r][i] != 0)
                least_sent = std::min(least_sent, std::abs(x[r][i]));
            }
            EXPECT_LE(most_kept, least_sent);
          }
        });
}

/// A message of few bits holds the same places, each value to half of the distance of its group's magnitudes, of which the least
/// is at least 0.
TEST(TopK, few_bits_leave_over_what_they_round_and_contract) {
  for (int bits : {2, 8})
    for (double density : {0.02, 1.0})
      cases::for_worlds(
          [&](auto layers) {
            return cp::top_k{layers, {.density = density, .bits = bits}};
          },
          [&](auto const& x, auto const& got) {
            cases::expect_mean_of_messages(x, got, 1e-3);
            for (std::size_t r = 0; r < x.size(); ++r) {
              EXPECT_LE(cases::norm2(got.rest[r]), cases::norm2(x[r]) * (1 + 1e-6));
              double largest = 0;
              for (float v : x[r]) largest = std::max(largest, std::abs(static_cast<double>(v)));
              double const most = bits == 2 ? largest : largest / 254 * (1 + 1e-5);
              std::size_t sent = 0;
              for (std::size_t i = 0; i < x[r].size(); ++i) {
                if (got.rest[r][i] == x[r][i]) continue;
                ++sent;
                ASSERT_LE(std::abs(static_cast<double>(got.rest[r][i])), most) << i;
              }
              EXPECT_LE(static_cast<double>(sent), std::ceil(density * static_cast<double>(x[r].size())));
            }
          });
}

/// Magnitudes are rounded, and none may be above the largest value: twice a half of the range would overflow.
TEST(TopK, few_bits_stay_within_the_range) {
  constexpr float most = std::numeric_limits<float>::max();
  std::vector<vector> x(2, vector(128, 0.0F));
  for (int bits : {2, 3, 8})
    for (float least : {2.4206926e37F, 1.0F, 1.1e38F, most}) {
      for (std::size_t i = 0; i < 128; ++i) x[0][i] = i % 2 == 0 ? least : -most;
      auto const got = cases::run(x, [&] {
        return cp::top_k{cases::one_layer(128), {.density = 1, .bits = bits}};
      });
      cases::expect_same_means(got);
      for (std::size_t i = 0; i < 128; ++i) {
        ASSERT_TRUE(std::isfinite(got.mean[0][i])) << bits << ", " << least;
        ASSERT_LE(std::abs(got.rest[0][i]), most / 64) << bits << ", " << least;
      }
    }
}

TEST(TopK, few_bits_send_the_bytes_that_they_say) {
  constexpr std::uint64_t d = 1 << 16, kept = 1 << 10;
  for (int bits : {2, 8, 32}) {
    std::atomic<std::uint64_t> bytes{0};
    support::on_threads(2, [&](auto& workers) {
      cp::top_k c{cases::one_layer(d), {.density = 1.0 / 64, .bits = bits}};
      vector const x = cases::values(d, static_cast<unsigned>(workers.rank()) + 1);
      vector mean(d);
      c.reduce(workers, x, mean, {}, 0);
      std::uint64_t const one = workers.bytes_sent();
      c.reduce(workers, x, mean, {}, 1);
      bytes = workers.bytes_sent() - one;
    });
    std::uint64_t const frame =
        bits == 32 ? 8 * kept
                   : kept / 8 * static_cast<std::uint64_t>(bits) + kept / 128 * 8 + kept * 8 / 8 + 4;
    EXPECT_LE(bytes, frame + 128 + kept / 16 * 3 + 128) << bits;
    EXPECT_GE(bytes, frame) << bits;
  }
}

TEST(TopK, of_equal_values_the_contraction_is_attained) {
  std::vector<vector> const x(2, vector(50, -3.0F));
  auto const got = cases::run(x, [] { return cp::top_k{cases::one_layer(50), {.density = 0.2}}; });
  for (std::size_t i = 0; i < 50; ++i) {  // ties: the lower places
    EXPECT_EQ(got.mean[1][i], i < 10 ? -3.0F : 0.0F);
    EXPECT_EQ(got.rest[1][i], i < 10 ? 0.0F : -3.0F);
  }
}

TEST(TopK, chooses_out_of_each_layer_or_out_of_all_and_never_between_layers) {
  gq::adapt::model_layout model;
  model.add_at(60, "large", {20}).add_at(5, "small", {40}).add_at(45, "none", {0});
  vector x(80, 1000.0F);
  for (std::size_t i = 5; i < 45; ++i) x[i] = static_cast<float>(i);
  for (std::size_t i = 60; i < 80; ++i) x[i] = static_cast<float>(2 * i);
  for (auto scope : {cp::scope::layer, cp::scope::whole}) {
    cp::top_k const counted{model, {.density = 0.2, .scope = scope}};
    EXPECT_EQ(counted.count(), 12U);
    auto const got = cases::run({x, x}, [&] { return cp::top_k{model, {.density = 0.2, .scope = scope}}; });
    for (std::size_t i = 0; i < 80; ++i) {
      if (i < 5 || (i >= 45 && i < 60)) {
        ASSERT_EQ(got.mean[0][i], -77.0F);
        ASSERT_EQ(got.rest[0][i], -77.0F);
        continue;
      }
      bool const sent = scope == cp::scope::whole ? i >= 68 : (i >= 76 || (i >= 37 && i < 45));
      ASSERT_EQ(got.mean[0][i], sent ? x[i] : 0.0F) << i;
      ASSERT_EQ(got.rest[0][i], sent ? 0.0F : x[i]) << i;
    }
  }
}

TEST(TopK, densities_of_layers_may_differ_and_change_between_calls) {
  gq::adapt::model_layout model;
  model.add("many", {40}).add("none", {0}).add("few", {20});
  vector x(60);
  for (std::size_t i = 0; i < 60; ++i) x[i] = static_cast<float>(i + 1);
  cp::top_k_options const half{.densities = {0.5, 1, 0.1}};
  auto const got = cases::run({x, x}, [&] { return cp::top_k{model, half}; });
  for (std::size_t i = 0; i < 60; ++i)
    EXPECT_EQ(got.mean[0][i], (i >= 20 && i < 40) || i >= 58 ? x[i] : 0.0F) << i;

  cp::top_k changing{model, half};
  EXPECT_EQ(changing.count(), 22U);
  changing.assign(std::vector<double>{0.1, 1, 1});
  EXPECT_EQ(changing.count(), 24U);
  for (std::vector<double> const& wrong : {std::vector<double>{0.1, 1}, {0.1, 1, 0}, {0.1, 1, 1.5}}) {
    EXPECT_THROW(changing.assign(wrong), gq::configuration_error);
    EXPECT_EQ(changing.count(), 24U) << "nothing has changed";
  }
  changing.assign({});
  EXPECT_EQ(changing.count(), 2U) << "the one density for all";

  std::atomic<int> refused = 0;
  support::on_threads(2, [&](auto& workers) {
    cp::top_k c{model, half};
    if (workers.rank() == 1) c.assign(std::vector<double>{0.5, 1, 0.2});
    vector mean(60);
    try {
      c.reduce(workers, x, mean, {}, 0);
    } catch (gq::disagreement_error const&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
}

TEST(TopK, sums_beyond_float32_are_means_within_it_or_not_finite_alike) {
  std::vector<vector> const x(3, vector(7, 3.0e38F));
  auto const got = cases::run(x, [] { return cp::top_k{cases::one_layer(7), {.density = 1}}; });
  for (float v : got.mean[2]) EXPECT_NEAR(v, 3.0e38F, 1e32F);
  // the largest number, three times: whatever it comes to, all workers have the same
  std::vector<vector> const most(3, vector(7, std::numeric_limits<float>::max()));
  auto const edge = cases::run(most, [] { return cp::top_k{cases::one_layer(7), {.density = 1}}; });
  cases::expect_same_means(edge);
  for (auto o : edge.outcome) EXPECT_EQ(o, edge.outcome[0]);
  for (float v : edge.mean[0]) EXPECT_EQ(std::isfinite(v), edge.outcome[0] == cp::outcome::mean);
}

TEST(TopK, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::top_k{layers, {}, settings}; });
  cases::expect_manners([](auto layers, auto settings) {
    return cp::top_k{layers, {.scope = cp::scope::whole}, settings};
  });
  cases::expect_manners([](auto layers, auto settings) { return cp::top_k{layers, {.bits = 2}, settings}; });
  EXPECT_THROW((cp::top_k{cases::one_layer(3), {.density = 0}}), gq::configuration_error);
  for (int bits : {0, 1, 9, 31, 33})
    EXPECT_THROW((cp::top_k{cases::one_layer(3), {.bits = bits}}), gq::configuration_error);
  EXPECT_THROW((cp::top_k{cases::one_layer(1UL << 32)}), gq::configuration_error);
}

TEST(TopK, with_feedback_descent_reaches_the_optimum_that_it_misses_alone) {
  // f_r(w) = |w - target_r|^2 / 2. Worker 0 has large gradients in the first half of the coordinates which worker 1's
  // cancel: both spend their message on them for ever, and the second half never moves without feedback.
  std::uint64_t const d = 64;
  auto const distance = [&](bool feedback) {
    double left = 0;
    support::on_threads(2, [&](auto& workers) {
      float const sign = workers.rank() == 0 ? 1.0F : -1.0F;
      vector w(d), g(d), mean(d);
      cp::top_k c{cases::one_layer(d), {.density = 0.25}};
      cp::error_feedback ef{cp::top_k{cases::one_layer(d), {.density = 0.25}}};
      for (std::uint64_t t = 0; t < 2000; ++t) {
        for (std::size_t i = 0; i < d; ++i) {
          float const target = i < d / 2 ? 5 * sign : 1.0F;
          g[i] = 0.02F * (w[i] - target);
        }
        if (feedback)
          ef.reduce(workers, g, mean, t);
        else
          c.reduce(workers, g, mean, {}, t);
        for (std::size_t i = 0; i < d; ++i) w[i] -= mean[i];
      }
      if (workers.rank() == 0)
        for (std::size_t i = d / 2; i < d; ++i) left += std::pow(static_cast<double>(w[i]) - 1, 2);
    });
    return std::sqrt(left / (static_cast<double>(d) / 2));
  };
  EXPECT_EQ(distance(false), 1.0);
  // feedback sends the small coordinates once their errors have grown to those of the large ones
  EXPECT_LT(distance(true), 0.1);
}

/// Threads whose bytes change in one place on their way to all workers, in the call after the opening.
struct damaging {
  using inner = gq::transport::threads::endpoint;
  using request = inner::request;
  inner& workers;
  std::size_t byte = 0;
  unsigned flip = 0;
  int calls = 0;
  std::vector<std::shared_ptr<void>> retained{};

  int rank() const { return workers.rank(); }
  int size() const { return workers.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) { return workers.send_async(peer, bytes); }
  request recv_async(int peer, std::span<std::byte> bytes) { return workers.recv_async(peer, bytes); }
  void wait(request& r) { workers.wait(r); }
  void retain(std::shared_ptr<void> memory) { retained.push_back(std::move(memory)); }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    workers.allgather(mine, all);
    if (calls++ % 2 == 1) all[byte % all.size()] ^= static_cast<std::byte>(flip);
  }
};
static_assert(gq::Transport<damaging> && gq::transport::OwnAllgather<damaging>);

TEST(TopK, places_that_were_damaged_are_an_error_of_all_and_never_an_access_outside) {
  constexpr std::uint64_t d = 1000, kept = 20;
  int refused = 0, accepted = 0;
  for (std::size_t byte = 0; byte < 2 * kept * 8; ++byte)
    for (unsigned flip : {0x01U, 0x80U, 0xFFU}) {
      std::atomic<int> errors{0};
      support::on_threads(2, [&](auto& threads) {
        damaging workers{threads, byte, flip};
        cp::top_k c(cases::one_layer(d), {.density = 0.02});
        vector const x = cases::values(d, static_cast<unsigned>(threads.rank()) + 1);
        vector mean(d);
        try {
          c.reduce(workers, x, mean, {}, 0);
        } catch (gq::frame_error const& e) {
          EXPECT_NE(std::string(e.what()).find("are not ascending within 1000 values"), std::string::npos);
          EXPECT_EQ(workers.retained.size(), 1U) << "memory that transfers may touch";
          ++errors;
        }
      });
      EXPECT_NE(errors, 1) << "byte " << byte << ": one worker alone found it";
      bool const is_place = byte % (kept * 8) < kept * 4;
      if (!is_place) {
        EXPECT_EQ(errors, 0) << "values may be any";
      } else if (byte % 4 >= 2) {
        EXPECT_EQ(errors, 2) << "a place beyond the vector in byte " << byte;
      }
      (errors == 0 ? accepted : refused) += 1;
    }
  EXPECT_GT(refused, 300);
  EXPECT_GT(accepted, 400);
}

TEST(TopK, few_bits_that_were_damaged_are_an_error_of_all_or_other_values) {
  constexpr std::uint64_t d = 3000;
  int refused = 0, accepted = 0;
  for (std::size_t byte = 0; byte < 600; byte += 3)
    for (unsigned flip : {0x01U, 0xFFU}) {
      std::atomic<int> errors{0};
      support::on_threads(2, [&](auto& threads) {
        damaging workers{threads, byte, flip};
        cp::top_k c(cases::one_layer(d), {.density = 0.1, .bits = 3});
        vector const x = cases::values(d, static_cast<unsigned>(threads.rank()) + 1);
        vector mean(d);
        try {
          c.reduce(workers, x, mean, {}, 0);
        } catch (gq::frame_error const&) {
          ++errors;
        }
      });
      EXPECT_NE(errors, 1) << "byte " << byte << ": one worker alone found it";
      (errors == 0 ? accepted : refused) += 1;
    }
  EXPECT_GT(refused, 50);
  EXPECT_GT(accepted, 50);
}

}  // namespace
