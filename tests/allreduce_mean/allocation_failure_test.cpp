// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Each allocation of each call fails once: objects stay usable, results keep their bits, nobody waits for ever.
///
/// A case is an allocation of a worker in a scenario, alone or with all later ones of the same step. Which cases run:
/// - by default those of one of 16 shards, chosen by the day, until 20 s have passed;
/// - GLOBALQ_ALLOCATION_SHARD=k: those of shard k mod 16, all of them;
/// - GLOBALQ_ALLOCATION_SHARD=all: every case.

#include "tests/support/allocations.hpp"
#include "tests/support/calls.hpp"

#include <globalq/baseline/error_feedback.hpp>
#include <globalq/baseline/int_sgd.hpp>
#include <globalq/baseline/one_bit.hpp>
#include <globalq/baseline/rand_k.hpp>
#include <globalq/baseline/sign_sgd.hpp>
#include <globalq/baseline/thc.hpp>
#include <globalq/baseline/top_k.hpp>
#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/choices.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/train/adapt/overlapped_mean.hpp>
#include <globalq/train/adapt/time_weights.hpp>
#include <globalq/train/learn/histogram.hpp>
#include <globalq/transport/group.hpp>
#include <globalq/transport/threads.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>

namespace gq = globalq;

namespace allocation_failure_test {

using endpoint = gq::transport::threads::endpoint;
using values = std::vector<float>;

constexpr auto deadline = std::chrono::seconds{5};

/// The steps of a worker. The allocation that fails is one of theirs.
class steps {
 public:
  steps(support::allocation_failure& failure, bool alone) : failure_(failure), alone_(alone) {}

  /// f(), in which allocations count. A worker without others repeats it on the same objects after a failure; others leave.
  template <class F>
  void operator()(F const& f) const {
    try {
      failure_.on = true;
      f();
      failure_.on = false;
      return;
    } catch (...) {
      failure_.on = false;
      if (!failure_.fired || !alone_) throw;
    }
    failure_.at = ~std::size_t{0};
    f();
  }
  /// The same on another thread of this worker.
  support::allocation_failure& failure() const { return failure_; }

 private:
  support::allocation_failure& failure_;
  bool alone_;
};

struct scenario {
  std::string name;
  std::vector<int> workers;
  /// What a worker does; it returns what came of it.
  std::function<values(endpoint&, steps const&)> body;
  /// Makes what lives longer than a run; called before each case.
  std::function<void()> begin = [] {};
};

values input(int rank, std::size_t n, std::uint32_t seed = 0) {
  values x(n);
  std::uint32_t state = 12345U + 77U * seed + static_cast<std::uint32_t>(rank);
  for (float& v : x) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(static_cast<std::int32_t>(state >> 16) - 32768);
  }
  return x;
}

void append(values& to, values const& more) { to.insert(to.end(), more.begin(), more.end()); }

// ---- what fails

gq::rounding::stochastic const dice;

gq::any_quantizer operator_of(std::string const& name) {
  if (name == "int8")
    return gq::quantizer{gq::norm::l<2, 2>{.bucket = 128}, gq::levels::uniform{7}, dice, gq::wire::int8{}};
  if (name == "local")
    return gq::quantizer{gq::norm::local<2>{.bucket = 8192}, gq::levels::uniform<7>{}, dice,
                         gq::wire::packed<4>{}};
  if (name == "sparse")
    return gq::quantizer{gq::norm::linf{}, gq::levels::uniform{3}, dice, gq::wire::sparse<>{}};
  return gq::uncompressed{};
}

/// What composes.
std::vector<std::pair<std::string, std::string>> pairs() {
  std::vector<std::pair<std::string, std::string>> all;
  for (std::string const schedule : {"ring", "tree", "sra", "allgather", "native", "hierarchical:2"})
    for (std::string const op : {"int8", "local", "sparse", "float32"}) {
      if (schedule == "native" && op != "int8" && op != "float32") continue;
      if (op == "sparse" && schedule != "sra" && schedule != "allgather") continue;
      all.emplace_back(op, schedule);
    }
  return all;
}

constexpr std::size_t length = 9000;

scenario mean_by(std::string const& op, std::string const& schedule) {
  return {op + " over " + schedule, {1, 3}, [=](endpoint& workers, steps const& step) {
            std::optional<gq::allreduce_mean<>> mean;
            values const x = input(workers.rank(), length);
            values y(length), small(300), result;
            step([&] {
              mean.emplace(workers, operator_of(op), gq::schedule::any{schedule},
                           gq::options{.seed = 1, .chunk_values = 1000});
            });
            step([&] { (*mean)(std::span(x).first(300), small, 0); });
            step([&] { (*mean)(x, y, 1); });
            append(result, y);
            step([&] { (*mean)(x, y, 2); });
            append(result, y);
            append(result, small);
            return result;
          }};
}

scenario watched_group(std::string const& schedule) {
  return {"group over " + schedule, {1, 3}, [=](endpoint& workers, steps const& step) {
            std::optional<gq::allreduce_mean<>> mean;
            gq::telemetry seen{{.errors = true}};
            values const a = input(workers.rank(), 5000), b = input(workers.rank(), 300, 1);
            values c(a.size()), d(b.size());
            std::optional<gq::vector_group> both;
            step([&] {
              mean.emplace(workers, operator_of("int8"), gq::schedule::any{schedule},
                           gq::options{.seed = 1, .chunk_values = 1000, .telemetry = &seen});
            });
            step([&] { both.emplace().add(a, c).add(b, d); });
            step([&] { (*mean)(*both, 0); });
            step([&] { (*mean)(a, c, 7); });
            append(c, d);
            return c;
          }};
}

scenario shards() {
  return {"shards", {1, 3}, [](endpoint& workers, steps const& step) {
            std::optional<gq::reduce_scatter_mean<>> mean;
            std::optional<gq::all_gather<>> gather;
            values const x = input(workers.rank(), length);
            values y(length);
            step([&] { mean.emplace(workers, operator_of("int8"), gq::options{.seed = 1}); });
            step([&] { gather.emplace(workers, operator_of("local"), gq::options{.seed = 2}); });
            values part(mean->shard(length).count);
            step([&] { (*mean)(x, part, 0); });
            values const mine = part;
            part.resize(gather->shard(length).count);
            step([&] { (*gather)(part, y, 1); });
            append(y, mine);
            return y;
          }};
}

gq::adapt::model_layout model_of_three() {
  gq::adapt::model_layout model;
  model.add("a", {60, 50}).add("b", {100}).add("c", {900});
  return model;
}

scenario layers() {
  return {
      "layered_mean", {1, 3}, [](endpoint& workers, steps const& step) {
        using mean_of_layers = gq::adapt::layered_mean<endpoint, gq::schedule::any>;
        std::optional<gq::adapt::model_layout> model;
        std::optional<mean_of_layers> mean;
        step([&] { model = model_of_three(); });
        step([&] {
          std::vector<gq::any_quantizer> ops{operator_of("int8"), gq::uncompressed{}, operator_of("local")};
          mean.emplace(workers, *model, std::move(ops), gq::schedule::any{"sra"},
                       gq::adapt::layered_options{.call = {.seed = 1}, .warm_up = 1});
        });
        values const x = input(workers.rank(), model->length());
        values y(x.size()), z(x.size());
        step([&] { (*mean)(x, z, 0); });
        step([&] { (*mean)(x, y, 1); });
        append(z, y);
        step([&] { mean->assign(1, operator_of("sparse")); });
        step([&] { (*mean)(x, y, 2); });
        append(z, y);
        step([&] { mean->assign(std::vector<gq::any_quantizer>(3, operator_of("int8"))); });
        step([&] { (*mean)(x, y, 3); });
        append(z, y);
        return z;
      }};
}

scenario started() {
  return {"started calls", {1, 3}, [](endpoint& workers, steps const& step) {
            std::optional<gq::allreduce_mean<>> mean;
            values const x = input(workers.rank(), length);
            values y(length), z(length);
            step([&] {
              mean.emplace(workers, operator_of("int8"), gq::schedule::any{"ring"}, gq::options{.seed = 1});
            });
            std::shared_ptr<gq::call_queue> queue;
            step([&] { queue = std::make_shared<gq::call_queue>(); });
            // the queue's thread is a thread of this worker
            queue
                ->start({[](gq::call_queue::job const& j) {
                           support::failing = static_cast<support::allocation_failure*>(j.object);
                         },
                         &step.failure(),
                         {},
                         {}})
                .wait();
            step([&] { mean->run_on(queue); });
            // two at a time where nobody else waits: after a failure the next call is another one than the others'
            for (std::uint64_t k = 0; k < 4; k += 2)
              step([&] {
                gq::started_call two;
                try {
                  gq::started_call const one = mean->start(x, y, k);
                  if (workers.size() != 1) one.wait();
                  two = mean->start(x, z, k + 1);
                  one.wait();
                  two.wait();
                } catch (...) {
                  queue->settle();
                  throw;
                }
              });
            step([&] { mean->wait(); });
            mean.reset();
            queue.reset();
            append(y, z);
            return y;
          }};
}

scenario in_a_group() {
  return {"transport::group", {3}, [](endpoint& workers, steps const& step) {
            using some = gq::transport::group<endpoint>;
            std::optional<some> group;
            std::optional<gq::allreduce_mean<>> mean;
            values const x = input(workers.rank(), 600);
            values y(600);
            step([&] { group.emplace(workers, std::vector<int>{2, 0, 1}); });
            step([&] {
              mean.emplace(*group, operator_of("int8"), gq::schedule::any{"ring"}, gq::options{.seed = 1});
            });
            step([&] { (*mean)(x, y, 0); });
            return y;
          }};
}

scenario frames(std::string const& op) {
  return {"vector_codec " + op, {1}, [=](endpoint&, steps const& step) {
            std::optional<gq::vector_codec> codec;
            values const x = input(0, length);
            values y(length), z(length);
            std::vector<std::byte> frame;
            std::size_t used = 0;
            Kokkos::Serial const space;
            step([&] {
              std::optional<gq::any_quantizer> const made = operator_of(op);
              codec.emplace(*made, space);
            });
            frame.resize(codec->frame_bytes(length));
            step([&] { used = codec->encode(x, {1, 2, 3}, frame); });
            auto const whole = std::span<std::byte const>(frame).first(used);
            step([&] { codec->decode(whole, {1, 2, 3}, y); });
            std::vector<gq::source> const three(3, gq::source{whole, 1, 3});
            step([&] { codec->mean(three, {1, 2, 3}, z); });
            append(y, z);
            return y;
          }};
}

/// Another density for each layer, where a compressor takes it.
template <class C>
void assign(gq::baseline::error_feedback<C>& of, double density) {
  if constexpr (requires(std::vector<double> const& all) { of.inner().assign(all); })
    if (of.inner().count() < 1000)  // not those that choose out of all layers
      of.inner().assign(std::vector<double>(of.layers().size(), density));
}

/// Workers whose compressors outlive a run; after a failure all take up what was saved before it.
template <class Make>
scenario feedback(std::string const& name, Make const& make) {
  using compressor = gq::baseline::error_feedback<decltype(make(gq::options{}))>;
  struct kept {
    gq::telemetry seen{{.errors = true}};
    std::vector<std::optional<compressor>> of{3};
    std::vector<gq::baseline::state> saved{3};
  };
  auto const all = std::make_shared<kept>();
  return {name,
          {1, 3},
          [all, make](endpoint& workers, steps const& step) {
            auto const r = static_cast<std::size_t>(workers.rank());
            int const n = workers.size();
            auto& mine = all->of[r];
            std::size_t const d = 10000;
            values y(d), result;
            if (!mine) step([&] { mine.emplace(make(gq::options{.seed = 1, .telemetry = &all->seen})); });
            assign(*mine, 0.01);
            if (all->saved[r].size() != 0) mine->load({&all->saved[r], 1}, n, workers.rank());
            all->saved[r] = mine->save(n, workers.rank());
            for (int k = 0; k < 3; ++k) {
              values const x = input(workers.rank(), d, static_cast<std::uint32_t>(k));
              auto const before = mine->save(n, workers.rank()).bytes();
              step([&] {
                try {
                  mine->reduce(workers, x, y, static_cast<std::uint64_t>(k));
                } catch (std::bad_alloc const&) {
                  step.failure().on = false;
                  EXPECT_EQ(mine->save(n, workers.rank()).bytes(), before) << "the state has changed";
                  throw;
                }
              });
              append(result, y);
              if (k == 1) step([&] { assign(*mine, 0.02); });
            }
            values const left(mine->error().begin(), mine->error().end());
            append(result, left);
            return result;
          },
          [all] {
            all->of = std::vector<std::optional<compressor>>(3);
            all->saved = std::vector<gq::baseline::state>(3);
          }};
}

scenario histograms() {
  return {"learn::histogram", {1}, [](endpoint&, steps const& step) {
            std::optional<gq::learn::histogram> h;
            gq::kernel::host_executor const on{Kokkos::Serial()};
            values const x = input(0, 70000);
            step([&] { h.emplace(); });
            step([&] {
              h->clear();
              h->add(on, {x.data(), gq::dtype::float32}, x.size(), 1000, 2);
            });
            values result;
            step([&] {
              auto const found = h->result();
              result.assign(found.mass.begin(), found.mass.end());
            });
            return result;
          }};
}

scenario overlapped() {
  return {"overlapped_mean", {1}, [](endpoint& workers, steps const& step) {
            using overlapped_mean = gq::adapt::overlapped_mean<endpoint, gq::schedule::any>;
            gq::adapt::model_layout const model = model_of_three();
            std::optional<overlapped_mean> mean;
            std::vector<values> layers;
            for (gq::adapt::layer const& l : model) layers.push_back(input(0, l.size));
            step([&] {
              mean.emplace(workers, model, std::vector<gq::any_quantizer>(3, operator_of("int8")),
                           gq::schedule::any{"sra"}, gq::adapt::overlap_options{.group_bytes = 4000});
            });
            step([&] { mean->begin(0); });
            for (std::size_t k = layers.size(); k-- != 0;) step([&] { mean->ready(k, layers[k]); });
            mean->wait();
            values result;
            for (values const& l : layers) append(result, l);
            return result;
          }};
}

/// What is kept in several lists that belong together.
scenario lists() {
  return {"lists", {1}, [](endpoint&, steps const& step) {
            gq::adapt::model_layout model;
            gq::adapt::choice_table table;
            gq::adapt::time_regression times{2};
            for (std::uint64_t k = 0; k < 6; ++k) {
              step([&] { model.add("a layer whose name is long " + std::to_string(k), {60, 50 + k}); });
              step([&] { table.add({{8, 0}, {4, 1}}, "a name that is not short " + std::to_string(k)); });
              double const at = static_cast<double>(k);
              step([&] { times.add(std::array{1 + at, 1 + at * at}, 3 + at); });
            }
            values result;
            for (std::size_t k = 0; k < 6; ++k) {
              EXPECT_EQ(model.find(model[k].name), k);
              result.push_back(static_cast<float>(model[k].offset));
              result.push_back(static_cast<float>(table[k].size()));
            }
            for (double each : times.fit().seconds_per_byte) result.push_back(static_cast<float>(each));
            return result;
          }};
}

std::vector<scenario> scenarios() {
  std::vector<scenario> all;
  for (auto const& [op, schedule] : pairs()) all.push_back(mean_by(op, schedule));
  for (char const* schedule : {"ring", "sra", "allgather"}) all.push_back(watched_group(schedule));
  all.push_back(shards());
  all.push_back(layers());
  all.push_back(started());
  all.push_back(in_a_group());
  all.push_back(overlapped());
  all.push_back(lists());
  for (char const* op : {"int8", "local", "sparse"}) all.push_back(frames(op));
  auto const layers = [] {
    gq::adapt::model_layout model;
    model.add("a", {90, 100}).add("b", {1000});
    return model;
  };
  namespace c = gq::baseline;
  all.push_back(feedback("top_k", [=](auto o) { return c::top_k{layers(), {.density = 0.01}, o}; }));
  all.push_back(feedback("top_k, 2 bits", [=](auto o) {
    return c::top_k{layers(), {.density = 0.01, .bits = 2}, o};
  }));
  all.push_back(feedback("top_k of all", [=](auto o) {
    return c::top_k{layers(), {.density = 0.3, .scope = c::scope::whole}, o};
  }));
  all.push_back(feedback("rand_k", [=](auto o) {
    return c::rand_k{layers(), {.density = 0.1, .unbiased = false}, o};
  }));
  all.push_back(feedback("sign_sgd", [=](auto o) { return c::sign_sgd{layers(), {}, o}; }));
  all.push_back(feedback("one_bit", [=](auto o) { return c::one_bit{layers(), {}, o}; }));
  all.push_back(feedback("thc", [=](auto o) { return c::thc{layers(), {}, o}; }));
  all.push_back(feedback("int_sgd", [=](auto o) { return c::int_sgd{layers(), {}, o}; }));
  all.push_back(histograms());
  return all;
}

// ---- the driver

struct failure_case {
  std::size_t scenario;
  int workers, rank;
  std::size_t at;
  bool lasting;
};

class driver {
 public:
  explicit driver(std::vector<scenario> all) : all_(std::move(all)) {}

  /// Runs each scenario without failures, for its results and the number of its allocations.
  std::vector<failure_case> cases() {
    std::vector<failure_case> found;
    for (std::size_t s = 0; s < all_.size(); ++s)
      for (int n : all_[s].workers) {
        std::vector<support::allocation_failure> counts(static_cast<std::size_t>(n));
        all_[s].begin();
        expected_[{s, n}] = run(s, n, counts.data());
        for (int r = 0; r < n; ++r)
          for (std::size_t k = 0; k < counts[static_cast<std::size_t>(r)].seen; ++k)
            for (bool lasting : {false, true}) found.push_back({s, n, r, k, lasting});
      }
    return found;
  }

  void check(failure_case const& c) {
    scenario const& s = all_[c.scenario];
    SCOPED_TRACE(s.name + ", rank " + std::to_string(c.rank) + " of " + std::to_string(c.workers) +
                 ", allocation " + std::to_string(c.at) + (c.lasting ? " and later ones" : ""));
    auto const& expected = expected_.at({c.scenario, c.workers});
    std::vector<support::allocation_failure> failures(static_cast<std::size_t>(c.workers));
    failures[static_cast<std::size_t>(c.rank)].at = c.at;
    failures[static_cast<std::size_t>(c.rank)].lasting = c.lasting;
    s.begin();
    auto const began = std::chrono::steady_clock::now();
    bool failed = true;
    try {
      auto const got = run(c.scenario, c.workers, failures.data());
      failed = false;
      expect_same(got, expected);
    } catch (std::bad_alloc const&) {
      EXPECT_GT(c.workers, 1) << "the repeated step failed";
    } catch (gq::disagreement_error const& e) {  // another worker was told before the first message
      EXPECT_NE(std::string_view{e.what()}.find(" refused its arguments (out of memory)"),
                std::string_view::npos)
          << e.what();
    } catch (std::exception const& e) {
      ADD_FAILURE() << "another error than of memory: " << e.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, deadline) << "others waited for the deadline";
    if (!failed) return;
    // the same cluster again, and what outlives a run
    std::vector<support::allocation_failure> none(static_cast<std::size_t>(c.workers));
    expect_same(run(c.scenario, c.workers, none.data()), expected);
  }

 private:
  std::vector<values> run(std::size_t s, int n, support::allocation_failure* failures) {
    auto& cluster = clusters_.try_emplace(n, n, gq::transport::options{.deadline = deadline}).first->second;
    std::vector<values> results(static_cast<std::size_t>(n));
    cluster.run([&](endpoint& workers) {
      auto const r = static_cast<std::size_t>(workers.rank());
      workers.execution();  // made before: where Kokkos has no memory for an instance, it ends the process
      support::failing = &failures[r];
      results[r] = all_[s].body(workers, steps(failures[r], n == 1));
    });
    return results;
  }

  static void expect_same(std::vector<values> const& got, std::vector<values> const& expected) {
    for (std::size_t r = 0; r < got.size(); ++r) {
      ASSERT_EQ(got[r].size(), expected[r].size());
      EXPECT_EQ(std::memcmp(got[r].data(), expected[r].data(), got[r].size() * sizeof(float)), 0)
          << "other bits on worker " << r;
    }
  }

  std::vector<scenario> all_;
  std::map<int, gq::transport::threads> clusters_;
  std::map<std::pair<std::size_t, int>, std::vector<values>> expected_;
};

TEST(AllocationFailure, leaves_objects_usable_and_nobody_waiting) {
  constexpr std::size_t shards = 16;
  driver all{scenarios()};
  std::vector<failure_case> const cases = all.cases();
  char const* const asked = std::getenv("GLOBALQ_ALLOCATION_SHARD");
  std::string const which = asked == nullptr ? "" : asked;
  auto const day = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch();
  std::size_t const shard = which.empty()
                                ? static_cast<std::size_t>(day.count())
                                : static_cast<std::size_t>(std::strtoull(which.c_str(), nullptr, 10));
  // a step that has no divisor in common with the number of cases visits each of them once, far from the one before
  std::size_t stride = cases.size() * 5 / 8;
  while (std::gcd(stride, cases.size()) != 1) ++stride;
  auto const until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  std::size_t run = 0;
  for (std::size_t k = 0; k < cases.size(); ++k) {
    if (which != "all" && k % shards != shard % shards) continue;
    if (which.empty() && std::chrono::steady_clock::now() > until) break;
    ++run;
    all.check(cases[k * stride % cases.size()]);
  }
  std::printf("%zu of %zu cases, shard %s\n", run, cases.size(),
              which == "all" ? "all" : std::to_string(shard % shards).c_str());
  RecordProperty("cases", static_cast<int>(run));
  EXPECT_GT(run, 0U);
}

// ---- later calls

/// Allocations of f() by the calling thread.
template <class F>
std::size_t allocations_of(F const& f) {
  std::size_t const before = support::own_allocations;
  f();
  return support::own_allocations - before;
}

enum class kind { finite, zero, nan, large };
constexpr char const* kind_names[] = {"finite", "zero", "NaN", "large"};

template <class T>
std::vector<T> input_of(kind k, int rank, std::size_t n) {
  std::vector<T> x(n);
  values const drawn = input(rank, n);
  float const large = std::is_same_v<T, gq::float16> ? 65504.0F : 3e38F;
  for (std::size_t i = 0; i < n; ++i)
    x[i] = T(k == kind::zero ? 0.0F : k == kind::large ? large : drawn[i] / 1024);
  if (k == kind::nan && rank == 1) x[n / 2] = T(std::numeric_limits<float>::quiet_NaN());
  return x;
}

/// One call, then calls with values of all kinds: only the first may allocate.
/// @param prepare  prepare(x, y): what makes the call of a step
/// @param large    whether the first call with large values may
template <class T, class Prepare>
void expect_steady(endpoint& workers, std::string const& what, std::size_t n, Prepare const& prepare,
                   bool large = false) {
  std::vector<T> y(n);
  std::uint64_t step = 0;
  auto const allocations = [&](kind k) {
    std::vector<T> const x = input_of<T>(k, workers.rank(), n);
    auto const call = prepare(std::span<T const>(x), std::span<T>(y));
    return allocations_of([&] { call(step++); });
  };
  EXPECT_GT(allocations(kind::finite), 0U) << what;
  for (kind const k :
       {kind::finite, kind::nan, kind::large, kind::zero, kind::finite, kind::nan, kind::large}) {
    std::size_t const now = allocations(k);
    if (k == kind::large && std::exchange(large, false)) continue;
    EXPECT_EQ(now, 0U) << what << ", " << kind_names[static_cast<int>(k)] << " values of " << sizeof(T)
                       << " bytes, step " << step - 1;
  }
}

TEST(LaterCalls, allocate_nothing_whatever_the_values_and_watched_or_not) {
  gq::transport::threads cluster{3, {.deadline = deadline}};
  for (auto const& [op, schedule] : pairs())
    for (int watched : {0, 1, 2})
      cluster.run([&](endpoint& workers) {
        std::string const what = op + " over " + schedule +
                                 (watched == 0   ? ""
                                  : watched == 1 ? ", watched"
                                                 : ", errors");
        gq::telemetry seen{{.errors = watched == 2}};
        gq::options const settings{
            .seed = 1, .chunk_values = 1000, .telemetry = watched == 0 ? nullptr : &seen};
        auto const each = [&]<class T>(T) {
          gq::allreduce_mean mean{workers, operator_of(op), gq::schedule::any{schedule}, settings};
          auto const one = [&](auto x, auto y) { return [&mean, x, y](std::uint64_t k) { mean(x, y, k); }; };
          expect_steady<T>(workers, what, 3000, one);
          std::vector<T> x(300), y(300);
          EXPECT_EQ(allocations_of([&] { mean(x, y, 100); }), 0U) << what << ", shorter";
        };
        each(float{});
        each(gq::float16{});
        if (schedule == "native") return;
        gq::allreduce_mean mean{workers, operator_of(op), gq::schedule::any{schedule}, settings};
        auto const group = [&](auto x, auto y) {
          gq::vector_group both;
          both.add(x.first(2000), y.first(2000)).add(x.subspan(2000), y.subspan(2000));
          return [&mean, both](std::uint64_t k) { mean(both, 2 * k); };
        };
        // float32 values that might leave their range are what a group exchanges norms for, of all operators
        expect_steady<float>(workers, "group of " + what, 3000, group, op == "float32");
      });
}

TEST(LaterCalls, of_layers_shards_groups_of_workers_and_codecs_allocate_nothing) {
  gq::transport::threads cluster{3, {.deadline = deadline}};
  cluster.run([&](endpoint& workers) {
    gq::schedule::any const sra{"sra"};
    gq::adapt::model_layout const model = model_of_three();
    gq::adapt::layered_mean layered{
        workers, model, {operator_of("int8"), gq::uncompressed{}, operator_of("local")}, sra};
    expect_steady<float>(workers, "layered_mean", model.length(), [&](auto x, auto y) {
      return [&layered, x, y](std::uint64_t k) { layered(x, y, k); };
    });
    gq::reduce_scatter_mean scatter{workers, operator_of("int8"), {.seed = 1}};
    expect_steady<float>(workers, "reduce_scatter_mean", length, [&](auto x, auto y) {
      return [&scatter, x, y](std::uint64_t k) { scatter(x, y.first(scatter.shard(length).count), k); };
    });
    gq::all_gather gather{workers, operator_of("local"), {.seed = 1}};
    expect_steady<float>(workers, "all_gather", length, [&](auto x, auto y) {
      return [&gather, x, y](std::uint64_t k) { gather(x.first(gather.shard(length).count), y, k); };
    });
    gq::transport::group some{workers, {2, 0, 1}};
    gq::allreduce_mean mean{some, operator_of("int8"), sra, {.seed = 1}};
    expect_steady<float>(workers, "transport::group", length,
                         [&](auto x, auto y) { return [&mean, x, y](std::uint64_t k) { mean(x, y, k); }; });
    gq::baseline::error_feedback<gq::baseline::top_k> ef{gq::baseline::top_k{model, {.density = 0.1}}};
    expect_steady<float>(
        workers, "top_k over transport::group", model.length(),
        [&](auto x, auto y) { return [&ef, &some, x, y](std::uint64_t k) { ef.reduce(some, x, y, k); }; },
        true);
  });
  for (std::string const op : {"int8", "local", "sparse"}) {
    gq::vector_codec codec{operator_of(op), Kokkos::Serial()};
    values const x = input(0, length);
    values y(length);
    std::vector<std::byte> frame(codec.frame_bytes(length));
    auto const both = [&] {
      auto const used = codec.encode(x, {1, 2, 3}, frame);
      codec.decode(std::span<std::byte const>(frame).first(used), {1, 2, 3}, y);
    };
    both();
    EXPECT_EQ(allocations_of(both), 0U) << "vector_codec " << op;
  }
}

TEST(LaterCalls, that_are_started_allocate_nothing) {
  gq::transport::threads cluster{1};
  cluster.run([&](endpoint& workers) {
    gq::allreduce_mean mean{workers, operator_of("int8"), gq::schedule::any{"ring"}, {.seed = 1}};
    values const x = input(0, length);
    values y(length), z(length);
    auto const two = [&](std::uint64_t k) {
      auto const one = mean.start(x, y, k), other = mean.start(x, z, k + 1);
      one.wait();
      other.wait();
    };
    two(0);
    two(2);
    std::size_t const before = support::allocations;  // of the queue's thread as well
    two(4);
    EXPECT_EQ(support::allocations - before, 0U);
  });
}

template <class Make>
void expect_steady_feedback(std::string const& name, Make const& make) {
  for (int watched : {0, 1, 2}) {
    gq::transport::threads cluster{3, {.deadline = deadline}};
    cluster.run([&](endpoint& workers) {
      gq::telemetry seen{{.errors = watched == 2}};
      gq::baseline::error_feedback ef{
          make(gq::options{.seed = 1, .telemetry = watched == 0 ? nullptr : &seen})};
      expect_steady<float>(
          workers, name, ef.layers().length(),
          [&](auto x, auto y) {
            return [&ef, &workers, x, y](std::uint64_t k) { ef.reduce(workers, x, y, k); };
          },
          true);
    });
  }
}

TEST(LaterCalls, of_compressors_allocate_nothing) {
  namespace c = gq::baseline;
  auto const model = model_of_three();
  expect_steady_feedback("top_k", [&](auto settings) {
    return c::top_k{model, {.density = 0.01}, settings};
  });
  expect_steady_feedback("rand_k", [&](auto settings) {
    return c::rand_k{model, {.density = 0.1, .unbiased = false}, settings};
  });
  expect_steady_feedback("sign_sgd", [&](auto settings) { return c::sign_sgd{model, {}, settings}; });
  expect_steady_feedback("one_bit", [&](auto settings) { return c::one_bit{model, {}, settings}; });
  expect_steady_feedback("one_bit gather", [&](auto settings) {
    return c::one_bit{model, {.exchange = c::one_bit_exchange::gather}, settings};
  });
  expect_steady_feedback("thc", [&](auto settings) { return c::thc{model, {}, settings}; });
  expect_steady_feedback("int_sgd", [&](auto settings) { return c::int_sgd{model, {}, settings}; });
}

}  // namespace allocation_failure_test
