// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: definitions of facts_of.hpp: the name of an operator.

#include "facts_of.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::string order_name(std::uint32_t order) { return order == infinity ? "inf" : number(order); }

GLOBALQ_DECL void name_facts(operator_facts& f, declared const* own, declared const& levels,
                             declared const& rounding, declared const& wire, declared const& reduce) {
  f.policies = 0;
  for (declared const* d : {own, &levels, &rounding, &wire, &reduce}) {
    if (d == nullptr || (d == &reduce && f.reduce != request::user)) continue;
    f.policies = hash(f.policies, d->name);
    if (d->has_parameters) f.policies = hash(f.policies, d->parameters);
  }
  auto const unless_zero = [](char const* before, std::uint64_t x) {
    return x == 0 ? std::string() : joined({before, x});
  };
  bool const varying = f.most_bytes != nullptr;
  f.wire =
      joined({wire.name, unless_zero(varying ? ":int" : ":", (varying ? f.wire_bits != 8 : !f.integer_wire)
                                                                 ? static_cast<std::uint64_t>(f.wire_bits)
                                                                 : 0)});
  std::string norm = "fixed";
  if (own != nullptr)
    norm = joined({f.local ? "local:" : "", own->name});
  else if (f.fixed_scale <= 0)
    norm = f.local                              ? joined({"local:", order_name(f.q)})
           : f.q == infinity && f.p == infinity ? "linf"
                                                : joined({"l:", order_name(f.q), ",", order_name(f.p)});
  char const* const rounded = f.q.byte == scale_byte::e4m3       ? "two-level:"
                              : f.q.byte == scale_byte::exponent ? "shared-exponent:"
                              : f.q.rounds_up()                  ? "power-of-two:"
                                                                 : "";
  f.name = joined({rounded, norm, unless_zero(" bucket ", f.bucket), " ", levels.name,
                   unless_zero(":", f.size), " ", rounding.name, " ", f.wire, " ", reduce.name});
}

}  // namespace GLOBALQ_ABI::detail
