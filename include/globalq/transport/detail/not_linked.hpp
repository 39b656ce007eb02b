// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Transport: placeholders for transports whose targets are not linked; using one is an error that names the
/// target.

#include "../../core/detail/abi.hpp"

/// Declares a name whose use is a compile-time error with a message. For g++, the type must be dependent: it reports
/// the type before the arguments, where MPI_COMM_WORLD is undeclared too. For clang, an unavailable type; g++ omits its
/// text in places.
#if defined(__clang__)
#define GLOBALQ_NOT_LINKED(name, sentence) struct __attribute__((unavailable(sentence))) name
#else
#define GLOBALQ_NOT_LINKED(name, sentence)   \
  template <class T>                         \
  struct name##_transport {                  \
    static_assert(sizeof(T) == 0, sentence); \
  };                                         \
  using name = name##_transport<int>
#endif

namespace GLOBALQ_ABI {

namespace not_linked {
#if !defined(GLOBALQ_HAS_MPI)
GLOBALQ_NOT_LINKED(mpi,
                   "globalq: transport::mpi is not linked; link the target globalq::mpi, or include "
                   "<globalq/transport/mpi.hpp> and compile with mpicxx");
GLOBALQ_NOT_LINKED(
    shared_memory,
    "globalq: transport::shared_memory is not linked; link the target globalq::mpi and include "
    "<globalq/transport/shared_memory.hpp>");
#endif
#if !defined(GLOBALQ_HAS_NCCL)
GLOBALQ_NOT_LINKED(nccl,
                   "globalq: transport::nccl is not linked; link the target globalq::nccl and include "
                   "<globalq/transport/nccl.hpp>");
#endif
}  // namespace not_linked

namespace transport {
using namespace not_linked;  // a definition in transport itself takes precedence
}  // namespace transport

}  // namespace GLOBALQ_ABI

#undef GLOBALQ_NOT_LINKED
