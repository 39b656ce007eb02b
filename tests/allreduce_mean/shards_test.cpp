// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Shards of the mean, and shards gathered, over threads.

#include "shards.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/any_operator.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <utility>

namespace gq = globalq;
using shards::operators;
using shards::values;
using support::complaints;
using support::on_threads;

TEST(Shards, are_those_of_the_mean_over_allgather) {
  for (gq::any_quantizer const& op : operators())
    for (int n = 1; n <= 9; ++n)
      for (std::size_t d :
           {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{257}, std::size_t{3001}})
        on_threads(n, [&](auto& workers) {
          shards::expect_shards_of_the_mean(workers, op, values(d, workers.rank()));
        });
}

TEST(Shards, gathered_are_the_same_on_all_workers) {
  for (gq::any_quantizer const& op : operators())
    for (int n = 1; n <= 9; ++n)
      for (std::size_t d :
           {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{257}, std::size_t{3001}})
        on_threads(n, [&](auto& workers) { shards::expect_gathered_shards(workers, op, values(d, 99)); });
}

TEST(Broadcast, all_workers_hold_the_vector_of_the_root) {
  for (gq::any_quantizer const& op : operators())
    for (int n = 1; n <= 9; ++n)
      for (std::size_t d :
           {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{257}, std::size_t{3001}})
        on_threads(n, [&](auto& workers) {
          shards::expect_one_vector_everywhere(workers, op, static_cast<int>(d) % n, values(d, 99));
        });
}

/// As transport::nccl: transfers wait until a wait needs them; then the first send to and the first receive from each worker start
/// together, and nothing else starts before all of these are complete.
template <class T>
class grouped {
 public:
  using request = std::size_t;
  explicit grouped(T& workers) : t_(workers) {}
  int rank() const { return t_.rank(); }
  int size() const { return t_.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) {
    all_.push_back({peer, bytes, {}, true, false});
    return all_.size() - 1;
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    all_.push_back({peer, {}, bytes, false, false});
    return all_.size() - 1;
  }
  void wait(request& posted) {
    while (!all_[posted].done) run_group();
  }

 private:
  struct transfer {
    int peer;
    std::span<std::byte const> from;
    std::span<std::byte> to;
    bool sends, done;
  };

  void run_group() {
    std::set<std::pair<int, bool>> taken;
    std::vector<typename T::request> group;
    for (transfer& each : all_) {
      if (each.done || !taken.emplace(each.peer, each.sends).second) continue;
      each.done = true;
      group.push_back(each.sends ? t_.send_async(each.peer, each.from) : t_.recv_async(each.peer, each.to));
    }
    for (auto& each : group) t_.wait(each);
  }

  T& t_;
  std::vector<transfer> all_;
};

TEST(Broadcast, never_waits_for_what_another_worker_sends_only_after_waiting) {
  for (gq::any_quantizer const& op : operators())
    for (int n : {1, 2, 3, 4, 7})
      on_threads(n, std::chrono::seconds{20}, [&](auto& workers) {
        grouped all{workers};
        std::vector<float> const x = values(3001, 99);
        std::vector<float> y = x, expected = x;
        gq::broadcast{all, op, n / 2, {.seed = 3, .chunk_values = 256}}(y, 1);
        gq::broadcast{workers, op, n / 2, {.seed = 3}}(expected, 1);
        EXPECT_EQ(y, expected) << op.facts().name;
      });
}

TEST(Broadcast, is_unbiased_and_bounded_like_any_encoding) {
  constexpr std::size_t d = 1000;
  constexpr int draws = 600;
  on_threads(4, [&](auto& workers) {
    gq::quantizer const op{gq::norm::local<2>{.bucket = 256}, gq::levels::uniform{3},
                           gq::rounding::stochastic{}, gq::wire::packed<3>{}};
    gq::broadcast send{workers, op, 2, {.seed = 17}};
    std::vector<float> const x = values(d, 4);
    std::vector<double> sum(d), squares(d);
    for (int k = 0; k < draws; ++k) {
      std::vector<float> y = x;
      send(y, static_cast<std::uint64_t>(k));
      for (std::size_t i = 0; i < d; ++i) {
        double const error = static_cast<double>(y[i]) - static_cast<double>(x[i]);
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    double bias = 0, variance = 0, fourth = 0;
    for (std::size_t i = 0; i < d; ++i) {
      double const v = squares[i] / draws;
      bias += sum[i] / draws * (sum[i] / draws);
      variance += v / draws;
      fourth += v * v / draws / draws;
    }
    EXPECT_NEAR(bias / variance, 1, 5 * std::sqrt(2 * fourth) / variance);
  });
}

TEST(Broadcast, all_types_stages_and_tails_arrive) {
  auto const check = []<class Value>(Value) {
    gq::rounding::stochastic const dice;
    gq::quantizer const fine{gq::norm::linf{.bucket = 128}, gq::levels::uniform{30000}, dice,
                             gq::wire::int16{}};
    std::vector<gq::any_quantizer> const all{gq::rotated{fine, 64}, gq::centered{fine, 128},
                                             gq::float32_tail{fine}};
    for (auto const& op : all)
      for (int n : {1, 2, 5})
        for (std::size_t d : {1U, 100U, 1300U})
          on_threads(n, [&](auto& workers) {
            std::vector<Value> const x = support::values_of<Value>(7, d);
            std::vector<Value> y(d);
            if (workers.rank() == n - 1) y = x;
            gq::broadcast{workers, op, n - 1, {.seed = 1}}(y, 3);
            for (std::size_t i = 0; i < d; ++i)
              ASSERT_NEAR(static_cast<float>(y[i]), static_cast<float>(x[i]), 0.02F)
                  << op.facts().name << ' ' << i;
          });
  };
  check(0.0F);
  check(0.0);
  check(gq::float16{});
  check(gq::bfloat16{});
}

TEST(Broadcast, not_a_number_matters_at_the_root_only) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (int bad : {0, 1})
    on_threads(3, [&](auto& workers) {
      std::vector<float> x(500, workers.rank() == bad ? nan : 1.0F);
      gq::broadcast send{workers, gq::operators::qsgd<4>(), 1, {.seed = 1}};
      send(x, 3);
      for (float v : x) EXPECT_EQ(std::isnan(v), bad == 1);
    });
}

TEST(Broadcast, workers_that_disagree_about_the_root_or_name_none_all_hear_of_it) {
  on_threads(3, [&](auto& workers) {
    std::vector<float> x(500, 1.0F);
    gq::broadcast send{workers, gq::operators::qsgd<4>(), workers.rank() == 2 ? 1 : 0, {.seed = 1}};
    EXPECT_THROW(send(x, 3), gq::disagreement_error);
    for (int root : {-1, 3}) {
      try {
        gq::broadcast none{workers, gq::operators::qsgd<4>(), root, {.seed = 1}};
        ADD_FAILURE();
      } catch (gq::configuration_error const& e) {
        EXPECT_THAT(e.what(), testing::HasSubstr("pass a root from 0 to 2"));
      }
    }
  });
}

TEST(Broadcast, the_root_sends_its_frames_once) {
  for (int n : {1, 2, 3, 5, 8})
    on_threads(n, [&](auto& workers) {
      gq::broadcast send{workers, gq::operators::qsgd<4>(), 0, {.seed = 1}};
      std::vector<float> x(100000, 1.0F);
      send(x, 1);
      std::uint64_t const before = workers.bytes_sent();
      send(x, 2);
      std::uint64_t const bytes = workers.bytes_sent() - before, whole = 100000 / 2 + 4 * 196;
      double const share = workers.rank() == 0 ? (n > 1 ? 1.0 : 0.0) : (n - 2.0) / (n - 1.0);
      EXPECT_NEAR(static_cast<double>(bytes), share * static_cast<double>(whole), 2000.0 + 200 * n) << n;
    });
}

TEST(AllToAll, every_part_arrives_where_its_sender_is) {
  for (gq::any_quantizer const& op : operators())
    for (int n = 1; n <= 9; ++n)
      for (std::size_t each :
           {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{257}, std::size_t{1300}})
        on_threads(n, [&](auto& workers) { shards::expect_parts_of_all(workers, op, each); });
}

// Parts share no bucket, a global norm is that of the parts for one worker, and shifts are those of the sender.
TEST(AllToAll, types_stages_tails_and_norms_are_those_of_groups) {
  auto const check = []<class Value>(Value) {
    gq::rounding::stochastic const dice;
    gq::quantizer const fine{gq::norm::linf{.bucket = 128}, gq::levels::uniform{30000}, dice,
                             gq::wire::int16{}};
    for (gq::any_quantizer const& op : std::vector<gq::any_quantizer>{
             fine, gq::rotated{fine, 64}, gq::centered{fine, 128}, gq::float32_tail{fine},
             gq::quantizer{gq::norm::linf{}, gq::levels::uniform{30000}, gq::rounding::random_shift<>{},
                           gq::wire::int16{}},
             gq::quantizer{gq::norm::linf{}, gq::levels::uniform{30000}, gq::rounding::correlated{},
                           gq::wire::int16{}}})
      for (int n : {1, 2, 5})
        on_threads(n, [&](auto& workers) {
          constexpr std::size_t each = 300;
          std::vector<Value> x(each * static_cast<std::size_t>(n));
          auto const value = [&](int from, int to, std::size_t i) {
            return Value(0.01F * static_cast<float>(i % 50) * (to == 0 ? 1.0F : 0.125F) +
                         static_cast<float>(from));
          };
          for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = value(workers.rank(), static_cast<int>(i / each), i % each);
          gq::all_to_all{workers, op, {.seed = 1}}(x, 3);
          for (std::size_t i = 0; i < x.size(); ++i)
            ASSERT_NEAR(static_cast<float>(x[i]),
                        static_cast<float>(value(static_cast<int>(i / each), workers.rank(), i % each)),
                        0.04F)
                << op.facts().name << ' ' << i;
        });
  };
  check(0.0F);
  check(0.0);
  check(gq::float16{});
  check(gq::bfloat16{});
}

TEST(AllToAll, what_it_refuses_reaches_all_workers) {
  on_threads(3, [&](auto& workers) {
    gq::all_to_all exchange{workers, gq::operators::cgx<4>(), {.seed = 1}};
    std::vector<float> x(workers.rank() == 1 ? 301 : 300, 1.0F);
    if (workers.rank() == 1) {
      EXPECT_THROW(exchange(x, 3), gq::configuration_error);
    } else {
      try {
        exchange(x, 3);
        ADD_FAILURE();
      } catch (gq::disagreement_error const& e) {
        EXPECT_THAT(e.what(),
                    testing::HasSubstr("301 values are not equal parts for 3 workers; pass a multiple of 3"));
      }
    }
    x.resize(300);
    EXPECT_THROW(exchange(x, (std::uint64_t{1} << 48) / 3), gq::error);
    std::vector<float> bad(300, workers.rank() == 2 ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
    exchange(bad, 4);
    for (float v : bad) EXPECT_TRUE(std::isnan(v));
    exchange(x, 5);
    for (float v : x) EXPECT_EQ(v, 1.0F);
  });
}

TEST(AllToAll, and_broadcast_allocate_nothing_after_the_first_calls) {
  on_threads(3, [&](auto& workers) {
    auto const op = gq::operators::global_uniform(gq::norm::linf{.bucket = 128});
    gq::all_to_all exchange{workers, op, {.seed = 1}};
    gq::broadcast send{workers, op, 1, {.seed = 1}};
    std::vector<float> x(3000, 1.0F);
    for (std::uint64_t step : {1U, 2U}) exchange(x, step), send(x, step);
    std::size_t const before = support::own_allocations;
    for (std::uint64_t step : {3U, 4U}) exchange(x, step), send(x, step);
    EXPECT_EQ(support::own_allocations, before);
  });
}

TEST(Shards, gathered_are_the_mean_of_padded_vectors_times_the_workers) {
  for (int n : {1, 2, 4, 8})
    for (std::size_t d : {std::size_t{257}, std::size_t{5000}})
      on_threads(n, [&](auto& workers) { shards::expect_a_mean_of_padded_vectors(workers, d); });
}

/// Pooled over coordinates: sum_i (error of the mean)^2 over sum_i variance / draws has mean 1 and, for independent
/// coordinates of variance v_i, standard deviation sqrt(2 sum v_i^2) / sum v_i.
TEST(Shards, gathered_are_unbiased) {
  constexpr std::size_t d = 1000;
  constexpr int draws = 600;
  on_threads(3, [&](auto& workers) {
    gq::all_gather gather{workers,
                          gq::quantizer{gq::norm::local<2>{.bucket = 256}, gq::levels::uniform{3},
                                        gq::rounding::stochastic{}, gq::wire::packed<3>{}},
                          {.seed = 17}};
    std::vector<float> const x = values(d, 4);
    std::vector<double> sum(d), squares(d);
    for (int k = 0; k < draws; ++k) {
      std::vector<float> y = x;
      gather(y, static_cast<std::uint64_t>(k));
      for (std::size_t i = 0; i < d; ++i) {
        double const e = static_cast<double>(y[i]) - static_cast<double>(x[i]);
        sum[i] += e;
        squares[i] += e * e;
      }
    }
    double error = 0, variance = 0, variance2 = 0;
    for (std::size_t i = 0; i < d; ++i) {
      double const v = squares[i] / draws;
      error += sum[i] * sum[i] / draws;
      variance += v;
      variance2 += v * v;
    }
    EXPECT_LT(error / variance, 1 + 5 * std::sqrt(2 * variance2) / variance);
    EXPECT_GT(variance, 0);
  });
}

TEST(Shards, take_every_type_of_values) {
  on_threads(3, [](auto& workers) {
    auto const run = [&]<class Value>(Value) {
      gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{},
                             gq::rounding::stochastic{}, gq::wire::int8{}};
      gq::reduce_scatter_mean mean{workers, op};
      gq::allreduce_mean whole{workers, op, gq::schedule::allgather{}};
      gq::all_gather gather{workers, op};
      std::vector<Value> x(1000), y;
      std::vector<float> const from = values(1000, workers.rank());
      for (std::size_t i = 0; i < 1000; ++i) x[i] = Value(from[i]);
      y = x;
      mean(x, 0);
      whole(y, 0);
      gq::segment const own = mean.shard(1000);
      EXPECT_EQ(0, std::memcmp(x.data() + own.first, y.data() + own.first, own.count * sizeof(Value)));
      gather(x, 1);
    };
    run(double{});
    run(gq::float16{});
    run(gq::bfloat16{});
  });
}

/// The sanitizers look at how addresses are computed.
TEST(Shards, that_are_empty_may_lie_nowhere) {
  on_threads(2, [](auto& workers) {
    gq::reduce_scatter_mean mean{workers, operators()[0]};
    gq::all_gather gather{workers, operators()[0]};
    std::vector<float> x{1.0F}, shard(mean.shard(1).count);  // none on worker 1
    ASSERT_EQ(shard.data() == nullptr, workers.rank() == 1);
    mean(x, shard, 0);
    x[0] = 0;
    gather(shard, x, 1);
    EXPECT_EQ(x[0], 1.0F);
  });
}

TEST(Shards, of_another_length_are_refused_with_the_right_one) {
  auto const wrong = complaints<gq::configuration_error>(3, [](auto& workers) {
    gq::reduce_scatter_mean mean{workers, operators()[0]};
    std::vector<float> const x(1000);
    std::vector<float> y(100);
    mean(x, y, 0);
  });
  EXPECT_THAT(wrong[0], testing::HasSubstr(
                            "globalq: reduce_scatter_mean: rank 0 of 3: the shard has 100 values, "
                            "but that of a vector of 1000 values has 512; pass shard(length).count values"));
  EXPECT_THAT(wrong[2], testing::HasSubstr("has 232"));
  EXPECT_THAT(complaints<gq::configuration_error>(2,
                                                  [](auto& workers) {
                                                    gq::reduce_scatter_mean mean{workers, operators()[0]};
                                                    mean.shard((std::uint64_t{1} << 48) + 1);
                                                  }),
              testing::Each(testing::HasSubstr("281474976710657 values are more than 2^48")));
}

TEST(Shards, lie_at_their_place_or_beside_the_vector) {
  on_threads(3, [](auto& workers) {
    gq::reduce_scatter_mean mean{workers, operators()[0]};
    gq::all_gather gather{workers, operators()[0]};
    gq::segment const own = mean.shard(1000);
    auto placed = values(1000, workers.rank()), x = placed;
    std::vector<float> apart(own.count), whole(1000);
    auto const place = std::span(placed).subspan(own.first, own.count);
    mean(x, apart, 0);
    mean(placed, place, 0);
    EXPECT_TRUE(std::equal(apart.begin(), apart.end(), place.begin()));
    gather(apart, whole, 1);
    gather(place, placed, 1);
    EXPECT_EQ(placed, whole);
  });
  for (bool gathers : {false, true}) {
    auto const wrong = complaints<gq::configuration_error>(2, [&](auto& workers) {
      gq::reduce_scatter_mean mean{workers, operators()[0]};
      gq::all_gather gather{workers, operators()[0]};
      auto x = values(1000, workers.rank());
      auto const part = std::span(x).subspan(3, mean.shard(1000).count);
      gathers ? gather(part, x, 0) : mean(x, part, 0);
    });
    EXPECT_THAT(wrong[1], testing::HasSubstr("rank 1 of 2: the shard overlaps the vector, but is not at its "
                                             "place, values 512 to 999; pass that part of the vector"));
    EXPECT_THAT(wrong[0], testing::HasSubstr("values 0 to 511"));
  }
  auto const shifted = complaints<gq::configuration_error>(2, [](auto& workers) {
    gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}};
    std::vector<float> x(10);
    mean(std::span(x).first(9), std::span(x).last(9), 0);
  });
  EXPECT_THAT(shifted, testing::Each(testing::HasSubstr("input and output overlap")));
}

TEST(Shards, of_workers_that_disagree_are_an_error_on_all_that_names_the_call) {
  auto const texts = complaints<gq::disagreement_error>(3, [](auto& workers) {
    gq::all_gather gather{workers, operators()[0]};
    std::vector<float> x(workers.rank() == 1 ? 1001 : 1000);
    gather(x, 0);
  });
  for (std::string const& text : texts)
    EXPECT_THAT(text, testing::HasSubstr("globalq: all_gather: rank 1 differs"));
  auto const mixed = complaints<gq::disagreement_error>(2, [](auto& workers) {
    std::vector<float> x(1000);
    if (workers.rank() == 0) {
      gq::all_gather gather{workers, operators()[0]};
      gather(x, 0);
    } else {
      gq::reduce_scatter_mean mean{workers, operators()[0]};
      mean(x, 0);
    }
  });
  for (std::string const& text : mixed) EXPECT_THAT(text, testing::HasSubstr("the schedule (rank 0"));
}

TEST(Shards, with_a_value_that_is_not_finite_are_not_a_number_on_all_workers) {
  on_threads(3, [](auto& workers) {
    std::vector<float> x = values(1000, 1), y = x;
    if (workers.rank() == 1) x[600] = y[600] = std::numeric_limits<float>::infinity();
    std::vector<float> const before = x;
    gq::reduce_scatter_mean mean{workers, operators()[0]};
    mean(x, 0);
    gq::segment const own = mean.shard(1000);
    for (std::size_t i = 0; i < 1000; ++i) {
      bool const inside = i >= own.first && i < own.first + own.count;
      ASSERT_TRUE(inside ? std::isnan(x[i]) : x[i] == before[i]) << i;
    }
    gq::all_gather gather{workers, operators()[0]};
    gather(y, 0);  // value 600 is in the shard of worker 1
    for (float v : y) ASSERT_TRUE(std::isnan(v));
    gq::reduce_scatter_mean strict{workers, operators()[0], {.non_finite = gq::non_finite::error}};
    std::vector<float> z = before;
    EXPECT_THROW(strict(z, 0), gq::non_finite_error);
    EXPECT_TRUE(shards::same_bits(z.data(), before.data(), 1000));
  });
}

TEST(Shards, of_zeros_are_zeros) {
  on_threads(3, [](auto& workers) {
    std::vector<float> x(1000), y(1000, 5.0F);
    gq::all_gather gather{workers, operators()[0]};
    gq::segment const own = gather.shard(1000);
    gather(std::span(x).subspan(own.first, own.count), y, 0);
    EXPECT_THAT(y, testing::Each(0.0F));
    std::vector<float> part(own.count, 5.0F);
    gq::reduce_scatter_mean mean{workers, operators()[0]};
    mean(x, part, 0);
    EXPECT_THAT(part, testing::Each(0.0F));
  });
}

TEST(Shards, are_the_same_on_a_stream) {
  for (int n : {1, 2, 3})
    on_threads(n, [](auto& workers) {
      constexpr std::size_t d = 3001;
      gq::transport::staged on_stream{workers, Kokkos::Serial()};
      auto const run = [&](support::any_operator const& op) {
        using view = Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
        std::vector<float> x = values(d, workers.rank()), y = x;
        gq::reduce_scatter_mean host{workers, op, {.seed = 2}};
        gq::reduce_scatter_mean stream{on_stream, op, {.seed = 2}};
        gq::all_gather host_gather{workers, op, {.seed = 2}};
        gq::all_gather stream_gather{on_stream, op, {.seed = 2}};
        host(x, 3);
        stream(view(y.data(), d), 3);
        stream.wait();
        EXPECT_TRUE(shards::same_bits(x.data(), y.data(), d));
        host_gather(x, 4);
        stream_gather(view(y.data(), d), 4);
        stream_gather.wait();
        EXPECT_TRUE(shards::same_bits(x.data(), y.data(), d));
        gq::segment const own = host.shard(d);
        std::vector<float> part(own.count), other(own.count);
        host(x, part, 5);
        stream(view(y.data(), d), view(other.data(), own.count), 5);
        stream.wait();
        EXPECT_TRUE(shards::same_bits(part.data(), other.data(), own.count));
      };
      gq::rounding::stochastic const dice;
      run(gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}});
      run(gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform<7>{}, dice,
                        gq::wire::packed<4>{}});
      run(gq::quantizer{gq::norm::l<2, 2>{.bucket = 300}, gq::levels::exponential{7}, dice,
                        gq::wire::int8{}});
      run(support::eden<2>(64));
      run(gq::uncompressed{});
    });
}
