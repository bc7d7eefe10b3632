// The type of a value: a ranked static tensor, a token (ordering only) or a tuple.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/runtime/dtype.h"
#include "src/runtime/shape.h"

namespace weft::ir {

// Immutable once it sits in a node.
struct Type {
  enum class Kind : uint8_t { kTensor, kToken, kTuple };

  DType dtype = DType::kInvalid;
  Kind kind = Kind::kTensor;
  Dims dims;
  std::shared_ptr<const std::vector<Type>> elements;  // of a tuple

  static Type Tensor(DType dtype, Dims dims) { return Type{dtype, Kind::kTensor, std::move(dims), nullptr}; }
  static Type Scalar(DType dtype) { return Tensor(dtype, {}); }
  static Type Token() { return Type{DType::kInvalid, Kind::kToken, {}, nullptr}; }
  static Type Tuple(std::vector<Type> elements);

  bool is_tensor() const { return kind == Kind::kTensor; }
  size_t rank() const { return dims.size(); }
  int64_t count() const { return CountOf(dims); }
  int64_t bytes() const { return count() * BytesOf(dtype); }

  friend bool operator==(const Type& a, const Type& b);
};

// Most nodes have one result.
using Types = absl::InlinedVector<Type, 1>;

// "tensor<2x3xf32>", "!stablehlo.token", "tuple<tensor<f32>, tensor<i32>>": StableHLO's spelling.
std::string ToString(const Type& type);

}  // namespace weft::ir
