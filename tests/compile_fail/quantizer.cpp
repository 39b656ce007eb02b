// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Policies of a quantizer: which there are and in which order.

#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

using gq::levels::uniform;
using gq::norm::linf;
using gq::rounding::stochastic;
using gq::wire::int8;

[[maybe_unused]] gq::quantizer const accepted{linf{}, uniform<>{}, stochastic{}, int8{}};

#ifdef CASE_LEVELS_FIRST  // expect-error: globalq: quantizer: the first policy is not a norm
gq::quantizer const op{uniform<>{}, linf{}, stochastic{}, int8{}};
#endif

#ifdef CASE_ROUNDING_BEFORE_LEVELS  // expect-error: globalq: quantizer: the second policy is not a level scheme
gq::quantizer const op{linf{}, stochastic{}, uniform<>{}, int8{}};
#endif

#ifdef CASE_WIRE_BEFORE_ROUNDING  // expect-error: globalq: quantizer: the third policy is missing or not a rounding
gq::quantizer const op{linf{}, uniform<>{}, int8{}, stochastic{}};
#endif

#ifdef CASE_REDUCE_BEFORE_WIRE  // expect-error: globalq: quantizer: the fourth policy is not a wire format
gq::quantizer const op{linf{}, uniform<>{}, stochastic{}, gq::reduce::sum{}, int8{}};
#endif

#ifdef CASE_REDUCE_IS_NO_POLICY  // expect-error: globalq: quantizer: the fifth policy is not a reduce operator
gq::quantizer const op{linf{}, uniform<>{}, stochastic{}, int8{}, 4};
#endif

#ifdef CASE_NO_WIRE  // expect-error: globalq: quantizer: the wire is missing
gq::quantizer const op{linf{}, uniform<>{}, stochastic{}};
#endif

#ifdef CASE_NO_WIRE_IN_TYPE  // expect-error: globalq: quantizer: the wire is missing
gq::quantizer<linf, uniform<>, stochastic> const op;
#endif

#ifdef CASE_NO_ROUNDING  // expect-error: globalq: quantizer: the third policy is missing or not a rounding
gq::quantizer const op{linf{}, uniform<>{}, int8{}};
#endif

#ifdef CASE_NO_ROUNDING_AND_WIRE  // expect-error: globalq: quantizer: the third policy is missing or not a rounding
gq::quantizer const op{linf{}, uniform<>{}};
#endif

#ifdef CASE_NUMBER_AS_LEVELS  // expect-error: globalq: quantizer: the second policy is not a level scheme
gq::quantizer const op{linf{}, 7, stochastic{}, int8{}};
#endif
