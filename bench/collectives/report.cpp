// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief collectives: tables in Markdown, numbers in JSON.

#include "report.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace globalq::bench {
namespace {

template <class... Args>
std::string format(char const* pattern, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

/// 1048576 as 1 Mi.
std::string size_text(std::uint64_t values) {
  if (values != 0 && values % (1U << 20) == 0) return std::to_string(values >> 20) + " Mi";
  if (values != 0 && values % (1U << 10) == 0) return std::to_string(values >> 10) + " Ki";
  return std::to_string(values);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return format("%.3g us", 1e6 * seconds);
  if (seconds < 1) return format("%.3g ms", 1e3 * seconds);
  return format("%.3g s", seconds);
}

/// 1234567 as 1,234,567.
std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

/// Figures of a row, compared with its baseline; 0: not available.
struct figures {
  double speed_up = 0, bytes_ratio = 0, efficiency = 0, algbw = 0, busbw = 0;
};

/// @param base  the row of the baseline, or nullptr
figures figures_of(row const& r, row const* base, int workers) {
  figures f;
  if (r.seconds <= 0) return f;
  f.algbw = 4.0 * static_cast<double>(r.values) / r.seconds;
  f.busbw = f.algbw * 2 * (workers - 1) / workers;
  if (base == nullptr || base->seconds <= 0) return f;
  f.speed_up = base->seconds / r.seconds;
  if (r.bytes == 0 || base->bytes == 0) return f;
  f.bytes_ratio = static_cast<double>(base->bytes) / static_cast<double>(r.bytes);
  f.efficiency = f.speed_up / f.bytes_ratio;
  return f;
}

row const* base_of(report const& run, std::uint64_t values) {
  for (row const& r : run.rows)
    if (r.values == values && r.name == run.baseline && r.refusal.empty()) return &r;
  return nullptr;
}

std::string verdict(row const& r) {
  std::string const error = format("nmse %.2g", r.nmse);
  if (r.right()) return r.identical ? "identical, " + error : error;
  if (r.nmse <= r.bound) return "WORKERS DIFFER";
  return "WRONG: " + error + format(" above %.2g", r.bound);
}

constexpr std::size_t columns = 9;
using line = std::array<std::string, columns>;

std::string table(std::vector<line> const& lines) {
  std::array<std::size_t, columns> widths{};
  for (line const& l : lines)
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], l[c].size());
  auto const is_number = [](std::size_t c) { return c != 0 && c + 1 != columns; };
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::string const gap(widths[c] - lines[i][c].size(), ' ');
      text.append("| ").append(is_number(c) ? gap + lines[i][c] : lines[i][c] + gap).append(" ");
    }
    text += "|\n";
    if (i != 0) continue;
    for (std::size_t c = 0; c < columns; ++c)
      text.append("| ").append(widths[c] - 1, '-').append(is_number(c) ? ": " : "- ");
    text += "|\n";
  }
  return text;
}

std::string rate_text(double bits_a_second) { return format("%.3g Gbit/s", 1e-9 * bits_a_second); }

/// The share of the links' rate that float32 reached. Short vectors are left out: they fit into a switch's burst.
std::string reached(report const& run, std::uint64_t values) {
  constexpr std::uint64_t shortest = 1U << 20;
  std::string text;
  for (row const& r : run.rows) {
    if (r.values != values || !r.sends_float32 || r.seconds <= 0 || r.bytes < shortest) continue;
    double const bits_a_second = 8 * figures_of(r, nullptr, run.workers).busbw;
    text += text.empty() ? "\n`" : ", `";
    text += r.name + "` reached " + rate_text(bits_a_second) +
            format(" a link (%.0f %%)", 100 * bits_a_second / run.rate);
  }
  return text.empty() ? text : text + ".\n";
}

std::vector<std::uint64_t> sizes_of(report const& run) {
  std::vector<std::uint64_t> sizes;
  for (row const& r : run.rows)
    if (std::find(sizes.begin(), sizes.end(), r.values) == sizes.end()) sizes.push_back(r.values);
  return sizes;
}

void write(std::string const& path, std::string const& text) {
  std::ofstream file{path};
  file << text;
  file.close();
  if (!file) throw std::runtime_error{"cannot write " + path + "; name another file"};
}

std::string as_json(report const& run) {
  nlohmann::ordered_json object;
  object["benchmark"] = "collectives";
  object["transport"] = run.transport;
  object["workers"] = run.workers;
  object["threads"] = run.threads;
  object["rate_bits_per_second"] = run.rate > 0 ? nlohmann::ordered_json(run.rate) : nullptr;
  object["baseline"] = run.baseline;
  auto& rows = object["rows"] = nlohmann::ordered_json::array();
  for (row const& r : run.rows) {
    nlohmann::ordered_json each;
    each["operator"] = r.name;
    each["values"] = r.values;
    if (!r.refusal.empty()) {
      each["refusal"] = r.refusal;
      rows.push_back(std::move(each));
      continue;
    }
    auto const or_null = [](double number) { return number > 0 ? nlohmann::ordered_json(number) : nullptr; };
    figures const f = figures_of(r, base_of(run, r.values), run.workers);
    each["bytes_sent"] = r.bytes;
    each["bytes_modeled"] = r.bytes_modeled;
    each["seconds"] = r.seconds;
    each["calls"] = r.calls;
    each["speed_up"] = or_null(f.speed_up);
    each["bytes_ratio"] = or_null(f.bytes_ratio);
    each["speed_up_per_bytes_ratio"] = or_null(f.efficiency);
    each["algbw_bytes_per_second"] = f.algbw;
    each["busbw_bytes_per_second"] = f.busbw;
    each["identical"] = r.identical;
    each["nmse"] = r.nmse;
    each["nmse_bound"] = r.bound;
    each["right"] = r.right();
    rows.push_back(std::move(each));
  }
  return object.dump(2) + "\n";
}

}  // namespace

bool report::right() const {
  return std::all_of(rows.begin(), rows.end(), [](row const& r) { return !r.refusal.empty() || r.right(); });
}

std::string as_markdown(report const& run) {
  std::string text = "### ";
  text += std::to_string(run.workers) + " workers over " + run.transport;
  if (run.rate > 0) text.append(" at ").append(rate_text(run.rate));
  text += "\n\n";
  text += std::to_string(run.threads) + (run.threads == 1 ? " thread" : " threads") +
          " a worker. Compared with `" + run.baseline + "` of float32 in the same run.\n";
  bool modeled = false;
  for (std::uint64_t const values : sizes_of(run)) {
    row const* const base = base_of(run, values);
    std::vector<line> lines{{size_text(values) + " values", "bytes sent", "time", "speed-up",
                             "ratio of bytes", "speed-up / ratio", "algbw GB/s", "busbw GB/s", "result"}};
    std::string refusals;
    for (row const& r : run.rows) {
      if (r.values != values) continue;
      if (!r.refusal.empty()) {
        refusals += "\n`" + r.name + "` was not run: " + r.refusal + "\n";
        continue;
      }
      auto const or_none = [](char const* pattern, double number) {
        return number > 0 ? format(pattern, number) : std::string{"-"};
      };
      figures const f = figures_of(r, base, run.workers);
      modeled = modeled || r.bytes_modeled;
      lines.push_back({r.name, grouped(r.bytes) + (r.bytes_modeled ? "*" : ""), time_text(r.seconds),
                       or_none("%.2f", f.speed_up), or_none("%.2f", f.bytes_ratio),
                       or_none("%.2f", f.efficiency), or_none("%.3g", 1e-9 * f.algbw),
                       or_none("%.3g", 1e-9 * f.busbw), verdict(r)});
    }
    text.append("\n").append(table(lines)).append(refusals);
    if (run.rate > 0) text += reached(run, values);
  }
  if (modeled) text += "\n\\* assumed: 2 S (n-1)/n, because the MPI library does not report it.\n";
  return text;
}

exit_code publish(report const& run, settings const& chosen) {
  std::string const text = as_markdown(run);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  if (!chosen.markdown.empty()) write(chosen.markdown, text);
  if (!chosen.json.empty()) write(chosen.json, as_json(run));
  for (row const& r : run.rows)
    if (r.refusal.empty() && !r.right())
      std::fprintf(stderr, "globalq_collectives: %s with %llu values: %s\n", r.name.c_str(),
                   static_cast<unsigned long long>(r.values), verdict(r).c_str());
  return run.right() ? done : wrong;
}

}  // namespace globalq::bench
