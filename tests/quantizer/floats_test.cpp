// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Floating-point numbers of 16 bits: exact laws of rounding, the exact mean and variance of calls, no overflow in any
///        range, the same bits everywhere.

#include "tests/quantizer/checked_mean.hpp"
#include "tests/support/means.hpp"

#include <globalq/call/detail/opening.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/broadcast.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/kernel/host/leaves.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/schedule/native.hpp>

#include <gmock/gmock.h>

#include <limits>
#include <random>

namespace gq = globalq;

namespace floats_test {

using namespace support;
using testing::HasSubstr;

template <class Half>
double value_of(std::uint16_t bits) {
  return static_cast<double>(Half::widen(bits));
}

/// The number of words with which a value is rounded to the larger magnitude.
template <class Half>
std::uint64_t words_up(float x) {
  std::uint16_t const up = Half::round(x, 0);
  std::uint64_t low = 0, high = std::uint64_t{1} << 32;
  while (low < high) {
    std::uint64_t const middle = (low + high) / 2;
    if (Half::round(x, static_cast<std::uint32_t>(middle)) == up)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// @param bias  at most, in gaps times 2^32
template <class Half>
void expect_share_of_words(float x, double bias) {
  std::uint16_t const up = Half::round(x, 0), down = Half::round(x, ~0U);
  double const low = value_of<Half>(down), high = value_of<Half>(up), exact = static_cast<double>(x);
  if (up == down) {
    // words of 2^32 - 1 round up only if the share is 1
    ASSERT_NEAR(exact, low, std::fabs(value_of<Half>(static_cast<std::uint16_t>(down + 1)) - low) * 0x1p-32)
        << x;
    return;
  }
  ASSERT_EQ(up, down + 1) << x;
  double const share = (exact - low) / (high - low) * 0x1p32;
  ASSERT_NEAR(static_cast<double>(words_up<Half>(x)), share, bias) << x;
}

TEST(FloatsRounding, the_share_of_words_is_that_of_the_gap) {
  std::mt19937 draw(5);
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent)
    for (int k = 0; k < 40; ++k) {
      std::uint32_t const mantissa = k < 3 ? (k == 0 ? 0U : (k == 1 ? 1U : 0x7fffffU)) : draw() >> 9,
                          sign = static_cast<std::uint32_t>(k % 2) << 31;
      float const x = gq::float_of(sign | exponent << 23 | mantissa);
      if (std::fabs(x) <= 0x1.fep127F) expect_share_of_words<gq::bfloat16>(x, 0);
      if (std::fabs(x) <= 65504.0F) expect_share_of_words<gq::float16>(x, exponent < 113 ? 1 : 0);
      if (HasFailure()) return;
    }
}

TEST(FloatsRounding, values_of_16_bits_stay_and_what_is_beyond_becomes_infinite) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits)
    for (std::uint32_t word : {0U, 0x12345678U, ~0U}) {
      auto const h = static_cast<std::uint16_t>(bits);
      if ((h & 0x7fffU) <= 0x7f80U) {
        ASSERT_EQ(gq::bfloat16::round(gq::bfloat16::widen(h), word), h);
      }
      if ((h & 0x7fffU) <= 0x7c00U) {
        ASSERT_EQ(gq::float16::round(gq::float16::widen(h), word), h);
      }
    }
  float const infinite = std::numeric_limits<float>::infinity();
  for (std::uint32_t word : {0U, 0x12345678U, ~0U})
    for (float x : {65536.0F, 1e9F, infinite, gq::float_of(0x7f800001U), gq::float_of(0x7fffffffU)})
      for (float sign : {0.0F, -0.0F}) {
        float const v = std::copysign(x, std::copysign(1.0F, sign));
        EXPECT_EQ(gq::float16::round(v, word), std::signbit(v) ? 0xfc00U : 0x7c00U) << x;
        if (x > 1e30F || x != x) {
          EXPECT_GE(gq::bfloat16::round(v, word) & 0x7fffU, 0x7f80U) << x;
        }
        EXPECT_EQ(gq::bfloat16::round(v, word) >> 15, std::signbit(v) ? 1 : 0) << x;
      }
}

/// Values of a kind: each tile of the first kinds is rounded by the loop for it, those of the others in part or not at all.
float drawn_of(int kind, std::mt19937& draw) {
  auto const bits = static_cast<std::uint32_t>(draw());
  std::uint32_t const sign = bits & gq::float_sign;
  auto const within = [&](std::uint32_t least, std::uint32_t beyond) {
    return gq::float_of(sign | (least + static_cast<std::uint32_t>(draw()) % (beyond - least)));
  };
  switch (kind) {
    case 0:  // float16 without subnormals
      return within(0x38800000U, 0x47800000U);
    case 1:  // and zeros
      return draw() % 4 == 0 ? gq::float_of(sign) : within(0x38800000U, 0x47800000U);
    case 2:  // around the smallest and the largest of them
      return draw() % 2 == 0 ? within(0x387fe000U, 0x38802000U) : within(0x477fc000U, 0x47801000U);
    case 3:  // one in a thousand is smaller
      return draw() % 1000 == 0 ? within(1, 0x38800000U) : within(0x38800000U, 0x47800000U);
    case 4:
      return within(0, 0x38800000U);
    case 5:  // all finite ones
      return within(0, gq::float_infinity);
    default:  // and others
      return gq::float_of(draw() % 300 == 0 ? sign | gq::float_infinity | bits % 3 << (bits % 23) : bits);
  }
}

TEST(FloatsRounding, loops_give_the_bits_of_the_function) {
  auto const& leaf = gq::kernel::host::leaves_of_values();
  std::mt19937 draw(7);
  gq::random::stream const words{11, 1ULL << 40, 5, gq::random::purpose::requantize};
  constexpr std::uint64_t tile = (1ULL << 32) / 16 - 2;  // the first word of the counter overflows in it
  for (int kind = 0; kind < 7; ++kind)
    for (int count : {0, 1, 7, 16, 31, 255, 256, 257, 511, 512, 1000, 1023, 1024})
      for (float factor : {1.0F, 0x1p-20F, 0x1p60F}) {
        std::vector<float> x(static_cast<std::size_t>(count) + 1);
        for (float& v : x) v = drawn_of(kind, draw) / factor;
        for (gq::dtype type : {gq::dtype::bfloat16, gq::dtype::float16}) {
          std::vector<std::uint16_t> out(x.size() + 1, 0xabcdU);  // one more at each end
          leaf.round(type, x.data() + 1, factor, count, words, tile, out.data() + 1);
          for (std::size_t i = 1; i < x.size(); ++i) {
            float const v = gq::multiply(x[i], factor);
            std::uint32_t const word = words.word(tile * gq::random::tile_values + i - 1);
            ASSERT_EQ(out[i], type == gq::dtype::bfloat16 ? gq::bfloat16::round(v, word)
                                                          : gq::float16::round(v, word))
                << kind << ' ' << v << ' ' << i << " of " << count;
          }
          ASSERT_EQ(out.front(), 0xabcdU);
          ASSERT_EQ(out.back(), 0xabcdU);
        }
      }
}

template <class Half>
void expect_sums_and_means() {
  auto const& leaf = gq::kernel::host::leaves_of_values();
  constexpr gq::dtype type = gq::dtype_of<Half>::value;
  auto const bits = [](float v) {
    std::uint32_t const b = gq::bits_of(v);
    return (b & gq::float_magnitude) > gq::float_infinity ? gq::float_nan : b;
  };
  std::vector<std::uint16_t> x(1024);
  std::vector<float> own(1024, -0.0F);
  for (std::uint32_t first = 0; first < 0x10000U; first += 1021)  // each pattern, at different places
    for (int count : {1, 7, 16, 31, 1000, 1024}) {
      for (std::uint32_t i = 0; i < 1024; ++i) x[i] = static_cast<std::uint16_t>(first + i);
      for (std::uint32_t i = 1; i < 1024; i += 2) own[i] = gq::float_of((first * 1024 + i) * 2654435761U);
      std::vector<float> sum(1025, 5.0F), mean(1025, 5.0F);
      auto const end = static_cast<std::size_t>(count);
      leaf.add(own.data(), {x.data(), type}, 0, count, sum.data());
      for (std::size_t i = 0; i < end; ++i) ASSERT_EQ(bits(sum[i]), bits(own[i] + Half::widen(x[i]))) << x[i];
      for (gq::store_scale const& scale : {gq::store_scale(0.3), gq::store_scale(0x1.8p-130)}) {
        bool const beyond = leaf.scale_stored({x.data(), type}, 0, count, scale, mean.data());
        bool found = false;
        for (std::size_t i = 0; i < end; ++i) {
          bool const zero = (x[i] & 0x7fffU) == 0;  // a sum that starts at 0 is not -0
          ASSERT_EQ(bits(mean[i]), bits(zero ? 0.0F : scale(Half::widen(x[i])))) << x[i];
          found = found || !gq::is_finite(mean[i]);
        }
        ASSERT_EQ(beyond, found);
      }
      ASSERT_EQ(sum[end], 5.0F);
      ASSERT_EQ(mean[end], 5.0F);
    }
}
TEST(FloatsRounding, loops_add_and_scale_each_number) {
  expect_sums_and_means<gq::bfloat16>();
  expect_sums_and_means<gq::float16>();
}

template <class T>
using vectors = std::vector<std::vector<T>>;

template <class T>
vectors<T> drawn(int n, std::size_t d, int exponent = 0, double worker_offset = 0) {
  vectors<T> x(static_cast<std::size_t>(n), std::vector<T>(d));
  std::mt19937_64 draw(static_cast<std::uint64_t>(n) * 1000 + d);
  std::normal_distribution<double> normal(worker_offset, 1);
  for (auto& v : x)
    for (auto& each : v) {
      double const value = std::ldexp(normal(draw), exponent);
      if constexpr (std::is_same_v<T, double>)
        each = value;
      else
        each = static_cast<T>(static_cast<float>(value));
    }
  return x;
}

/// The mean of a coordinate, and of its magnitudes. Sums of the largest float64 do not overflow, and the smallest are exact.
struct exact_mean {
  long double mean = 0, size = 0;
  template <class T>
  exact_mean(vectors<T> const& x, std::size_t i) {
    for (auto const& v : x) {
      mean += static_cast<long double>(v[i]) / x.size();
      size += std::fabs(static_cast<long double>(v[i])) / x.size();
    }
  }
};

gq::any_quantizer const all_floats[] = {gq::operators::bfloat16(), gq::operators::float16(),
                                        gq::operators::bfloat16<gq::rounding::nearest>(),
                                        gq::operators::float16<gq::rounding::nearest>()};
gq::any_quantizer const unbiased_floats[] = {gq::operators::bfloat16(), gq::operators::float16()};

/// The power of two that float16 divides by; without ends of ranges.
double divisor_of(gq::any_quantizer const& op, vectors<float> const& x) {
  if (op.facts().floats.type == gq::dtype::bfloat16) return 1;
  float top = 0;
  for (auto const& v : x)
    for (float each : v) top = std::max(top, std::fabs(each));
  int const growth =
      std::ilogb(2 * static_cast<double>(x.size()) - 1) + 1 + static_cast<int>(x.size()) / 710 + 1;
  return std::ldexp(1.0, std::ilogb(top) + growth - 15);
}
float halved(gq::any_quantizer const& op, float v, std::uint32_t word) {
  bool const half = op.facts().floats.type == gq::dtype::float16;
  if (op.facts().floats.nearest)
    return half ? gq::float16::widen(gq::float16::round(v)) : gq::bfloat16::widen(gq::bfloat16::round(v));
  return half ? gq::float16::widen(gq::float16::round(v, word))
              : gq::bfloat16::widen(gq::bfloat16::round(v, word));
}

// Plain scalar code, from docs/theory.md and random::stream::word alone.
TEST(Floats, calls_give_the_bits_of_scalar_code) {
  for (gq::any_quantizer const& op : all_floats)
    for (int n : {1, 2, 3, 8})
      for (std::size_t d : {1U, 257U, 1500U}) {
        vectors<float> const x = drawn<float>(n, d);
        double const divisor = divisor_of(op, x);
        auto const word = [&](int worker, gq::random::purpose use, std::size_t i) {
          return gq::random::stream{9, 4, static_cast<std::uint32_t>(worker), use}.word(i);
        };
        auto const frame = [&](int r, std::size_t i) {
          return halved(op, static_cast<float>(x[static_cast<std::size_t>(r)][i] / divisor),
                        word(r, gq::random::purpose::encode, i));
        };
        vectors<float> got(static_cast<std::size_t>(n)), scattered(static_cast<std::size_t>(n));
        on_threads(n, [&](auto& t) {
          auto const me = static_cast<std::size_t>(t.rank());
          gq::allreduce_mean all{t, op, gq::schedule::allgather{}, {.seed = 9}};
          gq::allreduce_mean sra{t, op, gq::schedule::sra{}, {.seed = 9}};
          got[me] = scattered[me] = x[me];
          all(got[me], 4);
          sra(scattered[me], 4);
        });
        gq::partition const cut(d, n, 256, 0);
        for (int owner = 0; owner < n; ++owner) {
          gq::segment const part = cut.part(owner);
          for (std::size_t i = part.first; i < part.first + part.count; ++i) {
            float sum = 0, added = 0;
            for (int r = 0; r < n; ++r) sum += frame(r, i);
            added = static_cast<float>(x[static_cast<std::size_t>(owner)][i] / divisor);
            for (int r = 0; r < n; ++r)
              if (r != owner) added += frame(r, i);
            added = halved(
                op, added,
                word(owner, n == 1 ? gq::random::purpose::encode : gq::random::purpose::requantize, i));
            gq::store_scale const scale(divisor / n);
            for (auto const& g : got) ASSERT_EQ(g[i], scale(sum)) << op.facts().name << ' ' << n << ' ' << i;
            for (auto const& g : scattered)
              ASSERT_EQ(g[i], scale(added)) << op.facts().name << ' ' << n << ' ' << i;
          }
        }
      }
}

TEST(Floats, are_unbiased_on_every_schedule) {
  for (int n : {2, 3, 5})
    over_schedules([&](auto const& schedule, char const* name) {
      expect_unbiased(means(gq::operators::bfloat16(), schedule, n, 400), n, name, 1e-4);
    });
}

/// (x - low) (high - x), relative to the squared gap of a value between neighbors.
double exact_variance(gq::any_quantizer const& op, float v) {
  double const low = halved(op, v, ~0U), high = halved(op, v, 0), x = v;
  return std::fabs((x - low) * (high - x));
}

TEST(Floats, the_variance_is_exact_without_sums_and_below_theta_with_them) {
  constexpr int n = 4, steps = 200;
  constexpr std::size_t d = 2000;
  vectors<float> const x = drawn<float>(n, d);
  double squares = 0;
  for (auto const& v : x)
    for (float each : v) squares += static_cast<double>(each) * static_cast<double>(each);
  for (gq::any_quantizer const& op : unbiased_floats) {
    double const divisor = divisor_of(op, x);
    double exact = 0;
    for (auto const& v : x)
      for (float each : v)
        exact += exact_variance(op, static_cast<float>(each / divisor)) * divisor * divisor / (n * n);
    for (char const* schedule : {"allgather", "sra", "ring", "tree"}) {
      double error = 0;
      on_threads(n, [&](auto& t) {
        gq::allreduce_mean mean{t, op, gq::schedule::any{schedule}, {.seed = 2}};
        std::vector<float> y(d);
        for (std::uint64_t step = 0; step < steps; ++step) {
          mean(x[static_cast<std::size_t>(t.rank())], y, step);
          if (t.rank() != 0) continue;
          for (std::size_t i = 0; i < d; ++i) {
            double const off = static_cast<double>(y[i]) - static_cast<double>(exact_mean(x, i).mean);
            error += off * off / steps;
          }
        }
      });
      gq::plan const p = gq::plan_for(op, gq::schedule::any{schedule}, n, d);
      // a sum of steps d squares, each below 9 times its mean: 5 sigma are 5 sqrt(8 / (steps d)) of it
      if (schedule == std::string("allgather")) {
        EXPECT_NEAR(error / exact, 1, 5 * std::sqrt(8.0 / (steps * d))) << op.facts().name;
        EXPECT_EQ(p.rounding_steps, 1);
      } else {
        EXPECT_GT(error, exact / 2) << op.facts().name << schedule;
      }
      EXPECT_LT(error, p.theta / n * squares) << op.facts().name << schedule;
      EXPECT_GT(error, p.theta / n * squares / 20) << op.facts().name << schedule;
    }
  }
  EXPECT_TRUE(std::isnan(gq::plan_for(all_floats[2], gq::schedule::ring{}, n, d).theta));
  EXPECT_EQ(gq::plan_for(all_floats[0], gq::schedule::sra{}, n, d).rounding_steps, 2);
  EXPECT_EQ(gq::plan_for(all_floats[0], gq::schedule::ring{}, n, d).rounding_steps, n);
}

/// Values of every exponent: nothing overflows, and nothing is lost but what 16 bits cannot hold.
template <class T>
void expect_accurate(int least, int most, double smallest) {
  for (gq::any_quantizer const& op : all_floats)
    for (int n : {2, 9})
      for (int exponent = least; exponent <= most;
           exponent += exponent > least + 40 && exponent < most - 40 ? 17 : 1) {
        auto x = drawn<T>(n, 300, exponent - 3);
        for (auto& v : x)
          v[7] = static_cast<T>(std::ldexp(1.9, exponent));  // their sum is the largest there is
        double const top = std::ldexp(1.9, exponent);
        for (char const* schedule : {"ring", "sra"}) {
          std::vector<T> const got = checked_mean(x, op, schedule, 3)[0];
          bool const half = op.facts().floats.type == gq::dtype::float16;
          double const gap = half ? 0x1p-10 : 0x1p-7;
          for (std::size_t i = 0; i < got.size(); ++i) {
            exact_mean const exact(x, i);
            long double const most_off =
                (n + 1) * (gap * exact.size * 1.1 + 0x1p-30 * top + (half ? 0x1p-1046 : 0.0)) + smallest;
            ASSERT_LE(std::fabs(static_cast<long double>(got[i]) - exact.mean), most_off)
                << op.facts().name << ' ' << schedule << ' ' << n << " 2^" << exponent << ' ' << i;
          }
        }
      }
}

TEST(Floats, have_no_overflow_and_no_underflow_in_float32) { expect_accurate<float>(-149, 127, 0x1p-149); }
TEST(Floats, have_no_overflow_and_no_underflow_in_float64) {
  expect_accurate<double>(-1074, 1023, 0x1p-1074);
}

TEST(Floats, vectors_of_a_group_have_a_power_of_two_each) {
  int const exponents[] = {0, -60, 90, -100};
  on_threads(3, [&](auto& t) {
    gq::allreduce_mean mean{t, gq::operators::float16(), gq::schedule::sra{}};
    vectors<float> x, y;
    for (int e : exponents) x.push_back(drawn<float>(3, 300, e)[static_cast<std::size_t>(t.rank())]);
    y = x;
    gq::vector_group group;
    for (auto& v : y) group.add(v);
    mean(group, 0);
    for (std::size_t k = 0; k < 4; ++k) {
      auto const all = drawn<float>(3, 300, exponents[k]);
      for (std::size_t i = 0; i < 300; ++i) {
        exact_mean const exact(all, i);
        ASSERT_NEAR(y[k][i], static_cast<double>(exact.mean),
                    2.1 * 0x1p-10 * static_cast<double>(exact.size) + std::ldexp(1.0, exponents[k] - 30))
            << k;
      }
    }
  });
}

// A scale of 1 is one among others.
TEST(Floats, a_small_vector_of_a_group_keeps_its_digits_whatever_the_largest) {
  on_threads(2, [&](auto& t) {
    gq::allreduce_mean mean{t, gq::operators::float16(), gq::schedule::sra{}};
    std::vector<float> const small(100, 1e-9F);
    for (int exponent = -20; exponent <= 20; ++exponent) {
      std::vector<float> large(100, std::ldexp(1.5F, exponent)), x = small;
      mean(gq::vector_group{}.add(large).add(x), static_cast<std::uint64_t>(2 * (exponent + 20)));
      for (float v : x) ASSERT_NEAR(v, 1e-9F, 2.1 * 0x1p-10 * 1e-9) << exponent;
    }
  });
}

TEST(Floats, sums_are_in_range_for_all_exponents_and_workers) {
  for (gq::dtype sent : {gq::dtype::bfloat16, gq::dtype::float16})
    for (int n : {1, 2, 3, 8, 89, 700, 709, 710, 2000, 8192})
      for (int exponent = -149; exponent < 128; ++exponent) {
        if (n > 2000 && exponent > 110) continue;  // divisors end at 2^126
        double const top = std::ldexp(2 - 0x1p-23, exponent);
        gq::detail::float_scale const scale = gq::detail::float_scale_of(top, n, gq::dtype::float32, sent);
        long double const up = std::pow(1 + (sent == gq::dtype::float16 ? 0x1p-10L : 0x1p-7L), n);
        ASSERT_LE(n * static_cast<long double>(top) / static_cast<long double>(scale.divisor) * up,
                  static_cast<long double>(gq::largest(sent)))
            << gq::name_of(sent) << ' ' << n << ' ' << exponent;
      }
}

template <class T>
void expect_largest() {
  T largest;
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
    largest = std::numeric_limits<T>::max();
  else
    largest = T(static_cast<float>(gq::largest(gq::dtype_of<T>::value)));
  for (gq::any_quantizer const& op : all_floats)
    for (int n : {1, 2, 3, 5}) {
      vectors<T> const x(static_cast<std::size_t>(n), std::vector<T>(300, largest));
      for (char const* schedule : {"ring", "sra", "tree", "allgather"}) {
        vectors<T> const means = checked_mean(x, op, schedule, 3);
        for (T const& v : means[0]) {
          double const share = to_double(v) / to_double(largest);
          ASSERT_TRUE(share <= 1 && share > 0.93)
              << op.facts().name << ' ' << schedule << ' ' << n << ' ' << share;
        }
      }
      on_threads(n, [&](auto& t) {
        std::vector<T> sent = x[0];
        gq::broadcast{t, op, 0}(sent, 1);
        for (T const& v : sent) ASSERT_GT(to_double(v) / to_double(largest), 0.99);
      });
    }
}

TEST(Floats, the_largest_values_of_a_type_have_a_mean) {
  expect_largest<float>();
  expect_largest<double>();
  expect_largest<gq::float16>();
  expect_largest<gq::bfloat16>();
}

TEST(Floats, gather_scatter_and_broadcast) {
  for (gq::any_quantizer const& op : all_floats)
    for (int n : {1, 3, 4}) {
      vectors<float> const x = drawn<float>(n, 1100);
      vectors<float> gathered(x.size()), shards(x.size()), sent(x.size());
      on_threads(n, [&](auto& t) {
        auto const me = static_cast<std::size_t>(t.rank());
        gq::all_gather gather{t, op, {.seed = 1}};
        gq::reduce_scatter_mean scatter{t, op, {.seed = 1}};
        gq::broadcast from{t, op, n - 1, {.seed = 1}};
        gathered[me] = x[me];
        gather(gathered[me], 0);
        shards[me] = x[me];
        scatter(shards[me], 0);
        sent[me] = x[me];
        from(sent[me], 0);
      });
      gq::partition const cut(1100, n, 256, 0);
      double const gap = op.facts().floats.type == gq::dtype::float16 ? 0x1p-10 : 0x1p-7;
      for (int owner = 0; owner < n; ++owner) {
        gq::segment const part = cut.part(owner);
        auto const own = static_cast<std::size_t>(owner);
        for (std::size_t i = part.first; i < part.first + part.count; ++i) {
          exact_mean const exact(x, i);
          ASSERT_NEAR(shards[own][i], static_cast<double>(exact.mean),
                      gap * static_cast<double>(exact.size) * 1.001)
              << op.facts().name;
          ASSERT_NEAR(gathered[0][i], x[own][i], gap * std::fabs(x[own][i]) + 1e-7) << op.facts().name;
          ASSERT_NEAR(sent[0][i], x[x.size() - 1][i], gap * std::fabs(x[x.size() - 1][i]) + 1e-7)
              << op.facts().name;
        }
      }
      for (std::size_t r = 1; r < x.size(); ++r) {
        expect_same(gathered[r], gathered[0], "gathered");
        expect_same(sent[r], sent[0], "sent");
      }
    }
}

TEST(Floats, take_a_stage) {
  auto const x = drawn<float>(3, 1000);
  for (gq::any_quantizer const& op : all_floats) {
    auto const got = checked_mean(x, gq::rotated{op, 256}, "sra", 1)[0];
    for (std::size_t i = 0; i < 1000; ++i)
      ASSERT_NEAR(got[i], (x[0][i] + x[1][i] + x[2][i]) / 3, 0.1) << op.facts().name;
  }
}

TEST(Floats, are_refused_where_they_mean_nothing) {
  gq::plan const p = gq::plan_for(gq::operators::bfloat16(), gq::schedule::native{}, 4, 100);
  EXPECT_FALSE(p.fits);
  EXPECT_THAT(p.refusal,
              HasSubstr("bfloat16 on native with 4 workers: schedule native adds integers and float32, "
                        "and would round sums of bfloat16 itself; use schedule ring"));
  EXPECT_THAT(gq::plan_for(gq::float32_tail{gq::operators::float16()}, gq::schedule::ring{}, 2, 100).refusal,
              HasSubstr("sends float16 and has no buckets, so there is no tail; remove float32_tail"));
  EXPECT_TRUE(std::isnan(gq::plan_for(gq::centered{gq::any_quantizer{gq::operators::float16()}, 100},
                                      gq::schedule::ring{}, 2, 100)
                             .theta));
  EXPECT_EQ(gq::plan_for(gq::operators::float16(), gq::schedule::ring{}, 4, 1 << 20).bits_per_value,
            16 + 0x1p-13);
  try {
    gq::vector_codec const codec{gq::operators::float16()};
    ADD_FAILURE();
  } catch (gq::configuration_error const& e) {
    EXPECT_THAT(e.what(), HasSubstr("float16 has no codes"));
  }
}

}  // namespace floats_test
