// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A bound on the error of the mean holds for every value, on every schedule, and the step is nearly the largest for
///        which it does. What cannot be bounded is refused with a sentence, on all workers.

#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"

#include <globalq/globalq.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/schedule/hierarchical.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace gq = globalq;

namespace bounded_test {

using gq::dtype;
using testing::HasSubstr;

constexpr double range = 48;
constexpr std::size_t lengths[] = {0, 1, 2, 3, 127, 128, 129, 1000, 4097};

template <class T>
T rounded_to(double v) {
  if constexpr (std::is_same_v<T, double>)
    return v;
  else
    return static_cast<T>(static_cast<float>(v));
}
template <class T>
long double exact(T v) {
  if constexpr (std::is_same_v<T, double>)
    return v;
  else
    return static_cast<long double>(static_cast<float>(v));
}

/// Values of a worker, of which most are at the ends of what rounding has to bear: half steps that all workers have, numbers
/// next to them, the ends of the range, subnormal numbers and -0; the others are drawn.
template <class T>
std::vector<T> hard_values(int rank, std::size_t d, double step) {
  std::mt19937_64 draw(static_cast<std::uint64_t>(rank) + 1), common(d);
  auto const uniform = [](std::mt19937_64& from) { return static_cast<double>(from() >> 11) * 0x1p-53; };
  using word = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  std::vector<T> x(d);
  for (std::size_t i = 0; i < d; ++i) {
    double const half = (std::floor(uniform(common) * (range / step - 1)) + 0.5) * step;
    double const side = common() % 2 == 0 ? 1 : -1, own = (2 * uniform(draw) - 1) * range;
    switch (i % 8) {
      case 0:
        x[i] = rounded_to<T>(side * half);
        break;
      case 1:
        x[i] = rounded_to<T>(side * half * (1 - 0x1p-22));
        break;
      case 2:
        x[i] = rounded_to<T>(draw() % 4 == 0 ? -range : range);
        break;
      case 3:
        x[i] = std::bit_cast<T>(static_cast<word>(1));  // the smallest number above 0
        break;
      case 4:
        x[i] = rounded_to<T>(-0.0);
        break;
      case 5:
        x[i] = rounded_to<T>(side * range);
        break;
      default:
        x[i] = rounded_to<T>(own);
    }
  }
  return x;
}

/// An operator under a bound, and whether some mean nearly reaches it where values are rounded once.
struct bounded_operator {
  gq::any_quantizer op;
  double error;
  bool reached = true;
};

template <class T>
std::vector<bounded_operator> bounded_operators() {
  using namespace gq::operators;
  if constexpr (sizeof(T) == 2) {  // half a unit in the last place of 48 is 1/64 and 1/8
    dtype const type = gq::dtype_of<T>::value;
    return {{bounded(0.25, range, gq::wire::int16{}, type), 0.25, false},
            {bounded(4.0, range, gq::wire::packed<8>{}, type), 4.0, false},
            {bounded(0.5, range, gq::wire::huffman<std::int16_t>{}, type), 0.5, false}};
  }
  gq::quantizer stochastic{gq::norm::fixed{range, 0, {0.125}}, gq::levels::uniform<>{},
                           gq::rounding::stochastic{}, gq::wire::int16{}};
  gq::quantizer shifted{gq::norm::fixed{range, 64, {0.125}}, gq::levels::uniform<>{},
                        gq::rounding::random_shift<>{}, gq::wire::int16{}};
  gq::quantizer summed{gq::norm::fixed{range, 0, {4}}, gq::levels::uniform<>{}, gq::rounding::nearest{},
                       gq::wire::packed<8>{}, gq::reduce::sum{}};
  return {{bounded(0.125, range), 0.125},
          {bounded<32>(1e-3, range), 1e-3, false},  // float32 takes 2 to 6 % of it
          {bounded<32>(range * 0x1.8p-20, range), range * 0x1.8p-20,
           false},                             // float32 itself takes up to half of it
          {bounded<8>(4, range), 4.0, false},  // few levels: the last part of a step is lost
          {bounded(4.0, range, gq::wire::packed<8>{}), 4.0, false},
          {bounded(0.25, range, gq::wire::huffman<std::int16_t>{}), 0.25},
          {bounded(2.0, range, gq::wire::huffman<>{}), 2.0, false},
          {bounded(4.0, range, gq::wire::elias<>{}), 4.0, false},
          {bounded(4.0, range, gq::wire::sparse<>{}), 4.0, false},
          {summed, 4.0, false},
          {stochastic, 0.125, false},
          {shifted, 0.125, false}};
}

/// Of each rank, the values of a result that a worker wrote.
template <class T>
using results = std::vector<std::vector<T>>;

template <class T>
void expect_same_bits(results<T> const& all, std::string const& what) {
  for (auto const& each : all)
    ASSERT_TRUE(each.size() == all[0].size() &&
                (each.empty() || std::memcmp(each.data(), all[0].data(), each.size() * sizeof(T)) == 0))
        << what;
}

/// The largest difference from the mean of the vectors, or from the vector of one worker.
template <class T>
double largest_error(results<T> const& x, std::vector<T> const& y) {
  long double most = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    long double sum = 0;
    for (auto const& each : x) sum += exact(each[i]);
    long double const error = std::fabs(exact(y[i]) - sum / static_cast<long double>(x.size()));
    most = error > most || std::isnan(error) ? error : most;
  }
  return static_cast<double>(most);
}

template <class T>
class Bounded : public testing::Test {};
using all_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(Bounded, all_types);

/// @returns the schedules on which it fits
template <class T, class Schedule>
int expect_bounded(bounded_operator const& b, Schedule const& schedule, int n, std::string const& name) {
  gq::plan const plan = gq::plan_for(b.op, schedule, n, 1, gq::dtype_of<T>::value);
  if (!plan.fits) return 0;
  std::string const what = b.op.facts().name + " on " + name + ", workers: " + std::to_string(n);
  double const step = range / plan.levels;
  results<T> x[std::size(lengths)], y[std::size(lengths)];
  for (auto& each : x) each.resize(static_cast<std::size_t>(n));
  for (auto& each : y) each.resize(static_cast<std::size_t>(n));
  support::on_threads(n, [&](auto& workers) {
    gq::allreduce_mean mean{workers, b.op, schedule, {.seed = 5}, Kokkos::Serial{}};
    auto const rank = static_cast<std::size_t>(workers.rank());
    for (std::size_t k = 0; k < std::size(lengths); ++k) {
      x[k][rank] = hard_values<T>(workers.rank(), lengths[k], step);
      y[k][rank].resize(lengths[k]);
      mean(x[k][rank], y[k][rank], k);
    }
  });
  double most = 0;
  for (std::size_t k = 0; k < std::size(lengths); ++k) {
    expect_same_bits(y[k], what);
    double const error = largest_error(x[k], y[k][0]);
    EXPECT_LE(error, b.error) << what << ", values: " << lengths[k];
    most = std::max(most, error);
  }
  if (b.reached && plan.rounding_steps == 1 && name.find("float32_sum") == name.npos) {
    EXPECT_GT(most, 0.96 * b.error) << what;
  }
  return 1;
}

TYPED_TEST(Bounded, no_value_differs_by_more_on_any_schedule) {
  using T = TypeParam;
  for (bounded_operator const& b : bounded_operators<T>()) {
    int fitting = 0;
    for (int n = 1; n <= 9; ++n) {
      for (char const* name : {"ring", "tree", "sra", "allgather", "native", "hierarchical:1",
                               "hierarchical:2", "hierarchical:4"})
        fitting += expect_bounded<T>(b, gq::schedule::any{name}, n, name);
      fitting +=
          expect_bounded<T>(b, gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::ring>{2},
                            n, "float32_sum, ring");
      fitting += expect_bounded<T>(
          b, gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::allgather>{3}, n,
          "float32_sum, allgather");
    }
    EXPECT_GE(fitting, 18) << b.op.facts().name;  // on two schedules or more for all numbers of workers
  }
}

TYPED_TEST(Bounded, shards_and_groups_have_the_bound_too) {
  using T = TypeParam;
  std::size_t const d = 1000;
  for (bounded_operator const& b : bounded_operators<T>())
    for (int n : {1, 2, 5})
      for (int node : {0, 2}) {
        if (b.op.facts().most_bytes != nullptr && node != 0) continue;
        auto const slots = static_cast<std::size_t>(n);
        results<T> x(slots), shards(slots), gathered(slots), first(slots), second(slots);
        std::uint32_t levels = 0;
        support::on_threads(n, [&](auto& workers) {
          auto const rank = static_cast<std::size_t>(workers.rank());
          auto const nodes = node == 0 ? gq::schedule::hierarchical<>{n} : gq::schedule::hierarchical<>{node};
          gq::reduce_scatter_mean scatter{workers, b.op, nodes, {}, Kokkos::Serial{}};
          gq::all_gather gather{workers, b.op, nodes, {}, Kokkos::Serial{}};
          if (workers.rank() == 0) levels = gather.levels();
          x[rank] = hard_values<T>(workers.rank(), d, range / scatter.levels());
          gq::segment const own = scatter.shard(d);
          shards[rank].resize(own.count);
          scatter(x[rank], shards[rank], 1);
          gathered[rank].resize(d);
          gather(std::span(x[rank]).subspan(own.first, own.count), std::span(gathered[rank]), 2);
          gq::allreduce_mean mean{workers, b.op, gq::schedule::allgather{}, {}, Kokkos::Serial{}};
          gq::vector_group group;
          first[rank].resize(d);
          second[rank].resize(d);
          group.add(x[rank], first[rank]);
          group.add(x[rank], second[rank]);
          mean(group, 3);
        });
        EXPECT_GT(levels, 0U);
        expect_same_bits(gathered, "all_gather");
        std::vector<T> joined, given;
        for (auto const& each : shards) joined.insert(joined.end(), each.begin(), each.end());
        ASSERT_EQ(joined.size(), d);
        EXPECT_LE(largest_error(x, joined), b.error)
            << b.op.facts().name << ", reduce_scatter_mean, " << n << ' ' << node;
        for (std::size_t r = 0; r < slots; ++r)
          given.insert(given.end(), x[r].begin() + static_cast<std::ptrdiff_t>(given.size()),
                       x[r].begin() + static_cast<std::ptrdiff_t>(given.size() + shards[r].size()));
        EXPECT_LE(largest_error(results<T>{given}, gathered[0]), b.error)
            << b.op.facts().name << ", all_gather, " << n;
        expect_same_bits(first, "group");
        EXPECT_LE(largest_error(x, first[0]), b.error) << b.op.facts().name << ", group, " << n;
        EXPECT_LE(largest_error(x, second[0]), b.error) << b.op.facts().name << ", group, " << n;
      }
}

TYPED_TEST(Bounded, ranges_may_be_near_the_ends_of_the_type) {
  using T = TypeParam;
  if constexpr (sizeof(T) >= 4)
    for (int exponent : {-90, -60, -20, 20, 60, 122, 123, 800, 980}) {
      if (exponent > 122 && sizeof(T) == 4) continue;
      double const most = std::ldexp(range, exponent), error = most / 400;
      int const n = 4;
      for (gq::any_quantizer const& op :
           {gq::any_quantizer{gq::operators::bounded(error, most)},
            gq::any_quantizer{gq::operators::bounded(error, most, gq::wire::huffman<std::int16_t>{})}}) {
        results<T> x(n), y(n);
        support::on_threads(n, [&](auto& workers) {
          auto const rank = static_cast<std::size_t>(workers.rank());
          gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {}, Kokkos::Serial{}};
          x[rank] = hard_values<T>(workers.rank(), 300, range / mean.levels());
          for (T& v : x[rank]) v = static_cast<T>(std::ldexp(v, exponent));
          y[rank].resize(300);
          mean(x[rank], y[rank], 0);
        });
        expect_same_bits(y, "large and small ranges");
        double const found = largest_error(x, y[0]);
        EXPECT_LE(found, error) << exponent;
        EXPECT_GT(found, 0.96 * error) << exponent;
      }
    }
}

TEST(Bounded, two_roundings_nearly_reach_the_bound) {
  // all but the owner of the segment have a value just below k + 1/2 steps, which becomes k; the owner has what makes the
  // mean of n codes just less than k - 1/2: the error is (n-1)/2n steps, then half a step
  int const n = 9;
  double const error = 0.25;
  gq::any_quantizer const op = gq::operators::bounded(error, range, gq::wire::huffman<std::int16_t>{});
  gq::plan const plan = gq::plan_for(op, gq::schedule::sra{}, n, 100);
  ASSERT_EQ(plan.rounding_steps, 2);
  double const step = range / plan.levels;
  results<float> x(n), y(n);
  support::on_threads(n, [&](auto& workers) {
    gq::allreduce_mean mean{workers, op, gq::schedule::sra{}, {}, Kokkos::Serial{}};
    auto const rank = static_cast<std::size_t>(workers.rank());
    for (int k = 5; k < 105; ++k)  // one segment, so worker 0 owns all
      x[rank].push_back(static_cast<float>((rank == 0 ? k - n / 2.0 - 0.01 : k + 0.5 - 0.001) * step));
    y[rank].resize(x[rank].size());
    mean(x[rank], y[rank], 0);
  });
  double const most = largest_error(x, y[0]);
  EXPECT_LE(most, error);
  EXPECT_GT(most, (1 - 0.5 / n - 0.02) * error);
}

TEST(Bounded, the_step_depends_on_the_roundings_of_the_schedule_only) {
  using namespace gq::operators;
  auto const steps = [](gq::any_quantizer const& op, char const* schedule, int n, double error) {
    gq::plan const plan = gq::plan_for(op, gq::schedule::any{schedule}, n, 1000);
    EXPECT_TRUE(plan.fits) << plan.refusal;
    return range / plan.levels / (2 * error);  // 1 / roundings, but for float32 and whole levels
  };
  for (int n : {1, 2, 3, 9, 30}) {
    for (char const* schedule : {"ring", "tree", "sra", "native"})
      EXPECT_NEAR(steps(bounded(0.125, range), schedule, n, 0.125), 1, 0.006) << n << ' ' << schedule;
    gq::any_quantizer const one = bounded(0.5, range, gq::wire::huffman<std::int16_t>{});
    EXPECT_NEAR(steps(one, "allgather", n, 0.5), 1, 0.03) << n;
    EXPECT_NEAR(steps(one, "sra", n, 0.5), n == 1 ? 1 : 0.5, 0.03) << n;
  }
  gq::any_quantizer const packed = bounded(4.0, range, gq::wire::packed<8>{});
  EXPECT_NEAR(steps(packed, "ring", 9, 4.0), 1.0 / 9, 0.02);
  EXPECT_NEAR(steps(packed, "tree", 8, 4.0), 1.0 / 4, 0.02);
}

TEST(Bounded, what_has_no_bound_is_refused_with_a_sentence) {
  using namespace gq::operators;
  auto const refusal = [](gq::any_quantizer const& op, char const* schedule = "ring",
                          int n = 4) -> std::string {
    return gq::plan_for(op, gq::schedule::any{schedule}, n, 100).refusal;
  };
  EXPECT_EQ(refusal(bounded(0.125, range)), "");
  EXPECT_THAT(refusal(bounded<8>(0.125, range)),
              HasSubstr("the largest error 0.125 of norm::fixed needs 193 levels for values up to 48, and "
                        "wire int8 has 31; use "
                        "an error of at least 0.774"));
  for (int n : {2, 4, 9, 100}) {
    for (char const* schedule : {"ring", "sra", "allgather"})
      for (gq::any_quantizer const& op : {gq::any_quantizer{bounded<8>(0.01, range)},
                                          gq::any_quantizer{bounded(0.01, range, gq::wire::packed<4>{})}}) {
        std::string const why = refusal(op, schedule, n);
        std::size_t const at = why.find("at least ");
        ASSERT_NE(at, why.npos) << why;
        double const error = std::stod(why.substr(at + 9));
        bool const packed = op.facts().wire_bits == 4;
        auto const fits = [&](double largest) {
          return refusal(packed ? gq::any_quantizer{bounded(largest, range, gq::wire::packed<4>{})}
                                : gq::any_quantizer{bounded<8>(largest, range)},
                         schedule, n)
              .empty();
        };
        EXPECT_TRUE(fits(error) && !fits(error * 0.9999)) << why;
      }
  }
  EXPECT_THAT(refusal(bounded<32>(1e-6, range)),
              HasSubstr("arithmetic in float32 may change a mean of values up to 48 by 3.43323e-05, and the "
                        "largest error of "
                        "norm::fixed is 1e-06; use a larger error or a smaller scale"));
  EXPECT_THAT(
      refusal(bounded(0.125, range, gq::wire::int16{}, dtype::bfloat16)),
      HasSubstr(
          "arithmetic in float32 and rounding to bfloat16 may change a mean of values up to 48 by 0.125034"));
  EXPECT_EQ(refusal(bounded(0.25, range, gq::wire::int16{}, dtype::bfloat16)), "");
  for (double wrong : {-1.0, 1e-31, 1e301, HUGE_VAL, std::nan("")})
    EXPECT_THAT(refusal(bounded(wrong, range)), HasSubstr("use 1e-30 to 1e300")) << wrong;
  for (double wrong : {-1.0, 0.0, 1e301, std::nan("")})
    EXPECT_THAT(refusal(bounded(0.1, wrong)), HasSubstr("norm::fixed has no valid scale")) << wrong;
  auto numbered = bounded(0.125, range);
  numbered.levels = gq::levels::uniform<>{1000};
  EXPECT_THAT(refusal(numbered), HasSubstr("use levels::uniform<>{} without a number"));
  EXPECT_THAT(refusal(gq::quantizer{gq::norm::fixed{range, 0, {0.125}}, gq::levels::exponential<>{},
                                    gq::rounding::nearest{}, gq::wire::int16{}}),
              HasSubstr("evenly spaced"));
  EXPECT_THAT(refusal(gq::centered{bounded(0.125, range)}), HasSubstr("use the quantizer alone"));
  auto short_buckets = bounded(0.125, range);
  short_buckets.norm.bucket = 64;
  EXPECT_THAT(refusal(gq::float32_tail{short_buckets}), HasSubstr("use the quantizer alone"));
  EXPECT_THAT(refusal(bounded(0.25, range, gq::wire::huffman<std::int16_t>{}), "ring"),
              HasSubstr("differ in length"));
}

TEST(Bounded, values_and_types_without_the_bound_are_refused_on_all_workers) {
  int const n = 3;
  gq::any_quantizer const op = gq::operators::bounded(1e-5, 0.01);
  auto const expect_refused = [&](auto value, char const* why, std::size_t d) {
    using T = decltype(value);
    std::vector<T> y[n];
    auto const texts = support::complaints<gq::configuration_error>(n, [&](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {}, Kokkos::Serial{}};
      std::vector<T> x(d, rounded_to<T>(0.01));
      if (workers.rank() == 1) x[d / 2] = value;
      auto& mine = y[workers.rank()];
      mine.assign(d, rounded_to<T>(7));
      mean(x, mine, 0);
    });
    for (int r = 0; r < n; ++r) {
      EXPECT_THAT(texts[static_cast<std::size_t>(r)], HasSubstr(why));
      for (T each : y[r]) EXPECT_EQ(exact(each), 7);  // untouched
    }
  };
  for (std::size_t d : {1, 2, 3, 1000}) {
    expect_refused(0.0100001, "magnitude 0.0100001 exceeds the scale 0.01 of norm::fixed", d);
    expect_refused(-0.02F, "magnitude 0.02 exceeds the scale 0.01", d);
    expect_refused(gq::float16(0.001F),
                   "rounding the mean to float16 may exceed the largest error of norm::fixed", d);
    expect_refused(gq::bfloat16(0.001F), "pass vectors of float32, or set error.vectors to bfloat16", d);
  }
}

TEST(Bounded, nan_and_infinity_are_reported) {
  int const n = 3;
  gq::any_quantizer const op = gq::operators::bounded(0.125, range);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto const texts = support::complaints<gq::non_finite_error>(n, [&](auto& workers) {
      std::vector<float> x(100, 1), y(100);
      if (workers.rank() == 2) x[50] = bad;
      gq::allreduce_mean{workers, op, gq::schedule::ring{}, {}, Kokkos::Serial{}}(x, y, 0);
      for (float v : y) EXPECT_TRUE(std::isnan(v));
      gq::allreduce_mean{
          workers, op, gq::schedule::ring{}, {.non_finite = gq::non_finite::error}, Kokkos::Serial{}}(x, y,
                                                                                                      0);
    });
    for (auto const& text : texts) EXPECT_THAT(text, HasSubstr("rank 2 contains NaN or infinity"));
  }
}

}  // namespace bounded_test
