// view_as_real, view_as_complex: the memory of a complex tensor as its parts side by side, and back. Made by
// passes/split_complex.cc at a program's parameters and results, where nothing runs for them.
#include <cstring>

#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kComplexOperand[] = {{"x", kC, "complex tensor"}};
constexpr OperandDef kRealOperand[] = {{"x", kF, "twice as many real elements"}};
constexpr AttrDef kAttrs[] = {{"shape", AttrType::kInts, "result shape", true}};
constexpr Absent kAbsent[] = {{Part::kGradient, Reason::kStructural},
                              {Part::kSamples, Reason::kStructural},
                              {Part::kExample, Reason::kStructural}};

absl::Status Infer(const InferCall& call, bool to_real, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  const DType dtype = to_real ? PartOf(x.dtype) : ComplexOf(x.dtype);
  const Type result = Type::Tensor(dtype, ToDims(shape));
  if (IsHalf(x.dtype) || result.bytes() != x.bytes()) {
    return UserError("shape ", DimsToString(shape), " of ", NameOf(dtype), " does not have the bytes of the operand");
  }
  results->push_back(result);
  return absl::OkStatus();
}
absl::Status InferReal(const InferCall& call, Types* results) { return Infer(call, true, results); }
absl::Status InferComplex(const InferCall& call, Types* results) { return Infer(call, false, results); }

absl::Status Reference(const ReferenceCall& call) {
  const auto from = call.operands[0]->bytes();
  if (!from.empty()) std::memcpy(call.results[0].mutable_bytes().data(), from.data(), from.size());
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kOp_view_as_real = {
    .name = "weft.view_as_real",
    .c_name = "view_as_real",
    .doc = "The parts of complex elements in memory order, real before imaginary. Made by the compiler; never called.",
    .operands = kComplexOperand,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferReal,
    .lowering = Lowering::kStructural,
    .reference = Reference,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .alias = true,
};

constinit const OpDef kOp_view_as_complex = {
    .name = "weft.view_as_complex",
    .c_name = "view_as_complex",
    .doc = "Complex elements of parts in memory order, real before imaginary. Made by the compiler; never called.",
    .operands = kRealOperand,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferComplex,
    .lowering = Lowering::kStructural,
    .reference = Reference,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .alias = true,
};

}  // namespace weft::ops
