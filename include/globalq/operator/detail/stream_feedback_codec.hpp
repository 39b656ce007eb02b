// SPDX-License-Identifier: Apache-2.0
#pragma once
/// @file
/// @brief operator: feedback_codec on a stream; the same bits.

#include "../../kernel/device/team_collectives.hpp"
#include "../../kernel/stream.hpp"
#include "feedback_frames.hpp"
#include "kept_on_stream.hpp"
#include "residual.hpp"
#include "stream_state.hpp"

namespace GLOBALQ_ABI::detail {

/// The start of the memory of a residual on a stream. Its values follow: those of the last call and those of the next, then
/// the scales of their blocks in 8 bits. Kernels exchange the two.
struct kept_state {
  struct vector {
    std::uint64_t length = 0;
    dtype type = dtype::float32;
    double top = 0;  ///< the largest magnitude
    segment part;    ///< outside of it the residual is zero
  };
  vector of[2];
  std::int32_t now = 0;
  std::uint64_t next_top = 0;  ///< bits of a double

  GLOBALQ_FUNCTION vector const& current() const { return of[now]; }
};

/// What kernels of a call need to know of a residual.
struct kept_place {
  static constexpr std::uint64_t block = kept_values::block;
  static constexpr std::size_t head = 256;
  static_assert(sizeof(kept_state) <= head);

  std::byte* memory = nullptr;
  std::uint64_t length = 0;
  dtype type = dtype::float32;  ///< of mapped vectors
  feedback_options options;
  std::uint64_t step = 0;
  std::uint64_t const* step_at = nullptr;

  GLOBALQ_FUNCTION kept_state* state() const { return reinterpret_cast<kept_state*>(memory); }
  GLOBALQ_FUNCTION bool in_8_bits() const { return options.bits == 8; }
  GLOBALQ_FUNCTION bool resets() const { return options.resets(step_at != nullptr ? *step_at : step); }
  /// Whether the current residual is one of this vector. A graph may be replayed after calls with others.
  GLOBALQ_FUNCTION bool adds() const {
    kept_state::vector const& now = state()->current();
    return now.length == length && now.type == type && !resets();
  }

  GLOBALQ_FUNCTION std::uint64_t blocks() const { return divide_up<std::uint64_t>(length, block); }
  /// Whole blocks, so that all are aligned.
  GLOBALQ_FUNCTION std::size_t bytes_of_values() const {
    return blocks() * block * (in_8_bits() ? 1 : size_of(type));
  }
  GLOBALQ_FUNCTION std::size_t bytes() const {
    return head + 2 * (bytes_of_values() + (in_8_bits() ? blocks() * sizeof(double) : 0));
  }
  /// @param which  0 or 1
  GLOBALQ_FUNCTION std::byte* values(int which) const {
    return memory + head + static_cast<std::size_t>(which) * bytes_of_values();
  }
  GLOBALQ_FUNCTION double* scales(int which) const {
    return reinterpret_cast<double*>(values(2)) + static_cast<std::uint64_t>(which) * blocks();
  }
};

struct forget_kept {
  kept_state* state;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const { state->of[state->now].length = 0; }
};

struct clear_words {
  std::uint64_t* words;
  GLOBALQ_FUNCTION void operator()(std::uint64_t i) const { words[i] = 0; }
};

/// Raises the bound of a vector by that of its residual, and begins that of the next one.
struct raise_bound {
  kept_place place;
  double largest;
  std::uint64_t* top;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    kept_state& kept = *place.state();
    double const most = place.adds() ? kept.current().top : 0.0;
    if (*top < double_infinity)
      *top = bits_of(bound_with(double_of(*top), most, place.options.decay, largest));
    kept.next_top = bits_of((1 - static_cast<double>(place.options.average)) * most);
  }
};

/// Makes what the frames of a call left out the current residual, if there is a mean.
struct commit_kept {
  kept_place place;
  segment part;
  stream_state const* call;
  GLOBALQ_FUNCTION void operator()(std::uint64_t) const {
    kept_state& kept = *place.state();
    std::uint64_t const step = place.step_at != nullptr ? *place.step_at : place.step;
    if (call->what == call_status::zero && place.resets() && step <= random::max_step)
      kept.of[kept.now].length = 0;
    if (call->what != call_status::mean || !call->agreed.writes || call->agreed.faults != kernel::none)
      return;
    kept.now = 1 - kept.now;
    kept.of[kept.now] = {place.length, place.type, double_of(kept.next_top), part};
  }
};

/// The blocks of a part of a vector; a team processes one at a time.
template <class T>
struct kept_blocks {
  static constexpr int team_threads = static_cast<int>(kept_place::block);
  static constexpr std::size_t scratch_bytes = kept_place::block * sizeof(T);

  kept_place place;
  residual_rule<T> rule;
  segment part;

  std::uint64_t items() const { return divide_up(part.count, kept_place::block); }

 protected:
  GLOBALQ_FUNCTION std::uint64_t first_of(std::uint64_t item) const {
    return part.first + item * kept_place::block;
  }
  GLOBALQ_FUNCTION int count_of(std::uint64_t item) const {
    std::uint64_t const left = part.count - item * kept_place::block;
    return static_cast<int>(left < kept_place::block ? left : kept_place::block);
  }

  /// A value of the current residual, which is number @p now.
  GLOBALQ_FUNCTION T read(int now, std::uint64_t i) const {
    std::byte const* const values = place.values(now);
    if (!place.in_8_bits()) return reinterpret_cast<T const*>(values)[i];
    return static_cast<T>(reinterpret_cast<std::int8_t const*>(values)[i] *
                          place.scales(now)[i / kept_place::block]);
  }
  /// What stays of it.
  GLOBALQ_FUNCTION T base(int now, std::uint64_t i, bool adds) const {
    return adds && place.options.average != 1 ? rule.base(read(now, i)) : T{0};
  }

  /// Writes value(i) for the values of an item to residual number @p next.
  /// @returns the bits of the largest magnitude
  template <class Team, class Value>
  KOKKOS_FUNCTION std::uint64_t write(Team const& team, int next, std::uint64_t item, std::byte* scratch,
                                      Value const& value) const {
    int const count = count_of(item);
    std::uint64_t const first = first_of(item);
    std::byte* const values = place.values(next);
    auto* const staged = reinterpret_cast<T*>(scratch);
    bool const codes = place.in_8_bits();
    std::uint64_t most = 0;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int i) {
      std::uint64_t const at = first + static_cast<std::uint64_t>(i);
      T const v = value(at);
      if (codes)
        staged[i] = v;
      else
        reinterpret_cast<T*>(values)[at] = v;
      std::uint64_t const magnitude = bits_of(static_cast<double>(v)) & double_magnitude;
      most = most < magnitude ? magnitude : most;
    });
    most = kernel::device::largest_of_all<team_threads>(team, most);
    if (!codes) return most;
    double const scale = code_scale(double_of(most));
    Kokkos::single(Kokkos::PerTeam(team), [&] { place.scales(next)[first / kept_place::block] = scale; });
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](int i) {
      reinterpret_cast<std::int8_t*>(values)[first + static_cast<std::uint64_t>(i)] =
          code_of(static_cast<double>(staged[i]), scale);
    });
    return most;
  }
};

/// residual::enter(): adds the residual, and begins the next one.
template <class T>
struct enter_kept : kept_blocks<T> {
  T const* x;
  T *to, *copy;  ///< copy: null, or receives the same

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    int const now = this->place.state()->now;
    bool const adds = this->place.adds();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, this->count_of(item)), [&](int k) {
      std::uint64_t const i = this->first_of(item) + static_cast<std::uint64_t>(k);
      T const sum = adds ? this->rule.add(x[i], this->read(now, i)) : x[i];
      to[i] = sum;
      if (copy != nullptr) copy[i] = sum;
    });
    this->write(team, 1 - now, item, scratch, [&](std::uint64_t i) { return this->base(now, i, adds); });
  }
};

/// residual::keep(): stores what a frame left out.
template <class T>
struct keep_rest : kept_blocks<T> {
  T const *entered, *decoded, *received;  ///< of the vector's value 0; received: null, or of other workers
  double terms;
  kernel::agreed_call const* agreed;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::uint64_t item, std::byte* scratch) const {
    if (!agreed->writes) return;  // nothing was decoded
    int const now = this->place.state()->now;
    bool const adds = this->place.adds();
    std::uint64_t const most = this->write(team, 1 - now, item, scratch, [&](std::uint64_t i) {
      double const sum =
          static_cast<double>(entered[i]) + (received == nullptr ? 0.0 : static_cast<double>(received[i]));
      return this->rule.keep(this->base(now, i, adds), sum, terms, decoded[i]);
    });
    Kokkos::single(Kokkos::PerTeam(team), [&] { Kokkos::atomic_max(&this->place.state()->next_top, most); });
  }
};

/// The codec of an operator with error feedback on a stream. It belongs to one call object, and so do its residuals.
template <class Space>
class stream_feedback_codec final : public feedback_frames, public kept_on_stream {
 public:
  /// @param inner  the codec of the operator without the first stage of its chain
  stream_feedback_codec(std::unique_ptr<operator_codec> inner, operator_facts const& op, method how,
                        kernel::stream_executor<Space> const& on)
      : feedback_frames(std::move(inner), op, how, on.memory()), on_(on) {
    place_.options = *feedback_of(op.chain);
    apart_ = apart_memory_.get_values<stream_state>(1);
  }

  void begin(codec_call const& c) override {
    operator_codec::note(c);
    inner_->begin(c);
  }
  kept_on_stream* kept() override { return this; }

  void enter(codec_call const& c, const_vector x, segment part, mutable_vector to) override {
    part_ = {};
    entered_ = {to.data, to.type};
    if (maps_) entered_.data = copy_.get(c.length * size_of(to.type)).data();
    with_type(to.type, [&]<class T>(T) {
      auto* const copy = maps_ ? static_cast<T*>(const_cast<void*>(entered_.data)) : nullptr;
      enqueue(enter_kept<T>{
          {place_, of<T>(), part}, static_cast<T const*>(x.data), static_cast<T*>(to.data), copy});
    });
    inner_->enter(c, {to.data, to.type}, part, to);
  }

  void encode_all(std::span<unsent const> all) override {
    inner_->encode_all(all);
    if (!call_.keeps) return;
    made_.clear();
    for (unsent const& each : all)
      if (!each.part.empty()) made_.push_back({each.part, made_of(each.frame, 1)});
    if (made_.empty()) return;
    segment const last = made_.back().part, first = made_.front().part,
                  whole{first.first, last.first + last.count - first.first};
    void const* const content = decode(decoded_, whole, 1, [&] { inner_->finish_all(made_); });
    inner_->begin(call_);
    for_joined(made_, [&](segment part) {
      auto const* const from = static_cast<std::byte const*>(content);
      keep(part, from + (part.first - whole.first) * size_of(place_.type), 1, nullptr);
    });
  }
  void finish(segment part, std::span<source const> sources) override { inner_->finish(part, sources); }
  void finish_all(std::span<arrived const> all) override { inner_->finish_all(all); }

  std::string refusal(std::uint64_t length, dtype type, waiter const& wait) override {
    if (length == 0 || place_.length == 0 || (length == place_.length && type == place_.type)) return {};
    if (on_.capturing()) kernel::refuse_unprepared_capture(on_.operation());
    kept_state::vector const now = current(wait);
    return residuals::refusal(0, length, type, now.length, now.type);
  }

  void raise(codec_call const& c, std::uint64_t* top) override {
    if (c.length == 0) return;
    lay_out(c.length, mapped_type(c.x.type));
    place_.step = c.step;
    place_.step_at = c.step_at;
    on_.items(1, raise_bound{place_, largest_mapped(c.x.type), top});
  }

  const_vector entered() const override { return entered_; }

  void commit(stream_state const* state) override { on_.items(1, commit_kept{place_, part_, state}); }

  residuals save(waiter const& wait) override {
    residuals all;
    if (place_.length == 0) return all;
    residual& to = all.of(0);
    kept_state::vector const now = current(wait);
    if (now.length != place_.length || now.type != place_.type) return all;
    to.resize(place_.options, now.length, now.type, now.top, now.part);
    with_bytes(to, [&](std::span<std::byte> there, std::byte* here) {
      if (!there.empty()) on_.copy_out(there.data(), here, there.size());
    });
    wait();
    return all;
  }

  void load(residuals& from, waiter const& wait) override {
    wait();
    if (from.size() == 0 || from.of(0).empty()) return forget();
    residual& r = from.of(0);
    lay_out(r.length(), r.type());
    state_ = {};
    state_.of[0] = {r.length(), r.type(), r.top(), r.part()};
    on_.copy_in(place_.memory, &state_, sizeof state_);
    with_bytes(r, [&](std::span<std::byte> there, std::byte* here) {
      if (!there.empty()) on_.copy_in(here, there.data(), there.size());
    });
    wait();
  }

  void forget() override {
    if (place_.length != 0) on_.items(1, forget_kept{place_.state()});
  }

 private:
  template <class T>
  residual_rule<T> of() const {
    return residual_rule<T>(place_.options);
  }
  template <class Body>
  void enqueue(Body const& body) const {
    on_.teams(body.items(), body);
  }
  bool keeps() const override { return call_.keeps; }
  /// A fault of a frame that is decoded here is not one of the call.
  void set_apart(codec_call& alone) override {
    alone.agreed = &apart_->agreed;
    on_.items(1, begin_apart{call_.agreed, apart_});
  }

  void keep(segment part, void const* content, int terms, void const* received) override {
    std::uint64_t const end = std::max(part_.first + part_.count, part.first + part.count);
    part_.first = part_.empty() ? part.first : std::min(part_.first, part.first);
    part_.count = end - part_.first;
    auto const whole = [&](void const* from) {
      return from == nullptr ? nullptr : at(const_vector{from, place_.type}, -part.first).data;
    };
    with_type(place_.type, [&]<class T>(T) {
      enqueue(keep_rest<T>{{place_, of<T>(), part},
                           static_cast<T const*>(entered_.data),
                           static_cast<T const*>(whole(content)),
                           static_cast<T const*>(whole(received)),
                           static_cast<double>(terms),
                           call_.agreed});
    });
  }

  /// Makes room for the residuals of vectors of a length and type.
  /// @pre there is no residual of others
  void lay_out(std::uint64_t length, dtype type) {
    if (length == place_.length && type == place_.type) return;
    kept_place next = place_;
    next.length = length;
    next.type = type;
    bool const grows = next.bytes() > memory_.capacity();
    next.memory = memory_.get(next.bytes()).data();
    place_ = next;
    std::size_t const from = grows ? 0 : place_.head;  // a state of zeros has no residual
    on_.items((place_.bytes() - from) / sizeof(std::uint64_t),
              clear_words{reinterpret_cast<std::uint64_t*>(place_.memory + from)});
  }

  kept_state::vector current(waiter const& wait) {
    on_.copy_out(&state_, place_.memory, sizeof state_);
    wait();
    return state_.current();
  }

  /// f(bytes of @p r, where they are on the device) for values and scales.
  template <class F>
  void with_bytes(residual& r, F const& f) const {
    f(r.values().values(), place_.values(state_.now));
    f(r.values().scales(), reinterpret_cast<std::byte*>(place_.scales(state_.now)));
  }

  kernel::stream_executor<Space> on_;
  kept_place place_;
  kept_state state_;  ///< as it was read or written last
  segment part_;      ///< in which this call kept something
  const_vector entered_{};
  std::vector<arrived> made_;
  byte_buffer memory_{on_.memory()}, copy_{on_.memory()};
  byte_buffer apart_memory_{on_.memory()};
  stream_state* apart_;  ///< of frames that are decoded here
};

}  // namespace GLOBALQ_ABI::detail
