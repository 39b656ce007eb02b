// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of a composition with variable-length codes.
///
/// It wraps the codec with an integer wire: encodes that codec's frames before they are sent, and decodes them after
/// they arrive. The intermediate frame of integers, of one chunk, stays in a cache. The type depends only on the block
/// code, so one coded_codec serves all levels and roundings.

#include "../../kernel/executor.hpp"
#include "../../wire/coded.hpp"
#include "../../wire/integer.hpp"
#include "frame_format.hpp"
#include "operator_codec.hpp"

#include <memory>
#include <utility>

namespace GLOBALQ_ABI::detail {

/// Encodes and decodes the body of a frame; in a library those of built-in codes call leaves.
template <wire::BlockCode Code>
struct coded_body {
  using type = wire::coded<Code>;
};

/// @tparam Code  the block code
template <wire::BlockCode Code>
class coded_codec final : public operator_codec {
  using code_type = typename Code::code_type;

 public:
  using inner_wire = wire::integer<code_type>;

  /// @param inner  the codec of the same composition with inner_wire
  coded_codec(std::unique_ptr<operator_codec> inner, Code code, operator_facts const& facts,
              resolution const& r, kernel::host_executor const& on)
      : inner_(std::move(inner)), format_(facts, r.size), body_(code, r.size, facts.zero_free), on_(on) {}

  void begin(codec_call const& c) override {
    operator_codec::begin(c);
    inner_->begin(c);
  }

  void set_levels(levels::detail::level_table const& levels) override { inner_->set_levels(levels); }

  std::size_t head_bytes() const override { return wire::long_header_bytes; }
  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    return wire::read_length(room, worker, wire::long_header_bytes, room.size());
  }

  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    return format_.bytes(part, call_.x.type);
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    auto const codes = integers(part);
    std::span<source const> const expanded = expand(part, sources);
    inner_->combine(part, own, expanded, codes);
    faults_ |= inner_->faults();
    write(part, codes, terms_of(own, sources), out);
  }

  bool encode_measured(segment all, std::span<double> bucket_scales, std::span<std::byte> out) override {
    if (all.empty()) return false;
    auto const codes = integers(all);
    bool const done = inner_->encode_measured(all, bucket_scales, codes);
    faults_ |= inner_->faults();
    if (done) write(all, codes, 1, out);
    return done;
  }

  void finish(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    inner_->finish(part, verified(part, sources));
    faults_ |= inner_->faults();
  }

  void add_decoded(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    inner_->add_decoded(part, verified(part, sources));
    faults_ |= inner_->faults();
  }

  void verify(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    inner_->verify(part, expand(part, sources));
    verified_ = true;
  }

  wire::frame_traits traits() const override { return inner_->traits(); }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }

 private:
  std::size_t scale_bytes_of(segment part) const { return format_.scale_bytes(part, call_.x.type); }

  /// Room for the frame of the inner codec.
  std::span<std::byte> integers(segment part) { return own_.get(inner_->frame_bytes(part, 1)); }

  /// The expanded sources, if verify() expanded them already; else expands them.
  std::span<source const> verified(segment part, std::span<source const> sources) {
    return std::exchange(verified_, false) ? std::span<source const>(sources_) : expand(part, sources);
  }

  /// Decodes the sources to frames of integers.
  /// @throws frame_error that names the worker; outputs are unchanged then
  std::span<source const> expand(segment part, std::span<source const> sources) {
    verified_ = false;
    sources_.clear();
    while (expanded_.size() < sources.size()) expanded_.emplace_back();
    std::size_t const scales = scale_bytes_of(part), least = wire::long_header_bytes + scales,
                      most = frame_bytes(part, 1);
    for (source const& s : sources) {
      std::size_t const bytes = wire::read_length(s.frame, s.worker, least, most);
      wire::check_header(s, Code::identifier(), part.count, bytes, traits());
      auto const frame = expanded_[sources_.size()].get(inner_->frame_bytes(part, 1));
      wire::write_header(frame, inner_wire::identifier(), s.terms, part.count, traits());
      std::memcpy(frame.data() + wire::header_bytes, s.frame.data() + wire::long_header_bytes, scales);
      code_type* const codes = reinterpret_cast<code_type*>(frame.data() + wire::header_bytes + scales);
      if (body_.decode(on_, s.frame.subspan(least), part.count, codes))
        fail<frame_error>({"globalq: decode: rank ", call_.rank, ": the ", Code::name(),
                           " codes of a frame from worker ", s.worker,
                           " are not valid; the bytes were damaged or made by another operator"});
      sources_.push_back({frame, s.terms, s.worker, s.first});
    }
    return sources_;
  }

  /// Encodes a frame of integers.
  void write(segment part, std::span<std::byte const> integers, int terms, std::span<std::byte> out) {
    std::size_t const scales = scale_bytes_of(part), start = wire::long_header_bytes + scales;
    std::memcpy(out.data() + wire::long_header_bytes, integers.data() + wire::header_bytes, scales);
    code_type const* const codes =
        reinterpret_cast<code_type const*>(integers.data() + wire::header_bytes + scales);
    std::size_t const bytes = body_.encode(on_, codes, part.count, out.subspan(start));
    wire::write_header(out, Code::identifier(), terms, part.count, traits());
    wire::write_length(out, start + bytes);
  }

  std::unique_ptr<operator_codec> inner_;
  coded_format format_;
  typename coded_body<Code>::type body_;
  kernel::host_executor on_;
  byte_buffer own_;
  std::vector<byte_buffer> expanded_;
  std::vector<source> sources_;  ///< the sources expanded last
  bool verified_ = false;        ///< verify() expanded the sources of the next finish() or add_decoded()
};

/// @param inner  the codec with an integer wire
template <wire::BlockCode Code>
std::unique_ptr<operator_codec> make_coded(std::unique_ptr<operator_codec> inner, Code const& code,
                                           operator_facts const& facts, resolution const& r,
                                           kernel::host_executor const& on) {
  return std::make_unique<coded_codec<Code>>(std::move(inner), code, facts, r, on);
}

}  // namespace GLOBALQ_ABI::detail
