// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief What the interpreter reports, and what it does not.

#include "kernel_test.hpp"

namespace {

using namespace emulator;
using namespace emulator::test;

// ---- Checks

TEST(InterpreterChecks, Addresses) {
  device d{.before = ".shared .align 8 .b8 s[23];", .block = {1}};
  uint64_t const a = d.upload(list<unsigned char>(23, 1)), gone = d.upload(words(4));
  d.m.free(gone);
  expect_faults(R"(
      ld.global.u32 %r1, [%d1+16]; ld.global.u8 %r1, [%d1+22]; st.shared.u8 [%d5+22], 0; st.local.u8 [%d4+22], 0; =>
      ld.global.u32 %r1, [%d1+20]; => out of bounds: 4 bytes || ld.global.u32 %r1, [%d1+20]; => 20 bytes into input of 23
      ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1+16]; => out of bounds: 16 bytes
      ld.global.u8 %r1, [%d1+-1]; => out of bounds: 1 bytes || st.global.u8 [%d1+23], %r0; => out of bounds: 1 bytes
      atom.global.add.u32 %r1, [%d1+20], 1; => out of bounds: 4 bytes
      ld.global.u32 %r1, [%d3]; => where nothing is allocated || ld.global.u32 %r1, [%d1+2]; => misaligned: 4 bytes
      ld.global.v2.u32 {%r1, %r2}, [%d1+4]; => misaligned: 8 bytes
      st.global.u32 [%d2+4], 1; => input, which is freed || ld.u8 %r1, [%d2]; => use after free
      st.shared.u32 [%d5+20], 0; => out of bounds: 4 bytes at 20 of 23 bytes of shared memory
      st.shared.u8 [%d5+23], 0; => bytes of shared memory || st.shared.u8 [%d5+-1], 0; => shared memory
      ld.shared.u8 %r1, [%d5+-1]; => shared memory || ld.u8 %r1, [%d6+23]; => bytes of shared memory
      ld.shared.u16 %r1, [%d5+1]; => misaligned: 2 bytes || st.local.u32 [%d4+20], 0; => bytes of local memory
      st.u8 [%d7+23], 0; => bytes of local memory || st.local.u8 [%d4+-1], 0; => local memory
      ld.global.u8 %r1, [%d6]; => an address of shared memory in another space
      ld.shared.u8 %r1, [%d7]; => memory || ld.shared.u8 %r1, [%d0]; => shared memory
      ld.shared.u8 %r1, [%d6]; => shared memory || st.param.u32 [p0], %r0; => a write to parameters
      ld.param.u64 %d10, [p0+32]; => 8 bytes at 32 of 32 bytes of parameters)",
                [&](string const& body) {
                  return d.fault_of(R"(.local .align 8 .b8 l[23]; mov.u64 %d4, l; mov.u64 %d5, s;
                      cvta.shared.u64 %d6, %d5; cvta.local.u64 %d7, %d4;)" +
                                        body,
                                    {a, gone, 0});
                });
  EXPECT_THAT(message([&] { d.m.free(gone); }), HasSubstr("freed already"));
  EXPECT_THAT(message([&] { d.m.free(a + 4); }), HasSubstr("nothing was allocated"));
  for (int k = 0; k < 100; ++k) EXPECT_GT(d.m.allocate(16, "new"), gone + 16);
  std::array<std::byte, 8> const bytes{};
  EXPECT_THAT(message([&] {
                d.run_text(".entry k(.param .u32 a, .param .u32 b) { .reg .b64 %d; ld.param.u64 %d, [a]; }",
                           bytes);
              }),
              HasSubstr("across parameters"));
  EXPECT_THAT(message([&] { d.run_text(".entry k(.param .u64 a, .param .u32 b) { }", bytes); }),
              HasSubstr("takes 12 bytes of parameters, given are 8"));
}

TEST(InterpreterChecks, RacesInSharedMemory) {
  // A and B are threads of one warp, C is of another; V says volatile.
  expect_faults(
      R"(
      @A WRITE @B READ => a read of byte 0, which thread 0 has written || @A WRITE @B WRITE => thread 0 has written
      @A READ @B WRITE => a write of byte 0, which thread 0 has read || @A WRITE @C WRITE => thread 0 has written
      @A WRITE @C READ => thread 0 has written with no barrier between || @A READ @C WRITE => thread 0 has read
      @A WRITE @B st.shared.u8 [s+3], 0; => a write of byte 3 || @A WRITE @B st.shared.u8 [s+4], 0; =>
      @A READ @B READ @C READ @A READ => || @A WRITE WARP @B READ => || @A READ WARP @B WRITE =>
      @A WRITE WARP @B WRITE => || @A WRITE WARP @C READ => race || @A WRITE BLOCK @C READ =>
      @A READ @B READ BLOCK @C WRITE => || @A WRITE BLOCK @C WRITE => || ADD ADD => || ADD @C READ => race
      @A WRITE @B ADD => race || @A WRITEV @B READV @C READV @C ADD @A READV @B WRITEV =>
      @A WRITEV @C READ => race || @A WRITE @B READV => race || @A READ WARP @B READ @B WRITE =>
      @A READ WARP @A READ @B WRITE => race || @A READV @A READ @B WRITEV => race || READ @B WRITE => race
      @A READ @B READ @B WRITE => race || @A READ @C READ @C WRITE => race || @A READ @B READV @C WRITEV => race
      @A SAME @B SAME => || @A SAME @C SAME => || @A SAME @B SAME @C READ => race || @A SAME @A WRITE @B SAME => race)",
      [](string text) {
        device d{.before = ".shared .align 8 .b8 s[8];", .block = {64}};
        text = replaced(text, {{"@A", "@%p1"},
                               {"@B", "@%p2"},
                               {"@C", "@%p3"},
                               {"WRITEV", "st.volatile.shared.u32 [s], 1;"},
                               {"READV", "ld.volatile.shared.u32 %r1, [s];"},
                               {"WRITE", "st.shared.u32 [s], %r3;"},
                               {"SAME", "st.shared.u32 [s], 7;"},
                               {"READ", "ld.shared.u32 %r1, [s];"},
                               {"ADD", "atom.shared.add.u32 %r2, [s], 1;"},
                               {"WARP", "bar.warp.sync -1;"},
                               {"BLOCK", "bar.sync 0;"}});
        return d.fault_of(R"(setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 31; setp.eq.u32 %p3, %r0, 63;
                      add.u32 %r3, %r0, 0x1010101; @%p1 st.shared.u64 [s], 0; bar.sync 0;)" +
                          text);
      });
}

TEST(InterpreterChecks, RacesInGlobalMemory) {
  // A and B are threads of one warp, C is of another, D and E are of another block. D comes after A, B and C, E after D.
  expect_faults(
      R"(
      @A WRITE @A READ => || @A WRITE @B READ => a read of byte 0 of input, which thread 0 of block 0 has written with no barrier
      @A WRITE @C READ => no barrier || @A WRITE WARP @B READ => || @A WRITE WARP @C READ => race || @A WRITE BLOCK @C READ =>
      @A WRITE @B WRITE => a write of byte 0 || @A WRITE @B st.global.u8 [%d1+3], 0; => race || @A WRITE @B st.global.u8 [%d1+4], 0; =>
      @A SAME @C SAME @D SAME => || @A SAME @A WRITE @B SAME => race || @A WRITEV @C READV @D READV @D WRITEV =>
      @A WRITEV @C READ => race || @A WRITE @B READV => race || ADD ADD => || @A ADD @D READ => race || @A READ @C WRITE =>
      @A WRITE @D READ => which thread 0 of block 0 has written with no fence and atomic operation || @A WRITE @D WRITE => race
      @A WRITE @A COUNT @D COUNT @D READ => race || @A WRITE FENCE @D READ => race || @A COUNT @A WRITE FENCE @D COUNT @D READ => race
      @A WRITE FENCE @A COUNT @D READ => race || @A WRITE FENCE @A COUNT @D OTHER @D READ => race
      @A WRITE FENCE @A COUNT @D COUNT @D READ => || @A WRITE FENCE @A COUNT @D COUNT @D WRITE =>
      @A FENCE @A WRITE @A COUNT @D COUNT @D READ => race || @A WRITE membar.cta; @A COUNT @D COUNT @D READ => race
      @A WRITE @A fence.acq_rel.gpu; @A COUNT @D COUNT @D READ => || @A WRITE fence.acq_rel.cta; @A COUNT @D COUNT @D READ => race
      @A WRITE @A RELEASE @D COUNT @D READ => || @A WRITE @A RELEASE @D ACQUIRE @D READ =>
      @C WRITE BLOCK @A FENCE @A COUNT @D COUNT @D READ => || @C WRITE @A FENCE BLOCK @A COUNT @D COUNT @D READ => race
      @C WRITE @C FENCE BLOCK @A FENCE @A COUNT @D COUNT @D READ => || @C WRITE @C FENCE @A FENCE @A COUNT @D COUNT @D READ => race
      @A WRITE FENCE @A COUNT @D COUNT BLOCK @D FENCE @D OTHER @E OTHER @E READ =>
      @A WRITE FENCE @A COUNT @D FENCE @D OTHER @E OTHER @E READ => race)",
      [](string text) {
        device d{.block = {64}, .grid = {3}};
        text = replaced(text, {{"@A", "@%p1"},
                               {"@B", "@%p2"},
                               {"@C", "@%p3"},
                               {"@D", "@%p4"},
                               {"@E", "@%p5"},
                               {"WRITEV", "st.volatile.global.u32 [%d1], 1;"},
                               {"READV", "ld.volatile.global.u32 %r1, [%d1];"},
                               {"WRITE", "st.global.u32 [%d1], %r3;"},
                               {"SAME", "st.global.u32 [%d1], 7;"},
                               {"READ", "ld.global.u32 %r1, [%d1];"},
                               {"ADD", "red.global.add.u32 [%d1], 1;"},
                               {"RELEASE", "st.release.gpu.global.u32 [%d1+8], 1;"},
                               {"ACQUIRE", "ld.acquire.gpu.global.u32 %r1, [%d1+8];"},
                               {"COUNT", "atom.global.add.u32 %r2, [%d1+8], 1;"},
                               {"OTHER", "atom.global.add.u32 %r2, [%d1+16], 1;"},
                               {"FENCE", "membar.gl;"},
                               {"WARP", "bar.warp.sync -1;"},
                               {"BLOCK", "bar.sync 0;"}});
        uint64_t const cells = d.upload(words(6));
        return d.fault_of(R"(mov.u32 %r4, %ctaid.x; mad.lo.u32 %r3, %r4, 64, %r0; setp.eq.u32 %p1, %r3, 0;
                      setp.eq.u32 %p2, %r3, 31; setp.eq.u32 %p3, %r3, 63; setp.eq.u32 %p4, %r3, 70;
                      setp.eq.u32 %p5, %r3, 150; add.u32 %r3, %r3, 0x1010101;)" +
                              text,
                          {cells});
      });
}

TEST(InterpreterChecks, BarriersAndMasks) {
  expect_faults(R"(
      @%p1 bar.sync 0; => divergent barrier: 16 of 64 || @%p2 bar.sync 0; => divergent barrier: 32 of 64
      @%p1 bar.sync 0; bar.sync 0; => divergent barrier: thread 0 waits at `@%p1 bar.sync 0`, thread 16
      @%p2 ret; bar.sync 0; => divergent barrier: 32 of 64
      @%p1 bra L; bar.sync 0; ret; L: bar.sync 0; => divergent barrier
      @%p2 bra L; bar.sync 0; ret; L: bar.sync 1; => divergent barrier || @%p2 bra L; bar.sync 0; ret; L: bar.sync 0; =>
      bar.sync 1, 32; => 64 of 32 || shfl.sync.bfly.b32 %r2, %r0, 16, 31, -1; =>
      @%p1 bra L; M: shfl.sync.bfly.b32 %r2, %r0, 16, 31, -1; ret; L: bra M; =>
      @%p1 shfl.sync.bfly.b32 %r2, %r0, 16, 31, %r1; => a shuffle from lane 16
      shfl.sync.idx.b32 %r2, %r0, 0, 31, %r1; => lane 16 is not in its own mask
      @%p3 ret; shfl.sync.idx.b32 %r2, %r0, 31, 31, -1; => lanes 0, 1, which have ended or do not exist
      @!%p3 bra L; ret; L: bar.warp.sync -1; => lanes 0, 1, which have ended
      @!%p3 bra L; bar.warp.sync -1; ret; L: ret; => for lanes that are elsewhere: 2, 3, 4
      @%p3 ret; vote.sync.any.pred %p3, %p2, -1; => have ended
      @%p3 bra L; vote.sync.any.pred %p3, %p2, -1; ret; L: vote.sync.any.pred %p3, %p2, -1; => that are elsewhere
      @%p1 bra L; shfl.sync.idx.b32 %r2, %r0, 0, 31, -1; bra M; L: bar.warp.sync -1; M: => that are elsewhere
      selp.b32 %r2, -1, 0xffff0000, %p1; vote.sync.any.pred %p3, %p1, %r2; => different masks
      @%p1 bra L; bar.warp.sync 0xffff0000; L: =>)",
                [](string const& body) {
                  device d{.block = {body.find("0xffff0000") == string::npos ? 64U : 32U}};
                  return d.fault_of(
                      "setp.lt.u32 %p1, %r0, 16; setp.lt.u32 %p2, %r0, 32; setp.lt.u32 %p3, %r0, 2; mov.u32 "
                      "%r1, 0xffff;" +
                      body);
                });
}

TEST(InterpreterChecks, UndefinedBits) {
  // LOAD gives %r3 and BRANCH tests %r1. The 9th to 11th of 16 bytes are padding in one of these.
  expect_faults(R"(
      ld.global.u32 %r1, [%d1]; BRANCH => uninitialized: bits that nobody wrote reach a branch
      BRANCH => reach a branch || ld.global.u64 %d4, [%d1]; ld.global.u32 %r1, [%d4]; => reach an address
      ld.global.u64 %d4, [%d1]; st.u8 [%d4], 0; => reach an address
      @%p4 mov.u32 %r1, 0; => reach a guard || bar.warp.sync %r7; => reach a mask
      ld.shared.u32 %r1, [s]; BRANCH => reach a branch || .local .align 4 .b8 l[4]; ld.local.u32 %r1, [l]; BRANCH => reach a branch
      LOAD shfl.sync.idx.b32 %r1, %r3, 0, 31, -1; BRANCH => reach a branch
      @%p2 mov.u32 %r1, 0; BRANCH => reach a branch || @%p2 bra OVER; mov.u32 %r1, 0; OVER: BRANCH => reach a branch
      LOAD add.u32 %r4, %r3, 1; mul.lo.u32 %r1, %r4, 3; BRANCH => reach a branch
      LOAD add.u32 %r3, %r3, 1; mov.u32 %r1, %r3; BRANCH => reach a branch
      LOAD selp.u32 %r3, %r3, 1, %p2; mov.u32 %r1, %r3; BRANCH => reach a branch
      red.global.add.u32 [%d1], 1; WARP ld.global.u32 %r1, [%d1]; BRANCH => reach a branch
      st.global.v2.u32 [%d1], {1, 2}; st.global.u8 [%d1+8], 3; st.global.u32 [%d1+12], 4; WARP
      ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]; st.global.v4.u32 [%d1+16], {%r1, %r2, %r3, %r4}; WARP
      ld.global.u32 %r5, [%d1+28]; add.u32 %r1, %r1, %r5; BRANCH =>
      st.global.u8 [%d1], 3; LOAD and.b32 %r1, %r3, 255; BRANCH =>
      st.global.u8 [%d1], 3; LOAD and.b32 %r1, %r3, 511; BRANCH => reach a branch
      st.global.u8 [%d1], 3; LOAD shl.b32 %r4, %r3, 24; shr.u32 %r1, %r4, 24; BRANCH =>
      st.global.u8 [%d1], 3; LOAD shl.b32 %r4, %r3, 23; shr.u32 %r1, %r4, 23; BRANCH => reach a branch
      st.global.u8 [%d1+3], 3; LOAD shr.u32 %r1, %r3, 24; BRANCH =>
      st.global.u8 [%d1+3], 3; LOAD shr.u32 %r1, %r3, 23; BRANCH => reach a branch
      LOAD st.global.u32 [%d1+4], %r3; WARP st.global.u32 [%d1+4], 7; WARP ld.global.u32 %r1, [%d1+4]; BRANCH =>
      LOAD atom.global.exch.b32 %r2, [%d1], 0; WARP ld.global.u32 %r1, [%d1]; BRANCH =>)",
                [](string const& body) {
                  device d{.before = ".shared .align 4 .b8 s[4];"};
                  string const branch = "setp.eq.u32 %p1, %r1, 0; @%p1 bra END; mov.u32 %r2, 0; END:";
                  return d.fault_of(
                      "setp.lt.u32 %p2, %r0, 5;" + replaced(replaced(replaced(body, "BRANCH", branch), "LOAD",
                                                                     "WARP ld.global.u32 %r3, [%d1];"),
                                                            "WARP", "bar.warp.sync -1;"),
                      {d.m.allocate(64, "new")});
                });
  device d{.block = {3}};
  EXPECT_THAT(message([&] { d.results("st.global.u32 [%d8], %r0;", 4); }),
              HasSubstr("uninitialized: byte 12 of a copy to the host, 12 bytes into results"));
  EXPECT_THAT(message([&] { d.results("st.global.u32 [%d8], %r9;", 3); }), HasSubstr("byte 0 of a copy"));
}

TEST(InterpreterChecks, InstructionsAndLaunches) {
  device d{.before = ".extern .shared .align 16 .b8 s[];", .most = 1000};
  expect_faults(R"(
      setp.lt.u32 %p1, %r0, 0; @%p1 ex2.approx.f32 %f2, 0f3F800000; =>
      setp.lt.u32 %p1, %r0, 1; @%p1 ex2.approx.f32 %f2, 0f3F800000; => the interpreter does not know this instruction
      ex2.approx.f32 %f2, 0f3F800000; => instruction ex2.approx.f32 %f2, 0f3F800000
      trap; => trap || setp.ge.u32 %p1, %r0, 5; @%p1 trap; => thread (5, 0, 0)
      L: bra L; => the launch does not end
      setp.eq.u32 %p1, %r0, 0; L: @%p1 bra L; => the launch does not end)",
                [&](string const& body) { return d.fault_of(body); });
  for (auto const& [bytes, what] :
       list<std::pair<uint64_t, string>>{{232448, "race"}, {232449, "227 KiB are possible"}}) {
    d.dynamic = bytes;
    EXPECT_THAT(d.fault_of("st.shared.u8 [s+232447], %r0;"), HasSubstr(what));
  }
  d.dynamic = 0;
  for (dimensions const block : {dimensions{1025}, dimensions{32, 33}, dimensions{0}}) {
    d.block = block;
    EXPECT_THAT(d.fault_of(""), HasSubstr("1 to 1,024 are possible"));
  }
}

// ---- A kernel, and what is wrong with its mutants

TEST(InterpreterChecks, MutantsOfAReduction) {
  string const body = R"(
      mad.wide.u32 %d4, %r0, 4, %d1; ld.global.u32 %r1, [%d4]; mov.u64 %d5, s; mad.wide.u32 %d6, %r0, 4, %d5;
      st.shared.u32 [%d6], %r1; mov.u32 %r2, 128; bar.sync 0;
      LOOP: setp.ge.u32 %p1, %r0, %r2; @%p1 bra SKIP; mad.wide.u32 %d7, %r2, 4, %d6; ld.shared.u32 %r4, [%d7];
      ld.shared.u32 %r5, [%d6]; add.u32 %r5, %r5, %r4; st.shared.u32 [%d6], %r5; SKIP: bar.sync 0;
      shr.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra LOOP; setp.ne.u32 %p3, %r0, 0; @%p3 ret;
      ld.shared.u32 %r6, [s]; st.global.u32 [%d0], %r6;)";
  words in(256);
  std::iota(in.begin(), in.end(), 5U);
  device d{.before = ".shared .align 4 .b8 s[1024];", .block = {256}};
  uint64_t const at = d.upload(in);
  EXPECT_EQ(d.results(body, 1, {at}), (words{std::accumulate(in.begin(), in.end(), 0U)}));
  EXPECT_EQ(d.count.barriers, 9U);
  for (auto const place : {body.find("bar.sync"), body.rfind("bar.sync")})
    EXPECT_THAT(d.fault_of(string(body).erase(place, 11), {at}), HasSubstr("race in shared memory"));
  EXPECT_THAT(d.fault_of(body, {d.upload(list<char>(1023, 1))}), HasSubstr("out of bounds: 4 bytes"));
  d.before = ".shared .align 4 .b8 s[1023];";
  EXPECT_THAT(d.fault_of(body, {at}), HasSubstr("4 bytes at 1020 of 1023 bytes of shared memory"));
}

}  // namespace
