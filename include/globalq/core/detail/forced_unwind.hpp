// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: how a thread ends by pthread_exit() or pthread_cancel().

#include "abi.hpp"

#include <exception>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

namespace GLOBALQ_ABI::detail {

/// With glibc, pthread_exit() and cancellation unwind the stack with an exception that every handler must rethrow:
/// otherwise glibc aborts the process. Functions of users may end their thread; Python does, when the interpreter has
/// ended. A `catch (...)` around such functions that does not rethrow is therefore preceded by
/// `catch (forced_unwind const&) { throw; }`.
#if defined(__GLIBCXX__)
using forced_unwind = abi::__forced_unwind;
#else
class forced_unwind {
  forced_unwind() = delete;
};
#endif

}  // namespace GLOBALQ_ABI::detail
