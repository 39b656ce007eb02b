// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the sum of a model's gradients over steps, on which error tables are measured.

#include "../../core/arithmetic.hpp"
#include "../../core/float_environment.hpp"
#include "model_layout.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// @brief The sum of a model's gradients over the steps since clear(), in float32.
///
/// Add the gradients that a worker computed, without the residual of error feedback. A step that contains NaN or
/// infinity is skipped as a whole, as a trainer with loss scaling skips it; if layers are added one by one, only that
/// layer.
/// @source Markov 2024 (thesis), section 4.5, "System Implementation"
class gradient_accumulator {
 public:
  explicit gradient_accumulator(model_layout const& model)
      : layout_(model), sum_(static_cast<std::size_t>(model.length()), 0.0F) {}

  /// @brief Adds the gradient of all layers.
  /// @param gradient  the vector of the layout; float or double
  /// @returns         false if a value is not finite as a float, or a sum would not be: nothing was added then
  /// @throws          configuration_error if the length differs
  /// @complexity      two passes
  template <class T>
  bool add(std::span<T const> gradient) {
    if (gradient.size() != sum_.size())
      throw configuration_error("globalq: gradient_accumulator: the gradient has " +
                                std::to_string(gradient.size()) + " values and the layout " +
                                std::to_string(sum_.size()) + "; pass the vector of the layout");
    bool finite = true;
    for (layer const& l : layout_) {  // values between layers belong to none
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

  /// @brief Adds the gradient of one layer, if layers arrive one by one. A layer that is not added counts as zeros.
  /// @param values  of the layer
  /// @returns       false as for all layers
  /// @throws        configuration_error if the length differs, or if there is no such layer
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

  /// The steps added since clear(); if layers are added one by one, the largest number over the layers.
  std::uint64_t steps() const {
    return steps_ + (times_.empty() ? 0 : *std::max_element(times_.begin(), times_.end()));
  }
  std::uint64_t skipped() const { return skipped_; }  ///< steps, or single layers, skipped since clear()

  void clear() {
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    steps_ = skipped_ = 0;
    times_.clear();
  }

 private:
  template <class T>
  static bool finite_sums(T const* x, float const* sum, std::size_t n) {
    float_environment const exact;
    std::uint32_t worst = 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint32_t const bits = bits_of(sum[i] + static_cast<float>(x[i])) & float_magnitude;
      worst = worst > bits ? worst : bits;
    }
    return worst < float_infinity;
  }
  template <class T>
  static void add_up(T const* x, float* sum, std::size_t n) {
    float_environment const exact;
    for (std::size_t i = 0; i < n; ++i) sum[i] += static_cast<float>(x[i]);
  }

  model_layout layout_;
  std::vector<float> sum_;
  std::uint64_t steps_ = 0, skipped_ = 0;
  std::vector<std::uint64_t> times_;  ///< how often each layer was added by itself
};

}  // namespace GLOBALQ_ABI::adapt
