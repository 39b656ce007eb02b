// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Which reduce and how many levels: the choice never depends on what fits, and every refusal has its
/// numbers and remedies that work: they are read from the sentence, applied, and must then fit.

#include "globalq/operator/detail/resolve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "globalq/operator/detail/facts_of.hpp"
#include "globalq/operator/detail/midpoints.hpp"
#include "globalq/schedule/allgather.hpp"
#include "globalq/schedule/native.hpp"
#include "globalq/schedule/ring.hpp"
#include "globalq/schedule/scatter_reduce_allgather.hpp"
#include "globalq/schedule/tree.hpp"

namespace globalq_test {
namespace {

namespace gq = globalq;
using gq::method;
using gq::detail::operator_facts;
using gq::detail::request;
using gq::detail::resolution;
using gq::detail::schedule_facts;
using ::testing::HasSubstr;

enum class levels { uniform, exponential, table, symmetric };

char const* const schedules[] = {"ring", "tree", "sra", "allgather", "native"};

schedule_facts facts_of_schedule(std::string const& name, int n) {
  if (name == "ring") return gq::schedule::ring::facts(n);
  if (name == "tree") return gq::schedule::tree::facts(n);
  if (name == "sra") return gq::schedule::scatter_reduce_allgather::facts(n);
  if (name == "allgather") return gq::schedule::allgather::facts(n);
  return gq::schedule::native::facts(n);
}

/// Everything that resolve() is asked about.
struct setup {
  levels kind = levels::uniform;
  std::uint32_t size = 0;
  std::string wire = "int8";  // int8, int16, int32, packed:1 .. packed:8
  request reduce = request::automatic;
  bool local = false;
  bool shifts = false;
  std::string schedule = "ring";
  int workers = 4;

  operator_facts facts() const {
    operator_facts f;
    f.evenly_spaced = kind == levels::uniform;
    f.binary = kind == levels::exponential;
    f.zero_free = kind == levels::symmetric;
    f.size = size;
    f.limit = kind == levels::uniform ? 1U << 24 : 127;
    f.q = f.p = gq::infinity;
    f.local = local;
    f.shifts = shifts;
    f.reduce = reduce;
    f.integer_wire = wire[0] == 'i';
    f.wire = wire;
    if (f.integer_wire) {
      f.wire_bits = wire == "int8" ? 8 : (wire == "int16" ? 16 : 32);
      f.largest_code = (1U << (f.wire_bits - 1)) - 1;
    } else {
      f.wire_bits = std::stoi(wire.substr(7));
      f.largest_code = gq::wire::packed<>(static_cast<std::uint32_t>(f.wire_bits)).largest_code(f.zero_free);
    }
    f.name = "operator";
    return f;
  }
  resolution resolved() const {
    return gq::detail::resolve(facts(), facts_of_schedule(schedule, workers), workers);
  }
};

struct remedy {
  std::string text;
  setup after;
};

std::vector<std::string> names_in(std::string const& text, std::string const& pattern) {
  std::vector<std::string> list;
  std::regex const names(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), names), end; i != end; ++i) list.push_back(i->str());
  return list;
}

/// The remedies that a refusal offers, each applied to the setup that was refused.
std::vector<remedy> remedies(setup const& s, std::string const& refusal) {
  std::vector<remedy> list;
  std::string const clause = refusal.substr(refusal.rfind("; ") + 2);
  auto const offer = [&](std::string const& text, auto const& change) {
    setup after = s;
    change(after);
    list.push_back({text, after});
  };
  auto const has = [&](char const* text) { return clause.find(text) != std::string::npos; };
  bool const both = has("levels with reduce::requantize");  // remedies that are one only together
  bool const requantize_and_wire = has("reduce::requantize with wire"),
             wire_and_levels = has(" and at most ");
  std::smatch m;
  if (std::regex_search(clause, m, std::regex("at most ([0-9]+) level")) ||
      std::regex_search(clause, m, std::regex("use at most ([0-9]+)")))
    offer(m.str(0), [&](setup& a) {
      a.size = static_cast<std::uint32_t>(std::stoul(m.str(1)));
      if (both) a.reduce = request::requantize;
      if (both && has("requantize on schedule ring")) a.schedule = "ring";
      if (requantize_and_wire) a.reduce = request::requantize;
      if (wire_and_levels) a.wire = names_in(clause.substr(clause.find("wire")), "int8|int16|int32").front();
    });
  if (has("wire") && !wire_and_levels)
    for (std::string const& w : names_in(clause.substr(clause.find("wire")), "int8|int16|int32"))
      offer("wire " + w, [&](setup& a) {
        a.wire = w;
        if (requantize_and_wire) a.reduce = request::requantize;
      });
  if (std::regex_search(clause, m, std::regex("packed with ([0-9]) bits or more")))
    offer(m.str(0), [&](setup& a) { a.wire = "packed:" + m.str(1); });
  std::size_t const on = clause.find("reduce::requantize on schedule");
  if (has("schedule"))
    for (std::string const& name :
         names_in(clause.substr(clause.find("schedule")), "ring|tree|sra|allgather"))
      offer("schedule " + name, [&](setup& a) {
        a.schedule = name;
        if (on != std::string::npos) a.reduce = request::requantize;
        if (both) a.size = static_cast<std::uint32_t>(std::stoul(clause.substr(clause.find("at most ") + 8)));
      });
  if (has("reduce::requantize") && on == std::string::npos && !both && !requantize_and_wire)
    offer("reduce::requantize", [](setup& a) { a.reduce = request::requantize; });
  if (has("levels::uniform")) offer("levels::uniform", [](setup& a) { a.kind = levels::uniform; });
  if (has("levels::exponential with base 2")) offer("base 2", [](setup& a) { a.kind = levels::exponential; });
  if (has("global norm")) offer("global norm", [](setup& a) { a.local = false; });
  if (has("random_shift<false>")) offer("random_shift<false>", [](setup& a) { a.shifts = false; });
  return list;
}

/// Follows every remedy that is offered, again and again. Each takes one fault away, so @p faults steps are
/// enough.
/// @returns empty, or the refusals on the way to one that is refused too often
std::string dead_end(setup const& s, int faults) {
  resolution const r = s.resolved();
  if (r.fits()) return {};
  if (faults == 0) return r.refusal;
  for (remedy const& each : remedies(s, r.refusal)) {
    std::string const end = dead_end(each.after, faults - 1);
    if (!end.empty()) return r.refusal + "\nTHEN (" + each.text + "): " + end;
  }
  return {};
}

/// Checks one setup; returns whether it was refused.
/// @param faults  how many things are wrong with it at most
bool check(setup const& s, bool expect_numbers, int faults = 1) {
  resolution const r = s.resolved();
  if (r.fits()) return false;
  EXPECT_THAT(r.refusal, HasSubstr("globalq: allreduce_mean: operator on "));
  EXPECT_THAT(r.refusal, HasSubstr(" with " + std::to_string(s.workers) + " worker"));
  if (expect_numbers && s.size != 0) {
    EXPECT_THAT(r.refusal, HasSubstr(std::to_string(s.size)));
  }
  EXPECT_EQ(r.refusal.find("at most 0"), std::string::npos) << r.refusal;
  std::vector<remedy> const offered = remedies(s, r.refusal);
  EXPECT_FALSE(offered.empty()) << r.refusal;
  EXPECT_EQ(dead_end(s, faults), "");
  return true;
}

template <class F>
void for_all_policies(F const& f) {
  for (levels kind : {levels::uniform, levels::exponential, levels::table, levels::symmetric})
    for (request reduce : {request::automatic, request::sum, request::exponential, request::requantize})
      for (bool local : {false, true})
        for (char const* wire : {"int8", "int16", "int32", "packed:8"})
          for (char const* schedule : schedules) f(setup{kind, 3, wire, reduce, local, false, schedule, 4});
}

constexpr int many_workers[] = {1, 2, 3, 4, 5, 8, 16, 100, 127, 128, 200, 255, 4096, 100000};
constexpr std::uint32_t many_sizes[] = {0,   1,   2,   3,    7,     15,    31,       100,           126,
                                        127, 128, 200, 1000, 32767, 40000, 1U << 24, (1U << 24) + 1};

// --- What the choice is ------------------------------------------------------------------------------------

TEST(ChooseMethod, never_depends_on_the_number_of_workers_or_levels) {
  for_all_policies([](setup s) {
    method const how = gq::detail::choose_method(s.facts(), facts_of_schedule(s.schedule, s.workers));
    for (int n : many_workers)
      for (std::uint32_t size : {0U, 1U, 100000U}) {
        s.size = size;
        ASSERT_EQ(gq::detail::choose_method(s.facts(), facts_of_schedule(s.schedule, n)), how)
            << n << ' ' << s.schedule;
      }
  });
}

TEST(ChooseMethod, automatic_follows_the_table) {
  auto const chosen = [](levels kind, std::string const& wire, bool local, std::string const& schedule) {
    setup const s{kind, 3, wire, request::automatic, local, false, schedule, 4};
    return gq::detail::choose_method(s.facts(), facts_of_schedule(schedule, 4));
  };
  for (levels kind : {levels::uniform, levels::exponential, levels::table, levels::symmetric})
    for (char const* wire : {"int8", "packed:4"})
      for (bool local : {false, true}) {
        EXPECT_EQ(chosen(kind, wire, local, "allgather"), method::none);
        EXPECT_EQ(chosen(kind, wire, local, "native"), method::sum);
      }
  for (char const* schedule : {"ring", "tree", "sra"}) {
    for (char const* wire : {"int8", "int16", "int32"})
      EXPECT_EQ(chosen(levels::uniform, wire, false, schedule), method::sum);
    EXPECT_EQ(chosen(levels::uniform, "packed:4", false, schedule), method::requantize);
    EXPECT_EQ(chosen(levels::uniform, "int8", true, schedule), method::requantize);
    EXPECT_EQ(chosen(levels::table, "int8", false, schedule), method::requantize);
    EXPECT_EQ(chosen(levels::symmetric, "int8", false, schedule), method::requantize);
    EXPECT_EQ(chosen(levels::exponential, "int8", true, schedule), method::requantize);
  }
  EXPECT_EQ(chosen(levels::exponential, "int8", false, "ring"), method::exponential);
  EXPECT_EQ(chosen(levels::exponential, "packed:4", false, "tree"), method::exponential);
  EXPECT_EQ(chosen(levels::exponential, "int8", false, "sra"), method::requantize);
}

TEST(ChooseMethod, what_was_asked_for_is_taken) {
  for (char const* schedule : {"ring", "tree", "sra"})
    for (auto const& [asked, taken] :
         {std::pair{request::sum, method::sum}, std::pair{request::exponential, method::exponential},
          std::pair{request::requantize, method::requantize}}) {
      setup const s{levels::exponential, 3, "int8", asked, false, false, schedule, 4};
      EXPECT_EQ(gq::detail::choose_method(s.facts(), facts_of_schedule(schedule, 4)), taken);
    }
}

// --- The numbers -------------------------------------------------------------------------------------------

std::uint64_t largest_of(std::string const& wire) { return setup{.wire = wire}.facts().largest_code; }

TEST(Resolve, as_many_uniform_levels_as_the_sum_of_all_workers_allows) {
  for (int n : many_workers)
    for (char const* wire : {"int8", "int16", "int32", "packed:2", "packed:4", "packed:8"}) {
      resolution const r = setup{levels::uniform, 0, wire, request::sum, false, false, "ring", n}.resolved();
      std::uint64_t const most =
          std::min<std::uint64_t>(largest_of(wire) / static_cast<std::uint64_t>(n), 1U << 24);
      EXPECT_EQ(r.fits(), most >= 1) << wire << ' ' << n;
      if (r.fits()) {
        EXPECT_EQ(r.size, most) << wire << ' ' << n;
        EXPECT_EQ(r.headroom, 0U);
      }
    }
}

TEST(Resolve, the_limits_of_int8_are_127_workers_of_one_level) {
  auto const uniform = [](int n, std::uint32_t s) { return setup{.size = s, .workers = n}.resolved(); };
  EXPECT_EQ(uniform(127, 0).size, 1U);
  EXPECT_TRUE(uniform(127, 1).fits());
  EXPECT_FALSE(uniform(127, 2).fits());
  EXPECT_FALSE(uniform(128, 0).fits());
  EXPECT_FALSE(uniform(128, 1).fits());
  EXPECT_EQ(uniform(64, 0).size, 1U);
  EXPECT_EQ(uniform(63, 0).size, 2U);
  EXPECT_EQ(uniform(1, 0).size, 127U);
}

// s <= 2^(A-1) - 1 - h: h = ceil(log2 n) on a tree, n - 1 on a ring; float32 holds s + h up to 222 - max(0,
// ...).
TEST(Resolve, exponential_levels_leave_the_headroom_of_the_schedule) {
  auto const exponential = [](std::string const& schedule, int n, std::string const& wire, std::uint32_t s) {
    return setup{levels::exponential, s, wire, request::automatic, false, false, schedule, n}.resolved();
  };
  EXPECT_EQ(exponential("tree", 16, "int8", 0).size, 123U);
  EXPECT_EQ(exponential("tree", 16, "int8", 0).headroom, 4U);
  EXPECT_EQ(exponential("ring", 16, "int8", 0).size, 112U);
  EXPECT_EQ(exponential("ring", 16, "int8", 0).headroom, 15U);
  EXPECT_EQ(exponential("tree", 16, "packed:4", 0).size, 3U)
      << "4 bits and 16 workers: only the exponential fits";
  EXPECT_EQ(exponential("tree", 4096, "int8", 0).size, 115U);
  EXPECT_EQ(exponential("ring", 127, "int8", 0).size, 1U);
  EXPECT_FALSE(exponential("ring", 128, "int8", 0).fits());
  EXPECT_EQ(exponential("ring", 128, "int16", 0).size, 95U) << "a headroom of 127 is what float32 decodes";
  EXPECT_FALSE(exponential("ring", 129, "int16", 0).fits());
  EXPECT_EQ(exponential("ring", 1, "int8", 0).size, 127U);
  for (int n : {1, 2, 3, 16, 96, 100, 127, 128})
    for (char const* wire : {"int8", "int16", "packed:5", "packed:8"}) {
      resolution const r = exponential("ring", n, wire, 0);
      if (!r.fits()) continue;
      EXPECT_LE(r.size + r.headroom, largest_of(wire));
      EXPECT_LE(r.headroom, gq::levels::exponential<>(r.size).headroom_limit()) << n << ' ' << wire;
      EXPECT_FALSE(exponential("ring", n, wire, r.size + 1).fits()) << "the largest";
    }
}

TEST(Resolve, requantized_levels_need_no_room_for_the_workers) {
  for (int n : many_workers)
    for (std::uint32_t bits = 2; bits <= 8; ++bits) {
      std::string const wire = "packed:" + std::to_string(bits);
      resolution const r =
          setup{levels::uniform, 0, wire, request::automatic, false, false, "ring", n}.resolved();
      EXPECT_EQ(r.how, method::requantize);
      EXPECT_EQ(r.size, (1U << (bits - 1)) - 1);
    }
  // one bit with zero has no level; without zero it has one
  EXPECT_FALSE((setup{levels::uniform, 0, "packed:1"}.resolved().fits()));
  EXPECT_TRUE((setup{levels::symmetric, 1, "packed:1"}.resolved().fits()));
}

TEST(Resolve, plain_float32_always_fits) {
  operator_facts f;
  f.content = gq::detail::frame_content::floats;
  for (char const* schedule : schedules) {
    resolution const r = gq::detail::resolve(f, facts_of_schedule(schedule, 4096), 4096);
    EXPECT_TRUE(r.fits());
    EXPECT_EQ(r.how, method::plain);
  }
}

// A field that fingerprint() does not list does not compile; one that it lists must count.
TEST(Fingerprint, changes_with_every_field) {
  std::vector<std::function<void(operator_facts&)>> const facts = {
      [](auto& f) { f.name = "another"; },
      [](auto& f) { f.content = gq::detail::frame_content::floats; },
      [](auto& f) { f.grain = 3; },
      [](auto& f) { f.plain_tail = true; },
      [](auto& f) { f.chain = {std::make_shared<gq::detail::midpoints>(1, "centered", false)}; },
      [](auto& f) { f.chain = {std::make_shared<gq::detail::midpoints>(2, "centered", false)}; },
      [](auto& f) { f.chain = {std::make_shared<gq::detail::midpoints>(1, "another", false)}; },
      [](auto& f) { f.evenly_spaced = false; },
      [](auto& f) { f.binary = true; },
      [](auto& f) { f.zero_free = true; },
      [](auto& f) { f.size = 6; },
      [](auto& f) { f.limit = 6; },
      [](auto& f) { f.q.value = 1; },
      [](auto& f) { f.q.quantum = 1; },
      [](auto& f) { f.q.byte = gq::scale_byte::exponent; },
      [](auto& f) { f.q.byte = gq::scale_byte::e4m3; },
      [](auto& f) { f.p = 1; },
      [](auto& f) { f.bucket = 1; },
      [](auto& f) { f.local = true; },
      [](auto& f) { f.fixed_scale = 0x1p-1074; },
      [](auto& f) { f.unbiased = false; },
      [](auto& f) { f.shifts = true; },
      [](auto& f) { f.integer_wire = false; },
      [](auto& f) { f.largest_code = 1; },
      [](auto& f) { f.wire_bits = 1; },
      [](auto& f) { f.most_bytes = [](std::uint64_t, std::uint32_t, bool) { return std::size_t{0}; }; },
      [](auto& f) { f.wire = "another"; },
      [](auto& f) { f.reduce = request::sum; },
      [](auto& f) { f.policies = 1; }};
  std::vector<std::function<void(resolution&)>> const numbers = {
      [](auto& r) { r.how = method::sum; }, [](auto& r) { r.size = 1; }, [](auto& r) { r.headroom = 1; }};
  std::vector<std::function<void(schedule_facts&)>> const schedule = {
      [](auto& s) { s.name = "another"; },    [](auto& s) { s.height = 1; },
      [](auto& s) { s.combines = false; },    [](auto& s) { s.native = true; },
      [](auto& s) { s.one_addition = true; }, [](auto& s) { s.roundings = 1; },
      [](auto& s) { s.varying = true; },      [](auto& s) { s.operation = "another"; },
      [](auto& s) { s.most_terms = 1; },      [](auto& s) { s.encoders = 1; },
      [](auto& s) { s.largest_node = 2; }};
  operator_facts const f = setup{.size = 7}.facts();
  std::set<std::uint64_t> operators{gq::detail::fingerprint(f, {})}, orders{gq::detail::fingerprint({})};
  for (auto const& change : facts) {
    operator_facts other = f;
    change(other);
    operators.insert(gq::detail::fingerprint(other, {}));
  }
  {
    operator_facts other = f;  // values of levels may change between calls, and are compared by their hash
    other.levels = 1;
    other.magnitudes = {1};
    EXPECT_EQ(gq::detail::fingerprint(other, {}), gq::detail::fingerprint(f, {}));
  }
  for (auto const& change : numbers) {
    resolution other;
    change(other);
    operators.insert(gq::detail::fingerprint(f, other));
  }
  for (auto const& change : schedule) {
    schedule_facts other;
    change(other);
    orders.insert(gq::detail::fingerprint(other));
  }
  EXPECT_EQ(operators.size(), 1 + facts.size() + numbers.size());
  EXPECT_EQ(orders.size(), 1 + schedule.size());
}

// The integer type of codes and the parameters of a rounding are in no other fact than policies.
TEST(Fingerprint, tells_policies_apart) {
  auto const of = [](auto const& rounding, auto const& wire) {
    return gq::detail::fingerprint(
        gq::detail::facts_of(gq::quantizer{gq::norm::linf{}, gq::levels::uniform{7}, rounding, wire}), {});
  };
  gq::rounding::stochastic const dice;
  gq::wire::int8 const byte;
  std::set<std::uint64_t> const all{of(dice, gq::wire::elias<>{}),
                                    of(dice, gq::wire::elias<std::int16_t>{}),
                                    of(dice, gq::wire::huffman<>{}),
                                    of(dice, gq::wire::huffman<std::int16_t>{}),
                                    of(dice, gq::wire::sparse<>{}),
                                    of(dice, gq::wire::sparse<std::int16_t>{}),
                                    of(dice, byte),
                                    of(dice, gq::wire::int16{}),
                                    of(dice, gq::wire::packed<8>{}),
                                    of(gq::rounding::nearest{}, byte),
                                    of(gq::rounding::random_shift<>{}, byte),
                                    of(gq::rounding::random_shift<false>{}, byte)};
  EXPECT_EQ(all.size(), 12U);
  EXPECT_EQ(of(dice, gq::wire::packed<4>{}), of(dice, gq::wire::packed<>{4}));
}

// Codes in frames of different lengths are never added as they are, whatever the levels and the schedule.
TEST(Resolve, codes_of_different_lengths_are_requantized) {
  auto const expect = [](auto const& levels) {
    for (gq::detail::operator_facts const& f :
         {gq::detail::facts_of(
              gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::elias<>{}}),
          gq::detail::facts_of(
              gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::huffman<>{}}),
          gq::detail::facts_of(
              gq::quantizer{gq::norm::linf{}, levels, gq::rounding::stochastic{}, gq::wire::sparse<>{}})})
      for (bool const one_addition : {false, true}) {
        schedule_facts s;
        s.height = 2;
        s.varying = true;
        s.one_addition = one_addition;
        resolution const r = gq::detail::resolve(f, s, 3);
        EXPECT_EQ(r.refusal, "");
        EXPECT_EQ(r.how, method::requantize) << f.name;
      }
  };
  expect(gq::levels::exponential{6});
  expect(gq::levels::uniform{6});
  expect(gq::levels::table{0, 0.5, 1});
}

TEST(Refusal, of_a_wire_whose_codes_have_no_bits_names_them) {
  operator_facts f = setup{.size = 3}.facts();
  f.wire_bits = 0;
  EXPECT_THAT(gq::detail::resolve(f, facts_of_schedule("ring", 2), 2).refusal, HasSubstr("have 0 bits"));
}

// --- The refusals ------------------------------------------------------------------------------------------

TEST(Refusal, of_policies_that_do_not_fit_together_has_remedies_that_work) {
  int refused = 0;
  for_all_policies([&](setup const& s) {
    refused += check(s, false, 3) ? 1 : 0;  // schedule, reduce and norm may be wrong at once
  });
  EXPECT_GT(refused, 100);
}

TEST(Refusal, of_sums_that_do_not_fit_has_numbers_and_remedies_that_work) {
  int refused = 0;
  for (int n : many_workers)
    for (std::uint32_t size : many_sizes)
      for (char const* schedule : {"ring", "tree", "sra", "allgather", "native"})
        for (char const* wire : {"int8", "int16", "int32", "packed:1", "packed:2", "packed:5", "packed:8"}) {
          setup const s{levels::uniform, size, wire, request::sum, false, false, schedule, n};
          if (s.schedule == "native" && wire[0] == 'p') continue;
          refused += check(s, true) ? 1 : 0;
        }
  EXPECT_GT(refused, 500);
}

TEST(Refusal, of_exponential_sums_that_do_not_fit_has_numbers_and_remedies_that_work) {
  int refused = 0;
  for (int n : many_workers)
    for (std::uint32_t size : many_sizes)
      for (char const* schedule : {"ring", "tree", "sra", "allgather"})
        for (char const* wire : {"int8", "int16", "packed:1", "packed:2", "packed:5", "packed:8"}) {
          setup const s{levels::exponential, size, wire, request::exponential, false, false, schedule, n};
          refused += check(s, true) ? 1 : 0;
        }
  EXPECT_GT(refused, 300);
}

TEST(Refusal, of_codes_that_the_wire_does_not_hold_has_numbers_and_remedies_that_work) {
  int refused = 0;
  for (levels kind : {levels::uniform, levels::exponential, levels::table, levels::symmetric})
    for (std::uint32_t size : many_sizes)
      for (char const* schedule : {"ring", "sra", "allgather"})
        for (char const* wire : {"int8", "int16", "int32", "packed:1", "packed:2", "packed:5", "packed:8"}) {
          if (size == 0 && kind >= levels::table) continue;
          setup const s{kind, size, wire, request::requantize, false, false, schedule, 200};
          refused += check(s, true) ? 1 : 0;
        }
  EXPECT_GT(refused, 100);
}

// The cases that the tests above leave out: what they offer is refused again. Enabled when resolve() offers
// other ways.
TEST(Refusal, of_levels_without_zero_has_remedies_that_work) {
  for (request reduce : {request::automatic, request::sum, request::exponential})
    for (char const* schedule : schedules)
      check({levels::symmetric, 3, "int8", reduce, false, false, schedule, 4}, false, 2);
}
TEST(Refusal, of_sums_that_no_integer_holds_has_a_remedy_that_works) {
  for (char const* schedule : {"ring", "native"})
    check({levels::uniform, 1U << 24, "int8", request::automatic, false, false, schedule, 200}, true);
}
TEST(Refusal, of_levels_on_one_bit_with_zero_has_remedies_that_work) {
  check({levels::uniform, 5, "packed:1", request::requantize, false, false, "ring", 4}, true);
  check({levels::uniform, 1000, "packed:1", request::requantize, false, false, "ring", 4}, true);
  check({levels::exponential, 0, "packed:1", request::exponential, false, false, "ring", 200}, true);
  check({levels::uniform, (1U << 24) + 1, "packed:1", request::requantize, false, false, "ring", 4}, true);
}

TEST(Refusal, of_shifting_back_on_uneven_levels_has_remedies_that_work) {
  for (levels kind : {levels::exponential, levels::table, levels::symmetric})
    EXPECT_TRUE(check({kind, 3, "int8", request::requantize, false, true, "ring", 4}, false));
  EXPECT_FALSE(check({levels::uniform, 3, "int8", request::requantize, false, true, "ring", 4}, false));
}

TEST(Refusal, of_orders_and_units_says_what_is_possible) {
  operator_facts f = setup{.size = 3}.facts();
  auto const refusal = [&] { return gq::detail::resolve(f, facts_of_schedule("ring", 2), 2).refusal; };
  for (std::uint32_t order : {0U, 65U, 1000U, 0xfffffffeU}) {
    f.q = order;
    EXPECT_THAT(refusal(), HasSubstr("an order of the norm is not valid; use 1 to 64 or infinity"));
    std::swap(f.q.value, f.p);
    EXPECT_THAT(refusal(), HasSubstr("an order of the norm is not valid; use 1 to 64 or infinity"));
    f.q = f.p = gq::infinity;
  }
  for (std::uint32_t order : {1U, 2U, 64U, gq::infinity}) {
    f.q = f.p = order;
    EXPECT_EQ(refusal(), "");
  }
  for (double unit :
       {-1.0, 2e300, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    f.fixed_scale = unit;
    EXPECT_THAT(refusal(),
                HasSubstr("norm::fixed has no valid scale; use a scale above 0 and at most 1e300"));
  }
  f.fixed_scale = 1e-300;
  EXPECT_EQ(refusal(), "");
}

TEST(Refusal, reads_as_one_sentence_with_all_numbers) {
  operator_facts f = setup{.size = 127}.facts();
  f.name = "l:inf,inf uniform:127 stochastic int8 auto";
  EXPECT_EQ(gq::detail::resolve(f, facts_of_schedule("ring", 16), 16).refusal,
            "globalq: allreduce_mean: l:inf,inf uniform:127 stochastic int8 auto on ring with 16 workers: 16 "
            "workers x 127 "
            "levels sum to 2032; int8 holds codes up to 127; use at most 7 levels, or wire int16");
}

// The facts that these tests make by hand are those of the real policies.
TEST(Facts, of_real_operators_are_the_ones_used_here) {
  auto const same = [](operator_facts const& a, setup const& s) {
    operator_facts const b = s.facts();
    EXPECT_EQ(a.evenly_spaced, b.evenly_spaced);
    EXPECT_EQ(a.binary, b.binary);
    EXPECT_EQ(a.zero_free, b.zero_free);
    EXPECT_EQ(a.size, b.size);
    EXPECT_EQ(a.limit, b.limit);
    EXPECT_EQ(a.q, b.q);
    EXPECT_EQ(a.p, b.p);
    EXPECT_EQ(a.local, b.local);
    EXPECT_EQ(a.shifts, b.shifts);
    EXPECT_EQ(a.integer_wire, b.integer_wire);
    EXPECT_EQ(a.largest_code, b.largest_code);
    EXPECT_EQ(a.wire_bits, b.wire_bits);
    EXPECT_EQ(a.wire, b.wire);
    EXPECT_EQ(a.reduce, b.reduce);
  };
  gq::norm::linf const all{};
  gq::rounding::stochastic const coin{};
  using gq::detail::facts_of;
  same(facts_of(gq::quantizer{all, gq::levels::uniform<>{}, coin, gq::wire::int8{}}),
       {levels::uniform, 0, "int8"});
  same(facts_of(gq::quantizer{all, gq::levels::uniform{7}, gq::rounding::random_shift<>{}, gq::wire::int32{},
                              gq::reduce::sum{}}),
       {levels::uniform, 7, "int32", request::sum, false, true});
  same(facts_of(gq::quantizer{all, gq::levels::exponential{7}, coin, gq::wire::packed<5>{},
                              gq::reduce::exponential{}}),
       {levels::exponential, 7, "packed:5", request::exponential});
  same(facts_of(gq::quantizer{all, gq::levels::table{0.0, 0.5, 1.0}, coin, gq::wire::packed<>{2},
                              gq::reduce::requantize{}}),
       {levels::table, 2, "packed:2", request::requantize});
  same(facts_of(gq::quantizer{all, gq::levels::symmetric{0.5, 1.0}, coin, gq::wire::packed<2>{}}),
       {levels::symmetric, 2, "packed:2"});
  same(facts_of(
           gq::quantizer{gq::norm::local<gq::infinity>{}, gq::levels::uniform{3}, coin, gq::wire::int16{}}),
       {levels::uniform, 3, "int16", request::automatic, true});
}

}  // namespace
}  // namespace globalq_test
