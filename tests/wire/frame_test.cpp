// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Frame headers: golden bytes, and a refusal of everything that differs by a single bit or byte.

#include "globalq/wire/frame.hpp"
#include "globalq/wire/checksum.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace {

namespace gq = globalq;
using ::testing::HasSubstr;

constexpr int worker = 13, terms = 5;
constexpr std::uint8_t wire_id = 20;
constexpr std::uint64_t count = 0x0102030405ULL;
constexpr gq::scale_format floats{gq::dtype::float32};
constexpr gq::wire::frame_traits traits = gq::wire::traits_of(&floats, 0xabcd012301230123ULL);

std::vector<std::byte> frame() {
  std::vector<std::byte> bytes(40, std::byte{0x55});
  gq::wire::write_header(bytes, wire_id, terms, count, traits);
  return bytes;
}

/// The message of the frame_error; empty if there is none.
std::string complaint(std::vector<std::byte> const& bytes, std::size_t expected_bytes = 40) {
  try {
    gq::wire::check_header({bytes, terms, worker}, wire_id, count, expected_bytes, traits);
  } catch (gq::frame_error const& e) {
    return e.what();
  }
  return {};
}

// Other bytes are another format: bump its version.
TEST(FrameHeader, golden_bytes) {
  int const expected[16] = {'g', 'q', 3, 20, 5, 0, 0, 0, 5, 4, 3, 2, 1, 0, 0x22, 0x01};
  std::vector<std::byte> const bytes = frame();
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << "byte " << i;
  for (std::size_t i = 16; i < bytes.size(); ++i)
    EXPECT_EQ(bytes[i], std::byte{0x55}) << "the header has 16 bytes";
}

TEST(FrameHeader, what_was_written_is_accepted) { EXPECT_EQ(complaint(frame()), ""); }

TEST(FrameHeader, every_single_flipped_bit_is_refused_and_names_the_worker) {
  for (std::size_t bit = 0; bit < 8 * gq::wire::header_bytes; ++bit) {
    std::vector<std::byte> bytes = frame();
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THAT(complaint(bytes), HasSubstr("bad frame from worker 13")) << "bit " << bit;
  }
}

TEST(FrameHeader, every_other_size_is_refused_before_anything_is_read) {
  for (std::size_t size = 0; size < 64; ++size) {
    if (size == 40) continue;
    std::vector<std::byte> bytes = frame();
    bytes.resize(size);
    EXPECT_THAT(complaint(bytes),
                HasSubstr("bad frame from worker 13: " + std::to_string(size) + " bytes instead of 40"));
  }
}

TEST(FrameHeader, the_message_says_what_differs) {
  std::vector<std::byte> bytes = frame();
  bytes[0] = std::byte{'x'};
  EXPECT_THAT(complaint(bytes), HasSubstr("does not start with \"gq\""));
  bytes = frame();
  bytes[2] = std::byte{9};
  EXPECT_THAT(complaint(bytes), HasSubstr("format version 9 instead of 3"));
  bytes = frame();
  bytes[3] = std::byte{1};
  EXPECT_THAT(complaint(bytes), HasSubstr("wire format 1 instead of 20"));
  bytes = frame();
  bytes[4] = std::byte{6};
  EXPECT_THAT(complaint(bytes), HasSubstr("sum of 6 workers instead of 5"));
  bytes = frame();
  bytes[8] = std::byte{6};
  EXPECT_THAT(complaint(bytes), HasSubstr("4328719366 values instead of 4328719365"));
}

TEST(FrameHeader, the_form_of_scales_is_told_apart) {
  gq::scale_format const doubles{gq::dtype::float64}, bytes{gq::dtype::float32, 1.0F};
  EXPECT_EQ(gq::wire::traits_of(nullptr, 7), 4U);
  EXPECT_EQ(gq::wire::traits_of(&bytes, 7), 5U);
  EXPECT_EQ(gq::wire::traits_of(&floats, 7), 6U);
  EXPECT_EQ(gq::wire::traits_of(&doubles, 7), 7U);
}

TEST(FrameHeader, scales_are_padded_so_that_codes_start_at_a_multiple_of_16) {
  EXPECT_EQ(gq::wire::scale_section(0, gq::dtype::float32), 0U);
  EXPECT_EQ(gq::wire::scale_section(1, gq::dtype::float32), 16U);
  EXPECT_EQ(gq::wire::scale_section(4, gq::dtype::float32), 16U);
  EXPECT_EQ(gq::wire::scale_section(5, gq::dtype::float32), 32U);
  EXPECT_EQ(gq::wire::scale_section(2, gq::dtype::float64), 16U);
  EXPECT_EQ(gq::wire::scale_section(3, gq::dtype::float64), 32U);
  EXPECT_EQ(gq::wire::scale_section(3, gq::dtype::bfloat16), 16U);
}

/// The definition: one bit after the other, each dividing by x^32 + x^31 + ... + 1.
std::uint32_t remainder(std::span<std::byte const> bytes, std::uint32_t crc) {
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::uint32_t const next = std::to_integer<std::uint32_t>(bytes[bit / 8]) >> (bit % 8);
    std::uint32_t const carry = (crc ^ next) & 1U;
    crc = crc >> 1 ^ (carry != 0 ? 0xe09ea09fU : 0U);  // the bits of 0xf9057907 from the last to the first
  }
  return crc;
}

std::vector<std::byte> noise(std::size_t size) {
  std::mt19937 draw(3);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(draw());
  return bytes;
}

TEST(Checksum, is_the_remainder_of_a_division_for_every_length_and_alignment) {
  std::vector<std::byte> const bytes = noise(1000);
  for (std::size_t size = 0; size < 900; ++size)
    for (std::size_t at :
         {std::size_t{0}, std::size_t{1}, std::size_t{6}, std::size_t{16}, std::size_t{63}}) {
      auto const some = std::span(bytes).subspan(at, size);
      ASSERT_EQ(gq::wire::checksum(some, 0x1234567U), remainder(some, 0x1234567U)) << size << " at " << at;
    }
}

// Other numbers are another format: bump its version.
TEST(Checksum, golden_numbers) {
  std::vector<std::byte> const bytes = noise(777);
  EXPECT_EQ(gq::wire::checksum({}, 5), 5U);
  EXPECT_EQ(gq::wire::checksum(std::as_bytes(std::span("123456789", 9)), 0), 3730928285U);
  EXPECT_EQ(gq::wire::checksum(bytes, 1), 2896804940U);
}

TEST(Checksum, every_burst_of_up_to_32_bits_changes_it) {
  // a CRC is linear: what matters is that no burst by itself has remainder 0, in whatever place
  std::vector<std::byte> bytes(400);
  std::mt19937 draw(4);
  for (std::size_t bit = 0; bit + 32 <= 8 * bytes.size(); ++bit)
    for (std::uint32_t burst : {1U, 0x80000001U, 0xffffffffU, static_cast<std::uint32_t>(draw()) | 1U}) {
      for (int k = 0; k < 32; ++k)
        bytes[(bit + k) / 8] ^= static_cast<std::byte>((burst >> k & 1U) << ((bit + k) % 8));
      ASSERT_NE(gq::wire::checksum(bytes, 0), 0U) << burst << " at bit " << bit;
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(bit / 8), bytes.end(), std::byte{0});
    }
}

TEST(Checksum, two_flipped_bits_change_it) {
  std::vector<std::byte> bytes(500);
  bytes[0] = std::byte{1};
  for (std::size_t bit = 1; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_NE(gq::wire::checksum(bytes, 0), 0U) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

}  // namespace
