// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief The loop bodies give the same bytes in the shape of a GPU thread (32 values) as in that of a host thread (256).

#include "tests/support/cases.hpp"

#include <globalq/kernel/combine.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/levels/uniform.hpp>
#include <globalq/reduce/exponential.hpp>
#include <globalq/reduce/reduce.hpp>
#include <globalq/rounding/one_word.hpp>
#include <globalq/rounding/stochastic.hpp>
#include <globalq/wire/integer.hpp>
#include <globalq/wire/packed.hpp>

#include <gtest/gtest.h>

namespace gq = globalq;

namespace {

template <class Levels, class Rounding, class Wire>
void compare(Levels const& levels, Rounding const& rounding, Wire const& wire, bool zero_free, bool binary,
             char const* name) {
  using operands = gq::kernel::operands<Levels, Rounding, Wire>;
  gq::kernel::host_executor const host{Kokkos::Serial()};
  gq::kernel::device_executor<Kokkos::Serial> const device{Kokkos::Serial()};
  for (gq::dtype type : {gq::dtype::float32, gq::dtype::float64, gq::dtype::float16, gq::dtype::bfloat16})
    for (std::uint64_t bucket : {0U, 100U})
      for (std::uint64_t count :
           {1U, 31U, 32U, 63U, 64U, 65U, 255U, 256U, 257U, 300U, 1023U, 1024U, 1025U, 2500U})
        for (std::uint64_t first : {std::uint64_t{0}, std::uint64_t{6400}}) {
          std::uint64_t const d = first + count;
          std::vector<std::byte> values(d * 8);
          for (std::uint64_t i = 0; i < d; ++i) {
            float const v = support::value_at<float>(support::input::normal, 1, 0, 1, i, d);
            switch (type) {
              case gq::dtype::float64:
                reinterpret_cast<double*>(values.data())[i] = static_cast<double>(v);
                break;
              case gq::dtype::float16:
                reinterpret_cast<gq::float16*>(values.data())[i] = gq::float16(v);
                break;
              case gq::dtype::bfloat16:
                reinterpret_cast<gq::bfloat16*>(values.data())[i] = gq::bfloat16(v);
                break;
              default:
                reinterpret_cast<float*>(values.data())[i] = v;
            }
          }
          std::uint64_t const buckets = bucket == 0 ? 1 : gq::divide_up(d, bucket);
          std::vector<double> units(buckets);
          for (std::uint64_t b = 0; b < buckets; ++b) units[b] = 2.0 + static_cast<double>(b % 5) / 8;
          std::uint32_t faults = 0;
          operands o{levels, rounding, wire, gq::const_vector{values.data(), type}};
          o.first = first;
          o.count = count;
          o.bucket = bucket;
          o.units = units.data();
          o.zero_free = zero_free;
          o.rank = 1;
          o.workers = 3;
          o.seed = 5;
          o.step = 6;
          o.own = true;
          o.faults = &faults;
          o.settle();

          std::size_t const bytes = wire.bytes(count);
          auto const both = [&](char const* what, std::size_t size, auto const& body) {
            std::vector<std::byte> a(size + 1, std::byte{0x55}), b(size + 1, std::byte{0x55});
            host.values(count, body(a.data()));
            device.values(count, body(b.data()));
            EXPECT_TRUE(support::same_bytes(a, b))
                << name << ": " << what << ", " << gq::name_of(type) << ", bucket " << bucket << ", count "
                << count << ", first " << first;
            EXPECT_EQ(a.back(), std::byte{0x55});
            return a;
          };
          std::vector<std::byte> frames[2];
          for (int k = 0; k < 2; ++k) {
            o.rank = 2 * k;
            frames[k] = both("encode", bytes, [&](std::byte* out) {
              return gq::kernel::add_codes<operands, gq::reduce::sum>{o, out};
            });
          }
          gq::kernel::source_view const sources[2] = {{frames[0].data(), nullptr, 1, 0},
                                                      {frames[1].data(), nullptr, 1, 2}};
          o.rank = 1;
          o.sources = sources;
          o.source_count = 2;
          o.terms = 3;
          if (!zero_free && !binary && bytes >= count)  // three codes of at most 5 fit any of these wires
            both("sum", bytes, [&](std::byte* out) {
              return gq::kernel::add_codes<operands, gq::reduce::sum>{o, out};
            });
          if (binary) {
            o.summed = true;
            both("exponential sum", bytes, [&](std::byte* out) {
              return gq::kernel::add_codes<operands, gq::reduce::exponential>{o, out};
            });
            o.summed = false;
          }
          both("requantise", bytes, [&](std::byte* out) {
            return gq::kernel::add_values<operands>{o, out, nullptr};
          });
          o.own = false;
          std::vector<std::byte> const before = values;
          std::size_t const width = gq::size_of(type);
          auto const mean = [&](std::byte* out) {
            return gq::kernel::write_mean<operands>{o, gq::mutable_vector{out, type}};
          };
          o.workers = 2;
          both("mean of all frames", d * width, mean);
          o.source_count = 1;
          both("mean of one frame", d * width, mean);
          EXPECT_TRUE(values == before);
          EXPECT_EQ(faults, 0U) << name;
          if (testing::Test::HasFailure()) return;
        }
}

template <class Wire>
void compare_all(Wire const& wire, bool small, char const* name) {
  using table = gq::levels::detail::level_table;
  std::uint32_t const s = small ? 1 : 5;
  gq::rounding::detail::one_word const shift{true, false}, nearest{false, true};
  compare(gq::levels::uniform<>{s}, gq::rounding::stochastic{}, wire, false, false, name);
  compare(gq::levels::uniform<>{s}, shift, wire, false, false, name);
  if (small) return;
  compare(gq::levels::exponential<>{3}.with_headroom(2), gq::rounding::stochastic{}, wire, false, true, name);
  compare(static_cast<table const&>(gq::levels::table{0, 0.1, 0.4, 1}), gq::rounding::stochastic{}, wire,
          false, false, name);
  compare(static_cast<table const&>(gq::levels::symmetric{0.1, 0.3, 0.6, 1}), nearest, wire, true, false,
          name);
}

TEST(DeviceShape, int8) { compare_all(gq::wire::int8{}, false, "int8"); }
TEST(DeviceShape, int16) { compare_all(gq::wire::int16{}, false, "int16"); }
TEST(DeviceShape, int32) { compare_all(gq::wire::int32{}, false, "int32"); }
TEST(DeviceShape, packed) {
  for (std::uint32_t bits = 2; bits <= 8; ++bits)
    compare_all(gq::wire::packed<>{bits}, bits < 4, ("packed:" + std::to_string(bits)).c_str());
  compare(static_cast<gq::levels::detail::level_table const&>(gq::levels::symmetric{1}),
          gq::rounding::stochastic{}, gq::wire::packed<>{1}, true, false, "packed:1");
}

}  // namespace
