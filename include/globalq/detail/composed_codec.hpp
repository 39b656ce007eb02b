// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief quantizer: the codec of one composition of levels, rounding and wire; norm and method are data.

#include "../kernel/combine.hpp"
#include "../levels/table.hpp"
#include "../norm/reduction.hpp"
#include "../reduce/exponential.hpp"
#include "../reduce/reduce.hpp"
#include "../rounding/one_word.hpp"
#include "operator_codec.hpp"
#include "resolve.hpp"

namespace globalq::detail {

/// The type that kernels are compiled for: all tables share one, and so do all roundings with one word a bucket.
template <class L>
using kernel_levels =
    std::conditional_t<std::is_base_of_v<levels::detail::level_table, L>, levels::detail::level_table, L>;
template <class R>
using kernel_rounding =
    std::conditional_t<std::is_base_of_v<rounding::detail::one_word, R>, rounding::detail::one_word, R>;

template <class L>
constexpr bool adds_as_integers() {
  if constexpr (requires { L::evenly_spaced; }) return L::evenly_spaced;
  return false;
}
template <class L>
constexpr bool is_binary() {
  if constexpr (requires { L::is_binary; }) return L::is_binary;
  return false;
}

/// @tparam Levels,Rounding  kernel types
template <class Levels, class Rounding, class Wire>
class composed_codec final : public operator_codec {
 public:
  composed_codec(Levels levels, Rounding rounding, Wire wire, operator_facts const& facts, method how,
                 kernel::host_executor on)
      : levels_(levels),
        rounding_(rounding),
        wire_(wire),
        how_(how),
        bucket_(facts.bucket),
        q_(facts.q),
        local_(facts.local),
        zero_free_(facts.zero_free),
        on_(std::move(on)) {
    // A shifted value may pass the norm by half a gap. Where sums are encoded again at k times the norm, the largest
    // would be cut off, and the mean biased: there the grid is not shifted back.
    if constexpr (requires { rounding_.shift_back; })
      if (keeps_scale_of_sums(facts, how)) rounding_.shift_back = false;
  }

  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    if (part.empty()) return 0;
    return wire::header_bytes + scale_bytes_of(part) + wire_.bytes(part.count);
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    int terms = own ? 1 : 0;
    for (source const& s : sources) terms += s.terms;
    operands const o = prepare(part, own, sources, terms);
    std::byte* const scales = out.data() + wire::header_bytes;
    std::byte* const codes = scales + scale_bytes_of(part);
    bool const leaf = sources.empty();
    if (leaf && local_) write_scales(o, part, scales, [&](std::uint64_t b) { return call_.units[b]; });
    if (leaf || how_ == method::sum || how_ == method::exponential) {
      if (is_binary<Levels>() && !leaf && how_ == method::exponential) {
        if constexpr (is_binary<Levels>())
          on_.values(part.count, kernel::add_codes<operands, reduce::exponential>{o, codes});
      } else {
        on_.values(part.count, kernel::add_codes<operands, reduce::sum>{o, codes});
      }
    } else {
      bool const fit = local_ && kernel::buckets_fit(bucket_);
      if (fit)
        std::memset(scales, 0, scale_bytes_of(part));
      else if (local_)
        measure_sum(o, part, scales);
      on_.values(part.count, kernel::add_values<operands>{o, codes, scales, fit, q_});
    }
    check_codes(sources);
    wire::write_header(out, wire_.identifier(), terms, part.count);
  }

  bool encode_measured(segment all, std::span<double> units, std::span<std::byte> out) override {
    if (!local_ || !kernel::buckets_fit(bucket_) || all.empty()) return false;
    operands o = prepare(all, true, {}, 1);
    o.units = units.data();
    std::byte* const scales = out.data() + wire::header_bytes;
    std::byte* const codes = scales + scale_bytes_of(all);
    std::memset(out.data(), 0, wire::header_bytes + scale_bytes_of(all));
    on_.values(all.count, kernel::encode_measured<operands>{{o, codes}, scales, units.data(), q_});
    if ((faults_ & kernel::not_finite) != 0) return false;
    wire::write_header(out, wire_.identifier(), 1, all.count);
    return true;
  }

  void finish(segment part, std::span<source const> sources) override { write<false>(part, sources); }

  void add_decoded(segment part, std::span<source const> sources) override { write<true>(part, sources); }

  void verify(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    operands const o = prepare(part, false, sources, call_.workers);
    on_.values(part.count, kernel::check_codes<operands>{o});
    check_codes(sources);
  }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    payload p;
    if constexpr (Wire::is_integer) {
      if (how_ != method::sum || part.empty()) return p;
      constexpr std::size_t width = sizeof(typename Wire::lane);
      p.type = width == 1 ? payload::kind::int8 : (width == 2 ? payload::kind::int16 : payload::kind::int32);
      p.data = frame.data() + wire::header_bytes;
      p.count = part.count;
    }
    return p;
  }

 private:
  using operands = kernel::operands<Levels, Rounding, Wire>;

  template <bool Add>
  void write(segment part, std::span<source const> sources) {
    if (part.empty()) return;
    operands const o = prepare(part, false, sources, call_.workers);
    on_.values(part.count, kernel::write_mean<operands, Add>{o, call_.y});
    check_codes(sources);
  }

  std::uint64_t scales_of(segment part) const {
    return !local_ ? 0 : (bucket_ == 0 ? 1 : divide_up(part.count, bucket_));
  }
  std::size_t scale_bytes_of(segment part) const {
    return wire::scale_section(scales_of(part), call_.x.type);
  }

  /// Checks the headers of all sources and lays everything out for the kernels.
  operands prepare(segment part, bool own, std::span<source const> sources, int terms) {
    views_.clear();
    for (source const& s : sources) {
      std::size_t const bytes = frame_bytes(part, s.terms);
      wire::check_header(s, wire_.identifier(), part.count, bytes);
      std::byte const* const scales = s.frame.data() + wire::header_bytes;
      if (local_) check_scales(part, s, scales);
      views_.push_back({scales + scale_bytes_of(part), scales, s.terms, s.worker});
    }
    operands o{levels_, rounding_, wire_, call_.x};
    o.first = part.first;
    o.count = part.count;
    o.bucket = bucket_;
    o.units = call_.units.data();
    o.wide = call_.wide;
    o.local = local_;
    o.zero_free = zero_free_;
    o.summed = how_ == method::sum || how_ == method::exponential;
    o.codes_add = how_ == method::sum;
    o.rank = call_.rank;
    o.workers = call_.workers;
    o.seed = call_.seed;
    o.step = call_.step;
    o.sources = views_.data();
    o.source_count = static_cast<int>(views_.size());
    o.own = own;
    o.terms = terms;
    o.faults = &faults_;
    o.settle();
    return o;
  }

  /// A scale that travelled must be a finite number that is not negative.
  void check_scales(segment part, source const& s, std::byte const* scales) const {
    if (call_.x.type != dtype::float64) return;  // every word is a scale
    for (std::uint64_t b = 0; b < scales_of(part); ++b) {
      double u = 0;
      std::memcpy(&u, scales + 8 * b, 8);
      if (bits_of(u) >= double_infinity)
        throw frame_error("globalq: decode: bad frame from worker " + std::to_string(s.worker) + ": scale " +
                          std::to_string(b) + " is negative or not finite; the bytes were damaged");
    }
  }

  std::uint64_t first_bucket(segment part) const { return bucket_ == 0 ? 0 : part.first / bucket_; }

  /// @param unit  unit(b) for each bucket b of the vector, already representable
  template <class Unit>
  void write_scales(operands const& o, segment part, std::byte* scales, Unit const& unit) const {
    std::memset(scales, 0, scale_bytes_of(part));
    for (std::uint64_t b = first_bucket(part), end = b + scales_of(part); b < end; ++b)
      o.write_scale(scales, b, unit(b));
  }

  /// Local norms: the norm of the sum, recomputed, bucket by bucket.
  void measure_sum(operands const& o, segment part, std::byte* scales) {
    statistics_.resize(scales_of(part));
    auto const block = [&](std::uint64_t first, int count) {
      constexpr int N = kernel::tile_values;
      float values[norm::block_values];
      float row_sum[N];
      std::uint64_t const end = first + static_cast<std::uint64_t>(count);
      for (std::uint64_t tile = first / N; tile * N < end; ++tile) {
        kernel::row const r = kernel::row_of<16>(tile, 0, 0, part.count);
        o.template accumulate<N>(r, true, row_sum);
        std::uint64_t const from = std::max(first, r.first),
                            to = std::min(end, r.first + static_cast<std::uint64_t>(r.count));
        for (std::uint64_t i = from; i < to; ++i) values[i - first] = row_sum[i - r.first];
      }
      return norm::block_statistic({values, dtype::float32}, 0, count, q_);
    };
    norm::bucket_statistics(on_, part.count, bucket_, q_, block, statistics_, parts_);
    write_scales(o, part, scales, [&, first = first_bucket(part)](std::uint64_t b) {
      return norm::local_unit(statistics_[b - first], q_, call_.x.type, -o.reference(b));
    });
  }

  Levels levels_;
  Rounding rounding_;
  Wire wire_;
  method how_;
  std::uint64_t bucket_;
  std::uint32_t q_;
  bool local_;
  bool zero_free_;
  kernel::host_executor on_;
  std::vector<kernel::source_view> views_;
  std::vector<norm::statistic> statistics_, parts_;
};

}  // namespace globalq::detail
