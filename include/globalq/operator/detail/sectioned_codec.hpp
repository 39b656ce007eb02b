// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: a codec whose frames contain two frames: that of an operator, and one of float32 numbers.
///
/// | bytes | content |
/// | --- | --- |
/// | 0.. | if frames vary in length: a header of 32 bytes, wire format 0, which contains the length |
/// | then | the operator's frame, padded to 16; nothing if it has no values |
/// | then | the float32 frame |
///
/// A frame without float32 numbers is identical to the operator's.

#include "floats_codec.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::detail {

class sectioned_codec : public operator_codec {
 public:
  sectioned_codec(std::unique_ptr<operator_codec> quantized, kernel::host_executor const& on)
      : quantized_(std::move(quantized)), plain_(on) {}

  void set_levels(levels::detail::level_table const& levels) override { quantized_->set_levels(levels); }

  std::size_t head_bytes() const override { return quantized_->head_bytes(); }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return head_bytes() == 0 ? room.size()
                             : wire::read_length(room, worker, wire::long_header_bytes, room.size());
  }

  std::size_t frame_bytes(segment part, int terms) const override {
    sections const all = cut(part);
    return all.bytes(head_bytes() != 0, quantized_->frame_bytes(all.values, terms));
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    auto const [quantized, plain] = cut(part);
    if (plain.empty()) {
      quantized_->combine(quantized, own, sources, out);
    } else {
      split(part, quantized, plain, sources);
      int const terms = terms_of(own, sources);
      std::size_t const head = head_bytes() == 0 ? 0 : wire::long_header_bytes;
      std::size_t used = 0;
      if (!quantized.empty()) {
        auto const frame = out.subspan(head, quantized_->frame_bytes(quantized, terms));
        quantized_->combine(quantized, own, first_, frame);
        used = quantized_->length_of(frame, call_.rank);
        wire::pad(out.subspan(head), used);
      }
      auto const numbers = out.subspan(head + wire::padded(used), plain_.frame_bytes(plain, terms));
      plain_.combine(plain, own, second_, numbers);
      if (head != 0) {
        wire::write_header(out, several, terms, part.count);
        wire::write_length(out, head + wire::padded(used) + numbers.size());
      }
    }
    collect_faults();
  }

  void finish(segment part, std::span<source const> sources) override {
    auto const [quantized, plain] = cut(part);
    if (plain.empty()) {
      quantized_->finish(quantized, sources);
    } else {
      split(part, quantized, plain, sources);
      quantized_->finish(quantized, first_);
      plain_.finish(plain, second_);
    }
    collect_faults();
  }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    sections const all = cut(part);
    return all.floats.empty() ? quantized_->numbers(all.values, frame) : payload{};
  }

 protected:
  /// The sections of a segment's frame.
  virtual sections cut(segment part) const = 0;

  /// Begins a call of both codecs.
  /// @param floats  the call of the float32 numbers
  void begin_both(codec_call const& quantized, codec_call const& floats) {
    quantized_->begin(quantized);
    plain_.begin(floats);
  }

 private:
  static constexpr std::uint8_t several = 0;  ///< wire format of a frame of frames

  /// Finds the frames inside the sources. The codec that reads a frame checks it.
  /// @throws frame_error that names the worker, if the outer frame is bad
  void split(segment part, segment quantized, segment plain, std::span<source const> sources) {
    first_.clear();
    second_.clear();
    for (source const& s : sources) {
      std::size_t at = 0;
      if (head_bytes() != 0) {
        std::size_t const length = wire::read_length(s.frame, s.worker, sections{{}, plain}.bytes(true, 0),
                                                     frame_bytes(part, s.terms));
        wire::check_header(s, several, part.count, length);
        at = wire::long_header_bytes;
      }
      if (!quantized.empty()) {
        auto const room =
            s.frame.subspan(at, std::min(quantized_->frame_bytes(quantized, s.terms), s.frame.size() - at));
        std::size_t const used = quantized_->length_of(room, s.worker);
        first_.push_back({room.first(used), s.terms, s.worker, s.first});
        at = std::min(at + wire::padded(used), s.frame.size());
      }
      second_.push_back({s.frame.subspan(at), s.terms, s.worker, s.first});
    }
  }

  void collect_faults() { faults_ |= quantized_->faults() | plain_.faults(); }

  std::unique_ptr<operator_codec> quantized_;
  floats_codec plain_;
  std::vector<source> first_, second_;  ///< the frames inside the sources of a call
};

/// The codec of float32_tail: whole buckets by an operator, the remaining values as float32.
class tail_codec final : public sectioned_codec {
 public:
  /// @param whole   the codec of the operator
  /// @param bucket  of the operator, above 0
  tail_codec(std::unique_ptr<operator_codec> whole, std::uint64_t bucket, kernel::host_executor const& on)
      : sectioned_codec(std::move(whole), on), bucket_(bucket) {}

  void begin(codec_call const& c) override {
    operator_codec::begin(c);
    begin_both(c, c);
  }

 private:
  sections cut(segment part) const override { return with_tail(part, bucket_); }

  std::uint64_t bucket_;
};

}  // namespace GLOBALQ_ABI::detail
