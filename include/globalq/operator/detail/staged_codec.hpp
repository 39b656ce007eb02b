// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of an operator with a stage: sends side values beside its frames, and undoes the stage.

#include "../stage.hpp"
#include "sectioned_codec.hpp"
#include "widened.hpp"

namespace GLOBALQ_ABI::detail {

class staged_codec final : public sectioned_codec {
 public:
  /// @param inner   the codec of the operator without the stage
  /// @param number  of the stage in the operator's chain
  staged_codec(std::unique_ptr<operator_codec> inner, operator_facts const& op, std::size_t number,
               kernel::host_executor const& on)
      : sectioned_codec(std::move(inner), on), chain_(op.chain), number_(number), on_(on) {}

  /// @pre the stages of the chain wrote c.x
  void begin(codec_call const& c) override {
    operator_codec::begin(c);
    stage_places const places = places_of(chain_, c.length, number_);
    auto* const values = const_cast<void*>(c.x.data);
    codec_call inner = c, sides = c;
    // if the mean has the type of mapped vectors, the stage is undone in place
    if (c.y.type != c.x.type) inner.y = {mapped_.get(c.length * size_of(c.x.type)).data(), c.x.type};
    sides.x = at(const_vector{values, c.x.type}, places.sides);
    sides.y = means_ = at(mutable_vector{values, c.x.type}, places.means);
    mean_ = inner.y;
    top_ = top_of(chain_, c.top, number_, c.x.type);
    begin_both(inner, sides);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    sectioned_codec::finish(part, sources);
    if ((faults_ & kernel::out_of_range) != 0) return;
    stage_call const c{on_, call_.length, call_.seed, call_.step, call_.rank, top_, mean_.type};
    bool beyond = chain_[number_]->leave(c, mean_, {means_.data, means_.type}, part);
    if (call_.y.type != mean_.type)
      beyond = narrow(on_, static_cast<float const*>(mean_.data), part, call_.y) || beyond;
    if (beyond) faults_ |= kernel::out_of_range;
  }

 private:
  sections cut(segment part) const override {
    return {part, part.empty() ? segment{} : chain_[number_]->side_values(part)};
  }

  stages chain_;
  std::size_t number_;
  kernel::host_executor on_;
  double top_ = 0;               ///< of values that enter the stage
  byte_buffer mapped_;           ///< means of mapped 16-bit values
  mutable_vector mean_, means_;  ///< of mapped values; of side values
};

}  // namespace GLOBALQ_ABI::detail
