// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: measures the error of a call on gradients.

#include "../collective/allreduce_mean.hpp"
#include "../schedule/any.hpp"
#include "../transport/threads.hpp"

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::model {

/// @brief The gradients of workers; their number is the number of workers. Several may be the same memory.
using gradients = std::span<std::span<float const> const>;

/// @brief The result of one call of allreduce_mean, made by threads of this process.
/// @param lengths  of the layers, which are averaged in one call; empty: one layer
/// @throws configuration_error for policies that do not fit together, for lengths that differ, and without gradients
template <class Operator>
std::vector<float> mean_on_threads(Operator const& op, schedule::any const& schedule, gradients of_workers,
                                   std::span<std::uint64_t const> lengths = {}, std::uint64_t seed = 0) {
  if (of_workers.empty())
    throw configuration_error(
        "globalq: model::mean_on_threads: there are no gradients; pass one for each worker");
  std::uint64_t const all = of_workers[0].size();
  if (lengths.empty()) lengths = {&all, 1};
  std::uint64_t sum = 0;
  for (std::uint64_t const length : lengths) sum += length;
  for (std::size_t rank = 0; rank < of_workers.size(); ++rank)
    if (of_workers[rank].size() != sum)
      throw configuration_error("globalq: model::mean_on_threads: rank " + std::to_string(rank) + " of " +
                                std::to_string(of_workers.size()) + ": the gradient has " +
                                std::to_string(of_workers[rank].size()) + " values and the layers have " +
                                std::to_string(sum) + "; pass the layers of these gradients");
  std::vector<float> result;
  transport::threads cluster{static_cast<int>(of_workers.size())};
  cluster.run([&](transport::threads::endpoint& self) {
    std::span<float const> const mine = of_workers[static_cast<std::size_t>(self.rank())];
    std::vector<float> y(mine.begin(), mine.end());
    vector_group layers;
    float* at = y.data();
    for (std::uint64_t const length : lengths) layers.add(at, length), at += length;
    allreduce_mean mean{self, op, schedule, options{.seed = seed}, Kokkos::Serial(Kokkos::NewInstance{})};
    mean(layers, 0);
    if (self.rank() == 0) result = std::move(y);
  });
  return result;
}

/// @brief theta of a result: n ||result - mean||^2 / sum_i ||x_i||^2.
/// @param result      of a call, or a part of it
/// @param of_workers  the same part of the gradient of each worker
/// @returns NaN for gradients that are zero
inline double theta_of(std::span<float const> result, gradients of_workers) {
  double const n = static_cast<double>(of_workers.size());
  double error = 0, squares = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    for (std::span<float const> const x : of_workers) {
      double const value = static_cast<double>(x[i]);
      sum += value;
      squares += value * value;
    }
    double const off = static_cast<double>(result[i]) - sum / n;
    error += off * off;
  }
  return squares == 0 ? std::numeric_limits<double>::quiet_NaN() : n * error / squares;
}

/// @brief theta of a call on given gradients, measured, with every rounding.
///
/// plan::theta bounds its expectation for all vectors. With norms of maxima the bound can be thousands of times as
/// large, because it holds for vectors whose values are all small except one.
/// @returns as theta_of()
/// @throws  as mean_on_threads()
/// @complexity one call on as many threads as there are workers
template <class Operator>
double measured_theta(Operator const& op, schedule::any const& schedule, gradients of_workers,
                      std::uint64_t seed = 0) {
  return theta_of(mean_on_threads(op, schedule, of_workers, {}, seed), of_workers);
}

}  // namespace GLOBALQ_ABI::model
