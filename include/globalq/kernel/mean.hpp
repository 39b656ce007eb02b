// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop body at the end of a call: frames to the mean, written to a vector or added to it.

#include "detail/share.hpp"
#include "operands.hpp"

namespace globalq::kernel {

/// What brings sums to the scale of the mean: unit * 2^wide / levels.
GLOBALQ_FUNCTION store_scale mean_scale(double unit, int wide, double levels) {
  // float64 near the ends of its range: the power of two comes last, or digits or the number itself would be lost
  if (unit < 0x1p-800) return store_scale::in_two(unit * 0x1p128 / levels, 0x1p-128);
  if (wide != 0) return store_scale::in_two(unit / levels, power_of_two(wide));
  return store_scale(unit / levels);
}

/// Frames that together hold every worker -> the mean, written to a vector or added to it.
template <class Operands, bool Add = false>
struct write_mean {
  static constexpr int device_lanes = device::value_lanes<decltype(Operands::wire)>;
  static constexpr int blocks(int lanes, int rows) { return device::blocks<Operands>(lanes, rows, Add); }
  bool fits_registers() const { return device::fits_registers(o) && y.type != dtype::float64; }

  Operands o;
  mutable_vector y;
  store_scale whole;       ///< where there are no buckets and no scales in the frames
  float whole_factor = 0;  ///< settle(): what levels are multiplied by before that; 0: not known

  write_mean(Operands const& operands, mutable_vector to) : o(operands), y(to) {
    if (o.bucket == 0 && !o.local && o.agreed == nullptr) whole = scale_in(0);
  }

  /// Computes once what all values of a frame share; on a host, where scales in frames can be read.
  void settle() {
    if (o.bucket != 0 || o.source_count != 1) return;
    if (o.local) whole = scale_in(0);
    whole_factor = o.factor_of(o.sources[0], 0, !one_encoded_sum());
  }

  GLOBALQ_ALWAYS_INLINE void prefetch(std::uint64_t index) const {
    o.prefetch(index);
    std::size_t const width = size_of(y.type);
    globalq::prefetch<!Add>(static_cast<std::byte*>(y.data) + (o.first + index * host_values) * width,
                            host_values * width);
  }

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const {
    if (o.agreed != nullptr && !o.agreed->writes) return;
    for (int r = 0; r < rows<Lanes>; ++r) {
      row const part = row_of<Lanes>(index, lane, r, o.count);
      if (part.count == 0) continue;
      if (o.source_count == 1 && y.type == dtype::float32)
        decode<row_values<Lanes>>(part, static_cast<float*>(y.data) + o.first + part.first);
      else if (Lanes >= 16 && o.source_count == 1 && y.type != dtype::float64)
        decode_and_store<row_values<Lanes>>(part);
      else
        add_and_store<row_values<Lanes>>(part);
    }
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    if (o.agreed != nullptr && !o.agreed->writes) return;
    device::share<Operands, Lanes, Rows>::for_each(o, index, lane,
                                                   [&](auto const& part) { write_rows(part); });
  }

 private:
  /// The work of a GPU thread on one or all of its rows.
  template <class Share>
  GLOBALQ_FUNCTION void write_rows(Share const& part) const {
    typename Share::floats v, there;
    if (Add && y.type != dtype::float64) part.load_narrow({y.data, y.type}, there);
    part.template accumulate<false>(!one_encoded_sum(), v);
    if constexpr (Share::R == 1) {
      if (y.type == dtype::float64) return store_wide(part, v);
    }
    struct narrow_scale {
      float factor, post;
    };
    part.for_each_value(
        false,
        [&](std::uint64_t b) {
          store_scale const s = scale_of<Share::may_be_local>(b);
          return narrow_scale{s.factor, s.post};
        },
        [&](narrow_scale const& n, int r, int i) {
          store_scale s;
          s.factor = n.factor;
          s.post = n.post;
          v[r][i] = Add ? there[r][i] + s(v[r][i]) : s(v[r][i]);
        });
    if (y.type == dtype::float32) {
      typename Share::words raw;
      each_value<Share>([&](int r, int i) { raw[r][i] = bits_of(v[r][i]); });
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
    each_value<Share>([&](int r, int i) {
      std::uint32_t const half = Half::round(v[r][i]);
      if (i % 2 == 0)
        raw[r][i / 2] = half;
      else
        raw[r][i / 2] |= half << 16;
    });
  }

  /// The same for float64.
  template <class Share>
  GLOBALQ_FUNCTION void store_wide(Share const& part, typename Share::floats const& v) const {
    std::uint32_t raw[1][2 * Share::N] = {};
    if constexpr (Add) part.template load_elements<8>(y.data, raw);
    part.for_each_value(
        false, [&](std::uint64_t b) { return scale_of(b); },
        [&](store_scale const& s, int r, int i) {
          double const there =
              Add ? double_of((static_cast<std::uint64_t>(raw[r][2 * i + 1]) << 32) | raw[r][2 * i]) : 0.0;
          std::uint64_t const bits =
              bits_of(globalq::detail::to_float64::template stored<Add>(v[r][i], s, there));
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

  /// Reports a result whose magnitude's bits are not below those of infinity.
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

  /// A single encoded sum of n workers has scale n * unit, so its mean has scale unit.
  GLOBALQ_FUNCTION bool one_encoded_sum() const { return o.source_count == 1 && !o.summed; }

  /// What accumulated values are multiplied by in a bucket.
  template <bool Local = true>
  GLOBALQ_FUNCTION store_scale scale_of(std::uint64_t b) const {
    if (o.bucket != 0 || (Local && o.local && whole_factor == 0)) return scale_in<Local>(b);
    if (o.agreed == nullptr) return whole;
    return one_encoded_sum() ? o.agreed->single : o.agreed->mean;
  }
  template <bool Local = true>
  GLOBALQ_FUNCTION store_scale scale_in(std::uint64_t b) const {
    bool const local = Local && o.local;
    double const share = one_encoded_sum() && !local ? 1.0 : static_cast<double>(o.workers);
    double const unit = (local ? power_of_two(o.reference(b)) : o.unit(b)) * o.weight;
    return mean_scale(unit, o.power(), local ? share : static_cast<double>(o.levels.extent()) * share);
  }

  template <int N>
  GLOBALQ_FUNCTION void add_and_store(row const part) const {
    float sum[N];
    o.template accumulate<N>(part, !one_encoded_sum(), sum);
    for_each_run(o.first + part.first, part.count, o.bucket, [&](std::uint64_t b, int at, int m) {
      if (store<N, Add>(y, o.first + part.first + static_cast<std::uint64_t>(at), m, scale_of(b), sum + at))
        o.report(out_of_range);
    });
  }

  /// The same for one frame and values of 16 bits.
  template <int N>
  GLOBALQ_FUNCTION void decode_and_store(row const part) const {
    float values[N];
    decode<N, false>(part, values);
    if (store<N, Add>(y, o.first + part.first, part.count, store_scale(1.0), values)) o.report(out_of_range);
  }

  /// The same for one frame and float32: from codes to the vector without a stop.
  /// @param out  values of the part
  template <int N, bool Adds = Add>
  GLOBALQ_FUNCTION void decode(row const part, float* out) const {
    typename Operands::lane buffer[N];
    source_view const s = o.sources[0];
    auto const* const lanes = o.template read_checked<N>(s, part, buffer);
    for_each_run(o.first + part.first, part.count, o.bucket, [&](std::uint64_t b, int at, int m) {
      std::uint32_t const top =
          kernel::decode<N, Adds>(o.levels, lanes + at, m, o.shift_of(s, b),
                                  whole_factor != 0 ? whole_factor : o.factor_of(s, b, !one_encoded_sum()),
                                  scale_of(b), o.limit_of(s), out + at);
      if (top >= float_infinity) o.report(out_of_range);
    });
  }
};

}  // namespace globalq::kernel
