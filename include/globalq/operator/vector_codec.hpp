// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator by itself: one vector to a frame and back, for research code and parameter servers.

#include "../core/detail/compiled.hpp"
#include "../core/vector.hpp"
#include "../kernel/reduction.hpp"
#include "../wire/checksum.hpp"
#include "any_quantizer.hpp"
#include "detail/single_worker.hpp"

namespace GLOBALQ_ABI {

/// What selects the random bits of an encoding; a frame is decoded with the key it was encoded with.
struct encoding_key {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  ///< below 2^48
  std::uint32_t worker = 0;
};

/// Whether vector_codec ends its frames with a checksum of 32 bits (wire/checksum.hpp). Frames with and without are decoded.
enum class frame_checksum : std::uint8_t { none, appended };

/// @brief Encodes vectors by their own norm: the unbiased compressor C of an operator, E[C(x)] = x.
///
/// The scale travels in the frame, so a frame is complete by itself. It may begin at any byte. A frame that was damaged, or
/// made by another operator or with another form of scales, is refused; and so is one of another key, where decoding depends on
/// the key (rounding::random_shift). With the checksum, no single bit and no burst of up to 32 bits passes, and other damage
/// with a probability of 2^-32. Not to be shared by threads.
/// @determinism the same frame for the same key on every machine, space and number of threads
/// @source Alistarh et al. 2017 (QSGD), section 3; norms over workers reduce to their inner norm here
class vector_codec {
 public:
  /// @param op     a quantizer or any_quantizer
  /// @param space  where kernels run; a host execution space
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

  /// @brief Other levels from now on, as many as before and of the same kind; nothing is allocated.
  /// @throws configuration_error unless the operator was made with levels::table or levels::symmetric
  template <class Table>
  requires std::is_base_of_v<levels::detail::level_table, Table>
  void set_levels(Table const& levels) { codec().set_levels(levels); }

  /// Levels above zero.
  std::uint32_t levels() const { return levels_; }

  /// Bytes of the frame of a vector; the most where frames differ in length (wire::elias, huffman, sparse).
  /// @throws configuration_error above 2^48 - 1 values
  std::size_t frame_bytes(std::uint64_t length, dtype type = dtype::float32);

  /// Writes the frame of @p x.
  /// @returns the bytes that are used, from the first on: decode() takes just these
  /// @shape frame: frame_bytes(length, type) bytes
  /// @throws configuration_error when the frame has another size; non_finite_error for NaN or infinity in x, or where a norm is:
  ///         decode() refuses the frame then
  template <class V>
  std::size_t encode(V const& x, encoding_key key, std::span<std::byte> frame) {
    return encode_values({detail::data_of(x), detail::type_of_values<V>}, detail::size_of_vector(x), key,
                         frame);
  }
  /// The same of the @p n values behind a pointer.
  template <class Value>
  std::size_t encode(Value const* x, std::uint64_t n, encoding_key key, std::span<std::byte> frame) {
    return encode(std::span(x, static_cast<std::size_t>(n)), key, frame);
  }

  /// Writes what a frame stands for into @p y.
  /// @throws frame_error when the bytes are no frame of this operator and length; @p y is untouched then.
  ///         non_finite_error when a value is beyond the type's range (float16 above 65,504, or a norm above that of float32):
  ///         @p y holds infinity there and all other values as decoded
  template <class V>
  void decode(std::span<std::byte const> frame, encoding_key key, V&& y) {
    source const one{frame, 1, static_cast<int>(key.worker)};
    mean({&one, 1}, key, y);
  }
  /// The same into the @p n values behind a pointer.
  template <class Value>
  void decode(std::span<std::byte const> frame, encoding_key key, Value* y, std::uint64_t n) {
    decode(frame, key, std::span(y, static_cast<std::size_t>(n)));
  }

  /// y += what a frame stands for, as error feedback and parameter servers need it.
  /// @throws as decode(), where a sum of finite numbers is beyond the range; what @p y held of NaN and infinity
  ///         stays there, reported or not; a NaN as the quiet one of its type, on hosts and devices alike
  template <class V>
  void decode_add(std::span<std::byte const> frame, encoding_key key, V&& y) {
    source const one{frame, 1, static_cast<int>(key.worker)};
    read({&one, 1}, key, output_of(y), detail::size_of_vector(y), true);
  }
  template <class Value>
  void decode_add(std::span<std::byte const> frame, encoding_key key, Value* y, std::uint64_t n) {
    decode_add(frame, key, std::span(y, static_cast<std::size_t>(n)));
  }

  /// Writes the mean of several frames, all of terms 1, added in the order given.
  /// @param frames  their workers select the random bits, key.worker is not used
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
                  "globalq: the vector is const; decode into one that can be written to");
    return {data, detail::type_of_values<V>};
  }

  std::size_t encode_values(const_vector x, std::uint64_t length, encoding_key key,
                            std::span<std::byte> frame);

  /// Checks frames, then writes what they stand for, or adds it.
  void read(std::span<source const> frames, encoding_key key, mutable_vector y, std::uint64_t length,
            bool add);

  /// The checksum of a frame of this operator and, where decoding draws the random bits of the encoder, of this key.
  std::uint32_t checksum_of(std::span<std::byte const> body, encoding_key key, std::uint32_t worker) const;

  /// A frame that is longer than its header tells by a checksum has one.
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
  std::vector<detail::own_statistic> own_, own_parts_;  ///< of a norm of one's own
  std::vector<double> units_;
};

}  // namespace GLOBALQ_ABI

#if !defined(GLOBALQ_COMPILED)
#include "vector_codec-inl.hpp"
#endif
