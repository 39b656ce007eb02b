// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: a compressor of another paper as an exchange, with or without error feedback.

#include "exchange.hpp"

#include <globalq/baseline/adaptive.hpp>
#include <globalq/baseline/error_feedback.hpp>
#include <globalq/train/adapt/accordion.hpp>
#include <globalq/train/adapt/choices.hpp>
#include <globalq/train/adapt/lgreco.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace evidence {

template <class Compressor>
class compressor_exchange final : public exchange {
 public:
  compressor_exchange(workers& all, Compressor inner) : all_(all), inner_(std::move(inner)) {}

  void operator()(std::span<float> gradient, std::uint64_t step) override {
    if constexpr (requires { inner_.reduce(all_, gradient, gradient, step); })
      inner_.reduce(all_, gradient, gradient, step);
    else
      inner_.reduce(all_, gradient, gradient, {}, step);
  }

  bool observes() const override { return wants_steps; }
  void observe([[maybe_unused]] double squared, [[maybe_unused]] double rate) override {
    if constexpr (wants_steps) inner_.observe(squared, rate);
  }

 private:
  static constexpr bool wants_steps = requires(Compressor c) { c.observe(1.0, 1.0); };

  workers& all_;
  Compressor inner_;
};

template <class Compressor>
std::unique_ptr<exchange> plain(setting const& with, Compressor inner) {
  return std::make_unique<compressor_exchange<Compressor>>(with.all, std::move(inner));
}
template <class Compressor>
std::unique_ptr<exchange> fed_back(setting const& with, Compressor inner) {
  return plain(with, gq::baseline::error_feedback(std::move(inner)));
}
/// With or without error feedback, by the parameter "feedback".
template <class Compressor>
std::unique_ptr<exchange> maybe_fed_back(setting const& with, gq::named::arguments const& how,
                                         Compressor inner) {
  constexpr std::array<std::string_view, 2> words{"no", "yes"};
  return how.one_of("feedback", words) == 1 ? fed_back(with, std::move(inner))
                                            : plain(with, std::move(inner));
}

/// The first candidate that is not smaller.
template <class Parameter>
std::size_t place_of(std::vector<Parameter> const& ascending, Parameter least) {
  auto const at = std::lower_bound(ascending.begin(), ascending.end(), least);
  return static_cast<std::size_t>(at - ascending.begin());
}

/// Candidates around a reference: ranks, or densities of at most 1.
inline std::vector<int> candidates_around(int reference, double range) {
  auto const found = gq::adapt::around(static_cast<std::uint32_t>(reference), range);
  return {found.begin(), found.end()};
}
inline std::vector<double> candidates_around(double reference, double range) {
  auto found = gq::adapt::around(reference, 17, range);
  std::erase_if(found, [](double density) { return density > 1; });
  return found;
}

/// With error feedback, and a parameter of each layer that is chosen again, by "rule", after "every" steps. lgreco: from
/// reference / range to range * reference, at its error; accordion: half or twice; both: a fourth to four times, at the
/// error of Accordion's choice.
template <class Compressor, class Parameter>
std::unique_ptr<exchange> adaptive(setting const& with, gq::named::arguments const& how, Compressor inner,
                                   Parameter reference) {
  constexpr std::array<std::string_view, 3> rules{"lgreco", "accordion", "both"};
  std::size_t const rule = how.one_of("rule", rules);
  double const range = rule == 0 ? how.real("range", 1) : rule == 1 ? 2 : 4;
  gq::baseline::adaptive_options<Parameter> o{.candidates = candidates_around(reference, range),
                                              .reference = reference};
  o.every = every_of(with, how);
  if (rule != 0) {
    std::size_t const few = place_of(o.candidates, reference / 2),
                      many = place_of(o.candidates, 2 * reference);
    o.reference = o.candidates[many];  // training begins with little compression
    o.how = gq::adapt::accordion_rule(
        {.less = static_cast<std::uint32_t>(many),
         .more = static_cast<std::uint32_t>(few),
         .within = rule == 2 ? gq::adapt::rule_of(gq::adapt::lgreco{}) : gq::adapt::rule()});
  }
  return plain(with, gq::baseline::adaptive(std::move(inner), std::move(o)));
}

}  // namespace evidence
