// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief An operation of one lane, applied to all active ones; what is undefined in the sources goes with it.

#pragma once

#include "execution.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace emulator {

template <class T>
using unsigned_like = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <class T>
T as(uint64_t bits) {
  return std::bit_cast<T>(static_cast<unsigned_like<T>>(bits));
}

/// A result's bits, with zeros above. A NaN of 32 bits is the one that devices give.
template <class T>
uint64_t bits_of(T value) {
  if (std::is_floating_point_v<T> && sizeof(T) == 4 && value != value) return 0x7fff'ffff;
  return std::bit_cast<unsigned_like<T>>(value);
}

/// An integer of so many bytes in 64 bits.
inline uint64_t extended(uint64_t bits, value_type t) {
  unsigned const unused = 64U - 8U * t.bytes;
  return t.kind == 's' ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
                       : bits << unused >> unused;
}

/// Where a bitwise function of two sources gives something else when undefined bits of them are.
template <class Word, class F>
Word flipped(Word a, Word undefined_a, Word b, Word undefined_b, F f) {
  Word const result = f(a, b);
  return (result ^ f(a ^ undefined_a, b)) | (result ^ f(a, b ^ undefined_b)) |
         (result ^ f(a ^ undefined_a, b ^ undefined_b));
}

/// What an operation takes in a lane, as bits: of up to four sources.
using sources = std::array<uint64_t, 4>;

/// The undefined bits of a result, from values and shadows of its sources, of which one has such bits.
template <class F>
uint64_t spread_of(instruction const& i, sources const& v, sources const& shadow, F f) {
  uint64_t const any = shadow[0] | shadow[1] | shadow[2] | shadow[3];
  if (i.undefined == spread::upward) return any | (0 - any);
  if (i.undefined == spread::bitwise)
    return flipped(v[0], shadow[0], v[1], shadow[1], [&](uint64_t a, uint64_t b) { return f({a, b, 0, 0}); });
  auto moved = v;
  for (unsigned k = 0; k < 4; ++k) {
    if (k < i.moved)
      moved[k] = shadow[k];
    else if (shadow[k] != 0)
      return ~0ULL;
  }
  return f(moved);
}

/// Applies `f` to each active lane: a function of values, whose types say what bits mean.
template <class F, class R, class... A>
void apply(step& s, instruction const& i, F const& f, R (F::*)(A...) const) {
  constexpr unsigned n = sizeof...(A);
  uint64_t const width = i.width;
  auto const of_bits = [&]<std::size_t... K>(sources const& v, std::index_sequence<K...>) {
    return bits_of(f(as<A>(v[K])...)) & width;
  };
  auto const on_bits = [&](sources const& v) { return of_bits(v, std::make_index_sequence<n>()); };
  row const& a = s.value(i.from[0]);
  row const& b = n > 1 ? s.value(i.from[1]) : a;
  row const& c = n > 2 ? s.value(i.from[2]) : a;
  row const& d = n > 3 ? s.value(i.from[3]) : a;
  row& to = s.w.values[i.to[0]];
  uint32_t bad = 0;
  for (unsigned k = 0; k < n; ++k) bad |= s.undefined(i.from[k]) & s.active;
  // Before the result is set: it may be in the register of a source.
  row shadows;
  each_lane(bad, [&](uint32_t l) {
    sources shadow{};
    for (unsigned k = 0; k < n; ++k) shadow[k] = s.shadow(i.from[k], l);
    shadows[l] = spread_of(i, {a[l], b[l], c[l], d[l]}, shadow, on_bits) & width;
  });
  auto const set = [&](uint32_t l) { to[l] = on_bits({a[l], b[l], c[l], d[l]}); };
  if (s.active == all_lanes) {
    // The result may be in the register of a source, but no lane reads another: the loop can be vectorized without a check.
#pragma GCC ivdep
    for (uint32_t l = 0; l < lanes; ++l) set(l);
  } else {
    each_lane(s.active, set);
  }
  s.w.undefined[i.to[0]] &= ~s.active;
  each_lane(bad, [&](uint32_t l) { s.set(i.to[0], l, to[l], shadows[l]); });
}

template <class F>
void apply(step& s, instruction const& i, F const& f) {
  apply(s, i, f, &F::operator());
}

/// The handler that applies a function of one to four values.
template <class F>
handler on(F) {
  return [](step& s, instruction const& i) { apply(s, i, F{}); };
}

/// Calls `visit.operator()<T>()` with the host's type of an operation; null where it has none.
template <class Visit>
handler with_type(value_type t, Visit visit) {
  auto const is = [&](char kind, unsigned bytes) { return t.bytes == bytes && t.kind == kind; };
  if (is('f', 4)) return visit.template operator()<float>();
  if (is('f', 8)) return visit.template operator()<double>();
  if (is('s', 2)) return visit.template operator()<int16_t>();
  if (is('s', 4)) return visit.template operator()<int32_t>();
  if (is('s', 8)) return visit.template operator()<int64_t>();
  if (is('u', 2) || is('b', 2)) return visit.template operator()<uint16_t>();
  if (is('u', 4) || is('b', 4)) return visit.template operator()<uint32_t>();
  if (is('u', 8) || is('b', 8)) return visit.template operator()<uint64_t>();
  return nullptr;
}

/// What atom, red and redux name: calls `make` with a function of two values.
template <class T, class Make>
handler combining(opcode const& op, Make make) {
  if constexpr (std::is_floating_point_v<T>) {
    return op.has("add") ? make([](T a, T b) { return a + b; }) : nullptr;
  } else {
    if (op.has("add")) return make([](T a, T b) { return static_cast<T>(uint64_t(a) + uint64_t(b)); });
    if (op.has("and")) return make([](T a, T b) { return a & b; });
    if (op.has("or")) return make([](T a, T b) { return a | b; });
    if (op.has("xor")) return make([](T a, T b) { return a ^ b; });
    if (op.has("min")) return make([](T a, T b) { return std::min(a, b); });
    if (op.has("max")) return make([](T a, T b) { return std::max(a, b); });
    return nullptr;
  }
}

}  // namespace emulator
