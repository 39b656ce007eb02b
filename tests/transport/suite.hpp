// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief Tests: what every transport keeps to. A new transport joins with one line,
/// `INSTANTIATE_TYPED_TEST_SUITE_P(name, transport_suite, harness);`
///
/// A harness has:
/// - `endpoint`, the type under test;
/// - `worlds()`, the numbers of workers to test with;
/// - `run(workers, options, body)`, which calls `body(endpoint&)` once for each worker, in parallel;
/// - if errors name other ranks (those of a larger transport): `in_errors(rank, workers)`, the rank and size they name.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "globalq/core/error.hpp"
#include "globalq/transport/collectives.hpp"
#include "globalq/transport/concept.hpp"
#include "tests/support/refusal.hpp"

namespace globalq_test {

namespace gq = globalq;
using gq::transport::options;

using counts = std::initializer_list<std::size_t>;

inline constexpr options patient{.deadline = std::chrono::seconds{60}};
inline constexpr options impatient{.deadline = std::chrono::milliseconds{300}};

/// Bytes that tell who sent them to whom.
inline std::vector<std::byte> pattern(int from, int to, std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  std::uint32_t state = 0x9e3779b9u * static_cast<std::uint32_t>(1 + from * 64 + to);
  for (auto& each : made) {
    state = state * 1664525u + 1013904223u;
    each = static_cast<std::byte>(state >> 24);
  }
  return made;
}

/// A value that worker `rank` adds: sums over a few workers fit int8.
template <class Value>
Value value(int rank, std::size_t index) {
  auto const mixed = (static_cast<std::size_t>(rank) * 7 + index * 5) % 27;
  return static_cast<Value>(static_cast<int>(mixed) - 13);
}

/// The message of the transport_error that `call` throws; empty if it throws none.
template <class Call>
std::string transport_failure(Call const& call) {
  return support::refusal<gq::transport_error>(call);
}

/// The rank of a worker and the number of workers as errors name them.
template <class Harness>
std::pair<int, int> in_errors(int rank, int workers) {
  if constexpr (requires { Harness::in_errors(rank, workers); })
    return Harness::in_errors(rank, workers);
  else
    return {rank, workers};
}

template <class Harness>
struct transport_suite : ::testing::Test {
  using endpoint = typename Harness::endpoint;
  static_assert(gq::Transport<endpoint>);

  template <class Body>
  static void in_every_world(Body const& body) {
    for (int const workers : Harness::worlds()) Harness::run(workers, patient, body);
  }
};

TYPED_TEST_SUITE_P(transport_suite);

TYPED_TEST_P(transport_suite, ranks_count_from_zero_to_size) {
  for (int const workers : TypeParam::worlds())
    TypeParam::run(workers, patient, [&](auto& t) {
      EXPECT_EQ(t.size(), workers);
      std::vector<int> ranks(static_cast<std::size_t>(workers), -1);
      gq::transport::allgather_value(t, t.rank(), std::span{ranks});
      for (int rank = 0; rank < workers; ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank);
    });
}

TYPED_TEST_P(transport_suite, waiting_for_nothing_returns_at_once) {
  this->in_every_world([](auto& t) {
    typename TypeParam::endpoint::request none;
    t.wait(none);
    t.wait(none);
    auto const moved = std::move(none);
    static_cast<void>(moved);
  });
}

TYPED_TEST_P(transport_suite, a_token_passes_around_the_ring) {
  this->in_every_world([](auto& t) {
    if (t.size() == 1) return;
    int const next = (t.rank() + 1) % t.size();
    int const previous = (t.rank() - 1 + t.size()) % t.size();
    std::uint64_t token = 0;
    for (int turn = 0; turn < 3; ++turn) {
      auto const bytes = std::as_writable_bytes(std::span{&token, 1});
      if (t.rank() != 0) {
        auto incoming = t.recv_async(previous, bytes);
        t.wait(incoming);
      }
      token += 1;
      auto outgoing = t.send_async(next, bytes);
      t.wait(outgoing);
      t.wait(outgoing);  // once more does no harm
      if (t.rank() == 0) {
        auto incoming = t.recv_async(previous, bytes);
        t.wait(incoming);
        EXPECT_EQ(token, static_cast<std::uint64_t>((turn + 1) * t.size()));
      }
    }
  });
}

TYPED_TEST_P(transport_suite, everyone_sends_to_everyone_at_once) {
  this->in_every_world([](auto& t) {
    using request = typename TypeParam::endpoint::request;
    for (std::size_t const bytes : counts{0, 1, 63, 64, 65, 1000, 1000003}) {
      std::vector<std::vector<std::byte>> out, in;
      std::vector<request> requests;
      for (int peer = 0; peer < t.size(); ++peer) {
        out.push_back(pattern(t.rank(), peer, bytes));
        in.emplace_back(bytes);
      }
      for (int peer = 0; peer < t.size(); ++peer) {
        if (peer == t.rank()) continue;
        auto const at = static_cast<std::size_t>(peer);
        // Half of the workers send first.
        if (t.rank() % 2 == 0) requests.push_back(t.send_async(peer, out[at]));
        requests.push_back(t.recv_async(peer, in[at]));
        if (t.rank() % 2 != 0) requests.push_back(t.send_async(peer, out[at]));
      }
      for (auto& each : requests) t.wait(each);
      for (int peer = 0; peer < t.size(); ++peer) {
        if (peer != t.rank()) {
          EXPECT_EQ(in[static_cast<std::size_t>(peer)], pattern(peer, t.rank(), bytes));
        }
      }
    }
  });
}

TYPED_TEST_P(transport_suite, messages_arrive_in_the_order_sent) {
  this->in_every_world([](auto& t) {
    using request = typename TypeParam::endpoint::request;
    if (t.size() == 1) return;
    constexpr std::size_t messages = 100;
    int const next = (t.rank() + 1) % t.size();
    int const previous = (t.rank() - 1 + t.size()) % t.size();
    std::vector<std::vector<std::byte>> out, in;
    for (std::size_t i = 0; i < messages; ++i) {
      out.push_back(pattern(t.rank(), static_cast<int>(i), i % 7 * 13));
      in.emplace_back(i % 7 * 13);
    }
    std::vector<request> sends, receives;
    for (std::size_t i = 0; i < messages; ++i) {
      sends.push_back(t.send_async(next, out[i]));
      if (i % 3 == 0)
        while (receives.size() <= i) receives.push_back(t.recv_async(previous, in[receives.size()]));
    }
    while (receives.size() < messages) receives.push_back(t.recv_async(previous, in[receives.size()]));
    std::reverse(receives.begin(), receives.end());  // the order of waiting does not matter
    for (auto& each : receives) t.wait(each);
    for (auto& each : sends) t.wait(each);
    for (std::size_t i = 0; i < messages; ++i) {
      EXPECT_EQ(in[i], pattern(previous, static_cast<int>(i), i % 7 * 13)) << "message " << i;
    }
  });
}

TYPED_TEST_P(transport_suite, allgather_gives_everyone_all_bytes) {
  this->in_every_world([](auto& t) {
    for (std::size_t const bytes : counts{0, 1, 63, 64, 65, 255, 256, 257, 1000, 100003}) {
      auto mine = pattern(t.rank(), 0, bytes);
      std::vector<std::byte> expected;
      for (int from = 0; from < t.size(); ++from) {
        auto const slot = pattern(from, 0, bytes);
        expected.insert(expected.end(), slot.begin(), slot.end());
      }
      std::vector<std::byte> all(expected.size());
      gq::transport::allgather(t, mine, all);
      EXPECT_EQ(all, expected) << bytes << " bytes";

      std::vector<std::byte> in_place(expected.size());
      auto const own = std::span{in_place}.subspan(static_cast<std::size_t>(t.rank()) * bytes, bytes);
      std::copy(mine.begin(), mine.end(), own.begin());
      gq::transport::allgather(t, own, in_place);
      EXPECT_EQ(in_place, expected) << bytes << " bytes, in place";
    }
  });
}

TYPED_TEST_P(transport_suite, allgather_refuses_a_result_of_another_size) {
  this->in_every_world([](auto& t) {
    std::vector<std::byte> mine(8), all(8 * static_cast<std::size_t>(t.size()) + 1);
    EXPECT_THROW(gq::transport::allgather(t, mine, all), gq::configuration_error);
  });
}

TYPED_TEST_P(transport_suite, broadcast_gives_everyone_the_bytes_of_the_root) {
  this->in_every_world([](auto& t) {
    for (int root = 0; root < t.size(); ++root) {
      for (std::size_t const bytes : counts{0, 1, 65}) {
        auto given = pattern(t.rank(), 0, bytes);
        gq::transport::broadcast(t, root, given);
        EXPECT_EQ(given, pattern(root, 0, bytes));
      }
      EXPECT_EQ(gq::transport::broadcast_value(t, root, t.rank() * 3), root * 3);
      gq::transport::barrier(t);
    }
    EXPECT_THROW(gq::transport::broadcast_value(t, t.size(), 0), gq::configuration_error);
  });
}

template <class Value, class T>
void expect_exact_sums(T& t) {
  if constexpr (gq::transport::OwnAllreduceSum<T, Value>) {
    for (std::size_t const count : counts{0, 1, 63, 64, 65, 255, 256, 257, 1000, 100003}) {
      std::vector<Value> values(count), expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = value<Value>(t.rank(), i);
        int sum = 0;
        for (int rank = 0; rank < t.size(); ++rank) sum += value<int>(rank, i);
        expected[i] = static_cast<Value>(sum);
      }
      t.allreduce_sum(std::span{values});
      EXPECT_EQ(values, expected) << count << " values of " << sizeof(Value) << " bytes";
    }
  }
}

TYPED_TEST_P(transport_suite, allreduce_sum_is_exact_where_the_sums_fit) {
  this->in_every_world([](auto& t) {
    expect_exact_sums<std::int8_t>(t);
    expect_exact_sums<std::int16_t>(t);
    expect_exact_sums<std::int32_t>(t);
    expect_exact_sums<float>(t);  // small integers: exact in any order
  });
}

TYPED_TEST_P(transport_suite, allreduce_sum_of_floats_has_the_same_bits_on_every_worker) {
  this->in_every_world([](auto& t) {
    if constexpr (gq::transport::OwnAllreduceSum<typename TypeParam::endpoint, float>) {
      for (std::size_t const count : counts{1, 5, 64, 1000, 30011}) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) {
          values[i] = 1.0F / static_cast<float>(1 + i % 1013 + 31 * static_cast<std::size_t>(t.rank()));
        }
        t.allreduce_sum(std::span{values});
        std::vector<float> all(count * static_cast<std::size_t>(t.size()));
        gq::transport::allgather(t, std::as_bytes(std::span{values}), std::as_writable_bytes(std::span{all}));
        for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], values[i % count]) << "value " << i;
      }
    }
  });
}

TYPED_TEST_P(transport_suite, a_receive_of_another_size_is_an_error) {
  struct sizes {
    std::size_t sent, expected;
  };
  for (int const workers : TypeParam::worlds()) {
    if (workers < 2) continue;
    for (sizes const differ : {sizes{63, 64}, sizes{64, 63}, sizes{0, 1}, sizes{1, 0}}) {
      TypeParam::run(workers, impatient, [&](auto& t) {
        std::vector<std::byte> bytes(std::max(differ.sent, differ.expected));
        if (t.rank() == 0) {
          auto const text = transport_failure([&] {
            auto incoming = t.recv_async(1, std::span{bytes}.first(differ.expected));
            t.wait(incoming);
          });
          EXPECT_NE(text.find("expected " + std::to_string(differ.expected) + " bytes from rank " +
                              std::to_string(in_errors<TypeParam>(1, workers).first)),
                    std::string::npos)
              << text;
        } else if (t.rank() == 1) {
          transport_failure([&] {  // the sender may hear of it
            auto outgoing = t.send_async(0, std::span<std::byte const>{bytes}.first(differ.sent));
            t.wait(outgoing);
          });
        }
      });
    }
  }
}

TYPED_TEST_P(transport_suite, a_wait_ends_by_its_deadline) {
  for (int const workers : TypeParam::worlds()) {
    if (workers < 2) continue;
    auto const start = std::chrono::steady_clock::now();
    TypeParam::run(workers, impatient, [&](auto& t) {
      if (t.rank() != 0) return;
      std::byte missing{};
      auto const text = transport_failure([&] {
        auto incoming = t.recv_async(workers - 1, std::span{&missing, 1});
        t.wait(incoming);
      });
      auto const [own, all] = in_errors<TypeParam>(0, workers);
      EXPECT_NE(text.find("globalq: recv: rank " + std::to_string(own) + " of " + std::to_string(all)),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("rank " + std::to_string(in_errors<TypeParam>(workers - 1, workers).first)),
                std::string::npos)
          << text;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{30});
  }
}

TYPED_TEST_P(transport_suite, bytes_sent_counts_what_was_handed_over) {
  this->in_every_world([](auto& t) {
    if constexpr (gq::transport::OwnBytesSent<typename TypeParam::endpoint>) {
      if (t.size() == 1) return;
      auto const workers = static_cast<std::uint64_t>(t.size());
      auto const before = t.bytes_sent();
      std::vector<std::byte> out(1000), in(1000);
      auto incoming = t.recv_async((t.rank() - 1 + t.size()) % t.size(), in);
      auto outgoing = t.send_async((t.rank() + 1) % t.size(), out);
      t.wait(incoming);
      t.wait(outgoing);
      EXPECT_EQ(t.bytes_sent() - before, 1000U);
      std::vector<std::byte> all(64 * static_cast<std::size_t>(t.size()));
      gq::transport::allgather(t, std::span<std::byte const>{out}.first(64), all);
      EXPECT_EQ(t.bytes_sent() - before, 1000U + 64U * (workers - 1));
    }
  });
}

/// Each thread of a worker exchanges its own numbers; messages of endpoints that were mixed would show as others'.
TYPED_TEST_P(transport_suite, duplicates_are_independent) {
  if constexpr (requires(typename TypeParam::endpoint & t) { t.duplicate(); })
    this->in_every_world([](auto& t) {
      auto const other = t.duplicate(), third = other->duplicate();
      auto const use = [](auto& link, int number) {
        std::vector<int> all(static_cast<std::size_t>(link.size()));
        for (int turn = 0; turn < 20; ++turn) {
          gq::transport::allgather_value(link, 1000 * number + 10 * turn + link.rank(), std::span{all});
          for (int rank = 0; rank < link.size(); ++rank)
            EXPECT_EQ(all[static_cast<std::size_t>(rank)], 1000 * number + 10 * turn + rank);
          EXPECT_EQ(gq::transport::broadcast_value(link, link.size() - 1, 7 * turn + link.rank()),
                    7 * turn + link.size() - 1);
        }
      };
      std::thread a([&] { use(*other, 1); }), b([&] { use(*third, 2); });
      use(t, 3);
      a.join();
      b.join();
    });
}

REGISTER_TYPED_TEST_SUITE_P(transport_suite, ranks_count_from_zero_to_size,
                            waiting_for_nothing_returns_at_once, a_token_passes_around_the_ring,
                            everyone_sends_to_everyone_at_once, messages_arrive_in_the_order_sent,
                            allgather_gives_everyone_all_bytes, allgather_refuses_a_result_of_another_size,
                            broadcast_gives_everyone_the_bytes_of_the_root,
                            allreduce_sum_is_exact_where_the_sums_fit,
                            allreduce_sum_of_floats_has_the_same_bits_on_every_worker,
                            a_receive_of_another_size_is_an_error, a_wait_ends_by_its_deadline,
                            bytes_sent_counts_what_was_handed_over, duplicates_are_independent);

}  // namespace globalq_test
