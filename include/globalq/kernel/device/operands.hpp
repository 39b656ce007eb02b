// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: the argument of a device kernel: the operands of a call, and the policies that the kernel was
/// compiled for.

#include "../operands.hpp"

namespace GLOBALQ_ABI::kernel::device {

/// @tparam Levels,Rounding,Wire  policies; their parameters are run-time data
template <class Levels, class Rounding, class Wire>
struct operands : segment_operands<Rounding> {
  using code_type = typename Wire::code_type;
  using levels_type = Levels;
  using rounding_type = Rounding;
  using wire_type = Wire;

  Levels levels;
  Wire wire;

  operands(Levels const& scheme, Rounding const& decide, Wire const& format) : levels(scheme), wire(format) {
    this->rounding = decide;
    this->extent = scheme.extent();
    this->max_code = scheme.max_code();
  }

  /// Shifts are subtracted again only for evenly spaced levels.
  GLOBALQ_ANY_FUNCTION
  GLOBALQ_FUNCTION float shift_of(source_view const& s, std::uint64_t b) const {
    if constexpr (globalq::detail::adds_as_integers<Levels>())
      return segment_operands<Rounding>::shift_of(s, b);
    else
      return 0.0F;
  }
};

}  // namespace GLOBALQ_ABI::kernel::device
