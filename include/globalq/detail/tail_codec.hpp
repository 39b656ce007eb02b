// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief quantizer: a codec made of two: whole buckets by an operator, the values left over as float32.
///
/// Segments begin at multiples of the bucket, and only the last one of a vector may end elsewhere, so what is left over of
/// a segment is left over of the vector. A frame of whole buckets is the operator's, byte for byte; the other one is
///
/// | bytes | content |
/// | --- | --- |
/// | 0.. | where frames differ in length: a header of 32 bytes, wire format 0, that tells the length |
/// | then | the operator's frame of the whole buckets, padded to 16; nothing where there are none |
/// | then | the float32 frame of the rest |

#include "plain_codec.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace globalq::detail {

class tail_codec final : public operator_codec {
 public:
  /// @param whole   the codec of the operator
  /// @param bucket  its bucket, above 0
  tail_codec(std::unique_ptr<operator_codec> whole, std::uint64_t bucket, kernel::host_executor const& on)
      : whole_(std::move(whole)), tail_(on), bucket_(bucket) {}

  /// Bytes of a frame with a tail.
  /// @param differ     whether frames of the operator differ in length
  /// @param quantised  bytes of its frame of the whole buckets
  static std::size_t bytes(bool differ, std::size_t quantised, std::uint64_t tail) {
    return (differ ? wire::long_header_bytes : 0) + padded(quantised) + wire::header_bytes +
           tail * sizeof(float);
  }

  void begin(call const& c) override {
    operator_codec::begin(c);
    whole_->begin(c);
    unit_ = c.plain_unit;
    call plain = c;
    plain.units = {&unit_, 1};
    plain.wide = c.plain_wide;
    tail_.begin(plain);
  }

  void set_levels(levels::detail::level_table const& levels) override { whole_->set_levels(levels); }

  std::size_t head_bytes() const override { return whole_->head_bytes(); }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return head_bytes() == 0 ? room.size()
                             : wire::read_length(room, worker, wire::long_header_bytes, room.size());
  }

  std::size_t frame_bytes(segment part, int terms) const override {
    auto const [whole, rest] = cut(part);
    std::size_t const quantised = whole_->frame_bytes(whole, terms);
    return rest.empty() ? quantised : bytes(head_bytes() != 0, quantised, rest.count);
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    auto const [whole, rest] = cut(part);
    if (rest.empty()) {
      whole_->combine(whole, own, sources, out);
    } else {
      split(part, whole, rest, sources);
      int const terms = terms_of(own, sources);
      std::size_t const head = head_bytes() == 0 ? 0 : wire::long_header_bytes;
      std::size_t used = 0;
      if (!whole.empty()) {
        auto const frame = out.subspan(head, whole_->frame_bytes(whole, terms));
        whole_->combine(whole, own, quantised_, frame);
        used = whole_->length_of(frame, call_.rank);
        std::memset(frame.data() + used, 0, padded(used) - used);
      }
      auto const plain = out.subspan(head + padded(used), tail_.frame_bytes(rest, terms));
      tail_.combine(rest, own, plain_, plain);
      if (head != 0) {
        wire::write_header(out, several, terms, part.count);
        wire::write_length(out, head + padded(used) + plain.size());
      }
    }
    collect_faults();
  }

  void finish(segment part, std::span<source const> sources) override {
    auto const [whole, rest] = cut(part);
    if (rest.empty()) {
      whole_->finish(whole, sources);
    } else {
      split(part, whole, rest, sources);
      whole_->finish(whole, quantised_);
      tail_.finish(rest, plain_);
    }
    collect_faults();
  }

  payload numbers(segment, std::span<std::byte>) const override { return {}; }

 private:
  static constexpr std::uint8_t several = 0;  ///< wire format of a frame of frames
  static constexpr std::size_t padded(std::size_t bytes) { return divide_up<std::size_t>(bytes, 16) * 16; }

  struct halves {
    segment whole, rest;
  };
  halves cut(segment part) const {
    std::uint64_t const rest = part.count % bucket_, whole = part.count - rest;
    return {{part.first, whole}, {part.first + whole, rest}};
  }

  /// The frames inside the sources. What is wrong with one of them is found by the codec that reads it.
  /// @throws frame_error naming the worker, where the frame around them is bad
  void split(segment part, segment whole, segment rest, std::span<source const> sources) {
    quantised_.clear();
    plain_.clear();
    for (source const& s : sources) {
      std::size_t at = 0;
      if (head_bytes() != 0) {
        std::size_t const length =
            wire::read_length(s.frame, s.worker, bytes(true, 0, rest.count), frame_bytes(part, s.terms));
        wire::check_header(s, several, part.count, length);
        at = wire::long_header_bytes;
      }
      if (!whole.empty()) {
        auto const room =
            s.frame.subspan(at, std::min(whole_->frame_bytes(whole, s.terms), s.frame.size() - at));
        std::size_t const used = whole_->length_of(room, s.worker);
        quantised_.push_back({room.first(used), s.terms, s.worker, s.first});
        at = std::min(at + padded(used), s.frame.size());
      }
      plain_.push_back({s.frame.subspan(at), s.terms, s.worker, s.first});
    }
  }

  void collect_faults() { faults_ |= whole_->faults() | tail_.faults(); }

  std::unique_ptr<operator_codec> whole_;
  plain_codec tail_;
  std::uint64_t bucket_;
  double unit_ = 1;
  std::vector<source> quantised_, plain_;  ///< what the sources of a call hold
};

}  // namespace globalq::detail
