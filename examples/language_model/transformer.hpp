// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A small transformer that predicts the next byte: the model of the language_model example, in LibTorch.

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace language_model {

struct shape {
  std::int64_t symbols = 128;
  std::int64_t context = 64;
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t blocks = 2;
};

/// Attention to earlier positions, then two layers, both with residual connections (Vaswani et al. 2017; normalized
/// first).
class block_impl : public torch::nn::Module {
 public:
  explicit block_impl(shape const& s)
      : heads_(s.heads),
        norm1_(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({s.width})))),
        mix_(register_module("mix", torch::nn::Linear(s.width, 3 * s.width))),
        out_(register_module("out", torch::nn::Linear(s.width, s.width))),
        norm2_(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({s.width})))),
        up_(register_module("up", torch::nn::Linear(s.width, 4 * s.width))),
        down_(register_module("down", torch::nn::Linear(4 * s.width, s.width))) {
    if (s.width % s.heads != 0)
      throw std::invalid_argument("language_model: --width " + std::to_string(s.width) +
                                  " is not a multiple of the " + std::to_string(s.heads) + " heads");
  }

  /// @param later  context x context: true where attention is masked
  torch::Tensor forward(torch::Tensor x, torch::Tensor const& later) {
    auto const batch = x.size(0), length = x.size(1), width = x.size(2), each = width / heads_;
    auto const parts = mix_(norm1_(x)).view({batch, length, 3, heads_, each}).permute({2, 0, 3, 1, 4});
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(each));
    scores = scores.masked_fill(later, -1e9).softmax(-1);
    x = x + out_(torch::matmul(scores, parts[2]).transpose(1, 2).reshape({batch, length, width}));
    return x + down_(torch::gelu(up_(norm2_(x))));
  }

 private:
  std::int64_t heads_;
  torch::nn::LayerNorm norm1_;
  torch::nn::Linear mix_, out_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear up_, down_;
};
TORCH_MODULE_IMPL(block, block_impl);

class transformer_impl : public torch::nn::Module {
 public:
  explicit transformer_impl(shape const& s)
      : symbols_(register_module("symbols", torch::nn::Embedding(s.symbols, s.width))),
        places_(register_module("places", torch::nn::Embedding(s.context, s.width))),
        norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({s.width})))),
        head_(register_module("head", torch::nn::Linear(s.width, s.symbols))),
        later_(register_buffer("later", torch::ones({s.context, s.context}, torch::kBool).triu(1))) {
    for (std::int64_t k = 0; k < s.blocks; ++k)
      blocks_.push_back(register_module("block" + std::to_string(k), block(s)));
  }

  /// The modules of each layer: embeddings, blocks, the head.
  std::vector<std::vector<std::shared_ptr<torch::nn::Module>>> layers() const {
    std::vector<std::vector<std::shared_ptr<torch::nn::Module>>> all{{symbols_.ptr(), places_.ptr()}};
    for (auto const& b : blocks_) all.push_back({b.ptr()});
    all.push_back({norm_.ptr(), head_.ptr()});
    return all;
  }
  /// @param x  what the layer before returned; of the first one: the input
  torch::Tensor layer(std::size_t l, torch::Tensor const& x) {
    if (l == 0) return symbols_(x) + places_(torch::arange(x.size(1)));
    return l <= blocks_.size() ? blocks_[l - 1](x, later_) : head_(norm_(x));
  }
  /// @param scores  of the last layer
  /// @returns the mean cross-entropy of the next byte, in nats
  static torch::Tensor loss_of(torch::Tensor const& scores, torch::Tensor const& next) {
    return torch::nn::functional::cross_entropy(scores.flatten(0, 1), next.flatten());
  }
  torch::Tensor loss(torch::Tensor const& input, torch::Tensor const& next) {
    torch::Tensor x = input;
    for (std::size_t l = 0; l < blocks_.size() + 2; ++l) x = layer(l, x);
    return loss_of(x, next);
  }

 private:
  torch::nn::Embedding symbols_, places_;
  std::vector<block> blocks_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_;
  torch::Tensor later_;
};
TORCH_MODULE_IMPL(transformer, transformer_impl);

}  // namespace language_model
