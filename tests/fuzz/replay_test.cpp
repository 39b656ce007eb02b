// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The committed inputs of the fuzzers, run once more by every build. scripts/fuzz looks for new ones.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/inputs.hpp"

namespace {

TEST(Fuzzing, every_committed_input_passes) {
  for (fuzz::target const& target : fuzz::targets) {
    int inputs = 0;
    for (auto const& entry :
         std::filesystem::directory_iterator(std::string(GLOBALQ_FUZZ_CORPUS) + "/" + target.name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::vector<char> const bytes{std::istreambuf_iterator<char>(file), {}};
      EXPECT_NO_THROW(target.run(std::as_bytes(std::span(bytes)))) << entry.path();
      // and all it begins with
      for (std::size_t size = 0; size < std::min(bytes.size(), std::size_t{300}); ++size)
        EXPECT_NO_THROW(target.run(std::as_bytes(std::span(bytes.data(), size))))
            << entry.path() << " cut to " << size;
      ++inputs;
    }
    EXPECT_GE(inputs, 4) << target.name;
  }
}

}  // namespace
