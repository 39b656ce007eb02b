// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Averages the buckets of torch's DistributedDataParallel, each of its layers by an operator of its own.

#include "process_group.hpp"

#include <globalq/operator/any_quantizer.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/filter.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/adapt/layout.hpp>

#include <ATen/core/Tensor.h>
#include <globalq/named/operators.hpp>

#include <fnmatch.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace globalq_ddp {

/// How gradients travel; the same on every worker.
struct settings {
  std::string op = "cgx:4";  ///< of layers that are quantised: float32, or a named operator
  std::vector<std::pair<std::string, std::string>>
      layers;                        ///< pattern of names, operator: for the first that fits
  std::vector<std::string> exclude;  ///< patterns of names that travel as float32
  std::uint64_t min_size = 0;        ///< layers of fewer values travel as float32,
  std::size_t min_dimensions = 2;    ///< and those of fewer dimensions
  std::uint64_t seed = 0;
  std::uint64_t warm_up = 0;     ///< first steps, in float32
  std::uint64_t first_step = 0;  ///< number of the first step, for a training that goes on
  std::chrono::nanoseconds deadline = std::chrono::minutes{10};
};

/// What a layer of the model has been given.
struct layer_report {
  std::string name;
  std::uint64_t size = 0;
  std::string op;   ///< with all parameters
  std::string why;  ///< it travels as float32; empty where it is quantised
};

/// @brief Averages buckets on a thread of its own, in the order in which they come.
///
/// A step begins with bucket 0. Which layers a bucket has may change between steps, as long as it is alike on all workers:
/// a call is made ready for each set of layers that comes, and the opening exchange of a call compares their names.
class bucket_averager {
 public:
  /// @param model  all layers whose gradients come in buckets
  /// @throws gq::configuration_error when an operator is unknown or does not fit
  bucket_averager(c10::intrusive_ptr<c10d::ProcessGroup> group, gq::adapt::layout model, settings const& s)
      : settings_(s),
        model_(std::move(model)),
        engine_(std::make_unique<engine>(std::move(group), s)),
        step_(s.first_step) {
    for (std::string const& pattern : s.exclude) keep_.named(pattern);
    keep_.below(s.min_size).below_dimensions(s.min_dimensions);
    choice const usual = choice_of(s.op);
    engine_->schedule = gq::schedule::any{std::string_view(usual.schedule)};
    std::vector<std::pair<std::string, gq::any_quantizer>> others;
    for (auto const& [pattern, name] : s.layers) {
      others.emplace_back(pattern, choice_of(name).op);
      bool fits = false;
      for (gq::adapt::layer const& l : model_)
        fits = fits || fnmatch(pattern.c_str(), l.name.c_str(), 0) == 0;
      if (!fits)
        throw gq::configuration_error(message("no layer is called \"" + pattern + "\" among " +
                                              std::to_string(model_.size()) + ", which has an operator"));
    }
    operators_ = gq::adapt::operators_of(model_, keep_, [&](gq::adapt::layer const& l) {
      for (auto const& [pattern, op] : others)
        if (fnmatch(pattern.c_str(), l.name.c_str(), 0) == 0) return op;
      return usual.op;
    });
    // A call for the whole model says now what would not fit later, and what each layer's operator is.
    mean const whole(engine_->workers, model_, operators_, engine_->schedule);
    for (std::size_t k = 0; k < model_.size(); ++k)
      report_.push_back({model_[k].name, model_[k].size, whole.operator_name(k), keep_.reason(model_[k])});
    thread_ = std::thread([this] { work(); });
  }

  bucket_averager(bucket_averager const&) = delete;
  bucket_averager& operator=(bucket_averager const&) = delete;
  ~bucket_averager() { close(); }

  /// @brief Averages gradients in place, after the buckets that were started before.
  /// @param index      of the bucket; 0 begins a step
  /// @param layers     of the model, one a gradient
  /// @param gradients  contiguous, in host memory
  /// @param done       called once, by the thread that averages: with nothing when the gradients are means, else with the
  ///                   text of the error
  void start(std::size_t index, std::vector<std::size_t> layers, std::vector<at::Tensor> gradients,
             std::function<void(std::string const&)> done) {
    expect(layers, gradients);
    if (index == 0) {
      step_ = began_ ? step_ + 1 : step_;
      began_ = true;
      in_step_ = 0;
    }
    job next;
    next.where = {in_step_, std::move(layers)};
    next.gradients = std::move(gradients);
    next.step = step_;
    next.done = std::move(done);
    in_step_ += next.gradients.size();
    if (in_step_ > model_.size())
      throw gq::configuration_error(message("step " + std::to_string(step_) + " has " +
                                            std::to_string(in_step_) + " gradients or more, and the model " +
                                            std::to_string(model_.size()) +
                                            " layers; bucket 0 must begin each step"));
    {
      std::lock_guard const lock(mutex_);
      if (ends_) throw gq::configuration_error(message("it is closed; make another one"));
      jobs_.push_back(std::move(next));
    }
    changed_.notify_one();
  }

  /// @brief Ends the thread, after the bucket that it is busy with. Buckets behind that one end with an error.
  void close() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    engine_.reset();
  }

  gq::adapt::layout const& model() const { return model_; }
  std::vector<layer_report> const& report() const { return report_; }
  std::uint64_t step() const { return step_; }  ///< that began last
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t non_finite() const { return non_finite_; }  ///< buckets whose means were NaN

 private:
  using mean = gq::adapt::layered_mean<process_group, gq::schedule::any>;

  struct choice {
    gq::any_quantizer op = gq::uncompressed{};
    std::string schedule = "ring";
  };

  /// How many gradients of the step came before, and which layers these are.
  using place = std::pair<std::size_t, std::vector<std::size_t>>;

  struct job {
    place where;
    std::vector<at::Tensor> gradients;
    std::uint64_t step = 0;
    std::function<void(std::string const&)> done;
  };

  struct call {
    std::unique_ptr<mean> run;
    std::uint64_t used = 0;  ///< the step
  };

  /// What moves bytes; gone when the thread is.
  struct engine {
    engine(c10::intrusive_ptr<c10d::ProcessGroup> over, settings const& s)
        : workers(std::move(over), {.deadline = s.deadline}) {}
    process_group workers;
    gq::schedule::any schedule = gq::schedule::ring{};
    std::map<place, call> calls;
    gq::vector_group group;
  };

  static choice choice_of(std::string const& name) {
    if (name == "float32") return {};
    gq::named::named_operator const found = gq::named::read_operator(name);
    if (!found.only_quantises())
      throw gq::configuration_error(
          "globalq_ddp: operator \"" + name +
          "\" clips or learns levels, which takes more than one call for all layers; give it without "
          "that (or with levels of its own)");
    return {gq::named::operator_of(found), found.schedule};
  }

  static gq::dtype type_of(at::Tensor const& t) {
    switch (t.scalar_type()) {
      case at::kFloat:
        return gq::dtype::float32;
      case at::kDouble:
        return gq::dtype::float64;
      case at::kHalf:
        return gq::dtype::float16;
      case at::kBFloat16:
        return gq::dtype::bfloat16;
      default:
        throw gq::configuration_error(std::string("globalq_ddp: gradients of type ") +
                                      c10::toString(t.scalar_type()) +
                                      " cannot be averaged; use float32, float64, float16 or bfloat16");
    }
  }

  void expect(std::vector<std::size_t> const& layers, std::vector<at::Tensor> const& gradients) const {
    if (layers.size() != gradients.size())
      throw gq::configuration_error(message(std::to_string(gradients.size()) + " gradients for " +
                                            std::to_string(layers.size()) + " layers"));
    for (std::size_t k = 0; k < layers.size(); ++k) {
      if (layers[k] >= model_.size())
        throw gq::configuration_error(message("there is no layer " + std::to_string(layers[k])));
      at::Tensor const& g = gradients[k];
      if (!g.device().is_cpu() || !g.is_contiguous() || g.layout() != at::kStrided)
        throw gq::configuration_error(message("the gradient of \"" + model_[layers[k]].name + "\" is on " +
                                              g.device().str() +
                                              (g.is_contiguous() ? "" : " and not contiguous") +
                                              "; dense gradients in host memory are averaged"));
      static_cast<void>(type_of(g));
    }
  }

  void run(job const& what) {
    engine& e = *engine_;
    auto const found = e.calls.find(what.where);
    call& c = found != e.calls.end() ? found->second : prepare(what);
    c.used = what.step;
    e.group.clear();
    for (at::Tensor const& g : what.gradients) {
      auto const n = static_cast<std::size_t>(g.numel());
      switch (type_of(g)) {
        case gq::dtype::float32:
          add<float>(e.group, g, n);
          break;
        case gq::dtype::float64:
          add<double>(e.group, g, n);
          break;
        case gq::dtype::float16:
          add<gq::float16>(e.group, g, n);
          break;
        case gq::dtype::bfloat16:
          add<gq::bfloat16>(e.group, g, n);
          break;
      }
    }
    (*c.run)(e.group, what.step);
    gq::call_report const seen = seen_.take();
    if (seen.non_finite == 0 || non_finite_++ != 0 || e.workers.rank() != 0) return;
    std::string const who = seen.non_finite_rank < 0
                                ? "their mean is beyond the range of their type"
                                : "rank " + std::to_string(seen.non_finite_rank) + " brought NaN or infinity";
    std::fprintf(
        stderr,
        "globalq_ddp: warning: step %llu: gradients of a bucket are NaN on all %d processes: %s; later ones "
        "are counted in Hook.non_finite only\n",
        static_cast<unsigned long long>(what.step), e.workers.size(), who.c_str());
  }

  template <class T>
  static void add(gq::vector_group& group, at::Tensor const& g, std::size_t n) {
    std::span<T> const values{static_cast<T*>(g.data_ptr()), n};
    group.add(values);
  }

  /// Makes a call for a set of layers, and drops those that the last step did not use.
  call& prepare(job const& what) {
    engine& e = *engine_;
    std::erase_if(e.calls, [&](auto const& each) { return each.second.used + 1 < what.step; });
    gq::adapt::layout part;
    std::vector<gq::any_quantizer> operators;
    for (std::size_t k = 0; k < what.where.second.size(); ++k) {
      std::size_t const layer = what.where.second[k];
      part.add(model_[layer].name, model_[layer].shape, type_of(what.gradients[k]));
      operators.push_back(operators_[layer]);
    }
    gq::adapt::layered_options const options{.call = {.seed = settings_.seed, .telemetry = &seen_},
                                             .warm_up = settings_.warm_up,
                                             .first = what.where.first,
                                             .of = model_.size()};
    return e.calls[what.where] = {
               std::make_unique<mean>(e.workers, std::move(part), std::move(operators), e.schedule, options),
               what.step};
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !jobs_.empty() || ends_; });
      if (jobs_.empty()) return;
      job next = std::move(jobs_.front());
      jobs_.pop_front();
      bool const dropped = ends_;
      lock.unlock();
      std::string error;
      try {
        if (dropped) throw gq::configuration_error(message("it was closed before a bucket was averaged"));
        run(next);
      } catch (std::exception const& problem) {
        error = problem.what();
      }
      bytes_sent_ = engine_->workers.bytes_sent();
      next.done(error);
    }
  }

  std::string message(std::string const& what) const { return "globalq: bucket_averager: " + what; }

  settings settings_;
  gq::adapt::layout model_;
  gq::adapt::filter keep_;
  std::vector<gq::any_quantizer> operators_;
  std::vector<layer_report> report_;
  gq::telemetry seen_;
  std::unique_ptr<engine> engine_;

  std::uint64_t step_;  // of the thread that starts
  bool began_ = false;
  std::size_t in_step_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> jobs_;
  bool ends_ = false;
  std::atomic<std::uint64_t> bytes_sent_ = 0, non_finite_ = 0;
  std::thread thread_;
};

}  // namespace globalq_ddp
