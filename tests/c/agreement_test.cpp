// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief libglobalq.so: settings that differ are an error of all workers in the first call; floating-point settings of a
/// caller change no bit; sizes that no vector has are refused at once.

#include "workers.hpp"

#include "tests/support/caller_mode.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using support::caller_mode;
using support::mode;

using testing::HasSubstr;
using namespace support_c;

globalq_status run(int workers, work body) { return globalq_threads_run(workers, 60, run_work, &body); }

// ---- settings

struct difference {
  char const* name;
  bool layers;
  char const* op;
  std::function<void(globalq_settings&)> change;
  std::string told;           ///< by the error of all workers
  std::uint64_t warm_up = 0;  ///< of all workers
};

constexpr std::uint64_t shape[] = {30, 100};
constexpr std::size_t values_of_layer = 3000;

/// The status of the first call, with one worker whose settings differ.
void expect_difference(difference const& d, std::uint64_t step, int culprit) {
  SCOPED_TRACE(std::string(d.name) + ", step " + std::to_string(step) + ", culprit " +
               std::to_string(culprit));
  std::string texts[3];
  EXPECT_EQ(run(3,
                [&](globalq_workers* w) {
                  globalq_settings s = settings_of(d.op);
                  s.warm_up = d.warm_up;
                  if (globalq_rank(w) == culprit) d.change(s);
                  globalq_layer const layers[] = {{"a", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                                  {"b", shape, 2, GLOBALQ_FLOAT32, "float32"}};
                  call_handle mean;
                  globalq_status status =
                      globalq_call_create(w, GLOBALQ_MEAN, &s, layers, d.layers ? 2 : 0, &mean.call);
                  EXPECT_EQ(status, GLOBALQ_OK) << globalq_error();
                  auto a = values(values_of_layer, globalq_rank(w)), b = a;
                  globalq_vector const v[] = {{a.data(), a.data(), a.size(), GLOBALQ_FLOAT32},
                                              {b.data(), b.data(), b.size(), GLOBALQ_FLOAT32}};
                  if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, v, d.layers ? 2 : 1, step);
                  EXPECT_EQ(status, GLOBALQ_DISAGREEMENT);
                  texts[globalq_rank(w)] = globalq_error();
                  EXPECT_EQ(a, values(values_of_layer, globalq_rank(w))) << "nothing is changed";
                  return status;
                }),
            GLOBALQ_DISAGREEMENT);
  for (std::string const& text : texts) {
    EXPECT_THAT(text, HasSubstr(d.told));
    EXPECT_EQ(text, texts[0]);
  }
}

TEST(Agreement, of_every_setting_is_checked_in_the_first_call) {
  std::vector<difference> const all = {
      {"chunk size", false, "qsgd:4", [](auto& s) { s.chunk_values = 1024; }, "in the chunk size (rank 0: "},
      {"chunk size of layers", true, "cgx:4", [](auto& s) { s.chunk_values = 1024; },
       "in the chunk size (rank 0: "},
      {"clipping", false, "terngrad:2.5", [](auto& s) { s.operator_name = "terngrad:3"; }, "clip:2.5"},
      {"no clipping", false, "terngrad:2.5", [](auto& s) { s.operator_name = "terngrad"; }, "clip:2.5"},
      {"clipping of a layer", true, "terngrad:2.5", [](auto& s) { s.operator_name = "terngrad:3"; },
       "in the operator of layer 0, \"a\": "},
      {"learning", false, "alq:3", [](auto& s) { s.operator_name = "alq:3,normalized=yes"; },
       "learned levels normalized"},
      {"steps of learning", false, "alq:3", [](auto& s) { s.learn_at = "50,every 700"; },
       "at steps 50,every 700"},
      {"steps of learning of a layer", true, "amq:3", [](auto& s) { s.learn_at = "50,every 700"; },
       "at steps 50,every 700"},
      {"layers of the model", true, "cgx:4", [](auto& s) { s.model_layers = 5; }, "layers from 0 of 5"},
      {"first layer", true, "cgx:4",
       [](auto& s) {
         s.first_layer = 3;
         s.model_layers = 5;
       },
       "layers from 3 of 5"},
      {"warm-up", true, "cgx:4", [](auto& s) { s.warm_up = 20; }, "warm_up 20"},
      {"density", true, "top-k:0.01", [](auto& s) { s.operator_name = "top-k:0.02"; }, "the operator"},
      {"bits of values", true, "top-k:0.01", [](auto& s) { s.operator_name = "top-k:0.01,bits=2"; },
       "the operator"},
      {"chunk size of PowerSGD", true, "power-sgd:2", [](auto& s) { s.chunk_values = 1024; },
       "in the chunk size (rank 0: "},
  };
  for (difference const& d : all)
    for (std::uint64_t const step : {0U, 3U})
      for (int const culprit : {0, 2}) expect_difference(d, step, culprit);
  // what is compressed after the warm-up is compared in the warm-up
  for (char const* op : {"top-k:0.02", "cgx:8", "terngrad:3"})
    expect_difference({"after the warm-up", true, "top-k:0.01", [op](auto& s) { s.operator_name = op; },
                       "the operator", 10},
                      3, 2);
}

TEST(Agreement, of_settings_without_an_effect_is_not_checked) {
  struct equal {
    char const* op;
    std::function<void(globalq_settings&)> change;
  };
  std::vector<equal> const all = {
      {"qsgd:4", [](auto& s) { s.chunk_values = std::uint64_t{1} << 40; }},
      {"qsgd:4", [](auto& s) { s.measure_errors = 1; }},
      {"qsgd:4", [](auto& s) { s.learn_at = "5"; }},
      {"alq:3", [](auto& s) { s.learn_at = "2000,100,every 10000"; }},
      {"cgx:4", [](auto& s) { s.model_layers = 2; }},
      {"top-k:0.01", [](auto& s) { s.operator_name = "top-k:density=0.010"; }},
      {"terngrad:2.5", [](auto& s) { s.operator_name = "terngrad:clip=2.50"; }},
  };
  for (equal const& e : all)
    EXPECT_EQ(run(2,
                  [&](globalq_workers* w) {
                    globalq_settings s = settings_of(e.op);
                    if (globalq_rank(w) == 1) e.change(s);
                    globalq_layer const layer{"a", shape, 2, GLOBALQ_FLOAT32, nullptr},
                        layers[] = {layer, {"b", shape, 2, GLOBALQ_FLOAT32, "float32"}};
                    call_handle mean;
                    globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, 2, &mean.call);
                    auto a = values(values_of_layer, globalq_rank(w)), b = a;
                    globalq_vector const v[] = {{a.data(), a.data(), a.size(), GLOBALQ_FLOAT32},
                                                {b.data(), b.data(), b.size(), GLOBALQ_FLOAT32}};
                    if (status == GLOBALQ_OK) status = globalq_call_run(mean.call, v, 2, 0);
                    EXPECT_EQ(status, GLOBALQ_OK) << e.op << ": " << globalq_error();
                    return status;
                  }),
              GLOBALQ_OK);
}

// ---- floating-point settings

/// The means of several steps, with a mode on worker 1.
std::vector<std::vector<float>> means_of(char const* op, mode of_one) {
  std::vector<std::vector<float>> all[2];
  EXPECT_EQ(run(2,
                [&](globalq_workers* w) {
                  int const rank = globalq_rank(w);
                  globalq_settings s = settings_of(op);
                  s.learn_at = "0,2";
                  globalq_layer const layers[] = {{"a", shape, 2, GLOBALQ_FLOAT32, nullptr},
                                                  {"b", shape, 2, GLOBALQ_FLOAT32, nullptr}};
                  auto a = values(values_of_layer, rank), b = values(values_of_layer, rank + 2);
                  for (float& v : b) v *= 0x1p-130F;  // subnormal
                  auto const first = a, second = b;
                  caller_mode const here(rank == 1 ? of_one : mode::standard);
                  call_handle mean;
                  globalq_status status = globalq_call_create(w, GLOBALQ_MEAN, &s, layers, 2, &mean.call);
                  for (std::uint64_t step = 0; step < 4 && status == GLOBALQ_OK; ++step) {
                    a = first;
                    b = second;
                    globalq_vector const v[] = {{a.data(), a.data(), a.size(), GLOBALQ_FLOAT32},
                                                {b.data(), b.data(), b.size(), GLOBALQ_FLOAT32}};
                    status = globalq_call_run(mean.call, v, 2, step);
                    all[rank].push_back(a);
                    all[rank].push_back(b);
                  }
                  EXPECT_EQ(status, GLOBALQ_OK) << op << ": " << globalq_error();
                  return status;
                }),
            GLOBALQ_OK);
  EXPECT_EQ(all[0].size(), all[1].size());
  for (std::size_t k = 0; k < all[0].size() && k < all[1].size(); ++k)
    EXPECT_EQ(0, std::memcmp(all[0][k].data(), all[1][k].data(), sizeof(float) * values_of_layer)) << op;
  return all[0];
}

TEST(FloatModes, of_a_caller_change_no_bit_of_any_operator_and_compressor) {
  std::vector<std::string> names = {
      "terngrad:2.7",         "qsdp-grid:1.1",       "alq:3,levels=0:0.1:0.3:1", "alq:3,normalized=yes",
      "amq:3,multiplier=0.3", "cgx:3,scale=min-max", "global-uniform:8,q=3,p=3", "top-k:0.0123",
      "power-sgd:2"};
  for (std::size_t k = 0;; ++k) {
    globalq_operator op{};
    op.size = sizeof op;
    if (globalq_operator_at(k, &op) != GLOBALQ_OK) break;
    names.emplace_back(op.name);
  }
  for (std::string const& name : names) {
    auto const right = means_of(name.c_str(), mode::standard);
    for (mode const m : {mode::upward, mode::flushing}) {
      auto const found = means_of(name.c_str(), m);
      ASSERT_EQ(found.size(), right.size()) << name;
      for (std::size_t k = 0; k < right.size(); ++k)
        EXPECT_EQ(0, std::memcmp(found[k].data(), right[k].data(), sizeof(float) * values_of_layer))
            << name << ", mode " << static_cast<int>(m) << ", step " << k / 2;
    }
  }
}

// ---- sizes

TEST(Sizes, whose_sum_exceeds_64_bits_are_refused_as_others) {
  EXPECT_EQ(run(2,
                [](globalq_workers* w) {
                  globalq_settings const s = settings_of("cgx:4");
                  call_handle mean;
                  EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, nullptr, 0, &mean.call), GLOBALQ_OK);
                  float x[4] = {};
                  std::uint64_t const half = std::uint64_t{1} << 63;
                  globalq_vector const v[] = {{x, x, half, GLOBALQ_FLOAT32},
                                              {x, x, half, GLOBALQ_FLOAT32},
                                              {x, x, 4, GLOBALQ_FLOAT32}};
                  globalq_status const status = globalq_call_run(mean.call, v, 3, 0);
                  EXPECT_EQ(status, GLOBALQ_CONFIGURATION);
                  EXPECT_THAT(globalq_error(), HasSubstr("values are more than 2^48"));
                  globalq_vector const fine{x, x, 4, GLOBALQ_FLOAT32};
                  return globalq_call_run(mean.call, &fine, 1, 1);
                }),
            GLOBALQ_OK);
}

TEST(Sizes, that_no_vector_has_are_refused_at_once) {
  EXPECT_EQ(run(1,
                [](globalq_workers* w) {
                  for (char const* op : {"top-k:0.01", "power-sgd:4"})
                    for (std::uint64_t const rows : {std::uint64_t{1} << 24, std::uint64_t{1} << 20}) {
                      globalq_settings const s = settings_of(op);
                      std::uint64_t const huge[] = {rows, std::uint64_t{1} << 24};
                      globalq_layer const layer{"a", huge, 2, GLOBALQ_FLOAT32, nullptr};
                      call_handle mean;
                      auto const start = std::chrono::steady_clock::now();
                      EXPECT_EQ(globalq_call_create(w, GLOBALQ_MEAN, &s, &layer, 1, &mean.call),
                                GLOBALQ_CONFIGURATION)
                          << op;
                      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{1}) << op;
                      EXPECT_THAT(globalq_error(), HasSubstr("and the limit is "));
                    }
                  return GLOBALQ_OK;
                }),
            GLOBALQ_OK);
}

}  // namespace
