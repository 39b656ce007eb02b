// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: finds the processes of an MPI communicator that run on one node, and joins them by shared memory.

#include "shared_mapping.hpp"
#include "shared_node.hpp"

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::transport::detail {

/// The processes of a communicator that share memory with this one.
struct mpi_node {
  std::unique_ptr<shared_mapping> mapping;  // outlives the node
  std::unique_ptr<shared_node>
      node;                ///< null: this process is alone on its node, or sharing is off or failed
  std::vector<int> place;  ///< of each rank of the communicator in the node, -1 elsewhere
  int first = 0;           ///< lowest rank of the communicator on this node
  int processes = 1;       ///< of the communicator on this node
  std::string obstacle;    ///< why the node has no shared memory although it was requested

  /// The place of a rank in the node; -1: its messages use MPI, as do those of a process to itself.
  int place_of(int rank) const { return node == nullptr ? -1 : place[static_cast<std::size_t>(rank)]; }
};

/// Joins the processes of this node. All processes of the communicator call it.
/// @param communicator  has the error handler MPI_ERRORS_RETURN
/// @param group         at most this many processes of a node, neighbors in rank, share memory; 0: all
/// @param check         called with the code of each MPI call and its name; throws unless it is MPI_SUCCESS
template <class Check>
mpi_node join_node(MPI_Comm communicator, int group, bool single_copy, std::size_t ring_bytes,
                   std::chrono::nanoseconds longest, Check const& check) {
  struct owned_communicator {
    MPI_Comm comm = MPI_COMM_NULL;
    ~owned_communicator() {
      if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    }
  };
  mpi_node made;
  int rank = 0, size = 0, mine = 0;
  check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  owned_communicator neighbors;
  check(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &neighbors.comm),
        "MPI_Comm_split_type");
  check(MPI_Comm_rank(neighbors.comm, &mine), "MPI_Comm_rank");
  if (group > 0) {
    owned_communicator part;
    check(MPI_Comm_split(neighbors.comm, mine / group, rank, &part.comm), "MPI_Comm_split");
    std::swap(neighbors.comm, part.comm);
    check(MPI_Comm_rank(neighbors.comm, &mine), "MPI_Comm_rank");
  }
  check(MPI_Comm_size(neighbors.comm, &made.processes), "MPI_Comm_size");
  made.first = rank;
  check(MPI_Bcast(&made.first, 1, MPI_INT, 0, neighbors.comm), "MPI_Bcast");
  if (made.processes == 1) return made;

  std::vector<int> ranks(static_cast<std::size_t>(made.processes));
  check(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, neighbors.comm), "MPI_Allgather");
  made.place.assign(static_cast<std::size_t>(size), -1);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    made.place[static_cast<std::size_t>(ranks[i])] = static_cast<int>(i);
  made.place[static_cast<std::size_t>(rank)] = -1;

  shared_plan const plan{made.processes, ring_bytes};
  char name[64] = {};
  int problem = 0;
  made.mapping = std::make_unique<shared_mapping>();
  if (mine == 0) {
    problem = made.mapping->create(plan.bytes());
    if (problem == 0) shared_node::prepare(made.mapping->memory(), plan);
    std::snprintf(name, sizeof name, "%s", made.mapping->name().c_str());
  }
  check(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, neighbors.comm), "MPI_Bcast");
  if (mine != 0 && name[0] != '\0') problem = made.mapping->open(name, plan.bytes());
  int worst = problem;
  check(MPI_Allreduce(&problem, &worst, 1, MPI_INT, MPI_MAX, neighbors.comm), "MPI_Allreduce");
  if (worst != 0) {
    made.obstacle = "the system refused " + std::to_string(plan.bytes()) +
                    " bytes of shared memory: " + std::strerror(worst);
    made.mapping.reset();
    return made;
  }
  made.mapping->unlink();  // all processes have mapped it
  auto node = std::make_unique<shared_node>(made.mapping->memory(), plan, mine, single_copy, longest);
  int complete = node->complete() ? 1 : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &complete, 1, MPI_INT, MPI_MIN, neighbors.comm), "MPI_Allreduce");
  if (complete == 1)
    made.node = std::move(node);
  else
    made.obstacle = "a process of the node did not join in time";
  return made;
}

}  // namespace GLOBALQ_ABI::transport::detail
