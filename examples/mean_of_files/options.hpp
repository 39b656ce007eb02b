// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: the parsed command line.

#include <globalq/collective/allreduce_mean.hpp>

#include <globalq/named/operators.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace mean_of_files {

/// Exit codes, the same on every rank.
enum exit_code : int { done = 0, refused = 2, failed = 3 };

enum class transport_kind : std::uint8_t { threads, mpi };
enum class execution_kind : std::uint8_t { serial, openmp };

/// @brief All settings of a run.
struct settings {
  std::string input;
  std::string output;
  transport_kind transport = transport_kind::threads;
  std::optional<int> workers;  ///< as given; of the threads transport
  globalq::named::description words;
  double clip = 0;                  ///< standard deviations at which inputs are cut off; 0: not at all
  globalq::named::learning learns;  ///< from the inputs, once, before the first mean
  std::string schedule = "ring";
  globalq::dtype dtype = globalq::dtype::float32;
  bool in_place = false;
  std::uint64_t step = 0;
  std::uint64_t repeat = 1;
  execution_kind execution = execution_kind::serial;
  globalq::options call;  ///< seed, chunk_values and non_finite
  std::chrono::nanoseconds deadline = std::chrono::minutes{10};
  bool json = false;
};

/// @brief The result of parsing the command line.
struct command_line {
  enum class result : int { run = 0, help = 1, refused = 2 } outcome = result::run;
  std::string text;  ///< the help, or the reason of the refusal
  settings chosen;
};

/// @brief Reads the command line; nothing is printed.
/// @throws nothing that a user can cause
command_line read_command_line(int argc, char** argv);

/// @brief Whether an MPI launcher started this process.
bool is_under_mpi_launcher();

/// @brief Checks the rules of `%r`, which depend on the number of workers.
/// @throws globalq::configuration_error
void check_patterns(settings const& chosen, int workers);

/// @brief The pattern with each `%r` replaced by the rank.
std::string path_of(std::string const& pattern, int rank);

}  // namespace mean_of_files
