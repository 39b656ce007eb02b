// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief wire: 1 to 8 bits per code, packed without gaps: magnitude in the low bits, sign above it.

#include "../core/concepts.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/quad.hpp"

#include <string>

namespace GLOBALQ_ABI::wire {

namespace detail {

/// The loops of packing, compiled once for packed<B> and packed<>.
struct packed_loops {
  /// Calls f(std::integral_constant of bits).
  GLOBALQ_ANY_FUNCTION
  template <class F>
  GLOBALQ_FUNCTION static void with_bits(int bits, F&& f) {
    switch (bits) {
      case 1:
        return f(std::integral_constant<int, 1>{});
      case 2:
        return f(std::integral_constant<int, 2>{});
      case 3:
        return f(std::integral_constant<int, 3>{});
      case 4:
        return f(std::integral_constant<int, 4>{});
      case 5:
        return f(std::integral_constant<int, 5>{});
      case 6:
        return f(std::integral_constant<int, 6>{});
      case 7:
        return f(std::integral_constant<int, 7>{});
      default:
        return f(std::integral_constant<int, 8>{});
    }
  }

  /// packed<>::pack() and unpack() of 1 to 8 bits.
  static void pack(int bits, std::int8_t const* codes, int count, std::byte* out, bool zero_free) {
    with_bits(bits, [&](auto b) { pack_as<decltype(b)::value>(codes, count, out, zero_free ? 1 : 0); });
  }
  static bool unpack(int bits, std::byte const* in, int count, std::int8_t* codes, bool zero_free) {
    bool bad = false;
    with_bits(bits,
              [&](auto b) { bad = unpack_as<decltype(b)::value>(in, count, codes, zero_free ? 1 : 0); });
    return bad;
  }

  /// Magnitude and sign in the low Bits bits.
  template <int Bits>
  GLOBALQ_FUNCTION static std::uint32_t field(std::int8_t code, int origin) {
    std::int32_t const c = code;
    std::int32_t const sign = c >> 31;
    return static_cast<std::uint32_t>(((c ^ sign) - sign - origin) | (sign & (1 << (Bits - 1))));
  }

  template <int Bits>
  GLOBALQ_FUNCTION static std::int8_t code(std::uint32_t field, int origin) {
    std::int32_t const m = static_cast<std::int32_t>(field & ((1U << (Bits - 1)) - 1)) + origin;
    std::int32_t const sign = -static_cast<std::int32_t>((field >> (Bits - 1)) & 1U);
    return static_cast<std::int8_t>((m ^ sign) - sign);
  }

  GLOBALQ_FUNCTION static constexpr std::uint32_t low_bits(int n) { return n >= 32 ? ~0U : (1U << n) - 1U; }

  /// @param origin  0 or 1 in each byte
  template <int Bits, int Q>
  GLOBALQ_FUNCTION static void pack_quads_as(std::uint32_t const (&quads)[Q], std::uint32_t (&out)[Q],
                                             std::uint32_t origin) {
    GLOBALQ_UNROLL
    for (int q = 0; q < Q; ++q) out[q] = 0;
    GLOBALQ_UNROLL
    for (int q = 0; q < Q; ++q) {
      std::uint32_t const sign = quad::signs(quads[q]);
      std::uint32_t const f =
          (quad::magnitude(quads[q], sign) - origin) | (sign & (quad::ones << (Bits - 1)));
      std::uint32_t bits = 0;  // of four codes
      if constexpr (Bits == 8) {
        bits = f;
      } else if constexpr (Bits == 4) {
        bits = quad::permute(f | (f >> 4), 0, 0x4420);
      } else {
        GLOBALQ_UNROLL
        for (int k = 0; k < 4; ++k) bits |= ((f >> (8 * k)) & 0xffU) << (Bits * k);
      }
      int const at = 4 * Bits * q;
      out[at / 32] |= bits << (at % 32);
      if (at % 32 + 4 * Bits > 32) out[at / 32 + 1] |= bits >> (32 - at % 32);
    }
  }

  template <int Bits, int Q>
  GLOBALQ_FUNCTION static void unpack_quads_as(std::uint32_t const (&in)[Q], std::uint32_t (&quads)[Q],
                                               std::uint32_t origin) {
    GLOBALQ_UNROLL
    for (int q = 0; q < Q; ++q) {
      int const at = 4 * Bits * q;
      std::uint32_t f = 0;  // the fields of four codes, one per byte
      if constexpr (Bits == 8) {
        f = in[q];
      } else if constexpr (Bits == 4) {
        f = quad::permute(in[at / 32], in[at / 32] >> 4, at % 32 == 0 ? 0x5140 : 0x7362) & 0x0f0f0f0fU;
      } else {
        std::uint32_t bits = in[at / 32] >> (at % 32);
        if (at % 32 + 4 * Bits > 32) bits |= in[at / 32 + 1] << (32 - at % 32);
        GLOBALQ_UNROLL
        for (int k = 0; k < 4; ++k) f |= ((bits >> (Bits * k)) & low_bits(Bits)) << (8 * k);
      }
      std::uint32_t const sign = quad::signs(f << (8 - Bits)), stored = f & (quad::ones * low_bits(Bits - 1));
      std::uint32_t const m = stored + origin;
      quads[q] = quad::with_sign(m, sign);
      if constexpr (Bits == 8) quads[q] |= m & quad::tops;
    }
  }

  /// Whether a stored magnitude is above a limit or, with @p zero, is zero with its sign set. Checks all codes of a
  /// word at once if they do not cross words: adding (largest pattern - limit) makes a magnitude above the limit carry
  /// into the sign.
  template <int Bits, int Q>
  GLOBALQ_FUNCTION static bool beyond(std::uint32_t const (&in)[Q], std::uint32_t limit, bool zero) {
    constexpr std::uint32_t most = low_bits(Bits - 1);
    std::uint32_t const room = limit < most ? most - limit : 0;
    if constexpr (8 % Bits == 0 && Bits > 1) {
      constexpr auto each = static_cast<std::uint32_t>(0xffffffffU / low_bits(Bits));  // 1 for every code
      std::uint32_t bad = 0;
      GLOBALQ_UNROLL
      for (int k = 0; k < (Q * Bits + 7) / 8; ++k) {
        std::uint32_t const m = in[k] & (most * each);
        bad |= m + room * each;
        if (zero) bad |= in[k] & ~(m + most * each);
      }
      return (bad & (each << (Bits - 1))) != 0;
    } else {
      std::uint32_t bad = 0;
      GLOBALQ_UNROLL
      for (int i = 0; i < 4 * Q; ++i) {
        int const at = Bits * i;
        std::uint32_t f = in[at / 32] >> (at % 32);
        if (at % 32 + Bits > 32) f |= in[at / 32 + 1] << (32 - at % 32);
        std::uint32_t const m = f & most;
        bad |= m + room;
        if (zero) bad |= f & ~(m + most);
      }
      return (bad & (1U << (Bits - 1))) != 0;
    }
  }

  using eight = globalq::detail::fixed_count<8>;

  /// The bits of m codes, at most eight, from code 8 j on.
  template <int Bits, class Count>
  GLOBALQ_FUNCTION static std::uint64_t fields(std::uint8_t const* bytes, int j, Count m) {
    std::uint64_t b = 0;
    for (int k = 0; k < (m * Bits + 7) / 8; ++k)
      b |= static_cast<std::uint64_t>(bytes[j * Bits + k]) << (8 * k);
    return b;
  }

  /// The lowest bit of each of eight codes.
  template <int Bits>
  GLOBALQ_FUNCTION static constexpr std::uint64_t lowest() {
    std::uint64_t ones = 0;
    for (int k = 0; k < 8; ++k) ones |= std::uint64_t{1} << (Bits * k);
    return ones;
  }

  template <int Bits>
  GLOBALQ_LOOP static void pack_as(std::int8_t const* codes, int count, std::byte* out, int origin) {
    std::int8_t const* __restrict in = codes;
    std::uint8_t* __restrict bytes = reinterpret_cast<std::uint8_t*>(out);
    if constexpr (8 % Bits == 0) {  // whole codes in a byte: vectorizes
      constexpr int each = 8 / Bits;
      int const whole = count / each;
      for (int j = 0; j < whole; ++j) {
        std::uint32_t b = 0;
        for (int k = 0; k < each; ++k) b |= field<Bits>(in[each * j + k], origin) << (Bits * k);
        bytes[j] = static_cast<std::uint8_t>(b);
      }
      if (count % each != 0) {
        std::uint32_t b = 0;
        for (int k = 0; k < count % each; ++k) b |= field<Bits>(in[each * whole + k], origin) << (Bits * k);
        bytes[whole] = static_cast<std::uint8_t>(b);
      }
    } else {
      auto const group = [=](int j, auto m) {
        std::uint64_t b = 0;
        for (int k = 0; k < m; ++k)
          b |= static_cast<std::uint64_t>(field<Bits>(in[8 * j + k], origin)) << (Bits * k);
        for (int k = 0; k < (m * Bits + 7) / 8; ++k)
          bytes[j * Bits + k] = static_cast<std::uint8_t>(b >> (8 * k));
      };
      for (int j = 0; j < count / 8; ++j) group(j, eight{});
      if (count % 8 != 0) group(count / 8, count % 8);
    }
  }

  template <int Bits>
  GLOBALQ_LOOP static bool unpack_as(std::byte const* in, int count, std::int8_t* codes, int origin) {
    std::uint8_t const* __restrict bytes = reinterpret_cast<std::uint8_t const*>(in);
    std::int8_t* __restrict out = codes;
    constexpr std::uint32_t mask = (1U << Bits) - 1;
    if constexpr (8 % Bits == 0) {
      constexpr int each = 8 / Bits;
      int const whole = count / each;
      for (int j = 0; j < whole; ++j)
        for (int k = 0; k < each; ++k)
          out[each * j + k] = code<Bits>((bytes[j] >> (Bits * k)) & mask, origin);
      for (int k = 0; k < count % each; ++k)
        out[each * whole + k] = code<Bits>((bytes[whole] >> (Bits * k)) & mask, origin);
    } else {
      auto const group = [=](int j, auto m) {
        std::uint64_t const b = fields<Bits>(bytes, j, m);
        for (int k = 0; k < m; ++k)
          out[8 * j + k] = code<Bits>(static_cast<std::uint32_t>(b >> (Bits * k)) & mask, origin);
      };
      for (int j = 0; j < count / 8; ++j) group(j, eight{});
      if (count % 8 != 0) group(count / 8, count % 8);
    }
    return unused_bits<Bits>(bytes, count) || (origin == 0 && minus_zero<Bits>(bytes, count));
  }

  /// Whether bits after the last code are set.
  template <int Bits>
  GLOBALQ_FUNCTION static bool unused_bits(std::uint8_t const* bytes, int count) {
    int const used = count * Bits % 8;
    return used != 0 && (bytes[count * Bits / 8] >> used) != 0;
  }

  /// Whether a code is "minus zero". Adding the largest magnitude to another one carries into the sign unless that is
  /// zero; one sum checks all codes of a byte, or eight codes.
  template <int Bits>
  GLOBALQ_LOOP static bool minus_zero(std::uint8_t const* __restrict bytes, int count) {
    constexpr std::uint64_t sign = 1U << (Bits - 1);
    constexpr std::uint64_t signs = lowest<Bits>() * sign, magnitudes = lowest<Bits>() * (sign - 1);
    if constexpr (8 % Bits == 0) {
      int const all = (count * Bits + 7) / 8;
      std::uint8_t bad = 0;
      for (int j = 0; j < all; ++j) {
        auto const some = static_cast<std::uint8_t>((bytes[j] & magnitudes) + magnitudes);
        bad = static_cast<std::uint8_t>(bad | (bytes[j] & signs & ~some));
      }
      return bad != 0;
    } else {
      std::uint64_t bad = 0;
      auto const group = [&](int j, auto m) {
        std::uint64_t const b = fields<Bits>(bytes, j, m);
        bad |= b & signs & ~((b & magnitudes) + magnitudes);
      };
      for (int j = 0; j < count / 8; ++j) group(j, eight{});
      if (count % 8 != 0) group(count / 8, count % 8);
      return bad != 0;
    }
  }
};

}  // namespace detail

/// @brief Codes of B bits, eight of them in B bytes, the first in the lowest bits.
///
/// A code is its magnitude (B-1 bits) with the sign above it. Levels without zero store magnitude - 1, so that all
/// patterns are used; for levels with zero, decoding rejects "minus zero".
/// @tparam B  bits, or @c dynamic: given at run time
/// @shape n codes: ceil(n * B / 8) bytes; unused bits at the end are zero
/// @throws configuration_error when bits given at run time are not 1 to 8
template <std::uint32_t B = dynamic>
class packed {
  using loops = detail::packed_loops;

 public:
  using code_type = std::int8_t;
  static constexpr bool is_integer = false;
  static constexpr bool without_gaps = true;
  static constexpr bool may_be_nibbles = B == 4 || B == dynamic;
  static constexpr char const* name = "packed";
  /// Bits, or 0: given at run time.
  static constexpr std::uint32_t static_bits = B;
  /// Bytes of four codes, if that is 1, 2 or 4; else 0.
  static constexpr int quad_bytes = B == 2 || B == 4 || B == 8 ? static_cast<int>(B) / 2 : 0;
  static_assert(B <= 8,
                "globalq: wire::packed holds 1 to 8 bits per code, an integer; use wire::int16 or "
                "wire::int32 for more");

  constexpr packed() requires(B != dynamic) = default;
  explicit packed(std::uint32_t bits) requires(B == dynamic) : bits_(static_cast<std::uint8_t>(bits)) {
    if (bits < 1 || bits > 8)
      throw configuration_error("globalq: wire::packed: " + std::to_string(bits) +
                                " bits per code; use 1 to 8, or wire::int16 or wire::int32 for more");
  }

  GLOBALQ_FUNCTION constexpr int bits() const { return B != dynamic ? static_cast<int>(B) : bits_; }
  constexpr std::uint64_t parameters() const { return static_cast<std::uint64_t>(bits()); }
  constexpr std::uint32_t largest_code(bool zero_free) const {
    std::uint32_t const patterns = 1U << (bits() - 1);
    std::uint32_t const largest = zero_free ? patterns : patterns - 1;
    return largest < 127 ? largest : 127;
  }
  GLOBALQ_FUNCTION constexpr std::uint64_t bytes(std::uint64_t n) const {
    return n / 8 * static_cast<std::uint64_t>(bits()) +
           divide_up<std::uint64_t>(n % 8 * static_cast<std::uint64_t>(bits()), 8);
  }
  constexpr std::uint8_t identifier() const { return static_cast<std::uint8_t>(16 + bits()); }

  /// @pre out has room for bytes(count)
  GLOBALQ_FUNCTION void pack(std::int8_t const* codes, int count, std::byte* out, bool zero_free) const {
    with_bits([&](auto b) { loops::pack_as<decltype(b)::value>(codes, count, out, zero_free ? 1 : 0); });
  }

  /// @returns true when a byte could not have come from pack()
  GLOBALQ_FUNCTION bool unpack(std::byte const* in, int count, std::int8_t* codes, bool zero_free) const {
    bool bad = false;
    with_bits(
        [&](auto b) { bad = loops::unpack_as<decltype(b)::value>(in, count, codes, zero_free ? 1 : 0); });
    return bad;
  }

  /// pack() in the registers of a GPU thread: four codes per word become bytes from the lowest of @p out on.
  /// @tparam Q  words; even unless quad_bytes says that four codes are whole bytes
  template <int Q>
  GLOBALQ_FUNCTION void pack_quads(std::uint32_t const (&quads)[Q], std::uint32_t (&out)[Q],
                                   bool zero_free) const {
    with_bits(
        [&](auto b) { loops::pack_quads_as<decltype(b)::value>(quads, out, zero_free ? quad::ones : 0); });
  }

  /// unpack() of whole rows in registers.
  /// @param limit  the largest code that may occur, at least 1
  /// @returns      true when there is a minus zero or a code above the limit
  template <int Q>
  GLOBALQ_FUNCTION bool unpack_quads(std::uint32_t const (&in)[Q], std::uint32_t (&quads)[Q],
                                     std::uint32_t limit, bool zero_free) const {
    bool bad = false;
    with_bits([&](auto b) {
      loops::unpack_quads_as<decltype(b)::value>(in, quads, zero_free ? quad::ones : 0);
      bad = loops::beyond<decltype(b)::value>(in, limit - (zero_free ? 1 : 0), !zero_free);
    });
    return bad;
  }

 private:
  template <class F>
  GLOBALQ_FUNCTION void with_bits(F&& f) const {
    if constexpr (B != dynamic)
      f(std::integral_constant<int, static_cast<int>(B)>{});
    else
      loops::with_bits(bits_, f);
  }

  std::uint8_t bits_ = static_cast<std::uint8_t>(B);
};

template <std::floating_point Fraction>
packed(Fraction) -> packed<~std::uint32_t{0}>;  // refused

}  // namespace GLOBALQ_ABI::wire
