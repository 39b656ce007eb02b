// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief compose: from values known at run time to the types of a quantizer; compiles the kernels.

#include "parts.hpp"

#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

namespace compose {

/// What quantizer's own static assertions ask, as a value: the types that it refuses are never named.
template <class Norm, class Levels, class Rounding, class Wire, class Reduce>
constexpr bool fit_together() {
  namespace reduce = globalq::reduce;
  bool evenly_spaced = false, binary = false, shifts_back = false;
  if constexpr (requires { Levels::evenly_spaced; }) evenly_spaced = Levels::evenly_spaced;
  if constexpr (requires { Levels::is_binary; }) binary = Levels::is_binary;
  if constexpr (requires { Rounding::shifts_back; }) shifts_back = Rounding::shifts_back;
  bool const adds = std::is_same_v<Reduce, reduce::sum> || std::is_same_v<Reduce, reduce::exponential>;
  return !(shifts_back && !evenly_spaced) && !(std::is_same_v<Reduce, reduce::sum> && !evenly_spaced) &&
         !(std::is_same_v<Reduce, reduce::exponential> && !binary) && !(Norm::is_local && adds) &&
         !(globalq::wire::BlockCode<Wire> && adds);
}

template <class Levels, class Rounding, class Reduce>
globalq::any_quantizer assemble(Levels const& levels, Rounding rounding, Reduce add, parts const& with) {
  return std::visit(
      [&](auto const& norm, auto const& wire) -> globalq::any_quantizer {
        if constexpr (fit_together<std::remove_cvref_t<decltype(norm)>, Levels, Rounding,
                                   std::remove_cvref_t<decltype(wire)>, Reduce>())
          return globalq::quantizer{norm, levels, rounding, wire, add};
        else
          throw std::logic_error{"compose: make() let parts pass that do not fit together"};
      },
      with.norm, with.wire);
}

template <class Levels, class Rounding>
globalq::any_quantizer assemble(Levels const& levels, Rounding rounding, parts const& with) {
  namespace reduce = globalq::reduce;
  switch (with.reduce) {
    case reduce_kind::sum:
      return assemble(levels, rounding, reduce::sum{}, with);
    case reduce_kind::exponential:
      return assemble(levels, rounding, reduce::exponential{}, with);
    case reduce_kind::requantise:
      return assemble(levels, rounding, reduce::requantise{}, with);
    default:
      return assemble(levels, rounding, reduce::automatic{}, with);
  }
}

/// The roundings that draw one word for a bucket, or none; they share their kernels.
template <class Levels>
globalq::any_quantizer assemble_one_word(Levels const& levels, parts const& with) {
  namespace rounding = globalq::rounding;
  switch (with.rounding) {
    case rounding_kind::random_shift:
      return assemble(levels, rounding::random_shift<true>{}, with);
    case rounding_kind::random_shift_unshifted:
      return assemble(levels, rounding::random_shift<false>{}, with);
    default:
      return assemble(levels, rounding::nearest{}, with);
  }
}

}  // namespace compose
