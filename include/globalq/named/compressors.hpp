// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the compressors of globalq/baseline by name; they are biased, so use them with error feedback.

#include "operators.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace GLOBALQ_ABI::named {

/// @brief A requested compressor, with its parameters.
struct named_compressor {
  /// Which method; only its parameters are used.
  enum class method : std::uint8_t { top_k, power_sgd } how = method::top_k;
  double density = 0.01;  ///< of top_k
  int bits = 32;          ///< of a value of top_k
  int rank = 4;           ///< of power_sgd
  std::string name;       ///< with all parameters: "top-k:density=0.01"
};

/// @brief The description of a named compressor.
struct compressor_entry {
  std::string_view name;
  std::string_view title;   ///< what it does: a sentence, without the last period
  std::string_view source;  ///< the papers
  std::string_view error;   ///< bound on the squared error of a message, as text
  std::span<parameter const> parameters;
};

/// @brief All named compressors.
std::span<compressor_entry const> compressors();

/// @brief Parses `NAME[:VALUE][,parameter=value]...`, as read_operator() does.
/// @returns nothing if no compressor has this name
/// @throws globalq::configuration_error that states what is wrong, and what would be right
std::optional<named_compressor> read_compressor(std::string_view text);

}  // namespace GLOBALQ_ABI::named
