// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A function on every worker of a transport over threads.

#include <globalq/transport/threads.hpp>

#include <chrono>
#include <string>
#include <vector>

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

/// What f(endpoint) throws on each of n threads, as text; empty where it throws no Error.
template <class Error, class F>
std::vector<std::string> complaints(int n, std::chrono::milliseconds deadline, F const& f) {
  std::vector<std::string> texts(static_cast<std::size_t>(n));
  on_threads(n, deadline, [&](auto& workers) {
    try {
      f(workers);
    } catch (Error const& e) {
      texts[static_cast<std::size_t>(workers.rank())] = e.what();
    }
  });
  return texts;
}
template <class Error, class F>
std::vector<std::string> complaints(int n, F const& f) {
  return complaints<Error>(n, std::chrono::seconds{20}, f);
}

}  // namespace support
