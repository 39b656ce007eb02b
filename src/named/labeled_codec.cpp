// SPDX-License-Identifier: Apache-2.0

/// @file
/// @brief named: the bytes of vectors that say how to decode them.

#include <globalq/named/labeled_codec.hpp>
#include <globalq/named/text.hpp>

#include <globalq/core/arithmetic.hpp>
#include <globalq/wire/checksum.hpp>

#include <cstring>

namespace GLOBALQ_ABI::named {
namespace {

constexpr std::string_view magic = "globalqV";
constexpr std::uint32_t version = 1, checksum_start = 0x676c6f62;

struct head {
  char magic[8];
  std::uint32_t version, type;
  std::uint64_t length, seed, step;
  std::uint32_t worker, workers, word_bytes, zero;
};
static_assert(sizeof(head) == 56);

[[noreturn]] void refuse_bytes(std::string const& why, std::string const& remedy) {
  throw frame_error("globalq: decode: " + why + "; " + remedy);
}

/// The frame in bytes whose label was read.
std::span<std::byte const> frame_in(std::span<std::byte const> bytes, vector_label const& label) {
  std::size_t const first = sizeof(head) + label.words.size();
  return bytes.subspan(first, bytes.size() - first - wire::checksum_bytes);
}

named_operator quantizer_in(std::string_view text) {
  named_operator asked = read_operator(text);
  if (!asked.only_quantizes())
    refuse("operator", text, "clips or learns levels, which calls do",
           "use it without clipping, or with given levels, such as \"alq:3,levels=0:0.1:1\"");
  asked.schedule.clear();  // no call follows
  return asked;
}

}  // namespace

vector_label read_label(std::span<std::byte const> bytes) {
  head h{};
  std::string const again = "encode the vector again, or read all bytes of it";
  if (bytes.size() < sizeof h + wire::checksum_bytes ||
      std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    refuse_bytes("the " + std::to_string(bytes.size()) + " bytes are not those of an encoded vector", again);
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.version != version)
    refuse_bytes("the bytes have format " + std::to_string(h.version) + ", and this version reads format " +
                     std::to_string(version),
                 "use one version of globalq for both");
  std::size_t const end = bytes.size() - wire::checksum_bytes;
  if (load_from<std::uint32_t>(bytes.data() + end) != wire::checksum(bytes.first(end), checksum_start))
    refuse_bytes("the checksum differs, so the bytes were damaged or cut off", again);
  constexpr std::uint32_t types = 4;
  if (h.type >= types || h.word_bytes > end - sizeof h || h.length >> 48 != 0 || h.step > random::max_step ||
      h.workers == 0 || (h.workers > 1 && h.worker >= h.workers) || h.zero != 0)
    refuse_bytes("the label contains a type, a length, a key or a text that no vector has", again);
  return {{reinterpret_cast<char const*>(bytes.data()) + sizeof h, h.word_bytes},
          static_cast<dtype>(h.type),
          h.length,
          {h.seed, h.step, h.worker, h.workers}};
}

labeled_codec::labeled_codec(std::string_view text) : labeled_codec(quantizer_in(text)) {}
labeled_codec::labeled_codec(named_operator const& asked)
    : words_(words_of(asked)),
      codec_(operator_of(asked), Kokkos::DefaultHostExecutionSpace(), frame_checksum::none) {}

std::size_t labeled_codec::most_bytes(std::uint64_t length, dtype type) {
  return sizeof(head) + words_.size() + codec_.frame_bytes(length, type) + wire::checksum_bytes;
}

std::size_t labeled_codec::encode(const_vector x, std::uint64_t length, encoding_key key,
                                  std::span<std::byte> out) {
  std::size_t const frame_bytes = codec_.frame_bytes(length, x.type), front = sizeof(head) + words_.size(),
                    most = front + frame_bytes + wire::checksum_bytes;
  if (out.size() < most)
    throw configuration_error("globalq: encode: there is room for " + std::to_string(out.size()) +
                              " bytes, and the vector may need " + std::to_string(most) +
                              "; give most_bytes() bytes");
  head h{{},         version,     static_cast<std::uint32_t>(x.type),        length, key.seed, key.step,
         key.worker, key.workers, static_cast<std::uint32_t>(words_.size()), 0};
  std::memcpy(h.magic, magic.data(), magic.size());
  std::size_t const used = codec_.encode(x, length, key, out.subspan(front, frame_bytes));
  std::memcpy(out.data(), &h, sizeof h);
  std::memcpy(out.data() + sizeof h, words_.data(), words_.size());
  store_to(out.data() + front + used, wire::checksum(out.first(front + used), checksum_start));
  return front + used + wire::checksum_bytes;
}

void labeled_codec::decode(std::span<std::byte const> bytes, mutable_vector y, std::uint64_t length,
                           bool add) {
  decode(bytes, read_label(bytes), y, length, add);
}
void labeled_codec::decode(std::span<std::byte const> bytes, vector_label const& label, mutable_vector y,
                           std::uint64_t length, bool add) {
  if (label.words != words_)
    refuse_bytes("the bytes are of operator \"" + label.words + "\", and this codec of \"" + words_ + "\"",
                 "make a codec of the words in the label");
  if (label.length != length)
    refuse_bytes("the bytes contain " + std::to_string(label.length) + " values, and the vector has " +
                     std::to_string(length),
                 "give a vector of the length in the label");
  if ((label.type == dtype::float64) != (y.type == dtype::float64))
    refuse_bytes(
        std::string("the bytes contain ") + name_of(label.type) + ", and the vector is " + name_of(y.type),
        "decode float64 into float64, and other types into one of these");
  if (add)
    codec_.decode_add(frame_in(bytes, label), label.key, y, length);
  else
    codec_.decode(frame_in(bytes, label), label.key, y, length);
}

}  // namespace GLOBALQ_ABI::named
