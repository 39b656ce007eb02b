// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: computes the expected squared error of a quantizer on given values, without stages exactly and without encoding.

#include "../../operator/vector_codec.hpp"
#include "error_table.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace GLOBALQ_ABI::adapt {

namespace detail {

/// sum of f(1 - f) over values, f the fraction of |x| gain; or of min(f, 1 - f)^2.
template <bool Nearest>
GLOBALQ_LOOP double fractions(float const* x, std::size_t n, double gain, double extent) {
  constexpr std::size_t lanes = 8;
  double sums[lanes] = {};
  auto const part = [&](float value) {
    double const t = std::min(std::fabs(static_cast<double>(value)) * gain, extent);
    double const f = t - std::floor(t), g = std::min(f, 1 - f);
    return Nearest ? g * g : f * (1 - f);
  };
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t k = 0; k < lanes; ++k) sums[k] += part(x[i + k]);
  for (; i < n; ++i) sums[0] += part(x[i]);
  double sum = 0;
  for (double s : sums) sum += s;
  return sum;
}

}  // namespace detail

/// @brief E||C(x) - x||^2 of an operator that encodes x with its own norms, as vector_codec does.
///
/// Stochastic rounding between levels a and c of a bucket with scale u adds u^2 (c - y)(y - a) with y = |x| / u; a
/// shift that is shifted back adds u^2 d^2 / 12 with d the distance of levels; rounding to nearest adds the squared
/// distance. Of an operator with stages, such as rotated, and of eden it is the mean error of some encodings, as many as have 32,768 values
/// together but at most 16. Their random bits are always the same.
/// @complexity   one pass, and one for the norms; with stages, those of encoding and decoding
/// @source       docs/theory.md; checked against encodings in tests/adapt
class quantizer_error {
 public:
  /// @param op     a quantizer or any_quantizer
  /// @param space  host execution space that computes norms
  /// @throws       configuration_error when the policies do not fit together
  template <class Operator, class Space = Kokkos::DefaultHostExecutionSpace>
  explicit quantizer_error(Operator const& op, Space const& space = Space())
      : on_(space), facts_(globalq::detail::single_worker_facts(op)) {
    size_ = globalq::detail::resolve_single_worker(facts_).size;
    if (!facts_.chain.empty() || facts_.own_rotation) {
      once_ = std::make_shared<encoding>(vector_codec(op, space, frame_checksum::none));
      return;
    }
    if (facts_.evenly_spaced) return;
    if (facts_.binary) {
      for (std::uint32_t k = size_; k-- > 0;) levels_.push_back(power_of_two(-static_cast<int>(k)));
    } else {
      levels_ = facts_.magnitudes;
    }
    levels_.insert(levels_.begin(), facts_.zero_free ? -levels_.front() : 0.0);
  }

  /// @throws  configuration_error if a value exceeds the scale of norm::fixed; non_finite_error
  double operator()(std::span<float const> x) const {
    if (x.empty()) return 0;
    float_environment const exact;
    if (once_) try {
        return once_->error(x);
      } catch (non_finite_error const&) {
        throw non_finite_error(
            "globalq: quantizer_error: values contain NaN or infinity, or are so near the largest float that "
            "their "
            "encoding overflows");
      }
    std::size_t const width = facts_.bucket == 0 ? x.size() : std::min<std::size_t>(facts_.bucket, x.size());
    std::vector<norm::statistic> statistics(divide_up(x.size(), width)), parts;
    norm::bucket_statistics(on_, x.size(), facts_.bucket, facts_.q,
                            norm::input_block{{x.data(), dtype::float32}, facts_.q}, statistics, parts);
    scale_format const form = facts_.q.format(dtype::float32);
    double vector_scale = 0;  // with two levels of scales
    for (norm::statistic const& s : statistics)
      if (form.two_level() && s.finite())
        vector_scale = std::max(vector_scale, vector_scale_of(s.max(), form));
    double sum = 0;
    for (std::size_t b = 0; b < statistics.size(); ++b) {
      if (!statistics[b].finite())
        throw non_finite_error("globalq: quantizer_error: values " + std::to_string(b * width) +
                               " and following contain NaN or infinity");
      double const bucket_scale = facts_.fixed_scale > 0        ? facts_.fixed_scale
                                  : facts_.user_norm != nullptr ? measured_scale(x, width, b)
                                  : form.two_level()
                                      ? block_scale_of(statistics[b].max(), vector_scale, form)
                                      : norm::local_scale(statistics[b], facts_.q, dtype::float32, 0);
      if (facts_.fixed_scale > 0 && statistics[b].max() > bucket_scale)
        throw configuration_error("globalq: quantizer_error: a value of magnitude " +
                                  detail::text_of(statistics[b].max()) + " exceeds the scale " +
                                  detail::text_of(bucket_scale) + " of norm::fixed");
      if (bucket_scale > 0)
        sum += bucket_scale *
               (bucket_scale *
                of_bucket(x.subspan(b * width, std::min(width, x.size() - b * width)), bucket_scale));
    }
    return sum;
  }

 private:
  /// An encoding; copies share its memory.
  struct encoding {
    explicit encoding(vector_codec of) : codec(std::move(of)) {}

    double error(std::span<float const> x) {
      std::scoped_lock const lock(alone);
      frame.resize(codec.frame_bytes(x.size()));
      decoded.resize(x.size());
      std::uint64_t const draws = std::clamp<std::uint64_t>(drawn_values / x.size(), 1, most_draws);
      double sum = 0;
      for (std::uint64_t step = 0; step < draws; ++step) {
        std::size_t const used = codec.encode(x, {.step = step}, frame);
        codec.decode(std::span<std::byte const>(frame).first(used), {.step = step}, decoded);
        for (std::size_t i = 0; i < x.size(); ++i) {
          double const off = static_cast<double>(decoded[i]) - static_cast<double>(x[i]);
          sum += off * off;
        }
      }
      return sum / static_cast<double>(draws);
    }

    static constexpr std::uint64_t drawn_values = std::uint64_t{1} << 15, most_draws = 16;
    std::mutex alone;
    vector_codec codec;
    std::vector<std::byte> frame;
    std::vector<float> decoded;
  };

  /// The scale of a user's norm.
  double measured_scale(std::span<float const> x, std::size_t width, std::size_t b) const {
    std::span<float const> const values = x.subspan(b * width, std::min(width, x.size() - b * width));
    globalq::detail::user_statistic found;
    std::vector<globalq::detail::user_statistic> parts;
    facts_.user_norm->measure(on_, {values.data(), dtype::float32}, values.size(), 0, {&found, 1}, parts);
    globalq::detail::user_scale const scale = facts_.user_norm->scale(found);
    double const bucket_scale = facts_.user_norm->scale_of(scale, facts_.q, dtype::float32, 0);
    if (bits_of(bucket_scale) >= double_infinity)
      throw configuration_error("globalq: quantizer_error: " +
                                globalq::detail::user_norm::refusal(facts_, b, scale));
    return bucket_scale;
  }

  /// In units of the squared scale.
  double of_bucket(std::span<float const> x, double bucket_scale) const {
    double const n = static_cast<double>(x.size()), gap = 1.0 / size_;
    if (facts_.shifts) return n * gap * gap / 12;
    if (facts_.evenly_spaced) {
      double const extent = size_;
      return gap * gap *
             (facts_.unbiased ? detail::fractions<false>(x.data(), x.size(), extent / bucket_scale, extent)
                              : detail::fractions<true>(x.data(), x.size(), extent / bucket_scale, extent));
    }
    double sum = 0;
    for (float value : x) {
      double const y = std::min(std::fabs(static_cast<double>(value)) / bucket_scale, levels_.back());
      auto const above = std::max(levels_.begin() + 1, std::lower_bound(levels_.begin(), levels_.end(), y));
      double const up = *above - y, down = y - *(above - 1), near = std::min(up, down);
      sum += facts_.unbiased ? up * down : near * near;
    }
    return sum;
  }

  kernel::host_executor on_;
  globalq::detail::operator_facts facts_;
  std::uint32_t size_ = 0;
  std::shared_ptr<encoding> once_;  // with stages
  std::vector<double> levels_;  // fractions of the scale, ascending; the first is zero, or minus the second
};

/// @brief The family of quantizers: one candidate for each operator, whose cost is the bytes of its frame.
///
/// If frames vary in length (wire::elias and others), the cost is the largest number of bytes.
/// @param space  host execution space that computes norms
template <class Space = Kokkos::DefaultHostExecutionSpace>
family quantizers(std::vector<any_quantizer> const& operators, Space const& space = Space()) {
  struct one {
    quantizer_error error;
    std::shared_ptr<vector_codec> codec;
    std::shared_ptr<std::mutex> alone = std::make_shared<std::mutex>();  // copies of a family share the codec

    double bytes(std::uint64_t length) const {
      std::scoped_lock const lock(*alone);
      return length == 0 ? 0.0 : static_cast<double>(codec->frame_bytes(length));
    }
  };
  if (operators.empty()) throw configuration_error("globalq: quantizers: no operators; give at least one");
  std::vector<one> all;
  for (any_quantizer const& op : operators)
    all.push_back(
        one{quantizer_error(op, space), std::make_shared<vector_codec>(op, space, frame_checksum::none)});
  return [all = std::move(all)](layer const& l, std::span<float const> x) {
    std::vector<candidate> of;
    for (one const& o : all) of.push_back({o.bytes(l.size), o.error(x)});
    return of;
  };
}

}  // namespace GLOBALQ_ABI::adapt
