// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief advise: predicts every operator on every schedule, and chooses.

#include "advise.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

namespace globalq_advisor {
namespace {

namespace model = gq::model;
using model::detail::short_text;
using model::detail::time_text;

constexpr char const* schedules[] = {"ring", "tree", "sra", "allgather"};
/// Predictions closer than this ratio count as equal, because they are not more accurate.
constexpr double least_gain = 1.05;

/// An operator on a schedule.
struct candidate {
  model::prediction found;
  char const* schedule;
  double error, bound;
};

/// Predicts a call. For long vectors it simulates two shorter ones and extrapolates: every further chunk takes as long as the last.
model::prediction predict(model::network const& net, model::operator_model const& op,
                          gq::schedule::any const& schedule, std::uint64_t length,
                          model::call_shape const& shape) {
  int const n = net.workers();
  std::uint64_t const chunk = gq::detail::chunk_of(
      op.facts, gq::detail::resolve(op.facts, schedule.facts(n), n), shape.chunk_values, shape.chunk_bytes);
  // 16 chunks in each part
  std::uint64_t const most =
      std::max(std::uint64_t{1} << 22, 16 * chunk * static_cast<std::uint64_t>(schedule.parts(n)));
  if (length <= most) return model::predict(net, op, schedule, length, shape);
  model::prediction p = model::predict(net, op, schedule, most, shape);
  p.plan =
      gq::detail::make_plan(op.facts, schedule, n, length, shape.type, shape.chunk_values, shape.chunk_bytes);
  if (!p.fits()) return p;
  model::timing const half = model::predict(net, op, schedule, most / 2, shape).time;
  double const further = static_cast<double>(length - most) / static_cast<double>(most - most / 2);
  for (auto const part : {&model::timing::seconds, &model::timing::norm, &model::timing::encode,
                          &model::timing::transfer, &model::timing::reduce, &model::timing::decode})
    p.time.*part += further * (p.time.*part - half.*part);
  return p;
}

/// Tries a quarter and four times the default chunk size, on given networks only: calibration measures one message size, and
/// the speed of real networks depends on the size.
void choose_chunk(candidate& c, model::operator_model const& op, costs const& with, std::uint64_t length) {
  gq::schedule::any const schedule{std::string_view(c.schedule)};
  int const n = with.net.workers();
  std::uint64_t const usual = gq::detail::chunk_of(
      op.facts, gq::detail::resolve(op.facts, schedule.facts(n), n), 0, with.shape.chunk_bytes);
  if (usual == 0) return;  // whole segments
  double least = c.found.time.seconds / least_gain;
  for (std::uint64_t const chunk : {usual / 4, usual * 4}) {
    model::call_shape shape = with.shape;
    shape.chunk_values = chunk;
    model::prediction p = predict(with.net, op, schedule, length, shape);
    if (!p.fits() || !(p.time.seconds < least)) continue;
    least = p.time.seconds;
    c.found = std::move(p);
  }
}

/// The part of a plan's refusal after operation, operator, schedule and workers.
std::string cause_of(std::string_view refusal) {
  constexpr std::string_view start = " workers: ";
  std::size_t const at = refusal.find(start);
  return std::string(at == std::string_view::npos ? refusal : refusal.substr(at + start.size()));
}

/// "3.9 times"
std::string times_text(double x) {
  return (x < 1000 ? short_text(x) : std::to_string(std::llround(x))) + " times";
}

/// An operator on its fastest schedule that is accurate enough; if there is none, on its most accurate schedule.
/// @param worth  chunk sizes are tried only for operators that take at most this many seconds
row row_of(request const& asked, costs const& with, std::size_t number, error_of const& error, double worth) {
  model::operator_model const& op = with.operators[number];
  std::uint64_t length = 0, longest = 0;
  for (layer const& l : asked.layers) {
    length += l.length;
    longest = std::max(longest, l.length);
  }
  int const n = with.net.workers();
  double rate = 0;
  for (model::link const& l : with.net.links) rate = std::max(rate, l.up);
  row r;
  r.name = op.name;
  r.bound = r.error = std::numeric_limits<double>::quiet_NaN();
  std::optional<candidate> best, nearest;
  std::string refusal;
  for (char const* const name : schedules) {
    gq::schedule::any const schedule{std::string_view(name)};
    auto const plan_of = [&](std::uint64_t values) {
      return gq::detail::make_plan(op.facts, schedule, n, values, with.shape.type, 0, with.shape.chunk_bytes);
    };
    gq::plan const plan = plan_of(length);
    if (!plan.fits && refusal.empty())
      refusal = "cannot run on schedule " + std::string(name) + ": " + cause_of(plan.refusal);
    // skip the simulation if sending the bytes alone takes longer than the best so far
    if (!plan.fits || (best && static_cast<double>(plan.bytes_sent) / rate > best->found.time.seconds))
      continue;
    candidate c{predict(with.net, op, schedule, length, with.shape), name, 0, 0};
    if (op.facts.rounds()) {
      c.error = error(number, name);
      c.bound = plan_of(longest).theta;  // the longest layer has the largest bound
    }
    bool const accurate =
        c.error <= asked.max_error && (std::isinf(asked.max_bound) || c.bound <= asked.max_bound);
    if (accurate && (!best || c.found.time.seconds < best->found.time.seconds)) best = c;
    if (!nearest || c.error < nearest->error) nearest = std::move(c);
  }
  if (!best && !nearest) {
    r.what = row::verdict::unfit;
    r.why = refusal;
    return r;
  }
  if (!best) {
    r.what = row::verdict::inaccurate;
    best = std::move(nearest);
    if (!(best->error <= asked.max_error))
      r.why = "inaccurate: its error is " + short_text(best->error) + " at the least, above the limit of " +
              short_text(asked.max_error);
    else
      r.why = "inaccurate: " +
              (std::isnan(best->bound) ? "it has no bound" : "its bound is " + short_text(best->bound)) +
              ", and the limit is " + short_text(asked.max_bound);
  }
  if (!with.measured && best->found.time.seconds <= worth) choose_chunk(*best, op, with, length);
  model::prediction const& p = best->found;
  r.schedule = best->schedule;
  r.chunk_values = p.chunk_values;
  r.bytes_sent = p.plan.bytes_sent;
  r.seconds = p.time.seconds;
  r.error = best->error;
  r.bound = best->bound;
  if (r.why.empty()) r.why = model::detail::most_of(p.time);
  if (!refusal.empty()) r.why += "; " + refusal;
  return r;
}

/// Why a usable operator was not chosen; r.why holds the largest part of its time, and the schedules that it cannot run on.
std::string why_not(row const& r, row const& chosen) {
  double const times = r.seconds / chosen.seconds;
  if (times > least_gain || (r.error < chosen.error && times > 1))
    return "slower: " + times_text(times) + " the time of " + chosen.name + ", " + r.why;
  if (chosen.name == "float32") return "as fast as float32 within 5 %, which is no gain";
  std::string const start = "as fast as " + chosen.name + " within 5 %, with ";
  if (chosen.error == 0 && r.error > 0) return start + "an error of " + short_text(r.error) + " instead of 0";
  return start +
         (r.error <= chosen.error ? "the same error" : times_text(r.error / chosen.error) + " the error");
}

void check_workers(int workers) {
  if (workers < 2 || workers > 1024)
    throw gq::configuration_error("globalq: advise: the number of workers is " + std::to_string(workers) +
                                  "; use 2 to 1024");
}

}  // namespace

void check(request const& asked) {
  auto const refuse = [](std::string const& what, std::string const& remedy) {
    throw gq::configuration_error("globalq: advise: " + what + "; " + remedy);
  };
  if (asked.layers.empty()) refuse("there are no layers", "pass their lengths, or a gradient");
  std::uint64_t length = 0;
  for (layer const& l : asked.layers) {
    if (l.length == 0 || l.length > std::uint64_t{1} << 40)
      refuse("layer " + l.name + " has " + std::to_string(l.length) + " values", "use 1 to 2^40");
    length += l.length;
  }
  if (length > std::uint64_t{1} << 40)
    refuse("the layers have " + std::to_string(length) + " values", "use at most 2^40");
  if (asked.gradient.size() % length != 0)
    refuse(
        "the gradient has " + std::to_string(asked.gradient.size()) + " values and the layers have " +
            std::to_string(length),
        "pass the layers of this gradient, or no layers; the gradients of several workers follow each other");
  bool zero = true;
  for (std::size_t i = 0; i < asked.gradient.size(); ++i) {
    if (!std::isfinite(asked.gradient[i]))
      refuse("value " + std::to_string(i) + " of the gradient is not finite",
             "pass the gradient of another step");
    zero = zero && asked.gradient[i] == 0;
  }
  if (zero && !asked.gradient.empty()) refuse("the gradient is zero", "pass the gradient of another step");
  if (!(asked.max_error > 0))
    refuse("max_error is " + short_text(asked.max_error), "use a number above 0, such as 0.05");
  if (!(asked.max_bound > 0))
    refuse("max_bound is " + short_text(asked.max_bound), "use a number above 0, such as 1");
  if (asked.network) {
    asked.network->check();
    check_workers(asked.network->workers());
    for (model::link const& l : asked.network->links)
      if (!(l.up >= 1 && l.down >= 1))
        refuse("the bandwidth is " + short_text(std::min(l.up, l.down)) + " bytes per second",
               "use at least 1; 1 Gbit/s is 1.25e8");
  }
}

gq::model::network network_of(int workers, double latency, double bandwidth) {
  check_workers(workers);
  return model::network::uniform(workers, latency, bandwidth);
}

advice decide(request const& asked, costs const& found, error_of const& error) {
  check(asked);
  if (found.operators.empty() || found.operators.front().facts.rounds())
    throw gq::configuration_error("globalq: advise: the first operator is not float32; pass its costs first");
  advice a;
  a.asked = asked;
  a.net = found.net;
  a.measured = found.measured;
  double const any = std::numeric_limits<double>::infinity();
  a.rows.push_back(row_of(asked, found, 0, error, any));
  a.float32_seconds = a.rows[0].seconds;
  for (std::size_t k = 1; k < found.operators.size(); ++k)
    a.rows.push_back(row_of(asked, found, k, error, 2 * a.float32_seconds));
  for (row& r : a.rows) r.speed_up = r.schedule.empty() ? 0 : a.float32_seconds / r.seconds;

  auto const usable = [](row const& r) { return r.what == row::verdict::slower && r.name != "float32"; };
  double fastest = any;
  for (row const& r : a.rows)
    if (usable(r)) fastest = std::min(fastest, r.seconds);
  row const* chosen = &a.rows[0];
  if (fastest * least_gain <= a.float32_seconds)  // the most accurate of those that are as fast
    for (row const& r : a.rows)
      if (usable(r) && r.seconds <= fastest * least_gain && r.seconds * least_gain <= a.float32_seconds &&
          (chosen->name == "float32" || r.error < chosen->error))
        chosen = &r;
  row const use = *chosen;
  for (row& r : a.rows) {
    if (r.name == use.name) {
      r.what = row::verdict::chosen;
      if (r.name == "float32") r.why += "; no operator that is accurate enough is predicted to be 5 % faster";
    } else if (r.what == row::verdict::slower) {
      r.why = why_not(r, use);
    }
  }
  std::stable_sort(a.rows.begin(), a.rows.end(), [](row const& x, row const& y) {
    return x.what != y.what ? x.what < y.what : x.seconds < y.seconds;
  });
  return a;
}

}  // namespace globalq_advisor
