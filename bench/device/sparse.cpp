// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief bench: encodes codes to sparse bodies and decodes them, in device memory.

#include "../support/data.hpp"
#include "device.hpp"

#include <globalq/kernel/stream_sparse.hpp>
#include <globalq/wire/coded.hpp>

#include <cstring>

namespace GLOBALQ_ABI::bench {
namespace {

/// Seven levels. few: one code in a hundred is not zero, and most of these are 1, as with the l2 norm of a long vector.
/// most: most codes are not zero.
enum class share { few, most };

device<std::int8_t> codes_there(std::uint64_t n, share of) {
  Kokkos::View<std::int8_t*, Kokkos::HostSpace> const codes(
      Kokkos::view_alloc("codes", Kokkos::WithoutInitializing), n);
  Kokkos::parallel_for(
      "codes", Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(0, n), [=](std::uint64_t i) {
        std::uint64_t const w = mix((i + 1) * 0x9E3779B97F4A7C15ULL);
        bool const is = of == share::most ? w % 8 != 0 : w % 100 == 0;
        int const m = of == share::most ? 1 + static_cast<int>(w >> 40) % 7 : w >> 40 & 15 ? 1 : 2;
        codes(i) = static_cast<std::int8_t>(!is ? 0 : w >> 63 != 0 ? -m : m);
      });
  device<std::int8_t> const there(Kokkos::view_alloc("codes", Kokkos::WithoutInitializing), n);
  Kokkos::deep_copy(there, codes);
  return there;
}

enum class direction { encode, decode };

/// Compared with a copy of the bytes of codes and body together; the encoder reads the codes twice.
void time_sparse(benchmark::State& state, std::uint64_t n, share of, direction way) {
  constexpr std::uint32_t max_code = 7;
  kernel::stream_executor<space> const on{space()};
  wire::stream_sparse<std::int8_t, space> coder(max_code);
  in_turn<std::int8_t> codes(codes_there(n, of)), back = codes.others();
  in_turn<std::byte> body(device<std::byte>("body", coder.capacity(n)));
  device<std::uint64_t> const bytes("bytes", 1);
  device<std::uint32_t> const faults("faults", 1);
  auto const encode = [&] { coder.encode(on, codes.next().data(), n, body.next().data(), bytes.data(), 0); };
  auto const decode = [&] {
    coder.decode(on, body.next().data(), bytes.data(), n, back.next().data(), faults.data());
  };
  for (std::size_t k = 0; k < body.all().size(); ++k) encode();
  auto const here = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), codes.first());
  wire::coded<wire::sparse<>> host({}, max_code);
  std::vector<std::byte> expected(host.capacity(n));
  expected.resize(
      host.encode(kernel::host_executor(Kokkos::DefaultHostExecutionSpace()), here.data(), n, expected));
  auto const are_right = [&] {
    for (auto const& each : back.all()) Kokkos::deep_copy(each, std::int8_t{0});
    decode();
    on.fence();
    auto const returned = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), back.last());
    auto const made = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), body.last());
    auto const length = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), bytes);
    auto const found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), faults);
    return found(0) == 0 && std::memcmp(here.data(), returned.data(), n) == 0 &&
           expected.size() == length(0) && std::memcmp(expected.data(), made.data(), expected.size()) == 0;
  };
  if (!are_right()) return fail(state, "the body or the decoded codes differ from the host's");

  std::uint64_t const moved = n + expected.size();
  if (way == direction::encode)
    against_copy(state, n, moved, encode);
  else
    against_copy(state, n, moved, decode);
  if (!are_right())
    return fail(state, "the body or the decoded codes differ from the host's after many calls");
  state.counters["bits_per_value"] = 8.0 * static_cast<double>(expected.size()) / static_cast<double>(n);
}

}  // namespace

void add_sparse() {
  for (auto const& [way, verb] :
       {std::pair{direction::encode, "code_encode"}, {direction::decode, "code_decode"}})
    for (auto const& [of, name] : {std::pair{share::few, "few"}, {share::most, "most"}})
      add(std::string(verb) + "/sparse/" + name,
          [way = way, of = of](benchmark::State& state, std::uint64_t n) { time_sparse(state, n, of, way); });
}

}  // namespace GLOBALQ_ABI::bench
