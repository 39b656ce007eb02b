// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Compares what the loop bodies of a device do (16 to 64 values of a thread, in registers) with what those of a host
/// do (1,024 values): the same bytes and the same reports.

#include "device_table.hpp"

#include <globalq/kernel/device/combine.hpp>
#include <globalq/kernel/device/mean.hpp>
#include <globalq/kernel/host/combine.hpp>
#include <globalq/kernel/host/mean.hpp>
#include <globalq/levels/exponential.hpp>
#include <globalq/levels/table.hpp>
#include <globalq/levels/uniform.hpp>
#include <globalq/reduce/exponential.hpp>
#include <globalq/reduce/reduce.hpp>
#include <globalq/rounding/correlated.hpp>
#include <globalq/rounding/shared_draw.hpp>
#include <globalq/rounding/stochastic.hpp>
#include <globalq/wire/frame.hpp>
#include <globalq/wire/integer.hpp>
#include <globalq/wire/packed.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace support::device_shape {

namespace gq = globalq;

/// Values below 2 in magnitude, from integers: large and small ones, and zeros of both signs.
inline float value_at(std::uint64_t i) {
  auto const h = static_cast<std::uint32_t>(((i + 1) * 0x9E3779B97F4A7C15ULL) >> 29);
  float const v = static_cast<float>(static_cast<std::int32_t>(h) >> 8) * 0x1p-22F;
  return h % 13 == 0 ? v * 0.0F : (h % 3 == 0 ? v * 0x1p-9F : v);
}

inline void set_value(gq::dtype type, std::byte* to, std::uint64_t i, float v) {
  switch (type) {
    case gq::dtype::float64:
      reinterpret_cast<double*>(to)[i] = static_cast<double>(v);
      break;
    case gq::dtype::float16:
      reinterpret_cast<gq::float16*>(to)[i] = gq::float16(v);
      break;
    case gq::dtype::bfloat16:
      reinterpret_cast<gq::bfloat16*>(to)[i] = gq::bfloat16(v);
      break;
    default:
      reinterpret_cast<float*>(to)[i] = v;
  }
}

/// The scale of bucket b of frame k: among those that travel there are zeros, and numbers near the ends of the range.
inline double scale_at(std::uint64_t b, int k, bool travels, bool wide) {
  int const kind = static_cast<int>((b + 3 * static_cast<std::uint64_t>(k)) % 5);
  if (travels && kind == 1) return 0;
  double const usual = 1.5 + static_cast<double>(b % 3) / 4 + k;
  return travels && kind == 2 ? usual * 0x1p-80 : (travels && wide && kind == 3 ? usual * 0x1p70 : usual);
}

/// Where a vector lies, and how it is scaled.
struct place {
  std::uint64_t bucket;
  std::uint64_t first;  ///< of the segment
  std::size_t off;      ///< values and codes that memory is off from being aligned
  bool local = false;   ///< scales travel
};
inline constexpr place places[] = {{0, 0, 0},         {0, 6400, 1},        {100, 0, 0},    {100, 6400, 3},
                                   {64, 256, 0},      {128, 512, 0},       {128, 512, 2},  {7, 1792, 0},
                                   {128, 0, 0, true}, {10, 1280, 1, true}, {0, 0, 0, true}};

/// Around the rows of a GPU thread (4, 8 or 16 values, 64 apart), tiles and pieces.
/// @param all  else some of them
inline std::vector<std::uint64_t> lengths(place const& at, bool all_of_them) {
  if (!all_of_them) return {1, 31, 65, 256, 261, 1025};
  if (at.bucket != 0 || at.first != 0) return {1, 4, 5, 31, 64, 65, 256, 261, 1025};
  std::vector<std::uint64_t> all;
  for (std::uint64_t n = 1; n <= 81; ++n) all.push_back(n);
  for (std::uint64_t n : {127, 128, 129, 191, 192, 193, 197, 255, 256, 257, 300, 1023, 1024, 1025, 2500})
    all.push_back(n);
  return all;
}

/// Bytes of the header in front of a frame.
inline constexpr std::size_t header = gq::wire::header_bytes;

/// Runs bodies of a device on the host.
struct in_order {
  static constexpr bool at_all_lengths = true;
  template <class T>
  using allocator = std::allocator<T>;

  /// @param frame     null, or where a frame begins
  /// @param codes_at  bytes from there to its codes
  template <class Operands, class Body>
  void operator()(Operands const& o, std::byte* /*frame*/, std::size_t /*codes_at*/, Body const& body) const {
    (*this)(o.count, body);
  }
  template <class Body>
  void operator()(std::uint64_t count, Body const& body) const {
    gq::kernel::device_executor<Kokkos::Serial>{Kokkos::Serial()}.values(count, body);
  }
};

/// @tparam Device  runs bodies, and has memory for them
template <class Device, class Levels, class Rounding, class Wire>
void compare_on(Device const& device, Levels const& levels, Rounding const& rounding, Wire const& wire,
                bool zero_free, char const* name) {
  using bytes_of_device = std::vector<std::byte, typename Device::template allocator<std::byte>>;
  /// Bytes that begin @p off bytes behind an address of 16, with room for a header in front, and one behind them that must not
  /// change.
  struct buffer {
    std::size_t off;
    bytes_of_device bytes;
    buffer(std::size_t size, std::size_t at) : off(header + at), bytes(off + size + 1, std::byte{0x55}) {}
    std::byte* data() { return bytes.data() + off; }
    std::byte* frame() { return bytes.data(); }
    bool has_bytes_of(buffer const& other) const {
      return std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(off), bytes.end(),
                        other.bytes.begin() + static_cast<std::ptrdiff_t>(off), other.bytes.end());
    }
  };
  using code_type = typename Wire::code_type;
  using operands = gq::kernel::device::operands<gq::kernel::device::levels_on_device<Levels>, Rounding, Wire>;
  using on_host = gq::kernel::host::operands<code_type>;
  auto const added = gq::kernel::host::adding_of<gq::reduce::sum, code_type>();
  [[maybe_unused]] auto const rounded = gq::kernel::host::adding_of<gq::reduce::exponential, code_type>();
  auto const sum = &added;
  constexpr bool binary = requires { levels.with_headroom(2U); };
  using adds = std::conditional_t<binary, gq::reduce::exponential, gq::reduce::sum>;
  gq::kernel::host_executor const host{Kokkos::Serial()};
  device_levels<Levels, Device::template allocator> const levels_there(levels);
  for (gq::dtype type : {gq::dtype::float32, gq::dtype::float64, gq::dtype::float16, gq::dtype::bfloat16})
    for (place const& at : places)
      for (std::uint64_t count : lengths(at, Device::at_all_lengths)) {
        std::uint64_t const first = at.first, bucket = at.bucket, d = first + count;
        std::size_t const width = gq::size_of(type), code_off = at.off * sizeof(typename Wire::code_type);
        buffer values(d * width, at.off * width);
        for (std::uint64_t i = 0; i < d; ++i) set_value(type, values.data(), i, value_at(i));
        std::uint64_t const buckets = bucket == 0 ? 1 : gq::divide_up(d, bucket);
        std::vector<double, typename Device::template allocator<double>> bucket_scales(buckets);
        for (std::uint64_t b = 0; b < buckets; ++b) bucket_scales[b] = 2.0 + static_cast<double>(b % 5) / 8;
        std::vector<std::uint32_t, typename Device::template allocator<std::uint32_t>> faults(2, 0U);
        operands o(levels_there(), rounding, wire);
        o.x = {values.data(), type};
        o.first = first;
        o.count = count;
        o.bucket = bucket;
        o.bucket_scales = bucket_scales.data();
        o.local = at.local;
        o.zero_free = zero_free;
        o.rank = 1;
        o.workers = 3;
        o.seed = 5;
        o.step = 6;
        o.own = true;
        o.faults = faults.data();
        o.settle();

        // behind the header of their frame: a sum of one worker, and the number of values
        buffer scales[3] = {{8 * buckets, 0}, {8 * buckets, 0}, {8 * buckets, 0}};
        for (int k = 0; k < 3; ++k) {
          std::uint64_t const words[2] = {std::uint64_t{1} << 32, count};
          std::memcpy(scales[k].frame(), words, header);
          for (std::uint64_t b = bucket == 0 ? 0 : first / bucket; b < buckets; ++b)
            o.write_scale(scales[k].data(), b,
                          k == 2 ? 6.0 : scale_at(b, k, at.local, type == gq::dtype::float32));
        }
        std::size_t const bytes = wire.bytes(count);
        gq::kernel::host::held_policies<Levels, Rounding, Wire> const held(levels, rounding, wire);
        // the operands of a host, with what those of the device have
        auto const host_of = [&](operands const& from) {
          on_host h(held);
          static_cast<gq::kernel::segment_call&>(h) = from;
          return h;
        };
        auto const both = [&](char const* what, std::size_t size, std::size_t off, auto const& host_body,
                              auto const& device_body) {
          buffer a(size, off), b(size, off);
          host.values(count, host_body(host_of(o), a.data()));
          device(o, size == bytes ? b.frame() : nullptr, b.off, device_body(b.data()));
          EXPECT_TRUE(a.has_bytes_of(b))
              << name << ": " << what << ", " << gq::name_of(type) << ", bucket " << bucket << ", count "
              << count << ", first " << first << ", off " << at.off << (at.local ? ", local" : "");
          EXPECT_EQ(a.bytes.back(), std::byte{0x55});
          return a;
        };
        buffer frames[2] = {{0, 0}, {0, 0}};
        for (int k = 0; k < 2; ++k) {
          o.rank = 2 * k;
          frames[k] = both(
              "encode", bytes, code_off,
              [&](on_host const& h, std::byte* out) {
                return gq::kernel::host::add_codes<code_type>{h, out};
              },
              [&](std::byte* out) {
                return gq::kernel::device::add_codes<operands, adds>{o, out};
              });
        }
        gq::kernel::source_view const sources[2] = {{frames[0].data(), scales[0].data(), 1, 0},
                                                    {frames[1].data(), scales[1].data(), 1, 2}};
        o.rank = 1;
        o.sources = {sources, 2};
        for (bool own : {true, false}) {
          o.own = own;
          o.terms = own ? 3 : 2;
          // three codes of at most 5 fit any of these wires
          if constexpr (!binary)
            if (!zero_free && !at.local && wire.bytes(8) >= 8)
              both(
                  "sum", bytes, code_off,
                  [&](on_host const& h, std::byte* out) {
                    return gq::kernel::host::add_codes<code_type>{h, out, sum};
                  },
                  [&](std::byte* out) {
                    return gq::kernel::device::add_codes<operands, gq::reduce::sum>{o, out};
                  });
          both(
              "requantize", bytes, code_off,
              [&](on_host const& h, std::byte* out) {
                return gq::kernel::host::add_values<code_type>{h, out, scales[2].data()};
              },
              [&](std::byte* out) {
                return gq::kernel::device::add_values<operands>{o, out, scales[2].data()};
              });
          if constexpr (binary) {
            if (at.local) continue;
            o.summed = true;
            both(
                "exponential sum", bytes, code_off,
                [&](on_host const& h, std::byte* out) {
                  return gq::kernel::host::add_codes<code_type>{h, out, &rounded};
                },
                [&](std::byte* out) {
                  return gq::kernel::device::add_codes<operands, gq::reduce::exponential>{o, out};
                });
            o.summed = false;
          }
        }
        bytes_of_device const before = values.bytes;
        auto const expect_mean = [&](char const* what, auto add) {
          constexpr bool onto = decltype(add)::value;
          auto const fill = [&](std::byte* out) {
            if (onto) std::memcpy(out, values.data(), d * width);
            return gq::mutable_vector{out, type};
          };
          both(
              what, d * width, at.off * width,
              [&](on_host const& h, std::byte* out) {
                return gq::kernel::host::write_mean<code_type>(h, fill(out), onto);
              },
              [&](std::byte* out) {
                return gq::kernel::device::write_mean<operands, onto>{o, fill(out)};
              });
          if constexpr (gq::kernel::device::value_lanes<Wire> == 1) {
            using one = gq::kernel::device::write_mean_of_one<operands, onto>;
            if (one::suits(o, {nullptr, type}))
              both(
                  "mean of one frame at once", d * width, at.off * width,
                  [&](on_host const& h, std::byte* out) {
                    return gq::kernel::host::write_mean<code_type>(h, fill(out), onto);
                  },
                  [&](std::byte* out) {
                    return one{o, fill(out)};
                  });
          }
        };
        o.workers = 2;
        expect_mean("mean of all frames", std::false_type{});
        expect_mean("mean of all frames, added", std::true_type{});
        o.sources.count = 1;
        expect_mean("mean of one frame", std::false_type{});
        expect_mean("mean of one frame, added", std::true_type{});
        EXPECT_TRUE(values.bytes == before);
        EXPECT_EQ(faults[0], 0U) << name;

        // damaged frames are reported alike
        for (std::size_t damaged : {std::size_t{0}, bytes / 2, bytes - 1})
          for (int pattern : {0x00, 0x08, 0x3f, 0x77, 0x80, 0xf0, 0xff}) {
            if (count > 300) continue;
            std::byte const good = frames[0].data()[damaged];
            frames[0].data()[damaged] = static_cast<std::byte>(pattern);
            faults.assign(2, 0U);
            operands checked = o;
            host.values(count, gq::kernel::host::check_codes<code_type>{host_of(checked)});
            checked.faults = &faults[1];
            device(checked, nullptr, 0, gq::kernel::device::check_codes<operands>{checked});
            EXPECT_EQ(faults[0], faults[1])
                << name << ": byte " << damaged << " is " << pattern << ", count " << count;
            frames[0].data()[damaged] = good;
          }
        if (testing::Test::HasFailure()) return;
      }
}

template <class Levels, class Rounding, class Wire>
void compare(Levels const& levels, Rounding const& rounding, Wire const& wire, bool zero_free,
             char const* name) {
  compare_on(in_order{}, levels, rounding, wire, zero_free, name);
}

template <class Wire>
void compare_all(Wire const& wire, bool small, char const* name) {
  using table = gq::levels::detail::level_table;
  std::uint32_t const s = small ? 1 : 5;
  gq::rounding::detail::shared_draw const shift{true, false}, nearest{false, true};
  compare(gq::levels::uniform<>{s}, gq::rounding::stochastic{}, wire, false, name);
  compare(gq::levels::uniform<>{s}, shift, wire, false, name);
  compare(gq::levels::uniform<>{s}, gq::rounding::correlated{}.for_worker(1, 3), wire, false, name);
  if (small) return;
  compare(gq::levels::exponential<>{3}.with_headroom(2), gq::rounding::stochastic{}, wire, false, name);
  compare(static_cast<table const&>(gq::levels::table{0, 0.1, 0.4, 1}), gq::rounding::stochastic{}, wire,
          false, name);
  compare(static_cast<table const&>(gq::levels::symmetric{0.1, 0.3, 0.6, 1}), nearest, wire, true, name);
  compare(static_cast<table const&>(gq::levels::symmetric{0.1, 0.3, 0.6, 1}),
          gq::rounding::correlated{}.for_worker(8, 20), wire, true, name);
}

}  // namespace support::device_shape
