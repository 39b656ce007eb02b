// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief allreduce_mean over transport::nccl on a GPU: the bits of the host, and fresh ones at every replay of a graph.

#include "tests/support/compositions.hpp"
#include "tests/support/emulated_counts.hpp"

#include <globalq/globalq.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/transport/nccl.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <gtest/gtest.h>

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
  if (!support::executed()) GTEST_SKIP() << "a destroyed stream is an error on emulated devices only";
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
