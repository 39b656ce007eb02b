// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Compares the claims of theory with measurements.

#include <cstdio>
#include <cstdlib>
#include <string>

namespace convex {

/// @brief Collects claims that do not hold; each is a sentence on stderr.
class claims {
 public:
  /// @param otherwise  the sentence, with the numbers
  void expect(bool holds, std::string const& otherwise) {
    if (holds) return;
    std::fprintf(stderr, "convex: %s\n", otherwise.c_str());
    all_hold_ = false;
  }
  int exit_status() const { return all_hold_ ? EXIT_SUCCESS : EXIT_FAILURE; }

 private:
  bool all_hold_ = true;
};

/// Formats a number for tables and sentences.
inline std::string text(double x) {
  char s[32];
  std::snprintf(s, sizeof s, "%.3g", x);
  return s;
}

}  // namespace convex
