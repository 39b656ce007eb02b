// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: CGX's rules for bits and buckets of layers: k-means, linear, and Bayesian search, within a budget.
///
/// The rules use the size of a layer and the norm of its accumulated gradient. They take tables whose candidates are in
/// order, the most compressed first, with the same number for each layer that has a choice. They check every proposal
/// against the table, so the result meets the budget. adapt::lgreco costs no more than any of them if it proves its
/// optimum (selection::optimal), and never more than a uniform choice.

#include "detail/gaussian_process.hpp"
#include "rule.hpp"

#include <cmath>
#include <numeric>
#include <optional>
#include <random>

namespace GLOBALQ_ABI::adapt {

/// A quantizer's parameters.
struct bits_and_bucket {
  std::uint32_t bits;
  std::uint64_t bucket;
  friend bool operator==(bits_and_bucket const&, bits_and_bucket const&) = default;
};

/// @brief Candidates for the rules: bits from least to most, with buckets that shrink by equal ratios, to powers of
///        two.
///
/// Layers that tolerate few bits tolerate large buckets, too.
/// @throws configuration_error unless 1 <= least <= most and 1 <= smallest <= largest
/// @source Markov 2024 (thesis), section 3.6: bit-widths and bucket sizes are mapped to layers linearly
inline std::vector<bits_and_bucket> bits_and_buckets(std::uint32_t least, std::uint32_t most,
                                                     std::uint64_t smallest, std::uint64_t largest) {
  if (least < 1 || most < least || smallest < 1 || largest < smallest || largest > std::uint64_t{1} << 48)
    throw configuration_error("globalq: bits_and_buckets: " + std::to_string(least) + " to " +
                              std::to_string(most) + " bits in buckets of " + std::to_string(smallest) +
                              " to " + std::to_string(largest) +
                              "; give both from small to large, and buckets of at most 2^48");
  double const from = std::log2(static_cast<double>(largest)), to = std::log2(static_cast<double>(smallest));
  std::vector<bits_and_bucket> all;
  for (std::uint32_t b = least; b <= most; ++b) {
    double const share = most == least ? 0.0 : static_cast<double>(b - least) / (most - least);
    double const power = std::round(from + share * (to - from));
    all.push_back({b, std::clamp(std::uint64_t{1} << static_cast<int>(power), smallest, largest)});
  }
  return all;
}

namespace detail {

/// The layers that have a choice, and the number of their candidates.
struct open_layers {
  std::vector<std::size_t> layer;
  std::uint32_t candidates = 1;
};

inline open_layers open_of(choice_table const& table, std::span<layer_point const> points,
                           std::string_view who) {
  std::string const rule = "globalq: " + std::string(who) + ": ";
  if (points.size() != table.size())
    throw configuration_error(rule + std::to_string(points.size()) + " points for " +
                              std::to_string(table.size()) + " layers; give size and norm of each layer");
  open_layers open;
  for (std::size_t l = 0; l < table.size(); ++l) {
    if (!is_finite(points[l].size) || !is_finite(points[l].norm) || points[l].size < 0 || points[l].norm < 0)
      throw configuration_error(rule + table.name(l) + " has size " + text_of(points[l].size) + " and norm " +
                                text_of(points[l].norm) + "; give finite numbers that are not negative");
    std::uint32_t const count = static_cast<std::uint32_t>(table[l].size());
    if (count == 1) continue;
    if (!open.layer.empty() && count != open.candidates)
      throw configuration_error(
          rule + table.name(l) + " has " + std::to_string(count) + " candidates and " +
          table.name(open.layer[0]) + " has " + std::to_string(open.candidates) +
          "; this rule needs the same number for all layers with a choice; adapt::lgreco does not");
    open.candidates = count;
    open.layer.push_back(l);
  }
  return open;
}

/// Logarithms scaled to [0, 1]; zeros count as the smallest positive number.
inline std::vector<double> on_unit(std::vector<double> x) {
  double least = 0, most = 0;
  for (double v : x)
    if (v > 0) least = least > 0 ? std::min(least, v) : v, most = std::max(most, v);
  for (double& v : x) v = most > least ? std::log(std::max(v, least) / least) / std::log(most / least) : 0.5;
  return x;
}

/// @brief Clusters of points in the plane: Lloyd's iteration from points far from each other.
/// @returns the cluster of each point; clusters are not empty, so there may be fewer than k
inline std::vector<std::size_t> kmeans(std::vector<std::array<double, 2>> const& x, std::size_t k) {
  auto const distance = [](auto const& a, auto const& b) {
    return (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]);
  };
  std::vector<std::size_t> of(x.size(), 0);
  if (x.empty()) return of;
  std::array<double, 2> middle{0, 0};
  for (auto const& p : x)
    for (std::size_t d = 0; d < 2; ++d) middle[d] += p[d] / static_cast<double>(x.size());
  std::vector<double> far(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) far[i] = distance(x[i], middle);
  std::vector<std::array<double, 2>> center;
  while (center.size() < k) {  // the point farthest from the middle, or from all centers so far
    std::size_t const i = static_cast<std::size_t>(std::max_element(far.begin(), far.end()) - far.begin());
    if (!center.empty() && far[i] == 0) break;
    bool const first = center.empty();
    center.push_back(x[i]);
    for (std::size_t j = 0; j < x.size(); ++j) {
      double const d = distance(x[j], x[i]);
      far[j] = first ? d : std::min(far[j], d);
    }
  }
  for (int round = 0; round < 100; ++round) {
    bool moved = round == 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::size_t best = 0;
      for (std::size_t c = 1; c < center.size(); ++c)
        if (distance(x[i], center[c]) < distance(x[i], center[best])) best = c;
      moved = moved || best != of[i];
      of[i] = best;
    }
    if (!moved) break;
    for (std::size_t c = 0; c < center.size(); ++c) {
      std::array<double, 2> sum{0, 0};
      double count = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (of[i] == c) sum[0] += x[i][0], sum[1] += x[i][1], count += 1;
      if (count > 0) center[c] = {sum[0] / count, sum[1] / count};
    }
  }
  // number the clusters without gaps
  std::vector<std::size_t> number(center.size(), center.size());
  std::size_t used = 0;
  for (std::size_t& c : of) {
    if (number[c] == center.size()) number[c] = used++;
    c = number[c];
  }
  return of;
}

/// @brief The cheapest linear map from places to candidates that meets the budget; nothing if none does.
///
/// Place p of k gets candidate low + (high - low) p / (k - 1), rounded; all pairs low <= high are tried.
/// @param place        of each open layer, in [0, places); the most compressible first
/// @param least_error  if not null, receives the smallest error of all maps
inline std::optional<selection> map_within(choice_table const& table, open_layers const& open,
                                           std::vector<std::size_t> const& place, std::size_t places,
                                           double budget, double* least_error = nullptr) {
  std::vector<std::uint32_t> best, choices(table.size(), 0);
  double cost = 0, least = std::numeric_limits<double>::max();
  for (std::uint32_t low = 0; low < open.candidates; ++low)
    for (std::uint32_t high = low; high < open.candidates; ++high) {
      for (std::size_t i = 0; i < open.layer.size(); ++i) {
        std::uint64_t const steps = places > 1 ? places - 1 : 1;
        std::uint64_t const twice = 2 * std::uint64_t{high - low} * place[i];
        choices[open.layer[i]] = low + static_cast<std::uint32_t>((twice + steps) / (2 * steps));
      }
      if (least_error != nullptr) *least_error = least = std::min(least, table.error(choices));
      if (!table.within(choices, budget)) continue;
      double const here = table.cost(choices);
      if (best.empty() || here < cost) best = choices, cost = here;
    }
  if (table.empty()) return selection{};
  if (best.empty()) return std::nullopt;
  return selection_of(table, std::move(best), 0, false);
}

/// The same; throws if no map meets the budget.
inline selection cheapest_map(choice_table const& table, open_layers const& open,
                              std::vector<std::size_t> const& place, std::size_t places, double budget,
                              std::string_view who) {
  double least_error = 0;
  auto found = map_within(table, open, place, places, budget, &least_error);
  if (!found)
    throw configuration_error(
        "globalq: " + std::string(who) + ": no choice meets the error budget " + text_of(budget) +
        ", the smallest error is " + text_of(least_error) +
        "; raise alpha, add candidates with more bits, or use adapt::lgreco, which tries more choices");
  return std::move(*found);
}

/// The cluster of each layer with a choice; clusters are in ascending order of norm minus size.
inline std::vector<std::size_t> ordered_clusters(open_layers const& open, std::span<layer_point const> points,
                                                 std::size_t k, std::size_t& clusters) {
  std::vector<double> size, norm;
  for (std::size_t l : open.layer) size.push_back(points[l].size), norm.push_back(points[l].norm);
  size = on_unit(std::move(size));
  norm = on_unit(std::move(norm));
  std::vector<std::array<double, 2>> plane;
  for (std::size_t i = 0; i < size.size(); ++i) plane.push_back({size[i], norm[i]});
  std::vector<std::size_t> of = kmeans(plane, k);
  clusters = of.empty() ? 0 : *std::max_element(of.begin(), of.end()) + 1;
  std::vector<double> rank(clusters, 0.0), count(clusters, 0.0);
  for (std::size_t i = 0; i < of.size(); ++i) rank[of[i]] += norm[i] - size[i], count[of[i]] += 1;
  for (std::size_t c = 0; c < clusters; ++c) rank[c] /= count[c];
  std::vector<std::size_t> order(clusters), place(clusters);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rank[a] < rank[b]; });
  for (std::size_t p = 0; p < clusters; ++p) place[order[p]] = p;
  for (std::size_t& c : of) c = place[c];
  return of;
}

inline void expect_budget(double budget, std::string_view who) {
  if (is_finite(budget) && budget >= 0) return;
  throw configuration_error("globalq: " + std::string(who) + ": the budget " + text_of(budget) +
                            " is negative or not finite; compute it with budget_of() from a reference");
}

}  // namespace detail

/// @brief CGX's k-means rule: layers of similar size and gradient norm share a candidate.
///
/// Clusters are sorted by norm minus size, both as logarithms scaled to [0, 1]: large layers with small gradients
/// first. The candidates are mapped to them linearly, as cheaply as the budget allows. The norm is that of the whole
/// accumulated gradient, as in the thesis' Algorithm 3.1; its text mentions the l2 norm of the gradient's top values.
/// @code
/// auto const four_bits = gq::adapt::uniform_choice(table, 2);
/// auto const found = gq::adapt::cgx_kmeans{}(table, points, gq::adapt::budget_of(table, four_bits, alpha));
/// @endcode
/// @source Markov 2024 (thesis), section 3.6 and Algorithm 3.1; scaling and the search for the map are ours
struct cgx_kmeans {
  std::uint32_t clusters = 0;  ///< at most; 0: the number of candidates

  /// @throws configuration_error if no map meets the budget, or if the table, the points or the budget are invalid
  selection operator()(choice_table const& table, std::span<layer_point const> points, double budget) const {
    detail::expect_budget(budget, "cgx_kmeans");
    detail::open_layers const open = detail::open_of(table, points, "cgx_kmeans");
    std::size_t found = 0;
    auto const place =
        detail::ordered_clusters(open, points, clusters == 0 ? open.candidates : clusters, found);
    return detail::cheapest_map(table, open, place, found, budget, "cgx_kmeans");
  }
};

/// @brief CGX's linear rule: sorts layers by norm over size and maps candidates to them linearly.
/// @source Markov 2024 (thesis), section 3.6
struct cgx_linear {
  /// @throws as cgx_kmeans
  selection operator()(choice_table const& table, std::span<layer_point const> points, double budget) const {
    detail::expect_budget(budget, "cgx_linear");
    detail::open_layers const open = detail::open_of(table, points, "cgx_linear");
    std::vector<std::size_t> order(open.layer.size()), place(open.layer.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    auto const ratio = [&](std::size_t i) {
      layer_point const& p = points[open.layer[i]];
      return p.size > 0 ? p.norm / p.size : 0;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ratio(a) < ratio(b); });
    for (std::size_t p = 0; p < order.size(); ++p) place[order[p]] = p;
    return detail::cheapest_map(table, open, place, order.size(), budget, "cgx_linear");
  }
};

/// @brief CGX's Bayesian search: a candidate for each k-means cluster, by a Gaussian process with expected improvement.
///
/// Starts from the uniform choices and from the result of the k-means rule for these clusters, and never costs more
/// than they do, nor than cgx_kmeans{} with its default number of clusters. A choice above the budget counts as more
/// costly than any other, and the more it exceeds the budget, the more costly.
/// @determinism  a function of the arguments on one machine
/// @source       Markov 2024 (thesis), section 3.6, which names the method only; Jones et al. 1998 (expected
///               improvement)
struct cgx_bayes {
  std::uint32_t clusters = 5;      ///< at most
  std::uint32_t evaluations = 48;  ///< of choices, from 2 to 256; the time grows with their cube
  std::uint64_t seed = 0;

  /// @throws as cgx_kmeans
  selection operator()(choice_table const& table, std::span<layer_point const> points, double budget) const {
    detail::expect_budget(budget, "cgx_bayes");
    if (clusters < 1 || evaluations < 2 || evaluations > 256)
      throw configuration_error("globalq: cgx_bayes: " + std::to_string(clusters) + " clusters and " +
                                std::to_string(evaluations) + " evaluations; give at least 1, and 2 to 256");
    detail::open_layers const open = detail::open_of(table, points, "cgx_bayes");
    std::size_t k = 0, default_k = 0;
    std::vector<std::size_t> const cluster = detail::ordered_clusters(open, points, clusters, k);
    selection const mapped = detail::cheapest_map(table, open, cluster, k, budget, "cgx_bayes");
    if (k == 0) return mapped;
    selection best = mapped;
    auto const default_place = detail::ordered_clusters(open, points, open.candidates, default_k);
    if (auto by_default = detail::map_within(table, open, default_place, default_k, budget))
      if (by_default->cost < best.cost) best = std::move(*by_default);

    std::uint32_t const most = open.candidates - 1;
    using assignment = std::vector<std::uint32_t>;
    std::vector<assignment> seen;
    std::vector<detail::gaussian_process::point> where;
    std::vector<double> values;
    auto const point_of = [&](assignment const& a) {
      detail::gaussian_process::point p;
      for (std::uint32_t c : a) p.push_back(static_cast<double>(c) / most);
      return p;
    };
    double const highest = table.cost(uniform(table, open, most));
    auto const evaluate = [&](assignment const& a) {
      if (std::find(seen.begin(), seen.end(), a) != seen.end()) return;
      std::vector<std::uint32_t> choices(table.size(), 0);
      for (std::size_t i = 0; i < open.layer.size(); ++i) choices[open.layer[i]] = a[cluster[i]];
      double const cost = table.cost(choices);
      bool const fits = table.within(choices, budget);
      if (fits && cost < best.cost) best = detail::selection_of(table, choices, 0, false);
      double const excess = budget > 0 ? std::min(table.error(choices) / budget, 1e6) : 1e6;
      seen.push_back(a);
      where.push_back(point_of(a));
      values.push_back(fits ? std::log1p(cost)
                            : std::log1p(std::max(highest, cost)) + std::log(std::max(excess, 1.0)));
    };
    assignment start(k);  // the map above; then the uniform choices
    for (std::size_t i = 0; i < open.layer.size(); ++i) start[cluster[i]] = mapped.choices[open.layer[i]];
    evaluate(start);
    for (std::uint32_t c = 0; c <= most && seen.size() < evaluations / 2; ++c) evaluate(assignment(k, c));

    std::mt19937_64 draw(seed);
    while (seen.size() < evaluations) {
      detail::gaussian_process const f(where, values);
      double const least = *std::min_element(values.begin(), values.end());
      assignment const center =
          seen[static_cast<std::size_t>(std::min_element(values.begin(), values.end()) - values.begin())];
      assignment next;
      double gain = -1;
      auto const consider = [&](assignment const& a) {
        if (std::find(seen.begin(), seen.end(), a) != seen.end()) return;
        if (double const g = f.expected_improvement(point_of(a), least); g > gain) gain = g, next = a;
      };
      for (std::size_t c = 0; c < k; ++c)
        for (int step : {-1, 1}) {
          assignment a = center;
          if ((step < 0 && a[c] == 0) || (step > 0 && a[c] == most)) continue;
          a[c] = static_cast<std::uint32_t>(static_cast<int>(a[c]) + step);
          consider(a);
        }
      for (int i = 0; i < 200; ++i) {
        assignment a(k);
        for (std::uint32_t& c : a) c = static_cast<std::uint32_t>(draw() % (std::uint64_t{most} + 1));
        consider(a);
      }
      if (next.empty()) break;  // every assignment was evaluated
      evaluate(next);
    }
    return best;
  }

 private:
  static std::vector<std::uint32_t> uniform(choice_table const& table, detail::open_layers const& open,
                                            std::uint32_t c) {
    std::vector<std::uint32_t> choices(table.size(), 0);
    for (std::size_t l : open.layer) choices[l] = c;
    return choices;
  }
};

}  // namespace GLOBALQ_ABI::adapt
