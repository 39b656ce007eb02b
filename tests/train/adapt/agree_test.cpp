// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Workers end with the same choice, that of all their tables together, or with the same error.

#include <globalq/train/adapt/agree.hpp>
#include <globalq/train/adapt/lgreco.hpp>

#include "tests/support/on_threads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <random>

namespace gq = globalq;
namespace ad = globalq::adapt;
using testing::HasSubstr;

namespace {

/// A worker's own errors; the same costs everywhere.
ad::choice_table table_of(int rank, std::size_t layers = 12) {
  std::mt19937 draw(static_cast<std::uint32_t>(rank) + 11);
  ad::choice_table table;
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<ad::candidate> of;
    double const size = static_cast<double>(100 + 37 * l), norm = 1 + draw() % 1000 * 0x1p-7;
    for (std::size_t bits = 2; bits < 8 - l % 3; ++bits)
      of.push_back(
          {size * static_cast<double>(bits), norm * size * std::pow(4.0, -static_cast<double>(bits)) / 3});
    table.add(of, "fc" + std::to_string(l));
  }
  return table;
}

ad::selection solve(ad::choice_table const& all) {
  auto const four_bits = ad::uniform_choice(all, 2);
  return ad::lgreco{}(all, ad::budget_of(all, four_bits), four_bits);
}

/// f(endpoint) on n workers.
template <class F>
auto on_workers(int n, F const& f) {
  using result = std::decay_t<decltype(f(std::declval<gq::transport::threads::endpoint&>()))>;
  std::vector<result> all(static_cast<std::size_t>(n));
  support::on_threads(n, [&](auto& workers) { all[static_cast<std::size_t>(workers.rank())] = f(workers); });
  return all;
}

TEST(AgreeOnChoices, every_worker_gets_the_choice_of_all_tables) {
  for (int n = 1; n <= 9; ++n) {
    // in the order of ranks, as worker 0 adds
    ad::choice_table sum;
    std::vector<ad::choice_table> each;
    for (int r = 0; r < n; ++r) each.push_back(table_of(r));
    for (std::size_t l = 0; l < each[0].size(); ++l) {
      std::vector<ad::candidate> of(each[0][l].begin(), each[0][l].end());
      for (int r = 1; r < n; ++r)
        for (std::size_t c = 0; c < of.size(); ++c)
          of[c].error += each[static_cast<std::size_t>(r)][l][c].error;
      sum.add(of);
    }
    ad::selection const expected = solve(sum);
    int solved = 0;
    auto const all = on_workers(n, [&](auto& workers) {
      return ad::agree(workers, table_of(workers.rank()), [&](ad::choice_table const& whole) {
        ++solved;  // at one worker, so no lock
        EXPECT_EQ(workers.rank(), 0);
        EXPECT_EQ(whole.name(3), "fc3");
        return solve(whole);
      });
    });
    EXPECT_EQ(solved, 1);
    for (std::optional<ad::selection> const& s : all) {
      ASSERT_TRUE(s.has_value());
      EXPECT_EQ(s->choices, expected.choices);
      EXPECT_EQ(s->cost, expected.cost);
      EXPECT_EQ(s->error, expected.error);
      EXPECT_EQ(s->lower_bound, expected.lower_bound);
      EXPECT_EQ(s->optimal, expected.optimal);
    }
  }
}

TEST(AgreeOnChoices, the_choice_depends_on_every_worker) {
  // worker 2 alone finds the second layer hard
  auto const tables = [](int rank) {
    ad::choice_table t;
    t.add({{1, 1}, {2, 0.1}});
    t.add({{1, rank == 2 ? 50.0 : 1.0}, {2, 0.1}});
    return t;
  };
  auto const budget = [](ad::choice_table const& all) { return ad::lgreco{}(all, 5); };
  auto const all =
      on_workers(3, [&](auto& workers) { return ad::agree(workers, tables(workers.rank()), budget); });
  for (auto const& s : all) EXPECT_THAT(s->choices, testing::ElementsAre(0U, 1U));
}

TEST(AgreeOnChoices, an_empty_table_of_one_worker_leaves_all_without_a_choice) {
  for (int n : {1, 2, 5}) {
    auto const all = on_workers(n, [&](auto& workers) {
      ad::choice_table const mine = workers.rank() == n - 1 ? ad::choice_table() : table_of(workers.rank());
      return ad::agree(workers, mine, [](ad::choice_table const&) -> ad::selection {
        ADD_FAILURE() << "there is nothing to solve";
        return {};
      });
    });
    for (auto const& s : all) EXPECT_FALSE(s.has_value());
  }
}

TEST(AgreeOnChoices, all_workers_see_that_they_differ_before_anything_else_moves) {
  auto const expect = [](std::string const& text, auto const& body) {
    std::mutex lock;
    std::vector<std::uint64_t> sent;
    auto const all = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
      std::uint64_t const before = workers.bytes_sent();
      try {
        body(workers);
      } catch (...) {
        std::lock_guard const held(lock);
        sent.push_back(workers.bytes_sent() - before);
        throw;
      }
    });
    for (std::string const& e : all) {
      EXPECT_THAT(e, HasSubstr(text));
      EXPECT_EQ(e, all[0]);
    }
    ASSERT_EQ(sent.size(), 3U);
    for (std::uint64_t bytes : sent) EXPECT_LE(bytes, 2 * sizeof(ad::detail::table_opening));
  };
  expect("worker 0 has the number of layers 12 and worker 2 has 11",
         [](auto& workers) { ad::agree(workers, table_of(0, workers.rank() == 2 ? 11 : 12), solve); });
  expect("worker 0 has step 7 and worker 1 has 8", [](auto& workers) {
    ad::agree(workers, table_of(0), solve, {.step = workers.rank() == 1 ? 8U : 7U});
  });
  expect("the settings 1 and worker 1 has 2", [](auto& workers) {
    ad::agree(workers, table_of(0), solve, {.settings = workers.rank() == 1 ? 2U : 1U});
  });
  expect("the number of candidates 3 and worker 2 has 2", [](auto& workers) {
    ad::choice_table t;
    t.add({{1, 1}});
    t.add(std::vector<ad::candidate>(workers.rank() == 2 ? 1 : 2));
    ad::agree(workers, t, solve);
  });
  expect("candidates are spread over layers", [](auto& workers) {
    ad::choice_table t;
    std::vector<ad::candidate> const one(1), two(2);
    t.add(workers.rank() == 1 ? one : two);
    t.add(workers.rank() == 1 ? two : one);
    ad::agree(workers, t, solve);
  });
}

TEST(AgreeOnChoices, all_workers_get_the_error_of_the_solver) {
  auto const infeasible = support::complaints<gq::configuration_error>(4, [](auto& workers) {
    ad::agree(workers, table_of(0), [](ad::choice_table const& all) { return ad::lgreco{}(all, 1e-9); });
  });
  for (std::string const& e : infeasible) {
    EXPECT_THAT(e, HasSubstr("lgreco: no choice meets the error budget 1e-09"));
    EXPECT_EQ(e, infeasible[0]);
  }
  auto const unusable = support::complaints<gq::configuration_error>(3, [](auto& workers) {
    ad::agree(workers, table_of(0), [](ad::choice_table const& all) {
      return ad::selection{std::vector<std::uint32_t>(all.size(), 99), 0, 0, 0, false};
    });
  });
  for (std::string const& e : unusable) EXPECT_THAT(e, HasSubstr("choice 99 for fc0"));
  auto const short_choice = support::complaints<gq::configuration_error>(3, [](auto& workers) {
    ad::agree(workers, table_of(0), [](ad::choice_table const&) { return ad::selection{}; });
  });
  for (std::string const& e : short_choice) EXPECT_THAT(e, HasSubstr("0 choices for 12 layers"));
}

TEST(AgreeOnChoices, a_worker_that_never_comes_ends_in_an_error_by_the_deadline) {
  auto const all =
      support::complaints<gq::transport_error>(3, std::chrono::milliseconds(200), [](auto& workers) {
        if (workers.rank() != 1) ad::agree(workers, table_of(workers.rank()), solve);
      });
  EXPECT_FALSE(all[0].empty());
  EXPECT_FALSE(all[2].empty());
}

}  // namespace
