// See scanner.h.
#include "src/stablehlo/scanner.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/ir/text.h"

namespace weft::stablehlo {
namespace {

constexpr size_t kQuoted = 24;  // of the text, in errors

bool InWord(unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '$' || c == '.'; }
bool BeginsWord(unsigned char c) { return absl::ascii_isalpha(c) || c == '_'; }

// Returns the character that closes a bracket, or 0.
char CloserOf(char c) {
  switch (c) {
    case '(': return ')';
    case '[': return ']';
    case '{': return '}';
    case '<': return '>';
    default: return 0;
  }
}

}  // namespace

std::string PlaceIn(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const size_t start = before.rfind('\n');
  return absl::StrCat("line ", 1 + std::ranges::count(before, '\n'), ", column ",
                      before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1, ": ");
}

absl::Status Scanner::RefusedAt(size_t position, std::string_view why) const {
  return UserError(PlaceIn(text_, position), why);
}

absl::Status Scanner::ExpectedAt(size_t position, std::string_view what) const {
  std::string_view rest = text_.substr(std::min(position, text_.size()));
  rest = rest.substr(0, std::min(rest.find('\n'), kQuoted));
  return RefusedAt(position, absl::StrCat("expected ", what, ", found ",
                                          position >= text_.size() ? "the end of the text" : ir::Quote(rest)));
}

void Scanner::SkipSpace() {
  while (position_ < text_.size()) {
    if (absl::ascii_isspace(static_cast<unsigned char>(text_[position_]))) {
      ++position_;
    } else if (LooksAt("//")) {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else {
      return;
    }
  }
}

bool Scanner::Take(std::string_view token) {
  SkipSpace();
  if (!LooksAt(token)) return false;
  position_ += token.size();
  return true;
}

absl::Status Scanner::Need(std::string_view token) {
  return Take(token) ? absl::OkStatus() : Expected(absl::StrCat("'", token, "'"));
}

bool Scanner::TakeWord(std::string_view word) {
  SkipSpace();
  if (!LooksAt(word)) return false;
  const size_t end = position_ + word.size();
  if (end < text_.size() && InWord(text_[end])) return false;
  position_ = end;
  return true;
}

std::string_view Scanner::Word() {
  SkipSpace();
  if (position_ == text_.size() || !BeginsWord(text_[position_])) return {};
  return Suffix();
}

std::string_view Scanner::Suffix() {
  const size_t start = position_;
  while (position_ < text_.size() && InWord(text_[position_])) ++position_;
  return Between(start, position_);
}

template <typename T>
absl::StatusOr<T> Scanner::Number(std::string_view what) {
  SkipSpace();
  T value{};
  auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
  if (error != std::errc()) return Expected(what);
  position_ = end - text_.data();
  return value;
}
template absl::StatusOr<uint32_t> Scanner::Number(std::string_view);
template absl::StatusOr<int64_t> Scanner::Number(std::string_view);
template absl::StatusOr<double> Scanner::Number(std::string_view);

absl::StatusOr<std::string> Scanner::String(std::string_view what) {
  if (Peek() != '"') return Expected(what);
  std::string value;
  for (size_t i = position_ + 1; i < text_.size() && text_[i] != '\n'; ++i) {
    if (text_[i] == '"') {
      position_ = i + 1;
      return value;
    }
    if (text_[i] != '\\') {
      value += text_[i];
      continue;
    }
    const std::string_view escape = text_.substr(i + 1, 2);
    unsigned byte = 0;
    if (!escape.empty() && (escape[0] == '"' || escape[0] == '\\')) {
      value += escape[0];
      i += 1;
    } else if (!escape.empty() && (escape[0] == 'n' || escape[0] == 't')) {
      value += escape[0] == 'n' ? '\n' : '\t';
      i += 1;
    } else if (escape.size() == 2 &&
               std::from_chars(escape.data(), escape.data() + 2, byte, 16).ptr == escape.data() + 2) {
      value += static_cast<char>(byte);
      i += 2;
    } else {
      return ExpectedAt(i, "\\\", \\\\, \\n, \\t or two hexadecimal digits");
    }
  }
  return ExpectedAt(std::min(text_.find('\n', position_), text_.size()), "a closing '\"'");
}

absl::Status Scanner::SkipString() {
  const size_t start = position_;
  for (++position_; position_ < text_.size(); ++position_) {
    if (text_[position_] == '\\') {
      ++position_;
    } else if (text_[position_] == '"') {
      ++position_;
      return absl::OkStatus();
    }
  }
  position_ = text_.size();
  return ExpectedAt(start, "a string with a closing '\"'");
}

absl::Status Scanner::SkipBalanced() {
  const size_t start = Here();
  std::string open;  // what closes the brackets that are open
  do {
    if (position_ >= text_.size()) return ExpectedAt(start, "brackets that are closed");
    const char c = text_[position_];
    if (c == '"') {
      WEFT_RETURN_IF_ERROR(SkipString());
      continue;
    }
    if (LooksAt("->")) {
      position_ += 2;
      continue;
    }
    if (const char closer = CloserOf(c); closer != 0) {
      open += closer;
    } else if (!open.empty() && c == open.back()) {
      open.pop_back();
    } else if (open.empty() || c == ')' || c == ']' || c == '}') {
      return ExpectedAt(position_,
                        open.empty() ? "an opening bracket" : absl::StrCat("'", open.substr(open.size() - 1), "'"));
    }
    ++position_;
  } while (!open.empty());
  return absl::OkStatus();
}

}  // namespace weft::stablehlo
