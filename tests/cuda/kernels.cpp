// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Compiles every kernel body of a device for the CUDA space.
///
/// No GPU is needed; scripts/sass-report says what became of them, and device_shapes.cpp runs them. Without CUDA in Kokkos it
/// compiles for Kokkos::Serial.

#include "kernels.hpp"

#include <globalq/kernel/device/combine.hpp>
#include <globalq/kernel/device/mean.hpp>
#include <globalq/kernel/stream_measured_rows.hpp>
#include <globalq/kernel/stream_reduction.hpp>
#include <globalq/reduce/exponential.hpp>
#include <globalq/reduce/reduce.hpp>

namespace compiled_kernels {

/// As calls on a stream launch it.
template <class Operands, class Body>
void enqueue(executor const& on, Operands const& o, std::byte* frame, std::size_t codes_at,
             Body const& body) {
  auto const one = gq::kernel::piece_list::of_one(o.count, frame);
  on.values(o.count, gq::kernel::framed<Body>{body, {0, o.terms}, codes_at, one});
}

/// All bodies of a composition with this operator on codes. nvcc gives what it instantiates by itself no name for others.
#define GLOBALQ_COMPILE_BODIES(OP, ...)                                               \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::add_codes<__VA_ARGS__, OP> const&);       \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::add_values<__VA_ARGS__> const&);          \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::check_codes<__VA_ARGS__> const&);         \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::write_mean<__VA_ARGS__> const&);          \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::write_mean<__VA_ARGS__, true> const&)
/// As well, where four codes are whole bytes.
#define GLOBALQ_COMPILE_ALL_BODIES(OP, ...)                                           \
  GLOBALQ_COMPILE_BODIES(OP, __VA_ARGS__);                                            \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::write_mean_of_one<__VA_ARGS__> const&);   \
  template void enqueue(executor const&, __VA_ARGS__ const&, std::byte*, std::size_t, \
                        gq::kernel::device::write_mean_of_one<__VA_ARGS__, true> const&)

GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::sum, operands<gq::levels::uniform<>, stochastic, gq::wire::int8>);
GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::sum, operands<gq::levels::uniform<>, shared_draw, gq::wire::int16>);
GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::exponential,
                           operands<gq::levels::exponential<>, stochastic, gq::wire::int8>);
GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::sum, operands<gq::levels::uniform<>, stochastic, gq::wire::packed<4>>);
GLOBALQ_COMPILE_BODIES(gq::reduce::sum, operands<level_table, stochastic, gq::wire::packed<3>>);
GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::sum, operands<level_table, stochastic, gq::wire::int8>);
GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::sum, operands<level_table, stochastic, gq::wire::packed<4>>);
#if defined(GLOBALQ_TEST_IN_FULL)
GLOBALQ_COMPILE_ALL_BODIES(gq::reduce::sum,
                           operands<gq::levels::uniform<>, gq::rounding::correlated, gq::wire::int8>);
GLOBALQ_COMPILE_BODIES(gq::reduce::sum, operands<level_table, gq::rounding::correlated, gq::wire::packed<3>>);
#endif

/// Norms of one's own.
template <class Body>
void enqueue_teams(executor const& on, std::uint64_t items, Body const& body) {
  on.teams(items, body);
}
using measured = operands<gq::levels::uniform<>, stochastic, gq::wire::int8>;
using packed = operands<gq::levels::uniform<>, stochastic, gq::wire::packed<4>>;
template void enqueue_teams(executor const&, std::uint64_t,
                            gq::kernel::measured_codes<measured, false> const&);
template void enqueue_teams(executor const&, std::uint64_t,
                            gq::kernel::measured_codes<measured, true> const&);
template <class Operands, std::uint32_t Order, bool Long>
using rows = gq::kernel::measured_rows<Operands, Order, Long>;
template void enqueue_teams(executor const&, std::uint64_t, rows<measured, gq::infinity, false> const&);
template void enqueue_teams(executor const&, std::uint64_t, rows<measured, gq::infinity, true> const&);
template void enqueue_teams(executor const&, std::uint64_t, rows<measured, 2, false> const&);
template void enqueue_teams(executor const&, std::uint64_t, rows<measured, 2, true> const&);
template void enqueue_teams(executor const&, std::uint64_t, rows<packed, gq::infinity, false> const&);

template <class Sent>
void enqueue(executor const& on, std::uint64_t count, gq::kernel::device::add_floats<Sent> const& body) {
  auto const one = gq::kernel::piece_list::of_one(count, nullptr);
  on.values(count, gq::kernel::framed<gq::kernel::device::add_floats<Sent>>{body, {0, 1}, 0, one});
}
template void enqueue(executor const&, std::uint64_t, gq::kernel::device::add_floats<float> const&);
template void enqueue(executor const&, std::uint64_t, gq::kernel::device::add_floats<gq::bfloat16> const&);
template void enqueue(executor const&, std::uint64_t, gq::kernel::device::add_floats<gq::float16> const&);

void measure(executor const& on, gq::const_vector x, std::uint64_t count, std::uint64_t bucket,
             std::uint32_t q, gq::norm::statistics_memory& memory, gq::norm::statistic* result,
             std::uint64_t* top) {
  gq::norm::enqueue_statistics(on, x, count, bucket, q, memory, result, top);
}

}  // namespace compiled_kernels
