// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// A transport of one's own: the processes of a torch.distributed process group whose backend moves host memory, such as gloo.

#include <globalq/core/error.hpp>
#include <globalq/transport/concept.hpp>

#include <Kokkos_Core.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace globalq_ddp {

namespace gq = globalq;

/// @brief One process of a process group.
///
/// Messages are the group's send and recv. Nobody else sends or receives through the group while a call runs; a group of its
/// own (torch.distributed.new_group) is safest. One thread at a time uses it.
///
/// A message carries, as its tag, how many went the same way before it, and its length. A receive of another length
/// therefore waits for a message that never comes, and ends by the deadline; gloo by itself would take a message that is
/// too short, and may end the process for one that is too long.
///
/// After a failure the transport is broken: every later use throws at once. Other workers learn of it by their deadlines.
class process_group {
 public:
  /// One thread: the processes of a machine share its cores.
  using execution_space = Kokkos::Serial;

  /// Given up by its destructor: gloo then drops what comes.
  class request {
   public:
    request() = default;

   private:
    friend class process_group;
    c10::intrusive_ptr<c10d::Work> work_;
    std::size_t bytes_ = 0;
    int peer_ = 0;
    bool sends_ = false;
  };

  explicit process_group(c10::intrusive_ptr<c10d::ProcessGroup> group, gq::transport::options settings = {})
      : group_(std::move(group)),
        deadline_(std::chrono::ceil<std::chrono::milliseconds>(settings.deadline)),
        sent_(static_cast<std::size_t>(group_->getSize())),
        received_(sent_.size()) {
    if (deadline_ <= std::chrono::milliseconds{0})
      throw gq::configuration_error(gq::detail::worker_message("process_group", rank(), size(),
                                                               "a deadline of no time", "give one above 0"));
  }

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::string_view name() const { return "process_group"; }
  execution_space execution() { return space_; }

  request send_async(int peer, std::span<std::byte const> bytes) {
    bytes_sent_ += bytes.size();
    // The tensor is only read.
    std::span<std::byte> const same{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return post(peer, same, sent_, true);
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return post(peer, bytes, received_, false); }

  void wait(request& posted) {
    request const r = std::exchange(posted, {});
    if (!r.work_) return;
    expect_whole(r);
    std::string text;
    try {
      if (r.work_->wait(deadline_)) return;
      text = "it was aborted";
    } catch (c10::Error const& e) {
      text = e.what_without_backtrace();
    } catch (std::exception const& e) {
      text = e.what();
    }
    fail(r, text);
  }

  /// Buffers of transfers that can neither finish nor be cancelled live as long as the transport.
  void retain(std::shared_ptr<void> buffers) { retained_.push_back(std::move(buffers)); }

 private:
  request post(int peer, std::span<std::byte> bytes, std::vector<std::uint64_t>& counts, bool sends) {
    request r;
    r.bytes_ = bytes.size();
    r.peer_ = peer;
    r.sends_ = sends;
    expect_whole(r);
    if (peer < 0 || peer >= size() || peer == rank())
      throw gq::configuration_error(gq::detail::worker_message(
          operation(r), rank(), size(), "rank " + std::to_string(peer) + " is no other worker",
          "name another one, from 0 to " + std::to_string(size() - 1)));
    std::vector<at::Tensor> tensor{
        bytes.empty() ? at::empty({0}, at::kByte)
                      : at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte)};
    int const tag = tag_of(counts[static_cast<std::size_t>(peer)]++, bytes.size());
    std::string text;
    try {
      r.work_ = sends ? group_->send(tensor, peer, tag) : group_->recv(tensor, peer, tag);
      return r;
    } catch (c10::Error const& e) {
      text = e.what_without_backtrace();
    } catch (std::exception const& e) {
      text = e.what();
    }
    fail(r, text);
  }

  /// 24 bits, which every backend has.
  static int tag_of(std::uint64_t number, std::size_t bytes) {
    std::uint64_t h = (number * 0x9e3779b97f4a7c15U) ^ bytes;  // multiplication by odd numbers mixes upwards
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93U;
    return static_cast<int>((h ^ (h >> 32)) & 0xffffffU);
  }

  static char const* operation(request const& r) { return r.sends_ ? "send" : "recv"; }

  void expect_whole(request const& r) const {
    if (broken_.empty()) return;
    throw gq::transport_error(gq::detail::worker_message(operation(r), rank(), size(),
                                                         "the transport is broken since: " + broken_,
                                                         "start all workers again"));
  }

  [[noreturn]] void fail(request const& r, std::string const& text) {
    std::string const bytes = std::to_string(r.bytes_) + " bytes ";
    broken_ = (r.sends_ ? "could not send " + bytes + "to" : "expected " + bytes + "from") +
              std::string(" rank ") + std::to_string(r.peer_) + ": " + text;
    throw gq::transport_error(gq::detail::worker_message(
        operation(r), rank(), size(), broken_,
        "see whether that worker still runs and makes the same calls, or raise the deadline"));
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::chrono::milliseconds deadline_;
  std::vector<std::uint64_t> sent_, received_;  ///< messages to and from each worker
  std::uint64_t bytes_sent_ = 0;
  std::string broken_;
  std::vector<std::shared_ptr<void>> retained_;
  execution_space space_;
};

static_assert(gq::transport::OwnRetain<process_group> && gq::transport::OwnExecution<process_group> &&
              gq::transport::OwnBytesSent<process_group>);

}  // namespace globalq_ddp
