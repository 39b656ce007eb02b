// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: errors of exchanges between processes that share memory.

#include "../collectives.hpp"
#include "shared_node.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

namespace GLOBALQ_ABI::transport::detail {

/// Describes the failure of an exchange within a node.
struct shared_problem {
  char const* operation;
  std::string what, remedy;
  char const* short_form;  ///< for later calls
};

/// @param place    of the peer in the node
/// @param peer     its rank
/// @param missing  the missing action of the peer: "take part"
inline shared_problem problem_of(shared_node& node, wait_result how, char const* operation, int place,
                                 int peer, std::string const& missing, std::chrono::nanoseconds deadline) {
  std::string const who = "rank " + std::to_string(peer);
  switch (how) {
    case wait_result::failed:
      return {operation, "rank " + std::to_string(node.failed_rank()) + " failed: " + node.failure_text(),
              "fix that error first", "another worker failed"};
    case wait_result::left:
      return {operation, who + " destroyed its transport and did not " + missing,
              "let every worker make the same calls in the same order", "another worker left"};
    case wait_result::died:
      return {operation,
              who + " died (process " + std::to_string(node.pid(place)) + ") and did not " + missing,
              "see what ended it, and start the job again", "another worker died"};
    default:
      return {operation, "waited " + seconds_text(deadline) + " for " + who + " to " + missing,
              "let every worker make the same calls in the same order, or raise options::deadline",
              "a wait passed its deadline"};
  }
}

/// As above, for a transfer.
inline shared_problem problem_of(shared_node& node, wait_result how, shared_transfer const& t, bool sends,
                                 int place, int peer, std::chrono::nanoseconds deadline) {
  std::string const who = "rank " + std::to_string(peer), bytes = std::to_string(t.bytes) + " bytes";
  if (how == wait_result::mismatch)
    return {"recv", "expected " + bytes + " from " + who + ", which sent " + std::to_string(t.peer_bytes),
            "use the same size for a send and its receive", "sizes of a send and its receive differed"};
  if (how == wait_result::unreadable && t.problem != ESRCH)
    return {"recv", "could not read " + bytes + " in the memory of " + who + ": " + std::strerror(t.problem),
            "set GLOBALQ_SINGLE_COPY=off", "the memory of another process could not be read"};
  return problem_of(node, how == wait_result::unreadable ? wait_result::died : how, sends ? "send" : "recv",
                    place, peer, (sends ? "receive " : "send ") + bytes, deadline);
}

/// As above, for an allgather of @p bytes bytes.
inline shared_problem problem_of(shared_node& node, wait_result how, std::size_t bytes, int place, int peer,
                                 std::chrono::nanoseconds deadline) {
  if (how == wait_result::mismatch)
    return {"allgather",
            "called with " + std::to_string(bytes) + " bytes, but rank " + std::to_string(peer) +
                " called with " + std::to_string(node.offered_bytes(place)),
            "let every worker make the same calls with the same sizes", "sizes of an allgather differed"};
  return problem_of(node, how, "allgather", place, peer, "take part", deadline);
}

}  // namespace GLOBALQ_ABI::transport::detail
