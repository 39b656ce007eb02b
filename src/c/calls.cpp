// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: calls: means of any vectors, of the layers of a model, and of shards.

#include "compressors.hpp"
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
    globalq_c::refuse("globalq_call_shard", "the call returns the whole mean to every worker",
                      "use a call of kind GLOBALQ_REDUCE_SCATTER or GLOBALQ_ALL_GATHER");
  }
  virtual gq::plan plan(std::uint64_t length, gq::dtype type) const {
    static_cast<void>(length), static_cast<void>(type);
    globalq_c::refuse("globalq_call_plan", "gathering shards takes one step, which has no plan",
                      "use a call of kind GLOBALQ_MEAN or GLOBALQ_REDUCE_SCATTER");
  }
  virtual char const* operator_name(std::size_t layer) const = 0;
  virtual std::vector<std::byte> save() const { return {}; }
  virtual void load(std::vector<gq::baseline::state> const& states) { static_cast<void>(states); }

  std::shared_ptr<globalq_c::link> behind;  ///< destroyed last
  gq::telemetry seen;
};

namespace globalq_c {
namespace {

/// An operator and its default schedule.
struct choice {
  gq::any_quantizer op = gq::uncompressed{};
  std::string schedule = "ring", name = "float32";
  gq::named::named_operator asked = {};
};
choice choice_of(char const* operation, char const* name) {
  if (name == nullptr) return {};
  if (gq::named::read_compressor(name))
    refuse(operation, "\"" + std::string(name) + "\" is a compressor, which keeps the residual of each layer",
           "use it for a layer of a mean, or create the mean with layers");
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

/// Calls f with a value of the type of a vector, which is known at run time.
template <class F>
void with_type(globalq_vector const& v, F const& f) {
  globalq_c::with_type("globalq_call_run", v.type, f);
}
/// Refuses NULL memory, and outputs that overlap anything but their own input.
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
    if (v.length > std::uint64_t{1} << 48 || v.length == 0) continue;  // the call refuses longer vectors
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
  range const* written = nullptr;  // of the previous ranges: the output and the input with the largest end
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

/// @param prepared  prepared(index of a vector, its values) returns the values to average instead
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

gq::vector_group group_of(vectors all) {
  return group_of(all, [](std::size_t, auto x) { return x; });
}

class mean_of_vectors final : public globalq_call {
 public:
  template <class Space>
  mean_of_vectors(globalq_workers& w, choice const& c, gq::learn::update_schedule const& learn_at,
                  gq::schedule::any const& schedule, gq::options o, bool errors, Space const& space)
      : globalq_call(w, errors), name_(c.name) {
    if (!c.asked.only_quantizes()) before_.emplace(c.asked, learn_at, gq::kernel::host_executor(space));
    o.telemetry = &seen;
    mean_.emplace(*w.behind->endpoint, c.op, schedule, o, space);
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory("globalq_call_run", all);
    if (all.size() != 1) {
      if (before_)
        refuse("globalq_call_run",
               std::to_string(all.size()) + " vectors with an operator that clips or learns levels",
               "pass one per call, or create the call with layers, each of which has its own levels");
      return (*mean_)(group_of(all), step);
    }
    with_type(all[0], [&]<class T>(T) {
      auto x = input_of<T>(all[0], all[0].length);
      if (before_ && x.size() <= gq::adapt::model_layout::most)
        x = (*before_)(*behind->endpoint, x, step, *mean_);
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

/// Assigns layers of a mean to operators, or to compressors that layers with the same parameters share.
struct layer_choices {
  gq::adapt::model_layout model, quantized;
  std::vector<choice> chosen;        ///< of the layers in `quantized`
  std::vector<std::size_t> numbers;  ///< their indices among all layers
  std::vector<std::string> names;    ///< compressor of each layer; empty for operators
  std::vector<compressor_parts> compressors;

  void add(gq::adapt::layer const& l, std::optional<gq::named::named_compressor> const& by,
           choice const& op) {
    std::size_t const number = model.size();
    model.add(l.name, l.shape, l.type);
    names.push_back(by ? by->name : "");
    if (!by) {
      quantized.add(l.name, l.shape, l.type);
      chosen.push_back(op);
      numbers.push_back(number);
      return;
    }
    auto found = std::find_if(compressors.begin(), compressors.end(),
                              [&](compressor_parts const& c) { return c.how.name == by->name; });
    if (found == compressors.end()) found = compressors.insert(found, {*by});
    found->add(number, l);
  }

  /// PowerSGD can send float32 layers in its own messages: if there are no other layers, this saves one exchange.
  void join_plain_layers() {
    if (compressors.size() != 1 || compressors[0].how.how != gq::named::named_compressor::method::power_sgd)
      return;
    for (std::size_t k = 0; k < chosen.size(); ++k)
      if (!chosen[k].op.facts().plain || quantized[k].type != gq::dtype::float32) return;
    compressor_parts all{compressors[0].how};
    for (std::size_t k = 0; k < model.size(); ++k) {
      all.add(k, model[k], names[k].empty());
      if (names[k].empty()) names[k] = "float32";
    }
    compressors[0] = std::move(all);
    quantized = {};
    chosen.clear();
    numbers.clear();
  }

  /// A hash of the compressors, which workers compare in addition to the operators.
  std::uint64_t hash() const {
    std::uint64_t h = 0;
    for (std::string const& name : names) h = gq::detail::hash(h, std::string_view(name));
    return h;
  }
};

class mean_of_layers final : public globalq_call {
 public:
  template <class Space>
  mean_of_layers(globalq_workers& w, layer_choices what, gq::learn::update_schedule const& learn_at,
                 gq::schedule::any const& schedule, gq::adapt::layered_options o, bool errors,
                 Space const& space)
      : globalq_call(w, errors),
        what_(std::move(what)),
        numbers_(what_.model.size()),
        before_(what_.chosen.size()) {
    gq::kernel::host_executor const on(space);
    auto& workers = *w.behind->endpoint;
    o.call.telemetry = &seen;
    o.of = std::max<std::uint64_t>(o.of, what_.model.size());
    if (!what_.compressors.empty()) {
      std::vector<gq::any_quantizer> const plain(what_.model.size(), gq::uncompressed{});
      plain_.emplace(workers, what_.model, plain, schedule, o, space);
      o.alike = what_.hash();
      for (compressor_parts& c : what_.compressors)
        compressors_.push_back(make_compressor(std::move(c), workers, on, o.call, schedule));
    }
    std::vector<gq::any_quantizer> operators;
    for (std::size_t k = 0; k < what_.chosen.size(); ++k) {
      choice const& c = what_.chosen[k];
      operators.push_back(c.op);
      if (!c.asked.only_quantizes()) before_[k].emplace(c.asked, learn_at, on);
    }
    if (compressors_.size() != 1 || !operators.empty())
      mean_.emplace(workers, what_.quantized, operators, schedule, o, space);
    for (std::size_t k = 0; k < what_.numbers.size(); ++k) numbers_[what_.numbers[k]] = k;
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory("globalq_call_run", all);
    if (compressors_.empty()) return run_quantized(all, step);
    gq::vector_group const group = group_of(all);
    if (plain_->warms_up(step) || plain_->forced_to_float32()) return (*plain_)(group, step);
    auto& workers = *behind->endpoint;
    if (std::string const why = gq::adapt::detail::unlike_layout(what_.model, group); !why.empty()) {
      gq::detail::share_refusal(workers, why);
      throw gq::configuration_error(
          gq::detail::worker_message("globalq_call_run", workers.rank(), workers.size(), why));
    }
    std::uint64_t const before = seen.total().non_finite;
    // this call comes first, because it compares the operators of all layers
    if (mean_) {
      std::vector<globalq_vector> own;
      for (std::size_t const k : what_.numbers) own.push_back(all[k]);
      run_quantized(own, step);
    }
    // a NaN in one layer makes all layers NaN, and no compressor keeps the residual of such a step
    std::size_t done = 0;
    auto const undo = [&] {
      while (done != 0) compressors_[--done]->undo();
    };
    auto const is_lost = [&] { return seen.total().non_finite != before; };
    bool lost = is_lost();
    try {
      for (; !lost && done < compressors_.size(); ++done) {
        compressors_[done]->run(group.members(), step);
        if ((lost = is_lost())) break;
      }
    } catch (gq::non_finite_error const&) {
      undo();
      throw;
    }
    if (!lost) return;
    undo();
    for (auto const& m : group.members()) gq::fill(m.y, m.length, true);
  }
  gq::plan plan(std::uint64_t, gq::dtype) const override {
    if (!compressors_.empty())
      refuse("globalq_call_plan", "compressors have no plan", "read the bytes from a report");
    return mean_->plan();
  }
  char const* operator_name(std::size_t layer) const override {
    if (layer >= numbers_.size())
      refuse("globalq_call_operator", "there is no layer " + std::to_string(layer),
             "there are " + std::to_string(numbers_.size()) + " layers, counted from 0");
    if (std::string const& name = what_.names[layer]; !name.empty()) return name.c_str();
    return mean_->operator_name(numbers_[layer]).c_str();
  }
  std::vector<std::byte> save() const override {
    if (compressors_.empty()) return {};
    gq::baseline::state kept(behind->endpoint->size(), behind->endpoint->rank());
    for (auto const& c : compressors_) kept.add(c->save());
    return kept.bytes();
  }
  void load(std::vector<gq::baseline::state> const& states) override {
    for (auto const& c : compressors_) c->load(states);
  }

 private:
  using layered = gq::adapt::layered_mean<gq::transport::endpoint, gq::schedule::any>;
  struct levels_of_layer {
    layered& mean;
    std::size_t layer;
    void set_levels(auto const& changed) { mean.set_levels(layer, changed); }
  };

  /// @param some  vectors of the layers without a compressor
  void run_quantized(vectors some, std::uint64_t step) {
    auto const prepared = [&](std::size_t k, auto x) {  // the mean refuses unlike vectors
      return k < before_.size() && before_[k] && x.size() == mean_->model()[k].size
                 ? (*before_[k])(*behind->endpoint, x, step, levels_of_layer{*mean_, k})
                 : x;
    };
    (*mean_)(group_of(some, prepared), step);
  }

  layer_choices what_;
  std::vector<std::size_t> numbers_;                ///< index of each layer in `quantized`
  std::vector<std::optional<preparation>> before_;  ///< of these layers, if they are not only quantized
  std::optional<layered> mean_;
  std::optional<layered> plain_;  ///< of all layers, for steps without compression
  std::vector<std::unique_ptr<compressor>> compressors_;
};

/// A call of shards; it takes one vector at a time.
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
      refuse("globalq_call_run", std::to_string(all.size()) + " vectors in a call of shards",
             "pass one per call");
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
  bool const compresses = !layers.empty() && s.operator_name != nullptr &&
                          gq::named::read_compressor(s.operator_name).has_value();
  choice const usual = compresses ? choice{.schedule = "sra"} : choice_of(operation, s.operator_name);
  gq::learn::update_schedule const learn_at =
      s.learn_at == nullptr ? gq::learn::update_schedule{} : gq::named::read_learn_at(s.learn_at);
  bool const errors = s.measure_errors != 0;
  gq::options const o{
      .seed = s.seed,
      .non_finite = s.fail_on_non_finite != 0 ? gq::non_finite::error : gq::non_finite::propagate};
  if (kind != GLOBALQ_MEAN && (!layers.empty() || s.schedule != nullptr))
    refuse(operation, "calls of shards take no layers and no schedule", "leave both NULL");
  if (kind != GLOBALQ_MEAN && !usual.asked.only_quantizes())
    refuse(
        operation,
        "operator \"" + std::string(s.operator_name) + "\" clips or learns levels, which only means support",
        "use it without clipping, or with given levels, such as \"alq:3,levels=0:0.1:1\"");
  gq::schedule::any const schedule{
      std::string_view(s.schedule == nullptr ? usual.schedule.c_str() : s.schedule)};
  if (layers.empty() && (s.warm_up != 0 || s.first_layer != 0 || s.model_layers != 0))
    refuse(operation, "warm_up, first_layer or model_layers is set without layers", "pass layers");
  switch (kind) {
    case GLOBALQ_REDUCE_SCATTER:
      return std::make_unique<scattered>(w, usual, o, errors, space);
    case GLOBALQ_ALL_GATHER:
      return std::make_unique<gathered>(w, usual, o, errors, space);
    case GLOBALQ_MEAN:
      break;
    default:
      refuse(operation, "there is no kind " + std::to_string(static_cast<int>(kind)),
             "use one of globalq_kind");
  }
  if (layers.empty())
    return std::make_unique<mean_of_vectors>(w, usual, learn_at, schedule, o, errors, space);
  layer_choices what;
  for (globalq_layer const& l : layers) {
    std::uint64_t const* const shape =
        l.dimensions == 0 ? nullptr : &expect(operation, "shape of a layer", l.shape);
    gq::adapt::layer const added{&expect(operation, "name of a layer", l.name),
                                 {shape, shape + l.dimensions},
                                 0,
                                 0,
                                 type_of(operation, l.type)};
    char const* const by = l.operator_name == nullptr ? s.operator_name : l.operator_name;
    auto const compressed = by == nullptr ? std::nullopt : gq::named::read_compressor(by);
    what.add(added, compressed, compressed ? choice{} : choice_of(operation, by));
  }
  what.join_plain_layers();
  return std::make_unique<mean_of_layers>(
      w, std::move(what), learn_at, schedule,
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
    // threads of one process would wait for each other if they shared an instance
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
      refuse(operation, "the threads that this call belongs to have ended",
             "create it again in the next run");
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
    choice const c = choice_of(operation, operator_name);
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
    read(operation, "report", report);  // validate before take() resets the sum
    gq::call_report const r = c.seen.take();
    write(operation, "report",
          globalq_report{0, r.calls, r.failed, r.non_finite, r.non_finite_rank, r.uncompressed, r.values,
                         r.bytes_sent, r.seconds, r.in(gq::phase::norm), r.in(gq::phase::opening),
                         r.in(gq::phase::encode), r.in(gq::phase::reduce), r.in(gq::phase::decode),
                         r.in(gq::phase::transfer), r.normalized_error(), r.zero_fraction()},
          report);
  });
}

globalq_status globalq_call_save(globalq_call const* call, void* bytes, size_t* size) {
  constexpr char const* operation = "globalq_call_save";
  return guarded([&] {
    std::vector<std::byte> const kept = expect(operation, "call", call).save();
    std::size_t const room = std::exchange(expect(operation, "size", size), kept.size());
    if (bytes != nullptr && room >= kept.size() && !kept.empty())
      std::memcpy(bytes, kept.data(), kept.size());
  });
}

globalq_status globalq_call_load(globalq_call* call, globalq_bytes const* states, size_t count) {
  constexpr char const* operation = "globalq_call_load";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    std::vector<gq::baseline::state> of_workers;
    for (globalq_bytes const& b :
         std::span(count == 0 ? nullptr : &expect(operation, "states", states), count)) {
      if (b.size == 0) continue;
      if (b.bytes == nullptr)
        refuse(operation, std::to_string(b.size) + " bytes of a state at NULL", "pass the saved bytes");
      auto one = gq::baseline::state::parse({static_cast<std::byte const*>(b.bytes), b.size});
      auto const same = std::find_if(of_workers.begin(), of_workers.end(), [&](gq::baseline::state const& s) {
        return s.rank() == one.rank() && s.workers() == one.workers();
      });
      if (same == of_workers.end())
        of_workers.push_back(std::move(one));
      else
        same->add(one);
    }
    c.load(of_workers);
  });
}

void globalq_call_destroy(globalq_call* call) { delete call; }
