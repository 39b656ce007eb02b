// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: a model that many workers train, of any library; constructed by name.
///
/// To add a model, derive a class from model in a new source, and add a line to the table of model.cpp.

#include <globalq/train/adapt/model_layout.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evidence {

namespace gq = globalq;

/// @brief One worker's part of an evaluation: a sum and a weight. The result is the sum over workers divided by the sum
/// of weights.
struct judgment {
  double sum = 0, weight = 0;
};

/// @brief One worker's replica, with its part of the data and its optimizer. Not thread-safe.
class model {
 public:
  model() = default;
  model(model const&) = delete;
  model& operator=(model const&) = delete;
  virtual ~model() = default;

  /// Named layers of the gradient.
  virtual gq::adapt::model_layout const& layers() const = 0;
  /// @brief Computes the gradient of this worker's batch of a step; the caller may write to it.
  /// @returns layers().length() values, the same memory at every call
  virtual std::span<float> differentiate(std::uint64_t step) = 0;
  /// @brief Takes a step of the optimizer with the current content of the gradient, the mean over the workers.
  virtual void update(std::uint64_t step) = 0;
  /// The learning rate of a step.
  virtual double rate(std::uint64_t step) const = 0;
  /// Whether steps are sums of gradients times rates, as in SGD with or without momentum; IntSGD's scale assumes this.
  virtual bool steps_along_gradients() const { return true; }
  /// All parameters, in the order of the gradient; the same memory always.
  virtual std::span<float const> parameters() = 0;
  /// Evaluates the model (see model_kind) on this worker's share of the data that no worker trains on.
  virtual judgment evaluate() = 0;
  /// The best possible evaluation, on rank 0; 0 if nobody knows it.
  virtual double best() const { return 0; }
};

/// @brief Arguments to construct a replica. The seed, equal on all workers, determines initial parameters and data.
struct replica_setting {
  int rank = 0, workers = 1;
  std::uint64_t seed = 1;
  std::uint64_t steps = 0;        ///< of the whole training
  std::uint64_t values = 0;       ///< length of vector_kind() and drawn_kinds(); models ignore it
  std::vector<std::string> text;  ///< files for language models; empty: the documentation of this project
  std::string pictures;           ///< file for glyphs, which glyph_pictures.py writes
  bool small = false;             ///< use a tiny model, for tests
};

/// @brief A kind of model, for the list of models.
struct model_kind {
  std::string_view name;
  std::string_view title;
  std::string_view
      measure;  ///< "accuracy": a fraction, higher is better, as is "auc"; "loss": in nats, lower is better
  std::uint64_t usual_steps, quick_steps;
  std::unique_ptr<model> (*make)(replica_setting const&);  ///< nullptr: a required library was not found
  std::string_view needs;                                  ///< that library
  std::string_view file = {};                              ///< a file that it needs, and what writes it
};

std::span<model_kind const> models();

/// @throws globalq::configuration_error for an unknown name, or a model that was not built, with what it needs
model_kind const& find_model(std::string_view name);

/// @brief Not in models(): replica_setting::values random values, which cannot train. It times exchanges alone.
model_kind const& vector_kind();

/// @brief Not in models(): replica_setting::values values that are drawn anew for every step from known distributions,
/// to measure errors of means.
std::span<model_kind const> drawn_kinds();

// Each is defined in its own source.
std::unique_ptr<model> make_click(replica_setting const&);
std::unique_ptr<model> make_digits(replica_setting const&);
std::unique_ptr<model> make_glyphs(replica_setting const&);
std::unique_ptr<model> make_language(replica_setting const&);
std::unique_ptr<model> make_words(replica_setting const&);
std::unique_ptr<model> make_residual(replica_setting const&);

/// @brief The learning rate of a step, relative to the highest: ten steps of linear warm-up, then half a cosine down to
/// 0 (Loshchilov and Hutter 2017).
double share_of_rate(std::uint64_t step, std::uint64_t steps);

/// A hash of the bits of all values.
std::uint64_t digest_of(std::span<float const> values);

}  // namespace evidence
