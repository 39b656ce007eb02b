// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief EDEN: its centroids, its variance, its bias where it has one, and everything that calls promise.

#include "tests/quantizer/checked_codec.hpp"
#include "tests/quantizer/checked_mean.hpp"
#include "tests/quantizer/heavy_tails.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/eden.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/schedule/hierarchical.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/learn/nearest.hpp>
#include <globalq/train/learn/truncated_normal.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <globalq/named/operators.hpp>

#include <limits>

namespace gq = globalq;
namespace learn = globalq::learn;

namespace eden_test {

using namespace support;
template <class T>
using vectors = std::vector<std::vector<T>>;

gq::any_quantizer of_name(std::string const& words) {
  return gq::named::operator_of(gq::named::read_operator(words));
}
gq::any_quantizer eden(int bits, int rotations = 1) {
  return of_name("eden:" + std::to_string(bits) + ",rotations=" + std::to_string(rotations));
}

/// |z| / top of a normal z, where all values above top count as top.
struct cut_normal {
  double top;
  learn::moments below(double t) const {
    learn::moments const m = learn::detail::normal_moments(0, 1 / top, t >= 1 ? 40 : t);
    return {2 * m.mass, 2 * m.first, 2 * m.second};
  }
  double quantile(double) const { return 0; }  // not used
};
/// The centroids of a normal distribution above zero: the library's iteration moves all but the largest, whose distance is the
/// unit; that becomes the mean of its cell too.
std::vector<double> solved_centroids(std::uint32_t size, double& error) {
  double top = 1 + size * 0.2, moved = 1;
  learn::solution r;
  std::optional<learn::level_set> start;
  for (int k = 0; k < 5000 && std::abs(moved) > 1e-13; ++k) {
    cut_normal const f{top};
    r = learn::lloyd{.size = size, .zero_free = true, .start = start, .max_steps = 50, .tolerance = 1e-15}(f);
    start = r.levels;
    auto const& l = r.levels.values;
    learn::moments const last = f.below(1) - f.below(size == 1 ? 0 : 0.5 * (l[size - 2] + 1));
    moved = last.first / last.mass - 1;
    top *= 1 + moved;
  }
  error = r.variance * top * top;
  for (double& l : r.levels.values) l *= top;
  return r.levels.values;
}

constexpr double theory[] = {0.5708, 0.1331, 0.03578, 0.009592};  ///< 1 / (1 - D) - 1 at 1 to 4 bits

TEST(Eden, its_centroids_are_those_of_the_solver_and_of_the_literature) {
  // Max 1960, Quantizing for minimum distortion, table I
  std::vector<std::vector<double>> const known = {
      {0.7980},
      {0.4528, 1.510},
      {0.2451, 0.7560, 1.344, 2.152},
      {0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733}};
  for (int bits = 1; bits <= 4; ++bits) {
    std::span<double const> const own = gq::detail::normal_centroids(bits);
    double error = 0;
    std::vector<double> const solved = solved_centroids(1U << (bits - 1), error);
    ASSERT_EQ(own.size(), solved.size());
    for (std::size_t k = 0; k < own.size(); ++k) {
      EXPECT_NEAR(own[k], solved[k], 2e-7) << bits;
      EXPECT_NEAR(own[k], known[static_cast<std::size_t>(bits - 1)][k], 6e-4) << bits;
    }
    EXPECT_NEAR(1 / (1 - error) - 1, theory[bits - 1],
                1e-4 * theory[bits - 1] + 1e-6 + 1e-3 * theory[bits - 1])
        << bits;
  }
}

template <class T>
vectors<T> drawn_of(int n, std::size_t d) {
  vectors<T> x;
  for (int r = 0; r < n; ++r) x.push_back(normal_or_heavy<T>(d, 100 + static_cast<std::uint64_t>(r)));
  return x;
}
struct errors {
  double relative = 0;  ///< mean square of the error of the mean, over the mean square of the vectors
  double bias =
      0;  ///< square of the mean error, over the same: from halves of the calls, so that it is unbiased
};
errors measure(vectors<float> const& x, gq::any_quantizer const& op, int steps) {
  std::size_t const d = x[0].size();
  std::vector<double> mean(d), half[2] = {std::vector<double>(d), std::vector<double>(d)};
  double square = 0;
  for (auto const& v : x) {
    square += square_of(v) / static_cast<double>(x.size());
    for (std::size_t i = 0; i < d; ++i) mean[i] += static_cast<double>(v[i]) / static_cast<double>(x.size());
  }
  errors e;
  on_threads(static_cast<int>(x.size()), std::chrono::seconds{60}, [&](auto& workers) {
    gq::allreduce_mean call{workers, op, gq::schedule::allgather{}, {.seed = 77}};
    std::vector<float> y(d);
    for (int s = 0; s < steps; ++s) {
      call(x[static_cast<std::size_t>(workers.rank())], y, static_cast<std::uint64_t>(s));
      if (workers.rank() != 0) continue;
      for (std::size_t i = 0; i < d; ++i) {
        double const off = static_cast<double>(y[i]) - mean[i];
        e.relative += off * off / steps / square;
        half[s % 2][i] += off / (steps / 2);
      }
    }
  });
  for (std::size_t i = 0; i < d; ++i) e.bias += half[0][i] * half[1][i] / square;
  return e;
}

/// An error of a block has hardly any variance: 64 calls of 8 or 2 blocks are within 2 %. The bias of n calls deviates by
/// about sqrt(2 / d) of the variance over n: less than 1e-3 of the norm squared. One large value makes half of a rotated block
/// one number, up to its sign: less variance, and a bias. A shared rotation before spreads it.
TEST(Eden, its_variance_is_that_of_theory_on_normal_and_heavy_tailed_vectors) {
  for (std::size_t block : {1024U, 4096U})
    for (int bits = 1; bits <= 4; ++bits)
      for (bool const heavy : {false, true})
        for (int rotations : {1, 2}) {
          std::string const words = "eden:" + std::to_string(bits) + ",block=" + std::to_string(block) +
                                    ",rotations=" + std::to_string(rotations);
          errors const e = measure({normal_or_heavy(8192, 5, heavy)}, of_name(words), 64);
          double const share = e.relative / theory[bits - 1];
          EXPECT_LT(share, 1.05) << words << (heavy ? " heavy" : " normal");
          if (heavy && rotations == 1) continue;
          EXPECT_GT(share, 0.95) << words << (heavy ? " heavy" : " normal");
          EXPECT_LT(std::abs(e.bias), 2e-3) << words << (heavy ? " heavy" : " normal");
        }
}

/// Of two values a > b > 0 in a block, all rotated values have the sign of a's at 1 bit: the block decodes to (a + b^2 / a, 0)
/// whatever the signs, with a bias of b / a of the norm. No two values remain after a shared rotation.
TEST(Eden, it_is_biased_on_two_values_and_not_after_a_shared_rotation) {
  std::vector<float> x(1024);
  x[3] = 1;
  x[700] = -0.5F;
  errors const e = measure({x}, eden(1), 40);
  EXPECT_NEAR(std::sqrt(e.bias), 0.5, 1e-3);
  EXPECT_NEAR(e.relative, 0.25, 1e-3);
  for (int bits = 1; bits <= 4; ++bits) {
    errors const spread = measure({x}, eden(bits, 2), 400);
    EXPECT_NEAR(spread.relative / theory[bits - 1], 1, 0.05) << bits;
    EXPECT_LT(std::abs(spread.bias), 2e-4) << bits;
  }
}

/// Each worker has a rotation of its own, so errors are independent even of equal vectors.
TEST(Eden, errors_of_the_mean_fall_with_the_number_of_workers) {
  for (int bits : {1, 3})
    for (bool const equal : {false, true})
      for (int n : {4, 16}) {
        vectors<float> x;
        for (int r = 0; r < n; ++r)
          x.push_back(normal_or_heavy(4096, equal ? 1U : 1U + static_cast<std::uint64_t>(r)));
        EXPECT_NEAR(n * measure(x, eden(bits), 30).relative / theory[bits - 1], 1, 0.05)
            << bits << " " << n << equal;
      }
}

template <class T>
class EdenTypes : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(EdenTypes, value_types);

/// Each rounding adds .0096 of the square of what it encodes; a short block is worse, by less than 30 times.
TYPED_TEST(EdenTypes, all_workers_hold_the_same_bits_near_the_mean) {
  for (int n = 1; n <= 9; ++n)
    for (auto const& [words, schedule] :
         std::vector<std::pair<std::string, std::string>>{{"eden:4,block=64", "allgather"},
                                                          {"eden:4", "sra"},
                                                          {"eden:4,block=256,rotations=2", "allgather"},
                                                          {"eden:4,block=2", "ring"},
                                                          {"eden:4,block=128", "tree"},
                                                          {"eden:4,block=512", "hierarchical:2"}})
      for (std::size_t d : {0U, 1U, 2U, 3U, 31U, 100U, 255U, 257U, 1000U, 2049U}) {
        if (n > 5 && d % 10 != 0 && d != 257) continue;
        auto const x = drawn_of<TypeParam>(n, d);
        auto const y = checked_mean(x, of_name(words), schedule)[0];
        double squares = 0, error = 0;
        for (auto const& v : x) squares += square_of(v) / n;
        for (std::size_t i = 0; i < d; ++i) {
          double mean = 0;
          for (auto const& v : x) mean += to_double(v[i]) / n;
          error += std::pow(to_double(y[i]) - mean, 2);
        }
        double const roundings =
            schedule == "ring" ? n : (schedule == "tree" || schedule == "hierarchical:2" ? 5 : 2);
        ASSERT_LE(error, 0.3 * roundings * squares) << words << " on " << schedule << ", " << n << " x " << d;
        if (d >= 1000) {
          ASSERT_LE(error, 0.015 * roundings * squares)
              << words << " on " << schedule << ", " << n << " x " << d;
        }
      }
}

/// A block with one value has rotated values of one magnitude, the same code, and decodes exactly but for rounding.
TYPED_TEST(EdenTypes, nothing_overflows_at_either_end_of_the_range) {
  double const most = std::is_same_v<TypeParam, double>         ? std::numeric_limits<double>::max()
                      : std::is_same_v<TypeParam, float>        ? 0x1.fffffep127
                      : std::is_same_v<TypeParam, gq::bfloat16> ? 0x1.fep127
                                                                : 65504;
  double const least = std::is_same_v<TypeParam, gq::float16> ? 0x1p-20
                       : std::is_same_v<TypeParam, double>    ? 0x1p-1060
                                                              : 0x1p-126;
  for (double size : {most / 2, most * 0x1p-20, 1.0, least})
    for (int n : {1, 4})
      for (char const* schedule : {"allgather", "sra"})
        for (bool const one : {false, true}) {
          std::vector<TypeParam> v(2048, value_from<TypeParam>(one ? 0 : size / 4));
          if (one) v[7] = v[1500] = value_from<TypeParam>(size);
          vectors<TypeParam> const x(static_cast<std::size_t>(n), v);
          auto const y = checked_mean(x, eden(4), schedule)[0];
          double error = 0, squares = 0;
          for (std::size_t i = 0; i < v.size(); ++i) {
            error += std::pow(to_double(y[i]) / size - to_double(v[i]) / size, 2);
            squares += std::pow(to_double(v[i]) / size, 2);
          }
          ASSERT_LE(error, 0.03 * squares + (size == least ? 2048 * 0x1p-6 : 0))
              << size << ", " << n << schedule << one;
        }
  std::vector<TypeParam> half(2048, value_from<TypeParam>(0));
  half[5] = value_from<TypeParam>(1);
  auto const y = checked_mean(vectors<TypeParam>(3, half), eden(2), "sra")[0];
  for (std::size_t i = 1024; i < half.size(); ++i) ASSERT_EQ(to_double(y[i]), 0) << "a block of zeros";
}

TYPED_TEST(EdenTypes, a_codec_of_single_vectors_has_the_results_of_a_call) {
  for (std::size_t d : {1U, 100U, 1500U})
    for (gq::any_quantizer const& op : {eden(2), of_name("eden:4,block=64"), eden(3, 2)})
      expect_codec_of_call(drawn_of<TypeParam>(3, d), op,
                           {{5, 3, 2}, {5, 4, 1}, {6, 3, 1}});  // other rotations
}

TEST(EdenRules, frames_of_the_quantizer_and_bad_scales_are_refused) {
  gq::quantizer const plain{gq::norm::local<2>{1024}, gq::detail::levels_of_eden(2), gq::rounding::nearest{},
                            gq::wire::packed<2>{}};
  std::vector<double> const x = normal_or_heavy<double>(2000, 3);
  std::vector<double> y(x.size(), 7.0);
  gq::vector_codec codec(gq::eden{plain}, Kokkos::Serial(), gq::frame_checksum::none),
      other(plain, Kokkos::Serial(), gq::frame_checksum::none);
  std::vector<std::byte> frame(codec.frame_bytes(x.size(), gq::dtype::float64));
  ASSERT_EQ(frame.size(), other.frame_bytes(x.size(), gq::dtype::float64));
  codec.encode(x, {1, 2, 0}, frame);
  EXPECT_THROW(other.decode(frame, {1, 2, 0}, y), gq::frame_error);
  for (double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    auto damaged = frame;
    std::memcpy(damaged.data() + 16 + 8, &bad, 8);
    EXPECT_THROW(codec.decode(damaged, {1, 2, 0}, y), gq::frame_error) << bad;
  }
  EXPECT_EQ(y, std::vector<double>(x.size(), 7.0));
  codec.decode(frame, {1, 2, 0}, y);
  other.encode(x, {1, 2, 0}, frame);
  EXPECT_THROW(codec.decode(frame, {1, 2, 0}, y), gq::frame_error);
  std::vector<std::byte> room(codec.frame_bytes(2, gq::dtype::float64));
  for (auto const& [huge, what] :
       {std::pair{std::vector{1e308, -1.7e308}, "the norm of"},
        // 1.751e308; the scale is 1.07 times it, as the rotated values are 0.97 and 1.03 times
        // their root mean square, one on each side of the levels' middle, 0.98
        std::pair{std::vector{1.7498e308, 0.0525e308}, "the scale of"}})
    EXPECT_THAT(
        [&] {
          codec.encode(huge, {1, 2, 0}, room);
        },
        testing::ThrowsMessage<gq::non_finite_error>(testing::HasSubstr(what)));
}

TEST(EdenRules, what_cannot_carry_it_is_refused) {
  using testing::HasSubstr;
  auto const refusal = [](gq::any_quantizer const& op, char const* schedule) {
    return gq::plan_for(op, gq::schedule::any{schedule}, 4, 5000).refusal;
  };
  EXPECT_THAT(refusal(eden(2), "native"), HasSubstr("use reduce::requantize on schedule ring, tree or sra"));
  EXPECT_THAT(refusal(gq::error_feedback{eden(2)}, "allgather"), HasSubstr("remove error_feedback"));
  gq::plan const p = gq::plan_for(eden(2), gq::schedule::allgather{}, 4, 4096);
  EXPECT_TRUE(p.fits);
  EXPECT_TRUE(std::isnan(p.theta));
  EXPECT_EQ(p.bits_per_value, 2 + (16.0 + 16) * 8 / 4096);
  for (std::uint64_t block : {0U, 1U, 3U, 1000U, 1U << 21})
    EXPECT_THROW(gq::operators::eden<2>(block), gq::configuration_error);
  EXPECT_THROW(gq::eden{gq::operators::cgx<2>()}, gq::configuration_error);
  EXPECT_THROW(gq::eden{gq::operators::amq<2>(0.3, 1024)}, gq::configuration_error);
  EXPECT_THROW((gq::eden{gq::quantizer{gq::norm::local<2>{1024}, gq::levels::symmetric{0.3, 1.0},
                                       gq::rounding::nearest{}, gq::wire::packed<2>{}}}),
               gq::configuration_error);
  EXPECT_THROW(gq::eden{gq::any_quantizer{eden(2)}}, gq::configuration_error);
  EXPECT_THROW(gq::eden{gq::uncompressed{}}, gq::configuration_error);
  on_threads(2, [&](auto& workers) {
    gq::allreduce_mean mean{workers, eden(2), gq::schedule::allgather{}};
    EXPECT_THROW(mean.set_levels(gq::levels::symmetric{0.25, 1.0}), gq::configuration_error);
    gq::allreduce_mean differs{workers, workers.rank() == 0 ? eden(2) : eden(2, 2),
                               gq::schedule::allgather{}};
    std::vector<float> x(1000, 1.0F);
    EXPECT_THROW(differs(x, 0), gq::disagreement_error);
  });
}

TEST(EdenRules, a_group_has_the_results_of_single_calls) {
  std::vector<std::size_t> const lengths = {300, 0, 1024, 77, 5000};
  on_threads(3, std::chrono::seconds{60}, [&](auto& workers) {
    gq::allreduce_mean mean{workers, eden(2), gq::schedule::allgather{}, {.seed = 5}};
    vectors<float> all, single;
    for (std::size_t d : lengths)
      all.push_back(drawn_of<float>(3, d)[static_cast<std::size_t>(workers.rank())]);
    single = all;
    gq::vector_group group;
    for (auto& v : all) group.add(v);
    mean(group, 10);
    for (std::size_t k = 0; k < single.size(); ++k) {
      mean(single[k], 10 + k);
      EXPECT_TRUE(same_bytes(all[k], single[k])) << k;
    }
  });
}

/// Chunks, shards and other wrappers, each near the mean: .0096 of the square with each rounding.
TEST(EdenRules, it_works_in_other_calls_and_inside_other_operators) {
  constexpr int n = 4;
  constexpr std::size_t d = 6001;
  auto const x = drawn_of<float>(n, d);
  auto const share_of_error = [&](std::vector<float> const& y) {
    double error = 0, squares = 0;
    for (std::size_t i = 0; i < d; ++i) {
      double mean = 0;
      for (auto const& v : x) mean += static_cast<double>(v[i]) / n, squares += std::pow(v[i], 2) / n;
      error += std::pow(static_cast<double>(y[i]) - mean, 2);
    }
    return error / squares;
  };
  on_threads(n, std::chrono::seconds{60}, [&](auto& workers) {
    auto const& own = x[static_cast<std::size_t>(workers.rank())];
    auto mine = own;
    gq::reduce_scatter_mean scatter{workers, eden(4), {.seed = 1}};
    gq::all_gather gather{workers, eden(4), {.seed = 2}};
    scatter(mine, 4);
    gather(mine, 4);
    EXPECT_LT(share_of_error(mine), 0.02);
    for (auto const& op :
         {gq::any_quantizer{gq::centered{eden(4)}}, gq::any_quantizer{gq::float32_tail{eden(4)}}}) {
      mine = own;
      gq::allreduce_mean{workers, op, gq::schedule::sra{}, {.seed = 3}}(mine, 4);
      EXPECT_LT(share_of_error(mine), 0.02) << op.facts().name;
    }
    // sums of nodes of three and one, which are averaged with weights
    mine = own;
    gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::allgather> const nodes(
        std::vector<int>{3, 1});
    gq::allreduce_mean{workers, eden(4), nodes, {.seed = 3}}(mine, 4);
    EXPECT_LT(share_of_error(mine), 0.02);
    gq::telemetry seen{{.errors = true}};
    std::vector<float> whole(d), chunks(d);
    gq::allreduce_mean{workers, eden(3), gq::schedule::sra{}, {.seed = 3, .telemetry = &seen}}(own, whole, 4);
    EXPECT_NEAR(seen.last().error_energy / seen.last().energy, theory[2], 0.1 * theory[2]);
    gq::allreduce_mean{workers, eden(3), gq::schedule::sra{}, {.seed = 3, .chunk_values = 1024}}(own, chunks,
                                                                                                 4);
    EXPECT_TRUE(same_bytes(whole, chunks));
  });
}

}  // namespace eden_test
