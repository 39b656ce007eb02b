// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A small residual convolutional network (He et al. 2016) for pictures of few pixels, in LibTorch.

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torch_trainer {

struct residual_shape {
  std::int64_t colors = 1;  ///< of a picture
  std::int64_t classes = 10;
  std::int64_t width = 16;  ///< channels of the first stage; a multiple of groups
  std::int64_t stages = 3;  ///< each but the first halves the picture and doubles the channels
  std::int64_t blocks = 1;  ///< a stage
  std::int64_t groups = 4;  ///< of channels that are normalized together
};

inline torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t size,
                                     std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2).bias(false));
}

/// Two convolutions with a residual connection. Group normalization (Wu and He 2018) is used because, unlike batch
/// normalization, it keeps no running statistics, which would differ from worker to worker.
class residual_block_impl : public torch::nn::Module {
 public:
  residual_block_impl(std::int64_t from, std::int64_t to, std::int64_t stride, std::int64_t groups)
      : conv1_(register_module("conv1", convolution(from, to, 3, stride))),
        norm1_(register_module("norm1", torch::nn::GroupNorm(groups, to))),
        conv2_(register_module("conv2", convolution(to, to, 3, 1))),
        norm2_(register_module("norm2", torch::nn::GroupNorm(groups, to))) {
    if (from != to || stride != 1) around_ = register_module("around", convolution(from, to, 1, stride));
  }

  torch::Tensor forward(torch::Tensor const& x) {
    torch::Tensor const inner = norm2_(conv2_(torch::relu(norm1_(conv1_(x)))));
    return torch::relu(inner + (around_.is_empty() ? x : around_(x)));
  }

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::GroupNorm norm1_;
  torch::nn::Conv2d conv2_;
  torch::nn::GroupNorm norm2_;
  torch::nn::Conv2d around_{nullptr};
};
TORCH_MODULE_IMPL(residual_block, residual_block_impl);

class residual_net_impl : public torch::nn::Module {
 public:
  explicit residual_net_impl(residual_shape const& s)
      : stem_(register_module("stem", convolution(s.colors, s.width, 3, 1))),
        norm_(register_module("norm", torch::nn::GroupNorm(s.groups, s.width))) {
    std::int64_t channels = s.width;
    for (std::int64_t stage = 0; stage < s.stages; ++stage)
      for (std::int64_t k = 0; k < s.blocks; ++k) {
        bool const halves = stage != 0 && k == 0;
        std::int64_t const wider = halves ? 2 * channels : channels;
        blocks_.push_back(register_module("stage" + std::to_string(stage) + "_block" + std::to_string(k),
                                          residual_block(channels, wider, halves ? 2 : 1, s.groups)));
        channels = wider;
      }
    head_ = register_module("head", torch::nn::Linear(channels, s.classes));
  }

  /// @shape pictures: n x colors x height x width; result: n x classes
  torch::Tensor forward(torch::Tensor const& pictures) {
    torch::Tensor x = torch::relu(norm_(stem_(pictures)));
    for (auto& block : blocks_) x = block(x);
    return head_(x.mean({2, 3}));
  }

 private:
  torch::nn::Conv2d stem_;
  torch::nn::GroupNorm norm_;
  std::vector<residual_block> blocks_;
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE_IMPL(residual_net, residual_net_impl);

}  // namespace torch_trainer
