// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The simulated network: times by hand, the schedules against closed formulas, uneven links, thousands of workers.

#include "tests/support/refusal.hpp"

#include <globalq/model/formulas.hpp>
#include <globalq/model/recorder.hpp>
#include <globalq/model/simulation.hpp>
#include <globalq/schedule/any.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace gq = globalq;
namespace model = globalq::model;
using support::refusal;
using testing::HasSubstr;

namespace {

/// Frames of @p bits a value and nothing else.
class plain_sizes final : public gq::codec {
 public:
  explicit plain_sizes(int bits) : bits_(static_cast<std::size_t>(bits)) {}
  std::size_t frame_bytes(gq::segment s, int) const override { return s.count * bits_ / 8; }
  void combine(gq::segment, bool, std::span<gq::source const>, std::span<std::byte>) override {}
  void finish(gq::segment, std::span<gq::source const>) override {}
  gq::payload numbers(gq::segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  std::size_t bits_;
};

constexpr std::uint64_t grain = 256;

/// A sum of @p values float32 by a schedule.
model::timing sum(model::network const& net, std::string_view name, std::uint64_t values,
                  model::work const& w = {}, std::uint64_t chunk = 0, int bits = 32) {
  gq::schedule::any const schedule{name};
  gq::partition const cut(values, schedule.parts(net.workers()), grain, chunk);
  gq::frame_pool frames = gq::frame_pool::counting();
  plain_sizes const sizes{bits};
  return model::simulate(net, [&](model::recorder& t) {
    model::timed_codec codec(t, sizes, w);
    schedule(t, codec, cut, frames);
  });
}

/// A message by itself, as a statement.
void send(model::recorder& t, int to, std::size_t bytes) {
  auto r = t.send_async(to, {static_cast<std::byte const*>(nullptr), bytes});
  t.wait(r);
}
void recv(model::recorder& t, int from, std::size_t bytes) {
  auto r = t.recv_async(from, {static_cast<std::byte*>(nullptr), bytes});
  t.wait(r);
}

TEST(Simulation, a_message_takes_its_latency_and_its_bytes_over_the_slower_of_two_links) {
  model::network net;
  net.links = {{.latency = 2, .up = 10, .down = 1}, {.latency = 4, .up = 1, .down = 5}};
  net.overhead = 0.5;
  auto const t = model::simulate(net, [](model::recorder& r) {
    r.work(model::part::encode, r.rank() == 0 ? 7 : 1);
    if (r.rank() == 0)
      send(r, 1, 100);
    else
      recv(r, 0, 100);
  });
  // 7 of work, 0.5 to hand it over, (2 + 4) / 2 on the way, 100 bytes at 5 bytes/s
  EXPECT_DOUBLE_EQ(t.seconds, 7 + 0.5 + 3 + 20);
  EXPECT_EQ(t.last, 1);
  EXPECT_DOUBLE_EQ(t.encode, 1);
  EXPECT_DOUBLE_EQ(t.transfer, t.seconds - 1);
  EXPECT_EQ(t.messages, 1U);
  EXPECT_EQ(t.bytes, 100U);
}

TEST(Simulation, messages_share_what_a_worker_sends_and_gets) {
  auto const net = model::network::uniform(4, 1, 10);
  auto const to_all = model::simulate(net, [](model::recorder& r) {
    for (int p = 1; p < 4; ++p) r.rank() == 0 ? send(r, p, 50) : void();
    if (r.rank() != 0) recv(r, 0, 50);
  });
  EXPECT_DOUBLE_EQ(to_all.seconds, 1 + 3 * 5);
  auto const from_all = model::simulate(net, [](model::recorder& r) {
    for (int p = 1; p < 4; ++p) r.rank() == 0 ? recv(r, p, 50) : void();
    if (r.rank() != 0) send(r, 0, 50);
  });
  EXPECT_DOUBLE_EQ(from_all.seconds, 1 + 3 * 5);
}

TEST(Simulation, messages_of_several_workers_that_meet_are_slower_on_a_crowded_link) {
  auto net = model::network::uniform(4, 1, 10);
  net.crowded = 0.5;
  auto const to_one = [](model::recorder& r) {
    for (int p = 1; p < 4; ++p) r.rank() == 0 ? recv(r, p, 50) : void();
    if (r.rank() != 0) send(r, 0, 50);
  };
  EXPECT_DOUBLE_EQ(model::simulate(net, to_one).seconds, 1 + 5 + 2 * 10);
  auto const one_by_one = [](model::recorder& r) {
    for (int k = 0; k < 3; ++k) r.rank() == 0 ? recv(r, 1, 50) : r.rank() == 1 ? send(r, 0, 50) : void();
  };
  EXPECT_DOUBLE_EQ(model::simulate(net, one_by_one).seconds, 1 + 3 * 5);
}

TEST(Simulation, long_messages_take_longer_to_begin_with) {
  auto net = model::network::uniform(2, 1, 10);
  net.long_latency = 3;
  net.long_from = 50;
  auto const of = [&](std::size_t bytes) {
    return model::simulate(
        net, [&](model::recorder& r) { r.rank() == 0 ? send(r, 1, bytes) : recv(r, 0, bytes); });
  };
  EXPECT_DOUBLE_EQ(of(40).seconds, 1 + 4);
  EXPECT_DOUBLE_EQ(of(50).seconds, 1 + 3 + 5);
}

TEST(Simulation, messages_within_a_site_do_not_use_the_links_to_the_world) {
  model::network net = model::network::uniform(4, 1, 10);
  net.within = {.latency = 0.25, .up = 100, .down = 100};
  for (int r = 0; r < 4; ++r) net.links[static_cast<std::size_t>(r)].site = r / 2;
  auto const t = model::simulate(net, [](model::recorder& r) {
    auto far = r.send_async((r.rank() + 2) % 4, {static_cast<std::byte const*>(nullptr), 1000});
    send(r, r.rank() ^ 1, 1000);
    recv(r, r.rank() ^ 1, 1000);
    r.work(model::part::reduce, 5);
    recv(r, (r.rank() + 2) % 4, 1000);
    r.wait(far);
  });
  EXPECT_DOUBLE_EQ(t.seconds, 1 + 100);
  EXPECT_DOUBLE_EQ(t.reduce, 5);
}

TEST(Simulation, one_worker_only_works) {
  model::work const w{.encode = 2, .reduce = 100, .decode = 3};
  for (char const* name : {"ring", "tree", "sra", "allgather"})
    EXPECT_DOUBLE_EQ(sum(model::network::uniform(1, 1, 1), name, grain, w).seconds, 5 * grain) << name;
}

/// Segments of equal length, each one chunk, so that formulas hold exactly.
class Schedules : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, Schedules, testing::Range(1, 10));

void expect_close(double a, double b, std::string const& what) {
  EXPECT_NEAR(a, b, 1e-9 * b + 1e-15) << what;
}

TEST_P(Schedules, take_what_the_formulas_say_of_latency_bandwidth_and_additions) {
  int const n = GetParam();
  std::uint64_t const values = grain * 4 * static_cast<std::uint64_t>(n);
  double const bytes = 4.0 * static_cast<double>(values);
  for (double const alpha : {0.0, 1e-5, 1e-2})
    for (double const gamma : {1e8, 1e9, 1e12}) {
      model::parameters const p{alpha, 1e8, gamma};
      auto const net = model::network::uniform(n, alpha, p.beta);
      model::work const w{.reduce = 4 / gamma};
      expect_close(sum(net, "ring", values, w).seconds, model::ring_seconds(n, bytes, p), "ring");
      expect_close(sum(net, "sra", values, w).seconds, model::scatter_reduce_allgather_seconds(n, bytes, p),
                   "sra");
      expect_close(sum(net, "allgather", values, w).seconds, model::allgather_seconds(n, bytes, p),
                   "allgather");
      // a whole number of levels, all children added at the end: L (L+1)/2 additions on the longest way, not L
      int const levels = model::tree_levels(n);
      if ((1 << levels) == n)
        expect_close(sum(net, "tree", values, w).seconds,
                     model::tree_seconds(n, bytes, p) + levels * (levels - 1) / 2.0 * bytes / gamma, "tree");
      else
        EXPECT_LE(sum(net, "tree", values, w).seconds,
                  model::tree_seconds(n, bytes, p) + levels * (levels - 1) / 2.0 * bytes / gamma);
    }
}

TEST_P(Schedules, spend_what_the_code_says_on_encoding_and_decoding) {
  int const n = GetParam();
  double const each = static_cast<double>(grain) * 4;
  std::uint64_t const values = grain * 4 * static_cast<std::uint64_t>(n);
  double const d = static_cast<double>(values), others = n - 1;
  // far below a transfer, so that decoding hides behind the next message
  model::work const w{.encode = 3e-9, .decode = 2e-9};
  auto const net = model::network::uniform(n, 1e-3, 1e8);
  double const hop = 1e-3 + 4 * each / 1e8;
  auto const ring = sum(net, "ring", values, w);
  expect_close(ring.seconds, 3e-9 * d + 2 * others * hop + 2e-9 * each, "ring");
  expect_close(ring.encode, 3e-9 * d, "ring");
  expect_close(ring.decode, 2e-9 * d, "ring");
  auto const all = sum(net, "allgather", values, w);
  expect_close(all.seconds, 3e-9 * d + (n > 1 ? 1e-3 : 0) + others * 4 * d / 1e8 + 2e-9 * d * n, "allgather");
  expect_close(all.transfer, all.seconds - 3e-9 * d - 2e-9 * d * n, "allgather");
  int const levels = model::tree_levels(n);
  if ((1 << levels) == n)
    expect_close(sum(net, "tree", values, w).seconds,
                 2 * levels * (1e-3 + 4 * d / 1e8) + 3e-9 * d * (levels + 1) + 2e-9 * d, "tree");
}

TEST_P(Schedules, never_get_slower_by_better_links_or_faster_work_and_never_faster_by_more_values) {
  int const n = GetParam();
  for (char const* name : {"ring", "tree", "sra", "allgather"}) {
    double before = 0;
    for (std::uint64_t values : {std::uint64_t{1000}, std::uint64_t{100'000}, std::uint64_t{300'000}}) {
      model::work const w{.encode = 1e-9, .reduce = 1e-9, .decode = 1e-9, .frame = 1e-7};
      auto const at = [&](double alpha, double beta, double work) {
        model::work faster = w;
        faster.encode *= work;
        faster.reduce *= work;
        faster.decode *= work;
        return sum(model::network::uniform(n, alpha, beta), name, values, faster, 16'384).seconds;
      };
      double const here = at(1e-4, 1e8, 1);
      EXPECT_GT(here, before) << name;
      before = here;
      EXPECT_LE(at(1e-5, 1e8, 1), here) << name;
      EXPECT_LE(at(1e-4, 2e8, 1), here) << name;
      EXPECT_LE(at(1e-4, 1e8, 0.5), here) << name;
    }
  }
}

TEST_P(Schedules, in_chunks_hide_work_behind_transfers) {
  int const n = GetParam();
  if (n == 1) return;
  std::uint64_t const values = grain * 64 * static_cast<std::uint64_t>(n);
  // work as long as a transfer: whole segments take both, chunks take little more than the longer
  model::work const w{.encode = 2e-8, .reduce = 1e-8, .decode = 1e-8};
  auto const net = model::network::uniform(n, 0, 1e8);
  for (char const* name : {"ring", "sra", "allgather"})
    EXPECT_LT(sum(net, name, values, w, 8 * grain).seconds, 0.95 * sum(net, name, values, w).seconds) << name;
}

TEST_P(Schedules, send_the_bytes_that_they_are_said_to_send) {
  int const n = GetParam();
  std::uint64_t const values = grain * 4 * static_cast<std::uint64_t>(n), bytes = 4 * values;
  auto const net = model::network::uniform(n, 0, 1);
  std::uint64_t const others = static_cast<std::uint64_t>(n) - 1;
  EXPECT_EQ(sum(net, "ring", values).bytes, 2 * others * bytes);
  EXPECT_EQ(sum(net, "sra", values).bytes, 2 * others * bytes);
  EXPECT_EQ(sum(net, "tree", values).bytes, 2 * others * bytes);
  EXPECT_EQ(sum(net, "allgather", values).bytes, others * bytes * static_cast<std::uint64_t>(n));
}

TEST(Simulation, a_tree_in_chunks_keeps_the_links_of_its_first_worker_busy) {
  // worker 0 receives and sends the vector once for each level; to begin and to end takes a few chunks more
  for (int n : {2, 3, 4, 8, 16, 33, 64}) {
    std::uint64_t const chunk = 16 * grain, values = 128 * chunk;
    double const whole = model::tree_levels(n) * 4.0 * static_cast<double>(values) / 1e8;
    double const took = sum(model::network::uniform(n, 1e-5, 1e8), "tree", values, {}, chunk).seconds;
    EXPECT_GE(took, whole) << n;
    EXPECT_LT(took, 1.1 * whole) << n;
  }
}

TEST(Simulation, nodes_with_fast_links_within_are_used_by_the_hierarchical_schedule) {
  model::network net = model::network::uniform(8, 1e-4, 1e8);
  for (std::size_t r = 0; r < 8; ++r) net.links[r].site = static_cast<int>(r / 4);
  net.within = {.latency = 1e-6, .up = 1e10, .down = 1e10};
  std::uint64_t const values = 1 << 20;
  double const nodes = sum(net, "hierarchical:4", values, {}, 65'536).seconds;
  double const flat = sum(net, "tree", values, {}, 65'536).seconds;
  EXPECT_LT(nodes, flat);
  // two leaders exchange a half each way, twice
  EXPECT_NEAR(nodes, 4.0 * values / 1e8, 0.15 * nodes);
}

TEST(Simulation, the_slowest_link_holds_a_ring_back_and_is_named) {
  model::network net = model::network::uniform(8, 1e-4, 1e8);
  double const even = sum(net, "ring", 1 << 20).seconds;
  net.links[5].up = 1e7;
  auto const slow = sum(net, "ring", 1 << 20);
  EXPECT_GT(slow.seconds, 5 * even);
}

TEST(Simulation, networks_with_impossible_numbers_are_refused_with_the_worker_and_the_remedy) {
  auto const run = [](model::network const& net) {
    return refusal([&] { model::simulate(net, [](model::recorder&) {}); });
  };
  model::network net = model::network::uniform(3, 0, 1);
  net.links[2].up = 0;
  EXPECT_THAT(run(net), HasSubstr("worker 2: a rate is 0.000000; give bytes per second above 0"));
  net = model::network::uniform(3, 0, 1);
  net.links[1].latency = -1;
  EXPECT_THAT(run(net), HasSubstr("worker 1: the latency is -1.000000"));
  net.links[1].latency = std::nan("");
  EXPECT_THAT(run(net), HasSubstr("worker 1: the latency"));
  EXPECT_THAT(run(model::network{}), HasSubstr("there are no workers"));
  EXPECT_THAT(refusal([] { model::network::uniform(2, 0, -1); }), HasSubstr("a rate is -1"));
  EXPECT_THAT(refusal([] { model::network::drawn(2, {}, 1); }), HasSubstr("no links to draw from"));
  EXPECT_THAT(refusal([] { model::work{.reduce = -1}.check(); }), HasSubstr("a cost is -1"));
  net = model::network::uniform(2, 0, 1);
  net.crowded = 0;
  EXPECT_THAT(run(net), HasSubstr("the share of a crowded link is 0.000000; give a number above 0"));
  net = model::network::uniform(model::most_simulated + 1, 0, 1);
  EXPECT_THAT(run(net), HasSubstr("more than 16384; simulate fewer"));
}

TEST(Simulation, what_would_fill_the_memory_is_refused_while_it_is_noted) {
  auto const net = model::network::uniform(2, 0, 1);
  EXPECT_THAT(refusal([&] {
                model::simulate(net, [](model::recorder& t) {
                  std::span<std::byte const> const nothing;
                  for (;;) t.send_async(1 - t.rank(), nothing);
                });
              }),
              HasSubstr("worker 0 of 2 has more than 33554432 events"));
}

TEST(Simulation, workers_that_would_wait_for_ever_are_found) {
  auto const net = model::network::uniform(3, 0, 1);
  EXPECT_THAT(refusal([&] {
                model::simulate(net, [](model::recorder& r) {
                  if (r.rank() == 2) recv(r, 1, 4);
                });
              }),
              HasSubstr("worker 2 waits for a message of worker 1 that is never sent"));
  EXPECT_THAT(refusal([&] { model::simulate(net, [](model::recorder& r) { send(r, 3, 4); }); }),
              HasSubstr("worker 0 of 3 names worker 3"));
  EXPECT_THAT(refusal([&] {
                model::simulate(net, [](model::recorder& r) {
                  auto a = r.recv_async(0, {}), b = r.recv_async(0, {});
                  r.wait(b);
                  r.wait(a);
                });
              }),
              HasSubstr("not awaited in posting order"));
}

TEST(Simulation, draws_links_that_depend_on_the_seed_only) {
  std::vector<model::link> const kinds{
      {.up = 1e6, .down = 1e7}, {.up = 1e7, .down = 1e8}, {.up = 1e9, .down = 1e9}};
  auto const a = model::network::drawn(3000, kinds, 7), b = model::network::drawn(3000, kinds, 7),
             c = model::network::drawn(3000, kinds, 8);
  std::array<int, 3> count{};
  bool differs = false;
  for (std::size_t r = 0; r < 3000; ++r) {
    EXPECT_EQ(a.links[r].up, b.links[r].up);
    differs = differs || a.links[r].up != c.links[r].up;
    for (std::size_t k = 0; k < 3; ++k) count[k] += a.links[r].up == kinds[k].up;
  }
  EXPECT_TRUE(differs);
  // each 1000 of 3000; standard deviation sqrt(3000 * 2/9) = 26
  for (int const k : count) EXPECT_NEAR(k, 1000, 130);
  EXPECT_EQ(sum(a, "tree", 100'000).seconds, sum(b, "tree", 100'000).seconds);
}

/// The notes of workers whose segments differ in length are told in runs, and mean the same.
TEST(Simulation, what_repeats_is_told_once_and_played_as_often) {
  using kind = model::detail::event::kind;
  std::vector<model::detail::event> all;
  for (int round = 0; round < 500; ++round)
    for (std::uint32_t k = 0; k < 5; ++k) all.push_back({kind::work, k % 4, k});
  all.push_back({kind::send, 1, 17});
  for (int k = 0; k < 1000; ++k) all.push_back({kind::recv, 1, 0});
  all.push_back({kind::send, 2, 17});
  model::detail::script s;
  s.append(all);
  EXPECT_LE(s.events.size(), 10U);
  std::vector<model::detail::event> told;
  for (auto const& r : s.runs)
    for (std::uint32_t k = 0; k < r.times; ++k)
      told.insert(told.end(), s.events.begin() + r.first, s.events.begin() + r.first + r.length);
  EXPECT_EQ(told, all);
}

TEST(Simulation, thousands_of_workers_over_uneven_links_take_seconds) {
  std::vector<model::link> const kinds{{.latency = 0.02, .up = 2e6, .down = 1e7},
                                       {.latency = 0.03, .up = 5e6, .down = 2e7},
                                       {.latency = 0.01, .up = 1e8, .down = 1e8}};
  auto const net = model::network::drawn(4096, kinds, 1);
  auto const start = std::chrono::steady_clock::now();
  auto const tree = sum(net, "tree", 25'000'000, {}, 1 << 20, 8);
  double const spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(spent, 10);
  EXPECT_EQ(tree.messages, 2U * 4095 * 24);
  // no faster than the best links alone
  EXPECT_GT(tree.seconds,
            sum(model::network::uniform(4096, 0.01, 1e8), "tree", 25'000'000, {}, 1 << 20, 8).seconds);
}

}  // namespace
