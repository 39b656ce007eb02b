// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// @brief evidence: text as words, so that a language model has a large vocabulary and layers of unlike sizes.

#include <language_model/text.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

namespace evidence {

/// @brief Words and marks of the files; the last tenth is held out. The most frequent ones have a number each, the others
/// share 0.
class word_text {
 public:
  word_text(std::vector<std::string> const& paths, std::int64_t symbols) {
    std::vector<std::string> words;
    for (std::string const& path : paths) {
      std::ifstream file{path, std::ios::binary};
      if (!file) throw std::runtime_error{"evidence: cannot read " + path + "; give a text by --text"};
      std::string word;
      for (std::istreambuf_iterator<char> c{file}, end; c != end; ++c) {
        bool const letter = std::isalnum(static_cast<unsigned char>(*c)) != 0;
        if (!letter && !word.empty()) words.push_back(std::exchange(word, {}));
        if (letter)
          word.push_back(*c);
        else if (std::isspace(static_cast<unsigned char>(*c)) == 0)
          words.emplace_back(1, *c);
      }
      if (!word.empty()) words.push_back(word);
    }
    std::map<std::string, std::int64_t> counts;
    for (std::string const& w : words) ++counts[w];
    std::vector<std::pair<std::int64_t, std::string>> ranked;
    for (auto const& [w, count] : counts) ranked.emplace_back(-count, w);
    std::sort(ranked.begin(), ranked.end());
    std::map<std::string, std::int64_t> numbers;
    for (std::size_t k = 0; k < ranked.size() && std::cmp_less(k + 1, symbols); ++k)
      numbers[ranked[k].second] = static_cast<std::int64_t>(k) + 1;
    for (std::string const& w : words) {
      auto const at = numbers.find(w);
      words_.push_back(at == numbers.end() ? 0 : at->second);
    }
    held_out_ = words_.size() - words_.size() / 10;
  }

  language_model::batch draw(std::uint64_t seed, std::int64_t count, std::int64_t context) const {
    return pieces(seed, count, context, 0, held_out_);
  }
  language_model::batch draw_held_out(std::uint64_t seed, std::int64_t count, std::int64_t context) const {
    return pieces(seed, count, context, held_out_, words_.size());
  }

 private:
  language_model::batch pieces(std::uint64_t seed, std::int64_t count, std::int64_t context, std::size_t from,
                               std::size_t to) const {
    auto const need = static_cast<std::size_t>(context) + 1;
    if (to - from < need)
      throw std::runtime_error{"evidence: the text has " + std::to_string(words_.size()) +
                               " words, too few for a context of " + std::to_string(context) +
                               "; give more by --text"};
    std::mt19937_64 draw{seed};
    std::vector<torch::Tensor> input, next;
    for (std::int64_t k = 0; k < count; ++k) {
      std::size_t const at = from + draw() % (to - from - need + 1);
      torch::Tensor const piece =
          torch::tensor(std::vector<std::int64_t>(words_.begin() + static_cast<std::ptrdiff_t>(at),
                                                  words_.begin() + static_cast<std::ptrdiff_t>(at + need)));
      input.push_back(piece.narrow(0, 0, context));
      next.push_back(piece.narrow(0, 1, context));
    }
    return {torch::stack(input), torch::stack(next)};
  }

  std::vector<std::int64_t> words_;
  std::size_t held_out_ = 0;
};

}  // namespace evidence
