// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief Tests: results, frames and bytes of calls, compared with those that were recorded.
///
/// A case is `CALL SCHEDULE OPERATOR`: the operator is named, or norm/bucket/levels/rounding/wire/reduce. Its outcome has hashes
/// of the results and of the frames that workers sent, without the records of handshakes (their fingerprints may change), and the
/// bytes of all. One hash holds several worlds, lengths and inputs, and all four types. GLOBALQ_GOLDEN_CASE=NAME prints the parts of
/// one case.

#include "golden.hpp"
#include "tests/support/cases.hpp"

#include <globalq/call/detail/opening.hpp>
#include <globalq/named/operators.hpp>
#include <globalq/transport/threads.hpp>

#include <iterator>
#include <span>
#include <sstream>

namespace golden {

namespace gq = globalq;
using support::hash_bytes;
using support::mix;

/// A transport that hashes what its worker sends to each other one, in order.
template <class T>
class recorded {
 public:
  using request = typename T::request;
  explicit recorded(T& workers) : t_(workers), sent_(static_cast<std::size_t>(workers.size())) {}
  int rank() const { return t_.rank(); }
  int size() const { return t_.size(); }
  request send_async(int peer, std::span<std::byte const> bytes) {
    bytes_ += bytes.size();
    if (!is_opening(bytes)) note(peer, bytes.data(), bytes.size());
    return t_.send_async(peer, bytes);
  }
  request recv_async(int peer, std::span<std::byte> bytes) { return t_.recv_async(peer, bytes); }
  void wait(request& posted) { t_.wait(posted); }
  template <class Value>
  void allreduce_sum(std::span<Value> values) requires gq::transport::OwnAllreduceSum<T, Value> {
    note(rank(), values.data(), values.size_bytes());
    t_.allreduce_sum(values);
  }

  std::uint64_t frames() const {
    std::uint64_t h = 0;
    for (std::uint64_t each : sent_) h = mix(h, each);
    return h;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static bool is_opening(std::span<std::byte const> bytes) {
    gq::detail::opening_record r;
    if (bytes.size() != sizeof r) return false;
    std::memcpy(&r, bytes.data(), sizeof r);
    return r.known();
  }
  void note(int peer, void const* data, std::size_t bytes) {
    std::uint64_t& h = sent_[static_cast<std::size_t>(peer)];
    h = mix(h, hash_bytes(data, bytes));
  }

  T& t_;
  std::vector<std::uint64_t> sent_;
  std::uint64_t bytes_ = 0;
};

struct golden_case {
  std::string call, schedule, words;
  gq::any_quantizer op;
  std::uint64_t seed = 0;
};

inline golden_case read_case(std::string const& name) {
  golden_case c{"", "", "", gq::uncompressed{}, 0};
  std::istringstream(name) >> c.call >> c.schedule >> c.words;
  c.seed = hash_bytes(c.words.data(), c.words.size());
  if (c.words.find('/') == c.words.npos) {
    c.op = gq::named::operator_of(gq::named::read_operator(c.words));
    return c;
  }
  std::string part[6];
  std::istringstream words(c.words);
  for (std::string& each : part) std::getline(words, each, '/');
  c.op = gq::named::make({part[0], part[2], part[3], part[4], part[5], std::stoull(part[1])});
  return c;
}

/// One run of a case.
struct run {
  int workers;
  gq::dtype type;
};
constexpr run runs[] = {{1, gq::dtype::float32}, {1, gq::dtype::float64},  {2, gq::dtype::bfloat16},
                        {2, gq::dtype::float64}, {3, gq::dtype::float16},  {3, gq::dtype::float32},
                        {5, gq::dtype::float64}, {5, gq::dtype::bfloat16}, {8, gq::dtype::float32},
                        {8, gq::dtype::float16}};

/// What one worker got and sent.
struct outcome {
  std::uint64_t result = 0, frames = 0, bytes = 0;
};

template <class Value, class T, class Average>
outcome outcome_of(T& workers, golden_case const& c, std::uint64_t h, Average average) {
  std::uint64_t const lengths[] = {1, 255, 257, 1000, 1300, 2500};
  std::uint64_t const d = lengths[h % 6];
  support::input kind =
      h >> 8 & 1 ? support::input::normal : support::inputs[(h >> 16) % std::size(support::inputs)];
  if (c.words.starts_with("fixed") && kind == support::input::largest)
    kind = support::input::small;  // refused
  std::vector<Value> x(d);
  for (std::uint64_t i = 0; i < d; ++i)
    x[i] = support::value_at<Value>(kind, h, workers.rank(), workers.size(), i, d);
  gq::options const settings{.seed = h >> 3, .chunk_values = h >> 32 & 1 ? 0U : 300U};
  std::uint64_t const step = h >> 40;
  recorded<T> over(workers);
  try {
    average(over, c, std::span(x), step, settings);
  } catch (gq::configuration_error const&) {  // is refused
    return {1, 1, 0};
  }
  return {hash_bytes(x.data(), d * sizeof(Value)), over.frames(), over.bytes()};
}
template <class T, class Average>
outcome outcome_as(T& workers, golden_case const& c, gq::dtype type, std::uint64_t h, Average average) {
  switch (type) {
    case gq::dtype::float64:
      return outcome_of<double>(workers, c, h, average);
    case gq::dtype::float16:
      return outcome_of<gq::float16>(workers, c, h, average);
    case gq::dtype::bfloat16:
      return outcome_of<gq::bfloat16>(workers, c, h, average);
    default:
      return outcome_of<float>(workers, c, h, average);
  }
}

/// all[case][run]: of all workers together.
template <class Average>
std::vector<std::vector<outcome>> outcomes_of(std::vector<golden_case> const& cases, Average average) {
  std::vector all(cases.size(), std::vector<outcome>(std::size(runs)));
  for (int n : {1, 2, 3, 5, 8}) {
    std::vector of(cases.size(),
                   std::vector(std::size(runs), std::vector<outcome>(static_cast<std::size_t>(n))));
    gq::transport::threads cluster{n};
    cluster.run([&](auto& workers) {
      for (std::size_t k = 0; k < cases.size(); ++k)
        for (std::size_t i = 0; i < std::size(runs); ++i)
          if (runs[i].workers == n)
            of[k][i][static_cast<std::size_t>(workers.rank())] =
                outcome_as(workers, cases[k], runs[i].type, mix(cases[k].seed, i), average);
    });
    for (std::size_t k = 0; k < cases.size(); ++k)
      for (std::size_t i = 0; i < std::size(runs); ++i)
        if (runs[i].workers == n)
          for (outcome const& each : of[k][i]) {
            outcome& sum = all[k][i];
            sum = {mix(sum.result, each.result), mix(sum.frames, each.frames), sum.bytes + each.bytes};
          }
  }
  return all;
}

inline std::string text(outcome const& o) {
  return text(o.result) + ' ' + text(o.frames) + ' ' + std::to_string(o.bytes);
}

/// Expects the outcomes in a file.
/// @param average  a call: average(over, case, vector, step, options)
template <class Average>
void expect_calls(char const* file, std::size_t at_least, Average average) {
  record before(file);
  char const* const one = std::getenv("GLOBALQ_GOLDEN_CASE");
  std::vector<golden_case> cases;
  std::vector<record::line> now;
  for (auto const& [name, outcome] : before.lines()) {
    if (one != nullptr && name != one) continue;
    cases.push_back(read_case(name));
    now.emplace_back(name, "");
  }
  if (one != nullptr && cases.empty()) GTEST_SKIP() << file << " has no case " << one;
  auto const all = outcomes_of(cases, average);
  for (std::size_t k = 0; k < cases.size(); ++k) {
    outcome sum;
    for (std::size_t i = 0; i < std::size(runs); ++i) {
      outcome const& o = all[k][i];
      if (one != nullptr)
        std::printf("%d workers, %s: %s\n", runs[i].workers, gq::name_of(runs[i].type), text(o).c_str());
      sum = {mix(sum.result, o.result), mix(sum.frames, o.frames), sum.bytes + o.bytes};
    }
    now[k].second = text(sum);
  }
  EXPECT_GE(cases.size(), one != nullptr ? 1U : at_least);
  before.expect(now);
}

}  // namespace golden
