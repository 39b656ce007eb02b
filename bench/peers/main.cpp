// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief globalq_peers: times peers on command, so that peers.py can run them in turn with peers written in Python.
///
/// Reads one command a line from stdin and writes one answer a line to stdout, until stdin ends:
///
///     peers                the names, separated by tabs
///     threads              the largest number of threads of a kernel
///     prepare N THREADS    creates all peers for N values; returns the largest magnitude
///     time I CALLS         seconds of CALLS calls of peer I
///     error I              relative squared error of the result of peer I
///
/// The answer to a command that fails begins with `error: `.

#include "peer.hpp"

#include <globalq/kernel/reduction.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>

namespace {

using namespace globalq;
using namespace globalq::bench;

class server {
 public:
  server() : names_(library_peers()) {
    for (named_peer const& each : published_peers()) names_.push_back(each);
  }

  std::string answer(std::string const& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    std::ostringstream out;
    out.precision(std::numeric_limits<double>::max_digits10);
    if (command == "peers") {
      for (std::size_t i = 0; i < names_.size(); ++i) out << (i == 0 ? "" : "\t") << names_[i].name;
    } else if (command == "threads") {
      out << Kokkos::DefaultHostExecutionSpace().concurrency();
    } else if (command == "prepare") {
      auto const n = number(words);
      out << prepare(n, static_cast<int>(number(words)));
    } else if (command == "time") {
      peer& which = at(number(words));
      out << seconds_of(which, number(words));
    } else if (command == "error") {
      out << at(number(words)).error();
    } else {
      throw std::invalid_argument("unknown command \"" + command + "\"");
    }
    return out.str();
  }

 private:
  static std::uint64_t number(std::istream& words) {
    std::uint64_t n = 0;
    if (!(words >> n)) throw std::invalid_argument("a number is missing");
    return n;
  }

  peer& at(std::uint64_t i) {
    if (i >= peers_.size()) throw std::invalid_argument("there is no peer " + std::to_string(i));
    return *peers_[i];
  }

  double prepare(std::uint64_t n, int threads) {
    peers_.clear();
    kernel::host_executor const on = threads == 1
                                         ? kernel::host_executor(Kokkos::Serial())
                                         : kernel::host_executor(Kokkos::DefaultHostExecutionSpace());
    task t{n, threads, on, gradient<float>(n, 1), gradient<float>(n, 2), 0};
    for (auto const& x : {t.x, t.other}) {
      norm::statistic s;
      std::vector<norm::statistic> parts;
      norm::bucket_statistics(on, n, 0, infinity, norm::input_block{reading(x), infinity}, std::span(&s, 1),
                              parts);
      t.norm = std::max(t.norm, s.max());
    }
    for (named_peer const& each : names_) {
      peers_.push_back(each.make(t));
      peers_.back()->run();
    }
    return t.norm;
  }

  static double seconds_of(peer& which, std::uint64_t calls) {
    auto const start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < calls; ++i) which.run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  std::vector<named_peer> names_;
  std::vector<std::unique_ptr<peer>> peers_;
};

}  // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos(argc, argv);
  server each;
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      std::cout << each.answer(line) << std::endl;
    } catch (std::exception const& problem) {
      std::cout << "error: " << problem.what() << std::endl;
    }
  }
}
