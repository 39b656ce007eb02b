// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of an operator with a stage on a stream.

#include "../../kernel/load_store.hpp"
#include "../stream_stage.hpp"
#include "forwarding_codec.hpp"
#include "resolve.hpp"

namespace GLOBALQ_ABI::detail {

/// Converts the mean to 16-bit values.
struct narrow_values {
  float const* x;
  std::uint64_t first;
  mutable_vector to;
  kernel::agreed_call* agreed;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    if (agreed->writes && kernel::store<1>(to, first + i, 1, store_scale(), x + first + i))
      Kokkos::atomic_or(&agreed->faults, static_cast<std::uint32_t>(kernel::out_of_range));
  }
};

/// The form of a stage on a stream.
/// @throws configuration_error if it has none
template <class Space>
std::shared_ptr<stream_stage<Space> const> on_stream(std::shared_ptr<stage const> const& map,
                                                     operator_facts const& f) {
  auto const* const there = dynamic_cast<stream_stage<Space> const*>(map.get());
  if (there != nullptr && map->side_values({0, 1}).empty()) return {map, there};
  throw configuration_error(
      "globalq: " + f.name + ": " + map->name() +
      " is supported only in host memory; on a stream derive a stage of your own from stream_stage "
      "too, map the values in your own kernel before the call, or average in host memory");
}

template <class Space>
class stream_staged_codec final : public forwarding_codec {
 public:
  /// @param inner   the codec of the operator without the stage
  /// @param number  of the stage in the operator's chain
  stream_staged_codec(std::unique_ptr<operator_codec> inner, operator_facts const& op, std::size_t number,
                      kernel::stream_executor<Space> const& on)
      : forwarding_codec(std::move(inner)), map_(on_stream<Space>(op.chain[number], op)), on_(on) {
    if (op.fixed_scale > 0)
      throw configuration_error(
          "globalq: " + op.name +
          ": norm::fixed of mapped values is supported only in host memory; on a stream use a "
          "measured norm");
    if (!op.has_codes())
      throw configuration_error("globalq: " + op.name +
                                ": stages before floats are supported only in host memory; on a stream use "
                                "floats without the stage");
    for (std::size_t k = 0; k < number; ++k) growth_ *= std::max(1.0, op.chain[k]->growth());
  }

  void enter(codec_call const& c, const_vector x, segment part, mutable_vector to) override {
    map_->enter(call_of(c, to.type), x, part, to);
    inner_->enter(c, {to.data, to.type}, part, to);
  }

  void begin(codec_call const& c) override {
    operator_codec::note(c);
    codec_call inner = c;
    // if the mean has the type of mapped vectors, the stage is undone in place
    if (c.y.type != c.x.type) inner.y = {memory_.get(c.length * size_of(c.x.type)).data(), c.x.type};
    mean_ = inner.y;
    inner_->begin(inner);
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    inner_->combine(part, own, sources, out);
  }
  void finish(segment part, std::span<source const> sources) override {
    inner_->finish(part, sources);
    leave(part);
  }
  void encode_all(std::span<unsent const> all) override { inner_->encode_all(all); }
  void finish_all(std::span<arrived const> all) override {
    inner_->finish_all(all);
    for_joined(all, [&](segment part) { leave(part); });
  }

 private:
  stream_stage_call<Space> call_of(codec_call const& c, dtype type) const {
    return {on_, c.length, c.seed, c.step, c.step_at, c.rank, c.agreed, {growth_, type}, type};
  }
  void leave(segment part) {
    if (part.empty()) return;
    map_->leave(call_of(call_, mean_.type), mean_, part);
    if (call_.y.type != mean_.type)
      on_.items(part.count,
                narrow_values{static_cast<float const*>(mean_.data), part.first, call_.y, call_.agreed});
  }

  std::shared_ptr<stream_stage<Space> const> map_;
  kernel::stream_executor<Space> on_;
  double growth_ = 1;
  byte_buffer memory_{on_.memory()};  ///< means of mapped 16-bit values
  mutable_vector mean_;               ///< of mapped values
};

}  // namespace GLOBALQ_ABI::detail
