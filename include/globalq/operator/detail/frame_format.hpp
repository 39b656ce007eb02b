// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the formats of frames: which sections they have, and their bytes. Codecs and plans share them.
///
/// No executor and no Kokkos, because plans are made before there is either.

#include "../../wire/frame.hpp"
#include "resolve.hpp"

#include <optional>

namespace GLOBALQ_ABI::detail {

/// The format of frames of floating-point numbers: a header and the numbers.
struct floats_format {
  dtype type = dtype::float32;

  constexpr std::size_t bytes(std::uint64_t numbers) const {
    return numbers == 0 ? 0 : wire::header_bytes + numbers * size_of(type);
  }
  constexpr std::uint8_t identifier() const { return format_of(type).identifier; }
  /// The numbers that a transport can add.
  constexpr payload::kind numbers() const {
    return type == dtype::float32 ? payload::kind::float32 : payload::kind::none;
  }
};

/// The format of frames of codes that all have the same bits: a header, the scales of buckets under a local norm, codes.
struct codes_format {
  std::uint64_t bucket;
  norm::order q;
  bool local;
  std::uint64_t bits;
  std::function<std::uint64_t(std::uint64_t)> wire_bytes;  ///< as operator_facts::wire_bytes

  explicit codes_format(operator_facts const& op)
      : bucket(op.bucket),
        q(op.q),
        local(op.local),
        bits(static_cast<std::uint64_t>(op.wire_bits)),
        wire_bytes(op.wire_bytes) {}

  std::uint64_t scales(segment part) const {
    return !local ? 0 : (bucket == 0 ? 1 : divide_up(part.count, bucket));
  }
  std::size_t scale_bytes(segment part, dtype type) const {
    return wire::scale_section(scales(part), q.format(type));
  }
  std::size_t code_bytes(std::uint64_t count) const {
    return wire_bytes ? wire_bytes(count) : count / 8 * bits + divide_up<std::uint64_t>(count % 8 * bits, 8);
  }
  std::size_t bytes(segment part, dtype type) const {
    return part.empty() ? 0 : wire::header_bytes + scale_bytes(part, type) + code_bytes(part.count);
  }
  /// The integers of an integer wire.
  payload::kind integers() const {
    return bits == 8 ? payload::kind::int8 : bits == 16 ? payload::kind::int16 : payload::kind::int32;
  }
  std::uint64_t first_bucket(segment part) const { return bucket == 0 ? 0 : part.first / bucket; }

  /// Checks that received scales are finite and not negative.
  /// @throws frame_error
  void check_scales(segment part, source const& s, dtype type) const {
    std::byte const* const at = s.frame.data() + wire::header_bytes;
    if (scale_format const form = q.format(type); form.in_a_byte()) {
      for (std::uint64_t b = 0; b < scales(part); ++b)
        if (std::to_integer<std::uint8_t>(at[vector_scale_bytes(form) + b]) > largest_scale_byte(form))
          fail<frame_error>({"globalq: decode: bad frame from worker ", s.worker, ": scale ", b,
                             " is not a number; the bytes were damaged"});
      return;
    }
    if (type != dtype::float64) return;  // every word is a scale
    for (std::uint64_t b = 0; b < scales(part); ++b)
      if (bits_of(load_from<double>(at + 8 * b)) >= double_infinity)
        fail<frame_error>({"globalq: decode: bad frame from worker ", s.worker, ": scale ", b,
                           " is negative or not finite; the bytes were damaged"});
  }
};

/// The format of frames whose codes vary in length: a header with the length, scales, at most code_bytes() bytes of codes.
struct coded_format : codes_format {
  std::uint32_t largest;
  bool zero_free;
  std::size_t (*most_bytes)(std::uint64_t count, std::uint32_t largest, bool zero_free);

  /// @param levels  above zero
  coded_format(operator_facts const& op, std::uint32_t levels)
      : codes_format(op), largest(levels), zero_free(op.zero_free), most_bytes(op.most_bytes) {}

  /// Bytes before the codes.
  std::size_t head_bytes(segment part, dtype type) const {
    return wire::long_header_bytes + scale_bytes(part, type);
  }
  std::size_t bytes(segment part, dtype type) const {
    return part.empty() ? 0 : head_bytes(part, type) + most_bytes(part.count, largest, zero_free);
  }
};

/// The sections of a frame: values of a segment that an operator encodes, then float32 numbers. Either may be empty.
struct sections {
  segment values, floats;

  /// @param varies  whether frames of the operator vary in length; then a header with the length is before both
  /// @param first   bytes of the operator's frame
  std::size_t bytes(bool varies, std::size_t first) const {
    return floats.empty() ? first
                          : (varies ? wire::long_header_bytes : 0) + wire::padded(first) +
                                floats_format{}.bytes(floats.count);
  }
};

/// Whole buckets, and the values after them. Only the last segment of a vector ends inside a bucket.
inline sections with_tail(segment part, std::uint64_t bucket) {
  std::uint64_t const rest = part.count % bucket, whole = part.count - rest;
  return {{part.first, whole}, {part.first + whole, rest}};
}

/// @brief The format of an operator's frames.
class frame_format {
 public:
  /// @param levels  above zero
  frame_format(operator_facts const& op, std::uint32_t levels)
      : codes_(op, levels),
        has_codes_(op.has_codes()),
        floats_{op.floats.type},
        tail_(op.plain_tail),
        chain_(op.chain) {
    if (op.of_sums != nullptr) of_sums_.emplace(op.of_sums->facts);
  }

  /// Whether frames vary in length. bytes() is then the most.
  bool varies() const { return codes_.most_bytes != nullptr; }

  /// @param terms  workers in the frame
  std::size_t bytes(segment part, dtype type, int terms = 1) const {
    return part.empty() ? 0 : bytes_from(0, part, type, terms);
  }

  /// The numbers of frames that a transport can add.
  payload::kind numbers() const { return has_codes_ ? codes_.integers() : floats_.numbers(); }

 private:
  /// Bytes of a frame of an operator without the first stages of the chain.
  std::size_t bytes_from(std::size_t number, segment part, dtype type, int terms) const {
    if (number == chain_.size()) return bytes_with_tail(part, type, terms);
    return sections{part, chain_[number]->side_values(part)}.bytes(varies(),
                                                                   bytes_from(number + 1, part, type, terms));
  }
  std::size_t bytes_with_tail(segment part, dtype type, int terms) const {
    if (!tail_) return bytes_of_content(part, type, terms);
    sections const all = with_tail(part, codes_.bucket);
    return all.bytes(varies(), bytes_of_content(all.values, type, terms));
  }
  std::size_t bytes_of_content(segment part, dtype type, int terms) const {
    if (terms > 1 && of_sums_) return of_sums_->bytes(part, type);
    if (!has_codes_) return floats_.bytes(part.count);
    return varies() ? codes_.bytes(part, type) : codes_.codes_format::bytes(part, type);
  }

  coded_format codes_;
  bool has_codes_;
  floats_format floats_;
  bool tail_;
  stages chain_;
  std::optional<codes_format> of_sums_;
};

}  // namespace GLOBALQ_ABI::detail
