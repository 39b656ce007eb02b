// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the functions of policies that the bodies of a host call: loops over values in L1, by function
/// pointers.
///
/// These are the leaves of a composition (../leaf.hpp): those of levels with a rounding, of levels, and of a wire
/// format.

#include "built_in.hpp"
#include "make_leaves.hpp"
#include "value_leaves.hpp"
#if defined(GLOBALQ_COMPILED)
#include "../isa/set.hpp"
#endif

namespace GLOBALQ_ABI::kernel::host {

/// A rounding without its type. Bodies pass words as drawn; the leaves apply the rounding to them.
struct any_rounding {
  bool word_per_coordinate;
  bool shifts_back;
  bool constant;         ///< its word does not depend on the drawn one
  bool shares;           ///< SharesWords
  std::uint32_t cohort;  ///< if so; of this worker
  std::uint32_t parts;   ///< workers whose words of a bucket divide the range
  void const* policy;
  double (*shift_of)(void const* policy, std::uint32_t drawn);

  bool shifts() const { return shifts_back; }
  std::uint32_t sharers() const { return parts; }
  static std::uint32_t word(std::uint32_t drawn) { return drawn; }
  double shift(std::uint32_t drawn) const { return shift_of(policy, drawn); }
};

/// The leaves of a composition.
template <class Int>
struct leaves : coding_leaves<Int>, level_leaves<Int>, wire_leaves<Int>, integer_leaves<Int>, value_leaves {};

/// The part of a composition that bodies refer to.
template <class Int>
struct policies {
  leaves<Int> const* leaf = nullptr;
  void const *levels = nullptr, *wire = nullptr;
  bool has_tiles = false;  ///< whether bytes_of_tiles, if not null, supports these levels
  std::uint32_t bits = 0;  ///< of a code, if codes have no gaps
};

namespace detail {

template <class Rounding>
double shift(void const* rounding, std::uint32_t drawn) {
  Rounding const& r = as<Rounding>(rounding);
  return r.shift(r.word(drawn));
}

template <class Rounding>
std::uint32_t cohort_of([[maybe_unused]] Rounding const& decide) {
  if constexpr (SharesWords<Rounding>) return decide.cohort();
  return 0;
}

template <class Rounding>
std::uint32_t sharers_of([[maybe_unused]] Rounding const& decide) {
  if constexpr (requires { decide.sharers(); }) return decide.sharers();
  return 1;
}

template <class Rounding>
bool is_constant([[maybe_unused]] Rounding const& decide) {
  if constexpr (std::is_same_v<Rounding, rounding::detail::shared_draw>) return decide.constant;
  return false;
}

/// A bound on the codes of a wire that selects loops: tables of up to 8 levels need fewer search steps. A compiled
/// library has only the loops for all codes.
template <class Wire>
constexpr std::uint32_t most_code() {
#if !defined(GLOBALQ_COMPILED)
  if constexpr (requires { Wire::static_bits; })
    if (Wire::static_bits >= 1 && Wire::static_bits <= 4) return 8;
#endif
  return any_code;
}

}  // namespace detail

// The leaves of policies. A library has those of built-in policies, for the instruction set that it chose.

/// @tparam Nibbles  whether the wire may have four bits per code
/// @tparam Most     upper bound of the codes
template <class Levels, class Rounding, class Int, bool Nibbles, std::uint32_t Most = detail::any_code>
coding_leaves<Int> coding_of() {
#if defined(GLOBALQ_COMPILED)
  constexpr int of_levels = built_in_levels::place<Levels>(), with = built_in_roundings::place<Rounding>();
  if constexpr (of_levels >= 0 && with >= 0) {
    coding_leaves<Int> leaf = isa::chosen_integers<Int>().coding[of_levels][with];
    // these loops write the bytes of wire::packed; another wire of four bits may have other ones
    if constexpr (!Nibbles)
      for (auto& loop : leaf.nibbles_of_tiles) loop = nullptr;
    return leaf;
  } else
#endif
    return detail::make_coding_of<Levels, Rounding, Int, Nibbles, Most>();
}
template <class Levels, class Int>
level_leaves<Int> decoding_of() {
#if defined(GLOBALQ_COMPILED)
  constexpr int of_levels = built_in_levels::place<Levels>();
  if constexpr (of_levels >= 0)
    return isa::chosen_integers<Int>().decoding[of_levels];
  else
#endif
    return detail::make_decoding_of<Levels, Int>();
}
template <class Wire>
wire_leaves<typename Wire::code_type> packing_of() {
#if defined(GLOBALQ_COMPILED)
  constexpr int width = built_in_widths::place<Wire>();
  if constexpr (width >= 0)
    return isa::chosen().leaves().packed[width];
  else
#endif
    return detail::make_packing_of<Wire>();
}
template <class Op, class Int>
reduce_leaves<Int> adding_of() {
#if defined(GLOBALQ_COMPILED)
  constexpr int op = built_in_reduces::place<Op>();
  if constexpr (op >= 0)
    return isa::chosen_integers<Int>().adding[op];
  else
#endif
    return detail::make_adding_of<Op, Int>();
}
template <class Int>
integer_leaves<Int> integers_of() {
#if defined(GLOBALQ_COMPILED)
  return isa::chosen_integers<Int>().any;
#else
  return detail::make_integer_leaves<Int>();
#endif
}

/// A composition without its types. It cannot be copied or moved, because bodies point to it.
template <class Int>
struct any_policies {
  leaves<Int> leaf;
  policies<Int> by;
  any_rounding rounding;
  float extent = 1;
  std::uint32_t max_code = 1;

  any_policies() = default;
  any_policies(any_policies const&) = delete;
  any_policies& operator=(any_policies const&) = delete;

 protected:
  ~any_policies() = default;
};

/// In place of a copy that is not needed.
struct unused {
  template <class Any>
  explicit unused(Any const&) {}
};

/// A composition with its policies.
template <class Levels, class Rounding, class Wire>
struct held_policies : any_policies<typename Wire::code_type> {
  using code_type = typename Wire::code_type;

  held_policies(Levels const& scheme, Rounding const& decide, Wire const& format)
      : levels(scheme), decision(decide), wire(format), untold(decide) {
    this->leaf = {coding_of<Levels, Rounding, code_type, globalq::detail::may_be_nibbles<Wire>(),
                            detail::most_code<Wire>()>(),
                  decoding_of<Levels, code_type>(), packing_of<Wire>(), integers_of<code_type>(),
                  leaves_of_values()};
    this->by = {&this->leaf, &levels, &wire, true, 0};
    if constexpr (Tabled<Levels>) this->by.has_tiles = levels.has_lines();
    if constexpr (globalq::detail::without_gaps<Wire>())
      this->by.bits = static_cast<std::uint32_t>(wire.bits());
    this->rounding = {Rounding::word_per_coordinate,
                      decision.shifts(),
                      detail::is_constant(decision),
                      SharesWords<Rounding>,
                      detail::cohort_of(decision),
                      detail::sharers_of(decision),
                      &decision,
                      detail::shift<Rounding>};
    this->extent = levels.extent();
    this->max_code = levels.max_code();
  }

  /// Prepares the rounding for a worker, if it is told.
  void tell(std::uint32_t rank, std::uint32_t workers) {
    if constexpr (ToldWorker<Rounding>) {
      decision = untold.for_worker(rank, workers);
      this->rounding.cohort = detail::cohort_of(decision);
      this->rounding.parts = detail::sharers_of(decision);
    }
  }

  Levels levels;
  Rounding decision;
  Wire wire;
  std::conditional_t<ToldWorker<Rounding>, Rounding, unused> untold;  ///< as constructed
};

}  // namespace GLOBALQ_ABI::kernel::host
