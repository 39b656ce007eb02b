// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Links two translation units that include every header.

#include <cstring>

char const* odr_one();
char const* odr_two();

int main() { return std::strcmp(odr_one(), odr_two()) == 0 ? 0 : 1; }
