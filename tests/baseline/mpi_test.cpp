// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Processes get from every compressor what threads get, bit for bit, with what error feedback leaves over.

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/one_bit.hpp>
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/sign_sgd.hpp>
#include <globalq/baseline/thc.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/transport/mpi.hpp>
#if defined(GLOBALQ_HAS_EIGEN)
#include <globalq/baseline/power_sgd.hpp>
#endif

#include "tests/baseline/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

gq::adapt::model_layout network() {
  gq::adapt::model_layout m;
  m.add("first", {40, 100}).add("bias", {100}).add_at(4500, "last", {30, 33});
  return m;
}

/// Means of three steps, one after the other.
template <class Workers, class Make>
vector trained(Workers& workers, Make const& make) {
  auto c = make(network());
  std::uint64_t const d = c.layers().length();
  vector all;
  for (std::uint64_t step = 0; step < 3; ++step) {
    vector const x =
        cases::values(d, static_cast<unsigned>(workers.rank()) + 100 * static_cast<unsigned>(step));
    vector mean(d);
    EXPECT_EQ(c.reduce(workers, x, mean, {}, step), cp::outcome::mean);
    all.insert(all.end(), mean.begin(), mean.end());
  }
  return all;
}

template <class Make>
void expect_those_of_threads(Make const& make) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  vector const mine = trained(workers, make);
  vector expected;
  support::on_threads(workers.size(), [&](auto& threads) {
    vector const theirs = trained(threads, make);
    if (threads.rank() == 0) expected = theirs;
  });
  EXPECT_TRUE(cases::same_bits(mine, expected));
}

TEST(CompressorsOverMpi, selections) {
  for (auto scope : {cp::scope::layer, cp::scope::whole}) {
    expect_those_of_threads([=](gq::adapt::model_layout m) {
      return cp::error_feedback(cp::top_k(std::move(m), {.density = 0.03, .scope = scope}));
    });
    expect_those_of_threads([=](gq::adapt::model_layout m) {
      return cp::rand_k(std::move(m), {.density = 0.1, .scope = scope}, {.seed = 8});
    });
  }
  expect_those_of_threads([](gq::adapt::model_layout m) {
    return cp::rand_k(std::move(m), {.density = 0.1, .shared = false}, {.seed = 8});
  });
  expect_those_of_threads(
      [](gq::adapt::model_layout m) { return cp::send_first(std::move(m), {.gamma = 5}); });
}

TEST(CompressorsOverMpi, signs_and_integers) {
  expect_those_of_threads(
      [](gq::adapt::model_layout m) { return cp::sign_sgd(std::move(m), {}, {.seed = 3}); });
  expect_those_of_threads(
      [](gq::adapt::model_layout m) { return cp::error_feedback(cp::one_bit(std::move(m))); });
  expect_those_of_threads(
      [](gq::adapt::model_layout m) { return cp::int_sgd(std::move(m), {}, {.seed = 3}); });
  for (int bits : {2, 4, 8})
    expect_those_of_threads(
        [=](gq::adapt::model_layout m) { return cp::thc(std::move(m), {.bits = bits}, {.seed = 3}); });
}

#if defined(GLOBALQ_HAS_EIGEN)
TEST(CompressorsOverMpi, low_rank) {
  expect_those_of_threads([](gq::adapt::model_layout m) {
    return cp::error_feedback(cp::power_sgd(std::move(m), {.rank = 2}, {.seed = 3}));
  });
}
#endif

}  // namespace
