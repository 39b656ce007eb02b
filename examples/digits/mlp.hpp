// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Model: a multilayer perceptron whose parameters, and whose gradient, are one flat vector each.

#include "data.hpp"

#include <Eigen/Dense>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace digits {

/// @brief Weights and biases of fully connected layers of these widths, input first.
inline std::uint64_t num_parameters(std::vector<Eigen::Index> const& widths) {
  Eigen::Index sum = 0;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) sum += widths[l + 1] * (widths[l] + 1);
  return static_cast<std::uint64_t>(sum);
}

/// @brief Fully connected layers with ReLU between them, softmax and cross entropy at the end; float32.
///
/// Layer l keeps its weights (out x in, column by column) and then its biases in the flat vectors.
/// @determinism the same build on the same processor gives the same bits for the same input
class mlp {
 public:
  /// @param widths values of each layer, input first and classes last, such as {64, 960, 960, 10}
  /// @param seed   of the initial weights: uniform with variance 2 / in (He et al. 2015); biases start at 0
  mlp(std::vector<Eigen::Index> widths, std::uint64_t seed) : widths_{std::move(widths)} {
    Eigen::Index length = 0;
    for (std::size_t l = 0; l + 1 < widths_.size(); ++l) {
      first_.push_back(length);
      length += widths_[l + 1] * (widths_[l] + 1);
    }
    parameters_ = Eigen::VectorXf::Zero(length);
    gradient_ = Eigen::VectorXf::Zero(length);
    activations_.resize(widths_.size());

    std::mt19937 bits{static_cast<std::mt19937::result_type>(seed)};
    for (std::size_t l = 0; l < first_.size(); ++l) {
      float const bound = std::sqrt(6.0F / static_cast<float>(widths_[l]));
      auto weights = weights_of(parameters_, l);
      for (float& w : weights.reshaped()) w = bound * (static_cast<float>(bits() >> 8) * 0x1p-23F - 1.0F);
    }
  }

  [[nodiscard]] Eigen::VectorXf& parameters() noexcept { return parameters_; }
  [[nodiscard]] Eigen::VectorXf& gradient() noexcept { return gradient_; }

  /// @brief Computes the mean cross entropy of a batch, and its gradient into gradient().
  /// @returns the loss, in nats
  float differentiate(pictures const& batch) {
    Eigen::MatrixXf slope = forward(batch.pixels);
    float const loss = to_probabilities(slope, batch.labels);
    for (std::size_t i = 0; i < batch.labels.size(); ++i)
      slope(batch.labels[i], static_cast<Eigen::Index>(i)) -= 1.0F;
    slope /= static_cast<float>(batch.count());

    for (std::size_t l = first_.size(); l-- > 0;) {
      weights_of(gradient_, l).noalias() = slope * activations_[l].transpose();
      biases_of(gradient_, l) = slope.rowwise().sum();
      if (l == 0) break;
      Eigen::MatrixXf below = weights_of(parameters_, l).transpose() * slope;
      slope = (activations_[l].array() > 0.0F).select(below, 0.0F);
    }
    return loss;
  }

  /// @brief Mean cross entropy (nats) and share of pictures whose most probable class is right.
  struct score {
    float loss;
    double accuracy;
  };

  /// @brief Evaluates the model on a set of images; leaves the gradient unchanged.
  score evaluate(pictures const& set) {
    Eigen::MatrixXf outputs = forward(set.pixels);
    std::size_t right = 0;
    for (std::size_t i = 0; i < set.labels.size(); ++i) {
      Eigen::Index best = 0;
      outputs.col(static_cast<Eigen::Index>(i)).maxCoeff(&best);
      right += best == set.labels[i];
    }
    float const loss = to_probabilities(outputs, set.labels);
    return {loss, static_cast<double>(right) / static_cast<double>(set.labels.size())};
  }

 private:
  [[nodiscard]] Eigen::Map<Eigen::MatrixXf> weights_of(Eigen::VectorXf& flat, std::size_t l) const {
    return {flat.data() + first_[l], widths_[l + 1], widths_[l]};
  }
  [[nodiscard]] Eigen::Map<Eigen::VectorXf> biases_of(Eigen::VectorXf& flat, std::size_t l) const {
    return {flat.data() + first_[l] + widths_[l + 1] * widths_[l], widths_[l + 1]};
  }

  /// The outputs of the last layer; keeps the inputs of every layer in activations_.
  Eigen::MatrixXf forward(Eigen::MatrixXf const& pixels) {
    activations_[0] = pixels;
    for (std::size_t l = 0; l < first_.size(); ++l) {
      Eigen::MatrixXf& out = activations_[l + 1];
      out.noalias() = weights_of(parameters_, l) * activations_[l];
      out.colwise() += biases_of(parameters_, l);
      if (l + 1 < first_.size()) out = out.cwiseMax(0.0F);
    }
    return activations_.back();
  }

  /// Softmax of each column, in place; returns the mean cross entropy.
  static float to_probabilities(Eigen::MatrixXf& outputs, std::vector<int> const& labels) {
    double loss = 0.0;
    for (Eigen::Index i = 0; i < outputs.cols(); ++i) {
      auto column = outputs.col(i);
      column.array() -= column.maxCoeff();
      float const shifted = column(labels[static_cast<std::size_t>(i)]);
      column = column.array().exp();
      float const total = column.sum();
      loss += std::log(total) - shifted;
      column /= total;
    }
    return static_cast<float>(loss / static_cast<double>(outputs.cols()));
  }

  std::vector<Eigen::Index> widths_;
  std::vector<Eigen::Index> first_;  // where each layer starts in the flat vectors
  Eigen::VectorXf parameters_;
  Eigen::VectorXf gradient_;
  std::vector<Eigen::MatrixXf> activations_;
};

}  // namespace digits
