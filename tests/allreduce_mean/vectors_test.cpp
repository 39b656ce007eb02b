// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Vectors of other libraries and pointers go wherever a std::vector goes, with the same bits.

#include "tests/support/vectors.hpp"
#include "tests/support/calls.hpp"
#include "tests/support/on_threads.hpp"

#include <globalq/globalq.hpp>

#include <gmock/gmock.h>

#include <numeric>
#if __has_include(<Eigen/Core>)
#include <Eigen/Core>
#endif

namespace gq = globalq;

namespace vectors_test {

constexpr std::ptrdiff_t length = 1000;

auto quantizer() {
  return gq::quantizer{gq::norm::l2{.bucket = 256}, gq::levels::uniform{7}, gq::rounding::stochastic{},
                       gq::wire::int8{}};
}

/// Fills anything with values of a worker.
template <class V>
V& fill(V& x, int rank) {
  for (std::ptrdiff_t i = 0; i < length; ++i)
    x.data()[i] = static_cast<float>((i * 7 + rank * 13) % 101 - 50);
  return x;
}
template <class V>
std::vector<float> copy_of(V const& x) {
  return {x.data(), x.data() + length};
}

/// What the calls make of a vector: mean, its shard, the gathered shards, a group, and a frame that is decoded and added.
template <class Make, class Endpoint>
std::vector<std::vector<float>> results(Endpoint& workers, Make const& make) {
  int const rank = workers.rank();
  std::vector<std::vector<float>> all;
  auto const run = [&](auto const& call) {
    auto x = make();
    call(fill(x, rank));
    all.push_back(copy_of(x));
  };
  gq::allreduce_mean mean{workers, quantizer(), gq::schedule::sra{}, {.seed = 7}};
  gq::reduce_scatter_mean scatter{workers, quantizer(), {.seed = 8}};
  gq::all_gather gather{workers, quantizer(), {.seed = 9}};
  gq::vector_codec codec{quantizer()};
  run([&](auto& x) { mean(x, 0); });
  run([&](auto& x) {
    auto y = make();
    mean(x, fill(y, 99), 1);
    std::copy(y.data(), y.data() + length, x.data());
  });
  run([&](auto& x) { mean.start(x, 2).wait(); });
  run([&](auto& x) { scatter(x, 0); });
  run([&](auto& x) { gather(x, 0); });
  run([&](auto& x) {
    auto y = make();
    mean(gq::vector_group{}.add(x).add(x, fill(y, 99)), 3);
    for (std::ptrdiff_t i = 0; i < length; ++i) x.data()[i] += y.data()[i];
  });
  run([&](auto& x) {
    std::vector<std::byte> frame(codec.frame_bytes(length));
    codec.encode(x, {.seed = 3}, frame);
    codec.decode_add(frame, {.seed = 3}, x);
    auto y = make();
    codec.decode(frame, {.seed = 3}, y);
    for (std::ptrdiff_t i = 0; i < length; ++i) x.data()[i] += y.data()[i];
  });
  return all;
}

TEST(Vectors, of_other_libraries_give_the_same_bits) {
  support::on_threads(3, [](auto& workers) {
    auto const expected = results(workers, [] { return std::vector<float>(length); });
    EXPECT_EQ(results(workers, [] { return support::plain_vector<float>(length); }), expected);
#if __has_include(<Eigen/Core>)
    EXPECT_EQ(results(workers, [] { return Eigen::VectorXf(length); }), expected);
    EXPECT_EQ(results(workers, [] { return Eigen::MatrixXf(40, length / 40); }), expected);
    EXPECT_EQ(results(workers, [] { return Eigen::Matrix<float, 40, length / 40, Eigen::RowMajor>(); }),
              expected);
#endif
  });
}

TEST(Vectors, behind_a_pointer_give_the_same_bits) {
  support::on_threads(3, [](auto& workers) {
    auto const run = [&](auto const& call) {
      std::vector<float> x(length);
      call(fill(x, workers.rank()));
      return x;
    };
    gq::allreduce_mean mean{workers, quantizer(), gq::schedule::ring{}, {.seed = 7}};
    gq::reduce_scatter_mean scatter{workers, quantizer(), {.seed = 8}};
    gq::all_gather gather{workers, quantizer(), {.seed = 9}};
    gq::vector_codec codec{quantizer()};
    auto const same = [&](auto const& with_vector, auto const& with_pointer) {
      EXPECT_EQ(run(with_pointer), run(with_vector));
    };
    same([&](auto& x) { mean(x, 0); }, [&](auto& x) { mean(x.data(), x.size(), 0); });
    same([&](auto& x) { mean(x, 1); }, [&](auto& x) { mean(x.data(), 1000, 1); });
    same([&](auto& x) { mean.start(x, 2).wait(); }, [&](auto& x) { mean.start(x.data(), length, 2).wait(); });
    std::vector<float> y(length);
    same([&](auto& x) { mean(x, y, 4), x = y; },
         [&](auto& x) { mean(x.data(), y.data(), length, 4), x = y; });
    same([&](auto& x) { mean.start(x, y, 5).wait(), x = y; },
         [&](auto& x) { mean.start(std::as_const(x).data(), y.data(), 1000U, 5).wait(), x = y; });
    same([&](auto& x) { mean(gq::vector_group{}.add(x, y), 6), x = y; },
         [&](auto& x) { mean(gq::vector_group{}.add(x.data(), y.data(), length), 6), x = y; });
    same([&](auto& x) { scatter(x, 0); }, [&](auto& x) { scatter(x.data(), length, 0); });
    same([&](auto& x) { gather(x, 0); }, [&](auto& x) { gather(x.data(), length, 0); });
    same([&](auto& x) { mean(gq::vector_group{}.add(x), 3); },
         [&](auto& x) { mean(gq::vector_group{}.add(x.data(), length), 3); });
    std::vector<std::byte> frame(codec.frame_bytes(length)), other(frame.size());
    same(
        [&](auto& x) {
          codec.encode(x, {.seed = 3}, frame);
          codec.decode_add(frame, {.seed = 3}, x);
        },
        [&](auto& x) {
          codec.encode(x.data(), length, {.seed = 3}, other);
          codec.decode_add(other, {.seed = 3}, x.data(), length);
        });
    EXPECT_EQ(other, frame);
    same([&](auto& x) { codec.decode(frame, {.seed = 3}, x); },
         [&](auto& x) { codec.decode(frame, {.seed = 3}, x.data(), length); });
  });
}

#if __has_include(<Eigen/Core>)
TEST(Vectors, of_eigen_with_gaps_are_refused) {
  support::on_threads(1, [](auto& workers) {
    gq::allreduce_mean mean{workers, quantizer(), gq::schedule::ring{}};
    Eigen::MatrixXf m = Eigen::MatrixXf::Ones(4, 3);
    auto const refused = [&](auto&& part) {
      EXPECT_THAT([&] { mean(part, 0); }, testing::ThrowsMessage<gq::configuration_error>(
                                              testing::HasSubstr("is not contiguous; pass")));
    };
    refused(m.row(1));
    refused(m.topRows(2));
    refused(Eigen::Map<Eigen::VectorXf, 0, Eigen::InnerStride<2>>(m.data(), 6));
    mean(m.col(1), 0);
    mean(m.leftCols(2), 1);
    mean(Eigen::Map<Eigen::VectorXf>(m.data(), 12), 2);
  });
}
#endif

TEST(Names, that_people_guess) {
  static_assert(std::is_same_v<gq::schedule::sra, gq::schedule::scatter_reduce_allgather>);
  EXPECT_EQ(gq::schedule::any{"scatter_reduce_allgather"}.text(), "sra");
  EXPECT_EQ(gq::norm::l2{}.inner(), 2U);
  EXPECT_EQ(gq::norm::l2{}.outer(), 2U);
  EXPECT_EQ(gq::norm::l1{}.inner(), 1U);
  EXPECT_EQ(gq::norm::l1{}.outer(), 1U);
  support::on_threads(2, [](auto& workers) {
    gq::all_gather gather{workers, quantizer()};
    EXPECT_EQ(gather.shard(length).size(), gather.shard(length).count);
    EXPECT_EQ(gather.shard(length, 0).size() + gather.shard(length, 1).size(), 1000U);
  });
}

}  // namespace vectors_test
