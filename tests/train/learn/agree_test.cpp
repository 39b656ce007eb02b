// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Workers end with the same levels, those of all their values together, or with the same error.

#include "globalq/train/learn/agree.hpp"

#include "globalq/norm/norms.hpp"
#include "globalq/train/learn/level_learner.hpp"
#include "globalq/train/learn/multiplier.hpp"
#include "globalq/train/learn/schedule.hpp"
#include "globalq/transport/threads.hpp"

#include "tests/train/learn/support.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>

namespace globalq_test {
namespace {

using gq::transport::threads;
using learn::learning_status;
using ::testing::HasSubstr;

gq::kernel::host_executor serial() { return gq::kernel::host_executor(Kokkos::Serial()); }

/// Values of a worker, another scale for each.
std::vector<float> values(int rank, std::size_t n) {
  std::mt19937 draw(static_cast<std::uint32_t>(rank) + 1);
  std::vector<float> x(n);
  for (float& v : x) {
    int sum = -2 * 65535;
    for (int k = 0; k < 4; ++k) sum += static_cast<int>(draw() >> 16);
    v = static_cast<float>(sum) * gq::power_of_two_float(rank % 3 - 20);
  }
  return x;
}

gq::const_vector view(std::vector<float> const& x) { return {x.data(), gq::dtype::float32}; }

learn::histogram of(std::vector<float> const& x, learn::weighting weights = learn::weighting::squared_norms) {
  learn::histogram h({}, weights);
  h.add(serial(), view(x), x.size(), 256, 2U);
  return h;
}

/// Runs body(endpoint) on n workers and gives what each returned.
template <class Body>
auto on_workers(int n, Body const& body) {
  using result = decltype(body(std::declval<threads::endpoint&>()));
  std::vector<result> all(static_cast<std::size_t>(n));
  threads cluster(n);
  cluster.run([&](auto& workers) { all[static_cast<std::size_t>(workers.rank())] = body(workers); });
  return all;
}

void expect_same(learn::level_set const& a, learn::level_set const& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  EXPECT_EQ(a.zero_free, b.zero_free);
  EXPECT_EQ(std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(double)), 0);
}

TEST(Agree, every_worker_gets_the_levels_of_all_values) {
  for (auto const weights : {learn::weighting::squared_norms, learn::weighting::equal})
    for (int n : {1, 2, 3, 4, 5, 8}) {
      learn::histogram whole({}, weights);
      for (int r = 0; r < n; ++r) whole += of(values(r, 3000), weights);
      learn::solution const expected = learn::optimal{.size = 7}(whole.result());
      auto const all = on_workers(n, [&](auto& workers) {
        return learn::agree(workers, of(values(workers.rank(), 3000), weights), learn::optimal{.size = 7});
      });
      for (learn::agreement const& a : all) {
        ASSERT_EQ(a.what, learning_status::learned);
        expect_same(a.found.levels, all[0].found.levels);
        EXPECT_EQ(a.found.variance, all[0].found.variance);
        // Added in another order, parts of smaller units may be rounded twice: 2^-31 of a mass. With equal units, exact.
        for (std::size_t i = 0; i < expected.levels.values.size(); ++i)
          EXPECT_NEAR(a.found.levels.values[i], expected.levels.values[i],
                      weights == learn::weighting::equal ? 0.0 : 0.02 * expected.levels.values[i]);
        EXPECT_NEAR(a.found.variance / expected.variance, 1, 1e-6);
      }
    }
}

TEST(Agree, levels_do_not_depend_on_the_order_of_workers) {
  int const n = 5;
  auto const with = [&](std::vector<int> const& order) {
    return on_workers(n, [&](auto& workers) {
      int const who = order[static_cast<std::size_t>(workers.rank())];
      return learn::agree(workers, of(values(who, 2000)), learn::optimal{.size = 15});
    })[0];
  };
  learn::agreement const a = with({0, 1, 2, 3, 4}), b = with({4, 2, 0, 3, 1});
  expect_same(a.found.levels, b.found.levels);
}

TEST(Agree, normals_travel_too) {
  auto const all = on_workers(3, [&](auto& workers) {
    std::vector<float> const x = values(workers.rank(), 3000);
    std::vector<double> norms;
    for (std::size_t b = 0; b < x.size(); b += 256) {
      double sum = 0;
      for (std::size_t i = b; i < std::min(x.size(), b + 256); ++i)
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      norms.push_back(std::sqrt(sum));
    }
    learn::normals s(8);
    s.measure(serial(), view(x), x.size(), 256, norms);
    return learn::agree(workers, std::move(s), learn::multiplier{.size = 4});
  });
  for (learn::agreement const& a : all) {
    ASSERT_EQ(a.what, learning_status::learned);
    expect_usable(a.found.levels, 4, "normals");
    EXPECT_TRUE(a.found.levels.zero_free);
    expect_same(a.found.levels, all[0].found.levels);
  }
  // sums of four uniforms are nearly normal: within buckets of 256 r is |N(0, 1/256)|
  learn::solution const expected = learn::multiplier{.size = 4}(learn::truncated_normal(0, 1 / 16.0));
  EXPECT_NEAR(all[0].found.levels.values[2], expected.levels.values[2], 0.01);
}

/// What each worker says when it throws.
template <class Error, class Body>
std::vector<std::string> errors(int n, Body const& body) {
  return on_workers(n, [&](auto& workers) -> std::string {
    try {
      body(workers);
    } catch (Error const& e) {
      return e.what();
    }
    return "nothing was thrown";
  });
}

TEST(Agree, all_workers_see_that_they_differ) {
  auto const expect = [](std::string const& text, auto const& body) {
    auto const all = errors<gq::disagreement_error>(3, body);
    for (std::string const& e : all) {
      EXPECT_THAT(e, HasSubstr(text));
      EXPECT_EQ(e, all[0]);
    }
  };
  learn::optimal const solver{.size = 3};
  expect("worker 0 has fraction bits 7 and worker 2 has 8", [&](auto& workers) {
    learn::histogram h(learn::histogram_shape{.fraction_bits = workers.rank() == 2 ? 8U : 7U});
    learn::agree(workers, h, solver);
  });
  expect("weighting", [&](auto& workers) {
    learn::agree(workers, of(values(0, 100), static_cast<learn::weighting>(workers.rank() == 1)), solver);
  });
  expect("worker 0 has step 7 and worker 1 has 8", [&](auto& workers) {
    learn::agree(workers, of(values(0, 100)), solver, {.step = workers.rank() == 1 ? 8U : 7U});
  });
  expect("length", [&](auto& workers) {
    learn::agree(workers, of(values(0, 100)), solver, {.length = workers.rank() == 2 ? 8U : 7U});
  });
  expect("the kind of statistics", [&](auto& workers) {
    if (workers.rank() == 0)
      learn::agree(workers, learn::normals(4), solver);
    else
      learn::agree(workers, learn::histogram(), solver);
  });
}

TEST(Agree, all_workers_get_the_error_of_the_solver) {
  auto const own = errors<gq::configuration_error>(4, [](auto& workers) {
    learn::agree(workers, of(values(0, 100)), [](learn::bins const&) -> learn::solution {
      throw std::runtime_error("the solver has no answer");
    });
  });
  for (std::string const& e : own) EXPECT_THAT(e, HasSubstr("the solver has no answer"));
  auto const nameless = errors<gq::configuration_error>(3, [](auto& workers) {
    learn::agree(workers, of(values(0, 100)), [](learn::bins const&) -> learn::solution { throw 7; });
  });
  for (std::string const& e : nameless) EXPECT_THAT(e, HasSubstr("not a std::exception"));
  auto const unusable = errors<gq::configuration_error>(2, [](auto& workers) {
    learn::agree(workers, of(values(0, 100)), [](learn::bins const&) {
      return learn::solution{{{0, 0.5, 0.5, 1}, false}};
    });
  });
  for (std::string const& e : unusable) EXPECT_THAT(e, HasSubstr("must ascend strictly"));
  auto const many = errors<gq::configuration_error>(
      2, [](auto& workers) { learn::agree(workers, of(values(0, 100)), learn::optimal{.size = 500}); });
  for (std::string const& e : many) EXPECT_THAT(e, HasSubstr("500 levels"));
}

TEST(Agree, a_nan_or_nothing_at_all_is_seen_by_all) {
  auto const nan = on_workers(3, [&](auto& workers) {
    std::vector<float> x = values(workers.rank(), 1000);
    if (workers.rank() == 1) x[500] = std::numeric_limits<float>::quiet_NaN();
    return learn::agree(workers, of(x), learn::optimal{});
  });
  for (learn::agreement const& a : nan) EXPECT_EQ(a.what, learning_status::non_finite);
  auto const zeros = on_workers(3, [&](auto& workers) {
    return learn::agree(workers, of(std::vector<float>(1000, 0.0F)), learn::optimal{});
  });
  for (learn::agreement const& a : zeros) EXPECT_EQ(a.what, learning_status::nothing_to_learn);
  auto const some = on_workers(3, [&](auto& workers) {  // only worker 2 has values
    return learn::agree(workers, of(workers.rank() == 2 ? values(2, 1000) : std::vector<float>(1000, 0.0F)),
                        learn::optimal{.size = 3});
  });
  learn::solution const alone = learn::optimal{.size = 3}(of(values(2, 1000)).result());
  for (learn::agreement const& a : some) {
    ASSERT_EQ(a.what, learning_status::learned);
    expect_same(a.found.levels, alone.levels);
  }
}

TEST(UpdateSchedule, is_that_of_the_paper_unless_told_otherwise) {
  learn::update_schedule const s;
  std::vector<std::uint64_t> due;
  for (std::uint64_t step = 0; step <= 30000; ++step)
    if (s.due(step)) due.push_back(step);
  EXPECT_EQ(due, (std::vector<std::uint64_t>{100, 2000, 10000, 20000, 30000}));
  EXPECT_EQ(learn::schedule_for(80000).once, s.once);
  EXPECT_EQ(learn::schedule_for(80000).every, s.every);
  EXPECT_EQ(learn::schedule_for(150).once, (std::vector<std::uint64_t>{1, 4}));
  EXPECT_EQ(learn::schedule_for(150).every, 19U);
  EXPECT_TRUE(learn::schedule_for(2).due(1)) << "short trainings learn, too";
  EXPECT_FALSE(learn::schedule_for(2).due(0));
  learn::update_schedule const never{.once = {}, .every = 0};
  for (std::uint64_t step = 0; step <= 30000; ++step) EXPECT_FALSE(never.due(step));
  learn::update_schedule const always{.once = {0}, .every = 1};
  for (std::uint64_t step = 0; step <= 10; ++step) EXPECT_TRUE(always.due(step));
  EXPECT_FALSE(s.due_before(100));
  EXPECT_TRUE(s.due_before(101));
  EXPECT_FALSE(never.due_before(~std::uint64_t{0}));
  EXPECT_FALSE((learn::update_schedule{.once = {}, .every = 5}.due_before(5)));
  EXPECT_TRUE((learn::update_schedule{.once = {}, .every = 5}.due_before(6)));
}

TEST(LevelLearner, catches_up_once_where_a_training_is_resumed) {
  auto const all = on_workers(2, [&](auto& workers) {
    learn::level_learner learner{gq::norm::local<2>{.bucket = 128},
                                 learn::optimal{.size = 3},
                                 {.schedule = {.once = {2, 105}, .every = 0}, .catches_up = true}};
    std::vector<std::uint64_t> learned;
    for (std::uint64_t step = 100; step < 110; ++step) {
      std::vector<float> x = values(workers.rank(), 1000);
      if (workers.rank() == 1 && step == 100) x[10] = std::numeric_limits<float>::infinity();
      if (learner.update(workers, x, step)) learned.push_back(step);
    }
    return learned;
  });
  for (auto const& learned : all) EXPECT_EQ(learned, (std::vector<std::uint64_t>{101, 105}));
}

TEST(LevelLearner, learns_at_scheduled_steps_and_tries_again_after_a_nan) {
  auto const all = on_workers(2, [&](auto& workers) {
    learn::level_learner learner{gq::norm::local<2>{.bucket = 128},
                                 learn::optimal{.size = 3},
                                 {.schedule = {.once = {2, 5}, .every = 0}}};
    std::vector<std::uint64_t> learned;
    for (std::uint64_t step = 0; step < 10; ++step) {
      std::vector<float> x = values(workers.rank(), 1000);
      if (workers.rank() == 1 && (step == 5 || step == 6)) x[10] = std::numeric_limits<float>::infinity();
      if (auto const found = learner.update(workers, x, step)) {
        learned.push_back(step);
        expect_usable(found->levels, 3, "learner");
      }
    }
    return learned;
  });
  for (auto const& learned : all) EXPECT_EQ(learned, (std::vector<std::uint64_t>{2, 7}));
}

TEST(LevelLearner, measures_with_the_norm_of_the_operator) {
  // a global norm is that of all workers: the ratios of a worker with small values are small
  auto const run = [&](auto const& norm, learn::statistics exchange) {
    return on_workers(3, [&](auto& workers) {
      learn::level_learner learner{
          norm, learn::optimal{.size = 7}, {.schedule = {.once = {0}, .every = 0}, .exchange = exchange}};
      std::vector<float> const x = values(workers.rank(), 5000);
      return learner.update(workers, x, 0)->levels;
    });
  };
  auto const expected = [&](auto const& norm_of_bucket) {
    learn::histogram h;
    for (int r = 0; r < 3; ++r) {
      std::vector<double> norms;
      for (std::size_t b = 0; b < 5000; b += 100) norms.push_back(norm_of_bucket(r, b));
      h.add(serial(), view(values(r, 5000)), 5000, 100, norms);
    }
    return learn::optimal{.size = 7}(h.result()).levels;
  };
  auto const own = [](int r, std::size_t b) {
    std::vector<float> const x = values(r, 5000);
    double top = 0;
    for (std::size_t i = b; i < b + 100; ++i) top = std::max(top, std::fabs(static_cast<double>(x[i])));
    return top;
  };
  auto const local = run(gq::norm::local<gq::infinity>{.bucket = 100}, learn::statistics::histograms);
  auto const global = run(gq::norm::linf{.bucket = 100}, learn::statistics::histograms);
  auto const near = [](learn::level_set const& a, learn::level_set const& b) {
    for (std::size_t i = 0; i < b.values.size(); ++i)
      EXPECT_NEAR(a.values[i], b.values[i], 0.02 * b.values[i]);
  };
  for (auto const& l : local) {
    expect_same(l, local[0]);
    near(l, expected(own));
  }
  for (auto const& l : global) {
    expect_same(l, global[0]);
    near(l, expected([&](int, std::size_t b) { return std::max({own(0, b), own(1, b), own(2, b)}); }));
  }
  for (auto const exchange : {learn::statistics::histograms, learn::statistics::normals})
    for (auto const& all :
         {run(gq::norm::l<2, 2>{.bucket = 512}, exchange), run(gq::norm::l<2, 2>{}, exchange),
          run(gq::norm::linf{}, exchange), run(gq::norm::local<2>{}, exchange)})
      for (auto const& l : all) {
        expect_same(l, all[0]);
        expect_usable(l, 7, "learner");
      }
}

TEST(LevelLearner, workers_with_other_lengths_are_told_before_norms_travel) {
  auto const all = errors<gq::disagreement_error>(2, [&](auto& workers) {
    learn::level_learner learner{
        gq::norm::linf{.bucket = 100}, learn::optimal{}, {.schedule = {.once = {0}}}};
    static_cast<void>(learner.update(workers, values(0, workers.rank() == 0 ? 500 : 700), 0));
  });
  for (std::string const& e : all) EXPECT_THAT(e, HasSubstr("worker 0 has length 500 and worker 1 has 700"));
}

TEST(LevelLearner, a_vector_without_values_teaches_nothing) {
  auto const all = on_workers(2, [&](auto& workers) {
    learn::level_learner learner{gq::norm::linf{}, learn::optimal{}, {.schedule = {.once = {0}}}};
    return learner.update(workers, std::vector<float>{}, 0) ? 1
                                                            : 0;  // no vector<bool>: its elements share bytes
  });
  for (int learned : all) EXPECT_EQ(learned, 0);
}

TEST(LevelLearner, refuses_a_norm_that_measures_nothing) {
  EXPECT_THROW((learn::level_learner{gq::norm::fixed{0.5}, learn::optimal{}}), gq::configuration_error);
  EXPECT_THROW((learn::level_learner{gq::norm::linf{}, learn::optimal{}, {.samples = 0}}),
               gq::configuration_error);
}

}  // namespace
}  // namespace globalq_test
