// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief THC: the rotation, the table, what is cut off, and sums of positions.

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/thc.hpp>
#include <globalq/kernel/hadamard.hpp>
#include <globalq/schedule/native.hpp>
#include <globalq/schedule/ring.hpp>
#include <globalq/schedule/tree.hpp>

#include <cmath>
#include <functional>

#include "tests/baseline/cases.hpp"
#include "tests/baseline/sampling.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

using positions = std::vector<std::uint16_t>;

positions table_of(int bits, int granularity, double t) {
  cp::detail::position_table const table(bits, granularity, t);
  return {table.positions().begin(), table.positions().end()};
}

double density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0)); }

/// E f(Z) for a normal Z in [a, b], by the midpoint rule.
double integral(double a, double b, int pieces, std::function<double(double)> const& f) {
  double sum = 0, width = (b - a) / pieces;
  for (int k = 0; k < pieces; ++k) {
    double const z = a + (k + 0.5) * width;
    sum += f(z) * density(z) * width;
  }
  return sum;
}

/// E e^2 and E e^4 of the error e of a normal variable: rounded at random to its neighbors, cut off beyond the ends.
struct errors {
  double second = 0, fourth = 0;
};
errors errors_of(positions const& table, double t) {
  errors e;
  double const step = 2 * t / table.back();
  for (std::size_t z = 1; z < table.size(); ++z) {
    double const a = -t + step * table[z - 1], b = -t + step * table[z];
    e.second += integral(a, b, 2000, [&](double x) { return (x - a) * (b - x); });
    e.fourth += integral(a, b, 2000, [&](double x) {
      return ((x - a) * std::pow(b - x, 4) + (b - x) * std::pow(x - a, 4)) / (b - a);
    });
  }
  double const beyond = std::erfc(t / std::sqrt(2.0));  // of both sides
  e.second += (1 + t * t) * beyond - 2 * t * density(t);
  e.fourth += 2 * integral(t, t + 10, 20000, [&](double x) { return std::pow(x - t, 4); });
  return e;
}

/// |mean - x|^2 / |x|^2 of one call of one worker, with 128 blocks of 8,192 values.
double error_of(cp::thc_options const& how) {
  std::uint64_t const d = 128 * 8192;
  vector const x = cases::values(d, 5);
  double sum = 0;
  support::on_threads(1, [&](auto& workers) {
    cp::thc c{cases::one_layer(d), how};
    vector mean(d);
    EXPECT_EQ(c.reduce(workers, x, mean, {}, 3), cp::outcome::mean);
    for (std::size_t i = 0; i < d; ++i)
      sum += std::pow(static_cast<double>(mean[i]) - static_cast<double>(x[i]), 2);
  });
  return sum / cases::norm2(x);
}

TEST(Thc, the_ends_are_quantiles_of_a_normal_variable) {
  // tables of the normal distribution: P(|Z| > 1.959964) = 0.05, P(|Z| > 2.153875) = 1/32
  EXPECT_NEAR(cp::detail::two_sided_quantile(0.05), 1.959964, 1e-6);
  EXPECT_NEAR(cp::detail::two_sided_quantile(1.0 / 32), 2.153875, 1e-6);
  EXPECT_NEAR(cp::detail::two_sided_quantile(1), 0, 1e-15);
  for (double share : {0.5, 1e-3, 1e-9, 1e-200})
    EXPECT_NEAR(std::erfc(cp::detail::two_sided_quantile(share) / std::sqrt(2.0)) / share, 1, 1e-10) << share;
}

TEST(Thc, the_table_has_the_least_variance_of_all_that_mirror_themselves) {
  auto const expect_least = [](int bits, int granularity, double t) {
    SCOPED_TRACE(std::to_string(bits) + " bits, granularity " + std::to_string(granularity));
    std::size_t const half = std::size_t{1} << (bits - 1);
    auto const g = static_cast<std::uint16_t>(granularity);
    double const step = 2 * t / g;
    std::vector<double> gap(
        static_cast<std::size_t>((g + 1) * (g + 1)));  // the variance between two positions
    for (int i = 0; i < g; ++i)
      for (int j = i + 1; j <= g; ++j) {
        double const a = -t + step * i, b = -t + step * j;
        gap[static_cast<std::size_t>(i * (g + 1) + j)] =
            integral(a, b, 400, [&](double x) { return (x - a) * (b - x); });
      }
    auto const variance = [&](positions const& table) {
      double sum = 0;
      for (std::size_t z = 1; z < table.size(); ++z)
        sum += gap[static_cast<std::size_t>(table[z - 1] * (g + 1) + table[z])];
      return sum;
    };
    double least = 1e9;
    positions lower{0};
    std::function<void()> const extend = [&] {
      if (lower.size() == half) {
        positions all = lower;
        for (std::size_t z = half; z-- > 0;) all.push_back(static_cast<std::uint16_t>(g - lower[z]));
        least = std::min(least, variance(all));
        return;
      }
      for (int p = lower.back() + 1; 2 * p < g; ++p) {
        lower.push_back(static_cast<std::uint16_t>(p));
        extend();
        lower.pop_back();
      }
    };
    extend();
    positions const table = table_of(bits, granularity, t);
    ASSERT_EQ(table.size(), 2 * half);
    EXPECT_EQ(table.front(), 0);
    EXPECT_EQ(table.back(), g);
    for (std::size_t z = 0; z < table.size(); ++z) {
      EXPECT_EQ(table[z] + table[table.size() - 1 - z], g);
      EXPECT_TRUE(z == 0 || table[z - 1] < table[z]);
    }
    // the midpoint rule's error: 400^-2 / 24 of gaps' second derivatives, far below the difference of two tables
    EXPECT_NEAR(variance(table), least, 1e-6 * least);
  };
  for (double share : {0.5, 1.0 / 32, 1.0 / 8192}) {
    double const t = cp::detail::two_sided_quantile(share);
    for (int g : {3, 4, 5, 6, 7, 12, 29, 30}) expect_least(2, g, t);
    for (int g : {15, 16, 17, 22, 23, 24}) expect_least(4, g, t);
  }
}

TEST(Thc, tables_are_those_of_the_authors) {
  // cut 1/128: the table that the authors' code comes with (SophiaLi06/BytePS_THC, 16 values on 30 steps, 1/p = 128)
  EXPECT_EQ(table_of(4, 30, cp::detail::two_sided_quantile(1.0 / 128)),
            (positions{0, 4, 6, 8, 10, 12, 13, 14, 16, 17, 18, 20, 22, 24, 26, 30}));
  // cut 1/32: by an independent solver
  EXPECT_EQ(table_of(4, 30, cp::detail::two_sided_quantile(1.0 / 32)),
            (positions{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30}));
  positions even(256);
  for (std::size_t z = 0; z < 256; ++z) even[z] = static_cast<std::uint16_t>(z);
  EXPECT_EQ(table_of(8, 255, 3), even);
}

TEST(Thc, a_cell_tells_both_neighbors_and_a_position_its_index) {
  for (auto [bits, g] :
       {std::pair(2, 3), std::pair(2, 31), std::pair(4, 30), std::pair(8, 300), std::pair(8, 1023)}) {
    cp::detail::position_table const table(bits, g, 2);
    auto const at = table.positions();
    ASSERT_EQ(table.cells().size(), static_cast<std::size_t>(g) + 1);
    for (std::size_t z = 0; z < at.size(); ++z) {
      EXPECT_EQ(table.indices()[at[z]], z);
      for (std::uint32_t p = at[z]; z + 1 < at.size() && p < at[z + 1]; ++p) {
        EXPECT_EQ(table.cells()[p] & 0xffff, at[z]);
        EXPECT_EQ(table.cells()[p] >> 16, static_cast<std::uint32_t>(at[z + 1] - at[z]));
      }
    }
    // the upper end, and what is cut off, round to it
    float const x[] = {static_cast<float>(g), 1e9F, -1e9F};
    std::uint32_t const words[] = {0, 0, 0};
    std::uint16_t out[3];
    cp::detail::round_to_cells(x, 3, 1, 0, g, table.cells().data(), words, out);
    EXPECT_EQ(out[0], g);
    EXPECT_EQ(out[1], g);
    EXPECT_EQ(out[2], 0);
  }
}

TEST(Thc, the_error_is_that_of_the_table_and_of_what_is_cut_off) {
  struct setting {
    cp::thc_options how;
    int granularity;
    double share;
  };
  for (setting const& s :
       {setting{{}, 30, 1.0 / 32}, setting{{.granularity = 15}, 15, 1.0 / 32},
        setting{{.cut = 1.0 / 128}, 30, 1.0 / 128}, setting{{.bits = 2}, 30, 1.0 / 32},
        setting{{.bits = 2, .cut = 0.25}, 30, 0.25}, setting{{.bits = 8}, 255, 1.0 / 4096}}) {
    double const t = cp::detail::two_sided_quantile(s.share);
    errors const e = errors_of(table_of(s.how.bits, s.granularity, t), t);
    // 2^20 values, each with a variance of e^2 below E e^4; rotated values of a block are normal but for 1/8192
    double const tolerance = 5 * std::sqrt(e.fourth) / 1024 + 3.0 / 8192 * e.second;
    EXPECT_LT(tolerance, 0.15 * e.second);
    EXPECT_NEAR(error_of(s.how), e.second, tolerance) << s.how.bits << " bits, " << s.share;
  }
  double const t = cp::detail::two_sided_quantile(1.0 / 32);
  EXPECT_NEAR(errors_of(table_of(4, 30, t), t).second, 0.02034, 1e-5);
}

TEST(Thc, without_a_cut_a_table_errs_less_than_even_levels_and_both_more_than_with_one) {
  // even levels: (2 R / 15)^2 / 6 with R, the largest of 8192 normal magnitudes, above 3.65 in 7 of 8 blocks: 0.04
  double const even = error_of({.granularity = 15, .cut = 0}), table = error_of({.cut = 0});
  EXPECT_GT(even, 0.04);
  EXPECT_LT(table, 0.75 * even);
  EXPECT_LT(error_of({}), 0.85 * table);
  EXPECT_LT(error_of({}), 0.5 * even);
}

TEST(Thc, without_a_cut_it_is_unbiased_with_errors_spread_evenly_by_the_rotation) {
  std::uint64_t const d = 64;
  vector x = cases::values(d, 6, 10);
  x[17] = 500;  // without a rotation all others would be lost
  for (int bits : {2, 4, 8})
    for (int granularity : {(1 << bits) - 1, (1 << bits) + 20})
      support::on_threads(1, [&](auto& workers) {
        cp::thc c{cases::one_layer(d), {.bits = bits, .block = 64, .granularity = granularity, .cut = 0}};
        int const calls = 3000;
        auto const s = cases::sample(x, calls, [&](int t, vector& mean) {
          c.reduce(workers, x, mean, {}, static_cast<std::uint64_t>(t));
        });
        // in the rotated domain a variance of gap^2 / 4 a value, the range at most |x|_1 / sqrt(d)
        double l1 = 0;
        for (float v : x) l1 += std::abs(static_cast<double>(v));
        positions const table = table_of(bits, granularity, cp::detail::two_sided_quantile(1.0 / 64));
        int widest = 0;
        for (std::size_t z = 1; z < table.size(); ++z) widest = std::max(widest, table[z] - table[z - 1]);
        double const gap = l1 / std::sqrt(64.0) * 2 * widest / granularity;
        for (std::size_t i = 0; i < d; ++i)
          EXPECT_NEAR(s.mean[i], static_cast<double>(x[i]), 5 * gap / 2 / std::sqrt(calls) + 1e-3)
              << bits << " bits, granularity " << granularity;
        EXPECT_LT(s.error, static_cast<double>(d) * gap * gap / 4);
        EXPECT_GT(s.error, 0);
      });
}

TEST(Thc, a_value_beyond_the_largest_workers_range_is_cut_off_and_left) {
  // one rotated value of 64 and others of 0: a norm of 8 and a range of 8 t
  std::uint64_t const d = 64, where = 11;
  gq::random::stream const signs{0, 0, 0, gq::random::purpose::rotate};
  vector x(d);
  x[where] = 1;
  gq::kernel::hadamard(x.data(), d);
  gq::kernel::turn_signs(signs, 0, d, x.data());
  auto const rotated = [&](vector v) {
    gq::kernel::turn_signs(signs, 0, d, v.data());
    gq::kernel::hadamard(v.data(), d);
    return v;
  };
  vector large(d);
  for (std::size_t i = 0; i < d; ++i) large[i] = 10 * x[(i * 5 + 3) % d];
  double const t = cp::detail::two_sided_quantile(1.0 / 32), gap = 2 * 8 * t * 3 / 30;
  auto const make = [] { return cp::thc{cases::one_layer(64), {.block = 64}}; };
  auto const alone = cases::run({x}, make), beside = cases::run({x, large}, make);
  vector const cut = rotated(alone.rest[0]), kept = rotated(beside.rest[0]);
  EXPECT_NEAR(cut[where], 64 - 8 * t, 1e-4);
  for (std::size_t i = 0; i < d; ++i) {
    if (i != where) {
      EXPECT_LT(std::abs(cut[i]), gap);
    }
    EXPECT_LT(std::abs(kept[i]), 10 * gap);
  }
}

TEST(Thc, with_feedback_the_sum_of_means_is_that_of_the_vectors_minus_the_last_errors) {
  int const steps = 30;
  std::uint64_t const d = 1000;
  std::vector<double> sent(d), wanted(d);
  std::vector<vector> last(3);
  for (int bits : {2, 4}) {
    std::fill(sent.begin(), sent.end(), 0);
    std::fill(wanted.begin(), wanted.end(), 0);
    support::on_threads(3, [&](auto& workers) {
      cp::error_feedback ef{cp::thc{cases::one_layer(d), {.bits = bits, .block = 256}}};
      vector mean(d);
      for (int t = 0; t < steps; ++t) {
        vector const g = cases::values(d, static_cast<unsigned>(100 * t + workers.rank()));
        ASSERT_EQ(ef.reduce(workers, g, mean, static_cast<std::uint64_t>(t)), cp::outcome::mean);
        if (workers.rank() == 0)
          for (std::size_t i = 0; i < d; ++i) sent[i] += static_cast<double>(mean[i]);
      }
      last[static_cast<std::size_t>(workers.rank())].assign(ef.error().begin(), ef.error().end());
    });
    for (int t = 0; t < steps; ++t) {
      auto const all = cases::inputs(3, d, static_cast<unsigned>(100 * t));
      auto const mean = cases::mean_of(all);
      for (std::size_t i = 0; i < d; ++i) wanted[i] += mean[i];
    }
    auto const left = cases::mean_of(last);
    double norm = 0;
    for (std::size_t i = 0; i < d; ++i) {
      // a step rounds sums, a message and a mean, of magnitudes below 2^13 after 8 stages: 12 * 2^13 * 2^-24 at most
      EXPECT_NEAR(sent[i], wanted[i] - left[i], steps * 12 * 0x1p-11);
      norm += left[i] * left[i];
    }
    // a share r of |x|^2 is lost in each step: |e| <= sqrt(r) / (1 - sqrt(r)) |g|, r 0.021 and 0.34 by the tables
    double const root = std::sqrt(bits == 4 ? 0.021 : 0.34), g2 = 1000.0 * 1000 / 3 * d;
    EXPECT_LT(std::sqrt(norm / g2), 1.1 * root / (1 - root)) << bits;
  }
}

TEST(Thc, all_worlds_and_lengths_give_the_mean_of_the_messages) {
  for (cp::thc_options const& how :
       {cp::thc_options{.bits = 2, .block = 256}, cp::thc_options{.bits = 4, .block = 256},
        cp::thc_options{.bits = 8, .block = 256}, cp::thc_options{.block = 256, .granularity = 15, .cut = 0},
        cp::thc_options{.bits = 2, .block = 256, .granularity = 3}})
    cases::for_worlds(
        [&](auto layers) {
          return cp::thc{layers, how};
        },
        [&](auto const& x, auto const& got) {
          // magnitudes up to 1000 * 256 in float32 while rotated, over 256
          cases::expect_mean_of_messages(x, got, 0.05);
        });
}

TEST(Thc, one_value_alone_arrives_whole) {
  auto const got = cases::run({vector{-3.25F}}, [] { return cp::thc{cases::one_layer(1)}; });
  EXPECT_EQ(got.mean[0], vector{-3.25F});
  EXPECT_EQ(got.rest[0], vector{0.0F});
}

TEST(Thc, any_schedule_gives_the_same_bits_since_sums_are_integers) {
  for (int n : {2, 5, 8, 9, 18})  // 9 * 30 needs 16 bits
    for (int bits : {2, 4, 8}) {
      auto const x = cases::inputs(n, 5000);
      auto const make = [&](auto schedule) {
        return cases::run(x, [&] {
          return cp::thc{cases::one_layer(5000), {.bits = bits}, {.chunk_values = 2048}, schedule};
        });
      };
      auto const a = cases::run(x, [&] { return cp::thc{cases::one_layer(5000), {.bits = bits}}; });
      cases::expect_same_means(a);
      for (auto const& b : {make(gq::schedule::ring{}), make(gq::schedule::tree{})}) {
        EXPECT_TRUE(cases::same_bits(a.mean[0], b.mean[0]));
        EXPECT_TRUE(cases::same_bits(a.rest[0], b.rest[0]));
        cases::expect_same_means(b);
      }
    }
}

TEST(Thc, what_travels_is_indices_and_then_sums_of_positions) {
  struct setting {
    cp::thc_options how;
    int workers;
    int bits;  // of an index and of a sum together
  };
  for (setting const& s :
       {setting{{}, 8, 4 + 8}, setting{{}, 9, 4 + 16}, setting{{.granularity = 15}, 9, 4 + 8},
        setting{{.bits = 2}, 8, 2 + 8}, setting{{.bits = 2, .granularity = 3}, 4, 2 + 4},
        setting{{.bits = 8}, 3, 8 + 16}}) {
    auto const n = static_cast<std::uint64_t>(s.workers), d = n * 8192;
    support::on_threads(s.workers, [&](auto& workers) {
      cp::thc c{cases::one_layer(d), s.how};
      vector x(d, 1.0F);
      std::uint64_t const before = workers.bytes_sent();
      c.reduce(workers, x, x, {}, 0);
      // the opening, a range for each of n blocks, and (n - 1) / n of d values twice
      EXPECT_EQ(workers.bytes_sent() - before,
                (n - 1) * (64 + 4 * n) + d / n * (n - 1) * static_cast<std::uint64_t>(s.bits) / 8);
    });
  }
}

TEST(Thc, large_and_small_magnitudes_are_means_within_float32) {
  for (float size : {3.0e38F, 1.0e-30F, 1.0e-44F}) {
    std::vector<vector> const x(3, vector(100, size));
    auto const got = cases::run(x, [] { return cp::thc{cases::one_layer(100), {.bits = 8}}; });
    if (got.outcome[0] == cp::outcome::mean) {
      // a sum of 128 values, each a multiple of the smallest float: half of that each
      for (float v : got.mean[0]) EXPECT_NEAR(v, size, 0.3F * size + 64 * 0x1p-149F);
    }
    cases::expect_same_means(got);
    if (size < 1) {
      EXPECT_EQ(got.outcome[0], cp::outcome::mean);
    }
  }
  auto const zero = cases::run({vector(70), vector(70)}, [] { return cp::thc{cases::one_layer(70)}; });
  EXPECT_EQ(zero.mean[1], vector(70));
  EXPECT_EQ(zero.rest[1], vector(70));
}

TEST(Thc, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  cases::expect_manners([](auto layers, auto settings) { return cp::thc{layers, {}, settings}; });
  auto const expect_disagreement = [](cp::thc_options const& last) {
    auto const texts = support::complaints<gq::disagreement_error>(3, [&](auto& workers) {
      cp::thc c{cases::one_layer(10), workers.rank() == 2 ? last : cp::thc_options{}};
      vector x(10);
      c.reduce(workers, x, x, {}, 0);
    });
    for (auto const& t : texts) EXPECT_NE(t.find("rank 2 differs from rank 0 in"), t.npos) << t;
  };
  expect_disagreement({.bits = 2});
  expect_disagreement({.block = 4096});
  expect_disagreement({.granularity = 31});
  expect_disagreement({.cut = 1.0 / 33});
  expect_disagreement({.cut = 0});
}

TEST(Thc, options_that_cannot_work_are_refused) {
  auto const layers = cases::one_layer(5);
  EXPECT_THROW((cp::thc{layers, {.bits = 3}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {.block = 100}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {.granularity = 14}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {.bits = 8, .granularity = 254}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {.granularity = 1024}}), gq::configuration_error);
  EXPECT_THROW((cp::thc{layers, {.granularity = -1}}), gq::configuration_error);
  for (double cut : {-0.1, 0.51, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW((cp::thc{layers, {.cut = cut}}), gq::configuration_error) << cut;
  EXPECT_THROW((cp::thc{layers, {}, {}, gq::schedule::native{}}), gq::configuration_error);
  EXPECT_NO_THROW((cp::thc{layers, {.bits = 8, .granularity = 1023, .cut = 0.5}}));
  // 65 * 1009 = 65585
  for (auto const& t : support::complaints<gq::configuration_error>(65, [&](auto& workers) {
         cp::thc c{layers, {.granularity = 1009}};
         vector x(5);
         c.reduce(workers, x, x, {}, 0);
       }))
    EXPECT_NE(t.find("65 positions of granularity 1009"), t.npos) << t;
}

}  // namespace
