// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief check: all checks of an operator in one call.

#include "same_bits.hpp"
#include "unbiased.hpp"

namespace GLOBALQ_ABI::check {

/// @brief Runs all checks of an operator: schedules(), same_bits(), and over ring, tree, sra and allgather, where they fit,
/// unbiased() and variance().
///
/// @code
/// auto const report = gq::check::all(op);
/// std::cout << report.text();
/// assert(report.passed());
/// @endcode
/// @param op  quantizer, floats, any_quantizer, or these with stages
/// @pre Kokkos is initialized
/// @throws configuration_error when there is nothing to test
/// @complexity seconds with the defaults
inline report all(any_quantizer const& op, settings const& how = {}) {
  report r;
  auto const add = [&r](report const& part) {
    if (part.result == outcome::failed) r.result = outcome::failed;
    r.lines.insert(r.lines.end(), part.lines.begin(), part.lines.end());
  };
  settings each = how;
  each.false_alarm = how.false_alarm / 8;  // of one of eight statistical tests
  add(schedules(op, how));
  add(same_bits(op, how));
  std::string const why = detail::never_unbiased(op);
  if (!why.empty()) r.lines.push_back("unbiased: " + why);
  auto const x = detail::vectors_of(how);
  for (char const* name : {"ring", "tree", "sra", "allgather"}) {
    schedule::any const over{name};
    if (!why.empty() || !plan_for(op, over, static_cast<int>(x.size()), x[0].size()).fits) continue;
    detail::sample const s = detail::sampled(op, over, each);
    add(detail::bias_in(op, s, each));
    if (s.error.empty()) add(detail::variance_in(s, each));
  }
  return r;
}

}  // namespace GLOBALQ_ABI::check
