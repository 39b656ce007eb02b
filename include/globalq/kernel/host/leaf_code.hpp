// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: a block code, and packing in fixed width, that call their loops through pointers.

#include "../../wire/coded.hpp"
#include "leaves.hpp"

namespace GLOBALQ_ABI::kernel::host {

/// The leaves of a built-in code.
template <class Code>
code_leaves<typename Code::code_type> code_of() {
#if defined(GLOBALQ_COMPILED)
  using code_type = typename Code::code_type;
  return isa::chosen_integers<code_type>().codes[built_in_codes<code_type>::template place<Code>()];
#else
  return detail::make_code_leaves<Code>();
#endif
}

/// A block code that calls leaves.
/// @tparam Code  a built-in code
template <wire::BlockCode Code>
struct leaf_code {
  using code_type = typename Code::code_type;
  using table = typename Code::table;

  Code code;
  code_leaves<code_type> leaf;

  leaf_code(Code const& of = {}) : code(of), leaf(code_of<Code>()) {}

  static constexpr char const* name() { return Code::name(); }
  static constexpr std::uint8_t identifier() { return Code::identifier(); }
  static constexpr std::uint32_t largest_code() { return Code::largest_code(); }
  table make_table(std::span<std::uint64_t const> counts, std::uint32_t max_code) const {
    return code.make_table(counts, max_code);
  }
  std::size_t table_bytes(std::uint32_t max_code) const { return code.table_bytes(max_code); }
  void write_table(table const& t, std::uint32_t max_code, std::byte* out) const {
    code.write_table(t, max_code, out);
  }
  bool read_table(std::byte const* in, std::uint32_t max_code, table& t) const {
    return code.read_table(in, max_code, t);
  }
  std::size_t encode(table const& t, code_type const* codes, int count, std::byte* out,
                     std::size_t room) const {
    return leaf.encode(&code, &t, codes, count, out, room);
  }
  bool decode(table const& t, std::span<std::byte const> in, int count, std::uint32_t max_code,
              code_type* codes) const {
    return leaf.decode(&code, &t, in.data(), in.size(), count, max_code, codes);
  }
};

/// wire::detail::in_fixed_width with leaves.
template <class Int>
struct leaf_fixed_width {
  using form = wire::detail::fixed_width<Int>;

  form as;
  wire_leaves<Int> leaf = packing_of<form>();
  integer_leaves<Int> any = integers_of<Int>();

  leaf_fixed_width(std::uint32_t max_code, bool zero_free)
      : as(wire::detail::make_fixed_width<Int>(max_code, zero_free)) {}
  std::uint64_t bytes(std::uint64_t n) const { return as.bytes(n); }
  void pack(Int const* codes, int count, std::byte* out, bool zero_free) const {
    leaf.pack(&as, codes, count, out, zero_free);
  }
  bool unpack(std::byte const* in, int count, Int* codes, bool zero_free) const {
    return leaf.unpack(&as, in, count, codes, zero_free);
  }
  bool in_range(Int const* codes, int count, std::uint32_t max_code, bool zero_free) const {
    return any.in_range(codes, count, max_code, zero_free);
  }
};

/// wire::coded with leaves.
template <class Code>
using leaf_coded = wire::coded<leaf_code<Code>, leaf_fixed_width<typename Code::code_type>>;

}  // namespace GLOBALQ_ABI::kernel::host
