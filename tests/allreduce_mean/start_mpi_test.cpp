// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Calls that are started over MPI: the bits of direct calls, and an error by the deadline where a worker is dead.

#include "tests/support/compositions.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/transport/mpi.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace gq = globalq;
using std::chrono::steady_clock;
using support::same_bits;
using support::values;
using testing::HasSubstr;

namespace start_mpi_test {

auto quantized() {
  return gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform<7>{}, gq::rounding::stochastic{},
                       gq::wire::packed<4>{}};
}

std::string transport_failure(gq::started_call const& call) {
  try {
    call.wait();
  } catch (gq::transport_error const& e) {
    return e.what();
  }
  return "";
}

TEST(StartMpi, calls_give_the_bits_of_calls_that_are_waited_for) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {.seed = 1}};
  std::vector<std::vector<float>> direct, started;
  for (int k = 0; k < 6; ++k)
    direct.push_back(values(700 + 431 * static_cast<std::size_t>(k), workers.rank() + 10 * k));
  started = direct;
  std::vector<gq::started_call> calls;
  for (std::size_t k = 0; k < direct.size(); ++k) mean(direct[k], k);
  for (std::size_t k = 0; k < started.size(); ++k) calls.push_back(mean.start(started[k], k));
  for (std::size_t k = started.size(); k-- > 0;) {
    calls[k].wait();
    EXPECT_TRUE(same_bits(started[k], direct[k])) << k;
  }
}

TEST(StartMpi, a_dead_worker_is_an_error_of_all_others_by_the_deadline) {
  constexpr std::chrono::milliseconds deadline{400};
  {
    gq::transport::mpi workers{MPI_COMM_WORLD, {.deadline = deadline}};
    if (workers.size() > 1 && workers.rank() != workers.size() - 1) {  // the last one never calls
      gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {.seed = 1}};
      std::vector<float> x = values(3000, workers.rank()), y = x;
      auto const begin = steady_clock::now();
      gq::started_call const first = mean.start(x, 0), behind = mean.start(y, 1);
      EXPECT_THAT(transport_failure(first), HasSubstr("waited 0.4 s"));
      EXPECT_THAT(transport_failure(behind), HasSubstr("the transport is broken"));
      EXPECT_TRUE(first.test() && behind.test());
      EXPECT_LT(steady_clock::now() - begin, 20 * deadline)
          << "each wait ends by the deadline, and no call hangs";
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  gq::transport::mpi again{MPI_COMM_WORLD};  // those that live can go on
  gq::allreduce_mean mean{again, quantized(), gq::schedule::ring{}, {.seed = 1}};
  std::vector<float> x = values(3000, again.rank());
  EXPECT_NO_THROW(mean.start(x, 2).wait());
}

}  // namespace start_mpi_test
