// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief As device_shape_test.cpp, for codes in int16 and int32; apart, because each takes long to compile.

#include "tests/support/device_shape.hpp"

namespace {

using support::device_shape::compare_all;

TEST(DeviceShape, int16) { compare_all(globalq::wire::int16{}, false, "int16"); }
TEST(DeviceShape, int32) { compare_all(globalq::wire::int32{}, false, "int32"); }

}  // namespace
