// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A model whose parameters are split over workers, as FSDP does: each worker keeps the exact weights and the optimiser's
/// state of its shards only. Before a step the weights are gathered, quantised; after it each worker gets its shards of the
/// mean gradient. (FSDP gathers one group of layers at a time and drops it again; here all stay for the step.)

#include <globalq/adapt/filter.hpp>
#include <globalq/any_quantizer.hpp>
#include <globalq/centred_all_gather.hpp>
#include <globalq/centred_reduce_scatter_mean.hpp>
#include <globalq/learn/agree.hpp>
#include <globalq/learn/nearest.hpp>
#include <globalq/learn/optimal.hpp>
#include <globalq/operators.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace language_model {

namespace gq = globalq;

/// How weights and gradients travel.
struct precision {
  std::string name = "float32";
  int weight_bits = 32, gradient_bits = 32;  ///< 4, 8 or 32
  bool learned = false;  ///< levels of each layer are learned, for 4 bits; even ones until then
};

struct adam {
  double rate = 3e-3;
  std::uint64_t warm_up = 20;  ///< steps in which the rate grows
  double first = 0.9, second = 0.99;
};

/// Values of a bucket share a scale and a midpoint.
inline constexpr std::uint64_t bucket = 1024;

/// For weights, between minimum and maximum of buckets: random shift, or to the nearest of learned levels. Weights are sent
/// anew from exact ones in each step, so what nearest rounds off does not add up; it has half the error of rounding at random.
inline gq::any_quantizer weight_operator(int bits, bool learned) {
  if (bits == 4 && learned)
    return gq::quantizer{gq::norm::local<gq::infinity>{bucket}, gq::learn::uniform_levels(7).table(),
                         gq::rounding::nearest{}, gq::wire::packed<4>{}};
  if (bits == 4) return gq::operators::qsdp<4>(bucket);
  if (bits == 8) return gq::operators::qsdp<8>(bucket);
  throw std::runtime_error{"language_model: there are 4, 8 and 32 bits, not " + std::to_string(bits)};
}

/// For gradients: stochastic rounding, unbiased.
inline gq::any_quantizer gradient_operator(int bits, bool learned) {
  gq::norm::local<gq::infinity> const norm{bucket};
  gq::rounding::stochastic const dice;
  if (bits == 4 && learned)
    return gq::quantizer{norm, gq::learn::uniform_levels(7).table(), dice, gq::wire::packed<4>{}};
  if (bits == 4) return gq::quantizer{norm, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}};
  if (bits == 8) return gq::quantizer{norm, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  throw std::runtime_error{"language_model: there are 4, 8 and 32 bits, not " + std::to_string(bits)};
}

/// A parameter of the model: the exact shard of this worker, and the calls that move it.
template <class Workers>
class sharded_parameter {
 public:
  /// @param exact  whether it travels as float32: vectors, as in QSDP
  sharded_parameter(Workers& workers, torch::Tensor tensor, bool exact, precision const& p,
                    std::uint64_t seed)
      : workers_(workers),
        tensor_(std::move(tensor)),
        learns_weights_(!exact && p.learned && p.weight_bits == 4),
        learns_gradients_(!exact && p.learned && p.gradient_bits == 4) {
    if (exact || p.weight_bits == 32)
      plain_gather_ =
          std::make_unique<gq::all_gather<Workers, gq::uncompressed>>(workers, gq::uncompressed{});
    else
      gather_ = std::make_unique<gq::centred_all_gather<Workers, gq::any_quantizer>>(
          workers, weight_operator(p.weight_bits, p.learned), gq::options{.seed = seed});
    if (exact || p.gradient_bits == 32)
      plain_scatter_ =
          std::make_unique<gq::reduce_scatter_mean<Workers, gq::uncompressed>>(workers, gq::uncompressed{});
    else
      scatter_ = std::make_unique<gq::centred_reduce_scatter_mean<Workers, gq::any_quantizer>>(
          workers, gradient_operator(p.gradient_bits, p.learned), gq::options{.seed = seed + 1});
    // shards of both calls are the same where their buckets are; those of the weights' call are kept
    own_ = plain_gather_ ? plain_gather_->shard(length()) : gather_->shard(length());
    scattered_ = plain_scatter_ ? plain_scatter_->shard(length()) : scatter_->shard(length());
    auto const all = values();
    weights_.assign(all.begin() + static_cast<std::ptrdiff_t>(own_.first),
                    all.begin() + static_cast<std::ptrdiff_t>(own_.first + own_.count));
    first_.assign(own_.count, 0);
    second_.assign(own_.count, 0);
    if (own_.first != scattered_.first || own_.count != scattered_.count)
      throw std::runtime_error{
          "language_model: weights and gradients have different shards; use the same buckets"};
    gradient_.resize(own_.count);
  }

  /// Puts the weights of all shards, as they travel, into the model.
  void gather(std::uint64_t step) {
    if (plain_gather_)
      (*plain_gather_)(std::span<float const>(weights_), values(), step);
    else
      (*gather_)(std::span<float const>(weights_), values(), step);
  }

  /// Gets the own shard of the mean gradient and takes a step.
  /// @param step  from 0 on
  void update(adam const& how, std::uint64_t step) {
    torch::Tensor const grad = tensor_.grad().contiguous();
    std::span<float const> const all{grad.data_ptr<float>(), length()};
    if (plain_scatter_)
      (*plain_scatter_)(all, gradient_, step);
    else
      (*scatter_)(all, gradient_, step);
    double const t = static_cast<double>(step + 1);
    double const rate = how.rate *
                        std::min(1.0, t / static_cast<double>(std::max<std::uint64_t>(1, how.warm_up))) *
                        std::sqrt(1 - std::pow(how.second, t)) / (1 - std::pow(how.first, t));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      double const g = static_cast<double>(gradient_[i]);
      first_[i] = how.first * first_[i] + (1 - how.first) * g;
      second_[i] = how.second * second_[i] + (1 - how.second) * g * g;
      weights_[i] -= static_cast<float>(rate * first_[i] / (std::sqrt(second_[i]) + 1e-8));
    }
  }

  /// Learns levels from what all workers have: of least error for weights, of least variance for gradients.
  void learn_levels(std::uint64_t step) {
    if (learns_weights_)
      if (auto const found = levels_of(gq::learn::lloyd{.size = 7}, weights_, step))
        gather_->set_levels(found->table());
    if (!learns_gradients_) return;
    torch::Tensor const grad = tensor_.grad().contiguous();
    std::span<float const> const all{grad.data_ptr<float>(), length()};
    if (auto const found = levels_of(gq::learn::optimal{.size = 7}, all, step))
      scatter_->set_levels(found->table());
  }

 private:
  std::size_t length() const { return static_cast<std::size_t>(tensor_.numel()); }
  std::span<float> values() const { return {tensor_.data_ptr<float>(), length()}; }

  /// What all workers agree on, from values as the operator sees them: around midpoints, over the largest of a bucket.
  template <class Solver>
  std::optional<gq::learn::level_set> levels_of(Solver const& solver, std::span<float const> x,
                                                std::uint64_t step) {
    std::vector<float> centred(x.begin(), x.end());
    std::vector<double> norms;
    for (std::size_t from = 0; from < centred.size(); from += bucket) {
      auto const part =
          std::span(centred).subspan(from, std::min<std::size_t>(bucket, centred.size() - from));
      auto const [low, high] = std::minmax_element(part.begin(), part.end());
      float const middle = 0.5F * (*low + *high);
      float most = 0;
      for (float& v : part) {
        v -= middle;
        most = std::max(most, std::abs(v));
      }
      norms.push_back(static_cast<double>(most));
    }
    gq::kernel::host_executor const on{Kokkos::Serial()};
    gq::learn::histogram mine;
    mine.add(on, {centred.data(), gq::dtype::float32}, centred.size(), bucket, norms);
    auto const agreed =
        gq::learn::agree(workers_, mine, solver, {.step = step, .length = length(), .bucket = bucket});
    if (agreed.what != gq::learn::outcome::learned) return std::nullopt;
    return agreed.found.levels;
  }

  Workers& workers_;
  torch::Tensor tensor_;
  bool learns_weights_, learns_gradients_;
  std::unique_ptr<gq::all_gather<Workers, gq::uncompressed>> plain_gather_;
  std::unique_ptr<gq::centred_all_gather<Workers, gq::any_quantizer>> gather_;
  std::unique_ptr<gq::reduce_scatter_mean<Workers, gq::uncompressed>> plain_scatter_;
  std::unique_ptr<gq::centred_reduce_scatter_mean<Workers, gq::any_quantizer>> scatter_;
  gq::segment own_, scattered_;
  std::vector<float> weights_, gradient_;
  std::vector<double> first_, second_;  ///< Adam's moments
};

/// All parameters of a model.
template <class Workers>
class sharded_model {
 public:
  sharded_model(Workers& workers, torch::nn::Module& model, precision const& p, std::uint64_t seed) {
    gq::adapt::layout named;
    for (auto const& item : model.named_parameters()) {
      auto const sizes = item.value().sizes();
      named.add(item.key(), {sizes.begin(), sizes.end()});
      bool const exact = gq::adapt::filter::cgx()(named[named.size() - 1]);
      parameters_.push_back(std::make_unique<sharded_parameter<Workers>>(workers, item.value(), exact, p,
                                                                         seed + 2 * named.size()));
    }
  }

  void gather(std::uint64_t step) {
    torch::NoGradGuard const none;
    for (auto& p : parameters_) p->gather(step);
  }
  void update(adam const& how, std::uint64_t step) {
    for (auto& p : parameters_) p->update(how, step);
  }
  void learn_levels(std::uint64_t step) {
    for (auto& p : parameters_) p->learn_levels(step);
  }

 private:
  std::vector<std::unique_ptr<sharded_parameter<Workers>>> parameters_;
};

}  // namespace language_model
