// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief centred_reduce_scatter_mean: every worker gets its shard of the mean, scaled by minimum and maximum.

#include "allreduce_mean.hpp"
#include "detail/centring.hpp"
#include "reduce_scatter_mean.hpp"

namespace globalq {

/// @brief reduce_scatter_mean around the midpoints of buckets: the gradients of QSDP.
///
/// As centred_mean, but each worker gets its shard only: mean(x) = mean(x - m) + mean(m), the first by the operator, the
/// second in float32 by all workers. Buckets are those of the operator's norm.
///
/// @code
/// gq::centred_reduce_scatter_mean scatter{workers, gq::operators::qsdp<8>(1024), {.seed = 42}};
/// scatter(gradient, shard, step);      // shard: the own scatter.shard(gradient.size()).count values
/// @endcode
/// Unbiased where the operator is, up to rounding x - m to float32 (float64 vectors: to float64).
/// @tparam Transport  of host memory
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  independent of threads and chunks
/// A result beyond the range of its type is known to the worker whose shard it is in, and to no other.
/// @source Markov 2024 (thesis), chapter 5 (QSDP: quantised gradients before each ReduceScatter)
template <class Transport, class Operator>
class centred_reduce_scatter_mean {
  static_assert(!transport::OnStream<Transport>,
                "globalq: centred_reduce_scatter_mean runs on the host. On a stream scale by magnitude "
                "(norm::local<infinity>) with reduce_scatter_mean");

 public:
  centred_reduce_scatter_mean(Transport& workers, Operator op, options const& settings = {})
      : centred_reduce_scatter_mean(workers, std::move(op), schedule::hierarchical<>(1), settings) {}

  /// @param nodes  schedule::hierarchical<>: which workers form a node
  centred_reduce_scatter_mean(Transport& workers, Operator op, schedule::hierarchical<> const& nodes,
                              options const& settings = {})
      : centred_reduce_scatter_mean(workers, std::move(op), nodes, settings, detail::execution_of(workers)) {}

  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> centred_reduce_scatter_mean(
      Transport& workers, Operator op, schedule::hierarchical<> const& nodes, options const& settings,
      Space const& space)
      : workers_(workers),
        bucket_(detail::facts_of(op).bucket),
        centring_(bucket_, detail::facts_of(op).plain_tail, settings.non_finite, operation,
                  kernel::host_executor(space)),
        scatter_(workers, std::move(op), nodes, settings, space),
        offsets_(workers, uncompressed{}, schedule::scatter_reduce_allgather{}, settings, space) {}

  /// The part of a vector that a worker gets; see reduce_scatter_mean.
  segment shard(std::uint64_t length, int rank) const { return scatter_.shard(length, rank); }
  segment shard(std::uint64_t length) const { return scatter_.shard(length); }

  /// Averages in place: all of @p x is read, the own shard is written.
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    auto const [in, out, length] = detail::pair_of(x, x, operation);
    run(in, out + shard(length).first, length, step);
  }

  /// Averages @p x into the own shard.
  /// @shape mine: shard(x.size()).count values; it may lie inside @p x at its place
  /// @throws what reduce_scatter_mean throws; @p mine is untouched then unless a transfer had begun
  template <Vector X, Vector Y>
  void operator()(X const& x, Y&& mine, std::uint64_t step) {
    static_assert(std::is_same_v<detail::value_of<X const>, detail::value_of<Y>>,
                  "globalq: input and output have different types; use one type for both");
    std::uint64_t const length = detail::size_of_vector(x);
    segment const own = shard(length);
    if (detail::size_of_vector(mine) != own.count)
      throw configuration_error("globalq: " + std::string(operation) + ": rank " +
                                std::to_string(workers_.rank()) + " of " + std::to_string(workers_.size()) +
                                ": the shard given has " + std::to_string(detail::size_of_vector(mine)) +
                                " values, and the one of " + std::to_string(length) + " values has " +
                                std::to_string(own.count) + "; ask shard(length)");
    run(detail::data_of(x), detail::data_of(mine), length, step);
  }

  /// @brief Other levels from the next call on, for an operator whose levels are a table; on all workers between the same calls.
  /// @throws configuration_error when they are not as many as before, or of another kind
  template <class Table>
  requires std::is_base_of_v<levels::detail::level_table, Table>
  void set_levels(Table const& changed) { scatter_.set_levels(changed); }

 private:
  static constexpr char const* operation = "centred_reduce_scatter_mean";

  template <class Value>
  void run(Value const* x, Value* mine, std::uint64_t length, std::uint64_t step) {
    auto& kept = memory_.template of<Value>();
    segment const own = shard(length);
    kept.values.resize(length);
    kept.midpoints.resize(centring_.buckets_of(length));
    centring_.centre(x, length, kept.values.data(), kept.midpoints.data());
    scatter_(kept.values, step);
    offsets_(kept.midpoints, step);
    auto* const values = kept.values.data() + own.first;
    auto const* const midpoints = kept.midpoints.data() + (bucket_ == 0 ? 0 : own.first / bucket_);
    bool const finite = centring_.template restore<Value>(values, midpoints, own.count);
    centring_.write(values, mine, own.count, finite);
  }

  Transport& workers_;
  std::uint64_t bucket_;
  detail::centring centring_;
  reduce_scatter_mean<Transport, Operator> scatter_;
  allreduce_mean<Transport, uncompressed, schedule::scatter_reduce_allgather> offsets_;
  detail::centred_memories memory_;
};

template <class T, class Op>
centred_reduce_scatter_mean(T&, Op) -> centred_reduce_scatter_mean<T, Op>;
template <class T, class Op>
centred_reduce_scatter_mean(T&, Op, options) -> centred_reduce_scatter_mean<T, Op>;
template <class T, class Op>
centred_reduce_scatter_mean(T&, Op, schedule::hierarchical<>) -> centred_reduce_scatter_mean<T, Op>;
template <class T, class Op>
centred_reduce_scatter_mean(T&, Op, schedule::hierarchical<>, options) -> centred_reduce_scatter_mean<T, Op>;
template <class T, class Op, class Space>
centred_reduce_scatter_mean(T&, Op, schedule::hierarchical<>, options, Space)
    -> centred_reduce_scatter_mean<T, Op>;

}  // namespace globalq
