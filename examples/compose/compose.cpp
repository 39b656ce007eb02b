// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief compose: reads a description and checks that its parts fit together.

#include "compose.hpp"

#include "parts.hpp"
#include "text.hpp"

#include <globalq/operator/float32_tail.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace compose {
namespace {

namespace gq = globalq;

constexpr std::string_view norms_allowed =
    "give linf, l:Q,P, local:Q, power-of-two:linf, power-of-two:local:Q, shared-exponent or fixed:UNIT, with "
    "Q and P from 1 to 64 or inf";
constexpr std::string_view levels_allowed =
    "give none, uniform:S, exponential:S, exponential:S:BASE, table:0,..,1, symmetric:L1,..,1 or e2m1, e2m3, "
    "e3m2, e4m3, e5m2";

/// What the levels are as far as types go; `none` is no operator at all.
enum class scheme : std::uint8_t { uniform, exponential, table };

std::uint32_t read_order(std::string const& value, std::string_view text) {
  if (text == "inf") return gq::infinity;
  std::uint32_t order = 0;
  if (!is_number(text, order) || order < 1 || order > 64)
    refuse("norm", value, "holds \"" + std::string{text} + "\", which is no order of a norm", norms_allowed);
  return order;
}

/// A small floating-point format as levels.
struct format {
  std::string_view name;
  float largest;
  any_table (*levels)();
};
template <class Levels>
constexpr format format_named(std::string_view name) {
  return {name, Levels::largest, [] { return any_table{Levels{}}; }};
}
constexpr format formats[] = {format_named<gq::levels::e2m1>("e2m1"), format_named<gq::levels::e2m3>("e2m3"),
                              format_named<gq::levels::e3m2>("e3m2"), format_named<gq::levels::e4m3>("e4m3"),
                              format_named<gq::levels::e5m2>("e5m2")};

/// Null where the name is none of a format.
format const* format_of(std::string_view name) {
  for (format const& each : formats)
    if (each.name == name) return &each;
  return nullptr;
}

norm_choice read_norm(description const& words) {
  std::string_view text = words.norm;
  if (words.bucket > largest_bucket)
    refuse("bucket", std::to_string(words.bucket), "is more than a vector can have",
           "give 0 for the whole vector, or at most " + std::to_string(largest_bucket) + " values");
  bool const rounds = text.starts_with("power-of-two:");
  if (rounds) text.remove_prefix(13);
  any_norm norm;
  norm.bucket = words.bucket;
  if (rounds) norm.coarse = 1;
  if (text == "shared-exponent" && !rounds) {
    format const* const of = format_of(words.levels);
    if (of == nullptr)
      refuse("norm", words.norm,
             "scales to the largest value of a format, and levels are " +
                 (words.levels.empty() ? "uniform" : words.levels),
             "use levels e2m1, e2m3, e3m2, e4m3 or e5m2");
    norm.coarse = of->largest;
    norm.in_byte = true;
    return local_norm{norm};
  }
  if (text == "linf") return global_norm{norm};
  if (text.starts_with("local:")) {
    norm.q = read_order(words.norm, text.substr(6));
    return local_norm{norm};
  }
  if (text.starts_with("fixed:") && !rounds) {
    norm.unit = gq::norm::fixed{real_number("norm", words.norm, text.substr(6))}.fixed_unit();
    return global_norm{norm};
  }
  auto const orders = split(text.substr(std::min<std::size_t>(2, text.size())), ',');
  if (text.starts_with("l:") && orders.size() == 2 && !rounds) {  // rounding up is for maxima alone
    norm.q = read_order(words.norm, orders[0]);
    norm.p = read_order(words.norm, orders[1]);
    return global_norm{norm};
  }
  refuse("norm", words.norm, "is no norm", norms_allowed);
}

rounding_kind read_rounding(std::string const& text) {
  if (text == "stochastic") return rounding_kind::stochastic;
  if (text == "random-shift") return rounding_kind::random_shift;
  if (text == "random-shift-unshifted") return rounding_kind::random_shift_unshifted;
  if (text == "nearest") return rounding_kind::nearest;
  refuse("rounding", text, "is no rounding",
         "give stochastic, random-shift, random-shift-unshifted or nearest");
}

wire_choice read_wire(std::string const& text) {
  if (text == "int8") return gq::wire::int8{};
  if (text == "int16") return gq::wire::int16{};
  if (text == "int32") return gq::wire::int32{};
  if (text == "elias") return gq::wire::elias<>{};
  if (text == "huffman") return gq::wire::huffman<>{};
  if (text == "sparse") return gq::wire::sparse<>{};
  if (text.starts_with("packed:")) {
    std::uint32_t bits = 0;
    if (is_number(std::string_view{text}.substr(7), bits) && bits >= 1 && bits <= 8)
      return gq::wire::packed<>{bits};
  }
  refuse("wire", text, "is no wire format",
         "give int8, int16, int32, packed:B, where B is 1 to 8 bits, elias, huffman or sparse");
}

reduce_kind read_reduce(std::string const& text) {
  if (text == "auto") return reduce_kind::automatic;
  if (text == "sum") return reduce_kind::sum;
  if (text == "exponential") return reduce_kind::exponential;
  if (text == "requantise") return reduce_kind::requantise;
  refuse("reduce", text, "is no way to add codes", "give auto, sum, exponential or requantise");
}

/// The number of levels after the colon; 0 where there is none: as many as fit.
std::uint32_t read_size(std::string const& value, std::string_view text) {
  return static_cast<std::uint32_t>(whole_number("levels", value, text, 1, 0xffffffffU));
}

std::vector<double> read_table(std::string const& value, std::string_view text) {
  std::vector<double> levels;
  for (auto const each : split(text, ',')) levels.push_back(real_number("levels", value, each));
  return levels;
}

/// Builds levels, and says which option it was when the library refuses them.
template <class Levels, class... Arguments>
any_table checked(std::string const& value, Arguments const&... arguments) {
  try {
    return any_table{Levels(arguments...)};
  } catch (gq::configuration_error const& problem) {
    std::string_view why = problem.what();
    if (why.starts_with("globalq: ")) why.remove_prefix(9);
    throw gq::configuration_error{"globalq: option levels: \"" + value + "\": " + std::string{why}};
  }
}

/// Whether frames of a wire format differ in length.
bool is_varying(wire_choice const& wire) {
  return std::visit([]<class W>(W const&) { return gq::wire::BlockCode<W>; }, wire);
}

/// Whether the types of a quantizer would fit together; the sentences are those of its static assertions.
void check_fit(description const& words, scheme levels, parts const& with) {
  bool const local =
      std::visit([](auto const& norm) { return std::remove_cvref_t<decltype(norm)>::is_local; }, with.norm);
  bool const adds = with.reduce == reduce_kind::sum || with.reduce == reduce_kind::exponential;
  if (with.rounding == rounding_kind::random_shift && levels != scheme::uniform)
    refuse("rounding", words.rounding,
           "shifts back, which needs evenly spaced levels, and levels are " + words.levels,
           "use levels uniform, or rounding random-shift-unshifted");
  if (with.reduce == reduce_kind::sum && levels != scheme::uniform)
    refuse("reduce", words.reduce, "cannot add codes of levels " + words.levels,
           "uniform levels pair with sum, exponential levels of base 2 with exponential, all levels with "
           "requantise");
  if (with.reduce == reduce_kind::exponential && levels != scheme::exponential)
    refuse("reduce", words.reduce,
           "cannot add codes of levels " + (words.levels.empty() ? "uniform" : words.levels),
           "it adds powers of two: use levels exponential with base 2, or reduce requantise");
  if (adds && is_varying(with.wire))
    refuse("reduce", words.reduce,
           "cannot add codes of wire " + words.wire + ", whose frames differ in length",
           "use reduce requantise, or wire int8 or packed:8");
  if (local && adds)
    refuse("reduce", words.reduce,
           "cannot add codes that are scaled by different norms, and the norm is " + words.norm,
           "use a global norm, or reduce requantise");
}

gq::any_quantizer make_none(description const& words) {
  description const usual;
  auto const alone = [](std::string_view option, std::string const& value, bool is_usual) {
    if (!is_usual)
      refuse(option, value, "has no meaning with levels none, which sends float32 as it is",
             "leave it out, or choose levels");
  };
  alone("norm", words.norm, words.norm == usual.norm);
  alone("bucket", std::to_string(words.bucket), words.bucket == usual.bucket);
  alone("rounding", words.rounding, words.rounding == usual.rounding);
  alone("wire", words.wire, words.wire == usual.wire);
  alone("reduce", words.reduce, words.reduce == usual.reduce);
  alone("tail", words.tail, words.tail == usual.tail);
  return gq::uncompressed{};
}

/// The operator of all that is quantised.
gq::any_quantizer make_whole(description const& words) {
  parts const with{read_norm(words), read_rounding(words.rounding), read_wire(words.wire),
                   read_reduce(words.reduce)};
  bool const stochastic = with.rounding == rounding_kind::stochastic;
  std::string_view const text = words.levels;
  std::size_t const colon = text.find(':');
  std::string_view const name = text.substr(0, colon);
  bool const alone = colon == std::string_view::npos;
  std::string_view const rest = alone ? std::string_view{} : text.substr(colon + 1);

  if (text.empty() || name == "uniform") {
    check_fit(words, scheme::uniform, with);
    gq::levels::uniform<> const levels{alone ? 0U : read_size(words.levels, rest)};
    return stochastic ? uniform_stochastic(levels, with) : uniform_one_word(levels, with);
  }
  auto const of_table = [&](any_table const& levels) {
    check_fit(words, scheme::table, with);
    return stochastic ? table_stochastic(levels, with) : table_one_word(levels, with);
  };
  if (name == "exponential") {
    auto const numbers = split(rest, ':');
    if (numbers.size() > 2) refuse("levels", words.levels, "has too many parts", levels_allowed);
    std::uint32_t const size = alone ? 0U : read_size(words.levels, numbers[0]);
    double const base = numbers.size() == 2 ? real_number("levels", words.levels, numbers[1]) : 2.0;
    if (base != 2.0)
      return of_table(checked<gq::levels::exponential<gq::dynamic, double>>(words.levels, size, base));
    check_fit(words, scheme::exponential, with);
    gq::levels::exponential<> const levels{size};
    return stochastic ? exponential_stochastic(levels, with) : exponential_one_word(levels, with);
  }
  if (format const* const of = format_of(text)) return of_table(of->levels());
  if (name == "table" && !alone)
    return of_table(
        checked<gq::levels::table>(words.levels, std::span<double const>{read_table(words.levels, rest)}));
  if (name == "symmetric" && !alone)
    return of_table(checked<gq::levels::symmetric>(words.levels,
                                                   std::span<double const>{read_table(words.levels, rest)}));
  refuse("levels", words.levels, "are no levels", levels_allowed);
}

}  // namespace

gq::any_quantizer make(description const& words) {
  if (words.levels == "none") return make_none(words);
  gq::any_quantizer const whole = make_whole(words);
  if (words.tail == "own") return whole;
  if (words.tail != "float32") refuse("tail", words.tail, "is no tail", "give own or float32");
  if (words.bucket == 0)
    refuse("tail", words.tail, "is what whole buckets leave over, and the whole vector is one bucket",
           "give a bucket, or leave the tail out");
  return gq::float32_tail{whole};
}

}  // namespace compose
