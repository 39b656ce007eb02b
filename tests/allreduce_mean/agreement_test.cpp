// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief One worker calls with another parameter, or with arguments that no call can have: all workers get an error that names
///        both values, before anything is changed, for every parameter of every call.

#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/one_bit.hpp>
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/send_first.hpp>
#include <globalq/baseline/sign_sgd.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/model/bypass.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/policies.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/learn/agree.hpp>
#include <globalq/train/learn/optimal.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>

namespace gq = globalq;
namespace cp = globalq::baseline;
using testing::HasSubstr;
using testing::StartsWith;

namespace agreement_test {

using endpoint = gq::transport::threads::endpoint;
using vector = std::vector<float>;
gq::rounding::stochastic const dice;

/// Rounding of one's own with a parameter: up a little less often than it should.
struct tilted {
  static constexpr bool word_per_coordinate = true, unbiased = false;
  static constexpr char const* name = "tilted";
  std::uint32_t by = 0;
  std::uint64_t parameters() const { return by; }
  bool shifts() const { return false; }
  std::uint32_t word(std::uint32_t drawn) const { return drawn; }
  bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) const {
    return std::uint64_t{word} + by < threshold;
  }
  double shift(std::uint32_t) const { return 0; }
};

/// A wire of one's own: what the concept asks for, a name and the bits of a code.
struct byte_wire {
  static constexpr char const* name = "bytes";
  using code_type = std::int8_t;
  int bits() const { return 8; }
  std::uint32_t largest_code(bool) const { return 127; }
  std::uint64_t bytes(std::uint64_t n) const { return n; }
  std::uint8_t identifier() const { return 99; }
  void pack(code_type const* codes, int n, std::byte* out, bool) const {
    for (int i = 0; i < n; ++i) out[i] = static_cast<std::byte>(codes[i]);
  }
  bool unpack(std::byte const* in, int n, code_type* codes, bool) const {
    for (int i = 0; i < n; ++i) codes[i] = static_cast<code_type>(in[i]);
    return false;
  }
};

template <class Wire, class Norm = gq::norm::linf>
gq::any_quantizer even(std::uint32_t size, Wire wire, Norm norm = {}) {
  return gq::quantizer{norm, gq::levels::uniform{size}, dice, wire};
}
template <class Levels>
gq::any_quantizer with_levels(Levels const& levels) {
  return gq::quantizer{gq::norm::local<2>{.bucket = 100}, levels, dice, gq::wire::packed<3>{}};
}
gq::any_quantizer with_tilt(std::uint32_t by) {
  return gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, tilted{by}, gq::wire::int8{}};
}

/// What a worker calls with.
struct arguments {
  gq::any_quantizer op = even(7, gq::wire::int8{});
  gq::any_quantizer second = gq::uncompressed{};  ///< of the second layer
  std::string schedule = "sra";
  bool one_node = true;  ///< or one a worker
  gq::options settings = {.seed = 3};
  std::uint64_t step = 9;
  std::size_t length = 600, cut = 300;  ///< the second vector of a group begins at the cut
  gq::dtype type = gq::dtype::float32;  ///< of the second vector of a group
  std::string layer = "a";
  std::vector<std::uint64_t> shape = {300};
  gq::adapt::layered_options of = {};
};

constexpr std::size_t most = 601;

/// The error of a call, or nothing; a call that changes its vectors as well is told by another text.
template <class F>
std::string outcome_of(F const& call) {
  std::string text;
  try {
    call();
  } catch (gq::disagreement_error const& e) {
    text = std::string("disagreement: ") + e.what();
  } catch (gq::configuration_error const& e) {
    text = std::string("configuration: ") + e.what();
  } catch (std::exception const& e) {
    text = std::string("other: ") + e.what();
  }
  return text;
}

/// A call of a kind, on vectors of ones.
using kind = std::function<void(endpoint&, arguments const&, vector& y, std::vector<double>& z)>;

gq::vector_group group_of(arguments const& a, vector& y, std::vector<double>& z) {
  gq::vector_group group;
  group.add(std::span(y).first(a.cut));
  if (a.type == gq::dtype::float64)
    group.add(std::span(z).first(a.length - a.cut));
  else
    group.add(std::span(y).subspan(a.cut, a.length - a.cut));
  return group;
}

void allreduce(endpoint& workers, arguments const& a, vector& y, std::vector<double>&) {
  gq::allreduce_mean mean{workers, a.op, gq::schedule::any{a.schedule}, a.settings};
  mean(std::span(y).first(a.length), a.step);
}
void started(endpoint& workers, arguments const& a, vector& y, std::vector<double>&) {
  gq::allreduce_mean mean{workers, a.op, gq::schedule::any{a.schedule}, a.settings};
  std::span x = std::span(y).first(a.length);
  mean.start(x, a.step).wait();
}
void tailed(endpoint& workers, arguments const& a, vector& y, std::vector<double>&) {
  gq::allreduce_mean mean{workers, gq::float32_tail{a.op}, gq::schedule::any{a.schedule}, a.settings};
  mean(std::span(y).first(a.length), a.step);
}
void grouped(endpoint& workers, arguments const& a, vector& y, std::vector<double>& z) {
  gq::allreduce_mean mean{workers, a.op, gq::schedule::any{a.schedule}, a.settings};
  mean(group_of(a, y, z), a.step);
}
void scattered(endpoint& workers, arguments const& a, vector& y, std::vector<double>&) {
  int const size = a.one_node ? workers.size() : 1;
  gq::reduce_scatter_mean mean{workers, a.op, gq::schedule::hierarchical<>{size}, a.settings};
  mean(std::span(y).first(a.length), a.step);
}
void gathered(endpoint& workers, arguments const& a, vector& y, std::vector<double>&) {
  int const size = a.one_node ? workers.size() : 1;
  gq::all_gather gather{workers, a.op, gq::schedule::hierarchical<>{size}, a.settings};
  gather(std::span(y).first(a.length), a.step);
}
void layered(endpoint& workers, arguments const& a, vector& y, std::vector<double>& z) {
  gq::adapt::model_layout model;
  std::vector<std::uint64_t> shape = a.shape;
  if (shape.size() == 1) shape = {a.cut};
  model.add(a.layer, shape).add("b", {a.length - a.cut}, a.type);
  gq::adapt::layered_options of = a.of;
  of.call = a.settings;
  gq::adapt::layered_mean mean{workers, model, {a.op, a.second}, gq::schedule::any{a.schedule}, of};
  mean(group_of(a, y, z), a.step);
}
void bypassing(endpoint& workers, arguments const& a, vector& y, std::vector<double>&) {
  gq::model::calibration links;
  links.net = gq::model::network::uniform(workers.size(), 1e-9, 1);  // so slow that nothing is bypassed
  gq::model::bypassing_mean mean{
      workers,
      a.op,
      gq::schedule::any{"sra"},
      a.settings,
      links,
      gq::model::operator_model::of("op", a.op,
                                    {.norm = 1e-12, .encode = 1e-12, .reduce = 1e-12, .decode = 1e-12}),
      gq::model::operator_model::of("float32", gq::uncompressed{},
                                    {.encode = 1e-12, .reduce = 1e-12, .decode = 1e-12}),
      [](auto const&) {}};
  mean(std::span(y).first(a.length), a.step);
}

struct difference {
  std::string name;
  std::vector<kind> kinds;
  std::function<void(arguments&)> base, change;
  std::string named;  ///< by the error
  std::string first,
      second;  ///< what it says of workers with the base and with the change; no second: both have the first
};

template <class F>
void expect_disagreement(int n, int culprit, std::string const& what, std::string const& named,
                         std::string const& values, F const& call) {
  SCOPED_TRACE(what + ", n = " + std::to_string(n) + ", culprit " + std::to_string(culprit));
  std::vector<std::string> seen(static_cast<std::size_t>(n)), again = seen;
  auto const start = std::chrono::steady_clock::now();
  support::on_threads(n, [&](endpoint& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    vector y(most, 1.0F);
    std::vector<double> z(most, 1.0);
    seen[r] = outcome_of([&] { call(workers, workers.rank() == culprit, y, z); });
    EXPECT_EQ(y, vector(most, 1.0F));
    EXPECT_EQ(z, std::vector<double>(most, 1.0));
    again[r] = outcome_of([&] { call(workers, false, y, z); });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{5});
  for (std::string const& text : seen) {
    EXPECT_THAT(text, StartsWith("disagreement: "));
    EXPECT_THAT(text, HasSubstr(named + values));
    EXPECT_EQ(text, seen[0]);
  }
  for (std::string const& text : again) EXPECT_EQ(text, "");
}

void expect_disagreements(std::vector<difference> const& all) {
  for (difference const& d : all)
    for (std::size_t k = 0; k < d.kinds.size(); ++k)
      for (int const n : {2, 3, 5})
        for (int const culprit : {0, n - 1}) {
          std::string values;
          if (d.second.empty() && !d.first.empty())
            values = " (both: " + d.first + ", with other parameters)";
          else if (!d.first.empty())
            values = culprit == 0 ? " (rank 0: " + d.second + ", rank 1: " + d.first + ")"
                                  : " (rank 0: " + d.first + ", rank " + std::to_string(culprit) + ": " +
                                        d.second + ")";
          expect_disagreement(n, culprit, d.name + ", kind " + std::to_string(k), d.named, values,
                              [&](endpoint& workers, bool differs, vector& y, std::vector<double>& z) {
                                arguments a;
                                d.base(a);
                                if (differs) d.change(a);
                                d.kinds[k](workers, a, y, z);
                              });
        }
}

constexpr auto same = [](arguments&) {};
std::string const the_operator = "the operator", the_type = "the type of the values or their grouping";

TEST(Agreement, of_every_parameter_of_every_call_is_checked_and_both_values_are_named) {
  std::vector<kind> const all = {allreduce, started, grouped, scattered, gathered, layered, bypassing},
                          by_schedule = {allreduce, started, grouped, layered},
                          one_operator = {allreduce, started, grouped, scattered, gathered, bypassing},
                          by_nodes = {scattered, gathered}, groups = {grouped, layered};
  expect_disagreements({
      {"seed", all, same, [](auto& a) { a.settings.seed = 4; }, "the seed", "3", "4"},
      {"step", all, same, [](auto& a) { a.step = 10; }, "the step", "9", "10"},
      {"mode", all, same, [](auto& a) { a.settings.non_finite = gq::non_finite::error; },
       "the mode or the library's version", "non_finite::propagate, frames of version 3",
       "non_finite::error, frames of version 3"},
      {"length", all, same, [](auto& a) { a.length = 601; }, "the length", "", ""},
      {"schedule", by_schedule, same, [](auto& a) { a.schedule = "ring"; }, "the schedule", "", ""},
      {"nodes", by_nodes, same, [](auto& a) { a.one_node = false; }, "the schedule", "", ""},
      {"cut", groups, same, [](auto& a) { a.cut = 299; }, the_type, "a group of 300 float32 300 float32",
       "a group of 299 float32 301 float32"},
      {"type", groups, same, [](auto& a) { a.type = gq::dtype::float64; }, the_type,
       "a group of 300 float32 300 float32", "a group of 300 float32 300 float64"},
      {"levels", one_operator, same, [](auto& a) { a.op = even(6, gq::wire::int8{}); }, the_operator,
       "linf uniform:7 stochastic int8 auto", "linf uniform:6 stochastic int8 auto"},
      {"values of a table",
       {allreduce, grouped, gathered},
       [](auto& a) {
         a.op = with_levels(gq::levels::table{0, 0.1, 1});
       },
       [](auto& a) {
         a.op = with_levels(gq::levels::table{0, 0.11, 1});
       },
       the_operator,
       "local:2 bucket 100 table:2 stochastic packed:3 auto",
       ""},
      {"bucket",
       {allreduce, scattered, layered},
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::linf{60}); },
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::linf{70}); },
       the_operator,
       "",
       ""},
      {"unit",
       {allreduce, grouped},
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::fixed{4}); },
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::fixed{4.000001}); },
       the_operator,
       "fixed uniform:7 stochastic int8 auto",
       ""},
      {"rounded scale",
       {allreduce},
       [](auto& a) { a.op = even(7, gq::wire::int8{}); },
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::power_of_two<gq::norm::linf>{}); },
       the_operator,
       "",
       ""},
      {"parameter of a rounding of one's own", one_operator, [](auto& a) { a.op = with_tilt(1); },
       [](auto& a) { a.op = with_tilt(2); }, the_operator, "linf uniform:7 tilted int8 auto", ""},
      {"code type of elias", one_operator, [](auto& a) { a.op = even(7, gq::wire::elias<>{}); },
       [](auto& a) { a.op = even(7, gq::wire::elias<std::int16_t>{}); }, the_operator,
       "linf uniform:7 stochastic elias auto", "linf uniform:7 stochastic elias:int16 auto"},
      {"code type of huffman",
       {allreduce},
       [](auto& a) { a.op = even(7, gq::wire::huffman<>{}); },
       [](auto& a) { a.op = even(7, gq::wire::huffman<std::int16_t>{}); },
       the_operator,
       "",
       ""},
      {"code type of sparse",
       {allreduce},
       [](auto& a) { a.op = even(7, gq::wire::sparse<>{}); },
       [](auto& a) { a.op = even(7, gq::wire::sparse<std::int16_t>{}); },
       the_operator,
       "",
       ""},
      {"code",
       {allreduce},
       [](auto& a) { a.op = even(7, gq::wire::huffman<>{}); },
       [](auto& a) { a.op = even(7, gq::wire::sparse<>{}); },
       the_operator,
       "",
       ""},
      {"bucket beside a tail",
       {tailed},
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::linf{250}); },
       [](auto& a) { a.op = even(7, gq::wire::int8{}, gq::norm::linf{240}); },
       the_operator,
       "",
       ""},
      {"operator of a layer",
       {layered},
       same,
       [](auto& a) { a.second = even(7, gq::wire::int8{}); },
       "in the operator of layer 1, \"b\": ",
       "",
       ""},
      {"name of a layer",
       {layered},
       same,
       [](auto& a) { a.layer = "c"; },
       the_type,
       "a group of 300 float32 300 float32",
       ""},
      {"shape of a layer",
       {layered},
       same,
       [](auto& a) {
         a.shape = {100, 3};
       },
       the_type,
       "a group of 300 float32 300 float32",
       ""},
      {"place among layers",
       {layered},
       [](auto& a) { a.of.of = 4; },
       [](auto& a) { a.of.first = 2; },
       "in other settings",
       "layers from 0 of 4",
       "layers from 2 of 4"},
      {"layers of the model",
       {layered},
       [](auto& a) { a.step = 0; },
       [](auto& a) { a.of.of = 4; },
       "in other settings",
       "layers from 0 of 2",
       "layers from 0 of 4"},
      {"warm-up that has not ended",
       {layered},
       [](auto& a) { a.of.warm_up = 10; },
       [](auto& a) { a.of.warm_up = 20; },
       "in other settings",
       "warm_up 10, layers from 0 of 2",
       "warm_up 20, layers from 0 of 2"},
      {"operator that follows the warm-up",
       {layered},
       [](auto& a) { a.of.warm_up = 10; },
       [](auto& a) { a.second = even(7, gq::wire::int8{}); },
       "in the operator of layer 1, \"b\": ",
       "",
       ""},
      {"settings of the caller",
       {layered},
       same,
       [](auto& a) { a.of.others = "every 5"; },
       "in other settings",
       "layers from 0 of 2",
       "layers from 0 of 2, every 5"},
      {"chunk size", by_schedule, [](auto& a) { a.schedule = "allgather"; },
       [](auto& a) { a.settings.chunk_values = 256; }, "in the chunk size", "whole segments", "256 values"},
      {"preparation", one_operator, [](auto& a) { a.op = even(7, gq::wire::int8{}).after("clip:2.5"); },
       [](auto& a) { a.op = even(7, gq::wire::int8{}).after("clip:3"); }, "in the operator",
       "linf uniform:7 stochastic int8 auto, clip:2.5", "linf uniform:7 stochastic int8 auto, clip:3"},
  });
}

// 600 values in three segments of 256 are whole for any larger chunk.
TEST(Agreement, of_chunks_compares_the_sizes_that_are_used) {
  for (kind const& call : {kind(allreduce), kind(grouped), kind(layered)})
    support::on_threads(3, [&](endpoint& workers) {
      arguments a;
      a.length = 600;
      a.settings.chunk_values =
          std::array<std::uint64_t, 3>{0, 600, 1 << 20}[static_cast<std::size_t>(workers.rank())];
      vector y(most, 1.0F);
      std::vector<double> z(most, 1.0);
      EXPECT_EQ(outcome_of([&] { call(workers, a, y, z); }), "");
    });
  // 5,000 values: in chunks of 256, 257 is rounded up to 512, as is 512
  support::on_threads(2, [&](endpoint& workers) {
    arguments a;
    gq::allreduce_mean mean{workers, a.op, gq::schedule::any{"sra"},
                            gq::options{.chunk_values = workers.rank() == 0 ? 257U : 512U}};
    vector y(5000, 1.0F);
    EXPECT_EQ(outcome_of([&] { mean(y, 1); }), "");
  });
}

TEST(OwnPolicies, have_the_bits_and_the_plan_of_built_in_ones_that_do_the_same) {
  auto const with = [](auto wire) {
    return gq::any_quantizer(
        gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, dice, wire, gq::reduce::requantize{}});
  };
  gq::any_quantizer const own = with(byte_wire{}), int8 = with(gq::wire::int8{});
  EXPECT_EQ(own.facts().name, "linf uniform:7 stochastic bytes:8 requantize");
  gq::schedule::any const ring{"ring"};
  EXPECT_EQ(gq::plan_for(own, ring, 3, 600).bytes_sent, gq::plan_for(int8, ring, 3, 600).bytes_sent);
  support::on_threads(3, [&](endpoint& workers) {
    vector x(600), y;
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = 0.01F * static_cast<float>(i) - static_cast<float>(workers.rank());
    y = x;
    gq::allreduce_mean{workers, own, ring, gq::options{.seed = 3}}(x, 9);
    gq::allreduce_mean{workers, int8, ring, gq::options{.seed = 3}}(y, 9);
    EXPECT_EQ(x, y);
  });
}

// A tail of float32 where another worker has none.
TEST(Agreement, of_a_tail_is_checked) {
  for (int const n : {2, 3})
    expect_disagreement(n, n - 1, "tail", the_operator, "",
                        [](endpoint& workers, bool differs, vector& y, std::vector<double>& z) {
                          arguments a;
                          a.op = even(7, gq::wire::int8{}, gq::norm::linf{250});
                          (differs ? tailed : allreduce)(workers, a, y, z);
                        });
}

gq::adapt::model_layout two_layers(char const* first = "a", std::uint64_t size = 20) {
  gq::adapt::model_layout l;
  l.add(first, {size, 30}).add("b", {most - size * 30});
  return l;
}

TEST(Agreement, of_every_parameter_of_compressors_is_checked) {
  auto const differ = [](std::string const& what, std::string const& named, auto const& make,
                         bool feedback = false) {
    for (int const n : {2, 3, 5})
      for (int const culprit : {0, n - 1})
        expect_disagreement(n, culprit, what, named, "",
                            [&](endpoint& workers, bool differs, vector& y, std::vector<double>&) {
                              auto compressor = make(differs);
                              vector mean = y;
                              if (feedback) {
                                cp::error_feedback ef{std::move(compressor)};
                                ef.reduce(workers, y, mean, 9);
                              } else {
                                compressor.reduce(workers, y, mean, {}, 9);
                              }
                            });
  };
  auto const top_k = [](cp::top_k_options how = {}, gq::options settings = {},
                        gq::adapt::model_layout l = two_layers()) {
    return cp::top_k{std::move(l), how, settings};
  };
  differ(
      "seed", "the seed (rank 0: ", [&](bool d) { return top_k({}, {.seed = d ? 1U : 0U}); }, true);
  differ("mode", "the mode", [&](bool d) {
    return top_k({}, {.non_finite = d ? gq::non_finite::error : gq::non_finite::propagate});
  });
  differ("name", the_type, [&](bool d) { return top_k({}, {}, two_layers(d ? "c" : "a")); });
  differ("size", the_type, [&](bool d) { return top_k({}, {}, two_layers("a", d ? 10 : 20)); });
  differ(
      "density", "the operator (both: top_k", [&](bool d) { return top_k({.density = d ? 0.02 : 0.01}); },
      true);
  differ("scope", the_operator,
         [&](bool d) { return top_k({.scope = d ? cp::scope::whole : cp::scope::layer}); });
  differ("densities", the_operator, [&](bool d) { return top_k({.densities = {0.1, d ? 0.2 : 0.1}}); });
  auto const rand_k = [](cp::rand_k_options how) { return cp::rand_k<>{two_layers(), how}; };
  differ("rand_k density", the_operator, [&](bool d) { return rand_k({.density = d ? 0.02 : 0.01}); });
  differ("rand_k scope", the_operator,
         [&](bool d) { return rand_k({.scope = d ? cp::scope::whole : cp::scope::layer}); });
  differ("rand_k unbiased", the_operator, [&](bool d) { return rand_k({.unbiased = d}); });
  differ("rand_k shared", the_operator, [&](bool d) { return rand_k({.shared = d}); });
  auto const one_bit = [](cp::one_bit_options how) { return cp::one_bit{two_layers(), how}; };
  differ("one_bit bucket", the_operator, [&](bool d) { return one_bit({.bucket = d ? 0U : 512U}); });
  differ("one_bit exchange", the_operator, [&](bool d) {
    return one_bit({.exchange = d ? cp::one_bit_exchange::gather : cp::one_bit_exchange::stripes});
  });
  differ("sign scale", the_operator, [](bool d) {
    return cp::sign_sgd{two_layers(), {.scale = d ? cp::sign_scale::layers : cp::sign_scale::one}};
  });
  differ("send_first gamma", the_operator, [](bool d) {
    return cp::send_first<>{two_layers(), {.gamma = d ? 4.0 : 8.0}};
  });
  differ("chunk", "the chunk size (rank 0: ", [](bool d) {
    return cp::send_first<>{two_layers(), {}, {.chunk_values = d ? 256U : 0U}};
  });
  differ("schedule", "the schedule (rank 0: ", [](bool d) {
    using gq::schedule::any;
    return cp::send_first<any>{two_layers(), {}, {}, any{d ? "tree" : "ring"}};
  });
}

// ---- Arguments that no call can have

/// One worker's arguments are refused: it says why, the others say who and why, and the same objects go on working.
/// @param prepare  prepare(workers) -> an object with call(bool refused)
template <class Prepare>
void expect_told(std::string const& why, Prepare const& prepare) {
  for (int n = 1; n <= 5; ++n)
    for (int culprit = 0; culprit <= n; ++culprit) {  // n: all of them
      SCOPED_TRACE(why + ", n = " + std::to_string(n) + ", culprit " + std::to_string(culprit));
      std::vector<std::string> seen(static_cast<std::size_t>(n)), again = seen;
      auto const start = std::chrono::steady_clock::now();
      support::on_threads(n, [&](endpoint& workers) {
        auto const r = static_cast<std::size_t>(workers.rank());
        auto call = prepare(workers);
        seen[r] = outcome_of([&] { call(culprit == n || workers.rank() == culprit); });
        again[r] = outcome_of([&] { call(false); });
      });
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{5});
      for (int r = 0; r < n; ++r) {
        std::string const& text = seen[static_cast<std::size_t>(r)];
        EXPECT_EQ(again[static_cast<std::size_t>(r)], "");
        EXPECT_THAT(text, HasSubstr(why));
        if (culprit == n || r == culprit) {
          EXPECT_THAT(text, StartsWith("configuration: globalq: "));
          EXPECT_THAT(text, HasSubstr(": rank " + std::to_string(r) + " of " + std::to_string(n) + ": "));
        } else {
          EXPECT_THAT(text, StartsWith("disagreement: globalq: "));
          EXPECT_THAT(text, HasSubstr(": rank " + std::to_string(culprit) + " refused its arguments ("));
        }
      }
    }
}

constexpr std::uint64_t beyond = std::uint64_t{1} << 48;
char const* const step_too_large = "step 281474976710656 ";

/// An object that owns the calls' object and its vectors.
template <class Mean, class Call>
auto holding(std::unique_ptr<Mean> mean, Call call) {
  return [mean = std::move(mean), x = vector(600, 1.0F), y = vector(600, 0.5F), call](bool refused) mutable {
    call(*mean, x, y, refused);
    if (refused) {
      EXPECT_EQ(y, vector(600, 0.5F));
    }
  };
}

TEST(Refusal, of_a_step_or_an_output_on_one_worker_is_told_to_the_others) {
  gq::any_quantizer const op = even(7, gq::wire::int8{});
  auto const make = [&](endpoint& workers, char const* schedule = "ring") {
    using mean = gq::allreduce_mean<>;
    return std::make_unique<mean>(workers, op, gq::schedule::any{schedule}, gq::options{.seed = 3});
  };
  expect_told(step_too_large, [&](endpoint& workers) {
    return holding(make(workers),
                   [](auto& mean, auto& x, auto& y, bool refused) { mean(x, y, refused ? beyond : 9); });
  });
  expect_told("the input has 600 values and the output 599", [&](endpoint& workers) {
    return holding(make(workers), [](auto& mean, auto& x, auto& y, bool refused) {
      mean(x, std::span(y).first(refused ? 599 : 600), 9);
    });
  });
  expect_told(step_too_large, [&](endpoint& workers) {
    return holding(make(workers), [](auto& mean, auto& x, auto& y, bool refused) {
      mean.start(x, y, 8);  // in turn
      mean.start(x, y, refused ? beyond : 9).wait();
      mean.wait();
    });
  });
  // the second vector of a group draws the bits of step 2^48
  expect_told(step_too_large, [&](endpoint& workers) {
    return holding(make(workers), [](auto& mean, auto& x, auto& y, bool refused) {
      std::span a = std::span(y).first(100), b = std::span(y).subspan(100);
      static_cast<void>(x);
      mean(gq::vector_group{}.add(a).add(b), refused ? beyond - 1 : 9);
    });
  });
}

TEST(Refusal, of_a_group_over_schedule_native_is_told_to_the_others) {
  expect_told("schedule native adds the numbers of one vector", [&](endpoint& workers) {
    using call = gq::allreduce_mean<>;
    return holding(std::make_unique<call>(workers, even(7, gq::wire::int8{}), gq::schedule::any{"native"}),
                   [](auto& mean, auto& x, auto& y, bool refused) {
                     if (refused)
                       mean(gq::vector_group{}.add(y), 9);
                     else
                       mean(x, y, 9);
                   });
  });
}

TEST(Refusal, of_another_shard_is_told_to_the_others) {
  gq::any_quantizer const op = even(7, gq::wire::int8{});
  expect_told("; pass shard(length).count values", [&](endpoint& workers) {
    return holding(std::make_unique<gq::reduce_scatter_mean<>>(workers, op),
                   [](auto& mean, auto& x, auto& y, bool refused) {
                     std::uint64_t const own = mean.shard(600).count;
                     mean(x, std::span(y).first(refused ? (own == 0 ? 1 : own - 1) : own), 9);
                   });
  });
  expect_told("; pass shard(length).count values", [&](endpoint& workers) {
    return holding(std::make_unique<gq::all_gather<>>(workers, op),
                   [](auto& gather, auto& x, auto& y, bool refused) {
                     std::uint64_t const own = gather.shard(600).count;
                     gather(std::span(x).first(refused ? (own == 0 ? 1 : own - 1) : own), y, 9);
                   });
  });
}

TEST(Refusal, of_too_many_values_is_told_to_the_others) {
  expect_told("281474976710657 values", [&](endpoint& workers) {
    return holding(std::make_unique<gq::all_gather<>>(workers, even(7, gq::wire::int8{})),
                   [](auto& gather, auto& x, auto& y, bool refused) {
                     // a length by itself: nothing is read or written
                     std::span const all(y.data(), refused ? beyond + 1 : y.size());
                     gather(std::span(x).first(gather.shard(600).count), all, 9);
                   });
  });
}

TEST(Refusal, of_a_group_whose_lengths_wrap_around_is_told_to_the_others) {
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  expect_told("values are more than 2^48", [&](endpoint& workers) {
    using call = gq::allreduce_mean<>;
    return holding(std::make_unique<call>(workers, even(7, gq::wire::int8{}), gq::schedule::any{"ring"}),
                   [](auto& mean, auto&, auto& y, bool refused) {
                     // lengths by themselves: nothing is read or written
                     std::span const all(y.data(), refused ? half : y.size()),
                         other(y.data(), refused ? half : 0), more(y.data(), refused ? 600U : 0U);
                     mean(gq::vector_group{}.add(all).add(other).add(more), 9);
                   });
  });
}

TEST(Refusal, of_vectors_that_are_no_layers_is_told_to_the_others) {
  auto const make = [](endpoint& workers) {
    gq::adapt::model_layout model;
    model.add("a", {400}).add("b", {200});
    using mean = gq::adapt::layered_mean<endpoint, gq::schedule::any>;
    return std::make_unique<mean>(workers, model,
                                  std::vector<gq::any_quantizer>(2, even(7, gq::wire::int8{})),
                                  gq::schedule::any{"sra"});
  };
  expect_told("the layout ends at 600", [&](endpoint& workers) {
    return holding(make(workers), [](auto& mean, auto& x, auto& y, bool refused) {
      std::size_t const length = refused ? 599 : 600;
      mean(std::span(x).first(length), std::span(y).first(length), 9);
    });
  });
  expect_told("the layout ends at 600", [&](endpoint& workers) {
    return holding(make(workers), [](auto& mean, auto&, auto& y, bool refused) {
      std::span v = std::span(y).first(refused ? 599 : 600);
      mean.start(v, 9).wait();
    });
  });
  expect_told("the group has 1 vectors and the layout 2 layers", [&](endpoint& workers) {
    return holding(make(workers), [](auto& mean, auto&, auto& y, bool refused) {
      std::span a = std::span(y).first(400), b = std::span(y).subspan(400);
      gq::vector_group group;
      group.add(a);
      if (!refused) group.add(b);
      mean(group, 9);
    });
  });
  expect_told(step_too_large, [&](endpoint& workers) {
    return holding(make(workers),
                   [](auto& mean, auto& x, auto& y, bool refused) { mean(x, y, refused ? beyond : 9); });
  });
}

TEST(Refusal, by_a_compressor_is_told_to_the_others) {
  auto const make = [](endpoint& workers, auto const& call) {
    gq::adapt::model_layout model;
    model.add("a", {600});
    return [&workers, call, c = cp::sign_sgd{model}](bool refused) mutable {
      vector x(600, 1.0F), y(600, 0.5F);
      call(c, workers, x, y, refused);
    };
  };
  expect_told(step_too_large, [&](endpoint& workers) {
    return make(workers, [](auto& c, endpoint& t, auto& x, auto& y, bool refused) {
      c.reduce(t, x, y, {}, refused ? beyond : 9);
    });
  });
  expect_told("the layers 600", [&](endpoint& workers) {
    return make(workers, [](auto& c, endpoint& t, auto& x, auto& y, bool refused) {
      c.reduce(t, x, std::span(y).first(refused ? 599 : 600), {}, 9);
    });
  });
}

// ---- Other kinds of calls

// The opening of learn::agree has 64 bytes as well. Nobody waits for texts of a worker that sends none.
TEST(Agreement, of_the_kind_of_call_is_checked) {
  for (int const n : {2, 3}) {
    std::vector<std::string> seen(static_cast<std::size_t>(n));
    auto const start = std::chrono::steady_clock::now();
    support::on_threads(n, [&](endpoint& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      seen[r] = outcome_of([&] {
        gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}};
        vector y(10);
        if (workers.rank() == 1)
          gq::learn::agree(workers, gq::learn::histogram(), gq::learn::optimal{.size = 3});
        else
          mean(y, 1);
      });
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{5});
    EXPECT_THAT(
        seen[0],
        HasSubstr(
            "rank 1 differs from rank 0 in the kind of call or the library's version, nothing was changed;"));
    for (std::string const& text : seen) EXPECT_THAT(text, StartsWith("disagreement: "));
  }
}

// ---- Texts that arrive

/// A transport without an allgather of its own, whose worker 1 sends texts that are none.
class without_allgather {
 public:
  using request = endpoint::request;
  explicit without_allgather(endpoint& t) : t_(t), noise_(256, std::byte{0x1b}) {}
  int rank() const { return t_.rank(); }
  int size() const { return t_.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) {
    bool const noise = rank() == 1 && bytes.size() == noise_.size();
    return t_.send_async(peer, noise ? std::span<std::byte const>(noise_) : bytes);
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return t_.recv_async(peer, bytes); }
  void wait(request& r) { t_.wait(r); }

 private:
  endpoint& t_;
  std::vector<std::byte> noise_;
};

/// A transport with message sizes of its own.
class sized {
 public:
  using request = endpoint::request;
  using execution_space = endpoint::execution_space;
  sized(endpoint& t, std::size_t bytes) : t_(t), bytes_(bytes) {}
  int rank() const { return t_.rank(); }
  int size() const { return t_.size(); }
  std::size_t chunk_bytes() const { return bytes_; }
  decltype(auto) execution() { return t_.execution(); }
  request send_async(int peer, std::span<std::byte const> bytes) { return t_.send_async(peer, bytes); }
  request recv_async(int peer, std::span<std::byte> bytes) { return t_.recv_async(peer, bytes); }
  void wait(request& r) { t_.wait(r); }

 private:
  endpoint& t_;
  std::size_t bytes_;
};

TEST(Agreement, of_message_sizes_of_a_transport_is_checked_where_they_are_used) {
  using call = std::function<void(sized&, vector&)>;
  auto const texts_of = [](call const& f) {
    return support::complaints<gq::disagreement_error>(2, [&](endpoint& t) {
      sized workers(t, t.rank() == 0 ? 1024 : 2048);
      vector y(5000, 1.0F);
      f(workers, y);
    });
  };
  Kokkos::Serial const serial;
  gq::adapt::model_layout layers;
  layers.add("a", {5000});
  std::vector<std::pair<std::string, call>> const used = {
      {"256 values, rank 1: 512 values",
       [&](sized& w, vector& y) {
         gq::allreduce_mean mean{w, gq::uncompressed{}, gq::schedule::allgather{}, {}, serial};
         mean(y, 1);
       }},
      {"whole segments, sums of nodes 256 values, rank 1: whole segments, sums of nodes 512 values",
       [&](sized& w, vector& y) {
         using nodes = gq::schedule::hierarchical<gq::schedule::float32_sum, gq::schedule::ring>;
         gq::allreduce_mean mean{w, even(7, gq::wire::int8{}), nodes{2}, {.chunk_values = 1 << 20}, serial};
         mean(y, 1);
       }},
      {"256 values, rank 1: 512 values",
       [&](sized& w, vector& y) { cp::send_first<>{layers}.reduce(w, y, y, {}, 1); }},
      {"128 values, rank 1: 256 values",
       [&](sized& w, vector& y) { cp::sign_sgd{layers}.reduce(w, y, y, {}, 1); }}};
  for (auto const& [values, f] : used)
    for (std::string const& text : texts_of(f))
      EXPECT_THAT(text, HasSubstr("in the chunk size (rank 0: " + values + ")"));
  std::vector<call> const unused = {
      [&](sized& w, vector& y) {
        gq::allreduce_mean mean{
            w, gq::uncompressed{}, gq::schedule::allgather{}, {.chunk_values = 256}, serial};
        mean(y, 1);
      },
      [&](sized& w, vector& y) { cp::top_k{layers}.reduce(w, y, y, {}, 1); }};
  for (call const& f : unused) EXPECT_EQ(texts_of(f), std::vector<std::string>(2));
}

TEST(Texts, that_arrive_without_an_end_or_with_control_characters_are_printed_without) {
  auto const texts = support::complaints<gq::disagreement_error>(3, [](endpoint& t) {
    without_allgather workers(t);
    gq::allreduce_mean mean{workers,
                            gq::uncompressed{},
                            gq::schedule::ring{},
                            {.seed = workers.rank() == 1 ? 4U : 3U},
                            Kokkos::Serial()};
    vector y(10);
    mean(y, 1);
  });
  for (int r : {0, 2})
    EXPECT_THAT(texts[static_cast<std::size_t>(r)],
                HasSubstr("in the seed (rank 0: 3, rank 1: " + std::string(256, '?') + "), nothing"));
}

}  // namespace agreement_test
