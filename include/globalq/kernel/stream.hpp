// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief kernel: an execution-space instance as a stream: enqueues work in order, allocates memory, and does not wait.
///
/// The space is Kokkos::Cuda or a host space. On Kokkos::Serial, enqueued work is already done, so that all code
/// written for a GPU also runs, and is tested, on a host.

#include "../core/codec.hpp"
#include "executor.hpp"
#include "operands.hpp"

#include <algorithm>
#include <vector>

#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace GLOBALQ_ABI::kernel {

/// Whether kernels of a space can access host memory.
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

/// Host memory that kernels of a space can access; copies to and from it are asynchronous.
template <class Space>
using pinned_space = typename detail::pinned<Space>::type;

/// Memory of a space, on the device of an instance.
template <class MemorySpace, class Space>
class stream_memory final : public byte_memory {
 public:
  /// @param captured  whether a graph was ever captured; its launches contain addresses of this memory
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
  /// A default-constructed memory space would belong to the device that Kokkos was initialized with.
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

/// Whether a stream is being captured.
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t const code = cudaStreamIsCapturing(stream, &status);
  if (code == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return true;  // the legacy default stream, which would wait for a stream that is being captured
  }
  expect_success(code, "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusInvalidated)
    throw configuration_error(
        "globalq: the capture of the stream was invalidated by an earlier call that cannot be captured; "
        "end the capture and repeat it without that call");
  return status != cudaStreamCaptureStatusNone;
}

/// Computes the product of a tiny number and quotients, with the compiler flags of this source.
struct probe_arithmetic {
  float tiny;
  std::uint32_t* found;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    found[i] = bits_of(i == 0 ? multiply(tiny, 0.5F) : 1.0F / static_cast<float>(i));
  }
};

/// @throws configuration_error if kernels flush subnormals to zero or divide approximately, so that workers would
///         disagree
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
        "globalq: the kernels of this source flush subnormal numbers to zero or divide approximately, so "
        "workers "
        "would disagree on bits; compile it without nvcc's -use_fast_math, -ftz=true and -prec-div=false");
}

/// Launches a team once: Kokkos allocates the scratch memory of teams at their first launch, and a capture forbids
/// allocation.
///
/// The arithmetic is probed once per program, with the flags of one of its sources: GLOBALQ_ABI does not contain nvcc's
/// flags, so the linker keeps one copy of this function and of @c exact. Other flags of other sources are not detected.
inline void prepare(Kokkos::Cuda const& instance) {
  static bool const exact = (expect_exact_arithmetic(instance), true);
  static_cast<void>(exact);
  using policy = Kokkos::TeamPolicy<Kokkos::Cuda>;
  Kokkos::parallel_for("globalq", policy(instance, 1, 1).set_scratch_size(1, Kokkos::PerTeam(1)),
                       nothing<policy::member_type>{});
}
#endif
}  // namespace detail

/// Launches kernels on one instance of a space, and provides its memory.
template <class Space>
class stream_executor : public device_executor<Space> {
 public:
  using space = Space;
  using memory_space = typename Space::memory_space;

  /// @param operation  the function that users call, for errors; must outlive the executor
  explicit stream_executor(Space const& instance, char const* operation = "call")
      : device_executor<Space>(instance),
        instance_(instance),
        operation_(operation),
        memory_(std::make_shared<stream_memory<memory_space, Space>>(instance, captured())),
        pinned_(std::make_shared<stream_memory<pinned_space<Space>, Space>>(instance, captured())) {
    capturing();
  }

  Space const& instance() const { return instance_; }
  char const* operation() const { return operation_; }

  /// Waits for all enqueued work.
  void fence() const { instance_.fence("globalq"); }

  /// Device memory, and host memory that kernels can access, on the device of the instance. After a capture, buffers
  /// that outgrow their memory keep the old memory, because the graph uses it.
  /// @{
  std::shared_ptr<byte_memory> const& memory() const { return memory_; }
  std::shared_ptr<byte_memory> const& pinned_memory() const { return pinned_; }
  /// @}

  /// Whether the stream is being captured, so that work is recorded into a graph instead of run. The first call outside
  /// of a capture prepares the instance for captures.
  /// @throws configuration_error if the capture was invalidated; std::runtime_error if CUDA reports an error
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

  /// @param count  values; 0: nothing is checked, because an empty vector may begin where an allocation ends
  /// @param what   what the data is, for errors
  /// @throws configuration_error if data is on another device than the stream, or in host memory that it cannot access
  void expect_own_device([[maybe_unused]] char const* operation, [[maybe_unused]] void const* data,
                         [[maybe_unused]] std::uint64_t count,
                         [[maybe_unused]] char const* what = "vector") const {
#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
    if constexpr (std::is_same_v<Space, Kokkos::Cuda>) {
      if (data == nullptr || count == 0) return;
      cudaPointerAttributes of{};
      detail::expect_success(cudaPointerGetAttributes(&of, data), "cudaPointerGetAttributes");
      int accessible = 1;
      if (of.type == cudaMemoryTypeUnregistered)
        detail::expect_success(
            cudaDeviceGetAttribute(&accessible, cudaDevAttrPageableMemoryAccess, instance_.cuda_device()),
            "cudaDeviceGetAttribute");
      if (accessible == 0)
        throw configuration_error(
            std::string("globalq: ") + operation + ": the " + what + " is in host memory that GPU " +
            std::to_string(instance_.cuda_device()) +
            " cannot access; copy it to device memory, or allocate it with cudaMallocHost");
      if (of.type == cudaMemoryTypeDevice && of.device != instance_.cuda_device())
        throw configuration_error(
            std::string("globalq: ") + operation + ": the " + what + " is on GPU " +
            std::to_string(of.device) + " and the stream on GPU " + std::to_string(instance_.cuda_device()) +
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
    bool captured = false;  ///< whether a graph was captured at any time
    bool prepared = false;
  };
  std::shared_ptr<bool const> captured() const { return {state_, &state_->captured}; }

  Space instance_;
  char const* operation_;
  std::shared_ptr<state> state_ = std::make_shared<state>();  ///< shared by all copies
  std::shared_ptr<byte_memory> memory_, pinned_;
};

/// @param operation  stream_executor::operation()
/// @throws configuration_error always: memory cannot be allocated during a capture
[[noreturn]] inline void refuse_unprepared_capture(char const* operation) {
  globalq::detail::fail<configuration_error>(
      {"globalq: ", operation,
       ": the stream is being captured and this call must allocate memory, which a capture forbids; make the "
       "same call once before the capture"});
}

/// Writes up to eight entries of a list to memory of the device.
struct write_sources {
  source_list some;
  source_view* to;
  GLOBALQ_FUNCTION void operator()(std::uint64_t k) const { to[k] = some.first[k]; }
};
/// Makes the source lists of kernels. Small launches write those that do not fit the arguments of a kernel, so nothing
/// waits for the device. Calls on one stream may share the memory.
template <class Space>
class source_lists {
 public:
  explicit source_lists(stream_executor<Space> const& on) : there_(on.memory()) {}

  /// @throws configuration_error if memory would have to be allocated during a capture
  source_list get(stream_executor<Space> const& on, std::vector<source_view> const& all) {
    constexpr std::size_t direct = source_list::direct;
    if (all.size() <= direct) return {all.data(), all.size()};
    std::size_t const bytes = all.size() * sizeof(source_view);
    if (bytes > there_.capacity() && on.capturing()) refuse_unprepared_capture(on.operation());
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

/// Segments of one vector that one launch processes in turn. Each begins at a multiple of a tile. Its length is a
/// multiple of a tile unless it is the end of the vector.
struct piece_list {
  static constexpr int most = 8;
  /// One segment.
  struct piece {
    std::uint32_t start = 0;     ///< tiles of the launch before this segment
    std::uint32_t tile = 0;      ///< the tile of its first value, relative to the operands
    std::uint64_t values = 0;    ///< the second word of its frames' headers
    std::byte* frame = nullptr;  ///< the frame to begin, or null
  };
  piece all[most] = {};
  int count = 1;

  /// A list of one segment, the whole of the operands.
  static piece_list of_one(std::uint64_t values, std::byte* frame) {
    piece_list one;
    one.all[0] = {0, 0, values, frame};
    return one;
  }

  /// The index of the piece that contains a tile of the launch.
  GLOBALQ_FUNCTION int of(std::uint64_t tile) const {
    int p = 0;
    if (count > 1)
      for (int k = 1; k < most; ++k) p += k < count && all[k].start <= tile ? 1 : 0;
    return p;
  }
};

/// Validates the headers of source frames and writes those of new frames.
struct frame_headers {
  std::uint64_t kind;  ///< the first word of a header, without the terms
  int terms;           ///< of the new frames

  /// Processes the headers of piece @p p; one thread calls it.
  /// @param before  offset in bytes from the scales pointer of each source to its first scale, which follows the header
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

/// A body that also validates the headers of its sources and writes the header of its frame.
template <class Body>
struct framed : Body {
  frame_headers headers;
  std::uint64_t codes_at;  ///< bytes of a frame before its codes
  piece_list pieces;

  template <int Lanes, int Rows>
  GLOBALQ_FUNCTION void share(std::uint64_t index, int lane) const {
    if constexpr (takes_pieces<Lanes>()) {
      int const p = pieces.of(index);
      piece_list::piece const& at = pieces.all[p];
      if (index == at.start && lane == 0) treat(p);
      // where the code of the operands' first value would be
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
  /// Launches without own values, whose Lanes is code_lanes, have a single piece.
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
