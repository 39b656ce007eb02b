// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: the table of methods, and parsing of their names.

#include "exchange.hpp"

#include <globalq/schedule/any.hpp>

#include <algorithm>
#include <array>

namespace evidence {
namespace {

using gq::named::parameter;

constexpr parameter feedback{"feedback", "yes", "yes or no", "error feedback, as in the paper"};
constexpr parameter no_feedback{"feedback", "no", "yes or no", "error feedback; not in the paper"};
constexpr parameter percent{"percent", "1", "a number above 0, at most 100", "percent of the values to send"};

constexpr parameter every{"every", "0", "a number of steps; 0: an eighth of the training",
                          "steps between choices of bits"};

constexpr parameter adaptive_cgx_parameters[] = {
    {"rule", "kmeans", "kmeans, linear or bayes", "rule that chooses bits and buckets"}, every};
constexpr parameter lgreco_parameters[] = {
    {"bits", "4", "2 to 4", "bits of the reference that sets the error; layers get half to twice as many"},
    {"bucket", "128", "1 to 1048576", "values that share a scale"},
    every};
constexpr parameter top_k_parameters[] = {
    percent, {"of", "layer", "layer or whole", "scope from which the largest values are chosen"}, feedback};
constexpr parameter layer_rule{
    "rule", "lgreco", "lgreco, accordion or both",
    "L-GreCo at the reference's error; Accordion, half or twice the reference; L-GreCo at Accordion's error"};
constexpr parameter adaptive_top_k_parameters[] = {
    {"percent", "1", "a number above 0, at most 25", "percent of the reference that sets the error"},
    layer_rule,
    every};
constexpr parameter rand_k_parameters[] = {percent, feedback};
constexpr parameter power_sgd_parameters[] = {{"rank", "4", "1 to 256", "columns of P and Q"}, feedback};
constexpr parameter adaptive_power_sgd_parameters[] = {
    {"rank", "4", "2 to 64", "rank of the reference that sets the error"}, layer_rule, every};
constexpr parameter sign_sgd_parameters[] = {
    {"scale", "layers", "layers or one", "factor of signs: the mean magnitude of the layer, or one"},
    no_feedback};
constexpr parameter one_bit_parameters[] = {
    {"bucket", "512", "0 to 1048576", "values that share two means; 0: a row"}, feedback};
constexpr parameter int_sgd_parameters[] = {{"bits", "8", "8 or 32", "bits of an integer"}};
constexpr parameter thc_parameters[] = {{"bits", "4", "2, 4 or 8", "bits of an index"}, feedback};
constexpr parameter send_first_parameters[] = {{"gamma", "8", "1 or more", "sends one of gamma values"}};

constexpr std::string_view operator_family = "operator", system_family = "system",
                           other_family = "comparator";

constexpr kind table[] = {
    {"adaptive-cgx", system_family,
     "bits and bucket of each layer by its size and gradient, at the error of 4 bits and buckets of 128",
     "Markov 2024 (thesis), chapter 3 (CGX, Algorithm 3.1)", adaptive_cgx_parameters, true,
     make_adaptive_cgx},
    {"lgreco", system_family,
     "bits of each layer by dynamic programming: fewest bytes at the error of uniform bits",
     "Markov 2024 (thesis), chapter 4 (L-GreCo)", lgreco_parameters, true, make_lgreco},
    {"adaptive-top-k", system_family, "density of each layer's largest values, with error feedback",
     "Markov 2024 (thesis), chapter 4 (L-GreCo); Agarwal et al. 2021 (Accordion)", adaptive_top_k_parameters,
     true, make_adaptive_top_k},
    {"adaptive-power-sgd", system_family, "rank of each layer's thin matrices, with error feedback",
     "Markov 2024 (thesis), chapter 4 (L-GreCo); Agarwal et al. 2021 (Accordion)",
     adaptive_power_sgd_parameters, true, make_adaptive_power_sgd},
    {"top-k", other_family, "the largest values and their places", "Aji and Heafield 2017; Stich et al. 2018",
     top_k_parameters, true, make_top_k},
    {"rand-k", other_family, "values at places drawn at random, the same for all workers",
     "Stich et al. 2018", rand_k_parameters, true, make_rand_k},
    {"power-sgd", other_family, "matrices as products of two thin ones", "Vogels et al. 2019",
     power_sgd_parameters, true, make_power_sgd},
    {"sign-sgd", other_family, "the sign of the majority of workers", "Bernstein et al. 2019",
     sign_sgd_parameters, true, make_sign_sgd},
    {"one-bit", other_family, "signs and two means a bucket", "Seide et al. 2014", one_bit_parameters, true,
     make_one_bit},
    {"int-sgd", other_family, "integers with a scale that all workers know in advance",
     "Mishchenko et al. 2021", int_sgd_parameters, true, make_int_sgd},
    {"thc", other_family, "rotated values, clipped and rounded to a table, as indices", "Li et al. 2024",
     thc_parameters, true, make_thc},
    {"send-first", other_family, "the first values of each layer: an upper bound on the speed of any method",
     "Markov 2024 (thesis), chapters 3 and C.1", send_first_parameters, false, make_send_first},
};

[[noreturn]] void refuse(std::string const& text, std::string const& what, std::string const& remedy) {
  throw gq::configuration_error("globalq: evidence: method \"" + text + "\" " + what + "; " + remedy);
}

/// The parameters of a name, after its first colon or comma.
gq::named::arguments read(std::string const& text, kind const& of) {
  gq::named::arguments with{text, of.parameters};
  std::size_t const end = std::min(text.find_first_of(":,"), text.size());
  for (std::size_t at = end; at < text.size();) {
    std::size_t const next = std::min(text.find(',', at + 1), text.size());
    std::string const part = text.substr(at + 1, next - at - 1);
    std::size_t const equals = part.find('=');
    if (equals != std::string::npos)
      with.set(part.substr(0, equals), part.substr(equals + 1));
    else if (at == end && text[end] == ':')
      with.set(of.parameters[0].name, part);
    else
      refuse(text, "holds \"" + part + "\", which is no parameter=value",
             "write NAME[:VALUE][,parameter=value].., where VALUE is that of the first parameter");
    at = next;
  }
  return with;
}

}  // namespace

std::span<kind const> kinds() { return table; }

method::method(std::string text) : text_(std::move(text)), operator_(text_) {
  std::string const layered = "layers:";
  if (operator_.starts_with(layered)) {
    by_layers_ = true;
    operator_.erase(0, layered.size());
  }
  if (std::size_t const at = operator_.find('@'); at != std::string::npos) {
    schedule_ = operator_.substr(at + 1);
    static_cast<void>(gq::schedule::any{schedule_});
    operator_.erase(at);
  }
  std::string const name = operator_.substr(0, operator_.find_first_of(":,"));
  auto const found =
      std::find_if(std::begin(table), std::end(table), [&](kind const& k) { return k.name == name; });
  if (found != std::end(table)) {
    if (by_layers_ || !schedule_.empty())
      refuse(text_, "gives a schedule or layers: to a method that has its own", "write " + operator_);
    kind_ = &*found;
    family_ = found->family;
    source_ = found->source;
    trains_ = found->trains;
    static_cast<void>(read(operator_, *kind_));
    return;
  }
  auto const operators = gq::named::operators();
  auto const known = std::find_if(operators.begin(), operators.end(),
                                  [&](gq::named::entry const& e) { return e.name == name; });
  if (known == operators.end())
    refuse(text_, "is not known", "run globalq_evidence list; operators are those of globalq/named");
  family_ = by_layers_ ? system_family : operator_family;
  source_ = known->source;
  gq::named::named_operator const asked = gq::named::read_operator(operator_);
  if (schedule_.empty()) schedule_ = asked.schedule;
  if (by_layers_ && !asked.only_quantizes()) refuse(text_, "does more than quantize", "leave out layers:");
}

std::unique_ptr<exchange> method::make(setting const& with) const {
  if (kind_ != nullptr) return kind_->make(with, read(operator_, *kind_));
  gq::named::named_operator const asked = gq::named::read_operator(operator_);
  return by_layers_ ? make_layered(with, asked, schedule_) : make_operator(with, asked, schedule_);
}

std::uint64_t every_of(setting const& with, gq::named::arguments const& how) {
  std::uint64_t const every = how.number("every", 0, 1U << 30);
  return every != 0 ? every : std::max<std::uint64_t>(with.steps / 8, 5);
}

std::vector<std::string> usual_methods() {
  return {"float32",
          "float32@native",
          "global-uniform",
          "global-uniform:4,bucket=128",
          "global-exponential",
          "global-exponential:4",
          "qsgd:8",
          "qsgd:4",
          "qsgd:4,code=huffman",
          "terngrad:2.5,bucket=512",
          "nuqsgd:4",
          "natural-compression",
          "natural-dithering:4",
          "qsdp",
          "qsdp:4",
          "cgx:4",
          "layers:cgx:4",
          "adaptive-cgx",
          "adaptive-cgx,rule=linear",
          "adaptive-cgx,rule=bayes",
          "lgreco:4",
          "alq:3",
          "amq:3",
          "mxfp4",
          "mxfp6",
          "mxfp8",
          "top-k:1",
          "top-k:1,of=whole",
          "adaptive-top-k:1",
          "rand-k:10",
          "power-sgd:4",
          "adaptive-power-sgd:4",
          "adaptive-power-sgd:4,rule=accordion",
          "adaptive-power-sgd:4,rule=both",
          "sign-sgd",
          "one-bit",
          "int-sgd",
          "thc",
          "send-first:8"};
}

std::vector<std::string> quick_methods() {
  return {"float32",      "float32@native", "global-uniform", "global-exponential", "qsgd:4",
          "layers:cgx:4", "lgreco:4",       "top-k:1",        "power-sgd:4",        "send-first:8"};
}

}  // namespace evidence
