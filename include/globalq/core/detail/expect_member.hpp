// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the compile-time error that names a missing member of a user's type.

/// Asserts that a condition holds, else says which member is missing. The classes expect_... contain a line for each
/// required member of a concept: the text of a failed concept would be a list of all its members.
/// @param kind    what the type should be, a literal: "level scheme"
/// @param member  its declaration, a literal: "float extent() const"
#define GLOBALQ_EXPECT_MEMBER(kind, member, ...)                            \
  static_assert((__VA_ARGS__), "globalq: this " kind " has no " member      \
                               " (it is missing, or has other types); see " \
                               "docs/extending.md")
