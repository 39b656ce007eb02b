// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the doors: what each kind of policy must offer.
///
/// Users extend globalq by writing a type that satisfies one of these concepts; nothing is registered. Policies are
/// small trivially copyable values whose member functions are scalar, branch-free and callable on host and device; the
/// kernels supply the loop, the vectorisation and the memory traffic. Transport and Schedule have pages of their own.
/// A quantizer also wants levels, rounding and wire Named and Described, and that a rounding says whether it is unbiased.

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

/// Declares what it is called, for people and for the fingerprint: `static constexpr char const* name`, or `name()`.
template <class P>
concept Named = requires(P const policy) {
  { policy.name() } -> std::convertible_to<std::string_view>;
}
|| requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

/// Declares a number that stands for its members and template arguments where it has some: `std::uint64_t parameters() const`.
/// Workers whose numbers differ get a disagreement_error. (Of templates that mix types and values the name must tell.)
template <class P>
concept Described = (std::is_empty_v<P> && !detail::has_arguments<P>) || requires(P const policy) {
  { policy.parameters() } -> std::same_as<std::uint64_t>;
};

/// The two codes around a magnitude: the upper one is right with probability threshold / 2^32.
///
/// Codes are signed relative to the value: -1 is code 1 with the opposite sign (symmetric levels without zero).
struct neighbours {
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
  { levels.locate(t) } -> std::same_as<neighbours>;
  { levels.value(code) } -> std::same_as<float>;  // the level of a code, on the scale of extent()
};

/// Decides between two neighbouring levels, and may take part in decoding (random shift).
template <class R>
concept RoundingScheme = std::is_trivially_copyable_v<R> && requires(R const rounding, std::uint32_t word) {
  { R::word_per_coordinate } -> std::convertible_to<bool>;         // else one word a bucket
  { rounding.shifts() } -> std::convertible_to<bool>;              // adds shift() when decoding
  { rounding.word(word) } -> std::same_as<std::uint32_t>;          // the word to decide with
  { rounding.up(word, word, word) } -> std::convertible_to<bool>;  // threshold, word, sign mask
  { rounding.shift(word) } -> std::same_as<double>;                // in units of the gap
};

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

namespace detail {
/// Whether codes travel as lanes, as they are: `static constexpr bool is_integer`.
template <class W>
constexpr bool is_integer_wire() {
  if constexpr (requires { W::is_integer; }) return W::is_integer;
  return false;
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
/// Whether the expected value of a sum is the sum: `static constexpr bool unbiased`. Workers compare it.
template <class P>
concept SaysUnbiased = requires {
  { P::unbiased } -> std::convertible_to<bool>;
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
/// All of them.
template <class Op, class Levels, class Lane>
concept AddsCodes = ReduceOperator<Op> && Described<Op> && AddsLanes<Op, Lane> && SaysDraws<Op> &&
    SaysUnbiased<Op> && SaysLargestCode<Op> && SaysAdds<Op, Levels>;

/// Says which norm scales the values: order inside a worker and over the workers, and over how many values.
template <class N>
concept NormScheme = std::is_trivially_copyable_v<N> && requires(N const norm) {
  { norm.bucket } -> std::convertible_to<std::uint64_t>;  // values that share a scale; 0: the whole vector
  { norm.inner() } -> std::same_as<std::uint32_t>;        // q, order within a worker
  { norm.outer() } -> std::same_as<std::uint32_t>;        // p, order over the workers
  { N::is_local } -> std::convertible_to<bool>;           // each worker its own
  { norm.fixed_unit() } -> std::same_as<double>;          // > 0: given, nothing is measured
};

}  // namespace GLOBALQ_ABI
