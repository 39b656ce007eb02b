// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief What goes wrong goes wrong on every worker alike, at once, and leaves everything usable; and the far ends of the
///        number types, where things could go wrong but do not.

#include "tests/support/cases.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

namespace gq = globalq;
using namespace support;

namespace failure_test {

struct stopwatch {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

/// What each worker saw: the kind of error and its text; empty when there was none.
using outcomes = std::vector<std::string>;

template <class F>
std::string outcome_of(F const& call) {
  try {
    call();
    return {};
  } catch (gq::disagreement_error const& e) {
    return std::string("disagreement: ") + e.what();
  } catch (gq::non_finite_error const& e) {
    return std::string("non-finite: ") + e.what();
  } catch (gq::configuration_error const& e) {
    return std::string("configuration: ") + e.what();
  } catch (gq::transport_error const& e) {
    return std::string("transport: ") + e.what();
  } catch (gq::frame_error const& e) {
    return std::string("frame: ") + e.what();
  }
}

/// "rank 1 of 3: " differs from worker to worker and is taken out.
std::string without_rank(std::string text) {
  auto const at = text.find(": rank ");
  if (at == std::string::npos) return text;
  auto const of = text.find(" of ", at), end = text.find(": ", at + 2);
  if (of == std::string::npos || end == std::string::npos || of > end) return text;
  return text.erase(at, end - at);
}

gq::transport::threads make_cluster(int n) {
  return gq::transport::threads{n, {.deadline = std::chrono::seconds{20}}};
}

std::vector<composition> const kinds = {
    {"linf", 0, "uniform:7", "stochastic", "int8", "sum", "ring"},
    {"linf", 0, "uniform:7", "stochastic", "int8", "sum", "native"},
    {"l:2,2", 128, "exponential", "stochastic", "int8", "auto", "tree"},
    {"local:2", 100, "table:0,0.1,0.4,1", "stochastic", "packed:3", "auto", "sra"},
    {"local:inf", 0, "symmetric:0.1,0.3,0.6,1", "nearest", "packed:3", "auto", "allgather"},
    {"l:3,inf", 0, "uniform", "random-shift", "packed:6", "requantize", "ring"},
    {"plain", 0, "", "", "", "", "ring"},
    {"plain", 0, "", "", "", "", "native"}};

gq::any_quantizer operator_of(composition const& c) {
  return c.norm == "plain" ? gq::any_quantizer(gq::uncompressed{}) : make_operator(c);
}

// ---- NaN and infinity

template <class T>
class NonFinite : public testing::Test {};
using value_types = testing::Types<float, double, gq::float16, gq::bfloat16>;
TYPED_TEST_SUITE(NonFinite, value_types);

TYPED_TEST(NonFinite, on_one_worker_becomes_nan_on_all_or_an_error_on_all) {
  using T = TypeParam;
  using word = typename traits<T>::word;
  constexpr int n = 3;
  constexpr std::size_t d = 700;
  auto const bad = [](int k) {
    word const w = k % 4 == 0   ? traits<T>::nan
                   : k % 4 == 1 ? traits<T>::infinity
                   : k % 4 == 2 ? static_cast<word>(traits<T>::infinity | traits<T>::sign)
                                : static_cast<word>((traits<T>::infinity + 1) | traits<T>::sign);
    return from_word<T>(w);
  };
  int k = 0;
  for (composition const& c : kinds) {
    gq::any_quantizer const op = operator_of(c);
    for (auto const mode : {gq::non_finite::propagate, gq::non_finite::error})
      for (std::size_t position : {std::size_t{0}, d / 2, d - 1}) {
        ++k;
        int const culprit = k % n;
        outcomes seen(n), after(n);
        std::vector<std::vector<T>> x(n), y(n), z(n), before;
        for (int r = 0; r < n; ++r) {
          for (std::size_t i = 0; i < d; ++i)
            x[static_cast<std::size_t>(r)].push_back(value_at<T>(input::normal, 3, r, n, i, d));
          if (r == culprit) x[static_cast<std::size_t>(r)][position] = bad(k);
          y[static_cast<std::size_t>(r)].assign(d, from_word<T>(0x55));
        }
        before = x;
        z = x;
        auto cluster = make_cluster(n);
        cluster.run([&](auto& workers) {
          auto const r = static_cast<std::size_t>(workers.rank());
          gq::allreduce_mean mean{
              workers, op, gq::schedule::any{c.schedule}, {.seed = 1, .non_finite = mode}};
          seen[r] = outcome_of([&] { mean(x[r], y[r], 5); });
          std::string const in_place = outcome_of([&] { mean(z[r], 5); });
          EXPECT_EQ(seen[r], in_place);
          // the same objects go on working
          std::vector<T> fine(d, value_from<T>(1.0));
          after[r] = outcome_of([&] { mean(fine, 6); });
          for (T v : fine) EXPECT_TRUE(std::isfinite(to_double(v)));
        });
        for (std::size_t r = 0; r < n; ++r) {
          EXPECT_TRUE(same_bytes(x[r], before[r]));
          EXPECT_EQ(after[r], "");
          if (mode == gq::non_finite::error) {
            EXPECT_TRUE(seen[r].starts_with("non-finite: ")) << seen[r];
            EXPECT_NE(seen[r].find("the input of rank " + std::to_string(culprit) + " contains NaN"),
                      std::string::npos)
                << seen[r];
            EXPECT_EQ(without_rank(seen[r]), without_rank(seen[0]));
            EXPECT_TRUE(same_bytes(z[r], before[r])) << "the error changed the vector";
            EXPECT_TRUE(same_bytes(y[r], std::vector<T>(d, from_word<T>(0x55))))
                << "the error changed the output";
          } else {
            EXPECT_EQ(seen[r], "");
            EXPECT_TRUE(same_bytes(y[r], std::vector<T>(d, from_word<T>(traits<T>::nan)))) << c.text();
            EXPECT_TRUE(same_bytes(z[r], y[r])) << c.text();
          }
        }
        if (this->HasFailure()) return;
      }
  }
}

TYPED_TEST(NonFinite, a_result_beyond_the_range_counts_as_non_finite_on_all) {
  // +-norm is decoded whatever is given, and an l1 norm of large values is beyond the type's range
  using T = TypeParam;
  constexpr std::size_t d = 300;
  gq::any_quantizer const op =
      make_operator({"l:1,1", 0, "symmetric:1", "stochastic", "packed:1", "auto", "allgather"});
  for (int n : {1, 2, 3})
    for (auto const mode : {gq::non_finite::propagate, gq::non_finite::error}) {
      outcomes seen(static_cast<std::size_t>(n));
      std::vector<std::vector<T>> y(
          static_cast<std::size_t>(n),
          std::vector<T>(d, value_from<T>(0.75 * gq::largest(gq::dtype_of<T>::value))));
      auto cluster = make_cluster(n);
      cluster.run([&](auto& workers) {
        auto const r = static_cast<std::size_t>(workers.rank());
        gq::allreduce_mean mean{workers, op, gq::schedule::allgather{}, {.seed = 1, .non_finite = mode}};
        seen[r] = outcome_of([&] { mean(y[r], 5); });
      });
      for (std::size_t r = 0; r < y.size(); ++r) {
        if (mode == gq::non_finite::error) {
          EXPECT_TRUE(seen[r].starts_with("non-finite: ")) << seen[r];
          EXPECT_EQ(without_rank(seen[r]), without_rank(seen[0]));
        } else {
          EXPECT_EQ(seen[r], "");
          EXPECT_TRUE(same_bytes(y[r], std::vector<T>(d, from_word<T>(traits<T>::nan)))) << "n = " << n;
        }
      }
    }
}

// ---- disagreement

/// One worker's call.
struct call {
  composition what = {"linf", 0, "uniform:7", "stochastic", "int8", "sum", "ring"};
  std::size_t length = 600;
  std::uint64_t seed = 3;
  std::uint64_t step = 9;
  gq::dtype type = gq::dtype::float32;
};

template <class T, class Workers>
std::string make_call_as(Workers& workers, call const& c) {
  std::vector<T> const x(c.length, value_from<T>(0.5));
  std::vector<T> y(c.length, from_word<T>(0x55));
  gq::allreduce_mean mean{workers, operator_of(c.what), gq::schedule::any{c.what.schedule}, {.seed = c.seed}};
  std::string const text = outcome_of([&] { mean(x, y, c.step); });
  if (!text.empty() && !same_bytes(y, std::vector<T>(c.length, from_word<T>(0x55))))
    return "the output was changed by " + text;
  return text;
}

template <class Workers>
std::string make_call(Workers& workers, call const& c) {
  switch (c.type) {
    case gq::dtype::float64:
      return make_call_as<double>(workers, c);
    case gq::dtype::float16:
      return make_call_as<gq::float16>(workers, c);
    case gq::dtype::bfloat16:
      return make_call_as<gq::bfloat16>(workers, c);
    default:
      return make_call_as<float>(workers, c);
  }
}

struct difference {
  char const* name;
  void (*base)(call&);    ///< what all do
  void (*change)(call&);  ///< what one does instead
  char const* named;      ///< by the error
};

/// More differences than those of agreement_test, where each parameter of a call differs once.
class Disagreement : public testing::TestWithParam<difference> {};

TEST_P(Disagreement, is_the_same_error_on_every_worker_within_five_seconds) {
  for (int n : {2, 3, 5})
    for (int culprit : {0, n - 1}) {
      outcomes seen(static_cast<std::size_t>(n)), repaired(static_cast<std::size_t>(n));
      stopwatch const time;
      auto cluster = make_cluster(n);
      cluster.run([&](auto& workers) {
        call agreed;
        GetParam().base(agreed);
        call c = agreed;
        if (workers.rank() == culprit) GetParam().change(c);
        auto const r = static_cast<std::size_t>(workers.rank());
        seen[r] = make_call(workers, c);
        repaired[r] = make_call(workers, agreed);  // the transport goes on working
      });
      EXPECT_LT(time.seconds(), 5.0);
      for (std::size_t r = 0; r < seen.size(); ++r) {
        EXPECT_TRUE(seen[r].starts_with("disagreement: ")) << seen[r];
        EXPECT_EQ(seen[r], seen[0]);
        EXPECT_EQ(repaired[r], "");
        EXPECT_NE(seen[r].find(GetParam().named), std::string::npos) << seen[r];
      }
    }
}

constexpr auto same = [](call&) {};
INSTANTIATE_TEST_SUITE_P(
    on, Disagreement,
    testing::Values(
        difference{"length_zero", same, [](call& c) { c.length = 0; }, "the length"},
        difference{"high_bits_of_the_step", same, [](call& c) { c.step += std::uint64_t{1} << 47; },
                   "the step"},
        difference{"high_bits_of_the_seed", same, [](call& c) { c.seed += std::uint64_t{1} << 63; },
                   "the seed"},
        difference{"type", same, [](call& c) { c.type = gq::dtype::float64; }, "the type"},
        difference{"short_type", [](call& c) { c.type = gq::dtype::float16; },
                   [](call& c) { c.type = gq::dtype::bfloat16; }, "the type"},
        difference{"schedule", same, [](call& c) { c.what.schedule = "tree"; }, "the schedule"},
        difference{"ring_or_sra", same, [](call& c) { c.what.schedule = "sra"; }, "the schedule"},
        difference{"ring_or_native", same, [](call& c) { c.what.schedule = "native"; }, "the schedule"},
        difference{"levels_that_fit", same, [](call& c) { c.what.levels = "uniform"; }, "the operator"},
        difference{"level_scheme", [](call& c) { c.what.reduce = "requantize"; },
                   [](call& c) { c.what.levels = "exponential:7"; }, "the operator"},
        difference{"values_of_a_table",
                   [](call& c) { c.what.levels = "table:0,0.1,1", c.what.reduce = "auto"; },
                   [](call& c) { c.what.levels = "table:0,0.10001,1"; }, "the operator"},
        difference{"table_or_symmetric",
                   [](call& c) { c.what.levels = "table:0,0.1,1", c.what.reduce = "auto"; },
                   [](call& c) { c.what.levels = "symmetric:0.1,1"; }, "the operator"},
        difference{"base", [](call& c) { c.what.levels = "exponential:7:1.5", c.what.reduce = "auto"; },
                   [](call& c) { c.what.levels = "exponential:7:1.6"; }, "the operator"},
        difference{"order_of_the_norm", [](call& c) { c.what.norm = "l:2,2"; },
                   [](call& c) { c.what.norm = "l:2,1"; }, "the operator"},
        difference{"global_or_local_norm", [](call& c) { c.what.reduce = "requantize"; },
                   [](call& c) { c.what.norm = "local:inf"; }, "the operator"},
        difference{"bucket", same, [](call& c) { c.what.bucket = 128; }, "the operator"},
        difference{"rounding", same, [](call& c) { c.what.rounding = "nearest"; }, "the operator"},
        difference{"shift", [](call& c) { c.what.rounding = "random-shift"; },
                   [](call& c) { c.what.rounding = "random-shift-unshifted"; }, "the operator"},
        difference{"wire", same, [](call& c) { c.what.wire = "int16"; }, "the operator"},
        difference{"bits", [](call& c) { c.what.wire = "packed:8"; },
                   [](call& c) { c.what.wire = "packed:7"; }, "the operator"},
        difference{"int8_or_packed8", same, [](call& c) { c.what.wire = "packed:8"; }, "the operator"},
        difference{"reduce", same, [](call& c) { c.what.reduce = "requantize"; }, "the operator"},
        difference{"quantized_or_not", same, [](call& c) { c.what.norm = "plain"; }, "the operator"}),
    [](auto const& each) { return std::string(each.param.name); });

TEST(Failure, the_same_objects_work_again_after_a_disagreement) {
  for (composition const& c : kinds) {
    constexpr int n = 3;
    gq::any_quantizer const op = operator_of(c);
    std::vector<std::vector<float>> y(n, std::vector<float>(600)), z = y;
    auto cluster = make_cluster(n);
    cluster.run([&](auto& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      std::vector<float> x(600);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = value_at<float>(input::normal, 1, workers.rank(), n, i, x.size());
      gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 3}};
      mean(x, y[r], 1);
      std::vector<float> longer(r == 1 ? 601 : 600, 1.0F);
      EXPECT_THROW(mean(longer, 2), gq::disagreement_error);
      EXPECT_THROW(mean(std::span(longer).first(300), 2 + r % 2), gq::disagreement_error);
      mean(x, z[r], 1);
    });
    for (int r = 0; r < n; ++r) {
      EXPECT_TRUE(same_bytes(y[static_cast<std::size_t>(r)], z[static_cast<std::size_t>(r)])) << c.text();
      EXPECT_TRUE(same_bytes(y[static_cast<std::size_t>(r)], y[0])) << c.text();
    }
  }
}

TEST(Failure, a_worker_that_throws_before_its_call_ends_the_wait_of_the_others) {
  for (composition const& c : kinds) {
    stopwatch const time;
    auto cluster = make_cluster(4);
    gq::any_quantizer const op = operator_of(c);
    outcomes seen(4);
    std::barrier all_have_the_first{4};  // a worker may leave a mean while others still read its messages
    try {
      cluster.run([&](auto& workers) {
        gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 3}};
        std::vector<float> x(600, 1.0F);
        mean(x, 0);
        all_have_the_first.arrive_and_wait();
        if (workers.rank() == 2) throw std::runtime_error("the loader found no file");
        auto const r = static_cast<std::size_t>(workers.rank());
        seen[r] = outcome_of([&] { mean(x, 1); });
      });
      ADD_FAILURE() << "the error was lost";
    } catch (std::runtime_error const& e) {
      EXPECT_EQ(std::string(e.what()), "the loader found no file");
    }
    EXPECT_LT(time.seconds(), 5.0);
    for (std::size_t r : {0U, 1U, 3U}) {
      EXPECT_TRUE(seen[r].starts_with("transport: ")) << seen[r];
      EXPECT_NE(seen[r].find("rank 2"), std::string::npos) << seen[r];
      EXPECT_NE(seen[r].find("the loader found no file"), std::string::npos) << seen[r];
    }
    // the cluster can be run again
    std::atomic<int> done{0};
    cluster.run([&](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 3}};
      std::vector<float> x(600, 1.0F);
      mean(x, 0);
      ++done;
    });
    EXPECT_EQ(done, 4);
  }
}

TEST(Failure, a_worker_that_never_calls_is_named_at_the_deadline) {
  gq::transport::threads cluster{3, {.deadline = std::chrono::milliseconds{300}}};
  stopwatch const time;
  outcomes seen(3);
  std::atomic<int> waiting{2};
  try {
    cluster.run([&](auto& workers) {
      if (workers.rank() == 1) {
        while (waiting > 0) std::this_thread::yield();
        return;
      }
      gq::any_quantizer const op = make_operator({});
      gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {}};
      std::vector<float> x(600, 1.0F);
      seen[static_cast<std::size_t>(workers.rank())] = outcome_of([&] { mean(x, 1); });
      --waiting;
    });
  } catch (gq::error const&) {
  }
  EXPECT_LT(time.seconds(), 5.0);
  for (std::size_t r : {0U, 2U}) EXPECT_TRUE(seen[r].starts_with("transport: ")) << seen[r];
}

TEST(Failure, workers_with_other_chunks_never_hang_and_never_differ) {
  // chunks are no part of the agreement: the same bits, or an error within the deadline
  for (char const* schedule : {"ring", "tree", "sra", "allgather", "native", "hierarchical:2"}) {
    constexpr int n = 3;
    gq::transport::threads cluster{n, {.deadline = std::chrono::seconds{2}}};
    stopwatch const time;
    std::vector<std::vector<float>> y(n, std::vector<float>(3000, 1.0F));
    try {
      cluster.run([&](auto& workers) {
        auto const r = static_cast<std::size_t>(workers.rank());
        gq::any_quantizer const op =
            make_operator({"linf", 0, "uniform:7", "stochastic", "int8", "auto", schedule});
        gq::allreduce_mean mean{
            workers, op, gq::schedule::any{schedule}, {.chunk_values = r == 1 ? 256U : 512U}};
        mean(y[r], 1);
      });
      for (auto const& v : y) EXPECT_TRUE(same_bytes(v, y[0])) << schedule;
    } catch (gq::error const& e) {
      EXPECT_NE(std::string(e.what()), "");
    }
    EXPECT_LT(time.seconds(), 5.0) << schedule;
  }
}

TEST(Failure, a_value_above_norm_fixed_is_the_same_error_on_every_worker) {
  constexpr int n = 3;
  outcomes seen(n);
  std::vector<std::vector<float>> y(n, std::vector<float>(100, 1.0F));
  y[1][50] = -4.5F;
  auto const before = y;
  auto cluster = make_cluster(n);
  cluster.run([&](auto& workers) {
    auto const r = static_cast<std::size_t>(workers.rank());
    gq::quantizer const op{gq::norm::fixed{4.0}, gq::levels::uniform<>{7}, gq::rounding::stochastic{},
                           gq::wire::int8{}};
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {}};
    seen[r] = outcome_of([&] { mean(y[r], 1); });
    std::vector<float> fine(100, 4.0F);
    mean(fine, 2);
    EXPECT_EQ(fine[7], 4.0F);
  });
  for (std::size_t r = 0; r < n; ++r) {
    EXPECT_TRUE(seen[r].starts_with("configuration: ")) << seen[r];
    EXPECT_EQ(seen[r], seen[0]);
    EXPECT_NE(seen[r].find("4.5"), std::string::npos) << seen[r];
    EXPECT_TRUE(same_bytes(y[r], before[r]));
  }
}

TEST(Failure, steps_lengths_and_views_are_checked_before_anything_moves) {
  auto cluster = make_cluster(2);
  cluster.run([&](auto& workers) {
    gq::any_quantizer const op = make_operator({});
    gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {}};
    std::vector<float> x(10, 1.0F), shorter(9, 2.0F);
    EXPECT_TRUE(outcome_of([&] { mean(x, std::uint64_t{1} << 48); }).starts_with("configuration: "));
    EXPECT_TRUE(outcome_of([&] { mean(x, ~std::uint64_t{0}); }).starts_with("configuration: "));
    std::string const text = outcome_of([&] { mean(x, shorter, 1); });
    EXPECT_TRUE(text.starts_with("configuration: ")) << text;
    EXPECT_NE(text.find("10"), std::string::npos);
    EXPECT_NE(text.find("9"), std::string::npos);
    Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> const matrix("matrix", 4, 5);
    auto const column = Kokkos::subview(matrix, Kokkos::ALL, 1);
    EXPECT_TRUE(outcome_of([&] { mean(column, 1); }).starts_with("configuration: "));
    EXPECT_EQ(x[0], 1.0F);
    EXPECT_EQ(shorter[0], 2.0F);
    mean(x, (std::uint64_t{1} << 48) - 1);
    EXPECT_EQ(x[3], 1.0F);
    Kokkos::deep_copy(matrix, 3.0F);
    mean(matrix, 2);
    EXPECT_EQ(matrix(3, 4), 3.0F);
  });
}

TEST(Failure, what_does_not_fit_is_refused_at_construction_with_the_numbers) {
  auto cluster = make_cluster(3);
  cluster.run([&](auto& workers) {
    std::string const text = outcome_of([&] {
      gq::allreduce_mean mean{workers,
                              make_operator({"linf", 0, "uniform:100", "stochastic", "int8", "sum", "ring"}),
                              gq::schedule::ring{},
                              {}};
    });
    EXPECT_TRUE(text.starts_with("configuration: ")) << text;
    for (char const* part : {"3 workers", "100", "300", "127", "use at most 42 levels", "int16"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  });
}

// ---- the ends of the number types

TEST(Extremes, the_largest_number_averages_to_itself_with_any_number_of_levels) {
  auto const run = [](auto zero, char const* reduce, char const* schedule, char const* wire, int most) {
    using T = decltype(zero);
    T const top = from_word<T>(static_cast<typename traits<T>::word>(traits<T>::infinity - 1));
    for (int n = 1; n <= 4; ++n) {
      auto cluster = make_cluster(n);
      cluster.run([&](auto& workers) {
        for (int s = 1; s <= most; ++s) {
          composition const c{"linf", 0,       "uniform:" + std::to_string(s), "stochastic", wire,
                              reduce, schedule};
          gq::any_quantizer const op = make_operator(c);
          if (!gq::plan_for(op, gq::schedule::any{schedule}, n, 1).fits) continue;
          gq::allreduce_mean mean{workers, op, gq::schedule::any{schedule}, {}};
          std::vector<T> x(20, top);
          mean(x, 1);
          if (workers.rank() != 0) continue;
          for (T v : x)
            if (!(std::abs(to_double(v) / to_double(top) - 1) <=
                  std::exp2(-20) + std::exp2(-traits<T>::digits)))
              return ADD_FAILURE() << c.text() << ", n = " << n << ", " << gq::name_of(traits<T>::type)
                                   << ": " << to_double(v),
                     void();
        }
      });
    }
  };
  auto const all_types = [&](char const* reduce, char const* schedule, char const* wire, int most) {
    run(0.0F, reduce, schedule, wire, most);
    run(0.0, reduce, schedule, wire, most);
    run(gq::float16(), reduce, schedule, wire, most);
    run(gq::bfloat16(), reduce, schedule, wire, most);
  };
  all_types("sum", "ring", "int8", 127);
  all_types("requantize", "ring", "packed:8", 127);
  all_types("auto", "allgather", "int16", 300);
}

TEST(Extremes, sums_beyond_the_range_have_means_within_it) {
  std::vector<composition> const list = {
      {"linf", 0, "uniform", "stochastic", "int16", "requantize", "ring"},
      {"linf", 0, "uniform", "stochastic", "int16", "requantize", "tree"},
      {"linf", 128, "uniform", "stochastic", "int16", "requantize", "sra"},
      {"linf", 0, "uniform", "stochastic", "int16", "auto", "allgather"},
      {"linf", 0, "uniform", "stochastic", "int16", "sum", "native"},
      {"local:inf", 0, "uniform", "stochastic", "int16", "requantize", "ring"},
      {"plain", 0, "", "", "", "", "ring"},
      {"plain", 0, "", "", "", "", "tree"},
      {"plain", 0, "", "", "", "", "sra"},
      {"plain", 0, "", "", "", "", "allgather"},
      {"plain", 0, "", "", "", "", "native"}};
  for (composition const& c : list) {
    gq::any_quantizer const op = operator_of(c);
    auto cluster = make_cluster(3);
    cluster.run([&](auto& workers) {
      gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 2}};
      std::vector<float> x(500, 3e38F);
      x[3] = workers.rank() == 0 ? -3e38F : 3e38F;
      mean(x, 1);
      EXPECT_NEAR(x[0] / 3e38F, 1, 1e-3) << c.text();
      EXPECT_NEAR(x[3] / 3e38F, 1.0 / 3, 1e-3) << c.text();
      std::vector<double> z(500, 1.7e308);
      z[3] = workers.rank() == 0 ? -1.7e308 : 1.7e308;
      mean(z, 2);
      EXPECT_NEAR(z[0] / 1.7e308, 1, 1e-3) << c.text();
      EXPECT_NEAR(z[3] / 1.7e308, 1.0 / 3, 1e-3) << c.text();
    });
  }
}

TEST(Extremes, scales_from_the_smallest_to_the_largest_number_are_kept) {
  // the mean of a ramp at every scale, within one level of 2^-13 of the norm
  std::vector<composition> const list = {
      {"linf", 0, "uniform:8191", "stochastic", "int16", "sum", "ring"},
      {"l:2,2", 0, "uniform:8191", "stochastic", "int32", "auto", "tree"},
      {"linf", 100, "uniform:8191", "stochastic", "int16", "requantize", "sra"},
      {"local:inf", 0, "uniform:8191", "stochastic", "int16", "auto", "allgather"},
      {"local:2", 100, "uniform:8191", "stochastic", "int16", "auto", "ring"},
      {"plain", 0, "", "", "", "", "ring"}};
  auto const run = [&](auto zero, double scale) {
    using T = decltype(zero);
    for (composition const& c : list)
      for (int n = 1; n <= 4; ++n) {
        gq::any_quantizer const op = operator_of(c);
        auto cluster = make_cluster(n);
        cluster.run([&](auto& workers) {
          gq::allreduce_mean mean{workers, op, gq::schedule::any{c.schedule}, {.seed = 2}};
          std::vector<T> x(300), y(300);
          for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = value_from<T>((static_cast<double>(i) - 150) / 150 * scale);
          mean(x, y, 1);
          if (workers.rank() != 0) return;
          // a level of the l2 norm of at most 4 x 300 values (35 of the largest), once or n times, and the type's own step
          double const slack =
              40.0 * n / 8191 * scale + 2 * traits<T>::tiniest() + scale * std::exp2(-traits<T>::digits);
          for (std::size_t i = 0; i < x.size(); ++i)
            if (!(std::abs(to_double(y[i]) - to_double(x[i])) <= slack))
              return ADD_FAILURE() << c.text() << ", n = " << n << ", " << gq::name_of(traits<T>::type)
                                   << ", scale " << scale << ": value " << i << " is " << to_double(y[i])
                                   << ", not " << to_double(x[i]),
                     void();
        });
        if (testing::Test::HasFailure()) return;
      }
  };
  for (double scale : {1e300, 1e-300, 1.7e308, 1e-307, 1e-310, 1e-320, 0x1p-1074 * 40, 1.0, 1e40, 1e-60})
    run(0.0, scale);
  for (double scale : {3e38, 1e30, 1.0, 1e-20, 1e-37, 1e-40, 1e-44}) run(0.0F, scale);
  for (double scale : {6e4, 1.0, 1e-4, 1e-6}) run(gq::float16(), scale);
  for (double scale : {3e38, 1.0, 1e-37, 1e-39}) run(gq::bfloat16(), scale);
}

}  // namespace failure_test
