// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: an execution-space instance as a stream: work in order, memory of its space, nothing waited for.
///
/// Any Kokkos space will do. On Kokkos::Serial "enqueued" means done, so that everything that is written for a GPU also
/// runs, and is tested, on a host.

#include "../core/codec.hpp"
#include "executor.hpp"
#include "operands.hpp"

#include <unordered_map>

#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace GLOBALQ_ABI::kernel {

/// Whether kernels of a space reach what the host reaches.
template <class Space>
inline constexpr bool runs_on_host =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;

namespace detail {
template <class Space, bool Host = runs_on_host<Space>>
struct pinned {
  using type = Kokkos::HostSpace;
};
#if defined(KOKKOS_HAS_SHARED_HOST_PINNED_SPACE)
template <class Space>
struct pinned<Space, false> {
  using type = Kokkos::SharedHostPinnedSpace;
};
#endif
}  // namespace detail

/// Host memory that kernels of a space reach, and that copies to and from it needn't wait for.
template <class Space>
using pinned_space = typename detail::pinned<Space>::type;

namespace detail {
template <class MemorySpace>
void* allocate_in(std::size_t bytes) {
  return Kokkos::kokkos_malloc<MemorySpace>("globalq", bytes == 0 ? 1 : bytes);
}
template <class MemorySpace>
void release_in(void* memory) {
  if (memory != nullptr) Kokkos::kokkos_free<MemorySpace>(memory);
}
}  // namespace detail

/// Memory of a Kokkos memory space.
template <class MemorySpace>
byte_memory memory_of() {
  return {detail::allocate_in<MemorySpace>, detail::release_in<MemorySpace>};
}

/// Launches on one instance of a space, and knows its memory.
template <class Space>
class stream_executor : public device_executor<Space> {
 public:
  using space = Space;
  using memory_space = typename Space::memory_space;

  explicit stream_executor(Space const& instance) : device_executor<Space>(instance), instance_(instance) {}

  Space const& instance() const { return instance_; }

  /// Waits for all that was enqueued.
  void fence() const { instance_.fence("globalq"); }

  /// Whether what is enqueued is being recorded into a graph instead of run.
  bool capturing() const {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
    if constexpr (std::is_same_v<Space, Kokkos::Cuda>) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      cudaStreamIsCapturing(instance_.cuda_stream(), &status);
      return status != cudaStreamCaptureStatusNone;
    }
#endif
    return false;
  }

  /// Enqueues a copy between the memory of the space and pinned or host memory.
  void copy_in(void* to, void const* from, std::size_t bytes) const {
    Kokkos::deep_copy(instance_, view<memory_space>(to, bytes),
                      view<pinned_space<Space>, std::byte const>(from, bytes));
  }
  void copy_out(void* to, void const* from, std::size_t bytes) const {
    Kokkos::deep_copy(instance_, view<pinned_space<Space>>(to, bytes),
                      view<memory_space, std::byte const>(from, bytes));
  }

 private:
  template <class MemorySpace, class Byte = std::byte>
  static auto view(std::conditional_t<std::is_const_v<Byte>, void const*, void*> data, std::size_t bytes) {
    return Kokkos::View<Byte*, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(static_cast<Byte*>(data),
                                                                                     bytes);
  }

  Space instance_;
};

/// A captured graph can't allocate.
[[noreturn]] inline void refuse_unprepared_capture() {
  throw configuration_error(
      "globalq: allreduce_mean: a graph is being captured, and this call still has to prepare its memory; "
      "average vectors of this length and type once before the capture");
}

/// Lists of sources where kernels find them. A list is written once; every call that needs the same one finds it, so
/// that nothing is copied for a call with frames that were there before.
template <class Space>
class source_lists {
 public:
  /// @throws configuration_error when a new list would have to be written while a graph is captured
  source_view const* get(stream_executor<Space> const& on, std::vector<source_view> const& list) {
    if (list.empty()) return nullptr;
    std::uint64_t h = list.size();
    for (source_view const& s : list)
      for (std::uint64_t word :
           {reinterpret_cast<std::uint64_t>(s.codes), reinterpret_cast<std::uint64_t>(s.scales),
            static_cast<std::uint64_t>(s.terms), static_cast<std::uint64_t>(s.worker),
            static_cast<std::uint64_t>(s.first)})
        h = (h ^ word) * 0x9E3779B97F4A7C15ULL ^ (h >> 29);
    auto const [begin, end] = known_.equal_range(h);
    for (auto at = begin; at != end; ++at)
      if (same(at->second.list, list))
        return reinterpret_cast<source_view const*>(at->second.memory.get(bytes(list)).data());
    if (on.capturing()) refuse_unprepared_capture();
    entry e{list, byte_buffer(memory_of<typename Space::memory_space>())};
    void* const memory = e.memory.get(bytes(list)).data();
    byte_buffer staging(memory_of<pinned_space<Space>>());
    std::memcpy(staging.get(bytes(list)).data(), list.data(), bytes(list));
    on.copy_in(memory, staging.get(bytes(list)).data(), bytes(list));
    on.fence();
    known_.emplace(h, std::move(e));
    return static_cast<source_view const*>(memory);
  }

 private:
  struct entry {
    std::vector<source_view> list;
    byte_buffer memory;
  };
  static std::size_t bytes(std::vector<source_view> const& list) { return list.size() * sizeof(source_view); }
  static bool same(std::vector<source_view> const& a, std::vector<source_view> const& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](source_view const& s, source_view const& t) {
      return s.codes == t.codes && s.scales == t.scales && s.terms == t.terms && s.worker == t.worker &&
             s.first == t.first;
    });
  }

  std::unordered_multimap<std::uint64_t, entry> known_;
};

/// A body that also checks the headers of its sources and writes that of its frame.
template <class Body>
struct framed : Body {
  std::uint64_t kind;    ///< the first word of a header but for the terms
  std::uint64_t values;  ///< the second
  std::byte* frame;      ///< one to begin, or null
  int terms;
  std::uint32_t* faults;
  source_view const* sources;
  int source_count;

  template <int Lanes>
  GLOBALQ_FUNCTION void tile(std::uint64_t index, int lane) const {
    if (index == 0 && lane == 0) headers();
    Body::template tile<Lanes>(index, lane);
  }
  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    if (index == 0 && lane == 0) headers();
    Body::template share<Lanes, Rows>(index, lane);
  }

 private:
  GLOBALQ_FUNCTION void headers() const {
    for (int k = 0; k < source_count; ++k) {
      std::uint64_t const* const header = reinterpret_cast<std::uint64_t const*>(sources[k].scales) - 2;
      if (header[0] != word(sources[k].terms) || header[1] != values)
        Kokkos::atomic_or(faults, static_cast<std::uint32_t>(bad_frame));
    }
    if (frame != nullptr) {
      reinterpret_cast<std::uint64_t*>(frame)[0] = word(terms);
      reinterpret_cast<std::uint64_t*>(frame)[1] = values;
    }
  }
  GLOBALQ_FUNCTION std::uint64_t word(int sum) const {
    return kind | (static_cast<std::uint64_t>(static_cast<std::uint32_t>(sum)) << 32);
  }
};

}  // namespace GLOBALQ_ABI::kernel
