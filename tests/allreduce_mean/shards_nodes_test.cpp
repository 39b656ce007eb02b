// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Shards over nodes of workers: the same shards, what passes between nodes, and what is refused.

#include "shards.hpp"
#include "tests/support/any_operator.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <thread>

namespace gq = globalq;
using gq::schedule::hierarchical;
using shards::operators;
using shards::values;
using support::complaints;
using support::on_threads;
using support::splits;
using testing::HasSubstr;

namespace shards_nodes_test {

gq::rounding::stochastic const dice;

/// A transport that looks at what passes between two workers, and may change it.
template <class T>
class watched {
 public:
  using request = typename T::request;
  using look = std::function<void(int from, int to, std::vector<std::byte>& bytes)>;
  watched(T& workers, look each) : t_(workers), look_(std::move(each)) {}
  int rank() const { return t_.rank(); }
  int size() const { return t_.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) {
    sent_.emplace_back(bytes.begin(), bytes.end());
    look_(rank(), peer, sent_.back());
    return t_.send_async(peer, sent_.back());
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return t_.recv_async(peer, bytes); }
  void wait(request& posted) { t_.wait(posted); }

 private:
  T& t_;
  look look_;
  std::deque<std::vector<std::byte>> sent_;
};

/// Bytes from each worker to each other one in a call with d values, but for what a call with none sends.
using traffic = std::vector<std::vector<std::uint64_t>>;
template <class Call>
traffic bytes_between(int n, Call const& call) {
  traffic bytes(static_cast<std::size_t>(n), std::vector<std::uint64_t>(static_cast<std::size_t>(n), 0));
  on_threads(n, [&](auto& workers) {
    auto& mine = bytes[static_cast<std::size_t>(workers.rank())];
    bool opening = true;
    watched counted(workers, [&](int, int to, std::vector<std::byte> const& sent) {
      (opening ? mine[static_cast<std::size_t>(to)] -= sent.size()
               : mine[static_cast<std::size_t>(to)] += sent.size());
    });
    call(counted, 0);
    opening = false;
    call(counted, 1);
  });
  return bytes;
}

TEST(ShardsOfNodes, have_the_bits_of_no_nodes_where_sums_are_exact) {
  for (int n = 1; n <= 9; ++n)
    for (std::vector<int> const& split : splits(n))
      on_threads(n, [&](auto& workers) {
        for (gq::any_quantizer const& op : shards::exact_operators())
          for (std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{3001}})
            shards::expect_shards_of_the_mean_over_nodes(workers, op, split, values(d, workers.rank()), true);
      });
}

TEST(ShardsOfNodes, do_not_depend_on_chunks) {
  for (int n = 1; n <= 9; ++n)
    for (std::vector<int> const& split : splits(n))
      on_threads(n, [&](auto& workers) {
        for (gq::any_quantizer const& op : operators())
          for (std::size_t d : {std::size_t{1}, n == 5 ? std::size_t{6007} : std::size_t{3001}})
            shards::expect_shards_of_the_mean_over_nodes(workers, op, split, values(d, workers.rank()),
                                                         split.size() == 1);
      });
}

// Codes in frames of different lengths are not added as they are: sums of nodes are encoded again, as with wire::int8.
TEST(ShardsOfNodes, in_frames_of_different_lengths_have_the_bits_of_requantized_ones) {
  auto const check = [](auto const& norm, auto const& levels) {
    gq::any_quantizer const fixed =
        gq::quantizer{norm, levels, dice, gq::wire::int8{}, gq::reduce::requantize{}};
    for (gq::any_quantizer const& op :
         std::vector<gq::any_quantizer>{gq::quantizer{norm, levels, dice, gq::wire::elias<>{}},
                                        gq::quantizer{norm, levels, dice, gq::wire::huffman<>{}},
                                        gq::quantizer{norm, levels, dice, gq::wire::sparse<>{}}})
      for (std::vector<int> const& split : {std::vector{2, 1}, std::vector{2, 2}})
        on_threads(split[0] + split[1], [&](auto& workers) {
          hierarchical<> const nodes{split};
          gq::reduce_scatter_mean mean{workers, op, nodes, {.seed = 3}},
              expected{workers, fixed, nodes, {.seed = 3}};
          EXPECT_EQ(mean.reduce(), gq::method::requantize);
          std::vector<float> x = values(3001, workers.rank()), y = x;
          mean(x, 7);
          expected(y, 7);
          EXPECT_TRUE(shards::same_bits(x.data(), y.data(), x.size())) << op.facts().name;
        });
  };
  check(gq::norm::linf{}, gq::levels::exponential{6});
  check(gq::norm::l<2, 2>{.bucket = 100}, gq::levels::exponential{6});
  check(gq::norm::linf{}, gq::levels::uniform{7});
}

TEST(ShardsOfNodes, each_of_one_worker_are_those_of_no_nodes) {
  on_threads(5, [](auto& workers) {
    for (gq::any_quantizer const& op : operators())
      shards::expect_shards_of_the_mean_over_nodes(workers, op, {1, 1, 1, 1, 1}, values(3001, workers.rank()),
                                                   true);
  });
}

TEST(ShardsOfNodes, gathered_have_the_bits_of_no_nodes) {
  for (int n = 1; n <= 9; ++n)
    for (std::vector<int> const& split : splits(n))
      on_threads(n, [&](auto& workers) {
        for (gq::any_quantizer const& op : operators())
          for (std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{257},
                                n == 5 ? std::size_t{6007} : std::size_t{3001}})
            shards::expect_gathered_shards_over_nodes(workers, op, split, values(d, 99));
      });
}

// Integers are the same in any order; what is shifted back is a fraction of a gap for each worker. Up to 2n additions of
// float32 below 8n gaps, each within 2^-24 of the sum, in gaps of unit / 7 and over n: below 3 n 2^-24 unit. Shifts of other
// workers would be off by a share of a gap.
TEST(ShardsOfNodes, are_shifted_back_by_the_words_of_the_workers_in_each_sum) {
  for (auto const& split : {std::vector<int>{3, 3}, {1, 2, 3}, {4, 2}})
    on_threads(6, [&](auto& workers) {
      gq::any_quantizer const op = gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform{7},
                                                 gq::rounding::random_shift<>{}, gq::wire::int8{}};
      gq::reduce_scatter_mean flat{workers, op, {.seed = 5}};
      gq::reduce_scatter_mean mean{workers, op, hierarchical<>{split}, {.seed = 5}};
      std::vector<float> x = values(3001, workers.rank()), y = x;
      flat(x, 0);
      mean(y, 0);
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 3 * 6 * 0x1p-24 * 4.0);
    });
}

// E||shards - mean||^2 <= theta / n sum ||x_i||^2 over all shards together. The squared length of the mean error is the variance
// over the draws in expectation, and 2 is beyond six deviations of it; see hierarchical_test.
TEST(ShardsOfNodes, are_unbiased_with_at_most_the_planned_variance) {
  int const n = 6, draws = 200;
  std::size_t const d = 256 * 6;
  for (auto const& split : {std::vector<int>{3, 3}, {1, 3, 2}})
    for (gq::any_quantizer const& op :
         {gq::any_quantizer(
              gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, dice, gq::wire::int8{}}),
          gq::any_quantizer(
              gq::quantizer{gq::norm::linf{}, gq::levels::uniform<7>{}, dice, gq::wire::packed<4>{}}),
          gq::any_quantizer(gq::quantizer{gq::norm::local<2>{.bucket = 64}, gq::levels::uniform{5},
                                          gq::rounding::random_shift<>{}, gq::wire::packed<5>{}})}) {
      std::vector<double> exact(d, 0.0), sum(d, 0.0), squares(d, 0.0);
      double size = 0, theta = 0;
      for (int r = 0; r < n; ++r) {
        std::vector<float> const x = values(d, r);
        for (std::size_t i = 0; i < d; ++i) {
          exact[i] += static_cast<double>(x[i]) / n;
          size += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        }
      }
      on_threads(n, [&](auto& workers) {
        gq::reduce_scatter_mean mean{workers, op, hierarchical<>{split}, {.seed = 9}, Kokkos::Serial()};
        gq::segment const own = mean.shard(d);
        ASSERT_EQ(own.count, 256U);
        std::vector<float> const x = values(d, workers.rank());
        std::vector<float> part(own.count);
        for (int k = 0; k < draws; ++k) {
          mean(x, part, static_cast<std::uint64_t>(k));
          for (std::size_t i = 0; i < part.size(); ++i) {
            double const error = static_cast<double>(part[i]) - exact[own.first + i];
            sum[own.first + i] += error / draws;
            squares[own.first + i] += error * error / draws;
          }
        }
        if (workers.rank() == 0) theta = mean.plan(d).theta;
      });
      double variance = 0, bias = 0;
      for (std::size_t i = 0; i < d; ++i) {
        variance += squares[i];
        bias += sum[i] * sum[i];
      }
      EXPECT_GT(variance, 0.0);
      EXPECT_LT(variance, 1.1 * theta / n * size) << op.facts().name;
      EXPECT_LT(bias, 2 * variance / draws) << op.facts().name;
    }
}

// Of a shard, a node sends one frame to each node that needs it, whatever the nodes; frames of int8 are 16 bytes and a byte a
// value, and with one scale nothing else travels but the opening.
TEST(ShardsOfNodes, pass_between_two_nodes_once) {
  std::size_t const d = 256 * 40 + 7;
  gq::any_quantizer const op =
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
  for (int n : {2, 5, 8, 9})
    for (std::vector<int> const& split : splits(n)) {
      std::vector<std::uint64_t> frame(static_cast<std::size_t>(n));
      std::vector<int> node_of;
      for (std::size_t v = 0; v < split.size(); ++v)
        node_of.insert(node_of.end(), static_cast<std::size_t>(split[v]), static_cast<int>(v));
      auto const count = [&](bool gathers) {
        return bytes_between(n, [&](auto& workers, int call) {
          std::vector<float> x(call == 0 ? 0 : d, 1.0F);
          hierarchical<> const nodes{split};
          if (gathers) {
            gq::all_gather gather{workers, op, nodes};
            gather(x, 0);
            if (workers.rank() == 0)
              for (int r = 0; r < n; ++r) {
                std::uint64_t const values = gather.shard(d, r).count;
                frame[static_cast<std::size_t>(r)] = values == 0 ? 0 : 16 + values;
              }
          } else {
            gq::reduce_scatter_mean mean{workers, op, nodes};
            mean(x, 0);
          }
        });
      };
      traffic const gathered = count(true), reduced = count(false);
      for (int v = 0; v < static_cast<int>(split.size()); ++v)
        for (int w = 0; w < static_cast<int>(split.size()); ++w) {
          if (v == w) continue;
          std::uint64_t shards_of_v = 0, shards_of_w = 0, by_gather = 0, by_reduce = 0;
          for (std::size_t a = 0; a < frame.size(); ++a) {
            if (node_of[a] == v) shards_of_v += frame[a];
            if (node_of[a] == w) shards_of_w += frame[a];
            for (std::size_t b = 0; b < frame.size(); ++b)
              if (node_of[a] == v && node_of[b] == w) {
                by_gather += gathered[a][b];
                by_reduce += reduced[a][b];
              }
          }
          EXPECT_EQ(by_gather, shards_of_v) << support::text(split);
          EXPECT_EQ(by_reduce, shards_of_w) << support::text(split);
        }
      // in all, and of each worker where nodes are even: S (n-1)/n
      for (traffic const& t : {gathered, reduced}) {
        std::uint64_t all = 0, shards = 0;
        for (auto const& row : t) all = std::accumulate(row.begin(), row.end(), all);
        for (std::uint64_t f : frame) shards += f;
        EXPECT_EQ(all, shards * static_cast<std::uint64_t>(n - 1)) << support::text(split);
      }
    }
}

TEST(ShardsOfNodes, are_sent_to_other_nodes_by_all_workers_alike) {
  std::size_t const d = 256 * 64;
  gq::any_quantizer const op =
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
  for (bool gathers : {false, true}) {
    traffic const t = bytes_between(8, [&](auto& workers, int call) {
      std::vector<float> x(call == 0 ? 0 : d, 1.0F);
      if (gathers) {
        gq::all_gather gather{workers, op, hierarchical<>{4}};
        gather(x, 0);
      } else {
        gq::reduce_scatter_mean mean{workers, op, hierarchical<>{4}};
        mean(x, 0);
        if (call != 0) {
          EXPECT_EQ(mean.plan(d).bytes_sent, 7U * (d / 8 + 16) + 7 * 64);
        }
      }
    });
    for (std::size_t a = 0; a < 8; ++a) {
      std::uint64_t within = 0, between = 0;
      for (std::size_t b = 0; b < 8; ++b) (a / 4 == b / 4 ? within : between) += t[a][b];
      EXPECT_EQ(between, d / 8 + 16) << "one shard's frame";
      EXPECT_EQ(within, 6 * (d / 8 + 16));
    }
  }
}

TEST(ShardsOfNodes, have_room_for_the_workers_of_a_node_and_roundings_of_a_node) {
  on_threads(8, [](auto& workers) {
    auto const plan = [&](gq::any_quantizer const& op, int node_size) {
      return gq::reduce_scatter_mean{workers, op, hierarchical<>{node_size}}.plan(1 << 16);
    };
    gq::any_quantizer const uniform = operators()[0], exponential = operators()[1], local = operators()[3];
    EXPECT_EQ(plan(uniform, 4).reduce, gq::method::sum);
    EXPECT_EQ(plan(uniform, 4).levels, 127U / 4);
    EXPECT_EQ(plan(uniform, 3).levels, 127U / 3);
    EXPECT_EQ(plan(exponential, 4).reduce, gq::method::exponential);
    EXPECT_EQ(plan(exponential, 4).headroom, 3U);
    EXPECT_EQ(plan(local, 4).reduce, gq::method::requantize);
    EXPECT_EQ(plan(local, 4).rounding_steps, 2);
    double const flat = gq::reduce_scatter_mean{workers, local}.plan(1 << 16).theta;
    EXPECT_GT(plan(local, 4).theta, flat);
    EXPECT_LT(plan(local, 4).theta, gq::plan_for(local, hierarchical<>{4}, 8, 1 << 16).theta)
        << "no rounding between nodes";
    for (int node_size : {1, 8})
      for (gq::any_quantizer const& op : {uniform, exponential, local}) {
        EXPECT_EQ(plan(op, node_size).reduce, gq::method::none);
        EXPECT_EQ(plan(op, node_size).rounding_steps, 1);
      }
    EXPECT_EQ(plan(uniform, 8).levels, 127U);
    EXPECT_EQ(plan(local, 8).theta, flat);
  });
}

TEST(ShardsOfNodes, that_do_not_fit_are_refused_with_remedies_that_work) {
  auto const with = [](gq::any_quantizer const& op, auto const&... nodes) {
    return complaints<gq::configuration_error>(8, [&](auto& workers) {
      gq::reduce_scatter_mean mean{workers, op, nodes...};
      std::vector<float> x(3000, 1.0F);
      mean(x, 0);
    });
  };
  hierarchical<> const nodes{4};
  auto const uniform = [](std::uint32_t size, auto wire) {
    return gq::any_quantizer(gq::quantizer{gq::norm::linf{}, gq::levels::uniform{size}, dice, wire});
  };
  for (std::string const& text : with(uniform(40, gq::wire::int8{}), nodes))
    EXPECT_THAT(
        text,
        HasSubstr(
            "on reduce-scatter:4 with 8 workers: 4 workers of a node x 40 levels sum to 160; int8 holds "
            "codes up to 127; use at most 31 levels, or wire int16, or no nodes, where "
            "codes are not added"));
  EXPECT_THAT(with(uniform(31, gq::wire::int8{}), nodes), testing::Each(""));
  EXPECT_THAT(with(uniform(40, gq::wire::int16{}), nodes), testing::Each(""));
  EXPECT_THAT(with(uniform(40, gq::wire::int8{})), testing::Each(""));
  auto const exponential = [](std::uint32_t size) {
    return gq::any_quantizer(
        gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{size}, dice, gq::wire::int8{}});
  };
  for (std::string const& text : with(exponential(126), nodes)) {
    EXPECT_THAT(text, HasSubstr("126 levels and a headroom of 3"));
    EXPECT_THAT(
        text,
        HasSubstr("use at most 124 levels, or use wire int16, or use reduce::requantize, or use no nodes"));
  }
  EXPECT_THAT(with(exponential(124), nodes), testing::Each(""));
  EXPECT_THAT(with(exponential(126)), testing::Each(""));
}

TEST(ShardsOfNodes, of_another_number_of_workers_are_refused_on_all) {
  for (bool gathers : {false, true})
    for (std::string const& text : complaints<gq::configuration_error>(5, [&](auto& workers) {
           hierarchical<> const nodes{std::vector<int>{2, 2}};
           if (gathers)
             gq::all_gather{workers, operators()[0], nodes};
           else
             gq::reduce_scatter_mean{workers, operators()[0], nodes};
         }))
      EXPECT_THAT(text, HasSubstr("nodes of 2+2 workers, and there are 5"));
}

TEST(ShardsOfNodes, that_workers_disagree_about_are_an_error_on_all) {
  auto const check = [](std::vector<std::string> const& texts) {
    for (std::string const& text : texts) EXPECT_THAT(text, HasSubstr("the schedule (rank 0"));
  };
  check(complaints<gq::disagreement_error>(4, [](auto& workers) {
    std::vector<float> x(1000, 1.0F);
    // at this length both have room for the same levels
    gq::reduce_scatter_mean mean{workers, shards::exact_operators()[0],
                                 hierarchical<>{workers.rank() == 2 ? 4 : 2}};
    mean(x, 0);
  }));
  check(complaints<gq::disagreement_error>(4, [](auto& workers) {
    std::vector<float> x(1000, 1.0F);
    gq::all_gather gather = workers.rank() == 1 ? gq::all_gather(workers, operators()[0])
                                                : gq::all_gather(workers, operators()[0], hierarchical<>{2});
    gather(x, 0);
  }));
}

TEST(ShardsOfNodes, with_a_worker_that_never_calls_end_by_the_deadline) {
  for (bool gathers : {false, true})
    for (int dead : {0, 3}) {
      auto const texts =
          complaints<gq::transport_error>(5, std::chrono::milliseconds{200}, [&](auto& workers) {
            if (workers.rank() == dead) {  // it hangs, or is gone
              if (gathers) std::this_thread::sleep_for(std::chrono::milliseconds{400});
              return;
            }
            std::vector<float> x(5000, 1.0F);
            hierarchical<> const nodes{std::vector<int>{2, 3}};
            if (gathers) {
              gq::all_gather gather{workers, operators()[0], nodes};
              gather(x, 0);
            } else {
              gq::reduce_scatter_mean mean{workers, operators()[0], nodes};
              mean(x, 0);
            }
          });
      for (int r = 0; r < 5; ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)].empty(), r == dead) << r;
    }
}

/// Workers 0 and 1, and 2 and 3 are nodes; the shard of worker 0 has worker 2 as its relay in the other.
TEST(ShardsOfNodes, that_are_damaged_on_the_way_name_who_sent_them) {
  for (std::size_t which : {std::size_t{0}, std::size_t{5}})  // frames of one length, and of others
    for (bool gathers : {false, true}) {
      auto const texts = complaints<gq::frame_error>(4, std::chrono::milliseconds{300}, [&](auto& workers) {
        int sent = 0;
        watched changed(workers, [&](int from, int to, std::vector<std::byte>& bytes) {
          // after the opening: what starts a frame
          bool const frame = bytes.size() > 2 && bytes[0] == std::byte{'g'} && bytes[1] == std::byte{'q'};
          if (from == 2 && to == 0 && frame && sent++ == 0) bytes[2] = std::byte{99};
        });
        try {
          std::vector<float> x = values(3000, workers.rank());
          if (gathers) {
            gq::all_gather gather{changed, operators()[which], hierarchical<>{2}};
            gather(x, 0);
          } else {
            gq::reduce_scatter_mean mean{changed, operators()[which], hierarchical<>{2}};
            mean(x, 0);
          }
        } catch (gq::transport_error const&) {
          EXPECT_NE(workers.rank(), 0) << "others may miss what worker 0 did not send";
        }
      });
      EXPECT_THAT(texts[0], HasSubstr("bad frame from worker 2: format version 99"));
    }
}

TEST(ShardsOfNodes, take_every_type_of_values_and_all_that_is_not_finite) {
  on_threads(5, [](auto& workers) {
    gq::any_quantizer const op =
        gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
    hierarchical<> const nodes{2};
    auto const run = [&]<class Value>(Value) {
      gq::reduce_scatter_mean flat{workers, op}, mean{workers, op, nodes};
      gq::all_gather gather_flat{workers, op}, gather{workers, op, nodes};
      std::vector<Value> x(2000), y;
      std::vector<float> const from = values(2000, workers.rank());
      for (std::size_t i = 0; i < 2000; ++i) x[i] = Value(from[i]);
      y = x;
      flat(x, 0);
      mean(y, 0);
      EXPECT_EQ(0, std::memcmp(x.data(), y.data(), 2000 * sizeof(Value)));
      gather_flat(x, 1);
      gather(y, 1);
      EXPECT_EQ(0, std::memcmp(x.data(), y.data(), 2000 * sizeof(Value)));
    };
    run(double{});
    run(gq::float16{});
    run(gq::bfloat16{});
    gq::reduce_scatter_mean mean{workers, op, nodes};
    std::vector<float> x = values(2000, 1), part(mean.shard(2000).count), zeros(2000);
    if (workers.rank() == 1) x[600] = std::numeric_limits<float>::infinity();
    mean(x, part, 2);
    for (float v : part) EXPECT_TRUE(std::isnan(v));
    mean(zeros, part, 3);
    EXPECT_THAT(part, testing::Each(0.0F));
  });
}

TEST(ShardsOfNodes, are_the_same_on_a_stream) {
  for (auto const& split : {std::vector<int>{2, 2}, {3, 1}, {1, 3, 1}})
    on_threads(std::accumulate(split.begin(), split.end(), 0), [&](auto& workers) {
      constexpr std::size_t d = 3001;
      gq::transport::staged on_stream{workers, Kokkos::Serial()};
      hierarchical<> const nodes{split};
      auto const run = [&](support::any_operator const& op) {
        using view = Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
        std::vector<float> x = values(d, workers.rank()), y = x;
        gq::reduce_scatter_mean host{workers, op, nodes, {.seed = 2}};
        gq::reduce_scatter_mean stream{on_stream, op, nodes, {.seed = 2}};
        gq::all_gather host_gather{workers, op, nodes, {.seed = 2}};
        gq::all_gather stream_gather{on_stream, op, nodes, {.seed = 2}};
        host(x, 3);
        stream(view(y.data(), d), 3);
        stream.wait();
        EXPECT_TRUE(shards::same_bits(x.data(), y.data(), d));
        host_gather(x, 4);
        stream_gather(view(y.data(), d), 4);
        stream_gather.wait();
        EXPECT_TRUE(shards::same_bits(x.data(), y.data(), d));
      };
      run(gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, gq::rounding::random_shift<>{},
                        gq::wire::int8{}});
      run(gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform<7>{}, dice,
                        gq::wire::packed<4>{}});
    });
}

}  // namespace shards_nodes_test
