// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief globalq_model: accuracy of the performance model, the range where compression wins, and the time of planning.
///
///   globalq_model errors    calibrates, predicts and measures every operator on every schedule, in turn; prints the
///   errors
///   globalq_model omega     speed of adding codes on this machine, relative to float32; a row for each length
///   globalq_model region    rho, omega and the bandwidth below which compression wins, as columns for a chart
///   globalq_model groups    T(g), the time of a byte of each group during a backward pass, and choices by it
///   globalq_model barrier   a step whose next forward pass waits for all layers, or for each as it needs it
///   globalq_model scale     simulates thousands of workers over uneven links, and prints the time of the simulation

#include "barrier.hpp"
#include "groups.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/model/calibrate.hpp>
#include <globalq/model/formulas.hpp>
#include <globalq/transport/threads.hpp>

#if defined(GLOBALQ_HAS_MPI)
#include <globalq/transport/mpi.hpp>
#endif

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace gq = globalq;
namespace model = globalq::model;

namespace {

struct settings {
  std::string transport = "threads";
  int workers = 2;
  std::vector<std::uint64_t> sizes{64 << 10, 256 << 10, 1 << 20, 4 << 20};
  int repeat = 9;
  double budget = 30;
  // parameters of the chart, as `omega` measures them with 1 Mi values; gamma 0: measure them first
  double omega_sum = 0, omega_exponential = 0, gamma = 0, delta = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
using gq::bench::median;

std::vector<std::pair<std::string, gq::any_quantizer>> operators() {
  gq::rounding::stochastic const rounding;
  return {
      {"float32", gq::uncompressed{}},
      {"uniform/int8", gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{}, rounding, gq::wire::int8{}}},
      {"exponential/int8",
       gq::quantizer{gq::norm::linf{}, gq::levels::exponential<>{}, rounding, gq::wire::int8{}}},
      {"uniform/packed4/bucket128", gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform<>{},
                                                  rounding, gq::wire::packed<4>{}}},
      {"qsgd/packed2/bucket512", gq::quantizer{gq::norm::local<2>{.bucket = 512}, gq::levels::uniform<1>{},
                                               rounding, gq::wire::packed<2>{}}},
  };
}

/// One combination of operator and schedule.
struct row {
  std::string name, schedule;
  std::uint64_t values = 0;
  model::prediction predicted;
  std::vector<double> seconds;
  std::function<void(std::span<float const>, std::span<float>, std::uint64_t)> call;
  double measured() const { return median(seconds); }
  double error() const { return predicted.time.seconds / measured() - 1; }
};

template <gq::Transport T>
void errors(T& workers, settings const& chosen) {
  using mean = gq::allreduce_mean<>;
  bool const speaks = workers.rank() == 0;
  auto const start = std::chrono::steady_clock::now();
  model::calibration_settings how;
  auto const found = model::calibrate(workers, how);
  std::vector<model::operator_model> models;
  for (auto const& [name, op] : operators())
    models.push_back(model::calibrate_operator(workers, name, op, how, Kokkos::DefaultHostExecutionSpace()));
  if (speaks) {
    std::printf("%d workers over %s. Calibrated in %.2g s: ", workers.size(), chosen.transport.c_str(),
                seconds_since(start));
    std::printf(
        "alpha %.3g us (quartiles %.3g to %.3g), beta %.4g Gbit/s (%.4g to %.4g), overhead %.3g us a "
        "message, crowded %.2f (%.2f to %.2f), long messages %.3g us more.\n\n",
        1e6 * found.alpha.value, 1e6 * found.alpha.low, 1e6 * found.alpha.high, 8e-9 * found.beta.value,
        8e-9 * found.beta.low, 8e-9 * found.beta.high, 1e6 * found.overhead.value, found.crowded.value,
        found.crowded.low, found.crowded.high, 1e6 * found.long_latency.value);
    std::printf(
        "| operator | reduce | norm | encode | reduce | decode | ns a value |\n| --- | --- | --: | --: | --: "
        "| --: | --- |\n");
    for (auto const& m : models)
      for (std::size_t k = 0; k < m.costs.size(); ++k)
        if (m.costs[k])
          std::printf("| %s | %s | %.3f | %.3f | %.3f | %.3f | %.2f us a frame |\n", m.name.c_str(),
                      gq::name_of(static_cast<gq::method>(k)), 1e9 * m.costs[k]->norm,
                      1e9 * m.costs[k]->encode, 1e9 * m.costs[k]->reduce, 1e9 * m.costs[k]->decode,
                      1e6 * m.costs[k]->frame);
  }
  std::vector<double> of_long, of_short, regrets;
  for (std::uint64_t const n : chosen.sizes) {
    std::vector<float> x(n), y(n);
    std::uint32_t state = static_cast<std::uint32_t>(workers.rank()) + 1;
    for (float& v : x) {
      state = state * 1664525U + 1013904223U;
      v = static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) * 0x1p-23F;
    }
    std::vector<row> rows;
    auto const all = operators();
    for (std::size_t k = 0; k < all.size(); ++k)
      for (char const* name : {"ring", "tree", "sra", "allgather"}) {
        gq::schedule::any const schedule{std::string_view(name)};
        row r;
        r.predicted = model::predict(found.net, models[k], schedule, n, found.shape());
        if (!r.predicted.fits()) continue;
        r.name = all[k].first;
        r.schedule = name;
        r.values = n;
        auto const m = std::make_shared<mean>(workers, all[k].second, schedule, gq::options{.seed = 1});
        r.call = [m](auto in, auto out, std::uint64_t step) { (*m)(in, out, step); };
        rows.push_back(std::move(r));
      }
    auto const begun = std::chrono::steady_clock::now();
    for (int round = 0;; ++round) {  // in turn; the first round is a warm-up
      for (row& r : rows) {
        gq::transport::barrier(workers);
        auto const at = std::chrono::steady_clock::now();
        r.call(x, y, static_cast<std::uint64_t>(round));
        if (double const s = seconds_since(at); round != 0) r.seconds.push_back(s);
      }
      bool const more = round < chosen.repeat && (round < 3 || seconds_since(begun) < chosen.budget);
      if (!gq::transport::broadcast_value(workers, 0, more)) break;
    }
    for (row& r : rows) r.seconds = model::detail::slowest(workers, r.seconds);
    if (!speaks) continue;
    std::printf(
        "\n| %llu values | schedule | predicted | measured | error | of the prediction |\n| --- | --- | --: "
        "| --: | --: | --- |\n",
        static_cast<unsigned long long>(n));
    double best = std::numeric_limits<double>::infinity();
    for (row const& r : rows) {
      best = std::min(best, r.measured());
      (4 * n >= (1U << 20) ? of_long : of_short).push_back(std::abs(r.error()));
      std::printf("| %s | %s | %s | %s | %+.0f %% | %s |\n", r.name.c_str(), r.schedule.c_str(),
                  model::detail::time_text(r.predicted.time.seconds).c_str(),
                  model::detail::time_text(r.measured()).c_str(), 100 * r.error(),
                  model::detail::most_of(r.predicted.time).c_str());
    }
    auto const choice = model::choose(found.net, models, n, {}, {}, found.shape());
    for (row const& r : rows)
      if (r.name == choice.name && r.schedule == choice.best.schedule) {
        regrets.push_back(r.measured() / best);
        std::printf("\nChosen: %s. Measured: %.2f times the time of the best.\n", choice.reason.c_str(),
                    regrets.back());
      }
  }
  if (!speaks) return;
  auto const say = [](char const* what, std::vector<double> const& e) {
    if (e.empty()) return;
    std::vector<double> s = e;
    std::sort(s.begin(), s.end());
    std::printf("%s: median error %.1f %%, nine tenths within %.0f %%, %zu combinations.\n", what,
                100 * median(s), 100 * s[(s.size() * 9 - 1) / 10], s.size());
  };
  std::printf("\n");
  say("Vectors of 1 MiB and more", of_long);
  say("Shorter ones", of_short);
  std::printf("The choice took %.2f times the time of the best (median over lengths).\n", median(regrets));
  std::fflush(stdout);
}

/// Calls f(workers), over MPI or on threads.
template <class F>
void on_workers(settings const& chosen, F const& f) {
#if defined(GLOBALQ_HAS_MPI)
  if (chosen.transport == "mpi") {
    gq::transport::mpi workers{MPI_COMM_WORLD};
    return f(workers);
  }
#endif
  gq::transport::threads cluster{chosen.workers};
  cluster.run(f);
}

/// Speed of adding int8 codes relative to float32, for vectors of one length.
struct speeds {
  double gamma;  ///< speed of adding float32, bytes a second
  double omega_sum, omega_exponential;
  double delta;  ///< time to encode and decode uniform int8, s a byte of float32
};

/// Measures on one core, with the chunks of calls.
speeds measured_speeds(std::uint64_t values) {
  speeds found{};
  gq::transport::threads one{1};
  one.run([&](auto& worker) {
    model::calibration_settings how;
    how.values = values;
    how.repeats = values <= 1 << 20 ? 201 : 15;
    how.schedules = {"ring"};
    auto const costs = [&](std::size_t which) {
      auto const [name, op] = operators()[which];
      auto const m = model::calibrate_operator(worker, name, op, how, Kokkos::DefaultHostExecutionSpace());
      for (auto const& c : m.costs)
        if (c) return *c;
      throw gq::configuration_error("globalq_model: " + name + " could not be timed");
    };
    model::work const plain = costs(0), sum = costs(1), exponential = costs(2);
    found.gamma = sizeof(float) / plain.reduce;
    found.omega_sum = plain.reduce / (sizeof(float) * sum.reduce);
    found.omega_exponential = plain.reduce / (sizeof(float) * exponential.reduce);
    found.delta = (sum.encode + sum.decode) / sizeof(float);
  });
  return found;
}

void omega() {
  std::printf(
      "| values | float32, GB/s | omega of sums | omega of the exponential reduce | encoding and decoding, "
      "ns a "
      "value |\n| --: | --: | --: | --: | --: |\n");
  for (std::uint64_t const values :
       {std::uint64_t{4} << 10, std::uint64_t{64} << 10, std::uint64_t{1} << 20, std::uint64_t{32} << 20}) {
    speeds const s = measured_speeds(values);
    std::printf("| %llu | %.3g | %.2f | %.2f | %.2f |\n", static_cast<unsigned long long>(values),
                1e-9 * s.gamma, s.omega_sum, s.omega_exponential, 1e9 * sizeof(float) * s.delta);
  }
}

/// For gnuplot: a block of omega and beta/gamma for each ratio; then, with encoding, a block with a row for each number
/// of workers.
void region(settings chosen) {
  if (chosen.gamma <= 0) {
    speeds const s = measured_speeds(1 << 20);
    chosen.gamma = s.gamma;
    chosen.omega_sum = s.omega_sum;
    chosen.omega_exponential = s.omega_exponential;
    chosen.delta = s.delta;
  }
  std::printf("# measured: omega_sum omega_exponential gamma delta %.3g %.3g %.4g %.4g\n", chosen.omega_sum,
              chosen.omega_exponential, chosen.gamma, chosen.delta);
  std::printf("# without encoding: omega, then beta over gamma for rho 2, 4, 8, 16\n");
  for (double e = -3; e <= 0.3001; e += 0.004) {
    double const omega = std::pow(10.0, e);
    std::printf("%.6g", omega);
    for (double const rho : {2.0, 4.0, 8.0, 16.0})
      std::printf(" %.6g", model::winning_bandwidth(1, 1, {.rho = rho, .omega = omega}));
    std::printf("\n");
  }
  std::printf(
      "\n\n# with encoding, rho 4: workers, then GB/s for the paper's omega of sums and exponential reduce, "
      "and ours\n");
  for (int levels = 1; levels <= 12; ++levels) {
    std::printf("%d", 1 << levels);
    for (double const omega : {1.0, 1 / 79.0, chosen.omega_sum, chosen.omega_exponential})
      std::printf(" %.6g",
                  1e-9 * model::winning_bandwidth(levels, chosen.gamma,
                                                  {.rho = 4, .omega = omega, .delta = chosen.delta}));
    std::printf("\n");
  }
}

void scale() {
  // links of a home, a campus and a data center
  std::vector<model::link> const kinds{{.latency = 0.03, .up = 5e6, .down = 2e7},
                                       {.latency = 0.02, .up = 5e7, .down = 5e7},
                                       {.latency = 0.01, .up = 1e8, .down = 1e8}};
  std::uint64_t const values = 25'000'000;
  model::work const costs{.norm = 1e-10, .encode = 3e-10, .reduce = 1e-10, .decode = 1e-10};
  std::printf(
      "| workers | schedule | operator | predicted | messages | simulated in |\n| --: | --- | --- | --: | "
      "--: | --: |\n");
  for (int const n : {64, 512, 4096})
    for (char const* name : {"ring", "tree", "sra"})
      for (auto const& [which, op] : {operators()[0], operators()[2]}) {
        auto const m = model::operator_model::of(which, op, costs);
        if (!model::predict(model::network::uniform(n, 0, 1), m, gq::schedule::any(std::string_view(name)), 0)
                 .fits())
          continue;
        auto const start = std::chrono::steady_clock::now();
        auto net = model::network::drawn(n, kinds, 1);
        net.quick_exchange = true;
        auto const p = model::predict(net, m, gq::schedule::any(std::string_view(name)), values);
        std::printf("| %d | %s | %s | %s | %llu | %s |\n", n, name, which.c_str(),
                    model::detail::time_text(p.time.seconds).c_str(),
                    static_cast<unsigned long long>(p.time.messages),
                    model::detail::time_text(seconds_since(start)).c_str());
        std::fflush(stdout);
      }
}

}  // namespace

int main(int argc, char** argv) {
  settings chosen;
  std::vector<std::string> transports{"threads"};
#if defined(GLOBALQ_HAS_MPI)
  transports.emplace_back("mpi");
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr)
    chosen.transport = "mpi";
#endif
  CLI::App app{"Compares the performance model with measurements, and shows where compression wins.",
               "globalq_model"};
  app.require_subcommand(1);
  auto* const errors_of = app.add_subcommand("errors", "compares predictions with measurements");
  gq::bench::backward_pass pass;
  auto* const groups_of = app.add_subcommand("groups", "measures the time of a byte of each group of layers");
  auto* const barrier_of =
      app.add_subcommand("barrier", "measures steps with and without a barrier between them");
  for (auto* const of : {errors_of, groups_of, barrier_of}) {
    of->add_option("--transport", chosen.transport, "default: mpi under an MPI launcher, else threads")
        ->check(CLI::IsMember(transports));
    of->add_option("--workers", chosen.workers, "number of workers for --transport threads")
        ->check(CLI::Range(1, 64));
  }
  for (auto* const of : {groups_of, barrier_of}) {
    of->add_option("--layers", pass.layers, "layers of the model")->check(CLI::Range(1, 1000));
    of->add_option("--values", pass.values, "values of a layer")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 28));
    of->add_option("--milliseconds", pass.milliseconds, "time of a layer in the backward pass")
        ->check(CLI::NonNegativeNumber);
    of->add_option("--repeat", pass.repeat, "steps of each compared choice")->check(CLI::Range(1, 100000));
  }
  groups_of->add_option("--samples", pass.samples, "random choices, each the median of three steps")
      ->check(CLI::Range(6, 100000));
  errors_of->add_option("--sizes", chosen.sizes, "lengths of vectors")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30));
  errors_of->add_option("--repeat", chosen.repeat, "timed calls")->check(CLI::Range(1, 100000));
  errors_of
      ->add_option("--budget", chosen.budget,
                   "seconds after which a size ends early, after at least three timed calls")
      ->check(CLI::PositiveNumber);
  auto* const omega_of = app.add_subcommand("omega", "measures the speed of adding codes on one core");
  auto* const region_of = app.add_subcommand("region", "computes where compression wins, for a chart");
  region_of->add_option("--omega-sum", chosen.omega_sum,
                        "speed of adding int8 codes relative to float32, in bytes/s");
  region_of->add_option("--omega-exponential", chosen.omega_exponential,
                        "the same for the exponential reduce");
  region_of->add_option("--gamma", chosen.gamma, "speed of adding float32, bytes/s");
  region_of->add_option("--delta", chosen.delta, "time to encode and decode, s a byte of float32");
  auto* const scale_of = app.add_subcommand("scale", "simulates thousands of workers over uneven links");
#if defined(GLOBALQ_HAS_MPI)
  bool const launched = chosen.transport == "mpi";
  if (launched) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  }
#endif
  int status = 0;
  try {
    app.parse(argc, argv);
    Kokkos::ScopeGuard const kokkos{
        Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
    if (errors_of->parsed()) on_workers(chosen, [&](auto& workers) { errors(workers, chosen); });
    if (groups_of->parsed())
      on_workers(chosen, [&](auto& workers) { gq::bench::time_groups(workers, pass); });
    if (barrier_of->parsed())
      on_workers(chosen, [&](auto& workers) { gq::bench::time_barrier(workers, pass); });
    if (omega_of->parsed()) omega();
    if (region_of->parsed()) region(chosen);
    if (scale_of->parsed()) scale();
  } catch (CLI::ParseError const& problem) {
    status = app.exit(problem) == 0 ? 0 : 2;
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "globalq_model: %s\n", problem.what());
#if defined(GLOBALQ_HAS_MPI)
    if (launched) MPI_Abort(MPI_COMM_WORLD, 3);
#endif
    status = 3;
  }
#if defined(GLOBALQ_HAS_MPI)
  if (launched) MPI_Finalize();
#endif
  return status;
}
