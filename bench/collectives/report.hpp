// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: what a run came to.

#include "options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace globalq::bench {

/// @brief One operator at one size.
struct row {
  std::string name;
  std::uint64_t values = 0;
  std::string refusal;         ///< why it was not run; empty when it was
  std::uint64_t bytes = 0;     ///< sent in a call by the busiest worker
  bool bytes_modeled = false;  ///< 2 S (n-1)/n was assumed: an MPI library does not tell
  double seconds = 0;          ///< median over calls of the maximum over workers
  std::uint64_t calls = 0;     ///< that were counted
  bool identical = false;      ///< all workers ended with the same bits
  bool must_be_identical = true;
  bool sends_float32 = false;
  double nmse = 0;   ///< ||result - mean||^2 / ((1/n) sum ||x_i||^2)
  double bound = 0;  ///< of nmse: the plan's theta, and float32's rounding

  bool right() const { return (identical || !must_be_identical) && nmse <= bound; }
};

/// @brief A whole run.
struct report {
  std::string transport;  ///< with what carried the messages
  int workers = 1;
  int threads = 1;
  double rate = 0;       ///< as in settings
  std::string baseline;  ///< the row that others are compared with
  std::vector<row> rows;

  bool right() const;
};

/// @brief A heading, a table for each size, and what the columns mean.
std::string as_markdown(report const& run);

/// @brief Prints the tables, and writes the files that were asked for.
/// @returns  done, or wrong after saying on stderr which result was
/// @throws   std::runtime_error when a file cannot be written
exit_code publish(report const& run, settings const& chosen);

}  // namespace globalq::bench
