// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Transport: worker 0 decides, and all hear what it decided, or why it could not.

#include "../core/error.hpp"
#include "collectives.hpp"

#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>

namespace GLOBALQ_ABI::transport {

/// @brief What worker 0 decided. It lies in memory that outlasts an exchange that is given up (see keeping()).
template <class Value>
requires std::is_trivially_copyable_v<Value>
struct decision {
  Value value{};
  std::uint32_t failed = 0;
  char text[764] = {};  ///< why there is no value; cut off where it is longer
};

/// @brief Gives every worker what decide() returns at worker 0. All call.
///
/// For what workers would compute differently, since they are different machines: predictions, solvers that use exp and log.
/// @param who     decides, for errors: "adapt::agree: the solver"
/// @param decide  decide() -> Value; only worker 0 calls it
/// @returns       the same bits on every worker
/// @throws        on every worker alike: configuration_error with the text of what decide() throws; transport_error
/// @complexity    the bytes of a decision down a tree
template <Transport T, class Value, class Decide>
Value const& root_decides(T& t, decision<Value>& d, char const* who, Decide const& decide) {
  d.failed = 0;
  if (t.rank() == 0) {
    auto const fail = [&](char const* text) {
      d.failed = 1;
      std::strncpy(d.text, text, sizeof d.text - 1);
    };
    try {
      d.value = decide();
    } catch (std::exception const& e) {
      fail(e.what());
    } catch (...) {
      fail(("globalq: " + std::string(who) + " threw something that is no std::exception").c_str());
    }
  }
  broadcast(t, 0, std::as_writable_bytes(std::span(&d, 1)));
  if (d.failed != 0) throw configuration_error(d.text);
  return d.value;
}

}  // namespace GLOBALQ_ABI::transport
