// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief evidence: the table of models.

#include "model.hpp"

#include <globalq/core/arithmetic.hpp>
#include <globalq/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace evidence {
namespace {

using maker = decltype(&make_digits);

#ifdef GLOBALQ_EVIDENCE_DIGITS
constexpr maker digits = make_digits;
#else
constexpr maker digits = nullptr;
#endif
#ifdef GLOBALQ_EVIDENCE_GLYPHS
constexpr maker glyphs = make_glyphs;
#else
constexpr maker glyphs = nullptr;
#endif
#ifdef GLOBALQ_EVIDENCE_LANGUAGE
constexpr maker language = make_language, words = make_words;
#else
constexpr maker language = nullptr, words = nullptr;
#endif
#ifdef GLOBALQ_EVIDENCE_TORCH
constexpr maker click = make_click;
#else
constexpr maker click = nullptr;
#endif
#ifdef GLOBALQ_EVIDENCE_RESIDUAL
constexpr maker residual = make_residual;
#else
constexpr maker residual = nullptr;
#endif

constexpr model_kind table[] = {
    {"digits", "perceptron 64-960-960-10 on handwritten digits, SGD with momentum, 32 pictures a worker",
     "accuracy", 150, 60, digits, "Eigen 3.4"},
    {"residual",
     "residual network of six convolutions in three stages on handwritten digits, SGD with momentum, 16 "
     "pictures a worker, LibTorch",
     "accuracy", 100, 40, residual, "LibTorch and Eigen 3.4"},
    {"language",
     "transformer of two blocks that predicts the next byte, Adam, 8 x 64 bytes a worker, LibTorch", "loss",
     300, 60, language, "LibTorch"},
    {"words",
     "the same transformer with a vocabulary of 8,192 words: its embedding and its head hold nine tenths of "
     "the values",
     "loss", 600, 60, words, "LibTorch"},
    {"glyphs",
     "network of two convolutions and two dense layers on noisy letters, SGD with momentum, 128 pictures a "
     "step over all workers, LibTorch",
     "accuracy", 600, 60, glyphs, "LibTorch",
     "--pictures FILE, which bench/evidence/glyph_pictures.py writes"},
    {"click",
     "embeddings of 26 fields, their products and a perceptron, on drawn clicks, Adam, 1,024 examples a "
     "worker, LibTorch",
     "auc", 500, 40, click, "LibTorch"},
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

double share_of_rate(std::uint64_t step, std::uint64_t steps) {
  std::uint64_t const warm_up = std::min<std::uint64_t>(10, steps / 2);
  if (step < warm_up) return static_cast<double>(step + 1) / static_cast<double>(warm_up);
  double const done =
      static_cast<double>(step - warm_up) / static_cast<double>(std::max<std::uint64_t>(steps - warm_up, 1));
  return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

std::uint64_t digest_of(std::span<float const> values) {
  std::uint64_t h = 0xcbf29ce484222325U;  // FNV-1a over 64 bits (Fowler, Noll and Vo), by words of 32 bits
  for (float const v : values) h = (h ^ gq::bits_of(v)) * 0x100000001b3U;
  return h;
}

}  // namespace evidence
