// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: Top-K and PowerSGD.

#include "compressors.hpp"

#include "handles.hpp"

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/top_k.hpp>
#if defined(GLOBALQ_HAS_EIGEN)
#include <globalq/baseline/power_sgd.hpp>
#endif

#include <algorithm>
#include <utility>

namespace globalq_c {
namespace {

/// The endpoint of a handle, with the executor of the kernels of its calls.
class placed {
 public:
  using request = gq::transport::endpoint::request;

  placed(gq::transport::endpoint& of, gq::kernel::host_executor const& on) : of_(of), on_(on) {}

  int rank() const { return of_.rank(); }
  int size() const { return of_.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) { return of_.send_async(peer, bytes); }
  request recv_async(int peer, std::span<std::byte> bytes) { return of_.recv_async(peer, bytes); }
  void wait(request& r) { of_.wait(r); }
  bool own_allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    return of_.own_allgather(mine, all);
  }
  std::uint64_t bytes_sent() const { return of_.bytes_sent(); }
  std::size_t chunk_bytes() const { return of_.chunk_bytes(); }
  void retain(std::shared_ptr<void> buffers) { of_.retain(std::move(buffers)); }
  gq::kernel::host_executor const& executor() const { return on_; }

 private:
  gq::transport::endpoint& of_;
  gq::kernel::host_executor on_;
};

template <class Inner>
class with_feedback final : public compressor {
 public:
  with_feedback(Inner inner, std::vector<std::size_t> numbers, placed const& workers)
      : compressor(std::move(numbers)), workers_(workers), feedback_(std::move(inner)) {}

  void undo() override { feedback_.undo(); }
  gq::baseline::state save() const override { return feedback_.save(workers_.size(), workers_.rank()); }
  void load(std::span<gq::baseline::state const> states) override {
    feedback_.load(states, workers_.size(), workers_.rank());
  }

 private:
  void reduce(std::span<float const> x, std::span<float> mean, std::uint64_t step) override {
    feedback_.reduce(workers_, x, mean, step);
  }

  placed workers_;
  gq::baseline::error_feedback<Inner> feedback_;
};

}  // namespace

void compressor::run(std::span<gq::vector_group::member const> members, std::uint64_t step) {
  std::size_t length = 0;
  float const* x = nullptr;
  float* y = nullptr;
  bool side_by_side = true;
  for (std::size_t const k : layers_) {
    auto const& m = members[k];
    if (m.length == 0) continue;
    auto const* const from = static_cast<float const*>(m.x.data);
    auto* const to = static_cast<float*>(m.y.data);
    if (length == 0) x = from, y = to;
    side_by_side = side_by_side && from == x + length && to == y + length;
    length += m.length;
  }
  if (side_by_side) return reduce({x, length}, {y, length}, step);
  beside_.resize(length);
  auto at = beside_.begin();
  for (std::size_t const k : layers_)
    at = std::copy_n(static_cast<float const*>(members[k].x.data), members[k].length, at);
  reduce(beside_, beside_, step);
  auto const* from = beside_.data();
  for (std::size_t const k : layers_) {
    std::copy_n(from, members[k].length, static_cast<float*>(members[k].y.data));
    from += members[k].length;
  }
}

std::unique_ptr<compressor> make_compressor(compressor_parts parts, gq::transport::endpoint& workers,
                                            gq::kernel::host_executor const& on, gq::options const& settings,
                                            [[maybe_unused]] gq::schedule::any const& schedule) {
  placed const at(workers, on);
  auto const made = [&]<class Inner>(Inner inner) {
    return std::make_unique<with_feedback<Inner>>(std::move(inner), std::move(parts.numbers), at);
  };
  if (parts.how == gq::named::named_compressor::method::top_k)
    return made(gq::baseline::top_k(std::move(parts.layers),
                                    {.densities = std::move(parts.densities), .bits = parts.bits}, settings));
#if defined(GLOBALQ_HAS_EIGEN)
  return made(gq::baseline::power_sgd<gq::schedule::any>(
      std::move(parts.layers), {.ranks = std::move(parts.ranks)}, settings, schedule));
#else
  refuse("globalq_call_create", "power-sgd needs Eigen, and this library was built without it",
         "build the library where CMake finds Eigen 3.4");
#endif
}

}  // namespace globalq_c
