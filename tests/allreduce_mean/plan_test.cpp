// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief A plan says beforehand what a call does: its bytes are those that are sent, its theta is spec 5's.

#include "tests/support/cases.hpp"

#include <globalq/call/detail/group_plan.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/second_half.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/schedule/detail/shards.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace gq = globalq;
using support::composition;

namespace {

gq::plan plan_of(composition const& c, int n, std::uint64_t d, gq::dtype type = gq::dtype::float32) {
  return gq::plan_for(support::make_operator(c), gq::schedule::any{c.schedule}, n, d, type);
}
composition linf(char const* levels, char const* wire, char const* reduce, char const* schedule) {
  return {"linf", 0, levels, "stochastic", wire, reduce, schedule};
}

TEST(Plan, its_bytes_are_those_of_the_busiest_worker) {
  std::vector<composition> const list = {
      linf("uniform:7", "int8", "auto", ""),
      linf("exponential:3", "packed:5", "requantize", ""),
      linf("uniform:1", "packed:2", "requantize", ""),
      {"l:2,2", 100, "uniform:7", "stochastic", "int16", "auto", ""},
      {"local:2", 0, "uniform:7", "stochastic", "packed:4", "auto", ""},
      {"local:inf", 128, "uniform:7", "stochastic", "packed:7", "auto", ""},
      {"plain", 0, "", "", "", "", ""}};
  for (composition c : list)
    for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:3"}) {
      c.schedule = schedule;
      gq::any_quantizer const op =
          c.norm == "plain" ? gq::any_quantizer(gq::uncompressed{}) : support::make_operator(c);
      for (int n = 1; n <= 9; ++n) {
        gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
        std::vector<std::uint64_t> sent(static_cast<std::size_t>(n));
        for (std::uint64_t chunk : {0U, 700U})
          for (std::uint64_t d : {0U, 1U, 255U, 256U, 257U, 1300U, 30'000U}) {
            auto const measure = [&]<class T>(T) {
              gq::plan expected;
              cluster.run([&](auto& workers) {
                gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.chunk_values = chunk}};
                std::vector<T> x(d, T(1.0F));
                std::uint64_t const before = workers.bytes_sent();
                mean(x, 1);
                sent[static_cast<std::size_t>(workers.rank())] = workers.bytes_sent() - before;
                if (workers.rank() == 0) expected = mean.plan(d, gq::dtype_of<T>::value);
              });
              std::uint64_t const most = *std::max_element(sent.begin(), sent.end());
              EXPECT_EQ(expected.bytes_sent, most)
                  << c.text() << ", n = " << n << ", d = " << d << ", chunks of " << chunk << ", "
                  << gq::name_of(gq::dtype_of<T>::value);
              EXPECT_FALSE(expected.bytes_modeled);
            };
            measure(float{});
            if (n % 3 == 0) measure(double{});
            if (HasFailure()) return;
          }
      }
    }
}

// What plans say in a few steps is what the schedules do when they run: for each worker, over a transport that counts.
template <class S>
void expect_the_run(gq::detail::operator_facts const& facts, S const& s, int n, std::uint64_t d,
                    std::uint64_t chunk) {
  gq::detail::resolution const r = gq::detail::resolve(facts, s.facts(n), n);
  if (!r.fits()) return;
  gq::dtype const type = n % 2 == 0 ? gq::dtype::float64 : gq::dtype::float32;
  gq::partition const cut(d, s.parts(n), gq::detail::grain_of(facts), gq::detail::chunk_of(facts, r, chunk));
  gq::detail::counting_codec codec = gq::detail::counting(facts, r.size, type);
  std::uint64_t sent = 0, held = 0;
  for (int rank = 0; rank < n; ++rank) {
    gq::schedule::detail::counting_transport t(rank, n);
    gq::frame_pool frames = gq::frame_pool::counting();
    gq::detail::send_before(s, t, facts, d, type, gq::detail::default_chunk_bytes, frames);
    s(t, codec, cut, frames);
    sent = std::max(sent, t.bytes() + 64 * static_cast<std::uint64_t>(n - 1));
    held = std::max<std::uint64_t>(held, frames.bytes());
  }
  gq::plan const p = gq::detail::make_plan(facts, s, n, d, type, chunk);
  std::string const text = facts.name + " on " + s.facts(n).name + ", n = " + std::to_string(n) +
                           ", d = " + std::to_string(d) + ", chunks of " + std::to_string(chunk);
  EXPECT_EQ(p.bytes_sent, sent) << text;
  EXPECT_GE(p.workspace_bytes, held) << text;
  // exact, but for slots of a ring that happen to hold none of the longest frames, and nodes that do
  bool const exact = text.find("ring") == text.npos && text.find("hierarchical") == text.npos &&
                     text.find("all-gather") == text.npos;
  EXPECT_LE(p.workspace_bytes, exact ? held : 2 * held) << text;
}

// No kernels are needed.
std::vector<gq::detail::operator_facts> counted_operators() {
  gq::rounding::stochastic const dice;
  gq::levels::uniform<> const one{1};
  auto const facts = [](auto const& op) { return gq::detail::facts_of(op); };
  return {facts(gq::uncompressed{}),
          facts(gq::quantizer{gq::norm::linf{}, one, dice, gq::wire::int8{}}),
          facts(gq::quantizer{gq::norm::l<2, 2>{.bucket = 3}, one, dice, gq::wire::int16{}}),
          facts(gq::quantizer{gq::norm::local<2>{}, one, dice, gq::wire::packed<3>{}}),
          facts(gq::quantizer{gq::norm::linf{.bucket = 64}, one, dice, gq::wire::elias<>{}}),
          facts(gq::float32_tail{
              gq::quantizer{gq::norm::local<2>{.bucket = 1000}, one, dice, gq::wire::packed<2>{}}}),
          facts(gq::centered{gq::quantizer{gq::norm::linf{}, one, dice, gq::wire::int8{}}, 100}),
          facts(gq::second_half{
              gq::quantizer{gq::norm::local<2>{.bucket = 100}, one, dice, gq::wire::packed<2>{}},
              gq::quantizer{gq::norm::local<2>{.bucket = 64}, one, dice, gq::wire::int8{}}}),
          facts(gq::floats<gq::bfloat16>{})};
}

TEST(Plan, its_numbers_are_those_of_every_worker_run) {
  using namespace gq::schedule;
  for (gq::detail::operator_facts const& op : counted_operators())
    for (int n : {1, 2, 3, 5, 8, 67})
      for (std::uint64_t d : {0U, 1U, 700U, 25'601U})
        for (std::uint64_t chunk : {0U, 256U, 5000U}) {
          for (char const* schedule :
               {"ring", "tree", "sra", "allgather", "hierarchical:1", "hierarchical:3"})
            expect_the_run(op, any{schedule}, n, d, chunk);
          expect_the_run(op, hierarchical<tree, ring>{5}, n, d, chunk);
          if (op.most_bytes == nullptr) {
            expect_the_run(op, hierarchical<float32_sum, ring>{3}, n, d, chunk);
            expect_the_run(op, hierarchical<float32_sum, allgather>{5}, n, d, chunk);
          }
          expect_the_run(op, gq::schedule::detail::gather{}, n, d, chunk);  // is run by the plan as well
          expect_the_run(op, gq::schedule::detail::reduce_scatter{}, n, d, chunk);
          expect_the_run(op, gq::schedule::detail::reduce_scatter{gq::schedule::detail::node_split{3}}, n, d,
                         chunk);
          if (n < 6) continue;
          std::vector<int> const uneven{1, n - 4, 1,
                                        2};  // the busiest worker is not among the first or the last
          expect_the_run(op, hierarchical<>{uneven}, n, d, chunk);
          expect_the_run(op, gq::schedule::detail::reduce_scatter{gq::schedule::detail::node_split{uneven}},
                         n, d, chunk);
          if (HasFailure()) return;
        }
}

/// A schedule that does not run: it only says what it would send.
struct ring_on_paper {
  static constexpr char const* name = "ring on paper";
  gq::schedule::ring of;
  gq::detail::schedule_facts facts(int n) const { return of.facts(n); }
  int parts(int n) const { return of.parts(n); }
  std::vector<std::pair<int, int>> additions(int n) const { return of.additions(n); }
  std::uint64_t sent(gq::schedule::detail::piece_sizes const& all, int n, int rank) const {
    return of.sent(all, n, rank);
  }
  void hold(gq::schedule::detail::piece_sizes const& all, int n, int rank,
            gq::schedule::detail::slot_sizes& frames) const {
    of.hold(all, n, rank, frames);
  }
};

TEST(Plan, asks_schedules_that_do_not_run) {
  gq::uncompressed const op;
  EXPECT_EQ(gq::plan_for(op, ring_on_paper{}, 5, 1000).bytes_sent,
            gq::plan_for(op, gq::schedule::ring{}, 5, 1000).bytes_sent);
  gq::schedule::hierarchical<gq::schedule::star, gq::schedule::native> const refused(4);
  EXPECT_THAT(gq::plan_for(op, refused, 8, 1000).refusal, ::testing::HasSubstr("between nodes"));
}

TEST(Plan, its_numbers_are_those_of_every_one_of_a_thousand_workers) {
  auto const operators = counted_operators();
  for (char const* schedule : {"ring", "sra", "hierarchical:4+900+30+96"}) {
    gq::schedule::any const s{schedule};
    ASSERT_TRUE(gq::detail::make_plan(operators[2], s, 1030, 1, gq::dtype::float32, 0).fits);
    expect_the_run(operators[2], s, 1030, 263'681, 0);  // one segment is longer than the others
  }
}

TEST(Plan, of_a_group_counts_each_piece) {
  gq::rounding::stochastic const dice;
  gq::levels::uniform<> const one{1};
  gq::detail::operator_facts const rows = gq::detail::facts_of(
      gq::quantizer{gq::norm::local<2>{.bucket = 384}, one, dice, gq::wire::packed<3>{}});
  gq::detail::operator_facts const whole =
      gq::detail::facts_of(gq::quantizer{gq::norm::linf{}, one, dice, gq::wire::int8{}});
  std::vector<gq::detail::group_slot> const slots{{&rows, nullptr}, {&whole, nullptr}};
  std::vector<std::uint32_t> const of{0, 1, 1, 0, 1, 0};
  std::vector<gq::vector_group::member> members;
  for (std::uint64_t d : {20'000U, 0U, 300U, 5000U, 1U, 70'000U})
    members.push_back({{nullptr, gq::dtype::float32}, {nullptr, gq::dtype::float32}, d});
  gq::detail::group_operators const operators{.slots = slots, .of = of, .grain = 256};
  gq::detail::group_places places;
  places.place(members, operators);
  std::vector<gq::detail::counting_codec> codecs;
  for (auto const& slot : slots) codecs.push_back(gq::detail::counting(*slot.facts, 1, gq::dtype::float32));
  for (bool varying : {false, true}) {
    gq::detail::counting_group const group(places, operators, codecs, varying);
    for (int parts : {1, 2, 3, 7, 400})
      for (std::uint64_t chunk : {0U, 256U, 768U, 1024U, 5000U}) {
        gq::partition const cut(places.length(), parts, 256, chunk);
        auto const sizes = group.sizes(cut, parts);
        std::uint64_t all = 0, largest = 0;
        for (int p = 0; p < parts; ++p) {
          std::uint64_t bytes = 0;
          for (std::uint64_t k = 0; k < cut.rounds(); ++k) {
            std::uint64_t const frame = group.bytes(cut.piece(p, k));
            bytes += frame;
            largest = std::max(largest, frame);
            EXPECT_LE(frame, sizes.run_of(p).largest(2, k % 2));
          }
          EXPECT_EQ(sizes.of(p), bytes) << parts << " parts, chunks of " << chunk << ", part " << p;
          all += bytes;
        }
        EXPECT_EQ(sizes.all(), all);
        EXPECT_EQ(sizes.largest(), largest) << parts << " parts, chunks of " << chunk;
      }
  }
}

TEST(Plan, takes_microseconds_whatever_the_size) {
  std::uint64_t const longest = std::uint64_t{1} << 48;
  auto const microseconds = [](auto const& f) {
    double least = 1e9;
    for (int k = 0; k < 5; ++k) {
      auto const start = std::chrono::steady_clock::now();
      f();
      least = std::min(
          least, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    return least;
  };
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:8", "hierarchical:5000"})
    for (gq::detail::operator_facts const& op : counted_operators()) {
      gq::schedule::any const s{schedule};
      // measured with -O1: up to 5 and 800; the limits leave room for sanitizers, and none for a run
      EXPECT_LT(microseconds([&] { gq::detail::make_plan(op, s, 8, longest, gq::dtype::float32, 1); }), 5000)
          << schedule;
      EXPECT_LT(
          microseconds([&] { gq::detail::make_plan(op, s, 10'000, longest - 1, gq::dtype::float32, 1); }),
          200'000)
          << schedule;
    }
  gq::plan const p = gq::plan_for(gq::uncompressed{}, gq::schedule::allgather{}, 1 << 20, longest);
  EXPECT_EQ(p.bytes_sent, ~std::uint64_t{0}) << "what is beyond 64 bits is the largest number";
}

TEST(Plan, of_no_workers_or_too_many_values_is_refused) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{1}, gq::rounding::stochastic{},
                         gq::wire::int8{}};
  std::uint64_t const longest = std::uint64_t{1} << 48;
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "native", "hierarchical:4"}) {
    gq::schedule::any const s{schedule};
    for (int n : {0, -1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
      gq::plan const p = gq::plan_for(op, s, n, 100);
      EXPECT_FALSE(p.fits);
      EXPECT_EQ(p.refusal, "globalq: plan: " + std::to_string(n) + " workers; use 1 to 1048576");
    }
    EXPECT_TRUE(gq::plan_for(op, s, 4, longest).fits);
    for (std::uint64_t d : {longest + 1, ~std::uint64_t{0}}) {
      gq::plan const p = gq::plan_for(op, s, 4, d);
      EXPECT_FALSE(p.fits);
      EXPECT_EQ(p.refusal,
                "globalq: plan: " + std::to_string(d) + " values are more than 2^48; pass them in parts");
    }
  }
  gq::plan const p = gq::plan_for(op, gq::schedule::any{"hierarchical:4+2"}, 5, 100);
  EXPECT_FALSE(p.fits);
  EXPECT_NE(p.refusal.find("nodes of 4+2 workers, and there are 5"), std::string::npos) << p.refusal;
}

TEST(Plan, theta_of_tables_is_the_least_of_all_bounds) {
  // (r - 1)^2 / 4r + the least K_p l^(2 - p) D^((2 - p) / 2) over p, which a fine grid comes near from above
  for (double first : {1e-4, 0.01, 0.05, 0.3})
    for (int d : {16, 1000, 100'000}) {
      double least = 1e300;
      for (int k = 0; k < 10'000; ++k) {
        double const p = k / 10'000.0;
        least = std::min(least, std::pow((1 - p) / (2 - p), 1 - p) / (2 - p) * std::pow(first, 2 - p) *
                                    std::pow(d, (2 - p) / 2));
      }
      gq::quantizer const op{gq::norm::local<2>{}, gq::levels::table{0.0F, static_cast<float>(first), 1.0F},
                             gq::rounding::stochastic{}, gq::wire::packed<3>{}};
      double const r = 1 / first;
      double const theta =
          gq::plan_for(op, gq::schedule::allgather{}, 1, static_cast<std::uint64_t>(d)).theta;
      EXPECT_NEAR(theta - (r - 1) * (r - 1) / (4 * r), least, 1e-3 * least + 1e-6 * r) << first << " " << d;
    }
}

TEST(Plan, of_the_native_schedule_is_modeled) {
  gq::plan const p = plan_of(linf("uniform:7", "int8", "auto", "native"), 4, 8000);
  EXPECT_TRUE(p.bytes_modeled);
  EXPECT_EQ(p.bytes_sent, 8000U * 2 * 3 / 4 + 64 * 3);
}

TEST(Plan, counts_the_bits_of_a_value_with_header_and_scales) {
  EXPECT_DOUBLE_EQ(plan_of(linf("uniform:7", "packed:4", "requantize", "ring"), 4, 8000).bits_per_value,
                   8.0 * (16 + 4000) / 8000);
  EXPECT_DOUBLE_EQ(plan_of(linf("uniform:7", "int16", "auto", "ring"), 4, 100).bits_per_value,
                   8.0 * (16 + 200) / 100);
  // 10 scales of 4 bytes, padded to 48
  EXPECT_DOUBLE_EQ(
      plan_of({"local:2", 100, "uniform:7", "stochastic", "packed:4", "auto", "sra"}, 4, 1000).bits_per_value,
      8.0 * (16 + 48 + 500) / 1000);
  EXPECT_DOUBLE_EQ(plan_of({"local:2", 100, "uniform:7", "stochastic", "packed:4", "auto", "sra"}, 4, 1000,
                           gq::dtype::float64)
                       .bits_per_value,
                   8.0 * (16 + 80 + 500) / 1000);
  EXPECT_EQ(plan_of(linf("uniform:7", "packed:4", "requantize", "ring"), 4, 0).bits_per_value, 0);
}

TEST(Plan, counts_the_roundings_on_the_longest_path) {
  for (int n : {1, 2, 3, 8, 9}) {
    int const height = n == 1 ? 0 : (n == 2 ? 1 : (n == 3 ? 2 : (n == 8 ? 3 : 4)));
    EXPECT_EQ(plan_of(linf("uniform:7", "int8", "sum", "ring"), n, 10).rounding_steps, 1);
    EXPECT_EQ(plan_of(linf("uniform:7", "packed:4", "requantize", "ring"), n, 10).rounding_steps, n);
    EXPECT_EQ(plan_of(linf("uniform:7", "packed:4", "requantize", "tree"), n, 10).rounding_steps, 1 + height);
    EXPECT_EQ(plan_of(linf("uniform:7", "packed:4", "requantize", "sra"), n, 10).rounding_steps,
              n == 1 ? 1 : 2);
    EXPECT_EQ(plan_of(linf("uniform:7", "packed:4", "auto", "allgather"), n, 10).rounding_steps, 1);
    EXPECT_EQ(plan_of(linf("exponential:3", "int8", "auto", "tree"), n, 10).rounding_steps, 1 + height);
  }
}

TEST(Plan, theta_is_that_of_the_specification_for_one_rounding) {
  // n = 4 workers of d = 100 values: D = 400, and min(D / 4 s^2, sqrt(D) / s) / n
  auto const theta = [](composition const& c) { return plan_of(c, 4, 100).theta; };
  EXPECT_NEAR(theta(linf("uniform:7", "int8", "sum", "ring")), 400.0 / 196 / 4, 1e-12);
  EXPECT_NEAR(theta(linf("uniform:7", "int8", "auto", "native")), 400.0 / 196 / 4, 1e-12);
  EXPECT_NEAR(theta(linf("uniform:1", "packed:2", "auto", "allgather")), 20.0 / 4, 1e-12);
  EXPECT_NEAR(theta({"l:2,2", 0, "uniform:7", "stochastic", "int8", "sum", "tree"}), 400.0 / 196 / 4, 1e-12);
  // buckets of 25: D = 100 for a global norm, 25 for local ones
  EXPECT_NEAR(theta({"linf", 25, "uniform:7", "stochastic", "int8", "sum", "ring"}), 100.0 / 196 / 4, 1e-12);
  EXPECT_NEAR(theta({"local:inf", 25, "uniform:7", "stochastic", "int8", "auto", "allgather"}),
              25.0 / 196 / 4, 1e-12);
  // q = p = 1: c = sqrt(100) sqrt(4) = 20, D becomes c^2 D, sqrt(D) becomes c sqrt(D)
  EXPECT_NEAR(theta({"l:1,1", 0, "uniform:7", "stochastic", "int8", "sum", "ring"}), 20.0 * 20 / 7 / 4,
              1e-12);
  EXPECT_NEAR(theta({"l:1,2", 0, "uniform:60", "stochastic", "int16", "sum", "ring"}),
              std::min(100.0 * 400 / (4 * 3600), 10.0 * 20 / 60) / 4, 1e-12);
  EXPECT_NEAR(theta({"local:1", 0, "uniform:7", "stochastic", "int8", "auto", "allgather"}),
              std::min(100.0 * 100 / 196, 10.0 * 10 / 7) / 4, 1e-12);
  // random shift: delta^2 / 12 a coordinate; without shifting back it is stochastic rounding
  EXPECT_NEAR(theta({"linf", 0, "uniform:7", "random-shift", "int8", "sum", "ring"}), 400.0 / (12 * 49) / 4,
              1e-12);
  EXPECT_NEAR(theta({"linf", 0, "uniform:7", "random-shift-unshifted", "int8", "sum", "ring"}),
              400.0 / 196 / 4, 1e-12);
  EXPECT_TRUE(std::isnan(theta({"linf", 0, "uniform:7", "nearest", "int8", "sum", "ring"})));
  // exponential: 1/8 + min(sqrt(D) / 2^(s-1), D / 2^(2(s-1)))
  EXPECT_NEAR(theta(linf("exponential:5", "int8", "auto", "allgather")), (0.125 + 20.0 / 16) / 4, 1e-12);
  EXPECT_NEAR(theta(linf("exponential:10", "int8", "auto", "allgather")), (0.125 + 400.0 / (512.0 * 512)) / 4,
              1e-12);
  EXPECT_NEAR(plan_of(linf("exponential:10", "int8", "auto", "allgather"), 4, 100).iterations_factor,
              1 + 0.125 + 400.0 / (512.0 * 512), 1e-12);
  EXPECT_EQ(plan_of(linf("uniform:7", "int8", "sum", "ring"), 4, 0).theta, 0);
}

TEST(Plan, theta_counts_every_rounding_on_the_way) {
  // exponential reduce on a chain of 4: (1 + w) / 8n times sum over k of k (9/8)^(n-k), k = 2 .. 4
  double const w = 0.125 + 400.0 / (512.0 * 512);
  double const chain = 2 * 81.0 / 64 + 3 * 9.0 / 8 + 4;
  EXPECT_NEAR(plan_of(linf("exponential:10", "int8", "exponential", "ring"), 4, 100).theta,
              (w + (1 + w) / 8 * chain) / 4, 1e-12);
  // on a tree of 4: pairs, then both pairs
  EXPECT_NEAR(plan_of(linf("exponential:10", "int8", "exponential", "tree"), 4, 100).theta,
              (w + (1 + w) / 8 * (2 * 9.0 / 8 + 4)) / 4, 1e-12);
  // requantized once: the sum is one vector of 100 values with scale 4, and E||sum||^2 <= 4 + w times that of the inputs
  double const u = 400.0 / 196;
  double const once = std::min(100.0 * 16 / 196, std::sqrt(100 * (4 + u)) * 4 / 7);
  EXPECT_NEAR(plan_of(linf("uniform:7", "packed:4", "requantize", "sra"), 4, 100).theta, (u + once) / 4,
              1e-12);

  // more roundings on the way never promise less variance, and more levels never more
  for (char const* levels : {"uniform:7", "exponential:5", "table:0,0.1,0.4,1"}) {
    auto const of = [&](char const* schedule) {
      return plan_of(linf(levels, "int8", "requantize", schedule), 8, 1000).theta;
    };
    double const none = plan_of(linf(levels, "int8", "auto", "allgather"), 8, 1000).theta;
    EXPECT_LT(none, of("sra")) << levels;
    EXPECT_LE(of("sra"), of("tree")) << levels;
    EXPECT_LE(of("tree"), of("ring")) << levels;
  }
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:2"}) {
    double before = 1e300;
    for (int s = 1; s <= 127; ++s) {
      double const t =
          plan_of({"linf", 0, "uniform:" + std::to_string(s), "stochastic", "int8", "requantize", schedule},
                  8, 1000)
              .theta;
      EXPECT_LE(t, before);
      before = t;
    }
  }
  // the first addition on a ring of 64 workers is followed by 62: (9/8)^62
  EXPECT_GT(plan_of(linf("exponential", "int8", "auto", "ring"), 64, 1000).theta,
            100 * plan_of(linf("exponential", "int8", "auto", "tree"), 64, 1000).theta);
}

TEST(Plan, of_thousands_of_workers_fits) {
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:64"}) {
    gq::plan const p = plan_of(linf("uniform:1", "int16", "auto", schedule), 4096, 100'000'000);
    gq::plan const q = plan_of(
        {"l:2,2", 128, "exponential:3", "stochastic", "packed:5", "requantize", schedule}, 4096, 100'000'000);
    EXPECT_TRUE(p.fits) << p.refusal;
    EXPECT_TRUE(q.fits) << q.refusal;
    EXPECT_GT(q.theta, 0);
  }
}

TEST(Plan, refuses_with_the_numbers_and_does_not_throw) {
  gq::plan const p = plan_of(linf("uniform:100", "int8", "sum", "ring"), 8, 10);
  EXPECT_FALSE(p.fits);
  for (char const* part : {"8 workers", "100", "800", "127", "use at most 15 levels", "int16"})
    EXPECT_NE(p.refusal.find(part), std::string::npos) << p.refusal;
  gq::plan const q = plan_of(linf("uniform", "int8", "sum", "ring"), 200, 10);
  EXPECT_FALSE(q.fits);
  EXPECT_NE(q.refusal.find("int16"), std::string::npos) << q.refusal;
  EXPECT_EQ(q.refusal.find("at most 0"), std::string::npos) << q.refusal;
  gq::plan const e = plan_of(linf("exponential:120", "int8", "exponential", "ring"), 16, 10);
  EXPECT_FALSE(e.fits);
  EXPECT_NE(e.refusal.find("use at most 112 levels"), std::string::npos) << e.refusal;
}

TEST(Plan, knows_the_method_the_levels_and_the_memory) {
  auto const how = [](char const* levels, char const* wire, char const* schedule) {
    return plan_of(linf(levels, wire, "auto", schedule), 4, 10).reduce;
  };
  EXPECT_EQ(how("uniform", "int8", "ring"), gq::method::sum);
  EXPECT_EQ(how("uniform", "int8", "native"), gq::method::sum);
  EXPECT_EQ(how("uniform", "int8", "allgather"), gq::method::none);
  EXPECT_EQ(how("uniform", "packed:8", "ring"), gq::method::requantize);
  EXPECT_EQ(how("exponential", "int8", "ring"), gq::method::exponential);
  EXPECT_EQ(how("exponential", "packed:4", "tree"), gq::method::exponential);
  EXPECT_EQ(how("exponential", "int8", "sra"), gq::method::requantize);
  EXPECT_EQ(how("exponential:5:1.5", "int8", "ring"), gq::method::requantize);
  EXPECT_EQ(how("table:0,1", "int8", "tree"), gq::method::requantize);
  EXPECT_EQ(plan_of(linf("uniform", "int8", "auto", "ring"), 4, 10).levels, 31U);
  EXPECT_EQ(plan_of(linf("uniform", "packed:4", "auto", "ring"), 4, 10).levels, 7U);
  EXPECT_EQ(plan_of(linf("uniform", "int32", "auto", "ring"), 4, 10).levels, 1U << 24);
  EXPECT_EQ(plan_of(linf("exponential", "int8", "auto", "tree"), 4, 10).levels, 125U);
  // ring, one chunk: four frames that arrive and four that leave, in turns
  gq::plan const p = plan_of(linf("uniform", "int8", "auto", "ring"), 4, 4096);
  EXPECT_EQ(p.workspace_bytes, 8U * (16 + 1024));
}

}  // namespace
