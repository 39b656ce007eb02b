// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Comparisons, predicates and choices by them.

#include "apply.hpp"
#include "handlers.hpp"

#include <cmath>
#include <string_view>

namespace emulator {
namespace {

enum comparison : uint8_t {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  equ,
  neu,
  ltu,
  leu,
  gtu,
  geu,
  num,
  nan_,
  lo,
  ls,
  hi,
  hs,
  unknown_comparison
};

comparison comparison_of(opcode const& op) {
  constexpr std::string_view names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge", "equ", "neu", "ltu",
                                        "leu", "gtu", "geu", "num", "nan", "lo", "ls",  "hi",  "hs"};
  for (auto const word : op.modifiers) {
    for (unsigned k = 0; k < std::size(names); ++k) {
      if (names[k] == word) return static_cast<comparison>(k);
    }
  }
  return unknown_comparison;
}

template <class T>
bool compared(comparison how, T a, T b) {
  bool const unordered = a != a || b != b;
  switch (how) {
    case eq:
      return a == b;
    case ne:
      return !unordered && a != b;
    case lt:
    case lo:
      return a < b;
    case le:
    case ls:
      return a <= b;
    case gt:
    case hi:
      return a > b;
    case ge:
    case hs:
      return a >= b;
    case equ:
      return unordered || a == b;
    case neu:
      return unordered || a != b;
    case ltu:
      return unordered || a < b;
    case leu:
      return unordered || a <= b;
    case gtu:
      return unordered || a > b;
    case geu:
      return unordered || a >= b;
    case num:
      return !unordered;
    default:
      return unordered;
  }
}

template <class T>
void compare(step& s, instruction const& i) {
  row const& a = s.value(i.from[0]);
  row const& b = s.value(i.from[1]);
  uint32_t result = 0;
  auto const how = static_cast<comparison>(i.variant);
  auto const all = [&]<comparison How>() {
    for (uint32_t l = 0; l < lanes; ++l)
      result |= static_cast<uint32_t>(compared(How, as<T>(a[l]), as<T>(b[l]))) << l;
  };
  switch (how) {  // the usual ones without a switch a lane
    case eq:
      all.template operator()<eq>();
      break;
    case ne:
      all.template operator()<ne>();
      break;
    case lt:
      all.template operator()<lt>();
      break;
    case gt:
      all.template operator()<gt>();
      break;
    default:
      for (uint32_t l = 0; l < lanes; ++l)
        result |= static_cast<uint32_t>(compared(how, as<T>(a[l]), as<T>(b[l]))) << l;
  }
  uint32_t bad = s.undefined(i.from[0]) | s.undefined(i.from[1]);
  uint32_t other = ~result;
  if (i.predicate != no_register) {
    uint32_t const c = s.predicate(i);
    auto const joined = [&](uint32_t r) {
      return i.second_variant == 0 ? r & c : i.second_variant == 1 ? r | c : r ^ c;
    };
    bad |= s.w.undefined_predicates[i.predicate];
    result = joined(result);
    other = joined(other);
  }
  s.set_predicate(i.to_predicate[0], result, bad);
  s.set_predicate(i.to_predicate[1], other, bad);
}

/// Both; `Negated`: not both, of what is not. Undefined where a source is and the other one does not decide alone.
template <bool Negated>
void conjunction(step& s, instruction const& i) {
  constexpr uint32_t flip = Negated ? all_lanes : 0;
  uint32_t const a = s.predicate(i) ^ flip;
  uint32_t const b = s.w.predicates[i.second_predicate] ^ flip;
  uint32_t const ua = s.w.undefined_predicates[i.predicate];
  uint32_t const ub = s.w.undefined_predicates[i.second_predicate];
  s.set_predicate(i.to_predicate[0], (a & b) ^ flip, (ua | ub) & (a | ua) & (b | ub));
}

handler on_predicates(opcode const& op) {
  auto const n = op.name;
  if (n == "mov")
    return [](step& s, instruction const& i) {
      if (i.predicate == no_register)
        return s.set_predicate(i.to_predicate[0], s.value(i.from[0])[0] != 0 ? all_lanes : 0, 0);
      s.set_predicate(i.to_predicate[0], s.predicate(i), s.w.undefined_predicates[i.predicate]);
    };
  if (n == "not")
    return [](step& s, instruction const& i) {
      s.set_predicate(i.to_predicate[0], ~s.predicate(i), s.w.undefined_predicates[i.predicate]);
    };
  if (n == "and") return conjunction<false>;
  if (n == "or") return conjunction<true>;  // by De Morgan
  if (n == "xor")
    return [](step& s, instruction const& i) {
      s.set_predicate(i.to_predicate[0], s.predicate(i) ^ s.w.predicates[i.second_predicate],
                      s.w.undefined_predicates[i.predicate] | s.w.undefined_predicates[i.second_predicate]);
    };
  return nullptr;
}

void select(step& s, instruction const& i) {
  uint32_t const p = s.predicate(i);
  uint32_t const bad = s.w.undefined_predicates[i.predicate];
  uint64_t const width = mask_of_bytes(i.width);
  row const& a = s.value(i.from[0]);
  row const& b = s.value(i.from[1]);
  row& to = s.w.values[i.to[0]];
  for (uint32_t l = 0; l < lanes; ++l) {
    uint64_t const chosen = ((p >> l & 1) != 0 ? a[l] : b[l]) & width;
    to[l] = (s.active >> l & 1) != 0 ? chosen : to[l];
  }
  uint32_t const from = ((s.undefined(i.from[0]) & p) | (s.undefined(i.from[1]) & ~p) | bad) & s.active;
  s.w.undefined[i.to[0]] &= ~(s.active & ~from);
  each_lane(from, [&](uint32_t l) {
    uint64_t const shadow =
        (bad >> l & 1) != 0 ? width : s.shadow((p >> l & 1) != 0 ? i.from[0] : i.from[1], l) & width;
    s.set(i.to[0], l, to[l], shadow);
  });
}

}  // namespace

handler predicate_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "setp") {
    i.variant = comparison_of(op);
    i.second_variant = op.has("and") ? 0 : op.has("or") ? 1 : 2;
    if (i.variant == unknown_comparison) return nullptr;
    return with_type(i.type, []<class T>() -> handler { return compare<T>; });
  }
  if (n == "selp") return select;
  return i.type.kind == 'p' ? on_predicates(op) : nullptr;
}

}  // namespace emulator
