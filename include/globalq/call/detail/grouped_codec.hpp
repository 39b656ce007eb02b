// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: one codec for several vectors; a frame contains the frames of all vectors in a segment.
///
/// The vectors are concatenated to one vector that a schedule partitions. Each begins at a multiple of the grain, so
/// that no random tile spans two vectors. Gaps have no values and take no bytes. If a vector's buckets are longer than
/// the grain, a cut inside it moves to the end of the bucket.

#include "../../operator/detail/inner_frames.hpp"
#include "../../operator/detail/residual.hpp"
#include "opening.hpp"
#include "setup.hpp"

#include <algorithm>

namespace GLOBALQ_ABI::detail {

/// Positions of the vectors of a group.
class group_places {
 public:
  void place(std::span<vector_group::member const> members, group_operators const& ops) {
    starts_.clear();
    buckets_.clear();
    cuts_.clear();
    lengths_.clear();
    std::uint64_t at = 0, b = 0;
    for (std::size_t k = 0; k < members.size(); ++k) {
      starts_.push_back(at);
      buckets_.push_back(b);
      cuts_.push_back(grain_of(ops.facts(k)));
      lengths_.push_back(members[k].length);
      at += divide_up(members[k].length, ops.grain) * ops.grain;
      b += buckets_of(ops.facts(k), members[k].length);
    }
    starts_.push_back(at);
    buckets_.push_back(b);
  }
  std::uint64_t length() const { return starts_.back(); }
  std::uint64_t buckets() const { return buckets_.back(); }
  std::uint64_t first_bucket(std::size_t k) const { return buckets_[k]; }

  /// The last vector that begins at or before a value.
  std::size_t vector_at(std::uint64_t value) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), value) -
                                    starts_.begin() - 1);
  }

  /// Consecutive pieces of equal length within a vector, up to its last whole grain.
  struct cut_pieces {
    std::uint64_t rounds;  ///< how many
    std::uint64_t grain;   ///< cuts move to multiples of it
    std::uint64_t grains;  ///< in all of them
  };
  /// @param piece   the first piece, which begins in vector @p k
  /// @param rounds  maximum number of pieces
  cut_pieces inside(std::size_t k, segment piece, std::uint64_t rounds) const {
    std::uint64_t const grain = cuts_[k], last = lengths_[k] / grain, at = piece.first - starts_[k];
    std::uint64_t const whole = last * grain;
    rounds = at >= whole ? 0 : std::min(rounds, (whole - at) / piece.count);
    return {rounds, grain, divide_up(at + rounds * piece.count, grain) - divide_up(at, grain)};
  }

  /// f(vector, its part) for all vectors with values in a segment.
  template <class F>
  void for_each(segment part, F const& f) const {
    std::uint64_t const end = part.first + part.count;
    for (std::size_t k = vector_at(part.first); k < lengths_.size() && starts_[k] < end; ++k) {
      std::uint64_t const from = cut_at(k, std::max(part.first, starts_[k])), to = cut_at(k, end);
      if (from < to) f(k, segment{from, to - from});
    }
  }

 private:
  /// Where a vector is cut if the group is cut at a value: there, or at the end of the bucket and random tile that
  /// contain it. Relative to the vector's start.
  std::uint64_t cut_at(std::size_t k, std::uint64_t value) const {
    std::uint64_t const inside = std::min(value - starts_[k], lengths_[k]);
    return std::min(divide_up(inside, cuts_[k]) * cuts_[k], lengths_[k]);
  }

  std::vector<std::uint64_t> starts_, buckets_;  ///< one entry more than there are vectors
  std::vector<std::uint64_t> cuts_, lengths_;
};

/// The scales of a call's vectors.
struct group_scales {
  std::span<double const> buckets = {};      ///< of all buckets, in units of 2^wide of the call
  std::span<float_scale const> floats = {};  ///< one per vector; empty: 1
  std::span<double const> vectors = {};  ///< one per vector, of norms with two levels; empty: there are none
};

/// @brief Forwards each part of a segment to the codec of a single vector.
///
/// Vector k draws the random bits of step + k, and its values are counted from its own start, so frames of leaves are
/// those of a call of that vector alone.
class grouped_codec final : public codec {
 public:
  /// @param common  common to all vectors; the rest is filled in for each
  /// @param kept    for operators with error feedback; null: nothing is kept
  /// @returns       the codec that makes the frames: this, or the one of a single vector
  codec& begin(group_operators const& ops, codec_call const& common,
               std::span<vector_group::member const> members, group_places const& places,
               group_scales const& scales, residuals* kept = nullptr) {
    ops_ = ops;
    call_ = common;
    members_ = members;
    places_ = &places;
    scales_ = scales;
    kept_ = kept;
    faults_ = 0;
    beyond_ = members.size();
    entered_.assign(ops.slots.size(), {members.size(), 0});
    varying_ = false;
    for (group_slot const& slot : ops.slots) varying_ = varying_ || slot.codec->head_bytes() != 0;
    if (!ops.single_vector) return *this;
    beyond_ = 0;
    return enter(0);
  }

  std::uint32_t faults() const { return ops_.single_vector ? ops_.slots[0].codec->faults() : faults_; }
  /// The first vector with a value beyond its type's range, if faults() reports one.
  std::size_t beyond_range() const { return beyond_; }

  std::size_t head_bytes() const override { return inner_frames::head_bytes(varying_); }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return wire::read_length(room, worker, wire::long_header_bytes, room.size());
  }

  std::size_t frame_bytes(segment part, int terms) const override {
    if (part.empty()) return 0;
    std::size_t bytes = head_bytes();
    places_->for_each(
        part, [&](std::size_t k, segment sub) { bytes += wire::padded(enter(k).frame_bytes(sub, terms)); });
    return bytes;
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    int terms = own ? 1 : 0;
    for (source const& s : sources) terms += s.terms;
    begin_inner(part, sources);
    std::size_t at = head_bytes();
    places_->for_each(part, [&](std::size_t k, segment sub) {
      operator_codec& inner = enter(k);
      at += combine_inner(inner, sub, own, inner_.next(inner, sub), terms, call_.rank, out.subspan(at));
      collect(k, inner);
    });
    inner_.expect_end();
    if (head_bytes() == 0) return;
    wire::write_header(out, inner_frames::format, terms, part.count);
    wire::write_length(out, at);
  }

  void finish(segment part, std::span<source const> sources) override {
    finish_at(part, sources, part.first);
  }

  void finish_at(segment part, std::span<source const> sources, std::uint64_t to) override {
    if (part.empty()) return;
    begin_inner(part, sources);
    std::size_t const from = places_->vector_at(part.first), into = places_->vector_at(to);
    places_->for_each(part, [&](std::size_t k, segment sub) {
      operator_codec& inner = enter(k, k - from + into);
      inner.finish(sub, inner_.next(inner, sub));
      collect(k, inner);
    });
    inner_.expect_end();
  }

  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  /// Begins vector @p k on its codec. @param into  the vector that is written
  operator_codec& enter(std::size_t k) const { return enter(k, k); }
  operator_codec& enter(std::size_t k, std::size_t into) const {
    std::size_t const slot = ops_.slot_of(k);
    operator_codec& inner = *ops_.slots[slot].codec;
    std::pair const now{k, into};
    if (entered_[slot] != now) inner.begin(call_of(k, into));
    entered_[slot] = now;
    return inner;
  }

  codec_call call_of(std::size_t k, std::size_t into) const {
    vector_group::member const& m = members_[k];
    operator_facts const& op = ops_.facts(k);
    codec_call c = call_;
    c.x = m.x;
    c.y = members_[into].y;
    c.length = m.length;
    c.step = call_.step + k;
    if (!scales_.floats.empty()) c.floats = scales_.floats[k];
    if (!scales_.vectors.empty()) c.vector_scale = scales_.vectors[k];
    if (kept_ != nullptr && feedback_of(op.chain) != nullptr) c.kept = &kept_->of(k);
    if (!scales_.buckets.empty())
      c.bucket_scales = scales_.buckets.subspan(places_->first_bucket(k), buckets_of(op, m.length));
    return c;
  }

  void collect(std::size_t k, operator_codec const& inner) {
    faults_ |= inner.faults();
    if ((inner.faults() & kernel::out_of_range) != 0) beyond_ = std::min(beyond_, k);
  }

  void begin_inner(segment part, std::span<source const> sources) {
    inner_.begin(part, sources, head_bytes(), wire::long_header_bytes,
                 [&](int terms) { return frame_bytes(part, terms); });
  }

  group_operators ops_;
  codec_call call_;
  std::span<vector_group::member const> members_;
  group_places const* places_ = nullptr;
  group_scales scales_;
  residuals* kept_ = nullptr;
  mutable std::vector<std::pair<std::size_t, std::size_t>>
      entered_;  ///< of each slot's codec: the vectors that it reads and writes
  bool varying_ = false;
  std::uint32_t faults_ = 0;
  std::size_t beyond_ = 0;
  inner_frames inner_;
};

}  // namespace GLOBALQ_ABI::detail
