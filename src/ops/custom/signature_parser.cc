// Text to CustomSignature: a descent through a C prototype.
#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "src/ops/custom/signature.h"

namespace weft::ops {
namespace {

using Role = CustomParameter::Role;
using Op = CustomExpression::Op;

constexpr size_t kMostText = 4096;
constexpr int kMostDepth = 32;  // of parentheses

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kTypes[] = {
    {"double", DType::kF64},   {"float", DType::kF32},    {"int", DType::kI32},       {"unsigned", DType::kU32},
    {"long", DType::kI64},     {"short", DType::kI16},    {"char", DType::kI8},       {"bool", DType::kBool},
    {"_Bool", DType::kBool},   {"size_t", DType::kU64},   {"ptrdiff_t", DType::kI64}, {"int8_t", DType::kI8},
    {"int16_t", DType::kI16},  {"int32_t", DType::kI32},  {"int64_t", DType::kI64},   {"uint8_t", DType::kU8},
    {"uint16_t", DType::kU16}, {"uint32_t", DType::kU32}, {"uint64_t", DType::kU64},  {"f16", DType::kF16},
    {"bf16", DType::kBF16},    {"f32", DType::kF32},      {"f64", DType::kF64},
};

std::string OneSpace(std::string_view text) {
  std::string out;
  for (const char c : absl::StripAsciiWhitespace(text)) {
    const bool space = absl::ascii_isspace(static_cast<unsigned char>(c));
    if (space && out.ends_with(' ')) continue;
    out += space ? ' ' : c;
  }
  return out;
}

class Parser {
 public:
  explicit Parser(CustomSignature& out) : out_(out), text_(out.text) {}

  absl::Status Run() {
    WEFT_RETURN_IF_ERROR(ParseReturn());
    if (!Take("(")) return Wrong("'(' is missing");
    if (!Take(")")) {
      do {
        if (out_.parameters.size() == kMostCustomParameters) {
          return Wrong("more than ", kMostCustomParameters, " parameters");
        }
        WEFT_RETURN_IF_ERROR(ParseParameter());
      } while (Take(","));
      if (!Take(")")) return Wrong("',' or ')' is missing");
    }
    Skip();
    if (at_ < text_.size()) return Wrong("there is more behind ')'");
    return CheckWhole();
  }

 private:
  template <typename... Args>
  absl::Status Wrong(const Args&... what) {
    Skip();
    return WrongAt(at_, what...);
  }
  template <typename... Args>
  absl::Status WrongAt(size_t position, const Args&... what) const {
    return UserError("signature '", text_, "', character ", position + 1, ": ", what...);
  }

  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(std::string_view token) {
    Skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  static bool IsWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  static bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
  // Empty where none begins.
  std::string_view Word() {
    Skip();
    size_t end = at_;
    while (end < text_.size() && IsWord(text_[end]) && !(end == at_ && IsDigit(text_[end]))) ++end;
    return text_.substr(at_, end - at_);
  }
  bool TakeWord(std::string_view word) {
    if (Word() != word) return false;
    at_ += word.size();
    return true;
  }

  absl::StatusOr<DType> ParseType() {
    const std::string_view word = Word();
    const auto* const found = std::ranges::find(kTypes, word, &TypeName::name);
    if (word.empty()) return Wrong("a type is missing");
    if (found == std::end(kTypes)) {
      return Wrong("there is no type '", word,
                   "'; there are double, float, int, unsigned, long, short, char, bool, size_t, ptrdiff_t, int8_t to "
                   "int64_t, uint8_t to uint64_t, f16 and bf16");
    }
    at_ += word.size();
    return found->dtype;
  }

  absl::Status ParseReturn() {
    if (TakeWord("void")) return absl::OkStatus();
    if (TakeWord("status")) return out_.returns = CustomReturn::kStatus, absl::OkStatus();
    if (TakeWord("weft_error")) {
      if (!Take("*")) return Wrong("weft_error is returned by pointer: 'weft_error*'");
      return out_.returns = CustomReturn::kError, absl::OkStatus();
    }
    const size_t position = at_;
    WEFT_ASSIGN_OR_RETURN(out_.return_dtype, ParseType());
    if (IsHalf(out_.return_dtype)) return WrongAt(position, "16-bit floats are passed behind pointers only");
    if (Take("*")) return WrongAt(position, "a function returns void, a number, status or weft_error*");
    out_.returns = CustomReturn::kResult;
    return absl::OkStatus();
  }

  absl::Status ParseParameter() {
    Skip();
    CustomParameter parameter;
    parameter.position = at_;
    const bool scratch = TakeWord("scratch"), in_out = !scratch && TakeWord("inout");
    const bool constant = TakeWord("const");
    WEFT_ASSIGN_OR_RETURN(parameter.dtype, ParseType());
    const bool pointer = Take("*");
    if (pointer && Take("*")) return WrongAt(parameter.position, "pointers to pointers are not passed");
    if ((scratch || in_out) && (constant || !pointer)) {
      return WrongAt(parameter.position, scratch ? "scratch" : "inout", " is memory to write: 'T*' follows it");
    }
    if (!pointer && IsHalf(parameter.dtype)) {
      return WrongAt(parameter.position, "16-bit floats are passed behind pointers only");
    }
    if (Take("[")) {
      if (!pointer) return WrongAt(parameter.position, "a shape stands behind a pointer");
      WEFT_RETURN_IF_ERROR(ParseShape(parameter));
    }
    if (Take("=")) {
      if (scratch || in_out || parameter.shaped) {
        return WrongAt(parameter.position, "a number has no shape and is not written to");
      }
      parameter.role = pointer ? Role::kNumberBehind : Role::kNumber;
      WEFT_RETURN_IF_ERROR(ParseNumber(parameter));
    } else {
      parameter.role = scratch    ? Role::kScratch
                       : in_out   ? Role::kInOut
                       : !pointer ? Role::kInputValue
                       : constant ? Role::kInput
                                  : Role::kResult;
    }
    out_.parameters.push_back(std::move(parameter));
    return absl::OkStatus();
  }

  absl::Status ParseShape(CustomParameter& parameter) {
    parameter.shaped = true;
    if (out_.kind == CustomKind::kElements) {
      return WrongAt(parameter.position, "a function of elements sees one element behind a pointer, without a shape");
    }
    if (Take("]")) return absl::OkStatus();
    do {
      CustomExpression dim;
      WEFT_RETURN_IF_ERROR(ParseExpression(dim, 0));
      if (Take("...")) {
        if (!parameter.dims.empty() || parameter.rest >= 0 || dim.LoneName() < 0) {
          return WrongAt(dim.position, "'name...' is the first of the dimensions");
        }
        parameter.rest = dim.LoneName();
      } else {
        parameter.dims.push_back(std::move(dim));
      }
    } while (Take(","));
    return Take("]") ? absl::OkStatus() : Wrong("',' or ']' is missing");
  }

  absl::Status ParseNumber(CustomParameter& parameter) {
    Skip();
    const size_t position = at_;
    if (Take("'")) {
      if (at_ + 1 >= text_.size() || text_[at_ + 1] != '\'')
        return WrongAt(position, "a character is one between quotes");
      parameter.number = {{{Op::kNumber, text_[at_]}}, position};
      at_ += 2;
      return absl::OkStatus();
    }
    const size_t end = text_.find_first_of(",)", at_);
    const std::string_view literal = absl::StripAsciiWhitespace(text_.substr(at_, end - at_));
    double value = 0;
    const auto [stop, error] = std::from_chars(literal.data(), literal.data() + literal.size(), value);
    if (!literal.empty() && error == std::errc() && stop == literal.data() + literal.size() &&
        literal.find_first_of(".eEnN") != std::string_view::npos) {
      if (!IsFloat(parameter.dtype)) return WrongAt(position, "'", literal, "' is no integer");
      parameter.real = value;
      parameter.is_real = true;
      at_ = static_cast<size_t>(stop - text_.data());
      return absl::OkStatus();
    }
    return ParseExpression(parameter.number, 0);
  }

  // Sums of products of numbers, names, min(a, b), max(a, b) and what stands in parentheses.
  absl::Status ParseExpression(CustomExpression& out, int depth) {
    Skip();
    if (depth == 0) out.position = at_;
    if (depth > kMostDepth) return Wrong("parentheses nest deeper than ", kMostDepth);
    WEFT_RETURN_IF_ERROR(ParseProduct(out, depth));
    while (true) {
      const Op op = Take("+") ? Op::kAdd : Take("-") ? Op::kSubtract : Op::kNumber;
      if (op == Op::kNumber) return absl::OkStatus();
      WEFT_RETURN_IF_ERROR(ParseProduct(out, depth));
      out.steps.push_back({op});
    }
  }
  absl::Status ParseProduct(CustomExpression& out, int depth) {
    WEFT_RETURN_IF_ERROR(ParseFactor(out, depth));
    while (true) {
      const Op op = Take("*") ? Op::kMultiply : Take("/") ? Op::kDivide : Take("%") ? Op::kRemainder : Op::kNumber;
      if (op == Op::kNumber) return absl::OkStatus();
      WEFT_RETURN_IF_ERROR(ParseFactor(out, depth));
      out.steps.push_back({op});
    }
  }
  absl::Status ParseFactor(CustomExpression& out, int depth) {
    if (Take("-")) {
      if (depth > kMostDepth) return Wrong("signs nest deeper than ", kMostDepth);
      out.steps.push_back({Op::kNumber, 0});
      WEFT_RETURN_IF_ERROR(ParseFactor(out, depth + 1));
      out.steps.push_back({Op::kSubtract});
      return absl::OkStatus();
    }
    if (Take("(")) {
      WEFT_RETURN_IF_ERROR(ParseExpression(out, depth + 1));
      return Take(")") ? absl::OkStatus() : Wrong("')' is missing");
    }
    Skip();
    if (at_ < text_.size() && IsDigit(text_[at_])) {
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc()) return Wrong("the number does not fit 64 bits");
      at_ = static_cast<size_t>(stop - text_.data());
      out.steps.push_back({Op::kNumber, value});
      return absl::OkStatus();
    }
    const std::string_view word = Word();
    if (word.empty()) return Wrong("a number or a name is missing");
    at_ += word.size();
    if ((word == "min" || word == "max") && Take("(")) {
      WEFT_RETURN_IF_ERROR(ParseExpression(out, depth + 1));
      if (!Take(",")) return Wrong("',' is missing: ", word, " is of two");
      WEFT_RETURN_IF_ERROR(ParseExpression(out, depth + 1));
      out.steps.push_back({word == "min" ? Op::kMin : Op::kMax});
      return Take(")") ? absl::OkStatus() : Wrong("')' is missing");
    }
    auto name = std::ranges::find(out_.names, word);
    if (name == out_.names.end()) name = out_.names.insert(name, std::string(word));
    out.steps.push_back({Op::kName, name - out_.names.begin()});
    return absl::OkStatus();
  }

  absl::Status CheckWhole() {
    if (out_.results() == 0) {
      return WrongAt(0, "there is no result: the function returns a number or writes behind a pointer, 'T*'");
    }
    if (out_.kind == CustomKind::kBuffers) return absl::OkStatus();
    if (out_.operands() == 0) return WrongAt(0, "a function of elements takes one operand at least");
    for (const CustomParameter& p : out_.parameters) {
      if (p.role == Role::kInOut) return WrongAt(p.position, "inout is for functions of buffers");
      const bool number = p.role == Role::kNumber || p.role == Role::kNumberBehind;
      if (!number || out_.names.empty()) continue;
      return WrongAt(p.number.position, "a function of elements knows no sizes");
    }
    return absl::OkStatus();
  }

  CustomSignature& out_;
  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<CustomSignature> CustomSignature::Parse(CustomKind kind, std::string_view text) {
  if (text.size() > kMostText) {
    return UserError("a signature of ", text.size(), " characters; at most ", kMostText, " are read");
  }
  CustomSignature signature;
  signature.kind = kind;
  signature.text = OneSpace(text);
  WEFT_RETURN_IF_ERROR(Parser(signature).Run());
  return signature;
}

}  // namespace weft::ops
