// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief The loop body of floating-point numbers in the shape of a GPU thread gives the bytes and the reports of that of a host.

#include "device_shape.hpp"

#include <globalq/kernel/device/add_floats.hpp>
#include <globalq/kernel/floats.hpp>
#include <globalq/kernel/host/leaves.hpp>

#include <limits>

namespace support::device_shape {

/// One call of both bodies.
/// @tparam Device  runs bodies, and has memory for them
/// @tparam Sent    the type of values in frames
template <class Device, class Sent = float>
class float_case {
 public:
  float_case(Device const& device, gq::dtype type, std::uint64_t count, std::uint64_t first, std::size_t off,
             double unit)
      : device_(device), type_(type), count_(count), first_(first), off_(off), unit_(1, unit) {
    x_.resize((first + count + off) * gq::size_of(type));
    for (std::uint64_t i = 0; i < first + count; ++i) set_value(type, x(), i, value_at(i));
    for (auto& each : frames_) {
      std::uint64_t const words[2] = {std::uint64_t{1} << 32, count};
      each.header.resize(sizeof words);
      std::memcpy(each.header.data(), words, sizeof words);
      each.values.resize(count + off);
      for (std::uint64_t i = 0; i < count; ++i)
        each.values[off + i] =
            static_cast<Sent>(value_at(3 * i + static_cast<std::uint64_t>(&each - frames_)));
    }
  }

  /// The last value of the first source becomes infinite: the mean is beyond every range.
  void overflow() { frames_[0].values.back() = static_cast<Sent>(std::numeric_limits<float>::infinity()); }

  void expect_same(bool own, int sources, bool to_frame, bool nearest = false) {
    nearest_ = nearest;
    views_.clear();
    for (int k = 0; k < sources; ++k) {
      views_.push_back({reinterpret_cast<std::byte const*>(frames_[k].values.data() + off_),
                        frames_[k].header.data() + gq::wire::header_bytes, 1, k});
    }
    auto const host = run(own, to_frame, [&](gq::kernel::floats_call const& call) {
      gq::kernel::host_executor(Kokkos::Serial())
          .values(count_, gq::kernel::add_floats{call, &gq::kernel::host::leaves_of_values()});
    });
    auto const there = run(own, to_frame, [&](gq::kernel::floats_call const& call) {
      device_(count_, gq::kernel::device::add_floats<Sent>{call, nullptr});
    });
    EXPECT_TRUE(host.bytes == there.bytes)
        << gq::name_of(type_) << ", " << count_ << " values from " << first_ << ", off " << off_ << ", unit "
        << unit_[0] << ", " << sources << " sources" << (own ? " and own" : "")
        << (to_frame ? " to a frame" : " to the mean");
    EXPECT_EQ(host.faults, there.faults);
  }

 private:
  template <class T>
  using memory = std::vector<T, typename Device::template allocator<T>>;
  struct result {
    memory<std::byte> bytes;
    std::uint32_t faults;
  };

  std::byte* x() { return x_.data() + off_ * gq::size_of(type_); }

  template <class Run>
  result run(bool own, bool to_frame, Run const& run_it) {
    memory<Sent> frame(count_ + off_ + 1, Sent(7.0F));
    memory<std::byte> y(x_.size() + 1, std::byte{0x55});
    memory<std::uint32_t> faults(1, 0U);
    gq::kernel::floats_call call;
    call.x = {x(), type_};
    call.part = {first_, count_};
    call.own = own;
    call.workers = 3.0;
    call.divisor = unit_.data();
    call.sources = gq::kernel::source_list(views_.data(), views_.size());
    call.out = to_frame ? reinterpret_cast<std::byte*>(frame.data() + off_) : nullptr;
    call.y = {y.data() + off_ * gq::size_of(type_), type_};
    call.faults = faults.data();
    call.sent = gq::dtype_of<Sent>::value;
    call.nearest = nearest_;
    call.words = {42, 7, 2, gq::random::purpose::requantize};
    run_it(call);
    if (to_frame) {
      y.resize(frame.size() * sizeof(Sent));
      std::memcpy(y.data(), frame.data(), y.size());
    }
    return {y, faults[0]};
  }

  struct source_frame {
    memory<std::byte> header;
    memory<Sent> values;
  };
  Device const& device_;
  gq::dtype type_;
  std::uint64_t count_, first_;
  std::size_t off_;
  bool nearest_ = false;
  memory<double> unit_;
  memory<std::byte> x_;
  source_frame frames_[9];
  memory<gq::kernel::source_view> views_;
};

template <class Sent, class Device>
void compare_sent_on(Device const& device) {
  for (gq::dtype type : {gq::dtype::float32, gq::dtype::float64, gq::dtype::float16, gq::dtype::bfloat16})
    for (std::uint64_t first : {0U, 256U})
      for (std::size_t off : {0U, 1U, 2U})
        for (std::uint64_t count : lengths({0, first, off}, Device::at_all_lengths)) {
          for (double unit : {1.0, 4.0}) {
            float_case<Device, Sent> at(device, type, count, first, off, unit);
            for (int sources : {0, 1, 2, 9}) at.expect_same(true, sources, true);
            for (int sources : {1, 3}) at.expect_same(false, sources, true);
            for (int sources : {1, 9}) at.expect_same(false, sources, false);
            if (sizeof(Sent) == 2) at.expect_same(true, 1, true, true);
            at.expect_same(true, 2, false);
            at.overflow();
            at.expect_same(false, 2, false);
          }
          if (testing::Test::HasFailure()) return;
        }
}

template <class Device>
void compare_floats_on(Device const& device) {
  compare_sent_on<float>(device);
  compare_sent_on<gq::bfloat16>(device);
  compare_sent_on<gq::float16>(device);
}

}  // namespace support::device_shape
