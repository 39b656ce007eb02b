// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Workers of the tests of the C interface: threads, shared memory, and messages that the test moves.

#include <globalq/c/globalq.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace support_c {

inline std::vector<float> values(std::size_t length, int rank) {
  std::vector<float> x(length);
  for (std::size_t i = 0; i < length; ++i)
    x[i] =
        static_cast<float>(static_cast<std::int32_t>((i + 77U * static_cast<unsigned>(rank)) * 2654435761U)) *
        0x1p-31F;
  return x;
}

using work = std::function<globalq_status(globalq_workers*)>;

inline int run_work(globalq_workers* workers, void* context) {
  return (*static_cast<work*>(context))(workers);
}

/// Messages between threads of the test, as a caller's library would move them.
class post {
 public:
  /// The functions of a worker. They end by an error two seconds after the last message.
  struct endpoint {
    post* all;
    int rank;
    std::map<std::uint64_t, std::function<bool()>> open;
    std::uint64_t next = 1;
    std::string error;
  };

  static globalq_messages functions(endpoint& e) {
    globalq_messages m{};
    m.size = sizeof m;
    m.context = &e;
    m.send = [](void* context, int peer, void const* bytes, std::size_t count, std::uint64_t* ticket) {
      auto& self = *static_cast<endpoint*>(context);
      auto const* const b = static_cast<char const*>(bytes);
      self.all->put(self.rank, peer, {b, b + count});
      *ticket = self.next++;
      self.open[*ticket] = [] { return true; };
      return 0;
    };
    m.receive = [](void* context, int peer, void* bytes, std::size_t count, std::uint64_t* ticket) {
      auto& self = *static_cast<endpoint*>(context);
      *ticket = self.next++;
      self.open[*ticket] = [&self, peer, bytes, count] {
        return self.all->get(peer, self.rank, bytes, count);
      };
      return 0;
    };
    m.wait = [](void* context, std::uint64_t ticket) {
      auto& self = *static_cast<endpoint*>(context);
      auto const found = self.open.find(ticket);
      bool const arrived = found != self.open.end() && found->second();
      if (!arrived) self.error = "nothing came, or of another size";
      self.open.erase(ticket);
      return arrived ? 0 : 17;
    };
    m.abandon = [](void* context, std::uint64_t ticket) {
      static_cast<endpoint*>(context)->open.erase(ticket);
    };
    m.error = [](void* context) { return static_cast<endpoint*>(context)->error.c_str(); };
    return m;
  }

 private:
  void put(int from, int to, std::vector<char> bytes) {
    std::scoped_lock const lock(mutex_);
    boxes_[{from, to}].push_back(std::move(bytes));
    changed_.notify_all();
  }
  bool get(int from, int to, void* bytes, std::size_t count) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    if (!changed_.wait_for(lock, std::chrono::seconds(2), [&] { return !box.empty(); })) return false;
    if (box.front().size() != count) return false;
    std::memcpy(bytes, box.front().data(), count);
    box.pop_front();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> boxes_;
};

/// One thread for each worker; the first status that is not OK, with its text.
template <class Make>
std::pair<globalq_status, std::string> on_threads(int workers, Make const& make, work const& body) {
  std::vector<std::pair<globalq_status, std::string>> results(static_cast<std::size_t>(workers));
  std::vector<std::thread> crew;
  for (int rank = 0; rank < workers; ++rank)
    crew.emplace_back([&, rank] {
      make(rank, [&](globalq_status made, globalq_workers* w) {
        globalq_status const status = made == GLOBALQ_OK ? body(w) : made;
        results[static_cast<std::size_t>(rank)] = {status, status == GLOBALQ_OK ? "" : globalq_error()};
        globalq_workers_destroy(w);
      });
    });
  for (auto& each : crew) each.join();
  for (auto const& each : results)
    if (each.first != GLOBALQ_OK) return each;
  return {GLOBALQ_OK, ""};
}

enum class way { threads, memory, messages };

/// Calls body for each of some workers.
inline std::pair<globalq_status, std::string> run(way how, int workers, work body, double deadline = 60) {
  static int count = 0;
  if (how == way::threads) {
    globalq_status const s = globalq_threads_run(workers, deadline, run_work, &body);
    return {s, s == GLOBALQ_OK ? "" : globalq_error()};
  }
  if (how == way::memory) {
    std::string const name = "c-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
    return on_threads(
        workers,
        [&](int rank, auto const& then) {
          globalq_workers* w = nullptr;
          globalq_status const s = globalq_named_memory_create(name.c_str(), rank, workers, deadline, &w);
          then(s, w);
        },
        body);
  }
  post all;
  return on_threads(
      workers,
      [&](int rank, auto const& then) {
        post::endpoint e{&all, rank, {}, 1, {}};
        globalq_messages const m = post::functions(e);
        globalq_workers* w = nullptr;
        globalq_status const s = globalq_messages_create(&m, rank, workers, &w);
        then(s, w);
      },
      body);
}

inline globalq_settings settings_of(char const* op) {
  globalq_settings s{};
  s.size = sizeof s;
  s.operator_name = op;
  s.seed = 9;
  return s;
}

struct call_handle {
  globalq_call* call = nullptr;
  ~call_handle() { globalq_call_destroy(call); }
};

}  // namespace support_c
