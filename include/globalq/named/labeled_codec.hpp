// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief named: vectors as bytes that say how to decode them, for files, object stores and servers.

#include "../operator/vector_codec.hpp"
#include "operators.hpp"

#include <string>
#include <string_view>

namespace GLOBALQ_ABI::named {

/// @brief What the bytes of a vector say about it.
struct vector_label {
  std::string words;  ///< of the operator, as words_of() writes them, without a schedule
  dtype type = dtype::float32;
  std::uint64_t length = 0;
  encoding_key key;
};

/// @brief Reads the label of bytes that labeled_codec::encode() wrote. Safe for untrusted bytes: every length is checked.
/// @throws frame_error if the bytes are damaged, cut off, or of another format
vector_label read_label(std::span<std::byte const> bytes);

/// @brief Encodes vectors as vector_codec does, with a label in front that says how to decode them.
///
/// | bytes | content, little-endian |
/// | --- | --- |
/// | 0..7 | "globalqV" |
/// | 8..11 | version of this format, 1 |
/// | 12..15 | type of the vector: 0 to 3: float32, float64, float16, bfloat16 |
/// | 16..39 | length in values, seed, step: 8 bytes each |
/// | 40..55 | worker, workers, bytes of the operator's words, 0: 4 bytes each |
/// | 56.. | these words |
/// | then | the frame of vector_codec without its checksum (wire/frame.hpp) |
/// | last 4 | a checksum of all bytes before (wire/checksum.hpp) |
///
/// The checksum detects damage, not forgery: sign bytes that others could replace. Not thread-safe.
/// @code
/// gq::named::labeled_codec codec{"qsgd:4"};
/// std::vector<std::byte> bytes(codec.most_bytes(x.size(), gq::dtype::float32));
/// bytes.resize(codec.encode({x.data(), gq::dtype::float32}, x.size(), {.seed = seed}, bytes));
/// // elsewhere
/// gq::named::vector_label const label = gq::named::read_label(bytes);
/// gq::named::labeled_codec{label.words}.decode(bytes, {y.data(), gq::dtype::float32}, label.length);
/// @endcode
/// @determinism as vector_codec: the same bytes for the same key on every machine
class labeled_codec {
 public:
  /// @param text  of an operator, as read_operator() reads it
  /// @throws configuration_error for another text, an operator that clips or learns levels, which calls do, and as vector_codec
  explicit labeled_codec(std::string_view text);

  std::string const& words() const { return words_; }

  /// @brief The most bytes of a vector.
  std::size_t most_bytes(std::uint64_t length, dtype type);

  /// @brief Writes label and frame.
  /// @param out  most_bytes() bytes or more
  /// @returns    the number of bytes used
  /// @throws     configuration_error if there are fewer; as vector_codec::encode()
  std::size_t encode(const_vector x, std::uint64_t length, encoding_key key, std::span<std::byte> out);

  /// @brief Decodes into @p y, or adds to it. float64 vectors need float64; all others may be decoded into any other type.
  /// @throws frame_error for bytes of another operator, length or type, and as read_label(); non_finite_error as
  ///         vector_codec::decode()
  void decode(std::span<std::byte const> bytes, mutable_vector y, std::uint64_t length, bool add = false);
  /// The same for bytes whose label was read, which checked them.
  void decode(std::span<std::byte const> bytes, vector_label const& label, mutable_vector y,
              std::uint64_t length, bool add = false);

 private:
  explicit labeled_codec(named_operator const& asked);

  std::string words_;
  vector_codec codec_;
};

}  // namespace GLOBALQ_ABI::named
