// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Writes the seeds of the fuzzers: valid blocks and bodies of every form, as short as they can be.
///
///   fuzz_seeds tests/fuzz/corpus

#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/fuzz/inputs.hpp"

namespace {

namespace wire = globalq::wire;
using bytes_t = std::vector<std::byte>;

void put(bytes_t& to, std::uint32_t n, std::size_t bytes) {
  for (std::size_t k = 0; k < bytes; ++k) to.push_back(static_cast<std::byte>(n >> (8 * k)));
}

template <class Code>
bytes_t head(std::uint32_t first, std::size_t count, std::uint32_t max_code) {
  bytes_t to;
  put(to, first | (sizeof(typename Code::code_type) == 2 ? fuzz::wide_codes : 0U), 1);
  put(to, static_cast<std::uint32_t>(count), 2);
  put(to, max_code - 1, 2);
  return to;
}

/// Every @p gap-th code is no zero; levels as if each were half as frequent as the one below.
template <class Int>
std::vector<Int> codes_of(std::size_t count, std::size_t gap, std::uint32_t max_code) {
  std::vector<Int> codes(count);
  std::uint64_t state = 1;
  for (std::size_t i = gap / 2; i < count; i += gap) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    auto const word = static_cast<std::uint32_t>(state >> 33);
    std::uint32_t const level =
        std::min(1 + static_cast<std::uint32_t>(std::countr_zero(word | 1U << 20)), max_code);
    codes[i] = static_cast<Int>((word >> 24 & 1U) != 0 ? -static_cast<std::int32_t>(level)
                                                       : static_cast<std::int32_t>(level));
  }
  return codes;
}

struct shape {
  std::size_t count, gap;
  std::uint32_t max_code;
};

class folder {
 public:
  explicit folder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
  }
  void write(bytes_t const& bytes) {
    std::ofstream file(path_ / ("seed-" + std::to_string(number_++)), std::ios::binary);
    file.write(reinterpret_cast<char const*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file) throw std::runtime_error("cannot write " + path_.string());
  }

 private:
  std::filesystem::path path_;
  int number_ = 0;
};

template <class Code>
void blocks(folder& to) {
  using code_type = typename Code::code_type;
  Code const code;
  for (shape const& s : {shape{60, 1, 7}, {500, 30, 3}, {4096, 1000, 100}, {4096, 11, 3}, {1024, 1, 2}}) {
    auto const codes = codes_of<code_type>(s.count, s.gap, s.max_code);
    bytes_t seed = head<Code>(fuzz::has_table, s.count, s.max_code);
    std::vector<std::uint64_t> counts(2 * std::size_t{s.max_code} + 1);
    for (code_type const c : codes)
      ++counts[static_cast<std::size_t>(c + static_cast<std::int32_t>(s.max_code))];
    auto const table = code.make_table(counts, s.max_code);
    bytes_t travels(code.table_bytes(s.max_code)), block(4 * codes.size() + 64);
    code.write_table(table, s.max_code, travels.data());
    block.resize(
        code.encode(table, codes.data(), static_cast<int>(codes.size()), block.data(), block.size()));
    seed.insert(seed.end(), travels.begin(), travels.end());
    seed.insert(seed.end(), block.begin(), block.end());
    to.write(seed);
  }
  bytes_t seed = head<Code>(fuzz::is_codes, 40, 20);
  for (std::uint32_t k = 0; k < 200; ++k) put(seed, k * k * 7, 1);
  to.write(seed);
}

template <class Code>
void bodies(folder& to, std::uint32_t choice) {
  using code_type = typename Code::code_type;
  for (shape const& s : {shape{100, 3, 3}, {8200, 200, 3}, {4097, 12, 1}}) {
    auto const codes = codes_of<code_type>(s.count, s.gap, s.max_code);
    wire::coded<Code> coded(Code{}, s.max_code);
    bytes_t body(coded.capacity(s.count));
    body.resize(coded.encode(globalq_test::in_turn{}, codes.data(), codes.size(), body));
    bytes_t seed = head<Code>(choice << 4, s.count, s.max_code);
    seed.insert(seed.end(), body.begin(), body.end());
    to.write(seed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  std::filesystem::path const root = argv[1];
  folder elias(root / "elias"), huffman(root / "huffman"), sparse(root / "sparse"), coded(root / "coded");
  blocks<wire::elias<>>(elias);
  blocks<wire::elias<std::int16_t>>(elias);
  blocks<wire::huffman<>>(huffman);
  blocks<wire::huffman<std::int16_t>>(huffman);
  blocks<wire::sparse<>>(sparse);
  blocks<wire::sparse<std::int16_t>>(sparse);
  bodies<wire::elias<>>(coded, 0);
  bodies<wire::huffman<>>(coded, 1);
  bodies<wire::sparse<>>(coded, 2);
  bodies<wire::sparse<std::int16_t>>(coded, 2);
}
