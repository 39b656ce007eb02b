// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief centred_reduce_scatter_mean: every worker gets its shard of the mean, scaled by minimum and maximum.

#include "allreduce_mean.hpp"
#include "detail/centred_shards.hpp"
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
class centred_reduce_scatter_mean
    : public detail::centred_shards<Transport, reduce_scatter_mean<Transport, Operator>> {
  using base = detail::centred_shards<Transport, reduce_scatter_mean<Transport, Operator>>;

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
      : base(operation, workers, std::move(op), nodes, settings, space),
        offsets_(workers, uncompressed{}, schedule::scatter_reduce_allgather{}, settings, space) {}

  /// Averages in place: all of @p x is read, the own shard is written.
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    auto const [in, out, length] = detail::pair_of(x, x, operation);
    run(in, out + this->shard(length).first, length, step);
  }

  /// Averages @p x into the own shard.
  /// @shape mine: shard(x.size()).count values; it may lie inside @p x at its place
  /// @throws what reduce_scatter_mean throws; @p mine is untouched then unless a transfer had begun
  template <Vector X, Vector Y>
  void operator()(X const& x, Y&& mine, std::uint64_t step) {
    std::uint64_t const length = detail::size_of_vector(x);
    this->template expect_shard<Y, X const>(mine, length);
    run(detail::data_of(x), detail::data_of(mine), length, step);
  }

 private:
  static constexpr char const* operation = "centred_reduce_scatter_mean";

  template <class Value>
  void run(Value const* x, Value* mine, std::uint64_t length, std::uint64_t step) {
    segment const own = this->shard(length);
    if (this->call_.forced_to_float32())
      return this->call_(std::span(x, length), std::span(mine, own.count), step);
    auto& kept = this->memory_.template of<Value>();
    kept.values.resize(length);
    kept.midpoints.resize(this->centring_.buckets_of(length));
    this->centring_.centre(x, length, kept.values.data(), kept.midpoints.data());
    this->call_(kept.values, step);
    offsets_(kept.midpoints, step);
    auto* const values = kept.values.data() + own.first;
    auto const* const midpoints =
        kept.midpoints.data() + (this->bucket_ == 0 ? 0 : own.first / this->bucket_);
    bool const finite = this->centring_.template restore<Value>(values, midpoints, own.count);
    this->centring_.write(values, mine, own.count, finite);
  }

  allreduce_mean<Transport, uncompressed, schedule::scatter_reduce_allgather> offsets_;
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
