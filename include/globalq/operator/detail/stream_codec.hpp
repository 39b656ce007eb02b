// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: codecs on a stream. Kernels check and write the headers of frames, and report errors.

#include "../../kernel/device/add_floats.hpp"
#include "../../kernel/device/combine.hpp"
#include "../../kernel/device/mean.hpp"
#include "../../kernel/stream.hpp"
#include "../../kernel/stream_measured_rows.hpp"
#include "../../kernel/stream_reduction.hpp"
#include "../../reduce/exponential.hpp"
#include "../../reduce/reduce.hpp"
#include "composition.hpp"
#include "floats_codec.hpp"
#include "stream_levels.hpp"
#include "stream_state.hpp"

namespace GLOBALQ_ABI::detail {

/// The first word of a frame's header, without the number of workers.
inline std::uint64_t header_word(std::uint8_t wire) {
  wire::frame_header h;
  h.wire = wire;
  h.terms = 0;
  std::uint64_t word = 0;
  std::memcpy(&word, &h, sizeof word);
  return word;
}

/// Writes the number of workers that a frame sums.
struct declare_terms {
  std::byte* frame;
  std::uint32_t terms;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    *reinterpret_cast<std::uint32_t*>(frame + offsetof(wire::frame_header, terms)) = terms;
  }
};

/// Writes the scale of the vector to a frame, with two levels of scales.
struct write_vector_scale {
  kernel::agreed_call const* agreed;
  bool own;
  kernel::source_list sources;
  std::byte* scales;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    store_to(scales, kernel::vector_scale_word(own ? agreed->vector_scale : 0.0, sources));
  }
};

/// Writes the scales of a segment's buckets, and zeros up to the codes.
template <class Operands>
struct write_scales {
  Operands o;
  std::byte* scales;
  std::uint64_t first, count;  ///< buckets
  norm::statistic const* sums =
      nullptr;  ///< statistics of sums that are encoded again; null: use the worker's own scales
  norm::order q{};

  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    if (i >= count) {
      write_scale(scales, i, o.scale_form, 0);
      return;
    }
    std::uint64_t const b = first + i;
    o.write_scale(
        scales, b,
        sums == nullptr ? o.bucket_scale(b) : norm::local_scale(sums[i], q, o.x.type, -o.reference(b)));
  }
};

/// Checks received scales: doubles must be finite and not negative, bytes numbers. Words are always valid.
struct check_scales {
  kernel::source_list sources;
  std::uint64_t count;  ///< of a source
  std::uint32_t* faults;
  scale_format form;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    std::byte const* const scales = sources[static_cast<int>(i / count)].scales;
    bool const bad = form.in_a_byte()
                         ? static_cast<std::uint8_t>(scales[vector_scale_bytes(form) + i % count]) >
                               largest_scale_byte(form)
                         : bits_of(read_scale(scales, i % count, dtype::float64)) >= double_infinity;
    if (bad) Kokkos::atomic_or(faults, static_cast<std::uint32_t>(kernel::bad_frame));
  }
};

/// Writes the sums of a segment's values, in units of 2^reference of their bucket.
template <class Operands>
struct write_sums {
  Operands o;
  float* out;
  static constexpr int device_lanes = kernel::device::value_lanes<typename Operands::wire_type>;
  static constexpr bool fits_registers() { return false; }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    using rows = kernel::device::share<Operands, Lanes, Rows>;
    rows::for_each(o, index, lane, [&](rows const& part) {
      typename rows::floats sum;
      part.template accumulate<true>(true, part.find_references(), sum);
      part.store_floats(sum, out);
    });
  }
};

/// The codec of a composition on a stream.
/// @tparam Reduce  a user-defined reduce operator, or void
template <class Levels, class Rounding, class Wire, class Space, class Reduce = void>
class stream_codec final : public composition {
  using base = composition;
  using base::call_;
  using base::format_;
  using base::scale_bytes_of;
  using operands = kernel::device::operands<kernel::device::levels_on_device<Levels>, Rounding, Wire>;

 public:
  stream_codec(Levels const& levels, Rounding const& rounding, Wire const& wire, operator_facts const& facts,
               method how, kernel::stream_executor<Space> const& on, std::uint32_t largest_sum = 0)
      : base(policy_facts_of(levels, rounding_for(rounding, facts, how), wire, facts), facts, how),
        levels_(levels),
        rounding_(rounding_for(rounding, facts, how)),
        wire_(wire),
        on_(on) {
    policies_.largest_sum = largest_sum;
    if constexpr (requires { rounding.correlated; })
      if (rounding.correlated)
        throw configuration_error("globalq: " + facts.name +
                                  ": correlated_shift is supported only in host memory; on a stream use "
                                  "random_shift or correlated, or average in host memory");
  }

  void begin(codec_call const& c) override {
    base::begin(c);
    made_.clear();
    if (!c.settled && format_.bucket == 0)
      on_.items(1, settle_scales{c.agreed, c.bucket_scales.data(), c.x.type, extent(), c.workers, c.weight});
  }

  void set_levels(levels::detail::level_table const& levels) override {
    base::set_levels(levels);
    if constexpr (is_table) levels_.renew(on_);
  }

  double extent() const override { return static_cast<double>(levels_.on_host().extent()); }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty() || (sources.empty() && was_made({part, out}))) return;
    int const terms = base::terms_of(own, sources);
    operands const o = prepare(part, own, sources, terms);
    std::byte* const scales = out.data() + wire::header_bytes;
    std::byte* const codes = scales + scale_bytes_of(part);
    bool const leaf = sources.empty();
    if (format_.local && o.scale_form.two_level())
      on_.items(1, write_vector_scale{call_.agreed, own, o.sources, scales});
    if (leaf && format_.local && !call_.scales_written)
      enqueue_scales(write_scales<operands>{o, scales, format_.first_bucket(part), format_.scales(part)});
    if (leaf || base::adds_codes()) {
      auto const enqueue_with = [&]<class Op>(Op) {
        enqueue(o, part, out.data(), terms, kernel::device::add_codes<operands, Op>{o, codes});
      };
      if constexpr (base_two<Levels>())
        if (!leaf && base::how_ == method::exponential) return enqueue_with(reduce::exponential{});
      if constexpr (!std::is_void_v<Reduce>)
        if (!leaf && base::how_ == method::user) return enqueue_with(Reduce{});
      enqueue_with(reduce::sum{});
    } else if (measures_sums(call_.x.type)) {
      launch_measured<true>(o, terms, one_piece(part, out.data()), nullptr, nullptr);
    } else {
      if (format_.local) measure_sum(o, part, scales);
      enqueue(o, part, out.data(), terms, kernel::device::add_values<operands>{o, codes, scales});
    }
  }

  void finish(segment part, std::span<source const> sources) override { write<false>(part, sources); }

  bool batches() const override { return true; }

  void encode_all(std::span<unsent const> all) override {
    if (format_.local) return base::encode_all(all);  // other launches write the scales
    for_batches(all, [&](batch& b, std::span<unsent const> some) {
      for (int p = 0; p < b.pieces.count; ++p) b.pieces.all[p].frame = some[p].frame.data();
      operands const o = prepare(b.whole, true, {}, 1);
      launch(std::uint64_t{b.tiles} * random::tile_values, wire::header_bytes, 1, b.pieces,
             kernel::device::add_codes<operands, reduce::sum>{o, nullptr});
    });
  }

  void finish_all(std::span<arrived const> all) override {
    if (format_.local && !format_.q.format(call_.x.type).in_a_word())
      return base::finish_all(all);  // checks scales first
    for_batches(all, [&](batch const& b, std::span<arrived const> some) {
      operands o = prepare(b.whole, false, {}, call_.workers);
      views_.clear();
      for (int p = 0; p < b.pieces.count; ++p) {
        views_.push_back(base::view_of(some[p].part, some[p].from));
        views_.back().codes -= bytes_before(b.pieces.all[p]);
        views_.back().scales -= o.scales_before(b.pieces.all[p].tile);
      }
      o.sources = {views_.data(), views_.size()};
      o.sources.count = 1;  // of each segment
      with_mean<false>(o, [&](auto const& body) {
        launch(std::uint64_t{b.tiles} * random::tile_values, wire::header_bytes, 0, b.pieces, body);
      });
    });
  }

  void add_decoded(segment part, std::span<source const> sources) override { write<true>(part, sources); }

  /// Scales of two levels depend on the whole vector, except of sums.
  bool measures(dtype type) const override {
    return measures_sums(type) && !format_.q.format(type).two_level();
  }

  void measure_all(std::span<unsent const> all, double* bucket_scales, std::uint64_t* top) override {
    for_batches(all, [&](batch& b, std::span<unsent const> some) {
      for (int p = 0; p < b.pieces.count; ++p) b.pieces.all[p].frame = some[p].frame.data();
      launch_measured<false>(prepare(b.whole, true, {}, 1), 1, b.pieces, bucket_scales, top);
    });
    for (unsent const& each : all)
      if (!each.frame.empty()) made_.push_back(each);
  }

  void declare(std::span<std::byte> frame, int terms) const override {
    if (!frame.empty()) on_.items(1, declare_terms{frame.data(), static_cast<std::uint32_t>(terms)});
  }

 protected:
  levels::detail::level_table* table() override {
    if constexpr (is_table)
      return &levels_.on_host();
    else
      return nullptr;
  }

 private:
  bool measures_sums(dtype type) const { return format_.local && type != dtype::float64 && group_ > 0; }

  /// Whether measure_all() wrote this frame. Forgets it, because a later round may encode the frame again.
  bool was_made(unsent const& frame) {
    auto const found = std::find_if(made_.begin(), made_.end(), [&](unsent const& each) {
      return each.part.first == frame.part.first && each.part.count == frame.part.count &&
             each.frame.data() == frame.frame.data();
    });
    if (found == made_.end()) return false;
    made_.erase(found);
    return true;
  }

  static constexpr bool is_table = std::is_same_v<Levels, levels::detail::level_table>;

  template <bool Add>
  void write(segment part, std::span<source const> sources) {
    if (part.empty()) return;
    operands const o = prepare(part, false, sources, call_.workers);
    with_mean<Add>(o, [&](auto const& body) { enqueue(o, part, nullptr, 0, body); });
  }

  /// Calls f with the body that decodes and writes the mean.
  template <bool Add, class F>
  void with_mean(operands const& o, F const& f) const {
    if constexpr (kernel::device::value_lanes<Wire> == 1) {
      using one = kernel::device::write_mean_of_one<operands, Add>;
      if (one::suits(o, call_.y)) return f(one(o, call_.y));
    }
    f(kernel::device::write_mean<operands, Add>(o, call_.y));
  }

  operands prepare(segment part, bool own, std::span<source const> sources, int terms) {
    views_.clear();
    for (source const& s : sources) views_.push_back(base::view_of(part, s));
    operands o(levels_.on_device(on_), rounding_, wire_);
    if constexpr (ToldWorker<Rounding>) o.rounding = rounding_.for_worker(call_.encoder, call_.encoders);
    base::lay_out(o, part, own, terms);
    o.sources = lists_.get(on_, views_);
    o.faults = &call_.agreed->faults;
    if (format_.local && !o.scale_form.in_a_word())
      on_.items(format_.scales(part) * views_.size(),
                check_scales{o.sources, format_.scales(part), o.faults, o.scale_form});
    return o;
  }

  template <class Body>
  void enqueue(operands const& o, segment part, std::byte* frame, int terms, Body const& body) const {
    launch(o.count, wire::header_bytes + scale_bytes_of(part), terms, one_piece(part, frame), body);
  }

  template <class Body>
  void launch(std::uint64_t values, std::size_t codes_at, int terms, kernel::piece_list const& pieces,
              Body const& body) const {
    on_.values(values,
               kernel::framed<Body>{body, {header_word(policies_.identifier), terms}, codes_at, pieces});
  }

  std::uint64_t values_word(std::uint64_t count) const { return wire::word_of_values(count, base::traits()); }

  /// The segments of one launch.
  struct batch {
    segment whole;  ///< from the first to the last
    kernel::piece_list pieces;
    std::uint32_t tiles = 0;
  };

  /// Launches a kernel that measures and encodes the buckets of segments.
  template <bool Sum>
  void launch_measured(operands const& o, int terms, kernel::piece_list const& pieces, double* bucket_scales,
                       std::uint64_t* top) const {
    kernel::measured_codes<operands, Sum> body{
        o, {header_word(policies_.identifier), terms}, pieces, format_.q, bucket_scales, top, group_};
    if constexpr (!Sum && kernel::has_shuffles<Space> && kernel::device::value_lanes<Wire> == 1) {
      using kernel::measured_rows;
      if (launched<measured_rows<operands, infinity, false>>(body)) return;
      if (launched<measured_rows<operands, infinity, true>>(body)) return;
      if (launched<measured_rows<operands, 2, false>>(body)) return;
      if (launched<measured_rows<operands, 2, true>>(body)) return;
    }
    std::uint32_t const items = items_of(body);
    on_.teams(items, body);
  }
  /// Launches the kernel Rows instead, if it suits.
  template <class Rows>
  bool launched(kernel::measured_codes<operands, false>& body) const {
    if (!Rows::suits(body.o, format_.q)) return false;
    body.group = Rows::group_of(format_.bucket);
    std::uint32_t const items = items_of(body);
    on_.teams(items, Rows{body});
    return true;
  }
  /// Numbers the items of each piece. @returns how many there are
  template <bool Sum>
  std::uint32_t items_of(kernel::measured_codes<operands, Sum>& body) const {
    std::uint64_t const most = static_cast<std::uint64_t>(body.group) * format_.bucket;
    std::uint32_t items = 0;
    for (int p = 0; p < body.pieces.count; ++p) {
      body.pieces.all[p].start = items;
      items += static_cast<std::uint32_t>(divide_up(wire::values_of_word(body.pieces.all[p].values), most));
    }
    return items;
  }

  static std::uint32_t tiles_of(std::uint64_t values) {
    return static_cast<std::uint32_t>(divide_up<std::uint64_t>(values, random::tile_values));
  }
  kernel::piece_list one_piece(segment part, std::byte* frame) const {
    return kernel::piece_list::of_one(values_word(part.count), frame);
  }
  std::size_t bytes_before(kernel::piece_list::piece const& p) const {
    return format_.code_bytes(std::uint64_t{p.tile} * random::tile_values);
  }

  /// Whether a launch can process b after a.
  static bool follows(segment a, segment b) {
    return b.first >= a.first + a.count && a.count % random::tile_values == 0 &&
           (b.first - a.first) % random::tile_values == 0;
  }

  /// Calls f(batch, its elements) for batches of as many segments as a launch can process.
  template <class Each, class F>
  void for_batches(std::span<Each const> all, F const& f) const {
    while (!all.empty() && all.back().part.empty()) all = all.first(all.size() - 1);
    for (std::size_t at = 0; at < all.size();) {
      std::size_t n = 1;
      while (n < kernel::piece_list::most && at + n < all.size() &&
             follows(all[at + n - 1].part, all[at + n].part))
        ++n;
      std::span<Each const> const some = all.subspan(at, n);
      segment const last = some.back().part;
      batch b;
      b.whole = {some[0].part.first, last.first + last.count - some[0].part.first};
      b.pieces.count = static_cast<int>(some.size());
      for (std::size_t p = 0; p < some.size(); ++p) {
        segment const part = some[p].part;
        b.pieces.all[p] = {b.tiles, tiles_of(part.first - b.whole.first), values_word(part.count), nullptr};
        b.tiles += tiles_of(part.count);
      }
      f(b, some);
      at += some.size();
    }
  }

  void enqueue_scales(write_scales<operands> const& scales) const {
    on_.items(wire::scale_places(scales.count, format_.q.format(call_.x.type)), scales);
  }

  /// For local norms: computes the norm of the sum, and writes the scales.
  void measure_sum(operands const& o, segment part, std::byte* scales) {
    float* const sums = sums_.get_values<float>(part.count);
    auto* const statistics = statistics_.get_values<norm::statistic>(format_.scales(part));
    on_.values(part.count, write_sums<operands>{o, sums});
    norm::enqueue_statistics(on_, {sums, dtype::float32}, part.count, format_.bucket, format_.q, tree_,
                             statistics, nullptr);
    enqueue_scales({o, scales, format_.first_bucket(part), format_.scales(part), statistics, format_.q});
  }

  stream_levels<Levels, Space> levels_;
  Rounding rounding_;
  Wire wire_;
  /// Buckets that a team measures and encodes at a time; 0: buckets are too long, or a row spans two
  int group_ = kernel::measured_buckets::of(format_.bucket, 4 * kernel::device::value_lanes<Wire>);
  kernel::stream_executor<Space> on_;
  kernel::source_lists<Space> lists_{on_};
  std::vector<kernel::source_view> views_;
  std::vector<unsent> made_;  ///< frames of this call that measure_all() wrote
  byte_buffer sums_{on_.memory()};
  byte_buffer statistics_{on_.memory()};
  norm::statistics_memory tree_{on_.memory()};
};

/// The codec of floating-point numbers on a stream.
template <class Space>
class stream_floats_codec final : public floats_frames {
 public:
  stream_floats_codec(kernel::stream_executor<Space> const& on, floats_policies const& policies)
      : floats_frames(policies), on_(on) {}

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    add(part, own, sources, out.data(), terms_of(own, sources));
  }

  void finish(segment part, std::span<source const> sources) override {
    if (!part.empty()) add(part, false, sources, nullptr, 0);
  }

  void declare(std::span<std::byte> frame, int terms) const override {
    if (!frame.empty()) on_.items(1, declare_terms{frame.data(), static_cast<std::uint32_t>(terms)});
  }

 private:
  void add(segment part, bool own, std::span<source const> sources, std::byte* out, int terms) {
    if (format_.type == dtype::float32) return add<float>(part, own, sources, out, terms);
    if (format_.type == dtype::bfloat16) return add<bfloat16>(part, own, sources, out, terms);
    add<float16>(part, own, sources, out, terms);
  }
  template <class Sent>
  void add(segment part, bool own, std::span<source const> sources, std::byte* out, int terms) {
    views_.clear();
    for (source const& s : sources) views_.push_back(view_of(s));
    using body_type = kernel::device::add_floats<Sent>;
    body_type body{call_of(part, own, lists_.get(on_, views_), out), call_.agreed};
    body.divisor = call_.bucket_scales.data();
    body.faults = &call_.agreed->faults;
    on_.values(part.count, kernel::framed<body_type>{body,
                                                     {header_word(format_.identifier()), terms},
                                                     wire::header_bytes,
                                                     kernel::piece_list::of_one(part.count, out)});
  }

  kernel::stream_executor<Space> on_;
  kernel::source_lists<Space> lists_{on_};
  std::vector<kernel::source_view> views_;
};

}  // namespace GLOBALQ_ABI::detail
