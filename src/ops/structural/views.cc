// view_as_real, view_as_complex: the memory of a complex tensor as its parts side by side, and back. Made by
// passes/split_complex.cc at a program's parameters and results, where nothing runs for them.
#include <cstring>

#include "src/ir/stablehlo.h"
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

// StableHLO has no views: the parts beside each other.
void StableHloReal(const Node& node, StableHloWriter& writer) {
  const Value& x = node.operands()[0];
  const Type& whole = node.type();
  Type part = Type::Tensor(whole.dtype, x.dims()), plane = whole;
  plane.dims.back() = 1;
  std::vector<std::string> planes;
  for (const std::string_view name : {"real", "imag"}) {
    const std::string values[] = {writer.Name(x)};
    const std::string taken[] = {writer.Op(name, values, part)};
    planes.push_back(writer.Op("reshape", taken, plane));
  }
  writer.EmitOn("concatenate", planes, {{"dimension", ShloI64(static_cast<int64_t>(whole.rank()) - 1)}});
}

void StableHloComplex(const Node& node, StableHloWriter& writer) {
  const Value& x = node.operands()[0];
  Type plane = x.type();
  plane.dims.back() = 1;
  const Type part = Type::Tensor(x.dtype(), node.type().dims);
  std::vector<std::string> planes;
  for (const int64_t at : {0, 1}) {
    Dims start(plane.rank(), 0), limit = x.dims();
    start.back() = at;
    limit.back() = at + 1;
    const std::string values[] = {writer.Name(x)};
    const std::string taken[] = {writer.Op("slice", values, plane,
                                           {{"start_indices", ShloArray(start)},
                                            {"limit_indices", ShloArray(limit)},
                                            {"strides", ShloArray(Dims(plane.rank(), 1))}})};
    planes.push_back(writer.Op("reshape", taken, part));
  }
  writer.EmitOn("complex", planes);
}

}  // namespace

constinit const OpDef kOp_view_as_real = {
    .name = "view_as_real",
    .c_name = "view_as_real",
    .doc = "The parts of complex elements in memory order, real before imaginary. Made by the compiler; never called.",
    .operands = kComplexOperand,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferReal,
    .lowering = Lowering::kStructural,
    .reference = Reference,
    .stablehlo = StableHloReal,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .alias = true,
    .opaque = true,
};

constinit const OpDef kOp_view_as_complex = {
    .name = "view_as_complex",
    .c_name = "view_as_complex",
    .doc = "Complex elements of parts in memory order, real before imaginary. Made by the compiler; never called.",
    .operands = kRealOperand,
    .attrs = kAttrs,
    .results = kResult,
    .infer = InferComplex,
    .lowering = Lowering::kStructural,
    .reference = Reference,
    .stablehlo = StableHloComplex,
    .tolerance = kExact,
    .absent = kAbsent,
    .exported = false,
    .alias = true,
    .opaque = true,
};

}  // namespace weft::ops
