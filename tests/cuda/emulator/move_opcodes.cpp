// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Moves and conversions.

#include "apply.hpp"
#include "handlers.hpp"

#include <algorithm>
#include <cmath>

namespace emulator {
namespace {

void move(step& s, instruction const& i) {
  apply<1>(s, i, mask_of_bytes(i.width),
           [&](uint64_t a, auto, auto, auto) { return a & mask_of_bytes(i.type.bytes); });
}

/// `{a, b} = c`: parts of a register, from the lowest.
void unpack(step& s, instruction const& i) {
  unsigned const each = i.type.bytes / i.results;
  each_lane(s.active, [&](uint32_t l) {
    uint64_t const v = s.value(i.from[0])[l], shadow = s.shadow(i.from[0], l);
    for (unsigned k = 0; k < i.results; ++k) {
      if (i.to[k] == no_register) continue;
      s.set(i.to[k], l, v >> (8 * each * k) & mask_of_bytes(each),
            shadow >> (8 * each * k) & mask_of_bytes(each));
    }
  });
}

/// `a = {b, c}`
void pack(step& s, instruction const& i) {
  unsigned const each = i.type.bytes / i.sources;
  each_lane(s.active, [&](uint32_t l) {
    uint64_t v = 0, shadow = 0;
    for (unsigned k = 0; k < i.sources; ++k) {
      v |= (s.value(i.from[k])[l] & mask_of_bytes(each)) << (8 * each * k);
      shadow |= (s.shadow(i.from[k], l) & mask_of_bytes(each)) << (8 * each * k);
    }
    s.set(i.to[0], l, v, shadow);
  });
}

/// cvta: generic addresses of shared and local memory lie in windows; global ones are the same.
template <bool To, uint64_t Window>
void convert_address(step& s, instruction const& i) {
  apply<1>(s, i, ~0ULL, [](uint64_t a, auto, auto, auto) { return To ? a - Window : a + Window; });
}

template <space Which>
void is_in_space(step& s, instruction const& i) {
  uint32_t result = 0;
  row const& a = s.value(i.from[0]);
  for (uint32_t l = 0; l < lanes; ++l) {
    space const of = a[l] < shared_window      ? space::global
                     : a[l] < local_window     ? space::shared
                     : a[l] < parameter_window ? space::local
                                               : space::parameter;
    result |= static_cast<uint32_t>(of == Which) << l;
  }
  s.set_predicate(i.to_predicate[0], result, s.undefined(i.from[0]));
}

/// The least and the largest of a type, in 64 bits of its sign.
struct limits {
  uint64_t least;
  uint64_t most;

  explicit limits(value_type t)
      : least(t.kind == 's' ? extended(1ULL << (8 * t.bytes - 1), t) : 0),
        most(mask_of_bytes(t.bytes) >> (t.kind == 's' ? 1 : 0)) {}
};

uint64_t saturated(uint64_t v, value_type from, value_type to) {
  limits const of(to);
  bool const negative = from.kind == 's' && static_cast<int64_t>(v) < 0;
  if (!negative) return std::min(v, of.most);
  return to.kind == 's' && static_cast<int64_t>(v) > static_cast<int64_t>(of.least) ? v : of.least;
}

enum rounding : uint8_t { no_rounding, nearest_even, toward_zero, down, up };

double to_integral(double value, uint8_t how) {
  switch (how) {
    case nearest_even:
      return std::nearbyint(value);
    case toward_zero:
      return std::trunc(value);
    case down:
      return std::floor(value);
    case up:
      return std::ceil(value);
    default:
      return value;
  }
}

/// Saturates; NaN is zero.
uint64_t integer_of(double value, value_type to) {
  if (value != value) return 0;
  limits const of(to);
  double const bound = std::ldexp(1.0, 8 * to.bytes - (to.kind == 's' ? 1 : 0));
  if (value >= bound) return of.most;
  if (value <= (to.kind == 's' ? -bound : 0)) return of.least;
  return to.kind == 's' ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

/// Any number of 64 bits or less has one value in float64 or in 64 bits: a conversion goes by way of them and rounds once.
/// @{
void convert_integer(step& s, instruction const& i) {
  apply<1>(s, i, mask_of_bytes(i.width), [&i](uint64_t a, auto, auto, auto) {
    uint64_t v = extended(a, i.second_type);
    if (i.second_variant != 0) v = saturated(v, i.second_type, i.type);
    return extended(v, i.type) & mask_of_bytes(i.width);
  });
}

double double_of(uint64_t bits, value_type t) { return t.bytes == 4 ? as<float>(bits) : as<double>(bits); }

void float_to_integer(step& s, instruction const& i) {
  apply<1>(s, i, mask_of_bytes(i.width), [&i](uint64_t a, auto, auto, auto) {
    return integer_of(to_integral(double_of(a, i.second_type), i.variant), i.type) & mask_of_bytes(i.width);
  });
}

void float_to_float(step& s, instruction const& i) {
  apply<1>(s, i, mask_of_bytes(i.width), [&i](uint64_t a, auto, auto, auto) {
    double const v = to_integral(double_of(a, i.second_type), i.variant);
    return i.type.bytes == 4 ? bits_of(static_cast<float>(v)) : bits_of(v);
  });
}

template <class To>
void integer_to_float(step& s, instruction const& i) {
  apply<1>(s, i, mask_of_bytes(i.width), [&i](uint64_t a, auto, auto, auto) {
    uint64_t const v = extended(a, i.second_type);
    return bits_of(i.second_type.kind == 's' ? static_cast<To>(static_cast<int64_t>(v)) : static_cast<To>(v));
  });
}
/// @}

handler conversion(instruction& i, opcode const& op) {
  i.variant = op.has("rni")   ? nearest_even
              : op.has("rzi") ? toward_zero
              : op.has("rmi") ? down
              : op.has("rpi") ? up
                              : no_rounding;
  i.second_variant = op.has("sat");
  bool const to_float = i.type.kind == 'f';
  bool const from_float = i.second_type.kind == 'f';
  if ((to_float && i.type.bytes < 4) || (from_float && i.second_type.bytes < 4)) return nullptr;
  if (!to_float && !from_float) {
    if (i.second_variant == 0) i.undefined = spread::moved, i.moved = 1;
    return convert_integer;
  }
  if (!to_float) return i.variant != no_rounding ? float_to_integer : nullptr;
  if (i.second_variant != 0) return nullptr;
  if (!from_float)
    return !op.has("rn") ? nullptr : i.type.bytes == 4 ? integer_to_float<float> : integer_to_float<double>;
  bool const rounds = i.type.bytes < i.second_type.bytes;
  bool const integral = i.variant != no_rounding;
  return rounds == op.has("rn") && !(rounds && integral) ? float_to_float : nullptr;
}

}  // namespace

handler move_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "mov") {
    i.undefined = spread::moved;
    i.moved = 1;
    return i.results > 1 ? unpack : i.sources > 1 ? pack : move;
  }
  if (n == "cvta") {
    i.undefined = spread::upward;
    bool const to = op.has("to");
    if (op.has("shared"))
      return to ? convert_address<true, shared_window> : convert_address<false, shared_window>;
    if (op.has("local"))
      return to ? convert_address<true, local_window> : convert_address<false, local_window>;
    return convert_address<false, 0>;  // a parameter's address is complete as it is
  }
  if (n == "isspacep") {
    return op.has("shared")   ? is_in_space<space::shared>
           : op.has("local")  ? is_in_space<space::local>
           : op.has("global") ? is_in_space<space::global>
                              : nullptr;
  }
  if (n == "cvt") return conversion(i, op);
  return nullptr;
}

}  // namespace emulator
