// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief advise: the report as text and as JSON, and the lines of code.

#include "advise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace globalq_advisor {
namespace {

using gq::model::detail::short_text;
using gq::model::detail::time_text;

std::uint64_t values_of(advice const& a) {
  std::uint64_t all = 0;
  for (layer const& l : a.asked.layers) all += l.length;
  return all;
}

std::string count_text(double count, char const* unit) {
  constexpr char const* prefixes[] = {"", "k", "M", "G", "T"};
  std::size_t at = 0;
  for (; count >= 999.5 && at < 4; ++at) count /= 1000;
  return short_text(count) + " " + prefixes[at] + unit;
}

std::string rate_text(double bytes_per_second) {
  return std::isinf(bytes_per_second) ? "infinite bandwidth" : count_text(8 * bytes_per_second, "bit/s");
}

std::string number_text(double x) { return std::isfinite(x) ? short_text(x) : "none"; }

std::string chunk_text(row const& r) {
  return r.schedule.empty() ? "" : r.chunk_values == 0 ? "default" : std::to_string(r.chunk_values);
}

/// A JSON string.
std::string quoted(std::string_view text) {
  std::string all = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\') all += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      all += c;
    } else {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      all += code;
    }
  }
  return all + '"';
}
/// A JSON number; null for one that is not finite.
std::string number(double x) {
  if (!std::isfinite(x)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}
std::string list(std::vector<std::string> const& lines) {
  std::string all;
  for (std::string const& line : lines) all.append(all.empty() ? "" : ", ").append(quoted(line));
  return "[" + all + "]";
}

char const* word(row::verdict what) {
  constexpr char const* words[] = {"chosen", "slower", "inaccurate", "unfit"};
  return words[static_cast<std::size_t>(what)];
}

}  // namespace

std::vector<std::string> cpp_lines(row const& use, bool layers) {
  std::string const chunks =
      use.chunk_values == 0 ? "" : ", .chunk_values = " + std::to_string(use.chunk_values);
  return {
      use.name == "float32" ? "globalq::uncompressed const op;"
                            : "auto const op = globalq::named::operator_of(globalq::named::read_operator(\"" +
                                  use.name + "\"));",
      "globalq::allreduce_mean mean{workers, op, globalq::schedule::" + use.schedule + "{}, {.seed = 42" +
          chunks + "}};",
      layers ? "mean(gradients, step);  // a globalq::vector_group of all layers" : "mean(gradient, step);"};
}

std::vector<std::string> python_lines(row const& use, bool layers) {
  std::string const chunks =
      use.chunk_values == 0 ? "" : ", chunk_values=" + std::to_string(use.chunk_values);
  return {"import globalq",
          "mean = globalq.Mean(workers, \"" + use.name + "\", schedule=\"" + use.schedule + "\", seed=42" +
              chunks + ")",
          layers ? "mean(gradients, step)  # a list with an array of each layer" : "mean(gradient, step)"};
}

std::string as_text(advice const& a) {
  gq::model::link const& link = a.net.links.front();
  row const& use = a.chosen();
  bool const layers = a.asked.layers.size() > 1;
  std::string text =
      std::to_string(a.net.workers()) + " workers, " + std::to_string(values_of(a)) + " values";
  if (layers) text += " in " + std::to_string(a.asked.layers.size()) + " layers, averaged in one call";
  text += "\nNetwork (" + std::string(a.measured ? "measured" : "given") + "): latency " +
          time_text(link.latency) + ", " + rate_text(link.up) +
          " per worker\nTimes of a step are predicted; errors are measured on " +
          (a.asked.gradient.empty() ? "synthetic gradients; yours may have larger errors.\n"
                                    : "the given gradient.\n");
  std::vector<std::array<std::string, 9>> table{
      {"", "operator", "schedule", "chunk", "sends", "time", "speed-up", "error", "bound"}};
  for (row const& r : a.rows) {
    if (r.schedule.empty()) continue;
    table.push_back({r.what == row::verdict::chosen ? "*" : "", r.name, r.schedule, chunk_text(r),
                     count_text(static_cast<double>(r.bytes_sent), "B"), time_text(r.seconds),
                     short_text(r.speed_up), number_text(r.error), number_text(r.bound)});
  }
  std::array<std::size_t, 9> widths{};
  for (auto const& line : table)
    for (std::size_t k = 0; k < line.size(); ++k) widths[k] = std::max(widths[k], line[k].size());
  text += '\n';
  for (auto const& line : table) {
    std::string out;
    for (std::size_t k = 0; k < line.size(); ++k) {
      std::string const pad(widths[k] - line[k].size(), ' ');
      out += (k == 0 ? "" : "  ") + (k < 3 ? line[k] + pad : pad + line[k]);
    }
    text += out + '\n';
  }
  text += (a.compresses() ? "\nUse " : "\nSend ") + use.name + " on schedule " + use.schedule;
  if (use.chunk_values != 0) text += " in chunks of " + std::to_string(use.chunk_values) + " values";
  text += ": " + time_text(use.seconds) + " a step, ";
  if (a.compresses())
    text += short_text(use.speed_up) + " times as fast as float32 (" + time_text(a.float32_seconds) + ").\n";
  else
    text += use.why + ".\n";
  if (!a.trials.empty()) text += "Measured with " + std::to_string(a.tried_values) + " values\n";
  for (trial const& t : a.trials)
    text += "  " + t.name + " on " + t.schedule +
            (t.chunk_values == 0 ? "" : " in chunks of " + std::to_string(t.chunk_values) + " values") +
            ": " + time_text(t.seconds) + "\n";
  text += "Why not\n";
  for (row const& r : a.rows)
    if (r.what != row::verdict::chosen) text += "  " + r.name + ": " + r.why + "\n";
  text += "\nC++ (#include <globalq/globalq.hpp> and <globalq/named/operators.hpp>; link globalq::named)\n";
  for (std::string const& line : cpp_lines(use, layers)) text += "  " + line + "\n";
  text += "\nPython\n";
  for (std::string const& line : python_lines(use, layers)) text += "  " + line + "\n";
  return text;
}

std::string as_json(advice const& a) {
  gq::model::link const& link = a.net.links.front();
  bool const layers = a.asked.layers.size() > 1;
  std::string rows;
  for (row const& r : a.rows) {
    bool const fits = !r.schedule.empty();
    rows += (rows.empty() ? "" : ", ") + ("{\"operator\": " + quoted(r.name)) + ", \"verdict\": \"" +
            word(r.what) + '"';
    if (fits)
      rows += ", \"schedule\": " + quoted(r.schedule) +
              ", \"chunk_values\": " + std::to_string(r.chunk_values) +
              ", \"bytes_sent\": " + std::to_string(r.bytes_sent) + ", \"seconds\": " + number(r.seconds) +
              ", \"speed_up\": " + number(r.speed_up) + ", \"error\": " + number(r.error) +
              ", \"bound\": " + number(r.bound);
    rows += ", \"why\": " + quoted(r.why) + "}";
  }
  std::string trials;
  for (trial const& t : a.trials)
    trials += (trials.empty() ? "" : ", ") + ("{\"operator\": " + quoted(t.name)) +
              ", \"schedule\": " + quoted(t.schedule) +
              ", \"chunk_values\": " + std::to_string(t.chunk_values) +
              ", \"values\": " + std::to_string(a.tried_values) + ", \"seconds\": " + number(t.seconds) + "}";
  return "{\"workers\": " + std::to_string(a.net.workers()) +
         ", \"values\": " + std::to_string(values_of(a)) +
         ", \"layers\": " + std::to_string(a.asked.layers.size()) +
         ", \"network\": {\"measured\": " + (a.measured ? "true" : "false") +
         ", \"latency\": " + number(link.latency) + ", \"bandwidth\": " + number(link.up) +
         "}, \"max_error\": " + number(a.asked.max_error) +
         ", \"compress\": " + (a.compresses() ? "true" : "false") + ", \"rows\": [" + rows +
         "], \"measured\": [" + trials + "], \"cpp\": " + list(cpp_lines(a.chosen(), layers)) +
         ", \"python\": " + list(python_lines(a.chosen(), layers)) + "}\n";
}

}  // namespace globalq_advisor
