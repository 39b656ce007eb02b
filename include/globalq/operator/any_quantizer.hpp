// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: a type that holds any operator, for programs that compose at run time.

#include "detail/facts_of.hpp"
#include "detail/make_codec.hpp"
#if defined(KOKKOS_ENABLE_CUDA)
#include "detail/make_stream_codec.hpp"
#endif

#include <memory>
#include <string>

namespace GLOBALQ_ABI {

/// @brief Holds any operator: its facts and a factory of its codecs. Copies share them, and a move is a copy.
///
/// No cost in a call, because codecs are the same as without it. Policies that do not fit together are refused when the
/// call is set up.
class any_quantizer {
 public:
  /// @param op  a quantizer or floats
  template <class Operator>
  requires detail::is_composed<Operator> any_quantizer(Operator const& op) : any_quantizer(hold(op)) {}
  any_quantizer(any_quantizer const&) = default;
  any_quantizer& operator=(any_quantizer const&) = default;

  detail::operator_facts const& facts() const& { return held_->facts; }
  detail::operator_facts facts() const&& { return held_->facts; }
  std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const& f,
                                                     detail::resolution const& r,
                                                     kernel::host_executor const& on) const {
    return held_->on_host(*held_, f, r, on);
  }

  /// @brief The same operator, for vectors that the caller changes before each call, for example by clip_deviations.
  ///
  /// Calls change nothing else: workers compare the texts, which the operator's name contains, so that a worker that
  /// prepares its vectors in another way is reported on all workers.
  /// @param how  such as "clip 2.5"; empty: returns the operator itself
  any_quantizer after(std::string const& how) const {
    return how.empty() ? *this : any_quantizer(std::make_shared<prepared_parts>(held_, how));
  }

#if defined(KOKKOS_ENABLE_CUDA)
  using stream_executor = kernel::stream_executor<Kokkos::Cuda>;
  std::unique_ptr<detail::operator_codec> make_codec(detail::operator_facts const& f,
                                                     detail::resolution const& r,
                                                     stream_executor const& on) const {
    return held_->on_stream(*held_, f, r, on);
  }
#endif

 protected:
  /// An operator without its type.
  struct parts {
    template <class Executor>
    using maker = std::unique_ptr<detail::operator_codec> (*)(parts const&, detail::operator_facts const&,
                                                              detail::resolution const&, Executor const&);

    detail::operator_facts facts;
    maker<kernel::host_executor> on_host;
#if defined(KOKKOS_ENABLE_CUDA)
    maker<stream_executor> on_stream;
#endif
  };

  explicit any_quantizer(std::shared_ptr<parts const> held) : held_(std::move(held)) {}

  /// Another operator with a preparation in its facts.
  struct prepared_parts : parts {
    prepared_parts(std::shared_ptr<parts const> of, std::string const& how) : inner(std::move(of)) {
      this->facts = detail::prepared(inner->facts, how);
      this->on_host = [](parts const& p, detail::operator_facts const& f, detail::resolution const& r,
                         kernel::host_executor const& on) {
        parts const& of_inner = *static_cast<prepared_parts const&>(p).inner;
        return of_inner.on_host(of_inner, f, r, on);
      };
#if defined(KOKKOS_ENABLE_CUDA)
      this->on_stream = [](parts const& p, detail::operator_facts const& f, detail::resolution const& r,
                           stream_executor const& on) {
        parts const& of_inner = *static_cast<prepared_parts const&>(p).inner;
        return of_inner.on_stream(of_inner, f, r, on);
      };
#endif
    }
    std::shared_ptr<parts const> inner;
  };

 private:
  /// Norm and reduce are data, so operators that differ only in these share a model.
  /// @tparam Policies  detail::coded_policies or detail::floats_policies
  template <class Policies>
  struct model : parts {
    model(detail::operator_facts facts_of_op, Policies const& what) : policies(what) {
      this->facts = std::move(facts_of_op);
      this->on_host = make<kernel::host_executor>;
#if defined(KOKKOS_ENABLE_CUDA)
      this->on_stream = make<stream_executor>;
#endif
    }
    template <class Executor>
    static std::unique_ptr<detail::operator_codec> make(parts const& p, detail::operator_facts const& f,
                                                        detail::resolution const& r, Executor const& on) {
      return detail::make_codec(static_cast<model const&>(p).policies, f, r, on);
    }
    Policies policies;
  };

  template <class Operator>
  static std::shared_ptr<parts const> hold(Operator const& op) {
    float_environment const exact;
    auto const policies = detail::policies_of(op);
    return std::make_shared<model<std::remove_const_t<decltype(policies)>>>(detail::facts_of(op), policies);
  }

  std::shared_ptr<parts const> held_;
};

namespace detail {

inline operator_facts const& facts_of(any_quantizer const& op) { return op.facts(); }

template <class Erased, class Executor>
requires std::is_base_of_v<any_quantizer, Erased> std::unique_ptr<operator_codec> make_codec(
    Erased const& op, operator_facts const& f, resolution const& r, Executor const& on) {
  static_assert(
      requires { op.make_codec(f, r, on); },
      "globalq: any_quantizer supports only the host and Kokkos::Cuda; with a transport on another "
      "space use a quantizer with its own type");
  return op.make_codec(f, r, on);
}

/// An operator that calls accept.
template <class O>
concept Operator = is_composed<O> || std::is_base_of_v<any_quantizer, O>;

}  // namespace detail
}  // namespace GLOBALQ_ABI
