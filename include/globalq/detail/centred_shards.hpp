// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief What gathering and scattering of shards around midpoints share.

#include "../quantizer.hpp"
#include "../transport/collectives.hpp"
#include "centring.hpp"
#include "vector.hpp"

#include <string>
#include <utility>

namespace globalq::detail {

/// @tparam Call  all_gather or reduce_scatter_mean, of the centred values
template <class Transport, class Call>
class centred_shards {
  static_assert(!transport::OnStream<Transport>,
                "globalq: shards are centred on the host. On a stream scale by magnitude "
                "(norm::local<infinity>) with all_gather and reduce_scatter_mean");

 public:
  /// The part of a vector that a worker brings, or gets; see all_gather and reduce_scatter_mean.
  segment shard(std::uint64_t length, int rank) const { return call_.shard(length, rank); }
  segment shard(std::uint64_t length) const { return call_.shard(length); }

  /// @brief Other levels from the next call on, for an operator whose levels are a table; on all workers between the same
  /// calls.
  /// @throws configuration_error when they are not as many as before, or of another kind
  template <class Table>
  requires std::is_base_of_v<levels::detail::level_table, Table>
  void set_levels(Table const& changed) { call_.set_levels(changed); }

 protected:
  template <class Operator, class Nodes, class Space>
  centred_shards(char const* operation, Transport& workers, Operator op, Nodes const& nodes,
                 options const& settings, Space const& space)
      : operation_(operation),
        workers_(workers),
        bucket_(facts_of(op).bucket),
        centring_(bucket_, facts_of(op).plain_tail, settings.non_finite, operation,
                  kernel::host_executor(space)),
        call_(workers, std::move(op), nodes, settings, space) {}

  /// Checks that the own shard of a vector was given.
  template <class Shard, class Whole>
  void expect_shard(Shard const& mine, std::uint64_t length) const {
    static_assert(std::is_same_v<value_of<Shard const>, value_of<Whole>>,
                  "globalq: input and output have different types; use one type for both");
    std::uint64_t const given = size_of_vector(mine), own = shard(length).count;
    if (given != own)
      throw configuration_error("globalq: " + std::string(operation_) + ": rank " +
                                std::to_string(workers_.rank()) + " of " + std::to_string(workers_.size()) +
                                ": the shard given has " + std::to_string(given) +
                                " values, and the one of " + std::to_string(length) + " values has " +
                                std::to_string(own) + "; ask shard(length)");
  }

  char const* operation_;
  Transport& workers_;
  std::uint64_t bucket_;
  centring centring_;
  Call call_;
  centred_memories memory_;
};

}  // namespace globalq::detail
