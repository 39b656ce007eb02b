// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Several vectors in one call: the bits of single calls where nothing is added on the way, one message, no leaks.

#include "tests/support/allocations.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace gq = globalq;
using support::on_threads;
using support::same_bits;
using support::values;

namespace group_test {

std::vector<gq::any_quantizer> operators() {
  gq::rounding::stochastic const dice;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{9}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::exponential{7}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 128}, gq::levels::uniform{5}, gq::rounding::random_shift<>{},
                    gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<2>{.bucket = 512}, gq::levels::uniform<7>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::table{0, 0.1, 1}, dice,
                    gq::wire::packed<3>{}},
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::huffman<>{}},
      gq::quantizer{gq::norm::fixed{.scale = 8}, gq::levels::uniform{7}, dice, gq::wire::int8{}},
      gq::uncompressed{},
  };
}

/// Lengths of layers: long, short, none, aligned and not; chunks and segments end inside, between and outside of them.
std::vector<std::size_t> const layers{3000, 1, 256, 0, 77, 513, 1, 1024, 0};

using vectors = std::vector<std::vector<float>>;
vectors input(int rank) {
  vectors x;
  for (std::size_t k = 0; k < layers.size(); ++k)
    x.push_back(values(layers[k], rank * 100 + static_cast<int>(k)));
  return x;
}

template <class Call>
void average_group(Call& mean, vectors& x, std::uint64_t step) {
  gq::vector_group group;
  for (auto& v : x) group.add(v);
  mean(group, step);
}

TEST(Group, has_the_bits_of_single_calls_where_every_worker_decodes_all_frames) {
  for (gq::any_quantizer const& op : operators())
    for (int n : {1, 2, 3, 5, 9})
      for (std::uint64_t chunk : {std::uint64_t{0}, std::uint64_t{256}})
        on_threads(n, [&](auto& workers) {
          gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 6, .chunk_values = chunk}};
          vectors one = input(workers.rank()), all = one;
          for (std::size_t k = 0; k < one.size(); ++k) mean(one[k], 40 + k);
          average_group(mean, all, 40);
          for (std::size_t k = 0; k < one.size(); ++k)
            EXPECT_TRUE(same_bits(one[k], all[k])) << op.facts().name << ", vector " << k << ", n = " << n;
        });
}

TEST(Group, has_the_bits_of_single_calls_where_codes_are_added_as_integers) {
  for (char const* schedule : {"ring", "tree", "sra"})
    for (int n : {2, 3, 5, 9})
      on_threads(n, [&](auto& workers) {
        gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform{9},
                               gq::rounding::stochastic{}, gq::wire::int8{}};
        gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 6}};
        ASSERT_EQ(mean.reduce(), gq::method::sum);
        vectors one = input(workers.rank()), all = one;
        for (std::size_t k = 0; k < one.size(); ++k) mean(one[k], 40 + k);
        average_group(mean, all, 40);
        for (std::size_t k = 0; k < one.size(); ++k) EXPECT_TRUE(same_bits(one[k], all[k])) << k;
      });
}

TEST(Group, gives_every_worker_the_same_bits_on_all_schedules_and_uncompressed_the_mean) {
  for (gq::any_quantizer const& op : operators())
    for (char const* schedule : {"ring", "tree", "sra", "allgather"})
      for (int n : {1, 2, 3, 5, 8}) {
        if (!gq::plan_for(op, gq::schedule::any{schedule}, n, 1000).fits) continue;
        std::vector<vectors> results(static_cast<std::size_t>(n));
        on_threads(n, [&](auto& workers) {
          gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 6, .chunk_values = 512}};
          vectors all = input(workers.rank());
          average_group(mean, all, 3);
          results[static_cast<std::size_t>(workers.rank())] = all;
        });
        for (std::size_t k = 0; k < layers.size(); ++k) {
          for (auto const& r : results)
            ASSERT_TRUE(same_bits(r[k], results[0][k])) << op.facts().name << schedule;
          if (op.facts().rounds()) continue;
          std::vector<float> sum(layers[k]);
          for (int r = 0; r < n; ++r) {
            std::vector<float> const x = values(layers[k], r * 100 + static_cast<int>(k));
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
          }
          for (std::size_t i = 0; i < sum.size(); ++i)
            ASSERT_NEAR(results[0][k][i], sum[i] / static_cast<float>(n), 1e-5F) << schedule;
        }
      }
}

/// Every vector comes back as its own mean: unbiased, so the mean over many steps comes near.
TEST(Group, is_unbiased_for_every_vector) {
  constexpr int draws = 400;
  for (char const* schedule : {"ring", "sra"})
    on_threads(3, [&](auto& workers) {
      gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::exponential{7},
                             gq::rounding::stochastic{}, gq::wire::int8{}};
      gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 11}};
      vectors const x = input(workers.rank());
      std::vector<std::vector<double>> sum(x.size()), squares(x.size());
      for (std::size_t k = 0; k < x.size(); ++k) {
        sum[k].resize(x[k].size());
        squares[k].resize(x[k].size());
      }
      vectors exact = x;
      gq::allreduce_mean plain{workers, gq::uncompressed{}, gq::schedule::allgather{}};
      average_group(plain, exact, 0);
      for (int d = 0; d < draws; ++d) {
        vectors y = x;
        average_group(mean, y, static_cast<std::uint64_t>(d) * x.size());
        for (std::size_t k = 0; k < x.size(); ++k)
          for (std::size_t i = 0; i < x[k].size(); ++i) {
            double const e = static_cast<double>(y[k][i]) - static_cast<double>(exact[k][i]);
            sum[k][i] += e;
            squares[k][i] += e * e;
          }
      }
      // pooled over coordinates as in tests/quantizer/vector_codec_test.cpp
      double error = 0, variance = 0, variance2 = 0;
      for (std::size_t k = 0; k < x.size(); ++k)
        for (std::size_t i = 0; i < x[k].size(); ++i) {
          double const v = squares[k][i] / draws;
          error += sum[k][i] * sum[k][i] / draws;
          variance += v;
          variance2 += v * v;
        }
      EXPECT_LT(error / variance, 1 + 5 * std::sqrt(2 * variance2) / variance) << schedule;
    });
}

TEST(Group, needs_one_opening_and_one_exchange_of_norms) {
  on_threads(2, [&](auto& workers) {
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{9}, gq::rounding::stochastic{},
                           gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    vectors one(100), all;
    for (std::size_t k = 0; k < one.size(); ++k)
      one[k] = values(64, workers.rank() + 7 * static_cast<int>(k));
    all = one;
    std::uint64_t const start = workers.bytes_sent();
    for (std::size_t k = 0; k < one.size(); ++k) mean(one[k], k);
    std::uint64_t const middle = workers.bytes_sent();
    average_group(mean, all, 0);
    std::uint64_t const single = middle - start, grouped = workers.bytes_sent() - middle;
    EXPECT_EQ(single, 100 * (64 + 2 * (16 + 64) / 2)) << "opening, and twice half a frame of 16 + 64 bytes";
    EXPECT_LT(grouped, single * 2 / 3) << "headers stay, 99 openings do not; norms cost 4 bytes each";
  });
}

TEST(Group, that_differs_is_an_error_on_all) {
  on_threads(3, [&](auto& workers) {
    gq::allreduce_mean mean{workers, operators()[1], gq::schedule::ring{}};
    // the same number of values in other vectors
    vectors x =
        workers.rank() == 2 ? vectors{values(10, 1), values(20, 1)} : vectors{values(20, 1), values(10, 1)};
    vectors const before = x;
    try {
      average_group(mean, x, 0);
      ADD_FAILURE();
    } catch (gq::disagreement_error const& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(
                                "rank 2 differs from rank 0 in the type of the values or their grouping"));
    }
    EXPECT_EQ(x, before);
    vectors y{values(30, 1)};
    try {  // a group of one and a vector by itself are different calls
      if (workers.rank() == 0)
        mean(y[0], 1);
      else
        average_group(mean, y, 1);
      ADD_FAILURE();
    } catch (gq::disagreement_error const&) {
    }
    average_group(mean, y, 2);
  });
}

TEST(Group, with_a_value_that_is_not_finite_is_not_a_number_everywhere) {
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, operators()[0], gq::schedule::ring{}};
    vectors x = input(workers.rank());
    if (workers.rank() == 1) x[4][3] = std::numeric_limits<float>::infinity();
    average_group(mean, x, 0);
    for (auto const& v : x)
      for (float value : v) ASSERT_TRUE(std::isnan(value));
  });
}

TEST(Group, of_zeros_of_nothing_and_of_vectors_that_are_zero_comes_back_as_it_is) {
  for (gq::any_quantizer const& op : operators())
    on_threads(3, [&](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::sra{}};
      vectors none, zero{std::vector<float>(300), std::vector<float>(5)};
      average_group(mean, none, 0);
      average_group(mean, zero, 1);
      for (auto const& v : zero) EXPECT_THAT(v, testing::Each(0.0F));
      vectors some{std::vector<float>(300), values(40, 1), std::vector<float>(20)};
      average_group(mean, some, 3);
      EXPECT_THAT(some[0], testing::Each(0.0F));
      EXPECT_THAT(some[2], testing::Each(0.0F));
    });
}

TEST(Group, takes_inputs_and_outputs_of_all_types) {
  on_threads(2, [&](auto& workers) {
    auto const run = [&]<class Value>(Value) {
      gq::allreduce_mean mean{workers, operators()[3], gq::schedule::allgather{}};
      std::vector<Value> const a = values<Value>(700, workers.rank()),
                               b = values<Value>(30, workers.rank() + 5);
      std::vector<Value> ya(700), yb(30), za(700), zb(30);
      mean(a, ya, 0);
      mean(b, yb, 1);
      mean(gq::vector_group{}.add(a, za).add(b, zb), 0);
      EXPECT_EQ(0, std::memcmp(ya.data(), za.data(), 700 * sizeof(Value)));
      EXPECT_EQ(0, std::memcmp(yb.data(), zb.data(), 30 * sizeof(Value)));
    };
    run(double{});
    run(gq::float16{});
    run(gq::bfloat16{});
  });
  std::vector<float> f(3), shorter(2);
  EXPECT_THROW(gq::vector_group{}.add(f, shorter), gq::configuration_error);
}

/// Scales travel in the width of a vector's type, so norms of float64 are exchanged by themselves.
TEST(Group, of_several_types_has_the_bits_of_single_calls) {
  for (std::size_t k : {0, 1, 3, 4, 5, 7})
    for (int n : {1, 2, 3})
      on_threads(n, [&](auto& workers) {
        gq::any_quantizer const op = operators()[k];
        gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 3, .chunk_values = 256}};
        int const r = workers.rank();
        auto a = values<double>(700, r);
        auto b = values<float>(300, r + 5);
        auto c = values<gq::float16>(1000, r + 10);
        auto d = values<double>(1, r + 20);
        auto e = values<gq::bfloat16>(513, r + 30);
        for (double& v : a) v *= 1e250;
        auto const single = [&](auto x, std::uint64_t step) {
          mean(x, step);
          return x;
        };
        // vectors of one call are scaled together where one has values above 2^900; there are none, but for op 7
        auto const sa = single(a, 0);
        auto const sb = single(b, 1);
        auto const sc = single(c, 2);
        auto const sd = single(d, 3);
        auto const se = single(e, 4);
        mean(gq::vector_group{}.add(a).add(b).add(c).add(d).add(e), 0);
        std::string const what = op.facts().name + ", n = " + std::to_string(n);
        support::expect_same(a, sa, what);
        support::expect_same(b, sb, what);
        support::expect_same(c, sc, what);
        support::expect_same(d, sd, what);
        support::expect_same(e, se, what);
      });
}

TEST(Group, that_differs_in_a_type_is_an_error_on_all) {
  auto const texts = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
    gq::allreduce_mean mean{workers, operators()[0], gq::schedule::ring{}};
    std::vector<float> x(5), y(7);
    std::vector<double> z(7);
    gq::vector_group group;
    group.add(x);
    workers.rank() == 1 ? group.add(z) : group.add(y);
    mean(group, 0);
  });
  for (std::string const& text : texts) EXPECT_THAT(text, testing::HasSubstr("the type of the values"));
}

TEST(Group, with_a_value_beyond_a_fixed_scale_is_an_error_on_all) {
  auto const texts = support::complaints<gq::configuration_error>(3, [&](auto& workers) {
    gq::allreduce_mean mean{workers, operators()[6], gq::schedule::ring{}};
    std::vector<float> x(5), y(7);
    if (workers.rank() == 2) y[3] = -12;
    mean(gq::vector_group{}.add(x).add(y), 0);
  });
  for (std::string const& text : texts)
    EXPECT_THAT(text, testing::HasSubstr("a value is 1.5 times the scale of norm::fixed"));
}

TEST(Group, may_use_all_steps_and_none_beyond) {
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, operators()[0], gq::schedule::ring{}};
    std::uint64_t const last = (std::uint64_t{1} << 48) - 1;
    std::vector<float> x = values(10, workers.rank()), y = x;
    gq::vector_group const group = gq::vector_group{}.add(x).add(y);
    EXPECT_THROW(mean(group, last), gq::configuration_error);
    mean(group, last - 1);
    mean(gq::vector_group{}, last);
  });
}

TEST(Group, over_native_is_refused) {
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, operators()[0], gq::schedule::native{}};
    std::vector<float> x(3);
    EXPECT_THROW(mean(gq::vector_group{}.add(x), 0), gq::configuration_error);
  });
}

TEST(Group, allocates_nothing_when_it_comes_again) {
  std::size_t before = 0, after = 0;
  on_threads(2, [&](auto& workers) {
    for (gq::any_quantizer const& op : operators()) {
      gq::allreduce_mean mean{workers, op, gq::schedule::sra{}, {}, Kokkos::Serial()};
      vectors x = input(workers.rank());
      gq::vector_group group;
      for (auto& v : x) group.add(v);
      mean(group, 0);
      mean(group, 100);
      gq::transport::barrier(workers);
      if (workers.rank() == 0) before = support::allocations;
      gq::transport::barrier(workers);
      mean(group, 200);
      gq::transport::barrier(workers);
      if (workers.rank() == 0) after = support::allocations;
      gq::transport::barrier(workers);
      if (workers.rank() == 0) {
        EXPECT_EQ(after, before) << op.facts().name;
      }
    }
  });
}

}  // namespace group_test
