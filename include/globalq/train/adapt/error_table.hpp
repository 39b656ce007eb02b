// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: a table of choices measured on accumulated gradients; Top-K and low rank, and any family of one's own.

#include "choices.hpp"
#include "detail/low_rank.hpp"
#include "gradient_accumulator.hpp"
#include "kept_values.hpp"

#include <functional>
#include <numeric>

namespace GLOBALQ_ABI::adapt {

/// @brief A way of sending with a parameter: gives a layer's candidates, one for each value of the parameter.
///
/// Any function of a layer and its values; a layer of size zero may be given. The families of this library are
/// quantizers() (quantizer_errors.hpp), top_k() and low_rank().
using family = std::function<std::vector<candidate>(layer const&, std::span<float const>)>;

/// @brief How a layer's error is measured instead: sensitivity(layer, number of the candidate, values).
///
/// For instance by the loss of a model in which only this layer is compressed so. Must add up over layers.
using sensitivity = std::function<double(layer const&, std::size_t, std::span<float const>)>;

/// @brief Tries a family on every layer.
///
/// @param gradients  sums to measure on
/// @param of         the candidates of a layer
/// @param compress   says of a layer whether it may be compressed; others get float32 as their only candidate
/// @throws           configuration_error where an error or cost is no number
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

/// @brief The same candidates with errors by another measure.
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
                                " is not above 0 and at most " + text_of(most));
  if (all.empty())
    throw configuration_error("globalq: " + std::string(who) + ": no parameters; give at least one");
}

}  // namespace detail

/// @brief The squared l2 norm of what is left out when the k values of largest magnitude are kept, for each k.
/// @param kept  any order; at most the length
/// @complexity  O(length) expected, by selection; memory of four bytes a value
inline std::vector<double> top_k_errors(std::span<float const> values, std::span<std::uint64_t const> kept) {
  std::vector<std::uint32_t> magnitudes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) magnitudes[i] = bits_of(values[i]) & float_magnitude;
  std::vector<std::size_t> order(kept.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return kept[a] > kept[b]; });
  std::vector<double> errors(kept.size());
  // from the most kept to the fewest: what was left out stays so, and the selection goes on among the rest
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
/// @param bytes_per_value  what a kept value costs: 8 for a float32 and a 32-bit place
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
/// The error is that of the rank's best approximation as five power steps find it. A rank that needs as many values as
/// the layer has is float32: its error is 0.
/// @param ranks  at least 1
/// @complexity   O(size * largest rank) a layer, for all ranks together
/// @source       Markov 2024 (thesis), section 4.5; Vogels et al. 2019 (PowerSGD)
inline family low_rank(std::vector<std::uint32_t> ranks) {
  std::vector<double> const as_numbers(ranks.begin(), ranks.end());
  detail::expect_parameters("low_rank", as_numbers, 0x1p20);
  return [=](layer const& l, std::span<float const> x) {
    std::vector<candidate> all;
    std::uint64_t const rows = l.rows(), columns = l.columns(), whole = l.size;
    std::uint32_t largest = 0;  // of those that are worth it
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
