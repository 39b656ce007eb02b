// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Compiles every kernel body of a device for the CUDA space.
///
/// Only compiled: no GPU is needed; scripts/sass-report says what became of them. Without CUDA in Kokkos it compiles for
/// Kokkos::Serial.

#include "../support/space.hpp"

#include <globalq/kernel/device/combine.hpp>
#include <globalq/kernel/device/mean.hpp>
#include <globalq/kernel/stream.hpp>
#include <globalq/kernel/stream_reduction.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/levels/uniform.hpp>
#include <globalq/reduce/exponential.hpp>
#include <globalq/reduce/reduce.hpp>
#include <globalq/rounding/one_word.hpp>
#include <globalq/rounding/stochastic.hpp>
#include <globalq/wire/integer.hpp>
#include <globalq/wire/packed.hpp>

namespace gq = globalq;

using support::space;

using executor = gq::kernel::stream_executor<space>;

/// As calls on a stream launch it.
template <class Operands, class Body>
void enqueue(executor const& on, Operands const& o, Body const& body) {
  on.values(o.count, gq::kernel::framed<Body>{body, 0, o.count, nullptr, o.terms, o.faults});
}

template <class Op, class Operands>
void launch(executor const& on, Operands const& o, std::byte* out, gq::mutable_vector y) {
  enqueue(on, o, gq::kernel::device::add_codes<Operands, Op>{o, out});
  enqueue(on, o, gq::kernel::device::add_values<Operands>{o, out, out});
  enqueue(on, o, gq::kernel::device::check_codes<Operands>{o});
  enqueue(on, o, gq::kernel::device::write_mean<Operands>{o, y});
  enqueue(on, o, gq::kernel::device::write_mean<Operands, true>{o, y});
}

template <class L, class R, class W>
using operands = gq::kernel::device::operands<L, R, W>;

using gq::levels::detail::level_table;
using gq::rounding::stochastic;
using gq::rounding::detail::one_word;

template void launch<gq::reduce::sum>(executor const&,
                                      operands<gq::levels::uniform<>, stochastic, gq::wire::int8> const&,
                                      std::byte*, gq::mutable_vector);
template void launch<gq::reduce::sum>(executor const&,
                                      operands<gq::levels::uniform<>, one_word, gq::wire::int16> const&,
                                      std::byte*, gq::mutable_vector);
template void launch<gq::reduce::exponential>(
    executor const&, operands<gq::levels::exponential<>, stochastic, gq::wire::int8> const&, std::byte*,
    gq::mutable_vector);
template void launch<gq::reduce::sum>(executor const&,
                                      operands<gq::levels::uniform<>, stochastic, gq::wire::packed<4>> const&,
                                      std::byte*, gq::mutable_vector);
template void launch<gq::reduce::sum>(executor const&,
                                      operands<level_table, stochastic, gq::wire::packed<3>> const&,
                                      std::byte*, gq::mutable_vector);

/// The statistics of all buckets.
void measure(executor const& on, gq::const_vector x, std::uint64_t count, std::uint64_t bucket,
             std::uint32_t q, gq::norm::statistic* parts, gq::norm::statistic* result, std::uint64_t* top) {
  gq::norm::enqueue_statistics(on, x, count, bucket, q, parts, result, top);
}
