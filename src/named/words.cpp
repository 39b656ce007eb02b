// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief named: reads and writes the words of an operator.

#include "words.hpp"

#include <globalq/named/text.hpp>

#include <globalq/schedule/any.hpp>

#include <algorithm>

namespace GLOBALQ_ABI::named {
namespace {

[[noreturn]] void refuse_value(std::string_view whole, std::string_view name, std::string_view value,
                               std::string_view allowed) {
  refuse("operator", whole, "sets " + std::string{name} + " to \"" + std::string{value} + "\"",
         "use " + std::string{allowed});
}

constexpr parameter norm_word{
    "norm", "linf",
    "linf, l:Q,P, local:Q, power-of-two:linf, power-of-two:local:Q, shared-exponent, two-level or "
    "fixed:SCALE[:ERROR[:TYPE]]",
    "what the values of a bucket are divided by: a norm over all workers, local to each, or fixed; Q and P "
    "are 1 to 64 or inf; with ERROR, levels are such that no value of the mean is wrong by more"};
constexpr parameter bucket_word{"bucket", "0", "0 to 2^48",
                                "number of consecutive values that share a scale; 0: the whole vector"};
constexpr parameter levels_word{
    "levels", "uniform",
    "none, bfloat16, float16, uniform[:S], exponential[:S][:BASE], table:0,..,1, symmetric:L1,..,1, e2m1, "
    "e2m3, e3m2, e4m3 or e5m2",
    "what values are rounded to; S levels above zero, by default as many as fit; a BASE has a decimal point"};
constexpr parameter rounding_word{
    "rounding", "stochastic",
    "stochastic, correlated, nearest, random-shift or correlated-shift, the last two also with -unshifted",
    "nearest is biased and needs feedback; the others are unbiased, and errors of correlated ones partly "
    "cancel between workers"};
constexpr parameter wire_word{"wire", "int8",
                              "int8, int16, int32, packed:B, elias, huffman, huffman:16 or sparse",
                              "how codes are stored; B is 1 to 8 bits"};
constexpr parameter code_word{"code", "fixed", "fixed, elias, huffman or sparse",
                              "a code of variable length for the levels that fit the wire; fixed: none"};
constexpr parameter reduce_word{"reduce", "auto", "auto, sum, exponential or requantize",
                                "how codes of several workers are added"};
constexpr parameter tail_word{
    "tail", "own", "own or float32",
    "a last bucket that is shorter than the others is quantized with its own scale, or sent as float32"};
constexpr parameter rotate_word{"rotate", "0", "0, or a power of two from 2 to 2^20",
                                "number of values of the blocks that are rotated at random first; 0: none"};
constexpr parameter eden_word{"eden", "no", "yes or no; alone it means yes",
                              "each worker rotates its buckets by signs of its own and rescales them", "yes"};
constexpr parameter centered_word{"centered", "no", "yes or no; alone it means yes",
                                  "subtract the midpoint of each bucket and divide by half its range", "yes"};
constexpr parameter second_word{
    "second", "0", "0, 2 to 8 bits, or a wire",
    "for the means that schedule sra sends in its second half; 0: the wire of own values"};
constexpr parameter feedback_word{
    "feedback", "0", "0, or a number above 0 and at most 1; alone it means 1",
    "adds to each vector what earlier frames of it left out, times this number (decay), and rounds to "
    "nearest unless rounding is set; 0: does not",
    "1"};
constexpr parameter clip_word{
    "clip", "0", "a number above 0, such as 2.5, or 0",
    "clip each value at this many standard deviations of its bucket first, which biases the mean; 0: no "
    "clipping"};
constexpr parameter learn_word{
    "learn", "none", "none, levels or multiplier",
    "learn during training: the levels of a table, or the ratio of symmetric levels"};
constexpr parameter normalized_word{
    "normalized", "no", "yes or no; alone it means yes",
    "learn with equal weights for all values, not by the norm of their bucket", "yes"};
constexpr parameter schedule_word{"schedule", "auto",
                                  "ring, tree, sra, allgather, native or hierarchical:NODE",
                                  "the schedule of calls that set none"};

template <std::string description::*Member, parameter const& Says>
constexpr word text_word{
    Says, [](named_operator& op, std::string_view, std::string_view value) { op.words.*Member = value; },
    [](named_operator const& op) { return op.words.*Member; }};

template <std::uint64_t description::*Member, parameter const& Says>
constexpr word number_word{Says,
                           [](named_operator& op, std::string_view whole, std::string_view value) {
                             if (!is_number(value, op.words.*Member))
                               refuse_value(whole, Says.name, value, Says.allowed);
                           },
                           [](named_operator const& op) { return std::to_string(op.words.*Member); }};

bool yes_or_no(std::string_view whole, parameter const& says, std::string_view value) {
  if (value != "yes" && value != "no") refuse_value(whole, says.name, value, says.allowed);
  return value == "yes";
}
std::string answer(bool yes) { return yes ? "yes" : "no"; }

template <bool description::*Member, parameter const& Says>
constexpr word flag_word{Says,
                         [](named_operator& op, std::string_view whole, std::string_view value) {
                           op.words.*Member = yes_or_no(whole, Says, value);
                         },
                         [](named_operator const& op) { return answer(op.words.*Member); }};

double real(std::string_view whole, parameter const& says, std::string_view value, double most) {
  double number = 0;
  if (!is_number(value, number) || !(number >= 0 && number <= most) ||
      (number > 0 && static_cast<float>(number) == 0))
    refuse_value(whole, says.name, value, says.allowed);
  return number;
}

void set_code(named_operator& op, std::string_view whole, std::string_view value) {
  if (value != "elias" && value != "huffman" && value != "sparse") {
    if (value != "fixed") refuse_value(whole, "code", value, code_word.allowed);
    return;
  }
  if (op.words.wire == "int16" || op.words.wire == "int32")
    refuse("operator", whole, "codes " + op.words.wire + " with a variable length",
           "use at most 8 bits, or code=fixed");
  std::string& levels = op.words.levels;
  if (levels.empty()) levels = "uniform";
  bool const of_error =
      op.words.norm.starts_with("fixed:") && op.words.norm.find(':', 6) != std::string::npos;
  if ((levels == "uniform" || levels == "exponential") && !of_error)
    levels += ":" + std::to_string(levels_that_fit(op.words.wire));
  op.words.wire = value;
}

constexpr std::string_view learned[] = {"none", "levels", "multiplier"};

constexpr std::string_view always_written[] = {"norm", "levels", "rounding",
                                               "wire"};  // unless levels are floats

// in the order in which they are written
constexpr word all_words[] = {
    text_word<&description::norm, norm_word>,
    number_word<&description::bucket, bucket_word>,
    {levels_word,
     [](named_operator& op, std::string_view, std::string_view value) { op.words.levels = value; },
     [](named_operator const& op) { return op.words.levels.empty() ? "uniform" : op.words.levels; }},
    text_word<&description::rounding, rounding_word>,
    {wire_word,
     [](named_operator& op, std::string_view whole, std::string_view value) {
       if (value == "elias" || value == "huffman" || value == "sparse") return set_code(op, whole, value);
       op.words.wire = value;
     },
     [](named_operator const& op) { return op.words.wire; }},
    {code_word, set_code, [](named_operator const&) { return std::string{"fixed"}; }},
    text_word<&description::reduce, reduce_word>,
    text_word<&description::tail, tail_word>,
    number_word<&description::rotate, rotate_word>,
    flag_word<&description::eden, eden_word>,
    flag_word<&description::centered, centered_word>,
    {second_word,
     [](named_operator& op, std::string_view whole, std::string_view value) {
       std::uint32_t bits = 0;
       if (value == "0") return op.words.second.clear();
       if (value.empty()) refuse_value(whole, "second", value, second_word.allowed);
       if (is_number(value, bits)) {
         if (bits < 2 || bits > 8) refuse_value(whole, "second", value, second_word.allowed);
         op.words.second = wire_of_bits(bits);
       } else {
         op.words.second = value;
       }
     },
     [](named_operator const& op) { return op.words.second.empty() ? "0" : op.words.second; }},
    {feedback_word,
     [](named_operator& op, std::string_view whole, std::string_view value) {
       op.words.feedback = real(whole, feedback_word, value, 1);
     },
     [](named_operator const& op) { return shortest(op.words.feedback); }},
    {clip_word,
     [](named_operator& op, std::string_view whole, std::string_view value) {
       op.clip = real(whole, clip_word, value, 1e300);
     },
     [](named_operator const& op) { return shortest(op.clip); }},
    {learn_word,
     [](named_operator& op, std::string_view whole, std::string_view value) {
       auto const found = std::find(std::begin(learned), std::end(learned), value);
       if (found == std::end(learned)) refuse_value(whole, "learn", value, learn_word.allowed);
       op.learns.what = static_cast<learning::way>(found - std::begin(learned));
     },
     [](named_operator const& op) { return std::string{learned[static_cast<std::size_t>(op.learns.what)]}; }},
    {normalized_word,
     [](named_operator& op, std::string_view whole, std::string_view value) {
       op.learns.normalized = yes_or_no(whole, normalized_word, value);
     },
     [](named_operator const& op) { return answer(op.learns.normalized); }},
    {schedule_word,
     [](named_operator& op, std::string_view, std::string_view value) {
       if (value != "auto") static_cast<void>(globalq::schedule::any{value});  // throws if there is none
       op.schedule = value == "auto" ? "" : value;
     },
     [](named_operator const& op) { return op.schedule; }},
};

word const* find(std::string_view name) {
  auto const found = std::find_if(std::begin(all_words), std::end(all_words),
                                  [&](word const& each) { return each.says.name == name; });
  return found == std::end(all_words) ? nullptr : found;
}

}  // namespace

std::string wire_of_bits(std::uint64_t bits) { return bits == 8 ? "int8" : "packed:" + std::to_string(bits); }

std::uint32_t levels_that_fit(std::string_view wire) {
  std::uint32_t bits = 8;
  if (wire.starts_with("packed:"))
    static_cast<void>(is_number(wire.substr(7), bits));  // make() refuses others
  return bits < 2 ? 1 : bits > 8 ? 127 : (1U << (bits - 1)) - 1;
}

std::vector<parameter> words_of_operators() {
  std::vector<parameter> all;
  for (word const& each : all_words) all.push_back(each.says);
  return all;
}

std::string names_of_words() {
  std::string all;
  for (word const& each : all_words) all.append(all.empty() ? "" : ", ").append(each.says.name);
  return all;
}

std::string_view leading_name(std::string_view text) {
  std::size_t const end = std::min(text.find_first_of(":,= "), text.size());
  return end < text.size() && text[end] == '=' ? std::string_view{} : text.substr(0, end);
}

bool divided::sets(std::string_view of) const {
  return std::any_of(words.begin(), words.end(),
                     [&](auto const& each) { return each.first->says.name == of; });
}

divided divide(std::string_view text, std::span<parameter const> parameters) {
  if (text.starts_with(' ') || text.ends_with(' '))
    refuse("operator", text, "begins or ends with a space", "leave the space out");
  divided found;
  bool const has_name = !leading_name(text).empty();
  bool first = has_name;
  for (std::string_view const part : split(text, ' ')) {
    if (part.empty()) continue;   // several spaces
    std::string* list = nullptr;  // of norm= or levels=, which commas continue
    for (std::string_view const piece : split(part, ',')) {
      std::size_t const equals = std::min(piece.find('='), piece.size());
      std::string_view const name = piece.substr(0, equals);
      bool const alone = equals == piece.size();
      auto const own = std::find_if(parameters.begin(), parameters.end(), [&](parameter const& each) {
        return each.name == name && (!alone || !each.bare.empty());
      });
      word const* const known = find(name);
      if (first) {
        found.name = piece;
      } else if (own == parameters.end() && known != nullptr && (!alone || !known->says.bare.empty())) {
        if (found.sets(name)) refuse("operator", text, "sets " + std::string{name} + " twice", "set it once");
        found.words.emplace_back(known, alone ? known->says.bare : piece.substr(equals + 1));
        bool const lists = name == "norm" || name == "levels";
        list = lists ? &found.words.back().second : nullptr;
      } else if (list != nullptr && alone) {
        list->append(",").append(piece);
      } else if (has_name) {
        found.name.append(",").append(piece);
      } else {
        refuse("operator", text, "contains \"" + std::string{piece} + "\", which is no word of an operator",
               "use NAME[:VALUE], and word=value of " + names_of_words());
      }
      first = false;
    }
  }
  // code depends on the levels and the wire, so it is read last
  std::ranges::stable_partition(found.words,
                                [](auto const& each) { return each.first->says.name != "code"; });
  return found;
}

std::string words_of(named_operator const& op) {
  named_operator const usual;
  std::string text;
  for (word const& each : all_words) {
    std::string const value = each.get(op);
    bool const always = !are_floats(op.words.levels) &&
                        std::ranges::find(always_written, each.says.name) != std::end(always_written);
    if (value == each.get(usual) && !always) continue;
    text.append(text.empty() ? "" : " ").append(each.says.name).append("=").append(value);
  }
  return text;
}

}  // namespace GLOBALQ_ABI::named
