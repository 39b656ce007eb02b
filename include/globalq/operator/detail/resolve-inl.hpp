// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: definitions of resolve.hpp.

#include "../../core/float_environment.hpp"
#include "resolve.hpp"

#include <cmath>

namespace GLOBALQ_ABI::detail {

GLOBALQ_DECL std::uint64_t fingerprint(schedule_facts const& s) {
  auto const& [name, height, combines, native, one_addition, roundings, varying, operation, most_terms,
               encoders, largest_node, chunks_wait, chunks_overlap] = s;
  return hash_fields(0, name, height, combines, native, one_addition, roundings, varying, operation,
                     most_terms, encoders, largest_node, chunks_wait, chunks_overlap);
}

GLOBALQ_DECL std::uint64_t fingerprint(operator_facts const& op, resolution const& r) {
  auto const& [name, before, content, floats, grain, plain_tail, chain, of_sums, own_rotation, evenly_spaced,
               binary, zero_free, size, limit, q, p, bucket, local, fixed_scale, error, user_norm, unbiased,
               nearest, told_worker, gain, variance_factor, shifts, integer_wire, largest_code, wire_bits,
               wire_bytes, most_bytes, wire, reduce, largest_sum, codes_end, policies, levels, magnitudes] =
      op;
  auto const& [order, quantum, byte] = q;
  auto const& [how, resolved_size, headroom, refusal] = r;
  std::uint64_t const h =
      hash_fields(0, name, before, content, grain, plain_tail, own_rotation, evenly_spaced, binary, zero_free,
                  size, limit, order, quantum, byte, p, bucket, local, fixed_scale, unbiased, shifts,
                  integer_wire, largest_code, wire_bits, most_bytes, wire, reduce, policies);
  std::uint64_t maps = h;
  if (error.largest != 0) maps = hash_fields(maps, error.largest, error.vectors);
  for (auto const& map : chain) maps = hash_fields(maps, map->name(), map->grain());
  if (of_sums != nullptr)
    maps = hash_fields(maps, of_sums->alone.size, of_sums->facts.policies, of_sums->facts.levels);
  return hash_fields(maps, how, resolved_size, headroom, refusal);
}

GLOBALQ_DECL std::string length_refusal(std::uint64_t length) {
  if (length <= random::max_length) return {};
  return joined({length, " values are more than 2^48; pass them in parts"});
}

GLOBALQ_DECL void expect_length(std::uint64_t length, char const* operation) {
  std::string const why = length_refusal(length);
  if (!why.empty()) fail<configuration_error>({"globalq: ", operation, ": ", why});
}

GLOBALQ_DECL std::string wire_for(std::uint64_t code) {
  if (code <= 127) return "int8";
  if (code <= 32767) return "int16";
  if (code <= 2147483647) return "int32";
  return {};
}

GLOBALQ_DECL method choose_method(operator_facts const& op, schedule_facts const& s) {
  switch (op.reduce) {
    case request::sum:
      return method::sum;
    case request::exponential:
      return method::exponential;
    case request::requantize:
      return method::requantize;
    case request::user:
      return s.combines ? method::user : method::none;
    default:
      break;
  }
  if (!s.combines) return method::none;
  if (s.native) return method::sum;
  if (op.of_sums != nullptr) return method::requantize;
  if (op.most_bytes != nullptr)
    return method::requantize;  // codes in frames of variable length cannot be added
  if (op.evenly_spaced && !op.local && op.integer_wire) return method::sum;
  if (op.binary && !op.local && !s.one_addition) return method::exponential;
  return method::requantize;
}

/// For a user-defined reduce operator: sets the numbers of a resolution, or returns an error with a remedy.
inline std::string fit_own(resolution& r, operator_facts const& op, schedule_facts const& s, int workers) {
  std::uint64_t const largest = op.largest_code,
                      n = static_cast<std::uint64_t>(s.most_terms != 0 ? s.most_terms : s.vectors(workers)),
                      h = static_cast<std::uint64_t>(s.height);
  auto const sum_of = [&](std::uint64_t size, std::uint64_t height) {
    return op.largest_sum(static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(n),
                          static_cast<std::uint32_t>(height));
  };
  auto const fits = [&](std::uint64_t size, std::uint64_t height, std::uint64_t holds) {
    if (size < 1 || size > op.limit) return false;
    std::uint64_t const sum = sum_of(size, height);
    if (sum < size || sum > holds || (op.codes_end && sum != size)) return false;
    return !op.binary || (sum <= 222 && sum - size <= 127);
  };
  std::uint64_t most = 0;  // levels that fit; sums rise with them
  for (std::uint64_t above = std::min<std::uint64_t>(largest, op.limit) + 1; above - most > 1;) {
    std::uint64_t const middle = most + (above - most) / 2;
    (fits(middle, h, largest) ? most : above) = middle;
  }
  std::uint64_t const wanted = std::max<std::uint64_t>(op.size, 1);
  if (op.size == 0 ? most >= 1 : fits(op.size, h, largest)) {
    r.size = op.size == 0 ? static_cast<std::uint32_t>(most) : op.size;
    r.headroom = static_cast<std::uint32_t>(sum_of(r.size, h)) - r.size;
    return {};
  }
  std::string remedy;
  auto const add = [&](std::initializer_list<text_part> text) {
    remedy = joined({remedy, (remedy.empty() ? "use " : ", or "), joined(text)});
  };
  std::uint64_t const sum = sum_of(wanted, h);
  if (most >= 1) add({"at most ", most, (most == 1 ? " level" : " levels")});
  std::string const wider = wire_for(sum);
  if (!wider.empty() && fits(wanted, h, 2147483647)) add({"wire ", wider});
  std::uint64_t tree = 0;
  while ((std::uint64_t{1} << tree) < n) ++tree;
  if (s.most_terms == 0 && tree < h && fits(wanted, tree, largest)) add({"schedule tree"});
  std::uint64_t const encodable = std::min<std::uint64_t>(largest, op.limit);
  if (remedy.empty() && wanted <= encodable) add({"reduce::requantize"});
  if (remedy.empty() && encodable >= 1) add({"at most ", encodable, " levels with reduce::requantize"});
  if (remedy.empty())
    add({"reduce::requantize with wire ", wire_for(std::min<std::uint64_t>(wanted, op.limit))});
  return joined({n, (n == 1 ? " term" : " terms"), " of ", wanted, (wanted == 1 ? " level" : " levels"),
                 " make codes up to ", sum, " (largest_code() of the reduce operator, for ", h,
                 (h == 1 ? " addition" : " additions"), " on the longest path); ", op.wire,
                 " holds codes up to ", largest,
                 (op.codes_end ? ", and no code of these levels represents more than the norm" : ""), "; ",
                 remedy});
}

inline std::string refusal_text(operator_facts const& op, schedule_facts const& s, int workers,
                                std::initializer_list<text_part> what) {
  return joined({"globalq: ", s.operation, ": ", op.name, " on ", s.name, " with ", workers,
                 (workers == 1 ? " worker: " : " workers: "), joined(what)});
}

/// resolve(), without what error feedback asks of the numbers.
inline resolution resolve_policies(operator_facts const& op, schedule_facts const& s, int workers) {
  resolution r;
  auto const refuse = [&](std::initializer_list<text_part> what) {
    r.refusal = refusal_text(op, s, workers, what);
    return r;
  };
  feedback_options const* const feedback = feedback_of(op.chain);
  if (feedback != nullptr && !op.has_codes())
    return refuse({"error feedback keeps what codes leave out, and the operator sends ",
                   name_of(op.floats.type), "; remove error_feedback"});
  if (op.plain_tail && !op.has_codes())
    return refuse({"the operator sends ", name_of(op.floats.type),
                   " and has no buckets, so there is no tail; remove float32_tail"});
  if (!op.has_codes()) {
    if (s.native && op.rounds())
      return refuse({"schedule native adds integers and float32, and would round sums of ",
                     name_of(op.floats.type),
                     " itself; use schedule ring, tree, sra or allgather, or float32"});
    r.how = method::plain;
    return r;
  }
  if (op.plain_tail && op.bucket == 0)
    return refuse(
        {"the norm has no buckets, so there is no tail; give the norm a bucket, or remove float32_tail"});
  if (op.plain_tail && s.native)
    return refuse(
        {"schedule native adds integer frames and supports no float32 tail; use schedule ring, tree, sra or "
         "allgather, or remove float32_tail"});
  if (op.has_sides() && s.native)
    return refuse(
        {"schedule native adds integer frames and supports no midpoints or other side values of stages; use "
         "schedule ring, tree, sra or allgather"});
  r.how = choose_method(op, s);
  if (op.of_sums != nullptr) {
    if (op.reduce != request::automatic && op.reduce != request::requantize)
      return refuse({"the reduce operator adds codes, and second_half encodes means; use reduce::automatic"});
    if (r.how != method::requantize || !s.one_addition || s.encoders != 0)
      return refuse(
          {"only schedule sra sends sums that another operator can encode; use it, or remove second_half"});
  }
  if (feedback != nullptr) {
    if (r.how == method::exponential || r.how == method::user ||
        (r.how == method::requantize && !s.one_addition && workers > 1))
      return refuse(
          {"workers would round sums that contain values of others, and error feedback keeps only what a "
           "worker "
           "knows to be missing; ",
           (s.most_terms != 0 ? "leave the nodes out" : "use schedule sra or allgather"),
           ", or use levels::uniform, a global norm and an integer wire, whose codes add without rounding"});
    if (op.own_rotation)
      return refuse({"the residual may grow without bound under the l2 norm of eden; remove error_feedback"});
    if (op.fixed_scale > 0)
      return refuse({"a value plus its residual may exceed norm::fixed; use a norm that is measured"});
    if (op.user_norm != nullptr || op.q != infinity || (!op.local && op.p != infinity) ||
        (op.of_sums != nullptr && op.of_sums->facts.q != infinity))
      return refuse(
          {"the residual may grow without bound where scales are larger than all values; use the largest "
           "magnitude as norm: norm::local<infinity> or norm::linf"});
  }
  if (op.wire_bits < 1)
    return refuse({"codes of wire ", op.wire, " have ", op.wire_bits,
                   " bits; let bits() of the wire return 1 or more"});
  auto const bad_order = [](std::uint32_t order) {
    return order == 0 || (order > 64 && order != 0xffffffffU);
  };
  if (bad_order(op.q) || bad_order(op.p))
    return refuse({"an order of the norm is not valid; use 1 to 64 or infinity"});
  auto const too_long = [](std::uint64_t bucket) { return bucket > (std::uint64_t{1} << 48); };
  if (too_long(op.bucket) ||
      std::any_of(op.chain.begin(), op.chain.end(), [&](auto const& map) { return too_long(map->grain()); }))
    return refuse({"a bucket has more than 2^48 values; use 0 for the whole vector"});
  if (op.fixed_scale < 0 || !(op.fixed_scale <= 1e300))
    return refuse({"norm::fixed has no valid scale; use a scale above 0 and at most 1e300"});
  if (op.shifts && !op.evenly_spaced)
    return refuse(
        {"shifting back needs evenly spaced levels; use levels::uniform or rounding::random_shift<false>"});
  if (op.most_bytes != nullptr && (op.reduce == request::sum || op.reduce == request::exponential))
    return refuse(
        {"codes in frames of different lengths cannot be added; use reduce::requantize, or "
         "wire int8 or packed"});
  if (op.zero_free && (r.how == method::sum || r.how == method::exponential))
    return refuse({"reduce::", name_of(r.how), " cannot add codes of this level scheme; use ",
                   (s.native ? "reduce::requantize on schedule ring, tree or sra" : "reduce::requantize")});
  if (s.native && r.how != method::sum)
    return refuse({"schedule native adds integers inside the transport, ",
                   (r.how == method::user ? "so a user-defined reduce operator" : "so reduce::"),
                   (r.how == method::user ? "" : name_of(r.how)),
                   " cannot run there; use schedule ring, tree, sra or allgather"});
  if (r.how == method::sum) {
    if (!op.evenly_spaced)
      return refuse(
          {s.native
               ? "schedule native adds integers and needs uniform levels; use levels::uniform, or schedule "
                 "ring, tree, sra or allgather"
               : "reduce::sum cannot add codes of this level scheme; use levels::uniform, or "
                 "reduce::requantize"});
    if (op.local)
      return refuse(
          {"codes scaled by different norms cannot be added; use a global norm, or reduce::requantize on "
           "schedule ring, tree, sra or allgather"});
    if (s.native && !op.integer_wire)
      return refuse(
          {"schedule native adds integers and needs an integer wire; use wire int8, int16 or int32, or "
           "schedule "
           "ring, tree or sra"});
  }
  if (r.how == method::user && op.local)
    return refuse(
        {"codes scaled by different norms cannot be added; use a global norm, or reduce::requantize"});
  if (r.how == method::exponential) {
    if (!op.binary)
      return refuse(
          {"reduce::exponential cannot add codes of this level scheme; use levels::exponential with base 2, "
           "or reduce::requantize"});
    if (op.local)
      return refuse(
          {"codes scaled by different norms cannot be added; use a global norm, or reduce::requantize"});
  }

  if (op.most_bytes != nullptr && !s.varying)
    return refuse({"frames of wire ", op.wire, " differ in length, which schedule ", s.name,
                   " cannot send; use schedule sra or allgather, or wire packed or int8"});

  if (r.how == method::user) {
    std::string const why = fit_own(r, op, s, workers);
    return why.empty() ? r : refuse({why});
  }
  bool const by_nodes = s.most_terms != 0;
  std::uint64_t const largest = op.largest_code, all = static_cast<std::uint64_t>(s.vectors(workers)),
                      n = by_nodes ? static_cast<std::uint64_t>(s.most_terms) : all;
  std::string const holds = joined({"; ", op.wire, " holds codes up to ", largest});
  if (r.how == method::sum) {
    std::uint64_t const most = std::min<std::uint64_t>(largest / n, op.limit);
    if (op.size == 0 && most >= 1) {
      r.size = static_cast<std::uint32_t>(most);
      return r;
    }
    if (op.size >= 1 && op.size <= op.limit && op.size <= most) {
      r.size = op.size;
      return r;
    }
    std::uint64_t const wanted = std::max<std::uint64_t>(op.size, 1);
    std::string const wider = wire_for(wanted * n);
    std::string remedy = most >= 1 ? joined({"use at most ", most, (most == 1 ? " level" : " levels")}) : "";
    if (!wider.empty() && wanted <= op.limit)
      remedy += joined({remedy.empty() ? "no level fits it: use wire " : ", or wire ", wider});
    std::uint64_t const encodable = std::min<std::uint64_t>(largest, op.limit);
    std::uint64_t const widest = std::min<std::uint64_t>(2147483647 / n, op.limit);
    if (by_nodes && op.reduce == request::automatic && wanted <= encodable)
      remedy += joined({(remedy.empty() ? "use" : ", or"), " no nodes, where codes are not added"});
    if (remedy.empty() && encodable >= 1)
      remedy = joined({(wanted <= encodable ? "use " : joined({"use at most ", encodable, " levels with "})),
                       "reduce::requantize", (s.native ? " on schedule ring, tree or sra" : ""),
                       ", whose codes do not grow with the number of workers"});
    if (remedy.empty())
      remedy =
          joined({"no level fits it: use wire ", wire_for(widest * n), " and at most ", widest, " levels"});
    char const* const who = s.encoders != 0 ? " node" : " worker";
    return refuse({n, who, (n == 1 ? "" : "s"), (by_nodes ? " of a node x " : " x "), wanted,
                   (wanted == 1 ? " level" : " levels"), " sum to ", n * wanted, holds, "; ", remedy});
  }
  if (r.how == method::exponential) {
    std::uint64_t const h = static_cast<std::uint64_t>(s.height);
    auto const most_with = [&](std::uint64_t head) -> std::uint64_t {
      if (head >= largest || head > 127) return 0;
      return std::min({largest - head, std::uint64_t{op.limit}, 222 - head});
    };
    std::uint64_t const most = most_with(h);
    if ((op.size == 0 && most >= 1) || (op.size >= 1 && op.size <= most)) {
      r.size = op.size == 0 ? static_cast<std::uint32_t>(most) : op.size;
      r.headroom = static_cast<std::uint32_t>(h);
      return r;
    }
    std::uint64_t const wanted = std::max<std::uint64_t>(op.size, 1);
    std::uint64_t tree = 0;
    while ((std::uint64_t{1} << tree) < all) ++tree;
    std::string remedy;
    auto const add = [&](std::initializer_list<text_part> text) {
      remedy += joined({remedy.empty() ? "" : ", or ", joined(text)});
    };
    if (most >= 1) add({"use at most ", most, (most == 1 ? " level" : " levels")});
    if (!by_nodes && tree < h && wanted <= most_with(tree))
      add({"use schedule tree, which needs a headroom of ", tree, " only"});
    if (h <= 127 && wanted <= std::min<std::uint64_t>(op.limit, 222 - h) && !wire_for(wanted + h).empty())
      add({"use wire ", wire_for(wanted + h)});
    std::uint64_t const encodable = std::min<std::uint64_t>(largest, op.limit);
    if (wanted <= encodable) add({"use reduce::requantize"});
    if (by_nodes && op.reduce == request::automatic && wanted <= encodable)
      add({"use no nodes, where codes are not added"});
    if (remedy.empty() && encodable >= 1) add({"use at most ", encodable, " levels with reduce::requantize"});
    if (remedy.empty())
      add({"use reduce::requantize with wire ", wire_for(std::min<std::uint64_t>(wanted, op.limit)),
           (wanted > op.limit ? joined({" and at most ", op.limit, " levels"}) : std::string())});
    return refuse({wanted, (wanted == 1 ? " level" : " levels"), " and a headroom of ", h,
                   " (an addition may raise a value by one exponent, and ", h,
                   " lie on the longest path) make codes up to ", wanted + h, holds, "; ", remedy});
  }
  std::uint64_t const most = std::min<std::uint64_t>(largest, op.limit);
  if (op.size == 0 && most >= 1) {
    r.size = static_cast<std::uint32_t>(most);
    return r;
  }
  if (op.size >= 1 && op.size <= most) {
    r.size = op.size;
    return r;
  }
  std::uint64_t const wanted = std::max<std::uint64_t>(op.size, 1);
  std::uint64_t const possible = std::min<std::uint64_t>(wanted, op.limit);
  std::string remedy = most >= 1 ? joined({"use at most ", most, (most == 1 ? " level" : " levels")}) : "";
  if (possible > largest && (wanted <= op.limit || most < 1))
    remedy += joined({remedy.empty() ? "no level fits it: use" : ", or", " wire ", wire_for(possible)});
  if (wanted > op.limit) {
    if (most < 1) remedy += joined({" and at most ", op.limit, " levels"});
    return refuse(
        {wanted, " levels are more than the ", op.limit, " that the scheme can have", holds, "; ", remedy});
  }
  return refuse({"codes reach ", wanted, holds, "; ", remedy});
}

/// The largest error that rounding makes of a value, relative to the norm; an upper bound if levels are not known.
inline double largest_error(operator_facts const& op, std::uint32_t size, bool unbiased) {
  double gap = op.evenly_spaced ? 1.0 / size : (op.binary && size > 1 ? 0.5 : 1.0);
  if (!op.evenly_spaced && !op.magnitudes.empty()) {
    gap = op.zero_free ? 2 * op.magnitudes.front() : op.magnitudes.front();
    for (std::size_t k = 1; k < op.magnitudes.size(); ++k)
      gap = std::max(gap, op.magnitudes[k] - op.magnitudes[k - 1]);
  }
  return (unbiased ? gap : gap / 2) * growth_of_scale(op.q);
}

/// What float32 and the type of the vectors may add to the error of the mean under a bound, in addition to the roundings
/// to levels. Derived in docs/theory.md.
inline double error_of_floats(operator_facts const& op, schedule_facts const& s, method how, int workers) {
  double const range = op.fixed_scale;
  bool const adds_floats = how != method::sum || s.most_terms != 0;
  double const additions = (adds_floats ? s.vectors(workers) : 0) + (s.encoders != 0 ? s.largest_node : 0);
  double const found =
      rounded(s.weight(workers) * range * 0x1p-24 * (4 + 8 * roundings_of(how, s, workers) + additions));
  if (op.error.vectors == dtype::bfloat16) return found + power_of_two(exponent_of(range) - 8);
  if (op.error.vectors == dtype::float16)
    return found + std::max(power_of_two(exponent_of(range) - 11), 0x1p-25);
  return found;
}

/// resolve() under a bound on the error of the mean, which determines the number of levels.
inline resolution resolve_bounded(operator_facts const& op, schedule_facts const& s, int workers) {
  float_environment const exact;  // all workers find the same levels, whatever their modes and compilers
  resolution r;
  auto const refuse = [&](std::initializer_list<text_part> what) {
    r.refusal = refusal_text(op, s, workers, what);
    return r;
  };
  double const error = op.error.largest;
  if (!(error >= 1e-30 && error <= 1e300))
    return refuse({"the largest error of norm::fixed is ", digits_of(error),
                   "; use 1e-30 to 1e300, or 0 for no bound"});
  if (!op.evenly_spaced || op.size != 0 || op.reduce == request::user)
    return refuse(
        {"a largest error determines the number of evenly spaced levels, and codes are added without error "
         "or encoded "
         "again; use levels::uniform<>{} without a number and a reduce operator of the library"});
  if (!op.chain.empty() || op.plain_tail || op.of_sums != nullptr || op.own_rotation)
    return refuse(
        {"stages, float32_tail and second_half change errors, so that there is no bound; use the quantizer "
         "alone"});
  resolution const most = resolve_policies(op, s, workers);  // with as many levels as fit
  if (!most.fits()) return most;
  double const floats = error_of_floats(op, s, most.how, workers), range = op.fixed_scale,
               left = rounded(error - floats);
  if (!(left > 0))
    return refuse({"arithmetic in float32", (size_of(op.error.vectors) < 4 ? " and rounding to " : ""),
                   (size_of(op.error.vectors) < 4 ? name_of(op.error.vectors) : ""),
                   " may change a mean of values up to ", digits_of(range), " by ", digits_of(floats),
                   ", and the largest error of norm::fixed is ", digits_of(error),
                   "; use a larger error or a smaller scale"});
  double const terms = s.weight(workers) * roundings_of(most.how, s, workers) * (op.nearest ? 0.5 : 1.0),
               levels = std::max(1.0, std::ceil(rounded(rounded(range * terms) / left)));
  if (levels > most.size)
    return refuse(
        {"the largest error ", digits_of(error), " of norm::fixed needs ", digits_of(levels),
         " levels for values up to ", digits_of(range), ", and wire ", op.wire, " has ", most.size,
         "; use an error of at least ", digits_of((floats + range * terms / most.size) * (1 + 1e-5)),
         (op.wire_bits < 32 ? ", a smaller scale or a wire with more bits" : " or a smaller scale")});
  r = most;
  r.size = static_cast<std::uint32_t>(levels);
  return r;
}

GLOBALQ_DECL resolution resolve(operator_facts const& op, schedule_facts const& s, int workers) {
  if (op.error.largest != 0) return resolve_bounded(op, s, workers);
  resolution r = resolve_policies(op, s, workers);
  if (!r.fits() || feedback_of(op.chain) == nullptr) return r;
  // a residual is at most this times the largest value plus residual of the bucket; of sums under a norm of all workers, their
  // number times that
  bool stochastic = op.of_sums == nullptr ? op.unbiased : op.of_sums->own_unbiased;
  double error = largest_error(op, r.size, stochastic);
  if (op.of_sums != nullptr) {
    operator_facts const& sums = op.of_sums->facts;
    error = std::max(error, largest_error(sums, op.of_sums->alone.size, sums.unbiased));
    stochastic = stochastic || sums.unbiased;
  }
  int const terms = keeps_scale_of_sums(op, r.how) && op.of_sums == nullptr ? s.vectors(workers) : 1;
  if (error >= 1)
    r.refusal = refusal_text(
        op, s, workers,
        {"rounding may change a value by as much as the largest of its bucket, so residuals grow; use ",
         (stochastic ? "rounding::nearest, or " : ""), "more levels"});
  else if (error * terms >= 1)
    r.refusal = refusal_text(
        op, s, workers,
        {"sums of ", terms, " workers under a norm of all workers are rounded to ", r.size,
         (r.size == 1 ? " level" : " levels"),
         " of that norm times the workers, so residuals grow; use norm::local<infinity>, more levels, or "
         "an integer wire on ring or tree"});
  return r;
}

}  // namespace GLOBALQ_ABI::detail
