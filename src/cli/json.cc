// See json.h.
#include "src/cli/json.h"

#include <charconv>

namespace weft::cli {
namespace {

constexpr int kMostDepth = 64;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool Whole(Value* out) {
    if (!Any(0, out)) return false;
    Space();
    return at_ == text_.size();
  }

 private:
  void Space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool Take(std::string_view word) {
    Space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  bool Any(int depth, Value* out) {
    if (depth > kMostDepth) return false;
    if (Take("{")) return Object(depth, out);
    if (Take("[")) return Array(depth, out);
    if (Take("true")) return *out = Value(true), true;
    if (Take("false")) return *out = Value(false), true;
    if (Take("null")) return *out = Value(""), true;
    std::string word;
    if (Take("\"")) {
      if (!Text(&word)) return false;
      return *out = Value(std::move(word)), true;
    }
    return Number(out);
  }

  bool Object(int depth, Value* out) {
    Fields fields;
    for (bool first = true; !Take("}"); first = false) {
      std::string name;
      Value value("");
      if ((!first && !Take(",")) || !Take("\"") || !Text(&name) || !Take(":") || !Any(depth + 1, &value)) return false;
      fields.emplace_back(std::move(name), std::move(value));
    }
    return *out = Value(std::move(fields)), true;
  }

  bool Array(int depth, Value* out) {
    List list;
    for (bool first = true; !Take("]"); first = false) {
      Value value("");
      if ((!first && !Take(",")) || !Any(depth + 1, &value)) return false;
      list.push_back(std::move(value));
    }
    return *out = Value(std::move(list)), true;
  }

  bool Number(Value* out) {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    if (word.empty()) return false;
    at_ = end;
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && stop == word.data() + word.size();
    return *out = whole ? Value(number) : Value(word), true;
  }

  // Behind the first quote.
  bool Text(std::string* out) {
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        *out += text_[at_++];
      } else if (!Escape(out)) {
        return false;
      }
    }
    return at_++ < text_.size();
  }

  bool Escape(std::string* out) {
    constexpr std::string_view kWhich = "\"\\/bfnrt", kAre = "\"\\/\b\f\n\r\t";
    if (at_ + 1 >= text_.size()) return false;
    const char which = text_[at_ + 1];
    at_ += 2;
    if (const size_t found = kWhich.find(which); found != kWhich.npos) return *out += kAre[found], true;
    uint32_t code = 0;
    if (which != 'u' || !Hex(&code)) return false;
    uint32_t low = 0;
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u") && (at_ += 2, Hex(&low))) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    Utf8(code, out);
    return true;
  }

  bool Hex(uint32_t* code) {
    if (at_ + 4 > text_.size()) return false;
    const char* const begin = text_.data() + at_;
    at_ += 4;
    return std::from_chars(begin, begin + 4, *code, 16).ptr == begin + 4;
  }

  static void Utf8(uint32_t code, std::string* out) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
    *out += static_cast<char>(kLead[more] | (code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) *out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool FromJson(std::string_view text, Value* out) { return Reader(text).Whole(out); }

const Fields& FieldsOf(const Value& value) {
  static const Fields kNone;
  const auto* fields = std::get_if<Fields>(&value.data);
  return fields != nullptr ? *fields : kNone;
}

const Value* FieldOf(const Value& value, std::string_view name) {
  for (const auto& [key, field] : FieldsOf(value)) {
    if (key == name) return &field;
  }
  return nullptr;
}

}  // namespace weft::cli
