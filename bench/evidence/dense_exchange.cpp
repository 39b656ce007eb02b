// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: comparators that send every value in few bits.

#include "compressor_exchange.hpp"

#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/one_bit.hpp>
#include <globalq/baseline/sign_sgd.hpp>
#include <globalq/baseline/thc.hpp>

namespace evidence {

std::unique_ptr<exchange> make_sign_sgd(setting const& with, gq::named::arguments const& how) {
  constexpr std::array<std::string_view, 2> words{"layers", "one"};
  auto const scale =
      how.one_of("scale", words) == 0 ? gq::baseline::sign_scale::layers : gq::baseline::sign_scale::one;
  return maybe_fed_back(with, how,
                        gq::baseline::sign_sgd(with.layers, {.scale = scale}, {.seed = with.seed}));
}

std::unique_ptr<exchange> make_one_bit(setting const& with, gq::named::arguments const& how) {
  return maybe_fed_back(
      with, how,
      gq::baseline::one_bit(with.layers, {.bucket = how.number("bucket", 0, 1U << 20)}, {.seed = with.seed}));
}

std::unique_ptr<exchange> make_int_sgd(setting const& with, gq::named::arguments const& how) {
  constexpr std::array<std::string_view, 2> words{"8", "32"};
  gq::options const options{.seed = with.seed};
  if (how.one_of("bits", words) == 0)
    return plain(with, gq::baseline::int_sgd<std::int8_t>(with.layers, {}, options));
  return plain(with, gq::baseline::int_sgd<std::int32_t>(with.layers, {}, options));
}

std::unique_ptr<exchange> make_thc(setting const& with, gq::named::arguments const& how) {
  return maybe_fed_back(with, how,
                        gq::baseline::thc(with.layers, {.bits = static_cast<int>(how.number("bits", 2, 8))},
                                          {.seed = with.seed}));
}

}  // namespace evidence
