// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the policies of a composition in host memory, as one type for each code type.

#include "../../kernel/executor.hpp"
#include "../../kernel/host/leaves.hpp"
#include "../../reduce/exponential.hpp"
#include "composition.hpp"

#include <memory>

namespace GLOBALQ_ABI::detail {

/// Policies and their properties.
template <class Int>
struct host_policies {
  policy_facts facts;
  levels::detail::level_table* table = nullptr;  ///< the levels, if they are a table
  kernel::reduce_leaves<Int> adding{};           ///< if codes are not added as integers

  explicit host_policies(policy_facts const& of) : facts(of) {}
  virtual ~host_policies() = default;
  virtual kernel::host::any_policies<Int> const& kernels() const = 0;
  /// Prepares the rounding for a worker of a call. @returns whether it was told, so that kernels() have changed
  virtual bool tell(std::uint32_t rank, std::uint32_t workers) = 0;
};

/// @tparam Levels,Rounding  kernel types
/// @tparam Reduce           a user-defined reduce operator, or void
template <class Levels, class Rounding, class Wire, class Reduce = void>
class typed_policies final : public host_policies<typename Wire::code_type> {
  using code_type = typename Wire::code_type;

 public:
  typed_policies(Levels const& levels, Rounding const& rounding, Wire const& wire, operator_facts const& of,
                 std::uint32_t largest_sum = 0)
      : host_policies<code_type>(policy_facts_of(levels, rounding, wire, of)), held_(levels, rounding, wire) {
    if constexpr (std::is_same_v<Levels, levels::detail::level_table>) this->table = &held_.levels;
    this->facts.largest_sum = largest_sum;
    if constexpr (!std::is_void_v<Reduce>) {
      this->adding = kernel::host::adding_of<Reduce, code_type>();
      this->adding.checked = true;
    } else if constexpr (base_two<Levels>()) {
      this->adding = kernel::host::adding_of<reduce::exponential, code_type>();
    }
  }
  kernel::host::any_policies<code_type> const& kernels() const override { return held_; }
  bool tell(std::uint32_t rank, std::uint32_t workers) override {
    held_.tell(rank, workers);
    return ToldWorker<Rounding>;
  }

 private:
  kernel::host::held_policies<Levels, Rounding, Wire> held_;
};

/// The codec of a composition. Compiled once for each code type.
template <class Int>
std::unique_ptr<operator_codec> make_composed(std::unique_ptr<host_policies<Int>> held,
                                              operator_facts const& facts, method how,
                                              kernel::host_executor const& on);

template <class Levels, class Rounding, class Wire>
std::unique_ptr<operator_codec> compose(Levels const& levels, Rounding const& rounding, Wire const& wire,
                                        operator_facts const& facts, method how,
                                        kernel::host_executor const& on) {
  using held = typed_policies<Levels, Rounding, Wire>;
  return make_composed<typename Wire::code_type>(
      std::make_unique<held>(levels, rounding_for(rounding, facts, how), wire, facts), facts, how, on);
}

/// The same with a user-defined reduce operator.
template <class Reduce, class Levels, class Rounding, class Wire>
std::unique_ptr<operator_codec> compose_user(std::type_identity<Reduce>, Levels const& levels,
                                             Rounding const& rounding, Wire const& wire,
                                             operator_facts const& facts, resolution const& r,
                                             kernel::host_executor const& on) {
  using held = typed_policies<Levels, Rounding, Wire, Reduce>;
  return make_composed<typename Wire::code_type>(
      std::make_unique<held>(levels, rounding_for(rounding, facts, r.how), wire, facts, largest_sum_of(r)),
      facts, r.how, on);
}

}  // namespace GLOBALQ_ABI::detail
