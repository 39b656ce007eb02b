// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: operators of layers, chosen from their gradients: L-GreCo and CGX's k-means.

#include "handles.hpp"

#include <globalq/core/detail/hash.hpp>
#include <globalq/named/compressors.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/named/text.hpp>
#include <globalq/train/adapt/cgx.hpp>
#include <globalq/train/adapt/lgreco.hpp>
#include <globalq/train/adapt/quantizer_errors.hpp>
#include <globalq/train/adapt/selector.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

struct globalq_chooser {
  std::shared_ptr<globalq_c::link> behind;
  std::vector<std::string> candidates;
  std::optional<globalq::adapt::selector> choices;
};

namespace globalq_c {
namespace {

constexpr char const* creating = "globalq_chooser_create";

/// The reference with 2 to 8 bits and the bucket sizes of CGX; the reference is among them.
std::vector<std::string> variants_of(std::string const& reference) {
  gq::named::named_operator const given = gq::named::read_operator(reference);
  std::string with_commas = reference;
  std::replace(with_commas.begin(), with_commas.end(), ' ', ',');
  std::vector<std::string_view> const parts = gq::named::split(with_commas, ',');
  std::string_view const name = parts[0].substr(0, parts[0].find(':'));
  auto const all = gq::named::operators();
  auto const entry = std::find_if(all.begin(), all.end(), [&](auto const& e) { return e.name == name; });
  auto const has = [&](std::string_view parameter) {
    return entry != all.end() && std::any_of(entry->parameters.begin(), entry->parameters.end(),
                                             [&](auto const& p) { return p.name == parameter; });
  };
  if (!has("bits") || !has("bucket"))
    refuse(creating, "operator \"" + reference + "\" has no parameters bits and bucket to choose",
           "name candidates, or give a reference such as \"cgx:4\" or \"qsgd:4\"");
  std::vector<std::string> found;
  bool among = false;
  for (gq::adapt::bits_and_bucket const& c : gq::adapt::bits_and_buckets(2, 8, 64, 1024)) {
    std::string text = std::string(name) + ":" + std::to_string(c.bits) +
                       ",bucket=" + std::to_string(given.words.bucket == 0 ? 0 : c.bucket);
    for (std::size_t k = 1; k < parts.size(); ++k)
      if (!parts[k].starts_with("bits=") && !parts[k].starts_with("bucket="))
        text.append(",").append(parts[k]);
    gq::named::description const words = gq::named::read_operator(text).words;
    bool const same_bits = words.wire == given.words.wire && words.levels == given.words.levels;
    among = among || same_bits;
    found.push_back(same_bits ? reference : text);
  }
  if (!among)
    refuse(creating, "operator \"" + reference + "\" does not have 2 to 8 bits",
           "name candidates, including the reference");
  return found;
}

/// A compressor with the densities from a tenth to ten times that of the reference, or with half to twice its rank.
std::vector<std::string> variants_of(gq::named::named_compressor const& reference, std::string const& text) {
  std::vector<std::string> found;
  if (reference.how == gq::named::named_compressor::method::top_k) {
    std::string const bits = reference.bits == 32 ? "" : ",bits=" + std::to_string(reference.bits);
    for (double const density : gq::adapt::around(reference.density, 21, 10))
      if (density <= 1)
        found.push_back(density == reference.density ? text : "top-k:" + gq::named::shortest(density) + bits);
  } else {
    for (std::uint32_t const rank : gq::adapt::around(static_cast<std::uint32_t>(reference.rank)))
      if (rank <= 256)
        found.push_back(
            rank == static_cast<std::uint32_t>(reference.rank) ? text : "power-sgd:" + std::to_string(rank));
  }
  return found;
}

std::vector<std::string> candidates_of(globalq_chooser_settings const& s, std::string const& reference) {
  if (s.candidates == nullptr) {
    auto const by = gq::named::read_compressor(reference);
    return by ? variants_of(*by, reference) : variants_of(reference);
  }
  std::vector<std::string> found;
  for (std::string_view each : gq::named::split(s.candidates, ' '))
    if (!each.empty()) found.emplace_back(each);
  return found;
}

/// The index of an operator among the candidates.
std::uint32_t place_of(std::vector<std::string> const& candidates, std::string const& name,
                       std::string const& whose) {
  auto const at = std::find(candidates.begin(), candidates.end(), name);
  if (at == candidates.end()) {
    std::string all;
    for (std::string const& each : candidates) all.append(all.empty() ? "" : " ").append(each);
    refuse(creating, whose + " is \"" + name + "\", which is not a candidate", "the candidates are " + all);
  }
  return static_cast<std::uint32_t>(at - candidates.begin());
}

gq::adapt::rule rule_of(std::string_view name) {
  if (name == "lgreco") return gq::adapt::rule_of(gq::adapt::lgreco{});
  if (name == "kmeans") return gq::adapt::rule_of(gq::adapt::cgx_kmeans{});
  refuse(creating, "there is no rule \"" + std::string(name) + "\"", "give \"lgreco\" or \"kmeans\"");
}

/// The family of compressors of one method.
gq::adapt::family family_of(std::vector<std::string> const& candidates) {
  std::vector<double> densities;
  std::vector<std::uint32_t> ranks;
  int bits = 0;
  for (std::string const& name : candidates) {
    auto const by = gq::named::read_compressor(name);
    if (!by)
      refuse(creating, "\"" + name + "\" is no compressor, and others are",
             "give candidates of one method, such as \"top-k:0.01 top-k:0.1\"");
    if (by->how == gq::named::named_compressor::method::top_k) {
      if (int const before = std::exchange(bits, by->bits); before != 0 && before != bits)
        refuse(creating, "candidates of top-k have different bits", "give one number of bits to all");
      densities.push_back(by->density);
    } else {
      ranks.push_back(static_cast<std::uint32_t>(by->rank));
    }
  }
  if (!densities.empty() && !ranks.empty())
    refuse(creating, "candidates are of top-k and of power-sgd",
           "give candidates of one method, such as \"top-k:0.01 top-k:0.1\"");
  return ranks.empty() ? gq::adapt::top_k(std::move(densities)) : gq::adapt::low_rank(std::move(ranks));
}

/// The family of operators, whose error one worker can measure.
template <class Space>
gq::adapt::family family_of(std::vector<std::string> const& candidates, Space const& space) {
  std::vector<gq::any_quantizer> operators;
  for (std::string const& name : candidates) {
    gq::named::named_operator const asked = gq::named::read_operator(name);
    gq::any_quantizer const op = gq::named::operator_of(asked);
    gq::named::description const& words = asked.words;
    if (!asked.only_quantizes() || words.centered || words.feedback > 0 || !words.second.empty() ||
        op.facts().told_worker || !op.facts().rounds() || !op.facts().local)
      refuse(creating,
             "the error of operator \"" + name +
                 "\" cannot be measured by one worker: it clips, centers, learns levels, keeps residuals, "
                 "encodes sums otherwise, correlates roundings, shares norms or has no levels",
             "give candidates such as cgx, qsgd, nuqsgd and mxfp8");
    operators.push_back(op);
  }
  return gq::adapt::quantizers(operators, space);
}

template <class Space>
std::unique_ptr<globalq_chooser> make_chooser(globalq_workers& w, globalq_chooser_settings const& s,
                                              std::span<globalq_layer const> layers, Space const& space) {
  auto made = std::make_unique<globalq_chooser>();
  made->behind = w.behind;
  std::string const reference = s.reference == nullptr ? "cgx:4" : s.reference,
                    rule = s.rule == nullptr ? "lgreco" : s.rule;
  made->candidates = candidates_of(s, reference);
  bool const compresses = gq::named::read_compressor(reference).has_value();
  if (compresses && rule != "lgreco")
    refuse(creating, "the rule \"" + rule + "\" chooses bits, and \"" + reference + "\" has none",
           "use \"lgreco\"");
  gq::adapt::family of = compresses ? family_of(made->candidates) : family_of(made->candidates, space);
  std::uint64_t settings = gq::detail::hash(0, rule);
  for (std::string const& name : made->candidates) settings = gq::detail::hash(settings, name);
  gq::adapt::model_layout model;
  std::vector<std::uint32_t> begin;
  std::uint32_t const usual = place_of(made->candidates, reference, "the reference");
  for (globalq_layer const& l : layers) {
    std::uint64_t const* const shape =
        l.dimensions == 0 ? nullptr : &expect(creating, "shape of a layer", l.shape);
    char const* const name = &expect(creating, "name of a layer", l.name);
    model.add(name, {shape, shape + l.dimensions});
    begin.push_back(l.operator_name == nullptr ? usual
                                               : place_of(made->candidates, l.operator_name,
                                                          "the operator of layer " + std::string(name)));
    settings = gq::detail::hash(gq::detail::hash(settings, std::string_view(name)), l.dimensions);
    for (std::size_t d = 0; d < l.dimensions; ++d) settings = gq::detail::hash(settings, l.shape[d]);
    settings = gq::detail::hash(settings, begin.back());
  }
  made->choices.emplace(
      model, gq::adapt::selector_options{.of = std::move(of),
                                         .compress = nullptr,
                                         .reference = usual,
                                         .alpha = s.alpha == 0 ? 1 : s.alpha,
                                         .how = rule_of(rule),
                                         .settings = settings,
                                         .candidates = static_cast<std::uint32_t>(made->candidates.size())});
  made->choices->assign(std::move(begin));
  return made;
}

}  // namespace
}  // namespace globalq_c

using namespace globalq_c;

globalq_status globalq_chooser_create(globalq_workers* workers, globalq_chooser_settings const* settings,
                                      globalq_layer const* layers, size_t count, globalq_chooser** created) {
  return guarded([&] {
    expect(creating, "created", created) = nullptr;
    globalq_workers& w = expect(creating, "workers", workers);
    globalq_chooser_settings const s = read(creating, "settings", settings);
    if (count == 0) refuse(creating, "there are no layers", "pass the layers to choose operators for");
    expect(creating, "layers", layers);
    std::span const all(layers, count);
    *created = (w.behind->one_of_many ? make_chooser(w, s, all, Kokkos::Serial(Kokkos::NewInstance{}))
                                      : make_chooser(w, s, all, Kokkos::DefaultHostExecutionSpace{}))
                   .release();
  });
}

globalq_status globalq_chooser_add(globalq_chooser* chooser, size_t first, globalq_vector const* gradients,
                                   size_t count) {
  constexpr char const* operation = "globalq_chooser_add";
  return guarded([&] {
    globalq_chooser& c = expect(operation, "chooser", chooser);
    if (count != 0) expect(operation, "gradients", gradients);
    std::size_t const layers = c.choices->choices().size();
    if (first > layers || count > layers - first)
      refuse(operation,
             std::to_string(count) + " layers from layer " + std::to_string(first) + " on, and there are " +
                 std::to_string(layers),
             "use the indices of the layers that the chooser was created with");
    for (std::size_t k = 0; k < count; ++k) {
      globalq_vector const& v = gradients[k];
      if (v.length != 0 && v.input == nullptr)
        refuse(operation, std::to_string(v.length) + " values at NULL", "set input");
      with_type(operation, v.type, [&]<class T>(T) {
        c.choices->add(first + k,
                       std::span(static_cast<T const*>(v.input), static_cast<std::size_t>(v.length)));
      });
    }
  });
}

globalq_status globalq_chooser_choose(globalq_chooser* chooser, uint64_t step, int* changed) {
  constexpr char const* operation = "globalq_chooser_choose";
  return guarded([&] {
    globalq_chooser& c = expect(operation, "chooser", chooser);
    communicate_alike(operation, *c.behind, [&](gq::transport::endpoint& workers) {
      expect(operation, "changed", changed) = 0;
      std::vector<std::uint32_t> const before = c.choices->choices();
      c.choices->choose(workers, step);
      *changed = c.choices->choices() == before ? 0 : 1;
    });
  });
}

char const* globalq_chooser_operator(globalq_chooser const* chooser, size_t layer) {
  constexpr char const* operation = "globalq_chooser_operator";
  char const* name = "";
  guarded([&] {
    globalq_chooser const& c = expect(operation, "chooser", chooser);
    std::size_t const layers = c.choices->choices().size();
    if (layer >= layers)
      refuse(operation, "there is no layer " + std::to_string(layer),
             "there are " + std::to_string(layers) + " layers, counted from 0");
    name = c.candidates[c.choices->choices()[layer]].c_str();
  });
  return name;
}

void globalq_chooser_destroy(globalq_chooser* chooser) { delete chooser; }
