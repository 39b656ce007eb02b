// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Gradient descent that sends the signs of the largest values.

#include "largest_signs.hpp"
#include "regression.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/transport/collectives.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace convex {

/// @brief What workers send.
enum class descent {
  float32,        ///< gradients to the owners of their shards, and the shards of the mean to all, as float32
  signs_of_mean,  ///< gradients as float32, and the shards of the mean as signs
  signs_of_workers  ///< each worker's own gradient as signs
};

/// @brief A run of gradient descent.
struct descent_run {
  std::vector<double> gaps;      ///< at the start and after each `every` steps; at rank 0
  std::uint64_t steps = 0;       ///< that were made
  std::uint64_t signs = 0;       ///< that all workers sent together
  double code_bits = 0;          ///< in this worker's frames
  double bound_bits = 0;         ///< bound on them by bits_of_signs
  std::uint64_t frames = 0;      ///< that this worker sent
  std::uint64_t sum_bytes = 0;   ///< sent by this worker to form means
  std::uint64_t step_bytes = 0;  ///< sent by this worker to distribute steps
};

/// @brief Sends frames of different lengths to all: lengths first, then frames, each as long as the longest.
template <class Transport>
class frame_exchange {
 public:
  explicit frame_exchange(Transport& workers) : workers_(workers) {}

  /// @returns every worker's frame, in rank order, valid until the next call
  std::vector<std::span<std::byte const>> operator()(std::span<std::byte const> mine) {
    auto const n = static_cast<std::size_t>(workers_.size());
    auto const length = static_cast<std::uint32_t>(mine.size());
    lengths_.resize(n);
    globalq::transport::allgather(workers_, std::as_bytes(std::span(&length, 1)),
                                  std::as_writable_bytes(std::span(lengths_)));
    std::size_t const longest = *std::max_element(lengths_.begin(), lengths_.end());
    own_.assign(longest, std::byte{0});
    std::copy(mine.begin(), mine.end(), own_.begin());
    all_.resize(longest * n);
    globalq::transport::allgather(workers_, std::span<std::byte const>(own_), std::span(all_));
    std::vector<std::span<std::byte const>> frames;
    for (std::size_t r = 0; r < n; ++r) frames.push_back(std::span(all_).subspan(r * longest, lengths_[r]));
    return frames;
  }

 private:
  Transport& workers_;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::byte> own_, all_;
};

/// @brief Descends on one worker; all workers call it with the same arguments and go through the same points.
/// @param step      of the descent
/// @param accuracy  gap over that of the start, at which the run ends
/// @param every     steps between measurements of the gap
template <class Transport>
descent_run descend(Transport& workers, regression const& f, descent how, double step, double accuracy,
                    std::uint64_t most_steps, std::uint64_t every) {
  auto const size = static_cast<std::uint64_t>(f.values());
  share const own(f.samples(), workers.rank(), workers.size());
  globalq::reduce_scatter_mean sum{workers, globalq::uncompressed{}};
  globalq::all_gather gather{workers, globalq::uncompressed{}};
  frame_exchange exchange{workers};
  sign_frame frame;
  std::vector<float> message(size);
  std::vector<double> part;
  std::vector<std::int8_t> codes;
  std::vector<std::byte> bytes(frame.capacity(size));
  descent_run run;

  /// x -= scale * the decoded frames of all workers; each covers the values from first_of(its worker)
  auto const tell = [&](std::span<double const> mine, auto const& part_of, double scale, VectorXd& x) {
    codes.resize(mine.size());
    double const norm = keep_largest_signs(mine, codes);
    std::size_t const used = frame.encode(norm, codes, bytes);
    auto const signs =
        static_cast<double>(mine.size()) - static_cast<double>(std::count(codes.begin(), codes.end(), 0));
    run.code_bits += 8.0 * static_cast<double>(used);
    run.bound_bits += bits_of_signs(static_cast<double>(mine.size()), signs, 32);
    run.frames += 1;
    auto const all = exchange(std::span<std::byte const>(bytes).first(used));
    for (int r = 0; r < workers.size(); ++r) {
      globalq::segment const there = part_of(r);
      codes.resize(there.count);
      double const length = scale * frame.decode(all[static_cast<std::size_t>(r)], codes);
      for (std::uint64_t k = 0; k < there.count; ++k)
        if (codes[k] != 0) {
          x(static_cast<Index>(there.first + k)) -= codes[k] * length;
          ++run.signs;
        }
    }
  };

  VectorXd x = VectorXd::Zero(f.values());
  run.gaps.push_back(f.gap(x));
  while (run.steps < most_steps) {
    VectorXd const gradient = f.gradient(x, own.first, own.count);
    std::uint64_t const before = workers.bytes_sent();
    if (how == descent::signs_of_workers) {
      tell(
          {gradient.data(), size},
          [&](int) {
            return globalq::segment{0, size};
          },
          step / workers.size(), x);
      run.step_bytes += workers.bytes_sent() - before;
    } else {
      for (std::uint64_t k = 0; k < size; ++k)
        message[k] = static_cast<float>(gradient(static_cast<Index>(k)));
      sum(std::span(message), run.steps);
      std::uint64_t const between = workers.bytes_sent();
      if (how == descent::float32) {
        gather(std::span(message), run.steps);
        for (std::uint64_t k = 0; k < size; ++k)
          x(static_cast<Index>(k)) -= step * static_cast<double>(message[k]);
      } else {
        auto const part_of = [&](int rank) { return sum.shard(size, rank); };
        globalq::segment const mine = part_of(workers.rank());
        part.assign(message.begin() + static_cast<std::ptrdiff_t>(mine.first),
                    message.begin() + static_cast<std::ptrdiff_t>(mine.first + mine.count));
        tell(part, part_of, step, x);
      }
      run.sum_bytes += between - before;
      run.step_bytes += workers.bytes_sent() - between;
    }
    if (++run.steps % every != 0) continue;
    run.gaps.push_back(f.gap(x));  // each worker computes the same number
    if (run.gaps.back() <= accuracy * run.gaps.front()) break;
  }
  return run;
}

}  // namespace convex
