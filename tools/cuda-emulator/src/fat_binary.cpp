// SPDX-License-Identifier: Apache-2.0

#include "fat_binary.hpp"

#include "ptx.hpp"

#include <elf.h>

#include <cstring>
#include <string_view>

namespace emulator {
namespace {

// As CUDA's fatbinary_section.h and the objects themselves show it.
struct wrapper_layout {
  std::uint32_t magic;  // 0x466243b1
  std::uint32_t version;
  std::byte const* data;
  void* more;
};

struct header_layout {
  std::uint32_t magic;  // 0xba55ed50
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t bytes;  // behind the header
};

struct entry_layout {
  std::uint16_t kind;  // 1: PTX, 2: machine code
  std::uint16_t version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t compressed_bytes;
  std::uint32_t options;
  std::uint16_t minor;
  std::uint16_t major;
  std::uint32_t architecture;
};

template <class T>
T read(std::byte const* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The section `.nv.info` has attributes: format, name, and a size of what follows, if the format is 4. 0x2f is the number of
/// registers of a kernel, behind the index of its symbol.
void read_registers(std::byte const* elf, std::map<std::string, std::uint32_t>& registers) {
  auto const file = read<Elf64_Ehdr>(elf);
  if (std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0) return;
  auto const section = [&](unsigned k) {
    return read<Elf64_Shdr>(elf + file.e_shoff + k * file.e_shentsize);
  };
  auto const text = [&](Elf64_Shdr const& of, std::uint64_t at) {
    return reinterpret_cast<char const*>(elf) + of.sh_offset + at;
  };
  Elf64_Shdr info{};
  Elf64_Shdr symbols{};
  for (unsigned k = 0; k < file.e_shnum; ++k) {
    auto const s = section(k);
    if (s.sh_type == SHT_SYMTAB) symbols = s;
    if (std::string_view(text(section(file.e_shstrndx), s.sh_name)) == ".nv.info") info = s;
  }
  for (std::uint64_t at = 0; at + 4 <= info.sh_size;) {
    std::byte const* const attribute = elf + info.sh_offset + at;
    bool const sized = attribute[0] == std::byte{4};
    if (sized && attribute[1] == std::byte{0x2f}) {
      auto const symbol =
          read<Elf64_Sym>(elf + symbols.sh_offset + read<std::uint32_t>(attribute + 4) * sizeof(Elf64_Sym));
      registers[text(section(symbols.sh_link), symbol.st_name)] = read<std::uint32_t>(attribute + 8);
    }
    at += 4 + (sized ? read<std::uint16_t>(attribute + 2) : 0);
  }
}

}  // namespace

fat_binary read_fat_binary(void const* wrapper) {
  auto const outer = read<wrapper_layout>(static_cast<std::byte const*>(wrapper));
  if (outer.magic != 0x466243b1) throw fault("a fat binary of a kind that is not known");
  auto const header = read<header_layout>(outer.data);
  if (header.magic != 0xba55ed50) throw fault("a fat binary of a kind that is not known");
  fat_binary result;
  std::uint32_t newest = 0;
  std::byte const* const end = outer.data + header.header_bytes + header.bytes;
  for (std::byte const* at = outer.data + header.header_bytes; at < end;) {
    auto const entry = read<entry_layout>(at);
    std::byte const* const payload = at + entry.header_bytes;
    if (entry.kind == 1 && entry.architecture >= newest) {
      if (entry.compressed_bytes != 0) throw fault("compressed PTX: compile with nvcc --no-compress");
      newest = entry.architecture;
      result.ptx.assign(reinterpret_cast<char const*>(payload), entry.bytes);
      result.ptx.resize(result.ptx.find_last_not_of('\0') + 1);
    } else if (entry.kind == 2 && entry.compressed_bytes == 0) {
      read_registers(payload, result.registers);
    }
    at = payload + entry.bytes;
  }
  if (result.ptx.empty())
    throw fault("a fat binary without PTX: compile with code=compute_90 besides code=sm_90");
  return result;
}

}  // namespace emulator
