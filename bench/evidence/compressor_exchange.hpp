// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: a compressor of another paper as an exchange, with or without error feedback.

#include "exchange.hpp"

#include <globalq/baseline/adaptive.hpp>
#include <globalq/baseline/error_feedback.hpp>
#include <globalq/train/adapt/accordion.hpp>
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

/// With error feedback, and a parameter of each layer that is chosen again, by "rule", after "every" steps. lgreco:
/// half to twice the reference, at its error; accordion: half or twice; both: a fourth to four times, at the error of
/// Accordion's choice.
/// @param candidates  a fourth to four times the reference, ascending, half and twice among them
template <class Compressor, class Parameter>
std::unique_ptr<exchange> adaptive(setting const& with, gq::named::arguments const& how, Compressor inner,
                                   std::vector<Parameter> candidates, Parameter reference) {
  constexpr std::array<std::string_view, 3> rules{"lgreco", "accordion", "both"};
  std::size_t const rule = how.one_of("rule", rules);
  std::size_t const few = place_of(candidates, reference / 2), many = place_of(candidates, 2 * reference);
  gq::baseline::adaptive_options<Parameter> o{.reference = reference};
  auto const at = [&](std::size_t k) { return candidates.begin() + static_cast<std::ptrdiff_t>(k); };
  std::size_t const first = rule == 2 ? 0 : few, end = rule == 2 ? candidates.size() : many + 1;
  o.candidates.assign(at(first), at(end));
  o.every = every_of(with, how);
  if (rule != 0) {
    o.reference = candidates[many];  // training begins with little compression
    o.how = gq::adapt::accordion_rule(
        {.less = static_cast<std::uint32_t>(many - first),
         .more = static_cast<std::uint32_t>(few - first),
         .within = rule == 2 ? gq::adapt::rule_of(gq::adapt::lgreco{}) : gq::adapt::rule()});
  }
  return plain(with, gq::baseline::adaptive(std::move(inner), std::move(o)));
}

}  // namespace evidence
