// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: bodies of frames of `coded<sparse>` in device memory, encoded and decoded by kernels on a stream.

#include "../wire/sparse.hpp"
#include "detail/compact_blocks.hpp"
#include "detail/expand_blocks.hpp"
#include "stream.hpp"

namespace GLOBALQ_ABI::wire {

namespace detail {

/// Computes the places of blocks from the index of a body, by a prefix sum of their sizes.
template <class Int>
struct place_blocks {
  using value_type = std::uint64_t;

  sparse_layout<Int> of;
  std::uint16_t const* index;
  std::uint64_t const* readable;  ///< if it points to 0, the index is not read; null: always read
  std::uint64_t* places;
  std::uint64_t* total;         ///< receives the bytes of the body plus `more`, or null
  std::uint64_t more;           ///< added to the total
  std::uint64_t const* expect;  ///< the expected bytes of the body, or null
  std::uint32_t* faults;

  GLOBALQ_FUNCTION void operator()(std::uint64_t b, std::uint64_t& at, bool final) const {
    bool const reads = readable == nullptr || *readable != 0;
    std::uint64_t const size = reads ? index[b] : 0;
    std::uint64_t const dense = of.dense.bytes(static_cast<std::uint64_t>(of.values_of(b)));
    if (final) places[b] = of.head_bytes() + at;
    at += size == 0 || size > dense ? dense : size;
    if (!final || b + 1 != of.blocks()) return;
    std::uint64_t const body = of.head_bytes() + at;
    if (total != nullptr) *total = body + more;
    if (expect != nullptr && *expect != body)
      Kokkos::atomic_or(faults, static_cast<std::uint32_t>(kernel::bad_frame));
  }
};

}  // namespace detail

/// @brief wire::coded<sparse<Int>> on a stream: gives the same bytes for the same codes as on a host, and refuses the
/// same.
///
/// Encoding runs three kernels: the sizes of the blocks, their prefix sum, the blocks. Decoding runs two. Calls enqueue
/// and do not wait; the memory between the kernels is kept for the next call.
/// @tparam Space  a Kokkos execution space
/// @determinism   the bytes depend on the codes only
template <class Int, class Space>
class stream_sparse {
  using layout_type = detail::sparse_layout<Int>;

 public:
  /// @param max_code   the largest magnitude of a code
  /// @param zero_free  whether the levels have no zero, so that code 0 does not occur
  /// @throws configuration_error if max_code is 0 or larger than the code supports
  explicit stream_sparse(std::uint32_t max_code, bool zero_free = false)
      : max_code_(coded<sparse<Int>>({}, max_code, zero_free).max_code()), zero_free_(zero_free) {}

  /// The most bytes of a body.
  std::size_t capacity(std::uint64_t count) const { return count == 0 ? 0 : layout_of(count).capacity(); }

  /// The fewest bytes of a valid body: those of its index.
  std::size_t least(std::uint64_t count) const { return layout_of(count).head_bytes(); }

  /// @brief Enqueues the encoding of codes into a body.
  /// @param on     launches the kernels: kernel::stream_executor<Space>
  /// @param codes  in the memory of the space, aligned to 16 bytes; with a magnitude above max_code, decode() refuses
  ///               the body
  /// @param body   capacity(count) bytes, aligned to 2; bytes after the body are left unchanged
  /// @param total  receives the bytes of the body plus @p more
  /// @pre          count > 0
  /// @complexity   reads the codes twice
  template <class Executor>
  void encode(Executor const& on, Int const* codes, std::uint64_t count, std::byte* body,
              std::uint64_t* total, std::uint64_t more) {
    layout_type const of = layout_of(count);
    auto* const index = reinterpret_cast<std::uint16_t*>(body);
    std::uint64_t* const places = places_for(on, of);
    detail::measure_blocks<Int> const measure{of, codes, index};
    detail::place_blocks<Int> const place{of, index, nullptr, places, total, more, nullptr, nullptr};
    detail::compact_blocks<Int> const compact{of, codes, index, places, body};
    on.teams(of.blocks(), measure);
    on.scan(of.blocks(), place);
    on.teams(of.blocks(), compact);
  }

  /// @brief Enqueues the decoding of a body, which may contain any bytes.
  /// @param body    aligned to 2
  /// @param bytes   size of the body, in the memory of the space; at least least(count), or 0 for a body known to be
  ///                invalid
  /// @param codes   count codes, aligned to 16 bytes; the codes of an invalid block are 0
  /// @param faults  kernel::bad_frame is or-ed into it if encode() could not have written the bytes
  /// @pre           count > 0
  template <class Executor>
  void decode(Executor const& on, std::byte const* body, std::uint64_t const* bytes, std::uint64_t count,
              Int* codes, std::uint32_t* faults) {
    layout_type const of = layout_of(count);
    std::uint64_t* const places = places_for(on, of);
    detail::place_blocks<Int> const place{
        of, reinterpret_cast<std::uint16_t const*>(body), bytes, places, nullptr, 0, bytes, faults};
    detail::expand_blocks<Int> const expand{
        of, body, bytes, places, codes, faults, static_cast<std::uint32_t>(kernel::bad_frame)};
    on.scan(of.blocks(), place);
    on.teams(of.blocks(), expand);
  }

 private:
  layout_type layout_of(std::uint64_t count) const {
    return {count, max_code_, zero_free_, detail::make_fixed_width<Int>(max_code_, zero_free_)};
  }

  template <class Executor>
  std::uint64_t* places_for(Executor const& on, layout_type const& of) {
    if (!places_) places_.emplace(on.memory());
    if (of.blocks() * sizeof(std::uint64_t) > places_->capacity() && on.capturing())
      kernel::refuse_unprepared_capture(on.operation());
    return places_->template get_values<std::uint64_t>(of.blocks());
  }

  std::uint32_t max_code_;
  bool zero_free_;
  std::optional<byte_buffer> places_;
};

}  // namespace GLOBALQ_ABI::wire
