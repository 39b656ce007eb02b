// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: normal distributions truncated to [0, 1], and mixtures of them, in closed form.

#include "../../core/error.hpp"
#include "distribution.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::learn {

namespace detail {

/// P(low < Z <= high) of a standard normal Z, accurate in both tails.
inline double normal_mass(double low, double high) {
  constexpr double root_half = 0.70710678118654752440;
  if (low > 0) return 0.5 * (std::erfc(low * root_half) - std::erfc(high * root_half));
  return 0.5 * (std::erfc(-high * root_half) - std::erfc(-low * root_half));
}
inline double normal_density(double z) {
  return std::exp(-0.5 * z * z) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
}

/// Moments of (0, t] under the density of N(mean, deviation^2).
inline moments normal_moments(double mean, double deviation, double t) {
  double const z0 = -mean / deviation, z = (t - mean) / deviation;
  double const p0 = normal_density(z0), p = normal_density(z), mass = normal_mass(z0, z);
  return {mass, mean * mass - deviation * (p - p0),
          (mean * mean + deviation * deviation) * mass - deviation * ((t + mean) * p - mean * p0)};
}

/// The t in [0, 1] with F(t) = q for a rising F, by bisection.
template <class F>
double inverse(F const& below, double q) {
  double low = 0, high = 1;
  for (int k = 0; k < 60 && high - low > 0x1p-54 * high; ++k) {
    double const t = 0.5 * (low + high);
    (below(t).mass < q ? low : high) = t;
  }
  return 0.5 * (low + high);
}

}  // namespace detail

/// The variable that has the normal distribution.
enum class normal_of {
  signed_values,  ///< x / norm in [-1, 1]: magnitudes are |N(mean, deviation^2)| truncated to [0, 1]
  magnitudes      ///< |x| / norm: N(mean, deviation^2) truncated to [0, 1]
};

/// @brief |N(mean, deviation^2)|, or N(mean, deviation^2), conditioned on [0, 1].
/// @throws configuration_error unless deviation > 0 and the mass in [0, 1] is representable as a double
/// @source Faghri et al. 2020, appendix A.2, and the moments of appendix B
class truncated_normal {
 public:
  truncated_normal(double mean, double deviation, normal_of what = normal_of::signed_values)
      : mean_(mean), deviation_(deviation), folded_(what == normal_of::signed_values) {
    if (!(deviation > 0 && is_finite(mean) && is_finite(deviation)))
      throw configuration_error("globalq: learn::truncated_normal: mean " + std::to_string(mean) +
                                ", deviation " + std::to_string(deviation) +
                                "; both must be finite, and the deviation above 0");
    double const inside = unscaled(1).mass;
    if (!(inside >= 0x1p-900))
      throw configuration_error("globalq: learn::truncated_normal: N(" + std::to_string(mean) + ", " +
                                std::to_string(deviation) +
                                "^2) has no mass in [0, 1]; use a mean nearer to it");
    scale_ = 1 / inside;
  }

  double mean() const { return mean_; }
  double deviation() const { return deviation_; }

  moments below(double t) const {
    if (!(t > 0)) return {};
    moments const m = unscaled(std::min(t, 1.0));
    return {m.mass * scale_, m.first * scale_, m.second * scale_};
  }
  /// @complexity some fifty evaluations of F
  double quantile(double q) const {
    return detail::inverse([this](double t) { return below(t); }, q);
  }

 private:
  moments unscaled(double t) const {
    moments m = detail::normal_moments(mean_, deviation_, t);
    if (folded_) {
      moments const other = detail::normal_moments(-mean_, deviation_, t);
      m = {m.mass + other.mass, m.first + other.first, m.second + other.second};
    }
    return m;
  }

  double mean_, deviation_, scale_ = 1;
  bool folded_;
};

/// @brief Weighted normals: sum_i gamma_i F_i, gamma_i the squared norms (or equal weights for the -N variants).
/// @complexity one evaluation for each part; apply discretize() to one with many parts before solving
/// @source Faghri et al. 2020, section 3.4
class mixture {
 public:
  /// @param weight  not negative, not all zero
  void add(truncated_normal const& f, double weight) {
    if (!(weight >= 0 && is_finite(weight)))
      throw configuration_error("globalq: learn::mixture: a weight of " + std::to_string(weight) +
                                "; weights are squared norms, finite and not negative");
    if (weight == 0) return;
    parts_.push_back({f, weight});
    total_ += weight;
  }
  std::size_t size() const { return parts_.size(); }

  moments below(double t) const {
    moments sum{};
    for (auto const& [f, weight] : parts_) {
      moments const m = f.below(t);
      double const share = weight / total_;
      sum = {sum.mass + share * m.mass, sum.first + share * m.first, sum.second + share * m.second};
    }
    return sum;
  }
  double quantile(double q) const {
    return detail::inverse([this](double t) { return below(t); }, q);
  }

 private:
  struct part {
    truncated_normal f;
    double weight;
  };
  std::vector<part> parts_;
  double total_ = 0;
};

}  // namespace GLOBALQ_ABI::learn
