// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of EDEN on a stream; the same sums in the same order as eden_codec, so the same bits.

#include "../../kernel/load_store.hpp"
#include "../../kernel/stream_reduction.hpp"
#include "eden_frames.hpp"
#include "stream_codec.hpp"
#include "stream_rotation.hpp"

namespace GLOBALQ_ABI::detail {

/// The conversions of values of a block to units and back.
struct eden_block {
  int unit;  ///< exponent
  kernel::input_scale in;
  store_scale out;
};

/// Checks headers and scales of frames, writes the header of a new frame, and finds the units of blocks.
struct open_blocks {
  kernel::frame_headers headers;
  kernel::piece_list::piece piece;
  kernel::source_list sources;
  kernel::agreed_call* agreed;
  scale_format form;
  double const* own;  ///< norms of own values; null: there are none
  double weight, workers;
  dtype type;
  eden_block* blocks;

  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const {
    if (b == 0) headers.treat(piece, 0, sources, &agreed->faults);
    double most = own == nullptr ? 0.0 : own[b];
    for (int k = 0; k < sources.count; ++k) {
      double const scale = read_scale(sources[k].scales, b, form);
      if (bits_of(scale) >= double_infinity)
        Kokkos::atomic_or(&agreed->faults, static_cast<std::uint32_t>(kernel::bad_frame));
      most = most < scale ? scale : most;
    }
    int const unit = eden_unit(most);
    blocks[b] = {unit, kernel::input_scale_of(type, power_of_two(unit), agreed->wide, 1),
                 kernel::mean_scale(power_of_two(unit) * weight, agreed->wide, workers)};
  }
};

/// Own values in units, or zeros.
struct load_blocks {
  const_vector x;
  std::uint64_t first;
  bool own;
  int block;  ///< a block has 2^block values
  eden_block const* blocks;
  float* y;

  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    float buffer[1];
    kernel::input_scale const to = blocks[i >> block].in;
    y[i] = own ? multiply(*kernel::load<1>(x, first + i, 1, to.exponent, buffer), to.gain) : 0.0F;
  }
};

/// Copies bytes [8 i, 8 i + 8) of @p bytes. Both begin at a multiple of 8.
GLOBALQ_FUNCTION void copy_eight(std::byte const* from, std::uint64_t bytes, std::uint64_t i, std::byte* to) {
  if (8 * i + 8 <= bytes) return store_to(to + 8 * i, load_from<std::uint64_t>(from + 8 * i));
  for (std::uint64_t k = 8 * i; k < bytes; ++k) to[k] = from[k];
}

/// Makes the frame of the quantizer with the codes of a frame, and its scales in units.
struct open_frame {
  std::byte const* scales;
  std::byte const* codes;
  scale_format form;
  eden_block const* blocks;
  std::uint64_t count, places, bytes;  ///< scales, places for them, bytes of codes
  std::uint64_t word, values;          ///< of the header
  std::byte* frame;

  /// @returns how many items there are
  std::uint64_t items() const { return std::max(places, divide_up<std::uint64_t>(bytes, 8)); }
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    if (i < 2) store_to(frame + 8 * i, i == 0 ? word : values);
    std::byte* const to = frame + wire::header_bytes;
    if (i < places)
      write_scale(to, i, dtype::float32,
                  i < count ? read_scale(scales, i, form) * power_of_two(-blocks[i].unit) : 0.0);
    copy_eight(codes, bytes, i, to + 4 * places);
  }
};

/// The scales of the codes of rotated blocks.
struct find_norms {
  norm::statistic const* statistics;
  std::uint64_t count;  ///< values
  int block;
  double largest;
  double* norms;

  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const {
    std::uint64_t const left = count - (b << block), whole = std::uint64_t{1} << block;
    norms[b] = eden_norm(statistics[b], left < whole ? left : whole, largest);
  }
};

/// The products of two vectors: 16 sums of each block, or of each norm::block_values values of longer ones, as inner_product().
struct add_products {
  float const *y, *q;
  std::uint64_t count;
  int width;  ///< 2^width values of each 16 sums
  double* sums;

  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    std::uint64_t const planned = ((i / 16) + 1) << width, end = planned < count ? planned : count;
    double sum = 0;
    for (std::uint64_t k = ((i / 16) << width) + i % 16; k < end; k += 16)
      sum += static_cast<double>(y[k]) * static_cast<double>(q[k]);  // 24 bits each: exact
    sums[i] = sum;
  }
};

/// Writes scales of a frame, and the codes of the quantizer's.
struct close_frame {
  norm::statistic const* statistics;
  double const* norms;
  double* sums;
  std::uint64_t parts, all;  ///< of 16 sums: of a block, and of all
  eden_block const* blocks;
  kernel::agreed_call* agreed;
  scale_format form;
  std::uint64_t count, places, bytes;  ///< as of open_frame
  std::byte const* codes;
  std::byte *scales, *codes_to;

  std::uint64_t items() const { return std::max(places, divide_up<std::uint64_t>(bytes, 8)); }
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    copy_eight(codes, bytes, i, codes_to);
    if (i >= places) return;
    double const scale = i < count ? eden_scale(statistics[i], norms[i], product(i), blocks[i].unit) : 0.0;
    if (bits_of(scale) >= double_infinity)
      Kokkos::atomic_or(&agreed->faults, static_cast<std::uint32_t>(kernel::out_of_range));
    write_scale(scales, i, form, scale);
  }

 private:
  /// Adds up the sums of a block, along the tree of norm::reduce_buckets().
  GLOBALQ_FUNCTION double product(std::uint64_t b) const {
    double* const of = sums + 16 * b * parts;
    std::uint64_t const left = all - b * parts, known = left < parts ? left : parts;
    for (std::uint64_t p = 0; p < known; ++p) of[16 * p] = norm::add_up(of + 16 * p);
    for (std::uint64_t stride = 1; stride < known; stride *= 2)
      for (std::uint64_t p = 0; p + stride < known; p += 2 * stride) of[16 * p] += of[16 * (p + stride)];
    return of[0];
  }
};

/// The rotation of blocks of a part by the signs of a frame.
struct turn_on_device : rotated_blocks<float> {
  std::uint64_t before;  ///< signs before that of the first value

  GLOBALQ_FUNCTION static bool stops() { return false; }
  GLOBALQ_FUNCTION std::uint64_t sign(std::uint64_t i) const { return before + i; }
  GLOBALQ_FUNCTION static float scale(int k) { return eden_factor(k); }
  GLOBALQ_FUNCTION static void check(float) {}
};

struct add_decoded_values {
  float const* x;
  float* sum;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const { sum[i] += x[i]; }
};

/// Writes means, or adds them.
template <bool Add>
struct store_blocks {
  float const* sum;
  std::uint64_t first;
  int block;
  eden_block const* blocks;
  mutable_vector y;
  kernel::agreed_call* agreed;

  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    if (!agreed->writes || !kernel::store<1, Add>(y, first + i, 1, blocks[i >> block].out, sum + i)) return;
    Kokkos::atomic_or(&agreed->faults, static_cast<std::uint32_t>(kernel::out_of_range));
    if constexpr (Add) {
      magnitude_of_value const m({y.data, y.type}, first + i);
      if (m.bits > m.infinity) fill_value(y, first + i, true);
    }
  }
};

/// What the kernels of the quantizer start from: its vectors are always in units, and every code is one of a level.
struct begin_inner_call {
  kernel::agreed_call* agreed;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    *agreed = kernel::agreed_call{};
    agreed->writes = true;
  }
};

template <class Space>
class stream_eden_codec final : public eden_frames {
 public:
  /// As eden_codec().
  stream_eden_codec(std::unique_ptr<operator_codec> codes, operator_facts const& op, double largest,
                    kernel::stream_executor<Space> const& on)
      : eden_frames(std::move(codes), op, largest),
        on_(on),
        block_(bit_width(op.bucket) - 1),
        inner_(inner_memory_.template get_values<kernel::agreed_call>(1)) {
    on_.items(1, begin_inner_call{inner_});
  }

  double extent() const override { return codes_->extent(); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    make_room(part, true);
    int const terms = terms_of(own, sources);
    open(part, own, sources, out.data(), terms);
    float* const y = values_.get_values<float>(part.count);
    on_.items(part.count, load_blocks{call_.x, part.first, own, block_, units_, y});
    for (source const& s : sources) decode(part, s, y, true);
    turn(part, call_.rank, terms, y, false);
    encode(part, y, out.data());
  }

  void finish(segment part, std::span<source const> sources) override { write<false>(part, sources); }
  void add_decoded(segment part, std::span<source const> sources) override { write<true>(part, sources); }

  void declare(std::span<std::byte> frame, int terms) const override {
    if (!frame.empty()) on_.items(1, declare_terms{frame.data(), static_cast<std::uint32_t>(terms)});
  }

 private:
  /// Memory of a part. Each of get_values() may lose what was there.
  void make_room(segment part, bool encodes) {
    std::uint64_t const blocks = format_.scales(part);
    auto const get = [&](byte_buffer& memory, std::size_t bytes) {
      if (bytes > memory.capacity() && on_.capturing()) kernel::refuse_unprepared_capture(on_.operation());
      return memory.get(bytes).data();
    };
    get(values_, part.count * sizeof(float));
    get(decoded_, part.count * sizeof(float));
    codes_->note(call_of_codes(part.count, nullptr, nullptr, {}));
    std::size_t const bytes = codes_->frame_bytes({0, part.count}, 1);
    frame_ = {get(frame_memory_, bytes), bytes};
    units_ = reinterpret_cast<eden_block*>(get(units_memory_, blocks * sizeof(eden_block)));
    if (!encodes) return;
    statistics_ =
        reinterpret_cast<norm::statistic*>(get(statistics_memory_, blocks * sizeof(norm::statistic)));
    norms_ = {reinterpret_cast<double*>(get(norms_memory_, blocks * sizeof(double))), blocks};
    sums_ = reinterpret_cast<double*>(get(sums_memory_, 16 * parts_of(part.count) * sizeof(double)));
    if (!tree_.holds(part.count, format_.bucket, 2) && on_.capturing())
      kernel::refuse_unprepared_capture(on_.operation());
  }

  /// log2 of the values that 16 sums of products are of.
  int width() const { return std::min(block_, bit_width(norm::block_values) - 1); }
  std::uint64_t parts_of(std::uint64_t values) const {
    return divide_up(values, std::uint64_t{1} << width());
  }

  void begin_codes(std::uint64_t count, float const* x, float* y) {
    codec_call c = call_of_codes(count, x, y, norms_);
    c.agreed = inner_;
    codes_->begin(c);
  }

  /// Checks frames, and finds units. Writes the header of @p frame, if there is one.
  void open(segment part, bool own, std::span<source const> sources, std::byte* frame, int terms) {
    views_.clear();
    for (source const& s : sources)
      views_.push_back({nullptr, s.frame.data() + wire::header_bytes, s.terms, s.worker, s.first});
    double const* const norms = own ? call_.bucket_scales.data() + format_.first_bucket(part) : nullptr;
    on_.items(format_.scales(part), open_blocks{{header_word(identifier_), terms},
                                                {0, 0, wire::word_of_values(part.count, traits()), frame},
                                                lists_.get(on_, views_),
                                                call_.agreed,
                                                scales(),
                                                norms,
                                                call_.weight,
                                                static_cast<double>(call_.workers),
                                                call_.x.type,
                                                units_});
  }

  /// Rotates the blocks of a part as the frame of a worker, or back.
  void turn(segment part, int worker, int terms, float* y, bool back) const {
    std::uint64_t const rest =
        std::has_single_bit(part.count % format_.bucket) ? 0 : part.count % format_.bucket;
    auto const rotate = [&](std::uint64_t first, std::uint64_t count, int block, std::uint64_t shift) {
      if (count == 0) return;
      enqueue_rotation(
          on_, turn_on_device{{first, count, block, y, y, back, signs_of(worker, terms), call_.step_at},
                              part.first + shift});
    };
    rotate(0, part.count - rest, block_, 0);
    if (rest == 0) return;
    eden_rotations const r({part.count - rest, rest});
    for (int k = 0; k < r.count; ++k) {
      int const i = back ? r.count - 1 - k : k;
      rotate(r.first[i], r.size(), r.k, r.shift(i));
    }
  }

  void encode(segment part, float const* y, std::byte* out) {
    segment const all{0, part.count};
    std::uint64_t const blocks = format_.scales(part), parts = parts_of(part.count);
    norm::enqueue_statistics(on_, {y, dtype::float32}, part.count, format_.bucket, 2, tree_, statistics_,
                             nullptr);
    on_.items(blocks, find_norms{statistics_, part.count, block_, largest_, norms_.data()});
    float* const q = decoded_.get_values<float>(part.count);
    begin_codes(part.count, y, q);
    codes_->combine(all, true, {}, frame_);
    source const made{frame_, 1, call_.rank, call_.rank};
    codes_->finish(all, {&made, 1});
    on_.items(16 * parts, add_products{y, q, part.count, width(), sums_});
    close_frame const close{statistics_,
                            norms_.data(),
                            sums_,
                            parts_of(format_.bucket),
                            parts,
                            units_,
                            call_.agreed,
                            scales(),
                            blocks,
                            wire::scale_places(blocks, scales()),
                            format_.code_bytes(part.count),
                            codes_in(all, frame_.data(), dtype::float32),
                            out + wire::header_bytes,
                            codes_in(part, out)};
    on_.items(close.items(), close);
  }

  /// Decodes a frame, in units.
  /// @param add  false: writes
  void decode(segment part, source const& s, float* y, bool add) {
    segment const all{0, part.count};
    float* const q = add ? decoded_.get_values<float>(part.count) : y;
    begin_codes(part.count, nullptr, q);
    std::uint64_t const blocks = format_.scales(part);
    open_frame const read{s.frame.data() + wire::header_bytes,
                          codes_in(part, s.frame.data()),
                          scales(),
                          units_,
                          blocks,
                          wire::scale_places(blocks, dtype::float32),
                          format_.code_bytes(part.count),
                          header_word(identifier_) | std::uint64_t{1} << 32,
                          wire::word_of_values(part.count, codes_->traits()),
                          frame_.data()};
    on_.items(read.items(), read);
    source const inner{frame_, 1, s.worker, s.worker};
    codes_->finish(all, {&inner, 1});
    turn(part, s.worker, s.terms, q, true);
    if (add) on_.items(part.count, add_decoded_values{q, y});
  }

  template <bool Add>
  void write(segment part, std::span<source const> sources) {
    if (part.empty()) return;
    make_room(part, false);
    open(part, false, sources, nullptr, 0);
    float* const sum = values_.get_values<float>(part.count);
    for (std::size_t k = 0; k < sources.size(); ++k) decode(part, sources[k], sum, k != 0);
    on_.items(part.count, store_blocks<Add>{sum, part.first, block_, units_, call_.y, call_.agreed});
  }

  kernel::stream_executor<Space> on_;
  int block_;  ///< a block has 2^block_ values
  kernel::source_lists<Space> lists_{on_};
  std::vector<kernel::source_view> views_;
  byte_buffer inner_memory_{on_.memory()};
  byte_buffer values_{on_.memory()}, decoded_{on_.memory()};  ///< a part in units; codes of one frame decoded
  byte_buffer frame_memory_{on_.memory()}, units_memory_{on_.memory()}, statistics_memory_{on_.memory()},
      norms_memory_{on_.memory()}, sums_memory_{on_.memory()};
  norm::statistics_memory tree_{on_.memory()};
  kernel::agreed_call* inner_;  ///< of the quantizer
  std::span<std::byte> frame_;  ///< of the quantizer
  eden_block* units_ = nullptr;
  norm::statistic* statistics_ = nullptr;
  std::span<double> norms_;
  double* sums_ = nullptr;
};

}  // namespace GLOBALQ_ABI::detail
