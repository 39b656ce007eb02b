// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief named: the registry of named operators.

#include <globalq/named/operators.hpp>

#include <globalq/named/text.hpp>

#include <globalq/operator/centered.hpp>
#include <globalq/operator/operators.hpp>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace GLOBALQ_ABI::named {

arguments::arguments(std::string_view whole, std::span<parameter const> parameters)
    : whole_{whole}, parameters_{parameters} {
  for (parameter const& each : parameters) values_.emplace_back(each.usual);
  given_.resize(values_.size());
}

arguments arguments::read(std::string_view text, std::span<parameter const> parameters) {
  arguments with{text, parameters};
  std::size_t const end = name_in(text).size();
  if (end == text.size()) return with;
  bool first = text[end] == ':';
  for (std::string_view const part : split(text.substr(end + 1), ',')) {
    std::size_t const equals = part.find('=');
    if (equals != std::string_view::npos)
      with.set(part.substr(0, equals), part.substr(equals + 1));
    else if (first && !parameters.empty())
      with.set(parameters[0].name, part);
    else
      refuse("operator", text, "holds \"" + std::string{part} + "\", which is not parameter=value",
             "write NAME[:VALUE][,parameter=value].., where VALUE is that of the first parameter");
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
           have.empty() ? "it has none" : "it has " + have);
  }
  auto const at = static_cast<std::size_t>(found - parameters_.begin());
  if (given_[at]) refuse("operator", whole_, "gives " + std::string{name} + " twice", "give it once");
  given_[at] = true;
  values_[at] = value;
}

std::string const& arguments::text(std::string_view name) const {
  for (std::size_t k = 0; k < values_.size(); ++k)
    if (parameters_[k].name == name) return values_[k];
  throw std::logic_error{"named: an operator reads a parameter that it does not list"};
}

bool arguments::has(std::string_view name) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](parameter const& each) { return each.name == name; });
}

void arguments::refuse_together(std::string_view what, std::string_view remedy) const {
  refuse("operator", whole_, what, remedy);
}

void arguments::refuse_value(std::string_view name) const {
  auto const found = std::find_if(parameters_.begin(), parameters_.end(),
                                  [&](parameter const& each) { return each.name == name; });
  refuse("operator", whole_, "gives \"" + text(name) + "\" as " + std::string{name},
         "give " + std::string{found->allowed});
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

constexpr parameter integer_bits{"bits", "8", "2 to 8, 16 or 32", "bits a value on the wire, sign included"};
constexpr parameter eight_bits{"bits", "8", "2 to 8", "bits a value on the wire, sign included"};
constexpr parameter four_bits{"bits", "4", "2 to 8", "bits a value on the wire, sign included"};
constexpr parameter three_bits{"bits", "3", "2 to 8", "bits a value on the wire, sign included"};
constexpr std::string_view codes[] = {"fixed", "elias", "huffman", "sparse"};
constexpr parameter code_parameter{"code", "fixed", "fixed, elias, huffman or sparse",
                                   "how codes become bits; frames differ in length but for fixed"};
constexpr parameter all_levels{"levels", "0", "a whole number; 0: as many as fit", "levels above zero"};

constexpr parameter bucket_of(std::string_view usual) {
  return {"bucket", usual, "a whole number up to 2^48; 0: the whole vector", "values that share a scale"};
}
constexpr std::string_view tails[] = {"own", "float32"};
constexpr parameter tail_parameter{"tail", "own", "own or float32",
                                   "of a short last bucket: a scale of its own, or unquantized"};
constexpr parameter normalized_parameter{"normalized", "no", "yes or no",
                                         "the -N variant: buckets count alike, not by their squared norms"};
constexpr parameter order_of(std::string_view usual) {
  return {"q", usual, "1 to 64 or inf", "order of the norm within a worker"};
}

std::string any_wire(arguments const& with) {
  std::uint64_t const bits = with.number("bits", 2, 32);
  if (bits > 8 && bits != 16 && bits != 32) with.refuse_value("bits");
  return bits >= 8 ? "int" + std::to_string(bits) : "packed:" + std::to_string(bits);
}

std::string short_wire(arguments const& with) {
  std::uint64_t const bits = with.number("bits", 2, 8);
  return bits == 8 ? "int8" : "packed:" + std::to_string(bits);
}

/// The wire of operators with the parameter code: of fixed width, or the code.
std::string coded_wire(arguments const& with) {
  std::string const fixed = short_wire(with);
  std::size_t const code = with.one_of("code", codes);
  return code == 0 ? fixed : std::string{codes[code]};
}

std::string order_word(arguments const& with, std::string_view name) {
  if (with.text(name) == "inf") return "inf";
  return std::to_string(with.number(name, 1, 64));
}

std::uint64_t bucket_in(arguments const& with) { return with.number("bucket", 0, largest_bucket); }

std::string sized(std::string name, arguments const& with) {
  std::uint64_t const levels = with.number("levels", 0, 0xffffffffU);
  return levels == 0 ? name : name + ":" + std::to_string(levels);
}

/// sized() for operators with the parameter code: with a code, the bits only determine the number of levels.
std::string coded_size(std::string const& name, arguments const& with) {
  if (with.number("levels", 0, 0xffffffffU) != 0 || with.one_of("code", codes) == 0) return sized(name, with);
  return name + ":" + std::to_string((1U << (with.number("bits", 2, 8) - 1)) - 1);
}

std::string joined(std::string const& first, std::span<double const> numbers) {
  std::string text = first;
  for (double const each : numbers) {
    char digits[40];  // the shortest text that reads back as the same number
    auto const [end, error] = std::to_chars(digits, digits + sizeof digits, each);
    if (error != std::errc{}) throw std::logic_error{"named: a number does not fit"};
    text.append(text.back() == ':' ? "" : ",").append(digits, end);
  }
  return text;
}

std::string global_norm(arguments const& with) {
  std::string const q = order_word(with, "q"), p = order_word(with, "p");
  return q == "inf" && p == "inf" ? "linf" : "l:" + q + "," + p;
}

// ---- the operators

constexpr parameter global_uniform_parameters[] = {
    integer_bits,    all_levels,
    order_of("inf"), {"p", "inf", "1 to 64 or inf", "order of the norm over the workers"},
    bucket_of("0"),  tail_parameter};
constexpr std::string_view global_uniform_examples[] = {"global-uniform", "global-uniform:8,q=2,p=2",
                                                        "global-uniform:4,bucket=128"};
named_operator make_global_uniform(arguments const& with) {
  std::string const wire = any_wire(with);
  return {
      {global_norm(with), sized("uniform", with), "stochastic", wire, "auto", bucket_in(with)},
      wire.starts_with("int") ? "ring" : "sra"};  // packed codes are requantized; sra adds with one rounding
}

constexpr parameter global_exponential_parameters[] = {
    eight_bits,      all_levels,
    order_of("inf"), {"p", "inf", "1 to 64 or inf", "order of the norm over the workers"},
    bucket_of("0"),  tail_parameter};
constexpr std::string_view global_exponential_examples[] = {
    "global-exponential", "global-exponential:8,q=2,p=2", "global-exponential:4"};
named_operator make_global_exponential(arguments const& with) {
  return {{global_norm(with), sized("exponential", with), "stochastic", short_wire(with), "auto",
           bucket_in(with)},
          "tree"};
}

constexpr parameter qsgd_parameters[] = {four_bits,  bucket_of("512"), order_of("2"),
                                         all_levels, code_parameter,   tail_parameter};
constexpr std::string_view qsgd_examples[] = {"qsgd:4",
                                              "qsgd:8",
                                              "qsgd:4,q=inf",
                                              "qsgd:4,bucket=100,tail=float32",
                                              "qsgd:8,code=huffman",
                                              "qsgd:6,bucket=0,code=elias",
                                              "qsgd:2,bucket=0,code=sparse"};
named_operator make_qsgd(arguments const& with) {
  return {{"local:" + order_word(with, "q"), coded_size("uniform", with), "stochastic", coded_wire(with),
           "auto", bucket_in(with)},
          "allgather"};
}

constexpr parameter terngrad_parameters[] = {
    {"clip", "0", "a number above 0, such as 2.5; 0: no clipping",
     "standard deviations at which vectors are cut off before; biased"},
    bucket_of("0"),
    {"shared", "no", "yes or no", "scaler sharing: one scale for all workers"},
    tail_parameter};
constexpr std::string_view terngrad_examples[] = {"terngrad:0,bucket=512",
                                                  "terngrad:0,bucket=512,shared=yes"};
named_operator make_terngrad(arguments const& with) {
  bool const shared = with.one_of("shared", yes_no) == 1;
  double const clip = with.text("clip") == "0" ? 0.0 : with.real("clip", 0.0);
  return {{shared ? "linf" : "local:inf", "uniform:1", "stochastic", "packed:2", "auto", bucket_in(with)},
          "allgather",
          clip};
}

constexpr parameter nuqsgd_parameters[] = {four_bits, bucket_of("8192"), all_levels, code_parameter,
                                           tail_parameter};
constexpr std::string_view nuqsgd_examples[] = {"nuqsgd:4", "nuqsgd:4,code=huffman"};
named_operator make_nuqsgd(arguments const& with) {
  return {
      {"local:2", coded_size("exponential", with), "stochastic", coded_wire(with), "auto", bucket_in(with)},
      "allgather"};
}

constexpr std::string_view scopes[] = {"global", "local"};
constexpr parameter natural_compression_parameters[] = {
    {"scale", "global", "global or local", "whether all workers share the largest exponent"},
    bucket_of("0"),
    tail_parameter};
constexpr std::string_view natural_compression_examples[] = {"natural-compression",
                                                             "natural-compression:local"};
named_operator make_natural_compression(arguments const& with) {
  bool const local = with.one_of("scale", scopes) == 1;
  return {{local ? "power-of-two:local:inf" : "power-of-two:linf", "exponential", "stochastic", "int8",
           "auto", bucket_in(with)},
          "allgather"};
}

constexpr parameter natural_dithering_parameters[] = {four_bits, bucket_of("0"), order_of("inf"), all_levels,
                                                      tail_parameter};
constexpr std::string_view natural_dithering_examples[] = {"natural-dithering:4", "natural-dithering:4,q=2"};
named_operator make_natural_dithering(arguments const& with) {
  return {{"local:" + order_word(with, "q"), sized("exponential", with), "stochastic", short_wire(with),
           "auto", bucket_in(with)},
          "allgather"};
}

constexpr std::string_view scales[] = {"max", "min-max"};
constexpr parameter scale_parameter{"scale", "max", "max or min-max",
                                    "largest magnitude, or between minimum and maximum of each bucket"};

constexpr parameter qsdp_parameters[] = {
    eight_bits,
    bucket_of("1024"),
    {"shift-back", "yes", "yes or no", "whether the random shift is added back (Definition 1)"},
    scale_parameter,
    tail_parameter};
constexpr std::string_view qsdp_examples[] = {"qsdp", "qsdp:8,shift-back=no", "qsdp:8,scale=min-max"};
named_operator make_qsdp(arguments const& with) {
  bool const back = with.one_of("shift-back", yes_no) == 1;
  return {{"local:inf", "uniform", back ? "random-shift" : "random-shift-unshifted", short_wire(with), "auto",
           bucket_in(with)},
          "allgather",
          0,
          with.one_of("scale", scales) == 1};
}

constexpr parameter qsdp_grid_parameters[] = {
    {"unit", "1", "a number above 0", "the largest magnitude; a larger one is an error"},
    integer_bits,
    all_levels,
    {"shift-back", "yes", "yes or no", "whether the random shift is added back (Definition 1)"}};
constexpr std::string_view qsdp_grid_examples[] = {"qsdp-grid:64"};
named_operator make_qsdp_grid(arguments const& with) {
  static_cast<void>(with.real("unit", 0.0));
  bool const back = with.one_of("shift-back", yes_no) == 1;
  return {{"fixed:" + with.text("unit"), sized("uniform", with),
           back ? "random-shift" : "random-shift-unshifted", any_wire(with), "auto", 0},
          "ring"};
}

constexpr std::string_view roundings[] = {"stochastic", "nearest"};
constexpr parameter rounding_parameter{"rounding", "stochastic", "stochastic or nearest",
                                       "nearest is biased and needs error feedback"};
constexpr parameter cgx_parameters[] = {four_bits, bucket_of("128"), rounding_parameter, scale_parameter,
                                        tail_parameter};
constexpr std::string_view cgx_examples[] = {"cgx:4", "cgx:4,rounding=nearest", "cgx:4,scale=min-max"};
named_operator make_cgx(arguments const& with) {
  std::size_t const rounding = with.one_of("rounding", roundings);
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
  return {{"local:inf", levels, std::string{roundings[rounding]}, wire, "auto", bucket_in(with)},
          "sra",
          0,
          centered};
}

/// The levels from which learning starts: powers of 1/2, or of 3/4 if those would become too small.
std::vector<double> first_levels(std::uint64_t bits, std::uint32_t size) {
  return globalq::operators::multiplier_levels(bits < 8 ? 0.5 : 0.75, size);
}

/// What to learn; an error if levels were given together with an option of learning.
learning learns(arguments const& with, learning::way what, bool given) {
  bool const normalized = with.one_of("normalized", yes_no) == 1;
  if (given && normalized)
    with.refuse_together("gives levels, and also how to learn them",
                         "leave out normalized, or let the levels be learned");
  return {given ? learning::way::none : what, normalized};
}

constexpr parameter alq_parameters[] = {
    three_bits,
    {"levels", "learned", "learned, or ascending numbers from 0 to 1 with colons between",
     "learned while running, from powers of 1/2 on, or as given"},
    bucket_of("8192"),
    order_of("2"),
    code_parameter,
    normalized_parameter,
    tail_parameter};
constexpr std::string_view alq_examples[] = {"alq:3,levels=0:0.008:0.02:1",
                                             "alq:3,levels=0:0.008:0.02:1,code=huffman"};
named_operator make_alq(arguments const& with) {
  std::string const wire = coded_wire(with);
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
  return {{"local:" + order_word(with, "q"), joined("table:", levels), "stochastic", wire, "auto",
           bucket_in(with)},
          "allgather",
          0,
          false,
          learns(with, learning::way::levels, given)};
}

constexpr parameter amq_parameters[] = {
    three_bits,
    {"multiplier", "learned", "learned, or a number between 0 and 1",
     "p: levels are +-1, +-p, +-p^2, ..; learned while running, from 1/2 on, or as given"},
    bucket_of("8192"),
    order_of("2"),
    normalized_parameter,
    tail_parameter};
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
  return {{"local:" + order_word(with, "q"), joined("symmetric:", levels), "stochastic", wire, "auto",
           bucket_in(with)},
          "allgather",
          0,
          false,
          learns(with, learning::way::multiplier, given)};
}

// Values of a small floating-point format under a shared power of two; the first format is the default.
constexpr parameter block_parameter{"block", "32", "a whole number from 1 to 2^48",
                                    "values that share a scale"};
named_operator make_block_scaled(std::string const& format, std::string const& bits, arguments const& with) {
  return {{"shared-exponent", format, std::string{roundings[with.one_of("rounding", roundings)]},
           "packed:" + bits, "auto", with.number("block", 1, largest_bucket)},
          "sra"};
}

constexpr parameter mxfp4_parameters[] = {block_parameter, rounding_parameter};
constexpr std::string_view mxfp4_examples[] = {"mxfp4"};
named_operator make_mxfp4(arguments const& with) { return make_block_scaled("e2m1", "4", with); }

constexpr std::string_view mxfp6_formats[] = {"e2m3", "e3m2"};
constexpr parameter mxfp6_parameters[] = {
    {"format", "e2m3", "e2m3 or e3m2", "bits of exponent and mantissa"}, block_parameter, rounding_parameter};
constexpr std::string_view mxfp6_examples[] = {"mxfp6", "mxfp6:e3m2"};
named_operator make_mxfp6(arguments const& with) {
  return make_block_scaled(std::string{mxfp6_formats[with.one_of("format", mxfp6_formats)]}, "6", with);
}

constexpr std::string_view mxfp8_formats[] = {"e4m3", "e5m2"};
constexpr parameter mxfp8_parameters[] = {
    {"format", "e4m3", "e4m3 or e5m2", "bits of exponent and mantissa"}, block_parameter, rounding_parameter};
constexpr std::string_view mxfp8_examples[] = {"mxfp8", "mxfp8:e5m2"};
named_operator make_mxfp8(arguments const& with) {
  return make_block_scaled(std::string{mxfp8_formats[with.one_of("format", mxfp8_formats)]}, "8", with);
}

constexpr std::string_view float32_examples[] = {"float32"};
named_operator make_float32(arguments const&) {
  description words;
  words.levels = "none";
  return {words, "ring"};
}

constexpr std::string_view mx_source = "Open Compute Project, Microscaling Formats (MX) Specification 1.0";
constexpr std::string_view mx_bound = "(r-1)^2 / 4r + inf_p K_p (2 l_1)^(2-p) D^((2-p)/2)";
constexpr entry registry[] = {
    {"global-uniform", "one norm for all workers, evenly spaced levels, codes added as integers",
     "Xin et al. (Global-QSGD)", "min(c^2 D / 4 s^2, c sqrt(D) / s)",
     "the bound is printed as D / s^2, four times looser, and without c; the number of non-zero codes as at "
     "most s^2 + sqrt(D), which equal values exceed: s sqrt(D) holds. The norm is printed with p and q "
     "exchanged.",
     global_uniform_parameters, global_uniform_examples, make_global_uniform},
    {"global-exponential", "one norm for all workers, powers of two, added with rounding",
     "Xin et al. (Global-QSGD)", "1/8 + min(c sqrt(D) 2^(1-s), c^2 D 4^(1-s)), and the additions",
     "the levels are printed as l_i = 1 / 2^(s-i), counted downwards from l_0 = 1; 2^-(k-1) is meant. The "
     "draw of Algorithm 2 is printed with a ceiling, which halves its probabilities. A growth of the second "
     "moment by (9/8)^depth is false where terms cancel. Dividing by 2n is headroom enough for balanced "
     "trees over a power of two only. The number of non-zero codes, printed as at most 4^(s-1) + sqrt(D), is "
     "at most 2^(s-1) sqrt(D).",
     global_exponential_parameters, global_exponential_examples, make_global_exponential},
    {"qsgd", "own norm of each bucket, evenly spaced levels", "Alistarh et al. 2017 (QSGD)",
     "min(c^2 D / 4 s^2, c sqrt(D) / s)", "", qsgd_parameters, qsgd_examples, make_qsgd},
    {"terngrad", "-1, 0 or 1 times the largest magnitude", "Wen et al. 2017 (TernGrad)",
     "min(D / 4, sqrt(D))", "", terngrad_parameters, terngrad_examples, make_terngrad},
    {"nuqsgd", "own Euclidean norm of each bucket, powers of two", "Ramezani-Kebrya et al. 2021 (NUQSGD)",
     "1/8 + min(sqrt(D) 2^(1-s), D 4^(1-s))", "", nuqsgd_parameters, nuqsgd_examples, make_nuqsgd},
    {"natural-compression", "each value becomes one of the two powers of two next to it",
     "Horvath et al. 2019 (Natural Compression)", "1/8", "", natural_compression_parameters,
     natural_compression_examples, make_natural_compression},
    {"natural-dithering", "own norm of each vector or bucket, powers of two of it",
     "Horvath et al. 2019 (Natural Compression)", "1/8 + min(c sqrt(D) 2^(1-s), c^2 D 4^(1-s))", "",
     natural_dithering_parameters, natural_dithering_examples, make_natural_dithering},
    {"qsdp", "nearest point of a grid that is shifted at random, once a bucket",
     "Markov 2024 (thesis), chapter 5",
     "D / 12 s^2 (shift-back), else min(D / 4 s^2, sqrt(D) / s); min-max: the same of the centered vector",
     "Lemma 5 prints the variance delta^2 sum {v/delta} (1 - {v/delta}); that of Definition 1, which shifts "
     "back, is delta^2 / 12 a value, and the printed one belongs to shift-back=no.",
     qsdp_parameters, qsdp_examples, make_qsdp},
    {"qsdp-grid", "the same with an absolute step", "Markov 2024 (thesis), chapter 5",
     "delta^2 / 12 a value (shift-back)", "", qsdp_grid_parameters, qsdp_grid_examples, make_qsdp_grid},
    {"cgx", "largest magnitude of short buckets, evenly spaced levels", "Markov 2024 (thesis), chapter 3",
     "D / 4 s^2; none for nearest; min-max: range^2 / 4 (2^bits - 1)^2 a value", "", cgx_parameters,
     cgx_examples, make_cgx},
    {"alq", "own norm of each bucket, levels that were learned", "Faghri et al. 2020 (ALQ, AMQ)",
     "(r-1)^2 / 4r + inf_p K_p (c l_1)^(2-p) D^((2-p)/2)", "", alq_parameters, alq_examples, make_alq},
    {"amq", "own norm of each bucket, levels +-p^j without zero", "Faghri et al. 2020 (ALQ, AMQ)",
     "(1/p - 1)^2 p / 4 + c^2 D l_1^2",
     "the derivative by p is printed with a factor 1/2 that does not belong (with the distribution taken "
     "over magnitudes).",
     amq_parameters, amq_examples, make_amq},
    {"mxfp4", "FP4 (E2M1) under a power of two that 32 values share, rounded up so that nothing is cut off",
     mx_source, mx_bound, "", mxfp4_parameters, mxfp4_examples, make_mxfp4},
    {"mxfp6", "the same with FP6 (E2M3, E3M2)", mx_source, mx_bound, "", mxfp6_parameters, mxfp6_examples,
     make_mxfp6},
    {"mxfp8", "the same with FP8 (E4M3, E5M2)", mx_source, mx_bound, "", mxfp8_parameters, mxfp8_examples,
     make_mxfp8},
    {"float32", "no quantization; what to compare with", "", "0", "", {}, float32_examples, make_float32},
};

std::string names() {
  std::string all;
  for (entry const& each : registry) all.append(all.empty() ? "" : ", ").append(each.name);
  return all;
}

}  // namespace

std::span<entry const> operators() { return registry; }

globalq::any_quantizer operator_of(named_operator const& asked) {
  globalq::any_quantizer op = make(asked.words);
  if (asked.centered) op = globalq::centered{op};
  return op;
}

named_operator read_operator(std::string_view text) {
  auto const found = std::find_if(std::begin(registry), std::end(registry),
                                  [&](entry const& e) { return e.name == name_in(text); });
  if (found == std::end(registry))
    refuse("operator", text, "is not an operator", "give help for a list, or one of " + names());
  arguments const with = arguments::read(text, found->parameters);
  try {
    named_operator chosen = found->make(with);
    if (with.has("tail")) chosen.words.tail = tails[with.one_of("tail", tails)];
    static_cast<void>(make(chosen.words));  // validates the parts now
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
  std::string text =
      "Operators: NAME[:VALUE][,parameter=value].., where VALUE is that of the first parameter.\n"
      "As in qsgd:4,bucket=512. The schedule is that of the operator unless one is given.\n";
  for (entry const& each : registry) {
    text.append("\n").append(each.name).append("\n    ").append(each.title).append("\n");
    if (!each.source.empty()) text.append("    ").append(each.source).append("\n");
    text.append("    schedule ").append(each.make({each.name, each.parameters}).schedule);
    text.append("; bound on the variance of one encoding: ").append(each.bound).append("\n");
    for (parameter const& p : each.parameters) {
      std::string line = "    " + std::string{p.name} + "=" + std::string{p.usual};
      line.resize(std::max<std::size_t>(line.size() + 2, 24), ' ');
      text.append(line).append(p.meaning).append(": ").append(p.allowed).append("\n");
    }
  }
  return text;
}

}  // namespace GLOBALQ_ABI::named
