// Functions of scalars that operations carry: what map does at every element, what reduce_by combines with, what sort_by
// compares by. Captures are scalars, too, and stand behind the other parameters.
#pragma once

#include <optional>
#include <string>

#include "src/ir/rewrite.h"
#include "src/ir/stablehlo.h"
#include "src/ops/families.h"

namespace weft::ops {

// The function at every element of tensors of shape `dims`, which all inputs have: its operations on whole tensors. A
// UserError names what does not work element by element.
absl::StatusOr<ir::Values> AtEveryElement(ir::Builder& b, const ir::Function& function,
                                          std::span<const ir::Value> inputs, const Dims& dims);

// Checks that it works element by element, and is of a size that can run at every one.
absl::Status CheckElementwise(const ir::Function& function);

// Checks that the function takes scalars of these types and gives scalars of those, element by element.
absl::Status CheckScalarFunction(const ir::Function& function, std::span<const DType> parameters,
                                 std::span<const DType> results);

// A function of fresh scalar parameters; `formula` gives its results.
template <typename Formula>
absl::StatusOr<Ref<const ir::Function>> MakeScalarFunction(std::string name, std::span<const DType> types,
                                                           Formula formula) {
  std::vector<ir::Value> parameters;
  for (const DType type : types) {
    parameters.push_back({ir::Node::Create(kOp_parameter, {}, {}, {ir::Type::Scalar(type)}), 0});
  }
  ir::Builder b;
  ir::Values results = formula(b, std::span<const ir::Value>(parameters));
  WEFT_RETURN_IF_ERROR(b.status());
  return ir::Function::Create(std::move(name), std::move(parameters), {results.begin(), results.end()});
}

// Returns the plain reducer that a function (accumulated, taken) -> accumulated is, if it is one.
std::optional<Reducer> PlainReducer(const ir::Function& body);
// Tells whether the value is a literal of the reducer's neutral element.
bool IsNeutral(const ir::Value& value, Reducer reducer);

// Operations whose operands are n inputs, n scalars to begin with and the body's captures; the body takes n accumulated
// values, n taken ones and its captures, and gives n.
struct BodyOperands {
  size_t inputs = 0;
  size_t captures = 0;
};
absl::StatusOr<BodyOperands> CheckReducingBody(const ir::InferCall& call);

// One element as a scalar.
inline HostTensor ElementOf(const HostTensor& from, int64_t i) {
  HostTensor one(from.dtype(), {});
  CopyElement(from, i, one, 0);
  return one;
}

// --- Recording by functions: the plain operation where the body is plain, else the general one. Results in order; empty after
// a failure, as of CallAll.

// StableHLO's reduce; `inits` are scalars.
ir::Values ReduceBy(ir::Builder& b, std::span<const ir::Value> inputs, std::span<const ir::Value> inits,
                    const Ref<const ir::Function>& body, const ir::Ints& dimensions,
                    std::span<const ir::Value> captures = {});
// `windows`: the attributes of reduce_window_by.
ir::Values ReduceWindowBy(ir::Builder& b, std::span<const ir::Value> inputs, std::span<const ir::Value> inits,
                          const Ref<const ir::Function>& body, const ir::Attrs& windows,
                          std::span<const ir::Value> captures = {});
// Operands and attributes of scatter_by.
ir::Values ScatterBy(ir::Builder& b, ir::Values operands, const Ref<const ir::Function>& body, const ir::Attrs& dims);
// Operands and attributes of select_and_scatter_by.
ir::Value SelectAndScatterBy(ir::Builder& b, ir::Values operands, const Ref<const ir::Function>& select,
                             const Ref<const ir::Function>& scatter, const ir::Attrs& windows);

}  // namespace weft::ops
