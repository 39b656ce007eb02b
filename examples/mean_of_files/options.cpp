// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief mean_of_files: reads the command line.

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/named/text.hpp>
#include <globalq/random/stream.hpp>

#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <string_view>

namespace mean_of_files {
namespace {

namespace gq = globalq;

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t most_workers = 1024;  // threads

/// Thrown for `--operator help`.
struct call_for_operators {};

/// The options that define an operator, which a named one excludes.
constexpr char const* parts_of_operator[] = {"norm",     "bucket", "tail",   "levels",
                                             "rounding", "wire",   "rotate", "second"};

/// The options whose values need strict parsing; texts until then.
struct texts {
  std::string transport, dtype = "f32", execution = "serial", non_finite = "propagate";
  std::string named;
  std::string workers = "4", bucket = "0", rotate = "0", seed = "0", step = "0", repeat = "1",
              chunk_values = "0", deadline = "600";
};

template <class Value>
Value one_of(std::string_view option, std::string const& text, std::map<std::string, Value> const& names,
             std::string const& allowed) {
  auto const found = names.find(text);
  if (found == names.end()) gq::named::refuse(option, text, "is unknown", "give " + allowed);
  return found->second;
}

void add_options(CLI::App& app, settings& chosen, texts& text) {
  app.add_option("--input", chosen.input,
                 "files to read: little-endian float32, one a worker; %r is the rank")
      ->required();
  app.add_option("--output", chosen.output, "files to write, one a worker; %r is the rank")->required();
  app.add_option("--transport", text.transport,
                 "mpi|threads (default: mpi under an MPI launcher, else threads)");
  app.add_option("--workers", text.workers, "number of workers; an MPI launcher decides for itself")
      ->capture_default_str();
  app.add_option("--operator",
                 "a name or words, as in qsgd:4,bucket=512 or \"cgx:4 rotate=1024\"; help lists them")
      ->each([&text](std::string const& value) {
        if (value == "help") throw call_for_operators{};
        text.named = value;
      });
  app.add_option("--norm", chosen.words.norm,
                 "linf|l:Q,P|local:Q|power-of-two:linf|power-of-two:local:Q|shared-exponent|two-level|fixed:"
                 "SCALE[:ERROR[:TYPE]]; "
                 "Q within a worker, P over workers: 1, 2, .., inf")
      ->capture_default_str();
  app.add_option("--bucket", text.bucket, "values that share a norm; 0: the whole vector")
      ->capture_default_str();
  app.add_option("--tail", chosen.words.tail, "own|float32: a short last bucket's scale, or no quantization")
      ->capture_default_str();
  app.add_option("--levels", chosen.words.levels,
                 "none|bfloat16|float16|uniform:S|exponential:S[:BASE]|table:0,..,1|symmetric:L1,..,1|e2m1|"
                 "e2m3|e3m2|e4m3|e5m2 (default: "
                 "uniform, as many as fit)");
  app.add_option("--rounding", chosen.words.rounding,
                 "stochastic|correlated|nearest|random-shift|correlated-shift; these also with -unshifted")
      ->capture_default_str();
  app.add_option("--wire", chosen.words.wire, "int8|int16|int32|packed:B|elias|huffman|huffman:16|sparse")
      ->capture_default_str();
  app.add_option("--rotate", text.rotate, "values of the blocks that are rotated at random first; 0: none")
      ->capture_default_str();
  app.add_option(
      "--second", chosen.words.second,
      "a wire for the means that schedule sra sends in its second half (default: that of own values)");
  app.add_option("--reduce", chosen.words.reduce, "auto|sum|exponential|requantize")->capture_default_str();
  app.add_option("--schedule", chosen.schedule,
                 "ring|tree|sra (scatter_reduce_allgather)|allgather|native|hierarchical:NODE")
      ->capture_default_str();
  app.add_option("--dtype", text.dtype, "f32|f64|f16|bf16: the type given to the library")
      ->capture_default_str();
  app.add_flag("--in-place", chosen.in_place, "average in place instead of from one vector to another");
  app.add_option("--seed", text.seed, "with the step it selects the random bits")->capture_default_str();
  app.add_option("--step", text.step, "number of the first call")->capture_default_str();
  app.add_option("--repeat", text.repeat, "calls; the output is the average of their results")
      ->capture_default_str();
  app.add_option("--execution", text.execution, "serial|openmp; openmp has OMP_NUM_THREADS threads a worker")
      ->capture_default_str();
  app.add_option("--chunk-values", text.chunk_values, "values sent at a time; 0: chosen by the library")
      ->capture_default_str();
  app.add_option("--deadline", text.deadline, "seconds that a wait for other workers may take")
      ->capture_default_str();
  app.add_option("--non-finite", text.non_finite, "propagate|error: what NaN or infinity lead to")
      ->capture_default_str();
  app.add_flag("--json", chosen.json, "print the report as one JSON object");
}

/// Converts texts to numbers and validates them.
void read_texts(CLI::App const& app, settings& chosen, texts const& text) {
  for (CLI::Option const* option : app.get_options())
    if (option->count() != 0 && option->get_items_expected() != 0 && option->as<std::string>().empty())
      gq::named::refuse(option->get_lnames().front(), "", "is empty",
                        "give a value, or leave the option out");

  auto const number = [](char const* option, std::string const& value, std::uint64_t least,
                         std::uint64_t most) {
    return gq::named::whole_number(option, value, value, least, most);
  };
  chosen.transport = is_under_mpi_launcher() ? transport_kind::mpi : transport_kind::threads;
  if (!text.transport.empty())
    chosen.transport = one_of<transport_kind>(
        "transport", text.transport, {{"mpi", transport_kind::mpi}, {"threads", transport_kind::threads}},
        "mpi or threads");
  int const workers = static_cast<int>(number("workers", text.workers, 1, most_workers));
  if (app.count("--workers") != 0) chosen.workers = workers;
  if (app.count("--operator") != 0) {
    for (char const* option : parts_of_operator)
      if (app.count(std::string{"--"} + option) != 0)
        gq::named::refuse(option, app[std::string{"--"} + option]->as<std::string>(),
                          "is decided by operator " + text.named,
                          "leave it out, or leave out operator and choose all parts");
    gq::named::named_operator const named = gq::named::read_operator(text.named);
    if (named.words.feedback > 0)
      gq::named::refuse("operator", text.named,
                        "keeps residuals for later calls, and this program makes one call",
                        "leave feedback out");
    std::string const reduce = chosen.words.reduce;
    chosen.words = named.words;
    if (app.count("--reduce") != 0) chosen.words.reduce = reduce;
    chosen.clip = named.clip;
    chosen.learns = named.learns;
    if (app.count("--schedule") == 0) chosen.schedule = named.schedule;
  }
  if (app.count("--operator") == 0) {
    chosen.words.bucket = number("bucket", text.bucket, 0, gq::named::largest_bucket);
    chosen.words.rotate = number("rotate", text.rotate, 0, gq::named::largest_bucket);
  }
  chosen.dtype = one_of<gq::dtype>("dtype", text.dtype,
                                   {{"f32", gq::dtype::float32},
                                    {"f64", gq::dtype::float64},
                                    {"f16", gq::dtype::float16},
                                    {"bf16", gq::dtype::bfloat16}},
                                   "f32, f64, f16 or bf16");
  chosen.execution = one_of<execution_kind>(
      "execution", text.execution, {{"serial", execution_kind::serial}, {"openmp", execution_kind::openmp}},
      "serial or openmp");
  chosen.call.seed = number("seed", text.seed, 0, unlimited);
  chosen.step = number("step", text.step, 0, gq::random::max_step);
  chosen.repeat = number("repeat", text.repeat, 1, gq::random::max_step - chosen.step + 1);
  chosen.call.chunk_values = number("chunk-values", text.chunk_values, 0, unlimited);
  chosen.call.non_finite = one_of<gq::non_finite>(
      "non-finite", text.non_finite,
      {{"propagate", gq::non_finite::propagate}, {"error", gq::non_finite::error}}, "propagate or error");

  double const seconds = gq::named::real_number("deadline", text.deadline, text.deadline);
  if (!(seconds >= 1e-9))
    gq::named::refuse("deadline", text.deadline, "ends every wait at once",
                      "give a number of seconds above 0");
  constexpr double year = 365.0 * 24 * 3600;
  chosen.deadline = std::chrono::nanoseconds{static_cast<std::int64_t>(std::min(seconds, year) * 1e9)};

  std::string const& levels = chosen.words.levels;
  if (gq::named::are_floats(levels))  // also where a value is the default one
    for (char const* option : {"norm", "bucket", "tail", "wire", "rotate", "second", "rounding"})
      if (app.count(std::string{"--"} + option) != 0 &&
          (levels == "none" || option != std::string_view{"rounding"}))
        gq::named::refuse(option, app[std::string{"--"} + option]->as<std::string>(),
                          "has no meaning with levels " + levels + ", which sends floating-point numbers",
                          "leave it out, or choose other levels");
  if (chosen.output.find("%r") == std::string::npos)
    gq::named::refuse("output", chosen.output, "names one file for all workers",
                      "put %r where the rank of the worker goes, as in out.%r.f32");
#ifndef KOKKOS_ENABLE_OPENMP
  if (chosen.execution == execution_kind::openmp)
    gq::named::refuse("execution", text.execution, "is not in this build, whose Kokkos has no OpenMP space",
                      "use serial, or build Kokkos with OpenMP");
#endif
#ifndef GLOBALQ_HAS_MPI
  if (chosen.transport == transport_kind::mpi && !text.transport.empty())
    gq::named::refuse("transport", text.transport, "is not in this build",
                      "use threads, or install an MPI and configure again");
  chosen.transport = transport_kind::threads;
#endif
}

}  // namespace

bool is_under_mpi_launcher() {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MPI_LOCALNRANKS"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

command_line read_command_line(int argc, char** argv) {
  command_line line;
  texts text;
  CLI::App app{
      "Averages float32 files, one a worker, with any composition of globalq.\n"
      "Exit codes: 0 done, 2 refused, 3 failed while running (no file is written on 2 or 3).",
      "mean_of_files"};
  add_options(app, line.chosen, text);
  try {
    app.parse(argc, argv);
    read_texts(app, line.chosen, text);
  } catch (call_for_operators const&) {
    line.outcome = command_line::result::help;
    line.text = gq::named::operators_help() +
                "\nLevels that are learned (alq, amq): once, from the inputs of all workers, before the "
                "first mean.\n";
  } catch (CLI::CallForHelp const&) {
    line.outcome = command_line::result::help;
    line.text = app.help();
  } catch (std::exception const& problem) {  // of CLI11 or of globalq
    line.outcome = command_line::result::refused;
    line.text = problem.what();
  }
  return line;
}

void check_patterns(settings const& chosen, int workers) {
  if (workers > 1 && chosen.input.find("%r") == std::string::npos)
    gq::named::refuse("input", chosen.input, "names one file for " + std::to_string(workers) + " workers",
                      "put %r where the rank of the worker goes, as in in.%r.f32");
}

std::string path_of(std::string const& pattern, int rank) {
  std::string path = pattern;
  std::string const number = std::to_string(rank);
  for (std::size_t at = path.find("%r"); at != std::string::npos; at = path.find("%r", at + number.size()))
    path.replace(at, 2, number);
  return path;
}

}  // namespace mean_of_files
