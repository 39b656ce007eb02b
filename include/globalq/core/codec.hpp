// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief core: all that a schedule sees of an operator: frames of bytes that can be combined and finished.
///
/// What is compiled is therefore operators plus schedules, not operators times schedules times transports.

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

/// A frame that came from somewhere: the sum of @c terms workers, last encoded by @c worker.
struct source {
  std::span<std::byte const> frame;
  int terms = 1;
  int worker = 0;
  int first = 0;  ///< of the summed workers, whose ranks are consecutive; looked at by codec::finish only
};

/// The frame to make of a segment.
struct unsent {
  segment part;
  std::span<std::byte> frame;
};

/// The frame of a segment that arrived.
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

/// One worker's view of one call: its values, the common scales, and how frames are made, added and read.
///
/// Frames are independent of each other; nothing is kept between calls of these functions but frames of own values that
/// were made before the schedule runs. An operator's rounding
/// happens in combine() only, once a call, so the result of a reduction is decided at one worker and passed on.
class codec {
 public:
  virtual ~codec() = default;

  /// Bytes of the frame of a segment that sums @p terms workers; 0 for an empty segment.
  virtual std::size_t frame_bytes(segment part, int terms) const = 0;

  /// Bytes at the start of a frame that tell its length, where only its maker knows it: frame_bytes() is the most then.
  /// 0: every frame has frame_bytes() exactly.
  virtual std::size_t head_bytes() const { return 0; }

  /// Bytes of a frame, of which the head is there. On a stream the first asking waits for what was enqueued; the answer is
  /// kept until the frame is made anew, or was a source of combine() or finish().
  /// @param room  the frame of @p worker, with room for frame_bytes()
  /// @throws frame_error when the head tells of more bytes than there is room for, or of less than a head
  virtual std::size_t length_of(std::span<std::byte const> room, int /*worker*/) const { return room.size(); }

  /// Writes the frame of: own values (if @p own) plus the sources, in this order.
  /// @param out  frame_bytes(part, terms of all) bytes
  /// @throws frame_error when a source is no valid frame of this segment
  virtual void combine(segment part, bool own, std::span<source const> sources, std::span<std::byte> out) = 0;

  /// Writes the mean of all workers into the caller's vector, from frames that together hold every worker.
  /// @throws frame_error when a source is no valid frame of this segment
  virtual void finish(segment part, std::span<source const> sources) = 0;

  /// Whether the work on several segments costs less at once, by the two functions that follow, than segment by segment while
  /// others travel: where work is launched.
  virtual bool batches() const { return false; }
  /// combine() of own values alone, for each.
  virtual void encode_all(std::span<unsent const> all) {
    for (unsent const& each : all) combine(each.part, true, {}, each.frame);
  }
  /// finish() of each.
  virtual void finish_all(std::span<arrived const> all) {
    for (arrived const& each : all) finish(each.part, {&each.from, 1});
  }

  /// The numbers of a frame, when a plain sum of them is the sum of the frames; kind::none otherwise.
  virtual payload numbers(segment part, std::span<std::byte> frame) const = 0;

  /// Declares that numbers() of this frame now sum @p terms workers.
  virtual void declare(std::span<std::byte> frame, int terms) const = 0;
};

/// How a vector is cut: n segments, at multiples of the grain, and each segment into chunks that are sent in turn.
///
/// The segments depend on length, bucket and number of segments only. Chunks subdivide them and change no bit.
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
  /// Chunks of the longest segment.
  std::uint64_t rounds() const { return rounds_; }

  /// Segment i of the parts; the first ones are the longest, the last ones may be empty.
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

/// Where reused bytes lie; what is allocated is aligned to 64 bytes at least.
class byte_memory {
 public:
  virtual ~byte_memory() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) = 0;
  /// Whether what a buffer outgrows lives as long as the buffer: somebody may know its address.
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

/// Bytes that are reused: grows, never shrinks, is not cleared.
class byte_buffer {
 public:
  explicit byte_buffer(std::shared_ptr<byte_memory> memory = byte_memory::host())
      : data_(nullptr, releaser{std::move(memory)}) {}

  std::span<std::byte> get(std::size_t bytes) {
    if (bytes > capacity()) grow(bytes);
    return {data_.get(), bytes};
  }

  /// Bytes that get() gives without allocating.
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

/// The frames a schedule holds during a call, reused by the next one.
class frame_pool {
 public:
  explicit frame_pool(std::shared_ptr<byte_memory> memory = byte_memory::host())
      : memory_(std::move(memory)) {}

  /// A pool that only counts: frames have a size but no memory (plans run a schedule without data).
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

  /// Empty lists of segments with room for @p n.
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

  /// Frames of a codec that sends by itself while a schedule runs, apart from those of the schedule.
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
    std::size_t most = 0;  ///< bytes that were asked for
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
