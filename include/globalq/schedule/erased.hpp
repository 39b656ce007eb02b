// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: a type-erased schedule, for calls and plans.

#include "../transport/endpoint.hpp"
#include "concept.hpp"
#include "detail/counting_transport.hpp"
#include "detail/nodes.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::schedule {

/// @brief Any schedule; schedule/concept.hpp documents the members.
class erased {
 public:
  erased(erased const&) = delete;
  erased& operator=(erased const&) = delete;
  virtual ~erased() = default;

  /// Whether vectors of workers are averaged, workers' parts are concatenated, and a worker receives only its part.
  bool averages, gathers, scatters;
  /// Values of a node are added in float32, and its leader encodes the sum.
  bool sums_in_nodes;

  virtual globalq::detail::schedule_facts facts(int workers) const = 0;
  virtual int parts(int workers) const = 0;
  virtual std::vector<std::pair<int, int>> additions(int workers) const = 0;
  /// Parts of its vector that a worker contributes and receives.
  virtual segment reads(partition const& cut, int rank) const = 0;
  virtual segment writes(partition const& cut, int rank) const = 0;
  /// The frames of own values alone with which the first step begins, if it does.
  virtual void leaves(partition const& cut, int workers, int rank, codec const& c, frame_pool& frames,
                      std::vector<unsent>& all) const = 0;
  virtual void operator()(transport::endpoint& t, codec& c, partition const& cut,
                          frame_pool& frames) const = 0;

  /// For plans. @param c  a codec with the right frame sizes
  virtual detail::busiest_worker busiest(int workers, partition const& cut, codec& c,
                                         detail::piece_sizes const& sizes,
                                         detail::bytes_before const& before) const = 0;

  // if sums_in_nodes: whether a worker encodes, its node, all nodes, and the sums
  virtual bool leads(int rank, int workers) const = 0;
  virtual int node_of(int rank, int workers) const = 0;
  virtual detail::node_map nodes_among(int workers) const = 0;
  virtual void sum_in_node(transport::endpoint& t, codec& c, std::uint64_t length, std::uint64_t chunk_values,
                           frame_pool& frames) const = 0;

 protected:
  erased(bool averaging, bool gathering, bool scattering, bool summing)
      : averages(averaging), gathers(gathering), scatters(scattering), sums_in_nodes(summing) {}
};

/// Implementation for a schedule of known type.
/// @tparam S     a schedule, or a reference to one that outlives it
/// @tparam Runs  whether operator() runs it; plans only query it
template <class S, bool Runs = true>
class erased_as final : public erased {
  using plain = std::remove_cvref_t<S>;
  static constexpr bool sums = globalq::detail::SumsInNodes<plain>;

 public:
  explicit erased_as(S schedule)
      : erased(
            globalq::detail::averages<plain>, globalq::detail::gathers<plain>,
            requires(plain const& s, partition const& cut) { s.writes(cut, 0); }, sums),
        s_(std::forward<S>(schedule)) {}

  globalq::detail::schedule_facts facts(int workers) const override { return s_.facts(workers); }
  int parts(int workers) const override { return s_.parts(workers); }
  std::vector<std::pair<int, int>> additions(int workers) const override { return s_.additions(workers); }
  segment reads(partition const& cut, int rank) const override {
    return globalq::detail::reads_of(s_, cut, rank);
  }
  segment writes(partition const& cut, int rank) const override {
    return globalq::detail::writes_of(s_, cut, rank);
  }
  void leaves(partition const& cut, int workers, int rank, codec const& c, frame_pool& frames,
              std::vector<unsent>& all) const override {
    globalq::detail::add_leaves(static_cast<plain const&>(s_), cut, workers, rank, c, frames, all);
  }
  void operator()([[maybe_unused]] transport::endpoint& t, [[maybe_unused]] codec& c,
                  [[maybe_unused]] partition const& cut, [[maybe_unused]] frame_pool& frames) const override {
    if constexpr (Runs) s_(t, c, cut, frames);
  }
  detail::busiest_worker busiest(int workers, partition const& cut, codec& c,
                                 detail::piece_sizes const& sizes,
                                 detail::bytes_before const& before) const override {
    return detail::busiest(static_cast<plain const&>(s_), workers, cut, c, sizes, before);
  }

  bool leads([[maybe_unused]] int rank, [[maybe_unused]] int workers) const override {
    if constexpr (sums) return s_.leads(rank, workers);
    return true;
  }
  int node_of(int rank, [[maybe_unused]] int workers) const override {
    if constexpr (sums) return s_.node_of(rank, workers);
    return rank;
  }
  detail::node_map nodes_among([[maybe_unused]] int workers) const override {
    if constexpr (sums) return s_.nodes_among(workers);
    return {};
  }
  void sum_in_node([[maybe_unused]] transport::endpoint& t, [[maybe_unused]] codec& c,
                   [[maybe_unused]] std::uint64_t length, [[maybe_unused]] std::uint64_t chunk_values,
                   [[maybe_unused]] frame_pool& frames) const override {
    if constexpr (sums && Runs) s_.sum_in_node(t, c, length, chunk_values, frames);
  }

 private:
  S s_;
};

template <Schedule S>
std::unique_ptr<erased const> erase(S schedule) {
  return std::make_unique<erased_as<S>>(std::move(schedule));
}

}  // namespace GLOBALQ_ABI::schedule
