// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a perceptron on digits with several workers, once for each operator, and compares costs and results.

#include "data.hpp"
#include "report.hpp"
#include "train.hpp"

#include <globalq/globalq.hpp>
#ifdef GLOBALQ_HAS_MPI
#include <mpi.h>
#include <globalq/transport/mpi.hpp>
#endif

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <globalq/named/level_learning.hpp>
#include "../launched.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace gq = globalq;

namespace {

struct options {
  digits::settings training;
  std::string transport = "auto";
  std::string data = GLOBALQ_DIGITS_CSV;
  std::string output = GLOBALQ_DIGITS_OUTPUT;
  std::string progress = "auto";
  std::vector<std::string> operators;  // named ones, instead of the list below
  int workers = 4;                     // of the threads transport
  int hidden = 960;                    // values of each hidden layer
  double accuracy_gap = 1.0;           // points that an 8-bit operator may be below float32
  std::string dump;                    // folder for gradients; empty: none
  std::vector<std::uint64_t> dump_steps{1, 10, 50, 100, 149};
};

/// The names of an operator and its schedule in the table.
struct label {
  char const* name;
  char const* schedule;
  bool is_eight_bits;
};

// [operators]
/// Calls visit(label, operator, schedule) for each compared operator; float32 comes first.
void for_each_operator(auto&& visit) {
  using namespace gq;
  rounding::stochastic const rounding;

  visit(label{"float32", "ring", false}, uncompressed{}, schedule::ring{});
  visit(label{"Global-Q uniform, 8 bits", "ring", true},
        quantizer{norm::linf{}, levels::uniform<>{}, rounding, wire::int8{}}, schedule::ring{});
  visit(label{"Global-Q exponential, 8 bits", "ring", true},
        quantizer{norm::linf{}, levels::exponential<>{}, rounding, wire::int8{}}, schedule::ring{});
  visit(label{"Global-Q exponential, 4 bits", "ring", false},
        quantizer{norm::linf{}, levels::exponential<>{}, rounding, wire::packed<4>{}}, schedule::ring{});
  visit(label{"uniform, 4 bits, buckets of 128", "scatter-reduce-allgather", false},
        quantizer{norm::linf{.bucket = 128}, levels::uniform<>{}, rounding, wire::packed<4>{}},
        schedule::scatter_reduce_allgather{});
  visit(label{"QSGD, 4 bits, buckets of 512", "allgather", false},
        quantizer{norm::local<2>{.bucket = 512}, levels::uniform<>{}, rounding, wire::packed<4>{}},
        schedule::allgather{});
  visit(label{"ternary, buckets of 512", "allgather", false},
        quantizer{norm::linf{.bucket = 512}, levels::uniform<1>{}, rounding, wire::packed<2>{}},
        schedule::allgather{});
}
// [operators]

/// The same for the operators of the command line, or for those above if there are none, with the steps around the
/// operator: clipping and centering.
void for_each_chosen(std::vector<std::string> const& names, auto&& visit) {
  if (names.empty())
    return for_each_operator([&](auto const&... parts) { visit(parts..., gq::named::named_operator{}); });
  visit(label{"float32", "ring", false}, gq::uncompressed{}, gq::schedule::ring{},
        gq::named::named_operator{});
  for (std::string const& name : names) {
    auto const chosen = gq::named::read_operator(name);
    visit(label{name.c_str(), chosen.schedule.c_str(), false}, gq::named::operator_of(chosen),
          gq::schedule::any{chosen.schedule}, chosen);
  }
}

/// Writes a worker's gradient of a step, before the mean, as raw float32; input of bench/levels.
void dump_gradient(std::string const& folder, std::span<float const> gradient, std::uint64_t step, int rank) {
  std::filesystem::create_directories(folder);
  std::string const path = (std::filesystem::path{folder} /
                            ("step" + std::to_string(step) + "-worker" + std::to_string(rank) + ".f32"))
                               .string();
  std::ofstream file{path, std::ios::binary};
  auto const bytes = std::as_bytes(gradient);
  file.write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file)
    throw std::runtime_error{"digits: cannot write " + path +
                             "; choose another folder with --dump-gradients"};
}

/// One line that is rewritten during a run (on a terminal), or one line per finished run (elsewhere).
class progress_line {
 public:
  progress_line(std::string const& mode, int num_operators)
      : num_operators_{num_operators},
        rewrites_{mode == "always" || (mode == "auto" && isatty(STDERR_FILENO) == 1)},
        is_silent_{mode == "never"} {}

  void begin(char const* name) {
    ++run_;
    name_ = name;
    began_ = clock::now();
    shown_ = {};
  }

  void step(std::uint64_t done, std::uint64_t all, double loss) {
    auto const now = clock::now();
    if (!rewrites_ || now - shown_ < std::chrono::milliseconds{100}) return;
    shown_ = now;
    std::fprintf(stderr, "\r\033[K[%d/%d] %s: step %llu of %llu, loss %.4f", run_, num_operators_, name_,
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(all), loss);
    std::fflush(stderr);
  }

  void end(digits::result const& run) {
    if (rewrites_) {
      std::fprintf(stderr, run_ == num_operators_ ? "\r\033[K" : "");
    } else if (!is_silent_) {
      std::fprintf(stderr, "[%d/%d] %s: %.1f s, accuracy %.1f %%\n", run_, num_operators_, name_,
                   std::chrono::duration<double>(clock::now() - began_).count(), 100.0 * run.accuracy);
    }
    std::fflush(stderr);
  }

 private:
  using clock = std::chrono::steady_clock;
  int num_operators_;
  bool rewrites_, is_silent_;
  int run_ = 0;
  char const* name_ = "";
  clock::time_point began_, shown_;
};

/// Trains once for each operator, as one of the workers.
template <class Transport>
std::vector<digits::result> train_all(Transport& workers, digits::dataset const& data,
                                      options const& chosen) {
  std::vector<digits::result> runs;
  digits::settings const& s = chosen.training;
  int num_operators = 0;
  for_each_chosen(chosen.operators, [&](auto const&...) { ++num_operators; });
  progress_line line{chosen.progress, num_operators};

  for_each_chosen(chosen.operators, [&](label const& named, auto const& op, auto const& schedule,
                                        gq::named::named_operator const& asked) {
    gq::allreduce_mean mean{workers, op, schedule, {.seed = s.seed}};
    gq::named::level_learning learning{asked.words, asked.learns, gq::learn::schedule_for(s.steps)};
    std::vector<std::uint64_t> learned_at;
    bool const dumps = !chosen.dump.empty() && runs.empty();  // of the first run: float32
    digits::endpoint const here{
        workers.rank(),
        workers.size(),
        [&](std::span<float> gradient, std::uint64_t step) {
          if (dumps &&
              std::find(chosen.dump_steps.begin(), chosen.dump_steps.end(), step) != chosen.dump_steps.end())
            dump_gradient(chosen.dump, gradient, step, workers.rank());
          if (asked.clip > 0) gq::clip_deviations(gradient, asked.clip, asked.words.bucket, Kokkos::Serial{});
          if (learning.update(workers, std::span<float const>{gradient}, step, mean))
            learned_at.push_back(step + 1);
          mean(gradient, step);
        },
        [&](std::span<std::byte const> mine, std::span<std::byte> all) {
          gq::transport::allgather(workers, mine, all);
        },
        [&] { return workers.bytes_sent(); },
    };
    if (here.rank == 0) line.begin(named.name);
    digits::result run = digits::train(
        here, data, s, [&](std::uint64_t done, double loss) { line.step(done, s.steps, loss); });
    run.name = named.name;
    run.schedule = named.schedule;
    run.is_eight_bits = named.is_eight_bits;
    run.learned_at = learned_at;
    run.levels = learning.levels();
    run.bits_per_value = mean.plan(digits::num_parameters(s.widths)).bits_per_value;
    if (here.rank == 0) line.end(run);
    runs.push_back(std::move(run));
  });
  return runs;
}

/// Writes the files and the table; returns the exit status, after reporting any error on stderr.
int report(std::vector<digits::result> const& runs, int num_workers, options const& chosen) {
  std::filesystem::path const folder{chosen.output};
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);  // if it failed, opening the first file there says so
  digits::write_csv((folder / "digits.csv").string(), runs);
  digits::write_chart((folder / "digits.gp").string(), (folder / "digits.png").string(), runs, num_workers);
  std::fputs((digits::table(runs) + digits::learned(runs)).c_str(), stdout);
  std::fflush(stdout);

  int status = EXIT_SUCCESS;
  for (digits::result const& run : runs) {
    if (!run.identical) {
      std::fprintf(
          stderr, "digits: %s: the workers ended with different parameters; they must be equal bit for bit\n",
          run.name.c_str());
      status = EXIT_FAILURE;
    }
    if (!std::isfinite(run.final_loss)) {
      std::fprintf(stderr, "digits: %s: the training ended with a loss that is not finite\n",
                   run.name.c_str());
      status = EXIT_FAILURE;
    }
    double const gap = 100.0 * (runs.front().accuracy - run.accuracy);
    if (run.is_eight_bits && !(gap <= chosen.accuracy_gap)) {
      std::fprintf(stderr,
                   "digits: %s: test accuracy is %.2f points below float32; at most %.2f are allowed\n",
                   run.name.c_str(), gap, chosen.accuracy_gap);
      status = EXIT_FAILURE;
    }
  }
  return status;
}

/// Runs one worker: trains, and at rank 0 reports. Returns the exit status, the same on every worker.
template <class Transport>
int work(Transport& workers, digits::dataset const& data, options const& chosen) {
  auto const runs = train_all(workers, data, chosen);
  int const mine = workers.rank() == 0 ? report(runs, workers.size(), chosen) : 0;
  std::vector<int> all(static_cast<std::size_t>(workers.size()));
  gq::transport::allgather(workers, std::as_bytes(std::span{&mine, 1}),
                           std::as_writable_bytes(std::span{all}));
  return all[0];
}

digits::dataset load(options const& chosen) {
  constexpr double test_share = 1.0 / 3.0;
  return digits::split_and_standardize(digits::read_pictures(chosen.data), test_share, chosen.training.seed);
}

int run_on_threads(digits::dataset const& data, options const& chosen) {
  int status = EXIT_FAILURE;
  gq::transport::threads cluster{chosen.workers};
  cluster.run([&](auto& workers) {
    int const mine = work(workers, data, chosen);
    if (workers.rank() == 0) status = mine;
  });
  return status;
}

#ifdef GLOBALQ_HAS_MPI
int run_on_mpi(digits::dataset const& data, options const& chosen) {
  gq::transport::mpi workers{MPI_COMM_WORLD};
  return work(workers, data, chosen);
}
#endif

int run(digits::dataset const& data, options const& chosen, bool uses_mpi) {
  // One thread a worker: workers on one machine share its cores.
  Kokkos::ScopeGuard const kokkos{
      Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
#ifdef GLOBALQ_HAS_MPI
  if (uses_mpi) return run_on_mpi(data, chosen);
#else
  static_cast<void>(uses_mpi);
#endif
  return run_on_threads(data, chosen);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int usage_error = 2, run_error = 3;
  options chosen;
  digits::settings& s = chosen.training;

  CLI::App app{"Trains a perceptron on handwritten digits, once for each way to compress gradients."};
  app.add_option("--transport", chosen.transport, "auto: MPI under an MPI launcher, else threads")
      ->check(CLI::IsMember({"auto", "mpi", "threads"}))
      ->capture_default_str();
  app.add_option("--workers", chosen.workers, "number of threads; an MPI launcher decides for itself")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--steps", s.steps, "training steps of each operator")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--batch", s.batch, "pictures a worker and step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--hidden", chosen.hidden, "values of each of the two hidden layers")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  app.add_option("--learning-rate", s.learning_rate, "highest learning rate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
      "--operator", chosen.operators,
      "an operator of the papers to compare with float32, as in qsgd:4,bucket=512; may be repeated; help "
      "lists them (default: a list of six)");
  app.add_option("--seed", s.seed, "of initial values, batches and rounding")->capture_default_str();
  app.add_option("--accuracy-gap", chosen.accuracy_gap,
                 "points that an 8-bit operator may lose against float32")
      ->capture_default_str();
  app.add_option("--data", chosen.data, "the pictures, as CSV")->capture_default_str();
  app.add_option("--output", chosen.output, "folder for digits.csv and digits.gp")->capture_default_str();
  app.add_option(
      "--dump-gradients", chosen.dump,
      "folder for the workers' gradients of the float32 run, raw float32, one file a step and worker");
  app.add_option("--dump-steps", chosen.dump_steps, "steps whose gradients are dumped, the first is 0")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--progress", chosen.progress, "a line on stderr that is rewritten; auto: on a terminal")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();

  // Errors that every process finds are reported once.
  auto const launched = examples::launched_rank();
  bool const speaks = launched.value_or("0") == "0";
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& e) {
    if (speaks) app.exit(e);
    return e.get_exit_code() == 0 ? EXIT_SUCCESS : usage_error;
  }
  if (std::find(chosen.operators.begin(), chosen.operators.end(), "help") != chosen.operators.end()) {
    if (speaks) std::fputs(gq::named::operators_help().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  try {
    for (std::string const& name : chosen.operators) static_cast<void>(gq::named::read_operator(name));
  } catch (gq::configuration_error const& e) {
    if (speaks) std::fprintf(stderr, "digits: %s\n", e.what());
    return usage_error;
  }
  s.widths = {digits::num_pixels, chosen.hidden, chosen.hidden, digits::num_classes};
  s.warm_up = std::min<std::uint64_t>(s.warm_up, s.steps / 2);
  bool const uses_mpi = chosen.transport == "mpi" || (chosen.transport == "auto" && launched);
#ifndef GLOBALQ_HAS_MPI
  if (uses_mpi) {
    if (speaks)
      std::fputs(
          "digits: built without MPI; use --transport threads, or install an MPI and configure again\n",
          stderr);
    return usage_error;
  }
#endif

  digits::dataset data;
  try {
    data = load(chosen);
  } catch (std::exception const& e) {
    if (speaks) std::fprintf(stderr, "%s\n", e.what());
    return run_error;
  }

#ifdef GLOBALQ_HAS_MPI
  if (uses_mpi) MPI_Init(&argc, &argv);
#endif
  int status = run_error;
  try {
    status = run(data, chosen, uses_mpi);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
#ifdef GLOBALQ_HAS_MPI
    if (uses_mpi) MPI_Abort(MPI_COMM_WORLD, run_error);  // the others may be waiting for this worker
#endif
    return run_error;
  }
#ifdef GLOBALQ_HAS_MPI
  if (uses_mpi) MPI_Finalize();
#endif
  return status;
}
