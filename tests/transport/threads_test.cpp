// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of transport::threads, of the concept, and of the fallbacks for a transport that users write.

#include "globalq/transport/threads.hpp"

#include "globalq/transport/endpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pthread.h>

#include "suite.hpp"
#include "tests/support/allocations.hpp"

namespace globalq_test {
namespace {

using gq::transport::threads;

// ---- What the concept accepts and refuses --------------------------------------------------------------

static_assert(gq::Transport<threads::endpoint>);
static_assert(gq::transport::OwnAllgather<threads::endpoint>);
static_assert(gq::transport::OwnAllreduceSum<threads::endpoint, std::int8_t>);
static_assert(gq::transport::OwnAllreduceSum<threads::endpoint, std::int16_t>);
static_assert(gq::transport::OwnAllreduceSum<threads::endpoint, std::int32_t>);
static_assert(gq::transport::OwnAllreduceSum<threads::endpoint, float>);
static_assert(!gq::transport::OwnAllreduceSum<threads::endpoint, double>);
static_assert(gq::transport::OwnBytesSent<threads::endpoint>);
static_assert(gq::transport::OwnName<threads::endpoint>);
static_assert(gq::transport::OwnExecution<threads::endpoint>);
static_assert(!gq::transport::OwnRetain<threads::endpoint>);
static_assert(!std::copy_constructible<threads::endpoint::request>);
static_assert(std::is_nothrow_move_constructible_v<threads::endpoint::request>);

struct smallest {
  struct request {};
  int rank() const { return 0; }
  int size() const { return 1; }
  request send_async(int, std::span<std::byte const>) { return {}; }
  request recv_async(int, std::span<std::byte>) { return {}; }
  void wait(request&) {}
};
static_assert(gq::Transport<smallest>);
static_assert(!gq::transport::OwnAllgather<smallest>);
static_assert(!gq::transport::OwnAllreduceSum<smallest, float>);
static_assert(!gq::transport::OwnBytesSent<smallest>);
static_assert(!gq::transport::OwnExecution<smallest>);

struct without_a_request_type {
  int rank() const { return 0; }
  int size() const { return 1; }
  int send_async(int, std::span<std::byte const>) { return {}; }
  int recv_async(int, std::span<std::byte>) { return {}; }
  void wait(int&) {}
};
static_assert(!gq::Transport<without_a_request_type>);

struct receives_into_constants : smallest {
  request recv_async(int, std::span<std::byte const>) = delete;
  request recv_async(int, std::span<std::byte>) = delete;
};
static_assert(!gq::Transport<receives_into_constants>);

struct wide_rank : smallest {
  long rank() const { return 0; }
};
static_assert(!gq::Transport<wide_rank>);

struct waits_for_copies : smallest {
  bool wait(request) { return true; }
};
static_assert(!gq::Transport<waits_for_copies>);
static_assert(!gq::Transport<int>);

// ---- A transport that a user might write: five members -------------------------------------------------

struct post_office {
  std::mutex mutex;
  std::condition_variable arrival;
  std::map<std::tuple<int, int, int>, std::vector<std::byte>> letters;  // from, to, number
};

class postman {
 public:
  struct request {
    std::tuple<int, int, int> letter{-1, -1, -1};  // none
    std::span<std::byte> bytes;
  };
  postman(post_office& office, int rank, int size, options const& settings)
      : office_{office}, rank_{rank}, size_{size}, deadline_{settings.deadline} {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  request send_async(int peer, std::span<std::byte const> bytes) {
    std::lock_guard const lock{office_.mutex};
    office_.letters[{rank_, peer, sent_[peer]++}].assign(bytes.begin(), bytes.end());
    office_.arrival.notify_all();
    return {};
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    return {{peer, rank_, received_[peer]++}, bytes};
  }
  void wait(request& r) {
    if (std::get<0>(r.letter) < 0) return;
    auto const from = "globalq: recv: rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                      ": expected " + std::to_string(r.bytes.size()) + " bytes from rank " +
                      std::to_string(std::get<0>(r.letter));
    std::unique_lock lock{office_.mutex};
    if (!office_.arrival.wait_for(lock, deadline_, [&] { return office_.letters.contains(r.letter); }))
      throw gq::transport_error{from + ", which sent none in time; check that worker"};
    auto const letter = office_.letters.extract(r.letter).mapped();
    if (letter.size() != r.bytes.size())
      throw gq::transport_error{from + ", which sent another number; mend it"};
    std::copy(letter.begin(), letter.end(), r.bytes.begin());
    r.letter = {-1, -1, -1};
  }

 private:
  post_office& office_;
  int rank_, size_;
  std::chrono::nanoseconds deadline_;
  std::map<int, int> sent_, received_;
};
static_assert(gq::Transport<postman>);
static_assert(!gq::transport::OwnAllgather<postman>);

// ---- The suite -----------------------------------------------------------------------------------------

struct threads_harness {
  using endpoint = threads::endpoint;
  static std::vector<int> worlds() { return {1, 2, 3, 4, 5, 6, 7, 8, 9}; }
  template <class Body>
  static void run(int workers, options const& settings, Body const& body) {
    threads{workers, settings}.run(body);
  }
};

struct postman_harness {
  using endpoint = postman;
  static std::vector<int> worlds() { return {1, 2, 3, 4, 8}; }
  template <class Body>
  static void run(int workers, options const& settings, Body const& body) {
    post_office office;
    std::vector<std::thread> crew;
    for (int rank = 0; rank < workers; ++rank) {
      crew.emplace_back([&, rank] {
        postman each{office, rank, workers, settings};
        body(each);
      });
    }
    for (auto& each : crew) each.join();
  }
};

/// Transports behind the type that calls talk to.
struct endpoint_harness {
  using endpoint = gq::transport::endpoint;
  static std::vector<int> worlds() { return {1, 2, 3, 5, 8}; }
  template <class Body>
  static void run(int workers, options const& settings, Body const& body) {
    threads_harness::run(workers, settings, [&](auto& each) { body(*gq::transport::make_endpoint(each)); });
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(threads, transport_suite, threads_harness);
INSTANTIATE_TYPED_TEST_SUITE_P(without_its_type, transport_suite, endpoint_harness);
INSTANTIATE_TYPED_TEST_SUITE_P(written_by_a_user, transport_suite, postman_harness);

// ---- An endpoint of a transport that has nothing but what it must ----

TEST(Endpoint, gathers_by_messages_and_says_what_its_transport_lacks) {
  postman_harness::run(3, patient, [](postman& each) {
    auto const t = gq::transport::make_endpoint(each);
    std::vector<int> all(3);
    gq::transport::allgather_value(*t, 10 + t->rank(), std::span(all));
    EXPECT_EQ(all, (std::vector{10, 11, 12}));
    EXPECT_FALSE(t->adds());
    EXPECT_EQ(t->bytes_sent(), 8U);  // the endpoint counts where the transport does not: 4 to each of two
    std::int8_t value = 1;
    EXPECT_THAT(support::refusal<gq::configuration_error>([&] { t->allreduce_sum(std::span(&value, 1)); }),
                ::testing::HasSubstr("does not add such numbers itself; use schedule ring"));
  });
}

/// Counts the transfers that were started, waited for and given up.
struct counting_transport {
  struct tally {
    int started = 0, waited = 0, given_up = 0;
  };
  class request {
   public:
    request() = default;
    explicit request(tally& t) : tally_(&t) { ++t.started; }
    request(request&& other) noexcept : tally_(std::exchange(other.tally_, nullptr)) {}
    request& operator=(request&& other) noexcept {
      request old(std::move(*this));
      tally_ = std::exchange(other.tally_, nullptr);
      return *this;
    }
    ~request() {
      if (tally_ != nullptr) ++tally_->given_up;
    }
    tally* release() { return std::exchange(tally_, nullptr); }

   private:
    tally* tally_ = nullptr;
  };
  int rank() const { return 0; }
  int size() const { return 2; }
  request send_async(int, std::span<std::byte const>) { return request(count); }
  request recv_async(int, std::span<std::byte>) {
    if (refuses) throw gq::transport_error("no");
    return request(count);
  }
  void wait(request& r) {
    if (fails) throw gq::transport_error("lost");
    if (auto* const t = r.release()) ++t->waited;
  }
  tally count;
  bool refuses = false, fails = false;
};

std::size_t allocations_so_far() {
#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
  return support::own_allocations;
#else
  return 0;
#endif
}

TEST(Endpoint, gives_up_what_nobody_waited_for_once_and_reuses_its_slots) {
  counting_transport sent;
  auto const t = gq::transport::make_endpoint(sent);
  std::byte byte{};
  auto const send = [&] { return t->send_async(1, std::span(&byte, 1)); };
  gq::transport::endpoint::request none;
  t->wait(none);
  {
    auto a = send(), b = send();
    t->wait(a);
    t->wait(a);  // is done
    EXPECT_EQ(sent.count.waited, 1);
    a = std::move(b);
    a = send();  // gives up what it was
    EXPECT_EQ(sent.count.given_up, 1);
  }
  EXPECT_EQ(sent.count.given_up, 2);
  sent.refuses = true;
  EXPECT_THROW(static_cast<void>(t->recv_async(1, std::span(&byte, 1))), gq::transport_error);
  sent.fails = true;
  {
    auto c = send();
    EXPECT_THROW(t->wait(c), gq::transport_error);
    EXPECT_EQ(sent.count.given_up, 2);
  }
  EXPECT_EQ(sent.count.given_up, 3);
  sent.fails = false;
  std::vector<gq::transport::endpoint::request> many;
  for (int turn = 0; turn < 3; ++turn) {
    auto const before = allocations_so_far();
    for (int k = 0; k < 100; ++k) many.push_back(send());
    for (auto& each : many) t->wait(each);
    many.clear();
    if (turn != 0) {
      EXPECT_EQ(allocations_so_far(), before);
    }
  }
  EXPECT_EQ(sent.count.started, 4 + 300);
  EXPECT_EQ(sent.count.waited, 301);
}

// ---- transport::threads alone --------------------------------------------------------------------------

struct mishap : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// The message of the exception of type Error that the run throws.
template <class Error, class Body>
std::string failure_of(threads& cluster, Body const& body) {
  try {
    cluster.run(body);
  } catch (Error const& problem) {
    return problem.what();
  }
  return {};
}

TEST(Threads, refuses_clusters_that_cannot_work) {
  EXPECT_THROW(threads{0}, gq::configuration_error);
  EXPECT_THROW(threads{-1}, gq::configuration_error);
  EXPECT_THROW((threads{2, {.deadline = std::chrono::seconds{0}}}), gq::configuration_error);
  EXPECT_NO_THROW((threads{2, {.deadline = std::chrono::nanoseconds::max()}}));
}

TEST(Threads, refuses_peers_that_do_not_exist) {
  threads{3}.run([](auto& t) {
    std::byte byte{};
    EXPECT_THROW(static_cast<void>(t.send_async(3, std::span{&byte, 1})), gq::configuration_error);
    EXPECT_THROW(static_cast<void>(t.recv_async(-1, std::span{&byte, 1})), gq::configuration_error);
  });
}

TEST(Threads, refuses_a_run_inside_a_run) {
  threads cluster{1};
  cluster.run([&](auto&) { EXPECT_THROW(cluster.run([](auto&) {}), gq::configuration_error); });
  EXPECT_NO_THROW(cluster.run([](auto&) {}));
}

TEST(Threads, workers_send_to_themselves) {
  threads{2}.run([](auto& t) {
    int const out = t.rank() + 5;
    int in = 0;
    auto outgoing = t.send_async(t.rank(), std::as_bytes(std::span{&out, 1}));
    auto incoming = t.recv_async(t.rank(), std::as_writable_bytes(std::span{&in, 1}));
    t.wait(outgoing);
    t.wait(incoming);
    EXPECT_EQ(in, out);
  });
}

TEST(Threads, every_worker_has_its_own_execution_space) {
  threads{3}.run([](auto& t) {
    EXPECT_EQ(t.name(), "threads");
    int sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::RangePolicy{t.execution(), 0, 100}, [](int i, int& part) { part += i; }, sum);
    EXPECT_EQ(sum, 4950);
    EXPECT_EQ(&t.execution(), &t.execution());
  });
}

TEST(Threads, floats_are_added_in_order_of_ranks) {
  threads{5}.run([](auto& t) {
    for (std::size_t const count : counts{3, 5000}) {
      auto const value = [](int rank, std::size_t i) {
        return 1.0F / static_cast<float>(3 + i * 7 % 101 + 13 * static_cast<std::size_t>(rank));
      };
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = value(t.rank(), i);
      t.allreduce_sum(std::span{values});
      for (std::size_t i = 0; i < count; ++i) {
        float sum = value(0, i);
        for (int rank = 1; rank < 5; ++rank) sum += value(rank, i);
        ASSERT_EQ(values[i], sum);
      }
    }
  });
}

TEST(Threads, both_sides_hear_of_sizes_that_differ) {
  for (bool const sender_first : {false, true}) {
    std::atomic<bool> posted{false};
    threads cluster{2};
    cluster.run([&](auto& t) {
      std::vector<std::byte> bytes(64);
      bool const first = (t.rank() == 0) == sender_first;
      while (!first && !posted) std::this_thread::yield();
      auto transfer = t.rank() == 0 ? t.send_async(1, std::span<std::byte const>{bytes}.first(63))
                                    : t.recv_async(0, bytes);
      posted = true;
      auto const text = transport_failure([&] { t.wait(transfer); });
      EXPECT_TRUE(contains(text, t.rank() == 0
                                     ? "send: rank 0 of 2: sent 63 bytes to rank 1, which expected 64"
                                     : "recv: rank 1 of 2: expected 64 bytes from rank 0, which sent 63"))
          << text;
    });
  }
}

TEST(Threads, run_rethrows_what_a_worker_threw) {
  for (int workers = 1; workers <= 9; ++workers) {
    for (int culprit = 0; culprit < workers; ++culprit) {
      threads cluster{workers};
      auto const text = failure_of<mishap>(cluster, [&](auto& t) {
        if (t.rank() == culprit) throw mishap{"oil"};
        auto const heard = transport_failure([&] {
          gq::transport::barrier(t);
          gq::transport::barrier(t);
        });
        EXPECT_TRUE(contains(heard, "rank " + std::to_string(culprit) + " failed: oil")) << heard;
        std::byte byte{};
        auto incoming = t.recv_async(culprit, std::span{&byte, 1});
        t.wait(incoming);  // throws again, and leaves
      });
      EXPECT_EQ(text, "oil");
    }
  }
}

TEST(Threads, run_rethrows_the_error_of_the_lowest_rank_that_failed_by_itself) {
  threads cluster{5};
  std::atomic<int> ready{0};
  auto const text = failure_of<mishap>(cluster, [&](auto& t) {
    if (t.rank() < 2) gq::transport::barrier(t);  // leaves by a consequence
    ++ready;
    while (ready < 3) std::this_thread::yield();
    throw mishap{"of " + std::to_string(t.rank())};
  });
  EXPECT_EQ(text, "of 2");
}

TEST(Threads, exceptions_of_any_type_pass) {
  threads cluster{3};
  EXPECT_THROW(cluster.run([](auto& t) {
    if (t.rank() == 1) throw 17;
    gq::transport::barrier(t);
    gq::transport::barrier(t);
  }),
               int);
}

TEST(Threads, a_worker_that_left_is_missed_at_once) {
  threads cluster{3, patient};
  auto const start = std::chrono::steady_clock::now();
  cluster.run([](auto& t) {
    if (t.rank() != 0) return;
    std::byte byte{};
    auto incoming = t.recv_async(2, std::span{&byte, 1});
    auto const text = transport_failure([&] { t.wait(incoming); });
    EXPECT_TRUE(contains(text, "rank 2 left the run and did not send 1 bytes")) << text;
  });
  cluster.run([](auto& t) {
    if (t.rank() == 1) return;
    std::vector<std::byte> mine(8), all(24);
    auto const text = transport_failure([&] { t.allgather(mine, all); });
    EXPECT_TRUE(contains(text, "rank 1 left the run and did not take part")) << text;
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{30});
}

TEST(Threads, a_deadline_names_the_operation_the_peer_and_the_time) {
  threads cluster{3, impatient};
  std::atomic<bool> over{false};
  auto const text = failure_of<gq::transport_error>(cluster, [&](auto& t) {
    if (t.rank() == 1) {
      std::vector<std::byte> bytes(64);
      auto transfer = t.send_async(2, bytes);
      try {
        t.wait(transfer);
      } catch (gq::transport_error const&) {
        over = true;
        throw;
      }
    }
    while (!over) std::this_thread::yield();  // busy with something else
  });
  EXPECT_EQ(
      text,
      "globalq: send: rank 1 of 3: waited 0.3 s for rank 2 to receive 64 bytes; let every worker make the "
      "same calls in the same order, or raise options::deadline");
}

TEST(Threads, a_deadline_of_a_collective_names_who_is_missing) {
  threads cluster{4, impatient};
  std::atomic<int> over{0};
  auto const text = failure_of<gq::transport_error>(cluster, [&](auto& t) {
    if (t.rank() % 2 == 1) {
      while (over < 2) std::this_thread::yield();
      return;
    }
    std::vector<std::int32_t> values(1000);
    try {
      t.allreduce_sum(std::span{values});
    } catch (...) {
      ++over;
      throw;
    }
  });
  EXPECT_TRUE(contains(text, "allreduce_sum of int32: rank ")) << text;
  EXPECT_TRUE(contains(text, "waited 0.3 s for rank 1, rank 3 to take part")) << text;
}

// glibc unwinds the stack of a thread that ends. ThreadSanitizer's own functions have no cleanup; AddressSanitizer keeps
// the marks of the frames that glibc leaves, and UndefinedBehaviorSanitizer refuses the null reference by which
// libstdc++ passes this exception.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#define GLOBALQ_TEST_UNWINDS 1
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef GLOBALQ_TEST_UNWINDS
#endif
#endif

#if defined(GLOBALQ_TEST_UNWINDS)
TEST(Threads, a_body_that_ends_its_thread_is_an_error_of_the_run) {
  threads cluster{3, patient};
  std::atomic<int> told{0};
  auto const text = failure_of<gq::transport_error>(cluster, [&](auto& t) {
    if (t.rank() == 1) ::pthread_exit(nullptr);
    std::vector<std::byte> mine(1000), all(3000);
    told += contains(transport_failure([&] { t.allgather(mine, all); }),
                     "rank 1 failed: globalq: run: rank 1 of 3: its thread was ended");
  });
  EXPECT_EQ(
      text,
      "globalq: run: rank 1 of 3: its thread was ended by pthread_exit or pthread_cancel; let the body of "
      "each worker return");
  EXPECT_EQ(told, 2);
  cluster.run([](auto& t) {
    std::vector<std::byte> mine(1000), all(3000);
    t.allgather(mine, all);
  });
}

TEST(Threads, a_worker_that_is_canceled_while_it_waits_is_an_error_of_the_run) {
  for (std::size_t const bytes : counts{8, 1000}) {
    threads cluster{2, patient};
    std::promise<pthread_t> waits;
    auto const text = failure_of<gq::transport_error>(cluster, [&](auto& t) {
      std::vector<std::byte> mine(bytes), all(2 * bytes);
      if (t.rank() == 1) {
        waits.set_value(::pthread_self());
        t.allgather(mine, all);
      }
      EXPECT_EQ(::pthread_cancel(waits.get_future().get()), 0);
      EXPECT_TRUE(contains(transport_failure([&] {
                             auto incoming = t.recv_async(1, mine);
                             t.wait(incoming);
                           }),
                           "rank 1 failed"));
    });
    EXPECT_TRUE(contains(text, "rank 1 of 2: its thread was ended")) << text;
  }
}

TEST(Threads, canceling_the_thread_that_runs_them_ends_the_workers) {
  threads cluster{2, patient};
  std::promise<void> started;
  std::string told;
  std::thread caller([&] {
    cluster.run([&](auto& t) {
      if (t.rank() == 0) return;
      started.set_value();
      std::vector<std::byte> bytes(8);
      auto incoming = t.recv_async(1, bytes);
      told = transport_failure([&] { t.wait(incoming); });
    });
  });
  started.get_future().get();
  EXPECT_EQ(::pthread_cancel(caller.native_handle()), 0);
  caller.join();
  EXPECT_TRUE(contains(told, "the thread that called run() was canceled")) << told;
}
#endif

TEST(Threads, everyone_hears_of_collectives_that_differ) {
  for (std::size_t const count : counts{16, 1000}) {
    threads cluster{3};
    auto const hear = [&](auto const& call) {
      cluster.run([&](auto& t) {
        auto const text = transport_failure([&] { call(t); });
        EXPECT_TRUE(
            contains(text, "rank 0 called allreduce_sum of int8 with " + std::to_string(count) + " bytes"))
            << text;
      });
    };
    hear([&](auto& t) {
      std::vector<std::int8_t> values(count + (t.rank() == 2 ? 1 : 0));
      t.allreduce_sum(std::span{values});
    });
    hear([&](auto& t) {
      std::vector<std::int8_t> values(count);
      std::vector<std::int16_t> wide(count / 2);
      t.rank() == 1 ? t.allreduce_sum(std::span{wide}) : t.allreduce_sum(std::span{values});
    });
    hear([&](auto& t) {
      std::vector<std::int8_t> values(count);
      std::vector<std::byte> mine(count), all(3 * count);
      t.rank() == 1 ? t.allgather(mine, all) : t.allreduce_sum(std::span{values});
    });
  }
}

TEST(Threads, what_has_arrived_counts_though_another_worker_failed) {
  threads cluster{2};
  auto const text = failure_of<mishap>(cluster, [](auto& t) {
    int value = 7;
    if (t.rank() == 0) {
      auto outgoing = t.send_async(1, std::as_bytes(std::span{&value, 1}));
      t.wait(outgoing);
      throw mishap{"after sending"};
    }
    value = 0;
    auto incoming = t.recv_async(0, std::as_writable_bytes(std::span{&value, 1}));
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    EXPECT_NO_THROW(t.wait(incoming));
    EXPECT_EQ(value, 7);
  });
  EXPECT_EQ(text, "after sending");
}

// Workers leave in the middle of everything, their buffers with them; sanitizers watch.
TEST(Threads, nobody_touches_the_buffers_of_a_worker_that_left) {
  using request = threads::endpoint::request;
  constexpr int workers = 4;
  threads cluster{workers};
  for (int turn = 0; turn < 200; ++turn) {
    int const culprit = turn % workers;
    auto const text = failure_of<mishap>(cluster, [&](auto& t) {
      std::vector<std::vector<std::byte>> out, in;
      for (int i = 0; i < 4; ++i) {
        out.emplace_back(20000);
        in.emplace_back(20000);
      }
      std::vector<request> requests;
      for (int step = 0;; ++step) {
        requests.clear();
        for (int peer = 0; peer < workers; ++peer) {
          auto const at = static_cast<std::size_t>(peer);
          requests.push_back(t.recv_async(peer, in[at]));
          requests.push_back(t.send_async(peer, out[at]));
          if (t.rank() == culprit && step * workers + peer == turn % 11) throw mishap{"oil"};
        }
        for (auto& each : requests) t.wait(each);
        if (turn % 3 == 0) {
          std::vector<float> values(3000);
          t.allreduce_sum(std::span{values});
          if (t.rank() == culprit && turn % 2 == 0) throw mishap{"oil"};
        }
      }
    });
    EXPECT_EQ(text, "oil");
  }
}

TEST(Threads, a_request_may_die_after_its_worker_gave_up) {
  threads cluster{2, impatient};
  std::vector<threads::endpoint::request> kept(2);
  EXPECT_THROW(cluster.run([&](auto& t) {
    std::vector<std::byte> bytes(100);  // dies before the request
    auto& mine = kept[static_cast<std::size_t>(t.rank())];
    mine = t.recv_async(1 - t.rank(), bytes);
    t.wait(mine);
  }),
               gq::transport_error);
  cluster.run([](auto& t) { gq::transport::barrier(t); });
  kept.clear();
  cluster.run([](auto& t) { gq::transport::barrier(t); });
}

TEST(Threads, a_cluster_works_again_after_a_failure) {
  for (int workers = 2; workers <= 9; ++workers) {
    threads cluster{workers};
    for (int turn = 0; turn < 5; ++turn) {
      EXPECT_THROW(cluster.run([&](auto& t) {
        int value = 0;
        auto outgoing = t.send_async((t.rank() + 1) % workers, std::as_bytes(std::span{&value, 1}));
        if (t.rank() == turn % workers) throw mishap{"oil"};
        std::vector<int> all(static_cast<std::size_t>(workers));
        for (;;) gq::transport::allgather_value(t, 1, std::span{all});
      }),
                   mishap);
      cluster.run([&](auto& t) {
        std::vector<int> ranks(static_cast<std::size_t>(workers));
        gq::transport::allgather_value(t, t.rank(), std::span{ranks});
        for (int rank = 0; rank < workers; ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank);
        EXPECT_EQ(gq::transport::broadcast_value(t, 1, t.rank()), 1);
        EXPECT_GT(t.bytes_sent(), 0U);
      });
    }
  }
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
TEST(Threads, messages_allocate_nothing_after_the_first) {
  threads{4}.run([](auto& t) {
    std::vector<std::byte> out(1000), in(1000), all(4000), few(64), few_of_all(256);
    std::vector<float> values(1000);
    int const next = (t.rank() + 1) % t.size();
    int const previous = (t.rank() - 1 + t.size()) % t.size();
    auto const talk = [&] {
      auto first = t.recv_async(previous, in);
      auto second = t.send_async(next, out);
      t.wait(first);
      t.wait(second);
      t.allgather(out, all);
      t.allgather(few, few_of_all);
      gq::transport::detail::allgather_by_messages(t, out, all);
      t.allreduce_sum(std::span{values});
      gq::transport::broadcast(t, 2, few);
      gq::transport::barrier(t);
    };
    talk();
    auto const before = support::own_allocations;
    for (int i = 0; i < 300; ++i) talk();
    EXPECT_EQ(support::own_allocations, before);
  });
}
#endif

TEST(Threads, a_failure_reaches_waits_over_duplicates) {
  threads cluster{3, {.deadline = std::chrono::seconds{60}}};
  for (bool throws : {true, false}) {
    std::atomic<int> failed{0};
    auto const body = [&](auto& t) {
      auto const other = t.duplicate();
      if (t.rank() == 2) {
        if (throws) throw std::runtime_error{"mine"};
        return;
      }
      EXPECT_THAT(
          transport_failure([&] { gq::transport::broadcast_value(*other, 2, 1); }),
          testing::AnyOf(testing::HasSubstr("rank 2 failed: mine"), testing::HasSubstr("rank 2 left")));
      ++failed;
    };
    if (throws) {
      EXPECT_THROW(cluster.run(body), std::runtime_error);
    } else {
      cluster.run(body);
    }
    EXPECT_EQ(failed, 2);
  }
}

}  // namespace
}  // namespace globalq_test
