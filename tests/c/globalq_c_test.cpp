// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libglobalq.so beside the library in C++: the same bits over threads, shared memory and messages that the caller moves;
/// every refusal says what is wrong.

#include "workers.hpp"

#include <globalq/baseline.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/all_to_all.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/broadcast.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/named/compressors.hpp>
#include <globalq/named/level_learning.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/operator/clip.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/train/adapt/chooser.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace gq = globalq;
using testing::HasSubstr;
using namespace support_c;

}  // namespace

TEST(C, words_are_listed_and_read) {
  char const* words = nullptr;
  ASSERT_EQ(globalq_words(&words), GLOBALQ_OK);
  EXPECT_THAT(words, HasSubstr("\nrotate=0: "));
  EXPECT_EQ(globalq_words(nullptr), GLOBALQ_CONFIGURATION);
  globalq_plan found{};
  found.size = sizeof found;
  EXPECT_EQ(globalq_plan_for("norm=local:2 bucket=64 code=sparse rotate=128", nullptr, 4, 1000,
                             GLOBALQ_FLOAT32, &found),
            GLOBALQ_OK);
  EXPECT_EQ(globalq_plan_for("norm=local:2 rotation=128", nullptr, 4, 1000, GLOBALQ_FLOAT32, &found),
            GLOBALQ_CONFIGURATION);
  EXPECT_THAT(globalq_error(), HasSubstr("is no word of an operator"));
}

TEST(C, operators_are_written_in_words) {
  char const* words = nullptr;
  ASSERT_EQ(globalq_operator_words("cgx:4,bucket=64 rotate=128", &words), GLOBALQ_OK) << globalq_error();
  EXPECT_STREQ(words,
               "norm=local:inf bucket=64 levels=uniform rounding=stochastic wire=packed:4 rotate=128 "
               "schedule=sra");
  EXPECT_EQ(globalq_operator_words("cgx:99", &words), GLOBALQ_CONFIGURATION);
  EXPECT_EQ(words, nullptr);
  EXPECT_EQ(globalq_operator_words(nullptr, &words), GLOBALQ_CONFIGURATION);
  EXPECT_EQ(globalq_operator_words("cgx:4", nullptr), GLOBALQ_CONFIGURATION);
}

TEST(C, vectors_become_bytes_that_say_how_to_decode_them) {
  std::vector<float> x(777), y(777), twice(777);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 31) - 15;
  globalq_vector const in{x.data(), nullptr, x.size(), GLOBALQ_FLOAT32};
  std::size_t size = 0;
  ASSERT_EQ(globalq_encode("qsgd:8,code=huffman", &in, 5, 6, 7, 1, nullptr, &size), GLOBALQ_OK)
      << globalq_error();
  std::vector<char> bytes(size);
  ASSERT_EQ(globalq_encode("qsgd:8,code=huffman", &in, 5, 6, 7, 1, bytes.data(), &size), GLOBALQ_OK);
  EXPECT_LT(size, bytes.size());  // the length of the frame varies
  globalq_label label{};
  label.size = sizeof label;
  ASSERT_EQ(globalq_read_label(bytes.data(), size, &label), GLOBALQ_OK) << globalq_error();
  EXPECT_THAT(label.operator_name, HasSubstr("wire=huffman"));
  EXPECT_TRUE(label.length == 777 && label.type == GLOBALQ_FLOAT32 && label.seed == 5 && label.step == 6 &&
              label.worker == 7 && label.workers == 1);
  globalq_vector const out{nullptr, y.data(), y.size(), GLOBALQ_FLOAT32},
      sum{nullptr, twice.data(), twice.size(), GLOBALQ_FLOAT32};
  ASSERT_EQ(globalq_decode(nullptr, bytes.data(), size, &out, 0), GLOBALQ_OK) << globalq_error();
  for (int k = 0; k < 2; ++k)
    ASSERT_EQ(globalq_decode("qsgd:8,code=huffman", bytes.data(), size, &sum, 1), GLOBALQ_OK);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(twice[i], y[i] + y[i]);

  EXPECT_EQ(globalq_decode("qsgd:8", bytes.data(), size, &out, 0), GLOBALQ_FRAME);
  EXPECT_THAT(globalq_error(), HasSubstr("and this codec of"));
  EXPECT_EQ(globalq_decode(nullptr, bytes.data(), size - 1, &out, 0), GLOBALQ_FRAME);
  EXPECT_EQ(globalq_read_label(bytes.data(), 10, &label), GLOBALQ_FRAME);
  std::size_t small = 100;
  EXPECT_EQ(globalq_encode("qsgd:8", &in, 5, 6, 7, 1, bytes.data(), &small), GLOBALQ_CONFIGURATION);
  EXPECT_THAT(globalq_error(), HasSubstr("room for 100 bytes"));
  globalq_vector const nowhere{nullptr, nullptr, 5, GLOBALQ_FLOAT32};
  for (globalq_status const status :
       {globalq_encode(nullptr, &in, 0, 0, 0, 1, nullptr, &size),
        globalq_encode("cgx:4", nullptr, 0, 0, 0, 1, nullptr, &size),
        globalq_encode("cgx:4", &in, 0, 0, 0, 1, nullptr, nullptr),
        globalq_encode("cgx:4", &nowhere, 0, 0, 0, 1, bytes.data(), &size),
        globalq_encode("float32", &in, 0, 0, 0, 1, nullptr, &size), globalq_read_label(nullptr, 5, &label),
        globalq_read_label(bytes.data(), 5, nullptr), globalq_decode(nullptr, nullptr, 5, &out, 0),
        globalq_decode(nullptr, bytes.data(), 5, nullptr, 0),
        globalq_decode(nullptr, bytes.data(), 5, &nowhere, 0)})
    EXPECT_EQ(status, GLOBALQ_CONFIGURATION);
}

TEST(C, means_have_the_bits_of_the_library_over_every_transport) {
  constexpr int workers = 3;
  constexpr std::size_t length = 5003;
  for (std::size_t k = 0;; ++k) {
    globalq_operator op{};
    op.size = sizeof op;
    if (globalq_operator_at(k, &op) != GLOBALQ_OK) {
      EXPECT_GE(k, 15U);
      EXPECT_THAT(globalq_error(), HasSubstr("there is no operator"));
      break;
    }
    if (gq::named::read_compressor(op.name)) continue;
    auto const found = gq::named::read_operator(op.name);
    std::string name = op.name;
    if (name == "alq") name = "alq:3,levels=0:0.1:1";
    if (name == "amq") name = "amq:3,multiplier=0.5";
    std::vector<std::vector<float>> right(2);
    gq::transport::threads(workers).run([&](auto& w) {
      auto const named = gq::named::read_operator(name);
      gq::allreduce_mean mean{
          w, gq::named::operator_of(named), gq::schedule::any{found.schedule}, {.seed = 9}};
      for (std::uint64_t step : {0U, 1U}) {
        auto x = values(length, w.rank());
        mean(x, step);
        if (w.rank() == 0) right[step] = x;
      }
    });
    EXPECT_EQ(op.schedule, found.schedule);
    for (way how : {way::threads, way::memory, way::messages}) {
      auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
        call_handle mean;
        globalq_settings const s = settings_of(name.c_str());
        globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
        for (std::uint64_t step = 0; step < 2 && status == GLOBALQ_OK; ++step) {
          auto x = values(length, globalq_rank(w));
          std::vector<float> y(length);
          globalq_vector const v{x.data(), step == 0 ? x.data() : y.data(), length, GLOBALQ_FLOAT32};
          status = globalq_call_run(mean.call, &v, 1, step);
          EXPECT_EQ(step == 0 ? x : y, right[step]) << name << " " << static_cast<int>(how);
        }
        return status;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
    }
  }
}

TEST(C, layers_have_operators_and_types_of_their_own) {
  constexpr int workers = 2;
  std::uint64_t const shapes[][2] = {{30, 40}, {7, 1}, {12, 100}};
  std::vector<std::vector<float>> right(2);
  std::vector<double> right_wide;
  gq::transport::threads(workers).run([&](auto& w) {
    gq::adapt::model_layout model;
    model.add("a", {30, 40}).add("b", {7}).add("c", {12, 100}, gq::dtype::float64);
    auto const of = [](char const* name) { return gq::named::operator_of(gq::named::read_operator(name)); };
    gq::adapt::layered_mean mean{w,
                                 model,
                                 {of("cgx:4"), gq::uncompressed{}, of("qsgd:8")},
                                 gq::schedule::any{"sra"},
                                 {.call = {.seed = 9}}};
    auto a = values(1200, w.rank()), b = values(7, w.rank()), c = values(1200, w.rank() + 5);
    std::vector<double> wide(c.begin(), c.end());
    mean(gq::vector_group{}.add(a).add(b).add(wide), 3);
    if (w.rank() == 0) right = {a, b}, right_wide = wide;
  });
  auto const [ended, text] = run(way::threads, workers, [&](globalq_workers* w) {
    globalq_layer const layers[] = {{"a", shapes[0], 2, GLOBALQ_FLOAT32, nullptr},
                                    {"b", shapes[1], 1, GLOBALQ_FLOAT32, "float32"},
                                    {"c", shapes[2], 2, GLOBALQ_FLOAT64, "qsgd:8"}};
    call_handle mean;
    globalq_settings const s = settings_of("cgx:4");
    globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, 3, &mean.call);
    if (status != GLOBALQ_OK) return status;
    EXPECT_THAT(globalq_call_operator(mean.call, 2), HasSubstr("uniform"));
    auto a = values(1200, globalq_rank(w)), b = values(7, globalq_rank(w)),
         c = values(1200, globalq_rank(w) + 5);
    std::vector<double> wide(c.begin(), c.end());
    globalq_vector const v[] = {{a.data(), a.data(), 1200, GLOBALQ_FLOAT32},
                                {b.data(), b.data(), 7, GLOBALQ_FLOAT32},
                                {wide.data(), wide.data(), 1200, GLOBALQ_FLOAT64}};
    status = globalq_call_run(mean.call, v, 3, 3);
    EXPECT_EQ(a, right[0]);
    EXPECT_EQ(b, right[1]);
    EXPECT_EQ(wide, right_wide);
    globalq_plan plan{};
    plan.size = sizeof plan;
    EXPECT_EQ(globalq_call_plan(mean.call, 0, GLOBALQ_FLOAT32, &plan), GLOBALQ_OK);
    EXPECT_GT(plan.bytes_sent, 0U);
    return status;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
}

/// A second call with the loaded state goes on with the bits of the first; so do layers beside compressors, where there are any.
TEST(C, calls_hand_on_the_residuals_of_error_feedback) {
  std::uint64_t const shape[] = {300};
  for (bool const by_layers : {false, true})
    for (globalq_kind kind : {GLOBALQ_MEAN, GLOBALQ_REDUCE_SCATTER, GLOBALQ_BROADCAST}) {
      if (by_layers && kind != GLOBALQ_MEAN) continue;
      auto const [ended, text] = run(way::threads, 3, [&](globalq_workers* w) {
        globalq_settings const s = settings_of("cgx:2,feedback");
        globalq_layer const layer{"a", shape, 1, GLOBALQ_FLOAT32, nullptr};
        call_handle one, two;
        for (call_handle* each : {&one, &two})
          if (auto const made = globalq_call_create(w, kind, &s, by_layers ? &layer : nullptr,
                                                    by_layers ? 1 : 0, &each->call))
            return made;
        auto const step_of = [&](globalq_call* call, std::uint64_t step) {
          auto x = values(300, globalq_rank(w) + 10 * static_cast<int>(step));
          globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
          EXPECT_EQ(globalq_call_run(call, &v, 1, step), GLOBALQ_OK);
          return x;
        };
        for (std::uint64_t step = 0; step < 3; ++step) step_of(one.call, step);
        std::size_t size = 0;
        EXPECT_EQ(globalq_call_save(one.call, nullptr, &size), GLOBALQ_OK);
        EXPECT_GT(size, 1000U);
        std::vector<char> kept(size);
        EXPECT_EQ(globalq_call_save(one.call, kept.data(), &size), GLOBALQ_OK);
        globalq_bytes const state{kept.data(), kept.size()};
        EXPECT_EQ(globalq_call_load(two.call, &state, 1), GLOBALQ_OK);
        for (std::uint64_t step = 3; step < 6; ++step)
          EXPECT_EQ(step_of(one.call, step), step_of(two.call, step));
        EXPECT_EQ(globalq_call_load(two.call, nullptr, 0), GLOBALQ_OK);  // forgets
        call_handle fresh;
        if (auto const made = globalq_call_create(w, kind, &s, by_layers ? &layer : nullptr,
                                                  by_layers ? 1 : 0, &fresh.call))
          return made;
        EXPECT_EQ(step_of(two.call, 6), step_of(fresh.call, 6));
        return GLOBALQ_OK;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
    }
}

#if defined(GLOBALQ_HAS_EIGEN)
TEST(C, compressors_have_the_bits_of_the_library_and_hand_on_what_they_keep) {
  constexpr int workers = 2;
  constexpr std::uint64_t steps = 6;
  std::uint64_t const shapes[][2] = {{30, 40}, {7, 1}, {12, 100}};
  auto const gradient = [](std::size_t layer, int rank, std::uint64_t step) {
    return values(layer == 1 ? 7 : 1200, rank + 10 * static_cast<int>(step) + static_cast<int>(layer));
  };
  std::vector<std::vector<float>> right[steps];
  gq::transport::threads(workers).run([&](auto& w) {
    gq::adapt::model_layout a, c;
    a.add("a", {30, 40}), c.add("c", {12, 100});
    gq::baseline::error_feedback thin{gq::baseline::power_sgd{a, {.rank = 2}, {.seed = 9}}};
    gq::baseline::error_feedback largest{gq::baseline::top_k{c, {.density = 0.1, .bits = 3}, {.seed = 9}}};
    gq::allreduce_mean plain{w, gq::uncompressed{}, gq::schedule::any{"sra"}};
    for (std::uint64_t step = 0; step < steps; ++step) {
      std::vector<std::vector<float>> x;
      for (std::size_t k = 0; k < 3; ++k) x.push_back(gradient(k, w.rank(), step));
      thin.reduce(w, x[0], x[0], step);
      plain(x[1], step);
      largest.reduce(w, x[2], x[2], step);
      if (w.rank() == 0) right[step] = x;
    }
  });
  auto const run_layers = [&](globalq_workers* w, globalq_call* call, std::vector<std::size_t> const& of,
                              std::uint64_t step) {
    std::vector<std::vector<float>> x;
    std::vector<globalq_vector> v;
    for (std::size_t const k : of) x.push_back(gradient(k, globalq_rank(w), step));
    for (auto& each : x) v.push_back({each.data(), each.data(), each.size(), GLOBALQ_FLOAT32});
    globalq_status const status = globalq_call_run(call, v.data(), v.size(), step);
    for (std::size_t k = 0; k < of.size() && status == GLOBALQ_OK; ++k)
      EXPECT_EQ(x[k], right[step][of[k]]) << "layer " << of[k] << " step " << step;
    return status;
  };
  for (way how : {way::threads, way::memory, way::messages}) {
    auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
      globalq_layer const layers[] = {{"a", shapes[0], 2, GLOBALQ_FLOAT32, nullptr},
                                      {"b", shapes[1], 1, GLOBALQ_FLOAT32, "float32"},
                                      {"c", shapes[2], 2, GLOBALQ_FLOAT32, "top-k:0.1,bits=3"}};
      globalq_settings const s = settings_of("power-sgd:2");
      call_handle all, first, last;
      globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, 3, &all.call);
      if (status != GLOBALQ_OK) return status;
      EXPECT_STREQ(globalq_call_operator(all.call, 0), "power-sgd:rank=2");
      EXPECT_STREQ(globalq_call_operator(all.call, 1), "float32");
      EXPECT_STREQ(globalq_call_operator(all.call, 2), "top-k:density=0.1,bits=3");
      for (std::uint64_t step = 0; step < 3 && status == GLOBALQ_OK; ++step)
        status = run_layers(w, all.call, {0, 1, 2}, step);
      if (status != GLOBALQ_OK) return status;

      std::size_t size = 0;
      EXPECT_EQ(globalq_call_save(all.call, nullptr, &size), GLOBALQ_OK);
      std::vector<char> kept(size), untouched(size);
      EXPECT_EQ(globalq_call_save(all.call, kept.data(), &size), GLOBALQ_OK);
      std::size_t little = size - 1;
      EXPECT_EQ(globalq_call_save(all.call, untouched.data(), &little), GLOBALQ_OK);
      EXPECT_EQ(little, size);
      EXPECT_EQ(untouched, std::vector<char>(size));

      // the same layers in other calls, as when a trainer makes its groups anew
      status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, 2, &first.call);
      if (status == GLOBALQ_OK) status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers + 2, 1, &last.call);
      globalq_bytes const state{kept.data(), kept.size()};
      if (status == GLOBALQ_OK) status = globalq_call_load(first.call, &state, 1);
      if (status == GLOBALQ_OK) status = globalq_call_load(last.call, &state, 1);
      for (std::uint64_t step = 3; step < steps && status == GLOBALQ_OK; ++step) {
        status = run_layers(w, last.call, {2}, step);
        if (status == GLOBALQ_OK) status = run_layers(w, first.call, {0, 1}, step);
      }

      globalq_bytes const twice[] = {state, state}, cut{kept.data(), kept.size() - 1};
      EXPECT_EQ(globalq_call_load(first.call, twice, 2), GLOBALQ_CONFIGURATION);
      EXPECT_EQ(globalq_call_load(first.call, &cut, 1), GLOBALQ_FRAME);
      EXPECT_EQ(globalq_call_load(first.call, nullptr, 0), GLOBALQ_CONFIGURATION);
      globalq_bytes const nowhere{nullptr, kept.size()};
      EXPECT_EQ(globalq_call_load(first.call, &nowhere, 1), GLOBALQ_CONFIGURATION);
      EXPECT_EQ(globalq_call_load_own(first.call, &state), GLOBALQ_CONFIGURATION);  // matrices of PowerSGD
      EXPECT_EQ(globalq_call_load_own(first.call, &nowhere), GLOBALQ_CONFIGURATION);
      kept.back() ^= 1;
      EXPECT_EQ(globalq_call_load(first.call, &state, 1), GLOBALQ_FRAME);
      EXPECT_EQ(globalq_call_load_own(first.call, &state), GLOBALQ_FRAME);
      return status;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
}

TEST(C, compressors_that_differ_are_an_error_of_all_before_anything_is_averaged) {
  std::uint64_t const shape[] = {4, 25};
  for (char const* second : {"cgx:4", "power-sgd:1"}) {
    auto const [ended, text] = run(way::threads, 3, [&](globalq_workers* w) {
      std::string const op = globalq_rank(w) == 1 ? "top-k:0.25" : "top-k:0.5";
      globalq_layer const layers[] = {{"a", shape, 2, GLOBALQ_FLOAT32, op.c_str()},
                                      {"b", shape, 2, GLOBALQ_FLOAT32, second}};
      globalq_settings const s = settings_of(nullptr);
      call_handle mean;
      if (auto const made = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, 2, &mean.call)) return made;
      auto a = values(100, globalq_rank(w)), b = a;
      globalq_vector const v[] = {{a.data(), a.data(), 100, GLOBALQ_FLOAT32},
                                  {b.data(), b.data(), 100, GLOBALQ_FLOAT32}};
      EXPECT_EQ(globalq_call_run(mean.call, v, 2, 0), GLOBALQ_DISAGREEMENT);
      EXPECT_EQ(a, values(100, globalq_rank(w)));
      EXPECT_EQ(b, a);
      globalq_vector const shorter[] = {
          v[0], {b.data(), b.data(), globalq_rank(w) == 2 ? 99U : 100U, GLOBALQ_FLOAT32}};
      EXPECT_NE(globalq_call_run(mean.call, shorter, 2, 1), GLOBALQ_OK);
      return GLOBALQ_OK;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
}

TEST(C, compressors_wait_for_the_end_of_the_warm_up_and_refuse_what_they_cannot) {
  auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
    std::uint64_t const shape[] = {100};
    globalq_layer layer{"a", shape, 1, GLOBALQ_FLOAT32, "top-k:0.01"};
    globalq_settings s = settings_of(nullptr);
    s.warm_up = 2;
    call_handle mean, refused;
    if (auto const made = globalq_call_create(w, GLOBALQ_MEAN, &s, &layer, 1, &mean.call)) return made;
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<float> x(100, static_cast<float>(globalq_rank(w)));
      globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
      if (auto const status = globalq_call_run(mean.call, &v, 1, step)) return status;
      EXPECT_EQ(std::count(x.begin(), x.end(), 0.5F), step < 2 ? 100 : 1) << step;
    }
    globalq_plan plan{};
    plan.size = sizeof plan;
    EXPECT_EQ(globalq_call_plan(mean.call, 0, GLOBALQ_FLOAT32, &plan), GLOBALQ_CONFIGURATION);
    s = settings_of("top-k:0.01");
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &refused.call), GLOBALQ_CONFIGURATION);
    EXPECT_THAT(globalq_error(), HasSubstr("use it for a layer of a mean"));
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_ALL_GATHER, &s, nullptr, 0, &refused.call),
              GLOBALQ_CONFIGURATION);
    layer.type = GLOBALQ_FLOAT16;
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, &layer, 1, &refused.call), GLOBALQ_CONFIGURATION);
    EXPECT_THAT(globalq_error(), HasSubstr("compressors take float32"));
    return GLOBALQ_OK;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
}
#endif

TEST(C, shards_have_the_bits_of_the_library) {
  constexpr int workers = 3;
  constexpr std::size_t length = 2000;
  std::vector<std::vector<float>> means(3);
  std::vector<float> all;
  gq::transport::threads(workers).run([&](auto& w) {
    auto const op = gq::named::operator_of(gq::named::read_operator("qsdp"));
    gq::reduce_scatter_mean scatter{w, op, {.seed = 9}};
    gq::all_gather gather{w, op, {.seed = 9}};
    std::vector<float> own(scatter.shard(length).count);
    scatter(values(length, w.rank()), own, 5);
    means[static_cast<std::size_t>(w.rank())] = own;
    std::vector<float> whole(length);
    gather(own, whole, 6);
    if (w.rank() == 1) all = whole;
  });
  for (way how : {way::threads, way::memory, way::messages}) {
    auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
      call_handle scatter, gather;
      globalq_settings const s = settings_of("qsdp");
      globalq_status status = globalq_call_create(w, GLOBALQ_REDUCE_SCATTER, &s, nullptr, 0, &scatter.call);
      if (status == GLOBALQ_OK)
        status = globalq_call_create(w, GLOBALQ_ALL_GATHER, &s, nullptr, 0, &gather.call);
      if (status != GLOBALQ_OK) return status;
      std::uint64_t first = 0, count = 0;
      EXPECT_EQ(globalq_call_shard(scatter.call, length, globalq_rank(w), &first, &count), GLOBALQ_OK);
      auto x = values(length, globalq_rank(w));
      std::vector<float> own(count), whole(length);
      globalq_vector const v{x.data(), own.data(), length, GLOBALQ_FLOAT32};
      status = globalq_call_run(scatter.call, &v, 1, 5);
      EXPECT_EQ(own, means[static_cast<std::size_t>(globalq_rank(w))]);
      globalq_vector const g{own.data(), whole.data(), length, GLOBALQ_FLOAT32};
      if (status == GLOBALQ_OK) status = globalq_call_run(gather.call, &g, 1, 6);
      EXPECT_EQ(whole, all);
      std::copy(own.begin(), own.end(), x.begin() + static_cast<std::ptrdiff_t>(first));
      globalq_vector const in_place{x.data(), x.data(), length, GLOBALQ_FLOAT32};
      if (status == GLOBALQ_OK) status = globalq_call_run(gather.call, &in_place, 1, 6);
      EXPECT_EQ(x, all);
      return status;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
}

TEST(C, a_broadcast_and_all_to_all_have_the_bits_of_the_library) {
  constexpr int workers = 3;
  constexpr std::size_t length = 1800;
  std::vector<float> sent, crossed;
  gq::transport::threads(workers).run([&](auto& w) {
    gq::broadcast send{w, gq::named::operator_of(gq::named::read_operator("cgx:4")), 2, {.seed = 9}};
    auto x = values(length, w.rank());
    send(x, 5);
    if (w.rank() == 0) sent = x;
    gq::all_to_all exchange{w, gq::named::operator_of(gq::named::read_operator("cgx:4")), {.seed = 9}};
    x = values(length, w.rank());
    exchange(x, 5);
    if (w.rank() == 1) crossed = x;
  });
  for (way how : {way::threads, way::memory, way::messages}) {
    auto const [ended, text] = run(how, workers, [&](globalq_workers* w) {
      call_handle send, refused;
      globalq_settings s = settings_of("cgx:4");
      s.root = 3;
      EXPECT_EQ(globalq_call_create(w, GLOBALQ_BROADCAST, &s, nullptr, 0, &refused.call),
                GLOBALQ_CONFIGURATION);
      EXPECT_THAT(globalq_error(), HasSubstr("pass a root from 0 to 2"));
      s.root = 2;
      EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &refused.call), GLOBALQ_CONFIGURATION);
      EXPECT_THAT(globalq_error(), HasSubstr("only GLOBALQ_BROADCAST"));
      globalq_status status = globalq_call_create(w, GLOBALQ_BROADCAST, &s, nullptr, 0, &send.call);
      if (status != GLOBALQ_OK) return status;
      auto x = values(length, globalq_rank(w));
      std::vector<float> y(length);
      globalq_vector const other{x.data(), y.data(), length, GLOBALQ_FLOAT32},
          in_place{x.data(), x.data(), length, GLOBALQ_FLOAT32};
      status = globalq_call_run(send.call, &other, 1, 5);
      EXPECT_EQ(y, sent);
      if (status == GLOBALQ_OK) status = globalq_call_run(send.call, &in_place, 1, 5);
      EXPECT_EQ(x, sent);
      call_handle exchange;
      s.root = 0;
      if (status == GLOBALQ_OK)
        status = globalq_call_create(w, GLOBALQ_ALL_TO_ALL, &s, nullptr, 0, &exchange.call);
      auto const given = values(length, globalq_rank(w));
      std::copy(given.begin(), given.end(), x.begin());
      if (status == GLOBALQ_OK) status = globalq_call_run(exchange.call, &in_place, 1, 5);
      if (globalq_rank(w) == 1) {
        EXPECT_EQ(x, crossed);
      }
      return status;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
}

namespace {

/// Values of two workers whose levels are worth learning: many small ones.
std::vector<float> skewed(std::size_t length, int rank, std::uint64_t step) {
  auto x = values(length, rank + 10 * static_cast<int>(step));
  for (float& v : x) v *= v * v;
  return x;
}

template <class Mean>
struct levels_of {
  Mean& mean;
  std::size_t layer;
  void set_levels(auto const& changed) { mean.set_levels(layer, changed); }
};

double error_of(std::vector<float> const& mean, std::uint64_t step) {
  auto const a = skewed(mean.size(), 0, step), b = skewed(mean.size(), 1, step);
  double error = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double const off =
        static_cast<double>(mean[i]) - (static_cast<double>(a[i]) + static_cast<double>(b[i])) / 2;
    error += off * off;
  }
  return error;
}

}  // namespace

TEST(C, levels_are_learned_and_vectors_clipped_as_by_the_library) {
  constexpr std::size_t length = 5003;
  for (std::string const name :
       {"alq:3,bucket=512", "amq:3,bucket=512,tail=float32", "terngrad:2.5,bucket=512"}) {
    std::vector<std::vector<float>> right;
    gq::transport::threads(2).run([&](auto& w) {
      auto const asked = gq::named::read_operator(name);
      gq::allreduce_mean mean{
          w, gq::named::operator_of(asked), gq::schedule::any{asked.schedule}, {.seed = 9}};
      gq::named::level_learning learning{asked.words, asked.learns, {.once = {1}, .every = 3}};
      for (std::uint64_t step = 0; step < 5; ++step) {
        auto x = skewed(length, w.rank(), step);
        if (asked.clip > 0) gq::clip_deviations(x, asked.clip, asked.words.bucket);
        learning.update(w, std::span<float const>{x}, step, mean);
        mean(x, step);
        if (w.rank() == 0) right.push_back(x);
      }
    });
    for (way how : {way::threads, way::memory, way::messages}) {
      auto const [ended, text] = run(how, 2, [&](globalq_workers* w) {
        call_handle mean;
        globalq_settings s = settings_of(name.c_str());
        s.learn_at = "1,every 3";
        globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
        std::string const before = globalq_call_operator(mean.call, 0);
        for (std::uint64_t step = 0; step < 5 && status == GLOBALQ_OK; ++step) {
          auto x = skewed(length, globalq_rank(w), step);
          std::vector<float> y(length);
          globalq_vector const v{x.data(), step % 2 == 0 ? x.data() : y.data(), length, GLOBALQ_FLOAT32};
          status = globalq_call_run(mean.call, &v, 1, step);
          EXPECT_EQ(step % 2 == 0 ? x : y, right[step]) << name << " " << static_cast<int>(how);
          if (step % 2 == 1) {
            EXPECT_EQ(x, skewed(length, globalq_rank(w), step)) << "the input was clipped";
          }
        }
        EXPECT_EQ(globalq_call_operator(mean.call, 0), before) << "the text contains values of levels";
        return status;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
    }
    if (name.starts_with("alq")) {
      EXPECT_LT(error_of(right[1], 1), 0.7 * error_of(right[0], 0)) << name;
    }
  }
}

TEST(C, each_layer_learns_levels_of_its_own_also_in_a_call_that_is_made_anew) {
  constexpr std::size_t length = 1024;
  std::uint64_t const shape[] = {32, 32};
  std::vector<float> right[2];
  auto const values_of = [](std::size_t layer, int rank, std::uint64_t step) {
    return layer == 0 ? skewed(length, rank, step) : values(length, rank + 7);
  };
  gq::transport::threads(2).run([&](auto& w) {
    auto const asked = gq::named::read_operator("alq:3,bucket=256");
    auto const op = gq::named::operator_of(asked);
    gq::adapt::model_layout model;
    model.add("a", {32, 32}).add("b", {32, 32});
    gq::adapt::layered_mean mean{
        w, model, {op, op}, gq::schedule::any{asked.schedule}, {.call = {.seed = 9}}};
    std::vector<float> x[2];
    for (std::size_t k = 0; k < 2; ++k) {
      gq::named::level_learning learning{asked.words, asked.learns, {.once = {0}, .every = 0}};
      x[k] = values_of(k, w.rank(), 7);
      levels_of one{mean, k};
      EXPECT_TRUE(learning.update(w, std::span<float const>{x[k]}, 0, one));
    }
    mean(gq::vector_group{}.add(x[0]).add(x[1]), 7);
    if (w.rank() == 0) right[0] = x[0], right[1] = x[1];
  });
  auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
    globalq_layer const layers[] = {{"a", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                    {"b", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                    {"none", shape, 2, GLOBALQ_FLOAT32, "float32"},
                                    {"clipped", shape, 2, GLOBALQ_FLOAT32, "terngrad:0.5,bucket=0"}};
    globalq_settings s = settings_of("alq:3,bucket=256");
    s.learn_at = "3";
    globalq_status status = GLOBALQ_OK;
    for (std::size_t count : {std::size_t{2}, std::size_t{4}}) {  // the other layers change nothing
      call_handle mean;
      status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, count, &mean.call);
      if (status != GLOBALQ_OK) return status;
      auto a = values_of(0, globalq_rank(w), 7), b = values_of(1, globalq_rank(w), 7), c = a, d = b;
      globalq_vector const v[] = {{a.data(), a.data(), length, GLOBALQ_FLOAT32},
                                  {b.data(), b.data(), length, GLOBALQ_FLOAT32},
                                  {c.data(), c.data(), length, GLOBALQ_FLOAT32},
                                  {d.data(), d.data(), length, GLOBALQ_FLOAT32}};
      if (count == 2) {
        status = globalq_call_run(mean.call, v, count, 7);
        EXPECT_EQ(a, right[0]);
        EXPECT_EQ(b, right[1]);
      } else {
        status = globalq_call_run(mean.call, v, count, 7);
        // uniform values have a standard deviation of 1 / sqrt(3)
        EXPECT_LE(*std::max_element(d.begin(), d.end()), 0.5F * 0.6F);
        EXPECT_GT(*std::max_element(d.begin(), d.end()), 0.1F);
      }
      if (status != GLOBALQ_OK) return status;
    }
    return status;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
}

TEST(C, nan_teaches_nothing_and_other_steps_of_learning_are_told) {
  for (way how : {way::threads, way::messages}) {
    auto const [ended, text] = run(how, 2, [&](globalq_workers* w) {
      call_handle mean, fixed;
      globalq_settings s = settings_of("alq:3,bucket=512");
      s.learn_at = "1";
      globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
      s.learn_at = "100";
      if (status == GLOBALQ_OK) status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &fixed.call);
      for (std::uint64_t step = 0; step < 4 && status == GLOBALQ_OK; ++step) {
        auto x = skewed(5000, globalq_rank(w), step), y = x;
        if (step == 1 && globalq_rank(w) == 1) x[3] = std::numeric_limits<float>::quiet_NaN();
        globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32},
            u{y.data(), y.data(), y.size(), GLOBALQ_FLOAT32};
        status = globalq_call_run(mean.call, &v, 1, step);
        if (status == GLOBALQ_OK) status = globalq_call_run(fixed.call, &u, 1, step);
        if (step == 0) {
          EXPECT_EQ(x, y);
        }
        if (step == 1) {
          EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[4999]));
        }
        if (step > 1) {
          EXPECT_LT(error_of(x, step), 0.7 * error_of(y, step)) << "learned at the next step";
        }
      }
      globalq_vector const two[] = {{}, {}};
      EXPECT_EQ(globalq_call_run(mean.call, two, 2, 9), GLOBALQ_CONFIGURATION);
      EXPECT_THAT(globalq_error(), HasSubstr("pass one per call, or create the call with layers"));
      return status;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
    for (char const* other : {"alq:4,bucket=512", "amq:3,bucket=512"}) {
      auto const [learned, told] = run(how, 2, [&](globalq_workers* w) {
        call_handle mean;
        globalq_settings s = settings_of(globalq_rank(w) == 0 ? "alq:3,bucket=512" : other);
        s.learn_at = "0";
        globalq_status const status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
        auto x = skewed(5000, globalq_rank(w), 0);
        globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
        EXPECT_EQ(status == GLOBALQ_OK ? globalq_call_run(mean.call, &v, 1, 0) : status, GLOBALQ_DISAGREEMENT)
            << globalq_error();
        return GLOBALQ_OK;
      });
      EXPECT_EQ(learned, GLOBALQ_OK) << other << ": " << told;
    }
    auto const [differs, why] = run(how, 2, [&](globalq_workers* w) {
      call_handle mean;
      globalq_settings s = settings_of("alq:3,bucket=512");
      s.learn_at = globalq_rank(w) == 0 ? "1" : "2";
      globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
      auto x = skewed(5000, globalq_rank(w), 1);
      globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
      if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, &v, 1, 1);
      EXPECT_EQ(x, skewed(5000, globalq_rank(w), 1));
      EXPECT_EQ(status, GLOBALQ_DISAGREEMENT);
      EXPECT_THAT(
          globalq_error(),
          HasSubstr(globalq_rank(w) == 0 ? "is in this step, one refused its arguments, or versions differ"
                                         : "the kind of call"));
      return status;
    });
    EXPECT_EQ(differs, GLOBALQ_DISAGREEMENT) << why;
  }
}

namespace {

struct chooser_handle {
  globalq_chooser* chooser = nullptr;
  ~chooser_handle() { globalq_chooser_destroy(chooser); }
};

std::string name_of(gq::adapt::bits_and_bucket const& c) {
  return "cgx:" + std::to_string(c.bits) + ",bucket=" + std::to_string(c.bucket);
}

}  // namespace

TEST(C, operators_of_layers_are_chosen_as_by_the_library) {
  constexpr std::size_t layers = 3, length = 4096;
  std::uint64_t const shape[] = {64, 64};
  float const scales[] = {1.0F, 0.01F, 0.3F};
  auto const gradient = [&](std::size_t layer, int rank, std::uint64_t step) {
    auto x = values(length, rank + 31 * static_cast<int>(step * layers + layer));
    for (float& v : x) v *= scales[layer];
    return x;
  };
  for (std::string const rule : {"lgreco", "kmeans"})
    for (int workers : {1, 3}) {
      std::vector<std::string> right;
      gq::transport::threads(workers).run([&](auto& w) {
        gq::adapt::model_layout model;
        model.add("a", {64, 64}).add("b", {64, 64}).add("c", {64, 64});
        gq::adapt::chooser chosen{model,
                                  gq::adapt::filter{},
                                  {.how = rule == "kmeans" ? gq::adapt::rule_of(gq::adapt::cgx_kmeans{})
                                                           : gq::adapt::rule_of(gq::adapt::lgreco{})}};
        for (std::uint64_t step = 0; step < 2; ++step) {
          std::vector<float> all;
          for (std::size_t l = 0; l < layers; ++l) {
            auto const x = gradient(l, w.rank(), step);
            all.insert(all.end(), x.begin(), x.end());
          }
          chosen.add(all);
        }
        EXPECT_TRUE(chosen.choose(w, 1));
        if (w.rank() != 0) return;
        for (std::size_t l = 0; l < layers; ++l) {
          gq::adapt::bits_and_bucket const c = chosen.choice(l);
          right.push_back(c == gq::adapt::bits_and_bucket{4, 128} ? "cgx:4" : name_of(c));
          // what is read back is the quantizer that was measured: of 8 bits it has another wire with the same codes
          auto const named = gq::named::operator_of(gq::named::read_operator(right.back()));
          if (c.bits != 8) {
            EXPECT_EQ(named.facts().name, chosen.operator_of(l).facts().name);
          }
        }
      });
      EXPECT_NE(right[0], right[1]);
      auto const [ended, text] = run(way::threads, workers, [&](globalq_workers* w) {
        globalq_layer model[] = {{"a", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                 {"b", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                 {"c", shape, 2, GLOBALQ_FLOAT32, nullptr}};
        globalq_chooser_settings s{sizeof s, rule.c_str(), nullptr, 0, nullptr};
        chooser_handle made;
        globalq_status status = globalq_chooser_create(w, &s, model, layers, &made.chooser);
        if (status != GLOBALQ_OK) return status;
        int changed = 7;
        EXPECT_EQ(globalq_chooser_choose(made.chooser, 0, &changed), GLOBALQ_OK) << globalq_error();
        EXPECT_EQ(changed, 0) << "nothing was added";
        EXPECT_STREQ(globalq_chooser_operator(made.chooser, 2), "cgx:4");
        for (std::uint64_t step = 0; step < 2; ++step)
          for (std::size_t l : {2U, 1U, 0U}) {  // as the groups of a backward pass
            auto x = gradient(l, globalq_rank(w), step);
            globalq_vector const v{x.data(), nullptr, length, GLOBALQ_FLOAT32};
            EXPECT_EQ(globalq_chooser_add(made.chooser, l, &v, 1), GLOBALQ_OK) << globalq_error();
            x[9] = std::numeric_limits<float>::infinity();
            EXPECT_EQ(globalq_chooser_add(made.chooser, l, &v, 1), GLOBALQ_OK) << "is left out";
          }
        status = globalq_chooser_choose(made.chooser, 1, &changed);
        EXPECT_EQ(changed, 1);
        for (std::size_t l = 0; l < layers; ++l) {
          EXPECT_EQ(globalq_chooser_operator(made.chooser, l), right[l]) << rule << " " << l;
          model[l].operator_name = right[l].c_str();
        }
        chooser_handle saved;
        EXPECT_EQ(globalq_chooser_create(w, &s, model, layers, &saved.chooser), GLOBALQ_OK);
        for (std::size_t l = 0; l < layers; ++l)
          EXPECT_EQ(globalq_chooser_operator(saved.chooser, l), right[l]) << "a choice that was saved";
        return status;
      });
      EXPECT_EQ(ended, GLOBALQ_OK) << text;
    }
}

TEST(C, candidates_are_variants_of_a_reference_or_named) {
  work body = [](globalq_workers* w) {
    std::uint64_t const shape = 64;
    globalq_layer layer{"a", &shape, 1, GLOBALQ_FLOAT32, nullptr};
    chooser_handle made;
    auto const told = [&](char const* reference, char const* candidates, char const* rule = nullptr,
                          double alpha = 0, std::size_t count = 1) -> std::string {
      globalq_chooser_settings const s{sizeof s, rule, reference, alpha, candidates};
      globalq_chooser_destroy(made.chooser);
      return globalq_chooser_create(w, &s, &layer, count, &made.chooser) == GLOBALQ_OK ? "" : globalq_error();
    };
    for (char const* reference : {"cgx:4", "cgx:8", "qsgd:3,q=inf,bucket=256", "nuqsgd:4,code=huffman",
                                  "qsdp", "cgx:4,bucket=0", "cgx:bits=5,bucket=64"}) {
      EXPECT_EQ(told(reference, nullptr), "") << reference;
      EXPECT_STREQ(globalq_chooser_operator(made.chooser, 0), reference);
    }
    EXPECT_EQ(told("mxfp6", "mxfp4  mxfp6 mxfp8"), "");
    layer.operator_name = "mxfp8";
    EXPECT_EQ(told("mxfp6", "mxfp4 mxfp6 mxfp8"), "");
    EXPECT_STREQ(globalq_chooser_operator(made.chooser, 0), "mxfp8");
    EXPECT_THAT(told("cgx:8", "cgx:2 cgx:8"),
                HasSubstr("the operator of layer a is \"mxfp8\", which is not a candidate"));
    layer.operator_name = nullptr;
    EXPECT_THAT(told("cgx:3", "cgx:2 cgx:8"), HasSubstr("the candidates are cgx:2 cgx:8"));
    EXPECT_THAT(told("mxfp4", nullptr), HasSubstr("no parameters bits and bucket"));
    for (char const* reference :
         {"top-k:0.01", "top-k:density=0.5", "top-k:0.01,bits=2", "power-sgd:4", "power-sgd:rank=200"}) {
      EXPECT_EQ(told(reference, nullptr), "") << reference;
      EXPECT_STREQ(globalq_chooser_operator(made.chooser, 0), reference);
    }
    EXPECT_EQ(told("top-k:0.1", "top-k:0.01 top-k:0.1 top-k:1"), "");
    EXPECT_THAT(told("top-k:0.1", "top-k:0.1 cgx:4"), HasSubstr("\"cgx:4\" is no compressor"));
    EXPECT_THAT(told("top-k:0.1", "top-k:0.1 power-sgd:4"), HasSubstr("of one method"));
    EXPECT_THAT(told("top-k:0.1", "top-k:0.1 top-k:0.1,bits=2"), HasSubstr("different bits"));
    EXPECT_THAT(told("top-k:0.1", nullptr, "kmeans"), HasSubstr("chooses bits"));
    EXPECT_THAT(told("cgx:4", "cgx:4 top-k:0.1"), HasSubstr("top-k"));
    EXPECT_THAT(told("alq:3", nullptr), HasSubstr("\"alq:2,bucket=1024\" cannot be measured"));
    EXPECT_THAT(told("cgx:4,scale=min-max", nullptr), HasSubstr("centers"));
    EXPECT_THAT(told("cgx:8", "cgx:8 float32"), HasSubstr("\"float32\" cannot be measured"));
    EXPECT_THAT(told("nonsense", nullptr), HasSubstr("is not an operator"));
    EXPECT_THAT(told(nullptr, nullptr, "best"), HasSubstr("there is no rule \"best\""));
    EXPECT_THAT(told(nullptr, nullptr, nullptr, -1), HasSubstr("alpha is -1"));
    EXPECT_THAT(told(nullptr, nullptr, nullptr, 0, 0), HasSubstr("there are no layers"));
    EXPECT_THAT(told("global-uniform:4,bucket=64", nullptr), HasSubstr("shares norms"));
    EXPECT_EQ(told(nullptr, nullptr), "");
    float x[64] = {};
    globalq_vector const v{x, nullptr, 64, GLOBALQ_FLOAT32}, shorter{x, nullptr, 63, GLOBALQ_FLOAT32},
        nowhere{nullptr, nullptr, 64, GLOBALQ_FLOAT32};
    EXPECT_EQ(globalq_chooser_add(made.chooser, 1, &v, 1), GLOBALQ_CONFIGURATION);
    EXPECT_EQ(globalq_chooser_add(made.chooser, 0, &shorter, 1), GLOBALQ_CONFIGURATION);
    EXPECT_THAT(globalq_error(), HasSubstr("63 values for layer 0, which has 64"));
    EXPECT_EQ(globalq_chooser_add(made.chooser, 0, &nowhere, 1), GLOBALQ_CONFIGURATION);
    EXPECT_STREQ(globalq_chooser_operator(made.chooser, 1), "");
    return GLOBALQ_OK;
  };
  EXPECT_EQ(globalq_threads_run(1, 60, run_work, &body), GLOBALQ_OK) << globalq_error();
  auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
    std::uint64_t const shape = 64;
    globalq_layer const layer{"a", &shape, 1, GLOBALQ_FLOAT32, nullptr};
    globalq_chooser_settings const s{sizeof s, nullptr, nullptr, 0, nullptr};
    chooser_handle made;
    int changed = 0;
    globalq_status const status = globalq_chooser_create(w, &s, &layer, 1, &made.chooser);
    return status != GLOBALQ_OK
               ? status
               : globalq_chooser_choose(made.chooser, static_cast<std::uint64_t>(globalq_rank(w)), &changed);
  });
  EXPECT_EQ(ended, GLOBALQ_DISAGREEMENT) << text;
  for (char const* what : {"name", "shape", "operator"}) {
    auto const [others, why] = run(way::threads, 2, [&](globalq_workers* w) {
      bool const other = globalq_rank(w) == 1;
      std::uint64_t const shape = other && *what == 's' ? 32 : 64;
      globalq_layer const layer{other && *what == 'n' ? "b" : "a", &shape, 1, GLOBALQ_FLOAT32,
                                other && *what == 'o' ? "cgx:8,bucket=64" : nullptr};
      globalq_chooser_settings const s{sizeof s, nullptr, nullptr, 0, nullptr};
      chooser_handle made;
      int changed = 0;
      globalq_status const status = globalq_chooser_create(w, &s, &layer, 1, &made.chooser);
      return status != GLOBALQ_OK ? status : globalq_chooser_choose(made.chooser, 0, &changed);
    });
    EXPECT_EQ(others, GLOBALQ_DISAGREEMENT) << what << ": " << why;
  }
}

TEST(C, half_precision_and_groups) {
  auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
    call_handle mean;
    globalq_settings const s = settings_of(nullptr);
    globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
    std::uint16_t half[] = {0x3c00, 0x4000}, brain[] = {0x3f80, 0x4000, 0x4040};  // 1, 2; 1, 2, 3
    globalq_vector const v[] = {{half, half, 2, GLOBALQ_FLOAT16}, {brain, brain, 3, GLOBALQ_BFLOAT16}};
    if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, v, 2, 0);
    EXPECT_EQ(half[1], 0x4000);
    EXPECT_EQ(brain[2], 0x4040);
    EXPECT_STREQ(globalq_call_operator(mean.call, 0), "float32");
    return status;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
}

TEST(C, workers_that_disagree_are_all_told) {
  for (way how : {way::threads, way::memory, way::messages}) {
    auto const [ended, text] = run(how, 3, [&](globalq_workers* w) {
      call_handle mean;
      globalq_settings s = settings_of("cgx:4");
      if (globalq_rank(w) == 2) s.seed = 10;
      globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
      auto x = values(100, 0);
      globalq_vector const v{x.data(), x.data(), 100, GLOBALQ_FLOAT32};
      if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, &v, 1, 0);
      EXPECT_EQ(status, GLOBALQ_DISAGREEMENT);
      EXPECT_EQ(x, values(100, 0));
      EXPECT_THAT(globalq_error(), HasSubstr("seed"));
      return status;
    });
    EXPECT_EQ(ended, GLOBALQ_DISAGREEMENT) << text;
  }
}

TEST(C, a_worker_that_fails_or_never_calls_is_an_error_of_the_others) {
  for (way how : {way::threads, way::memory, way::messages}) {
    auto const [ended, text] = run(
        how, 3,
        [&](globalq_workers* w) {
          if (globalq_rank(w) == 1) return GLOBALQ_OK;
          call_handle mean;
          globalq_settings const s = settings_of("cgx:4");
          globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
          auto x = values(100, 0);
          globalq_vector const v{x.data(), x.data(), 100, GLOBALQ_FLOAT32};
          if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, &v, 1, 0);
          EXPECT_EQ(status, GLOBALQ_TRANSPORT);
          return status;
        },
        2);
    EXPECT_EQ(ended, GLOBALQ_TRANSPORT);
    EXPECT_THAT(text, HasSubstr("rank "));
    if (how == way::messages) {
      EXPECT_THAT(text, HasSubstr("failed with code 17: nothing came"));
    }
  }
  work body = [](globalq_workers* w) { return globalq_rank(w) == 1 ? GLOBALQ_FRAME : GLOBALQ_OK; };
  EXPECT_EQ(globalq_threads_run(2, 60, run_work, &body), GLOBALQ_FRAME);
  EXPECT_THAT(globalq_error(), HasSubstr("returned 5"));
}

TEST(C, nan_is_counted_or_an_error) {
  for (int fails : {0, 1}) {
    auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
      call_handle mean;
      globalq_settings s = settings_of("cgx:4");
      s.fail_on_non_finite = fails;
      s.measure_errors = 1;
      globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call);
      auto x = values(100, 0);
      globalq_vector const v{x.data(), x.data(), 100, GLOBALQ_FLOAT32};
      status = globalq_call_run(mean.call, &v, 1, 0);
      EXPECT_EQ(status, GLOBALQ_OK);
      globalq_report r{};
      r.size = sizeof r;
      EXPECT_EQ(globalq_call_report(mean.call, &r), GLOBALQ_OK);
      EXPECT_EQ(r.calls, 1U);
      EXPECT_GT(r.normalized_error, 0);
      EXPECT_LT(r.normalized_error, 0.1);
      if (globalq_rank(w) == 1) x[3] = std::numeric_limits<float>::quiet_NaN();
      status = globalq_call_run(mean.call, &v, 1, 1);
      r.size = offsetof(globalq_report, uncompressed);  // as an older caller knows it
      r.uncompressed = 99;
      EXPECT_EQ(globalq_call_report(mean.call, &r), GLOBALQ_OK);
      EXPECT_EQ(r.non_finite, 1U);
      EXPECT_EQ(r.non_finite_rank, 1);
      EXPECT_EQ(r.uncompressed, 99U);
      return status;
    });
    EXPECT_EQ(ended, fails != 0 ? GLOBALQ_NON_FINITE : GLOBALQ_OK) << text;
  }
}

TEST(C, what_cannot_work_is_refused_with_a_sentence) {
  work body = [](globalq_workers* w) {
    call_handle made;
    auto const refusal = [&](globalq_status status) -> std::string {
      EXPECT_EQ(status, GLOBALQ_CONFIGURATION);
      EXPECT_EQ(made.call, nullptr);
      return globalq_error();
    };
    auto const create = [&](globalq_settings const& s, globalq_kind kind = GLOBALQ_MEAN) {
      return refusal(globalq_call_create(w, kind, &s, nullptr, 0, &made.call));
    };
    globalq_settings s = settings_of("nonsense");
    EXPECT_THAT(create(s), HasSubstr("\"nonsense\" is not an operator"));
    s.operator_name = "terngrad:2.5";
    EXPECT_THAT(create(s, GLOBALQ_ALL_GATHER), HasSubstr("which only means support"));
    s.operator_name = "alq:3";
    s.learn_at = "soon";
    EXPECT_THAT(create(s), HasSubstr("learn_at: \"soon\""));
    s = settings_of("cgx:4");
    s.schedule = "nowhere";
    EXPECT_THAT(create(s), HasSubstr("\"nowhere\" is unknown"));
    EXPECT_THAT(create(s, GLOBALQ_ALL_GATHER), HasSubstr("leave both NULL"));
    s = settings_of("cgx:4");
    s.warm_up = 3;
    EXPECT_THAT(create(s), HasSubstr("without layers"));
    s = settings_of("cgx:4");
    EXPECT_THAT(create(s, static_cast<globalq_kind>(7)), HasSubstr("there is no kind 7"));
    s.size = 0;
    EXPECT_THAT(create(s), HasSubstr("set it to sizeof the struct"));
    s = settings_of("cgx:4");
    EXPECT_THAT(refusal(globalq_call_create(nullptr, GLOBALQ_MEAN, &s, nullptr, 0, &made.call)),
                HasSubstr("workers is NULL"));
    EXPECT_THAT(refusal(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 2, &made.call)),
                HasSubstr("layers is NULL"));
    EXPECT_THAT(refusal(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, nullptr)),
                HasSubstr("created is NULL"));
    EXPECT_THAT(refusal(globalq_call_run(nullptr, nullptr, 0, 0)), HasSubstr("call is NULL"));
    call_handle mean;
    EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
    float one = 1;
    globalq_vector const odd{&one, &one, 1, static_cast<globalq_type>(9)};
    EXPECT_THAT(refusal(globalq_call_run(mean.call, &odd, 1, 0)), HasSubstr("there is no type 9"));
    std::vector<float> x(100);
    auto const at = [&](std::size_t from) { return x.data() + from; };
    globalq_vector const nowhere{nullptr, x.data(), 4, GLOBALQ_FLOAT32};
    EXPECT_THAT(refusal(globalq_call_run(mean.call, &nowhere, 1, 0)), HasSubstr("4 values at NULL"));
    globalq_vector const apart[] = {{at(0), at(0), 40, GLOBALQ_FLOAT32},
                                    {at(40), at(40), 60, GLOBALQ_FLOAT32}},
                         twice[] = {apart[0], apart[0]},
                         shared_input[] = {{at(0), at(40), 20, GLOBALQ_FLOAT32},
                                           {at(0), at(60), 20, GLOBALQ_FLOAT32}},
                         shifted{at(0), at(10), 20, GLOBALQ_FLOAT32},
                         across[] = {{at(0), at(50), 50, GLOBALQ_FLOAT32},
                                     {at(20), at(20), 10, GLOBALQ_FLOAT32}};
    EXPECT_EQ(globalq_call_run(mean.call, apart, 2, 1), GLOBALQ_OK);
    EXPECT_EQ(globalq_call_run(mean.call, shared_input, 2, 3), GLOBALQ_OK);
    for (auto const& overlapping :
         std::initializer_list<std::span<globalq_vector const>>{twice, {&shifted, 1}, across})
      EXPECT_THAT(refusal(globalq_call_run(mean.call, overlapping.data(), overlapping.size(), 5)),
                  HasSubstr("overlap"));
    std::uint64_t first = 0, count = 0;
    EXPECT_THAT(refusal(globalq_call_shard(mean.call, 10, 0, &first, &count)), HasSubstr("no shards"));
    globalq_plan plan{};
    plan.size = sizeof plan;
    EXPECT_EQ(globalq_call_plan(mean.call, 1000, GLOBALQ_FLOAT32, &plan), GLOBALQ_OK);
    EXPECT_GT(plan.bits_per_value, 4);
    EXPECT_EQ(plan.levels, 7U);
    return GLOBALQ_OK;
  };
  EXPECT_EQ(globalq_threads_run(1, 60, run_work, &body), GLOBALQ_OK) << globalq_error();
  globalq_plan plan{};
  plan.size = sizeof plan;
  EXPECT_EQ(globalq_plan_for("cgx:4", nullptr, 8, 1U << 20, GLOBALQ_FLOAT32, &plan), GLOBALQ_OK);
  auto const right = gq::plan_for(gq::named::operator_of(gq::named::read_operator("cgx:4")),
                                  gq::schedule::any{"sra"}, 8, std::uint64_t{1} << 20);
  EXPECT_EQ(plan.bytes_sent, right.bytes_sent);
  EXPECT_EQ(plan.theta, right.theta);
  EXPECT_EQ(globalq_plan_for("cgx:4", nullptr, 0, 1, GLOBALQ_FLOAT32, &plan), GLOBALQ_CONFIGURATION);
  EXPECT_EQ(globalq_threads_run(0, 60, run_work, &body), GLOBALQ_CONFIGURATION);
  EXPECT_EQ(globalq_threads_run(1, -1, run_work, &body), GLOBALQ_CONFIGURATION);
  EXPECT_THAT(globalq_error(), HasSubstr("deadline"));
  globalq_workers* w = nullptr;
  globalq_messages m{};
  EXPECT_EQ(globalq_messages_create(&m, 0, 1, &w), GLOBALQ_CONFIGURATION);
  m.size = sizeof m;
  EXPECT_EQ(globalq_messages_create(&m, 0, 1, &w), GLOBALQ_CONFIGURATION);
  EXPECT_THAT(globalq_error(), HasSubstr("a function is NULL"));
}

TEST(C, advice_is_the_same_on_all_workers_and_about_networks_that_are_not_here) {
  globalq_advice_settings s{};
  s.size = sizeof s;
  s.operators = "cgx:4 global-uniform:8";
  std::uint64_t const shape[] = {100, 100};
  globalq_layer const layers[] = {{"a", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                  {"b", shape, 1, GLOBALQ_FLOAT32, nullptr}};
  std::array<std::string, 2> texts;
  auto const [ended, text] = run(way::messages, 2, [&](globalq_workers* w) {
    int const rank = globalq_rank(w);
    globalq_advice a{};
    a.size = sizeof a;
    globalq_status const status =
        globalq_advise(w, &s, rank == 0 ? layers : nullptr, rank == 0 ? 2 : 0, nullptr, &a);
    if (status != GLOBALQ_OK) return status;
    texts[static_cast<std::size_t>(rank)] = a.text;
    EXPECT_THAT(a.json, HasSubstr("\"values\": 10100, \"layers\": 2"));
    EXPECT_EQ(globalq_advise(w, &s, nullptr, 0, nullptr, &a), GLOBALQ_CONFIGURATION);
    EXPECT_THAT(globalq_error(), HasSubstr("there are no layers"));
    return GLOBALQ_OK;
  });
  EXPECT_EQ(ended, GLOBALQ_OK) << text;
  EXPECT_EQ(texts[0], texts[1]);

  s.count = 16;
  s.bandwidth = 1.25e8;
  std::vector<double> const gradient(100'000, 0.5);  // exact, in any type
  globalq_vector const v{gradient.data(), nullptr, gradient.size(), GLOBALQ_FLOAT64};
  globalq_advice a{};
  a.size = sizeof a;
  ASSERT_EQ(globalq_advise(nullptr, &s, nullptr, 0, &v, &a), GLOBALQ_OK) << globalq_error();
  EXPECT_STREQ(a.operator_name, "cgx:4");
  EXPECT_EQ(a.error, 0);
  EXPECT_GT(a.float32_seconds, 3 * a.seconds);
  EXPECT_THAT(a.text, HasSubstr(std::string("Use cgx:4 on schedule ") + a.schedule));
}

TEST(C, advice_refuses_wrong_arguments) {
  globalq_advice_settings s{};
  globalq_advice a{};
  std::uint64_t const shape[] = {100, std::uint64_t{1} << 62};
  globalq_layer layer{"a", shape, 1, GLOBALQ_FLOAT32, nullptr};
  auto const refused = [&](globalq_layer const* layers, std::size_t count,
                           globalq_vector const* v = nullptr) {
    EXPECT_EQ(globalq_advise(nullptr, &s, layers, count, v, &a), GLOBALQ_CONFIGURATION);
    return std::string(globalq_error());
  };
  EXPECT_THAT(refused(&layer, 1), HasSubstr("settings->size is 0"));
  s.size = sizeof s;
  EXPECT_THAT(refused(&layer, 1), HasSubstr("advice->size is 0"));
  a.size = sizeof a;
  EXPECT_THAT(refused(&layer, 1), HasSubstr("0 threads as workers"));
  s.count = 4;
  s.bandwidth = -1;
  EXPECT_THAT(refused(&layer, 1), HasSubstr("a rate is -1"));
  s.bandwidth = 1e9;
  EXPECT_THAT(refused(nullptr, 1), HasSubstr("layers is NULL"));
  EXPECT_THAT(refused(nullptr, 0), HasSubstr("there are no layers"));
  globalq_vector const nowhere{nullptr, nullptr, 5, GLOBALQ_FLOAT32};
  EXPECT_THAT(refused(nullptr, 0, &nowhere), HasSubstr("5 values of a gradient at NULL"));
  s.operators = "cgx:99";
  EXPECT_THAT(refused(&layer, 1), HasSubstr("cgx:99"));
  s.operators = nullptr;
  layer.dimensions = 2;  // an overflow
  EXPECT_THAT(refused(&layer, 1), HasSubstr("use 1 to 2^40"));
  layer.name = nullptr;
  EXPECT_THAT(refused(&layer, 1), HasSubstr("name of a layer is NULL"));
  EXPECT_EQ(globalq_advise(nullptr, nullptr, &layer, 1, nullptr, &a), GLOBALQ_CONFIGURATION);
  EXPECT_EQ(globalq_advise(nullptr, &s, &layer, 1, nullptr, nullptr), GLOBALQ_CONFIGURATION);
}

TEST(C, chunks_change_no_bit_and_are_not_for_shards) {
  std::vector<float> results[2];
  for (std::uint64_t const chunk : {0, 512}) {
    auto const [ended, text] = run(way::threads, 2, [&](globalq_workers* w) {
      globalq_settings s = settings_of("cgx:4");
      s.chunk_values = chunk;
      call_handle mean;
      if (auto const made = globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call)) return made;
      auto x = values(5003, globalq_rank(w));
      globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
      if (auto const status = globalq_call_run(mean.call, &v, 1, 0)) return status;
      if (globalq_rank(w) == 0) results[chunk != 0] = x;
      if (chunk != 0) {
        call_handle refused;
        EXPECT_EQ(globalq_call_create(w, GLOBALQ_ALL_GATHER, &s, nullptr, 0, &refused.call),
                  GLOBALQ_CONFIGURATION);
        EXPECT_THAT(globalq_error(), HasSubstr("set chunk_values to 0"));
      }
      return GLOBALQ_OK;
    });
    EXPECT_EQ(ended, GLOBALQ_OK) << text;
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(C, a_killed_process_is_an_error_of_the_other) {
  std::string const name = "c-killed-" + std::to_string(::getpid());
  pid_t const child = ::fork();
  globalq_workers* w = nullptr;
  if (child == 0) {
    globalq_named_memory_create(name.c_str(), 1, 2, 60, &w);
    ::raise(SIGKILL);
  }
  ASSERT_EQ(globalq_named_memory_create(name.c_str(), 0, 2, 60, &w), GLOBALQ_OK) << globalq_error();
  int status = 0;
  ::waitpid(child, &status, 0);
  call_handle mean;
  globalq_settings const s = settings_of("cgx:4");
  ASSERT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
  auto x = values(100000, 0);
  globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
  EXPECT_EQ(globalq_call_run(mean.call, &v, 1, 0), GLOBALQ_TRANSPORT);
  EXPECT_THAT(globalq_error(), HasSubstr("rank 1 died"));
  globalq_workers_destroy(w);  // before its call
}

/// A mean of one worker, over memory with a new name.
std::vector<float> mean_of_one(std::string const& name) {
  globalq_workers* w = nullptr;
  call_handle mean;
  globalq_settings const s = settings_of("cgx:4");
  auto x = values(1 << 20, 0);
  globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
  bool const good = globalq_named_memory_create(name.c_str(), 0, 1, 60, &w) == GLOBALQ_OK &&
                    globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call) == GLOBALQ_OK &&
                    globalq_call_run(mean.call, &v, 1, 0) == GLOBALQ_OK;
  globalq_workers_destroy(w);
  return good ? x : std::vector<float>();
}

TEST(C, a_forked_process_computes_the_same_bits_with_new_handles) {
  std::string const name = "c-forked-" + std::to_string(::getpid());
  auto const before = mean_of_one(name);  // the threads of the kernels exist now
  ASSERT_FALSE(before.empty()) << globalq_error();
  pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(mean_of_one(name) == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

#if defined(__GLIBC__)
TEST(C, a_body_that_ends_its_thread_is_an_error_of_the_run) {
  work body = [](globalq_workers* w) {
    if (globalq_rank(w) == 1) ::pthread_exit(nullptr);
    return GLOBALQ_OK;
  };
  EXPECT_EQ(globalq_threads_run(3, 60, run_work, &body), GLOBALQ_TRANSPORT);
  EXPECT_THAT(globalq_error(), HasSubstr("rank 1 of 3: its thread was ended by pthread_exit"));
}

// As functions in Python do when the interpreter has ended.
TEST(C, a_function_of_messages_may_end_its_thread) {
  static int abandoned = 0;
  globalq_messages m{};
  m.size = sizeof m;
  m.send = [](void*, int, void const*, std::size_t, std::uint64_t*) { return 0; };
  m.receive = [](void*, int, void*, std::size_t, std::uint64_t*) { return 0; };
  m.wait = [](void*, std::uint64_t) -> int { ::pthread_exit(nullptr); };
  m.abandon = [](void*, std::uint64_t) { ++abandoned; };
  globalq_workers* w = nullptr;
  ASSERT_EQ(globalq_messages_create(&m, 0, 2, &w), GLOBALQ_OK) << globalq_error();
  call_handle mean;
  globalq_settings const s = settings_of("cgx:4");
  ASSERT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
  auto x = values(1000, 0);
  globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
  bool returned = false;
  std::thread([&] {
    globalq_call_run(mean.call, &v, 1, 0);
    returned = true;
  }).join();
  EXPECT_FALSE(returned);
  EXPECT_EQ(globalq_call_run(mean.call, &v, 1, 1), GLOBALQ_TRANSPORT);
  EXPECT_THAT(globalq_error(), HasSubstr("the workers are unusable"));
  EXPECT_EQ(abandoned, 0);
  globalq_workers_destroy(w);
}
#endif

TEST(C, calls_that_outlive_their_threads_are_refused) {
  static globalq_call* kept = nullptr;
  work body = [](globalq_workers* w) {
    globalq_settings const s = settings_of("cgx:4");
    return globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &kept);
  };
  ASSERT_EQ(globalq_threads_run(1, 60, run_work, &body), GLOBALQ_OK);
  auto x = values(100, 0);
  globalq_vector const v{x.data(), x.data(), x.size(), GLOBALQ_FLOAT32};
  EXPECT_EQ(globalq_call_run(kept, &v, 1, 0), GLOBALQ_CONFIGURATION);
  EXPECT_THAT(globalq_error(), HasSubstr("have ended"));
  globalq_call_destroy(kept);
}
