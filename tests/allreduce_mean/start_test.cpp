// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Calls that are started: the bits of calls that are waited for, in order, and errors that reach their handle.

#include "tests/support/allocations.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/call/call_queue.hpp>
#include <globalq/globalq.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

namespace gq = globalq;
using support::on_threads;
using support::same_bits;
using support::values;

namespace start_test {

auto quantized() {
  return gq::quantizer{gq::norm::linf{.bucket = 128}, gq::levels::uniform<7>{}, gq::rounding::stochastic{},
                       gq::wire::packed<4>{}};
}

TEST(Start, calls_give_the_bits_of_calls_that_are_waited_for_whatever_their_timing) {
  for (int n : {1, 2, 3, 5})
    on_threads(n, std::chrono::seconds{20}, [](auto& workers) {
      gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {.seed = 4}, Kokkos::Serial()};
      constexpr int layers = 6;
      std::vector<std::vector<float>> direct, started;
      for (int k = 0; k < layers; ++k)
        direct.push_back(values(500 + 333 * static_cast<std::size_t>(k), workers.rank() + 10 * k));
      started = direct;
      for (int k = 0; k < layers; ++k)
        mean(direct[static_cast<std::size_t>(k)], static_cast<std::uint64_t>(k));
      for (int round = 0; round < 3; ++round) {
        auto x = started;
        std::vector<gq::started_call> calls;
        for (int k = 0; k < layers; ++k) {
          // gradients become ready at times of their own
          if ((workers.rank() + k + round) % 3 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds{300});
          calls.push_back(mean.start(x[static_cast<std::size_t>(k)], static_cast<std::uint64_t>(k)));
        }
        for (std::size_t k = layers; k-- > 0;) {
          calls[k].wait();
          EXPECT_TRUE(calls[k].test());
          EXPECT_TRUE(same_bits(x[k], direct[k])) << k;
        }
      }
    });
}

TEST(Start, a_direct_call_waits_for_those_that_were_started) {
  on_threads(2, std::chrono::seconds{20}, [](auto& workers) {
    gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {.seed = 4}, Kokkos::Serial()};
    std::vector<float> a = values(100000, workers.rank()), b = a, c = a, d = a;
    gq::started_call const first = mean.start(a, 0);
    mean(b, 1);
    EXPECT_TRUE(first.test());
    mean(c, 0);
    mean(d, 1);
    EXPECT_TRUE(same_bits(a, c));
    EXPECT_TRUE(same_bits(b, d));
  });
}

TEST(Start, calls_keep_the_levels_that_they_were_started_with) {
  on_threads(2, std::chrono::seconds{20}, [](auto& workers) {
    gq::levels::table const early{0, 0.25, 0.5, 1}, late{0, 0.0625, 0.375, 1};
    gq::allreduce_mean mean{workers,
                            gq::quantizer{gq::norm::linf{.bucket = 128}, early, gq::rounding::stochastic{},
                                          gq::wire::packed<3>{}},
                            gq::schedule::ring{},
                            {.seed = 4},
                            Kokkos::Serial()};
    std::vector<std::vector<float>> direct;
    for (int k = 0; k < 4; ++k) direct.push_back(values(20000, workers.rank() + 10 * k));
    std::vector<std::vector<float>> started = direct;
    for (std::size_t k = 0; k < 3; ++k) mean(direct[k], k);
    mean.set_levels(late);
    mean(direct[3], 3);
    mean.set_levels(early);
    for (std::size_t k = 0; k < 3; ++k) mean.start(started[k], k);
    mean.set_levels(late);  // while they run
    mean.start(started[3], 3);
    mean.wait();
    for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(same_bits(started[k], direct[k])) << k;
  });
}

TEST(Start, calls_of_several_operators_share_a_queue_and_a_transport) {
  on_threads(3, std::chrono::seconds{20}, [](auto& workers) {
    auto const queue = std::make_shared<gq::call_queue>();
    gq::allreduce_mean mean{workers, quantized(), gq::schedule::sra{}, {.seed = 4}, Kokkos::Serial()};
    gq::reduce_scatter_mean shard{workers, quantized(), {.seed = 5}, Kokkos::Serial()};
    gq::all_gather gather{workers, quantized(), {.seed = 6}, Kokkos::Serial()};
    std::vector<float> a = values(3000, workers.rank()), b = a, c = a, x = a, y = a, z = a;
    mean(x, 0);
    shard(y, 0);
    gather(z, 0);
    mean.run_on(queue);
    shard.run_on(queue);
    gather.run_on(queue);
    mean.start(a, 0);
    shard.start(b, 0);
    gather.start(c, 0).wait();
    queue->wait();
    EXPECT_TRUE(same_bits(a, x));
    EXPECT_TRUE(same_bits(b, y));
    EXPECT_TRUE(same_bits(c, z));
  });
}

TEST(Start, an_error_is_thrown_by_the_handle_and_the_next_calls_run) {
  on_threads(3, std::chrono::seconds{20}, [](auto& workers) {
    gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {}, Kokkos::Serial()};
    std::vector<float> a(workers.rank() == 1 ? 300 : 299), b = values(300, workers.rank()),
                                                           c(workers.rank() == 2 ? 5 : 6);
    gq::started_call const wrong = mean.start(a, 0), right = mean.start(b, 1);
    right.wait();
    EXPECT_TRUE(wrong.test());
    EXPECT_THROW(wrong.wait(), gq::disagreement_error);
    EXPECT_NO_THROW(wrong.wait()) << "once";
    mean.start(c, 2);
    EXPECT_THROW(mean.wait(), gq::disagreement_error) << "nobody asked the handle";
    EXPECT_NO_THROW(mean.wait());
    EXPECT_THROW(mean.start(b, std::uint64_t{1} << 48), gq::configuration_error)
        << "before anything is started";
  });
}

TEST(Start, a_worker_that_never_calls_is_an_error_of_the_others_by_the_deadline) {
  gq::transport::threads cluster{3, {.deadline = std::chrono::milliseconds{300}}};
  std::vector<std::string> texts(3);
  auto const begin = std::chrono::steady_clock::now();
  try {
    cluster.run([&](auto& workers) {
      if (workers.rank() == 1) return;  // dead
      gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {}, Kokkos::Serial()};
      std::vector<float> a = values(3000, 1);
      try {
        mean.start(a, 0).wait();
      } catch (gq::transport_error const& e) {
        texts[static_cast<std::size_t>(workers.rank())] = e.what();
      }
    });
  } catch (gq::error const&) {  // what the cluster itself makes of it
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
  EXPECT_NE(texts[0], "");
  EXPECT_NE(texts[2], "");
}

TEST(Start, a_handle_may_outlive_its_call_s_object) {
  on_threads(2, std::chrono::seconds{20}, [](auto& workers) {
    std::vector<float> a = values(20000, workers.rank()), b(workers.rank() == 0 ? 3 : 4);
    gq::started_call fine, wrong;
    {
      gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {}, Kokkos::Serial()};
      fine = mean.start(a, 0);
      wrong = mean.start(b, 1);
    }
    EXPECT_TRUE(fine.test());
    fine.wait();
    EXPECT_THROW(wrong.wait(), gq::disagreement_error);
    gq::started_call{}.wait();
  });
}

TEST(Start, an_error_that_nothing_waits_for_is_written_to_standard_error) {
  gq::call_queue::job fine, fails;
  fine.run = [](gq::call_queue::job const&) {};
  fails.run = [](gq::call_queue::job const&) { throw std::runtime_error("globalq: a call: it fails"); };
  testing::internal::CaptureStderr();
  {
    gq::started_call kept;
    {
      gq::call_queue queue;
      queue.start(fails);
      EXPECT_THROW(queue.wait(), std::runtime_error);
      kept = queue.start(fails);
    }
    EXPECT_THROW(kept.wait(), std::runtime_error);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "all were thrown";
  testing::internal::CaptureStderr();
  {
    gq::started_call kept;
    {
      gq::call_queue queue;
      queue.start(fine);
      kept = queue.start(fails);
    }
    EXPECT_TRUE(kept.test());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "globalq: call_queue: call 2 failed and was not waited for: globalq: a call: it fails\n");
}

TEST(Start, calls_have_one_type_for_all_operators_and_go_on_where_their_object_is_moved) {
  on_threads(2, std::chrono::seconds{20}, [](auto& workers) {
    std::vector<gq::any_quantizer> const ops{quantized(), gq::uncompressed{}, gq::centered{quantized()}};
    std::vector<gq::allreduce_mean<>> means;
    std::vector<std::vector<float>> direct(ops.size(), values(20000, workers.rank())), started = direct;
    auto const queue = std::make_shared<gq::call_queue>();
    std::vector<gq::started_call> calls;
    for (std::size_t k = 0; k < ops.size(); ++k) {  // a vector that grows moves the calls that it has
      means.emplace_back(workers, ops[k], gq::schedule::ring{}, gq::options{.seed = 4}, Kokkos::Serial());
      means.back().run_on(queue);
      calls.push_back(means.back().start(started[k], k));
    }
    for (auto& call : calls) call.wait();
    for (std::size_t k = 0; k < ops.size(); ++k) {
      means[k](direct[k], k);
      EXPECT_TRUE(same_bits(started[k], direct[k])) << k;
    }
    // an assignment waits for the calls of what it replaces
    std::vector<float> last = values(20000, workers.rank()), again = last;
    gq::started_call const under_way = means[0].start(last, 9);
    means[0] = std::move(means[1]);
    EXPECT_TRUE(under_way.test());
    means[0](again, 10);
    EXPECT_FALSE(same_bits(last, again));
  });
}

/// A schedule whose texts lie in it.
struct named_ring : gq::schedule::ring {
  std::string operation = "my_mean";
  gq::detail::schedule_facts facts(int workers) const {
    gq::detail::schedule_facts f = gq::schedule::ring::facts(workers);
    f.operation = operation.c_str();
    return f;
  }
};

TEST(Start, texts_of_a_schedule_are_those_of_the_one_that_the_call_keeps) {
  on_threads(2, std::chrono::seconds{20}, [](auto& workers) {
    gq::allreduce_mean mean{workers, quantized(), named_ring{}, {.seed = 4}, Kokkos::Serial()};
    gq::allreduce_mean const moved = std::move(mean);
    std::vector<float> x(10);
    EXPECT_THAT(support::refusal<gq::configuration_error>(
                    [&] { const_cast<gq::allreduce_mean<>&>(moved)(x, std::uint64_t{1} << 50); }),
                ::testing::HasSubstr("globalq: my_mean: rank "));
  });
}

/// A transport that does something before each message.
template <class T>
struct busy_transport {
  using request = typename T::request;
  T& of;
  std::function<void()> before;
  int rank() const { return of.rank(); }
  int size() const { return of.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) {
    before();
    return of.send_async(peer, bytes);
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return of.recv_async(peer, bytes); }
  void wait(request& r) { of.wait(r); }
};

TEST(Start, a_call_may_be_made_while_another_one_of_the_thread_moves_messages) {
  on_threads(4, std::chrono::seconds{20}, [](auto& workers) {
    gq::transport::group alone{workers, {workers.rank()}};
    gq::allreduce_mean inner{alone, gq::uncompressed{}, gq::schedule::scatter_reduce_allgather{}};
    std::vector<float> small(10, 1.0F), x(100000, static_cast<float>(workers.rank()));
    std::uint64_t step = 0;
    busy_transport<std::remove_reference_t<decltype(workers)>> busy{workers, [&] { inner(small, step++); }};
    gq::allreduce_mean mean{busy, gq::uncompressed{}, gq::schedule::scatter_reduce_allgather{}};
    mean(x, 0);
    EXPECT_EQ(x, std::vector<float>(x.size(), 1.5F));
    EXPECT_GT(step, 3U);
  });
}

TEST(Start, an_object_that_goes_waits_for_its_calls) {
  on_threads(2, std::chrono::seconds{20}, [](auto& workers) {
    std::vector<float> a = values(200000, workers.rank()), b = a;
    {
      gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {}, Kokkos::Serial()};
      mean.start(a, 0);
    }
    gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {}, Kokkos::Serial()};
    mean(b, 0);
    EXPECT_TRUE(same_bits(a, b));
  });
}

#if GLOBALQ_TEST_COUNTS_ALLOCATIONS
TEST(Start, nothing_is_allocated_once_as_many_calls_were_under_way) {
  std::size_t before = 0, after = 0;
  on_threads(2, std::chrono::seconds{20}, [&](auto& workers) {
    gq::allreduce_mean mean{workers, quantized(), gq::schedule::ring{}, {}, Kokkos::Serial()};
    std::vector<float> a = values(5000, workers.rank()), b = a;
    auto const two_calls = [&](std::uint64_t step) {
      gq::started_call const one = mean.start(a, step), two = mean.start(b, step + 1);
      one.wait();
      two.wait();
    };
    two_calls(0);
    two_calls(2);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) before = support::allocations;
    gq::transport::barrier(workers);
    two_calls(4);
    gq::transport::barrier(workers);
    if (workers.rank() == 0) after = support::allocations;
    gq::transport::barrier(workers);
  });
  EXPECT_EQ(after, before);
}
#endif

}  // namespace start_test
