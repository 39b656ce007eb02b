// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of call_queue: what remains of it in a forked process, and after a call has ended its thread.

#include "globalq/call/call_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/refusal.hpp"

namespace globalq_test {
namespace {

namespace gq = globalq;
using testing::HasSubstr;
using job = gq::call_queue::job;

job of(void (*run)(job const&), void* object = nullptr) {
  job made;
  made.run = run;
  made.object = object;
  return made;
}

TEST(CallQueue, a_forked_process_cannot_use_it_and_does_not_wait) {
  std::promise<void> ends;
  std::optional<gq::call_queue> queue(std::in_place);
  auto const busy =
      of([](job const& what) { static_cast<std::promise<void>*>(what.object)->get_future().wait(); }, &ends);
  gq::started_call const call = queue->start(busy);
  auto const refused = [](auto const& use) {
    return support::refusal<gq::configuration_error>(use).find("was forked from") != std::string::npos;
  };
  pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(20);
    queue->settle();
    bool const all = call.test() && refused([&] { call.wait(); }) && refused([&] { queue->wait(); }) &&
                     refused([&] { queue->start(busy); });
    queue.reset();
    ::_exit(all ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ends.set_value();
  call.wait();
}

#if defined(__GLIBC__)
TEST(CallQueue, a_call_that_ends_the_thread_is_an_error_of_all_pending_calls) {
  gq::call_queue queue;
  std::promise<void> goes;
  auto const first = queue.start(of(
      [](job const& what) {
        static_cast<std::promise<void>*>(what.object)->get_future().wait();
        ::pthread_exit(nullptr);
      },
      &goes));
  auto const second = queue.start(of([](job const&) { FAIL(); }));
  goes.set_value();
  for (auto const& call : {first, second})
    EXPECT_THAT(support::refusal<gq::transport_error>([&] { call.wait(); }),
                HasSubstr("a call ended the thread of the queue"));
  EXPECT_THAT(support::refusal<gq::transport_error>([&] { queue.start(of([](job const&) {})); }),
              HasSubstr("make a new queue"));
  queue.wait();
}
#endif

}  // namespace
}  // namespace globalq_test
