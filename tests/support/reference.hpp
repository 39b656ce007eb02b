// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: what a call must compute, in plain scalar code: no kernels, no frames, no schedules.
///
/// Shares with the library only random::stream::word, the definition of which bits a coordinate gets. One function
/// computes what all workers hold after a call, coordinate by coordinate, from docs/spec alone. Global maximum norm;
/// float32 values.

#include <globalq/random/stream.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace reference {

using globalq::random::purpose;

/// A level scheme with its codes written out.
struct levels {
  enum class kind { uniform, exponential, table, symmetric } what = kind::uniform;
  std::uint32_t size = 7;      ///< levels above zero
  std::uint32_t headroom = 0;  ///< exponential: codes are moved up by it
  std::vector<float> table;    ///< magnitudes above zero, ascending
  bool reversed = false;       ///< code 1 is the largest magnitude

  /// t of a value as large as the norm.
  double extent() const { return what == kind::uniform ? size : 1.0; }

  /// Magnitudes with their codes, ascending in magnitude; the first is zero, or minus the smallest (symmetric).
  void list(std::vector<double>& values, std::vector<int>& codes) const {
    values.clear();
    codes.clear();
    int const s = static_cast<int>(size);
    if (what == kind::uniform) {
      for (int k = 0; k <= s; ++k) values.push_back(k), codes.push_back(k);
    } else if (what == kind::exponential) {
      values.push_back(0), codes.push_back(0);
      for (int k = s; k >= 1; --k)
        values.push_back(std::ldexp(1.0, 1 - k)), codes.push_back(k + static_cast<int>(headroom));
    } else {
      int const n = static_cast<int>(table.size());
      bool const zero_free = what == kind::symmetric;
      values.push_back(zero_free ? -static_cast<double>(table[0]) : 0.0);
      codes.push_back(zero_free ? -1 : 0);
      for (int k = 1; k <= n; ++k)
        values.push_back(static_cast<double>(table[static_cast<std::size_t>(k - 1)])),
            codes.push_back(reversed ? n + 1 - k : k);
    }
  }

  /// The value of a code that may be a sum (uniform) or lie beyond the encoder's (exponential).
  double value(int code) const {
    int const m = std::abs(code);
    double v = 0;
    if (what == kind::uniform) {
      v = m;
    } else if (what == kind::exponential) {
      v = m == 0 ? 0.0 : std::ldexp(1.0, 1 + static_cast<int>(headroom) - m);
    } else if (m != 0) {
      v = static_cast<double>(
          table[static_cast<std::size_t>(reversed ? static_cast<int>(table.size()) - m : m - 1)]);
    }
    return code < 0 ? -v : v;
  }
};

enum class rounding {
  stochastic,
  random_shift,
  random_shift_unshifted,
  nearest,
  correlated,
  correlated_shift,
  correlated_shift_unshifted
};
enum class method { none, sum, exponential, requantize };

/// Everything a call depends on.
struct problem {
  std::vector<std::vector<float>> x;  ///< of each worker
  levels scheme;
  rounding how = rounding::stochastic;
  method reduce = method::sum;
  std::string schedule = "ring";
  std::uint64_t bucket = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

class solver {
 public:
  explicit solver(problem const& p) : p_(p), how_(p.how) {
    p.scheme.list(values_, codes_);
    // a shifted value may lie beyond the norm, where the next encoding would cut it off: not shifted back then
    if (p.reduce == method::requantize && how_ == rounding::random_shift)
      how_ = rounding::random_shift_unshifted;
    if (p.reduce == method::requantize && how_ == rounding::correlated_shift)
      how_ = rounding::correlated_shift_unshifted;
  }

  std::vector<float> solve() {
    std::uint64_t const d = p_.x[0].size();
    std::vector<float> y(d, 0.0F);
    std::uint64_t const width = p_.bucket == 0 ? d : p_.bucket;
    float all = 0;
    for (auto const& v : p_.x)
      for (float a : v) all = std::max(all, std::abs(a));
    if (all == 0) return y;
    for (std::uint64_t i = 0; i < d; ++i) {
      if (i % width == 0) {
        unit_ = 0;
        for (auto const& v : p_.x)
          for (std::uint64_t j = i; j < std::min(i + width, d); ++j) unit_ = std::max(unit_, std::abs(v[j]));
      }
      y[i] = coordinate(i);
    }
    return y;
  }

 private:
  /// A partial sum of some workers: its code (or codes' sum), how many, and who encoded it last.
  struct partial {
    int code;
    int terms;
    int worker;
  };

  int workers() const { return static_cast<int>(p_.x.size()); }

  std::uint32_t word(purpose use, int worker, std::uint64_t i) const {
    return globalq::random::stream{p_.seed, p_.step, static_cast<std::uint32_t>(worker), use}.word(i);
  }

  /// The word that a decision is taken with.
  std::uint32_t decision(bool again, int worker, std::uint64_t i) const {
    if (how_ == rounding::correlated && !again)
      return in_part(word(purpose::encode, worker, i), worker, i / 256);
    if (how_ == rounding::stochastic || how_ == rounding::correlated)
      return word(again ? purpose::requantize : purpose::encode, worker, i);
    if (how_ == rounding::nearest) return 0x7fffffffU;
    // group b is that of coordinate 256 (b / 16) + 4 (b % 16), whose word is not rotated
    std::uint64_t const b = p_.bucket == 0 ? 0 : i / p_.bucket;
    std::uint32_t const drawn =
        word(again ? purpose::shift_requantize : purpose::shift, worker, 256 * (b / 16) + 4 * (b % 16));
    return correlated_shifts() && !again && workers() > 1 ? in_part(drawn, worker, b) : drawn;
  }

  bool correlated_shifts() const {
    return how_ == rounding::correlated_shift || how_ == rounding::correlated_shift_unshifted;
  }

  /// A word moved to the part of the range that a worker has in a tile, or a bucket.
  std::uint32_t in_part(std::uint32_t drawn, int worker, std::uint64_t tile) const {
    int const cohorts = (workers() + 15) / 16, cohort = worker % cohorts;
    std::vector<std::uint64_t> parts;  // of the members
    for (int w = cohort; w < workers(); w += cohorts) parts.push_back(parts.size());
    std::uint64_t const n = parts.size();
    auto const shared = [&](std::uint64_t k) -> std::uint64_t {
      std::uint64_t const group = 4 * tile + k / 4;
      return word(purpose::share, cohort, 256 * (group / 16) + 64 * (k % 4) + 4 * (group % 16));
    };
    for (std::uint64_t j = n; j-- > 2;) {
      std::uint64_t const with = 1 + shared(j) * j / (std::uint64_t{1} << 32);
      for (std::uint64_t& p : parts) p = p == j ? with : (p == with ? j : p);
    }
    __extension__ using wide = unsigned __int128;
    wide const turn = ((static_cast<wide>(shared(0)) << 32) + shared(1)) * n >> 64;
    std::uint64_t const part = (parts[static_cast<std::size_t>(worker / cohorts)] +
                                static_cast<std::uint64_t>(turn)) %
                               n,
                        start = (part << 32) / n, end = ((part + 1) << 32) / n;
    return static_cast<std::uint32_t>(
        start + (std::uint64_t{drawn} * std::min(end - start, std::uint64_t{0xffffffffU}) >> 32));
  }

  /// The amount that was taken off before rounding, in gaps.
  double shift(bool again, int worker, std::uint64_t i) const {
    if (how_ != rounding::random_shift && how_ != rounding::correlated_shift) return 0;
    return (static_cast<double>(decision(again, worker, i)) + 1.0) / 4294967296.0 - 0.5;
  }

  /// The code of a signed value on the scale of the levels.
  int encode(float t, bool again, int worker, std::uint64_t i) const {
    bool const negative = std::signbit(t);
    double const m = std::min(static_cast<double>(std::abs(t)), p_.scheme.extent());
    std::size_t k = values_.size() - 1;
    while (k > 0 && values_[k] > m) --k;
    int code = codes_[k];
    if (k + 1 < values_.size()) {
      long double const fraction =
          (static_cast<long double>(m) - static_cast<long double>(values_[k])) /
          (static_cast<long double>(values_[k + 1]) - static_cast<long double>(values_[k]));
      auto const threshold = static_cast<std::uint32_t>(std::floor(fraction * 4294967296.0L));
      std::uint32_t w = decision(again, worker, i);
      if ((how_ == rounding::random_shift || correlated_shifts() ||
           (how_ == rounding::correlated && !again)) &&
          negative)
        w = ~w;
      if (w < threshold) code = codes_[k + 1];
    }
    return negative ? -code : code;
  }

  /// A worker's own value on the scale of the levels, rounded once to float32.
  float own(int worker, std::uint64_t i) const {
    float const gain = static_cast<float>(p_.scheme.extent() / static_cast<double>(unit_));
    return p_.x[static_cast<std::size_t>(worker)][i] * gain;
  }

  partial leaf(int worker, std::uint64_t i) const {
    return {encode(own(worker, i), false, worker, i), 1, worker};
  }

  /// The float32 value of a partial sum, on the scale of the levels.
  float decoded(partial const& s, std::uint64_t i) const {
    bool const summed = p_.reduce == method::sum || p_.reduce == method::exponential;
    double r = 0;
    if (summed && s.terms > 1) {
      for (int w = 0; w < workers(); ++w) r += shift(false, w, i);
    } else {
      r = shift(s.terms > 1, s.worker, i);
    }
    return static_cast<float>(p_.scheme.value(s.code)) + static_cast<float>(r);
  }

  /// Spec 6.2: the sum of two signed powers of two, rounded to one without bias.
  static int add_exponential(int a, int b, std::uint32_t w) {
    if (a == 0) return b;
    if (b == 0) return a;
    if (std::abs(b) < std::abs(a)) std::swap(a, b);
    int const delta = std::abs(b) - std::abs(a), e = std::abs(a), sign = a < 0 ? -1 : 1;
    auto const low_bits_are_zero = [w](int bits) {
      return (w & ((std::uint64_t{1} << std::min(bits, 31)) - 1)) == 0;
    };
    if ((a < 0) == (b < 0)) return sign * (low_bits_are_zero(delta) ? e - 1 : e);
    if (delta == 0) return 0;
    return sign * (low_bits_are_zero(delta - 1) ? e + 1 : e);
  }

  /// Worker @p at adds partial sums to its own value.
  partial combine(int at, std::vector<partial> const& with, std::uint64_t i) const {
    partial result = leaf(at, i);
    if (with.empty()) return result;
    if (p_.reduce == method::requantize) {
      float sum = own(at, i);
      int terms = 1;
      for (partial const& s : with) {
        float volatile const whole =
            decoded(s, i) * static_cast<float>(s.terms);  // rounded before it is added
        sum += whole;
        terms += s.terms;
      }
      return {encode(sum * (1.0F / static_cast<float>(terms)), true, at, i), terms, at};
    }
    for (partial const& s : with) {
      result.code = p_.reduce == method::sum
                        ? result.code + s.code
                        : add_exponential(result.code, s.code, word(purpose::reduce, s.worker, i));
      result.terms += s.terms;
    }
    return result;
  }

  /// Which of n segments a coordinate lies in: whole grains, the first segments one grain longer.
  int segment_of(std::uint64_t i) const { return segment_of(i, p_.x.size()); }
  int segment_of(std::uint64_t i, std::uint64_t n) const {
    std::uint64_t const d = p_.x[0].size();
    std::uint64_t const grain = p_.bucket == 0 ? 256 : std::lcm(p_.bucket, std::uint64_t{256});
    std::uint64_t const grains = (d + grain - 1) / grain;
    std::uint64_t at = 0;
    for (std::uint64_t s = 0; s < n; ++s) {
      at += (grains / n + (s < grains % n ? 1 : 0)) * grain;
      if (i < at) return static_cast<int>(s);
    }
    throw std::logic_error("a coordinate lies in no segment");
  }

  float coordinate(std::uint64_t i) const {
    int const n = workers();
    double const extent = p_.scheme.extent(), unit = static_cast<double>(unit_);
    if (p_.schedule == "allgather") {
      float sum = 0;
      for (int w = 0; w < n; ++w) sum += decoded(leaf(w, i), i);
      return sum * static_cast<float>(unit / (extent * n));
    }
    partial total{};
    if (p_.schedule == "ring") {
      int const segment = segment_of(i);
      total = leaf((segment + 1) % n, i);
      for (int k = 1; k < n; ++k) {
        total.worker = (segment + k) % n;  // it sends
        total = combine((segment + 1 + k) % n, {total}, i);
      }
      total.worker = segment;
    } else if (p_.schedule == "sra") {
      int const segment = segment_of(i);
      std::vector<partial> others;
      for (int w = 0; w < n; ++w)
        if (w != segment) others.push_back(leaf(w, i));
      total = combine(segment, others, i);
    } else if (p_.schedule.starts_with("hierarchical:")) {
      int const size = p_.schedule.back() - '0', nodes = (n + size - 1) / size;
      int const owner = segment_of(i, static_cast<std::uint64_t>(nodes));
      auto const members = [&](int node) {
        std::vector<partial> all;
        for (int w = node * size + 1; w < std::min(n, (node + 1) * size); ++w) all.push_back(leaf(w, i));
        return all;
      };
      std::vector<partial> others = members(owner);
      for (int node = 0; node < nodes; ++node)
        if (node != owner) others.push_back(combine(node * size, members(node), i));
      total = combine(owner * size, others, i);
    } else {
      total = subtree(0, n, i);
    }
    bool const summed = p_.reduce == method::sum || p_.reduce == method::exponential;
    return decoded(total, i) * static_cast<float>(unit / (extent * (summed ? n : 1)));
  }

  /// Binomial tree: the children of r are r + 1, r + 2, r + 4, .. while r is a multiple of twice that.
  partial subtree(int r, int n, std::uint64_t i) const {
    std::vector<partial> children;
    for (int m = 1; r % (2 * m) == 0 && m < n; m *= 2)
      if (r + m < n) children.push_back(subtree(r + m, n, i));
    return combine(r, children, i);
  }

  problem const& p_;
  rounding how_;
  std::vector<double> values_;
  std::vector<int> codes_;
  float unit_ = 0;
};

/// What every worker holds after the call.
inline std::vector<float> mean(problem const& p) { return solver(p).solve(); }

}  // namespace reference
