// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Comparisons, predicates and choices by them.

#include "apply.hpp"

namespace emulator {
namespace {

enum operation : uint8_t { first, inverse, conjunction, disjunction, difference };

uint32_t result_of(uint8_t operation, uint32_t a, uint32_t b) {
  if (operation == conjunction) return a & b;
  if (operation == disjunction) return a | b;
  if (operation == difference) return a ^ b;
  return operation == inverse ? ~a : a;
}

/// Sets a predicate to the operation that `variant` names of lanes and a predicate.
void set_result(step& s, instruction const& i, uint32_t to, uint32_t a, uint32_t undefined, uint32_t b,
                uint32_t undefined_b) {
  auto const f = [&](uint32_t x, uint32_t y) { return result_of(i.variant, x, y); };
  s.set_predicate(to, f(a, b), flipped(a, undefined, b, undefined_b, f));
}

/// setp: with `second_variant` the opposite, perhaps joined with a predicate.
template <class T, class F>
handler compares(F) {
  return [](step& s, instruction const& i) {
    row const& a = s.value(i.from[0]);
    row const& b = s.value(i.from[1]);
    uint32_t result = i.second_variant != 0 ? all_lanes : 0;
    for (uint32_t l = 0; l < lanes; ++l) result ^= uint32_t{F{}(as<T>(a[l]), as<T>(b[l]))} << l;
    uint32_t const bad = s.undefined(i.from[0]) | s.undefined(i.from[1]);
    for (auto const to : i.to_predicate) {
      set_result(s, i, to, result, bad, s.predicate(i), s.w.undefined_predicates[i.predicate]);
      result = ~result;
    }
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

void operate(step& s, instruction const& i) {
  set_result(s, i, i.to_predicate[0], s.predicate(i), s.w.undefined_predicates[i.predicate],
             s.w.predicates[i.second_predicate], s.w.undefined_predicates[i.second_predicate]);
}

void set_constant(step& s, instruction const& i) {
  s.set_predicate(i.to_predicate[0], s.value(i.from[0])[0] != 0 ? all_lanes : 0, 0);
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
  if (n == "selp") return select;
  if (n != "setp" && i.type.kind != 'p') return nullptr;
  if (n == "mov" && i.predicate == no_register) return set_constant;
  auto const is = [&](std::string_view word) { return n == word || op.has(word); };
  i.variant = is("and")   ? conjunction
              : is("or")  ? disjunction
              : is("xor") ? difference
              : is("not") ? inverse
                          : first;
  // Any will do where there is none.
  if (i.predicate == no_register) i.predicate = i.to_predicate[0];
  if (i.second_predicate == no_register) i.second_predicate = i.predicate;
  if (n != "setp") return i.variant != first || n == "mov" ? operate : nullptr;
  auto how = op.modifiers.front();
  for (auto const& [name, opposite] : opposites) {
    if (how != name) continue;
    i.second_variant = 1;
    how = opposite;
    break;
  }
  return with_type(i.type, [&]<class T>() { return comparison<T>(how); });
}

}  // namespace emulator
