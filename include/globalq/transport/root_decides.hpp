// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Transport: worker 0 decides, and every worker receives the decision or the error.

#include "../core/detail/forced_unwind.hpp"
#include "../core/error.hpp"
#include "../core/float_environment.hpp"
#include "collectives.hpp"

#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>

namespace GLOBALQ_ABI::transport {

/// @brief A decision of worker 0. It must be in memory that outlives an exchange that is given up (see keeping()).
template <class Value>
requires std::is_trivially_copyable_v<Value>
struct decision {
  Value value{};
  std::uint32_t failed = 0;
  char text[764] = {};  ///< why there is no value; truncated if longer
};

/// @brief Returns to every worker the value of decide() on worker 0. All workers call it.
///
/// For values that may differ between machines, such as predictions or solvers that use exp and log.
/// @param who     name of the decision in errors: "adapt::agree: the solver"
/// @param decide  decide() -> Value; only worker 0 calls it
/// @returns       the same bits on every worker
/// @throws        on every worker alike: configuration_error with the text of an exception of decide(); transport_error
/// @complexity    a broadcast of the decision along a tree
template <Transport T, class Value, class Decide>
Value const& root_decides(T& t, decision<Value>& d, char const* who, Decide const& decide) {
  d.failed = 0;
  if (t.rank() == 0) {
    auto const fail = [&](char const* text) {
      d.failed = 1;
      std::strncpy(d.text, text, sizeof d.text - 1);
    };
    float_environment const exact;  // the decision does not depend on worker 0's settings
    try {
      d.value = decide();
    } catch (std::exception const& e) {
      fail(e.what());
    } catch (globalq::detail::forced_unwind const&) {
      throw;
    } catch (...) {
      fail(("globalq: " + std::string(who) + " threw an exception that is not a std::exception").c_str());
    }
  }
  broadcast(t, 0, std::as_writable_bytes(std::span(&d, 1)));
  if (d.failed != 0) throw configuration_error(d.text);
  return d.value;
}

}  // namespace GLOBALQ_ABI::transport
