// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The histogram against a plain count, and its promise: the same bits in any order.

#include "globalq/train/learn/histogram.hpp"
#include "globalq/train/learn/normals.hpp"
#include "globalq/train/learn/optimal.hpp"

#include "tests/support/values.hpp"
#include "tests/train/learn/support.hpp"

#include <limits>

namespace globalq_test {
namespace {

using learn::histogram;
using learn::histogram_shape;
using learn::weighting;

gq::kernel::host_executor one_thread() { return gq::kernel::host_executor(Kokkos::Serial()); }

template <class Value>
gq::const_vector view(std::vector<Value> const& x, std::size_t from = 0) {
  return {x.data() + from, gq::dtype_of<Value>::value};
}

/// Roughly exponential magnitudes of both signs, from integers.
std::vector<float> values(std::uint32_t seed, std::size_t n, float scale = 1) {
  std::mt19937 draw(seed);
  std::vector<float> x(n);
  for (float& v : x) {
    std::uint32_t const bits = draw();
    v = scale * static_cast<float>(static_cast<std::int32_t>(bits >> 12) - (1 << 19)) *
        gq::power_of_two_float(-static_cast<int>(bits & 15));
  }
  return x;
}

/// Masses and first moments by bin, from the definition, in double.
struct plain_count {
  std::vector<double> mass, moment;

  plain_count(histogram const& h, std::vector<float> const& x, std::uint64_t bucket,
              std::vector<double> const& norms) {
    std::vector<double> const edge = h.edges();
    mass.assign(edge.size() - 1, 0);
    moment = mass;
    double total = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const unit = norms[bucket == 0 ? 0 : i / bucket];
      if (unit == 0) continue;
      double const r = std::fabs(static_cast<double>(x[i])) / unit;
      double const w = h.weights() == weighting::equal ? 1 : unit * unit;
      std::size_t const k = std::min<std::size_t>(
          static_cast<std::size_t>(std::upper_bound(edge.begin(), edge.end(), r) - edge.begin()) - 1,
          mass.size() - 1);
      mass[k] += w;
      moment[k] += w * r;
      total += w;
    }
    for (double& v : mass) v /= total;
    for (double& v : moment) v /= total;
  }
};

std::vector<double> largest_of_buckets(std::vector<float> const& x, std::uint64_t bucket) {
  std::vector<double> norms((x.size() + bucket - 1) / bucket, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    norms[i / bucket] = std::max(norms[i / bucket], std::fabs(static_cast<double>(x[i])));
  return norms;
}

TEST(Histogram, holds_mass_and_mean_of_each_bin) {
  for (auto const weights : {weighting::squared_norms, weighting::equal})
    for (std::uint64_t bucket : {1ULL, 37ULL, 512ULL, 5000ULL, 70000ULL, 200000ULL}) {
      std::vector<float> const x = values(3, 150001);
      std::vector<double> const norms = largest_of_buckets(x, bucket);
      histogram h({}, weights);
      h.add(one_thread(), view(x), x.size(), bucket, norms);
      learn::bins const b = h.result();
      plain_count const expected(h, x, bucket, norms);
      // A float32 ratio is off by 2^-24 of itself, and so is r + 2^-16: values next to an edge may be counted next door.
      // Compare sums up to each edge, with the mass within 2^-22 of it as tolerance, and the cuts of weights to 2^-32.
      double mass = 0, other_mass = 0, moment = 0, other_moment = 0;
      for (std::size_t k = 0; k < b.size(); ++k) {
        mass += b.mass[k];
        moment += b.mass[k] * b.mean[k];
        other_mass += expected.mass[k];
        other_moment += expected.moment[k];
        ASSERT_NEAR(mass, other_mass, 2e-3) << k;  // of 150,000 values some tie with an edge
        ASSERT_NEAR(moment, other_moment, 2e-3) << k;
        ASSERT_GE(b.mean[k], b.edge[k]);
        ASSERT_LE(b.mean[k], b.edge[k + 1]);
      }
      EXPECT_NEAR(mass, 1, 1e-12);
      // ratios 2^-23, the clamp at 1 - 2^-16 for the largest, which are at most all values (bucket 1)
      EXPECT_NEAR(moment, other_moment, 0x1p-15 * other_moment + 1e-9);
    }
}

TEST(Histogram, bins_are_exact_for_values_inside_them) {
  // magnitudes whose ratio to the norm 1 lies well inside known bins
  histogram h;
  std::vector<double> const edge = h.edges();
  std::vector<float> x;
  std::vector<std::size_t> in;
  for (std::size_t k = 0; k < edge.size() - 1; k += 7)
    for (double share : {0.25, 0.5, 0.75}) {
      x.push_back(static_cast<float>(edge[k] + share * (edge[k + 1] - edge[k])));
      in.push_back(k);
    }
  h.add(one_thread(), view(x), x.size(), 0, std::vector<double>{1.0});
  learn::bins const b = h.result();
  double const each = 1.0 / static_cast<double>(x.size());
  for (std::size_t k = 0; k < b.size(); ++k) {
    ASSERT_NEAR(b.mass[k], k % 7 == 0 ? 3 * each : 0.0, 1e-15) << k;
    // y has 24 bits, so r is known to 2^-24 of y <= edge + 2^-16
    if (k % 7 == 0) {
      ASSERT_NEAR(b.mean[k], 0.5 * (edge[k] + edge[k + 1]),
                  0x1p-23 * (edge[k + 1] + 0x1p-16) + (k + 1 == b.size() ? 0x1p-16 : 0));
    }
  }
}

TEST(Histogram, edges_are_even_near_zero_and_have_a_constant_ratio_above) {
  histogram const h(histogram_shape{.octaves = 4, .fraction_bits = 6});
  std::vector<double> const e = h.edges();
  ASSERT_EQ(e.size(), 257U);
  EXPECT_EQ(e.front(), 0);
  EXPECT_EQ(e.back(), 1);
  for (std::size_t k = 0; k + 2 < e.size(); ++k) {
    double const width = e[k + 1] - e[k];
    EXPECT_EQ(width, std::exp2(static_cast<double>(k / 64) - 4 - 6));
  }
}

bool same(histogram const& a, histogram const& b) {
  return a.exponent() == b.exponent() &&
         std::equal(a.sums().begin(), a.sums().end(), b.sums().begin(), b.sums().end());
}

TEST(Histogram, is_the_same_for_any_number_of_threads) {
  std::vector<float> const x = values(8, 1 << 20);
  for (std::uint64_t bucket : {64ULL, 1000ULL, 100000ULL, 0ULL}) {
    histogram one, all;
    one.add(one_thread(), view(x), x.size(), bucket, 2U);
    for (int k = 0; k < 3; ++k) {
      all.clear();
      all.add(gq::kernel::host_executor(Kokkos::DefaultHostExecutionSpace()), view(x), x.size(), bucket, 2U);
      EXPECT_TRUE(same(one, all));
    }
  }
}

TEST(Histogram, parts_of_equal_exponents_add_up_to_the_whole_in_any_order) {
  // the same largest norm in each part, so that weights are measured alike
  std::vector<float> x = values(2, 40000);
  for (std::size_t i = 0; i < x.size(); i += 10000) x[i] = 1.5e6F;
  std::vector<histogram> parts(4);
  histogram whole;
  whole.add(one_thread(), view(x), x.size(), 100, gq::infinity);
  for (std::size_t k = 0; k < 4; ++k)
    parts[k].add(one_thread(), view(x, k * 10000), 10000, 100, gq::infinity);
  for (auto const& order : std::vector<std::vector<std::size_t>>{{0, 1, 2, 3}, {3, 1, 0, 2}, {2, 3, 1, 0}}) {
    histogram sum;
    for (std::size_t k : order) sum += parts[k];
    EXPECT_TRUE(same(sum, whole));
  }
}

TEST(Histogram, larger_norms_that_come_later_only_round_what_is_there) {
  std::vector<float> const small = values(1, 5000, 0x1p-9F), large = values(2, 5000);
  histogram first, second;
  first.add(one_thread(), view(small), small.size(), 100, gq::infinity);
  first.add(one_thread(), view(large), large.size(), 100, gq::infinity);
  second.add(one_thread(), view(large), large.size(), 100, gq::infinity);
  second.add(one_thread(), view(small), small.size(), 100, gq::infinity);
  EXPECT_EQ(first.exponent(), second.exponent());
  learn::bins const a = first.result(), b = second.result();
  // 50 buckets a part; each weight is rounded to 2^-32 of the largest, each bin once more
  for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a.mass[k], b.mass[k], 100 * 0x1p-31);
}

TEST(Histogram, takes_every_type_and_unaligned_starts) {
  auto const check = [&](auto zero) {
    using value = decltype(zero);
    auto const x = support::values_of<value>(7, 3001);
    std::vector<float> as_float;
    for (value const& v : x) as_float.push_back(static_cast<float>(v));
    for (std::size_t from : {0U, 1U, 3U}) {
      std::vector<float> const rest(as_float.begin() + static_cast<std::ptrdiff_t>(from), as_float.end());
      histogram a, b;
      a.add(one_thread(), view(x, from), rest.size(), 256, gq::infinity);
      b.add(one_thread(), view(rest), rest.size(), 256, gq::infinity);
      learn::bins const p = a.result(), q = b.result();
      // scaled by another power of two before the ratio is taken: a value near an edge may move by a bin
      double mass = 0;
      for (std::size_t k = 0; k < p.size(); ++k) {
        mass += p.mass[k] - q.mass[k];
        ASSERT_NEAR(mass, 0, 0.02);
      }
      EXPECT_NEAR(learn::piecewise_uniform(p).below(1).first, learn::piecewise_uniform(q).below(1).first,
                  1e-6);
    }
  };
  check(double{});
  check(gq::float16{});
  check(gq::bfloat16{});
}

TEST(Histogram, works_at_both_ends_of_the_range) {
  auto const shape_of = [](auto scale) {
    std::vector<decltype(scale)> x;
    for (int k = 1; k <= 1024; ++k) x.push_back(scale * static_cast<decltype(scale)>(k));
    histogram h;
    h.add(one_thread(), view(x), x.size(), 0, gq::infinity);
    return h.result();
  };
  learn::bins const usual = shape_of(1.0F);
  for (learn::bins const& b :
       {shape_of(0x1p-149F), shape_of(0x1p-130F), shape_of(0x1p100F), shape_of(0x1p117F), shape_of(0x1p-1074),
        shape_of(0x1p-1030), shape_of(0x1p1000), shape_of(0x1p1013)})
    for (std::size_t k = 0; k < b.size(); ++k) {
      ASSERT_EQ(b.mass[k], usual.mass[k]) << k;  // powers of two change no ratio
      ASSERT_EQ(b.mean[k], usual.mean[k]) << k;
    }
}

TEST(Histogram, leaves_out_what_is_zero_or_not_finite) {
  std::vector<float> x(300, 0.0F);
  histogram h;
  h.add(one_thread(), view(x), 0, 100, gq::infinity);
  EXPECT_TRUE(h.empty());
  h.add(one_thread(), view(x), x.size(), 100, gq::infinity);
  EXPECT_TRUE(h.empty());
  EXPECT_FALSE(h.non_finite());
  EXPECT_THROW(h.result(), gq::configuration_error);
  for (std::size_t i = 100; i < 200; ++i) x[i] = 0.25F;
  x[250] = std::numeric_limits<float>::quiet_NaN();
  h.add(one_thread(), view(x), x.size(), 100, gq::infinity);
  EXPECT_TRUE(h.non_finite());
  learn::bins const b = h.result();
  EXPECT_EQ(b.mass.back(), 1);  // the bucket of equal values, each as large as its norm
  h.clear();
  x[250] = std::numeric_limits<float>::infinity();
  h.add(one_thread(), view(x), x.size(), 100, 2U);
  EXPECT_TRUE(h.non_finite());
}

TEST(Histogram, levels_of_its_bins_are_within_the_bound_of_the_best_for_the_values) {
  // docs/theory.md, "Bins": the excess is at most the sum over levels of w (next level - level before) h / 4, w and h the
  // mass and width of the bin that the level lies in
  for (std::uint32_t seed : {1U, 2U, 3U})
    for (std::uint32_t size : {3U, 15U, 40U}) {
      std::vector<float> const x = values(seed, 3000);
      histogram h;
      h.add(one_thread(), view(x), x.size(), 0, 2U);
      learn::bins const b = h.result();
      double norm = 0;
      for (float v : x) norm += static_cast<double>(v) * static_cast<double>(v);
      norm = std::sqrt(norm);
      learn::atoms all;
      for (float v : x) all.at.push_back(std::fabs(static_cast<double>(v)) / norm);
      std::sort(all.at.begin(), all.at.end());
      all.mass.assign(all.at.size(), 1.0);
      auto const of_values = [&](learn::level_set const& l) {
        double sum = 0;
        for (double r : all.at) {
          auto const c = std::lower_bound(l.values.begin() + 1, l.values.end() - 1, r);
          sum += (*c - r) * (r - *(c - 1));
        }
        return sum / static_cast<double>(all.at.size());
      };
      learn::level_set const best = learn::optimal{.size = size}(all).levels;
      learn::level_set const found = learn::optimal{.size = size}(learn::atoms{b.mean, b.mass}).levels;
      double bound = 0;
      for (std::size_t i = 1; i + 1 < found.values.size(); ++i) {
        std::size_t const k = static_cast<std::size_t>(
            std::upper_bound(b.edge.begin(), b.edge.end(), found.values[i]) - b.edge.begin() - 1);
        bound += b.mass[k] * (found.values[i + 1] - found.values[i - 1]) * (b.edge[k + 1] - b.edge[k]) / 4;
      }
      double const least = of_values(best), mine = of_values(found);
      EXPECT_LE(mine,
                least + bound * (1 + 1e-3) + 1e-12);  // magnitudes are rounded to 2^-24 in the histogram
      EXPECT_GE(mine, least - 1e-15);
      EXPECT_LE(learn::variance(learn::piecewise_uniform(b), learn::optimal{.size = size}(b).levels),
                learn::variance(learn::piecewise_uniform(b), found) + 1e-15);  // sweeps never raise it
    }
}

TEST(Histogram, refuses_shapes_and_norms_that_do_not_fit) {
  EXPECT_THROW(histogram(histogram_shape{.octaves = 1}), gq::configuration_error);
  EXPECT_THROW(histogram(histogram_shape{.octaves = 65}), gq::configuration_error);
  EXPECT_THROW(histogram(histogram_shape{.fraction_bits = 5}), gq::configuration_error);
  EXPECT_THROW(histogram(histogram_shape{.fraction_bits = 13}), gq::configuration_error);
  std::vector<float> const x(10, 1.0F);
  histogram h;
  EXPECT_THROW(h.add(one_thread(), view(x), 10, 4, std::vector<double>{1, 1}), gq::configuration_error);
  histogram equal({}, weighting::equal), fine(histogram_shape{.fraction_bits = 8});
  EXPECT_THROW(h += equal, gq::configuration_error);
  EXPECT_THROW(h += fine, gq::configuration_error);
}

TEST(Histogram, cells_hold_their_largest_sums) {
  // 2^17 equal values at the top of a bin with the largest weight: the sums of a block come within a bit of 2^64
  std::vector<float> const x(1 << 17, 1.0F);
  histogram h(histogram_shape{.octaves = 2, .fraction_bits = 6});
  h.add(one_thread(), view(x), x.size(), 0,
        std::vector<double>{std::nextafter(2.0, 0.0)});  // ratio 1/2, weight 2^31
  learn::bins const b = h.result();
  double mean = 0;
  for (std::size_t k = 0; k < b.size(); ++k) mean += b.mass[k] * b.mean[k];
  EXPECT_NEAR(mean, 0.5, 0x1p-23);
}

TEST(Wide, adds_carries_and_rounds_when_shifted) {
  using learn::detail::wide;
  wide a{~0ULL, 5};
  a += 1;
  EXPECT_EQ(a, (wide{0, 6}));
  a += wide{~0ULL, 1};
  EXPECT_EQ(a, (wide{~0ULL, 7}));
  a.shift_down(1);
  EXPECT_EQ(a, (wide{0, 4}));  // 2^66 - 1/2 to nearest
  a.shift_down(0);
  EXPECT_EQ(a, (wide{0, 4}));
  a.shift_down(64);
  EXPECT_EQ(a, (wide{4, 0}));
  a = {0, 1ULL << 63};
  a.shift_down(127);
  EXPECT_EQ(a, (wide{1, 0}));
  a = {0, 1ULL << 63};
  a.shift_down(128);
  EXPECT_EQ(a, (wide{0, 0}));
  EXPECT_EQ((wide{1, 1}.value()), 0x1p64 + 1);
}

TEST(Normals, find_mean_and_deviation_of_sampled_buckets) {
  std::vector<float> x(1000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 1.0F : 0.5F;  // mean 0.75, deviation 0.25
  for (std::size_t i = 500; i < 1000; ++i) x[i] *= 2;
  learn::normals s(20);
  std::vector<double> const norms{1, 1, 2, 2};
  s.measure(one_thread(), view(x), x.size(), 250, norms);
  ASSERT_EQ(s.parts().size(), 4U);
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_NEAR(s.parts()[k].mean, 0.75, 1e-12);
    EXPECT_NEAR(s.parts()[k].deviation, 0.25, 1e-12);
    EXPECT_EQ(s.parts()[k].norm, norms[k]);
  }
  learn::normals two(2);
  two.measure(one_thread(), view(x), x.size(), 250, norms);
  ASSERT_EQ(two.parts().size(), 2U);
  EXPECT_EQ(two.parts()[0].norm, 1);
  EXPECT_EQ(two.parts()[1].norm, 2);
  // both the mixture of equal normals and their average are that normal
  std::vector<double> const edge = histogram{}.edges();
  learn::bins const expected = learn::discretize(learn::truncated_normal(0.75, 0.25), edge);
  for (auto const weights : {weighting::squared_norms, weighting::equal}) {
    learn::normals n(20, weights);
    n.measure(one_thread(), view(x), x.size(), 250, norms);
    learn::bins const b = n.result(edge);
    for (std::size_t k = 0; k < b.size(); ++k) ASSERT_NEAR(b.mass[k], expected.mass[k], 1e-12);
  }
  std::vector<float> const flat(100, 1.0F);
  s.measure(one_thread(), view(flat), 100, 10, std::vector<double>(10, 1.0));
  EXPECT_TRUE(s.empty());
  EXPECT_THROW(s.result(edge), gq::configuration_error);
  EXPECT_THROW(learn::normals(0), gq::configuration_error);
}

}  // namespace
}  // namespace globalq_test
