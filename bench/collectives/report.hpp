// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief collectives: the results of a run.

#include "options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace globalq::bench {

/// @brief One operator at one size.
struct row {
  std::string name;
  std::uint64_t values = 0;
  std::string refusal;         ///< why it did not run; empty if it ran
  std::uint64_t bytes = 0;     ///< sent in a call by the busiest worker
  bool bytes_modeled = false;  ///< 2 S (n-1)/n is assumed, because MPI libraries do not report bytes
  double seconds = 0;          ///< median over calls of the maximum over workers
  std::uint64_t calls = 0;     ///< timed calls
  bool identical = false;      ///< all workers ended with the same bits
  bool must_be_identical = true;
  bool sends_float32 = false;
  double nmse = 0;   ///< ||result - mean||^2 / ((1/n) sum ||x_i||^2)
  double bound = 0;  ///< of nmse: the plan's theta, and float32's rounding

  bool right() const { return (identical || !must_be_identical) && nmse <= bound; }
};

/// @brief A whole run.
struct report {
  std::string transport;  ///< including the medium of the messages
  int workers = 1;
  int threads = 1;
  double rate = 0;       ///< as in settings
  std::string baseline;  ///< name of the row to compare with
  std::vector<row> rows;

  bool right() const;
};

/// @brief A heading, a table for each size, and notes.
std::string as_markdown(report const& run);

/// @brief Prints the tables, and writes the requested files.
/// @returns  done, or wrong after naming the wrong results on stderr
/// @throws   std::runtime_error if a file cannot be written
exit_code publish(report const& run, settings const& chosen);

}  // namespace globalq::bench
