// Characters of MLIR text to words: where the reader is, what comes next, and errors that say line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/runtime/status.h"

namespace weft::stablehlo {

// "line 3, column 14: …" before a message about a place in the text.
std::string PlaceIn(std::string_view text, size_t position);

// One pass, no tokens kept. Thread rule: one thread. The text outlives it.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  absl::Status Expected(std::string_view what) { return ExpectedAt((SkipSpace(), position_), what); }
  absl::Status ExpectedAt(size_t position, std::string_view what) const;
  absl::Status RefusedAt(size_t position, std::string_view why) const;

  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }
  size_t Here() { return SkipSpace(), position_; }
  std::string_view text() const { return text_; }
  std::string_view Between(size_t begin, size_t end) const { return text_.substr(begin, end - begin); }

  void SkipSpace();
  bool AtEnd() { return SkipSpace(), position_ == text_.size(); }
  char Peek() { return SkipSpace(), position_ < text_.size() ? text_[position_] : '\0'; }
  // Tells whether the token stands here, without space before it.
  bool LooksAt(std::string_view token) const { return text_.substr(position_).starts_with(token); }
  bool Take(std::string_view token);
  absl::Status Need(std::string_view token);
  // A word as a whole: "dim" does not take the beginning of "dims".
  bool TakeWord(std::string_view word);
  // Letters, digits, '_', '$' and '.', not starting with a digit or a point. Empty if there is none.
  std::string_view Word();
  // Returns the text that may follow %, @, ^, # and !: words, and numbers.
  std::string_view Suffix();
  template <typename T>
  absl::StatusOr<T> Number(std::string_view what);
  // "…" with its escapes undone.
  absl::StatusOr<std::string> String(std::string_view what);
  // Skips from an opening bracket to behind the one that closes it; strings and arrows may hold brackets. Iterative.
  absl::Status SkipBalanced();

 private:
  absl::Status SkipString();

  const std::string_view text_;
  size_t position_ = 0;
};

}  // namespace weft::stablehlo
