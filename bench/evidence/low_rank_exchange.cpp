// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: PowerSGD, where Eigen is.

#include "compressor_exchange.hpp"

#ifdef GLOBALQ_HAS_EIGEN
#include <globalq/baseline/power_sgd.hpp>
#endif

namespace evidence {
namespace {

[[noreturn]] [[maybe_unused]] void refuse_without_eigen() {
  throw gq::configuration_error(
      "globalq: evidence: power-sgd needs Eigen 3.4, which was not found when this was built");
}

}  // namespace

std::unique_ptr<exchange> make_power_sgd(setting const& with, gq::named::arguments const& how) {
  auto const rank = static_cast<int>(how.number("rank", 1, 256));
#ifdef GLOBALQ_HAS_EIGEN
  return maybe_fed_back(with, how, gq::baseline::power_sgd(with.layers, {.rank = rank}, {.seed = with.seed}));
#else
  static_cast<void>(rank);
  refuse_without_eigen();
#endif
}

std::unique_ptr<exchange> make_adaptive_power_sgd(setting const& with, gq::named::arguments const& how) {
  auto const rank = static_cast<int>(how.number("rank", 2, 64));
#ifdef GLOBALQ_HAS_EIGEN
  return adaptive(with, how, gq::baseline::power_sgd(with.layers, {.rank = rank}, {.seed = with.seed}), rank);
#else
  static_cast<void>(rank);
  refuse_without_eigen();
#endif
}

}  // namespace evidence
