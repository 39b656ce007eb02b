// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: outcomes as they were recorded, which no change of the library's inside may change.
///
/// A file has lines `name: outcome`, and its names are the cases. GLOBALQ_GOLDEN=write in the environment records what comes
/// out now; a change that means to change bits does so, and says why.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace golden {

/// A hash, for people.
inline std::string text(std::uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%08llx", static_cast<unsigned long long>(hash >> 32));
  return digits;
}

class record {
 public:
  using line = std::pair<std::string, std::string>;  ///< name, outcome

  /// @param file  in tests/golden
  explicit record(char const* file) : path_(std::filesystem::path(__FILE__).replace_filename(file).string()) {
    std::ifstream in(path_);
    for (std::string each; std::getline(in, each);) {
      std::size_t const end = each.find(": ");
      if (end == each.npos) throw std::runtime_error(path_ + ": no outcome in the line '" + each + "'");
      lines_.emplace_back(each.substr(0, end), each.substr(end + 2));
    }
  }

  std::vector<line> const& lines() const { return lines_; }

  /// Each name's outcome is the recorded one.
  void expect(std::vector<line> const& now) {
    char const* const how = std::getenv("GLOBALQ_GOLDEN");
    bool const writes = how != nullptr && std::string(how) == "write";
    std::size_t different = 0;
    for (auto const& [name, outcome] : now) {
      line& kept = line_of(name);
      if (kept.second == outcome) continue;
      if (!writes && different++ < 20)
        ADD_FAILURE() << name << ": " << outcome
                      << ", recorded: " << (kept.second.empty() ? "nothing" : kept.second);
      kept.second = outcome;
    }
    if (!writes) {
      EXPECT_EQ(different, 0U) << path_ << " tells what was; with GLOBALQ_GOLDEN=write it tells what is";
      return;
    }
    std::ofstream out(path_);
    for (auto const& [name, outcome] : lines_) out << name << ": " << outcome << '\n';
    if (!out.flush()) throw std::runtime_error(path_ + " cannot be written");
  }

 private:
  line& line_of(std::string const& name) {
    for (line& each : lines_)
      if (each.first == name) return each;
    return lines_.emplace_back(name, "");
  }

  std::string path_;
  std::vector<line> lines_;
};

}  // namespace golden
