// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Compressors over schedules that are known at run time only, moved and copied.

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/thc.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/schedule/any.hpp>

#include <optional>
#include <utility>

#include "tests/baseline/cases.hpp"
#include "tests/support/refusal.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;
using gq::schedule::hierarchical;

namespace {

// What a schedule is called is part of what workers compare; it lies in the schedule, which moves along with the compressor.
TEST(Schedules, compressors_that_were_moved_with_their_schedule_agree_and_give_the_mean) {
  auto const x = cases::inputs(5, 700);
  auto const best = cases::mean_of(x);
  auto const expect_mean = [&](auto const& make) {
    std::vector<vector> means(5);
    support::on_threads(5, [&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      auto made = std::make_optional(make());
      auto c = r % 2 == 0 ? std::move(*made) : *made;  // moved here, copied there
      made.reset();
      [[maybe_unused]] vector const other(4096, 3.0F);  // takes the memory that was given back
      means[r].resize(700);
      ASSERT_EQ(c.reduce(workers, x[r], means[r], {}, 0), cp::outcome::mean);
    });
    for (std::size_t r = 0; r < 5; ++r) {
      ASSERT_TRUE(cases::same_bits(means[r], means[0]));
      for (std::size_t i = 0; i < 700; ++i) ASSERT_NEAR(means[r][i], best[i], 1e-3);
    }
  };
  auto const layers = cases::one_layer(700);
  expect_mean([&] { return cp::send_first<hierarchical<>>{layers, {.gamma = 1}, {}, hierarchical<>{2}}; });
  expect_mean([&] {
    return cp::send_first<hierarchical<gq::schedule::tree, gq::schedule::ring>>{
        layers, {.gamma = 1}, {}, hierarchical<gq::schedule::tree, gq::schedule::ring>{3}};
  });
  expect_mean([&] {
    return cp::int_sgd<std::int8_t, gq::schedule::any>{layers, {}, {}, gq::schedule::any{"hierarchical:4"}};
  });
  expect_mean([&] {  // nodes of uneven sizes
    return cp::rand_k<hierarchical<>>{layers, {.density = 1, .unbiased = false}, {}, hierarchical<>{{2, 3}}};
  });
}

TEST(Schedules, nodes_of_another_number_of_workers_and_schedules_that_differ_are_refused_on_all_workers) {
  auto const layers = cases::one_layer(64);
  auto const texts = support::complaints<gq::configuration_error>(3, [&](auto& workers) {
    cp::send_first<hierarchical<>> c{layers, {}, {}, hierarchical<>{{2, 2}}};
    vector const x(64, 1.0F);
    vector mean(64);
    c.reduce(workers, x, mean, {}, 0);
  });
  for (auto const& t : texts) EXPECT_NE(t.find("nodes of 2+2 workers, and there are 3"), t.npos) << t;
  auto const differ = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
    cp::send_first<hierarchical<>> c{layers, {}, {}, hierarchical<>{workers.rank() == 1 ? 1 : 2}};
    vector const x(64, 1.0F);
    vector mean(64);
    c.reduce(workers, x, mean, {}, 0);
  });
  for (auto const& t : differ) EXPECT_NE(t.find("schedule"), t.npos) << t;
  EXPECT_EQ(support::refusal<gq::configuration_error>([&] {
              cp::thc<gq::schedule::any>{layers, {}, {}, gq::schedule::any{"native"}};
            }).find("globalq: thc: schedule native cannot"),
            0U);
}

// Each copy has memory of its own: a prototype may be copied into every thread.
TEST(Schedules, copies_of_one_compressor_may_be_called_at_the_same_time) {
  std::uint64_t const d = 20000;
  auto const x = cases::inputs(4, d);
  cp::top_k const prototype{cases::one_layer(d), {.density = 0.1}};
  auto const wanted = cases::run(x, [&] { return cp::top_k{cases::one_layer(d), {.density = 0.1}}; });
  support::on_threads(4, [&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    auto c = prototype;
    for (std::uint64_t step = 0; step < 20; ++step) {
      vector mean(d);
      c.reduce(workers, x[r], mean, {}, step);
      ASSERT_TRUE(cases::same_bits(mean, wanted.mean[0]));
    }
  });
}

}  // namespace
