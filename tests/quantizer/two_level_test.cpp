// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Scales of two levels (NVFP4): their bytes, the exact law of each coordinate, sums, and the same bits on streams.

#include <globalq/globalq.hpp>
#include <globalq/operator/operators.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace gq = globalq;

namespace {

constexpr std::size_t block = 16;

/// Block b has values of up to about 2^-b: from the vector's largest to far below the smallest scale.
std::vector<float> spread(std::size_t count, int seed) {
  std::mt19937 draw(static_cast<std::uint32_t>(seed) + 1);
  std::vector<float> v(count);
  for (std::size_t i = 0; i < count; ++i)
    v[i] = std::ldexp(static_cast<float>(static_cast<int>(draw() % 4097) - 2048),
                      -11 - static_cast<int>(i / block % 26));
  return v;
}

std::vector<std::byte> encode(gq::vector_codec& codec, std::vector<float> const& x, gq::encoding_key key) {
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  codec.encode(x, key, frame);
  return frame;
}

double e4m3(unsigned byte) {
  unsigned const exponent = byte >> 3, mantissa = byte & 7;
  return std::ldexp(exponent == 0 ? mantissa : 8 + mantissa, static_cast<int>(std::max(exponent, 1U)) - 10);
}

/// The scale of each block, from the definition: the first E4M3 number that suffices.
std::vector<double> scales_of(std::vector<float> const& x) {
  double largest = 0;
  for (float v : x) largest = std::max(largest, std::abs(static_cast<double>(v)));
  std::vector<double> scales;
  for (std::size_t first = 0; first < x.size(); first += block) {
    double most = 0;
    for (std::size_t i = first; i < std::min(first + block, x.size()); ++i)
      most = std::max(most, std::abs(static_cast<double>(x[i])));
    unsigned byte = 0;
    while (6 * e4m3(byte) * (largest * 0x1p-11) < most) ++byte;
    scales.push_back(6 * e4m3(byte) * (largest * 0x1p-11));
  }
  return scales;
}

/// The numbers around |x| in a block.
std::pair<double, double> around(double x, double scale) {
  double below = 0;
  for (double level : {0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) {
    double const above = level / 6 * scale;
    if (above >= x) return {below, above};
    below = above;
  }
  ADD_FAILURE() << x << " is cut to " << scale;
  return {below, below};
}

template <class T>
struct result {
  std::vector<std::vector<T>> of;  ///< of each worker
  std::uint64_t bytes = 0;         ///< the most that a worker sent
};
template <class T>
result<T> mean_of(gq::any_quantizer const& op, char const* schedule, std::vector<std::vector<T>> const& x,
                  std::uint64_t chunk, std::uint64_t step = 0) {
  result<T> r{x};
  int const n = static_cast<int>(x.size());
  std::vector<std::uint64_t> sent(x.size());
  gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    auto const rank = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{
        workers, op, gq::schedule::any{schedule}, {.seed = 3, .chunk_values = chunk}, Kokkos::Serial()};
    mean(r.of[rank], step);
    sent[rank] = workers.bytes_sent();
  });
  r.bytes = *std::max_element(sent.begin(), sent.end());
  return r;
}

template <class T>
void expect_same_bits(std::vector<T> const& a, std::vector<T> const& b, std::string const& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_TRUE(a.empty() || 0 == std::memcmp(a.data(), b.data(), a.size() * sizeof(T))) << what;
}

}  // namespace

TEST(TwoLevel, a_frame_holds_the_scale_of_the_vector_then_bytes_of_e4m3_then_values_of_e2m1) {
  gq::vector_codec codec{gq::operators::nvfp4(16, gq::rounding::nearest{}), {}, gq::frame_checksum::none};
  std::vector<float> x(48), y(48);
  float const numbers[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  for (std::size_t i = 0; i < 15; ++i) x[i] = numbers[i] * 352;  // 2048 / 6 is above 320
  x[0] = 2048;
  x[20] = -6;                  // the second block: 1
  x[40] = 6 * 0x1p-9F * 0.5F;  // the third: the smallest number
  std::vector<std::byte> const frame = encode(codec, x, {});
  ASSERT_EQ(frame.size(), 16U + 16U + 24U) << "header, scales to a multiple of 16, two values a byte";
  auto const at = [&](std::size_t i) { return std::to_integer<int>(frame[i]); };
  std::uint32_t word = 0;
  std::memcpy(&word, frame.data() + 16, 4);
  EXPECT_EQ(gq::scale_of_word(word), 2112 * 0x1p-11) << "6 * 352 is the largest value, of x[7]";
  EXPECT_EQ(at(32 + 4 + 6), 0x0f) << "-6";
  codec.decode(frame, {}, y);
  std::vector<double> const scales = scales_of(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto const [below, above] = around(std::abs(static_cast<double>(x[i])), scales[i / block]);
    double const decoded = std::abs(static_cast<double>(y[i]));
    EXPECT_NEAR(decoded, std::abs(decoded - below) < std::abs(decoded - above) ? below : above,
                0x1p-22 * above)
        << i;
  }
}

/// Each coordinate takes the two numbers around it, with the probabilities that make it unbiased: also in blocks of which the
/// smallest scale is far too large.
TEST(TwoLevel, each_coordinate_has_the_exact_mean_and_variance) {
  std::vector<float> const x = spread(26 * block, 1);
  std::vector<double> const scales = scales_of(x);
  EXPECT_EQ(scales[25], scales[24]) << "the smallest scale";
  gq::vector_codec codec{gq::operators::nvfp4(), Kokkos::Serial()};
  constexpr int draws = 4000;
  std::vector<double> sum(x.size());
  std::vector<int> ups(x.size());
  std::vector<float> y(x.size());
  for (int k = 0; k < draws; ++k) {
    gq::encoding_key const key{7, static_cast<std::uint64_t>(k), 3};
    codec.decode(encode(codec, x, key), key, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const v = std::abs(static_cast<double>(x[i])), scale = scales[i / block],
                   decoded = static_cast<double>(x[i] < 0 ? -y[i] : y[i]);
      auto const [below, above] = around(v, scale);
      bool const up = std::abs(decoded - above) < std::abs(decoded - below);
      ASSERT_NEAR(decoded, up ? above : below, 0x1p-22 * above) << i;
      ups[i] += up ? 1 : 0;
    }
  }
  // the number of times that a coordinate is rounded up is binomial with p = (v - below) / (above - below), of 416
  // coordinates one in a million such tests has one 6 deviations away; half a count, as p may be far below 1 / draws
  int below_all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const v = std::abs(static_cast<double>(x[i]));
    auto const [below, above] = around(v, scales[i / block]);
    if (above == below) continue;
    double const p = (v - below) / (above - below);
    EXPECT_NEAR(ups[i], p * draws, 6 * std::sqrt(draws * p * (1 - p)) + 2) << i;
    below_all += ups[i];
  }
  EXPECT_GT(below_all, 0);
}

TEST(TwoLevel, takes_4_5_bits_a_value_and_less_than_32_bytes_a_frame) {
  gq::any_quantizer const op = gq::operators::nvfp4();
  for (std::uint64_t d : {std::uint64_t{1} << 20, std::uint64_t{1} << 24})
    EXPECT_EQ(gq::plan_for(op, gq::schedule::allgather{}, 2, d).bits_per_value,
              4.5 + 8.0 * (16 + 16) / static_cast<double>(d))
        << "header, scale of the vector padded to 16";
  // float64: a scale of 64 bits for each block
  EXPECT_EQ(gq::plan_for(op, gq::schedule::allgather{}, 2, 1 << 20, gq::dtype::float64).bits_per_value,
            8 + 8.0 * 16 / (1 << 20));
}

/// If no term exceeds quantum * 448 times its scale, neither does a sum in float32.
TEST(TwoLevel, the_scale_of_a_sum_covers_it) {
  std::mt19937 draw(5);
  for (int k = 1; k <= 1000; k += k < 20 ? 1 : 97) {
    std::vector<std::byte> frames(16 * static_cast<std::size_t>(k));
    std::vector<gq::kernel::source_view> views;
    double const own = gq::scale_of_word(gq::scale_word(0x1p-11));
    float sum = 2688 * static_cast<float>(own);
    for (int i = 0; i < k; ++i) {
      std::byte* const at = frames.data() + 16 * static_cast<std::size_t>(i);
      double const scale =
          std::ldexp(1 + static_cast<double>(draw() >> 9) * 0x1p-23, static_cast<int>(draw() % 3));
      gq::store_to(at, gq::scale_word(scale));
      views.push_back({nullptr, at, 1, i});
      // decoded values may be above by the rounding of factor, level and product
      sum += 2688 * static_cast<float>(scale) * (1 + 3 * 0x1p-23F);
    }
    double const word = gq::scale_of_word(gq::kernel::vector_scale_word(own, {views.data(), views.size()}));
    EXPECT_GE(2688 * word, static_cast<double>(sum)) << k;
    EXPECT_LE(2688 * word, static_cast<double>(sum) * (1 + k * 0x1p-19)) << k;
  }
}

/// All workers have the same values, so that the largest sums are as large as their scales allow.
TEST(TwoLevel, sums_of_equal_vectors_have_no_bias) {
  std::vector<float> x = spread(8 * block, 2);
  x[0] = 1;
  for (char const* schedule : {"ring", "tree", "sra"}) {
    constexpr int n = 5, steps = 600;
    std::vector<double> sum(x.size()), squares(x.size());
    gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{60}}};
    cluster.run([&](auto& workers) {
      gq::allreduce_mean mean{
          workers, gq::operators::nvfp4(), gq::schedule::any{schedule}, {}, Kokkos::Serial()};
      std::vector<float> y(x.size());
      for (int k = 0; k < steps; ++k) {
        mean(x, y, static_cast<std::uint64_t>(k));
        for (std::size_t i = 0; workers.rank() == 0 && i < x.size(); ++i) {
          double const e = (static_cast<double>(y[i]) - static_cast<double>(x[i])) *
                           std::exp2(static_cast<double>(i / block));
          sum[i] += e;
          squares[i] += e * e;
        }
      }
    });
    double error = 0, variance = 0, variance2 = 0;  // pooled as in vector_codec_test.cpp
    for (std::size_t i = 0; i < x.size(); ++i) {
      double const v = squares[i] / steps;
      error += sum[i] * sum[i] / steps;
      variance += v;
      variance2 += v * v;
    }
    EXPECT_GT(variance, 0);
    EXPECT_LT(error / variance, 1 + 5 * std::sqrt(2 * variance2) / variance) << schedule;
  }
}

TEST(TwoLevel, every_schedule_and_number_of_workers_gives_all_workers_the_same_mean_whatever_the_chunks) {
  gq::any_quantizer const op = gq::operators::nvfp4();
  for (std::size_t d : {std::size_t{1}, block, block + 1, std::size_t{1000}, std::size_t{2311}})
    for (int n = 1; n <= 9; ++n)
      for (char const* schedule : {"ring", "tree", "sra", "allgather", "hierarchical:2", "hierarchical:3"}) {
        std::vector<std::vector<float>> x;
        for (int r = 0; r < n; ++r) x.push_back(spread(d, r));
        std::string const what =
            std::string(schedule) + ", " + std::to_string(n) + " workers, " + std::to_string(d) + " values";
        result<float> const whole = mean_of(op, schedule, x, d), cut = mean_of(op, schedule, x, 256);
        double error = 0, energy = 0, off = 0;
        for (std::size_t r = 0; r < x.size(); ++r) {
          expect_same_bits(whole.of[r], whole.of[0], what);
          expect_same_bits(cut.of[r], whole.of[0], what + " in chunks");
        }
        for (std::size_t i = 0; i < d; ++i) {
          double mean = 0;
          for (auto const& each : x) {
            mean += static_cast<double>(each[i]) / n;
            energy += static_cast<double>(each[i]) * static_cast<double>(each[i]);
          }
          off = static_cast<double>(whole.of[0][i]) - mean;
          error += off * off;
        }
        gq::plan const plan = gq::plan_for(op, gq::schedule::any{schedule}, n, d, gq::dtype::float32, d);
        EXPECT_EQ(whole.bytes, plan.bytes_sent) << what;
        // the bound is on the expectation; a single step of few values may be above it
        EXPECT_LE(error, (d < 100 ? 20 : 2) * plan.theta / n * energy) << what;
      }
}

TEST(TwoLevel, the_wire_changes_no_bit_of_the_mean) {
  std::vector<std::vector<float>> x;
  for (int r = 0; r < 3; ++r) x.push_back(spread(3001, r));
  auto const with = [](auto wire) -> gq::any_quantizer {
    using levels = gq::levels::e2m1;
    return gq::quantizer{gq::norm::two_level<levels>{}, levels{}, gq::rounding::stochastic{}, wire};
  };
  std::vector<float> const expected = mean_of(with(gq::wire::packed<4>{}), "sra", x, 256).of[0];
  for (gq::any_quantizer const& op :
       {with(gq::wire::int8{}), with(gq::wire::int32{}), with(gq::wire::sparse<>{}),
        with(gq::wire::elias<>{}), with(gq::wire::huffman<>{})})
    expect_same_bits(mean_of(op, "sra", x, 256).of[1], expected, op.facts().name);
}

TEST(TwoLevel, vectors_of_a_group_have_scales_of_their_own) {
  gq::any_quantizer const op = gq::operators::nvfp4();
  constexpr std::size_t d = 700;
  std::vector<std::vector<float>> small(3), large(3), alone(3), both(3);
  for (int r = 0; r < 3; ++r) {
    auto const k = static_cast<std::size_t>(r);
    small[k] = spread(d, r);
    large[k] = spread(d, r + 3);
    for (float& v : small[k]) v *= 0x1p-60F;
  }
  gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{20}}};
  cluster.run([&](auto& workers) {
    auto const k = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 3}};
    alone[k] = small[k];
    mean(alone[k], 8);
    std::vector<float> other = large[k];
    both[k] = small[k];
    mean(gq::vector_group{}.add(other).add(both[k]), 7);  // vector 1 draws the bits of step 8
  });
  for (std::size_t k = 0; k < 3; ++k) expect_same_bits(both[k], alone[k], "of a group");
}

TEST(TwoLevel, zeros_and_vectors_with_zero_blocks_are_exact_there) {
  gq::vector_codec codec{gq::operators::nvfp4(), Kokkos::Serial()};
  std::vector<float> x(100), y(100, 3.0F);
  codec.decode(encode(codec, x, {}), {}, y);
  EXPECT_THAT(y, testing::Each(0.0F));
  x[50] = std::numeric_limits<float>::denorm_min();
  x[51] = -x[50];
  codec.decode(encode(codec, x, {}), {}, y);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i / block != 3) {
      EXPECT_EQ(y[i], 0.0F) << i;
    }
  std::vector<std::vector<float>> const none(3, std::vector<float>(100));
  EXPECT_THAT(mean_of(gq::any_quantizer(gq::operators::nvfp4()), "ring", none, 0).of[1], testing::Each(0.0F));
}

namespace {

template <class Value>
std::vector<Value> as(std::vector<float> const& v) {
  std::vector<Value> x(v.size());
  for (std::size_t i = 0; i < v.size(); ++i) x[i] = Value(v[i]);
  return x;
}
template <class Value>
auto view_of(std::vector<Value>& v) {
  return Kokkos::View<Value*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(v.data(), v.size());
}

}  // namespace

TEST(TwoLevel, a_stream_gives_the_same_bits) {
  for (int n : {1, 2, 3, 5}) {
    gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{20}}};
    cluster.run([&](auto& workers) {
      gq::transport::staged on_stream{workers, Kokkos::Serial()};
      auto const run = [&]<class Value>(auto const& op, auto schedule, Value) {
        gq::allreduce_mean host{workers, op, schedule, {.seed = 3, .chunk_values = 1024}};
        gq::allreduce_mean stream{on_stream, op, schedule, {.seed = 3, .chunk_values = 1024}};
        for (std::size_t d : {std::size_t{0}, std::size_t{1}, std::size_t{300}, std::size_t{3001}}) {
          std::vector<Value> x = as<Value>(spread(d, workers.rank())), y = x;
          host(x, d);
          stream(view_of(y), d);
          stream.wait();
          expect_same_bits(x, y, std::string(decltype(schedule)::name) + " of " + std::to_string(d));
        }
      };
      auto const op = gq::operators::nvfp4();
      run(op, gq::schedule::ring{}, float{});
      run(op, gq::schedule::sra{}, float{});
      run(op, gq::schedule::sra{}, double{});
      run(op, gq::schedule::sra{}, gq::float16{});
      run(op, gq::schedule::sra{}, gq::bfloat16{});
      run(op, gq::schedule::allgather{}, float{});
      run(gq::operators::nvfp4(1 << 14), gq::schedule::ring{},
          float{});  // too long to be measured and encoded at once
      run(gq::operators::nvfp4(0), gq::schedule::sra{}, float{});
    });
  }
}

TEST(TwoLevel, a_stream_vector_codec_makes_the_same_frames) {
  for (std::uint64_t bucket : {16, 0})
    for (std::size_t d : {1U, 16U, 300U, 3001U}) {
      auto const op = gq::operators::nvfp4(bucket);
      std::vector<float> x = spread(d, 4), y(d), z(d);
      gq::vector_codec host{op, {}, gq::frame_checksum::none};
      gq::stream_vector_codec stream{op, Kokkos::Serial()};
      std::vector<std::byte> const frame = encode(host, x, {7, 8, 9});
      Kokkos::View<std::byte*, Kokkos::HostSpace> other("frame", stream.frame_bytes(d));
      stream.encode(view_of(x), {7, 8, 9}, other);
      stream.wait();
      ASSERT_EQ(other.size(), frame.size());
      EXPECT_EQ(0, std::memcmp(frame.data(), other.data(), frame.size())) << bucket << ", " << d;
      host.decode(frame, {7, 8, 9}, y);
      stream.decode(other, {7, 8, 9}, view_of(z));
      stream.wait();
      expect_same_bits(y, z, std::to_string(d));
      other(16 + 4) = std::byte{127};
      stream.decode(other, {7, 8, 9}, view_of(z));
      EXPECT_THROW(stream.wait(), gq::frame_error);
    }
}
