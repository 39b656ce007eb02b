// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Compiles every kernel body for the CUDA space: host and device run the same code.
///
/// Only compiled: no GPU is needed. Without CUDA in Kokkos it compiles for the default host space.

#include <globalq/kernel/combine.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/levels/uniform.hpp>
#include <globalq/norm/reduction.hpp>
#include <globalq/reduce/exponential.hpp>
#include <globalq/reduce/reduce.hpp>
#include <globalq/rounding/one_word.hpp>
#include <globalq/rounding/stochastic.hpp>
#include <globalq/wire/integer.hpp>
#include <globalq/wire/packed.hpp>

namespace gq = globalq;

#if defined(KOKKOS_ENABLE_CUDA)
using space = Kokkos::Cuda;
#else
using space = Kokkos::DefaultHostExecutionSpace;
#endif

template <class Op, class Operands>
void launch(Operands const& o, std::byte* out, gq::mutable_vector y, std::uint64_t count) {
  gq::kernel::device_executor<space> const on{space()};
  on.values(count, gq::kernel::add_codes<Operands, Op>{o, out});
  on.values(count, gq::kernel::add_values<Operands>{o, out, out});
  on.values(count, gq::kernel::check_codes<Operands>{o});
  on.values(count, gq::kernel::write_mean<Operands>{o, y});
}

template <class L, class R, class W>
using operands = gq::kernel::operands<L, R, W>;

using gq::levels::detail::level_table;
using gq::rounding::stochastic;
using gq::rounding::detail::one_word;

template void launch<gq::reduce::sum>(operands<gq::levels::uniform<>, stochastic, gq::wire::int8> const&,
                                      std::byte*, gq::mutable_vector, std::uint64_t);
template void launch<gq::reduce::sum>(operands<gq::levels::uniform<7>, one_word, gq::wire::int16> const&,
                                      std::byte*, gq::mutable_vector, std::uint64_t);
template void launch<gq::reduce::exponential>(
    operands<gq::levels::exponential<>, stochastic, gq::wire::int8> const&, std::byte*, gq::mutable_vector,
    std::uint64_t);
template void launch<gq::reduce::sum>(operands<gq::levels::uniform<>, stochastic, gq::wire::packed<4>> const&,
                                      std::byte*, gq::mutable_vector, std::uint64_t);
template void launch<gq::reduce::sum>(operands<level_table, stochastic, gq::wire::packed<3>> const&,
                                      std::byte*, gq::mutable_vector, std::uint64_t);

/// The statistics of all buckets.
void measure(gq::const_vector x, std::uint64_t count, gq::norm::statistic* result) {
  gq::kernel::device_executor<space> const on{space()};
  gq::norm::input_block const block{x, 2};
  on.items(count / 128,
           gq::norm::whole_buckets<gq::norm::input_block>{block, result, count, 128, count / 128, 1});
  on.items(count / 4096,
           gq::norm::bucket_blocks<gq::norm::input_block>{block, result, count, count, count / 4096});
}
