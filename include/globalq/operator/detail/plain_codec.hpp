// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: float32 frames without quantization, as a baseline over the same schedules.

#include "../../kernel/host/value_leaves.hpp"
#include "../../kernel/plain.hpp"
#include "frame_format.hpp"
#include "operator_codec.hpp"

namespace GLOBALQ_ABI::detail {

/// The format of float32 frames, in host memory and on streams.
class plain_frames : public operator_codec {
 public:
  /// Values travel as x / divisor, where divisor is a power of two: 1 unless the sum of all workers would overflow.
  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    return floats_format::bytes(part.count);
  }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    if (part.empty()) return {};
    return {payload::kind::float32, frame.data() + wire::header_bytes, part.count};
  }

 protected:
  static kernel::source_view view_of(source const& s) {
    std::byte const* const values = s.frame.data() + wire::header_bytes;
    return {values, values, s.terms, s.worker};
  }
};

/// Adds float32 values in the order of the schedule. If the sum would overflow, values are divided by 2^k, exactly.
class plain_codec final : public plain_frames {
 public:
  explicit plain_codec(kernel::host_executor on) : on_(std::move(on)) {}

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    add(part, own, sources, reinterpret_cast<float*>(out.data() + wire::header_bytes));
    wire::write_header(out, wire::float32_identifier, terms_of(own, sources), part.count);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (!part.empty()) add(part, false, sources, nullptr);
  }

 private:
  void add(segment part, bool own, std::span<source const> sources, float* out) {
    views_.clear();
    for (source const& s : sources) {
      wire::check_header(s, wire::float32_identifier, part.count, frame_bytes(part, s.terms));
      views_.push_back(view_of(s));
    }
    kernel::source_list const list(views_.data(), views_.size());
    on_.values(part.count,
               kernel::add_floats{{call_.x, part, own, call_.workers / call_.weight, &call_.floats.divisor,
                                   call_.floats.wide, list, out, call_.y, &faults_},
                                  &leaf_});
  }

  kernel::host_executor on_;
  // initialized here, so that an unsupported instruction set is refused before a call
  kernel::value_leaves const& leaf_ = kernel::host::leaves_of_values();
  std::vector<kernel::source_view> views_;
};

}  // namespace GLOBALQ_ABI::detail
