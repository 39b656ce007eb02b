// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: which frames of a worker are decoded for its residual, in host memory and on a stream.

#include "forwarding_codec.hpp"
#include "resolve.hpp"

namespace GLOBALQ_ABI::detail {

/// @brief Forwards to the operator's codec, and decodes each frame that this worker makes.
///
/// The residual of own values is these minus their frame, also where the codes of a frame are added to received ones,
/// which is exact. Where a sum is encoded again, it is the sum minus its frame: the owner of a segment adds it to its own
/// values in the next call.
class feedback_frames : public forwarding_codec {
 public:
  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    inner_->combine(part, own, sources, out);
    faults_ |= inner_->faults();
    if (!own || part.empty() || !keeps()) return;
    int terms = terms_of(own, sources);
    std::span<std::byte> frame = out;
    bool const of_sum = encodes_sums_ && !sources.empty();
    if (!sources.empty() && !of_sum) {  // codes are added: the own ones alone
      terms = 1;
      frame = frame_.get(inner_->frame_bytes(part, 1));
      inner_->combine(part, true, {}, frame);
    }
    source const made = made_of(frame, terms);
    void const* const content = decode(decoded_, part, terms, [&] { inner_->finish(part, {&made, 1}); });
    void const* const others =
        of_sum ? decode(received_, part, 1, [&] { inner_->finish(part, sources); }) : nullptr;
    inner_->begin(call_);
    keep(part, content, terms, others);
  }

 protected:
  /// @param inner   the codec of the operator without the first stage of its chain
  /// @param memory  of frames and decoded values
  feedback_frames(std::unique_ptr<operator_codec> inner, operator_facts const& op, method how,
                  std::shared_ptr<byte_memory> const& memory)
      : forwarding_codec(std::move(inner)),
        maps_(op.chain.size() > 1),
        frame_(memory),
        decoded_(memory),
        encodes_sums_(how == method::requantize),
        received_(memory) {}

  /// Whether the call keeps what its frames leave out.
  virtual bool keeps() const = 0;
  /// Before a call that decodes frames and is not part of the result.
  virtual void set_apart(codec_call&) {}
  /// Keeps what a frame left out.
  /// @param content   the mean of the @p terms workers in it, from the part's first value on
  /// @param received  the sum of other workers that went into it too; null: none
  virtual void keep(segment part, void const* content, int terms, void const* received) = 0;

  source made_of(std::span<std::byte> frame, int terms) const {
    return {frame.first(inner_->length_of(frame, call_.rank)), terms, call_.rank, call_.rank};
  }

  /// What finish() writes for the frames in it: the sum of their values divided by @p workers: their number for the frame of
  /// an encoded sum, which codecs decode to nothing else.
  /// @returns that of the part's first value
  template <class Finish>
  void const* decode(byte_buffer& room, segment part, int workers, Finish const& finish) {
    codec_call alone = call_;
    void* const first = room.get(part.count * size_of(call_.x.type)).data();
    alone.y = at(mutable_vector{first, call_.x.type}, -part.first);
    alone.workers = workers;
    alone.weight = 1;
    set_apart(alone);
    inner_->begin(alone);
    finish();
    return first;
  }

  bool maps_;
  byte_buffer frame_, decoded_;

 private:
  bool encodes_sums_;
  byte_buffer received_;
};

}  // namespace GLOBALQ_ABI::detail
