// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: compositions by name, and vectors that are built from integers.
///
/// Every value is an integer times a power of two, so that no compiler flag changes an input.

#include "tests/support/calls.hpp"
#include "tests/support/hash.hpp"

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/schedule/any.hpp>

#include <globalq/named/description.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace support {

namespace gq = globalq;

// ---- compositions

/// An operator and a schedule, in words.
struct composition {
  std::string norm = "linf";  ///< as gq::named::description, or fixed
  std::uint64_t bucket = 0;
  std::string levels = "uniform:7";
  std::string rounding = "stochastic";
  std::string wire = "int8";
  std::string reduce = "auto";
  std::string schedule = "ring";

  std::string text() const {
    return norm + " bucket " + std::to_string(bucket) + ' ' + levels + ' ' + rounding + ' ' + wire + ' ' +
           reduce + " on " + schedule;
  }
};

/// The unit of "fixed": above every value of the inputs that are used with it.
inline constexpr double fixed_scale = 64;

/// What of a composition its operator needs; kept, since many compositions share one.
inline gq::any_quantizer make_operator(composition const& c) {
  if (c.norm == "fixed") {  // no word of named: uniform levels, int8 and packed stand for all
    gq::norm::fixed const unit{fixed_scale, c.bucket};
    std::uint32_t const s =
        c.levels == "uniform" ? 0 : static_cast<std::uint32_t>(std::stoul(c.levels.substr(8)));
    if (c.wire == "int8")
      return gq::quantizer{unit, gq::levels::uniform<>{s}, gq::rounding::stochastic{}, gq::wire::int8{}};
    return gq::quantizer{unit, gq::levels::uniform<>{s}, gq::rounding::stochastic{},
                         gq::wire::packed<>{static_cast<std::uint32_t>(std::stoul(c.wire.substr(7)))}};
  }
  return gq::named::make({c.norm, c.levels, c.rounding, c.wire, c.reduce, c.bucket});
}

// ---- values

template <class T>
T value_from(double x) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>)
    return static_cast<T>(x);
  else
    return T(static_cast<float>(x));
}
inline double to_double(double x) { return x; }
inline double to_double(float x) { return static_cast<double>(x); }
inline double to_double(gq::float16 x) { return static_cast<double>(static_cast<float>(x)); }
inline double to_double(gq::bfloat16 x) { return static_cast<double>(static_cast<float>(x)); }

template <class T>
struct traits {
  using word = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  static constexpr gq::dtype type = gq::dtype_of<T>::value;
  static constexpr word nan = type == gq::dtype::float64   ? static_cast<word>(0x7ff8000000000000ULL)
                              : type == gq::dtype::float32 ? static_cast<word>(0x7fc00000ULL)
                              : type == gq::dtype::float16 ? static_cast<word>(0x7e00)
                                                           : static_cast<word>(0x7fc0);
  static constexpr word infinity = type == gq::dtype::float64   ? static_cast<word>(0x7ff0000000000000ULL)
                                   : type == gq::dtype::float32 ? static_cast<word>(0x7f800000ULL)
                                   : type == gq::dtype::float16 ? static_cast<word>(0x7c00)
                                                                : static_cast<word>(0x7f80);
  static constexpr word sign = static_cast<word>(word{1} << (8 * sizeof(T) - 1));
  /// Mantissa bits, the implied one left out.
  static constexpr int digits = type == gq::dtype::float64   ? 52
                                : type == gq::dtype::float32 ? 23
                                : type == gq::dtype::float16 ? 10
                                                             : 7;
  /// Smallest subnormal.
  static double tiniest() {
    return type == gq::dtype::float64   ? 0x1p-1074
           : type == gq::dtype::float32 ? 0x1p-149
           : type == gq::dtype::float16 ? 0x1p-24
                                        : 0x1p-133;
  }
};
template <class T>
typename traits<T>::word word_of(T x) {
  return std::bit_cast<typename traits<T>::word>(x);
}
template <class T>
T from_word(typename traits<T>::word w) {
  return std::bit_cast<T>(w);
}

enum class input { normal, zeros, one_nonzero, equal_maxima, denormals, largest, small };
inline constexpr input inputs[] = {input::normal,    input::zeros,   input::one_nonzero, input::equal_maxima,
                                   input::denormals, input::largest, input::small};
inline char const* name_of(input k) {
  constexpr char const* names[] = {"normal",    "zeros",   "one non-zero",     "equal maxima",
                                   "denormals", "largest", "2^-20 of the norm"};
  return names[static_cast<int>(k)];
}

/// Coordinate @p i of worker @p rank.
template <class T>
T value_at(input kind, std::uint64_t seed, int rank, int workers, std::uint64_t i, std::uint64_t length) {
  using word = typename traits<T>::word;
  std::uint64_t const h = mix(seed, static_cast<std::uint64_t>(rank), i);
  bool const negative = (h >> 63) != 0;
  switch (kind) {
    case input::normal: {  // four uniform integers: bell-shaped, below 2
      int k = 0;
      for (int s = 0; s < 64; s += 16) k += static_cast<int>((h >> s) & 0x3fff) - 0x2000;
      return value_from<T>(k * 0x1p-14);
    }
    case input::zeros:
      return from_word<T>(negative ? traits<T>::sign : word{0});
    case input::one_nonzero:
      return value_from<T>(rank == workers / 2 && i == length / 2 ? -1.25 : 0.0);
    case input::equal_maxima:
      return value_from<T>(3.0);
    case input::denormals:
      return from_word<T>(
          static_cast<word>((h % 100 + (i == 0 ? 1 : 0)) | (negative ? traits<T>::sign : word{0})));
    case input::largest: {  // two thirds are the largest, the rest is smaller
      word const top = static_cast<word>(traits<T>::infinity - 1);
      return from_word<T>(static_cast<word>((h % 3 == 0 ? static_cast<word>(top - (h >> 8) % 64) : top) |
                                            (i % 2 == 0 ? traits<T>::sign : word{0})));
    }
    default: {
      if (i == 0) return value_from<T>(rank == 0 ? 1.0 : 0.5);
      double const m = static_cast<double>(8 + h % 8) * 0x1p-23;
      return value_from<T>(negative ? -m : m);
    }
  }
}

/// Compares as bytes: NaN equals NaN, and the zeros differ.
template <class A, class B>
bool same_bytes(A const& a, B const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
}

// ---- pairwise sampling

/// Counts which pairs of choices have been seen together, of at most 16 factors with 16 choices each.
class pair_cover {
 public:
  /// @param choice  one index a factor
  /// @returns       how many pairs are new
  std::size_t add(std::vector<int> const& choice) {
    std::size_t const before = size_;
    for (std::size_t b = 0; b < choice.size(); ++b)
      for (std::size_t a = 0; a < b; ++a) {
        auto const pair =
            seen_.begin() + static_cast<std::ptrdiff_t>(most * most * place(b, choice) + place(a, choice));
        size_ += *pair ? 0 : 1;
        *pair = true;
      }
    return size_ - before;
  }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t most = 16;
  static std::size_t place(std::size_t factor, std::vector<int> const& choice) {
    return most * factor + static_cast<std::size_t>(choice[factor]);
  }

  std::vector<bool> seen_ = std::vector<bool>(most * most * most * most);
  std::size_t size_ = 0;
};

/// The z that C normal variables stay within, but for one chance in 10^6.
inline double threshold(double comparisons) {
  double low = 0, high = 40;
  for (int k = 0; k < 100; ++k) {
    double const z = (low + high) / 2;
    (comparisons * std::erfc(z / std::sqrt(2.0)) > 1e-6 ? low : high) = z;
  }
  return high;
}

}  // namespace support
