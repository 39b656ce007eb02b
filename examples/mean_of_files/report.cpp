// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief mean_of_files: the report of rank 0.

#include "report.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>

namespace mean_of_files {

std::string as_json(report const& numbers) {
  auto const or_null = [](std::optional<double> const& number) {
    return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json object;
  object["workers"] = numbers.workers;
  object["length"] = numbers.length;
  object["bytes_sent"] = numbers.bytes_sent;
  if (numbers.bytes_modeled) object["bytes_modeled"] = true;
  object["bits_per_value"] = numbers.bits_per_value;
  object["seconds"] = numbers.seconds;
  object["identical"] = numbers.identical;
  object["non_finite"] = numbers.non_finite;
  if (numbers.non_finite_rank) object["non_finite_rank"] = *numbers.non_finite_rank;
  object["nmse"] = or_null(numbers.nmse);
  object["theta_bound"] = or_null(numbers.theta_bound);
  if (!numbers.levels.empty()) object["levels"] = numbers.levels;
  return object.dump() + "\n";
}

std::string as_text(report const& numbers) {
  auto const line = [](char const* name, std::string const& value) {
    std::string text{name};
    text.resize(18, ' ');
    return text + value + "\n";
  };
  auto const real = [](double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", number);
    return std::string{text};
  };
  auto const or_none = [&](std::optional<double> const& number) { return number ? real(*number) : "none"; };
  std::string levels;
  for (double const each : numbers.levels) levels += (levels.empty() ? "" : " ") + real(each);
  return line("workers", std::to_string(numbers.workers)) + line("length", std::to_string(numbers.length)) +
         line("bytes sent",
              std::to_string(numbers.bytes_sent) + (numbers.bytes_modeled ? " (modeled)" : "")) +
         line("bits a value", real(numbers.bits_per_value)) + line("seconds", real(numbers.seconds)) +
         line("identical", numbers.identical ? "yes" : "NO") +
         (numbers.non_finite ? line("non-finite", "YES: every value is NaN") : "") +
         line("nmse", or_none(numbers.nmse)) + line("bound on nmse", or_none(numbers.theta_bound)) +
         (levels.empty() ? "" : line("learned levels", levels));
}

std::string warning(report const& numbers) {
  if (!numbers.identical) return "warning: the results of the workers differ";
  if (!numbers.non_finite) return "";
  return "warning: every value of the mean is NaN: " +
         (numbers.non_finite_rank ? "rank " + std::to_string(*numbers.non_finite_rank) + " of " +
                                        std::to_string(numbers.workers) + " has NaN or infinity in its input"
                                  : std::string("it exceeds the range of its type")) +
         "; --non-finite error makes that exit code 3";
}

}  // namespace mean_of_files
