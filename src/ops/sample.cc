// A small reader for sample calls, and the deterministic values they run on.
#include "src/ops/sample.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/ops/build.h"

namespace weft::ops {
namespace {

// Everything here is written by us: a mistake is internal.
absl::Status Bad(const ir::OpDef& op, std::string_view what, std::string_view text) {
  return InternalError("sample of ", op.c_name, ": ", what, " in \"", text, "\"");
}

// "[1,2]", whose parts `read` reads.
template <typename List>
absl::StatusOr<List> ParseList(const ir::OpDef& op, std::string_view text,
                               bool (*read)(std::string_view, typename List::value_type*)) {
  if (!absl::ConsumePrefix(&text, "[") || !absl::ConsumeSuffix(&text, "]")) return Bad(op, "no list", text);
  List list;
  if (text.empty()) return list;
  for (std::string_view part : absl::StrSplit(text, ',')) {
    typename List::value_type value;
    if (!read(part, &value)) return Bad(op, "no number", text);
    list.push_back(value);
  }
  return list;
}

absl::StatusOr<ir::Ints> ParseInts(const ir::OpDef& op, std::string_view text) {
  return ParseList<ir::Ints>(op, text,
                             [](std::string_view part, int64_t* value) { return absl::SimpleAtoi(part, value); });
}

// "f32[2,3]", leaving what follows.
absl::StatusOr<ir::Type> ParseType(const ir::OpDef& op, std::string_view& text, DType generic, bool* is_generic) {
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos) return Bad(op, "no type", text);
  const std::string_view name = text.substr(0, open);
  DType dtype = generic;
  *is_generic = name == "T";
  if (!*is_generic) {
    const std::optional<DType> parsed = ParseDType(name);
    if (!parsed) return Bad(op, "no dtype", text);
    dtype = *parsed;
  }
  WEFT_ASSIGN_OR_RETURN(const ir::Ints dims, ParseInts(op, text.substr(open, close + 1 - open)));
  text.remove_prefix(close + 1);
  return ir::Type::Tensor(dtype, ToDims(dims));
}

absl::StatusOr<SampleOperand> ParseOperand(const ir::OpDef& op, std::string_view text, DType dtype) {
  SampleOperand operand;
  if (text == "none") {
    operand.absent = true;
    return operand;
  }
  WEFT_ASSIGN_OR_RETURN(operand.type, ParseType(op, text, dtype, &operand.generic));
  operand.dominant = absl::ConsumePrefix(&text, "<dominant>");
  if (absl::ConsumePrefix(&text, "<") && absl::ConsumeSuffix(&text, ">")) {
    const std::vector<std::string_view> bounds = absl::StrSplit(text, ':');
    operand.bounded = true;
    if (bounds.size() != 2 || !absl::SimpleAtoi(bounds[0], &operand.low) ||
        !absl::SimpleAtoi(bounds[1], &operand.high)) {
      return Bad(op, "no bounds", text);
    }
    text = {};
  }
  if (!text.empty()) return Bad(op, "trailing text", text);
  return operand;
}

absl::StatusOr<ir::AttrValue> ParseLiteral(const ir::OpDef& op, std::string_view text) {
  bool generic;
  WEFT_ASSIGN_OR_RETURN(const ir::Type type, ParseType(op, text, DType::kF32, &generic));
  if (!absl::ConsumePrefix(&text, "{") || !absl::ConsumeSuffix(&text, "}")) return Bad(op, "no literal", text);
  HostTensor value(type.dtype, type.dims);
  int64_t i = 0;
  for (std::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    double number;
    if (!absl::SimpleAtod(part, &number) || i >= value.count()) return Bad(op, "no element", text);
    value.SetDouble(i++, number);
  }
  return ir::AttrValue(Ref<const Literal>(MakeRef<Literal>(std::move(value))));
}

absl::StatusOr<ir::AttrValue> ParseAttr(const ir::OpDef& op, const ir::AttrDef& def, std::string_view text) {
  int64_t integer;
  double number;
  switch (def.type) {
    case ir::AttrType::kInt:
      if (absl::SimpleAtoi(text, &integer)) return ir::AttrValue(integer);
      break;
    case ir::AttrType::kBool:
      if (text == "true" || text == "false") return ir::AttrValue(int64_t{text == "true"});
      break;
    case ir::AttrType::kDouble:
      if (absl::SimpleAtod(text, &number)) return ir::AttrValue(number);
      break;
    case ir::AttrType::kEnum: {
      const auto found = std::find(def.enumerators.begin(), def.enumerators.end(), text);
      if (found != def.enumerators.end()) return ir::AttrValue(static_cast<int64_t>(found - def.enumerators.begin()));
      break;
    }
    case ir::AttrType::kDType:
      if (const auto dtype = ParseDType(text)) return ir::AttrValue(*dtype);
      break;
    case ir::AttrType::kInts: {
      WEFT_ASSIGN_OR_RETURN(ir::Ints ints, ParseInts(op, text));
      return ir::AttrValue(std::move(ints));
    }
    case ir::AttrType::kString: return ir::AttrValue(std::string(text));
    case ir::AttrType::kLiteral: return ParseLiteral(op, text);
    case ir::AttrType::kDoubles: {
      using Doubles = std::vector<double>;
      WEFT_ASSIGN_OR_RETURN(Doubles doubles, ParseList<Doubles>(op, text, [](std::string_view part, double* value) {
                              return absl::SimpleAtod(part, value);
                            }));
      return ir::AttrValue(std::move(doubles));
    }
  }
  return Bad(op, "no value", text);
}

// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, every output a bijection of it.
uint64_t Next(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// A magnitude of `dtype` with u's exponent and fraction: powers of two are equally likely.
double Whole(DType dtype, double u) {
  const int least = dtype == DType::kF64 ? -1022 : dtype == DType::kF16 ? -14 : -126;
  const int top = dtype == DType::kF64 ? 1023 : dtype == DType::kF16 ? 15 : 127;
  const double exponent = least + u * (top + 1 - least);
  return std::ldexp(1 + (exponent - std::floor(exponent)) * 0.99, static_cast<int>(std::floor(exponent)));
}

}  // namespace

absl::StatusOr<ParsedSample> ParseSample(const ir::OpDef& op, const ir::Sample& sample, DType dtype) {
  ParsedSample parsed;
  for (std::string_view token : absl::StrSplit(sample.call, ' ', absl::SkipEmpty())) {
    const size_t equals = token.find('=');
    if (equals == std::string_view::npos) {
      WEFT_ASSIGN_OR_RETURN(SampleOperand operand, ParseOperand(op, token, dtype));
      parsed.generic = parsed.generic || operand.generic;
      parsed.operands.push_back(std::move(operand));
      continue;
    }
    const std::string_view name = token.substr(0, equals);
    const auto def =
        std::find_if(op.attrs.begin(), op.attrs.end(), [&](const ir::AttrDef& a) { return a.name == name; });
    if (def == op.attrs.end()) return Bad(op, "unknown attribute", token);
    WEFT_ASSIGN_OR_RETURN(ir::AttrValue value, ParseAttr(op, *def, token.substr(equals + 1)));
    parsed.attrs.set(def - op.attrs.begin(), std::move(value));
  }
  return parsed;
}

std::vector<DType> SampleTypes(const ir::OpDef& op, const ir::Sample& sample) {
  absl::StatusOr<ParsedSample> parsed = ParseSample(op, sample, DType::kF32);
  if (!parsed.ok() || !parsed->generic) return {DType::kF32};
  size_t first = 0;
  while (!parsed->operands[first].generic) ++first;
  const ir::TypeSet set = op.operands[std::min(first, op.operands.size() - 1)].types;
  std::vector<DType> types;
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI8, DType::kI16, DType::kI32,
                      DType::kI64, DType::kU8, DType::kU16, DType::kU32, DType::kU64, DType::kBool}) {
    if (ir::Contains(set, dtype)) types.push_back(dtype);
  }
  return types;
}

HostTensor FillSample(const ir::Sample& sample, const SampleOperand& operand, uint64_t seed, Spread spread) {
  HostTensor tensor(operand.type.dtype, operand.type.dims);
  if (IsComplex(tensor.dtype())) {
    SampleOperand part = operand;
    part.type.dtype = PartOf(tensor.dtype());
    tensor.SetPart(0, FillSample(sample, part, seed, spread));
    tensor.SetPart(1, FillSample(sample, part, ~seed, spread));
    return tensor;
  }
  const DType dtype = tensor.dtype();
  uint64_t state = seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(tensor.count());
  for (int64_t i = 0; i < tensor.count(); ++i) {
    const double u = static_cast<double>(Next(state) >> 11) * 0x1p-53;
    if (operand.bounded) {
      tensor.SetInt(i, operand.low + static_cast<int64_t>(u * static_cast<double>(operand.high - operand.low)));
    } else if (IsFloat(dtype) && spread == Spread::kWhole) {
      const bool negative = sample.low < 0 && Next(state) % 2 == 0;
      tensor.SetDouble(i, negative ? -Whole(dtype, u) : Whole(dtype, u));
    } else if (IsFloat(dtype)) {
      tensor.SetDouble(i, sample.low + u * (sample.high - sample.low));
    } else if (IsBool(dtype)) {
      tensor.SetInt(i, u < 0.5);
    } else {
      // Whole numbers of the range, widened by 2 so that small ranges still vary; unsigned ones start at 0.
      const double low = IsUnsigned(dtype) ? std::fmax(0, sample.low) : std::floor(sample.low);
      tensor.SetDouble(i, std::floor(low + u * (sample.high + 2 - low)));
    }
  }
  if (operand.dominant) MakeDominant(sample, tensor);
  return tensor;
}

void MakeDominant(const ir::Sample& sample, HostTensor& tensor) {
  const int64_t n = tensor.dims().empty() ? 0 : tensor.dims().back();
  const double weight = static_cast<double>(n) * std::max(std::fabs(sample.low), std::fabs(sample.high));
  for (int64_t i = 0; i < tensor.count(); ++i) {
    if (i % n == i / n % n) tensor.SetDouble(i, tensor.GetDouble(i) + weight);
  }
}

}  // namespace weft::ops
