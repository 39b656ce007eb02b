// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: workers: threads, processes of one machine, and workers whose messages the caller transfers.

#include "handles.hpp"

#include <globalq/transport/collectives.hpp>
#include <globalq/transport/named_memory.hpp>
#include <globalq/transport/threads.hpp>

#include <vector>

namespace globalq_c {
namespace {

/// Transfers messages by functions of the caller. A slot of the endpoint holds a ticket of the caller.
class messages final : public gq::transport::endpoint {
 public:
  messages(globalq_messages const& by, int rank, int size) : endpoint(rank, size), by_(by) {}

  std::size_t chunk_bytes() const override {
    return by_.message_bytes != 0 ? by_.message_bytes : std::size_t{2} << 20;
  }

 private:
  std::uint32_t start_send(int peer, std::span<std::byte const> bytes) override {
    return start("send", peer, bytes.size(), [&](std::uint64_t& ticket) {
      return outside([&] { return by_.send(by_.context, peer, bytes.data(), bytes.size(), &ticket); });
    });
  }
  std::uint32_t start_recv(int peer, std::span<std::byte> bytes) override {
    return start("recv", peer, bytes.size(), [&](std::uint64_t& ticket) {
      return outside([&] { return by_.receive(by_.context, peer, bytes.data(), bytes.size(), &ticket); });
    });
  }
  void finish(std::uint32_t slot) override {
    expect_usable("wait");
    if (int const code = outside([&] { return by_.wait(by_.context, slots_[slot].ticket); }); code != 0)
      stop(slots_[slot].sends ? "send" : "recv", slots_[slot].peer, slots_[slot].bytes, code);
    free_.push_back(slot);
  }
  void give_up(std::uint32_t slot) noexcept override {
    if (!thread_ended_) by_.abandon(by_.context, slots_[slot].ticket);
    free_.push_back(slot);
  }

  /// Returns f(), which calls a function of the caller. If that ends the thread, no function is called again: the call's
  /// transfers are given up while the thread ends, and a function that ended it again (as all of Python do) would abort.
  template <class F>
  auto outside(F const& f) -> decltype(f()) {
    try {
      return f();
    } catch (gq::detail::forced_unwind const&) {
      thread_ended_ = broken_ = true;
      throw;
    }
  }

  template <class F>
  std::uint32_t start(char const* operation, int peer, std::size_t bytes, F const& begin) {
    gq::transport::detail::expect_peer(*this, operation, peer);
    expect_usable(operation);
    if (free_.empty()) {
      free_.reserve(slots_.size() + 1);  // so that finish() and give_up() cannot fail
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    std::uint32_t const slot = free_.back();
    slots_[slot] = {0, bytes, peer, *operation == 's'};
    if (int const code = begin(slots_[slot].ticket); code != 0) stop(operation, peer, bytes, code);
    free_.pop_back();
    return slot;
  }

  void expect_usable(char const* operation) const {
    if (broken_)
      throw gq::transport_error(gq::detail::worker_message(
          operation, rank(), size(), "the workers are unusable, because an earlier message failed",
          "create new ones, on all workers together"));
  }
  [[noreturn]] void stop(char const* operation, int peer, std::size_t bytes, int code) {
    broken_ = true;
    char const* const why = by_.error == nullptr ? nullptr : outside([&] { return by_.error(by_.context); });
    throw gq::transport_error(gq::detail::worker_message(
        operation, rank(), size(),
        "a message of " + std::to_string(bytes) + " bytes " + (*operation == 's' ? "to" : "from") + " rank " +
            std::to_string(peer) + " failed with code " + std::to_string(code) +
            (why == nullptr || *why == '\0' ? "" : ": " + std::string(why)),
        "check that rank " + std::to_string(peer) +
            " still runs and makes the same call; raise the deadline if it is only late"));
  }

  struct transfer {
    std::uint64_t ticket = 0;
    std::size_t bytes = 0;
    int peer = 0;
    bool sends = false;
  };
  globalq_messages by_;
  std::vector<transfer> slots_;
  std::vector<std::uint32_t> free_;
  bool broken_ = false;
  bool thread_ended_ = false;  ///< by a function of the caller
};

/// @param over  has duplicate()
template <class T>
std::shared_ptr<link> link_over(std::shared_ptr<T> over, bool one_of_many,
                                std::shared_ptr<std::atomic<bool>> ended) {
  auto made = std::make_shared<link>();
  made->endpoint = gq::transport::make_endpoint(*over);
  made->one_of_many = one_of_many;
  made->ended = ended;
  made->duplicate = [t = over.get(), one_of_many, ended = std::move(ended)] {
    return link_over(std::shared_ptr<T>(t->duplicate()), one_of_many, ended);
  };
  made->transport = std::move(over);
  return made;
}

/// Throws on all workers unless all of them call the same function.
void handshake(char const* operation, gq::transport::endpoint& workers) {
  using gq::detail::agreement;
  using gq::detail::opening_record;
  int const n = workers.size();
  agreement const alike(gq::dtype::float32, gq::detail::hash(0, std::string_view(operation)), 0, n, {}, 0,
                        gq::non_finite::propagate, 0);
  auto const records = std::make_shared<std::vector<opening_record>>(static_cast<std::size_t>(n));
  gq::transport::keeping(workers, records, [&] {
    gq::transport::allgather_value(workers, alike.record(0, 0, 0), std::span(*records));
  });
  gq::detail::check_agreement(workers, *records, operation, false, [&](int field) -> std::string {
    return field == agreement::what ? operation : "";
  });
}

}  // namespace
}  // namespace globalq_c

using namespace globalq_c;

globalq_status globalq_threads_run(int count, double deadline, int (*body)(globalq_workers*, void*),
                                   void* context) {
  constexpr char const* operation = "globalq_threads_run";
  return guarded([&] {
    if (body == nullptr) refuse(operation, "body is NULL", "pass a function");
    start_kokkos();
    gq::transport::threads cluster(count, deadline_of(operation, deadline));
    cluster.run([&](auto& self) {
      globalq_workers workers;
      using endpoint = std::remove_reference_t<decltype(self)>;
      workers.behind = link_over(std::shared_ptr<endpoint>(std::shared_ptr<void>(), &self), true,
                                 std::make_shared<std::atomic<bool>>(false));
      struct
          end {  // later uses of the run's calls are refused; one that another thread has begun ends before
        globalq_c::link& of;
        ~end() {
          std::lock_guard const lock(of.busy);
          *of.ended = true;
        }
      } const at_the_end{*workers.behind};
      failed(GLOBALQ_OK, "");
      int const code = body(&workers, context);
      if (code == 0) return;
      std::string const text = *globalq_error() != '\0'
                                   ? globalq_error()
                                   : "the body of a worker returned " + std::to_string(code);
      // the errors of the other workers are consequences of the first one
      if (code == GLOBALQ_TRANSPORT) throw gq::transport_error(text);
      throw failure(
          code > GLOBALQ_OK && code < GLOBALQ_OTHER ? static_cast<globalq_status>(code) : GLOBALQ_OTHER,
          text);
    });
  });
}

globalq_status globalq_named_memory_create(char const* name, int rank, int size, double deadline,
                                           globalq_workers** created) {
  constexpr char const* operation = "globalq_named_memory_create";
  return guarded([&] {
    expect(operation, "created", created) = nullptr;
    start_kokkos();
    auto const t = std::make_shared<gq::transport::named_memory>(&expect(operation, "name", name), rank, size,
                                                                 deadline_of(operation, deadline));
    auto made = std::make_unique<globalq_workers>();
    made->behind = link_over(t, false, made->behind->ended);
    *created = made.release();
  });
}

globalq_status globalq_messages_create(globalq_messages const* by, int rank, int size,
                                       globalq_workers** created) {
  constexpr char const* operation = "globalq_messages_create";
  return guarded([&] {
    expect(operation, "created", created) = nullptr;
    globalq_messages const known = read(operation, "by", by);
    if (known.send == nullptr || known.receive == nullptr || known.wait == nullptr ||
        known.abandon == nullptr)
      refuse(operation, "a function is NULL", "set send, receive, wait and abandon");
    if (size < 1 || rank < 0 || rank >= size)
      refuse(operation, "there is no rank " + std::to_string(rank) + " among " + std::to_string(size),
             "use ranks from 0 to size - 1");
    start_kokkos();
    auto made = std::make_unique<globalq_workers>();
    made->behind->endpoint = std::make_unique<messages>(known, rank, size);
    *created = made.release();
  });
}

globalq_status globalq_workers_duplicate(globalq_workers* workers, globalq_workers** created) {
  constexpr char const* operation = "globalq_workers_duplicate";
  return guarded([&] {
    globalq_c::link& of = *expect(operation, "workers", workers).behind;
    communicate_alike(operation, of, [&](gq::transport::endpoint& link) {
      expect(operation, "created", created) = nullptr;
      if (!of.duplicate)
        refuse(operation, "the caller transfers the messages of these workers",
               "connect the workers once more and call globalq_messages_create");
      auto made = std::make_unique<globalq_workers>();
      handshake(operation, link);
      made->behind = of.duplicate();
      *created = made.release();
    });
  });
}

globalq_status globalq_workers_refuse(globalq_workers* workers, char const* why) {
  constexpr char const* operation = "globalq_workers_refuse";
  return guarded([&] {
    communicate(operation, *expect(operation, "workers", workers).behind, [&](gq::transport::endpoint& link) {
      gq::detail::share_refusal(link, why == nullptr ? "" : why);
    });
  });
}

int globalq_rank(globalq_workers const* workers) {
  return workers == nullptr ? -1 : workers->behind->endpoint->rank();
}
int globalq_size(globalq_workers const* workers) {
  return workers == nullptr ? 0 : workers->behind->endpoint->size();
}
uint64_t globalq_bytes_sent(globalq_workers const* workers) {
  return workers == nullptr ? 0 : workers->behind->endpoint->bytes_sent();
}
void globalq_workers_destroy(globalq_workers* workers) { delete workers; }
