// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief quantizer: float32 frames, without quantisation: the baseline over the same schedules.

#include "../kernel/combine.hpp"
#include "operator_codec.hpp"

namespace globalq::detail {

/// Adds float32 values in the order of the schedule. Values are divided by 2^k, exactly, where their sum would overflow.
class plain_codec final : public operator_codec {
 public:
  explicit plain_codec(kernel::host_executor on) : on_(std::move(on)) {}

  /// The unit is a power of two: values travel as x / unit. 1 wherever the sum of all workers stays in range.
  std::size_t frame_bytes(segment part, int /*terms*/) const override {
    return part.empty() ? 0 : wire::header_bytes + part.count * sizeof(float);
  }

  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    if (part.empty()) return;
    int terms = own ? 1 : 0;
    for (source const& s : sources) terms += s.terms;
    check(part, sources);
    float* const target = reinterpret_cast<float*>(out.data() + wire::header_bytes);
    on_.values(part.count, add{part, call_.x, own, exponent(), sources, target, mutable_vector{}, 0});
    wire::write_header(out, wire::float32_identifier, terms, part.count);
  }

  void finish(segment part, std::span<source const> sources) override {
    if (part.empty()) return;
    check(part, sources);
    double const scale = call_.units[0] / static_cast<double>(call_.workers) * power_of_two(call_.wide);
    on_.values(part.count, add{part, call_.x, false, 0, sources, nullptr, call_.y, scale, &faults_});
  }

  payload numbers(segment part, std::span<std::byte> frame) const override {
    if (part.empty()) return {};
    return {payload::kind::float32, frame.data() + wire::header_bytes, part.count};
  }

 private:
  struct add {
    segment part;
    const_vector x;
    bool own;
    int exponent;
    std::span<source const> sources;
    float* out;  // or
    mutable_vector y;
    double scale;
    std::uint32_t* faults = nullptr;

    template <int Lanes>
    void tile(std::uint64_t tile, int lane) const {
      constexpr int N = kernel::row_values<Lanes>;
      for (int r = 0; r < kernel::rows<Lanes>; ++r) {
        kernel::row const row = kernel::row_of<Lanes>(tile, lane, r, part.count);
        if (row.count == 0) continue;
        float buffer[N], sum[N];
        if (own) {
          float const* const begin = load<N>(x, part.first + row.first, row.count, exponent, buffer);
          std::copy_n(begin, row.count, sum);
        } else {
          std::fill_n(sum, row.count, 0.0F);
        }
        for (source const& s : sources) {
          float const* __restrict in =
              reinterpret_cast<float const*>(s.frame.data() + wire::header_bytes) + row.first;
          for (int i = 0; i < row.count; ++i) sum[i] += in[i];
        }
        if (out != nullptr) {
          float* __restrict target = out + row.first;
          for (int i = 0; i < row.count; ++i) target[i] = sum[i];
        } else if (store<N>(y, part.first + row.first, row.count, store_scale(scale), sum)) {
          Kokkos::atomic_or(faults, static_cast<std::uint32_t>(kernel::out_of_range));
        }
      }
    }
  };

  int exponent() const { return -exponent_of(call_.units[0]) - call_.wide; }

  void check(segment part, std::span<source const> sources) const {
    for (source const& s : sources)
      wire::check_header(s, wire::float32_identifier, part.count, frame_bytes(part, s.terms));
  }

  kernel::host_executor on_;
};

}  // namespace globalq::detail
