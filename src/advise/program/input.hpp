// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief globalq_advise: lengths, rates and gradients from text and files.

#include "../advise.hpp"

#include <string>
#include <vector>

namespace globalq_advisor {

/// @brief Lengths of layers: "1000000,4096", or the path of a file with a line "name length" for each layer.
/// @throws globalq::configuration_error, as the others
std::vector<layer> read_layers(std::string const& text);

/// @brief Values of a file: .npy with float32, or raw little-endian float32.
std::vector<float> read_gradient(std::string const& path);

/// @brief A positive number of a unit: "1.25e9" or "10e9/8".
double read_number(std::string const& option, std::string const& text);

}  // namespace globalq_advisor
