// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Reports of calls: bytes, phases, errors of rounding, failures; and that watching changes no bit.

#include "tests/support/allocations.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/one_bit.hpp>
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/sign_sgd.hpp>
#include <globalq/baseline/thc.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/schedule/hierarchical.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/staged.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace gq = globalq;
using support::on_threads;
using support::same_bits;
using support::values;

namespace {

gq::rounding::stochastic const dice;
gq::quantizer const integers{gq::norm::linf{.bucket = 512}, gq::levels::uniform{9}, dice, gq::wire::int8{}};
gq::quantizer const user_scales{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform<7>{}, dice,
                                gq::wire::packed<4>{}};

double sum_of(std::array<double, gq::phases> const& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

TEST(Telemetry, bytes_are_those_of_the_plan_and_phases_are_parts_of_the_whole) {
  constexpr std::size_t length = 40000;
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:2"})
    for (int n : {1, 2, 3, 5}) {
      std::uint64_t most = 0, planned = 0;
      std::mutex together;
      on_threads(n, [&](auto& workers) {
        gq::telemetry seen;
        gq::allreduce_mean watched{
            workers, integers, gq::schedule::any{schedule}, {.seed = 3, .telemetry = &seen}};
        gq::allreduce_mean plain{workers, integers, gq::schedule::any{schedule}, {.seed = 3}};
        auto x = values(length, workers.rank()), y = x;
        watched(x, 17);
        plain(y, 17);
        EXPECT_TRUE(same_bits(x, y)) << "watching changed a result over " << schedule;
        gq::call_report const r = seen.last();
        EXPECT_EQ(r.operation, "allreduce_mean");
        EXPECT_EQ(r.step, 17U);
        EXPECT_EQ(r.calls, 1U);
        EXPECT_EQ(r.failed, 0U);
        EXPECT_EQ(r.uncompressed, 0U);
        EXPECT_EQ(r.values, length);
        EXPECT_GT(r.in(gq::phase::norm), 0);
        EXPECT_GT(r.in(gq::phase::opening), 0);
        EXPECT_GT(r.in(gq::phase::transfer), 0);
        EXPECT_GT(r.in(gq::phase::decode), 0);
        EXPECT_LE(sum_of(r.phase_seconds), r.seconds);
        EXPECT_TRUE(std::isnan(r.zero_fraction()) && std::isnan(r.normalized_error()));
        std::scoped_lock const lock(together);
        most = std::max(most, r.bytes_sent);
        planned = watched.plan(length).bytes_sent;
      });
      EXPECT_EQ(most, planned) << schedule << ", n = " << n;
    }
}

/// A worker alone gets its own values as they were rounded.
template <class Value>
void expect_own_errors(auto const& op, std::size_t length, int exponent, bool has_zeros = true) {
  on_threads(1, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean mean{workers, op, gq::schedule::any{"ring"}, {.seed = 5, .telemetry = &seen}};
    auto const x = support::values_of<Value>(7, length, exponent);
    std::vector<Value> y(length);
    mean(x, y, 3);
    double energy = 0, error = 0;
    std::uint64_t zeros = 0;
    auto const wide = [](Value v) {
      if constexpr (std::is_same_v<Value, double>)
        return v;
      else
        return static_cast<double>(static_cast<float>(v));
    };
    for (std::size_t i = 0; i < length; ++i) {
      double const v = wide(x[i]), r = wide(y[i]);
      energy += v * v;
      error += (r - v) * (r - v);
      zeros += r == 0 ? 1 : 0;
    }
    gq::call_report const r = seen.last();
    EXPECT_EQ(r.rounded, length);
    EXPECT_EQ(r.zeros, zeros);
    // sums of at most 5,000 terms in another order
    EXPECT_NEAR(r.energy, energy, 1e-12 * energy);
    EXPECT_NEAR(r.error_energy, error, 1e-12 * error);
    EXPECT_NEAR(r.normalized_error(), error / energy, 1e-11 * error / energy);
    EXPECT_DOUBLE_EQ(r.zero_fraction(), static_cast<double>(zeros) / static_cast<double>(length));
    EXPECT_GT(r.normalized_error(), 0);
    if (has_zeros) {
      EXPECT_GT(zeros, 0U);
    }
  });
}

TEST(Telemetry, errors_are_those_of_the_own_values) {
  for (std::size_t length : {1000U, 5000U}) {
    expect_own_errors<float>(integers, length, 0);
    expect_own_errors<float>(user_scales, length, 0);
    expect_own_errors<double>(user_scales, length, 300);
    expect_own_errors<double>(integers, length, -300);
    expect_own_errors<gq::float16>(integers, length, 0);
    expect_own_errors<gq::bfloat16>(user_scales, length, 0);
  }
}

TEST(Telemetry, errors_are_those_of_values_before_stages) {
  for (std::size_t length : {1000U, 5000U}) {
    expect_own_errors<float>(gq::rotated{user_scales, 128}, length, 0, false);
    expect_own_errors<double>(gq::centered{integers, 100}, length, 300, false);
    expect_own_errors<gq::float16>(gq::rotated{gq::centered{user_scales}, 64}, length, 0, false);
    expect_own_errors<float>(gq::floats<gq::bfloat16>{}, length, 0, false);
  }
  // the leader of a node rounds the mean of the node
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::schedule::hierarchical<gq::schedule::float32_sum> const node{2};
    gq::allreduce_mean mean{workers, gq::rotated{user_scales, 64}, node, {.seed = 5, .telemetry = &seen}};
    std::vector<float> const a = support::values(1000, 0), b = support::values(1000, 1);
    std::vector<float> y(1000);
    mean(workers.rank() == 0 ? a : b, y, 3);
    double error = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      double const off =
          static_cast<double>(y[i]) - (static_cast<double>(a[i]) + static_cast<double>(b[i])) / 2;
      error += off * off;
    }
    if (workers.rank() == 0) {
      EXPECT_NEAR(seen.last().error_energy, error, 1e-5 * error);
    }
  });
}

/// Frames of leaves are those of a worker alone, so the mean of all over allgather has the mean of the errors.
TEST(Telemetry, errors_of_all_workers_are_those_of_the_mean_where_frames_are_of_own_values) {
  constexpr std::size_t length = 3000;
  constexpr int n = 4;
  on_threads(n, [&](auto& workers) {
    auto const rank = static_cast<std::size_t>(workers.rank());
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean mean{
        workers, user_scales, gq::schedule::any{"allgather"}, {.seed = 5, .telemetry = &seen}};
    // only one worker brings anything, in turn
    for (std::size_t turn = 0; turn < n; ++turn) {
      std::vector<float> const mine = rank == turn ? values(length, 9) : std::vector<float>(length);
      std::vector<float> got(length);
      mean(mine, got, turn);
      double whole = 0;
      for (std::size_t i = 0; i < length; ++i) {
        double const off = n * static_cast<double>(got[i]) - values(length, 9)[i];
        whole += off * off;
      }
      EXPECT_NEAR(seen.last().error_energy, rank == turn ? whole : 0, 1e-5 * whole);
    }
  });
}

TEST(Telemetry, groups_and_layers_tell_of_all_their_values) {
  on_threads(3, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::adapt::model_layout model;
    model.add("weight", {30, 40}).add("bias", {30}).add_at(2000, "head", {7, 100});
    std::vector<gq::any_quantizer> const ops{integers, gq::uncompressed{}, user_scales};
    gq::adapt::layered_mean mean{workers,
                                 model,
                                 ops,
                                 gq::schedule::any{"sra"},
                                 {.call = {.seed = 5, .telemetry = &seen}, .warm_up = 1}};
    gq::adapt::layered_mean unwatched{
        workers, model, ops, gq::schedule::any{"sra"}, {.call = {.seed = 5}, .warm_up = 1}};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto x = values(model.length(), workers.rank()), y = x;
      mean(x, step);
      unwatched(y, step);
      EXPECT_TRUE(same_bits(x, y));
      gq::call_report const r = seen.last();
      EXPECT_EQ(r.operation, "layered_mean");
      EXPECT_EQ(r.uncompressed, step == 0 ? 1U : 0U);
      EXPECT_EQ(r.step, step);
      EXPECT_EQ(r.values, 1200U + 30 + 700);
      EXPECT_EQ(r.rounded, step == 0 ? 0 : r.values) << "float32 rounds nothing";
      EXPECT_EQ(r.error_energy > 0, step > 0);
    }
    EXPECT_EQ(seen.total().calls, 3U);
    EXPECT_EQ(seen.total().uncompressed, 1U);
  });
}

TEST(Telemetry, shards_count_what_is_brought) {
  constexpr std::size_t length = 3000;
  on_threads(3, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::options const settings{.seed = 5, .telemetry = &seen};
    gq::reduce_scatter_mean scatter{workers, user_scales, settings};
    gq::all_gather gather{workers, user_scales, settings};
    auto x = values(length, workers.rank());
    std::uint64_t const own = gather.shard(length).count;
    std::vector<float> shard(own);
    scatter(x, shard, 0);
    EXPECT_EQ(seen.last().operation, "reduce_scatter_mean");
    EXPECT_EQ(seen.last().rounded, length);
    gather(shard, x, 1);
    EXPECT_EQ(seen.last().operation, "all_gather");
    EXPECT_EQ(seen.last().rounded, own);
    EXPECT_GT(seen.last().error_energy, 0);
  });
}

TEST(Telemetry, zeros_have_no_error_and_are_all_zero) {
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean mean{workers, integers, gq::schedule::any{"ring"}, {.telemetry = &seen}};
    std::vector<float> x(300);
    mean(x, 0);
    EXPECT_EQ(seen.last().zero_fraction(), 1);
    EXPECT_EQ(seen.last().normalized_error(), 0);
  });
}

TEST(Telemetry, zeros_on_a_stream_are_counted_as_on_the_host) {
  on_threads(2, [&](auto& hosts) {
    gq::telemetry seen{{.errors = true}};
    gq::transport::staged workers{hosts, support::space()};
    gq::allreduce_mean mean{workers, integers, gq::schedule::any{"ring"}, {.telemetry = &seen}};
    Kokkos::View<float*, support::space> x("x", 300);
    mean(x, 0);
    mean.wait();
    EXPECT_EQ(seen.last().rounded, 300U);
    EXPECT_EQ(seen.last().zero_fraction(), 1);
    EXPECT_EQ(seen.last().normalized_error(), 0);
  });
}

TEST(Telemetry, sums_of_nodes_and_midpoints_are_bytes_and_no_errors) {
  constexpr std::size_t length = 3000;
  on_threads(5, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::options const settings{.seed = 5, .telemetry = &seen};
    auto const expect_all = [&](auto const& call, char const* what) {
      seen.take();
      gq::transport::barrier(workers);
      std::uint64_t const before = workers.bytes_sent();
      call();
      EXPECT_EQ(seen.total().bytes_sent, workers.bytes_sent() - before) << what;
    };
    auto x = values(length, workers.rank());
    gq::allreduce_mean nodes{workers, user_scales,
                             gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::ring>{2},
                             settings};
    expect_all([&] { nodes(x, 0); }, "float32_sum");
    EXPECT_EQ(seen.total().rounded, workers.rank() % 2 == 0 ? length : 0) << "leaders round";
    gq::any_quantizer const around{gq::centered{user_scales}};
    gq::allreduce_mean mean{workers, around, gq::schedule::any{"sra"}, settings};
    expect_all([&] { mean(x, 1); }, "centered");
    EXPECT_EQ(seen.total().rounded, length) << "midpoints are not rounded";
    gq::all_gather gather{workers, around, settings};
    expect_all([&] { gather(x, 2); }, "centered all_gather");
    gq::reduce_scatter_mean scatter{workers, around, settings};
    expect_all([&] { scatter(x, 3); }, "centered reduce_scatter_mean");
  });
}

TEST(Telemetry, squares_beyond_float64_are_no_error_of_zero) {
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean mean{workers, user_scales, gq::schedule::any{"ring"}, {.telemetry = &seen}};
    for (double magnitude : {0x1p520, 0x1p-560}) {
      std::vector<double> x{magnitude, magnitude / 3, 0};
      mean(x, 0);
      EXPECT_TRUE(std::isnan(seen.last().normalized_error())) << magnitude;
      EXPECT_EQ(seen.last().zeros, 1U);
    }
  });
}

TEST(Telemetry, sums_begin_anew_when_taken) {
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen;
    gq::options const settings{.seed = 1, .telemetry = &seen};
    gq::allreduce_mean mean{workers, integers, gq::schedule::any{"ring"}, settings};
    gq::allreduce_mean plain{workers, gq::uncompressed{}, gq::schedule::any{"ring"}, settings};
    auto x = values(700, workers.rank());
    mean(x, 0);
    std::uint64_t const bytes = seen.last().bytes_sent;
    plain(x, 1);
    EXPECT_EQ(seen.last().uncompressed, 1U);
    gq::call_report const sum = seen.take();
    EXPECT_EQ(sum.calls, 2U);
    EXPECT_EQ(sum.values, 1400U);
    EXPECT_EQ(sum.uncompressed, 1U);
    EXPECT_EQ(sum.bytes_sent, bytes + seen.last().bytes_sent);
    EXPECT_EQ(seen.total().calls, 0U);
    auto const started = mean.start(x, 2);
    mean.wait();
    EXPECT_EQ(seen.total().calls, 1U);
    EXPECT_EQ(seen.last().step, 2U);
  });
}

TEST(Telemetry, a_call_that_throws_has_failed) {
  on_threads(3, [&](auto& workers) {
    gq::telemetry seen;
    gq::allreduce_mean mean{workers, integers, gq::schedule::any{"ring"}, {.telemetry = &seen}};
    std::vector<float> x(workers.rank() == 1 ? 20U : 10U, 1.0F);
    EXPECT_THROW(mean(x, 0), gq::disagreement_error);
    EXPECT_EQ(seen.last().failed, 1U);
    EXPECT_EQ(seen.last().calls, 1U);
    x.assign(10, 1.0F);
    mean(x, 1);
    EXPECT_EQ(seen.last().failed, 0U);
    EXPECT_EQ(seen.total().failed, 1U);
  });
}

gq::adapt::model_layout one_matrix() {
  gq::adapt::model_layout model;
  model.add_at(5, "weight", {100, 30}).add("bias", {30});
  return model;
}

/// The last call, and only that one, had no finite result, because of @p rank.
void expect_no_finite_result(gq::telemetry& seen, int rank, char const* what) {
  EXPECT_EQ(seen.last().non_finite, 1U) << what;
  EXPECT_EQ(seen.last().non_finite_rank, rank) << what;
  EXPECT_EQ(seen.take().non_finite, 1U) << what;
}

TEST(Telemetry, a_result_that_is_not_finite_is_reported_with_the_rank_that_brought_it) {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  for (gq::non_finite mode : {gq::non_finite::propagate, gq::non_finite::error})
    on_threads(3, [&](auto& workers) {
      gq::telemetry seen;
      gq::options const settings{.non_finite = mode, .telemetry = &seen};
      auto const call = [&](auto const& f, int rank, char const* what) {
        if (mode == gq::non_finite::error)
          EXPECT_THROW(f(), gq::non_finite_error) << what;
        else
          f();
        expect_no_finite_result(seen, rank, what);
      };
      gq::allreduce_mean mean{workers, integers, gq::schedule::any{"sra"}, settings};
      std::vector<float> x(1000, 1.0F), y(1000);
      mean(x, y, 0);
      EXPECT_EQ(seen.last().non_finite, 0U);
      EXPECT_EQ(seen.last().non_finite_rank, -1);
      if (workers.rank() > 0) x[17] = workers.rank() == 1 ? std::nanf("") : infinite;
      call([&] { mean(x, y, 1); }, 1, "allreduce_mean");
      gq::vector_group group;
      group.add(std::span<float const>(x), std::span(y));
      call([&] { mean(group, 2); }, 1, "a group");
      gq::baseline::top_k top(one_matrix(), {.density = 0.1}, settings);
      std::vector<float> gradient(top.layers().length(), 1.0F), result(gradient.size());
      if (workers.rank() == 2) gradient.back() = infinite;
      call([&] { top.reduce(workers, gradient, result, {}, 3); }, 2, "top_k");

      // the decoded sum of l1 norms is beyond the range
      gq::quantizer const ends{gq::norm::l<1, 1>{}, gq::levels::symmetric{1.0F}, dice, gq::wire::packed<1>{}};
      gq::allreduce_mean wide{workers, ends, gq::schedule::allgather{}, settings};
      y.assign(y.size(), 0.75F * std::numeric_limits<float>::max());
      call([&] { wide(y, 4); }, -1, "beyond the range");
    });
}

/// Every compressor that needs nothing but this library, watched.
template <class F>
void each_compressor(gq::telemetry& seen, F const& f) {
  namespace cp = gq::baseline;
  auto const model = one_matrix();
  gq::options const watched{.telemetry = &seen};
  f("top_k", cp::top_k(model, {.density = 0.01}, watched));
  f("rand_k", cp::rand_k(model, {.density = 0.1}, watched));
  f("rand_k", cp::rand_k(model, {.density = 0.1, .shared = false}, watched));
  f("send_first", cp::send_first(model, {.gamma = 4}, watched));
  f("sign_sgd", cp::sign_sgd(model, {}, watched));
  f("one_bit", cp::one_bit(model, {}, watched));
  f("int_sgd<int8>", cp::int_sgd<std::int8_t>(model, {}, watched));
  f("thc", cp::thc(model, {}, watched));
}

TEST(Telemetry, compressors_tell_of_calls_phases_and_bytes) {
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen;
    each_compressor(seen, [&](char const* name, auto made) {
      SCOPED_TRACE(name);
      auto c = std::move(made);  // telemetry goes along
      auto x = values(one_matrix().length(), workers.rank());
      for (std::uint64_t step = 4; step < 6; ++step) {
        std::uint64_t const before = workers.bytes_sent();
        EXPECT_EQ(c.reduce(workers, x, x, {}, step), gq::baseline::outcome::mean);
        gq::call_report const r = seen.last();
        EXPECT_EQ(r.operation, name);
        EXPECT_EQ(r.step, step);
        EXPECT_EQ(r.values, one_matrix().length());
        EXPECT_EQ(r.bytes_sent, workers.bytes_sent() - before);
        for (gq::phase p :
             {gq::phase::norm, gq::phase::opening, gq::phase::encode, gq::phase::transfer, gq::phase::decode})
          EXPECT_GT(r.in(p), 0) << static_cast<int>(p);
        EXPECT_LE(sum_of(r.phase_seconds), r.seconds);
        EXPECT_EQ(r.rounded, 0U);
        bool const first_of_int_sgd = step == 4 && std::string_view(name) == "int_sgd<int8>";
        EXPECT_EQ(r.uncompressed, first_of_int_sgd ? 1U : 0U);
      }
    });
  });
}

TEST(Telemetry, compressors_tell_what_their_messages_leave_out) {
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::telemetry none;
    std::size_t which = 0;
    each_compressor(seen, [&](char const* name, auto made) {
      SCOPED_TRACE(name);
      std::size_t other = 0;
      auto const model = one_matrix();
      each_compressor(none, [&](char const*, auto unwatched) {
        if constexpr (std::is_same_v<decltype(made), decltype(unwatched)>) {
          if (other++ != which) return;
          auto const x = values(model.length(), workers.rank());
          auto y = x, rest = x, inplace = x;
          // the same bits, whether errors are measured or not, and wherever the rest goes
          made.reduce(workers, x, y, {}, 7);
          gq::call_report const r = seen.last();
          unwatched.reduce(workers, x, inplace, rest, 7);
          EXPECT_TRUE(support::same_bits(y, inplace));
          double energy = 0, error = 0;
          std::uint64_t zeros = 0, count = 0;
          for (gq::adapt::layer const& l : model)
            for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i, ++count) {
              double const sent = static_cast<double>(x[i] - rest[i]);
              energy += static_cast<double>(x[i]) * static_cast<double>(x[i]);
              error += (sent - static_cast<double>(x[i])) * (sent - static_cast<double>(x[i]));
              zeros += sent == 0 ? 1U : 0U;
            }
          EXPECT_EQ(r.rounded, count);
          EXPECT_EQ(r.zeros, zeros);
          EXPECT_NEAR(r.normalized_error(), error / energy, 1e-12 * (1 + error / energy));
        } else {
          ++other;
        }
      });
      ++which;
    });
  });
}

TEST(Telemetry, a_stream_is_waited_for_at_each_phase) {
  constexpr std::size_t length = 20000;
  std::uint64_t most = 0, planned = 0;
  std::mutex together;
  on_threads(3, [&](auto& hosts) {
    gq::transport::staged workers{hosts, support::space()};
    gq::telemetry seen{{.errors = true}};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{}, dice, gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 2, .telemetry = &seen}};
    Kokkos::View<float*, support::space> x("x", length), y("y", length);
    Kokkos::deep_copy(x, 1.0F + static_cast<float>(hosts.rank()));
    Kokkos::deep_copy(y, x);
    mean(x, 0);
    mean.wait();
    gq::allreduce_mean unwatched{workers, op, gq::schedule::ring{}, {.seed = 2}};
    unwatched(y, 0);
    unwatched.wait();
    auto const mine = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
    auto const theirs = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
    EXPECT_EQ(std::memcmp(mine.data(), theirs.data(), length * sizeof(float)), 0);
    gq::call_report const r = seen.last();
    for (gq::phase p : {gq::phase::norm, gq::phase::opening, gq::phase::encode, gq::phase::reduce,
                        gq::phase::decode, gq::phase::transfer})
      EXPECT_GT(r.in(p), 0) << gq::phase_names[static_cast<std::size_t>(p)];
    EXPECT_LE(sum_of(r.phase_seconds), r.seconds);
    EXPECT_EQ(r.rounded, length);
    std::scoped_lock const lock(together);
    most = std::max(most, r.bytes_sent);
    planned = mean.plan(length).bytes_sent;
  });
  EXPECT_EQ(most, planned);
}

TEST(Telemetry, errors_on_a_stream_are_those_of_the_host) {
  static constexpr std::size_t length = 300000;  // several chunks
  auto const compare = [](auto const& op, auto value_like, gq::schedule::any const& schedule) {
    using value = decltype(value_like);
    on_threads(3, [&](auto& hosts) {
      std::vector<value> x(length), y(length);
      auto const drawn = values(length, hosts.rank());
      for (std::size_t i = 0; i < length; ++i) x[i] = static_cast<value>(drawn[i]);
      gq::telemetry on_host{{.errors = true}}, on_stream{{.errors = true}};
      gq::allreduce_mean host{hosts, op, schedule, {.seed = 2, .telemetry = &on_host}};
      host(x, y, 5);
      gq::transport::staged workers{hosts, support::space()};
      gq::allreduce_mean stream{workers, op, schedule, {.seed = 2, .telemetry = &on_stream}};
      Kokkos::View<value*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const from(x.data(),
                                                                                                  length);
      auto const in = Kokkos::create_mirror_view_and_copy(support::space(), from);
      Kokkos::View<value*, support::space> out("out", length);
      stream(in, out, 5);
      stream.wait();
      gq::call_report const a = on_host.last(), b = on_stream.last();
      EXPECT_EQ(b.rounded, length);
      EXPECT_EQ(b.zeros, a.zeros);
      EXPECT_GT(a.error_energy, 0);
      // sums of 3e5 doubles in another order
      EXPECT_NEAR(b.energy, a.energy, 1e-9 * a.energy);
      EXPECT_NEAR(b.error_energy, a.error_energy, 1e-9 * a.error_energy);
      auto const theirs = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
      EXPECT_EQ(std::memcmp(theirs.data(), y.data(), length * sizeof(value)), 0)
          << "nothing else has changed";
    });
  };
  gq::quantizer const one_scale{gq::norm::linf{}, gq::levels::uniform{}, dice, gq::wire::int8{}};
  compare(one_scale, 0.0F, gq::schedule::any{"ring"});
  compare(integers, 0.0, gq::schedule::any{"sra"});
  compare(user_scales, gq::float16{}, gq::schedule::any{"allgather"});
}

TEST(Telemetry, no_mean_on_a_stream_has_no_errors) {
  on_threads(2, [&](auto& hosts) {
    gq::transport::staged workers{hosts, support::space()};
    gq::telemetry seen{{.errors = true}};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{}, dice, gq::wire::int8{}};
    gq::allreduce_mean mean{
        workers, op, gq::schedule::ring{}, {.non_finite = gq::non_finite::propagate, .telemetry = &seen}};
    Kokkos::View<float*, support::space> x("x", 1000);
    Kokkos::deep_copy(x, hosts.rank() == 0 ? std::numeric_limits<float>::infinity() : 1.0F);
    mean(x, 0);
    mean.wait();
    EXPECT_EQ(seen.last().rounded, 0U);
    EXPECT_EQ(seen.last().failed, 0U);
    expect_no_finite_result(seen, 0, "propagate");
    Kokkos::deep_copy(x, 1.0F);
    mean(x, 1);
    mean.wait();
    EXPECT_EQ(seen.take().non_finite, 0U);

    gq::allreduce_mean strict{
        workers, op, gq::schedule::ring{}, {.non_finite = gq::non_finite::error, .telemetry = &seen}};
    Kokkos::deep_copy(x, hosts.rank() == 1 ? std::numeric_limits<float>::infinity() : 1.0F);
    for (std::uint64_t step : {0, 1}) {  // vectors of a length that was not averaged before are waited for
      EXPECT_THROW((strict(x, step), strict.wait()), gq::non_finite_error);
      expect_no_finite_result(seen, 1, "error");
    }
  });
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
TEST(Telemetry, nothing_is_allocated_after_the_first_call) {
  std::size_t before = 0, after = 0;
  on_threads(2, [&](auto& workers) {
    gq::telemetry seen{{.errors = true}};
    gq::allreduce_mean mean{workers, integers, gq::schedule::any{"ring"}, {.telemetry = &seen}};
    auto x = values(5000, workers.rank());
    mean(x, 0);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) before = support::allocations;
    gq::transport::barrier(workers);
    mean(x, 1);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) after = support::allocations;
    gq::transport::barrier(workers);
  });
  EXPECT_EQ(after, before);
}
#endif

/// What profilers are told: the regions of this thread, joined by a bar where they are entered.
thread_local std::string open_regions, entered;

TEST(Telemetry, profilers_see_a_region_for_each_call_and_phase) {
  using namespace Kokkos::Tools::Experimental;
  set_push_region_callback([](char const* name) {
    open_regions += std::string("/") + name;
    entered += open_regions + "\n";
  });
  set_pop_region_callback([] { open_regions.erase(open_regions.rfind('/')); });
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, integers, gq::schedule::any{"sra"}};
    auto x = values(700, workers.rank());
    mean(x, 0);
    EXPECT_EQ(open_regions, "");
    std::string const call = "/globalq::allreduce_mean", moving = call + "/globalq::transfer";
    EXPECT_EQ(entered.substr(0, entered.find('\n')), call);
    for (std::string const& region :
         {call + "/globalq::norm", call + "/globalq::opening", moving, moving + "/globalq::encode",
          moving + "/globalq::reduce", moving + "/globalq::decode"})
      EXPECT_NE(entered.find(region + "\n"), std::string::npos) << region << " is not in\n" << entered;
    x.resize(workers.rank() == 0 ? 10 : 20);
    EXPECT_THROW(mean(x, 1), gq::disagreement_error);
    EXPECT_EQ(open_regions, "") << "a call that throws leaves its regions";
  });
  set_push_region_callback(nullptr);
  set_pop_region_callback(nullptr);
}

}  // namespace
