// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Reduce operators of one's own: the same bits on all workers over all schedules and on a stream, no bias, and what is
/// refused.

#include "examples/custom_policy/minifloat_sum.hpp"
#include "tests/support/means.hpp"
#include "tests/support/on_threads.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/values.hpp"

#include <globalq/globalq.hpp>
#include <globalq/policies.hpp>
#include <globalq/transport/staged.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace globalq_test {

namespace gq = globalq;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

namespace {

constexpr gq::quantizer op{gq::norm::linf{}, minifloat<3, 1>{}, gq::rounding::stochastic{},
                           gq::wire::packed<6>{}, minifloat_sum<3, 1>{}};

TEST(OwnReduce, workers_get_the_same_bits_over_all_schedules) {
  support::over_schedules([](auto const& over, std::string const&) {
    for (int workers = 1; workers <= 9; ++workers) support::means(op, over, workers, 2);
  });
}

TEST(OwnReduce, the_mean_has_no_bias) {
  support::over_schedules([](auto const& over, std::string const& name) {
    for (int workers : {2, 5})
      support::expect_unbiased(support::means(op, over, workers, 600), workers, name);
  });
}

TEST(OwnReduce, is_what_adds) {
  for (int workers : {2, 3, 9}) {
    EXPECT_EQ(gq::plan_for(op, gq::schedule::ring{}, workers, 1000).reduce, gq::method::user);
    EXPECT_EQ(gq::plan_for(op, gq::schedule::ring{}, workers, 1000).headroom,
              2U * (static_cast<unsigned>(workers) - 1));
  }
  EXPECT_EQ(gq::plan_for(op, gq::schedule::allgather{}, 4, 1000).reduce, gq::method::none);
}

/// A stream runs it in the shape of a device: the same bits.
TEST(OwnReduce, gives_the_same_bits_on_a_stream) {
  support::on_threads(3, [&](auto& t) {
    std::vector<float> const x = support::values(1500, t.rank());
    std::vector<float> on_host(1500), on_stream(1500);
    gq::allreduce_mean host{t, op, gq::schedule::ring{}, {.seed = 3}, Kokkos::Serial{}};
    host(x, on_host, 7);
    gq::transport::staged<std::remove_reference_t<decltype(t)>, Kokkos::Serial> device{t, t.execution()};
    gq::allreduce_mean mean{device, op, gq::schedule::ring{}, {.seed = 3}};
    using view = Kokkos::View<float*, Kokkos::HostSpace>;
    view in("in", 1500), out("out", 1500);
    std::copy(x.begin(), x.end(), in.data());
    mean(in, out, 7);
    mean.wait();
    std::copy_n(out.data(), 1500, on_stream.begin());
    support::expect_same(on_stream, on_host, "stream");
  });
}

TEST(OwnReduce, what_does_not_fit_is_refused_with_a_remedy_that_works) {
  auto const refusal = [](auto const& how, auto const& over, int n) {
    return gq::plan_for(how, over, n, 1000).refusal;
  };
  EXPECT_THAT(
      refusal(op, gq::schedule::ring{}, 40),
      AllOf(HasSubstr("40 terms of 7 levels make codes up to 85"), HasSubstr("packed:6 holds codes up to 31"),
            HasSubstr("use wire int8, or schedule tree")));
  EXPECT_EQ(refusal(op, gq::schedule::tree{}, 40), "");
  gq::quantizer const wider{gq::norm::linf{}, minifloat<3, 1>{}, gq::rounding::stochastic{}, gq::wire::int8{},
                            minifloat_sum<3, 1>{}};
  EXPECT_EQ(refusal(wider, gq::schedule::ring{}, 40), "");
  EXPECT_THAT(
      refusal(wider, gq::schedule::native{}, 4),
      AllOf(HasSubstr("a user-defined reduce operator cannot run there"), HasSubstr("use schedule ring")));
}

/// The library's own levels have as many as leave room.
struct capped {
  static constexpr char const* name = "capped";
  static constexpr bool draws = false, unbiased = false;
  template <class Levels>
  static constexpr bool adds = Levels::evenly_spaced;
  static std::uint64_t largest_code(std::uint32_t max_code, std::uint32_t terms, std::uint32_t) {
    return std::uint64_t{max_code} * terms;
  }
  template <class Int>
  GLOBALQ_FUNCTION static Int add(Int a, Int b, std::uint32_t) {
    return static_cast<Int>(a + b);
  }
};

TEST(OwnReduce, the_same_sum_as_the_library_s_gives_its_bits) {
  gq::quantizer const ours{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::random_shift<>{},
                           gq::wire::int16{}, capped{}};
  gq::quantizer const theirs{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::random_shift<>{},
                             gq::wire::int16{}, gq::reduce::sum{}};
  for (int workers : {1, 2, 5}) {
    EXPECT_EQ(gq::plan_for(ours, gq::schedule::ring{}, workers, 9).levels,
              gq::plan_for(theirs, gq::schedule::ring{}, workers, 9).levels);
    support::expect_same(support::means(ours, gq::schedule::ring{}, workers, 2),
                         support::means(theirs, gq::schedule::ring{}, workers, 2), "ring");
  }
}

struct exponential_again : gq::reduce::exponential {
  static constexpr char const* name() { return "exponential-again"; }
  static constexpr bool unbiased = true;
  template <class Levels>
  static constexpr bool adds = Levels::base_two;
  static std::uint64_t largest_code(std::uint32_t max_code, std::uint32_t, std::uint32_t height) {
    return std::uint64_t{max_code} + height;
  }
};

TEST(OwnReduce, levels_whose_codes_fall_keep_room_below) {
  gq::quantizer const ours{gq::norm::linf{}, gq::levels::exponential<>{}, gq::rounding::stochastic{},
                           gq::wire::int8{}, exponential_again{}};
  gq::quantizer const theirs{gq::norm::linf{}, gq::levels::exponential<>{}, gq::rounding::stochastic{},
                             gq::wire::int8{}, gq::reduce::exponential{}};
  support::over_schedules([&](auto const& over, std::string const& name) {
    if (name == "allgather") return;  // which adds no codes
    for (int workers : {1, 2, 5})
      support::expect_same(support::means(ours, over, workers, 2), support::means(theirs, over, workers, 2),
                           name);
  });
}

struct table_sum : capped {
  static constexpr char const* name = "table-sum";
  template <class Levels>
  static constexpr bool adds = true;
};

TEST(OwnReduce, a_table_has_no_codes_above_its_largest_level) {
  gq::quantizer const table{gq::norm::linf{}, gq::levels::table{0, 0.5, 1}, gq::rounding::stochastic{},
                            gq::wire::int8{}, table_sum{}};
  EXPECT_THAT(gq::plan_for(table, gq::schedule::ring{}, 3, 9).refusal,
              AllOf(HasSubstr("no code of these levels represents more than the norm"),
                    HasSubstr("use reduce::requantize")));
}

/// Says that sums need no room.
struct understated : capped {
  static constexpr char const* name = "understated";
  template <class Levels>
  static constexpr bool adds = true;
  static std::uint64_t largest_code(std::uint32_t max_code, std::uint32_t, std::uint32_t) { return max_code; }
};

TEST(OwnReduce, a_code_beyond_what_it_says_is_an_error) {
  gq::quantizer const wrong{gq::norm::linf{}, gq::levels::uniform<100>{}, gq::rounding::nearest{},
                            gq::wire::int16{}, understated{}};
  std::vector<std::string> texts(2), on_stream(2);
  support::on_threads(2, std::chrono::milliseconds{2000}, [&](auto& t) {
    auto const rank = static_cast<std::size_t>(t.rank());
    gq::allreduce_mean mean{t, wrong, gq::schedule::sra{}, {}, Kokkos::Serial{}};
    std::vector<float> x(600, 1.0F);
    texts[rank] = support::refusal<gq::configuration_error>([&] { mean(x, 0); });
    gq::transport::staged<std::remove_reference_t<decltype(t)>, Kokkos::Serial> device{t, t.execution()};
    gq::allreduce_mean there{device, wrong, gq::schedule::sra{}};
    Kokkos::View<float*, Kokkos::HostSpace> const y("y", 600);
    Kokkos::deep_copy(y, 1.0F);
    on_stream[rank] = support::refusal<gq::configuration_error>([&] {
      there(y, 0);
      there.wait();
    });
  });
  EXPECT_THAT(on_stream, Each(HasSubstr("largest_code()")));
  EXPECT_THAT(texts, Each(HasSubstr("largest_code()")));
}

TEST(OwnReduce, workers_compare_name_and_parameters) {
  auto const texts = support::complaints<gq::disagreement_error>(2, [](auto& t) {
    std::vector<float> x(8, 1.0F);
    auto const call = [&](auto const& reduce) {
      gq::quantizer const mine{gq::norm::linf{}, gq::levels::uniform<>{}, gq::rounding::stochastic{},
                               gq::wire::int16{}, reduce};
      gq::allreduce_mean{t, mine, gq::schedule::ring{}, {}, Kokkos::Serial{}}(x, 0);
    };
    if (t.rank() == 0)
      call(capped{});
    else
      call(understated{});
  });
  EXPECT_THAT(texts, Each(HasSubstr("the operator")));
}

}  // namespace
}  // namespace globalq_test
