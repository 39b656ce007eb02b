// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a small transformer on text with sharded workers, once for each precision of weights and gradients (QSDP), and
/// compares the loss on text that was held out, and the bytes sent.

#include "sharded.hpp"
#include "text.hpp"
#include "transformer.hpp"

#include <globalq/globalq.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

namespace lm = language_model;
namespace gq = globalq;

namespace {

struct settings {
  lm::shape model;
  lm::adam optimiser;
  std::vector<std::string> text{GLOBALQ_LANGUAGE_MODEL_TEXT};
  std::vector<std::string> precisions{"float32", "W8G8", "W4G4", "W4G4 learned"};
  int workers = 4;
  std::int64_t batch = 8;  // pieces a worker
  std::uint64_t steps = 300;
  std::uint64_t seed = 1;
  double gap = 0;  // percent that W8G8 may lose; 0: any
};

struct result {
  double loss = 0, seconds = 0;
  std::uint64_t bytes_a_step = 0;
  bool replicas_agree = true;
};

/// "float32", or "W8G4", with " learned" for learned levels.
lm::precision precision_of(std::string const& name) {
  lm::precision p;
  p.name = name;
  if (name == "float32") return p;
  char rest[16] = "";
  int const found = std::sscanf(name.c_str(), "W%dG%d %15s", &p.weight_bits, &p.gradient_bits, rest);
  p.learned = std::strcmp(rest, "learned") == 0;
  if (found < 2 || (found == 3 && !p.learned))
    throw std::runtime_error{"language_model: \"" + name +
                             "\" is no precision; use float32, W8G8, W4G4, \"W4G4 learned\""};
  return p;
}

/// Steps at which levels are learned: soon, since weights are set at random, and again.
bool learns_at(std::uint64_t step) { return step == 1 || step == 20 || (step != 0 && step % 100 == 0); }

std::uint64_t hash_of(torch::nn::Module const& model) {
  std::uint64_t h = 0;
  for (auto const& p : model.parameters())
    for (std::int64_t i = 0; i < p.numel(); ++i)
      h = gq::detail::hash(h, static_cast<std::uint64_t>(gq::bits_of(p.data_ptr<float>()[i])));
  return h;
}

result train(settings const& s, lm::text const& text, lm::precision const& p) {
  result r;
  std::mutex making;  // LibTorch draws initial weights from one generator
  gq::transport::threads cluster{s.workers};
  auto const began = std::chrono::steady_clock::now();
  cluster.run([&](auto& workers) {
    std::unique_lock lock(making);
    torch::manual_seed(s.seed);
    lm::transformer model(s.model);
    lock.unlock();
    lm::sharded_model shards(workers, *model, p, s.seed * 1000);
    auto const rank = static_cast<std::uint64_t>(workers.rank()), n = static_cast<std::uint64_t>(s.workers);
    std::uint64_t const before = workers.bytes_sent();
    for (std::uint64_t step = 0; step < s.steps; ++step) {
      shards.gather(step);
      lm::batch const b = text.draw((s.seed * s.steps + step) * n + rank, s.batch, s.model.context);
      model->zero_grad();
      model->loss(b.input, b.next).backward();
      if (learns_at(step)) shards.learn_levels(step);
      shards.update(s.optimiser, step);
    }
    std::uint64_t const sent = workers.bytes_sent() - before;
    shards.gather(s.steps);
    std::vector<std::uint64_t> hashes(n);
    gq::transport::allgather_value(workers, hash_of(*model), std::span(hashes));
    if (rank != 0) return;
    torch::NoGradGuard const none;
    for (std::uint64_t h : hashes) r.replicas_agree = r.replicas_agree && h == hashes[0];
    r.bytes_a_step = sent / s.steps;
    constexpr int parts = 16;
    for (int k = 0; k < parts; ++k) {
      lm::batch const b = text.draw_held_out(static_cast<std::uint64_t>(k), 32, s.model.context);
      r.loss += model->loss(b.input, b.next).item<double>() / parts;
    }
  });
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return r;
}

int run(settings const& s) {
  lm::text const text(s.text);
  std::printf("%zu bytes of text; %d workers, %llu steps of %lld x %lld bytes each\n\n", text.size(),
              s.workers, static_cast<unsigned long long>(s.steps), static_cast<long long>(s.batch),
              static_cast<long long>(s.model.context));
  std::printf("%-14s %14s %10s %12s %10s  %s\n", "precision", "bytes a step", "held out", "to float32",
              "seconds", "replicas");
  double plain = 0;
  bool good = true;
  for (std::string const& name : s.precisions) {
    result const r = train(s, text, precision_of(name));
    if (name == "float32") plain = r.loss;
    double const change = plain > 0 ? 100 * (r.loss / plain - 1) : 0;
    std::printf("%-14s %14llu %10.4f %+11.2f%% %10.1f  %s\n", name.c_str(),
                static_cast<unsigned long long>(r.bytes_a_step), r.loss, change, r.seconds,
                r.replicas_agree ? "identical" : "DIFFER");
    std::fflush(stdout);
    good = good && r.replicas_agree;
    if (s.gap > 0 && name == "W8G8" && change > s.gap) {
      std::printf("W8G8 is more than %g %% above float32\n", s.gap);
      good = false;
    }
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{"Trains a small transformer on text with sharded, quantised weights and gradients"};
  app.add_option("--text", s.text, "files of text");
  app.add_option("--precision", s.precisions, "float32, W8G8, W4G4, \"W4G4 learned\", ..")->take_all();
  app.add_option("--workers", s.workers, "threads")->check(CLI::Range(1, 64));
  app.add_option("--steps", s.steps, "steps")->check(CLI::PositiveNumber);
  app.add_option("--batch", s.batch, "pieces of text a worker and step")->check(CLI::PositiveNumber);
  app.add_option("--width", s.model.width, "width of the model, a multiple of 4")->check(CLI::PositiveNumber);
  app.add_option("--blocks", s.model.blocks, "blocks of the model")->check(CLI::PositiveNumber);
  app.add_option("--rate", s.optimiser.rate, "Adam's rate")->check(CLI::PositiveNumber);
  app.add_option("--seed", s.seed, "seed of everything that is drawn");
  app.add_option("--gap", s.gap, "fail when W8G8 ends more percent above float32");
  CLI11_PARSE(app, argc, argv);
  try {
    Kokkos::ScopeGuard const kokkos(argc, argv);
    torch::set_num_threads(1);  // workers share the cores
    return run(s);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
