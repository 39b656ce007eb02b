// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: policy concepts: what a level scheme, rounding, wire format, reduce operator or norm must provide.
///
/// Users extend globalq by writing a type that satisfies one of these concepts; nothing is registered. Policies are
/// small trivially copyable values whose member functions are scalar, branch-free and callable on host and device; the
/// kernels supply the loop, the vectorization and the memory traffic. Transport and Schedule have their own headers.
/// A quantizer also requires levels, rounding and wire to be Named and Described, and the rounding to be SaysUnbiased.
///
/// The library uses no other members than these; the optional members of each kind follow its concept.
/// docs/extending.md has an example of each kind.

#include "arithmetic.hpp"

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace GLOBALQ_ABI {

namespace detail {
template <class P>
inline constexpr bool has_arguments = false;
template <template <class...> class P, class... Arguments>
inline constexpr bool has_arguments<P<Arguments...>> = true;
template <template <auto...> class P, auto... Arguments>
inline constexpr bool has_arguments<P<Arguments...>> = true;
}  // namespace detail

/// Has a member function `name()`, for a name that depends on members.
template <class P>
concept NamedByFunction = requires(P const policy) {
  { policy.name() } -> std::convertible_to<std::string_view>;
};
/// Has a name, for messages and for the fingerprint: `static constexpr char const* name`, or `name()`.
template <class P>
concept Named = NamedByFunction<P> || requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

/// Has `std::uint64_t parameters() const`, a number that differs when members or template arguments differ. Workers
/// whose numbers differ get a disagreement_error. (For templates that mix types and values, the name must differ.)
template <class P>
concept HasParameters = requires(P const policy) {
  { policy.parameters() } -> std::same_as<std::uint64_t>;
};
/// Has parameters() if it has members or template arguments.
template <class P>
concept Described = (std::is_empty_v<P> && !detail::has_arguments<P>) || HasParameters<P>;

/// Has `static constexpr bool unbiased`: whether the expected value is exact. For roundings and reduce operators.
template <class P>
concept SaysUnbiased = requires {
  { P::unbiased } -> std::convertible_to<bool>;
};

/// The two codes around a magnitude; rounding takes the upper one with probability threshold / 2^32.
///
/// Codes are signed relative to the value: -1 is code 1 with the opposite sign (symmetric levels without zero).
struct neighbors {
  std::int32_t lower;
  std::int32_t upper;
  std::uint32_t threshold;
};

/// Maps magnitudes to codes and back: t = |x| * extent / scale in [0, extent()], code in [0, max_code()].
///
/// Levels rise or fall with their codes. @c locate must be exact: given t, the bias is at most 2^-32 of the gap.
template <class L>
concept LevelScheme = std::is_trivially_copyable_v<L> &&
    requires(L const levels, float t, std::uint32_t code) {
  { levels.extent() } -> std::same_as<float>;            // t of a value as large as the norm
  { levels.max_code() } -> std::same_as<std::uint32_t>;  // largest code that encoding produces
  { levels.locate(t) } -> std::same_as<neighbors>;
  { levels.value(code) } -> std::same_as<float>;  // the level of a code, on the scale of extent()
};

// Optional members of a level scheme.

/// Has `std::uint32_t size()`: levels above zero, if that is not max_code(). 0, if Resizable: as many as fit.
template <class L>
concept Sized = requires(L const levels) {
  { levels.size() } -> std::convertible_to<std::uint32_t>;
};
/// Has `L resized(std::uint32_t)`: the same scheme with another number of levels. Of schemes without it, all values are
/// hashed into the fingerprint.
template <class L>
concept Resizable = requires(L const levels) {
  levels.resized(1U);
};
/// Has `static constexpr std::uint32_t limit`: the largest number of levels.
template <class L>
concept Limited = requires {
  { L::limit } -> std::convertible_to<std::uint32_t>;
};
/// Has `L with_headroom(std::uint32_t)`: the scheme with that many codes free below the smallest. For levels whose
/// codes fall as magnitudes rise, because sums have smaller codes.
template <class L>
concept KeepsHeadroom = Resizable<L> && requires(L const levels) {
  levels.with_headroom(1U);
};
/// Has `at_run_time()`: the same scheme with its template arguments as data. Kernels are compiled for that type.
template <class L>
concept KnownAtRunTime = requires(L const levels) {
  levels.at_run_time();
};
/// Has `bool zero_free()`: whether zero is not a level. If so, code 0 is unused and code -1 is minus the first level.
template <class L>
concept SaysZeroFree = requires(L const levels) {
  { levels.zero_free() } -> std::convertible_to<bool>;
};
/// Has `float signed_value(code)`: value() of a signed code, with its sign, in one step.
template <class L, class Code>
concept HasSignedValues = requires(L const levels, Code code) {
  { levels.signed_value(code) } -> std::convertible_to<float>;
};
/// Has `static constexpr float largest`: the largest value of a number format, for norm::shared_exponent and norm::two_level.
template <class L>
concept HasLargest = requires {
  { L::largest } -> std::convertible_to<float>;
};
/// A levels::detail::level_table, whose loops interpolate linearly between levels.
template <class L>
concept Tabled = requires(L const levels) {
  levels.ascending();
  levels.by_code();
  levels.slopes();
  levels.offsets();
  { levels.slack() } -> std::same_as<std::uint32_t>;
};

namespace detail {
/// `static constexpr bool evenly_spaced`: level k is k times level 1. Codes add as integers, and shifts can be undone.
template <class L>
constexpr bool adds_as_integers() {
  if constexpr (requires { L::evenly_spaced; }) return L::evenly_spaced;
  return false;
}
/// `static constexpr bool base_two`: code e > 0 is 2^-e times a constant. reduce::exponential adds such codes.
template <class L>
constexpr bool base_two() {
  if constexpr (requires { L::base_two; }) return L::base_two;
  return false;
}
}  // namespace detail

/// Selects one of two neighboring levels, and may add a shift when decoding (random shift).
template <class R>
concept RoundingScheme = std::is_trivially_copyable_v<R> && requires(R const rounding, std::uint32_t word) {
  { R::word_per_coordinate } -> std::convertible_to<bool>;         // else one word per bucket
  { rounding.shifts() } -> std::convertible_to<bool>;              // decoding adds shift()
  { rounding.word(word) } -> std::same_as<std::uint32_t>;          // the word that up() uses
  { rounding.up(word, word, word) } -> std::convertible_to<bool>;  // threshold, word, sign mask
  { rounding.shift(word) } -> std::same_as<double>;                // in units of the gap
};

// Optional members of a rounding.

/// Has `std::uint32_t compared(word, sign)`: up(threshold, word, sign) is compared(word, sign) < threshold. Loops over
/// tables require it.
template <class R>
concept ComparesWords = requires(R const rounding, std::uint32_t word) {
  { rounding.compared(word, word) } -> std::same_as<std::uint32_t>;
};
/// Has `using compares_words_alone = R`: draws a word for each value, and up(threshold, word, sign) is word < threshold. The library
/// then uses its loops for rounding::stochastic. (A type, because a class that derives from R must not inherit the claim.)
template <class R>
concept ComparesWordsAlone = R::word_per_coordinate && std::is_same_v<typename R::compares_words_alone, R>;
/// Has `R for_worker(std::uint32_t rank, std::uint32_t workers) const`: the rounding as a worker uses it in a call, where
/// rank and workers are those of the workers that encode. vector_codec does not know them and refuses such roundings.
template <class R>
concept ToldWorker = requires(R const rounding, std::uint32_t number) {
  { rounding.for_worker(number, number) } -> std::same_as<R>;
};
/// Has `static double gain(std::uint32_t workers)`: how many times smaller than by independent words the variance of a mean is,
/// on average over fractions of gaps that are uniform and independent, under a norm of all workers. Plans use it.
template <class R>
concept SaysGain = requires(std::uint32_t workers) {
  { R::gain(workers) } -> std::convertible_to<double>;
};
/// Has `bool told() const`: whether for_worker() matters; else it is taken to.
template <class R>
concept SaysTold = ToldWorker<R> && requires(R const rounding) {
  { rounding.told() } -> std::same_as<bool>;
};
/// Has `static double variance_factor(std::uint32_t workers)`: how many times larger than by independent words the variance of a
/// mean can be; else bounds for independent words hold.
template <class R>
concept SaysVarianceFactor = requires(std::uint32_t workers) {
  { R::variance_factor(workers) } -> std::convertible_to<double>;
};
/// Draws words in common with other workers. Has `std::uint32_t cohort() const`, the number of the workers that share them,
/// and `in_tile(std::uint32_t const* shared) const`, the rounding of own values in a tile of 256: a RoundingScheme that
/// ComparesWords and draws a word for each value. `shared[0]` to `shared[15]` are random words, the same for a tile on all
/// workers of a cohort. Sums that are encoded again are rounded by the rounding itself, which therefore ComparesWordsAlone.
template <class R>
concept SharesWords = ToldWorker<R> && ComparesWordsAlone<R> &&
    requires(R const rounding, std::uint32_t const* shared) {
  { rounding.cohort() } -> std::same_as<std::uint32_t>;
  { rounding.in_tile(shared) } -> RoundingScheme;
  { rounding.in_tile(shared) } -> ComparesWords;
  requires decltype(rounding.in_tile(shared))::word_per_coordinate;
};
/// Has a member `bool shift_back`; if it is false, so is shifts(). The library clears it for sums that are encoded
/// again at k times the norm, because shifted values may exceed that.
template <class R>
concept MayLeaveShifts = requires(R rounding) {
  { rounding.shift_back } -> std::convertible_to<bool>;
};

namespace detail {
/// `static constexpr bool shifts_back`: shifts() can be true, so levels must be evenly spaced.
template <class R>
constexpr bool may_shift_back() {
  if constexpr (requires { R::shifts_back; }) return R::shifts_back;
  return false;
}
}  // namespace detail

/// Converts codes (signed integers, one per value) to bytes and back.
template <class W>
concept WireFormat = std::is_trivially_copyable_v<W> && std::signed_integral<typename W::code_type> &&
    requires(W const wire, typename W::code_type* codes, std::byte* bytes, std::uint64_t n, int count,
             bool zero_free) {
  { wire.largest_code(zero_free) } -> std::same_as<std::uint32_t>;
  { wire.bytes(n) } -> std::same_as<std::uint64_t>;  // of n codes; n is a multiple of 8 or last
  { wire.identifier() } -> std::same_as<std::uint8_t>;
  wire.pack(codes, count, bytes, zero_free);
  { wire.unpack(bytes, count, codes, zero_free) } -> std::same_as<bool>;  // true: bad bytes
};

// Further members of a wire format; all but SaysBits are optional.

/// Has `int bits()`: the bits of a code, for plans and chunks. For a BlockCode, the bits of `code_type`.
template <class W>
concept SaysBits = requires(W const wire) {
  { wire.bits() } -> std::convertible_to<int>;
};

namespace detail {
/// `static constexpr bool is_integer`: codes travel unchanged.
template <class W>
constexpr bool is_integer_wire() {
  if constexpr (requires { W::is_integer; }) return W::is_integer;
  return false;
}
/// `static constexpr bool without_gaps`: bytes(n) is ceil(n * bits() / 8). It saves a call per piece.
template <class W>
constexpr bool without_gaps() {
  if constexpr (requires { W::without_gaps; }) return W::without_gaps;
  return false;
}
/// `static constexpr bool may_be_nibbles`: may be wire::packed of four bits, which kernels write directly into frames.
template <class W>
constexpr bool may_be_nibbles() {
  if constexpr (requires { W::may_be_nibbles; }) return W::may_be_nibbles;
  return false;
}
/// Has `static constexpr int quad_bytes`: the bytes of four codes, so that a device can read them in registers.
template <class W>
concept SaysQuadBytes = requires {
  { W::quad_bytes } -> std::convertible_to<int>;
};
/// W::quad_bytes; 0 if it is missing, or if four codes are not whole bytes.
template <class W>
constexpr int quad_bytes() {
  if constexpr (SaysQuadBytes<W>) return W::quad_bytes;
  return 0;
}
}  // namespace detail

/// Specifies how codes are added: names one of the library's methods (reduce/), or adds them itself (AddsCodes). It has
/// no members: numbers are template arguments.
template <class Op>
concept ReduceOperator = std::is_empty_v<Op> && Named<Op>;

// Members of a user-defined reduce operator, each with its own concept, so that a quantizer can report a missing one.

/// Has `static Int add(Int, Int, std::uint32_t word)`, for signed integers, on host and device: the code of a sum of
/// two values, given a random word for each value. One worker adds and passes the result on, so all get the same bits.
/// To be unbiased where the exact sum lies between two codes, take the upper one if the word is below a threshold out
/// of 2^32.
template <class Op, class Int>
concept AddsPair = requires(Int code, std::uint32_t word) {
  { Op::add(code, code, word) } -> std::signed_integral;
};
/// Has `static constexpr bool draws`: whether add() uses its word. If not, no words are drawn.
template <class Op>
concept SaysDraws = requires {
  { Op::draws } -> std::convertible_to<bool>;
};
/// Has `static std::uint64_t largest_code(max_code, terms, height)`: the largest magnitude of a code of a sum.
///
/// The arguments are the largest code of a term, the number of terms, and the additions on the longest path from a term
/// to the sum. The result does not fall as they rise, and is max_code for one term. A result that does not fit into a
/// code of the wire format is refused before anything is sent.
template <class Op>
concept SaysLargestCode = requires(std::uint32_t max_code, std::uint32_t terms, std::uint32_t height) {
  { Op::largest_code(max_code, terms, height) } -> std::same_as<std::uint64_t>;
};
/// Has `template <class Levels> static constexpr bool adds`: whether it adds codes of a level scheme. That scheme's
/// value() must be defined beyond max_code().
template <class Op, class Levels>
concept SaysAdds = requires {
  { Op::template adds<Levels> } -> std::convertible_to<bool>;
};
/// Has `add_quad(a, b, word)`: add() of four one-byte codes in a register, which share the word. Faster on a device.
template <class Op>
concept AddsQuads = requires(std::uint32_t four) {
  { Op::add_quad(four, four, four) } -> std::same_as<std::uint32_t>;
};
/// All that a user-defined reduce operator must provide.
template <class Op, class Levels, class Int>
concept AddsCodes = ReduceOperator<Op> && Described<Op> && AddsPair<Op, Int> && SaysDraws<Op> &&
    SaysUnbiased<Op> && SaysLargestCode<Op> && SaysAdds<Op, Levels>;

/// Selects one of the library's norms: order within a worker, order over the workers, and number of values per scale.
template <class N>
concept NormScheme = std::is_trivially_copyable_v<N> && requires(N const norm) {
  { norm.bucket } -> std::convertible_to<std::uint64_t>;  // values that share a scale; 0: the whole vector
  { norm.inner() } -> std::same_as<std::uint32_t>;        // q, order within a worker
  { norm.outer() } -> std::same_as<std::uint32_t>;        // p, order over the workers
  { N::is_local } -> std::convertible_to<bool>;           // each worker has its own scale
  { norm.fixed_scale() } -> std::same_as<double>;         // > 0: the scale; nothing is measured
};

// Optional members of a norm.

/// Has `bool rounds_up`: whether scales are rounded up to a power of two.
template <class N>
concept SaysRoundsUp = requires(N const norm) {
  { norm.rounds_up } -> std::convertible_to<bool>;
};
/// Has `static constexpr float quantum`: scales are rounded up to quantum * 2^k and travel as k, in one byte.
template <class N>
concept HasQuantum = requires {
  { N::quantum } -> std::convertible_to<float>;
};
/// Has also `static constexpr bool two_levels = true`: scales are rounded up to quantum * e times a scale of the vector,
/// with e an E4M3 number, which travels in one byte.
template <class N>
concept HasTwoLevels = HasQuantum<N> && requires {
  requires static_cast<bool>(N::two_levels);
};
// A user-defined norm has a statistic instead of orders: it measures parts of a vector, merges their statistics, and
// computes a scale. Each member has its own concept, so that a quantizer can report which one is missing.

/// The most bytes of a statistic, which is sent to other workers.
inline constexpr std::size_t most_statistic_bytes = 32;

/// Has a type `statistic`, which summarizes some values. `statistic{}` is the statistic of no values: merging it
/// changes nothing.
template <class N>
concept HasStatistic = requires {
  typename N::statistic;
};
/// Its statistic can be sent: default constructible, trivially copyable, at most most_statistic_bytes long.
template <class N>
concept HasSmallStatistic = HasStatistic<N> && std::is_trivially_copyable_v<typename N::statistic> &&
                            std::is_default_constructible_v<typename N::statistic> &&
                            sizeof(typename N::statistic) <= most_statistic_bytes;
/// Has `statistic measure(T const* x, int count) const`, for float and double: the statistic of up to 4,096 finite
/// values. float16 and bfloat16 arrive as float. Several threads call it.
template <class N>
concept MeasuresValues = HasSmallStatistic<N> &&
    requires(N const norm, float const* x, double const* wide, int count) {
  { norm.measure(x, count) } -> std::same_as<typename N::statistic>;
  { norm.measure(wide, count) } -> std::same_as<typename N::statistic>;
};
/// Has `statistic merge(statistic, statistic) const`: that of both; the first is of earlier values or a lower rank.
template <class N>
concept MergesStatistics = HasSmallStatistic<N> && requires(N const norm, typename N::statistic part) {
  { norm.merge(part, part) } -> std::same_as<typename N::statistic>;
};
/// Has `double scale(statistic) const`, finite and not negative: the divisor of the values. One worker computes it from
/// the merged statistics and sends it, so all get the same bits.
template <class N>
concept ScalesByStatistic = HasSmallStatistic<N> && requires(N const norm, typename N::statistic all) {
  { norm.scale(all) } -> std::same_as<double>;
};
/// Has `static constexpr bool bounds_largest`: whether scale() is at least the largest magnitude. If true, a smaller
/// scale is an error. If false, a smaller scale is raised to the largest magnitude: no value is ever clipped.
template <class N>
concept SaysBounds = requires {
  { N::bounds_largest } -> std::convertible_to<bool>;
};
/// Has `std::uint64_t bucket`, the number of values that share a scale (0: the whole vector), and
/// `static constexpr bool is_local`: whether each worker has its own scale.
template <class N>
concept SaysBuckets = requires(N const norm) {
  { norm.bucket } -> std::convertible_to<std::uint64_t>;
  { N::is_local } -> std::convertible_to<bool>;
};
/// All that a user-defined norm must provide.
template <class N>
concept NormOfStatistic = std::is_trivially_copyable_v<N> && SaysBuckets<N> && MeasuresValues<N> &&
    MergesStatistics<N> && ScalesByStatistic<N> && SaysBounds<N> && Named<N> && Described<N>;

}  // namespace GLOBALQ_ABI
