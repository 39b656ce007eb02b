// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: trains models and measures the time of steps and the errors of means.

#include "run.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace evidence {
namespace {

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

/// @brief Mean and standard error of numbers that come one after the other.
class average {
 public:
  void add(double value) {
    ++count_;
    double const off = value - mean_;
    mean_ += off / static_cast<double>(count_);
    squares_ += off * (value - mean_);
  }
  std::uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  /// Relative to the mean. Errors as small as the rounding of float32 count as none.
  double spread() const {
    if (count_ < 2) return 1;
    double const n = static_cast<double>(count_);
    return mean_ < 1e-13 ? 0 : std::sqrt(squares_ / (n * (n - 1))) / mean_;
  }

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0, squares_ = 0;  ///< the sum of squared distances from the mean
};

template <class Value>
double squared(std::span<Value const> x) {
  double sum = 0;
  for (Value const v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return sum;
}

/// The mean of all workers' vectors in float64, added in rank order.
void exact_mean(workers& all, std::span<float const> own, std::span<double> mean) {
  constexpr std::size_t most = 65536;
  auto const n = static_cast<std::size_t>(all.size());
  std::vector<float> theirs;
  for (std::size_t at = 0; at < own.size(); at += most) {
    std::size_t const count = std::min(most, own.size() - at);
    theirs.resize(n * count);
    gq::transport::allgather(all, std::as_bytes(own.subspan(at, count)),
                             std::as_writable_bytes(std::span(theirs)));
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (std::size_t r = 0; r < n; ++r) sum += static_cast<double>(theirs[r * count + i]);
      mean[at + i] = sum / static_cast<double>(n);
    }
  }
}

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
  t.best = replica->best();
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

std::vector<error> compare(workers& all, model_kind const& what, std::vector<method> const& methods,
                           replica_setting with, error_setting const& how) {
  // A first call at step 3 learns levels, because the schedule for this many steps is 1, 2, 10, 20, ..
  constexpr std::uint64_t learning_steps = 80, first = 3;
  with.rank = all.rank();
  with.workers = all.size();
  auto const replica = what.make(with);
  std::size_t const length = replica->layers().length();
  std::vector<error> errors(methods.size());
  std::vector<std::unique_ptr<exchange>> means(methods.size());
  std::vector<average> of_mean(methods.size()), of_vectors(methods.size());
  for (std::size_t k = 0; k < methods.size(); ++k) {
    errors[k].values = length;
    try {
      means[k] = methods[k].make({all, replica->layers(), with.seed, learning_steps});
    } catch (gq::configuration_error const& e) {  // thrown on all workers
      errors[k].refusal = e.what();
    }
  }
  std::vector<double> exact(length);
  std::vector<float> result(length);
  for (std::uint64_t step = 0; step < how.from; ++step) {
    std::span<float> const gradient = replica->differentiate(step);
    exact_mean(all, gradient, exact);
    std::copy(exact.begin(), exact.end(), gradient.begin());
    replica->update(step);
  }
  std::span<float const> x;
  double square = 0, lengths = 0;
  for (std::uint64_t round = 0; round < how.most_rounds; ++round) {
    if (round == 0 || how.draw) {
      x = replica->differentiate(how.from + round);
      exact_mean(all, x, exact);
      square = squared(std::span<double const>(exact));
      auto const squares = gather(all, squared(x));
      lengths = std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(squares.size());
    }
    bool unfinished = false;
    for (std::size_t k = 0; k < methods.size(); ++k) {
      int const enough = of_mean[k].count() >= how.least_rounds && of_mean[k].spread() <= how.spread;
      if (!means[k] || gather(all, enough)[0] != 0) continue;  // only rank 0 knows errors
      unfinished = true;
      std::copy(x.begin(), x.end(), result.begin());
      std::uint64_t const before = all.bytes_sent();
      (*means[k])(result, first + round);
      std::uint64_t const sent = all.bytes_sent() - before;
      errors[k].bytes = round == 0 ? sent : std::min(errors[k].bytes, sent);
      if (all.rank() != 0) continue;
      double sum = 0;
      for (std::size_t i = 0; i < length; ++i) {
        double const d = static_cast<double>(result[i]) - exact[i];
        sum += d * d;
      }
      of_mean[k].add(sum / square);
      of_vectors[k].add(sum / lengths);
    }
    if (!unfinished) break;
  }
  for (std::size_t k = 0; k < methods.size(); ++k) {
    auto const sent = gather(all, errors[k].bytes);
    errors[k].bytes = *std::max_element(sent.begin(), sent.end());
    errors[k].rounds = of_mean[k].count();
    errors[k].of_mean = of_mean[k].mean();
    errors[k].of_vectors = of_vectors[k].mean();
    errors[k].spread = of_mean[k].spread();
  }
  return errors;
}

}  // namespace evidence
