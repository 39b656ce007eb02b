// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: calls: means of any vectors, of the layers of a model, and of shards.

#include "handles.hpp"
#include "preparation.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/adapt/layered_mean.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace {

namespace gq = globalq;

/// A vector without its type.
using vectors = std::span<globalq_vector const>;

}  // namespace

/// A call of any kind.
struct globalq_call {
  globalq_call(globalq_workers const& w, bool errors) : behind(w.behind), seen({.errors = errors}) {}
  globalq_call(globalq_call const&) = delete;
  globalq_call& operator=(globalq_call const&) = delete;
  virtual ~globalq_call() = default;
  virtual void run(vectors all, std::uint64_t step) = 0;
  virtual gq::segment shard(std::uint64_t length, int rank) const {
    static_cast<void>(length), static_cast<void>(rank);
    globalq_c::refuse("globalq_call_shard", "every worker gets the whole mean", "ask calls of shards");
  }
  virtual gq::plan plan(std::uint64_t length, gq::dtype type) const {
    static_cast<void>(length), static_cast<void>(type);
    globalq_c::refuse("globalq_call_plan", "shards are gathered in one step, which has no plan",
                      "ask a mean");
  }
  virtual char const* operator_name(std::size_t layer) const = 0;

  std::shared_ptr<globalq_c::link> behind;  ///< destroyed last
  gq::telemetry seen;
};

namespace globalq_c {
namespace {

/// An operator, and the schedule that it is meant for.
struct choice {
  gq::any_quantizer op = gq::uncompressed{};
  std::string schedule = "ring", name = "float32";
  gq::named::named_operator asked = {};
};
choice choice_of(char const* name) {
  if (name == nullptr) return {};
  gq::named::named_operator const found = gq::named::read_operator(name);
  gq::any_quantizer const op = gq::named::operator_of(found);
  return {op, found.schedule, op.facts().name, found};
}

void write_plan(char const* operation, gq::plan const& p, globalq_plan* to) {
  read(operation, "plan", to);
  if (!p.fits) throw gq::configuration_error(p.refusal);
  write(operation, "plan",
        globalq_plan{0, p.rounding_steps, p.levels, p.bytes_sent, p.bytes_are_most ? 1 : 0, p.bits_per_value,
                     p.theta, p.iterations_factor, p.workspace_bytes},
        to);
}

/// f(value of its type) of a vector whose type is known at run time.
template <class F>
void with_type(globalq_vector const& v, F const& f) {
  globalq_c::with_type("globalq_call_run", v.type, f);
}
/// Refuses what a call would read or write wrongly: no memory, or outputs that overlap anything but their own input.
void expect_memory(char const* operation, vectors all) {
  struct range {
    std::uintptr_t first, last;
    std::size_t of;
    bool written;
  };
  std::vector<range> ranges;
  for (std::size_t k = 0; k < all.size(); ++k) {
    globalq_vector const& v = all[k];
    std::uint64_t const bytes = v.length * gq::size_of(type_of(operation, v.type));
    if (v.length > std::uint64_t{1} << 48 || v.length == 0) continue;  // the former is refused by the call
    if (v.input == nullptr || v.output == nullptr)
      refuse(operation,
             "vector " + std::to_string(k) + " has " + std::to_string(v.length) + " values at NULL",
             "give input and output");
    auto const add = [&](void const* at, bool written) {
      auto const first = reinterpret_cast<std::uintptr_t>(at);
      ranges.push_back({first, first + bytes, k, written});
    };
    add(v.output, true);
    if (v.input != v.output) add(v.input, false);
  }
  std::sort(ranges.begin(), ranges.end(), [](range const& a, range const& b) { return a.first < b.first; });
  range const* written = nullptr;  // of those before, the outputs and inputs that reach furthest
  range const* read = nullptr;
  for (range const& r : ranges) {
    range const* const other = written != nullptr && written->last > r.first          ? written
                               : r.written && read != nullptr && read->last > r.first ? read
                                                                                      : nullptr;
    if (other != nullptr)
      refuse(operation,
             "vectors " + std::to_string(std::min(r.of, other->of)) + " and " +
                 std::to_string(std::max(r.of, other->of)) + " overlap where one is written",
             "give each output memory of its own; a vector in place has input == output");
    range const*& furthest = r.written ? written : read;
    if (furthest == nullptr || furthest->last < r.last) furthest = &r;
  }
}

template <class T>
std::span<T const> input_of(globalq_vector const& v, std::uint64_t length) {
  return {static_cast<T const*>(v.input), static_cast<std::size_t>(length)};
}
template <class T>
std::span<T> output_of(globalq_vector const& v, std::uint64_t length) {
  return {static_cast<T*>(v.output), static_cast<std::size_t>(length)};
}

/// @param prepared  prepared(number of a vector, its values): those that are averaged instead
template <class F>
gq::vector_group group_of(vectors all, F const& prepared) {
  gq::vector_group group;
  for (std::size_t k = 0; k < all.size(); ++k)
    with_type(all[k], [&]<class T>(T) {
      std::span<T const> const x = prepared(k, input_of<T>(all[k], all[k].length));
      auto const y = output_of<T>(all[k], all[k].length);
      group.add(x, y);
    });
  return group;
}

class mean_of_vectors final : public globalq_call {
 public:
  template <class Space>
  mean_of_vectors(globalq_workers& w, choice const& c, gq::learn::update_schedule const& learn_at,
                  gq::schedule::any const& schedule, gq::options o, bool errors, Space const& space)
      : globalq_call(w, errors), name_(c.name) {
    if (!c.asked.only_quantises()) before_.emplace(c.asked, learn_at, gq::kernel::host_executor(space));
    o.telemetry = &seen;
    mean_.emplace(*w.behind->endpoint, c.op, schedule, o, space);
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory("globalq_call_run", all);
    if (all.size() != 1) {
      if (before_)
        refuse("globalq_call_run",
               std::to_string(all.size()) + " vectors by an operator that clips or learns levels",
               "give one a call, or make the call with layers, each of which has levels of its own");
      return (*mean_)(group_of(all, [](std::size_t, auto x) { return x; }), step);
    }
    with_type(all[0], [&]<class T>(T) {
      auto x = input_of<T>(all[0], all[0].length);
      if (before_ && x.size() <= gq::adapt::layout::most) x = (*before_)(*behind->endpoint, x, step, *mean_);
      auto const y = output_of<T>(all[0], all[0].length);
      (*mean_)(x, y, step);
    });
  }
  gq::plan plan(std::uint64_t length, gq::dtype type) const override { return mean_->plan(length, type); }
  char const* operator_name(std::size_t) const override { return name_.c_str(); }

 private:
  std::string name_;
  std::optional<gq::allreduce_mean<>> mean_;
  std::optional<preparation> before_;
};

class mean_of_layers final : public globalq_call {
 public:
  template <class Space>
  mean_of_layers(globalq_workers& w, gq::adapt::layout model, std::vector<choice> const& chosen,
                 gq::learn::update_schedule const& learn_at, gq::schedule::any const& schedule,
                 gq::adapt::layered_options o, bool errors, Space const& space)
      : globalq_call(w, errors), before_(chosen.size()) {
    std::vector<gq::any_quantizer> operators;
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      operators.push_back(chosen[k].op);
      if (!chosen[k].asked.only_quantises())
        before_[k].emplace(chosen[k].asked, learn_at, gq::kernel::host_executor(space));
    }
    o.call.telemetry = &seen;
    mean_.emplace(*w.behind->endpoint, std::move(model), std::move(operators), schedule, o, space);
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory("globalq_call_run", all);
    auto const prepared = [&](std::size_t k, auto x) {  // the mean refuses what is unlike the layers
      return k < before_.size() && before_[k] && x.size() == mean_->model()[k].size
                 ? (*before_[k])(*behind->endpoint, x, step, levels_of_layer{*mean_, k})
                 : x;
    };
    (*mean_)(group_of(all, prepared), step);
  }
  gq::plan plan(std::uint64_t, gq::dtype) const override { return mean_->plan(); }
  char const* operator_name(std::size_t layer) const override { return mean_->operator_name(layer).c_str(); }

 private:
  using layered = gq::adapt::layered_mean<gq::transport::endpoint, gq::schedule::any>;
  struct levels_of_layer {
    layered& mean;
    std::size_t layer;
    void set_levels(auto const& changed) { mean.set_levels(layer, changed); }
  };

  std::optional<layered> mean_;
  std::vector<std::optional<preparation>> before_;  ///< of layers that are not only quantized
};

/// Shards: of one vector at a time.
template <class Call, bool Gathers>
class call_of_shards final : public globalq_call {
 public:
  template <class Space>
  call_of_shards(globalq_workers& w, choice const& c, gq::options o, bool errors, Space const& space)
      : globalq_call(w, errors), name_(c.name) {
    o.telemetry = &seen;
    call_.emplace(*w.behind->endpoint, c.op, o, space);
  }
  void run(vectors all, std::uint64_t step) override {
    if (all.size() != 1)
      refuse("globalq_call_run", std::to_string(all.size()) + " vectors of shards", "give one");
    globalq_vector const& v = all[0];
    bool const in_place = v.input == v.output;
    gq::segment const own = call_->shard(v.length);
    std::uint64_t const brought = Gathers && !in_place ? own.count : v.length,
                        got = Gathers || in_place ? v.length : own.count;
    if ((brought != 0 && v.input == nullptr) || (got != 0 && v.output == nullptr))
      refuse("globalq_call_run", std::to_string(std::max(brought, got)) + " values at NULL",
             "give input and output");
    with_type(v, [&]<class T>(T) {
      auto const whole = output_of<T>(v, v.length);
      if (in_place) return (*call_)(whole, step);
      auto const x = input_of<T>(v, brought);
      auto const y = output_of<T>(v, got);
      (*call_)(x, y, step);
    });
  }
  gq::segment shard(std::uint64_t length, int rank) const override { return call_->shard(length, rank); }
  gq::plan plan(std::uint64_t length, gq::dtype type) const override {
    if constexpr (Gathers)
      return globalq_call::plan(length, type);
    else
      return call_->plan(length, type);
  }
  char const* operator_name(std::size_t) const override { return name_.c_str(); }

 private:
  std::string name_;
  std::optional<Call> call_;
};
using scattered = call_of_shards<gq::reduce_scatter_mean<>, false>;
using gathered = call_of_shards<gq::all_gather<>, true>;

template <class Space>
std::unique_ptr<globalq_call> make(globalq_workers& w, globalq_kind kind, globalq_settings const& s,
                                   std::span<globalq_layer const> layers, Space const& space) {
  constexpr char const* operation = "globalq_call_create";
  choice const usual = choice_of(s.operator_name);
  gq::learn::update_schedule const learn_at =
      s.learn_at == nullptr ? gq::learn::update_schedule{} : gq::named::read_learn_at(s.learn_at);
  bool const errors = s.measure_errors != 0;
  gq::options const o{
      .seed = s.seed,
      .non_finite = s.fail_on_non_finite != 0 ? gq::non_finite::error : gq::non_finite::propagate};
  if (kind != GLOBALQ_MEAN && (!layers.empty() || s.schedule != nullptr))
    refuse(operation, "shards have neither layers nor a schedule of one's own", "leave both NULL");
  if (kind != GLOBALQ_MEAN && !usual.asked.only_quantises())
    refuse(operation,
           "operator \"" + std::string(s.operator_name) + "\" clips or learns levels, which means only do",
           "give it without clipping, or with levels of its own, such as \"alq:3,levels=0:0.1:1\"");
  gq::schedule::any const schedule{
      std::string_view(s.schedule == nullptr ? usual.schedule.c_str() : s.schedule)};
  if (layers.empty() && (s.warm_up != 0 || s.first_layer != 0 || s.model_layers != 0))
    refuse(operation, "warm_up, first_layer or model_layers without layers", "give layers");
  switch (kind) {
    case GLOBALQ_REDUCE_SCATTER:
      return std::make_unique<scattered>(w, usual, o, errors, space);
    case GLOBALQ_ALL_GATHER:
      return std::make_unique<gathered>(w, usual, o, errors, space);
    case GLOBALQ_MEAN:
      break;
    default:
      refuse(operation, "there is no kind " + std::to_string(static_cast<int>(kind)),
             "give one of globalq_kind");
  }
  if (layers.empty())
    return std::make_unique<mean_of_vectors>(w, usual, learn_at, schedule, o, errors, space);
  gq::adapt::layout model;
  std::vector<choice> chosen;
  for (globalq_layer const& l : layers) {
    std::uint64_t const* const shape =
        l.dimensions == 0 ? nullptr : &expect(operation, "shape of a layer", l.shape);
    model.add(&expect(operation, "name of a layer", l.name), {shape, shape + l.dimensions},
              type_of(operation, l.type));
    chosen.push_back(l.operator_name == nullptr ? usual : choice_of(l.operator_name));
  }
  return std::make_unique<mean_of_layers>(
      w, std::move(model), chosen, learn_at, schedule,
      gq::adapt::layered_options{
          .call = o, .warm_up = s.warm_up, .first = s.first_layer, .of = s.model_layers},
      errors, space);
}

}  // namespace
}  // namespace globalq_c

using namespace globalq_c;

globalq_status globalq_call_create(globalq_workers* workers, globalq_kind kind,
                                   globalq_settings const* settings, globalq_layer const* layers,
                                   size_t count, globalq_call** created) {
  constexpr char const* operation = "globalq_call_create";
  return guarded([&] {
    expect(operation, "created", created) = nullptr;
    globalq_workers& w = expect(operation, "workers", workers);
    globalq_settings const s = read(operation, "settings", settings);
    if (count != 0) expect(operation, "layers", layers);
    std::span const all(layers, count);
    // threads of one process would wait for each other on an instance that they share
    *created = (w.behind->one_of_many ? make(w, kind, s, all, Kokkos::Serial(Kokkos::NewInstance{}))
                                      : make(w, kind, s, all, Kokkos::DefaultHostExecutionSpace{}))
                   .release();
  });
}

globalq_status globalq_call_run(globalq_call* call, globalq_vector const* given, size_t count,
                                uint64_t step) {
  constexpr char const* operation = "globalq_call_run";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    if (count != 0) expect(operation, "vectors", given);
    if (c.behind->ended)
      refuse(operation, "the threads that this call belongs to have ended", "make it again in the next run");
    c.run({given, count}, step);
  });
}

globalq_status globalq_call_shard(globalq_call const* call, uint64_t length, int rank, uint64_t* first,
                                  uint64_t* count) {
  constexpr char const* operation = "globalq_call_shard";
  return guarded([&] {
    gq::segment const s = expect(operation, "call", call).shard(length, rank);
    expect(operation, "first", first) = s.first;
    expect(operation, "count", count) = s.count;
  });
}

globalq_status globalq_call_plan(globalq_call const* call, uint64_t length, globalq_type type,
                                 globalq_plan* plan) {
  constexpr char const* operation = "globalq_call_plan";
  return guarded([&] {
    write_plan(operation, expect(operation, "call", call).plan(length, type_of(operation, type)), plan);
  });
}

globalq_status globalq_plan_for(char const* operator_name, char const* schedule, int workers, uint64_t length,
                                globalq_type type, globalq_plan* plan) {
  constexpr char const* operation = "globalq_plan_for";
  return guarded([&] {
    choice const c = choice_of(operator_name);
    gq::schedule::any const way{std::string_view(schedule == nullptr ? c.schedule.c_str() : schedule)};
    write_plan(operation, gq::plan_for(c.op, way, workers, length, type_of(operation, type)), plan);
  });
}

char const* globalq_call_operator(globalq_call const* call, size_t layer) {
  char const* name = "";
  guarded([&] { name = expect("globalq_call_operator", "call", call).operator_name(layer); });
  return name;
}

globalq_status globalq_call_report(globalq_call* call, globalq_report* report) {
  constexpr char const* operation = "globalq_call_report";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    read(operation, "report", report);  // refused before the sum begins anew
    gq::call_report const r = c.seen.take();
    write(operation, "report",
          globalq_report{0, r.calls, r.failed, r.non_finite, r.non_finite_rank, r.uncompressed, r.values,
                         r.bytes_sent, r.seconds, r.in(gq::phase::norm), r.in(gq::phase::opening),
                         r.in(gq::phase::encode), r.in(gq::phase::reduce), r.in(gq::phase::decode),
                         r.in(gq::phase::transfer), r.normalised_error(), r.zero_fraction()},
          report);
  });
}

void globalq_call_destroy(globalq_call* call) { delete call; }
