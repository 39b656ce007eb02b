// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief globalq_advise: measures this machine and network, and prints which operator, schedule and chunks to use.

#include "input.hpp"

#include <globalq/named/text.hpp>

#if defined(GLOBALQ_HAS_MPI)
#include <globalq/transport/mpi.hpp>

#include <mpi.h>
#endif

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>
#include <string>

namespace {

using namespace globalq_advisor;

constexpr char const* about =
    "Measures this machine and network, and prints which operator, schedule and chunks to use for a model.\n"
    "\n"
    "  mpirun -n 4 globalq_advise --layers 1000000,4096\n"
    "  globalq_advise --workers 4 --gradients step100.npy\n"
    "  globalq_advise --workers 16 --bandwidth 10e9/8 --latency 20e-6 --layers model.txt\n"
    "\n"
    "Exit codes: 0 done, 2 refused, 3 failed while running.";

struct settings {
  std::string layers, gradients, operators, bandwidth, latency = "20e-6";
  int workers = 0;
  double max_error = request{}.max_error, max_bound = std::numeric_limits<double>::infinity();
  bool json = false;
};

/// Adds options; what they mean is read by read().
void add_options(CLI::App& app, settings& s) {
  app.add_option("--layers", s.layers,
                 "lengths of the layers, \"1000000,4096\", or a file of lines \"name length\"");
  app.add_option("--gradients", s.gradients,
                 "the gradient of one worker, all layers in their order: .npy or raw, float32; errors are "
                 "measured on it");
  app.add_option(
         "--workers", s.workers,
         "number of workers; threads of this process unless a bandwidth is given; default: 4 threads, or "
         "the processes of mpirun")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()));
  app.add_option("--bandwidth", s.bandwidth,
                 "of the network to predict for: bytes per second and worker, as 10e9/8");
  app.add_option("--latency", s.latency, "with a bandwidth: seconds until a short message arrives")
      ->capture_default_str();
  app.add_option("--max-error", s.max_error,
                 "largest squared error of the mean, relative to the mean squared norm of the gradients")
      ->capture_default_str();
  app.add_option("--max-bound", s.max_bound, "largest bound on that error (theta of the plan); default: any");
  app.add_option("--operators", s.operators, "names to compare, separated by spaces, as \"cgx:4 qsgd:8\"");
  app.add_flag("--json", s.json, "print the report as one JSON object");
}

/// @param processes  that a launcher started; 0: none did
request read(settings const& s, int processes) {
  using globalq::configuration_error;
  request asked;
  asked.max_error = s.max_error;
  asked.max_bound = s.max_bound;
  if (!s.gradients.empty()) asked.gradient = read_gradient(s.gradients);
  if (!s.layers.empty())
    asked.layers = read_layers(s.layers);
  else if (!asked.gradient.empty())
    asked.layers = {{"gradient", asked.gradient.size()}};
  else
    throw configuration_error(
        "globalq: advise: there are no layers; give --layers 1000000,4096 or --gradients FILE");
  for (std::string_view const name : globalq::named::split(s.operators, ' '))
    if (!name.empty()) asked.operators.emplace_back(name);
  if (!s.bandwidth.empty()) {
    if (s.workers == 0 && processes == 0)
      throw configuration_error("globalq: advise: a bandwidth without a number of workers; give --workers");
    asked.network = network_of(s.workers != 0 ? s.workers : processes, read_number("latency", s.latency),
                               read_number("bandwidth", s.bandwidth));
  } else if (processes != 0 && s.workers != 0 && s.workers != processes) {
    throw configuration_error("globalq: advise: " + std::to_string(s.workers) +
                              " workers, and the launcher started " + std::to_string(processes) +
                              "; leave out --workers");
  }
  return asked;
}

void print(settings const& s, answer const& a) { std::fputs((s.json ? a.json : a.text).c_str(), stdout); }

#if defined(GLOBALQ_HAS_MPI)
bool is_under_mpi_launcher() {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MPI_LOCALNRANKS"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

/// All processes end with one exit code. Only process 0 reads files and prints.
int run_on_mpi(settings const& s) {
  globalq::transport::mpi workers{MPI_COMM_WORLD};
  try {
    auto const endpoint = globalq::transport::make_endpoint(workers);
    answer const a = advise(*endpoint, [&](int processes) { return read(s, processes); });
    if (workers.rank() == 0) print(s, a);
    return 0;
  } catch (globalq::configuration_error const& e) {  // of all processes
    if (workers.rank() == 0) std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 3);
    return 3;
  }
}
#endif

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{about, "globalq_advise"};
  add_options(app, s);
#if defined(GLOBALQ_HAS_MPI)
  if (is_under_mpi_launcher()) {
    int provided = 0, rank = 0, size = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::optional<CLI::ParseError> refused;  // also for --help
    try {
      app.parse(argc, argv);
    } catch (CLI::ParseError const& e) {
      refused = e;
    }
    // Arguments may differ: all processes end with the first that refuses, instead of waiting for it.
    int first = refused ? rank : size;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    int code = 0;
    if (first == size) {
      Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
      code = run_on_mpi(s);
    } else {
      if (rank == first) {
        if (rank != 0 && refused->get_exit_code() != 0)
          std::fprintf(stderr, "globalq_advise: rank %d of %d: ", rank, size);
        code = app.exit(*refused) == 0 ? 0 : 2;
      }
      MPI_Bcast(&code, 1, MPI_INT, first, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return code;
  }
#endif
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  Kokkos::ScopeGuard const kokkos{Kokkos::InitializationSettings{}.set_disable_warnings(true)};
  try {
    print(s, advise_here(s.workers == 0 ? 4 : s.workers, read(s, 0)));
    return 0;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return dynamic_cast<globalq::configuration_error const*>(&e) != nullptr ? 2 : 3;
  }
}
