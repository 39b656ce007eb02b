// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the steps of the loop bodies for a GPU thread's share: four rows of a random tile, in registers.
///
/// Results are those of host/operands.hpp and loops.hpp for a host thread's 1,024 values in L1. All loads are issued
/// before their first use. Every value of a row is processed, even beyond the end of the vector (where nothing is read
/// or written). Buckets change the numbers but not the control flow.

#include "../executor.hpp"
#include "../loops.hpp"
#include "coded_rows.hpp"
#include "operands.hpp"
#include "registers.hpp"
#include "table_codes.hpp"

namespace GLOBALQ_ABI::kernel::device {

/// Whether a thread can process all its rows at once: values have at most 4 bytes, and no row spans two buckets.
template <class Operands>
GLOBALQ_FUNCTION bool fits_registers(Operands const& o) {
  constexpr int row = 4 * value_lanes<typename Operands::wire_type>;
  return o.x.type != dtype::float64 && o.bucket % row == 0;
}

/// @tparam Operands  operands of the call
/// @tparam Rows      4: all rows at once, if fits_registers(). 1: one row at a time, for any operands
template <class Operands, int Lanes, int Rows = 4>
class share : public coded_rows<Operands, Lanes, Rows> {
  using base = coded_rows<Operands, Lanes, Rows>;
  using base::first_;
  using base::o;
  using base::row_;
  using base::row_start;
  using base::whole_;

 public:
  using base::count;
  using base::fetch;
  using base::N;
  using base::R;
  using base::unpack;
  using typename base::code_type;
  using typename base::codes;
  using floats = float[R][N];
  using words = std::uint32_t[R][N];

  /// @param source  index of the share's first frame among those of the operands
  GLOBALQ_FUNCTION share(Operands const& operands, std::uint64_t index, int lane, int row = 0, int source = 0)
      : base(operands, index, lane, row), source_(source) {}

  /// The random words of a thread's values.
  struct drawn {
    random::words4 group[Lanes];
  };
  GLOBALQ_FUNCTION static drawn draw(Operands const& o, std::uint64_t index, int lane, int worker,
                                     random::purpose use) {
    random::stream const s = o.stream(worker, use);
    drawn d;
    GLOBALQ_UNROLL
    for (int l = 0; l < Lanes; ++l)
      d.group[l] = s.group(16 * (o.first / tile_values + index) + static_cast<std::uint64_t>(lane + l));
    return d;
  }

  /// Calls f(share) for all rows at once, or for one after the other, omitting empty ones.
  template <class F>
  GLOBALQ_FUNCTION static void for_each(Operands const& o, std::uint64_t index, int lane, F const& f,
                                        int source = 0) {
    GLOBALQ_NO_UNROLL
    for (int row = 0; row < 4; row += Rows) {
      share const part(o, index, lane, row, source);
      if (part.left_ > 0) f(part);
    }
  }

  /// Adds `theirs` to `sum` by a reduce operator.
  template <class Op>
  GLOBALQ_FUNCTION void add(codes& sum, codes const& theirs, drawn const& d) const {
    GLOBALQ_UNROLL
    for (int l = 0; l < Lanes; ++l) {
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        std::uint32_t const word = Op::draws ? word_of(d, l, r) : 0U;
        if constexpr (sizeof(code_type) == 1 && AddsQuads<Op>) {
          sum.row[r].word[l] = Op::add_quad(sum.row[r].word[l], theirs.row[r].word[l], word);
        } else {
          code_row<code_type, 4> result;
          result.clear();
          GLOBALQ_UNROLL
          for (int k = 0; k < 4; ++k)
            result.set(k, static_cast<code_type>(Op::add(static_cast<code_type>(sum.row[r].get(4 * l + k)),
                                                         static_cast<code_type>(theirs.row[r].get(4 * l + k)),
                                                         rotate_left(word, 8 * k))));
          constexpr int each = static_cast<int>(sizeof(code_type));
          GLOBALQ_UNROLL
          for (int k = 0; k < each; ++k) sum.row[r].word[each * l + k] = result.word[k];
        }
      }
    }
  }

  /// Loads the vector's values times 2^exponent times gain.
  /// @param scale  scale(bucket, row) returns an object with the members of input_scale
  /// @param note   note(that object, row, position) is called for each value
  template <class Scale, class Note>
  GLOBALQ_FUNCTION void load(const_vector x, Scale const& scale, Note const& note, floats& z) const {
    using input = decltype(scale(std::uint64_t{}, 0));
    if constexpr (R == 1) {
      if (x.type == dtype::float64) {
        std::uint32_t raw[1][2 * N];
        load_elements<8>(x.data, raw);
        GLOBALQ_UNROLL
        for (int i = 0; i < N; ++i) z[0][i] = 0;  // the loop below skips values beyond the end
        for_each_value(false, scale, [&](input const& in, int r, int i) {
          double const v = double_of((static_cast<std::uint64_t>(raw[r][2 * i + 1]) << 32) | raw[r][2 * i]);
          z[r][i] = multiply(static_cast<float>(v * power_of_two(in.exponent)), in.gain);
          note(in, r, i);
        });
        return;
      }
    }
    load_narrow(x, z);
    struct factors {
      float power;
      input in;
    };
    for_each_value(
        false,
        [&](std::uint64_t b, int row) {
          input const in = scale(b, row);
          return factors{power_of_two_float(in.exponent), in};
        },
        [&](factors const& f, int r, int i) {
          z[r][i] = multiply(multiply(z[r][i], f.power), f.in.gain);
          note(f.in, r, i);
        });
  }

  /// Loads values of at most four bytes as float32.
  GLOBALQ_FUNCTION void load_narrow(const_vector x, floats& z) const {
    if (x.type == dtype::float32) {
      words raw;
      load_elements<4>(x.data, raw);
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        GLOBALQ_UNROLL
        for (int i = 0; i < N; ++i) z[r][i] = float_of(raw[r][i]);
      }
      return;
    }
    std::uint32_t raw[R][N / 2];
    load_elements<2>(x.data, raw);
    if (x.type == dtype::bfloat16)
      widen<bfloat16>(raw, z);
    else
      widen<float16>(raw, z);
  }
  template <class Half>
  GLOBALQ_FUNCTION static void widen(std::uint32_t const (&raw)[R][N / 2], floats& z) {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < N; ++i)
        z[r][i] = Half::widen(static_cast<std::uint16_t>(raw[r][i / 2] >> (16 * (i % 2))));
    }
  }

  /// Encodes values.
  /// @param own     whether they are own ones, and not sums
  /// @param shared  the word of each value; unused if every coordinate draws its own
  GLOBALQ_FUNCTION void encode(bool own, floats const& z, words const& shared, drawn const& d,
                               codes& out) const {
    if constexpr (SharesWords<typename Operands::rounding_type>)
      if (own) {
        std::uint64_t const tile = (o.first + first_) / tile_values;
        random::shared_words const common(
            o.stream(static_cast<int>(o.rounding.cohort()), random::purpose::share), tile);
        return encode_by(o.rounding.in_tile(common.data()), z, shared, d, out);
      }
    encode_by(o.rounding, z, shared, d, out);
  }
  template <class Rounding>
  GLOBALQ_FUNCTION void encode_by(Rounding const& rounding, floats const& z, words const& shared,
                                  drawn const& d, codes& out) const {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) out.row[r].clear();
    if constexpr (by_table<typename Operands::levels_type, Rounding>) {
      encode_by_table(
          o.levels, rounding, z,
          [&](int r, int i) { return Rounding::word_per_coordinate ? word_of(d, i / 4, r) : shared[r][i]; },
          out.row);
    } else {
      encode_each(rounding, z, shared, d, out);
    }
  }
  template <class Rounding>
  GLOBALQ_FUNCTION void encode_each(Rounding const& rounding, floats const& z, words const& shared,
                                    drawn const& d, codes& out) const {
    std::uint32_t const top = bits_of(o.extent);
    GLOBALQ_UNROLL
    for (int l = 0; l < Lanes; ++l) {
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        std::uint32_t const common = Rounding::word_per_coordinate ? word_of(d, l, r) : 0U;
        GLOBALQ_UNROLL
        for (int k = 0; k < 4; ++k) {
          int const i = 4 * l + k;
          std::uint32_t const b = bits_of(z[r][i]), m = b & float_magnitude;
          bool const negative = static_cast<std::int32_t>(b) < 0;
          neighbors const c = o.levels.locate(float_of(m < top ? m : top));
          std::uint32_t const word =
              Rounding::word_per_coordinate ? rotate_left(common, 8 * k) : shared[r][i];
          std::int32_t const code = rounding.up(c.threshold, word, negative ? ~0U : 0U) ? c.upper : c.lower;
          out.row[r].set(i, negative ? -code : code);
        }
      }
    }
  }

  /// Encodes this worker's own values.
  GLOBALQ_FUNCTION void encode_own(drawn const& d, codes& out) const {
    struct input {
      int exponent;
      float gain;
      std::uint32_t word;
    };
    floats z;
    words shared{};
    load(
        o.x,
        [&](std::uint64_t b, int) {
          auto const s = o.scale_of(b);
          return input{s.exponent, s.gain, o.shared_word(b, o.rank, false)};
        },
        [&](input const& in, int r, int i) { shared[r][i] = in.word; }, z);
    encode(true, z, shared, d, out);
  }

  /// The exponents of the bucket_scales of sums, if scales travel.
  struct references {
    int row[R] = {};
  };
  GLOBALQ_FUNCTION references find_references() const {
    references m;
    if (R > 1 && o.local)
      for_each_row(
          false, [&](std::uint64_t b, int) { return o.reference(b, source_); }, m.row);
    return m;
  }
  /// The exponent for a bucket that row r lies in.
  GLOBALQ_FUNCTION int reference_of(references const& m, std::uint64_t b, int r) const {
    if (!o.local) return 0;
    if constexpr (R == 1)
      return o.reference(b, source_);
    else
      return r < 2 ? (r == 0 ? m.row[0] : m.row[1]) : (r == 2 ? m.row[2] : m.row[3]);
  }

  /// The decoding of a frame's levels: (level + shift) * factor.
  struct affine {
    float shift, factor;
  };

  /// Computes the sum of own values (unencoded) and decoded sources, on the scale of segment_operands::sum_scale().
  /// @tparam Own  false: there are no own values
  template <bool Own>
  GLOBALQ_FUNCTION void accumulate(bool multiply_terms, references const& m, floats& sum) const {
    codes first{};
    if (o.sources.count > 0) fetch(o.sources[source_].codes, first);
    if (Own && o.own) {
      load(
          o.x, [&](std::uint64_t b, int row) { return o.sum_scale(b, reference_of(m, b, row)); },
          [](auto const&, int, int) {}, sum);
    } else {
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        GLOBALQ_UNROLL
        for (int i = 0; i < N; ++i) sum[r][i] = -0.0F;  // the neutral element: 0 + -0 is 0, and -0 + -0 is -0
      }
    }
    bool const same = !o.local && !o.rounding.shifts();
    add_frames(
        first, 0, o.sources.count,
        [&](int, source_view const& s, auto const& use) {
          for_each_value(
              same,
              [&](std::uint64_t b, int row) {
                return affine{o.shift_of(s, b), o.factor_of(s, b, multiply_terms, reference_of(m, b, row))};
              },
              use);
        },
        sum);
  }

  /// Decodes and adds frames [from, to); the codes of the first were already fetched into @p next.
  /// @param each  each(number, frame, use) calls use(affine, row, position) for every value
  template <class Each>
  GLOBALQ_FUNCTION void add_frames(codes next, int from, int to, Each const& each, floats& sum) const {
    GLOBALQ_NO_UNROLL
    for (int k = from; k < to; ++k) {
      source_view const s = o.sources[source_ + k];
      codes c = next;
      if (k + 1 < to) fetch(o.sources[source_ + k + 1].codes, next);
      unpack(c, o.limit_of(s));
      each(k, s, [&](affine const& a, int r, int i) {
        sum[r][i] += value_of(o.levels, c.row[r].get(i), a.shift, a.factor);
      });
    }
  }

  /// Writes values to an array that begins with the segment.
  GLOBALQ_FUNCTION void store_floats(floats const& v, float* out) const {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r) {
      GLOBALQ_UNROLL
      for (int i = 0; i < N; ++i)
        if (i < count(r)) out[first_ + row_start(r) + static_cast<std::uint64_t>(i)] = v[r][i];
    }
  }

  /// Loads and stores the bytes of a vector's values.
  template <int Size, int W>
  GLOBALQ_FUNCTION void load_elements(void const* data, std::uint32_t (&raw)[R][W]) const {
    std::byte const* const p = static_cast<std::byte const*>(data) + (o.first + first_) * Size;
    load_rows<N, Size>(
        p, whole_, [&](int r) { return count(r); }, raw);
  }
  template <int Size, int W>
  GLOBALQ_FUNCTION void store_elements(void* data, std::uint32_t const (&raw)[R][W]) const {
    std::byte* const p = static_cast<std::byte*>(data) + (o.first + first_) * Size;
    store_rows<N, Size>(
        p, whole_, [&](int r) { return count(r); }, raw);
  }

  /// Calls use(scale(bucket, row), row, position) for every value.
  /// @param same  whether all buckets have the same scale
  template <class Scale, class Use>
  GLOBALQ_FUNCTION void for_each_value(bool same, Scale const& scale, Use const& use) const {
    if constexpr (R == 1) {
      for_each_run_of_row(same, scale, use);
    } else {
      using parameters = decltype(scale(std::uint64_t{}, 0));
      parameters p[R] = {};
      for_each_row(same, scale, p);
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r) {
        GLOBALQ_UNROLL
        for (int i = 0; i < N; ++i) use(p[r], r, i);
      }
    }
  }

  /// Computes scale(bucket, row) of each row, if none spans two buckets; row is the first in the bucket.
  template <class Scale, class Parameters>
  GLOBALQ_FUNCTION void for_each_row(bool same, Scale const& scale, Parameters (&p)[R]) const {
    bool const one = same || o.bucket == 0;
    GLOBALQ_NO_UNROLL
    for (int row = 0; row < R;) {  // a loop, so that scale(), which may be long, is compiled once
      std::uint64_t const index = index_of(row), b = one ? 0 : o.bucket.quotient(index);
      Parameters const now = scale(b, row);
      GLOBALQ_UNROLL
      for (int r = 0; r < R; ++r)
        if (r >= row) p[r] = now;
      std::uint64_t const left = (b + 1) * o.bucket - index;
      row = one || left > tile_values ? R : row + (static_cast<int>(left) + 63) / 64;
      if (row < R && count(row) == 0) return;
    }
  }

  /// The buckets of rows that span one each, relative to @p first, and at most @p last (for rows beyond the end).
  GLOBALQ_FUNCTION void find_buckets(std::uint64_t first, int last, int (&of)[R]) const {
    GLOBALQ_UNROLL
    for (int r = 0; r < R; ++r)
      of[r] = smaller(static_cast<int>(o.bucket.quotient(index_of(r)) - first), last);
  }

  /// The index of the first frame.
  GLOBALQ_FUNCTION int source() const { return source_; }

 private:
  int source_;

  /// The word shared by four values, before it is rotated for each.
  GLOBALQ_FUNCTION std::uint32_t word_of(drawn const& d, int l, int r) const {
    if constexpr (R > 1) return d.group[l].word[r];
    std::uint32_t const *const w = d.group[l].word, low = row_ == 0 ? w[0] : w[1],
                               high = row_ == 2 ? w[2] : w[3];
    return row_ < 2 ? low : high;
  }

  /// The index in the vector of the first value of a row.
  GLOBALQ_FUNCTION std::uint64_t index_of(int row) const { return o.first + first_ + row_start(row); }

  /// for_each_value() for a row that may span several buckets.
  template <class Scale, class Use>
  GLOBALQ_FUNCTION void for_each_run_of_row(bool same, Scale const& scale, Use const& use) const {
    bool const one = same || o.bucket == 0;
    int const n = count(0);
    GLOBALQ_NO_UNROLL
    for (int at = 0; at < n;) {
      std::uint64_t const index = index_of(0) + static_cast<std::uint64_t>(at),
                          b = one ? 0 : o.bucket.quotient(index), left = (b + 1) * o.bucket - index;
      auto const now = scale(b, 0);
      int const end = one || left >= static_cast<std::uint64_t>(n - at) ? n : at + static_cast<int>(left);
      GLOBALQ_UNROLL
      for (int i = 0; i < N; ++i)
        if (i >= at && i < end) use(now, 0, i);
      at = end;
    }
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
