// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief adapt: finds the layer whose operator differs between workers.

#include "../../../call/detail/worker_texts.hpp"
#include "../../../core/error.hpp"
#include "../../../transport/collectives.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace GLOBALQ_ABI::adapt::detail {

/// @brief Describes the first layer whose operator differs, and the worker; the same text on every worker.
/// @param t       endpoint of this worker; all workers call, with the same number of layers
/// @param hashes  the hash of each layer's operator
/// @param name    name(k): the name of the operator of layer k
/// @param layer   layer(k): the number and name of layer k
template <Transport T, class Operator, class Layer>
std::string layer_difference(T& t, std::vector<std::uint64_t> const& hashes, Operator const& name,
                             Layer const& layer) {
  struct memory {  // memory that a transfer may still touch after the exchange has failed
    std::vector<std::uint64_t> mine, all;
  };
  auto const kept = std::make_shared<memory>();
  auto const count = hashes.size(), workers = static_cast<std::size_t>(t.size());
  return transport::keeping(t, kept, [&]() -> std::string {
    kept->mine = hashes;
    kept->all.resize(count * workers);
    transport::allgather(t, std::as_bytes(std::span(kept->mine)),
                         std::as_writable_bytes(std::span(kept->all)));
    for (std::size_t k = 0; k < count; ++k)
      for (std::size_t r = 1; r < workers; ++r) {
        if (kept->all[r * count + k] == kept->all[k]) continue;
        auto const names = globalq::detail::texts_of_workers(t, name(k));
        std::string const first = names(0), other = names(static_cast<int>(r));
        std::string text =
            "rank " + std::to_string(r) + " differs from rank 0 in the operator of layer " + layer(k) + ": ";
        if (first == other) return text + "both have \"" + first + "\", with other levels or parameters";
        return text + "\"" + other + "\" instead of \"" + first + "\"";
      }
    return {};
  });
}

}  // namespace GLOBALQ_ABI::adapt::detail
