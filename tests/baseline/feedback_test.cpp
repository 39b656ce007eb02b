// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Error feedback: what is not sent is not lost; and what a worker keeps can be saved and loaded.

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/state.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/baseline/cases.hpp"
#include "tests/support/refusal.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;
using testing::HasSubstr;

namespace {

gq::adapt::model_layout two_layers() {
  gq::adapt::model_layout model;
  model.add("a", {30}).add("b", {10, 7});
  return model;
}

cp::rand_k<> sparse(gq::adapt::model_layout const& model) {
  return cp::rand_k{model, {.density = 0.1, .unbiased = false}};
}

TEST(ErrorFeedback, the_sum_of_what_was_sent_is_the_sum_of_all_vectors_minus_the_last_error) {
  int const n = 3, steps = 40;
  std::uint64_t const d = 100;
  std::vector<std::vector<double>> errors(3), sent(3), given(3);
  support::on_threads(n, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    cp::error_feedback ef{sparse(two_layers())};
    vector mean(d);
    std::vector<double> sum(d), all(d);
    for (int t = 0; t < steps; ++t) {
      vector const g = cases::values(d, static_cast<unsigned>(100 * t + workers.rank()));
      ASSERT_EQ(ef.reduce(workers, g, mean, static_cast<std::uint64_t>(t)), cp::outcome::mean);
      for (std::size_t i = 0; i < d; ++i) {
        sum[i] += static_cast<double>(mean[i]);
        all[i] += static_cast<double>(g[i]);
      }
    }
    sent[r] = sum;
    given[r] = all;
    errors[r].assign(ef.error().begin(), ef.error().end());
  });
  for (std::size_t i = 0; i < d; ++i) {
    double wanted = 0;
    for (std::size_t r = 0; r < 3; ++r) wanted += (given[r][i] - errors[r][i]) / n;
    // sums of integers below 2^24 are exact; each of 40 means rounds once: 40 * 1000 * 40 / 2 * 2^-24 at most
    EXPECT_NEAR(sent[0][i], wanted, 0.05);
  }
  EXPECT_EQ(sent[0], sent[2]);
}

TEST(ErrorFeedback, descent_converges_where_the_biased_compressor_alone_does_not) {
  // f(w) = |w - target|^2 / 2 with a target for each worker. A fixed choice of coordinates, without feedback, leaves all
  // others where they were; other coordinates in each step, with feedback, leave none.
  std::uint64_t const d = 100;
  auto const targets = cases::inputs(2, d, 3, 10);
  auto const best = cases::mean_of(targets);
  auto const distance = [&](bool feedback) {
    double left = 0;
    support::on_threads(2, [&](auto& workers) {
      auto const& target = targets[static_cast<std::size_t>(workers.rank())];
      vector w(d), g(d), mean(d);
      cp::rand_k c = sparse(two_layers());
      cp::error_feedback ef{sparse(two_layers())};
      for (std::uint64_t t = 0; t < 1500; ++t) {
        for (std::size_t i = 0; i < d; ++i) g[i] = 0.02F * (w[i] - target[i]);
        if (feedback)
          ef.reduce(workers, g, mean, t);
        else
          c.reduce(workers, g, mean, {}, 7);
        for (std::size_t i = 0; i < d; ++i) w[i] -= mean[i];
      }
      if (workers.rank() != 0) return;
      for (std::size_t i = 0; i < d; ++i) left += std::pow(static_cast<double>(w[i]) - best[i], 2);
    });
    return std::sqrt(left);
  };
  double start = 0;
  for (double b : best) start += b * b;
  start = std::sqrt(start);
  EXPECT_LT(distance(true), 1e-3 * start);
  EXPECT_GT(distance(false), 0.5 * start);
}

TEST(ErrorFeedback, the_error_is_carried_over_in_units_of_the_new_learning_rate) {
  support::on_threads(1, [](auto& workers) {
    cp::error_feedback ef{cp::send_first{cases::one_layer(2), {.gamma = 2}}};
    vector mean(2);
    ef.reduce(workers, vector{1, 8}, mean, 0);
    EXPECT_EQ(ef.error()[1], 8.0F);
    ef.reduce(workers, vector{1, 1}, mean, 1, 0.5F);
    EXPECT_EQ(ef.error()[0], 0.0F);
    EXPECT_EQ(ef.error()[1], 5.0F);
    ef.reset();
    EXPECT_EQ(ef.error()[1], 0.0F);
  });
}

TEST(ErrorFeedback, a_call_that_is_not_finite_or_refused_leaves_errors_as_they_were) {
  support::on_threads(2, [](auto& workers) {
    cp::error_feedback ef{sparse(two_layers())};
    vector g = cases::values(100, 1), mean(100);
    ef.reduce(workers, g, mean, 0);
    vector const before(ef.error().begin(), ef.error().end());
    if (workers.rank() == 1) g[50] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(ef.reduce(workers, g, mean, 1), cp::outcome::not_finite);
    EXPECT_TRUE(cases::same_bits(before, {ef.error().begin(), ef.error().end()}));
    EXPECT_THROW(ef.reduce(workers, vector(99), mean, 1), gq::error);
    EXPECT_TRUE(cases::same_bits(before, {ef.error().begin(), ef.error().end()}));
  });
}

TEST(ErrorFeedback, a_compressor_that_leaves_more_than_it_is_given_is_refused) {
  auto const text = support::refusal([] {
    return cp::error_feedback{cp::rand_k{two_layers(), {.density = 0.1}}};
  });
  EXPECT_THAT(text, HasSubstr("the residual of this compressor can exceed its input"));
  EXPECT_THAT(text, HasSubstr("rand_k with .unbiased = false"));
  // scaled by less than 2 it leaves less than it is given
  cp::error_feedback const dense{cp::rand_k{two_layers(), {.density = 0.6}}};
  EXPECT_TRUE(dense.inner().contracts());
}

/// The states of n workers after some steps.
std::vector<cp::state> states_of(int n, gq::adapt::model_layout const& model) {
  std::vector<cp::state> saved(static_cast<std::size_t>(n));
  support::on_threads(n, [&](auto& workers) {
    cp::error_feedback ef{sparse(model)};
    vector mean(model.length());
    for (std::uint64_t t = 0; t < 5; ++t)
      ef.reduce(workers,
                cases::values(model.length(),
                              static_cast<unsigned>(t) * 10U + static_cast<unsigned>(workers.rank())),
                mean, t);
    saved[static_cast<std::size_t>(workers.rank())] = ef.save(n, workers.rank());
  });
  return saved;
}

TEST(ErrorFeedback, training_goes_on_bit_for_bit_from_saved_bytes) {
  auto const model = two_layers();
  vector straight(100), resumed(100);
  support::on_threads(2, [&](auto& workers) {
    int const r = workers.rank();
    auto const g = [&](std::uint64_t t) {
      return cases::values(100, static_cast<unsigned>(t) * 10U + static_cast<unsigned>(r));
    };
    cp::error_feedback ef{sparse(model)};
    vector mean(100);
    for (std::uint64_t t = 0; t < 5; ++t) ef.reduce(workers, g(t), mean, t);
    auto const bytes = ef.save(2, r).bytes();
    ef.reduce(workers, g(5), mean, 5);
    if (r == 0) straight = mean;

    cp::error_feedback again{sparse(model)};
    cp::state const own = cp::state::parse(bytes);
    again.load({&own, 1}, 2, r);
    again.reduce(workers, g(5), mean, 5);
    if (r == 0) resumed = mean;
  });
  EXPECT_TRUE(cases::same_bits(straight, resumed));
}

TEST(ErrorFeedback, layers_are_found_by_name_wherever_they_lie) {
  auto const saved = states_of(1, two_layers());
  gq::adapt::model_layout moved;
  moved.add("b", {70}).add_at(80, "a", {30});
  cp::error_feedback ef{sparse(moved)};
  ef.load(saved, 1, 0);
  auto const a = saved[0].get("error/a", 30), b = saved[0].get("error/b", 70);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), ef.error().begin() + 80));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), ef.error().begin()));
}

TEST(ErrorFeedback, another_number_of_workers_keeps_the_mean_of_the_errors) {
  auto const model = two_layers();
  for (int before : {1, 2, 3, 5}) {
    auto const saved = states_of(before, model);
    for (int after : {1, 2, 4, 7}) {
      if (after == before) continue;
      std::vector<double> wanted(100), got(100);
      for (auto const& s : saved)
        for (std::size_t i = 0; i < 100; ++i)
          wanted[i] +=
              static_cast<double>(i < 30 ? s.get("error/a", 30)[i] : s.get("error/b", 70)[i - 30]) / before;
      for (int r = 0; r < after; ++r) {
        cp::error_feedback ef{sparse(model)};
        ef.load(saved, after, r);
        for (std::size_t i = 0; i < 100; ++i) got[i] += static_cast<double>(ef.error()[i]) / after;
      }
      for (std::size_t i = 0; i < 100; ++i)
        EXPECT_NEAR(got[i], wanted[i], std::abs(wanted[i]) * 0x1p-24 + 1e-9);
    }
  }
}

TEST(ErrorFeedback, the_average_of_IntSgd_goes_on_with_another_number_of_workers) {
  auto const model = two_layers();
  auto const g = [](std::uint64_t t, int rank) {
    return cases::values(100, static_cast<unsigned>(10 * t) + static_cast<unsigned>(rank));
  };
  for (int before : {1, 3})
    for (int after : {2, 5}) {
      std::vector<cp::state> saved(static_cast<std::size_t>(before));
      double wanted = 0;
      support::on_threads(before, [&](auto& workers) {
        cp::error_feedback ef{cp::int_sgd<std::int32_t>{model}};
        vector mean(100);
        for (std::uint64_t t = 0; t < 4; ++t) {
          ef.reduce(workers, g(t, workers.rank()), mean, t);
          ef.inner().observe(10.0 + static_cast<double>(t), 0.125);
        }
        saved[static_cast<std::size_t>(workers.rank())] = ef.save(before, workers.rank());
        if (workers.rank() == 0) wanted = ef.inner().scale(after);
      });
      std::vector<vector> means(static_cast<std::size_t>(after)), given(means), left(means);
      support::on_threads(after, [&](auto& workers) {
        auto const r = static_cast<std::size_t>(workers.rank());
        cp::error_feedback ef{cp::int_sgd<std::int32_t>{model}};
        ef.load(saved, after, workers.rank());
        EXPECT_EQ(ef.inner().scale(after), wanted);
        vector mean(100);
        for (std::uint64_t t = 4; t < 7; ++t) {
          given[r] = g(t, workers.rank());
          for (std::size_t i = 0; i < 100; ++i) given[r][i] += ef.error()[i];
          ef.reduce(workers, g(t, workers.rank()), mean, t);
          left[r].assign(ef.error().begin(), ef.error().end());
          ef.inner().observe(12, 0.125);
          means[r].insert(means[r].end(), mean.begin(), mean.end());
        }
      });
      auto const all = cases::mean_of(given), rest = cases::mean_of(left);
      for (vector const& m : means) EXPECT_TRUE(cases::same_bits(m, means[0]));
      // of the last call: values below 2^11, of which the mean and each rest round by 2^-14
      for (std::size_t i = 0; i < 100; ++i) {
        EXPECT_NEAR(static_cast<double>(means[0][200 + i]), all[i] - rest[i], 3 * 0x1p-14);
        EXPECT_NE(rest[i], 0.0);  // it was not float32
      }
    }
}

TEST(ErrorFeedback, states_that_do_not_belong_together_are_refused_and_change_nothing) {
  auto const model = two_layers();
  auto const three = states_of(3, model), two = states_of(2, model);
  cp::error_feedback ef{sparse(model)};
  auto const refusal = [&](std::vector<cp::state> const& saved, int workers, int rank) {
    try {
      ef.load(saved, workers, rank);
    } catch (gq::error const& e) {
      for (float v : ef.error()) EXPECT_EQ(v, 0.0F);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({}, 2, 0), HasSubstr("no state"));
  EXPECT_THAT(refusal({three[0], three[1]}, 2, 0), HasSubstr("the state of worker 2 of 3 is missing"));
  EXPECT_THAT(refusal({three[0], three[1], three[0]}, 2, 0), HasSubstr("worker 0 occurs twice"));
  EXPECT_THAT(refusal({three[0], two[1]}, 2, 0), HasSubstr("states of 3 and of 2 workers"));
  EXPECT_THAT(refusal({three[1]}, 3, 0), HasSubstr("load the state of this rank"));
  EXPECT_THAT(refusal({three[1]}, 3, 3), HasSubstr("no worker 3 of 3"));
  // a state may claim any number of workers: as many are not made room for
  int const many = std::numeric_limits<int>::max();
  EXPECT_THAT(refusal({cp::state(many, 0)}, 2, 0), HasSubstr("worker 1 of 2147483647 is missing"));
  EXPECT_THAT(refusal({cp::state(many, 7)}, 2, 0), HasSubstr("worker 0 of 2147483647 is missing"));
  EXPECT_THAT(refusal({cp::state(many, many - 1)}, many, 5), HasSubstr("load the state of this rank"));
  gq::adapt::model_layout other;
  other.add("a", {31}).add("c", {2});
  cp::error_feedback strange{sparse(other)};
  EXPECT_THROW(strange.load(two, 2, 0), gq::frame_error);
}

TEST(State, bytes_that_are_cut_off_or_changed_are_refused) {
  cp::state s(4, 2);
  s.put("error/x", vector{1, 2, 3});
  s.put("q/y", vector{});
  auto const bytes = s.bytes();
  auto const back = cp::state::parse(bytes);
  EXPECT_EQ(back.workers(), 4);
  EXPECT_EQ(back.rank(), 2);
  EXPECT_EQ(back.get("error/x", 3)[2], 3.0F);
  EXPECT_EQ(back.bytes(), bytes);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_THROW(cp::state::parse(std::span(bytes).first(cut)), gq::frame_error) << cut;
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (int bit : {0, 7}) {
      auto damaged = bytes;
      damaged[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_THROW(cp::state::parse(damaged), gq::frame_error) << at;
    }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(cp::state::parse(longer), gq::frame_error);
  EXPECT_THROW(back.get("error/x", 2), gq::frame_error);
  EXPECT_THROW(back.get("error/z", 3), gq::frame_error);
  EXPECT_THROW(cp::state(2, 2), gq::configuration_error);
  cp::state bad(1, 0);
  bad.put("nan", vector{std::nanf("")});
  EXPECT_THROW(cp::state::parse(bad.bytes()), gq::frame_error);
}

}  // namespace
