// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Training: one worker's loop of gradient, mean over the workers, momentum step.

#include "data.hpp"
#include "mlp.hpp"

#include <Eigen/Dense>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace digits {

/// @brief The settings that are the same for every operator and every worker.
struct settings {
  std::vector<Eigen::Index> widths{num_pixels, 960, 960, num_classes};
  std::uint64_t steps = 150;
  std::size_t batch = 32;  ///< pictures a worker and step
  float learning_rate = 0.015F;
  float momentum = 0.9F;
  std::uint64_t warm_up = 10;         ///< steps over which the learning rate rises from 0
  std::uint64_t evaluate_every = 10;  ///< steps between evaluations on the test pictures
  std::uint64_t seed = 42;
};

/// @brief One worker's calls to the others. Type-erased, so that the loop is compiled once for all operators and
/// transports.
struct endpoint {
  int rank;
  int size;
  std::function<void(std::span<float>, std::uint64_t)> mean;  ///< in place; (values, step)
  std::function<void(std::span<std::byte const>, std::span<std::byte>)> allgather;  ///< (mine, all)
  std::function<std::uint64_t()> bytes_sent;  ///< since the transport began
};

/// @brief One step of a run, seen over all workers.
struct step_record {
  std::uint64_t step = 0;          ///< 1 is the first
  std::uint64_t bytes_so_far = 0;  ///< sent by the busiest worker
  double loss = 0.0;               ///< of the step's batches, before the update, nats
  std::optional<double> accuracy;  ///< of the test pictures after the update; at rank 0, where evaluated
};

/// @brief The result of a run with one operator. The accuracy is known at rank 0, everything else on every worker.
struct result {
  std::string name;
  std::string schedule;
  double bits_per_value = 0.0;
  std::uint64_t bytes_a_step = 0;      ///< of the busiest worker
  double communication_seconds = 0.0;  ///< median over steps of the maximum over workers
  double accuracy = 0.0;               ///< share of the test pictures, after the last step
  double final_loss = 0.0;             ///< over all training pictures, after the last step, nats
  bool identical = false;              ///< all workers ended with the same parameters, bit for bit
  bool is_eight_bits = false;          ///< must come within a point of float32
  std::vector<std::uint64_t>
      learned_at;              ///< steps before whose mean levels changed, 1 is the first; left to the caller
  std::vector<double> levels;  ///< that were learned last; left to the caller
  std::vector<step_record> curve;
};

namespace detail {

/// Every worker's `mine`, in rank order; all bring the same number of elements.
template <class T>
std::vector<T> gather(endpoint const& workers, std::span<T const> mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(workers.size));
  workers.allgather(std::as_bytes(mine), std::as_writable_bytes(std::span{all}));
  return all;
}

/// FNV-1a over 64 bits (Fowler, Noll and Vo), by words of 32 bits.
inline std::uint64_t hash(std::span<float const> values) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (float value : values) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    h = (h ^ word) * 0x100000001b3U;
  }
  return h;
}

/// Linear warm-up, then half a cosine down to 0 (Loshchilov and Hutter 2017).
inline float learning_rate(settings const& s, std::uint64_t step) {
  if (step < s.warm_up) return s.learning_rate * static_cast<float>(step + 1) / static_cast<float>(s.warm_up);
  double const done = static_cast<double>(step - s.warm_up) / static_cast<double>(s.steps - s.warm_up);
  return s.learning_rate * static_cast<float>(0.5 * (1.0 + std::cos(std::numbers::pi * done)));
}

inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace detail

/// @brief Trains one model with one operator. Every worker calls it with the same settings and data.
/// @param workers   this worker's endpoint
/// @param data      the whole set; each worker takes its own batches from it
/// @param s         the same on every worker
/// @param progress  called at rank 0 after each step, with the loss of rank 0's batch
/// @returns         the run; name, schedule and bits_per_value are left to the caller
/// @throws          what the library throws: the same on every worker
/// @determinism     a pure function of settings, data, operator and number of workers, except for the times
inline result train(endpoint const& workers, dataset const& data, settings const& s,
                    std::function<void(std::uint64_t step, double loss)> const& progress) {
  using clock = std::chrono::steady_clock;
  mlp model{s.widths, s.seed};
  batch_dealer dealer{data.train, s.batch, workers.rank, workers.size, s.seed};
  Eigen::VectorXf velocity = Eigen::VectorXf::Zero(model.parameters().size());
  std::span<float> const gradient{model.gradient().data(), static_cast<std::size_t>(model.gradient().size())};

  std::vector<double> losses(s.steps), seconds(s.steps);
  std::vector<std::uint64_t> bytes(s.steps);
  result run;
  run.curve.resize(s.steps);

  for (std::uint64_t step = 0; step < s.steps; ++step) {
    losses[step] = model.differentiate(dealer.deal(step));

    std::byte const here{1};
    detail::gather<std::byte>(workers, {&here, 1});  // a barrier: waiting for others is not communication
    std::uint64_t const before = workers.bytes_sent();
    auto const begin = clock::now();
    workers.mean(gradient, step);
    seconds[step] = std::chrono::duration<double>(clock::now() - begin).count();
    bytes[step] = workers.bytes_sent() - before;

    velocity = s.momentum * velocity + model.gradient();
    model.parameters() -= detail::learning_rate(s, step) * velocity;

    if (workers.rank == 0) {
      if ((step + 1) % s.evaluate_every == 0 || step + 1 == s.steps)
        run.curve[step].accuracy = model.evaluate(data.test).accuracy;
      progress(step + 1, losses[step]);
    }
  }

  std::uint64_t const mine =
      detail::hash({model.parameters().data(), static_cast<std::size_t>(model.parameters().size())});
  auto const hashes = detail::gather<std::uint64_t>(workers, {&mine, 1});
  run.identical = std::all_of(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h == hashes[0]; });

  auto const all_losses = detail::gather<double>(workers, losses);
  auto const all_seconds = detail::gather<double>(workers, seconds);
  auto const all_bytes = detail::gather<std::uint64_t>(workers, bytes);
  auto const size = static_cast<std::size_t>(workers.size);
  std::vector<std::uint64_t> totals(size);
  for (std::size_t step = 0; step < s.steps; ++step) {
    double loss = 0.0, slowest = 0.0;
    for (std::size_t w = 0; w < size; ++w) {
      loss += all_losses[w * s.steps + step];
      slowest = std::max(slowest, all_seconds[w * s.steps + step]);
      totals[w] += all_bytes[w * s.steps + step];
    }
    run.curve[step].step = step + 1;
    run.curve[step].loss = loss / static_cast<double>(size);
    run.curve[step].bytes_so_far = *std::max_element(totals.begin(), totals.end());
    seconds[step] = slowest;
  }
  run.bytes_a_step = run.curve.back().bytes_so_far / s.steps;
  run.communication_seconds = detail::median(seconds);
  if (workers.rank == 0) {
    run.accuracy = *run.curve.back().accuracy;
    run.final_loss = model.evaluate(data.train).loss;
  }
  return run;
}

}  // namespace digits
