// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: the plan of a call of a layered_mean, from the operators of its layers.

#include "../../../call/detail/group_plan.hpp"
#include "../../../plan/plan.hpp"
#include "../model_layout.hpp"
#include "layer_operator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt::detail {

/// Adds up bytes, memory and errors of the layers. Keeps references to its arguments.
class layered_plan {
 public:
  /// @param layers  one operator for each layer
  /// @param plain   the float32 operator, in which nodes add
  layered_plan(model_layout const& model, std::span<layer_operator const> layers, layer_operator const& plain,
               globalq::schedule::erased const& schedule, int workers, std::size_t chunk_bytes)
      : model_(model),
        layers_(layers),
        plain_(plain),
        schedule_(schedule),
        workers_(workers),
        chunk_bytes_(chunk_bytes) {}

  /// @param ops  the operators of the layers, as calls use them
  globalq::plan of(globalq::detail::group_operators const& ops) const {
    std::vector<vector_group::member> members;
    for (layer const& l : model_) members.push_back({{nullptr, l.type}, {nullptr, l.type}, l.size});
    globalq::detail::group_places places;
    places.place(members, ops);
    int const n = workers_;
    globalq::plan p;
    p.fits = true;
    p.workers = n;
    globalq::detail::schedule_facts const facts = schedule_.facts(n);
    std::vector<std::pair<int, int>> const additions = schedule_.additions(n);
    std::vector<globalq::detail::counting_codec> codecs;
    bool varying = false;
    for (std::size_t k = 0; k < model_.size(); ++k) {
      layer_operator const& s = layers_[k];
      codecs.push_back(globalq::detail::counting(s.facts, s.resolved.size, model_[k].type));
      varying = varying || s.facts.most_bytes != nullptr;
      p.length += model_[k].size;
      if (model_[k].size == 0) continue;
      globalq::plan own;
      own.workers = n;
      globalq::detail::add_errors(own, s.facts, s.resolved, facts, model_[k].size, additions);
      p.theta = p.theta < own.theta || !(own.theta == own.theta) ? own.theta : p.theta;
      p.rounding_steps = std::max(p.rounding_steps, own.rounding_steps);
      p.bytes_are_most = p.bytes_are_most || s.facts.most_bytes != nullptr;
    }
    p.iterations_factor = 1 + n * p.theta;
    globalq::detail::counting_group const group(places, ops, codecs, varying);
    int const parts = schedule_.parts(n);
    ::globalq::partition const cut(places.length(), parts, ops.grain, ops.chunk_values);
    globalq::detail::opening_bytes before(n);
    each_exchange(
        [&](std::uint64_t buckets, globalq::detail::exchange_widths width) { before.add(buckets, width); });
    auto const any = [&](auto const& asked) { return std::any_of(layers_.begin(), layers_.end(), asked); };
    if (any([](layer_operator const& s) { return globalq::detail::scales_each_vector(s.facts); }))
      each_scale_of_floats(
          [&](std::uint64_t vectors, globalq::detail::exchange_widths width) { before.add(vectors, width); });
    if (any([](layer_operator const& s) { return globalq::detail::shares_scale(s.facts); }))
      before.add(1, globalq::detail::widths_of_scales(dtype::float64));
    if (any([](layer_operator const& s) { return s.facts.user_norm != nullptr && s.facts.local; }))
      before.add(1, globalq::detail::widths_of_scales(dtype::float64));
    auto const sums_of = [&](::globalq::partition const& pieces, int count) {
      return sums_sizes(members, pieces, count);
    };
    globalq::detail::counting_codec frames = group.frames();
    schedule::detail::piece_sizes sizes = group.sizes(cut, parts);
    if (n > 1 && any([](layer_operator const& s) { return s.facts.of_sums != nullptr; }))
      sizes.set_sums(group.sizes(cut, parts, 2));
    auto const most = schedule_.busiest(
        n, cut, frames, sizes,
        globalq::detail::call_bytes_before(schedule_, n, before, places.length(), chunk_bytes_, sums_of));
    p.bytes_sent = most.sent;
    p.workspace_bytes = most.held;
    if (p.length > 0)
      p.bits_per_value =
          8.0 * static_cast<double>(group.bytes({0, places.length()})) / static_cast<double>(p.length);
    return p;
  }

 private:
  /// The sizes of frames in which nodes add all layers in float32.
  schedule::detail::piece_sizes sums_sizes(std::span<vector_group::member const> members,
                                           ::globalq::partition const& cut, int parts) const {
    globalq::detail::operator_codec* const none = nullptr;
    globalq::detail::group_slot const plain{&plain_.facts, none};
    globalq::detail::group_operators const ops{{&plain, 1}, {}, 0, random::tile_values, 0};
    globalq::detail::group_places places;
    places.place(members, ops);
    globalq::detail::counting_codec const codecs[] = {
        globalq::detail::counting(plain_.facts, 0, dtype::float32)};
    return globalq::detail::counting_group(places, ops, codecs, false).sizes(cut, parts);
  }

  /// Calls f for the exchanges of norms that host_call makes.
  /// @param f  f(buckets, widths) for each exchange
  template <class F>
  void each_exchange(F const& f) const {
    std::uint64_t own = 0;
    for (std::size_t k = 0; k < layers_.size(); ++k)
      if (auto const& op = layers_[k].facts; op.user_norm != nullptr && !op.local)
        own += globalq::detail::buckets_of(op, model_[k].size);
    if (own != 0) f(own, globalq::detail::widths_of_user_norms);
    for (std::uint32_t p : orders())
      for (dtype const type : {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
        std::uint64_t buckets = 0;
        for (std::size_t k = 0; k < layers_.size(); ++k) {
          auto const& op = layers_[k].facts;
          if (op.shares_norm() && op.user_norm == nullptr && op.p == p && model_[k].type == type)
            buckets += globalq::detail::buckets_of(op, model_[k].size);
        }
        if (buckets != 0) f(buckets, globalq::detail::widths_of_scales(type));
      }
  }
  /// The same for scales of floats.
  template <class F>
  void each_scale_of_floats(F const& f) const {
    for (dtype const type : {dtype::float32, dtype::float64, dtype::float16, dtype::bfloat16}) {
      std::uint64_t vectors = 0;
      for (std::size_t k = 0; k < layers_.size(); ++k)
        if (model_[k].type == type && (layers_[k].facts.sends_floats() || schedule_.sums_in_nodes)) ++vectors;
      if (vectors != 0) f(vectors, globalq::detail::widths_of_scales(type));
    }
  }
  std::vector<std::uint32_t> orders() const {
    std::vector<std::uint32_t> all;
    for (layer_operator const& s : layers_)
      if (std::find(all.begin(), all.end(), s.facts.p) == all.end()) all.push_back(s.facts.p);
    return all;
  }

  model_layout const& model_;
  std::span<layer_operator const> layers_;
  layer_operator const& plain_;
  globalq::schedule::erased const& schedule_;
  int workers_;
  std::size_t chunk_bytes_;
};

}  // namespace GLOBALQ_ABI::adapt::detail
