// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: trains models and measures the time of steps.

#include "run.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace evidence {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point begin) {
  return std::chrono::duration<double>(clock::now() - begin).count();
}

/// Every worker's value.
template <class T>
std::vector<T> gather(workers& all, T const& mine) {
  std::vector<T> values(static_cast<std::size_t>(all.size()));
  gq::transport::allgather_value(all, mine, std::span(values));
  return values;
}

/// Replaces every worker's values by the maximum, or by the mean, over the workers.
void combine(workers& all, std::vector<double>& mine, bool largest) {
  auto const n = static_cast<std::size_t>(all.size());
  std::vector<double> theirs(n * mine.size());
  gq::transport::allgather(all, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(theirs)));
  for (std::size_t i = 0; i < mine.size(); ++i) {
    double top = 0, sum = 0;
    for (std::size_t r = 0; r < n; ++r) {
      top = std::max(top, theirs[r * mine.size() + i]);
      sum += theirs[r * mine.size() + i];
    }
    mine[i] = largest ? top : sum / static_cast<double>(n);
  }
}

/// The evaluation of all workers together.
double value_of(std::vector<judgment> const& parts) {
  judgment whole;
  for (judgment const& j : parts) {
    whole.sum += j.sum;
    whole.weight += j.weight;
  }
  return whole.sum / whole.weight;
}

/// @brief The distance that a vector moves in a step.
class displacement {
 public:
  void begin(std::span<float const> x) { before_.assign(x.begin(), x.end()); }
  /// ||x - x_before||^2; equal on all workers whose x has the same bits.
  double squared(std::span<float const> x) const {
    double sum = 0;
    for (std::size_t i = 0; i < before_.size(); ++i) {
      double const d = static_cast<double>(x[i]) - static_cast<double>(before_[i]);
      sum += d * d;
    }
    return sum;
  }

 private:
  std::vector<float> before_;
};

}  // namespace

training train(workers& all, model_kind const& what, method const& how, replica_setting with,
               std::uint64_t every) {
  with.rank = all.rank();
  with.workers = all.size();
  auto const replica = what.make(with);
  auto const mean = how.make({all, replica->layers(), with.seed, with.steps});
  displacement moved;
  training t;
  t.values = replica->layers().length();
  std::uint64_t bytes = 0;
  auto const begin = clock::now();
  for (std::uint64_t step = 0; step < with.steps; ++step) {
    std::span<float> const gradient = replica->differentiate(step);
    std::uint64_t const before = all.bytes_sent();
    (*mean)(gradient, step);
    bytes += all.bytes_sent() - before;
    bool const tells = mean->observes() && replica->steps_along_gradients() && step + 1 < with.steps;
    if (tells) moved.begin(replica->parameters());
    replica->update(step);
    if (tells) mean->observe(moved.squared(replica->parameters()), replica->rate(step + 1));
    if ((step + 1) % every == 0 || step + 1 == with.steps)
      t.curve.push_back({step + 1, value_of(gather(all, replica->evaluate()))});
  }
  t.seconds = seconds_since(begin);
  auto const sent = gather(all, bytes);
  t.bytes_a_step = *std::max_element(sent.begin(), sent.end()) / std::max<std::uint64_t>(with.steps, 1);
  auto const digests = gather(all, digest_of(replica->parameters()));
  t.identical = std::all_of(digests.begin(), digests.end(), [&](std::uint64_t d) { return d == digests[0]; });
  return t;
}

std::vector<timing> measure(workers& all, model_kind const& what, std::vector<method> const& methods,
                            replica_setting with, std::uint64_t rounds, std::uint64_t warm_up) {
  with.rank = all.rank();
  with.workers = all.size();
  with.steps = rounds + warm_up;
  auto const replica = what.make(with);
  std::vector<timing> times(methods.size());
  std::vector<std::unique_ptr<exchange>> means(methods.size());
  displacement moved;
  for (std::size_t k = 0; k < methods.size(); ++k) {
    times[k].values = replica->layers().length();
    try {
      means[k] = methods[k].make({all, replica->layers(), with.seed, with.steps});
    } catch (gq::configuration_error const& e) {  // thrown on all workers
      times[k].refusal = e.what();
    }
  }
  for (std::uint64_t round = 0; round < with.steps; ++round) {
    for (std::size_t k = 0; k < methods.size(); ++k) {
      if (!means[k]) continue;
      timing& t = times[k];
      gq::transport::barrier(all);
      auto const begin = clock::now();
      double compute = -thread_seconds();
      std::span<float> const gradient = replica->differentiate(round);
      compute += thread_seconds();
      gq::transport::barrier(all);  // so that waiting for slow workers does not count as communication
      std::uint64_t const before = all.bytes_sent();
      double const inside = all.seconds_inside();
      double computed = -thread_seconds();
      auto const exchanged = clock::now();
      (*means[k])(gradient, round);
      double const exchange_seconds = seconds_since(exchanged);
      computed += thread_seconds();
      double const in_transport = all.seconds_inside() - inside;
      std::uint64_t const bytes = all.bytes_sent() - before;
      compute -= thread_seconds();
      if (means[k]->observes()) moved.begin(gradient);
      compute += thread_seconds();
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      compute -= thread_seconds();
      replica->update(round);
      // the model does not move here; measuring the mean instead of its step costs the same time
      if (means[k]->observes()) means[k]->observe(moved.squared(gradient), 1);
      compute += thread_seconds();
      double const whole = seconds_since(begin);
      if (round < warm_up) continue;
      t.bytes_a_step = std::max(t.bytes_a_step, bytes);
      t.step.push_back(whole);
      t.exchange.push_back(exchange_seconds);
      t.compute.push_back(compute);
      t.method.push_back(computed - in_transport);
    }
  }
  for (timing& t : times) {
    if (!t.refusal.empty()) continue;
    auto const sent = gather(all, t.bytes_a_step);
    t.bytes_a_step = *std::max_element(sent.begin(), sent.end());
    combine(all, t.step, true);
    combine(all, t.exchange, true);
    combine(all, t.compute, false);
    combine(all, t.method, false);
  }
  return times;
}

}  // namespace evidence
