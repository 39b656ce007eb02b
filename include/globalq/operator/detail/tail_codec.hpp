// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the codec of float32_tail: whole buckets by an operator, the remaining values as float32.
///
/// Segments begin at multiples of the bucket, and only the last one of a vector may end elsewhere, so the tail of a
/// segment is the tail of the vector.

#include "paired_codec.hpp"
#include "resolve.hpp"

namespace GLOBALQ_ABI::detail {

class tail_codec final : public paired_codec {
 public:
  static constexpr char const* stream_refusal =
      "a float32 tail is supported only in host memory; on a stream remove float32_tail, so that a short "
      "last "
      "bucket has its own scale, or average in host memory";

  /// @param whole  the codec of the operator
  /// @param op     with its bucket, above 0
  tail_codec(std::unique_ptr<operator_codec> whole, operator_facts const& op, kernel::host_executor const& on)
      : paired_codec(std::move(whole), on), bucket_(op.bucket) {}

  void begin(call const& c) override {
    operator_codec::begin(c);
    begin_both(c, c);
  }

 private:
  sections cut(segment part) const override { return with_tail(part, bucket_); }

  std::uint64_t bucket_;
};

}  // namespace GLOBALQ_ABI::detail
