// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: the levels of least variance, by dynamic programming.

#include "coordinate_descent.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace GLOBALQ_ABI::learn {

/// @brief Points with masses: a distribution for which optimal is exact.
/// @shape at, mass: n; at ascends within [0, 1]
struct atoms {
  std::vector<double> at;
  std::vector<double> mass;
};

namespace detail {

/// Sums over atoms from which the cost of a gap follows in O(1), and the possible positions of levels.
///
/// Node 0 is the level 0, the last node the level 1, and those between are the atoms. With W_i and M_i the mass and
/// first moment of the atoms from node i on, and P_i the second moment of those before it, the gap from node i to node
/// j costs (y_i + y_j)(M_i - M_j) - y_i y_j (W_i - W_j) - (P_j - P_i). W and M are sums from above, P is a sum from
/// below; so the differences are accurate: the error is a few 2^-53 times y_j M_i + P_j, whatever mass lies below y_i.
class gap_costs {
 public:
  gap_costs(atoms const& a) {
    double total = 0;
    for (double m : a.mass) total += m;
    y_.push_back(0);
    mass_.push_back(0);
    for (std::size_t k = 0; k < a.at.size(); ++k) {
      double const m = a.mass[k], x = a.at[k];
      if (!(m > 0)) continue;
      if (x < smallest_level) {
        mass_[0] += m / total;  // counts as level 0
      } else if (x * closest_ratio >= 1) {
        continue;  // counts as level 1, without variance
      } else if (y_.size() > 1 && x < y_.back() * closest_ratio) {
        double const both = mass_.back() + m / total;  // too close for two levels: merge the atoms
        y_.back() += (x - y_.back()) * (m / total / both);
        mass_.back() = both;
      } else {
        y_.push_back(x);
        mass_.push_back(m / total);
      }
    }
    y_.push_back(1);
    mass_.push_back(0);
    std::size_t const n = y_.size();
    w_.assign(n + 1, 0);
    m_.assign(n + 1, 0);
    p_.assign(n + 1, 0);
    for (std::size_t i = n; i-- > 0;) {
      w_[i] = w_[i + 1] + mass_[i];
      m_[i] = m_[i + 1] + mass_[i] * y_[i];
    }
    for (std::size_t i = 0; i < n; ++i) p_[i + 1] = p_[i] + mass_[i] * y_[i] * y_[i];
  }

  std::size_t size() const { return y_.size(); }
  double at(std::size_t i) const { return y_[i]; }
  double mass_at_zero() const { return mass_[0]; }

  /// The variance of the atoms between levels at nodes i < j.
  double operator()(std::size_t i, std::size_t j) const {
    double const c = (y_[i] + y_[j]) * (m_[i] - m_[j]) - y_[i] * y_[j] * (w_[i] - w_[j]) - (p_[j] - p_[i]);
    return c > 0 ? c : 0;
  }
  /// The variance of the atoms below b, if -b and b are levels, plus those between b and the level at node j.
  double around(double b, std::size_t j) const {
    std::size_t const i = static_cast<std::size_t>(std::lower_bound(y_.begin(), y_.end(), b) - y_.begin());
    double const inside = b * b * (w_[0] - w_[i]) - p_[i];
    double const gap = (b + y_[j]) * (m_[i] - m_[j]) - b * y_[j] * (w_[i] - w_[j]) - (p_[j] - p_[i]);
    return (inside > 0 ? inside : 0) + (gap > 0 ? gap : 0);
  }
  /// Without zero: the best first level between 0 and node j, if node j is the second level.
  ///
  /// The variance is convex in it, with the derivative 2 b W(<= b) - sum over atoms above b of (y_j - x) w, which rises
  /// between atoms: the best level is an atom, or lies between two.
  double first_level(std::size_t j) const {
    auto const above = [&](std::size_t i) { return y_[j] * (w_[i] - w_[j]) - (m_[i] - m_[j]); };
    std::size_t low = 1, high = j;  // the first node i whose derivative to the right is not negative
    while (low < high) {
      std::size_t const i = low + (high - low) / 2;
      if (2 * y_[i] * (w_[0] - w_[i + 1]) >= above(i + 1))
        high = i;
      else
        low = i + 1;
    }
    double const below = w_[0] - w_[low];
    double const b = below > 0 ? above(low) / (2 * below) : y_[low];
    double const most = std::min(y_[low], y_[j] / closest_ratio);
    double const least = std::max(y_[low - 1], std::min(y_[1] * 0x1p-20, most));
    return std::max(smallest_level, std::max(least, std::min(b, most)));
  }

 private:
  std::vector<double> y_, mass_, w_, m_, p_;
};

/// Computes the cheapest paths from node 0 to all nodes with one more gap, by divide and conquer.
///
/// Gap costs satisfy the quadrangle inequality (docs/theory.md), so the best last level before node j does not fall as
/// j rises: the best level for the middle node bounds the search on both sides.
template <class Cost>
class next_layer {
 public:
  next_layer(Cost const& cost, std::vector<double> const& before, std::vector<double>& after,
             std::uint32_t* from)
      : cost_(cost), before_(before), after_(after), from_(from) {}

  /// Fills [first, last], whose best predecessors are in [low, high]; a predecessor of j is below j.
  void fill(std::size_t first, std::size_t last, std::size_t low, std::size_t high) {
    std::size_t const j = first + (last - first) / 2;
    std::size_t best = low;
    double least = std::numeric_limits<double>::max();
    for (std::size_t i = low, end = std::min(high, j - 1); i <= end; ++i) {
      double const c = before_[i] + cost_(i, j);
      if (c < least) {
        least = c;
        best = i;
      }
    }
    after_[j] = least;
    from_[j] = static_cast<std::uint32_t>(best);
    if (j > first) fill(first, j - 1, low, best);
    if (j < last) fill(j + 1, last, std::max(best, low), high);
  }

 private:
  Cost const& cost_;
  std::vector<double> const& before_;
  std::vector<double>& after_;
  std::uint32_t* from_;
};

/// Adds the missing levels below the smallest one: they cost nothing, and without zero they reduce the variance.
inline void add_below(level_set& l, std::size_t missing) {
  double const top = l.values[l.first_free()];
  std::vector<double> more;
  for (std::size_t k = missing; k > 0; --k)
    more.push_back(top * std::exp2(-20.0 * static_cast<double>(k) / static_cast<double>(missing)));
  l.values.insert(l.values.begin() + static_cast<std::ptrdiff_t>(l.first_free()), more.begin(), more.end());
}

}  // namespace detail

/// @brief The levels that minimize the variance: the global minimum.
///
/// For atoms the result is exact: the variance is linear in a level between two atoms (except in the first level of a
/// set without zero, which is computed in closed form), so some best levels are atoms, and a dynamic program over gaps
/// finds the best of those. For bins it takes the means as atoms, and then moves levels inside their bins by sweeps of
/// coordinate descent on piecewise_uniform. Atoms closer than closest_ratio count as one.
/// @complexity  O(size n log n) for n atoms, about 1 ms for 16 levels and 2,048 bins; 4 size n bytes of memory
/// @source      Zhang et al. 2017 (ZipML) for the dynamic program, quadratic there; Faghri et al. 2020 for the variance
struct optimal {
  std::uint32_t size = 7;  ///< levels above zero
  bool zero_free = false;
  int sweeps = 2;  ///< of coordinate descent after the program, for bins

  /// @throws configuration_error if no table has that number of levels
  solution operator()(atoms const& a) const {
    detail::check_size(size, "optimal");
    detail::gap_costs const cost(a);
    std::size_t const last = cost.size() - 1;  // nodes 1 to last - 1 are atoms
    std::size_t const nodes = zero_free ? size - 1 : size;
    solution r;
    r.levels.zero_free = zero_free;
    if (!zero_free) r.levels.values.push_back(0);
    if (nodes == 0) {
      r.levels.values.push_back(1);
      r.variance = cost.around(1, last);
    } else if (nodes >= last) {  // a level on each atom
      for (std::size_t j = 1; j <= last; ++j) r.levels.values.push_back(cost.at(j));
      detail::add_below(r.levels, size - last);
      double const first = zero_free ? r.levels.values[0] : 0;
      r.variance = cost.mass_at_zero() * first * first;
    } else {
      std::vector<std::size_t> const path = best_path(cost, last, nodes, r.variance);
      if (zero_free) r.levels.values.push_back(cost.first_level(path[0]));
      for (std::size_t j : path) r.levels.values.push_back(cost.at(j));
    }
    return r;
  }

  /// @throws configuration_error if no table has that number of levels
  solution operator()(bins const& b) const {
    solution r = (*this)(atoms{b.mean, b.mass});
    piecewise_uniform const f(b);
    coordinate_descent const improve{
        .size = size, .zero_free = zero_free, .start = r.levels, .max_sweeps = sweeps, .tolerance = 0};
    r = improve(f);
    r.converged = true;
    return r;
  }

 private:
  /// The nodes of the best levels, ascending to the last one.
  std::vector<std::size_t> best_path(detail::gap_costs const& cost, std::size_t last, std::size_t nodes,
                                     double& least) const {
    std::vector<double> before(last + 1, std::numeric_limits<double>::max()), after = before;
    for (std::size_t j = 1; j <= last; ++j)
      before[j] = zero_free ? cost.around(cost.first_level(j), j) : cost(0, j);
    std::vector<std::uint32_t> from(nodes * (last + 1), 0);
    for (std::size_t k = 2; k <= nodes; ++k) {
      detail::next_layer layer(cost, before, after, from.data() + (k - 1) * (last + 1));
      // the k-th level is at node k or above, and leaves a node for each level that follows
      if (k < nodes)
        layer.fill(k, last - (nodes - k), k - 1, last - (nodes - k) - 1);
      else
        layer.fill(last, last, k - 1, last - 1);
      before.swap(after);
    }
    least = before[last];
    std::vector<std::size_t> path(nodes, last);
    for (std::size_t k = nodes; k > 1; --k) path[k - 2] = from[(k - 1) * (last + 1) + path[k - 1]];
    return path;
  }
};

}  // namespace GLOBALQ_ABI::learn
