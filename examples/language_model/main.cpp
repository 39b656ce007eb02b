// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a small transformer on text with sharded workers, once for each precision of weights and gradients (QSDP),
/// and compares the loss on held-out text, and the bytes sent.

#include "../launched.hpp"
#include "sharded_model.hpp"

#include <globalq/transport/threads.hpp>
#ifdef GLOBALQ_HAS_MPI
#include <mpi.h>
#include <globalq/transport/mpi.hpp>
#endif

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace lm = language_model;
namespace gq = globalq;

namespace {

struct settings {
  lm::shape model;
  lm::adam optimizer;
  std::vector<std::string> text{GLOBALQ_LANGUAGE_MODEL_TEXT};
  std::vector<std::string> precisions{"float32",      "W8G8",         "W4G4",
                                      "W4G4 nearest", "W4G4 learned", "W4G4 descent"};
  int workers = 4;
  bool prefetch = true;
  std::int64_t batch = 8;  // pieces per worker
  std::uint64_t steps = 300;
  std::uint64_t seed = 1;
  bool falls = false, json = false;
  double gap = 0;     // percent that the loss of 8 bits or more may be above float32; 0: any
  double margin = 0;  // percent that the loss of W4G4 must be above W8G8; 0: any
};

struct result {
  double loss = 0, seconds = 0;
  std::uint64_t bytes_a_step = 0;
  bool replicas_agree = true;
};

/// Whether --gap applies to it; float32 is 32 bits of both.
bool is_close(lm::precision const& p) { return p.weight_bits >= 8 && p.gradient_bits >= 8; }

/// Steps at which levels are learned: early, because initial weights are random, and again later.
bool learns_at(std::uint64_t step) { return step == 1 || step == 20 || (step != 0 && step % 100 == 0); }

template <class Workers>
result train(Workers& workers, settings const& s, lm::text const& text, lm::precision const& p) {
  result r;
  auto const began = std::chrono::steady_clock::now();
  lm::sharded_model model(workers, lm::model_of(s.model, s.seed), p, s.seed * 1000, s.prefetch);
  auto const rank = static_cast<std::uint64_t>(workers.rank()),
             n = static_cast<std::uint64_t>(workers.size());
  std::uint64_t const before = workers.bytes_sent();
  for (std::uint64_t step = 0; step < s.steps; ++step) {
    lm::batch const b = text.draw((s.seed * s.steps + step) * n + rank, s.batch, s.model.context);
    model.train(b, step, s.optimizer, learns_at(step));
  }
  r.bytes_a_step = (workers.bytes_sent() - before) / s.steps;
  std::tie(r.loss, r.replicas_agree) =
      model.evaluate(lm::held_out_batches(text, s.model.context, 16), s.steps);
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return r;
}

result train_on_threads(settings const& s, lm::text const& text, lm::precision const& p) {
  result r;
  gq::transport::threads cluster{s.workers};
  cluster.run([&](auto& workers) {
    result const mine = train(workers, s, text, p);
    if (workers.rank() == 0) r = mine;
  });
  return r;
}

double percent(double loss, double base) { return 100 * (loss / base - 1); }

/// Refuses comparisons with a precision that is not trained.
void expect_compared(settings const& s, std::vector<lm::precision> const& all) {
  auto const has = [&](char const* name) {
    return std::ranges::find(s.precisions, name) != s.precisions.end();
  };
  if (s.gap > 0 && !has("float32"))
    throw std::runtime_error{"language_model: --gap compares with float32; add --precision float32"};
  if (s.gap > 0 && std::ranges::count_if(all, is_close) < 2)
    throw std::runtime_error{
        "language_model: --gap is for precisions of 8 bits or more; add --precision W8G8"};
  if (s.margin > 0 && !(has("W8G8") && has("W4G4")))
    throw std::runtime_error{
        "language_model: --margin compares W4G4 with W8G8; add --precision W8G8 --precision W4G4"};
}

/// @param train  train(precision) returns its result
template <class Train>
int compare(settings const& s, std::size_t bytes_of_text, int workers, Train const& train) {
  std::vector<lm::precision> all;
  for (std::string const& name : s.precisions) all.push_back(lm::precision_of(name));
  expect_compared(s, all);
  if (!s.json) {
    std::printf("%zu bytes of text; %d workers, %llu steps of %lld x %lld bytes each\n\n", bytes_of_text,
                workers, static_cast<unsigned long long>(s.steps), static_cast<long long>(s.batch),
                static_cast<long long>(s.model.context));
    std::printf("%-15s %13s %10s %12s %10s  %s\n", "precision", "bytes a step", "held out", "to float32",
                "seconds", "replicas");
  }
  std::map<std::string, double> losses;
  bool good = true;
  for (lm::precision const& p : all) {
    result const r = train(p);
    losses[p.name] = r.loss;
    char change[32] = "-";
    if (losses.contains("float32"))
      std::snprintf(change, sizeof change, "%+.2f%%", percent(r.loss, losses["float32"]));
    if (s.json)
      std::printf(
          "{\"what\": \"training\", \"method\": \"%s\", \"seed\": %llu, \"workers\": %d, \"steps\": %llu, "
          "\"bytes_a_step\": %llu, \"loss\": %.6f, \"identical\": %s}\n",
          p.name.c_str(), static_cast<unsigned long long>(s.seed), workers,
          static_cast<unsigned long long>(s.steps), static_cast<unsigned long long>(r.bytes_a_step), r.loss,
          r.replicas_agree ? "true" : "false");
    else
      std::printf("%-15s %13llu %10.4f %12s %10.1f  %s\n", p.name.c_str(),
                  static_cast<unsigned long long>(r.bytes_a_step), r.loss, change, r.seconds,
                  r.replicas_agree ? "identical" : "DIFFER");
    std::fflush(stdout);
    if (!std::isfinite(r.loss))
      std::fprintf(stderr, "language_model: %s: the loss is not finite\n", p.name.c_str());
    good = good && r.replicas_agree && std::isfinite(r.loss);
  }
  for (lm::precision const& p : all)
    // written so that a NaN loss fails
    if (s.gap > 0 && is_close(p) && !(percent(losses[p.name], losses["float32"]) <= s.gap)) {
      std::printf("%s is more than %g %% above float32\n", p.name.c_str(), s.gap);
      good = false;
    }
  if (s.margin > 0 && !(percent(losses["W4G4"], losses["W8G8"]) >= s.margin)) {
    std::printf("W4G4 is less than %g %% above W8G8\n", s.margin);
    good = false;
  }
  return good ? 0 : 1;
}

int run(settings const& s, [[maybe_unused]] bool uses_mpi) {
  lm::text const text(s.text);
#ifdef GLOBALQ_HAS_MPI
  if (uses_mpi) {
    gq::transport::mpi workers{MPI_COMM_WORLD};
    if (workers.rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return 2;
    return compare(s, text.size(), workers.size(),
                   [&](lm::precision const& p) { return train(workers, s, text, p); });
  }
#endif
  return compare(s, text.size(), s.workers,
                 [&](lm::precision const& p) { return train_on_threads(s, text, p); });
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{"Trains a small transformer on text with sharded, quantized weights and gradients"};
  app.add_option("--text", s.text, "files of text");
  app.add_option("--precision", s.precisions, "float32, W8G8, W4G4, \"W4G4 nearest\", ..")->take_all();
  app.add_option("--workers", s.workers, "threads; an MPI launcher decides for itself")
      ->check(CLI::Range(1, 64));
  app.add_flag("!--in-turn", s.prefetch,
               "computes and sends in turn: no weights of the next layer, no gradients meanwhile");
  app.add_option("--steps", s.steps, "steps")->check(CLI::PositiveNumber);
  app.add_option("--batch", s.batch, "pieces of text a worker and step")->check(CLI::PositiveNumber);
  app.add_option("--width", s.model.width, "width of the model, a multiple of 4")->check(CLI::PositiveNumber);
  app.add_option("--blocks", s.model.blocks, "blocks of the model")->check(CLI::PositiveNumber);
  app.add_option("--rate", s.optimizer.rate, "Adam's rate")->check(CLI::PositiveNumber);
  app.add_flag("--falls", s.falls, "Adam's rate falls to 0 as half a cosine");
  app.add_flag("--json", s.json, "prints a line of JSON for each precision");
  app.add_option("--seed", s.seed, "seed of everything that is drawn");
  app.add_option("--gap", s.gap, "fail when W8G8, W32G8, W8G32 end more percent above float32")
      ->check(CLI::PositiveNumber);
  app.add_option("--margin", s.margin, "fail when W4G4 ends less percent above W8G8")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (s.falls) s.optimizer.steps = s.steps;
  bool const uses_mpi = examples::launched_rank().has_value();
#ifdef GLOBALQ_HAS_MPI
  int level = 0;  // calls that are started run on a thread of their own
  if (uses_mpi) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
#endif
  int const status = lm::run_program([&] { return run(s, uses_mpi); });
#ifdef GLOBALQ_HAS_MPI
  if (uses_mpi && status > 1) MPI_Abort(MPI_COMM_WORLD, status);  // the others may be waiting for this worker
  if (uses_mpi) MPI_Finalize();
#endif
  return status;
}
