// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: the product of all policies, and what must hold for each composition; for any transport.

#include "tests/support/cases.hpp"

#include <globalq/collective/allreduce_mean.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace matrix {

using namespace support;

// ---- the product

inline std::vector<composition> const& product() {
  static std::vector<composition> const all = [] {
    std::vector<composition> list;
    for (char const* norm : {"linf", "l:2,2", "l:1,1", "l:3,inf", "local:2", "local:inf", "fixed"})
      for (std::uint64_t bucket : {0U, 128U, 100U})
        for (char const* levels : {"uniform:1", "uniform:7", "uniform", "exponential", "exponential:3",
                                   "exponential:4:1.5", "table:0,0.1,0.4,1", "symmetric:0.1,0.3,0.6,1"})
          for (char const* rounding :
               {"stochastic", "random-shift", "random-shift-unshifted", "nearest", "correlated"})
            for (char const* wire :
                 {"int8", "int16", "int32", "packed:1", "packed:2", "packed:3", "packed:4", "packed:5",
                  "packed:6", "packed:7", "packed:8", "elias", "huffman", "sparse"})
              for (char const* reduce : {"auto", "sum", "exponential", "requantize"})
                for (char const* schedule :
                     {"ring", "tree", "sra", "allgather", "native", "hierarchical:2", "hierarchical:3"}) {
                  composition c{norm, bucket, levels, rounding, wire, reduce, schedule};
                  bool const made = c.norm != "fixed" || (c.levels.starts_with("uniform") &&
                                                          c.rounding == "stochastic" && c.reduce == "auto" &&
                                                          (c.wire == "int8" || c.wire.starts_with("packed")));
                  if (made) list.push_back(c);
                }
    return list;
  }();
  return all;
}

/// The operators of many compositions; one for those that differ in their schedule only.
class operators {
 public:
  /// Null where there is none.
  gq::any_quantizer const* find(composition const& c) {
    composition key = c;
    key.schedule.clear();
    auto const [at, is_new] = made_.try_emplace(key.text());
    if (is_new) {
      try {
        at->second.emplace(make_operator(c));
      } catch (gq::configuration_error const&) {
      }
    }
    return at->second ? &*at->second : nullptr;
  }
  gq::any_quantizer const& get(composition const& c) {
    gq::any_quantizer const* const found = find(c);
    if (found == nullptr) make_operator(c);  // throws
    return *found;
  }

 private:
  std::map<std::string, std::optional<gq::any_quantizer>> made_;
};

/// One run of one composition.
struct trial {
  composition what;
  int workers = 1;
  std::uint64_t length = 0;
  input kind = input::normal;
  gq::dtype type = gq::dtype::float32;
  std::uint64_t offset = 0;  ///< values before the start of the vector: an unaligned one
  std::uint64_t seed = 0;
  std::uint64_t chunks[2] = {256, 1000};

  std::string text() const {
    return what.text() + ", n = " + std::to_string(workers) + ", d = " + std::to_string(length) + ", " +
           name_of(kind) + ", " + gq::name_of(type) + ", offset " + std::to_string(offset);
  }
};

inline std::vector<std::uint64_t> lengths(int workers) {
  auto const n = static_cast<std::uint64_t>(workers);
  return {0, 1, 2, n - 1, n, n + 1, 63, 64, 65, 255, 256, 257, 1000, 1300};
}

/// Trials of world sizes @p sizes that see all pairs of choices that can be seen, and every @p stride -th composition.
inline std::vector<trial> sample(std::vector<int> const& sizes, std::size_t stride, std::size_t most,
                                 pair_cover* pairs = nullptr) {
  std::vector<composition> const& all = product();
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [](std::size_t a, std::size_t b) { return mix(a, 17) < mix(b, 17); });
  pair_cover seen;
  operators made;
  std::vector<trial> list;
  auto const index_of = [](std::map<std::string, int>& names, std::string const& name) {
    return names.try_emplace(name, static_cast<int>(names.size())).first->second;
  };
  std::map<std::string, int> names[7];
  for (std::size_t k = 0; k < order.size() && list.size() < most; ++k) {
    composition const& c = all[order[k]];
    std::uint64_t const h = mix(order[k], 99);
    trial t;
    t.what = c;
    t.workers = sizes[h % sizes.size()];
    std::size_t const length = (h >> 8) % 14;
    t.length = lengths(t.workers)[length];
    t.kind = inputs[(h >> 16) % std::size(inputs)];
    t.type = static_cast<gq::dtype>((h >> 24) % 4);
    t.offset = (h >> 32) % 2;
    t.seed = h;
    if (c.norm == "fixed" && t.kind == input::largest) continue;  // is refused: failure_test
    std::vector<int> const choice = {
        index_of(names[0], c.norm),     index_of(names[1], std::to_string(c.bucket)),
        index_of(names[2], c.levels),   index_of(names[3], c.rounding),
        index_of(names[4], c.wire),     index_of(names[5], c.reduce),
        index_of(names[6], c.schedule), t.workers,
        static_cast<int>(length),       static_cast<int>(t.kind),
        static_cast<int>(t.type),       static_cast<int>(t.offset)};
    gq::any_quantizer const* const op = made.find(c);
    bool const fits = op != nullptr && gq::plan_for(*op, gq::schedule::any{c.schedule}, t.workers, 1).fits;
    if (!fits) continue;
    if (seen.add(choice) > 0 || k % stride == 0) list.push_back(t);
  }
  std::stable_sort(list.begin(), list.end(),
                   [](trial const& a, trial const& b) { return a.workers < b.workers; });
  if (pairs != nullptr) *pairs = seen;
  return list;
}

// ---- what a result must be near to

/// The widest gap between neighboring levels, as a fraction of the norm.
inline double widest_gap(composition const& c, std::uint32_t levels) {
  if (c.levels.starts_with("uniform")) return 1.0 / levels;
  if (c.levels == "exponential:4:1.5") return 1.0 / 3;  // 1 - 1/1.5, above 1.5^-3
  if (c.levels.starts_with("exponential")) return levels == 1 ? 1.0 : 0.5;
  return c.levels.starts_with("table") ? 0.6 : 0.4;
}

/// ||v||_q of a bucket.
inline double norm_of(std::vector<double> const& v, std::uint64_t first, std::uint64_t end, double q) {
  double top = 0;
  for (std::uint64_t i = first; i < end; ++i) top = std::max(top, std::abs(v[i]));
  if (top == 0 || std::isinf(q)) return top;
  double sum = 0;
  for (std::uint64_t i = first; i < end; ++i) sum += std::pow(std::abs(v[i]) / top, q);
  return std::pow(sum, 1 / q) * top;
}

/// A bound on |result - mean| in one bucket that no random draw can break: every encoding errs by less than one gap.
/// @param units  norms of the workers (local) or the one norm, n times
inline double hard_bound(composition const& c, gq::method how, double gap, std::vector<double> const& units,
                         double values) {
  double const n = static_cast<double>(units.size()), all = std::accumulate(units.begin(), units.end(), 0.0);
  double const unit = units[0];
  if (units.size() == 1) return gap * unit;
  if (how == gq::method::none || how == gq::method::sum) return gap * all / n;
  bool const chain = c.schedule == "ring", nodes = c.schedule.starts_with("hierarchical");
  double const height = std::ceil(std::log2(n));
  if (how ==
      gq::method::exponential)  // an addition errs by less than its larger operand, which doubles at most
    // (nodes: an addition lies below n - 1 others at most, as in sra)
    return unit * (gap * n + (c.schedule == "tree" ? n / 2 * height : std::exp2(n - 1))) / n;
  if (!c.norm.starts_with("local")) {
    double const encodings =
        chain ? n * (n + 1) / 2 : (c.schedule == "sra" ? 2 * n : (nodes ? 3 * n : n * (1 + height)));
    return 2 * gap * unit * encodings / n;  // twice: a shift may be cut off at the norm
  }
  // local norms are measured again at every hop, and grow by the errors so far
  double const growth = 1 + gap * (c.norm == "local:2" ? std::sqrt(values) : 1.0);
  double reach = 0, error = 0;
  for (double u : units) {
    reach = reach * growth + u * growth;
    error += gap * reach + gap * u;
  }
  return error / n;
}

// ---- one trial on one worker

/// Execution spaces of a worker: what they are must not matter, so they differ from call to call and worker to worker.
struct spaces {
  Kokkos::Serial serial;
#if defined(KOKKOS_ENABLE_OPENMP)
  Kokkos::OpenMP one{1};
  Kokkos::OpenMP two{2};
#endif
};

using problems = std::vector<std::string>;

/// Runs f(mean) with an allreduce_mean on one of the spaces.
template <class T, class F>
void with_mean(T& workers, gq::any_quantizer const& op, composition const& c, gq::options const& settings,
               spaces const& on, int space, F const& f) {
  gq::schedule::any const schedule{c.schedule};
#if defined(KOKKOS_ENABLE_OPENMP)
  if (space % 3 == 1) {
    gq::allreduce_mean mean{workers, op, schedule, settings, on.one};
    return f(mean);
  }
  if (space % 3 == 2) {
    gq::allreduce_mean mean{workers, op, schedule, settings, on.two};
    return f(mean);
  }
#endif
  (void)space;
  gq::allreduce_mean mean{workers, op, schedule, settings, on.serial};
  f(mean);
}

template <class Value, class T>
void run_as(T& workers, gq::any_quantizer const& op, trial const& t, spaces const& on, problems& wrong) {
  int const rank = workers.rank(), n = workers.size();
  auto const complain = [&](std::string const& what) {
    wrong.push_back("rank " + std::to_string(rank) + ": " + what + " | " + t.text());
  };
  std::uint64_t const d = t.length;
  std::vector<Value> stored(d + t.offset), output(d + t.offset + 1, from_word<Value>(0x55));
  for (std::uint64_t i = 0; i < d; ++i) stored[i + t.offset] = value_at<Value>(t.kind, t.seed, rank, n, i, d);
  std::vector<Value> const before = stored;
  std::span<Value> const x(stored.data() + t.offset, d), y(output.data() + t.offset, d);
  std::uint64_t const step = t.seed >> 40;

  // out of place on Serial; then in place, on other spaces, in chunks
  gq::method how{};
  std::uint32_t levels = 0;
  with_mean(workers, op, t.what, {.seed = t.seed}, on, 0, [&](auto& mean) {
    how = mean.reduce();
    levels = mean.levels();
    mean(std::span<Value const>(x), y, step);
  });
  if (!same_bytes(stored, before)) complain("the input was changed");
  if (word_of(output.back()) != 0x55 || (t.offset == 1 && word_of(output[0]) != 0x55))
    complain("written beyond the output");
  std::vector<Value> const result(y.begin(), y.end());
  for (int again = 0; again < 2; ++again) {
    std::vector<Value> copy = before;
    std::span<Value> const z(copy.data() + t.offset, d);
    with_mean(workers, op, t.what, {.seed = t.seed, .chunk_values = t.chunks[again]}, on, rank + 1 + again,
              [&](auto& mean) { mean(z, step); });
    if (!same_bytes(z, result))
      complain("other bits in place, in chunks of " + std::to_string(t.chunks[again]) + ", on space " +
               std::to_string((rank + 1 + again) % 3));
  }

  // the same on every worker
  std::uint64_t const mine = hash_bytes(result.data(), d * sizeof(Value));
  std::vector<std::uint64_t> theirs(static_cast<std::size_t>(n));
  gq::transport::allgather_value(workers, mine, std::span(theirs));
  for (int r = 0; r < n; ++r)
    if (theirs[static_cast<std::size_t>(r)] != mine) complain("other bits than on rank " + std::to_string(r));

  // near the mean
  if (rank != 0 || d == 0 || d > 2000) return;
  if (t.kind == input::zeros) {
    for (Value v : result)
      if (word_of(v) != 0) return complain("zeros gave " + std::to_string(to_double(v)));
    return;
  }
  double const back =
      sizeof(Value) == 8 && t.kind == input::largest ? 0x1p64 : 1;  // norms of the largest double exceed it
  std::vector<std::vector<double>> inputs_of(static_cast<std::size_t>(n), std::vector<double>(d));
  for (int r = 0; r < n; ++r)
    for (std::uint64_t i = 0; i < d; ++i)
      inputs_of[static_cast<std::size_t>(r)][i] =
          to_double(value_at<Value>(t.kind, t.seed, r, n, i, d)) / back;
  std::size_t nans = 0;
  for (Value v : result) nans += word_of(v) == traits<Value>::nan ? 1 : 0;
  if (nans == d) {
    bool const may_exceed =
        t.kind == input::largest &&
        (t.what.norm != "linf" || t.what.rounding == "random-shift" || how == gq::method::exponential);
    if (!may_exceed) complain("a finite mean became NaN");
    return;
  }
  double const gap = widest_gap(t.what, levels);
  bool const local = t.what.norm.starts_with("local");
  double const q = t.what.norm == "l:2,2" || t.what.norm == "local:2"
                       ? 2
                       : (t.what.norm == "l:1,1" ? 1 : (t.what.norm == "l:3,inf" ? 3 : INFINITY));
  double const p = t.what.norm == "l:2,2" ? 2 : (t.what.norm == "l:1,1" ? 1 : INFINITY);
  std::uint64_t const width = t.what.bucket == 0 ? d : t.what.bucket;
  for (std::uint64_t first = 0; first < d; first += width) {
    std::uint64_t const end = std::min(first + width, d);
    std::vector<double> units;
    for (auto const& v : inputs_of) units.push_back(norm_of(v, first, end, q));
    if (t.what.norm == "fixed")
      std::fill(units.begin(), units.end(), fixed_scale / back);
    else if (!local)
      std::fill(units.begin(), units.end(), norm_of(units, 0, units.size(), p));
    double const error = hard_bound(t.what, how, gap, units, static_cast<double>(end - first));
    // float32 arithmetic in units of the norm, and the rounding of the result to its type
    double const reach = *std::max_element(units.begin(), units.end());
    for (std::uint64_t i = first; i < end; ++i) {
      double mean = 0;
      for (auto const& v : inputs_of) mean += v[i];
      mean /= n;  // of the sum: a subnormal divided loses bits
      double const r = to_double(result[i]) / back;
      double const slack = (n + 4) * reach * 0x1p-20 +
                           (std::abs(mean) + error) * std::exp2(-traits<Value>::digits) +
                           2 * traits<Value>::tiniest();
      if (!(std::abs(r - mean) <= error * 1.0001 + slack)) {
        complain("coordinate " + std::to_string(i) + " is " + std::to_string(r / reach) +
                 " where the mean is " + std::to_string(mean / reach) + " (of the norm), further than " +
                 std::to_string(error / reach));
        return;
      }
    }
  }
}

/// Runs one trial on one worker; appends what is wrong.
template <class T>
void run(T& workers, gq::any_quantizer const& op, trial const& t, spaces const& on, problems& wrong) {
  switch (t.type) {
    case gq::dtype::float64:
      return run_as<double>(workers, op, t, on, wrong);
    case gq::dtype::float16:
      return run_as<gq::float16>(workers, op, t, on, wrong);
    case gq::dtype::bfloat16:
      return run_as<gq::bfloat16>(workers, op, t, on, wrong);
    default:
      return run_as<float>(workers, op, t, on, wrong);
  }
}

/// One composition for each policy, for the longest vectors.
inline std::vector<composition> one_for_each_policy() {
  return {
      {"linf", 0, "uniform", "stochastic", "int8", "auto", "ring"},
      {"linf", 0, "uniform", "correlated", "int16", "auto", "native"},
      {"l:2,2", 0, "exponential", "stochastic", "int8", "auto", "tree"},
      {"l:1,1", 128, "uniform:7", "random-shift", "packed:4", "auto", "sra"},
      {"l:3,inf", 100, "table:0,0.1,0.4,1", "nearest", "packed:3", "auto", "allgather"},
      {"local:2", 0, "symmetric:0.1,0.3,0.6,1", "random-shift-unshifted", "packed:3", "requantize", "ring"},
      {"local:inf", 100, "exponential:4:1.5", "stochastic", "packed:8", "requantize", "tree"},
      {"fixed", 0, "uniform:7", "stochastic", "packed:5", "auto", "sra"},
      {"linf", 128, "exponential:3", "stochastic", "packed:6", "exponential", "sra"},
      {"linf", 0, "uniform:1", "stochastic", "packed:2", "requantize", "ring"},
      {"linf", 0, "uniform", "stochastic", "packed:7", "sum", "tree"},
      {"linf", 0, "symmetric:0.1,0.3,0.6,1", "stochastic", "int32", "auto", "sra"},
      {"local:2", 128, "table:0,0.1,0.4,1", "stochastic", "packed:3", "auto", "hierarchical:2"},
      {"linf", 0, "exponential", "stochastic", "int8", "auto", "hierarchical:3"},
      {"l:2,2", 0, "symmetric:1", "stochastic", "packed:1", "auto", "allgather"}};
}

}  // namespace matrix
