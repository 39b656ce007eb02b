// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief c: compressors with error feedback, for layers of a mean.

#include <globalq/baseline/state.hpp>
#include <globalq/call/options.hpp>
#include <globalq/call/vector_group.hpp>
#include <globalq/kernel/executor.hpp>
#include <globalq/named/compressors.hpp>
#include <globalq/schedule/any.hpp>
#include <globalq/train/adapt/model_layout.hpp>
#include <globalq/transport/endpoint.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace globalq_c {

namespace gq = globalq;

/// The layers of a call that use the same compressor.
class compressor {
 public:
  explicit compressor(std::vector<std::size_t> layers) : layers_(std::move(layers)) {}
  compressor(compressor const&) = delete;
  compressor& operator=(compressor const&) = delete;
  virtual ~compressor() = default;

  /// Averages the layers.
  /// @param members  vectors of all layers of the call, with the lengths and types of the layers
  void run(std::span<gq::vector_group::member const> members, std::uint64_t step);
  /// Restores the state before the last run() that averaged; its results stay.
  virtual void undo() = 0;
  /// The state that this worker keeps between steps.
  virtual gq::baseline::state save() const = 0;
  virtual void load(std::span<gq::baseline::state const> states) = 0;

 private:
  virtual void reduce(std::span<float const> x, std::span<float> mean, std::uint64_t step) = 0;

  std::vector<std::size_t> layers_;  ///< indices of the layers in the call
  std::vector<float> beside_;        ///< a copy of their values, if these are not contiguous
};

/// The arguments of make_compressor(): layers with one method and bits, each with its density or rank.
struct compressor_parts {
  gq::named::named_compressor::method how;
  int bits = 32;                          ///< of top_k
  std::vector<std::size_t> numbers = {};  ///< indices of the layers in the call
  gq::adapt::model_layout layers = {};
  std::vector<double> densities = {};
  std::vector<int> ranks = {};  ///< 0: a layer sent as float32, in the messages of PowerSGD

  /// @param by  null: as float32
  void add(std::size_t number, gq::adapt::layer const& l, gq::named::named_compressor const* by) {
    numbers.push_back(number);
    layers.add(l.name, l.shape, l.type);
    densities.push_back(by == nullptr ? 1 : by->density);
    ranks.push_back(by == nullptr ? 0 : by->rank);
  }
};

/// @param on  runs the kernels
std::unique_ptr<compressor> make_compressor(compressor_parts parts, gq::transport::endpoint& workers,
                                            gq::kernel::host_executor const& on, gq::options const& settings,
                                            gq::schedule::any const& schedule);

}  // namespace globalq_c
