// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief An operation of one lane, applied to all active ones; what is undefined in the sources goes with it.

#pragma once

#include "execution.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace emulator {

using std::int16_t;
using std::int32_t;
using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

template <class T>
T as(uint64_t bits) {
  if constexpr (std::same_as<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::same_as<T, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<T>(bits);
}

/// A result's bits, with zeros above. A NaN of 32 bits is the one that devices give.
template <class T>
uint64_t bits_of(T value) {
  if constexpr (std::same_as<T, float>)
    return value != value ? 0x7fff'ffff : std::bit_cast<uint32_t>(value);
  else if constexpr (std::same_as<T, double>)
    return std::bit_cast<uint64_t>(value);
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

template <class T>
inline constexpr uint64_t mask_of = sizeof(T) == 8 ? ~0ULL : (1ULL << (8 * sizeof(T))) - 1;

template <class T>
inline constexpr uint64_t sign_bit = 1ULL << (8 * sizeof(T) - 1);

inline uint64_t mask_of_bytes(unsigned bytes) { return bytes >= 8 ? ~0ULL : (1ULL << (8 * bytes)) - 1; }

/// An integer of so many bytes in 64 bits.
inline uint64_t extended(uint64_t bits, value_type t) {
  unsigned const unused = 64U - 8U * t.bytes;
  return t.kind == 's' ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
                       : bits << unused >> unused;
}

/// The undefined bits of a result, from values and shadows of its sources.
template <class F>
uint64_t spread_of(instruction const& i, std::array<uint64_t, 4> const& v,
                   std::array<uint64_t, 4> const& shadow, uint64_t width, F f) {
  uint64_t const any = shadow[0] | shadow[1] | shadow[2] | shadow[3];
  switch (i.undefined) {
    case spread::moved: {
      auto moved = v;
      for (unsigned k = 0; k < 4; ++k) {
        if (k < i.moved)
          moved[k] = shadow[k];
        else if (shadow[k] != 0)
          return width;
      }
      return f(moved[0], moved[1], moved[2], moved[3]) & width;
    }
    case spread::conjunction:
      return (any & ((v[0] | shadow[0]) & (v[1] | shadow[1]))) & width;
    case spread::disjunction:
      return (any & ((~v[0] | shadow[0]) & (~v[1] | shadow[1]))) & width;
    case spread::each:
      return any & width;
    case spread::upward:
      return (any | (0 - any)) & width;
    case spread::all:
      break;
  }
  return width;
}

/// Applies `f`, which takes and gives bits, to each active lane.
template <int Sources, class F>
void apply(step& s, instruction const& i, uint64_t width, F f) {
  row const& a = s.value(i.from[0]);
  row const& b = Sources > 1 ? s.value(i.from[1]) : a;
  row const& c = Sources > 2 ? s.value(i.from[2]) : a;
  row const& d = Sources > 3 ? s.value(i.from[3]) : a;
  row& to = s.w.values[i.to[0]];
  uint32_t bad = 0;
  for (int k = 0; k < Sources; ++k) bad |= s.undefined(i.from[k]);
  bad &= s.active;
  // Before the result is set: it may be in the register of a source.
  row shadows;
  each_lane(bad, [&](uint32_t l) {
    std::array<uint64_t, 4> v{}, shadow{};
    for (int k = 0; k < Sources; ++k) {
      v[k] = s.value(i.from[k])[l];
      shadow[k] = s.shadow(i.from[k], l);
    }
    shadows[l] = spread_of(i, v, shadow, width, f);
  });
  if (s.active == all_lanes) {
    for (uint32_t l = 0; l < lanes; ++l) to[l] = f(a[l], b[l], c[l], d[l]);
  } else {
    for (uint32_t l = 0; l < lanes; ++l) {
      if ((s.active >> l & 1) != 0) to[l] = f(a[l], b[l], c[l], d[l]);
    }
  }
  s.w.undefined[i.to[0]] &= ~s.active;
  each_lane(bad, [&](uint32_t l) { s.set(i.to[0], l, to[l], shadows[l]); });
}

/// A handler from a function of bits: of one to four sources.
template <int Sources, class F>
handler on_bits(F) {
  return [](step& s, instruction const& i) {
    apply<Sources>(s, i, mask_of_bytes(i.width), [](auto a, auto b, auto c, auto d) {
      if constexpr (Sources == 1)
        return F{}(a);
      else if constexpr (Sources == 2)
        return F{}(a, b);
      else if constexpr (Sources == 3)
        return F{}(a, b, c);
      else
        return F{}(a, b, c, d);
    });
  };
}

/// A handler from a function of values of one type.
template <class T, int Sources, class F>
handler on(F) {
  return on_bits<Sources>([](auto... bits) { return bits_of(static_cast<T>(F{}(as<T>(bits)...))); });
}

template <class T>
constexpr bool is_float = std::is_floating_point_v<T>;

/// Each calls `visit.operator()<T>()` with the host's type.
/// @{
template <class Visit>
handler with_float(value_type t, Visit visit) {
  if (t.bytes == 4) return visit.template operator()<float>();
  return t.bytes == 8 ? visit.template operator()<double>() : nullptr;
}

template <class Visit>
handler with_unsigned(value_type t, Visit visit) {
  switch (t.bytes) {
    case 1:
      return visit.template operator()<uint8_t>();
    case 2:
      return visit.template operator()<uint16_t>();
    case 4:
      return visit.template operator()<uint32_t>();
    default:
      return visit.template operator()<uint64_t>();
  }
}

template <class Visit>
handler with_integer(value_type t, Visit visit) {
  if (t.kind != 's') return with_unsigned(t, visit);
  switch (t.bytes) {
    case 1:
      return visit.template operator()<int8_t>();
    case 2:
      return visit.template operator()<int16_t>();
    case 4:
      return visit.template operator()<int32_t>();
    default:
      return visit.template operator()<int64_t>();
  }
}

template <class Visit>
handler with_type(value_type t, Visit visit) {
  return t.kind == 'f' ? with_float(t, visit) : with_integer(t, visit);
}
/// @}

}  // namespace emulator
