// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Filters: which layers travel as float32, and why; buckets of whole rows.

#include <globalq/train/adapt/filter.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;
using gq::adapt::filter;

namespace {

gq::adapt::model_layout resnet_like() {
  gq::adapt::model_layout m;
  m.add("conv1.weight", {64, 3, 7, 7}).add("bn1.weight", {64}).add("bn1.bias", {64});
  m.add("fc.weight", {10, 512}).add("fc.bias", {10});
  return m;
}

std::string kept(gq::adapt::model_layout const& model, filter const& f) {
  std::string names;
  for (auto const& l : model)
    if (f(l)) names += l.name + " ";
  return names;
}

TEST(Filter, keeps_nothing_until_it_is_told_to) { EXPECT_EQ(kept(resnet_like(), filter{}), ""); }

TEST(Filter, names_are_shell_patterns_of_the_whole_name) {
  EXPECT_EQ(kept(resnet_like(), filter{}.named("*.bias")), "bn1.bias fc.bias ");
  EXPECT_EQ(kept(resnet_like(), filter{}.named("bias")), "");
  EXPECT_EQ(kept(resnet_like(), filter{}.named("bn?.*").named("fc.[wx]eight")),
            "bn1.weight bn1.bias fc.weight ");
}

TEST(Filter, sizes_and_dimensions_are_lower_bounds_of_what_is_quantized) {
  EXPECT_EQ(kept(resnet_like(), filter{}.below(64)), "fc.bias ");
  EXPECT_EQ(kept(resnet_like(), filter{}.below(65)), "bn1.weight bn1.bias fc.bias ");
  EXPECT_EQ(kept(resnet_like(), filter{}.below_dimensions(2)), "bn1.weight bn1.bias fc.bias ");
  EXPECT_EQ(kept(resnet_like(), filter{}.below_dimensions(3)), "bn1.weight bn1.bias fc.weight fc.bias ");
}

TEST(Filter, rules_of_the_papers) {
  EXPECT_EQ(kept(resnet_like(), filter::cgx()), "bn1.weight bn1.bias fc.bias ");
  EXPECT_EQ(kept(resnet_like(), filter::qsgd()), "conv1.weight bn1.weight bn1.bias fc.weight fc.bias ");
  gq::adapt::model_layout m;
  m.add("h.0.ln_1.weight", {2, 8}).add("h.0.attn.weight", {100, 100}).add("encoder.layer_norm.gain", {4, 4});
  EXPECT_EQ(kept(m, filter::cgx()), "h.0.ln_1.weight encoder.layer_norm.gain ");
  EXPECT_EQ(kept(m, filter::qsgd()), "h.0.ln_1.weight encoder.layer_norm.gain ");
}

TEST(Filter, says_why) {
  auto const m = resnet_like();
  EXPECT_EQ(filter{}.named("*.bias").reason(m[2]), "its name matches *.bias");
  EXPECT_EQ(filter{}.below(100).reason(m[1]), "its 64 values are fewer than 100");
  EXPECT_EQ(filter{}.below_dimensions(2).reason(m[1]), "its 1 dimensions are fewer than 2");
  EXPECT_EQ(filter{}.below_dimensions(2).reason(m[0]), "");
}

TEST(BucketOfWholeRows, is_the_longest_that_parts_no_row) {
  gq::adapt::model_layout m;
  m.add("conv", {64, 3, 7, 7})
      .add("wide", {4, 1000})
      .add("vector", {777})
      .add("even", {8, 64})
      .add("none", {0, 3});
  EXPECT_EQ(bucket_of_whole_rows(m[0], 512), 441U) << "three rows of 147";
  EXPECT_EQ(bucket_of_whole_rows(m[1], 512), 1000U) << "a row is longer than the bucket";
  EXPECT_EQ(bucket_of_whole_rows(m[2], 512), 512U) << "nothing to part";
  EXPECT_EQ(bucket_of_whole_rows(m[3], 512), 512U);
  EXPECT_EQ(bucket_of_whole_rows(m[4], 512), 512U);
}

}  // namespace
