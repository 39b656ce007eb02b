// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Processes learn the same levels as threads do.

#include "globalq/norm/norms.hpp"
#include "globalq/train/learn/level_learner.hpp"
#include "globalq/transport/mpi.hpp"
#include "globalq/transport/threads.hpp"

#include "tests/train/learn/support.hpp"

#include <cstring>

namespace globalq_test {
namespace {

/// Values of a worker, from integers.
std::vector<float> values(int rank) {
  std::mt19937 draw(static_cast<std::uint32_t>(rank) + 1);
  std::vector<float> x(3001);
  for (float& v : x)
    v = static_cast<float>(static_cast<int>(draw() % 2001) - 1000) *
        gq::power_of_two_float(-static_cast<int>(draw() % 9));
  return x;
}

template <class Workers, class Norm>
std::vector<double> learned(Workers& workers, Norm const& norm) {
  learn::level_learner learner{norm, learn::optimal{.size = 7}, {.schedule = {.once = {0}}}};
  return learner.update(workers, values(workers.rank()), 0)->levels.values;
}

template <class Norm>
void expect_those_of_threads(Norm const& norm) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  std::vector<double> const mine = learned(workers, norm);
  std::vector<double> expected;
  gq::transport::threads cluster{workers.size()};
  cluster.run([&](auto& threads) {
    auto const theirs = learned(threads, norm);
    if (threads.rank() == 0) expected = theirs;
  });
  ASSERT_EQ(mine.size(), expected.size());
  EXPECT_EQ(std::memcmp(mine.data(), expected.data(), mine.size() * sizeof(double)), 0);
}

TEST(LevelLearnerOverMpi, learns_what_threads_learn) {
  expect_those_of_threads(gq::norm::local<2>{.bucket = 128});
  expect_those_of_threads(gq::norm::linf{.bucket = 512});
  expect_those_of_threads(gq::norm::l<2, 2>{});
}

TEST(LevelLearnerOverMpi, all_processes_throw_when_one_differs) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  if (workers.size() < 2) GTEST_SKIP() << "needs two processes";
  learn::level_learner learner{gq::norm::linf{.bucket = 100 + (workers.rank() == 1 ? 28U : 0U)},
                               learn::optimal{},
                               {.schedule = {.once = {0}}}};
  EXPECT_THROW(static_cast<void>(learner.update(workers, values(0), 0)), gq::disagreement_error);
}

}  // namespace
}  // namespace globalq_test
