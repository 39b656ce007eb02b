// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the operators of the papers by name, in one registry that parses, explains and tabulates them.
///
/// The names are those of globalq/operator/operators.hpp; a test compares the two. All operators with buckets take
/// tail=float32.

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
  /// @throws globalq::configuration_error if the text has another form, and as set() does
  static arguments read(std::string_view text, std::span<parameter const> parameters);

  /// @throws globalq::configuration_error for a name that the operator does not have, or that was set before
  void set(std::string_view name, std::string_view value);

  std::string const& text(std::string_view name) const;
  /// An integer in [least, most].
  std::uint64_t number(std::string_view name, std::uint64_t least, std::uint64_t most) const;
  /// A finite number above @p above.
  double real(std::string_view name, double above) const;
  /// The index of the value among the words.
  std::size_t one_of(std::string_view name, std::span<std::string_view const> words) const;
  /// Whether the text sets a parameter.
  bool given(std::string_view name) const;
  /// Whether the operator has such a parameter.
  bool has(std::string_view name) const;
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

/// @brief A requested operator, with its parameters.
struct named_operator {
  description words;
  std::string schedule;   ///< the default: from three workers on, no other has fewer bytes and less variance
  double clip = 0;        ///< clips vectors at this many standard deviations first; 0: no clipping
  bool centered = false;  ///< around the midpoints of the buckets: globalq::centered
  double feedback = 0;    ///< decay of residuals: globalq::error_feedback; 0: none
  learning learns = {};   ///< starts from the levels in words; see level_learning.hpp
  std::string wire_of_sums = {};  ///< of the means that sra sends: globalq::second_half; empty: that of words

  /// Whether a call of its quantizer is all, so that it can be the operator of a layer.
  bool only_quantizes() const { return clip == 0 && !learns; }
};

/// @brief Returns the operator, centered, with error feedback and another wire for sums if requested. Its name contains clipping and learning, which the caller does,
/// so that workers compare them.
globalq::any_quantizer operator_of(named_operator const& asked);

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

/// @brief Parses `NAME[:VALUE][,parameter[=value]]...`; VALUE belongs to the first parameter.
/// @throws globalq::configuration_error that states what is wrong, and what would be right
named_operator read_operator(std::string_view text);

/// @brief A help text of all operators with their parameters.
std::string operators_help();

}  // namespace GLOBALQ_ABI::named
