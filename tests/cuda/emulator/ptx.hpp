// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief PTX as text: a module's variables and functions, before anything is decoded.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace emulator {

/// What a device would report, or PTX that the interpreter does not know.
struct fault : std::runtime_error {
  using runtime_error::runtime_error;
};

/// The type of a register or an operation: a kind, 'b'its, 'u'nsigned, 's'igned, 'f'loat or 'p'redicate, and its bytes.
struct value_type {
  char kind = 0;
  std::uint8_t bytes = 0;

  constexpr explicit operator bool() const { return kind != 0; }
  constexpr bool operator==(value_type const&) const = default;
};

/// `s32`, `pred`, ...; none of a word that is not a type.
value_type type_of(std::string_view word);

/// A variable of a module or function, or a parameter.
struct variable {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t align = 1;
  std::vector<std::byte> initial{};
};

/// A function that is not decoded yet.
struct function_text {
  std::string name;
  bool entry = false;
  std::vector<variable> results{};
  std::vector<variable> parameters{};
  std::string_view body;
};

/// One translation unit of PTX. Owns its text; `function_text::body` points into it.
class module_text {
 public:
  /// @throws fault where a directive is not known.
  explicit module_text(std::string text);

  module_text(module_text const&) = delete;
  module_text& operator=(module_text const&) = delete;

  std::map<std::string, variable, std::less<>> shared;   ///< Of fixed size, in shared memory.
  std::map<std::string, variable, std::less<>> dynamic;  ///< `.extern .shared`: as large as the launch says.
  std::map<std::string, variable, std::less<>> global;   ///< In global or constant memory.
  std::map<std::string, function_text, std::less<>> functions;

 private:
  void declaration(std::string_view head);
  void function(std::string_view head, std::string_view body);

  std::string text_;
};

/// Parts of the grammar that the decoder shares.
/// @{
std::string_view stripped(std::string_view text);

/// The parts between commas that no bracket encloses.
std::vector<std::string_view> split_arguments(std::string_view text);

/// Whether it is a number: decimal, hexadecimal, `0f` or `0d` with the bits of a float.
bool is_number(std::string_view text);

/// Its bits.
std::uint64_t bits_of_number(std::string_view text);

/// `.align 8 .b8 name[16] = {...}`
variable variable_of(std::string_view text);
/// @}

}  // namespace emulator
