// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief mean_of_files: the workers as threads of this process.

#include "average.hpp"
#include "launch.hpp"

#include <globalq/transport/threads.hpp>

#include <cstddef>
#include <deque>

namespace mean_of_files {
namespace {

/// Publishes all files, or none.
void publish(std::deque<output_file>& files) {
  try {
    for (output_file& file : files) file.publish();
  } catch (...) {
    for (output_file& file : files) file.withdraw();
    throw;
  }
}

}  // namespace

ending run_on_threads(settings const& chosen) {
  try {
    int const workers = chosen.workers.value_or(4);
    check_patterns(chosen, workers);
    globalq::transport::threads cluster{workers, {.deadline = chosen.deadline}};
    report numbers;
    std::deque<output_file> files;
    for (int rank = 0; rank < workers; ++rank) files.emplace_back(path_of(chosen.output, rank));
    cluster.run([&](auto& endpoint) {
      report const mine = worker{endpoint, chosen}.run(files[static_cast<std::size_t>(endpoint.rank())]);
      if (endpoint.rank() == 0) numbers = mine;
    });
    publish(files);
    return {done, chosen.json ? as_json(numbers) : as_text(numbers), warning(numbers)};
  } catch (agreed_failure const& problem) {
    return {problem.code, problem.what()};
  } catch (globalq::configuration_error const& problem) {
    return {refused, problem.what()};
  } catch (std::exception const& problem) {
    return {failed, problem.what()};
  }
}

}  // namespace mean_of_files
