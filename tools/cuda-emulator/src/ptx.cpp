// SPDX-License-Identifier: Apache-2.0

#include "ptx.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace emulator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._$%").find(c) != std::string_view::npos;
}

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0 || c == '\0'; }

std::size_t token_length(std::string_view text) {
  if (text[0] == '"') return text.find('"', 1) + 1;
  std::size_t length = text[0] == '-' ? 1 : 0;
  while (length < text.size() && (in_word(text[length]) || text.substr(length, 2) == "::"))
    length += text[length] == ':' ? 2 : 1;
  return std::max<std::size_t>(length, 1);
}

std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  auto const skip_until = [&](std::string_view end) {
    text.remove_prefix(std::min(text.find(end), text.size() - end.size()) + end.size());
  };
  while (!text.empty()) {
    if (is_blank(text[0])) {
      text.remove_prefix(1);
    } else if (text.starts_with("/*")) {
      skip_until("*/");
    } else {
      auto const token = text.substr(0, token_length(text));
      // These end with their line, others with a semicolon.
      bool line = text.starts_with("//");
      for (auto const word : {".version", ".target", ".address_size", ".file", ".loc"}) line |= token == word;
      if (line) {
        skip_until("\n");
      } else {
        tokens.push_back(token);
        text.remove_prefix(token.size());
      }
    }
  }
  return tokens;
}

/// `(.param .u64 a, .param .u32 b)`, if it is there.
std::vector<variable> parameters_of(reader& in) {
  std::vector<variable> parameters;
  if (!in.take("(")) return parameters;
  while (!in.take(")")) {
    in.expect(".param");
    parameters.push_back(variable_of(in));
    in.take(",");
  }
  return parameters;
}

/// Behind `.entry` or `.func`.
function_text function_of(reader& in, bool entry) {
  function_text f{entry, parameters_of(in), std::string(in.next()), parameters_of(in)};
  while (in.peek() != "{" && in.peek() != ";") in.next();
  if (in.next() == ";") return f;
  auto const body = in.rest;
  for (int depth = 1; depth != 0;) {
    auto const token = in.next();
    depth += token == "{" ? 1 : token == "}" ? -1 : 0;
  }
  f.body = body.first(body.size() - in.rest.size() - 1);
  return f;
}

}  // namespace

value_type type_of(std::string_view word) {
  if (word == "pred") return {'p', 1};
  if (word == "bf16") return {'h', 2};
  if (word.empty() || std::string_view("busf").find(word[0]) == std::string_view::npos) return {};
  for (int bytes : {1, 2, 4, 8}) {
    if (word.substr(1) == std::to_string(8 * bytes)) return {word[0], static_cast<uint8_t>(bytes)};
  }
  return {};
}

std::string_view reader::next() {
  if (rest.empty()) throw fault("PTX: ends too early");
  auto const token = rest.front();
  rest = rest.subspan(1);
  return token;
}

bool reader::take(std::string_view token) {
  bool const is = peek() == token;
  if (is) rest = rest.subspan(1);
  return is;
}

void reader::expect(std::string_view token) {
  auto const got = next();
  if (got != token) throw fault("PTX: expected ", token, " where there is ", got);
}

bool is_number(std::string_view word) { return !word.empty() && (is_digit(word[0]) || word[0] == '-'); }

uint64_t bits_of_number(std::string_view word) {
  auto digits = word;
  bool const negative = digits[0] == '-';
  if (negative) digits.remove_prefix(1);
  bool const hexadecimal =
      digits.size() > 2 && std::string_view("xXfFdD").find(digits[1]) != std::string_view::npos;
  if (hexadecimal) digits.remove_prefix(2);
  if (digits.ends_with('U')) digits.remove_suffix(1);
  uint64_t bits = 0;
  auto const* const last = digits.data() + digits.size();
  auto const [end, error] = std::from_chars(digits.data(), last, bits, hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != last) throw fault("PTX: not a number: ", word);
  return negative ? 0 - bits : bits;
}

variable variable_of(reader& in) {
  uint64_t each = 1, align = 0;
  while (in.peek().starts_with('.')) {
    auto const word = in.next();
    if (word == ".ptr") {  // `.u64 .ptr .global .align 8 name`: the alignment is that of what is pointed to
      while (in.peek().starts_with('.')) {
        if (in.next() == ".align") in.next();
      }
    } else if (word == ".align") {
      align = bits_of_number(in.next());
    } else if (auto const t = type_of(word.substr(1))) {
      each = t.bytes;
    }
  }
  variable v{std::string(in.next()), each, align != 0 ? align : each};
  if (in.take("[")) {
    v.bytes = in.peek() == "]" ? 0 : each * bits_of_number(in.next());
    in.expect("]");
  }
  if (!in.take("=")) return v;
  bool const list = in.take("{");
  do {
    uint64_t const bits = bits_of_number(in.next());
    for (uint64_t k = 0; k < each; ++k) v.initial.push_back(static_cast<std::byte>(bits >> (8 * k)));
  } while (list && in.take(","));
  if (list) in.expect("}");
  return v;
}

module_text::module_text(std::string text) : text_(std::move(text)), tokens_(tokens_of(text_)) {
  for (reader in{tokens_}; !in.rest.empty();) {
    auto const word = in.next();
    if (word == ".entry" || word == ".func") {
      auto f = function_of(in, word == ".entry");
      if (f.body.data() != nullptr) functions.insert_or_assign(f.name, std::move(f));
    } else if (word == ".shared" || word == ".const" || word == ".global") {
      auto v = variable_of(in);
      in.expect(";");
      (word == ".shared" ? shared : global).insert_or_assign(v.name, v);
    } else if (word != ".visible" && word != ".weak" && word != ".extern" && word != ".common") {
      throw fault("PTX: a directive that is not known: ", word);
    }
  }
}

}  // namespace emulator
