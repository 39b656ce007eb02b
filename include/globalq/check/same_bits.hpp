// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief check: whether all workers hold the same bits, and which schedules an operator fits.

#include "../collective/allreduce_mean.hpp"
#include "../operator/any_quantizer.hpp"
#include "../plan/plan.hpp"
#include "../schedule/any.hpp"
#include "../transport/threads.hpp"
#include "report.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::check {

/// What same_bits() found.
struct bits_report : report {
  std::uint64_t compared = 0;  ///< results of a worker
};

namespace detail {

inline constexpr char const* all_schedules[] = {"ring",      "tree",   "sra",
                                                "allgather", "native", "hierarchical:2"};

/// Lengths around nothing, a bucket and a tile of random words, and some that no power of two divides.
inline constexpr std::size_t awkward_lengths[] = {0, 1, 2, 3, 127, 128, 129, 1000, 4097};

/// Multiples of 2^-9 up to 4 either way, zeros among them.
inline std::vector<float> grid_values(std::size_t length, std::uint64_t seed) {
  std::vector<float> x(length);
  std::uint64_t state = seed;
  for (float& v : x) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    int const k = static_cast<int>(state >> 52);  // below 2^12
    v = k % 8 == 0 ? 0.0F : static_cast<float>(k - 2048) * 0x1p-9F;
  }
  return x;
}

/// The results of all workers, one length after the other, each of two calls.
template <class Schedule>
std::vector<std::vector<std::vector<float>>> all_results(any_quantizer const& op, Schedule const& schedule,
                                                         int n, std::uint64_t chunk, std::uint64_t seed) {
  std::vector<std::vector<std::vector<float>>> all(static_cast<std::size_t>(n));
  transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto& mine = all[static_cast<std::size_t>(workers.rank())];
    for (std::size_t const d : awkward_lengths) {
      if (!plan_for(op, schedule, n, d, dtype::float32, chunk).fits) continue;
      allreduce_mean mean{workers, op, schedule, {.seed = seed, .chunk_values = chunk}};
      std::vector<float> const x = grid_values(d, seed + static_cast<std::uint64_t>(workers.rank()));
      for (std::uint64_t step = 0; step < 2; ++step) mean(x, mine.emplace_back(d), step);
    }
  });
  return all;
}

inline bool same(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Compares the results of all workers, and those of other chunks, with those of worker 0.
template <class Schedule>
void compare_bits(bits_report& r, any_quantizer const& op, std::string const& name, Schedule const& schedule,
                  settings const& how) {
  auto const wrong = [&](std::string const& what) {
    r.result = outcome::failed;
    r.lines.push_back("same bits, " + name + ": " + what);
  };
  for (int n = 1; n <= how.most_workers; ++n) {
    if (!plan_for(op, schedule, n, 1).fits) continue;
    try {
      auto const first = all_results(op, schedule, n, 0, how.seed);
      auto const in_chunks = all_results(op, schedule, n, 256, how.seed);
      for (std::size_t rank = 0; rank < first.size(); ++rank)
        for (std::size_t k = 0; k < first[rank].size(); ++k) {
          r.compared += 2;
          std::string const at = plural(n) + ", " + std::to_string(first[0][k].size()) + " values: worker " +
                                 std::to_string(rank);
          if (!same(first[rank][k], first[0][k]))
            return wrong("DIFFER: " + at + " holds other bits than worker 0");
          if (!same(in_chunks[rank][k], first[0][k]))
            return wrong("DIFFER: " + at + " holds other bits if chunks have 256 values");
        }
    } catch (error const& e) {
      return wrong("FAILED: " + plural(n) + ": " + e.what());
    }
  }
}

}  // namespace detail

/// @brief Whether all workers hold the same bits after calls over a schedule, whatever the length, the number of workers and the
/// chunks.
/// @param op        quantizer, floats, any_quantizer, or these with stages
/// @param schedule  one of yours, or of the library
/// @pre Kokkos is initialized
/// @returns failed if bits differ, or if a call throws that its plan allows
template <class Schedule>
bits_report same_bits(any_quantizer const& op, settings const& how, Schedule const& schedule) {
  bits_report r;
  std::string const name = schedule.facts(std::max(1, how.workers)).name;
  detail::compare_bits(r, op, name, schedule, how);
  if (r.compared == 0)
    r.result = outcome::skipped, r.lines.push_back("same bits, " + name + ": it does not fit");
  if (r.result == outcome::passed)
    r.lines.push_back("same bits, " + name + ": passed: " + std::to_string(r.compared) +
                      " results are equal");
  return r;
}

/// @brief The same over each of the library's schedules that the operator fits.
/// @complexity some hundred calls of 1 to most_workers threads: about a second
inline bits_report same_bits(any_quantizer const& op, settings const& how = {}) {
  bits_report r;
  std::string fit;
  for (char const* name : detail::all_schedules) {
    std::uint64_t const before = r.compared;
    detail::compare_bits(r, op, name, schedule::any{name}, how);
    if (r.compared != before) fit += (fit.empty() ? "" : ", ") + std::string(name);
  }
  if (r.compared == 0 && r.passed()) r.result = outcome::skipped;
  if (r.passed())
    r.lines.push_back("same bits: " +
                      (fit.empty() ? "no schedule fits"
                                   : "passed: " + std::to_string(r.compared) + " results of 1 to " +
                                         detail::plural(how.most_workers) + " are equal, over " + fit));
  return r;
}

/// @brief Which schedules the operator fits, and why it does not fit the others.
/// @returns failed if no schedule fits, or if a call and its plan disagree about that
inline report schedules(any_quantizer const& op, settings const& how = {}) {
  report r;
  bool any_fits = false;
  int const n = how.vectors.empty() ? std::max(1, how.workers) : static_cast<int>(how.vectors.size());
  std::uint64_t const d = how.vectors.empty() ? how.length : how.vectors[0].size();
  for (char const* name : detail::all_schedules) {
    schedule::any const over{name};
    plan const p = plan_for(op, over, n, d);
    any_fits = any_fits || p.fits;
    std::string refused;
    try {
      transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
      cluster.run([&](auto& workers) { allreduce_mean const mean{workers, op, over, {.seed = how.seed}}; });
    } catch (error const& e) {
      refused = e.what();
    }
    std::string const start = "schedules, " + std::string(name) + ": ";
    if (p.fits != refused.empty()) {
      r.result = outcome::failed;
      r.lines.push_back(start + "DISAGREE: the plan says \"" + (p.fits ? "fits" : p.refusal) +
                        "\", the call \"" + (refused.empty() ? "fits" : refused) + '"');
    } else if (p.fits) {
      r.lines.push_back(start + "fits: " + detail::digits(p.bits_per_value) + " bits a value, " +
                        std::to_string(p.rounding_steps) +
                        (p.rounding_steps == 1 ? " rounding" : " roundings") +
                        (std::isnan(p.theta) ? ", no bound" : ", theta at most " + detail::digits(p.theta)));
    } else {
      r.lines.push_back(start + "does not fit: " + p.refusal);
    }
  }
  if (!any_fits) r.result = outcome::failed;
  return r;
}

}  // namespace GLOBALQ_ABI::check
