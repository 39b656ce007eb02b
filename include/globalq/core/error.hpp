// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Core: the exceptions that globalq throws.
///
/// Every message reads `globalq: <operation>: rank R of N: <what, with numbers>; <remedy>`; the part about
/// the rank is left out where no worker is known yet (a policy that cannot be built, a plan without a
/// transport).

#include "detail/joined.hpp"

#include <stdexcept>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI {

/// @brief The root of everything that globalq throws by itself.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// @brief What was asked for cannot work: thrown on the host before any byte moves.
struct configuration_error : error {
  using error::error;
};

/// @brief Workers called with different lengths, operators, schedules, seeds or steps.
///
/// The opening exchange of a call finds it, so every worker throws it in the same call, outputs untouched.
struct disagreement_error : error {
  using error::error;
};

/// @brief Bytes could not be moved: a deadline passed, a worker left, sizes differ, or a library refused.
///
/// The transport is unusable afterwards, unless its documentation says otherwise.
struct transport_error : error {
  using error::error;
};

/// @brief A worker's input holds NaN or infinity, or a result left the range of its type, and the call was
///        asked to report that. Every worker throws it in the same call, outputs untouched.
struct non_finite_error : error {
  using error::error;
};

/// @brief Bytes that are not a frame of the expected kind; the decoder left its output untouched.
struct frame_error : error {
  using error::error;
};

namespace detail {

/// @brief Throws an Error whose text is the parts, one after the other. See joined().
template <class Error>
[[noreturn]] GLOBALQ_CALLED void fail(std::initializer_list<text_part> parts) {
  throw Error(joined(parts));
}

/// @brief Puts a message together: `globalq: <operation>: rank R of N: <what>`.
/// @param operation  what was called, for instance "recv"
/// @param rank       the worker that reports, in [0, workers)
/// @param workers    how many workers there are
/// @param what       what happened, with its numbers, and the remedy
GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what);

/// `<what>; <remedy>`.
/// @param remedy  what the reader can do about it
GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what, std::string_view remedy);

}  // namespace detail
}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "error-inl.hpp"
#endif
