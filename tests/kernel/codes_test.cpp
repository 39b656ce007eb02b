// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The loops over codes: the one written out for AVX-512 gives the codes of the portable one.

#include <globalq/kernel/block_statistic.hpp>
#include <globalq/kernel/isa/codes_avx512.hpp>
#include <globalq/kernel/isa/scales_avx512.hpp>
#include <globalq/kernel/loops.hpp>
#include <globalq/kernel/operands.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/levels/uniform.hpp>
#include <globalq/rounding/nearest.hpp>
#include <globalq/rounding/random_shift.hpp>
#include <globalq/rounding/stochastic.hpp>
#include <globalq/wire/packed.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace gq = globalq;
using gq::levels::detail::level_table;

namespace {

/// Tables of all the sizes that loops tell apart: even, squares, and dense near zero; with zero, without, and reversed.
std::vector<std::pair<std::string, level_table>> tables() {
  std::vector<std::pair<std::string, level_table>> list;
  for (int s : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 126, 127})
    for (double power : {1.0, 2.0, 0.5}) {
      std::vector<double> levels{0.0};
      for (int k = 1; k <= s; ++k) levels.push_back(std::pow(static_cast<double>(k) / s, power));
      std::string const name = std::to_string(s) + " levels^" + std::to_string(power);
      list.emplace_back("table of " + name, gq::levels::table(levels));
      list.emplace_back("symmetric of " + name, gq::levels::symmetric(std::span(levels).subspan(1)));
    }
  for (int s : {1, 7, 15, 31, 94}) list.emplace_back("base 1.5", gq::levels::exponential(s, 1.5));
  // neighbors so near that lines are no good
  list.emplace_back("near",
                    gq::levels::table{0.0, 0.5, static_cast<double>(std::nextafter(0.5F, 1.0F)), 1.0});
  list.emplace_back("nearer zero", gq::levels::table{0.0, 0x1p-90, 0x1.000002p-90, 0.25, 1.0});
  return list;
}

/// Decodes all codes, and expects what the definition gives for one after the other.
template <class Int = std::int8_t, class Levels>
void expect_decoded(Levels const& levels, float factor, gq::store_scale const& scale) {
  std::vector<Int> codes;
  for (int c = -static_cast<int>(levels.max_code()); c <= static_cast<int>(levels.max_code()); ++c)
    codes.push_back(static_cast<Int>(c));
  int const count = static_cast<int>(codes.size());
  for (float start : {0.0F, 3.0F, -0x1p-130F}) {
    std::vector<float> written(codes.size()), added(codes.size(), start);
    gq::kernel::decode<256, false>(levels, codes.data(), count, 0.0F, factor, scale.factor, scale.post,
                                   levels.max_code(), written.data());
    gq::kernel::decode<256, true>(levels, codes.data(), count, 0.0F, factor, scale.factor, scale.post,
                                  levels.max_code(), added.data());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      float const v = scale(gq::kernel::value_of(levels, std::int32_t{codes[i]}, 0.0F, factor));
      float volatile const expected = v, sum = start + v;
      ASSERT_EQ(gq::bits_of(written[i]), gq::bits_of(float(expected)))
          << int{codes[i]} << " * " << std::hexfloat << factor << " * " << scale.factor;
      ASSERT_EQ(gq::bits_of(added[i]), gq::bits_of(float(sum)))
          << int{codes[i]} << " * " << std::hexfloat << factor << " * " << scale.factor;
    }
  }
}

TEST(Decode, multiplies_twice_or_by_one_product_to_the_same_bits) {
  for (float factor :
       {0.0F, 1.0F, 3.0F, 0x1.234566p-7F, 0x1.fffffep-1F, 0x1p-100F, 0x1.8p-119F, 0x1p-126F, 0x1.8p100F})
    for (double scale :
         {0.0, 1.0, 0x1p-20, 0x1p31, 0x1.4p-3, 0x1.fffffep5, 0x1p-80, 0x1p-140, 0x1p89, 0x1.8p120}) {
      gq::store_scale const to(scale);
      expect_decoded(gq::levels::uniform<>(127), factor, to);
      expect_decoded(gq::levels::exponential<>(7), factor, to);
      expect_decoded(gq::levels::exponential<>(120), factor, to);
    }
}

TEST(Decode, looks_levels_up_to_the_same_bits) {
  for (auto const& [name, levels] : tables())
    for (float factor : {1.0F, 0x1.234566p-7F, 0x1p-126F})
      for (double scale : {1.0, 0x1.4p-3, 0x1p-80}) {
        expect_decoded<std::int8_t>(levels, factor, gq::store_scale(scale));
        expect_decoded<std::int16_t>(levels, factor, gq::store_scale(scale));
        expect_decoded<std::int32_t>(levels, factor, gq::store_scale(scale));
      }
}

/// What a loop over values may meet: levels, what lies next to them and between, and what is beyond the last.
std::vector<float> values_around(level_table const& levels, std::uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<float> list{
      0.0F, 0x1p-149F, 0x1p-126F, 1.0F, 1.5F, 3.4e38F, std::numeric_limits<float>::infinity()};
  for (std::uint32_t c = 1; c <= levels.size(); ++c) {
    float const level = levels.value(c);
    list.insert(list.end(), {level, std::nextafterf(level, 0.0F), std::nextafterf(level, 2.0F), level / 2});
  }
  for (int i = 0; i < 600; ++i)
    list.push_back(std::ldexp(static_cast<float>(draw() >> 8), -24 - static_cast<int>(draw() % 7)));
  for (std::size_t i = 0; i < list.size(); i += 2) list[i] = -list[i];
  return list;
}

template <class Int, class Rounding>
void expect_codes_by_definition(level_table const& levels, Rounding const& rounding, float gain,
                                std::vector<float> const& z, std::vector<std::uint32_t> const& words,
                                std::uint32_t shared, std::string const& what) {
  int const n = static_cast<int>(z.size());
  std::vector<Int> found(z.size());
  gq::kernel::codes<4096>(levels, rounding, gain, z.data(), n, words.data(), shared, found.data());
  std::vector<std::int32_t> differences(z.size());
  std::vector<Int> portable(z.size());
  if (levels.has_lines())
    gq::kernel::detail::decided_codes<4096>(levels, rounding, gain, z.data(), n, words.data(), shared,
                                            differences.data(), portable.data());
  for (std::size_t i = 0; i < z.size(); ++i) {
    float const t = std::fmin(std::fabs(z[i]) * gain, levels.extent());
    gq::neighbors const c = levels.locate(t);
    bool const negative = std::signbit(z[i]);
    std::uint32_t const word = Rounding::word_per_coordinate ? words[i] : shared;
    int const code = rounding.up(c.threshold, word, negative ? ~0U : 0U) ? c.upper : c.lower;
    ASSERT_EQ(int{found[i]}, negative ? -code : code)
        << what << ": " << std::hexfloat << z[i] << " * " << gain;
    if (levels.has_lines() && gq::kernel::detail::decides(differences[i], levels.slack())) {
      ASSERT_EQ(portable[i], found[i]) << what << ": " << std::hexfloat << z[i] << " * " << gain;
    }
  }
}

TEST(CodesByTable, are_those_of_one_value_after_the_other) {
  for (auto const& [name, levels] : tables()) {
    std::vector<float> const z = values_around(levels, 1);
    std::vector<std::uint32_t> words(z.size());
    std::mt19937 draw(2);
    for (float gain : {1.0F, 0.7F}) {
      for (std::uint32_t& w : words) w = draw();
      expect_codes_by_definition<std::int8_t>(levels, gq::rounding::stochastic{}, gain, z, words, 0, name);
      expect_codes_by_definition<std::int16_t>(levels, gq::rounding::stochastic{}, gain, z, words, 0, name);
      for (std::uint32_t shared : {0U, 0x12345678U, 0x7fffffffU, 0xffffffffU}) {
        expect_codes_by_definition<std::int8_t>(
            levels, gq::rounding::detail::shared_draw(gq::rounding::random_shift<false>{}), gain, z, words,
            shared, name);
        expect_codes_by_definition<std::int32_t>(
            levels, gq::rounding::detail::shared_draw(gq::rounding::nearest{}), gain, z, words, shared, name);
      }
    }
  }
}

// Words that are the threshold, or next to it: no line decides these.
TEST(CodesByTable, are_right_for_words_at_the_threshold) {
  for (auto const& [name, levels] : tables()) {
    std::vector<float> const z = values_around(levels, 3);
    for (std::int64_t off : {-0x20000, -0x2000, -256, -2, -1, 0, 1, 255, 0x2000, 0x20000}) {
      std::vector<std::uint32_t> words(z.size());
      for (std::size_t i = 0; i < z.size(); ++i)
        words[i] =
            static_cast<std::uint32_t>(levels.locate(std::fmin(std::fabs(z[i]), 1.0F)).threshold + off);
      expect_codes_by_definition<std::int8_t>(levels, gq::rounding::stochastic{}, 1.0F, z, words, 0, name);
    }
  }
}

// How far lines are off, in the units that slack() bounds; several of the values are the worst of their gaps.
TEST(CodesByTable, rest_on_lines_that_keep_within_their_slack) {
  for (auto const& [name, levels] : tables()) {
    if (!levels.has_lines()) continue;
    double const slack = levels.slack();
    for (float v : values_around(levels, 4)) {
      float const t = std::fmin(std::fabs(v), 1.0F);
      int k = 0;
      while (k < static_cast<int>(levels.size()) && levels.ascending()[k + 1] <= t) ++k;
      if (k == static_cast<int>(levels.size())) continue;
      double const below = levels.ascending()[k], gap = levels.ascending()[k + 1] - below;
      double const exact = 0x1p24 * (k + (t - below) / gap) + slack;
      float volatile const product = levels.slopes()[k] * t;
      double const fused = std::fma(levels.slopes()[k], t, levels.offsets()[k]);
      double const apart = product + levels.offsets()[k];
      ASSERT_LT(std::fabs(fused - exact) + 3, slack) << name << ": " << std::hexfloat << t;
      ASSERT_LT(std::fabs(apart - exact) + 3, slack) << name << ": " << std::hexfloat << t;
    }
  }
}

TEST(CodesByTable, has_lines_for_all_levels_that_are_told_apart_easily) {
  for (auto const& [name, levels] : tables())
    EXPECT_EQ(levels.has_lines(), name.substr(0, 4) != "near") << name;
  EXPECT_EQ(
      level_table(gq::levels::table{0.0, 1.0 / 7, 2.0 / 7, 3.0 / 7, 4.0 / 7, 5.0 / 7, 6.0 / 7, 1.0}).slack(),
      64U);
}

#if GLOBALQ_AVX512

constexpr int tiles = 4, count = 256 * tiles;
constexpr std::uint64_t first_tile = 5;
gq::random::stream const stream{0x123456789abcdefULL, 7, 3, gq::random::purpose::encode};

bool one_gain_for_128(std::vector<float> const& gain) {
  for (std::size_t k = 0; k < gain.size(); k += 2)
    if (gain[k] != gain[k + 1]) return false;
  return true;
}

/// Codes of both loops, also packed where they fit. @param gain  one for every 64 values
template <class Levels>
void expect_equal_codes(Levels const& levels, std::vector<float> const& z, std::vector<float> const& gain,
                        std::string const& what) {
  gq::rounding::stochastic const dice;
  std::vector<std::uint32_t> words(count);
  gq::kernel::fill_words<16 * tiles>(stream, first_tile, 0, words.data());
  std::vector<std::int8_t> expected(count), found(count);
  for (int i = 0; i < count; i += 64)
    gq::kernel::codes<64>(levels, dice, gain[static_cast<std::size_t>(i) / 64], z.data() + i, 64,
                          words.data() + i, 0U, expected.data() + i);
  for (std::size_t ahead : {std::size_t{0}, std::size_t{2048}}) {
    gq::kernel::detail::codes_of_tiles(levels, dice, z.data(), gain.data(), stream, first_tile, tiles,
                                       gq::kernel::detail::as_bytes{found.data()}, ahead);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(found[i], expected[i])
          << what << ", value " << i << ": " << std::hexfloat << z[i] << " * " << gain[i / 64];
  }
  bool zero_free = false;
  if constexpr (requires { levels.zero_free(); }) zero_free = levels.zero_free();
  if (levels.max_code() > (zero_free ? 8 : 7) || !one_gain_for_128(gain)) return;
  std::vector<std::uint8_t> nibbles(count / 2), packed(count / 2);
  gq::wire::packed<4>{}.pack(expected.data(), count, reinterpret_cast<std::byte*>(packed.data()), zero_free);
  for (std::size_t ahead : {std::size_t{0}, std::size_t{2048}}) {
    gq::kernel::detail::codes_of_tiles(levels, dice, z.data(), gain.data(), stream, first_tile, tiles,
                                       gq::kernel::detail::as_nibbles{nibbles.data(), zero_free ? 1 : 0},
                                       ahead);
    ASSERT_EQ(nibbles, packed) << what;
  }
}

template <class F>
void for_each_scheme(F const& f) {
  for (std::uint32_t s : {1U, 3U, 7U, 31U, 63U, 126U, 127U})
    f(gq::levels::uniform<>(s), "uniform " + std::to_string(s));
  for (std::uint32_t s : {1U, 2U, 5U, 30U, 95U, 96U, 120U, 127U})
    for (std::uint32_t h : {0U, 2U, 7U})
      if (s + h <= 127)
        f(gq::levels::exponential<>(s).with_headroom(h),
          "exponential " + std::to_string(s) + " + " + std::to_string(h));
  for (auto const& [name, levels] : tables())
    if (levels.has_lines()) f(levels, name);
}

std::vector<float> gains_of(float extent) {
  std::vector<float> gain(count / 64);
  for (std::size_t k = 0; k < gain.size(); ++k)
    gain[k] = k % 5 == 4 ? 0.0F : extent * (k % 3 == 0 ? 1.0F : 0.7F);
  return gain;
}

TEST(CodesOfTiles, are_those_of_the_portable_loop) {
  for_each_scheme([](auto const& levels, std::string const& name) {
    std::mt19937 draw(1);
    std::normal_distribution<float> normal(0.0F, 0.3F);
    for (int decades : {0, 8, 40}) {
      std::vector<float> z(count);
      for (float& v : z)
        v = std::ldexp(normal(draw), decades == 0 ? 0 : -static_cast<int>(draw() % (3U * decades)));
      std::vector<float> gain = gains_of(levels.extent());
      expect_equal_codes(levels, z, gain, name);
      for (std::size_t k = 0; k < gain.size(); k += 2) gain[k + 1] = gain[k];
      expect_equal_codes(levels, z, gain, name);
    }
  });
}

TEST(CodesOfTiles, of_zeros_levels_subnormals_and_what_exceeds_the_scale) {
  float const infinite = std::numeric_limits<float>::infinity();
  for_each_scheme([&](auto const& levels, std::string const& name) {
    std::vector<float> list = {0.0F,     0x1p-149F, 0x1p-127F, 0x1p-126F, 0x1.fffffep-127F,
                               0x1p-60F, 0.5F,      1.0F,      1.000001F, 2.0F,
                               3.7F,     100.0F,    1e30F,     3.4e38F,   infinite};
    for (std::uint32_t k = 1; k <= levels.size(); ++k) {
      float const level = levels.value(levels.max_code() + 1 - k) / levels.extent();
      list.insert(list.end(), {level, std::nextafterf(level, 0.0F), std::nextafterf(level, 2.0F)});
    }
    std::vector<float> z(count);
    for (std::size_t start = 0; start < list.size(); start += 200) {
      for (std::size_t i = 0; i < count; ++i)
        z[i] = std::copysign(list[(start + i * 7) % list.size()], i % 2 == 0 ? 1.0F : -1.0F);
      expect_equal_codes(levels, z, std::vector<float>(count / 64, levels.extent()), name);
    }
  });
}

// Where the upper 24 bits of the fraction are those of the word, the lower ones decide.
TEST(CodesOfTiles, are_right_where_24_bits_do_not_decide) {
  std::vector<float> z(count);
  int close = 0, decided_below = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t const word = stream.word(256 * first_tile + i), upper = word >> 8;
    // 24 bits of fraction; small words leave room for lower bits, below and above those of the word
    std::uint32_t const low = (word & 0xffU) + (i % 2 == 0 ? 1U : 0U);
    bool const room = upper < 0x10000U && low <= 0xffU;
    z[i] = room ? static_cast<float>((upper << 8) + low) * 0x1p-32F : static_cast<float>(upper) * 0x1p-24F;
    if (i % 3 == 0) z[i] = -z[i];
    ++close;
    decided_below += room ? 1 : 0;
  }
  ASSERT_GT(decided_below, 0) << "of " << close;
  std::vector<float> const one(count / 64, 1.0F);
  for (std::uint32_t s : {1U, 7U, 127U}) expect_equal_codes(gq::levels::uniform<>(s), z, one, "uniform");
  // below the smallest level of an exponential scheme: t / 2^-(s-1) is that fraction
  for (std::uint32_t s : {1U, 5U}) {
    std::vector<float> const gain(count / 64, std::ldexp(1.0F, 1 - static_cast<int>(s)));
    expect_equal_codes(gq::levels::exponential<>(s), z, gain, "exponential");
  }
}

// Values whose fraction is that of their word, as nearly as float32 can have it: where lines must not decide.
TEST(CodesOfTiles, of_tables_are_right_for_words_at_the_threshold) {
  for (auto const& [name, levels] : tables()) {
    if (!levels.has_lines()) continue;
    std::vector<float> z(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t const k = i * 7 % levels.size();
      double const below = levels.ascending()[k], gap = levels.ascending()[k + 1] - below;
      z[i] = static_cast<float>(std::fabs(below + gap * stream.word(256 * first_tile + i) * 0x1p-32));
      if (i % 3 == 0) z[i] = -z[i];
    }
    expect_equal_codes(levels, z, std::vector<float>(count / 64, 1.0F), name);
  }
}

/// Codes of 16-bit values, and of the same numbers in float32. @tparam Out  as_bytes or as_nibbles
template <class Out, class Half, class Levels>
void expect_codes_of_numbers(Levels const& levels, std::vector<Half> const& x, float gain,
                             std::uint64_t tile = first_tile) {
  std::vector<float> wide(count);
  for (std::size_t i = 0; i < count; ++i) wide[i] = float(x[i]);
  std::vector<float> const gains(count / 64, gain);
  std::vector<std::remove_pointer_t<decltype(Out::out)>> expected(count), found(count);
  gq::rounding::stochastic const dice;
  gq::kernel::detail::codes_of_tiles(levels, dice, wide.data(), gains.data(), stream, tile, tiles,
                                     Out{expected.data()}, std::size_t{0});
  for (std::size_t ahead : {std::size_t{0}, std::size_t{2048}}) {
    gq::kernel::detail::codes_of_tiles(levels, dice, x.data(), gains.data(), stream, tile, tiles,
                                       Out{found.data()}, ahead);
    ASSERT_EQ(found, expected) << gq::name_of(gq::dtype_of<Half>::value);
  }
}

template <class Half>
void expect_codes_of_all_numbers() {
  using namespace gq::kernel::detail;
  std::vector<Half> x(count);
  for (std::uint32_t start = 0; start < 0x10000U; start += count) {
    float largest = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      x[i].bits = static_cast<std::uint16_t>(start + i * 5 % count);
      if (!std::isfinite(float(x[i]))) x[i].bits = 0;
      largest = std::fmax(largest, std::fabs(float(x[i])));
    }
    for (float gain : {1.0F, 0x1p-10F, 0x1p10F, largest > 0x1p-100F ? 1 / largest : 0.0F}) {
      expect_codes_of_numbers<as_bytes>(gq::levels::uniform<>(127), x, gain * 127);
      expect_codes_of_numbers<as_bytes>(gq::levels::exponential<>(30), x, gain);
      expect_codes_of_numbers<as_nibbles>(gq::levels::uniform<>(7), x, gain * 7);
      expect_codes_of_numbers<as_nibbles>(gq::levels::exponential<>(7), x, gain);
    }
  }
}

/// Values that are the upper 24 bits of their words, where they have as few digits as that takes.
template <class Half>
void expect_codes_where_24_bits_do_not_decide() {
  using namespace gq::kernel::detail;
  int close = 0;
  for (std::uint64_t tile = 0; tile < 400; tile += tiles) {
    std::vector<Half> x(count);
    for (std::size_t i = 0; i < count; ++i) {
      float const upper = static_cast<float>(stream.word(256 * tile + i) >> 8) * 0x1p-24F;
      if (float(Half(upper)) != upper) continue;
      x[i] = Half(i % 2 == 0 ? upper : -upper);
      ++close;
    }
    expect_codes_of_numbers<as_bytes>(gq::levels::uniform<>(127), x, 1.0F, tile);
    expect_codes_of_numbers<as_nibbles>(gq::levels::uniform<>(7), x, 1.0F, tile);
  }
  ASSERT_GT(close, 0);
}

TEST(CodesOfTiles, of_16_bits_are_those_of_the_same_numbers_in_float32) {
  expect_codes_of_all_numbers<gq::float16>();
  expect_codes_of_all_numbers<gq::bfloat16>();
  expect_codes_where_24_bits_do_not_decide<gq::float16>();
  expect_codes_where_24_bits_do_not_decide<gq::bfloat16>();
}

// What the codec computes bucket by bucket, from a block's statistic.
template <class T>
void expect_scales_of_piece(std::initializer_list<int> powers) {
  gq::dtype const type = gq::dtype_of<T>::value;
  std::mt19937 draw(2);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  for (int power : powers)
    for (int zeros : {0, 1, 3})
      for (std::uint64_t bucket : {128U, 256U, 512U, 1024U}) {
        std::vector<T> x(1024);
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = T((i / bucket) % 4 < static_cast<unsigned>(zeros)
                       ? (i % 2 == 0 ? 0.0F : -0.0F)
                       : std::ldexp(normal(draw), power - static_cast<int>(i / bucket % 2)));
        std::vector<std::uint32_t> words(1024 / bucket, 99), expected_words;
        std::vector<float> gain(16, 99.0F), expected_gain;
        bool possible = true;
        for (std::uint64_t first = 0; first < 1024; first += bucket) {
          auto const s =
              gq::kernel::block_statistic({x.data(), type}, first, static_cast<int>(bucket), gq::infinity);
          double const bucket_scale = gq::norm::local_scale(s, gq::infinity, type, 0);
          auto const scale = gq::kernel::input_scale_of(type, bucket_scale, 0, 7);
          possible = possible && scale.exponent == 0;
          expected_words.push_back(gq::scale_word(bucket_scale));
          for (std::uint64_t i = 0; i < bucket; i += 64) expected_gain.push_back(scale.gain);
        }
        bool const done =
            gq::kernel::detail::scales_of_piece(x.data(), bucket, 7.0F, words.data(), gain.data());
        ASSERT_EQ(done, possible) << power << ' ' << zeros << ' ' << bucket;
        if (!done) continue;
        EXPECT_EQ(words, expected_words) << power << ' ' << zeros << ' ' << bucket;
        EXPECT_EQ(gain, expected_gain) << power << ' ' << zeros << ' ' << bucket;
      }
}

TEST(ScalesOfPiece, are_those_of_one_bucket_after_the_other) {
  expect_scales_of_piece<float>({0, -19, 20, -25, 30, -140, 120});
  expect_scales_of_piece<gq::float16>({0, -8, 12, -15, -20});
  expect_scales_of_piece<gq::bfloat16>({0, -19, 20, -25, 30, -130, 120});
}

template <class T>
void expect_no_scales_of_what_is_not_finite() {
  for (float odd : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (std::size_t at : {0U, 127U, 500U, 1023U}) {
      std::vector<T> x(1024, T(0.5F));
      std::vector<float> gain(16);
      std::vector<std::uint32_t> words(8);
      x[at] = T(-odd);
      EXPECT_FALSE(gq::kernel::detail::scales_of_piece(x.data(), 128, 7.0F, words.data(), gain.data())) << at;
    }
}

TEST(ScalesOfPiece, of_a_piece_with_nan_or_infinity_are_left_to_others) {
  expect_no_scales_of_what_is_not_finite<float>();
  expect_no_scales_of_what_is_not_finite<gq::float16>();
  expect_no_scales_of_what_is_not_finite<gq::bfloat16>();
}

#else

TEST(CodesOfTiles, are_not_written_out_for_this_machine) { GTEST_SKIP() << "no AVX-512"; }

#endif

}  // namespace
