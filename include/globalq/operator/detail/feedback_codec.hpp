// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of an operator with error feedback: keeps what its frames leave out.

#include "operator_codec.hpp"
#include "residual.hpp"
#include "resolve.hpp"

namespace GLOBALQ_ABI::detail {

/// @brief Forwards to the operator's codec, and decodes each frame that this worker makes.
///
/// The residual of own values is these minus their frame, also where the codes of a frame are added to received ones,
/// which is exact. Where a sum is encoded again, it is the sum minus its frame: the owner of a segment adds it to its own
/// values in the next call.
class feedback_codec final : public operator_codec {
 public:
  /// @param inner  the codec of the operator without the first stage of its chain
  feedback_codec(std::unique_ptr<operator_codec> inner, operator_facts const& op, method how,
                 kernel::host_executor const& on)
      : inner_(std::move(inner)),
        maps_(op.chain.size() > 1),
        encodes_sums_(how == method::requantize),
        on_(on) {}

  void begin(codec_call const& c) override {
    operator_codec::begin(c);
    inner_->begin(c);
  }
  void set_levels(levels::detail::level_table const& levels) override { inner_->set_levels(levels); }

  std::size_t frame_bytes(segment part, int terms) const override { return inner_->frame_bytes(part, terms); }
  std::size_t head_bytes() const override { return inner_->head_bytes(); }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return inner_->length_of(room, worker);
  }
  payload numbers(segment part, std::span<std::byte> frame) const override {
    return inner_->numbers(part, frame);
  }
  void declare(std::span<std::byte> frame, int terms) const override { inner_->declare(frame, terms); }
  wire::frame_traits traits() const override { return inner_->traits(); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    inner_->combine(part, own, sources, out);
    faults_ |= inner_->faults();
    if (!own || part.empty() || call_.kept == nullptr) return;
    int terms = terms_of(own, sources);
    std::span<std::byte> frame = out;
    bool const of_sum = encodes_sums_ && !sources.empty();
    if (!sources.empty() && !of_sum) {  // codes are added: the own ones alone
      terms = 1;
      frame = frame_.get(inner_->frame_bytes(part, 1));
      inner_->combine(part, true, {}, frame);
    }
    source const made{frame.first(inner_->length_of(frame, call_.rank)), terms, call_.rank, call_.rank};
    void const* const content = decode(decoded_, part, {&made, 1}, terms);
    void const* const others = of_sum ? decode(received_, part, sources, 1) : nullptr;
    inner_->begin(call_);
    call_.kept->keep(on_, maps_ ? call_.kept->entered() : call_.x, part, content, terms, others);
  }

  void finish(segment part, std::span<source const> sources) override {
    inner_->finish(part, sources);
    faults_ |= inner_->faults();
  }

 private:
  /// The sum of the values in frames, divided by @p workers: their number for the frame of an encoded sum, which codecs
  /// decode to nothing else.
  /// @returns that of the part's first value
  void const* decode(byte_buffer& room, segment part, std::span<source const> frames, int workers) {
    codec_call alone = call_;
    std::size_t const size = size_of(call_.x.type);
    void* const first = room.get(part.count * size).data();
    alone.y = at(mutable_vector{first, call_.x.type}, -part.first);
    alone.workers = workers;
    alone.weight = 1;
    inner_->begin(alone);
    inner_->finish(part, frames);
    return first;
  }

  std::unique_ptr<operator_codec> inner_;
  bool maps_, encodes_sums_;
  kernel::host_executor on_;
  byte_buffer frame_, decoded_, received_;
};

}  // namespace GLOBALQ_ABI::detail
