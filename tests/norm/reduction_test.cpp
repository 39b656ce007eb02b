// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Statistics of buckets: the same bits on every space, with any number of threads and in any order.

#include "globalq/kernel/reduction.hpp"

#include "globalq/kernel/block_statistic.hpp"
#include "globalq/kernel/stream.hpp"
#include "globalq/kernel/stream_reduction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/norm/suite.hpp"

namespace globalq_test {
namespace {

using gq::dtype;
using gq::norm::bucket_statistics;
using gq::norm::statistic;

/// Runs the items in order.
struct in_order {
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    for (std::uint64_t i = 0; i < count; ++i) f(i);
  }
};

/// Runs the items on some threads, dealt out in turn, the last one first.
struct on_threads {
  unsigned threads;
  template <class F>
  void items(std::uint64_t count, F const& f) const {
    std::vector<std::thread> list;
    for (unsigned t = 0; t < threads; ++t)
      list.emplace_back([&, t] {
        for (std::uint64_t i = count; i-- > 0;)
          if (i % threads == t) f(i);
      });
    for (std::thread& t : list) t.join();
  }
};

template <class Executor>
std::vector<statistic> statistics(Executor const& on, stored_vector const& x, std::uint64_t count,
                                  std::uint64_t bucket, std::uint32_t q) {
  std::uint64_t const width = bucket == 0 ? std::max<std::uint64_t>(count, 1) : bucket;
  std::vector<statistic> result(count / width + (count % width != 0 ? 1 : 0)), parts;
  auto const block = [&](std::uint64_t first, int n) {
    return gq::kernel::block_statistic(x.view(), first, n, q);
  };
  bucket_statistics(on, count, bucket, q, block, result, parts);
  return result;
}

void expect_same(std::vector<statistic> const& a, std::vector<statistic> const& b, char const* who) {
  ASSERT_EQ(a.size(), b.size()) << who;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].max_bits, b[i].max_bits) << who << ": bucket " << i;
    ASSERT_EQ(gq::bits_of(a[i].sum), gq::bits_of(b[i].sum)) << who << ": bucket " << i;
  }
}

constexpr std::uint64_t counts[] = {0, 1, 2, 3, 99, 100, 101, 4095, 4096, 4097, 8191, 10000};
constexpr std::uint64_t buckets[] = {1, 3, 100, 4096, 4097, 0};

class BucketStatistics : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(BucketStatistics, are_the_norms_of_the_buckets) {
  std::uint32_t const q = GetParam();
  for (dtype type : {dtype::float32, dtype::float64}) {
    stored_vector const x(type, values_up_to(1e-3, 10000, 10, 6));
    for (std::uint64_t count : counts)
      for (std::uint64_t bucket : buckets) {
        std::vector<statistic> const found = statistics(in_order{}, x, count, bucket, q);
        std::size_t const width = bucket == 0 ? count : bucket;
        for (std::size_t b = 0; b<found.size(); b += found.size()> 200 ? 97 : 1) {
          std::size_t const first = b * width, n = std::min<std::size_t>(width, count - first);
          double largest = 0;
          for (std::size_t i = first; i < first + n; ++i) largest = std::max(largest, std::abs(x[i]));
          ASSERT_EQ(found[b].max_bits, gq::bits_of(largest)) << "count " << count << " bucket " << bucket;
          long double const exact = exact_norm(x, first, n, q, found[b].exponent());
          ASSERT_LE(std::fabs(gq::norm::relative_norm(found[b], q) - exact),
                    exact * norm_tolerance(type, q, n))
              << "count " << count << " bucket " << bucket << " number " << b;
        }
      }
  }
}

TEST_P(BucketStatistics, have_the_same_bits_on_1_to_7_threads_and_on_the_spaces_of_kokkos) {
  std::uint32_t const q = GetParam();
  stored_vector const x(dtype::float32, values_up_to(1e20, 10000, 10, 7));
  for (std::uint64_t count : counts)
    for (std::uint64_t bucket : buckets) {
      std::vector<statistic> const expected = statistics(in_order{}, x, count, bucket, q);
      for (unsigned threads = 1; threads <= 7; ++threads)
        expect_same(statistics(on_threads{threads}, x, count, bucket, q), expected, "threads");
#ifdef KOKKOS_ENABLE_SERIAL
      expect_same(statistics(gq::kernel::host_executor(Kokkos::Serial{}), x, count, bucket, q), expected,
                  "Serial");
#endif
#ifdef KOKKOS_ENABLE_OPENMP
      expect_same(statistics(gq::kernel::host_executor(Kokkos::OpenMP{}), x, count, bucket, q), expected,
                  "OpenMP");
#endif
    }
}

// Serial stands in for a GPU: its kernels have the shape of teams.
#ifdef KOKKOS_ENABLE_SERIAL
struct count_calls {
  int* calls;
  void operator()() const { ++*calls; }
};

TEST_P(BucketStatistics, have_the_same_bits_on_a_stream_wherever_the_vector_starts) {
  std::uint32_t const q = GetParam();
  gq::kernel::stream_executor<Kokkos::Serial> const on{Kokkos::Serial()};
  gq::norm::statistics_memory memory(on.memory());  // of one call after the other
  for (dtype type : {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
    stored_vector const x(type, values_up_to(type == dtype::float16 ? 6e4 : 1e20, 10007, 10, 7));
    for (std::size_t off : {0, 1, 2, 3, 4, 7})
      for (std::uint64_t count : counts)
        for (std::uint64_t bucket : {3, 128, 4096, 4097, 0}) {
          gq::const_vector const view{static_cast<std::byte const*>(x.view().data) + off * gq::size_of(type),
                                      type};
          auto const block = [&](std::uint64_t first, int n) {
            return gq::kernel::block_statistic(view, first, n, q);
          };
          std::uint64_t const width = bucket == 0 ? std::max<std::uint64_t>(count, 1) : bucket;
          std::vector<statistic> expected(count / width + (count % width != 0 ? 1 : 0)), found = expected,
                                                                                         parts;
          bucket_statistics(in_order{}, count, bucket, q, block, expected, parts);
          std::uint64_t top = 0, largest = 0;
          int calls = 0;
          gq::norm::enqueue_statistics(on, view, count, bucket, q, memory, found.data(), &top,
                                       count_calls{&calls});
          ASSERT_EQ(calls, 1);
          expect_same(found, expected, "stream");
          for (statistic const& s : expected) largest = std::max(largest, s.max_bits);
          ASSERT_EQ(top, largest);
        }
  }
}

TEST_P(BucketStatistics, have_the_same_bits_on_a_stream_over_several_levels_of_nodes) {
  std::uint32_t const q = GetParam();
  constexpr std::uint64_t node = gq::norm::detail::block_tree::fan * gq::norm::block_values;
  gq::kernel::stream_executor<Kokkos::Serial> const on{Kokkos::Serial()};
  gq::norm::statistics_memory memory(on.memory());
  stored_vector const x(dtype::float32, values_up_to(1e20, 2 * node + 5000, 10, 7));
  auto const block = [&](std::uint64_t first, int n) {
    return gq::kernel::block_statistic(x.view(), first, n, q);
  };
  for (std::uint64_t count : {node, node + 1, 2 * node + 5000})
    for (std::uint64_t bucket : {std::uint64_t{0}, node + 1, node / 2}) {
      std::vector<statistic> expected(bucket == 0 ? 1 : (count + bucket - 1) / bucket), found = expected,
                                                                                        parts;
      bucket_statistics(in_order{}, count, bucket, q, block, expected, parts);
      gq::norm::enqueue_statistics(on, x.view(), count, bucket, q, memory, found.data(), nullptr);
      expect_same(found, expected, "stream");
    }
}

TEST(BucketStatistics, have_the_same_bits_on_a_stream_in_long_vectors) {
  gq::kernel::stream_executor<Kokkos::Serial> const on{Kokkos::Serial()};
  gq::norm::statistics_memory memory(on.memory());
  auto const compare = [&](gq::const_vector x, std::uint64_t count, std::uint64_t bucket, std::uint32_t q) {
    std::vector<statistic> expected(bucket == 0 ? 1 : (count + bucket - 1) / bucket), found = expected, parts;
    bucket_statistics(in_order{}, count, bucket, q, gq::norm::input_block{x, q}, expected, parts);
    gq::norm::enqueue_statistics(on, x, count, bucket, q, memory, found.data(), nullptr);
    expect_same(found, expected, "stream");
  };
  std::vector<float> sums((std::uint64_t{1} << 22) + 5003);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] = static_cast<float>(static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 2654435761U));
  for (std::uint64_t bucket : {std::uint64_t{0}, (std::uint64_t{1} << 21) + 77})
    compare({sums.data(), dtype::float32}, sums.size(), bucket, 2);
  std::vector<gq::float16> maxima((std::uint64_t{1} << 24) + 5003, gq::float16(1.5F));  // in wide blocks
  for (std::size_t at : {std::size_t{7}, maxima.size() / 2, maxima.size() - 1}) {
    maxima[at] = gq::float16(-static_cast<float>(at % 1000 + 2));
    compare({maxima.data(), dtype::float16}, maxima.size(), 0, gq::infinity);
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Orders, BucketStatistics, ::testing::Values(1U, 2U, 3U, 6U, 7U, 64U, gq::infinity));

TEST(BucketStatistics, of_a_bucket_do_not_depend_on_its_neighbors) {
  std::vector<double> values = values_up_to(2.0, 9000, 5, 9);
  std::vector<statistic> const before = statistics(in_order{}, {dtype::float32, values}, 9000, 4500, 2);
  values[4499] = 1e30;
  values[0] = std::numeric_limits<double>::quiet_NaN();
  std::vector<statistic> const after = statistics(in_order{}, {dtype::float32, values}, 9000, 4500, 2);
  expect_same({before[1]}, {after[1]}, "second bucket");
  EXPECT_FALSE(after[0].finite());
}

TEST(BucketStatistics, reuse_memory_that_held_other_statistics) {
  stored_vector const x(dtype::float32, values_up_to(2.0, 10000, 5, 9));
  auto const block = [&](std::uint64_t first, int n) {
    return gq::kernel::block_statistic(x.view(), first, n, 2);
  };
  std::vector<statistic> parts(50, statistic{gq::double_nan, 1e300}), result(1);
  bucket_statistics(in_order{}, 10000, 0, 2, block, result, parts);
  expect_same(result, statistics(in_order{}, x, 10000, 0, 2), "dirty memory");
}

}  // namespace
}  // namespace globalq_test
