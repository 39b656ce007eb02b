// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: the compile-time error of an incomplete schedule: it names the missing member.

#include "../../core/detail/expect_member.hpp"
#include "../../transport/endpoint.hpp"
#include "../concept.hpp"

namespace GLOBALQ_ABI::schedule::detail {

/// Whether a type may be meant as a schedule: it has one of the members that nothing else has.
template <class S>
inline constexpr bool meant_as_schedule = (
    Schedule<S> || requires(S const& schedule, int workers) { schedule.facts(workers); } ||
    requires(S const& schedule, int workers) { schedule.additions(workers); });

/// @tparam S  a schedule, or a user's incomplete one
template <class S>
struct expect_schedule {
  static constexpr bool complete = Schedule<S>;
  GLOBALQ_EXPECT_MEMBER(
      "schedule", "detail::schedule_facts facts(int workers) const",
      complete || requires(S const& schedule, int workers) {
        { schedule.facts(workers) } -> std::same_as<globalq::detail::schedule_facts>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "schedule", "int parts(int workers) const", complete || requires(S const& schedule, int workers) {
        { schedule.parts(workers) } -> std::same_as<int>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "schedule", "std::vector<std::pair<int, int>> additions(int workers) const",
      complete || requires(S const& schedule, int workers) {
        { schedule.additions(workers) } -> std::same_as<std::vector<std::pair<int, int>>>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "schedule", "call operator (transport, codec, partition, frame_pool) const for any Transport",
      requires(S const& schedule, transport::endpoint& t, codec& c, partition const& cut,
               frame_pool& frames) { schedule(t, c, cut, frames); });
};

}  // namespace GLOBALQ_ABI::schedule::detail
