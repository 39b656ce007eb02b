// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief The compositions of fast_math/main.cpp, in two sources that are compiled side by side.

#include <globalq/globalq.hpp>

#include <vector>

struct named {
  char const* name;
  globalq::any_quantizer op;
  char const* schedule;
};

/// Those without evenly spaced levels.
std::vector<named> other_levels();
