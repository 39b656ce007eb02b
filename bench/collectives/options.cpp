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
      "Compares the time of the mean, for several operators, with the MPI library's Allreduce of float32.\n"
      "Exit codes: 0 success, 1 wrong result, 2 wrong command line, 3 failure while running.",
      "globalq_collectives"};
  app.add_option("--transport", chosen.transport, "default: mpi under an MPI launcher, else threads")
      ->check(CLI::IsMember(transports));
  auto* const workers =
      app.add_option("--workers", chosen.workers, "number of workers for --transport threads")
          ->check(CLI::Range(1, 256))
          ->capture_default_str();
  auto* const threads = app.add_option("--threads", chosen.threads,
                                       "threads of each worker's kernels; not for --transport threads")
                            ->check(CLI::Range(1, 1024))
                            ->capture_default_str();
  app.add_option("--sizes", chosen.sizes, "lengths of vectors (default: 4Ki,64Ki,1Mi,16Mi)")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 32));
  app.add_option("--operators", chosen.operators, "operators, as named in the table (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--repeat", chosen.repeat, "timed calls of each operator and size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--budget", chosen.budget,
                 "seconds after which a size ends early, if each operator has three timed calls")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--chunk-values", chosen.chunk_values, "values of a chunk; 0: the library chooses")
      ->capture_default_str();
  app.add_option("--rate", chosen.rate, "rate of a worker's link, such as 1gbit, for comparison")
      ->envname("GLOBALQ_CLUSTER_RATE")
      ->transform(CLI::AsNumberWithUnit(bits_a_second, with_unit));
  app.add_option("--markdown", chosen.markdown, "also write the tables to this file");
  app.add_option("--json", chosen.json, "write all numbers to this file");
  try {
    app.parse(argc, argv);
    if (chosen.transport == "threads" && threads->count() != 0)
      throw CLI::ValidationError("--threads",
                                 "a worker of the transport threads has one thread; leave it out");
    if (chosen.transport != "threads" && workers->count() != 0)
      throw CLI::ValidationError("--workers", "the launcher sets the number of workers, as in mpirun -n 4");
  } catch (CLI::ParseError const& problem) {
    if (speaks) app.exit(problem);
    return problem.get_exit_code() == 0 ? done : refused;
  }
  return -1;
}

}  // namespace globalq::bench
