// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: a simulated network with a clock for every worker, on which the schedules' own code runs.
///
/// Each worker's code runs separately over a transport that only records (recorder.hpp): messages with their receivers,
/// waits, and the time of work in between. Then the records of all workers are replayed together, message by message in
/// the order of arrival; messages of one sender stay in order. So the code that really runs predicts overlapping
/// chunks, uneven links and waits for the slowest worker, not a separate formula.

#include "../schedule/concept.hpp"
#include "costs.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::model {

/// @brief The largest number of workers of a simulation: memory grows with its square.
inline constexpr int most_simulated = 16384;

/// @brief The duration of a collective, and how the worker that ended last spent it.
struct timing {
  double seconds = 0;  ///< until the last worker ended: the sum of the five parts below
  double norm = 0;
  double encode = 0;
  double transfer = 0;  ///< waiting for messages and handling them, as far as work does not hide it
  double reduce = 0;
  double decode = 0;
  std::uint64_t messages = 0;  ///< of all workers
  std::uint64_t bytes = 0;     ///< of all workers
  int last = 0;                ///< the worker that ended last
};

namespace detail {

/// Replays the records of all workers.
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
                                  " that is never sent; check the sends of that worker");
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
  /// Messages of a worker that are planned ahead; more would only use memory.
  static constexpr std::size_t planned = 8;

  struct message {
    double reaches;  ///< when the first byte reaches the receiver's link
    double ends;     ///< when the last byte arrives if the receiver's link is free and fast
    std::uint64_t bytes;
    std::uint32_t to;
  };
  /// The messages that leave a worker by one of its two links, in order.
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
    double handed = -1;  // when the awaited message arrived
    double clock = 0;
    std::size_t run = 0;  // position in the record
    std::uint32_t at = 0, turn = 0;
    std::uint64_t sends = 0, recvs = 0, last_sent = 0, last_received = 0, bytes = 0;
    script notes;
    std::vector<double> sent;          // when requests were done
    std::vector<std::uint32_t> asked;  // the senders of receives
    std::array<double, 4> spent{};
    way_out out[2];  // to other sites, within its site
  };
  /// Messages that have arrived from one sender and are not awaited yet.
  struct channel {
    std::uint32_t first = 0, last = 0;  // places in arrived_, plus 1
  };
  struct arrival {
    double when;
    std::uint32_t next;
  };
  struct entry {
    double when;
    std::uint32_t channel;
    bool operator<(entry const& o) const { return when < o.when || (when == o.when && channel < o.channel); }
  };

  /// Replays a worker until it waits for a message, has planned enough, or ends.
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
          if (w.handed >= 0) {  // the awaited message has arrived
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

  /// Delivers the message that reaches its receiver next.
  void deliver() {
    std::size_t const from = due_[0].channel / 2;
    bool const near = due_[0].channel % 2 != 0;
    way_out& out = workers_[from].out[near];
    message const m = out.queue[out.first];
    out.first = (out.first + 1) % planned;
    if (--out.count != 0)
      replace_first({out.queue[out.first].reaches, due_[0].channel});
    else
      remove_first();

    worker& receiver = workers_[m.to];
    double& in_free = receiver.in_free[near];
    double takes = static_cast<double>(m.bytes) / (near ? net_.within.down : net_.links[m.to].down);
    // if a message directly follows another worker's, both are in flight at the same time
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

  // A heap of channels, by the time at which their next message reaches its receiver; its first entry is often replaced.
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

/// @brief Simulates a collective for all workers of a network, and returns its duration.
/// @param each  each(t): the actions of worker t.rank(), over a model::recorder; runs completely for one worker after
///              the other. It must not depend on received data.
/// @throws configuration_error for a network with invalid numbers, and for workers that would wait forever
/// @complexity  O(messages log workers) time; about 8 n^2 bytes, and 30 bytes for each message that is not received yet
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

/// @brief A codec that computes nothing and only records the time of its work.
///
/// combine() costs `encode` for own values and `reduce` for each frame that is added; finish() costs `decode` for each
/// frame.
class timed_codec final : public codec {
 public:
  /// @param sizes  returns the lengths of frames; kept by reference, like @p t
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
