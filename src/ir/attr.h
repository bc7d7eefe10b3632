// Attributes of a node: one value per entry of the operation's schema, in the schema's order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/runtime/host_tensor.h"

namespace weft::ir {

using Ints = absl::InlinedVector<int64_t, 4>;

// monostate: absent (an optional attribute that was not given). Booleans and enumerators are int64_t.
using AttrValue =
    std::variant<std::monostate, int64_t, double, DType, Ints, std::vector<double>, std::string, Ref<const Literal>>;

enum class AttrType : uint8_t { kInt, kDouble, kBool, kEnum, kDType, kInts, kDoubles, kString, kLiteral };

// One entry of an operation's attribute schema. Lives in constant memory.
struct AttrDef {
  std::string_view name;
  AttrType type;
  std::string_view doc;
  bool required = false;
  // Text of the default, as a user would write it ("1", "true", "valid", "[1, 1]"); empty: absent stays absent.
  std::string_view default_text = {};
  // Spellings of an enumerator, index = value.
  std::span<const std::string_view> enumerators = {};
};

// Values by schema position. Trailing absent values may be missing, so that most nodes carry an empty vector.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<AttrValue> values) : values_(values) {}

  bool has(size_t i) const { return i < values_.size() && values_[i].index() != 0; }
  const AttrValue& at(size_t i) const;
  void set(size_t i, AttrValue value);
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }

  // These read attributes that the schema requires or gives a default (recording fills defaults in); the type must fit.
  int64_t Int(size_t i) const { return std::get<int64_t>(values_[i]); }
  bool Bool(size_t i) const { return std::get<int64_t>(values_[i]) != 0; }
  double Double(size_t i) const { return std::get<double>(values_[i]); }
  DType Type(size_t i) const { return std::get<DType>(values_[i]); }
  const Ints& IntList(size_t i) const { return std::get<Ints>(values_[i]); }
  const std::vector<double>& DoubleList(size_t i) const { return std::get<std::vector<double>>(values_[i]); }
  const std::string& String(size_t i) const { return std::get<std::string>(values_[i]); }
  const HostTensor& Tensor(size_t i) const { return std::get<Ref<const Literal>>(values_[i])->value; }

  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  std::vector<AttrValue> values_;
};

}  // namespace weft::ir
