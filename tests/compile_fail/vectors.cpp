// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief Vectors and steps of calls, groups and codecs.

#include <globalq/globalq.hpp>

#include <list>
#include <span>
#include <vector>

namespace gq = globalq;

struct given {
  std::vector<float> x, y;
  std::vector<float> const constant;
  std::vector<double> wide;
  std::vector<int> integers;
  std::list<float> list;
  float* pointer;
  std::span<std::byte> frame;
};

void average(gq::transport::threads::endpoint& workers, given& of) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}};
  gq::reduce_scatter_mean scatter{workers, gq::uncompressed{}};
  mean(of.x, 0);
  mean(of.x, of.y, 0);
  mean(of.constant, of.y, 0);
  mean(of.pointer, 10, 0);
  mean.start(std::span(of.x).first(1), 1);
  mean.start(of.pointer, 10, 1);
  mean(of.pointer, of.pointer, 10, 0);
  mean(of.constant.data(), of.pointer, std::size_t{10}, 0);
  mean.start(of.constant.data(), of.pointer, 10U, 1);
  scatter(of.x, 0);

#ifdef CASE_INTEGERS  // expect-error: globalq: values of this type cannot be averaged
  mean(of.integers, 0);
#endif
#ifdef CASE_OUTPUT_OF_INTEGERS  // expect-error: globalq: values of this type cannot be averaged
  mean(of.x, of.integers, 0);
#endif
#ifdef CASE_LIST  // expect-error: globalq: this is not a vector
  mean(of.list, 0);
#endif
#ifdef CASE_SHARDS_OF_LIST  // expect-error: globalq: this is not a vector
  scatter(of.list, 0);
#endif
#ifdef CASE_POINTER  // expect-error: globalq: a pointer is not a vector
  mean(of.pointer, 0);
#endif
#ifdef CASE_POINTERS_WITHOUT_NUMBER  // expect-error: globalq: a pointer is not a vector
  mean(of.pointer, of.pointer, 0);
#endif
#ifdef CASE_VOID_POINTER  // expect-error: globalq: a void pointer does not state the type of the values
  mean(static_cast<void*>(of.pointer), 10, 0);
#endif
#ifdef CASE_NUMBER_AFTER_VECTORS  // expect-error: globalq: four arguments are two pointers, the number of values and the step
  mean(of.x, of.y, 10, 0);
#endif
#ifdef CASE_POINTERS_TO_CONSTANT  // expect-error: globalq: the vector is const
  mean(of.pointer, of.constant.data(), 10, 0);
#endif
#ifdef CASE_POINTERS_OF_SHARDS  // expect-error: globalq: only allreduce_mean takes two pointers and one number
  scatter(of.pointer, of.pointer, 10, 0);
#endif
#ifdef CASE_STARTED_POINTERS_OF_SHARDS  // expect-error: globalq: only allreduce_mean takes two pointers and one number
  scatter.start(of.pointer, of.pointer, 10, 0);
#endif
#ifdef CASE_CONSTANT  // expect-error: globalq: the vector is const
  mean(of.constant, 0);
#endif
#ifdef CASE_OUTPUT_IS_CONSTANT  // expect-error: globalq: the vector is const
  mean(of.x, of.constant, 0);
#endif
#ifdef CASE_OTHER_TYPE  // expect-error: globalq: input and output have different types
  mean(of.x, of.wide, 0);
#endif
#ifdef CASE_NO_STEP  // expect-error: globalq: the step is missing
  mean(of.x);
#endif
#ifdef CASE_NO_STEP_OF_TWO  // expect-error: globalq: the step is missing
  mean(of.x, of.y);
#endif
#ifdef CASE_NO_STEP_OF_STARTED  // expect-error: globalq: the step is missing
  mean.start(of.x);
#endif
#ifdef CASE_FRACTION_AS_STEP  // expect-error: globalq: the step is missing
  mean(of.x, 0.5);
#endif
#ifdef CASE_POINTER_AS_STEP  // expect-error: globalq: in host memory the step is a number
  std::uint64_t step = 0;
  mean(of.x, &step);
#endif
#ifdef CASE_VIEW_AS_STEP  // expect-error: globalq: in host memory the step is a number
  mean(of.x, Kokkos::View<std::uint64_t, Kokkos::HostSpace>("step"));
#endif
// a call that is started outlives a vector without a name; views of vectors pass
#ifdef CASE_STARTED_TEMPORARY  // expect-error: globalq: the vector is a temporary
  mean.start(std::vector<float>(3), of.x, 2);
#endif
}

void collect(gq::transport::threads::endpoint& workers, gq::vector_group& group, given& of) {
  gq::allreduce_mean mean{workers, gq::uncompressed{}, gq::schedule::ring{}};
  gq::reduce_scatter_mean scatter{workers, gq::uncompressed{}};
  group.add(of.x).add(of.pointer, 10).add(of.constant.data(), of.pointer, 10);
  group.add(std::span(of.x).first(1), Kokkos::View<float*, Kokkos::HostSpace>("y", 1));
  mean(group, 0);

#ifdef CASE_GROUP_OF_INTEGERS  // expect-error: globalq: values of this type cannot be averaged
  group.add(of.integers);
#endif
#ifdef CASE_GROUP_OF_LIST  // expect-error: globalq: this is not a vector
  group.add(of.list);
#endif
#ifdef CASE_GROUP_OF_POINTER  // expect-error: globalq: a pointer is not a vector
  group.add(of.pointer);
#endif
#ifdef CASE_GROUP_OF_VECTORS_AND_NUMBER  // expect-error: globalq: four arguments are two pointers
  group.add(of.x, of.y, 10);
#endif
#ifdef CASE_GROUP_OF_TEMPORARY  // expect-error: globalq: the vector is a temporary
  group.add(std::vector<float>(3));
#endif
#ifdef CASE_GROUP_WITHOUT_STEP  // expect-error: globalq: the step is missing
  mean(group);
#endif
#ifdef CASE_SHARDS_OF_GROUP  // expect-error: globalq: only allreduce_mean takes groups
  scatter(group, 0);
#endif
}

void encode(gq::vector_codec& codec, given& of) {
  codec.encode(of.constant, {}, of.frame);
  codec.encode(of.pointer, 10, {}, of.frame);
  codec.decode(of.frame, {}, of.x);
  codec.decode_add(of.frame, {}, of.pointer, 10);
  gq::clip_deviations(of.x, 2.5);

#ifdef CASE_ENCODED_INTEGERS  // expect-error: globalq: values of this type cannot be averaged
  codec.encode(of.integers, {}, of.frame);
#endif
#ifdef CASE_DECODED_INTEGERS  // expect-error: globalq: values of this type cannot be averaged
  codec.decode(of.frame, {}, of.integers);
#endif
#ifdef CASE_ENCODED_LIST  // expect-error: globalq: this is not a vector
  codec.encode(of.list, {}, of.frame);
#endif
#ifdef CASE_DECODED_LIST  // expect-error: globalq: this is not a vector
  codec.decode_add(of.frame, {}, of.list);
#endif
#ifdef CASE_ENCODED_POINTER  // expect-error: globalq: a pointer is not a vector
  codec.encode(of.pointer, {}, of.frame);
#endif
#ifdef CASE_DECODED_CONSTANT  // expect-error: globalq: the vector is const
  codec.decode(of.frame, {}, of.constant);
#endif
#ifdef CASE_CLIPPED_LIST  // expect-error: globalq: this is not a vector
  gq::clip_deviations(of.list, 2.5);
#endif
}
