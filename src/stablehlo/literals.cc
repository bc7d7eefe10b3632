// dense<…>: one element for all, nested lists, or bytes in hexadecimal digits. What a text can make us allocate is bounded by
// its length.
#include <charconv>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/runtime/narrow.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {
namespace {

using Kind = ir::ShloAttr::Kind;

bool InNumber(unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '+' || c == '-'; }

}  // namespace

// Behind "dense": <literal> : tensor<…>. The type, which says what the elements are, comes last, so it is read first.
absl::StatusOr<ir::ShloAttr> Parser::ParseDense() {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(SkipBalanced());
  const size_t close = position() - 1;
  WEFT_RETURN_IF_ERROR(Need(":"));
  const size_t type_at = Here();
  WEFT_ASSIGN_OR_RETURN(const TypeText type, ParseType());
  if (!type.type.is_tensor() || type.quantized != nullptr) {
    return ExpectedAt(type_at, "a tensor type whose elements can be written: a quantised one's are integers");
  }
  const size_t end = position();
  literal_type_ = type;
  Attr attr;
  if (!type.supported) {
    attr.kind = Kind::kText;
    return attr;
  }
  attr.kind = Kind::kTensor;
  attr.type = std::make_shared<const ir::Type>(type.type);
  set_position(start + 1);
  const int64_t count = type.type.count();
  if (Peek() == '"') {
    const size_t at = position();
    WEFT_ASSIGN_OR_RETURN(const std::string digits, String("bytes in hexadecimal digits"));
    WEFT_RETURN_IF_ERROR(ParseHexBytes(at, digits, type.type, attr));
  } else if (Peek() == '[' || position() == close) {
    // Listed elements take a character each.
    if (count > static_cast<int64_t>(close - start)) return ExpectedAt(start + 1, absl::StrCat(count, " elements"));
    HostTensor value(type.type.dtype, type.type.dims);
    if (position() == close && count != 0) return ExpectedAt(close, absl::StrCat(count, " elements"));
    if (position() != close) WEFT_RETURN_IF_ERROR(ParseListed(value));
    attr.tensor = MakeRef<const Literal>(std::move(value));
  } else {
    HostTensor value(type.type.dtype, count == 1 ? type.type.dims : Dims());
    WEFT_RETURN_IF_ERROR(ParseElement(value, 0));
    attr.splat = true;
    attr.tensor = MakeRef<const Literal>(std::move(value));
  }
  if (Here() != close) return Expected("the end of the literal");
  set_position(end);
  return attr;
}

// [[1, 2], [3, 4]]: brackets as deep as the rank, as many elements in each as the dimension says.
absl::Status Parser::ParseListed(HostTensor& value) {
  const Dims& dims = value.dims();
  Dims seen(dims.size(), 0);  // elements begun in each open bracket
  size_t depth = 0;
  int64_t next = 0;
  do {
    const size_t start = Here();
    if (Take("]")) {
      if (depth == 0 || seen[depth - 1] != dims[depth - 1]) {
        return ExpectedAt(start, depth == 0 ? "'['" : absl::StrCat(dims[depth - 1], " elements in this list"));
      }
      --depth;
      continue;
    }
    if (depth > 0 && seen[depth - 1] > 0) WEFT_RETURN_IF_ERROR(Need(","));
    if (depth > 0 && ++seen[depth - 1] > dims[depth - 1]) {
      return ExpectedAt(start, absl::StrCat("at most ", dims[depth - 1], " elements in this list"));
    }
    if (depth == dims.size()) {
      WEFT_RETURN_IF_ERROR(ParseElement(value, next++));
      continue;
    }
    if (!Take("[")) return ExpectedAt(start, absl::StrCat("'[', as the type has rank ", dims.size()));
    seen[depth++] = 0;
  } while (depth > 0);
  return absl::OkStatus();
}

absl::Status Parser::ParseElement(HostTensor& value, int64_t i) {
  const DType dtype = value.dtype(), part = PartOf(dtype);
  if (part == dtype) return ParseReal(value, i);
  HostTensor parts(part, {2});
  WEFT_RETURN_IF_ERROR(Need("("));
  WEFT_RETURN_IF_ERROR(ParseReal(parts, 0));
  WEFT_RETURN_IF_ERROR(Need(","));
  WEFT_RETURN_IF_ERROR(ParseReal(parts, 1));
  std::memcpy(value.mutable_bytes().data() + i * BytesOf(dtype), parts.bytes().data(), BytesOf(dtype));
  return Need(")");
}

// Decimal floats go through double and are rounded twice, as MLIR does it; hexadecimal ones are the element's bits.
absl::Status Parser::ParseReal(HostTensor& value, int64_t i) {
  const DType dtype = value.dtype();
  const size_t start = Here();
  if (IsBool(dtype) && (TakeWord("true") || TakeWord("false"))) {
    value.SetInt(i, text()[start] == 't' ? 1 : 0);
    return absl::OkStatus();
  }
  size_t end = start;
  while (end < text().size() && InNumber(text()[end])) ++end;
  const std::string_view number = Between(start, end);
  set_position(end);
  const auto wrong = [&] { return ExpectedAt(start, absl::StrCat("an element of ", StableHloNameOf(dtype))); };
  const bool hexadecimal = number.starts_with("0x");
  const bool negative = number.starts_with("-");
  const char* begin = number.data() + (hexadecimal ? 2 : negative ? 1 : 0);
  const char* stop = number.data() + number.size();
  if (begin == stop || *begin == '-') return wrong();
  if (IsFloat(dtype) && !hexadecimal) {
    double real = 0;
    const auto [read, error] = std::from_chars(number.data(), stop, real);
    // A number that no double holds becomes infinite or 0, which from_chars leaves to us.
    if (read != stop || (error != std::errc() && !absl::SimpleAtod(number, &real))) return wrong();
    value.SetDouble(i, real);
    return absl::OkStatus();
  }
  uint64_t bits = 0;
  auto [read, error] = std::from_chars(begin, stop, bits, hexadecimal ? 16 : 10);
  if (error != std::errc() || read != stop) return wrong();
  const size_t width = BytesOf(dtype);
  if (width < 8 && bits >> (8 * width) != 0) return wrong();
  if (IsFloat(dtype)) {
    std::memcpy(value.mutable_bytes().data() + i * width, &bits, width);  // little-endian
    return absl::OkStatus();
  }
  if (IsBool(dtype) && bits > 1) return wrong();
  const int64_t integer = static_cast<int64_t>(negative ? 0 - bits : bits);
  value.SetInt(i, integer);
  const bool fits = hexadecimal || (negative ? integer == 0 || (integer < 0 && !IsUnsigned(dtype))
                                             : dtype == DType::kU64 || integer >= 0);
  return fits && (hexadecimal || value.GetInt(i) == integer) ? absl::OkStatus() : wrong();
}

absl::Status Parser::ParseHexBytes(size_t at, std::string_view digits, const ir::Type& type, Attr& out) {
  const size_t width = BytesOf(type.dtype);
  const size_t bytes = digits.size() / 2 - (digits.size() >= 2 ? 1 : 0);
  // Bits of i1 may be packed eight to a byte (MLIR before 2025) or stand one in a byte; one byte for all is 0, 1 or all ones.
  const std::string_view one = digits.substr(std::min<size_t>(2, digits.size()));
  const bool whole = !IsBool(type.dtype) || one == "00" || one == "01" || absl::EqualsIgnoreCase(one, "FF");
  const bool splat = bytes == width && type.count() != 1 && whole;
  const auto count = static_cast<size_t>(splat ? 1 : type.count());
  const bool packed = IsBool(type.dtype) && bytes != count && bytes == (count + 7) / 8;
  if (!digits.starts_with("0x") || digits.size() % 2 != 0 || (!packed && bytes != count * width)) {
    return ExpectedAt(at, absl::StrCat("\"0x and ", count * width * 2, " hexadecimal digits\""));
  }
  HostTensor value(type.dtype, splat ? Dims() : type.dims);
  std::vector<uint8_t> raw(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const char* two = digits.data() + 2 + 2 * i;
    if (std::from_chars(two, two + 2, raw[i], 16).ptr != two + 2) return ExpectedAt(at, "hexadecimal digits");
  }
  if (IsBool(type.dtype)) {
    for (size_t i = 0; i < count; ++i) value.SetInt(i, packed ? raw[i / 8] >> (i % 8) & 1 : raw[i] != 0 ? 1 : 0);
  } else if (bytes > 0) {
    std::memcpy(value.mutable_bytes().data(), raw.data(), bytes);
    if (BitsOf(type.dtype) < 8) Normalize(type.dtype, value.mutable_bytes());
  }
  out.splat = splat;
  out.tensor = MakeRef<const Literal>(std::move(value));
  return absl::OkStatus();
}

}  // namespace weft::stablehlo
