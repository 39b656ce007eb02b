// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A model whose parameters are split over workers, as in FSDP: each worker keeps the exact weights and the optimizer
/// state of its shards only. Before a step the quantized weights are gathered; after it each worker receives its shards
/// of the mean gradient. (FSDP gathers one group of layers at a time and drops it again; here all stay for the step.)

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/any_quantizer.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/train/adapt/filter.hpp>
#include <globalq/train/learn/agree.hpp>
#include <globalq/train/learn/nearest.hpp>
#include <globalq/train/learn/optimal.hpp>

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

/// The rounding and the levels of 4-bit weights. Gradients are always rounded stochastically; their levels are learned
/// if those of the weights are.
enum class scheme {
  shifted,    ///< even levels, random shift: QSDP
  nearest,    ///< even levels, to the nearest: isolates the effect of rounding
  learned,    ///< levels of least error (learn::lloyd), to the nearest
  descent,    ///< levels of QSDP's algorithm 5.1 (learn::weight_levels), to the nearest
  stochastic  ///< levels of least variance (learn::optimal), stochastic rounding: unbiased, as shifted is
};

/// The formats of weights and gradients.
struct precision {
  std::string name = "float32";
  int weight_bits = 32, gradient_bits = 32;  ///< 4, 8 or 32
  scheme by = scheme::shifted;               ///< others need 4 bits; levels are even until they are learned
  bool learns() const { return by != scheme::shifted && by != scheme::nearest; }
};

struct adam {
  double rate = 3e-3;
  std::uint64_t warm_up = 20;  ///< steps in which the rate grows
  double first = 0.9, second = 0.99;
};

/// Values of a bucket share a scale and a midpoint.
inline constexpr std::uint64_t bucket = 1024;

/// For weights: float32, or buckets scaled by minimum and maximum. Each step sends the exact weights again, so the
/// errors of rounding to nearest do not accumulate. Its squared error is half that of stochastic rounding and, for even
/// levels, that of a random shift.
inline gq::any_quantizer weight_operator(int bits, scheme by) {
  if (bits == 32) return gq::uncompressed{};
  gq::norm::local<gq::infinity> const norm{bucket};
  gq::levels::table const even = gq::learn::uniform_levels(7).table();
  if (bits == 4 && by == scheme::stochastic)
    return gq::centered{gq::quantizer{norm, even, gq::rounding::stochastic{}, gq::wire::packed<4>{}}};
  if (bits == 4 && by != scheme::shifted)
    return gq::centered{gq::quantizer{norm, even, gq::rounding::nearest{}, gq::wire::packed<4>{}}};
  if (bits == 4) return gq::centered{gq::operators::qsdp<4>(bucket)};
  if (bits == 8) return gq::centered{gq::operators::qsdp<8>(bucket)};
  throw std::runtime_error{"language_model: there are 4, 8 and 32 bits, not " + std::to_string(bits)};
}

/// For gradients: float32, or buckets scaled by minimum and maximum; stochastic rounding, unbiased.
inline gq::any_quantizer gradient_operator(int bits, bool learns) {
  if (bits == 32) return gq::uncompressed{};
  gq::norm::local<gq::infinity> const norm{bucket};
  gq::rounding::stochastic const dice;
  if (bits == 4 && learns)
    return gq::centered{
        gq::quantizer{norm, gq::learn::uniform_levels(7).table(), dice, gq::wire::packed<4>{}}};
  if (bits == 4)
    return gq::centered{gq::quantizer{norm, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}}};
  if (bits == 8) return gq::centered{gq::quantizer{norm, gq::levels::uniform<>{}, dice, gq::wire::int8{}}};
  throw std::runtime_error{"language_model: there are 4, 8 and 32 bits, not " + std::to_string(bits)};
}

/// The shards of a vector, each at the start of a block; all blocks have the same length, as FSDP pads its vectors.
/// Calls that cut at multiples of fewer values than buckets have send these blocks as one vector, of which each block
/// is a shard.
class blocks {
 public:
  blocks() = default;
  explicit blocks(std::vector<gq::segment> shards) : shards_(std::move(shards)) {
    each_ = (shards_[0].count + bucket - 1) / bucket * bucket;  // the first one is the longest
    values_.assign(each_ * shards_.size(), 0.0F);
  }
  bool empty() const { return values_.empty(); }
  std::span<float> values() { return values_; }
  gq::segment of(int rank) const { return {each_ * static_cast<std::uint64_t>(rank), each_}; }

  void put(int rank, std::span<float const> shard) {
    std::copy(shard.begin(), shard.end(), values_.begin() + static_cast<std::ptrdiff_t>(of(rank).first));
  }
  std::span<float const> get(int rank) const {
    return std::span(values_).subspan(of(rank).first, shards_[static_cast<std::size_t>(rank)].count);
  }

 private:
  std::vector<gq::segment> shards_;
  std::uint64_t each_ = 0;
  std::vector<float> values_;
};

/// A parameter of the model: the exact shard of this worker, and the calls that send it.
template <class Workers>
class sharded_parameter {
 public:
  /// @param exact  whether it is sent as float32: vectors, as in QSDP
  sharded_parameter(Workers& workers, torch::Tensor tensor, bool exact, precision const& p,
                    std::uint64_t seed)
      : workers_(workers),
        tensor_(std::move(tensor)),
        by_(p.by),
        learns_weights_(!exact && p.learns() && p.weight_bits == 4),
        learns_gradients_(!exact && p.learns() && p.gradient_bits == 4),
        gather_(workers, weight_operator(exact ? 32 : p.weight_bits, p.by), {.seed = seed}),
        scatter_(workers, gradient_operator(exact ? 32 : p.gradient_bits, p.learns()), {.seed = seed + 1}) {
    // Weights and gradients need the same shards. A call with buckets cuts between buckets; a plain one can cut
    // anywhere, so it is adapted.
    bool const plain_weights = exact || p.weight_bits == 32, plain_gradients = exact || p.gradient_bits == 32;
    for (int rank = 0; rank < workers.size(); ++rank)
      shards_.push_back(plain_weights ? scatter_.shard(length(), rank) : gather_.shard(length(), rank));
    if (plain_weights != plain_gradients) blocks_ = blocks(shards_);
    weights_in_blocks_ = plain_weights && !plain_gradients;
    gradients_in_blocks_ = plain_gradients && !plain_weights;
    expect_shards_of(gather_, weights_in_blocks_);
    expect_shards_of(scatter_, gradients_in_blocks_);
    auto const all = own_of(values());
    weights_.assign(all.begin(), all.end());
    first_.assign(weights_.size(), 0);
    second_.assign(weights_.size(), 0);
    gradient_.resize(weights_.size());
  }

  /// Writes the received weights of all shards into the model.
  void gather(std::uint64_t step) {
    std::span<float const> const mine(weights_);
    if (!weights_in_blocks_) return gather_(mine, values(), step);
    blocks_.put(workers_.rank(), mine);
    gather_(blocks_.values(), step);
    for (int rank = 0; rank < workers_.size(); ++rank) {
      auto const shard = blocks_.get(rank);
      std::copy(shard.begin(), shard.end(), shard_of(values(), rank).begin());
    }
  }

  /// Receives the own shard of the mean gradient and takes a step.
  /// @param step  from 0 on
  void update(adam const& how, std::uint64_t step) {
    torch::Tensor const grad = tensor_.grad().contiguous();
    scatter({grad.data_ptr<float>(), length()}, step);
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

  /// Learns levels from the values of all workers: those of the scheme for weights, of least variance for gradients.
  void learn_levels(std::uint64_t step) {
    if (learns_weights_)
      if (auto const found = weight_levels(step)) gather_.set_levels(found->table());
    if (!learns_gradients_) return;
    torch::Tensor const grad = tensor_.grad().contiguous();
    std::span<float const> const all{grad.data_ptr<float>(), length()};
    if (auto const found = levels_of(gq::learn::optimal{.size = 7}, all, step))
      scatter_.set_levels(found->table());
  }

 private:
  std::size_t length() const { return static_cast<std::size_t>(tensor_.numel()); }
  std::span<float> values() const { return {tensor_.data_ptr<float>(), length()}; }
  template <class Value>
  std::span<Value> shard_of(std::span<Value> all, int rank) const {
    gq::segment const s = shards_[static_cast<std::size_t>(rank)];
    return all.subspan(s.first, s.count);
  }
  template <class Value>
  std::span<Value> own_of(std::span<Value> all) const {
    return shard_of(all, workers_.rank());
  }

  /// Throws unless a call has the shards of this parameter, directly or each as a block.
  template <class Call>
  void expect_shards_of(Call const& call, bool as_blocks) {
    for (int rank = 0; rank < workers_.size(); ++rank) {
      gq::segment const is = call.shard(as_blocks ? blocks_.values().size() : length(), rank);
      gq::segment const wanted = as_blocks ? blocks_.of(rank) : shards_[static_cast<std::size_t>(rank)];
      if (is.first != wanted.first || is.count != wanted.count)
        throw std::runtime_error{
            "language_model: weights and gradients have different shards; use the same buckets"};
    }
  }

  /// The own shard of the mean gradient.
  void scatter(std::span<float const> all, std::uint64_t step) {
    if (!gradients_in_blocks_) return scatter_(all, gradient_, step);
    for (int rank = 0; rank < workers_.size(); ++rank) blocks_.put(rank, shard_of(all, rank));
    scatter_(blocks_.values(), step);
    auto const mine = blocks_.get(workers_.rank());
    gradient_.assign(mine.begin(), mine.end());
  }

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

  std::optional<gq::learn::level_set> weight_levels(std::uint64_t step) {
    if (by_ == scheme::descent) return descended();
    if (by_ == scheme::stochastic) return levels_of(gq::learn::optimal{.size = 7}, weights_, step);
    return levels_of(gq::learn::lloyd{.size = 7}, weights_, step);
  }

  /// QSDP's algorithm processes values one by one, so all workers use those of all shards, in the same order.
  gq::learn::level_set descended() {
    centered const c = centered_of(weights_);
    std::vector<float> mine(shards_[0].count, -1.0F), all(mine.size() * shards_.size());
    for (std::size_t i = 0; i < c.values.size(); ++i)
      if (double const norm = c.norms[i / bucket]; norm > 0)
        mine[i] = static_cast<float>(std::abs(static_cast<double>(c.values[i])) / norm);
    gq::transport::allgather(workers_, std::as_bytes(std::span(mine)),
                             std::as_writable_bytes(std::span(all)));
    std::erase_if(
        all, [](float v) { return !(v >= 0); });  // behind shorter shards, and of buckets of equal values
    descended_ = gq::learn::weight_levels{.size = 7, .start = descended_}(all);
    return *descended_;
  }

  /// The levels that a solver finds from the values of all workers; the same on all workers.
  template <class Solver>
  std::optional<gq::learn::level_set> levels_of(Solver const& solver, std::span<float const> x,
                                                std::uint64_t step) {
    centered const c = centered_of(x);
    gq::kernel::host_executor const on{Kokkos::Serial()};
    gq::learn::histogram mine;
    mine.add(on, {c.values.data(), gq::dtype::float32}, c.values.size(), bucket, c.norms);
    auto const agreed =
        gq::learn::agree(workers_, mine, solver, {.step = step, .length = length(), .bucket = bucket});
    if (agreed.what != gq::learn::learning_status::learned) return std::nullopt;
    return agreed.found.levels;
  }

  Workers& workers_;
  torch::Tensor tensor_;
  scheme by_;
  bool learns_weights_, learns_gradients_;
  gq::all_gather<> gather_;
  gq::reduce_scatter_mean<> scatter_;
  bool weights_in_blocks_, gradients_in_blocks_;
  std::vector<gq::segment> shards_;
  blocks blocks_;  ///< of a plain call beside one with buckets, else empty
  std::optional<gq::learn::level_set> descended_;
  std::vector<float> weights_, gradient_;  ///< of the own shard
  std::vector<double> first_, second_;     ///< Adam's moments
};

/// All parameters of a model.
template <class Workers>
class sharded_model {
 public:
  sharded_model(Workers& workers, torch::nn::Module& model, precision const& p, std::uint64_t seed) {
    gq::adapt::model_layout named;
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
