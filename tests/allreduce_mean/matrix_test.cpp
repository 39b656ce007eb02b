// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Every composition of the policies is refused with a remedy, or keeps the promises, on threads.

#include "matrix.hpp"

#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <span>
#include <string_view>

namespace gq = globalq;
using namespace matrix;

namespace {

#if defined(GLOBALQ_TEST_REPRESENTATIVES)
constexpr std::size_t most = 300;
#else
constexpr std::size_t most = 100'000;
#endif

/// Beside the compositions that see a new pair of choices one of this many runs; with GLOBALQ_TESTS_IN_FULL=ON all of them.
std::size_t stride() {
#if defined(GLOBALQ_TEST_REPRESENTATIVES)
  return 1'000'000;
#else
  char const* const full = std::getenv("GLOBALQ_TESTS_IN_FULL");
  return full != nullptr && std::string_view{full} == "ON" ? 1 : 8;
#endif
}

void report(std::vector<problems> const& all) {
  std::size_t shown = 0, count = 0;
  for (auto const& of_worker : all) count += of_worker.size();
  for (auto const& of_worker : all)
    for (auto const& text : of_worker)
      if (shown++ < 20) ADD_FAILURE() << text;
  EXPECT_EQ(count, 0U);
}

void run_on_threads(std::vector<trial> const& trials) {
  operators made;
  std::size_t next = 0;
  while (next < trials.size()) {
    int const n = trials[next].workers;
    std::vector<std::pair<trial const*, gq::any_quantizer const*>> group;
    for (; next < trials.size() && trials[next].workers == n; ++next)
      group.emplace_back(&trials[next], &made.get(trials[next].what));
    std::vector<problems> wrong(static_cast<std::size_t>(n));
    gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
    trial const* current = nullptr;
    try {
      cluster.run([&](auto& workers) {
        spaces const on;
        for (auto const& [t, op] : group) {
          if (workers.rank() == 0) current = t;
          run(workers, *op, *t, on, wrong[static_cast<std::size_t>(workers.rank())]);
        }
      });
    } catch (std::exception const& e) {
      ADD_FAILURE() << e.what() << " | " << (current == nullptr ? "" : current->text());
    }
    report(wrong);
  }
}

/// Empty when the composition fits.
std::string refusal_of(composition const& c, int workers) {
  try {
    return gq::plan_for(make_operator(c), gq::schedule::any{c.schedule}, workers, 1).refusal;
  } catch (gq::configuration_error const& e) {
    return e.what();
  }
}

/// Follows the remedies that a refusal names, in turn; true when one of them leads to a composition that fits, if need be
/// by way of another refusal (the levels, then the wire).
bool a_remedy_works(composition const& c, int workers, std::string const& refusal, int more = 2) {
  auto const names = [&](char const* what) { return refusal.find(what) != std::string::npos; };
  auto const with = [&](auto const& change) {
    composition d = c;
    change(d);
    if (d.text() == c.text()) return false;
    std::string const next = refusal_of(d, workers);
    return next.empty() || (more > 0 && a_remedy_works(d, workers, next, more - 1));
  };
  // "use at most 31 levels"
  std::string const at_most = "use at most ";
  std::size_t const place = refusal.find(at_most);
  std::size_t const digits =
      place == std::string::npos
          ? 0
          : refusal.find_first_not_of("0123456789", place + at_most.size()) - place - at_most.size();
  if (digits > 0 && names(" level")) {
    bool const sized = c.levels.starts_with("uniform") ||
                       (c.levels.starts_with("exponential") && !c.levels.ends_with(":1.5"));
    if (!sized || with([&](composition& d) {
          d.levels =
              c.levels.substr(0, c.levels.find(':')) + ":" + refusal.substr(place + at_most.size(), digits);
        }))
      return true;
  }
  if (c.norm == "fixed" && names("int8")) return true;  // made for int8 only, see make_operator
  for (char const* wire : {"int8", "int16", "int32", "packed:2"})
    if ((names(wire) || (names("packed with 2 bits") && wire[0] == 'p')) &&
        with([&](composition& d) { d.wire = wire; }))
      return true;
  for (char const* schedule : {"ring", "tree", "sra", "allgather"})
    if (names(schedule) && with([&](composition& d) { d.schedule = schedule; })) return true;
  for (char const* reduce : {"requantize", "exponential"})
    if (names(reduce) && with([&](composition& d) { d.reduce = reduce; })) return true;
  // "whatever fits" instead of the levels named
  return (names("global norm") && with([&](composition& d) { d.norm = "linf"; })) ||
         ((names("levels::uniform") || names("uniform levels")) &&
          with([&](composition& d) { d.levels = "uniform"; })) ||
         (names("levels::exponential") && with([&](composition& d) { d.levels = "exponential"; }));
}

/// What became of a part of the product.
struct outcome {
  std::size_t planned = 0, refused = 0;
  std::set<std::string> followed;  ///< refusals whose remedies were tried
};

/// Plans compositions, which fit or are refused with a remedy that works.
outcome plan_all(std::span<composition const> part) {
  outcome o;
  std::size_t shown = 0;
  operators made;
  auto const complain = [&](composition const& c, int n, std::string const& why) {
    if (shown++ < 20) ADD_FAILURE() << c.text() << " with " << n << ": " << why;
  };
  for (composition const& c : part) {
    gq::any_quantizer const* op = nullptr;
    try {
      op = &made.get(c);
    } catch (gq::configuration_error const& e) {
      std::string const text = e.what();
      ++o.refused;
      if (text.find("use ") == std::string::npos && text.find("give ") == std::string::npos &&
          text.find("pair with") == std::string::npos)
        complain(c, 0, text);
      continue;
    }
    for (int n : {1, 2, 3, 9, 64, 200}) {
      if (n != 3 && mix(o.refused + o.planned, static_cast<std::uint64_t>(n)) % 4 != 0) continue;
      gq::plan const p = gq::plan_for(*op, gq::schedule::any{c.schedule}, n, 1000);
      if (p.fits) {
        ++o.planned;
        if (p.levels < 1 || (n > 1 && p.bytes_sent == 0) || !(p.bits_per_value > 0))
          complain(c, n, "the plan is empty");
        continue;
      }
      ++o.refused;
      if (p.refusal.find("use ") == std::string::npos) complain(c, n, "no remedy: " + p.refusal);
      if (p.refusal.find("at most 0") != std::string::npos) complain(c, n, p.refusal);
      if (o.followed.insert(p.refusal).second && !a_remedy_works(c, n, p.refusal))
        complain(c, n, "the remedy does not help: " + p.refusal);
    }
  }
  return o;
}

TEST(Matrix, every_composition_fits_or_is_refused_with_a_remedy_that_works) {
  std::span<composition const> const all = product();
  std::size_t const half = all.size() / 2;
  auto second = std::async(std::launch::async, [&] { return plan_all(all.subspan(half)); });
  outcome o = plan_all(all.first(half));
  outcome other = second.get();
  o.planned += other.planned;
  o.refused += other.refused;
  o.followed.merge(other.followed);
  EXPECT_GT(o.planned, 10'000U);
  EXPECT_GT(o.refused, 10'000U);
  RecordProperty("planned", static_cast<int>(o.planned));
  RecordProperty("refused", static_cast<int>(o.refused));
  RecordProperty("remedies_followed", static_cast<int>(o.followed.size()));
}

TEST(Matrix, what_fits_keeps_the_promises_on_one_to_nine_threads) {
  pair_cover pairs;
  std::vector<trial> const trials = sample({1, 2, 3, 4, 5, 6, 7, 8, 9}, stride(), most, &pairs);
  RecordProperty("trials", static_cast<int>(trials.size()));
  RecordProperty("pairs", static_cast<int>(pairs.size()));
  run_on_threads(trials);
}

TEST(Matrix, long_vectors_keep_the_promises) {
  std::vector<trial> trials;
  std::uint64_t seed = 1;
  for (composition const& c : one_for_each_policy()) {
    trial t;
    t.what = c;
    t.workers = 3;
    t.length = 1'000'003;
    t.type = static_cast<gq::dtype>(seed % 4);
    t.offset = seed % 2;
    t.seed = seed++;
    t.chunks[0] = 100'000;
    t.chunks[1] = 333'333;
    trials.push_back(t);
  }
  run_on_threads(trials);
}

}  // namespace
