// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: builds the tables of leaves, of policies and of values. Compiled for each instruction set.

#include "../../rounding/stochastic.hpp"
#include "../add_tiles.hpp"
#include "../block_statistic.hpp"
#include "../hadamard.hpp"
#include "../leaf.hpp"
#include "../loops.hpp"
#include "../round_halves.hpp"
#if GLOBALQ_AVX512
#include "../isa/codes_avx512.hpp"
#include "../isa/rounding_avx512.hpp"
#include "../isa/scales_avx512.hpp"
#elif GLOBALQ_AVX2 && defined(__F16C__)
#include "../isa/rounding_avx2.hpp"
#endif

namespace GLOBALQ_ABI::kernel::host {

namespace detail {

template <class T>
T const& as(void const* policy) {
  return *static_cast<T const*>(policy);
}

/// The rounding whose loops a rounding uses.
template <class Rounding>
using loop_rounding = std::conditional_t<ComparesWordsAlone<Rounding>, rounding::stochastic, Rounding>;

/// The words that workers share in tiles: random::shared_words, drawn for four tiles at a time.
class shared_quad {
 public:
  explicit shared_quad(random::stream const& s) : stream_(s) {}

  /// Valid until the next call.
  std::uint32_t const* operator()(std::uint64_t tile) {
    if (tile / 4 != quad_) {
      quad_ = tile / 4;
      fill_words<16>(stream_, quad_, 0, drawn_);
    }
    std::uint32_t const* const from = drawn_ + 16 * (tile % 4);
    for (int k = 0; k < 16; ++k) words_[k] = from[64 * (k % 4) + 4 * (k / 4)];
    return words_;
  }

 private:
  random::stream stream_;
  std::uint64_t quad_ = ~std::uint64_t{0};
  std::uint32_t drawn_[random::tile_values], words_[16];
};

/// The words that decide on the own values of runs, if workers share words.
template <class Rounding>
void place_words(Rounding const& rounding, encoded_run const* runs, int count, std::uint32_t const* words,
                 shared_tiles const& shared, std::uint32_t* out) {
  encoded_run const* const last = runs + count;
  shared_quad drawn(shared.words);
  for (int at = runs->at; runs != last;) {
    int const tile = at / random::tile_values, next = (tile + 1) * random::tile_values;
    auto const in_tile = rounding.in_tile(drawn(shared.first + static_cast<std::uint64_t>(tile)));
    while (runs != last && at < next) {
      int const begin = runs->at, end = begin + runs->count, stop = end < next ? end : next;
      compared_words<random::tile_values>(in_tile, runs->values + (at - begin), stop - at, words + at,
                                          out + at);
      at = stop;
      runs += stop == end ? 1 : 0;
    }
  }
}

template <class Levels, class Rounding, class Int>
void encode(void const* levels, void const* rounding, encoded_run const* runs, int count,
            std::uint32_t const* words, [[maybe_unused]] shared_tiles const* shared, Int* out) {
  Levels const& scheme = as<Levels>(levels);
  using decision = loop_rounding<Rounding>;
  decision const decide = [&] {
    if constexpr (std::is_same_v<decision, Rounding>)
      return as<Rounding>(rounding);
    else
      return decision{};
  }();
  [[maybe_unused]] std::uint32_t placed[SharesWords<Rounding> ? piece_values : 1];
  if constexpr (SharesWords<Rounding>)
    if (shared != nullptr) {
      place_words(as<Rounding>(rounding), runs, count, words, *shared, placed);
      words = placed;
    }
  for (encoded_run const* r = runs; r != runs + count; ++r)
    codes<piece_values>(scheme, decide, r->gain, r->values, r->count,
                        words + (decision::word_per_coordinate ? r->at : 0),
                        decision::word_per_coordinate ? 0U : decide.word(r->drawn), out + r->at);
}

template <bool Add, class Levels, class Int>
std::uint32_t values(void const* levels, Int const* codes, decoded_run const* runs, int count,
                     std::uint32_t /*limit*/, float* out) {
  for (decoded_run const* r = runs; r != runs + count; ++r)
    kernel::values<piece_values, Add>(as<Levels>(levels), codes + r->at, r->count, r->shift, r->factor,
                                      out + r->at);
  return 0;
}

template <bool Add, class Levels, class Int>
std::uint32_t decode(void const* levels, Int const* codes, decoded_run const* runs, int count,
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

#if GLOBALQ_AVX512
template <class Levels, class Rounding, class Value, std::uint32_t Most, bool Nibbles>
void tiles(void const* levels, void const* values, float const* gain, random::stream const& s,
           std::uint64_t tile, int count, void* out, [[maybe_unused]] int origin, std::size_t ahead) {
  using namespace kernel::detail;
  auto const target = [&] {
    if constexpr (Nibbles)
      return as_nibbles{static_cast<std::uint8_t*>(out), origin};
    else
      return as_bytes{static_cast<std::int8_t*>(out)};
  }();
  codes_of_tiles<Most>(as<Levels>(levels), Rounding{}, static_cast<Value const*>(values), gain, s, tile,
                       count, target, ahead);
}
#endif

/// The bound for all wire formats: loops for tiles produce codes of one byte.
inline constexpr std::uint32_t any_code = 127;

/// @tparam Most  upper bound of the codes
template <class Levels, class Rounding, class Int, bool Nibbles, std::uint32_t Most = any_code>
constexpr coding_leaves<Int> make_coding_of() {
  coding_leaves<Int> l{};
  l.encode = encode<Levels, Rounding, Int>;
#if GLOBALQ_AVX512
  if constexpr (kernel::detail::has_codes_of_tiles<Levels, Rounding, Int>) {
    constexpr auto f32 = static_cast<int>(dtype::float32), f16 = static_cast<int>(dtype::float16),
                   b16 = static_cast<int>(dtype::bfloat16);
    using decision = loop_rounding<Rounding>;
    l.bytes_of_tiles[f32] = tiles<Levels, decision, float, Most, false>;
    l.bytes_of_tiles[f16] = tiles<Levels, decision, float16, Most, false>;
    l.bytes_of_tiles[b16] = tiles<Levels, decision, bfloat16, Most, false>;
    if constexpr (Nibbles) {
      l.nibbles_of_tiles[f32] = tiles<Levels, decision, float, Most, true>;
      l.nibbles_of_tiles[f16] = tiles<Levels, decision, float16, Most, true>;
      l.nibbles_of_tiles[b16] = tiles<Levels, decision, bfloat16, Most, true>;
    }
  }
#endif
  return l;
}

template <class Levels, class Int>
constexpr level_leaves<Int> make_decoding_of() {
  return {values<false, Levels, Int>, values<true, Levels, Int>, decode<false, Levels, Int>,
          decode<true, Levels, Int>};
}

template <class Wire>
constexpr wire_leaves<typename Wire::code_type> make_packing_of() {
  using code_type = typename Wire::code_type;
  wire_leaves<code_type> l{};
  l.as_integers = globalq::detail::is_integer_wire<Wire>();
  if constexpr (!globalq::detail::is_integer_wire<Wire>()) {
    l.pack = [](void const* wire, code_type const* codes, int count, std::byte* out, bool zero_free) {
      as<Wire>(wire).pack(codes, count, out, zero_free);
    };
    l.unpack = [](void const* wire, std::byte const* in, int count, code_type* codes, bool zero_free) {
      return as<Wire>(wire).unpack(in, count, codes, zero_free);
    };
  }
  if constexpr (!globalq::detail::without_gaps<Wire>())
    l.bytes = [](void const* wire, std::uint64_t count) { return as<Wire>(wire).bytes(count); };
  return l;
}

template <class Op, class Int>
constexpr reduce_leaves<Int> make_adding_of() {
  reduce_leaves<Int> l{add<Op, piece_values, Int>, static_cast<bool>(Op::draws), nullptr};
#if GLOBALQ_AVX512 || GLOBALQ_AVX2
  if constexpr (std::is_same_v<Op, reduce::exponential> && std::is_same_v<Int, std::int8_t>)
    l.add_tiles = add_tiles;
#endif
  return l;
}

template <class Code>
constexpr code_leaves<typename Code::code_type> make_code_leaves() {
  using code_type = typename Code::code_type;
  using table = typename Code::table;
  return {[](void const* code, void const* t, code_type const* codes, int count, std::byte* out,
             std::size_t room) { return as<Code>(code).encode(as<table>(t), codes, count, out, room); },
          [](void const* code, void const* t, std::byte const* in, std::size_t size, int count,
             std::uint32_t max_code, code_type* codes) {
            return as<Code>(code).decode(as<table>(t), in, size, count, max_code, codes);
          }};
}

template <class Int>
constexpr integer_leaves<Int> make_integer_leaves() {
  return {in_range<piece_values, Int>};
}

/// Wrappers for value_leaves: a pointer cannot refer to the inlined functions, which have default arguments.
struct of_values {
  static float const* load(const_vector x, std::uint64_t first, int count, int exponent, float* buffer) {
    return kernel::load<piece_values>(x, first, count, exponent, buffer);
  }
  template <bool Add>
  static bool store(mutable_vector y, std::uint64_t first, int count, store_scale const& scale,
                    float const* values) {
    return kernel::store<piece_values, Add>(y, first, count, scale, values);
  }
  static void add(float const* own, const_vector x, std::uint64_t first, int count, float* sum) {
    add_stored<piece_values>(own, x, first, count, sum);
  }
  static bool scale_stored(const_vector x, std::uint64_t first, int count, store_scale const& scale,
                           float* y) {
    return kernel::scale_stored<piece_values>(x, first, count, scale, y);
  }
  template <class Half>
  static void round(float const* values, float factor, int count, random::stream const& s, std::uint64_t tile,
                    std::uint16_t* out) {
    int at = 0;
#if GLOBALQ_AVX512 || (GLOBALQ_AVX2 && defined(__F16C__))
    if (std::is_same_v<Half, float16> || factor == 1) {
      int const tiles = count / tile_values;
      kernel::detail::round_whole_tiles<Half>(values, factor, s, tile, tiles, out);
      at = tiles * tile_values;
      tile += static_cast<std::uint64_t>(tiles);
    }
#endif
    if (at < count) round_halves<Half>(values + at, factor, count - at, s, tile, out + at);
  }
  static void round(dtype type, float const* values, float factor, int count, random::stream const& s,
                    std::uint64_t tile, std::uint16_t* out) {
    if (type == dtype::bfloat16)
      round<bfloat16>(values, factor, count, s, tile, out);
    else
      round<float16>(values, factor, count, s, tile, out);
  }
  static void words(random::stream const& s, std::uint64_t tile, int count, std::uint32_t* out) {
    fill_words<host_lanes>(s, tile, 0, out, count);
  }
  static norm::statistic statistic(const_vector x, std::uint64_t first, int count, std::uint32_t q) {
    return block_statistic(x, first, count, q);
  }
  static bool scales(const_vector x, std::uint64_t first, std::uint64_t bucket, float extent, void* words,
                     float* gain) {
#if GLOBALQ_AVX512
    switch (x.type) {
      case dtype::float64:
        return false;
      case dtype::float16:
        return kernel::detail::scales_of_piece(static_cast<float16 const*>(x.data) + first, bucket, extent,
                                               words, gain);
      case dtype::bfloat16:
        return kernel::detail::scales_of_piece(static_cast<bfloat16 const*>(x.data) + first, bucket, extent,
                                               words, gain);
      default:
        return kernel::detail::scales_of_piece(static_cast<float const*>(x.data) + first, bucket, extent,
                                               words, gain);
    }
#else
    (void)x, (void)first, (void)bucket, (void)extent, (void)words, (void)gain;
    return false;
#endif
  }
};

constexpr value_leaves make_value_leaves() {
  return {of_values::load,  of_values::store<false>, of_values::store<true>, of_values::scale_stored,
          of_values::round, scaled<piece_values>,    of_values::add,         of_values::words,
          places,           of_values::statistic,    of_values::scales,      hadamard<float>,
          turn_signs<float>};
}

}  // namespace detail

}  // namespace GLOBALQ_ABI::kernel::host
