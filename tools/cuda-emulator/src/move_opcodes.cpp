// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Moves and conversions.

#include "apply.hpp"

#include <algorithm>
#include <cmath>

namespace emulator {
namespace {

/// `{a, b} = {c, d}`: parts of a register, from the lowest; one of both is a whole one.
void move_parts(step& s, instruction const& i) {
  unsigned const in = i.type.bytes / i.sources, out = i.type.bytes / i.results;
  each_lane(s.active, [&](uint32_t l) {
    uint64_t v = 0, shadow = 0;
    for (unsigned k = 0; k < i.sources; ++k) {
      v |= (s.value(i.from[k])[l] & mask_of_bytes(in)) << (8 * in * k);
      shadow |= (s.shadow(i.from[k], l) & mask_of_bytes(in)) << (8 * in * k);
    }
    for (unsigned k = 0; k < i.results; ++k) {
      if (i.to[k] == no_register) continue;
      s.set(i.to[k], l, v >> (8 * out * k) & mask_of_bytes(out),
            shadow >> (8 * out * k) & mask_of_bytes(out));
    }
  });
}

/// cvta: generic addresses of shared and local memory lie in windows; others are the same.
void convert_address(step& s, instruction const& i) {
  apply(s, i, [&i](uint64_t a) { return a + i.offset; });
}

/// Any number of 64 bits or less has one value in float64 or in 64 bits: a conversion goes by way of them and rounds once.
/// @{
void convert_integer(step& s, instruction const& i) {
  apply(s, i, [&i](uint64_t a) { return extended(extended(a, i.second_type), i.type); });
}

double double_of(uint64_t bits, value_type t) { return t.bytes == 4 ? as<float>(bits) : as<double>(bits); }

/// Saturates; NaN is zero.
uint64_t integer_of(double value, value_type to) {
  int const bits = 8 * to.bytes - (to.kind == 's' ? 1 : 0);
  double const bound = std::ldexp(1.0, bits);
  uint64_t const most = ~0ULL >> (64 - bits);
  if (value >= bound) return most;
  if (to.kind != 's') return value > 0 ? static_cast<uint64_t>(value) : 0;
  if (value <= -bound) return ~most;
  return value == value ? static_cast<uint64_t>(static_cast<int64_t>(value)) : 0;
}

/// From floats, made integral by a function if there is one.
template <class F>
handler from_float(value_type to, F) {
  if (to.kind != 'f')
    return [](step& s, instruction const& i) {
      apply(s, i, [&i](uint64_t a) { return integer_of(F{}(double_of(a, i.second_type)), i.type); });
    };
  return [](step& s, instruction const& i) {
    apply(s, i, [&i](uint64_t a) {
      double const v = F{}(double_of(a, i.second_type));
      return i.type.bytes == 4 ? bits_of(static_cast<float>(v)) : bits_of(v);
    });
  };
}

template <class To>
void from_integer(step& s, instruction const& i) {
  apply(s, i, [&i](uint64_t a) {
    uint64_t const v = extended(a, i.second_type);
    return i.second_type.kind == 's' ? static_cast<To>(static_cast<int64_t>(v)) : static_cast<To>(v);
  });
}
/// @}

handler conversion(instruction& i, opcode const& op) {
  value_type const to = i.type, from = i.second_type;
  if (op.has("sat") || to.kind == 'h' || from.kind == 'h' || (to.kind == 'f' && to.bytes < 4) ||
      (from.kind == 'f' && from.bytes < 4))
    return nullptr;
  if (from.kind != 'f' && to.kind != 'f') return i.moved = 1, convert_integer;
  bool const narrows = from.kind != 'f' || (to.kind == 'f' && to.bytes < from.bytes);
  if (op.has("rn") != narrows) return nullptr;
  if (from.kind != 'f') return to.bytes == 4 ? from_integer<float> : from_integer<double>;
  if (!narrows && op.has("rni")) return from_float(to, [](double v) { return std::nearbyint(v); });
  if (!narrows && op.has("rzi")) return from_float(to, [](double v) { return std::trunc(v); });
  if (!narrows && op.has("rmi")) return from_float(to, [](double v) { return std::floor(v); });
  if (!narrows && op.has("rpi")) return from_float(to, [](double v) { return std::ceil(v); });
  return to.kind == 'f' ? from_float(to, [](double v) { return v; }) : nullptr;
}

}  // namespace

handler move_handler(instruction& i, opcode const& op) {
  if (op.name == "mov") {
    i.moved = 1;
    return i.results > 1 || i.sources > 1 ? move_parts : on([](uint64_t a) { return a; });
  }
  if (op.name == "cvta") {
    i.undefined = spread::upward;
    uint64_t const window = op.has("shared")  ? window_of(space::shared)
                            : op.has("local") ? window_of(space::local)
                                              : 0;
    i.offset = op.has("to") ? 0 - window : window;
    return convert_address;
  }
  return op.name == "cvt" ? conversion(i, op) : nullptr;
}

}  // namespace emulator
