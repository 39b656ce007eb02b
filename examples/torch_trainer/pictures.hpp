// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The digits of examples/digits as tensors.

#include "../digits/data.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace torch_trainer {

struct batch {
  torch::Tensor pictures;  ///< n x 1 x 8 x 8
  torch::Tensor digits;    ///< n
};

inline batch tensors_of(digits::pictures const& from) {
  auto const count = static_cast<std::int64_t>(from.count());
  std::vector<std::int64_t> const labels(from.labels.begin(), from.labels.end());
  // A picture is a column, so its pixels lie one after the other.
  return {torch::from_blob(const_cast<float*>(from.pixels.data()), {count, 1, 8, 8}, torch::kFloat).clone(),
          torch::tensor(labels, torch::kLong)};
}

/// Mean cross-entropy in nats, and the share that is classified correctly.
struct judgment {
  double loss = 0, accuracy = 0;
};

template <class Model>
judgment judge(Model& model, batch const& of) {
  torch::NoGradGuard const none;
  torch::Tensor const scores = model->forward(of.pictures);
  return {torch::nn::functional::cross_entropy(scores, of.digits).template item<double>(),
          scores.argmax(1).eq(of.digits).to(torch::kDouble).mean().template item<double>()};
}

}  // namespace torch_trainer
