// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The loop bodies give the same bytes in the shape of a GPU thread as in that of a host thread: codes in int8, floats,
/// and what users write.

#include "tests/support/device_shape.hpp"
#include "tests/support/float_shape.hpp"

namespace gq = globalq;

namespace {

using support::device_shape::compare;
using support::device_shape::compare_all;

/// A wire as users write them: it knows nothing of registers.
struct plain_wire {
  using code_type = std::int8_t;
  static constexpr std::uint32_t largest_code(bool) { return 127; }
  static constexpr std::uint64_t bytes(std::uint64_t n) { return n; }
  static constexpr std::uint8_t identifier() { return 99; }
  static void pack(code_type const* codes, int count, std::byte* out, bool) {
    for (int i = 0; i < count; ++i) out[i] = static_cast<std::byte>(codes[i]);
  }
  static bool unpack(std::byte const* in, int count, code_type* codes, bool) {
    for (int i = 0; i < count; ++i) codes[i] = static_cast<code_type>(in[i]);
    return false;
  }
};

/// A rounding as users write them: it compares no words that others could compare for it.
struct plain_rounding {
  static constexpr bool word_per_coordinate = true;
  static constexpr bool shifts() { return false; }
  static constexpr std::uint32_t word(std::uint32_t drawn) { return drawn; }
  static constexpr bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) {
    return word < threshold;
  }
  static constexpr double shift(std::uint32_t) { return 0; }
};

TEST(DeviceShape, int8) { compare_all(gq::wire::int8{}, false, "int8"); }
TEST(DeviceShape, float32_frames) {
  support::device_shape::compare_floats_on(support::device_shape::in_order{});
}
TEST(DeviceShape, wire_that_knows_nothing_of_registers) {
  compare(gq::levels::uniform<>{5}, gq::rounding::stochastic{}, plain_wire{}, false, "plain");
}
TEST(DeviceShape, tables_with_a_rounding_that_only_says_up) {
  compare(static_cast<gq::levels::detail::level_table const&>(gq::levels::table{0, 0.1, 0.15, 0.4, 1}),
          plain_rounding{}, gq::wire::int8{}, false, "table, plain");
}
TEST(DeviceShape, tables_without_cells_and_reversed_ones) {
  using table = gq::levels::detail::level_table;
  gq::rounding::stochastic const dice;
  compare(static_cast<table const&>(gq::levels::table{0, 0.1, 0.4, 0.4 + 0x1p-24, 1}), dice, gq::wire::int8{},
          false, "without cells");
  compare(static_cast<table const&>(gq::levels::exponential(5, 1.5)), dice, gq::wire::int8{}, false,
          "reversed");
}

}  // namespace
