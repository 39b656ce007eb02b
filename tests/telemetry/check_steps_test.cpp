// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief GLOBALQ_CHECK_STEPS: a call object refuses steps whose random bits it has drawn before, on every worker.

#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/space.hpp"

#include <globalq/call/detail/used_steps.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace gq = globalq;
using support::on_threads;
using testing::AllOf;
using testing::HasSubstr;

namespace {

gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                       gq::wire::int8{}};

/// The variable, while this exists.
struct checked {
  explicit checked(char const* value = "1") { setenv("GLOBALQ_CHECK_STEPS", value, 1); }
  ~checked() { unsetenv("GLOBALQ_CHECK_STEPS"); }
};

constexpr char const* again =
    "draws random bits of an earlier call of this object (GLOBALQ_CHECK_STEPS is set)";

template <class Call>
void expect_refused(Call const& call, char const* step) {
  EXPECT_THAT(support::refusal(call), AllOf(HasSubstr(step), HasSubstr(again)));
}

TEST(CheckSteps, a_repeated_step_is_refused_on_every_worker_and_changes_nothing) {
  checked const now;
  auto const texts = support::complaints<gq::configuration_error>(3, [](auto& workers) {
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    std::vector<float> x(1000, static_cast<float>(workers.rank()));
    for (std::uint64_t step : {0U, 1U, 2U, 7U, 5U}) mean(x, step);
    std::vector<float> const before = x;
    expect_refused([&] { mean(x, 1); }, "step 1 ");
    EXPECT_EQ(x, before);
    mean(x, 6);
    mean(x, 7);
  });
  for (int r = 0; r < 3; ++r)
    EXPECT_THAT(
        texts[static_cast<std::size_t>(r)],
        AllOf(HasSubstr("allreduce_mean: rank " + std::to_string(r) + " of 3: step 7 "), HasSubstr(again)));
}

TEST(CheckSteps, nothing_and_zero_do_not_check) {
  for (char const* value : {"", "0"}) {
    checked const now(value);
    on_threads(2, [](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
      std::vector<float> x(10, 1.0F);
      for (int k = 0; k < 2; ++k) EXPECT_NO_THROW(mean(x, 3));
    });
  }
}

TEST(CheckSteps, the_error_of_one_worker_that_checks_reaches_the_others) {
  auto const texts = support::complaints<gq::error>(2, [](auto& workers) {
    std::optional<gq::allreduce_mean<>> mean;
    for (int turn = 0; turn < 2; ++turn) {  // the variable is one for all threads
      if (turn == workers.rank()) {
        if (turn == 1) setenv("GLOBALQ_CHECK_STEPS", "1", 1);
        mean.emplace(workers, op, gq::schedule::ring{});
        if (turn == 1) unsetenv("GLOBALQ_CHECK_STEPS");
      }
      gq::transport::barrier(workers);
    }
    std::vector<float> x(10, 1.0F);
    for (int k = 0; k < 2; ++k) (*mean)(x, 3);
  });
  EXPECT_THAT(texts[0], AllOf(HasSubstr("rank 1 refused its arguments (step 3 "), HasSubstr(again)));
  EXPECT_THAT(texts[1], AllOf(HasSubstr("rank 1 of 2: step 3 "), HasSubstr(again)));
}

TEST(CheckSteps, a_group_uses_a_step_for_each_vector) {
  checked const now;
  on_threads(2, [](auto& workers) {
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    std::vector<float> a(300, 1.0F), b(500, 2.0F), c(7, 3.0F);
    gq::vector_group group;
    group.add(a).add(b).add(c);
    mean(group, 10);
    for (std::uint64_t step : {8U, 9U, 10U, 12U}) expect_refused([&] { mean(group, step); }, "step ");
    expect_refused([&] { mean(a, 12); }, "step 12 ");
    EXPECT_NO_THROW(mean(group, 13));
    EXPECT_NO_THROW(mean(group, 7));
    EXPECT_NO_THROW(mean(gq::vector_group{}, 11)) << "no vectors, no random bits";
  });
}

TEST(CheckSteps, of_layers_shards_and_started_calls) {
  checked const now;
  on_threads(2, [](auto& workers) {
    std::vector<float> x(1000, static_cast<float>(workers.rank()));
    gq::adapt::model_layout const model = gq::adapt::model_layout().add("a", {300}).add("b", {700});
    gq::adapt::layered_mean layers{
        workers, model, std::vector<gq::any_quantizer>{op, op}, gq::schedule::sra{}, {}};
    layers(x, 0);
    layers(x, 1);
    expect_refused([&] { layers(x, 1); }, "layered_mean: rank");
    EXPECT_NO_THROW(layers(x, 2));
    gq::reduce_scatter_mean scatter{workers, op};
    scatter(x, 4);
    expect_refused([&] { scatter(x, 4); }, "reduce_scatter_mean: rank");
    gq::all_gather gather{workers, op};
    gather(x, 4);
    expect_refused([&] { gather(x, 4); }, "all_gather: rank");
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    mean.start(x, 0).wait();
    expect_refused([&] { mean.start(x, 0).wait(); }, "step 0 ");
  });
}

TEST(CheckSteps, calls_that_drew_no_random_bits_are_not_counted) {
  checked const now;
  on_threads(2, [](auto& workers) {
    std::vector<float> x(100, 1.0F), unknown(100, NAN);
    gq::allreduce_mean plain{workers, gq::uncompressed{}, gq::schedule::ring{}};
    for (int k = 0; k < 2; ++k) EXPECT_NO_THROW(plain(x, 0));
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    mean(unknown, 0);
    EXPECT_NO_THROW(mean(x, 0)) << "the step of a call with NaN may be repeated";
  });
}

TEST(CheckSteps, on_a_stream_numbers_are_checked_and_views_are_not) {
  checked const now;
  on_threads(2, [](auto& hosts) {
    gq::transport::staged workers{hosts, support::space()};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    Kokkos::View<float*, support::space> const x("x", 300);
    Kokkos::deep_copy(x, 1.0F);
    mean(x, 0);
    mean.wait();
    expect_refused([&] { mean(x, 0); }, "step 0 ");
    Kokkos::View<std::uint64_t, support::space> const step("step");
    EXPECT_NO_THROW(mean(x, step));
    EXPECT_NO_THROW(mean.wait());
  });
}

TEST(CheckSteps, intervals_are_a_set_of_steps) {
  checked const now;
  std::mt19937 draw(1);
  gq::detail::used_steps used;
  std::set<std::uint64_t> expected;
  for (int k = 0; k < 2000; ++k) {
    std::uint64_t const first = draw() % 5000, count = draw() % 6;
    bool overlaps = false;
    for (std::uint64_t s = first; s < first + count; ++s) overlaps = overlaps || expected.contains(s);
    ASSERT_EQ(!used.refusal(first, count, first).empty(), overlaps) << first << " + " << count;
    used.add(first, count);
    for (std::uint64_t s = first; s < first + count; ++s) expected.insert(s);
  }
  for (std::uint64_t s = 0; s < 5010; ++s)
    ASSERT_EQ(!used.refusal(s, 1, s).empty(), expected.contains(s)) << s;
}

}  // namespace
