// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief GLOBALQ_FORCE_FLOAT32: every call averages in float32, whatever its operator, and says so.

#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/values.hpp"

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace gq = globalq;
using support::on_threads;
using support::same_bits;
using support::values;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

gq::rounding::stochastic const coins;
gq::quantizer const nine_levels{gq::norm::linf{.bucket = 1000}, gq::levels::uniform{9}, coins,
                                gq::wire::int8{}};
gq::quantizer const learned{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::table{0, 0.2, 1}, coins,
                            gq::wire::packed<3>{}};
constexpr std::size_t length = 5000;
constexpr int n = 3;

/// The variable, while this exists.
struct forced {
  explicit forced(char const* value = "1") { setenv("GLOBALQ_FORCE_FLOAT32", value, 1); }
  ~forced() { unsetenv("GLOBALQ_FORCE_FLOAT32"); }
};

/// What float32 gives: the expected result.
std::vector<float> plain(auto& workers, std::vector<float> x, char const* schedule, std::uint64_t step) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::any{schedule}};
  mean(x, step);
  return x;
}

TEST(ForceFloat32, means_are_those_of_float32_and_levels_may_still_be_set) {
  forced const now;
  for (char const* schedule : {"ring", "sra", "allgather", "tree"})
    on_threads(n, [&](auto& workers) {
      gq::telemetry seen;
      gq::allreduce_mean mean{workers, learned, gq::schedule::any{schedule}, {.seed = 4, .telemetry = &seen}};
      EXPECT_TRUE(mean.forced_to_float32());
      auto x = values(length, workers.rank());
      auto const expected = plain(workers, x, schedule, 1);
      mean(x, 1);
      EXPECT_TRUE(same_bits(x, expected)) << schedule;
      EXPECT_EQ(seen.last().uncompressed, 1U);
      EXPECT_GE(mean.plan(length).bits_per_value, 32);
      mean.set_levels(gq::levels::table{0, 0.1, 1});
      auto y = values(length, workers.rank());
      mean(y, 2);
      EXPECT_TRUE(same_bits(y, expected)) << schedule;
    });
}

TEST(ForceFloat32, nothing_and_zero_do_not_force) {
  for (char const* value : {"", "0"}) {
    forced const now(value);
    on_threads(2, [&](auto& workers) {
      gq::allreduce_mean mean{workers, nine_levels, gq::schedule::any{"ring"}};
      EXPECT_FALSE(mean.forced_to_float32());
    });
  }
}

TEST(ForceFloat32, objects_that_were_made_before_stay_what_they_are) {
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, nine_levels, gq::schedule::any{"ring"}};
    gq::transport::barrier(workers);
    if (workers.rank() == 0) setenv("GLOBALQ_FORCE_FLOAT32", "1", 1);
    gq::transport::barrier(workers);
    EXPECT_FALSE(mean.forced_to_float32());
    auto x = values(length, workers.rank());
    mean(x, 1);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) unsetenv("GLOBALQ_FORCE_FLOAT32");
    gq::transport::barrier(workers);
  });
}

TEST(ForceFloat32, one_worker_alone_is_an_error_that_names_the_variable) {
  auto const texts = support::complaints<gq::disagreement_error>(n, [&](auto& workers) {
    std::optional<gq::allreduce_mean<>> mean;
    for (int turn = 0; turn < n; ++turn) {  // the variable is one for all threads
      if (turn == workers.rank()) {
        if (turn == 1) setenv("GLOBALQ_FORCE_FLOAT32", "1", 1);
        mean.emplace(workers, nine_levels, gq::schedule::any{"ring"});
        if (turn == 1) unsetenv("GLOBALQ_FORCE_FLOAT32");
      }
      gq::transport::barrier(workers);
    }
    std::vector<float> x(10, 1.0F);
    (*mean)(x, 0);
  });
  for (int r = 0; r < n; ++r) {
    std::string const& text = texts[static_cast<std::size_t>(r)];
    EXPECT_THAT(text, HasSubstr("rank 1 differs from rank 0 in the operator"));
    EXPECT_EQ(text.find("GLOBALQ_FORCE_FLOAT32 was set when this worker made its operator") != text.npos,
              r == 1);
  }
}

TEST(ForceFloat32, what_else_workers_disagree_about_is_still_an_error_and_not_the_variables) {
  forced const now;
  auto const buckets = support::complaints<gq::disagreement_error>(n, [&](auto& workers) {
    gq::quantizer op = nine_levels;
    if (workers.rank() == 2) op.norm = gq::norm::linf{.bucket = 512};
    gq::allreduce_mean mean{workers, op, gq::schedule::any{"ring"}};
    std::vector<float> x(100000, 1.0F);
    mean(x, 0);
  });
  for (std::string const& text : buckets)
    EXPECT_THAT(text, HasSubstr("rank 2 differs from rank 0 in the operator"))
        << "vectors are cut by buckets";
  auto const lengths = support::complaints<gq::disagreement_error>(n, [&](auto& workers) {
    gq::allreduce_mean mean{workers, nine_levels, gq::schedule::any{"ring"}};
    std::vector<float> x(workers.rank() == 2 ? 10U : 20U, 1.0F);
    mean(x, 0);
  });
  for (std::string const& text : lengths)
    EXPECT_THAT(text, AllOf(HasSubstr("in the length"), Not(HasSubstr("GLOBALQ_FORCE_FLOAT32"))));
}

TEST(ForceFloat32, operators_of_run_time_tails_groups_and_the_native_schedule) {
  forced const now;
  on_threads(n, [&](auto& workers) {
    auto const x = values(length, workers.rank());
    auto const expect = [&](auto const& op, char const* schedule) {
      gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}};
      auto y = x;
      mean(y, 1);
      EXPECT_TRUE(same_bits(y, plain(workers, x, schedule, 1))) << schedule;
    };
    expect(gq::any_quantizer(learned), "ring");
    expect(gq::float32_tail(nine_levels), "allgather");
    expect(nine_levels, "native");
    gq::allreduce_mean mean{workers, nine_levels, gq::schedule::any{"allgather"}};
    auto a = x, b = values(700, workers.rank() + 10);
    auto const expected = plain(workers, b, "allgather", 2);
    mean(gq::vector_group{}.add(a).add(b), 1);
    EXPECT_TRUE(same_bits(a, plain(workers, x, "allgather", 1)));
    EXPECT_TRUE(same_bits(b, expected));
  });
}

TEST(ForceFloat32, on_a_stream_as_well) {
  forced const now;
  on_threads(2, [&](auto& hosts) {
    gq::transport::staged workers{hosts, support::space()};
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{}, coins, gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    EXPECT_TRUE(mean.forced_to_float32());
    Kokkos::View<float*, support::space> x("x", 300);
    Kokkos::deep_copy(x, 0.1F + static_cast<float>(hosts.rank()));
    mean(x, 0);
    mean.wait();
    auto const got = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
    for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(got(i), (0.1F + 1.1F) / 2);
  });
}

TEST(ForceFloat32, shards_stay_where_they_were) {
  on_threads(n, [&](auto& workers) {
    gq::reduce_scatter_mean const before{workers, nine_levels};
    gq::transport::barrier(workers);
    if (workers.rank() == 0) setenv("GLOBALQ_FORCE_FLOAT32", "1", 1);
    gq::transport::barrier(workers);
    gq::reduce_scatter_mean scatter{workers, nine_levels};
    gq::all_gather gather{workers, nine_levels};
    gq::any_quantizer const around{gq::centered{nine_levels}};
    gq::reduce_scatter_mean centered_scatter{workers, around};
    gq::all_gather centered_gather{workers, around};
    gq::segment const own = scatter.shard(length), was = before.shard(length);
    EXPECT_EQ(own.first, was.first);
    EXPECT_EQ(own.count, was.count);
    auto const expected = plain(workers, values(length, workers.rank()), "sra", 1);
    auto x = values(length, workers.rank());
    std::vector<float> shard(own.count);
    scatter(x, shard, 1);
    std::vector<float> const mine(expected.begin() + static_cast<std::ptrdiff_t>(own.first),
                                  expected.begin() + static_cast<std::ptrdiff_t>(own.first + own.count));
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_NEAR(shard[i], mine[i], 1e-6 * std::abs(mine[i]) + 1e-9);
    std::vector<float> centered(own.count), all(length), again(length);
    centered_scatter(values(length, workers.rank()), centered, 1);
    EXPECT_TRUE(same_bits(shard, centered)) << "midpoints were taken off";
    gather(shard, all, 2);
    centered_gather(shard, again, 2);
    EXPECT_TRUE(same_bits(all, again));
    EXPECT_TRUE(same_bits(shard, {all.begin() + static_cast<std::ptrdiff_t>(own.first),
                                  all.begin() + static_cast<std::ptrdiff_t>(own.first + own.count)}))
        << "gathering float32 changes nothing";
    gq::transport::barrier(workers);
    if (workers.rank() == 0) unsetenv("GLOBALQ_FORCE_FLOAT32");
    gq::transport::barrier(workers);
  });
}

TEST(ForceFloat32, layers_centered_means_nodes_and_compressors) {
  forced const now;
  on_threads(n, [&](auto& workers) {
    auto const x = values(length, workers.rank());
    auto const expected = plain(workers, x, "sra", 1);
    auto y = x;

    gq::allreduce_mean centered{workers, gq::any_quantizer{gq::centered{nine_levels, 1000}},
                                gq::schedule::any{"sra"}};
    centered(y, 1);
    EXPECT_TRUE(same_bits(y, expected)) << "centered";

    gq::adapt::model_layout model;
    model.add("weight", {40, 100}).add("head", {1000});
    std::vector<gq::any_quantizer> const ops{nine_levels, learned};
    gq::adapt::layered_mean layers{workers, model, ops, gq::schedule::any{"allgather"}, {}};
    EXPECT_TRUE(layers.forced_to_float32());
    EXPECT_EQ(layers.operator_name(0), "float32");
    y = x;
    layers.set_levels(1, gq::levels::table{0, 0.1, 1});
    layers(y, 1);
    EXPECT_TRUE(same_bits(y, plain(workers, x, "allgather", 1))) << "layered_mean";

    gq::telemetry seen;
    gq::baseline::error_feedback top(gq::baseline::top_k(model, {.density = 0.01}, {.telemetry = &seen}));
    y = x;
    top.reduce(workers, x, y, {}, 1);
    for (std::size_t i = 0; i < length; ++i)  // times 1/n instead of divided by n
      EXPECT_NEAR(y[i], expected[i], 0x1p-23 * std::abs(expected[i])) << "top_k";
    EXPECT_EQ(seen.last().uncompressed, 1U);

    gq::allreduce_mean nodes{workers, nine_levels, gq::schedule::hierarchical<gq::schedule::float32_sum>{2}};
    y = x;
    nodes(y, 1);
    for (std::size_t i = 0; i < length; ++i)
      EXPECT_NEAR(y[i], expected[i], 1e-6 * (std::abs(expected[i]) + 1)) << "float32_sum";
  });
}

}  // namespace
