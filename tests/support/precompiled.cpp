// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests: the source with which support/precompiled.hpp is compiled.
