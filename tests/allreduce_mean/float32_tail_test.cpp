// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Whole buckets by an operator, what they leave over as float32: exact there, and the operator's own bits elsewhere.

#include "tests/support/allocations.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/transport/staged.hpp>

#include <globalq/named/description.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace gq = globalq;
using support::expect_same;
using support::on_threads;
using support::same_bits;
using support::values;
using testing::HasSubstr;

namespace float32_tail_test {

constexpr std::uint64_t bucket = 100;

/// One for each way in which codes are added and sent.
std::vector<gq::named::description> const operators = {
    {"local:2", "uniform:7", "stochastic", "packed:4", "auto", bucket},
    {"linf", "uniform:9", "stochastic", "int8", "auto", bucket},
    {"linf", "exponential:7", "stochastic", "int8", "auto", bucket},
    {"l:2,2", "table:0,0.1,1", "stochastic", "packed:3", "requantize", bucket},
    {"shared-exponent", "e2m1", "stochastic", "packed:4", "auto", bucket},
    {"two-level", "e2m1", "stochastic", "packed:4", "auto", bucket},
    {"local:inf", "uniform:7", "stochastic", "huffman", "auto", bucket},
};
char const* const schedules[] = {"ring", "tree", "sra", "allgather", "hierarchical:2"};

gq::any_quantizer own(gq::named::description const& words) { return gq::named::make(words); }
gq::any_quantizer with_tail(gq::named::description words) {
  words.tail = "float32";
  return gq::named::make(words);
}
bool fits(gq::any_quantizer const& op, char const* schedule, int n) {
  return gq::plan_for(op, gq::schedule::any{schedule}, n, 1000).fits;
}

template <class Value>
std::vector<Value> tail_of(std::vector<Value> const& x) {
  return {x.end() - static_cast<std::ptrdiff_t>(x.size() % bucket), x.end()};
}
template <class Value>
std::vector<Value> whole_of(std::vector<Value> const& x) {
  return {x.begin(), x.end() - static_cast<std::ptrdiff_t>(x.size() % bucket)};
}

/// The result of one call on every worker.
template <class Value>
std::vector<std::vector<Value>> results(int n, gq::any_quantizer const& op, char const* schedule,
                                        std::vector<std::vector<Value>> const& x,
                                        gq::options const& chosen = {}) {
  auto y = x;
  on_threads(n, [&](auto& workers) {
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, chosen, Kokkos::Serial()};
    mean(y[static_cast<std::size_t>(workers.rank())], 3);
  });
  return y;
}

template <class Value>
std::vector<std::vector<Value>> inputs(int n, std::size_t length) {
  std::vector<std::vector<Value>> x;
  for (int r = 0; r < n; ++r) x.push_back(values<Value>(length, r));
  return x;
}

/// Sums of these values are exact in float32, so the order of additions cannot hide anything.
template <class Value>
void expect_exact_tails(std::initializer_list<std::size_t> lengths, std::initializer_list<int> workers) {
  for (gq::named::description const& words : operators)
    for (char const* schedule : schedules)
      for (int n : workers) {
        if (!fits(own(words), schedule, n)) continue;
        for (std::size_t length : lengths) {
          auto const x = inputs<Value>(n, length);
          std::vector<std::vector<Value>> rests;
          for (auto const& v : x) rests.push_back(tail_of(v));
          gq::options const chunked{.seed = 6, .chunk_values = length % 2 == 0 ? 512U : 0U};
          auto const tailed = results(n, with_tail(words), schedule, x, chunked);
          auto const plain = results(n, gq::uncompressed{}, schedule, rests);
          auto const quantized = results(n, own(words), schedule, x, chunked);
          std::string const what = words.levels + " " + words.wire + " on " + schedule +
                                   ", n = " + std::to_string(n) + ", " + std::to_string(length) + " values";
          for (auto const& y : tailed) expect_same(y, tailed[0], what);
          expect_same(tail_of(tailed[0]), plain[0], what + ": the tail");
          expect_same(whole_of(tailed[0]), whole_of(quantized[0]), what + ": whole buckets");
          if (testing::Test::HasFailure()) return;
        }
      }
}

TEST(Float32Tail, is_the_plain_mean_beside_the_operators_own_bits_on_every_schedule) {
  expect_exact_tails<float>({0, 1, 99, 100, 101, 1037, 6430}, {1, 2, 3, 4, 5});
}

TEST(Float32Tail, is_that_of_every_type) {
  expect_exact_tails<double>({57, 2599}, {3});
  expect_exact_tails<gq::float16>({57, 2599}, {3});
  expect_exact_tails<gq::bfloat16>({57, 2599}, {3});
}

/// Values that lose digits when they are added, or that float32 does not hold as they are: over allgather both add in
/// rank order, and scale by the largest value of the whole vector.
TEST(Float32Tail, has_the_bits_of_uncompressed_near_the_ends_of_every_range) {
  auto const compare = []<class Value>(Value largest, Value smallest) {
    for (Value times : {largest, Value(1.0F), smallest}) {
      auto x = inputs<Value>(3, 470);
      for (auto& v : x)
        for (std::size_t i = 0; i < v.size(); ++i)
          v[i] = i % 7 == 0 ? Value(v[i] / Value(3.0F)) : Value(v[i] * times);
      auto const tailed = results(3, with_tail(operators[0]), "allgather", x),
                 plain = results(3, gq::any_quantizer{gq::uncompressed{}}, "allgather", x);
      for (int r = 0; r < 3; ++r)
        expect_same(tail_of(tailed[static_cast<std::size_t>(r)]), tail_of(plain[0]),
                    gq::name_of(gq::dtype_of<Value>::value));
    }
  };
  compare(0x1p125F, 0x1p-120F);  // 2^125 times 4: near float32's largest
  compare(0x1p1020, 0x1p-1000);
}

TEST(Float32Tail, of_a_vector_shorter_than_a_bucket_is_all_of_it_and_nothing_is_rounded) {
  gq::plan const p = gq::plan_for(with_tail(operators[0]), gq::schedule::allgather{}, 3, 99);
  EXPECT_EQ(p.theta, 0);
  EXPECT_EQ(p.rounding_steps, 0);
  EXPECT_EQ(p.bits_per_value, 8.0 * (16 + 4 * 99) / 99);
  gq::plan const whole = gq::plan_for(own(operators[0]), gq::schedule::allgather{}, 3, 1000);
  EXPECT_EQ(gq::plan_for(with_tail(operators[0]), gq::schedule::allgather{}, 3, 1037).theta, whole.theta);
}

TEST(Float32Tail, costs_the_bytes_that_the_plan_says) {
  for (gq::named::description const& words : operators)
    for (char const* schedule : schedules)
      for (int n : {2, 3, 5}) {
        if (!fits(own(words), schedule, n)) continue;
        for (std::size_t length : {1U, 100U, 5200U, 3037U}) {
          std::vector<std::uint64_t> sent(static_cast<std::size_t>(n)), without = sent;
          gq::plan plan;
          on_threads(n, [&](auto& workers) {
            auto const count = [&](gq::any_quantizer const& op, std::vector<std::uint64_t>& bytes) {
              gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.chunk_values = 700}};
              std::vector<float> x = values(length, workers.rank());
              std::uint64_t const before = workers.bytes_sent();
              mean(x, 0);
              bytes[static_cast<std::size_t>(workers.rank())] = workers.bytes_sent() - before;
              return mean.plan(length);
            };
            gq::plan const mine = count(with_tail(words), sent);
            count(own(words), without);
            if (workers.rank() == 0) plan = mine;
          });
          std::uint64_t const most = *std::max_element(sent.begin(), sent.end());
          if (plan.bytes_are_most)
            EXPECT_LE(most, plan.bytes_sent) << words.wire << schedule;
          else
            EXPECT_EQ(most, plan.bytes_sent) << words.wire << schedule;
          if (length % bucket == 0) {
            EXPECT_EQ(sent, without) << "without a tail nothing is added";
          }
        }
      }
  // 1,000 codes of 4 bits, 10 scales of 4 bytes padded to 48, and 37 floats with a header
  EXPECT_EQ(gq::plan_for(with_tail(operators[0]), gq::schedule::allgather{}, 2, 1037).bytes_sent,
            64U + (16 + 48 + 500 + 12) + (16 + 4 * 37));
}

TEST(Float32Tail, goes_through_shards_and_groups) {
  for (gq::named::description const& words : {operators[0], operators[1], operators[5]})
    for (int n : {1, 3, 4}) {
      std::size_t const length = 5237;
      auto const x = inputs<float>(n, length);
      auto const expected = results(n, with_tail(words), "allgather", x, {.seed = 6});
      std::vector<float> scattered(length), gathered(length);
      on_threads(n, [&](auto& workers) {
        auto const rank = static_cast<std::size_t>(workers.rank());
        gq::reduce_scatter_mean scatter{workers, with_tail(words), {.seed = 6}};
        gq::segment const mine = scatter.shard(length);
        std::vector<float> part(mine.count);
        scatter(x[rank], part, 3);
        std::copy(part.begin(), part.end(), scattered.begin() + static_cast<std::ptrdiff_t>(mine.first));

        gq::all_gather gather{workers, with_tail(words), {.seed = 6}};
        std::vector<float> all(length);
        gather(std::vector<float>(x[0].begin() + static_cast<std::ptrdiff_t>(mine.first),
                                  x[0].begin() + static_cast<std::ptrdiff_t>(mine.first + mine.count)),
               all, 4);
        if (rank == 0) gathered = all;

        gq::allreduce_mean mean{workers, with_tail(words), gq::schedule::allgather{}, {.seed = 6}};
        std::vector<std::vector<float>> one, several;
        for (std::size_t d : {550, 40, 300, 0, 101})
          one.push_back(values(d, workers.rank() + static_cast<int>(d)));
        several = one;
        gq::vector_group group;
        for (auto& v : several) group.add(v);
        mean(group, 10);
        for (std::size_t k = 0; k < one.size(); ++k) {
          mean(one[k], 10 + k);
          expect_same(several[k], one[k], words.wire + ", vector " + std::to_string(k));
        }
      });
      expect_same(scattered, expected[0], words.wire);
      expect_same(tail_of(gathered), tail_of(x[0]), words.wire);
    }
}

TEST(Float32Tail, is_not_centered_and_goes_between_nodes) {
  constexpr std::size_t length = 537;
  auto x = inputs<float>(4, length);
  for (auto& v : x)
    for (float& each : v) each += 3;
  std::vector<std::vector<float>> rests;
  for (auto const& v : x) rests.push_back(tail_of(v));
  auto const exact = results(4, gq::any_quantizer{gq::uncompressed{}}, "ring", rests)[0];
  for (bool nodes : {false, true}) {
    auto y = x;
    on_threads(4, [&](auto& workers) {
      auto& mine = y[static_cast<std::size_t>(workers.rank())];
      gq::any_quantizer const op = with_tail(operators[0]);
      if (nodes)
        gq::allreduce_mean{workers, op, gq::schedule::hierarchical<gq::schedule::float32_sum>{2}}(mine, 0);
      else
        gq::allreduce_mean{workers, gq::any_quantizer{gq::centered{op}}, gq::schedule::any{"sra"}}(mine, 0);
    });
    for (auto const& each : y) expect_same(each, y[0], "workers");
    expect_same(tail_of(y[0]), exact, nodes ? "nodes" : "centered");
  }
}

TEST(Float32Tail, with_nan_or_infinity_is_known_to_all) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto x = inputs<float>(3, 137);
    x[1][136] = bad;
    for (auto const& y : results(3, with_tail(operators[0]), "ring", x))
      for (float v : y) ASSERT_TRUE(std::isnan(v));
    on_threads(3, [&](auto& workers) {
      gq::allreduce_mean mean{
          workers, with_tail(operators[0]), gq::schedule::ring{}, {.non_finite = gq::non_finite::error}};
      std::vector<float> mine = x[static_cast<std::size_t>(workers.rank())];
      EXPECT_THROW(mean(mine, 0), gq::non_finite_error);
      EXPECT_TRUE(same_bits(mine, x[static_cast<std::size_t>(workers.rank())]));
    });
  }
}

TEST(Float32Tail, must_be_the_same_on_all_workers) {
  on_threads(3, [&](auto& workers) {
    gq::allreduce_mean mean{workers, workers.rank() == 1 ? own(operators[0]) : with_tail(operators[0]),
                            gq::schedule::ring{}};
    std::vector<float> x = values(1000, workers.rank());  // also where nothing is left over
    try {
      mean(x, 0);
      ADD_FAILURE();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 1 differs from rank 0 in the operator"));
    }
  });
}

TEST(Float32Tail, takes_levels_that_change_and_allocates_nothing) {
  std::size_t before = 0, after = 1;
  on_threads(2, [&](auto& workers) {
    auto const op = [](gq::levels::table const& levels) {
      return gq::float32_tail{
          gq::quantizer{gq::norm::linf{bucket}, levels, gq::rounding::stochastic{}, gq::wire::packed<3>{}}};
    };
    gq::levels::table const early{0, 0.25, 0.5, 1}, late{0, 0.0625, 0.375, 1};
    gq::allreduce_mean changed{workers, op(early), gq::schedule::ring{}, {.seed = 5}, Kokkos::Serial()};
    gq::allreduce_mean fresh{workers, op(late), gq::schedule::ring{}, {.seed = 5}, Kokkos::Serial()};
    std::vector<float> x = values(1037, workers.rank()), y = x;
    std::vector<float> const first = x;
    changed(x, 0);
    changed(x, 1);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) before = support::allocations;
    gq::transport::barrier(workers);
    std::copy(first.begin(), first.end(), x.begin());
    changed.set_levels(late);
    changed(x, 2);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) after = support::allocations;
    gq::transport::barrier(workers);
    fresh(y, 2);
    EXPECT_TRUE(same_bits(x, y));
  });
  EXPECT_EQ(before, after);
}

TEST(Float32Tail, is_refused_with_a_remedy_where_it_cannot_go) {
  auto const complaint = [](gq::any_quantizer const& op, char const* schedule) {
    return gq::plan_for(op, gq::schedule::any{schedule}, 3, 1000).refusal;
  };
  EXPECT_THAT(complaint(with_tail(operators[1]), "native"),
              HasSubstr("supports no float32 tail; use schedule ring, tree, sra or allgather"));
  EXPECT_THAT(complaint(gq::float32_tail{gq::any_quantizer{gq::uncompressed{}}}, "ring"),
              HasSubstr("remove float32_tail"));
  auto without_buckets = operators[1];
  without_buckets.bucket = 0;
  EXPECT_THAT(complaint(gq::float32_tail{own(without_buckets)}, "ring"),
              HasSubstr("give the norm a bucket, or"));
  try {
    gq::vector_codec codec{with_tail(operators[0])};
    ADD_FAILURE();
  } catch (gq::configuration_error const& e) {
    EXPECT_THAT(e.what(), HasSubstr("encode whole buckets without float32_tail"));
  }
  on_threads(1, [&](auto& workers) {
    gq::transport::staged on_stream{workers, Kokkos::Serial()};
    auto const op = gq::float32_tail{gq::quantizer{gq::norm::linf{bucket}, gq::levels::uniform{7},
                                                   gq::rounding::stochastic{}, gq::wire::int8{}}};
    try {
      gq::allreduce_mean mean{on_stream, op, gq::schedule::ring{}};
      ADD_FAILURE();
    } catch (gq::configuration_error const& e) {
      EXPECT_THAT(e.what(), HasSubstr("remove float32_tail"));
    }
  });
}

}  // namespace float32_tail_test
