// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: whether the MPI library moves CUDA device memory. The MPI standard has no query; libraries do.

#include "../../core/detail/abi.hpp"

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace GLOBALQ_ABI::transport::detail {

/// Queries Open MPI and its derivatives (MPIX_Query_cuda_support), or MPICH (MPIX_GPU_query_support).
/// @pre MPI is initialized
inline bool mpi_takes_cuda() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  int supported = 0;
  return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported != 0;
#else
  return false;
#endif
}

}  // namespace GLOBALQ_ABI::transport::detail
