// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of the watchdog: which calls it ends, when, and how often.

#include "globalq/transport/detail/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace {

namespace chrono = std::chrono;
using globalq::transport::detail::watchdog;

constexpr chrono::milliseconds patience{50};

/// Longer than a busy machine may stop a thread.
constexpr chrono::milliseconds long_patience{500};

/// A call that blocks until the watchdog ends it.
struct blocked_call {
  std::atomic<int> ended{0};
  watchdog guard;

  explicit blocked_call(chrono::milliseconds for_calls = patience) : guard{for_calls, [this] { ++ended; }} {}

  void last() const {
    while (ended == 0) std::this_thread::yield();
  }
};

TEST(Watchdog, ends_a_call_at_its_deadline_and_says_so) {
  blocked_call call;
  auto const start = chrono::steady_clock::now();
  call.guard.arm();
  call.last();
  EXPECT_FALSE(call.guard.disarm());
  auto const lasted = chrono::steady_clock::now() - start;
  EXPECT_GE(lasted, patience);
  EXPECT_LT(lasted, patience + chrono::seconds{1});
  EXPECT_EQ(call.ended, 1);
}

// The thread sleeps while there is no call, so a call may begin at any time of its sleep.
TEST(Watchdog, ends_a_call_that_began_while_it_slept) {
  for (int tenth = 0; tenth < 20; tenth += 3) {
    blocked_call call;
    std::this_thread::sleep_for(tenth * patience / 10);
    auto const start = chrono::steady_clock::now();
    call.guard.arm();
    call.last();
    EXPECT_FALSE(call.guard.disarm());
    EXPECT_LT(chrono::steady_clock::now() - start, patience + chrono::seconds{1});
  }
}

TEST(Watchdog, leaves_calls_alone_that_end_in_time) {
  blocked_call call{long_patience};
  auto const until = chrono::steady_clock::now() + 2 * long_patience;
  while (chrono::steady_clock::now() < until) {
    call.guard.arm();
    EXPECT_TRUE(call.guard.disarm());
  }
  EXPECT_EQ(call.ended, 0);
}

TEST(Watchdog, counts_from_the_begin_of_each_call) {
  blocked_call call{long_patience};
  for (int i = 0; i < 100; ++i) {
    call.guard.arm();
    std::this_thread::sleep_for(chrono::milliseconds{10});
    EXPECT_TRUE(call.guard.disarm());
  }
  EXPECT_EQ(call.ended, 0);
}

TEST(Watchdog, acts_once) {
  blocked_call call;
  call.guard.arm();
  call.last();
  EXPECT_FALSE(call.guard.disarm());
  call.guard.arm();  // nobody looks any more
  std::this_thread::sleep_for(3 * patience);
  EXPECT_TRUE(call.guard.disarm());
  EXPECT_EQ(call.ended, 1);
}

TEST(Watchdog, can_go_at_any_time) {
  for (int i = 0; i < 100; ++i) watchdog const idle{chrono::hours{1}, [] {}};
  watchdog armed{chrono::hours{1}, [] {}};
  armed.arm();
}

}  // namespace
