// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the errors of codecs.

#include "operator_codec.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL void operator_codec::set_levels(levels::detail::level_table const&) {
  throw configuration_error(
      "globalq: set_levels: this operator's levels follow from their number; make it with levels::table or "
      "levels::symmetric");
}

GLOBALQ_DECL void operator_codec::add_decoded(segment, std::span<source const>) {
  throw configuration_error("globalq: decode_add: this operator has no codes");
}

GLOBALQ_DECL void operator_codec::check_codes(std::span<source const> sources) {
  if ((faults_ & kernel::bad_sum) != 0)
    throw configuration_error(
        "globalq: combine: rank " + std::to_string(call_.rank) +
        ": the reduce operator gave a code beyond what its largest_code() says, or zero where levels have "
        "none; let "
        "largest_code() return the largest that add() gives (the output is unspecified)");
  if ((faults_ & kernel::bad_code) == 0) return;
  std::string who;
  for (source const& s : sources) who += joined({(who.empty() ? "" : ", "), s.worker});
  fail<frame_error>(
      {"globalq: decode: rank ", call_.rank, ": a code out of range in a frame from worker ", who,
       "; the bytes were damaged or made by another operator, and the output is now unspecified"});
}

GLOBALQ_DECL int operator_codec::terms_of(bool own, std::span<source const> sources) {
  int terms = own ? 1 : 0;
  for (source const& s : sources) terms += s.terms;
  return terms;
}

}  // namespace GLOBALQ_ABI::detail
