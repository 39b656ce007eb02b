// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: transport::mpi within a node: joining, messages, failures.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "../mpi.hpp"
#include "mpi_node.hpp"
#include "shared_failure.hpp"
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
    int first;      // lowest rank of its node
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
  MPI_Iprobe(rank_, never_sent, comm_, &flag,
             MPI_STATUS_IGNORE);  // only an unsuccessful probe makes progress
  return true;
}

GLOBALQ_DECL void mpi::wait_within_node(request& transfer) {
  int const place = here_->place_of(transfer.peer_);
  auto const how =
      here_->node->await(*transfer.shared_, place, deadline_, [this] { return move_messages(); });
  if (how == detail::wait_result::done) {
    here_->node->give_back(*transfer.shared_);
    transfer.owner_ = nullptr;
    return;
  }
  fail_within_node(detail::problem_of(*here_->node, how, *transfer.shared_, transfer.sends_, place,
                                      transfer.peer_, deadline_));
}

GLOBALQ_DECL void mpi::allgather_within_node(std::span<std::byte const> mine, std::span<std::byte> all) {
  bool const small = mine.size() <= detail::shared_offer::most_bytes;
  int peer = 0;  // places are ranks here
  auto const how = here_->node->allgather(mine, small ? all : std::span<std::byte>{}, deadline_, peer,
                                          [this] { return move_messages(); });
  if (how != detail::wait_result::done)
    fail_within_node(detail::problem_of(*here_->node, how, mine.size(), peer, peer, deadline_));
  if (!small) return detail::allgather_by_messages(*this, mine, all);
  bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
}

GLOBALQ_DECL void mpi::fail_because_of_another(char const* operation) {
  fail_within_node(
      detail::problem_of(*here_->node, detail::wait_result::failed, operation, 0, 0, {}, deadline_));
}

GLOBALQ_DECL void mpi::fail_within_node(detail::shared_problem const& why) {
  stop(message(why.operation, why.what, why.remedy), why.short_form);
}

}  // namespace GLOBALQ_ABI::transport
