// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Transport: the processes of an MPI communicator, with bytes in host memory, and in a device's where MPI can.
///
/// Processes of one node exchange messages through memory that they share, the others by MPI.

#if !__has_include(<mpi.h>)
#error "globalq: transport/mpi.hpp needs <mpi.h>; link the target globalq::mpi, or compile with mpicxx"
#endif
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "globalq/core/error.hpp"
#include "globalq/transport/collectives.hpp"
#include "globalq/transport/concept.hpp"
#include "globalq/transport/detail/mpi_device.hpp"
#include "globalq/transport/detail/mpi_node.hpp"

namespace GLOBALQ_ABI::transport {

/// @brief How processes of one node share memory. The same on every worker.
struct sharing {
  bool enabled = true;  ///< false: all messages go by MPI

  /// At most so many processes of a node share memory, neighbours in rank; 0: all. With 2, a machine that runs
  /// four processes looks like two nodes, which is what tests are after.
  int group = 0;

  /// Long messages are read from the sender's own memory (process_vm_readv), where the system lets processes
  /// do so; false: they pass through the shared memory as short ones do.
  bool single_copy = true;

  /// Shared memory for the messages from one process to another: a power of two of at least 256; 0: 256 KiB,
  /// less for many processes.
  std::size_t ring_bytes = 0;
};

/// @brief One process of an MPI communicator.
///
/// Works on its own copy of the communicator, so its messages never mix with the caller's. One thread at a
/// time uses it; which threads may is settled by the level given to MPI_Init_thread.
///
/// Messages between processes of one node go through memory that they share (see sharing), which is faster than
/// the MPI library's own for short messages, and as fast or faster for long ones (docs/design.md). The bits of
/// results do not depend on it. GLOBALQ_SHARED_MEMORY=off in the environment of any process switches it off,
/// GLOBALQ_SINGLE_COPY=off the reading of other processes' memory. Where the system refuses shared memory, all
/// messages go by MPI; shares_memory() tells.
///
/// Failures: every MPI status is checked, and every wait has a deadline. After a wait that threw, or a
/// request that was destroyed before it was waited for, messages would be paired wrongly, so the transport is
/// broken: every later use throws at once. The workers of the same node hear of it in their next wait that is
/// not over at once; the others learn it by their own deadlines, since MPI has no way to tell them. A new
/// transport may then be made from the same communicator, by all workers together.
///
/// Where the sizes of a send and its receive differ, the receiver throws; the sender cannot know.
///
/// Memory: what is given up within a node is not touched any more. Among nodes, a receive that is given up is cancelled. A send, or a transfer that is half done, cannot be: see
/// retain().
class mpi {
 public:
  /// @brief Space of kernels when the caller gives none.
  using execution_space = Kokkos::DefaultHostExecutionSpace;

  /// @brief The largest number of bytes that travels as one MPI message; MPI counts are int.
  static constexpr std::size_t largest_piece = std::size_t{1} << 30;

  /// @brief A send or receive under way. It refers to its transport, which outlives it. Destroying it before
  ///        wait() gives the transfer up and breaks the transport.
  class request {
   public:
    request() = default;
    request(request&& other) noexcept
        : owner_{std::exchange(other.owner_, nullptr)},
          bytes_{other.bytes_},
          peer_{other.peer_},
          sends_{other.sends_},
          shared_{other.shared_},
          first_{other.first_},
          more_{std::move(other.more_)} {}
    request& operator=(request&& other) noexcept {
      request old{std::move(*this)};
      owner_ = std::exchange(other.owner_, nullptr);
      bytes_ = other.bytes_;
      peer_ = other.peer_;
      sends_ = other.sends_;
      shared_ = other.shared_;
      first_ = other.first_;
      more_ = std::move(other.more_);
      return *this;
    }
    ~request() {
      if (owner_ != nullptr) owner_->give_up(*this);
    }

   private:
    friend class mpi;
    request(mpi& owner, std::size_t bytes, int peer, bool sends)
        : owner_{&owner}, bytes_{bytes}, peer_{peer}, sends_{sends} {}

    MPI_Request& piece(std::size_t index) { return index == 0 ? first_ : more_[index - 1]; }

    mpi* owner_ = nullptr;
    std::size_t bytes_ = 0;
    int peer_ = 0;
    bool sends_ = false;
    detail::shared_transfer* shared_ = nullptr;  // within a node; the rest is for MPI
    MPI_Request first_ = MPI_REQUEST_NULL;
    std::vector<MPI_Request> more_;  // the further pieces of a message above one piece
  };

  /// @brief Joins the processes of a communicator; all of them call it.
  /// @param communicator  an intracommunicator; it is copied, and not used afterwards
  /// @param settings      the deadline of each wait; above 0, and counted as at most a year
  /// @param piece_bytes   longer messages are cut in pieces of this size, in [1, largest_piece]; the same on
  ///                      every worker
  /// @param within_node   how processes of one node share memory
  /// @throws              configuration_error when MPI is not running or an argument is wrong;
  /// transport_error
  explicit mpi(MPI_Comm communicator, options settings = {}, std::size_t piece_bytes = largest_piece,
               sharing within_node = {})
      : mpi{communicator, settings, piece_bytes, within_node, reach::any} {}

  mpi(mpi const&) = delete;
  mpi& operator=(mpi const&) = delete;

  /// @brief Frees the communicator, unless MPI is finalised or transfers may still be under way.
  ~mpi() {
    if (outstanding_ != 0)
      for (auto& buffers : retained_) keep_forever(std::move(buffers));
    if (broken_ == nullptr && !finalised()) MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] std::string_view name() const noexcept { return "mpi"; }

  /// @brief With how many other workers this one exchanges messages through shared memory.
  [[nodiscard]] int shares_memory() const noexcept { return here_.node == nullptr ? 0 : here_.processes - 1; }

  /// @brief Whether messages to and from @p peer may lie in memory of a CUDA device: where the MPI library says so, and
  ///        the peer is on another node. GLOBALQ_DEVICE_MEMORY=off in the environment of this process says no.
  [[nodiscard]] bool takes_device_memory(int peer) const noexcept {
    return device_memory_ && here_.place_of(peer) < 0;
  }

  /// @brief How long messages had best be when a vector is sent in many.
  ///
  /// Between nodes short enough for MPI to send them at once, without asking the receiver (up to 64 KiB over TCP): over
  /// links of 1 Gbit/s means take 0.6 to 0.8 of the time that messages of 256 KiB take.
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return std::size_t{shares_memory() + 1 == size_ ? 256U : 32U} << 10;
  }

  /// @brief Bytes handed over for sending so far: those of each send, n - 1 times the own bytes of an
  ///        allgather, and once the bytes of an allreduce_sum (0 with one worker).
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

  /// @brief The default instance of the host's execution space.
  /// @throws configuration_error when Kokkos is not running
  [[nodiscard]] execution_space execution() const {
    if (!Kokkos::is_initialized() || Kokkos::is_finalized())
      refuse("Kokkos is not running", "keep a Kokkos::ScopeGuard in main() while globalq is used");
    return {};
  }

  /// @brief Keeps buffers alive while MPI may use them: for a caller that gives up in the middle.
  ///
  /// They are dropped when no transfer is under way any more; where transfers never finish, they live as long
  /// as the process.
  void retain(std::shared_ptr<void> buffers) noexcept {
    if (outstanding_ == 0) return;
    try {
      retained_.push_back(buffers);
    } catch (std::bad_alloc const&) {
      keep_forever(std::move(buffers));
    }
  }

  /// @brief Starts to send; `bytes` are read until wait() returns.
  /// @throws configuration_error when there is no such peer; transport_error
  [[nodiscard]] request send_async(int peer, std::span<std::byte const> bytes) {
    detail::expect_peer(*this, "send", peer);
    expect_usable("send");
    bytes_sent_ += bytes.size();
    return start(true, peer, const_cast<std::byte*>(bytes.data()), bytes.size());
  }

  /// @brief Starts to receive; `bytes` are written until wait() returns.
  /// @throws configuration_error when there is no such peer; transport_error
  [[nodiscard]] request recv_async(int peer, std::span<std::byte> bytes) {
    detail::expect_peer(*this, "recv", peer);
    expect_usable("recv");
    return start(false, peer, bytes.data(), bytes.size());
  }

  /// @brief Returns when the transfer is done: when its bytes arrived, or may be written again.
  /// @throws transport_error when sizes differ, time is up or MPI fails
  void wait(request& transfer) {
    if (transfer.owner_ == nullptr) return;
    expect_usable(transfer.sends_ ? "send" : "recv");
    if (transfer.shared_ != nullptr) return wait_within_node(transfer);
    std::size_t const pieces = pieces_of(transfer.bytes_);
    for (std::size_t i = 0; i < pieces; ++i) {
      MPI_Status status;
      int code = MPI_SUCCESS;
      auto const how = poll(transfer.piece(i), status, code, deadline_);
      if (how == ending::failed) fail_because_of_another(transfer.sends_ ? "send" : "recv");
      if (how == ending::late) fail_late(transfer);
      if (transfer.sends_)
        check(code, "MPI_Test of MPI_Isend");
      else
        expect_piece(transfer, i, pieces, status, code);
    }
    transfer.owner_ = nullptr;
    settle_one();
  }

  /// @brief Gives every worker the bytes of all. Workers call together.
  ///
  /// A failure leaves `all` alone, but for the own slot, up to 4,080 bytes a worker within a node, and up to 64 KiB
  /// in all among nodes.
  /// @shape  mine: b bytes, the same b on every worker; all: size() * b bytes
  /// @throws configuration_error when `all` has another size; transport_error
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
    detail::expect_room_for_all(*this, mine.size(), all.size());
    expect_usable("allgather");
    if (shares_memory() + 1 == size_ && size_ > 1) return allgather_within_node(mine, all);
    if (all.size() > piece_bytes_) return detail::allgather_by_messages(*this, mine, all);
    bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
    detail::copy_to_own_slot(mine, all, rank_);
    bool const staged = all.size() <= 65536;
    if (staged) {
      if (staging_ == nullptr) staging_ = std::make_shared<std::vector<std::byte>>();
      if (staging_->size() < all.size()) staging_->resize(all.size());
      detail::copy_to_own_slot(mine, *staging_, rank_);
    }
    int const count = static_cast<int>(mine.size());
    MPI_Request gather = MPI_REQUEST_NULL;
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, staged ? staging_->data() : all.data(), count, MPI_BYTE,
                         comm_, &gather),
          "MPI_Iallgather");
    finish_collective(gather, "allgather", "MPI_Test of MPI_Iallgather");
    if (staged && !all.empty()) std::memcpy(all.data(), staging_->data(), all.size());
  }

  /// @brief Makes every worker's lanes the sum over all workers. Workers call together.
  ///
  /// Integers are added exactly as long as the sums fit. The order in which floats are added is the
  /// library's.
  /// @shape       lanes: n values, the same n on every worker
  /// @throws      transport_error; the lanes are then unspecified, and MPI may still write to them (retain())
  /// @determinism integers: exact. float: the same bits on every worker where the library computes each sum
  ///              once or adds in one order, as the algorithms of Open MPI and MPICH do
  template <SumLane Lane>
  void allreduce_sum(std::span<Lane> lanes) {
    expect_usable("allreduce_sum");
    if (size_ == 1) return;
    bytes_sent_ += lanes.size_bytes();
    std::size_t const most = std::max<std::size_t>(1, piece_bytes_ / sizeof(Lane));
    for (std::size_t at = 0; at < lanes.size(); at += most) {
      int const count = static_cast<int>(std::min(most, lanes.size() - at));
      MPI_Request sum = MPI_REQUEST_NULL;
      check(MPI_Iallreduce(MPI_IN_PLACE, lanes.data() + at, count, type_of<Lane>(), MPI_SUM, comm_, &sum),
            "MPI_Iallreduce");
      finish_collective(sum, "allreduce_sum", "MPI_Test of MPI_Iallreduce");
    }
  }

  /// Throws unless another thread than the one that initialised MPI may move messages (allreduce_mean's start()).
  /// @throws configuration_error
  void expect_threads() {
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_SERIALIZED)
      refuse("MPI was not initialised for calls from other threads",
             "initialise it with MPI_Init_thread and MPI_THREAD_MULTIPLE (MPI_THREAD_SERIALIZED where "
             "nothing else uses "
             "MPI meanwhile)");
  }

 protected:
  enum class reach { any, one_node };

  mpi(MPI_Comm communicator, options const& settings, std::size_t piece_bytes, sharing const& within_node,
      reach who)
      : deadline_{std::min<std::chrono::nanoseconds>(settings.deadline, std::chrono::hours{24 * 365})},
        piece_bytes_{piece_bytes} {
    int flag = 0;
    MPI_Initialized(&flag);
    if (flag == 0) refuse("MPI is not initialised", "call MPI_Init before making the transport");
    MPI_Finalized(&flag);
    if (flag != 0) refuse("MPI is finalised", "make the transport before MPI_Finalize");
    if (communicator == MPI_COMM_NULL)
      refuse("the communicator is MPI_COMM_NULL", "give one that has processes");
    if (settings.deadline <= std::chrono::nanoseconds::zero())
      refuse("the deadline is not above 0 and would end every wait at once", "give a longer time");
    if (piece_bytes < 1 || piece_bytes > largest_piece)
      refuse("pieces of " + std::to_string(piece_bytes) + " bytes cannot be sent",
             "give at least 1 and at most " + std::to_string(largest_piece) + " bytes");
    if (within_node.group < 0)
      refuse("groups of " + std::to_string(within_node.group) + " processes cannot share memory",
             "give at least 1, or 0 for all of a node");
    if (within_node.ring_bytes != 0 &&
        (within_node.ring_bytes < 256 || !std::has_single_bit(within_node.ring_bytes)))
      refuse("rings of " + std::to_string(within_node.ring_bytes) + " bytes cannot be used",
             "give a power of two of at least 256, or 0 for the usual size");
    check(MPI_Comm_rank(communicator, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(communicator, &size_), "MPI_Comm_size");
    check(MPI_Comm_test_inter(communicator, &flag), "MPI_Comm_test_inter");
    if (flag != 0) refuse("the communicator has two groups", "merge them with MPI_Intercomm_merge");
    check(MPI_Comm_dup(communicator, &comm_), "MPI_Comm_dup");
    int const code = MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS) MPI_Comm_free(&comm_);
    check(code, "MPI_Comm_set_errhandler");
    try {
      device_memory_ = detail::mpi_takes_cuda() && !switched_off("GLOBALQ_DEVICE_MEMORY");
      join(within_node, who);
      if (who == reach::one_node) expect_one_node();
    } catch (...) {
      MPI_Comm_free(&comm_);
      throw;
    }
  }

 private:
  static constexpr int last_piece = 0;  // tags: whether more of the message follows
  static constexpr int more_follows = 1;
  static constexpr int never_sent = 2;

  template <class Lane>
  static MPI_Datatype type_of() {
    if constexpr (std::same_as<Lane, std::int8_t>) return MPI_INT8_T;
    if constexpr (std::same_as<Lane, std::int16_t>) return MPI_INT16_T;
    if constexpr (std::same_as<Lane, std::int32_t>) return MPI_INT32_T;
    return MPI_FLOAT;
  }

  /// MPI may still use these buffers: they live as long as the process. Allocates nothing.
  static void keep_forever(std::shared_ptr<void> buffers) noexcept {
    alignas(std::shared_ptr<void>) std::byte never_destroyed[sizeof(std::shared_ptr<void>)];
    ::new (never_destroyed) std::shared_ptr<void>(std::move(buffers));
  }

  static bool finalised() noexcept {
    int flag = 0;
    MPI_Finalized(&flag);
    return flag != 0;
  }

  [[noreturn]] static void refuse(std::string const& what, std::string const& remedy) {
    throw configuration_error{"globalq: transport::mpi: " + what + "; " + remedy};
  }

  std::string message(std::string_view operation, std::string_view what, std::string_view remedy) const {
    return globalq::detail::worker_message(operation, rank_, size_, what, remedy);
  }

  /// Throws, and marks the transport broken.
  [[noreturn]] void stop(std::string const& text, char const* why) {
    broken_ = why;
    if (here_.node != nullptr) here_.node->fail(rank_, text);
    throw transport_error{text};
  }

  /// Every MPI status comes here.
  void check(int code, char const* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
      length = std::snprintf(text, sizeof text, "error code %d", code);
    stop(message(call, std::string_view{text, static_cast<std::size_t>(length)},
                 "see the documentation of the MPI library"),
         "an MPI call failed");
  }

  void expect_usable(char const* operation) const {
    if (broken_ != nullptr)
      throw transport_error{message(operation, std::string{"the transport is broken: "} + broken_,
                                    "make a new one from the communicator, on all workers together")};
  }

  std::size_t pieces_of(std::size_t bytes) const {
    return bytes == 0 ? 1 : bytes / piece_bytes_ + (bytes % piece_bytes_ != 0 ? 1 : 0);
  }

  std::size_t bytes_of_piece(std::size_t bytes, std::size_t index) const {
    return std::min(piece_bytes_, bytes - index * piece_bytes_);
  }

  request start(bool sends, int peer, std::byte* data, std::size_t bytes) {
    if (int const place = here_.place_of(peer); place >= 0) {
      auto& started =
          sends ? here_.node->send(place, {data, bytes}) : here_.node->receive(place, {data, bytes});
      request transfer{*this, bytes, peer, sends};
      transfer.shared_ = &started;
      return transfer;
    }
    request transfer{*this, bytes, peer, sends};
    ++outstanding_;
    std::size_t const pieces = pieces_of(bytes);
    if (pieces > 1) transfer.more_.assign(pieces - 1, MPI_REQUEST_NULL);
    for (std::size_t i = 0; i < pieces; ++i) {
      std::byte* const at = data + i * piece_bytes_;
      int const count = static_cast<int>(bytes_of_piece(bytes, i));
      int const tag = i + 1 == pieces ? last_piece : more_follows;
      if (sends)
        check(MPI_Isend(at, count, MPI_BYTE, peer, tag, comm_, &transfer.piece(i)), "MPI_Isend");
      else
        check(MPI_Irecv(at, count, MPI_BYTE, peer, MPI_ANY_TAG, comm_, &transfer.piece(i)), "MPI_Irecv");
    }
    return transfer;
  }

  enum class ending { done, late, failed };

  /// Tests until the request is done, with its status and return code; the time is up; or another worker of the
  /// node has failed.
  ending poll(MPI_Request& transfer, MPI_Status& status, int& code, std::chrono::nanoseconds longest) {
    auto until = std::chrono::steady_clock::time_point{};
    for (unsigned turn = 0;; ++turn) {
      int done = 0;
      code = MPI_Test(&transfer, &done, &status);
      if (code != MPI_SUCCESS || done != 0) return ending::done;
      bool const moved = here_.node != nullptr && here_.node->advance();
      if (turn < 16) continue;
      if (turn == 16) until = std::chrono::steady_clock::now() + longest;
      if (turn % 16 == 0) {
        if (broken_ == nullptr && here_.node != nullptr && here_.node->failed()) return ending::failed;
        if (std::chrono::steady_clock::now() >= until) return ending::late;
      }
      if (!moved) std::this_thread::yield();
    }
  }

  void finish_collective(MPI_Request& transfer, char const* operation, char const* call) {
    MPI_Status status;
    int code = MPI_SUCCESS;
    auto const how = poll(transfer, status, code, deadline_);
    if (how == ending::done) return check(code, call);
    ++outstanding_;  // a collective cannot be cancelled
    broken_ = "a collective was given up";
    if (staging_ != nullptr) retain(staging_);
    if (how == ending::failed) fail_because_of_another(operation);
    stop(message(operation, "waited " + detail::seconds_text(deadline_) + " for all workers to take part",
                 "let every worker make the same calls in the same order, or raise options::deadline"),
         "a collective passed its deadline");
  }

  /// "receive 64 bytes": what the peer of a transfer has not done.
  static std::string missing(request const& transfer) {
    return (transfer.sends_ ? "receive " : "send ") + std::to_string(transfer.bytes_) + " bytes";
  }

  [[noreturn]] void fail_late(request const& transfer) {
    stop(message(transfer.sends_ ? "send" : "recv",
                 "waited " + detail::seconds_text(deadline_) + " for rank " + std::to_string(transfer.peer_) +
                     " to " + missing(transfer),
                 "let every worker make the same calls in the same order, or raise options::deadline"),
         "a wait passed its deadline");
  }

  /// Throws unless the piece has the size and the place in its message that were expected.
  void expect_piece(request const& transfer, std::size_t index, std::size_t pieces, MPI_Status const& status,
                    int code) {
    std::size_t const expected = bytes_of_piece(transfer.bytes_, index);
    bool const last = index + 1 == pieces;
    std::string sent;
    int error_class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      sent = "more";
    } else {
      check(code, "MPI_Test of MPI_Irecv");
      int count = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
      std::size_t const so_far = index * piece_bytes_ + static_cast<std::size_t>(count);
      bool const ended = status.MPI_TAG == last_piece;
      if (static_cast<std::size_t>(count) == expected && ended == last) return;
      sent = ended ? std::to_string(so_far) : "more";
    }
    fail_sizes(transfer, sent);
  }

  [[noreturn]] void fail_sizes(request const& transfer, std::string const& sent) {
    stop(message("recv",
                 "expected " + std::to_string(transfer.bytes_) + " bytes from rank " +
                     std::to_string(transfer.peer_) + ", which sent " + sent,
                 "a send and its receive name the same size"),
         "sizes of a send and its receive differed");
  }

  // ---- Within the node

  static bool switched_off(char const* variable) {
    char const* const value = std::getenv(variable);
    if (value == nullptr) return false;
    std::string_view const text{value};
    return text == "off" || text == "OFF" || text == "0";
  }

  /// Joins the processes of this node, if every worker wants to.
  void join(sharing const& chosen, reach who) {
    bool const enabled = chosen.enabled && !switched_off("GLOBALQ_SHARED_MEMORY");
    int wanted[2] = {enabled || who == reach::one_node ? 1 : 0,
                     chosen.single_copy && !switched_off("GLOBALQ_SINGLE_COPY") ? 1 : 0};
    check(MPI_Allreduce(MPI_IN_PLACE, wanted, 2, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
    if (wanted[0] == 0 || size_ == 1) return;
    here_ = detail::join_node(comm_, chosen.group, wanted[1] == 1, chosen.ring_bytes, deadline_,
                              [this](int code, char const* call) { check(code, call); });
  }

  /// Throws, on every worker, unless all share memory.
  void expect_one_node() {
    int all = shares_memory() + 1 == size_ ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
    if (all == 1) return;
    struct {          // of each rank
      int first;      // rank of its node
      int processes;  // of its node
      char obstacle[256];
      char node[MPI_MAX_PROCESSOR_NAME];
    } mine = {here_.first, here_.processes, {}, {}};
    std::vector<decltype(mine)> ranks(static_cast<std::size_t>(size_));
    std::snprintf(mine.obstacle, sizeof mine.obstacle, "%s", here_.obstacle.c_str());
    int length = 0;
    check(MPI_Get_processor_name(mine.node, &length), "MPI_Get_processor_name");
    check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, ranks.data(), sizeof mine, MPI_BYTE, comm_),
          "MPI_Allgather");
    std::string nodes;
    for (int rank = 0; rank < size_; ++rank) {
      auto const& each = ranks[static_cast<std::size_t>(rank)];
      if (each.obstacle[0] != '\0')
        refuse_sharing(
            std::string{each.obstacle} + " (rank " + std::to_string(rank) + " on " + each.node + ")",
            "enlarge /dev/shm (docker run --shm-size), or use transport::mpi");
      if (each.first != rank) continue;
      nodes += (nodes.empty() ? "" : ", ") + std::to_string(each.processes) + " from rank " +
               std::to_string(rank) + " on " + each.node;
    }
    refuse_sharing("the " + std::to_string(size_) + " processes do not all share memory: " + nodes,
                   "use transport::mpi, which shares memory within each node");
  }

  [[noreturn]] static void refuse_sharing(std::string const& what, std::string const& remedy) {
    throw configuration_error{"globalq: transport::shared_memory: " + what + "; " + remedy};
  }

  /// For waits within the node: lets MPI move what is under way; true if anything is.
  auto mpi_moves() {
    return [this] {
      if (outstanding_ == 0) return false;
      int flag = 0;
      MPI_Iprobe(rank_, never_sent, comm_, &flag, MPI_STATUS_IGNORE);  // only a failing search makes progress
      return true;
    };
  }

  void wait_within_node(request& transfer) {
    int const place = here_.place_of(transfer.peer_);
    auto const how = here_.node->await(*transfer.shared_, place, deadline_, mpi_moves());
    if (how == detail::shared_outcome::done) {
      here_.node->give_back(*transfer.shared_);
      transfer.owner_ = nullptr;
      return;
    }
    if (how == detail::shared_outcome::mismatch)
      fail_sizes(transfer, std::to_string(transfer.shared_->peer_bytes));
    if (how == detail::shared_outcome::late) fail_late(transfer);
    bool const died = how == detail::shared_outcome::died || transfer.shared_->problem == ESRCH;
    if (how == detail::shared_outcome::unreadable && !died)
      stop(message("recv",
                   "could not read " + std::to_string(transfer.bytes_) + " bytes in the memory of rank " +
                       std::to_string(transfer.peer_) + ": " + std::strerror(transfer.shared_->problem),
                   "set GLOBALQ_SINGLE_COPY=off"),
           "the memory of another process could not be read");
    fail_because_of(died ? detail::shared_outcome::died : how, transfer.sends_ ? "send" : "recv",
                    transfer.peer_, missing(transfer));
  }

  void allgather_within_node(std::span<std::byte const> mine, std::span<std::byte> all) {
    bool const small = mine.size() <= detail::shared_offer::most_bytes;
    int peer = 0;  // places are ranks here
    auto const how =
        here_.node->allgather(mine, small ? all : std::span<std::byte>{}, deadline_, peer, mpi_moves());
    if (how != detail::shared_outcome::done) broken_ = "an allgather was given up";
    if (how == detail::shared_outcome::mismatch)
      stop(message("allgather",
                   "called with " + std::to_string(mine.size()) + " bytes, but rank " + std::to_string(peer) +
                       " called with " + std::to_string(here_.node->offered_bytes(peer)),
                   "let every worker make the same calls with the same sizes"),
           "sizes of an allgather differed");
    if (how == detail::shared_outcome::late)
      stop(message("allgather",
                   "waited " + detail::seconds_text(deadline_) + " for rank " + std::to_string(peer) +
                       " to take part",
                   "let every worker make the same calls in the same order, or raise options::deadline"),
           "a collective passed its deadline");
    if (how != detail::shared_outcome::done) fail_because_of(how, "allgather", peer, "take part");
    if (!small) return detail::allgather_by_messages(*this, mine, all);
    bytes_sent_ += mine.size() * (static_cast<std::size_t>(size_) - 1);
  }

  [[noreturn]] void fail_because_of_another(char const* operation) {
    stop(message(
             operation,
             "rank " + std::to_string(here_.node->failed_rank()) + " failed: " + here_.node->failure_text(),
             "mend what it reports"),
         "another worker failed");
  }

  /// Another worker failed, left or died.
  [[noreturn]] void fail_because_of(detail::shared_outcome how, char const* operation, int peer,
                                    std::string const& missing_act) {
    if (how == detail::shared_outcome::failed) fail_because_of_another(operation);
    std::string const who = "rank " + std::to_string(peer);
    if (how == detail::shared_outcome::left)
      stop(message(operation, who + " destroyed its transport and did not " + missing_act,
                   "let every worker make the same calls in the same order"),
           "another worker left");
    stop(message(operation,
                 who + " died (process " +
                     std::to_string(here_.node->pid(here_.place[static_cast<std::size_t>(peer)])) +
                     ") and did not " + missing_act,
                 "see what ended it, and start the job again"),
         "another worker died");
  }

  /// A transfer has ended: MPI uses its bytes no more.
  void settle_one() {
    if (--outstanding_ == 0 && !retained_.empty()) retained_.clear();
  }

  /// Ends a request that nobody waits for any more, if that can be done within a moment.
  void give_up(request& transfer) noexcept {
    if (broken_ == nullptr) {
      broken_ = "a request was destroyed before it was waited for";
      if (here_.node != nullptr) here_.node->fail(rank_, broken_);
    }
    if (transfer.shared_ != nullptr || finalised()) return;
    bool ended = true;
    std::size_t const pieces = std::min(pieces_of(transfer.bytes_), transfer.more_.size() + 1);
    for (std::size_t i = 0; i < pieces; ++i) {
      MPI_Request& piece = transfer.piece(i);
      if (piece == MPI_REQUEST_NULL) continue;
      if (!transfer.sends_) MPI_Cancel(&piece);
      MPI_Status status;
      int code = MPI_SUCCESS;
      ended = poll(piece, status, code, patience_) == ending::done && ended;
      if (!ended) patience_ = std::chrono::nanoseconds::zero();
    }
    if (ended) settle_one();
  }

  int rank_ = 0;
  int size_ = 0;
  std::chrono::nanoseconds const deadline_;
  std::size_t const piece_bytes_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  detail::mpi_node here_;                                               // the processes of this node
  bool device_memory_ = false;                                          // MPI takes that of CUDA devices
  char const* broken_ = nullptr;                                        // why, once it is
  std::chrono::nanoseconds patience_ = std::chrono::milliseconds{100};  // for transfers that are given up
  std::uint64_t outstanding_ = 0;                                       // transfers started and not yet ended
  std::uint64_t bytes_sent_ = 0;
  std::shared_ptr<std::vector<std::byte>> staging_;
  std::vector<std::shared_ptr<void>> retained_;
};

}  // namespace GLOBALQ_ABI::transport
