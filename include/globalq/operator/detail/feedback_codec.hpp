// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of an operator with error feedback: keeps what its frames leave out.

#include "feedback_frames.hpp"
#include "residual.hpp"

namespace GLOBALQ_ABI::detail {

class feedback_codec final : public feedback_frames {
 public:
  /// @param inner  the codec of the operator without the first stage of its chain
  feedback_codec(std::unique_ptr<operator_codec> inner, operator_facts const& op, method how,
                 kernel::host_executor const& on)
      : feedback_frames(std::move(inner), op, how, byte_memory::host()), on_(on) {}

  void begin(codec_call const& c) override {
    operator_codec::begin(c);
    inner_->begin(c);
  }
  void finish(segment part, std::span<source const> sources) override {
    inner_->finish(part, sources);
    faults_ |= inner_->faults();
  }

 private:
  bool keeps() const override { return call_.kept != nullptr; }
  void keep(segment part, void const* content, int terms, void const* received) override {
    call_.kept->keep(on_, maps_ ? call_.kept->entered() : call_.x, part, content, terms, received);
  }

  kernel::host_executor on_;
};

}  // namespace GLOBALQ_ABI::detail
