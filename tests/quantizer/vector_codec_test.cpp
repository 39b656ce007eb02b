// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief One vector to a frame and back: round trips, pinned bytes, damaged bytes.

#include "tests/support/compositions.hpp"

#include <globalq/operator/vector_codec.hpp>
#include <globalq/policies.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace gq = globalq;

namespace vector_codec_test {

/// Values k / 512 from a generator of integers: the same bits under every compiler.
std::vector<float> values(std::size_t count, std::uint32_t seed = 1) {
  std::mt19937 draw(seed);
  std::vector<float> v(count);
  for (float& x : v) x = static_cast<float>(static_cast<int>(draw() % 4097) - 2048) * 0x1p-9F;
  return v;
}

std::vector<std::byte> encode(gq::vector_codec& codec, std::vector<float> const& x, gq::encoding_key key) {
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  frame.resize(codec.encode(x, key, frame));
  return frame;
}

std::string hex(std::span<std::byte const> bytes) {
  std::string text;
  for (std::byte b : bytes) {
    text += "0123456789abcdef"[static_cast<int>(b) >> 4];
    text += "0123456789abcdef"[static_cast<int>(b) & 15];
  }
  return text;
}

std::vector<gq::any_quantizer> operators() {
  gq::rounding::stochastic const dice;
  gq::levels::table const table{0, 0.125, 0.5, 1};
  gq::levels::symmetric const symmetric{0.25, 0.5, 0.75, 1};
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::exponential<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 128}, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<1>{}, table, dice, gq::wire::packed<3>{}},
      gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 64}, symmetric, dice, gq::wire::packed<3>{}},
      gq::quantizer{gq::norm::linf{.bucket = 32}, gq::levels::uniform{5}, gq::rounding::random_shift<>{},
                    gq::wire::int16{}},
      gq::quantizer{gq::norm::linf{}, table, gq::rounding::random_shift<false>{}, gq::wire::packed<5>{}},
      gq::quantizer{gq::norm::fixed{.scale = 8}, gq::levels::uniform{63}, dice, gq::wire::packed<7>{}},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 128}, gq::levels::uniform{3}, dice, gq::wire::elias<>{}},
      gq::quantizer{gq::norm::linf{}, gq::levels::exponential{7}, dice, gq::wire::huffman<>{}},
      gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::uniform{9}, dice, gq::wire::sparse<std::int16_t>{}},
  };
}

/// Four bits as two's complement: not the bytes of wire::packed<4>, though as many.
struct twos_complement {
  using code_type = std::int8_t;
  static constexpr bool is_integer = false;
  static constexpr bool without_gaps = true;
  static constexpr char const* name = "twos_complement";
  GLOBALQ_FUNCTION constexpr int bits() const { return 4; }
  constexpr std::uint32_t largest_code(bool) const { return 7; }
  constexpr std::uint64_t bytes(std::uint64_t n) const { return (n + 1) / 2; }
  constexpr std::uint8_t identifier() const { return 200; }
  void pack(std::int8_t const* codes, int n, std::byte* out, bool) const {
    for (int i = 0; i < n; i += 2)
      out[i / 2] = static_cast<std::byte>((codes[i] & 15) | ((i + 1 < n ? codes[i + 1] & 15 : 0) << 4));
  }
  bool unpack(std::byte const* in, int n, std::int8_t* codes, bool) const {
    for (int i = 0; i < n; ++i) {
      int const code = (static_cast<int>(in[i / 2]) >> (4 * (i % 2))) & 15;
      codes[i] = static_cast<std::int8_t>(code < 8 ? code : code - 16);
    }
    return false;
  }
};

TEST(VectorCodec, four_bits_of_a_wire_of_ones_own_are_packed_by_it) {
  gq::vector_codec codec{
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, gq::rounding::stochastic{}, twos_complement{}}};
  std::vector<float> const x = values(4096);
  std::vector<float> y(x.size());
  codec.decode(encode(codec, x, {.seed = 1, .step = 2}), {.seed = 1, .step = 2}, y);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_LE(std::fabs(x[i] - y[i]), 4.0F / 7 + 1e-5F) << i;
}

/// A byte for each code, and one more after eight.
struct with_gaps {
  using code_type = std::int8_t;
  static constexpr char const* name = "with_gaps";
  static constexpr std::byte mark{0x5a};
  constexpr int bits() const { return 8; }
  constexpr std::uint32_t largest_code(bool) const { return 127; }
  constexpr std::uint64_t bytes(std::uint64_t n) const { return n + n / 8; }
  constexpr std::uint8_t identifier() const { return 201; }
  void pack(std::int8_t const* codes, int n, std::byte* out, bool) const {
    for (int i = 0; i < n; ++i) {
      *out++ = static_cast<std::byte>(codes[i]);
      if (i % 8 == 7) *out++ = mark;
    }
  }
  bool unpack(std::byte const* in, int n, std::int8_t* codes, bool) const {
    bool bad = false;
    for (int i = 0; i < n; ++i) {
      codes[i] = static_cast<std::int8_t>(*in++);
      if (i % 8 == 7) bad = bad || *in++ != mark;
    }
    return bad;
  }
};

TEST(VectorCodec, a_wire_with_gaps_has_its_bytes_in_frames_and_plans) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{50}, gq::rounding::stochastic{}, with_gaps{}};
  gq::vector_codec codec{op, {}, gq::frame_checksum::none};
  for (std::size_t n : {1U, 8U, 255U, 4096U, 5003U}) {
    std::vector<float> const x = values(n);
    std::vector<float> y(n);
    codec.decode(encode(codec, x, {.seed = 1, .step = 2}), {.seed = 1, .step = 2}, y);
    for (std::size_t i = 0; i < n; ++i) ASSERT_LE(std::fabs(x[i] - y[i]), 4.0F / 50 + 1e-5F) << i;
    gq::plan const p = gq::plan_for(op, gq::schedule::allgather{}, 2, n);
    EXPECT_EQ(codec.frame_bytes(n), 32 + n + n / 8);  // header and scale, codes
    EXPECT_EQ(p.bits_per_value * static_cast<double>(n), 8.0 * static_cast<double>(16 + n + n / 8));
  }
}

TEST(VectorCodec, the_mean_of_many_decodings_is_the_vector) {
  std::vector<float> const x = values(300);
  for (gq::any_quantizer const& op : operators()) {
    gq::vector_codec codec{op, Kokkos::Serial()};
    constexpr int draws = 2000;
    std::vector<double> sum(x.size()), squares(x.size());
    std::vector<float> y(x.size());
    for (int k = 0; k < draws; ++k) {
      gq::encoding_key const key{7, static_cast<std::uint64_t>(k), 3};
      std::vector<std::byte> const frame = encode(codec, x, key);
      codec.decode(frame, key, y);
      for (std::size_t i = 0; i < x.size(); ++i) {
        sum[i] += y[i];
        squares[i] += (y[i] - x[i]) * static_cast<double>(y[i] - x[i]);
      }
    }
    // One test for all coordinates: sum_i (error of the mean)^2 against sum_i variance / draws. Pooled, since the sample
    // variance of a coordinate that is rarely rounded up says little. The ratio has mean 1 and, for independent
    // coordinates of variance v_i, standard deviation sqrt(2 sum v_i^2) / sum v_i; a shared shift makes buckets of
    // coordinates move together, at worst all of them.
    double error = 0, variance = 0, variance2 = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const e = sum[i] / draws - x[i], v = squares[i] / draws;
      error += e * e * draws;
      variance += v;
      variance2 += v * v;
    }
    bool const shared = op.facts().name.find("shift") != std::string::npos;
    double const deviation = shared ? std::sqrt(2.0) : std::sqrt(2 * variance2) / variance;
    EXPECT_LT(error / variance, 1 + 5 * deviation) << op.facts().name;
  }
}

TEST(VectorCodec, an_encoding_is_a_function_of_its_key) {
  std::vector<float> const x = values(1000);
  for (gq::any_quantizer const& op : operators()) {
    gq::vector_codec one{op, Kokkos::Serial()}, two{op};
    EXPECT_EQ(encode(one, x, {1, 2, 3}), encode(two, x, {1, 2, 3})) << op.facts().name;
    EXPECT_NE(encode(one, x, {1, 2, 3}), encode(two, x, {2, 2, 3})) << op.facts().name;
    EXPECT_NE(encode(one, x, {1, 2, 3}), encode(two, x, {1, 3, 3})) << op.facts().name;
    EXPECT_NE(encode(one, x, {1, 2, 3}), encode(two, x, {1, 2, 4})) << op.facts().name;
  }
}

template <class T>
void expect_decode_add_is_an_addition() {
  for (std::size_t length : {std::size_t{1}, std::size_t{255}, std::size_t{1300}})
    for (gq::any_quantizer const& op : operators()) {
      gq::vector_codec codec{op, Kokkos::Serial()};
      std::vector<float> const x = values(length), y = values(length, 2);
      std::vector<T> input(length), decoded(length), sum(length);
      for (std::size_t i = 0; i < length; ++i) {
        input[i] = T(x[i]);
        sum[i] = T(y[i]);
      }
      gq::encoding_key const key{3, 4, 5};
      std::vector<std::byte> frame(codec.frame_bytes(length, gq::dtype_of<T>::value));
      frame.resize(codec.encode(input, key, frame));
      codec.decode(frame, key, decoded);
      std::vector<T> const start = sum;
      codec.decode_add(frame, key, sum);
      for (std::size_t i = 0; i < length; ++i) {
        double const v = static_cast<double>(static_cast<float>(decoded[i]));
        double const before = static_cast<double>(static_cast<float>(start[i]));
        double const after = static_cast<double>(static_cast<float>(sum[i]));
        // 16-bit types round what decode() writes and the sum once each; others are exact up to the sum's rounding
        double const unit = sizeof(T) == 2 ? (std::is_same_v<T, gq::bfloat16> ? 0x1p-8 : 0x1p-11) : 0x1p-24;
        ASSERT_NEAR(after, before + v, unit * (std::fabs(v) + std::fabs(before + v) + std::fabs(v)))
            << op.facts().name << ", value " << i << " of " << length;
      }
      frame[3] = std::byte{99};
      std::vector<T> const untouched = sum;
      EXPECT_THROW(codec.decode_add(frame, key, sum), gq::frame_error);
      EXPECT_EQ(0, std::memcmp(untouched.data(), sum.data(), length * sizeof(T)));
    }
}

TEST(VectorCodec, decode_add_adds_what_decode_writes) {
  expect_decode_add_is_an_addition<float>();
  expect_decode_add_is_an_addition<double>();
  expect_decode_add_is_an_addition<gq::float16>();
  expect_decode_add_is_an_addition<gq::bfloat16>();
}

TEST(VectorCodec, the_bytes_of_a_frame_are_pinned) {
  std::vector<float> const x = values(9);
  std::vector<std::string> frames;
  for (gq::any_quantizer const& op : operators()) {
    gq::vector_codec codec{op};
    frames.push_back(hex(encode(codec, x, {1, 2, 3})));
  }
  // Changing these bytes is a change of the format: raise wire::format_version.
  std::vector<std::string> const pinned = {
      "6771030101000000090000000000166a0000d180000000000000000000000000096a241c7feac1a792f680ca7e",
      "67710301010000000900000000002a720000d1800000000000000000000000000501020301fcfefeff778afb61",
      "67710314010000000900000000005ea7560f3f81000000000000000000000000411103ba0b55ba14c3",
      "6771031301000000090000000000a63f0068f2810000000000000000000000005010b405504a1412",
      "6771031301000000090000000000e2480000d1800000000000000000000000005830d606772af98c",
      "67710302010000000900000000001e6e0000d18000000000000000000000000000000400010001000500fffffdfffcfffbff"
      "576f8961",
      "6771031501000000090000000000a63f0000d180000000000000000000000000408430a29412942b7028",
      "6771031701000000090000000000c8c2020bc2902136a556735f5eff",
      "67710340010000000900000000001aec36000000000000000000000000000000"
      "560f3f8100000000000000000000000000005010b4056222b7dc",
      "677103420100000009000000000072b93e000000000000000000000000000000"
      "0000d18000000000000000000000000000303003320303000400e5c26e00b6888e02",
      "677103450100000009000000000032cb3a000000000000000000000000000000"
      "560f3f81000000000000000000000000080004ff01300184b90b04999910",
  };
  EXPECT_EQ(frames, pinned);
}

/// The frame of a vector by a codec that is told the norms of all buckets.
template <class T>
std::vector<std::byte> encode_in_two_passes(gq::any_quantizer const& op, std::vector<T> const& x,
                                            gq::encoding_key key) {
  gq::kernel::host_executor const on{Kokkos::Serial()};
  gq::detail::operator_facts facts = op.facts();
  facts.local = true;
  facts.reduce = gq::detail::request::automatic;
  gq::detail::resolution const r = gq::detail::resolve(facts, {"test", 0, false, false, false}, 1);
  auto const codec = op.make_codec(facts, r, on);
  gq::const_vector const in{x.data(), gq::dtype_of<T>::value};
  std::vector<gq::norm::statistic> statistics(gq::divide_up<std::uint64_t>(x.size(), facts.bucket)), parts;
  gq::norm::bucket_statistics(on, x.size(), facts.bucket, facts.q, gq::norm::input_block{in, facts.q},
                              std::span(statistics), parts);
  std::vector<double> scales;
  for (gq::norm::statistic const& s : statistics)
    scales.push_back(gq::norm::local_scale(s, facts.q, in.type, 0));
  gq::detail::codec_call c;
  c.x = in;
  c.length = x.size();
  c.rank = static_cast<int>(key.worker);
  c.seed = key.seed;
  c.step = key.step;
  c.bucket_scales = scales;
  codec->begin(c);
  std::vector<std::byte> frame(codec->frame_bytes({0, x.size()}, 1));
  codec->combine({0, x.size()}, true, {}, frame);
  return frame;
}

template <class T>
void expect_one_pass_equals_two() {
  gq::rounding::stochastic const dice;
  std::vector<gq::any_quantizer> const list = {
      gq::quantizer{gq::norm::local<2>{32}, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<2>{128}, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<1>{256}, gq::levels::exponential<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::local<gq::infinity>{1024}, gq::levels::exponential{5}, dice,
                    gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<gq::infinity>{128}, gq::levels::uniform<>{}, dice, gq::wire::packed<4>{}},
      gq::quantizer{gq::norm::local<gq::infinity>{256}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
      gq::quantizer{gq::norm::local<gq::infinity>{512}, gq::levels::exponential<>{}, dice,
                    gq::wire::packed<>{5}},
      gq::quantizer{gq::norm::local<gq::infinity>{64}, gq::levels::uniform<>{}, dice, gq::wire::packed<>{4}},
      gq::quantizer{gq::norm::local<2>{64}, gq::levels::uniform<>{}, gq::rounding::random_shift<>{},
                    gq::wire::int8{}},
  };
  for (gq::any_quantizer const& op : list)
    for (std::size_t length : {std::size_t{1}, std::size_t{127}, std::size_t{1024}, std::size_t{5000}})
      for (float magnitude : {1.0F, 0x1p-14F, 0x1p-30F}) {
        std::vector<float> const source = values(length, 3);
        std::vector<T> x(length);
        for (std::size_t i = 0; i < length; ++i) x[i] = T(i / 128 % 5 == 4 ? 0.0F : source[i] * magnitude);
        gq::vector_codec codec{op, {}, gq::frame_checksum::none};
        gq::encoding_key const key{11, 12, 13};
        std::vector<std::byte> frame(codec.frame_bytes(length, gq::dtype_of<T>::value));
        codec.encode(x, key, frame);
        ASSERT_EQ(frame, encode_in_two_passes(op, x, key)) << op.facts().name << ", " << length << " values";
      }
}

TEST(VectorCodec, norms_and_codes_in_one_pass_make_the_frame_of_two) {
  expect_one_pass_equals_two<float>();
  expect_one_pass_equals_two<double>();
  expect_one_pass_equals_two<gq::float16>();
  expect_one_pass_equals_two<gq::bfloat16>();
}

TEST(VectorCodec, a_vector_that_is_not_finite_is_named_and_leaves_no_frame) {
  for (std::uint64_t bucket : {std::uint64_t{0}, std::uint64_t{128}, std::uint64_t{100}})
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      for (std::uint32_t q : {2U, gq::infinity}) {
        gq::vector_codec codec{gq::quantizer{gq::norm::local<>{q, bucket}, gq::levels::uniform<>{},
                                             gq::rounding::stochastic{}, gq::wire::packed<4>{}}};
        std::vector<float> x = values(3000), y(3000);
        std::vector<std::byte> frame = encode(codec, x, {1, 2, 3});
        x[2001] = bad;
        try {
          codec.encode(x, {1, 2, 3}, frame);
          ADD_FAILURE() << bucket;
        } catch (gq::non_finite_error const& e) {
          std::uint64_t const first = bucket == 0 ? 0 : 2001 / bucket * bucket;
          EXPECT_THAT(e.what(), testing::HasSubstr("values " + std::to_string(first) + " and"));
        }
        EXPECT_THROW(codec.decode(frame, {1, 2, 3}, y), gq::frame_error);
        x[2001] = 0;
        codec.encode(x, {1, 2, 3}, frame);
        codec.decode(frame, {1, 2, 3}, y);
      }
    }
}

TEST(VectorCodec, a_damaged_frame_is_an_error_that_leaves_the_output_alone) {
  std::vector<float> const x = values(200);
  for (gq::any_quantizer const& op : operators()) {
    gq::vector_codec codec{op, Kokkos::Serial()};
    std::vector<std::byte> const good = encode(codec, x, {1, 2, 3});
    std::vector<float> y(x.size());
    auto const refused = [&](std::span<std::byte const> frame) {
      std::fill(y.begin(), y.end(), 7.0F);
      try {
        codec.decode(frame, {1, 2, 3}, y);
      } catch (gq::frame_error const&) {
        EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return v == 7.0F; }));
        return true;
      } catch (gq::non_finite_error const&) {  // by another scale
      }
      return false;
    };
    std::mt19937 draw(5);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit)
      for (std::uint64_t burst : {std::uint64_t{1}, std::uint64_t{draw() | 1U}, std::uint64_t{0xffffffffU}}) {
        std::vector<std::byte> bad = good;
        for (std::size_t k = bit; k < std::min(bit + 32, 8 * bad.size()); ++k)
          bad[k / 8] ^= static_cast<std::byte>((burst >> (k - bit) & 1U) << (k % 8));
        ASSERT_TRUE(refused(bad)) << op.facts().name << ": " << burst << " at bit " << bit;
      }
    // without its checksum a frame is one without a checksum: any other size is refused
    std::span<std::byte const> const body = std::span(good).first(good.size() - 4);
    for (std::size_t size = 0; size < good.size(); ++size)
      ASSERT_EQ(refused(std::span(good).first(size)), size != body.size()) << size;
    for (int k = 0; k < 200; ++k) {
      std::vector<std::byte> noise(good.size());
      for (std::byte& b : noise) b = static_cast<std::byte>(draw());
      std::copy_n(good.begin(), 16, noise.begin());
      EXPECT_TRUE(refused(noise));
    }
    // codes that were damaged and no checksum: an error or a valid result, and the header still tells
    int errors = 0;
    for (std::size_t bit = 0; bit < 8 * body.size(); ++bit) {
      std::vector<std::byte> bad(body.begin(), body.end());
      bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      errors += refused(bad) ? 1 : 0;
      ASSERT_TRUE(bit >= 128 || errors == static_cast<int>(bit) + 1) << "every bit of the header matters";
    }
  }
}

TEST(VectorCodec, a_frame_without_a_checksum_is_the_same_without_four_bytes_and_is_decoded_as_well) {
  std::vector<float> const x = values(200);
  for (gq::any_quantizer const& op : operators()) {
    gq::vector_codec with{op}, without{op, {}, gq::frame_checksum::none};
    EXPECT_EQ(with.frame_bytes(200), without.frame_bytes(200) + 4);
    EXPECT_EQ(with.frame_bytes(0), 0U);
    std::vector<std::byte> const longer = encode(with, x, {1, 2, 3}), frame = encode(without, x, {1, 2, 3});
    ASSERT_EQ(longer.size(), frame.size() + 4);
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), longer.begin()));
    std::vector<float> a(200), b(200), c(200);
    with.decode(longer, {1, 2, 3}, a);
    with.decode(frame, {1, 2, 3}, b);
    without.decode(longer, {1, 2, 3}, c);
    EXPECT_EQ(a, b);
    EXPECT_EQ(a, c);
  }
}

template <class T>
void expect_frames_at_any_byte() {
  for (std::size_t length : {std::size_t{1}, std::size_t{1300}, std::size_t{4100}})
    for (gq::any_quantizer const& op : operators()) {
      gq::vector_codec codec{op, Kokkos::Serial()};
      std::vector<float> const source = values(length);
      std::vector<T> const x(source.begin(), source.end());
      gq::encoding_key const key{3, 4, 5};
      std::size_t const bytes = codec.frame_bytes(length, gq::dtype_of<T>::value);
      std::vector<std::byte> frame(bytes);
      frame.resize(codec.encode(x, key, frame));
      std::vector<T> expected(length), decoded(length);
      codec.decode(frame, key, expected);
      for (std::size_t at = 0; at < 16; ++at) {
        std::vector<std::byte> memory(bytes + at);
        std::span<std::byte> const moved = std::span(memory).subspan(at);
        std::span<std::byte> const used = moved.first(codec.encode(x, key, moved));
        ASSERT_TRUE(std::ranges::equal(used, frame)) << op.facts().name << " at byte " << at;
        codec.decode(used, key, decoded);
        ASSERT_EQ(decoded, expected) << op.facts().name << " at byte " << at;
        std::vector<T> sum(length);
        codec.decode_add(used, key, sum);
        ASSERT_EQ(sum, expected) << op.facts().name << " at byte " << at;
      }
    }
}

// The sanitizers see loads and stores at addresses that their types don't allow.
TEST(VectorCodec, a_frame_may_begin_at_any_byte) {
  expect_frames_at_any_byte<float>();
  expect_frames_at_any_byte<double>();
}

/// The error of decoding a frame of one operator and type by another; empty if there is none.
template <class T = float, class U = float>
std::string error_between(gq::any_quantizer const& from, gq::any_quantizer const& to,
                          gq::frame_checksum check = gq::frame_checksum::none,
                          gq::encoding_key key = {1, 2, 3}) {
  std::vector<float> const source = values(300);
  std::vector<T> const x(source.begin(), source.end());
  gq::vector_codec one{from, {}, check}, two{to};
  std::vector<std::byte> frame(one.frame_bytes(300, gq::dtype_of<T>::value));
  frame.resize(one.encode(x, {1, 2, 3}, frame));
  std::vector<U> y(300, U(7.0F));
  try {
    two.decode(frame, key, y);
  } catch (gq::frame_error const& e) {
    EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](U v) { return static_cast<float>(v) == 7.0F; }));
    return e.what();
  }
  return {};
}

TEST(VectorCodec, a_frame_of_another_form_of_scales_is_refused) {
  for (gq::any_quantizer const& op : operators()) {
    gq::detail::operator_facts const facts = op.facts();
    bool const sizes = facts.bucket != 0;  // of frames with many scales differ
    if (facts.fixed_scale == 0) {
      EXPECT_THAT((error_between<float, double>(op, op)),
                  testing::HasSubstr(sizes ? " bytes instead of " : "scales of 4 bytes instead of 8 bytes"));
      EXPECT_THAT((error_between<double, float>(op, op)),
                  testing::HasSubstr(sizes ? " bytes instead of " : "scales of 8 bytes instead of 4 bytes"));
    }
    EXPECT_EQ((error_between<float, gq::bfloat16>(op, op)), "");
    EXPECT_EQ((error_between<gq::float16, float>(op, op)), "");
  }
}

TEST(VectorCodec, a_frame_of_another_operator_with_the_same_wire_format_is_refused) {
  gq::rounding::stochastic const dice;
  auto const op = [&](std::uint64_t bucket, std::uint32_t levels) -> gq::any_quantizer {
    return gq::quantizer{gq::norm::linf{.bucket = bucket}, gq::levels::uniform{levels}, dice,
                         gq::wire::int8{}};
  };
  auto const fixed = [&](double scale) -> gq::any_quantizer {
    return gq::quantizer{gq::norm::fixed{.scale = scale}, gq::levels::uniform{63}, dice,
                         gq::wire::packed<7>{}};
  };
  auto const table = [&](float second) -> gq::any_quantizer {
    return gq::quantizer{gq::norm::local<1>{}, gq::levels::table{0, second, 0.5, 1}, dice,
                         gq::wire::packed<3>{}};
  };
  std::string const other = "it has other levels, buckets, scales or shifts";
  EXPECT_EQ(error_between(op(100, 7), op(100, 7)), "");
  EXPECT_THAT(error_between(op(100, 7), op(100, 8)), testing::HasSubstr(other));
  EXPECT_THAT(error_between(op(100, 7), op(120, 7)), testing::HasSubstr(other)) << "3 scales either way";
  EXPECT_THAT(error_between(fixed(8), fixed(16)), testing::HasSubstr(other));
  EXPECT_THAT(error_between(table(0.25), table(0.125)), testing::HasSubstr(other));
  // another norm and another rounding decode alike
  EXPECT_EQ(error_between(gq::quantizer{gq::norm::local<2>{.bucket = 100}, gq::levels::uniform{7}, dice,
                                        gq::wire::int8{}},
                          op(100, 7)),
            "");
}

TEST(VectorCodec, a_frame_of_another_key_is_refused_where_decoding_depends_on_the_key) {
  for (gq::any_quantizer const& op : operators())
    for (gq::encoding_key const& key :
         {gq::encoding_key{2, 2, 3}, gq::encoding_key{1, 3, 3}, gq::encoding_key{1, 2, 4}})
      EXPECT_THAT(error_between(op, op, gq::frame_checksum::appended, key),
                  testing::HasSubstr(op.facts().shifts ? "or with another key" : ""))
          << op.facts().name;
}

template <class T>
void expect_beyond_range(gq::any_quantizer const& op, std::vector<T> const& x) {
  gq::vector_codec codec{op, Kokkos::Serial()};
  gq::encoding_key const key{1, 2, 3};
  std::vector<std::byte> frame(codec.frame_bytes(x.size(), gq::dtype_of<T>::value));
  frame.resize(codec.encode(x, key, frame));
  auto const infinite = [](std::vector<T> const& v) {
    return std::count_if(v.begin(), v.end(), [](T value) { return std::isinf(static_cast<float>(value)); });
  };
  std::vector<T> y(x.size()), sum(x.size());
  EXPECT_THROW(codec.decode(frame, key, y), gq::non_finite_error);
  EXPECT_GT(infinite(y), 0);
  EXPECT_LT(infinite(y), static_cast<std::ptrdiff_t>(y.size())) << "the others are decoded";
  EXPECT_THROW(codec.decode_add(frame, key, sum), gq::non_finite_error);
  EXPECT_EQ(infinite(sum), infinite(y));
  EXPECT_THROW(codec.mean(std::vector<gq::source>{{frame, 1, 3}, {frame, 1, 3}}, key, y),
               gq::non_finite_error);
}

TEST(VectorCodec, values_beyond_the_range_of_their_type_are_an_error) {
  std::vector<gq::float16> half(300, gq::float16(1.0F));
  half[299] = gq::float16(60000.0F);  // below 2^16, which is the scale
  gq::norm::power_of_two<gq::norm::linf> const rounded_up{};
  expect_beyond_range<gq::float16>(
      gq::quantizer{rounded_up, gq::levels::exponential<>{}, gq::rounding::stochastic{}, gq::wire::int8{}},
      half);
  std::vector<float> wide(300, 1.0F);
  for (std::size_t i = 128; i < 256; ++i) wide[i] = 3e38F;  // their l2 norm is 3.4e39
  expect_beyond_range<float>(operators()[2], wide);
  // a sum of numbers in range
  gq::vector_codec codec{operators()[0]};
  std::vector<float> const x(300, 1e38F);
  std::vector<std::byte> const frame = encode(codec, x, {1, 2, 3});
  std::vector<float> y(300, 1.0F);
  codec.decode_add(frame, {1, 2, 3}, y);
  y[7] = 3.2e38F;
  EXPECT_THROW(codec.decode_add(frame, {1, 2, 3}, y), gq::non_finite_error);
}

TEST(VectorCodec, a_codec_that_was_moved_from_says_so_and_an_operator_keeps_its_value) {
  gq::any_quantizer op = operators()[0], moved = std::move(op);
  EXPECT_EQ(op.facts().name, moved.facts().name);
  gq::vector_codec one{op}, two = std::move(one);
  std::vector<float> const x = values(300);
  std::vector<float> y(300);
  std::vector<std::byte> const frame = encode(two, x, {1, 2, 3});
  std::vector<std::byte> room(frame.size());
  EXPECT_THROW(one.frame_bytes(300), gq::configuration_error);
  EXPECT_THROW(one.encode(x, {1, 2, 3}, room), gq::configuration_error);
  EXPECT_THROW(one.decode(frame, {1, 2, 3}, y), gq::configuration_error);
  EXPECT_THROW(one.set_levels(gq::levels::table{0, 1}), gq::configuration_error);
}

TEST(VectorCodec, several_frames_decode_to_their_mean) {
  gq::vector_codec codec{
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{4}, gq::rounding::stochastic{}, gq::wire::int8{}}};
  std::vector<float> const a{1, -1, 0.5F, 0}, b{-2, 2, 1, 0};  // all are levels: nothing is rounded
  std::vector<std::byte> const fa = encode(codec, a, {1, 1, 0}), fb = encode(codec, b, {1, 1, 1});
  std::vector<float> y(4);
  codec.mean(std::vector<gq::source>{{fa, 1, 0}, {fb, 1, 1}}, {1, 1, 0}, y);
  EXPECT_THAT(y, testing::ElementsAre(-0.5F, 0.5F, 0.75F, 0.0F));
}

TEST(VectorCodec, what_cannot_be_encoded_is_refused) {
  gq::vector_codec codec{gq::quantizer{gq::norm::fixed{.scale = 1}, gq::levels::uniform{4},
                                       gq::rounding::stochastic{}, gq::wire::int8{}}};
  std::vector<float> x{0.5F, 2.0F};
  std::vector<std::byte> frame(codec.frame_bytes(2));
  EXPECT_THROW(codec.encode(x, {}, frame), gq::configuration_error);
  x[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(codec.encode(x, {}, frame), gq::non_finite_error);
  x[1] = 0.25F;
  EXPECT_THROW(codec.encode(x, {}, std::span(frame).first(3)), gq::configuration_error);
  EXPECT_THROW(codec.encode(x, {.step = std::uint64_t{1} << 48}, frame), gq::configuration_error);
  EXPECT_THROW(codec.frame_bytes(std::uint64_t{1} << 48), gq::configuration_error);
  EXPECT_THROW(gq::vector_codec{gq::uncompressed{}}, gq::configuration_error);
  EXPECT_GT(codec.frame_bytes((std::uint64_t{1} << 48) - 1), std::size_t{1} << 48);
}

TEST(VectorCodec, strided_views_are_refused_and_contiguous_ones_taken) {
  gq::vector_codec codec{
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{4}, gq::rounding::nearest{}, gq::wire::int8{}}};
  Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> grid("grid", 4, 6);
  Kokkos::deep_copy(grid, 0.25);
  std::vector<std::byte> frame(codec.frame_bytes(24, gq::dtype::float64));
  codec.encode(grid, {}, frame);
  Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> back("back", 4, 6);
  codec.decode(frame, {}, back);
  EXPECT_EQ(back(3, 5), 0.25);
  auto const column = Kokkos::subview(grid, Kokkos::ALL, 2);
  EXPECT_THROW(codec.encode(column, {}, frame), gq::configuration_error);
}

}  // namespace vector_codec_test
