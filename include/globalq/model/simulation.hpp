// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: a simulated network with a clock for every worker, on which the schedules' own code runs.
///
/// Each worker's code runs by itself over a transport that only takes notes (recorder): what it sends, to whom, what it waits
/// for, and how long it works in between. Then the notes of all workers are played against each other, message by message in
/// the order in which they reach their receivers, and those of one sender in the order in which it sent them. So chunks that overlap, uneven links and waiting for the slowest are
/// predicted by the code that runs, not by a formula beside it.

#include "../schedule/concept.hpp"
#include "costs.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace GLOBALQ_ABI::model {

/// @brief The most workers of a simulation: memory grows with their square.
inline constexpr int most_simulated = 16384;
/// @brief The most messages of a simulation: about a minute.
inline constexpr std::uint64_t most_simulated_messages = std::uint64_t{1} << 28;
/// @brief The most that one worker may do in a simulation: messages, waits and pieces of work. Half a gigabyte while it is noted.
inline constexpr std::size_t most_simulated_events = std::size_t{1} << 25;

/// @brief What a worker does with its own time.
enum class part : std::uint8_t { norm, encode, reduce, decode };

/// @brief How long it took, and what the worker that ended last did meanwhile.
struct timing {
  double seconds = 0;  ///< until the last worker ended: the sum of the five below
  double norm = 0;
  double encode = 0;
  double transfer = 0;  ///< waiting for messages, and handling them: what is not hidden behind work
  double reduce = 0;
  double decode = 0;
  std::uint64_t messages = 0;  ///< of all workers
  std::uint64_t bytes = 0;     ///< of all workers
  int last = 0;                ///< the worker that ended last
};

namespace detail {

/// One thing that a worker does. Peers are told as distances from the peer of the last message in the same direction, and
/// requests as distances from the last one that was waited for, so that what repeats looks the same.
struct event {
  enum class kind : std::uint32_t { send, recv, wait_sent, wait_received, work };
  kind what = kind::work;
  std::uint32_t who = 0;    ///< distance of peers; the part of work
  std::uint64_t value = 0;  ///< bytes; distance of requests, modulo 2^64; bits of seconds
  bool operator==(event const&) const = default;
};

/// All that a worker does, with what repeats told once.
struct script {
  struct run {
    std::uint32_t first, length, times;
  };
  std::vector<event> events;
  std::vector<run> runs;
  std::uint64_t send_reach = 0, recv_reach = 0;  ///< requests that are looked back on at most

  /// @complexity linear for what repeats, else times longest_run
  void append(std::vector<event> const& all) {
    constexpr std::size_t longest_run = 32;
    std::size_t plain = 0;  // events before i that repeat nothing
    auto const add = [&](std::size_t first, std::size_t length, std::size_t times) {
      if (length == 0) return;
      runs.push_back({static_cast<std::uint32_t>(events.size()), static_cast<std::uint32_t>(length),
                      static_cast<std::uint32_t>(times)});
      events.insert(events.end(), all.begin() + static_cast<std::ptrdiff_t>(first),
                    all.begin() + static_cast<std::ptrdiff_t>(first + length));
    };
    std::size_t i = 0;
    while (i < all.size()) {
      std::size_t best = 0, best_end = i;
      for (std::size_t length = 1; length <= longest_run && i + length < all.size(); ++length) {
        if (!(all[i] == all[i + length])) continue;
        std::size_t end = i + length;
        while (end < all.size() && all[end] == all[end - length]) ++end;
        end -= (end - i) % length;
        if (end - i >= 2 * length && end > best_end) {
          best = length;
          best_end = end;
        }
        if (end - i >= 4 * longest_run) break;  // long enough: no need to look for a longer one
      }
      if (best == 0) {
        ++i;
        continue;
      }
      add(plain, i - plain, 1);
      add(i, best, (best_end - i) / best);
      i = plain = best_end;
    }
    add(plain, all.size() - plain, 1);
  }
};

}  // namespace detail

/// @brief A Transport that moves nothing and takes notes: one worker's part of a simulation.
class recorder {
 public:
  /// A send or a receive.
  struct request {
    std::int64_t number = -1;  ///< among the sends, or the receives, of this worker
    bool sends = false;
    int peer = 0;
    std::uint32_t place = 0;  ///< among the receives from that peer
  };

  int rank() const { return rank_; }
  int size() const { return size_; }

  request send_async(int peer, std::span<std::byte const> bytes) {
    note(detail::event::kind::send, distance(peer, last_to_), bytes.size());
    if (++all_sends_ > most_simulated_messages)
      throw configuration_error("globalq: model::simulate: the first " + std::to_string(rank_ + 1) + " of " +
                                std::to_string(size_) + " workers send more than " +
                                std::to_string(most_simulated_messages) +
                                " messages; simulate longer chunks, or fewer workers");
    return {sends_++, true, peer, 0};
  }
  request recv_async(int peer, std::span<std::byte>) {
    note(detail::event::kind::recv, distance(peer, last_from_), 0);
    return {recvs_++, false, peer, posted_[static_cast<std::size_t>(peer)]++};
  }
  void wait(request& r) {
    if (r.number < 0) return;
    std::uint64_t& reach = r.sends ? notes_.send_reach : notes_.recv_reach;
    reach = std::max(reach, static_cast<std::uint64_t>((r.sends ? sends_ : recvs_) - r.number));
    std::int64_t& last = r.sends ? last_sent_ : last_received_;
    std::uint64_t const distance = static_cast<std::uint64_t>(r.number - last);
    last = r.number;
    if (!r.sends && r.place != waited_[static_cast<std::size_t>(r.peer)]++)
      throw configuration_error(
          "globalq: model: a simulated worker must wait for the messages of one sender in the order in which "
          "it asked for them, and for all of them");
    note(r.sends ? detail::event::kind::wait_sent : detail::event::kind::wait_received, 0, distance);
    r.number = -1;
  }

  /// Own work of this worker.
  void work(part what, double seconds) {
    if (seconds != 0)
      note(detail::event::kind::work, static_cast<std::uint32_t>(what),
           std::bit_cast<std::uint64_t>(seconds));
  }

 private:
  template <class F>
  friend timing simulate(network const& net, F const& each);

  explicit recorder(int size)
      : size_(size), posted_(static_cast<std::size_t>(size)), waited_(static_cast<std::size_t>(size)) {}

  void begin(int rank) {
    rank_ = last_to_ = last_from_ = rank;
    sends_ = recvs_ = last_sent_ = last_received_ = 0;
    std::fill(posted_.begin(), posted_.end(), 0U);
    std::fill(waited_.begin(), waited_.end(), 0U);
    events_.clear();
    notes_ = {};
  }
  detail::script end() {
    notes_.append(events_);
    return std::move(notes_);
  }

  std::uint32_t distance(int peer, int& last) const {
    if (peer < 0 || peer >= size_)
      throw configuration_error("globalq: model: worker " + std::to_string(rank_) + " of " +
                                std::to_string(size_) + " names worker " + std::to_string(peer));
    int const d = peer - last;
    last = peer;
    return static_cast<std::uint32_t>(d < 0 ? d + size_ : d);
  }
  void note(detail::event::kind what, std::uint32_t who, std::uint64_t value) {
    if (events_.size() == most_simulated_events)  // a list that is shortened only once it is whole
      throw configuration_error("globalq: model::simulate: worker " + std::to_string(rank_) + " of " +
                                std::to_string(size_) + " does more than " +
                                std::to_string(most_simulated_events) +
                                " things, messages and work; simulate longer chunks");
    events_.push_back({what, who, value});
  }

  int rank_ = 0, size_ = 1, last_to_ = 0, last_from_ = 0;
  std::int64_t sends_ = 0, recvs_ = 0, last_sent_ = 0, last_received_ = 0;
  std::uint64_t all_sends_ = 0;  ///< of all workers so far
  std::vector<std::uint32_t> posted_, waited_;
  std::vector<detail::event> events_;
  detail::script notes_;
};
static_assert(Transport<recorder>);

namespace detail {

/// Plays the notes of all workers.
class player {
 public:
  player(network const& net, std::vector<script> notes)
      : net_(net), n_(net.links.size()), channels_(n_ * n_), workers_(n_) {
    for (std::size_t r = 0; r < n_; ++r) {
      worker& w = workers_[r];
      w.notes = std::move(notes[r]);
      w.sent.resize(std::bit_ceil(w.notes.send_reach + 1));
      w.asked.resize(std::bit_ceil(w.notes.recv_reach + 1));
      w.last_to = w.last_from = static_cast<std::uint32_t>(r);
    }
  }

  timing play() {
    for (std::size_t r = 0; r < n_; ++r) go_on(r);
    while (!due_.empty()) deliver();
    timing t;
    for (std::size_t r = 0; r < n_; ++r) {
      worker const& w = workers_[r];
      if (w.run < w.notes.runs.size())
        throw configuration_error("globalq: model: worker " + std::to_string(r) +
                                  " waits for a message of worker " + std::to_string(w.waits_for) +
                                  " that is never sent");
      t.messages += w.sends;
      t.bytes += w.bytes;
      if (w.clock > t.seconds) t.last = static_cast<int>(r);
      t.seconds = std::max(t.seconds, w.clock);
    }
    auto const& spent = workers_[static_cast<std::size_t>(t.last)].spent;
    t.norm = spent[0];
    t.encode = spent[1];
    t.reduce = spent[2];
    t.decode = spent[3];
    t.transfer = t.seconds - (t.norm + t.encode + t.reduce + t.decode);
    return t;
  }

 private:
  static constexpr std::uint32_t nobody = ~std::uint32_t{0};
  /// Messages of a worker that are planned ahead: more would only take memory.
  static constexpr std::size_t planned = 8;

  struct message {
    double reaches;  ///< the receiver's link: first byte
    double ends;     ///< last byte, were the receiver's link free and fast
    std::uint64_t bytes;
    std::uint32_t to;
  };
  /// What leaves a worker by one of its two links, in order.
  struct way_out {
    double free = 0;
    std::array<message, planned> queue;
    std::size_t first = 0, count = 0;
  };
  struct worker {
    double in_free[2] = {0, 0};
    std::uint32_t last_sender[2] = {nobody, nobody};
    std::uint32_t waits_for = nobody, last_to = 0, last_from = 0;
    bool full = false;
    double handed = -1;  // when what it waits for arrived
    double clock = 0;
    std::size_t run = 0;  // where it stands
    std::uint32_t at = 0, turn = 0;
    std::uint64_t sends = 0, recvs = 0, last_sent = 0, last_received = 0, bytes = 0;
    script notes;
    std::vector<double> sent;          // when requests were done
    std::vector<std::uint32_t> asked;  // whom receives are from
    std::array<double, 4> spent{};
    way_out out[2];  // to the world, within its site
  };
  /// Messages that have arrived from one sender, and were not waited for yet.
  struct channel {
    std::uint32_t first = 0, last = 0;  // places in arrived_, plus 1
  };
  struct arrival {
    double when;
    std::uint32_t next;
  };
  struct entry {
    double when;
    std::uint32_t lane;
    bool operator<(entry const& o) const { return when < o.when || (when == o.when && lane < o.lane); }
  };

  /// Plays a worker until it waits for a message, has planned enough, or ends.
  void go_on(std::size_t r) {
    worker& w = workers_[r];
    std::uint32_t const n = static_cast<std::uint32_t>(n_);
    auto const step = [n](std::uint32_t& last, std::uint32_t distance) {
      last += distance;
      if (last >= n) last -= n;
    };
    while (w.run < w.notes.runs.size()) {
      script::run const& run = w.notes.runs[w.run];
      event const& e = w.notes.events[run.first + w.at];
      switch (e.what) {
        case event::kind::send:
          if (w.out[0].count == planned || w.out[1].count == planned) {
            w.full = true;
            return;
          }
          step(w.last_to, e.who);
          send(r, w.last_to, e.value);
          break;
        case event::kind::recv:
          w.clock += net_.overhead;
          step(w.last_from, e.who);
          w.asked[w.recvs++ & (w.asked.size() - 1)] = w.last_from;
          break;
        case event::kind::wait_sent:
          w.last_sent += e.value;
          w.clock = std::max(w.clock, w.sent[w.last_sent & (w.sent.size() - 1)]);
          break;
        case event::kind::wait_received: {
          if (w.handed >= 0) {  // what it waited for has come
            w.clock = std::max(w.clock, w.handed);
            w.last_received += e.value;
            w.handed = -1;
            break;
          }
          std::uint32_t const from = w.asked[(w.last_received + e.value) & (w.asked.size() - 1)];
          channel& c = channels_[r * n_ + from];
          if (c.first == 0) {
            w.waits_for = from;
            return;
          }
          w.last_received += e.value;
          std::uint32_t const place = c.first - 1;
          w.clock = std::max(w.clock, arrived_[place].when);
          c.first = arrived_[place].next;
          arrived_[place].next = unused_;
          unused_ = place + 1;
          break;
        }
        case event::kind::work: {
          double const seconds = std::bit_cast<double>(e.value);
          w.clock += seconds;
          w.spent[e.who] += seconds;
          break;
        }
      }
      if (++w.at < run.length) continue;
      w.at = 0;
      if (++w.turn < run.times) continue;
      w.turn = 0;
      ++w.run;
    }
  }

  void send(std::size_t r, std::uint32_t to, std::uint64_t bytes) {
    worker& w = workers_[r];
    w.clock += net_.overhead;
    link const &mine = net_.links[r], &theirs = net_.links[to];
    bool const near = mine.site >= 0 && mine.site == theirs.site;
    double latency = near ? net_.within.latency : (mine.latency + theirs.latency) / 2;
    if (!near && bytes >= net_.long_from) latency += net_.long_latency;
    way_out& out = w.out[near];
    double const leaves = std::max(w.clock, out.free);
    out.free = leaves + static_cast<double>(bytes) / (near ? net_.within.up : mine.up);
    w.sent[w.sends++ & (w.sent.size() - 1)] = out.free;
    w.bytes += bytes;
    message const m{leaves + latency, out.free + latency, bytes, to};
    out.queue[(out.first + out.count) % planned] = m;
    if (out.count++ == 0) push({m.reaches, static_cast<std::uint32_t>(2 * r + near)});
  }

  /// The message that reaches its receiver next.
  void deliver() {
    std::size_t const from = due_[0].lane / 2;
    bool const near = due_[0].lane % 2 != 0;
    way_out& out = workers_[from].out[near];
    message const m = out.queue[out.first];
    out.first = (out.first + 1) % planned;
    if (--out.count != 0)
      replace_first({out.queue[out.first].reaches, due_[0].lane});
    else
      remove_first();

    worker& receiver = workers_[m.to];
    double& in_free = receiver.in_free[near];
    double takes = static_cast<double>(m.bytes) / (near ? net_.within.down : net_.links[m.to].down);
    // where one message follows right upon another worker's, both are under way at once
    std::uint32_t const before = receiver.last_sender[near];
    if (before != nobody && before != from && in_free > m.reaches - takes / 2) takes /= net_.crowded;
    receiver.last_sender[near] = static_cast<std::uint32_t>(from);
    in_free = std::max(m.reaches, in_free) + takes;
    double const arrives = std::max(m.ends, in_free);
    if (receiver.waits_for == from) {
      receiver.waits_for = nobody;
      receiver.handed = arrives;
      go_on(m.to);
    } else {
      arrive(m.to * n_ + from, arrives);
    }
    worker& sender = workers_[from];
    if (sender.full && sender.out[0].count <= planned / 2 && sender.out[1].count <= planned / 2) {
      sender.full = false;
      go_on(from);
    }
  }

  void arrive(std::size_t where, double when) {
    std::uint32_t place = unused_;
    if (place != 0) {
      unused_ = arrived_[place - 1].next;
    } else {
      arrived_.push_back({});
      place = static_cast<std::uint32_t>(arrived_.size());
    }
    arrived_[place - 1] = {when, 0};
    channel& c = channels_[where];
    if (c.first == 0)
      c.first = place;
    else
      arrived_[c.last - 1].next = place;
    c.last = place;
  }

  // Lanes by the time at which their next message reaches its receiver: a heap whose first is often replaced.
  void push(entry const& e) {
    std::size_t i = due_.size();
    due_.push_back(e);
    for (; i != 0 && e < due_[(i - 1) / 4]; i = (i - 1) / 4) due_[i] = due_[(i - 1) / 4];
    due_[i] = e;
  }
  void replace_first(entry const& e) {
    std::size_t i = 0;
    for (;;) {
      std::size_t const child = 4 * i + 1, end = std::min(child + 4, due_.size());
      if (child >= end) break;
      std::size_t least = child;
      for (std::size_t k = child + 1; k < end; ++k)
        if (due_[k] < due_[least]) least = k;
      if (!(due_[least] < e)) break;
      due_[i] = due_[least];
      i = least;
    }
    due_[i] = e;
  }
  void remove_first() {
    entry const last = due_.back();
    due_.pop_back();
    if (!due_.empty()) replace_first(last);
  }

  network const& net_;
  std::size_t n_;
  std::vector<channel> channels_;  // of receiver and sender
  std::vector<worker> workers_;
  std::vector<arrival> arrived_;
  std::uint32_t unused_ = 0;
  std::vector<entry> due_;
};

}  // namespace detail

/// @brief Runs a collective for all workers of a network, and says how long it would take.
/// @param each  each(t): what worker t.rank() does, over a model::recorder; runs once for every worker, to its end, one after
///              the other. It must not look at what it receives.
/// @throws configuration_error for a network with bad numbers, and for workers that would wait for ever
/// @complexity  O(messages log workers) time; about 8 n^2 bytes, and 30 bytes a message that waits to be taken
/// @determinism the same numbers for the same arguments
template <class F>
timing simulate(network const& net, F const& each) {
  net.check();
  if (net.workers() > most_simulated)
    throw configuration_error("globalq: model::simulate: " + std::to_string(net.workers()) +
                              " workers are more than " + std::to_string(most_simulated) +
                              "; simulate fewer, and extrapolate by formulas.hpp");
  recorder t(net.workers());
  std::vector<detail::script> notes;
  notes.reserve(net.links.size());
  for (int r = 0; r < net.workers(); ++r) {
    t.begin(r);
    each(t);
    notes.push_back(t.end());
  }
  return detail::player(net, std::move(notes)).play();
}

/// @brief A codec that does nothing but take its time.
///
/// combine() costs `encode` for own values and `reduce` for each frame that is added; finish() costs `decode` for each frame.
class timed_codec final : public codec {
 public:
  /// @param sizes  tells how long frames are; kept by reference, as @p t
  timed_codec(recorder& t, codec const& sizes, work const& costs) : t_(t), sizes_(sizes), costs_(costs) {}

  std::size_t frame_bytes(segment s, int terms) const override { return sizes_.frame_bytes(s, terms); }
  void combine(segment s, bool own, std::span<source const> sources, std::span<std::byte>) override {
    if (s.empty()) return;
    double const values = static_cast<double>(s.count);
    t_.work(part::encode, costs_.frame + (own ? values * costs_.encode : 0));
    t_.work(part::reduce, values * costs_.reduce * static_cast<double>(sources.size()));
  }
  void finish(segment s, std::span<source const> sources) override {
    if (s.empty()) return;
    t_.work(part::decode, costs_.frame + static_cast<double>(s.count) * costs_.decode *
                                             static_cast<double>(sources.size()));
  }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  recorder& t_;
  codec const& sizes_;
  work const costs_;
};

}  // namespace GLOBALQ_ABI::model
