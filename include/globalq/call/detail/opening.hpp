// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief call: the handshake: do all workers make the same call, what are their statistics, and which scale
///        follows? Plain functions of the records, for host and device.

#include "../../core/detail/call_status.hpp"
#include "../../operator/detail/operator_codec.hpp"
#include "../../operator/detail/resolve.hpp"
#include "../../schedule/detail/scales.hpp"
#include "../../transport/endpoint.hpp"
#include "../../wire/frame.hpp"
#include "../options.hpp"
#include "float32_forced.hpp"
#include "worker_texts.hpp"

#include <algorithm>
#include <concepts>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// First message of each worker: 64 bytes on every worker, for any call.
struct opening_record {
  /// 24 bits of a hash, for the error: the fingerprint finds the difference.
  struct field_hash {
    std::uint8_t bytes[3] = {};
    friend bool operator==(field_hash const&, field_hash const&) = default;
  };

  std::uint64_t fingerprint[2] = {};  ///< of everything that must agree
  field_hash fields[8] = {};          ///< in the order of field_names
  std::uint64_t length =
      mark;  ///< marked in the high bits, to distinguish records from other 64-byte messages
  std::uint64_t max_bits = 0;  ///< max|x| as the bits of a double; sign bit: contains NaN or infinity
  double statistic = 0;  ///< ||x||_q / 2^exponent of the maximum (not its q-th power, which would overflow)

  static constexpr std::uint64_t lengths = (std::uint64_t{2} << 48) - 1, mark = std::uint64_t{0x6c72} << 49;

  /// Whether it is a record: another kind of call, or another version, sends different bytes.
  bool known() const { return (length & ~lengths) == mark; }
  std::uint64_t values() const { return length & lengths; }

  /// Record of a worker that refuses its arguments; it takes part so that the others need not wait for it.
  static opening_record refusal() {
    opening_record r;
    r.length |= lengths;
    return r;
  }
  bool refuses() const { return length == (mark | lengths); }

  /// Marks a record as not arrived: on a stream, an abandoned transport leaves the old bytes.
  GLOBALQ_FUNCTION void clear() { length = 0; }
  bool arrived() const { return length != 0; }

  GLOBALQ_FUNCTION bool non_finite() const { return (max_bits >> 63) != 0; }
  GLOBALQ_FUNCTION double max() const { return double_of(max_bits & double_magnitude); }
  GLOBALQ_FUNCTION bool agrees_with(opening_record const& other) const {
    return fingerprint[0] == other.fingerprint[0] && fingerprint[1] == other.fingerprint[1] &&
           length == other.length;
  }
};
static_assert(sizeof(opening_record) == 64);

inline constexpr char const* field_names[8] = {"the type of the values or their grouping",
                                               "the operator",
                                               "the schedule",
                                               "the chunk size",
                                               "other settings",
                                               "the seed",
                                               "the step",
                                               "the mode or the library's version"};

/// Sizes of messages, in values. They follow from options::chunk_values or, if that is 0, from the transport.
struct chunk_sizes {
  std::uint64_t chunk = 0;  ///< 0: segments are not divided
  std::uint64_t node = 0;   ///< of the float32 sums within nodes; 0: there are none

  std::uint64_t hashed() const { return hash(chunk, node); }
  /// For errors.
  std::string text() const {
    std::string const sent = chunk == 0 ? "whole segments" : joined({chunk, " values"});
    return node == 0 ? sent : joined({sent, ", sums of nodes ", node, " values"});
  }
};

/// Hashes of everything that must agree.
struct agreement {
  std::uint64_t fields[8] = {};
  std::uint64_t length = 0;
  enum field : int { type, what, schedule, chunk, settings, seed, step, mode };

  /// @param of       hash of the operator
  /// @param over     hash of the schedule
  agreement(dtype values, std::uint64_t of, std::uint64_t over, int workers, chunk_sizes const& sizes,
            std::uint64_t seeded, non_finite then, std::uint64_t count)
      : fields{hash(1, static_cast<std::uint64_t>(values)),
               hash(2, of),
               hash(hash(3, over), static_cast<std::uint64_t>(workers)),
               hash(4, sizes.hashed()),
               hash(0, std::string_view()),
               hash(5, seeded),
               0,
               hash(hash(7, static_cast<std::uint64_t>(then)), wire::format_version)},
        length(count) {}

  /// @param top       bit pattern of max|x|
  /// @param relative  norm::relative_norm() if the vector is one bucket and finite, else 0
  GLOBALQ_FUNCTION opening_record record(std::uint64_t number, std::uint64_t top, double relative) const {
    opening_record r;
    std::uint64_t a = 0x243F6A8885A308D3ULL, b = 0x13198A2E03707344ULL;
    for (int i = 0; i < 8; ++i) {
      std::uint64_t const each = i == step ? hash(6, number) : fields[i];
      for (int k = 0; k < 3; ++k) r.fields[i].bytes[k] = static_cast<std::uint8_t>(each >> (40 + 8 * k));
      a = hash(a, each);
      b = hash(b, ~each);
    }
    r.fingerprint[0] = hash(a, length);
    r.fingerprint[1] = hash(b, length);
    r.length |= length;
    r.max_bits = top | (top < double_infinity ? 0 : std::uint64_t{1} << 63);
    r.statistic = relative;
    return r;
  }
};

/// For errors.
inline std::string mode_text(non_finite mode) {
  return joined({(mode == non_finite::error ? "non_finite::error" : "non_finite::propagate"),
                 ", frames of version ", wire::format_version});
}

/// The lowest rank that refused its arguments; -1: none.
inline int first_refusal(std::span<opening_record const> all) {
  auto const found = std::find_if(all.begin(), all.end(), [](auto const& r) { return r.refuses(); });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

/// Throws the same error on every worker if two records differ, with the first worker that differs and the fields.
/// @param forced  whether GLOBALQ_FORCE_FLOAT32 replaced this worker's operator
/// @param values  values(field, worker): the values of rank 0 and that worker, in brackets; or empty
template <class Values>
void check_agreement(std::span<opening_record const> all, char const* operation, bool forced,
                     Values const& values) {
  opening_record const& a = all[0];
  for (std::size_t i = 1; i < all.size(); ++i) {
    opening_record const& b = all[i];
    if (b.agrees_with(a)) continue;
    std::string what;
    auto const add = [&](std::string const& text) { what += joined({what.empty() ? "" : ", ", text}); };
    bool const known = a.known() && b.known();
    if (!known) add("the kind of call or the library's version");
    if (known && a.length != b.length)
      add(joined({"the length (rank 0 has ", a.values(), " values, rank ", i, " has ", b.values(), ")"}));
    for (int k = 0; known && k < 8; ++k)
      if (!(a.fields[k] == b.fields[k])) add(field_names[k] + values(k, static_cast<int>(i)));
    if (what.empty()) add("other settings");  // the shorter hashes of the fields are equal by chance
    fail<disagreement_error>(
        {"globalq: ", operation, ": rank ", i, " differs from rank 0 in ", what,
         ", nothing was changed; make the same call on every worker",
         float32_forced_text(forced && !(a.fields[agreement::what] == b.fields[agreement::what]))});
  }
}
/// As above, if workers cannot exchange more than their records.
inline void check_agreement(std::span<opening_record const> all, char const* operation, bool forced = false) {
  check_agreement(all, operation, forced, [](int, int) { return std::string(); });
}

/// Whether all workers exchange texts after their records; a worker that makes another kind of call would not.
inline bool all_known(std::span<opening_record const> all) {
  return std::all_of(all.begin(), all.end(), [](auto const& r) { return r.known(); });
}

/// As above, with the values in the error; also reports a worker that refused its arguments. All workers call it with
/// the same records, so all take the same branch.
/// @param text  text(field): this worker's value
template <Transport T, class Text>
void check_agreement(T& t, std::span<opening_record const> all, char const* operation, bool forced,
                     Text const& text) {
  if (int const who = first_refusal(all); who >= 0) {
    std::string const why = all_known(all) ? texts_of_workers(t, {})(who) : std::string();
    fail<disagreement_error>({"globalq: ", operation, ": rank ", who, " refused its arguments",
                              why.empty() ? "" : " (", why, why.empty() ? "" : ")",
                              ", nothing was changed; correct the arguments on that worker"});
  }
  bool lost = !all_known(all);
  check_agreement(all, operation, forced, [&](int field, int who) {
    if (lost) return std::string();
    auto const of = texts_of_workers(t, text(field));
    std::string const values = values_text(of(0), of(who), who);
    lost = values.empty();
    return values;
  });
}

/// Takes part in the handshake of a call whose arguments this worker refuses, so that the others receive the reason.
/// @throws nothing, also if the transport fails or memory is exhausted: the error of the arguments is more useful
template <Transport T>
void share_refusal(T& t, std::string const& why) {
  try {
    auto const records = std::make_shared<std::vector<opening_record>>(static_cast<std::size_t>(t.size()));
    transport::keeping(
        t, records, [&] { transport::allgather_value(t, opening_record::refusal(), std::span(*records)); });
    if (all_known(*records)) static_cast<void>(texts_of_workers(t, why));
  } catch (std::exception const&) {
  }
}

/// @brief Runs f(), which makes a call. If it throws before its first transfer, because of an argument or for lack of
/// memory, this worker takes part in the handshake all the same, so that the others receive the reason. After a receive
/// that was started in vain, a second handshake would wait for what the others have sent to the first.
inline void informing(transport::endpoint& workers, std::invocable auto const& f) {
  std::uint64_t const before = workers.transfers();
  auto const inform = [&](std::string_view why) {
    constexpr std::string_view prefix = "globalq: ";
    if (workers.transfers() == before)
      share_refusal(workers, std::string(why.substr(why.starts_with(prefix) ? prefix.size() : 0)));
  };
  try {
    f();
  } catch (transport_error const&) {
    throw;
  } catch (std::bad_alloc const&) {
    inform("out of memory");
    throw;
  } catch (std::exception const& problem) {
    inform(problem.what());
    throw;
  }
}

/// As above, with memory that calls reuse; see transport::keeping_reused.
template <class Memory>
void informing(transport::endpoint& workers, std::shared_ptr<Memory>& memory, std::invocable auto const& f) {
  informing(workers, [&] { transport::keeping_reused(workers, memory, f); });
}

/// Whether workers agree in everything except their operators.
inline bool only_operators_differ(std::span<opening_record const> all) {
  opening_record const& a = all[0];
  bool differ = false;
  for (opening_record const& b : all) {
    if (a.length != b.length || !a.known()) return false;
    for (int k = 0; k < 8; ++k) {
      if (a.fields[k] == b.fields[k]) continue;
      if (k != agreement::what) return false;
      differ = true;
    }
  }
  return differ;
}

struct decision {
  call_status what = call_status::mean;
  std::int32_t who = 0;  ///< the lowest rank with NaN or infinity
  std::int32_t wide = 0;
  double top = 0;  ///< max|x| over all workers
  double scale =
      0;  ///< the scale, or the divisor of floats, if all values share one and there are no buckets; in units of 2^wide
};

/// Properties of an operator that determine its scale.
struct scale_rule {
  dtype type = dtype::float32;
  bool floats = false;
  dtype sent = dtype::float32;  ///< of floats in frames
  bool by_bucket =
      false;  ///< scales of buckets, of one worker, or of a user's norm: the handshake does not determine them
  double fixed_scale =
      0;  ///< with stages 0: it applies to mapped vectors, which are measured after the handshake
  norm::order q;
  std::uint32_t p = 0;

  scale_rule(operator_facts const& op, dtype of)
      : type(of),
        floats(!op.has_codes()),
        sent(op.floats.type),
        fixed_scale(op.chain.empty() ? op.fixed_scale : 0),
        q(op.q),
        p(op.p) {
    by_bucket = op.has_codes() && fixed_scale == 0 &&
                (op.local || op.bucket != 0 || op.user_norm != nullptr || !op.chain.empty());
  }
};

/// @param top   max|x| over all workers, above 0
/// @param type  of the values
/// @param sent  of the numbers in frames
GLOBALQ_FUNCTION float_scale float_scale_of(double top, int n, dtype type, dtype sent = dtype::float32) {
  float_format const format = format_of(sent);
  int const growth = growth_of_sums(n, format), top_exponent = exponent_of(top);
  bool const has_tiny = type == dtype::float64 || format.omega > 0;
  if (format.range == 0 && top_exponent + growth < 127 && (!has_tiny || top_exponent > -60)) return {};
  int const e = format.range == 0 ? top_exponent : top_exponent + growth - format.range;
  auto const within = [e](int low, int high) { return e < low ? low : (e > high ? high : e); };
  std::int32_t const wide = e > 900 ? 128 : 0;
  return {type == dtype::float64 ? power_of_two(within(-1022, 1022) - wide) : power_of_two(within(-126, 126)),
          wide};
}

/// @param all  the records of @p n workers, in rank order
/// @determinism the same bits on every worker, host and device
GLOBALQ_FUNCTION decision decide(opening_record const* all, int n, scale_rule const& rule) {
  decision d;
  for (int i = 1; i < n; ++i)
    if (!all[i].agrees_with(all[0])) {
      d.what = call_status::disagree;
      return d;
    }
  for (int i = n; i-- > 0;) {
    d.top = all[i].max() < d.top ? d.top : all[i].max();
    if (!all[i].non_finite()) continue;
    d.what = call_status::not_finite;
    d.who = i;
  }
  if (d.what != call_status::mean) return d;
  if (d.top == 0) {
    d.what = call_status::zero;
    return d;
  }
  int const e = exponent_of(d.top);
  // near the largest float64, sums and norms may overflow although the mean does not
  d.wide = e > 900 ? 128 : 0;
  if (rule.floats) {
    float_scale const floats = float_scale_of(d.top, n, rule.type, rule.sent);
    d.scale = floats.divisor;
    d.wide = floats.wide;
  } else if (rule.fixed_scale > 0) {
    if (d.top > rule.fixed_scale) d.what = call_status::beyond_scale;
    d.scale = rounded(rule.fixed_scale * power_of_two(-d.wide));
  } else if (!rule.by_bucket) {
    // relative to the largest maximum, so that nothing overflows
    auto const norm_of = [&](int i) {
      int const below = exponent_of(all[i].max()) - e;
      return all[i].max() == 0 ? 0.0 : all[i].statistic * power_of_two(below < -1074 ? -1074 : below);
    };
    double const relative = combine_norms(n, norm_of, rule.p);
    int const shift = e - d.wide;
    double const top_share = shift < -1022 ? relative * power_of_two(-1022) * power_of_two(shift + 1022)
                                           : relative * power_of_two(shift);
    double const max_share = e > 900 ? d.top * power_of_two(-d.wide) : d.top;
    d.scale = rule.q.scale(top_share < max_share ? max_share : top_share);
  }
  return d;
}

inline std::string non_finite_text(char const* operation, std::string const& why, bool changed) {
  return joined({"globalq: ", operation, ": ", why, ", ",
                 (changed ? "the output is unspecified" : "nothing was changed"),
                 "; skip this step or lower the loss scale"});
}
inline std::string brought_text(int who) {
  return joined({"the input of rank ", who, " contains NaN or infinity"});
}
inline std::string beyond_range_text(dtype type) {
  return joined({"a value of the mean exceeds the range of ", name_of(type)});
}
inline std::string beyond_scale_text(char const* operation, double top, double scale) {
  return joined({"globalq: ", operation, ": magnitude ", digits_of(top), " exceeds the scale ",
                 digits_of(scale),
                 " of norm::fixed and would be clipped; raise that scale or use a measured norm"});
}
/// @param share  largest value divided by the scale; above 1
inline std::string beyond_scale_text(char const* operation, double share) {
  return joined({"globalq: ", operation, ": a value is ", digits_of(share),
                 " times the scale of norm::fixed of its vector and would be clipped; raise that scale or "
                 "use a measured norm"});
}

}  // namespace GLOBALQ_ABI::detail
