// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Block-scaled formats (MXFP4, MXFP6, MXFP8, NVFP4): their bytes, no bias, all magnitudes, all schedules.

#include <globalq/globalq.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace gq = globalq;

namespace {

template <class Levels, std::uint32_t Bits, class Rounding = gq::rounding::stochastic>
auto of_format(Rounding rounding = {}) {
  return gq::quantizer{gq::norm::shared_exponent<Levels>{}, Levels{}, rounding, gq::wire::packed<Bits>{}};
}

std::vector<gq::any_quantizer> formats() {
  return {of_format<gq::levels::e2m1, 4>(), of_format<gq::levels::e2m3, 6>(),
          of_format<gq::levels::e3m2, 6>(), of_format<gq::levels::e4m3, 8>(),
          of_format<gq::levels::e5m2, 8>(), gq::operators::nvfp4()};
}

std::vector<float> values(std::size_t count, int seed, float times = 1) {
  std::mt19937 draw(static_cast<std::uint32_t>(seed) + 1);
  std::vector<float> v(count);
  for (float& x : v) x = static_cast<float>(static_cast<int>(draw() % 4097) - 2048) * 0x1p-11F * times;
  return v;
}

template <class Levels>
void expect_exact_levels() {
  Levels const levels;
  ASSERT_EQ(levels.size() + 1, Levels::patterns);
  for (std::uint32_t k = 0; k < Levels::patterns; ++k)
    for (int e : {-100, 0, 90})  // the scale of a block is largest * 2^e
      ASSERT_EQ(levels.value(k) * (Levels::largest * std::ldexp(1.0F, e)), std::ldexp(Levels::number(k), e))
          << k;
}

std::vector<std::byte> encode(gq::vector_codec& codec, std::vector<float> const& x, gq::encoding_key key) {
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  codec.encode(x, key, frame);
  return frame;
}

}  // namespace

TEST(BlockScaled, levels_are_the_numbers_of_the_formats) {
  std::vector<float> fp4;
  for (std::uint32_t k = 0; k < gq::levels::e2m1::patterns; ++k) fp4.push_back(gq::levels::e2m1::number(k));
  EXPECT_THAT(fp4, testing::ElementsAre(0, 0.5F, 1, 1.5F, 2, 3, 4, 6));
  EXPECT_EQ(gq::levels::e2m3::largest, 7.5F);
  EXPECT_EQ(gq::levels::e3m2::largest, 28.0F);
  EXPECT_EQ(gq::levels::e4m3::largest, 448.0F);
  EXPECT_EQ(gq::levels::e4m3::number(1), 0x1p-9F);
  EXPECT_EQ(gq::levels::e5m2::largest, 57344.0F);
  EXPECT_EQ(gq::levels::e5m2::number(1), 0x1p-16F);
  expect_exact_levels<gq::levels::e2m1>();
  expect_exact_levels<gq::levels::e2m3>();
  expect_exact_levels<gq::levels::e3m2>();
  expect_exact_levels<gq::levels::e4m3>();
  expect_exact_levels<gq::levels::e5m2>();
}

TEST(BlockScaled, a_frame_holds_the_bytes_of_the_format) {
  gq::vector_codec codec{
      of_format<gq::levels::e2m1, 4>(gq::rounding::nearest{}), {}, gq::frame_checksum::none};
  std::vector<float> x(64);
  float const numbers[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  for (std::size_t i = 0; i < 15; ++i) x[i] = numbers[i] * 8;
  x[40] = 0x1.8p-20F;  // in the second block: 6 * 2^-22 is the smallest c 2^k that is not below
  std::vector<std::byte> const frame = encode(codec, x, {});
  ASSERT_EQ(frame.size(), 16U + 16U + 32U) << "header, scales to a multiple of 16, two values a byte";
  auto const at = [&](std::size_t i) { return std::to_integer<int>(frame[i]); };
  EXPECT_EQ(at(16), 127 + 3) << "2^3, as E8M0";
  EXPECT_EQ(at(17), 127 - 22);
  int const expected[8] = {0x10, 0x32, 0x54, 0x76,
                           0xa9, 0xcb, 0xed, 0x0f};  // the first of two in the lower half
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(at(32 + i), expected[i]) << i;
  EXPECT_EQ(at(32 + 20), 0x07) << "1.5 * 2^-20 is 6 * 2^-22";
  std::vector<float> y(64);
  codec.decode(frame, {}, y);
  EXPECT_EQ(x, y);
}

TEST(BlockScaled, fp8_bytes_are_sign_exponent_and_mantissa) {
  gq::vector_codec codec{of_format<gq::levels::e4m3, 8>(gq::rounding::nearest{})};
  std::vector<float> x(32), y(32);
  for (std::uint32_t i = 0; i < 31; ++i)
    x[i] = gq::levels::e4m3::number(4 * i + 3) * (i % 2 == 0 ? 1.0F : -1.0F);
  x[31] = -448;
  std::vector<std::byte> const frame = encode(codec, x, {});
  for (std::uint32_t i = 0; i < 31; ++i)
    EXPECT_EQ(std::to_integer<std::uint32_t>(frame[32 + i]), (4 * i + 3) | (i % 2 == 0 ? 0U : 0x80U));
  EXPECT_EQ(std::to_integer<int>(frame[63]), 0xfe);
  codec.decode(frame, {}, y);
  EXPECT_EQ(x, y);
}

/// The scale is never below the largest magnitude, so nothing is cut off: unbiased everywhere.
TEST(BlockScaled, the_mean_of_many_decodings_is_the_vector) {
  for (gq::any_quantizer const& op : formats())
    for (float times : {1.0F, 0x1.6p-90F}) {
      std::vector<float> const x = values(320, 3, times);
      gq::vector_codec codec{op, Kokkos::Serial()};
      constexpr int draws = 1500;
      std::vector<double> sum(x.size()), squares(x.size());
      std::vector<float> y(x.size());
      for (int k = 0; k < draws; ++k) {
        gq::encoding_key const key{7, static_cast<std::uint64_t>(k), 3};
        codec.decode(encode(codec, x, key), key, y);
        for (std::size_t i = 0; i < x.size(); ++i) {
          double const e =
              (static_cast<double>(y[i]) - static_cast<double>(x[i])) / static_cast<double>(times);
          sum[i] += e;
          squares[i] += e * e;
        }
      }
      // pooled as in vector_codec_test.cpp
      double error = 0, variance = 0, variance2 = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        double const v = squares[i] / draws;
        error += sum[i] * sum[i] / draws;
        variance += v;
        variance2 += v * v;
      }
      EXPECT_GT(variance, 0);
      EXPECT_LT(error / variance, 1 + 5 * std::sqrt(2 * variance2) / variance) << op.facts().name;
    }
}

TEST(BlockScaled, operators_have_names) {
  EXPECT_EQ(gq::detail::facts_of(gq::operators::mxfp4()).name, formats()[0].facts().name);
  EXPECT_EQ(gq::detail::facts_of(gq::operators::mxfp8()).name, formats()[3].facts().name);
  EXPECT_EQ(gq::detail::facts_of(gq::operators::block_scaled<gq::levels::e5m2>()).name,
            formats()[4].facts().name);
}

TEST(BlockScaled, takes_4_25_and_8_25_bits_a_value) {
  EXPECT_EQ(gq::plan_for(formats()[0], gq::schedule::allgather{}, 2, 1 << 20).bits_per_value,
            4.25 + 128.0 / (1 << 20));
  EXPECT_EQ(gq::plan_for(formats()[3], gq::schedule::allgather{}, 2, 1 << 20).bits_per_value,
            8.25 + 128.0 / (1 << 20));
}

TEST(BlockScaled, the_mean_has_the_same_bits_on_all_workers_near_the_mean_at_every_magnitude) {
  float const top = std::numeric_limits<float>::max();
  for (gq::any_quantizer const& op : formats())
    for (char const* schedule : {"ring", "tree", "sra", "allgather"})
      for (int n : {1, 2, 3, 5, 8})
        for (float times : {1.0F, top, 0x1p-140F, 0.0F}) {
          constexpr std::size_t d = 1000;
          std::vector<std::vector<float>> results(static_cast<std::size_t>(n));
          std::vector<std::uint64_t> sent(static_cast<std::size_t>(n));
          gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
          cluster.run([&](auto& workers) {
            auto const r = static_cast<std::size_t>(workers.rank());
            results[r] = values(d, workers.rank(), times);
            if (times == top) results[r][5] = top;  // on all workers: the mean is the largest float
            gq::allreduce_mean mean{
                workers, op, gq::schedule::any{schedule}, {.seed = 3, .chunk_values = 256}};
            mean(results[r], 0);
            sent[r] = workers.bytes_sent();
          });
          std::string const what = op.facts().name + " on " + schedule + ", n = " + std::to_string(n);
          for (auto const& r : results)
            ASSERT_EQ(0, std::memcmp(r.data(), results[0].data(), d * sizeof(float))) << what;
          if (times != 0) {
            EXPECT_EQ(*std::max_element(sent.begin(), sent.end()),
                      gq::plan_for(op, gq::schedule::any{schedule}, n, d, gq::dtype::float32, 256).bytes_sent)
                << what;
          }
          if (std::isnan(results[0][0])) {  // rounding up to beyond float32 is told, never silent
            EXPECT_EQ(times, top) << what;
            continue;
          }
          for (std::size_t i = 0; i < d; ++i) {
            double mean = 0;
            for (int r = 0; r < n; ++r)
              mean += times == top && i == 5 ? static_cast<double>(top)
                                             : static_cast<double>(values(i + 1, r, times)[i]);
            // each encoding errs by at most a gap, a third of its scale, which is below twice the largest partial sum
            double const encodings = n == 1 ? 1 : 2 * n;
            ASSERT_NEAR(results[0][i], mean / n,
                        encodings * 2.0 / 3 * (static_cast<double>(times) + 0x1p-126))
                << what << ", value " << i;
            i += 36;
          }
        }
}

TEST(BlockScaled, a_scale_that_is_no_number_is_an_error_that_leaves_the_output_alone) {
  gq::vector_codec codec{formats()[0], Kokkos::Serial(), gq::frame_checksum::none};
  std::vector<float> y(64, 7.0F);
  std::vector<std::byte> frame = encode(codec, values(64, 1), {});
  frame[17] = std::byte{255};
  EXPECT_THROW(codec.decode(frame, {}, y), gq::frame_error);
  EXPECT_THAT(y, testing::Each(7.0F));
  frame[17] = std::byte{254};
  EXPECT_THROW(codec.decode(frame, {}, y), gq::non_finite_error) << "6 times 2^127";
  frame[17] = std::byte{200};
  codec.decode(frame, {}, y);
}

TEST(BlockScaled, a_scale_of_a_block_is_a_positive_e4m3_number) {
  gq::vector_codec codec{gq::operators::nvfp4(), Kokkos::Serial(), gq::frame_checksum::none};
  std::vector<float> y(64, 7.0F);
  std::vector<std::byte> frame = encode(codec, values(64, 1), {});
  for (int bad : {127, 128, 255}) {
    frame[16 + 4 + 3] = static_cast<std::byte>(bad);
    EXPECT_THROW(codec.decode(frame, {}, y), gq::frame_error) << bad;
  }
  EXPECT_THAT(y, testing::Each(7.0F));
  frame[16 + 4 + 3] = std::byte{126};
  codec.decode(frame, {}, y);
}

TEST(BlockScaled, other_types_of_values_work_and_float64_has_scales_of_its_own_width) {
  for (gq::any_quantizer const& op : formats()) {
    gq::vector_codec codec{op, Kokkos::Serial()};
    auto const run = [&]<class Value>(Value, std::size_t scale_bytes) {
      std::vector<Value> x(100), y(100);
      std::vector<float> const from = values(100, 2);
      for (std::size_t i = 0; i < 100; ++i) x[i] = Value(from[i]);
      std::vector<std::byte> frame(codec.frame_bytes(100, gq::dtype_of<Value>::value));
      codec.encode(x, {}, frame);
      codec.decode(frame, {}, y);
      for (std::size_t i = 0; i < 100; ++i)
        ASSERT_NEAR(static_cast<double>(static_cast<float>(y[i])),
                    static_cast<double>(static_cast<float>(x[i])), 0.67);
      EXPECT_EQ((frame.size() - 16) * 8 / 100 >= 4, true);
      EXPECT_EQ(codec.frame_bytes(32 * 64, gq::dtype_of<Value>::value) -
                    codec.frame_bytes(32 * 32, gq::dtype_of<Value>::value),
                32 * 32 / op.facts().bucket * scale_bytes +
                    32 * 32 * static_cast<std::size_t>(op.facts().wire_bits) / 8);
    };
    run(float{}, 1);
    run(gq::float16{}, 1);
    run(gq::bfloat16{}, 1);
    run(double{}, 8);
  }
}

TEST(BlockScaled, a_stream_gives_the_same_bits) {
  for (int n : {2, 3}) {
    gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
    cluster.run([&](auto& workers) {
      gq::transport::staged on_stream{workers, Kokkos::Serial()};
      auto const run = [&](auto const& op, auto schedule) {
        std::vector<float> x = values(3001, workers.rank()), y = x;
        Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> const view(y.data(), y.size());
        gq::allreduce_mean host{workers, op, schedule, {.seed = 3}};
        gq::allreduce_mean stream{on_stream, op, schedule, {.seed = 3}};
        host(x, 1);
        stream(view, 1);
        stream.wait();
        EXPECT_EQ(0, std::memcmp(x.data(), y.data(), x.size() * sizeof(float)));
      };
      run(of_format<gq::levels::e2m1, 4>(), gq::schedule::ring{});
      run(of_format<gq::levels::e4m3, 8>(), gq::schedule::sra{});
    });
  }
}
