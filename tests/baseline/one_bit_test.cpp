// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief 1-bit SGD: two means a bucket, stripes whose mean is sent as bits again, and the errors of both.

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/one_bit.hpp>
#include <globalq/baseline/rand_k.hpp>

#include <cmath>
#include <limits>
#include <mutex>

#include "tests/baseline/cases.hpp"

namespace gq = globalq;
namespace cp = globalq::baseline;
using cases::vector;

namespace {

constexpr auto gather = cp::one_bit_exchange::gather;

/// Two layers with values between them, which belong to none.
gq::adapt::model_layout uneven_layers() {
  gq::adapt::model_layout model;
  model.add("a", {30}).add_at(35, "b", {10, 17});
  return model;
}

/// What a worker keeps of the mean, by layer, where layers lie.
vector second_error(cp::one_bit const& c, int workers, int rank) {
  cp::state s(workers, rank);
  c.save(s);
  vector all(c.layers().length());
  for (gq::adapt::layer const& l : c.layers()) {
    std::span<float const> kept;
    try {
      kept = s.get("second_error/" + l.name, l.size);
    } catch (gq::frame_error const&) {
      kept = s.get("second_error/" + l.name, 0);  // zeros
    }
    std::copy(kept.begin(), kept.end(), all.begin() + static_cast<std::ptrdiff_t>(l.offset));
  }
  return all;
}

TEST(OneBit, a_bucket_becomes_the_means_of_both_signs_which_no_other_two_numbers_beat) {
  vector const x{1, 3, -1, 5, -7, 0, 4, 4, 4, -2, -6, -1};
  auto const got = cases::run({x}, [] { return cp::one_bit{cases::one_layer(12), {.bucket = 6}}; });
  vector const wanted{2.25F, 2.25F, -4, 2.25F, -4, 2.25F, 4, 4, 4, -3, -3, -3};
  EXPECT_EQ(got.mean[0], wanted);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(got.rest[0][i], x[i] - wanted[i]);
  double const least = cases::norm2(got.rest[0]);
  for (float up : {-0.1F, 0.1F})
    for (float down : {-0.1F, 0.0F, 0.1F}) {
      vector other = got.rest[0];
      for (std::size_t i = 0; i < 12; ++i) other[i] -= x[i] < 0 ? down : up;
      EXPECT_GT(cases::norm2(other), least);
    }
}

TEST(OneBit, owners_send_the_mean_as_bits_again_and_add_what_that_left_to_the_next_mean) {
  // buckets of two values; worker 0 owns the first, worker 1 the second
  std::vector<vector> const x{{4, -2, 1, 3}, {2, 6, -5, 1}};
  // messages: 4 -2 | 2 2 and 4 4 | -5 1; their mean: 4 1 | -1.5 1.5
  support::on_threads(2, [&](auto& workers) {
    int const r = workers.rank();
    cp::one_bit c{cases::one_layer(4), {.bucket = 2}};
    vector mean(4), rest(4);
    auto const call = [&](std::uint64_t step) {
      EXPECT_EQ(c.reduce(workers, x[static_cast<std::size_t>(r)], mean, rest, step), cp::outcome::mean);
      EXPECT_EQ(rest, r == 0 ? (vector{0, 0, -1, 1}) : (vector{-2, 2, 0, 0}));
    };
    call(0);
    EXPECT_EQ(mean, (vector{2.5F, 2.5F, -1.5F, 1.5F}));
    EXPECT_EQ(second_error(c, 2, r), r == 0 ? (vector{1.5F, -1.5F, 0, 0}) : vector(4));
    call(1);
    EXPECT_EQ(mean, (vector{5.5F, -0.5F, -1.5F, 1.5F}));  // so twice the mean of the messages was sent
    EXPECT_EQ(second_error(c, 2, r), vector(4));
    call(2);
    c.reset();
    call(3);
    EXPECT_EQ(mean, (vector{2.5F, 2.5F, -1.5F, 1.5F}));
  });
}

TEST(OneBit, all_worlds_and_lengths_give_one_bit_of_the_mean_of_the_messages) {
  for (std::uint64_t bucket : {0UL, 1UL, 100UL, 512UL})
    cases::for_worlds(
        [&](auto layers) {
          return cp::one_bit{layers, {.bucket = bucket}};
        },
        [&](auto const& x, auto const& got) {
          std::uint64_t const d = x[0].size();
          auto const with = [&](cp::one_bit_exchange how) {
            return [d, bucket, how] {
              return cp::one_bit{cases::one_layer(d), {.bucket = bucket, .exchange = how}};
            };
          };
          auto const messages = cases::run(x, with(gather));
          cases::expect_same_means(messages);
          cases::expect_mean_of_messages(x, messages, 1e-3);
          auto const again = cases::run({messages.mean[0]}, with(cp::one_bit_exchange::stripes));
          EXPECT_TRUE(cases::same_bits(got.mean[0], x.size() == 1 ? messages.mean[0] : again.mean[0]));
          for (std::size_t r = 0; r < x.size(); ++r) {
            EXPECT_TRUE(cases::same_bits(got.rest[r], messages.rest[r]));
            EXPECT_LE(cases::norm2(got.rest[r]), cases::norm2(x[r]));
          }
        });
}

/// Threads that send small messages, and one of whose receives may be damaged.
struct altered {
  using inner = gq::transport::threads::endpoint;
  struct request {
    inner::request r{};
    std::span<std::byte> bytes{};
  };
  inner& workers;
  std::size_t chunk = 1U << 18;
  int damaged = -1;  ///< which receive gets another first mean
  std::uint32_t instead = 0;
  int receives = 0;

  int rank() const { return workers.rank(); }
  int size() const { return workers.size(); }
  std::size_t chunk_bytes() const { return chunk; }
  request send_async(int peer, std::span<std::byte const> bytes) {
    return {workers.send_async(peer, bytes), {}};
  }
  request recv_async(int peer, std::span<std::byte> bytes) {
    return {workers.recv_async(peer, bytes), receives++ == damaged ? bytes : std::span<std::byte>{}};
  }
  void wait(request& q) {
    workers.wait(q.r);
    if (!q.bytes.empty()) std::memcpy(q.bytes.data(), &instead, sizeof instead);
  }
  void allgather(std::span<std::byte const> mine, std::span<std::byte> all) { workers.allgather(mine, all); }
};
static_assert(gq::Transport<altered> && gq::transport::OwnChunkBytes<altered>);

TEST(OneBit, many_steps_are_those_of_a_plain_model_whatever_the_messages_are_cut_into) {
  auto const model = uneven_layers();
  for (std::uint64_t bucket : {0UL, 7UL, 100UL})
    for (int n : {2, 3, 5}) {
      auto const make = [&](cp::one_bit_exchange how) {
        return cp::one_bit{model, {.bucket = bucket, .exchange = how}};
      };
      vector error(model.length());
      std::vector<cp::one_bit> small, large;
      for (int r = 0; r < n; ++r) {
        small.push_back(make(cp::one_bit_exchange::stripes));
        large.push_back(make(cp::one_bit_exchange::stripes));
      }
      for (std::uint64_t step = 0; step < 6; ++step) {
        auto const x = cases::inputs(n, model.length(), static_cast<unsigned>(10 * step));
        // the model: the mean of all messages and the error become bits, whose rest is the error
        auto const messages = cases::run(x, [&] { return make(gather); });
        vector sum = messages.mean[0];
        for (gq::adapt::layer const& l : model)
          for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) sum[i] += error[i];
        auto const bits = cases::run({sum}, [&] { return make(gather); });
        std::copy_n(bits.rest[0].begin(), error.size(), error.begin());
        std::mutex one_by_one;
        vector kept(model.length());
        support::on_threads(n, [&](auto& threads) {
          auto const r = static_cast<std::size_t>(threads.rank());
          altered workers{threads, 24};
          vector mean(model.length(), -77.0F);
          EXPECT_EQ(small[r].reduce(workers, x[r], mean, {}, step), cp::outcome::mean);
          EXPECT_TRUE(cases::same_bits(mean, bits.mean[0]));
          mean = x[r];  // the mean in the memory of the vector
          EXPECT_EQ(large[r].reduce(threads, mean, mean, {}, step), cp::outcome::mean);
          for (gq::adapt::layer const& l : model)
            for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) ASSERT_EQ(mean[i], bits.mean[0][i]);
          std::scoped_lock const lock(one_by_one);
          auto const own = second_error(small[r], n, threads.rank());
          for (std::size_t i = 0; i < kept.size(); ++i) {
            EXPECT_TRUE(own[i] == 0 || kept[i] == 0) << "a place is in one stripe";
            kept[i] += own[i];
          }
        });
        for (gq::adapt::layer const& l : model)
          for (std::uint64_t i = l.offset; i < l.offset + l.size; ++i) ASSERT_EQ(kept[i], error[i]);
      }
    }
}

TEST(OneBit, sums_over_steps_are_those_of_the_vectors_minus_the_last_errors_of_both_kinds) {
  constexpr int steps = 50;
  std::uint64_t const d = 300;
  for (int n : {1, 2, 3, 5}) {
    SCOPED_TRACE(n);
    std::mutex one_by_one;
    std::vector<double> sent(d), wanted(d), kept(d);
    double largest = 0, of_mean = 0;
    support::on_threads(n, [&](auto& workers) {
      cp::error_feedback ef{cp::one_bit{cases::one_layer(d), {.bucket = 40}}};
      vector mean(d), second(d);
      std::vector<double> sum(d), all(d);
      double top = 0, top_of_mean = 0;
      for (int t = 0; t < steps; ++t) {
        vector const g = cases::values(d, static_cast<unsigned>(100 * t + workers.rank()));
        for (std::size_t i = 0; i < d; ++i)
          top = std::max(top, std::abs(static_cast<double>(g[i]) + static_cast<double>(ef.error()[i])));
        ASSERT_EQ(ef.reduce(workers, g, mean, static_cast<std::uint64_t>(t)), cp::outcome::mean);
        second = second_error(ef.inner(), n, workers.rank());
        for (std::size_t i = 0; i < d; ++i) {
          sum[i] += static_cast<double>(mean[i]);
          all[i] += static_cast<double>(g[i]);
          top_of_mean = std::max(
              top_of_mean, std::abs(static_cast<double>(mean[i])) + std::abs(static_cast<double>(second[i])));
        }
      }
      std::scoped_lock const lock(one_by_one);
      if (workers.rank() == 0) sent = sum;
      largest = std::max(largest, top);
      of_mean = std::max(of_mean, top_of_mean);
      for (std::size_t i = 0; i < d; ++i) {
        wanted[i] += (all[i] - static_cast<double>(ef.error()[i])) / n - static_cast<double>(second[i]);
        kept[i] += std::abs(static_cast<double>(second[i]));
      }
    });
    // Each step rounds, by 2^-24 of the result at most: vector + error and what is left of it (at most P each), n additions of
    // messages (at most n P, a share of 1/n counts) and their mean (P), mean + second error and what is left of that (V each).
    double const tolerance = steps * 0x1p-24 * ((n + 3) * largest + 2 * of_mean);
    EXPECT_LT(tolerance, 0.5);
    double most = 0;
    for (std::size_t i = 0; i < d; ++i) {
      EXPECT_NEAR(sent[i], wanted[i], tolerance);
      most = std::max(most, kept[i]);
    }
    EXPECT_TRUE(n == 1 ? most == 0 : most > 100 * tolerance) << most;
  }
}

TEST(OneBit, a_worker_sends_two_shares_of_a_message_and_gathering_all_of_it_to_everyone) {
  auto const sent = [](int n, gq::adapt::model_layout const& model, cp::one_bit_options const& how) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(n));
    support::on_threads(n, [&](auto& workers) {
      cp::one_bit c{model, how};
      vector x(model.length(), 1.0F);
      std::uint64_t const before = workers.bytes_sent();
      c.reduce(workers, x, x, {}, 0);
      bytes[static_cast<std::size_t>(workers.rank())] = workers.bytes_sent() - before;
    });
    return bytes;
  };
  constexpr std::uint64_t opening = 64;
  for (std::uint64_t n : {1UL, 2UL, 3UL, 8UL}) {
    // as many buckets for each: (d/4 + 16 d/bucket)(n-1)/n
    std::uint64_t const d = 512 * 4 * n;
    for (std::uint64_t const b : sent(static_cast<int>(n), cases::one_layer(d), {}))
      EXPECT_EQ(b, (n - 1) * (opening + (d / 4 + 16 * d / 512) / n));
    for (std::uint64_t const b : sent(static_cast<int>(n), cases::one_layer(d), {.exchange = gather}))
      EXPECT_EQ(b, (n - 1) * (opening + d / 8 + 8 * d / 512));
    // buckets of many sizes: the same together, and each within the largest bucket
    gq::adapt::model_layout model;
    model.add("w", {40, 65}).add("bias", {1000}).add_at(5000, "v", {7, 300}).add("none", {0, 5});
    std::uint64_t const frame = cp::one_bit{model, {.bucket = 0}}.frame_bytes();
    EXPECT_EQ(frame, 40 * 8 * (1 + 2) + 8 * (1 + 16) + 7 * 8 * (1 + 5U));
    std::uint64_t all = 0;
    for (std::uint64_t const b : sent(static_cast<int>(n), model, {.bucket = 0})) {
      all += b;
      EXPECT_NEAR(static_cast<double>(b), static_cast<double>((n - 1) * (opening * n + 2 * frame) / n),
                  static_cast<double>((n - 1) * 8 * 17));
    }
    EXPECT_EQ(all, (n - 1) * (opening * n + 2 * frame));
  }
}

TEST(OneBit, sums_beyond_float32_are_means_within_it) {
  for (auto how : {cp::one_bit_exchange::stripes, gather})
    for (int n : {1, 3}) {
      std::vector<vector> const x(static_cast<std::size_t>(n), vector(7, 3.0e38F));
      auto const got = cases::run(x, [&] {
        return cp::one_bit{cases::one_layer(7), {.bucket = 3, .exchange = how}};
      });
      for (float v : got.mean.back()) EXPECT_NEAR(v, 3.0e38F, 1e32F);
    }
}

TEST(OneBit, a_call_without_a_mean_leaves_both_errors_as_they_were) {
  // the mean 3.4e38 0 becomes 1.7e38 twice, so the second step's is 5.1e38 -1.7e38
  std::vector<vector> const x{{3.4e38F, -3.4e38F, 1, 2}, {3.4e38F, 3.4e38F, 1, -2}};
  float const nan = std::numeric_limits<float>::quiet_NaN();
  support::on_threads(2, [&](auto& workers) {
    int const r = workers.rank();
    auto const& own = x[static_cast<std::size_t>(r)];
    cp::one_bit c{cases::one_layer(4), {.bucket = 2}};
    vector mean(4), rest(4);
    ASSERT_EQ(c.reduce(workers, own, mean, {}, 0), cp::outcome::mean);
    vector const kept = second_error(c, 2, r);
    EXPECT_EQ(kept[0], r == 0 ? 1.7e38F : 0.0F);
    rest.assign(4, -77.0F);
    EXPECT_EQ(c.reduce(workers, own, mean, rest, 1), cp::outcome::not_finite);
    for (float v : mean) EXPECT_TRUE(std::bit_cast<std::uint32_t>(v) == 0x7fc00000U);
    EXPECT_EQ(rest, vector(4, -77.0F));
    EXPECT_TRUE(cases::same_bits(second_error(c, 2, r), kept));
    vector bad = own;
    if (r == 1) bad[3] = nan;
    EXPECT_EQ(c.reduce(workers, bad, mean, rest, 2), cp::outcome::not_finite);
    EXPECT_TRUE(cases::same_bits(second_error(c, 2, r), kept));
    EXPECT_THROW(c.reduce(workers, vector(3), mean, rest, 3), gq::error);
    EXPECT_TRUE(cases::same_bits(second_error(c, 2, r), kept));
    // and it goes on from them: the mean is 0 0 | 0 0, what is sent is the error
    EXPECT_EQ(c.reduce(workers, vector(4), mean, rest, 4), cp::outcome::mean);
    EXPECT_EQ(mean[0], 1.7e38F);
    EXPECT_EQ(mean[1], -1.7e38F);
  });
}

TEST(OneBit, means_that_were_damaged_are_refused_and_change_no_error) {
  std::vector<vector> const x{{4, -2, 1, 3}, {2, 6, -5, 1}};
  // the first receive of worker 0 is a message of worker 1, the second one its mean
  for (int which : {0, 1})
    for (std::uint32_t const instead : {0x7f800000U, 0xff800001U, 0xffffffffU}) {
      support::on_threads(2, std::chrono::milliseconds{300}, [&](auto& threads) {
        int const r = threads.rank();
        auto const& own = x[static_cast<std::size_t>(r)];
        cp::one_bit c{cases::one_layer(4), {.bucket = 2}};
        vector mean(4), rest(4, -77.0F);
        c.reduce(threads, own, mean, {}, 0);
        vector const kept = second_error(c, 2, r);
        altered workers{threads, 1U << 18, r == 0 ? which : -1, instead};
        if (r == 0) {
          try {
            c.reduce(workers, own, mean, rest, 1);
            ADD_FAILURE() << "it was taken";
          } catch (gq::frame_error const& e) {
            EXPECT_NE(std::string(e.what()).find("worker 1 sent a mean that is not finite"),
                      std::string::npos);
          }
          EXPECT_EQ(rest, vector(4, -77.0F));
        } else if (which == 0) {
          EXPECT_THROW(c.reduce(workers, own, mean, rest, 1), gq::transport_error);
        } else {
          EXPECT_EQ(c.reduce(workers, own, mean, rest, 1), cp::outcome::mean);
          return;
        }
        EXPECT_TRUE(cases::same_bits(second_error(c, 2, r), kept));
      });
    }
}

/// The vector of a worker in a step.
vector given(int rank, std::uint64_t step) {
  return cases::values(uneven_layers().length(),
                       static_cast<unsigned>(rank) + 20 * static_cast<unsigned>(step));
}

cp::error_feedback<cp::one_bit> fed_back(gq::adapt::model_layout const& model) {
  return cp::error_feedback{cp::one_bit{model, {.bucket = 16}}};
}

/// The states of n workers after five steps.
std::vector<cp::state> states_of(int n) {
  std::vector<cp::state> saved(static_cast<std::size_t>(n));
  support::on_threads(n, [&](auto& workers) {
    auto ef = fed_back(uneven_layers());
    vector mean(uneven_layers().length());
    for (std::uint64_t t = 0; t < 5; ++t) ef.reduce(workers, given(workers.rank(), t), mean, t);
    saved[static_cast<std::size_t>(workers.rank())] = ef.save(n, workers.rank());
  });
  return saved;
}

TEST(OneBit, training_goes_on_bit_for_bit_from_saved_bytes) {
  std::uint64_t const d = uneven_layers().length();
  support::on_threads(3, [&](auto& workers) {
    int const r = workers.rank();
    auto ef = fed_back(uneven_layers());
    vector mean(d);
    for (std::uint64_t t = 0; t < 5; ++t) ef.reduce(workers, given(r, t), mean, t);
    auto const bytes = ef.save(3, r).bytes();
    auto again = fed_back(uneven_layers()), forgetful = fed_back(uneven_layers());
    cp::state const own = cp::state::parse(bytes);
    again.load({&own, 1}, 3, r);
    forgetful.load({&own, 1}, 3, r);
    forgetful.inner().reset();
    EXPECT_EQ(again.save(3, r).bytes(), bytes);
    for (std::uint64_t t = 5; t < 8; ++t) {
      vector resumed(d), other(d);
      ef.reduce(workers, given(r, t), mean, t);
      again.reduce(workers, given(r, t), resumed, t);
      forgetful.reduce(workers, given(r, t), other, t);
      EXPECT_TRUE(cases::same_bits(mean, resumed));
      EXPECT_FALSE(cases::same_bits(mean, other)) << "the second error matters";
    }
  });
}

TEST(OneBit, another_number_of_workers_begins_without_second_errors) {
  std::uint64_t const d = uneven_layers().length();
  auto const saved = states_of(3);
  for (int n : {1, 2, 4})
    support::on_threads(n, [&](auto& workers) {
      int const r = workers.rank();
      auto ef = fed_back(uneven_layers());
      ef.load(saved, n, r);
      EXPECT_EQ(second_error(ef.inner(), n, r), vector(d));
      vector x = given(r, 5), mean(d), wanted(d);
      for (std::size_t i = 0; i < d; ++i) x[i] += ef.error()[i];
      ef.reduce(workers, given(r, 5), mean, 5);
      cp::one_bit fresh{uneven_layers(), {.bucket = 16}};
      fresh.reduce(workers, x, wanted, {}, 5);
      EXPECT_TRUE(cases::same_bits(mean, wanted));
      EXPECT_EQ(second_error(ef.inner(), n, r), second_error(fresh, n, r));
    });
}

TEST(OneBit, a_state_is_taken_up_by_layer_name_or_not_at_all) {
  auto const saved = states_of(2);
  gq::adapt::model_layout moved;  // of 13 buckets the first 6 or 7 are a worker's, now those of b
  moved.add("b", {10, 17}).add_at(300, "a", {30});
  std::size_t taken = 0;
  for (int r = 0; r < 2; ++r) {
    auto before = fed_back(uneven_layers()), after = fed_back(moved);
    auto const own = std::span(saved).subspan(static_cast<std::size_t>(r), 1);
    before.load(own, 2, r);
    after.load(own, 2, r);
    vector const old = second_error(before.inner(), 2, r), now = second_error(after.inner(), 2, r);
    for (gq::adapt::layer const& l : moved) {
      std::uint64_t const there = uneven_layers()[uneven_layers().find(l.name)].offset;
      for (std::uint64_t i = 0; i < l.size; ++i) {
        EXPECT_TRUE(now[l.offset + i] == 0 || now[l.offset + i] == old[there + i]);
        taken += now[l.offset + i] != 0 ? 1 : 0;
      }
    }
    // a state of another compressor, and one of other sizes
    vector const kept = second_error(after.inner(), 2, r);
    cp::error_feedback other{cp::rand_k{moved, {.density = 0.5, .unbiased = false}}};
    cp::state const strange = other.save(2, r);
    EXPECT_THROW(after.load({&strange, 1}, 2, r), gq::frame_error);
    cp::state longer(2, r);
    longer.put("second_error/a", vector(31));
    longer.put("second_error/b", vector(170));
    EXPECT_THROW(after.inner().load(longer), gq::frame_error);
    EXPECT_TRUE(cases::same_bits(second_error(after.inner(), 2, r), kept));
  }
  EXPECT_GT(taken, 50U);
}

TEST(OneBit, descent_with_feedback_goes_where_descent_without_it_does_not) {
  // one bucket with coordinates of very different sizes: the means of both signs hide the small ones
  std::uint64_t const d = 40;
  auto const distance = [&](bool feedback, cp::one_bit_exchange how) {
    double left = 0;
    support::on_threads(2, [&](auto& workers) {
      vector w(d), g(d), mean(d);
      cp::one_bit c{cases::one_layer(d), {.exchange = how}};
      cp::error_feedback ef{cp::one_bit{cases::one_layer(d), {.exchange = how}}};
      for (std::uint64_t t = 0; t < 3000; ++t) {
        // the workers' targets differ, so gradients do not vanish
        for (std::size_t i = 0; i < d; ++i) {
          float const target = i % 8 == 0 ? 20.0F : 1.0F;
          g[i] =
              0.005F * (w[i] - target + (workers.rank() == 0 ? 4.0F : -4.0F) * (i % 3 == 0 ? 1.0F : -0.5F));
        }
        if (feedback)
          ef.reduce(workers, g, mean, t);
        else
          c.reduce(workers, g, mean, {}, t);
        for (std::size_t i = 0; i < d; ++i) w[i] -= mean[i];
      }
      if (workers.rank() == 0)
        for (std::size_t i = 0; i < d; ++i)
          left += std::pow(static_cast<double>(w[i]) - (i % 8 == 0 ? 20.0 : 1.0), 2);
    });
    return std::sqrt(left / static_cast<double>(d));
  };
  for (auto how : {cp::one_bit_exchange::stripes, gather}) {
    double const with = distance(true, how), without = distance(false, how);
    EXPECT_LT(with, 0.1);
    EXPECT_GT(without, 10 * with);
  }
}

TEST(OneBit, disagreement_and_values_that_are_not_finite_are_the_same_on_all_workers) {
  for (auto how : {cp::one_bit_exchange::stripes, gather})
    cases::expect_manners([&](auto layers, auto settings) {
      return cp::one_bit{layers, {.exchange = how}, settings};
    });
  for (auto const& t : support::complaints<gq::disagreement_error>(3, [](auto& workers) {
         auto const how = workers.rank() == 2 ? gather : cp::one_bit_exchange::stripes;
         cp::one_bit c{cases::one_layer(9), {.exchange = how}};
         vector x(9);
         c.reduce(workers, x, x, {}, 0);
       }))
    EXPECT_NE(t.find("rank 2 differs from rank 0 in"), t.npos) << t;
}

}  // namespace
