// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief telemetry: a codec that measures the phases of a call.

#include "../../core/codec.hpp"
#include "call_meter.hpp"

namespace GLOBALQ_ABI::detail {

/// Measures the time of any codec.
class metered_codec final : public codec {
 public:
  metered_codec(codec& inner, call_meter& meter) : inner_(inner), meter_(meter) {}

  std::size_t frame_bytes(segment part, int terms) const override { return inner_.frame_bytes(part, terms); }
  std::size_t head_bytes() const override { return inner_.head_bytes(); }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return inner_.length_of(room, worker);
  }
  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    auto const timed = meter_.enter(sources.empty() ? phase::encode : phase::reduce);
    inner_.combine(part, own, sources, out);
  }
  void finish(segment part, std::span<source const> sources) override {
    auto const timed = meter_.enter(phase::decode);
    inner_.finish(part, sources);
  }
  void finish_at(segment part, std::span<source const> sources, std::uint64_t to) override {
    auto const timed = meter_.enter(phase::decode);
    inner_.finish_at(part, sources, to);
  }
  bool batches() const override { return inner_.batches(); }
  void encode_all(std::span<unsent const> all) override {
    auto const timed = meter_.enter(phase::encode);
    inner_.encode_all(all);
  }
  void finish_all(std::span<arrived const> all) override {
    auto const timed = meter_.enter(phase::decode);
    inner_.finish_all(all);
  }
  payload numbers(segment part, std::span<std::byte> frame) const override {
    return inner_.numbers(part, frame);
  }
  void declare(std::span<std::byte> frame, int terms) const override { inner_.declare(frame, terms); }

 private:
  codec& inner_;
  call_meter& meter_;
};

/// Runs a schedule, and measures its phases if the call is observed.
template <class Schedule, class T>
void run_metered(call_meter& meter, Schedule const& schedule, T& workers, codec& frames_of,
                 partition const& cut, frame_pool& frames) {
  if (!meter.watching()) return schedule(workers, frames_of, cut, frames);
  auto const timed = meter.enter(phase::transfer);
  metered_codec metered(frames_of, meter);
  schedule(workers, metered, cut, frames);
}

}  // namespace GLOBALQ_ABI::detail
