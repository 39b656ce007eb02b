// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Sparse bodies made and read by kernels: the bytes of the host, and the bytes that it refuses.
///
/// The kernels run on an instance of Kokkos::Serial, one thread a team, and in teams of threads as a GPU has them; with
/// Kokkos::Cuda the same file tests a GPU (tests/cuda).

#include "tests/support/space.hpp"

#include "globalq/kernel/stream_sparse.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <random>
#include <thread>

#include "globalq/kernel/stream.hpp"
#include "globalq/wire/coded.hpp"

namespace globalq_test {
namespace {

namespace gq = globalq;

using support::space;
using on_space = gq::kernel::stream_executor<space>;
template <class T>
using device = Kokkos::View<T*, space::memory_space>;

template <class T>
using on_host = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Memory of the space, filled by its own threads.
template <class T>
device<T> memory(std::size_t count) {
  return device<T>(Kokkos::view_alloc("memory", space(), Kokkos::WithoutInitializing), count);
}
template <class T>
void copy_in(device<T> const& to, std::vector<T> const& from) {
  Kokkos::deep_copy(space(), Kokkos::subview(to, std::pair<std::size_t, std::size_t>(0, from.size())),
                    on_host<T const>(from.data(), from.size()));
  space().fence();
}
template <class T>
std::vector<T> copy_out(device<T> const& from) {
  std::vector<T> to(from.size());
  Kokkos::deep_copy(space(), on_host<T>(to.data(), to.size()), from);
  space().fence();
  return to;
}

#if !defined(KOKKOS_ENABLE_CUDA)
/// What a team is on a GPU, of threads of the host: they meet at barriers, and nowhere else.
class team_of_threads {
 public:
  struct shared {
    explicit shared(int threads) : size(threads), meet(threads), values(static_cast<std::size_t>(threads)) {}
    int size;
    std::barrier<> meet;
    std::vector<std::uint32_t> values;
  };
  team_of_threads(shared& s, int rank) : shared_(&s), rank_(rank) {}

  int team_rank() const { return rank_; }
  int team_size() const { return shared_->size; }
  void team_barrier() const { shared_->meet.arrive_and_wait(); }
  int team_scan(int own) const {
    std::vector<std::uint32_t> const all = gather(static_cast<std::uint32_t>(own));
    int before = 0;
    for (int r = 0; r < rank_; ++r) before += static_cast<int>(all[static_cast<std::size_t>(r)]);
    return before;
  }
  template <class Reducer>
  void team_reduce(Reducer const& reducer) const {
    using value = typename Reducer::value_type;
    std::vector<std::uint32_t> const all = gather(static_cast<std::uint32_t>(reducer.reference()));
    value sum = static_cast<value>(all[0]);
    for (std::size_t r = 1; r < all.size(); ++r) reducer.join(sum, static_cast<value>(all[r]));
    reducer.reference() = sum;
  }

 private:
  std::vector<std::uint32_t> gather(std::uint32_t own) const {
    shared_->values[static_cast<std::size_t>(rank_)] = own;
    team_barrier();
    std::vector<std::uint32_t> all = shared_->values;
    team_barrier();
    return all;
  }
  shared* shared_;
  int rank_;
};

/// Launches teams of threads.
struct threads_executor {
  int threads;

  template <class Body>
  void teams(std::uint64_t count, Body const& body) const {
    team_of_threads::shared shared(threads);
    alignas(16) static std::byte scratch[Body::scratch_bytes];
    std::memset(scratch, 0xa5, sizeof scratch);
    std::vector<std::thread> all;
    for (int r = 0; r < threads; ++r)
      all.emplace_back([&, r] {
        team_of_threads const team(shared, r);
        for (std::uint64_t i = 0; i < count; ++i) {
          body(team, i, scratch);
          team.team_barrier();
        }
      });
    for (std::thread& t : all) t.join();
  }
  template <class Body>
  void scan(std::uint64_t count, Body const& body) const {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) body(i, sum, true);
  }
  static bool capturing() { return false; }
  static char const* operation() { return "call"; }
  static void fence() {}
  static std::shared_ptr<gq::byte_memory> memory() { return gq::byte_memory::host(); }
};

#endif

/// Codes of which a share is not zero; of magnitude up to max_code, a few of them large.
template <class Int>
std::vector<Int> codes_of(std::size_t count, double density, std::uint32_t max_code, std::uint32_t seed) {
  std::mt19937 draw(seed);
  std::vector<Int> codes(count, Int{0});
  for (Int& c : codes) {
    if (static_cast<double>(draw() % 10000) >= density * 10000) continue;
    std::uint32_t const range = draw() % 50 == 0 ? max_code : std::min(max_code, 3U);
    auto const m = static_cast<std::int32_t>(1 + draw() % range);
    c = static_cast<Int>(draw() % 2 == 0 ? m : -m);
  }
  return codes;
}

template <class Int>
std::vector<std::byte> on_the_host(std::vector<Int> const& codes, std::uint32_t max_code, bool zero_free) {
  gq::wire::coded<gq::wire::sparse<Int>> body(gq::wire::sparse<Int>(), max_code, zero_free);
  std::vector<std::byte> out(body.capacity(codes.size()));
  out.resize(body.encode(gq::kernel::host_executor(Kokkos::Serial()), codes.data(), codes.size(), out));
  return out;
}

/// The coder under test with memory of the space.
template <class Int, class Executor>
class bench {
 public:
  bench(Executor on, std::uint32_t max_code, bool zero_free)
      : on_(on),
        coder_(max_code, zero_free),
        words_(memory<std::uint64_t>(2)),
        faults_(memory<std::uint32_t>(1)) {}

  /// A body, at an offset from a multiple of 16; nothing but its bytes may be written.
  std::vector<std::byte> encode(std::vector<Int> const& codes, std::size_t offset = 0) {
    auto const there = memory<Int>(codes.size());
    copy_in(there, codes);
    std::size_t const room = coder_.capacity(codes.size());
    auto const body = memory<std::byte>(offset + room + guard);
    copy_in(body, std::vector<std::byte>(body.size(), std::byte{0x5a}));
    copy_in(words_, std::vector<std::uint64_t>(2, 0));  // one is written, both are read
    coder_.encode(on_, there.data(), codes.size(), body.data() + offset, words_.data(), 32);
    on_.fence();
    std::uint64_t const bytes = copy_out(words_)[0] - 32;
    auto out = copy_out(body);
    EXPECT_LE(bytes, room);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i >= offset && i < offset + bytes) continue;
      EXPECT_EQ(out[i], std::byte{0x5a}) << "written at " << i << " of " << bytes;
      if (out[i] != std::byte{0x5a}) break;
    }
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(offset));
    out.resize(bytes);
    return out;
  }

  /// @returns whether the bytes were refused
  bool decode(std::vector<std::byte> const& bytes, std::size_t count, std::vector<Int>& codes) {
    if (bytes.size() < coder_.least(count)) return true;  // what the caller looks at
    auto const body = memory<std::byte>(bytes.size());    // exactly: a sanitizer sees what is read behind it
    auto const there = memory<Int>(count + guard);
    copy_in(body, bytes);
    copy_in(there, std::vector<Int>(count + guard, Int{55}));
    std::vector<std::uint64_t> const sizes(2, bytes.size());
    copy_in(words_, sizes);
    copy_in(faults_, std::vector<std::uint32_t>(1, 0));
    coder_.decode(on_, body.data(), words_.data(), count, there.data(), faults_.data());
    on_.fence();
    codes = copy_out(there);
    for (std::size_t i = count; i < codes.size(); ++i)
      EXPECT_EQ(codes[i], Int{55}) << "written behind the codes";
    codes.resize(count);
    std::uint32_t const faults = copy_out(faults_)[0];
    EXPECT_TRUE(faults == 0 || faults == gq::kernel::bad_frame);
    return faults != 0;
  }

 private:
  static constexpr std::size_t guard = 64;
  Executor on_;
  gq::wire::stream_sparse<Int, space> coder_;
  device<std::uint64_t> words_;
  device<std::uint32_t> faults_;
};

template <class Int, class Executor>
void expect_the_bytes_of_the_host(Executor const& on, std::vector<std::size_t> const& counts) {
  for (std::size_t count : counts)
    for (double density : {0.0, 0.0004, 0.01, 0.07, 0.085, 0.3, 1.0})
      for (std::uint32_t max_code : {1U, 2U, 7U, 100U, 127U, 128U, 32767U}) {
        if (max_code > gq::wire::sparse<Int>::largest_code()) continue;
        bool const zero_free = density == 1.0 && max_code % 2 == 0;
        auto const codes =
            codes_of<Int>(count, density, max_code, static_cast<std::uint32_t>(count) + max_code);
        auto const expected = on_the_host(codes, max_code, zero_free);
        bench<Int, Executor> coder(on, max_code, zero_free);
        std::string const what = std::to_string(count) + " codes up to " + std::to_string(max_code) +
                                 ", density " + std::to_string(density);
        ASSERT_EQ(coder.encode(codes, count % 8 * 2), expected) << what;
        std::vector<Int> back;
        ASSERT_FALSE(coder.decode(expected, count, back)) << what;
        ASSERT_EQ(back, codes) << what;
      }
}

/// Bad bytes: the verdict of the host, and codes in range whatever it is.
template <class Int, class Executor>
void expect_the_verdict_of_the_host(Executor const& on, std::uint32_t seed, int rounds) {
  std::mt19937 draw(seed);
  int refused = 0, taken = 0;
  for (int round = 0; round < rounds; ++round) {
    std::size_t const count = std::size_t{1} + draw() % (round % 4 == 0 ? 9000 : 70);
    std::uint32_t const max_code = round % 3 == 0 ? 7 : gq::wire::sparse<Int>::largest_code();
    bool const zero_free = round % 16 == 7;
    double const densities[] = {0.002, 0.02, 0.085, 0.5, 1.0};
    auto const codes = codes_of<Int>(count, zero_free ? 1.0 : densities[draw() % 5], max_code, draw());
    auto bytes = on_the_host(codes, max_code, zero_free);
    auto const good = bytes;
    for (int damage = 0; damage < 6; ++damage) {
      bytes = good;
      std::size_t const near = draw() % 2 == 0 ? std::min<std::size_t>(bytes.size(), 12) : bytes.size();
      switch (draw() % 4) {
        case 0:
          bytes[draw() % near] ^= static_cast<std::byte>(1U << draw() % 8);
          break;
        case 1:
          bytes[draw() % near] = static_cast<std::byte>(draw());
          break;
        case 2:
          bytes.resize(draw() % (bytes.size() + 1));
          break;
        default:
          bytes.resize(bytes.size() + 1 + draw() % 3);
      }
      gq::wire::coded<gq::wire::sparse<Int>> host(gq::wire::sparse<Int>(), max_code, zero_free);
      std::vector<Int> expected(count), found;
      bool const bad =
          bytes.size() > host.capacity(count) ||
          host.decode(gq::kernel::host_executor(Kokkos::Serial()), bytes, count, expected.data());
      bench<Int, Executor> coder(on, max_code, zero_free);
      ASSERT_EQ(coder.decode(bytes, count, found), bad) << "round " << round << ", damage " << damage;
      ++(bad ? refused : taken);
      if (bytes.size() < 2 * ((count + 4095) / 4096)) continue;
      auto const most = static_cast<std::int32_t>(max_code);
      for (Int c : found) ASSERT_TRUE(c <= most && c >= -most) << "round " << round;
      if (!bad) {
        ASSERT_EQ(found, expected) << "round " << round;
      }
    }
  }
  EXPECT_GT(refused, rounds);
  if (rounds > 100) {
    EXPECT_GT(taken, 0) << "some damage gives another valid body";
  }
}

std::vector<std::size_t> const awkward = {1,    2,    7,    8,    31,   32,   33,    4093,
                                          4095, 4096, 4097, 8191, 8192, 8193, 12289, 70001};

}  // namespace

TEST(StreamSparse, bodies_of_one_byte_codes_are_those_of_the_host) {
  expect_the_bytes_of_the_host<std::int8_t>(on_space{space()}, awkward);
}
TEST(StreamSparse, bodies_of_two_byte_codes_are_those_of_the_host) {
  expect_the_bytes_of_the_host<std::int16_t>(on_space{space()}, awkward);
}

TEST(StreamSparse, every_number_of_non_zeros_of_a_block_has_the_form_of_the_host) {
  std::vector<std::int8_t> codes(4096, 0);
  bench<std::int8_t, on_space> coder(on_space{space()}, 7, false);
  for (std::size_t n = 1; n <= 4096; ++n) {
    codes[n * 1237 % 4096] = static_cast<std::int8_t>(n % 64 == 0  ? 7
                                                      : n % 2 == 0 ? 1
                                                                   : -1);  // 1237 is odd: all differ
    if (n > 400 && n % 31 != 0) continue;
    auto const expected = on_the_host(codes, 7, false);
    ASSERT_EQ(coder.encode(codes), expected) << n;
    std::vector<std::int8_t> back;
    ASSERT_FALSE(coder.decode(expected, 4096, back)) << n;
    ASSERT_EQ(back, codes) << n;
  }
}

TEST(StreamSparse, every_code_of_a_byte_comes_back) {
  std::vector<std::int8_t> codes(5000, 0);
  for (int c = -127; c <= 127; ++c)
    codes[static_cast<std::size_t>(19 * (c + 127))] = static_cast<std::int8_t>(c);
  bench<std::int8_t, on_space> coder(on_space{space()}, 127, false);
  auto const bytes = coder.encode(codes);
  EXPECT_EQ(bytes, on_the_host(codes, 127, false));
  std::vector<std::int8_t> back;
  EXPECT_FALSE(coder.decode(bytes, codes.size(), back));
  EXPECT_EQ(back, codes);
}

TEST(StreamSparse, damaged_bodies_have_the_verdict_of_the_host) {
  expect_the_verdict_of_the_host<std::int8_t>(on_space{space()}, 1, 3000);
  expect_the_verdict_of_the_host<std::int16_t>(on_space{space()}, 2, 1500);
}

TEST(StreamSparse, a_body_that_is_known_to_be_bad_is_not_looked_at) {
  gq::wire::stream_sparse<std::int8_t, space> coder(7);
  on_space const on{space()};
  auto const body = memory<std::byte>(2);
  auto const none = memory<std::uint64_t>(1);
  auto const codes = memory<std::int8_t>(4096);
  auto const faults = memory<std::uint32_t>(1);
  copy_in(body, {std::byte{1}, std::byte{0}});  // a block of one byte that is not there
  copy_in(none, {0});
  copy_in(faults, {0U});
  copy_in(codes, std::vector<std::int8_t>(4096, 9));
  coder.decode(on, body.data(), none.data(), 4096, codes.data(), faults.data());
  on.fence();
  EXPECT_EQ(copy_out(faults)[0], gq::kernel::bad_frame);
  EXPECT_EQ(copy_out(codes), std::vector<std::int8_t>(4096, 0));
}

#if !defined(KOKKOS_ENABLE_CUDA)
// As many threads as parts of a block, as a GPU has them; fewer; and more than a short block has parts.
TEST(StreamSparse, teams_of_threads_give_the_same_bytes) {
  expect_the_bytes_of_the_host<std::int8_t>(threads_executor{3}, {100, 4097});
  expect_the_verdict_of_the_host<std::int8_t>(threads_executor{3}, 5, 100);
  expect_the_bytes_of_the_host<std::int16_t>(threads_executor{5}, {4097});
  threads_executor const as_a_gpu{gq::wire::detail::sparse_threads};
  for (double density : {0.01, 0.3}) {
    auto const codes = codes_of<std::int8_t>(4097, density, 7, 3);
    bench<std::int8_t, threads_executor> coder(as_a_gpu, 7, false);
    auto const bytes = coder.encode(codes, 2);
    ASSERT_EQ(bytes, on_the_host(codes, 7, false));
    std::vector<std::int8_t> back;
    ASSERT_FALSE(coder.decode(bytes, codes.size(), back));
    ASSERT_EQ(back, codes);
  }
}

TEST(StreamSparse, memory_is_taken_by_the_first_call_of_a_length) {
  gq::wire::stream_sparse<std::int8_t, space> coder(7);
  struct recorded : on_space {
    using on_space::on_space;
    bool is = false;
    bool capturing() const { return is; }
  } on{space(), "all_gather"};
  auto const codes = memory<std::int8_t>(9000);
  copy_in(codes, std::vector<std::int8_t>(9000, 1));
  auto const body = memory<std::byte>(coder.capacity(9000));
  auto const bytes = memory<std::uint64_t>(1);
  coder.encode(on, codes.data(), 5000, body.data(), bytes.data(), 0);
  on.is = true;
  EXPECT_NO_THROW(coder.encode(on, codes.data(), 8192, body.data(), bytes.data(), 0));
  try {
    coder.encode(on, codes.data(), 8193, body.data(), bytes.data(), 0);
    FAIL() << "memory was allocated during a capture";
  } catch (gq::configuration_error const& e) {
    std::string const text = e.what();
    EXPECT_EQ(text.find("globalq: all_gather: the stream is being captured"), 0U) << text;
  }
}
#endif

}  // namespace globalq_test
