// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Layouts: where layers lie, and what is refused.

#include "tests/support/refusal.hpp"

#include <globalq/train/adapt/model_layout.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gq = globalq;
using support::refusal;
using testing::HasSubstr;

namespace {

TEST(ModelLayout, layers_follow_each_other_unless_they_are_placed) {
  gq::adapt::model_layout model;
  model.add("conv.weight", {8, 3, 5, 5})
      .add("conv.bias", {8})
      .add_at(1000, "fc.weight", {10, 72})
      .add("scale", {});
  ASSERT_EQ(model.size(), 4U);
  EXPECT_EQ(model[0].size, 600U);
  EXPECT_EQ(model[0].rows(), 8U);
  EXPECT_EQ(model[0].columns(), 75U);
  EXPECT_EQ(model[1].offset, 600U);
  EXPECT_EQ(model[1].rows(), 1U);
  EXPECT_EQ(model[1].columns(), 8U);
  EXPECT_EQ(model[2].offset, 1000U);
  EXPECT_EQ(model[3].offset, 1720U);
  EXPECT_EQ(model[3].size, 1U);
  EXPECT_EQ(model.length(), 1721U);
  EXPECT_EQ(model.find("fc.weight"), 2U);
}

TEST(ModelLayout, a_gap_can_be_filled_to_the_last_value_and_no_further) {
  gq::adapt::model_layout model;
  model.add("first", {10}).add_at(20, "third", {10});
  EXPECT_THAT(refusal([&] { model.add_at(10, "second", {11}); }), HasSubstr("overlaps layer \"third\""));
  EXPECT_THAT(refusal([&] { model.add_at(9, "second", {10}); }),
              HasSubstr("overlaps layer \"first\", which has the values 0 to 9"));
  EXPECT_THAT(refusal([&] { model.add_at(0, "second", {1}); }), HasSubstr("overlaps"));
  EXPECT_EQ(model.size(), 2U);
  model.add_at(10, "second", {10});
  EXPECT_EQ(model.length(), 30U);
}

TEST(ModelLayout, empty_layers_have_names_and_no_place) {
  gq::adapt::model_layout model;
  model.add("a", {4}).add_at(2, "none", {0, 7}).add("b", {4});
  EXPECT_EQ(model[1].size, 0U);
  EXPECT_EQ(model[1].columns(), 0U);
  EXPECT_EQ(model[2].offset, 4U);
  EXPECT_EQ(model.length(), 8U);
}

TEST(ModelLayout, names_are_unique_and_unknown_ones_are_told) {
  gq::adapt::model_layout model;
  model.add("a", {4});
  EXPECT_THAT(refusal([&] { model.add("a", {4}); }), HasSubstr("layer \"a\": another layer has this name"));
  EXPECT_THAT(refusal([&] { static_cast<void>(model.find("b")); }),
              HasSubstr("none of the 1 layers has the name \"b\""));
  EXPECT_THAT(refusal([&] { static_cast<void>(model.find("b\x1b[31m\n\x7f")); }),
              HasSubstr("has the name \"b?[31m??\""));
}

TEST(ModelLayout, more_than_2_to_the_48_values_are_refused_also_where_the_product_overflows) {
  gq::adapt::model_layout model;
  std::uint64_t const half = std::uint64_t{1} << 24;
  EXPECT_THAT(refusal([&] { model.add("a", {half, half, 2}); }), HasSubstr("more than 2^48 values"));
  EXPECT_THAT(refusal([&] { model.add("a", {half, half, half, half}); }), HasSubstr("more than 2^48 values"));
  model.add("a", {half, half});
  EXPECT_THAT(refusal([&] { model.add("b", {1}); }), HasSubstr("end beyond 2^48 values"));
}

}  // namespace
