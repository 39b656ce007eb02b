// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief collectives: runs the workers as threads of this process.

#include "launch.hpp"
#include "measure.hpp"

#include <globalq/transport/threads.hpp>

namespace globalq::bench {

exit_code run_on_threads(settings const& chosen) {
  transport::threads cluster{chosen.workers};
  report numbers;
  cluster.run([&](auto& endpoint) {
    report mine = worker{endpoint, chosen, {}}.run();
    if (endpoint.rank() == 0) numbers = std::move(mine);
  });
  numbers.transport = "threads";
  return publish(numbers, chosen);
}

}  // namespace globalq::bench
