// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: vectors of every type and magnitude, and their norms in long double.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "globalq/kernel/block_statistic.hpp"

namespace globalq_test {

namespace gq = globalq;

/// Values stored in a type, and read back exactly.
class stored_vector {
 public:
  stored_vector(gq::dtype type, std::vector<double> const& values)
      : type_(type), bytes_(gq::size_of(type) * values.size() + 8) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      switch (type) {
        case gq::dtype::float64:
          put(i, values[i]);
          break;
        case gq::dtype::float16:
          put(i, gq::float16::round(static_cast<float>(values[i])));
          break;
        case gq::dtype::bfloat16:
          put(i, gq::bfloat16::round(static_cast<float>(values[i])));
          break;
        default:
          put(i, static_cast<float>(values[i]));
      }
    }
  }

  gq::const_vector view() const { return {bytes_.data(), type_}; }
  gq::dtype type() const { return type_; }

  double operator[](std::size_t i) const {
    switch (type_) {
      case gq::dtype::float64:
        return get<double>(i);
      case gq::dtype::float16:
        return gq::float16::widen(get<std::uint16_t>(i));
      case gq::dtype::bfloat16:
        return gq::bfloat16::widen(get<std::uint16_t>(i));
      default:
        return get<float>(i);
    }
  }

 private:
  template <class T>
  void put(std::size_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof value, &value, sizeof value);
  }
  template <class T>
  T get(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof value, sizeof value);
    return value;
  }

  gq::dtype type_;
  std::vector<unsigned char> bytes_;
};

inline std::vector<gq::dtype> all_dtypes() {
  return {gq::dtype::float32, gq::dtype::float64, gq::dtype::float16, gq::dtype::bfloat16};
}

inline std::uint64_t mixed(std::uint64_t& state) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return state ^ (state >> 29);
}

/// count values of magnitude up to @p top, made from integers; every third is @p decades bits and more below
/// the others.
inline std::vector<double> values_up_to(double top, std::size_t count, int decades, std::uint64_t seed) {
  std::vector<double> list(count);
  std::uint64_t state = seed;
  for (std::size_t i = 0; i < count; ++i) {
    double const share = (static_cast<double>(mixed(state) >> 11) - 0x1p52) * 0x1p-52;
    list[i] = top * (i % 3 == 2 ? std::ldexp(share, -static_cast<int>(mixed(state) % 40) - decades) : share);
  }
  return list;
}

/// (sum (|x| / 2^exponent)^q)^(1/q) of values [first, first + count), in long double.
inline long double exact_norm(stored_vector const& x, std::size_t first, std::size_t count, std::uint32_t q,
                              int exponent) {
  long double sum = 0, top = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    long double const v = std::ldexp(std::fabs(static_cast<long double>(x[i])), -exponent);
    top = std::max(top, v);
    if (q == gq::infinity) continue;
    long double power = 1;
    for (std::uint32_t k = 0; k < q; ++k) power *= v;
    sum += power;
  }
  return q == gq::infinity ? top : (q == 1 ? sum : (q == 2 ? std::sqrt(sum) : std::pow(sum, 1.0L / q)));
}

/// How far a computed norm may lie from the exact one, as a fraction.
///
/// A power of a value carries q - 2 cuts to 26 bits (2^-25 each, q > 2; see the test Power) and, for float64, q times the
/// rounding to float32 (2^-24); additions of n values 2^-53 each, over 16 partial sums or a tree; the root
/// divides all that by q and adds 4 roundings of 2^-53 (see root's test).
inline long double norm_tolerance(gq::dtype type, std::uint32_t q, std::size_t n) {
  if (q == gq::infinity) return 0;
  long double power = static_cast<long double>(n / 16 + 32) * 0x1p-53L;
  if (q > 2) power += (q - 2) * 0x1p-25L;
  if (type == gq::dtype::float64) power += q * 0x1p-24L;
  return 1.001L * power / q + 4 * 0x1p-53L;
}

}  // namespace globalq_test
