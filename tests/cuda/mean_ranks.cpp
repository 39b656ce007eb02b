// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief allreduce_mean over transport::nccl with several ranks, each a thread of this process with a stream: the bits of the host,
/// graphs, workers that do not come, GPUs that are not the first. Each rank needs a GPU of its own: while one frees
/// memory, CUDA waits for all work of the device, and so for other ranks.

#include "tests/cuda/main.hpp"
#include "tests/support/compositions.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/globalq.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/rotated.hpp>
#include <globalq/operator/second_half.hpp>
#include <globalq/operator/stream_vector_codec.hpp>
#include <globalq/transport/named_memory.hpp>
#include <globalq/transport/nccl.hpp>
#include <globalq/transport/staged.hpp>

#include <gtest/gtest.h>
#include <cuda_emulator/counts.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gq = globalq;

namespace globalq_test {
namespace {

using vector = Kokkos::View<float*, Kokkos::CudaSpace>;
using counter = Kokkos::View<std::uint64_t, Kokkos::CudaSpace>;

std::vector<float> input(std::size_t d, int rank) {
  std::vector<float> x(d);
  for (std::size_t i = 0; i < d; ++i)
    x[i] = static_cast<float>(
               static_cast<int>((i + 77U * static_cast<unsigned>(rank)) * 2654435761U % 2001U) - 1000) *
           0x1p-9F;
  return x;
}

/// One rank: its transport, and an instance of its stream.
struct worker {
  worker(ncclUniqueId const& id, int rank, int size, std::chrono::nanoseconds deadline)
      : stream(make_stream()), cuda(stream), nccl(id, rank, size, stream, {.deadline = deadline}) {}

  vector on_device(std::vector<float> const& x) const {
    vector const v(Kokkos::view_alloc(cuda, std::string("values")), x.size());
    Kokkos::deep_copy(cuda, v, Kokkos::View<float const*, Kokkos::HostSpace>(x.data(), x.size()));
    cuda.fence();
    return v;
  }
  std::vector<float> on_host(vector const& v) const {
    std::vector<float> x(v.size());
    Kokkos::deep_copy(cuda, Kokkos::View<float*, Kokkos::HostSpace>(x.data(), x.size()), v);
    cuda.fence();
    return x;
  }
  /// Instantiates what body() enqueues.
  cudaGraphExec_t capture(std::function<void()> const& body) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    body();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&runnable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return runnable;
  }

  cudaStream_t stream;  // Kokkos may need it until the end of the process
  Kokkos::Cuda cuda;
  gq::transport::nccl nccl;

 private:
  static cudaStream_t make_stream() {
    cudaStream_t s = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    return s;
  }
};

constexpr std::chrono::seconds patient{60};

int most_ranks() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

/// Calls body(worker) for each rank, on the devices in turn.
void run(int ranks, std::function<void(worker&)> const& body, std::chrono::nanoseconds deadline = patient) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  int devices = 1;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> crew;
  for (int rank = 0; rank < ranks; ++rank)
    crew.emplace_back([&, rank] {
      try {
        EXPECT_EQ(cudaSetDevice(rank % devices), cudaSuccess);
        worker w(id, rank, ranks, deadline);
        body(w);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (auto& each : crew) each.join();
  for (auto const& each : errors)
    if (each) std::rethrow_exception(each);
}

/// The means of steps that end with @p last, as one call object of the host computes them.
std::vector<std::vector<float>> expected_calls(gq::any_quantizer const& op, char const* schedule, int ranks,
                                               std::size_t d, std::uint64_t first, std::uint64_t last) {
  std::vector<std::vector<float>> results;
  gq::transport::threads(ranks).run([&](auto& workers) {
    gq::allreduce_mean mean{workers, op, gq::schedule::any(schedule), {.seed = 9}};
    for (std::uint64_t step = first; step <= last; ++step) {
      auto x = input(d, workers.rank());
      mean(x, step);
      if (workers.rank() == 0) results.push_back(x);
    }
  });
  return results;
}
std::vector<float> expected(gq::any_quantizer const& op, char const* schedule, int ranks, std::size_t d,
                            std::uint64_t step) {
  return expected_calls(op, schedule, ranks, d, step, step).front();
}

struct subject {
  char const* name;
  gq::any_quantizer op;
};

/// One norm for all, and norms of buckets that travel with them: of more workers than a team takes frames of at a time, too.
std::vector<subject> const& subjects() {
  static gq::levels::exponential<> const levels{};
  static std::vector<subject> const all = {
      {"one norm", gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::int8{}}},
      {"local norms", gq::quantizer{gq::norm::local<2>{.bucket = 512}, levels, gq::rounding::stochastic{},
                                    gq::wire::int8{}}},
      {"local maxima", gq::quantizer{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform<>{},
                                     gq::rounding::random_shift{}, gq::wire::int8{}}},
      {"rotated",
       gq::rotated{gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::int8{}},
                   64}},
      {"bfloat16", gq::floats<gq::bfloat16>{}},
  };
  return all;
}

TEST(MeanOfRanks, has_the_bits_of_the_host) {
  if (most_ranks() < 2) GTEST_SKIP() << "needs two ranks";
  for (int const ranks : {2, 3, 5, 10}) {
    if (ranks > most_ranks()) continue;
    for (auto const& [name, op] : subjects())
      for (char const* const schedule : {"ring", "sra", "allgather", "tree"})
        for (std::size_t const d : {1U, 5003U}) {
          auto const right = expected(op, schedule, ranks, d, 4);
          run(ranks, [&, name = name, &op = op](worker& w) {
            gq::allreduce_mean mean{w.nccl, op, gq::schedule::any(schedule), {.seed = 9}};
            vector const x = w.on_device(input(d, w.nccl.rank()));
            mean(x, 4);
            mean.wait();
            EXPECT_EQ(w.on_host(x), right) << name << ", " << schedule << ", " << d << " values";
          });
        }
  }
}

/// A call in chunks of 256 KiB, whose transfers overlap with kernels, directly and from a graph: the order of streams must not matter.
void expect_overlapping_chunks(gq::any_quantizer const& op, std::uint64_t chunk, char const* schedule,
                               int ranks) {
  std::size_t const d = static_cast<std::size_t>(ranks) * chunk * 5 / 2 + 77;
  auto const right = expected_calls(op, schedule, ranks, d, 0, 3);
  run(ranks, [&](worker& w) {
    gq::allreduce_mean mean{w.nccl, op, gq::schedule::any(schedule), {.seed = 9, .chunk_values = chunk}};
    vector const x = w.on_device(input(d, w.nccl.rank())), y = w.on_device(input(d, 0));
    counter const step(Kokkos::view_alloc(w.cuda, std::string("step")));
    w.cuda.fence();
    mean(x, y, step);
    mean.wait();
    EXPECT_EQ(w.on_host(y), right[0]) << schedule;
    cudaGraphExec_t const graph = w.capture([&] { mean(x, y, step); });
    for (std::size_t replay = 1; replay < right.size(); ++replay) {
      EXPECT_EQ(cudaGraphLaunch(graph, w.stream), cudaSuccess);
      mean.wait();
      EXPECT_EQ(w.on_host(y), right[replay]) << schedule << ", replayed";
    }
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  });
}

TEST(MeanOfRanks, chunks_that_overlap_with_kernels_have_the_bits_of_the_host) {
  if (most_ranks() < 2) GTEST_SKIP() << "needs two ranks";
  for (char const* const schedule : {"ring", "sra", "allgather"})
    expect_overlapping_chunks(gq::uncompressed{}, 1U << 16, schedule, std::min(most_ranks(), 3));
  expect_overlapping_chunks(subjects()[2].op, 1U << 18, "sra", std::min(most_ranks(), 2));
  expect_overlapping_chunks(gq::rotated{subjects()[1].op, 8192}, 1U << 14, "sra", std::min(most_ranks(), 2));
  // a replay adds what the call before left out, and which call that was only the device knows
  expect_overlapping_chunks(gq::error_feedback{subjects()[2].op, {.average = 0.5F}}, 1U << 14, "sra",
                            std::min(most_ranks(), 2));
  expect_overlapping_chunks(gq::error_feedback{gq::second_half{subjects()[2].op, subjects()[2].op}}, 1U << 14,
                            "sra", std::min(most_ranks(), 2));
  expect_overlapping_chunks(gq::operators::eden<2>(64), 1U << 12, "allgather", std::min(most_ranks(), 2));
}

// Only memory tells the length of chunks. Those of a ring cost more exchanges, and those of a tree would wait for each other.
TEST(MeanOfRanks, long_vectors_are_sent_in_chunks_where_that_pays) {
  if (most_ranks() < 2) GTEST_SKIP() << "needs two ranks";
  std::uint64_t const d = std::uint64_t{1} << 28;
  run(2, [&](worker& w) {
    auto const workspace_bytes = [&](char const* schedule) {
      gq::allreduce_mean const mean{w.nccl, gq::uncompressed{}, gq::schedule::any(schedule), {.seed = 9}};
      return mean.plan(d).workspace_bytes;
    };
    for (char const* const schedule : {"sra", "allgather"})
      EXPECT_LT(workspace_bytes(schedule), d) << schedule;
    for (char const* const schedule : {"ring", "tree"}) EXPECT_GE(workspace_bytes(schedule), d) << schedule;
    gq::reduce_scatter_mean const scatter{w.nccl, gq::uncompressed{}, {.seed = 9}};
    EXPECT_LT(scatter.plan(d).workspace_bytes, d);
  });
}

// An output of its own begins where its shard does: the vector that it is a part of is nobody's memory.
TEST(MeanOfRanks, shards_have_the_bits_of_the_host) {
  int const ranks = std::min(most_ranks(), 3);
  std::size_t const d = 5003;
  for (auto const& [name, op] : subjects()) {
    std::vector<std::vector<float>> right(static_cast<std::size_t>(ranks));
    gq::transport::threads(ranks).run([&, &op = op](auto& workers) {
      gq::reduce_scatter_mean mean{workers, op, {.seed = 9}};
      std::vector<float> own(mean.shard(d).count);
      mean(input(d, workers.rank()), own, 4);
      right[static_cast<std::size_t>(workers.rank())] = own;
    });
    run(ranks, [&, name = name, &op = op](worker& w) {
      gq::reduce_scatter_mean mean{w.nccl, op, {.seed = 9}};
      auto const& expected_here = right[static_cast<std::size_t>(w.nccl.rank())];
      vector const own = w.on_device(std::vector<float>(expected_here.size())),
                   x = w.on_device(input(d, w.nccl.rank()));
      mean(x, own, 4);
      mean.wait();
      EXPECT_EQ(w.on_host(own), expected_here) << name;
    });
  }
}

/// What an action throws.
template <class Error, class Action>
std::string told(Action const& action) {
  try {
    action();
  } catch (Error const& e) {
    return e.what();
  }
  return "nothing";
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != text.npos; }

/// Captures a call after one with a longer vector, and replays it after one with a still longer vector.
void expect_graph_outlives_longer_vectors(int ranks, subject const& of) {
  std::string const what = std::string(of.name) + ", " + std::to_string(ranks) + " ranks";
  std::vector<std::vector<float>> right;
  for (std::uint64_t step = 0; step < 4; ++step) right.push_back(expected(of.op, "sra", ranks, 5003, step));
  run(ranks, [&](worker& w) {
    gq::allreduce_mean mean{w.nccl, of.op, gq::schedule::any("sra"), {.seed = 9}};
    vector const x = w.on_device(input(5003, w.nccl.rank())), y = w.on_device(input(5003, 0)),
                 longer = w.on_device(input(50021, w.nccl.rank()));
    counter const step(Kokkos::view_alloc(w.cuda, std::string("step")));
    w.cuda.fence();
    mean(x, y, step);
    mean.wait();
    EXPECT_EQ(w.on_host(y), right[0]) << what;
    mean(longer, 9);
    mean.wait();
    cudaGraphExec_t const graph = w.capture([&] { mean(x, y, step); });
    EXPECT_EQ(cudaGraphLaunch(graph, w.stream), cudaSuccess);
    mean.wait();
    EXPECT_EQ(w.on_host(y), right[1]) << what << ", captured after a longer vector";
    vector const longest = w.on_device(input(90001, w.nccl.rank()));
    mean(longest, 9);
    mean.wait();
    for (std::uint64_t s = 2; s < 4; ++s) {
      EXPECT_EQ(cudaGraphLaunch(graph, w.stream), cudaSuccess);
      mean.wait();
      EXPECT_EQ(w.on_host(y), right[s]) << what << ", replayed after a still longer one";
    }
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  });
}

// Frames of longer vectors need more memory; what a graph uses stays.
TEST(MeanOfRanks, a_graph_outlives_calls_with_longer_vectors) {
  for (auto const& each : subjects()) expect_graph_outlives_longer_vectors(std::min(most_ranks(), 3), each);
}

// The addresses of more than eight frames do not fit the arguments of a kernel: nodes of the graph write them.
TEST(MeanOfRanks, a_graph_of_ten_ranks_outlives_calls_with_longer_vectors) {
  if (most_ranks() < 10) GTEST_SKIP() << "needs ten ranks";
  for (auto const& each : subjects()) expect_graph_outlives_longer_vectors(10, each);
}

// With EMULATED_SEED=0 no kernel runs before the host waits. Kernels are counted for all ranks together.
TEST(MeanOfRanks, calls_with_vectors_at_new_addresses_do_not_wait) {
  char const* const seed = std::getenv("EMULATED_SEED");
  if (!emulator::executed() || seed == nullptr || std::string(seed) != "0")
    GTEST_SKIP() << "needs an emulated device that runs as late as possible";
  int const ranks = std::min(most_ranks(), 10);
  constexpr std::uint64_t calls = 20;
  for (auto const& [name, op] : subjects()) {
    std::barrier together(ranks);
    run(ranks, [&, name = name, &op = op](worker& w) {
      gq::allreduce_mean mean{w.nccl, op, gq::schedule::any("sra"), {.seed = 9}};
      std::vector<vector> x;
      for (std::uint64_t k = 0; k <= calls; ++k) x.push_back(w.on_device(input(5003, w.nccl.rank())));
      mean(x[calls], 0);
      mean.wait();
      together.arrive_and_wait();
      auto const before = emulator::executed()->launches;
      together.arrive_and_wait();
      auto const error = told<std::exception>([&] {
        for (std::uint64_t k = 0; k < calls; ++k) mean(x[k], k);
      });
      together.arrive_and_wait();
      auto const after = emulator::executed()->launches;
      together.arrive_and_wait();
      EXPECT_EQ(error, "nothing") << name;
      EXPECT_EQ(after, before) << name;
      mean.wait();
      EXPECT_GT(emulator::executed()->launches, before + calls) << name;
    });
  }
}

TEST(MeanOfRanks, a_capture_without_an_earlier_call_is_refused_in_the_name_of_the_collective) {
  gq::any_quantizer const& op = subjects()[0].op;
  run(1, [&](worker& w) {
    gq::allreduce_mean mean{w.nccl, op, gq::schedule::any("sra"), {.seed = 9}};
    gq::reduce_scatter_mean scatter{w.nccl, op, {.seed = 9}};
    gq::all_gather gather{w.nccl, op, {.seed = 9}};
    vector const x = w.on_device(input(5003, 0));
    counter const step(Kokkos::view_alloc(w.cuda, std::string("step")));
    w.cuda.fence();
    auto const expect_refusal = [&](std::string const& operation, auto& call) {
      std::string text;
      cudaGraphExec_t const graph =
          w.capture([&] { text = told<gq::configuration_error>([&] { call(x, step); }); });
      EXPECT_TRUE(contains(text, "globalq: " + operation + ": the stream is being captured")) << text;
      EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
    };
    expect_refusal("allreduce_mean", mean);
    expect_refusal("reduce_scatter_mean", scatter);
    expect_refusal("all_gather", gather);
  });
}

TEST(MeanOfRanks, a_worker_that_does_not_come_is_an_error_by_the_deadline) {
  if (most_ranks() < 2) GTEST_SKIP() << "needs two ranks";
  gq::any_quantizer const& op = subjects()[1].op;
  std::size_t const d = 5003;
  auto const start = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  run(
      2,
      [&](worker& w) {
        vector const x = w.on_device(input(d, w.nccl.rank()));  // cudaFree waits, without a deadline
        {
          gq::allreduce_mean mean{w.nccl, op, gq::schedule::any("sra"), {.seed = 9}};
          mean(x, 1);
          mean.wait();
          if (w.nccl.rank() == 1) return;
          mean(x, 2);  // and goes without having waited: the destructor has to
        }
        EXPECT_EQ(w.nccl.communicator(), nullptr) << "given up";
        EXPECT_TRUE(contains(told<gq::transport_error>([&] {
                               gq::allreduce_mean mean{w.nccl, op, gq::schedule::any("sra"), {.seed = 9}};
                               mean(x, 1);
                               mean.wait();
                             }),
                             "globalq: "));
      },
      std::chrono::milliseconds(1500));
  std::string const written = testing::internal::GetCapturedStderr();
  EXPECT_FALSE(contains(written, "disagree")) << written;  // the record of the step before is still there
  EXPECT_TRUE(contains(written, "no call and no wait() followed")) << written;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// The destructor waits in the test above; here wait() does, and a call whose longer vector needs more memory: freeing the
// old memory would wait for the stream without a deadline.
TEST(MeanOfRanks, a_wait_and_a_longer_vector_end_by_the_deadline_without_a_worker) {
  if (most_ranks() < 2) GTEST_SKIP() << "needs two ranks";
  gq::any_quantizer const& op = subjects()[1].op;
  for (bool const longer : {false, true}) {
    auto const start = std::chrono::steady_clock::now();
    run(
        2,
        [&](worker& w) {
          vector const x = w.on_device(input(5003, w.nccl.rank())), y = w.on_device(input(90001, 0));
          gq::allreduce_mean mean{w.nccl, op, gq::schedule::any("sra"), {.seed = 9}};
          mean(x, 1);
          mean.wait();
          if (w.nccl.rank() == 1) return;
          mean(x, 2);
          auto const text = told<gq::transport_error>([&] { longer ? mean(y, 3) : mean.wait(); });
          EXPECT_TRUE(contains(text, "waited 1.5 s for the stream")) << text;
        },
        std::chrono::milliseconds(1500));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << longer;
  }
}

TEST(MeanOfRanks, runs_on_a_gpu_that_is_not_the_first_and_refuses_vectors_of_another) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) GTEST_SKIP() << "needs two GPUs";
  gq::any_quantizer const& op = subjects()[0].op;
  std::size_t const d = 5003;
  auto const right = expected(op, "sra", 1, d, 4);
  vector const elsewhere("on the first", d);
  counter const step_elsewhere("on the first");
  std::thread([&] {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    worker w(id, 0, 1, patient);
    gq::allreduce_mean mean{w.nccl, op, gq::schedule::any("sra"), {.seed = 9}};
    vector const x = w.on_device(input(d, 0));
    cudaPointerAttributes of{};
    ASSERT_EQ(cudaPointerGetAttributes(&of, x.data()), cudaSuccess);
    EXPECT_EQ(of.device, 1);
    mean(x, 4);
    mean.wait();
    EXPECT_EQ(w.on_host(x), right);
    auto const refused = [&](auto const& values, auto const& step, std::string const& why) {
      auto const text = told<gq::configuration_error>([&] { mean(values, step); });
      EXPECT_TRUE(contains(text, "globalq: allreduce_mean: the " + why)) << text;
    };
    refused(elsewhere, 5, "vector is on GPU 0 and the stream on GPU 1; ");
    refused(x, step_elsewhere, "step is on GPU 0 and the stream on GPU 1; ");
    std::vector<float> host(d);
    Kokkos::View<float*, Kokkos::CudaSpace, Kokkos::MemoryUnmanaged> const not_there(host.data(), d);
    refused(not_there, 5, "vector is in host memory that GPU 1 cannot access; ");
    gq::stream_vector_codec codec{op, w.cuda};
    Kokkos::View<std::byte*, Kokkos::CudaSpace> const frame(Kokkos::view_alloc(w.cuda, std::string("frame")),
                                                            codec.frame_bytes(d, gq::dtype::float32));
    auto const text =
        told<gq::configuration_error>([&] { codec.encode(x, {.seed = 9}, step_elsewhere, frame); });
    EXPECT_TRUE(
        contains(text, "globalq: stream_vector_codec: the step is on GPU 0 and the stream on GPU 1; "))
        << text;
  }).join();
}

// ---- ranks that are processes and share a GPU, over memory of the host

/// More values than a launch has threads; fewer where kernels are interpreted.
std::size_t length_for_processes() { return emulator::executed() ? 5003 : (std::size_t{1} << 24) + 5; }

TEST(MeanOfProcesses, has_the_bits_of_the_host_on_one_gpu) {
  constexpr int ranks = 3;
  std::string name = "globalq-mean-" + std::to_string(::getpid());
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::string arguments[] = {"mean_device_test", "--rank", name, std::to_string(rank),
                               std::to_string(ranks)};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), arguments[4].data(), nullptr};
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv, environ), 0);
    children.push_back(child);
  }
  for (pid_t const child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

/// One rank of MeanOfProcesses. @returns the exit status of its process
int be_rank(char const* name, int rank, int ranks) {
  try {
    gq::transport::named_memory hosts{name, rank, ranks, {.deadline = patient}};
    gq::transport::staged workers{hosts, Kokkos::Cuda{}};
    std::size_t const d = length_for_processes();
    for (auto const& [what, op] : subjects()) {
      std::vector<float> x = input(d, rank);
      Kokkos::View<float*, Kokkos::HostSpace> const here(x.data(), d);
      vector const there("values", d);
      Kokkos::deep_copy(there, here);
      gq::allreduce_mean mean{workers, op, gq::schedule::any("sra"), {.seed = 9}};
      mean(there, 4);
      mean.wait();
      Kokkos::deep_copy(here, there);
      if (x == expected(op, "sra", ranks, d, 4)) continue;
      std::fprintf(stderr, "rank %d, %s: the mean differs from the host's\n", rank, what);
      return 1;
    }
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    return 1;
  }
}

[[maybe_unused]] bool const is_set = [] {
  instead_of_tests = [](int argc, char** argv) -> std::optional<int> {
    if (argc != 5 || std::string(argv[1]) != "--rank") return std::nullopt;
    return be_rank(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  };
  return true;
}();

}  // namespace
}  // namespace globalq_test
