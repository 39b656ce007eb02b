// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Data-parallel training with CUDA kernels of its own, NCCL and raw pointers: what changes from ncclAllReduce to globalq.
///
///     nccl_trainer [RANKS [STEPS]]      (default: 4 ranks on the GPUs in turn, 100 steps)
///
/// A linear classifier of handwritten digits is trained by gradient descent on squared errors, first with means of float32 by NCCL,
/// then with means of 4-bit codes by globalq. Each rank is a thread with a GPU, a stream and a part of the digits.

#include <globalq/globalq.hpp>
#include <globalq/transport/nccl.hpp>

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace gq = globalq;

namespace {

constexpr int pixels = 64, classes = 10, inputs = pixels + 1, parameters = classes * inputs;
constexpr float rate = 0.1F;

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}
void check(ncclResult_t code) {
  if (code != ncclSuccess) throw std::runtime_error(ncclGetErrorString(code));
}

// ---- the model; images have a last input of 1

__global__ void find_errors(float const* images, int const* digits, float const* weights, int n,
                            float* errors) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  for (int c = 0; c < classes; ++c) {
    float score = 0;
    for (int p = 0; p < inputs; ++p) score += weights[c * inputs + p] * images[i * inputs + p];
    errors[i * classes + c] = score - (digits[i] == c ? 1.0F : 0.0F);
  }
}
__global__ void find_gradient(float const* images, float const* errors, int n, float* gradient) {
  int const k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (k >= parameters) return;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += errors[i * classes + k / inputs] * images[i * inputs + k % inputs];
  gradient[k] = sum / static_cast<float>(n);
}
__global__ void descend(float const* gradient, float scale, float* weights) {
  int const k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (k < parameters) weights[k] -= scale * gradient[k];
}
constexpr unsigned threads = 64;
constexpr unsigned blocks(int n) { return (static_cast<unsigned>(n) + threads - 1) / threads; }

// ---- data

struct data {
  std::vector<float> images;
  std::vector<int> digits;

  int size() const { return static_cast<int>(digits.size()); }
  data part(int first, int count) const {
    return {{images.begin() + first * inputs, images.begin() + (first + count) * inputs},
            {digits.begin() + first, digits.begin() + first + count}};
  }
};

data read_digits(std::string const& name) {
  std::ifstream file(name);
  data all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string field;
    for (int p = 0; p < pixels && std::getline(fields, field, ','); ++p)
      all.images.push_back(std::stof(field) / 16);
    all.images.push_back(1);
    std::getline(fields, field, ',');
    all.digits.push_back(std::stoi(field));
  }
  if (all.digits.empty()) throw std::runtime_error("there are no digits in " + name);
  return all;
}

double accuracy(std::vector<float> const& weights, data const& test) {
  int right = 0;
  for (int i = 0; i < test.size(); ++i) {
    float scores[classes] = {};
    for (int k = 0; k < parameters; ++k)
      scores[k / inputs] += weights[static_cast<std::size_t>(k)] *
                            test.images[static_cast<std::size_t>(i * inputs + k % inputs)];
    right += static_cast<int>(std::max_element(scores, scores + classes) - scores) ==
             test.digits[static_cast<std::size_t>(i)];
  }
  return 100.0 * right / test.size();
}

// ---- one rank

template <class T>
T* on_device(std::vector<T> const& values) {
  T* copy = nullptr;
  check(cudaMalloc(&copy, values.size() * sizeof(T)));
  check(cudaMemcpy(copy, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return copy;
}

struct trainer {
  trainer(data const& mine, cudaStream_t on)
      : n(mine.size()),
        stream(on),
        images(on_device(mine.images)),
        digits(on_device(mine.digits)),
        errors(on_device(std::vector<float>(static_cast<std::size_t>(n * classes)))),
        weights(on_device(std::vector<float>(parameters))),
        gradient(on_device(std::vector<float>(parameters))) {}
  trainer(trainer const&) = delete;
  ~trainer() {
    for (void* each : {static_cast<void*>(images), static_cast<void*>(digits), static_cast<void*>(errors),
                       static_cast<void*>(weights), static_cast<void*>(gradient)})
      static_cast<void>(cudaFree(each));
  }

  void find() const {
    find_errors<<<blocks(n), threads, 0, stream>>>(images, digits, weights, n, errors);
    find_gradient<<<blocks(parameters), threads, 0, stream>>>(images, errors, n, gradient);
  }
  void follow(float scale) const {
    descend<<<blocks(parameters), threads, 0, stream>>>(gradient, scale, weights);
  }
  std::vector<float> result() const {
    std::vector<float> copy(parameters);
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(copy.data(), weights, copy.size() * sizeof(float), cudaMemcpyDeviceToHost));
    return copy;
  }

  int n;
  cudaStream_t stream;
  float* images;
  int* digits;
  float *errors, *weights, *gradient;
};

std::vector<float> train_by_nccl(trainer const& model, ncclComm_t comm, int ranks, int steps) {
  cudaStream_t const stream = model.stream;
  float* const gradient = model.gradient;
  for (int step = 0; step < steps; ++step) {
    model.find();
    check(ncclAllReduce(gradient, gradient, parameters, ncclFloat, ncclSum, comm, stream));
    model.follow(rate / static_cast<float>(ranks));
  }
  return model.result();
}

std::vector<float> train_by_globalq(trainer const& model, ncclComm_t comm, int steps) {
  cudaStream_t const stream = model.stream;
  float* const gradient = model.gradient;
  std::size_t const n = parameters;
  //! [nccl-mean]
  gq::transport::nccl workers{comm, stream, {.deadline = std::chrono::seconds{60}}};
  gq::quantizer op{gq::norm::local<gq::infinity>{.bucket = 128}, gq::levels::uniform{7},
                   gq::rounding::stochastic{}, gq::wire::packed<4>{}};
  gq::allreduce_mean mean{workers, op, gq::schedule::scatter_reduce_allgather{}, {.seed = 42}};
  //! [nccl-mean]

  model.find();
  //! [nccl-step]
  mean(gradient, n,
       /*step=*/0);  // on the stream, in place of ncclAllReduce and a division by the number of ranks
  //! [nccl-step]
  model.follow(rate);
  mean.wait();  // here only to learn early whether the ranks agree

  // From now on the host only launches a graph.
  //! [nccl-graph]
  std::uint64_t* const step =
      on_device(std::vector<std::uint64_t>{1});  // each call uses the random bits of its step, and adds 1
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  model.find();
  mean(gradient, n, step);
  model.follow(rate);
  check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t training_step = nullptr;
  check(cudaGraphInstantiate(&training_step, graph, 0));
  for (int k = 1; k < steps; ++k) {
    check(cudaGraphLaunch(training_step, stream));
    if (!mean.good()) break;  // a call failed; does not block
  }
  mean.wait();  // throws the error of the first call that failed
  //! [nccl-graph]
  check(cudaGraphExecDestroy(training_step));
  check(cudaGraphDestroy(graph));
  check(cudaFree(step));
  return model.result();
}

/// Calls body(rank, communicator, stream) for each rank, in a thread of its own.
void run(int ranks, std::function<void(int, ncclComm_t, cudaStream_t)> const& body) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices));
  ncclUniqueId id;
  check(ncclGetUniqueId(&id));
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> crew;
  for (int rank = 0; rank < ranks; ++rank)
    crew.emplace_back([&, rank] {
      try {
        check(cudaSetDevice(rank % devices));
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ncclComm_t comm = nullptr;
        check(ncclCommInitRank(&comm, ranks, id, rank));
        body(rank, comm, stream);
        check(ncclCommDestroy(comm));
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (auto& each : crew) each.join();
  for (auto const& each : failures)
    if (each) std::rethrow_exception(each);
}

int train(int ranks, int steps) {
  data const all = read_digits(GLOBALQ_DIGITS_CSV);
  int const share = 1440 / ranks;
  data const test = all.part(1440, all.size() - 1440);
  bool agree = true;
  double reached[2] = {};
  for (bool const compressed : {false, true}) {
    std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
    run(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
      trainer const model(all.part(rank * share, share), stream);
      weights[static_cast<std::size_t>(rank)] =
          compressed ? train_by_globalq(model, comm, steps) : train_by_nccl(model, comm, ranks, steps);
    });
    bool const same =
        std::all_of(weights.begin(), weights.end(), [&](auto const& each) { return each == weights[0]; });
    agree = agree && same;
    reached[compressed] = accuracy(weights[0], test);
    std::printf("%-20s %5.1f %% of %d digits after %d steps on %d ranks; weights are %s on all ranks\n",
                compressed ? "4 bits by globalq:" : "float32 by NCCL:", reached[compressed], test.size(),
                steps, ranks, same ? "the same" : "DIFFERENT");
  }
  return agree && reached[1] > reached[0] - 3 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  try {
    return train(argc > 1 ? std::atoi(argv[1]) : 4, argc > 2 ? std::atoi(argv[2]) : 100);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
