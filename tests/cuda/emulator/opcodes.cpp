// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Arithmetic and bits: PTX ISA 9.0, sections 9.7.1 to 9.7.8. Built without contraction.
///
/// An opcode that is not here, an approximate one for instance, is a fault when it is executed: nothing is guessed.

#include "apply.hpp"
#include "handlers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace emulator {
namespace {

template <class T>
T high_product(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    using wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
    return static_cast<T>((static_cast<wide>(a) * static_cast<wide>(b)) >> 64);
  } else {
    using wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>((static_cast<wide>(a) * static_cast<wide>(b)) >> (8 * sizeof(T)));
  }
}

template <class T>
using twice = std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 2, int32_t, int64_t>,
                                 std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>>;

template <class T>
uint64_t wide_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<twice<T>>(as<T>(a)) * static_cast<twice<T>>(as<T>(b)));
}

template <class T>
T shifted_right(T a, uint32_t by) {
  constexpr uint32_t most = 8 * sizeof(T) - 1;
  return by <= most ? static_cast<T>(a >> by) : static_cast<T>(static_cast<T>(a >> most) >> 1);
}

/// The smaller, or the larger, as IEEE 754-2019's minimumNumber: not the NaN, and -0 below +0.
template <bool Larger, class T>
T extreme(T a, T b) {
  if constexpr (is_float<T>) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) == Larger ? b : a;
  }
  return (a < b) == Larger ? b : a;
}

/// Bits of a field of `length` from `at` on.
uint64_t field_mask(uint64_t length) { return length >= 64 ? ~0ULL : (1ULL << length) - 1; }

template <class T>
uint64_t extracted(uint64_t bits, uint64_t at, uint64_t length) {
  constexpr uint64_t width = 8 * sizeof(T);
  at &= 0xff;
  length &= 0xff;
  if (length == 0) return 0;
  uint64_t const a = bits & mask_of<T>;
  uint64_t field = (at >= width ? 0 : a >> at) & field_mask(length);
  if (std::is_signed_v<T>) {
    uint64_t const top = std::min(at + length - 1, width - 1);
    uint64_t const known = at >= width ? 0 : std::min(length, width - at);
    if ((a >> top & 1) != 0) field |= ~field_mask(known);
  }
  return field & mask_of<T>;
}

template <class T>
uint64_t highest_bit(uint64_t bits, bool amount) {
  auto a = as<T>(bits);
  if (std::is_signed_v<T> && a < 0) a = static_cast<T>(~a);
  auto const u = static_cast<std::make_unsigned_t<T>>(a);
  if (u == 0) return 0xffff'ffff;
  auto const place = static_cast<uint64_t>(std::bit_width(u) - 1);
  return amount ? 8 * sizeof(T) - 1 - place : place;
}

/// Numbers too small for the usual exponents are zero.
template <class T>
T flushed(T a) {
  return std::fabs(a) < std::numeric_limits<T>::min() ? std::copysign(T{0}, a) : a;
}

template <class T>
handler float_arithmetic(opcode const& op) {
  auto const n = op.name;
  if (n == "mul" && op.has("ftz")) return on<T, 2>([](T a, T b) { return flushed(flushed(a) * flushed(b)); });
  if (n == "rcp" && op.has("approx"))
    return on<T, 1>([](T a) { return flushed(std::nextafter(1 / flushed(a), T{0})); });  // an ulp off
  if (n == "add") return on<T, 2>([](T a, T b) { return a + b; });
  if (n == "sub") return on<T, 2>([](T a, T b) { return a - b; });
  if (n == "mul") return on<T, 2>([](T a, T b) { return a * b; });
  if (n == "fma" || n == "mad") return on<T, 3>([](T a, T b, T c) { return std::fma(a, b, c); });
  if (n == "div" && op.has("rn")) return on<T, 2>([](T a, T b) { return a / b; });
  if (n == "sqrt" && op.has("rn")) return on<T, 1>([](T a) { return std::sqrt(a); });
  if (n == "rcp" && op.has("rn")) return on<T, 1>([](T a) { return 1 / a; });
  if (n == "min") return on<T, 2>([](T a, T b) { return extreme<false>(a, b); });
  if (n == "max") return on<T, 2>([](T a, T b) { return extreme<true>(a, b); });
  if (n == "neg") return on_bits<1>([](uint64_t a) { return a ^ sign_bit<T>; });
  if (n == "abs") return on_bits<1>([](uint64_t a) { return a & ~sign_bit<T>; });
  if (n == "copysign")
    return on_bits<2>([](uint64_t a, uint64_t b) { return (a & sign_bit<T>) | (b & ~sign_bit<T>); });
  return nullptr;
}

/// By zero all bits are set, as devices do; the smallest number by -1 is itself.
template <class T>
T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - static_cast<uint64_t>(a));
  return static_cast<T>(a / b);
}

template <class T>
T remainder_of(T a, T b) {
  if (b == 0) return a;
  return std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
}

/// Operations of integers that ask for their signs.
template <class T>
handler with_sign(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "min") return on<T, 2>([](T a, T b) { return extreme<false>(a, b); });
  if (n == "max") return on<T, 2>([](T a, T b) { return extreme<true>(a, b); });
  if (n == "abs") return on<T, 1>([](T a) { return a < 0 ? T(0 - uint64_t(a)) : a; });
  if (n == "div") return on<T, 2>([](T a, T b) { return quotient(a, b); });
  if (n == "rem") return on<T, 2>([](T a, T b) { return remainder_of(a, b); });
  if (n == "mul" && op.has("hi")) return on<T, 2>([](T a, T b) { return high_product(a, b); });
  if (n == "mad" && op.has("hi"))
    return on<T, 3>(
        [](T a, T b, T c) { return static_cast<uint64_t>(high_product(a, b)) + static_cast<uint64_t>(c); });
  if (sizeof(T) < 8 && op.has("wide")) {
    if (n == "mul")
      return on_bits<2>([](uint64_t a, uint64_t b) { return wide_product<T>(a, b) & mask_of<twice<T>>; });
    if (n == "mad")
      return on_bits<3>(
          [](uint64_t a, uint64_t b, uint64_t c) { return (wide_product<T>(a, b) + c) & mask_of<twice<T>>; });
  }
  if (n == "shr") {
    i.undefined = spread::moved, i.moved = 1;
    return on_bits<2>(
        [](uint64_t a, uint64_t by) { return bits_of(shifted_right(as<T>(a), static_cast<uint32_t>(by))); });
  }
  if (n == "bfe") {
    i.undefined = spread::moved, i.moved = 1;
    return on_bits<3>([](uint64_t a, uint64_t at, uint64_t length) { return extracted<T>(a, at, length); });
  }
  if (n == "bfind" && op.has("shiftamt"))
    return on_bits<1>([](uint64_t a) { return highest_bit<T>(a, true); });
  if (n == "bfind") return on_bits<1>([](uint64_t a) { return highest_bit<T>(a, false); });
  return nullptr;
}

template <class T>
uint64_t reversed(uint64_t bits) {
  uint64_t r = 0;
  for (unsigned k = 0; k < 8 * sizeof(T); ++k) r |= (bits >> k & 1) << (8 * sizeof(T) - 1 - k);
  return r;
}

uint64_t permuted(uint64_t a, uint64_t b, uint64_t choice) {
  uint64_t const from = (b << 32) | (a & 0xffff'ffff);
  uint64_t r = 0;
  for (unsigned k = 0; k < 4; ++k) {
    uint64_t const c = choice >> (4 * k) & 15;
    uint64_t byte = from >> (8 * (c & 7)) & 255;
    if ((c & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    r |= byte << (8 * k);
  }
  return r;
}

uint64_t by_table(uint64_t a, uint64_t b, uint64_t c, uint64_t table) {
  uint64_t r = 0;
  for (unsigned k = 0; k < 8; ++k) {
    if ((table >> k & 1) != 0)
      r |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
  }
  return r & 0xffff'ffff;
}

/// Shifts 64 bits made of two words; the amount wraps at 32, or stays there.
template <bool Left, bool Wrap>
uint64_t funnel(uint64_t low, uint64_t high, uint64_t by) {
  by &= 0xffff'ffff;
  by = Wrap ? by & 31 : std::min<uint64_t>(by, 32);
  uint64_t const both = (high << 32) | (low & 0xffff'ffff);
  return (Left ? both >> (32 - by) : both >> by) & 0xffff'ffff;
}

/// Operations for which a sign makes no difference.
template <class T>
handler without_sign(instruction& i, opcode const& op) {
  auto const n = op.name;
  auto const moves = [&](uint8_t sources) { i.undefined = spread::moved, i.moved = sources; };
  if (n == "add") return on<T, 2>([](T a, T b) { return a + b; });
  if (n == "sub") return on<T, 2>([](T a, T b) { return a - b; });
  if (n == "neg") return on<T, 1>([](T a) { return 0 - a; });
  if (n == "mul" && op.has("lo")) return on<T, 2>([](T a, T b) { return uint64_t{a} * b; });
  if (n == "mad" && op.has("lo")) return on<T, 3>([](T a, T b, T c) { return uint64_t{a} * b + c; });
  if (n == "and") return i.undefined = spread::conjunction, on<T, 2>([](T a, T b) { return a & b; });
  if (n == "or") return i.undefined = spread::disjunction, on<T, 2>([](T a, T b) { return a | b; });
  if (n == "xor") return i.undefined = spread::each, on<T, 2>([](T a, T b) { return a ^ b; });
  if (n == "not") return i.undefined = spread::each, on<T, 1>([](T a) { return static_cast<T>(~a); });
  if (n == "shl")
    return moves(1), on_bits<2>([](uint64_t a, uint64_t by) {
             by &= 0xffff'ffff;
             return by >= 8 * sizeof(T) ? 0 : (a << by) & mask_of<T>;
           });
  if (n == "bfi") {
    return moves(2), on_bits<4>([](uint64_t a, uint64_t b, uint64_t at, uint64_t length) {
             at &= 0xff;
             length &= 0xff;
             if (at >= 8 * sizeof(T) || length == 0) return b & mask_of<T>;
             uint64_t const field = field_mask(length) << at;
             return ((b & ~field) | (a << at & field)) & mask_of<T>;
           });
  }
  if (n == "brev") return moves(1), on_bits<1>([](uint64_t a) { return reversed<T>(a); });
  if (n == "clz")
    return on_bits<1>([](uint64_t a) -> uint64_t { return std::countl_zero(static_cast<T>(a)); });
  if (n == "popc") return on_bits<1>([](uint64_t a) -> uint64_t { return std::popcount(a & mask_of<T>); });
  if (n == "prmt" && op.modifiers.size() == 1)
    return moves(2), on_bits<3>([](uint64_t a, uint64_t b, uint64_t c) { return permuted(a, b, c); });
  if (n == "lop3")
    return i.undefined = spread::each, on_bits<4>([](uint64_t a, uint64_t b, uint64_t c, uint64_t table) {
             return by_table(a, b, c, table);
           });
  if (n == "shf") {
    moves(2);
    bool const wrap = op.has("wrap");
    if (op.has("l"))
      return wrap ? on_bits<3>(
                        [](uint64_t a, uint64_t b, uint64_t by) { return funnel<true, true>(a, b, by); })
                  : on_bits<3>(
                        [](uint64_t a, uint64_t b, uint64_t by) { return funnel<true, false>(a, b, by); });
    return wrap
               ? on_bits<3>([](uint64_t a, uint64_t b, uint64_t by) { return funnel<false, true>(a, b, by); })
               : on_bits<3>(
                     [](uint64_t a, uint64_t b, uint64_t by) { return funnel<false, false>(a, b, by); });
  }
  return nullptr;
}

}  // namespace

handler arithmetic_handler(instruction& i, opcode const& op) {
  auto const n = op.name;
  if (n == "add" || n == "sub" || n == "mul" || n == "mad")
    i.undefined = i.type.kind == 'f' || op.has("hi") ? spread::all : spread::upward;
  if (i.type.bytes < 2) return nullptr;  // 8 bits are only loaded, stored and converted
  if (i.type.kind == 'f') return with_float(i.type, [&]<class T>() { return float_arithmetic<T>(op); });
  handler const plain = with_unsigned(i.type, [&]<class T>() { return without_sign<T>(i, op); });
  return plain != nullptr ? plain : with_integer(i.type, [&]<class T>() { return with_sign<T>(i, op); });
}

}  // namespace emulator
