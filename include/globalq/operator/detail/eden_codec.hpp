// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of EDEN: each frame has a rotation of its own, and a scale computed from its codes.

#include "../../kernel/reduction.hpp"
#include "eden_frames.hpp"

#include <functional>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// The sum of a[i] * b[i], with the same bits everywhere: products of float32 are exact in float64.
inline double inner_product(float const* a, float const* b, int count) {
  double sums[16] = {};
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int j = 0; j < 16; ++j) sums[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
    keep_order(sums);
  }
  for (int j = 0; i + j < count; ++j)
    sums[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
  return norm::add_up(sums);
}

/// @brief Rotates the values of each frame, and undoes it for each frame alone.
///
/// Codes are those of a quantizer for float32, whose scale is a fixed share of a block's Euclidean norm. Then a block's codes
/// decode to q, and the frame's scale is that times |y|^2 / <q, y> with y the rotated block: what a frame decodes to is
/// unbiased along the vector. A block is encoded and decoded in units of a power of two, so that nothing overflows.
///
/// Signs depend on the worker that encodes, so no two frames of a mean have the same rotation.
class eden_codec final : public eden_frames {
 public:
  /// @param codes    the codec of the quantizer
  /// @param largest  the largest level, if the standard deviation of rotated values is 1
  eden_codec(std::unique_ptr<operator_codec> codes, operator_facts const& op, double largest,
             kernel::host_executor const& on)
      : eden_frames(std::move(codes), op, largest), on_(on) {}

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    check(part, sources);
    find_units(part, own, sources);
    float* const y = values_.get_values<float>(part.count);
    if (own)
      load(part, y);
    else
      std::fill_n(y, part.count, 0.0F);
    for (source const& s : sources) decode(part, s, y, true);
    int const terms = terms_of(own, sources);
    random::stream const signs = signs_of(call_.rank, terms);
    each_block(part, [&](std::uint64_t, segment block) { turn(signs, part.first, block, y); });
    encode(part, y, out);
    wire::write_header(out, identifier_, terms, part.count, traits());
  }

  void finish(segment part, std::span<source const> sources) override { write(part, sources, leaf_.store); }
  void add_decoded(segment part, std::span<source const> sources) override {
    write(part, sources, leaf_.store_sum);
  }

  void verify(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    check(part, sources);
    units_.assign(format_.scales(part), 0);
    for (source const& s : sources) {
      source const inner = codes_of(part, s);
      codes_->verify({0, part.count}, {&inner, 1});
    }
  }

 private:
  /// f(number, block) for all blocks of a part, on all threads; blocks are relative to the part.
  template <class F>
  void each_block(segment part, F const& f) const {
    std::uint64_t const blocks = format_.scales(part),
                        group = std::max<std::uint64_t>(1, kernel::host_values / format_.bucket);
    on_.items(divide_up(blocks, group), [&](std::uint64_t item) {
      for (std::uint64_t b = item * group, end = std::min(b + group, blocks); b < end; ++b)
        f(b, segment{b * format_.bucket, std::min(format_.bucket, part.count - b * format_.bucket)});
    });
  }
  /// f(first, count) for pieces of a block.
  template <class F>
  static void each_piece(segment block, F const& f) {
    for (std::uint64_t at = 0; at < block.count; at += kernel::host_values)
      f(block.first + at, static_cast<int>(std::min(kernel::host_values, block.count - at)));
  }

  // ---- rotation

  /// Rotates a block.
  /// @param start  of the part in the vector
  void turn(random::stream const& signs, std::uint64_t start, segment block, float* part) const {
    eden_rotations const r(block);
    for (int i = 0; i < r.count; ++i) {
      float* const x = part + r.first[i];
      leaf_.turn_signs(signs, start + r.first[i] + r.shift(i), r.size(), eden_factor(r.k), x, x);
      leaf_.hadamard(x, r.size());
    }
  }
  /// Undoes turn().
  void turn_back(random::stream const& signs, std::uint64_t start, segment block, float* part) const {
    eden_rotations const r(block);
    for (int i = r.count; i-- > 0;) {
      float* const x = part + r.first[i];
      leaf_.hadamard(x, r.size());
      leaf_.turn_signs(signs, start + r.first[i] + r.shift(i), r.size(), eden_factor(r.k), x, x);
    }
  }

  // ---- units

  /// Of each block the largest exponent of the norm of own values and the scales of frames, 0 without any; in units of 2^wide.
  void find_units(segment part, bool own, std::span<source const> sources) {
    units_.resize(format_.scales(part));
    for (std::uint64_t b = 0; b < units_.size(); ++b) {
      double most = own ? call_.bucket_scales[format_.first_bucket(part) + b] : 0.0;
      for (source const& s : sources)
        most = std::max(most, read_scale(s.frame.data() + wire::header_bytes, b, scales()));
      units_[b] = eden_unit(most);
    }
  }

  /// Own values of a part, in units.
  void load(segment part, float* y) const {
    each_block(part, [&](std::uint64_t b, segment block) {
      kernel::input_scale const to =
          kernel::input_scale_of(call_.x.type, power_of_two(units_[b]), call_.wide, 1);
      each_piece(block, [&](std::uint64_t first, int count) {
        float buffer[kernel::piece_values];
        leaf_.scale(leaf_.load(call_.x, part.first + first, count, to.exponent, buffer), count, to.gain,
                    y + first);
      });
    });
  }

  // ---- codes

  void begin_codes(std::uint64_t count, float const* x, float* y) {
    codes_->begin(call_of_codes(count, x, y, norms_));
  }

  /// Writes scales and codes of a part.
  /// @param y  rotated, in units
  void encode(segment part, float const* y, std::span<std::byte> out) {
    std::uint64_t const blocks = format_.scales(part);
    statistics_.resize(blocks);
    products_.resize(blocks);
    norms_.resize(blocks);
    norm::bucket_statistics(on_, part.count, format_.bucket, 2, norm::input_block{{y, dtype::float32}, 2},
                            statistics_, parts_);
    for (std::uint64_t b = 0; b < blocks; ++b) {
      std::uint64_t const count = std::min(format_.bucket, part.count - b * format_.bucket);
      norms_[b] = eden_norm(statistics_[b], count, largest_);
    }
    segment const all{0, part.count};
    float* const q = decoded_.get_values<float>(part.count);
    begin_codes(part.count, y, q);
    std::span<std::byte> const frame = frame_.get(codes_->frame_bytes(all, 1));
    codes_->combine(all, true, {}, frame);
    source const made{frame, 1, call_.rank, call_.rank};
    codes_->finish(all, {&made, 1});
    norm::reduce_buckets(
        on_, part.count, format_.bucket, std::plus<>(),
        [=](std::uint64_t first, int count) { return inner_product(y + first, q + first, count); },
        std::span(products_), partial_);
    std::memset(out.data() + wire::header_bytes, 0, format_.scale_bytes(part, call_.x.type));
    for (std::uint64_t b = 0; b < blocks; ++b) {
      double const scale = eden_scale(statistics_[b], norms_[b], products_[b], units_[b]);
      if (bits_of(scale) >= double_infinity)
        fail<non_finite_error>({"globalq: encode: the scale of values ", part.first + b * format_.bucket,
                                " and following is beyond the range of float64; scale the vector down"});
      write_scale(out.data() + wire::header_bytes, b, scales(), scale);
    }
    std::memcpy(codes_in(part, out.data()), codes_in(all, frame.data(), dtype::float32),
                format_.code_bytes(part.count));
  }

  /// The frame of the quantizer with the codes of a frame, and its scales in units.
  source codes_of(segment part, source const& s) {
    segment const all{0, part.count};
    begin_codes(part.count, nullptr, decoded_.get_values<float>(part.count));
    std::span<std::byte> const frame = frame_.get(codes_->frame_bytes(all, 1));
    std::byte* const words = frame.data() + wire::header_bytes;
    std::memset(words, 0, format_.scale_bytes(all, dtype::float32));
    for (std::uint64_t b = 0; b < units_.size(); ++b)
      write_scale(words, b, dtype::float32,
                  read_scale(s.frame.data() + wire::header_bytes, b, scales()) * power_of_two(-units_[b]));
    std::memcpy(codes_in(all, frame.data(), dtype::float32), codes_in(part, s.frame.data()),
                format_.code_bytes(part.count));
    wire::write_header(frame, identifier_, 1, part.count, codes_->traits());
    return {frame, 1, s.worker, s.worker};
  }

  /// Decodes a frame, in units.
  /// @param add  false: writes
  void decode(segment part, source const& s, float* y, bool add) {
    source const inner = codes_of(part, s);
    codes_->finish({0, part.count}, {&inner, 1});
    float* const q = decoded_.get_values<float>(part.count);
    random::stream const signs = signs_of(s.worker, s.terms);
    each_block(part, [&](std::uint64_t, segment block) {
      turn_back(signs, part.first, block, q);
      if (!add) return static_cast<void>(std::copy_n(q + block.first, block.count, y + block.first));
      each_piece(block, [&](std::uint64_t first, int count) {
        leaf_.add(y + first, {q, dtype::float32}, first, count, y + first);
      });
    });
  }

  void write(segment part, std::span<source const> sources, decltype(kernel::value_leaves::store) store) {
    if (part.empty()) return;
    check(part, sources);
    find_units(part, false, sources);
    float* const sum = values_.get_values<float>(part.count);
    for (std::size_t k = 0; k < sources.size(); ++k) decode(part, sources[k], sum, k != 0);
    std::uint32_t beyond = 0;
    each_block(part, [&](std::uint64_t b, segment block) {
      store_scale const to = kernel::mean_scale(power_of_two(units_[b]) * call_.weight, call_.wide,
                                                static_cast<double>(call_.workers));
      each_piece(block, [&](std::uint64_t first, int count) {
        if (!store(call_.y, part.first + first, count, to, sum + first)) return;
        Kokkos::atomic_or(&beyond, 1U);
        if (store == leaf_.store_sum)
          make_nans_quiet(call_.y, part.first + first, static_cast<std::uint64_t>(count));
      });
    });
    if (beyond != 0) faults_ |= kernel::out_of_range;
  }

  /// Checks headers and scales.
  void check(segment part, std::span<source const> sources) const {
    for (source const& s : sources) {
      wire::check_header(s, identifier_, part.count, frame_bytes(part, s.terms), traits());
      format_.check_scales(part, s, call_.x.type);
    }
  }

  kernel::host_executor on_;
  kernel::value_leaves const& leaf_ = kernel::host::leaves_of_values();
  byte_buffer values_, decoded_, frame_;  ///< a part in units; codes of one frame decoded; that frame
  std::vector<int> units_;                ///< of each block: exponents of powers of two
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> norms_, products_, partial_;
};

}  // namespace GLOBALQ_ABI::detail
