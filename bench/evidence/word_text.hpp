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

/// @brief Words and marks of the files. The most frequent ones have a number each, the others share 0.
class word_text : public language_model::sequence<std::int64_t> {
 public:
  word_text(std::vector<std::string> const& paths, std::int64_t symbols)
      : sequence(numbers_of(words_of(paths), symbols), "words") {}

 private:
  static std::vector<std::string> words_of(std::vector<std::string> const& paths) {
    std::vector<std::string> words;
    for (std::string const& path : paths) {
      std::string word;
      for (char const c : language_model::contents_of(path)) {
        bool const letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
        if (!letter && !word.empty()) words.push_back(std::exchange(word, {}));
        if (letter)
          word.push_back(c);
        else if (std::isspace(static_cast<unsigned char>(c)) == 0)
          words.emplace_back(1, c);
      }
      if (!word.empty()) words.push_back(word);
    }
    return words;
  }

  static std::vector<std::int64_t> numbers_of(std::vector<std::string> const& words, std::int64_t symbols) {
    std::map<std::string, std::int64_t> counts, numbers;
    for (std::string const& w : words) ++counts[w];
    std::vector<std::pair<std::int64_t, std::string>> ranked;
    for (auto const& [w, count] : counts) ranked.emplace_back(-count, w);
    std::sort(ranked.begin(), ranked.end());
    for (std::size_t k = 0; k < ranked.size() && std::cmp_less(k + 1, symbols); ++k)
      numbers[ranked[k].second] = static_cast<std::int64_t>(k) + 1;
    std::vector<std::int64_t> all;
    for (std::string const& w : words) {
      auto const at = numbers.find(w);
      all.push_back(at == numbers.end() ? 0 : at->second);
    }
    return all;
  }
};

}  // namespace evidence
