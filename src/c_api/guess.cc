// See guess.h.
#include "src/c_api/guess.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft::c_api {
namespace {

// Levenshtein's, in one row. Callers' words are cut to 256 bytes before.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row;
  for (size_t j = 0; j <= b.size(); ++j) row.push_back(j);
  for (const char c : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (c == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(std::string_view word, std::span<const std::string_view> names) {
  word = word.substr(0, 256);
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  const std::string_view* nearest = nullptr;
  for (const std::string_view& name : names) {
    const size_t longer = std::max(name.size(), word.size()), shorter = std::min(name.size(), word.size());
    if (longer - shorter >= least) continue;  // so much must be put in or taken out
    const size_t distance = EditDistance(word, name);
    if (distance < least && distance < word.size()) least = distance, nearest = &name;
  }
  return nearest == nullptr ? "; " : absl::StrCat("; did you mean '", *nearest, "'? ");
}

std::string AtTheEnd(std::string guess) {
  guess.pop_back();
  return guess == ";" ? "" : guess;
}

}  // namespace weft::c_api
