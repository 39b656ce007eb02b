// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief stream_vector_codec makes the frames of vector_codec, and says late what went wrong.
///
/// The stream is an instance of Kokkos::Serial; with Kokkos::Cuda the same file tests a GPU (tests/cuda).

#include "tests/support/any_operator.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/space.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/operator/stream_vector_codec.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace gq = globalq;

namespace {

using support::space;
template <class T>
using device = Kokkos::View<T*, space::memory_space>;

inline constexpr gq::rounding::stochastic dice;

template <class T>
device<T> on_device(std::vector<T> const& x) {
  device<T> y("values", x.size());
  Kokkos::deep_copy(y, Kokkos::View<T const*, Kokkos::HostSpace>(x.data(), x.size()));
  return y;
}
template <class T>
std::vector<T> on_host(device<T> const& x) {
  std::vector<T> y(x.size());
  Kokkos::deep_copy(Kokkos::View<T*, Kokkos::HostSpace>(y.data(), y.size()), x);
  return y;
}

template <class Value>
std::vector<Value> values_of(std::size_t d, int exponent = 0) {
  return support::values_of<Value>(static_cast<std::uint32_t>(d), d, exponent);
}
using support::expect_same;

template <class Value>
void compare(char const* name, support::any_operator const& op, std::size_t d, int exponent = 0) {
  std::string const what = std::string(name) + ", d " + std::to_string(d) + ", " +
                           gq::name_of(gq::dtype_of<Value>::value) + " times 2^" + std::to_string(exponent);
  gq::encoding_key const key{.seed = 5, .step = 9, .worker = 3, .workers = 5};
  gq::vector_codec host{op, Kokkos::Serial(), gq::frame_checksum::none};
  gq::stream_vector_codec stream{op, space()};
  ASSERT_EQ(host.levels(), stream.levels());
  std::vector<Value> const x = values_of<Value>(d, exponent);
  auto const bytes = host.frame_bytes(d, gq::dtype_of<Value>::value);
  ASSERT_EQ(bytes, stream.frame_bytes(d, gq::dtype_of<Value>::value));
  std::vector<std::byte> frame(bytes, std::byte{0x55});
  frame.resize(host.encode(x, key, frame));
  device<std::byte> const made("frame", bytes);
  stream.encode(on_device(x), key, made);
  stream.wait();
  ASSERT_EQ(stream.used_bytes(made), frame.size());
  auto found = on_host(made);
  found.resize(frame.size());
  expect_same(found, frame, what + ": frames");

  std::vector<Value> y = values_of<Value>(d), sum = values_of<Value>(d);
  auto const there = on_device(y), there_too = on_device(sum);
  host.decode(frame, key, y);
  host.decode_add(frame, key, sum);
  stream.decode(made, key, there);
  stream.decode_add(Kokkos::subview(made, std::make_pair(std::size_t{0}, frame.size())), key, there_too);
  stream.wait();
  expect_same(on_host(there), y, what + ": values");
  expect_same(on_host(there_too), sum, what + ": sums");

  // a checksum makes no difference to either
  gq::vector_codec checks{op, Kokkos::Serial()};
  std::vector<std::byte> longer(checks.frame_bytes(d, gq::dtype_of<Value>::value));
  longer.resize(checks.encode(x, key, longer));
  ASSERT_EQ(longer.size(), frame.size() + (d == 0 ? 0 : 4));
  stream.decode(on_device(longer), key, there_too);
  stream.wait();
  expect_same(on_host(there_too), y, what + ": values of a frame with a checksum");
  checks.decode(found, key, sum);
  expect_same(sum, y, what + ": values of a frame without");
}

/// One composition of each policy, with a name.
std::vector<std::pair<char const*, support::any_operator>> operators() {
  return {
      {"uniform", gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}}},
      {"exponential buckets",
       gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::exponential<>{}, dice, gq::wire::int8{}}},
      {"packed buckets",
       gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform<7>{}, dice, gq::wire::packed<4>{}}},
      {"correlated", gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform<7>{},
                                   gq::rounding::correlated{}, gq::wire::packed<4>{}}},
      {"table", gq::quantizer{gq::norm::l<2, 2>{.bucket = 100}, gq::levels::symmetric{0.25, 0.5, 1}, dice,
                              gq::wire::packed<3>{}}},
      {"shifted", gq::quantizer{gq::norm::l<1, 1>{}, gq::levels::uniform{300}, gq::rounding::random_shift<>{},
                                gq::wire::int16{}}},
      {"fixed", gq::quantizer{gq::norm::fixed{.scale = 64, .bucket = 64}, gq::levels::uniform<>{}, dice,
                              gq::wire::int16{}}},
      {"rotated",
       support::rotated(gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}},
                        1024)},
      {"rotated twice", support::rotated(support::rotated(gq::quantizer{gq::norm::l<2, 2>{.bucket = 100},
                                                                        gq::levels::symmetric{0.25, 0.5, 1},
                                                                        dice, gq::wire::packed<3>{}},
                                                          64),
                                         8192)},
      {"eden", support::eden<2>(64)},
      {"eden of long blocks, rotated", support::rotated(support::eden<2>(16384), 256)},
      {"sparse", gq::quantizer{gq::norm::l<2, 2>{}, gq::levels::uniform{5}, dice, gq::wire::sparse<>{}}},
      {"sparse local", gq::quantizer{gq::norm::local<2>{.bucket = 1000}, gq::levels::symmetric{0.25, 0.5, 1},
                                     dice, gq::wire::sparse<>{}}},
      {"sparse in 16 bits", gq::quantizer{gq::norm::l<2, 2>{.bucket = 4096}, gq::levels::uniform{1000}, dice,
                                          gq::wire::sparse<std::int16_t>{}}},
  };
}

}  // namespace

TEST(StreamVectorCodec, frames_and_values_are_those_of_the_host) {
  for (auto const& [name, op] : operators()) {
    for (std::size_t d : {0U, 1U, 15U, 64U, 127U, 257U, 1000U, 4096U, 4097U, 40001U})
      compare<float>(name, op, d);
    compare<double>(name, op, 5003);
    compare<gq::float16>(name, op, 5003);
    compare<gq::bfloat16>(name, op, 5003);
  }
}

TEST(StreamVectorCodec, both_ends_of_the_range) {
  for (auto const& [name, op] : operators()) {
    if (std::string(name) == "fixed") continue;  // has an absolute scale
    for (int exponent : {1020, -1060}) {
      std::string const kind = name;  // of those with these, the norm of all values is beyond float64
      bool const too_large = (kind == "shifted" || kind.starts_with("sparse")) && exponent > 0;
      if (!too_large) compare<double>(name, op, 3001, exponent);
    }
    for (int exponent : {120, -130}) compare<float>(name, op, 3001, exponent);
  }
}

// Maxima of these buckets are measured in registers on a GPU; their sums of squares and other buckets are not.
TEST(StreamVectorCodec, short_buckets_of_all_magnitudes) {
  constexpr std::size_t d = 3001;
  gq::encoding_key const key{.seed = 5, .step = 9, .worker = 3};
  std::vector<float> x = values_of<float>(d + 1);
  for (std::size_t i = 0; i <= d; ++i) {  // buckets of zeros, of subnormal numbers and of large ones
    int const kind = static_cast<int>(i / 64 % 7);
    x[i] = kind == 4 || kind == 5 ? (i % 2 == 0 ? -0.0F : 0.0F) : std::ldexp(x[i], kind * 40 - 140);
  }
  device<float> const there = on_device(x);
  for (std::uint64_t bucket : {64U, 128U, 256U, 512U})
    for (std::size_t off : {0U, 1U}) {
      support::any_operator const op =
          gq::quantizer{gq::norm::linf{.bucket = bucket}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
      gq::vector_codec host{op, Kokkos::Serial(), gq::frame_checksum::none};
      gq::stream_vector_codec stream{op, space()};
      std::vector<float> const mine(x.begin() + static_cast<std::ptrdiff_t>(off),
                                    x.begin() + static_cast<std::ptrdiff_t>(off + d));
      std::vector<std::byte> frame(host.frame_bytes(d));
      host.encode(mine, key, frame);
      device<std::byte> const made("frame", frame.size());
      stream.encode(Kokkos::subview(there, std::make_pair(off, off + d)), key, made);
      std::vector<float> y(d);
      device<float> const decoded("y", d);
      host.decode(frame, key, y);
      stream.decode(made, key, decoded);
      stream.wait();
      std::string const what = "buckets of " + std::to_string(bucket) + ", off " + std::to_string(off);
      expect_same(on_host(made), frame, what + ": frames");
      expect_same(on_host(decoded), y, what + ": values");
    }
}

// With 4 levels up to 6 * 2^-1074 every other level is halfway between two numbers, so a sum has other bits if its product was
// not rounded before.
TEST(StreamVectorCodec, a_sum_at_the_end_of_the_range_is_that_of_the_decoded_value) {
  constexpr std::size_t d = 1000;
  constexpr double least = std::numeric_limits<double>::denorm_min();
  std::vector<double> x(d), there(d);
  for (std::size_t i = 0; i < d; ++i) {
    x[i] = static_cast<double>(i % 7) * least;
    there[i] = static_cast<double>(i % 4096) * least;
  }
  gq::encoding_key const key{.seed = 9, .step = 3};
  for (auto const norm : {gq::norm::linf{}, gq::norm::linf{.bucket = 128}}) {
    support::any_operator const op = gq::quantizer{norm, gq::levels::uniform{4}, dice, gq::wire::int8{}};
    gq::vector_codec host{op, Kokkos::Serial(), gq::frame_checksum::none};
    gq::stream_vector_codec stream{op, space()};
    std::vector<std::byte> frame(host.frame_bytes(d, gq::dtype::float64));
    frame.resize(host.encode(x, key, frame));
    std::vector<double> decoded(d), on_the_host = there, sum = there;
    host.decode(frame, key, decoded);
    EXPECT_EQ(*std::max_element(decoded.begin(), decoded.end()), 6 * least);
    for (std::size_t i = 0; i < d; ++i) sum[i] += decoded[i];
    host.decode_add(frame, key, on_the_host);
    expect_same(on_the_host, sum, "host");
    auto const on_stream = on_device(there);
    stream.decode_add(on_device(frame), key, on_stream);
    stream.wait();
    expect_same(on_host(on_stream), sum, "stream");
  }
}

namespace {

template <class Error, class F>
std::string text_of(F const& f) {
  try {
    f();
  } catch (Error const& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST(StreamVectorCodec, a_norm_beyond_float64_is_an_error_as_on_the_host) {
  std::vector<double> const x = values_of<double>(3001, 1020);
  for (std::uint64_t bucket : {0U, 64U, 1000U}) {  // 64: measured and encoded in one pass
    gq::quantizer const op{gq::norm::l<1, 1>{.bucket = bucket}, gq::levels::uniform<>{}, dice,
                           gq::wire::int8{}};
    gq::vector_codec host{op, Kokkos::Serial()};
    gq::stream_vector_codec stream{op, space()};
    std::size_t const bytes = stream.frame_bytes(x.size(), gq::dtype::float64);
    std::vector<std::byte> frame(host.frame_bytes(x.size(), gq::dtype::float64));
    EXPECT_NE(
        text_of<gq::non_finite_error>([&] { host.encode(x, {}, frame); }).find("beyond the range of float64"),
        std::string::npos)
        << bucket;
    device<std::byte> const there("frame", bytes);
    stream.encode(on_device(x), {}, there);
    EXPECT_NE(text_of<gq::non_finite_error>([&] { stream.wait(); }).find("beyond the range of float64"),
              std::string::npos)
        << bucket;
    std::vector<double> y(x.size());
    EXPECT_THROW(host.decode(frame, {}, y), gq::frame_error);
    EXPECT_THROW(host.decode(on_host(there), {}, y), gq::frame_error);
  }
}

TEST(StreamVectorCodec, what_has_no_scale_makes_an_invalid_frame_and_is_told_once) {
  gq::quantizer const op{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  gq::stream_vector_codec codec{op, space()};
  std::vector<float> x = values_of<float>(1000);
  device<std::byte> const frame("frame", codec.frame_bytes(1000));
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    x[700] = bad;
    codec.encode(on_device(x), {}, frame);
    EXPECT_NE(text_of<gq::non_finite_error>([&] { codec.wait(); }).find("values contain NaN or infinity"),
              std::string::npos);
    EXPECT_TRUE(codec.good());
    device<float> const y("y", 1000);
    codec.decode(frame, {}, y);
    space().fence();
    EXPECT_FALSE(codec.good());
    EXPECT_NE(text_of<gq::frame_error>([&] { codec.decode(frame, {}, y); }).find("a frame is damaged"),
              std::string::npos)
        << "the next call throws";
  }
  gq::quantizer const fixed{gq::norm::fixed{.scale = 0.5}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  gq::stream_vector_codec other{fixed, space()};
  x[700] = -3;
  device<std::byte> const one("frame", other.frame_bytes(1000));
  other.encode(on_device(x), {}, one);
  EXPECT_NE(text_of<gq::configuration_error>([&] { other.wait(); }).find("exceeds the scale 0.5"),
            std::string::npos);
}

TEST(StreamVectorCodec, a_damaged_frame_is_an_error) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  gq::stream_vector_codec codec{op, space()};
  device<std::byte> const frame("frame", codec.frame_bytes(300));
  device<float> const x = on_device(values_of<float>(300)), y("y", 300);
  codec.encode(x, {}, frame);
  codec.decode(frame, {}, y);
  codec.wait();
  auto const good = on_host(frame);
  for (std::size_t at : {0U, 1U, 4U, 9U, 14U, 15U,
                         299U}) {  // identifier, version, terms, length, traits; and a code that is none
    auto damaged = good;
    damaged[at] = at == 299 ? std::byte{0x80} : damaged[at] ^ std::byte{0x10};
    codec.decode_add(on_device(damaged), {}, y);
    EXPECT_THROW(codec.wait(), gq::frame_error) << at;
  }
  codec.decode(frame, {}, y);
  codec.wait();
}

TEST(StreamVectorCodec, a_frame_of_another_operator_or_form_of_scales_is_refused) {
  gq::quantizer const op{gq::norm::linf{.bucket = 100}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
  gq::quantizer const other{gq::norm::linf{.bucket = 120}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
  gq::stream_vector_codec codec{op, space()}, reader{other, space()};
  device<std::byte> const frame("frame", codec.frame_bytes(300));
  codec.encode(on_device(values_of<float>(300)), {}, frame);
  codec.wait();
  device<float> const y("y", 300);
  EXPECT_THROW((reader.decode(frame, {}, y), reader.wait()), gq::frame_error);
  ASSERT_EQ(codec.frame_bytes(100, gq::dtype::float64), codec.frame_bytes(100));
  device<std::byte> const one("frame", codec.frame_bytes(100));
  codec.encode(on_device(values_of<float>(100)), {}, one);
  EXPECT_THROW((codec.decode(one, {}, device<double>("y", 100)), codec.wait()), gq::frame_error);
}

TEST(StreamVectorCodec, frames_of_edens_quantizer_and_bad_scales_are_refused_and_scales_beyond_float64_too) {
  gq::quantizer const plain{gq::norm::local<2>{64}, gq::detail::levels_of_eden(2), gq::rounding::nearest{},
                            gq::wire::packed<2>{}};
  gq::stream_vector_codec codec{support::eden<2>(64), space()}, other{plain, space()};
  std::vector<double> const x = values_of<double>(300);
  device<std::byte> const frame("frame", codec.frame_bytes(300, gq::dtype::float64));
  device<double> const y("y", 300);
  codec.encode(on_device(x), {}, frame);
  codec.decode(frame, {}, y);
  codec.wait();
  EXPECT_THROW((other.decode(frame, {}, y), other.wait()), gq::frame_error);
  for (double bad :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    auto damaged = on_host(frame);
    std::memcpy(damaged.data() + 16 + 8, &bad, 8);
    EXPECT_THROW((codec.decode(on_device(damaged), {}, y), codec.wait()), gq::frame_error) << bad;
  }
  other.encode(on_device(x), {}, frame);
  EXPECT_THROW((codec.decode(frame, {}, y), codec.wait()), gq::frame_error);
  // The norm is 1.751e308. Rotated values are 0.97 and 1.03 times their root mean square, one on each side of the levels' middle,
  // 0.98: the scale is 1.07 times the norm, beyond float64.
  device<std::byte> const room("frame", codec.frame_bytes(2, gq::dtype::float64));
  codec.encode(on_device(std::vector<double>{1.7498e308, 0.0525e308}), {}, room);
  EXPECT_THROW(codec.wait(), gq::non_finite_error);
  EXPECT_THROW((codec.decode(room, {}, device<double>("y", 2)), codec.wait()), gq::frame_error);
}

TEST(StreamVectorCodec, values_beyond_the_range_of_their_type_are_an_error) {
  gq::quantizer const op{gq::norm::l<2, 2>{}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
  gq::stream_vector_codec codec{op, space()};
  device<std::byte> const frame("frame", codec.frame_bytes(300));
  codec.encode(on_device(std::vector<float>(300, 3e38F)), {}, frame);  // their norm is 5e39
  device<float> const y("y", 300);
  codec.decode(frame, {}, y);
  EXPECT_NE(text_of<gq::non_finite_error>([&] { codec.wait(); }).find("beyond the range"), std::string::npos);
  codec.decode_add(frame, {}, y);
  EXPECT_THROW(codec.wait(), gq::non_finite_error);
}

/// decode_add() onto infinities and onto NaNs with and without a sign and a payload: the quiet NaN of the type, everywhere.
template <class Value, class Word>
void expect_quiet_nans(support::any_operator const& op, std::initializer_list<Word> there, Word quiet) {
  static_assert(sizeof(Value) == sizeof(Word));
  constexpr std::size_t d = 700;
  gq::encoding_key const key{.seed = 5, .step = 9};
  gq::vector_codec host{op, Kokkos::Serial(), gq::frame_checksum::none};
  gq::stream_vector_codec stream{op, space()};
  std::vector<Value> y = values_of<Value>(d);
  std::size_t at = 3;
  for (Word const w : there) {
    std::memcpy(static_cast<void*>(&y[at]), &w, sizeof w);
    at += 97;
  }
  std::vector<std::byte> frame(host.frame_bytes(d, gq::dtype_of<Value>::value));
  frame.resize(host.encode(values_of<Value>(d), key, frame));
  auto const on_stream = on_device(y);
  EXPECT_THROW(host.decode_add(frame, key, y), gq::non_finite_error);
  stream.decode_add(on_device(frame), key, on_stream);
  EXPECT_THROW(stream.wait(), gq::non_finite_error);
  expect_same(on_host(on_stream), y, gq::name_of(gq::dtype_of<Value>::value));
  at = 3;
  for (Word const w : there) {
    Word const infinity = *there.begin(), magnitude = static_cast<Word>(w << 1U) / 2U;
    Word found;
    std::memcpy(&found, &y[at], sizeof found);
    EXPECT_EQ(found, magnitude == infinity ? w : quiet) << "pattern " << +w << " was there";
    at += 97;
  }
}

TEST(StreamVectorCodec, a_nan_that_was_there_becomes_the_quiet_one) {
  for (auto const norm : {gq::norm::linf{}, gq::norm::linf{.bucket = 128}}) {
    support::any_operator const op = gq::quantizer{norm, gq::levels::exponential<>{}, dice, gq::wire::int8{}};
    expect_quiet_nans<float, std::uint32_t>(
        op, {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f812345, 0xff800001}, 0x7fc00000);
    expect_quiet_nans<double, std::uint64_t>(
        op, {0x7ff0000000000000, 0xfff0000000000000, 0xfff8000000000001, 0x7ff0000000000001},
        0x7ff8000000000000);
    expect_quiet_nans<gq::float16, std::uint16_t>(op, {0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01}, 0x7e00);
    expect_quiet_nans<gq::bfloat16, std::uint16_t>(op, {0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81}, 0x7fc0);
  }
}

TEST(StreamVectorCodec, what_nothing_throws_is_written_to_standard_error) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  testing::internal::CaptureStderr();
  {
    gq::stream_vector_codec codec{op, space()};
    codec.decode(device<std::byte>("zeros", codec.frame_bytes(300)), {}, device<float>("y", 300));
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("globalq: decode: a frame is damaged"),
            std::string::npos);
}

TEST(StreamVectorCodec, a_damaged_sparse_frame_is_an_error_or_another_vector) {
  gq::quantizer const op{gq::norm::local<2>{.bucket = 1000}, gq::levels::uniform{3}, dice,
                         gq::wire::sparse<>{}};
  gq::vector_codec host{op, Kokkos::Serial()};
  gq::stream_vector_codec codec{op, space()};
  constexpr std::size_t d = 9000;
  device<float> const x = on_device(values_of<float>(d)), y("y", d);
  device<std::byte> const room("frame", codec.frame_bytes(d));
  codec.encode(x, {}, room);
  std::size_t const used = codec.used_bytes(room);
  ASSERT_LT(used, room.size());
  auto const all = on_host(room);
  std::vector<std::byte> const good(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(used));
  int refused = 0, taken = 0;
  for (std::size_t bit = 0; bit < 8 * used; bit += bit < 1200 ? 5 : 97) {
    auto damaged = good;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    std::vector<float> expected(d);
    bool bad = false, beyond = false;
    try {
      host.decode(damaged, {}, expected);
    } catch (gq::frame_error const&) {
      bad = true;
    } catch (gq::non_finite_error const&) {
      beyond = true;  // by another scale
    }
    codec.decode(on_device(damaged), {}, y);
    if (bad) {
      EXPECT_THROW(codec.wait(), gq::frame_error) << bit;
    } else {
      if (beyond)
        EXPECT_THROW(codec.wait(), gq::non_finite_error) << bit;
      else
        EXPECT_NO_THROW(codec.wait()) << bit;
      expect_same(on_host(y), expected, "bit " + std::to_string(bit));
    }
    ++(bad ? refused : taken);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(taken, 100) << "scales and signs may be any";
  for (std::size_t bytes : {std::size_t{0}, std::size_t{16}, std::size_t{40}, used - 1}) {
    auto const cut = Kokkos::subview(room, std::make_pair(std::size_t{0}, bytes));
    EXPECT_THROW((codec.decode(cut, {}, y), codec.wait()), gq::frame_error) << bytes;
  }
  codec.decode(room, {}, y);
  codec.wait();
}

TEST(StreamVectorCodec, codes_that_only_the_host_has_are_refused_with_those_that_a_stream_has) {
  auto const refusal = [](auto wire) {
    gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{7}, dice, wire};
    return text_of<gq::configuration_error>([&] { gq::stream_vector_codec codec{op, space()}; });
  };
  for (std::string const& text : {refusal(gq::wire::elias<>{}), refusal(gq::wire::huffman<>{})})
    EXPECT_NE(text.find("on a stream use wire::sparse, wire::packed or wire::int8, or call from host memory"),
              std::string::npos)
        << text;
  EXPECT_EQ(refusal(gq::wire::sparse<>{}), "");
}

TEST(StreamVectorCodec, sizes_and_places_are_checked_at_once) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}};
  gq::stream_vector_codec codec{op, space()};
  device<float> const x("x", 100);
  std::size_t const bytes = codec.frame_bytes(100);
  device<std::byte> const room("frame", bytes + 16);
  auto const part = [&](std::size_t first, std::size_t count) {
    return Kokkos::subview(room, std::make_pair(first, first + count));
  };
  EXPECT_THROW(codec.encode(x, {}, part(0, bytes - 1)), gq::configuration_error);
  EXPECT_THROW(codec.decode(part(0, bytes + 1), {}, x), gq::configuration_error);
  EXPECT_THROW(codec.encode(x, {}, part(8, bytes)), gq::configuration_error);
  EXPECT_THROW(codec.frame_bytes(std::uint64_t{1} << 48), gq::configuration_error);
  EXPECT_THROW(codec.encode(x, {.step = std::uint64_t{1} << 48}, part(0, bytes)), gq::configuration_error);
  EXPECT_NO_THROW(codec.encode(x, {}, part(16, bytes)));
  EXPECT_THROW((gq::stream_vector_codec{gq::uncompressed{}, space()}), gq::configuration_error);
}

namespace {

using table = gq::levels::symmetric;

/// An operator whose levels may change.
auto with(table const& levels) {
  return gq::quantizer{gq::norm::l<2, 2>{.bucket = 100}, levels, dice, gq::wire::packed<3>{}};
}

/// Tables in turn: with cells (the first two) and searched by halving.
table const tables[] = {table{0.25, 0.5, 1}, table{0.1, 0.7, 1}, table{0.5, 0.5 + 0x1p-24, 1}};

/// The frame that a host makes with levels.
std::vector<std::byte> frame_with(table const& levels, std::vector<float> const& x) {
  gq::vector_codec host{with(levels), Kokkos::Serial(), gq::frame_checksum::none};
  std::vector<std::byte> frame(host.frame_bytes(x.size()));
  host.encode(x, {.seed = 5, .step = 9}, frame);
  return frame;
}

}  // namespace

TEST(StreamVectorCodec, levels_that_changed_are_those_of_the_next_call) {
  std::vector<float> const x = values_of<float>(5003);
  device<float> const there = on_device(x);
  for (bool before_the_first_call : {false, true}) {
    gq::stream_vector_codec codec{with(tables[0]), space()};
    device<std::byte> frames[4];
    for (auto& frame : frames) frame = device<std::byte>("frame", codec.frame_bytes(x.size()));
    if (!before_the_first_call) codec.encode(there, {.seed = 5, .step = 9}, frames[0]);
    for (int k : {1, 2, 0}) {  // nothing is waited for
      codec.set_levels(tables[k]);
      codec.encode(there, {.seed = 5, .step = 9}, frames[k == 0 ? 3 : k]);
    }
    codec.wait();
    for (int k = before_the_first_call ? 1 : 0; k < 4; ++k)
      expect_same(on_host(frames[k]), frame_with(tables[k % 3], x), "frame " + std::to_string(k));
    EXPECT_THROW(codec.set_levels(gq::levels::table{0, 0.5, 0.75, 1}), gq::configuration_error);
    codec.encode(there, {.seed = 5, .step = 9}, frames[1]);
    codec.wait();
    expect_same(on_host(frames[1]), frame_with(tables[0], x), "after a refusal");
  }
}

#if !defined(KOKKOS_ENABLE_CUDA)
namespace {
int launches = 0;
}

// Norm, scale, factors of the scale, codes, scales of the frame, errors; with norms of one's own the frame and errors. Decoding: factors
// where there is one scale, values, errors. The first call also prepares state, and memory of the norm.
TEST(StreamVectorCodec, a_later_call_is_few_launches) {
  using namespace Kokkos::Tools::Experimental;
  set_begin_parallel_for_callback([](char const* name, std::uint32_t, std::uint64_t*) {
    launches += std::string_view(name) == "globalq" ? 1 : 0;
  });
  struct expected {
    support::any_operator op;
    int first, encode, decode;
  };
  for (auto const& [op, first, encode, decode] :
       {expected{gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, dice, gq::wire::int8{}}, 5, 3, 2},
        expected{gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform<7>{}, dice,
                               gq::wire::packed<4>{}},
                 3, 2, 2}}) {
    gq::stream_vector_codec codec{op, space()};
    auto const x = on_device(values_of<float>(5000));
    device<std::byte> const frame("frame", codec.frame_bytes(5000));
    for (int call = 0; call < 2; ++call) {
      launches = 0;
      codec.encode(x, {.seed = 1, .step = 2}, frame);
      EXPECT_EQ(launches, call == 0 ? first : encode);
      launches = 0;
      codec.decode(frame, {.seed = 1, .step = 2}, x);
      EXPECT_EQ(launches, decode);
    }
    codec.wait();
  }
  set_begin_parallel_for_callback(nullptr);
}
#endif

#if defined(KOKKOS_ENABLE_CUDA)
namespace {

/// A stream, and graphs captured from it.
class capturing_stream {
 public:
  capturing_stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  capturing_stream(capturing_stream const&) = delete;
  capturing_stream& operator=(capturing_stream const&) = delete;
  ~capturing_stream() {
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    cudaStreamDestroy(stream_);
  }
  cudaStream_t get() const { return stream_; }

  /// A graph of what is enqueued.
  template <class F>
  int capture(F const& enqueue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    enqueue();
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&runnable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    graphs_.push_back(runnable);
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph) {
    EXPECT_EQ(cudaGraphLaunch(graphs_.at(static_cast<std::size_t>(graph)), stream_), cudaSuccess);
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

TEST(StreamVectorCodec, a_graph_keeps_the_levels_that_it_was_captured_with) {
  std::vector<float> const x = values_of<float>(5003);
  device<float> const there = on_device(x);
  Kokkos::View<std::uint64_t, Kokkos::CudaSpace> const step("step");
  Kokkos::deep_copy(step, std::uint64_t{9});
  capturing_stream stream;
  {
    gq::stream_vector_codec codec{with(tables[0]), Kokkos::Cuda(stream.get())};
    device<std::byte> const frame("frame", codec.frame_bytes(x.size()));
    auto const encode = [&] { codec.encode(there, {.seed = 5}, step, frame); };
    auto const expect_levels = [&](int k, std::string const& what) {
      codec.wait();
      expect_same(on_host(frame), frame_with(tables[k], x), what);
    };
    auto const expect_replayed = [&](int graph, int k) {
      stream.replay(graph);
      expect_levels(k, "graph " + std::to_string(graph) + " with levels " + std::to_string(k));
    };
    encode();
    expect_levels(0, "the first call");
    int const first = stream.capture(encode);
    expect_replayed(first, 0);
    codec.set_levels(tables[1]);
    expect_replayed(first, 0);
    encode();
    expect_levels(1, "after a change");
    codec.set_levels(tables[2]);
    int const second = stream.capture(encode);  // right after a change
    expect_replayed(first, 0);
    expect_replayed(second, 2);

    // levels that change while a graph is captured would have to be written in it, into new memory
    stream.capture([&] {
      codec.set_levels(tables[1]);
      EXPECT_THROW(encode(), gq::configuration_error);
    });
    encode();
    expect_levels(1, "after a change in a capture");
    expect_replayed(second, 2);
    expect_replayed(first, 0);
  }
}
#endif

TEST(StreamVectorCodec, the_step_can_be_where_the_stream_is) {
  gq::quantizer const op{gq::norm::linf{}, gq::levels::uniform{3}, gq::rounding::random_shift<>{},
                         gq::wire::int8{}};
  gq::stream_vector_codec codec{op, space()};
  auto const x = on_device(values_of<float>(1000));
  device<std::byte> const a("frame", codec.frame_bytes(1000)), b("frame", a.size());
  device<float> const y("y", 1000), z("z", 1000);
  device<std::uint64_t> const step("step", 1);
  for (std::uint64_t s : {0U, 77U}) {
    Kokkos::deep_copy(step, s);
    codec.encode(x, {.seed = 1, .step = s}, a);
    codec.encode(x, {.seed = 1}, step, b);
    codec.decode(a, {.seed = 1, .step = s}, y);
    codec.decode(b, {.seed = 1}, step, z);
    codec.decode_add(a, {.seed = 1, .step = s}, y);
    codec.decode_add(b, {.seed = 1}, step, z);
    codec.wait();
    expect_same(on_host(a), on_host(b), "frames");
    expect_same(on_host(y), on_host(z), "values");
    codec.encode(x, {.seed = 1}, reinterpret_cast<unsigned long long*>(step.data()), b);
    codec.decode(b, {.seed = 1}, step.data(), z);
    codec.decode_add(b, {.seed = 1}, step.data(), z);
    codec.wait();
    expect_same(on_host(a), on_host(b), "frames, by a pointer");
    expect_same(on_host(y), on_host(z), "values, by a pointer");
  }
  Kokkos::deep_copy(step, std::uint64_t{1} << 48);
  codec.encode(x, {.seed = 1}, step, b);
  EXPECT_THROW(codec.wait(), gq::configuration_error);
  EXPECT_THROW(codec.encode(x, {.seed = 1}, static_cast<std::uint64_t*>(nullptr), b),
               gq::configuration_error);
}
