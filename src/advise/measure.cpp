// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief advise: measures network, operators and errors, and broadcasts the answer of worker 0.

#include "advise.hpp"

#include <globalq/collective/allreduce_mean.hpp>
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

/// The values to measure errors on: a part of each layer, from its middle unless that is zero.
struct sample {
  std::vector<float> values;
  std::vector<std::uint64_t> lengths;
  std::vector<double> weights;  ///< per layer: its length divided by its sampled length

  explicit sample(request const& asked) {
    constexpr std::uint64_t most_values = std::uint64_t{1} << 18;
    std::uint64_t most = 0;
    for (layer const& l : asked.layers) most = std::max(most, l.length);
    auto const sum = [&] {
      std::uint64_t all = 0;
      for (layer const& l : asked.layers) all += std::min(most, l.length);
      return all;
    };
    while (most > 1 && sum() > most_values) most -= (most + 3) / 4;
    std::mt19937_64 bits{1};
    std::normal_distribution<float> normal;
    std::uint64_t first = 0;
    for (layer const& l : asked.layers) {
      std::uint64_t const count = std::min(most, l.length);
      std::uint64_t const from =
          asked.gradient.empty() ? first : start_in(asked.gradient, first, l.length, count);
      for (std::uint64_t k = 0; k < count; ++k)
        values.push_back(asked.gradient.empty() ? normal(bits)
                                                : asked.gradient[static_cast<std::size_t>(from + k)]);
      lengths.push_back(count);
      weights.push_back(static_cast<double>(l.length) / static_cast<double>(count));
      first += l.length;
    }
  }

  /// Where the part of a layer starts: in the middle, or around the largest magnitude if the middle is zero.
  static std::uint64_t start_in(std::span<float const> gradient, std::uint64_t first, std::uint64_t length,
                                std::uint64_t count) {
    std::uint64_t const middle = (length - count) / 2;
    auto const layer = gradient.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length));
    auto const part = layer.subspan(static_cast<std::size_t>(middle), static_cast<std::size_t>(count));
    if (std::any_of(part.begin(), part.end(), [](float x) { return x != 0; })) return first + middle;
    auto const largest = std::max_element(layer.begin(), layer.end(),
                                          [](float x, float y) { return std::abs(x) < std::abs(y); });
    std::uint64_t const at = static_cast<std::uint64_t>(largest - layer.begin());
    return first + std::min(at - std::min(at, count / 2), length - count);
  }

  /// ||y - values||^2, or ||values||^2 if y is empty.
  double squares(std::span<float const> y) const {
    double all = 0;
    std::size_t i = 0;
    for (std::size_t layer = 0; layer < lengths.size(); ++layer) {
      double of_layer = 0;
      for (std::uint64_t k = 0; k < lengths[layer]; ++k, ++i) {
        double const off = (y.empty() ? 0.0 : static_cast<double>(y[i])) - static_cast<double>(values[i]);
        of_layer += off * off;
      }
      all += weights[layer] * of_layer;
    }
    return all;
  }
};

/// Relative squared error of averaging the sample over @p workers threads, all with the same values.
double error_of_mean(sample const& of, int workers, gq::any_quantizer const& op, std::string_view schedule) {
  transport::threads cluster{workers};
  double error = 0;
  cluster.run([&](transport::threads::endpoint& self) {
    std::vector<float> y = of.values;
    gq::vector_group layers;
    float* at = y.data();
    for (std::uint64_t const length : of.lengths) layers.add(at, length), at += length;
    gq::allreduce_mean mean{self, op, gq::schedule::any{schedule}, gq::options{.seed = 1},
                            Kokkos::Serial(Kokkos::NewInstance{})};
    mean(layers, 0);
    if (self.rank() == 0) error = of.squares(y) / of.squares({});
  });
  return error;
}

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
  auto const values = std::make_shared<sample const>(asked);
  int const all = found.net.workers(), some = std::min(all, 8);
  return [=, &found](std::size_t number, std::string_view schedule) {
    auto const& operators = found.operators;
    gq::any_quantizer const op = operator_of(operators[number].name);
    double const error = error_of_mean(*values, some, op, schedule);
    if (some == all) return error;
    // scale the error of fewer workers as the bound grows with their number
    gq::schedule::any const way{schedule};
    std::uint64_t const length = values->values.size();
    double const here = gq::plan_for(op, way, some, length).theta,
                 there = gq::plan_for(op, way, all, length).theta;
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
    for (std::string const& name : names_of(asked)) text.append(" ").append(name);
    return text;
  });
  std::vector<std::string> names;
  for (std::string_view const each : gq::named::split(told, ' ')) names.emplace_back(each);
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
