// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: an execution-space instance as a stream: work in order, memory of its space, nothing waited for.
///
/// Kokkos::Cuda, or a space of the host. On Kokkos::Serial "enqueued" means done, so that everything that is written for a GPU also
/// runs, and is tested, on a host.

#include "../core/codec.hpp"
#include "executor.hpp"
#include "operands.hpp"

#include <algorithm>
#include <vector>

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

/// Memory of a space, on the device of an instance.
template <class MemorySpace, class Space>
class stream_memory final : public byte_memory {
 public:
  /// @param captured  whether a graph was captured, whose launches know addresses
  stream_memory(Space const& instance, std::shared_ptr<bool const> captured)
      : instance_(instance), captured_(std::move(captured)) {}

  void* allocate(std::size_t bytes) override {
    return there().allocate(instance_, "globalq", bytes == 0 ? 1 : bytes);
  }
  void release(void* memory, std::size_t bytes) override {
    if (memory != nullptr) there().deallocate("globalq", memory, bytes == 0 ? 1 : bytes);
  }
  bool keeps_outgrown() const override { return *captured_; }

 private:
  /// A default one is that of the device that Kokkos was initialized with.
  MemorySpace there() const {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
    if constexpr (std::is_same_v<Space, Kokkos::Cuda>)
      return MemorySpace::impl_create(instance_.cuda_device(), instance_.cuda_stream());
    else
#endif
      return MemorySpace();
  }

  Space instance_;
  std::shared_ptr<bool const> captured_;
};

namespace detail {
/// A team that does nothing.
template <class Team>
struct nothing {
  KOKKOS_FUNCTION void operator()(Team const&) const {}
};

#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
/// @throws std::runtime_error unless a call of CUDA succeeded
inline void expect_success(cudaError_t code, char const* call) {
  if (code == cudaSuccess) return;
  throw std::runtime_error(std::string("globalq: ") + call + ": " + cudaGetErrorName(code) + ", " +
                           cudaGetErrorString(code) +
                           "; an earlier kernel or call may have caused it: look for the first error with "
                           "compute-sanitizer or CUDA_LAUNCH_BLOCKING=1");
}

/// Whether a stream is captured.
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t const code = cudaStreamIsCapturing(stream, &status);
  if (code == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return true;  // the legacy default stream, which waits for another one that is captured
  }
  expect_success(code, "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusInvalidated)
    throw configuration_error(
        "globalq: the capture of the stream was invalidated by an earlier call that may not be captured; "
        "end the capture and begin anew without that call");
  return status != cudaStreamCaptureStatusNone;
}

/// Products of tiny numbers and quotients, as this source's flags have them.
struct probe_arithmetic {
  float tiny;
  std::uint32_t* found;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    found[i] = bits_of(i == 0 ? multiply(tiny, 0.5F) : 1.0F / static_cast<float>(i));
  }
};

/// @throws configuration_error where kernels flush tiny numbers to zero or divide approximately: no bit could be relied on
inline void expect_exact_arithmetic(Kokkos::Cuda const& instance) {
  constexpr std::uint64_t count = 4096;
  Kokkos::View<std::uint32_t*, Kokkos::SharedHostPinnedSpace> const found("globalq", count);
  device_executor<Kokkos::Cuda>(instance).items(count, probe_arithmetic{0x1p-126F, found.data()});
  instance.fence("globalq");
  bool exact = found(0) == bits_of(0x1p-127F);
  for (std::uint64_t i = 1; i < count; ++i)
    exact = exact && found(i) == bits_of(static_cast<float>(1.0 / static_cast<double>(i)));
  if (!exact)
    throw configuration_error(
        "globalq: this source's kernels make tiny numbers zero or divide approximately, so workers would not "
        "agree on every bit; compile it without nvcc's -use_fast_math, -ftz=true and -prec-div=false");
}

/// Kokkos allocates the scratch memory of teams when they are first launched, and none again and again, which a capture
/// forbids: they get some.
inline void prepare(Kokkos::Cuda const& instance) {
  static bool const exact = (expect_exact_arithmetic(instance), true);
  static_cast<void>(exact);
  using policy = Kokkos::TeamPolicy<Kokkos::Cuda>;
  Kokkos::parallel_for("globalq", policy(instance, 1, 1).set_scratch_size(1, Kokkos::PerTeam(1)),
                       nothing<policy::member_type>{});
}
#endif
}  // namespace detail

/// Launches on one instance of a space, and knows its memory.
template <class Space>
class stream_executor : public device_executor<Space> {
 public:
  using space = Space;
  using memory_space = typename Space::memory_space;

  explicit stream_executor(Space const& instance)
      : device_executor<Space>(instance),
        instance_(instance),
        memory_(std::make_shared<stream_memory<memory_space, Space>>(instance, captured())),
        pinned_(std::make_shared<stream_memory<pinned_space<Space>, Space>>(instance, captured())) {
    capturing();
  }

  Space const& instance() const { return instance_; }

  /// Waits for all that was enqueued.
  void fence() const { instance_.fence("globalq"); }

  /// Memory of the space, and of the host that kernels reach, on the device of the instance. Once a graph was captured, what
  /// buffers outgrow stays: the graph uses it.
  /// @{
  std::shared_ptr<byte_memory> const& memory() const { return memory_; }
  std::shared_ptr<byte_memory> const& pinned_memory() const { return pinned_; }
  /// @}

  /// Whether what is enqueued is being recorded into a graph instead of run. The first time that it is not, the instance is made
  /// ready for captures.
  /// @throws configuration_error when the capture was invalidated; std::runtime_error when CUDA does not tell
  bool capturing() const {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
    if constexpr (std::is_same_v<Space, Kokkos::Cuda>) {
      bool const is = detail::is_capturing(instance_.cuda_stream());
      state_->captured = state_->captured || is;
      if (!is && !state_->prepared) {
        detail::prepare(instance_);
        state_->prepared = true;
      }
      return is;
    }
#endif
    return false;
  }

  /// @throws configuration_error when data is memory of another device than the stream's
  void expect_own_device([[maybe_unused]] char const* operation, [[maybe_unused]] void const* data) const {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
    if constexpr (std::is_same_v<Space, Kokkos::Cuda>) {
      if (data == nullptr) return;
      cudaPointerAttributes of{};
      detail::expect_success(cudaPointerGetAttributes(&of, data), "cudaPointerGetAttributes");
      if (of.type == cudaMemoryTypeDevice && of.device != instance_.cuda_device())
        throw configuration_error(
            std::string("globalq: ") + operation + ": the vector is on GPU " + std::to_string(of.device) +
            " and the stream on GPU " + std::to_string(instance_.cuda_device()) +
            "; let each process initialize Kokkos with the GPU of its rank (pass device_id in "
            "Kokkos::InitializationSettings; Kokkos does not read LOCAL_RANK), or allocate the View with the "
            "instance of that stream");
    }
#endif
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

  struct state {
    bool captured = false;  ///< A graph was, at some time.
    bool prepared = false;
  };
  std::shared_ptr<bool const> captured() const { return {state_, &state_->captured}; }

  Space instance_;
  std::shared_ptr<state> state_ = std::make_shared<state>();  ///< of all copies
  std::shared_ptr<byte_memory> memory_, pinned_;
};

/// A captured graph can't allocate.
[[noreturn]] inline void refuse_unprepared_capture() {
  throw configuration_error(
      "globalq: allreduce_mean: a graph is being captured, and this call still has to prepare its memory; "
      "average vectors of this length and type once before the capture");
}

/// Writes some of a list where kernels find it.
struct write_sources {
  source_list some;
  source_view* to;
  GLOBALQ_FUNCTION void operator()(std::uint64_t k) const { to[k] = some.first[k]; }
};

/// Lists of sources as kernels take them. What does not fit the arguments of a launch is written by launches before it, so
/// nothing is waited for; calls on one stream may use the same memory for that.
template <class Space>
class source_lists {
 public:
  explicit source_lists(stream_executor<Space> const& on) : there_(on.memory()) {}

  /// @throws configuration_error when memory would be needed while a graph is captured
  source_list get(stream_executor<Space> const& on, std::vector<source_view> const& all) {
    constexpr std::size_t direct = source_list::direct;
    if (all.size() <= direct) return {all.data(), all.size()};
    std::size_t const bytes = all.size() * sizeof(source_view);
    if (bytes > there_.capacity() && on.capturing()) refuse_unprepared_capture();
    auto* const there = reinterpret_cast<source_view*>(there_.get(bytes).data());
    for (std::size_t k = 0; k < all.size(); k += direct) {
      std::size_t const count = std::min(direct, all.size() - k);
      on.items(count, write_sources{{all.data() + k, count}, there + k});
    }
    return {there, all.size()};
  }

 private:
  byte_buffer there_;
};

/// Segments of one vector that a launch treats one behind the other. Each begins at a multiple of a tile, and is a multiple of one
/// unless the vector ends with it.
struct piece_list {
  static constexpr int most = 8;
  /// One of them.
  struct piece {
    std::uint32_t start = 0;     ///< tiles of the launch before it
    std::uint32_t tile = 0;      ///< of its first value, counted from the first of the operands
    std::uint64_t values = 0;    ///< the second word of its frames' headers
    std::byte* frame = nullptr;  ///< one to begin, or null
  };
  piece all[most] = {};
  int count = 1;

  /// One segment, with all that the operands have.
  static piece_list of_one(std::uint64_t values, std::byte* frame) {
    piece_list one;
    one.all[0] = {0, 0, values, frame};
    return one;
  }

  /// The piece of a tile of the launch.
  GLOBALQ_FUNCTION int of(std::uint64_t tile) const {
    int p = 0;
    if (count > 1)
      for (int k = 1; k < most; ++k) p += k < count && all[k].start <= tile ? 1 : 0;
    return p;
  }
};

/// What the headers of frames say: those of sources are checked, those of frames to make are written.
struct frame_headers {
  std::uint64_t kind;  ///< the first word of a header but for the terms
  int terms;           ///< of frames to begin

  /// By one thread, of piece @p p.
  /// @param before  bytes that the scales of sources are said to be in front of where they are
  GLOBALQ_FUNCTION void treat(piece_list::piece const& at, int p, source_list const& sources,
                              std::uint32_t* faults, std::uint64_t before = 0) const {
    for (int k = 0; k < sources.count; ++k) {
      source_view const s = sources[p * sources.count + k];
      std::uint64_t const* const header = reinterpret_cast<std::uint64_t const*>(s.scales + before) - 2;
      if (header[0] != word(s.terms) || header[1] != at.values)
        Kokkos::atomic_or(faults, static_cast<std::uint32_t>(bad_frame));
    }
    if (at.frame != nullptr) {
      reinterpret_cast<std::uint64_t*>(at.frame)[0] = word(terms);
      reinterpret_cast<std::uint64_t*>(at.frame)[1] = at.values;
    }
  }

 private:
  GLOBALQ_FUNCTION std::uint64_t word(int sum) const {
    return kind | (static_cast<std::uint64_t>(static_cast<std::uint32_t>(sum)) << 32);
  }
};

/// A body that also checks the headers of its sources and writes that of its frame.
template <class Body>
struct framed : Body {
  frame_headers headers;
  std::uint64_t codes_at;  ///< bytes of a frame in front of its codes
  piece_list pieces;

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    if constexpr (takes_pieces<Lanes>()) {
      int const p = pieces.of(index);
      piece_list::piece const& at = pieces.all[p];
      if (index == at.start && lane == 0) treat(p);
      // where the codes of the operands' first value would be
      std::byte* const codes =
          at.frame == nullptr
              ? nullptr
              : at.frame + codes_at - this->o.wire.bytes(std::uint64_t{at.tile} * tile_values);
      Body::template share_of_piece<Lanes, Rows>(index - at.start + at.tile, lane, codes,
                                                 p * sources().count);
    } else {
      if (index == 0 && lane == 0) treat(0);
      Body::template share<Lanes, Rows>(index, lane);
    }
  }

 private:
  GLOBALQ_FUNCTION source_list const& sources() const {
    if constexpr (requires { this->o; })
      return this->o.sources;
    else
      return Body::sources;
  }
  /// Sums of frames come one at a time.
  template <int Lanes>
  GLOBALQ_FUNCTION static constexpr bool takes_pieces() {
    if constexpr (requires { Body::takes_pieces; }) return Lanes == Body::device_lanes;
    return false;
  }
  GLOBALQ_FUNCTION void treat(int p) const {
    piece_list::piece const& at = pieces.all[p];
    if constexpr (requires { this->o; })
      headers.treat(at, p, sources(), this->o.faults, this->o.scales_before(at.tile));
    else
      headers.treat(at, p, sources(), Body::faults);
  }
};

}  // namespace GLOBALQ_ABI::kernel
