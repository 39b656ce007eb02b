// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of floating-point numbers.

#include "../../kernel/floats.hpp"
#include "../../kernel/host/value_leaves.hpp"
#include "frame_format.hpp"
#include "operator_codec.hpp"

namespace GLOBALQ_ABI::detail {

/// The frames of floating-point numbers, in host memory and on streams.
class floats_frames : public operator_codec {
 public:
  explicit floats_frames(floats_policies const& policies)
      : format_{policies.type}, nearest_(policies.nearest) {}

  /// Values travel as x / divisor, where divisor is a power of two: for float32, 1 unless the sum of all workers would
  /// overflow.
  std::size_t frame_bytes(segment part, int /*terms*/) const override { return format_.bytes(part.count); }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    if (part.empty() || format_.numbers() == payload::kind::none) return {};
    return {format_.numbers(), frame.data() + wire::header_bytes, part.count};
  }

 protected:
  static kernel::source_view view_of(source const& s) {
    std::byte const* const values = s.frame.data() + wire::header_bytes;
    return {values, values, s.terms, s.worker};
  }

  /// The arguments of the loop body, but for the divisor.
  /// @param out  null: the mean is written
  kernel::floats_call call_of(segment part, bool own, kernel::source_list const& sources,
                              std::byte* out) const {
    kernel::floats_call c;
    c.x = call_.x;
    c.part = part;
    c.own = own;
    c.workers = call_.workers / call_.weight;
    c.sources = sources;
    c.sent = format_.type;
    c.nearest = nearest_;
    c.words = {call_.seed, call_.step, static_cast<std::uint32_t>(call_.rank),
               sources.count == 0 ? random::purpose::encode : random::purpose::requantize};
    c.step_at = call_.step_at;
    c.out = out == nullptr ? nullptr : out + wire::header_bytes;
    c.y = call_.y;
    return c;
  }

  floats_format format_;

 private:
  bool nearest_;
};

/// Adds numbers in the order of the schedule, in float32. Sums are divided by 2^k, exactly, so that none overflows.
class floats_codec final : public floats_frames {
 public:
  explicit floats_codec(kernel::host_executor on, floats_policies const& policies = {})
      : floats_frames(policies), on_(std::move(on)) {}

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    add(part, own, sources, out.data());
    wire::write_header(out, format_.identifier(), terms_of(own, sources), part.count);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (!part.empty()) add(part, false, sources, nullptr);
  }

 private:
  void add(segment part, bool own, std::span<source const> sources, std::byte* out) {
    views_.clear();
    for (source const& s : sources) {
      wire::check_header(s, format_.identifier(), part.count, frame_bytes(part, s.terms));
      views_.push_back(view_of(s));
    }
    kernel::add_floats body{call_of(part, own, {views_.data(), views_.size()}, out), &leaf_};
    body.divisor = &call_.floats.divisor;
    body.wide = call_.floats.wide;
    body.faults = &faults_;
    on_.values(part.count, body);
  }

  kernel::host_executor on_;
  // initialized here, so that an unsupported instruction set is refused before a call
  kernel::value_leaves const& leaf_ = kernel::host::leaves_of_values();
  std::vector<kernel::source_view> views_;
};

}  // namespace GLOBALQ_ABI::detail
