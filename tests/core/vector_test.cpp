// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief What is a vector: values side by side behind data() and size(), whatever the class is called.

#include "globalq/core/vector.hpp"

#include "tests/support/vectors.hpp"

#include <gmock/gmock.h>

#include <array>
#include <deque>
#include <list>
#include <span>
#include <string>
#include <vector>

namespace gq = globalq;
using gq::Vector;
using support::columns;
using support::plain_vector;

static_assert(Vector<std::vector<float>> && Vector<std::vector<double> const&> && Vector<std::span<float>>);
static_assert(Vector<std::array<gq::bfloat16, 3>&> && Vector<float (&)[3]> && Vector<double const (&)[3]>);
static_assert(Vector<Kokkos::View<float*, Kokkos::HostSpace>> && Vector<Kokkos::View<gq::float16 const**>&>);
static_assert(Vector<plain_vector<float>&> && Vector<plain_vector<double> const&> && Vector<columns&>);
static_assert(!Vector<std::vector<int>&> && !Vector<std::string&> && !Vector<plain_vector<unsigned>&>);
static_assert(!Vector<std::list<float>&> && !Vector<std::deque<float>&> && !Vector<float*> && !Vector<float>);
static_assert(!Vector<std::vector<bool>&>, "its values have no addresses");

static_assert(gq::detail::outlasts_call<std::vector<float>&> && gq::detail::outlasts_call<float*>);
static_assert(!gq::detail::outlasts_call<plain_vector<float>>);

namespace {

TEST(Vector, begins_where_its_data_is) {
  plain_vector<float> x(5);
  EXPECT_EQ(gq::detail::data_of(x), x.data());
  EXPECT_EQ(gq::detail::size_of_vector(x), 5U);
  plain_vector<float> const& same = x;
  static_assert(std::is_same_v<decltype(gq::detail::data_of(same)), float const*>);
  EXPECT_EQ(gq::detail::data_of(same), x.data());
}

TEST(Vector, with_gaps_is_refused) {
  std::vector<float> memory(12);
  auto const begins = [&](columns of) { return gq::detail::data_of(of); };
  auto const refused = [&](columns of) {
    EXPECT_THAT([&] { begins(of); }, testing::ThrowsMessage<gq::configuration_error>(
                                         testing::HasSubstr("is not contiguous; pass")));
  };
  float* const p = memory.data();
  EXPECT_EQ(begins({p, 4, 3, 1, 4}), p);  // a matrix
  EXPECT_EQ(begins({p, 4, 1, 1, 9}), p);  // one column of it
  EXPECT_EQ(begins({p, 1, 3, 9, 1}), p);  // rows of one value each, side by side
  EXPECT_EQ(begins({p, 0, 3, 2, 9}), p);  // nothing
  refused({p, 2, 3, 1, 4});               // the upper rows of a matrix
  refused({p, 6, 1, 2, 12});              // every other value
  refused({p, 3, 2, 2, 6});
}

TEST(Vector, of_kokkos_with_gaps_is_refused) {
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> const matrix("matrix", 4, 3);
  auto const row = Kokkos::subview(matrix, 1, Kokkos::ALL);
  auto const column = Kokkos::subview(matrix, Kokkos::ALL, 1);
  EXPECT_EQ(gq::detail::data_of(row), &matrix(1, 0));
  EXPECT_THAT([&] { gq::detail::data_of(column); },
              testing::ThrowsMessage<gq::configuration_error>(
                  testing::HasSubstr("the view of 4 values is not contiguous")));
}

}  // namespace
