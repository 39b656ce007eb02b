// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a residual network on digits with LibTorch and several workers, once for each operator of a list. Operators
/// are chosen layer by layer; with --overlap, gradients are averaged during the backward pass.

#include "module_gradients.hpp"
#include "pictures.hpp"
#include "residual_net.hpp"

#include <globalq/schedule/any.hpp>
#include <globalq/train/adapt/filter.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/adapt/overlapped_mean.hpp>
#include <globalq/transport/threads.hpp>
#ifdef GLOBALQ_HAS_MPI
#include <mpi.h>
#include <globalq/transport/mpi.hpp>
#endif

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <globalq/named/operators.hpp>
#include "../launched.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gq = globalq;
namespace tt = torch_trainer;

namespace {

struct settings {
  tt::residual_shape model;
  std::vector<std::string> operators{"float32", "global-uniform", "cgx:4", "qsgd:4", "qsgd:4,code=huffman"};
  std::vector<std::string> layers;  // PATTERN=OPERATOR
  std::string transport = "auto";
  std::string data = GLOBALQ_DIGITS_CSV;
  int workers = 4;
  std::uint64_t steps = 100;
  std::size_t batch = 16;  // pictures a worker
  std::uint64_t seed = 42;
  double rate = 0.1;
  double momentum = 0.9;
  std::uint64_t warm_up = 0;  // steps in float32
  bool overlap = false;
  std::uint64_t group_kib = 64;
  double least_accuracy = 0;  // percent, of every operator
};

/// An operator that a layer may have, and its default schedule.
struct choice {
  gq::any_quantizer op = gq::uncompressed{};
  std::string schedule = "ring";
};

/// @throws gq::configuration_error if it is not an operator, or one that needs more than a call for its layers
choice choice_of(std::string const& name) {
  if (name == "float32") return {};
  gq::named::named_operator const found = gq::named::read_operator(name);
  if (!found.only_quantizes())
    throw gq::configuration_error(
        "torch_trainer: operator \"" + name +
        "\" clips or learns levels, which examples/digits shows; give it without that (or with levels of its "
        "own)");
  return {gq::named::operator_of(found), found.schedule};
}

/// Layers with an operator of their own.
struct exception {
  std::string pattern;
  gq::any_quantizer op;
};

std::vector<exception> exceptions_of(std::vector<std::string> const& texts) {
  std::vector<exception> all;
  for (std::string const& text : texts) {
    auto const at = text.find('=');
    if (at == text.npos)
      throw gq::configuration_error("torch_trainer: --layer \"" + text +
                                    "\" is not PATTERN=OPERATOR, as in head.*=qsgd:8");
    all.push_back({text.substr(0, at), choice_of(text.substr(at + 1)).op});
  }
  return all;
}

// [operators]
/// CGX's rule: biases and normalizations are sent as float32. All other layers have an operator, most of them the same.
/// @throws gq::configuration_error for an exception that matches no layer
std::vector<gq::any_quantizer> operators_for(gq::adapt::model_layout const& layers,
                                             gq::any_quantizer const& op,
                                             std::vector<exception> const& exceptions) {
  for (exception const& other : exceptions)
    if (std::none_of(layers.begin(), layers.end(), [&](gq::adapt::layer const& layer) {
          return fnmatch(other.pattern.c_str(), layer.name.c_str(), 0) == 0;
        }))
      throw gq::configuration_error("torch_trainer: --layer: no layer is called \"" + other.pattern +
                                    "\"; the last one is \"" + layers[layers.size() - 1].name + "\"");
  return gq::adapt::operators_of(layers, gq::adapt::filter::cgx(), [&](gq::adapt::layer const& layer) {
    for (exception const& other : exceptions)
      if (fnmatch(other.pattern.c_str(), layer.name.c_str(), 0) == 0) return other.op;
    return op;
  });
}
// [operators]

struct result {
  std::uint64_t bytes_a_step = 0;
  double milliseconds = 0;
  tt::judgment end;
  bool replicas_agree = true;
};

/// LibTorch draws the initial values of all threads from one generator.
std::mutex making;

template <class Workers>
result train(Workers& workers, digits::dataset const& data, choice const& chosen, settings const& s) {
  std::unique_lock lock(making);
  torch::manual_seed(s.seed);
  tt::residual_net model(s.model);
  lock.unlock();
  tt::copy_from_first(workers, *model);

  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(s.rate).momentum(s.momentum));
  digits::batch_dealer dealer(data.train, s.batch, workers.rank(), workers.size(), s.seed);

  tt::module_gradients gradients(*model);
  auto const operators = operators_for(gradients.layers(), chosen.op, exceptions_of(s.layers));
  gq::schedule::any const schedule{chosen.schedule};
  gq::adapt::layered_options const options{.call = {.seed = s.seed}, .warm_up = s.warm_up};
  gq::adapt::layered_mean mean(workers, gradients.layers(), operators, schedule, options);
  std::optional<gq::adapt::overlapped_mean<Workers, gq::schedule::any>> overlapped;
  if (s.overlap)
    overlapped.emplace(workers, gradients.layers(), operators, schedule,
                       gq::adapt::overlap_options{.layers = options, .group_bytes = s.group_kib << 10});

  using clock = std::chrono::steady_clock;
  std::vector<double> milliseconds;
  std::uint64_t const before = workers.bytes_sent();
  for (std::uint64_t step = 0; step < s.steps; ++step) {
    tt::batch const b = tt::tensors_of(dealer.deal(step));
    auto const began = clock::now();
    optimizer.zero_grad();
    torch::Tensor const loss = torch::nn::functional::cross_entropy(model->forward(b.pictures), b.digits);
    if (overlapped) {
      overlapped->begin(step);
      gradients.backward(
          loss, [&](std::size_t layer, std::span<float> values) { overlapped->ready(layer, values); });
      overlapped->wait();
    } else {
      loss.backward();
      mean(gradients.group(), step);
    }
    double const left = 1 - static_cast<double>(step) / static_cast<double>(s.steps);
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(s.rate * left);
    optimizer.step();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(clock::now() - began).count());
  }

  result r;
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(workers.size()));
  gq::transport::allgather_value(workers, workers.bytes_sent() - before, std::span(sent));
  r.bytes_a_step = *std::max_element(sent.begin(), sent.end()) / s.steps;
  auto const middle = milliseconds.begin() + static_cast<std::ptrdiff_t>(milliseconds.size() / 2);
  std::nth_element(milliseconds.begin(), middle, milliseconds.end());
  r.milliseconds = *middle;
  r.replicas_agree = tt::replicas_agree(workers, *model);
  if (workers.rank() == 0) r.end = tt::judge(model, tt::tensors_of(data.test));
  return r;
}

/// Trains with all operators, one after the other. Returns the exit status, the same on every worker.
template <class Workers>
int work(Workers& workers, digits::dataset const& data, settings const& s) {
  bool const speaks = workers.rank() == 0;
  if (speaks) {
    tt::residual_net const model(s.model);
    std::size_t values = 0;
    for (auto const& p : model->parameters()) values += static_cast<std::size_t>(p.numel());
    std::printf("%d workers, %llu steps of %zu pictures each, %zu parameters, gradients averaged %s\n\n",
                workers.size(), static_cast<unsigned long long>(s.steps), s.batch, values,
                s.overlap ? "while the backward pass runs" : "after the backward pass");
    std::printf("%-28s %-10s %13s %10s %9s %9s  %s\n", "operator", "schedule", "bytes a step", "ms a step",
                "accuracy", "loss", "replicas");
  }
  bool good = true;  // at worker 0, which evaluates the model
  for (std::string const& name : s.operators) {
    choice const chosen = choice_of(name);
    result const r = train(workers, data, chosen, s);
    if (!speaks) continue;
    good = good && r.replicas_agree && 100 * r.end.accuracy >= s.least_accuracy && std::isfinite(r.end.loss);
    std::printf("%-28s %-10s %13llu %10.2f %7.1f %% %9.4f  %s\n", name.c_str(), chosen.schedule.c_str(),
                static_cast<unsigned long long>(r.bytes_a_step), r.milliseconds, 100 * r.end.accuracy,
                r.end.loss, r.replicas_agree ? "identical" : "DIFFER");
    std::fflush(stdout);
  }
  if (!good && speaks)
    std::fprintf(stderr,
                 "torch_trainer: the workers' models must be equal bit for bit, and at least %g %% accurate, "
                 "with a finite loss\n",
                 s.least_accuracy);
  return gq::transport::broadcast_value(workers, 0, good ? EXIT_SUCCESS : EXIT_FAILURE);
}

int run_on_threads(digits::dataset const& data, settings const& s) {
  int status = EXIT_FAILURE;
  gq::transport::threads cluster{s.workers};
  cluster.run([&](auto& workers) {
    int const mine = work(workers, data, s);
    if (workers.rank() == 0) status = mine;
  });
  return status;
}

int run(settings const& s, bool uses_mpi) {
  constexpr double test_share = 1.0 / 3.0;
  digits::dataset const data =
      digits::split_and_standardize(digits::read_pictures(s.data), test_share, s.seed);
  // One thread a worker: workers on one machine share its cores.
  Kokkos::ScopeGuard const kokkos{
      Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
  torch::set_num_threads(1);
#ifdef GLOBALQ_HAS_MPI
  if (uses_mpi) {
    gq::transport::mpi workers{MPI_COMM_WORLD};
    return work(workers, data, s);
  }
#else
  static_cast<void>(uses_mpi);
#endif
  return run_on_threads(data, s);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int usage_error = 2, run_error = 3;
  settings s;
  CLI::App app{"Trains a residual network on handwritten digits with LibTorch, once for each operator."};
  app.add_option("--operator", s.operators,
                 "float32, or an operator by name; may be repeated; help lists them")
      ->take_all()
      ->capture_default_str();
  app.add_option("--layer", s.layers,
                 "PATTERN=OPERATOR: another operator for layers whose name matches; may be repeated");
  app.add_option("--transport", s.transport, "auto: MPI under an MPI launcher, else threads")
      ->check(CLI::IsMember({"auto", "mpi", "threads"}))
      ->capture_default_str();
  app.add_option("--workers", s.workers, "number of threads; an MPI launcher decides for itself")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--steps", s.steps, "training steps of each operator")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--batch", s.batch, "pictures a worker and step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--width", s.model.width, "channels of the first stage, a multiple of 4")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--blocks", s.model.blocks, "residual blocks a stage")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--rate", s.rate, "learning rate of the first step; it falls to 0 in a line")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--warm-up", s.warm_up, "first steps, in float32")->capture_default_str();
  app.add_flag("--overlap", s.overlap, "average while the backward pass still runs");
  app.add_option("--group-kib", s.group_kib, "KiB of gradients that travel together, with --overlap")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--least-accuracy", s.least_accuracy, "fail when an operator ends below, in percent")
      ->capture_default_str();
  app.add_option("--seed", s.seed, "of initial values, batches and rounding")->capture_default_str();
  app.add_option("--data", s.data, "the pictures, as CSV")->capture_default_str();

  auto const launched = examples::launched_rank();
  bool const speaks = launched.value_or("0") == "0";  // errors that every process finds are reported once
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& e) {
    if (speaks) app.exit(e);
    return e.get_exit_code() == 0 ? EXIT_SUCCESS : usage_error;
  }
  if (std::find(s.operators.begin(), s.operators.end(), "help") != s.operators.end()) {
    if (speaks) std::fputs(gq::named::operators_help().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  bool const uses_mpi = s.transport == "mpi" || (s.transport == "auto" && launched);
  try {
    for (std::string const& name : s.operators) static_cast<void>(choice_of(name));
    static_cast<void>(exceptions_of(s.layers));
#ifndef GLOBALQ_HAS_MPI
    if (uses_mpi) throw gq::configuration_error("torch_trainer: built without MPI; use --transport threads");
#endif
  } catch (gq::configuration_error const& e) {
    if (speaks) std::fprintf(stderr, "%s\n", e.what());
    return usage_error;
  }

#ifdef GLOBALQ_HAS_MPI
  int level = 0;  // with --overlap, a separate thread averages
  if (uses_mpi) MPI_Init_thread(&argc, &argv, s.overlap ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &level);
#endif
  int status = run_error;
  try {
    status = run(s, uses_mpi);
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
