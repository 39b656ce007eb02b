// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: what the bodies of a host call of policies: loops over values in L1, by pointers to functions.
///
/// The bodies (host/combine.hpp, host/mean.hpp) are compiled once for each lane. What a composition adds is its leaves: a
/// loop over values each, of levels and rounding, of levels, or of a wire format. A leaf works on at most host_values
/// values, and on all runs of them that share a scale, so that short buckets do not cost a call each.

#include "../../rounding/one_word.hpp"
#include "../detail/avx512.hpp"
#include "../executor.hpp"
#include "../loops.hpp"

namespace GLOBALQ_ABI::kernel::host {

/// Values that leaves take at once: the usual number, and the most.
inline constexpr int piece_values = static_cast<int>(host_values);

/// Consecutive values that share a scale, to be encoded.
struct encoded_run {
  float const* values;
  int at, count;        ///< within the piece
  float gain;           ///< values times this are on the scale of the levels
  std::uint32_t drawn;  ///< the bucket's word, where values have none of their own
};

/// Consecutive codes that share a scale: (level + shift) * factor, then a store_scale.
struct decoded_run {
  int at, count;
  float shift, factor;
  float scale, post;  ///< of decode: the factors of a store_scale
};

/// A rounding as bodies see it. Words are as drawn: leaves make of them what the rounding does.
struct any_rounding {
  bool word_per_coordinate;
  bool shifts_back;
  bool constant;  ///< its word is the same whatever is drawn
  void const* policy;
  double (*shift_of)(void const* policy, std::uint32_t drawn);

  bool shifts() const { return shifts_back; }
  static std::uint32_t word(std::uint32_t drawn) { return drawn; }
  double shift(std::uint32_t drawn) const { return shift_of(policy, drawn); }
};

/// What adds codes, for a reduce operator.
template <class Lane>
struct reduce_leaves {
  /// out = a + b; out may be a or b.
  void (*add)(Lane const* a, Lane const* b, int count, std::uint32_t const* words, Lane* out);
  bool draws;  ///< add() looks at a word for each value
  /// The same for whole random tiles, or null; returns at least the largest magnitude that it saw.
  std::uint32_t (*add_tiles)(Lane const* a, Lane const* b, random::stream const& s, std::uint64_t tile,
                             int tiles, Lane* out, std::size_t ahead);
};

/// What levels with a rounding add to a composition. Policies come back as they were given: see policies.
template <class Lane>
struct coding_leaves {
  void (*encode)(void const* levels, void const* rounding, encoded_run const* runs, int count,
                 std::uint32_t const* words, Lane* out);
  /// Whole random tiles, for each type of values; null where there is no loop for this machine.
  /// @param gain  one for every 64 values
  /// @param out   codes as bytes, or as a wire of four bits has them
  using tiles = void (*)(void const* levels, void const* rounding, void const* values, float const* gain,
                         random::stream const& s, std::uint64_t tile, int count, void* out, int origin,
                         std::size_t ahead);
  tiles bytes_of_tiles[4], nibbles_of_tiles[4];  ///< by dtype
};

/// What levels add.
template <class Lane>
struct level_leaves {
  using decoder = std::uint32_t (*)(void const* levels, Lane const* codes, decoded_run const* runs, int count,
                                    std::uint32_t limit, float* out);
  /// The values of codes, written or added.
  decoder write_values, add_values;
  /// The same on the scale of a float32 vector. They return what kernel::decode() does.
  decoder decode, decode_and_add;
};

/// What a wire format adds.
template <class Lane>
struct wire_leaves {
  void (*pack)(void const* wire, Lane const* codes, int count, std::byte* out, bool zero_free);
  bool (*unpack)(void const* wire, std::byte const* in, int count, Lane* codes, bool zero_free);
  std::uint64_t (*bytes)(void const* wire,
                         std::uint64_t count);  ///< null where codes have no gaps between them
  bool as_lanes;                                ///< codes travel as lanes: no pack() and no unpack()
};

/// The functions of a composition.
template <class Lane>
struct leaves : coding_leaves<Lane>, level_leaves<Lane>, wire_leaves<Lane> {};

/// A composition as bodies see it.
template <class Lane>
struct policies {
  leaves<Lane> const* leaf = nullptr;
  void const *levels = nullptr, *wire = nullptr;
  bool has_tiles = false;  ///< these levels are such that bytes_of_tiles can be called, where there are any
  std::uint32_t bits = 0;  ///< of a code, where there are no gaps
};

namespace detail {

template <class T>
T const& as(void const* policy) {
  return *static_cast<T const*>(policy);
}

template <class Levels, class Rounding, class Lane>
void encode(void const* levels, void const* rounding, encoded_run const* runs, int count,
            std::uint32_t const* words, Lane* out) {
  Levels const& scheme = as<Levels>(levels);
  Rounding const decide = as<Rounding>(rounding);
  for (encoded_run const* r = runs; r != runs + count; ++r)
    codes<piece_values>(scheme, decide, r->gain, r->values, r->count,
                        words + (Rounding::word_per_coordinate ? r->at : 0),
                        Rounding::word_per_coordinate ? 0U : decide.word(r->drawn), out + r->at);
}

template <bool Add, class Levels, class Lane>
std::uint32_t values(void const* levels, Lane const* codes, decoded_run const* runs, int count,
                     std::uint32_t /*limit*/, float* out) {
  for (decoded_run const* r = runs; r != runs + count; ++r)
    kernel::values<piece_values, Add>(as<Levels>(levels), codes + r->at, r->count, r->shift, r->factor,
                                      out + r->at);
  return 0;
}

template <bool Add, class Levels, class Lane>
std::uint32_t decode(void const* levels, Lane const* codes, decoded_run const* runs, int count,
                     std::uint32_t limit, float* out) {
  std::uint32_t top = 0;
  for (decoded_run const* r = runs; r != runs + count; ++r) {
    std::uint32_t const largest =
        kernel::decode<piece_values, Add>(as<Levels>(levels), codes + r->at, r->count, r->shift, r->factor,
                                          r->scale, r->post, limit, out + r->at);
    top = top < largest ? largest : top;
  }
  return top;
}

template <class Levels, class Rounding, class Value, bool Nibbles>
void tiles(void const* levels, void const* rounding, void const* values, float const* gain,
           random::stream const& s, std::uint64_t tile, int count, void* out, [[maybe_unused]] int origin,
           std::size_t ahead) {
  using namespace kernel::detail;
  auto const target = [&] {
    if constexpr (Nibbles)
      return as_nibbles{static_cast<std::uint8_t*>(out), origin};
    else
      return as_bytes{static_cast<std::int8_t*>(out)};
  }();
  codes_of_tiles(as<Levels>(levels), as<Rounding>(rounding), static_cast<Value const*>(values), gain, s, tile,
                 count, target, ahead);
}

template <class Rounding>
double shift(void const* rounding, std::uint32_t drawn) {
  Rounding const& r = as<Rounding>(rounding);
  return r.shift(r.word(drawn));
}

template <class Rounding>
bool is_constant([[maybe_unused]] Rounding const& decide) {
  if constexpr (std::is_same_v<Rounding, rounding::detail::one_word>) return decide.constant;
  return false;
}

template <class Wire>
constexpr bool without_gaps() {
  if constexpr (requires { Wire::without_gaps; }) return Wire::without_gaps;
  return false;
}

template <class Levels, class Rounding, class Lane, bool Nibbles>
coding_leaves<Lane> make_coding_of() {
  coding_leaves<Lane> l{};
  l.encode = encode<Levels, Rounding, Lane>;
  if constexpr (kernel::detail::has_codes_of_tiles<Levels, Rounding, Lane>) {
    constexpr auto f32 = static_cast<int>(dtype::float32), f16 = static_cast<int>(dtype::float16),
                   b16 = static_cast<int>(dtype::bfloat16);
    l.bytes_of_tiles[f32] = tiles<Levels, Rounding, float, false>;
    l.bytes_of_tiles[f16] = tiles<Levels, Rounding, float16, false>;
    l.bytes_of_tiles[b16] = tiles<Levels, Rounding, bfloat16, false>;
    if constexpr (Nibbles) {
      l.nibbles_of_tiles[f32] = tiles<Levels, Rounding, float, true>;
      l.nibbles_of_tiles[f16] = tiles<Levels, Rounding, float16, true>;
      l.nibbles_of_tiles[b16] = tiles<Levels, Rounding, bfloat16, true>;
    }
  }
  return l;
}

template <class Levels, class Lane>
level_leaves<Lane> make_decoding_of() {
  return {values<false, Levels, Lane>, values<true, Levels, Lane>, decode<false, Levels, Lane>,
          decode<true, Levels, Lane>};
}

template <class Wire>
wire_leaves<typename Wire::lane> make_packing_of() {
  using lane = typename Wire::lane;
  wire_leaves<lane> l{};
  l.as_lanes = globalq::detail::is_integer_wire<Wire>();
  if constexpr (!globalq::detail::is_integer_wire<Wire>()) {
    l.pack = [](void const* wire, lane const* codes, int count, std::byte* out, bool zero_free) {
      as<Wire>(wire).pack(codes, count, out, zero_free);
    };
    l.unpack = [](void const* wire, std::byte const* in, int count, lane* codes, bool zero_free) {
      return as<Wire>(wire).unpack(in, count, codes, zero_free);
    };
  }
  if constexpr (!without_gaps<Wire>())
    l.bytes = [](void const* wire, std::uint64_t count) { return as<Wire>(wire).bytes(count); };
  return l;
}

template <class Wire>
constexpr bool may_be_nibbles() {
  if constexpr (requires { Wire::may_be_nibbles; }) return Wire::may_be_nibbles;
  return false;
}

template <class Op, class Lane>
constexpr reduce_leaves<Lane> make_reduce_leaves() {
  reduce_leaves<Lane> l{add<Op, piece_values, Lane>, Op::draws, nullptr};
  if constexpr (requires(Lane * c) { Op::add_tiles(c, c, random::stream{}, 0, 1, c); })
    l.add_tiles = Op::add_tiles;
  return l;
}

}  // namespace detail

/// How a reduce operator adds codes.
template <class Op, class Lane>
inline constexpr reduce_leaves<Lane> reduce_leaves_of = detail::make_reduce_leaves<Op, Lane>();

namespace detail {
template <class Op, class Lane>
reduce_leaves<Lane> const* make_adding_of() {
  return &reduce_leaves_of<Op, Lane>;
}
}  // namespace detail

// The leaves of policies. Those of built-in ones may have been compiled before: see operator/built_in.hpp.

/// @tparam Nibbles  whether the wire may have four bits a code
template <class Levels, class Rounding, class Lane, bool Nibbles>
coding_leaves<Lane> coding_of() {
  return detail::make_coding_of<Levels, Rounding, Lane, Nibbles>();
}
template <class Levels, class Lane>
level_leaves<Lane> decoding_of() {
  return detail::make_decoding_of<Levels, Lane>();
}
template <class Wire>
wire_leaves<typename Wire::lane> packing_of() {
  return detail::make_packing_of<Wire>();
}
template <class Op, class Lane>
reduce_leaves<Lane> const* adding_of() {
  return detail::make_adding_of<Op, Lane>();
}

/// A composition without its types. It stays where it is: bodies have pointers to it.
template <class Lane>
struct any_policies {
  leaves<Lane> leaf;
  policies<Lane> by;
  any_rounding rounding;
  float extent = 1;
  std::uint32_t max_code = 1;

  any_policies() = default;
  any_policies(any_policies const&) = delete;
  any_policies& operator=(any_policies const&) = delete;

 protected:
  ~any_policies() = default;
};

/// The same with them.
template <class Levels, class Rounding, class Wire>
struct held_policies : any_policies<typename Wire::lane> {
  using lane = typename Wire::lane;

  held_policies(Levels const& scheme, Rounding const& decide, Wire const& format)
      : levels(scheme), decision(decide), wire(format) {
    this->leaf = {coding_of<Levels, Rounding, lane, detail::may_be_nibbles<Wire>()>(),
                  decoding_of<Levels, lane>(), packing_of<Wire>()};
    this->by = {&this->leaf, &levels, &wire, true, 0};
    if constexpr (kernel::detail::Tabled<Levels>) this->by.has_tiles = levels.has_lines();
    if constexpr (detail::without_gaps<Wire>()) this->by.bits = static_cast<std::uint32_t>(wire.bits());
    this->rounding = {Rounding::word_per_coordinate, decision.shifts(), detail::is_constant(decision),
                      &decision, detail::shift<Rounding>};
    this->extent = levels.extent();
    this->max_code = levels.max_code();
  }

  Levels levels;
  Rounding decision;
  Wire wire;
};

}  // namespace GLOBALQ_ABI::kernel::host
