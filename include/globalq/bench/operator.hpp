// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief bench: the time, the bytes and the error of an operator. Needs Google Benchmark.
///
/// Each function is the body of a benchmark with manual time (`->UseManualTime()`), and add_operator() registers them. They report the
/// counters of time_in_turn(), where the floor is a copy_floor of the bytes that the call reads and writes, and:
///
/// - `bytes_per_second`: bytes of the vector, not of frames;
/// - `bits_per_value`: bits of the frame for each value; of mean(), bits that the busiest worker sends;
/// - `error`: ||result - exact||^2 / ||exact||^2 of one call.
///
/// A benchmark whose operator is refused, or which throws, reports the message and sets bench::failed.

#include "../collective/allreduce_mean.hpp"
#include "../core/codec.hpp"
#include "../operator/vector_codec.hpp"
#include "../schedule/any.hpp"
#include "../schedule/ring.hpp"
#include "../transport/collectives.hpp"
#include "../transport/threads.hpp"
#include "axes.hpp"
#include "data.hpp"
#include "floor.hpp"
#include "measure.hpp"

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::bench {

/// ||y - x||^2 / ||x||^2 of vectors of one length; ||y||^2 where x is zero.
template <class X, class Y>
double squared_error(X const& x, Y const& y) {
  auto const* const exact = globalq::detail::data_of(x);
  auto const* const found = globalq::detail::data_of(y);
  double error = 0, norm = 0;
  for (std::uint64_t i = 0; i < globalq::detail::size_of_vector(x); ++i) {
    double const a = static_cast<double>(exact[i]), b = static_cast<double>(found[i]);
    error += (b - a) * (b - a);
    norm += a * a;
  }
  return norm > 0 ? error / norm : error;
}

namespace detail {

/// f(), with its exception as the benchmark's error.
template <class F>
void reported(benchmark::State& state, F const& f) {
  try {
    f();
  } catch (std::exception const& problem) {
    fail(state, problem.what());
  }
}

/// What the workers of mean() do next, and how often.
enum class work : std::uint64_t { mean, copy, nothing };
struct turn {
  work what;
  std::int64_t calls;
};

template <class V>
std::span<std::byte const> bytes_of(V const& x) {
  return std::as_bytes(std::span(globalq::detail::data_of(x), globalq::detail::size_of_vector(x)));
}

/// Times the encoding of x, or the decoding of its frame.
template <class V, class Space>
void code(benchmark::State& state, any_quantizer const& op, V const& x, Space const& space, bool decodes) {
  using value = globalq::detail::value_of<V const>;
  std::uint64_t const n = globalq::detail::size_of_vector(x);
  encoding_key const key{1, 0, 0};
  vector_codec codec(op, space, frame_checksum::none);
  byte_buffer memory;
  values<value> const y("decoded", n);
  auto const room = memory.get(codec.frame_bytes(n, dtype_of<value>::value));
  std::size_t const used = codec.encode(x, key, room);
  auto const frame = room.first(used);
  codec.decode(frame, key, y);

  kernel::host_executor const on(space);
  amount const each{n, n * sizeof(value)};
  std::span<std::byte> const decoded(reinterpret_cast<std::byte*>(y.data()), y.size() * sizeof(value));
  double const error = squared_error(x, y);
  copy_floor const floor = decodes ? copy_floor(frame, decoded) : copy_floor(bytes_of(x), frame);
  auto const copy = [&] { on.items(floor.pieces(), floor); };
  if (decodes)
    interleave(
        state, each, [&] { codec.decode(frame, key, y); }, copy);
  else
    interleave(
        state, each, [&] { codec.encode(x, key, room); }, copy);
  state.counters["bits_per_value"] = 8.0 * static_cast<double>(used) / static_cast<double>(n);
  state.counters["error"] = error;
}

}  // namespace detail

/// @brief Times the encoding of a vector into a frame, including its norms: vector_codec::encode() without a checksum.
///
/// The floor reads the vector and writes a frame's bytes.
/// @param op     quantizer or any_quantizer
/// @param x      vector of gradient(), or of yours
/// @param space  host execution space of the kernels
template <class V, class Space = Kokkos::Serial>
void encode(benchmark::State& state, any_quantizer const& op, V const& x, Space const& space = {}) {
  detail::reported(state, [&] { detail::code(state, op, x, space, false); });
}

/// @brief Times the decoding of the frame of a vector: vector_codec::decode().
///
/// The floor reads a frame's bytes and writes a vector. Parameters as for encode().
template <class V, class Space = Kokkos::Serial>
void decode(benchmark::State& state, any_quantizer const& op, V const& x, Space const& space = {}) {
  detail::reported(state, [&] { detail::code(state, op, x, space, true); });
}

/// @brief Times a mean of workers that are threads of this process: allreduce_mean over transport::threads, one thread a worker.
///
/// Times are those from a barrier of all workers to the next, for some calls. The floor copies each worker's vector.
/// @param op  quantizer, floats or any_quantizer
/// @param x   a vector for each worker, of one length
template <class V, class Schedule = schedule::ring>
void mean(benchmark::State& state, any_quantizer const& op, std::vector<V> const& x,
          Schedule const& schedule = {}) {
  using value = globalq::detail::value_of<V const>;
  detail::reported(state, [&] {
    std::uint64_t const n = globalq::detail::size_of_vector(x.at(0));
    std::vector<double> exact(n);
    for (V const& each : x)
      for (std::uint64_t i = 0; i < n; ++i)
        exact[i] += static_cast<double>(globalq::detail::data_of(each)[i]) / static_cast<double>(x.size());

    transport::threads cluster{static_cast<int>(x.size())};
    cluster.run([&](auto& workers) {
      V const& own = x[static_cast<std::size_t>(workers.rank())];
      std::vector<value> y(n);
      allreduce_mean average{workers, op, schedule, options{.seed = 1}};
      std::uint64_t step = 0;
      average(own, y, step++);
      double const error = workers.rank() == 0 ? squared_error(exact, y) : 0;

      copy_floor const floor(detail::bytes_of(own), std::as_writable_bytes(std::span(y)));
      auto const once = [&](detail::work what) {
        if (what == detail::work::mean) return average(own, y, step++);
        for (std::uint64_t k = 0; k < floor.pieces(); ++k) floor(k);
      };
      // Worker 0 decides what is timed next; the others follow.
      auto const follow = [&](detail::turn decided) {
        detail::turn const next = transport::broadcast_value(workers, 0, decided);
        transport::barrier(workers);
        double const seconds =
            seconds_of([&] { once(next.what); }, next.calls, [&] { transport::barrier(workers); });
        return std::pair(next.what, seconds);
      };
      if (workers.rank() != 0) {
        while (follow({}).first != detail::work::nothing) continue;
        return;
      }
      time_in_turn(
          state, {n, n * sizeof(value)},
          [&](std::int64_t k) {
            return follow({detail::work::mean, k}).second;
          },
          [&](std::int64_t k) {
            return follow({detail::work::copy, k}).second;
          });
      follow({detail::work::nothing, 0});
      auto const sent = average.plan(n, dtype_of<value>::value).bytes_sent;
      state.counters["bits_per_value"] = 8.0 * static_cast<double>(sent) / static_cast<double>(n);
      state.counters["error"] = error;
    });
  });
}

/// What add_operator() varies, and with whom.
struct axes {
  std::vector<std::uint64_t> lengths = {1U << 12, 1U << 16, 1U << 20, 1U << 24};  ///< values of a vector
  int workers = 4;                                                                ///< of mean()
  globalq::schedule::any schedule = globalq::schedule::ring{};                    ///< of mean()
};

/// @brief Registers encode(), decode() and mean() of an operator with vectors of gradient().
///
/// Their names are `encode/NAME/n:.../threads:...`, `decode/NAME/n:.../threads:...` and `mean/NAME/n:.../workers:...`. An
/// operator without codes of its own (floats, centered, float32_tail) has only mean().
/// @param op  quantizer, floats or any_quantizer
inline void add_operator(std::string const& name, any_quantizer const& op, axes const& range = {}) {
  auto const& facts = op.facts();
  if (!facts.sends_floats()) {
    auto const on = [op](bool decodes) {
      return [op, decodes](benchmark::State& state, point at) {
        at.with_space([&](auto const& space) {
          auto const x = gradient<float>(at.n, 1);
          decodes ? decode(state, op, x, space) : encode(state, op, x, space);
        });
      };
    };
    add("encode/" + name, range.lengths, on(false));
    add("decode/" + name, range.lengths, on(true));
  }
  for (std::uint64_t const n : range.lengths)
    benchmark::RegisterBenchmark(
        ("mean/" + name + "/n:" + std::to_string(n) + "/workers:" + std::to_string(range.workers)).c_str(),
        [op, n, workers = range.workers, schedule = range.schedule](benchmark::State& state) {
          std::vector<values<float>> x;
          for (int k = 0; k < workers; ++k)
            x.push_back(gradient<float>(n, static_cast<std::uint64_t>(k) + 1));
          mean(state, op, x, schedule);
        })
        ->UseManualTime();
}

}  // namespace GLOBALQ_ABI::bench
