// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: averages all layers of a model in one call, each layer with its own operator.

#include "../../call/vector_group.hpp"
#include "../../collective/allreduce_mean.hpp"
#include "detail/layer_difference.hpp"
#include "detail/layer_operator.hpp"
#include "detail/layered_plan.hpp"
#include "detail/unlike_layout.hpp"
#include "model_layout.hpp"
#include "operators_of.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::adapt {

/// Options of a layered_mean; the same on every worker.
struct layered_options {
  options call = {};
  std::uint64_t warm_up = 0;  ///< steps 0 .. warm_up - 1 are uncompressed
  /// For layers that are a part of a model: the number of the first one, and the model's number of layers; of = 0: all
  /// layers. Random bits depend on a layer's number in the model, not on the layers that share the call.
  std::uint64_t first = 0, of = 0;
  std::uint64_t alike = 0;  ///< a hash of other settings, which workers compare
  std::string others = {};  ///< other settings as text, which workers compare and errors contain
};

/// @brief Averages the layers of a model over the workers of a transport in one call, each layer with its own operator.
///
/// All layers share one handshake, one exchange of norms, and the messages of the schedule. Layers with operator
/// `uncompressed` travel as float32 in the same messages. Layer k of a model with L layers draws the random bits of
/// step `step * L + k`. Over allgather, and where codes are added as integers, the results are therefore those of an
/// allreduce_mean for each layer with that step, if norms are maxima or norms of buckets. Elsewhere workers add in
/// another order, and the results have the same distribution.
///
/// @code
/// gq::adapt::layered_mean mean{workers, model, gq::adapt::operators_of(model, gq::adapt::filter::cgx(), op),
///                              gq::schedule::sra{}, {.call = {.seed = 42}, .warm_up = 100}};
/// mean(gradient, step);                            // one vector that contains all layers, as in the model layout
/// mean(gq::vector_group{}.add(w1).add(b1), step);  // or one vector for each layer
/// @endcode
/// @tparam Transport  a host-memory transport
/// @tparam Schedule   any except native
/// @determinism       bit-identical on all workers; independent of threads and chunks
/// @source Markov 2024 (thesis), chapter 3 (CGX: filters and parameters of layers)
template <class Transport, class Schedule>
class layered_mean {
  static_assert(!transport::OnStream<Transport>,
                "globalq: layered_mean runs on the host. On a stream call allreduce_mean for each layer");

 public:
  /// @param operators  one for each layer
  /// @throws configuration_error if an operator does not fit (the text names the layer), or if the schedule is native
  layered_mean(Transport& workers, model_layout model, std::vector<any_quantizer> operators,
               Schedule schedule, layered_options const& settings = {})
      : layered_mean(workers, std::move(model), std::move(operators), std::move(schedule), settings,
                     globalq::detail::execution_of(workers)) {}

  /// @param space  execution-space instance that runs the kernels
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> layered_mean(Transport& workers, model_layout model,
                                                            std::vector<any_quantizer> operators,
                                                            Schedule schedule,
                                                            layered_options const& settings,
                                                            Space const& space)
      : workers_(workers),
        model_(std::move(model)),
        schedule_(globalq::schedule::erase(std::move(schedule))),
        settings_(settings),
        on_(space),
        plain_(uncompressed{}, *schedule_, workers_.size()) {
    if (!Kokkos::is_initialized())
      throw configuration_error(
          message("Kokkos is not initialized; create a Kokkos::ScopeGuard in main() before the first call of "
                  "globalq"));
    if (schedule_->facts(workers_.size()).native)
      throw configuration_error(message(
          "schedule native adds the numbers of one vector; use schedule ring, tree, sra or allgather"));
    expect_operators(operators.size());
    if (settings_.of != 0 && (settings_.of < model_.size() || settings_.first > settings_.of - model_.size()))
      throw configuration_error(message(
          "layers " + std::to_string(settings_.first) + " to " +
          std::to_string(settings_.first + model_.size() - 1) + " exceed the " +
          std::to_string(settings_.of) +
          " layers of the model, so random bits would repeat; set `of` to the model's number of layers"));
    globalq::detail::call_setup setup;
    setup.make_user_scales = globalq::detail::make_user_scales;
    setup.settings = settings_.call;
    setup.facts = plain_.facts;
    setup.resolved = plain_.resolved;
    setup.operation = operation;
    setup.operator_hash = plain_.hash;
    setup.schedule_hash = globalq::detail::schedule_fingerprint(*schedule_, workers_.size());
    setup.chunk_bytes = transport::chunk_bytes_of(workers_);
    chunk_bytes_ = setup.chunk_bytes;
    names_ = names_of(model_);
    compared_ = "layers from " + std::to_string(settings_.first) + " of " + std::to_string(steps_of_a_call());
    if (!settings_.others.empty()) compared_ += ", " + settings_.others;
    compared_in_warm_up_ = "warm_up " + std::to_string(settings_.warm_up) + ", " + compared_;
    link_ = transport::make_endpoint(workers_);
    call_.emplace(*link_, setup, on_,
                  globalq::detail::make_codec(uncompressed{}, setup.facts, setup.resolved, on_));
    for (std::uint32_t k = 0; k < model_.size(); ++k) of_.push_back(k);
    assign(operators);
  }

  layered_mean(layered_mean const&) = delete;
  layered_mean& operator=(layered_mean const&) = delete;
  ~layered_mean() {
    if (queue_) queue_->settle();  // its jobs name this object
  }

  /// @brief Averages all layers of a vector in place.
  /// @param x     model.length() values, of the type of all layers; values between layers are not changed
  /// @param step  number of the training step; with the seed it selects the random bits: use each number once
  /// @throws disagreement_error, non_finite_error if so configured, transport_error, as allreduce_mean does
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    (*this)(x, x, step);
  }
  /// @brief Averages @p x into @p y. Both may be the same memory; otherwise they must not overlap.
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    auto const [in, out, length] = globalq::detail::unchecked_pair_of(x, y);
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(out)>>>::value;
    std::string why = globalq::detail::unequal_lengths(length, globalq::detail::size_of_vector(y));
    if (why.empty()) why = refusal_of(step, length, type);
    settle();
    if (!why.empty()) call_->refuse(why);
    run_flat({in, type}, {out, type}, step);
  }

  /// @brief Averages one vector for each layer, in the order, of the sizes and of the types of the layers.
  void operator()(vector_group const& tensors, std::uint64_t step) {
    std::string const why = refusal_of(step, tensors);
    settle();
    if (!why.empty()) call_->refuse(why);
    run(tensors.members(), step);
  }

  /// @brief Starts a call and returns. The call runs on a background thread, after those that were started before.
  ///
  /// Do not touch the vectors, or the group itself, until the call has ended. See allreduce_mean::start.
  template <Vector V>
  started_call start(V&& x, std::uint64_t step) {
    static_assert(
        globalq::detail::outlasts_call<V>,
        "globalq: the vector is a temporary that is destroyed before the started call ends; give it a "
        "name, and keep it until the call has ended");
    auto const [in, out, length] = globalq::detail::unchecked_pair_of(x, x);
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(out)>>>::value;
    return start_job({run_started, this, {in, type}, {out, type}, length, step, nullptr},
                     refusal_of(step, length, type));
  }
  /// @brief Starts a call with one vector for each layer, in the order, of the sizes and of the types of the layers.
  /// @throws configuration_error if they differ, or if the step is above 2^48 / (number of layers) - 1; the other
  ///         workers' calls then end with an error
  started_call start(vector_group const& tensors, std::uint64_t step) {
    if (std::string const why = refusal_of(step, tensors); !why.empty()) return start_job({}, why);
    return start_job({run_started, this, {}, {}, tensors.size(), step, tensors.members().data()}, {});
  }
  started_call start(vector_group&&, std::uint64_t) = delete;  // it must outlast the call

  /// A call on vectors whose sizes and types the caller has compared with the layers.
  void run_members(std::span<vector_group::member const> members, std::uint64_t step) {
    if (std::string const why = step_refusal(step); !why.empty()) call_->refuse(why);
    run(members, step);
  }
  /// Why the step is out of range; empty if it is not.
  std::string step_refusal(std::uint64_t step) const {
    std::uint64_t const count = steps_of_a_call();
    if (step <= (random::max_step + 1) / count - 1) return {};
    return "step " + std::to_string(step) + " with " + std::to_string(count) +
           " layers is above 2^48 - 1; count steps from 0 and change the seed instead";
  }

  /// @brief Waits until all started calls have ended.
  /// @throws the error of a call that no handle has thrown
  void wait() {
    if (queue_) queue_->wait();
  }

  /// @brief Makes start() use a queue that is shared with other calls over the same transport.
  void run_on(std::shared_ptr<call_queue> queue) {
    if (queue_) queue_->wait();
    expect_threads();
    queue_ = std::move(queue);
  }

  /// @brief Replaces the operator of a layer, from the next call on.
  ///
  /// Every worker must do so between the same two calls, as the handshake compares operators. Started calls end first.
  /// @throws configuration_error if the operator does not fit; nothing is changed then
  void assign(std::size_t layer, any_quantizer const& op) {
    expect_layer(layer);
    slot changed = make(layer, op);
    settle();
    slots_[layer] = std::move(changed);
    refresh();
  }
  /// @brief Replaces the operators of all layers.
  void assign(std::span<any_quantizer const> operators) {
    expect_operators(operators.size());
    std::vector<slot> changed(model_.size());
    for (std::size_t k = 0; k < model_.size(); ++k) changed[k] = make(k, operators[k]);
    settle();
    slots_ = std::move(changed);
    refresh();
  }

  /// @brief Replaces the levels of a layer whose operator has a table of levels; allocates nothing.
  /// @throws configuration_error if their number or kind differs from before
  template <class Table>
  requires std::is_base_of_v<globalq::levels::detail::level_table, Table>
  void set_levels(std::size_t layer, Table const& changed) {
    expect_layer(layer);
    settle();
    if (forced_) return;
    slot& s = slots_[layer];
    s.codec->set_levels(changed);
    globalq::detail::take_values(s.facts, changed);
    refresh();
  }

  /// @brief This worker's residuals of the layers whose operators have error feedback, by name, for a checkpoint. Waits for
  /// calls that were started before. A layer keeps its residual when its operator is replaced.
  saved_state save() const {
    if (queue_) queue_->settle();
    saved_state s(workers_.size(), workers_.rank());
    for (std::size_t k = 0; k < model_.size(); ++k)
      if (feedback_of(k) != nullptr) call_->kept().save(k, model_[k].name, s);
    return s;
  }
  /// @brief Restores the residuals of all layers whose operators have error feedback; see allreduce_mean::load.
  /// Nothing happens if no operator has it.
  /// @throws frame_error if such a layer is missing, or was saved with another size or type. Nothing is changed then.
  void load(std::span<saved_state const> saved) {
    settle();
    bool any = false;
    for (std::size_t k = 0; k < model_.size(); ++k) any = any || feedback_of(k) != nullptr;
    if (!any) return;
    checkpoint const from(saved, workers_.size(), workers_.rank(), "layered_mean::load");
    globalq::detail::residuals all;
    for (std::size_t k = 0; k < model_.size(); ++k)
      if (feedback_options const* const options = feedback_of(k))
        all.load(k, model_[k].name, from, *options, model_[k].size,
                 globalq::detail::mapped_type(model_[k].type));
    call_->kept() = std::move(all);
  }
  /// @brief Makes the next call begin without residuals.
  void forget_residuals() {
    settle();
    call_->kept().clear();
  }
  /// @brief Restores the residuals from before the last call, which returned a mean, for a caller who discards that mean.
  void undo() {
    settle();
    call_->kept().undo();
  }

  /// Whether GLOBALQ_FORCE_FLOAT32 was set at construction, so that all operators were replaced by float32.
  bool forced_to_float32() const { return forced_; }
  /// The layers, in the order of their numbers: names, shapes, types and places in the vector of all layers.
  model_layout const& model() const { return model_; }
  /// Whether a step is before the end of the warm-up.
  bool warms_up(std::uint64_t step) const { return step < settings_.warm_up; }

  /// @brief The name of a layer's operator, with all parameters.
  std::string const& operator_name(std::size_t layer) const {
    expect_layer(layer);
    return slots_[layer].facts.name;
  }

  /// @brief The costs of a call after the warm-up. theta and rounding_steps are the largest of all layers; levels,
  /// headroom and reduce are not set.
  globalq::plan plan() const {
    return detail::layered_plan(model_, slots_, plain_, *schedule_, workers_.size(), chunk_bytes_)
        .of(own_operators());
  }

 private:
  using slot = detail::layer_operator;

  feedback_options const* feedback_of(std::size_t layer) const {
    return globalq::detail::feedback_of(slots_[layer].facts.chain);
  }

  static constexpr char const* operation = "layered_mean";
  static constexpr std::uint64_t grain = random::tile_values;

  slot make(std::size_t k, any_quantizer const& given) const {
    any_quantizer const op = forced_ ? any_quantizer(uncompressed{}).after(given.facts().before) : given;
    slot s(op, *schedule_, workers_.size());
    if (!s.resolved.fits())
      throw configuration_error(message("layer \"" + model_[k].name + "\": " + s.resolved.refusal));
    float_environment const exact;
    s.codec = op.make_codec(s.facts, s.resolved, on_);
    return s;
  }

  /// Updates the members that depend on all operators.
  void refresh() {
    float_environment const exact;  // sizes of chunks are compared
    views_.clear();
    hash_ = model_.size() ^ settings_.alike;
    double bits = 0, values = 0;
    bool whole = false;
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      slot const& s = slots_[k];
      views_.push_back({&s.facts, s.codec.get()});
      hash_ = globalq::detail::hash(globalq::detail::hash(hash_, s.hash), s.facts.levels);
      double const size = static_cast<double>(model_[k].size);
      bits += size * s.facts.wire_bits;
      values += size;
      // a part of a layer does not give the norm of the whole layer's sum
      whole = whole || (s.facts.local && s.facts.bucket == 0 && s.resolved.how == method::requantize);
    }
    std::uint64_t const fill =
        bits == 0 ? 0 : static_cast<std::uint64_t>(8 * static_cast<double>(chunk_bytes_) * values / bits);
    chunk_values_ = whole ? 0 : (settings_.call.chunk_values != 0 ? settings_.call.chunk_values : fill);
  }

  static std::uint64_t names_of(model_layout const& model) {
    std::uint64_t h = model.size();
    for (layer const& l : model) {
      h = globalq::detail::hash(h, l.name);
      for (std::uint64_t extent : l.shape) h = globalq::detail::hash(h, extent);
    }
    return h | 1;
  }

  globalq::detail::group_operators own_operators(std::uint64_t step = 0) const {
    return {views_, of_,           hash_,
            grain,  chunk_values_, names_,
            step,   false,         warms_up(step) ? compared_in_warm_up_ : compared_};
  }

  void run_flat(const_vector x, mutable_vector y, std::uint64_t step) {
    members_.resize(model_.size());
    for (std::size_t k = 0; k < model_.size(); ++k)
      members_[k] = {at(x, model_[k].offset), at(y, model_[k].offset), model_[k].size};
    run(members_, step);
  }

  void run(std::span<vector_group::member const> members, std::uint64_t step) {
    std::uint64_t const count = steps_of_a_call(), first = settings_.first;
    try {
      if (!warms_up(step)) return call_->run(*schedule_, members, own_operators(step), step * count + first);
      globalq::detail::group_slot const plain{&plain_.facts, call_->codec()};
      globalq::detail::group_operators ops = own_operators(step);  // compared in the warm-up as well
      ops.slots = {&plain, 1};
      ops.of = {};
      ops.chunk_values = settings_.call.chunk_values != 0 ? settings_.call.chunk_values : chunk_bytes_ / 4;
      call_->run(*schedule_, members, ops, step * count + first);
    } catch (disagreement_error const&) {
      if (call_->only_operators_differ()) name_the_layer();  // on all workers, or on none
      throw;
    }
  }

  /// Throws an error that names the layer in which the operators differ.
  void name_the_layer() {
    std::vector<std::uint64_t> hashes;
    for (slot const& s : slots_) hashes.push_back(globalq::detail::hash(s.hash, s.facts.levels));
    std::string const what = detail::layer_difference(
        workers_, hashes, [&](std::size_t k) { return slots_[k].facts.name; },
        [&](std::size_t k) { return std::to_string(settings_.first + k) + ", \"" + model_[k].name + "\""; });
    if (what.empty()) return;
    throw disagreement_error("globalq: layered_mean: workers disagree: " + what +
                             "; give layers the same operators on every worker, between the same two "
                             "calls (nothing was changed)" +
                             globalq::detail::float32_forced_text(forced_));
  }

  started_call start_job(call_queue::job const& job, std::string const& refusal) {
    if (!queue_) run_on(std::make_shared<call_queue>());
    if (!refusal.empty()) call_->start_refusal(*queue_, refusal);
    return queue_->start(job);
  }
  static void run_started(call_queue::job const& job) {
    auto& self = *static_cast<layered_mean*>(job.object);
    if (job.members != nullptr)
      self.run({static_cast<vector_group::member const*>(job.members), job.length}, job.step);
    else
      self.run_flat(job.x, job.y, job.step);
  }

  /// @param given  a group of vectors, or the length and the type of one vector
  template <class... Given>
  std::string refusal_of(std::uint64_t step, Given const&... given) const {
    std::string const why = detail::unlike_layout(model_, given...);
    return why.empty() ? step_refusal(step) : why;
  }
  /// The number of steps of random bits that a call uses: one for each layer of the model.
  std::uint64_t steps_of_a_call() const { return std::max<std::uint64_t>({1, model_.size(), settings_.of}); }
  void expect_layer(std::size_t layer) const {
    if (layer >= model_.size())
      throw configuration_error(
          message("there is no layer " + std::to_string(layer) + " among " + std::to_string(model_.size())));
  }
  void expect_operators(std::size_t count) const {
    if (count != model_.size())
      throw configuration_error(
          message(std::to_string(count) + " operators for " + std::to_string(model_.size()) +
                  " layers; give one for each layer, uncompressed{} for those in float32"));
  }
  void expect_threads() {
    if constexpr (requires { workers_.expect_threads(); }) workers_.expect_threads();
  }
  void settle() const {
    if (queue_) queue_->settle();
  }

  std::string message(std::string const& what) const {
    return globalq::detail::worker_message(operation, workers_.rank(), workers_.size(), what);
  }

  Transport& workers_;
  model_layout model_;
  std::unique_ptr<globalq::schedule::erased const> schedule_;
  layered_options settings_;
  kernel::host_executor on_;
  slot plain_;                                       ///< the operator of the warm-up
  bool forced_ = globalq::detail::float32_forced();  ///< all layers travel as float32
  std::vector<slot> slots_;
  std::vector<globalq::detail::group_slot> views_;
  std::vector<std::uint32_t> of_;
  std::vector<vector_group::member> members_;
  std::string compared_, compared_in_warm_up_;  ///< settings
  std::uint64_t hash_ = 0, names_ = 0, chunk_values_ = 0;
  std::size_t chunk_bytes_ = globalq::detail::default_chunk_bytes;
  std::unique_ptr<transport::endpoint> link_;
  std::optional<globalq::detail::host_engine> call_;
  std::shared_ptr<call_queue> queue_;
};

template <class T, class S>
layered_mean(T&, model_layout, std::vector<any_quantizer>, S, layered_options = {}) -> layered_mean<T, S>;
template <class T, class S, class Space>
layered_mean(T&, model_layout, std::vector<any_quantizer>, S, layered_options, Space) -> layered_mean<T, S>;

}  // namespace GLOBALQ_ABI::adapt
