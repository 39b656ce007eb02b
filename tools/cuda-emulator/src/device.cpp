// SPDX-License-Identifier: Apache-2.0

#include "device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulator {

namespace {
int number_in(char const* variable, int otherwise) {
  char const* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}
}  // namespace

runtime::runtime()
    : random_(static_cast<std::uint64_t>(number_in("EMULATED_SEED", 1))),
      late_(number_in("EMULATED_SEED", 1) == 0) {
  int const number = std::max(1, number_in("EMULATED_DEVICES", 1));
  for (int k = 0; k < number; ++k) devices.push_back(std::make_unique<device_state>(k));
}

runtime& the_runtime() {
  static runtime* const r = new runtime;
  return *r;
}

loaded_module& runtime::loaded(module_record& m, int device) {
  if (!m.read) {
    auto binary = read_fat_binary(m.wrapper);
    m.registers = std::move(binary.registers);
    m.ptx = std::move(binary.ptx);
    m.read = true;
  }
  device_state& on = of(device);
  auto& module = on.modules[&m];
  if (module == nullptr) module = std::make_unique<loaded_module>(m.ptx, on.bytes);
  return *module;
}

pinned_range* runtime::pinned_at(void const* p) {
  auto const after = pinned.upper_bound(address_of(p));
  if (after == pinned.begin()) return nullptr;
  auto& [begin, range] = *std::prev(after);
  return address_of(p) - begin < std::max<std::uint64_t>(1, range.bytes) ? &range : nullptr;
}

CUstream_st* runtime::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &of(current_device).legacy;
  auto const found = streams.find(handle);
  return found == streams.end() || found->second->destroyed ? nullptr : found->second.get();
}

cudaError_t runtime::enqueue(CUstream_st& s, recipe make) {
  if (&s == &of(s.device).legacy) {
    if (auto* const captured = implicitly_captured(s.device)) {
      captured->capture->invalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  if (s.capture != nullptr) {
    if (s.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    s.capture->nodes.push_back(std::move(make));
    ++s.captured;
    s.awaited = false;
    return cudaSuccess;
  }
  s.queue.push_back({++issued, make()});
  progressed.notify_all();
  return cudaSuccess;
}

std::vector<CUstream_st*> runtime::all_streams() {
  std::vector<CUstream_st*> all;
  for (auto const& g : devices) all.push_back(&g->legacy);
  for (auto const& [handle, s] : streams) all.push_back(s.get());
  return all;
}

bool runtime::may_start(CUstream_st const& s) {
  if (s.queue.empty()) return false;
  auto const earlier = [&](CUstream_st const& other) {
    return !other.queue.empty() && other.queue.front().number < s.queue.front().number;
  };
  CUstream_st const& legacy = of(s.device).legacy;
  if (&s != &legacy) return !(s.blocking && earlier(legacy));
  return std::none_of(streams.begin(), streams.end(), [&](auto const& each) {
    return each.second->device == s.device && each.second->blocking && earlier(*each.second);
  });
}

bool runtime::step() {
  auto order = all_streams();
  std::shuffle(order.begin(), order.end(), random_);
  for (CUstream_st* const s : order) {
    if (!may_start(*s)) continue;
    try {
      if (!s->queue.front().run()) continue;
    } catch (fault const& what) {
      fail(what);
      return true;
    }
    s->queue.pop_front();
    if (s->destroyed && s->queue.empty()) streams.erase(s);
    progressed.notify_all();
    return true;
  }
  return false;
}

void runtime::drift() {
  if (late_) return;
  for (auto n = random_() % 8; n > 4 && step(); --n) {
  }
}

void runtime::finish(std::unique_lock<std::mutex>& lock, CUstream_st const& s) {
  work_until(lock, [&, last = issued] { return s.queue.empty() || s.queue.front().number > last; });
}

void runtime::finish_device(std::unique_lock<std::mutex>& lock, int device) {
  work_until(lock, [&, last = issued] {
    for (CUstream_st const* s : all_streams()) {
      if (s->device == device && !s->queue.empty() && s->queue.front().number <= last) return false;
    }
    return true;
  });
}

CUstream_st* runtime::forbidding() {
  for (auto const& [handle, s] : streams) {
    if (s->capture == nullptr || s->capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (s->capture->mode == cudaStreamCaptureModeGlobal ||
        s->capture->captured_by == std::this_thread::get_id())
      return s.get();
  }
  return nullptr;
}

CUstream_st* runtime::implicitly_captured(int device) {
  for (auto const& [handle, s] : streams) {
    if (s->capture != nullptr && s->blocking && s->device == device) return s.get();
  }
  return nullptr;
}

void runtime::fail(fault const& what) {
  std::fprintf(stderr, "emulated device: %s\n", what.what());
  sticky = cudaErrorLaunchFailure;
  for (CUstream_st* const s : all_streams()) s->queue.clear();
  progressed.notify_all();
}

void expect_alive(runtime& r, void const* p) {
  auto const* const range = r.pinned_at(p);
  if (range != nullptr && range->freed)
    throw fault("use after free: a copy needs " + hex(address_of(p)) +
                " in pinned memory of the host, which is freed");
}

void copy(runtime& r, void* to, void const* from, std::size_t bytes) {
  if (bytes == 0) return;
  auto const memory_at = [&](void const* p) -> memory& {
    auto const device = device_of(address_of(p));
    if (device >= r.devices.size())
      throw fault("a copy of " + hex(address_of(p)) + ", where there is no device");
    return r.devices[device]->bytes;
  };
  expect_alive(r, to);
  expect_alive(r, from);
  if (on_device(to) && on_device(from))
    return memory_at(to).copy(address_of(to), memory_at(from), address_of(from), bytes);
  if (on_device(to)) return memory_at(to).write(address_of(to), from, bytes);
  if (on_device(from)) return memory_at(from).read(to, address_of(from), bytes);
  std::memmove(to, from, bytes);
}

}  // namespace emulator
