// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief named: the registry of named operators.

#include <globalq/named/operators.hpp>

#include "words.hpp"

#include <globalq/named/compressors.hpp>
#include <globalq/named/text.hpp>

#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/operators.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <stdexcept>

namespace GLOBALQ_ABI::named {

arguments::arguments(std::string_view whole, std::span<parameter const> parameters)
    : whole_{whole}, parameters_{parameters} {
  for (parameter const& each : parameters) values_.emplace_back(each.usual);
  given_.resize(values_.size());
}

arguments arguments::read(std::string_view text, std::span<parameter const> parameters,
                          std::string_view whole) {
  arguments with{whole, parameters};
  std::size_t const end = name_in(text).size();
  if (end == text.size()) return with;
  bool first = text[end] == ':';
  for (std::string_view const part : split(text.substr(end + 1), ',')) {
    std::size_t const equals = part.find('=');
    auto const alone = std::find_if(parameters.begin(), parameters.end(), [&](parameter const& each) {
      return !each.bare.empty() && each.name == part;
    });
    if (equals != std::string_view::npos)
      with.set(part.substr(0, equals), part.substr(equals + 1));
    else if (alone != parameters.end())
      with.set(part, alone->bare);
    else if (first && !parameters.empty())
      with.set(parameters[0].name, part);
    else
      refuse("operator", whole, "contains \"" + std::string{part} + "\", which is not parameter=value",
             "write NAME[:VALUE][,parameter=value].., where VALUE sets the first parameter");
    first = false;
  }
  return with;
}

void arguments::set(std::string_view name, std::string_view value) {
  auto const found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](parameter const& each) { return each.name == name; });
  if (found == parameters_.end()) {
    std::string have;
    for (parameter const& each : parameters_) have.append(have.empty() ? "" : ", ").append(each.name);
    refuse("operator", whole_, "has no parameter \"" + std::string{name} + "\"",
           have.empty() ? "it takes no parameters" : "its parameters are " + have);
  }
  auto const at = static_cast<std::size_t>(found - parameters_.begin());
  if (given_[at]) refuse("operator", whole_, "sets " + std::string{name} + " twice", "set it once");
  given_[at] = true;
  values_[at] = value;
}

std::string const& arguments::text(std::string_view name) const {
  for (std::size_t k = 0; k < values_.size(); ++k)
    if (parameters_[k].name == name) return values_[k];
  throw std::logic_error{"named: an operator reads a parameter that it does not list"};
}

void arguments::refuse_together(std::string_view what, std::string_view remedy) const {
  refuse("operator", whole_, what, remedy);
}

void arguments::refuse_value(std::string_view name) const {
  auto const found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](parameter const& each) { return each.name == name; });
  refuse("operator", whole_, "sets " + std::string{name} + " to \"" + text(name) + "\"",
         "use " + std::string{found->allowed});
}

std::uint64_t arguments::number(std::string_view name, std::uint64_t least, std::uint64_t most) const {
  std::uint64_t value = 0;
  if (!is_number(std::string_view{text(name)}, value) || value < least || value > most) refuse_value(name);
  return value;
}

double arguments::real(std::string_view name, double above) const {
  double value = 0;
  if (!is_number(std::string_view{text(name)}, value) || !(value > above)) refuse_value(name);
  return value;
}

std::size_t arguments::one_of(std::string_view name, std::span<std::string_view const> words) const {
  auto const found = std::find(words.begin(), words.end(), text(name));
  if (found == words.end()) refuse_value(name);
  return static_cast<std::size_t>(found - words.begin());
}

namespace {

constexpr std::string_view yes_no[] = {"no", "yes"};

// ---- parameters of several operators

constexpr std::string_view bits_meaning = "bits per value on the wire, including the sign";
constexpr parameter integer_bits{"bits", "8", "2 to 8, 16 or 32", bits_meaning};
constexpr parameter eight_bits{"bits", "8", "2 to 8", bits_meaning};
constexpr parameter four_bits{"bits", "4", "2 to 8", bits_meaning};
constexpr parameter three_bits{"bits", "3", "2 to 8", bits_meaning};
constexpr parameter all_levels{"levels", "0", "0 to 4294967295",
                               "number of levels above zero; 0: as many as fit"};

constexpr parameter bucket_of(std::string_view usual) {
  return {"bucket", usual, "0 to 2^48",
          "number of consecutive values that share a scale; 0: the whole vector"};
}
constexpr parameter normalized_parameter{"normalized", "no", "yes or no",
                                         "yes: learn with equal weights for all values (ALQ-N, AMQ-N); no: "
                                         "weight each bucket by its squared norm"};
constexpr parameter order_of(std::string_view usual) {
  return {"q", usual, "1 to 64 or inf", "order of the norm over the values of one worker"};
}

constexpr parameter across_workers{"p", "inf", "1 to 64 or inf",
                                   "order of the norm that combines the norms of all workers"};
constexpr parameter shift_back_parameter{
    "shift-back", "yes", "yes or no",
    "yes: decoding adds the random shift (Definition 1 of the source); no: it does not"};

std::string any_wire(arguments const& with) {
  std::uint64_t const bits = with.number("bits", 2, 32);
  if (bits > 8 && bits != 16 && bits != 32) with.refuse_value("bits");
  return bits >= 8 ? "int" + std::to_string(bits) : "packed:" + std::to_string(bits);
}

std::string short_wire(arguments const& with) { return wire_of_bits(with.number("bits", 2, 8)); }

std::string order_word(arguments const& with, std::string_view name) {
  if (with.text(name) == "inf") return "inf";
  return std::to_string(with.number(name, 1, 64));
}

std::uint64_t bucket_in(arguments const& with) { return with.number("bucket", 0, largest_bucket); }

std::string sized(std::string name, arguments const& with) {
  std::uint64_t const levels = with.number("levels", 0, 0xffffffffU);
  return levels == 0 ? name : name + ":" + std::to_string(levels);
}

std::string joined(std::string const& first, std::span<double const> numbers) {
  std::string text = first;
  for (double const each : numbers) text.append(text.back() == ':' ? "" : ",").append(shortest(each));
  return text;
}

std::string global_norm(arguments const& with) {
  std::string const q = order_word(with, "q"), p = order_word(with, "p");
  return q == "inf" && p == "inf" ? "linf" : "l:" + q + "," + p;
}

// ---- the operators

/// A function, because GCC 12 destroys members twice if an initializer in braces throws.
named_operator composed(std::string norm, std::string levels, std::string rounding, std::string wire,
                        std::uint64_t bucket, std::string schedule) {
  named_operator op;
  op.words.norm = std::move(norm);
  op.words.levels = std::move(levels);
  op.words.rounding = std::move(rounding);
  op.words.wire = std::move(wire);
  op.words.bucket = bucket;
  op.schedule = std::move(schedule);
  return op;
}

constexpr parameter global_uniform_parameters[] = {integer_bits, all_levels, order_of("inf"), across_workers,
                                                   bucket_of("0")};
constexpr std::string_view global_uniform_examples[] = {"global-uniform", "global-uniform:8,q=2,p=2",
                                                        "global-uniform:4,bucket=128",
                                                        "global-uniform:8,rounding=correlated"};
named_operator make_global_uniform(arguments const& with) {
  std::string const wire = any_wire(with);
  return composed(global_norm(with), sized("uniform", with), "stochastic", wire, bucket_in(with),
                  wire.starts_with("int") ? "ring" : "sra");  // packed codes are requantized
}

constexpr parameter global_exponential_parameters[] = {eight_bits, all_levels, order_of("inf"),
                                                       across_workers, bucket_of("0")};
constexpr std::string_view global_exponential_examples[] = {
    "global-exponential", "global-exponential:8,q=2,p=2", "global-exponential:4"};
named_operator make_global_exponential(arguments const& with) {
  return composed(global_norm(with), sized("exponential", with), "stochastic", short_wire(with),
                  bucket_in(with), "sra");
}

constexpr parameter qsgd_parameters[] = {four_bits, bucket_of("512"), order_of("2"), all_levels};
constexpr std::string_view qsgd_examples[] = {"qsgd:4",
                                              "qsgd:8",
                                              "qsgd:4,q=inf",
                                              "qsgd:4,bucket=100,tail=float32",
                                              "qsgd:8,code=huffman",
                                              "qsgd:6,bucket=0,code=elias",
                                              "qsgd:2,bucket=0,code=sparse"};
named_operator make_qsgd(arguments const& with) {
  return composed("local:" + order_word(with, "q"), sized("uniform", with), "stochastic", short_wire(with),
                  bucket_in(with), "allgather");
}

constexpr parameter terngrad_parameters[] = {
    {"clip", "0", "a number above 0, such as 2.5, or 0",
     "clip each value at this many standard deviations of its bucket before quantization, which biases the "
     "mean; 0: no clipping"},
    bucket_of("0"),
    {"shared", "no", "yes or no",
     "yes: all workers share one scale (scaler sharing); no: each worker has its own"}};
constexpr std::string_view terngrad_examples[] = {"terngrad:0,bucket=512",
                                                  "terngrad:0,bucket=512,shared=yes"};
named_operator make_terngrad(arguments const& with) {
  bool const shared = with.one_of("shared", yes_no) == 1;
  double clip = 0;
  if (!is_number(std::string_view{with.text("clip")}, clip) || clip < 0) with.refuse_value("clip");
  named_operator op = composed(shared ? "linf" : "local:inf", "uniform:1", "stochastic", "packed:2",
                               bucket_in(with), "allgather");
  op.clip = clip;
  return op;
}

constexpr parameter nuqsgd_parameters[] = {four_bits, bucket_of("8192"), all_levels};
constexpr std::string_view nuqsgd_examples[] = {"nuqsgd:4", "nuqsgd:4,code=huffman"};
named_operator make_nuqsgd(arguments const& with) {
  return composed("local:2", sized("exponential", with), "stochastic", short_wire(with), bucket_in(with),
                  "allgather");
}

constexpr std::string_view scopes[] = {"global", "local"};
constexpr parameter natural_compression_parameters[] = {
    {"scale", "global", "global or local",
     "global: all workers share one scale, the largest magnitude rounded up to a power of two; local: each "
     "worker has its own"},
    bucket_of("0")};
constexpr std::string_view natural_compression_examples[] = {"natural-compression",
                                                             "natural-compression:local"};
named_operator make_natural_compression(arguments const& with) {
  bool const local = with.one_of("scale", scopes) == 1;
  return composed(local ? "power-of-two:local:inf" : "power-of-two:linf", "exponential", "stochastic", "int8",
                  bucket_in(with), "allgather");
}

constexpr parameter natural_dithering_parameters[] = {four_bits, bucket_of("0"), order_of("inf"), all_levels};
constexpr std::string_view natural_dithering_examples[] = {"natural-dithering:4", "natural-dithering:4,q=2"};
named_operator make_natural_dithering(arguments const& with) {
  return composed("local:" + order_word(with, "q"), sized("exponential", with), "stochastic",
                  short_wire(with), bucket_in(with), "allgather");
}

constexpr std::string_view bounded_codes[] = {"fixed", "huffman"};
constexpr std::string_view bounded_vectors[] = {"float32", "float16", "bfloat16"};
constexpr parameter bounded_parameters[] = {
    {"error", "0.001", "a number above 0",
     "the largest error of a value of the mean, all roundings included"},
    {"range", "1", "a number above 0",
     "largest magnitude that a value may have. If a value is larger, all workers report an error"},
    {"bits", "16", integer_bits.allowed, bits_meaning},
    {"code", "fixed", "fixed or huffman",
     "how codes are stored: with a fixed number of bits, or with a code of variable length"},
    {"vectors", "float32", "float32, float16 or bfloat16",
     "the type of vectors, if it has 16 bits: the error then includes the rounding of the mean to it"}};
constexpr std::string_view bounded_examples[] = {"bounded:0.25,range=64", "bounded:0.01,range=64,bits=32",
                                                 "bounded:0.25,range=64,code=huffman"};
named_operator make_bounded(arguments const& with) {
  static_cast<void>(with.real("error", 0.0));
  static_cast<void>(with.real("range", 0.0));
  std::string wire = any_wire(with);
  bool const adds = wire.starts_with("int") && with.one_of("code", bounded_codes) == 0;
  if (with.one_of("code", bounded_codes) == 1)
    wire = with.number("bits", 2, 32) > 8 ? "huffman:16" : "huffman";
  std::string norm = "fixed:" + with.text("range") + ":" + with.text("error");
  std::size_t const type = with.one_of("vectors", bounded_vectors);
  if (type != 0) norm.append(":").append(bounded_vectors[type]);
  return composed(norm, "uniform", "nearest", wire, 0, adds ? "ring" : "sra");
}

constexpr std::string_view scales[] = {"max", "min-max"};
constexpr parameter scale_parameter{
    "scale", "max", "max or min-max",
    "max: divide each bucket by its largest magnitude; min-max: subtract the midpoint "
    "of its minimum and maximum and divide by half its range"};

constexpr parameter correlated_parameter{
    "correlated", "no", "yes or no; alone it means yes",
    "yes: the shifts of workers divide the range, so that errors of equal vectors cancel in their mean",
    "yes"};
std::string shift_in(arguments const& with) {
  std::string const name = with.one_of("correlated", yes_no) == 1 ? "correlated-shift" : "random-shift";
  return with.one_of("shift-back", yes_no) == 1 ? name : name + "-unshifted";
}

constexpr parameter qsdp_parameters[] = {eight_bits, bucket_of("1024"), shift_back_parameter, scale_parameter,
                                         correlated_parameter};
constexpr std::string_view qsdp_examples[] = {"qsdp", "qsdp:8,shift-back=no", "qsdp:8,scale=min-max",
                                              "qsdp:8,correlated"};
named_operator make_qsdp(arguments const& with) {
  named_operator op =
      composed("local:inf", "uniform", shift_in(with), short_wire(with), bucket_in(with), "allgather");
  op.words.centered = with.one_of("scale", scales) == 1;
  return op;
}

constexpr parameter qsdp_grid_parameters[] = {
    {"scale", "1", "a number above 0",
     "largest magnitude that a value may have; the step is scale / levels. If a value is larger, all workers "
     "report an error"},
    integer_bits,
    all_levels,
    shift_back_parameter,
    correlated_parameter};
constexpr std::string_view qsdp_grid_examples[] = {"qsdp-grid:64"};
named_operator make_qsdp_grid(arguments const& with) {
  static_cast<void>(with.real("scale", 0.0));
  return composed("fixed:" + with.text("scale"), sized("uniform", with), shift_in(with), any_wire(with), 0,
                  "ring");
}

constexpr parameter cgx_parameters[] = {four_bits, bucket_of("128"), scale_parameter};
constexpr std::string_view cgx_examples[] = {"cgx:4", "cgx:4,rounding=nearest", "cgx:4,scale=min-max",
                                             "cgx:2,feedback", "cgx:2,feedback,second=4"};
named_operator make_cgx(arguments const& with) {
  bool const centered = with.one_of("scale", scales) == 1;
  std::string const wire = short_wire(with);
  std::string levels = "uniform";
  if (std::uint64_t const bits = with.number("bits", 2, 8); centered && bits < 8) {
    std::vector<double>
        odd;  // all 2^bits points between minimum and maximum: 1, 3, .. of 2^bits - 1 either way
    for (std::uint64_t k = 1; k < (1ULL << bits); k += 2)
      odd.push_back(static_cast<double>(k) / static_cast<double>((1ULL << bits) - 1));
    levels = joined("symmetric:", odd);
  }
  named_operator op = composed("local:inf", levels, "stochastic", wire, bucket_in(with), "sra");
  op.words.centered = centered;
  return op;
}

/// The levels from which learning starts: powers of 1/2, or of 3/4 if those would become too small.
std::vector<double> first_levels(std::uint64_t bits, std::uint32_t size) {
  return globalq::operators::multiplier_levels(bits < 8 ? 0.5 : 0.75, size);
}

/// What to learn; an error if levels are set together with an option of learning.
learning learns(arguments const& with, learning::way what, bool given) {
  bool const normalized = with.one_of("normalized", yes_no) == 1;
  if (given && normalized)
    with.refuse_together("sets levels, but normalized=yes applies to learned levels only",
                         "leave out normalized, or the levels");
  return {given ? learning::way::none : what, normalized};
}

constexpr parameter alq_parameters[] = {
    three_bits,
    {"levels", "learned", "learned, or ascending numbers from 0 to 1, separated by colons",
     "levels as fractions of the norm; learned: start with powers of 1/2 (8 bits: 3/4) and learn during "
     "training"},
    bucket_of("8192"),
    order_of("2"),
    normalized_parameter};
constexpr std::string_view alq_examples[] = {"alq:3,levels=0:0.008:0.02:1",
                                             "alq:3,levels=0:0.008:0.02:1,code=huffman"};
named_operator make_alq(arguments const& with) {
  std::string const wire = short_wire(with);
  bool const given = with.text("levels") != "learned";
  std::vector<double> levels{0};
  if (given) {
    levels.clear();
    for (auto const each : split(with.text("levels"), ':')) {
      double level = 0;
      if (!is_number(each, level)) with.refuse_value("levels");
      levels.push_back(level);
    }
  } else {
    std::uint64_t const bits = with.number("bits", 2, 8);
    for (double const each : first_levels(bits, (1U << (bits - 1)) - 1)) levels.push_back(each);
  }
  named_operator op = composed("local:" + order_word(with, "q"), joined("table:", levels), "stochastic", wire,
                               bucket_in(with), "allgather");
  op.learns = learns(with, learning::way::levels, given);
  return op;
}

constexpr parameter amq_parameters[] = {three_bits,
                                        {"multiplier", "learned", "learned, or a number between 0 and 1",
                                         "ratio p of neighboring levels, which are +-1, +-p, +-p^2, ..; "
                                         "learned: start with 1/2 (8 bits: 3/4) and "
                                         "learn during training"},
                                        bucket_of("8192"),
                                        order_of("2"),
                                        normalized_parameter};
constexpr std::string_view amq_examples[] = {"amq:3,multiplier=0.25"};
named_operator make_amq(arguments const& with) {
  std::string const wire = short_wire(with);
  std::uint64_t const bits = with.number("bits", 2, 8);
  auto const size = static_cast<std::uint32_t>(bits == 8 ? 127 : 1U << (bits - 1));
  bool const given = with.text("multiplier") != "learned";
  std::vector<double> levels;
  if (given) {
    double const p = with.real("multiplier", 0.0);
    if (!(p < 1)) with.refuse_value("multiplier");
    levels = globalq::operators::multiplier_levels(p, size);
  } else {
    levels = first_levels(bits, size);
  }
  named_operator op = composed("local:" + order_word(with, "q"), joined("symmetric:", levels), "stochastic",
                               wire, bucket_in(with), "allgather");
  op.learns = learns(with, learning::way::multiplier, given);
  return op;
}

constexpr parameter few_bits{"bits", "2", "1 to 4", bits_meaning};
constexpr parameter rotated_block_parameter{
    "block", "1024", "a power of two from 2 to 2^20",
    "number of consecutive values that are rotated together and share a scale"};
std::uint64_t rotated_block_in(arguments const& with) {
  std::uint64_t const block = with.number("block", 2, 1U << 20);
  if (!std::has_single_bit(block)) with.refuse_value("block");
  return block;
}

/// The words of levels without zero.
std::string in_words(globalq::levels::symmetric const& levels) {
  std::string text = "symmetric:";
  for (std::uint32_t k = 1; k <= levels.size(); ++k)
    text.append(k == 1 ? "" : ",").append(shortest(levels.value(k)));
  return text;
}

constexpr parameter rotated_optimal_parameters[] = {few_bits, rotated_block_parameter};
constexpr std::string_view rotated_optimal_examples[] = {"rotated-optimal:2", "rotated-optimal:4"};
named_operator make_rotated_optimal(arguments const& with) {
  std::uint64_t const bits = with.number("bits", 1, 4);
  named_operator op =
      composed("local:inf", in_words(globalq::operators::detail::levels_of_rotated(static_cast<int>(bits))),
               "correlated", "packed:" + std::to_string(bits), rotated_block_in(with), "allgather");
  op.words.rotate = op.words.bucket;
  return op;
}

constexpr parameter eden_parameters[] = {few_bits,
                                         rotated_block_parameter,
                                         {"rotations", "1", "1 or 2",
                                          "2: a rotation that all workers share before each worker's own, "
                                          "which removes the bias on vectors with few large values"}};
constexpr std::string_view eden_examples[] = {"eden:1", "eden:2", "eden:4", "eden:2,rotations=2"};
named_operator make_eden(arguments const& with) {
  std::uint64_t const bits = with.number("bits", 1, 4);
  named_operator op =
      composed("local:2", in_words(globalq::detail::levels_of_eden(static_cast<int>(bits))), "nearest",
               "packed:" + std::to_string(bits), rotated_block_in(with), "allgather");
  if (with.number("rotations", 1, 2) == 2) op.words.rotate = op.words.bucket;
  op.words.eden = true;
  return op;
}

// Values of a small floating-point format under a shared power of two; the first format is the default.
constexpr parameter block_parameter{"block", "32", "1 to 2^48",
                                    "number of consecutive values that share a scale"};
named_operator make_block_scaled(std::string const& format, std::string const& bits, arguments const& with,
                                 std::string const& norm = "shared-exponent") {
  return composed(norm, format, "stochastic", "packed:" + bits, with.number("block", 1, largest_bucket),
                  "sra");
}

constexpr parameter mxfp4_parameters[] = {block_parameter};
constexpr std::string_view mxfp4_examples[] = {"mxfp4"};
named_operator make_mxfp4(arguments const& with) { return make_block_scaled("e2m1", "4", with); }

constexpr parameter nvfp4_parameters[] = {{"block", "16", block_parameter.allowed, block_parameter.meaning}};
constexpr std::string_view nvfp4_examples[] = {"nvfp4"};
named_operator make_nvfp4(arguments const& with) { return make_block_scaled("e2m1", "4", with, "two-level"); }

constexpr std::string_view format_meaning =
    "format of a value: eXmY has X bits of exponent and Y bits of mantissa";
constexpr std::string_view mxfp6_formats[] = {"e2m3", "e3m2"};
constexpr parameter mxfp6_parameters[] = {{"format", "e2m3", "e2m3 or e3m2", format_meaning},
                                          block_parameter};
constexpr std::string_view mxfp6_examples[] = {"mxfp6", "mxfp6:e3m2"};
named_operator make_mxfp6(arguments const& with) {
  return make_block_scaled(std::string{mxfp6_formats[with.one_of("format", mxfp6_formats)]}, "6", with);
}

constexpr std::string_view mxfp8_formats[] = {"e4m3", "e5m2"};
constexpr parameter mxfp8_parameters[] = {{"format", "e4m3", "e4m3 or e5m2", format_meaning},
                                          block_parameter};
constexpr std::string_view mxfp8_examples[] = {"mxfp8", "mxfp8:e5m2"};
named_operator make_mxfp8(arguments const& with) {
  return make_block_scaled(std::string{mxfp8_formats[with.one_of("format", mxfp8_formats)]}, "8", with);
}

constexpr std::string_view float_roundings[] = {"stochastic", "nearest"};
constexpr parameter float_parameters[] = {
    {"rounding", "stochastic", "stochastic or nearest",
     "stochastic is unbiased; nearest is biased, and its errors are smaller"}};
named_operator make_floats(arguments const& with, std::string_view type) {
  description words;
  words.levels = type;
  words.rounding = float_roundings[with.one_of("rounding", float_roundings)];
  return {words, "sra"};
}
constexpr std::string_view bfloat16_examples[] = {"bfloat16"};
constexpr std::string_view float16_examples[] = {"float16"};
named_operator make_bfloat16(arguments const& with) { return make_floats(with, "bfloat16"); }
named_operator make_float16(arguments const& with) { return make_floats(with, "float16"); }

constexpr std::string_view float32_examples[] = {"float32"};
named_operator make_float32(arguments const&) {
  description words;
  words.levels = "none";
  return {words, "ring"};
}

constexpr std::string_view mx_source = "Open Compute Project, Microscaling Formats (MX) Specification 1.0";
constexpr std::string_view mx_bound = "(r-1)^2 / 4r + inf_p K_p (2 l_1)^(2-p) D^((2-p)/2)";
constexpr entry registry[] = {
    {"global-uniform",
     "Divides the values of all workers by one common norm and rounds them to evenly spaced levels. Codes of "
     "8, "
     "16 or 32 bits are added as integers; shorter codes are decoded, added and quantized again",
     "Xin et al. (Global-QSGD)", "min(c^2 D / 4 s^2, c sqrt(D) / s)",
     "Section 3.1 exchanges p and q in the norm of section 2. Theorem 3.3 states that at most s^2 + sqrt(D) "
     "codes "
     "are non-zero, which equal values exceed; the bound is s sqrt(D).",
     global_uniform_parameters, global_uniform_examples, make_global_uniform},
    {"global-exponential",
     "Divides the values of all workers by one common norm and rounds them to zero or a power of two. On "
     "sra, the "
     "default, codes are decoded, added and rounded once more; ring and tree add them as integers, with "
     "random "
     "rounding to a power of two in each addition",
     "Xin et al. (Global-QSGD)",
     "1/8 + min(c sqrt(D) 2^(1-s), c^2 D 4^(1-s)), plus the variance of the additions",
     "Section 3.1 prints the levels l_i = 1 / 2^(s-i), which rise with i although l_0 = 1 and l_s = 0; level "
     "k is "
     "2^-(k-1). Algorithm 2 is printed with a ceiling in the random draw, which halves its probabilities. "
     "Sections "
     "3.1 and 4 multiply the variance by 9/8 for each addition, and conclude that 16 workers need at most 20 "
     "% more "
     "iterations (n theta = 0.20). But an addition adds up to 1/8 of the squared sum: with 16 workers on a "
     "tree "
     "whose values are 1 (four), 1/2 (eight) and 1/4 (four), n theta is 2.08. Division by 2n leaves enough "
     "headroom "
     "only for balanced trees over a power of two. The number of non-zero codes, printed as at most 4^(s-1) "
     "+ "
     "sqrt(D), is at most 2^(s-1) sqrt(D).",
     global_exponential_parameters, global_exponential_examples, make_global_exponential},
    {"qsgd",
     "Each worker divides each bucket by the norm of the bucket and rounds the values at random to evenly "
     "spaced levels",
     "Alistarh et al. 2017 (QSGD)", "min(c^2 D / 4 s^2, c sqrt(D) / s)", "", qsgd_parameters, qsgd_examples,
     make_qsgd},
    {"terngrad",
     "Rounds each value at random to -1, 0 or 1 times the largest magnitude of the vector or of its bucket",
     "Wen et al. 2017 (TernGrad)", "min(D / 4, sqrt(D))", "", terngrad_parameters, terngrad_examples,
     make_terngrad},
    {"nuqsgd",
     "Each worker divides each bucket by the Euclidean norm of the bucket and rounds the values at random to "
     "zero or a power of two",
     "Ramezani-Kebrya et al. 2021 (NUQSGD)", "1/8 + min(sqrt(D) 2^(1-s), D 4^(1-s))", "", nuqsgd_parameters,
     nuqsgd_examples, make_nuqsgd},
    {"natural-compression", "Rounds each value at random to one of the two powers of two next to it",
     "Horvath et al. 2019 (Natural Compression)", "1/8", "", natural_compression_parameters,
     natural_compression_examples, make_natural_compression},
    {"natural-dithering",
     "Each worker divides its vector, or each bucket, by its norm and rounds the values at random to zero or "
     "a "
     "power of two",
     "Horvath et al. 2019 (Natural Compression)", "1/8 + min(c sqrt(D) 2^(1-s), c^2 D 4^(1-s))", "",
     natural_dithering_parameters, natural_dithering_examples, make_natural_dithering},
    {"qsdp",
     "Divides each bucket by its largest magnitude and rounds each value to the nearest point of an evenly "
     "spaced grid. A random shift of the grid, one for each bucket, makes the rounding unbiased",
     "Markov 2024 (thesis), chapter 5",
     "D / 12 s^2 with shift-back=yes; min(D / 4 s^2, sqrt(D) / s) with shift-back=no; with scale=min-max, "
     "relative to the centered vector",
     "Lemma 5 prints the variance delta^2 sum {v/delta} (1 - {v/delta}), which is that of shift-back=no. The "
     "variance of Definition 1, which shifts back, is delta^2 / 12 per value.",
     qsdp_parameters, qsdp_examples, make_qsdp},
    {"qsdp-grid",
     "Rounds like qsdp to a grid with a random shift, but with the same fixed step for all vectors and "
     "workers",
     "Markov 2024 (thesis), chapter 5", "delta^2 / 12 per value with shift-back=yes", "",
     qsdp_grid_parameters, qsdp_grid_examples, make_qsdp_grid},
    {"bounded",
     "Rounds to the nearest multiple of a step that follows from the error, the range, the number of workers "
     "and the "
     "schedule, so that no value of the result differs from the mean by more than the error",
     "", "no error of a value is above the parameter error", "", bounded_parameters, bounded_examples,
     make_bounded},
    {"cgx",
     "Divides each bucket by its largest magnitude and rounds the values to evenly spaced levels. Buckets "
     "are "
     "short, so a large value reduces the precision of few others",
     "Markov 2024 (thesis), chapter 3",
     "D / 4 s^2 with rounding=stochastic, none with nearest; with scale=min-max, (max - min)^2 / 4 (2^bits - "
     "1)^2 per value",
     "", cgx_parameters, cgx_examples, make_cgx},
    {"alq",
     "Each worker divides each bucket by the norm of the bucket and rounds the values at random to levels "
     "that "
     "are learned during training to minimize the variance, or that you set",
     "Faghri et al. 2020 (ALQ, AMQ)", "(r-1)^2 / 4r + inf_p K_p (c l_1)^(2-p) D^((2-p)/2)", "",
     alq_parameters, alq_examples, make_alq},
    {"amq",
     "Like alq, but with the levels +-1, +-p, +-p^2, .. without zero; the multiplier p is learned, or you "
     "set "
     "it",
     "Faghri et al. 2020 (ALQ, AMQ)", "(r-1)^2 / 4r + c^2 D l_1^2, where r = 1/p", "", amq_parameters,
     amq_examples, make_amq},
    {"rotated-optimal",
     "Rotates blocks at random, so that their values are nearly normal whatever the vector, and rounds them "
     "to the best "
     "levels for that, without zero and up to the largest value. Rounding errors of workers partly cancel",
     "Faghri et al. 2020 (ALQ, AMQ); Suresh et al. 2022 (correlated rounding)", "(r-1)^2 / 4r + D l_1^2", "",
     rotated_optimal_parameters, rotated_optimal_examples, make_rotated_optimal},
    {"eden",
     "Each worker rotates blocks by random signs of its own, rounds values to the nearest centroid of a "
     "normal distribution, and "
     "sends the scale with which its frame is unbiased along the vector",
     "Vargaftik et al. 2022 (EDEN)",
     "none proven for Hadamard transforms; for uniformly random rotations the variance is 0.571, 0.133, "
     "0.0358, 0.0096 at 1 to 4 "
     "bits",
     "", eden_parameters, eden_examples, make_eden},
    {"mxfp4",
     "Rounds values to FP4 (E2M1). Each block of 32 values shares a scale, a power of two that is rounded up "
     "so "
     "that no value is clipped",
     mx_source, mx_bound, "", mxfp4_parameters, mxfp4_examples, make_mxfp4},
    {"mxfp6", "Like mxfp4, with FP6 (E2M3 or E3M2)", mx_source, mx_bound, "", mxfp6_parameters,
     mxfp6_examples, make_mxfp6},
    {"mxfp8", "Like mxfp4, with FP8 (E4M3 or E5M2)", mx_source, mx_bound, "", mxfp8_parameters,
     mxfp8_examples, make_mxfp8},
    {"nvfp4",
     "Like mxfp4, with blocks of 16 values whose scale is an FP8 number (E4M3) times one scale of the "
     "vector, so "
     "that it is rounded up by less than 1/8",
     "NVIDIA 2025, Pretraining Large Language Models with NVFP4",
     "(r-1)^2 / 4r + inf_p K_p (9/8 l_1)^(2-p) D^((2-p)/2) + 2^-20 sqrt(d), where d is the length of the "
     "vector",
     "", nvfp4_parameters, nvfp4_examples, make_nvfp4},
    {"bfloat16",
     "Sends bfloat16, the upper half of float32: sums of float32 are rounded to it once before they are sent",
     "", "2^-16", "", float_parameters, bfloat16_examples, make_bfloat16},
    {"float16",
     "Like bfloat16, with float16, whose range is short: values are divided by a power of two that all "
     "workers "
     "agree on, so that no sum overflows",
     "", "2^-22", "", float_parameters, float16_examples, make_float16},
    {"float32",
     "Sends float32 without quantization, as a reference for comparison",
     "",
     "0",
     "",
     {},
     float32_examples,
     make_float32},
};

std::string names() {
  std::string all;
  for (entry const& each : registry) all.append(all.empty() ? "" : ", ").append(each.name);
  return all;
}

constexpr std::size_t help_width = 100, meanings_start = 24;

/// Appends the words in lines of at most help_width characters, each with the indent.
/// @param column  where the first line continues; 0: it is a new line
void paragraph(std::string& text, std::size_t indent, std::string_view words, std::size_t column = 0) {
  if (column == 0) {
    text.append(indent, ' ');
    column = indent;
  }
  bool first = true;
  for (std::string_view const word : split(words, ' ')) {
    if (!first && column + 1 + word.size() > help_width) {
      text.append("\n").append(indent, ' ');
      column = indent;
    } else if (!first) {
      text.append(" ");
      ++column;
    }
    text.append(word);
    column += word.size();
    first = false;
  }
  text.append("\n");
}

/// Appends the lines of a parameter.
void help_of(std::string& text, parameter const& p) {
  std::string line = "    " + std::string{p.name} + "=" + std::string{p.usual};
  line.resize(std::max<std::size_t>(line.size() + 2, meanings_start), ' ');
  text.append(line);
  paragraph(text, meanings_start, std::string{p.meaning} + " (" + std::string{p.allowed} + ")", line.size());
}

}  // namespace

std::span<entry const> operators() { return registry; }

globalq::any_quantizer operator_of(named_operator const& asked) {
  globalq::any_quantizer op = make(asked.words);
  double const clip[] = {asked.clip};
  if (asked.clip > 0) op = op.after(joined("clip:", clip));
  if (asked.learns)
    op = op.after(std::string{"learned "} +
                  (asked.learns.what == learning::way::levels ? "levels" : "multiplier") +
                  (asked.learns.normalized ? " normalized" : ""));
  return op;
}

namespace {

/// Whether codes of several workers are added without decoding.
bool adds(description const& words) {
  bool const shared =
                 words.norm == "linf" || words.norm.starts_with("l:") || words.norm.starts_with("fixed:"),
             uniform = words.levels.empty() || words.levels.starts_with("uniform");
  return shared && uniform && words.wire.starts_with("int") && words.reduce != "requantize" &&
         words.second.empty();
}

/// The operator of a name, without its words; what an empty name means.
named_operator named(std::string_view text, divided const& parts, entry const* of) {
  if (of == nullptr) return {};
  return of->make(arguments::read(parts.name, of->parameters, text));
}

void expect_learnable(std::string_view text, named_operator const& op) {
  bool const table = op.words.levels.starts_with("table:"),
             symmetric = op.words.levels.starts_with("symmetric:");
  if ((op.learns.what == learning::way::levels && !table && !symmetric) ||
      (op.learns.what == learning::way::multiplier && !symmetric))
    refuse("operator", text, "learns levels, but levels are " + op.words.levels,
           "give the levels from which learning starts: table:0,..,1 for levels, symmetric:L1,..,1 for a "
           "multiplier");
  if (op.learns.normalized && !op.learns)
    refuse("operator", text, "sets normalized=yes, but learns nothing", "leave out normalized, or set learn");
}

}  // namespace

named_operator read_operator(std::string_view text) {
  std::string_view const name = leading_name(text);
  auto const found =
      std::find_if(std::begin(registry), std::end(registry), [&](entry const& e) { return e.name == name; });
  entry const* const of = found == std::end(registry) ? nullptr : found;
  if (std::ranges::any_of(compressors(), [&](compressor_entry const& e) { return e.name == name; }))
    refuse("operator", text, "is a compressor of layers and not an operator",
           "use it in a mean of layers, such as DDPHook in Python, or choose one of " + names());
  if (of == nullptr && (!name.empty() || text.empty()))
    refuse("operator", text, "is not an operator",
           "use one of " + names() + ", or words such as norm=local:inf bucket=128 wire=packed:4");
  divided const parts = divide(text, of == nullptr ? std::span<parameter const>{} : of->parameters);
  if (of == nullptr && !parts.sets("norm") &&
      !parts.sets("levels"))  // a part of a list that was cut at a space
    refuse("operator", text, "has no name and sets neither norm nor levels",
           "begin with a name, or set one of these; in a list of operators, put commas instead of spaces "
           "inside each");
  globalq::float_environment const exact;
  try {
    named_operator chosen = named(text, parts, of);
    for (auto const& [word, value] : parts.words) word->set(chosen, text, value);
    description& words = chosen.words;
    if (words.feedback > 0 && words.rounding == "stochastic" && !parts.sets("rounding"))
      words.rounding = "nearest";
    if (chosen.schedule.empty())
      chosen.schedule = adds(words) || words.levels == "none" ? "ring" : words.eden ? "allgather" : "sra";
    else if (!parts.words.empty() && !parts.sets("schedule") && chosen.schedule == "ring" &&
             words.levels != "none" && !adds(words))
      chosen.schedule = "sra";
    expect_learnable(text, chosen);
    static_cast<void>(operator_of(chosen));  // validates the parts now
    return chosen;
  } catch (globalq::configuration_error const& problem) {
    std::string_view why = problem.what();
    if (why.starts_with("globalq: option operator")) throw;
    if (why.starts_with("globalq: ")) why.remove_prefix(9);
    throw globalq::configuration_error{"globalq: option operator: \"" + std::string{text} +
                                       "\": " + std::string{why}};
  }
}

std::string operators_help() {
  std::string text;
  paragraph(
      text, 0,
      "An operator is written as words, word=value, with spaces or commas between. For example, "
      "norm=local:2 bucket=512 wire=packed:4 has a scale for each 512 values and 4 bits. A name is short for "
      "some words: NAME[:VALUE][,parameter=value].., where VALUE sets the first parameter, as in "
      "qsgd:4,bucket=512. Words may follow a name and replace its parts: cgx:4 rotate=1024.");
  text.append("\nThe words, with their defaults\n");
  for (parameter const& each : words_of_operators()) help_of(text, each);
  text.append("\n");
  paragraph(
      text, 0,
      "The list states for each operator its paper, the schedule that it uses unless you choose another, "
      "a bound on the variance of one encoding relative to the squared length of the vectors, and the "
      "parameters with their defaults and allowed values.");
  text.append("\n");
  paragraph(
      text, 0,
      "Symbols in the bounds: n workers; d values of a vector, or of a bucket; D = n d if all workers "
      "share a scale, else D = d; s levels above zero, of which l_1 is the smallest; r, the largest ratio "
      "of neighboring levels; c = d^max(0, 1/q - 1/2) n^max(0, 1/p - 1/2), without the second factor if "
      "each worker has its own scale; delta, the step of the grid; inf_p, the infimum over p from 0 to 1, "
      "with K_p = ((1-p) / (2-p))^(1-p) / (2-p).");
  for (entry const& each : registry) {
    text.append("\n").append(each.name).append("\n");
    paragraph(text, 4, std::string{each.title} + ".");
    if (!each.source.empty()) paragraph(text, 4, "Source: " + std::string{each.source});
    paragraph(text, 4, "Schedule: " + each.make({each.name, each.parameters}).schedule);
    paragraph(text, 4, "Bound: " + std::string{each.bound});
    paragraph(text, 4, "Words: " + words_of(each.make({each.name, each.parameters})));
    for (parameter const& p : each.parameters) help_of(text, p);
  }
  return text;
}

}  // namespace GLOBALQ_ABI::named
