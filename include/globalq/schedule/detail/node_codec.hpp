// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: codec that presents a node to the outer schedule of hierarchical as one worker, with the node's
/// sum.

#include "../../transport/group.hpp"
#include "../concept.hpp"
#include "nodes.hpp"

#include <concepts>
#include <string_view>
#include <vector>

namespace GLOBALQ_ABI::schedule::detail {

template <class Inner>
inline constexpr bool adds_float32 = requires {
  requires Inner::adds_float32;
};

/// How frames are added within a node: the parent of each place above 0 has a smaller place.
template <class I>
concept NodeSchedule = requires(int place) {
  { I::name } -> std::convertible_to<std::string_view>;
  { I::parent(place) } -> std::same_as<int>;
};

/// Moves nothing. Members of a node run the outer schedule with it, beside their leader, to follow its sequence of
/// calls.
class silent_transport {
 public:
  struct request {};
  silent_transport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  request send_async(int, std::span<std::byte const>) { return {}; }
  request recv_async(int, std::span<std::byte>) { return {}; }
  void wait(request&) {}

 private:
  int rank_, size_;
};

/// Presents a node to the outer schedule as one worker whose values are the node's sum.
///
/// All workers of a node make the same calls in the same order, the leader with the outer schedule's frames and the
/// others without any. A worker combines its own values and the frames of its children in the node. Only the leader's
/// frame goes to the outer schedule; the others go to the worker's parent. Finished frames come down the same way. With
/// float32_sum own values are already the node's sum, members send nothing, and terms count nodes.
template <Transport T, class Inner, class Outer>
class node_codec final : public codec {
 public:
  node_codec(T& workers, codec& inner, frame_pool& frames, node_map const& nodes)
      : t_(workers), inner_(inner), frames_(frames.of_codec()), nodes_(nodes) {
    int const node = nodes.node_of(workers.rank()), size = nodes.size(node);
    leader_ = nodes.leader(node);
    place_ = workers.rank() - leader_;
    std::vector<int>& below = scratch().below;
    below.assign(static_cast<std::size_t>(size), 1);
    for (int p = size - 1; p > 0; --p)
      below[static_cast<std::size_t>(Inner::parent(p))] += below[static_cast<std::size_t>(p)];
    scratch().children.clear();
    for (int p = place_ + 1; p < size; ++p)
      if (Inner::parent(p) == place_) scratch().children.push_back({p, below[static_cast<std::size_t>(p)]});
    terms_ = below[static_cast<std::size_t>(place_)];
    slots_up_ = scratch().children.size();
    slots_down_ = slots_up_ + up_at_once;
  }

  /// Size for the sum of any @p terms nodes.
  std::size_t frame_bytes(segment part, int terms) const override {
    return inner_.frame_bytes(part, sums ? terms : nodes_.most[static_cast<std::size_t>(terms)]);
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty() || ((!own || sums) && place_ != 0)) return;
    if constexpr (sums) return inner_.combine(part, own, sources, out);
    std::vector<source>& all = scratch().sources;
    all.clear();
    if (own) gather(part, all);
    if (place_ == 0) {
      int terms = own ? terms_ : 0;
      for (source const& s : sources) {
        all.push_back(in_ranks(part, s));
        terms += all.back().terms;
      }
      return inner_.combine(part, own, all, out.first(inner_.frame_bytes(part, terms)));
    }
    int const set = static_cast<int>(sent_++ % up_at_once);
    under_way_.wait_all(t_, set);  // the slot's frame may still be in transfer
    auto const mine =
        frames_.get(slots_up_ + static_cast<std::size_t>(set), inner_.frame_bytes(part, terms_));
    inner_.combine(part, true, all, mine);
    under_way_.send(t_, leader_ + Inner::parent(place_), mine, set);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    std::vector<source>& all = scratch().sources;
    all.clear();
    for (source const& s : sources) {
      source whole = in_ranks(part, s);
      if (place_ != 0) {
        auto const frame = frames_.get(slots_down_ + all.size(), whole.frame.size());
        under_way_.recv(t_, leader_ + Inner::parent(place_), frame, down_set);
        whole.frame = frame;
      }
      all.push_back(whole);
    }
    under_way_.wait_all(t_, down_set);
    for (source const& s : all)
      for (child const& c : scratch().children) under_way_.send(t_, leader_ + c.place, s.frame, down_set);
    inner_.finish(part, all);
    under_way_.wait_all(t_, down_set);  // afterwards the frames may be overwritten
  }

  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

  /// Blocks until all sends are complete.
  void wait() {
    for (int set = 0; set < up_at_once; ++set) under_way_.wait_all(t_, set);
  }

  int place() const { return place_; }

 private:
  static constexpr bool sums = adds_float32<Inner>;
  static constexpr int up_at_once = 4;  ///< frames in transfer to the parent
  static constexpr int gather_set = up_at_once, down_set = up_at_once + 1;

  struct child {
    int place;
    int terms;
  };

  /// Memory that the next call reuses.
  struct lists {
    std::vector<int> below;
    std::vector<child> children;
    std::vector<source> sources;
  };
  static lists& scratch() {
    thread_local lists all;
    return all;
  }

  /// Receives the frames of the children.
  void gather(segment part, std::vector<source>& all) {
    for (child const& c : scratch().children) {
      auto const frame = frames_.get(all.size(), inner_.frame_bytes(part, c.terms));
      under_way_.recv(t_, leader_ + c.place, frame, gather_set);
      all.push_back({frame, c.terms, leader_ + c.place});
    }
    under_way_.wait_all(t_, gather_set);
  }

  /// Converts a frame of the outer schedule, whose terms and makers are nodes, to terms and ranks of workers.
  source in_ranks(segment part, source const& s) const {
    if (sums) return s;
    int terms = nodes_.workers();
    if (s.terms != nodes_.count()) {
      int first = s.worker;
      if constexpr (requires { Outer::first_of_sum(0, 0, 0); })
        first = Outer::first_of_sum(nodes_.count(), s.worker, s.terms);
      terms = 0;
      for (int k = 0; k < s.terms; ++k) terms += nodes_.size((first + k) % nodes_.count());
    }
    return {s.frame.first(inner_.frame_bytes(part, terms)), terms, nodes_.leader(s.worker)};
  }

  T& t_;
  codec& inner_;
  frame_pool& frames_;
  node_map const& nodes_;
  int leader_ = 0, place_ = 0, terms_ = 1;
  std::size_t slots_up_ = 0, slots_down_ = 0;
  std::uint64_t sent_ = 0;
  transfers<T> under_way_;
};

}  // namespace GLOBALQ_ABI::schedule::detail
