// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Norms of one's own: one that says what a norm of the library's says gives its bits in every kind of call; others keep all
/// promises, and what they get wrong is told to all workers.

#include "tests/support/means.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace globalq_test {

namespace gq = globalq;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

namespace {

/// The largest magnitude, as norm::linf and norm::local<infinity> have it.
template <bool Local>
struct largest {
  static constexpr char const* name = Local ? "largest-local" : "largest";
  static constexpr bool is_local = Local, bounds_largest = true;
  struct statistic {
    double top = 0;
  };
  std::uint64_t bucket = 0;
  std::uint64_t parameters() const { return bucket; }

  template <class Value>
  statistic measure(Value const* x, int count) const {
    statistic s;
    for (int i = 0; i < count; ++i) s.top = std::max(s.top, std::fabs(static_cast<double>(x[i])));
    return s;
  }
  statistic merge(statistic a, statistic b) const { return {std::max(a.top, b.top)}; }
  double scale(statistic s) const { return s.top; }
};

/// Says that it bounds the largest magnitude, and above a limit does not; or makes no number.
template <bool Local>
struct wrong : largest<Local> {
  static constexpr char const* name = "wrong";
  using statistic = typename largest<Local>::statistic;
  double factor = 0.5, limit = 0;
  std::uint64_t parameters() const { return gq::bits_of(factor); }
  double scale(statistic s) const { return s.top * (s.top > limit ? factor : 1.0); }
};

/// A statistic whose parts must not be lost, added twice or taken for a sum of none: how many, the mean, and the sum of squares around it.
struct deviations {
  static constexpr char const* name = "deviations";
  static constexpr bool is_local = false, bounds_largest = false;
  struct statistic {
    double count = 0, mean = 0, around = 0;
    std::uint64_t check = 0x5eed;  // of none, too
  };
  double times = 2;
  std::uint64_t bucket = 0;
  std::uint64_t parameters() const { return gq::bits_of(times); }

  template <class Value>
  statistic measure(Value const* x, int count) const {
    statistic s;
    for (int i = 0; i < count; ++i) s = merge(s, {1, static_cast<double>(x[i]), 0});
    return s;
  }
  statistic merge(statistic a, statistic b) const {
    EXPECT_EQ(a.check, 0x5eedU);
    EXPECT_EQ(b.check, 0x5eedU);
    if (a.count == 0 || b.count == 0) return a.count == 0 ? b : a;
    double const n = a.count + b.count, apart = b.mean - a.mean;
    return {n, a.mean + apart * b.count / n, a.around + b.around + apart * apart * a.count * b.count / n};
  }
  double scale(statistic s) const { return times * std::sqrt(s.around / s.count); }
};

template <class Use>
void over_all_schedules(Use const& use) {
  support::over_schedules(use);
  use(gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::ring>{2}, "float32 in nodes");
}

template <class Norm>
constexpr auto with(Norm norm) {
  return gq::quantizer{norm, gq::levels::uniform<7>{}, gq::rounding::stochastic{}, gq::wire::int8{}};
}

TEST(OwnNorm, the_largest_magnitude_gives_the_bits_of_linf) {
  over_all_schedules([](auto const& over, std::string const& name) {
    for (int workers : {1, 2, 3, 5})
      for (std::uint64_t bucket : {0, 1, 100, 256, 1500})
        support::expect_same(support::means(with(largest<false>{bucket}), over, workers, 2),
                             support::means(with(gq::norm::linf{bucket}), over, workers, 2),
                             name + " " + std::to_string(workers) + " bucket " + std::to_string(bucket));
  });
}

TEST(OwnNorm, a_local_one_gives_the_bits_of_local) {
  over_all_schedules([](auto const& over, std::string const& name) {
    for (int workers : {1, 2, 5})
      for (std::uint64_t bucket : {0, 32, 100, 1024})
        support::expect_same(support::means(with(largest<true>{bucket}), over, workers, 2),
                             support::means(with(gq::norm::local<gq::infinity>{bucket}), over, workers, 2),
                             name + " " + std::to_string(workers) + " bucket " + std::to_string(bucket));
  });
}

TEST(OwnNorm, is_rounded_up_as_others_are) {
  using own = gq::norm::power_of_two<largest<false>>;
  using theirs = gq::norm::power_of_two<gq::norm::linf>;
  support::expect_same(support::means(with(own{{.bucket = 64}}), gq::schedule::ring{}, 3, 2),
                       support::means(with(theirs{{.bucket = 64}}), gq::schedule::ring{}, 3, 2), "ring");
}

/// What all workers get of two calls of one kind, of values from 2^-20 to 2^20 times @p unit, some buckets of zeros.
template <class Value, class Call>
std::vector<std::vector<Value>> results(int workers, std::size_t length, double unit, Call const& call) {
  std::vector<std::vector<Value>> all(static_cast<std::size_t>(workers));
  support::on_threads(workers, [&](auto& t) {
    std::vector<float> const x = support::values(length, t.rank());
    std::vector<Value> y(length);
    for (std::size_t i = 0; i < length; ++i) {
      double const size = std::ldexp(unit, static_cast<int>(i / 64 % 8) * (unit == 1 ? 1 : 5) - 20);
      y[i] = i / 64 % 5 == 3 ? Value(0) : static_cast<Value>(static_cast<double>(x[i]) * size);
    }
    for (std::uint64_t step = 0; step < 2; ++step) call(t, y, step);
    all[static_cast<std::size_t>(t.rank())] = y;
  });
  return all;
}

template <class Value>
void expect_bits(std::vector<std::vector<Value>> const& a, std::vector<std::vector<Value>> const& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t rank = 0; rank < a.size(); ++rank)
    support::expect_same(a[rank], b[rank], "rank " + std::to_string(rank));
}

template <class Value, class Own, class Theirs>
void expect_same_calls(Own const& own, Theirs const& theirs, double unit) {
  auto const mean_by = [&](auto const& op, auto const& over) {
    return results<Value>(3, 1000, unit, [&](auto& t, auto& y, std::uint64_t step) {
      gq::allreduce_mean mean{t, op, over, {.seed = 3}};
      mean(y, step);
    });
  };
  expect_bits(mean_by(own, gq::schedule::ring{}), mean_by(theirs, gq::schedule::ring{}));
  expect_bits(mean_by(own, gq::schedule::allgather{}), mean_by(theirs, gq::schedule::allgather{}));
}

TEST(OwnNorm, gives_the_same_bits_of_every_type_and_magnitude) {
  for (double unit : {1.0, std::ldexp(1.0, -120), std::ldexp(1.0, 90)}) {
    expect_same_calls<float>(with(largest<false>{64}), with(gq::norm::linf{64}), unit);
    expect_same_calls<float>(with(largest<true>{64}), with(gq::norm::local<gq::infinity>{64}), unit);
  }
  for (double unit : {1.0, std::ldexp(1.0, -1000), std::ldexp(1.0, -500), std::ldexp(1.0, 960), 1e280}) {
    expect_same_calls<double>(with(largest<false>{64}), with(gq::norm::linf{64}), unit);
    expect_same_calls<double>(with(largest<true>{64}), with(gq::norm::local<gq::infinity>{64}), unit);
  }
  expect_same_calls<Kokkos::Experimental::half_t>(with(largest<false>{64}), with(gq::norm::linf{64}), 1);
  expect_same_calls<Kokkos::Experimental::bhalf_t>(with(largest<true>{64}),
                                                   with(gq::norm::local<gq::infinity>{64}), 1);
}

/// Shards, groups, vectors around midpoints and with a tail in float32.
TEST(OwnNorm, gives_the_same_bits_in_every_kind_of_call) {
  auto const own = with(largest<false>{100});
  auto const theirs = with(gq::norm::linf{100});
  auto const scattered = [](auto const& op) {
    return results<float>(4, 1000, 1, [&](auto& t, auto& y, std::uint64_t step) {
      gq::reduce_scatter_mean scatter{t, op, {.seed = 3}};
      gq::all_gather gather{t, op, {.seed = 4}};
      scatter(y, step);
      gather(y, step);
    });
  };
  expect_bits(scattered(own), scattered(theirs));
  auto const grouped = [](auto const& op) {
    return results<float>(3, 1000, 1, [&](auto& t, auto& y, std::uint64_t step) {
      gq::allreduce_mean mean{t, op, gq::schedule::tree{}, {.seed = 3}};
      std::span<float> const all(y);
      mean(gq::vector_group{}.add(all.first(333)).add(all.subspan(333, 0)).add(all.subspan(333)), 2 * step);
    });
  };
  expect_bits(grouped(own), grouped(theirs));
  auto const wrapped = [](auto const& op) {
    return results<float>(3, 1050, 1, [&](auto& t, auto& y, std::uint64_t step) {
      gq::allreduce_mean around{t, gq::centered{op}, gq::schedule::sra{}, {.seed = 3}};
      gq::allreduce_mean tail{t, gq::float32_tail{op}, gq::schedule::ring{}, {.seed = 4}};
      around(y, step);
      tail(y, step);
    });
  };
  expect_bits(wrapped(own), wrapped(theirs));
}

TEST(OwnNorm, frames_of_one_vector_are_those_of_the_library_s_norm) {
  std::vector<float> const x = support::values(5000, 0);
  for (std::uint64_t bucket : {0, 32, 5000}) {
    gq::vector_codec own{with(largest<true>{bucket})}, theirs{with(gq::norm::local<gq::infinity>{bucket})};
    std::vector<std::byte> a(own.frame_bytes(x.size())), b(theirs.frame_bytes(x.size()));
    EXPECT_EQ(own.encode(x, {.seed = 1, .step = 2}, a), theirs.encode(x, {.seed = 1, .step = 2}, b));
    EXPECT_EQ(a, b);
  }
  std::vector<float> bad(100, 3.0F);
  gq::vector_codec codec{with(wrong<true>{{.bucket = 64}, 0.5, 0})};
  std::vector<std::byte> frame(codec.frame_bytes(bad.size()));
  EXPECT_THAT(support::refusal([&] { codec.encode(bad, {}, frame); }),
              HasSubstr("the norm of local:wrong bucket 64"));
  bad[70] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(support::refusal<gq::non_finite_error>([&] { codec.encode(bad, {}, frame); }),
              HasSubstr("values 64 and following contain NaN or infinity"));
}

TEST(OwnNorm, a_statistic_reaches_its_scale_whole) {
  over_all_schedules([](auto const& over, std::string const& name) {
    for (int workers = 1; workers <= 9; ++workers)
      support::means(with(deviations{.times = 2, .bucket = 300}), over, workers, 2);
    // an encoding of a value that lies p of a gap above a level may show no other level in 600 steps, where p < 20 / 600
    auto const op = gq::quantizer{deviations{.bucket = 300}, gq::levels::uniform<127>{},
                                  gq::rounding::stochastic{}, gq::wire::int16{}};
    for (int workers : {2, 5})
      support::expect_unbiased(support::means(op, over, workers, 600), workers, name, 20.0 / 600 * 5 / 127);
  });
}

TEST(OwnNorm, the_same_bits_for_every_number_of_threads) {
  std::vector<float> const x = support::values(100'003, 0);
  auto const frame_of = [&](auto const& space) {
    gq::vector_codec codec{with(deviations{.times = 9}), space};
    std::vector<std::byte> frame(codec.frame_bytes(x.size()));
    codec.encode(x, {.seed = 1}, frame);
    return frame;
  };
  EXPECT_EQ(frame_of(Kokkos::Serial{}), frame_of(Kokkos::DefaultHostExecutionSpace{}));
}

/// The scale is that of the whole: a result is a multiple of scale / levels.
TEST(OwnNorm, its_scale_is_what_values_are_divided_by) {
  constexpr int workers = 3;
  support::on_threads(workers, [&](auto& t) {
    std::vector<double> y(9000);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::sin(static_cast<double>(i) + 5 * t.rank()) + 0.25;
    double sum = 0, squares = 0;
    for (int rank = 0; rank < workers; ++rank)
      for (std::size_t i = 0; i < y.size(); ++i) {
        double const v = std::sin(static_cast<double>(i) + 5 * rank) + 0.25;
        sum += v;
        squares += v * v;
      }
    double const n = workers * 9000.0, scale = 7 * std::sqrt(squares / n - sum / n * sum / n);
    gq::allreduce_mean mean{t, with(deviations{.times = 7}), gq::schedule::ring{}, {.seed = 3}};
    mean(y, 0);
    for (double v : y) EXPECT_NEAR(v * 7 * workers / scale, std::round(v * 7 * workers / scale), 1e-6);
  });
}

TEST(OwnNorm, plans_count_what_is_sent_for_it) {
  for (std::uint64_t bucket : {0, 100})
    for (int workers : {1, 2, 5}) {
      auto const op = with(deviations{.bucket = bucket});
      gq::plan const p = gq::plan_for(op, gq::schedule::ring{}, workers, 1500);
      EXPECT_TRUE(std::isnan(p.theta));
      std::vector<std::uint64_t> sent(static_cast<std::size_t>(workers));
      support::on_threads(workers, [&](auto& t) {
        gq::telemetry seen;
        gq::allreduce_mean mean{t, op, gq::schedule::ring{}, {.telemetry = &seen}};
        std::vector<float> y = support::values(1500, t.rank());
        mean(y, 0);
        sent[static_cast<std::size_t>(t.rank())] = seen.last().bytes_sent;
      });
      EXPECT_EQ(*std::max_element(sent.begin(), sent.end()), p.bytes_sent) << workers << " " << bucket;
    }
}

TEST(OwnNorm, all_workers_learn_of_a_scale_that_is_none) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (double factor : {0.5, -1.0, inf, std::numeric_limits<double>::quiet_NaN()})
    for (int workers : {1, 3}) {
      std::vector<std::string> const said = support::complaints<gq::error>(workers, [&](auto& t) {
        gq::allreduce_mean mean{t, with(wrong<false>{{.bucket = 100}, factor, 0}), gq::schedule::ring{}, {}};
        std::vector<float> y(1000, 2.0F);
        mean(y, 0);
      });
      EXPECT_THAT(said, Each(AllOf(HasSubstr("allreduce_mean: the norm of wrong bucket 100"),
                                   HasSubstr("for bucket 0, whose largest magnitude is 2.0"))));
      EXPECT_THAT(said, Each(testing::Truly([&](std::string const& text) {
                    return (text.find("bounds_largest") != std::string::npos) == (factor < 1);
                  })));
    }
}

/// A worker's own scale, which nobody else sees.
TEST(OwnNorm, all_workers_learn_of_a_local_scale_that_is_none) {
  for (auto const& over : {gq::schedule::any{"ring"}, gq::schedule::any{"allgather"}}) {
    EXPECT_THAT(
        support::complaints<gq::error>(3,
                                       [&](auto& t) {
                                         gq::allreduce_mean mean{t, with(wrong<true>{{}, 0.5, 8}), over, {}};
                                         std::vector<float> y(1000, t.rank() == 1 ? 16.0F : 2.0F);
                                         mean(y, 0);
                                       }),
        Each(HasSubstr("allreduce_mean: rank 1 of 3: the norm of local:wrong")));
  }
}

/// Sums are made where nobody waits for a word of them: the mean is right, and the worker that made the sum is told.
TEST(OwnNorm, of_a_sum_without_a_scale_its_worker_learns) {
  std::vector<std::vector<float>> got(3);
  auto const said = support::complaints<gq::error>(3, [&](auto& t) {
    gq::allreduce_mean mean{t, with(wrong<true>{{}, 0.5, 8}), gq::schedule::ring{}, {}};
    std::vector<float>& y = got[static_cast<std::size_t>(t.rank())];
    y.assign(999, t.rank() == 2 ? 2.0F : 7.0F);
    mean(y, 0);
  });
  for (auto const& y : got) EXPECT_EQ(y, got[0]);
  for (float v : got[0]) EXPECT_NEAR(v, 16.0F / 3, 1.0F);
  EXPECT_THAT(said, testing::Contains(HasSubstr("the user norm returned no scale, or one below")));
}

TEST(OwnNorm, workers_compare_its_name_and_parameters) {
  EXPECT_THAT(
      support::complaints<gq::error>(
          2,
          [](auto& t) {
            std::vector<float> y(100, 1.0F);
            gq::allreduce_mean mean{t, with(deviations{.times = 2.0 + t.rank()}), gq::schedule::ring{}, {}};
            mean(y, 0);
          }),
      Each(HasSubstr("differs from rank 0 in the operator")));
}

TEST(OwnNorm, is_refused_on_a_stream) {
  EXPECT_THAT(support::complaints<gq::error>(
                  2,
                  [](auto& t) {
                    gq::transport::staged<std::remove_reference_t<decltype(t)>, Kokkos::Serial> device{
                        t, t.execution()};
                    gq::allreduce_mean mean{device, with(deviations{}), gq::schedule::ring{}, {}};
                  }),
              Each(HasSubstr("is measured on the host only; on a stream use")));
}

}  // namespace

}  // namespace globalq_test
