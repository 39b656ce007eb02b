// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief learn: learns levels from gradients at scheduled training steps.

#include "../../core/vector.hpp"
#include "../../operator/detail/widened.hpp"
#include "../../operator/stage.hpp"
#include "../../schedule/detail/scales.hpp"
#include "agree.hpp"
#include "optimal.hpp"
#include "schedule.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::learn {

/// Statistics that workers exchange.
enum class statistics : std::uint8_t { histograms, normals };

/// @brief Settings of a level_learner, the same on every worker.
struct learner_options {
  update_schedule schedule = {};
  statistics exchange = statistics::histograms;
  weighting weights = weighting::squared_norms;
  histogram_shape shape = {};
  std::uint32_t samples = 20;  ///< for statistics::normals
  /// A learner that has not learned yet learns at its first step after a scheduled one, as when training is resumed.
  bool catches_up = false;
  std::uint32_t settings = 0;  ///< a hash of other settings, which workers compare
  /// Map gradients before they are measured: rotated{..}.facts().chain. (error_feedback adds nothing.)
  std::vector<std::shared_ptr<stage const>> stages = {};
};

/// @brief Learns levels at scheduled steps: measures the gradient with the operator's norm, agrees, and returns the
///        levels.
///
/// ```cpp
/// learn::level_learner learner{norm::linf{.bucket = 512}, learn::optimal{.size = 7}};
/// for (std::uint64_t step = 0; ...; ++step) {
///   if (auto const found = learner.update(workers, gradient, step)) use(found->levels.table());
///   mean(gradient, step);
/// }
/// ```
/// If a gradient contains NaN or infinity on any worker, or only zeros on all, the update is postponed to the next
/// step. All workers decide that alike, so they agree on when levels change.
/// @tparam Norm  a norm that is measured from values (not norm::fixed)
template <class Norm>
class level_learner {
 public:
  /// @param norm    the norm of the operator, bucket included
  /// @param solver  solver(bins) -> solution, such as optimal, coordinate_descent, multiplier
  level_learner(Norm const& norm, std::function<solution(bins const&)> solver, learner_options options = {})
      : norm_(norm), solver_(std::move(solver)), options_(std::move(options)) {
    static_assert(
        NormScheme<Norm>,
        "globalq: learn::level_learner: it measures by norm::linf, norm::l or norm::local; it does not "
        "support the statistic of a user's norm");
    if (norm.fixed_scale() != 0)
      throw configuration_error(
          "globalq: learn::level_learner: norm::fixed has no statistic to learn from; use a norm of the "
          "values");
    // construct both, so that invalid options throw here rather than at the first update
    static_cast<void>(histogram(options_.shape, options_.weights));
    static_cast<void>(normals(options_.samples, options_.weights));
  }

  /// Whether update() exchanges anything at this step.
  bool due(std::uint64_t step) const {
    return pending_ || options_.schedule.due(step) ||
           (options_.catches_up && !learned_ && options_.schedule.due_before(step));
  }

  /// @brief Returns new levels if this is a step at which they change; the same bits on every worker.
  /// @param t         endpoint of this worker; if the step is due, all workers call, with the same step
  /// @param gradient  this worker's vector in host memory
  /// @param on        executor for the statistics
  /// @throws          as agree() does
  /// @complexity      nothing if no update is due; else about two passes over the gradient, the solver, and agree()
  template <Transport T, Vector V>
  std::optional<solution> update(T& t, V const& gradient, std::uint64_t step,
                                 kernel::host_executor const& on) {
    if (!due(step)) return std::nullopt;
    float_environment const exact;
    using value = detail_value<V>;
    const_vector const x{globalq::detail::data_of(gradient), dtype_of<value>::value};
    std::uint64_t const length = globalq::detail::size_of_vector(gradient);
    agreement const a = agree_on(t, x, length, step, on);
    pending_ = a.what != learning_status::learned;
    if (pending_) return std::nullopt;
    learned_ = true;
    return a.found;
  }
  template <Transport T, Vector V>
  std::optional<solution> update(T& t, V const& gradient, std::uint64_t step) {
    if constexpr (transport::OwnExecution<T>)
      return update(t, gradient, step, kernel::host_executor(t.execution()));
    else
      return update(t, gradient, step, kernel::host_executor(Kokkos::DefaultHostExecutionSpace()));
  }

 private:
  template <class V>
  using detail_value = globalq::detail::value_of<std::remove_reference_t<V>>;

  template <Transport T>
  agreement agree_on(T& t, const_vector x, std::uint64_t length, std::uint64_t step,
                     kernel::host_executor const& on) {
    std::uint32_t settings = options_.settings;
    for (auto const& map : options_.stages)
      settings = static_cast<std::uint32_t>(
          globalq::detail::hash(globalq::detail::hash(std::uint64_t{settings}, map->name()), map->grain()));
    if (!options_.stages.empty() && length != 0) x = mapped(x, length, step, t.rank(), on);
    std::uint32_t const q = norm_.inner(), p = norm_.outer();
    std::uint64_t const bucket = norm_.bucket,
                        buckets = length == 0 ? 0 : divide_up(length, bucket == 0 ? length : bucket);
    exchange_facts const facts{step, length, bucket, q, p, settings};
    std::vector<norm::statistic> found(buckets), parts;
    norm::bucket_statistics(on, length, bucket, q, norm::input_block{x, q}, std::span(found), parts);
    std::vector<double> norms(buckets);
    bool finite = true;
    for (std::size_t b = 0; b < buckets; ++b) {
      norms[b] = found[b].finite() ? norm::local_scale(found[b], q, x.type, 0) : double_of(double_nan);
      finite = finite && bits_of(norms[b]) < double_infinity;
    }
    if (!norm_.is_local && !share(t, facts, finite, norms, p, x.type))
      return {learning_status::non_finite, {}};
    if (options_.exchange == statistics::normals) {
      normals mine(options_.samples, options_.weights);
      mine.measure(on, x, length, bucket, norms);
      return agree(t, std::move(mine), solver_, facts);
    }
    histogram mine(options_.shape, options_.weights);
    mine.add(on, x, length, bucket, norms);
    return agree(t, std::move(mine), solver_, facts);
  }

  /// The vector behind stages, with the random bits of seed 0 and the step: levels depend on their law only.
  const_vector mapped(const_vector x, std::uint64_t length, std::uint64_t step, int rank,
                      kernel::host_executor const& on) {
    dtype const type = globalq::detail::mapped_type(x.type);
    std::uint64_t const values = globalq::detail::values_of(options_.stages, length);
    mutable_vector const room{mapped_.get(values * size_of(type)).data(), type};
    segment const all{0, length};
    globalq::detail::enter(options_.stages,
                           {on, length, 0, step, rank, globalq::detail::largest_mapped(type), type},
                           globalq::detail::widened(on, x, all, room), all, room);
    return {room.data, type};
  }

  /// Combines the norms of all workers; returns false if one of them is not finite.
  template <Transport T>
  static bool share(T& t, exchange_facts const& facts, bool finite, std::vector<double>& norms,
                    std::uint32_t p, dtype type) {
    if (t.size() == 1) return finite;
    bool all_finite = true;
    detail::with_memory(t, [&](detail::memory& m) {
      detail::opening o = detail::opening_of(facts);
      o.kind = 3;
      o.first = static_cast<std::uint32_t>(type);  // norms are sent in the width of the type
      o.non_finite = finite ? 0 : 1;
      detail::open(t, o, m);
      for (detail::opening const& other : m.openings) all_finite = all_finite && other.non_finite == 0;
      return true;
    });
    if (!all_finite) return false;
    auto const frames = std::make_shared<frame_pool>();
    transport::keeping(t, frames,
                       [&] { globalq::detail::agree_on_scales(t, std::span(norms), p, type, *frames); });
    return true;
  }

  Norm norm_;
  std::function<solution(bins const&)> solver_;
  learner_options options_;
  bool pending_ = false, learned_ = false;
  byte_buffer mapped_;
};

}  // namespace GLOBALQ_ABI::learn
