// The operations of one family share these: operand lists, shape rules and reference loops. A rule that only one
// operation needs stays in that operation's file.
#pragma once

#include <array>
#include <vector>

#include "src/ir/scalar.h"
#include "src/ops/build.h"
#include "src/ops/own_attrs.h"

namespace weft::ops {

inline constexpr std::string_view kResult[] = {"result"};

// Whole families lack these parts, for these reasons.
inline constexpr ir::Absent kNoGradient[] = {{ir::Part::kGradient, ir::Reason::kNotDifferentiable}};
// Composites: the expansion is what StableHLO and the reference see.
inline constexpr ir::Absent kCompositeAbsent[] = {{ir::Part::kReference, ir::Reason::kExpands},
                                                  {ir::Part::kStableHlo, ir::Reason::kExpands}};
inline constexpr ir::Absent kCompositeNoGradient[] = {{ir::Part::kGradient, ir::Reason::kNotDifferentiable},
                                                      {ir::Part::kReference, ir::Reason::kExpands},
                                                      {ir::Part::kStableHlo, ir::Reason::kExpands}};
// Composites with a scalar rule, an own gradient and an own reference.
inline constexpr ir::Absent kPointwiseAbsent[] = {{ir::Part::kStableHlo, ir::Reason::kExpands}};
inline constexpr ir::Absent kPointwiseNoGradient[] = {{ir::Part::kGradient, ir::Reason::kNotDifferentiable},
                                                      {ir::Part::kStableHlo, ir::Reason::kExpands}};
// Macros are never nodes.
inline constexpr ir::Absent kMacroAbsent[] = {{ir::Part::kGradient, ir::Reason::kExpands},
                                              {ir::Part::kReference, ir::Reason::kExpands},
                                              {ir::Part::kStableHlo, ir::Reason::kExpands}};
inline constexpr ir::Absent kMacroNoGradient[] = {{ir::Part::kGradient, ir::Reason::kNotDifferentiable},
                                                  {ir::Part::kReference, ir::Reason::kExpands},
                                                  {ir::Part::kStableHlo, ir::Reason::kExpands}};

// Operations that come with StableHLO programs alone; composites of them, whose expansion is differentiated and runs.
inline constexpr ir::Absent kNoExample[] = {{ir::Part::kExample, ir::Reason::kFromStableHlo}};
inline constexpr ir::Absent kStableHloComposite[] = {{ir::Part::kGradient, ir::Reason::kExpands},
                                                     {ir::Part::kReference, ir::Reason::kExpands},
                                                     {ir::Part::kExample, ir::Reason::kFromStableHlo}};

// Operations that move or choose elements without computing.
inline constexpr ir::Tolerance kExact = {.f32 = 0, .f64 = 0, .bf16 = 0, .f16 = 0};

// Samples of elementwise operations: scalars, empty, odd and broadcast shapes, operand values in [low, high).
constexpr std::array<ir::Sample, 5> UnarySamples(double low = -2, double high = 2, bool gradient = true) {
  return {{{"T[2,3]", low, high, gradient},
           {"T[]", low, high, gradient},
           {"T[0,3]", low, high, gradient},
           {"T[1]", low, high, gradient},
           {"T[131]", low, high, gradient}}};
}
constexpr std::array<ir::Sample, 5> BinarySamples(double low = -2, double high = 2, bool gradient = true) {
  return {{{"T[2,3] T[2,3]", low, high, gradient},
           {"T[4,1] T[3]", low, high, gradient},
           {"T[] T[5]", low, high, gradient},
           {"T[0,3] T[3]", low, high, gradient},
           {"T[130] T[130]", low, high, gradient}}};
}

// Serves OpDef::indices: checks that all are 0 to `most`.
absl::Status CheckIndices(std::string_view name, const HostTensor& values, int64_t most);

// Checks that elements of the type can be combined so: complex ones have no order, floats no bits.
absl::Status CheckReducer(std::string_view reducer, DType dtype);

// Result type = first operand's; all operands must have its shape (CheckCall has matched the dtypes of a
// group).
absl::Status InferSame(const ir::InferCall& call, ir::Types* results);
// The same shape as bool.
absl::Status InferBool(const ir::InferCall& call, ir::Types* results);
// The shape of a reduction with attributes dims (0) and keepdims (1); dtype of the operand.
absl::Status InferReduction(const ir::InferCall& call, ir::Types* results);
inline constexpr ir::AttrDef kReductionAttrs[] = {
    {"dims", ir::AttrType::kInts, "axes to reduce, negative ones count from the end; absent: all"},
    {"keepdims", ir::AttrType::kBool, "keep reduced axes with size 1", false, "false"}};
// Reduces by the same two attributes.
absl::StatusOr<ir::Value> ReduceByAttrs(const ir::ExpandCall& call, Reducer reducer, const ir::Value& x);
// The number of elements that go into one result of the reduction.
absl::StatusOr<int64_t> ReducedCount(const ir::Attrs& attrs, const Dims& dims);

// dx = g * derivative(x, y).
template <ir::Value (*derivative)(ir::Builder&, const ir::Value& x, const ir::Value& y)>
absl::Status GradientUnary(const ir::GradCall& call, std::span<ir::Value> grads) {
  grads[0] = Mul(call.b, call.cotangents[0], derivative(call.b, call.operands[0], call.results[0]));
  return absl::OkStatus();
}

// Expansion of a one-result composite or macro of one operand.
template <ir::Value (*f)(ir::Builder&, const ir::Value& x)>
absl::Status ExpandUnary(const ir::ExpandCall& call, std::span<ir::Value> results) {
  results[0] = f(call.b, call.operands[0]);
  return absl::OkStatus();
}
// A macro that is one reduction.
template <Reducer reducer>
absl::Status ExpandReduction(const ir::ExpandCall& call, std::span<ir::Value> results) {
  WEFT_ASSIGN_OR_RETURN(results[0], ReduceByAttrs(call, reducer, call.operands[0]));
  return absl::OkStatus();
}

// All elements of a float tensor at once, for references with nested loops.
std::vector<double> ToDoubles(const HostTensor& x);

// Elementwise reference: `f` on doubles for floats, `i` on int64 images for integers and bools (null where
// the operation takes none). Unsigned 64-bit operations that differ from signed ones write their own.
template <double (*f)(double), int64_t (*i)(int64_t) = nullptr>
absl::Status ReferenceUnary(const ir::ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  for (int64_t k = 0; k < y.count(); ++k) {
    if (IsFloat(x.dtype())) {
      y.SetDouble(k, f(x.GetDouble(k)));
    } else if constexpr (i != nullptr) {
      y.SetInt(k, i(x.GetInt(k)));
    }
  }
  return absl::OkStatus();
}
template <double (*f)(double, double), int64_t (*i)(int64_t, int64_t) = nullptr>
absl::Status ReferenceBinary(const ir::ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const HostTensor& y = *call.operands[1];
  HostTensor& z = call.results[0];
  for (int64_t k = 0; k < z.count(); ++k) {
    if (IsFloat(x.dtype())) {
      z.SetDouble(k, f(x.GetDouble(k), y.GetDouble(k)));
    } else if constexpr (i != nullptr) {
      z.SetInt(k, i(x.GetInt(k), y.GetInt(k)));
    }
  }
  return absl::OkStatus();
}

template <ir::ScalarOp op>
ir::ScalarValue ScalarUnary(const ir::ScalarCall& call) {
  return call.b.Unary(op, call.operands[0]);
}
template <ir::ScalarOp op>
ir::ScalarValue ScalarBinary(const ir::ScalarCall& call) {
  return call.b.Binary(op, call.operands[0], call.operands[1]);
}

}  // namespace weft::ops
