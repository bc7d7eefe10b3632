// How an operation's own rules read its attributes: by name, through its schema, looked up while compiling. (What other
// files read them by, generated/attributes.h, is made from the operations and so cannot serve them.)
#pragma once

#include <string_view>

#include "src/ir/attr.h"

namespace weft::ops {

template <size_t size>
struct AttrName {
  char text[size];
  consteval AttrName(const char (&name)[size]) {  // NOLINT: spelled as a string
    for (size_t i = 0; i < size; ++i) text[i] = name[i];
  }
};

// The position of an attribute of `schema`; a name that it lacks does not compile.
template <const auto& schema, AttrName name>
consteval size_t AttrPosition() {
  size_t i = 0;
  while (schema[i].name != std::string_view(name.text)) ++i;  // past the end: not a constant
  return i;
}

template <const auto& schema, AttrName name>
bool HasAttr(const ir::Attrs& attrs) {
  return attrs.has(AttrPosition<schema, name>());
}

// The value, in the type the schema gives it. Absent ones (see HasAttr) must not be asked for.
template <const auto& schema, AttrName name>
decltype(auto) Attr(const ir::Attrs& attrs) {
  constexpr size_t i = AttrPosition<schema, name>();
  constexpr ir::AttrType type = schema[i].type;
  if constexpr (type == ir::AttrType::kInt || type == ir::AttrType::kEnum) {
    return attrs.Int(i);
  } else if constexpr (type == ir::AttrType::kBool) {
    return attrs.Bool(i);
  } else if constexpr (type == ir::AttrType::kDouble) {
    return attrs.Double(i);
  } else if constexpr (type == ir::AttrType::kDType) {
    return attrs.Type(i);
  } else if constexpr (type == ir::AttrType::kInts) {
    return attrs.IntList(i);
  } else if constexpr (type == ir::AttrType::kDoubles) {
    return attrs.DoubleList(i);
  } else if constexpr (type == ir::AttrType::kString) {
    return attrs.String(i);
  } else {
    return attrs.Tensor(i);
  }
}

}  // namespace weft::ops
