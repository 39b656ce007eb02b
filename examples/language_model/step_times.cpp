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
#include <cstdlib>
#include <exception>
#include <memory>
#include <regex>
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
  bool json = false;
};

/// As precision_of, and fake compression (Markov 2024, appendix C.2): with "W32/8G32/4" the first eighth of the weights and the first
/// quarter of the gradients of each layer travel.
lm::precision timed_precision(std::string const& name) {
  std::smatch part;
  if (!std::regex_match(name, part, std::regex{"W32/([1-9][0-9]?)G32/([1-9][0-9]?)"}))
    return lm::precision_of(name);
  return {name, 32, 32, lm::scheme::shifted, std::stoull(part[1]), std::stoull(part[2])};
}

/// One precision, computing and sending in turn or at once.
class subject {
 public:
  subject(gq::transport::mpi& workers, settings const& s, lm::precision const& p, bool prefetch)
      : workers_(workers), steps_(s.steps) {
    std::uint64_t const each = s.values / s.layers;
    // a bias is short beside its matrix
    std::vector<std::vector<lm::parameter>> const layers(s.layers, {{each, false}, {each / 1024, true}});
    layers_ =
        std::make_unique<lm::sharded_layers<gq::transport::mpi>>(workers, layers, p, 1, prefetch, &seen_);
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
    seen_.take();
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
    gq::call_report const all = seen_.take();
    mine = all.in(gq::phase::norm) + all.in(gq::phase::encode) + all.in(gq::phase::reduce) +
           all.in(gq::phase::decode);
    MPI_Allreduce(&mine, &kernels_, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    kernels_ /= static_cast<double>(steps_) * workers_.size();
    return slowest / static_cast<double>(steps_);
  }
  /// Of the last measurement, in a step: bytes that this worker sent, and seconds in norms, encoding, adding and decoding, the mean of
  /// the workers.
  /// @{
  std::uint64_t bytes() const { return bytes_; }
  double kernels() const { return kernels_; }
  /// @}

 private:
  static void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
  static float value(std::uint64_t i) {
    return static_cast<float>(static_cast<std::int32_t>((i * 2654435761U) & 0xffffffffU)) * 0x1p-31F;
  }

  gq::transport::mpi& workers_;
  std::uint64_t steps_, step_ = 0, bytes_ = 0;
  double kernels_ = 0;
  gq::telemetry seen_;
  std::unique_ptr<lm::sharded_layers<gq::transport::mpi>> layers_;
};

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

/// Seconds of each subject's steps, one for each round. In a round they run one after another, so that noise of the machine is
/// common to all.
using times = std::vector<std::vector<double>>;

times measure(std::vector<std::unique_ptr<subject>> const& all, double computing, int rounds) {
  times seconds(all.size());
  for (int k = 0; k < rounds; ++k)
    for (std::size_t i = 0; i < all.size(); ++i) seconds[i].push_back(all[i]->time(computing));
  return seconds;
}

/// What a step costs without computing.
struct cost {
  std::uint64_t bytes = 0;
  std::vector<double> exchange, kernels;  ///< of each round
};

/// The times of one ratio c.
struct replay {
  double ratio, computing;
  times in_turn, at_once;
};

void print_tables(settings const& s, int workers, std::vector<std::string> const& names,
                  std::vector<cost> const& costs, std::vector<replay> const& replays) {
  std::printf("%d workers, %llu values in %llu layers\n\n%-10s %14s %10s %6s %8s\n", workers,
              static_cast<unsigned long long>(s.values), static_cast<unsigned long long>(s.layers),
              "precision", "bytes a step", "exchange", "r", "kernels");
  double const baseline = median(costs[0].exchange);
  for (std::size_t i = 0; i < names.size(); ++i) {
    double const exchange = median(costs[i].exchange);
    std::printf("%-10s %14llu %8.3f s %6.2f %7.0f%%\n", names[i].c_str(),
                static_cast<unsigned long long>(costs[i].bytes), exchange, baseline / exchange,
                100 * median(costs[i].kernels) / exchange);
  }
  for (replay const& r : replays) {
    std::printf("\nc = %g, computing %.3f s\n%-10s %10s %9s %9s %10s %9s\n", r.ratio, r.computing,
                "precision", "in turn", "speed-up", "(formula)", "at once", "speed-up");
    for (std::size_t i = 0; i < names.size(); ++i) {
      double const turn = median(r.in_turn[i]), once = median(r.at_once[i]);
      std::printf("%-10s %8.3f s %9.2f %9.2f %8.3f s %9.2f\n", names[i].c_str(), turn,
                  median(r.in_turn[0]) / turn,
                  (1 + r.ratio) / (1 + r.ratio * median(costs[i].exchange) / baseline), once,
                  median(r.at_once[0]) / once);
    }
  }
}

void print_list(char const* name, std::vector<double> const& numbers) {
  std::printf("\"%s\":[", name);
  for (std::size_t k = 0; k < numbers.size(); ++k) std::printf("%s%.4g", k == 0 ? "" : ",", numbers[k]);
  std::printf("]");
}

/// One line of JSON for each precision.
void print_lines(settings const& s, int workers, std::vector<std::string> const& names,
                 std::vector<cost> const& costs, std::vector<replay> const& replays) {
  char const* const rate = std::getenv("GLOBALQ_CLUSTER_RATE");
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::printf(
        "{\"what\":\"sharded steps\",\"method\":\"%s\",\"workers\":%d,\"network\":\"%s\",\"values\":%llu,"
        "\"layers\":%llu,\"bytes_a_step\":%llu,",
        names[i].c_str(), workers, rate == nullptr ? "shared memory" : rate,
        static_cast<unsigned long long>(s.values), static_cast<unsigned long long>(s.layers),
        static_cast<unsigned long long>(costs[i].bytes));
    print_list("exchange", costs[i].exchange);
    std::printf(",");
    print_list("kernels", costs[i].kernels);
    std::printf(",\"steps\":[");
    for (replay const& r : replays) {
      std::printf("%s{\"c\":%g,\"computing\":%.4g,", &r == replays.data() ? "" : ",", r.ratio, r.computing);
      print_list("in_turn", r.in_turn[i]);
      std::printf(",");
      print_list("at_once", r.at_once[i]);
      std::printf("}");
    }
    std::printf("]}\n");
  }
}

void run(settings const& s) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  std::vector<std::string> names{s.baseline};
  names.insert(names.end(), s.precisions.begin(), s.precisions.end());
  std::vector<std::unique_ptr<subject>> in_turn, at_once;
  for (std::string const& name : names) {
    lm::precision const p = timed_precision(name);
    in_turn.push_back(std::make_unique<subject>(workers, s, p, false));
    at_once.push_back(std::make_unique<subject>(workers, s, p, true));
  }
  for (auto* each : {&in_turn, &at_once}) measure(*each, 0, 1);
  std::vector<cost> costs(names.size());
  for (int k = 0; k < s.rounds; ++k)
    for (std::size_t i = 0; i < names.size(); ++i) {
      costs[i].exchange.push_back(in_turn[i]->time(0));
      costs[i].bytes = in_turn[i]->bytes();
      costs[i].kernels.push_back(in_turn[i]->kernels());
    }
  std::vector<replay> replays;
  for (double const c : s.ratios) {
    double const computing = median(costs[0].exchange) / c;
    replays.push_back(
        {c, computing, measure(in_turn, computing, s.rounds), measure(at_once, computing, s.rounds)});
  }
  if (workers.rank() == 0) (s.json ? print_lines : print_tables)(s, workers.size(), names, costs, replays);
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
  app.add_option(
      "--precision", s.precisions,
      "W and G with 2 to 8, 16 or 32 bits each; W32/8G32/4 sends one of 8 weights, of 4 gradients");
  app.add_option("--rounds", s.rounds, "measurements, of which the median is printed")
      ->check(CLI::Range(1, 1000));
  app.add_option("--steps", s.steps, "steps of a measurement")->check(CLI::Range(1, 1000));
  app.add_flag("--json", s.json, "prints every time, a line of JSON for each precision");
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
