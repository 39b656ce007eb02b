// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: computes the properties of an operator, operator_facts, from its policies.

#include "../../core/detail/compiled.hpp"
#include "../../wire/coded.hpp"
#include "../quantizer.hpp"
#include "user_norm.hpp"

namespace GLOBALQ_ABI::detail {

template <class O>
inline constexpr bool is_composed = is_floats<O>;
template <class N, class L, class R, class W, class Op>
inline constexpr bool is_composed<quantizer<N, L, R, W, Op>> = true;

GLOBALQ_DECL std::string order_name(std::uint32_t order);

template <Named P>
std::string name_of_policy(P const& policy) {
  if constexpr (NamedByFunction<P>)
    return std::string(policy.name());
  else
    return P::name;
}
/// The name and parameters that a policy declares.
struct declared {
  std::string name;
  std::uint64_t parameters = 0;
  bool has_parameters = false;
};
template <Named P>
declared declared_by(P const& policy) {
  declared d{name_of_policy(policy)};
  if constexpr (HasParameters<P>) {
    d.parameters = policy.parameters();
    d.has_parameters = true;
  }
  return d;
}

/// Fills in the names and the hash of policies, from their declarations and the other facts.
/// @param norm  a user-defined norm; null: the facts determine its name
GLOBALQ_DECL void name_facts(operator_facts& f, declared const* norm, declared const& levels,
                             declared const& rounding, declared const& wire, declared const& reduce);

/// Fills in the hash and the magnitudes of levels. Allocates nothing if there were as many before.
template <class L>
void take_values(operator_facts& f, L const& levels) {
  f.levels = hash(0, static_cast<std::uint64_t>(bits_of(levels.extent())));
  f.magnitudes.clear();
  for (std::uint32_t code = 0; code <= levels.max_code(); ++code) {
    float const value = levels.value(code);
    if (code <= 256) f.levels = hash(f.levels, static_cast<std::uint64_t>(bits_of(value)));
    if (code != 0) f.magnitudes.push_back(static_cast<double>(value) / static_cast<double>(levels.extent()));
  }
  std::sort(f.magnitudes.begin(), f.magnitudes.end());
}

template <class N, class L, class R, class W, class Op>
operator_facts facts_of(quantizer<N, L, R, W, Op> const& op) {
  using levels_type = kernel_levels<L>;
  operator_facts f;
  f.evenly_spaced = adds_as_integers<L>();
  f.binary = base_two<L>();
  if constexpr (SaysZeroFree<L>) f.zero_free = op.levels.zero_free();
  if constexpr (Sized<L>) {
    f.size = op.levels.size();
  } else {
    f.size = op.levels.max_code();
  }
  if constexpr (Limited<levels_type>) {
    f.limit = levels_type::limit;
  } else {
    f.limit = f.size;
  }
  if constexpr (HasStatistic<N>) {
    f.q = f.p = infinity;  // of the largest magnitude, which is measured too
    if constexpr (SaysRoundsUp<N>) f.q.quantum = op.norm.rounds_up ? 1.0F : 0.0F;
    f.user_norm = std::make_shared<user_norm_of<N>>(op.norm);
  } else {
    f.q = norm::order_of(op.norm);
    f.p = op.norm.outer();
    f.fixed_scale = op.norm.fixed_scale();
    if constexpr (norm::SaysError<N>) f.error = op.norm.error;
  }
  f.bucket = op.norm.bucket;
  f.local = op.norm.is_local;
  f.shifts = op.rounding.shifts();
  f.unbiased = R::unbiased;
  f.nearest = std::is_same_v<R, rounding::nearest>;
  f.told_worker = ToldWorker<R>;
  if constexpr (SaysGain<R>) f.gain = [](std::uint32_t workers) -> double { return R::gain(workers); };
  if constexpr (SaysTold<R>) f.told_worker = op.rounding.told();
  if constexpr (SaysVarianceFactor<R>)
    if (f.told_worker)
      f.variance_factor = [](std::uint32_t workers) -> double { return R::variance_factor(workers); };
  f.integer_wire = is_integer_wire<W>();
  if constexpr (wire::BlockCode<W>) {
    using code_type = typename W::code_type;
    f.largest_code = W::largest_code();
    f.wire_bits = 8 * static_cast<int>(sizeof(code_type));
    f.most_bytes = [](std::uint64_t count, std::uint32_t largest, bool zero_free) -> std::size_t {
      return wire::coded<W>(W{}, largest, zero_free).capacity(count);
    };
  } else {
    f.largest_code = op.wire.largest_code(f.zero_free);
    f.wire_bits = op.wire.bits();
    if constexpr (!without_gaps<W>())
      f.wire_bytes = [wire = op.wire](std::uint64_t count) -> std::uint64_t { return wire.bytes(count); };
  }
  if constexpr (std::is_same_v<Op, reduce::sum>) f.reduce = request::sum;
  if constexpr (std::is_same_v<Op, reduce::exponential>) f.reduce = request::exponential;
  if constexpr (std::is_same_v<Op, reduce::requantize>) f.reduce = request::requantize;
  if constexpr (std::is_same_v<Op, reduce::any>) f.reduce = static_cast<request>(op.reduce.which);
  if constexpr (!is_reduce<Op>) {
    f.reduce = request::user;
    f.largest_sum = [](std::uint32_t max_code, std::uint32_t terms, std::uint32_t height) -> std::uint64_t {
      return Op::largest_code(max_code, terms, height);
    };
    f.codes_end = std::is_same_v<levels_type, levels::detail::level_table>;
  }

  if constexpr (!Resizable<L>) take_values(f, op.levels);

  declared norm;
  if constexpr (HasStatistic<N>) norm = declared_by(op.norm);
  name_facts(f, HasStatistic<N> ? &norm : nullptr, declared_by(op.levels), declared_by(op.rounding),
             declared_by(op.wire), declared_by(op.reduce));
  if constexpr (!is_reduce<Op>) f.policies = hash(f.policies, Op::unbiased ? 1U : 0U);
  if constexpr (HasStatistic<N>) f.policies = hash(f.policies, N::bounds_largest ? 3U : 2U);
  return f;
}

inline operator_facts facts_of(floats_policies const& policies) {
  operator_facts f;
  f.content = frame_content::floats;
  f.floats = policies;
  f.wire_bits = 8 * static_cast<int>(size_of(policies.type));
  f.name = name_of(policies.type);
  if (policies.nearest) f.name += ", nearest";
  f.unbiased = !policies.nearest;
  f.q = f.p = infinity;
  return f;
}
template <class T, class R>
operator_facts facts_of(floats<T, R> const& op) {
  return facts_of(policies_of(op));
}

}  // namespace GLOBALQ_ABI::detail

#if !defined(GLOBALQ_COMPILED)
#include "facts_of-inl.hpp"
#endif
