// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief operators_table: prints docs/operators.md: every named operator, its parts, its bound, and the measured share
/// of the bound.
///
/// Inputs consist of integers and correctly rounded operations, seeds are fixed, and results of the library do not
/// depend on machine or threads. The text is therefore the same everywhere, and a test compares it with the file in the
/// repository.

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/vector_codec.hpp>
#include <globalq/plan/plan.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/transport/threads.hpp>

#include <globalq/named/operators.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

namespace gq = globalq;

constexpr int workers = 4;
constexpr std::size_t length = 4096;
constexpr int calls = 100;

using vectors = std::vector<std::vector<float>>;

/// Approximately normal, in units of 2^-20: the sum of twelve uniform integers.
std::int64_t bell(std::mt19937_64& draw) {
  std::int64_t sum = 0;
  for (int k = 0; k < 12; ++k) sum += static_cast<std::int64_t>(draw() >> 44) - (1 << 19);
  return sum;
}

struct distribution {
  char const* name;
  double (*value)(std::mt19937_64&);
};

constexpr distribution distributions[] = {
    {"normal", [](std::mt19937_64& draw) { return static_cast<double>(bell(draw)) * 0x1p-20; }},
    {"heavy",
     [](std::mt19937_64& draw) {
       double const a = static_cast<double>(bell(draw)) * 0x1p-20;
       double squares = 0;
       for (int k = 0; k < 3; ++k) {
         double const b =
             std::floor(static_cast<double>(bell(draw)) * 0x1p-8);  // 12 bits: exact squares and sums
         squares += b * b;
       }
       double const t = a / std::sqrt(squares * 0x1p-24 / 3);
       return std::floor(t * 1024) * 0x1p-10;
     }},
    {"sparse", [](std::mt19937_64& draw) {
       double const a = static_cast<double>(bell(draw)) * 0x1p-20;
       return (draw() >> 58) == 0 ? a : 0.0;
     }}};

vectors inputs(distribution const& from) {
  vectors x(workers, std::vector<float>(length));
  std::mt19937_64 draw{2024};
  for (auto& own : x)
    for (float& value : own) value = static_cast<float>(from.value(draw));
  return x;
}

double energy(vectors const& x) {
  double sum = 0;
  for (auto const& own : x)
    for (float value : own) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

/// E||result - mean||^2 over the calls, with all roundings on the way.
double measured(gq::named::named_operator const& op, vectors const& x) {
  gq::any_quantizer const quantizer = gq::named::operator_of(op);
  double error = 0;
  gq::transport::threads cluster{workers};
  cluster.run([&](auto& endpoint) {
    auto const rank = static_cast<std::size_t>(endpoint.rank());
    gq::schedule::any const schedule{op.schedule};
    gq::allreduce_mean mean{endpoint, quantizer, schedule, {.seed = 7}};
    std::vector<float> result(length);
    for (std::uint64_t step = 0; step < calls; ++step) {
      mean(x[rank], result, step);
      if (rank != 0) continue;
      for (std::size_t i = 0; i < length; ++i) {
        double sum = 0;
        for (auto const& own : x) sum += static_cast<double>(own[i]);
        double const off = static_cast<double>(result[i]) - sum / workers;
        error += off * off / calls;
      }
    }
  });
  return error;
}

/// Bits per value for frames of variable length: the average over frames of normal values.
double measured_bits(gq::any_quantizer const& quantizer) {
  gq::vector_codec codec{quantizer, Kokkos::Serial(), gq::frame_checksum::none};
  vectors const x = inputs(distributions[0]);
  std::vector<std::byte> frame(codec.frame_bytes(length));
  double bytes = 0;
  for (std::uint64_t step = 0; step < calls; ++step)
    bytes += static_cast<double>(codec.encode(x[step % workers], {7, step, 0}, frame)) / calls;
  return 8 * bytes / length;
}

std::string text(char const* format, double number) {
  char line[40];
  std::snprintf(line, sizeof line, format, number);
  return line;
}

std::string cells(std::initializer_list<std::string> columns) {
  std::string line = "|";
  for (std::string const& column : columns) line += " " + column + " |";
  return line + "\n";
}

/// The schedules that support the operator with this many workers; its default in bold.
std::string schedules(gq::named::named_operator const& op, gq::any_quantizer const& quantizer) {
  std::string list;
  for (char const* name : {"ring", "tree", "sra", "allgather", "native"}) {
    if (!gq::plan_for(quantizer, gq::schedule::any{name}, workers, length).fits) continue;
    bool const own = op.schedule == name;
    list += std::string(list.empty() ? "" : ", ") + (own ? "**" : "") + name + (own ? "**" : "");
  }
  return list;
}

/// The levels in words, with their number if the policies chose it.
std::string levels(gq::named::named_operator const& op, gq::plan const& plan) {
  std::string name = op.words.levels;
  if (name == "none") return "none";
  std::string const kind = name.substr(0, name.find(':'));
  if (kind == "table" || kind == "symmetric") {
    std::string list = kind == "table" ? "0" : "";
    for (double const magnitude : gq::named::make(op.words).facts().magnitudes)
      list += (list.empty() ? "+-" : ", +-") + text("%.3g", magnitude);
    return list;
  }
  return kind + ", s = " + std::to_string(plan.levels);
}

std::string row(std::string_view example) {
  gq::named::named_operator const op = gq::named::read_operator(example);
  gq::any_quantizer const quantizer = gq::named::operator_of(op);
  gq::plan const plan = gq::plan_for(quantizer, gq::schedule::any{op.schedule}, workers, length);
  gq::plan const single = gq::plan_for(quantizer, gq::schedule::any{"allgather"}, 1, length);
  double bits = plan.bytes_are_most ? measured_bits(quantizer) : plan.bits_per_value;
  bool const plain = op.words.levels == "none";
  double const fixed = quantizer.facts().fixed_scale;
  std::string shares[std::size(distributions)], omega = "none", theta = "none";
  if (!std::isnan(plan.theta)) omega = text("%.3g", single.theta), theta = text("%.3g", plan.theta);
  for (std::size_t k = 0; k < std::size(distributions); ++k) {
    vectors const x = inputs(distributions[k]);
    double const variance = measured(op, x), total = energy(x);
    double bound = plan.theta / workers * total;
    if (fixed > 0) {  // an absolute step has an absolute bound: delta^2 / 12 per value and worker
      double const delta = fixed / plan.levels;
      bound = length * delta * delta / 12 / workers;
      omega = theta = "gap^2 / 12";
    }
    if (op.centered) {  // a bound by the range, which is not a share of the energy
      bound = std::nan("");
      omega = op.words.rounding == "random-shift" ? "gap^2 / 12" : "gap^2 / 4";
      theta = "none";
    }
    if (plain)
      shares[k] = "0 %";
    else if (std::isnan(bound))
      shares[k] = "(" + text("%.2g", variance * workers / total) + ")";
    else
      shares[k] = text(variance > 0.995 * bound ? "%.0f" : "%.2g", 100 * variance / bound) + " %";
  }
  if (plain) omega = theta = "0";
  std::string norm = op.words.norm;
  if (op.centered) norm = "min-max";
  if (op.words.bucket != 0) norm += ", buckets of " + std::to_string(op.words.bucket);
  if (op.words.tail != "own") norm += ", tail " + op.words.tail;
  return cells({"`" + std::string(example) + "`", levels(op, plan), plain ? "none" : norm,
                plain ? "none" : op.words.rounding, text("%.4g", bits), plain ? "float32" : op.words.wire,
                gq::name_of(plan.reduce), schedules(op, quantizer), omega, theta, shares[0], shares[1],
                shares[2]});
}

std::string page() {
  std::string out = R"(# The operators of the papers {#operators_table}

Written by `scripts/operators-table` from the registry in `src/named/operators.cpp`; a test compares. Each
name is a function of `globalq/operator/operators.hpp`, and a word of `mean_of_files --operator`.

)";
  out += std::to_string(workers) + " workers, " + std::to_string(length) + R"( float32 values each.

- *bits*: of a value on the wire, scales and header included; measured on normal values where frames differ in length.
- *reduce*: on the schedule in bold, for which the operator was designed; the other schedules fit, too.
- *norm*: with a tail of float32 a short last bucket (here 96 values) is not quantized; any operator with buckets takes
  `tail=float32`.
- *levels*: those of `alq` and `amq` are given here; without them they are learned while running.
- *omega*: bound on the relative variance of one encoding of one vector; or on the variance of a value, in terms of the gap
  between levels.
- *theta*: the bound of the plan on that schedule, with every rounding on the way: n times the variance of the mean is at
  most theta times the sum of all squares.
- *normal*, *heavy*, *sparse*: the variance measured over )" +
         std::to_string(calls) +
         R"( calls as a share of that bound, on normal values, on heavy
  tails (Student's t, three degrees of freedom), and on sparse vectors (one value in 64, normal, is not zero). In
  parentheses, where there is no bound: what theta would be. With an absolute step the variance equals the bound for any
  values; it differs from 100 % here only because each call and worker draws a single shift.

)";
  out += cells({"operator", "levels", "norm", "rounding", "bits", "wire", "reduce", "schedules", "omega",
                "theta", "normal", "heavy", "sparse"});
  out += "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (gq::named::entry const& each : gq::named::operators())
    for (std::string_view const example : each.examples) out += row(example);
  out += R"(
## What they are

Bounds on omega, with D values under one scale, s levels above zero, r the largest ratio of neighboring levels, and
c = d^max(0, 1/q - 1/2) n^max(0, 1/p - 1/2); see @ref theory. *Errata* are mistakes in the papers' printed text.

)";
  for (gq::named::entry const& each : gq::named::operators()) {
    out += "- **" + std::string(each.name) + "**: " + std::string(each.title) + ". ";
    if (!each.source.empty()) out += std::string(each.source) + ". ";
    out += "Bound: " + std::string(each.bound) + ".\n";
    if (!each.erratum.empty()) out += "  *Erratum:* " + std::string(each.erratum) + "\n";
  }
  return out;
}

}  // namespace

int main() {
  try {
    Kokkos::ScopeGuard const kokkos{
        Kokkos::InitializationSettings{}.set_num_threads(1).set_disable_warnings(true)};
    std::fputs(page().c_str(), stdout);
    return 0;
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "operators_table: %s\n", problem.what());
    return 1;
  }
}
