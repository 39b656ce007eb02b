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

#include <globalq/policies.hpp>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace gq = globalq;

namespace {

constexpr int workers = 4, steps = 4000;
constexpr std::size_t length = 300;

/// Averages a fixed vector of every worker in every step; returns each worker's results, step after step.
std::vector<std::vector<float>> run(std::vector<std::vector<float>> const& input) {
  std::vector<std::vector<float>> results(workers);
  //! [custom-use]
  gq::quantizer const op{three_halves{.bucket = 100}, minifloat<3, 1>{}, dithered{}, network_order{},
                         minifloat_sum<3, 1>{}};
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

  // Each coordinate's mean over the steps is the mean of the inputs, within six of its standard deviations.
  double worst = 0;
  for (std::size_t i = 0; i < length; ++i) {
    double exact = 0, sum = 0, squares = 0;
    for (auto const& x : input) exact += static_cast<double>(x[i]) / workers;
    for (std::size_t step = 0; step < steps; ++step) {
      double const error = static_cast<double>(results[0][step * length + i]) - exact;
      sum += error / steps;
      squares += error * error / steps;
    }
    double const deviation = std::sqrt(std::max(squares - sum * sum, 0.0) / steps);
    worst = std::max(worst, std::fabs(sum) / (deviation + 1e-7));
  }
  if (!take_turns_sums_up(input)) {
    std::cerr << "values were lost on the way\n";
    return EXIT_FAILURE;
  }
  std::cout << "identical on " << workers << " workers; of " << length << " coordinates the most biased lies "
            << worst << " standard deviations from its mean over " << steps << " steps\n";
  return worst < 6 ? EXIT_SUCCESS : EXIT_FAILURE;
}
