// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The transformer with sharded layers: its tensors are views of the vectors of two layers.

#include "sharded.hpp"
#include "training.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace language_model {

template <class Workers>
class sharded_model {
 public:
  sharded_model(Workers& workers, transformer model, precision const& p, std::uint64_t seed, bool prefetch)
      : workers_(workers),
        model_(std::move(model)),
        tensors_(tensors_of(*model_)),
        layers_(workers, parameters_of(tensors_), p, seed, prefetch) {
    torch::NoGradGuard const none;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      layers_.weights(l).clear();
      for (std::size_t k = 0; k < tensors_[l].size(); ++k) copy(tensors_[l][k], layers_.weights(l), l, k);
      layers_.keep_shards(l);
      // A layer is computed only while its weights are there, so autograd may keep such views for the backward pass.
      for (std::size_t k = 0; k < tensors_[l].size(); ++k) {
        torch::Tensor& t = tensors_[l][k];
        t.set_data(torch::from_blob(layers_.layout(l).in(layers_.weights(l), k).data(), t.sizes()));
      }
    }
  }

  /// A step on a batch of this worker.
  void train(batch const& b, std::uint64_t step, adam const& how, bool learns) {
    std::vector<torch::Tensor> in(layers_.size()), out(layers_.size());
    layers_.train(
        step, how, learns,
        [&](std::size_t l) {
          in[l] = l == 0 ? b.input : out[l - 1].detach().requires_grad_();
          out[l] = model_->layer(l, in[l]);
        },
        [&](std::size_t l) {
          if (l + 1 == layers_.size())
            transformer_impl::loss_of(out[l], b.next).backward();
          else
            out[l].backward(in[l + 1].grad());
          out[l] = torch::Tensor();
          for (std::size_t k = 0; k < tensors_[l].size(); ++k) {
            copy(tensors_[l][k].grad(), layers_.gradients(l), l, k);
            tensors_[l][k].mutable_grad() = torch::Tensor();
          }
        });
  }

  /// @brief The mean loss on batches, which worker 0 computes, and whether all workers received the same bits.
  std::pair<double, bool> evaluate(std::vector<batch> const& all, std::uint64_t step) {
    torch::NoGradGuard const none;
    std::vector<torch::Tensor> x;
    if (workers_.rank() == 0)
      for (batch const& b : all) x.push_back(b.input);
    std::uint64_t bits = 0;
    layers_.pass(step, [&](std::size_t l) {
      for (torch::Tensor& each : x) each = model_->layer(l, each);
      for (torch::Tensor const& t : tensors_[l]) bits = hash_of(t, bits);
    });
    std::vector<double> losses(static_cast<std::size_t>(workers_.size()));
    double loss = 0;
    for (std::size_t k = 0; k < x.size(); ++k)
      loss += transformer_impl::loss_of(x[k], all[k].next).template item<double>() /
              static_cast<double>(x.size());
    globalq::transport::allgather_value(workers_, loss, std::span(losses));
    loss = losses[0];
    return {loss, all_have(workers_, bits)};
  }

 private:
  using tensors = std::vector<std::vector<torch::Tensor>>;

  static tensors tensors_of(transformer_impl& model) {
    tensors all;
    for (auto const& modules : model.layers()) {
      all.emplace_back();
      for (auto const& m : modules)
        for (torch::Tensor const& t : m->parameters()) all.back().push_back(t);
    }
    return all;
  }
  static std::vector<std::vector<parameter>> parameters_of(tensors const& all) {
    std::vector<std::vector<parameter>> layers;
    for (auto const& layer : all) {
      layers.emplace_back();
      for (torch::Tensor const& t : layer)
        layers.back().push_back({static_cast<std::uint64_t>(t.numel()), t.dim() < 2});
    }
    return layers;
  }

  void copy(torch::Tensor const& from, layer_room& to, std::size_t l, std::size_t k) {
    torch::Tensor const t = from.contiguous();
    std::copy_n(t.data_ptr<float>(), t.numel(), layers_.layout(l).in(to, k).data());
  }

  Workers& workers_;
  transformer model_;
  tensors tensors_;
  sharded_layers<Workers> layers_;
};

}  // namespace language_model
