// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief transport: messages and collectives of transport::mpi.

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "collectives.hpp"
#include "detail/mpi_device.hpp"
#include "detail/mpi_node-inl.hpp"
#include "detail/mpi_node.hpp"
#include "mpi.hpp"
#if defined(GLOBALQ_COMPILED)
#include "shared_memory.hpp"
#endif

namespace GLOBALQ_ABI::transport {
namespace detail {

template <class Value>
MPI_Datatype mpi_type() {
  if constexpr (std::same_as<Value, std::int8_t>) return MPI_INT8_T;
  if constexpr (std::same_as<Value, std::int16_t>) return MPI_INT16_T;
  if constexpr (std::same_as<Value, std::int32_t>) return MPI_INT32_T;
  return MPI_FLOAT;
}

}  // namespace detail

GLOBALQ_DECL mpi::mpi(MPI_Comm communicator, options settings, std::size_t piece_bytes, sharing within_node)
    : mpi{communicator, settings, piece_bytes, within_node, reach::any} {}

GLOBALQ_DECL mpi::~mpi() {
  if (outstanding_ != 0)
    for (auto& buffers : retained_) keep_forever(std::move(buffers));
  if (broken_ == nullptr && !finalized()) MPI_Comm_free(&comm_);
}

GLOBALQ_DECL int mpi::shares_memory() const noexcept {
  return here_->node == nullptr ? 0 : here_->processes - 1;
}

GLOBALQ_DECL bool mpi::takes_device_memory(int peer) const noexcept {
  return device_memory_ && here_->place_of(peer) < 0;
}

GLOBALQ_DECL std::size_t mpi::chunk_bytes() const noexcept {
  return std::size_t{shares_memory() + 1 == size_ ? 256U : 32U} << 10;
}

GLOBALQ_DECL mpi::execution_space mpi::execution() const {
  detail::expect_kokkos("mpi");
  return {};
}

GLOBALQ_DECL void mpi::retain(std::shared_ptr<void> buffers) noexcept {
  if (outstanding_ == 0) return;
  try {
    retained_.push_back(buffers);
  } catch (std::bad_alloc const&) {
    keep_forever(std::move(buffers));
  }
}

GLOBALQ_DECL mpi::request mpi::send_async(int peer, std::span<std::byte const> bytes) {
  detail::expect_peer(*this, "send", peer);
  expect_usable("send");
  bytes_sent_ += bytes.size();
  return start(true, peer, const_cast<std::byte*>(bytes.data()), bytes.size());
}

GLOBALQ_DECL mpi::request mpi::recv_async(int peer, std::span<std::byte> bytes) {
  detail::expect_peer(*this, "recv", peer);
  expect_usable("recv");
  return start(false, peer, bytes.data(), bytes.size());
}

GLOBALQ_DECL void mpi::wait(request& transfer) {
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

GLOBALQ_DECL void mpi::allgather(std::span<std::byte const> mine, std::span<std::byte> all) {
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

template <Summand Value>
void mpi::allreduce_sum(std::span<Value> values) {
  expect_usable("allreduce_sum");
  if (size_ == 1) return;
  bytes_sent_ += values.size_bytes();
  std::size_t const most = std::max<std::size_t>(1, piece_bytes_ / sizeof(Value));
  for (std::size_t at = 0; at < values.size(); at += most) {
    int const count = static_cast<int>(std::min(most, values.size() - at));
    MPI_Request sum = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(MPI_IN_PLACE, values.data() + at, count, detail::mpi_type<Value>(), MPI_SUM, comm_,
                         &sum),
          "MPI_Iallreduce");
    finish_collective(sum, "allreduce_sum", "MPI_Test of MPI_Iallreduce");
  }
}

GLOBALQ_DECL void mpi::expect_threads() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_SERIALIZED)
    refuse("MPI was not initialized for calls from other threads",
           "initialize it with MPI_Init_thread and MPI_THREAD_MULTIPLE (MPI_THREAD_SERIALIZED if nothing "
           "else uses MPI meanwhile)");
}

GLOBALQ_DECL mpi::mpi(MPI_Comm communicator, options const& settings, std::size_t piece_bytes,
                      sharing const& within_node, reach who)
    : here_{std::make_unique<detail::mpi_node>()},
      deadline_{detail::deadline_of(settings, "mpi")},
      piece_bytes_{piece_bytes} {
  int flag = 0;
  MPI_Initialized(&flag);
  if (flag == 0) refuse("MPI is not initialized", "call MPI_Init before making the transport");
  MPI_Finalized(&flag);
  if (flag != 0) refuse("MPI is finalized", "make the transport before MPI_Finalize");
  if (communicator == MPI_COMM_NULL)
    refuse("the communicator is MPI_COMM_NULL", "give one that has processes");
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

GLOBALQ_DECL void mpi::keep_forever(std::shared_ptr<void> buffers) noexcept {
  alignas(std::shared_ptr<void>) std::byte never_destroyed[sizeof(std::shared_ptr<void>)];
  ::new (never_destroyed) std::shared_ptr<void>(std::move(buffers));
}

GLOBALQ_DECL bool mpi::finalized() noexcept {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

GLOBALQ_DECL void mpi::refuse(std::string const& what, std::string const& remedy) {
  throw configuration_error{"globalq: transport::mpi: " + what + "; " + remedy};
}

GLOBALQ_DECL std::string mpi::message(std::string_view operation, std::string_view what,
                                      std::string_view remedy) const {
  return globalq::detail::worker_message(operation, rank_, size_, what, remedy);
}

GLOBALQ_DECL void mpi::stop(std::string const& text, char const* why) {
  broken_ = why;
  if (here_->node != nullptr) here_->node->fail(rank_, text);
  throw transport_error{text};
}

GLOBALQ_DECL void mpi::check(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    length = std::snprintf(text, sizeof text, "error code %d", code);
  stop(message(call, std::string_view{text, static_cast<std::size_t>(length)},
               "see the documentation of the MPI library"),
       "an MPI call failed");
}

GLOBALQ_DECL void mpi::expect_usable(char const* operation) const {
  if (broken_ != nullptr)
    throw transport_error{message(operation, std::string{"the transport is broken: "} + broken_,
                                  "make a new one from the communicator, on all workers together")};
}

GLOBALQ_DECL std::size_t mpi::pieces_of(std::size_t bytes) const {
  return bytes == 0 ? 1 : bytes / piece_bytes_ + (bytes % piece_bytes_ != 0 ? 1 : 0);
}

GLOBALQ_DECL std::size_t mpi::bytes_of_piece(std::size_t bytes, std::size_t index) const {
  return std::min(piece_bytes_, bytes - index * piece_bytes_);
}

GLOBALQ_DECL mpi::request mpi::start(bool sends, int peer, std::byte* data, std::size_t bytes) {
  if (int const place = here_->place_of(peer); place >= 0) {
    auto& started =
        sends ? here_->node->send(place, {data, bytes}) : here_->node->receive(place, {data, bytes});
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

GLOBALQ_DECL mpi::ending mpi::poll(MPI_Request& transfer, MPI_Status& status, int& code,
                                   std::chrono::nanoseconds longest) {
  auto until = std::chrono::steady_clock::time_point{};
  for (unsigned turn = 0;; ++turn) {
    int done = 0;
    code = MPI_Test(&transfer, &done, &status);
    if (code != MPI_SUCCESS || done != 0) return ending::done;
    bool const moved = here_->node != nullptr && here_->node->advance();
    if (turn < 16) continue;
    if (turn == 16) until = std::chrono::steady_clock::now() + longest;
    if (turn % 16 == 0) {
      if (broken_ == nullptr && here_->node != nullptr && here_->node->failed()) return ending::failed;
      if (std::chrono::steady_clock::now() >= until) return ending::late;
    }
    if (!moved) std::this_thread::yield();
  }
}

GLOBALQ_DECL void mpi::finish_collective(MPI_Request& transfer, char const* operation, char const* call) {
  MPI_Status status;
  int code = MPI_SUCCESS;
  auto const how = poll(transfer, status, code, deadline_);
  if (how == ending::done) return check(code, call);
  ++outstanding_;  // a collective cannot be canceled
  broken_ = "a collective was given up";
  if (staging_ != nullptr) retain(staging_);
  if (how == ending::failed) fail_because_of_another(operation);
  stop(message(operation, "waited " + detail::seconds_text(deadline_) + " for all workers to take part",
               "let every worker make the same calls in the same order, or raise options::deadline"),
       "a collective passed its deadline");
}

GLOBALQ_DECL std::string mpi::missing(request const& transfer) {
  return (transfer.sends_ ? "receive " : "send ") + std::to_string(transfer.bytes_) + " bytes";
}

GLOBALQ_DECL void mpi::fail_late(request const& transfer) {
  stop(message(transfer.sends_ ? "send" : "recv",
               "waited " + detail::seconds_text(deadline_) + " for rank " + std::to_string(transfer.peer_) +
                   " to " + missing(transfer),
               "let every worker make the same calls in the same order, or raise options::deadline"),
       "a wait passed its deadline");
}

GLOBALQ_DECL void mpi::expect_piece(request const& transfer, std::size_t index, std::size_t pieces,
                                    MPI_Status const& status, int code) {
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

GLOBALQ_DECL void mpi::fail_sizes(request const& transfer, std::string const& sent) {
  stop(message("recv",
               "expected " + std::to_string(transfer.bytes_) + " bytes from rank " +
                   std::to_string(transfer.peer_) + ", which sent " + sent,
               "use the same size for a send and its receive"),
       "sizes of a send and its receive differed");
}

GLOBALQ_DECL bool mpi::switched_off(char const* variable) {
  char const* const value = std::getenv(variable);
  if (value == nullptr) return false;
  std::string_view const text{value};
  return text == "off" || text == "OFF" || text == "0";
}

GLOBALQ_DECL void mpi::settle_one() {
  if (--outstanding_ == 0 && !retained_.empty()) retained_.clear();
}

GLOBALQ_DECL void mpi::give_up(request& transfer) noexcept {
  if (broken_ == nullptr) {
    broken_ = "a request was destroyed before it was waited for";
    if (here_->node != nullptr) here_->node->fail(rank_, broken_);
  }
  if (transfer.shared_ != nullptr || finalized()) return;
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

#if defined(GLOBALQ_COMPILED)
template void mpi::allreduce_sum(std::span<std::int8_t>);
template void mpi::allreduce_sum(std::span<std::int16_t>);
template void mpi::allreduce_sum(std::span<std::int32_t>);
template void mpi::allreduce_sum(std::span<float>);

template <>
std::unique_ptr<endpoint> make_endpoint(mpi& t) {
  return std::make_unique<detail::endpoint_of<mpi, endpoint>>(t);
}
template <>
std::unique_ptr<endpoint> make_endpoint(shared_memory& t) {
  return std::make_unique<detail::endpoint_of<shared_memory, endpoint>>(t);
}
#endif

}  // namespace GLOBALQ_ABI::transport
