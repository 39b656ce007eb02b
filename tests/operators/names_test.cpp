// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief The names of C++ and the words of programs mean the same operators, and words are read strictly.

#include "tests/support/compositions.hpp"

#include <globalq/collective/allreduce_mean.hpp>
#include <globalq/operator/centered.hpp>
#include <globalq/operator/error_feedback.hpp>
#include <globalq/operator/few_bits.hpp>
#include <globalq/operator/float32_tail.hpp>
#include <globalq/operator/second_half.hpp>
#include <globalq/operator/vector_codec.hpp>

#include <globalq/named/learn_at.hpp>
#include <globalq/named/operators.hpp>

#include <globalq/schedule/any.hpp>
#include <globalq/transport/threads.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace gq = globalq;
namespace names = globalq::operators;

namespace {

std::vector<std::byte> frame_of(gq::any_quantizer const& op) {
  std::vector<float> x(3000);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) * 0x1p-9F;
  gq::vector_codec codec(op);
  std::vector<std::byte> frame(codec.frame_bytes(x.size()));
  codec.encode(x, {1, 2, 3}, frame);
  return frame;
}

/// 0, 2^-(s-1), ..., 1/2, 1.
std::vector<double> powers_of_half(std::uint32_t s) {
  std::vector<double> levels = names::multiplier_levels(0.5, s);
  levels.insert(levels.begin(), 0.0);
  return levels;
}

std::string refusal(std::string const& text) {
  try {
    gq::named::read_operator(text);
  } catch (gq::configuration_error const& problem) {
    return problem.what();
  }
  return {};
}

}  // namespace

TEST(OperatorNames, functions_and_words_are_the_same_operators) {
  double const learned[] = {0, 0.25, 0.5, 1};
  using gq::infinity, gq::norm::linf, gq::norm::local;
  std::vector<std::pair<std::string, gq::any_quantizer>> const pairs = {
      {"global-uniform", names::global_uniform()},
      {"global-uniform:16,q=2,p=1", names::global_uniform<16>(gq::norm::l<2, 1>{})},
      {"global-uniform:4,bucket=128,levels=3", names::global_uniform<4>(linf{128}, 3)},
      {"global-exponential", names::global_exponential()},
      {"global-exponential:5,q=2,p=2,levels=4", names::global_exponential<5>(gq::norm::l<2, 2>{}, 4)},
      {"qsgd", names::qsgd()},
      {"qsgd:8,q=inf,bucket=64", names::qsgd<8, infinity>(64)},
      {"qsgd:4,bucket=0,levels=5", names::qsgd<4>(0, 5)},
      {"qsgd:4,code=elias", names::qsgd<4>(512, 7, gq::wire::elias<>{})},
      {"qsgd:2,bucket=0,code=sparse", names::qsgd<2>(0, 1, gq::wire::sparse<>{})},
      {"nuqsgd:4,code=huffman", names::nuqsgd<4>(8192, 7, gq::wire::huffman<>{})},
      {"terngrad", names::terngrad()},
      {"terngrad:0,shared=yes,bucket=10", names::terngrad(linf{10})},
      {"nuqsgd", names::nuqsgd()},
      {"nuqsgd:3,bucket=100,levels=2", names::nuqsgd<3>(100, 2)},
      {"natural-compression", names::natural_compression()},
      {"natural-compression:local,bucket=33", names::natural_compression<local<infinity>>(33)},
      {"natural-dithering", names::natural_dithering()},
      {"natural-dithering:6,q=3,bucket=50", names::natural_dithering<6, 3>(50)},
      {"qsdp", names::qsdp()},
      {"qsdp:5,bucket=100,shift-back=no", names::qsdp<5, false>(100)},
      {"qsdp-grid:4,bits=16,levels=20", names::qsdp_grid<16>(4, 20)},
      {"bounded,range=4", names::bounded(0.001, 4)},
      {"bounded:0.5,range=8", names::bounded(0.5, 8)},
      {"bounded:0.5,range=8,bits=6,vectors=float16",
       names::bounded<6>(0.5, 8, gq::wire::packed<6>{}, gq::dtype::float16)},
      {"bounded:0.5,range=8,code=huffman", names::bounded(0.5, 8, gq::wire::huffman<std::int16_t>{})},
      {"bounded:0.5,range=8,bits=8,code=huffman,vectors=bfloat16",
       names::bounded(0.5, 8, gq::wire::huffman<>{}, gq::dtype::bfloat16)},
      {"cgx", names::cgx()},
      {"cgx:3,scale=min-max",
       gq::centered{gq::quantizer{local<infinity>{128}, gq::levels::symmetric{1.0 / 7, 3.0 / 7, 5.0 / 7, 1},
                                  gq::rounding::stochastic{}, gq::wire::packed<3>{}}}},
      {"qsdp:8,scale=min-max", gq::centered{names::qsdp()}},
      {"cgx:3,bucket=256,rounding=nearest", names::cgx<3, gq::rounding::nearest>(256)},
      {"alq", names::alq(learned)},
      {"alq:4,levels=0:0.25:0.5:1,bucket=40,q=inf", names::alq<4, infinity>(learned, 40)},
      {"amq", names::amq()},
      {"amq:4,multiplier=0.7,bucket=100", names::amq<4>(0.7, 100)},
      {"alq:5,bucket=64", names::alq<5>(powers_of_half(15), 64)},
      {"amq:8", names::amq<8>(0.75)},
      {"eden", names::eden()},
      {"eden:1,block=64", names::eden<1>(64)},
      {"eden:3", names::eden<3>()},
      {"eden:4,rotations=2,block=256", gq::rotated{names::eden<4>(256), 256}},
      {"rotated-optimal", names::rotated_optimal()},
      {"rotated-optimal:1", names::rotated_optimal<1>()},
      {"rotated-optimal:3,block=64", names::rotated_optimal<3>(64)},
      {"rotated-optimal:4", names::rotated_optimal<4>()},
      {"mxfp4", names::mxfp4()},
      {"mxfp4,block=16,rounding=nearest", names::block_scaled<gq::levels::e2m1>(16, gq::rounding::nearest{})},
      {"nvfp4", names::nvfp4()},
      {"nvfp4,block=32,rounding=nearest", names::nvfp4(32, gq::rounding::nearest{})},
      {"mxfp6", names::mxfp6()},
      {"mxfp6:e3m2", names::mxfp6<gq::levels::e3m2>()},
      {"mxfp8", names::mxfp8()},
      {"mxfp8:e5m2", names::mxfp8<gq::levels::e5m2>()},
      {"bfloat16", names::bfloat16()},
      {"bfloat16:nearest", names::bfloat16<gq::rounding::nearest>()},
      {"float16", names::float16()},
      {"float16:nearest", names::float16<gq::rounding::nearest>()},
      {"float32", gq::uncompressed{}}};
  std::set<std::string_view> seen;
  for (auto const& [words, function] : pairs) {
    gq::any_quantizer const read = gq::named::make(gq::named::read_operator(words).words);
    EXPECT_EQ(read.facts().name, function.facts().name) << words;
    EXPECT_EQ(read.facts().wire_bits, function.facts().wire_bits) << words;
    EXPECT_EQ(read.facts().magnitudes, function.facts().magnitudes) << words;
    EXPECT_EQ(gq::detail::fingerprint(read.facts(), {}), gq::detail::fingerprint(function.facts(), {}))
        << words;
    if (function.facts().has_codes() && !function.facts().told_worker && !words.ends_with("min-max")) {
      EXPECT_EQ(frame_of(read), frame_of(function)) << words;
    }
    for (auto const& each : gq::named::operators())
      if (words.starts_with(each.name)) seen.insert(each.name);
  }
  for (auto const& each : gq::named::operators())
    EXPECT_TRUE(seen.contains(each.name)) << each.name << " is compared with no function";
}

TEST(OperatorNames, words_and_functions_are_the_same_operators) {
  using gq::infinity, gq::norm::linf, gq::norm::local, gq::rounding::stochastic, gq::rounding::correlated;
  using gq::rounding::nearest, gq::levels::uniform, gq::wire::packed;
  gq::quantizer const third{gq::norm::l<3, infinity>{256}, gq::levels::exponential{127, 1.5}, correlated{},
                            gq::wire::sparse<>{}};
  gq::quantizer const four{local<infinity>{128}, uniform{}, stochastic{}, packed<4>{}};
  gq::quantizer const two{local<infinity>{128}, uniform{}, nearest{}, packed<2>{}};
  std::pair<std::string, gq::any_quantizer> const pairs[] = {
      {"norm=linf", gq::quantizer{linf{}, uniform{}, stochastic{}, gq::wire::int8{}}},
      {"norm=l:3,inf bucket=256 levels=exponential:1.5 rounding=correlated wire=sparse rotate=1024",
       gq::rotated{third, 1024}},
      {"norm=l:3,inf,bucket=256,levels=exponential:1.5,rounding=correlated,wire=sparse,rotate=1024",
       gq::rotated{third, 1024}},
      {"norm=linf bucket=256 wire=packed:3 levels=exponential:1.5 rotate=1024 feedback=0.95",
       gq::error_feedback{
           gq::rotated{gq::quantizer{linf{256}, gq::levels::exponential{3, 1.5}, nearest{}, packed<3>{}},
                       1024},
           {.decay = 0.95F}}},
      {"norm=local:inf bucket=128 wire=packed:4", four},
      {"norm=local:inf  bucket=128 wire=packed:4 tail=float32", gq::float32_tail{four}},
      {"cgx:4 rotate=1024", gq::rotated{four, 1024}},
      {"cgx:4,rotate=1024,tail=float32", gq::rotated{gq::float32_tail{four}, 1024}},
      {"cgx:4 feedback rounding=stochastic", gq::error_feedback{four}},
      {"cgx:2 feedback", gq::error_feedback{two}},
      {"cgx:2 feedback second=4",
       gq::error_feedback{
           gq::second_half{two, gq::quantizer{local<infinity>{128}, uniform{}, nearest{}, packed<4>{}}}}},
      {"qsdp:8,scale=min-max rounding=nearest",
       gq::centered{gq::quantizer{local<infinity>{1024}, uniform{}, nearest{}, gq::wire::int8{}}}},
      {"eden:2 rotate=64", gq::rotated{names::eden<2>(), 64}},
      {"levels=table:0,0.5,1,wire=huffman",
       gq::quantizer{linf{}, gq::levels::table{0.0, 0.5, 1.0}, stochastic{}, gq::wire::huffman<>{}}},
      {"levels=bfloat16 rounding=nearest", names::bfloat16<nearest>()},
      {"levels=none", gq::uncompressed{}}};
  for (auto const& [words, function] : pairs) {
    ASSERT_EQ(refusal(words), "");
    gq::any_quantizer const read = gq::named::operator_of(gq::named::read_operator(words));
    EXPECT_EQ(read.facts().name, function.facts().name) << words;
    EXPECT_EQ(read.facts().magnitudes, function.facts().magnitudes) << words;
    EXPECT_EQ(gq::detail::fingerprint(read.facts(), {}), gq::detail::fingerprint(function.facts(), {}))
        << words;
  }
}

TEST(OperatorNames, a_name_is_short_for_words) {
  std::vector<std::string> texts = {"cgx:4 rotate=256 feedback", "norm=linf",
                                    "alq:3,normalized=yes rotate=64", "terngrad:2.5",
                                    "qsgd:3 schedule=hierarchical:4+2"};
  for (auto const& each : gq::named::operators()) {
    texts.emplace_back(each.name);
    for (std::string_view const example : each.examples) texts.emplace_back(example);
  }
  for (std::string const& text : texts) {
    ASSERT_EQ(refusal(text), "");
    auto const one = gq::named::read_operator(text);
    std::string const words = gq::named::words_of(one);
    ASSERT_EQ(refusal(words), "") << text;
    auto const other = gq::named::read_operator(words);
    EXPECT_EQ(gq::named::words_of(other), words) << text;
    EXPECT_EQ(other.schedule, one.schedule) << text;
    EXPECT_EQ(other.clip, one.clip) << text;
    EXPECT_EQ(other.learns.what, one.learns.what) << text;
    auto const facts = [](auto const& op) { return gq::named::operator_of(op).facts(); };
    EXPECT_EQ(facts(other).name, facts(one).name);
    EXPECT_EQ(gq::detail::fingerprint(facts(other), {}), gq::detail::fingerprint(facts(one), {})) << text;
  }
  EXPECT_EQ(
      gq::named::words_of(gq::named::read_operator("cgx:2,feedback,second=4")),
      "norm=local:inf bucket=128 levels=uniform rounding=nearest wire=packed:2 second=packed:4 feedback=1 "
      "schedule=sra");
}

TEST(OperatorNames, composed_words_have_a_schedule_that_carries_them) {
  auto const schedule = [](char const* text) { return gq::named::read_operator(text).schedule; };
  EXPECT_EQ(schedule("norm=linf"), "ring");
  EXPECT_EQ(schedule("norm=linf reduce=requantize"), "sra");
  EXPECT_EQ(schedule("norm=local:inf"), "sra");
  EXPECT_EQ(schedule("global-uniform:8,code=sparse"), "sra");
  EXPECT_EQ(schedule("qsgd:4,code=sparse"), "allgather");
  EXPECT_EQ(schedule("eden:1 rotate=64"), "allgather");
  EXPECT_EQ(schedule("qsgd:4 schedule=tree"), "tree");
  EXPECT_EQ(schedule("levels=none"), "ring");
}

/// The bits of the mean do not depend on how the codes of the same levels travel.
TEST(OperatorNames, every_operator_takes_every_code) {
  constexpr std::size_t length = 1000;
  std::vector<std::vector<float>> x(3, std::vector<float>(length));
  for (std::size_t w = 0; w < x.size(); ++w)
    for (std::size_t i = 0; i < length; ++i)
      x[w][i] = (i * 7919 + w) % 29 == 0 ? static_cast<float>(i % 13) * 0.1F - 0.5F : 0.0F;
  auto const mean_and_bytes = [&](gq::named::named_operator const& op) {
    std::pair<std::vector<float>, std::uint64_t> found{std::vector<float>(length), 0};
    gq::transport::threads cluster{3};
    cluster.run([&](auto& workers) {
      auto const rank = static_cast<std::size_t>(workers.rank());
      gq::allreduce_mean mean{workers, gq::named::operator_of(op), gq::schedule::any{"sra"}, {.seed = 7}};
      std::vector<float> y(length);
      mean(x[rank], y, 3);
      if (rank == 0) found = {y, workers.bytes_sent()};
    });
    return found;
  };
  for (auto const& each : gq::named::operators()) {
    auto const usual = gq::named::read_operator(each.name);
    auto const f = gq::named::operator_of(usual).facts();
    bool const decides = std::any_of(each.parameters.begin(), each.parameters.end(),
                                     [](gq::named::parameter const& p) { return p.name == "code"; });
    if (!f.has_codes() || f.zero_free || decides) continue;
    for (std::string const code : {"elias", "huffman", "sparse"}) {
      std::string const text = std::string{each.name} + ",code=" + code;
      ASSERT_EQ(refusal(text), "");
      auto const coded = gq::named::read_operator(text);
      EXPECT_EQ(coded.words.wire, code) << text;
      auto fixed = coded;
      fixed.words.wire = "int8";
      fixed.words.reduce = "requantize";
      auto const [y, bytes] = mean_and_bytes(coded);
      auto const [z, most] = mean_and_bytes(fixed);
      EXPECT_EQ(y, z) << text;
      if (code == "sparse") {
        EXPECT_LT(bytes, most) << text;
      }
    }
  }
}

TEST(OperatorNames, the_registry_explains_what_it_takes) {
  std::string const help = gq::named::operators_help();
  for (auto const& each : gq::named::operators()) {
    EXPECT_NE(help.find("\n" + std::string{each.name} + "\n"), std::string::npos) << each.name;
    EXPECT_FALSE(each.examples.empty()) << each.name;
    for (std::string_view const example : each.examples) {
      EXPECT_EQ(example.substr(0, each.name.size()), each.name);
      EXPECT_EQ(refusal(std::string{example}), "");
    }
    EXPECT_NE(help.find("Words: "), std::string::npos);
    // every parameter may be given by its name with its usual value, and no other word in its place
    for (gq::named::parameter const& p : each.parameters) {
      std::string const usual =
          std::string{each.name} + "," + std::string{p.name} + "=" + std::string{p.usual};
      EXPECT_EQ(refusal(usual), "");
      for (char const* bad : {"", "x", "-1", "1e999", " 2", "2 "})
        EXPECT_THAT(refusal(std::string{each.name} + "," + std::string{p.name} + "=" + bad),
                    testing::StartsWith("globalq: option operator: "))
            << each.name << ' ' << p.name << " = " << bad;
    }
  }
}

TEST(OperatorNames, a_refusal_says_what_would_be_right) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal("qsgf:4"), HasSubstr("\"qsgf:4\" is not an operator; use one of "
                                           "global-uniform, global-exponential, qsgd, "));
  EXPECT_THAT(refusal("qsgd:9"), HasSubstr("sets bits to \"9\"; use 2 to 8"));
  EXPECT_THAT(refusal("global-uniform:12"), HasSubstr("sets bits to \"12\"; use 2 to 8, 16 or 32"));
  EXPECT_THAT(refusal("qsgd:4,buckets=2"),
              HasSubstr("has no parameter \"buckets\"; its parameters are bits, bucket, "));
  EXPECT_THAT(refusal("qsgd:4,bits=4"), HasSubstr("sets bits twice"));
  EXPECT_THAT(refusal("qsgd:4,512"), HasSubstr("\"512\", which is not parameter=value"));
  EXPECT_THAT(refusal("amq:3,multiplier=1"), HasSubstr("use learned, or a number between 0 and 1"));
  EXPECT_THAT(refusal("amq:8,multiplier=0.1"),
              HasSubstr("127 levels of multiplier 0.100000 reach below 2^-94; use"));
  EXPECT_THAT(refusal("alq:3,levels=0:0.5:0.25:1"), HasSubstr("levels must ascend strictly"));
  EXPECT_THAT(refusal("float32:1"), HasSubstr("which is not parameter=value"));
  EXPECT_THAT(refusal("alq:3,levels=0:0.5:1,normalized=yes"), HasSubstr("leave out normalized"));
  EXPECT_THAT(refusal("qsgd:4,bucket=0,tail=float32"), HasSubstr("set a bucket, or leave the tail out"));
  EXPECT_THAT(refusal("qsgd:4,tail=float16"), HasSubstr("use own or float32"));
  EXPECT_THAT(refusal("mxfp8:e2m1"), HasSubstr("use e4m3 or e5m2"));
  EXPECT_THAT(refusal("rotated-optimal:5"), HasSubstr("sets bits to \"5\"; use 1 to 4"));
  EXPECT_THAT(refusal(""), HasSubstr("is not an operator"));
  EXPECT_THAT(refusal("top-k:0.01"),
              HasSubstr("\"top-k:0.01\" is a compressor of layers and not an operator; use it in"));
  EXPECT_THAT(refusal("cgx:4 "), HasSubstr("begins or ends with a space"));
  EXPECT_THAT(refusal("cgx:4 rotate=100"), HasSubstr("use a power of two from 2 to 2^20"));
  EXPECT_THAT(refusal("cgx:4 rotate=64 rotate=64"), HasSubstr("sets rotate twice"));
  EXPECT_THAT(refusal("cgx:4 rotation=64"),
              HasSubstr("has no parameter \"rotation\"; its parameters are bits, "));
  EXPECT_THAT(refusal("rotate=64"), HasSubstr("put commas instead of spaces"));
  EXPECT_THAT(refusal("norm=linf 512"), HasSubstr("contains \"512\", which is no word of an operator"));
  EXPECT_THAT(refusal("buckets=2"), HasSubstr("word=value of norm, bucket, levels, "));
  EXPECT_THAT(refusal("levels=none rotate=8"), HasSubstr("has no meaning with levels none"));
  EXPECT_THAT(refusal("norm=linf rounding=up"), HasSubstr("\"up\" is not a rounding"));
  EXPECT_THAT(refusal("norm=linf schedule=line"), HasSubstr("line"));
  EXPECT_THAT(refusal("global-uniform:16 code=elias"), HasSubstr("use at most 8 bits, or code=fixed"));
  EXPECT_THAT(refusal("norm=linf learn=levels"), HasSubstr("give the levels from which learning starts"));
  EXPECT_THAT(refusal("qsgd:4 normalized"), HasSubstr("but learns nothing"));
  EXPECT_THAT(refusal("cgx:2 feedback=2"), HasSubstr("use 0, or a number above 0 and at most 1"));
  EXPECT_THAT(refusal("cgx:2,scale=min-max second=4"), HasSubstr("would send the same levels, symmetric:"));
  EXPECT_THAT(refusal("cgx:4 eden"), HasSubstr("is not the quantizer of EDEN"));
  EXPECT_THAT(refusal("cgx:2 second=9"), HasSubstr("use 0, 2 to 8 bits, or a wire"));
  EXPECT_THAT(refusal("rotated-optimal:2,block=100"), HasSubstr("use a power of two from 2 to 2^20"));
  EXPECT_EQ(gq::named::read_operator("cgx").schedule, "sra");
}

TEST(OperatorNames, every_zero_turns_clipping_off) {
  EXPECT_EQ(gq::named::read_operator("terngrad").clip, 0);
  for (char const* zero : {"0", "0.0", "00", "0e0", "0e9", ".0", "-0", "-0.0"}) {
    std::string const text = std::string{"terngrad:"} + zero;
    EXPECT_EQ(refusal(text), "");
    EXPECT_TRUE(gq::named::read_operator(text).only_quantizes()) << text;
  }
  EXPECT_EQ(gq::named::read_operator("terngrad:2.5").clip, 2.5);
  EXPECT_FALSE(gq::named::read_operator("terngrad:1e-3").only_quantizes());
  for (char const* bad : {"+0", "0x0", "0.0.0", "-1e-9", "nan", "inf"})
    EXPECT_THAT(refusal(std::string{"terngrad:"} + bad),
                testing::HasSubstr("use a number above 0, such as 2.5, or 0"))
        << bad;
}

TEST(OperatorNames, a_tail_is_part_of_the_operator) {
  for (char const* name : {"qsgd:4,bucket=100", "cgx:4", "alq:3", "natural-dithering:4,bucket=10"}) {
    auto const own = gq::named::make(gq::named::read_operator(name).words).facts(),
               tailed = gq::named::make(gq::named::read_operator(std::string{name} + ",tail=float32").words)
                            .facts();
    EXPECT_EQ(tailed.name, own.name + ", tail float32");
    EXPECT_TRUE(tailed.plain_tail);
    EXPECT_FALSE(own.plain_tail);
  }
}

TEST(OperatorNames, levels_are_learned_unless_they_are_given) {
  auto const learns = [](char const* name) { return gq::named::read_operator(name).learns; };
  using way = gq::named::learning::way;
  EXPECT_EQ(learns("alq:3").what, way::levels);
  EXPECT_EQ(learns("amq:4,bucket=64").what, way::multiplier);
  EXPECT_FALSE(learns("amq").normalized);
  EXPECT_TRUE(learns("amq,normalized=yes").normalized);
  for (char const* name : {"alq:3,levels=0:0.5:1", "amq:3,multiplier=0.3", "qsgd", "float32"})
    EXPECT_FALSE(learns(name)) << name;
}

TEST(LearnAt, steps_are_read_strictly) {
  gq::learn::update_schedule const usual, read = gq::named::read_learn_at("100,2000,every 10000");
  EXPECT_EQ(read.once, usual.once);
  EXPECT_EQ(read.every, usual.every);
  EXPECT_EQ(gq::named::read_learn_at(" 7 , every  5").once, std::vector<std::uint64_t>{7});
  EXPECT_EQ(gq::named::read_learn_at("0").every, 0U);
  auto const told = [](char const* text) -> std::string {
    try {
      gq::named::read_learn_at(text);
    } catch (gq::configuration_error const& problem) {
      return problem.what();
    }
    return {};
  };
  EXPECT_EQ(
      told("1,often"),
      "globalq: option learn_at: \"1,often\" contains \"often\", which is not a step; use steps, such as "
      "\"100,2000,every 10000\"");
  for (char const* text :
       {"", ",", "-1", "1.5", "every", "every 0", "every -3", "1,,2", "18446744073709551616", "100 2000"})
    EXPECT_NE(told(text), "") << text;
  EXPECT_THAT(told("every 5,every 7"), testing::HasSubstr("twice"));
}
