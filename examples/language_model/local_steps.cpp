// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trains a small transformer by local steps (DiLoCo): each worker makes some steps of its own, then all average how far they
/// came, by an operator. Compares the loss on held-out text with float32, for the same seeds.

#include "training.hpp"

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/globalq.hpp>
#include <globalq/named/compressors.hpp>
#include <globalq/named/operators.hpp>

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lm = language_model;
namespace gq = globalq;

namespace {

struct settings {
  lm::shape model{.width = 32};
  std::vector<std::string> text{GLOBALQ_LANGUAGE_MODEL_TEXT};
  std::vector<std::string> operators{"float32",       "cgx:8", "cgx:4", "cgx:2", "cgx:2,rounding=nearest",
                                     "cgx:2,feedback"};
  std::string schedule;  // empty: the operator's default
  int workers = 4, local = 50, rounds = 60;
  std::vector<std::uint64_t> seeds{1, 2, 3};
  bool json = false;
  std::int64_t batch = 8;
  double rate = 1e-3, outer_rate = 0.7, momentum = 0.9;
};

/// All parameters as one vector.
std::vector<float> read(torch::nn::Module const& model) {
  std::vector<float> all;
  for (auto const& p : model.parameters())
    all.insert(all.end(), p.data_ptr<float>(), p.data_ptr<float>() + p.numel());
  return all;
}
void write(torch::nn::Module const& model, std::span<float const> from) {
  for (auto const& p : model.parameters()) {
    auto const count = static_cast<std::size_t>(p.numel());
    std::copy_n(from.begin(), count, p.data_ptr<float>());
    from = from.subspan(count);
  }
}

struct result {
  double loss = 0;
  std::uint64_t bytes_a_round = 0, values = 0;
  bool replicas_agree = true;
};

/// The schedule of an operator's means.
std::string schedule_of(settings const& s, std::string const& words) {
  if (words.find('+') != std::string::npos) return "sra";
  if (gq::named::read_compressor(words)) return "allgather";
  return s.schedule.empty() || words == "float32" ? gq::named::read_operator(words).schedule : s.schedule;
}

/// A mean: of an operator, or of two, "A+B": shards are averaged by A, and the means gathered by B; or of "top-k".
template <class Workers>
class averages {
 public:
  averages(Workers& workers, settings const& s, std::string const& words, std::uint64_t seed,
           std::size_t values)
      : workers_(workers) {
    if (auto const by = gq::named::read_compressor(words)) {
      if (by->how != gq::named::named_compressor::method::top_k)
        throw gq::configuration_error("local_steps: the operator is " + words +
                                      "; of compressors it has top-k");
      gq::adapt::model_layout all;
      all.add("all", {values});
      largest_.emplace(gq::baseline::top_k{all, {.density = by->density, .bits = by->bits}, {.seed = seed}});
      return;
    }
    std::size_t const plus = words.find('+');
    auto const op = gq::named::operator_of(gq::named::read_operator(words.substr(0, plus)));
    if (plus == std::string::npos) {
      whole_.emplace(workers, op, gq::schedule::any{schedule_of(s, words)}, gq::options{.seed = seed});
      return;
    }
    scatter_.emplace(workers, op, gq::options{.seed = seed});
    gather_.emplace(workers, gq::named::operator_of(gq::named::read_operator(words.substr(plus + 1))),
                    gq::options{.seed = seed + 1'000'000});
  }
  void operator()(std::vector<float>& x, std::uint64_t step) {
    if (largest_) return static_cast<void>(largest_->reduce(workers_, x, x, step));
    if (whole_) return (*whole_)(x, step);
    (*scatter_)(x, step);
    (*gather_)(x, step);
  }

 private:
  Workers& workers_;
  std::optional<gq::baseline::error_feedback<gq::baseline::top_k>> largest_;
  std::optional<gq::allreduce_mean<>> whole_;
  std::optional<gq::reduce_scatter_mean<>> scatter_;
  std::optional<gq::all_gather<>> gather_;
};

result train(settings const& s, lm::text const& text, std::string const& words, std::uint64_t seed) {
  result r;
  gq::transport::threads cluster{s.workers};
  cluster.run([&](auto& workers) {
    lm::transformer model = lm::model_of(s.model, seed);
    torch::optim::Adam inner(model->parameters(), torch::optim::AdamOptions(s.rate).betas({0.9, 0.99}));
    std::vector<float> weights = read(*model);
    averages mean(workers, s, words, seed, weights.size());
    std::vector<float> way(weights.size()), velocity(weights.size());
    auto const rank = static_cast<std::uint64_t>(workers.rank()), n = static_cast<std::uint64_t>(s.workers);
    std::uint64_t const before = workers.bytes_sent();
    for (int round = 0; round < s.rounds; ++round) {
      for (int step = 0; step < s.local; ++step) {
        auto const number = static_cast<std::uint64_t>(round * s.local + step);
        lm::batch const b = text.draw((seed << 32) + number * n + rank, s.batch, s.model.context);
        inner.zero_grad();
        model->loss(b.input, b.next).backward();
        inner.step();
      }
      std::vector<float> const now = read(*model);
      for (std::size_t i = 0; i < way.size(); ++i) way[i] = weights[i] - now[i];
      mean(way, static_cast<std::uint64_t>(round));
      auto const momentum = static_cast<float>(s.momentum), rate = static_cast<float>(s.outer_rate);
      for (std::size_t i = 0; i < way.size(); ++i) {  // Nesterov
        velocity[i] = momentum * velocity[i] + way[i];
        weights[i] -= rate * (way[i] + momentum * velocity[i]);
      }
      write(*model, weights);
    }
    std::uint64_t const sent = workers.bytes_sent() - before;
    bool const agree = lm::replicas_agree(workers, *model);
    if (rank != 0) return;
    r.replicas_agree = agree;
    r.bytes_a_round = sent / static_cast<std::uint64_t>(s.rounds);
    r.values = weights.size();
    r.loss = lm::held_out_loss(model, text, s.model.context, 32);
  });
  return r;
}

/// One line of JSON for each operator and seed.
int run_lines(settings const& s) {
  lm::text const text(s.text);
  bool good = true;
  for (std::uint64_t const seed : s.seeds)
    for (std::string const& words : s.operators) {
      result const r = train(s, text, words, seed);
      good = good && std::isfinite(r.loss) && r.replicas_agree;
      std::printf(
          "{\"what\":\"local steps\",\"method\":\"%s\",\"schedule\":\"%s\",\"workers\":%d,\"local\":%d,"
          "\"rounds\":%d,\"rate\":%g,\"seed\":%llu,\"values\":%llu,\"bytes_a_round\":%llu,\"loss\":%.6f,"
          "\"identical\":%s}\n",
          words.c_str(), schedule_of(s, words).c_str(), s.workers, s.local, s.rounds, s.rate,
          static_cast<unsigned long long>(seed), static_cast<unsigned long long>(r.values),
          static_cast<unsigned long long>(r.bytes_a_round), r.loss, r.replicas_agree ? "true" : "false");
      std::fflush(stdout);
    }
  return good ? 0 : 1;
}

int run_table(settings const& s) {
  lm::text const text(s.text);
  std::printf("%zu bytes of text; %d workers, %d rounds of %d steps of %lld x %lld bytes each, %zu seeds\n\n",
              text.size(), s.workers, s.rounds, s.local, static_cast<long long>(s.batch),
              static_cast<long long>(s.model.context), s.seeds.size());
  std::printf("%-28s %13s %10s %10s  %s\n", "operator", "bytes a round", "held out", "to float32",
              "each seed");
  std::vector<double> base;
  bool good = true;
  for (std::string const& words : s.operators) {
    std::vector<double> losses;
    double sum = 0;
    auto const count = static_cast<double>(s.seeds.size());
    result last;
    for (std::uint64_t const seed : s.seeds) {
      last = train(s, text, words, seed);
      losses.push_back(last.loss);
      sum += last.loss / count;
      good = good && std::isfinite(last.loss) && last.replicas_agree;
      if (!last.replicas_agree) std::printf("%s: replicas DIFFER\n", words.c_str());
    }
    if (words == "float32") base = losses;
    std::printf("%-28s %13llu %10.4f", words.c_str(), static_cast<unsigned long long>(last.bytes_a_round),
                sum);
    double difference = 0;
    for (std::size_t k = 0; k < base.size(); ++k) difference += (losses[k] - base[k]) / count;
    std::printf(" %+10.4f ", difference);
    for (std::size_t k = 0; k < base.size(); ++k) std::printf(" %+.4f", losses[k] - base[k]);
    std::printf("\n");
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app{"Trains a small transformer by local steps, whose sums are averaged by an operator"};
  app.add_option("--text", s.text, "files of text");
  app.add_option("--operator", s.operators, "names of operators; the first should be float32")->take_all();
  app.add_option("--schedule", s.schedule, "of all operators but float32; empty: each its default");
  app.add_option("--workers", s.workers, "threads")->check(CLI::Range(1, 64));
  app.add_option("--local", s.local, "steps between two means")->check(CLI::PositiveNumber);
  app.add_option("--rounds", s.rounds, "means")->check(CLI::PositiveNumber);
  app.add_option("--seed", s.seeds, "seeds of initial weights, batches and rounding")->take_all();
  app.add_option("--batch", s.batch, "pieces of text a worker and step")->check(CLI::PositiveNumber);
  app.add_option("--width", s.model.width, "width of the model, a multiple of 4")->check(CLI::PositiveNumber);
  app.add_option("--blocks", s.model.blocks, "blocks of the model")->check(CLI::PositiveNumber);
  app.add_option("--rate", s.rate, "rate of Adam, the inner optimizer")->check(CLI::PositiveNumber);
  app.add_option("--outer-rate", s.outer_rate, "rate of the outer optimizer")->check(CLI::PositiveNumber);
  app.add_option("--momentum", s.momentum, "its Nesterov momentum")->check(CLI::NonNegativeNumber);
  app.add_flag("--json", s.json, "prints a line of JSON for each operator and seed");
  CLI11_PARSE(app, argc, argv);
  return lm::run_program([&] { return s.json ? run_lines(s) : run_table(s); });
}
