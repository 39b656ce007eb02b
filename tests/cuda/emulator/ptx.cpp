// SPDX-License-Identifier: Apache-2.0

#include "ptx.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace emulator {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The text with comments made into spaces, so that lines keep their numbers.
std::string without_comments(std::string text) {
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '/' || (text[i + 1] != '/' && text[i + 1] != '*')) continue;
    bool const line = text[i + 1] == '/';
    std::size_t const found = line ? text.find('\n', i) : text.find("*/", i + 2);
    std::size_t const end = found == std::string::npos ? text.size() : found + (line ? 0 : 2);
    std::replace_if(
        text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(end),
        [](char c) { return c != '\n'; }, ' ');
    i = end;
  }
  return text;
}

/// The place after the bracket that closes the one at `at`.
std::size_t closing(std::string_view text, std::size_t at) {
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '(') ++depth;
    if ((text[i] == '}' || text[i] == ')') && --depth == 0) return i + 1;
  }
  throw fault("PTX: a bracket is not closed: " + std::string(text.substr(at, 60)));
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < text.size();) {
    while (i < text.size() && is_space(text[i])) ++i;
    std::size_t const begin = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
  }
  return words;
}

/// Parameters in parentheses, with their offsets' alignments.
std::vector<variable> parameters_of(std::string_view list) {
  std::vector<variable> parameters;
  for (auto part : split_arguments(list)) {
    auto const at = part.find(".param");
    if (at == std::string_view::npos) continue;
    std::string rest(part.substr(at + 6));
    if (auto const pointer = rest.find(".ptr"); pointer != std::string::npos) {
      // `.u64 .ptr .global .align 8 name`: the alignment is that of what is pointed to.
      auto const words = words_of(rest);
      rest = std::string(words.front()) + " " + std::string(words.back());
    }
    parameters.push_back(variable_of(rest));
  }
  return parameters;
}

}  // namespace

value_type type_of(std::string_view word) {
  if (word == "pred") return {'p', 1};
  if (word == "bf16") return {'h', 2};
  if (word.size() < 2 || word.size() > 3 || std::string_view("busf").find(word[0]) == std::string_view::npos)
    return {};
  std::string_view const bits = word.substr(1);
  for (int bytes : {1, 2, 4, 8}) {
    if (bits == std::to_string(8 * bytes)) return {word[0], static_cast<std::uint8_t>(bytes)};
  }
  return {};
}

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split_arguments(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const c = text[i];
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c != ',' || depth != 0) continue;
    parts.push_back(stripped(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  if (auto const last = stripped(text.substr(std::min(begin, text.size()))); !last.empty())
    parts.push_back(last);
  return parts;
}

bool is_number(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && is_digit(text[0]);
}

std::uint64_t bits_of_number(std::string_view text) {
  std::string_view const whole = text;
  bool const negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  int base = 10;
  if (text.size() > 2 && text[0] == '0' &&
      std::string_view("xXfFdD").find(text[1]) != std::string_view::npos) {
    base = 16;
    text.remove_prefix(2);
  }
  while (!text.empty() && (text.back() == 'U' || text.back() == 'u')) text.remove_suffix(1);
  std::uint64_t bits = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, base);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw fault("PTX: not a number: " + std::string(whole));
  }
  return negative ? 0 - bits : bits;
}

variable variable_of(std::string_view text) {
  variable v;
  std::string_view initial;
  if (auto const equal = text.find('='); equal != std::string_view::npos) {
    initial = stripped(text.substr(equal + 1));
    text = text.substr(0, equal);
  }
  std::uint64_t each = 1;
  bool aligned = false;
  auto const words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".align") {
      v.align = bits_of_number(words[++i]);
      aligned = true;
    } else if (words[i][0] == '.') {
      if (auto const t = type_of(words[i].substr(1))) each = t.bytes;
    } else {
      auto const bracket = words[i].find('[');
      v.name = words[i].substr(0, bracket);
      v.bytes = each;
      if (bracket != std::string_view::npos) {
        auto const count = words[i].substr(bracket + 1, words[i].find(']') - bracket - 1);
        v.bytes = count.empty() ? 0 : each * bits_of_number(count);
      }
    }
  }
  if (!aligned) v.align = each;
  if (initial.empty()) return v;
  if (initial.front() == '{') initial = initial.substr(1, initial.size() - 2);
  for (auto number : split_arguments(initial)) {
    if (!is_number(number))
      throw fault("PTX: " + v.name + " is initialised with " + std::string(number) + ": not supported");
    std::uint64_t const bits = bits_of_number(number);
    for (std::uint64_t k = 0; k < each; ++k) v.initial.push_back(static_cast<std::byte>(bits >> (8 * k)));
  }
  return v;
}

module_text::module_text(std::string text) : text_(without_comments(std::move(text))) {
  std::string_view const all = text_;
  std::size_t at = 0;
  while (true) {
    while (at < all.size() && (is_space(all[at]) || all[at] == '\0')) ++at;
    if (at == all.size()) return;
    bool const line = std::ranges::any_of(
        std::to_array<std::string_view>({".version", ".target", ".address_size", ".file"}),
        [&](std::string_view word) { return all.substr(at).starts_with(word); });
    if (line) {
      at = std::min(all.find('\n', at), all.size());
      continue;
    }
    // A declaration ends with a semicolon, a function begins with a brace that no parenthesis or initialiser holds.
    std::size_t end = at;
    bool equal = false;
    for (int depth = 0; end < all.size(); ++end) {
      char const c = all[end];
      if (c == '(') ++depth;
      if (c == ')') --depth;
      if (c == '=') equal = true;
      if (depth == 0 && (c == ';' || (c == '{' && !equal))) break;
    }
    if (end == all.size()) throw fault("PTX: ends inside of " + std::string(all.substr(at, 60)));
    auto const head = stripped(all.substr(at, end - at));
    if (all[end] == ';') {
      declaration(head);
      at = end + 1;
    } else {
      std::size_t const after = closing(all, end);
      function(head, all.substr(end + 1, after - end - 2));
      at = after;
    }
  }
}

void module_text::declaration(std::string_view head) {
  if (head.find(".func") != std::string_view::npos || head.find(".entry") != std::string_view::npos) return;
  for (std::string_view space : {".shared", ".const", ".global"}) {
    auto const at = head.find(space);
    if (at == std::string_view::npos) continue;
    variable v = variable_of(head.substr(at + space.size()));
    auto& of_space = space != ".shared" ? global : v.bytes == 0 ? dynamic : shared;
    std::string name = v.name;
    of_space.insert_or_assign(std::move(name), std::move(v));
    return;
  }
  throw fault("PTX: a directive that is not known: " + std::string(head.substr(0, 80)));
}

void module_text::function(std::string_view head, std::string_view body) {
  function_text f;
  f.entry = head.find(".entry") != std::string_view::npos;
  f.body = body;
  auto rest = stripped(head.substr(f.entry ? head.find(".entry") + 6 : head.find(".func") + 5));
  if (!f.entry && rest.starts_with('(')) {
    std::size_t const after = closing(rest, 0);
    f.results = parameters_of(rest.substr(1, after - 2));
    rest = stripped(rest.substr(after));
  }
  auto const open = rest.find('(');
  f.name = stripped(rest.substr(0, open));
  f.name = f.name.substr(0, f.name.find_first_of(" \n\t."));
  if (open != std::string_view::npos)
    f.parameters = parameters_of(rest.substr(open + 1, closing(rest, open) - open - 2));
  std::string name = f.name;
  functions.insert_or_assign(std::move(name), std::move(f));
}

}  // namespace emulator
