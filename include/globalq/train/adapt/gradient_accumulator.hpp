// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: gradients added up over steps, as long as the model: what error tables are measured on.

#include "../../core/arithmetic.hpp"
#include "model_layout.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// @brief The sum of a model's gradients over the steps since clear(), in float32.
///
/// Takes what a worker computed, without what error feedback would add to it. A step with a NaN or an infinity is left out
/// as a whole, as a trainer with loss scaling leaves it out; where layers are added one by one, of that layer.
/// @source Markov 2024 (thesis), section 4.5, "System Implementation"
class gradient_accumulator {
 public:
  explicit gradient_accumulator(model_layout const& model)
      : layout_(model), sum_(static_cast<std::size_t>(model.length()), 0.0F) {}

  /// @brief Adds the gradient of all layers.
  /// @param gradient  the vector of the layout; float or double
  /// @returns         false when a value was not finite as a float, or a sum would not be: nothing was added then
  /// @throws          configuration_error for another length
  /// @complexity      two passes
  template <class T>
  bool add(std::span<T const> gradient) {
    if (gradient.size() != sum_.size())
      throw configuration_error("globalq: gradient_accumulator: a gradient of " +
                                std::to_string(gradient.size()) + " values for a layout of " +
                                std::to_string(sum_.size()));
    bool finite = true;
    for (layer const& l : layout_) {  // what lies between layers belongs to none
      auto const n = static_cast<std::size_t>(l.size), first = static_cast<std::size_t>(l.offset);
      finite = finite && finite_sums(gradient.data() + first, sum_.data() + first, n);
    }
    if (!finite) {
      ++skipped_;
      return false;
    }
    for (layer const& l : layout_) {
      auto const n = static_cast<std::size_t>(l.size), first = static_cast<std::size_t>(l.offset);
      add_up(gradient.data() + first, sum_.data() + first, n);
    }
    ++steps_;
    return true;
  }
  template <class T>
  bool add(std::vector<T> const& gradient) {
    return add(std::span<T const>(gradient));
  }

  /// @brief Adds the gradient of one layer, where they come one by one. Layers that are not added count as zeros.
  /// @param values  of the layer
  /// @returns       as of all layers
  /// @throws        configuration_error for another length, or where there is no such layer
  template <class T>
  bool add(std::size_t number, std::span<T const> values) {
    if (number >= layout_.size() || values.size() != layout_[number].size)
      throw configuration_error("globalq: gradient_accumulator: " + std::to_string(values.size()) +
                                " values for layer " + std::to_string(number) +
                                (number < layout_.size()
                                     ? ", which has " + std::to_string(layout_[number].size)
                                     : " among " + std::to_string(layout_.size())));
    float* const sum = sum_.data() + layout_[number].offset;
    if (!finite_sums(values.data(), sum, values.size())) {
      ++skipped_;
      return false;
    }
    add_up(values.data(), sum, values.size());
    times_.resize(layout_.size());
    ++times_[number];
    return true;
  }

  model_layout const& model() const { return layout_; }
  std::span<float const> of(std::size_t layer) const {
    auto const& l = layout_[layer];
    return {sum_.data() + l.offset, static_cast<std::size_t>(l.size)};
  }

  /// The l2 norm of a layer's sum.
  double norm(std::size_t layer) const {
    double sum = 0;
    for (float x : of(layer)) sum += static_cast<double>(x) * static_cast<double>(x);
    return std::sqrt(sum);
  }
  std::vector<double> norms() const {
    std::vector<double> all;
    for (std::size_t l = 0; l < layout_.size(); ++l) all.push_back(norm(l));
    return all;
  }

  /// That were added since clear(); of layers that were added one by one the largest number.
  std::uint64_t steps() const {
    return steps_ + (times_.empty() ? 0 : *std::max_element(times_.begin(), times_.end()));
  }
  std::uint64_t skipped() const { return skipped_; }  ///< that were left out; of layers one by one, each

  void clear() {
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    steps_ = skipped_ = 0;
    times_.clear();
  }

 private:
  template <class T>
  static bool finite_sums(T const* x, float const* sum, std::size_t n) {
    std::uint32_t worst = 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint32_t const bits = bits_of(sum[i] + static_cast<float>(x[i])) & float_magnitude;
      worst = worst > bits ? worst : bits;
    }
    return worst < float_infinity;
  }
  template <class T>
  static void add_up(T const* x, float* sum, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) sum[i] += static_cast<float>(x[i]);
  }

  model_layout layout_;
  std::vector<float> sum_;
  std::uint64_t steps_ = 0, skipped_ = 0;
  std::vector<std::uint64_t> times_;  ///< that layers were added by themselves
};

}  // namespace GLOBALQ_ABI::adapt
