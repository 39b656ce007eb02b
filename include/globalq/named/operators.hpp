// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the operators of the papers by name, in one registry that parses, explains and tabulates them.
///
/// A text of an operator is a list of words, such as `norm=local:inf bucket=128 wire=packed:4`. A name, such as `cgx:4`, is
/// short for some of them, and more may follow it. The names are those of globalq/operator/operators.hpp; a test compares
/// the two.

#include "description.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace GLOBALQ_ABI::named {

/// @brief A parameter of a named operator.
struct parameter {
  std::string_view name;
  std::string_view usual;      ///< default value
  std::string_view allowed;    ///< allowed values, as text: "2 to 8"
  std::string_view meaning;    ///< what it sets, in words, with the unit of a number
  std::string_view bare = {};  ///< the value of the name alone, without "=value"; empty: it needs one
};

/// @brief The values of an operator's parameters, given or default.
class arguments {
 public:
  arguments(std::string_view whole, std::span<parameter const> parameters);

  /// @brief Parses `NAME[:VALUE][,parameter[=value]]...`.
  /// @param whole  the text that errors quote
  /// @throws globalq::configuration_error if the text has another form, and as set() does
  static arguments read(std::string_view text, std::span<parameter const> parameters, std::string_view whole);

  /// @throws globalq::configuration_error for a name that the operator does not have, or that was set before
  void set(std::string_view name, std::string_view value);

  std::string const& text(std::string_view name) const;
  /// An integer in [least, most].
  std::uint64_t number(std::string_view name, std::uint64_t least, std::uint64_t most) const;
  /// A finite number above @p above.
  double real(std::string_view name, double above) const;
  /// The index of the value among the words.
  std::size_t one_of(std::string_view name, std::span<std::string_view const> words) const;
  /// @throws globalq::configuration_error saying that a value is not allowed
  [[noreturn]] void refuse_value(std::string_view name) const;
  /// @throws globalq::configuration_error saying what does not fit together, and a remedy
  [[noreturn]] void refuse_together(std::string_view what, std::string_view remedy) const;

 private:
  std::string whole_;
  std::span<parameter const> parameters_;
  std::vector<std::string> values_;
  std::vector<bool> given_;
};

/// @brief Returns the name in `NAME[:VALUE][,parameter=value]...`.
inline std::string_view name_in(std::string_view text) {
  return text.substr(0, std::min(text.find_first_of(":,"), text.size()));
}

/// @brief How the levels of an operator are learned during training.
struct learning {
  /// The parameters that are learned.
  enum class way : std::uint8_t {
    none,        ///< none: levels stay fixed
    levels,      ///< ALQ: each level, by coordinate descent
    multiplier,  ///< AMQ: the ratio of all levels, by gradient descent
  } what = way::none;
  bool normalized = false;  ///< ALQ-N, AMQ-N: values have equal weights, whatever the norm of their bucket

  explicit operator bool() const { return what != way::none; }
};

/// @brief A requested operator.
struct named_operator {
  description words;
  std::string schedule;  ///< the default: from three workers on, no other has fewer bytes and less variance
  double clip = 0;       ///< clips vectors at this many standard deviations first; 0: no clipping
  learning learns = {};  ///< starts from the levels in words; see level_learning.hpp

  /// Whether a call of its quantizer is all, so that it can be the operator of a layer.
  bool only_quantizes() const { return clip == 0 && !learns; }
};

/// @brief Returns the operator. Its name contains clipping and learning, which the caller does, so that workers compare them.
globalq::any_quantizer operator_of(named_operator const& asked);

/// @brief Returns the words of an operator without a name, which read_operator() reads as the same operator.
std::string words_of(named_operator const& op);

/// @brief The description of a named operator.
struct entry {
  std::string_view name;
  std::string_view title;    ///< what it does: a sentence or two, without the last period
  std::string_view source;   ///< the paper
  std::string_view bound;    ///< on omega, as text; D values share a scale
  std::string_view erratum;  ///< the correction of the paper that is used here; a sentence, or empty
  std::span<parameter const> parameters;
  std::span<std::string_view const> examples;  ///< rows of the table in docs/operators.md
  named_operator (*make)(arguments const&);
};

/// @brief All named operators, in the order of listings.
std::span<entry const> operators();

/// @brief Parses `NAME[:VALUE]` or `word=value`, and further ones after spaces or commas: parameters of the name, or words.
///
/// VALUE is that of the first parameter. Words replace parts of the name, or of `norm=linf levels=uniform
/// rounding=stochastic wire=int8`: see operators_help().
/// @throws globalq::configuration_error that states what is wrong, and what would be right
named_operator read_operator(std::string_view text);

/// @brief All words, in the order in which words_of() writes them.
std::vector<parameter> words_of_operators();

/// @brief A help text of all words, and of all operators with their parameters.
std::string operators_help();

}  // namespace GLOBALQ_ABI::named
