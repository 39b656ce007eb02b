// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief compiled_once: an operator that many sources of a program use and only one compiles.

//! [declare]
#include <globalq/operator/kernels.hpp>
#include <globalq/operator/quantizer.hpp>

using gradient_operator = globalq::quantizer<globalq::norm::local<2>, globalq::levels::uniform<>,
                                             globalq::rounding::stochastic, globalq::wire::packed<6>>;

extern template struct globalq::host_kernels<globalq::levels::uniform<>, globalq::rounding::stochastic,
                                             globalq::wire::packed<6>>;
//! [declare]
