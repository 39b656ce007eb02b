// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the compressors of globalq/baseline by name: biased, so they are used with error feedback.

#include "operators.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI::named {

/// @brief A compressor as it was asked for.
struct named_compressor {
  /// Whose parameters follow.
  enum class method : std::uint8_t { top_k, power_sgd } how = method::top_k;
  double density = 0.01;  ///< of top_k
  int rank = 4;           ///< of power_sgd
  std::string name;       ///< with all parameters: "top-k:density=0.01"
};

/// @brief A compressor that has a name.
struct compressor_entry {
  std::string_view name;
  std::string_view title;
  std::string_view source;
  std::string_view error;  ///< bound on the squared error of a message, in words
  std::span<parameter const> parameters;
};

/// @brief All of them.
std::span<compressor_entry const> compressors();

/// @brief Reads `NAME[:VALUE][,parameter=value]...`, as read_operator() does.
/// @returns nothing where the name is that of no compressor
/// @throws globalq::configuration_error naming what is wrong, and what would be right
std::optional<named_compressor> read_compressor(std::string_view text);

}  // namespace GLOBALQ_ABI::named
