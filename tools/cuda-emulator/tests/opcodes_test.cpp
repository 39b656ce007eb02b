// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Each opcode against arithmetic of the host, at the edges of its types and at random values.
///
/// What is expected is written with 128-bit integers and the host's floats, apart from the interpreter's own code.

#include "machine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace emulator;
using std::uint32_t;
using std::uint64_t;
using wide = __int128;

using operand_bits = std::vector<uint64_t>;

uint64_t mask_of(int bytes) { return bytes == 8 ? ~0ULL : (1ULL << (8 * bytes)) - 1; }

/// The number that bits mean.
wide number(uint64_t bits, value_type t) {
  bits &= mask_of(t.bytes);
  bool const negative = t.kind == 's' && (bits >> (8 * t.bytes - 1) & 1) != 0;
  return negative ? static_cast<wide>(bits) - (static_cast<wide>(1) << (8 * t.bytes))
                  : static_cast<wide>(bits);
}

double real(uint64_t bits, value_type t) {
  return t.bytes == 4 ? std::bit_cast<float>(static_cast<uint32_t>(bits)) : std::bit_cast<double>(bits);
}

float single(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t bits_of(float v) { return std::isnan(v) ? 0x7fff'ffff : std::bit_cast<uint32_t>(v); }
uint64_t bits_of(double v) { return std::bit_cast<uint64_t>(v); }

/// Edges of a type, then random bits.
std::vector<uint64_t> values_of(value_type t, std::mt19937_64& random) {
  std::vector<uint64_t> v{0,  1,  2,  3,  5,   7,   8,   15,  16,     31,    32,
                          33, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000};
  for (int bits : {8, 16, 32, 64}) {
    if (bits > 8 * t.bytes) break;
    v.insert(v.end(), {mask_of(bits / 8), mask_of(bits / 8) >> 1, (mask_of(bits / 8) >> 1) + 1,
                       mask_of(bits / 8) - 1});
  }
  if (t.kind == 'f') {
    for (double f :
         {0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-40, 1e38, 3e9, -3e9, 1e19, 255.5, 2147483647.0,
          std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      v.push_back(t.bytes == 4 ? bits_of(static_cast<float>(f)) : bits_of(f));
    }
    v.push_back(t.bytes == 4 ? 0x7fff'ffff : 0x7ff8'0000'0000'0000);
    v.push_back(t.bytes == 4 ? 0x0080'0000 : 0x0010'0000'0000'0000);
  }
  for (int k = 0; k < 40; ++k) v.push_back(random() >> (k % 3 == 0 ? random() % 64 : 0));
  for (auto& bits : v) bits &= mask_of(t.bytes);
  return v;
}

std::string register_type(value_type t) {
  if (t.kind == 'p') return "pred";
  int const bytes = std::max<int>(t.bytes, 2);
  return t.kind == 'f' ? "f" + std::to_string(8 * bytes) : "b" + std::to_string(8 * bytes);
}

/// One opcode: `d = op a, b, c` with the sources' types, and what the host expects of a lane.
struct one {
  std::string op;
  std::string result;                // a type
  std::vector<std::string> sources;  // types
  std::function<uint64_t(operand_bits const&)> expected;
  std::string more{};  // constant operands behind the sources
};

/// Runs an opcode for combinations of values and compares each.
void check(one const& c) {
  SCOPED_TRACE(c.op);
  std::mt19937_64 random(7);
  auto const result = type_of(c.result);
  std::vector<value_type> types;
  std::vector<std::vector<uint64_t>> values;
  for (auto const& s : c.sources) {
    types.push_back(type_of(s));
    values.push_back(values_of(types.back(), random));
  }
  constexpr uint32_t count = 4096;
  std::size_t const n = types.size();
  std::vector<uint64_t> in(count * n);
  for (uint32_t k = 0; k < count; ++k) {
    // All pairs of the first two in turn, the rest at random.
    std::size_t const first = values[0].size();
    for (std::size_t j = 0; j < n; ++j) {
      std::size_t const at = j == 0   ? k % first
                             : j == 1 ? k / first % values[1].size()
                                      : random() % values[j].size();
      in[k * n + j] =
          values[j][k < first * values[std::min<std::size_t>(1, n - 1)].size() ? at
                                                                               : random() % values[j].size()];
    }
  }
  std::string text =
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
      ".reg .b64 %a<8>;\n.reg .b32 %i<4>;\n";
  std::string loads, operands = "%r";
  text += ".reg ." + register_type(result) + " %r;\n";
  for (std::size_t j = 0; j < n; ++j) {
    std::string const name = "%s" + std::to_string(j);
    text += ".reg ." + register_type(types[j]) + " " + name + ";\n";
    std::string const bits = types[j].kind == 'f' ? c.sources[j] : "b" + std::to_string(8 * types[j].bytes);
    loads += "ld.global." + bits + " " + name + ", [%a3+" + std::to_string(8 * j) + "];\n";
    operands += ", " + name;
  }
  operands += c.more;
  text +=
      "mov.u32 %i0, %tid.x;\nmov.u32 %i1, %ctaid.x;\nmad.lo.u32 %i2, %i1, 256, %i0;\ncvt.u64.u32 %a0, %i2;\n"
      "ld.param.u64 %a1, [in];\nld.param.u64 %a2, [out];\n"
      "mad.lo.u64 %a3, %a0, " +
      std::to_string(8 * n) + ", %a1;\nmad.lo.u64 %a4, %a0, 8, %a2;\n" + loads;
  if (result.kind == 'p') {
    text += c.op + " " + operands + ";\nselp.u64 %a5, 1, 0, %r;\nst.global.u64 [%a4], %a5;\nret;\n}\n";
  } else {
    text += c.op + " " + operands + ";\nst.global." + register_type(result) + " [%a4], %r;\nret;\n}\n";
  }
  memory m;
  loaded_module module(text, m);
  auto const from = m.allocate(8 * in.size(), "in");
  auto const to = m.allocate(8ULL * count, "out");
  m.write(from, in.data(), 8 * in.size());
  m.fill(to, 0, 8ULL * count);
  uint64_t const parameters[] = {from, to};
  run(module.kernel("k"), {{count / 256}, {256}, std::as_bytes(std::span(parameters))}, m);
  std::vector<uint64_t> out(count);
  m.read(out.data(), to, 8ULL * count);
  int wrong = 0;
  for (uint32_t k = 0; k < count && wrong < 3; ++k) {
    operand_bits const s(in.begin() + static_cast<std::ptrdiff_t>(k * n),
                         in.begin() + static_cast<std::ptrdiff_t>((k + 1) * n));
    uint64_t const expected =
        c.expected(s) & (result.kind == 'p' ? 1 : mask_of(std::max<int>(result.bytes, 2)));
    if (out[k] == expected) continue;
    bool const nans = result.kind == 'f' && std::isnan(real(out[k], result)) &&
                      std::isnan(real(expected, result)) && result.bytes == 8;
    if (nans) continue;  // the payload of float64 is not specified
    ++wrong;
    std::string what;
    for (auto const v : s) what += " " + std::to_string(v);
    ADD_FAILURE() << c.op << " of" << what << ": " << out[k] << ", expected " << expected;
  }
}

std::vector<std::string> const integers{"u16", "s16", "u32", "s32", "u64", "s64"};

/// An integer operation from a function of numbers.
void check_integer(std::string const& op, std::string const& type, int n,
                   std::function<wide(wide, wide, wide)> f) {
  auto const t = type_of(type);
  check({op + "." + type, type, std::vector<std::string>(static_cast<std::size_t>(n), type),
         [=](operand_bits const& s) {
           return static_cast<uint64_t>(
               f(number(s[0], t), n > 1 ? number(s[1], t) : 0, n > 2 ? number(s[2], t) : 0));
         }});
}

TEST(Opcodes, Integers) {
  for (auto const& type : integers) {
    auto const t = type_of(type);
    int const width = 8 * t.bytes;
    check_integer("add", type, 2, [](wide a, wide b, wide) { return a + b; });
    check_integer("sub", type, 2, [](wide a, wide b, wide) { return a - b; });
    check_integer("mul.lo", type, 2, [](wide a, wide b, wide) {
      return static_cast<wide>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
    });
    check_integer("mad.lo", type, 3, [](wide a, wide b, wide c) {
      return static_cast<wide>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b) +
                               static_cast<unsigned __int128>(c));
    });
    check_integer("min", type, 2, [](wide a, wide b, wide) { return std::min(a, b); });
    check_integer("max", type, 2, [](wide a, wide b, wide) { return std::max(a, b); });
    check_integer("mul.hi", type, 2, [=](wide a, wide b, wide) {
      if (t.kind == 's') return (a * b) >> width;
      return static_cast<wide>((static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b)) >>
                               width);
    });
    check_integer("div", type, 2, [](wide a, wide b, wide) { return b == 0 ? -1 : a / b; });
    check_integer("rem", type, 2, [](wide a, wide b, wide) { return b == 0 ? a : a % b; });
    if (t.kind == 's') {
      check_integer("neg", type, 1, [](wide a, wide, wide) { return -a; });
      check_integer("abs", type, 1, [](wide a, wide, wide) { return a < 0 ? -a : a; });
    }
    check({"shr." + type, type, {type, "u32"}, [=](operand_bits const& s) {
             uint64_t const by = std::min<uint64_t>(s[1], 100);
             return static_cast<uint64_t>(number(s[0], t) >> by);
           }});
    if (t.bytes == 8) continue;
    std::string const twice = type.substr(0, 1) + std::to_string(2 * width);
    check({"mul.wide." + type, twice, {type, type}, [=](operand_bits const& s) {
             return static_cast<uint64_t>(number(s[0], t) * number(s[1], t));
           }});
    check({"mad.wide." + type, twice, {type, type, twice}, [=](operand_bits const& s) {
             return static_cast<uint64_t>(number(s[0], t) * number(s[1], t)) + s[2];
           }});
  }
}

TEST(Opcodes, Bits) {
  for (std::string const type : {"b16", "b32", "b64"}) {
    int const bytes = type_of(type).bytes;
    check({"and." + type, type, {type, type}, [](operand_bits const& s) { return s[0] & s[1]; }});
    check({"or." + type, type, {type, type}, [](operand_bits const& s) { return s[0] | s[1]; }});
    check({"xor." + type, type, {type, type}, [](operand_bits const& s) { return s[0] ^ s[1]; }});
    check({"not." + type, type, {type}, [](operand_bits const& s) { return ~s[0]; }});
    check({"shl." + type, type, {type, "u32"}, [=](operand_bits const& s) {
             return s[1] >= static_cast<uint64_t>(8 * bytes) ? 0 : s[0] << s[1];
           }});
  }
  for (std::string const type : {"b32", "b64"}) {
    int const width = 8 * type_of(type).bytes;
    auto const bit = [=](uint64_t v, uint64_t at) {
      return at < static_cast<uint64_t>(width) ? v >> at & 1 : 0;
    };
    check({"popc." + type, "u32", {type}, [=](operand_bits const& s) {
             uint64_t n = 0;
             for (int k = 0; k < width; ++k) n += bit(s[0], k);
             return n;
           }});
    check({"clz." + type, "u32", {type}, [=](operand_bits const& s) {
             uint64_t n = 0;
             for (int k = width - 1; k >= 0 && bit(s[0], k) == 0; --k) ++n;
             return n;
           }});
    check({"brev." + type, type, {type}, [=](operand_bits const& s) {
             uint64_t r = 0;
             for (int k = 0; k < width; ++k) r |= bit(s[0], k) << (width - 1 - k);
             return r;
           }});
    check({"bfi." + type, type, {type, type, "u32", "u32"}, [=](operand_bits const& s) {
             uint64_t r = s[1];
             for (uint64_t k = 0, at = s[2] & 255; k < (s[3] & 255) && at + k < static_cast<uint64_t>(width);
                  ++k) {
               r = (r & ~(1ULL << (at + k))) | (bit(s[0], k) << (at + k));
             }
             return r;
           }});
    for (char const kind : {'u', 's'}) {
      std::string const name = kind + std::to_string(width);
      auto const highest = [=](uint64_t v) {
        if (kind == 's' && bit(v, width - 1) != 0) v = ~v;
        for (int k = width - 1; k >= 0; --k) {
          if (bit(v, k) != 0) return k;
        }
        return -1;
      };
      check({"bfind.shiftamt." + name, "u32", {name}, [=](operand_bits const& s) {
               int const at = highest(s[0]);
               return static_cast<uint64_t>(at < 0 ? -1 : width - 1 - at);
             }});
    }
  }
  check({"prmt.b32", "b32", {"b32", "b32", "b32"}, [](operand_bits const& s) {
           uint64_t r = 0;
           for (int k = 0; k < 4; ++k) {
             uint64_t const c = s[2] >> (4 * k) & 15;
             uint64_t const byte = (c & 4 ? s[1] : s[0]) >> (8 * (c & 3)) & 255;
             r |= (c & 8 ? (byte & 128 ? 255 : 0) : byte) << (8 * k);
           }
           return r;
         }});
  check({"shf.l.wrap.b32", "b32", {"b32", "b32", "u32"}, [](operand_bits const& s) {
           uint64_t const n = s[2] & 31;
           return n == 0 ? s[1] : s[1] << n | s[0] >> (32 - n);
         }});
  check({"shf.r.wrap.b32", "b32", {"b32", "b32", "u32"}, [](operand_bits const& s) {
           uint64_t const n = s[2] & 31;
           return n == 0 ? s[0] : s[1] << (32 - n) | s[0] >> n;
         }});
}

template <class T>
void check_floats(std::string const& type, T (*value)(uint64_t)) {
  auto const two = [&](std::string const& op, auto f) {
    check({op + "." + type, type, {type, type}, [=](operand_bits const& s) {
             return bits_of(static_cast<T>(f(value(s[0]), value(s[1]))));
           }});
  };
  uint64_t const sign = 1ULL << (8 * sizeof(T) - 1);
  two("add", [](T a, T b) { return a + b; });
  two("add.rn", [](T a, T b) { return a + b; });
  two("sub", [](T a, T b) { return a - b; });
  two("mul", [](T a, T b) { return a * b; });
  two("mul.rn", [](T a, T b) { return a * b; });
  two("div.rn", [](T a, T b) { return a / b; });
  // The number, not the NaN; zeros by their signs, of which the host's functions promise nothing.
  two("min", [](T a, T b) { return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b); });
  two("max", [](T a, T b) { return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b); });
  check({"fma.rn." + type, type, {type, type, type}, [=](operand_bits const& s) {
           return bits_of(std::fma(value(s[0]), value(s[1]), value(s[2])));
         }});
  check({"sqrt.rn." + type, type, {type}, [=](operand_bits const& s) {
           return bits_of(std::sqrt(value(s[0])));
         }});
  check({"rcp.rn." + type, type, {type}, [=](operand_bits const& s) { return bits_of(1 / value(s[0])); }});
  check({"neg." + type, type, {type}, [=](operand_bits const& s) { return s[0] ^ sign; }});
  check({"abs." + type, type, {type}, [=](operand_bits const& s) { return s[0] & ~sign; }});
}

TEST(Opcodes, Floats) {
  check_floats<float>("f32", single);
  check_floats<double>("f64", [](uint64_t bits) { return std::bit_cast<double>(bits); });
}

TEST(Opcodes, ConversionsOfIntegers) {
  std::vector<std::string> const types{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"};
  for (auto const& to : types) {
    auto const t = type_of(to);
    for (auto const& from : types) {
      auto const f = type_of(from);
      // A result of 8 bits is extended to its register.
      check({"cvt." + to + "." + from, to, {from}, [=](operand_bits const& s) {
               return static_cast<uint64_t>(number(static_cast<uint64_t>(number(s[0], f)), t));
             }});
    }
  }
}

TEST(Opcodes, ConversionsOfFloats) {
  struct mode {
    char const* name;
    double (*round)(double);
  };
  for (mode const& how : {mode{"rni", [](double v) { return std::nearbyint(v); }},
                          mode{"rzi", [](double v) { return std::trunc(v); }},
                          mode{"rmi", [](double v) { return std::floor(v); }},
                          mode{"rpi", [](double v) { return std::ceil(v); }}}) {
    for (std::string const from : {"f32", "f64"}) {
      auto const f = type_of(from);
      for (auto const& to : integers) {
        auto const t = type_of(to);
        wide const least = t.kind == 's' ? -(static_cast<wide>(1) << (8 * t.bytes - 1)) : 0;
        wide const most = (static_cast<wide>(1) << (8 * t.bytes - (t.kind == 's' ? 1 : 0))) - 1;
        check(
            {std::string("cvt.") + how.name + "." + to + "." + from, to, {from}, [=](operand_bits const& s) {
               double const v = how.round(real(s[0], f));
               if (std::isnan(v)) return uint64_t{0};
               if (v >= 1e30) return static_cast<uint64_t>(most);
               if (v <= -1e30) return static_cast<uint64_t>(least);
               return static_cast<uint64_t>(std::clamp(static_cast<wide>(v), least, most));
             }});
      }
      check({std::string("cvt.") + how.name + "." + from + "." + from,
             from,
             {from},
             [=](operand_bits const& s) {
               double const v = how.round(real(s[0], f));
               return f.bytes == 4 ? bits_of(static_cast<float>(v)) : bits_of(v);
             }});
    }
  }
  for (auto const& from : integers) {
    auto const f = type_of(from);
    check({"cvt.rn.f32." + from, "f32", {from}, [=](operand_bits const& s) {
             return bits_of(static_cast<float>(number(s[0], f)));
           }});
    check({"cvt.rn.f64." + from, "f64", {from}, [=](operand_bits const& s) {
             return bits_of(static_cast<double>(number(s[0], f)));
           }});
  }
  check({"cvt.f64.f32", "f64", {"f32"}, [](operand_bits const& s) {
           return bits_of(static_cast<double>(single(s[0])));
         }});
  check({"cvt.rn.f32.f64", "f32", {"f64"}, [](operand_bits const& s) {
           return bits_of(static_cast<float>(std::bit_cast<double>(s[0])));
         }});
}

TEST(Opcodes, Comparisons) {
  auto const ordered = [](std::string const& how, auto a, auto b) {
    return how == "eq"                  ? a == b
           : how == "ne"                ? a != b
           : how == "lt" || how == "lo" ? a < b
           : how == "le" || how == "ls" ? a <= b
           : how == "gt" || how == "hi" ? a > b
                                        : a >= b;
  };
  for (std::string const how : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    for (auto const& type : integers) {
      auto const t = type_of(type);
      check({"setp." + how + "." + type, "pred", {type, type}, [=](operand_bits const& s) -> uint64_t {
               return ordered(how, number(s[0], t), number(s[1], t));
             }});
    }
    for (std::string const type : {"f32", "f64"}) {
      auto const t = type_of(type);
      auto const nan = [=](operand_bits const& s) {
        return std::isnan(real(s[0], t)) || std::isnan(real(s[1], t));
      };
      check({"setp." + how + "." + type, "pred", {type, type}, [=](operand_bits const& s) -> uint64_t {
               return !nan(s) && ordered(how, real(s[0], t), real(s[1], t));
             }});
      check({"setp." + how + "u." + type, "pred", {type, type}, [=](operand_bits const& s) -> uint64_t {
               return nan(s) || ordered(how, real(s[0], t), real(s[1], t));
             }});
      check({"setp.num." + type, "pred", {type, type}, [=](operand_bits const& s) -> uint64_t {
               return !nan(s);
             }});
      check({"setp.nan." + type, "pred", {type, type}, [=](operand_bits const& s) -> uint64_t {
               return nan(s);
             }});
    }
  }
  for (std::string const how : {"lo", "ls", "hi", "hs"}) {
    check({"setp." + how + ".u32", "pred", {"u32", "u32"}, [=](operand_bits const& s) -> uint64_t {
             return ordered(how == "hs" ? "ge" : how, s[0], s[1]);
           }});
  }
}

/// The result of a body that leaves 64 bits in %a5; `%a1` and `%a2` are parameters.
uint64_t result_of(std::string const& body, uint64_t a = 0, uint64_t b = 0) {
  std::string const text =
      ".version 9.0\n.target sm_90\n.visible .entry k(.param .u64 out, .param .u64 a, .param .u64 b)\n{\n"
      ".reg .b64 %a<9>;\n.reg .b32 %i<9>;\n.reg .b16 %h<9>;\n.reg .pred %p<9>;\n.reg .f64 %d<3>;\n"
      "ld.param.u64 %a0, [out];\nld.param.u64 %a1, [a];\nld.param.u64 %a2, [b];\n" +
      body + "\nst.global.u64 [%a0], %a5;\nret;\n}\n";
  memory m;
  loaded_module module(text, m);
  auto const out = m.allocate(8, "out");
  uint64_t const parameters[] = {out, a, b};
  run(module.kernel("k"), {{}, {}, std::as_bytes(std::span(parameters))}, m);
  uint64_t result = 0;
  m.read(&result, out, 8);
  return result;
}

TEST(Opcodes, MovesOfParts) {
  EXPECT_EQ(result_of("mov.b64 {%i0, %i1}, %a1;\nmov.b64 %a5, {%i1, %i0};", 0x1111'2222'3333'4444),
            0x3333'4444'1111'2222);
  EXPECT_EQ(result_of("mov.b64 {_, %i1}, %a1;\ncvt.u64.u32 %a5, %i1;", 0x1111'2222'3333'4444), 0x1111'2222U);
  EXPECT_EQ(result_of("mov.b64 {%h0, %h1, %h2, %h3}, %a1;\nmov.b64 %a5, {%h3, %h2, %h1, %h0};",
                      0x1111'2222'3333'4444),
            0x4444'3333'2222'1111);
  EXPECT_EQ(result_of("mov.f64 %d0, 0d3FF8000000000000;\nmov.b64 %a5, %d0;"), std::bit_cast<uint64_t>(1.5));
}

TEST(Opcodes, Predicates) {
  std::string const begin = "setp.ne.u64 %p0, %a1, 0;\nsetp.ne.u64 %p1, %a2, 0;\n";
  std::string const end = "\nselp.u64 %a5, 1, 0, %p2;";
  for (uint64_t a : {0, 1}) {
    for (uint64_t b : {0, 1}) {
      EXPECT_EQ(result_of(begin + "and.pred %p2, %p0, %p1;" + end, a, b), a & b);
      EXPECT_EQ(result_of(begin + "or.pred %p2, %p0, %p1;" + end, a, b), a | b);
      EXPECT_EQ(result_of(begin + "xor.pred %p2, %p0, %p1;" + end, a, b), a ^ b);
      EXPECT_EQ(result_of(begin + "not.pred %p2, %p0;" + end, a, b), 1 - a);
      EXPECT_EQ(result_of(begin + "mov.pred %p2, %p1;" + end, a, b), b);
      EXPECT_EQ(result_of(begin + "mov.pred %p2, -1;" + end, a, b), 1U);
      EXPECT_EQ(result_of(begin + "selp.b64 %a5, %a1, %a2, !%p0;", a, b), a != 0 ? b : a);
      for (uint64_t c : {3, 5}) {
        std::string const d = std::to_string(c);
        EXPECT_EQ(result_of(begin + "setp.eq.and.u64 %p2, %a1, " + d + ", %p1;" + end, 5 * a, b),
                  static_cast<uint64_t>(5 * a == c && b != 0));
        EXPECT_EQ(result_of(begin + "setp.eq.or.u64 %p2, %a1, " + d + ", %p1;" + end, 5 * a, b),
                  static_cast<uint64_t>(5 * a == c || b != 0));
        EXPECT_EQ(result_of(begin + "setp.eq.xor.u64 %p2, %a1, " + d + ", !%p1;" + end, 5 * a, b),
                  static_cast<uint64_t>((5 * a == c) != (b == 0)));
        EXPECT_EQ(result_of(begin + "setp.eq.and.u64 %p3|%p2, %a1, " + d + ", %p1;" + end, 5 * a, b),
                  static_cast<uint64_t>(5 * a != c && b != 0));
      }
      EXPECT_EQ(result_of(begin + "mov.u64 %a5, 7;\n@%p0 mov.u64 %a5, 8;\n@!%p1 add.u64 %a5, %a5, 10;", a, b),
                (a ? 8 : 7) + (b ? 0 : 10U));
    }
  }
}

/// What -use_fast_math, -ftz=true and -prec-div=false make of products and of 1 / x.
TEST(Opcodes, FastMath) {
  auto const product = [](std::uint64_t a, std::uint64_t b) {
    return result_of(
        ".reg .f32 %f<3>;\n.reg .b32 %i<3>;\ncvt.u32.u64 %i0, %a1;\ncvt.u32.u64 %i1, %a2;\nmov.b32 %f0, "
        "%i0;\n"
        "mov.b32 %f1, %i1;\nmul.rn.ftz.f32 %f2, %f0, %f1;\nmov.b32 %i2, %f2;\ncvt.u64.u32 %a5, %i2;",
        a, b);
  };
  EXPECT_EQ(product(0x40000000, 0x40400000), 0x40c00000U);
  EXPECT_EQ(product(0x00800000, 0x3f000000), 0U) << "half of the smallest normal number";
  EXPECT_EQ(product(0x80000001, 0x4b000000), 0x80000000U);
  auto const inverse = [](std::string const& op, std::string const& of) {
    return result_of(".reg .f32 %f<2>;\n.reg .b32 %i0;\nmov.f32 %f0, 0f" + of + ";\n" + op +
                     ".f32 %f1, %f0;\nmov.b32 %i0, %f1;\ncvt.u64.u32 %a5, %i0;");
  };
  EXPECT_EQ(inverse("rcp.approx.ftz", "40400000"), 0x3eaaaaaaU);
  EXPECT_EQ(inverse("rcp.approx", "40400000"), 0x3eaaaaaaU);
  EXPECT_EQ(inverse("rcp.rn.ftz", "40400000"), 0x3eaaaaabU);
  EXPECT_EQ(inverse("rcp.rn.ftz", "7f000000"), 0U) << "2^-127";
  EXPECT_EQ(inverse("rcp.rn.ftz", "00400000"), 0x7f800000U) << "of 0";
  EXPECT_EQ(inverse("rcp.approx", "7f000000"), 0x003fffffU);
}

/// Nothing is guessed: what rounds otherwise or flushes to zero is a fault, when it is executed.
TEST(Opcodes, WhatIsNotKnownIsAFault) {
  for (std::string const op :
       {"add.ftz.f32", "mul.rz.f32", "add.rz.f32", "add.sat.f32", "div.approx.f32", "div.full.f32"}) {
    SCOPED_TRACE(op);
    std::string const body =
        ".reg .f32 %f<3>;\nmov.f32 %f0, 0f3F800000;\n" + op + " %f1, %f0, %f0;\nmov.u64 %a5, 1;";
    EXPECT_THROW(result_of(body), fault);
    EXPECT_EQ(result_of("bra over;\n" + body + "\nover:\nmov.u64 %a5, 2;"), 2U);
  }
}

}  // namespace
