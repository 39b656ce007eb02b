// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Comparisons, predicates and choices by them.

#include "apply.hpp"

#include <algorithm>

namespace emulator {
namespace {

enum operation : uint8_t { conjunction, disjunction, difference };

/// Sets a predicate to what a comparison gave, joined with another predicate if there is one.
void set_joined(step& s, instruction const& i, uint32_t to, uint32_t result, uint32_t bad) {
  if (i.predicate == no_register) return s.set_predicate(to, result, bad);
  uint32_t const c = s.predicate(i);
  result = i.variant == conjunction ? result & c : i.variant == disjunction ? result | c : result ^ c;
  s.set_predicate(to, result, bad | s.w.undefined_predicates[i.predicate]);
}

/// setp: with `second_variant` the opposite, perhaps joined with a predicate.
template <class T, class F>
handler compares(F) {
  return [](step& s, instruction const& i) {
    row const& a = s.value(i.from[0]);
    row const& b = s.value(i.from[1]);
    uint32_t result = 0;
    for (uint32_t l = 0; l < lanes; ++l) result |= uint32_t{F{}(as<T>(a[l]), as<T>(b[l]))} << l;
    if (i.second_variant != 0) result = ~result;
    uint32_t const bad = s.undefined(i.from[0]) | s.undefined(i.from[1]);
    set_joined(s, i, i.to_predicate[0], result, bad);
    set_joined(s, i, i.to_predicate[1], ~result, bad);
  };
}

template <class T>
handler comparison(std::string_view how) {
  if (how == "eq") return compares<T>([](T a, T b) { return a == b; });
  if (how == "ne") return compares<T>([](T a, T b) { return a < b || a > b; });
  if (how == "lt" || how == "lo") return compares<T>([](T a, T b) { return a < b; });
  if (how == "le" || how == "ls") return compares<T>([](T a, T b) { return a <= b; });
  if (how == "gt" || how == "hi") return compares<T>([](T a, T b) { return a > b; });
  if (how == "ge" || how == "hs") return compares<T>([](T a, T b) { return a >= b; });
  if (how == "num") return compares<T>([](T a, T b) { return a == a && b == b; });
  return nullptr;
}

/// Those that are true of a NaN are opposites of others.
constexpr std::pair<std::string_view, std::string_view> opposites[] = {
    {"neu", "eq"}, {"equ", "ne"}, {"geu", "lt"}, {"gtu", "le"}, {"leu", "gt"}, {"ltu", "ge"}, {"nan", "num"}};

/// Both; `Negated`: not both, of what is not. Undefined where a source is and the other one does not decide alone.
template <bool Negated>
void conjoin(step& s, instruction const& i) {
  constexpr uint32_t flip = Negated ? all_lanes : 0;
  uint32_t const a = s.predicate(i) ^ flip;
  uint32_t const b = s.w.predicates[i.second_predicate] ^ flip;
  uint32_t const ua = s.w.undefined_predicates[i.predicate];
  uint32_t const ub = s.w.undefined_predicates[i.second_predicate];
  s.set_predicate(i.to_predicate[0], (a & b) ^ flip, (ua | ub) & (a | ua) & (b | ub));
}

void differ(step& s, instruction const& i) {
  s.set_predicate(i.to_predicate[0], s.predicate(i) ^ s.w.predicates[i.second_predicate],
                  s.w.undefined_predicates[i.predicate] | s.w.undefined_predicates[i.second_predicate]);
}

/// mov and not
template <bool Negated>
void move(step& s, instruction const& i) {
  bool const constant = i.predicate == no_register;
  uint32_t const value = !constant ? s.predicate(i) : s.value(i.from[0])[0] != 0 ? all_lanes : 0;
  s.set_predicate(i.to_predicate[0], Negated ? ~value : value,
                  constant ? 0 : s.w.undefined_predicates[i.predicate]);
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
    uint64_t const shadow = (bad >> l & 1) != 0 ? ~0ULL : s.shadow(i.from[(p >> l & 1) != 0 ? 0 : 1], l);
    s.set(i.to[0], l, to[l], shadow & width);
  });
}

}  // namespace

handler predicate_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "setp") {
    auto how = op.modifiers.front();
    auto const* const opposite =
        std::ranges::find(opposites, how, &std::pair<std::string_view, std::string_view>::first);
    i.second_variant = opposite != std::end(opposites);
    if (i.second_variant != 0) how = opposite->second;
    i.variant = op.has("and") ? conjunction : op.has("or") ? disjunction : difference;
    return with_type(i.type, [&]<class T>() { return comparison<T>(how); });
  }
  if (n == "selp") return select;
  if (i.type.kind != 'p') return nullptr;
  if (n == "mov") return move<false>;
  if (n == "not") return move<true>;
  if (n == "and") return conjoin<false>;
  if (n == "or") return conjoin<true>;  // by De Morgan
  return n == "xor" ? differ : nullptr;
}

}  // namespace emulator
