// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief A test program that crashes says in which test, at which address, and prints its stack.

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include <execinfo.h>
#include <unistd.h>

namespace support {

/// Sanitizers report crashes themselves.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool names_crashes = false;
#elif defined(__has_feature)
inline constexpr bool names_crashes = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
inline constexpr bool names_crashes = true;
#endif

class crash_reporter : public ::testing::EmptyTestEventListener {
 public:
  /// Of the main thread's stack overflow, too.
  crash_reporter() {
    void* frame = nullptr;
    ::backtrace(&frame, 1);  // loads its library now
    static char stack[1 << 16];
    stack_t other{};
    other.ss_sp = stack;
    other.ss_size = sizeof stack;
    ::sigaltstack(&other, nullptr);
    struct sigaction action {};
    action.sa_sigaction = report;
    // the signal comes again when report() returns, and then ends the program as without it
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) ::sigaction(signal, &action, nullptr);
  }

  void OnTestStart(::testing::TestInfo const& test) override {
    std::snprintf(running(), most, "%s.%s", test.test_suite_name(), test.name());
  }
  void OnTestEnd(::testing::TestInfo const&) override { std::strcpy(running(), "no test"); }

 private:
  static constexpr std::size_t most = 256;
  static char* running() {
    static char name[most] = "no test";
    return name;
  }

  static void report(int signal, siginfo_t* info, void*) {
    char text[most + 100];
    int const length = std::snprintf(text, sizeof text, "\ncrash: signal %d (code %d, address %p) in %s\n",
                                     signal, info->si_code, info->si_addr, running());
    [[maybe_unused]] auto const written = ::write(2, text, static_cast<std::size_t>(length));
    void* frames[24];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 24), 2);
  }
};

/// @pre after InitGoogleTest()
inline void name_crashes() {
  if (names_crashes) ::testing::UnitTest::GetInstance()->listeners().Append(new crash_reporter);
}

}  // namespace support
