// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief named: reads a description and checks that its parts fit together.

#include "words.hpp"

#include <globalq/named/text.hpp>

#include <globalq/operator/centered.hpp>
#include <globalq/operator/eden.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/second_half.hpp>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace GLOBALQ_ABI::named {
namespace {

namespace gq = globalq;

constexpr std::string_view norms_allowed =
    "use linf, l:Q,P, local:Q, power-of-two:linf, power-of-two:local:Q, shared-exponent, two-level or "
    "fixed:SCALE[:ERROR[:TYPE]], where Q and P are 1 to 64 or inf";
constexpr std::string_view levels_allowed =
    "use none, bfloat16, float16, uniform:S, exponential:S, exponential:S:BASE, table:0,..,1, "
    "symmetric:L1,..,1, e2m1, e2m3, "
    "e3m2, "
    "e4m3 or e5m2, where S is the number of levels above zero";

/// Levels held as a table: table, symmetric, exponential of any base, or those of a small format. They differ only in
/// their data.
struct any_table : gq::levels::detail::level_table {
  template <class Table>
  requires std::is_base_of_v<gq::levels::detail::level_table, Table>
  explicit any_table(Table const& levels) : level_table{levels} {}
};

using levels_choice = std::variant<gq::levels::uniform<>, gq::levels::exponential<>, any_table>;
using rounding_choice =
    std::variant<gq::rounding::stochastic, gq::rounding::correlated, gq::rounding::random_shift<true>,
                 gq::rounding::random_shift<false>, gq::rounding::nearest>;
using wire_choice =
    std::variant<gq::wire::int8, gq::wire::int16, gq::wire::int32, gq::wire::packed<>, gq::wire::elias<>,
                 gq::wire::huffman<>, gq::wire::huffman<std::int16_t>, gq::wire::sparse<>>;
using gq::reduce::way;

std::uint32_t read_order(std::string const& value, std::string_view text) {
  if (text == "inf") return gq::infinity;
  std::uint32_t order = 0;
  if (!is_number(text, order) || order < 1 || order > 64)
    refuse("norm", value, "contains \"" + std::string{text} + "\", which is not the order of a norm",
           norms_allowed);
  return order;
}

/// A small floating-point format, as levels.
struct format {
  std::string_view name;
  any_table (*levels)();
  gq::norm::any (*shared_exponent)(std::uint64_t bucket);
  gq::norm::any (*two_level)(std::uint64_t bucket);
};
template <class Levels>
constexpr format format_named(std::string_view name) {
  return {name, [] { return any_table{Levels{}}; },
          [](std::uint64_t bucket) -> gq::norm::any { return gq::norm::shared_exponent<Levels>{bucket}; },
          [](std::uint64_t bucket) -> gq::norm::any { return gq::norm::two_level<Levels>{bucket}; }};
}
constexpr format formats[] = {format_named<gq::levels::e2m1>("e2m1"), format_named<gq::levels::e2m3>("e2m3"),
                              format_named<gq::levels::e3m2>("e3m2"), format_named<gq::levels::e4m3>("e4m3"),
                              format_named<gq::levels::e5m2>("e5m2")};

/// The format of that name, or null.
format const* format_of(std::string_view name) {
  for (format const& each : formats)
    if (each.name == name) return &each;
  return nullptr;
}

/// fixed:SCALE[:ERROR[:TYPE]]
gq::norm::fixed read_fixed(description const& words) {
  auto const parts = split(std::string_view{words.norm}.substr(6), ':');
  gq::norm::fixed norm{real_number("norm", words.norm, parts[0]), words.bucket};
  if (parts.size() > 1) norm.error.largest = real_number("norm", words.norm, parts[1]);
  if (parts.size() == 3 && parts[2] == "float16")
    norm.error.vectors = gq::dtype::float16;
  else if (parts.size() == 3 && parts[2] == "bfloat16")
    norm.error.vectors = gq::dtype::bfloat16;
  else if (parts.size() > 2 && !(parts.size() == 3 && parts[2] == "float32"))
    refuse("norm", words.norm, "does not end with a type of vectors", "use float32, float16 or bfloat16");
  return norm;
}

gq::norm::any read_norm(description const& words) {
  std::string_view text = words.norm;
  if (words.bucket > largest_bucket)
    refuse("bucket", std::to_string(words.bucket), "is longer than any vector",
           "use at most " + std::to_string(largest_bucket) + " values, or 0 for the whole vector");
  bool const rounds = text.starts_with("power-of-two:");
  if (rounds) text.remove_prefix(13);
  auto const rounded = [&]<class Norm>(Norm const& norm) -> gq::norm::any {
    if (rounds) return gq::norm::power_of_two<Norm>{norm};
    return norm;
  };
  if ((text == "shared-exponent" || text == "two-level") && !rounds) {
    format const* const of = format_of(words.levels);
    if (of == nullptr)
      refuse("norm", words.norm,
             "requires the levels of a floating-point format, but levels are " +
                 (words.levels.empty() ? "uniform" : words.levels),
             "use levels e2m1, e2m3, e3m2, e4m3 or e5m2");
    return text == "two-level" ? of->two_level(words.bucket) : of->shared_exponent(words.bucket);
  }
  if (text == "linf") return rounded(gq::norm::linf{words.bucket});
  if (text.starts_with("local:"))
    return rounded(gq::norm::local<>{read_order(words.norm, text.substr(6)), words.bucket});
  if (text.starts_with("fixed:") && !rounds) return read_fixed(words);
  auto const orders = split(text.substr(std::min<std::size_t>(2, text.size())), ',');
  if (text.starts_with("l:") && orders.size() == 2 && !rounds) {  // power-of-two supports only maxima
    std::uint32_t const q = read_order(words.norm, orders[0]);
    return gq::norm::l<>{q, read_order(words.norm, orders[1]), words.bucket};
  }
  refuse("norm", words.norm, "is not a norm", norms_allowed);
}

rounding_choice read_rounding(std::string const& text) {
  if (text == "stochastic") return gq::rounding::stochastic{};
  if (text == "correlated") return gq::rounding::correlated{};
  if (text == "random-shift") return gq::rounding::random_shift<true>{};
  if (text == "random-shift-unshifted") return gq::rounding::random_shift<false>{};
  if (text == "correlated-shift") return gq::rounding::correlated_shift<true>();
  if (text == "correlated-shift-unshifted") return gq::rounding::correlated_shift<false>();
  if (text == "nearest") return gq::rounding::nearest{};
  refuse("rounding", text, "is not a rounding",
         "use stochastic, correlated, random-shift, correlated-shift, both also with -unshifted, or nearest");
}

wire_choice read_wire(std::string const& text) {
  if (text == "int8") return gq::wire::int8{};
  if (text == "int16") return gq::wire::int16{};
  if (text == "int32") return gq::wire::int32{};
  if (text == "elias") return gq::wire::elias<>{};
  if (text == "huffman") return gq::wire::huffman<>{};
  if (text == "huffman:16") return gq::wire::huffman<std::int16_t>{};
  if (text == "sparse") return gq::wire::sparse<>{};
  if (text.starts_with("packed:")) {
    std::uint32_t bits = 0;
    if (is_number(std::string_view{text}.substr(7), bits) && bits >= 1 && bits <= 8)
      return gq::wire::packed<>{bits};
  }
  refuse("wire", text, "is not a wire format",
         "use int8, int16, int32, packed:B with B of 1 to 8 bits, elias, huffman, huffman:16 or sparse");
}

way read_reduce(std::string const& text) {
  if (text == "auto") return way::automatic;
  if (text == "sum") return way::sum;
  if (text == "exponential") return way::exponential;
  if (text == "requantize") return way::requantize;
  refuse("reduce", text, "is not a reduce operator", "use auto, sum, exponential or requantize");
}

/// Reads a number of levels.
std::uint32_t read_size(std::string const& value, std::string_view text) {
  return static_cast<std::uint32_t>(whole_number("levels", value, text, 1, 0xffffffffU));
}

std::vector<double> read_table(std::string const& value, std::string_view text) {
  std::vector<double> levels;
  for (auto const each : split(text, ',')) levels.push_back(real_number("levels", value, each));
  return levels;
}

/// Constructs levels; if they are invalid, the error names the option.
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

/// The parsed parts of a description.
struct parts {
  gq::norm::any norm;
  levels_choice levels;
  rounding_choice rounding;
  wire_choice wire;
  way reduce;
};

/// Throws if the parts do not fit together. The error names the words of the description, where a call would name
/// policies.
void check_fit(description const& words, parts const& with) {
  bool const uniform = std::holds_alternative<gq::levels::uniform<>>(with.levels),
             exponential = std::holds_alternative<gq::levels::exponential<>>(with.levels),
             adds = with.reduce == way::sum || with.reduce == way::exponential,
             varying = std::visit([]<class W>(W const&) { return gq::wire::BlockCode<W>; }, with.wire);
  if (std::holds_alternative<gq::rounding::random_shift<true>>(with.rounding) && !uniform)
    refuse("rounding", words.rounding, "requires evenly spaced levels, but levels are " + words.levels,
           "use levels uniform, or rounding " + words.rounding + "-unshifted");
  if (with.reduce == way::sum && !uniform)
    refuse("reduce", words.reduce, "cannot add codes of levels " + words.levels,
           "uniform levels pair with sum, exponential levels of base 2 with exponential, all levels with "
           "requantize");
  if (with.reduce == way::exponential && !exponential)
    refuse("reduce", words.reduce,
           "cannot add codes of levels " + (words.levels.empty() ? "uniform" : words.levels),
           "it adds powers of two: use levels exponential with base 2, or reduce requantize");
  if (adds && varying)
    refuse("reduce", words.reduce,
           "cannot add codes of wire " + words.wire + ", whose frames differ in length",
           "use reduce requantize, or wire int8 or packed:8");
  if (with.norm.is_local && adds)
    refuse("reduce", words.reduce,
           "cannot add codes that workers scale by different norms, and norm " + words.norm + " is local",
           "use a global norm, or reduce requantize");
}

/// Floating-point numbers: those of levels none, bfloat16 or float16.
gq::any_quantizer make_floats(description const& words) {
  description const usual;
  auto const alone = [&](std::string_view option, std::string const& value, bool is_usual) {
    if (!is_usual)
      refuse(option, value,
             "has no meaning with levels " + words.levels + ", which sends floating-point numbers",
             "leave it out, or choose other levels");
  };
  alone("norm", words.norm, words.norm == usual.norm);
  alone("bucket", std::to_string(words.bucket), words.bucket == usual.bucket);
  bool const none = words.levels == "none", rounds_to_nearest = !none && words.rounding == "nearest";
  alone("rounding", words.rounding, rounds_to_nearest || words.rounding == usual.rounding);
  alone("wire", words.wire, words.wire == usual.wire);
  alone("reduce", words.reduce, words.reduce == usual.reduce);
  alone("tail", words.tail, words.tail == usual.tail);
  alone("rotate", std::to_string(words.rotate), words.rotate == 0);
  alone("eden", "yes", !words.eden);
  alone("centered", "yes", !words.centered);
  alone("second", words.second, words.second.empty());
  alone("feedback", "yes", words.feedback == 0);
  if (none) return gq::uncompressed{};
  using gq::rounding::nearest;
  if (words.levels == "bfloat16")
    return rounds_to_nearest ? gq::any_quantizer{gq::floats<gq::bfloat16, nearest>{}}
                             : gq::floats<gq::bfloat16>{};
  return rounds_to_nearest ? gq::any_quantizer{gq::floats<gq::float16, nearest>{}}
                           : gq::floats<gq::float16>{};
}

levels_choice read_levels(description const& words) {
  std::string_view const text = words.levels;
  std::size_t const colon = text.find(':');
  std::string_view const name = text.substr(0, colon);
  bool const alone = colon == std::string_view::npos;
  std::string_view const rest = alone ? std::string_view{} : text.substr(colon + 1);

  if (text.empty() || name == "uniform")
    return gq::levels::uniform<>{alone ? 0U : read_size(words.levels, rest)};
  if (name == "exponential") {
    auto const numbers = split(rest, ':');
    if (numbers.size() > 2) refuse("levels", words.levels, "has too many parts", levels_allowed);
    bool const only_base = numbers.size() == 1 && numbers[0].find('.') != std::string_view::npos;
    std::uint32_t const size = alone       ? 0U
                               : only_base ? levels_that_fit(words.wire)
                                           : read_size(words.levels, numbers[0]);
    double const base =
        numbers.size() == 2 || only_base ? real_number("levels", words.levels, numbers.back()) : 2.0;
    if (base == 2.0) return gq::levels::exponential<>{size};
    return checked<gq::levels::exponential<gq::dynamic, double>>(words.levels, size, base);
  }
  if (format const* const of = format_of(text)) return of->levels();
  if (name == "table" && !alone)
    return checked<gq::levels::table>(words.levels, std::span<double const>{read_table(words.levels, rest)});
  if (name == "symmetric" && !alone)
    return checked<gq::levels::symmetric>(words.levels,
                                          std::span<double const>{read_table(words.levels, rest)});
  refuse("levels", words.levels, "is not a known kind of levels", levels_allowed);
}

/// The operator for all quantized values.
gq::any_quantizer make_whole(description const& words) {
  gq::norm::any const norm = read_norm(words);
  rounding_choice const rounding = read_rounding(words.rounding);
  wire_choice const wire = read_wire(words.wire);
  way const reduce = read_reduce(words.reduce);
  parts const with{norm, read_levels(words), rounding, wire, reduce};
  check_fit(words, with);
  return std::visit(
      [&]<class Levels, class Rounding, class Wire>(Levels const& levels, Rounding const& rounds,
                                                    Wire const& bytes) -> gq::any_quantizer {
        if constexpr (std::is_same_v<Rounding, gq::rounding::random_shift<true>> &&
                      !std::is_same_v<Levels, gq::levels::uniform<>>)
          throw std::logic_error{"named: check_fit() accepted parts that do not fit together"};
        else
          return gq::quantizer{with.norm, levels, rounds, bytes, gq::reduce::any{with.reduce}};
      },
      with.levels, with.rounding, with.wire);
}

}  // namespace

bool are_floats(std::string_view levels) {
  return levels == "none" || levels == "bfloat16" || levels == "float16";
}

gq::any_quantizer make(description const& words) {
  if (are_floats(words.levels)) return make_floats(words);
  if (words.tail != "own" && words.tail != "float32")
    refuse("tail", words.tail, "is not a known tail", "use own or float32");
  if (words.tail != "own" && words.bucket == 0)
    refuse("tail", words.tail, "applies to a shorter last bucket, but the whole vector is one bucket",
           "set a bucket, or leave the tail out");
  if (!(words.feedback >= 0 && words.feedback <= 1) ||
      (words.feedback > 0 && static_cast<float>(words.feedback) == 0))
    refuse("feedback", std::to_string(words.feedback), "is no decay of residuals",
           "use 0, or a number above 0 and at most 1");
  gq::any_quantizer op = make_whole(words);
  if (!words.second.empty()) {
    if (!words.levels.empty() && words.levels != "uniform" && words.levels != "exponential")
      refuse("second", words.second, "would send the same levels, " + words.levels + ", in more bytes",
             "use levels uniform or exponential without a number, which are as many as fit");
    description sums = words;
    sums.wire = words.second;
    op = gq::second_half{op, make_whole(sums)};
  }
  if (words.eden) op = gq::eden{op};
  if (words.tail == "float32") op = gq::float32_tail{op};
  if (words.centered) op = gq::centered{op};
  if (words.rotate != 0) op = gq::rotated{op, words.rotate};
  if (words.feedback > 0) op = gq::error_feedback{op, {.decay = static_cast<float>(words.feedback)}};
  return op;
}

}  // namespace GLOBALQ_ABI::named
