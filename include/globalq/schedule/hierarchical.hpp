// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: sums within nodes of workers first, then another schedule between the nodes' leaders.

#include "../transport/group.hpp"
#include "concept.hpp"
#include "detail/node_codec.hpp"
#include "detail/nodes.hpp"
#include "detail/piece_sizes.hpp"
#include "scatter_reduce_allgather.hpp"

#include <algorithm>
#include <concepts>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

namespace GLOBALQ_ABI::schedule {

/// @brief Within a node: every worker sends to the leader, which adds all frames at once, in rank order.
struct star {
  static constexpr char const* name = "star";
  static int parent(int /*place*/) { return 0; }
};

/// @brief Within a node: adds values in float32, and the leader encodes the sum. CGX's best choice if links within
/// nodes are fast.
///
/// The operator processes one vector per node, and norms are those of the sums: fewer roundings, less
/// headroom, and smaller norms if the workers' vectors differ.
struct float32_sum {
  static constexpr char const* name = "float32";
  static constexpr bool adds_float32 = true;
  static int parent(int /*place*/) { return 0; }
};

/// @brief Workers form nodes; each node's leader adds its members' frames and takes part in the outer schedule.
///
/// A node is a range of ranks, and its first worker leads: with MPI's usual placement, the processes of a machine. Only
/// leaders send between nodes, so a link carries what Outer sends among as many workers as there are nodes. A leader
/// adds its own values, its members' frames and the frames of other nodes at once, so a requantized sum is encoded once
/// per leader. Results are bit-identical: members decode the leader's bytes. reduce_scatter_mean and all_gather use the
/// nodes of a hierarchical<>, without leaders: every worker is a relay of its node.
/// @tparam Inner  how frames are added within a node: schedule::star (one step, the fewest roundings), schedule::tree
///                (the leader takes part in log2(size of the node) messages), or schedule::float32_sum (values are
///                added in float32 before the operator processes them)
/// @tparam Outer  between leaders: scatter_reduce_allgather, ring or tree; with float32_sum also allgather
/// @complexity bytes sent by a leader: those of Outer, and S for each child; by a member S, and S for each child;
///             height: that of Inner in the largest node plus that of Outer. With float32_sum: additionally 8 (g-1)/g
///             bytes a value in a node of g workers, but no S to the parent; height and headroom: those of Outer among
///             the nodes
/// @determinism random words are keyed by ranks among all workers; with float32_sum by nodes
/// @source Markov 2024 (thesis), chapter 3 (CGX): sums within a node first
template <class Inner = star, class Outer = scatter_reduce_allgather>
class hierarchical {
  static_assert(detail::NodeSchedule<Inner>,
                "globalq: schedule::hierarchical: the first argument does not add frames within a node; use "
                "schedule::star, schedule::tree or schedule::float32_sum");
  static_assert(Schedule<Outer>,
                "globalq: schedule::hierarchical: the second argument is not a schedule; use "
                "scatter_reduce_allgather, ring or tree");

 public:
  /// Whether vectors of a node are added before one of its workers encodes.
  static constexpr bool sums_in_nodes = detail::adds_float32<Inner>;

  /// @param node_size  workers per node; the last node may have fewer
  /// @throws configuration_error if it is below 1
  explicit hierarchical(int node_size, Outer outer = {}) : hierarchical(split(node_size), std::move(outer)) {}

  /// @param node_sizes  workers of each node; their sum is the number of workers
  /// @throws configuration_error if the list is empty, or a size is below 1
  explicit hierarchical(std::vector<int> node_sizes, Outer outer = {})
      : hierarchical(split(std::move(node_sizes)), std::move(outer)) {}

  /// Which workers form a node.
  detail::node_split const& nodes() const { return split_; }
  /// "hierarchical:4", or "hierarchical<tree,ring>:4+2".
  std::string const& text() const { return name_; }

  /// @throws configuration_error if the sizes of the nodes do not add up to the number of workers
  globalq::detail::schedule_facts facts(int workers) const {
    detail::node_map const& nodes = nodes_of(workers);
    globalq::detail::schedule_facts const between = outer_.facts(nodes.count());
    if ((!between.combines && !sums_in_nodes) || between.native)
      split::refuse(std::string("between nodes frames must be added on the way, which schedule ") +
                    between.name + " does not; use scatter_reduce_allgather, ring or tree");
    int const largest = nodes.largest();
    if constexpr (sums_in_nodes) {
      globalq::detail::schedule_facts f = between;
      f.name = name_.c_str();
      f.varying = false;
      f.encoders = nodes.count();
      f.largest_node = largest;
      return f;
    }
    globalq::detail::schedule_facts f{name_.c_str(), height_within(largest) + between.height, true, false,
                                      false};
    int const outer_roundings = nodes.count() == 1 ? 0 : (between.one_addition ? 1 : between.height);
    f.roundings = 1 + roundings_within(largest) + outer_roundings;
    f.chunks_wait = between.chunks_wait;
    return f;
  }
  int parts(int workers) const { return outer_.parts(nodes_of(workers).count()); }

  /// Additions within the nodes, then those between leaders. If node sizes differ and Outer adds each segment in
  /// another order, this is the order with the largest intermediate sums.
  std::vector<std::pair<int, int>> additions(int workers) const {
    detail::node_map const& nodes = nodes_of(workers);
    if (sums_in_nodes) return outer_.additions(nodes.count());  // of nodes
    std::vector<std::pair<int, int>> order;
    for (int v = 0; v < nodes.count(); ++v)
      for (int p = nodes.size(v) - 1; p > 0; --p)
        order.emplace_back(nodes.leader(v) + Inner::parent(p), nodes.leader(v) + p);
    std::vector<int> by_size(static_cast<std::size_t>(nodes.count()));
    std::iota(by_size.begin(), by_size.end(), 0);
    globalq::detail::schedule_facts const between = outer_.facts(nodes.count());
    bool const chain = !between.one_addition && between.height == nodes.count() - 1;
    if (chain || between.one_addition)
      std::stable_sort(by_size.begin(), by_size.end(),
                       [&](int a, int b) { return nodes.size(a) > nodes.size(b); });
    if (between.one_addition) std::rotate(by_size.begin(), by_size.end() - 1, by_size.end());
    for (auto const& [into, from] : outer_.additions(nodes.count())) {
      // in a chain the sum travels, and every worker on the way encodes it
      int const to = chain ? from : into, of = chain ? from - 1 : from;
      order.emplace_back(nodes.leader(by_size[static_cast<std::size_t>(to)]),
                         nodes.leader(by_size[static_cast<std::size_t>(of)]));
    }
    return order;
  }

  /// Bytes that the busiest workers send and hold: a leader those of Outer; a member its frames to its parent; both the
  /// frames to all their children. Held frames are counted as if all had the largest size.
  detail::busiest_worker busiest(detail::piece_sizes const& all, int workers,
                                 detail::bytes_before const& before) const requires detail::SaysBytes<Outer> {
    detail::node_map const& nodes = nodes_of(workers);
    detail::busiest_worker most;
    std::vector<std::uint64_t> children;
    std::vector<int> const ask = all.owners_to_ask(nodes.count());
    // frames of a piece that go down in a node
    std::uint64_t const frames =
        outer_.facts(nodes.count()).combines ? 1 : static_cast<std::uint64_t>(nodes.count());
    int largest = 0;
    for (int v = 0; v < nodes.count(); ++v) {
      int const size = nodes.size(v);
      if (static_cast<int>(children.size()) != size) {
        children.assign(static_cast<std::size_t>(size), 0);
        for (int p = 1; p < size; ++p) ++children[static_cast<std::size_t>(Inner::parent(p))];
      }
      bool const asked = size > largest || std::find(ask.begin(), ask.end(), v) != ask.end();
      largest = std::max(largest, size);
      std::uint64_t most_below = 0;  // of members so far, plus 1
      for (int p = 0; p < size; ++p) {
        int const rank = nodes.leader(v) + p;
        std::uint64_t const below = children[static_cast<std::size_t>(p)];
        std::uint64_t const up =
            p == 0 ? outer_.sent(all, nodes.count(), v) : (sums_in_nodes ? 0 : all.all());
        most.sends(detail::capped_sum(
            before.sent(rank), detail::capped_sum(up, detail::capped_product(below * frames, all.all()))));
        if (!asked || (!sums_in_nodes && p != 0 && below < most_below))
          continue;  // another worker holds as much
        if (p != 0) most_below = below + 1;
        detail::slot_sizes slots = before.slots(rank);
        if (p == 0)
          outer_.hold(all, nodes.count(), v, slots);
        else if (!sums_in_nodes)
          all.hold_largest(detail::slot_sizes::shared, 4, 1, slots);
        if (!sums_in_nodes)
          slots.hold(detail::slot_sizes::shared, below + (p != 0), all.largest());
        else if (p != 0)  // frames that arrive from the leader at once
          slots.hold(detail::slot_sizes::shared, frames, all.largest());
        most.holds(slots);
      }
    }
    return most;
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    split::expect_single_messages(t, "use schedule ring");
    detail::node_map const& nodes = nodes_of(t.size());
    detail::node_codec<T, Inner, Outer> mine(t, c, frames, nodes);
    int const node = nodes.node_of(t.rank());
    if (mine.place() == 0) {
      transport::detail::renumbered<T> leaders(t, nodes.leaders, node);
      outer_(leaders, mine, cut, frames);
    } else {
      thread_local frame_pool none = frame_pool::counting();
      detail::silent_transport leaders(node, nodes.count());
      outer_(leaders, mine, cut, none);
    }
    mine.wait();
  }

  /// Whether a worker encodes its node's sum, and the node of a worker.
  bool leads(int rank, int workers) const requires(sums_in_nodes) {
    detail::node_map const& nodes = nodes_of(workers);
    return nodes.leader(nodes.node_of(rank)) == rank;
  }
  int node_of(int rank, int workers) const requires(sums_in_nodes) { return nodes_of(workers).node_of(rank); }
  detail::node_map nodes_among(int workers) const { return nodes_of(workers); }

  /// Adds the vectors of each node: every worker adds one segment and sends it to the others.
  /// @param c  codec of float32 frames
  template <Transport T>
  void sum_in_node(T& t, codec& c, std::uint64_t length, std::uint64_t chunk_values, frame_pool& frames) const
      requires(sums_in_nodes) {
    detail::node_map const& nodes = nodes_of(t.size());
    int const node = nodes.node_of(t.rank());
    thread_local std::vector<int> ranks;
    ranks.resize(static_cast<std::size_t>(nodes.size(node)));
    std::iota(ranks.begin(), ranks.end(), nodes.leader(node));
    transport::detail::renumbered<T> members(t, ranks, t.rank() - nodes.leader(node));
    partition const cut(length, members.size(), random::tile_values, chunk_values);
    scatter_reduce_allgather{}(members, c, cut, frames);
  }

 private:
  using split = detail::node_split;

  hierarchical(split nodes, Outer outer)
      : outer_(std::move(outer)), split_(std::move(nodes)), name_("hierarchical") {
    if constexpr (!std::is_same_v<Inner, star> || !std::is_same_v<Outer, scatter_reduce_allgather>)
      name_.append("<").append(Inner::name).append(",").append(detail::text_of(outer_)).append(">");
    name_ += ':';
    name_ += split_.text();
  }

  /// Nodes of this many workers, in memory that the thread's next call reuses.
  detail::node_map const& nodes_of(int workers) const {
    thread_local detail::node_map nodes;
    split_.cut(workers, nodes);
    return nodes;
  }

  /// Additions on the longest path to the leader: each worker adds its children one after the other.
  static int height_within(int size) {
    return walk(size, [](int mine, int child) { return std::max(mine, child) + 1; });
  }
  /// Encodings of sums on that path.
  static int roundings_within(int size) {
    return walk(size, [](int mine, int child) { return std::max(mine, child + 1); });
  }
  template <class F>
  static int walk(int size, F const& add) {
    thread_local std::vector<int> at;  // for the size of the last call
    if (static_cast<int>(at.size()) == size) return at[0];
    at.assign(static_cast<std::size_t>(size), 0);
    std::vector<int> first(static_cast<std::size_t>(size), 0), next = first;  // children of each; 0: no more
    for (int p = size - 1; p >= 0; --p) {                                     // children have larger places
      for (int q = first[static_cast<std::size_t>(p)]; q != 0; q = next[static_cast<std::size_t>(q)])
        at[static_cast<std::size_t>(p)] =
            add(at[static_cast<std::size_t>(p)], at[static_cast<std::size_t>(q)]);
      if (p != 0)
        next[static_cast<std::size_t>(p)] =
            std::exchange(first[static_cast<std::size_t>(Inner::parent(p))], p);
    }
    return at[0];
  }

  Outer outer_;
  split split_;
  std::string name_;
};

}  // namespace GLOBALQ_ABI::schedule
