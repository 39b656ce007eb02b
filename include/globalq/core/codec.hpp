// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: the interface between operators and schedules: frames of bytes that can be combined and finished.
///
/// Operators and schedules are therefore compiled separately, not in every combination with each other and transports.

#include "arithmetic.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace GLOBALQ_ABI {

/// A range of a vector, in values.
struct segment {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t size() const { return count; }
  bool empty() const { return count == 0; }
};

/// A frame to read: the sum of @c terms workers, last encoded by @c worker.
struct source {
  std::span<std::byte const> frame;
  int terms = 1;
  int worker = 0;
  int first = 0;  ///< lowest of the summed workers, whose ranks are consecutive; only codec::finish uses it
};

/// A segment to encode, and the memory of its frame.
struct unsent {
  segment part;
  std::span<std::byte> frame;
};

/// A received segment and its frame.
struct arrived {
  segment part;
  source from;
};

/// The numbers inside a frame, for a transport that adds them itself.
struct payload {
  enum class kind : std::uint8_t { none, int8, int16, int32, float32 };
  kind type = kind::none;
  void* data = nullptr;
  std::uint64_t count = 0;
};

/// Encodes, adds and decodes the frames of one worker in one call. Holds its values and the common scales.
///
/// Frames are independent of each other; nothing is kept between calls of these functions except frames of own values
/// that were made before the schedule runs. An operator rounds only in combine(), once per call of it, so one worker
/// determines the result of a reduction and passes it on.
class codec {
 public:
  virtual ~codec() = default;

  /// Bytes of the frame of a segment that sums @p terms workers; 0 for an empty segment.
  virtual std::size_t frame_bytes(segment part, int terms) const = 0;

  /// Bytes at the start of a frame that contain its length, if frames vary in length; frame_bytes() is then the
  /// maximum. 0: every frame has exactly frame_bytes().
  virtual std::size_t head_bytes() const { return 0; }

  /// Bytes of a frame whose head has arrived. On a stream the first call waits for the enqueued work; the result is
  /// cached until the frame is rewritten, or was a source of combine() or finish().
  /// @param room  the frame of @p worker, with room for frame_bytes()
  /// @throws frame_error when the length in the head exceeds the room, or is shorter than the head
  virtual std::size_t length_of(std::span<std::byte const> room, int /*worker*/) const { return room.size(); }

  /// Writes the frame of a sum: own values (if @p own), then the sources, added in this order.
  /// @param out  frame_bytes(part, terms of all) bytes
  /// @throws frame_error when a source is not a valid frame of this segment
  virtual void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) = 0;

  /// Writes the mean of all workers into the caller's vector, from frames that together contain every worker.
  /// @throws frame_error when a source is not a valid frame of this segment
  virtual void finish(segment part, std::span<source const> sources) = 0;

  /// finish(), but writes where the values from @p to on are. Only the codec of a group of equal vectors supports another place than
  /// that of @p part: the same one in another vector.
  virtual void finish_at(segment part, std::span<source const> sources, std::uint64_t /*to*/) {
    finish(part, sources);
  }

  /// Whether processing several segments at once, by the next two functions, is faster than overlapping the work on
  /// each with the transfer of others. True where work is launched as kernels.
  virtual bool batches() const { return false; }
  /// combine() of own values alone, for each.
  virtual void encode_all(std::span<unsent const> all) {
    for (unsent const& each : all) combine(each.part, true, {}, each.frame);
  }
  /// finish() of each.
  virtual void finish_all(std::span<arrived const> all) {
    for (arrived const& each : all) finish(each.part, {&each.from, 1});
  }

  /// The numbers of a frame, if adding them adds the frames; kind::none otherwise.
  virtual payload numbers(segment part, std::span<std::byte> frame) const = 0;

  /// Declares that numbers() of this frame now sum @p terms workers.
  virtual void declare(std::span<std::byte> frame, int terms) const = 0;
};

/// Divides a vector into n segments, at multiples of the grain, and each segment into chunks that are sent in turn.
///
/// The segments depend only on length, bucket and number of segments. Chunks subdivide them and change no bit.
class partition {
 public:
  /// @param grain  multiple of the random tile and the bucket, > 0
  /// @param chunk  values of a chunk, 0: a segment is one chunk; rounded up to the grain
  partition(std::uint64_t length, int parts, std::uint64_t grain, std::uint64_t chunk)
      : length_(length),
        parts_(static_cast<std::uint64_t>(parts)),
        grain_(grain),
        grains_(divide_up(length, grain)) {
    std::uint64_t const longest = part(0).count;
    chunk_ = chunk == 0 || chunk >= longest ? longest : divide_up(chunk, grain) * grain;
    rounds_ = longest == 0 ? 0 : divide_up(longest, chunk_);
  }

  std::uint64_t length() const { return length_; }
  /// Values of a chunk; 0 if no segment is divided.
  std::uint64_t chunk() const { return rounds_ > 1 ? chunk_ : 0; }
  /// Chunks of the longest segment.
  std::uint64_t rounds() const { return rounds_; }

  /// Segment i; the first ones are the longest, the last ones may be empty.
  segment part(int i) const {
    std::uint64_t const p = static_cast<std::uint64_t>(i);
    std::uint64_t const each = grains_ / parts_, more = grains_ % parts_;
    std::uint64_t const a = p * each + std::min(p, more), b = (p + 1) * each + std::min(p + 1, more);
    std::uint64_t const first = std::min(a * grain_, length_);
    return {first, std::min(b * grain_, length_) - first};
  }

  /// Chunk @p round of segment @p i; empty when the segment has fewer chunks.
  segment piece(int i, std::uint64_t round) const {
    segment const s = part(i);
    std::uint64_t const at = std::min(round * chunk_, s.count);
    return {s.first + at, std::min(chunk_, s.count - at)};
  }

 private:
  std::uint64_t length_, parts_, grain_, grains_, chunk_ = 0, rounds_ = 0;
};

/// Allocates the memory of a byte_buffer, aligned to at least 64 bytes.
class byte_memory {
 public:
  virtual ~byte_memory() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) = 0;
  /// Whether a buffer that grows keeps its old memory until it is destroyed, because its address may still be in use.
  virtual bool keeps_outgrown() const { return false; }

  static std::shared_ptr<byte_memory> const& host();
};

namespace detail {
class host_memory final : public byte_memory {
  static constexpr std::align_val_t alignment{64};
  void* allocate(std::size_t bytes) override { return ::operator new(bytes, alignment); }
  void release(void* memory, std::size_t) override { ::operator delete(memory, alignment); }
};
}  // namespace detail

inline std::shared_ptr<byte_memory> const& byte_memory::host() {
  static std::shared_ptr<byte_memory> const memory = std::make_shared<detail::host_memory>();
  return memory;
}

/// Reused memory: grows, never shrinks, is not cleared.
class byte_buffer {
 public:
  explicit byte_buffer(std::shared_ptr<byte_memory> memory = byte_memory::host())
      : data_(nullptr, releaser{std::move(memory)}) {}

  std::span<std::byte> get(std::size_t bytes) {
    if (bytes > capacity()) grow(bytes);
    return {data_.get(), bytes};
  }

  /// Bytes that get() returns without allocating.
  std::size_t capacity() const { return data_ ? data_.get_deleter().bytes : 0; }

  /// The same for values of a trivially copyable type.
  template <class T>
  T* get_values(std::uint64_t count) {
    return reinterpret_cast<T*>(get(count * sizeof(T)).data());
  }

 private:
  struct releaser {
    std::shared_ptr<byte_memory> memory;
    std::size_t bytes = 0;
    void operator()(std::byte* data) const { memory->release(data, bytes); }
  };
  using block = std::unique_ptr<std::byte, releaser>;

  void grow(std::size_t bytes) {
    std::shared_ptr<byte_memory> const memory = data_.get_deleter().memory;
    bool const keeps = data_ != nullptr && memory->keeps_outgrown();
    if (keeps) outgrown_.reserve(outgrown_.size() + 1);
    block larger(static_cast<std::byte*>(memory->allocate(bytes)), releaser{memory, bytes});
    data_.swap(larger);
    if (keeps) outgrown_.push_back(std::move(larger));
  }

  block data_;
  std::vector<block> outgrown_;
};

/// The frames that a schedule holds during a call; the next call reuses them.
class frame_pool {
 public:
  explicit frame_pool(std::shared_ptr<byte_memory> memory = byte_memory::host())
      : memory_(std::move(memory)) {}

  /// A pool that only counts bytes: frames have a size but no memory (plans run a schedule without data).
  static frame_pool counting() {
    frame_pool p;
    p.counts_ = true;
    return p;
  }

  /// Frame number @p slot with room for @p bytes; its contents are undefined.
  std::span<std::byte> get(std::size_t slot, std::size_t bytes) {
    while (slots_.size() <= slot) slots_.push_back({byte_buffer(memory_)});
    slots_[slot].most = std::max(slots_[slot].most, bytes);
    return counts_ ? std::span<std::byte>(static_cast<std::byte*>(nullptr), bytes)
                   : slots_[slot].memory.get(bytes);
  }

  /// An empty list of sources with room for @p n.
  std::vector<source>& sources(std::size_t n) {
    sources_.clear();
    sources_.reserve(n);
    return sources_;
  }

  /// An empty list of segments with room for @p n.
  std::vector<unsent>& unsent_frames(std::size_t n) {
    unsent_.clear();
    unsent_.reserve(n);
    return unsent_;
  }
  std::vector<arrived>& arrived_frames(std::size_t n) {
    arrived_.clear();
    arrived_.reserve(n);
    return arrived_;
  }

  /// Frames of a codec that itself sends while a schedule runs, separate from those of the schedule.
  frame_pool& of_codec() {
    if (!of_codec_) {
      of_codec_ = std::make_unique<frame_pool>(memory_);
      of_codec_->counts_ = counts_;
    }
    return *of_codec_;
  }

  std::size_t bytes() const {
    std::size_t sum = of_codec_ ? of_codec_->bytes() : 0;
    for (frame const& s : slots_) sum += s.most;
    return sum;
  }

 private:
  struct frame {
    byte_buffer memory;
    std::size_t most = 0;  ///< the most bytes requested
  };

  std::shared_ptr<byte_memory> memory_;
  std::vector<frame> slots_;
  bool counts_ = false;
  std::vector<source> sources_;
  std::vector<unsent> unsent_;
  std::vector<arrived> arrived_;
  std::unique_ptr<frame_pool> of_codec_;
};

}  // namespace GLOBALQ_ABI
