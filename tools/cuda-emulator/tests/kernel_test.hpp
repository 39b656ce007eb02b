// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief Small kernels written by hand, what they write, and their faults.

#pragma once

#include "machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace emulator::test {

using std::int32_t;
using std::int64_t;
using std::string;
using std::uint32_t;
using std::uint64_t;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
using list = std::vector<T>;
using words = list<uint32_t>;

inline string replaced(string text, string const& what, string const& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

/// All of them, one after the other.
inline string replaced(string text, list<std::pair<string, string>> const& all) {
  for (auto const& [what, with] : all) text = replaced(std::move(text), what, with);
  return text;
}

inline list<string> split(string const& text) {
  std::istringstream in(text);
  return {std::istream_iterator<string>(in), {}};
}

inline uint64_t mask_of(unsigned bytes) { return bytes == 8 ? ~0ULL : (1ULL << (8 * bytes)) - 1; }

inline words of_lanes(std::function<uint32_t(uint32_t)> const& value, uint32_t n = 32) {
  words values;
  for (uint32_t l = 0; l < n; ++l) values.push_back(value(l));
  return values;
}

inline string message(std::function<void()> const& does) {
  try {
    does();
  } catch (fault const& what) {
    return what.what();
  }
  return {};
}

/// Runs kernels of four parameters of 64 bits, which are in %d0 to %d3. %r0 is %tid.x; %d8 and %d9 are the
/// thread's own 4 and 8 bytes behind %d0.
struct device {
  string before{};  // the kernel
  dimensions block{32};
  dimensions grid{};
  uint64_t dynamic = 0;
  uint64_t most = 10'000'000;
  memory m{};
  counts count{};

  template <class T>
  uint64_t upload(list<T> const& values) {
    uint64_t const at = m.allocate(sizeof(T) * values.size(), "input");
    m.write(at, values.data(), sizeof(T) * values.size());
    return at;
  }

  template <class T>
  list<T> download(uint64_t at, std::size_t n) {
    list<T> values(n);
    m.read(values.data(), at, sizeof(T) * n);
    return values;
  }

  void run_text(string const& text, std::span<std::byte const> parameters) {
    loaded_module module(text, m);
    count = emulator::run(module.kernel("k"), {grid, block, parameters, dynamic, most}, m);
  }

  void run(string const& body, list<uint64_t> parameters) {
    parameters.resize(4);
    run_text(before + R"(
      .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {
        .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %d<32>; .reg .f32 %f<8>; .reg .f64 %g<8>;
        mov.u32 %r0, %tid.x;
        ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u64 %d2, [p2]; ld.param.u64 %d3, [p3];
        mad.wide.u32 %d8, %r0, 4, %d0; mad.wide.u32 %d9, %r0, 8, %d0;
      )" + body + " ret; }",
             std::as_bytes(std::span(parameters)));
  }

  /// What a kernel writes to `n` values behind %d0; the parameters from %d1 on are given.
  template <class T = uint32_t>
  list<T> results(string const& body, std::size_t n = 32, list<uint64_t> parameters = {}) {
    uint64_t const at = m.allocate(sizeof(T) * n, "results");
    parameters.insert(parameters.begin(), at);
    run(body, parameters);
    return download<T>(at, n);
  }

  /// The message of a fault, empty if there is none. %d0 is 4096 bytes that are defined.
  string fault_of(string const& body, list<uint64_t> parameters = {}) {
    parameters.insert(parameters.begin(), upload(list<uint64_t>(512, 0)));
    return message([&] { run(body, parameters); });
  }
};

/// Kernels with `=> part of the fault's message` behind each; nothing behind the arrow where there is none.
inline void expect_faults(string const& text, std::function<string(string const&)> const& fault_of) {
  std::istringstream in(replaced(text, " ||", "\n"));
  string body;
  for (string line; std::getline(in, line);) {
    auto const arrow = line.find("=>");
    body += line.substr(0, arrow) + "\n";
    if (arrow == string::npos) continue;
    string const expected = line.substr(std::min(line.find_first_not_of(' ', arrow + 2), line.size()));
    string const got = fault_of(std::exchange(body, {}));
    SCOPED_TRACE(line);
    EXPECT_EQ(got.empty(), expected.empty()) << got;
    EXPECT_THAT(got, HasSubstr(expected));
  }
}

}  // namespace emulator::test
