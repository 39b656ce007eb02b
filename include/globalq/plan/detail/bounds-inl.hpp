// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: definitions of bounds.hpp.

#include "bounds.hpp"

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL bool is_chain(schedule_facts const& s, int workers) {
  return s.height == workers - 1 && s.roundings == 0;
}

GLOBALQ_DECL bool needs_additions(resolution const& r, schedule_facts const& s, int workers) {
  if (workers == 1) return false;
  return r.how == method::exponential || (encodes_sums(r.how, s) && !s.one_addition && !is_chain(s, workers));
}

GLOBALQ_DECL double expected_gain(operator_facts const& op, resolution const& r, schedule_facts const& s,
                                  int vectors) {
  bool const once = encodes_sums(r.how, s) && s.one_addition;
  if (op.gain == nullptr || !op.evenly_spaced || !op.shares_norm() || vectors < 2 ||
      (s.combines && r.how != method::sum && !once))
    return 1;
  double const all = op.gain(static_cast<std::uint32_t>(vectors));
  if (!once) return all;
  // the owner of a segment does not encode its own values: one worker fewer, with the same covariances
  return 1 / (1 + (1 / all - 1) * (vectors - 2) / (vectors - 1));
}

/// Bound on norm / Euclidean norm.
inline double excess(std::uint32_t order, double count) {
  double const inverse = order == infinity ? 0.0 : 1.0 / order;
  return std::pow(count, std::max(0.0, inverse - 0.5));
}
inline double values_of_bucket(operator_facts const& op, std::uint64_t length) {
  return static_cast<double>(op.bucket == 0 ? length : std::min(op.bucket, length));
}

/// @param size  levels above zero
inline bound_terms terms_of(operator_facts const& op, std::uint32_t size, bool shifts, int workers) {
  bound_terms t;
  t.binary = op.binary;
  t.evenly_spaced = op.evenly_spaced;
  t.zero_free = op.zero_free;
  t.shifts = shifts;
  if (!op.has_codes()) {
    // relative to the largest value: see float_scale_of()
    float_format const format = format_of(op.floats.type);
    t.spread = format.omega;
    t.first = std::ldexp(
        1.0, format.gap + (format.range == 0 ? 60 : growth_of_sums(workers, format) - format.range));
  } else if (op.evenly_spaced) {
    t.first = 1.0 / size;
  } else if (op.binary) {
    t.first = std::pow(2.0, 1.0 - size);
    t.spread = 1.0 / 8;
  } else {
    t.first = op.magnitudes.front();
    for (std::size_t k = 1; k < op.magnitudes.size(); ++k) {
      double const ratio = op.magnitudes[k] / op.magnitudes[k - 1];
      t.spread = std::max(t.spread, (ratio - 1) * (ratio - 1) / (4 * ratio));
    }
  }
  return t;
}

/// The relative variance of one encoding under a local norm.
inline double local_encoding(operator_facts const& op, bound_terms const& t, std::uint64_t length) {
  double const d = values_of_bucket(op, length),
               found = t.encoding(d, excess(op.q, d) * growth_of_scale(op.q), 1);
  if (op.q.byte != scale_byte::e4m3) return found;
  // with two levels, no scale is below a fraction of the vector's largest value; doubled: scales of sums are rounded up
  double const quantum = static_cast<double>(op.q.quantum),
               smallest = std::ldexp(quantum, -9 - exponent_of(448 * quantum));
  return found + 2 * t.first * smallest * std::sqrt(static_cast<double>(length));
}

/// The variance of encoding the sum of n workers by the operator of sums, whose norms are local.
/// @param before  variance of the sum
inline double encoding_of_sums(operator_of_sums const& sums, int workers, std::uint64_t length,
                               double before) {
  bound_terms const t = terms_of(sums.facts, sums.alone.size, sums.facts.shifts, workers);
  return local_encoding(sums.facts, t, length) * (workers + before);
}

GLOBALQ_DECL double variance_bound(operator_facts const& op, resolution const& r, schedule_facts const& s,
                                   int workers, std::uint64_t length,
                                   std::vector<std::pair<int, int>> const& additions, double gain) {
  double const none = std::numeric_limits<double>::quiet_NaN();
  if (!op.rounds() || !op.unbiased || feedback_of(op.chain) != nullptr || op.fixed_scale > 0 ||
      op.user_norm != nullptr || (r.how == method::user && workers > 1) ||
      (op.has_sides() && !op.evenly_spaced))
    return none;  // errors relative to values are not bounded by those of midpoints and their distances
  if (length == 0 || (op.plain_tail && length < op.bucket)) return 0;
  if (s.encoders != 0) {
    // a node's vector v is its sum divided by the size of the largest node: sum ||v||^2 <= ||x||^2 / largest_node
    schedule_facts between = s;
    between.encoders = 0;
    return s.weight(workers) * variance_bound(op, r, between, s.encoders, length, additions, gain);
  }
  double const n = workers;
  double const d = values_of_bucket(op, length);
  bound_terms const t = terms_of(op, r.size, op.shifts && !keeps_scale_of_sums(op, r.how), workers);
  double const c = excess(op.q, d) * (op.local ? 1.0 : excess(op.p, n)) * growth_of_scale(op.q);
  double const under_local = op.local ? local_encoding(op, t, length) : 0;
  // the encodings of all workers' own values: D = n d coordinates under a global norm, d each under local norms
  double const omega =
      (op.local ? under_local : t.encoding(n * d, c, 1)) *
      (op.variance_factor == nullptr ? 1.0 : op.variance_factor(static_cast<std::uint32_t>(workers))) / gain;
  if (workers == 1 || r.how == method::sum || !s.combines) return omega / n;
  auto const slot = [](int rank) { return static_cast<std::size_t>(rank); };
  std::vector<double> terms(slot(workers), 1.0), variance(slot(workers), 0.0);
  if (r.how == method::exponential) {
    std::vector<double> sizes;
    for (auto const& [into, from] : additions) {
      terms[slot(into)] += terms[slot(from)];
      sizes.push_back(terms[slot(into)]);
    }
    // weight of a worker: the sum, over the sums v that contain it, of |v| (9/8)^(additions after v)
    std::vector<double> growth(slot(workers), 1.0), weight(slot(workers), 0.0);
    for (std::size_t k = additions.size(); k-- > 0;) {
      std::size_t const a = slot(additions[k].first), b = slot(additions[k].second);
      weight[a] += sizes[k] * growth[a];
      weight[b] = weight[a];
      growth[a] *= 9.0 / 8;
      growth[b] = growth[a];
    }
    double const most = *std::max_element(weight.begin(), weight.end());
    return omega / n + (1 + omega) / (8 * n) * most;
  }
  // an encoding of k terms has scale k under a global norm; under local norms its own norm; floats keep theirs
  auto const hop = [&](double k, double before) {
    double const m = k + before;
    return op.local ? under_local * m : t.encoding(d, op.has_codes() ? k * c : c, m);
  };
  double total = 0;
  if (s.one_addition) {
    total = omega +
            (op.of_sums == nullptr ? hop(n, omega) : encoding_of_sums(*op.of_sums, workers, length, omega));
  } else if (is_chain(s, workers)) {  // one worker's encoding, then one per hop
    total = hop(1, 0);
    for (int k = 2; k <= workers; ++k) total += hop(k, total);
  } else {
    // a tree: leaves encode (omega for all); each inner worker encodes its sum once, after all its children
    std::vector<int> last(slot(workers), -1);
    for (std::size_t k = 0; k < additions.size(); ++k) last[slot(additions[k].first)] = static_cast<int>(k);
    total = omega;
    for (std::size_t k = 0; k < additions.size(); ++k) {
      std::size_t const a = slot(additions[k].first), b = slot(additions[k].second);
      terms[a] += terms[b];
      variance[a] += variance[b];
      if (last[a] == static_cast<int>(k)) {
        double const added = hop(terms[a], omega + variance[a]);
        variance[a] += added;
        total += added;
      }
    }
  }
  return total / n;
}

}  // namespace GLOBALQ_ABI::detail
