// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: the environment variable with which a call object refuses steps that it has used before.

#include "../../core/detail/environment.hpp"
#include "../../core/detail/joined.hpp"

#include <cstdint>
#include <iterator>
#include <map>
#include <string>

namespace GLOBALQ_ABI::detail {

inline constexpr char const* steps_variable = "GLOBALQ_CHECK_STEPS";

/// The steps whose random bits a call object has drawn, as disjoint intervals: one, if steps are consecutive. Empty,
/// and without memory of its own, unless the variable was set when the object was constructed.
class used_steps {
 public:
  /// Why a call is refused that draws the random bits of @p count steps; empty: it is not.
  /// @param reported  the caller's number of the call
  std::string refusal(std::uint64_t first, std::uint64_t count, std::uint64_t reported) const {
    if (!on_ || count == 0) return {};
    auto const after = ends_.upper_bound(first);  // the first interval that ends behind first
    if (after == ends_.end() || after->second >= first + count) return {};
    return joined({"step ", reported, " draws random bits of an earlier call of this object (",
                   steps_variable,
                   " is set); use each step once, and continue a group of g vectors at step + g"});
  }

  void add(std::uint64_t first, std::uint64_t count) {
    if (!on_ || count == 0) return;
    std::uint64_t begin = first, end = first + count;
    for (auto at = ends_.lower_bound(begin); at != ends_.end() && at->second <= end; at = ends_.erase(at)) {
      begin = begin < at->second ? begin : at->second;
      end = end > at->first ? end : at->first;
    }
    ends_.emplace(end, begin);
  }

 private:
  bool on_ = switched_on(steps_variable);
  std::map<std::uint64_t, std::uint64_t> ends_;  ///< end of each interval -> its begin
};

}  // namespace GLOBALQ_ABI::detail
