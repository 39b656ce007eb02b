// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Policies of a program in sources for globalq::compiled, which has no loops for them without globalq/policies.hpp.

#include <globalq/globalq.hpp>

namespace gq = globalq;

struct own_rounding : gq::rounding::stochastic {
  static constexpr char const* name = "own_rounding";
};
struct own_code : gq::wire::elias<std::int8_t> {
  static constexpr char const* name() { return "own_code"; }
};
struct own_sum : gq::reduce::sum {
  static constexpr char const* name = "own_sum";
  static constexpr bool unbiased = true;
  template <class Levels>
  static constexpr bool adds = true;
  static constexpr std::uint64_t largest_code(std::uint32_t max_code, std::uint32_t terms, std::uint32_t) {
    return std::uint64_t{max_code} * terms;
  }
};
template <class Rounding, class Wire, class Reduce>
void use(gq::transport::threads::endpoint& workers, Rounding rounding, Wire wire, Reduce reduce) {
  gq::allreduce_mean const mean{
      workers, gq::quantizer{gq::norm::linf{}, gq::levels::uniform<>{7}, rounding, wire, reduce},
      gq::schedule::allgather{}};
}
void built_in(gq::transport::threads::endpoint& workers) {
  use(workers, gq::rounding::stochastic{}, gq::wire::elias<std::int8_t>{}, gq::reduce::requantize{});
}

#ifdef CASE_ROUNDING  // expect-error: globalq: the compiled library has no loops for levels, a rounding or a wire format of your own
void rounding(gq::transport::threads::endpoint& workers) {
  use(workers, own_rounding{}, gq::wire::int8{}, gq::reduce::requantize{});
}
#endif

#ifdef CASE_CODE  // expect-error: globalq: the compiled library has no loops for a block code of your own
void code(gq::transport::threads::endpoint& workers) {
  use(workers, gq::rounding::stochastic{}, own_code{}, gq::reduce::requantize{});
}
#endif

#ifdef CASE_REDUCE  // expect-error: globalq: the compiled library has no loops for a reduce operator of your own
void reduce(gq::transport::threads::endpoint& workers) {
  use(workers, gq::rounding::stochastic{}, gq::wire::int8{}, own_sum{});
}
#endif
