// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: type-erased endpoint of one worker, which calls and schedules use.

#include "../core/error.hpp"
#include "collectives.hpp"
#include "concept.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <Kokkos_Core.hpp>

namespace GLOBALQ_ABI::transport {

/// @brief One worker's endpoint of any transport; a Transport itself.
///
/// Members have the same meaning as in Transport. An endpoint has all optional members, with the defaults below if
/// the transport lacks them. A request is the number of a slot that holds the transport's request, so repeated
/// transfers allocate nothing.
class endpoint {
 public:
  /// @brief A transfer. Destroying it before wait() gives it up. The endpoint must outlive it.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept : of_(std::exchange(other.of_, nullptr)), slot_(other.slot_) {}
    request& operator=(request&& other) noexcept {
      request old(std::move(*this));
      of_ = std::exchange(other.of_, nullptr);
      slot_ = other.slot_;
      return *this;
    }
    ~request() {
      if (of_ != nullptr) of_->give_up(slot_);
    }

   private:
    friend class endpoint;
    request(endpoint& of, std::uint32_t slot) : of_(&of), slot_(slot) {}
    endpoint* of_ = nullptr;
    std::uint32_t slot_ = 0;
  };

  endpoint(endpoint const&) = delete;
  endpoint& operator=(endpoint const&) = delete;
  virtual ~endpoint() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes) {
    request started(*this, start_send(peer, bytes));
    count(bytes.size());
    return started;
  }
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes) {
    request started(*this, start_recv(peer, bytes));
    count(0);
    return started;
  }
  void wait(request& r) {
    if (r.of_ == nullptr) return;
    finish(r.slot_);  // if it throws, the request's destructor gives up the transfer
    r.of_ = nullptr;
  }

  /// @brief allgather of OwnAllgather, if the transport has it. @returns false if it does not; then nothing was done
  bool own_allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    if (!gather(mine, all)) return false;
    count(mine.size() * static_cast<std::uint64_t>(size_ - 1));
    return true;
  }

  /// @brief Whether the transport adds every Summand type itself.
  [[nodiscard]] virtual bool adds() const { return false; }
  /// @brief allreduce_sum of OwnAllreduceSum.
  /// @throws configuration_error if the transport does not add such values
  template <Summand Value>
  void allreduce_sum(std::span<Value> values) {
    add(values);
    count(size_ > 1 ? values.size_bytes() : 0);
  }

  /// @brief chunk_bytes of OwnChunkBytes.
  [[nodiscard]] virtual std::size_t chunk_bytes() const { return default_chunk_bytes; }
  /// @brief Whether the host takes part in every message; otherwise messages are groups on a stream.
  [[nodiscard]] virtual bool host_driven() const { return true; }

  /// @brief Bytes that this endpoint has sent: those of each send, n - 1 times the bytes of this worker in an
  ///        allgather, and once the bytes of an allreduce_sum (0 with one worker). Any thread may ask.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept {
    return bytes_sent_.load(std::memory_order_relaxed);
  }
  /// @brief Transfers that this endpoint has started: sends, receives, allgathers and sums.
  [[nodiscard]] std::uint64_t transfers() const noexcept {
    return transfers_.load(std::memory_order_relaxed);
  }
  /// @brief retain of OwnRetain; does nothing if the transport has none.
  virtual void retain(std::shared_ptr<void> /*buffers*/) {}
  /// @brief Call this before another thread moves messages.
  /// @throws configuration_error if the transport does not support that
  virtual void expect_threads() {}

 protected:
  endpoint(int rank, int size) : rank_(rank), size_(size) {}

  [[noreturn]] static void refuse_sum() {
    throw configuration_error(
        "globalq: allreduce_sum: this transport does not add such numbers itself; use schedule ring, tree, "
        "sra or allgather with it");
  }

 private:
  virtual bool gather(std::span<std::byte const> /*mine*/, std::span<std::byte> /*all*/) { return false; }
  virtual void add(std::span<std::int8_t>) { refuse_sum(); }
  virtual void add(std::span<std::int16_t>) { refuse_sum(); }
  virtual void add(std::span<std::int32_t>) { refuse_sum(); }
  virtual void add(std::span<float>) { refuse_sum(); }
  virtual std::uint32_t start_send(int peer, std::span<std::byte const> bytes) = 0;
  virtual std::uint32_t start_recv(int peer, std::span<std::byte> bytes) = 0;
  virtual void finish(std::uint32_t slot) = 0;
  virtual void give_up(std::uint32_t slot) noexcept = 0;

  /// A transfer has started. One thread at a time starts them.
  void count(std::uint64_t bytes) noexcept {
    bytes_sent_.store(bytes_sent() + bytes, std::memory_order_relaxed);
    transfers_.store(transfers() + 1, std::memory_order_relaxed);
  }

  int rank_, size_;
  std::atomic<std::uint64_t> bytes_sent_ = 0, transfers_ = 0;
};

/// @brief Endpoint of a transport that moves memory of an execution space, ordered with enqueued work; see OnStream.
template <class Space>
class stream_endpoint : public endpoint {
 public:
  using execution_space = Space;
  static constexpr bool on_stream = true;

  [[nodiscard]] Space const& execution() const noexcept { return execution_; }
  /// @brief Blocks until all enqueued work has run, or the deadline. @returns false if the transport has no such wait
  virtual bool synchronize() { return false; }

 protected:
  stream_endpoint(int rank, int size, Space execution)
      : endpoint(rank, size), execution_(std::move(execution)) {}

 private:
  Space execution_;
};

namespace detail {

/// Throws unless Kokkos is running.
inline void expect_kokkos(char const* transport) {
  if (!Kokkos::is_initialized() || Kokkos::is_finalized())
    throw configuration_error{
        std::string{"globalq: transport::"} + transport +
        ": Kokkos is not running; keep a Kokkos::ScopeGuard in main() while globalq is used"};
}

/// Endpoint of a transport of known type.
/// @tparam Base  endpoint, or stream_endpoint of the transport's space
template <Transport T, class Base>
class endpoint_of final : public Base {
  static constexpr bool is_endpoint = std::is_base_of_v<endpoint, T>;

 public:
  explicit endpoint_of(T& t) requires std::is_same_v<Base, endpoint> : Base(t.rank(), t.size()), t_(t) {}
  explicit endpoint_of(T& t) requires(!std::is_same_v<Base, endpoint>)
      : Base(t.rank(), t.size(), t.execution()), t_(t) {}

  bool adds() const override {
    if constexpr (is_endpoint) return t_.adds();
    return AddsSummands<T>;
  }
  std::size_t chunk_bytes() const override { return chunk_bytes_of(t_); }
  void retain(std::shared_ptr<void> buffers) override {
    if constexpr (OwnRetain<T>) t_.retain(std::move(buffers));
  }
  void expect_threads() override {
    if constexpr (requires { t_.expect_threads(); }) t_.expect_threads();
  }

  bool host_driven() const override { return transport::host_driven(t_); }
  bool synchronize() {  // of a stream_endpoint
    if constexpr (requires { bool{t_.synchronize()}; }) {
      return t_.synchronize();
    } else if constexpr (requires { t_.synchronize(); }) {
      t_.synchronize();
      return true;
    }
    return false;
  }

 private:
  bool gather(std::span<std::byte const> mine, std::span<std::byte> all) override {
    if constexpr (is_endpoint) return t_.own_allgather(mine, all);
    if constexpr (OwnAllgather<T>) t_.allgather(mine, all);
    return OwnAllgather<T>;
  }
  void add(std::span<std::int8_t> values) override { add_values(values); }
  void add(std::span<std::int16_t> values) override { add_values(values); }
  void add(std::span<std::int32_t> values) override { add_values(values); }
  void add(std::span<float> values) override { add_values(values); }
  std::uint32_t start_send(int peer, std::span<std::byte const> bytes) override {
    return start([&] { return t_.send_async(peer, bytes); });
  }
  std::uint32_t start_recv(int peer, std::span<std::byte> bytes) override {
    return start([&] { return t_.recv_async(peer, bytes); });
  }
  template <class Start>
  std::uint32_t start(Start const& transfer) {
    if (free_.empty()) {
      // at least two, so that memory for a send is there before the receive beside it is started
      std::size_t const more = std::max<std::size_t>(slots_.size(), 2);
      free_.reserve(slots_.size() + more);  // room for returning all slots
      slots_.resize(slots_.size() + more);
      for (std::size_t k = slots_.size(); k-- != slots_.size() - more;)
        free_.push_back(static_cast<std::uint32_t>(k));
    }
    std::uint32_t const slot = free_.back();
    slots_[slot].emplace(transfer());
    free_.pop_back();
    return slot;
  }
  void finish(std::uint32_t slot) override {
    t_.wait(*slots_[slot]);
    give_up(slot);
  }
  void give_up(std::uint32_t slot) noexcept override {
    slots_[slot].reset();
    free_.push_back(slot);
  }

  template <class Value>
  void add_values(std::span<Value> values) {
    if constexpr (OwnAllreduceSum<T, Value>)
      t_.allreduce_sum(values);
    else
      endpoint::refuse_sum();
  }

  T& t_;
  std::vector<std::optional<typename T::request>> slots_;
  std::vector<std::uint32_t> free_;
};

/// Where a transport's vectors are: HostSpace, or the execution space of its stream.
template <class T>
struct place_of_vectors {
  using type = Kokkos::HostSpace;
};
template <OnStream T>
struct place_of_vectors<T> {
  using type = typename T::execution_space;
};

/// The endpoint type for vectors in a place.
template <class Place>
struct endpoint_at {
  using type = stream_endpoint<Place>;
};
template <>
struct endpoint_at<Kokkos::HostSpace> {
  using type = endpoint;
};

}  // namespace detail

/// @brief Where a transport's vectors are: Kokkos::HostSpace, or the execution space of its stream.
template <class T>
using place_of = typename detail::place_of_vectors<T>::type;

/// @brief endpoint, or stream_endpoint<Place>.
template <class Place>
using endpoint_for = typename detail::endpoint_at<Place>::type;

/// @brief The endpoint of a transport, which must outlive it.
template <Transport T>
std::unique_ptr<endpoint_for<place_of<T>>> make_endpoint(T& t) {
  return std::make_unique<detail::endpoint_of<T, endpoint_for<place_of<T>>>>(t);
}

}  // namespace GLOBALQ_ABI::transport
