// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Uniform levels: the suite, the numbers of levels, and what the concept refuses.

#include "globalq/levels/uniform.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/levels/suite.hpp"

namespace globalq_test {

/// The level k of s is k on the scale of extent() = s, and its code is k.
template <class Uniform>
scheme_case<Uniform> uniform_case(Uniform scheme) {
  return {"uniform " + std::to_string(scheme.size()), scheme, std::uint64_t{scheme.size()} + 1,
          [](std::uint64_t k) { return static_cast<long double>(k); },
          [](std::uint64_t k) { return static_cast<std::int32_t>(k); }};
}

struct uniform_cases {
  using scheme = gq::levels::uniform<>;
  static constexpr long double slack = 0;
  static std::vector<scheme_case<scheme>> all() {
    std::vector<scheme_case<scheme>> list;
    for (std::uint32_t s : {1U, 2U, 3U, 7U, 15U, 63U, 95U, 96U, 127U, 128U, 255U, 1000U, 32767U, 1U << 23,
                            (1U << 24) - 1, 1U << 24})
      list.push_back(uniform_case(scheme(s)));
    return list;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(uniform, level_scheme_suite, uniform_cases);

struct static_uniform_cases {
  using scheme = gq::levels::uniform<7>;
  static constexpr long double slack = 0;
  static std::vector<scheme_case<scheme>> all() { return {uniform_case(scheme{})}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(uniform_7, level_scheme_suite, static_uniform_cases);

namespace {

using gq::levels::uniform;

TEST(UniformLevels, a_number_given_at_compile_time_or_run_time_means_the_same) {
  static_assert(uniform<7>{}.size() == 7 && uniform{7}.size() == 7 && uniform{7U}.size() == 7);
  static_assert(std::is_same_v<decltype(uniform{7}), uniform<>>);
  for (float t = 0; t <= 7; t += 0.37F) {
    EXPECT_EQ(uniform<7>{}.locate(t).lower, uniform{7}.locate(t).lower);
    EXPECT_EQ(uniform<7>{}.locate(t).threshold, uniform{7}.locate(t).threshold);
  }
}

TEST(UniformLevels, no_number_means_as_many_as_fit_and_resized_gives_the_number) {
  static_assert(uniform<>{}.size() == 0);
  static_assert(uniform<>{}.resized(31).size() == 31 && uniform<>{}.resized(31).max_code() == 31);
  EXPECT_EQ(uniform<>{}.resized(31).extent(), 31.0F);
}

TEST(UniformLevels, every_float_between_two_levels_of_a_large_scheme_has_its_exact_fraction) {
  // between 2^22 and 2^22 + 1 floats are halves; between 2^24 - 1 and 2^24 there is none
  gq::neighbors const half = uniform{1 << 24}.locate(0x1p22F + 0.5F);
  EXPECT_EQ(half.lower, 1 << 22);
  EXPECT_EQ(half.threshold, 0x80000000U);
  EXPECT_EQ(std::nextafter(0x1p24F - 1, 0x1p25F), 0x1p24F);
}

// What the concept asks for, and types that lack one thing each.
struct good {
  float extent() const { return 1; }
  std::uint32_t max_code() const { return 1; }
  gq::neighbors locate(float) const { return {0, 1, 0}; }
  float value(std::uint32_t code) const { return static_cast<float>(code); }
};
struct owns_memory : good {
  std::vector<float> levels;
};
struct double_extent : good {
  double extent() const { return 1; }
};
struct signed_max_code : good {
  int max_code() const { return 1; }
};
struct no_locate {
  float extent() const { return 1; }
  std::uint32_t max_code() const { return 1; }
  float value(std::uint32_t code) const { return static_cast<float>(code); }
};
struct changes_itself : good {
  float value(std::uint32_t code) { return static_cast<float>(code); }
};

static_assert(gq::LevelScheme<good>);
static_assert(!gq::LevelScheme<owns_memory>, "kernels copy schemes bytewise");
static_assert(!gq::LevelScheme<double_extent>);
static_assert(!gq::LevelScheme<signed_max_code>);
static_assert(!gq::LevelScheme<no_locate>);
static_assert(!gq::LevelScheme<changes_itself>, "kernels hold schemes as constants");
static_assert(!gq::LevelScheme<float> && !gq::LevelScheme<void>);

}  // namespace
}  // namespace globalq_test
