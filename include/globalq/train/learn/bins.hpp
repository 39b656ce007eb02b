// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: a distribution in bins of known mass and mean: the output of statistics and the input of solvers.

#include "distribution.hpp"

#include <cstddef>
#include <vector>

namespace GLOBALQ_ABI::learn {

/// @brief Masses and means of consecutive intervals of [0, 1].
///
/// @shape edge: n + 1, ascending, from 0 to 1; mass, mean: n. Masses add up to 1; edge[k] <= mean[k] <= edge[k + 1].
struct bins {
  std::vector<double> edge;
  std::vector<double> mass;
  std::vector<double> mean;

  std::size_t size() const { return mass.size(); }
};

/// @brief The bins of a distribution between given edges.
/// @param edge  ascending, from 0 to 1
/// @complexity  one evaluation of F for each edge
template <Distribution F>
bins discretize(F const& f, std::vector<double> edge) {
  bins b;
  std::size_t const n = edge.size() - 1;
  b.mass.resize(n);
  b.mean.resize(n);
  moments before{};
  double total = 0;
  for (std::size_t k = 0; k < n; ++k) {
    moments const up_to = f.below(edge[k + 1]);
    moments const part = up_to - before;
    before = up_to;
    double const mean = part.mass > 0 ? part.first / part.mass : edge[k];
    b.mass[k] = part.mass > 0 ? part.mass : 0;
    b.mean[k] = mean < edge[k] ? edge[k] : (mean > edge[k + 1] ? edge[k + 1] : mean);
    total += b.mass[k];
  }
  for (double& m : b.mass) m /= total;
  b.edge = static_cast<std::vector<double>&&>(edge);
  return b;
}

}  // namespace GLOBALQ_ABI::learn
