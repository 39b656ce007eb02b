// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief compressor: signSGD with majority vote: one bit for each value, in both directions.

#include "../random/stream.hpp"
#include "../schedule/scatter_reduce_allgather.hpp"
#include "detail/caller.hpp"
#include "detail/signs.hpp"

namespace GLOBALQ_ABI::baseline {

/// The factor of a sign.
enum class sign_scale : std::uint8_t {
  one,  ///< as in the paper: every value of the mean is 1 or -1
  layers  ///< the mean magnitude of each layer, averaged over the workers: for comparisons, and for error_feedback
};

/// Parameters of sign_sgd; the same on every worker.
struct sign_sgd_options {
  sign_scale scale = sign_scale::one;
};

namespace detail {

/// Words of sign bits; a bit of a sum is the bit of most workers.
class vote_codec final : public codec {
 public:
  vote_codec(kernel::host_executor const& on, std::span<std::uint64_t> words, int workers,
             random::stream const& coins)
      : on_(on), words_(words), workers_(workers), coins_(coins) {}

  std::size_t frame_bytes(segment part, int) const override { return part.count * 8; }
  void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) override {
    auto* const to = reinterpret_cast<std::uint64_t*>(out.data());
    if (sources.empty()) {
      std::copy_n(words_.data() + part.first, part.count, to);
      return;
    }
    for_blocks(on_, part.count, [&](std::uint64_t first, std::uint64_t count) {
      for (std::uint64_t i = first; i < first + count; ++i) {
        ballot votes;
        if (own) votes.add(words_[part.first + i]);
        for (source const& s : sources) {
          std::uint64_t theirs;
          std::memcpy(&theirs, s.frame.data() + 8 * i, 8);
          votes.add(theirs);
        }
        auto const r = votes.against(static_cast<std::uint32_t>(workers_) / 2);
        to[i] = r.more;
        if (workers_ % 2 == 0 && r.equal != 0) to[i] |= r.equal & coins(part.first + i);
      }
    });
  }
  void finish(segment part, std::span<source const> sources) override {
    if (!part.empty()) std::memcpy(words_.data() + part.first, sources[0].frame.data(), part.count * 8);
  }
  payload numbers(segment, std::span<std::byte>) const override { return {}; }
  void declare(std::span<std::byte>, int) const override {}

 private:
  std::uint64_t coins(std::uint64_t word) const {
    random::words4 const w = coins_.group(word);
    return static_cast<std::uint64_t>(w.word[1]) << 32 | w.word[0];
  }

  kernel::host_executor const& on_;
  std::span<std::uint64_t> words_;
  int workers_;
  random::stream coins_;
};

}  // namespace detail

/// @brief Every worker sends the sign of each value, and receives the majority of the signs.
///
/// A zero counts as positive. A tie (possible for an even number of workers) is decided by a random bit from seed, step
/// and place: neither sign is preferred. The mean is a vote, not an average of messages, so error_feedback, which the
/// paper does not use, compensates each worker's own signs only.
/// @complexity  bytes sent: d/4 (n-1)/n, half of them to the workers that count and half from them
/// @determinism bit-identical on all workers: one worker decides each bit
/// @source      Bernstein, Zhao, Azizzadenesheli, Anandkumar 2019, Algorithm 1; scaled signs: Karimireddy et al. 2019
class sign_sgd {
 public:
  /// @throws configuration_error for a layer that is not float32
  explicit sign_sgd(adapt::model_layout layers, sign_sgd_options const& how = {},
                    options const& settings = {})
      : how_(how),
        caller_("sign_sgd", std::move(layers), detail::without_chunks(settings),
                static_cast<std::uint64_t>(how.scale), {}, 8) {
    std::uint64_t pieces = 0;
    for (adapt::layer const& l : caller_.layers()) pieces += divide_up(l.size, detail::block_values);
    pieces_.reserve(pieces);
    for (std::size_t k = 0; k < caller_.layers().size(); ++k) {
      adapt::layer const& l = caller_.layers()[k];
      for (std::uint64_t at = 0; at < l.size; at += detail::block_values) {
        std::uint64_t const count = std::min(detail::block_values, l.size - at);
        pieces_.push_back({k, l.offset + at, count, words_});
        words_ += divide_up<std::uint64_t>(count, 64);
      }
    }
  }

  adapt::model_layout const& layers() const { return caller_.layers(); }

  /// See Compressor; but the mean is a vote, see above.
  template <Transport T>
  outcome reduce(T& workers, std::span<float const> x, std::span<float> mean, std::span<float> rest,
                 std::uint64_t step) {
    auto const on = caller_.executor_of(workers);
    return caller_.call(
        workers, on, x, mean, rest, step, caller_.largest(on, x), [&](auto const&, auto left) {
          vote(workers, on, x, step);
          scales(workers, on, x);
          auto const timed = caller_.enter(phase::decode);
          on.items(pieces_.size(), [&](std::uint64_t i) {
            piece const& p = pieces_[i];
            if (!left.empty()) {
              float const own = own_[p.layer];
              for (std::uint64_t j = p.first; j < p.first + p.count; ++j)
                left[j] = x[j] - (x[j] < 0 ? -own : own);
            }
            float const scale = all_[p.layer];
            std::fill_n(mean.data() + p.first, p.count, 0.0F);
            detail::add_signed(bits_.data() + p.word, p.count, scale, -scale, mean.data() + p.first);
          });
          return outcome::mean;
        });
  }

 private:
  template <Transport T>
  void vote(T& workers, kernel::host_executor const& on, std::span<float const> x, std::uint64_t step) {
    bits_.resize(words_);
    on.items(pieces_.size(), [&](std::uint64_t i) {
      piece const& p = pieces_[i];
      detail::pack_signs(x.data() + p.first, p.count, bits_.data() + p.word);
    });
    if (workers.size() == 1 || words_ == 0) return;
    detail::vote_codec votes(on, bits_, workers.size(),
                             {caller_.settings().seed, step, 0, random::purpose::start});
    schedule::scatter_reduce_allgather const sum;
    caller_.exchange(
        workers, sum, votes,
        globalq::partition(words_, sum.parts(workers.size()), 1, caller_.chunk_values(workers, 8)));
  }

  /// Computes the scale of each layer, of this worker and of the mean.
  template <Transport T>
  void scales(T& workers, kernel::host_executor const& on, std::span<float const> x) {
    std::size_t const count = layers().size();
    own_.assign(count, 1.0F);
    all_.assign(count, 1.0F);
    if (how_.scale == sign_scale::one) return;
    on.items(count, [&](std::uint64_t k) {
      adapt::layer const& l = layers()[k];
      double sum = 0;
      for (float v : x.subspan(l.offset, l.size)) sum += std::abs(static_cast<double>(v));
      own_[k] = l.size == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(l.size));
    });
    auto const n = static_cast<std::size_t>(workers.size());
    auto& memory = caller_.memory();
    float* const mine = memory.mine.get_values<float>(count);
    float* const theirs = memory.all.get_values<float>(count * n);
    std::copy(own_.begin(), own_.end(), mine);
    caller_.allgather(workers, std::span<float const>(mine, count), std::span(theirs, count * n));
    for (std::size_t k = 0; k < count; ++k) {
      double sum = 0;
      for (std::size_t r = 0; r < n; ++r) sum += static_cast<double>(theirs[r * count + k]);
      all_[k] = static_cast<float>(sum / static_cast<double>(n));
    }
  }

  /// Values of a layer whose bits begin at a word boundary.
  struct piece {
    std::size_t layer;
    std::uint64_t first, count, word;
  };

  sign_sgd_options how_;
  detail::caller caller_;
  std::uint64_t words_ = 0;
  std::vector<piece> pieces_;
  std::vector<std::uint64_t> bits_;
  std::vector<float> own_, all_;
};

}  // namespace GLOBALQ_ABI::baseline
