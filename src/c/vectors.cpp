// SPDX-License-Identifier: Apache-2.0
/// @file
/// @brief c: single vectors as bytes.

#include "handles.hpp"

#include <globalq/named/labeled_codec.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace globalq_c {
namespace {

/// The codecs that this thread used last, by the texts of their operators.
class known_codecs {
 public:
  gq::named::labeled_codec& of(std::string_view text) {
    auto const found = std::find_if(all_.begin(), all_.end(), [&](entry const& e) { return e.text == text; });
    if (found != all_.end()) {
      std::rotate(all_.begin(), found, found + 1);
    } else {
      start_kokkos();
      entry made{std::string(text), std::make_unique<gq::named::labeled_codec>(text)};
      if (all_.size() == most) all_.pop_back();
      all_.insert(all_.begin(), std::move(made));
    }
    return *all_.front().codec;
  }

 private:
  static constexpr std::size_t most = 8;
  struct entry {
    std::string text;
    std::unique_ptr<gq::named::labeled_codec> codec;
  };
  std::vector<entry> all_;
};
thread_local known_codecs codecs;

std::span<std::byte const> bytes_at(char const* operation, void const* bytes, std::size_t size) {
  if (bytes == nullptr) refuse(operation, "bytes is NULL", "pass a valid pointer");
  return {static_cast<std::byte const*>(bytes), size};
}

/// @param expected  an operator; null: that of the label, which may be none of this version
gq::named::labeled_codec& codec_for(char const* expected, gq::named::vector_label const& label) {
  if (expected != nullptr) return codecs.of(expected);
  try {
    return codecs.of(label.words);
  } catch (gq::configuration_error const& problem) {
    throw gq::frame_error(std::string(problem.what()) +
                          " (in the label of the bytes; decode them with the version that encoded them)");
  }
}

}  // namespace
}  // namespace globalq_c

using namespace globalq_c;

globalq_status globalq_encode(char const* operator_name, globalq_vector const* vector, uint64_t seed,
                              uint64_t step, uint32_t worker, uint32_t workers, void* bytes, size_t* size) {
  constexpr char const* operation = "globalq_encode";
  return guarded([&] {
    char const& text = expect(operation, "operator_name", operator_name);
    globalq_vector const& v = expect(operation, "vector", vector);
    std::size_t& room = expect(operation, "size", size);
    gq::dtype const type = type_of(operation, v.type);
    gq::named::labeled_codec& codec = codecs.of(&text);
    if (bytes == nullptr) {
      room = codec.most_bytes(v.length, type);
      return;
    }
    if (v.input == nullptr && v.length != 0)
      refuse(operation, std::to_string(v.length) + " values at NULL", "give input");
    room = codec.encode({v.input, type}, v.length, {seed, step, worker, workers},
                        {static_cast<std::byte*>(bytes), room});
  });
}

globalq_status globalq_read_label(void const* bytes, size_t size, globalq_label* label) {
  constexpr char const* operation = "globalq_read_label";
  return guarded([&] {
    static thread_local std::string words;
    read(operation, "label", label);
    gq::named::vector_label found = gq::named::read_label(bytes_at(operation, bytes, size));
    words = std::move(found.words);
    write(operation, "label",
          globalq_label{0, words.c_str(), found.length, static_cast<globalq_type>(found.type), found.key.seed,
                        found.key.step, found.key.worker, found.key.workers},
          label);
  });
}

globalq_status globalq_decode(char const* operator_name, void const* bytes, size_t size,
                              globalq_vector const* vector, int add) {
  constexpr char const* operation = "globalq_decode";
  return guarded([&] {
    globalq_vector const& v = expect(operation, "vector", vector);
    if (v.output == nullptr && v.length != 0)
      refuse(operation, std::to_string(v.length) + " values at NULL", "give output");
    gq::dtype const type = type_of(operation, v.type);
    auto const all = bytes_at(operation, bytes, size);
    gq::named::vector_label const label = gq::named::read_label(all);
    codec_for(operator_name, label).decode(all, label, {v.output, type}, v.length, add != 0);
  });
}
