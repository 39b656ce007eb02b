// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: definitions of vector_codec.hpp.

#include "detail/staged_codec.hpp"
#include "vector_codec.hpp"

namespace GLOBALQ_ABI {

GLOBALQ_DECL std::size_t vector_codec::frame_bytes(std::uint64_t length, dtype type) {
  dtype const encoded = facts_.chain.empty() ? type : detail::mapped_type(type);
  prepare({nullptr, encoded}, {nullptr, encoded}, length, {}, 1);
  return length == 0 ? 0 : codec_->frame_bytes({0, length}, 1) + trailer_;
}

GLOBALQ_DECL const_vector vector_codec::mapped(const_vector x, std::uint64_t length, encoding_key key) {
  dtype const type = detail::mapped_type(x.type);
  mutable_vector const room{mapped_.get(detail::values_of(facts_.chain, length) * size_of(type)).data(),
                            type};
  detail::enter(
      facts_.chain,
      {on_, length, key.seed, key.step, static_cast<int>(key.worker), detail::largest_mapped(type), type},
      detail::widened(on_, x, {0, length}, room), {0, length}, room);
  return {room.data, type};
}

GLOBALQ_DECL bool vector_codec::add(const_vector decoded, mutable_vector y, std::uint64_t length) const {
  std::uint32_t beyond = 0;
  kernel::value_leaves const& leaf = kernel::host::leaves_of_values();
  on_.items(divide_up(length, kernel::host_values), [&](std::uint64_t piece) {
    std::uint64_t const first = piece * kernel::host_values,
                        count = std::min<std::uint64_t>(kernel::host_values, length - first);
    bool lost = false;
    if (y.type == dtype::float64) {
      auto const* const from = static_cast<double const*>(decoded.data) + first;
      auto* const to = static_cast<double*>(y.data) + first;
      bool any_nan = false;
      for (std::uint64_t i = 0; i < count; ++i) {
        lost = lost || (is_finite(to[i]) && !is_finite(to[i] + from[i]));
        to[i] += from[i];
        any_nan = any_nan || to[i] != to[i];
      }
      if (any_nan) make_nans_quiet(y, first, count);
    } else {
      lost = leaf.store_sum(y, first, static_cast<int>(count), store_scale(),
                            static_cast<float const*>(decoded.data) + first);
    }
    if (lost) {
      make_nans_quiet(y, first, count);
      Kokkos::atomic_or(&beyond, 1U);
    }
  });
  return beyond != 0;
}

GLOBALQ_DECL std::size_t vector_codec::encode(const_vector x, std::uint64_t length, encoding_key key,
                                              std::span<std::byte> frame) {
  float_environment const exact;
  expect_size(frame.size(), frame_bytes(length, x.type));
  if (length == 0) return 0;
  if (!facts_.chain.empty()) x = mapped(x, length, key);
  std::span<std::byte> const body = frame.first(frame.size() - trailer_);
  auto const used = [&] {
    std::size_t const bytes = codec_->length_of(body, static_cast<int>(key.worker));
    if (trailer_ != 0) store_to(frame.data() + bytes, checksum_of(body.first(bytes), key, key.worker));
    return bytes + trailer_;
  };
  std::uint64_t const buckets = facts_.bucket == 0 ? 1 : divide_up(length, facts_.bucket);
  bucket_scales_.resize(buckets);
  prepare(x, {nullptr, x.type}, length, key, 1);
  // try one pass; if that is not possible, or values are not finite, compute the norms first
  if (codec_->encode_measured({0, length}, bucket_scales_, body)) return used();
  statistics_.resize(buckets);
  norm::bucket_statistics(on_, length, facts_.bucket, facts_.q, norm::input_block{x, facts_.q}, statistics_,
                          parts_);
  auto const refused =
      std::find_if(statistics_.begin(), statistics_.end(), [](auto const& s) { return !s.finite(); });
  if (refused != statistics_.end()) {
    std::memset(frame.data(), 0, wire::header_bytes);
    detail::fail<non_finite_error>({"globalq: encode: values ",
                                    static_cast<std::uint64_t>(refused - statistics_.begin()) * facts_.bucket,
                                    " and following contain NaN or infinity, so the frame is invalid; encode "
                                    "finite values"});
  }
  if (facts_.user_norm != nullptr) {
    own_.resize(buckets);
    facts_.user_norm->measure(on_, x, length, facts_.bucket, own_, own_parts_);
  }
  for (std::uint64_t b = 0; b < buckets; ++b) {
    if (facts_.fixed_scale > 0 && statistics_[b].max() > facts_.fixed_scale)
      detail::fail<configuration_error>({"globalq: encode: a value of magnitude ",
                                         detail::digits_of(statistics_[b].max()), " exceeds the scale ",
                                         detail::digits_of(facts_.fixed_scale),
                                         " of norm::fixed; raise that scale, or use a measured norm"});
    if (facts_.user_norm != nullptr) {
      detail::user_scale const scale = facts_.user_norm->scale(own_[b]);
      bucket_scales_[b] = facts_.user_norm->scale_of(scale, facts_.q, x.type, 0);
      if (bits_of(bucket_scales_[b]) < double_infinity) continue;
      std::memset(frame.data(), 0, wire::header_bytes);
      detail::fail<configuration_error>({"globalq: encode: ", detail::user_norm::refusal(facts_, b, scale)});
    }
    bucket_scales_[b] =
        facts_.fixed_scale > 0 ? facts_.fixed_scale : norm::local_scale(statistics_[b], facts_.q, x.type, 0);
    if (bits_of(bucket_scales_[b]) >= double_infinity) {
      std::memset(frame.data(), 0, wire::header_bytes);
      detail::fail<non_finite_error>(
          {"globalq: encode: the norm of values ", b * facts_.bucket,
           " and following is beyond the range of float64, so the frame is invalid; scale the "
           "vector down, or use norm::linf"});
    }
  }
  if (scale_format const form = facts_.q.format(x.type); form.two_level())
    vector_scale_ = norm::settle_two_levels(bucket_scales_, form);
  prepare(x, {nullptr, x.type}, length, key, 1);
  codec_->combine({0, length}, true, {}, body);
  return used();
}

GLOBALQ_DECL void vector_codec::read(std::span<source const> frames, encoding_key key, mutable_vector y,
                                     std::uint64_t length, bool add) {
  float_environment const exact;
  if (frames.empty())
    throw configuration_error(
        "globalq: vector_codec: the mean of no frames is not defined; pass at least one");
  if (length == 0) return;
  bucket_scales_.assign(facts_.bucket == 0 ? 1 : divide_up(length, facts_.bucket), facts_.fixed_scale);
  bool const maps = !facts_.chain.empty();
  dtype const type = maps ? detail::mapped_type(y.type) : y.type;
  mutable_vector const to =
      maps && add ? mutable_vector{decoded_.get(length * size_of(type)).data(), type} : y;
  prepare({nullptr, type}, to, length, key, static_cast<int>(frames.size()));
  if (facts_.told_worker && key.workers > 1)
    for (source const& s : frames)
      if (static_cast<std::uint32_t>(s.worker) >= key.workers)
        detail::fail<configuration_error>({"globalq: decode: there is no worker ", s.worker, " of ",
                                           key.workers,
                                           "; pass the number of workers that the frames were encoded with"});
  bodies_.assign(frames.begin(), frames.end());
  for (source& s : bodies_) s.frame = without_checksum(s, length);
  codec_->verify({0, length}, bodies_);
  for (std::size_t k = 0; k < frames.size(); ++k)
    if (frames[k].frame.size() != bodies_[k].frame.size()) check(frames[k], bodies_[k].frame, key);
  if (add && !maps)
    codec_->add_decoded({0, length}, bodies_);
  else
    codec_->finish({0, length}, bodies_);
  bool beyond = (codec_->faults() & kernel::out_of_range) != 0;
  if (add && maps) beyond = this->add({to.data, to.type}, y, length) || beyond;
  if (beyond)
    detail::fail<non_finite_error>(
        {"globalq: decode: a value is beyond the range of ", name_of(y.type),
         ", and the output contains infinity there; decode into a wider type, or scale vectors down"});
}

GLOBALQ_DECL std::uint32_t vector_codec::checksum_of(std::span<std::byte const> body, encoding_key key,
                                                     std::uint32_t worker) const {
  std::uint64_t start = codec_->traits();
  for (auto const& map : facts_.chain) start = detail::hash(detail::hash(start, map->name()), map->grain());
  if (decoding_draws()) start = detail::hash(detail::hash(start, key.seed), key.step);
  if (draws_of_worker()) start = detail::hash(start, worker);
  if (facts_.told_worker && facts_.shifts) start = detail::hash(start, std::uint64_t{key.workers});
  return wire::checksum(body, static_cast<std::uint32_t>(start >> 32));
}

GLOBALQ_DECL std::span<std::byte const> vector_codec::without_checksum(source const& s,
                                                                       std::uint64_t length) const {
  std::size_t const body =
      codec_->head_bytes() == 0 ? codec_->frame_bytes({0, length}, 1) : codec_->length_of(s.frame, s.worker);
  return s.frame.size() == body + wire::checksum_bytes ? s.frame.first(body) : s.frame;
}

GLOBALQ_DECL void vector_codec::check(source const& whole, std::span<std::byte const> body,
                                      encoding_key key) const {
  if (load_from<std::uint32_t>(whole.frame.data() + body.size()) ==
      checksum_of(body, key, static_cast<std::uint32_t>(whole.worker)))
    return;
  detail::fail<frame_error>({"globalq: decode: bad frame from worker ", whole.worker,
                             ": checksum mismatch; the bytes were damaged, or made by another operator",
                             (decoding_draws() ? " or with another key" : "")});
}

GLOBALQ_DECL void vector_codec::prepare(const_vector x, mutable_vector y, std::uint64_t length,
                                        encoding_key key, int workers) {
  if (key.step > random::max_step)
    detail::fail<configuration_error>({"globalq: vector_codec: step ", key.step,
                                       " is above 2^48 - 1; count steps from 0 and change the seed instead"});
  if (length >> 48 != 0)
    detail::fail<configuration_error>(
        {"globalq: vector_codec: ", length,
         " values are more than 2^48 - 1, the most of a frame; encode parts of the vector"});
  for (auto const& map : facts_.chain)
    if (!map->side_values({0, length}).empty())
      detail::fail<configuration_error>(
          {"globalq: vector_codec: ", map->name(), " has side values for ", length,
           " values, which travel in the frames of calls only; encode without the stage"});
  detail::codec_call c;
  c.x = x;
  c.y = y;
  c.length = length;
  c.rank = static_cast<int>(key.worker);
  detail::tell(c, key);
  c.workers = workers;
  c.top = detail::largest_mapped(x.type);  // of stages: no call agrees on a bound
  c.seed = key.seed;
  c.step = key.step;
  c.bucket_scales = bucket_scales_;
  c.vector_scale = vector_scale_;
  codec().begin(c);
}

GLOBALQ_DECL detail::operator_codec& vector_codec::codec() {
  if (codec_ == nullptr)
    throw configuration_error(
        "globalq: vector_codec: this codec was moved from; use the one it was moved to");
  return *codec_;
}

GLOBALQ_DECL void vector_codec::expect_size(std::size_t have, std::size_t need) {
  if (have != need)
    detail::fail<configuration_error>(
        {"globalq: encode: the frame has ", have, " bytes and needs ", need, "; pass frame_bytes() bytes"});
}

}  // namespace GLOBALQ_ABI
