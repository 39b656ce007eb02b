// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: several vectors behind one codec: a frame is the frames of the vectors that a segment touches.
///
/// The vectors lie one after the other in a vector that a schedule cuts; each begins at a multiple of the grain, so that
/// neither a bucket nor a random tile has values of two. What lies between has no values and takes no bytes.

#include "../vector_group.hpp"
#include "operator_codec.hpp"

#include <algorithm>

namespace globalq::detail {

/// Where the vectors of a group lie.
class group_places {
 public:
  /// @param grain  of the layout: a multiple of the bucket and of the random tile
  void place(std::span<vector_group::member const> members, std::uint64_t grain, std::uint64_t bucket) {
    starts_.clear();
    buckets_.clear();
    std::uint64_t at = 0, b = 0;
    for (auto const& m : members) {
      starts_.push_back(at);
      buckets_.push_back(b);
      at += divide_up(m.length, grain) * grain;
      b += m.length == 0 ? 0 : (bucket == 0 ? 1 : divide_up(m.length, bucket));
    }
    starts_.push_back(at);
    buckets_.push_back(b);
  }
  std::uint64_t length() const { return starts_.back(); }
  std::uint64_t buckets() const { return buckets_.back(); }
  std::uint64_t first_bucket(std::size_t k) const { return buckets_[k]; }
  std::uint64_t start(std::size_t k) const { return starts_[k]; }
  /// The vector in which a value lies.
  std::size_t member_at(std::uint64_t value) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), value) -
                                    starts_.begin()) -
           1;
  }

 private:
  std::vector<std::uint64_t> starts_, buckets_;  ///< one more than vectors
};

/// @brief Passes each part of a segment to the codec of single vectors.
///
/// Vector k draws the random bits of step + k, and its values are counted from its own start: frames of leaves are those of
/// a call by itself.
class grouped_codec final : public codec {
 public:
  /// @param common  of all vectors; x, y, length and units are filled in for each
  /// @param units   of all buckets; a single one where all share it
  void begin(operator_codec& inner, call const& common, std::span<vector_group::member const> members,
             group_places const& places, std::span<double const> units) {
    inner_ = &inner;
    call_ = common;
    members_ = members;
    places_ = &places;
    units_ = units;
    faults_ = 0;
    current_ = members.size();
    if (!members.empty()) enter(0);
  }

  std::uint32_t faults() const { return faults_; }

  std::size_t head_bytes() const override { return inner_->head_bytes() == 0 ? 0 : wire::long_header_bytes; }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return wire::read_length(room, worker, wire::long_header_bytes, room.size());
  }

  std::size_t frame_bytes(segment part, int terms) const override {
    if (part.empty()) return 0;
    std::size_t bytes = head_bytes();
    for_each(part, [&](std::size_t, segment sub) { bytes += padded(inner_->frame_bytes(sub, terms)); });
    return bytes;
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    int terms = own ? 1 : 0;
    for (source const& s : sources) terms += s.terms;
    start(part, sources);
    std::size_t at = head_bytes();
    for_each(part, [&](std::size_t k, segment sub) {
      enter(k);
      auto const frame = out.subspan(at, inner_->frame_bytes(sub, terms));
      inner_->combine(sub, own, next(sub), frame);
      faults_ |= inner_->faults();
      at += padded(inner_->length_of(frame, call_.rank));
    });
    expect_end();
    if (head_bytes() == 0) return;
    wire::write_header(out, 0, terms, part.count);
    wire::write_length(out, at);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    start(part, sources);
    for_each(part, [&](std::size_t k, segment sub) {
      enter(k);
      inner_->finish(sub, next(sub));
      faults_ |= inner_->faults();
    });
    expect_end();
  }

  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  static constexpr std::size_t padded(std::size_t bytes) { return divide_up<std::size_t>(bytes, 16) * 16; }

  /// f(vector, its part) for all vectors of which a segment has values.
  template <class F>
  void for_each(segment part, F const& f) const {
    std::uint64_t const end = part.first + part.count;
    for (std::size_t k = places_->member_at(part.first); k < members_.size() && places_->start(k) < end;
         ++k) {
      std::uint64_t const from = std::max(part.first, places_->start(k)) - places_->start(k),
                          to = std::min(end - places_->start(k), members_[k].length);
      if (from < to) f(k, segment{from, to - from});
    }
  }

  /// Tells the inner codec which vector comes.
  void enter(std::size_t k) {
    if (k == current_) return;
    current_ = k;
    call c = call_;
    c.x = members_[k].x;
    c.y = members_[k].y;
    c.length = members_[k].length;
    c.step = call_.step + k;
    c.units = units_.size() == 1 ? units_ : units_.subspan(places_->first_bucket(k));
    inner_->begin(c);
  }

  /// Checks what frames begin with.
  void start(segment part, std::span<source const> sources) {
    sources_.assign(sources.begin(), sources.end());
    at_.assign(sources.size(), head_bytes());
    parts_.resize(sources.size());
    if (head_bytes() == 0) return;
    for (source const& s : sources) {
      std::size_t const bytes =
          wire::read_length(s.frame, s.worker, wire::long_header_bytes, frame_bytes(part, s.terms));
      wire::check_header(s, 0, part.count, bytes);
    }
  }

  /// The next vector's frames in all sources.
  std::span<source const> next(segment sub) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      source const& s = sources_[i];
      std::size_t const room = std::min(inner_->frame_bytes(sub, s.terms), s.frame.size() - at_[i]);
      auto const left = s.frame.subspan(at_[i], room);
      std::size_t const bytes = inner_->length_of(left, s.worker);
      parts_[i] = {left.first(bytes), s.terms, s.worker, s.first};
      at_[i] = std::min(at_[i] + padded(bytes), s.frame.size());
    }
    return parts_;
  }

  /// Frames end where their last vector's does.
  void expect_end() const {
    for (std::size_t i = 0; i < sources_.size(); ++i)
      if (at_[i] != sources_[i].frame.size())
        throw frame_error(
            "globalq: decode: bad frame from worker " + std::to_string(sources_[i].worker) + ": " +
            std::to_string(sources_[i].frame.size() - at_[i]) +
            " bytes behind its last vector; the bytes were damaged or made by another operator");
  }

  operator_codec* inner_ = nullptr;
  call call_;
  std::span<vector_group::member const> members_;
  group_places const* places_ = nullptr;
  std::span<double const> units_;
  std::size_t current_ = 0;  ///< the vector that the inner codec knows of
  std::uint32_t faults_ = 0;
  std::vector<source> sources_, parts_;
  std::vector<std::size_t> at_;  ///< first byte of the next vector's frame, for each source
};

}  // namespace globalq::detail
