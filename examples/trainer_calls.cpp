// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief More calls for trainers: learned levels, groups of layers, overlapping calls, shards.

#include <globalq/globalq.hpp>
#include <globalq/train/learn/level_learner.hpp>

#include <iostream>
#include <random>
#include <vector>

namespace gq = globalq;

namespace {

/// A gradient of many small values and a few large ones, different on each worker and in each step.
std::vector<float> gradient_of(int rank, std::uint64_t step, std::size_t length) {
  std::mt19937 draw(static_cast<std::uint32_t>(rank) * 1000 + static_cast<std::uint32_t>(step));
  std::vector<float> x(length);
  for (float& v : x) {
    float const wide = static_cast<float>(static_cast<int>(draw() % 2001) - 1000) * 1e-3F;
    v = wide * wide * wide;
  }
  return x;
}

template <class Workers>
void train(Workers& workers) {
  //! [trainer-mean]
  gq::quantizer op{gq::norm::linf{.bucket = 512}, gq::levels::table{0, 0.25, 0.5, 1},
                   gq::rounding::stochastic{}, gq::wire::packed<3>{}};
  gq::allreduce_mean mean{workers, op, gq::schedule::scatter_reduce_allgather{}, {.seed = 42}};
  //! [trainer-mean]

  //! [trainer-levels]
  gq::learn::level_learner learner{gq::norm::linf{.bucket = 512}, gq::learn::optimal{.size = 3}};
  for (std::uint64_t step = 0; step < 200; ++step) {
    std::vector<float> gradient = gradient_of(workers.rank(), step, 4096);
    if (auto const found = learner.update(workers, gradient, step)) mean.set_levels(found->levels.table());
    mean(gradient, step);
  }
  //! [trainer-levels]

  //! [trainer-group]
  std::vector<float> weights = gradient_of(workers.rank(), 200, 3000),
                     bias = gradient_of(workers.rank(), 201, 10);
  mean(gq::vector_group{}.add(weights).add(bias), /*step=*/200);  // uses the steps 200 and 201
  //! [trainer-group]

  //! [trainer-start]
  gq::started_call const first = mean.start(weights, 202);
  gq::started_call const second = mean.start(bias, 203);
  first.wait();  // throws the error of this call, if any
  second.wait();
  //! [trainer-start]

  //! [trainer-shards]
  gq::reduce_scatter_mean scatter{workers, op, {.seed = 42}};
  gq::all_gather gather{workers, op, {.seed = 43}};
  std::vector<float> gradient = gradient_of(workers.rank(), 204, 4096);
  scatter(gradient, 204);  // own = scatter.shard(4096): own.count means from gradient[own.first] on
  gather(gradient, 204);   // all shards, the same bits on every worker
  //! [trainer-shards]

  //! [trainer-nodes]
  gq::reduce_scatter_mean scatter_nodes{workers, op, gq::schedule::hierarchical<>{2}, {.seed = 44}};
  scatter_nodes(gradient, 205);
  //! [trainer-nodes]

  //! [trainer-broadcast]
  gq::broadcast send{workers, op, /*root=*/0, {.seed = 45}};
  send(gradient, 206);
  //! [trainer-broadcast]

  //! [trainer-all-to-all]
  gq::all_to_all exchange{workers, op, {.seed = 46}};
  exchange(gradient, 207);  // 4096 values: parts of 4096 / n
  //! [trainer-all-to-all]

  //! [trainer-plan]
  gq::plan const p = gq::plan_for(op, gq::schedule::sra{}, /*workers=*/64, /*length=*/25'000'000);
  // p.fits, p.refusal, p.bytes_sent, p.bits_per_value, p.rounding_steps, p.theta, p.iterations_factor,
  // p.workspace_bytes
  //! [trainer-plan]
  if (workers.rank() == 0) {
    std::cout << "a value of the mean: " << gradient[0] << '\n';
    gq::plan const ring = gq::plan_for(op, gq::schedule::ring{}, 64, 25'000'000);
    std::cout << "64 workers would each send " << p.bytes_sent << " bytes; theta is " << p.theta << ", and "
              << ring.theta << " on a ring\n";
  }
}

}  // namespace

int main() {
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  gq::transport::threads cluster{4};
  cluster.run([](auto& workers) { train(workers); });
}
