// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief How a vector is cut: no gaps, whole grains, empty segments last, chunks that change nothing; reused
/// memory.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "globalq/core/codec.hpp"

namespace {

namespace gq = globalq;

constexpr std::uint64_t lengths[] = {0, 1, 255, 256, 257, 1000, 6400, 6401, 1000003};
constexpr std::uint64_t grains[] = {256, 6400};

template <class F>
void for_all(F const& f) {
  for (std::uint64_t d : lengths)
    for (int parts = 1; parts <= 9; ++parts)
      for (std::uint64_t grain : grains) f(d, parts, grain);
}

TEST(Partition, segments_cover_the_vector_without_gaps_or_overlaps) {
  for_all([](std::uint64_t d, int parts, std::uint64_t grain) {
    gq::partition const cut(d, parts, grain, 0);
    std::uint64_t next = 0;
    for (int i = 0; i < parts; ++i) {
      ASSERT_EQ(cut.part(i).first, next) << d << ' ' << parts << ' ' << grain;
      next += cut.part(i).count;
    }
    ASSERT_EQ(next, d);
    ASSERT_EQ(cut.length(), d);
  });
}

TEST(Partition, segments_start_at_multiples_of_the_grain) {
  for_all([](std::uint64_t d, int parts, std::uint64_t grain) {
    gq::partition const cut(d, parts, grain, 0);
    for (int i = 0; i < parts; ++i) {
      if (!cut.part(i).empty()) {
        ASSERT_EQ(cut.part(i).first % grain, 0U) << d << ' ' << parts << ' ' << i;
      }
    }
  });
}

TEST(Partition, the_first_segment_is_the_longest_lengths_differ_by_a_grain_at_most_and_empty_ones_are_last) {
  for_all([](std::uint64_t d, int parts, std::uint64_t grain) {
    gq::partition const cut(d, parts, grain, 0);
    std::uint64_t const longest = cut.part(0).count;
    for (int i = 1; i < parts; ++i) {
      ASSERT_LE(cut.part(i).count, cut.part(i - 1).count) << d << ' ' << parts << ' ' << i;
      ASSERT_FALSE(cut.part(i - 1).empty() && !cut.part(i).empty());
      // a last grain that is not full makes its segment shorter by up to another grain
      ASSERT_LE(longest - cut.part(i).count, 2 * grain) << d << ' ' << parts << ' ' << i;
    }
  });
}

TEST(Partition, segments_do_not_depend_on_the_chunk) {
  for_all([](std::uint64_t d, int parts, std::uint64_t grain) {
    gq::partition const whole(d, parts, grain, 0);
    for (std::uint64_t chunk : {std::uint64_t{1}, grain, 3 * grain, d, d + 1}) {
      gq::partition const cut(d, parts, grain, chunk);
      for (int i = 0; i < parts; ++i) {
        ASSERT_EQ(cut.part(i).first, whole.part(i).first);
        ASSERT_EQ(cut.part(i).count, whole.part(i).count);
      }
    }
  });
}

TEST(Partition, chunks_cover_each_segment_in_order_at_multiples_of_the_grain) {
  for_all([](std::uint64_t d, int parts, std::uint64_t grain) {
    for (std::uint64_t chunk :
         {std::uint64_t{0}, std::uint64_t{1}, grain - 1, grain, grain + 1, 5 * grain, 2 * d + 1}) {
      gq::partition const cut(d, parts, grain, chunk);
      for (int i = 0; i < parts; ++i) {
        gq::segment const s = cut.part(i);
        std::uint64_t next = s.first;
        for (std::uint64_t round = 0; round < cut.rounds(); ++round) {
          gq::segment const piece = cut.piece(i, round);
          ASSERT_EQ(piece.first, next) << d << ' ' << parts << ' ' << chunk;
          if (!piece.empty()) {
            ASSERT_EQ(piece.first % grain, 0U);
          }
          if (chunk != 0) {
            ASSERT_LE(piece.count, gq::divide_up(chunk, grain) * grain);
          }
          next += piece.count;
        }
        ASSERT_EQ(next, s.first + s.count) << "rounds() are enough for segment " << i;
        ASSERT_TRUE(cut.piece(i, cut.rounds()).empty());
      }
      ASSERT_EQ(cut.rounds() == 0, d == 0);
      if (d != 0) {
        ASSERT_FALSE(cut.piece(0, cut.rounds() - 1).empty()) << "the longest segment needs them all";
      }
    }
  });
}

TEST(Partition, a_chunk_of_0_is_one_round) {
  EXPECT_EQ(gq::partition(1000003, 4, 256, 0).rounds(), 1U);
  EXPECT_EQ(gq::partition(1000003, 1, 256, 256).rounds(), 3907U);
}

TEST(FramePool, frames_grow_keep_their_place_and_are_aligned) {
  gq::frame_pool pool;
  std::span<std::byte> const a = pool.get(0, 100);
  std::fill(a.begin(), a.end(), std::byte{1});
  std::span<std::byte> const b = pool.get(7, 33);
  EXPECT_EQ(b.size(), 33U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 64, 0U);
  EXPECT_EQ(pool.get(0, 50).data(), a.data()) << "smaller frames reuse the memory";
  EXPECT_EQ(pool.get(0, 100)[99], std::byte{1});
  EXPECT_EQ(pool.bytes(), 133U);
}

/// Counts what lives.
class counted_memory final : public gq::byte_memory {
 public:
  void* allocate(std::size_t bytes) override {
    alive += bytes;
    return ::operator new(bytes);
  }
  void release(void* memory, std::size_t bytes) override {
    alive -= bytes;
    ::operator delete(memory);
  }
  bool keeps_outgrown() const override { return keeps; }

  std::size_t alive = 0;
  bool keeps = false;
};

TEST(ByteBuffer, what_it_outgrows_goes_or_stays_as_long_as_it_as_its_memory_says) {
  auto const memory = std::make_shared<counted_memory>();
  {
    gq::byte_buffer b(memory);
    EXPECT_EQ(b.capacity(), 0U);
    b.get(100);
    b.get(50);
    EXPECT_EQ(memory->alive, 100U);
    b.get(200);
    EXPECT_EQ(memory->alive, 200U);
    memory->keeps = true;
    auto* const known = b.get(200).data();
    *known = std::byte{7};
    b.get(300);
    EXPECT_EQ(memory->alive, 500U);
    EXPECT_EQ(*known, std::byte{7});
    gq::byte_buffer moved(std::move(b));
    EXPECT_EQ(moved.capacity(), 300U);
    EXPECT_EQ(memory->alive, 500U);
  }
  EXPECT_EQ(memory->alive, 0U);
}

TEST(FramePool, counting_needs_no_memory) {
  gq::frame_pool pool = gq::frame_pool::counting();
  std::span<std::byte> const huge = pool.get(3, std::size_t{1} << 50);
  EXPECT_EQ(huge.data(), nullptr);
  EXPECT_EQ(huge.size(), std::size_t{1} << 50);
  EXPECT_EQ(pool.bytes(), std::size_t{1} << 50);
}

TEST(FramePool, lists_of_sources_start_empty) {
  gq::frame_pool pool;
  pool.sources(4).push_back({});
  EXPECT_TRUE(pool.sources(2).empty());
  EXPECT_GE(pool.sources(8).capacity(), 8U);
}

}  // namespace
