// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: an operator by itself: one vector to a frame and back, for research code and parameter servers.

#include "../core/vector.hpp"
#include "../kernel/reduction.hpp"
#include "../wire/checksum.hpp"
#include "any_quantizer.hpp"
#include "detail/alone.hpp"

namespace globalq {

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
        facts_(detail::facts_alone(op)),
        trailer_(check == frame_checksum::appended ? wire::checksum_bytes : 0) {
    detail::resolution const r = detail::resolve_alone(facts_);
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
  std::size_t frame_bytes(std::uint64_t length, dtype type = dtype::float32) {
    prepare({nullptr, type}, {nullptr, type}, length, {}, 1);
    return length == 0 ? 0 : codec_->frame_bytes({0, length}, 1) + trailer_;
  }

  /// Writes the frame of @p x.
  /// @returns the bytes that are used, from the first on: decode() takes just these
  /// @shape frame: frame_bytes(length, type) bytes
  /// @throws configuration_error when the frame has another size; non_finite_error for NaN or infinity in x, or where a norm is:
  ///         decode() refuses the frame then
  template <Vector V>
  std::size_t encode(V const& x, encoding_key key, std::span<std::byte> frame) {
    auto const* const data = detail::data_of(x);
    std::uint64_t const length = detail::size_of_vector(x);
    dtype const type = dtype_of<detail::value_of<V const>>::value;
    kernel::float_environment const exact;
    expect_size(frame.size(), frame_bytes(length, type));
    if (length == 0) return 0;
    std::span<std::byte> const body = frame.first(frame.size() - trailer_);
    auto const used = [&] {
      std::size_t const bytes = codec_->length_of(body, static_cast<int>(key.worker));
      if (trailer_ != 0) store_to(frame.data() + bytes, checksum_of(body.first(bytes), key, key.worker));
      return bytes + trailer_;
    };
    std::uint64_t const buckets = facts_.bucket == 0 ? 1 : divide_up(length, facts_.bucket);
    units_.resize(buckets);
    prepare({data, type}, {nullptr, type}, length, key, 1);
    // in one pass where that can be; if not, or if values are not finite, the norms first
    if (codec_->encode_measured({0, length}, units_, body)) return used();
    statistics_.resize(buckets);
    norm::bucket_statistics(on_, length, facts_.bucket, facts_.q, norm::input_block{{data, type}, facts_.q},
                            statistics_, parts_);
    for (std::uint64_t b = 0; b < buckets; ++b) {
      if (!statistics_[b].finite()) {
        std::memset(frame.data(), 0, wire::header_bytes);
        throw non_finite_error("globalq: encode: values " + std::to_string(b * facts_.bucket) +
                               " and following hold NaN or infinity; the frame was made invalid");
      }
      if (facts_.fixed_unit > 0 && statistics_[b].max() > facts_.fixed_unit)
        throw configuration_error("globalq: encode: a value of magnitude " +
                                  std::to_string(statistics_[b].max()) + " exceeds the unit " +
                                  std::to_string(facts_.fixed_unit) + " of norm::fixed");
      units_[b] =
          facts_.fixed_unit > 0 ? facts_.fixed_unit : norm::local_unit(statistics_[b], facts_.q, type, 0);
      if (bits_of(units_[b]) >= double_infinity) {
        std::memset(frame.data(), 0, wire::header_bytes);
        throw non_finite_error(
            "globalq: encode: the norm of values " + std::to_string(b * facts_.bucket) +
            " and following is beyond the range of float64; the frame was made invalid; scale the "
            "vector down, or use norm::linf");
      }
    }
    prepare({data, type}, {nullptr, type}, length, key, 1);
    codec_->combine({0, length}, true, {}, body);
    return used();
  }

  /// Writes what a frame stands for into @p y.
  /// @throws frame_error when the bytes are no frame of this operator and length; @p y is untouched then.
  ///         non_finite_error when a value is beyond the type's range (float16 above 65,504, or a norm above that of float32):
  ///         @p y holds infinity there and all other values as decoded
  template <Vector V>
  void decode(std::span<std::byte const> frame, encoding_key key, V&& y) {
    source const one{frame, 1, static_cast<int>(key.worker)};
    mean({&one, 1}, key, std::forward<V>(y));
  }

  /// y += what a frame stands for, as error feedback and parameter servers need it.
  /// @throws as decode(), where a sum of finite numbers is beyond the range; what @p y held of NaN and infinity
  ///         stays there, reported or not
  template <Vector V>
  void decode_add(std::span<std::byte const> frame, encoding_key key, V&& y) {
    source const one{frame, 1, static_cast<int>(key.worker)};
    read({&one, 1}, key, y, [this](segment all, auto const& frames) { codec_->add_decoded(all, frames); });
  }

  /// Writes the mean of several frames, all of terms 1, added in the order given.
  /// @param frames  their workers select the random bits, key.worker is not used
  /// @throws        as decode()
  template <Vector V>
  void mean(std::span<source const> frames, encoding_key key, V&& y) {
    read(frames, key, y, [this](segment all, auto const& valid) { codec_->finish(all, valid); });
  }

 private:
  /// Checks frames, then lets @p use write what they stand for.
  template <class V, class Use>
  void read(std::span<source const> frames, encoding_key key, V& y, Use const& use) {
    auto* const data = detail::data_of(y);
    std::uint64_t const length = detail::size_of_vector(y);
    dtype const type = dtype_of<detail::value_of<V>>::value;
    kernel::float_environment const exact;
    if (frames.empty())
      throw configuration_error(
          "globalq: vector_codec: the mean of no frames is not defined; give at least one");
    if (length == 0) return;
    units_.assign(facts_.bucket == 0 ? 1 : divide_up(length, facts_.bucket), facts_.fixed_unit);
    prepare({nullptr, type}, {data, type}, length, key, static_cast<int>(frames.size()));
    bodies_.assign(frames.begin(), frames.end());
    for (source& s : bodies_) s.frame = without_checksum(s, length);
    codec_->verify({0, length}, bodies_);
    for (std::size_t k = 0; k < frames.size(); ++k)
      if (frames[k].frame.size() != bodies_[k].frame.size()) check(frames[k], bodies_[k].frame, key);
    use(segment{0, length}, bodies_);
    if ((codec_->faults() & kernel::out_of_range) != 0)
      throw non_finite_error(
          "globalq: decode: a value is beyond the range of " + std::string(name_of(type)) +
          ", and the output holds infinity there; decode into a wider type, or scale vectors down");
  }

  /// The checksum of a frame of this operator and, where decoding draws the random bits of the encoder, of this key.
  std::uint32_t checksum_of(std::span<std::byte const> body, encoding_key key, std::uint32_t worker) const {
    std::uint64_t start = codec_->traits();
    if (facts_.shifts) start = detail::hash(detail::hash(detail::hash(start, key.seed), key.step), worker);
    return wire::checksum(body, static_cast<std::uint32_t>(start >> 32));
  }

  /// A frame that is longer than its header tells by a checksum has one.
  std::span<std::byte const> without_checksum(source const& s, std::uint64_t length) const {
    std::size_t const body = codec_->head_bytes() == 0 ? codec_->frame_bytes({0, length}, 1)
                                                       : codec_->length_of(s.frame, s.worker);
    return s.frame.size() == body + wire::checksum_bytes ? s.frame.first(body) : s.frame;
  }

  void check(source const& whole, std::span<std::byte const> body, encoding_key key) const {
    if (load_from<std::uint32_t>(whole.frame.data() + body.size()) ==
        checksum_of(body, key, static_cast<std::uint32_t>(whole.worker)))
      return;
    throw frame_error("globalq: decode: bad frame from worker " + std::to_string(whole.worker) +
                      ": its checksum is wrong; the bytes were damaged, or made by another operator" +
                      (facts_.shifts ? " or with another key" : ""));
  }

  void prepare(const_vector x, mutable_vector y, std::uint64_t length, encoding_key key, int workers) {
    if (key.step > random::max_step)
      throw configuration_error("globalq: vector_codec: step " + std::to_string(key.step) +
                                " is above 2^48 - 1");
    if (length >> 48 != 0)
      throw configuration_error("globalq: vector_codec: " + std::to_string(length) +
                                " values; a frame holds at most 2^48 - 1, so encode parts of the vector");
    detail::call c;
    c.x = x;
    c.y = y;
    c.length = length;
    c.rank = static_cast<int>(key.worker);
    c.workers = workers;
    c.seed = key.seed;
    c.step = key.step;
    c.units = units_;
    codec().begin(c);
  }

  detail::operator_codec& codec() {
    if (codec_ == nullptr)
      throw configuration_error(
          "globalq: vector_codec: this codec was moved from; use the one it was moved to");
    return *codec_;
  }

  static void expect_size(std::size_t have, std::size_t need) {
    if (have != need)
      throw configuration_error("globalq: encode: the frame has " + std::to_string(have) +
                                " bytes and needs " + std::to_string(need) + "; ask frame_bytes()");
  }

  kernel::host_executor on_;
  detail::operator_facts facts_;
  std::uint32_t levels_ = 0;
  std::size_t trailer_;  ///< bytes of the checksum
  std::unique_ptr<detail::operator_codec> codec_;
  std::vector<source> bodies_;  ///< frames without their checksums
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> units_;
};

}  // namespace globalq
