// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: globalq_advise().

#include "handles.hpp"

#include "../advise/advise.hpp"

#include <globalq/named/text.hpp>

#include <string_view>
#include <vector>

namespace globalq_c {
namespace {

constexpr char const* advise_operation = "globalq_advise";

/// Owns the texts of the last advice of each thread.
thread_local globalq_advisor::answer last_answer;

std::vector<float> values_of(globalq_vector const& v) {
  if (v.length != 0 && v.input == nullptr)
    refuse(advise_operation, std::to_string(v.length) + " values of a gradient at NULL", "pass input");
  std::vector<float> values;
  with_type(advise_operation, v.type, [&]<class T>(T) {
    for (T const x : std::span(static_cast<T const*>(v.input), static_cast<std::size_t>(v.length)))
      values.push_back(static_cast<float>(x));
  });
  return values;
}

std::vector<globalq_advisor::layer> layers_of(globalq_layer const* layers, std::size_t count) {
  std::vector<globalq_advisor::layer> found;
  for (globalq_layer const& l :
       std::span(count == 0 ? nullptr : &expect(advise_operation, "layers", layers), count)) {
    globalq_advisor::layer added{&expect(advise_operation, "name of a layer", l.name), 1};
    if (l.dimensions != 0) expect(advise_operation, "shape of a layer", l.shape);
    for (std::size_t d = 0; d < l.dimensions; ++d)
      if (__builtin_mul_overflow(added.length, l.shape[d], &added.length)) added.length = ~std::uint64_t{0};
    found.push_back(std::move(added));
  }
  return found;
}

globalq_advisor::request request_of(globalq_advice_settings const& s, globalq_layer const* layers,
                                    std::size_t count, globalq_vector const* gradient, int workers) {
  globalq_advisor::request asked;
  asked.layers = layers_of(layers, count);
  if (gradient != nullptr) asked.gradient = values_of(*gradient);
  if (count == 0 && gradient != nullptr) asked.layers.push_back({"gradient", gradient->length});
  if (s.max_error != 0) asked.max_error = s.max_error;
  if (s.max_bound != 0) asked.max_bound = s.max_bound;
  if (s.operators != nullptr)
    for (std::string_view const name : gq::named::split(s.operators, ' '))
      if (!name.empty()) asked.operators.emplace_back(name);
  if (s.bandwidth != 0)
    asked.network = globalq_advisor::network_of(s.count != 0 ? s.count : workers,
                                                s.latency == 0 ? 20e-6 : s.latency, s.bandwidth);
  return asked;
}

}  // namespace
}  // namespace globalq_c

using namespace globalq_c;

globalq_status globalq_advise(globalq_workers* workers, globalq_advice_settings const* settings,
                              globalq_layer const* layers, size_t count, globalq_vector const* gradient,
                              globalq_advice* advice) {
  return guarded([&] {
    globalq_advice_settings const s = read(advise_operation, "settings", settings);
    read(advise_operation, "advice", advice);
    auto const ask = [&](int size) { return request_of(s, layers, count, gradient, size); };
    if (workers == nullptr) {
      start_kokkos();
      last_answer = globalq_advisor::advise_here(s.count, ask(0));
    } else {
      communicate(advise_operation, *workers->behind,
                  [&](gq::transport::endpoint& link) { last_answer = globalq_advisor::advise(link, ask); });
    }
    globalq_advisor::answer const& a = last_answer;
    write(advise_operation, "advice",
          globalq_advice{0, a.operator_name.c_str(), a.schedule.c_str(), a.chunk_values, a.seconds,
                         a.float32_seconds, a.error, a.text.c_str(), a.json.c_str()},
          advice);
  });
}
