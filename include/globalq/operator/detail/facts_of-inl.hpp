// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the name of an operator.

#include "facts_of.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::string order_name(std::uint32_t order) { return order == infinity ? "inf" : number(order); }

GLOBALQ_DECL void name_facts(operator_facts& f, declared const& levels, declared const& rounding,
                             declared const& wire, char const* reduce) {
  f.policies = 0;
  for (declared const* d : {&levels, &rounding, &wire}) {
    f.policies = hash(f.policies, d->name);
    if (d->has_parameters) f.policies = hash(f.policies, d->parameters);
  }
  f.wire = wire.name;
  if (f.most_bytes != nullptr ? f.wire_bits != 8 : !f.integer_wire)
    f.wire += (f.most_bytes != nullptr ? ":int" : ":") + number(static_cast<std::uint64_t>(f.wire_bits));
  f.name = f.q.in_byte ? "shared-exponent:" : (f.q.rounds_up() ? "power-of-two:" : "");
  if (f.fixed_unit > 0)
    f.name += "fixed";
  else if (f.local)
    f.name += "local:" + order_name(f.q);
  else if (f.q == infinity && f.p == infinity)
    f.name += "linf";
  else
    f.name += "l:" + order_name(f.q) + "," + order_name(f.p);
  if (f.bucket != 0) f.name += " bucket " + number(f.bucket);
  f.name += " " + levels.name;
  if (f.size != 0) f.name += ":" + number(f.size);
  f.name += " " + rounding.name + " " + f.wire + " " + reduce;
}

}  // namespace GLOBALQ_ABI::detail
