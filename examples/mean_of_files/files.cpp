// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief mean_of_files: raw little-endian float32 files.

#include "files.hpp"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace mean_of_files {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the files are little-endian, and so must the machine be");

struct closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using file_handle = std::unique_ptr<std::FILE, closer>;

[[noreturn]] void fail(std::string const& path, char const* verb, std::string const& why) {
  throw std::runtime_error{"cannot " + std::string{verb} + " \"" + path + "\": " + why};
}

}  // namespace

std::vector<float> read_values(std::string const& path) {
  std::error_code error;
  auto const status = std::filesystem::status(path, error);
  if (error) fail(path, "read", error.message());
  // a pipe could make a worker wait forever, and has no length
  if (!std::filesystem::is_regular_file(status)) fail(path, "read", "it is not a regular file");
  std::uintmax_t const bytes = std::filesystem::file_size(path, error);
  if (error) fail(path, "read", error.message());
  if (bytes % sizeof(float) != 0)
    fail(path, "read", "its " + std::to_string(bytes) + " bytes are not a whole number of float32 values");
  file_handle const file{std::fopen(path.c_str(), "rb")};
  if (!file) fail(path, "read", std::strerror(errno));
  std::vector<float> values(bytes / sizeof(float));
  if (std::fread(values.data(), sizeof(float), values.size(), file.get()) != values.size())
    fail(path, "read", std::ferror(file.get()) != 0 ? std::strerror(errno) : "it became shorter meanwhile");
  return values;
}

output_file::output_file(std::string path)
    : path_{std::move(path)}, draft_{path_ + "." + std::to_string(getpid()) + ".part"} {}

output_file::~output_file() {
  if (!is_published_) std::remove(draft_.c_str());
}

void output_file::write(std::span<float const> values) {
  if (std::filesystem::is_directory(path_)) fail(path_, "write", "it is a folder");
  file_handle file{std::fopen(draft_.c_str(), "wb")};
  if (!file) fail(path_, "write", std::strerror(errno));
  bool const whole = std::fwrite(values.data(), sizeof(float), values.size(), file.get()) == values.size();
  if (!whole || std::fclose(file.release()) != 0) fail(path_, "write", std::strerror(errno));
}

void output_file::publish() {
  if (std::rename(draft_.c_str(), path_.c_str()) != 0) fail(path_, "write", std::strerror(errno));
  is_published_ = true;
}

void output_file::withdraw() noexcept {
  if (is_published_) std::remove(path_.c_str());
}

}  // namespace mean_of_files
