// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Frame headers: golden bytes, and a refusal of everything that differs by a single bit or byte.

#include "globalq/wire/frame.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

namespace gq = globalq;
using ::testing::HasSubstr;

constexpr int worker = 13, terms = 5;
constexpr std::uint8_t wire_id = 20;
constexpr std::uint64_t count = 0x0102030405ULL;

std::vector<std::byte> frame() {
  std::vector<std::byte> bytes(40, std::byte{0x55});
  gq::wire::write_header(bytes, wire_id, terms, count);
  return bytes;
}

/// The message of the frame_error; empty if there is none.
std::string complaint(std::vector<std::byte> const& bytes, std::size_t expected_bytes = 40) {
  try {
    gq::wire::check_header({bytes, terms, worker}, wire_id, count, expected_bytes);
  } catch (gq::frame_error const& e) {
    return e.what();
  }
  return {};
}

// Other bytes are another format: bump its version.
TEST(FrameHeader, golden_bytes) {
  int const expected[16] = {'g', 'q', 1, 20, 5, 0, 0, 0, 5, 4, 3, 2, 1, 0, 0, 0};
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
  EXPECT_THAT(complaint(bytes), HasSubstr("format version 9 instead of 1"));
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

TEST(FrameHeader, scales_are_padded_so_that_codes_start_at_a_multiple_of_16) {
  EXPECT_EQ(gq::wire::scale_section(0, gq::dtype::float32), 0U);
  EXPECT_EQ(gq::wire::scale_section(1, gq::dtype::float32), 16U);
  EXPECT_EQ(gq::wire::scale_section(4, gq::dtype::float32), 16U);
  EXPECT_EQ(gq::wire::scale_section(5, gq::dtype::float32), 32U);
  EXPECT_EQ(gq::wire::scale_section(2, gq::dtype::float64), 16U);
  EXPECT_EQ(gq::wire::scale_section(3, gq::dtype::float64), 32U);
  EXPECT_EQ(gq::wire::scale_section(3, gq::dtype::bfloat16), 16U);
}

}  // namespace
