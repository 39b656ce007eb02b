// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief model: a mean that is compressed where the model says that this is faster, and float32 where it is not.

#include "../allreduce_mean.hpp"
#include "calibrate.hpp"

#include <cstring>
#include <functional>

namespace globalq::model {

/// @brief What was decided for vectors of certain lengths, the same on all workers.
struct bypass_decision {
  std::uint64_t first = 0, last = 0;  ///< lengths that it holds for
  bool compress = false;
  double compressed_seconds = 0;  ///< predicted for the first of these lengths
  double plain_seconds = 0;
  std::string reason;  ///< in words
};

/// @brief When compression is bypassed.
struct bypass_settings {
  double least_gain = 1;  ///< compression must be predicted to be this many times as fast
};

/// @brief allreduce_mean of an operator, or of float32 for lengths for which the operator would be slower.
///
/// Lengths from a power of two up to the next are decided on together, when the object is made, by worker 0 from its numbers;
/// it tells the others, so that all make the same call. Nothing is bypassed silently: `tell` hears of each decision when it is
/// first used, and decisions() lists all.
///
/// @code
/// auto const links = gq::model::calibrate(workers);
/// gq::model::bypassing_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}, links,
///                                gq::model::calibrate_operator(workers, "int8", op),
///                                gq::model::calibrate_operator(workers, "float32", gq::uncompressed{}),
///                                [](auto const& decision) { std::clog << decision.reason << '\n'; }};
/// mean(gradient, step);
/// @endcode
/// @determinism as allreduce_mean; which of the two it is depends on what was measured, and may differ from run to run
template <class Transport, class Operator, class Schedule>
class bypassing_mean {
 public:
  /// @param workers     this worker's endpoint; all workers make one
  /// @param links       what calibrate() gave, or numbers of your own; only those of worker 0 count
  /// @param compressed  costs of @p op
  /// @param plain       costs of `uncompressed`
  /// @param tell        tell(bypass_decision): at every worker, before the first call with lengths of a decision
  /// @throws configuration_error, on every worker alike, where the operator does not fit, costs are not known, or @p tell is empty
  bypassing_mean(Transport& workers, Operator op, Schedule schedule, options const& settings,
                 calibration const& links, operator_model const& compressed, operator_model const& plain,
                 std::function<void(bypass_decision const&)> tell, bypass_settings const& bypass = {})
      : compressed_(workers, std::move(op), schedule, settings),
        plain_(workers, uncompressed{}, schedule, settings),
        tell_(std::move(tell)) {
    std::vector<std::uint8_t> deaf(static_cast<std::size_t>(workers.size()));
    transport::allgather_value(workers, static_cast<std::uint8_t>(tell_ ? 0 : 1), std::span(deaf));
    for (std::size_t r = 0; r < deaf.size(); ++r)
      if (deaf[r] != 0)
        throw configuration_error(
            "globalq: model::bypassing_mean: nobody is told at worker " + std::to_string(r) +
            " what is bypassed; pass a function on every worker, such as one that logs");
    agree(workers, schedule, settings, links, compressed, plain, bypass);
  }

  /// As allreduce_mean: (vector, step) in place, or (input, output, step).
  template <class V, class... More>
  void operator()(V&& x, More&&... more) {
    std::size_t const k = range_of(globalq::detail::size_of_vector(x));
    if (!told_[k]) {
      told_[k] = true;
      tell_(decisions_[k]);
    }
    if (decisions_[k].compress)
      compressed_(std::forward<V>(x), std::forward<More>(more)...);
    else
      plain_(std::forward<V>(x), std::forward<More>(more)...);
  }

  /// What holds for a length.
  bypass_decision const& decision(std::uint64_t length) const { return decisions_[range_of(length)]; }
  /// All of them, in order of lengths.
  std::span<bypass_decision const> decisions() const { return decisions_; }
  /// The plan of a call.
  globalq::plan plan(std::uint64_t length) const {
    return decision(length).compress ? compressed_.plan(length) : plain_.plan(length);
  }

 private:
  /// Lengths from 2^k on, k at most ranges - 1; vectors longer than that are as the last.
  static constexpr std::size_t ranges = 27;

  static std::size_t range_of(std::uint64_t length) {
    std::size_t const k = length == 0 ? 0 : static_cast<std::size_t>(std::bit_width(length)) - 1;
    return std::min(k, ranges - 1);
  }

  struct verdict {
    std::uint32_t failed, unused;
    double compressed[ranges], plain[ranges];
    char text[512];
  };

  void agree(Transport& workers, Schedule const& schedule, options const& settings, calibration const& links,
             operator_model const& compressed, operator_model const& plain, bypass_settings const& bypass) {
    verdict v{};
    if (workers.rank() == 0) {
      try {
        call_shape shape = links.shape();
        shape.chunk_values = settings.chunk_values;
        if (links.net.workers() != workers.size())
          throw configuration_error("globalq: model::bypassing_mean: the links are those of " +
                                    std::to_string(links.net.workers()) + " workers and there are " +
                                    std::to_string(workers.size()) + "; calibrate with these workers");
        for (std::size_t k = 0; k < ranges; ++k) {
          std::uint64_t const length = std::uint64_t{1} << k;
          v.compressed[k] = predict(links.net, compressed, schedule, length, shape).time.seconds;
          v.plain[k] = predict(links.net, plain, schedule, length, shape).time.seconds;
        }
      } catch (std::exception const& e) {
        v.failed = 1;
        std::strncpy(v.text, e.what(), sizeof v.text - 1);
      }
    }
    v = transport::broadcast_value(workers, 0, v);
    if (v.failed != 0) throw configuration_error(v.text);
    double const least = transport::broadcast_value(workers, 0, bypass.least_gain);
    for (std::size_t k = 0; k < ranges; ++k) {
      bypass_decision d;
      d.first = k == 0 ? 0 : std::uint64_t{1} << k;
      d.last = k + 1 == ranges ? random::max_length : (std::uint64_t{2} << k) - 1;
      d.compressed_seconds = v.compressed[k];
      d.plain_seconds = v.plain[k];
      d.compress = v.compressed[k] * least < v.plain[k];
      d.reason = "globalq: " + std::to_string(d.first) + " to " + std::to_string(d.last) +
                 " values: " + (d.compress ? compressed.name : plain.name) + ", since " + compressed.name +
                 " is predicted to take " + detail::time_text(v.compressed[k]) + " and " + plain.name + " " +
                 detail::time_text(v.plain[k]) + " for the shortest of them";
      decisions_.push_back(std::move(d));
    }
  }

  allreduce_mean<Transport, Operator, Schedule> compressed_;
  allreduce_mean<Transport, uncompressed, Schedule> plain_;
  std::function<void(bypass_decision const&)> tell_;
  std::vector<bypass_decision> decisions_;
  std::array<bool, ranges> told_{};
};

}  // namespace globalq::model
