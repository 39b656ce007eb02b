// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: computes one choice from the tables of all workers, the same on every worker.
///
/// Worker 0 adds up the tables in the order of ranks, solves, and broadcasts the choice. If every worker ran the solver
/// itself, results could differ between machines whose sums differ in the last bit.

#include "../../transport/collectives.hpp"
#include "../../transport/compare_records.hpp"
#include "../../transport/root_decides.hpp"
#include "choices.hpp"

#include <memory>
#include <optional>

namespace GLOBALQ_ABI::adapt {

/// Numbers that must be equal on all workers besides the shape of the tables; 0 if not used.
struct agreement_facts {
  std::uint64_t step = 0;      ///< of the training
  std::uint64_t settings = 0;  ///< a hash of the solver's settings, for example of the reference
};

namespace detail {

/// A worker's part of the handshake that precedes the tables.
struct table_opening {
  std::uint64_t version, step, settings, layers, candidates,
      shape;  // shape: hash of the candidates of each layer
  std::uint64_t empty, unused;
};
static_assert(sizeof(table_opening) == 64 && std::is_trivially_copyable_v<table_opening>);

/// Worker 0 broadcasts this before the numbers of the candidates.
struct table_verdict {
  double cost, error, lower_bound;
  std::uint64_t optimal;
};

/// All memory that a transfer may still touch after an exchange has failed.
struct table_memory {
  std::vector<table_opening> openings;
  std::vector<candidate> sums, theirs;
  transport::decision<table_verdict> decision;
  std::vector<std::uint32_t> choices;
};

inline table_opening opening_of(choice_table const& table, agreement_facts const& facts) {
  table_opening o{
      1, facts.step, facts.settings, table.size(), table.all().size(), 0xcbf29ce484222325U, table.empty(), 0};
  for (std::size_t l = 0; l < table.size(); ++l)
    o.shape = (o.shape ^ table[l].size()) * 0x100000001b3U;  // FNV-1a
  return o;
}

/// Throws the same error on every worker if two workers differ.
inline void check(std::span<table_opening const> all) {
  transport::compare_records<table_opening> const compare("adapt::agree", all);
  compare("step", [](auto const& o) { return o.step; });
  compare("the settings", [](auto const& o) { return o.settings; });
  for (table_opening const& o : all)
    if (o.empty != 0) return;  // an empty table has no shape
  compare("the number of layers", [](auto const& o) { return o.layers; });
  compare("the number of candidates", [](auto const& o) { return o.candidates; });
  compare("a table whose candidates are spread over layers in the way",
          [](auto const& o) { return o.shape; });
}

/// Computes on worker 0 the mean cost and the sum of errors of all workers; receives from one after the other.
template <Transport T>
void collect(T& t, choice_table const& mine, table_memory& m) {
  m.sums.assign(mine.all().begin(), mine.all().end());
  if (t.rank() != 0) {
    auto outgoing = t.send_async(0, std::as_bytes(std::span(m.sums)));
    t.wait(outgoing);
    return;
  }
  m.theirs.resize(m.sums.size());
  for (int r = 1; r < t.size(); ++r) {
    auto incoming = t.recv_async(r, std::as_writable_bytes(std::span(m.theirs)));
    t.wait(incoming);
    for (std::size_t k = 0; k < m.sums.size(); ++k) {
      m.sums[k].cost += m.theirs[k].cost;
      m.sums[k].error += m.theirs[k].error;
    }
  }
  for (candidate& c : m.sums) c.cost /= t.size();
}

/// Runs the solver on the sums; fills in the choices.
template <class Solver>
table_verdict judge(choice_table const& mine, Solver const& solver, table_memory& m) {
  choice_table all;
  std::size_t first = 0;
  for (std::size_t l = 0; l < mine.size(); first += mine[l].size(), ++l)
    all.add(std::span<candidate const>(m.sums).subspan(first, mine[l].size()), mine.name(l));
  selection const s = solver(std::as_const(all));
  static_cast<void>(all.cost(s.choices));  // throws if a choice does not exist, so that all workers report it
  std::copy(s.choices.begin(), s.choices.end(), m.choices.begin());
  return {s.cost, s.error, s.lower_bound, s.optimal ? 1U : 0U};
}

}  // namespace detail

/// @brief Adds up the tables of all workers, solves on worker 0, and returns the same choice on all workers.
///
/// Errors are added and costs averaged (bytes are the same on all workers). Compute the budget from the table that the
/// solver receives, which has the errors of all workers:
/// @code
/// auto const found = gq::adapt::agree(workers, table, [&](gq::adapt::choice_table const& all) {
///   return gq::adapt::lgreco{}(all, gq::adapt::budget_of(all, four_bits), four_bits);
/// });
/// @endcode
/// @param t       endpoint of this worker; all workers call
/// @param mine    this worker's table; empty if it has no finite gradients
/// @param solver  solver(table) -> selection; called only on worker 0
/// @param facts   other numbers that must be equal on all workers
/// @returns       the selection, the same bits on every worker; nothing, on every worker, if a worker's table was empty
/// @throws        the same on every worker: disagreement_error if workers differ in facts or in the shape of their
///                tables, before tables are sent; configuration_error with the solver's text if it throws anything;
///                transport_error
/// @complexity    16 bytes a candidate from each worker to worker 0, one after the other; 0.8 KiB and 4 bytes a layer
///                down a tree
template <Transport T, class Solver>
std::optional<selection> agree(T& t, choice_table const& mine, Solver const& solver,
                               agreement_facts const& facts = {}) {
  float_environment const exact;
  auto const memory = std::make_shared<detail::table_memory>();
  detail::table_memory& m = *memory;
  return transport::keeping(t, memory, [&]() -> std::optional<selection> {
    m.openings.resize(static_cast<std::size_t>(t.size()));
    transport::allgather_value(t, detail::opening_of(mine, facts), std::span(m.openings));
    detail::check(m.openings);
    for (detail::table_opening const& o : m.openings)
      if (o.empty != 0) return std::nullopt;
    detail::collect(t, mine, m);
    m.choices.resize(mine.size());
    detail::table_verdict const& v = transport::root_decides(t, m.decision, "adapt::agree: the solver",
                                                             [&] { return detail::judge(mine, solver, m); });
    transport::broadcast(t, 0, std::as_writable_bytes(std::span(m.choices)));
    return selection{m.choices, v.cost, v.error, v.lower_bound, v.optimal != 0};
  });
}

}  // namespace GLOBALQ_ABI::adapt
