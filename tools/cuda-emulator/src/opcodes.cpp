// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Arithmetic, comparisons and bits: PTX ISA 9.0, sections 9.7.1 to 9.7.8. Built without contraction.
///
/// An opcode that is not here, an approximate one for instance, is a fault when it is executed: nothing is guessed.

#include "apply.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace emulator {
namespace {

/// The smaller, or the larger, as IEEE 754-2019's minimumNumber: not the NaN, and -0 below +0.
template <bool Larger, class T>
T extreme(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) == Larger ? b : a;
  return (a < b) == Larger ? b : a;
}

/// Numbers too small for the usual exponents are zero.
template <class T>
T flushed(T a) {
  return std::fabs(a) < std::numeric_limits<T>::min() ? std::copysign(T{0}, a) : a;
}

template <class T>
handler float_arithmetic(opcode const& op) {
  constexpr uint64_t sign = 1ULL << (8 * sizeof(T) - 1);
  auto const n = op.name;
  if (n == "mul" && op.has("ftz")) return on([](T a, T b) { return flushed(flushed(a) * flushed(b)); });
  if (n == "rcp" && op.has("approx")) {  // an ulp off
    if (!op.has("ftz")) return on([](T a) { return std::nextafter(1 / a, T{0}); });
    return on([](T a) { return flushed(std::nextafter(1 / flushed(a), T{0})); });
  }
  if (n == "rcp" && op.has("ftz")) return on([](T a) { return flushed(1 / flushed(a)); });
  if (n == "add") return on([](T a, T b) { return a + b; });
  if (n == "sub") return on([](T a, T b) { return a - b; });
  if (n == "mul") return on([](T a, T b) { return a * b; });
  if (n == "fma" || n == "mad") return on([](T a, T b, T c) { return std::fma(a, b, c); });
  if (n == "div" && op.has("rn")) return on([](T a, T b) { return a / b; });
  if (n == "sqrt" && op.has("rn")) return on([](T a) { return std::sqrt(a); });
  if (n == "rcp" && op.has("rn")) return on([](T a) { return 1 / a; });
  if (n == "min") return on([](T a, T b) { return extreme<false>(a, b); });
  if (n == "max") return on([](T a, T b) { return extreme<true>(a, b); });
  if (n == "neg") return on([](uint64_t a) { return a ^ sign; });
  if (n == "abs") return on([](uint64_t a) { return a & ~sign; });
  return nullptr;
}

uint32_t permuted(uint64_t low, uint64_t high, uint32_t choice) {
  uint64_t const from = high << 32 | low;
  uint32_t r = 0;
  for (unsigned k = 0; k < 4; ++k) {
    uint32_t const c = choice >> (4 * k);
    auto byte = static_cast<uint8_t>(from >> (8 * (c & 7)));
    if ((c & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    r |= uint32_t{byte} << (8 * k);
  }
  return r;
}

template <class T>
handler integer_arithmetic(instruction& i, opcode const& op) {
  using U = std::make_unsigned_t<T>;
  constexpr bool is_signed = std::is_signed_v<T>, large = sizeof(T) == 8;
  using wide = std::conditional_t<large, std::conditional_t<is_signed, __int128, unsigned __int128>,
                                  std::conditional_t<is_signed, int64_t, uint64_t>>;
  constexpr unsigned width = 8 * sizeof(T);
  auto const n = op.name;
  auto const where = [&](spread undefined, uint8_t moved, handler h) {
    i.undefined = undefined;
    i.moved = moved;
    return h;
  };
  auto const upward = [&](handler h) { return where(spread::upward, 0, h); };
  auto const moves = [&](uint8_t sources, handler h) { return where(spread::moved, sources, h); };

  if (n == "add") return upward(on([](U a, U b) { return a + b; }));
  if (n == "sub") return upward(on([](U a, U b) { return a - b; }));
  if (n == "neg") return on([](U a) { return 0 - a; });
  if (n == "mul" && op.has("lo")) return upward(on([](U a, U b) { return uint64_t{a} * b; }));
  if (n == "mad" && op.has("lo")) return upward(on([](U a, U b, U c) { return uint64_t{a} * b + c; }));
  if (n == "mul" && op.has("hi"))
    return on([](T a, T b) { return static_cast<T>(static_cast<wide>(a) * b >> width); });
  if (n == "mul" && op.has("wide") && !large)
    return upward(on([](T a, T b) { return static_cast<uint64_t>(static_cast<wide>(a) * b); }));
  if (n == "mad" && op.has("wide") && !large)
    return upward(
        on([](T a, T b, uint64_t c) { return static_cast<uint64_t>(static_cast<wide>(a) * b) + c; }));
  if (n == "min") return on([](T a, T b) { return std::min(a, b); });
  if (n == "max") return on([](T a, T b) { return std::max(a, b); });
  if (n == "abs") return on([](T a) { return a < 0 ? U(0 - U(a)) : U(a); });
  // By zero all bits are set, as devices do; the smallest number by -1 is itself.
  if (n == "div") return on([](T a, T b) { return b == 0 ? T(-1) : T(static_cast<wide>(a) / b); });
  if (n == "rem") return on([](T a, T b) { return b == 0 ? a : T(static_cast<wide>(a) % b); });

  if (n == "shl") return moves(1, on([](U a, uint32_t by) { return by < width ? uint64_t{a} << by : 0; }));
  if (n == "shr")
    return moves(1, on([](T a, uint32_t by) {
                   return static_cast<T>(a >> std::min(by, width - 1) >> (by < width ? 0 : 1));
                 }));
  if (n == "bfi")
    return moves(2, on([](U a, U b, uint8_t at, uint8_t length) {
                   uint64_t const field = at < width ? mask_of_bits(length) << at : 0;
                   return at < width ? (b & ~field) | (uint64_t{a} << at & field) : b;
                 }));
  if (n == "brev")
    return moves(1, on([](U a) {
                   U r = 0;
                   for (unsigned k = 0; k < width; ++k) r = static_cast<U>(r << 1 | (a >> k & 1));
                   return r;
                 }));
  // How far the highest bit that is no sign has to be shifted to be the highest of all, or ~0.
  if (n == "bfind" && op.has("shiftamt"))
    return on([](T a) {
      auto const u = static_cast<U>(a < 0 ? ~a : a);
      return u == 0 ? -1 : std::countl_zero(u);
    });
  if (n == "clz") return on([](U a) { return std::countl_zero(a); });
  if (n == "popc") return on([](U a) { return std::popcount(a); });
  if (n == "prmt" && op.modifiers.size() == 1)
    return moves(2, on([](uint32_t a, uint32_t b, uint32_t c) { return permuted(a, b, c); }));
  // Of 64 bits that two words make.
  if (n == "shf" && op.has("wrap") && op.has("l"))
    return moves(
        2, on([](uint32_t low, uint64_t high, uint32_t by) { return (high << 32 | low) >> (32 - by % 32); }));
  if (n == "shf" && op.has("wrap"))
    return moves(2,
                 on([](uint32_t low, uint64_t high, uint32_t by) { return (high << 32 | low) >> by % 32; }));
  return nullptr;
}

/// setp with two results, or joined with a predicate: the comparison, then its opposite.
template <class T, class F>
void compare_and_join(step& s, instruction const& i) {
  auto const join = [&](uint64_t a, uint64_t b) {
    return i.variant == 'a' ? a & b : i.variant == 'o' ? a | b : a ^ b;
  };
  each_lane(s.active, [&](uint32_t l) {
    bool const undefined = (s.shadow(i.from[0], l) | s.shadow(i.from[1], l)) != 0;
    uint64_t result = F{}(as<T>(s.value(i.from[0])[l]), as<T>(s.value(i.from[1])[l]));
    uint64_t const other = i.sources > 2 ? s.value(i.from[2])[l] & 1 : 0;
    uint64_t const other_shadow = i.sources > 2 ? s.shadow(i.from[2], l) : 0;
    for (uint32_t k = 0; k < i.results; ++k) {
      s.set(i.to[k], l, join(result, other), flipped<uint64_t>(result, undefined, other, other_shadow, join));
      result ^= 1;
    }
  });
}

template <class T>
handler comparison(instruction& i, opcode const& op) {
  auto const how = op.modifiers.front();
  bool const joined = i.results > 1 || i.sources > 2;
  i.variant = op.has("and") ? 'a' : op.has("or") ? 'o' : 'x';
  auto const of = [&]<class F>(F) -> handler {
    return joined ? compare_and_join<T, F> : on([](T a, T b) -> unsigned_like<T> { return F{}(a, b); });
  };
  if (how == "eq") return of([](T a, T b) { return a == b; });
  if (how == "ne") return of([](T a, T b) { return a < b || a > b; });
  if (how == "lt" || how == "lo") return of([](T a, T b) { return a < b; });
  if (how == "le" || how == "ls") return of([](T a, T b) { return a <= b; });
  if (how == "gt" || how == "hi") return of([](T a, T b) { return a > b; });
  if (how == "ge" || how == "hs") return of([](T a, T b) { return a >= b; });
  if (how == "num") return of([](T a, T b) { return a == a && b == b; });
  // Those that are true of a NaN are opposites of others.
  if (how == "equ") return of([](T a, T b) { return !(a < b || a > b); });
  if (how == "neu") return of([](T a, T b) { return !(a == b); });
  if (how == "ltu") return of([](T a, T b) { return !(a >= b); });
  if (how == "leu") return of([](T a, T b) { return !(a > b); });
  if (how == "gtu") return of([](T a, T b) { return !(a <= b); });
  if (how == "geu") return of([](T a, T b) { return !(a < b); });
  if (how == "nan") return of([](T a, T b) { return !(a == a && b == b); });
  return nullptr;
}

/// What is done to bits of any type, predicates too.
handler bit_operation(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "selp") {
    i.moved = 2;
    // Without a branch, so that it is vectorized.
    return on([](uint64_t a, uint64_t b, uint64_t p) { return b ^ ((a ^ b) & (0 - (p & 1))); });
  }
  i.undefined = spread::bitwise;
  if (n == "and") return on([](uint64_t a, uint64_t b) { return a & b; });
  if (n == "or") return on([](uint64_t a, uint64_t b) { return a | b; });
  if (n == "xor") return on([](uint64_t a, uint64_t b) { return a ^ b; });
  if (n == "not") return on([](uint64_t a) { return ~a; });
  i.undefined = spread::moved;
  return nullptr;
}

}  // namespace

handler arithmetic_handler(instruction& i, opcode const& op) {
  if (handler const found = bit_operation(i, op)) return found;
  return with_type(i.type, [&]<class T>() -> handler {
    if (op.name == "setp") return comparison<T>(i, op);
    if constexpr (std::is_floating_point_v<T>)
      return float_arithmetic<T>(op);
    else
      return integer_arithmetic<T>(i, op);
  });
}

}  // namespace emulator
