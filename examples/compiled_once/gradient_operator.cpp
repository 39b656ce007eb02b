// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compiled_once: the source that compiles the kernels.

//! [define]
#include "gradient_operator.hpp"

template struct globalq::host_kernels<globalq::levels::uniform<>, globalq::rounding::stochastic,
                                      globalq::wire::packed<6>>;
//! [define]
