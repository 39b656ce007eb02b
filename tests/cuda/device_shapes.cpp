// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The loop bodies of a device, run there, give the bytes and the reports of those of a host: the suite of
/// tests/support/device_shape.hpp for the compositions of kernels.cpp.

#include "kernels.hpp"

#include "../support/device_shape.hpp"
#include "../support/float_shape.hpp"

#include <globalq/kernel/reduction.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <new>

namespace gq = globalq;

namespace {

using compiled_kernels::executor, compiled_kernels::level_table, compiled_kernels::shared_draw,
    compiled_kernels::space, compiled_kernels::stochastic;

/// Memory that the host and kernels reach.
template <class T>
struct pinned_allocator {
  using value_type = T;
  pinned_allocator() = default;
  template <class U>
  pinned_allocator(pinned_allocator<U> const&) {}
  T* allocate(std::size_t n) {
    return static_cast<T*>(Kokkos::kokkos_malloc<gq::kernel::pinned_space<space>>("pinned", n * sizeof(T)));
  }
  void deallocate(T* p, std::size_t) { Kokkos::kokkos_free<gq::kernel::pinned_space<space>>(p); }
  bool operator==(pinned_allocator const&) const { return true; }
};

struct on_device {
#if defined(GLOBALQ_TEST_IN_FULL)
  static constexpr bool at_all_lengths = true;
#else
  static constexpr bool at_all_lengths = false;
#endif
  template <class T>
  using allocator = pinned_allocator<T>;

  executor on{space()};

  template <class Operands, class Body>
  void operator()(Operands const& o, std::byte* frame, std::size_t codes_at, Body const& body) const {
    compiled_kernels::enqueue(on, o, frame, codes_at, body);
    on.fence();
  }
  template <class Sent>
  void operator()(std::uint64_t count, globalq::kernel::device::add_floats<Sent> const& body) const {
    compiled_kernels::enqueue(on, count, body);
    on.fence();
  }
};

using support::device_shape::compare_on;

TEST(DeviceShape, int8) {
  compare_on(on_device{}, gq::levels::uniform<>{5}, stochastic{}, gq::wire::int8{}, false, "uniform, int8");
}
TEST(DeviceShape, int16_and_one_shift) {
  compare_on(on_device{}, gq::levels::uniform<>{5}, shared_draw{true, false}, gq::wire::int16{}, false,
             "uniform, shift, int16");
}
TEST(DeviceShape, exponential) {
  compare_on(on_device{}, gq::levels::exponential<>{3}.with_headroom(2), stochastic{}, gq::wire::int8{},
             false, "exponential, int8");
}
TEST(DeviceShape, statistics) {
  on_device const device;
  gq::norm::statistics_memory memory(device.on.memory());
  auto const compare = [&](gq::dtype type, std::uint64_t off, std::uint64_t count, std::uint64_t bucket,
                           std::uint32_t q) {
    std::size_t const size = gq::size_of(type);
    std::vector<std::byte, pinned_allocator<std::byte>> values(size * (off + count));
    for (std::uint64_t i = 0; i < off + count; ++i)
      support::device_shape::set_value(type, values.data(), i, support::device_shape::value_at(i));
    gq::const_vector const x{values.data() + size * off, type};
    std::vector<gq::norm::statistic> expected(bucket == 0 ? 1 : gq::divide_up(count, bucket)), parts;
    std::vector<gq::norm::statistic, pinned_allocator<gq::norm::statistic>> found(expected.size());
    std::vector<std::uint64_t, pinned_allocator<std::uint64_t>> top(1);
    gq::norm::bucket_statistics(gq::kernel::host_executor(Kokkos::Serial()), count, bucket, q,
                                gq::norm::input_block{x, q}, std::span(expected), parts);
    compiled_kernels::measure(device.on, x, count, bucket, q, memory, found.data(), top.data());
    device.on.fence();
    std::uint64_t most = 0;
    for (std::size_t b = 0; b < expected.size(); ++b) {
      EXPECT_EQ(found[b].max_bits, expected[b].max_bits) << gq::name_of(type) << ", bucket " << b;
      EXPECT_EQ(gq::bits_of(found[b].sum), gq::bits_of(expected[b].sum))
          << gq::name_of(type) << ", bucket " << b;
      most = std::max(most, expected[b].max_bits);
    }
    EXPECT_EQ(top[0], most) << gq::name_of(type);
  };
  for (gq::dtype type : {gq::dtype::float32, gq::dtype::float64, gq::dtype::float16, gq::dtype::bfloat16})
    for (std::uint64_t off : {0U, 1U})
      for (std::uint64_t bucket : {0U, 5000U}) compare(type, off, 12011, bucket, gq::infinity);
  compare(gq::dtype::float32, 0, (std::uint64_t{1} << 22) + 5003, (std::uint64_t{1} << 21) + 77, 2);
}
TEST(DeviceShape, float32_frames) { support::device_shape::compare_floats_on(on_device{}); }
TEST(DeviceShape, packed4) {
  compare_on(on_device{}, gq::levels::uniform<>{5}, stochastic{}, gq::wire::packed<4>{}, false,
             "uniform, packed4");
}
TEST(DeviceShape, packed3_and_a_table) {
  compare_on(on_device{}, static_cast<level_table const&>(gq::levels::table{0, 0.1, 0.4, 1}), stochastic{},
             gq::wire::packed<3>{}, false, "table, packed3");
}
TEST(DeviceShape, int8_and_a_table) {
  compare_on(on_device{}, static_cast<level_table const&>(gq::levels::table{0, 0.1, 0.15, 0.4, 0.9, 1}),
             stochastic{}, gq::wire::int8{}, false, "table, int8");
}
TEST(DeviceShape, packed4_and_a_table_without_cells_or_zero) {
  compare_on(on_device{}, static_cast<level_table const&>(gq::levels::symmetric{0.1, 0.4, 0.4 + 0x1p-24, 1}),
             stochastic{}, gq::wire::packed<4>{}, true, "symmetric, packed4");
}
#if defined(GLOBALQ_TEST_IN_FULL)
TEST(DeviceShape, correlated) {
  using gq::rounding::correlated;
  compare_on(on_device{}, gq::levels::uniform<>{5}, correlated{}.for_worker(1, 3), gq::wire::int8{}, false,
             "uniform, correlated, int8");
  compare_on(on_device{}, static_cast<level_table const&>(gq::levels::table{0, 0.1, 0.4, 1}),
             correlated{}.for_worker(8, 20), gq::wire::packed<3>{}, false, "table, correlated, packed3");
}
#endif

}  // namespace
