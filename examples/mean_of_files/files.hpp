// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief mean_of_files: raw little-endian float32 files.

#include <span>
#include <string>
#include <vector>

namespace mean_of_files {

/// @brief All values of a file.
/// @throws std::runtime_error if it is not a regular file, cannot be read, or ends within a value
std::vector<float> read_values(std::string const& path);

/// @brief A file that appears under its name completely, or not at all.
///
/// It is written beside its place, under another name; publish() renames it. Until then an existing file of that name
/// stays, and destruction removes the new one.
class output_file {
 public:
  explicit output_file(std::string path);
  ~output_file();
  output_file(output_file const&) = delete;
  output_file& operator=(output_file const&) = delete;

  /// @throws std::runtime_error
  void write(std::span<float const> values);
  /// @throws std::runtime_error
  void publish();
  /// @brief Removes a published file.
  void withdraw() noexcept;

 private:
  std::string path_;
  std::string draft_;
  bool is_published_ = false;
};

}  // namespace mean_of_files
