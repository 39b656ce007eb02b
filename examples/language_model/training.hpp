// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// What the programs of this folder share: a fresh model on each worker, its loss on held-out text, whether replicas agree.

#include "../one_thread.hpp"
#include "text.hpp"
#include "transformer.hpp"

#include <globalq/core/arithmetic.hpp>
#include <globalq/core/detail/hash.hpp>
#include <globalq/transport/collectives.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

namespace language_model {

/// A model with the initial weights of a seed, the same on every worker.
inline transformer model_of(shape const& s, std::uint64_t seed) {
  static std::mutex making;  // LibTorch draws initial weights from one generator
  std::scoped_lock const lock(making);
  torch::manual_seed(seed);
  return transformer(s);
}

/// A hash of the bits of a tensor, and of what @p before is of.
inline std::uint64_t hash_of(torch::Tensor const& t, std::uint64_t before) {
  for (std::int64_t i = 0; i < t.numel(); ++i)
    before =
        globalq::detail::hash(before, static_cast<std::uint64_t>(globalq::bits_of(t.data_ptr<float>()[i])));
  return before;
}

/// Whether all workers have this number.
template <class Workers>
bool all_have(Workers& workers, std::uint64_t number) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(workers.size()));
  globalq::transport::allgather_value(workers, number, std::span(all));
  return std::ranges::all_of(all, [&](std::uint64_t other) { return other == number; });
}

/// Whether the models of all workers have the same bits.
template <class Workers>
bool replicas_agree(Workers& workers, torch::nn::Module const& model) {
  std::uint64_t h = 0;
  for (auto const& p : model.parameters()) h = hash_of(p, h);
  return all_have(workers, h);
}

/// Batches of 32 pieces of held-out text.
inline std::vector<batch> held_out_batches(text const& from, std::int64_t context, std::uint64_t parts) {
  std::vector<batch> all;
  for (std::uint64_t k = 0; k < parts; ++k) all.push_back(from.draw_held_out(k, 32, context));
  return all;
}

/// The mean loss on @p parts batches of held-out text, in nats a byte.
inline double held_out_loss(transformer& model, text const& from, std::int64_t context, std::uint64_t parts) {
  torch::NoGradGuard const none;
  double loss = 0;
  for (batch const& b : held_out_batches(from, context, parts))
    loss += model->loss(b.input, b.next).item<double>() / static_cast<double>(parts);
  return loss;
}

/// Runs f() -> exit status with Kokkos, and reports exceptions.
template <class F>
int run_program(F const& f) {
  try {
    Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
    examples::use_one_thread();
    return f();
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}

}  // namespace language_model
