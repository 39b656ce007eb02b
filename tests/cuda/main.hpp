// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief For programs that also start themselves as something else than tests.

#include <optional>

namespace globalq_test {

/// Set before main(): what the arguments ask for instead of tests. @returns the exit status, or nothing if they ask for tests
extern std::optional<int> (*instead_of_tests)(int argc, char** argv);

}  // namespace globalq_test
