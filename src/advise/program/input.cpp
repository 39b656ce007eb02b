// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_advise: lengths, rates and gradients from text and files.

#include "input.hpp"

#include <globalq/named/text.hpp>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace globalq_advisor {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian, and so must the machine be");

constexpr std::uint64_t most_values = std::uint64_t{1} << 40;

[[noreturn]] void fail(std::string const& path, std::string const& why, std::string const& remedy) {
  throw gq::configuration_error("globalq: advise: cannot read \"" + path + "\": " + why + "; " + remedy);
}

/// The product of the lengths in the header of a .npy file: 'shape': (300, 100). 0 if it cannot be read.
std::uint64_t values_of_shape(std::string_view header) {
  constexpr std::string_view name = "'shape': (";
  std::size_t const at = header.find(name), end = header.find(')', at);
  if (at == std::string_view::npos || end == std::string_view::npos) return 0;
  std::uint64_t values = 1;
  for (std::string_view each :
       gq::named::split(header.substr(at + name.size(), end - at - name.size()), ',')) {
    while (each.starts_with(' ')) each.remove_prefix(1);
    if (std::uint64_t length = 0; gq::named::is_number(each, length))
      values *= length;
    else if (!each.empty())
      return 0;
  }
  return values;
}

}  // namespace

std::vector<layer> read_layers(std::string const& text) {
  std::vector<layer> layers;
  std::ifstream file;
  std::error_code no_path;  // a list of lengths may be longer than a path can be
  if (std::filesystem::is_regular_file(text, no_path)) file.open(text);
  if (!file.is_open()) {
    for (std::string_view const each : gq::named::split(text, ','))
      layers.push_back(
          {std::to_string(layers.size()), gq::named::whole_number("layers", text, each, 1, most_values)});
    return layers;
  }
  std::string line, more;
  while (std::getline(file, line)) {
    std::istringstream words{line};
    std::string name, length;
    if (!(words >> name)) continue;  // an empty line
    if (!(words >> length) || words >> more)
      fail(text, "\"" + line + "\" is not a name and a length", "write both on a line");
    layers.push_back({name, gq::named::whole_number("layers", line, length, 1, most_values)});
  }
  if (layers.empty()) fail(text, "there are no layers", "write a name and a length on each line");
  return layers;
}

std::vector<float> read_gradient(std::string const& path) {
  std::ifstream file{path, std::ios::binary};
  std::error_code no_path;
  if (!file || !std::filesystem::is_regular_file(path, no_path))
    fail(path, "there is no such file", "give a .npy file, or raw float32");
  std::string bytes{std::istreambuf_iterator<char>{file}, {}};
  std::string_view data = bytes;
  if (data.starts_with("\x93NUMPY") && data.size() >= 12) {
    auto const byte = [&](std::size_t at) { return std::size_t{static_cast<unsigned char>(data[at])}; };
    std::size_t const start = data[6] == 1 ? 10 : 12,
                      size =
                          byte(8) + (byte(9) << 8) + (start == 10 ? 0 : (byte(10) << 16) + (byte(11) << 24));
    std::string_view const header = data.substr(start, size);
    if (header.find("'descr': '<f4'") == std::string_view::npos)
      fail(path, "its values are not float32", "save it as gradient.astype(\"float32\")");
    data.remove_prefix(std::min(data.size(), start + size));
    std::uint64_t const values = values_of_shape(header);
    if (values != data.size() / sizeof(float) || data.size() % sizeof(float) != 0)
      fail(path,
           "its shape is of " + std::to_string(values) + " values, and " + std::to_string(data.size()) +
               " bytes follow",
           "save the gradient again");
    if (header.find("'fortran_order': True") != std::string_view::npos)
      fail(path, "its values are in Fortran order", "save it as numpy.ascontiguousarray(gradient)");
  }
  if (data.empty() || data.size() % sizeof(float) != 0)
    fail(path, std::to_string(data.size()) + " bytes are not float32 values",
         "give 4 bytes a value, at least one");
  std::vector<float> values(data.size() / sizeof(float));
  std::memcpy(values.data(), data.data(), data.size());
  return values;
}

double read_number(std::string const& option, std::string const& text) {
  auto const parts = gq::named::split(text, '/');
  double number = gq::named::real_number(option, text, parts[0]);
  if (parts.size() == 2) number /= gq::named::real_number(option, text, parts[1]);
  if (parts.size() > 2 || !(number > 0) || !std::isfinite(number))
    gq::named::refuse(option, text, "is not a positive number", "give one such as 1.25e9 or 10e9/8");
  return number;
}

}  // namespace globalq_advisor
