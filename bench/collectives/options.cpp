// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief collectives: reads the command line.

#include "options.hpp"

#include "operators.hpp"

#include <globalq/random/stream.hpp>

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <map>

namespace globalq::bench {

bool is_under_mpi_launcher() {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MPI_LOCALNRANKS"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

int read_command_line(int argc, char** argv, bool speaks, settings& chosen) {
  std::vector<std::string> transports{"threads"};
#if defined(GLOBALQ_HAS_MPI)
  transports.emplace_back("mpi");
#if __has_include(<globalq/transport/shared_memory.hpp>)
  transports.emplace_back("shared_memory");
#endif
  chosen.transport = is_under_mpi_launcher() ? "mpi" : "threads";
#else
  chosen.transport = "threads";
#endif
  std::vector<std::string> names;
  for (auto const& each : operators()) names.push_back(each.name);
  std::map<std::string, double> const bits_a_second{
      {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12}};

  auto const with_unit = static_cast<CLI::AsNumberWithUnit::Options>(CLI::AsNumberWithUnit::CASE_INSENSITIVE |
                                                                     CLI::AsNumberWithUnit::UNIT_REQUIRED);

  CLI::App app{
      "Times the mean over workers, for several operators, against the MPI library's Allreduce of float32.\n"
      "Exit codes: 0 done, 1 a result was wrong, 2 refused, 3 failed while running.",
      "globalq_collectives"};
  app.add_option("--transport", chosen.transport, "mpi under an MPI launcher, else threads, unless told")
      ->check(CLI::IsMember(transports));
  auto* const workers =
      app.add_option("--workers", chosen.workers, "threads as workers; an MPI launcher decides for itself")
          ->check(CLI::Range(1, 256))
          ->capture_default_str();
  auto* const threads =
      app.add_option("--threads", chosen.threads, "threads of the kernels of each worker; not with threads")
          ->check(CLI::Range(1, 1024))
          ->capture_default_str();
  app.add_option("--sizes", chosen.sizes, "values of a vector (default: 4Ki,64Ki,1Mi,16Mi)")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 32));
  app.add_option("--operators", chosen.operators, "which, as named in the table (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--repeat", chosen.repeat, "calls that are counted, of each operator and size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--budget", chosen.budget,
                 "seconds after which a size is left early, when three calls of each were counted")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--chunk-values", chosen.chunk_values, "values sent at a time; 0: as the library chooses")
      ->capture_default_str();
  app.add_option("--rate", chosen.rate, "of a worker's link, such as 1gbit, to compare with")
      ->envname("GLOBALQ_CLUSTER_RATE")
      ->transform(CLI::AsNumberWithUnit(bits_a_second, with_unit));
  app.add_option("--markdown", chosen.markdown, "write the tables to a file as well");
  app.add_option("--json", chosen.json, "write all numbers to a file");
  try {
    app.parse(argc, argv);
    if (chosen.transport == "threads" && threads->count() != 0)
      throw CLI::ValidationError("--threads", "a worker of the transport threads is one thread");
    if (chosen.transport != "threads" && workers->count() != 0)
      throw CLI::ValidationError("--workers", "the launcher decides how many there are, as in mpirun -n 4");
  } catch (CLI::ParseError const& problem) {
    if (speaks) app.exit(problem);
    return problem.get_exit_code() == 0 ? done : refused;
  }
  return -1;
}

}  // namespace globalq::bench
