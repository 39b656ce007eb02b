// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief compose: what a description says, read; and the functions that turn it into an operator.
///
/// Kernels depend on levels, rounding and wire alone. Each function of this header is defined in a source file
/// of its own, so that every kernel is compiled once and the files compile side by side.

#include <globalq/operator/any_quantizer.hpp>

#include <cstdint>
#include <type_traits>
#include <variant>

namespace compose {

enum class rounding_kind : std::uint8_t { stochastic, random_shift, random_shift_unshifted, nearest };
enum class reduce_kind : std::uint8_t { automatic, sum, exponential, requantise };

using wire_choice =
    std::variant<globalq::wire::int8, globalq::wire::int16, globalq::wire::int32, globalq::wire::packed<>,
                 globalq::wire::elias<>, globalq::wire::huffman<>, globalq::wire::sparse<>>;

/// Any norm of all workers, and any local one: two types instead of one for each policy, since a quantizer is compiled for
/// every norm x wire x reduce.
struct any_norm {
  std::uint32_t q = globalq::infinity, p = globalq::infinity;
  std::uint64_t bucket = 0;
  double unit = 0;   ///< above 0: norm::fixed
  float coarse = 0;  ///< above 0: scales are rounded up to coarse * 2^k: norm::power_of_two, shared_exponent
  bool in_byte = false;  ///< scales travel as their k: norm::shared_exponent

  constexpr std::uint32_t inner() const { return q; }
  constexpr std::uint32_t outer() const { return p; }
  constexpr double fixed_unit() const { return unit; }
  constexpr globalq::norm::order scales() const { return {q, coarse, in_byte}; }
};
struct global_norm : any_norm {
  static constexpr bool is_local = false;
};
struct local_norm : any_norm {
  static constexpr bool is_local = true;
};
using norm_choice = std::variant<global_norm, local_norm>;

/// Any levels that are held as a table: table, symmetric, exponential of any base, or those of a small format. They differ in their data
/// alone, so one type serves the three, which halves the time to compile them.
struct any_table : globalq::levels::detail::level_table {
  template <class Table>
  requires std::is_base_of_v<globalq::levels::detail::level_table, Table>
  explicit any_table(Table const& levels) : level_table{levels} {}
};

/// Everything but the levels.
struct parts {
  norm_choice norm;
  rounding_kind rounding;
  wire_choice wire;
  reduce_kind reduce;
};

/// @pre the parts fit to the levels: make() has checked that
globalq::any_quantizer uniform_stochastic(globalq::levels::uniform<> levels, parts const& with);
globalq::any_quantizer uniform_one_word(globalq::levels::uniform<> levels, parts const& with);
globalq::any_quantizer exponential_stochastic(globalq::levels::exponential<> levels, parts const& with);
globalq::any_quantizer exponential_one_word(globalq::levels::exponential<> levels, parts const& with);
globalq::any_quantizer table_stochastic(any_table const& levels, parts const& with);
globalq::any_quantizer table_one_word(any_table const& levels, parts const& with);

}  // namespace compose
