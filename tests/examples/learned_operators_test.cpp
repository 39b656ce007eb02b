// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Operators whose levels are learned, in the demo's own training: all workers change alike, and it pays.

#include <examples/digits/data.hpp>
#include <examples/digits/train.hpp>

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/transport/collectives.hpp>
#include <globalq/transport/threads.hpp>

#include <globalq/named/level_learning.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace gq = globalq;

namespace {

constexpr int num_workers = 3;
constexpr std::uint64_t steps = 60;

/// What a training came to: the run of rank 0, and what each worker learned.
struct outcome {
  digits::result run;
  std::vector<std::vector<double>> levels{num_workers};
  std::vector<std::vector<std::uint64_t>> learned_at{num_workers};
};

outcome train(std::string const& name) {
  digits::settings s;
  s.widths = {digits::num_pixels, 32, 32, digits::num_classes};
  s.steps = steps;
  s.learning_rate = 0.05F;
  static digits::dataset const data =
      digits::split_and_standardize(digits::read_pictures(GLOBALQ_DIGITS_CSV), 1.0 / 3, s.seed);
  gq::named::named_operator const asked = gq::named::read_operator(name);
  outcome all;
  gq::transport::threads cluster{num_workers, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    auto const rank = static_cast<std::size_t>(workers.rank());
    gq::allreduce_mean mean{
        workers, gq::named::make(asked.words), gq::schedule::any{asked.schedule}, {.seed = 42}};
    gq::named::level_learning learning{asked.words, asked.learns, gq::learn::schedule_for(steps)};
    digits::endpoint const here{workers.rank(), workers.size(),
                                [&](std::span<float> gradient, std::uint64_t step) {
                                  if (learning.update(workers, std::span<float const>{gradient}, step, mean))
                                    all.learned_at[rank].push_back(step);
                                  mean(gradient, step);
                                },
                                [&](std::span<std::byte const> mine, std::span<std::byte> every) {
                                  gq::transport::allgather(workers, mine, every);
                                },
                                [&] { return workers.bytes_sent(); }};
    digits::result run = digits::train(here, data, s, [](std::uint64_t, double) {});
    all.levels[rank] = learning.levels();
    if (rank == 0) all.run = std::move(run);
  });
  return all;
}

/// The learned run of an operator beside the one with the levels that learning began with.
void expect_learned(std::string const& name, std::string const& fixed, std::vector<double> const& first) {
  outcome const learned = train(name), given = train(fixed), plain = train("float32");
  EXPECT_TRUE(learned.run.identical) << name << ": replicas differ";
  EXPECT_TRUE(given.run.identical) << fixed;
  std::vector<std::uint64_t> due;
  for (std::uint64_t step = 0; step < steps; ++step)
    if (gq::learn::schedule_for(steps).due(step)) due.push_back(step);
  ASSERT_GE(due.size(), 5U);
  for (std::size_t r = 0; r < num_workers; ++r) {
    EXPECT_EQ(learned.learned_at[r], due) << name << ", rank " << r;
    EXPECT_EQ(learned.levels[r], learned.levels[0]) << name << ", rank " << r;
    EXPECT_TRUE(given.levels[r].empty()) << "levels that were given are not learned";
  }
  ASSERT_EQ(learned.levels[0].size(), first.size()) << name;
  EXPECT_NE(learned.levels[0], first) << name;
  EXPECT_EQ(learned.levels[0].back(), 1.0);
  // Seeds and batches are the same, so losses differ by rounding alone; they lay within 5 % where this was written.
  EXPECT_LT(learned.run.final_loss, 1.2 * plain.run.final_loss) << name;
  EXPECT_LT(learned.run.final_loss, 1.2 * given.run.final_loss) << name;
  EXPECT_LT(learned.run.final_loss, 0.5 * std::log(10.0)) << name << ": it has learned digits";
}

}  // namespace

TEST(LearnedOperators, alq_learns_while_the_demo_trains) {
  expect_learned("alq:3,bucket=512", "alq:3,levels=0:0.25:0.5:1,bucket=512", {0, 0.25, 0.5, 1});
}

TEST(LearnedOperators, amq_learns_while_the_demo_trains) {
  expect_learned("amq:3,bucket=512", "amq:3,multiplier=0.5,bucket=512", {0.125, 0.25, 0.5, 1});
}

TEST(LearnedOperators, weights_codes_and_tails_go_with_learning) {
  outcome const usual = train("alq:3,bucket=512"), equal = train("alq:3,bucket=512,normalized=yes"),
                tailed = train("alq:3,bucket=512,tail=float32"),
                coded = train("alq:3,bucket=512,code=huffman");
  for (outcome const* each : {&equal, &tailed}) {
    EXPECT_TRUE(each->run.identical);
    EXPECT_EQ(each->learned_at, usual.learned_at);
    EXPECT_NE(each->levels[0], usual.levels[0]) << "other values teach";
  }
  // codes change nothing but bytes
  EXPECT_EQ(coded.levels, usual.levels);
  EXPECT_EQ(coded.run.final_loss, usual.run.final_loss);
  EXPECT_LT(coded.run.bytes_a_step, usual.run.bytes_a_step);
}

TEST(LearnedOperators, nothing_is_learned_from_zeros_or_nan_and_all_workers_know) {
  gq::named::named_operator const asked = gq::named::read_operator("alq:3,bucket=16,tail=float32");
  gq::transport::threads cluster{num_workers, {.deadline = std::chrono::seconds{60}}};
  cluster.run([&](auto& workers) {
    gq::allreduce_mean mean{workers, gq::named::make(asked.words), gq::schedule::any{asked.schedule}};
    gq::named::level_learning learning{asked.words, asked.learns, {.once = {0}, .every = 0}};
    std::vector<double> const first = learning.levels();
    std::vector<float> x(40);
    auto const learns = [&](std::uint64_t step) {
      return learning.update(workers, std::span<float const>{x}, step, mean);
    };
    x[35] = 1;  // in the tail, which is not quantized
    EXPECT_FALSE(learns(0));
    x[3] = workers.rank() == 1 ? std::nanf("") : 1.0F;
    EXPECT_FALSE(learns(1));
    EXPECT_EQ(learning.levels(), first);
    x[3] = 1;
    x[4] = 0.0625F;
    EXPECT_TRUE(learns(2)) << "the update that was due is made as soon as there is something to learn";
    EXPECT_FALSE(learns(3));
    EXPECT_NE(learning.levels(), first);
    mean(x, 3);
  });
}
