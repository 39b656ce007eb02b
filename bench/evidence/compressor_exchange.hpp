// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: a compressor of another paper as an exchange, with error feedback or without.

#include "exchange.hpp"

#include <globalq/compressor/error_feedback.hpp>

#include <array>
#include <utility>

namespace evidence {

template <class Compressor>
class compressor_exchange final : public exchange {
 public:
  compressor_exchange(workers& all, Compressor inner) : all_(all), inner_(std::move(inner)) {}

  void operator()(std::span<float> gradient, std::uint64_t step) override {
    if constexpr (requires { inner_.error(); })
      inner_.reduce(all_, gradient, gradient, step);
    else
      inner_.reduce(all_, gradient, gradient, {}, step);
  }

 private:
  workers& all_;
  Compressor inner_;
};

template <class Compressor>
std::unique_ptr<exchange> plain(setting const& with, Compressor inner) {
  return std::make_unique<compressor_exchange<Compressor>>(with.all, std::move(inner));
}
template <class Compressor>
std::unique_ptr<exchange> fed_back(setting const& with, Compressor inner) {
  return plain(with, gq::compressor::error_feedback(std::move(inner)));
}
/// As the parameter "feedback" says.
template <class Compressor>
std::unique_ptr<exchange> maybe_fed_back(setting const& with, compose::arguments const& how,
                                         Compressor inner) {
  constexpr std::array<std::string_view, 2> words{"no", "yes"};
  return how.one_of("feedback", words) == 1 ? fed_back(with, std::move(inner))
                                            : plain(with, std::move(inner));
}

}  // namespace evidence
