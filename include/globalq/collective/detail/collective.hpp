// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Common base of the collectives: validates policies, unpacks vectors, owns the engine.

#include "../../call/call_queue.hpp"
#include "../../call/detail/engine.hpp"
#include "../../call/options.hpp"
#include "../../core/vector.hpp"
#include "../../operator/any_quantizer.hpp"
#include "../../plan/plan.hpp"
#include "../../schedule/built_in.hpp"
#include "expect.hpp"

#include <algorithm>
#include <memory>
#include <optional>

namespace GLOBALQ_ABI::detail {

/// @tparam Place  Kokkos::HostSpace, or the execution space of a stream
template <class Place>
class collective {
  static constexpr bool on_stream = !std::is_same_v<Place, Kokkos::HostSpace>;

 public:
  /// A moved-from object may only be destroyed or assigned to.
  collective(collective&&) = default;
  collective& operator=(collective&& other) {
    settle();
    body_ = std::move(other.body_);
    queue_ = std::move(other.queue_);
    return *this;
  }
  ~collective() { settle(); }

  /// @brief Runs the collective in place.
  /// @param x     this worker's vector; the same length and type on all workers
  /// @param step  number of the call, below 2^48, the same on every worker. With the seed it selects the random bits,
  ///              so use each number once. On a stream it may be a view of one std::uint64_t in the memory of its
  ///              space, or a pointer to one; the call increments it at its end, so a call can be captured in a graph and
  ///              every replay draws fresh random bits.
  /// @throws disagreement_error if workers disagree or another worker refused its arguments; configuration_error if
  ///         this worker's arguments are refused; non_finite_error if so configured; transport_error
  template <class V, class Step = missing_step>
  requires(!VectorGroup<V>) void operator()(V&& x, Step const& step = {}) { run(in_place(x), step_of(step)); }
  template <class Step = missing_step>
  void operator()(vector_group const&, Step const& = {}) {
    static_assert(std::is_void_v<Step>,
                  "globalq: only allreduce_mean takes groups; make a call for each vector");
  }

  /// @brief Runs the collective from @p x into @p y, of one type. They may be the same memory but must not overlap
  /// otherwise. With a pointer x and a number y: in place, on y values.
  /// @shape the same length; but the output of reduce_scatter_mean and the input of all_gather have shard(length).count
  ///        values: this worker's shard, which may lie at its place in the other vector
  template <class X, class Y, class Step>
  void operator()(X&& x, Y&& y, Step const& step) {
    run(given(x, y), step_of(step));
  }

  template <class X, class Y, class N, class Step>
  void operator()(X&&, Y&&, N const&, Step const&) {
    expect_one_length<Step>();
  }

  /// @brief Starts the collective and returns. Another thread runs it, after the calls that were started before.
  ///
  /// Until the call has ended, do not touch the vectors. Declare them before this object, whose destructor waits for
  /// its calls. Other calls over the transport must be started on the same queue (run_on()); a direct call of this
  /// object waits for the started ones. Concurrent work does not change the result. If a worker never starts the call,
  /// all others throw when the transport's deadline has passed.
  /// @returns  a handle with test() and wait(); wait() of this object throws errors that no handle has thrown
  /// @throws   configuration_error if the arguments are refused; the other workers' calls then end with an error
  template <class V, class Step = missing_step>
  started_call start(V&& x, Step const& step = {}) {
    expect_lasting<V>();
    return start_job(in_place(x), step_of(step).value);
  }
  /// @brief Starts the collective from @p x into @p y, or with a pointer and a number in place; otherwise as the other
  /// start().
  template <class X, class Y, class Step>
  started_call start(X&& x, Y&& y, Step const& step) {
    if constexpr (!PointerAndNumber<X, Y>) expect_lasting<X, Y>();
    return start_job(given(x, y), step_of(step).value);
  }
  template <class X, class Y, class N, class Step>
  started_call start(X&&, Y&&, N const&, Step const&) {
    expect_one_length<Step>();
    return {};
  }

  /// @brief Blocks until all calls have ended, enqueued and started ones.
  ///
  /// On a shared queue it waits for the calls of all its users; the first wait() throws errors that no handle has
  /// thrown.
  /// @throws the error of a call since the last error that was thrown; transport_error
  void wait() {
    if constexpr (on_stream)
      body_->call.wait();
    else if (queue_)
      queue_->wait();
  }

  /// @brief Makes start() use a queue that is shared with other calls over the same transport.
  /// @throws the error of an earlier call if no wait has thrown it
  void run_on(std::shared_ptr<call_queue> queue) {
    static_assert(!on_stream, "globalq: calls on a stream are already asynchronous; omit the queue");
    if (queue_) queue_->wait();
    expect_threads();
    queue_ = std::move(queue);
  }

  /// @brief On a stream: false if a finished call failed; the next call or wait() then throws the error. Does not
  /// block.
  bool good() const {
    if constexpr (on_stream)
      return body_->call.good();
    else
      return true;
  }

  /// @brief Replaces the levels from the next call on, for an operator with a table of levels, for example learned
  /// ones.
  ///
  /// Allocates nothing. Waits for calls that were started before; they use the old levels.
  /// Every worker must do this between the same two calls: the handshake compares levels, and a mismatch
  /// is an error on all workers. On a stream, a graph keeps the levels that it was captured with, so capture it again.
  /// During a capture, the next call refuses changed levels.
  /// @param changed  the same number of levels, of the same kind: levels::table or levels::symmetric
  /// @throws configuration_error if they differ in that; the old levels then stay
  template <class Table>
  requires std::is_base_of_v<globalq::levels::detail::level_table, Table>
  void set_levels(Table const& changed) {
    settle();
    if (setup().forced) return;
    body_->call.set_levels(changed);
  }

  /// @brief This worker's residuals, for a checkpoint, if the operator has error feedback; else a state without entries.
  /// Waits for calls that were started before.
  saved_state save() const {
    settle();
    saved_state s(workers().size(), workers().rank());
    residuals const& kept = body_->call.kept();
    for (std::size_t k = 0; k < kept.size(); ++k) kept.save(k, std::to_string(k), s);
    return s;
  }

  /// @brief Restores residuals of the same number of workers or another one; see globalq::checkpoint. Call it on every
  /// worker. float64 vectors: exact for magnitudes from 1e-22 to 3e38.
  /// @param saved  the worker's own state, or the states of all old workers in any order
  /// @throws configuration_error if a worker's state is missing or occurs twice, or the operator has no error feedback;
  ///         frame_error if states differ in their vectors. Nothing is changed then.
  void load(std::span<saved_state const> saved) {
    settle();
    if (setup().forced) return;
    feedback_options const* const options = feedback_of(setup().facts.chain);
    if (options == nullptr)
      throw configuration_error(message("load: the operator " + setup().facts.name +
                                        " keeps no residuals; put error_feedback around it, or do not load"));
    checkpoint const from(saved, workers().size(), workers().rank(), "load");
    residuals all;
    auto const any_has = [&](std::size_t k) {
      return std::any_of(from.all().begin(), from.all().end(),
                         [&](saved_state const* s) { return residuals::contains(*s, std::to_string(k)); });
    };
    for (std::size_t k = 0; any_has(k); ++k) all.load(k, std::to_string(k), from, *options);
    if constexpr (on_stream)
      body_->call.load(std::move(all));
    else
      body_->call.kept() = std::move(all);
  }

  /// @brief Makes the next call begin without residuals. Waits for calls that were started before.
  void forget_residuals() {
    settle();
    if constexpr (on_stream)
      body_->call.forget();
    else
      body_->call.kept().clear();
  }

  /// Whether GLOBALQ_FORCE_FLOAT32 was set at construction, so that float32 replaces the operator.
  bool forced_to_float32() const { return setup().forced; }

  /// The method that adds codes. Like levels() and headroom() it depends on the operator, the schedule and the number
  /// of workers, and does not change; set_levels() keeps the number of levels.
  method reduce() const { return setup().resolved.how; }
  /// Number of levels above zero; 0 if float32 is sent.
  std::uint32_t levels() const { return setup().resolved.size; }
  /// Number of codes that the exponential or a user-defined reduce keeps free, so that sums do not overflow; otherwise
  /// 0.
  std::uint32_t headroom() const { return setup().resolved.headroom; }

 protected:
  /// @throws configuration_error if there is no such worker, or length is above 2^48
  segment shard_of(std::uint64_t length, int rank) const {
    if (rank < 0 || rank >= workers().size())
      throw configuration_error(
          message(joined({"there is no worker ", rank, "; pass a rank from 0 to ", workers().size() - 1})));
    expect_length(length, schedule().facts(workers().size()).operation);
    return part_of(length, rank);
  }

  using memory = Place;
  using endpoint = transport::endpoint_for<Place>;
  using engine = typename engine_at<Place>::type;
  using executor = typename engine::executor;

  /// A call with unpacked vectors.
  struct job {
    const_vector x;
    mutable_vector y;
    std::uint64_t length;
    std::string refusal = {};  ///< why the call is refused; empty: it is not
  };

  /// State with a fixed address, also when the collective is moved.
  struct body {
    body(std::unique_ptr<endpoint> of, std::unique_ptr<globalq::schedule::erased const> s,
         call_setup const& setup, executor const& on, std::unique_ptr<operator_codec> codec)
        : workers(std::move(of)), what(std::move(s)), call(*workers, setup, on, std::move(codec)) {}

    void run(job const& j, call_step step) {
      if constexpr (on_stream) {
        call.run(*what, j.x, j.y, j.length, step);
      } else {
        vector_group::member const alone{j.x, j.y, j.length};
        call.run(*what, {&alone, 1}, true, step.value);
      }
    }

    std::unique_ptr<endpoint> workers;
    std::unique_ptr<globalq::schedule::erased const> what;  ///< the collective that workers run
    engine call;
  };

  template <class V>
  job in_place(V& x) const {
    auto* const data = data_of<memory>(x);
    static_assert(!std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                  "globalq: the vector is const; pass one to write to: mean(input, output, step)");
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(data)>>>::value;
    return {{data, type}, {data, type}, size_of_vector(x)};
  }

  /// The vectors that were passed before the step.
  template <class X, class Y>
  job given(X& x, Y& y) const {
    if constexpr (PointerAndNumber<X, Y>) {
      auto const values = values_at<memory>(x, y);
      return in_place(values);
    } else {
      return between(x, y);
    }
  }

  /// The vectors of @p n values at two pointers.
  template <class X, class Y, class N>
  job at_pointers(X const& x, Y const& y, N n) const {
    expect_pointers<X, Y, N>();
    auto const in = values_at<memory>(x, n);
    auto const out = values_at<memory>(y, n);
    return between(in, out);
  }

  template <class X, class Y>
  job between(X& x, Y& y) const {
    auto* const in = data_of<memory>(x);
    auto* const out = data_of<memory>(y);
    using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
    static_assert(!std::is_const_v<std::remove_pointer_t<decltype(out)>>,
                  "globalq: the vector is const; pass one that can be written, after the input");
    static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(in)>>, value>,
                  "globalq: input and output have different types; use one type for both");
    constexpr dtype type = dtype_of<value>::value;
    std::uint64_t const brought = size_of_vector(x), got = size_of_vector(y);
    if (schedule().scatters) {
      segment const own = part_of(brought, workers().rank());
      std::string why = other_shard(brought, own.count, got);
      if (why.empty()) why = shard_refusal(in, brought, own, out);
      return {{in, type}, {before(out, own.first), type}, brought, std::move(why)};
    }
    if (schedule().gathers) {
      segment const own = part_of(got, workers().rank());
      std::string why = other_shard(got, own.count, brought);
      if (why.empty()) why = shard_refusal(out, got, own, in);
      return {{before(in, own.first), type}, {out, type}, got, std::move(why)};
    }
    std::string why = unequal_lengths(brought, got);
    if (why.empty() && in != out && overlap(in, brought, out, got))
      why = "input and output overlap; pass the same memory to both, or memory that does not overlap";
    return {{in, type}, {out, type}, brought, std::move(why)};
  }

  template <class Step>
  static call_step step_of(Step const& step) {
    if constexpr (StepView<Step>) {
      static_assert(on_stream, "globalq: in host memory the step is a number; pass the value of the view");
      static_assert(reaches<Step, memory>,
                    "globalq: the step is in memory that the stream does not reach; use a view of the "
                    "transport's execution space");
      return {0, address_of_step("globalq: ", step)};
    } else if constexpr (StepPointer<Step>) {
      static_assert(on_stream, "globalq: in host memory the step is a number; pass the value at the pointer");
      return {0, address_of_step("globalq: ", step)};
    } else {
      expect_step<Step>();
      return {static_cast<std::uint64_t>(step), nullptr};
    }
  }

  /// Waits for started calls, which refer to the body.
  void settle() const {
    if (queue_) queue_->settle();
  }

  /// Why a call of this length and step is refused; empty: it is not.
  static std::string refusal_of(std::uint64_t length, std::uint64_t step) {
    if (step > random::max_step)
      return joined({"step ", step, " is above 2^48 - 1; count steps from 0 and change the seed instead"});
    return length_refusal(length);
  }

  /// Throws. In host memory it also informs the other workers; on a stream they wait until their deadline.
  [[noreturn]] void refuse(std::string const& why) {
    if constexpr (on_stream)
      throw configuration_error(message(why));
    else
      body_->call.refuse(why);
  }

  template <class Lasting, class Operator, class Schedule, class Options, class Space>
  collective(Lasting&& workers, Operator const& op, Schedule schedule, Options const& settings,
             Space const& space) {
    float_environment const exact;  // properties of the operator are compared
    expect_parts<Place, Lasting, Operator, Schedule, Options, Space>();
    auto link = transport::make_endpoint(workers);
    // setup may point into the schedule, so move the schedule to its final place first
    auto what = globalq::schedule::erase(std::move(schedule));
    call_setup setup = set_up(*link, facts_of(op), *what, settings);
    if constexpr (!on_stream && may_have_user_norm<Operator>) setup.make_user_scales = make_user_scales;
    auto const on = executor_of(workers, space, setup.operation);
    body_ = std::make_unique<body>(std::move(link), std::move(what), setup, on,
                                   setup.forced ? make_codec(uncompressed{}, setup.facts, setup.resolved, on)
                                                : make_codec(op, setup.facts, setup.resolved, on));
  }

  template <class Transport, class Space>
  static executor executor_of(Transport& workers, [[maybe_unused]] Space const& space,
                              [[maybe_unused]] char const* operation) {
    if constexpr (on_stream) {
      static_assert(std::is_same_v<Space, transports_space>,
                    "globalq: this transport has a stream of its own; give the space to the transport");
      return executor(workers.execution(), operation);
    } else if constexpr (!std::is_same_v<Space, transports_space>) {
      return executor(space);
    } else {
      return executor(execution_of(workers));
    }
  }

  /// A shard of any length; the call itself refuses invalid lengths, so that it can inform the other workers.
  segment part_of(std::uint64_t length, int rank) const {
    return partition(length, schedule().parts(workers().size()), grain_of(setup().facts), 0).part(rank);
  }

  static std::string other_shard(std::uint64_t length, std::uint64_t own, std::uint64_t given) {
    if (own == given) return {};
    return joined({"the shard has ", given, " values, but that of a vector of ", length, " values has ", own,
                   "; pass shard(length).count values"});
  }

  template <class Value>
  static bool overlap(Value const* a, std::uint64_t of_a, Value const* b, std::uint64_t of_b) {
    auto const at = [](Value const* p) { return reinterpret_cast<std::uintptr_t>(p); };
    return of_a != 0 && of_b != 0 && at(a) < at(b) + of_b * sizeof(Value) &&
           at(b) < at(a) + of_a * sizeof(Value);
  }

  /// Why a shard cannot be at @p part; empty if it is at its place in the whole vector, or beside it.
  template <class Value>
  static std::string shard_refusal(Value const* whole, std::uint64_t length, segment own, Value const* part) {
    if (!overlap(whole, length, part, own.count) || part == whole + own.first) return {};
    return joined({"the shard overlaps the vector, but is not at its place, values ", own.first, " to ",
                   own.first + own.count - 1,
                   "; pass that part of the vector, or memory that does not overlap it"});
  }

  /// Start of the vector of which @p part is value @p first on; only values from there on are accessed.
  template <class Value>
  static Value* before(Value* part, std::uint64_t first) {
    return reinterpret_cast<Value*>(reinterpret_cast<std::uintptr_t>(part) - first * sizeof(Value));
  }

  std::string message(std::string const& what) const {
    return worker_message(schedule().facts(workers().size()).operation, workers().rank(), workers().size(),
                          what);
  }

  void run(job const& j, call_step step) {
    settle();
    std::string const why = j.refusal.empty() ? refusal_of(j.length, step.value) : j.refusal;
    if (!why.empty()) refuse(why);
    body_->run(j, step);
  }

  void run(vector_group const& group, std::uint64_t step) {
    static_assert(!on_stream, "globalq: groups need host memory; on a stream make a call for each vector");
    std::uint64_t values = 0;
    for (auto const& m : group.members()) {
      if (values > random::max_length) break;  // is refused, and more could wrap around
      values = m.length > random::max_length ? m.length : values + m.length;
    }
    std::string why = refusal_of(values, step);
    if (why.empty() && !group.empty()) why = refusal_of(values, step + (group.size() - 1));
    if (schedule().facts(workers().size()).native)
      why =
          "schedule native adds the numbers of one vector; use schedule ring, tree, sra or allgather for a "
          "group, or make a call for each vector";
    settle();
    if (!why.empty()) refuse(why);
    body_->call.run(schedule(), group.members(), false, step);
  }

  template <class Step>
  static constexpr void expect_one_length() {
    static_assert(
        std::is_void_v<Step>,
        "globalq: only allreduce_mean takes two pointers and one number, because the input and the output "
        "of shards have different lengths; pass std::span(pointer, n) or a Kokkos::View for each");
  }

  template <class... V>
  static constexpr void expect_lasting() {
    static_assert((outlasts_call<V> && ...),
                  "globalq: the vector is a temporary, which is destroyed before the started call ends; give "
                  "it a name, and keep it until the call has ended");
  }

  started_call start_job(job const& j, std::uint64_t step) {
    static_assert(
        !on_stream,
        "globalq: calls on a stream are already asynchronous; make the call, and wait() or good() later");
    if (!queue_) run_on(std::make_shared<call_queue>());
    std::string const why = j.refusal.empty() ? refusal_of(j.length, step) : j.refusal;
    if (!why.empty()) body_->call.start_refusal(*queue_, why);
    call_queue::job const next{run_started, body_.get(), j.x,
                               j.y,         j.length,    step};  // nvcc cannot read this in the call
    return queue_->start(next);
  }

  globalq::plan plan_of(std::uint64_t length, dtype type) const {
    return make_plan(setup().facts, schedule(), workers().size(), length, type, setup().settings.chunk_values,
                     setup().chunk_bytes);
  }

  static void run_started(call_queue::job const& what) {
    job const j{what.x, what.y, what.length};
    call_step const step{what.step, nullptr};
    static_cast<body*>(what.object)->run(j, step);
  }

  /// Throws unless another thread may move messages.
  void expect_threads() { workers().expect_threads(); }

  endpoint& workers() const { return *body_->workers; }
  globalq::schedule::erased const& schedule() const { return *body_->what; }
  call_setup const& setup() const { return body_->call.setup(); }

  std::unique_ptr<body> body_;  ///< jobs of a queue point to it
  std::shared_ptr<call_queue> queue_;
};

}  // namespace GLOBALQ_ABI::detail
