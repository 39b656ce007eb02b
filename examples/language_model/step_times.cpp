// SPDX-License-Identifier: Apache-2.0
/// @file
/// Times steps of sharded training over MPI, with computing replayed as a sleep: bytes, operators and exchanges are real, and how long
/// the passes take follows from a ratio of communication to computing.

#include "sharded.hpp"

#include <globalq/transport/mpi.hpp>

#include <mpi.h>
#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace lm = language_model;
namespace gq = globalq;

namespace {

struct settings {
  std::uint64_t values = 4 << 20;
  std::uint64_t layers = 12;
  std::vector<double> ratios{3.72, 1.43, 1.18};
  std::string baseline = "W32G16";
  std::vector<std::string> precisions{"W8G8", "W4G4"};
  int rounds = 5;
  std::uint64_t steps = 2;
};

/// One precision, computing and sending in turn or at once.
class subject {
 public:
  subject(gq::transport::mpi& workers, settings const& s, lm::precision const& p, bool prefetch)
      : workers_(workers), steps_(s.steps) {
    std::uint64_t const each = s.values / s.layers;
    // a bias is short beside its matrix
    std::vector<std::vector<lm::parameter>> const layers(s.layers, {{each, false}, {each / 1024, true}});
    layers_ = std::make_unique<lm::sharded_layers<gq::transport::mpi>>(workers, layers, p, 1, prefetch);
    for (std::uint64_t l = 0; l < s.layers; ++l) {
      std::span<float> const x = layers_->layout(l).in(layers_->weights(l), 0);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(i + l);
      layers_->keep_shards(l);
    }
  }

  /// Seconds of a step, of the slowest worker.
  /// @param computing  seconds of a step; two thirds of it in the backward pass
  double time(double computing) {
    double const forward = computing / 3 / static_cast<double>(layers_->size());
    MPI_Barrier(MPI_COMM_WORLD);
    auto const began = std::chrono::steady_clock::now();
    std::uint64_t const sent = workers_.bytes_sent();
    for (std::uint64_t k = 0; k < steps_; ++k)
      layers_->train(
          step_++, {}, false, [&](std::size_t) { sleep(forward); },
          [&](std::size_t l) {
            sleep(2 * forward);
            std::span<float> const g = layers_->layout(l).in(layers_->gradients(l), 0);
            for (std::size_t i = 0; i < g.size(); ++i) g[i] = value(i + l + step_);
          });
    double mine = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
           slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    bytes_ = (workers_.bytes_sent() - sent) / steps_;
    return slowest / static_cast<double>(steps_);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  static float value(std::uint64_t i) {
    return static_cast<float>(static_cast<std::int32_t>((i * 2654435761U) & 0xffffffffU)) * 0x1p-31F;
  }

  gq::transport::mpi& workers_;
  std::uint64_t steps_, step_ = 0, bytes_ = 0;
  std::unique_ptr<lm::sharded_layers<gq::transport::mpi>> layers_;
};

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

/// The median step of each subject; one after another in each round, so that noise of the machine is common to all.
std::vector<double> medians(std::vector<std::unique_ptr<subject>> const& all, double computing, int rounds) {
  std::vector<std::vector<double>> seconds(all.size());
  for (int k = 0; k < rounds; ++k)
    for (std::size_t i = 0; i < all.size(); ++i) seconds[i].push_back(all[i]->time(computing));
  std::vector<double> found;
  for (auto const& each : seconds) found.push_back(median(each));
  return found;
}

void run(settings const& s) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  std::vector<std::string> names{s.baseline};
  names.insert(names.end(), s.precisions.begin(), s.precisions.end());
  std::vector<std::unique_ptr<subject>> in_turn, at_once;
  for (std::string const& name : names) {
    lm::precision const p = lm::precision_of(name);
    in_turn.push_back(std::make_unique<subject>(workers, s, p, false));
    at_once.push_back(std::make_unique<subject>(workers, s, p, true));
  }
  for (auto* each : {&in_turn, &at_once}) medians(*each, 0, 1);
  std::vector<double> const exchange = medians(in_turn, 0, s.rounds);
  bool const prints = workers.rank() == 0;
  if (prints)
    std::printf("%d workers, %llu values in %llu layers\n\n%-10s %14s %10s %6s\n", workers.size(),
                static_cast<unsigned long long>(s.values), static_cast<unsigned long long>(s.layers),
                "precision", "bytes a step", "exchange", "r");
  for (std::size_t i = 0; i < names.size() && prints; ++i)
    std::printf("%-10s %14llu %8.3f s %6.2f\n", names[i].c_str(),
                static_cast<unsigned long long>(in_turn[i]->bytes()), exchange[i], exchange[0] / exchange[i]);
  for (double const c : s.ratios) {
    double const computing = exchange[0] / c;
    std::vector<double> const turn = medians(in_turn, computing, s.rounds),
                              once = medians(at_once, computing, s.rounds);
    if (!prints) continue;
    std::printf("\nc = %g, computing %.3f s\n%-10s %10s %9s %9s %10s %9s\n", c, computing, "precision",
                "in turn", "speed-up", "(formula)", "at once", "speed-up");
    for (std::size_t i = 0; i < names.size(); ++i)
      std::printf("%-10s %8.3f s %9.2f %9.2f %8.3f s %9.2f\n", names[i].c_str(), turn[i], turn[0] / turn[i],
                  (1 + c) / (1 + c * exchange[i] / exchange[0]), once[i], once[0] / once[i]);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{"Times steps of sharded training over MPI, with computing replayed as a sleep"};
  app.add_option("--values", s.values, "values of the model")->check(CLI::Range(1 << 16, 1 << 28));
  app.add_option("--layers", s.layers, "layers of the model")->check(CLI::Range(1, 1000));
  app.add_option("--ratio", s.ratios, "communication of the baseline / computing")
      ->check(CLI::PositiveNumber);
  app.add_option("--baseline", s.baseline,
                 "what is compared with: FSDP sends float32 weights and 16-bit gradients");
  app.add_option("--precision", s.precisions, "W and G with 2 to 8, 16 or 32 bits each");
  app.add_option("--rounds", s.rounds, "measurements, of which the median is printed")
      ->check(CLI::Range(1, 1000));
  app.add_option("--steps", s.steps, "steps of a measurement")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  int level = 0;  // calls that are started run on a thread of their own
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  try {
    Kokkos::ScopeGuard const kokkos{
        Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
    run(s);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Finalize();
}
