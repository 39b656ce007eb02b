// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Vectors in device memory, over a transport of host memory. Runs on any Kokkos backend.

#include <globalq/globalq.hpp>
#include <globalq/transport/staged.hpp>

#include <iostream>

namespace gq = globalq;

int main() {
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  gq::transport::threads cluster{2};
  cluster.run([](auto& hosts) {
    //! [device-mean]
    Kokkos::DefaultExecutionSpace const stream;    // or Kokkos::Cuda{your_cuda_stream}
    gq::transport::staged workers{hosts, stream};  // hosts: threads, mpi or shared_memory
    Kokkos::View<float*> gradient("gradient", 1000);
    Kokkos::deep_copy(stream, gradient, static_cast<float>(workers.rank()));

    gq::quantizer op{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{}, gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
    mean(gradient, /*step=*/0);  // enqueued: later work on the stream reads the mean
    mean.wait();                 // throws the error of the call, if any
    //! [device-mean]

    float first = 0;
    Kokkos::deep_copy(first, Kokkos::subview(gradient, 0));
    if (workers.rank() == 0) std::cout << "about 0.5: " << first << '\n';
  });
}
