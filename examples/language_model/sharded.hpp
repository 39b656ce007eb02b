// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Layers whose parameters are split over workers, as in FSDP: each worker keeps the exact weights and the optimizer state of its
/// shards only. The quantized weights of a layer are gathered before its forward pass, dropped, and gathered again before its
/// backward pass; then each worker receives its shard of the mean gradient. Of whole layers, a worker has the one that it
/// computes and the next one, whose weights arrive meanwhile.

#include "precision.hpp"

#include <globalq/call/call_queue.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/agree.hpp>
#include <globalq/train/adapt/lgreco.hpp>
#include <globalq/train/learn/agree.hpp>
#include <globalq/train/learn/nearest.hpp>
#include <globalq/train/learn/optimal.hpp>
#include <globalq/transport/collectives.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace language_model {

struct adam {
  double rate = 3e-3;
  std::uint64_t warm_up = 20;  ///< steps in which the rate grows
  std::uint64_t steps = 0;     ///< in which it falls to 0 as half a cosine; 0: it stays
  double first = 0.9, second = 0.99;

  /// Of the highest rate, at the end of so many steps.
  double share(double done) const {
    return steps == 0 ? 1 : (1 + std::cos(std::numbers::pi * done / static_cast<double>(steps))) / 2;
  }
};

/// A parameter of a layer.
struct parameter {
  std::uint64_t values = 0;
  bool exact = false;  ///< sent as float32: vectors, as in QSDP
};

/// Where the parameters of a layer are in its two vectors. Those that are quantized begin at multiples of a bucket, so none
/// shares one with another, and the vector is a multiple of a bucket for each worker, so all operators cut it alike.
class layer_layout {
 public:
  layer_layout(std::vector<parameter> parameters, int workers) : parameters_(std::move(parameters)) {
    for (parameter const& p : parameters_) {
      std::uint64_t& length = p.exact ? exact_ : coded_;
      places_.push_back(length);
      length += p.exact ? p.values : up_to(p.values, bucket);
    }
    coded_ = up_to(coded_, bucket * static_cast<std::uint64_t>(workers));
  }

  std::uint64_t coded() const { return coded_; }
  std::uint64_t exact() const { return exact_; }
  std::size_t size() const { return parameters_.size(); }
  /// The values of parameter @p k in the vectors of a layer.
  template <class Room>
  std::span<float> in(Room& room, std::size_t k) const {
    parameter const& p = parameters_[k];
    return std::span(p.exact ? room.exact : room.coded).subspan(places_[k], p.values);
  }

 private:
  static std::uint64_t up_to(std::uint64_t n, std::uint64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  }
  std::vector<parameter> parameters_;
  std::vector<std::uint64_t> places_;
  std::uint64_t coded_ = 0, exact_ = 0;
};

/// The vectors of one layer.
struct layer_room {
  std::vector<float> coded, exact;
  std::vector<globalq::started_call> calls;  ///< that read or write them

  void make(layer_layout const& layer) {
    coded.resize(std::max<std::size_t>(coded.size(), layer.coded()));
    exact.resize(std::max<std::size_t>(exact.size(), layer.exact()));
  }
  /// What is between parameters is zero.
  void clear() { std::ranges::fill(coded, 0.0F); }
  void wait() {
    for (auto const& call : calls) call.wait();
    calls.clear();
  }
};

/// A vector of a layer: the exact shard of this worker, and the calls that send it.
template <class Workers>
class sharded_vector {
 public:
  /// @param exact  whether it is sent as float32
  /// @param seen   receives the reports of all calls; may be null
  sharded_vector(Workers& workers, std::uint64_t length, bool exact, precision const& p, std::uint64_t seed,
                 std::shared_ptr<globalq::call_queue> const& queue, globalq::telemetry* seen)
      : workers_(workers),
        length_(length),
        weights_sent_(exact ? length : length / p.weights_of),
        gradients_sent_(exact ? length : length / p.gradients_of),
        by_(p.by),
        learns_weights_(!exact && p.learns() && p.weight_bits <= 8),
        learns_gradients_(!exact && p.learns() && p.gradient_bits <= 8),
        size_of_weights_(levels_of(p.weight_bits)),
        size_of_gradients_(levels_of(p.gradient_bits)),
        seed_(seed),
        queue_(queue),
        seen_(seen),
        forward_(workers, weight_operator(exact ? 32 : p.weight_bits, p.by),
                 {.seed = seed, .telemetry = seen}),
        backward_(workers, weight_operator(exact ? 32 : p.weight_bits, p.by),
                  {.seed = seed, .telemetry = seen}),
        scatter_(workers, gradient_operator(exact ? 32 : p.gradient_bits, p.learns()),
                 {.seed = seed + 1, .telemetry = seen}),
        mine_(forward_.shard(length)) {
    forward_.run_on(queue);
    backward_.run_on(queue);
    scatter_.run_on(queue);
    weights_.resize(mine_.count);
    gradient_.resize(mine_.count);
    first_.resize(mine_.count);
    second_.resize(mine_.count);
  }

  void keep_shard_of(std::span<float const> all) {
    auto const shard = all.subspan(mine_.first, mine_.count);
    weights_.assign(shard.begin(), shard.end());
  }

  /// Starts to gather the weights of all shards. Both passes of a step receive the same bits: their calls have one seed.
  globalq::started_call gather(bool back, std::span<float> to, std::uint64_t step) {
    auto const mine = std::span<float const>(weights_).first(forward_.shard(weights_sent_).count);
    return (back ? backward_ : forward_).start(mine, to.first(weights_sent_), step);
  }
  /// Starts to receive the own shard of the mean gradient.
  globalq::started_call scatter(std::span<float const> all, std::uint64_t step) {
    auto const mine = std::span(gradient_).first(scatter_.shard(gradients_sent_).count);
    return scatter_.start(all.first(gradients_sent_), mine, step);
  }

  /// Adam's step. @param step  from 0 on
  void update(adam const& how, std::uint64_t step) {
    double const t = static_cast<double>(step + 1);
    double const rate = how.rate * how.share(t) *
                        std::min(1.0, t / static_cast<double>(std::max<std::uint64_t>(1, how.warm_up))) *
                        std::sqrt(1 - std::pow(how.second, t)) / (1 - std::pow(how.first, t));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      double const g = static_cast<double>(gradient_[i]);
      first_[i] = how.first * first_[i] + (1 - how.first) * g;
      second_[i] = how.second * second_[i] + (1 - how.second) * g * g;
      weights_[i] -= static_cast<float>(rate * first_[i] / (std::sqrt(second_[i]) + 1e-8));
    }
  }

  /// Learns levels from the values of all workers: those of the scheme for weights, of least variance for gradients.
  /// @pre no call is started
  void learn_levels(std::span<float const> gradient, std::uint64_t step) {
    if (learns_weights_)
      if (auto const found = weight_levels(step)) {
        forward_.set_levels(found->table());
        backward_.set_levels(found->table());
      }
    if (!learns_gradients_) return;
    globalq::learn::optimal const solver{.size = size_of_gradients_};
    if (auto const found = agreed_levels(solver, gradient.first(length_), step))
      scatter_.set_levels(found->table());
  }

  /// What the weights of this shard cost and err in 2 to 8 bits: a random shift errs by gap^2 / 12 (docs/theory.md).
  std::vector<globalq::adapt::candidate> weight_candidates() const {
    centered const c = centered_of(weights_);
    double error = 0;
    for (std::size_t b = 0; b < c.norms.size(); ++b) error += c.norms[b] * c.norms[b] * bucket / 12;
    std::vector<globalq::adapt::candidate> all;
    for (int bits = 2; bits <= 8; ++bits) {
      double const levels = levels_of(bits);
      all.push_back({static_cast<double>(length_) * bits / 8, error / (levels * levels)});
    }
    return all;
  }
  /// @pre no call is started
  void send_weights_in(int bits) {
    for (auto* gather : {&forward_, &backward_}) {
      *gather =
          globalq::all_gather<>(workers_, weight_operator(bits, by_), {.seed = seed_, .telemetry = seen_});
      gather->run_on(queue_);
    }
  }

 private:
  /// The values that an operator quantizes: centered per bucket, with the largest magnitude of each bucket.
  struct centered {
    std::vector<float> values;
    std::vector<double> norms;
  };
  static centered centered_of(std::span<float const> x) {
    centered c{{x.begin(), x.end()}, {}};
    for (std::size_t from = 0; from < x.size(); from += bucket) {
      auto const part = std::span(c.values).subspan(from, std::min<std::size_t>(bucket, x.size() - from));
      auto const [low, high] = std::minmax_element(part.begin(), part.end());
      float const middle = 0.5F * (*low + *high);
      float most = 0;
      for (float& v : part) {
        v -= middle;
        most = std::max(most, std::abs(v));
      }
      c.norms.push_back(static_cast<double>(most));
    }
    return c;
  }

  std::optional<globalq::learn::level_set> weight_levels(std::uint64_t step) {
    if (by_ == scheme::descent) return descended();
    if (by_ == scheme::stochastic)
      return agreed_levels(globalq::learn::optimal{.size = size_of_weights_}, weights_, step);
    return agreed_levels(globalq::learn::lloyd{.size = size_of_weights_}, weights_, step);
  }

  /// QSDP's algorithm processes values one by one, so all workers use those of all shards, in the same order.
  globalq::learn::level_set descended() {
    centered const c = centered_of(weights_);
    std::vector<float> mine(weights_.size(), -1.0F), all(length_);
    for (std::size_t i = 0; i < c.values.size(); ++i)
      if (double const norm = c.norms[i / bucket]; norm > 0)
        mine[i] = static_cast<float>(std::abs(static_cast<double>(c.values[i])) / norm);
    globalq::transport::allgather(workers_, std::as_bytes(std::span(mine)),
                                  std::as_writable_bytes(std::span(all)));
    std::erase_if(all, [](float v) { return !(v >= 0); });  // of buckets of equal values
    descended_ = globalq::learn::weight_levels{.size = size_of_weights_, .start = descended_}(all);
    return *descended_;
  }

  /// The levels that a solver finds from the values of all workers; the same on all workers.
  template <class Solver>
  std::optional<globalq::learn::level_set> agreed_levels(Solver const& solver, std::span<float const> x,
                                                         std::uint64_t step) {
    centered const c = centered_of(x);
    globalq::kernel::host_executor const on{Kokkos::Serial()};
    globalq::learn::histogram mine;
    mine.add(on, {c.values.data(), globalq::dtype::float32}, c.values.size(), bucket, c.norms);
    auto const agreed =
        globalq::learn::agree(workers_, mine, solver, {.step = step, .length = length_, .bucket = bucket});
    if (agreed.what != globalq::learn::learning_status::learned) return std::nullopt;
    return agreed.found.levels;
  }

  Workers& workers_;
  std::uint64_t length_, weights_sent_, gradients_sent_;
  scheme by_;
  bool learns_weights_, learns_gradients_;
  std::uint32_t size_of_weights_, size_of_gradients_;
  std::uint64_t seed_;
  std::shared_ptr<globalq::call_queue> queue_;
  globalq::telemetry* seen_;
  globalq::all_gather<> forward_, backward_;
  globalq::reduce_scatter_mean<> scatter_;
  globalq::segment mine_;
  std::optional<globalq::learn::level_set> descended_;
  std::vector<float> weights_, gradient_;  ///< of the own shard
  std::vector<double> first_, second_;     ///< Adam's moments
};

/// The layers of a model. @tparam Workers  a transport
template <class Workers>
class sharded_layers {
 public:
  /// @param prefetch  whether a layer is gathered while the one before computes, and gradients travel meanwhile
  /// @param seen      receives the reports of all calls; may be null
  sharded_layers(Workers& workers, std::vector<std::vector<parameter>> const& layers, precision const& p,
                 std::uint64_t seed, bool prefetch, globalq::telemetry* seen = nullptr)
      : workers_(workers),
        precision_(p),
        prefetch_(prefetch),
        queue_(std::make_shared<globalq::call_queue>()) {
    for (auto const& parameters : layers) {
      layer_layout const layout(parameters, workers.size());
      for (int k = 0; k < 2; ++k) weights_[k].make(layout), gradients_[k].make(layout);
      layers_.push_back({layout,
                         {workers, layout.coded(), false, p, seed + 4 * layers_.size(), queue_, seen},
                         {workers, layout.exact(), true, p, seed + 4 * layers_.size() + 2, queue_, seen}});
    }
  }

  std::size_t size() const { return layers_.size(); }
  layer_layout const& layout(std::size_t l) const { return layers_[l].layout; }
  /// Where the weights of a layer are while it computes, and where its backward pass puts gradients.
  /// @{
  layer_room& weights(std::size_t l) { return weights_[l % 2]; }
  layer_room& gradients(std::size_t l) { return gradients_[l % 2]; }
  /// @}

  /// Keeps the own shard of the weights that are there.
  void keep_shards(std::size_t l) {
    layers_[l].coded.keep_shard_of(weights(l).coded);
    layers_[l].exact.keep_shard_of(weights(l).exact);
  }

  /// Computes forward(l) for each layer in order, with its weights in place.
  template <class Forward>
  void pass(std::uint64_t step, Forward const& forward) {
    gather(0, false, step);
    for (std::size_t l = 0; l < size(); ++l) {
      weights(l).wait();
      bool const more = l + 1 < size();
      if (more && prefetch_) gather(l + 1, false, step);
      forward(l);
      if (more && !prefetch_) gather(l + 1, false, step);
    }
  }

  /// A step of training. The last layer is gathered once, because its backward pass follows its forward pass.
  /// @param backward  backward(l) puts the gradients of a layer into gradients(l)
  /// @param learns    whether levels are learned, and bits chosen
  template <class Forward, class Backward>
  void train(std::uint64_t step, adam const& how, bool learns, Forward const& forward,
             Backward const& backward) {
    if (learns && precision_.by == scheme::lgreco) choose_bits(step);
    pass(step, forward);
    for (std::size_t l = size(); l-- > 0;) {
      weights(l).wait();
      if (l > 0 && prefetch_) gather(l - 1, true, step);
      gradients(l).wait();  // of the layer that had them before
      gradients(l).clear();
      backward(l);
      if (learns) learn_levels(l, step);
      scatter(l, step);
      if (l > 0 && !prefetch_) gather(l - 1, true, step);
    }
    for (layer_room& room : gradients_) room.wait();
    for (layer& each : layers_) {
      each.coded.update(how, step);
      each.exact.update(how, step);
    }
  }

 private:
  struct layer {
    layer_layout layout;
    sharded_vector<Workers> coded, exact;
  };

  void gather(std::size_t l, bool back, std::uint64_t step) {
    layer_room& to = weights(l);
    start(to, layers_[l].layout, [&](bool exact) {
      return exact ? layers_[l].exact.gather(back, to.exact, step)
                   : layers_[l].coded.gather(back, to.coded, step);
    });
  }
  void scatter(std::size_t l, std::uint64_t step) {
    layer_room& of = gradients(l);
    start(of, layers_[l].layout, [&](bool exact) {
      return exact ? layers_[l].exact.scatter(of.exact, step) : layers_[l].coded.scatter(of.coded, step);
    });
    if (!prefetch_) of.wait();
  }
  template <class Start>
  static void start(layer_room& room, layer_layout const& layout, Start const& call) {
    if (layout.coded() != 0) room.calls.push_back(call(false));
    if (layout.exact() != 0) room.calls.push_back(call(true));
  }

  void learn_levels(std::size_t l, std::uint64_t step) {
    for (layer_room* room : {&weights_[0], &weights_[1], &gradients_[0], &gradients_[1]}) room->wait();
    if (layers_[l].layout.coded() != 0) layers_[l].coded.learn_levels(gradients(l).coded, step);
  }

  /// L-GreCo on weights: the fewest bytes whose error is at most that of the same bits in all layers.
  void choose_bits(std::uint64_t step) {
    globalq::adapt::choice_table table;
    std::vector<layer*> coded;
    for (layer& each : layers_)
      if (each.layout.coded() != 0) {
        table.add(each.coded.weight_candidates());
        coded.push_back(&each);
      }
    auto const number = static_cast<std::uint32_t>(precision_.weight_bits - 2);
    auto const found = globalq::adapt::agree(
        workers_, table,
        [&](globalq::adapt::choice_table const& all) {
          auto const uniform = globalq::adapt::uniform_choice(all, number);
          return globalq::adapt::lgreco{}(all, globalq::adapt::budget_of(all, uniform), uniform);
        },
        {.step = step, .settings = number});
    for (std::size_t l = 0; l < coded.size() && found; ++l)
      coded[l]->coded.send_weights_in(static_cast<int>(found->choices[l]) + 2);
  }

  Workers& workers_;
  precision precision_;
  bool prefetch_;
  std::shared_ptr<globalq::call_queue> queue_;
  layer_room weights_[2], gradients_[2];  ///< of the layer that computes, and of its neighbor
  std::vector<layer> layers_;
};

}  // namespace language_model
