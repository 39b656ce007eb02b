// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the base of codecs whose frames are those of another one.

#include "operator_codec.hpp"

#include <utility>

namespace GLOBALQ_ABI::detail {

/// f(part) for each run of neighbors.
template <class F>
void for_joined(std::span<arrived const> all, F const& f) {
  segment joined{};
  for (arrived const& each : all) {
    if (joined.first + joined.count != each.part.first) {
      if (!joined.empty()) f(joined);
      joined = {each.part.first, 0};
    }
    joined.count += each.part.count;
  }
  if (!joined.empty()) f(joined);
}

class forwarding_codec : public operator_codec {
 public:
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

  // on streams
  double extent() const override { return inner_->extent(); }
  void note(codec_call const& c) override {
    operator_codec::note(c);
    inner_->note(c);
  }
  bool batches() const override { return inner_->batches(); }

 protected:
  explicit forwarding_codec(std::unique_ptr<operator_codec> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<operator_codec> inner_;
};

}  // namespace GLOBALQ_ABI::detail
