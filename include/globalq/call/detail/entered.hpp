// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: vectors that are encoded in place of the caller's: sums of nodes, mapped by the stages of operators.

#include "../../operator/detail/residual.hpp"
#include "../../operator/detail/staged_codec.hpp"
#include "grouped_codec.hpp"

namespace GLOBALQ_ABI::detail {

/// The encoded vectors of one call, in memory that the next call reuses.
class entered_vectors {
 public:
  explicit entered_vectors(kernel::host_executor const& on) : on_(on), plain_(on) {
    plain_facts_.content = frame_content::floats;
  }

  void clear() { items_.clear(); }

  /// @param x     a vector of finite values
  /// @param part  the part of it that this worker contributes; begins at a bucket
  /// @param sums  whether the sum of a node replaces it
  void add(const_vector x, std::uint64_t length, segment part, operator_facts const& op, bool sums) {
    item i{x, {}, length, part, &op};
    if (memory_.size() == items_.size()) memory_.emplace_back();
    if (sums || !op.chain.empty()) {
      i.room.type = mapped_type(x.type);
      i.room.data = memory_[items_.size()].get(values_of(op.chain, length) * size_of(i.room.type)).data();
    }
    items_.push_back(i);
  }

  /// The vector to encode in place of vector @p k.
  const_vector operator[](std::size_t k) const { return items_[k].x; }
  /// The same before stages.
  /// @pre the last map() kept it
  const_vector given(std::size_t k) const { return items_[k].given; }

  /// Replaces all vectors by the sums of this worker's node, divided by the size of the largest node.
  /// @param c       the call
  /// @param scales  divisors of float32 values, one per vector; empty: 1
  void sum_nodes(schedule::erased const& schedule, transport::endpoint& workers, codec_call c,
                 std::span<float_scale const> scales, std::uint64_t chunk_values, frame_pool& frames) {
    members_.clear();
    for (item const& i : items_) members_.push_back({i.x, i.room, i.length});
    group_slot const slot{&plain_facts_, &plain_};
    group_operators const ops{{&slot, 1}, {}, 0, random::tile_values, chunk_values};
    places_.place(members_, ops);
    c.workers = schedule.facts(workers.size()).largest_node;
    c.weight = 1;
    group_.begin(ops, c, members_, places_, {.floats = scales});
    schedule.sum_in_node(workers, group_, places_.length(), chunk_values, frames);
    for (item& i : items_) i.x = {i.room.data, i.room.type};
  }

  /// Applies the stages of operators.
  /// @param c     the call; vector k draws the random bits of step + k
  /// @param keep  whether given() will be called: vectors that are mapped in place are copied
  /// @param kept  of the call; an operator with error feedback adds that of its vector first
  /// @param step  of the caller, which decides whether residuals are reset
  void map(codec_call const& c, bool keep, residuals& kept, std::uint64_t step) {
    while (keep && kept_.size() < items_.size()) kept_.emplace_back();
    for (std::size_t number = 0; number < items_.size(); ++number) {
      item& i = items_[number];
      i.given = i.x;
      if (i.op->chain.empty()) continue;
      const_vector const mapped{i.room.data, i.room.type};
      if (feedback_options const* const feedback = feedback_of(i.op->chain);
          feedback != nullptr && i.length != 0) {
        kept.of(number).enter(on_, *feedback, step, widened(on_, i.x, i.part, i.room), i.length, i.part,
                              i.room, i.op->chain.size() > 1);
        i.given = i.x = mapped;
      }
      if (keep && i.x.data == mapped.data) {
        std::size_t const size = size_of(i.x.type), first = i.part.first * size;
        std::byte* const copy = kept_[number].get(i.length * size).data();
        std::memcpy(copy + first, static_cast<std::byte const*>(i.x.data) + first, i.part.count * size);
        i.given = {copy, i.x.type};
      }
      enter(i.op->chain, {on_, i.length, c.seed, c.step + number, c.rank, c.top, mapped.type},
            widened(on_, i.x, i.part, i.room), i.part, i.room);
      i.x = mapped;
    }
  }

 private:
  struct item {
    const_vector x;
    mutable_vector room;  ///< memory of this object, if the vector is replaced
    std::uint64_t length;
    segment part;
    operator_facts const* op;
    const_vector given{};  ///< before stages
  };

  kernel::host_executor on_;
  floats_codec plain_;
  operator_facts plain_facts_;
  grouped_codec group_;
  group_places places_;
  std::vector<item> items_;
  std::vector<vector_group::member> members_;
  std::vector<byte_buffer> memory_, kept_;
};

}  // namespace GLOBALQ_ABI::detail
