// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Compressors that round at random: what many calls come to.

#include <cmath>

#include "tests/baseline/cases.hpp"

namespace cases {

/// Mean and mean square error of @p calls calls of a compressor that is told what came before.
struct statistics {
  std::vector<double> mean;
  double error = 0, deviation = 0;  ///< of one call: E |mean - x|^2, and its uncertainty
};
template <class Call>
statistics sample(vector const& x, int calls, Call const& call) {
  statistics s{std::vector<double>(x.size())};
  double squares = 0;
  vector mean(x.size());
  for (int t = 0; t < calls; ++t) {
    call(t, mean);
    double here = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      s.mean[i] += static_cast<double>(mean[i]) / calls;
      here += std::pow(static_cast<double>(mean[i]) - static_cast<double>(x[i]), 2);
    }
    s.error += here / calls;
    squares += here * here / calls;
  }
  s.deviation = std::sqrt(std::max(0.0, squares - s.error * s.error) / calls);
  return s;
}

}  // namespace cases
