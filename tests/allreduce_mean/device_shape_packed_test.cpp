// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The loop bodies give the same bytes in the shape of a GPU thread as in that of a host thread: packed codes.

#include "tests/support/device_shape.hpp"

namespace gq = globalq;

namespace {

using support::device_shape::compare;
using support::device_shape::compare_all;

TEST(DeviceShape, packed) {
  for (std::uint32_t bits = 2; bits <= 8; ++bits)
    compare_all(gq::wire::packed<>{bits}, bits < 4, ("packed:" + std::to_string(bits)).c_str());
  compare(static_cast<gq::levels::detail::level_table const&>(gq::levels::symmetric{1}),
          gq::rounding::stochastic{}, gq::wire::packed<>{1}, true, "packed:1");
}
TEST(DeviceShape, packed_bits_known_when_compiling) {
  gq::rounding::stochastic const rounding;
  compare(gq::levels::uniform<>{1}, rounding, gq::wire::packed<2>{}, false, "packed<2>");
  compare(gq::levels::uniform<>{3}, rounding, gq::wire::packed<3>{}, false, "packed<3>");
  compare(gq::levels::uniform<>{5}, rounding, gq::wire::packed<4>{}, false, "packed<4>");
}

}  // namespace
