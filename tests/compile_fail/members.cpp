// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Policies, transports and schedules of a user: each required member, which the first error names if it is missing.

#include <globalq/globalq.hpp>

#include <cstring>

namespace gq = globalq;

using gq::levels::uniform;
using gq::norm::linf;
using gq::rounding::stochastic;
using gq::wire::int8;

struct half_and_one {
#ifndef CASE_LEVELS_WITHOUT_NAME  // expect-error: globalq: this level scheme has no static constexpr char const* name
  static constexpr char const* name = "half-and-one";
#endif
#ifndef CASE_LEVELS_WITHOUT_PARAMETERS  // expect-error: globalq: this level scheme has members or template arguments but no std::uint64_t parameters() const
  std::uint64_t parameters() const { return most; }
#endif
  std::uint32_t most = 2;
#ifndef CASE_LEVELS_WITHOUT_EXTENT  // expect-error: globalq: this level scheme has no float extent() const
  float extent() const { return 1; }
#endif
#ifndef CASE_LEVELS_OF_ANOTHER_CODE  // expect-error: globalq: this level scheme has no std::uint32_t max_code() const
  std::uint32_t max_code() const { return most; }
#else
  int max_code() const { return 2; }
#endif
#ifndef CASE_LEVELS_WITHOUT_LOCATE  // expect-error: globalq: this level scheme has no neighbors locate(float) const
  gq::neighbors locate(float t) const {
    std::int32_t const below = t < 0.5F ? 0 : 1;
    return {below, below + 1, static_cast<std::uint32_t>((2 * t - static_cast<float>(below)) * 0x1p31F)};
  }
#endif
#ifndef CASE_LEVELS_WITHOUT_VALUE  // expect-error: globalq: this level scheme has no float value(std::uint32_t) const
  float value(std::uint32_t code) const { return 0.5F * static_cast<float>(code); }
#endif
#ifdef CASE_LEVELS_THAT_ALLOCATE  // expect-error: globalq: this level scheme is not trivially copyable
  std::vector<float> values;
#endif
};
gq::quantizer<linf, half_and_one, stochastic, int8> of_half_and_one;

struct tilted {
#ifndef CASE_ROUNDING_WITHOUT_NAME  // expect-error: globalq: this rounding has no static constexpr char const* name
  static constexpr char const* name = "tilted";
#endif
#ifndef CASE_ROUNDING_WITHOUT_WORDS  // expect-error: globalq: this rounding has no static constexpr bool word_per_coordinate
  static constexpr bool word_per_coordinate = true;
#endif
  std::uint32_t by = 0;
#ifndef CASE_ROUNDING_WITHOUT_UNBIASED  // expect-error: globalq: this rounding has no static constexpr bool unbiased
  static constexpr bool unbiased = false;
#endif
#ifndef CASE_ROUNDING_WITHOUT_PARAMETERS  // expect-error: globalq: this rounding has members or template arguments but no std::uint64_t parameters() const
  std::uint64_t parameters() const { return by; }
#endif
#ifndef CASE_ROUNDING_WITHOUT_SHIFTS  // expect-error: globalq: this rounding has no bool shifts() const
  bool shifts() const { return false; }
#endif
#ifndef CASE_ROUNDING_WITHOUT_WORD  // expect-error: globalq: this rounding has no std::uint32_t word(std::uint32_t) const
  std::uint32_t word(std::uint32_t drawn) const { return drawn; }
#endif
#ifndef CASE_ROUNDING_WITHOUT_UP  // expect-error: globalq: this rounding has no bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t sign) const
  bool up(std::uint32_t threshold, std::uint32_t word, std::uint32_t) const { return word + by < threshold; }
#endif
#ifndef CASE_ROUNDING_WITHOUT_SHIFT  // expect-error: globalq: this rounding has no double shift(std::uint32_t word) const
  double shift(std::uint32_t) const { return 0; }
#endif
};
gq::quantizer<linf, uniform<7>, tilted, int8> of_tilted;

struct bytes_of_codes {
#ifndef CASE_WIRE_WITHOUT_NAME  // expect-error: globalq: this wire format has no static constexpr char const* name
  static constexpr char const* name = "bytes";
#endif
#ifndef CASE_WIRE_WITHOUT_CODES  // expect-error: globalq: this wire format has no type code_type, a signed integer
  using code_type = std::int8_t;
#endif
#ifndef CASE_WIRE_WITHOUT_BITS  // expect-error: globalq: this wire format has no int bits() const
  int bits() const { return 8; }
#endif
#ifndef CASE_WIRE_WITHOUT_LARGEST_CODE  // expect-error: globalq: this wire format has no std::uint32_t largest_code(bool zero_free) const
  std::uint32_t largest_code(bool) const { return 127; }
#endif
#ifndef CASE_WIRE_WITHOUT_BYTES  // expect-error: globalq: this wire format has no std::uint64_t bytes(std::uint64_t) const
  std::uint64_t bytes(std::uint64_t n) const { return n; }
#endif
#ifndef CASE_WIRE_WITHOUT_IDENTIFIER  // expect-error: globalq: this wire format has no std::uint8_t identifier() const
  std::uint8_t identifier() const { return 140; }
#endif
#ifndef CASE_WIRE_WITHOUT_PACK  // expect-error: globalq: this wire format has no void pack(code_type const*, int count, std::byte*, bool zero_free) const
  void pack(std::int8_t const* codes, int n, std::byte* out, bool) const {
    std::memcpy(out, codes, static_cast<std::size_t>(n));
  }
#endif
#ifndef CASE_WIRE_WITHOUT_UNPACK  // expect-error: globalq: this wire format has no bool unpack(std::byte const*, int count, code_type*, bool zero_free) const
  bool unpack(std::byte const* in, int n, std::int8_t* codes, bool) const {
    std::memcpy(codes, in, static_cast<std::size_t>(n));
    return false;
  }
#endif
};
gq::quantizer<linf, uniform<7>, stochastic, bytes_of_codes> of_bytes;

struct blocks_of_codes {
#ifndef CASE_BLOCKS_WITHOUT_CODES  // expect-error: globalq: this wire format has no type code_type, a signed integer
  using code_type = std::int8_t;
#endif
  struct nothing {};
#ifndef CASE_BLOCKS_WITHOUT_TABLE  // expect-error: globalq: this block code has no trivially copyable type table
  using table = nothing;
#endif
#ifndef CASE_BLOCKS_WITHOUT_NAME  // expect-error: globalq: this block code has no static char const* name()
  static char const* name() { return "blocks"; }
#endif
#ifndef CASE_BLOCKS_WITHOUT_IDENTIFIER  // expect-error: globalq: this block code has no static std::uint8_t identifier()
  static std::uint8_t identifier() { return 141; }
#endif
#ifndef CASE_BLOCKS_WITHOUT_LARGEST_CODE  // expect-error: globalq: this block code has no static std::uint32_t largest_code()
  static std::uint32_t largest_code() { return 127; }
#endif
#ifndef CASE_BLOCKS_WITHOUT_MAKE_TABLE  // expect-error: globalq: this block code has no table make_table(
  nothing make_table(std::span<std::uint64_t const>, std::uint32_t) const { return {}; }
#endif
#ifndef CASE_BLOCKS_WITHOUT_TABLE_BYTES  // expect-error: globalq: this block code has no std::size_t table_bytes(
  std::size_t table_bytes(std::uint32_t) const { return 0; }
#endif
#ifndef CASE_BLOCKS_WITHOUT_WRITE_TABLE  // expect-error: globalq: this block code has no void write_table(
  void write_table(nothing const&, std::uint32_t, std::byte*) const {}
#endif
#ifndef CASE_BLOCKS_WITHOUT_READ_TABLE  // expect-error: globalq: this block code has no bool read_table(
  bool read_table(std::byte const*, std::uint32_t, nothing&) const { return false; }
#endif
#ifndef CASE_BLOCKS_WITHOUT_ENCODE  // expect-error: globalq: this block code has no std::size_t encode(
  std::size_t encode(nothing const&, std::int8_t const* codes, int n, std::byte* out,
                     std::size_t room) const {
    if (static_cast<std::size_t>(n) > room) return gq::wire::too_long;
    std::memcpy(out, codes, static_cast<std::size_t>(n));
    return static_cast<std::size_t>(n);
  }
#endif
#ifndef CASE_BLOCKS_WITHOUT_DECODE  // expect-error: globalq: this block code has no bool decode(
  bool decode(nothing const&, std::span<std::byte const> in, int n, std::uint32_t, std::int8_t* codes) const {
    if (in.size() != static_cast<std::size_t>(n)) return true;
    std::memcpy(codes, in.data(), in.size());
    return false;
  }
#endif
};
gq::quantizer<linf, uniform<7>, stochastic, blocks_of_codes> of_blocks;

struct larger {
#ifndef CASE_REDUCE_WITHOUT_NAME  // expect-error: globalq: this reduce operator has no static constexpr char const* name
  static constexpr char const* name = "larger";
#endif
#ifndef CASE_REDUCE_WITHOUT_DRAWS  // expect-error: globalq: this reduce operator has no static constexpr bool draws
  static constexpr bool draws = false;
#endif
#ifndef CASE_REDUCE_WITHOUT_UNBIASED  // expect-error: globalq: this reduce operator has no static constexpr bool unbiased
  static constexpr bool unbiased = false;
#endif
#ifndef CASE_REDUCE_WITHOUT_ADDS  // expect-error: globalq: this reduce operator has no template <class Levels> static constexpr bool adds
  template <class Levels>
  static constexpr bool adds = true;
#endif
#ifndef CASE_REDUCE_WITHOUT_ADD  // expect-error: globalq: this reduce operator has no static Int add(Int, Int, std::uint32_t word)
  static int add(int a, int b, std::uint32_t) { return a < b ? b : a; }
#endif
#ifndef CASE_REDUCE_WITHOUT_LARGEST_CODE  // expect-error: globalq: this reduce operator has no static std::uint64_t largest_code(
  static std::uint64_t largest_code(std::uint32_t of_term, std::uint32_t, std::uint32_t) { return of_term; }
#endif
#ifdef CASE_REDUCE_WITH_MEMBERS  // expect-error: globalq: this reduce operator has members
  int more = 0;
#endif
};
gq::quantizer<linf, uniform<7>, stochastic, int8, larger> of_larger;

template <int Bits>
struct larger_of : larger {
#ifndef CASE_REDUCE_WITHOUT_PARAMETERS  // expect-error: globalq: this reduce operator has template arguments but no std::uint64_t parameters() const
  static std::uint64_t parameters() { return Bits; }
#endif
};
gq::quantizer<linf, uniform<7>, stochastic, int8, larger_of<7>> of_larger_with_a_number;

/// A norm that measures values.
struct mean_magnitude {
  struct sums {
    double sum = 0, count = 0;
#ifdef CASE_STATISTIC_TOO_LARGE  // expect-error: globalq: this norm's statistic cannot be sent
    double more[3];
#endif
  };
#ifndef CASE_NORM_WITHOUT_STATISTIC  // expect-error: globalq: this norm has no type statistic
  using statistic = sums;
#endif
#ifndef CASE_NORM_WITHOUT_NAME  // expect-error: globalq: this norm has no static constexpr char const* name
  static constexpr char const* name = "mean-magnitude";
#endif
#ifndef CASE_NORM_WITHOUT_LOCALITY  // expect-error: globalq: this norm has no static constexpr bool is_local
  static constexpr bool is_local = false;
#endif
#ifndef CASE_NORM_WITHOUT_BOUNDS  // expect-error: globalq: this norm has no static constexpr bool bounds_largest
  static constexpr bool bounds_largest = false;
#endif
#ifndef CASE_NORM_WITHOUT_BUCKET  // expect-error: globalq: this norm has no std::uint64_t bucket
  std::uint64_t bucket = 0;
#else
  std::uint64_t values = 0;
#endif
#ifndef CASE_NORM_WITHOUT_PARAMETERS  // expect-error: globalq: this norm has members or template arguments but no std::uint64_t parameters() const
  std::uint64_t parameters() const { return 1; }
#endif
#ifdef CASE_NORM_OF_FLOAT_ONLY  // expect-error: globalq: this norm has no statistic measure(T const*, int count) const for float and double
  sums measure(float const*, int) const { return {}; }
#else
  template <class Value>
  sums measure(Value const*, int) const {
    return {};
  }
#endif
#ifndef CASE_NORM_WITHOUT_MERGE  // expect-error: globalq: this norm has no statistic merge(statistic, statistic) const
  sums merge(sums a, sums) const { return a; }
#endif
#ifndef CASE_NORM_WITHOUT_SCALE  // expect-error: globalq: this norm has no double scale(statistic) const
  double scale(sums s) const { return s.sum / s.count; }
#endif
};
gq::quantizer<mean_magnitude, uniform<>, stochastic, int8> of_mean_magnitude;

/// A norm that selects a measure of the library.
struct largest_of_workers {
  std::uint64_t bucket = 0;
  static constexpr bool is_local = false;
#ifndef CASE_NORM_WITHOUT_MEASURE  // expect-error: globalq: this norm has no type statistic, nor the members inner, outer and fixed_scale
#ifndef CASE_NORM_WITHOUT_INNER  // expect-error: globalq: this norm has no std::uint32_t inner() const
  std::uint32_t inner() const { return 2; }
#endif
#ifndef CASE_NORM_WITHOUT_OUTER  // expect-error: globalq: this norm has no std::uint32_t outer() const
  std::uint32_t outer() const { return gq::infinity; }
#endif
#ifndef CASE_NORM_WITHOUT_FIXED_SCALE  // expect-error: globalq: this norm has no double fixed_scale() const
  double fixed_scale() const { return 0; }
#endif
#endif
};
gq::quantizer<largest_of_workers, uniform<>, stochastic, int8> of_largest;

struct silent {
#ifndef CASE_TRANSPORT_WITHOUT_REQUEST  // expect-error: globalq: this transport has no default constructible and movable type request
  using request = int;
#endif
#ifndef CASE_TRANSPORT_WITHOUT_RANK  // expect-error: globalq: this transport has no int rank() const
  int rank() const { return 0; }
#endif
#ifndef CASE_TRANSPORT_WITHOUT_SIZE  // expect-error: globalq: this transport has no int size() const
  int size() const { return 1; }
#endif
#ifndef CASE_TRANSPORT_WITHOUT_SEND  // expect-error: globalq: this transport has no request send_async(int peer, std::span<std::byte const>)
  int send_async(int, std::span<std::byte const>) { return 0; }
#endif
#ifndef CASE_TRANSPORT_WITHOUT_RECV  // expect-error: globalq: this transport has no request recv_async(int peer, std::span<std::byte>)
  int recv_async(int, std::span<std::byte>) { return 0; }
#endif
#ifndef CASE_TRANSPORT_WITHOUT_WAIT  // expect-error: globalq: this transport has no void wait(request&)
  void wait(int&) {}
#endif
};

struct quiet {
#ifndef CASE_SCHEDULE_WITHOUT_FACTS  // expect-error: globalq: this schedule has no detail::schedule_facts facts(int workers) const
  static gq::detail::schedule_facts facts(int) { return {"quiet", 0, true, false, true}; }
#endif
#ifndef CASE_SCHEDULE_WITHOUT_PARTS  // expect-error: globalq: this schedule has no int parts(int workers) const
  static int parts(int) { return 1; }
#endif
#ifndef CASE_SCHEDULE_WITHOUT_ADDITIONS  // expect-error: globalq: this schedule has no std::vector<std::pair<int, int>> additions(int workers) const
  static std::vector<std::pair<int, int>> additions(int) { return {}; }
#endif
#ifndef CASE_SCHEDULE_WITHOUT_CALL  // expect-error: globalq: this schedule has no call operator (transport, codec, partition, frame_pool) const
  template <gq::Transport T>
  void operator()(T&, gq::codec&, gq::partition const&, gq::frame_pool&) const {}
#endif
};

void make(silent& workers) { gq::allreduce_mean mean{workers, gq::uncompressed{}, quiet{}}; }

// Compressors and nodes ask for the name of a schedule.
#ifdef CASE_SCHEDULE_WITHOUT_NAME  // expect-error: globalq: this schedule has no static constexpr char const* name
std::string_view text() { return gq::schedule::detail::text_of(quiet{}); }
#endif
