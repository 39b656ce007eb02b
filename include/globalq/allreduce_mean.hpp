// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief allreduce_mean: the one call: all workers agree on the mean of their vectors.

#include "any_quantizer.hpp"
#include "detail/opening.hpp"
#include "detail/units.hpp"
#include "detail/vector.hpp"
#include "plan.hpp"
#include "schedule/any.hpp"

#include <optional>

namespace globalq {

/// What happens when a worker brings NaN or infinity, or a result is beyond the range of its type.
enum class non_finite : std::uint8_t {
  propagate,  ///< every value of the result is NaN on every worker, as an uncompressed sum would show
  error  ///< every worker throws non_finite_error; nothing is changed unless a result overflowed on the way
};

/// Options of a call; the same on every worker.
struct options {
  std::uint64_t seed = 0;
  globalq::non_finite non_finite = globalq::non_finite::propagate;
  /// Values sent at a time, 0: chosen by the library. Changes no bit of the result. Workers that differ in it get an
  /// error from the transport, since the sizes of their messages differ.
  std::uint64_t chunk_values = 0;
};

/// @brief Averages vectors over the workers of a transport.
///
/// Made once on every worker with the same arguments, then called once a step. After the call every worker holds the
/// same bits. All memory is kept for the next call, which then allocates nothing.
///
/// @code
/// gq::allreduce_mean mean{workers, op, gq::schedule::ring{}, {.seed = 42}};
/// mean(gradient, step);
/// @endcode
/// @tparam Transport  transport::threads' endpoint, transport::mpi or your own
/// @tparam Operator   quantizer, any_quantizer or uncompressed
/// @tparam Schedule   schedule::ring, tree, scatter_reduce_allgather, allgather, native or any
/// @throws configuration_error at construction, before any byte moves, when the parts do not fit together
/// @determinism  bit-identical on all workers; independent of threads, execution space and chunks
template <class Transport, class Operator, class Schedule>
class allreduce_mean {
 public:
  /// @param workers   this worker's endpoint; kept by reference
  /// @pre Kokkos is initialised
  allreduce_mean(Transport& workers, Operator op, Schedule schedule, options const& settings = {})
      : allreduce_mean(workers, std::move(op), std::move(schedule), settings,
                       static_cast<std::nullptr_t const*>(nullptr)) {}

  /// @param space  execution-space instance that the kernels run on
  template <class Space>
  requires Kokkos::is_execution_space_v<Space> allreduce_mean(Transport& workers, Operator op,
                                                              Schedule schedule, options const& settings,
                                                              Space const& space)
      : allreduce_mean(workers, std::move(op), std::move(schedule), settings, &space) {}

  /// Averages in place.
  /// @param x     this worker's vector; all workers bring the same length and type
  /// @param step  number of the call, below 2^48; with the seed it selects the random bits: use each once
  /// @throws disagreement_error when workers disagree, non_finite_error if so configured, transport_error
  template <Vector V>
  void operator()(V&& x, std::uint64_t step) {
    auto* const data = detail::data_of(x);
    static_assert(
        !std::is_const_v<std::remove_pointer_t<decltype(data)>>,
        "globalq: allreduce_mean: the vector is const; pass one to write to: mean(input, output, step)");
    constexpr dtype type = dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(data)>>>::value;
    run({data, type}, {data, type}, detail::size_of_vector(x), step);
  }

  /// Averages @p x into @p y, of the same length and type. They may be the same, but not overlap otherwise.
  template <Vector X, Vector Y>
  void operator()(X&& x, Y&& y, std::uint64_t step) {
    auto* const in = detail::data_of(x);
    auto* const out = detail::data_of(y);
    using value = std::remove_cv_t<std::remove_pointer_t<decltype(out)>>;
    static_assert(std::is_same_v<std::remove_cv_t<std::remove_pointer_t<decltype(in)>>, value>,
                  "globalq: allreduce_mean: input and output have different types; use one type for both");
    if (detail::size_of_vector(x) != detail::size_of_vector(y))
      throw configuration_error(
          message("the input has " + std::to_string(detail::size_of_vector(x)) + " values and the output " +
                  std::to_string(detail::size_of_vector(y)) + "; they must have the same length"));
    run({in, dtype_of<value>::value}, {out, dtype_of<value>::value}, detail::size_of_vector(x), step);
  }

  /// What a call with vectors of @p length values does and costs.
  globalq::plan plan(std::uint64_t length, dtype type = dtype::float32) const {
    return detail::make_plan(facts_, magnitudes_, schedule_, workers_.size(), length, type,
                             settings_.chunk_values, chunk_bytes());
  }

  /// How codes are added, how many levels there are, and how many codes are kept free for growth.
  method reduce() const { return resolved_.how; }
  std::uint32_t levels() const { return resolved_.size; }
  std::uint32_t headroom() const { return resolved_.headroom; }

 private:
  /// Everything a transfer may still touch when a call is given up.
  struct workspace {
    frame_pool frames;
    std::vector<detail::opening_record> records;
  };

  template <class Space>
  allreduce_mean(Transport& workers, Operator op, Schedule schedule, options const& settings,
                 Space const* space)
      : workers_(workers),
        schedule_(std::move(schedule)),
        settings_(settings),
        facts_(detail::facts_of(op)),
        magnitudes_(detail::magnitudes(op)),
        memory_(std::make_shared<workspace>()) {
    static_assert(
        globalq::Transport<Transport>,
        "globalq: allreduce_mean: the first argument is no transport: it needs rank, size, send_async, "
        "recv_async "
        "and wait (transport/concept.hpp); for transport::threads pass the endpoint that run() hands out");
    static_assert(globalq::Schedule<Schedule>,
                  "globalq: allreduce_mean: the third argument is no schedule; use "
                  "schedule::ring, tree, scatter_reduce_allgather, allgather or native");
    if (!Kokkos::is_initialized())
      throw configuration_error(
          message("Kokkos is not initialised; create a Kokkos::ScopeGuard in main before the first "
                  "call of globalq"));
    resolved_ = detail::resolve(facts_, schedule_.facts(workers_.size()), workers_.size());
    if (!resolved_.fits()) throw configuration_error(resolved_.refusal);
    executor_.emplace(make_executor(space));
    codec_ = detail::make_codec(op, facts_, resolved_, *executor_);
    operator_hash_ = detail::hash(detail::hash(detail::parameter_hash(op), facts_.name), resolved_.size);
  }

  template <class Space>
  kernel::host_executor make_executor(Space const* space) {
    if constexpr (!std::is_same_v<Space, std::nullptr_t>) {
      if (space != nullptr) return kernel::host_executor(*space);
    }
    if constexpr (transport::OwnExecution<Transport>) {
      return kernel::host_executor(workers_.execution());
    } else {
      return kernel::host_executor(Kokkos::DefaultHostExecutionSpace());
    }
  }

  std::size_t chunk_bytes() const {
    if constexpr (transport::OwnChunkBytes<Transport>) return workers_.chunk_bytes();
    return detail::default_chunk_bytes;
  }

  std::string message(std::string const& what) const {
    return "globalq: allreduce_mean: rank " + std::to_string(workers_.rank()) + " of " +
           std::to_string(workers_.size()) + ": " + what;
  }

  void run(const_vector x, mutable_vector y, std::uint64_t length, std::uint64_t step) {
    if (step > random::max_step)
      throw configuration_error(message("step " + std::to_string(step) +
                                        " is above 2^48 - 1; count steps from 0 and "
                                        "change the seed instead"));
    if (length > random::max_length)
      throw configuration_error(
          message(std::to_string(length) + " values are more than 2^48; average in parts"));
    kernel::float_environment const exact;
    try {
      exchange(x, y, length, step);
    } catch (transport_error const&) {
      // a transfer may still be under way: the transport keeps the memory that it could touch
      if constexpr (transport::OwnRetain<Transport>) {
        workers_.retain(memory_);
        memory_ = std::make_shared<workspace>();
      }
      throw;
    }
  }

  void exchange(const_vector x, mutable_vector y, std::uint64_t length, std::uint64_t step) {
    int const n = workers_.size();
    bool const plain = facts_.plain;
    std::uint64_t const bucket = facts_.bucket;
    // one pass over the input: the statistics of its buckets, or of the whole
    std::uint64_t const buckets = length == 0 ? 0 : (bucket == 0 ? 1 : divide_up(length, bucket));
    if (statistics_.size() < buckets) statistics_.resize(buckets);
    std::uint32_t const q = plain ? infinity : facts_.q;
    norm::bucket_statistics(*executor_, length, bucket, q, norm::input_block{x, q},
                            std::span(statistics_).first(buckets), parts_);
    norm::statistic total;
    for (std::uint64_t b = 0; b < buckets; ++b)
      total.max_bits = std::max(total.max_bits, statistics_[b].max_bits);
    double relative = 0;
    if (buckets == 1 && total.finite()) relative = norm::relative_norm(statistics_[0], q);

    detail::agreement agreed;
    agreed.type = x.type;
    agreed.operator_hash = operator_hash_;
    agreed.schedule = schedule_.facts(n).name;
    agreed.workers = n;
    agreed.seed = settings_.seed;
    agreed.step = step;
    agreed.mode = static_cast<std::uint64_t>(settings_.non_finite);
    detail::opening_record const mine = agreed.record(length, total, relative);
    auto& records = memory_->records;
    records.resize(static_cast<std::size_t>(n));
    transport::allgather(workers_, std::as_bytes(std::span(&mine, 1)),
                         std::as_writable_bytes(std::span(records)));
    detail::check_agreement(records);

    double top = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (records[i].non_finite())
        return fail_non_finite(y, length, "rank " + std::to_string(i) + " brought NaN or infinity", false);
      top = std::max(top, records[i].max());
    }
    if (length == 0) return;
    if (top == 0) {  // every value of every worker is zero, and so is the mean
      fill(y, length, false);
      return;
    }
    measure(x.type, buckets, top, q);

    detail::call c;
    c.x = x;
    c.y = y;
    c.length = length;
    c.rank = workers_.rank();
    c.workers = n;
    c.seed = settings_.seed;
    c.step = step;
    c.units = std::span<double const>(units_).first(plain ? 1 : buckets);
    c.wide = wide_;
    codec_->begin(c);
    std::uint64_t const chunk = detail::chunk_of(facts_, resolved_, settings_.chunk_values, chunk_bytes());
    schedule_(workers_, *codec_, layout(length, schedule_.parts(n), detail::grain_of(facts_), chunk),
              memory_->frames);
    if ((codec_->faults() & kernel::out_of_range) != 0)
      fail_non_finite(y, length, std::string("a value of the mean is beyond the range of ") + name_of(y.type),
                      true);
  }

  /// Fills units_ with the scales of this call, in units of 2^wide_.
  /// @param top  max|x| over all workers, > 0
  void measure(dtype type, std::uint64_t buckets, double top, std::uint32_t q) {
    auto const& records = memory_->records;
    int const e = exponent_of(top);
    wide_ =
        e > 900 ? 128 : 0;  // float64 near its largest: sums and norms may exceed it where the mean does not
    if (units_.size() < std::max<std::uint64_t>(buckets, 1))
      units_.resize(std::max<std::uint64_t>(buckets, 1));
    auto const scaled = [&](double relative, int exponent) {
      int const shift = exponent - wide_;
      return shift < -1022 ? relative * power_of_two(-1022) * power_of_two(shift + 1022)
                           : relative * power_of_two(shift);
    };
    if (facts_.plain) {  // a power of two, 1 where neither the values nor their sum leave float32's range
      int const growth = log2_ceil(static_cast<std::uint64_t>(workers_.size())) + 1;
      bool const safe = e + growth < 127 && (type != dtype::float64 || e > -60);
      units_[0] = safe ? 1.0 : power_of_two(std::clamp(e, -1022, 1022) - wide_);
      if (type != dtype::float64 && !safe) units_[0] = power_of_two(std::clamp(e, -126, 126));
      if (safe) wide_ = 0;
      return;
    }
    if (facts_.fixed_unit > 0) {
      if (top > facts_.fixed_unit)
        throw configuration_error(
            "globalq: allreduce_mean: a value of magnitude " + std::to_string(top) + " exceeds the unit " +
            std::to_string(facts_.fixed_unit) +
            " of norm::fixed and would be cut off; use a larger unit or a measured norm");
      std::fill_n(units_.begin(), buckets, rounded(facts_.fixed_unit * power_of_two(-wide_)));
      return;
    }
    if (facts_.local || facts_.bucket != 0) {
      for (std::uint64_t b = 0; b < buckets; ++b)
        units_[b] = norm::local_unit(statistics_[b], q, type, wide_);
      if (!facts_.local)
        detail::agree_on_units(workers_, std::span(units_).first(buckets), facts_.p, type, memory_->frames);
      return;
    }
    norms_.clear();
    for (auto const& r : records)  // relative to the largest maximum: nothing overflows
      norms_.push_back(r.max() == 0 ? 0.0
                                    : r.statistic * power_of_two(std::max(exponent_of(r.max()) - e, -1074)));
    double const top_share = scaled(detail::combine_norms(norms_, facts_.p), e);
    double const max_share = e > 900 ? top * power_of_two(-wide_) : top;
    units_[0] = std::max(top_share, max_share);
  }

  void fail_non_finite(mutable_vector y, std::uint64_t length, std::string const& why, bool changed) {
    if (settings_.non_finite == non_finite::error)
      throw non_finite_error("globalq: allreduce_mean: " + why + "; " +
                             (changed ? "the output is unspecified now" : "nothing was changed") +
                             "; skip this step, or lower the loss scale");
    fill(y, length, true);
  }

  Transport& workers_;
  Schedule schedule_;
  options settings_;
  detail::operator_facts facts_;
  std::vector<double> magnitudes_;
  detail::resolution resolved_;
  std::optional<kernel::host_executor> executor_;
  std::unique_ptr<detail::operator_codec> codec_;
  std::uint64_t operator_hash_ = 0;
  std::vector<norm::statistic> statistics_, parts_;
  std::vector<double> units_, norms_;
  int wide_ = 0;
  std::shared_ptr<workspace> memory_;
};

template <class T, class Op, class S>
allreduce_mean(T&, Op, S) -> allreduce_mean<T, Op, S>;
template <class T, class Op, class S>
allreduce_mean(T&, Op, S, options) -> allreduce_mean<T, Op, S>;
template <class T, class Op, class S, class Space>
allreduce_mean(T&, Op, S, options, Space) -> allreduce_mean<T, Op, S>;

}  // namespace globalq
