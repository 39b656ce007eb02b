// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: a model that is trained by many workers, whatever it is made with; made by name.
///
/// To add one: a source with a class derived from model, and a line in the table of model.cpp.

#include <globalq/train/adapt/model_layout.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evidence {

namespace gq = globalq;

/// @brief A part of what a model is judged by: a sum, and what it is to be divided by when those of all workers are added.
struct judgment {
  double sum = 0, weight = 0;
};

/// @brief One worker's replica, with its part of the data and its optimizer. Used by one thread at a time.
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
  /// @brief Takes a step of the optimizer along what is in the gradient now: the mean over the workers.
  virtual void update(std::uint64_t step) = 0;
  /// The learning rate of a step.
  virtual double rate(std::uint64_t step) const = 0;
  /// Whether steps are sums of gradients times rates, as those of SGD with or without momentum: what IntSGD's scale supposes.
  virtual bool steps_along_gradients() const { return true; }
  /// All parameters, in the order of the gradient; the same memory always.
  virtual std::span<float const> parameters() = 0;
  /// What the model is judged by (see model_kind), on this worker's share of the data that nobody trains on.
  virtual judgment evaluate() = 0;
};

/// @brief What a replica is made for. Initial parameters and data follow from the seed, the same on every worker.
struct replica_setting {
  int rank = 0, workers = 1;
  std::uint64_t seed = 1;
  std::uint64_t steps = 0;        ///< of the whole training
  std::vector<std::string> text;  ///< files for models of language; empty: this project's own documentation
  bool small = false;             ///< a tiny one, for tests
};

/// @brief A model as it is listed.
struct model_kind {
  std::string_view name;
  std::string_view title;
  std::string_view
      measure;  ///< "accuracy": a share, the more the better; "loss": in nats, the less the better
  std::uint64_t usual_steps, quick_steps;
  std::unique_ptr<model> (*make)(replica_setting const&);  ///< none: what it needs was not found
  std::string_view needs;                                  ///< what that is
};

std::span<model_kind const> models();

/// @throws globalq::configuration_error for an unknown name, or a model that was not built, with what it needs
model_kind const& find_model(std::string_view name);

// Each in a source of its own.
std::unique_ptr<model> make_digits(replica_setting const&);
std::unique_ptr<model> make_language(replica_setting const&);
std::unique_ptr<model> make_residual(replica_setting const&);

/// @brief The learning rate of a step as a share of the highest: ten steps of linear warm-up, then half a cosine down to 0
/// (Loshchilov and Hutter 2017).
double share_of_rate(std::uint64_t step, std::uint64_t steps);

/// The same for the same bits of all values.
std::uint64_t digest_of(std::span<float const> values);

}  // namespace evidence
