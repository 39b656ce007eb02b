// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: compile-time error messages for incomplete policies: each names the missing member.
///
/// Constraints and concepts would report all members of a policy, or "deduction failed". (clang 14 reports an error if a
/// parameter of a requires-expression has a type that is missing; these use declval instead.)

#include "../../core/concepts.hpp"
#include "../../core/detail/expect_member.hpp"
#include "../../reduce/exponential.hpp"
#include "../../reduce/reduce.hpp"
#include "../../wire/block_code.hpp"

namespace GLOBALQ_ABI::detail {

/// In place of a policy that was left out.
struct missing_policy {};

/// Whether it is one of the library's reduce operators.
template <class Op>
inline constexpr bool is_reduce = std::is_same_v<Op, reduce::automatic> || std::is_same_v<Op, reduce::sum> ||
                                  std::is_same_v<Op, reduce::exponential> ||
                                  std::is_same_v<Op, reduce::requantize> || std::is_same_v<Op, reduce::any>;

template <class P>
concept NormPolicy = NormScheme<P> || HasStatistic<P>;
template <class P>
concept WirePolicy = WireFormat<P> || wire::BlockCode<P>;
template <class P>
concept ReducePolicy = is_reduce<P> || SaysLargestCode<P>;
/// A policy of any kind.
template <class P>
concept Policy = NormPolicy<P> || LevelScheme<P> || RoundingScheme<P> || WirePolicy<P> || ReducePolicy<P>;
/// Whether a policy may be meant for its place: it is complete, or a class that is no other policy.
template <class P, bool Complete>
inline constexpr bool in_place = Complete ||
                                 (std::is_class_v<P> && !Policy<P> && !std::is_same_v<P, missing_policy>);

/// @tparam L  a level scheme, or a user's incomplete one
template <class L>
struct expect_levels {
  static constexpr bool complete = LevelScheme<L>;
  GLOBALQ_EXPECT_MEMBER(
      "level scheme", "float extent() const", complete || requires(L const levels) {
        { levels.extent() } -> std::same_as<float>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "level scheme", "std::uint32_t max_code() const", complete || requires(L const levels) {
        { levels.max_code() } -> std::same_as<std::uint32_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "level scheme", "neighbors locate(float) const", complete || requires(L const levels, float t) {
        { levels.locate(t) } -> std::same_as<neighbors>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "level scheme", "float value(std::uint32_t) const",
      complete || requires(L const levels, std::uint32_t code) {
        { levels.value(code) } -> std::same_as<float>;
      });
  static_assert(complete || std::is_trivially_copyable_v<L>,
                "globalq: this level scheme is not trivially copyable; use only numbers as members; see "
                "docs/extending.md");
  static_assert(
      Named<L>,
      "globalq: this level scheme has no static constexpr char const* name, which workers compare; see "
      "docs/extending.md");
  static_assert(Described<L>,
                "globalq: this level scheme has members or template arguments but no std::uint64_t "
                "parameters() const, a number that "
                "workers compare; see docs/extending.md");
};

template <class R>
struct expect_rounding {
  static constexpr bool complete = RoundingScheme<R>;
  GLOBALQ_EXPECT_MEMBER(
      "rounding", "static constexpr bool word_per_coordinate", complete || requires {
        { R::word_per_coordinate } -> std::convertible_to<bool>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "rounding", "bool shifts() const", complete || requires(R const rounding) {
        { rounding.shifts() } -> std::convertible_to<bool>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "rounding", "std::uint32_t word(std::uint32_t) const",
      complete || requires(R const rounding, std::uint32_t word) {
        { rounding.word(word) } -> std::same_as<std::uint32_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "rounding", "bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t sign) const",
      complete || requires(R const rounding, std::uint32_t word) {
        { rounding.up(word, word, word) } -> std::convertible_to<bool>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "rounding", "double shift(std::uint32_t word) const",
      complete || requires(R const rounding, std::uint32_t word) {
        { rounding.shift(word) } -> std::same_as<double>;
      });
  static_assert(
      complete || std::is_trivially_copyable_v<R>,
      "globalq: this rounding is not trivially copyable; use only numbers as members; see docs/extending.md");
  static_assert(
      SharesWords<R> ||
          !requires(R const rounding, std::uint32_t const* shared) { rounding.in_tile(shared); },
      "globalq: this rounding has in_tile() but not all that sharing words requires: for_worker(), cohort(), "
      "compares_words_alone, and a rounding with compared() as the result (see SharesWords); see "
      "docs/extending.md");
  static_assert(SaysUnbiased<R>,
                "globalq: this rounding has no static constexpr bool unbiased; see docs/extending.md");
  static_assert(Named<R>,
                "globalq: this rounding has no static constexpr char const* name, which workers compare; see "
                "docs/extending.md");
  static_assert(Described<R>,
                "globalq: this rounding has members or template arguments but no std::uint64_t parameters() "
                "const, a number that "
                "workers compare; see docs/extending.md");
};

/// @tparam W  a wire format or block code, or a user's incomplete one
template <class W>
struct expect_wire {
  /// Whether it is meant as a block code.
  static constexpr bool block =
      wire::BlockCode<W> ||
      (
          requires { typename W::table; } || requires { &W::make_table; } || requires { &W::encode; });
  static constexpr bool complete = WirePolicy<W>;
  GLOBALQ_EXPECT_MEMBER(
      "wire format", "type code_type, a signed integer",
      complete || requires { requires std::signed_integral<typename W::code_type>; });
  GLOBALQ_EXPECT_MEMBER(
      "wire format", "std::uint32_t largest_code(bool zero_free) const",
      complete || block || requires(W const wire) {
        { wire.largest_code(true) } -> std::same_as<std::uint32_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "wire format", "std::uint64_t bytes(std::uint64_t) const",
      complete || block || requires(W const wire, std::uint64_t n) {
        { wire.bytes(n) } -> std::same_as<std::uint64_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "wire format", "std::uint8_t identifier() const", complete || block || requires(W const wire) {
        { wire.identifier() } -> std::same_as<std::uint8_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "wire format", "void pack(code_type const*, int count, std::byte*, bool zero_free) const",
      complete || block || requires(W const wire, std::byte* bytes, int n) {
        wire.pack(std::declval<typename W::code_type*>(), n, bytes, true);
      });
  GLOBALQ_EXPECT_MEMBER(
      "wire format", "bool unpack(std::byte const*, int count, code_type*, bool zero_free) const",
      complete || block || requires(W const wire, std::byte* bytes, int n) {
        { wire.unpack(bytes, n, std::declval<typename W::code_type*>(), true) } -> std::same_as<bool>;
      });
  GLOBALQ_EXPECT_MEMBER("wire format", "int bits() const", block || SaysBits<W>);
  GLOBALQ_EXPECT_MEMBER(
      "block code", "trivially copyable type table",
      complete || !block || requires { requires std::is_trivially_copyable_v<typename W::table>; });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "static char const* name()", complete || !block || requires {
        { W::name() } -> std::convertible_to<char const*>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "static std::uint8_t identifier()", complete || !block || requires {
        { W::identifier() } -> std::same_as<std::uint8_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "static std::uint32_t largest_code()", complete || !block || requires {
        { W::largest_code() } -> std::same_as<std::uint32_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "table make_table(std::span<std::uint64_t const> counts, std::uint32_t max_code) const",
      complete || !block ||
          requires(W const code, std::span<std::uint64_t const> counts, std::uint32_t max_code) {
            { code.make_table(counts, max_code) } -> std::same_as<typename W::table>;
          });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "std::size_t table_bytes(std::uint32_t max_code) const",
      complete || !block || requires(W const code, std::uint32_t max_code) {
        { code.table_bytes(max_code) } -> std::same_as<std::size_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "void write_table(table const&, std::uint32_t max_code, std::byte*) const",
      complete || !block || requires(W const code, std::uint32_t max_code, std::byte* out) {
        code.write_table(std::declval<typename W::table const&>(), max_code, out);
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code", "bool read_table(std::byte const*, std::uint32_t max_code, table&) const",
      complete || !block || requires(W const code, std::uint32_t max_code, std::byte const* in) {
        { code.read_table(in, max_code, std::declval<typename W::table&>()) } -> std::same_as<bool>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code",
      "std::size_t encode(table const&, code_type const*, int count, std::byte*, std::size_t room) const",
      complete || !block || requires(W const code, int count, std::byte* out, std::size_t room) {
        {
          code.encode(std::declval<typename W::table const&>(), std::declval<typename W::code_type*>(), count,
                      out, room)
          } -> std::same_as<std::size_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "block code",
      "bool decode(table const&, std::span<std::byte const>, int count, std::uint32_t max_code, code_type*) "
      "const",
      complete || !block ||
          requires(W const code, std::span<std::byte const> in, int count, std::uint32_t max_code) {
            {
              code.decode(std::declval<typename W::table const&>(), in, count, max_code,
                          std::declval<typename W::code_type*>())
              } -> std::same_as<bool>;
          });
  static_assert(complete || std::is_trivially_copyable_v<W>,
                "globalq: this wire format is not trivially copyable; use only numbers as members; see "
                "docs/extending.md");
  static_assert(
      Named<W>,
      "globalq: this wire format has no static constexpr char const* name, which workers compare; see "
      "docs/extending.md");
  static_assert(Described<W>,
                "globalq: this wire format has members or template arguments but no std::uint64_t "
                "parameters() const, a number that "
                "workers compare; see docs/extending.md");
};

/// @tparam N  a norm of the library, of the user, or a user's incomplete one
template <class N>
struct expect_norm {
  static constexpr bool complete = NormScheme<N>;
  /// Whether it measures values itself.
  static constexpr bool own =
      HasStatistic<N> || (!complete && (
                                           requires { &N::merge; } || requires { &N::scale; }));
  GLOBALQ_EXPECT_MEMBER(
      "norm", "std::uint64_t bucket", requires(N const norm) {
        { norm.bucket } -> std::convertible_to<std::uint64_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "norm", "static constexpr bool is_local", requires {
        { N::is_local } -> std::convertible_to<bool>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "norm",
      "type statistic, nor the members inner, outer and fixed_scale of one that selects a measure of the "
      "library",
      complete || own || requires(N const norm) { norm.inner(); } ||
          requires(N const norm) { norm.outer(); } || requires(N const norm) { norm.fixed_scale(); });
  GLOBALQ_EXPECT_MEMBER(
      "norm", "std::uint32_t inner() const", complete || own || requires(N const norm) {
        { norm.inner() } -> std::same_as<std::uint32_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "norm", "std::uint32_t outer() const", complete || own || requires(N const norm) {
        { norm.outer() } -> std::same_as<std::uint32_t>;
      });
  GLOBALQ_EXPECT_MEMBER(
      "norm", "double fixed_scale() const", complete || own || requires(N const norm) {
        { norm.fixed_scale() } -> std::same_as<double>;
      });
  GLOBALQ_EXPECT_MEMBER("norm", "type statistic", !own || HasStatistic<N>);
  static_assert(
      !own || HasSmallStatistic<N>,
      "globalq: this norm's statistic cannot be sent; make it trivially copyable, of at most 32 bytes; "
      "see docs/extending.md");
  GLOBALQ_EXPECT_MEMBER("norm", "statistic measure(T const*, int count) const for float and double",
                        !own || MeasuresValues<N>);
  GLOBALQ_EXPECT_MEMBER("norm", "statistic merge(statistic, statistic) const", !own || MergesStatistics<N>);
  GLOBALQ_EXPECT_MEMBER("norm", "double scale(statistic) const", !own || ScalesByStatistic<N>);
  GLOBALQ_EXPECT_MEMBER("norm", "static constexpr bool bounds_largest", !own || SaysBounds<N>);
  static_assert(
      std::is_trivially_copyable_v<N>,
      "globalq: this norm is not trivially copyable; use only numbers as members; see docs/extending.md");
  static_assert(!own || Named<N>,
                "globalq: this norm has no static constexpr char const* name, which workers compare; see "
                "docs/extending.md");
  static_assert(!own || Described<N>,
                "globalq: this norm has members or template arguments but no std::uint64_t parameters() "
                "const, a number that "
                "workers compare; see docs/extending.md");
};

/// @tparam Op      a reduce operator of the library, of the user, or a user's incomplete one
/// @tparam Levels  the levels whose codes it adds
/// @tparam Int     the type of codes
template <class Op, class Levels, class Int>
struct expect_reduce {
  static constexpr bool complete = is_reduce<Op>;
  GLOBALQ_EXPECT_MEMBER("reduce operator",
                        "static Int add(Int, Int, std::uint32_t word) for the code type of the wire format",
                        complete || AddsPair<Op, Int>);
  GLOBALQ_EXPECT_MEMBER("reduce operator", "static constexpr bool draws", complete || SaysDraws<Op>);
  GLOBALQ_EXPECT_MEMBER("reduce operator", "static constexpr bool unbiased", complete || SaysUnbiased<Op>);
  GLOBALQ_EXPECT_MEMBER(
      "reduce operator",
      "static std::uint64_t largest_code(std::uint32_t max_code, std::uint32_t terms, std::uint32_t height)",
      complete || SaysLargestCode<Op>);
  GLOBALQ_EXPECT_MEMBER("reduce operator", "template <class Levels> static constexpr bool adds",
                        complete || SaysAdds<Op, Levels>);
  static_assert(complete || std::is_empty_v<Op>,
                "globalq: this reduce operator has members; make its numbers template arguments; see "
                "docs/extending.md");
  static_assert(
      complete || Named<Op>,
      "globalq: this reduce operator has no static constexpr char const* name, which workers compare; see "
      "docs/extending.md");
  static_assert(complete || Described<Op>,
                "globalq: this reduce operator has template arguments but no std::uint64_t parameters() "
                "const, a number that "
                "workers compare; see docs/extending.md");
};

}  // namespace GLOBALQ_ABI::detail
