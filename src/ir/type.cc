// Equality and text of types.
#include "src/ir/type.h"

#include "absl/strings/str_cat.h"

namespace weft::ir {

Type Type::Tuple(std::vector<Type> elements) {
  return Type{DType::kInvalid, Kind::kTuple, {}, std::make_shared<const std::vector<Type>>(std::move(elements))};
}

bool operator==(const Type& a, const Type& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.dims != b.dims) return false;
  return a.kind != Type::Kind::kTuple || *a.elements == *b.elements;
}

std::string ToString(const Type& type) {
  if (type.kind == Type::Kind::kToken) return "!stablehlo.token";
  std::string text;
  if (type.kind == Type::Kind::kTuple) {
    for (const Type& element : *type.elements) absl::StrAppend(&text, text.empty() ? "" : ", ", ToString(element));
    return absl::StrCat("tuple<", text, ">");
  }
  text = "tensor<";
  for (int64_t dim : type.dims) absl::StrAppend(&text, dim, "x");
  return absl::StrCat(text, StableHloNameOf(type.dtype), ">");
}

}  // namespace weft::ir
