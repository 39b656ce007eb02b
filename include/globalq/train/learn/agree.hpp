// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: computes levels from the statistics of all workers, the same bits on every worker.
///
/// Worker 0 adds up the statistics, solves, and broadcasts the levels. Solvers use logarithms and exponentials, which
/// differ between machines; so if every worker computed the levels itself, they could differ in their last bits.

#include "../../transport/collectives.hpp"
#include "../../transport/compare_records.hpp"
#include "../../transport/root_decides.hpp"
#include "normals.hpp"
#include "variance.hpp"

#include <cstddef>
#include <limits>
#include <memory>

namespace GLOBALQ_ABI::learn {

/// The result of an exchange, the same on every worker.
enum class learning_status : std::uint32_t {
  learned,           ///< there are new levels
  nothing_to_learn,  ///< no worker has a value other than zero
  non_finite         ///< a worker has NaN or infinity, so no worker learns
};

/// @brief The levels that all workers agreed on.
struct agreement {
  learning_status what = learning_status::nothing_to_learn;
  solution found;  ///< if learned
};

/// Numbers that must be equal on all workers besides the statistics' own settings; 0 if not used.
struct exchange_facts {
  std::uint64_t step = 0;    ///< of the training
  std::uint64_t length = 0;  ///< values of the vector
  std::uint64_t bucket = 0;
  std::uint32_t q = 0, p = 0;  ///< orders of the norm
  std::uint32_t settings = 0;  ///< a hash of other settings
};

namespace detail {

/// A worker's part of the handshake that precedes the statistics.
struct opening {
  std::uint64_t step, length, bucket;
  std::uint32_t q, p;
  std::uint32_t kind;           // 1: histogram, 2: normals, 3: norms
  std::uint32_t first, second;  // shape
  std::uint32_t weights;
  std::int32_t exponent;
  std::uint32_t settings;
  std::uint16_t non_finite, empty;
  std::uint32_t version;
};
static_assert(sizeof(opening) == 64 && std::is_trivially_copyable_v<opening>);

/// Worker 0 broadcasts this to all.
struct verdict {
  std::uint32_t count, zero_free, converged;
  std::int32_t iterations;
  double variance;
  double values[128];
};

/// All memory that a transfer may still touch after an exchange has failed.
struct memory {
  std::vector<opening> openings;
  std::vector<wide> sums, theirs;
  std::vector<normal_part> parts;
  transport::decision<verdict> decision;
};

inline opening opening_of(exchange_facts const& f) {
  opening o{};
  o.step = f.step;
  o.length = f.length;
  o.bucket = f.bucket;
  o.q = f.q;
  o.p = f.p;
  o.settings = f.settings;
  o.version = 1;
  return o;
}

/// Throws the same error on every worker if two workers differ.
inline void check(std::span<opening const> all) {
  transport::compare_records<opening> const compare("learn::agree", all);
  compare("the kind of statistics", [](opening const& o) { return o.kind; });
  compare("step", [](opening const& o) { return o.step; });
  compare("length", [](opening const& o) { return o.length; });
  compare("bucket", [](opening const& o) { return o.bucket; });
  compare("the settings (schedule, solver or stages), as hashes,",
          [](opening const& o) { return o.settings; });
  compare("norm order q", [](opening const& o) { return o.q; });
  compare("norm order p", [](opening const& o) { return o.p; });
  compare("weighting", [](opening const& o) { return o.weights; });
  compare("octaves or samples", [](opening const& o) { return o.first; });
  compare("fraction bits", [](opening const& o) { return o.second; });
}

/// Performs the handshake; throws if workers differ.
template <Transport T>
void open(T& t, opening const& mine, memory& m) {
  m.openings.resize(static_cast<std::size_t>(t.size()));
  transport::allgather_value(t, mine, std::span(m.openings));
  check(m.openings);
}

inline void describe(histogram const& h, opening& o) {
  o.kind = 1;
  o.first = h.shape().octaves;
  o.second = h.shape().fraction_bits;
  o.weights = static_cast<std::uint32_t>(h.weights());
  o.exponent = h.exponent();
  o.non_finite = h.non_finite();
  o.empty = h.empty();
}
inline void describe(normals const& s, opening& o) {
  o.kind = 2;
  o.first = s.samples();
  o.weights = static_cast<std::uint32_t>(s.weights());
  o.non_finite = s.non_finite();
  o.empty = s.empty();
}

/// Computes the histogram of all workers on worker 0. Sums are integers, so the order of additions does not matter.
template <Transport T>
void collect(T& t, histogram& h, memory& m) {
  int exponent = histogram::lowest();
  for (opening const& o : m.openings) exponent = std::max(exponent, o.exponent);
  h.raise_to(exponent);
  int const n = t.size(), rank = t.rank();
  m.sums.assign(h.sums().begin(), h.sums().end());
  m.theirs.resize(m.sums.size());
  for (int reach = 1; reach < n; reach *= 2) {
    if ((rank & reach) != 0) {
      auto outgoing = t.send_async(rank - reach, std::as_bytes(std::span(m.sums)));
      t.wait(outgoing);
      return;
    }
    if (rank + reach >= n) continue;
    auto incoming = t.recv_async(rank + reach, std::as_writable_bytes(std::span(m.theirs)));
    t.wait(incoming);
    for (std::size_t k = 0; k < m.sums.size(); ++k) m.sums[k] += m.theirs[k];
  }
  std::copy(m.sums.begin(), m.sums.end(), h.sums().begin());
}
/// Collects the parts of all workers, in order of ranks.
template <Transport T>
void collect(T& t, normals& s, memory& m) {
  std::size_t const each = s.samples();
  m.parts.assign(each * static_cast<std::size_t>(t.size()), {});
  auto const own = std::span(m.parts).subspan(each * static_cast<std::size_t>(t.rank()), each);
  std::copy_n(s.parts().begin(), std::min(each, s.parts().size()), own.begin());
  transport::allgather(t, std::as_bytes(own), std::as_writable_bytes(std::span(m.parts)));
  s = normals(s.samples(), s.weights());
  s.add(m.parts);
}

inline bins bins_of(histogram const& h) { return h.result(); }
inline bins bins_of(normals const& s) { return s.result(histogram{}.edges()); }

/// Runs the solver on the statistics.
/// @throws the solver's error; configuration_error for levels that no table accepts
template <class Statistics, class Solver>
verdict judge(Statistics const& all, Solver const& solver) {
  solution const s = solver(bins_of(all));
  if (s.levels.zero_free)
    static_cast<void>(s.levels.symmetric());
  else
    static_cast<void>(s.levels.table());
  verdict v{};
  v.count = static_cast<std::uint32_t>(s.levels.values.size());
  std::copy(s.levels.values.begin(), s.levels.values.end(), v.values);
  v.zero_free = s.levels.zero_free;
  v.converged = s.converged;
  v.iterations = s.iterations;
  v.variance = s.variance;
  return v;
}

/// Runs f(memory); the memory outlives it if transfers may still touch it.
template <Transport T, class F>
auto with_memory(T& t, F const& f) {
  auto const m = std::make_shared<memory>();
  return transport::keeping(t, m, [&] { return f(*m); });
}

}  // namespace detail

/// @brief Adds up the statistics of all workers, solves on worker 0, and returns the same levels on all workers.
///
/// @param t       endpoint of this worker; all workers call
/// @param mine    a histogram or normals; taken by value
/// @param solver  solver(bins) -> solution, such as optimal; called only on worker 0
/// @param facts   other numbers that must be equal on all workers
/// @throws        the same on every worker: disagreement_error if workers differ in settings or facts,
///                configuration_error if the solver throws or returns levels that no table accepts; transport_error
/// @complexity    for a histogram 32 bytes a bin to each of at most ceil(log2 n) workers; for normals 24 bytes a
///                sample, n - 1 times; 1.6 KiB down a tree
/// @determinism   levels are the same bits on every worker; those of a histogram do not depend on the order of the
///                workers
template <Transport T, class Statistics, class Solver>
agreement agree(T& t, Statistics mine, Solver const& solver, exchange_facts const& facts = {}) {
  float_environment const exact;
  return detail::with_memory(t, [&](detail::memory& m) {
    detail::opening o = detail::opening_of(facts);
    detail::describe(mine, o);
    detail::open(t, o, m);
    agreement a;
    bool nothing = true;
    for (detail::opening const& other : m.openings) {
      if (other.non_finite != 0) {
        a.what = learning_status::non_finite;
        return a;
      }
      nothing = nothing && other.empty != 0;
    }
    if (nothing) return a;
    detail::collect(t, mine, m);
    detail::verdict const& v = transport::root_decides(t, m.decision, "learn::agree: the solver",
                                                       [&] { return detail::judge(mine, solver); });
    a.what = learning_status::learned;
    a.found.levels.values.assign(v.values, v.values + v.count);
    a.found.levels.zero_free = v.zero_free != 0;
    a.found.variance = v.variance;
    a.found.iterations = v.iterations;
    a.found.converged = v.converged != 0;
    return a;
  });
}

}  // namespace GLOBALQ_ABI::learn
