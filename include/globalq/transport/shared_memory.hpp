// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: processes of one node that share memory.

#include "../core/detail/abi.hpp"
#include "mpi.hpp"

#include <memory>
#include <string_view>

namespace GLOBALQ_ABI::transport {

/// @brief One process of an MPI communicator whose processes all run on one node.
///
/// transport::mpi with a guarantee: no message between workers uses MPI. MPI only starts the processes
/// and adds the values of allreduce_sum. Use it if you want an error when the workers cannot share memory;
/// transport::mpi uses shared memory within nodes by itself.
///
/// @code
/// transport::shared_memory workers{MPI_COMM_WORLD};
/// @endcode
class shared_memory : public mpi {
 public:
  /// @brief Joins the processes of a communicator; all of them call it.
  /// @param communicator  an intracommunicator; it is copied, and not used afterwards
  /// @param settings      the deadline of each wait; positive; capped at a year
  /// @param within_node   `enabled` and the environment variable GLOBALQ_SHARED_MEMORY are ignored
  /// @throws              configuration_error, on every worker, if the processes run on several nodes or the
  ///                      system refuses shared memory; otherwise as transport::mpi
  explicit shared_memory(MPI_Comm communicator, options settings = {}, sharing within_node = {})
      : mpi{communicator, settings, largest_piece, within_node, reach::one_node} {}

  [[nodiscard]] std::string_view name() const noexcept { return "shared_memory"; }
};

#if defined(GLOBALQ_COMPILED)
template <>
std::unique_ptr<endpoint> make_endpoint(shared_memory& t);
#endif

}  // namespace GLOBALQ_ABI::transport
