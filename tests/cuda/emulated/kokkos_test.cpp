// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Kokkos::Cuda and CUB, as they are, on the emulated device: loops, reductions, scans, teams, scratch memory.

#include <Kokkos_Core.hpp>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using space = Kokkos::Cuda;
using view = Kokkos::View<int*, Kokkos::CudaSpace>;

// Lengths around those of warps and blocks.
constexpr int lengths[] = {1, 31, 32, 33, 127, 128, 129, 1000, 3000, 5003};

int at(int i) { return i * 37 % 101 - 50; }

view values(int n) {
  view v("values", static_cast<std::size_t>(n));
  Kokkos::parallel_for(
      Kokkos::RangePolicy<space>(0, n), KOKKOS_LAMBDA(int i) { v(i) = i * 37 % 101 - 50; });
  return v;
}

std::vector<int> on_host(view const& v) {
  auto const h = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), v);
  return {h.data(), h.data() + h.size()};
}

/// Several words: scans of such values go through other code.
struct pair {
  long sum = 0;
  long count = 0;
  KOKKOS_FUNCTION pair& operator+=(pair const& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
};

// nvcc takes no lambda for the device inside of a test's own function.

void loops_and_reductions() {
  for (int n : lengths) {
    view const v = values(n);
    auto const h = on_host(v);
    long expected = 0;
    for (int i = 0; i < n; ++i) {
      ASSERT_EQ(h[static_cast<std::size_t>(i)], at(i));
      expected += at(i);
    }
    int sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::RangePolicy<space>(0, n), KOKKOS_LAMBDA(int i, int& s) { s += v(i); }, sum);
    EXPECT_EQ(sum, expected);
    double real = 0;
    Kokkos::parallel_reduce(
        Kokkos::RangePolicy<space>(0, n), KOKKOS_LAMBDA(int i, double& s) { s += v(i); }, real);
    EXPECT_EQ(real, static_cast<double>(expected));
  }
}

void scans() {
  for (int n : lengths) {
    view const v = values(n), out("out", static_cast<std::size_t>(n));
    int total = 0;
    Kokkos::parallel_scan(
        Kokkos::RangePolicy<space>(0, n),
        KOKKOS_LAMBDA(int i, int& s, bool last) {
          if (last) out(i) = s;
          s += v(i);
        },
        total);
    auto const h = on_host(out);
    int expected = 0;
    for (int i = 0; i < n; ++i) {
      ASSERT_EQ(h[static_cast<std::size_t>(i)], expected);
      expected += at(i);
    }
    EXPECT_EQ(total, expected);
  }
}

/// Sums and counts of n values.
pair scan_of_pairs(int n) {
  view const v = values(n);
  pair both;
  Kokkos::parallel_scan(
      Kokkos::RangePolicy<space>(0, n),
      KOKKOS_LAMBDA(int i, pair& s, bool) {
        s.sum += v(i);
        ++s.count;
      },
      both);
  return both;
}

void teams_with_scratch_memory() {
  using policy = Kokkos::TeamPolicy<space>;
  using scratch = Kokkos::View<int*, space::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  view const sums("sums", 5);
  auto const bytes = scratch::shmem_size(64);
  Kokkos::parallel_for(
      policy(space(), 5, 64).set_scratch_size(0, Kokkos::PerTeam(bytes)),
      KOKKOS_LAMBDA(policy::member_type const& team) {
        scratch const shared(team.team_scratch(0), 64);
        shared(team.team_rank()) = team.team_rank() + team.league_rank();
        team.team_barrier();
        int sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, 64), [&](int i, int& s) { s += shared(63 - i); }, sum);
        if (team.team_rank() == 0) sums(team.league_rank()) = sum;
      });
  for (int k = 0; k < 5; ++k) EXPECT_EQ(on_host(sums)[static_cast<std::size_t>(k)], 63 * 32 + 64 * k);
}

void cub_reductions_and_scans() {
  for (int n : lengths) {
    view const v = values(n), out("out", static_cast<std::size_t>(n) + 1);
    std::size_t bytes = 0;
    ASSERT_EQ(cub::DeviceReduce::Max(nullptr, bytes, v.data(), out.data() + n, n), cudaSuccess);
    Kokkos::View<char*, Kokkos::CudaSpace> const room("room", bytes);
    ASSERT_EQ(cub::DeviceReduce::Max(room.data(), bytes, v.data(), out.data() + n, n), cudaSuccess);
    ASSERT_EQ(cub::DeviceScan::ExclusiveSum(nullptr, bytes, v.data(), out.data(), n), cudaSuccess);
    Kokkos::View<char*, Kokkos::CudaSpace> const more("more", bytes);
    ASSERT_EQ(cub::DeviceScan::ExclusiveSum(more.data(), bytes, v.data(), out.data(), n), cudaSuccess);
    auto const h = on_host(out);
    int sum = 0, most = -100;
    for (int i = 0; i < n; ++i) {
      ASSERT_EQ(h[static_cast<std::size_t>(i)], sum);
      sum += at(i);
      most = std::max(most, at(i));
    }
    EXPECT_EQ(h.back(), most);
  }
}

void write_one_too_many() {
  view const v("v", 4);
  int* const p = v.data();
  Kokkos::parallel_for(
      Kokkos::RangePolicy<space>(0, 5), KOKKOS_LAMBDA(int i) { p[i] = i; });
  Kokkos::fence();
}

}  // namespace

TEST(EmulatedKokkos, LoopsAndReductions) { loops_and_reductions(); }
TEST(EmulatedKokkos, Scans) { scans(); }
// Kokkos 4.7.00, Kokkos_Cuda_Parallel_Range.hpp, lines 538 to 545: thread 0 initializes a value of several words, the next
// threads write all but the first of them, and nothing is between but that lanes use to go in step.
TEST(EmulatedKokkos, AScanOfSeveralWordsHasARaceBeyondOneBlock) {
  EXPECT_EQ(scan_of_pairs(100).count, 100);
  EXPECT_DEATH(scan_of_pairs(3000), "race in shared memory: a write of byte .*, which thread 0 has written");
}

TEST(EmulatedKokkos, TeamsWithScratchMemory) { teams_with_scratch_memory(); }
TEST(EmulatedKokkos, Cub) { cub_reductions_and_scans(); }

TEST(EmulatedKokkos, TheHostCannotTouchDeviceMemory) {
  view const v = values(4);
  EXPECT_DEATH(v.data()[0] = 1, "");
}

TEST(EmulatedKokkos, AFaultNamesThePlaceAndStays) {
  EXPECT_DEATH(write_one_too_many(), "out of bounds: 4 bytes at .*thread \\(0, 4, 0\\)");
}
