// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the doors: what each kind of policy must offer.
///
/// Users extend globalq by writing a type that satisfies one of these concepts; nothing is registered. Policies are
/// small trivially copyable values whose member functions are scalar, branch-free and callable on host and device; the
/// kernels supply the loop, the vectorization and the memory traffic. Transport and Schedule have pages of their own.
/// A quantizer also wants levels, rounding and wire Named and Described, and that a rounding says whether it is unbiased.
///
/// What is here is all that the library looks at: below each kind stands what it may offer besides. docs/extending.md has an example
/// of each.

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

/// Tells its name by a function, `name()`, as those do whose name depends on their members.
template <class P>
concept NamedByFunction = requires(P const policy) {
  { policy.name() } -> std::convertible_to<std::string_view>;
};
/// Declares what it is called, for people and for the fingerprint: `static constexpr char const* name`, or `name()`.
template <class P>
concept Named = NamedByFunction<P> || requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

/// Declares a number that stands for its members and template arguments where it has some: `std::uint64_t parameters() const`.
/// Workers whose numbers differ get a disagreement_error. (Of templates that mix types and values the name must tell.)
template <class P>
concept HasParameters = requires(P const policy) {
  { policy.parameters() } -> std::same_as<std::uint64_t>;
};
/// Declares it where it is asked for.
template <class P>
concept Described = (std::is_empty_v<P> && !detail::has_arguments<P>) || HasParameters<P>;

/// Declares whether what it does has the right expected value: `static constexpr bool unbiased`. Roundings and reduce operators.
template <class P>
concept SaysUnbiased = requires {
  { P::unbiased } -> std::convertible_to<bool>;
};

/// The two codes around a magnitude: the upper one is right with probability threshold / 2^32.
///
/// Codes are signed relative to the value: -1 is code 1 with the opposite sign (symmetric levels without zero).
struct neighbors {
  std::int32_t lower;
  std::int32_t upper;
  std::uint32_t threshold;
};

/// Maps magnitudes to codes and back: t = |x| * extent / unit in [0, extent()], code in [0, max_code()].
///
/// Levels rise or fall with their codes. @c locate must be exact: given t, the bias is at most 2^-32 of the gap.
template <class L>
concept LevelScheme = std::is_trivially_copyable_v<L> &&
    requires(L const levels, float t, std::uint32_t code) {
  { levels.extent() } -> std::same_as<float>;            // t of a value as large as the norm
  { levels.max_code() } -> std::same_as<std::uint32_t>;  // largest code that encoding gives
  { levels.locate(t) } -> std::same_as<neighbors>;
  { levels.value(code) } -> std::same_as<float>;  // the level of a code, on the scale of extent()
};

// What a level scheme may offer besides.

/// How many levels it has above zero, where that is not max_code(): `std::uint32_t size()`. 0: as many as fit, for Resizable ones.
template <class L>
concept Sized = requires(L const levels) {
  { levels.size() } -> std::convertible_to<std::uint32_t>;
};
/// The same scheme with another number of levels: `L resized(std::uint32_t)`. What only the values of others tell is hashed.
template <class L>
concept Resizable = requires(L const levels) {
  levels.resized(1U);
};
/// The most levels that it can have: `static constexpr std::uint32_t limit`; others have as many as they have.
template <class L>
concept Limited = requires {
  { L::limit } -> std::convertible_to<std::uint32_t>;
};
/// Codes that leave as many free below the smallest: `L with_headroom(std::uint32_t)`. For levels whose codes fall, as sums get smaller codes.
template <class L>
concept KeepsHeadroom = Resizable<L> && requires(L const levels) {
  levels.with_headroom(1U);
};
/// The same scheme with its template arguments as data: `at_run_time()`. Kernels are compiled for that type.
template <class L>
concept KnownAtRunTime = requires(L const levels) {
  levels.at_run_time();
};
/// Says whether it has no level at zero: `bool zero_free()`. Code 0 then stands for nothing, and a code of minus one is the level
/// opposite to the first.
template <class L>
concept SaysZeroFree = requires(L const levels) {
  { levels.zero_free() } -> std::convertible_to<bool>;
};
/// What a code with its sign stands for in one step: `float signed_value(code)`, the same as value() with the sign.
template <class L, class Code>
concept HasSignedValues = requires(L const levels, Code code) {
  { levels.signed_value(code) } -> std::convertible_to<float>;
};
/// The largest value of a number format: `static constexpr float largest`. What norm::shared_exponent compares.
template <class L>
concept HasLargest = requires {
  { L::largest } -> std::convertible_to<float>;
};
/// Levels with lines between them, which loops over tables use: see levels::detail::level_table. No other has them.
template <class L>
concept Tabled = requires(L const levels) {
  levels.ascending();
  levels.by_code();
  levels.slopes();
  levels.offsets();
  { levels.slack() } -> std::same_as<std::uint32_t>;
};

namespace detail {
/// Whether level k is k times level 1, `static constexpr bool evenly_spaced`: codes add as integers, and shifts can be taken back.
template <class L>
constexpr bool adds_as_integers() {
  if constexpr (requires { L::evenly_spaced; }) return L::evenly_spaced;
  return false;
}
/// Whether code e > 0 is 2^-e times a constant, `static constexpr bool base_two`: reduce::exponential adds such codes.
template <class L>
constexpr bool base_two() {
  if constexpr (requires { L::base_two; }) return L::base_two;
  return false;
}
}  // namespace detail

/// Decides between two neighboring levels, and may take part in decoding (random shift).
template <class R>
concept RoundingScheme = std::is_trivially_copyable_v<R> && requires(R const rounding, std::uint32_t word) {
  { R::word_per_coordinate } -> std::convertible_to<bool>;         // else one word a bucket
  { rounding.shifts() } -> std::convertible_to<bool>;              // adds shift() when decoding
  { rounding.word(word) } -> std::same_as<std::uint32_t>;          // the word to decide with
  { rounding.up(word, word, word) } -> std::convertible_to<bool>;  // threshold, word, sign mask
  { rounding.shift(word) } -> std::same_as<double>;                // in units of the gap
};

// What a rounding may offer besides.

/// up(threshold, word, sign) is compared(word, sign) < threshold: `std::uint32_t compared(word, sign)`. Loops over tables need it.
template <class R>
concept ComparesWords = requires(R const rounding, std::uint32_t word) {
  { rounding.compared(word, word) } -> std::same_as<std::uint32_t>;
};
/// Has a member `bool shift_back` that can be cleared: shifts() is false then. Done for sums that are encoded again at k times the norm,
/// which shifted values may pass.
template <class R>
concept MayLeaveShifts = requires(R rounding) {
  { rounding.shift_back } -> std::convertible_to<bool>;
};

namespace detail {
/// Whether shifts() can be true, `static constexpr bool shifts_back`: levels have to be evenly spaced then.
template <class R>
constexpr bool may_shift_back() {
  if constexpr (requires { R::shifts_back; }) return R::shifts_back;
  return false;
}
}  // namespace detail

/// Lanes (signed integers, one a value) to bytes and back.
template <class W>
concept WireFormat = std::is_trivially_copyable_v<W> && std::signed_integral<typename W::lane> &&
    requires(W const wire, typename W::lane* lanes, std::byte* bytes, std::uint64_t n, int count,
             bool zero_free) {
  { wire.largest_code(zero_free) } -> std::same_as<std::uint32_t>;
  { wire.bytes(n) } -> std::same_as<std::uint64_t>;  // of n lanes; n is a multiple of 8 or last
  { wire.identifier() } -> std::same_as<std::uint8_t>;
  wire.pack(lanes, count, bytes, zero_free);
  { wire.unpack(bytes, count, lanes, zero_free) } -> std::same_as<bool>;  // true: bad bytes
};

// What a wire format also has to offer, and what it may.

/// The bits of a code: `int bits()`. Plans and chunks are computed from it; of BlockCodes those of a lane.
template <class W>
concept SaysBits = requires(W const wire) {
  { wire.bits() } -> std::convertible_to<int>;
};

namespace detail {
/// Whether codes travel as lanes, as they are: `static constexpr bool is_integer`.
template <class W>
constexpr bool is_integer_wire() {
  if constexpr (requires { W::is_integer; }) return W::is_integer;
  return false;
}
/// Whether bytes(n) is that of n * bits() bits: `static constexpr bool without_gaps`. It saves a call a piece.
template <class W>
constexpr bool without_gaps() {
  if constexpr (requires { W::without_gaps; }) return W::without_gaps;
  return false;
}
/// Whether it may be wire::packed of four bits, whose codes are written straight into a frame: `static constexpr bool may_be_nibbles`.
template <class W>
constexpr bool may_be_nibbles() {
  if constexpr (requires { W::may_be_nibbles; }) return W::may_be_nibbles;
  return false;
}
/// Whether it says how many bytes four codes have, `static constexpr int quad_bytes`, and so can be read in registers of a device.
template <class W>
concept SaysQuadBytes = requires {
  { W::quad_bytes } -> std::convertible_to<int>;
};
/// That, or 0: not whole bytes, or not known.
template <class W>
constexpr int quad_bytes() {
  if constexpr (SaysQuadBytes<W>) return W::quad_bytes;
  return 0;
}
}  // namespace detail

/// Says how codes are added: the name of one of the library's ways (reduce/), or one of its own, which adds them itself. It has
/// no members: numbers are template arguments.
template <class Op>
concept ReduceOperator = std::is_empty_v<Op> && Named<Op>;

// What a reduce operator of one's own offers besides. Each has a concept of its own, so that a quantizer can say which is missing.

/// The code of a sum of two, by a random word for each value: `static Lane add(Lane, Lane, std::uint32_t word)`, for signed
/// integers, on host and device. One worker adds, and its result is passed on, so all get the same bits. Where the exact sum lies
/// between two codes, a word below threshold of 2^32 gives the upper one, and so no bias.
template <class Op, class Lane>
concept AddsLanes = requires(Lane code, std::uint32_t word) {
  { Op::add(code, code, word) } -> std::signed_integral;
};
/// Whether add() looks at its word, `static constexpr bool draws`: none is drawn otherwise.
template <class Op>
concept SaysDraws = requires {
  { Op::draws } -> std::convertible_to<bool>;
};
/// The largest magnitude of a code that a sum can have: `static std::uint64_t largest_code(max_code, terms, height)`.
///
/// From the largest code of a term, how many there are, and the additions on the longest path from a term to the sum. It rises with
/// each of them, and is max_code for one term. What no code of the wire format holds is refused before anything is sent.
template <class Op>
concept SaysLargestCode = requires(std::uint32_t max_code, std::uint32_t terms, std::uint32_t height) {
  { Op::largest_code(max_code, terms, height) } -> std::same_as<std::uint64_t>;
};
/// Whether it can add the codes of a level scheme: `template <class Levels> static constexpr bool adds`. The scheme's value() then
/// goes on beyond max_code().
template <class Op, class Levels>
concept SaysAdds = requires {
  { Op::template adds<Levels> } -> std::convertible_to<bool>;
};
/// add() of four codes of a byte in a register, with the word that they share: `add_quad(a, b, word)`. A device is faster with it.
template <class Op>
concept AddsQuads = requires(std::uint32_t four) {
  { Op::add_quad(four, four, four) } -> std::same_as<std::uint32_t>;
};
/// All that one must offer.
template <class Op, class Levels, class Lane>
concept AddsCodes = ReduceOperator<Op> && Described<Op> && AddsLanes<Op, Lane> && SaysDraws<Op> &&
    SaysUnbiased<Op> && SaysLargestCode<Op> && SaysAdds<Op, Levels>;

/// Says which norm of the library's scales the values: order inside a worker and over the workers, and over how many values.
template <class N>
concept NormScheme = std::is_trivially_copyable_v<N> && requires(N const norm) {
  { norm.bucket } -> std::convertible_to<std::uint64_t>;  // values that share a scale; 0: the whole vector
  { norm.inner() } -> std::same_as<std::uint32_t>;        // q, order within a worker
  { norm.outer() } -> std::same_as<std::uint32_t>;        // p, order over the workers
  { N::is_local } -> std::convertible_to<bool>;           // each worker its own
  { norm.fixed_scale() } -> std::same_as<double>;         // > 0: given, nothing is measured
};

// What a norm may offer besides.

/// Whether scales are rounded up to a power of two: `bool rounds_up`.
template <class N>
concept SaysRoundsUp = requires(N const norm) {
  { norm.rounds_up } -> std::convertible_to<bool>;
};
/// Scales are rounded up to quantum * 2^k and travel as k, in a byte: `static constexpr float quantum`.
template <class N>
concept HasQuantum = requires {
  { N::quantum } -> std::convertible_to<float>;
};
// A norm that is none of these brings a statistic of its own instead of orders: it measures parts, puts what is known of them
// together, and makes a scale of it. Each member has a concept of its own, so that a quantizer can say which is missing.

/// Bytes of a statistic at most: it travels.
inline constexpr std::size_t most_statistic_bytes = 32;

/// Has a type `statistic`: what is known of some values. As made by `statistic{}` it is that of none, which merging leaves
/// everything as it was.
template <class N>
concept HasStatistic = requires {
  typename N::statistic;
};
/// That travels: trivially copyable, of at most most_statistic_bytes.
template <class N>
concept HasSmallStatistic = HasStatistic<N> && std::is_trivially_copyable_v<typename N::statistic> &&
                            std::is_default_constructible_v<typename N::statistic> &&
                            sizeof(typename N::statistic) <= most_statistic_bytes;
/// The statistic of finite values: `statistic measure(T const* x, int count) const`, for float and double. float16 and bfloat16
/// arrive as float. Asked for up to 4,096 values at a time, by several threads.
template <class N>
concept MeasuresValues = HasSmallStatistic<N> &&
    requires(N const norm, float const* x, double const* wide, int count) {
  { norm.measure(x, count) } -> std::same_as<typename N::statistic>;
  { norm.measure(wide, count) } -> std::same_as<typename N::statistic>;
};
/// That of two parts: `statistic merge(statistic, statistic) const`, the first of earlier values or of a lower rank.
template <class N>
concept MergesStatistics = HasSmallStatistic<N> && requires(N const norm, typename N::statistic part) {
  { norm.merge(part, part) } -> std::same_as<typename N::statistic>;
};
/// What values are divided by: `double scale(statistic) const`, finite and not negative. One worker computes it from the
/// statistics of all, and its result is passed on, so all get the same bits.
template <class N>
concept ScalesByStatistic = HasSmallStatistic<N> && requires(N const norm, typename N::statistic all) {
  { norm.scale(all) } -> std::same_as<double>;
};
/// Whether no value is larger than the scale, `static constexpr bool bounds_largest`. If so, a smaller scale is an error. If
/// not, it is raised to the largest magnitude: nothing is ever cut off.
template <class N>
concept SaysBounds = requires {
  { N::bounds_largest } -> std::convertible_to<bool>;
};
/// Says which values share a scale: `std::uint64_t bucket`, how many, 0 for the whole vector, and `static constexpr bool is_local`,
/// whether each worker has its own.
template <class N>
concept SaysBuckets = requires(N const norm) {
  { norm.bucket } -> std::convertible_to<std::uint64_t>;
  { N::is_local } -> std::convertible_to<bool>;
};
/// All that one must offer.
template <class N>
concept NormOfStatistic = std::is_trivially_copyable_v<N> && SaysBuckets<N> && MeasuresValues<N> &&
    MergesStatistics<N> && ScalesByStatistic<N> && SaysBounds<N> && Named<N> && Described<N>;

}  // namespace GLOBALQ_ABI
