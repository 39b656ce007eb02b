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
  if (!gq::named::operator_of(op).facts().has_codes()) return name;
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
  gq::named::description own = op.words;  // without what a call adds
  own.second.clear();
  own.feedback = 0;
  own.centered = false;
  gq::plan const single = gq::plan_for(gq::named::make(own), gq::schedule::any{"allgather"}, 1, length);
  gq::named::description alone = own;
  if (alone.rounding == "correlated") alone.rounding = "stochastic";  // frames as long, without other workers
  double const bits = plan.bytes_are_most ? measured_bits(gq::named::make(alone)) : plan.bits_per_value;
  bool const plain = !quantizer.facts().rounds(), floats = !quantizer.facts().has_codes();
  double const fixed = quantizer.facts().fixed_scale;
  std::string shares[std::size(distributions)], omega = "none", theta = "none";
  if (!std::isnan(plan.theta)) omega = text("%.3g", single.theta), theta = text("%.3g", plan.theta);
  for (std::size_t k = 0; k < std::size(distributions); ++k) {
    vectors const x = inputs(distributions[k]);
    double const variance = measured(op, x), total = energy(x);
    double bound = plan.theta / workers * total;
    if (fixed > 0 &&
        quantizer.facts()
            .unbiased) {  // an absolute step has an absolute bound: delta^2 / 12 per value and worker
      double const delta = fixed / plan.levels;
      bound = length * delta * delta / 12 / workers;
      omega = theta = "gap^2 / 12";
    }
    if (op.words.centered) {  // a bound by the range, which is not a share of the energy
      bound = std::nan("");
      omega = op.words.rounding.ends_with("-shift") ? "gap^2 / 12" : "gap^2 / 4";
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
  if (op.words.centered) norm = "min-max";
  if (op.words.bucket != 0) norm += ", buckets of " + std::to_string(op.words.bucket);
  if (op.words.rotate != 0 || op.words.eden)
    norm += op.words.rotate == 0 ? ", rotated by each worker"
            : op.words.eden      ? ", rotated by all and each"
                                 : ", rotated";
  if (op.words.tail != "own") norm += ", tail " + op.words.tail;
  std::string wire = floats ? gq::name_of(quantizer.facts().floats.type) : op.words.wire;
  if (!op.words.second.empty()) wire += ", means " + op.words.second;
  return cells({"`" + std::string(example) + "`", levels(op, plan), floats ? "none" : norm,
                plain ? "none" : op.words.rounding + (op.words.feedback > 0 ? ", feedback" : ""),
                text("%.4g", bits), wire, gq::name_of(plan.reduce), schedules(op, quantizer), omega, theta,
                shares[0], shares[1], shares[2]});
}

/// Rows of operators without a name.
constexpr std::string_view composed[] = {
    "norm=linf bucket=128 wire=packed:4 levels=exponential",
    "norm=l:3,inf bucket=256 levels=exponential:1.5 rounding=correlated wire=sparse rotate=1024",
    "cgx:4 rotate=1024",
    "cgx:4 code=huffman",
    "cgx:2 code=sparse",
    "nuqsgd:4 rounding=correlated",
    "mxfp4 rotate=1024 rounding=correlated",
    "nvfp4 feedback"};

std::string page() {
  std::string out = R"(# The operators of the papers {#operators_table}

`scripts/operators-table` writes this page from the registry in `src/named/operators.cpp`; a test compares the two. Each name is
a function of `globalq/operator/operators.hpp`, and a value of `mean_of_files --operator`. The last rows are composed of
[words](names.md).

)";
  out += "The measurements use " + std::to_string(workers) + " workers with " + std::to_string(length) +
         R"( float32 values each. Columns:

- *levels*: the kind of levels, and their number s above zero. The levels of `alq` and `amq` are set here; by default they are
  learned during training.
- *norm*: the norm that determines the scale. With `tail=float32`, which any operator with buckets accepts, a shorter last bucket
  (here 96 values) is sent without quantization.
- *bits*: bits per value on the wire, including scales and headers. If the length of frames varies, the table has the average over
  frames of normal values.
- *schedules*: those that support the operator; the default in bold (see below).
- *reduce*: how codes are added over the default schedule.
- *omega*: the bound on the relative variance of one encoding of one vector, or on the variance of one value, in terms of the gap
  between levels.
- *theta*: the bound of the plan for the default schedule, including every rounding of partial sums: n times the variance of the
  mean is at most theta times the sum of the squares of all values.
- *normal*, *heavy*, *sparse*: the variance measured over )" +
         std::to_string(calls) +
         R"( calls, as a share of the bound theta. Inputs are normal values,
  values with heavy tails (Student's t with three degrees of freedom), and sparse vectors (one value in 64 is normal, the others
  are zero).
  Without a bound, the table has n times the variance over the sum of squares, in parentheses. With a fixed step
  (`qsdp-grid`) the variance equals the bound for any values; it differs from 100 % here only because each worker draws one shift
  per call.

)";
  out += cells({"operator", "levels", "norm", "rounding", "bits", "wire", "reduce", "schedules", "omega",
                "theta", "normal", "heavy", "sparse"});
  out += "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (gq::named::entry const& each : gq::named::operators())
    for (std::string_view const example : each.examples) out += row(example);
  for (std::string_view const example : composed) out += row(example);
  out += R"(
## Default schedules

With 4, 8 and 16 workers, no other schedule of ring, tree, sra and allgather sends at most as many bytes as the default with less
variance, or fewer bytes with at most as much; a test measures all operators. What remains is a choice between bytes and variance:

- **allgather** rounds each value once, so its variance is the least. Each worker sends n - 1 frames; ring and sra send 2 (n - 1) / n.
- **sra** rounds a second time, when the owner of a segment encodes the mean. Of normal values and 16 workers, its variance is about twice
  that of allgather for most operators, 3.5 times for `qsgd:4` and `terngrad`, and more where levels do not suit a mean: 120 times for
  `amq`, which has no zero.
- **ring** has the bytes and the results of sra where integers are added (`global-uniform` and `bounded` from 8 bits on, `qsdp-grid`). Everywhere else
  it rounds n times.
- **tree** rounds 1 + log2 n times, and one worker sends log2 n frames.

With two workers all schedules send the same bytes except for headers, and allgather has the least variance.

**The exponential reduce** (Algorithm 2 of Xin et al.) is for ring and tree: they add the codes of `global-exponential` and
`natural-compression` as integers, without decoding, but round in each addition. On sra the owner of a segment has the codes of all
workers, so it decodes them, adds them in float32 and rounds once. With 995,000 normal values and 4 workers, `global-exponential` sends
1.49 MB on sra and 1.99 MB on a tree, and n theta as measured is 0.15 and 0.24; with 8 workers it sends 1.74 and 2.99 MB at 0.16 and
0.33. Its default is therefore sra.

## Descriptions

Bounds are on omega, with these symbols (see [Theory](theory.md)):

- n workers; d values of a vector, or of a bucket; D = n d if all workers share a scale, else D = d
- s levels above zero, of which l_1 is the smallest; r is the largest ratio of neighboring levels
- c = d^max(0, 1/q - 1/2) n^max(0, 1/p - 1/2), without the second factor if each worker has its own scale
- delta is the step of the grid; inf_p is the infimum over p from 0 to 1, with K_p = ((1-p) / (2-p))^(1-p) / (2-p)

An *erratum* is a mistake in the printed text of a paper.

)";
  for (gq::named::entry const& each : gq::named::operators()) {
    out += "- **" + std::string(each.name) + "**: " + std::string(each.title) + ". ";
    if (!each.source.empty()) out += "Source: " + std::string(each.source) + ". ";
    out += "Bound: " + std::string(each.bound) + ". Words: `" +
           gq::named::words_of(gq::named::read_operator(each.name)) + "`.\n";
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
