// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Compiles the kernels of sparse bodies for the CUDA space; see kernels.cpp.

#include "../support/space.hpp"

#include <globalq/kernel/stream_sparse.hpp>

namespace gq = globalq;

using support::space;

template <class Int>
void there_and_back(gq::kernel::stream_executor<space> const& on, gq::wire::stream_sparse<Int, space>& coder,
                    Int* codes, std::uint64_t count, std::byte* body, std::uint64_t* bytes,
                    std::uint32_t* faults) {
  coder.encode(on, codes, count, body, bytes, 0);
  coder.decode(on, body, bytes, count, codes, faults);
}

template void there_and_back(gq::kernel::stream_executor<space> const&,
                             gq::wire::stream_sparse<std::int8_t, space>&, std::int8_t*, std::uint64_t,
                             std::byte*, std::uint64_t*, std::uint32_t*);
template void there_and_back(gq::kernel::stream_executor<space> const&,
                             gq::wire::stream_sparse<std::int16_t, space>&, std::int16_t*, std::uint64_t,
                             std::byte*, std::uint64_t*, std::uint32_t*);
