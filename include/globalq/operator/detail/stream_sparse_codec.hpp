// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of a composition with wire::sparse, on a stream.
///
/// The counterpart of coded_codec: kernels encode the frames of the codec with an integer wire before they are sent,
/// and decode them after they arrive. The host waits only for the first 32 bytes of a frame whose length is needed.

#include "../../kernel/stream_sparse.hpp"
#include "../../wire/integer.hpp"
#include "stream_codec.hpp"

#include <memory>
#include <utility>

namespace GLOBALQ_ABI::detail {

/// Writes the header of a sparse frame, except its length, and copies the scales of the frame of integers.
struct write_sparse_head {
  std::uint64_t word, values;  ///< of the header
  std::byte const* scales;
  std::byte* frame;

  /// @param i  0: the header; else 8 bytes of the scales
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    auto* const out = reinterpret_cast<std::uint64_t*>(frame);
    if (i == 0) {
      out[0] = word;
      out[1] = values;
      out[3] = 0;
      return;
    }
    out[3 + i] = reinterpret_cast<std::uint64_t const*>(scales)[i - 1];
  }
};

/// Checks the head of a sparse frame, and writes that of the corresponding frame of integers.
struct read_sparse_head {
  std::byte const* frame;
  std::uint64_t word, values;   ///< the expected header
  std::uint64_t bytes;          ///< bytes received
  std::uint64_t head, least;    ///< bytes of header and scales; the fewest bytes of the body
  std::uint64_t most;           ///< the most bytes of the body
  std::uint64_t* body;          ///< receives the bytes of the body, or 0
  std::byte* integers;          ///< the frame of integers
  std::uint64_t integers_word;  ///< its first word
  std::uint32_t* faults;

  /// @param i  0: the headers; else 8 bytes of the scales
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    auto const* const in = reinterpret_cast<std::uint64_t const*>(frame);
    auto* const out = reinterpret_cast<std::uint64_t*>(integers);
    if (i != 0) {
      out[1 + i] = in[3 + i];
      return;
    }
    std::uint64_t const length = in[2];
    bool const bad = in[0] != word || in[1] != values || in[3] != 0 || length > bytes ||
                     length < head + least || length > head + most;
    if (bad) Kokkos::atomic_or(faults, static_cast<std::uint32_t>(kernel::bad_frame));
    *body = bad ? 0 : length - head;
    out[0] = integers_word;
    out[1] = values;
  }
};

/// @tparam Int  of the codes
template <class Int, class Space>
class stream_sparse_codec final : public operator_codec {
 public:
  using inner_wire = wire::integer<Int>;

  /// @param inner  the codec of the same composition with inner_wire
  stream_sparse_codec(std::unique_ptr<operator_codec> inner, operator_facts const& facts, resolution const& r,
                      kernel::stream_executor<Space> const& on)
      : inner_(std::move(inner)),
        format_(facts, r.size),
        coder_(r.size, facts.zero_free),
        on_(on),
        body_(body_memory_.template get_values<std::uint64_t>(1)),
        head_(head_memory_.get(wire::long_header_bytes)) {}

  void note(codec_call const& c) override {
    operator_codec::note(c);
    lengths_.clear();
    inner_->note(c);
  }
  double extent() const override { return inner_->extent(); }

  void begin(codec_call const& c) override {
    note(c);
    inner_->begin(c);
  }

  void set_levels(levels::detail::level_table const& levels) override { inner_->set_levels(levels); }

  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    return format_.bytes(part, call_.x.type);
  }

  std::size_t head_bytes() const override { return wire::long_header_bytes; }

  std::size_t length_of(std::span<std::byte const> room, int worker) const override {
    for (known const& k : lengths_)
      if (k.frame == room.data()) return k.bytes;
    if (room.size() < head_.size()) return wire::read_length(room.first(0), worker, head_.size(), 0);
    on_.copy_out(head_.data(), room.data(), head_.size());
    if (call_.wait)
      call_.wait();
    else
      on_.fence();
    std::size_t const bytes = wire::read_length(head_, worker, head_.size(), room.size());
    lengths_.push_back({room.data(), bytes});
    return bytes;
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    std::span<std::byte> const integers = room_in(own_, inner_->frame_bytes(part, 1));
    inner_->combine(part, own, expand(part, sources), integers);
    std::size_t const scales = scale_bytes_of(part);
    int const terms = terms_of(own, sources);
    write_sparse_head const head{word_of(code::identifier(), terms), values_of(part),
                                 integers.data() + wire::header_bytes, out.data()};
    on_.items(1 + scales / 8, head);
    coder_.encode(on_, integers_of(integers, scales), part.count, out.data() + head_bytes_of(part),
                  reinterpret_cast<std::uint64_t*>(out.data() + wire::header_bytes), head_bytes_of(part));
    forget(out.data());
  }

  void finish(segment part, std::span<source const> sources) override {
    if (!part.empty()) inner_->finish(part, expand(part, sources));
  }
  void add_decoded(segment part, std::span<source const> sources) override {
    if (!part.empty()) inner_->add_decoded(part, expand(part, sources));
  }

  wire::frame_traits traits() const override { return inner_->traits(); }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte> frame, int terms) const override { inner_->declare(frame, terms); }

 private:
  using code = wire::sparse<Int>;

  struct known {
    std::byte const* frame;
    std::size_t bytes;
  };

  static std::uint64_t word_of(std::uint8_t wire, int terms) {
    return header_word(wire) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(terms)) << 32;
  }
  std::uint64_t values_of(segment part) const { return wire::word_of_values(part.count, traits()); }
  static Int* integers_of(std::span<std::byte> integers, std::size_t scales) {
    return reinterpret_cast<Int*>(integers.data() + wire::header_bytes + scales);
  }

  std::size_t scale_bytes_of(segment part) const { return format_.scale_bytes(part, call_.x.type); }
  std::size_t head_bytes_of(segment part) const { return format_.head_bytes(part, call_.x.type); }

  std::span<std::byte> room_in(byte_buffer& memory, std::size_t bytes) const {
    if (bytes > memory.capacity() && on_.capturing()) kernel::refuse_unprepared_capture(on_.operation());
    return memory.get(bytes);
  }

  /// Forgets the length of a frame, whose bytes will change.
  void forget(std::byte const* frame) {
    std::erase_if(lengths_, [&](known const& k) { return k.frame == frame; });
  }

  /// Enqueues decoding of the sources to frames of integers.
  std::span<source const> expand(segment part, std::span<source const> sources) {
    sources_.clear();
    while (expanded_.size() < sources.size()) {
      if (on_.capturing()) kernel::refuse_unprepared_capture(on_.operation());
      expanded_.emplace_back(on_.memory());
    }
    std::size_t const scales = scale_bytes_of(part), head = head_bytes_of(part);
    for (source const& s : sources) {
      std::size_t const least = head + coder_.least(part.count);
      if (s.frame.size() < least)  // so that no kernel reads beyond it
        throw frame_error("globalq: decode: bad frame from worker " + std::to_string(s.worker) + ": " +
                          std::to_string(s.frame.size()) + " bytes instead of at least " +
                          std::to_string(least) +
                          "; the bytes were damaged or made by another version or operator");
      std::span<std::byte> const frame = room_in(expanded_[sources_.size()], inner_->frame_bytes(part, 1));
      std::uint32_t* const faults = &call_.agreed->faults;
      read_sparse_head const read{s.frame.data(),
                                  word_of(code::identifier(), s.terms),
                                  values_of(part),
                                  s.frame.size(),
                                  head,
                                  coder_.least(part.count),
                                  coder_.capacity(part.count),
                                  body_,
                                  frame.data(),
                                  word_of(inner_wire::identifier(), s.terms),
                                  faults};
      on_.items(1 + scales / 8, read);
      coder_.decode(on_, s.frame.data() + head, body_, part.count, integers_of(frame, scales), faults);
      sources_.push_back({frame, s.terms, s.worker, s.first});
      forget(s.frame.data());
    }
    return sources_;
  }

  std::unique_ptr<operator_codec> inner_;
  coded_format format_;
  wire::stream_sparse<Int, Space> coder_;
  kernel::stream_executor<Space> on_;
  byte_buffer own_{on_.memory()};
  std::vector<byte_buffer> expanded_;
  std::vector<source> sources_;  ///< the sources expanded last
  mutable std::vector<known> lengths_;
  byte_buffer body_memory_{on_.memory()};
  byte_buffer head_memory_{on_.pinned_memory()};
  std::uint64_t* body_;        ///< bytes of the body that is decoded
  std::span<std::byte> head_;  ///< head of the frame whose length was read last
};

}  // namespace GLOBALQ_ABI::detail
