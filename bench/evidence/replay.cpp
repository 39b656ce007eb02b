// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: times of steps whose computing is replayed as a sleep.

#include "replay.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace evidence {
namespace {

double slowest(workers& all, double mine) { return std::ranges::max(gather(all, mine)); }

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

/// A worker whose computing is a sleep, with the gradient of a model of equal layers.
class replayer {
 public:
  replayer(workers& all, replica_setting const& with, replay_setting const& how)
      : all_(all), how_(how), each_(with.values / how.layers) {
    replica_setting mine = with;
    mine.rank = all.rank();
    mine.workers = all.size();
    mine.values = each_ * how.layers;
    auto const source = vector_kind().make(mine);
    auto const x = source->differentiate(0);
    drawn_.assign(x.begin(), x.end());
    gradient_ = drawn_;
    whole_.add("vector", {drawn_.size(), 1});
    for (std::uint64_t l = 0; l < how.layers; ++l) layers_.add("layer " + std::to_string(l), {each_, 1});
  }

  gq::adapt::model_layout const& whole() const { return whole_; }
  gq::adapt::model_layout const& layers() const { return layers_; }

  double in_turn(exchange& mean, double computing) {
    std::ranges::copy(drawn_, gradient_.begin());
    gq::transport::barrier(all_);
    auto const begin = clock::now();
    compute(computing);
    mean(gradient_, step_++);
    return slowest(all_, seconds_since(begin));
  }

  /// Steps follow each other without a break; the clock runs from the end of a backward pass to that of the last one.
  double at_once(overlapped& mean, double computing) {
    gq::transport::barrier(all_);
    clock::time_point begin;
    for (int k = 0; k <= how_.steps; ++k) {
      if (k == 1) begin = clock::now();
      pass(mean, computing, k == 0);
    }
    double const mine = seconds_since(begin);
    mean.finish();
    return slowest(all_, mine) / how_.steps;
  }

 private:
  static void compute(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

  void pass(overlapped& mean, double computing, bool first) {
    double const forward = computing / 3 / static_cast<double>(how_.layers);
    for (std::uint64_t l = 0; l < how_.layers; ++l) {
      if (!first) mean.wait(l);
      compute(forward);
    }
    if (!first) mean.finish();
    mean.begin(step_++);
    for (std::uint64_t l = how_.layers; l-- != 0;) {
      compute(2 * forward);
      auto const at = static_cast<std::ptrdiff_t>(l * each_);
      std::copy_n(drawn_.begin() + at, each_, gradient_.begin() + at);
      mean.ready(l, std::span(gradient_).subspan(l * each_, each_));
    }
  }

  workers& all_;
  replay_setting const& how_;
  std::uint64_t each_, step_ = 0;
  std::vector<float> drawn_, gradient_;
  gq::adapt::model_layout whole_, layers_;
};

}  // namespace

double processor_seconds(workers& all) {
  struct process {
    std::int64_t id, ticks;
  };
  std::map<std::int64_t, std::int64_t> ticks;  // workers may be threads of one process
  for (process const& p : gather(all, process{::getpid(), std::clock()})) ticks[p.id] = p.ticks;
  std::int64_t sum = 0;
  for (auto const& [id, each] : ticks) sum += each;
  return static_cast<double>(sum) / CLOCKS_PER_SEC;
}

std::vector<replayed> replay(workers& all, std::vector<method> const& methods, replica_setting const& with,
                             replay_setting const& how, std::uint64_t rounds, std::uint64_t warm_up) {
  if (with.values < how.layers)
    throw gq::configuration_error("globalq: evidence: a replay of " + std::to_string(with.values) +
                                  " values; give --values at least the number of layers, " +
                                  std::to_string(how.layers));
  std::vector<replayed> found;
  for (timing& t : measure(all, vector_kind(), methods, with, rounds, warm_up))
    found.push_back({std::move(t), {}});
  if (!found[0].alone.refusal.empty())
    throw gq::configuration_error("globalq: evidence: the baseline cannot run: " + found[0].alone.refusal);
  double const baseline = median(found[0].alone.exchange);

  replayer here(all, with, how);
  std::vector<std::unique_ptr<exchange>> means(methods.size());
  for (std::size_t k = 0; k < methods.size(); ++k)
    if (found[k].alone.refusal.empty()) means[k] = methods[k].make({all, here.whole(), with.seed, rounds});
  for (double const c : how.ratios) {
    double const computing = baseline / c;
    std::vector<std::unique_ptr<overlapped>> layered(methods.size());
    for (std::size_t k = 0; k < methods.size(); ++k) {
      if (!means[k]) continue;
      found[k].steps.push_back({c, computing, {}, {}});
      // What the backward pass does not hide is sent in the order of the next forward pass.
      double const share = std::min(1.0, 2 * computing / 3 / median(found[k].alone.exchange));
      try {
        layered[k] = methods[k].make_overlapped({all, here.layers(), with.seed, rounds}, how.groups, share);
      } catch (gq::configuration_error const&) {  // thrown on all workers: not for layers
      }
    }
    for (std::uint64_t round = 0; round < rounds; ++round)
      for (std::size_t k = 0; k < methods.size(); ++k) {
        if (!means[k]) continue;
        replayed_steps& s = found[k].steps.back();
        s.in_turn.push_back(here.in_turn(*means[k], computing));
        if (layered[k]) s.at_once.push_back(here.at_once(*layered[k], computing));
      }
  }
  return found;
}

}  // namespace evidence
