// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: exchanges short texts of all workers, for errors of workers that disagree.

#include "../../core/error.hpp"
#include "../../transport/collectives.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// 256 bytes: transport::threads exchanges that many with one barrier, after which no worker waits for another. A
/// worker that then throws and leaves the run does not prevent the others from receiving its text.
struct worker_text {
  char bytes[256] = {};

  worker_text() = default;
  explicit worker_text(std::string const& text) {
    std::size_t const most = sizeof bytes - 1, count = std::min(text.size(), most);
    std::copy_n(text.begin(), count, bytes);
    if (text.size() > most) std::fill_n(bytes + most - 3, 3, '.');
  }
  /// Received bytes are not trusted: the text is terminated and control characters are replaced.
  std::string text() const {
    std::string s(bytes, std::find(bytes, bytes + sizeof bytes, '\0'));
    std::replace_if(
        s.begin(), s.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return s;
  }
};

/// @brief Exchanges a text of each worker; returns text(worker), the same on every worker. All workers call it.
///
/// If the transport fails (for example, a worker of another version may not answer), texts are empty, and the caller's
/// error is thrown without them.
template <Transport T>
auto texts_of_workers(T& t, std::string const& mine) {
  struct memory {  // a transfer may access this memory if the exchange is given up
    worker_text own;
    std::vector<worker_text> all;
  };
  auto const kept = std::make_shared<memory>();
  kept->own = worker_text(mine);
  kept->all.resize(static_cast<std::size_t>(t.size()));
  bool fine = true;
  try {
    transport::keeping(t, kept, [&] {
      transport::allgather(t, std::as_bytes(std::span(&kept->own, 1)),
                           std::as_writable_bytes(std::span(kept->all)));
    });
  } catch (transport_error const&) {
    fine = false;
  }
  return [kept, fine](int who) {
    return fine ? kept->all[static_cast<std::size_t>(who)].text() : std::string();
  };
}

/// " (rank 0: a, rank 2: b)"; empty if both texts are.
inline std::string values_text(std::string const& first, std::string const& other, int who) {
  if (first.empty() && other.empty()) return {};
  if (first == other) return joined({" (both: ", first, ", with other parameters)"});
  return joined({" (rank 0: ", first, ", rank ", who, ": ", other, ")"});
}

}  // namespace GLOBALQ_ABI::detail
