// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: common base of the codecs of levels, rounding and wire, in host memory and on streams.

#include "../../levels/exponential.hpp"
#include "../../levels/table.hpp"
#include "../../levels/uniform.hpp"
#include "../../rounding/shared_draw.hpp"
#include "frame_format.hpp"
#include "operator_codec.hpp"

namespace GLOBALQ_ABI::detail {

template <class L>
struct levels_of_kernels {
  using type =
      std::conditional_t<std::is_base_of_v<levels::detail::level_table, L>, levels::detail::level_table, L>;
};
template <std::uint32_t S>
struct levels_of_kernels<levels::uniform<S>> {
  using type = levels::uniform<>;
};
template <std::uint32_t S>
struct levels_of_kernels<levels::exponential<S, levels::binary>> {
  using type = levels::exponential<>;
};

/// The types for which kernels are compiled: numbers are data; all tables share one type, and so do all roundings with
/// one word per bucket.
template <class L>
using kernel_levels = typename levels_of_kernels<L>::type;
template <class R>
using kernel_rounding =
    std::conditional_t<std::is_base_of_v<rounding::detail::shared_draw, R>, rounding::detail::shared_draw, R>;

/// A hash of the values of codes, in units of their scale.
template <class Levels>
std::uint64_t hash_of_levels(std::uint64_t h, Levels const& levels, bool zero_free) {
  h = hash(hash(h, levels.max_code()), std::uint64_t{bits_of(levels.extent())});
  for (std::uint32_t code = zero_free ? 1 : 0; code <= levels.max_code() && code <= 256; ++code)
    h = hash(h, std::uint64_t{bits_of(levels.value(code))});
  return hash(h, zero_free ? 1U : 0U);
}

/// The rounding of a codec.
///
/// A shifted value may exceed the norm by half a gap. If sums are encoded again at k times the norm, the largest value
/// would be clipped and the mean biased; the grid is then not shifted back.
template <class Rounding>
Rounding rounding_for(Rounding rounding, operator_facts const& facts, method how) {
  if constexpr (MayLeaveShifts<Rounding>)
    if (keeps_scale_of_sums(facts, how)) rounding.shift_back = false;
  return rounding;
}

/// A hash of the values of codes, bucket, fixed scale and shift.
template <class Levels>
std::uint64_t hash_of_codes(Levels const& levels, bool shifts, std::uint64_t bucket, double fixed_scale,
                            bool zero_free) {
  return hash_of_levels(hash(hash(bucket, bits_of(fixed_scale)), shifts ? 1U : 0U), levels, zero_free);
}

/// The largest code of frames with a user-defined reduce operator; else 0: that of the levels.
inline std::uint32_t largest_sum_of(resolution const& r) {
  return r.how == method::user ? r.size + r.headroom : 0;
}

/// Properties of policies that a codec uses besides their kernels.
struct policy_facts {
  std::uint64_t hash;  ///< hash_of_codes()
  bool shifts;
  std::uint8_t identifier;  ///< of the wire
  bool integer_wire;
  std::uint32_t largest_sum = 0;  ///< largest code of sums; 0: that of the levels
};
template <class Levels, class Rounding, class Wire>
policy_facts policy_facts_of(Levels const& levels, Rounding const& rounding, Wire const& wire,
                             operator_facts const& facts) {
  bool const shifts = rounding.shifts();
  return {hash_of_codes(levels, shifts, facts.bucket, facts.fixed_scale, facts.zero_free), shifts,
          wire.identifier(), is_integer_wire<Wire>()};
}

/// A composition whose policies are given as data.
class composition : public operator_codec {
 public:
  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    return format_.bytes(part, call_.x.type);
  }

  void set_levels(levels::detail::level_table const& levels) override {
    levels::detail::level_table* const own = table();
    if (own == nullptr) return operator_codec::set_levels(levels);
    if (!own->alike(levels))
      throw configuration_error("globalq: set_levels: " + number(levels.size()) + " levels " +
                                (levels.zero_free() ? "without" : "with") + " zero cannot replace " +
                                number(own->size()) + (zero_free_ ? " without" : " with") +
                                " zero; pass as many of the same kind, or construct a new operator");
    *own = levels;
    policies_.hash = hash_of_codes(levels, policies_.shifts, format_.bucket, fixed_scale_, zero_free_);
  }

  wire::frame_traits traits() const override {
    scale_format const form = format_.q.format(call_.x.type);
    return wire::traits_of(format_.local ? &form : nullptr,
                           hash(policies_.hash, std::uint64_t{bits_of(form.quantum)}));
  }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    payload p;
    if (!policies_.integer_wire || how_ != method::sum || part.empty()) return p;
    p.type = format_.integers();
    p.data = frame.data() + wire::header_bytes;
    p.count = part.count;
    return p;
  }

 protected:
  composition(policy_facts const& policies, operator_facts const& facts, method how)
      : how_(how),
        format_(facts),
        zero_free_(facts.zero_free),
        fixed_scale_(facts.fixed_scale),
        user_norm_(facts.user_norm),
        policies_(policies) {}

  /// The levels, if they are a table; else null.
  virtual levels::detail::level_table* table() = 0;

  std::size_t scale_bytes_of(segment part) const { return format_.scale_bytes(part, call_.x.type); }

  /// The kernels' view of a frame, without checking it.
  kernel::source_view view_of(segment part, source const& s) const {
    std::byte const* const scales = s.frame.data() + wire::header_bytes;
    return {scales + scale_bytes_of(part), scales, s.terms, s.worker, s.first};
  }

  /// Whether codes are added without decoding them.
  bool adds_codes() const {
    return how_ == method::sum || how_ == method::exponential || how_ == method::user;
  }

  /// Fills in everything except policies, sources and faults.
  void lay_out(kernel::segment_call& o, segment part, bool own, int terms) const {
    if (policies_.largest_sum != 0) o.max_code = policies_.largest_sum;
    o.x = call_.x;
    o.first = part.first;
    o.count = part.count;
    o.bucket = format_.bucket;
    o.bucket_scales = call_.bucket_scales.data();
    o.scale_form = format_.q.format(call_.x.type);
    o.wide = call_.wide;
    o.local = format_.local;
    o.zero_free = zero_free_;
    o.summed = adds_codes();
    o.codes_add = how_ == method::sum;
    o.rank = call_.rank;
    o.workers = call_.workers;
    o.weight = call_.weight;
    o.seed = call_.seed;
    o.step = call_.step;
    o.step_at = call_.step_at;
    o.agreed = call_.agreed;
    o.own = own;
    o.terms = terms;
  }

  method how_;
  codes_format format_;
  bool zero_free_;
  double fixed_scale_;
  std::shared_ptr<detail::user_norm const> user_norm_;
  policy_facts policies_;
};

}  // namespace GLOBALQ_ABI::detail
