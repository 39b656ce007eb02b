// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: what transport::mpi does within a node: joining, messages, and what other processes have done.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../mpi.hpp"
#include "mpi_node.hpp"
#include "shared_node-inl.hpp"

namespace GLOBALQ_ABI::transport {

GLOBALQ_DECL void mpi::join(sharing const& chosen, reach who) {
  bool const enabled = chosen.enabled && !switched_off("GLOBALQ_SHARED_MEMORY");
  int wanted[2] = {enabled || who == reach::one_node ? 1 : 0,
                   chosen.single_copy && !switched_off("GLOBALQ_SINGLE_COPY") ? 1 : 0};
  check(MPI_Allreduce(MPI_IN_PLACE, wanted, 2, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  if (wanted[0] == 0 || size_ == 1) return;
  *here_ = detail::join_node(comm_, chosen.group, wanted[1] == 1, chosen.ring_bytes, deadline_,
                             [this](int code, char const* call) { check(code, call); });
}

GLOBALQ_DECL void mpi::expect_one_node() {
  int all = shares_memory() + 1 == size_ ? 1 : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  if (all == 1) return;
  struct {          // of each rank
    int first;      // rank of its node
    int processes;  // of its node
    char obstacle[256];
    char node[MPI_MAX_PROCESSOR_NAME];
  } mine = {here_->first, here_->processes, {}, {}};
  std::vector<decltype(mine)> ranks(static_cast<std::size_t>(size_));
  std::snprintf(mine.obstacle, sizeof mine.obstacle, "%s", here_->obstacle.c_str());
  int length = 0;
  check(MPI_Get_processor_name(mine.node, &length), "MPI_Get_processor_name");
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ranks.data(), sizeof mine, MPI_BYTE, comm_),
        "MPI_Allgather");
  std::string nodes;
  for (int rank = 0; rank < size_; ++rank) {
    auto const& each = ranks[static_cast<std::size_t>(rank)];
    if (each.obstacle[0] != '\0')
      refuse_sharing(std::string{each.obstacle} + " (rank " + std::to_string(rank) + " on " + each.node + ")",
                     "enlarge /dev/shm (docker run --shm-size), or use transport::mpi");
    if (each.first != rank) continue;
    nodes += (nodes.empty() ? "" : ", ") + std::to_string(each.processes) + " from rank " +
             std::to_string(rank) + " on " + each.node;
  }
  refuse_sharing("the " + std::to_string(size_) + " processes do not all share memory: " + nodes,
                 "use transport::mpi, which shares memory within each node");
}

GLOBALQ_DECL void mpi::refuse_sharing(std::string const& what, std::string const& remedy) {
  throw configuration_error{"globalq: transport::shared_memory: " + what + "; " + remedy};
}

GLOBALQ_DECL bool mpi::move_messages() {
  if (outstanding_ == 0) return false;
  int flag = 0;
  MPI_Iprobe(rank_, never_sent, comm_, &flag, MPI_STATUS_IGNORE);  // only a failing search makes progress
  return true;
}

GLOBALQ_DECL void mpi::wait_within_node(request& transfer) {
  int const place = here_->place_of(transfer.peer_);
  auto const how =
      here_->node->await(*transfer.shared_, place, deadline_, [this] { return move_messages(); });
  if (how == detail::shared_outcome::done) {
    here_->node->give_back(*transfer.shared_);
    transfer.owner_ = nullptr;
    return;
  }
  if (how == detail::shared_outcome::mismatch)
    fail_sizes(transfer, std::to_string(transfer.shared_->peer_bytes));
  if (how == detail::shared_outcome::late) fail_late(transfer);
  bool const died = how == detail::shared_outcome::died || transfer.shared_->problem == ESRCH;
  if (how == detail::shared_outcome::unreadable && !died)
    stop(message("recv",
                 "could not read " + std::to_string(transfer.bytes_) + " bytes in the memory of rank " +
                     std::to_string(transfer.peer_) + ": " + std::strerror(transfer.shared_->problem),
                 "set GLOBALQ_SINGLE_COPY=off"),
         "the memory of another process could not be read");
  fail_because_of(died ? detail::shared_outcome::died : how, transfer.sends_ ? "send" : "recv",
                  transfer.peer_, missing(transfer));
}

GLOBALQ_DECL void mpi::allgather_within_node(std::span<std::byte const> mine, std::span<std::byte> all) {
  bool const small = mine.size() <= detail::shared_offer::most_bytes;
  int peer = 0;  // places are ranks here
  auto const how = here_->node->allgather(mine, small ? all : std::span<std::byte>{}, deadline_, peer,
                                          [this] { return move_messages(); });
  if (how != detail::shared_outcome::done) broken_ = "an allgather was given up";
  if (how == detail::shared_outcome::mismatch)
    stop(message("allgather",
                 "called with " + std::to_string(mine.size()) + " bytes, but rank " + std::to_string(peer) +
                     " called with " + std::to_string(here_->node->offered_bytes(peer)),
                 "let every worker make the same calls with the same sizes"),
         "sizes of an allgather differed");
  if (how == detail::shared_outcome::late)
    stop(message("allgather",
                 "waited " + detail::seconds_text(deadline_) + " for rank " + std::to_string(peer) +
                     " to take part",
                 "let every worker make the same calls in the same order, or raise options::deadline"),
         "a collective passed its deadline");
  if (how != detail::shared_outcome::done) fail_because_of(how, "allgather", peer, "take part");
  if (!small) return detail::allgather_by_messages(*this, mine, all);
  bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
}

GLOBALQ_DECL void mpi::fail_because_of_another(char const* operation) {
  stop(message(
           operation,
           "rank " + std::to_string(here_->node->failed_rank()) + " failed: " + here_->node->failure_text(),
           "mend what it reports"),
       "another worker failed");
}

GLOBALQ_DECL void mpi::fail_because_of(detail::shared_outcome how, char const* operation, int peer,
                                       std::string const& missing_act) {
  if (how == detail::shared_outcome::failed) fail_because_of_another(operation);
  std::string const who = "rank " + std::to_string(peer);
  if (how == detail::shared_outcome::left)
    stop(message(operation, who + " destroyed its transport and did not " + missing_act,
                 "let every worker make the same calls in the same order"),
         "another worker left");
  stop(message(operation,
               who + " died (process " +
                   std::to_string(here_->node->pid(here_->place[static_cast<std::size_t>(peer)])) +
                   ") and did not " + missing_act,
               "see what ended it, and start the job again"),
       "another worker died");
}

}  // namespace GLOBALQ_ABI::transport
