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

constexpr parameter feedback{
    "feedback", "yes", "yes or no",
    "yes: add what a step did not send to the vector of the next step (error feedback), as in the paper; no: "
    "discard it"};
constexpr parameter no_feedback{"feedback", "no", "yes or no",
                                "yes: add what a step did not send to the vector of the next step (error "
                                "feedback); no: discard it, as in the paper"};
constexpr parameter percent{"percent", "1", "a number above 0 and at most 100",
                            "percentage of the values that is sent"};

constexpr parameter every{"every", "0", "0 to 1073741824",
                          "number of steps between two choices; 0: an eighth of the training, at least 5"};

constexpr parameter range{"range", "2", "a number above 1",
                          "L-GreCo chooses from the reference divided by this to the reference times this"};

constexpr parameter adaptive_cgx_parameters[] = {
    {"rule", "kmeans", "kmeans, linear or bayes", "rule that chooses the bits and the bucket of each layer"},
    every};
constexpr parameter lgreco_parameters[] = {
    {"bits", "4", "2 to 4", "bits per value of the reference, whose error is the budget"},
    {"bucket", "128", "1 to 1048576", "number of consecutive values that share a scale"},
    range,
    every};
constexpr parameter top_k_parameters[] = {
    percent,
    {"of", "layer", "layer or whole",
     "layer: send the largest values of each layer; whole: those of the whole vector"},
    feedback};
constexpr parameter layer_rule{
    "rule", "lgreco", "lgreco, accordion or both",
    "lgreco: L-GreCo chooses with the error of the reference as its budget; accordion: Accordion chooses "
    "half of the reference or twice as much; both: L-GreCo chooses with the error of Accordion's choice as "
    "its budget"};
constexpr parameter adaptive_top_k_parameters[] = {
    {"percent", "1", "a number above 0 and at most 25", "percentage of the values that the reference sends"},
    layer_rule,
    range,
    every};
constexpr parameter rand_k_parameters[] = {percent, feedback};
constexpr parameter power_sgd_parameters[] = {
    {"rank", "4", "1 to 256", "number of columns of each of the two matrices that represent a layer"},
    feedback};
constexpr parameter adaptive_power_sgd_parameters[] = {
    {"rank", "4", "2 to 64", "rank of the reference"}, layer_rule, range, every};
constexpr parameter sign_sgd_parameters[] = {
    {"scale", "layers", "layers or one",
     "factor of the signs; layers: the mean magnitude of each layer; one: 1, as in the paper"},
    no_feedback};
constexpr parameter one_bit_parameters[] = {
    {"bucket", "512", "0 to 1048576", "number of consecutive values that share two means; 0: those of a row"},
    feedback};
constexpr parameter int_sgd_parameters[] = {{"bits", "8", "8 or 32", "bits per integer"}};
constexpr parameter thc_parameters[] = {{"bits", "4", "2, 4 or 8", "bits per index into the table"},
                                        feedback};
constexpr parameter send_first_parameters[] = {
    {"gamma", "8", "a number of at least 1", "ratio of the number of values to the number that is sent"}};

constexpr std::string_view operator_family = "operator", system_family = "system",
                           other_family = "comparator";

constexpr kind table[] = {
    {"adaptive-cgx", system_family,
     "Chooses the bits and the bucket of each layer from its size and gradients. The error budget is the "
     "error of 4 bits and buckets of 128",
     "Markov 2024 (thesis), chapter 3 (CGX, Algorithm 3.1)", adaptive_cgx_parameters, true,
     make_adaptive_cgx},
    {"lgreco", system_family,
     "Chooses the bits of each layer by dynamic programming, so that the bytes are least within the error of "
     "a uniform reference",
     "Markov 2024 (thesis), chapter 4 (L-GreCo)", lgreco_parameters, true, make_lgreco},
    {"adaptive-top-k", system_family,
     "Like top-k, with a density for each layer that is chosen during training; uses error feedback",
     "Markov 2024 (thesis), chapter 4 (L-GreCo); Agarwal et al. 2021 (Accordion)", adaptive_top_k_parameters,
     true, make_adaptive_top_k},
    {"adaptive-power-sgd", system_family,
     "Like power-sgd, with a rank for each layer that is chosen during training; uses error feedback",
     "Markov 2024 (thesis), chapter 4 (L-GreCo); Agarwal et al. 2021 (Accordion)",
     adaptive_power_sgd_parameters, true, make_adaptive_power_sgd},
    {"top-k", other_family, "Sends the values of largest magnitude with their positions",
     "Aji and Heafield 2017; Stich et al. 2018", top_k_parameters, true, make_top_k},
    {"rand-k", other_family, "Sends values at random positions, which are the same on all workers",
     "Stich et al. 2018", rand_k_parameters, true, make_rand_k},
    {"power-sgd", other_family,
     "Sends each matrix as the product of two thin matrices, and vectors as float32", "Vogels et al. 2019",
     power_sgd_parameters, true, make_power_sgd},
    {"sign-sgd", other_family,
     "Sends the sign of each value; the mean has the sign of the majority of workers",
     "Bernstein et al. 2019", sign_sgd_parameters, true, make_sign_sgd},
    {"one-bit", other_family, "Sends the sign of each value and two means for each bucket",
     "Seide et al. 2014", one_bit_parameters, true, make_one_bit},
    {"int-sgd", other_family,
     "Multiplies values by a scale that all workers know in advance, rounds them at random to integers, and "
     "adds the integers",
     "Mishchenko et al. 2021", int_sgd_parameters, true, make_int_sgd},
    {"thc", other_family,
     "Rotates blocks of values, clips them, rounds them at random to the values of a table, and sends their "
     "indices",
     "Li et al. 2024", thc_parameters, true, make_thc},
    {"send-first", other_family,
     "Sends the first values of each layer. It is no usable method, but bounds the speed of all methods from "
     "above",
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
      refuse(text, "contains \"" + part + "\", which is not parameter=value",
             "write NAME[:VALUE][,parameter=value].., where VALUE sets the first parameter");
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
      refuse(text_, "sets a schedule or layers:, but this method has its own", "write " + operator_);
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
    refuse(text_, "is not known",
           "run globalq_evidence list for the methods; operators are those of globalq/named");
  family_ = by_layers_ ? system_family : operator_family;
  source_ = known->source;
  gq::named::named_operator const asked = gq::named::read_operator(operator_);
  if (schedule_.empty()) schedule_ = asked.schedule;
  if (by_layers_ && !asked.only_quantizes())
    refuse(text_, "applies an operator that clips or learns levels to each layer", "leave out layers:");
}

std::unique_ptr<exchange> method::make(setting const& with) const {
  if (kind_ != nullptr) return kind_->make(with, read(operator_, *kind_));
  gq::named::named_operator const asked = gq::named::read_operator(operator_);
  return by_layers_ ? make_layered(with, asked, schedule_) : make_operator(with, asked, schedule_);
}

std::unique_ptr<overlapped> method::make_overlapped(setting const& with, std::uint64_t groups,
                                                    double share) const {
  if (kind_ != nullptr) return nullptr;
  gq::named::named_operator const asked = gq::named::read_operator(operator_);
  if (!asked.only_quantizes()) return nullptr;
  return make_layered_overlapped(with, asked, schedule_, groups, share);
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
