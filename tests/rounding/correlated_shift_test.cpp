// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Random shifts that divide the range among workers: unbiased, the gain on equal vectors, the bound on any others, and
///        the same words for encoding and decoding in every call.

#include "tests/support/cases.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

namespace gq = globalq;

namespace correlated_shift_test {

using namespace support;
using gq::rounding::correlated_shift;

/// Errors of the mean of n workers in gaps of a fixed grid with step 1, over buckets that all hold the values of `vector`.
struct errors {
  double mean = 0, square = 0;  ///< of one value
};
/// @param vector  vector(worker, value of a bucket)
template <class Rounding, class Wire, class Schedule>
errors measure(int n, Rounding rounding, Wire wire, Schedule const& schedule, int buckets,
               std::function<double(int, std::size_t)> const& vector) {
  constexpr std::size_t bucket = 128;
  std::size_t const d = bucket * static_cast<std::size_t>(buckets);
  errors e;
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    gq::quantizer const op{gq::norm::fixed{7, bucket}, gq::levels::uniform<>{7}, rounding, wire};
    gq::allreduce_mean mean{workers, op, schedule, gq::options{.seed = 21}};
    std::vector<double> x(d), y(d);
    for (std::size_t i = 0; i < d; ++i) x[i] = vector(workers.rank(), i % bucket);
    mean(x, y, 5);
    if (workers.rank() != 0) return;
    for (std::size_t i = 0; i < d; ++i) {
      double exact = 0;
      for (int r = 0; r < n; ++r) exact += vector(r, i % bucket) / n;
      e.mean += (y[i] - exact) / static_cast<double>(d);
      e.square += (y[i] - exact) * (y[i] - exact) / static_cast<double>(d);
    }
  });
  return e;
}

/// A value of a worker that has nothing to do with those of others.
double own_value(int r, std::size_t i) {
  gq::random::stream const words{4, 0, static_cast<std::uint32_t>(r)};
  return words.word(i) * 0x1p-32 * 4 - 2;
}
/// A value that all workers share; over a bucket its fractions are evenly spread, on no grid.
double same_value(int, std::size_t i) {
  double const turn = 0.6180339887498949 * static_cast<double>(i);
  return turn - std::floor(turn) + static_cast<double>(i % 5) - 2;
}

/// The error is a sawtooth of u, and its mean over a part of width w has the variance (1 - w)^2 / 12, on average over fractions. So two
/// workers have the covariance -(1 - 1/n)^2 / 12 (n - 1), and n equal vectors gain n^2 / (2n - 1): 1.33, 2.29, 4.27, 8.26.
TEST(CorrelatedShift, errors_of_equal_vectors_cancel) {
  for (int n : {2, 4, 8, 16}) {
    double const gain = n * n / (2.0 * n - 1);
    errors const alone = measure(n, gq::rounding::random_shift<>{}, gq::wire::int8{},
                                 gq::schedule::allgather{}, 1000, same_value),
                 e = measure(n, correlated_shift(), gq::wire::int8{}, gq::schedule::allgather{}, 1000,
                             same_value);
    EXPECT_NEAR(alone.square * 12 * n, 1, 0.03) << n;
    // 10,000 buckets whose values share a word: squares deviate by 0.9 of their mean, 3 % are 3 standard deviations
    EXPECT_NEAR(alone.square / e.square, gain, 0.05 * gain) << n;
    EXPECT_NEAR(e.mean, 0, 5 * std::sqrt(e.square / 1000)) << n;
  }
}

/// Independent vectors neither gain nor lose, and nothing is biased, over every schedule and for cohorts.
TEST(CorrelatedShift, is_unbiased_with_the_variance_of_independent_shifts_elsewhere) {
  auto const check = [](errors const& e, int n, char const* what) {
    EXPECT_NEAR(e.square * 12 * n, 1, 0.15) << what << n;  // 16 offsets of values, whose covariances vary
    EXPECT_NEAR(e.mean, 0, 5 * std::sqrt(e.square / 1000)) << what << n;
  };
  for (int n : {1, 2, 3, 17}) {
    check(measure(n, correlated_shift(), gq::wire::int8{}, gq::schedule::allgather{}, 1000, own_value), n,
          "allgather ");
    check(measure(n, correlated_shift(), gq::wire::int16{}, gq::schedule::ring{}, 1000, own_value), n,
          "ring ");
  }
  check(measure(4, correlated_shift(), gq::wire::int16{}, gq::schedule::hierarchical<>{2}, 1000, own_value),
        4, "nodes ");
}

/// Two workers half a gap apart: the covariance is 1/16 squared gaps, so the variance is 1.75 times that of independent shifts,
/// below the bound n/(n-1) = 2 that plans have.
TEST(CorrelatedShift, loses_at_most_what_plans_say) {
  auto const apart = [](int r, std::size_t) { return r == 0 ? 0.0 : 0.5; };
  errors const e = measure(2, correlated_shift(), gq::wire::int8{}, gq::schedule::allgather{}, 8000, apart);
  EXPECT_NEAR(e.square * 12 * 2, 1.75, 0.05);
  auto const theta = [](auto rounding, int n) {
    gq::quantizer const op{gq::norm::local<gq::infinity>{128}, gq::levels::uniform<>{}, rounding,
                           gq::wire::int8{}};
    return gq::plan_for(op, gq::schedule::allgather{}, n, 4096).theta;
  };
  for (int n : {2, 4, 16})
    EXPECT_DOUBLE_EQ(theta(correlated_shift(), n), theta(gq::rounding::random_shift<>{}, n) * n / (n - 1))
        << n;
  EXPECT_DOUBLE_EQ(theta(correlated_shift(), 17), theta(gq::rounding::random_shift<>{}, 17) * 8 / 7);
  EXPECT_DOUBLE_EQ(theta(correlated_shift<false>(), 4), theta(gq::rounding::random_shift<false>{}, 4));
}

/// Without shifting back the law is that of rounding::correlated: never worse, whatever the signs.
TEST(CorrelatedShift, without_shifting_back_is_never_worse) {
  for (double second : {0.3, -0.3, 0.7, -0.7})
    for (int n : {2, 5}) {
      auto const vector = [&](int r, std::size_t) { return r == 0 ? 0.3 : second; };
      double const alone = measure(n, gq::rounding::random_shift<false>{}, gq::wire::int8{},
                                   gq::schedule::allgather{}, 1000, vector)
                               .square;
      errors const e =
          measure(n, correlated_shift<false>(), gq::wire::int8{}, gq::schedule::allgather{}, 1000, vector);
      EXPECT_LT(e.square, 1.03 * alone) << second << ", " << n;
      EXPECT_NEAR(e.mean, 0, 5 * std::sqrt(e.square / 1000)) << second << ", " << n;
    }
}

TEST(CorrelatedShift, where_no_workers_divide_the_range_it_is_random_shift) {
  auto const of = [](auto rounding) {
    return gq::quantizer{gq::norm::local<gq::infinity>{64}, gq::levels::uniform<>{}, rounding,
                         gq::wire::int8{}};
  };
  on_threads(3, std::chrono::seconds{60}, [&](auto& workers) {
    std::vector<float> x(512), y(1536), z(1536);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(own_value(workers.rank(), i));
    gq::all_gather{workers, of(correlated_shift()), gq::options{.seed = 3}}(x, y, 1);
    gq::all_gather{workers, of(gq::rounding::random_shift<>{}), gq::options{.seed = 3}}(x, z, 1);
    EXPECT_EQ(y, z);
  });
  gq::vector_codec codec{of(correlated_shift())}, alone{of(gq::rounding::random_shift<>{})};
  std::vector<float> x(300), y(300), z(300);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(own_value(0, i));
  std::vector<std::byte> frame(codec.frame_bytes(300));
  codec.encode(x, {.seed = 3}, frame);
  codec.decode(frame, {.seed = 3}, y);
  alone.encode(x, {.seed = 3}, frame);
  alone.decode(frame, {.seed = 3}, z);
  EXPECT_EQ(y, z);
  codec.encode(x, {.seed = 3, .workers = 4}, frame);
  EXPECT_THROW(codec.decode(frame, {.seed = 3, .workers = 5}, y), gq::frame_error);
}

}  // namespace correlated_shift_test
