// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Frames whose length only their maker knows: the same bits as whole integers, fewer bytes, no trust.

#include "tests/support/calls.hpp"

#include <globalq/globalq.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace gq = globalq;

namespace {

/// Values k / 512, most of them small: a vector whose codes are worth coding.
std::vector<float> values(std::size_t count, std::uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<float> v(count);
  for (float& x : v) {
    int const wide = static_cast<int>(draw() % 4097) - 2048;
    x = static_cast<float>(draw() % 16 == 0 ? wide : wide / 64) * 0x1p-9F;
  }
  return v;
}

template <class Wire>
std::vector<gq::any_quantizer> with_wire(Wire wire) {
  gq::rounding::stochastic const dice;
  gq::reduce::requantize const again;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, wire, again},
      gq::quantizer{gq::norm::l<2, 2>{.bucket = 300}, gq::levels::exponential{5}, dice, wire, again},
      gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform{3}, dice, wire, again},
      gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::symmetric{0.25, 0.5, 1}, dice, wire, again},
      gq::quantizer{gq::norm::linf{.bucket = 100}, gq::levels::uniform{11}, gq::rounding::random_shift<>{},
                    wire, again},
      gq::quantizer{gq::norm::linf{}, gq::levels::table{0, 0.1, 1}, gq::rounding::nearest{}, wire, again},
  };
}

struct outcome {
  std::vector<std::vector<float>> results;  ///< of each worker
  std::uint64_t bytes = 0;                  ///< sent by all of them
};

outcome average(gq::any_quantizer const& op, char const* schedule, int n, std::size_t d,
                std::uint64_t chunk) {
  outcome o;
  o.results.resize(static_cast<std::size_t>(n));
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(n));
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    o.results[r] = values(d, static_cast<std::uint32_t>(r) + 1);
    gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {.seed = 3, .chunk_values = chunk}};
    mean(o.results[r], 0);
    mean(o.results[r], 1);
    bytes[r] = workers.bytes_sent();
  });
  for (std::uint64_t b : bytes) o.bytes += b;
  return o;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

template <class Code, class Integer>
void expect_the_bits_of(Integer integer, Code code) {
  auto const plain = with_wire(integer), coded = with_wire(code);
  for (std::size_t k = 0; k < plain.size(); ++k)
    for (char const* schedule : {"sra", "allgather"})
      for (int n : {1, 2, 3, 5, 8})
        for (std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{257}, std::size_t{9001}})
          for (std::uint64_t chunk : {std::uint64_t{0}, std::uint64_t{512}}) {
            outcome const a = average(plain[k], schedule, n, d, chunk),
                          b = average(coded[k], schedule, n, d, chunk);
            for (std::size_t r = 0; r < a.results.size(); ++r)
              ASSERT_TRUE(same_bits(a.results[0], b.results[r]))
                  << coded[k].facts().name << " on " << schedule << ", n = " << n << ", d = " << d
                  << ", chunk " << chunk;
            gq::plan const p =
                gq::plan_for(coded[k], gq::schedule::any{schedule}, n, d, gq::dtype::float32, chunk);
            ASSERT_TRUE(p.bytes_are_most);
            ASSERT_LE(b.bytes, 2 * p.bytes_sent * static_cast<std::uint64_t>(n)) << coded[k].facts().name;
          }
}

}  // namespace

TEST(Coded, elias_frames_give_the_bits_of_int8) { expect_the_bits_of(gq::wire::int8{}, gq::wire::elias<>{}); }
TEST(Coded, huffman_frames_give_the_bits_of_int8) {
  expect_the_bits_of(gq::wire::int8{}, gq::wire::huffman<>{});
}
TEST(Coded, sparse_frames_give_the_bits_of_int8) {
  expect_the_bits_of(gq::wire::int8{}, gq::wire::sparse<>{});
}
TEST(Coded, codes_of_16_bits_give_the_bits_of_int16) {
  expect_the_bits_of(gq::wire::int16{}, gq::wire::elias<std::int16_t>{});
}

TEST(Coded, fewer_bytes_are_sent_where_most_values_are_small) {
  auto const bytes = [](auto wire) { return average(with_wire(wire)[0], "sra", 3, 100000, 0).bytes; };
  std::uint64_t const dense = bytes(gq::wire::packed<4>{});
  EXPECT_LT(bytes(gq::wire::elias<>{}), dense * 3 / 4);
  EXPECT_LT(bytes(gq::wire::huffman<>{}), dense * 3 / 4);
  EXPECT_LT(bytes(gq::wire::sparse<>{}), dense * 3 / 4);
}

TEST(Coded, schedules_that_need_fixed_lengths_are_refused_with_those_that_do_not) {
  for (gq::any_quantizer const& op : with_wire(gq::wire::huffman<>{}))
    for (char const* schedule : {"ring", "tree"}) {
      gq::plan const p = gq::plan_for(op, gq::schedule::any{schedule}, 3, 1000);
      EXPECT_FALSE(p.fits);
      EXPECT_THAT(p.refusal, testing::HasSubstr("differ in length"));
      EXPECT_THAT(p.refusal, testing::HasSubstr("use schedule sra or allgather"));
    }
}

TEST(Coded, a_length_that_cannot_be_is_an_error_before_anything_is_received) {
  gq::detail::operator_facts facts = with_wire(gq::wire::elias<>{})[0].facts();
  gq::detail::resolution const r = gq::detail::resolve(facts, gq::schedule::allgather::facts(2), 2);
  auto const codec =
      with_wire(gq::wire::elias<>{})[0].make_codec(facts, r, gq::kernel::host_executor{Kokkos::Serial()});
  ASSERT_EQ(codec->head_bytes(), gq::wire::long_header_bytes);
  std::size_t const room = codec->frame_bytes({0, 100}, 1);
  std::vector<std::byte> frame(room);
  gq::wire::write_header(frame, gq::wire::elias<>::identifier(), 1, 100);
  gq::wire::write_length(frame, room);
  EXPECT_EQ(codec->length_of(frame, 7), room);
  for (std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{31}, std::uint64_t{room + 1}, ~std::uint64_t{0}}) {
    gq::wire::write_length(frame, wrong);
    try {
      codec->length_of(frame, 7);
      ADD_FAILURE() << wrong;
    } catch (gq::frame_error const& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("from worker 7: its length of " + std::to_string(wrong)));
    }
  }
}
