// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: the rotation on a stream; the same sums in the same order as kernel::hadamard(), so the same bits.
///
/// A team rotates pieces of 16 KiB, of one or more blocks, in shared memory. Longer blocks take a pass over memory for
/// each further stage of their transform.

#include "../stream_stage.hpp"
#include "rotation.hpp"

#include <bit>

namespace GLOBALQ_ABI::detail {

/// What kernels know of any rotation of a part of a vector by blocks: its place and its signs.
/// @tparam T  float or double
template <class T>
struct rotated_blocks {
  using value_type = T;
  static constexpr int most = 16384 / static_cast<int>(sizeof(T));  ///< values of a piece

  std::uint64_t first, count;
  int block;  ///< a block has 2^block values
  T const* x;
  T* y;
  bool back;
  random::stream signs;
  std::uint64_t const* step_at;

  /// Blocks of 2^k values each, or a part of one.
  struct piece {
    std::uint64_t first;
    int values, k;
  };

  /// Values in whole blocks.
  GLOBALQ_FUNCTION std::uint64_t whole() const { return count >> block << block; }
  std::uint64_t items() const {
    std::uint64_t n = divide_up<std::uint64_t>(whole(), most);
    for (std::uint64_t rest = count - whole(); rest != 0; rest -= std::bit_floor(rest))
      n += divide_up<std::uint64_t>(std::bit_floor(rest), most);
    return n;
  }

  GLOBALQ_FUNCTION piece at(std::uint64_t item) const {
    std::uint64_t begin = first, values = whole();
    int k = block;
    // the whole blocks, then the powers of two after them
    for (;;) {
      std::uint64_t const pieces = (values + most - 1) / most;
      if (item < pieces) break;
      item -= pieces;
      begin += values;
      k = bit_width(first + count - begin) - 1;
      values = std::uint64_t{1} << k;
    }
    std::uint64_t const from = item * most, left = values - from;
    return {begin + from, left < most ? static_cast<int>(left) : most, k};
  }

  /// A value with the sign of bit i % 32 of a word.
  GLOBALQ_FUNCTION static float turned(float v, std::uint32_t word, std::uint64_t i) {
    return float_of(bits_of(v) ^ word >> (i % 32) << 31);
  }
  GLOBALQ_FUNCTION static double turned(double v, std::uint32_t word, std::uint64_t i) {
    return double_of(bits_of(v) ^ std::uint64_t{word} >> (i % 32) << 63);
  }
  GLOBALQ_FUNCTION random::stream words() const {
    random::stream s = signs;
    if (step_at != nullptr) s.step = *step_at;
    return s;
  }
  /// The first value of butterfly j, of values 2^k apart.
  template <class Index>
  GLOBALQ_FUNCTION static Index low_of(Index j, int k) {
    return (j >> k << (k + 1)) | (j & ((Index{1} << k) - 1));
  }
};

/// The rotation of a stage.
template <class T>
struct rotation_on_device : rotated_blocks<T> {
  int growth;  ///< exponent of the factor from the largest value of a block to that of the rotated one
  stage_bound top;
  kernel::agreed_call* agreed;

  /// Whether nothing is rotated.
  GLOBALQ_FUNCTION bool stops() const { return this->back && !agreed->writes; }
  /// The sign of value i.
  GLOBALQ_FUNCTION static std::uint64_t sign(std::uint64_t i) { return i; }
  /// The factor before the transform, or after it on the way back, of a block of 2^k values.
  GLOBALQ_FUNCTION T scale(int k) const {
    int const limit = sizeof(T) == 8 ? 1022 : 126, e = exponent_of(top(agreed->top)) + 2 * growth + 4 - limit,
              excess = e > 0 ? e : 0;
    return static_cast<T>(power_of_two(this->back ? excess - (k + 1) / 2 : -(k / 2) - excess));
  }
  GLOBALQ_FUNCTION void check(T v) const {
    if (!is_finite(v)) Kokkos::atomic_or(&agreed->faults, static_cast<std::uint32_t>(kernel::out_of_range));
  }
};

/// Rotates pieces: all of the transform of blocks in a piece, and the first stages of longer ones.
/// @tparam Of  rotated_blocks with stops(), sign(), scale() and check() as those of rotation_on_device
template <class Of>
struct rotate_pieces {
  using T = typename Of::value_type;
  static constexpr int team_threads = 256, most = Of::most;
  /// Values, and words of signs; a piece may begin within a group of four words.
  static constexpr std::size_t scratch_bytes = sizeof(T) * most + most / 8 + 16;

  Of of;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    if (of.stops()) return;
    auto const p = of.at(item);
    auto* const v = reinterpret_cast<T*>(scratch);
    auto* const word = reinterpret_cast<std::uint32_t*>(scratch + sizeof(T) * most);
    bool const whole = (std::uint64_t{1} << p.k) <= most, turns = !of.back || whole;
    std::uint64_t const signs = of.sign(p.first);
    int const offset = static_cast<int>(signs % 128), groups = turns ? (offset + p.values + 127) / 128 : 0;
    T const factor = of.scale(p.k);
    random::stream const words = of.words();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, groups), [&](int g) {
      random::words4 const w = words.group(signs / 128 + static_cast<std::uint64_t>(g));
      for (int j = 0; j < 4; ++j) word[4 * g + j] = w.word[j];
    });
    team.team_barrier();
    auto const turned = [&](T value, int i) {
      return of.turned(value, word[(offset + i) / 32], static_cast<std::uint64_t>(offset + i));
    };
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, p.values), [&](int i) {
      T const value = of.x[p.first + static_cast<std::uint64_t>(i)];
      v[i] = of.back ? value : turned(value * factor, i);
    });
    team.team_barrier();
    for (int k = 0; k < p.k && (1 << k) < most; ++k) {
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, p.values / 2), [&](int j) {
        int const i = of.low_of(j, k);
        T const a = v[i], b = v[i + (1 << k)];
        v[i] = a + b;
        v[i + (1 << k)] = a - b;
      });
      team.team_barrier();
    }
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, p.values), [&](int i) {
      T value = v[i];
      if (of.back && whole) {
        value = turned(value, i) * factor;
        of.check(value);
      }
      of.y[p.first + static_cast<std::uint64_t>(i)] = value;
    });
  }
};

/// A stage of the transform of blocks longer than a piece; the last one on the way back also has signs and factors.
template <class Of>
struct rotate_far {
  using T = typename Of::value_type;

  Of of;
  std::uint64_t first;
  int k, last;  ///< values 2^k apart; blocks of 2^(last + 1)

  GLOBALQ_FUNCTION void operator()(std::uint64_t j) const {
    if (of.stops()) return;
    std::uint64_t const low = first + of.low_of(j, k), high = low + (std::uint64_t{1} << k);
    T const a = of.y[low], b = of.y[high];
    bool const turns = of.back && k == last;
    of.y[low] = turns ? turned(a + b, of.sign(low)) : a + b;
    of.y[high] = turns ? turned(a - b, of.sign(high)) : a - b;
  }

 private:
  GLOBALQ_FUNCTION T turned(T sum, std::uint64_t i) const {
    random::words4 const w = of.words().group(i / 128);
    int const which = static_cast<int>(i % 128 / 32);
    std::uint32_t const word =
        which < 2 ? (which == 0 ? w.word[0] : w.word[1]) : (which == 2 ? w.word[2] : w.word[3]);
    T const value = of.turned(sum, word, i) * of.scale(last + 1);
    of.check(value);
    return value;
  }
};

/// Enqueues a rotation.
template <class Space, class Of>
void enqueue_rotation(kernel::stream_executor<Space> const& on, Of const& of) {
  on.teams(of.items(), rotate_pieces<Of>{of});
  auto const log2_of = [](std::uint64_t n) { return static_cast<int>(std::bit_width(n)) - 1; };
  std::uint64_t begin = of.first;
  auto const far = [&](int k, std::uint64_t count) {
    for (int reach = log2_of(of.most); reach < k; ++reach)
      on.items(count / 2, rotate_far<Of>{of, begin, reach, k - 1});
    begin += count;
  };
  if (of.whole() != 0) far(of.block, of.whole());
  for (std::uint64_t rest = of.count - of.whole(); rest != 0; rest -= std::bit_floor(rest))
    far(log2_of(rest), std::bit_floor(rest));
}

/// The rotation in host memory and on streams of a space.
template <class Space>
class rotation_on final : public rotation, public stream_stage<Space> {
 public:
  explicit rotation_on(std::uint64_t block) : rotation(block) {}

  using rotation::enter;
  using rotation::leave;
  void enter(stream_stage_call<Space> const& c, const_vector x, segment part,
             mutable_vector to) const override {
    run(c, x, part, to, false);
  }
  void leave(stream_stage_call<Space> const& c, mutable_vector mean, segment part) const override {
    run(c, {mean.data, mean.type}, part, mean, true);
  }

 private:
  void run(stream_stage_call<Space> const& c, const_vector x, segment part, mutable_vector y,
           bool back) const {
    int const block = static_cast<int>(std::bit_width(this->grain())) - 1;
    with_type(c.type, [&]<class T>(T) {
      enqueue_rotation(c.on, rotation_on_device<T>{{part.first,
                                                    part.count,
                                                    block,
                                                    static_cast<T const*>(x.data),
                                                    static_cast<T*>(y.data),
                                                    back,
                                                    {c.seed, c.step, 0, random::purpose::rotate},
                                                    c.step_at},
                                                   (block + 1) / 2,
                                                   c.top,
                                                   c.agreed});
    });
  }
};

}  // namespace GLOBALQ_ABI::detail
