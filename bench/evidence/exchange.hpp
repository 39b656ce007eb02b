// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: one way of averaging a gradient over the workers, whatever paper it is from; made by name.

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

/// @brief Averages gradients in place. All workers call it together, with steps that rise.
class exchange {
 public:
  exchange() = default;
  exchange(exchange const&) = delete;
  exchange& operator=(exchange const&) = delete;
  virtual ~exchange() = default;

  virtual void operator()(std::span<float> gradient, std::uint64_t step) = 0;

  /// Whether it wants to be told of every step of the optimizer.
  virtual bool observes() const { return false; }
  /// @brief Is told of a step, on all workers alike, where it observes().
  /// @param squared  ||x^k - x^(k-1)||^2 of all parameters x
  /// @param rate     the learning rate of the next step
  virtual void observe([[maybe_unused]] double squared, [[maybe_unused]] double rate) {}
};

/// @brief What an exchange is made for; the same on every worker, but for the endpoint. All of it outlives the exchange.
struct setting {
  workers& all;
  gq::adapt::model_layout const& layers;
  std::uint64_t seed = 1;
  std::uint64_t steps =
      150;  ///< that it will be called; levels are learned and bits chosen at fixed shares of them
};

/// @brief A kind of exchange, as it is listed.
struct kind {
  std::string_view name;
  std::string_view family;  ///< operator, system or comparator
  std::string_view title;
  std::string_view source;
  std::span<gq::named::parameter const> parameters;
  bool trains = true;  ///< false: it shows what time can be gained, and nobody would train with it
  std::unique_ptr<exchange> (*make)(setting const&, gq::named::arguments const&);
};

/// @brief The systems and comparators. Operators are those of gq::named::operators().
std::span<kind const> kinds();

/// @brief A name that was read: `NAME[:VALUE][,parameter=value]..[@SCHEDULE]`, where an operator may be given a schedule that is
/// not its own, and `layers:` before an operator makes it one of every layer, as CGX does.
class method {
 public:
  /// @throws globalq::configuration_error naming what is wrong
  explicit method(std::string text);

  std::string const& text() const { return text_; }
  std::string_view family() const { return family_; }
  std::string_view source() const { return source_; }
  bool trains() const { return trains_; }

  /// @throws what the library throws when it does not fit, on all workers alike
  std::unique_ptr<exchange> make(setting const& with) const;

 private:
  std::string text_, operator_, schedule_;
  bool by_layers_ = false;
  kind const* kind_ = nullptr;  ///< none: an operator
  std::string_view family_ = "operator", source_;
  bool trains_ = true;
};

/// @brief How many steps lie between choices, of what chooses while it trains: its parameter "every".
std::uint64_t every_of(setting const& with, gq::named::arguments const& how);

/// @brief The methods of a full run, in the order of its tables; float32 is the first.
std::vector<std::string> usual_methods();
/// @brief Some of them, for a quick look.
std::vector<std::string> quick_methods();

// Each family is made in a source of its own.
std::unique_ptr<exchange> make_operator(setting const&, gq::named::named_operator const&,
                                        std::string const& schedule);
std::unique_ptr<exchange> make_layered(setting const&, gq::named::named_operator const&,
                                       std::string const& schedule);
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
