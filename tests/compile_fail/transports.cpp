// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Transports that are not linked, and what a cluster of threads runs.

#include <globalq/globalq.hpp>

#include <vector>

namespace gq = globalq;

void run(gq::transport::threads& cluster) {
  cluster.run([](auto& workers) {
    gq::quantizer op{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{}, gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}};
    std::vector<float> gradient(1000);
    mean(gradient, 0);

// a mistake in a generic body is told as anywhere else
#ifdef CASE_NO_STEP_IN_A_BODY  // expect-error: globalq: the step is missing
    mean(gradient);
#endif
#ifdef CASE_WRONG_ORDER_IN_A_BODY  // expect-error: globalq: quantizer: the second policy is not a level scheme
    gq::quantizer bad{gq::norm::linf{}, gq::rounding::stochastic{}, gq::levels::uniform<>{},
                      gq::wire::int8{}};
    gq::allreduce_mean other{workers, bad, gq::schedule::ring{}};
#endif
  });
#ifdef CASE_BODY_WITHOUT_ENDPOINT  // expect-error: globalq: run calls its argument on each worker
  cluster.run([] {});
#endif
#ifdef CASE_BODY_THAT_COPIES  // expect-error: globalq: run calls its argument on each worker
  cluster.run([](auto) {});
#endif
}

#ifdef CASE_MPI  // expect-error: globalq: transport::mpi is not linked; link the target globalq::mpi
void worker() { gq::transport::mpi const workers{MPI_COMM_WORLD}; }
#endif
#ifdef CASE_MPI_AS_ARGUMENT  // expect-error: globalq: transport::mpi is not linked; link the target globalq::mpi
int rank_of(gq::transport::mpi const& workers) { return workers.rank(); }
#endif
#ifdef CASE_SHARED_MEMORY  // expect-error: globalq: transport::shared_memory is not linked; link the target globalq::mpi
void worker() { gq::transport::shared_memory const workers{MPI_COMM_WORLD}; }
#endif
#ifdef CASE_NCCL  // expect-error: globalq: transport::nccl is not linked; link the target globalq::nccl
void worker() { gq::transport::nccl const workers{nullptr, nullptr}; }
#endif

#ifdef CASE_STREAM_WITHOUT_ITS_HEADER  // expect-error: globalq: a call over a stream transport needs #include <globalq/stream.hpp>
struct own_stream {
  using request = int;
  using execution_space = Kokkos::DefaultHostExecutionSpace;
  static constexpr bool on_stream = true;
  int rank() const { return 0; }
  int size() const { return 1; }
  request send_async(int, std::span<std::byte const>) { return 0; }
  request recv_async(int, std::span<std::byte>) { return 0; }
  void wait(request&) {}
  execution_space execution() { return {}; }
};
void call(own_stream& workers) { gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}}; }
#endif
