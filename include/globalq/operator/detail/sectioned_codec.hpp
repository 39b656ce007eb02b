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
#include "inner_frames.hpp"

#include <memory>
#include <utility>

namespace GLOBALQ_ABI::detail {

class sectioned_codec : public operator_codec {
 public:
  sectioned_codec(std::unique_ptr<operator_codec> quantized, kernel::host_executor const& on)
      : quantized_(std::move(quantized)), plain_(on) {}

  void set_levels(levels::detail::level_table const& levels) override { quantized_->set_levels(levels); }
  wire::frame_traits traits() const override { return quantized_->traits(); }

  /// @pre frames without float32 numbers
  void verify(segment part, std::span<source const> sources) override { quantized_->verify(part, sources); }

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
      std::size_t const head = begin_inner(part, plain, sources);
      int const terms = terms_of(own, sources);
      std::size_t at = head;
      if (!quantized.empty())
        at += combine_inner(*quantized_, quantized, own, inner_.next(*quantized_, quantized), terms,
                            call_.rank, out.subspan(head));
      auto const numbers = out.subspan(at, plain_.frame_bytes(plain, terms));
      plain_.combine(plain, own, inner_.rest(), numbers);
      if (head != 0) {
        wire::write_header(out, inner_frames::format, terms, part.count);
        wire::write_length(out, at + numbers.size());
      }
    }
    collect_faults();
  }

  void finish(segment part, std::span<source const> sources) override {
    auto const [quantized, plain] = cut(part);
    if (plain.empty()) {
      quantized_->finish(quantized, sources);
    } else {
      begin_inner(part, plain, sources);
      if (!quantized.empty()) quantized_->finish(quantized, inner_.next(*quantized_, quantized));
      plain_.finish(plain, inner_.rest());
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
  /// @returns the bytes before the inner frames
  std::size_t begin_inner(segment part, segment plain, std::span<source const> sources) {
    std::size_t const head = inner_frames::head_bytes(head_bytes() != 0);
    inner_.begin(part, sources, head, sections{{}, plain}.bytes(true, 0),
                 [&](int terms) { return frame_bytes(part, terms); });
    return head;
  }

  void collect_faults() { faults_ |= quantized_->faults() | plain_.faults(); }

  std::unique_ptr<operator_codec> quantized_;
  floats_codec plain_;
  inner_frames inner_;
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
