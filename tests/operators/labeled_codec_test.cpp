// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Vectors as bytes with a label: they decode as frames of vector_codec do, and damaged bytes are refused.

#include <globalq/named/labeled_codec.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace labeled_codec_test {
namespace {

namespace gq = globalq;
using testing::HasSubstr, testing::StartsWith;

template <class T>
std::vector<T> values(std::size_t length) {
  std::vector<T> x(length);
  for (std::size_t i = 0; i < length; ++i)
    x[i] = static_cast<T>(static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) * 0x1p-9F);
  return x;
}

template <class T>
std::vector<std::byte> encoded(gq::named::labeled_codec& codec, std::vector<T> const& x,
                               gq::encoding_key key) {
  constexpr gq::dtype type = gq::dtype_of<T>::value;
  std::vector<std::byte> bytes(codec.most_bytes(x.size(), type));
  bytes.resize(codec.encode({x.data(), type}, x.size(), key, bytes));
  return bytes;
}

template <class F>
std::string refusal(F const& f) {
  try {
    f();
  } catch (gq::error const& problem) {
    return problem.what();
  }
  return {};
}

/// Encodes a vector and decodes it by the label alone.
template <class T>
void expect_values_of_the_codec(std::string const& text, std::size_t length) {
  constexpr gq::dtype type = gq::dtype_of<T>::value;
  gq::encoding_key const key{0x0123456789abcdefU, 77, 5, 6};
  std::vector<T> const x = values<T>(length);
  gq::named::labeled_codec codec(text);
  std::vector<std::byte> const bytes = encoded(codec, x, key);
  gq::named::vector_label const label = gq::named::read_label(bytes);
  EXPECT_THAT(gq::named::words_of(gq::named::read_operator(text)), StartsWith(label.words));
  EXPECT_EQ(label.words, codec.words());
  EXPECT_TRUE(label.type == type && label.length == length && label.key.seed == key.seed &&
              label.key.step == key.step && label.key.worker == key.worker &&
              label.key.workers == key.workers);
  gq::vector_codec plain(gq::named::operator_of(gq::named::read_operator(text)));
  std::vector<std::byte> frame(plain.frame_bytes(length, type));
  frame.resize(plain.encode(x, key, frame));
  std::vector<T> expected(length), sum = x, found(length), added = x;
  plain.decode(frame, key, expected);
  plain.decode_add(frame, key, sum);
  gq::named::labeled_codec other(label.words);
  other.decode(bytes, {found.data(), type}, length);
  other.decode(bytes, {added.data(), type}, length, true);
  if (length == 0) return;
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), length * sizeof(T)), 0) << text;
  EXPECT_EQ(std::memcmp(added.data(), sum.data(), length * sizeof(T)), 0) << text;
}

}  // namespace

TEST(LabeledCodec, every_operator_of_vector_codec_is_decoded_by_the_label_alone) {
  int tried = 0;
  for (gq::named::entry const& e : gq::named::operators())
    for (std::string_view const example : e.examples) {
      std::string const text(example);
      gq::named::named_operator const asked = gq::named::read_operator(text);
      std::string const why = refusal([&] { gq::vector_codec codec(gq::named::operator_of(asked)); });
      if (!why.empty() || !asked.only_quantizes()) {
        EXPECT_THAT(refusal([&] { gq::named::labeled_codec codec(text); }),
                    HasSubstr(why.empty() ? "which calls do" : why));
        continue;
      }
      ++tried;
      expect_values_of_the_codec<float>(text, 1000);
      expect_values_of_the_codec<double>(text, 255);
      expect_values_of_the_codec<gq::bfloat16>(text, 257);
      expect_values_of_the_codec<gq::float16>(text, 1);
      expect_values_of_the_codec<float>(text, 0);
    }
  EXPECT_GT(tried, 20);
}

TEST(LabeledCodec, a_vector_may_be_decoded_into_another_type) {
  gq::named::labeled_codec codec("cgx:8");
  auto const bytes = encoded(codec, values<gq::bfloat16>(500), {1, 2, 3});
  std::vector<float> wide(500);
  std::vector<gq::bfloat16> own(500);
  codec.decode(bytes, {wide.data(), gq::dtype::float32}, 500);
  codec.decode(bytes, {own.data(), gq::dtype::bfloat16}, 500);
  for (std::size_t i = 0; i < 500; ++i) EXPECT_EQ(own[i].bits, gq::bfloat16(wide[i]).bits);
}

TEST(LabeledCodec, bytes_of_version_1_are_read) {
  std::string const text =
      "676c6f62616c7156010000000000000009000000000000002a0000000000000007000000000000000300000001000000"
      "4a000000000000006e6f726d3d6c6f63616c3a696e66206275636b65743d313238206c6576656c733d756e69666f726d"
      "20726f756e64696e673d73746f6368617374696320776972653d7061636b65643a346771031401000000090000000000"
      "5ea700007a800000000000000000000000006f554533023151bc76";
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  gq::named::vector_label const label = gq::named::read_label(bytes);
  gq::named::labeled_codec codec(label.words);
  std::vector<float> const x = values<float>(9);
  EXPECT_EQ(encoded(codec, x, {42, 7, 3}), bytes);
  std::vector<float> y(9);
  codec.decode(bytes, {y.data(), gq::dtype::float32}, 9);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(y[i], x[i], 2.0F / 7);  // one gap of seven levels
}

TEST(LabeledCodec, damaged_and_shortened_bytes_are_refused_and_write_nothing) {
  gq::named::labeled_codec codec("qsgd:4,code=elias");
  auto const bytes = encoded(codec, values<float>(300), {1, 2, 3});
  std::vector<float> y(300, 5.0F);
  auto const refused = [&](std::span<std::byte const> damaged) {
    try {
      codec.decode(damaged, {y.data(), gq::dtype::float32}, y.size());
    } catch (gq::frame_error const&) {
      return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_TRUE(refused(std::span(bytes).first(i))) << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> damaged = bytes;
      damaged[i] ^= std::byte(1U << bit);
      EXPECT_TRUE(refused(damaged)) << i << ' ' << bit;
    }
  }
  EXPECT_EQ(y, std::vector<float>(300, 5.0F));
  EXPECT_FALSE(refused(bytes));
}

TEST(LabeledCodec, labels_and_frames_that_lie_do_no_harm) {
  // checksums are right: somebody computed them
  constexpr std::ptrdiff_t head = 56;
  struct made {
    std::string words;
    std::vector<std::byte> bytes;
  };
  std::vector<made> all;
  for (gq::named::entry const& e : gq::named::operators())
    for (std::string_view const text : e.examples) try {
        gq::named::labeled_codec codec(text);
        all.push_back({codec.words(), encoded(codec, values<float>(700), {1, 2, 3})});
      } catch (gq::configuration_error const&) {
      }
  auto const sign = [](std::vector<std::byte>& bytes) {
    std::size_t const end = bytes.size() - 4;
    std::uint32_t const sum = gq::wire::checksum(std::span(bytes).first(end), 0x676c6f62);
    std::memcpy(bytes.data() + end, &sum, 4);
  };
  int decoded = 0, refused = 0;
  auto const decode = [&](std::vector<std::byte> const& bytes, std::uint64_t length) {
    std::vector<float> y(length);
    try {
      gq::named::vector_label const label = gq::named::read_label(bytes);
      gq::named::labeled_codec(label.words).decode(bytes, {y.data(), gq::dtype::float32}, length);
      ++decoded;
    } catch (gq::error const&) {
      ++refused;
    }
  };
  std::uint32_t random = 1;
  for (made const& frame : all) {
    for (made const& label : all) {  // the frame of one operator under the label of another
      std::vector<std::byte> bytes(frame.bytes.begin(), frame.bytes.begin() + head);
      auto const count = static_cast<std::uint32_t>(label.words.size());
      std::memcpy(bytes.data() + 48, &count, 4);
      for (char const c : label.words) bytes.push_back(static_cast<std::byte>(c));
      bytes.insert(bytes.end(), frame.bytes.begin() + head + static_cast<std::ptrdiff_t>(frame.words.size()),
                   frame.bytes.end());
      sign(bytes);
      decode(bytes, 700);
    }
    for (int k = 0; k < 40; ++k) {  // damaged anywhere
      std::vector<std::byte> bytes = frame.bytes;
      for (int change = 0; change < 3; ++change) {
        random = random * 1664525U + 1013904223U;
        bytes[8 + random % (bytes.size() - 12)] = static_cast<std::byte>(random >> 24);
      }
      sign(bytes);
      decode(bytes, 700);
    }
    for (std::uint64_t const length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{5000}}) {
      std::vector<std::byte> bytes = frame.bytes;
      std::memcpy(bytes.data() + 16, &length, 8);
      sign(bytes);
      decode(bytes, length);
    }
  }
  EXPECT_GT(decoded, static_cast<int>(all.size()));  // with their own label, and with damaged codes
  EXPECT_GT(refused, decoded);
}

TEST(LabeledCodec, refusals_say_what_is_wrong) {
  gq::named::labeled_codec codec("cgx:4"), other("cgx:8");
  std::vector<float> const x = values<float>(100);
  auto const bytes = encoded(codec, x, {1, 2, 3});
  std::vector<float> y(101);
  std::vector<double> wide(100);
  auto const decode = [&](gq::named::labeled_codec& by, gq::mutable_vector to, std::uint64_t length) {
    return refusal([&] { by.decode(bytes, to, length); });
  };
  EXPECT_THAT(decode(other, {y.data(), gq::dtype::float32}, 100), HasSubstr("are of operator \"norm="));
  EXPECT_THAT(decode(codec, {y.data(), gq::dtype::float32}, 101),
              HasSubstr("contain 100 values, and the vector has 101"));
  EXPECT_THAT(decode(codec, {wide.data(), gq::dtype::float64}, 100),
              HasSubstr("contain float32, and the vector is float64"));
  std::vector<std::byte> room(20);
  EXPECT_THAT(refusal([&] {
                codec.encode({x.data(), gq::dtype::float32}, 100, {}, room);
              }),
              HasSubstr("room for 20 bytes"));
}

}  // namespace labeled_codec_test
