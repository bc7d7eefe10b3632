// Types as StableHLO spells them. A type without a counterpart of ours (unknown sizes, f4 and f6) is read over and kept
// as text, so that the error about it can name every one of them at once.
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {

absl::StatusOr<DType> Parser::ElementType() {
  if (Take("!")) {
    (void)Suffix();
    if (LooksAt("<")) WEFT_RETURN_IF_ERROR(SkipBalanced());
    return DType::kInvalid;
  }
  const size_t start = Here();
  std::string name(Word());
  if (name.empty()) return ExpectedAt(start, "an element type such as f32");
  if (name == "complex") {
    WEFT_RETURN_IF_ERROR(Need("<"));
    absl::StrAppend(&name, "<", Word(), ">");
    WEFT_RETURN_IF_ERROR(Need(">"));
  }
  const std::optional<DType> dtype = ParseDType(name);
  return dtype && StableHloNameOf(*dtype) == name ? *dtype : DType::kInvalid;
}

// 0.5 or 0.5:-3, the scale and the zero point, once the rest is known.
absl::Status Parser::ParseScale(Quantization& into) {
  const size_t start = Here();
  WEFT_ASSIGN_OR_RETURN(const double scale, Number<double>("a scale"));
  HostTensor expressed(into.expressed, {});
  expressed.SetDouble(0, scale);
  if (!(expressed.GetDouble(0) > 0) || !std::isfinite(expressed.GetDouble(0))) {
    return ExpectedAt(start, absl::StrCat("a scale that is positive and finite in ", StableHloNameOf(into.expressed)));
  }
  int64_t zero_point = 0;
  if (Take(":")) {
    WEFT_ASSIGN_OR_RETURN(zero_point, Number<int64_t>("a zero point"));
  }
  if (zero_point < into.min || zero_point > into.max) {
    return ExpectedAt(start, absl::StrCat("a scale with a zero point from ", into.min, " to ", into.max));
  }
  into.scales.push_back(scale);
  into.zero_points.push_back(zero_point);
  return absl::OkStatus();
}

// Behind "!quant.uniform": <i8:f32, 0.5:3>, <u8<1:200>:bf16:1, {0.5:3, 0.25}>. Elements that Weft does not compute with, and
// scales for blocks, are read over.
absl::Status Parser::ParseUniform(TypeText& out) {
  const size_t start = Here();
  const auto skip = [&] {
    out.supported = false;
    set_position(start);
    return SkipBalanced();
  };
  WEFT_RETURN_IF_ERROR(Need("<"));
  Quantization q;
  const std::string_view integers = Word();
  const std::optional<DType> storage = ParseDType(integers);
  const bool known = storage && (NameOf(*storage) == integers || StableHloNameOf(*storage) == integers) &&
                     IsInteger(*storage) && IsComputable(*storage) && BitsOf(*storage) <= 32;
  if (!known) return skip();
  q.storage = *storage;
  const int64_t lowest = IsUnsigned(q.storage) ? 0 : -(int64_t{1} << (BitsOf(q.storage) - 1));
  const int64_t highest = lowest + (int64_t{1} << BitsOf(q.storage)) - 1;
  q.min = lowest;
  q.max = highest;
  if (Take("<")) {
    const size_t at = Here();
    WEFT_ASSIGN_OR_RETURN(q.min, Number<int64_t>("the smallest integer"));
    WEFT_RETURN_IF_ERROR(Need(":"));
    WEFT_ASSIGN_OR_RETURN(q.max, Number<int64_t>("the largest integer"));
    WEFT_RETURN_IF_ERROR(Need(">"));
    if (q.min < lowest || q.max > highest || q.min >= q.max) {
      return ExpectedAt(at, absl::StrCat("a range within ", lowest, ":", highest));
    }
  }
  WEFT_RETURN_IF_ERROR(Need(":"));
  WEFT_ASSIGN_OR_RETURN(q.expressed, ElementType());
  if (!IsFloat(q.expressed) || !IsComputable(q.expressed)) return skip();
  if (Take(":")) {
    if (Peek() == '{') return skip();
    const size_t at = Here();
    WEFT_ASSIGN_OR_RETURN(q.axis, Number<int64_t>("a dimension"));
    const auto rank = static_cast<int64_t>(out.type.dims.size());
    if (out.supported && (q.axis < 0 || q.axis >= rank)) {
      return ExpectedAt(at, absl::StrCat("a dimension of a tensor of rank ", rank));
    }
  }
  WEFT_RETURN_IF_ERROR(Need(","));
  const size_t scales = Here();
  if (q.axis < 0) {
    WEFT_RETURN_IF_ERROR(ParseScale(q));
  } else {
    WEFT_RETURN_IF_ERROR(Need("{"));
    do {
      WEFT_RETURN_IF_ERROR(ParseScale(q));
    } while (Take(","));
    WEFT_RETURN_IF_ERROR(Need("}"));
    if (!out.supported) return Need(">");  // a size is not known
    if (const int64_t size = out.type.dims[static_cast<size_t>(q.axis)]; std::ssize(q.scales) != size) {
      return ExpectedAt(scales,
                        absl::StrCat(size, " scales, as dimension ", q.axis, " has them, not ", q.scales.size()));
    }
  }
  out.quantized = std::make_shared<const Quantization>(std::move(q));
  return Need(">");
}

// Behind "tensor".
absl::Status Parser::ParseTensorType(TypeText& out) {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(Need("<"));
  Dims dims;
  while (true) {
    if (Take("?") || Take("*")) {
      out.supported = false;
    } else if (absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) {
      WEFT_ASSIGN_OR_RETURN(int64_t dim, Number<int64_t>("a dimension"));
      dims.push_back(dim);
    } else {
      break;
    }
    WEFT_RETURN_IF_ERROR(Need("x"));
  }
  DType dtype = DType::kInvalid;
  if (TakeWord("!quant.uniform")) {
    out.type.dims = dims;
    WEFT_RETURN_IF_ERROR(ParseUniform(out));
    if (out.quantized != nullptr) dtype = out.quantized->storage;
  } else {
    WEFT_ASSIGN_OR_RETURN(dtype, ElementType());
  }
  while (Take(",")) {  // an encoding
    out.supported = false;
    (void)Take("#");
    (void)Suffix();
    if (LooksAt("<")) WEFT_RETURN_IF_ERROR(SkipBalanced());
  }
  WEFT_RETURN_IF_ERROR(Need(">"));
  if (dims.size() > kMaxRank || CheckedCount(dims).value_or(INT64_MAX) > (int64_t{1} << 59)) {
    return ExpectedAt(start, absl::StrCat("a type of rank at most ", kMaxRank, " that memory could hold"));
  }
  out.supported = out.supported && IsKnown(static_cast<uint32_t>(dtype));
  out.type = ir::Type::Tensor(dtype, std::move(dims));
  return absl::OkStatus();
}

absl::StatusOr<TypeText> Parser::ParseType() {
  TypeText out;
  const size_t start = Here();
  if (++nesting_ > kMaxNesting) return ExpectedAt(start, "a type that is less deeply nested");
  if (TakeWord("tensor")) {
    WEFT_RETURN_IF_ERROR(ParseTensorType(out));
  } else if (TakeWord("tuple")) {
    WEFT_RETURN_IF_ERROR(Need("<"));
    std::vector<ir::Type> elements;
    while (!Take(">")) {
      if (!elements.empty()) WEFT_RETURN_IF_ERROR(Need(","));
      WEFT_ASSIGN_OR_RETURN(TypeText element, ParseType());
      out.supported = out.supported && element.supported && element.quantized == nullptr;
      elements.push_back(std::move(element.type));
    }
    out.type = ir::Type::Tuple(std::move(elements));
  } else if (TakeWord("!stablehlo.token")) {
    out.type = ir::Type::Token();
  } else if (Take("!")) {
    (void)Suffix();
    if (LooksAt("<")) WEFT_RETURN_IF_ERROR(SkipBalanced());
    out.supported = false;
  } else {
    // A scalar type where attributes have one: i32.
    WEFT_ASSIGN_OR_RETURN(const DType dtype, ElementType());
    out.supported = false;
    out.type = ir::Type::Scalar(dtype);
  }
  --nesting_;
  out.text = Between(start, position());
  return out;
}

absl::Status Parser::ParseTypeList(std::vector<TypeText>& out) {
  WEFT_RETURN_IF_ERROR(Need("("));
  for (bool first = true; !Take(")"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
    out.push_back(std::move(type));
  }
  return absl::OkStatus();
}

// (T, U) -> V, or -> (V, W)
absl::Status Parser::ParseFunctionType(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseTypeList(op.operand_types));
  WEFT_RETURN_IF_ERROR(Need("->"));
  if (Peek() == '(') return ParseTypeList(op.result_types);
  WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
  op.result_types.push_back(std::move(type));
  return absl::OkStatus();
}

// A function type; or types of the operands, then `-> results`; or the last types are the results', one for all being the
// usual case (`add %a, %b : T`, `select %p, %a, %b : P, T`, `optimization_barrier %a, %b : T, U`).
absl::Status Parser::ParsePrettyTypes(Operation& op) {
  if (Peek() == '(') return ParseFunctionType(op);
  const size_t start = position();
  std::vector<TypeText> types;
  do {
    WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
    types.push_back(std::move(type));
  } while (Take(","));
  if (Take("->")) {
    op.operand_types = std::move(types);
    if (Peek() == '(') return ParseTypeList(op.result_types);
    WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
    op.result_types.push_back(std::move(type));
    return absl::OkStatus();
  }
  const size_t results = op.ResultCount();
  if (results > types.size()) return ExpectedAt(start, absl::StrCat("the types of ", results, " results"));
  op.result_types.assign(types.end() - static_cast<ptrdiff_t>(results), types.end());
  if (types.size() == 1 && types[0].type.is_tensor()) types.resize(op.operands.size(), types[0]);
  if (op.name == "stablehlo.tuple") return absl::OkStatus();  // one type says all
  if (types.size() == op.operands.size()) op.operand_types = std::move(types);
  return absl::OkStatus();
}

}  // namespace weft::stablehlo
