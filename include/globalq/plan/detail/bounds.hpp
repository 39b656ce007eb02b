// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: bounds on the variance of the mean, every rounding on the way included.
///
/// All bounds are of the form E||G(x) - mean||^2 <= (theta / n) ||x||^2 with ||x||^2 = sum_i ||x_i||^2: theta = V / n, where
/// V ||x||^2 bounds the variance of the sum of all workers. Sources: docs/theory.md.

#include "../../core/arithmetic.hpp"
#include "../../operator/detail/resolve.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace globalq::detail {

/// What bounds need to know of levels and norm.
struct bound_terms {
  double first = 0;  ///< smallest level above zero, as a fraction of the norm
  double spread =
      0;  ///< ((r-1)^2 / 4r), r the largest ratio of neighbouring levels; 0 for evenly spaced ones
  bool binary = false;
  bool evenly_spaced = false;
  bool zero_free = false;
  bool shifts = false;

  /// Variance / ||y||^2-like terms of one encoding: coordinates d, unit = scale * c * (what it scales), E||y||^2 <= m.
  ///
  /// unit^2 <= reach^2, so first-level terms are (first * reach)^2 d / 4 or first * reach * sqrt(d m).
  double encoding(double d, double reach, double m) const {
    double const step = first * reach;
    if (shifts) return d * step * step / 12;
    double const wide = std::sqrt(d * m) * step;
    if (evenly_spaced) return std::min(d * step * step / 4, wide);
    if (binary) return spread * m + std::min(wide, d * step * step);
    // the least K_p step^(2-p) d^((2-p)/2) m^(p/2) over 0 <= p < 1: at p = (e - 2) / (e - 1), e = step sqrt(d / m), or at 0
    double least = wide > 2 * m ? wide - m : d * step * step / 4;
    if (zero_free) least = d * step * step;
    return spread * m + least;
  }
};

/// Whether each worker's sum is encoded again, and passed on to the next.
inline bool is_chain(schedule_facts const& s, int workers) {
  return s.height == workers - 1 && s.roundings == 0;
}
/// Whether variance_bound() looks at additions.
inline bool needs_additions(resolution const& r, schedule_facts const& s, int workers) {
  if (workers == 1) return false;
  return r.how == method::exponential ||
         (r.how == method::requantise && !s.one_addition && !is_chain(s, workers));
}

/// theta of an operator on a schedule; NaN where there is no bound (rounding to nearest).
/// @param d           length of the vector
/// @param additions   of the schedule; empty unless needs_additions()
inline double variance_bound(operator_facts const& op, resolution const& r, schedule_facts const& s,
                             int workers, std::uint64_t length,
                             std::vector<std::pair<int, int>> const& additions) {
  double const none = std::numeric_limits<double>::quiet_NaN();
  if (op.plain || !op.unbiased || op.fixed_unit > 0) return none;
  if (length == 0 || (op.plain_tail && length < op.bucket)) return 0;
  if (s.encoders != 0) {
    // vectors v of nodes, their sums over the size of the largest: ||v||^2 is at most ||x||^2 / largest_node in sum
    schedule_facts between = s;
    between.encoders = 0;
    return s.weight(workers) * variance_bound(op, r, between, s.encoders, length, additions);
  }
  double const n = workers;
  double const d = static_cast<double>(op.bucket == 0 ? length : std::min(op.bucket, length));
  auto const excess = [](std::uint32_t order, double count) {  // of the norm over the Euclidean one
    double const inverse = order == infinity ? 0.0 : 1.0 / order;
    return std::pow(count, std::max(0.0, inverse - 0.5));
  };
  double const c = excess(op.q, d) * (op.local ? 1.0 : excess(op.p, n)) * (op.q.rounds_up() ? 2.0 : 1.0);
  bound_terms t;
  t.binary = op.binary;
  t.evenly_spaced = op.evenly_spaced;
  t.zero_free = op.zero_free;
  t.shifts = op.shifts && !keeps_scale_of_sums(op, r.how);
  if (op.evenly_spaced) {
    t.first = 1.0 / r.size;
  } else if (op.binary) {
    t.first = std::pow(2.0, 1.0 - r.size);
    t.spread = 1.0 / 8;
  } else {
    t.first = op.magnitudes.front();
    for (std::size_t k = 1; k < op.magnitudes.size(); ++k) {
      double const ratio = op.magnitudes[k] / op.magnitudes[k - 1];
      t.spread = std::max(t.spread, (ratio - 1) * (ratio - 1) / (4 * ratio));
    }
  }
  // own encodings of all workers: D = n d coordinates under a global norm, d each under local ones
  double const omega = op.local ? t.encoding(d, c, 1) : t.encoding(n * d, c, 1);
  if (workers == 1 || r.how == method::sum || r.how == method::none) return omega / n;
  auto const slot = [](int rank) { return static_cast<std::size_t>(rank); };
  std::vector<double> terms(slot(workers), 1.0), variance(slot(workers), 0.0);
  if (r.how == method::exponential) {
    std::vector<double> sizes;
    for (auto const& [into, from] : additions) {
      terms[slot(into)] += terms[slot(from)];
      sizes.push_back(terms[slot(into)]);
    }
    // weight of a worker: over the sums v it enters, |v| (9/8)^(additions after v)
    std::vector<double> growth(slot(workers), 1.0), weight(slot(workers), 0.0);
    for (std::size_t k = additions.size(); k-- > 0;) {
      std::size_t const a = slot(additions[k].first), b = slot(additions[k].second);
      weight[a] += sizes[k] * growth[a];
      weight[b] = weight[a];
      growth[a] *= 9.0 / 8;
      growth[b] = growth[a];
    }
    double const most = *std::max_element(weight.begin(), weight.end());
    return omega / n + (1 + omega) / (8 * n) * most;
  }
  // requantise: an encoding of k terms has reach k under a global norm; under local ones its reach is its own norm
  auto const hop = [&](double k, double before) {
    double const m = k + before;
    return op.local ? t.encoding(d, c, 1) * m : t.encoding(d, k * c, m);
  };
  double total = 0;
  if (s.one_addition) {
    total = omega + hop(n, omega);
  } else if (is_chain(s, workers)) {  // one worker's encoding, then one a hop
    total = hop(1, 0);
    for (int k = 2; k <= workers; ++k) total += hop(k, total);
  } else {
    // a tree: leaves encode (omega for all), each inner worker encodes its sum once, when all children are in
    std::vector<int> last(slot(workers), -1);
    for (std::size_t k = 0; k < additions.size(); ++k) last[slot(additions[k].first)] = static_cast<int>(k);
    total = omega;
    for (std::size_t k = 0; k < additions.size(); ++k) {
      std::size_t const a = slot(additions[k].first), b = slot(additions[k].second);
      terms[a] += terms[b];
      variance[a] += variance[b];
      if (last[a] == static_cast<int>(k)) {
        double const added = hop(terms[a], omega + variance[a]);
        variance[a] += added;
        total += added;
      }
    }
  }
  return total / n;
}

}  // namespace globalq::detail
