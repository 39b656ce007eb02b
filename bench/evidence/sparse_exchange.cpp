// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: comparators that send some of the values.

#include "compressor_exchange.hpp"

#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/top_k.hpp>

#include <cmath>

namespace evidence {
namespace {

/// A share, in percent for people.
double share(gq::named::arguments const& how) {
  double const percent = how.real("percent", 0);
  if (percent > 100) how.refuse_value("percent");
  return percent / 100;
}

}  // namespace

std::unique_ptr<exchange> make_top_k(setting const& with, gq::named::arguments const& how) {
  constexpr std::array<std::string_view, 2> words{"layer", "whole"};
  auto const scope = how.one_of("of", words) == 0 ? gq::baseline::scope::layer : gq::baseline::scope::whole;
  return maybe_fed_back(
      with, how,
      gq::baseline::top_k(with.layers, {.density = share(how), .scope = scope}, {.seed = with.seed}));
}

std::unique_ptr<exchange> make_adaptive_top_k(setting const& with, gq::named::arguments const& how) {
  double const density = share(how);
  if (density > 0.25) how.refuse_value("percent");
  return adaptive(with, how, gq::baseline::top_k(with.layers, {.density = density}, {.seed = with.seed}),
                  density);
}

std::unique_ptr<exchange> make_rand_k(setting const& with, gq::named::arguments const& how) {
  constexpr std::array<std::string_view, 2> words{"no", "yes"};
  bool const unbiased = how.one_of("feedback", words) == 0;  // with feedback values go as they are
  return maybe_fed_back(
      with, how,
      gq::baseline::rand_k(with.layers, {.density = share(how), .unbiased = unbiased}, {.seed = with.seed}));
}

std::unique_ptr<exchange> make_send_first(setting const& with, gq::named::arguments const& how) {
  double const gamma = how.real("gamma", 0);
  return plain(with, gq::baseline::send_first(with.layers, {.gamma = gamma}, {.seed = with.seed}));
}

}  // namespace evidence
