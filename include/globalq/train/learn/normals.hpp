// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: statistics as a few normals: mean, deviation and norm of sampled buckets.

#include "histogram.hpp"
#include "truncated_normal.hpp"

namespace GLOBALQ_ABI::learn {

/// Mean and deviation of the values x / norm of a bucket, signs included.
struct normal_part {
  double mean = 0, deviation = 0;
  double norm = 0;  ///< of the bucket; 0: no part
};

/// @brief (mean, deviation) of sampled buckets: far fewer bytes than a histogram, but only as accurate as the model.
///
/// With weighting::squared_norms the distribution is the mixture of their truncated normals; with weighting::equal it
/// is one normal with the averages of means and deviations (ALQ-N, AMQ-N).
/// @source Faghri et al. 2020, section 3.4 and appendix K: 20 samples, 350 for ImageNet
class normals {
 public:
  /// @param samples  the largest number of buckets measured, the same on every worker
  /// @throws configuration_error unless 1 <= samples <= 65,536
  explicit normals(std::uint32_t samples = 20, weighting weights = weighting::squared_norms)
      : samples_(samples), weights_(weights) {
    if (samples < 1 || samples > 65536)
      throw configuration_error("globalq: learn::normals: " + std::to_string(samples) +
                                " samples; use 1 to 65536, such as 20");
  }

  std::uint32_t samples() const { return samples_; }
  weighting weights() const { return weights_; }
  bool empty() const { return parts_.empty(); }
  bool non_finite() const { return non_finite_; }
  std::span<normal_part const> parts() const { return parts_; }
  /// @brief Adds parts that were computed elsewhere. agree() sends the first samples() parts of each worker.
  void add(std::span<normal_part const> parts) {
    for (normal_part const& p : parts)
      if (p.norm > 0) parts_.push_back(p);
  }

  /// @brief Measures evenly spaced buckets of a vector; replaces all earlier parts.
  /// @shape       x: count values; norms: ceil(count / bucket)
  /// @complexity  O(samples * bucket)
  /// @determinism the same bits for any number of threads
  void measure(kernel::host_executor const& on, const_vector x, std::uint64_t count, std::uint64_t bucket,
               std::span<double const> norms) {
    parts_.clear();
    non_finite_ = false;
    if (count == 0) return;
    std::uint64_t const width = bucket == 0 ? count : bucket, buckets = divide_up(count, width);
    if (norms.size() != buckets)
      throw configuration_error("globalq: learn::normals::measure: " + std::to_string(norms.size()) +
                                " norms for " + std::to_string(buckets) + " buckets; give one for each");
    for (double n : norms) non_finite_ = non_finite_ || !(bits_of(n) < double_infinity);
    std::uint64_t const looked = std::min<std::uint64_t>(samples_, buckets);
    std::vector<normal_part> found(looked);
    on.items(looked, [&](std::uint64_t k) {
      std::uint64_t const b = (2 * k + 1) * buckets / (2 * looked);
      double const scale = norms[b];
      if (!(bits_of(scale) < double_infinity && scale > 0)) return;
      found[k] = part_of(x, b * width, std::min(count, (b + 1) * width), scale);
    });
    add(found);
  }

  /// @brief The distribution, cut into bins.
  /// @param edge  of the bins, ascending from 0 to 1
  /// @throws configuration_error if there are no parts
  bins result(std::vector<double> edge) const {
    if (empty())
      throw configuration_error(
          "globalq: learn::normals: the values of each measured bucket are all equal; measure a vector "
          "with different values");
    double top = 0, mean = 0, deviation = 0;
    for (normal_part const& p : parts_) {
      top = std::max(top, p.norm);
      mean += p.mean / static_cast<double>(parts_.size());
      deviation += p.deviation / static_cast<double>(parts_.size());
    }
    if (weights_ == weighting::equal) return discretize(truncated_normal(mean, deviation), std::move(edge));
    mixture all;
    for (normal_part const& p : parts_)
      all.add(truncated_normal(p.mean, p.deviation), (p.norm / top) * (p.norm / top));
    return discretize(all, std::move(edge));
  }

 private:
  static normal_part part_of(const_vector x, std::uint64_t first, std::uint64_t last, double scale) {
    constexpr int step = kernel::piece_values;
    kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
    float buffer[step];
    int const loaded = norm::load_exponent(x.type, exponent_of(scale));
    double const scaled = scale * power_of_two(loaded);
    double const count = static_cast<double>(last - first);
    double sum = 0, squares = 0;
    for (; first < last; first += step) {
      int const m = static_cast<int>(std::min<std::uint64_t>(step, last - first));
      float const* z = leaf.load(x, first, m, loaded, buffer);
      for (int i = 0; i < m; ++i) {
        double const v = static_cast<double>(z[i]) / scaled;
        sum += v;
        squares += v * v;
      }
    }
    double const mean = sum / count, variance = squares / count - mean * mean;
    normal_part p{mean, variance > 0 ? std::sqrt(variance) : 0.0, scale};
    if (!(p.deviation > 1e-8 * std::fabs(mean)) || !(p.deviation > 0))
      p.norm = 0;  // all values equal: no normal
    return p;
  }

  std::uint32_t samples_;
  weighting weights_;
  std::vector<normal_part> parts_;
  bool non_finite_ = false;
};

}  // namespace GLOBALQ_ABI::learn
