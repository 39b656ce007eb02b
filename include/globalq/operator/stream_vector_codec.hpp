// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: encodes single vectors in device memory, on a stream.

#include "../core/vector.hpp"
#include "any_quantizer.hpp"
#include "detail/make_stream_codec.hpp"
#include "detail/single_worker.hpp"
#include "detail/stream_staged_codec.hpp"
#include "detail/stream_state.hpp"
#include "vector_codec.hpp"

namespace GLOBALQ_ABI {

namespace detail {

/// What the kernels of a call of stream_vector_codec start from. The last kernel of a call leaves it for the next one.
struct reset_single_worker {
  stream_state* state;
  double* bucket_scales;
  double fixed_scale;
  GLOBALQ_FUNCTION static stream_state initial() {
    stream_state s;
    s.agreed.writes = true;
    return s;
  }
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    *state = initial();
    bucket_scales[0] = fixed_scale;
  }
};

/// The bound of values that stages map: no call agrees on one.
struct bound_of_type {
  stream_state* state;
  double top;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { state->agreed.top = top; }
};

/// Adds decoded values of stages' type to a vector.
struct add_mapped_values {
  const_vector x;
  mutable_vector to;
  kernel::agreed_call* agreed;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const {
    bool lost = false;
    if (to.type == dtype::float64) {
      double& y = static_cast<double*>(to.data)[i];
      y += static_cast<double const*>(x.data)[i];
      lost = !is_finite(y);
    } else {
      lost = kernel::store<1, true>(to, i, 1, store_scale(), static_cast<float const*>(x.data) + i);
    }
    if (lost) Kokkos::atomic_or(&agreed->faults, static_cast<std::uint32_t>(kernel::out_of_range));
  }
};

/// Computes the scales of buckets. If a norm overflows float64, sets the largest magnitude to infinity.
struct scale_single_worker {
  find_bucket_scales scale;
  stream_state* state;
  GLOBALQ_FUNCTION void operator()(std::uint64_t b) const {
    scale(b);
    if (bits_of(scale.bucket_scales[b]) >= double_infinity)
      Kokkos::atomic_max(&state->top, std::uint64_t{double_infinity});
  }
};

/// Follows the statistics of a vector with one scale: computes what depends on it, and writes it to the frame.
struct settle_single_worker {
  scale_single_worker scale;
  settle_scales settle;
  std::byte* scales;  ///< of the frame; null: not written here
  scale_format form;
  std::uint64_t places;  ///< of scales in the frame
  GLOBALQ_FUNCTION void operator()() const {
    scale(0);
    settle(0);
    if (scales == nullptr) return;
    write_scale(scales, 0, form, settle.bucket_scales[0]);
    for (std::uint64_t i = 1; i < places; ++i) write_scale(scales, i, form, 0);
  }
};

/// Invalidates a frame whose values have no valid scale.
struct conclude_encode {
  stream_state* state;
  call_step step;
  double fixed_scale;
  std::uint64_t* header;
  stream_word* word;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    double const top = double_of(state->top);
    std::uint32_t trouble = stream_word::fine;
    bool const finite = state->top < double_infinity && (state->agreed.faults & kernel::out_of_range) == 0;
    *state = reset_single_worker::initial();
    if (step() > random::max_step) word->note(stream_word::bad_step);
    if (!finite)
      trouble = stream_word::not_finite;
    else if (fixed_scale > 0 && top > fixed_scale)
      trouble = stream_word::beyond_scale;
    if (trouble == stream_word::fine) return;
    header[0] = header[1] = 0;
    if (word->is_first(trouble)) word->top = top;
    word->note(trouble);
  }
};

/// Reports a bad frame, or values beyond the type's range, to the host.
struct conclude_decode {
  stream_state* state;
  call_step step;
  stream_word* word;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    std::uint32_t const faults = state->agreed.faults;
    *state = reset_single_worker::initial();
    if (step() > random::max_step) word->note(stream_word::bad_step);
    if ((faults & (kernel::bad_code | kernel::bad_frame)) != 0)
      word->note(stream_word::bad_frame);
    else if ((faults & kernel::out_of_range) != 0)
      word->note(stream_word::beyond_range);
  }
};

}  // namespace detail

/// @brief vector_codec for vectors and frames in the memory of a device: calls are enqueued on a stream.
///
/// Frames have the same bits as those of vector_codec, and each decodes the other's frames. They have no checksum,
/// which would need another pass and launch, and checksums of vector_codec are not verified. If frames are stored or
/// sent by other means, decode them on a host or check them yourself. Kernels detect errors; the next call or wait()
/// throws them, once. Not thread-safe.
///
/// @code
/// gq::stream_vector_codec codec{op, Kokkos::Cuda{}};
/// Kokkos::View<std::byte*, Kokkos::CudaSpace> frame("frame", codec.frame_bytes(x.size()));
/// codec.encode(x, {.seed = 42, .step = 7}, frame);
/// codec.decode_add(frame, {.seed = 42, .step = 7}, residual);
/// @endcode
/// @tparam Space  a Kokkos execution space; one instance of it is the stream
/// @determinism   the same frame for the same key on every machine, space and number of threads
template <class Space = Kokkos::DefaultExecutionSpace>
class stream_vector_codec {
 public:
  using memory_space = typename Space::memory_space;

  /// @param op      a quantizer; on Kokkos::Cuda also any_quantizer, and stages that have a form for it, such as rotated
  /// @param stream  runs all work of the codec
  /// @throws configuration_error when the policies do not fit together
  template <class Operator>
  explicit stream_vector_codec(Operator const& op, Space const& stream = Space())
      : on_(stream, "stream_vector_codec"), facts_(detail::single_worker_facts(op)) {
    detail::resolution const r = detail::resolve_single_worker(facts_);
    levels_ = r.size;
    codec_ = detail::make_codec(op, facts_, r, on_);
    state_ = state_memory_.get_values<detail::stream_state>(1);
  }
  stream_vector_codec(stream_vector_codec const&) = delete;
  stream_vector_codec& operator=(stream_vector_codec const&) = delete;
  /// Waits, and writes errors that were not thrown to std::cerr.
  ~stream_vector_codec() {
    detail::report_unclaimed([this] { wait(); });  // kernels may still use the members
  }

  /// @brief Replaces the levels for subsequent calls by others of the same number and kind.
  ///
  /// Does not wait, and allocates only if a graph reads the memory of the previous levels: a graph keeps the levels
  /// with which it was captured; capture it again to change them. During a capture, a call refuses changed levels.
  /// @throws configuration_error unless the operator has levels::table or levels::symmetric
  template <class Table>
  requires std::is_base_of_v<levels::detail::level_table, Table>
  void set_levels(Table const& levels) { codec_->set_levels(levels); }

  /// Number of levels above zero.
  std::uint32_t levels() const { return levels_; }

  /// Bytes of the frame of a vector; the maximum if frames vary in length (wire::sparse).
  /// @throws configuration_error above 2^48 - 1 values
  std::size_t frame_bytes(std::uint64_t length, dtype type = dtype::float32) {
    if (length >> 48 != 0)
      detail::fail<configuration_error>(
          {"globalq: stream_vector_codec: ", length,
           " values are more than 2^48 - 1, the most of a frame; encode parts of the vector"});
    detail::codec_call sized;
    sized.x.type = maps() ? detail::mapped_type(type) : type;
    codec_->note(sized);
    return codec_->frame_bytes({0, length}, 1);
  }

  /// @brief The number of bytes of a frame that are used: all, unless frames vary in length. In that case it waits.
  /// @throws errors of previous calls; frame_error when the bytes are not a frame
  template <class Frame>
  requires detail::KokkosView<Frame> std::size_t used_bytes(Frame const& frame) {
    std::span<std::byte const> const bytes = bytes_of(frame);
    if (codec_->head_bytes() == 0 || bytes.empty()) return bytes.size();
    wait();
    codec_->note({});
    return codec_->length_of(bytes, 0);
  }

  /// Enqueues the frame of @p x.
  /// @param frame  in the memory of the stream, aligned to 16 bytes
  /// @shape        frame: frame_bytes(length, type) bytes
  /// @throws       configuration_error when the frame has another size, or during the capture of a graph, whose replays
  ///               would all draw the same bits; errors of previous calls. If x or a norm is not finite, the frame is
  ///               invalid, and a later call throws
  template <Vector V, class Frame>
  requires detail::KokkosView<Frame>
  void encode(V const& x, encoding_key key, Frame const& frame) {
    if (on_.capturing())
      throw configuration_error(
          "globalq: stream_vector_codec: a graph is being captured with a step in host memory, so every "
          "replay "
          "would draw the same random bits; pass a view of one std::uint64_t in the memory of the stream");
    encode_at(x, key, {key.step, nullptr}, frame);
  }

  /// The same with a step in the memory of the stream, a view or a pointer, which is read when the stream runs the call
  /// and not incremented. A graph may capture it. The step of @p key is ignored.
  /// @shape  step: one value
  /// @throws configuration_error also when the view has another size. If the step is above 2^48 - 1, a later call throws
  template <Vector V, class Frame, detail::StepPlace Step>
  requires detail::KokkosView<Frame>
  void encode(V const& x, encoding_key key, Step const& step, Frame const& frame) {
    encode_at(x, key, step_at(step), frame);
  }

  /// Enqueues decoding a frame into @p y. @p frame has frame_bytes() bytes, or only the used ones. After a damaged
  /// frame @p y is unspecified; a value that overflows is infinity. A later call throws either error.
  /// @throws configuration_error when the frame has another size; errors of previous calls
  template <class Frame, Vector V>
  requires detail::KokkosView<Frame>
  void decode(Frame const& frame, encoding_key key, V const& y) {
    read(frame, key, {key.step, nullptr}, y, false);
  }
  /// The same with a step in the memory of the stream, as of encode(): the step with which the frame was encoded.
  /// @shape  step: one value
  template <class Frame, Vector V, detail::StepPlace Step>
  requires detail::KokkosView<Frame>
  void decode(Frame const& frame, encoding_key key, Step const& step, V const& y) {
    read(frame, key, step_at(step), y, false);
  }

  /// Enqueues adding the decoded frame to @p y; otherwise as decode().
  template <class Frame, Vector V>
  requires detail::KokkosView<Frame>
  void decode_add(Frame const& frame, encoding_key key, V const& y) {
    read(frame, key, {key.step, nullptr}, y, true);
  }
  /// The same with a step in the memory of the stream, as of encode(): the step with which the frame was encoded.
  /// @shape  step: one value
  template <class Frame, Vector V, detail::StepPlace Step>
  requires detail::KokkosView<Frame>
  void decode_add(Frame const& frame, encoding_key key, Step const& step, V const& y) {
    read(frame, key, step_at(step), y, true);
  }

  /// @brief Waits until all calls have run.
  /// @throws the first error of these calls
  void wait() {
    on_.fence();
    throw_trouble();
  }

  /// @brief False if a call that has run failed; the next call or wait() throws the error. Does not wait.
  bool good() const { return report_.good(); }

 private:
  template <class V, class Frame>
  void encode_at(V const& x, encoding_key key, detail::call_step step, Frame const& frame) {
    auto const* const data = detail::data_of<memory_space>(x);
    std::uint64_t const length = detail::size_of_vector(x);
    dtype const own = dtype_of<detail::value_of<V const>>::value,
                type = maps() ? detail::mapped_type(own) : own;
    std::span<std::byte> const out = bytes_of(frame);
    std::uint64_t const buckets = buckets_of(length);
    bool const measures = codec_->measures(type);
    if (maps()) expect_room(mapped_, length, type);
    if (length != 0 && on_.capturing() && !measures &&
        (buckets * sizeof(norm::statistic) > statistics_memory_.capacity() ||
         !tree_.holds(length, facts_.bucket, facts_.q)))
      kernel::refuse_unprepared_capture(on_.operation());
    on_.expect_own_device("stream_vector_codec", data, length);
    on_.expect_own_device("stream_vector_codec", out.data(), out.size());
    begin({data, own}, {nullptr, type}, length, key, step, out.size());
    if (length == 0) return;
    segment const all{0, length};
    if (maps()) call_.x = enter(all, type);
    if (measures) {
      unsent const one{all, out};
      codec_->begin(call_);
      codec_->measure_all({&one, 1}, nullptr, &state_->top);
    } else {
      auto* const statistics = statistics_memory_.get_values<norm::statistic>(buckets);
      auto const enqueue_statistics = [&](auto const& then) {
        norm::enqueue_statistics(on_, call_.x, length, facts_.bucket, facts_.q, tree_, statistics,
                                 &state_->top, then);
      };
      detail::scale_single_worker const scale{
          {state_, facts_.local ? statistics : nullptr, facts_.q, type, bucket_scales_, &state_->top},
          state_};
      if (buckets == 1) {
        call_.settled = true;
        scale_format const form = norm::order(facts_.q).format(type);
        call_.scales_written = facts_.local && codec_->head_bytes() == 0 && !form.two_level();
        enqueue_statistics(
            detail::settle_single_worker{scale,
                                         {&state_->agreed, bucket_scales_, type, codec_->extent(), 1},
                                         call_.scales_written ? out.data() + wire::header_bytes : nullptr,
                                         form,
                                         wire::scale_places(1, form)});
      } else {
        enqueue_statistics(norm::detail::nothing_follows{});
        on_.items(buckets, scale);
      }
      codec_->begin(call_);
      codec_->combine(all, true, {}, out);
    }
    on_.items(1, detail::conclude_encode{state_, step, facts_.fixed_scale,
                                         reinterpret_cast<std::uint64_t*>(out.data()), report_.word()});
    reset_ = bucket_scales_;
  }

  template <class Frame, class V>
  void read(Frame const& frame, encoding_key key, detail::call_step step, V const& y, bool adds) {
    auto* const data = detail::data_of<memory_space>(y);
    std::uint64_t const length = detail::size_of_vector(y);
    dtype const type = dtype_of<detail::value_of<V const>>::value;
    std::span<std::byte const> in = bytes_of(frame);
    // a frame of variable length may be passed with or without its unused bytes; a checksum is ignored
    std::size_t const need = frame_bytes(length, type), more = in.size() > need ? in.size() - need : 0;
    bool const varies = codec_->head_bytes() != 0, cut = varies && in.size() < need;
    if (more == wire::checksum_bytes || (varies && more < wire::checksum_bytes))
      in = in.first(in.size() - more);
    on_.expect_own_device("stream_vector_codec", data, length);
    on_.expect_own_device("stream_vector_codec", in.data(), in.size());
    dtype const decoded = maps() ? detail::mapped_type(type) : type;
    bool const apart = maps() && (adds || decoded != type);
    if (apart) expect_room(decoded_, length, decoded);
    begin({nullptr, decoded}, {data, type}, length, key, step, cut ? need : in.size());
    if (length == 0) return;
    if (maps()) note_bound(decoded);
    if (apart) call_.y = {decoded_.get(length * size_of(decoded)).data(), decoded};
    if (std::uint64_t const buckets = buckets_of(length); facts_.fixed_scale > 0 && buckets > 1)
      on_.items(buckets,
                detail::find_bucket_scales{state_, nullptr, facts_.q, type, bucket_scales_, nullptr});
    call_.settled = facts_.local;  // scales come with the frame
    codec_->begin(call_);
    source const one{in, 1, static_cast<int>(key.worker)};
    if (adds && !apart)
      codec_->add_decoded({0, length}, {&one, 1});
    else
      codec_->finish({0, length}, {&one, 1});
    if (apart) leave(adds, {data, type});
    on_.items(1, detail::conclude_decode{state_, step, report_.word()});
    reset_ = bucket_scales_;
  }

  bool maps() const { return !facts_.chain.empty(); }

  /// Throws during the capture of a graph if memory for mapped values would have to be allocated.
  void expect_room(byte_buffer const& room, std::uint64_t length, dtype type) const {
    if (on_.capturing() && room.capacity() < length * size_of(type))
      kernel::refuse_unprepared_capture(on_.operation());
  }

  void note_bound(dtype type) { on_.items(1, detail::bound_of_type{state_, detail::largest_mapped(type)}); }

  /// Maps the vector of the call by the stages.
  const_vector enter(segment all, dtype type) {
    note_bound(type);
    return detail::enter_stages(on_, *codec_, call_, all,
                                {mapped_.get(all.count * size_of(type)).data(), type});
  }

  /// Converts the decoded vector of the call to the type of another one, or adds it there.
  void leave(bool adds, mutable_vector y) {
    const_vector const x{call_.y.data, call_.y.type};
    if (adds)
      on_.items(call_.length, detail::add_mapped_values{x, y, call_.agreed});
    else
      on_.items(call_.length, detail::narrow_values{static_cast<float const*>(x.data), 0, y, call_.agreed});
  }

  void begin(const_vector x, mutable_vector y, std::uint64_t length, encoding_key key, detail::call_step step,
             std::size_t bytes) {
    throw_trouble();
    if (step.where == nullptr && key.step > random::max_step)
      detail::fail<configuration_error>(
          {"globalq: stream_vector_codec: step ", key.step,
           " is above 2^48 - 1; count steps from 0 and change the seed instead"});
    if (step.where != nullptr) on_.expect_own_device("stream_vector_codec", step.where, 1, "step");
    if (std::size_t const need = frame_bytes(length, x.type); bytes != need)
      detail::fail<configuration_error>({"globalq: stream_vector_codec: the frame has ", bytes,
                                         " bytes and needs ", need, "; pass frame_bytes() bytes"});
    if (length == 0) return;
    std::uint64_t const buckets = buckets_of(length);
    if (on_.capturing() && buckets > prepared_) kernel::refuse_unprepared_capture(on_.operation());
    prepared_ = std::max(prepared_, buckets);
    bucket_scales_ = scales_memory_.get_values<double>(buckets);
    if (std::exchange(reset_, nullptr) != bucket_scales_)
      on_.items(1, detail::reset_single_worker{state_, bucket_scales_, facts_.fixed_scale});
    call_ = {};
    call_.x = x;
    call_.y = y;
    call_.length = length;
    call_.rank = static_cast<int>(key.worker);
    detail::tell(call_, key);
    call_.seed = key.seed;
    call_.step = step.value;
    call_.step_at = step.where;
    call_.bucket_scales = std::span<double const>(bucket_scales_, buckets);
    call_.agreed = &state_->agreed;
  }

  std::uint64_t buckets_of(std::uint64_t length) const {
    return facts_.bucket == 0 ? 1 : divide_up(length, facts_.bucket);
  }

  template <class Step>
  static detail::call_step step_at(Step const& step) {
    if constexpr (detail::StepView<Step>)
      static_assert(
          detail::reaches<Step, memory_space>,
          "globalq: stream_vector_codec: the step is in memory that the stream cannot access; use a "
          "view of the stream's space");
    return {0, detail::address_of_step("globalq: stream_vector_codec: ", step)};
  }

  template <class Frame>
  static auto bytes_of(Frame const& frame) {
    using byte = typename Frame::value_type;
    static_assert(sizeof(byte) == 1,
                  "globalq: stream_vector_codec: the frame is not a view of bytes; use a Kokkos::View of "
                  "std::byte, char or unsigned char");
    auto* const data = detail::memory_of<memory_space>(frame);
    if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
      throw configuration_error(
          "globalq: stream_vector_codec: the frame does not begin at a multiple of 16 bytes; place frames at "
          "such offsets of an allocation");
    using out = std::conditional_t<std::is_const_v<byte>, std::byte const, std::byte>;
    return std::span<out>(reinterpret_cast<out*>(data), frame.size());
  }

  /// Throws an error that kernels found, once.
  void throw_trouble() {
    if (good()) return;
    on_.fence();
    detail::stream_word const word = report_.take();
    std::string const late = report_.late;
    switch (word.trouble) {
      case detail::stream_word::not_finite:
        detail::fail<non_finite_error>(
            {"globalq: encode: values contain NaN or infinity, or their norm is beyond the range of float64, "
             "so "
             "the frame is invalid; encode finite values, or scale them down",
             late});
      case detail::stream_word::beyond_scale:
        detail::fail<configuration_error>(
            {"globalq: encode: a value of magnitude ", detail::digits_of(word.top), " exceeds the scale ",
             detail::digits_of(facts_.fixed_scale),
             " of norm::fixed, so the frame is invalid; raise that scale, or use "
             "a measured norm",
             late});
      case detail::stream_word::beyond_range:
        detail::fail<non_finite_error>(
            {"globalq: decode: a value is beyond the range of its type, and the output contains infinity "
             "there; "
             "decode into a wider type, or scale vectors down",
             late});
      case detail::stream_word::bad_step:
        detail::fail<configuration_error>(
            {"globalq: stream_vector_codec: a step is above 2^48 - 1; count steps from 0 and change the seed "
             "instead",
             late});
      default:
        detail::fail<frame_error>(
            {"globalq: decode: a frame is damaged or was made by another operator or for another length, and "
             "the output is unspecified; send the frame again, or decode it with its own operator",
             late});
    }
  }

  kernel::stream_executor<Space> on_;
  detail::operator_facts facts_;
  std::uint32_t levels_ = 0;
  std::unique_ptr<detail::operator_codec> codec_;
  detail::codec_call call_;
  std::uint64_t prepared_ = 0;  ///< buckets for which memory is allocated
  detail::stream_report<Space> report_{on_};
  byte_buffer state_memory_{on_.memory()};
  byte_buffer scales_memory_{on_.memory()};
  byte_buffer statistics_memory_{on_.memory()};
  byte_buffer mapped_{on_.memory()}, decoded_{on_.memory()};  ///< with stages
  norm::statistics_memory tree_{on_.memory()};
  detail::stream_state* state_ = nullptr;
  double* bucket_scales_ = nullptr;
  double* reset_ =
      nullptr;  ///< scales of the last call, if all of its kernels were enqueued: they left state and scale for the next
};

template <class Operator, class Space>
stream_vector_codec(Operator const&, Space const&) -> stream_vector_codec<Space>;
template <class Operator>
stream_vector_codec(Operator const&) -> stream_vector_codec<>;

}  // namespace GLOBALQ_ABI
