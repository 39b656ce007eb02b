// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Limits of policies, and policies that do not go together.

#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/quantizer.hpp>

namespace gq = globalq;

// Beyond 2^24 a float32 has no fraction left.
[[maybe_unused]] gq::levels::uniform<1U << 24> const most_uniform;
#ifdef CASE_UNIFORM_HAS_A_LIMIT  // expect-error: globalq: levels::uniform has at most 2^24 levels
gq::levels::uniform<(1U << 24) + 1> const refused;
#endif

[[maybe_unused]] gq::levels::uniform const of_a_short{short{7}};
[[maybe_unused]] gq::levels::uniform const of_a_size{std::size_t{7}};
#ifdef CASE_UNIFORM_OF_A_FRACTION  // expect-error: globalq: levels::uniform takes the number of levels above zero
gq::levels::uniform const refused{2.5};
#endif

// 2^-126 is the smallest normal float32.
[[maybe_unused]] gq::levels::exponential<127> const most_exponential;
#ifdef CASE_EXPONENTIAL_HAS_A_LIMIT  // expect-error: globalq: levels::exponential has at most 127 levels
gq::levels::exponential<128> const refused;
#endif

[[maybe_unused]] gq::levels::exponential const of_a_size_as_well{std::size_t{7}};
[[maybe_unused]] gq::levels::exponential const of_another_base{7L, 1.5};
#ifdef CASE_EXPONENTIAL_OF_A_BASE_ALONE  // expect-error: globalq: levels::exponential takes the number of levels above zero
gq::levels::exponential const refused{1.5};
#endif
#ifdef CASE_EXPONENTIAL_OF_THE_BASE_FIRST  // expect-error: globalq: levels::exponential takes the number of levels above zero
gq::levels::exponential const refused{1.5F, 7};
#endif

// Longer codes are whole integers.
[[maybe_unused]] gq::wire::packed<8> const widest;
#ifdef CASE_PACKED_HAS_A_LIMIT  // expect-error: globalq: wire::packed holds 1 to 8 bits per code
gq::wire::packed<9> const refused;
#endif

#ifdef CASE_PACKED_OF_A_FRACTION  // expect-error: globalq: wire::packed holds 1 to 8 bits per code, an integer
gq::wire::packed const refused{4.0};
#endif

// Rounding up commutes with a maximum over the workers, not with a sum of powers.
[[maybe_unused]] gq::norm::power_of_two<gq::norm::l<2, gq::infinity>> const of_maximum;
#ifdef CASE_POWER_OF_TWO_OF_A_SUM  // expect-error: globalq: norm::power_of_two needs a local norm or a maximum over the workers
gq::norm::power_of_two<gq::norm::l2> const refused;
#endif

// A shared exponent belongs to the format of the values.
[[maybe_unused]] gq::quantizer const mx{gq::norm::shared_exponent<gq::levels::e2m1>{}, gq::levels::e2m1{},
                                        gq::rounding::stochastic{}, gq::wire::packed<4>{}};
#ifdef CASE_TWO_LEVEL_OF_ANOTHER_FORMAT  // expect-error: globalq: norm::shared_exponent and norm::two_level scale to the largest value
gq::quantizer const refused{gq::norm::two_level<gq::levels::e2m1>{}, gq::levels::e4m3{},
                            gq::rounding::stochastic{}, gq::wire::packed<8>{}};
#endif
#ifdef CASE_SHARED_EXPONENT_OF_ANOTHER_FORMAT  // expect-error: globalq: norm::shared_exponent and norm::two_level scale to the largest value
gq::quantizer const refused{gq::norm::shared_exponent<gq::levels::e2m1>{}, gq::levels::e4m3{},
                            gq::rounding::stochastic{}, gq::wire::packed<8>{}};
#endif

// Decoding adds a shift in units of the gap: the gaps must be equal.
[[maybe_unused]] gq::quantizer const unshifted{gq::norm::linf{}, gq::levels::exponential<>{},
                                               gq::rounding::random_shift<false>{}, gq::wire::int8{}};
#ifdef CASE_SHIFT_BACK_NEEDS_UNIFORM  // expect-error: globalq: shifting back needs evenly spaced levels
gq::quantizer const refused{gq::norm::linf{}, gq::levels::exponential<>{}, gq::rounding::random_shift<>{},
                            gq::wire::int8{}};
#endif

// Floats are float32 as they are, or 16 bits, rounded.
[[maybe_unused]] gq::floats<gq::bfloat16, gq::rounding::nearest> const halves{};
#ifdef CASE_FLOATS_OF_64_BITS  // expect-error: globalq: floats: this type cannot be sent
gq::floats<double> const refused{};
#endif
#ifdef CASE_FLOAT_WITH_A_ROUNDING  // expect-error: globalq: floats: float is sent as it is; leave out the rounding
gq::floats<float, gq::rounding::nearest> const refused{};
#endif

// A tail is what an operator does not quantize; uncompressed quantizes nothing.
[[maybe_unused]] gq::float32_tail const tail{gq::quantizer{
    gq::norm::linf{.bucket = 128}, gq::levels::uniform{7}, gq::rounding::stochastic{}, gq::wire::int8{}}};
#ifdef CASE_TAIL_OF_UNCOMPRESSED  // expect-error: globalq: all of an uncompressed vector is float32 already
gq::float32_tail const refused{gq::uncompressed{}};
#endif
