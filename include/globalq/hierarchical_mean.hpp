// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief hierarchical_mean: float32 sums inside a node, where bytes are cheap, and an operator between nodes.

#include "allreduce_mean.hpp"
#include "schedule/hierarchical.hpp"
#include "transport/group.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace globalq {

namespace detail {

/// The outcome of the calls between leaders, as members of a node learn it.
struct told_outcome {
  enum kind : std::uint32_t { fine, configuration, disagreement, transport, not_finite, frame, other };
  std::uint32_t what = fine;
  char text[1020] = {};

  /// Runs f; what it throws is written down and thrown again when all have been told.
  template <class F>
  std::exception_ptr of(F const& f) {
    try {
      f();
      return nullptr;
    } catch (configuration_error const& e) {
      return note(configuration, e);
    } catch (disagreement_error const& e) {
      return note(disagreement, e);
    } catch (transport_error const& e) {
      return note(transport, e);
    } catch (non_finite_error const& e) {
      return note(not_finite, e);
    } catch (frame_error const& e) {
      return note(frame, e);
    } catch (std::exception const& e) {
      return note(other, e);
    }
  }

  /// Throws what was written down.
  void rethrow() const {
    switch (what) {
      case fine:
        return;
      case configuration:
        throw configuration_error(text);
      case disagreement:
        throw disagreement_error(text);
      case transport:
        throw transport_error(text);
      case not_finite:
        throw non_finite_error(text);
      case frame:
        throw frame_error(text);
      default:
        throw error(text);
    }
  }

 private:
  std::exception_ptr note(kind k, std::exception const& e) {
    what = k;
    std::strncpy(text, e.what(), sizeof text - 1);
    return std::current_exception();
  }
};

}  // namespace detail

/// @brief Averages vectors over nodes of workers: plain sums inside a node, an operator between the nodes' leaders.
///
/// Each node adds in float32, which costs little where its workers share memory. Leaders, the first worker of each node,
/// average the sums by the operator: its norm is that of the sums, so there are as many roundings as nodes, not as workers. Members
/// get their leader's bytes. schedule::hierarchical is the same with the operator's frames inside a node, too.
///
/// Calls need the memory of one vector besides, so that nothing is written where a call is refused.
/// @code
/// gq::hierarchical_mean mean{workers, op, gq::schedule::ring{}, /*node_size=*/8, {.seed = 42}};
/// mean(gradient, step);
/// @endcode
/// @tparam Transport  of host memory
/// @tparam Outer      schedule between leaders
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
/// @source Markov 2024 (thesis), chapter 3 (CGX): uncompressed inside a node, compressed between nodes
template <class Transport, class Operator, class Outer>
class hierarchical_mean {
  static_assert(!transport::OnStream<Transport>,
                "globalq: hierarchical_mean runs on the host; on a stream use schedule::hierarchical");
  using group = transport::group<Transport>;

 public:
  /// @param between    schedule between leaders
  /// @param node_size  workers of a node; the last one may have fewer
  /// @throws configuration_error as allreduce_mean does, on all workers; and when node_size is below 1
  hierarchical_mean(Transport& workers, Operator op, Outer between, int node_size,
                    options const& settings = {})
      : hierarchical_mean(workers, std::move(op), std::move(between), nodes_of(workers, node_size),
                          settings) {}

  /// @param node_sizes  workers of each node, consecutive ranks; together as many as there are
  hierarchical_mean(Transport& workers, Operator op, Outer between, std::vector<int> const& node_sizes,
                    options const& settings = {})
      : hierarchical_mean(workers, std::move(op), std::move(between), nodes_of(workers, node_sizes),
                          settings) {}

  /// Averages in place.
  /// @param x     this worker's vector; all workers bring the same length and type
  /// @param step  number of the call, below 2^48; with the seed it selects the random bits: use each once
  /// @throws disagreement_error when workers disagree, non_finite_error if so configured, transport_error
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    (*this)(x, x, step);
  }

  /// Averages @p x into @p y, of the same length and type; they may be the same.
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    auto const [in, out, length] = detail::pair_of(x, y, "hierarchical_mean");
    using value = std::remove_pointer_t<std::remove_cv_t<decltype(out)>>;
    try {
      if constexpr (std::is_same_v<value, double>)
        run(in, out, length, step, memory_->wide);
      else
        run(in, out, length, step, memory_->narrow);
    } catch (transport_error const&) {  // a transfer may still touch what the call waits for
      if constexpr (transport::OwnRetain<Transport>) {
        workers_.retain(memory_);
        memory_ = std::make_shared<memory>();
      }
      throw;
    }
  }

  /// Changes the levels of the operator, as allreduce_mean::set_levels; on all workers between the same calls.
  template <class Table>
  requires std::is_base_of_v<levels::detail::level_table, Table>
  void set_levels(Table const& levels) {
    if (mean_) mean_->set_levels(levels);
    levels_hash_ = detail::level_hash(levels);
  }

 private:
  using inner = allreduce_mean<group, uncompressed, schedule::scatter_reduce_allgather>;
  using outer = allreduce_mean<group, Operator, Outer>;

  using node_map = schedule::detail::node_map;

  /// What a transfer may still touch when a call is given up.
  struct memory {
    std::vector<detail::opening_record> records;
    detail::told_outcome told;
    std::vector<float> narrow;
    std::vector<double> wide;
  };

  hierarchical_mean(Transport& workers, Operator op, Outer between, node_map const& nodes,
                    options const& settings)
      : workers_(workers),
        settings_(settings),
        meter_(settings.telemetry),
        memory_(std::make_shared<memory>()) {
    int const count = nodes.count(), mine = nodes.node_of(workers.rank()), size = nodes.size(mine);
    // a node's mean counts as often as it has workers
    weight_ = static_cast<double>(size) * count / workers.size();
    detail::operator_facts const facts = detail::facts_of(op);
    detail::resolution const r = detail::resolve(facts, between.facts(count), count);
    if (!r.fits()) throw configuration_error(r.refusal);  // on members too
    operator_hash_ = detail::hash(detail::parameter_hash(op), facts.name);
    levels_hash_ = detail::levels_hash(op);
    name_ = std::string("hierarchical_mean ") + between.facts(count).name;
    for (int each : nodes.sizes) name_ += " " + std::to_string(each);
    options inside = settings;
    inside.non_finite = non_finite::propagate;  // the leaders' call decides for all
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), nodes.leader(mine));
    node_ = std::make_unique<group>(workers, members);
    sum_ = std::make_unique<inner>(*node_, uncompressed{}, schedule::scatter_reduce_allgather{}, inside);
    if (node_->rank() != 0) return;
    leaders_ = std::make_unique<group>(workers, nodes.leaders);
    mean_ = std::make_unique<outer>(*leaders_, std::move(op), std::move(between), settings);
  }

  [[noreturn]] static void refuse(Transport const& workers, std::string const& what) {
    throw configuration_error(detail::worker_message("hierarchical_mean", workers.rank(), workers.size(),
                                                     what,
                                                     "give one size for all nodes, or the size of each"));
  }
  static node_map nodes_of(Transport const& workers, int node_size) {
    if (node_size < 1) refuse(workers, "nodes of " + std::to_string(node_size) + " workers");
    node_map nodes;
    nodes.cut(workers.size(), node_size, {});
    return nodes;
  }
  static node_map nodes_of(Transport const& workers, std::vector<int> const& sizes) {
    for (int size : sizes)
      if (size < 1) refuse(workers, "a node of " + std::to_string(size) + " workers");
    node_map nodes;
    if (!nodes.cut(workers.size(), 0, sizes))
      refuse(workers, "nodes of " + std::to_string(std::accumulate(sizes.begin(), sizes.end(), 0LL)) +
                          " workers together, and there are " + std::to_string(workers.size()));
    return nodes;
  }

  /// All workers mean the same call; else all throw the same, before anything is done.
  void agree(dtype type, std::uint64_t length, std::uint64_t step) {
    detail::agreement const agreed(type, detail::hash(operator_hash_, levels_hash_), name_, workers_.size(),
                                   settings_.seed, settings_.non_finite, length);
    detail::opening_record const mine = agreed.record(step, 0, 0);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(workers_.size()));
    transport::allgather(workers_, std::as_bytes(std::span(&mine, 1)),
                         std::as_writable_bytes(std::span(records)));
    detail::check_agreement(records, "hierarchical_mean");
  }

  /// f(), reported as a call of its own.
  template <class F>
  void reported(phase what, std::uint64_t step, F const& f) {
    meter_.watch_phase(workers_, "hierarchical_mean", step, 0, what, f);
  }

  template <class Value, class Wide>
  void run(Value const* x, Value* y, std::uint64_t length, std::uint64_t step, std::vector<Wide>& sum) {
    constexpr dtype type = dtype_of<Value>::value;
    reported(phase::opening, step, [&] { agree(type, length, step); });
    if (length == 0) return;
    sum.resize(length);
    for (std::uint64_t i = 0; i < length; ++i) sum[i] = static_cast<Wide>(x[i]);
    (*sum_)(sum, step);
    std::exception_ptr thrown;  // between leaders
    if (mean_) {
      if (weight_ != 1.0)
        for (Wide& v : sum) v = static_cast<Wide>(static_cast<double>(v) * weight_);
      memory_->told = {};
      thrown = memory_->told.of([&] { (*mean_)(sum, step); });
    }
    reported(phase::transfer, step, [&] {
      transport::broadcast(*node_, 0, std::as_writable_bytes(std::span(&memory_->told, 1)));
      if (thrown) std::rethrow_exception(thrown);
      memory_->told.rethrow();
      transport::broadcast(*node_, 0, std::as_writable_bytes(std::span(sum)));
    });
    bool beyond = false;  // of the range of 16-bit values: all workers see it alike
    if constexpr (!std::is_same_v<Value, Wide>)
      for (Wide v : sum)
        beyond = beyond || (!is_finite(static_cast<Wide>(static_cast<Value>(v))) && is_finite(v));
    if (beyond && settings_.non_finite == non_finite::error)
      throw non_finite_error(
          detail::non_finite_text("hierarchical_mean", detail::beyond_range_text(type), false));
    if (beyond) return fill({y, type}, length, true);
    for (std::uint64_t i = 0; i < length; ++i) y[i] = static_cast<Value>(sum[i]);
  }

  Transport& workers_;
  options settings_;
  detail::call_meter meter_;
  double weight_ = 1;  ///< of this node's mean
  std::uint64_t operator_hash_ = 0, levels_hash_ = 0;
  std::string name_;
  std::unique_ptr<group> node_, leaders_;
  std::unique_ptr<inner> sum_;
  std::unique_ptr<outer> mean_;  ///< of leaders only
  std::shared_ptr<memory> memory_;
};

template <class T, class Op, class S, class Nodes>
hierarchical_mean(T&, Op, S, Nodes) -> hierarchical_mean<T, Op, S>;
template <class T, class Op, class S, class Nodes>
hierarchical_mean(T&, Op, S, Nodes, options) -> hierarchical_mean<T, Op, S>;

}  // namespace globalq
