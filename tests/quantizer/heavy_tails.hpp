// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: normal vectors, and vectors with heavy tails.

#include "tests/support/cases.hpp"

#include <cmath>
#include <random>
#include <vector>

namespace support {

/// Normal values, or of Student's t distribution with 3 degrees of freedom.
template <class T = float>
std::vector<T> normal_or_heavy(std::size_t d, std::uint64_t seed, bool heavy = false) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<T> x(d);
  for (T& v : x) {
    double const z = normal(bits);
    double squares = 0;
    for (int k = 0; k < 3; ++k) squares += std::pow(normal(bits), 2);
    v = value_from<T>(heavy ? z / std::sqrt(squares / 3) : z);
  }
  return x;
}

template <class T>
double square_of(std::vector<T> const& x) {
  double sum = 0;
  for (T v : x) sum += to_double(v) * to_double(v);
  return sum;
}

}  // namespace support
