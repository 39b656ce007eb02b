// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: the operators of the papers by name, in one registry that parses, explains and tabulates them.
///
/// The same names as in globalq/operator/operators.hpp; a test holds the two together. All with buckets take tail=float32 as well.

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
  std::string_view usual;    ///< its value where none is given
  std::string_view allowed;  ///< in words
  std::string_view meaning;
};

/// @brief The values of an operator's parameters, as they were given or as they usually are.
class arguments {
 public:
  arguments(std::string_view whole, std::span<parameter const> parameters);

  /// @brief Those of `NAME[:VALUE][,parameter=value]...`.
  /// @throws globalq::configuration_error for what is not of this form, and as set() does
  static arguments read(std::string_view text, std::span<parameter const> parameters);

  /// @throws globalq::configuration_error for a name that the operator does not have, or that was set before
  void set(std::string_view name, std::string_view value);

  std::string const& text(std::string_view name) const;
  /// A whole number in [least, most].
  std::uint64_t number(std::string_view name, std::uint64_t least, std::uint64_t most) const;
  /// A finite number above @p above.
  double real(std::string_view name, double above) const;
  /// Which of the words it is.
  std::size_t one_of(std::string_view name, std::span<std::string_view const> words) const;
  /// Whether the operator has such a parameter.
  bool has(std::string_view name) const;
  /// @throws globalq::configuration_error saying that a value is not what is allowed
  [[noreturn]] void refuse_value(std::string_view name) const;
  /// @throws globalq::configuration_error saying what does not go together, and what would
  [[noreturn]] void refuse_together(std::string_view what, std::string_view remedy) const;

 private:
  std::string whole_;
  std::span<parameter const> parameters_;
  std::vector<std::string> values_;
  std::vector<bool> given_;
};

/// @brief The name in `NAME[:VALUE][,parameter=value]...`.
inline std::string_view name_in(std::string_view text) {
  return text.substr(0, std::min(text.find_first_of(":,"), text.size()));
}

/// @brief How the levels of an operator are learned while it is used.
struct learning {
  /// What is learned.
  enum class way : std::uint8_t {
    none,        ///< not at all: they stay what they are
    levels,      ///< ALQ: each level, by coordinate descent
    multiplier,  ///< AMQ: the ratio of all levels, by gradient descent
  } what = way::none;
  bool normalized = false;  ///< ALQ-N, AMQ-N: values count alike, whatever the norm of their bucket

  explicit operator bool() const { return what != way::none; }
};

/// @brief An operator as it was asked for.
struct named_operator {
  description words;
  std::string schedule;   ///< the one that it is meant for
  double clip = 0;        ///< standard deviations to clip vectors at before; 0: not at all
  bool centered = false;  ///< around the midpoints of the buckets: globalq::centered
  learning learns = {};   ///< from the levels in words on; what to do is in learning.hpp

  /// Whether a call by its quantizer is all there is to do, so that it can be that of a layer.
  bool only_quantizes() const { return clip == 0 && !learns; }
};

/// @brief Its operator, centered where that was asked for.
globalq::any_quantizer operator_of(named_operator const& asked);

/// @brief A named operator.
struct entry {
  std::string_view name;
  std::string_view title;
  std::string_view source;
  std::string_view bound;    ///< on omega, in words; D values share a scale
  std::string_view erratum;  ///< what of the paper is corrected here; a sentence, or nothing
  std::span<parameter const> parameters;
  std::span<std::string_view const> examples;  ///< rows of the table in docs/operators.md
  named_operator (*make)(arguments const&);
};

/// @brief All of them, in the order in which they are listed.
std::span<entry const> operators();

/// @brief Reads `NAME[:VALUE][,parameter=value]...`; VALUE is that of the first parameter.
/// @throws globalq::configuration_error naming what is wrong, and what would be right
named_operator read_operator(std::string_view text);

/// @brief All operators with their parameters, for people.
std::string operators_help();

}  // namespace GLOBALQ_ABI::named
