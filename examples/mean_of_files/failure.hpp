// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: failures that are reported on all workers.

#include "options.hpp"

#include <globalq/transport/collectives.hpp>

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace mean_of_files {

/// @brief Ends the run on every worker, with one exit code and one message.
struct agreed_failure : std::runtime_error {
  agreed_failure(exit_code with, std::string const& text) : std::runtime_error{text}, code{with} {}
  exit_code code;
};

/// @brief The outcome of a worker's part, and a number that must be the same on all workers.
struct outcome {
  exit_code code = done;
  std::string text;
  std::uint64_t must_agree = 0;
};

/// @brief Runs a part of the work on this worker only.
/// @returns what it threw, as an outcome
template <class Work>
outcome attempt(Work&& work) {
  try {
    work();
    return {};
  } catch (globalq::configuration_error const& problem) {
    return {refused, problem.what()};
  } catch (std::exception const& problem) {
    return {failed, problem.what()};
  }
}

/// @brief Returns when every worker is done; all workers call it.
/// @throws agreed_failure on every worker if one failed, with the text of the first; refusals come first
template <globalq::Transport T>
void agree(T& workers, outcome const& mine) {
  struct word {
    std::uint64_t code;
    std::uint64_t must_agree;
  };
  std::vector<word> all(static_cast<std::size_t>(workers.size()));
  globalq::transport::allgather_value(workers, word{static_cast<std::uint64_t>(mine.code), mine.must_agree},
                                      std::span{all});
  for (exit_code const code : {refused, failed}) {
    for (int rank = 0; rank < workers.size(); ++rank) {
      if (all[static_cast<std::size_t>(rank)].code != static_cast<std::uint64_t>(code)) continue;
      char text[1024] = {};
      if (rank == workers.rank()) std::strncpy(text, mine.text.c_str(), sizeof text - 1);
      globalq::transport::broadcast(workers, rank, std::as_writable_bytes(std::span{text}));
      throw agreed_failure{code, text};
    }
  }
  for (int rank = 1; rank < workers.size(); ++rank)
    if (all[static_cast<std::size_t>(rank)].must_agree != all[0].must_agree)
      throw agreed_failure{
          failed, "rank " + std::to_string(rank) + " was given other options than rank 0 (--repeat " +
                      std::to_string(all[static_cast<std::size_t>(rank)].must_agree) + " and " +
                      std::to_string(all[0].must_agree) + "); give all ranks the same"};
}

}  // namespace mean_of_files
