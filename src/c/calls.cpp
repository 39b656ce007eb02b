// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: calls: means of any vectors and of shards, other collectives, and the functions of globalq.h for calls of any kind.

#include "call.hpp"
#include "preparation.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/all_to_all.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/broadcast.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/named/compressors.hpp>
#include <globalq/named/learn_at.hpp>
#include <globalq/train/adapt/model_layout.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace globalq_c {

choice choice_of(char const* operation, char const* name) {
  if (name == nullptr) return {};
  if (gq::named::read_compressor(name))
    refuse(operation, "\"" + std::string(name) + "\" is a compressor, which keeps the residual of each layer",
           "use it for a layer of a mean, or create the mean with layers");
  gq::named::named_operator const found = gq::named::read_operator(name);
  gq::any_quantizer const op = gq::named::operator_of(found);
  return {op, found.schedule, op.facts().name, found};
}

void memory_check::operator()(char const* operation, vectors all) {
  ranges_.clear();
  for (std::size_t k = 0; k < all.size(); ++k) {
    globalq_vector const& v = all[k];
    std::size_t const size = gq::size_of(type_of(operation, v.type));
    if (v.length > std::uint64_t{1} << 48 || v.length == 0) continue;  // the call refuses longer vectors
    std::uint64_t const bytes = v.length * size;
    if (v.input == nullptr || v.output == nullptr)
      refuse(operation,
             "vector " + std::to_string(k) + " has " + std::to_string(v.length) + " values at NULL",
             "give input and output");
    auto const add = [&](void const* at, bool written) {
      auto const first = reinterpret_cast<std::uintptr_t>(at);
      ranges_.push_back({first, first + bytes, k, written});
    };
    add(v.output, true);
    if (v.input != v.output) add(v.input, false);
  }
  std::sort(ranges_.begin(), ranges_.end(), [](range const& a, range const& b) { return a.first < b.first; });
  range const* written = nullptr;  // of the previous ranges: the output and the input with the largest end
  range const* read = nullptr;
  for (range const& r : ranges_) {
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

namespace {

void write_plan(char const* operation, gq::plan const& p, globalq_plan* to) {
  read(operation, "plan", to);
  if (!p.fits) throw gq::configuration_error(p.refusal);
  write(operation, "plan",
        globalq_plan{0, p.rounding_steps, p.levels, p.bytes_sent, p.bytes_are_most ? 1 : 0, p.bits_per_value,
                     p.theta, p.iterations_factor, p.workspace_bytes},
        to);
}

class mean_of_vectors final : public globalq_call {
 public:
  template <class Space>
  mean_of_vectors(globalq_workers& w, choice const& c, gq::learn::update_schedule const& learn_at,
                  gq::schedule::any const& schedule, gq::options o, bool errors, Space const& space)
      : globalq_call(w, errors), name_(c.name) {
    if (!c.asked.only_quantizes()) before_.emplace(c.asked, learn_at, gq::kernel::host_executor(space));
    o.telemetry = &seen;
    mean_.emplace(*w.behind->endpoint, prepared_operator(c.op, c.asked, learn_at), schedule, o, space);
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory_("globalq_call_run", all);
    if (all.size() != 1) {
      if (before_)
        refuse("globalq_call_run",
               std::to_string(all.size()) + " vectors with an operator that clips or learns levels",
               "pass one per call, or create the call with layers, each of which has its own levels");
      return (*mean_)(fill(group_, all), step);
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
  std::vector<std::byte> save() const override { return saved_bytes(mean_->save()); }
  void load(std::vector<gq::saved_state> const& states) override { load_into(*mean_, states); }

 private:
  std::string name_;
  std::optional<gq::allreduce_mean<>> mean_;
  std::optional<preparation> before_;
  memory_check expect_memory_;
  gq::vector_group group_;
};

/// A call of shards; it takes one vector at a time.
template <class Call, bool Gathers>
class call_of_shards final : public globalq_call {
  static constexpr char const* operation = "globalq_call_run";

 public:
  template <class Space>
  call_of_shards(globalq_workers& w, choice const& c, gq::options o, bool errors, Space const& space)
      : globalq_call(w, errors), name_(c.name) {
    o.telemetry = &seen;
    call_.emplace(*w.behind->endpoint, c.op, o, space);
  }
  void run(vectors all, std::uint64_t step) override {
    if (all.size() != 1)
      refuse(operation, std::to_string(all.size()) + " vectors in a call of shards", "pass one per call");
    globalq_vector v = all[0];
    std::uint64_t const whole = v.length, own = call_->shard(whole).count;
    if (v.input == v.output) return run_shard(v, whole, step);
    if (Gathers) v.length = own;
    run_shard(v, Gathers ? whole : own, step);
  }
  void run_shard(globalq_vector const& v, std::uint64_t output_length, std::uint64_t step) override {
    if ((v.length != 0 && v.input == nullptr) || (output_length != 0 && v.output == nullptr))
      refuse(operation, std::to_string(std::max(v.length, output_length)) + " values at NULL",
             "give input and output");
    with_type(v, [&]<class T>(T) {
      auto const x = input_of<T>(v, v.length);
      auto const y = output_of<T>(v, output_length);
      if (x.data() == y.data() && x.size() == y.size())
        (*call_)(y, step);
      else
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
  std::vector<std::byte> save() const override { return saved_bytes(call_->save()); }
  void load(std::vector<gq::saved_state> const& states) override { load_into(*call_, states); }

 private:
  std::string name_;
  std::optional<Call> call_;
};
using scattered = call_of_shards<gq::reduce_scatter_mean<>, false>;
using gathered = call_of_shards<gq::all_gather<>, true>;

/// A call of one vector that is no mean: broadcast or all_to_all.
template <class Call>
class call_of_vector final : public globalq_call {
 public:
  /// @param make  constructs the call in place, with options
  template <class Make>
  call_of_vector(globalq_workers& w, choice const& c, gq::options o, bool errors, Make const& make)
      : globalq_call(w, errors), name_(c.name) {
    o.telemetry = &seen;
    make(call_, o);
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory_("globalq_call_run", all);
    if (all.size() != 1)
      refuse("globalq_call_run", std::to_string(all.size()) + " vectors in a call that is no mean",
             "pass one per call");
    with_type(all[0], [&]<class T>(T) {
      (*call_)(input_of<T>(all[0], all[0].length), output_of<T>(all[0], all[0].length), step);
    });
  }
  char const* operator_name(std::size_t) const override { return name_.c_str(); }
  std::vector<std::byte> save() const override { return saved_bytes(call_->save()); }
  void load(std::vector<gq::saved_state> const& states) override { load_into(*call_, states); }

 private:
  std::string name_;
  std::optional<Call> call_;
  memory_check expect_memory_;
};

template <class Shards>
std::unique_ptr<globalq_call> make_shards(globalq_workers& w, choice const& c, gq::options const& o,
                                          bool errors) {
  return with_space(w, [&](auto const& space) -> std::unique_ptr<globalq_call> {
    return std::make_unique<Shards>(w, c, o, errors, space);
  });
}

std::unique_ptr<globalq_call> make(globalq_workers& w, globalq_kind kind, globalq_settings const& s,
                                   std::span<globalq_layer const> layers) {
  constexpr char const* operation = "globalq_call_create";
  bool const compresses = !layers.empty() && s.operator_name != nullptr &&
                          gq::named::read_compressor(s.operator_name).has_value();
  choice const usual = compresses ? choice{.schedule = "sra"} : choice_of(operation, s.operator_name);
  gq::learn::update_schedule const learn_at =
      s.learn_at == nullptr ? gq::learn::update_schedule{} : gq::named::read_learn_at(s.learn_at);
  bool const errors = s.measure_errors != 0;
  gq::options const o{
      .seed = s.seed,
      .non_finite = s.fail_on_non_finite != 0 ? gq::non_finite::error : gq::non_finite::propagate,
      .chunk_values = s.chunk_values};
  if (kind != GLOBALQ_MEAN && (!layers.empty() || s.schedule != nullptr))
    refuse(operation, "only means take layers and a schedule", "leave both NULL");
  if ((kind == GLOBALQ_REDUCE_SCATTER || kind == GLOBALQ_ALL_GATHER) && s.chunk_values != 0)
    refuse(operation, "calls of shards have no chunks", "set chunk_values to 0");
  if (kind != GLOBALQ_BROADCAST && s.root != 0)
    refuse(operation, "root is " + std::to_string(s.root) + ", and only GLOBALQ_BROADCAST has one",
           "set it to 0");
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
      return make_shards<scattered>(w, usual, o, errors);
    case GLOBALQ_ALL_GATHER:
      return make_shards<gathered>(w, usual, o, errors);
    case GLOBALQ_BROADCAST:
      return with_space(w, [&](auto const& space) -> std::unique_ptr<globalq_call> {
        return std::make_unique<call_of_vector<gq::broadcast<>>>(
            w, usual, o, errors, [&](auto& call, auto const& with) {
              call.emplace(*w.behind->endpoint, usual.op, s.root, with, space);
            });
      });
    case GLOBALQ_ALL_TO_ALL:
      return with_space(w, [&](auto const& space) -> std::unique_ptr<globalq_call> {
        return std::make_unique<call_of_vector<gq::all_to_all>>(
            w, usual, o, errors,
            [&](auto& call, auto const& with) { call.emplace(*w.behind->endpoint, usual.op, with, space); });
      });
    case GLOBALQ_MEAN:
      break;
    default:
      refuse(operation, "there is no kind " + std::to_string(static_cast<int>(kind)),
             "use one of globalq_kind");
  }
  if (!layers.empty()) return mean_of_layers(w, s, layers, learn_at, schedule, o);
  return with_space(w, [&](auto const& space) -> std::unique_ptr<globalq_call> {
    return std::make_unique<mean_of_vectors>(w, usual, learn_at, schedule, o, errors, space);
  });
}

/// @throws configuration_error for bytes at NULL, frame_error for bytes that save() did not write
gq::saved_state parsed(char const* operation, globalq_bytes const& b) {
  if (b.bytes == nullptr)
    refuse(operation, std::to_string(b.size) + " bytes of a state at NULL", "pass the saved bytes");
  return gq::saved_state::parse({static_cast<std::byte const*>(b.bytes), b.size});
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
    *created = make(w, kind, s, {layers, count}).release();
  });
}

globalq_status globalq_call_run(globalq_call* call, globalq_vector const* given, size_t count,
                                uint64_t step) {
  constexpr char const* operation = "globalq_call_run";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    communicate_alike(operation, *c.behind, [&](auto&) {
      if (count != 0) expect(operation, "vectors", given);
      c.saved = {};
      c.run({given, count}, step);
    });
  });
}

globalq_status globalq_call_run_shard(globalq_call* call, void const* input, uint64_t input_length,
                                      void* output, uint64_t output_length, globalq_type type,
                                      uint64_t step) {
  constexpr char const* operation = "globalq_call_run_shard";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    communicate_alike(operation, *c.behind, [&](auto&) {
      c.run_shard({input, output, input_length, type}, output_length, step);
    });
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
    globalq_call const& c = expect(operation, "call", call);
    turn const mine(operation, *c.behind);
    write_plan(operation, c.plan(length, type_of(operation, type)), plan);
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
    turn const mine(operation, *c.behind);
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
    globalq_call const& c = expect(operation, "call", call);
    turn const mine(operation, *c.behind);
    std::vector<std::byte>& kept = c.saved;
    std::size_t& room = expect(operation, "size", size);
    if (kept.empty()) kept = c.save();
    std::size_t const given = std::exchange(room, kept.size());
    if (bytes == nullptr || given < kept.size()) return;
    if (!kept.empty()) std::memcpy(bytes, kept.data(), kept.size());
    kept = {};
  });
}

globalq_status globalq_call_load(globalq_call* call, globalq_bytes const* states, size_t count) {
  constexpr char const* operation = "globalq_call_load";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    turn const mine(operation, *c.behind);
    std::vector<gq::saved_state> of_workers;
    for (globalq_bytes const& b :
         std::span(count == 0 ? nullptr : &expect(operation, "states", states), count)) {
      if (b.size == 0) continue;
      auto one = parsed(operation, b);
      auto const same = std::find_if(of_workers.begin(), of_workers.end(), [&](gq::saved_state const& s) {
        return s.rank() == one.rank() && s.workers() == one.workers();
      });
      if (same == of_workers.end())
        of_workers.push_back(std::move(one));
      else
        same->add(one);
    }
    c.saved = {};
    c.load(of_workers);
  });
}

globalq_status globalq_call_load_own(globalq_call* call, globalq_bytes const* state) {
  constexpr char const* operation = "globalq_call_load_own";
  return guarded([&] {
    globalq_call& c = expect(operation, "call", call);
    turn const mine(operation, *c.behind);
    globalq_bytes const& b = expect(operation, "state", state);
    c.saved = {};
    if (b.size != 0)
      c.load({parsed(operation, b).moved(c.behind->endpoint->size(), c.behind->endpoint->rank())});
  });
}

void globalq_call_destroy(globalq_call* call) { delete call; }
