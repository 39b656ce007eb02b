// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: trains models with every method, or measures the time of their steps or the errors of their means;
/// writes one line of JSON for each.

#include "replay.hpp"

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>
#include "../../examples/launched.hpp"

#ifdef GLOBALQ_EVIDENCE_TORCH
#include "../../examples/one_thread.hpp"
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>

namespace evidence {
namespace {

using json = nlohmann::ordered_json;

struct options {
  std::string model = "digits", transport = "auto", output;
  std::vector<std::string> methods;
  std::vector<std::uint64_t> seeds{1};
  replica_setting replica;
  error_setting errors;
  replay_setting replays;
  std::uint64_t rounds = 20, warm_up = 3, every = 5;
  int workers = 4;
  bool quick = false;
};

/// Writes lines of JSON to a file or to standard output.
class lines {
 public:
  explicit lines(std::string const& path) : path_(path) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    expect();
  }
  void write(json const& line) {
    if (path_.empty()) {
      std::printf("%s\n", line.dump().c_str());
      std::fflush(stdout);
    } else {
      file_ << line.dump() << std::endl;
      expect();
    }
  }

 private:
  void expect() const {
    if (!file_)
      throw gq::configuration_error("globalq: evidence: cannot write to " + path_ +
                                    "; name another --output");
  }
  std::string path_;
  std::ofstream file_;
};

/// nullptr: a model that trains.
model_kind const* drawn_of(options const& chosen) {
  auto const kinds = drawn_kinds();
  auto const found =
      std::find_if(kinds.begin(), kinds.end(), [&](model_kind const& k) { return k.name == chosen.model; });
  return found == kinds.end() ? nullptr : &*found;
}

model_kind const& kind_of(options const& chosen) {
  if (chosen.replica.values == 0) return find_model(chosen.model);
  model_kind const* const drawn = drawn_of(chosen);
  return drawn != nullptr ? *drawn : vector_kind();
}

json facts(workers const& all, options const& chosen, method const& how, char const* what) {
  char const* const rate = std::getenv("GLOBALQ_CLUSTER_RATE");
  return {{"what", what},
          {"model", kind_of(chosen).name},
          {"measure", kind_of(chosen).measure},
          {"method", how.text()},
          {"family", how.family()},
          {"source", how.source()},
          {"workers", all.size()},
          {"network", rate == nullptr ? "shared memory" : rate}};
}

/// A worker's part of all trainings. @returns whether all workers ended with the same parameters
bool train_all(workers& all, options const& chosen, std::vector<method> const& methods, lines* out) {
  bool good = true;
  model_kind const& what = find_model(chosen.model);
  for (std::uint64_t const seed : chosen.seeds)
    for (method const& how : methods) {
      if (!how.trains()) continue;
      replica_setting with = chosen.replica;
      with.seed = seed;
      if (with.steps == 0) with.steps = chosen.quick ? what.quick_steps : what.usual_steps;
      training const t = train(all, what, how, with, chosen.every);
      good = good && t.identical;
      if (out == nullptr) continue;
      json line = facts(all, chosen, how, "training");
      line["seed"] = seed;
      line["steps"] = with.steps;
      line["values"] = t.values;
      line["bytes_a_step"] = t.bytes_a_step;
      line["identical"] = t.identical;
      line["seconds"] = t.seconds;
      if (t.best != 0) line["best"] = t.best;
      line["curve"] = json::array();
      for (point const& p : t.curve) line["curve"].push_back({p.step, p.value});
      out->write(line);
      std::fprintf(stderr, "evidence: %s, %s, seed %llu: %s %.4f in %.1f s%s\n", chosen.model.c_str(),
                   how.text().c_str(), static_cast<unsigned long long>(seed),
                   std::string(what.measure).c_str(), t.curve.back().value, t.seconds,
                   t.identical ? "" : "; the workers' parameters DIFFER");
    }
  return good;
}

/// Four significant digits: more are noise, and fill the recorded lines.
std::vector<double> rounded(std::vector<double> numbers) {
  for (double& s : numbers) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", s);
    s = std::strtod(text, nullptr);
  }
  return numbers;
}

/// A worker's part of all measurements of time.
bool time_all(workers& all, options const& chosen, std::vector<method> const& methods, lines* out) {
  replica_setting with = chosen.replica;
  with.seed = chosen.seeds[0];
  auto const times = measure(all, kind_of(chosen), methods, with, chosen.rounds, chosen.warm_up);
  if (out == nullptr) return true;
  for (std::size_t k = 0; k < methods.size(); ++k) {
    timing const& t = times[k];
    json line = facts(all, chosen, methods[k], "timing");
    if (!t.refusal.empty()) {
      line["refusal"] = t.refusal;
    } else {
      line["values"] = t.values;
      line["bytes_a_step"] = t.bytes_a_step;
      line["step"] = rounded(t.step);
      line["exchange"] = rounded(t.exchange);
      line["compute"] = rounded(t.compute);
      line["method_compute"] = rounded(t.method);
    }
    out->write(line);
  }
  return true;
}

/// A worker's part of all measurements of errors.
bool compare_all(workers& all, options const& chosen, std::vector<method> const& methods, lines* out) {
  model_kind const& what = kind_of(chosen);
  replica_setting with = chosen.replica;
  with.seed = chosen.seeds[0];
  with.steps = what.usual_steps;
  auto const errors = compare(all, what, methods, with, chosen.errors);
  if (out == nullptr) return true;
  for (std::size_t k = 0; k < methods.size(); ++k) {
    error const& e = errors[k];
    json line{
        {"what", "error"}, {"model", what.name}, {"method", methods[k].text()}, {"workers", all.size()}};
    if (!e.refusal.empty()) {
      line["refusal"] = e.refusal;
    } else {
      auto const shown = rounded({e.of_mean, e.of_vectors, e.spread});
      line["values"] = e.values;
      line["bytes"] = e.bytes;
      line["rounds"] = e.rounds;
      line["error"] = shown[0];
      line["of_vectors"] = shown[1];
      line["spread"] = shown[2];
    }
    out->write(line);
  }
  return true;
}

/// A worker's part of all replays.
bool replay_all(workers& all, options const& chosen, std::vector<method> const& methods, lines* out) {
  replica_setting with = chosen.replica;
  with.seed = chosen.seeds[0];
  auto const times = replay(all, methods, with, chosen.replays, chosen.rounds, chosen.warm_up);
  double const processor = processor_seconds(all);
  if (out == nullptr) return true;
  for (std::size_t k = 0; k < methods.size(); ++k) {
    json line = facts(all, chosen, methods[k], "replay");
    line["processor"] = rounded({processor})[0];
    for (char const* const unused : {"model", "measure", "family", "source"}) line.erase(unused);
    timing const& t = times[k].alone;
    if (!t.refusal.empty()) {
      line["refusal"] = t.refusal;
      out->write(line);
      continue;
    }
    line["values"] = t.values;
    line["bytes_a_step"] = t.bytes_a_step;
    line["exchange"] = rounded(t.exchange);
    line["kernels"] = rounded(t.method);
    line["steps"] = json::array();
    for (replayed_steps const& s : times[k].steps) {
      json one{{"c", s.ratio}, {"computing", rounded({s.computing})[0]}, {"in_turn", rounded(s.in_turn)}};
      if (!s.at_once.empty()) one["at_once"] = rounded(s.at_once);
      line["steps"].push_back(one);
    }
    out->write(line);
  }
  return true;
}

void list() {
  for (model_kind const& m : models())
    std::printf("model %-10s %s%s\n", std::string(m.name).c_str(), std::string(m.title).c_str(),
                m.make == nullptr ? (" (not built: it needs " + std::string(m.needs) + ")").c_str()
                : !m.file.empty() ? (" (it needs " + std::string(m.file) + ")").c_str()
                                  : "");
  for (model_kind const& m : drawn_kinds())
    std::printf("vectors %-18s %s\n", std::string(m.name).c_str(), std::string(m.title).c_str());
  for (std::string const& name : usual_methods()) {
    method const m(name);
    std::printf("%-10s %-28s %s\n", std::string(m.family()).c_str(), name.c_str(),
                std::string(m.source()).c_str());
  }
}

using part = bool (*)(workers&, options const&, std::vector<method> const&, lines*);

template <class Endpoint>
bool work(Endpoint& here, options const& chosen, std::vector<method> const& methods, part todo) {
  workers all(here);
  std::optional<lines> out;
  if (all.rank() == 0) out.emplace(chosen.output);
  return todo(all, chosen, methods, out ? &*out : nullptr);
}

bool on_threads(options const& chosen, std::vector<method> const& methods, part todo) {
  bool good = false;
  gq::transport::threads cluster{chosen.workers};
  cluster.run([&](auto& here) {
    bool const mine = work(here, chosen, methods, todo);
    if (here.rank() == 0) good = mine;
  });
  return good;
}

#ifdef GLOBALQ_HAS_MPI
bool on_mpi(options const& chosen, std::vector<method> const& methods, part todo) {
  gq::transport::mpi here{MPI_COMM_WORLD};
  return work(here, chosen, methods, todo);
}
#endif

int run(int argc, char** argv) {
  constexpr int usage_error = 2, run_error = 3;
  options chosen;
  CLI::App app{
      "Trains models with every method of averaging gradients, times their steps, or measures the errors of "
      "their means. Writes lines of JSON."};
  app.require_subcommand(1);
  auto* const listing = app.add_subcommand("list", "lists models and methods");
  auto* const training = app.add_subcommand("train", "trains once for each method and seed");
  auto* const timing = app.add_subcommand("time", "times steps, all methods in turn");
  auto* const replays =
      app.add_subcommand("replay", "times steps of a vector, with computing replayed as a sleep");
  auto* const errors = app.add_subcommand("errors", "measures the squared errors of means");
  for (auto* const sub : {training, timing, replays, errors}) {
    sub->add_option("--model", chosen.model, "a model of list; for errors also the vectors of list")
        ->capture_default_str();
    sub->add_option("--exchange", chosen.methods,
                    "methods, such as qsgd:4, layers:cgx:4 or float32@native (default: those of list)");
    sub->add_flag("--quick", chosen.quick, "a few methods, and short trainings");
    sub->add_option("--transport", chosen.transport, "auto: MPI under an MPI launcher, else threads")
        ->check(CLI::IsMember({"auto", "mpi", "threads"}))
        ->capture_default_str();
    sub->add_option("--workers", chosen.workers, "number of workers for --transport threads")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    sub->add_option("--text", chosen.replica.text, "text files for the language model")->take_all();
    sub->add_option("--pictures", chosen.replica.pictures,
                    "clean pictures for glyphs, written by glyph_pictures.py");
    sub->add_flag("--small", chosen.replica.small, "tiny models, for tests");
    sub->add_option("--seed", chosen.seeds, "seeds of initial values, batches and rounding")
        ->capture_default_str();
    sub->add_option("--output", chosen.output, "file to append lines to (default: standard output)");
  }
  training->add_option("--steps", chosen.replica.steps, "steps of a training; 0: the default of the model")
      ->check(CLI::Range(0, 1000000));
  training->add_option("--every", chosen.every, "steps between evaluations")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  for (auto* const sub : {timing, replays}) {
    sub->add_option("--steps", chosen.rounds, "timed steps, or rounds of a replay")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    sub->add_option("--values", chosen.replica.values,
                    "the exchange of this many random values, such as 4Mi, instead of a model")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32));
    sub->add_option("--warm-up", chosen.warm_up, "steps before the timed ones")
        ->check(CLI::Range(0, 100000))
        ->capture_default_str();
  }
  replays
      ->add_option("--ratio", chosen.replays.ratios,
                   "communication of the first method / computing; several are measured one after the other")
      ->required()
      ->check(CLI::PositiveNumber);
  std::uint64_t drawn_values = 65536;
  errors->add_option("--values", drawn_values, "length of drawn vectors")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->capture_default_str();
  errors
      ->add_option("--from", chosen.errors.from,
                   "steps of training with exact means before the first measured one")
      ->capture_default_str();
  errors->add_option("--spread", chosen.errors.spread, "relative standard error at which a measurement ends")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  errors->add_option("--least-rounds", chosen.errors.least_rounds, "measured steps of each method, at least")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  errors->add_option("--most-rounds", chosen.errors.most_rounds, "measured steps of each method, at most")
      ->check(CLI::Range(2, 100000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& e) {
    return app.exit(e) == 0 ? EXIT_SUCCESS : usage_error;
  }
  if (listing->parsed()) {
    list();
    return EXIT_SUCCESS;
  }
  chosen.errors.draw = drawn_of(chosen) != nullptr;
  if (errors->parsed() && chosen.errors.draw) chosen.replica.values = drawn_values;
  if (replays->parsed() && chosen.replica.values == 0) chosen.replica.values = 4U << 20;
  if (chosen.methods.empty()) chosen.methods = chosen.quick ? quick_methods() : usual_methods();

  std::vector<method> methods;
  try {
    static_cast<void>(kind_of(chosen));
    for (std::string const& name : chosen.methods) methods.emplace_back(name);
  } catch (gq::configuration_error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return usage_error;
  }
  bool const uses_mpi =
      chosen.transport == "mpi" || (chosen.transport == "auto" && examples::launched_rank());
  part const todo = training->parsed()  ? train_all
                    : timing->parsed()  ? time_all
                    : replays->parsed() ? replay_all
                                        : compare_all;
  try {
    // One thread a worker, because workers share the cores of this machine.
    Kokkos::ScopeGuard const kokkos{
        Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
#ifdef GLOBALQ_EVIDENCE_TORCH
    examples::use_one_thread();
#endif
#ifdef GLOBALQ_HAS_MPI
    if (uses_mpi) {
      int level = 0;  // overlapped means send on a thread of their own
      MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
      bool good = false;
      try {
        good = on_mpi(chosen, methods, todo);
      } catch (std::exception const& e) {
        std::fprintf(stderr, "%s\n", e.what());
        std::fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, run_error);  // other workers may be waiting for this one
      }
      MPI_Finalize();
      return good ? EXIT_SUCCESS : EXIT_FAILURE;
    }
#else
    if (uses_mpi) {
      std::fprintf(stderr, "evidence: built without MPI; use --transport threads\n");
      return usage_error;
    }
#endif
    return on_threads(chosen, methods, todo) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return run_error;
  }
}

}  // namespace
}  // namespace evidence

int main(int argc, char** argv) { return evidence::run(argc, argv); }
