// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: any operator behind one type, for programs that compose at run time.

#include "quantizer.hpp"

namespace globalq {

/// @brief Holds any quantizer, or uncompressed; copies share it, and a move is a copy.
///
/// Costs one virtual call a frame. Policies that do not fit together are refused when the call is set up.
class any_quantizer {
 public:
  template <class Operator>
  requires(!std::is_same_v<std::remove_cvref_t<Operator>, any_quantizer>) any_quantizer(Operator const& op)
      : held_(std::make_shared<model<Operator>>(op)) {}
  any_quantizer(any_quantizer const&) = default;
  any_quantizer& operator=(any_quantizer const&) = default;

  detail::operator_facts facts() const { return held_->facts(); }
  std::uint64_t levels_hash() const { return held_->levels_hash(); }
  std::vector<double> magnitudes() const { return held_->magnitudes(); }
  std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const& f,
                                                     detail::resolution const& r,
                                                     kernel::host_executor const& on) const {
    return held_->make_codec(f, r, on);
  }

#if defined(KOKKOS_ENABLE_CUDA)
  using stream_executor = kernel::stream_executor<Kokkos::Cuda>;
  std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const& f,
                                                     detail::resolution const& r,
                                                     stream_executor const& on) const {
    return held_->make_codec(f, r, on);
  }
#endif

 private:
  struct door {
    virtual ~door() = default;
    virtual detail::operator_facts facts() const = 0;
    virtual std::uint64_t levels_hash() const = 0;
    virtual std::vector<double> magnitudes() const = 0;
    virtual std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const&,
                                                               detail::resolution const&,
                                                               kernel::host_executor const&) const = 0;
#if defined(KOKKOS_ENABLE_CUDA)
    virtual std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const&,
                                                               detail::resolution const&,
                                                               stream_executor const&) const = 0;
#endif
  };

  template <class Operator>
  struct model final : door {
    explicit model(Operator const& o) : op(o) {}
    detail::operator_facts facts() const override { return detail::facts_of(op); }
    std::uint64_t levels_hash() const override { return detail::levels_hash(op); }
    std::vector<double> magnitudes() const override { return detail::magnitudes(op); }
    std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const& f,
                                                       detail::resolution const& r,
                                                       kernel::host_executor const& on) const override {
      return detail::make_codec(op, f, r, on);
    }
#if defined(KOKKOS_ENABLE_CUDA)
    std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const& f,
                                                       detail::resolution const& r,
                                                       stream_executor const& on) const override {
      return detail::make_codec(op, f, r, on);
    }
#endif
    Operator op;
  };

  std::shared_ptr<door const> held_;
};

}  // namespace globalq
