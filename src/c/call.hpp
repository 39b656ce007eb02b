// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief c: the base of all calls, and what their implementations share.

#include "handles.hpp"

#include <globalq/call/options.hpp>
#include <globalq/call/vector_group.hpp>
#include <globalq/core/saved_state.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/telemetry/telemetry.hpp>
#include <globalq/train/learn/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace globalq_c {

/// Vectors whose types are known at run time.
using vectors = std::span<globalq_vector const>;

}  // namespace globalq_c

/// A call of any kind.
struct globalq_call {
  globalq_call(globalq_workers const& w, bool errors) : behind(w.behind), seen({.errors = errors}) {}
  globalq_call(globalq_call const&) = delete;
  globalq_call& operator=(globalq_call const&) = delete;
  virtual ~globalq_call() = default;
  virtual void run(globalq_c::vectors all, std::uint64_t step) = 0;
  /// A call of shards whose vectors have lengths of their own; see globalq_call_run_shard().
  virtual void run_shard(globalq_vector const& of, std::uint64_t output_length, std::uint64_t step) {
    static_cast<void>(of), static_cast<void>(output_length), static_cast<void>(step);
    globalq_c::refuse("globalq_call_run_shard", "the call has no shards", "use globalq_call_run");
  }
  virtual globalq::segment shard(std::uint64_t length, int rank) const {
    static_cast<void>(length), static_cast<void>(rank);
    globalq_c::refuse("globalq_call_shard", "the call has no shards",
                      "use a call of kind GLOBALQ_REDUCE_SCATTER or GLOBALQ_ALL_GATHER");
  }
  virtual globalq::plan plan(std::uint64_t length, globalq::dtype type) const {
    static_cast<void>(length), static_cast<void>(type);
    globalq_c::refuse("globalq_call_plan", "a call that is no mean takes one rounding, and has no plan",
                      "use a call of kind GLOBALQ_MEAN or GLOBALQ_REDUCE_SCATTER");
  }
  virtual char const* operator_name(std::size_t layer) const = 0;
  virtual std::vector<std::byte> save() const { return {}; }
  virtual void load(std::vector<globalq::saved_state> const& states) { static_cast<void>(states); }

  std::shared_ptr<globalq_c::link> behind;  ///< destroyed last
  globalq::telemetry seen;
  mutable std::vector<std::byte>
      saved;  ///< state whose size was asked for, until it is copied, or a call changes it
};

namespace globalq_c {

/// Restores the residuals of a call; without states it forgets them.
void load_into(auto& call, std::vector<gq::saved_state> const& states) {
  states.empty() ? call.forget_residuals() : call.load(states);
}
/// The bytes of a state, none if it has no entries.
inline std::vector<std::byte> saved_bytes(gq::saved_state const& s) {
  return s.size() == 0 ? std::vector<std::byte>() : s.bytes();
}

/// An operator and its default schedule.
struct choice {
  gq::any_quantizer op = gq::uncompressed{};
  std::string schedule = "ring", name = "float32";
  gq::named::named_operator asked = {};
};
/// @throws configuration_error if @p name is unknown or a compressor
choice choice_of(char const* operation, char const* name);

/// Calls f with a value of the type of a vector, which is known at run time.
template <class F>
void with_type(globalq_vector const& v, F const& f) {
  globalq_c::with_type("globalq_call_run", v.type, f);
}

/// Refuses NULL memory, and outputs that overlap anything but their own input. Reuses its memory.
class memory_check {
 public:
  void operator()(char const* operation, vectors all);

 private:
  struct range {
    std::uintptr_t first, last;
    std::size_t of;
    bool written;
  };
  std::vector<range> ranges_;
};

template <class T>
std::span<T const> input_of(globalq_vector const& v, std::uint64_t length) {
  return {static_cast<T const*>(v.input), static_cast<std::size_t>(length)};
}
template <class T>
std::span<T> output_of(globalq_vector const& v, std::uint64_t length) {
  return {static_cast<T*>(v.output), static_cast<std::size_t>(length)};
}

/// Fills a group, whose memory is reused, with vectors.
/// @param prepared  prepared(index of a vector, its values) returns the values to average instead
template <class F>
gq::vector_group const& fill(gq::vector_group& group, vectors all, F const& prepared) {
  group.clear();
  for (std::size_t k = 0; k < all.size(); ++k)
    with_type(all[k], [&]<class T>(T) {
      std::span<T const> const x = prepared(k, input_of<T>(all[k], all[k].length));
      auto const y = output_of<T>(all[k], all[k].length);
      group.add(x, y);
    });
  return group;
}

inline gq::vector_group const& fill(gq::vector_group& group, vectors all) {
  return fill(group, all, [](std::size_t, auto x) { return x; });
}

/// Calls f with the execution space of the kernels of a handle's calls.
template <class F>
auto with_space(globalq_workers const& w, F const& f) {
  // threads of one process would wait for each other on an instance that they share
  return w.behind->one_of_many ? f(Kokkos::Serial(Kokkos::NewInstance{}))
                               : f(Kokkos::DefaultHostExecutionSpace{});
}

/// A mean of the layers of a model.
/// @param o  with telemetry unset
std::unique_ptr<globalq_call> mean_of_layers(globalq_workers& w, globalq_settings const& s,
                                             std::span<globalq_layer const> layers,
                                             gq::learn::update_schedule const& learn_at,
                                             gq::schedule::any const& schedule, gq::options const& o);

}  // namespace globalq_c
