// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: the mean of the layers of a model, each with its own operator or compressor.

#include "call.hpp"
#include "compressors.hpp"
#include "preparation.hpp"

#include <globalq/train/adapt/layered_mean.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace globalq_c {
namespace {

/// Assigns layers of a mean to operators, or to compressors that layers with the same method share.
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
    auto found = std::find_if(compressors.begin(), compressors.end(), [&](compressor_parts const& c) {
      return c.how == by->how && c.bits == by->bits;
    });
    if (found == compressors.end()) found = compressors.insert(found, {by->how, by->bits});
    found->add(number, l, &*by);
  }

  /// PowerSGD can send float32 layers in its own messages: if there are no other layers, this saves one exchange.
  void join_plain_layers() {
    if (compressors.size() != 1 || compressors[0].how != gq::named::named_compressor::method::power_sgd)
      return;
    for (std::size_t k = 0; k < chosen.size(); ++k)
      if (chosen[k].op.facts().rounds() || quantized[k].type != gq::dtype::float32) return;
    compressor_parts all{compressors[0].how};
    for (std::size_t k = 0; k < model.size(); ++k) {
      auto const by = gq::named::read_compressor(names[k]);
      all.add(k, model[k], by ? &*by : nullptr);
      if (names[k].empty()) names[k] = "float32";
    }
    compressors[0] = std::move(all);
    quantized = {};
    chosen.clear();
    numbers.clear();
  }

  /// A hash of the compressors and operators. Workers compare it also in calls that use only some of them.
  std::uint64_t hash() const {
    std::uint64_t h = 0;
    for (std::string const& name : names) h = gq::detail::hash(h, std::string_view(name));
    for (choice const& c : chosen) h = gq::detail::hash(h, std::string_view(c.name));
    return h;
  }
};

class layered_call final : public globalq_call {
 public:
  template <class Space>
  layered_call(globalq_workers& w, layer_choices what, gq::learn::update_schedule const& learn_at,
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
      o.alike = what_.hash();
      if (o.warm_up != 0 || gq::detail::float32_forced()) {
        std::vector<gq::any_quantizer> const plain(what_.model.size(), gq::uncompressed{});
        plain_.emplace(workers, what_.model, plain, schedule, o, space);
      }
      for (compressor_parts& c : what_.compressors)
        compressors_.push_back(make_compressor(std::move(c), workers, on, o.call, schedule));
    }
    std::vector<gq::any_quantizer> operators;
    for (std::size_t k = 0; k < what_.chosen.size(); ++k) {
      choice const& c = what_.chosen[k];
      operators.push_back(prepared_operator(c.op, c.asked, learn_at));
      if (!c.asked.only_quantizes()) before_[k].emplace(c.asked, learn_at, on);
    }
    if (compressors_.size() != 1 || !operators.empty())
      mean_.emplace(workers, what_.quantized, operators, schedule, o, space);
    for (std::size_t k = 0; k < what_.numbers.size(); ++k) numbers_[what_.numbers[k]] = k;
  }
  void run(vectors all, std::uint64_t step) override {
    expect_memory_("globalq_call_run", all);
    if (compressors_.empty()) return run_quantized(all, step);
    gq::vector_group const& group = fill(group_, all);
    if (plain_ && (plain_->warms_up(step) || plain_->forced_to_float32())) return (*plain_)(group, step);
    auto& workers = *behind->endpoint;
    if (std::string const why = gq::adapt::detail::unlike_layout(what_.model, group); !why.empty())
      throw gq::configuration_error(
          gq::detail::worker_message("globalq_call_run", workers.rank(), workers.size(), why));
    std::uint64_t const before = seen.total().non_finite;
    // this call comes first, because it compares the operators of all layers
    if (mean_) {
      own_.clear();
      for (std::size_t const k : what_.numbers) own_.push_back(all[k]);
      run_quantized(own_, step);
    }
    // a NaN in one layer makes all layers NaN, and no compressor keeps the residual of such a step
    std::size_t done = 0;
    auto const undo = [&] {
      if (mean_) mean_->undo();
      while (done != 0) compressors_[--done]->undo();
    };
    auto const is_lost = [&] { return seen.total().non_finite != before; };
    bool lost = is_lost();
    try {
      for (; !lost && done < compressors_.size(); ++done) {
        gq::detail::informing(workers, [&] { compressors_[done]->run(group.members(), step); });
        if ((lost = is_lost())) break;
      }
    } catch (...) {
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
    gq::saved_state kept(behind->endpoint->size(), behind->endpoint->rank());
    if (mean_) kept.add(mean_->save());
    for (auto const& c : compressors_) kept.add(c->save());
    return saved_bytes(kept);
  }
  void load(std::vector<gq::saved_state> const& states) override {
    if (mean_) load_into(*mean_, states);
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
    (*mean_)(fill(quantized_, some, prepared), step);
  }

  layer_choices what_;
  std::vector<std::size_t> numbers_;                ///< index of each layer in `quantized`
  std::vector<std::optional<preparation>> before_;  ///< of these layers, if they are not only quantized
  std::optional<layered> mean_;
  std::optional<layered> plain_;  ///< of all layers, for steps without compression
  std::vector<std::unique_ptr<compressor>> compressors_;
  memory_check expect_memory_;
  std::vector<globalq_vector> own_;     ///< vectors of the layers without a compressor
  gq::vector_group group_, quantized_;  ///< of all layers, and of those without a compressor
};

layer_choices choices_of(std::span<globalq_layer const> layers, char const* usual) {
  constexpr char const* operation = "globalq_call_create";
  layer_choices what;
  for (globalq_layer const& l : layers) {
    std::uint64_t const* const shape =
        l.dimensions == 0 ? nullptr : &expect(operation, "shape of a layer", l.shape);
    gq::adapt::layer const added{&expect(operation, "name of a layer", l.name),
                                 {shape, shape + l.dimensions},
                                 0,
                                 0,
                                 type_of(operation, l.type)};
    char const* const by = l.operator_name == nullptr ? usual : l.operator_name;
    auto const compressed = by == nullptr ? std::nullopt : gq::named::read_compressor(by);
    what.add(added, compressed, compressed ? choice{} : choice_of(operation, by));
  }
  what.join_plain_layers();
  return what;
}

}  // namespace

std::unique_ptr<globalq_call> mean_of_layers(globalq_workers& w, globalq_settings const& s,
                                             std::span<globalq_layer const> layers,
                                             gq::learn::update_schedule const& learn_at,
                                             gq::schedule::any const& schedule, gq::options const& o) {
  return with_space(w, [&](auto const& space) -> std::unique_ptr<globalq_call> {
    return std::make_unique<layered_call>(
        w, choices_of(layers, s.operator_name), learn_at, schedule,
        gq::adapt::layered_options{
            .call = o, .warm_up = s.warm_up, .first = s.first_layer, .of = s.model_layers},
        s.measure_errors != 0, space);
  });
}

}  // namespace globalq_c
