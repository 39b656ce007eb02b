// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: processes of one node, joined by memory that they share.

#include <memory>
#include <string_view>

#include "../core/detail/abi.hpp"
#include "globalq/transport/mpi.hpp"

namespace GLOBALQ_ABI::transport {

/// @brief One process of an MPI communicator whose processes all run on one node.
///
/// This is transport::mpi with a guarantee: no message between workers goes by MPI, which starts the processes
/// and adds the lanes of allreduce_sum. Use it to be told when that cannot be had; transport::mpi uses shared
/// memory within nodes by itself.
///
/// @code
/// transport::shared_memory workers{MPI_COMM_WORLD};
/// @endcode
class shared_memory : public mpi {
 public:
  /// @brief Joins the processes of a communicator; all of them call it.
  /// @param communicator  an intracommunicator; it is copied, and not used afterwards
  /// @param settings      the deadline of each wait; above 0, and counted as at most a year
  /// @param within_node   `enabled` and the environment variable GLOBALQ_SHARED_MEMORY do not matter
  /// @throws              configuration_error, on every worker, when the processes run on several nodes or the
  ///                      system refuses shared memory; else as transport::mpi
  explicit shared_memory(MPI_Comm communicator, options settings = {}, sharing within_node = {})
      : mpi{communicator, settings, largest_piece, within_node, reach::one_node} {}

  [[nodiscard]] std::string_view name() const noexcept { return "shared_memory"; }
};

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<endpoint> make_endpoint(shared_memory& t);
#endif

}  // namespace GLOBALQ_ABI::transport
