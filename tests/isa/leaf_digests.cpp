// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Calls every leaf of every set of instructions and writes a hash of what each gave: sets must agree bit for bit.
///
///     leaf_digests             all sets that run here, compared with the first; fails where one differs
///     leaf_digests SET         the hashes of a set, for comparing with those of another machine
///     leaf_digests --chosen    which set calls use here
///
/// Needs neither Kokkos nor a test framework, so that it can be compiled for other machines and run in an emulator.

#include <globalq/core/error.hpp>
#include <globalq/kernel/host/built_in.hpp>
#include <globalq/kernel/isa/set.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#if defined(LEAF_DIGESTS_ALONE)
char const globalq_header_only_and_compiled_sources_in_one_program = 0;
#endif

namespace {

namespace gq = globalq;
namespace kernel = gq::kernel;
namespace isa = kernel::isa;
namespace host = kernel::host;

constexpr int most = kernel::piece_values;
/// Around the widths of vectors, of tiles, and what loops are written for.
constexpr int counts[] = {1,  2,  3,   7,   8,   9,   15,  16,  17,  31,   33,   63,
                          64, 65, 100, 127, 255, 256, 257, 511, 768, 1000, 1023, 1024};

struct generator {
  std::uint64_t state = 88172645463325252ULL;
  std::uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x9E3779B97F4A7C15ULL >> 8;
  }
  /// In [0, n).
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((*this)() % n); }
  /// Of any sign, some of them zero, tiny, or near @p top.
  float value(float top) {
    std::uint64_t const r = (*this)();
    float const u = static_cast<float>(r & 0xffffffU) * 0x1p-24F;
    float const magnitude =
        r >> 24 & 15U ? u * top : (r >> 28 & 1U ? 0.0F : (r >> 29 & 1U ? top : u * 0x1p-30F * top));
    return r >> 32 & 1U ? -magnitude : magnitude;
  }
};

/// FNV-1a.
class hash {
 public:
  void add(void const* bytes, std::size_t count) {
    auto const* p = static_cast<unsigned char const*>(bytes);
    for (std::size_t i = 0; i < count; ++i) h_ = (h_ ^ p[i]) * 0x100000001b3ULL;
  }
  template <class T>
  void add(T const& x) {
    add(&x, sizeof x);
  }
  std::uint64_t value() const { return h_; }

 private:
  std::uint64_t h_ = 0xcbf29ce484222325ULL;
};

using digests = std::map<std::string, std::uint64_t>;

/// The same numbers as values of each type.
struct inputs {
  std::vector<float> f32;
  std::vector<double> f64;
  std::vector<gq::float16> f16;
  std::vector<gq::bfloat16> b16;

  inputs(generator& next, float top) {
    for (int i = 0; i < most + 8; ++i) {
      f32.push_back(next.value(top));
      f64.push_back(static_cast<double>(f32.back()) * 1.0000001);
      f16.emplace_back(f32.back());
      b16.emplace_back(f32.back());
    }
  }
  gq::const_vector of(gq::dtype type) const {
    switch (type) {
      case gq::dtype::float64:
        return {f64.data(), type};
      case gq::dtype::float16:
        return {f16.data(), type};
      case gq::dtype::bfloat16:
        return {b16.data(), type};
      default:
        return {f32.data(), type};
    }
  }
};

constexpr gq::dtype types[] = {gq::dtype::float32, gq::dtype::float64, gq::dtype::float16,
                               gq::dtype::bfloat16};

std::vector<double> magnitudes(int count) {
  std::vector<double> m;
  for (int k = 1; k <= count; ++k) m.push_back(std::pow(static_cast<double>(k) / count, 1.5));
  m.back() = 1;
  return m;
}

/// Codes of runs of different lengths; whole tiles too, by the loop for them where a set has one.
template <class Int, class Levels>
void code(digests& all, std::string const& name, isa::leaf_set const& set,
          isa::integer_set<Int> const& leaves, Levels const& levels, bool tiles) {
  constexpr std::size_t kind = host::built_in_levels::place<Levels>();
  gq::rounding::stochastic const stochastic{};
  gq::rounding::detail::shared_draw const shift{true, false}, nearest{false, true};
  gq::rounding::correlated const of_five = gq::rounding::correlated{}.for_worker(3, 5);
  constexpr std::size_t own_words = host::built_in_roundings::place<gq::rounding::stochastic>(),
                        shared_word = host::built_in_roundings::place<gq::rounding::detail::shared_draw>(),
                        in_parts = host::built_in_roundings::place<gq::rounding::correlated>();
  struct {
    char const* name;
    void const* policy;
    std::size_t place;
  } const roundings[] = {{"stochastic", &stochastic, own_words},
                         {"shift", &shift, shared_word},
                         {"nearest", &nearest, shared_word},
                         {"correlated", &of_five, in_parts}};
  for (auto const& r : roundings) {
    generator next;
    hash h;
    inputs const x(next, 3.0F);
    auto const leaf = leaves.coding[kind][r.place];
    std::vector<std::uint32_t> words(most);
    std::vector<Int> out(most + 64);
    for (int count : counts) {
      gq::random::stream const s{next(), next() >> 20, next.below(9), gq::random::purpose::encode};
      set.values.words(s, 5, count, words.data());
      h.add(words.data(), static_cast<std::size_t>(count) * 4);
      std::vector<kernel::encoded_run> runs;
      int const width = 1 + static_cast<int>(next.below(static_cast<std::uint32_t>(count)));
      for (int at = 0; at < count; at += width)
        runs.push_back({x.f32.data() + at, at, std::min(width, count - at),
                        levels.extent() / (0.5F + static_cast<float>(at % 7)),
                        static_cast<std::uint32_t>(next())});
      kernel::shared_tiles const shared{{s.seed, s.step, 0, gq::random::purpose::share}, s.step % 9};
      leaf.encode(&levels, r.policy, runs.data(), static_cast<int>(runs.size()), words.data(),
                  r.place == in_parts ? &shared : nullptr, out.data());
      h.add(out.data(), static_cast<std::size_t>(count) * sizeof(Int));
      if (!tiles || r.place != own_words || count % 256 != 0) continue;
      // the codes of tiles, from their loop or from encode()
      for (gq::dtype type : {gq::dtype::float32, gq::dtype::float16, gq::dtype::bfloat16}) {
        std::vector<float> gains(16, levels.extent() / 2.5F), wide(most);
        kernel::encoded_run const whole{set.values.load(x.of(type), 0, count, 0, wide.data()), 0, count,
                                        gains[0], 0};
        set.values.words(s, 0, count, words.data());
        leaf.encode(&levels, r.policy, &whole, 1, words.data(), nullptr, out.data());
        std::vector<Int> codes(out.begin(), out.begin() + count);
        if (auto const loop = leaf.bytes_of_tiles[static_cast<int>(type)]) {
          loop(&levels, x.of(type).data, gains.data(), s, 0, count / 256, out.data(), 0, 0);
          codes.assign(out.begin(), out.begin() + count);
        }
        h.add(codes.data(), static_cast<std::size_t>(count) * sizeof(Int));
        // four bits each, as wire::packed has them
        if constexpr (sizeof(Int) == 1) {
          bool zero_free = false;
          if constexpr (requires { levels.zero_free(); }) zero_free = levels.zero_free();
          if (levels.max_code() > (zero_free ? 8U : 7U)) continue;
          gq::wire::packed<> const four(4);
          std::vector<std::byte> bytes(most / 2);
          set.packed[4].pack(&four, codes.data(), count, bytes.data(), zero_free);
          if (auto const loop = leaf.nibbles_of_tiles[static_cast<int>(type)])
            loop(&levels, x.of(type).data, gains.data(), s, 0, count / 256, bytes.data(), zero_free ? 1 : 0,
                 0);
          h.add(bytes.data(), bytes.size());
        }
      }
    }
    all[name + ".encode." + r.name] = h.value();
  }
  generator next;
  hash h;
  auto const& leaf = leaves.decoding[kind];
  std::uint32_t const largest = levels.max_code();
  for (int count : counts)
    for (float scale : {0.37F, 1.0F, 0x1p90F, 0x1p-100F}) {
      std::vector<Int> codes;
      for (int i = 0; i < count; ++i) {
        auto const c = static_cast<std::int64_t>(next.below(2 * largest + 1)) - largest;
        codes.push_back(static_cast<Int>(c));
      }
      std::vector<kernel::decoded_run> runs;
      int const width = 1 + static_cast<int>(next.below(static_cast<std::uint32_t>(count)));
      for (int at = 0; at < count; at += width)
        runs.push_back({at, std::min(width, count - at), at % 3 == 0 ? 0.0F : 0.25F,
                        0.01F * static_cast<float>(1 + at % 5), scale, at % 2 == 0 ? 1.0F : 0x1p-20F});
      for (auto const decode : {leaf.write_values, leaf.add_values, leaf.decode, leaf.decode_and_add}) {
        std::vector<float> out(most);
        for (float& v : out) v = next.value(1.0F);
        std::uint32_t const top =
            decode(&levels, codes.data(), runs.data(), static_cast<int>(runs.size()), largest, out.data());
        h.add(top >= gq::float_infinity);
        h.add(out.data(), out.size() * sizeof(float));
      }
    }
  all[name + ".decode"] = h.value();
}

template <class Int>
void codes(digests& all, std::string const& name, isa::leaf_set const& set,
           isa::integer_set<Int> const& leaves) {
  constexpr bool bytes = sizeof(Int) == 1;
  for (std::uint32_t s : {1U, 3U, 7U, 15U, 127U, 32767U, 1U << 20})
    if (bytes ? s <= 127 : (sizeof(Int) == 2 ? s <= 32767 : true))
      code(all, name + ".uniform" + std::to_string(s), set, leaves, gq::levels::uniform<>(s), bytes);
  for (std::uint32_t s : {3U, 8U, 60U})
    code(all, name + ".exponential" + std::to_string(s), set, leaves, gq::levels::exponential<>(s), bytes);
  for (int s : {1, 3, 7, 8, 15, 31, 63, 127})
    for (bool zero_free : {false, true}) {
      gq::levels::detail::level_table const table(magnitudes(s), zero_free, false);
      code(all, name + (zero_free ? ".symmetric" : ".table") + std::to_string(s), set, leaves, table,
           bytes && table.has_lines());
    }
  kernel::reduce_leaves<Int> const& adds = leaves.adding[host::built_in_reduces::place<gq::reduce::sum>()];
  kernel::reduce_leaves<Int> const& adds_exponents =
      leaves.adding[host::built_in_reduces::place<gq::reduce::exponential>()];
  generator next;
  hash sum, exponential, range;
  for (int count : counts) {
    std::vector<Int> a(most), b(most), out(most);
    for (auto* v : {&a, &b})
      for (Int& c : *v) c = static_cast<Int>(static_cast<int>(next.below(127)) - 63);
    std::vector<std::uint32_t> words(most);
    for (std::uint32_t& w : words)
      w = static_cast<std::uint32_t>(next()) & (next.below(4) == 0 ? 0xff00ff00U : ~0U);
    out = a;
    adds.add(out.data(), b.data(), count, words.data(), out.data());  // in place
    sum.add(out.data(), static_cast<std::size_t>(count) * sizeof(Int));
    out = b;
    adds_exponents.add(a.data(), out.data(), count, words.data(), out.data());
    exponential.add(out.data(), static_cast<std::size_t>(count) * sizeof(Int));
    adds.add(a.data(), b.data(), count, words.data(), out.data());
    sum.add(out.data(), static_cast<std::size_t>(count) * sizeof(Int));
    adds_exponents.add(a.data(), b.data(), count, words.data(), out.data());
    exponential.add(out.data(), static_cast<std::size_t>(count) * sizeof(Int));
    if (count % 256 == 0) {
      gq::random::stream const s{next(), 3, 1, gq::random::purpose::reduce};
      if (adds_exponents.add_tiles != nullptr) {
        adds_exponents.add_tiles(a.data(), b.data(), s, 9, count / 256, out.data(), 0);
      } else {
        set.values.words(s, 9, count, words.data());
        adds_exponents.add(a.data(), b.data(), count, words.data(), out.data());
      }
      exponential.add(out.data(), static_cast<std::size_t>(count) * sizeof(Int));
    }
    for (std::uint32_t limit : {1U, 62U, 63U, 127U})
      for (bool zero_free : {false, true}) range.add(leaves.any.in_range(a.data(), count, limit, zero_free));
  }
  all[name + ".sum"] = sum.value();
  all[name + ".exponential_sum"] = exponential.value();
  all[name + ".in_range"] = range.value();
}

void packing(digests& all, isa::leaf_set const& set) {
  for (std::uint32_t bits = 1; bits <= 8; ++bits)
    for (bool given : {false, true}) {
      gq::wire::packed<> const policy(bits);  // the fixed ones have no members that are looked at
      auto const& leaf = set.packed[given ? 0 : bits];
      generator next;
      hash h;
      for (int count : counts)
        for (bool zero_free : {false, true}) {
          if (bits == 1 && !zero_free) continue;
          int const largest = static_cast<int>(policy.largest_code(zero_free));
          std::vector<std::int8_t> codes(most), back(most);
          for (std::int8_t& c : codes) {
            int const m = zero_free ? 1 + static_cast<int>(next.below(static_cast<std::uint32_t>(largest)))
                                    : static_cast<int>(next.below(static_cast<std::uint32_t>(largest) + 1));
            c = static_cast<std::int8_t>(next.below(2) == 0 ? m : -m);
          }
          std::vector<std::byte> bytes(most + 8);
          leaf.pack(&policy, codes.data(), count, bytes.data(), zero_free);
          h.add(bytes.data(), bytes.size());
          h.add(leaf.unpack(&policy, bytes.data(), count, back.data(), zero_free));
          h.add(back.data(), static_cast<std::size_t>(count));
          for (std::byte& b : bytes) b = static_cast<std::byte>(next());  // as damaged
          h.add(leaf.unpack(&policy, bytes.data(), count, back.data(), zero_free));
        }
      all["packed" + std::to_string(bits) + (given ? ".given" : "")] = h.value();
    }
}

/// Blocks of codes, few and many of them zero, there and back; damaged bytes too.
template <class Code>
void blocks(digests& all, std::string const& name, isa::integer_set<typename Code::code_type> const& leaves) {
  using code_type = typename Code::code_type;
  auto const& leaf = leaves.codes[host::built_in_codes<code_type>::template place<Code>()];
  constexpr int longest = gq::wire::block_values;
  Code const policy;
  generator next;
  hash h;
  for (int count : {1, 2, 7, 64, 65, 300, 1000, 1023, 1024, 1500, 4095, 4096})
    for (std::uint32_t largest : {1U, 7U, 127U, Code::largest_code()})
      for (std::uint32_t zeros : {0U, 9U, 99U, 999U}) {
        std::vector<code_type> codes(longest), back(longest);
        std::vector<std::uint64_t> seen(2 * largest + 1, 1);
        for (int i = 0; i < count; ++i) {
          int const c = next.below(zeros + 1) != 0
                            ? 0
                            : static_cast<int>(next.below(2 * largest + 1)) - static_cast<int>(largest);
          codes[static_cast<std::size_t>(i)] = static_cast<code_type>(c);
          ++seen[static_cast<std::size_t>(c + static_cast<int>(largest))];
        }
        auto const table = policy.make_table(seen, largest);
        std::vector<std::byte> bytes(16 * longest);
        std::size_t const size =
            leaf.encode(&policy, &table, codes.data(), count, bytes.data(), bytes.size());
        h.add(size);
        h.add(bytes.data(), size);
        h.add(leaf.decode(&policy, &table, bytes.data(), size, count, largest, back.data()));
        h.add(back.data(), static_cast<std::size_t>(count) * sizeof(code_type));
        h.add(leaf.encode(&policy, &table, codes.data(), count, bytes.data(), size - 1));  // no room
        for (int k = 0; k < 3; ++k)
          bytes[next.below(static_cast<std::uint32_t>(size))] ^= static_cast<std::byte>(1 + next.below(255));
        h.add(leaf.decode(&policy, &table, bytes.data(), size, count, largest, back.data()));
      }
  all[name] = h.value();
}

void values(digests& all, kernel::value_leaves const& leaf) {
  generator next;
  for (gq::dtype type : types) {
    hash load, store, statistic;
    for (float top : {1.0F, 0x1p-140F, 0x1p15F, 0x1p100F}) {
      inputs const x(next, top);
      for (int count : counts) {
        std::vector<float> buffer(most);
        for (int exponent : {0, 1, -20, 100}) {
          float const* const v = leaf.load(x.of(type), 3, count, exponent, buffer.data());
          for (int i = 0; i < count; ++i) load.add(std::isnan(v[i]) ? gq::float_nan : gq::bits_of(v[i]));
        }
        for (double scale : {1.0, 0.3, 0x1p-120, 0x1p125}) {
          std::vector<std::byte> out((most + 8) * gq::size_of(type));
          std::memcpy(out.data(), x.of(type).data, out.size());
          for (auto const write : {leaf.store, leaf.store_sum}) {
            store.add(write({out.data(), type}, 1, count, gq::store_scale(scale), x.f32.data()));
            store.add(out.data(), out.size());
          }
        }
        for (std::uint32_t q : {gq::infinity, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 63U}) {
          gq::norm::statistic const s = leaf.statistic(x.of(type), 2, count, q);
          statistic.add(s.max_bits);
          if (q != gq::infinity) statistic.add(s.sum);
        }
      }
    }
    std::string const name = gq::name_of(type);
    all["load." + name] = load.value();
    all["store." + name] = store.value();
    all["statistic." + name] = statistic.value();
  }
  hash scales;
  for (gq::dtype type : types)
    for (float top : {1.0F, 0x1p15F})
      for (std::uint64_t bucket : {128U, 256U, 512U, 1024U}) {
        inputs const x(next, top);
        std::vector<std::uint32_t> words;
        std::vector<float> gain;
        for (std::uint64_t first = 0; first < most; first += bucket) {
          double const bucket_scale =
              gq::norm::local_scale(leaf.statistic(x.of(type), first, static_cast<int>(bucket), gq::infinity),
                                    gq::infinity, type, 0);
          words.push_back(gq::scale_word(bucket_scale));
          gain.resize(gain.size() + bucket / 64, static_cast<float>(7.0 / bucket_scale));
        }
        leaf.scales(x.of(type), 0, bucket, 7.0F, words.data(), gain.data());  // or nothing is written
        scales.add(words.data(), words.size() * 4);
        scales.add(gain.data(), gain.size() * sizeof(float));
      }
  all["scales"] = scales.value();
  hash h;
  inputs const x(next, 5.0F);
  std::vector<float> out(most);
  for (int count : counts) {
    leaf.scale(x.f32.data(), count, 0.7F, out.data());
    h.add(out.data(), out.size() * sizeof(float));
    for (gq::dtype type : {gq::dtype::float32, gq::dtype::float16, gq::dtype::bfloat16}) {
      leaf.add(x.f32.data() + 5, x.of(type), 3, count, out.data());
      h.add(out.data(), out.size() * sizeof(float));
    }
    std::uint32_t place[most];
    leaf.places(x.f32.data(), count, 0.19F, 0x1p-20F, 107U << 23, place);
    h.add(place, static_cast<std::size_t>(count) * 4);
  }
  all["scale_and_add"] = h.value();
  hash rotations;
  gq::random::stream const bits{1, 2, 0, gq::random::purpose::rotate};
  for (std::uint64_t n = 1; n <= most; n *= 2) {
    out.assign(x.f32.begin(), x.f32.begin() + most);
    leaf.turn_signs(bits, 7, most, 1, out.data(), out.data());
    leaf.hadamard(out.data(), n);
    rotations.add(out.data(), out.size() * sizeof(float));
  }
  all["rotate"] = rotations.value();
}

/// All values of a 16-bit type, and float32 beside each of them and beside where rounding changes.
template <class Half>
void halves(digests& all, kernel::value_leaves const& leaf) {
  constexpr gq::dtype type = gq::dtype_of<Half>::value;
  hash load, store;
  for (std::uint32_t first = 0; first < 1U << 16; first += most) {
    std::vector<std::uint16_t> patterns(most);
    for (std::uint32_t i = 0; i < most; ++i) patterns[i] = static_cast<std::uint16_t>(first + i);
    std::vector<float> wide(most), near(most);
    for (double scale : {1.0, 0.3, 0x1p-120, 0x1p125})
      for (int count : {most, most - 5}) {
        load.add(leaf.scale_stored({patterns.data(), type}, 0, count, gq::store_scale(scale), wide.data()));
        for (float const v : wide) load.add(std::isnan(v) ? gq::float_nan : gq::bits_of(v));
      }
    for (int exponent : {0, -20}) {
      leaf.load({patterns.data(), type}, 0, most, exponent, wide.data());
      for (float const v : wide) load.add(std::isnan(v) ? gq::float_nan : gq::bits_of(v));
    }
    for (std::uint32_t const offset : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U}) {
      for (std::uint32_t i = 0; i < most; ++i)
        near[i] = gq::float_of(gq::bits_of(Half::widen(patterns[i])) + offset);
      for (auto const write : {leaf.store, leaf.store_sum}) {
        auto out = patterns;
        store.add(write({out.data(), type}, 0, most, gq::store_scale(1.0), near.data()));
        for (std::uint16_t& v : out)  // the sign of a sum that is NaN is the processor's
          if (write == leaf.store_sum && std::isnan(Half::widen(v))) v = 0x7fff;
        store.add(out.data(), out.size() * sizeof(std::uint16_t));
      }
    }
  }
  hash round;
  gq::random::stream const words{3, 4, 5, gq::random::purpose::encode};
  for (std::uint32_t first = 0; first < 1U << 16; first += most) {  // of each sign, with tails of tiles
    std::vector<float> x(most);
    for (std::uint32_t i = 0; i < most; ++i) x[i] = gq::float_of((first + i) << 16 | (i * 40503U & 0xffffU));
    for (float factor : {1.0F, 0x1p-9F})
      for (int count : {most, most - 1, 300}) {
        std::vector<std::uint16_t> out(most);
        leaf.round(type, x.data(), factor, count, words, first, out.data());
        round.add(out.data(), out.size() * sizeof(std::uint16_t));
      }
  }
  all[std::string("round.all.") + gq::name_of(type)] = round.value();
  all[std::string("load.all.") + gq::name_of(type)] = load.value();
  all[std::string("store.all.") + gq::name_of(type)] = store.value();
}

digests digests_of(isa::leaf_set const& set) {
  digests all;
  codes(all, "int8", set, set.int8);
  codes(all, "int16", set, set.int16);
  codes(all, "int32", set, set.int32);
  packing(all, set);
  blocks<gq::wire::elias<std::int8_t>>(all, "elias8", set.int8);
  blocks<gq::wire::elias<std::int16_t>>(all, "elias16", set.int16);
  blocks<gq::wire::huffman<std::int8_t>>(all, "huffman8", set.int8);
  blocks<gq::wire::huffman<std::int16_t>>(all, "huffman16", set.int16);
  blocks<gq::wire::sparse<std::int8_t>>(all, "sparse8", set.int8);
  blocks<gq::wire::sparse<std::int16_t>>(all, "sparse16", set.int16);
  values(all, set.values);
  halves<gq::float16>(all, set.values);
  halves<gq::bfloat16>(all, set.values);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--chosen") {
    try {
      std::printf("%s\n", isa::chosen().name);
      return 0;
    } catch (gq::configuration_error const& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 1;
    }
  }
  std::string ran;
  digests first;
  int differences = 0, found = 0;
  for (isa::candidate const& c : isa::candidates()) {
    if (argc > 1 && std::string(argv[1]) != c.name) continue;
    ++found;
    if (!c.runs_here()) {
      ran += std::string(" ") + c.name + " (not on this processor)";
      continue;
    }
    ran += std::string(" ") + c.name;
    digests const now = digests_of(c.leaves());
    if (argc > 1)
      for (auto const& [name, value] : now)
        std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(value));
    if (first.empty()) first = now;
    for (auto const& [name, value] : now) {
      if (first.at(name) == value) continue;
      std::fprintf(stderr, "%s: %s gives other bits than the first set\n", c.name, name.c_str());
      ++differences;
    }
  }
  std::fprintf(stderr, "%zu leaves and ranges of them; sets:%s\n", first.size(), ran.c_str());
  return differences != 0 || first.empty() || (argc > 1 && found == 0) ? 1 : 0;
}
