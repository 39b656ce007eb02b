// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the quantizer: a norm, levels, a rounding, a wire format and a reduce, composed.

#include "../levels/exponential.hpp"
#include "../levels/minifloat.hpp"
#include "../levels/table.hpp"
#include "../levels/uniform.hpp"
#include "../norm/norms.hpp"
#include "../reduce/exponential.hpp"
#include "../reduce/reduce.hpp"
#include "../rounding/nearest.hpp"
#include "../rounding/random_shift.hpp"
#include "../rounding/stochastic.hpp"
#include "../wire/elias.hpp"
#include "../wire/huffman.hpp"
#include "../wire/integer.hpp"
#include "../wire/packed.hpp"
#include "../wire/sparse.hpp"
#include "detail/coded_codec.hpp"
#include "detail/composed_codec.hpp"
#include "detail/plain_codec.hpp"
#include "detail/stream_codec.hpp"
#include "detail/stream_sparse_codec.hpp"

#include <memory>

namespace globalq {

namespace detail {
template <class Op>
inline constexpr bool is_reduce =
    std::is_same_v<Op, reduce::automatic> || std::is_same_v<Op, reduce::sum> ||
    std::is_same_v<Op, reduce::exponential> || std::is_same_v<Op, reduce::requantise>;
}  // namespace detail

/// @brief An operator: what is done to a vector between a worker and the wire.
///
/// Whether the policies fit together is asked here as far as types tell; the rest where workers and schedule are known.
/// @tparam Norm      which norm scales the values; norm/norms.hpp
/// @tparam Levels    which magnitudes have codes; levels/
/// @tparam Rounding  how one of two neighbouring levels is chosen; rounding/
/// @tparam Wire      how codes become bytes; wire/
/// @tparam Reduce    how codes are added; reduce/; automatic: chosen from the others
/// @source Xin et al. (Global-QSGD), Definition 3.1; Alistarh et al. 2017 (QSGD) with norm::local
template <NormScheme Norm, LevelScheme Levels, RoundingScheme Rounding, class Wire,
          ReduceOperator Reduce = reduce::automatic>
requires(WireFormat<Wire> || wire::BlockCode<Wire>) struct quantizer {
  static constexpr bool evenly_spaced = detail::adds_as_integers<Levels>();
  static constexpr bool binary = detail::is_binary<Levels>();
  static constexpr bool shifts_back = [] {
    if constexpr (requires { Rounding::shifts_back; }) return bool{Rounding::shifts_back};
    return false;
  }();

  static_assert(!shifts_back || evenly_spaced,
                "globalq: shifting back needs evenly spaced levels. Use levels::uniform, or "
                "rounding::random_shift<false>; see docs/composing.md");
  static_assert(
      !std::is_same_v<Reduce, reduce::sum> || evenly_spaced,
      "globalq: reduce::sum cannot add codes of this level scheme. Uniform levels pair with reduce::sum, "
      "exponential levels of base 2 with reduce::exponential, all levels with reduce::requantise; see "
      "docs/composing.md");
  static_assert(
      !std::is_same_v<Reduce, reduce::exponential> || binary,
      "globalq: reduce::exponential cannot add codes of this level scheme. It adds powers of two: use "
      "levels::exponential with base 2, or reduce::requantise; see docs/composing.md");
  static_assert(!Norm::is_local ||
                    !(std::is_same_v<Reduce, reduce::sum> || std::is_same_v<Reduce, reduce::exponential>),
                "globalq: codes scaled by different norms cannot be added. Use a global norm, or "
                "reduce::requantise; see "
                "docs/composing.md");
  static_assert(
      [] {
        if constexpr (requires { Norm::quantum; }) {
          if constexpr (requires { Levels::largest; }) return Norm::quantum == Levels::largest;
          return false;
        }
        return true;
      }(),
      "globalq: norm::shared_exponent scales to the largest value of a format, and these levels are others. "
      "Use "
      "norm::shared_exponent<levels::e2m1> with levels::e2m1, and so on; see docs/composing.md");
  static_assert(
      !wire::BlockCode<Wire> ||
          !(std::is_same_v<Reduce, reduce::sum> || std::is_same_v<Reduce, reduce::exponential>),
      "globalq: codes in frames of different lengths are not added as they are. Use reduce::requantise or "
      "reduce::automatic, or wire::int8 or wire::packed; see docs/composing.md");

  static_assert(detail::is_reduce<Reduce>,
                "globalq: the library does not run reduce operators of your own. Use reduce::automatic, "
                "reduce::sum, reduce::exponential or reduce::requantise; see docs/composing.md");
  static_assert(
      requires {
        { Rounding::unbiased } -> std::convertible_to<bool>;
      },
      "globalq: this rounding does not declare whether it is unbiased. Give it a static constexpr bool "
      "unbiased; see docs/composing.md");
  static_assert(
      wire::BlockCode<Wire> ||
          requires(Wire const& w) {
            { w.bits() } -> std::convertible_to<int>;
          },
      "globalq: this wire format does not declare how many bits a code takes. Give it int bits() const; see "
      "docs/composing.md");
  static_assert(
      Named<Levels> && Named<Rounding> && Named<Wire>,
      "globalq: levels, rounding and wire must each declare a name, which workers compare. Give the "
      "policy a static constexpr char const* name; see docs/composing.md");
  static_assert(Described<Levels> && Described<Rounding> && Described<Wire>,
                "globalq: a policy with members or template arguments must declare a number for them, which "
                "workers compare. Give it std::uint64_t parameters() const; see docs/composing.md");

  Norm norm;
  Levels levels;
  Rounding rounding;
  Wire wire;
  [[no_unique_address]] Reduce reduce{};
};

template <class N, class L, class R, class W>
quantizer(N, L, R, W) -> quantizer<N, L, R, W>;
template <class N, class L, class R, class W, class Op>
quantizer(N, L, R, W, Op) -> quantizer<N, L, R, W, Op>;

/// @brief The levels and the rounding that kernels see: all tables share their kernels, and so do levels::uniform<S> of all S
/// (levels::exponential<S> too), and all roundings that draw one word for a bucket, or none.
template <class Levels>
using kernel_levels = detail::kernel_levels<Levels>;
template <class Rounding>
using kernel_rounding = detail::kernel_rounding<Rounding>;

/// @brief Where the kernels of a composition for host memory are compiled, and what `extern template` leaves to another source.
///
/// Every source that uses a quantizer compiles its kernels. Those of a program that has many declare
/// `extern template struct globalq::host_kernels<Levels, Rounding, Wire>;` in a header of theirs, and one of them says the same
/// without `extern`; see docs/composing.md. make() is no inline function for this purpose. Which norm and which reduce makes
/// no difference to kernels. All sources must be compiled with the same flags.
/// @tparam Levels,Rounding  kernel_levels and kernel_rounding of what the quantizer has
/// @tparam Wire             that of the quantizer; for wire::elias<T>, wire::huffman<T> and wire::sparse<T>: wire::integer<T>
template <class Levels, class Rounding, WireFormat Wire>
struct host_kernels {
  static_assert(
      std::is_same_v<Levels, kernel_levels<Levels>> && std::is_same_v<Rounding, kernel_rounding<Rounding>>,
      "globalq: these levels or this rounding share their kernels with others: write "
      "host_kernels<kernel_levels<Levels>, kernel_rounding<Rounding>, Wire>; see docs/composing.md");

  static std::unique_ptr<detail::operator_codec> make(Levels const& levels, Rounding const& rounding,
                                                      Wire const& wire, detail::operator_facts const& facts,
                                                      method how, kernel::host_executor const& on);
};

template <class Levels, class Rounding, WireFormat Wire>
std::unique_ptr<detail::operator_codec> host_kernels<Levels, Rounding, Wire>::make(
    Levels const& levels, Rounding const& rounding, Wire const& wire, detail::operator_facts const& facts,
    method how, kernel::host_executor const& on) {
  return std::make_unique<detail::policy_codec<Levels, Rounding, Wire>>(levels, rounding, wire, facts, how,
                                                                        on);
}

/// @brief The same for vectors in the memory of a stream of @p Space.
template <class Levels, class Rounding, WireFormat Wire, class Space>
struct stream_kernels {
  static_assert(std::is_same_v<Levels, kernel_levels<Levels>> &&
                    std::is_same_v<Rounding, kernel_rounding<Rounding>>,
                "globalq: these levels or this rounding share their kernels with others: write "
                "stream_kernels<kernel_levels<Levels>, kernel_rounding<Rounding>, Wire, Space>; see "
                "docs/composing.md");

  static std::unique_ptr<detail::operator_codec> make(Levels const& levels, Rounding const& rounding,
                                                      Wire const& wire, detail::operator_facts const& facts,
                                                      method how, kernel::stream_executor<Space> const& on);
};

template <class Levels, class Rounding, WireFormat Wire, class Space>
std::unique_ptr<detail::operator_codec> stream_kernels<Levels, Rounding, Wire, Space>::make(
    Levels const& levels, Rounding const& rounding, Wire const& wire, detail::operator_facts const& facts,
    method how, kernel::stream_executor<Space> const& on) {
  return std::make_unique<detail::stream_codec<Levels, Rounding, Wire, Space>>(levels, rounding, wire, facts,
                                                                               how, on);
}

/// @brief No quantisation: float32 on the wire, over the same schedules; the baseline to compare with.
struct uncompressed {};

namespace detail {

inline std::string order_name(std::uint32_t order) { return order == infinity ? "inf" : number(order); }

template <Named P>
std::string name_of_policy(P const& policy) {
  if constexpr (requires { policy.name(); })
    return std::string(policy.name());
  else
    return P::name;
}
/// What a policy declares.
struct declared {
  std::string name;
  std::uint64_t parameters = 0;
  bool has_parameters = false;
};
template <Named P>
declared declared_by(P const& policy) {
  declared d{name_of_policy(policy)};
  if constexpr (requires { policy.parameters(); }) {
    d.parameters = policy.parameters();
    d.has_parameters = true;
  }
  return d;
}

/// Fills in what follows from what policies declare and from the other facts: names, and the hash of policies.
inline void name_facts(operator_facts& f, declared const& levels, declared const& rounding,
                       declared const& wire, char const* reduce) {
  f.policies = 0;
  for (declared const* d : {&levels, &rounding, &wire}) {
    f.policies = hash(f.policies, d->name);
    if (d->has_parameters) f.policies = hash(f.policies, d->parameters);
  }
  f.wire = wire.name;
  if (f.most_bytes != nullptr ? f.wire_bits != 8 : !f.integer_wire)
    f.wire += (f.most_bytes != nullptr ? ":int" : ":") + number(static_cast<std::uint64_t>(f.wire_bits));
  f.name = f.q.in_byte ? "shared-exponent:" : (f.q.rounds_up() ? "power-of-two:" : "");
  if (f.fixed_unit > 0)
    f.name += "fixed";
  else if (f.local)
    f.name += "local:" + order_name(f.q);
  else if (f.q == infinity && f.p == infinity)
    f.name += "linf";
  else
    f.name += "l:" + order_name(f.q) + "," + order_name(f.p);
  if (f.bucket != 0) f.name += " bucket " + number(f.bucket);
  f.name += " " + levels.name;
  if (f.size != 0) f.name += ":" + number(f.size);
  f.name += " " + rounding.name + " " + f.wire + " " + reduce;
}

/// Levels whose parameters are not just their number put them into the fingerprint through their values.
template <class L>
std::uint64_t level_hash(L const& levels) {
  std::uint64_t h = hash(0, static_cast<std::uint64_t>(bits_of(levels.extent())));
  for (std::uint32_t code = 0; code <= levels.max_code() && code <= 256; ++code)
    h = hash(h, static_cast<std::uint64_t>(bits_of(levels.value(code))));
  return h;
}

template <class N, class L, class R, class W, class Op>
operator_facts facts_of(quantizer<N, L, R, W, Op> const& op) {
  using levels_type = kernel_levels<L>;
  operator_facts f;
  f.evenly_spaced = adds_as_integers<L>();
  f.binary = is_binary<L>();
  if constexpr (requires { op.levels.zero_free(); }) f.zero_free = op.levels.zero_free();
  if constexpr (requires { op.levels.size(); }) {
    f.size = op.levels.size();
  } else {
    f.size = op.levels.max_code();
  }
  if constexpr (requires { levels_type::limit; }) {
    f.limit = levels_type::limit;
  } else {
    f.limit = f.size;
  }
  f.q = op.norm.inner();
  if constexpr (requires { op.norm.rounds_up; }) f.q.quantum = op.norm.rounds_up ? 1.0F : 0.0F;
  if constexpr (requires { N::quantum; }) f.q = {f.q.value, N::quantum, true};
  if constexpr (requires { op.norm.scales(); }) f.q = op.norm.scales();  // known at run time only
  f.p = op.norm.outer();
  f.bucket = op.norm.bucket;
  f.local = N::is_local;
  f.fixed_unit = op.norm.fixed_unit();
  f.shifts = op.rounding.shifts();
  f.unbiased = R::unbiased;
  f.integer_wire = is_integer_wire<W>();
  if constexpr (wire::BlockCode<W>) {
    using lane = typename W::lane;
    f.largest_code = W::largest_code();
    f.wire_bits = 8 * static_cast<int>(sizeof(lane));
    f.most_bytes = [](std::uint64_t count, std::uint32_t largest, bool zero_free) -> std::size_t {
      return wire::coded<W>(W{}, largest, zero_free).capacity(count);
    };
  } else {
    f.largest_code = op.wire.largest_code(f.zero_free);
    f.wire_bits = op.wire.bits();
  }
  if constexpr (std::is_same_v<Op, reduce::sum>) f.reduce = request::sum;
  if constexpr (std::is_same_v<Op, reduce::exponential>) f.reduce = request::exponential;
  if constexpr (std::is_same_v<Op, reduce::requantise>) f.reduce = request::requantise;

  name_facts(f, declared_by(op.levels), declared_by(op.rounding), declared_by(op.wire), Op::name());
  return f;
}

inline operator_facts facts_of(uncompressed const&) {
  operator_facts f;
  f.plain = true;
  f.name = "float32";
  f.q = f.p = infinity;
  return f;
}

/// What only the values of the levels tell; 0 when their number tells all.
template <class N, class L, class R, class W, class Op>
std::uint64_t levels_hash(quantizer<N, L, R, W, Op> const& op) {
  if constexpr (requires { op.levels.resized(1U); }) return 0;
  return level_hash(op.levels);
}
inline std::uint64_t levels_hash(uncompressed const&) { return 0; }

/// The levels with the numbers that were decided.
template <class L>
kernel_levels<L> sized(L const& levels, resolution const& r) {
  if constexpr (requires { levels.at_run_time(); }) {
    return sized(levels.at_run_time(), r);
  } else if constexpr (requires { levels.with_headroom(1U); }) {
    return levels.resized(r.size).with_headroom(r.headroom);
  } else if constexpr (requires { levels.resized(1U); }) {
    return levels.resized(r.size);
  } else {
    return levels;
  }
}

template <class N, class L, class R, class W, class Op>
std::unique_ptr<operator_codec> make_codec(quantizer<N, L, R, W, Op> const& op, operator_facts const& facts,
                                           resolution const& r, kernel::host_executor const& on) {
  if constexpr (wire::BlockCode<W>) {
    using integers = typename coded_codec<W>::inner_wire;
    return std::make_unique<coded_codec<W>>(
        host_kernels<kernel_levels<L>, kernel_rounding<R>, integers>::make(sized(op.levels, r), op.rounding,
                                                                           integers{}, facts, r.how, on),
        op.wire, facts, r, on);
  } else {
    return host_kernels<kernel_levels<L>, kernel_rounding<R>, W>::make(sized(op.levels, r), op.rounding,
                                                                       op.wire, facts, r.how, on);
  }
}
inline std::unique_ptr<operator_codec> make_codec(uncompressed const&, operator_facts const&,
                                                  resolution const&, kernel::host_executor const& on) {
  return std::make_unique<plain_codec>(on);
}

template <class W>
inline constexpr bool is_sparse = false;
template <class Lane>
inline constexpr bool is_sparse<wire::sparse<Lane>> = true;

/// The same for vectors in the memory of a stream.
template <class N, class L, class R, class W, class Op, class Space>
std::unique_ptr<operator_codec> make_codec(quantizer<N, L, R, W, Op> const& op, operator_facts const& facts,
                                           resolution const& r, kernel::stream_executor<Space> const& on) {
  using levels_type = kernel_levels<L>;
  using rounding_type = kernel_rounding<R>;
  if constexpr (is_sparse<W>) {
    using codec_type = stream_sparse_codec<typename W::lane, Space>;
    using integers = typename codec_type::inner_wire;
    return std::make_unique<codec_type>(stream_kernels<levels_type, rounding_type, integers, Space>::make(
                                            sized(op.levels, r), op.rounding, integers{}, facts, r.how, on),
                                        facts, r, on);
  } else if constexpr (wire::BlockCode<W>) {
    throw configuration_error(
        "globalq: " + facts.name + ": wire::" + W::name() +
        " is coded on the host only; on a stream use wire::sparse, wire::packed or wire::int8, or call from "
        "host memory");
  } else {
    return stream_kernels<levels_type, rounding_type, W, Space>::make(sized(op.levels, r), op.rounding,
                                                                      op.wire, facts, r.how, on);
  }
}
template <class Space>
std::unique_ptr<operator_codec> make_codec(uncompressed const&, operator_facts const&, resolution const&,
                                           kernel::stream_executor<Space> const& on) {
  return std::make_unique<stream_plain_codec<Space>>(on);
}

/// The level magnitudes as fractions of the norm, ascending, zero left out: what variance bounds need.
template <class N, class L, class R, class W, class Op>
std::vector<double> magnitudes(quantizer<N, L, R, W, Op> const& op) {
  std::vector<double> m;
  if constexpr (!requires { op.levels.resized(1U); }) {
    for (std::uint32_t code = 1; code <= op.levels.max_code(); ++code)
      m.push_back(static_cast<double>(op.levels.value(code)) / static_cast<double>(op.levels.extent()));
    std::sort(m.begin(), m.end());
  }
  return m;
}
inline std::vector<double> magnitudes(uncompressed const&) { return {}; }

/// An operator that says itself what it is made of.
template <class Operator>
concept SelfDescribed = requires(Operator const& op) {
  { op.facts() } -> std::same_as<operator_facts>;
};
template <SelfDescribed Operator>
operator_facts facts_of(Operator const& op) {
  return op.facts();
}
template <SelfDescribed Operator>
std::uint64_t levels_hash(Operator const& op) {
  return op.levels_hash();
}
template <SelfDescribed Operator>
std::vector<double> magnitudes(Operator const& op) {
  return op.magnitudes();
}
template <SelfDescribed Operator, class Executor>
std::unique_ptr<operator_codec> make_codec(Operator const& op, operator_facts const& f, resolution const& r,
                                           Executor const& on) {
  static_assert(
      requires { op.make_codec(f, r, on); },
      "globalq: any_quantizer holds codecs for the host and for Kokkos::Cuda; with a transport on another "
      "space use a quantizer with its type");
  return op.make_codec(f, r, on);
}

}  // namespace detail
}  // namespace globalq
