// SPDX-License-Identifier: Apache-2.0
#include <globalq/bench/operator.hpp>
#include <globalq/operator/quantizer.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace globalq::bench {
namespace {

any_quantizer uniform(int levels) {
  return quantizer{norm::linf{}, levels::uniform<>(levels), rounding::stochastic{}, wire::int8{}};
}

/// Keeps the counters of each benchmark, for those that had no error.
class keeping : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(Context const&) override { return true; }
  void ReportRuns(std::vector<Run> const& runs) override {
    for (Run const& run : runs)
      for (auto const& [name, counter] : run.counters) counters[run.benchmark_name()][name] = counter.value;
  }
  std::map<std::string, std::map<std::string, double>> counters;
};

/// Runs what the function registers, for as short as possible.
template <class Register>
auto run(Register const& registered) {
  char program[] = "bench_operator_test", time[] = "--benchmark_min_time=0.0001";
  char* arguments[] = {program, time, nullptr};
  int count = 2;
  benchmark::Initialize(&count, arguments);
  registered();
  keeping all;
  benchmark::RunSpecifiedBenchmarks(&all);
  benchmark::ClearRegisteredBenchmarks();
  return all.counters;
}

TEST(CopyFloor, writes_all_bytes_of_the_output_and_none_behind_them) {
  for (std::size_t in : {0U, 1U, 3U, 1000U, 16384U, 16385U, 100003U})
    for (std::size_t out : {0U, 1U, 250U, 16384U, 16385U, 50021U, 100003U}) {
      std::vector<std::byte> from(in, std::byte{7}), to(out + 1, std::byte{1});
      copy_floor const floor(from, std::span(to).first(out));
      for (std::uint64_t k = 0; k < floor.pieces(); ++k) floor(k);
      for (std::size_t i = 0; i < out; ++i)
        ASSERT_NE(to[i], std::byte{1}) << in << " to " << out << ": " << i;
      ASSERT_EQ(to[out], std::byte{1});
    }
}

TEST(Gradient, has_the_variance_that_its_documentation_says) {
  constexpr std::uint64_t n = 1U << 20;
  auto const x = gradient<float>(n, 1);
  double mean = 0, square = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    mean += static_cast<double>(x(i)) / n;
    square += std::pow(static_cast<double>(x(i)), 2) / n;
  }
  // 0.01^2 sum_k 2^-k-1 4^k for k = 0..4, and 2^-5 4^5
  constexpr double variance = 1e-4 * (0.5 + 1 + 2 + 4 + 8 + 32);
  // Six standard deviations: of the mean sqrt(variance / n); of the square below sqrt(3 * 1e-8 * (sum of 16^k 2^-k-1) / n).
  EXPECT_NEAR(mean, 0, 6 * std::sqrt(variance / n));
  EXPECT_NEAR(square, variance, 6 * std::sqrt(3e-8 * (0.5 + 4 + 32 + 256 + 2048 + 32768) / n));
}

TEST(SquaredError, is_relative_but_for_zero) {
  std::vector<float> const x{3, 4}, zero{0, 0};
  EXPECT_EQ(squared_error(x, std::vector<float>{3, 3}), 1.0 / 25);
  EXPECT_EQ(squared_error(zero, std::vector<float>{1, 2}), 5);
}

TEST(AddOperator, reports_bytes_bits_floor_and_error) {
  constexpr std::uint64_t n = 5000;
  auto const counters = run([] { add_operator("uniform", uniform(15), {.lengths = {n}, .workers = 3}); });
  for (char const* name :
       {"encode/uniform/n:5000/threads:1/manual_time", "decode/uniform/n:5000/threads:1/manual_time",
        "mean/uniform/n:5000/workers:3/manual_time"}) {
    ASSERT_TRUE(counters.contains(name)) << name;
    auto const& c = counters.at(name);
    for (char const* each :
         {"bytes_per_second", "floor_ratio", "ns_per_value", "floor_ns_per_value", "error"})
      EXPECT_GT(c.at(each), 0) << name << ": " << each;
    EXPECT_NEAR(c.at("bytes_per_second") * c.at("ns_per_value"), 4e9, 1);
  }
  auto const& encoded = counters.at("encode/uniform/n:5000/threads:1/manual_time");
  EXPECT_EQ(encoded.at("bits_per_value"),
            8.0 *
                static_cast<double>(
                    vector_codec(uniform(15), Kokkos::Serial(), frame_checksum::none).frame_bytes(n)) /
                n);
  // No value is farther than a gap from its level.
  auto const x = gradient<float>(n, 1);
  double most = 0, square = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    most = std::max(most, std::fabs(static_cast<double>(x(i))));
    square += std::pow(static_cast<double>(x(i)), 2);
  }
  EXPECT_LT(encoded.at("error"), n * std::pow(most / 15, 2) / square);
}

TEST(AddOperator, leaves_out_codes_where_there_are_none) {
  auto const counters = run([] { add_operator("float32", uncompressed{}, {.lengths = {100}}); });
  ASSERT_EQ(counters.size(), 1U);
  EXPECT_EQ(counters.begin()->first, "mean/float32/n:100/workers:4/manual_time");
  EXPECT_LT(counters.begin()->second.at("error"), 1e-12);
}

TEST(Encode, takes_vectors_of_any_type) {
  auto const counters = run([] {
    std::vector<double> const x(300, 0.5);
    benchmark::RegisterBenchmark("mine", [x](benchmark::State& state) {
      encode(state, uniform(15), x);
    })->UseManualTime();
  });
  EXPECT_EQ(counters.at("mine/manual_time").at("error"), 0);  // all values are the norm
  EXPECT_FALSE(failed);
}

TEST(Encode, reports_an_operator_that_is_refused) {
  auto const counters = run([] {
    benchmark::RegisterBenchmark("none", [](benchmark::State& state) {
      encode(state, uncompressed{}, gradient<float>(10, 1));
    })->UseManualTime();
  });
  EXPECT_TRUE(counters.empty() || !counters.begin()->second.contains("error"));
  EXPECT_TRUE(failed);
  failed = false;
}

}  // namespace
}  // namespace globalq::bench
