// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The C interface at its edges: several threads, arguments that one worker refuses, memory.

#include "workers.hpp"

#include "tests/support/allocations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <span>

namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using namespace support_c;

constexpr way ways[] = {way::threads, way::memory, way::messages};

globalq_vector in_place(std::vector<float>& x) { return {x.data(), x.data(), x.size(), GLOBALQ_FLOAT32}; }

/// The mean of values() over some workers, as a call with these settings computes it.
std::vector<float> mean_of(int workers, globalq_settings const& s, std::size_t length, std::uint64_t step) {
  std::vector<float> found;
  auto const [ended, text] = run(way::threads, workers, [&](globalq_workers* w) {
    call_handle mean;
    globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
    auto x = values(length, globalq_rank(w));
    globalq_vector const v = in_place(x);
    if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, &v, 1, step);
    if (globalq_rank(w) == 0) found = x;
    return status;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
  return found;
}

TEST(CThreads, calls_over_the_same_workers_run_one_after_the_other) {
  // threads race, so calls of workers may meet in unlike orders; the seeds differ, so the handshake sees it
  constexpr int workers = 2, steps = 60;
  constexpr std::size_t length = 3000;
  std::array<globalq_settings, 2> settings{settings_of("cgx:4"), settings_of("cgx:4")};
  settings[1].seed = 10;
  std::array<std::vector<float>, 2> right;
  for (std::size_t k = 0; k < 2; ++k) right[k] = mean_of(workers, settings[k], length, 7);
  for (way how : ways) {
    auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
      int const rank = globalq_rank(w);
      auto const use = [&](std::size_t k) {
        call_handle mean;
        EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &settings[k], nullptr, 0, &mean.call), GLOBALQ_OK);
        for (int step = 0; step < steps; ++step) {
          auto x = values(length, rank);
          globalq_vector const v = in_place(x);
          globalq_status const status = globalq_call_run(mean.call, &v, 1, 7);
          EXPECT_THAT(status, AnyOf(Eq(GLOBALQ_OK), Eq(GLOBALQ_DISAGREEMENT))) << globalq_error();
          EXPECT_EQ(x, status == GLOBALQ_OK ? right[k] : values(length, rank));
          EXPECT_GT(globalq_bytes_sent(w), 0U);
        }
      };
      std::thread other(use, 1);
      use(0);
      other.join();
      return GLOBALQ_OK;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
}

TEST(CThreads, duplicates_are_independent) {
  constexpr int workers = 3, steps = 40;
  constexpr std::size_t length = 3000;
  globalq_settings const s = settings_of("global-uniform:8");
  auto const right = mean_of(workers, s, length, 7);
  for (way how : {way::threads, way::memory}) {
    auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
      int const rank = globalq_rank(w);
      auto const use = [&](globalq_workers* over) {
        EXPECT_EQ(globalq_rank(over), rank);
        EXPECT_EQ(globalq_size(over), workers);
        call_handle mean;
        EXPECT_EQ(globalq_call_create(over, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
        for (int step = 0; step < steps; ++step) {
          auto x = values(length, rank);
          globalq_vector const v = in_place(x);
          EXPECT_EQ(globalq_call_run(mean.call, &v, 1, 7), GLOBALQ_OK) << globalq_error();
          EXPECT_EQ(x, right);
        }
      };
      globalq_workers *first = nullptr, *second = nullptr;
      EXPECT_EQ(globalq_workers_duplicate(w, &first), GLOBALQ_OK) << globalq_error();
      EXPECT_EQ(globalq_workers_duplicate(first, &second), GLOBALQ_OK) << globalq_error();
      std::thread a(use, first), b(use, second);
      use(w);
      a.join();
      b.join();
      globalq_workers_destroy(first);
      globalq_workers_destroy(second);
      return GLOBALQ_OK;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
}

TEST(CThreads, a_failure_reaches_the_calls_over_duplicates) {
  std::atomic<int> failed = 0;
  std::array<globalq_workers*, 3> others{};  // they outlive the run, so that no worker leaves before it fails
  work body = [&](globalq_workers* w) {
    globalq_workers*& other = others[static_cast<std::size_t>(globalq_rank(w))];
    EXPECT_EQ(globalq_workers_duplicate(w, &other), GLOBALQ_OK);
    globalq_settings const s = settings_of("cgx:4");
    call_handle mean;
    EXPECT_EQ(globalq_call_create(other, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
    auto x = values(100, 0);
    globalq_vector const v = in_place(x);
    globalq_status status = GLOBALQ_FRAME;
    if (globalq_rank(w) != 1) {
      status = globalq_call_run(mean.call, &v, 1, 0);
      EXPECT_EQ(status, GLOBALQ_TRANSPORT);
      EXPECT_THAT(globalq_error(), HasSubstr("rank 1 failed"));
      ++failed;
    }
    return status;
  };
  EXPECT_EQ(globalq_threads_run(3, 60, run_work, &body), GLOBALQ_FRAME);
  EXPECT_EQ(failed, 2);
  for (globalq_workers* each : others) {
    globalq_settings const s = settings_of("cgx:4");
    call_handle mean;
    EXPECT_EQ(globalq_call_create(each, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
    auto x = values(100, 0);
    globalq_vector const v = in_place(x);
    EXPECT_EQ(globalq_call_run(mean.call, &v, 1, 0), GLOBALQ_CONFIGURATION);
    EXPECT_THAT(globalq_error(), HasSubstr("have ended"));
    globalq_workers_destroy(each);
  }
}

TEST(CThreads, duplicates_are_refused_on_all_workers) {
  auto const [ended, text] = run(way::messages, 2, [](globalq_workers* w) {
    globalq_workers* other = nullptr;
    globalq_status const status = globalq_workers_duplicate(w, &other);
    EXPECT_EQ(other, nullptr);
    return status;
  });
  EXPECT_EQ(ended, GLOBALQ_CONFIGURATION);
  EXPECT_THAT(text, HasSubstr("call globalq_messages_create"));
  auto const [unlike, why] = run(way::memory, 2, [](globalq_workers* w) {
    if (globalq_rank(w) == 0) {
      globalq_workers* other = nullptr;
      EXPECT_EQ(globalq_workers_duplicate(w, nullptr), GLOBALQ_CONFIGURATION);
      EXPECT_EQ(globalq_workers_duplicate(w, &other), GLOBALQ_DISAGREEMENT);
      return GLOBALQ_OK;
    }
    globalq_settings const s = settings_of("cgx:4");
    call_handle mean;
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
    auto x = values(100, 0);
    globalq_vector const v = in_place(x);
    EXPECT_EQ(globalq_call_run(mean.call, &v, 1, 0), GLOBALQ_DISAGREEMENT);
    EXPECT_THAT(globalq_error(), HasSubstr("created is NULL"));
    EXPECT_EQ(globalq_call_run(mean.call, &v, 1, 0), GLOBALQ_DISAGREEMENT);
    EXPECT_THAT(globalq_error(), HasSubstr("globalq_workers_duplicate"));
    return GLOBALQ_OK;
  });
  EXPECT_EQ(unlike, GLOBALQ_OK) << why;
}

/// Functions of messages that use the workers which they serve.
TEST(CThreads, a_call_inside_a_call_over_the_same_workers_is_refused) {
  static globalq_workers* workers = nullptr;
  static globalq_call* call = nullptr;
  static std::string answer;
  globalq_messages m{};
  m.size = sizeof m;
  m.send = [](void*, int, void const*, std::size_t, std::uint64_t*) {
    float x = 1;
    globalq_vector const v{&x, &x, 1, GLOBALQ_FLOAT32};
    globalq_report report{};
    report.size = sizeof report;
    EXPECT_EQ(globalq_call_run(call, &v, 1, 0), GLOBALQ_CONFIGURATION);
    EXPECT_EQ(globalq_call_report(call, &report), GLOBALQ_CONFIGURATION);
    EXPECT_EQ(globalq_workers_refuse(workers, "no"), GLOBALQ_CONFIGURATION);
    answer = globalq_error();
    return 1;
  };
  m.receive = [](void*, int, void*, std::size_t, std::uint64_t*) { return 0; };
  m.wait = [](void*, std::uint64_t) { return 1; };
  m.abandon = [](void*, std::uint64_t) {};
  ASSERT_EQ(globalq_messages_create(&m, 0, 2, &workers), GLOBALQ_OK);
  globalq_settings const s = settings_of("cgx:4");
  ASSERT_EQ(globalq_call_create(workers, GLOBALQ_MEAN, &s, nullptr, 0, &call), GLOBALQ_OK);
  auto x = values(100, 0);
  globalq_vector const v = in_place(x);
  EXPECT_EQ(globalq_call_run(call, &v, 1, 0), GLOBALQ_TRANSPORT);
  EXPECT_THAT(answer, HasSubstr("already in a call over these workers"));
  globalq_call_destroy(call);
  globalq_workers_destroy(workers);
}

/// A call that one worker cannot make.
struct refused_call {
  char const* name;
  /// Makes the call with wrong arguments.
  std::function<globalq_status(globalq_workers*, globalq_call*)> wrong;
  char const* text;  ///< a part of the error of that worker, and of the others
  globalq_kind kind = GLOBALQ_MEAN;
  char const* op = "cgx:4";
  bool layers = false;
};

std::vector<refused_call> refused_calls() {
  static std::vector<float> x(1000);
  auto const run_with = [](globalq_vector v, std::size_t count = 1) {
    return [=](globalq_workers*, globalq_call* c) { return globalq_call_run(c, &v, count, 0); };
  };
  auto const run_two = [](globalq_vector a, globalq_vector b) {
    return [=](globalq_workers*, globalq_call* c) {
      globalq_vector const v[] = {a, b};
      return globalq_call_run(c, v, 2, 0);
    };
  };
  auto const shard = [](std::size_t input, std::size_t length, std::size_t output, std::size_t got) {
    return [=](globalq_workers*, globalq_call* c) {
      return globalq_call_run_shard(c, x.data() + input, length, x.data() + output, got, GLOBALQ_FLOAT32, 0);
    };
  };
  globalq_vector const whole{x.data(), x.data(), 1000, GLOBALQ_FLOAT32},
      front{x.data(), x.data(), 600, GLOBALQ_FLOAT32};
  return {
      {"null", run_with({nullptr, x.data(), 1000, GLOBALQ_FLOAT32}), "1000 values at NULL"},
      {"no vectors", [](globalq_workers*, globalq_call* c) { return globalq_call_run(c, nullptr, 1, 0); },
       "vectors is NULL"},
      {"type", run_with({x.data(), x.data(), 1000, static_cast<globalq_type>(9)}), "there is no type 9"},
      {"overlap", run_two(whole, front), "overlap"},
      {"shifted", run_with({x.data(), x.data() + 1, 999, GLOBALQ_FLOAT32}), "overlap"},
      {"length", run_with({x.data(), x.data(), ~std::uint64_t{0}, GLOBALQ_FLOAT32}), "2^48"},
      {"two that are clipped",
       run_two({x.data(), x.data(), 500, GLOBALQ_FLOAT32}, {&x[500], &x[500], 500, GLOBALQ_FLOAT32}),
       "2 vectors with an operator that clips", GLOBALQ_MEAN, "terngrad:2.5"},
      {"refuse",
       [](globalq_workers* w, globalq_call*) {
         EXPECT_EQ(globalq_workers_refuse(w, "the data are not\nthere"), GLOBALQ_OK);
         return GLOBALQ_CONFIGURATION;
       },
       "the data are not"},
      {"shard of a mean", shard(0, 1000, 0, 1000), "use globalq_call_run"},
      {"two vectors in shards", run_two(whole, front), "2 vectors in a call of shards",
       GLOBALQ_REDUCE_SCATTER},
      {"shard at the start", shard(0, 1000, 0, 256), "not at its place, values 512 to 767",
       GLOBALQ_REDUCE_SCATTER},
      {"shard of another", shard(256, 256, 0, 1000), "not at its place", GLOBALQ_ALL_GATHER},
      {"shard of another length", shard(0, 1000, 512, 255), "has 256", GLOBALQ_REDUCE_SCATTER},
      {"layers", run_two(front, front), "overlap", GLOBALQ_MEAN, "cgx:4", true},
      {"number of layers", run_with(whole), "1 vectors", GLOBALQ_MEAN, "cgx:4", true},
      {"layers of a compressor", run_with(whole), "1 vectors", GLOBALQ_MEAN, "top-k:0.1", true},
      {"null in a compressor",
       run_two({nullptr, nullptr, 600, GLOBALQ_FLOAT32}, {&x[600], &x[600], 400, GLOBALQ_FLOAT32}),
       "600 values at NULL", GLOBALQ_MEAN, "top-k:0.1", true},
  };
}

TEST(CRefusals, reach_the_other_workers_and_the_next_call_works) {
  constexpr int workers = 4;  // shards of 256 values; that of rank 2 is 512 to 767
  for (way how : ways)
    for (refused_call const& c : refused_calls()) {
      SCOPED_TRACE(c.name);
      auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
        globalq_settings s = settings_of(c.op);
        std::uint64_t const shapes[] = {600, 400};
        globalq_layer const layers[] = {{"a", &shapes[0], 1, GLOBALQ_FLOAT32, nullptr},
                                        {"b", &shapes[1], 1, GLOBALQ_FLOAT32, nullptr}};
        call_handle call;
        globalq_status status =
            globalq_call_create(w, c.kind, &s, c.layers ? layers : nullptr, c.layers ? 2 : 0, &call.call);
        if (status != GLOBALQ_OK) return status;
        auto const right = [&](std::uint64_t step) {
          auto x = values(1000, globalq_rank(w));
          globalq_vector const v[] = {{x.data(), x.data(), c.layers ? 600U : 1000U, GLOBALQ_FLOAT32},
                                      {&x[600], &x[600], 400, GLOBALQ_FLOAT32}};
          globalq_status const of = globalq_call_run(call.call, v, c.layers ? 2 : 1, step);
          if (of != GLOBALQ_OK) {
            EXPECT_EQ(x, values(1000, globalq_rank(w)));
          }
          return of;
        };
        if (globalq_rank(w) == 2) {
          EXPECT_EQ(c.wrong(w, call.call), GLOBALQ_CONFIGURATION);
          if (std::string_view(c.name) != "refuse") {
            EXPECT_THAT(globalq_error(), HasSubstr(c.text));
          }
        } else {
          EXPECT_EQ(right(0), GLOBALQ_DISAGREEMENT);
          EXPECT_THAT(globalq_error(), HasSubstr("rank 2 refused its arguments ("));
          EXPECT_THAT(globalq_error(), HasSubstr(c.text));
        }
        status = right(1);
        return status == GLOBALQ_OK ? right(2) : status;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
    }
}

TEST(CShards, are_accepted_at_their_place_and_beside_the_vector) {
  constexpr int workers = 3;
  constexpr std::size_t length = 1000;
  auto const [ended, text] = run(way::threads, workers, [&](globalq_workers* w) {
    call_handle scatter, gather;
    globalq_settings const s = settings_of("cgx:4");
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_REDUCE_SCATTER, &s, nullptr, 0, &scatter.call), GLOBALQ_OK);
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_ALL_GATHER, &s, nullptr, 0, &gather.call), GLOBALQ_OK);
    std::uint64_t first = 0, count = 0;
    EXPECT_EQ(globalq_call_shard(scatter.call, length, globalq_rank(w), &first, &count), GLOBALQ_OK);
    auto const shard = [&](globalq_call* c, std::span<float> x, std::span<float> y) {
      EXPECT_EQ(globalq_call_run_shard(c, x.data(), x.size(), y.data(), y.size(), GLOBALQ_FLOAT32, 3),
                GLOBALQ_OK)
          << globalq_error();
    };
    auto apart = values(length, globalq_rank(w)), whole = apart, placed = apart;
    std::vector<float> own(count);
    shard(scatter.call, apart, own);
    EXPECT_EQ(apart, values(length, globalq_rank(w)));
    shard(scatter.call, whole, whole);
    shard(scatter.call, placed, std::span(placed).subspan(first, count));
    EXPECT_EQ(whole, placed);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
    std::vector<float> all(length);
    shard(gather.call, own, all);
    shard(gather.call, whole, whole);
    shard(gather.call, std::span(placed).subspan(first, count), placed);
    EXPECT_EQ(whole, all);
    EXPECT_EQ(placed, all);
    return GLOBALQ_OK;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
/// A call over one worker, whose allocations are counted.
struct repeated_call {
  char const* op;
  std::size_t vectors;
  bool layers;
};
constexpr repeated_call repeated[] = {
    {"cgx:4", 1, false},        {"float32", 3, false}, {"global-uniform:8", 9, false},
    {"terngrad:2.5", 1, false}, {"cgx:4", 2, true},    {"terngrad:2.5", 2, true}};

TEST(CMemory, runs_allocate_nothing_after_the_first) {
  for (repeated_call const& c : repeated)
    for (int workers : {1, 2}) {
      std::atomic<std::size_t> before = 0, after = 0;
      auto const [ended, text] = run(way::threads, workers, [&](globalq_workers* w) {
        globalq_settings const s = settings_of(c.op);
        std::uint64_t const shape = 700;
        globalq_layer const layers[] = {{"a", &shape, 1, GLOBALQ_FLOAT32, nullptr},
                                        {"b", &shape, 1, GLOBALQ_FLOAT32, "float32"}};
        call_handle call, scatter;
        EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, c.layers ? layers : nullptr, c.layers ? 2 : 0,
                                      &call.call),
                  GLOBALQ_OK);
        auto x = values(700 * c.vectors, globalq_rank(w));
        std::vector<globalq_vector> all;
        for (std::size_t k = 0; k < c.vectors; ++k)
          all.push_back({&x[700 * k], &x[700 * k], 700, GLOBALQ_FLOAT32});
        for (std::uint64_t step = 0; step < 4; ++step) {
          if (step == 2) before = support::allocations.load();
          EXPECT_EQ(globalq_call_run(call.call, all.data(), all.size(), 20 * step), GLOBALQ_OK)
              << globalq_error();
          after = support::allocations.load();
        }
        return GLOBALQ_OK;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
      EXPECT_EQ(after - before, 0U) << c.op << ", " << c.vectors << " vectors, " << workers << " workers";
    }
}

TEST(CMemory, an_allocation_that_fails_before_the_handshake_is_a_refusal) {
  for (char const* op : {"cgx:4", "terngrad:2.5", "alq:3"}) {
    int refused = 0;
    bool fails = true;
    for (std::size_t at = 0; fails && at < 60; ++at) {
      globalq_status of_other = GLOBALQ_OK;
      auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
        globalq_settings s = settings_of(op);
        s.learn_at = "1";
        call_handle call;
        EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &call.call), GLOBALQ_OK);
        auto x = values(700, globalq_rank(w));
        globalq_vector const v = in_place(x);
        if (globalq_rank(w) == 0) {
          of_other = globalq_call_run(call.call, &v, 1, 1);
          return GLOBALQ_OK;
        }
        support::allocation_failure failure;
        failure.at = at;
        support::failing = &failure;
        failure.on = true;
        globalq_status const status = globalq_call_run(call.call, &v, 1, 1);
        failure.on = false;
        support::failing = nullptr;
        fails = failure.fired;
        EXPECT_EQ(status, fails ? GLOBALQ_NO_MEMORY : GLOBALQ_OK) << at;
        return GLOBALQ_OK;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
      // later allocations follow the handshake: the other worker notices that this one has left
      if (at == 0 && fails) {
        EXPECT_EQ(of_other, GLOBALQ_DISAGREEMENT);
      }
      refused += of_other == GLOBALQ_DISAGREEMENT ? 1 : 0;
    }
    EXPECT_GT(refused, 0) << op;
  }
}
#endif

}  // namespace
