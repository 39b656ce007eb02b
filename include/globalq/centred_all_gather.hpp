// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief centred_all_gather: every worker gets the shards of all, quantised between minimum and maximum: weights.

#include "all_gather.hpp"
#include "detail/centred_shards.hpp"

namespace globalq {

/// @brief all_gather around the midpoints of buckets, which travel as they are: the quantised weights of QSDP.
///
/// Weights of a bucket need not lie around zero. Each owner takes the midpoint (min + max) / 2 of each bucket off its
/// shard; what is left is gathered by the operator, the midpoints as they are, and all workers add the same: a value is off by half
/// the range over s levels at most, instead of the largest magnitude over s. Buckets are those of the operator's norm.
///
/// @code
/// gq::centred_all_gather gather{workers, gq::operators::qsdp<8>(1024), {.seed = 42}};
/// gather(shard, weights, step);        // shard: the own gather.shard(weights.size()).count values
/// @endcode
/// Unbiased where the operator is, up to rounding x - m to float32 (float64 vectors: to float64).
/// @tparam Transport  of host memory
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  bit-identical on all workers; independent of threads, nodes and chunks
/// @source Markov 2024 (thesis), chapter 5 (QSDP: weights scaled by minimum and maximum of buckets of 1,024)
template <class Transport, class Operator>
class centred_all_gather : public detail::centred_shards<Transport, all_gather<Transport, Operator>> {
  using base = detail::centred_shards<Transport, all_gather<Transport, Operator>>;

 public:
  centred_all_gather(Transport& workers, Operator op, options const& settings = {})
      : centred_all_gather(workers, std::move(op), schedule::hierarchical<>(1), settings) {}

  /// @param nodes  schedule::hierarchical<>: which workers form a node
  centred_all_gather(Transport& workers, Operator op, schedule::hierarchical<> const& nodes,
                     options const& settings = {})
      : centred_all_gather(workers, std::move(op), nodes, settings, detail::execution_of(workers)) {}

  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> centred_all_gather(Transport& workers, Operator op,
                                                                  schedule::hierarchical<> const& nodes,
                                                                  options const& settings, Space const& space)
      : base(operation, workers, std::move(op), nodes, settings, space),
        gathered_(std::make_shared<detail::centred_memories>()),
        meter_(settings.telemetry) {}

  /// Gathers in place: of @p x the own shard is read, all of it is written.
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    auto const [in, out, length] = detail::pair_of(x, x, operation);
    run(in + this->shard(length).first, out, length, step);
  }

  /// Gathers the own shard into a vector.
  /// @shape mine: shard(all.size()).count values; it may lie inside @p all at its place
  /// @throws what all_gather throws; @p all is untouched then unless a transfer had begun
  template <Vector X, Vector Y>
  void operator()(X const& mine, Y&& all, std::uint64_t step) {
    auto const [in, out, length] = detail::pair_of(all, all, operation);
    this->template expect_shard<X, Y>(mine, length);
    run(detail::data_of(mine), out, length, step);
  }

 private:
  static constexpr char const* operation = "centred_all_gather";

  template <class Value>
  void run(Value const* mine, Value* all, std::uint64_t length, std::uint64_t step) {
    segment const own = this->shard(length);
    if (this->call_.forced_to_float32())
      return this->call_(std::span(mine, own.count), std::span(all, length), step);
    auto& kept = this->memory_.template of<Value>();
    auto& midpoints = gathered_->template of<Value>().midpoints;
    // a block for each worker, as long as the first one needs
    std::uint64_t const block = this->centring_.buckets_of(this->shard(length, 0).count);
    kept.values.resize(length);
    midpoints.assign(block * static_cast<std::uint64_t>(this->workers_.size()), 0);
    auto const block_of = [&](int rank) {
      return midpoints.data() + block * static_cast<std::uint64_t>(rank);
    };
    this->centring_.centre(mine, own.count, kept.values.data() + own.first, block_of(this->workers_.rank()));
    this->call_(kept.values, step);  // finds workers that disagree
    if (block != 0)
      gather(std::as_bytes(std::span(block_of(this->workers_.rank()), block)),
             std::as_writable_bytes(std::span(midpoints)), step, midpoints.size());
    bool finite = true;
    for (int rank = 0; rank < this->workers_.size(); ++rank) {
      segment const part = this->shard(length, rank);
      finite = this->centring_.template restore<Value>(kept.values.data() + part.first, block_of(rank),
                                                       part.count) &&
               finite;
    }
    this->centring_.write(kept.values.data(), all, length, finite);
  }

  /// The midpoints of all workers; reported as a call of its own.
  void gather(std::span<std::byte const> mine, std::span<std::byte> all, std::uint64_t step,
              std::uint64_t values) {
    meter_.watch_phase(this->workers_, operation, step, values, phase::transfer,
                       [&] { exchange(mine, all); });
  }
  void exchange(std::span<std::byte const> mine, std::span<std::byte> all) {
    try {
      transport::allgather(this->workers_, mine, all);
    } catch (transport_error const&) {  // a transfer may still touch them
      if constexpr (transport::OwnRetain<Transport>) {
        this->workers_.retain(gathered_);
        gathered_ = std::make_shared<detail::centred_memories>();
      }
      throw;
    }
  }

  std::shared_ptr<detail::centred_memories> gathered_;  ///< the midpoints of all workers
  detail::call_meter meter_;
};

template <class T, class Op>
centred_all_gather(T&, Op) -> centred_all_gather<T, Op>;
template <class T, class Op>
centred_all_gather(T&, Op, options) -> centred_all_gather<T, Op>;
template <class T, class Op>
centred_all_gather(T&, Op, schedule::hierarchical<>) -> centred_all_gather<T, Op>;
template <class T, class Op>
centred_all_gather(T&, Op, schedule::hierarchical<>, options) -> centred_all_gather<T, Op>;
template <class T, class Op, class Space>
centred_all_gather(T&, Op, schedule::hierarchical<>, options, Space) -> centred_all_gather<T, Op>;

}  // namespace globalq
