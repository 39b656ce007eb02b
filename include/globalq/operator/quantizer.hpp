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
#include "../rounding/nearest.hpp"
#include "../rounding/random_shift.hpp"
#include "../rounding/stochastic.hpp"
#include "../wire/elias.hpp"
#include "../wire/huffman.hpp"
#include "../wire/integer.hpp"
#include "../wire/packed.hpp"
#include "../wire/sparse.hpp"
#include "detail/composition.hpp"

namespace GLOBALQ_ABI {

namespace detail {
template <class Op>
inline constexpr bool is_reduce = std::is_same_v<Op, reduce::automatic> || std::is_same_v<Op, reduce::sum> ||
                                  std::is_same_v<Op, reduce::exponential> ||
                                  std::is_same_v<Op, reduce::requantize> || std::is_same_v<Op, reduce::any>;

/// In place of a policy that was left out.
struct missing_policy {};
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
  // Assertions instead of constraints, which compilers report as "deduction failed".
  static_assert(
      NormScheme<Norm> || HasStatistic<Norm>,
      "globalq: quantizer: the first policy is not a norm (see NormScheme); the order is norm, levels, "
      "rounding, wire, and reduce if any: quantizer{norm::linf{}, levels::uniform<>{}, "
      "rounding::stochastic{}, wire::int8{}}");
  static_assert(
      SaysBuckets<Norm>,
      "globalq: this norm does not declare which values share a scale; give it a std::uint64_t bucket "
      "and a static constexpr bool is_local; see docs/extending.md");
  static_assert(
      LevelScheme<Levels>,
      "globalq: quantizer: the second policy is not a level scheme (see LevelScheme); the order is norm, "
      "levels, rounding, wire, and reduce if any");
  static_assert(
      RoundingScheme<Rounding>,
      "globalq: quantizer: the third policy is missing or not a rounding (see RoundingScheme); the order "
      "is norm, levels, rounding, wire, and reduce if any");
  static_assert(!std::is_same_v<Wire, detail::missing_policy>,
                "globalq: quantizer: the wire is missing; pass a wire format as the fourth policy: "
                "wire::int8{}, wire::packed<4>{} or another");
  static_assert(
      WireFormat<Wire> || wire::BlockCode<Wire>,
      "globalq: quantizer: the fourth policy is not a wire format (see WireFormat); the order is norm, "
      "levels, rounding, wire, and reduce if any");
  static_assert(ReduceOperator<Reduce> || std::is_same_v<Reduce, reduce::any>,
                "globalq: quantizer: the fifth policy is not a reduce operator (see ReduceOperator); use "
                "reduce::automatic, sum, exponential or requantize, or leave it out");

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
      "globalq: norm::shared_exponent scales to the largest value of a format, but these levels are not that "
      "format; use norm::shared_exponent<levels::e2m1> with levels::e2m1, and so on; see docs/composing.md");
  static_assert(!wire::BlockCode<Wire> || !detail::adds_codes<Reduce>,
                "globalq: codes in frames of different lengths cannot be added; use reduce::requantize or "
                "reduce::automatic, or wire::int8 or wire::packed; see docs/composing.md");

  // a user-defined reduce operator
  static constexpr bool own_reduce = !detail::is_reduce<Reduce>;
  using code_type = typename Wire::code_type;
  static_assert(!own_reduce || AddsPair<Reduce, code_type>,
                "globalq: this reduce operator does not add codes; give it a static function add(code, code, "
                "word) for the "
                "code type of the wire format, or use reduce::automatic; see docs/extending.md");
  static_assert(!own_reduce || SaysDraws<Reduce>,
                "globalq: this reduce operator does not declare whether add() uses its random word; give "
                "it a static constexpr bool draws; see docs/extending.md");
  static_assert(!own_reduce || SaysUnbiased<Reduce>,
                "globalq: this reduce operator does not declare whether it is unbiased; give it a static "
                "constexpr bool unbiased; see docs/extending.md");
  static_assert(!own_reduce || SaysLargestCode<Reduce>,
                "globalq: this reduce operator does not declare how large codes of sums become; give it a "
                "static std::uint64_t largest_code(max_code, terms, height); see docs/extending.md");
  static_assert(!own_reduce || SaysAdds<Reduce, Levels>,
                "globalq: this reduce operator does not declare which level schemes it can add; give it a "
                "template <class Levels> static constexpr bool adds; see docs/extending.md");
  static_assert(!own_reduce || Described<Reduce>,
                "globalq: a reduce operator with template arguments must declare a number for them, which "
                "workers compare; give it std::uint64_t parameters() const; see docs/extending.md");
  static_assert(detail::may_add<Reduce, Levels>,
                "globalq: this reduce operator declares that it cannot add codes of this level scheme "
                "(adds<Levels>); use levels that it can add, or reduce::requantize; see docs/extending.md");
  // a user-defined norm
  static constexpr bool own_norm = HasStatistic<Norm>;
  static_assert(
      !own_norm || HasSmallStatistic<Norm>,
      "globalq: this norm's statistic cannot be sent; make it trivially copyable, of at most 32 bytes; "
      "see docs/extending.md");
  static_assert(
      !own_norm || MeasuresValues<Norm>,
      "globalq: this norm does not measure values; give it statistic measure(T const*, int count) const for "
      "float and double; see docs/extending.md");
  static_assert(!own_norm || MergesStatistics<Norm>,
                "globalq: this norm does not merge statistics; give it statistic merge(statistic, statistic) "
                "const; see docs/extending.md");
  static_assert(!own_norm || ScalesByStatistic<Norm>,
                "globalq: this norm does not compute a scale; give it double scale(statistic) const; see "
                "docs/extending.md");
  static_assert(
      !own_norm || SaysBounds<Norm>,
      "globalq: this norm does not declare whether its scale bounds the largest magnitude; give it a "
      "static constexpr bool bounds_largest; see docs/extending.md");
  static_assert(
      !own_norm || (Named<Norm> && Described<Norm>),
      "globalq: a norm with a statistic must declare a name, and a number for its members and template "
      "arguments, which workers compare; give it a static constexpr char const* name and std::uint64_t "
      "parameters() const; see docs/extending.md");
  static_assert(
      !own_norm || std::is_trivially_copyable_v<Norm>,
      "globalq: this norm is not trivially copyable; use only numbers as members; see docs/extending.md");
  static_assert(
      SaysUnbiased<Rounding>,
      "globalq: this rounding does not declare whether it is unbiased; give it a static constexpr bool "
      "unbiased; see docs/composing.md");
  static_assert(
      wire::BlockCode<Wire> || SaysBits<Wire>,
      "globalq: this wire format does not declare how many bits a code takes; give it int bits() const; see "
      "docs/composing.md");
  static_assert(
      Named<Levels> && Named<Rounding> && Named<Wire>,
      "globalq: levels, rounding and wire must each declare a name, which workers compare; give the "
      "policy a static constexpr char const* name; see docs/composing.md");
  static_assert(Described<Levels> && Described<Rounding> && Described<Wire>,
                "globalq: a policy with members or template arguments must declare a number for them, which "
                "workers compare; give it std::uint64_t parameters() const; see docs/composing.md");

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

/// @brief No quantization: sends float32 over the same schedules, as a baseline for comparison.
struct uncompressed {};

}  // namespace GLOBALQ_ABI
