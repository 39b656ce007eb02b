// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Averages with custom policies, a custom schedule and transport, and checks the library's guarantees for them.

#include "dithered.hpp"
#include "funnel.hpp"
#include "mailbox.hpp"
#include "minifloat.hpp"
#include "minifloat_sum.hpp"
#include "network_order.hpp"
#include "take_turns.hpp"
#include "three_halves.hpp"

#include <globalq/check/operator.hpp>
#include <globalq/policies.hpp>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace gq = globalq;

namespace {

constexpr int workers = 4, steps = 10;
constexpr std::size_t length = 300;

//! [custom-operator]
gq::quantizer const op{three_halves{.bucket = 100}, minifloat<3, 1>{}, dithered{}, network_order{},
                       minifloat_sum<3, 1>{}};
//! [custom-operator]

/// Averages a fixed vector of every worker in every step; returns each worker's results, step after step.
std::vector<std::vector<float>> run(std::vector<std::vector<float>> const& input) {
  std::vector<std::vector<float>> results(workers);
  //! [custom-use]
  letters all;
  auto const work = [&](int rank) {
    mailbox endpoint(all, rank, workers);
    gq::allreduce_mean mean{endpoint, op, funnel{}, {.seed = 1}, Kokkos::Serial{}};
    std::vector<float> y(length);
    for (std::uint64_t step = 0; step < steps; ++step) {
      mean(input[static_cast<std::size_t>(rank)], y, step);
      results[static_cast<std::size_t>(rank)].insert(results[static_cast<std::size_t>(rank)].end(), y.begin(),
                                                     y.end());
    }
  };
  //! [custom-use]
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) threads.emplace_back(work, rank);
  for (std::thread& t : threads) t.join();
  return results;
}

/// Whether all values were averaged once after some steps.
bool take_turns_sums_up(std::vector<std::vector<float>> const& input) {
  constexpr std::uint64_t turns = 5;
  std::vector<float> sum(length);
  gq::transport::threads{workers}.run([&](auto& endpoint) {
    take_turns part{gq::adapt::model_layout{}.add("all", {length}), turns, {.seed = 1}};
    std::vector<float> mean(length);
    for (std::uint64_t step = 0; step < turns; ++step) {
      part.reduce(endpoint, input[static_cast<std::size_t>(endpoint.rank())], mean, {}, step);
      for (std::size_t i = 0; endpoint.rank() == 0 && i < length; ++i) sum[i] += mean[i];
    }
  });
  for (std::size_t i = 0; i < length; ++i) {
    float exact = 0;
    for (auto const& x : input) exact += x[i] / workers;
    if (std::fabs(sum[i] - exact) > 1e-6F) return false;
  }
  return true;
}

}  // namespace

int main() {
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  std::vector<std::vector<float>> input(workers, std::vector<float>(length));
  for (int rank = 0; rank < workers; ++rank)
    for (std::size_t i = 0; i < length; ++i)
      input[static_cast<std::size_t>(rank)][i] =
          std::sin(0.37F * static_cast<float>(i) + static_cast<float>(rank)) * (i % 7 == 0 ? 0.01F : 1.0F);
  auto const results = run(input);

  for (auto const& r : results)
    if (r != results[0]) {
      std::cerr << "workers hold different bits\n";
      return EXIT_FAILURE;
    }

  if (!take_turns_sums_up(input)) {
    std::cerr << "values were lost on the way\n";
    return EXIT_FAILURE;
  }
  //! [custom-check]
  gq::check::report const own = gq::check::all(op);
  std::cout << own.text();
  //! [custom-check]
  gq::check::report const over_funnel = gq::check::unbiased(op, {}, funnel{});
  std::cout << over_funnel.text();
  return own.passed() && over_funnel.passed() ? EXIT_SUCCESS : EXIT_FAILURE;
}
