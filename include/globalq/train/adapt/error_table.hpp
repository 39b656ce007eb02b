// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: measures a table of choices on accumulated gradients; families Top-K and low rank, and your own.

#include "choices.hpp"
#include "detail/low_rank.hpp"
#include "gradient_accumulator.hpp"
#include "kept_values.hpp"

#include <functional>
#include <numeric>

namespace GLOBALQ_ABI::adapt {

/// @brief A method with a parameter: returns a layer's candidates, one for each value of the parameter.
///
/// Any function of a layer and its values; it may receive a layer of size zero. The families of this library are
/// quantizers() (quantizer_errors.hpp), top_k() and low_rank().
using family = std::function<std::vector<candidate>(layer const&, std::span<float const>)>;

/// @brief Another measure of a layer's error: sensitivity(layer, number of the candidate, values).
///
/// For example the loss of a model in which only this layer is compressed by this candidate. Must add up over layers.
using sensitivity = std::function<double(layer const&, std::size_t, std::span<float const>)>;

/// @brief Applies a family to every layer.
///
/// @param gradients  accumulated gradients
/// @param of         the family
/// @param compress   returns whether a layer may be compressed; others get float32 as their only candidate
/// @throws           configuration_error if an error or a cost is not between 0 and 2^900
/// @source           Markov 2024 (thesis), section 4.5; error feedback is off
inline choice_table measure(gradient_accumulator const& gradients, family const& of,
                            std::function<bool(layer const&)> const& compress = nullptr) {
  choice_table table;
  for (std::size_t l = 0; l < gradients.model().size(); ++l) {
    layer const& here = gradients.model()[l];
    if (compress && !compress(here))
      table.add({{4.0 * static_cast<double>(here.size), 0}}, here.name);
    else
      table.add(of(here, gradients.of(l)), here.name);
  }
  return table;
}

/// @brief The candidates of a family with errors by another measure.
/// @source Markov 2024 (thesis), section 4.6.4
inline family with_sensitivity(family of, sensitivity measure_by) {
  return [of = std::move(of), by = std::move(measure_by)](layer const& l, std::span<float const> x) {
    std::vector<candidate> all = of(l, x);
    for (std::size_t c = 0; c < all.size(); ++c) all[c].error = by(l, c, x);
    return all;
  };
}

namespace detail {

inline void expect_parameters(std::string_view who, std::span<double const> all, double most) {
  for (double p : all)
    if (!(p > 0 && p <= most))
      throw configuration_error("globalq: " + std::string(who) + ": the parameter " + text_of(p) +
                                " is not in (0, " + text_of(most) + "]");
  if (all.empty())
    throw configuration_error("globalq: " + std::string(who) + ": no parameters; give at least one");
}

}  // namespace detail

/// @brief The squared l2 norm of the dropped values if the k values of largest magnitude are kept, for each k.
/// @param kept  any order; at most the length
/// @complexity  O(length) expected, by selection; four bytes of memory a value
inline std::vector<double> top_k_errors(std::span<float const> values, std::span<std::uint64_t const> kept) {
  std::vector<std::uint32_t> magnitudes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) magnitudes[i] = bits_of(values[i]) & float_magnitude;
  std::vector<std::size_t> order(kept.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return kept[a] > kept[b]; });
  std::vector<double> errors(kept.size());
  // from the largest k to the smallest: dropped values stay dropped, and the selection continues among the others
  std::size_t left = magnitudes.size();
  double sum = 0;
  for (std::size_t which : order) {
    std::size_t const k = std::min<std::size_t>(static_cast<std::size_t>(kept[which]), left);
    if (k < left) {
      auto const begin = magnitudes.begin(), middle = begin + static_cast<std::ptrdiff_t>(k),
                 end = begin + static_cast<std::ptrdiff_t>(left);
      std::nth_element(begin, middle, end, std::greater<>());
      for (auto i = middle; i != end; ++i) {
        double const x = static_cast<double>(float_of(*i));
        sum += x * x;
      }
      left = k;
    }
    errors[which] = sum;
  }
  return errors;
}

/// @brief Top-K: one candidate for each density; its error is exact.
/// @param densities        shares of the values that are kept, in (0, 1]
/// @param bytes_per_value  bytes of a kept value: 8 for a float32 and a 32-bit position
inline family top_k(std::vector<double> densities, double bytes_per_value = 8) {
  detail::expect_parameters("top_k", densities, 1);
  return [=](layer const& l, std::span<float const> x) {
    std::vector<std::uint64_t> kept;
    for (double d : densities) kept.push_back(x.empty() ? 0 : kept_values(l.size, d));
    std::vector<double> const errors = top_k_errors(x, kept);
    std::vector<candidate> all;
    for (std::size_t k = 0; k < kept.size(); ++k)
      all.push_back({bytes_per_value * static_cast<double>(kept[k]), errors[k]});
    return all;
  };
}

/// @brief Low rank (PowerSGD): one candidate for each rank; a layer is the matrix of its rows().
///
/// The error is that of the best approximation of the rank that five power steps find. A rank that needs as many values
/// as the layer has counts as float32, with error 0.
/// @param ranks  at least 1
/// @complexity   O(size * largest rank) a layer, for all ranks together
/// @source       Markov 2024 (thesis), section 4.5; Vogels et al. 2019 (PowerSGD)
inline family low_rank(std::vector<std::uint32_t> ranks) {
  std::vector<double> const as_numbers(ranks.begin(), ranks.end());
  detail::expect_parameters("low_rank", as_numbers, 0x1p20);
  return [=](layer const& l, std::span<float const> x) {
    std::vector<candidate> all;
    std::uint64_t const rows = l.rows(), columns = l.columns(), whole = l.size;
    std::uint32_t largest = 0;  // of the ranks that save bytes
    for (std::uint32_t r : ranks)
      if (r * (rows + columns) < whole) largest = std::max(largest, r);
    std::vector<double> const errors = detail::low_rank_errors(x, static_cast<std::size_t>(rows),
                                                               static_cast<std::size_t>(columns), largest);
    for (std::uint32_t r : ranks) {
      std::uint64_t const sent = r * (rows + columns);
      all.push_back(sent < whole ? candidate{4.0 * static_cast<double>(sent), errors[r]}
                                 : candidate{4.0 * static_cast<double>(whole), 0});
    }
    return all;
  };
}

}  // namespace GLOBALQ_ABI::adapt
