// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Memory, warps and control of the interpreter.

#include "kernel_test.hpp"

namespace {

using namespace emulator;
using namespace emulator::test;

// ---- Loads and stores

TEST(InterpreterMemory, EachTypeExtendsToItsRegister) {
  for (string const& type : split("u8 s8 b8 u16 s16 b16 u32 s32 b32 u64 s64 b64")) {
    for (string const& to : split("%h1 %r1 %d10")) {
      unsigned const bytes = type_of(type).bytes, width = to == "%h1" ? 2 : to == "%r1" ? 4 : 8;
      for (uint64_t const bits : {0x8192'a3b4'c5d6'e7f8ULL, 0x0112'2334'4556'6778ULL}) {
        if (bytes > width) continue;
        uint64_t const low = bits & mask_of(bytes), sign = 1ULL << (8 * bytes - 1);
        uint64_t const extended = (type[0] == 's' ? (low ^ sign) - sign : low) & mask_of(width);
        string body =
            "ld.global.TYPE R, [%d1+8]; st.global.u64 [%d0], 0; st.global.u64 [%d0+8], -1;"
            "st.global.bWIDTH [%d0], R; st.global.TYPE [%d0+8], R;";
        body = replaced(replaced(replaced(body, "R", to), "TYPE", type), "WIDTH", std::to_string(8 * width));
        device d{.block = {1}};
        EXPECT_EQ(d.results<uint64_t>(body, 2, {d.upload<uint64_t>({0, bits})}),
                  (list<uint64_t>{extended, ~mask_of(bytes) | low}))
            << type << " " << to;
      }
    }
  }
}

TEST(InterpreterMemory, FloatsAndVectors) {
  device d{.block = {1}};
  uint64_t const at = d.upload<uint64_t>({0x8192'a3b4'c5d6'e7f8, 0x1122'3344'5566'7788});
  EXPECT_EQ(d.results(R"(
      ld.global.f32 %f1, [%d1]; ld.global.f64 %g1, [%d1+8]; st.global.f32 [%d0], %f1; st.global.f32 [%d0+4], 0f3F800000;
      st.global.f64 [%d0+8], %g1; ld.global.v2.f64 {%g2, %g3}, [%d1]; st.global.v2.f64 [%d0+16], {%g3, %g2};
      ld.global.v4.u32 {%r1, _, %r3, %r4}, [%d1]; st.global.v4.b32 [%d0+32], {%r4, %r3, %r1, 7};
      ld.global.v4.s8 {%r1, %r2, %r3, %r4}, [%d1+4]; st.global.v4.b32 [%d0+48], {%r1, %r2, %r3, %r4};
      ld.global.v2.s16 {%r1, %r2}, [%d1+8]; st.global.v2.u16 [%d0+64], {%r2, %r1};
      st.global.v4.u8 [%d0+68], {1, 2, 3, %r1};)",
                      18, {at}),
            (words{0xc5d6'e7f8, 0x3f80'0000, 0x5566'7788, 0x1122'3344, 0x5566'7788, 0x1122'3344, 0xc5d6'e7f8,
                   0x8192'a3b4, 0x1122'3344, 0x5566'7788, 0xc5d6'e7f8, 7, 0xffff'ffb4, 0xffff'ffa3,
                   0xffff'ff92, 0xffff'ff81, 0x7788'5566, 0x8803'0201}));
  EXPECT_EQ(std::pair(d.count.loads, d.count.loaded_bytes), std::pair(uint64_t{6}, uint64_t{52}));
  EXPECT_EQ(std::pair(d.count.stores, d.count.stored_bytes), std::pair(uint64_t{8}, uint64_t{72}));
}

TEST(InterpreterMemory, Parameters) {
  device d{.block = {1}};
  uint64_t const at = d.m.allocate(28, "results");
  std::array<unsigned char, 32> bytes{};
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0x7e));
  std::memcpy(bytes.data(), &at, 8);
  d.run_text(R"(
      .entry k(.param .u64 .ptr .global .align 4 out, .param .align 4 .b8 s[12], .param .s16 h, .param .u32 w) {
        .reg .b64 %d<2>; .reg .b32 %r<8>; ld.param.u64 %d0, [out]; ld.param.v4.u8 {%r0, %r1, %r2, %r3}, [s+4];
        ld.param.s16 %r4, [h]; ld.param.u32 %r5, [w]; ld.param.s8 %r6, [s+11]; st.global.v2.u32 [%d0+16], {%r4, %r5};
        st.global.v4.u32 [%d0], {%r0, %r1, %r2, %r3}; st.global.u32 [%d0+24], %r6; })",
             std::as_bytes(std::span(bytes)));
  EXPECT_EQ(d.download<uint32_t>(at, 7),
            (words{0x8a, 0x8b, 0x8c, 0x8d, 0xffff'9392, 0x9998'9796, 0xffff'ff91}));
}

TEST(InterpreterMemory, GenericAddressesAndVariables) {
  device d{.before = R"(.shared .align 4 .b8 s[256]; .extern .shared .align 16 .b8 dyn[];
      .const .align 2 .s16 c[3] = {-1, 2, 0x7fff}; .visible .global .f32 f = 0f3FC00000; .global .align 8 .u64 z;)"};
  d.dynamic = 4;
  EXPECT_EQ(d.results(R"(
      mov.u64 %d4, s; mad.wide.u32 %d4, %r0, 4, %d4; cvta.shared.u64 %d5, %d4; st.shared.u32 [%d4], %r0;
      ld.u32 %r1, [%d5]; add.u32 %r1, %r1, 100; st.u32 [%d5+128], %r1; ld.shared.u32 %r2, [%d4+128];
      cvta.to.shared.u64 %d6, %d5; ld.shared.u32 %r3, [%d6]; add.u32 %r2, %r2, %r3; st.u32 [%d8], %r2;)"),
            of_lanes([](uint32_t l) { return 2 * l + 100; }));
  EXPECT_EQ(d.results(R"(.local .align 8 .b8 depot[16];
      mov.u64 %d4, depot; cvta.local.u64 %d5, %d4; st.local.u32 [%d4+8], %r0; ld.u32 %r1, [%d5+8];
      add.u32 %r1, %r1, 1; st.u32 [%d5+12], %r1; ld.local.u32 %r2, [depot+12]; st.global.u32 [%d8], %r2;)"),
            of_lanes([](uint32_t l) { return l + 1; }));
  d.block = {1};
  EXPECT_EQ(d.results(R"(
      ld.const.s16 %r1, [c]; mov.u64 %d4, c; ld.const.s16 %r2, [%d4+4]; ld.global.f32 %f1, [f]; ld.global.u64 %d5, [z];
      cvta.global.u64 %d6, f; ld.u32 %r3, [%d6]; mov.u32 %r4, 5; st.shared.u32 [dyn], %r4; ld.shared.u32 %r5, [dyn];
      st.global.v2.u32 [%d0], {%r1, %r2}; st.global.f32 [%d0+8], %f1; st.global.u32 [%d0+12], %d5;
      st.global.v2.u32 [%d0+16], {%r3, %r5};)",
                      6),
            (words{0xffff'ffff, 0x7fff, 0x3fc0'0000, 0, 0x3fc0'0000, 5}));
  loaded_module module(R"(.global .align 4 .u32 v[2] = {7, 8};
      .entry k() { .reg .b32 %r1; ld.global.u32 %r1, [v+4]; st.global.u32 [v], %r1; })",
                       d.m);
  emulator::run(module.kernel("k"), {}, d.m);
  EXPECT_EQ(d.download<uint32_t>(module.address_of("v"), 2), (words{8, 8}));
}

// ---- Atomic operations and reductions, of which `next` is one step

template <class T>
uint64_t next(string const& op, uint64_t old, uint64_t b, uint64_t c) {
  if (op == "exch") return b;
  if (op == "cas") return old == b ? c : old;
  if (op == "and") return old & b;
  if (op == "or") return old | b;
  if (op == "xor") return old ^ b;
  if (op == "inc") return old < b ? old + 1 : 0;
  if (op == "dec") return old != 0 && old <= b ? old - 1 : b;
  T x, y;
  std::memcpy(&x, &old, sizeof(T));
  std::memcpy(&y, &b, sizeof(T));
  T const z = op == "add" ? x + y : op == "min" ? std::min(x, y) : std::max(x, y);
  std::memcpy(&b, &z, sizeof(T));
  return b & mask_of(sizeof(T));
}

uint64_t next(string const& op, string const& type, uint64_t old, uint64_t b, uint64_t c) {
  bool const wide = type.substr(1) == "64";
  if (type[0] == 'f') return wide ? next<double>(op, old, b, c) : next<float>(op, old, b, c);
  if (type[0] == 's') return wide ? next<int64_t>(op, old, b, c) : next<int32_t>(op, old, b, c);
  return wide ? next<uint64_t>(op, old, b, c) : next<uint32_t>(op, old, b, c);
}

TEST(InterpreterAtomics, LanesOneAfterTheOther) {
  for (string const& operation :
       split("add.u32 add.s32 add.u64 add.f32 add.f64 exch.b32 exch.b64 cas.b32 cas.b64 "
             "and.b32 and.b64 or.b32 or.b64 xor.b32 xor.b64 min.u32 min.s32 min.u64 "
             "min.s64 max.u32 max.s32 max.u64 max.s64 inc.u32 dec.u32")) {
    string const op = operation.substr(0, operation.find('.')), type = operation.substr(op.size() + 1);
    unsigned const bytes = type_of(type).bytes;
    auto const bits = [&](int v) -> uint64_t {
      if (type == "f32") return std::bit_cast<uint32_t>(0.1F * static_cast<float>(v));
      if (type == "f64") return std::bit_cast<uint64_t>(0.1 * v);
      return static_cast<uint64_t>(int64_t{v}) & mask_of(bytes);
    };
    list<uint64_t> in, old;
    uint64_t value = bits(2);
    for (int l = 0; l < 32; ++l) {
      in.push_back(bits(op == "inc" || op == "dec" ? l % 4 + 2 : op == "cas" ? 2 + l / 2 : l * 11 % 17 - 6));
      in.push_back(bits(3 + l / 2));
      old.push_back(value);
      value = next(op, type, value, in[in.size() - 2], in.back());
    }
    for (string const& word : split("atom.global atom.shared red.global red.shared")) {
      bool const red = word[0] == 'r';
      if (red && (op == "exch" || op == "cas")) continue;
      string body = R"(
          mov.u64 %d4, AT; mov.u64 %d14, 0; mov.u32 %r14, 0; setp.eq.u32 %p1, %r0, 0; mad.wide.u32 %d5, %r0, 16, %d1;
          ld.global.uBITS R2, [%d5]; ld.global.uBITS R3, [%d5+8]; ld.global.uBITS R5, [%d2]; st.global.u64 [%d9], 0;
          @%p1 st.SPACE.uBITS [%d4], R5; bar.warp.sync -1; OPERATION st.global.bBITS [%d9], R4; bar.warp.sync -1;
          ld.SPACE.uBITS R6, [%d4]; st.global.u64 [%d0+256], 0; bar.warp.sync -1; st.global.uBITS [%d0+256], R6;)";
      body = replaced(
          body, "OPERATION",
          word + "." + operation + (red ? " [%d4], R2" : " R4, [%d4], R2") + (op == "cas" ? ", R3;" : ";"));
      body = replaced(replaced(body, "SPACE", word.substr(word.find('.') + 1)), "BITS",
                      std::to_string(8 * bytes));
      body = replaced(replaced(body, "AT", word.find("shared") != string::npos ? "s" : "%d3"), "R",
                      bytes == 8 ? "%d1" : "%r1");
      device d{.before = ".shared .align 8 .b8 s[8];"};
      uint64_t const cell = d.m.allocate(8, "cell"), first = d.upload<uint64_t>({bits(2)});
      auto const got = d.results<uint64_t>(body, 33, {d.upload(in), first, cell});
      EXPECT_EQ(got.back(), value) << word << "." << operation;
      EXPECT_EQ(list<uint64_t>(got.begin(), got.end() - 1), red ? list<uint64_t>(32, 0) : old) << operation;
      EXPECT_EQ(d.count.atomics, 32U);
    }
  }
}

// ---- What a warp's lanes do together

TEST(InterpreterWarp, Shuffles) {
  for (string const& mode : split("idx up down bfly")) {
    for (int const k : of_lanes([](uint32_t i) { return i; }, 9 * 32)) {
      int const width = 32 >> k / 96, clamp = std::array{0, 5, 31}[k / 32 % 3], b = k % 32;
      device d;
      auto const got = d.results(replaced(R"(
          cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; mul.lo.u32 %r3, %r0, 3; shfl.sync.MODE.b32 %r4|%p1, %r3, %r1, %r2, -1;
          selp.u32 %r5, 1000, 0, %p1; add.u32 %r4, %r4, %r5; st.global.u32 [%d8], %r4;)",
                                          "MODE", mode),
                                 32, {uint64_t(b), uint64_t((32 - width) << 8 | clamp)});
      // Segments of `width` lanes; the bound is the clamp within a segment.
      auto const expected = of_lanes([&](uint32_t lane) {
        int const l = int(lane), first = l / width * width, bound = first + clamp % width;
        int const j = mode == "idx"    ? first + b % width
                      : mode == "up"   ? l - b
                      : mode == "down" ? l + b
                                       : l ^ b;
        bool const valid = mode == "up" ? j >= bound : j <= bound;
        return uint32_t(3 * (valid ? j : l) + (valid ? 1000 : 0));
      });
      ASSERT_EQ(got, expected) << mode << " width " << width << " clamp " << clamp << " by " << b;
    }
  }
}

TEST(InterpreterWarp, Votes) {
  for (uint32_t const votes : {0U, ~0U, 1U, 0x8000'0000U, 0x0f0f'0f0fU, 0x000f'ffffU, 0xfff0'0000U}) {
    for (uint32_t const members : {~0U, 0x000f'ffffU}) {
      uint32_t const in = votes & members;
      uint32_t const bits =
          (in != 0) + 2U * (in == members) + 4U * (in == 0 || in == members) + 8U * (in != members);
      device d;
      auto const got = d.results(R"(
          cvt.u32.u64 %r1, %d1; cvt.u32.u64 %r2, %d2; st.global.v2.u32 [%d9], {0, 0}; mov.u32 %r3, %lanemask_eq;
          and.b32 %r4, %r3, %r2; setp.eq.u32 %p0, %r4, 0; @%p0 ret; and.b32 %r4, %r3, %r1; setp.ne.u32 %p1, %r4, 0;
          vote.sync.ballot.b32 %r5, %p1, %r2; vote.sync.any.pred %p2, %p1, %r2; vote.sync.all.pred %p3, %p1, %r2;
          vote.sync.uni.pred %p4, %p1, %r2; vote.sync.any.pred %p5, !%p1, %r2;
          selp.u32 %r6, 1, 0, %p2; @%p3 add.u32 %r6, %r6, 2; @%p4 add.u32 %r6, %r6, 4; @%p5 add.u32 %r6, %r6, 8;
          st.global.v2.u32 [%d9], {%r5, %r6};)",
                                 64, {votes, members});
      EXPECT_EQ(
          got,
          of_lanes([&](uint32_t k) { return (members >> k / 2 & 1) == 0 ? 0
                                            : k % 2 != 0                ? bits
                                                                        : in; }, 64));
    }
  }
}

TEST(InterpreterWarp, ReductionsAndActiveLanes) {
  device d;
  for (string const& op : split("add.s32 add.u32 min.s32 min.u32 max.s32 max.u32 and.b32 or.b32 xor.b32")) {
    auto const value = [](uint32_t l) { return l * 0x0765'4321U ^ 0x8000'0007U; };
    uint64_t all = value(0);
    for (uint32_t l = 1; l < 20; ++l)
      all = next(op.substr(0, op.find('.')), op[0] == 'a' ? "u32" : op.substr(4), all, value(l), 0);
    EXPECT_EQ(
        d.results(replaced(R"(mul.lo.u32 %r1, %r0, 0x7654321; xor.b32 %r1, %r1, 0x80000007; mov.u32 %r2, 0;
        setp.lt.u32 %p1, %r0, 20; @%p1 redux.sync.OP %r2, %r1, 0xfffff; st.global.u32 [%d8], %r2;)",
                           "OP", op)),
        of_lanes([&](uint32_t l) { return l < 20 ? uint32_t(all) : 0; }))
        << op;
  }
  EXPECT_EQ(
      d.results(
          "setp.lt.u32 %p1, %r0, 7; activemask.b32 %r1; @%p1 activemask.b32 %r1; st.global.u32 [%d8], %r1;"),
      of_lanes([](uint32_t l) { return l < 7 ? 0x7f : ~0U; }));
}

TEST(InterpreterWarp, GroupsAtTheSameInstructionStayApart) {
  device d;
  string const body = R"(
      setp.lt.u32 %p1, %r0, 16; selp.b32 %r1, 0xffff, 0xffff0000, %p1; setp.ne.u32 %p2, %r0, 3;
      OP st.global.u32 [%d8], %r2;)";
  for (auto const& [op, low, high] : list<std::tuple<string, uint32_t, uint32_t>>{
           {"vote.sync.ballot.b32 %r2, %p2, %r1;", 0xfff7, 0xffff'0000},
           {"vote.sync.all.pred %p3, %p2, %r1; selp.u32 %r2, 1, 0, %p3;", 0, 1},
           {"redux.sync.add.u32 %r2, %r0, %r1;", 120, 376},
           {"vote.sync.any.pred %p3, !%p2, %r1; selp.u32 %r2, 1, 0, %p3;", 1, 0}}) {
    EXPECT_EQ(d.results(replaced(body, "OP", op)), of_lanes([&](uint32_t l) { return l < 16 ? low : high; }))
        << op;
  }
  EXPECT_THAT(d.fault_of(replaced(body, "OP", "shfl.sync.bfly.b32 %r2, %r0, 16, 31, %r1;")),
              HasSubstr("a shuffle from lane 16"));
}

TEST(InterpreterWarp, BarriersOfSomeLanesAndOfBothSidesOfABranch) {
  device d{.before = ".shared .align 4 .b8 s[128];"};
  string const exchange = R"(
      mov.u64 %d5, s; mad.wide.u32 %d4, %r0, 4, %d5; xor.b32 %r1, %r0, 1; mad.wide.u32 %d5, %r1, 4, %d5; mov.u32 %r2, 77;
      setp.lt.u32 %p1, %r0, 10; and.b32 %r3, %r0, 1; setp.eq.u32 %p2, %r3, 0;)";
  EXPECT_EQ(
      d.results(exchange +
                R"(@!%p1 bra END; st.shared.u32 [%d4], %r0; bar.warp.sync 0x3ff; ld.shared.u32 %r2, [%d5];
      END: st.global.u32 [%d8], %r2;)"),
      of_lanes([](uint32_t l) { return l < 10 ? l ^ 1 : 77; }));
  EXPECT_EQ(d.results(exchange +
                      R"(st.shared.u32 [%d4], %r0; @%p2 bra EVEN; bar.warp.sync -1; ld.shared.u32 %r2, [%d5];
      bra END; EVEN: bar.warp.sync -1; ld.shared.u32 %r2, [%d5]; add.u32 %r2, %r2, 100; END: st.global.u32 [%d8], %r2;)"),
            of_lanes([](uint32_t l) { return l % 2 == 0 ? l + 101 : l - 1; }));
}

// ---- Control

TEST(InterpreterControl, LoopsOfDifferentLengthNestedBranchesAndEarlyExits) {
  device d;
  EXPECT_EQ(d.results(R"(mov.u32 %r1, 0; mov.u32 %r2, 0;
      LOOP: add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r0; @%p1 bra LOOP;
      st.global.u32 [%d8], %r1;)"),
            of_lanes([](uint32_t l) { return l * (l + 1) / 2; }));
  EXPECT_EQ(d.results(R"(
      st.global.u32 [%d8], 0; and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r0, 8;
      setp.ge.u32 %p3, %r0, 24; @%p1 bra EVEN; mov.u32 %r2, 10; @%p2 bra JOIN; mov.u32 %r2, 20; @%p3 ret; bra JOIN;
      EVEN: mov.u32 %r2, 1; @!%p2 bra MORE; add.u32 %r2, %r2, 1; bra JOIN; MORE: @%p3 bra JOIN; add.u32 %r2, %r2, 3;
      JOIN: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r2, %r3, 100, %r2; st.global.u32 [%d8], %r2;)"),
            of_lanes([](uint32_t l) {
              if (l % 2 == 1) return l < 8 ? 2810U : l < 24 ? 2820U : 0U;
              return l < 8 ? 2802U : l < 24 ? 2804U : 2801U;
            }));
}

TEST(InterpreterControl, PathsMeetWhereTheyJoin) {
  device d;
  string const body =
      R"(setp.lt.u32 %p1, %r0, 9; @%p1 bra ELSE; add.u32 %r1, %r0, 1; bra JOIN; ELSE: add.u32 %r1, %r0, 2;
      JOIN: MORE st.global.u32 [%d8], %r1;)";
  EXPECT_EQ(d.results(replaced(body, "MORE", "")),
            of_lanes([](uint32_t l) { return l < 9 ? l + 2 : l + 1; }));
  auto const before = d.count;
  d.results(replaced(body, "MORE", "mul.lo.u32 %r2, %r1, 3; mul.lo.u32 %r2, %r2, %r1;"));
  EXPECT_EQ(d.count.warp_instructions, before.warp_instructions + 2);  // once each for all lanes
  EXPECT_EQ(d.count.instructions, before.instructions + 64);
}

TEST(InterpreterControl, Functions) {
  device d{.before = R"(
    .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
    .global .align 1 .b8 text[7] = {120, 32, 62, 32, 49, 55, 0};
    .func (.param .b32 result) twice(.param .b32 x, .param .align 8 .b8 y[8]) {
      .reg .b32 %r<3>; .reg .pred %p1; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y+4]; setp.gt.u32 %p1, %r1, 15;
      @%p1 bra DONE; add.u32 %r1, %r1, %r1; st.param.b32 [result], %r1; ret;
      DONE: add.u32 %r1, %r1, %r2; st.param.b32 [result], %r1; ret; })"};
  string const call =
      R"({ .param .b32 in; st.param.b32 [in], %r1; .param .align 8 .b8 in2[8]; st.param.v2.b32 [in2], {%r0, 5};
      .param .b32 out; call.uni (out), twice, (in, in2); ld.param.b32 %r1, [out]; })";
  auto const twice = [](uint32_t x) { return x > 15 ? x + 5 : 2 * x; };
  EXPECT_EQ(d.results("mov.u32 %r1, %r0;" + call + call + "st.global.u32 [%d8], %r1;"),
            of_lanes([&](uint32_t l) { return twice(twice(l)); }));
  EXPECT_THAT(
      d.fault_of(R"(setp.le.u32 %p1, %r0, 17; @%p1 bra END; cvta.global.u64 %d4, text; { .param .b64 a;
      st.param.b64 [a], %d4; .param .b64 b; .param .b32 c; .param .b64 e; call.uni __assertfail, (a, b, c, a, e); } END:)"),
      AllOf(HasSubstr("assertion failed: x > 17"), HasSubstr("kernel k"), HasSubstr("thread (18, 0, 0)")));
}

TEST(InterpreterControl, PlacesOfThreads) {
  for (dimensions const& block : list<dimensions>{{1}, {31}, {33}, {1024}, {7, 5}, {3, 4, 5}}) {
    dimensions const grid{1 + block.x % 3, block.y, 1 + block.z % 2};
    string body = R"(mad.lo.u32 %r1, %tid.z, %ntid.y, %tid.y; mad.lo.u32 %r1, %r1, %ntid.x, %tid.x;
        mad.lo.u32 %r2, %ctaid.z, %nctaid.y, %ctaid.y; mad.lo.u32 %r2, %r2, %nctaid.x, %ctaid.x;
        mul.lo.u32 %r3, %ntid.x, %ntid.y; mul.lo.u32 %r3, %r3, %ntid.z; mad.lo.u32 %r3, %r2, %r3, %r1;
        mad.wide.u32 %d4, %r3, 64, %d0; st.global.v2.u32 [%d4], {%r1, %r2};)";
    int at = 8;
    for (string const& special :
         split("laneid warpid lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge "
               "tid.x tid.y tid.z ctaid.x ctaid.y ctaid.z nctaid.z")) {
      body += "mov.u32 %r5, %" + special + "; st.global.u32 [%d4+" + std::to_string(at) + "], %r5;";
      at += 4;
    }
    words expected;
    uint32_t const threads = block.x * block.y * block.z, blocks = grid.x * grid.y * grid.z;
    for (uint32_t k = 0; k < threads * blocks; ++k) {
      uint32_t const b = k / threads, t = k % threads, eq = 1U << t % 32;
      for (uint32_t const v : {t, b, t % 32, t / 32, eq, eq - 1, 2 * eq - 1, ~(2 * eq - 1), ~(eq - 1),
                               t % block.x, t / block.x % block.y, t / block.x / block.y, b % grid.x,
                               b / grid.x % grid.y, b / grid.x / grid.y, grid.z})
        expected.push_back(v);
    }
    device d{.block = block, .grid = grid};
    EXPECT_EQ(d.results(body, expected.size()), expected) << block.x << " " << block.y << " " << block.z;
  }
}

/// What changes nothing but time.
TEST(InterpreterControl, FencesClocksAndReadOnlyLoads) {
  device d;
  EXPECT_EQ(d.results(R"(
      mov.u64 %d4, %clock64; membar.cta; membar.gl; membar.sys; fence.acq_rel.gpu; fence.sc.sys; nanosleep.u32 100;
      mov.u64 %d5, %clock64; setp.ge.u64 %p1, %d5, %d4; ld.global.nc.u32 %r1, [%d1]; @!%p1 mov.u32 %r1, 0;
      st.global.u32 [%d8], %r1;)",
                      32, {d.upload(words{1234})}),
            words(32, 1234));
}

TEST(InterpreterControl, BarriersOfABlock) {
  device d{.before = ".shared .align 4 .b8 s[512];", .block = {128}};
  for (auto const& [barrier, times] : list<std::pair<string, unsigned>>{
           {"bar.sync 0;", 1}, {"@%p1 bra LOW; bar.sync 2, 64; bra ON; LOW: bar.sync 1, 64; ON:", 1}}) {
    EXPECT_EQ(
        d.results(
            R"(mov.u64 %d5, s; mad.wide.u32 %d4, %r0, 4, %d5; xor.b32 %r1, %r0, 32; mad.wide.u32 %d5, %r1, 4, %d5;
        st.shared.u32 [%d4], %r0; setp.lt.u32 %p1, %r0, 64;)" +
                barrier + "ld.shared.u32 %r2, [%d5]; st.global.u32 [%d8], %r2;",
            128),
        of_lanes([](uint32_t t) { return t ^ 32; }, 128));
    EXPECT_EQ(d.count.barriers, times);
  }
  for (uint64_t const yes : {0, 1, 127, 128}) {  // so many threads say yes
    EXPECT_EQ(d.results(R"(cvt.u32.u64 %r1, %d1; setp.lt.u32 %p1, %r0, %r1; bar.red.or.pred %p2, 0, %p1;
        bar.red.and.pred %p3, 0, %p1; bar.red.or.pred %p4, 0, !%p1; selp.u32 %r2, 1, 0, %p2; @%p3 add.u32 %r2, %r2, 2;
        @%p4 add.u32 %r2, %r2, 4; st.global.u32 [%d8], %r2;)",
                        128, {yes}),
              words(128, (yes > 0) + 2U * (yes == 128) + 4U * (yes < 128)));
  }
}

}  // namespace
