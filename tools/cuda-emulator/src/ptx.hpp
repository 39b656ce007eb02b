// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief PTX as text: a module's variables and functions, before anything is decoded.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

using std::int16_t, std::int32_t, std::int64_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

/// What a device would report, or PTX that the interpreter does not know.
struct fault : std::runtime_error {
  /// The text of all parts.
  template <class... Part>
  explicit fault(Part const&... parts) : runtime_error((std::ostringstream() << ... << parts).str()) {}
};

/// The type of a register or an operation: a kind, 'b'its, 'u'nsigned, 's'igned, 'f'loat or 'p'redicate, and its bytes.
struct value_type {
  char kind = 0;
  uint8_t bytes = 0;

  constexpr explicit operator bool() const { return kind != 0; }
  constexpr bool operator==(value_type const&) const = default;
};

constexpr uint64_t mask_of_bits(uint64_t n) { return n >= 64 ? ~0ULL : (1ULL << n) - 1; }
constexpr uint64_t mask_of_bytes(unsigned n) { return mask_of_bits(8 * n); }

/// `s32`, `pred`, ...; none of a word that is not a type.
value_type type_of(std::string_view word);

/// Reads tokens one after the other: words such as `ld.global.u32`, `%r1` and `-4`, and signs.
struct reader {
  std::span<std::string_view const> rest;

  /// None is empty.
  std::string_view peek(std::size_t k = 0) const { return k < rest.size() ? rest[k] : std::string_view(); }
  /// @throws fault at the end.
  std::string_view next();
  /// Whether this comes next, and is read then.
  bool take(std::string_view token);
  /// @throws fault where another one comes.
  void expect(std::string_view token);
};

/// Whether it is a number: decimal, hexadecimal, `0f` or `0d` with the bits of a float.
bool is_number(std::string_view word);

/// Its bits.
uint64_t bits_of_number(std::string_view word);

/// A variable of a module or function, or a parameter.
struct variable {
  std::string name;
  uint64_t bytes = 0;
  uint64_t align = 1;
  std::vector<std::byte> initial{};
};

/// `.align 8 .b8 name[16] = {...}`
variable variable_of(reader& in);

/// A function that is not decoded yet.
struct function_text {
  bool entry = false;
  std::vector<variable> results{};
  std::string name{};
  std::vector<variable> parameters{};
  std::span<std::string_view const> body{};
};

/// One translation unit of PTX. Owns its text; `function_text::body` points into it.
class module_text {
 public:
  /// @throws fault where a directive is not known.
  explicit module_text(std::string text);

  module_text(module_text const&) = delete;
  module_text& operator=(module_text const&) = delete;

  std::map<std::string, variable, std::less<>>
      shared;  ///< Of no bytes, `.extern`: as large as the launch says.
  std::map<std::string, variable, std::less<>> global;  ///< In global or constant memory.
  std::map<std::string, function_text, std::less<>> functions;

 private:
  std::string text_;
  std::vector<std::string_view> tokens_;
};

}  // namespace emulator
