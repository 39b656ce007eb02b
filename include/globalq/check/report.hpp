// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief check: what a check found, and what checks can be told.

#include "../core/detail/abi.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

/// Checks of an operator that any test framework can use: are its means unbiased, and do all workers hold the same bits?
namespace GLOBALQ_ABI::check {

/// What checks can be told; the defaults suit most operators.
struct settings {
  int workers = 3;             ///< of unbiased(), variance() and schedules()
  std::uint64_t length = 300;  ///< of their vectors
  std::uint64_t calls =
      20000;  ///< of unbiased() and variance(); twice as many find a bias smaller by about 1.5 times
  /// The largest probability that a check fails a correct operator; check/unbiased.hpp says on what condition.
  double false_alarm = 1e-6;
  std::uint64_t seed = 1;
  /// A vector for each worker, in place of workers and length. Empty: values with tails as heavy as those of gradients.
  std::vector<std::vector<float>> vectors = {};
  int most_workers = 5;  ///< of same_bits(), which has 1, 2, 3, .. of them
};

/// The result of a check.
enum class outcome : std::uint8_t {
  passed,
  failed,
  skipped  ///< does not apply to this operator
};

/// @brief What a check found, for a test (`passed()`) and for a person (`text()`).
struct report {
  outcome result = outcome::passed;
  std::vector<std::string> lines;  ///< sentences

  /// Whether nothing wrong was found; true where the check does not apply.
  [[nodiscard]] bool passed() const { return result != outcome::failed; }

  [[nodiscard]] std::string text() const {
    std::string all;
    for (std::string const& line : lines) all += line + '\n';
    return all;
  }
};

namespace detail {

inline std::string digits(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}
inline std::string percent(double share) { return digits(100 * share) + " %"; }
inline std::string plural(int workers) {
  return std::to_string(workers) + (workers == 1 ? " worker" : " workers");
}

}  // namespace detail
}  // namespace GLOBALQ_ABI::check
