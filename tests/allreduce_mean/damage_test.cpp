// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Frames that are damaged on their way: an error, no access out of bounds (the sanitizers look), and memory that
///        transfers may still touch is handed to the transport.

#include "tests/support/calls.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <random>

namespace gq = globalq;
using support::values;

namespace damage_test {

/// Threads whose messages arrive damaged now and then: bits in the first bytes, where headers are, or anywhere.
struct damaging {
  using inner = gq::transport::threads::endpoint;
  struct request {
    inner::request transfer;
    std::span<std::byte> arrives;
  };

  inner& workers;
  std::mt19937 draw;
  std::uint32_t one_in = 0;  ///< messages; 0: none is damaged
  std::vector<std::shared_ptr<void>> retained{};

  int rank() const { return workers.rank(); }
  int size() const { return workers.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) {
    return {workers.send_async(peer, bytes), {}};
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    return {workers.recv_async(peer, bytes), bytes};
  }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    workers.allgather(mine, all);  // the opening: only frames are damaged
  }
  template <class Value>
  void allreduce_sum(std::span<Value> values) {
    workers.allreduce_sum(values);
  }
  void retain(std::shared_ptr<void> memory) { retained.push_back(std::move(memory)); }
  void wait(request& r) {
    workers.wait(r.transfer);
    std::span<std::byte> const bytes = std::exchange(r.arrives, {});
    if (bytes.empty() || one_in == 0 || draw() % one_in != 0) return;
    std::size_t const reach = draw() % 2 == 0 ? std::min<std::size_t>(bytes.size(), 48) : bytes.size();
    for (std::uint32_t k = 1 + draw() % 3; k > 0; --k)
      bytes[draw() % reach] ^= static_cast<std::byte>(draw() % 256);
  }
};
static_assert(gq::Transport<damaging> && gq::transport::OwnRetain<damaging>);

std::vector<gq::any_quantizer> operators() {
  gq::rounding::stochastic const dice;
  gq::reduce::requantize const again;
  return {
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, gq::wire::huffman<>{}, again},
      gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform{3}, dice, gq::wire::elias<>{},
                    again},
      gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::symmetric{0.25, 0.5, 1}, dice,
                    gq::wire::sparse<>{}, again},
      gq::quantizer{gq::norm::linf{}, gq::levels::uniform{700}, dice, gq::wire::elias<std::int16_t>{}, again},
      gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform{7}, dice, gq::wire::packed<4>{},
                    again},
      gq::float32_tail{gq::quantizer{gq::norm::local<2>{.bucket = 128}, gq::levels::uniform{7}, dice,
                                     gq::wire::packed<4>{}, again}},
      gq::float32_tail{gq::quantizer{gq::norm::linf{.bucket = 500}, gq::levels::uniform{7}, dice,
                                     gq::wire::huffman<>{}, again}},
  };
}

TEST(Damage, ends_in_an_error_of_frames_or_transport_and_memory_goes_to_the_transport) {
  std::atomic<int> frames{0};
  for (int seed = 0; seed < 12; ++seed)
    for (gq::any_quantizer const& op : operators())
      for (char const* schedule : {"sra", "allgather"})
        for (bool grouped : {true, false}) {
          gq::transport::threads cluster{3, {.deadline = std::chrono::seconds{20}}};
          auto const body = [&](auto& endpoint) {
            damaging workers{endpoint, std::mt19937(static_cast<std::uint32_t>(7 * seed + endpoint.rank()))};
            gq::allreduce_mean mean{workers,
                                    op,
                                    gq::schedule::any{schedule},
                                    {.seed = 6, .chunk_values = 1024},
                                    Kokkos::Serial()};
            std::vector<std::vector<float>> x;
            gq::vector_group group;
            for (std::size_t d : {3000, 1, 256, 0, 77, 513}) x.push_back(values(d, workers.rank()));
            for (auto& v : x) group.add(v);
            auto const call = [&](std::uint64_t step) { grouped ? mean(group, step) : mean(x[0], step); };
            call(0);
            EXPECT_TRUE(workers.retained.empty());
            workers.one_in = 9;
            try {
              for (std::uint64_t step = 10; step < 50; step += 10) call(step);
            } catch (gq::frame_error const&) {
              ++frames;
              EXPECT_EQ(workers.retained.size(), 1U) << "other frames may be under way";
              throw;
            } catch (gq::transport_error const&) {
              EXPECT_EQ(workers.retained.size(), 1U);
              throw;
            }
          };
          try {
            cluster.run(body);
          } catch (gq::frame_error const&) {
          } catch (gq::transport_error const&) {
          }
        }
  EXPECT_GT(frames, 50);
}

}  // namespace damage_test
