// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// Report: the results of the runs, as a table, a CSV file and a gnuplot script.

#include "train.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace digits {

namespace detail {

/// snprintf into a string, for numbers with a width and a precision.
template <class... Args>
std::string format(char const* pattern, Args... args) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, pattern, args...)), '\0');
  std::snprintf(text.data(), text.size() + 1, pattern, args...);
  return text;
}

/// 1234567 as 1,234,567.
inline std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

/// Padded with spaces to a width, on the right (text) or on the left (numbers).
inline std::string pad(std::string const& text, std::size_t width, bool is_number) {
  std::string const gap(width > text.size() ? width - text.size() : 0, ' ');
  return is_number ? gap + text : text + gap;
}

inline std::ofstream open(std::string const& path) {
  std::ofstream file{path};
  if (!file)
    throw std::runtime_error{"digits: cannot write " + path + "; choose another folder with --output"};
  return file;
}

}  // namespace detail

/// @brief The table, one line per operator, with ratios to the first run.
inline std::string table(std::vector<result> const& runs) {
  using detail::format;
  constexpr std::size_t columns = 9;
  std::vector<std::array<std::string, columns>> lines{
      {"operator", "schedule", "bits", "sent a step", "against", "communication", "test", "final", ""},
      {"", "", "a value", "(bytes)", "float32", "(ms a step)", "accuracy", "loss", "replicas"}};
  for (result const& run : runs) {
    lines.push_back({run.name, run.schedule, format("%.2f", run.bits_per_value),
                     detail::grouped(run.bytes_a_step),
                     run.bytes_a_step == 0 ? "-"
                                           : format("%.1fx", static_cast<double>(runs.front().bytes_a_step) /
                                                                 static_cast<double>(run.bytes_a_step)),
                     format("%.1f", 1e3 * run.communication_seconds), format("%.1f %%", 100.0 * run.accuracy),
                     format("%.4f", run.final_loss), run.identical ? "identical" : "DIFFER"});
  }

  std::array<std::size_t, columns> widths{};
  for (auto const& line : lines)
    for (std::size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], line[c].size());

  std::string text;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    std::string row;
    for (std::size_t c = 0; c < columns; ++c)
      row += (c == 0 ? "" : "  ") + detail::pad(lines[l][c], widths[c], c >= 2 && c + 1 < columns);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
    if (l == 1) {
      std::size_t rule = 2 * (columns - 1);
      for (std::size_t width : widths) rule += width;
      text += std::string(rule, '-') + "\n";
    }
  }
  return text;
}

/// @brief A line for each run with learned levels: the steps at which they changed, and the final levels.
inline std::string learned(std::vector<result> const& runs) {
  std::string text;
  for (result const& run : runs) {
    if (run.learned_at.empty()) continue;
    text += run.name + ": levels learned at step";
    for (std::uint64_t const step : run.learned_at) text += " " + std::to_string(step);
    text += "; now";
    for (double const level : run.levels) text += detail::format(" %.4g", level);
    text += "\n";
  }
  return text;
}

/// @brief Every step of every run; accuracy is empty where it was not evaluated.
/// @throws std::runtime_error  when the file cannot be written
inline void write_csv(std::string const& path, std::vector<result> const& runs) {
  std::ofstream file = detail::open(path);
  file << "operator,step,bytes_so_far,loss,accuracy\n";
  for (result const& run : runs) {
    for (step_record const& at : run.curve) {
      file << '"' << run.name << "\"," << at.step << ',' << at.bytes_so_far << ','
           << detail::format("%.6g", at.loss) << ','
           << (at.accuracy ? detail::format("%.4f", *at.accuracy) : std::string{}) << '\n';
    }
  }
}

/// @brief A gnuplot script that contains its data and writes `image` to its own folder: loss over bytes, accuracy over
/// steps.
/// @param path   where to write the script
/// @param image  the file that the script draws, a PNG
/// @throws std::runtime_error  when the file cannot be written
inline void write_chart(std::string const& path, std::string const& image, std::vector<result> const& runs,
                        int num_workers) {
  // the palette of Okabe and Ito, which color-blind readers can distinguish; black is the baseline
  constexpr std::array colors{"#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"};
  constexpr std::array markers{7, 5, 9, 11, 13, 4, 6};  // gnuplot's numbers: filled ones first
  constexpr std::size_t smoothed_steps = 8;

  bool const any_sent = runs.front().bytes_a_step > 0;  // a single worker sends nothing: its steps stand in

  std::ofstream file = detail::open(path);
  file << "# Draw with: gnuplot " << path << "\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    auto const& curve = runs[r].curve;
    file << "$loss" << r << " << end\n";
    double sum = 0.0;
    for (std::size_t i = 0; i < curve.size(); ++i) {
      sum += curve[i].loss - (i >= smoothed_steps ? curve[i - smoothed_steps].loss : 0.0);
      file << detail::format(
          "%.6g %.6g\n",
          any_sent ? 1e-6 * static_cast<double>(curve[i].bytes_so_far) : static_cast<double>(curve[i].step),
          sum / static_cast<double>(std::min(i + 1, smoothed_steps)));
    }
    file << "end\n$accuracy" << r << " << end\n";
    for (step_record const& at : curve)
      if (at.accuracy) file << at.step << ' ' << detail::format("%.3f", 100.0 * *at.accuracy) << '\n';
    file << "end\n";
  }

  auto const style = [&](std::size_t r) {
    return detail::format(" linewidth %d pointtype %d pointsize 0.9 linecolor '%s'", r == 0 ? 3 : 2,
                          markers[r % markers.size()], colors[r % colors.size()]);
  };
  std::uint64_t const steps = runs.front().curve.size();
  file << "set terminal pngcairo size 1400,600 enhanced font 'DejaVu Sans,12' background '#ffffff'\n"
          "set output '"
       << image
       << "'\n"
          "set multiplot title 'Handwritten digits: "
       << num_workers << " data-parallel worker" << (num_workers == 1 ? "" : "s")
       << ", the same batches for every operator' font ',15' offset 0,-0.3\n"
          "set border 3 linewidth 1.2 linecolor '#444444'\n"
          "set tics nomirror textcolor '#222222'\n"
          "set grid xtics ytics linecolor '#d0d0d0' linewidth 1 dashtype 1\n"
          "set tmargin at screen 0.86\nset bmargin at screen 0.135\n\n"
          "set lmargin at screen 0.070\nset rmargin at screen 0.405\n"
          "unset key\nset title 'Loss against "
       << (any_sent ? "bytes" : "step")
       << "' font ',13'\n"
          "set logscale xy\nset xrange [*:*] noextend\n"
          "set xlabel '"
       << (any_sent ? "sent so far by the busiest worker (MB)" : "step")
       << "'\n"
          "set ylabel 'training loss (nats, mean of "
       << smoothed_steps
       << " steps)' offset 0.5\n"
          "set format x '%g'\nset format y '%g'\n"
          "plot ";
  for (std::size_t r = 0; r < runs.size(); ++r)
    file << (r ? ", \\\n     " : "") << "$loss" << r << " using 1:2 with linespoints pointinterval "
         << std::max<std::size_t>(1, runs[r].curve.size() / 10) << style(r) << " title ''";
  file
      << "\n\nset lmargin at screen 0.460\nset rmargin at screen 0.780\n"
         "unset logscale\nset format\n"
         "set title 'Test accuracy against step' font ',13'\n"
         "set xlabel 'step'\nset xrange [0:"
      << steps
      << "]\n"
         "set ylabel 'test pictures classified correctly (%)' offset 0.5\n"
         "set yrange [*<90:100]\n"
         "set key at screen 0.795,0.86 left top Left reverse samplen 2.2 spacing 1.5 font ',11' noautotitle\n"
         "plot ";
  for (std::size_t r = 0; r < runs.size(); ++r)
    file << (r ? ", \\\n     " : "") << "$accuracy" << r << " using 1:2 with linespoints" << style(r)
         << " title '" << runs[r].name << "'";
  file << "\n\nunset multiplot\n";
}

}  // namespace digits
