// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief schedule: reduce-scatter (every worker receives the mean of its shard) and all-gather (of all shards).
///
/// Shards are the segments of the partition, one per worker. See reduce_scatter_mean.hpp and all_gather.hpp.
///
/// If workers form nodes, each shard has a relay in every other node: the one worker there that sends or receives its
/// frame. Relays rotate through the ranks, so the workers of a node share the traffic between nodes evenly. Within a
/// node, frames are exchanged turn by turn: in one turn the node's own shards, in each other turn as many shards of
/// other nodes, one per relay. A single node, and nodes of one worker each, are the plain exchange.

#include "../hierarchical.hpp"
#include "frames.hpp"
#include "nodes.hpp"
#include "piece_sizes.hpp"

namespace GLOBALQ_ABI::schedule::detail {

/// The nodes that a user specified.
template <class S>
node_split const& nodes_of_shards(S const& schedule) {
  static_assert(
      std::is_same_v<S, hierarchical<>>,
      "globalq: shards have a fixed schedule except for nodes; leave the schedule out, or pass the nodes "
      "as schedule::hierarchical<>");
  return schedule.nodes();
}

/// Which shards the workers of a node handle, turn by turn.
class shard_turns {
 public:
  shard_turns(node_map const& nodes, int node)
      : first_(nodes.leader(node)),
        size_(nodes.size(node)),
        workers_(nodes.workers()),
        blocks_(static_cast<int>(divide_up<std::uint64_t>(static_cast<std::uint64_t>(workers_),
                                                          static_cast<std::uint64_t>(size_)))) {}

  /// The node's own shards in turn 0, then those of other nodes, starting with the next ranks, so that none is flooded.
  int count() const { return first_ % size_ == 0 ? blocks_ : blocks_ + 1; }

  /// Owner of the shard that a worker of the node handles in a turn; -1: none.
  int owner(int turn, int worker) const {
    if (turn == 0) return worker;
    int const shard = (first_ / size_ + turn) % blocks_ * size_ + (worker - first_);
    return shard >= workers_ || (shard >= first_ && shard < first_ + size_) ? -1 : shard;
  }

  /// The worker of @p node that handles the shard of a worker of another node.
  static int relay(node_map const& nodes, int node, int owner) {
    return nodes.leader(node) + owner % nodes.size(node);
  }

  neighborhood node() const { return {first_, size_}; }

 private:
  int first_, size_, workers_;
  int blocks_;  ///< blocks of as many ranks as the node has workers
};

/// Frames from workers of other nodes, at most one per worker and chunk, and frames to them.
///
/// Uses the sets of transfers above exchange_sets: two for sends, two for receives (or their heads and remainders).
template <Transport T>
class between_nodes {
 public:
  between_nodes(transfers<T>& under_way, T& t, codec const& c, std::uint64_t chunks)
      : under_way_(under_way), t_(t), codec_(c), head_(c.head_bytes()), chunks_(chunks) {}

  /// Call this before anything of a chunk is sent. Afterwards the sends of two chunks before are complete.
  /// @param each  each(chunk, f): f(worker, frame) for all frames that arrive in a chunk, with room for them
  template <class Each>
  void expect(std::uint64_t chunk, Each const& each) {
    under_way_.wait_all(t_, sent(chunk));
    if (head_ == 0)
      each(chunk, [&](int from, std::span<std::byte> frame) { under_way_.recv(t_, from, frame, in(chunk)); });
    else if (chunk == 0)
      expect_heads(chunk, each);
  }

  void send(int to, std::span<std::byte> frame, std::uint64_t chunk) {
    send_frame(under_way_, t_, codec_, to, frame, sent(chunk));
  }

  /// Blocks until the frames of a chunk have arrived.
  template <class Each>
  void arrive(std::uint64_t chunk, Each const& each) {
    if (head_ == 0) return under_way_.wait_all(t_, in(chunk));
    under_way_.wait_all(t_, heads);
    each(chunk, [&](int from, std::span<std::byte> frame) {
      recv_rest(under_way_, t_, codec_, from, frame, rests);
    });
    if (chunk + 1 < chunks_) expect_heads(chunk + 1, each);
    under_way_.wait_all(t_, rests);
  }

  /// Blocks until all sends are complete.
  void wait() {
    under_way_.wait_all(t_, sent(0));
    under_way_.wait_all(t_, sent(1));
  }

 private:
  static constexpr int first_in = exchange_sets + 2, heads = first_in, rests = first_in + 1;
  static int sent(std::uint64_t chunk) { return exchange_sets + static_cast<int>(chunk % 2); }
  static int in(std::uint64_t chunk) { return first_in + static_cast<int>(chunk % 2); }

  template <class Each>
  void expect_heads(std::uint64_t chunk, Each const& each) {
    each(chunk, [&](int from, std::span<std::byte> frame) {
      under_way_.recv(t_, from, head_of(frame, head_), heads);
    });
  }

  transfers<T>& under_way_;
  T& t_;
  codec const& codec_;
  std::size_t head_;
  std::uint64_t chunks_;
};

/// Common base of both schedules: nodes and name.
class over_nodes {
 public:
  static int parts(int workers) { return workers; }

 protected:
  over_nodes(char const* name, node_split split)
      : split_(std::move(split)), name_(split_.text().empty() ? name : name + (':' + split_.text())) {}

  char const* name() const { return name_.c_str(); }

  /// Nodes of this many workers, in memory that the thread's next call reuses.
  /// @throws configuration_error if the sizes of the nodes do not add up to the number of workers
  node_map const& nodes_of(int workers) const {
    thread_local node_map nodes;
    split_.cut(workers, nodes);
    return nodes;
  }

  template <Transport T>
  node_map const& nodes_of(T& t) const {
    node_map const& nodes = nodes_of(t.size());
    if (nodes.count() > 1) node_split::expect_single_messages(t, "leave the nodes out");
    return nodes;
  }

 private:
  node_split split_;
  std::string name_;
};

/// @brief Every worker receives all frames of its shard and adds them in rank order: the bits of schedule::allgather.
///
/// Over nodes it receives a frame from each worker of its node, and the sum of each other node, which the shard's relay
/// there computes from its own values and the others' frames.
/// @complexity bytes sent: S (n-1)/n; by nodes of g workers S (g-1)/g of it within the node, S (1/g - 1/n) to other
///             nodes; height 0, or g - 1 if sums pass between nodes
class reduce_scatter : public over_nodes {
 public:
  explicit reduce_scatter(node_split split = {}) : over_nodes("reduce-scatter", std::move(split)) {}

  globalq::detail::schedule_facts facts(int workers) const {
    node_map const& nodes = nodes_of(workers);
    int const largest = nodes.most[1];
    globalq::detail::schedule_facts f{name(), 0, false, false, false, 0, true, "reduce_scatter_mean"};
    f.chunks_overlap = true;
    if (nodes.count() == 1 || largest == 1) return f;  // no sum is sent
    f.combines = true;
    f.height = largest - 1;
    f.roundings = 2;
    f.most_terms = largest;
    return f;
  }

  /// Additions within nodes. A shard's own node encodes no sum; bounds ignore that and count all nodes.
  std::vector<std::pair<int, int>> additions(int workers) const {
    node_map const& nodes = nodes_of(workers);
    std::vector<std::pair<int, int>> order;
    if (nodes.count() == 1) return order;
    for (int v = 0; v < nodes.count(); ++v)
      for (int p = 1; p < nodes.size(v); ++p) order.emplace_back(nodes.leader(v), nodes.leader(v) + p);
    return order;
  }

  static segment writes(partition const& cut, int rank) { return cut.part(rank); }

  /// Each worker sends all shards except its own once, for any nodes. Held frames are counted for the first nodes, the
  /// last one, and those larger than the preceding ones.
  busiest_worker busiest(piece_sizes const& all, int workers, bytes_before const& before) const {
    node_map const& nodes = nodes_of(workers);
    busiest_worker most;
    for (int r = 0; r < workers; ++r) most.sends(capped_sum(before.sent(r), all.all() - all.of(r)));
    int largest = 0;
    for (int v = 0; v < nodes.count(); ++v) {
      if (v >= 4 && v != nodes.count() - 1 && nodes.size(v) <= largest) continue;
      largest = std::max(largest, nodes.size(v));
      hold_in(nodes, v, all, before, most);
    }
    return most;
  }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    node_map const& nodes = nodes_of<T>(t);
    int const r = t.rank(), node = nodes.node_of(r);
    shard_turns const turns(nodes, node);
    neighborhood const mates = turns.node();
    std::uint64_t const each = static_cast<std::uint64_t>(turns.count());
    // sums for other nodes first, then the own shards
    auto const chunk_of = [&](std::uint64_t round) { return round / each; };
    auto const turn_of = [&](std::uint64_t round) { return static_cast<int>(each - 1 - round % each); };
    auto const piece = [&](std::uint64_t round, int worker) {
      int const owner = turns.owner(turn_of(round), worker);
      return owner < 0 ? segment{} : cut.piece(owner, chunk_of(round));
    };
    // slots of a round: a frame from and to each worker of the node; of a chunk: the sums made and those of other nodes
    auto const slot = [](int first, int count, std::uint64_t k, int i) {
      return static_cast<std::size_t>(first + count * static_cast<int>(k % 2) + i);
    };
    int const first_sum = 4 * mates.count, first_in = first_sum + 2 * turns.count();
    auto const in = [&](std::uint64_t round, int p) {
      return frames.get(slot(0, 2 * mates.count, round, p - mates.first), c.frame_bytes(piece(round, r), 1));
    };
    auto const out = [&](std::uint64_t round, int p) {
      return frames.get(slot(mates.count, 2 * mates.count, round, p - mates.first),
                        c.frame_bytes(piece(round, p), 1));
    };
    auto const sum_of = [&](std::uint64_t chunk, int v) {  // the sum of another node for this worker's shard
      return frames.get(slot(first_in, nodes.count(), chunk, v),
                        c.frame_bytes(cut.piece(r, chunk), nodes.size(v)));
    };
    auto const sums = [&](std::uint64_t chunk, auto const& f) {
      for (int v = 0; v < nodes.count(); ++v)
        if (v != node) f(shard_turns::relay(nodes, v, r), sum_of(chunk, v));
    };

    transfers<T> under_way;
    between_nodes<T> others(under_way, t, c, cut.rounds());
    exchange_rounds(
        under_way, t, mates, c, cut.rounds() * each, in,
        [&](std::uint64_t round, auto const& send) {
          if (round % each == 0) others.expect(chunk_of(round), sums);
          mates.after(r, [&](int p) {
            auto const frame = out(round, p);
            c.combine(piece(round, p), true, {}, frame);
            send(p, frame);
          });
          if (turn_of(round) == 0) c.combine(piece(round, r), true, {}, in(round, r));
        },
        [&](std::uint64_t round) {
          std::uint64_t const chunk = chunk_of(round);
          int const turn = turn_of(round), owner = turns.owner(turn, r);
          std::vector<source>& all = frames.sources(static_cast<std::size_t>(mates.count + nodes.count()));
          auto const add_node = [&] {
            for (int p = mates.first; p < mates.first + mates.count; ++p)
              if (turn == 0 || p != r) all.push_back({used(c, in(round, p), p), 1, p, p});
          };
          if (turn == 0) {
            others.arrive(chunk, sums);
            for (int v = 0; v < nodes.count(); ++v) {
              int const from = shard_turns::relay(nodes, v, r);
              if (v == node)
                add_node();
              else
                all.push_back({used(c, sum_of(chunk, v), from), nodes.size(v), from, nodes.leader(v)});
            }
            c.finish(piece(round, r), all);
          } else if (owner >= 0) {
            add_node();
            auto const sum = frames.get(slot(first_sum, turns.count(), chunk, turn),
                                        c.frame_bytes(piece(round, r), mates.count));
            c.combine(piece(round, r), true, all, sum);
            others.send(owner, sum, chunk);
          }
        });
    others.wait();
  }

 private:
  /// The slots of the workers of a node, as in operator().
  static void hold_in(node_map const& nodes, int node, piece_sizes const& all, bytes_before const& before,
                      busiest_worker& most) {
    shard_turns const turns(nodes, node);
    std::uint64_t const each = static_cast<std::uint64_t>(turns.count()), last = each - 1;
    std::uint64_t const size = static_cast<std::uint64_t>(nodes.size(node));
    // the largest piece that a worker handles in rounds of parity k, in turns below end
    auto const handled = [&](int worker, std::uint64_t k, std::uint64_t end) {
      std::uint64_t bytes = 0;
      for (std::uint64_t turn = 0; turn < end; ++turn) {
        int const owner = turns.owner(static_cast<int>(turn), worker);
        bool const same_in_all_chunks = each % 2 == 0;
        if (owner < 0 || (same_in_all_chunks && (last - turn) % 2 != k)) continue;
        bytes = std::max(bytes, all.run_of(owner).largest(same_in_all_chunks ? 1 : 2,
                                                          same_in_all_chunks ? 0 : (k + last - turn) % 2));
      }
      return bytes;
    };
    std::vector<std::array<std::uint64_t, 2>> exchanged(size);
    for (std::uint64_t p = 0; p < size; ++p)
      for (std::uint64_t k : {0U, 1U})
        exchanged[p][k] = handled(nodes.leader(node) + static_cast<int>(p), k, each);
    std::array<std::uint64_t, 2> together{};
    for (auto const& bytes : exchanged)
      for (std::uint64_t k : {0U, 1U}) together[k] += bytes[k];
    for (std::uint64_t p = 0; p < size; ++p) {
      int const r = nodes.leader(node) + static_cast<int>(p);
      slot_sizes slots = before.slots(r);
      for (std::uint64_t k : {0U, 1U}) {
        std::uint64_t const in = 2 * size * k, out = in + size, sums = 4 * size;
        slots.hold(in, p, exchanged[p][k]);
        slots.hold(in + p, 1, handled(r, k, 1));
        slots.hold(in + p + 1, size - p - 1, exchanged[p][k]);
        slots.hold(size == 2 ? out + 1 - p : out, 1, together[k] - exchanged[p][k]);
        for (std::uint64_t turn = 1; turn < each; ++turn)
          if (int const owner = turns.owner(static_cast<int>(turn), r); owner >= 0)
            slots.hold(sums, 1, all.run_of(owner).largest(2, k));
        slots.hold(sums, static_cast<std::uint64_t>(nodes.count() - 1), all.run_of(r).largest(2, k));
      }
      most.holds(slots);
    }
  }
};

/// @brief Every worker sends the frame of its shard to all; all decode the same bytes, its owner too.
///
/// Over nodes it sends it to the workers of its node and to its relays in the other nodes, which forward it.
/// @complexity bytes sent: S (n-1)/n; by nodes of g workers S (g-1)/g of it within the node, S (1/g - 1/n) to other
///             nodes; height 0
class gather : public over_nodes {
 public:
  static constexpr bool gathers = true;
  static constexpr bool averages = false;

  explicit gather(node_split split = {}) : over_nodes("all-gather", std::move(split)) {}

  globalq::detail::schedule_facts facts(int workers) const {
    nodes_of(workers);
    globalq::detail::schedule_facts f{name(), 0, false, false, false, 0, true, "all_gather"};
    f.chunks_overlap = true;
    return f;
  }
  static std::vector<std::pair<int, int>> additions(int) { return {}; }
  static segment reads(partition const& cut, int rank) { return cut.part(rank); }

  template <Transport T>
  void operator()(T& t, codec& c, partition const& cut, frame_pool& frames) const {
    node_map const& nodes = nodes_of<T>(t);
    int const r = t.rank(), node = nodes.node_of(r);
    shard_turns const turns(nodes, node);
    neighborhood const mates = turns.node();
    std::uint64_t const each = static_cast<std::uint64_t>(turns.count());
    auto const chunk_of = [&](std::uint64_t round) { return round / each; };
    auto const turn_of = [&](std::uint64_t round) { return static_cast<int>(round % each); };
    // slots of a round: a frame from each worker of the node; of a chunk: the frame that this worker sends in each turn
    auto const carried = [&](std::uint64_t chunk, int turn) {
      int const owner = turns.owner(turn, r);
      return frames.get(
          static_cast<std::size_t>(2 * mates.count + turn + turns.count() * static_cast<int>(chunk % 2)),
          owner < 0 ? 0 : c.frame_bytes(cut.piece(owner, chunk), 1));
    };
    auto const frame_of = [&](std::uint64_t round, int p) {
      if (p == r) return carried(chunk_of(round), turn_of(round));
      int const owner = turns.owner(turn_of(round), p);
      return frames.get(static_cast<std::size_t>(p - mates.first + mates.count * static_cast<int>(round % 2)),
                        owner < 0 ? 0 : c.frame_bytes(cut.piece(owner, chunk_of(round)), 1));
    };
    auto const arriving = [&](std::uint64_t chunk, auto const& f) {
      for (int turn = 1; turn < turns.count(); ++turn)
        if (int const owner = turns.owner(turn, r); owner >= 0) f(owner, carried(chunk, turn));
    };

    transfers<T> under_way;
    between_nodes<T> others(under_way, t, c, cut.rounds());
    exchange_rounds(
        under_way, t, mates, c, cut.rounds() * each, frame_of,
        [&](std::uint64_t round, auto const& send) {
          std::uint64_t const chunk = chunk_of(round);
          auto const mine = frame_of(round, r);
          if (turn_of(round) == 0) {
            others.expect(chunk, arriving);
            c.combine(cut.piece(r, chunk), true, {}, mine);
            neighborhood{0, nodes.count()}.after(
                node, [&](int v) { others.send(shard_turns::relay(nodes, v, r), mine, chunk); });
          } else if (turn_of(round) == 1) {
            others.arrive(chunk, arriving);
          }
          mates.after(r, [&](int p) { send(p, mine); });
        },
        [&](std::uint64_t round) {
          for (int p = mates.first; p < mates.first + mates.count; ++p) {
            int const owner = turns.owner(turn_of(round), p);
            if (owner < 0) continue;
            source const one{used(c, frame_of(round, p), owner), 1, owner, owner};
            c.finish(cut.piece(owner, chunk_of(round)), {&one, 1});
          }
        });
    others.wait();
  }
};

}  // namespace GLOBALQ_ABI::schedule::detail
