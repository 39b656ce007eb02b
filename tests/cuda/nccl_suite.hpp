// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: transport::nccl under the suite of all transports and under the schedules, and cases of its own. The
///        same on a GPU (nccl_device.cpp) and on the emulated NCCL (nccl_emulated.cpp), which define worlds() and
///        shortest_deadline().

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "globalq/schedule/any.hpp"
#include "globalq/transport/nccl.hpp"
#include "tests/support/refusal.hpp"
#include "tests/transport/suite.hpp"

namespace globalq_test {

using gq::transport::nccl;

static_assert(gq::Transport<nccl>);
static_assert(gq::transport::OwnAllgather<nccl>);
static_assert(gq::transport::OwnAllreduceSum<nccl, std::int8_t>);
static_assert(!gq::transport::OwnAllreduceSum<nccl, std::int16_t>);
static_assert(gq::transport::OwnAllreduceSum<nccl, std::int32_t>);
static_assert(gq::transport::OwnAllreduceSum<nccl, float>);
static_assert(gq::transport::OwnBytesSent<nccl>);
static_assert(gq::transport::OwnName<nccl>);
static_assert(gq::transport::OwnChunkBytes<nccl>);
static_assert(!std::copy_constructible<nccl>);
#if defined(KOKKOS_ENABLE_CUDA)
static_assert(gq::transport::OwnExecution<nccl>);
#endif

/// The numbers of workers to test with.
std::vector<int> worlds();

/// Connecting takes a real library longer than the deadlines of some tests.
std::chrono::nanoseconds shortest_deadline();

inline void expect_success(cudaError_t code) { ASSERT_EQ(code, cudaSuccess) << cudaGetErrorString(code); }

/// Device memory of one worker, and as much that is pinned: a copy to pageable memory would wait for the stream, and so for
/// other workers. Allocated once: that may wait too.
class arena {
 public:
  explicit arena(std::size_t bytes) : bytes_{bytes} {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) throw std::bad_alloc{};
    memory_.reset(static_cast<std::byte*>(memory));
    if (cudaMallocHost(&memory, bytes) != cudaSuccess) throw std::bad_alloc{};
    pinned_.reset(static_cast<std::byte*>(memory));
  }

  /// Begins anew once everything that was taken has been given back.
  std::span<std::byte> take(std::size_t bytes) {
    if (users_ == 0) used_ = 0;
    std::size_t const room = (bytes + 255) / 256 * 256;
    if (used_ + room > bytes_) throw std::bad_alloc{};
    ++users_;
    return {memory_.get() + std::exchange(used_, used_ + room), bytes};
  }
  void give_back() { --users_; }

  /// Where what was taken has its place in pinned memory.
  std::byte* pinned(std::span<std::byte> taken) const {
    return pinned_.get() + (taken.data() - memory_.get());
  }

 private:
  std::size_t bytes_, used_ = 0, users_ = 0;
  gq::transport::detail::device_memory memory_;
  gq::transport::detail::pinned_memory pinned_;
};

/// Moves host memory over transport::nccl: copies in front of it and behind, and waits on the host.
class staged {
 public:
  class request {
   public:
    request() = default;
    request(request&& other) noexcept
        : inner_{std::move(other.inner_)},
          to_{other.to_},
          device_{other.device_},
          from_{std::exchange(other.from_, nullptr)} {}
    request& operator=(request&& other) noexcept {
      request old{std::move(*this)};
      inner_ = std::move(other.inner_);
      to_ = other.to_;
      device_ = other.device_;
      from_ = std::exchange(other.from_, nullptr);
      return *this;
    }
    ~request() {
      if (from_ != nullptr) from_->give_back();
    }

   private:
    friend class staged;
    nccl::request inner_;
    std::span<std::byte> to_, device_;
    arena* from_ = nullptr;
  };

  staged(nccl& inner, arena& memory) : inner_{inner}, memory_{memory} {}
  staged(staged const&) = delete;

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::uint64_t bytes_sent() const { return inner_.bytes_sent(); }

  request send_async(int peer, std::span<std::byte const> bytes) {
    request made = prepare(bytes.size());
    copy_in(made.device_, bytes.data());
    made.inner_ = inner_.send_async(peer, made.device_);
    return made;
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    request made = prepare(bytes.size());
    made.to_ = bytes;
    made.inner_ = inner_.recv_async(peer, made.device_);
    return made;
  }
  void wait(request& posted) {
    if (posted.from_ == nullptr) return;
    inner_.wait(posted.inner_);
    copy_out(posted.to_.data(), posted.device_.first(posted.to_.size()));
    std::exchange(posted.from_, nullptr)->give_back();
  }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) { inner_.allgather(mine, all); }

  template <class Value>
  auto allreduce_sum(std::span<Value> values) {
    if constexpr (!gq::transport::OwnAllreduceSum<nccl, Value>) {
      return inner_.allreduce_sum(values);
    } else {
      auto const device = memory_.take(values.size_bytes());
      copy_in(device, values.data());
      inner_.allreduce_sum(std::span{reinterpret_cast<Value*>(device.data()), values.size()});
      copy_out(values.data(), device);
      memory_.give_back();
    }
  }

  nccl& inner() { return inner_; }
  arena& memory() { return memory_; }

 private:
  request prepare(std::size_t bytes) {
    request made;
    made.device_ = memory_.take(bytes);
    made.from_ = &memory_;
    return made;
  }
  void copy_in(std::span<std::byte> device, void const* from) {
    if (device.empty()) return;
    std::byte* const pinned = memory_.pinned(device);
    std::memcpy(pinned, from, device.size());
    expect_success(
        cudaMemcpyAsync(device.data(), pinned, device.size(), cudaMemcpyHostToDevice, inner_.stream()));
  }
  /// Waits for the stream, within its deadline, before it asks for bytes that may never have come.
  void copy_out(void* to, std::span<std::byte> device) {
    inner_.synchronize();
    if (device.empty()) return;
    std::byte* const pinned = memory_.pinned(device);
    expect_success(
        cudaMemcpyAsync(pinned, device.data(), device.size(), cudaMemcpyDeviceToHost, inner_.stream()));
    inner_.synchronize();
    std::memcpy(to, pinned, device.size());
  }

  nccl& inner_;
  arena& memory_;
};

/// Each worker is a thread with a stream, on the devices in turn.
struct nccl_harness {
  using endpoint = staged;
  static std::vector<int> worlds() { return globalq_test::worlds(); }

  /// Calls `body(rank, id, stream)` once for each worker.
  template <class Body>
  static void start(int workers, Body const& body) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers));
    std::vector<std::thread> crew;
    for (int rank = 0; rank < workers; ++rank)
      crew.emplace_back([&, rank] {
        cudaStream_t stream = nullptr;
        try {
          int devices = 1;
          expect_success(cudaGetDeviceCount(&devices));
          expect_success(cudaSetDevice(rank % devices));
          expect_success(cudaStreamCreate(&stream));
          body(rank, id, stream);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
        if (stream != nullptr) cudaStreamDestroy(stream);
      });
    for (auto& each : crew) each.join();
    for (auto const& each : errors)
      if (each) std::rethrow_exception(each);
  }

  template <class Body>
  static void run(int workers, gq::transport::options const& settings, Body const& body) {
    start(workers, [&](int rank, ncclUniqueId const& id, cudaStream_t stream) {
      arena memory{std::size_t{64} << 20};
      nccl inner{id, rank, workers, stream, {.deadline = std::max(settings.deadline, shortest_deadline())}};
      staged self{inner, memory};
      body(self);
    });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(nccl, transport_suite, nccl_harness);

/// Runs `body(transport, memory)` on one worker.
template <class Body>
void alone(Body const& body) {
  nccl_harness::run(1, patient, [&](staged& self) { body(self.inner(), self.memory()); });
}

using support::refusal;

inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

// ---- Schedules

/// A frame is the sum of its workers' numbers as they are.
template <class Value, gq::payload::kind Kind>
class plain_sum final : public gq::codec {
 public:
  plain_sum(int rank, std::uint64_t length) : mine_(length), result(length) {
    for (std::size_t i = 0; i < length; ++i) mine_[i] = value<Value>(rank, i);
  }

  std::size_t frame_bytes(gq::segment part, int) const override { return part.count * sizeof(Value); }
  void combine(gq::segment part, bool own, std::span<gq::source const> sources,
               std::span<std::byte> out) override {
    std::vector<Value> sum(part.count);
    if (own) std::copy_n(mine_.begin() + static_cast<std::ptrdiff_t>(part.first), part.count, sum.begin());
    add(sum, sources);
    if (!sum.empty()) std::memcpy(out.data(), sum.data(), out.size());
  }
  void finish(gq::segment part, std::span<gq::source const> sources) override {
    std::vector<Value> sum(part.count);
    add(sum, sources);
    std::copy(sum.begin(), sum.end(), result.begin() + static_cast<std::ptrdiff_t>(part.first));
  }
  gq::payload numbers(gq::segment part, std::span<std::byte> frame) const override {
    return {Kind, frame.data(), part.count};
  }
  void declare(std::span<std::byte>, int) const override {}

 private:
  static void add(std::vector<Value>& sum, std::span<gq::source const> sources) {
    std::vector<Value> values(sum.size());
    for (auto const& each : sources) {
      ASSERT_EQ(each.frame.size(), values.size() * sizeof(Value));
      if (!values.empty()) std::memcpy(values.data(), each.frame.data(), each.frame.size());
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<Value>(sum[i] + values[i]);
    }
  }

  std::vector<Value> mine_;

 public:
  std::vector<Value> result;
};

using sum_of_int32 = plain_sum<std::int32_t, gq::payload::kind::int32>;
using sum_of_int16 = plain_sum<std::int16_t, gq::payload::kind::int16>;

TEST(NcclSchedules, every_schedule_ends_with_the_sum_on_every_worker) {
  for (int const workers : worlds())
    nccl_harness::run(workers, patient, [](staged& t) {
      for (char const* const name : {"ring", "tree", "sra", "allgather", "native"})
        for (std::uint64_t const length : {1U, 1000U, 30011U})
          for (std::uint64_t const chunk : {0U, 512U}) {
            if (chunk != 0 && name == std::string_view{"tree"})
              continue;  // its chunks need more than one stream
            gq::schedule::any const schedule{name};
            sum_of_int32 numbers{t.rank(), length};
            gq::frame_pool frames;
            schedule(t, numbers, gq::partition(length, schedule.parts(t.size()), 256, chunk), frames);
            std::vector<std::int32_t> expected(length);
            for (std::size_t i = 0; i < length; ++i)
              for (int rank = 0; rank < t.size(); ++rank) expected[i] += value<std::int32_t>(rank, i);
            EXPECT_EQ(numbers.result, expected) << name << ", " << length << " values, chunks of " << chunk;
          }
    });
}

TEST(NcclSchedules, native_refuses_16_bit_integers_and_says_what_to_use) {
  alone([](nccl& t, arena&) {
    sum_of_int16 numbers{0, 10};
    gq::frame_pool frames;
    EXPECT_EQ(
        refusal([&] { gq::schedule::native{}(t, numbers, gq::partition(10, 1, 256, 0), frames); }),
        "globalq: allreduce_sum: rank 0 of 1: NCCL cannot add 16-bit integers; use wire::int8 or wire::int32 "
        "with schedule::native, or schedule::ring, tree, scatter_reduce_allgather or allgather, which add on "
        "the device themselves");
    t.synchronize();  // nothing is broken
  });
}

// ---- The transport itself

TEST(Nccl, refuses_what_cannot_work) {
  EXPECT_TRUE(contains(refusal([] { nccl{nullptr, nullptr}; }), "the communicator is null"));
  EXPECT_TRUE(contains(refusal([] { nccl{ncclUniqueId{}, 2, 2, nullptr}; }), "there is no rank 2 of 2"));
  EXPECT_TRUE(contains(refusal([] {
                         nccl{ncclUniqueId{}, 0, 1, nullptr, {.deadline = std::chrono::seconds{0}}};
                       }),
                       "the deadline is not above 0"));
  alone([](nccl& t, arena& memory) {
    std::byte byte{};
    auto const device = memory.take(2);
    auto const host = std::span{&byte, 1};
    EXPECT_THROW(static_cast<void>(t.send_async(1, device)), gq::configuration_error);
    EXPECT_THROW(static_cast<void>(t.recv_async(-1, device)), gq::configuration_error);
    EXPECT_EQ(
        refusal([&] { static_cast<void>(t.send_async(0, host)); }),
        "globalq: send: rank 0 of 1: the bytes are not in device memory, which NCCL moves; copy them to the "
        "device, or use transport::mpi");
    EXPECT_TRUE(contains(refusal([&] { static_cast<void>(t.recv_async(0, host)); }), "globalq: recv: "));
    float value = 0;
    EXPECT_TRUE(contains(refusal([&] { t.allreduce_sum(std::span{&value, 1}); }), "not in device memory"));
    EXPECT_TRUE(contains(refusal([&] { t.allgather(host, device.first(1)); }), "the other is not"));
    EXPECT_EQ(t.bytes_sent(), 0U);
    t.synchronize();
  });
}

TEST(Nccl, says_what_it_is) {
  alone([](nccl& t, arena&) {
    EXPECT_EQ(t.name(), "nccl");
    EXPECT_EQ(t.rank(), 0);
    EXPECT_EQ(t.size(), 1);
    EXPECT_NE(t.communicator(), nullptr);
  });
}

TEST(Nccl, messages_to_itself_arrive_in_the_order_of_the_stream) {
  alone([](nccl& t, arena& memory) {
    std::size_t const bytes = 100003;
    auto const first = memory.take(bytes), second = memory.take(bytes), third = memory.take(bytes);
    auto const out = pattern(0, 0, bytes);
    std::vector<std::byte> in(bytes);
    expect_success(cudaMemcpyAsync(first.data(), out.data(), bytes, cudaMemcpyHostToDevice, t.stream()));
    auto const pass = [&](std::span<std::byte> from, std::span<std::byte> to) {
      auto incoming = t.recv_async(0, to);
      auto outgoing = t.send_async(0, from);
      t.wait(outgoing);
      t.wait(incoming);
    };
    pass(first, second);  // the host waits for none of these
    pass(second, third);
    t.allgather(third, second);
    expect_success(cudaMemcpyAsync(in.data(), second.data(), bytes, cudaMemcpyDeviceToHost, t.stream()));
    t.synchronize();
    EXPECT_EQ(in, out);
    for (int i = 0; i < 3; ++i) memory.give_back();
  });
}

TEST(Nccl, a_message_to_itself_needs_both_ends_of_one_size) {
  alone([](nccl& t, arena& memory) {
    auto const bytes = memory.take(64);
    auto const text = transport_failure([&] {
      auto outgoing = t.send_async(0, bytes);
      t.wait(outgoing);
    });
    EXPECT_EQ(
        text,
        "globalq: send: rank 0 of 1: a message of this worker to itself lacks its send or its receive; post "
        "both before the first wait");
    EXPECT_EQ(t.communicator(), nullptr);
    EXPECT_EQ(transport_failure([&] { t.synchronize(); }), text);  // the first error is told again
    EXPECT_EQ(transport_failure([&] { t.allgather({}, {}); }), text);
  });
  alone([](nccl& t, arena& memory) {
    auto const bytes = memory.take(64);
    auto const text = transport_failure([&] {
      auto incoming = t.recv_async(0, bytes.first(3));
      auto outgoing = t.send_async(0, bytes.first(4));
      t.wait(incoming);
    });
    EXPECT_TRUE(contains(text, "expected 3 bytes from rank 0, which sent 4")) << text;
  });
}

TEST(Nccl, a_request_that_is_given_up_breaks_the_transport) {
  alone([](nccl& t, arena& memory) {
    auto const bytes = memory.take(64);
    { auto const unused = t.recv_async(0, bytes); }
    EXPECT_EQ(t.communicator(), nullptr);
    auto const text = transport_failure([&] { static_cast<void>(t.send_async(0, bytes)); });
    EXPECT_TRUE(contains(text, "a request was destroyed before it was waited for")) << text;
  });
}

TEST(Nccl, a_communicator_of_the_caller_stays_alive) {
  alone([](nccl& t, arena& memory) {
    {
      nccl borrowed{t.communicator(), t.stream(), patient};
      gq::transport::barrier(borrowed);
      borrowed.synchronize();
    }
    auto const bytes = memory.take(64);
    auto incoming = t.recv_async(0, bytes.first(32));
    auto outgoing = t.send_async(0, bytes.last(32));
    t.wait(incoming);
    t.wait(outgoing);
    t.synchronize();
    memory.give_back();
  });
}

// Worker 0 sends and receives in one group, worker 1 in two, with a pause of the host in between.
TEST(Nccl, the_first_receive_can_be_posted_ahead_of_its_time) {
  for (int const workers : worlds()) {
    if (workers < 2) continue;
    nccl_harness::run(workers, patient, [](staged& self) {
      if (self.rank() > 1) return;
      std::vector<std::byte> in(5), out = pattern(0, 0, 5);
      if (self.rank() == 0) {
        auto incoming = self.recv_async(1, in);
        auto outgoing = self.send_async(1, out);
        self.wait(outgoing);
        self.wait(incoming);
        EXPECT_EQ(in, pattern(0, 0, 5));
      } else {
        auto incoming = self.recv_async(0, in);
        self.wait(incoming);
        auto outgoing = self.send_async(0, in);
        self.wait(outgoing);
      }
    });
  }
}

TEST(Nccl, another_transport_can_carry_the_id) {
  for (int const workers : worlds())
    nccl_harness::run(workers, patient, [](staged& host) {
      nccl again{host, host.inner().stream(), patient};
      EXPECT_EQ(again.rank(), host.rank());
      EXPECT_EQ(again.size(), host.size());
      std::vector<int> ranks(static_cast<std::size_t>(again.size()), -1);
      gq::transport::allgather_value(again, again.rank(), std::span{ranks});
      for (int rank = 0; rank < again.size(); ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank);
    });
}

TEST(Nccl, a_barrier_orders_the_streams_of_all_workers) {
  for (int const workers : worlds()) {
    std::atomic<int> arrived{0};
    nccl_harness::run(workers, patient, [&](staged& self) {
      nccl& t = self.inner();
      ++arrived;
      gq::transport::barrier(t);
      t.synchronize();
      EXPECT_EQ(arrived, workers);
    });
  }
}

}  // namespace globalq_test
