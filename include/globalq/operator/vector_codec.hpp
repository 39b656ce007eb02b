// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: encodes single vectors without communication, for research code and parameter servers.

#include "../core/detail/compiled.hpp"
#include "../core/vector.hpp"
#include "../kernel/reduction.hpp"
#include "../wire/checksum.hpp"
#include "any_quantizer.hpp"
#include "detail/single_worker.hpp"

namespace GLOBALQ_ABI {

/// Selects the random bits of an encoding. Decode a frame with the key it was encoded with.
struct encoding_key {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  ///< below 2^48
  std::uint32_t worker = 0;
  /// Workers whose vectors are averaged, with this seed and step: errors of rounding::correlated cancel between their frames,
  /// as in a call. 1: such a rounding is as stochastic, or random_shift.
  std::uint32_t workers = 1;
};

namespace detail {
/// Tells roundings the worker that encodes.
/// @throws configuration_error if there is no such worker
inline void tell(codec_call& c, encoding_key const& key) {
  if (key.workers == 0 || (key.workers > 1 && key.worker >= key.workers))
    fail<configuration_error>({"globalq: vector_codec: there is no worker ", key.worker, " of ", key.workers,
                               "; workers are 0 to n - 1, and n is the number of averaged vectors, or 1"});
  if (key.workers == 1) return;
  c.encoder = key.worker;
  c.encoders = key.workers;
}
}  // namespace detail

/// Whether vector_codec appends a 32-bit checksum to frames (wire/checksum.hpp). It decodes frames with and without.
enum class frame_checksum : std::uint8_t { none, appended };

/// @brief Encodes vectors by their own norm: the unbiased compressor C of an operator, E[C(x)] = x.
///
/// A frame contains its scale, so it is self-contained. It may begin at any byte. Decoding rejects a frame that was
/// damaged, was made by another operator, or has scales in another encoding; and, if decoding depends on the key
/// (rounding::random_shift; stages: only if the frame has a checksum), a frame of another key. The checksum detects every
/// flipped bit and every burst of up to 32 bits; other damage passes with a probability of 2^-32. Not thread-safe.
///
/// Stages without side values (rotated) map the vector before and the decoded one after; their random bits are those of the
/// key's seed and step, which all workers of a mean share. As no call agrees on a bound of values, mapped values are
/// divided by the power of two that the largest number of their type needs, so that values below 1e-30 lose digits.
/// @determinism the same frame for the same key on every machine, space and number of threads
/// @source Alistarh et al. 2017 (QSGD), section 3; norms over workers reduce to their inner norm here
class vector_codec {
 public:
  /// @param op     a quantizer or any_quantizer, with stages that have no side values
  /// @param space  the host execution space of the kernels
  /// @param check  whether encode() appends a checksum
  /// @throws configuration_error when the policies do not fit together
  template <class Operator, class Space = Kokkos::DefaultHostExecutionSpace>
  explicit vector_codec(Operator const& op, Space const& space = Space(),
                        frame_checksum check = frame_checksum::appended)
      : on_(space),
        facts_(detail::single_worker_facts(op)),
        trailer_(check == frame_checksum::appended ? wire::checksum_bytes : 0) {
    detail::resolution const r = detail::resolve_single_worker(facts_);
    levels_ = r.size;
    codec_ = detail::make_codec(op, facts_, r, on_);
  }

  /// @brief Replaces the levels by others of the same number and kind. Allocates nothing.
  /// @throws configuration_error unless the operator has levels::table or levels::symmetric
  template <class Table>
  requires std::is_base_of_v<levels::detail::level_table, Table>
  void set_levels(Table const& levels) { codec().set_levels(levels); }

  /// Number of levels above zero.
  std::uint32_t levels() const { return levels_; }

  /// Bytes of the frame of a vector; the maximum if frames vary in length (wire::elias, huffman, sparse).
  /// @throws configuration_error above 2^48 - 1 values
  std::size_t frame_bytes(std::uint64_t length, dtype type = dtype::float32);

  /// Writes the frame of @p x.
  /// @returns the number of bytes used, from the first on; pass exactly these to decode()
  /// @shape frame: frame_bytes(length, type) bytes
  /// @throws configuration_error when the frame has another size; non_finite_error when x or a norm is not finite: the
  ///         frame is then invalid
  template <class V>
  std::size_t encode(V const& x, encoding_key key, std::span<std::byte> frame) {
    return encode({detail::data_of(x), detail::type_of_values<V>}, detail::size_of_vector(x), key, frame);
  }
  /// The same for the @p n values at a pointer.
  template <class Value>
  std::size_t encode(Value const* x, std::uint64_t n, encoding_key key, std::span<std::byte> frame) {
    return encode(std::span(x, static_cast<std::size_t>(n)), key, frame);
  }
  /// The same for values whose type is known at run time.
  std::size_t encode(const_vector x, std::uint64_t length, encoding_key key, std::span<std::byte> frame);

  /// Decodes a frame into @p y.
  /// @throws frame_error when the bytes are not a frame of this operator and length; @p y is unchanged then.
  ///         non_finite_error when a value overflows its type (float16: above 65,504; or a norm overflows float32):
  ///         @p y contains infinity there, and all other values as decoded
  template <class V>
  void decode(std::span<std::byte const> frame, encoding_key key, V&& y) {
    decode(frame, key, output_of(y), detail::size_of_vector(y));
  }
  /// The same into the @p n values at a pointer.
  template <class Value>
  void decode(std::span<std::byte const> frame, encoding_key key, Value* y, std::uint64_t n) {
    decode(frame, key, std::span(y, static_cast<std::size_t>(n)));
  }
  /// The same into values whose type is known at run time.
  void decode(std::span<std::byte const> frame, encoding_key key, mutable_vector y, std::uint64_t length) {
    source const one{frame, 1, static_cast<int>(key.worker)};
    read({&one, 1}, key, y, length, false);
  }

  /// Adds the decoded frame to @p y, for error feedback and parameter servers.
  /// @throws as decode(); non_finite_error when a sum of finite numbers overflows. NaN and infinity that @p y already
  ///         contains stay, and need not be reported; a NaN becomes the quiet NaN of its type, on hosts and devices
  template <class V>
  void decode_add(std::span<std::byte const> frame, encoding_key key, V&& y) {
    decode_add(frame, key, output_of(y), detail::size_of_vector(y));
  }
  template <class Value>
  void decode_add(std::span<std::byte const> frame, encoding_key key, Value* y, std::uint64_t n) {
    decode_add(frame, key, std::span(y, static_cast<std::size_t>(n)));
  }
  void decode_add(std::span<std::byte const> frame, encoding_key key, mutable_vector y,
                  std::uint64_t length) {
    source const one{frame, 1, static_cast<int>(key.worker)};
    read({&one, 1}, key, y, length, true);
  }

  /// Writes the mean of several frames, each of one term, added in the order given.
  /// @param frames  their workers select the random bits; key.worker is not used
  /// @throws        as decode()
  template <class V>
  void mean(std::span<source const> frames, encoding_key key, V&& y) {
    read(frames, key, output_of(y), detail::size_of_vector(y), false);
  }

 private:
  template <class V>
  static mutable_vector output_of(V& y) {
    auto* const data = detail::data_of(y);
    static_assert(!std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                  "globalq: the vector is const; decode into one that can be written");
    return {data, detail::type_of_values<V>};
  }

  /// Whether decoding uses random bits of the key.
  bool decoding_draws() const { return draws_of_worker() || !facts_.chain.empty(); }
  /// Whether these differ between workers.
  bool draws_of_worker() const { return facts_.shifts || facts_.own_rotation; }
  /// Applies the stages to a vector, in memory of this object.
  const_vector mapped(const_vector x, std::uint64_t length, encoding_key key);
  /// Adds decoded values to @p y.
  /// @returns whether a sum of finite numbers is not finite
  bool add(const_vector decoded, mutable_vector y, std::uint64_t length) const;

  /// Checks frames, then writes their decoded mean, or adds it.
  void read(std::span<source const> frames, encoding_key key, mutable_vector y, std::uint64_t length,
            bool add);

  /// The checksum of a frame of this operator and, if decoding uses the random bits of the encoder, of this key.
  std::uint32_t checksum_of(std::span<std::byte const> body, encoding_key key, std::uint32_t worker) const;

  /// The frame without its checksum, if it is longer than its header says by exactly a checksum.
  std::span<std::byte const> without_checksum(source const& s, std::uint64_t length) const;

  void check(source const& whole, std::span<std::byte const> body, encoding_key key) const;

  void prepare(const_vector x, mutable_vector y, std::uint64_t length, encoding_key key, int workers);

  detail::operator_codec& codec();

  static void expect_size(std::size_t have, std::size_t need);

  kernel::host_executor on_;
  detail::operator_facts facts_;
  std::uint32_t levels_ = 0;
  std::size_t trailer_;  ///< bytes of the checksum
  std::unique_ptr<detail::operator_codec> codec_;
  std::vector<source> bodies_;  ///< frames without their checksums
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<detail::user_statistic> own_, own_parts_;  ///< of a user-defined norm
  std::vector<double> bucket_scales_;
  double vector_scale_ = 0;       ///< with two levels of scales
  byte_buffer mapped_, decoded_;  ///< with stages
};

}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "vector_codec-inl.hpp"
#endif
