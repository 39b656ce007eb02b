// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief named: the words of which a text of an operator consists.

#include <globalq/named/operators.hpp>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::named {

/// A word of the grammar, as in bucket=512.
struct word {
  parameter says;
  /// Sets a part of the operator.
  /// @param whole  the text of the operator, for errors
  void (*set)(named_operator&, std::string_view whole, std::string_view value);
  /// The part as a value of this word.
  std::string (*get)(named_operator const&);
};

/// A text of an operator, divided.
struct divided {
  std::string name;  ///< NAME[:VALUE] and its own parameters, with commas between; empty: only words
  std::vector<std::pair<word const*, std::string>> words;

  bool sets(std::string_view name) const;
};

/// Divides a text at spaces and commas. Parameters of the name go before words; a part without "=" belongs to the list of
/// norm= or levels= before it.
divided divide(std::string_view text, std::span<parameter const> parameters);

/// The wire of fixed width of 2 to 8 bits.
std::string wire_of_bits(std::uint64_t bits);

/// The number of levels above zero that fit codes of a wire; 127 of those wider than 8 bits.
std::uint32_t levels_that_fit(std::string_view wire);

/// The name at the beginning of a text; empty if it begins with a word.
std::string_view leading_name(std::string_view text);

/// The names of all words, with commas between.
std::string names_of_words();

}  // namespace GLOBALQ_ABI::named
