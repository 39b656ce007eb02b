// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: means of some calls on one thread for each worker, and whether they are biased.

#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <gtest/gtest.h>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/schedule/allgather.hpp>
#include <globalq/schedule/hierarchical.hpp>
#include <globalq/schedule/ring.hpp>
#include <globalq/schedule/scatter_reduce_allgather.hpp>
#include <globalq/schedule/tree.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace support {

/// Of the vectors of means().
inline constexpr std::size_t means_length = 1500;

/// What all workers get of some calls, one after the other; one for all, as they get the same.
template <class Operator, class Schedule>
std::vector<float> means(Operator const& how, Schedule const& over, int workers, int steps,
                         std::uint64_t chunk = 0) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  on_threads(workers, [&](auto& t) {
    globalq::allreduce_mean mean{t, how, over, {.seed = 3, .chunk_values = chunk}, Kokkos::Serial{}};
    std::vector<float> const x = values(means_length, t.rank());
    std::vector<float> y(means_length);
    auto& mine = all[static_cast<std::size_t>(t.rank())];
    for (int step = 0; step < steps; ++step) {
      mean(x, y, static_cast<std::uint64_t>(step));
      mine.insert(mine.end(), y.begin(), y.end());
    }
  });
  for (auto const& each : all) expect_same(each, all[0], std::to_string(workers) + " workers");
  return all[0];
}

/// use(schedule, name) for those that any operator runs on, whatever adds its codes.
template <class Use>
void over_schedules(Use const& use) {
  use(globalq::schedule::ring{}, "ring");
  use(globalq::schedule::tree{}, "tree");
  use(globalq::schedule::sra{}, "sra");
  use(globalq::schedule::allgather{}, "allgather");
  use(globalq::schedule::hierarchical<>{2}, "hierarchical");
}

/// The mean over many steps is the mean of the inputs: no coordinate is six deviations off.
/// @param results  of means()
/// @param unseen   what a rare outcome that did not come up adds at most
inline void expect_unbiased(std::vector<float> const& results, int workers, std::string const& what,
                            double unseen = 0) {
  std::size_t const steps = results.size() / means_length;
  std::vector<double> exact(means_length);
  for (int rank = 0; rank < workers; ++rank) {
    std::vector<float> const x = values(means_length, rank);
    for (std::size_t i = 0; i < means_length; ++i) exact[i] += static_cast<double>(x[i]) / workers;
  }
  for (std::size_t i = 0; i < means_length; ++i) {
    double sum = 0, squares = 0;
    for (std::size_t s = 0; s < steps; ++s) {
      double const error = static_cast<double>(results[s * means_length + i]) - exact[i];
      sum += error;
      squares += error * error;
    }
    double const n = static_cast<double>(steps), mean = sum / n;
    EXPECT_LE(std::fabs(mean), 6 * std::sqrt(std::max(squares / n - mean * mean, 0.0) / n) + unseen + 1e-6)
        << what << ", value " << i;
  }
}

}  // namespace support
