// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: moves device memory over a host-memory transport, through pinned buffers where necessary.

#include "../core/error.hpp"
#include "../kernel/stream.hpp"
#include "../stream.hpp"
#include "collectives.hpp"
#include "concept.hpp"

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::transport {

/// @brief A transport for vectors in device memory over one that moves host memory: mpi, shared_memory, threads.
///
/// Each side copies a message once, between the device and a pinned buffer. A send waits for the stream, because the
/// bytes must be complete before the host sends them. After wait(), a received message is on the stream: work that is
/// enqueued later sees the bytes. The device therefore computes while the host waits for the network.
/// If the host transport moves device memory itself (mpi between nodes, with a CUDA-aware MPI), messages are not
/// copied, and a receive waits for the stream before it starts.
///
/// @code
/// gq::transport::mpi hosts{MPI_COMM_WORLD};
/// gq::transport::staged workers{hosts, Kokkos::Cuda{}};
/// gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
/// @endcode
/// @tparam Host   a transport
/// @tparam Space  execution space of vectors and kernels; one instance of it is the stream
/// @note Not thread-safe; the host transport must outlive it.
template <Transport Host, class Space = Kokkos::DefaultExecutionSpace>
class staged {
  struct buffer {
    explicit buffer(std::shared_ptr<byte_memory> const& pinned) : memory(pinned) {}
    byte_buffer memory;
    std::size_t room = 0;
    bool taken = false;
    std::uint64_t free_after = 0;  ///< number of the fence after which no copy reads it
  };

 public:
  using execution_space = Space;
  static constexpr bool on_stream = true;
  /// The host waits for every message.
  static constexpr bool host_driven = true;

  /// @brief A transfer. Destroying it before wait() gives it up.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept
        : inner_{std::move(other.inner_)},
          buffer_{std::exchange(other.buffer_, nullptr)},
          to_{other.to_},
          direct_{std::exchange(other.direct_, false)} {}
    request& operator=(request&& other) noexcept {
      inner_ = std::move(other.inner_);
      buffer_ = std::exchange(other.buffer_,
                              nullptr);  // a buffer that was given up stays taken: it may still be written
      to_ = other.to_;
      direct_ = std::exchange(other.direct_, false);
      return *this;
    }

   private:
    friend class staged;
    typename Host::request inner_{};
    buffer* buffer_ = nullptr;
    std::span<std::byte> to_;  ///< of a receive
    bool direct_ = false;      ///< the host transport moves the device's memory
  };

  /// @param host   this worker's endpoint
  /// @param space  the stream
  /// @pre          Kokkos is initialized
  explicit staged(Host& host, Space const& space = Space()) : host_{host}, on_{space} {}
  staged(staged const&) = delete;
  staged& operator=(staged const&) = delete;
  ~staged() { on_.fence(); }

  [[nodiscard]] int rank() const noexcept { return host_.rank(); }
  [[nodiscard]] int size() const noexcept { return host_.size(); }
  [[nodiscard]] Space const& execution() const noexcept { return on_.instance(); }

  [[nodiscard]] std::size_t chunk_bytes() const requires OwnChunkBytes<Host> { return host_.chunk_bytes(); }
  [[nodiscard]] std::uint64_t bytes_sent() const requires OwnBytesSent<Host> { return host_.bytes_sent(); }
  void retain(std::shared_ptr<void> buffers) requires OwnRetain<Host> { host_.retain(std::move(buffers)); }

  /// @brief Starts a send; waits until the stream has written the bytes.
  /// @param bytes  device memory, written by work that is already on the stream; unchanged until wait()
  /// @throws       configuration_error while the stream is being captured; the host transport's errors
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes) {
    refuse_capture("send");
    request r;
    if (direct(peer)) {
      fence();
      r.inner_ = host_.send_async(peer, bytes);
      r.direct_ = true;
      return r;
    }
    r.buffer_ = take(bytes.size());
    auto const staging = r.buffer_->memory.get(r.buffer_->room).first(bytes.size());
    if (!bytes.empty()) on_.copy_out(staging.data(), bytes.data(), bytes.size());
    fence();
    r.inner_ = host_.send_async(peer, staging);
    return r;
  }

  /// @brief Starts a receive.
  /// @param bytes  device memory; written on the stream, after wait()
  /// @throws       configuration_error while the stream is being captured; the host transport's errors
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes) {
    refuse_capture("recv");
    request r;
    if (direct(peer)) {
      fence();  // kernels that are on the stream may still use this memory
      r.inner_ = host_.recv_async(peer, bytes);
      r.direct_ = true;
      return r;
    }
    r.buffer_ = take(bytes.size());
    r.to_ = bytes;
    r.inner_ = host_.recv_async(peer, r.buffer_->memory.get(r.buffer_->room).first(bytes.size()));
    return r;
  }

  /// @brief Waits for the message. Work that is enqueued from now on sees received bytes.
  /// @throws the host transport's errors
  void wait(request& posted) {
    if (posted.direct_) {
      host_.wait(posted.inner_);
      posted.direct_ = false;
    }
    if (posted.buffer_ == nullptr) return;
    host_.wait(posted.inner_);
    buffer& b = *std::exchange(posted.buffer_, nullptr);
    b.taken = false;
    if (posted.to_.empty()) return;
    on_.copy_in(posted.to_.data(), b.memory.get(b.room).data(), posted.to_.size());
    b.free_after = fences_ + 1;
  }

  /// @brief Gives every worker the bytes of all, in device memory.
  /// @shape  mine: b bytes; all: size() * b bytes; mine may be slot rank() of all
  /// @throws configuration_error; the host transport's errors
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    detail::expect_room_for_all(*this, mine.size(), all.size());
    refuse_capture("allgather");
    if (mine.empty())
      return transport::allgather(host_, std::span<std::byte const>{}, std::span<std::byte>{});
    auto const out = small_.get(all.size());
    auto const own = out.subspan(static_cast<std::size_t>(rank()) * mine.size(), mine.size());
    on_.copy_out(own.data(), mine.data(), mine.size());
    fence();
    transport::allgather(host_, own, out);
    on_.copy_in(all.data(), out.data(), all.size());
    fence();  // the next call reuses the buffer
  }

  /// @brief Replaces every worker's values by the sum over all workers, in device memory.
  template <Summand Value>
  requires OwnAllreduceSum<Host, Value>
  void allreduce_sum(std::span<Value> values) {
    refuse_capture("allreduce_sum");
    if (values.empty()) return host_.allreduce_sum(values);
    auto const staging = small_.get(values.size_bytes());
    on_.copy_out(staging.data(), values.data(), values.size_bytes());
    fence();
    host_.allreduce_sum(std::span(reinterpret_cast<Value*>(staging.data()), values.size()));
    on_.copy_in(values.data(), staging.data(), values.size_bytes());
    fence();
  }

 private:
  void fence() {
    on_.fence();
    ++fences_;
  }

  bool direct(int peer) const {
    if constexpr (OwnDeviceMemory<Host>) return host_.takes_device_memory(peer);
    return false;
  }

  void refuse_capture(char const* operation) const {
    if (on_.capturing())
      throw configuration_error{globalq::detail::worker_message(
          operation, rank(), size(), "the stream is being captured, and the host cannot take part in a graph",
          "use transport::nccl in graphs")};
  }

  /// Buffer sizes come in eight steps per octave, so that frames whose length varies between calls reuse buffers.
  static std::size_t room_for(std::size_t bytes) {
    std::size_t const step = std::bit_ceil(bytes + 1) / 16;
    return step == 0 ? bytes : (bytes + step - 1) / step * step;
  }

  /// The smallest free buffer that is large enough, or a new one.
  buffer* take(std::size_t bytes) {
    buffer* best = nullptr;
    for (auto const& b : buffers_)
      if (!b->taken && b->free_after <= fences_ && b->room >= bytes &&
          (best == nullptr || b->room < best->room))
        best = b.get();
    if (best == nullptr) {
      buffers_.push_back(std::make_unique<buffer>(on_.pinned_memory()));
      best = buffers_.back().get();
      best->room = room_for(bytes);
    }
    best->memory.get(best->room);  // allocate before marking it taken: this may throw
    best->taken = true;
    return best;
  }

  Host& host_;
  kernel::stream_executor<Space> on_;
  std::vector<std::unique_ptr<buffer>> buffers_;
  byte_buffer small_{on_.pinned_memory()};
  std::uint64_t fences_ = 0;
};

template <class Host>
staged(Host&) -> staged<Host>;
template <class Host, class Space>
staged(Host&, Space) -> staged<Host, Space>;

}  // namespace GLOBALQ_ABI::transport
