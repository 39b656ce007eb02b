// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief A consumer's own source in place of the library globalq::compiled.

#include <globalq/definitions.hpp>
