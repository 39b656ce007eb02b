// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief advise: measures network, operators and errors, and broadcasts the answer of worker 0.

#include "advise.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/model/errors.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/named/text.hpp>
#include <globalq/transport/root_decides.hpp>
#include <globalq/transport/threads.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

namespace globalq_advisor {
namespace {

namespace model = gq::model;
namespace transport = gq::transport;

constexpr std::string_view usual_operators[] = {"cgx:2",
                                                "cgx:4",
                                                "mxfp4",
                                                "qsgd:4",
                                                "nuqsgd:4",
                                                "mxfp6",
                                                "cgx:8",
                                                "mxfp8",
                                                "qsdp:8",
                                                "natural-compression",
                                                "global-uniform:8",
                                                "global-exponential:8",
                                                "global-uniform:16"};

gq::any_quantizer operator_of(std::string const& name) {
  gq::named::named_operator const asked = gq::named::read_operator(name);
  if (!asked.only_quantizes())
    throw gq::configuration_error(
        "globalq: advise: operator \"" + name +
        "\" clips or learns levels, so its error depends on more than one gradient; "
        "leave it out, or specify levels");
  return gq::named::operator_of(asked);
}

/// float32 and the operators of a request, without duplicates.
std::vector<std::string> names_of(request const& asked) {
  std::vector<std::string> names{"float32"};
  auto const add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  if (asked.operators.empty())
    for (std::string_view const name : usual_operators) add(name);
  for (std::string const& name : asked.operators) {
    static_cast<void>(operator_of(name));
    add(name);
  }
  return names;
}

/// Broadcasts the text that make() returns on worker 0.
template <class F>
std::string text_of_root(transport::endpoint& workers, F const& make) {
  struct memory {
    transport::decision<std::uint64_t> size;
    std::string text;
  };
  auto const shared = std::make_shared<memory>();
  return transport::keeping(workers, shared, [&] {
    std::uint64_t const size = transport::root_decides(workers, shared->size, "advise", [&] {
      shared->text = make();
      return std::uint64_t{shared->text.size()};
    });
    shared->text.resize(size);
    transport::broadcast(workers, 0, std::as_writable_bytes(std::span(shared->text)));
    return shared->text;
  });
}

/// Most threads that errors are measured with.
constexpr int most_threads = 32;

/// The gradients to measure errors on: a part of each layer, divided into pieces.
///
/// Without a gradient, values have the properties that were measured on the language model of docs/evidence.md: heavy tails
/// (Student's t with 5 degrees of freedom), scales that differ between pieces (log-normal), and workers that have a quarter of the
/// variance in common. Operators with one scale for all values look much better on values of one scale.
class sample {
 public:
  sample(request const& asked, int workers) {
    std::uint64_t const most_values =
        (std::uint64_t{1} << 21) / std::max<std::uint64_t>(8, static_cast<std::uint64_t>(workers));
    std::uint64_t most = 0, length = 0;
    for (layer const& l : asked.layers) most = std::max(most, l.length), length += l.length;
    auto const sum = [&] {
      std::uint64_t all = 0;
      for (layer const& l : asked.layers) all += std::min(most, l.length);
      return all;
    };
    while (most > 1 && sum() > most_values) most -= (most + 3) / 4;
    // gradients are given for a few workers, which the others repeat
    gradients_.resize(asked.gradient.empty() ? static_cast<std::size_t>(workers)
                                             : asked.gradient.size() / static_cast<std::size_t>(length));
    std::mt19937_64 bits{1};
    std::uint64_t first = 0;
    for (layer const& l : asked.layers) {
      std::uint64_t const count = std::min(most, l.length);
      std::uint64_t const from =
          asked.gradient.empty() ? first : start_in(asked.gradient, first, l.length, count);
      lengths_.push_back(count);
      for (std::uint64_t at = 0; at < count; at += piece_values) {
        std::uint64_t const values = std::min(count - at, piece_values);
        pieces_.push_back({values, static_cast<double>(l.length) * static_cast<double>(values) /
                                       static_cast<double>(count)});
        if (asked.gradient.empty())
          draw(bits, values);
        else
          for (std::size_t k = 0; k < gradients_.size(); ++k)
            for (std::uint64_t i = 0; i < values; ++i)
              gradients_[k].push_back(asked.gradient[static_cast<std::size_t>(k * length + from + at + i)]);
      }
      first += l.length;
    }
  }

  /// The error of a call; see row::error.
  double error(int workers, gq::any_quantizer const& op, std::string_view schedule) const {
    std::vector<std::span<float const>> x;
    for (std::size_t k = 0; k < static_cast<std::size_t>(workers); ++k)
      x.emplace_back(gradients_[k % gradients_.size()]);
    std::vector<float> const y = model::mean_on_threads(op, gq::schedule::any{schedule}, x, lengths_, 1);
    double all = 0, weights = 0;
    std::size_t at = 0;
    for (piece const& p : pieces_) {
      auto const part = [&](std::span<float const> of) {
        return of.subspan(at, static_cast<std::size_t>(p.values));
      };
      std::vector<std::span<float const>> own;
      for (std::span<float const> const of : x) own.push_back(part(of));
      double const theta = model::theta_of(part(y), own);
      at += static_cast<std::size_t>(p.values);
      if (std::isnan(theta)) continue;  // of zeros
      all += p.weight * std::min(theta, 1.0);
      weights += p.weight;
    }
    return all / weights;
  }

  std::uint64_t values() const { return gradients_[0].size(); }

 private:
  /// Consecutive values of a layer.
  struct piece {
    std::uint64_t values;
    double weight;  ///< the values of the layer that it stands for
  };
  static constexpr std::uint64_t piece_values = 4096;

  /// Appends a synthetic piece for every worker.
  void draw(std::mt19937_64& bits, std::uint64_t values) {
    std::normal_distribution<double> normal;
    std::student_t_distribution<double> heavy{5};
    double const scale = std::exp(0.75 * normal(bits)), common = scale * std::sqrt(0.25),
                 own = scale * std::sqrt(0.75);
    for (std::uint64_t i = 0; i < values; ++i) {
      double const shared = common * heavy(bits);
      for (std::vector<float>& x : gradients_) x.push_back(static_cast<float>(shared + own * heavy(bits)));
    }
  }

  /// Where the part of a layer starts: around its largest magnitude, because norms of maxima depend on it.
  static std::uint64_t start_in(std::span<float const> gradient, std::uint64_t first, std::uint64_t length,
                                std::uint64_t count) {
    auto const layer = gradient.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length));
    auto const largest = std::max_element(layer.begin(), layer.end(),
                                          [](float x, float y) { return std::abs(x) < std::abs(y); });
    std::uint64_t const at = static_cast<std::uint64_t>(largest - layer.begin());
    return first + std::min(at - std::min(at, count / 2), length - count);
  }

  std::vector<std::vector<float>> gradients_;
  std::vector<std::uint64_t> lengths_;
  std::vector<piece> pieces_;
};

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  gq::named::is_number(text, number);
  return number;
}

struct numbers_of_answer {
  std::uint64_t chunk_values;
  double seconds, float32_seconds, error;
};

}  // namespace

std::span<std::string_view const> default_operators() { return usual_operators; }

costs measure(transport::endpoint& workers, std::span<std::string const> names, bool network) {
  costs found;
  model::calibration_settings const settings{.repeats = 7, .values = 1 << 18};
  if (network) {
    model::calibration const links = model::calibrate(workers, settings);
    found.net = links.net;
    found.shape = links.shape();
    found.measured = true;
    std::byte const mine{};
    std::vector<std::byte> all(static_cast<std::size_t>(workers.size()));
    found.net.quick_exchange = workers.own_allgather({&mine, 1}, all);
  }
  Kokkos::Serial const space(Kokkos::NewInstance{});
  for (std::string const& name : names)
    found.operators.push_back(model::calibrate_operator(workers, name, operator_of(name), settings, space));
  return found;
}

void run_trials(transport::endpoint& workers, std::span<trial> all, std::uint64_t length) {
  if (all.empty()) return;
  std::vector<float> x(length), y(length);
  std::mt19937_64 bits{1};
  for (float& v : x) v = static_cast<float>(static_cast<std::int32_t>(bits() >> 32)) * 0x1p-31F;
  std::vector<gq::allreduce_mean<>> means;
  Kokkos::Serial const space(Kokkos::NewInstance{});
  for (trial const& t : all)
    means.emplace_back(workers, operator_of(t.name), gq::schedule::any{std::string_view(t.schedule)},
                       gq::options{.chunk_values = t.chunk_values}, space);
  std::vector<std::vector<double>> seconds(all.size());
  auto const start = std::chrono::steady_clock::now();
  for (std::uint64_t round = 0;; ++round) {  // the first warms up
    for (std::size_t k = 0; k < all.size(); ++k) {
      transport::barrier(workers);
      auto const at = std::chrono::steady_clock::now();
      means[k](x, y, round);
      if (round != 0) seconds[k].push_back(model::detail::seconds_since(at));
    }
    bool const more = round < 3 || (round < 9 && model::detail::seconds_since(start) < 2);
    if (!transport::broadcast_value(workers, 0, more)) break;
  }
  for (std::size_t k = 0; k < all.size(); ++k)
    all[k].seconds = model::detail::quartiles(model::detail::slowest(workers, seconds[k])).value;
}

error_of measured_errors(request const& asked, costs const& found) {
  int const all = found.net.workers(), some = std::min(all, most_threads);
  auto const values = std::make_shared<sample const>(asked, some);
  return [=, &found](std::size_t number, std::string_view schedule) {
    auto const& operators = found.operators;
    gq::any_quantizer const op = operator_of(operators[number].name);
    double const error = values->error(some, op, schedule);
    if (some == all) return error;
    // scale the error of fewer workers as the bound grows with their number
    gq::schedule::any const way{schedule};
    double const here = gq::plan_for(op, way, some, values->values()).theta,
                 there = gq::plan_for(op, way, all, values->values()).theta;
    return here > 0 && there > 0 ? error * there / here : error;
  };
}

answer advise(transport::endpoint& workers, std::function<request(int)> const& ask) {
  request asked;
  std::string const told = text_of_root(workers, [&] {
    asked = ask(workers.size());
    check(asked);
    if (!asked.network && workers.size() < 2)
      throw gq::configuration_error(
          "globalq: advise: there is only one worker; start more workers, or describe a network "
          "by workers, bandwidth and latency");
    std::string text = asked.network ? "given" : "measured";
    for (std::string const& name : names_of(asked)) text.append("\n").append(name);
    return text;
  });
  std::vector<std::string> names;
  for (std::string_view const each : gq::named::split(told, '\n')) names.emplace_back(each);
  bool const given = names.front() == "given";
  names.erase(names.begin());
  costs found = measure(workers, names, !given);
  if (asked.network) found.net = *asked.network;

  advice a;
  std::string const tried = text_of_root(workers, [&] {
    a = decide(asked, found, measured_errors(asked, found));
    if (!given) plan_trials(a, found);
    std::string text = std::to_string(a.tried_values);
    for (trial const& t : a.trials)
      text.append("\n" + t.name + "\n" + t.schedule + "\n" + std::to_string(t.chunk_values));
    return text;
  });
  auto const words = gq::named::split(tried, '\n');
  std::vector<trial> trials;
  for (std::size_t k = 1; k + 2 < words.size(); k += 3)
    trials.push_back({std::string(words[k]), std::string(words[k + 1]), number_in(words[k + 2])});
  run_trials(workers, trials, number_in(words[0]));

  numbers_of_answer numbers{};
  std::string const texts = text_of_root(workers, [&] {
    a.trials = trials;
    confirm(a);
    row const& use = a.chosen();
    numbers = {use.chunk_values, use.seconds, a.float32_seconds, use.error};
    return use.name + '\0' + use.schedule + '\0' + as_text(a) + '\0' + as_json(a);
  });
  numbers = transport::broadcast_value(workers, 0, numbers);
  auto const parts = gq::named::split(texts, '\0');
  return {std::string(parts[0]),   std::string(parts[1]), numbers.chunk_values,  numbers.seconds,
          numbers.float32_seconds, numbers.error,         std::string(parts[2]), std::string(parts[3])};
}

answer advise_here(int workers, request const& asked) {
  if (!asked.network && (workers < 2 || workers > 64))
    throw gq::configuration_error(
        "globalq: advise: " + std::to_string(workers) +
        " threads as workers; use 2 to 64, or give bandwidth and latency of a network of more workers");
  transport::threads cluster{asked.network ? 1 : workers};
  answer found;
  cluster.run([&](transport::threads::endpoint& self) {
    auto const endpoint = transport::make_endpoint(self);
    answer a = advise(*endpoint, [&](int) { return asked; });
    if (self.rank() == 0) found = std::move(a);
  });
  return found;
}

}  // namespace globalq_advisor
