// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Tests of transport::named_memory: with threads as its processes, and with processes that are killed.

#include "globalq/transport/named_memory.hpp"

#include "globalq/transport/detail/named_page.hpp"
#include "globalq/transport/detail/shared_node-inl.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.hpp"

namespace globalq_test {
namespace {

using gq::transport::named_memory;
using testing::HasSubstr;

static_assert(gq::transport::OwnAllgather<named_memory>);
static_assert(gq::transport::OwnBytesSent<named_memory>);
static_assert(gq::transport::OwnName<named_memory>);

std::string new_name() {
  static std::atomic<int> count{0};
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

/// What each process of a job throws; nothing where it does not.
template <class Body>
std::vector<std::exception_ptr> errors_of(int workers, Body const& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(workers));
  std::vector<std::thread> crew;
  for (int rank = 0; rank < workers; ++rank)
    crew.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (auto& each : crew) each.join();
  return errors;
}

std::string text_of(std::exception_ptr const& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (std::exception const& e) {
    return e.what();
  }
}

struct harness {
  using endpoint = named_memory;
  static std::vector<int> worlds() { return {1, 2, 3, 5, 9}; }
  template <class Body>
  static void run(int workers, options const& settings, Body const& body) {
    std::string const name = new_name();
    auto const errors = errors_of(workers, [&](int rank) {
      named_memory t(name, rank, workers, settings);
      body(t);
    });
    for (auto const& each : errors)
      if (each) std::rethrow_exception(each);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(named_memory, transport_suite, harness);

TEST(NamedMemory, the_name_is_gone_once_all_have_joined) {
  std::string const name = new_name();
  for (int turn = 0; turn < 2; ++turn)
    for (auto const& each : errors_of(3, [&](int rank) {
           named_memory t(name, rank, 3, patient);
           std::byte one{}, all[3];
           t.allgather({&one, 1}, all);
         }))
      EXPECT_EQ(text_of(each), "");
}

TEST(NamedMemory, who_does_not_come_is_named) {
  std::string const name = new_name();
  auto const errors = errors_of(4, [&](int rank) {
    if (rank != 2) named_memory(name, rank, 4, impatient);
  });
  for (int rank : {0, 1, 3})
    EXPECT_THAT(text_of(errors[static_cast<std::size_t>(rank)]), HasSubstr("for rank 2 to join"));
  EXPECT_THAT(support::refusal<gq::transport_error>([] { named_memory(new_name(), 1, 2, impatient); }),
              HasSubstr("for rank 0 to make"));
}

TEST(NamedMemory, what_does_not_fit_is_refused) {
  auto const refusal = [](auto const& name, int rank, int size) {
    return support::refusal<gq::configuration_error>([&] { named_memory(name, rank, size, impatient); });
  };
  EXPECT_THAT(refusal("a/b", 0, 1), HasSubstr("invalid name"));
  EXPECT_THAT(refusal("", 0, 1), HasSubstr("invalid name"));
  EXPECT_THAT(refusal("a", 1, 1), HasSubstr("invalid rank 1 of 1"));
  EXPECT_THAT(refusal("a", 0, 0), HasSubstr("invalid size 0"));
  std::string const name = new_name();
  auto const errors = errors_of(2, [&](int rank) { named_memory(name, rank, rank == 0 ? 2 : 3, impatient); });
  EXPECT_THAT(text_of(errors[1]), HasSubstr("size is 3 here and 2 on rank 0"));
  EXPECT_THAT(text_of(errors[0]),
              HasSubstr("another process was refused: globalq: named_memory: rank 1 of 3"));
  auto const twice = errors_of(3, [&](int rank) { named_memory(name, rank == 2 ? 1 : rank, 3, impatient); });
  EXPECT_THAT(text_of(twice[1]) + text_of(twice[2]), HasSubstr("another process has joined"));
  auto const makers = errors_of(2, [&](int) { named_memory(name, 0, 2, impatient); });
  EXPECT_THAT(text_of(makers[0]) + text_of(makers[1]), HasSubstr("is the name of another job"));
}

TEST(NamedMemory, a_process_that_dies_while_others_join_is_named) {
  std::string const name = new_name();
  pid_t const child = ::fork();
  if (child == 0) {
    std::thread([&] { named_memory(name, 1, 3, patient); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::raise(SIGKILL);
  }
  EXPECT_THAT(support::refusal<gq::transport_error>([&] { named_memory(name, 0, 3, patient); }),
              HasSubstr("rank 1 died (process " + std::to_string(child) + ") while others joined"));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST(NamedMemory, a_forked_process_cannot_use_it_and_leaves_nobody) {
  std::string const name = new_name();
  auto const errors = errors_of(2, [&](int rank) {
    auto t = std::make_unique<named_memory>(name, rank, 2, patient);
    if (rank == 0) {
      pid_t const child = ::fork();
      if (child == 0) {
        std::byte one{}, all[2];
        std::string const told = transport_failure([&] { t->allgather({&one, 1}, all); });
        t.reset();
        ::_exit(told.find("was forked from") != told.npos ? 0 : 1);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    std::byte one{}, all[2];
    t->allgather({&one, 1}, all);
  });
  for (auto const& each : errors) EXPECT_EQ(text_of(each), "");
}

std::string path_of(std::string const& name) { return "/globalq-" + name; }
bool exists(std::string const& name) {
  int const file = ::shm_open(path_of(name).c_str(), O_RDONLY, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

/// Takes the name first, as another process would.
void take(std::string const& name, mode_t mode) {
  int const file = ::shm_open(path_of(name).c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ::fchmod(file, mode) != 0 || ::ftruncate(file, 1 << 20) != 0) std::abort();
  ::close(file);
}

std::string refused(std::string const& name) {
  std::string const text =
      support::refusal<gq::configuration_error>([&] { named_memory(name, 1, 2, impatient); });
  EXPECT_TRUE(exists(name)) << "it is not ours to remove";
  ::shm_unlink(path_of(name).c_str());
  return text;
}

TEST(NamedMemory, memory_that_other_users_may_access_is_refused) {
  std::string const user = std::to_string(::geteuid());
  for (mode_t const mode : {mode_t{0660}, mode_t{0602}, mode_t{0640}, mode_t{0604}}) {
    std::string const name = new_name();
    take(name, mode);
    char octal[8];
    std::snprintf(octal, sizeof octal, "%04o", static_cast<unsigned>(mode));
    EXPECT_THAT(refused(name), HasSubstr("is memory of user " + user + " with mode " + octal +
                                         ", not of user " + user + " with mode 0600; draw a new name"));
  }
}

TEST(NamedMemory, memory_of_another_user_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can create memory as another user";
  for (mode_t const mode : {mode_t{0600}, mode_t{0666}}) {
    std::string const name = new_name();
    pid_t const child = ::fork();
    if (child == 0) {
      if (::setuid(65534) != 0) ::_exit(1);
      take(name, mode);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_THAT(refused(name), HasSubstr("is memory of user 65534 with mode"));
  }
}

#if defined(__linux__)
TEST(NamedMemory, links_are_not_followed) {
  std::string const name = new_name(), other = new_name();
  take(other, 0600);
  ASSERT_EQ(::symlink(("/dev/shm" + path_of(other)).c_str(), ("/dev/shm" + path_of(name)).c_str()), 0);
  EXPECT_THAT(support::refusal<gq::configuration_error>([&] { named_memory(name, 1, 2, impatient); }),
              HasSubstr("is a link, or memory of another user; draw a new name"));
  ::shm_unlink(path_of(name).c_str());
  ::shm_unlink(path_of(other).c_str());
}
#endif

TEST(NamedMemory, a_rank_0_that_is_killed_while_others_join_leaves_no_memory) {
  std::string const name = new_name();
  pid_t const child = ::fork();
  if (child == 0) {
    std::thread([&] { named_memory(name, 0, 4, patient); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::raise(SIGKILL);
  }
  auto const errors = errors_of(4, [&](int rank) {
    if (rank == 1 || rank == 2) named_memory(name, rank, 4, patient);
  });
  for (std::size_t const rank : {1, 2})
    EXPECT_THAT(
        text_of(errors[rank]),
        testing::AnyOf(HasSubstr("rank 0 died (process " + std::to_string(child) + ") while others joined"),
                       HasSubstr("a process stopped while it joined")));
  EXPECT_FALSE(exists(name));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

/// The memory of a rank 0 that has not prepared it yet.
struct unprepared {
  explicit unprepared(std::string const& name) {
    if (memory.create(path_of(name), gq::transport::detail::named_page::bytes) != 0) std::abort();
    page = ::new (memory.memory()) gq::transport::detail::named_page;
    page->processes = 3;
    page->spaces[0] = gq::transport::detail::shared_node::process_namespace();
    rank_0 = ::fork();
    if (rank_0 == 0) {
      ::pause();
      ::_exit(0);
    }
    page->joined[0].store(static_cast<std::uint64_t>(rank_0));
  }
  void kill() {
    ::kill(rank_0, SIGKILL);
    int status = 0;
    EXPECT_EQ(::waitpid(rank_0, &status, 0), rank_0);
  }
  gq::transport::detail::shared_mapping memory;
  gq::transport::detail::named_page* page;
  pid_t rank_0;
};

TEST(NamedMemory, a_rank_0_that_is_killed_before_it_has_prepared_the_memory_leaves_none) {
  std::string const name = new_name();
  unprepared job(name);
  job.kill();
  EXPECT_THAT(support::refusal<gq::transport_error>([&] { named_memory(name, 1, 3, patient); }),
              HasSubstr("rank 0 died (process " + std::to_string(job.rank_0) + ")"));
  EXPECT_FALSE(exists(name));
}

TEST(NamedMemory, memory_of_a_new_job_with_the_name_of_a_killed_one_stays) {
  for (bool const removed_by_another : {true, false}) {
    std::string const name = new_name();
    unprepared job(name);
    auto const errors = errors_of(2, [&](int rank) {
      if (rank == 1) return named_memory(name, 1, 3, patient), void();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 1 has mapped it
      if (removed_by_another) {
        job.page->nameless.store(1);
      } else {
        ::shm_unlink(path_of(name).c_str());
        take(name, 0600);
      }
      job.kill();
    });
    EXPECT_THAT(text_of(errors[1]), HasSubstr("rank 0 died"));
    EXPECT_TRUE(exists(name));
    ::shm_unlink(path_of(name).c_str());
  }
}

// The main thread of a process may end before others do.
TEST(NamedMemory, a_process_whose_main_thread_has_ended_is_alive) {
  std::string const name = new_name();
  pid_t const child = ::fork();
  if (child == 0) {
    std::thread([&] {
      named_memory t(name, 1, 2, patient);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      std::byte one{};
      auto r = t.send_async(0, {&one, 1});
      t.wait(r);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // of this thread alone, with nothing unwound
  }
  named_memory t(name, 0, 2, patient);
  std::byte one{};
  auto r = t.recv_async(1, {&one, 1});
  t.wait(r);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST(NamedMemory, a_request_that_is_dropped_is_an_error_for_all) {
  std::string const name = new_name();
  auto const errors = errors_of(2, [&](int rank) {
    named_memory t(name, rank, 2, patient);
    std::vector<std::byte> bytes(100);
    if (rank == 1) static_cast<void>(t.recv_async(0, bytes));
    auto r = t.recv_async(1 - rank, bytes);
    t.wait(r);
  });
  EXPECT_THAT(text_of(errors[0]), HasSubstr("rank 1 failed: a transfer was given up"));
  EXPECT_THAT(text_of(errors[1]), HasSubstr("the transport is broken"));
}

// Also where its parent has not asked how it ended: its number is still taken then.
TEST(NamedMemory, a_process_that_is_killed_is_an_error_of_the_other) {
  for (bool asked : {true, false}) {
    std::string const name = new_name();
    pid_t const child = ::fork();
    if (child == 0) {
      named_memory t(name, 1, 2, patient);
      ::raise(SIGKILL);
    }
    named_memory t(name, 0, 2, patient);
    int status = 0;
    if (asked) {
      ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    std::vector<std::byte> bytes(100000);
    EXPECT_THAT(transport_failure([&] {
                  auto r = t.recv_async(1, bytes);
                  t.wait(r);
                }),
                HasSubstr("rank 1 died (process " + std::to_string(child) + ")"));
    if (!asked) {
      ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
  }
}

}  // namespace
}  // namespace globalq_test
