// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief core: the exceptions that globalq throws.
///
/// Every message reads `globalq: <operation>: rank R of N: <what is wrong, with numbers>; <remedy>`. The rank is left
/// out where there is none yet (a policy that cannot be built, a plan without a transport).

#include "detail/joined.hpp"

#include <stdexcept>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI {

namespace detail {
/// The text with '?' for control characters.
inline std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return text;
}
}  // namespace detail

/// @brief Base class of all exceptions of globalq.
struct error : std::runtime_error {
  /// @param text  control characters become '?', because texts contain names that users chose
  explicit error(std::string const& text) : std::runtime_error(detail::printable(text)) {}
};

/// @brief The configuration cannot work. Thrown on the host, in general before any byte is sent.
struct configuration_error : error {
  using error::error;
};

/// @brief Workers called with different lengths, operators, schedules, seeds or steps.
///
/// The handshake of a call detects it, so every worker throws it in the same call. Outputs are unchanged.
struct disagreement_error : error {
  using error::error;
};

/// @brief A transfer failed: a deadline passed, a worker left, sizes differ, or a library reported an error.
///
/// The transport is unusable afterwards, unless its documentation says otherwise.
struct transport_error : error {
  using error::error;
};

/// @brief A worker's input contains NaN or infinity, or a result exceeds the range of its type, and the call is
///        configured to report that.
struct non_finite_error : error {
  using error::error;
};

/// @brief Bytes are not a frame of the expected kind.
struct frame_error : error {
  using error::error;
};

namespace detail {

/// @brief Throws an Error whose text is the concatenated parts. See joined().
template <class Error>
[[noreturn]] GLOBALQ_CALLED void fail(std::initializer_list<text_part> parts) {
  throw Error(joined(parts));
}

/// @brief Returns the message `globalq: <operation>: rank R of N: <what>`.
/// @param operation  the function that was called, for instance "recv"
/// @param rank       the worker that reports, in [0, workers)
/// @param workers    number of workers
/// @param what       what is wrong, with numbers, and the remedy
GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what);

/// The same, ending in `<what>; <remedy>`.
GLOBALQ_DECL std::string worker_message(std::string_view operation, int rank, int workers,
                                        std::string_view what, std::string_view remedy);

}  // namespace detail
}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "error-inl.hpp"
#endif
