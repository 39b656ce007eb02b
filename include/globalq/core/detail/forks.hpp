// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: counts forks, because a forked process has only one of the threads of its parent.

#include "abi.hpp"

#include <cstdint>

#include <pthread.h>

namespace GLOBALQ_ABI::detail {

/// Number of forks between the start of the program, or the loading of its library, and this process. An object that
/// depends on threads or transports is unusable where the number differs from that at its construction.
inline std::uint64_t forks = 0;
inline int const counts_forks = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });

}  // namespace GLOBALQ_ABI::detail
