// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Error feedback: what all means leave out is exactly what the workers keep; residuals stay bounded, survive calls
///        that fail, checkpoints and other numbers of workers; refused where they would mean nothing.

#include "tests/quantizer/checked_mean.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/named/description.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/second_half.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace gq = globalq;

namespace error_feedback_test {

using namespace support;

template <class T>
using vectors = std::vector<std::vector<T>>;

gq::any_quantizer of_words(std::string const& norm, std::string const& levels, std::string const& wire,
                           std::uint64_t bucket, std::string const& rounding = "nearest") {
  gq::named::description words;
  words.norm = norm;
  words.levels = levels;
  words.rounding = rounding;
  words.wire = wire;
  words.bucket = bucket;
  return gq::named::make(words);
}
gq::any_quantizer const two_bits = of_words("local:inf", "uniform", "packed:2", 128),
                        integers = of_words("linf", "uniform", "int16", 0);

/// The vector of a worker at a step: a part that stays, and one that changes.
template <class T>
std::vector<T> drawn(int rank, int n, std::size_t d, int step) {
  std::vector<T> x(d);
  for (std::size_t i = 0; i < d; ++i)
    x[i] = value_from<T>(
        to_double(value_at<T>(input::normal, 31, rank, n, i, d)) +
        0.5 * to_double(value_at<T>(input::normal, static_cast<std::uint64_t>(100 + step), rank, n, i, d)));
  return x;
}

/// A worker's residual of a vector, as saved.
std::vector<double> residual_of(gq::saved_state const& s, std::size_t d, std::size_t vector = 0) {
  std::vector<double> e(d);
  for (std::string const part : {"", ".1", ".2"}) {
    std::string const key = "residual" + part + "/" + std::to_string(vector);
    if (s.count(key) != 0)
      for (std::size_t i = 0; i < d; ++i) e[i] += static_cast<double>(s.get(key, d)[i]);
  }
  return e;
}

/// What all workers did in some steps.
struct sums {
  std::vector<double> of_vectors, of_means, of_residuals;
  double largest = 0;  ///< residual
};

/// Means of some steps; all workers must hold the same bits.
/// @param node  own values are divided by it: workers of a node that adds before encoding
template <class T, class Schedule>
sums after_steps(int n, gq::any_quantizer const& op, Schedule const& schedule, std::size_t d, int steps,
                 double node = 1, std::uint64_t chunk = 0) {
  sums s{std::vector<double>(d), std::vector<double>(d), std::vector<double>(d)};
  vectors<T> results(static_cast<std::size_t>(n));
  std::vector<gq::saved_state> states(static_cast<std::size_t>(n));
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, schedule, {.seed = 5, .chunk_values = chunk}};
    std::vector<T> all;
    for (int t = 0; t < steps; ++t) {
      std::vector<T> const x = drawn<T>(workers.rank(), n, d, t);
      std::vector<T> y(d);
      mean(x, y, static_cast<std::uint64_t>(t));
      all.insert(all.end(), y.begin(), y.end());
    }
    results[r] = all;
    states[r] = mean.save();
  });
  for (auto const& each : results) EXPECT_TRUE(same_bytes(each, results[0])) << op.facts().name << ", " << n;
  for (int r = 0; r < n; ++r) {
    for (int t = 0; t < steps; ++t) {
      std::vector<T> const x = drawn<T>(r, n, d, t);
      for (std::size_t i = 0; i < d; ++i) s.of_vectors[i] += to_double(x[i]);
    }
    auto const e = residual_of(states[static_cast<std::size_t>(r)], d);
    for (std::size_t i = 0; i < d; ++i) {
      s.of_residuals[i] += node * e[i];
      s.largest = std::max(s.largest, std::abs(e[i]));
    }
  }
  for (std::size_t k = 0; k < results[0].size(); ++k) s.of_means[k % d] += n * to_double(results[0][k]);
  return s;
}

/// How far sums of results may be off: means below 4 are rounded to their type, sums of values below 8 to float32.
template <class T>
double rest(int n, int steps) {
  return n * steps * (std::is_same_v<T, double> ? 0x1p-18 : 0x1p-19 + 4 * std::exp2(-traits<T>::digits));
}

template <class T>
class ErrorFeedback : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(ErrorFeedback, value_types);

/// n times the sum of all means is the sum of all vectors minus the residuals: nothing is lost and nothing comes twice, on every
/// schedule that can carry it. The rest is the rounding of means to their type.
TYPED_TEST(ErrorFeedback, workers_keep_exactly_what_the_means_leave_out) {
  std::vector<std::pair<gq::any_quantizer, char const*>> const routes = {
      {gq::error_feedback{two_bits}, "allgather"},
      {gq::error_feedback{two_bits}, "sra"},
      {gq::error_feedback{of_words("linf", "uniform", "packed:4", 0)}, "sra"},
      {gq::error_feedback{of_words("local:inf", "exponential", "packed:4", 100)}, "sra"},
      {gq::error_feedback{integers}, "ring"},
      {gq::error_feedback{integers}, "tree"},
      {gq::error_feedback{integers}, "native"},
      {gq::error_feedback{integers}, "hierarchical:2"},
      {gq::error_feedback{of_words("local:inf", "uniform", "packed:4", 128, "stochastic")}, "sra"},
      {gq::error_feedback{of_words("local:inf", "uniform", "sparse", 128)}, "sra"},
      {gq::error_feedback{of_words("two-level", "e2m1", "packed:4", 16)}, "sra"},
      {gq::error_feedback{gq::float32_tail{of_words("linf", "uniform", "packed:4", 100)}}, "sra"},
      {gq::error_feedback{gq::rotated{of_words("local:inf", "uniform", "packed:4", 128), 128}}, "sra"},
      {gq::error_feedback{gq::second_half{two_bits, of_words("local:inf", "uniform", "packed:4", 100)}},
       "sra"},
      {gq::error_feedback{gq::centered{two_bits}}, "allgather"},
      {gq::error_feedback{gq::rotated{gq::centered{two_bits, 100}, 64}}, "sra"}};
  constexpr int steps = 5;
  for (int n : {1, 2, 3, 5, 9})
    for (auto const& [op, schedule] : routes)
      for (std::size_t d : {1U, 255U, 1025U, 3000U}) {
        sums const s =
            after_steps<TypeParam>(n, op, gq::schedule::any{schedule}, d, steps, 1, d == 3000 ? 512 : 0);
        for (std::size_t i = 0; i < d; ++i)
          ASSERT_NEAR(s.of_vectors[i], s.of_means[i] + s.of_residuals[i], rest<TypeParam>(n, steps))
              << op.facts().name << " on " << schedule << ", " << n << " workers, value " << i << " of " << d;
      }
}

TYPED_TEST(ErrorFeedback, leaders_keep_what_the_sums_of_their_nodes_leave_out) {
  constexpr int steps = 5;
  constexpr std::size_t d = 1500;
  for (int n : {2, 4, 6}) {
    auto const check = [&](sums const& s) {
      for (std::size_t i = 0; i < d; ++i)
        ASSERT_NEAR(s.of_vectors[i], s.of_means[i] + s.of_residuals[i], rest<TypeParam>(n, steps))
            << n << ", " << i;
    };
    using namespace gq::schedule;
    check(after_steps<TypeParam>(n, gq::error_feedback{two_bits}, hierarchical<float32_sum>{2}, d, steps, 2));
    check(after_steps<TypeParam>(n, gq::error_feedback{two_bits}, hierarchical<float32_sum, allgather>{2}, d,
                                 steps, 2));
  }
}

/// The bounds of docs/theory.md for two bits: X for own values, (2n - 1) X for sums, X being the largest value.
TEST(ErrorFeedbackRules, residuals_stay_bounded) {
  for (char const* schedule : {"allgather", "sra"})
    for (int n : {1, 4}) {
      double const largest = 3.0, most = largest * (std::string(schedule) == "sra" ? 2 * n - 1 : 1);
      sums const s =
          after_steps<float>(n, gq::error_feedback{two_bits}, gq::schedule::any{schedule}, 1000, 200);
      EXPECT_LE(s.largest, most) << schedule << n;
      EXPECT_GT(s.largest, 0.1) << schedule << n;
    }
  // under a norm of all workers sums are encoded at n times it: 3 workers need more than 1.5 levels
  sums const s = after_steps<float>(3, gq::error_feedback{of_words("linf", "uniform", "packed:3", 0)},
                                    gq::schedule::sra{}, 1000, 200);
  EXPECT_LE(s.largest, 3.0 / (2 * 3 / 3.0 - 1));
}

TEST(ErrorFeedbackRules, vectors_of_zeros_bring_the_rest) {
  constexpr std::size_t d = 600;
  on_threads(3, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::allgather{}, {.seed = 5}};
    std::vector<double> sum(d), expected(d);
    for (int r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < d; ++i) expected[i] += static_cast<double>(drawn<float>(r, 3, d, 0)[i]) / 3;
    for (std::uint64_t step = 0; step < 60; ++step) {
      std::vector<float> x = step == 0 ? drawn<float>(workers.rank(), 3, d, 0) : std::vector<float>(d);
      mean(x, step);
      for (std::size_t i = 0; i < d; ++i) sum[i] += static_cast<double>(x[i]);
    }
    for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(sum[i], expected[i], 1e-4) << i;
  });
}

TEST(ErrorFeedbackRules, decay_and_average_are_those_of_the_formula) {
  // one value: its scale is itself, so only the other value of the bucket, of 0.3 of it, leaves a residual
  on_threads(1, [&](auto& workers) {
    gq::feedback_options const options{.decay = 0.5F, .average = 0.25F};
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits, options}, gq::schedule::sra{}, {.seed = 5}};
    double e = 0;
    for (std::uint64_t step = 0; step < 40; ++step) {
      std::vector<float> x{1.0F, 0.3F};
      mean(x, step);
      double const p = 0.3 + 0.5 * e, q = p >= 0.5 ? 1 : 0;
      e = 0.75 * e + 0.25 * (p - q);
      ASSERT_NEAR(x[1], q, 1e-6) << step;
      ASSERT_NEAR(residual_of(mean.save(), 2)[1], e, 1e-6) << step;
    }
  });
  on_threads(1, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits, {.reset = 3}}, gq::schedule::sra{}};
    for (std::uint64_t step = 0; step < 9; ++step) {
      std::vector<float> x{1.0F, 0.3F};
      mean(x, step);
      ASSERT_EQ(x[1], step % 3 == 1 ? 1.0F : 0.0F) << step;  // .3, .6, -.1
    }
  });
}

/// A residual in 8 bits differs from that in 32 by half a code of its block in each call, which the next calls repair too.
TEST(ErrorFeedbackRules, residuals_of_8_bits_lose_little) {
  constexpr int steps = 50;
  constexpr std::size_t d = 1000;
  sums const s =
      after_steps<float>(2, gq::error_feedback{two_bits, {.bits = 8}}, gq::schedule::allgather{}, d, steps);
  sums const none = after_steps<float>(2, two_bits, gq::schedule::allgather{}, d, steps);
  double lost = 0, without = 0;
  for (std::size_t i = 0; i < d; ++i) {
    lost += std::abs(s.of_vectors[i] - s.of_means[i] - s.of_residuals[i]);
    without += std::abs(none.of_vectors[i] - none.of_means[i]);
  }
  EXPECT_LE(lost / d, 2 * steps * 3.0 / 254);
  EXPECT_LT(lost, without / 20);
}

TEST(ErrorFeedbackRules, a_call_without_a_mean_changes_nothing) {
  constexpr std::size_t d = 1000;
  on_threads(3, std::chrono::seconds{60}, [&](auto& workers) {
    gq::telemetry log({.errors = true});
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}, {.seed = 5}},
        observed{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}, {.seed = 5, .telemetry = &log}};
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<float> x = drawn<float>(workers.rank(), 3, d, static_cast<int>(step)), y(d), z(d);
      observed(x, z, step);
      if (step % 2 == 1) {
        auto const before = mean.save().bytes();
        auto bad = x;
        if (workers.rank() == 1) bad[7] = std::numeric_limits<float>::quiet_NaN();
        mean(bad, step + 100);
        EXPECT_TRUE(std::isnan(bad[0]));
        std::vector<float> other(workers.rank() == 1 ? d + 1 : d);
        EXPECT_THROW(mean(other, step + 200), gq::error);
        EXPECT_EQ(mean.save().bytes(), before);
      }
      mean(x, y, step);
      EXPECT_TRUE(same_bytes(y, z)) << step;  // telemetry changes nothing either
    }
  });
}

TEST(ErrorFeedbackRules, a_vector_of_another_length_is_refused_by_all) {
  auto const texts = complaints<gq::error>(3, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}};
    std::vector<float> x(1000, 0.3F), y(900, 0.3F);
    x[0] = 1;
    mean(x, 0);
    if (workers.rank() == 2) mean.forget_residuals();  // it has none: the others must tell it
    mean(y, 1);
  });
  for (std::string const& text : texts) {
    EXPECT_NE(text.find("has 900 values of type float32, its residual 1000"), std::string::npos) << text;
    EXPECT_NE(text.find("forget_residuals()"), std::string::npos) << text;
  }
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}};
    std::vector<float> x(1000, 0.3F), y(900, 0.3F);
    mean(x, 0);
    mean.forget_residuals();
    mean(y, 1);
    EXPECT_EQ(mean.save().count("residual/0"), 900U);
  });
}

TYPED_TEST(ErrorFeedback, a_group_keeps_a_residual_for_each_vector) {
  std::vector<std::size_t> const lengths = {300, 0, 1024, 77};
  on_threads(3, std::chrono::seconds{60}, [&](auto& workers) {
    gq::any_quantizer const op = gq::error_feedback{two_bits};
    gq::allreduce_mean all{workers, op, gq::schedule::allgather{}, {.seed = 5}};
    std::vector<std::unique_ptr<gq::allreduce_mean<>>> each;
    for (std::size_t k = 0; k < lengths.size(); ++k)
      each.push_back(std::make_unique<gq::allreduce_mean<>>(workers, op, gq::schedule::allgather{},
                                                            gq::options{.seed = 5}));
    for (int step = 0; step < 4; ++step) {
      vectors<TypeParam> x;
      gq::vector_group group;
      for (std::size_t d : lengths) x.push_back(drawn<TypeParam>(workers.rank(), 3, d, step));
      auto const given = x;
      for (auto& v : x) group.add(v);
      all(group, static_cast<std::uint64_t>(10 * step));
      for (std::size_t k = 0; k < lengths.size(); ++k) {
        auto alone = given[k];
        (*each[k])(alone, static_cast<std::uint64_t>(10 * step) + k);
        EXPECT_TRUE(same_bytes(alone, x[k])) << step << " " << k;
      }
    }
  });
}

/// A shard of the gradient's mean, then the gathered shards: two residuals, as on scatter-reduce-allgather.
TEST(ErrorFeedbackRules, shards_keep_residuals_of_what_they_encode) {
  constexpr std::size_t d = 3001;
  constexpr int n = 3, steps = 6;
  std::vector<gq::saved_state> of_scatter(n), of_gather(n);
  std::vector<double> means(d), rest_of(d);
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    gq::any_quantizer const op = gq::error_feedback{two_bits};
    gq::reduce_scatter_mean scatter{workers, op, {.seed = 1}};
    gq::all_gather gather{workers, op, {.seed = 2}};
    for (int t = 0; t < steps; ++t) {
      auto x = drawn<float>(workers.rank(), n, d, t);
      scatter(x, static_cast<std::uint64_t>(t));
      gather(x, static_cast<std::uint64_t>(t));
      if (workers.rank() == 0)
        for (std::size_t i = 0; i < d; ++i) means[i] += static_cast<double>(x[i]);
    }
    of_scatter[static_cast<std::size_t>(workers.rank())] = scatter.save();
    of_gather[static_cast<std::size_t>(workers.rank())] = gather.save();
  });
  for (int r = 0; r < n; ++r) {
    for (int t = 0; t < steps; ++t) {
      auto const x = drawn<float>(r, n, d, t);
      for (std::size_t i = 0; i < d; ++i) rest_of[i] += static_cast<double>(x[i]) / n;
    }
    auto const e = residual_of(of_scatter[static_cast<std::size_t>(r)], d),
               f = residual_of(of_gather[static_cast<std::size_t>(r)], d);
    for (std::size_t i = 0; i < d; ++i) rest_of[i] -= e[i] / n + f[i];
  }
  for (std::size_t i = 0; i < d; ++i) ASSERT_NEAR(means[i], rest_of[i], 1e-4) << i;
}

TYPED_TEST(ErrorFeedback, residuals_are_saved_and_loaded) {
  constexpr std::size_t d = 777;
  auto const run = [&](int n, std::vector<gq::saved_state> const& from, int first, int end) {
    std::vector<gq::saved_state> states(static_cast<std::size_t>(n));
    vectors<TypeParam> last(static_cast<std::size_t>(n));
    on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}, {.seed = 5}};
      if (!from.empty()) mean.load(from);
      for (int t = first; t < end; ++t) {
        last[r] = drawn<TypeParam>(workers.rank(), n, d, t);
        mean(last[r], static_cast<std::uint64_t>(t));
      }
      states[r] = gq::saved_state::parse(mean.save().bytes());
    });
    return std::pair(states, last[0]);
  };
  auto const whole = run(3, {}, 0, 8);
  auto const half = run(3, {}, 0, 4);
  auto const rest = run(3, half.first, 4, 8);
  EXPECT_TRUE(same_bytes(rest.second, whole.second));
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(rest.first[r].bytes(), whole.first[r].bytes());
  // two workers of three: the mean of residuals stays, which is what the mean of vectors still lacks
  auto const fewer = run(2, half.first, 0, 0);
  for (std::size_t i = 0; i < d; ++i) {
    double before = 0, after = 0;
    for (auto const& s : half.first) before += residual_of(s, d)[i] / 3;
    for (auto const& s : fewer.first) after += residual_of(s, d)[i] / 2;
    ASSERT_NEAR(before, after, 1e-6) << i;
  }
}

TEST(ErrorFeedbackRules, what_cannot_be_loaded_changes_nothing) {
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits}, gq::schedule::sra{}},
        plain{workers, two_bits, gq::schedule::sra{}};
    std::vector<float> x(100, 0.3F);
    x[0] = 1;
    mean(x, 0);
    auto const before = mean.save().bytes();
    std::vector<gq::saved_state> const none, own{mean.save()},
        half{gq::saved_state(3, 0), gq::saved_state(3, 1)}, twice{mean.save(), mean.save()};
    EXPECT_THROW(mean.load(none), gq::configuration_error);
    EXPECT_THROW(mean.load(half), gq::configuration_error);
    for (float bad : {-5.0F, 0.7F, 1e30F, 301.0F}) {  // the part that a residual covers
      gq::saved_state damaged(2, workers.rank());
      std::vector<float> const zeros(300), place{0, bad, 0, 300};
      damaged.put("residual/0", zeros);
      damaged.put("residual.part/0", place);
      EXPECT_THROW(mean.load({&damaged, 1}), gq::frame_error) << bad;
    }
    std::vector<gq::saved_state> others{gq::saved_state(3, 0), gq::saved_state(3, 1), gq::saved_state(3, 2)};
    std::vector<float> const numbers(5, 1.0F), place{0, 0, 0, 5};
    for (auto& s : others) {
      s.put("residual/0", numbers);
      s.put("residual.part/0", place);
    }
    others[1].put("residual.1/0", numbers);
    others[1].put("residual.2/0", numbers);
    EXPECT_THROW(mean.load(others), gq::frame_error) << "types differ";
    EXPECT_THROW(mean.load(twice), gq::configuration_error);
    EXPECT_THROW(plain.load(own), gq::configuration_error);
    EXPECT_EQ(plain.save().size(), 0U);
    EXPECT_EQ(mean.save().bytes(), before);
    mean.load(own);
    EXPECT_EQ(mean.save().bytes(), before);
  });
}

TYPED_TEST(ErrorFeedback, nothing_overflows_at_the_end_of_the_range) {
  constexpr std::size_t d = 300;
  for (input kind : {input::largest, input::denormals, input::one_nonzero})
    for (char const* schedule : {"sra", "allgather"})
      on_threads(3, std::chrono::seconds{60}, [&](auto& workers) {
        gq::any_quantizer const op = gq::error_feedback{gq::rotated{two_bits, 64}},
                                plain = gq::error_feedback{two_bits};
        for (auto const& each : {op, plain}) {
          gq::allreduce_mean mean{
              workers, each, gq::schedule::any{schedule}, {.non_finite = gq::non_finite::error}};
          for (std::uint64_t step = 0; step < 5; ++step) {
            std::vector<TypeParam> x(d);
            for (std::size_t i = 0; i < d; ++i)
              x[i] = value_at<TypeParam>(kind, step, workers.rank(), 3, i, d);
            try {
              mean(x, step);
              for (auto v : x) ASSERT_TRUE(std::isfinite(to_double(v)));
            } catch (gq::non_finite_error const&) {
              // the mean of 16-bit values plus residuals may exceed their range
              ASSERT_TRUE(kind == input::largest);
            }
          }
        }
      });
}

TEST(ErrorFeedbackRules, what_makes_no_sense_is_refused_with_a_remedy) {
  auto const refused = [](auto const& op, char const* schedule, std::string const& words) {
    for (std::string const& text : complaints<gq::configuration_error>(3, [&](auto& workers) {
           gq::allreduce_mean{workers, op, gq::schedule::any{schedule}};
         }))
      EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  refused(gq::error_feedback{two_bits}, "ring", "use schedule sra or allgather");
  refused(gq::error_feedback{two_bits}, "tree", "use schedule sra or allgather");
  refused(gq::error_feedback{two_bits}, "hierarchical:2", "use schedule sra or allgather");
  refused(gq::error_feedback{of_words("linf", "exponential", "int8", 0)}, "ring",
          "use schedule sra or allgather");
  refused(gq::error_feedback{of_words("local:inf", "uniform", "packed:2", 128, "stochastic")}, "sra",
          "use rounding::nearest");
  refused(gq::error_feedback{of_words("local:2", "uniform", "packed:4", 128)}, "sra",
          "norm::local<infinity>");
  refused(gq::error_feedback{of_words("l:2,inf", "uniform", "int8", 0)}, "ring", "norm::linf");
  refused(gq::error_feedback{of_words("fixed:2", "uniform", "int16", 0)}, "ring", "norm that is measured");
  refused(gq::error_feedback{gq::uncompressed{}}, "ring", "remove error_feedback");
  refused(gq::error_feedback{of_words("local:inf", "symmetric:1", "packed:1", 128)}, "allgather",
          "more levels");
  refused(gq::error_feedback{of_words("linf", "uniform", "packed:2", 0)}, "sra", "more levels");
  // the halves of second_half each have their own rounding
  auto const with_sums = [](char const* own, char const* sums) {
    return gq::plan_for(
        gq::error_feedback{gq::second_half{of_words("local:inf", "uniform", "packed:2", 128, own),
                                           of_words("local:inf", "uniform", "packed:2", 128, sums)}},
        gq::schedule::sra{}, 4, 1000);
  };
  EXPECT_TRUE(with_sums("nearest", "nearest").fits);
  for (auto const& [own, sums] : {std::pair{"stochastic", "nearest"}, std::pair{"nearest", "stochastic"}})
    EXPECT_NE(with_sums(own, sums).refusal.find("use rounding::nearest"), std::string::npos) << own;
  // a scale that is rounded up may be twice the norm
  refused(gq::error_feedback{of_words("power-of-two:local:inf", "uniform:1", "int8", 128)}, "allgather",
          "more levels");
  refused(gq::error_feedback{gq::operators::eden<2>()}, "allgather", "remove error_feedback");
  gq::error_feedback const three_bits{
      of_words("linf", "uniform", "packed:3", 0)};  // s = 3: less than 6 workers
  for (int n : {5, 6}) EXPECT_EQ(gq::plan_for(three_bits, gq::schedule::sra{}, n, 1000).fits, n < 6) << n;
  for (std::string const& text : complaints<gq::configuration_error>(4, [&](auto& workers) {
         gq::reduce_scatter_mean{workers, gq::error_feedback{two_bits}, gq::schedule::hierarchical<>{2}};
       }))
    EXPECT_NE(text.find("leave the nodes out"), std::string::npos) << text;
  EXPECT_THROW((gq::rotated{gq::error_feedback{two_bits}, 64}), gq::configuration_error);
  EXPECT_THROW((gq::centered{gq::error_feedback{two_bits}}), gq::configuration_error);
  EXPECT_THROW((gq::error_feedback{gq::any_quantizer(gq::error_feedback{two_bits})}),
               gq::configuration_error);
  for (gq::feedback_options const& o :
       {gq::feedback_options{.decay = 0}, gq::feedback_options{.decay = 1.5F},
        gq::feedback_options{.average = 0},
        gq::feedback_options{.decay = std::numeric_limits<float>::quiet_NaN()},
        gq::feedback_options{.bits = 4}})
    EXPECT_THROW((gq::error_feedback{two_bits, o}), gq::configuration_error);
  auto const texts = complaints<gq::disagreement_error>(2, [&](auto& workers) {
    gq::feedback_options const options{.decay = workers.rank() == 0 ? 1.0F : 0.95F};
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits, options}, gq::schedule::sra{}};
    std::vector<float> x(100, 1.0F);
    mean(x, 0);
  });
  for (std::string const& text : texts) EXPECT_NE(text.find("decay 0.95"), std::string::npos) << text;
}

TEST(ErrorFeedbackRules, layers_keep_their_residuals_by_name) {
  constexpr int n = 3;
  on_threads(
      1, [&](auto& workers) {  // resets by the trainer's step, though each layer has random steps of its own
        gq::adapt::model_layout two;
        two.add("first", {2});
        two.add("second", {2});
        gq::adapt::layered_mean mean{
            workers, two, std::vector<gq::any_quantizer>(2, gq::error_feedback{two_bits, {.reset = 3}}),
            gq::schedule::sra{}};
        for (std::uint64_t step = 0; step < 9; ++step) {
          std::vector<float> x(two.length(), 1.0F);
          x[1] = x[two[1].offset + 1] = 0.3F;
          mean(x, step);
          for (std::size_t at : {std::size_t{1}, two[1].offset + 1})
            ASSERT_EQ(x[at], step % 3 == 1 ? 1.0F : 0.0F) << step;
        }
      });
  gq::adapt::model_layout model;
  model.add("weight", {40, 30});
  model.add("bias", {30});
  model.add("head", {500});
  std::vector<gq::any_quantizer> const operators{gq::error_feedback{two_bits}, gq::uncompressed{},
                                                 gq::error_feedback{two_bits, {.decay = 0.5F}}};
  std::vector<gq::saved_state> states(n);
  vectors<float> last(n), again(n);
  auto const run = [&](auto& mean, int rank, int first, int end) {
    std::vector<float> x;
    for (int t = first; t < end; ++t) {
      x = drawn<float>(rank, n, model.length(), t);
      mean(x, static_cast<std::uint64_t>(t));
    }
    return x;
  };
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::adapt::layered_mean mean{workers, model, operators, gq::schedule::sra{}};
    run(mean, workers.rank(), 0, 3);
    states[r] = mean.save();
    last[r] = run(mean, workers.rank(), 3, 6);
    auto const before = mean.save().bytes();
    mean.assign(0, two_bits);  // the residual waits
    run(mean, workers.rank(), 6, 7);
    mean.assign(0, operators[0]);
    EXPECT_EQ(residual_of(mean.save(), 1200), residual_of(gq::saved_state::parse(before), 1200));
  });
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::adapt::layered_mean mean{workers, model, operators, gq::schedule::sra{}},
        plain{workers, model, std::vector<gq::any_quantizer>(3, two_bits), gq::schedule::sra{}};
    EXPECT_EQ(states[r].count("residual/weight"), 1200U);
    EXPECT_FALSE(states[r].contains("residual/bias"));
    EXPECT_EQ(plain.save().size(), 0U);
    mean.load(states);
    plain.load(states);  // has none
    again[r] = run(mean, workers.rank(), 3, 5);
    auto const before = mean.save().bytes();
    again[r] = run(mean, workers.rank(), 5, 6);
    mean.undo();
    EXPECT_EQ(mean.save().bytes(), before);
    mean.undo();  // once only
    EXPECT_EQ(mean.save().bytes(), before);
    gq::adapt::model_layout other;
    other.add("other", {9});
    gq::adapt::layered_mean unlike{workers, other, {gq::error_feedback{two_bits}}, gq::schedule::sra{}};
    EXPECT_THROW(unlike.load(states), gq::frame_error);
  });
  for (std::size_t r = 0; r < n; ++r) EXPECT_TRUE(same_bytes(last[r], again[r])) << r;
}

TEST(ErrorFeedbackRules, residuals_of_8_bits_hold_any_magnitude) {
  on_threads(2, [&](auto& workers) {
    for (double size : {1e300, 1.0, 1e-37, 1e-300}) {
      gq::allreduce_mean mean{workers, gq::error_feedback{two_bits, {.bits = 8}}, gq::schedule::allgather{}};
      for (std::uint64_t step = 0; step < 3; ++step) {
        std::vector<double> x{size, 0.3 * size, 0.01 * size, 0};
        mean(x, step);
        auto const e = residual_of(mean.save(), 4);
        if (step == 0 && size == 1) {
          EXPECT_NEAR(e[1], 0.3, 0.3 / 250);
          EXPECT_NEAR(e[2], 0.01, 0.3 / 250);
        }
        for (double v : x) ASSERT_TRUE(std::isfinite(v)) << size;
      }
    }
    gq::allreduce_mean small{workers, gq::error_feedback{two_bits, {.bits = 8}}, gq::schedule::allgather{}};
    std::vector<float> x{1e-37F, 0.3e-37F, 0.01e-37F, 0};
    small(x, 0);
    auto const e = residual_of(small.save(), 4);
    EXPECT_NEAR(e[1] / 0.3e-37, 1, 0.01);
    EXPECT_LT(e[2], 0.02e-37);
    EXPECT_EQ(e[3], 0);
  });
}

/// Scales of float32 tails and midpoints must hold the residuals too, also in a group, where each vector has its own.
TEST(ErrorFeedbackRules, floats_beside_codes_have_room_for_residuals) {
  for (gq::any_quantizer const& op : {gq::any_quantizer(gq::error_feedback{gq::float32_tail{two_bits}}),
                                      gq::any_quantizer(gq::error_feedback{gq::centered{two_bits}})})
    on_threads(2, [&](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.non_finite = gq::non_finite::error}};
      for (std::uint64_t step = 0; step < 4; ++step) {
        std::vector<double> x = drawn<double>(workers.rank(), 2, 130, static_cast<int>(step)), y{1, 2};
        for (double& v : x) v *= step == 0 ? 1e100 : 1.0;
        gq::vector_group group;
        group.add(x);
        group.add(y);
        mean(group, 10 * step);
        for (double v : x) ASSERT_TRUE(std::isfinite(v));
      }
    });
}

TEST(ErrorFeedbackRules, zeros_at_a_reset_forget_and_empty_vectors_do_not) {
  on_threads(1, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits, {.reset = 3}}, gq::schedule::sra{}};
    for (std::uint64_t step = 1; step < 5; ++step) {
      std::vector<float> x{step == 3 ? 0.0F : 1.0F, step == 3 ? 0.0F : 0.3F};
      mean(x, step);
      if (step == 4) {
        EXPECT_EQ(x[1], 0) << "the residual of step 2 was forgotten at step 3";
      }
    }
    auto const before = mean.save().bytes();
    std::vector<float> none;
    mean(none, 10);
    EXPECT_EQ(mean.save().bytes(), before);
  });
}

/// Each value of a gathered vector, and of sums of nodes, has one worker that owes it: dividing by all would lose the rest.
TEST(ErrorFeedbackRules, another_number_of_workers_keeps_what_is_owed) {
  constexpr std::size_t d = 2000;
  auto const owed = [&](auto const& states) {
    std::vector<double> all(d);
    for (auto const& s : states) {
      auto const e = residual_of(s, d);
      for (std::size_t i = 0; i < d; ++i) all[i] += e[i];
    }
    return all;
  };
  std::vector<gq::saved_state> two(2), four(4), nodes(4), more(8);
  on_threads(2, [&](auto& workers) {
    gq::all_gather gather{workers, gq::error_feedback{two_bits}};
    auto x = drawn<float>(workers.rank(), 2, d, 0);
    gather(x, 0);
    two[static_cast<std::size_t>(workers.rank())] = gather.save();
  });
  auto const before = owed(two);
  on_threads(4, [&](auto& workers) {
    gq::all_gather gather{workers, gq::error_feedback{two_bits}};
    gather.load(two);
    EXPECT_EQ(residual_of(gather.save(), d), before);  // each adds that of its shard
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits},
                            gq::schedule::hierarchical<gq::schedule::float32_sum>{2}};
    std::vector<float> x(d, 0.3F);
    x[0] = x[128] = 1;
    mean(x, 0);
    nodes[static_cast<std::size_t>(workers.rank())] = mean.save();
  });
  on_threads(8, [&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::error_feedback{two_bits},
                            gq::schedule::hierarchical<gq::schedule::float32_sum>{2}};
    mean.load(nodes);
    auto const e = residual_of(mean.save(), d);
    EXPECT_NEAR(e[1], residual_of(nodes[0], d)[1], 1e-7);
    EXPECT_NE(e[1], 0);
  });
}

/// Of five workers 0, 2 and 4 stay, and one joins.
TEST(ErrorFeedbackRules, workers_that_stay_keep_what_they_owe) {
  constexpr std::size_t d = 2000;
  gq::any_quantizer const op = gq::error_feedback{two_bits};
  for (char const* const name : {"allgather", "sra"}) {
    gq::schedule::any const schedule{std::string_view(name)};
    std::vector<gq::saved_state> five(5), four(4);
    on_threads(5, [&](auto& workers) {
      gq::allreduce_mean mean{workers, op, schedule};
      auto x = drawn<float>(workers.rank(), 5, d, 0);
      mean(x, 0);
      five[static_cast<std::size_t>(workers.rank())] = mean.save();
    });
    std::vector<double> owed(d);
    for (std::size_t r = 0; r < 5; r += 2)
      for (std::size_t i = 0; i < d; ++i) owed[i] += residual_of(five[r], d)[i];
    std::vector<std::vector<float>> means(4);
    on_threads(4, [&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      gq::allreduce_mean mean{workers, op, schedule};
      if (r < 3) {
        std::vector<gq::saved_state> const own{five[2 * r].moved(4, workers.rank())};
        mean.load(own);
        EXPECT_EQ(residual_of(mean.save(), d), residual_of(five[2 * r], d));
      }
      means[r].resize(d);
      mean(means[r], 1);
      four[r] = mean.save();
    });
    std::vector<double> left(d);
    for (auto const& s : four)
      for (std::size_t i = 0; i < d; ++i) left[i] += residual_of(s, d)[i];
    for (std::size_t i = 0; i < d; ++i)
      ASSERT_NEAR(4 * to_double(means[0][i]) + left[i], owed[i], 1e-5) << i << ", " << name;
  }
  gq::saved_state shared(3, 1);
  shared.put("residual/0", {});
  shared.put("power_sgd/start", {});
  EXPECT_THROW(static_cast<void>(shared.moved(2, 0)), gq::configuration_error);
  EXPECT_THROW(static_cast<void>(gq::saved_state(3, 1).moved(2, 2)), gq::configuration_error);
}

TEST(ErrorFeedbackRules, names_of_layers_are_not_mistaken) {
  gq::adapt::model_layout model;
  model.add("dense", {4}).add("dense/1", {4}).add("dense/2", {4});
  on_threads(2, [&](auto& workers) {
    std::vector<gq::any_quantizer> const ops(3, gq::error_feedback{two_bits});
    gq::adapt::layered_mean one{workers, model, ops, gq::schedule::sra{}},
        two{workers, model, ops, gq::schedule::sra{}};
    std::vector<float> x = drawn<float>(workers.rank(), 2, model.length(), 0), y = x, z = x;
    one(x, 0);
    std::vector<gq::saved_state> const saved{one.save()};
    two.load(saved);
    one(y, 1);
    two(z, 1);
    EXPECT_TRUE(same_bytes(y, z));
    gq::adapt::model_layout longer;
    longer.add("dense", {5});
    gq::adapt::layered_mean other{workers, longer, {ops[0]}, gq::schedule::sra{}};
    EXPECT_THROW(other.load(saved), gq::frame_error);
    // a call that is refused is not the one to undo
    auto const before = one.save().bytes();
    std::vector<float> wrong(3);
    EXPECT_THROW(one(wrong, 2), gq::error);
    one.undo();
    EXPECT_EQ(one.save().bytes(), before);
    one.forget_residuals();
    EXPECT_EQ(one.save().count("residual/dense"), 0U);
  });
}

TEST(ErrorFeedbackRules, names_ask_for_it) {
  auto const facts = [](std::string const& text) {
    return gq::named::operator_of(gq::named::read_operator(text)).facts();
  };
  EXPECT_EQ(facts("cgx:2,feedback").name, gq::error_feedback{two_bits}.facts().name);
  EXPECT_NE(facts("cgx:4,feedback=0.95").name.find("nearest packed:4 auto, error feedback, decay 0.95"),
            std::string::npos)
      << facts("cgx:4,feedback=0.95").name;
  EXPECT_NE(facts("cgx:4,rounding=stochastic,feedback").name.find("stochastic"), std::string::npos);
  EXPECT_NE(facts("global-uniform:8,feedback").name.find("nearest"), std::string::npos);
  EXPECT_NE(facts("mxfp4,feedback").name.find("error feedback"), std::string::npos);
  EXPECT_NE(facts("cgx:4,scale=min-max,feedback").name.find("error feedback"), std::string::npos);
  EXPECT_EQ(facts("cgx:4,feedback=0").name, facts("cgx:4").name);
  for (char const* text : {"cgx:4,feedback=2", "cgx:4,feedback=-1",
                           "cgx:4,feedback=", "cgx:4,feedback,feedback", "cgx:4,bucket"})
    EXPECT_THROW(gq::named::read_operator(text), gq::configuration_error) << text;
  gq::plan const l2 = gq::plan_for(gq::named::operator_of(gq::named::read_operator("qsgd:4,feedback")),
                                   gq::schedule::allgather{}, 2, 1000);
  EXPECT_NE(l2.refusal.find("the residual may grow without bound"), std::string::npos) << l2.refusal;
}

}  // namespace error_feedback_test
