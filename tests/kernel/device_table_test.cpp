// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tables as kernels of a device see them: the codes and values of level_table, which is the definition.

#include "tests/support/device_table.hpp"

#include <globalq/kernel/device/registers.hpp>
#include <globalq/kernel/device/table_codes.hpp>
#include <globalq/kernel/loops.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/minifloat.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/rounding/shared_draw.hpp>
#include <globalq/rounding/stochastic.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace gq = globalq;
namespace device = gq::kernel::device;
using gq::levels::detail::level_table;

namespace {

using table_on_device = support::device_levels<level_table>;
using named_tables = std::vector<std::pair<std::string, level_table>>;

/// Random ones: uniform, or in clusters that are up to 2^20 times denser.
std::vector<double> random_levels(std::mt19937& draw, int s, bool clustered) {
  std::vector<double> levels{0.0, 1.0};
  double center = 0.5;
  while (static_cast<int>(levels.size()) < s + 1) {
    double const u = static_cast<double>(draw()) * 0x1p-32;
    if (draw() % 8 == 0) center = u;
    double const v = clustered ? center + (u - 0.5) * std::ldexp(1.0, -static_cast<int>(draw() % 20)) : u;
    auto const as_float = static_cast<double>(static_cast<float>(v));
    if (as_float > 0 && as_float < 1 && std::find(levels.begin(), levels.end(), as_float) == levels.end())
      levels.push_back(as_float);
  }
  std::sort(levels.begin(), levels.end());
  return levels;
}

/// Tables for which cells are found.
named_tables with_cells() {
  named_tables list;
  auto const add = [&](std::string const& name, std::vector<double> const& levels) {
    list.emplace_back("table of " + name, gq::levels::table(levels));
    list.emplace_back("symmetric of " + name, gq::levels::symmetric(std::span(levels).subspan(1)));
    list.emplace_back("reversed " + name, level_table(std::span(levels).subspan(1), false, true));
  };
  for (int s : {1, 2, 3, 7, 8, 15, 31, 64, 127})
    for (double power : {1.0, 2.0, 0.5}) {
      std::vector<double> levels{0.0};
      for (int k = 1; k <= s; ++k) levels.push_back(std::pow(static_cast<double>(k) / s, power));
      add(std::to_string(s) + " levels^" + std::to_string(power), levels);
    }
  for (int s : {2, 8, 40, 95}) {
    std::vector<double> levels{0.0};
    for (int k = s - 1; k >= 0; --k) levels.push_back(std::ldexp(1.0, -k));
    add(std::to_string(s) + " powers of two", levels);
  }
  list.emplace_back("lowest", gq::levels::table{0.0, 0x1p-94, 1.0});
  for (int s : {1, 7, 15, 31, 94}) list.emplace_back("base 1.5", gq::levels::exponential(s, 1.5));
  list.emplace_back("e2m1", gq::levels::e2m1());
  list.emplace_back("e2m3", gq::levels::e2m3());
  list.emplace_back("e3m2", gq::levels::e3m2());
  list.emplace_back("e4m3", gq::levels::e4m3());
  list.emplace_back("e5m2", gq::levels::e5m2());
  return list;
}

/// Tables whose neighbors are nearly equal.
named_tables without_cells() {
  double const half = static_cast<double>(std::nextafter(0.5F, 1.0F));
  return {{"near", gq::levels::table{0.0, 0.5, half, 1.0}},
          {"near and symmetric", gq::levels::symmetric{0.5, half, 1.0}},
          {"nearer zero", gq::levels::table{0.0, 0x1p-90, 0x1.000002p-90, 0.25, 1.0}},
          {"near one", gq::levels::table{0.0, 0.25, 1.0 - 0x1p-24, 1.0}}};
}

/// Random ones, with cells or not.
named_tables at_random() {
  named_tables list;
  std::mt19937 draw(7);
  for (int s : {2, 3, 7, 8, 15, 31, 100, 127})
    for (bool clustered : {false, true}) {
      std::vector<double> const levels = random_levels(draw, s, clustered);
      std::string const name = std::string(clustered ? "clustered " : "random ") + std::to_string(s);
      list.emplace_back(name, gq::levels::table(levels));
      list.emplace_back("symmetric " + name, gq::levels::symmetric(std::span(levels).subspan(1)));
    }
  return list;
}

named_tables all_tables() {
  named_tables list = with_cells();
  for (auto&& more : {without_cells(), at_random()}) list.insert(list.end(), more.begin(), more.end());
  return list;
}

/// Levels, what lies next to them and between, and what is below, beyond or no number.
std::vector<float> values_of_interest(level_table const& levels, std::mt19937& draw) {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> list{0.0F, 0x1p-149F, 0x1p-126F, 1.0F,         std::nextafterf(1.0F, 0.0F),
                          1.5F, 3.4e38F,   infinity,  std::nanf("")};
  for (std::uint32_t k = 1; k <= levels.size(); ++k) {
    float const level = levels.ascending()[k], below = levels.ascending()[k - 1];
    float const less = std::nextafterf(level, 0.0F), more = std::nextafterf(level, 2.0F);
    list.insert(list.end(), {level, less, more, std::nextafterf(less, 0.0F), std::nextafterf(more, 2.0F),
                             level / 2, (level + below) / 2, below + (level - below) * 0.75F});
  }
  for (int i = 0; i < 60; ++i)
    list.push_back(std::ldexp(static_cast<float>(draw() >> 8), -24 - static_cast<int>(draw() % 9)));
  while (list.size() % 16 != 0) list.push_back(0.3F);
  std::size_t const n = list.size();
  for (std::size_t i = 0; i < n; ++i) list.push_back(gq::float_of(gq::bits_of(list[i]) | gq::float_sign));
  return list;
}

/// The magnitude that levels see: NaN is as large as the last one.
float clipped(float z) {
  return gq::float_of(std::min(gq::bits_of(z) & gq::float_magnitude, gq::bits_of(1.0F)));
}

template <class Rounding>
int defined_code(level_table const& levels, Rounding const& rounding, float z, std::uint32_t word) {
  gq::neighbors const c = levels.locate(clipped(z));
  bool const negative = (gq::bits_of(z) & gq::float_sign) != 0;
  int const code = rounding.up(c.threshold, word, negative ? ~0U : 0U) ? c.upper : c.lower;
  return negative ? -code : code;
}

/// The codes of 16 values in the shape of a GPU thread.
template <class Int, class Rounding, class Word>
void expect_thread(level_table const& levels, device::table_view const& view, Rounding const& rounding,
                   float const* values, Word const& word, std::string const& what) {
  float z[4][4];
  device::code_row<Int, 4> codes[4];
  for (int i = 0; i < 16; ++i) z[i / 4][i % 4] = values[i];
  for (auto& row : codes) row.clear();
  device::encode_by_table(view, rounding, z, word, codes);
  for (int i = 0; i < 16; ++i) {
    std::uint32_t const w =
        Rounding::word_per_coordinate ? gq::rotate_left(word(i / 4, i % 4), 8 * (i % 4)) : word(i / 4, i % 4);
    ASSERT_EQ(codes[i / 4].get(i % 4), defined_code(levels, rounding, values[i], w))
        << what << ": " << std::hexfloat << values[i] << ", word " << std::hex << w;
  }
}

/// Words at and around the threshold of a magnitude, and at the ends.
std::vector<std::uint32_t> words_around(level_table const& levels, std::uint32_t slack, float t) {
  std::uint32_t const threshold = levels.locate(t).threshold;
  std::vector<std::uint32_t> list{0, 255, ~0U, ~0U - 256};
  for (std::uint32_t d :
       {0U, 1U, 256U, slack * 128, slack * 256, slack * 256 + 256, slack * 512, slack * 512 + 512})
    list.insert(list.end(), {threshold - d, threshold + d});
  return list;
}

template <class Rounding>
void expect_definition(std::string const& name, level_table const& levels, Rounding const& rounding) {
  table_on_device const there(levels);
  std::mt19937 draw(3);
  std::vector<float> const values = values_of_interest(levels, draw);
  for (std::size_t at = 0; at < values.size(); at += 16) {
    float const* const z = values.data() + at;
    std::vector<std::uint32_t> words[16];
    for (int i = 0; i < 16; ++i) words[i] = words_around(levels, there.cells().slack, clipped(z[i]));
    // where the four values of a row share a word, which one it is for; the others see it rotated
    for (int chosen = 0; chosen < (Rounding::word_per_coordinate ? 4 : 1); ++chosen)
      for (std::size_t w = 0; w < words[0].size(); ++w) {
        auto const word = [&](int r, int i) {
          if (!Rounding::word_per_coordinate) return words[4 * r + i][w];
          return gq::rotate_left(words[4 * r + chosen][w], 32 - 8 * chosen);
        };
        expect_thread<std::int8_t>(levels, there(), rounding, z, word, name);
        if (testing::Test::HasFailure()) return;
      }
    std::uint32_t drawn[4];
    for (std::uint32_t& w : drawn) w = static_cast<std::uint32_t>(draw());
    auto const word = [&](int r, int) { return drawn[r]; };
    expect_thread<std::int16_t>(levels, there(), rounding, z, word, name + ", int16");
    expect_thread<std::int32_t>(levels, there(), rounding, z, word, name + ", int32");
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DeviceTable, codes_are_those_of_the_definition) {
  for (auto const& [name, levels] : all_tables()) {
    expect_definition(name, levels, gq::rounding::stochastic{});
    if (HasFailure()) return;
  }
}

TEST(DeviceTable, codes_with_one_word_are_those_of_the_definition) {
  for (auto const& [name, levels] : all_tables())
    for (bool complement : {false, true}) {
      expect_definition(name, levels, gq::rounding::detail::shared_draw{complement, false});
      if (HasFailure()) return;
    }
}

TEST(DeviceTable, locate_and_value_are_those_of_the_definition) {
  for (auto const& [name, levels] : all_tables()) {
    table_on_device const there(levels);
    device::table_view const& view = there();
    EXPECT_EQ(view.extent(), levels.extent());
    EXPECT_EQ(view.max_code(), levels.max_code());
    std::mt19937 draw(5);
    for (float z : values_of_interest(levels, draw)) {
      gq::neighbors const a = view.locate(clipped(z)), b = levels.locate(clipped(z));
      ASSERT_TRUE(a.lower == b.lower && a.upper == b.upper && a.threshold == b.threshold)
          << name << ": " << std::hexfloat << z;
    }
    for (std::int32_t code = -128; code < 128; ++code) {
      ASSERT_EQ(gq::bits_of(view.value(static_cast<std::uint32_t>(code))),
                gq::bits_of(levels.value(static_cast<std::uint32_t>(code))))
          << name << ": " << code;
      ASSERT_EQ(gq::bits_of(gq::kernel::level_of(view, code)),
                gq::bits_of(gq::kernel::level_of(levels, code)))
          << name << ": " << code;
    }
  }
}

// A level that shares its cell with another is found by halving.
TEST(DeviceTable, all_but_nearly_equal_levels_have_cells) {
  for (auto const& [name, levels] : with_cells()) {
    device::table_cells const cells = table_on_device(levels).cells();
    EXPECT_NE(cells.shift, 0) << name;
    EXPECT_LE(cells.count, 4 * levels.size() + 96) << name;
  }
  for (auto const& [name, levels] : without_cells())
    EXPECT_EQ(table_on_device(levels).cells().shift, 0) << name;
}

// The word 0 has the place (index + 1 + fraction) * 2^24 - 1 but for rounding; what the lower bits of a word add is below 1.
TEST(DeviceTable, rounding_moves_a_place_by_less_than_slack) {
  std::mt19937 draw(13);
  for (auto const& [name, levels] : with_cells()) {
    table_on_device const there(levels);
    std::vector<float> values = values_of_interest(levels, draw);
    for (int i = 0; i < 2000; ++i) values.push_back(static_cast<float>(draw() >> 8) * 0x1p-24F);
    for (float z : values) {
      float const t = clipped(z);
      device::table_view::found const at = there().find(t);
      double const below = static_cast<double>(levels.ascending()[at.index]),
                   above = static_cast<double>(levels.ascending()[at.index + 1]);
      double const fraction = t < 1.0F ? (static_cast<double>(t) - below) / (above - below) : 0.0;
      double const moved = static_cast<double>(there().place_of(t, there().gap_of(t), 0xffffffU)) + 1 -
                           (static_cast<double>(at.index) + 1 + fraction) * 0x1p24;
      ASSERT_GE(moved, 1.0) << name << ": " << std::hexfloat << z;
      ASSERT_LE(moved, 2.0 * there.cells().slack - 1) << name << ": " << std::hexfloat << z;
    }
  }
}

// Of random words 2 slack in 2^24 leave a place open: here 60,000 values and words.
TEST(DeviceTable, the_definition_is_seldom_asked) {
  std::mt19937 draw(11);
  std::uint64_t open = 0, all = 0;
  double expected = 0;
  for (auto const& [name, levels] : with_cells()) {
    table_on_device const there(levels);
    EXPECT_LE(there.cells().slack, 1024U) << name;
    for (int i = 0; i < 1000; ++i) {
      float const t = static_cast<float>(draw() >> 8) * 0x1p-24F;
      std::uint32_t const gap = there().gap_of(t);
      open += there().is_open(there().place_of(t, gap, static_cast<std::uint32_t>(draw()) >> 8)) ? 1 : 0;
      expected += 2.0 * there.cells().slack * 0x1p-24;
      ++all;
    }
  }
  EXPECT_LE(static_cast<double>(open), expected + 6 * std::sqrt(expected) + 6) << all;
}

TEST(DeviceTable, even_and_usual_tables_need_few_cells) {
  auto const cells_of = [](level_table const& levels) { return table_on_device(levels).cells().count; };
  std::vector<double> even[2];
  for (int k = 0; k <= 7; ++k) even[0].push_back(k / 7.0);
  for (int k = 0; k <= 127; ++k) even[1].push_back(k / 127.0);
  EXPECT_EQ(cells_of(gq::levels::table(even[0])), 9U);
  EXPECT_EQ(cells_of(gq::levels::table(even[1])), 129U);
  EXPECT_LE(cells_of(gq::levels::e4m3()), 256U);
}

}  // namespace
