// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Results, frames and bytes of calls are those that were recorded: operators x schedules x types x worlds.
///
/// A case is `CALL SCHEDULE OPERATOR`: the operator is named, or norm/bucket/levels/rounding/wire/reduce. Its outcome has hashes
/// of the results and of what workers sent to one another, the records of openings left out (their fingerprints are no promise),
/// and the bytes of all. One hash holds several worlds, lengths and inputs, and all four types. To see which differ:
/// GLOBALQ_GOLDEN_CASE=NAME prints the parts of one case.

#include "golden.hpp"
#include "tests/support/cases.hpp"

#include <globalq/collective/all_gather.hpp>
#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/collective/reduce_scatter_mean.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/train/adapt/layered_mean.hpp>
#include <globalq/transport/threads.hpp>

#include <globalq/named/operators.hpp>

#include <span>
#include <sstream>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace gq = globalq;
using support::hash_bytes;
using support::mix;

namespace {

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

golden_case read_case(std::string const& name) {
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

template <class T, class Value>
void average(T& over, golden_case const& c, std::span<Value> x, std::uint64_t step,
             gq::options const& settings) {
  gq::any_quantizer const& op = c.op;
  gq::schedule::any const schedule{c.schedule};
  Kokkos::Serial const on_one_core;
  if (c.call == "allreduce_mean") {
    gq::allreduce_mean{over, op, schedule, settings, on_one_core}(x, step);
  } else if (c.call == "group") {
    std::size_t const d = x.size();
    std::span<Value> const first = x.first(d / 3), rest = x.subspan(d / 3);
    gq::allreduce_mean{over, op, schedule, settings, on_one_core}(gq::vector_group{}.add(first).add(rest),
                                                                  step);
  } else if (c.call == "layered_mean") {
    gq::adapt::model_layout model;
    gq::dtype const type = gq::dtype_of<Value>::value;
    std::size_t const d = x.size();
    model.add("a", {d / 2}, type).add("b", {d / 5}, type).add("c", {d - d / 2 - d / 5}, type);
    std::vector<gq::any_quantizer> const ops{op, gq::uncompressed{}, op};
    gq::adapt::layered_mean mean{over, model, ops, schedule, {.call = settings}, on_one_core};
    mean(x, step);
  } else if (c.call == "reduce_scatter_mean") {
    gq::reduce_scatter_mean{over, op, settings, on_one_core}(x, step);
  } else if (c.call == "all_gather") {
    gq::all_gather{over, op, settings, on_one_core}(x, step);
  } else {
    throw std::runtime_error("there is no call " + c.call);
  }
}

template <class Value, class T>
outcome outcome_of(T& workers, golden_case const& c, std::uint64_t h) {
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
template <class T>
outcome outcome_as(T& workers, golden_case const& c, gq::dtype type, std::uint64_t h) {
  switch (type) {
    case gq::dtype::float64:
      return outcome_of<double>(workers, c, h);
    case gq::dtype::float16:
      return outcome_of<gq::float16>(workers, c, h);
    case gq::dtype::bfloat16:
      return outcome_of<gq::bfloat16>(workers, c, h);
    default:
      return outcome_of<float>(workers, c, h);
  }
}

/// all[case][run]: of all workers together.
std::vector<std::vector<outcome>> outcomes_of(std::vector<golden_case> const& cases) {
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
                outcome_as(workers, cases[k], runs[i].type, mix(cases[k].seed, i));
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

std::string text(outcome const& o) {
  return golden::text(o.result) + ' ' + golden::text(o.frames) + ' ' + std::to_string(o.bytes);
}

#if defined(__GLIBC__)
/// Memory that nobody has written is no zeros, and must not travel.
int const not_zeros = mallopt(M_PERTURB, 0xA5);
#endif

TEST(Golden, results_frames_and_bytes_of_calls_are_those_recorded) {
  golden::record record("calls.txt");
  char const* const one = std::getenv("GLOBALQ_GOLDEN_CASE");
  std::vector<golden_case> cases;
  std::vector<golden::record::line> now;
  for (auto const& [name, outcome] : record.lines()) {
    if (one != nullptr && name != one) continue;
    cases.push_back(read_case(name));
    now.emplace_back(name, "");
  }
  auto const all = outcomes_of(cases);
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
  EXPECT_GE(cases.size(), one != nullptr ? 1U : 2000U);
  record.expect(now);
}

/// `OPERATOR: hash of frames`, of vectors of all types.
TEST(Golden, frames_of_vector_codec_are_those_recorded) {
  golden::record record("frames.txt");
  std::vector<golden::record::line> now;
  for (auto const& [name, before] : record.lines()) {
    golden_case const c = read_case("vector_codec - " + name);
    gq::vector_codec codec{c.op};
    std::uint64_t h = 0;
    auto const encode = [&]<class Value>(Value) {
      for (std::uint64_t d : {1U, 257U, 1000U}) {
        std::vector<Value> x(d);
        for (std::uint64_t i = 0; i < d; ++i)
          x[i] = support::value_at<Value>(support::input::normal, c.seed, 1, 3, i, d);
        std::vector<std::byte> frame(codec.frame_bytes(d, gq::dtype_of<Value>::value));
        frame.resize(codec.encode(x, {.seed = c.seed, .step = d}, frame));
        std::vector<Value> back(d);
        codec.decode(frame, {.seed = c.seed, .step = d}, back);
        h = mix(h, hash_bytes(frame.data(), frame.size()), hash_bytes(back.data(), d * sizeof(Value)));
      }
    };
    encode(float{});
    encode(double{});
    encode(gq::float16{});
    encode(gq::bfloat16{});
    now.emplace_back(name, golden::text(h));
  }
  EXPECT_GE(now.size(), 300U);
  record.expect(now);
}

}  // namespace
