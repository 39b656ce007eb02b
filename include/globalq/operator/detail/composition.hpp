// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: what the codecs of a composition of levels, rounding and wire share, wherever its kernels run.

#include "../../kernel/combine.hpp"
#include "../../kernel/mean.hpp"
#include "../../kernel/reduction.hpp"
#include "../../levels/table.hpp"
#include "../../reduce/exponential.hpp"
#include "../../reduce/reduce.hpp"
#include "../../rounding/one_word.hpp"
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

template <class W>
constexpr bool is_integer_wire() {
  if constexpr (requires { W::is_integer; }) return W::is_integer;
  return false;
}

/// A composition with its numbers; norm and method are data.
/// @tparam Levels,Rounding  kernel types
template <class Levels, class Rounding, class Wire>
class composition : public operator_codec {
 public:
  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    if (part.empty()) return 0;
    return wire::header_bytes + scale_bytes_of(part) + wire_.bytes(part.count);
  }

  void set_levels(levels::detail::level_table const& levels) override {
    if constexpr (std::is_same_v<Levels, levels::detail::level_table>) {
      if (!levels_.alike(levels))
        throw configuration_error("globalq: set_levels: " + number(levels.size()) + " levels " +
                                  (levels.zero_free() ? "without" : "with") + " zero cannot replace " +
                                  number(levels_.size()) + (zero_free_ ? " without" : " with") +
                                  " zero; give as many of the same kind, or make a new operator");
      levels_ = levels;
      hash_ = hash_of_levels();
    } else {
      operator_codec::set_levels(levels);
    }
  }

  wire::frame_traits traits() const override {
    scale_format const form = q_.format(call_.x.type);
    return wire::traits_of(local_ ? &form : nullptr, hash(hash_, std::uint64_t{bits_of(form.quantum)}));
  }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    payload p;
    if constexpr (is_integer_wire<Wire>()) {
      if (how_ != method::sum || part.empty()) return p;
      constexpr std::size_t width = sizeof(typename Wire::lane);
      p.type = width == 1 ? payload::kind::int8 : (width == 2 ? payload::kind::int16 : payload::kind::int32);
      p.data = frame.data() + wire::header_bytes;
      p.count = part.count;
    }
    return p;
  }

 protected:
  using operands = kernel::operands<Levels, Rounding, Wire>;

  composition(Levels levels, Rounding rounding, Wire wire, operator_facts const& facts, method how)
      : levels_(levels),
        rounding_(rounding),
        wire_(wire),
        how_(how),
        bucket_(facts.bucket),
        q_(facts.q),
        local_(facts.local),
        zero_free_(facts.zero_free),
        fixed_unit_(facts.fixed_unit) {
    // A shifted value may pass the norm by half a gap. Where sums are encoded again at k times the norm, the largest
    // would be cut off, and the mean biased: there the grid is not shifted back.
    if constexpr (requires { rounding_.shift_back; })
      if (keeps_scale_of_sums(facts, how)) rounding_.shift_back = false;
    hash_ = hash_of_levels();
  }

  std::uint64_t scales_of(segment part) const {
    return !local_ ? 0 : (bucket_ == 0 ? 1 : divide_up(part.count, bucket_));
  }
  std::size_t scale_bytes_of(segment part) const {
    return wire::scale_section(scales_of(part), q_.format(call_.x.type));
  }
  std::uint64_t first_bucket(segment part) const { return bucket_ == 0 ? 0 : part.first / bucket_; }

  /// The kernels' view of a frame, whatever is in it.
  kernel::source_view view_of(segment part, source const& s) const {
    std::byte const* const scales = s.frame.data() + wire::header_bytes;
    return {scales + scale_bytes_of(part), scales, s.terms, s.worker, s.first};
  }

  /// Whether codes are added as they are, by whatever operator.
  bool adds_codes() const { return how_ == method::sum || how_ == method::exponential; }

  /// f(reduce operator) for the one that adds codes in a frame; codes of the own values only need none.
  template <class F>
  void with_reduce(bool leaf, F const& f) const {
    if constexpr (is_binary<Levels>())
      if (!leaf && how_ == method::exponential) return f(reduce::exponential{});
    f(reduce::sum{});
  }

  /// Everything but sources and faults.
  operands lay_out(segment part, bool own, int terms) const {
    operands o{levels_, rounding_, wire_, call_.x};
    o.first = part.first;
    o.count = part.count;
    o.bucket = bucket_;
    o.units = call_.units.data();
    o.scale_form = q_.format(call_.x.type);
    o.wide = call_.wide;
    o.local = local_;
    o.zero_free = zero_free_;
    o.summed = adds_codes();
    o.codes_add = how_ == method::sum;
    o.rank = call_.rank;
    o.workers = call_.workers;
    o.weight = call_.weight;
    o.seed = call_.seed;
    o.step = call_.step;
    o.agreed = call_.agreed;
    o.own = own;
    o.terms = terms;
    return o;
  }

  /// What the codes of a frame stand for, in units of their scale.
  std::uint64_t hash_of_levels() const {
    std::uint64_t h = hash(hash(bucket_, bits_of(fixed_unit_)), rounding_.shifts() ? 1U : 0U);
    h = hash(hash(h, levels_.max_code()), std::uint64_t{bits_of(levels_.extent())});
    for (std::uint32_t code = zero_free_ ? 1 : 0; code <= levels_.max_code() && code <= 256; ++code)
      h = hash(h, std::uint64_t{bits_of(levels_.value(code))});
    return hash(h, zero_free_ ? 1U : 0U);
  }

  Levels levels_;
  Rounding rounding_;
  Wire wire_;
  method how_;
  std::uint64_t bucket_;
  norm::order q_;
  bool local_;
  bool zero_free_;
  double fixed_unit_;
  std::uint64_t hash_ = 0;  ///< hash_of_levels()
};

}  // namespace globalq::detail
