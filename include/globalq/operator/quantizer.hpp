// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the quantizer: a norm, levels, a rounding, a wire format and a reduce, composed.

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
/// Whether it adds codes as they are.
template <class Op>
inline constexpr bool adds_codes =
    !std::is_same_v<Op, reduce::automatic> && !std::is_same_v<Op, reduce::requantize> &&
    !std::is_same_v<Op, reduce::any>;
/// Whether each worker has scales of its own, as far as the type of a norm tells.
template <class Norm>
constexpr bool always_local() {
  if constexpr (std::is_same_v<Norm, norm::any>)
    return false;
  else
    return Norm::is_local;
}
/// Whether a norm scales to no number format, or to that of the levels.
template <class Norm, class Levels>
inline constexpr bool has_quantum_of = !HasQuantum<Norm>;
template <class Norm, class Levels>
requires(HasQuantum<Norm>&& HasLargest<Levels>) inline constexpr bool has_quantum_of<Norm, Levels> =
    Norm::quantum == Levels::largest;
/// Whether an operator of one's own does not say that it cannot add codes of these levels.
template <class Op, class Levels>
inline constexpr bool may_add = true;
template <class Op, class Levels>
requires(!is_reduce<Op> &&
         SaysAdds<Op, Levels>) inline constexpr bool may_add<Op, Levels> = Op::template adds<Levels>;
}  // namespace detail

/// @brief An operator: what is done to a vector between a worker and the wire.
///
/// Whether the policies fit together is asked here as far as types tell; the rest where workers and schedule are known.
/// @tparam Norm      which norm scales the values; norm/norms.hpp
/// @tparam Levels    which magnitudes have codes; levels/
/// @tparam Rounding  how one of two neighboring levels is chosen; rounding/
/// @tparam Wire      how codes become bytes; wire/
/// @tparam Reduce    how codes are added; reduce/; automatic: chosen from the others
/// @source Xin et al. (Global-QSGD), Definition 3.1; Alistarh et al. 2017 (QSGD) with norm::local
template <class Norm, class Levels, class Rounding = detail::missing_policy,
          class Wire = detail::missing_policy, class Reduce = reduce::automatic>
struct quantizer {
  // Sentences instead of constraints, which a compiler tells as "deduction failed".
  static_assert(
      NormScheme<Norm> || HasStatistic<Norm>,
      "globalq: quantizer: the first policy is no norm (see NormScheme). The order is norm, levels, "
      "rounding, wire, and reduce if any: quantizer{norm::linf{}, levels::uniform<>{}, "
      "rounding::stochastic{}, wire::int8{}}");
  static_assert(
      SaysBuckets<Norm>,
      "globalq: this norm does not declare which values share a scale. Give it a std::uint64_t bucket "
      "and a static constexpr bool is_local; see docs/extending.md");
  static_assert(
      LevelScheme<Levels>,
      "globalq: quantizer: the second policy is no level scheme (see LevelScheme). The order is norm, "
      "levels, rounding, wire, and reduce if any");
  static_assert(
      RoundingScheme<Rounding>,
      "globalq: quantizer: the third policy is missing or no rounding (see RoundingScheme). The order "
      "is norm, levels, rounding, wire, and reduce if any");
  static_assert(!std::is_same_v<Wire, detail::missing_policy>,
                "globalq: quantizer: the wire is missing; the fourth policy says how codes become bytes: "
                "wire::int8{}, wire::packed<4>{} or another");
  static_assert(
      WireFormat<Wire> || wire::BlockCode<Wire>,
      "globalq: quantizer: the fourth policy is no wire format (see WireFormat). The order is norm, "
      "levels, rounding, wire, and reduce if any");
  static_assert(ReduceOperator<Reduce> || std::is_same_v<Reduce, reduce::any>,
                "globalq: quantizer: the fifth policy is no reduce operator (see ReduceOperator). Use "
                "reduce::automatic, sum, exponential or requantize, or leave it out");

  static constexpr bool evenly_spaced = detail::adds_as_integers<Levels>();
  static constexpr bool binary = detail::base_two<Levels>();
  static constexpr bool shifts_back = detail::may_shift_back<Rounding>();

  static_assert(!shifts_back || evenly_spaced,
                "globalq: shifting back needs evenly spaced levels. Use levels::uniform, or "
                "rounding::random_shift<false>; see docs/composing.md");
  static_assert(
      !std::is_same_v<Reduce, reduce::sum> || evenly_spaced,
      "globalq: reduce::sum cannot add codes of this level scheme. Uniform levels pair with reduce::sum, "
      "exponential levels of base 2 with reduce::exponential, all levels with reduce::requantize; see "
      "docs/composing.md");
  static_assert(
      !std::is_same_v<Reduce, reduce::exponential> || binary,
      "globalq: reduce::exponential cannot add codes of this level scheme. It adds powers of two: use "
      "levels::exponential with base 2, or reduce::requantize; see docs/composing.md");
  static_assert(!detail::always_local<Norm>() || !detail::adds_codes<Reduce>,
                "globalq: codes scaled by different norms cannot be added. Use a global norm, or "
                "reduce::requantize; see "
                "docs/composing.md");
  static_assert(
      detail::has_quantum_of<Norm, Levels>,
      "globalq: norm::shared_exponent scales to the largest value of a format, and these levels are others. "
      "Use "
      "norm::shared_exponent<levels::e2m1> with levels::e2m1, and so on; see docs/composing.md");
  static_assert(
      !wire::BlockCode<Wire> || !detail::adds_codes<Reduce>,
      "globalq: codes in frames of different lengths are not added as they are. Use reduce::requantize or "
      "reduce::automatic, or wire::int8 or wire::packed; see docs/composing.md");

  // the same of a reduce operator of one's own, once it has all members
  static constexpr bool own_reduce = !detail::is_reduce<Reduce>;
  using lane = typename Wire::lane;
  static_assert(
      !own_reduce || AddsLanes<Reduce, lane>,
      "globalq: this reduce operator does not add codes. Give it a static function add(lane, lane, word) for "
      "lanes of the wire format, or use reduce::automatic; see docs/extending.md");
  static_assert(!own_reduce || SaysDraws<Reduce>,
                "globalq: this reduce operator does not declare whether add() looks at its random word. Give "
                "it a static constexpr bool draws; see docs/extending.md");
  static_assert(!own_reduce || SaysUnbiased<Reduce>,
                "globalq: this reduce operator does not declare whether it is unbiased. Give it a static "
                "constexpr bool unbiased; see docs/extending.md");
  static_assert(!own_reduce || SaysLargestCode<Reduce>,
                "globalq: this reduce operator does not declare how large codes of sums become. Give it a "
                "static std::uint64_t largest_code(max_code, terms, height); see docs/extending.md");
  static_assert(!own_reduce || SaysAdds<Reduce, Levels>,
                "globalq: this reduce operator does not declare which level schemes it can add. Give it a "
                "template <class Levels> static constexpr bool adds; see docs/extending.md");
  static_assert(!own_reduce || Described<Reduce>,
                "globalq: a reduce operator with template arguments must declare a number for them, which "
                "workers compare. Give it std::uint64_t parameters() const; see docs/extending.md");
  static_assert(detail::may_add<Reduce, Levels>,
                "globalq: this reduce operator says that it cannot add codes of this level scheme "
                "(adds<Levels>). Use levels that it can add, or reduce::requantize; see docs/extending.md");
  // and of a norm of one's own
  static constexpr bool own_norm = HasStatistic<Norm>;
  static_assert(
      !own_norm || HasSmallStatistic<Norm>,
      "globalq: this norm's statistic cannot travel. Make it trivially copyable, of at most 32 bytes; "
      "see docs/extending.md");
  static_assert(
      !own_norm || MeasuresValues<Norm>,
      "globalq: this norm does not measure values. Give it statistic measure(T const*, int count) const for "
      "float and double; see docs/extending.md");
  static_assert(!own_norm || MergesStatistics<Norm>,
                "globalq: this norm does not merge statistics. Give it statistic merge(statistic, statistic) "
                "const; see docs/extending.md");
  static_assert(
      !own_norm || ScalesByStatistic<Norm>,
      "globalq: this norm makes no scale of a statistic. Give it double scale(statistic) const; see "
      "docs/extending.md");
  static_assert(
      !own_norm || SaysBounds<Norm>,
      "globalq: this norm does not declare whether its scale bounds the largest magnitude. Give it a "
      "static constexpr bool bounds_largest; see docs/extending.md");
  static_assert(
      !own_norm || (Named<Norm> && Described<Norm>),
      "globalq: a norm with a statistic must declare a name, and a number for its members and template "
      "arguments, which workers compare. Give it a static constexpr char const* name and std::uint64_t "
      "parameters() const; see docs/extending.md");
  static_assert(
      !own_norm || std::is_trivially_copyable_v<Norm>,
      "globalq: this norm is not trivially copyable. Let its members be numbers; see docs/extending.md");
  static_assert(
      SaysUnbiased<Rounding>,
      "globalq: this rounding does not declare whether it is unbiased. Give it a static constexpr bool "
      "unbiased; see docs/composing.md");
  static_assert(
      wire::BlockCode<Wire> || SaysBits<Wire>,
      "globalq: this wire format does not declare how many bits a code takes. Give it int bits() const; see "
      "docs/composing.md");
  static_assert(
      Named<Levels> && Named<Rounding> && Named<Wire>,
      "globalq: levels, rounding and wire must each declare a name, which workers compare. Give the "
      "policy a static constexpr char const* name; see docs/composing.md");
  static_assert(Described<Levels> && Described<Rounding> && Described<Wire>,
                "globalq: a policy with members or template arguments must declare a number for them, which "
                "workers compare. Give it std::uint64_t parameters() const; see docs/composing.md");

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

/// @brief No quantization: float32 on the wire, over the same schedules; the baseline to compare with.
struct uncompressed {};

}  // namespace GLOBALQ_ABI
