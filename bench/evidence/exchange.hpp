// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: one method of averaging a gradient over the workers, of any paper; constructed by name.

#include "workers.hpp"

#include <globalq/train/adapt/model_layout.hpp>

#include <globalq/named/operators.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evidence {

/// @brief Averages gradients in place. All workers must call it together, with increasing steps.
class exchange {
 public:
  exchange() = default;
  exchange(exchange const&) = delete;
  exchange& operator=(exchange const&) = delete;
  virtual ~exchange() = default;

  virtual void operator()(std::span<float> gradient, std::uint64_t step) = 0;

  /// Whether observe() must be called after every step of the optimizer.
  virtual bool observes() const { return false; }
  /// @brief Receives a step of the optimizer, equal on all workers. Called only if observes().
  /// @param squared  ||x^k - x^(k-1)||^2 of all parameters x
  /// @param rate     the learning rate of the next step
  virtual void observe([[maybe_unused]] double squared, [[maybe_unused]] double rate) {}
};

/// @brief Averages a gradient layer by layer while a worker computes: globalq::adapt::overlapped_mean of any method.
class overlapped {
 public:
  overlapped() = default;
  overlapped(overlapped const&) = delete;
  overlapped& operator=(overlapped const&) = delete;
  virtual ~overlapped() = default;

  virtual void begin(std::uint64_t step) = 0;
  /// Averages a layer in place, until wait(layer) returns.
  virtual void ready(std::size_t layer, std::span<float> gradient) = 0;
  virtual void wait(std::size_t layer) = 0;
  /// Waits for all layers.
  virtual void finish() = 0;
};

/// @brief Arguments to construct an exchange; equal on all workers except for the endpoint. They must outlive the
/// exchange.
struct setting {
  workers& all;
  gq::adapt::model_layout const& layers;
  std::uint64_t seed = 1;
  std::uint64_t steps = 150;  ///< calls; levels are learned and bits chosen at fixed fractions of them
};

/// @brief A kind of exchange, for the list of methods.
struct kind {
  std::string_view name;
  std::string_view family;  ///< operator, system or comparator
  std::string_view title;
  std::string_view source;
  std::span<gq::named::parameter const> parameters;
  bool trains = true;  ///< false: only shows how much time could be saved; not meant for training
  std::unique_ptr<exchange> (*make)(setting const&, gq::named::arguments const&);
};

/// @brief The systems and comparators. Operators are those of gq::named::operators().
std::span<kind const> kinds();

/// @brief A parsed name: `NAME[:VALUE][,parameter=value]..[@SCHEDULE]`. An operator may have a schedule other than its
/// default; `layers:` before an operator applies it to each layer, like CGX.
class method {
 public:
  /// @throws globalq::configuration_error if the name is wrong, with the reason
  explicit method(std::string text);

  std::string const& text() const { return text_; }
  std::string_view family() const { return family_; }
  std::string_view source() const { return source_; }
  bool trains() const { return trains_; }

  /// @throws the library's error, on all workers, if the method does not fit
  std::unique_ptr<exchange> make(setting const& with) const;
  /// @brief For operators, applied to each layer; nullptr for other methods.
  /// @param groups  of layers that travel in one call, at most
  /// @param share   of the bytes that is sent during the backward pass
  std::unique_ptr<overlapped> make_overlapped(setting const& with, std::uint64_t groups, double share) const;

 private:
  std::string text_, operator_, schedule_;
  bool by_layers_ = false;
  kind const* kind_ = nullptr;  ///< nullptr: an operator
  std::string_view family_ = "operator", source_;
  bool trains_ = true;
};

/// @brief Steps between choices of a method that chooses during training: its parameter "every".
std::uint64_t every_of(setting const& with, gq::named::arguments const& how);

/// @brief The methods of a full run, in the order of its tables; float32 is the first.
std::vector<std::string> usual_methods();
/// @brief A subset of them, for quick runs.
std::vector<std::string> quick_methods();

// Each family is constructed in its own source.
std::unique_ptr<exchange> make_operator(setting const&, gq::named::named_operator const&,
                                        std::string const& schedule);
std::unique_ptr<exchange> make_layered(setting const&, gq::named::named_operator const&,
                                       std::string const& schedule);
std::unique_ptr<overlapped> make_layered_overlapped(setting const&, gq::named::named_operator const&,
                                                    std::string const& schedule, std::uint64_t groups,
                                                    double share);
std::unique_ptr<exchange> make_adaptive_cgx(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_lgreco(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_top_k(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_adaptive_top_k(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_rand_k(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_power_sgd(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_adaptive_power_sgd(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_sign_sgd(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_one_bit(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_int_sgd(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_thc(setting const&, gq::named::arguments const&);
std::unique_ptr<exchange> make_send_first(setting const&, gq::named::arguments const&);

}  // namespace evidence
