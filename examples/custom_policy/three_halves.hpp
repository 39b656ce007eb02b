// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A custom norm: of order 3/2, between the sum of magnitudes and the Euclidean norm.

//! [three-halves]
#include <globalq/core/concepts.hpp>

#include <cmath>

/// (sum |x|^(3/2))^(2/3) over the values of all workers.
struct three_halves {
  static constexpr char const* name = "l:3/2";
  static constexpr bool is_local = false;        // one scale for all workers, so that codes can be added
  static constexpr bool bounds_largest = false;  // a scale below the largest magnitude is raised
  struct statistic {
    double sum = 0;  // of |x|^(3/2)
  };

  std::uint64_t bucket = 0;  // values that share a scale; 0: the whole vector
  std::uint64_t parameters() const { return bucket; }

  template <class Value>  // float or double
  statistic measure(Value const* x, int count) const {
    statistic s;
    for (int i = 0; i < count; ++i) s.sum += std::pow(std::fabs(static_cast<double>(x[i])), 1.5);
    return s;
  }
  statistic merge(statistic a, statistic b) const { return {a.sum + b.sum}; }
  double scale(statistic s) const { return std::cbrt(s.sum * s.sum); }
};

static_assert(globalq::NormOfStatistic<three_halves>);
//! [three-halves]
