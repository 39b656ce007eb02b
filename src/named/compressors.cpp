// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief named: the registry of named compressors.

#include <globalq/named/compressors.hpp>

#include <globalq/named/text.hpp>

#include <algorithm>
#include <iterator>

namespace GLOBALQ_ABI::named {

namespace {

constexpr parameter top_k_parameters[] = {
    {"density", "0.01", "a number above 0 and at most 1", "fraction of the values of a layer that is sent"},
    {"bits", "32", "2 to 8, or 32",
     "bits of a value; 2 to 8: its sign and one of some magnitudes, beside a short place"}};
constexpr parameter power_sgd_parameters[] = {
    {"rank", "4", "1 to 256", "number of columns of each of the two matrices that represent a layer"}};

constexpr compressor_entry compressor_registry[] = {
    {"top-k", "Sends the values of largest magnitude of each layer with their positions; uses error feedback",
     "Aji and Heafield 2017; Stich et al. 2018",
     "biased; the squared error is at most (1 - density) times the squared length, with few bits at most the "
     "squared length",
     top_k_parameters},
    {"power-sgd",
     "Sends each matrix as the product of two thin matrices, and vectors as float32; uses error feedback",
     "Vogels et al. 2019 (PowerSGD)",
     "biased; the squared error is at most the squared length, and 0 for matrices of at most this rank",
     power_sgd_parameters},
};

}  // namespace

std::span<compressor_entry const> compressors() { return compressor_registry; }

std::optional<named_compressor> read_compressor(std::string_view text) {
  auto const found = std::find_if(std::begin(compressor_registry), std::end(compressor_registry),
                                  [&](compressor_entry const& e) { return e.name == name_in(text); });
  if (found == std::end(compressor_registry)) return {};
  arguments const with = arguments::read(text, found->parameters, text);
  named_compressor chosen;
  auto const named = [&](std::size_t k, std::string const& value) {
    chosen.name += (k == 0 ? ":" : ",") + std::string{found->parameters[k].name} + "=" + value;
  };
  chosen.name = found->name;  // equal numbers have equal names, however they were written
  if (found->name == "top-k") {
    chosen.density = with.real("density", 0);
    if (chosen.density > 1) with.refuse_value("density");
    chosen.bits = static_cast<int>(with.number("bits", 2, 32));
    if (chosen.bits > 8 && chosen.bits != 32) with.refuse_value("bits");
    named(0, shortest(chosen.density));
    if (chosen.bits != 32) named(1, shortest(chosen.bits));
  } else {
    chosen.how = named_compressor::method::power_sgd;
    chosen.rank = static_cast<int>(with.number("rank", 1, 256));
    named(0, shortest(chosen.rank));
  }
  return chosen;
}

}  // namespace GLOBALQ_ABI::named
