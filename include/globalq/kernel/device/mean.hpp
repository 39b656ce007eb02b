// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body of a device at the end of a call: decodes frames, and writes the mean or adds it to a
/// vector.

#include "share.hpp"

namespace GLOBALQ_ABI::kernel::device {

/// Decodes frames that together contain every worker, and writes the mean to a vector or adds it.
template <class Operands, bool Add = false>
struct write_mean {
  static constexpr int device_lanes = device::value_lanes<typename Operands::wire_type>;
  static constexpr int blocks(int lanes, int rows) {
    // codes of other sizes need more registers
    constexpr bool one_byte = row_bytes<typename Operands::wire_type, 4> == 4;
    return Add || !one_byte ? 2 : device::blocks<Operands>(lanes, rows, true);
  }
  static constexpr bool takes_pieces = true;
  /// Registers cannot hold 32 values and the 32 that they are added to.
  static constexpr bool row_by_row = Add && device_lanes > 1;
  static constexpr bool fits_registers() requires row_by_row { return false; }
  bool fits_registers() const requires(!row_by_row) {
    return device::fits_registers(o) && y.type != dtype::float64;
  }

  Operands o;
  mutable_vector y;
  store_scale whole;  ///< without buckets and without scales in the frames

  write_mean(Operands const& operands, mutable_vector to) : o(operands), y(to) {
    if (o.bucket == 0 && !o.local && o.agreed == nullptr) whole = o.mean_scale_of(0);
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    share_of_piece<Lanes, Rows>(index, lane, nullptr, 0);
  }
  /// @param source  index of the piece's first frame
  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share_of_piece(std::uint64_t index, int lane, std::byte*, int source) const {
    if (o.agreed != nullptr && !o.agreed->writes) return;
    device::share<Operands, Lanes, Rows>::for_each(
        o, index, lane, [&](auto const& part) { write_rows(part); }, source);
  }

 protected:
  /// Processes one or all rows of a GPU thread.
  template <class Share>
  GLOBALQ_FUNCTION void write_rows(Share const& part) const {
    typename Share::floats v, there;
    if (Add && y.type != dtype::float64) part.load_narrow({y.data, y.type}, there);
    if constexpr (Share::R == 1) {
      auto const m = part.find_references();
      part.template accumulate<false>(!o.one_encoded_sum(), m, v);
      if (y.type == dtype::float64) return store_wide(part, m, v);
      part.for_each_value(
          false, [&](std::uint64_t b, int row) { return end_of(b, part.reference_of(m, b, row)); },
          [&](ending const& e, int r, int i) { v[r][i] = e(Add ? there[r][i] : 0, v[r][i]); });
    } else {
      ending ends[Share::R] = {};
      typename Share::references m;
      part.for_each_row(
          false, [&](std::uint64_t b, int) { return end_of(b, o.reference(b, part.source())); }, ends);
      GLOBALQ_UNROLL
      for (int r = 0; r < Share::R; ++r) m.row[r] = ends[r].reference;
      part.template accumulate<false>(!o.one_encoded_sum(), m, v);
      each_value<Share>([&](int r, int i) { v[r][i] = ends[r](Add ? there[r][i] : 0, v[r][i]); });
    }
    if (y.type == dtype::float32) {
      typename Share::words raw;
      each_value<Share>([&](int r, int i) {
        raw[r][i] = quiet(bits_of(v[r][i]), float_magnitude, float_infinity, float_nan);
      });
      part.template store_elements<4>(y.data, raw);
      report_beyond(part, float_infinity, [&](int r, int i) { return raw[r][i] & float_magnitude; });
    } else {
      bool const brain = y.type == dtype::bfloat16;
      std::uint32_t raw[Share::R][Share::N / 2];
      if (brain)
        round<Share, bfloat16>(v, raw);
      else
        round<Share, float16>(v, raw);
      part.template store_elements<2>(y.data, raw);
      report_beyond(part, brain ? 0x7f80U : 0x7c00U,
                    [&](int r, int i) { return (raw[r][i / 2] >> (16 * (i % 2))) & 0x7fffU; });
    }
  }

  template <class Share, class Half>
  GLOBALQ_FUNCTION static void round(typename Share::floats const& v,
                                     std::uint32_t (&raw)[Share::R][Share::N / 2]) {
    constexpr bool brain = std::is_same_v<Half, bfloat16>;
    constexpr std::uint32_t infinity = brain ? 0x7f80U : 0x7c00U, nan = brain ? 0x7fc0U : 0x7e00U;
    each_value<Share>([&](int r, int i) {
      std::uint32_t const half =
          quiet(static_cast<std::uint32_t>(Half::round(v[r][i])), 0x7fffU, infinity, nan);
      if (i % 2 == 0)
        raw[r][i / 2] = half;
      else
        raw[r][i / 2] |= half << 16;
    });
  }

  /// When adding, a NaN becomes a quiet NaN with the same bits on all processors.
  template <class Word>
  GLOBALQ_FUNCTION static Word quiet(Word bits, Word magnitude, Word infinity, Word nan) {
    return Add && (bits & magnitude) > infinity ? nan : bits;
  }

  /// The end of write_rows() for float64.
  template <class Share>
  GLOBALQ_FUNCTION void store_wide(Share const& part, typename Share::references const& m,
                                   typename Share::floats const& v) const {
    std::uint32_t raw[1][2 * Share::N] = {};
    if constexpr (Add) part.template load_elements<8>(y.data, raw);
    part.for_each_value(
        false, [&](std::uint64_t b, int row) { return scale_of(b, part.reference_of(m, b, row)); },
        [&](store_scale const& s, int r, int i) {
          double const there =
              Add ? double_of((static_cast<std::uint64_t>(raw[r][2 * i + 1]) << 32) | raw[r][2 * i]) : 0.0;
          std::uint64_t const bits =
              quiet(bits_of(kernel::detail::to_float64::template stored<Add>(v[r][i], s, there)),
                    double_magnitude, double_infinity, double_nan);
          raw[r][2 * i] = static_cast<std::uint32_t>(bits);
          raw[r][2 * i + 1] = static_cast<std::uint32_t>(bits >> 32);
        });
    part.template store_elements<8>(y.data, raw);
    report_beyond(part, static_cast<std::uint32_t>(double_infinity >> 32),
                  [&](int r, int i) { return raw[r][2 * i + 1] & float_magnitude; });
  }

  template <class Share, class F>
  GLOBALQ_FUNCTION static void each_value(F const& f) {
    GLOBALQ_UNROLL
    for (int r = 0; r < Share::R; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < Share::N; ++i) f(r, i);
    }
  }

  /// Reports a result that is infinite or NaN: the bits of its magnitude are at least those of infinity.
  template <class Share, class F>
  GLOBALQ_FUNCTION void report_beyond(Share const& part, std::uint32_t infinity, F const& magnitude) const {
    std::uint32_t top = 0;
    if (part.whole()) {
      each_value<Share>([&](int r, int i) { top = top < magnitude(r, i) ? magnitude(r, i) : top; });
    } else {
      each_value<Share>([&](int r, int i) {
        if (i < part.count(r)) top = top < magnitude(r, i) ? magnitude(r, i) : top;
      });
    }
    if (top >= infinity) o.report(out_of_range);
  }

  /// The factors from the sums of a row to the mean.
  struct ending {
    int reference;
    float factor, post;
    GLOBALQ_FUNCTION float operator()(float there, float sum) const {
      store_scale s;
      s.factor = factor;
      s.post = post;
      return Add ? there + s(sum) : s(sum);
    }
  };
  GLOBALQ_FUNCTION ending end_of(std::uint64_t b, int reference) const {
    store_scale const s = scale_of(b, reference);
    return {reference, s.factor, s.post};
  }

  /// The factor from the accumulated values of a bucket to the mean.
  GLOBALQ_FUNCTION store_scale scale_of(std::uint64_t b, int reference) const {
    if (o.bucket != 0 || o.local) return o.mean_scale_of(b, reference);
    if (o.agreed == nullptr) return whole;
    return o.one_encoded_sum() ? o.agreed->single : o.agreed->mean;
  }
};

/// write_mean of a single frame where suits() allows it: every value is the level of a code times two factors. The bits
/// are the same.
///
/// It has no sums, computes the factors in float32, and therefore needs fewer registers and instructions. A thread whose
/// rows are not whole, or whose scales are near the ends of the range, processes its rows one by one as write_mean does.
template <class Operands, bool Add = false>
struct write_mean_of_one : write_mean<Operands, Add> {
  using base = write_mean<Operands, Add>;
  using base::o;
  using base::y;
  static constexpr int blocks(int /*lanes*/, int /*rows*/) {
    bool const quarter_bytes = row_bytes<typename Operands::wire_type, 4> == 1;
    return sizeof(typename Operands::code_type) * (Add ? 2 : 1) > 2 || (Add && quarter_bytes) ? 2 : 3;
  }
  static constexpr bool fits_registers() { return true; }

  float share_of_mean;  ///< local norms: weight / workers

  write_mean_of_one(Operands const& operands, mutable_vector to)
      : base(operands, to), share_of_mean(o.local ? static_cast<float>(share_of(o)) : 0.0F) {}

  static bool suits(Operands const& o, mutable_vector y) {
    if (base::device_lanes != 1 || !device::fits_registers(o) || y.type != dtype::float32) return false;
    if (o.sources.count != 1 || o.rounding.shifts()) return false;
    return o.local ? o.scale_form.in_a_word() && share_of(o) > 0x1p-29 && share_of(o) < 0x1p30
                   : o.bucket == 0;
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    share_of_piece<Lanes, Rows>(index, lane, nullptr, 0);
  }
  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share_of_piece(std::uint64_t index, int lane, std::byte*, int source) const {
    if (o.agreed != nullptr && !o.agreed->writes) return;
    if (write_at_once(device::share<Operands, Lanes, 4>(o, index, lane, 0, source))) return;
    device::share<Operands, Lanes, 1>::for_each(
        o, index, lane, [&](auto const& part) { this->write_rows(part); }, source);
  }

 private:
  static double share_of(Operands const& o) { return o.weight / static_cast<double>(o.workers); }

  /// A value is level * factor * times.
  struct decoding {
    float factor, times;
    bool usual;  ///< false: the scale is near the ends of the range, and write_mean has a third factor
  };
  GLOBALQ_FUNCTION decoding decoding_of(source_view const& s, std::uint64_t b) const {
    if (!o.local) {
      auto const end = base::end_of(0, 0);
      return {o.factor_of(s, 0, !o.one_encoded_sum(), 0), end.factor, end.post == 1.0F};
    }
    // as factor_of() and mean_scale_of(): products with these powers of two are exact
    std::uint32_t const word = o.word_of(s, b);
    if (word >> 23 == 0) return {0.0F, share_of_mean, true};
    int const e = exponent_of_word(word);
    if (e < -60 || e > 60) return {0.0F, 0.0F, false};
    return {quotient(float_of(0x3f800000U | (word & 0x7fffffU)), o.extent),
            multiply(share_of_mean, power_of_two_float(e)), true};
  }

  /// Processes all rows of a thread, or returns false.
  template <class Share>
  GLOBALQ_FUNCTION bool write_at_once(Share const& part) const {
    if (!part.whole()) return false;
    source_view const s = o.sources[part.source()];
    typename Share::codes c;
    part.fetch(s.codes, c);
    typename Share::floats there;
    if (Add) part.load_narrow({y.data, y.type}, there);
    decoding d[Share::R];
    part.for_each_row(
        !o.local, [&](std::uint64_t b, int) { return decoding_of(s, b); }, d);
    bool usual = true;
    GLOBALQ_UNROLL
    for (int r = 0; r < Share::R; ++r) usual = usual && d[r].usual;
    if (!usual) return false;
    part.unpack(c, o.limit_of(s));
    typename Share::words raw;
    base::template each_value<Share>([&](int r, int i) {
      float const v = value_of(o.levels, c.row[r].get(i), 0.0F, d[r].factor),
                  mean = with_sign(multiply(v, d[r].times), bits_of(v));
      raw[r][i] =
          base::quiet(bits_of(Add ? there[r][i] + mean : mean), float_magnitude, float_infinity, float_nan);
    });
    part.template store_elements<4>(y.data, raw);
    base::report_beyond(part, float_infinity, [&](int r, int i) { return raw[r][i] & float_magnitude; });
    return true;
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
