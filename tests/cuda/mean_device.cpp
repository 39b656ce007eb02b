// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief allreduce_mean over transport::nccl on a GPU: the bits of the host, and fresh ones at every replay of a graph.

#include "tests/support/compositions.hpp"

#include <globalq/globalq.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/transport/nccl.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_emulator/counts.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace gq = globalq;

namespace {

using vector = Kokkos::View<float*, Kokkos::CudaSpace>;
using counter = Kokkos::View<std::uint64_t, Kokkos::CudaSpace>;

std::vector<float> input(std::size_t d) {
  std::vector<float> x(d);
  for (std::size_t i = 0; i < d; ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 2654435761U % 2001U) - 1000) * 0x1p-9F;
  return x;
}

vector on_device(std::vector<float> const& x) {
  vector v("values", x.size());
  Kokkos::deep_copy(v, Kokkos::View<float const*, Kokkos::HostSpace>(x.data(), x.size()));
  return v;
}
std::vector<float> on_host(vector const& v) {
  std::vector<float> x(v.size());
  Kokkos::deep_copy(Kokkos::View<float*, Kokkos::HostSpace>(x.data(), x.size()), v);
  return x;
}

/// The means of one worker, as the host computes them.
template <class Operator>
std::vector<float> expected(Operator const& op, std::size_t d, std::uint64_t step) {
  gq::transport::threads cluster{1};
  std::vector<float> x = input(d);
  cluster.run([&](auto& workers) {
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 9}};
    mean(x, step);
  });
  return x;
}

/// A stream, and the only rank on it.
class alone {
 public:
  alone() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    workers_.emplace(id, 0, 1, stream_);
  }
  ~alone() {
    workers_.reset();
    cudaStreamDestroy(stream_);
  }
  cudaStream_t stream() const { return stream_; }
  gq::transport::nccl& workers() { return *workers_; }

 private:
  cudaStream_t stream_ = nullptr;
  std::optional<gq::transport::nccl> workers_;
};

inline constexpr gq::rounding::stochastic dice;
auto const op = gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, gq::rounding::stochastic{},
                              gq::wire::int8{}};

TEST(MeanOnDevice, has_the_bits_of_the_host) {
  for (std::size_t d : {1U, 257U, 100003U}) {
    alone here;
    gq::allreduce_mean mean{here.workers(), op, gq::schedule::ring{}, {.seed = 9}};
    vector const x = on_device(input(d));
    mean(x, 4);
    mean.wait();
    EXPECT_EQ(on_host(x), expected(op, d, 4)) << d;
  }
}

// The suite of stream_vector_codec.hpp is in another program, which .ci/run does not build.
TEST(CodecOnDevice, has_the_frames_and_values_of_the_host) {
  std::size_t const d = 5003;
  gq::encoding_key const key{.seed = 5, .step = 9, .worker = 3};
  gq::vector_codec host{op, Kokkos::Serial(), gq::frame_checksum::none};
  gq::stream_vector_codec stream{op, Kokkos::Cuda()};
  std::vector<float> const x = input(d);
  std::vector<std::byte> frame(host.frame_bytes(d)), found(frame.size());
  host.encode(x, key, frame);
  std::vector<float> values(d);
  host.decode(frame, key, values);

  Kokkos::View<std::byte*, Kokkos::CudaSpace> const made("frame", frame.size());
  vector const decoded("values", d);
  stream.encode(on_device(x), key, made);
  stream.decode(made, key, decoded);
  stream.wait();
  Kokkos::deep_copy(Kokkos::View<std::byte*, Kokkos::HostSpace>(found.data(), found.size()), made);
  EXPECT_EQ(found, frame);
  EXPECT_EQ(on_host(decoded), values);
}

/// Compares frames of a vector with norms of one's own, encoded by the host and on a stream.
template <class T, class Op>
void expect_frames_of_the_host(Op const& by_bucket, std::vector<T> const& x, std::string const& what) {
  gq::vector_codec host{by_bucket, Kokkos::Serial(), gq::frame_checksum::none};
  gq::stream_vector_codec stream{by_bucket, Kokkos::Cuda()};
  gq::encoding_key const key{.seed = 5, .step = 9, .worker = 3};
  std::size_t const bytes = stream.frame_bytes(x.size(), gq::dtype_of<T>::value);
  std::vector<std::byte> frame(bytes), found(bytes);
  ASSERT_EQ(host.frame_bytes(x.size()), bytes);
  host.encode(x, key, frame);
  Kokkos::View<T*, Kokkos::CudaSpace> const there("values", x.size());
  Kokkos::deep_copy(there, Kokkos::View<T const*, Kokkos::HostSpace>(x.data(), x.size()));
  Kokkos::View<std::byte*, Kokkos::CudaSpace> const made("frame", bytes);
  stream.encode(there, key, made);
  stream.wait();
  Kokkos::deep_copy(Kokkos::View<std::byte*, Kokkos::HostSpace>(found.data(), bytes), made);
  EXPECT_EQ(found, frame) << what;
}

/// A vector whose buckets have ordinary values, zeros, a single value, tiny ones and huge ones.
template <class T>
std::vector<T> mixed_input(std::size_t d, std::size_t bucket) {
  std::vector<T> x;
  for (std::size_t i = 0; i < d; ++i) {
    float const v = static_cast<float>(static_cast<int>(i * 2654435761U % 2001U) - 1000) * 0x1p-9F;
    switch (i / bucket % 7) {
      case 2:
        x.emplace_back(0.0F);
        break;
      case 3:
        x.emplace_back(i % bucket == bucket - 1 ? -3.0F : 0.0F);
        break;
      case 4:
        x.emplace_back(v * (sizeof(T) == 4 ? 0x1p-130F : 0x1p-15F));
        break;
      case 5:
        x.emplace_back(v * (sizeof(T) == 4 ? 0x1p120F : 0x1p8F));
        break;
      default:
        x.emplace_back(v);
    }
  }
  return x;
}

template <class T, class Levels, class Rounding>
void expect_widths(Levels const& levels, Rounding const& rounding) {
  for (std::uint64_t const bucket : {32U, 64U, 128U, 256U, 512U, 1024U, 2048U})
    for (std::size_t const d :
         {20011U, 4096U, 31U}) {  // more than two items of a team, whole ones, less than a bucket
      auto const what = std::to_string(bucket) + " of " + std::to_string(d);
      auto const x = mixed_input<T>(d, bucket);
      expect_frames_of_the_host(
          gq::quantizer{gq::norm::local<2>{.bucket = bucket}, levels, rounding, gq::wire::int8{}}, x,
          "l2, " + what);
      expect_frames_of_the_host(
          gq::quantizer{gq::norm::local<gq::infinity>{.bucket = bucket}, levels, rounding, gq::wire::int8{}},
          x, "linf, " + what);
    }
}

TEST(CodecOnDevice, buckets_of_any_width_have_the_frames_of_the_host) {
  expect_widths<float>(gq::levels::exponential<>{}, dice);
  expect_widths<gq::bfloat16>(gq::levels::exponential<>{}, dice);
  expect_widths<gq::float16>(gq::levels::exponential<>{}, dice);
  expect_widths<float>(gq::levels::uniform<>{}, gq::rounding::random_shift{});
}

TEST(CodecOnDevice, scales_that_are_rounded_up_have_the_frames_of_the_host) {
  for (std::uint64_t const bucket : {32U, 512U}) {
    auto const x = mixed_input<float>(5003, bucket);
    auto const expect = [&](auto const& norm) {
      expect_frames_of_the_host(gq::quantizer{norm, gq::levels::exponential<>{}, dice, gq::wire::int8{}}, x,
                                std::to_string(bucket));
    };
    expect(gq::norm::power_of_two{gq::norm::local<gq::infinity>{.bucket = bucket}});
    expect(gq::norm::power_of_two{gq::norm::local<2>{.bucket = bucket}});
  }
}

TEST(MeanOnDevice, a_value_that_is_not_finite_makes_the_mean_nan_with_norms_of_buckets) {
  for (std::uint64_t const bucket : {64U, 512U})
    for (float const bad : {HUGE_VALF, NAN}) {
      std::vector<float> x = input(5003);
      x[3001] = bad;
      alone here;
      gq::allreduce_mean mean{here.workers(),
                              gq::quantizer{gq::norm::local<2>{.bucket = bucket}, gq::levels::exponential<>{},
                                            dice, gq::wire::int8{}},
                              gq::schedule::ring{},
                              {.seed = 9}};
      vector const there = on_device(x);
      mean(there, 1);
      mean.wait();
      for (float const v : on_host(there)) ASSERT_TRUE(std::isnan(v));
    }
}

/// Values of a type of CUDA's own, at a pointer, give the bits of the same values of the library's type.
template <class Own, class T>
void expect_bits_of() {
  static_assert(gq::dtype_of<Own>::value == gq::dtype_of<T>::value && sizeof(Own) == sizeof(T));
  std::size_t const d = 5003;
  std::vector<T> values;
  for (float const v : input(d)) values.emplace_back(v);
  Kokkos::View<T*, Kokkos::CudaSpace> const x("values", d), y("the same values", d);
  Kokkos::View<T const*, Kokkos::HostSpace> const from(values.data(), d);
  Kokkos::deep_copy(x, from);
  Kokkos::deep_copy(y, from);
  alone here;
  gq::allreduce_mean mean{here.workers(), op, gq::schedule::ring{}, {.seed = 9}};
  mean(x, 4);
  mean(reinterpret_cast<Own*>(y.data()), d, 4);
  mean.wait();
  std::vector<T> one(d), other(d);
  Kokkos::deep_copy(Kokkos::View<T*, Kokkos::HostSpace>(one.data(), d), x);
  Kokkos::deep_copy(Kokkos::View<T*, Kokkos::HostSpace>(other.data(), d), y);
  EXPECT_EQ(std::memcmp(one.data(), other.data(), d * sizeof(T)), 0);
  EXPECT_NE(std::memcmp(one.data(), values.data(), d * sizeof(T)), 0);
}

TEST(MeanOnDevice, takes_the_short_floats_of_cuda) {
  expect_bits_of<__half, gq::float16>();
  expect_bits_of<__nv_bfloat16, gq::bfloat16>();
}

TEST(MeanOnDevice, a_graph_draws_fresh_bits_at_every_replay) {
  std::size_t const d = 100003;
  alone here;
  gq::allreduce_mean mean{here.workers(), op, gq::schedule::ring{}, {.seed = 9}};
  vector const x = on_device(input(d)), y("mean", d);
  counter const step("step");
  EXPECT_EQ(cudaStreamBeginCapture(here.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(mean(x, y, step), gq::configuration_error) << "before the first call there is no memory";
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(here.stream(), &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  mean(x, y, step);
  mean.wait();
  EXPECT_EQ(on_host(y), expected(op, d, 0));

  EXPECT_EQ(cudaStreamBeginCapture(here.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(mean(x, y, 5), gq::configuration_error) << "every replay would draw the same bits";
  mean(x, y, step);
  EXPECT_EQ(cudaStreamEndCapture(here.stream(), &graph), cudaSuccess);
  cudaGraphExec_t runnable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&runnable, graph, 0), cudaSuccess);
  for (std::uint64_t s = 1; s <= 3; ++s) {
    EXPECT_EQ(cudaGraphLaunch(runnable, here.stream()), cudaSuccess);
    mean.wait();
    EXPECT_EQ(on_host(y), expected(op, d, s)) << "replay " << s;
  }
  cudaGraphExecDestroy(runnable);
  cudaGraphDestroy(graph);
}

using gq::kernel::detail::is_capturing;

TEST(MeanOnDevice, the_default_stream_counts_as_captured_while_it_would_wait_for_a_capture) {
  cudaStream_t blocking = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  EXPECT_FALSE(is_capturing(cudaStreamLegacy));
  EXPECT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_TRUE(is_capturing(cudaStreamLegacy));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaSuccess) << "the capture is still valid";
  EXPECT_FALSE(is_capturing(cudaStreamLegacy));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST(MeanOnDevice, an_invalidated_capture_is_an_error) {
  alone here;
  gq::allreduce_mean mean{here.workers(), op, gq::schedule::ring{}, {.seed = 9}};
  vector const x = on_device(input(257));
  counter const step("step");
  mean(x, step);
  mean.wait();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(here.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(here.stream()), cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
  try {
    mean(x, step);
    ADD_FAILURE() << "nothing was thrown";
  } catch (gq::configuration_error const& e) {
    EXPECT_NE(std::string(e.what()).find("the capture of the stream was invalidated"), std::string::npos)
        << e.what();
  }
  EXPECT_EQ(cudaStreamEndCapture(here.stream(), &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  mean(x, step);
  mean.wait();
}

TEST(MeanOnDevice, another_error_of_the_stream_is_thrown) {
  if (!emulator::executed()) GTEST_SKIP() << "a destroyed stream is an error on emulated devices only";
  cudaStream_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreate(&gone), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  try {
    is_capturing(gone);
    ADD_FAILURE() << "nothing was thrown";
  } catch (std::runtime_error const& e) {
    EXPECT_NE(std::string(e.what()).find("globalq: cudaStreamIsCapturing: cudaErrorInvalidResourceHandle"),
              std::string::npos)
        << e.what();
  }
  cudaGetLastError();
}

}  // namespace
