// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: what a worker's frames left out, kept for the next call.

#include "../../core/codec.hpp"
#include "../../core/dtype.hpp"
#include "../../core/saved_state.hpp"
#include "../../kernel/executor.hpp"
#include "../stage.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace GLOBALQ_ABI::detail {

/// The arithmetic of one value of a residual, which hosts and devices share. Products are rounded before they are added.
/// @tparam T  float or double
template <class T>
struct residual_rule {
  static constexpr T most = std::numeric_limits<T>::max();

  T decay, stays;
  double weight;

  explicit residual_rule(feedback_options const& o)
      : decay(static_cast<T>(o.decay)),
        stays(1 - static_cast<T>(o.average)),
        weight(static_cast<double>(o.average)) {}

  /// A value plus its residual.
  GLOBALQ_FUNCTION T add(T x, T kept) const {
    T const v = x + times(decay, kept);
    return v > most ? most : (v < -most ? -most : v);
  }

  /// What stays of the residual before the call's own.
  GLOBALQ_FUNCTION T base(T kept) const { return times(stays, kept); }

  /// The next residual.
  /// @param sum      of what was to be in the frame
  /// @param decoded  the mean of @p terms workers in it
  GLOBALQ_FUNCTION T keep(T base, double sum, double terms, T decoded) const {
    double const v =
        static_cast<double>(base) + times(weight, sum - times(terms, static_cast<double>(decoded)));
    T const rest = static_cast<T>(v), within = rest > most ? most : (rest < -most ? -most : rest);
    // NaN: of a code beyond the range of its type, or of sums beyond float64
    return within == within ? within : T{0};
  }

 private:
  /// A product that no compiler fuses into a sum. @param factor  not negative
  template <class F>
  GLOBALQ_FUNCTION static F times(F factor, F v) {
#if defined(__CUDA_ARCH__) || (defined(__x86_64__) && !defined(__FMA__))
    return multiply(factor, v);
#else
    return with_sign(multiply(factor, v), bits_of(v));
#endif
  }
};

/// The bound of a vector plus its residual. Sums are rounded, and so are residuals of 8 bits.
/// @param top      that of the vector
/// @param kept     that of the residual
/// @param largest  largest_mapped() of the vector's type
GLOBALQ_FUNCTION double bound_with(double top, double kept, float decay, double largest) {
  if (kept == 0) return top;
  double const sum = (top + rounded(kept * static_cast<double>(decay))) * (1 + 0x1p-20),
               within = sum < largest ? sum : largest;
  return top < within ? within : top;
}

/// The scale of a block's codes of 8 bits. @param most  the largest magnitude
GLOBALQ_FUNCTION double code_scale(double most) { return most < 1e-300 ? 0 : most / 127; }
GLOBALQ_FUNCTION std::int8_t code_of(double v, double scale) {
  return static_cast<std::int8_t>(scale == 0 ? 0 : std::lrint(v / scale));
}

/// Values of one vector, as T or as codes of 8 bits with a scale for each block.
class kept_values {
 public:
  static constexpr std::uint64_t block = random::tile_values;

  /// Room for @p length values of @p bits bits (64 for float64): zeros, unless there were as many.
  void resize(std::uint64_t length, int bits) {
    if (length == length_ && bits == bits_) return;
    std::span<std::byte> const room = data_.get(length * static_cast<std::uint64_t>(bits) / 8);
    std::fill(room.begin(), room.end(), std::byte{0});
    scales_.assign(bits == 8 ? divide_up(length, block) : 0, 0.0);
    length_ = length;
    bits_ = bits;
  }

  /// @param first  a multiple of the block
  template <class T>
  void read(std::uint64_t first, std::uint64_t count, T* to) const {
    if (bits_ != 8) {
      std::memcpy(to, memory<T>() + first, count * sizeof(T));
      return;
    }
    std::int8_t const* const codes = memory<std::int8_t>() + first;
    for (std::uint64_t i = 0; i < count; ++i) to[i] = static_cast<T>(codes[i] * scales_[(first + i) / block]);
  }

  template <class T>
  void write(std::uint64_t first, std::uint64_t count, T const* from) {
    if (bits_ != 8) {
      std::memcpy(memory<T>() + first, from, count * sizeof(T));
      return;
    }
    std::int8_t* const codes = memory<std::int8_t>() + first;
    for (std::uint64_t at = 0; at < count; at += block) {
      std::uint64_t const end = std::min(count, at + block);
      double most = 0;
      for (std::uint64_t i = at; i < end; ++i) most = std::max(most, std::abs(static_cast<double>(from[i])));
      double const scale = code_scale(most);
      scales_[(first + at) / block] = scale;
      for (std::uint64_t i = at; i < end; ++i) codes[i] = code_of(static_cast<double>(from[i]), scale);
    }
  }

  /// The values, and the scales of blocks in 8 bits, as bytes.
  std::span<std::byte> values() { return data_.get(length_ * static_cast<std::uint64_t>(bits_) / 8); }
  std::span<std::byte> scales() { return std::as_writable_bytes(std::span(scales_)); }

 private:
  template <class V>
  V* memory() {
    return reinterpret_cast<V*>(data_.get(0).data());
  }
  template <class V>
  V const* memory() const {
    return reinterpret_cast<V const*>(const_cast<byte_buffer&>(data_).get(0).data());
  }

  std::uint64_t length_ = 0;
  int bits_ = 0;
  byte_buffer data_;
  std::vector<double> scales_;
};

/// @brief The residual of one vector of one worker: what was to be in its frames and is not.
///
/// A call that fails leaves it as it was: it writes the next residual, which commit() makes the current one.
class residual {
 public:
  bool empty() const { return now_.length == 0; }
  std::uint64_t length() const { return now_.length; }
  dtype type() const { return now_.type; }

  /// The bound of a vector plus what enter() adds to it.
  /// @param top  that of the vector
  double with(double top, feedback_options const& o, std::uint64_t step, dtype type) const {
    return empty() || o.resets(step) ? top : bound_with(top, now_.top, o.decay, largest_mapped(type));
  }

  /// Writes vector plus residual, of which sums beyond the range of their type are cut.
  /// @param x     of the type of @p to; may be the same memory
  /// @param part  the part that this worker contributes
  /// @param copy  whether entered() will be read after other stages have changed @p to
  void enter(kernel::host_executor const& on, feedback_options const& o, std::uint64_t step, const_vector x,
             std::uint64_t length, segment part, mutable_vector to, bool copy) {
    options_ = &o;
    adds_ = !empty() && !o.resets(step);
    std::size_t const size = size_of(to.type);
    next_.values.resize(length, bits_of_value(o, to.type));
    next_.length = length;
    next_.type = to.type;
    next_.part = {};
    next_top_ = bits_of(adds_ ? (1 - static_cast<double>(o.average)) * now_.top : 0.0);
    entered_ = {to.data, to.type};
    if (copy) entered_.data = copy_.get(length * size).data();
    with_type(to.type, [&]<class T>(T) {
      auto* const copied = copy ? static_cast<T*>(const_cast<void*>(entered_.data)) : nullptr;
      pieces(on, part, [&](std::uint64_t first, std::uint64_t count) {
        T sum[kernel::host_values], stays[kernel::host_values];
        add(first, count, static_cast<T const*>(x.data), sum);
        std::memcpy(static_cast<T*>(to.data) + first, sum, count * sizeof(T));
        if (copied != nullptr) std::memcpy(copied + first, sum, count * sizeof(T));
        base(first, count, stays);  // of values that travel exactly, or not
        next_.values.write(first, count, stays);
      });
    });
  }
  /// Vector plus residual.
  const_vector entered() const { return entered_; }

  /// Stores the residual of a part whose frame was made. The parts of a call are neighbors.
  /// @param decoded   the mean of the @p terms workers in the frame, from the part's first value on
  /// @param received  the sum of other workers that went into the frame too; null: none
  void keep(kernel::host_executor const& on, const_vector entered, segment part, void const* decoded,
            int terms, void const* received) {
    segment& all = next_.part;
    std::uint64_t const end = std::max(all.first + all.count, part.first + part.count);
    all.first = all.empty() ? part.first : std::min(all.first, part.first);
    all.count = end - all.first;
    with_type(next_.type, [&]<class T>(T) {
      pieces(on, part, [&](std::uint64_t first, std::uint64_t count) {
        T const *const p = static_cast<T const*>(entered.data) + first,
                       *const d = static_cast<T const*>(decoded) + (first - part.first),
                       *const other = received == nullptr
                                          ? nullptr
                                          : static_cast<T const*>(received) + (first - part.first);
        T kept[kernel::host_values];
        base(first, count, kept);
        residual_rule<T> const rule(*options_);
        double const n = terms;
        auto const keep_all = [&](auto has_others) {
          GLOBALQ_INDEPENDENT
          for (std::uint64_t i = 0; i < count; ++i) {
            double sum = static_cast<double>(p[i]);
            if constexpr (has_others) sum += static_cast<double>(other[i]);
            kept[i] = rule.keep(kept[i], sum, n, d[i]);
          }
        };
        if (other == nullptr)
          keep_all(std::false_type());
        else
          keep_all(std::true_type());
        next_.values.write(first, count, kept);
        std::uint64_t largest = 0;  // as integers, of which a loop finds the maximum of several at once
        for (std::uint64_t i = 0; i < count; ++i)
          largest = std::max(largest, bits_of(static_cast<double>(kept[i])) & double_magnitude);
        Kokkos::atomic_max(&next_top_, largest);
      });
    });
  }

  /// Makes the residual of the call that ended the current one.
  void commit() {
    std::memcpy(&next_.top, &next_top_, sizeof next_.top);
    std::swap(now_, next_);
    committed_ = true;
  }
  /// Makes it empty.
  void commit_none() {
    next_.length = 0;
    std::swap(now_, next_);
    committed_ = true;
  }
  /// A call begins: what the one before committed stays.
  void begin() { committed_ = false; }
  /// Takes back what the last call committed.
  void undo() {
    if (std::exchange(committed_, false)) std::swap(now_, next_);
  }

  /// The part in which this worker's frames left something out; others are zero.
  segment part() const { return now_.part; }

  /// Writes the residual as sums of float32 numbers: of one for float, of three for float64, which is exact for magnitudes
  /// from 1e-22 to 3e38.
  /// @param part  part(k, numbers) for each of parts_of()
  template <class Part>
  void save(Part const& part) const {
    with_type(now_.type, [&]<class T>(T) {
      std::vector<T> values(now_.length);
      now_.values.read(0, now_.length, values.data());
      for (int k = 0; k < parts_of(now_.type); ++k) {
        std::vector<float> const numbers = leading(values);
        part(k, std::span<float const>(numbers));
      }
    });
  }
  static int parts_of(dtype type) { return type == dtype::float64 ? 3 : 1; }

  /// Bits of a kept value.
  static int bits_of_value(feedback_options const& o, dtype type) {
    return o.bits == 8 ? 8 : static_cast<int>(8 * size_of(type));
  }
  /// The largest magnitude.
  double top() const { return now_.top; }
  /// The current residual in memory.
  kept_values& values() { return now_.values; }

  /// Makes room for a residual, which the caller writes to values().
  void resize(feedback_options const& o, std::uint64_t length, dtype type, double top, segment part) {
    now_.length = length;
    now_.type = type;
    now_.part = part;
    now_.top = top;
    now_.values.resize(length, bits_of_value(o, type));
  }

  /// @param values  the residual
  /// @param part    where it is not zero
  void load(feedback_options const& o, dtype type, std::span<double const> values, segment part) {
    resize(o, values.size(), type, 0, part);
    with_type(type, [&]<class T>(T) {
      constexpr double most = static_cast<double>(std::numeric_limits<T>::max());
      std::vector<T> mapped;
      mapped.reserve(values.size());
      for (double v : values) mapped.push_back(static_cast<T>(std::clamp(v, -most, most)));
      for (T v : mapped) now_.top = std::max(now_.top, static_cast<double>(std::abs(v)));
      now_.values.write(0, mapped.size(), mapped.data());
    });
  }

 private:
  struct state {
    kept_values values;
    std::uint64_t length = 0;
    dtype type = dtype::float32;
    double top = 0;  ///< the largest magnitude
    segment part;
  };

  /// The values as float32; what that leaves out stays in @p values.
  template <class T>
  static std::vector<float> leading(std::vector<T>& values) {
    constexpr T most = std::numeric_limits<float>::max();
    std::vector<float> numbers(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      numbers[i] = static_cast<float>(std::clamp(values[i], -most, most));
      values[i] -= static_cast<T>(numbers[i]);
    }
    return numbers;
  }

  template <class F>
  static void pieces(kernel::host_executor const& on, segment part, F const& f) {
    on.items(divide_up(part.count, kernel::host_values), [&](std::uint64_t piece) {
      std::uint64_t const at = piece * kernel::host_values;
      f(part.first + at, std::min<std::uint64_t>(kernel::host_values, part.count - at));
    });
  }

  /// x plus the residual.
  template <class T>
  void add(std::uint64_t first, std::uint64_t count, T const* x, T* sum) const {
    if (!adds_) {
      std::memcpy(sum, x + first, count * sizeof(T));
      return;
    }
    T kept[kernel::host_values];
    now_.values.read(first, count, kept);
    residual_rule<T> const rule(*options_);
    for (std::uint64_t i = 0; i < count; ++i) sum[i] = rule.add(x[first + i], kept[i]);
  }

  /// What stays of the residual before the call's own.
  template <class T>
  void base(std::uint64_t first, std::uint64_t count, T* to) const {
    if (!adds_ || options_->average == 1) {
      std::fill(to, to + count, T{0});
      return;
    }
    now_.values.read(first, count, to);
    residual_rule<T> const rule(*options_);
    for (std::uint64_t i = 0; i < count; ++i) to[i] = rule.base(to[i]);
  }

  state now_, next_;
  std::uint64_t next_top_ = 0;  ///< bits of a double
  feedback_options const* options_ = nullptr;
  bool adds_ = false, committed_ = false;
  byte_buffer copy_;
  const_vector entered_{};
};

/// The residuals of the vectors of a call, by their numbers.
class residuals {
 public:
  residual& of(std::size_t vector) {
    while (all_.size() <= vector) all_.emplace_back();
    return all_[vector];
  }
  /// residual::with() of a vector.
  double with(double top, std::size_t vector, feedback_options const& o, std::uint64_t step,
              dtype type) const {
    return vector < all_.size() ? all_[vector].with(top, o, step, type) : top;
  }
  std::size_t size() const { return all_.size(); }
  void clear() { all_.clear(); }

  void begin() {
    for (residual& r : all_) r.begin();
  }
  void undo() {
    for (residual& r : all_) r.undo();
  }

  /// Why vectors of another length or type cannot be averaged; empty: they can. Empty vectors have no residual.
  std::string refusal(std::size_t vector, std::uint64_t length, dtype type) const {
    if (vector >= all_.size() || length == 0) return {};
    return refusal(vector, length, type, all_[vector].length(), all_[vector].type());
  }
  /// @param kept, kept_type  length and type of the residual
  static std::string refusal(std::size_t vector, std::uint64_t length, dtype type, std::uint64_t kept,
                             dtype kept_type) {
    if (kept == 0 || (kept == length && kept_type == type)) return {};
    return joined({"vector ", vector, " has ", length, " values of type ", name_of(type), ", its residual ",
                   kept, " of type ", name_of(kept_type),
                   "; use a call of its own for each vector, or forget the residuals on every worker: "
                   "forget_residuals(), "
                   "in C globalq_call_load() without states, in Python load([])"});
  }

  /// Adds the entry of a vector to a state, without numbers if it has no residual.
  void save(std::size_t vector, std::string const& name, saved_state& to) const {
    to.put(key(name, 0), {});
    if (vector >= all_.size() || all_[vector].empty()) return;
    residual const& r = all_[vector];
    r.save([&](int k, std::span<float const> numbers) { to.put(key(name, k), numbers); });
    segment const part = r.part();
    float const place[] = {high(part.first), low(part.first), high(part.count), low(part.count)};
    to.put("residual.part/" + name, place);
  }
  static bool contains(saved_state const& s, std::string const& name) { return s.contains(key(name, 0)); }

  /// Of one worker's state, or of several: the mean of the old workers whose frames left something out at a value. Shards are
  /// thereby kept as they were, residuals of all workers by their mean.
  /// @param length  of the vector; 0: that of the residual
  /// @throws frame_error if entries are missing, or differ in length or type
  void load(std::size_t vector, std::string const& name, checkpoint const& from, feedback_options const& o,
            std::uint64_t length = 0, dtype type = dtype::float32) {
    std::vector<double> sums;
    std::vector<int> terms;
    segment part;
    dtype found = dtype::float32;
    for (saved_state const* s : from.all()) {
      std::uint64_t const count = s->count(key(name, 0));
      if (count == 0) {
        static_cast<void>(s->get(key(name, 0), 0));  // throws if it is missing
        continue;
      }
      dtype const own_type = s->contains(key(name, 1)) ? dtype::float64 : dtype::float32;
      if (!sums.empty() && own_type != found)
        throw frame_error("globalq: load: the residuals of \"" + name +
                          "\" have different types in the states; load states of one checkpoint");
      found = own_type;
      if (length != 0 && (length != count || type != found))
        throw frame_error(joined({"globalq: load: the residual of \"", name, "\" has ", count,
                                  " values of type ", name_of(found), ", the vector ", length, " of type ",
                                  name_of(type), "; load a state of this model"}));
      if (sums.empty()) {
        sums.resize(count);
        terms.resize(count);
      }
      std::span<float const> const place = s->get("residual.part/" + name, 4);
      segment const own{whole(place[0], place[1]), whole(place[2], place[3])};
      if (own.first > sums.size() || own.count > sums.size() - own.first)
        throw frame_error("globalq: load: the part of the residual of \"" + name +
                          "\" is outside of it; load the state as it was saved");
      for (int k = 0; k < residual::parts_of(found); ++k) {
        std::span<float const> const numbers = s->get(key(name, k), sums.size());
        for (std::uint64_t i = own.first; i < own.first + own.count; ++i)
          sums[i] += static_cast<double>(numbers[i]);
      }
      for (std::uint64_t i = own.first; i < own.first + own.count; ++i) ++terms[i];
      std::uint64_t const end = std::max(part.first + part.count, own.first + own.count);
      part.first = part.empty() ? own.first : std::min(part.first, own.first);
      part.count = end - part.first;
    }
    if (sums.empty()) return;
    for (std::uint64_t i = 0; i < sums.size(); ++i)
      if (terms[i] > 1) sums[i] /= terms[i];
    of(vector).load(o, found, sums, part);
  }

 private:
  static std::string key(std::string const& name, int part) {
    return part == 0 ? "residual/" + name : joined({"residual.", part, "/", name});
  }
  // a position as two numbers that float32 has
  static float high(std::uint64_t n) { return static_cast<float>(n >> 24); }
  static float low(std::uint64_t n) { return static_cast<float>(n & 0xffffffU); }
  /// @returns 2^64 - 1 for numbers that high() and low() do not make
  static std::uint64_t whole(float high, float low) {
    auto const is_digit = [](float x) { return x >= 0 && x < 0x1p24F && x == std::floor(x); };
    if (!is_digit(high) || !is_digit(low)) return ~std::uint64_t{0};
    return (static_cast<std::uint64_t>(high) << 24) + static_cast<std::uint64_t>(low);
  }

  std::vector<residual> all_;
};

}  // namespace GLOBALQ_ABI::detail
