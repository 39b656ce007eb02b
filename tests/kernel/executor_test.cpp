// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief What launches: every value once on every space, in the caller's thread's own floating-point environment.

#include <globalq/kernel/executor.hpp>

#include <globalq/core/float_environment.hpp>
#include <globalq/core/prefetch.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <tuple>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace gq = globalq;
using namespace gq::kernel;

/// Counts how often each value is treated, and which pieces memory was asked for.
struct count_values {
  std::uint64_t count;
  std::atomic<int>* visits;
  std::atomic<int>* asked;

  void prefetch(std::uint64_t index) const { ++asked[index]; }

  template <int Lanes>
  void tile(std::uint64_t index, int lane) const {
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const part = row_of<Lanes>(index, lane, r, count);
      for (int i = 0; i < part.count; ++i) ++visits[part.first + static_cast<std::uint64_t>(i)];
    }
  }
};

template <class Executor>
void expect_every_value_once(Executor const& on, std::uint64_t count, bool asks) {
  std::vector<std::atomic<int>> visits(count + 1), asked(count / host_values + 1);
  on.values(count, count_values{count, visits.data(), asked.data()});
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(visits[i], 1) << "value " << i << " of " << count;
  ASSERT_EQ(visits[count], 0);
  for (std::uint64_t i = 0; i < asked.size(); ++i) {
    // whole pieces only, but for the first ones, and of long vectors only
    bool const whole = (i + 1) * host_values <= count, later = i >= gq::values_ahead / host_values;
    ASSERT_EQ(asked[i], asks && count >= gq::prefetch_from && whole && later ? 1 : 0) << "piece " << i;
  }
}

}  // namespace

TEST(Executor, treats_every_value_once_and_asks_for_memory_of_long_vectors) {
  for (std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{255}, std::uint64_t{256}, std::uint64_t{1023},
        std::uint64_t{1024}, std::uint64_t{1025}, std::uint64_t{10007}, gq::prefetch_from - 1,
        gq::prefetch_from, gq::prefetch_from + 1500}) {
    expect_every_value_once(host_executor{Kokkos::Serial()}, count, true);
    expect_every_value_once(host_executor{Kokkos::DefaultHostExecutionSpace()}, count, true);
    expect_every_value_once(device_executor<Kokkos::Serial>{Kokkos::Serial()}, count, false);
  }
}

TEST(Executor, treats_every_item_once) {
  for (std::uint64_t count : {0U, 1U, 2U, 1000U}) {
    std::vector<std::atomic<int>> visits(count);
    host_executor{Kokkos::DefaultHostExecutionSpace()}.items(count, [&](std::uint64_t i) { ++visits[i]; });
    for (auto const& v : visits) ASSERT_EQ(v, 1);
  }
}

TEST(Executor, runs_are_those_of_one_bucket) {
  using run = std::tuple<std::uint64_t, int, int>;
  auto const runs = [](std::uint64_t first, int count, std::uint64_t bucket) {
    std::vector<run> all;
    for_each_run(first, count, bucket, [&](std::uint64_t b, int at, int m) { all.emplace_back(b, at, m); });
    return all;
  };
  EXPECT_EQ(runs(1000, 24, 0), (std::vector<run>{{0, 0, 24}}));
  EXPECT_EQ(runs(1000, 0, 0), (std::vector<run>{}));
  EXPECT_EQ(runs(200, 256, 128), (std::vector<run>{{1, 0, 56}, {2, 56, 128}, {3, 184, 72}}));
  EXPECT_EQ(runs(7, 3, 1), (std::vector<run>{{7, 0, 1}, {8, 1, 1}, {9, 2, 1}}));
}

TEST(HostExecutor, throws_what_an_item_throws_on_any_thread_when_all_have_ended) {
  auto const check = [](host_executor const& on) {
    std::atomic<int> ended{0};
    EXPECT_THROW(on.items(100,
                          [&](std::uint64_t i) {
                            if (i % 10 == 9) throw std::bad_alloc();
                            ++ended;
                          }),
                 std::bad_alloc);
    EXPECT_GE(ended, 9);
    on.items(100, [&](std::uint64_t) { ++ended; });
    EXPECT_GE(ended, 109);
  };
  check(host_executor{Kokkos::Serial()});
  Kokkos::DefaultHostExecutionSpace const space;
  check(host_executor{space});
  check(host_executor::borrowing(space));
}

#if defined(__SSE2__)
TEST(FloatEnvironment, is_the_standard_one_inside_and_the_callers_afterwards) {
  unsigned const before = _mm_getcsr(), flush_to_zero = 0x8000, denormals_are_zero = 0x0040, upwards = 0x4000;
  unsigned const set = before | flush_to_zero | denormals_are_zero | upwards;
  _mm_setcsr(set);
  unsigned inside = 0, in_item = 0;
  {
    globalq::float_environment const exact;
    inside = _mm_getcsr();
  }
  host_executor{Kokkos::Serial()}.items(1, [&](std::uint64_t) { in_item = _mm_getcsr(); });
  unsigned const afterwards = _mm_getcsr();
  _mm_setcsr(before);
  unsigned const all = flush_to_zero | denormals_are_zero | upwards;
  EXPECT_EQ(inside & all, 0U);
  EXPECT_EQ(in_item & all, 0U);
  EXPECT_EQ(afterwards & all, all);
}
#endif

TEST(Executor, a_forked_process_runs_kernels_of_a_host_on_its_only_thread_and_refuses_others) {
  host_executor const inherited{Kokkos::DefaultHostExecutionSpace()};
  device_executor<Kokkos::Serial> const stream{Kokkos::Serial()};
  inherited.items(100, [](std::uint64_t) {});  // the threads exist now
  pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(20);
    auto const sum_of = [](host_executor const& on) {
      std::uint64_t sum = 0;
      on.items(100, [&sum](std::uint64_t i) { sum += i; });
      return sum;
    };
    auto const refused = [](auto const& use) {
      try {
        use();
      } catch (gq::configuration_error const& e) {
        return std::string(e.what()).find("was forked while Kokkos was running") != std::string::npos;
      }
      return false;
    };
    bool const all = sum_of(inherited) == 4950 &&
                     sum_of(host_executor{Kokkos::DefaultHostExecutionSpace()}) == 4950 &&
                     refused([] { device_executor<Kokkos::Serial>{Kokkos::Serial()}; }) &&
                     refused([&] { stream.items(2, [](std::uint64_t) {}); });
    ::_exit(all ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
