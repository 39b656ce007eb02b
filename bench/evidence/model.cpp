// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: the table of models.

#include "model.hpp"

#include <globalq/core/arithmetic.hpp>
#include <globalq/core/error.hpp>

#include <algorithm>

namespace evidence {
namespace {

using maker = decltype(&make_digits);

#ifdef GLOBALQ_EVIDENCE_DIGITS
constexpr maker digits = make_digits;
#else
constexpr maker digits = nullptr;
#endif
#ifdef GLOBALQ_EVIDENCE_LANGUAGE
constexpr maker language = make_language;
#else
constexpr maker language = nullptr;
#endif
#ifdef GLOBALQ_EVIDENCE_RESIDUAL
constexpr maker residual = make_residual;
#else
constexpr maker residual = nullptr;
#endif

constexpr model_kind table[] = {
    {"digits", "perceptron 64-960-960-10 on handwritten digits, SGD with momentum, 32 pictures a worker",
     "accuracy", 150, 60, digits, "Eigen 3.4"},
    {"residual", "residual network on pictures, LibTorch", "accuracy", 200, 40, residual, "LibTorch"},
    {"language",
     "transformer of two blocks that predicts the next byte, Adam, 8 x 64 bytes a worker, LibTorch", "loss",
     300, 60, language, "LibTorch"},
};

}  // namespace

std::span<model_kind const> models() { return table; }

model_kind const& find_model(std::string_view name) {
  auto const found =
      std::find_if(std::begin(table), std::end(table), [&](model_kind const& m) { return m.name == name; });
  std::string have;
  for (model_kind const& m : table)
    if (m.make != nullptr) have.append(have.empty() ? "" : ", ").append(m.name);
  if (found == std::end(table))
    throw gq::configuration_error("globalq: evidence: there is no model \"" + std::string(name) +
                                  "\"; there are " + have);
  if (found->make == nullptr)
    throw gq::configuration_error("globalq: evidence: the model " + std::string(name) + " needs " +
                                  std::string(found->needs) +
                                  ", which was not found when this was built; there are " + have);
  return *found;
}

std::uint64_t digest_of(std::uint64_t h, std::span<float const> values) {
  h += 0xcbf29ce484222325U;  // FNV-1a over 64 bits (Fowler, Noll and Vo), by words of 32 bits
  for (float const v : values) h = (h ^ gq::bits_of(v)) * 0x100000001b3U;
  return h;
}

}  // namespace evidence
