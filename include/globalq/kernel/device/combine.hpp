// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the loop bodies of a device that write frames (adding codes, or adding values and encoding again) or
/// check them. Each reads every input once and writes its output once; intermediate results stay in registers.

#include "../../reduce/exponential.hpp"
#include "../../reduce/reduce.hpp"
#include "share.hpp"

namespace GLOBALQ_ABI::kernel::device {

/// Adds own codes and the codes of the sources by a reduce operator on codes. Without sources it only encodes.
template <class Operands, class Op>
struct add_codes {
  /// The exponential reduce adds four codes at a time only if they have one byte (core/quad.hpp); others need more
  /// registers.
  static constexpr bool one_by_one =
      std::is_same_v<Op, reduce::exponential> && row_bytes<typename Operands::wire_type, 4> != 4;
  static constexpr int device_lanes = device::value_lanes<typename Operands::wire_type>,
                       code_lanes = one_by_one && row_bytes<typename Operands::wire_type, 4> > 4
                                        ? device_lanes
                                        : device::code_lanes<typename Operands::wire_type>;
  /// Whether the operator is the library's, so that its results need no range check.
  static constexpr bool is_built_in =
      std::is_same_v<Op, reduce::sum> || std::is_same_v<Op, reduce::exponential>;

  static constexpr bool takes_pieces = true;

  Operands o;
  std::byte* out;

  bool has_values() const { return o.own; }
  bool fits_registers() const { return device::fits_registers(o); }
  static constexpr int blocks(int lanes, int rows) {
    return one_by_one ? 2 : device::blocks<Operands>(lanes, rows, lanes == device_lanes);
  }

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    share_of_piece<Lanes, Rows>(index, lane, out, 0);
  }
  /// @param to  where the code of the operands' first value would be written
  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share_of_piece(std::uint64_t index, int lane, std::byte* to, int) const {
    bool const own = device_lanes == code_lanes ? o.own : Lanes == device_lanes;
    device::share<Operands, Lanes, Rows>::for_each(
        o, index, lane, [&](auto const& part) { add_rows(part, index, lane, own, to); });
  }

 private:
  /// Processes one or all rows of a GPU thread.
  template <class Share>
  GLOBALQ_FUNCTION void add_rows(Share const& part, std::uint64_t index, int lane, bool own,
                                 std::byte* to) const {
    typename Share::codes sum{}, next{};
    int k = 0;
    if (own) {
      if (o.sources.count > 0) part.fetch(o.sources[0].codes, next);
      part.encode_own(Share::draw(o, index, lane, o.rank, random::purpose::encode), sum);
    } else {
      part.fetch(o.sources[0].codes, sum);
      if (o.sources.count > 1) part.fetch(o.sources[1].codes, next);
      part.unpack(sum, o.limit_of(o.sources[0]));
      k = 1;
    }
    GLOBALQ_NO_UNROLL
    for (; k < o.sources.count; ++k) {
      source_view const s = o.sources[k];
      part.unpack(next, o.limit_of(s));
      part.template add<Op>(sum, next, Share::draw(o, index, lane, s.worker, random::purpose::reduce));
      if (k + 1 < o.sources.count) part.fetch(o.sources[k + 1].codes, next);
    }
    if constexpr (!is_built_in) part.check(sum, o.max_code);
    part.write(sum, to);
  }
};

/// Adds own values and decoded sources, and encodes the sum.
template <class Operands>
struct add_values {
  static constexpr int device_lanes = device::value_lanes<typename Operands::wire_type>;
  static constexpr int blocks(int lanes, int rows) { return device::blocks<Operands>(lanes, rows, true); }
  bool fits_registers() const { return device::fits_registers(o); }

  Operands o;
  std::byte* out;
  std::byte* scales;  ///< local norms: the scales of the sum, as they travel

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    device::share<Operands, Lanes, Rows>::for_each(o, index, lane,
                                                   [&](auto const& part) { add_rows(part, index, lane); });
  }

 private:
  /// Processes one or all rows of a GPU thread.
  template <class Share>
  GLOBALQ_FUNCTION void add_rows(Share const& part, std::uint64_t index, int lane) const {
    typename Share::floats sum;
    auto const m = part.find_references();
    part.template accumulate<true>(true, m, sum);
    struct scale {
      float gain;
      std::uint32_t word;
    };
    typename Share::words shared{};
    part.for_each_value(
        !o.local && Operands::rounding_type::word_per_coordinate,
        [&](std::uint64_t b, int row) {
          return scale{o.gain_of_sum(b, scales, part.reference_of(m, b, row)),
                       o.shared_word(b, o.rank, true)};
        },
        [&](scale const& s, int r, int i) {
          sum[r][i] = multiply(sum[r][i], s.gain);
          shared[r][i] = s.word;
        });
    typename Share::codes codes;
    part.encode(false, sum, shared, Share::draw(o, index, lane, o.rank, random::purpose::requantize), codes);
    part.write(codes, out);
  }
};

/// Reads frames and reports codes out of range.
template <class Operands>
struct check_codes {
  static constexpr int device_lanes = device::code_lanes<typename Operands::wire_type>;

  Operands o;

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    device::share<Operands, Lanes, Rows>::for_each(o, index, lane, [&](auto const& part) {
      GLOBALQ_NO_UNROLL
      for (int k = 0; k < o.sources.count; ++k) {
        typename std::remove_cvref_t<decltype(part)>::codes
            codes{};  // zeros, or nvcc unpacks codes for the next round
        part.fetch(o.sources[k].codes, codes);
        part.unpack(codes, o.limit_of(o.sources[k]));
      }
    });
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
