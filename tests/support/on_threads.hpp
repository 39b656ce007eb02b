// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A function on every worker of a transport over threads.

#include <globalq/transport/threads.hpp>

#include <chrono>

namespace support {

/// f(endpoint) on n threads.
template <class F>
void on_threads(int n, std::chrono::milliseconds deadline, F const& f) {
  globalq::transport::threads cluster{n, {.deadline = deadline}};
  cluster.run([&](auto& workers) { f(workers); });
}
template <class F>
void on_threads(int n, F const& f) {
  on_threads(n, std::chrono::seconds{20}, f);
}

}  // namespace support
