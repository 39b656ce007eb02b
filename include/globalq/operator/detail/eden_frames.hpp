// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: what the codecs of EDEN in host memory and on a stream share: the format of frames, and the arithmetic of
/// scales.

#include "../../norm/statistic.hpp"
#include "../../wire/packed.hpp"
#include "frame_format.hpp"
#include "operator_codec.hpp"

#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

namespace GLOBALQ_ABI::detail {

/// 2^-(k/2), rounded: the factor of a rotation of 2^k values.
GLOBALQ_FUNCTION float eden_factor(int k) {
  return power_of_two_float(-(k + 1) / 2) * (k % 2 == 0 ? 1.0F : std::numbers::sqrt2_v<float>);
}

/// The exponent of the unit of a block.
/// @param most  the largest of the norm of own values and the scales of frames
GLOBALQ_FUNCTION int eden_unit(double most) {
  if (!(most > 0)) return 0;
  int const e = exponent_of(most);
  return e < -1000 ? -1000 : e;
}

/// The scale of the codes of a rotated block.
/// @param largest  the largest level, if the standard deviation of rotated values is 1
GLOBALQ_FUNCTION double eden_norm(norm::statistic const& s, std::uint64_t count, double largest) {
  return representable(norm::local_scale(s, 2, dtype::float32, 0) *
                           rounded(largest / rounded(std::sqrt(static_cast<double>(count)))),
                       dtype::float32);
}

/// The scale with which a frame is unbiased along the block, |y|^2 / <q, y> times that of its codes.
/// @param s        of the rotated block y, in units
/// @param norm     eden_norm()
/// @param product  <q, y>
GLOBALQ_FUNCTION double eden_scale(norm::statistic const& s, double norm, double product, int unit) {
  double const squares = s.sum * power_of_two(2 * s.exponent());
  return product > 0 ? rounded(norm * rounded(squares / product)) * power_of_two(unit) : 0.0;
}

/// Rotations of 2^k values of a block.
struct eden_rotations {
  int k, count;            ///< how many
  std::uint64_t first[5];  ///< where

  /// A power of two is rotated once. Of other blocks five rotations of the largest power of two that fits, at both ends and in
  /// the middle, spread each value over the whole block.
  explicit eden_rotations(segment block) : k(bit_width(block.count) - 1), count(1) {
    std::uint64_t const rest = block.count - size();
    count = rest == 0 ? 1 : 5;
    for (int i = 0; i < 5; ++i) first[i] = block.first + (i == 2 ? rest / 2 : (i % 3 == 0 ? 0 : rest));
  }
  std::uint64_t size() const { return std::uint64_t{1} << k; }
  /// Of the signs: each rotation draws others, beyond those of all vectors.
  static std::uint64_t shift(int i) { return static_cast<std::uint64_t>(i) << 48; }
};

/// Common base of the codecs of EDEN, around the codec of the quantizer that makes the codes.
class eden_frames : public operator_codec {
 public:
  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    return format_.bytes(part, call_.x.type);
  }
  wire::frame_traits traits() const override {
    scale_format const form = scales();
    return wire::traits_of(&form, hash_);
  }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }

 protected:
  eden_frames(std::unique_ptr<operator_codec> codes, operator_facts const& op, double largest)
      : codes_(std::move(codes)),
        format_(op),
        largest_(largest),
        identifier_(wire::packed<>{static_cast<std::uint32_t>(op.wire_bits)}.identifier()),
        hash_(hash(hash(hash(0, std::string_view("eden")), op.levels), op.bucket)) {}

  scale_format scales() const { return format_.q.format(call_.x.type); }

  /// The signs of a frame: those of the worker that encoded it.
  random::stream signs_of(int worker, int terms) const {
    return {call_.seed, call_.step, static_cast<std::uint32_t>(worker),
            terms > 1 ? random::purpose::turn_requantize : random::purpose::turn};
  }

  /// A call of the quantizer: float32 values, which are a vector of their own.
  codec_call call_of_codes(std::uint64_t count, float const* x, float* y,
                           std::span<double const> norms) const {
    codec_call c;
    c.x = {x, dtype::float32};
    c.y = {y, dtype::float32};
    c.length = count;
    c.rank = call_.rank;
    c.bucket_scales = norms;
    return c;
  }

  template <class Byte>
  Byte* codes_in(segment part, Byte* frame, dtype type) const {
    return frame + wire::header_bytes + format_.scale_bytes(part, type);
  }
  template <class Byte>
  Byte* codes_in(segment part, Byte* frame) const {
    return codes_in(part, frame, call_.x.type);
  }

  std::unique_ptr<operator_codec> codes_;
  codes_format format_;
  double largest_;
  std::uint8_t identifier_;
  std::uint64_t hash_;
};

}  // namespace GLOBALQ_ABI::detail
