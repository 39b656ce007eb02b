// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief plan: what a call for several vectors, each with an operator of its own, will do and cost.

#include "../plan.hpp"
#include "grouped_codec.hpp"

namespace globalq::detail {

/// A codec of a group's sizes that does nothing.
class counting_group final : public codec {
 public:
  /// @param codecs  one a slot
  counting_group(group_places const& places, group_operators const& ops,
                 std::span<std::unique_ptr<codec> const> codecs, bool varying)
      : places_(places), ops_(ops), codecs_(codecs), head_(varying ? wire::long_header_bytes : 0) {}

  std::size_t frame_bytes(segment part, int terms) const override {
    if (part.empty()) return 0;
    std::size_t bytes = head_;
    places_.for_each(part, [&](std::size_t k, segment sub) {
      bytes += grouped_codec::padded(codecs_[ops_.slot_of(k)]->frame_bytes(sub, terms));
    });
    return bytes;
  }
  void combine(segment, bool, std::span<source const>, std::span<std::byte>) override {}
  void finish(segment, std::span<source const>) override {}
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  group_places const& places_;
  group_operators const& ops_;
  std::span<std::unique_ptr<codec> const> codecs_;
  std::size_t head_;
};

}  // namespace globalq::detail
