// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: definitions of operator_codec.hpp.

#include "operator_codec.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL void operator_codec::set_levels(levels::detail::level_table const&) {
  throw configuration_error(
      "globalq: set_levels: the levels of this operator are fixed; use levels::table or levels::symmetric");
}

GLOBALQ_DECL void operator_codec::add_decoded(segment, std::span<source const>) {
  throw configuration_error("globalq: decode_add: this operator has no codes; use a quantizer");
}

GLOBALQ_DECL std::string bad_sum_text(char const* operation, int rank) {
  return joined(
      {"globalq: ", operation, ": rank ", rank,
       ": add() of the reduce operator returned a code above its largest_code(), or zero for levels "
       "without zero, and the output is unspecified; correct add() or largest_code()"});
}

GLOBALQ_DECL void operator_codec::check_codes(std::span<source const> sources) {
  bool const damaged = (faults_ & kernel::bad_code) != 0;  // then sums are out of range as well
  if ((faults_ & kernel::bad_sum) != 0 && !damaged)
    throw configuration_error(bad_sum_text("combine", call_.rank));
  if (!damaged) return;
  std::string who;
  for (source const& s : sources) who += joined({(who.empty() ? "" : ", "), s.worker});
  fail<frame_error>({"globalq: decode: rank ", call_.rank, ": a code out of range in a frame from worker ",
                     who,
                     ", and the output is unspecified; the bytes were damaged or made by another operator"});
}

GLOBALQ_DECL int operator_codec::terms_of(bool own, std::span<source const> sources) {
  int terms = own ? 1 : 0;
  for (source const& s : sources) terms += s.terms;
  return terms;
}

}  // namespace GLOBALQ_ABI::detail
