// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: common base of models with LibTorch. All parameters are in one vector and all gradients in another;
/// the module's tensors are views of them.

#include "model.hpp"

#include <torch/torch.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace evidence {

/// Protects LibTorch's random generator, which all threads share, while a model draws its initial parameters.
inline std::mutex& torch_generator() {
  static std::mutex one;
  return one;
}

class torch_model : public model {
 public:
  gq::adapt::model_layout const& layers() const override { return layers_; }

  std::span<float> differentiate(std::uint64_t step) override {
    gradient_.zero_();
    loss(step).backward();
    return {gradient_.data_ptr<float>(), static_cast<std::size_t>(gradient_.numel())};
  }

  void update(std::uint64_t step) override {
    optimizer_->param_groups()[0].options().set_lr(rate(step));
    optimizer_->step();
  }
  double rate(std::uint64_t step) const override { return highest_rate_ * share_of_rate(step, steps_); }

  std::span<float const> parameters() override {
    return {values_.data_ptr<float>(), static_cast<std::size_t>(values_.numel())};
  }

 protected:
  /// The loss of this worker's batch of a step.
  virtual torch::Tensor loss(std::uint64_t step) = 0;

  /// The optimizer of a training of so many steps, whose parameters take() has moved.
  void step_with(std::unique_ptr<torch::optim::Optimizer> optimizer, double highest_rate,
                 std::uint64_t steps) {
    optimizer_ = std::move(optimizer);
    highest_rate_ = highest_rate;
    steps_ = steps;
  }

  /// Moves the parameters of a module into one vector. Call it before constructing optimizers.
  void take(torch::nn::Module& module) {
    torch::NoGradGuard const none;
    std::int64_t length = 0;
    for (auto const& item : module.named_parameters()) {
      auto const sizes = item.value().sizes();
      layers_.add(item.key(), {sizes.begin(), sizes.end()});
      length += item.value().numel();
    }
    values_ = torch::empty({length});
    gradient_ = torch::zeros({length});
    std::int64_t at = 0;
    for (auto& p : module.parameters()) {
      auto const piece = [&](torch::Tensor const& of) { return of.narrow(0, at, p.numel()).view(p.sizes()); };
      piece(values_).copy_(p);
      p.set_data(piece(values_));
      p.mutable_grad() = piece(gradient_);
      at += p.numel();
    }
  }

 private:
  gq::adapt::model_layout layers_;
  torch::Tensor values_, gradient_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  double highest_rate_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace evidence
