// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: averages gradients while the backward pass still computes those of earlier layers.

#include "../../core/detail/forced_unwind.hpp"
#include "layered_mean.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// Options of an overlapped_mean; the same on every worker.
struct overlap_options {
  layered_options layers = {};
  /// The largest size of a group in bytes of its gradients, in their own type; a larger layer is a group of its own.
  std::uint64_t group_bytes = std::uint64_t{4} << 20;
  /// The share of all bytes that is sent from the last layer on, as the backward pass computes it. The other groups are sent
  /// from the first layer on, which the next forward pass needs first: for wait(layer). About (time of the backward pass) /
  /// (time of sending) is best.
  double backward_share = 1;
};

/// @brief Averages the layers of a model in groups, each as soon as its last gradient is ready.
///
/// A backward pass computes the last layer first, so groups are filled from the last layer on, and a background thread
/// averages a group while the pass continues. The contents of groups depend only on the model layout. Groups are
/// sent in a fixed order, in whatever order gradients arrive, so timing does not change the result. Layers draw the
/// same random bits as in layered_mean: over allgather, and where codes are added as integers, the results are those of
/// one call for the model.
///
/// @code
/// gq::adapt::overlapped_mean mean{workers, model, operators, gq::schedule::sra{}};
/// mean.begin(step);
/// backward([&](std::size_t layer, std::span<float> gradient) { mean.ready(layer, gradient); });
/// mean.wait();                                     // all gradients are now means
/// @endcode
/// **Across the barrier between steps.** wait(layer) returns when one layer is a mean, so that the next forward pass begins while
/// other layers still travel. With backward_share below 1 the first layers, which it needs first, do not travel last:
/// @code
/// for (std::size_t l = 0; l < model.size(); ++l) {  // the next forward pass
///   mean.wait(l);
///   update(l), forward(l);
/// }
/// mean.wait();                                      // ends the step: all workers have the same errors
/// mean.begin(step + 1);
/// @endcode
/// Only one thread at a time may call an overlapped_mean. If workers disagree in a group, or one of them did not have all
/// gradients at wait(), all workers throw, and the later groups of the step are not sent. The next step works.
/// @tparam Transport  a host-memory transport; a background thread must be allowed to use it
/// @determinism       bit-identical on all workers; independent of timing, threads and chunks
/// @source Li et al. 2020 (PyTorch Distributed: gradient buckets in reverse order of the layers); order of the next forward pass:
///         Peng et al. 2019 (ByteScheduler), Markov 2024 (thesis), chapter 3 (CGX's cross-barrier training)
template <class Transport, class Schedule>
class overlapped_mean {
 public:
  /// @param operators  one for each layer
  /// @throws configuration_error as layered_mean does
  overlapped_mean(Transport& workers, model_layout const& model, std::vector<any_quantizer> const& operators,
                  Schedule const& schedule, overlap_options const& settings = {})
      : workers_(&workers),
        where_("globalq: overlapped_mean: rank " + std::to_string(workers.rank()) + " of " +
               std::to_string(workers.size()) + ": "),
        model_(model),
        queue_(std::make_shared<call_queue>()),
        vectors_(model.size()),
        is_ready_(model.size(), false) {
    if (operators.size() != model.size())
      throw configuration_error(where_ + std::to_string(operators.size()) + " operators for " +
                                std::to_string(model.size()) + " layers; give one for each layer");
    std::vector<segment> cuts;
    layered_options of_group = settings.layers;
    of_group.of = model.size();
    of_group.others += std::string(of_group.others.empty() ? "" : ", ") + "groups from layers";
    if (!(settings.backward_share >= 0 && settings.backward_share <= 1))
      throw configuration_error(where_ + "backward_share is " + std::to_string(settings.backward_share) +
                                "; give a share of all bytes from 0 to 1");
    double sent = 0;
    for (std::size_t l = 0; l < model.size(); ++l) sent += static_cast<double>(bytes_of(l));
    double const in_backward = settings.backward_share * sent;
    std::ptrdiff_t reversed = 0;  // groups sent from the last layer on
    sent = 0;
    for (std::size_t end = model.size(); end != 0; end = cuts.back().first) {
      std::size_t first = end - 1;
      std::uint64_t bytes = bytes_of(first);
      while (first != 0 && bytes + bytes_of(first - 1) <= settings.group_bytes) bytes += bytes_of(--first);
      cuts.push_back({first, end - first});
      sent += static_cast<double>(bytes);
      if (sent <= in_backward) ++reversed;
    }
    std::reverse(cuts.begin() + reversed, cuts.end());
    for (segment const& cut : cuts) of_group.others += " " + std::to_string(cut.first);
    for (auto const [first, count] : cuts) {
      std::size_t const end = first + count;
      model_layout part;
      for (std::size_t k = first; k < end; ++k) part.add(model[k].name, model[k].shape, model[k].type);
      of_group.first = first;
      auto const at = operators.begin() + static_cast<std::ptrdiff_t>(first);
      groups_.push_back(
          std::make_unique<group>(first, end, workers, std::move(part),
                                  std::vector<any_quantizer>(at, at + static_cast<std::ptrdiff_t>(count)),
                                  schedule, of_group, abandoned_));
      groups_.back()->mean.run_on(queue_);
    }
    group_of_.resize(model.size());
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t k = groups_[g]->first; k < groups_[g]->end; ++k) group_of_[k] = g;
  }

  /// @brief Begins a step.
  /// @throws configuration_error if wait() has not ended the previous step
  void begin(std::uint64_t step) {
    if (running_)
      throw configuration_error(
          where_ + "step " + std::to_string(step_) +
          " has begun and wait() has not ended it; call wait() at the end of each step");
    is_ready_.assign(model_.size(), false);
    running_ = true;
    *abandoned_ = false;
    step_ = step;
    started_ = 0;
    for (auto& g : groups_) {
      g->missing = g->end - g->first;
      g->error = nullptr;
    }
  }

  /// @brief Reports that the gradient of a layer is ready. It is averaged in place from now on, until wait() returns.
  /// @throws configuration_error if its size or type differs from its layer's, or if this step has it already; nothing
  ///         is changed then. The other workers are informed by wait(), unless the layer becomes ready before
  template <Vector V>
  void ready(std::size_t layer, V&& gradient) {
    static_assert(
        globalq::detail::outlasts_call<V>,
        "globalq: the gradient is a temporary that is destroyed before it is averaged; give it a name");
    auto const [in, out, length] = globalq::detail::pair_of(gradient, gradient, "overlapped_mean");
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(out)>>>::value;
    expect(layer, length, type);
    vectors_[layer] = {{in, type}, {out, type}, length};
    is_ready_[layer] = true;
    --groups_[group_of_[layer]]->missing;
    try {
      for (; started_ < groups_.size() && groups_[started_]->missing == 0; ++started_) {
        group& g = *groups_[started_];
        g.call = queue_->start({run_group, &g, {}, {}, g.end - g.first, step_, &vectors_[g.first]});
      }
    } catch (...) {  // mark the layer as not ready
      is_ready_[layer] = false;
      ++groups_[group_of_[layer]]->missing;
      throw;
    }
  }

  /// @brief Waits until all gradients are means, and ends the step.
  /// @throws configuration_error naming a layer that was never ready, after all started calls have ended; the other
  ///         workers' calls then end with disagreement_error. The error of a call
  void wait() {
    if (!running_) return;
    running_ = false;
    std::exception_ptr error;
    for (std::size_t g = 0; g < started_; ++g) {
      wait_for(*groups_[g]);
      if (!error) error = groups_[g]->error;
    }
    std::string const why = *abandoned_ ? std::string() : missing_layer();
    if (!why.empty()) globalq::detail::share_refusal(*workers_, why);  // the others wait in this group
    if (error) std::rethrow_exception(error);
    if (!why.empty()) throw configuration_error(where_ + why);
  }

  /// @brief Waits until the gradient of a layer is a mean. wait() still ends the step.
  /// @throws configuration_error if no step has begun, or a layer that is sent before was not ready; the error of a call up to
  ///         the layer's, which wait() throws too
  void wait(std::size_t layer) {
    expect_layer(layer);
    if (!running_) throw configuration_error(where_ + "no step has begun; call begin(step) before wait()");
    if (group_of_[layer] >= started_)
      throw configuration_error(
          where_ + "layer \"" + model_[layer].name + "\" is not sent yet in step " + std::to_string(step_) +
          ", as not all layers that are sent before it are ready; wait for layers after "
          "the backward pass");
    for (std::size_t g = 0; g <= group_of_[layer]; ++g) {  // a call that failed may have ended the step
      wait_for(*groups_[g]);
      if (groups_[g]->error) std::rethrow_exception(groups_[g]->error);
    }
  }

  /// The number of groups, that is, of calls in a step.
  std::size_t groups() const { return groups_.size(); }
  /// The number of the group of a layer; group 0 is sent first.
  std::size_t group_of(std::size_t layer) const { return group_of_[layer]; }

  /// @brief Replaces the operator of a layer; see layered_mean::assign.
  /// @throws configuration_error within a step, or if the operator does not fit
  void assign(std::size_t layer, any_quantizer const& op) {
    expect_layer(layer);
    if (running_)
      throw configuration_error(where_ + "operators cannot change within a step; call wait() first");
    group& g = *groups_[group_of_[layer]];
    g.mean.assign(layer - g.first, op);
  }

 private:
  /// Layers that travel in one call.
  struct group {
    group(std::size_t from, std::size_t to, Transport& workers, model_layout part,
          std::vector<any_quantizer> ops, Schedule const& schedule, layered_options const& settings,
          std::shared_ptr<bool> over)
        : first(from),
          end(to),
          mean(workers, std::move(part), std::move(ops), schedule, settings),
          abandoned(std::move(over)) {}
    std::size_t first, end;
    std::size_t missing = 0;
    layered_mean<Transport, Schedule> mean;
    std::shared_ptr<bool> abandoned;  ///< of the step
    started_call call;
    std::exception_ptr error;  ///< of the call, once it was waited for
  };

  void wait_for(group& g) {
    try {
      g.call.wait();
    } catch (globalq::detail::forced_unwind const&) {
      throw;
    } catch (...) {
      g.error = std::current_exception();
    }
  }

  /// Runs the call of a group, on the thread of the queue. Disagreement and refusals are found in the handshake, on all
  /// workers in the same group; from then on no worker sends a group, since their numbers may differ.
  static void run_group(call_queue::job const& job) {
    group& g = *static_cast<group*>(job.object);
    if (*g.abandoned) return;
    *g.abandoned = !g.mean.step_refusal(job.step).empty();
    try {
      g.mean.run_members({static_cast<vector_group::member const*>(job.members), job.length}, job.step);
    } catch (disagreement_error const&) {
      *g.abandoned = true;
      throw;
    } catch (transport_error const&) {
      *g.abandoned = true;
      throw;
    }
  }

  /// Why this step cannot end; empty if all layers were ready.
  std::string missing_layer() const {
    for (std::size_t k = model_.size(); k-- != 0;)
      if (!is_ready_[k])
        return "layer \"" + model_[k].name + "\" was not ready at the end of step " + std::to_string(step_) +
               ", so it and later layers were not averaged; pass zeros for layers that a step does not use";
    return {};
  }

  std::uint64_t bytes_of(std::size_t layer) const { return model_[layer].size * size_of(model_[layer].type); }

  void expect_layer(std::size_t layer) const {
    if (layer < model_.size()) return;
    throw configuration_error(where_ + "there is no layer " + std::to_string(layer) + " among " +
                              std::to_string(model_.size()));
  }
  void expect(std::size_t layer, std::uint64_t length, dtype type) const {
    if (!running_) throw configuration_error(where_ + "no step has begun; call begin(step) before ready()");
    expect_layer(layer);
    auto const& l = model_[layer];
    if (length != l.size || type != l.type)
      throw configuration_error(where_ + "layer \"" + l.name + "\" has " + std::to_string(l.size) +
                                " values of " + name_of(l.type) + ", but its gradient has " +
                                std::to_string(length) + " of " + name_of(type));
    if (is_ready_[layer])
      throw configuration_error(where_ + "ready() was called twice for layer \"" + l.name + "\" in step " +
                                std::to_string(step_) + "; accumulate gradients first");
  }

  Transport* workers_;
  std::string where_;
  model_layout model_;
  std::shared_ptr<call_queue> queue_;
  std::shared_ptr<bool> abandoned_ =
      std::make_shared<bool>(false);  ///< no further group of this step is sent
  std::vector<vector_group::member> vectors_;
  std::vector<bool> is_ready_;
  std::vector<std::unique_ptr<group>> groups_;  ///< in the order in which they are sent
  std::vector<std::size_t> group_of_;
  std::size_t started_ = 0;
  std::uint64_t step_ = 0;
  bool running_ = false;
};

template <class T, class S>
overlapped_mean(T&, model_layout, std::vector<any_quantizer>, S) -> overlapped_mean<T, S>;
template <class T, class S>
overlapped_mean(T&, model_layout, std::vector<any_quantizer>, S, overlap_options) -> overlapped_mean<T, S>;

}  // namespace GLOBALQ_ABI::adapt
