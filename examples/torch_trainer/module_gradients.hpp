// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// The gradients of a LibTorch module as layers of globalq: a model layout from its named parameters, views of their
/// gradients, and a backward pass that passes each one on as soon as it is complete. A file to copy.

#include <globalq/call/vector_group.hpp>
#include <globalq/train/adapt/model_layout.hpp>
#include <globalq/transport/collectives.hpp>

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace torch_trainer {

namespace gq = globalq;

/// @brief The trained parameters of a module, in the order of named_parameters(), one layer each.
///
/// @code
/// module_gradients gradients(*model);
/// gq::adapt::layered_mean mean{workers, gradients.layers(), operators, gq::schedule::sra{}};
/// loss.backward();
/// mean(gradients.group(), step);                                  // all gradients are means now
///
/// gq::adapt::overlapped_mean mean{workers, gradients.layers(), operators, gq::schedule::sra{}};
/// mean.begin(step);                                               // or while the backward pass still runs
/// gradients.backward(loss, [&](std::size_t layer, std::span<float> values) { mean.ready(layer, values); });
/// mean.wait();
/// @endcode
/// A parameter with two names is one layer. Parameters are float32 tensors in host memory.
class module_gradients {
 public:
  using ready_function = std::function<void(std::size_t layer, std::span<float> gradient)>;

  /// @throws std::runtime_error naming a parameter that is not float32 in host memory
  explicit module_gradients(torch::nn::Module const& model) {
    for (auto const& named : model.named_parameters()) {
      torch::Tensor const& p = named.value();
      if (!p.requires_grad() || holds(p)) continue;
      if (p.scalar_type() != torch::kFloat || !p.device().is_cpu())
        throw std::runtime_error{"module_gradients: parameter \"" + named.key() + "\" is " +
                                 c10::toString(p.scalar_type()) + " on " + p.device().str() +
                                 "; parameters are float32 tensors in host memory here"};
      std::vector<std::uint64_t> shape;
      for (std::int64_t extent : p.sizes()) shape.push_back(static_cast<std::uint64_t>(extent));
      layers_.add(named.key(), std::move(shape));
      parameters_.push_back(p);
    }
  }

  module_gradients(module_gradients const&) = delete;
  module_gradients& operator=(module_gradients const&) = delete;
  ~module_gradients() { pass_->ready = nullptr; }  // hooks may live as long as the parameters

  gq::adapt::model_layout const& layers() const { return layers_; }

  /// @brief Views of all gradients, one vector per layer; valid until the gradients are reallocated.
  gq::vector_group const& group() {
    group_.clear();
    for (torch::Tensor& p : parameters_) {
      std::span<float> const values = gradient_of(p);
      group_.add(values);
    }
    return group_;
  }

  /// @brief Runs a backward pass and calls ready(layer, gradient) as soon as a layer's gradient is complete, on this
  /// thread; usually for the last layers first. Layers that the pass does not reach follow at the end, as zeros if they
  /// have no gradient from before.
  ///
  /// To add up gradients of several batches, run plain backward passes for all but the last of them.
  void backward(torch::Tensor const& loss, ready_function ready) {
    watch();
    pass_->done.assign(parameters_.size(), false);
    pass_->ready = std::move(ready);
    struct end_of_pass {
      pass& p;
      ~end_of_pass() { p.ready = nullptr; }
    } const end{*pass_};
    loss.backward();
    for (std::size_t k = parameters_.size(); k-- != 0;)
      if (!pass_->done[k]) pass_->ready(k, gradient_of(parameters_[k]));
  }

 private:
  /// The state that the hooks use during a pass; outside of backward() they do nothing.
  struct pass {
    ready_function ready;
    std::vector<bool> done;
  };

  /// Runs after the node of autograd that adds to a parameter's gradient, once a pass however often the parameter is used.
  struct after_gradient : torch::autograd::FunctionPostHook {
    after_gradient(std::shared_ptr<pass> of, torch::Tensor p, std::size_t k)
        : pass_(std::move(of)), parameter(std::move(p)), layer(k) {}
    torch::autograd::variable_list operator()(torch::autograd::variable_list const& outputs,
                                              torch::autograd::variable_list const&) override {
      if (pass_->ready) {
        pass_->done[layer] = true;
        pass_->ready(layer, gradient_of(parameter));
      }
      return outputs;
    }
    std::shared_ptr<pass> pass_;
    torch::Tensor parameter;
    std::size_t layer;
  };

  bool holds(torch::Tensor const& p) const {
    for (torch::Tensor const& other : parameters_)
      if (other.is_same(p)) return true;
    return false;
  }

  static std::span<float> gradient_of(torch::Tensor& p) {
    torch::Tensor& gradient = p.mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(p, torch::MemoryFormat::Contiguous);
    if (!gradient.is_contiguous()) gradient = gradient.contiguous();
    return {gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())};
  }

  void watch() {
    if (!accumulators_.empty()) return;
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      // Autograd holds these nodes weakly: they are kept here, and their hooks with them.
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters_[k]));
      accumulators_[k]->add_post_hook(std::make_unique<after_gradient>(pass_, parameters_[k], k));
    }
  }

  gq::adapt::model_layout layers_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::shared_ptr<pass> pass_ = std::make_shared<pass>();
  gq::vector_group group_;
};

/// @brief Calls visit(bytes) for each parameter and buffer of a module: the state that replicas must share.
template <class Visit>
void for_each_state(torch::nn::Module const& model, Visit const& visit) {
  torch::NoGradGuard const none;
  auto const bytes_of = [&](torch::Tensor const& t) {
    if (!t.is_contiguous() || !t.device().is_cpu())
      throw std::runtime_error{"module_gradients: a parameter or buffer is not contiguous in host memory"};
    visit(std::span<std::byte>{static_cast<std::byte*>(t.data_ptr()), t.nbytes()});
  };
  for (torch::Tensor const& t : model.parameters()) bytes_of(t);
  for (torch::Tensor const& t : model.buffers()) bytes_of(t);
}

/// @brief Gives every worker the parameters and buffers of worker 0.
template <class Workers>
void copy_from_first(Workers& workers, torch::nn::Module const& model) {
  for_each_state(model, [&](std::span<std::byte> bytes) { gq::transport::broadcast(workers, 0, bytes); });
}

/// @brief Whether the parameters and buffers of all workers have the same bits; the same answer on every worker.
template <class Workers>
bool replicas_agree(Workers& workers, torch::nn::Module const& model) {
  std::uint64_t mine = 0xcbf29ce484222325U;  // FNV-1a
  for_each_state(model, [&](std::span<std::byte> bytes) {
    for (std::byte b : bytes) mine = (mine ^ static_cast<std::uint64_t>(b)) * 0x100000001b3U;
  });
  std::vector<std::uint64_t> all(static_cast<std::size_t>(workers.size()));
  gq::transport::allgather_value(workers, mine, std::span(all));
  for (std::uint64_t other : all)
    if (other != all[0]) return false;
  return true;
}

}  // namespace torch_trainer
