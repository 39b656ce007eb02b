// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief collective: what the calls of all workers share: their parts, checked; vectors, told apart; the engine.

#include "../../call/call_queue.hpp"
#include "../../call/detail/engine.hpp"
#include "../../call/detail/stream_call.hpp"
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

/// What runs the calls with vectors in a place.
template <class Place>
struct engine_at {
  using type = stream_call<Place>;
};
template <>
struct engine_at<Kokkos::HostSpace> {
  using type = host_engine;
};

/// @tparam Place  Kokkos::HostSpace, or the execution space of a stream
template <class Place>
class collective {
  static constexpr bool on_stream = !std::is_same_v<Place, Kokkos::HostSpace>;

 public:
  /// A moved call is only destroyed, or assigned to.
  collective(collective&&) = default;
  collective& operator=(collective&& other) {
    settle();
    body_ = std::move(other.body_);
    queue_ = std::move(other.queue_);
    return *this;
  }
  ~collective() { settle(); }

  /// @brief A call in place.
  /// @param x     this worker's vector; all workers bring the same length and type
  /// @param step  number of the call, below 2^48; with the seed it selects the random bits: use each once. On a stream it may be
  ///              a view of one std::uint64_t in the memory of its space, which is counted up at the end: a call can so be captured
  ///              in a graph, and every replay draws fresh random bits. The same number on every worker.
  /// @throws disagreement_error when workers disagree, or when another one's arguments are refused; configuration_error when
  ///         the own ones are; non_finite_error if so configured; transport_error
  template <class V, class Step = missing_step>
  requires(!VectorGroup<V>) void operator()(V&& x, Step const& step = {}) { run(in_place(x), step_of(step)); }
  template <class Step = missing_step>
  void operator()(vector_group const&, Step const& = {}) {
    static_assert(std::is_void_v<Step>,
                  "globalq: groups are averaged by allreduce_mean; call for each vector");
  }

  /// @brief A call from @p x into @p y, of one type. They may be the same memory, but not overlap otherwise. Or a call in place, of
  /// the y values behind the pointer x.
  /// @shape one length; but the output of reduce_scatter_mean and the input of all_gather are shard(length).count values:
  ///        the own shard by itself, which may lie inside the other vector at its place
  template <class X, class Y, class Step>
  void operator()(X&& x, Y&& y, Step const& step) {
    run(given(x, y), step_of(step));
  }

  /// @brief Starts a call and returns: it runs on a thread of its own, after those that were started before.
  ///
  /// Until it has ended the vectors belong to it (declare them before this object, which waits for its calls when it
  /// goes), and so does the transport: other calls over it must be started on the
  /// same queue (run_on()); a direct call of this object waits for them. What runs meanwhile changes no bit. A worker that
  /// never starts the call is an error of all others when the transport's deadline has passed.
  /// @returns  a handle with test() and wait(); errors that it is not asked for are thrown by wait() of this object
  /// @throws   configuration_error when the arguments are refused; the other workers' calls then end by an error
  template <class V, class Step = missing_step>
  started_call start(V&& x, Step const& step = {}) {
    expect_lasting<V>();
    return start_job(in_place(x), step_of(step).value);
  }
  template <class X, class Y, class Step>
  started_call start(X&& x, Y&& y, Step const& step) {
    if constexpr (!PointerAndNumber<X, Y>) expect_lasting<X, Y>();
    return start_job(given(x, y), step_of(step).value);
  }

  /// @brief Returns when all calls have ended: those that were enqueued on a stream, and those that were started.
  ///
  /// On a queue that other calls use as well, those of all; errors that nobody has asked a handle for are thrown by
  /// whoever waits first.
  /// @throws what went wrong in a call since the last error that was thrown; transport_error
  void wait() {
    if constexpr (on_stream)
      body_->call.wait();
    else if (queue_)
      queue_->wait();
  }

  /// @brief Lets start() use a queue that other calls over the same transport use as well, instead of one of its own.
  /// @throws what a call threw that was started before and that nobody has waited for
  void run_on(std::shared_ptr<call_queue> queue) {
    static_assert(!on_stream, "globalq: calls on a stream are asynchronous already; they need no queue");
    if (queue_) queue_->wait();
    expect_threads();
    queue_ = std::move(queue);
  }

  /// @brief On a stream: false when a call that has run went wrong, which the next call or wait() throws. Does not wait.
  bool good() const {
    if constexpr (on_stream)
      return body_->call.good();
    else
      return true;
  }

  /// @brief Other levels from the next call on, for an operator whose levels are a table (learned ones, say).
  ///
  /// Nothing is allocated. Calls that were started before are waited for: they keep the levels that they were started with.
  /// Every worker must do so between the same two calls: the levels are part of what the opening
  /// exchange compares, so a worker that is early, late or elsewhere is an error of that call on all of them. On a stream
  /// a graph keeps the levels that it was captured with: capture it again. While one is captured, the next call refuses levels
  /// that changed.
  /// @param changed  as many as before, of the same kind: levels::table or levels::symmetric
  /// @throws configuration_error when they are not; nothing is changed then
  template <class Table>
  requires std::is_base_of_v<globalq::levels::detail::level_table, Table>
  void set_levels(Table const& changed) {
    settle();
    if (setup().forced) return;
    body_->call.set_levels(changed);
  }

  /// Whether the operator was replaced by float32, as the environment variable GLOBALQ_FORCE_FLOAT32 asked when this was made.
  bool forced_to_float32() const { return setup().forced; }

  /// How codes are added, how many levels there are, and how many codes are kept free for growth.
  method reduce() const { return setup().resolved.how; }
  std::uint32_t levels() const { return setup().resolved.size; }
  std::uint32_t headroom() const { return setup().resolved.headroom; }

 protected:
  /// @throws configuration_error when there is no such worker, or length is above 2^48
  segment shard_of(std::uint64_t length, int rank) const {
    if (rank < 0 || rank >= workers().size())
      throw configuration_error(message(joined({"there is no worker ", rank})));
    expect_length(length, schedule().facts(workers().size()).operation);
    return part_of(length, rank);
  }

  using memory = Place;
  using endpoint = transport::endpoint_for<Place>;
  using engine = typename engine_at<Place>::type;
  using executor = typename engine::executor;

  /// A call whose vectors have been told apart.
  struct job {
    const_vector x;
    mutable_vector y;
    std::uint64_t length;
    std::string refusal = {};  ///< why there is no such call; empty: there is
  };

  /// What stays where it is when the call is moved.
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
    std::unique_ptr<globalq::schedule::erased const> what;  ///< workers do together
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

  /// What was given before the step.
  template <class X, class Y>
  job given(X& x, Y& y) const {
    if constexpr (PointerAndNumber<X, Y>) {
      std::span const values(x, static_cast<std::size_t>(y));
      return in_place(values);
    } else {
      return between(x, y);
    }
  }

  template <class X, class Y>
  job between(X& x, Y& y) const {
    auto* const in = data_of<memory>(x);
    auto* const out = data_of<memory>(y);
    using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
    static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(in)>>, value>,
                  "globalq: input and output have different types; use one type for both");
    constexpr dtype type = dtype_of<value>::value;
    std::uint64_t const brought = size_of_vector(x), got = size_of_vector(y);
    if (schedule().scatters) {
      segment const own = part_of(brought, workers().rank());
      return {{in, type}, {before(out, own.first), type}, brought, other_shard(brought, own.count, got)};
    }
    if (schedule().gathers) {
      segment const own = part_of(got, workers().rank());
      return {{before(in, own.first), type}, {out, type}, got, other_shard(got, own.count, brought)};
    }
    return {{in, type}, {out, type}, brought, unequal_lengths(brought, got)};
  }

  template <class Step>
  static call_step step_of(Step const& step) {
    if constexpr (StepView<Step>) {
      static_assert(on_stream, "globalq: in host memory the step is a number; pass the value of the view");
      static_assert(reaches<Step, memory>,
                    "globalq: the step is in memory that the stream does not reach; use a view of the "
                    "transport's execution space");
      if (step.size() != 1)
        fail<configuration_error>(
            {"globalq: the step is a view of ", step.size(), " values; pass one of a single value"});
      return {0, step.data()};
    } else {
      expect_step<Step>();
      return {static_cast<std::uint64_t>(step), nullptr};
    }
  }

  /// Waits for started calls, which name the body.
  void settle() {
    if (queue_) queue_->settle();
  }

  /// Why there is no call of so many values at a step; empty: there is.
  static std::string refusal_of(std::uint64_t length, std::uint64_t step) {
    if (step > random::max_step)
      return joined({"step ", step, " is above 2^48 - 1; count steps from 0 and change the seed instead"});
    return length_refusal(length);
  }

  /// Throws; the others are told, but on a stream, where they wait until their deadline.
  [[noreturn]] void refuse(std::string const& why) {
    if constexpr (on_stream)
      throw configuration_error(message(why));
    else
      body_->call.refuse(why);
  }

  template <class Lasting, class Operator, class Schedule, class Options, class Space>
  collective(Lasting&& workers, Operator const& op, Schedule schedule, Options const& settings,
             Space const& space) {
    using Transport = std::remove_reference_t<Lasting>;
    expect_parts<Place, Lasting, Operator, Schedule, Options, Space>();
    auto link = transport::make_endpoint(workers);
    // what a schedule says may lie in it: ask where it stays
    auto what = globalq::schedule::erase(std::move(schedule));
    call_setup setup = set_up(*link, facts_of(op), *what, settings);
    if constexpr (!on_stream && may_have_own_norm<Operator>) setup.make_own_scales = make_own_scales;
    if constexpr (transport::OwnChunkBytes<Transport>) setup.chunk_bytes = workers.chunk_bytes();
    auto const on = executor_of(workers, space);
    body_ = std::make_unique<body>(std::move(link), std::move(what), setup, on,
                                   setup.forced ? make_codec(uncompressed{}, setup.facts, setup.resolved, on)
                                                : make_codec(op, setup.facts, setup.resolved, on));
  }

  template <class Transport, class Space>
  static executor executor_of(Transport& workers, [[maybe_unused]] Space const& space) {
    if constexpr (on_stream) {
      static_assert(std::is_same_v<Space, transports_space>,
                    "globalq: this transport has a stream of its own; give the space to the transport");
      return executor(workers.execution());
    } else if constexpr (!std::is_same_v<Space, transports_space>) {
      return executor(space);
    } else {
      return executor(execution_of(workers));
    }
  }

  /// A shard of any length: one that is refused is refused by the call, which tells the others.
  segment part_of(std::uint64_t length, int rank) const {
    return partition(length, schedule().parts(workers().size()), grain_of(setup().facts), 0).part(rank);
  }

  static std::string other_shard(std::uint64_t length, std::uint64_t own, std::uint64_t given) {
    if (own == given) return {};
    return joined({"the shard given has ", given, " values, and the one of ", length, " values has ", own,
                   "; ask shard(length)"});
  }

  /// Where a vector would begin of which this is value @p first: only values from there on are touched.
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
    static_assert(!on_stream,
                  "globalq: groups are averaged in host memory; on a stream call for each vector");
    std::uint64_t values = 0;
    for (auto const& m : group.members()) values += m.length;
    std::string why = refusal_of(values, step);
    if (why.empty() && !group.empty()) why = refusal_of(values, step + (group.size() - 1));
    if (schedule().facts(workers().size()).native)
      why =
          "schedule native adds the numbers of one vector; use schedule ring, tree, sra or allgather for a "
          "group, or call for each vector";
    settle();
    if (!why.empty()) refuse(why);
    body_->call.run(schedule(), group.members(), false, step);
  }

  template <class... V>
  static constexpr void expect_lasting() {
    static_assert(
        (outlasts_call<V> && ...),
        "globalq: the vector is a temporary, which is gone before the call that is started; give it a name, "
        "and keep it until the call has ended");
  }

  started_call start_job(job const& j, std::uint64_t step) {
    static_assert(!on_stream,
                  "globalq: calls on a stream are asynchronous already: call, and wait() or good() later");
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

  /// Whether another thread may move messages.
  void expect_threads() { workers().expect_threads(); }

  endpoint& workers() const { return *body_->workers; }
  globalq::schedule::erased const& schedule() const { return *body_->what; }
  call_setup const& setup() const { return body_->call.setup(); }

  std::unique_ptr<body> body_;  ///< jobs of a queue name it
  std::shared_ptr<call_queue> queue_;
};

}  // namespace GLOBALQ_ABI::detail
