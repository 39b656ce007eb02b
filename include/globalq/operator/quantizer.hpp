// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the quantizer, composed of a norm, levels, a rounding, a wire format and a reduce.

#include "../levels/exponential.hpp"
#include "../levels/minifloat.hpp"
#include "../levels/table.hpp"
#include "../levels/uniform.hpp"
#include "../norm/norms.hpp"
#include "../reduce/exponential.hpp"
#include "../reduce/reduce.hpp"
#include "../rounding/correlated.hpp"
#include "../rounding/nearest.hpp"
#include "../rounding/random_shift.hpp"
#include "../rounding/stochastic.hpp"
#include "../wire/elias.hpp"
#include "../wire/huffman.hpp"
#include "../wire/integer.hpp"
#include "../wire/packed.hpp"
#include "../wire/sparse.hpp"
#include "detail/composition.hpp"
#include "detail/expect_policies.hpp"
#include "floats.hpp"

namespace GLOBALQ_ABI {

namespace detail {
/// Whether it adds codes without decoding them.
template <class Op>
inline constexpr bool adds_codes =
    !std::is_same_v<Op, reduce::automatic> && !std::is_same_v<Op, reduce::requantize> &&
    !std::is_same_v<Op, reduce::any>;
/// Whether each worker has its own scales, if the type of the norm determines that.
template <class Norm>
constexpr bool always_local() {
  if constexpr (std::is_same_v<Norm, norm::any>)
    return false;
  else
    return Norm::is_local;
}
/// Whether a norm has no quantum, or that of the levels' number format.
template <class Norm, class Levels>
inline constexpr bool has_quantum_of = !HasQuantum<Norm>;
template <class Norm, class Levels>
requires(HasQuantum<Norm>&& HasLargest<Levels>) inline constexpr bool has_quantum_of<Norm, Levels> =
    Norm::quantum == Levels::largest;
/// False if a user-defined reduce operator declares that it cannot add codes of these levels.
template <class Op, class Levels>
inline constexpr bool may_add = true;
template <class Op, class Levels>
requires(!is_reduce<Op> &&
         SaysAdds<Op, Levels>) inline constexpr bool may_add<Op, Levels> = Op::template adds<Levels>;
}  // namespace detail

/// @brief An operator: converts a vector to frames, adds frames, and converts them back.
///
/// Types are checked here; whether the policies also fit the workers and the schedule is checked when a call is set up.
/// @tparam Norm      computes the scale of the values; norm/norms.hpp
/// @tparam Levels    the magnitudes that have codes; levels/
/// @tparam Rounding  selects one of two neighboring levels; rounding/
/// @tparam Wire      converts codes to bytes; wire/
/// @tparam Reduce    adds codes; reduce/; automatic: determined by the other policies
/// @source Xin et al. (Global-QSGD), Definition 3.1; Alistarh et al. 2017 (QSGD) with norm::local
template <class Norm, class Levels, class Rounding = detail::missing_policy,
          class Wire = detail::missing_policy, class Reduce = reduce::automatic>
struct quantizer {
  // Assertions instead of constraints, which compilers report as "deduction failed". First the order, then the members.
  static_assert(
      detail::in_place<Norm, detail::NormPolicy<Norm>>,
      "globalq: quantizer: the first policy is not a norm (see NormScheme); the order is norm, levels, "
      "rounding, wire, and reduce if any: quantizer{norm::linf{}, levels::uniform<>{}, "
      "rounding::stochastic{}, wire::int8{}}");
  static_assert(sizeof(detail::expect_norm<Norm>) != 0);
  static_assert(
      detail::in_place<Levels, LevelScheme<Levels>>,
      "globalq: quantizer: the second policy is not a level scheme (see LevelScheme); the order is norm, "
      "levels, rounding, wire, and reduce if any");
  static_assert(sizeof(detail::expect_levels<Levels>) != 0);
  static_assert(
      detail::in_place<Rounding, RoundingScheme<Rounding>>,
      "globalq: quantizer: the third policy is missing or not a rounding (see RoundingScheme); the order "
      "is norm, levels, rounding, wire, and reduce if any");
  static_assert(sizeof(detail::expect_rounding<Rounding>) != 0);
  static_assert(!std::is_same_v<Wire, detail::missing_policy>,
                "globalq: quantizer: the wire is missing; pass a wire format as the fourth policy: "
                "wire::int8{}, wire::packed<4>{} or another");
  static_assert(
      detail::in_place<Wire, detail::WirePolicy<Wire>>,
      "globalq: quantizer: the fourth policy is not a wire format (see WireFormat); the order is norm, "
      "levels, rounding, wire, and reduce if any");
  static_assert(sizeof(detail::expect_wire<Wire>) != 0);
  using code_type = typename Wire::code_type;
  static_assert(detail::in_place<Reduce, detail::ReducePolicy<Reduce>>,
                "globalq: quantizer: the fifth policy is not a reduce operator (see ReduceOperator); use "
                "reduce::automatic, sum, exponential or requantize, or leave it out");
  static_assert(sizeof(detail::expect_reduce<Reduce, Levels, code_type>) != 0);

  static constexpr bool evenly_spaced = detail::adds_as_integers<Levels>();
  static constexpr bool binary = detail::base_two<Levels>();
  static constexpr bool shifts_back = detail::may_shift_back<Rounding>();

  static_assert(!shifts_back || evenly_spaced,
                "globalq: shifting back needs evenly spaced levels; use levels::uniform, or "
                "rounding::random_shift<false>; see docs/composing.md");
  static_assert(
      !std::is_same_v<Reduce, reduce::sum> || evenly_spaced,
      "globalq: reduce::sum cannot add codes of this level scheme; uniform levels pair with reduce::sum, "
      "exponential levels of base 2 with reduce::exponential, all levels with reduce::requantize; see "
      "docs/composing.md");
  static_assert(
      !std::is_same_v<Reduce, reduce::exponential> || binary,
      "globalq: reduce::exponential cannot add codes of this level scheme; it adds powers of two, so use "
      "levels::exponential with base 2, or reduce::requantize; see docs/composing.md");
  static_assert(!detail::always_local<Norm>() || !detail::adds_codes<Reduce>,
                "globalq: codes scaled by different norms cannot be added; use a global norm, or "
                "reduce::requantize; see "
                "docs/composing.md");
  static_assert(
      detail::has_quantum_of<Norm, Levels>,
      "globalq: norm::shared_exponent and norm::two_level scale to the largest value of a format, but "
      "these levels are not that format; use norm::shared_exponent<levels::e2m1> with levels::e2m1, "
      "and so on; see docs/composing.md");
  static_assert(!wire::BlockCode<Wire> || !detail::adds_codes<Reduce>,
                "globalq: codes in frames of different lengths cannot be added; use reduce::requantize or "
                "reduce::automatic, or wire::int8 or wire::packed; see docs/composing.md");

  // user-defined policies
  static constexpr bool own_reduce = !detail::is_reduce<Reduce>;
  static constexpr bool user_norm = HasStatistic<Norm>;
  static_assert(detail::may_add<Reduce, Levels>,
                "globalq: this reduce operator declares that it cannot add codes of this level scheme "
                "(adds<Levels>); use levels that it can add, or reduce::requantize; see docs/extending.md");

  Norm norm;
  Levels levels;
  Rounding rounding;
  Wire wire;
  Reduce reduce{};
};

template <class N, class L>
quantizer(N, L) -> quantizer<N, L>;
template <class N, class L, class R>
quantizer(N, L, R) -> quantizer<N, L, R>;
template <class N, class L, class R, class W>
quantizer(N, L, R, W) -> quantizer<N, L, R, W>;
template <class N, class L, class R, class W, class Op>
quantizer(N, L, R, W, Op) -> quantizer<N, L, R, W, Op>;

}  // namespace GLOBALQ_ABI
