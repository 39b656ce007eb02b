// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief advise: plans and evaluates the timed calls that confirm a choice.

#include "advise.hpp"

#include <algorithm>
#include <utility>

namespace globalq_advisor {
namespace {

using gq::model::detail::time_text;

/// A chunk size must be this many times as fast as the default to be selected.
constexpr double least_gain_of_chunks = 1.1;

trial const* fastest_of(std::vector<trial> const& all, std::string const& name) {
  trial const* best = nullptr;
  for (trial const& t : all) {
    if (t.name != name) continue;
    // the first trial has the default chunk size
    if (best == nullptr || t.seconds * (best->chunk_values == 0 ? least_gain_of_chunks : 1) < best->seconds)
      best = &t;
  }
  return best;
}

}  // namespace

void plan_trials(advice& a, costs const& found) {
  constexpr double most_seconds = 0.5;
  constexpr std::uint64_t most_values = std::uint64_t{1} << 22;
  std::uint64_t values = 0;
  for (layer const& l : a.asked.layers) values += l.length;
  double const share = most_seconds / std::max(a.float32_seconds, most_seconds);
  a.tried_values =
      std::min({values, most_values, static_cast<std::uint64_t>(static_cast<double>(values) * share) + 1});
  row const& use = a.chosen();
  a.trials = {{use.name, use.schedule}};
  auto const op = std::find_if(found.operators.begin(), found.operators.end(),
                               [&](auto const& m) { return m.name == use.name; });
  int const n = found.net.workers();
  gq::schedule::any const schedule{std::string_view(use.schedule)};
  std::uint64_t const usual = gq::detail::chunk_of(
      op->facts, gq::detail::resolve(op->facts, schedule.facts(n), n), 0, found.shape.chunk_bytes);
  // chunks that exceed the segments of the vector change nothing
  for (std::uint64_t const chunk : {usual / 4, usual, usual * 4})
    if (chunk != 0 && chunk != usual &&
        std::min(chunk, usual) < a.tried_values / static_cast<std::uint64_t>(schedule.parts(n)))
      a.trials.push_back({use.name, use.schedule, chunk});
  auto const plain =
      std::find_if(a.rows.begin(), a.rows.end(), [](row const& r) { return r.name == "float32"; });
  if (a.compresses()) a.trials.push_back({plain->name, plain->schedule});
}

void confirm(advice& a) {
  trial const* const own = fastest_of(a.trials, a.chosen().name);
  trial const* const plain = fastest_of(a.trials, "float32");
  if (own == nullptr) return;
  a.rows.front().chunk_values = own->chunk_values;
  if (own == plain || plain == nullptr || own->seconds <= plain->seconds) return;
  row& rejected = a.rows.front();
  rejected.what = row::verdict::slower;
  rejected.chunk_values = 0;
  rejected.why = "slower than float32 when measured: " + time_text(own->seconds) + " instead of " +
                 time_text(plain->seconds) + " with " + std::to_string(a.tried_values) + " values";
  auto const use =
      std::find_if(a.rows.begin(), a.rows.end(), [](row const& r) { return r.name == "float32"; });
  use->what = row::verdict::chosen;
  use->why = "the fastest when measured";
  std::rotate(a.rows.begin(), use, use + 1);
}

}  // namespace globalq_advisor
