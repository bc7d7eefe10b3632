// complex, real, imag: the way between complex tensors and their two planes. passes/split_complex.cc takes all three away.
#include "src/ops/complex.h"
#include "src/ops/families.h"
#include "src/ops/planes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kParts[] = {{"re", kF, "real parts, f32 or f64"}, {"im", kF, "imaginary parts"}};
constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};

absl::Status InferComplex(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferSame(call, results));
  DType& dtype = results->back().dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64) {
    return UserError("the parts are ", NameOf(dtype), "; complex numbers have parts of f32 or f64");
  }
  dtype = ComplexOf(dtype);
  return absl::OkStatus();
}
absl::Status InferPart(const InferCall& call, Types* results) {
  results->push_back(Type::Tensor(PartOf(call.operands[0]->dtype), call.operands[0]->dims));
  return absl::OkStatus();
}

// g z is g re + i g im, whose real part counts.
absl::Status GradientComplex(const GradCall& call, std::span<Value> grads) {
  const Planes g = PlanesOf(call.b, call.cotangents[0]);
  if (call.wanted[0]) grads[0] = g.re;
  if (call.wanted[1]) grads[1] = Neg(call.b, g.im);
  return absl::OkStatus();
}
absl::Status GradientReal(const GradCall& call, std::span<Value> grads) {
  const Value& g = call.cotangents[0];
  grads[0] = IsComplex(call.operands[0].dtype()) ? ComplexFrom(call.b, {g, FullLike(call.b, g, 0)}) : g;
  return absl::OkStatus();
}
// Im z is the real part of -i z. A real operand has none.
absl::Status GradientImag(const GradCall& call, std::span<Value> grads) {
  const Value& g = call.cotangents[0];
  if (IsComplex(call.operands[0].dtype())) {
    grads[0] = ComplexFrom(call.b, {FullLike(call.b, g, 0), Neg(call.b, g)});
  }
  return absl::OkStatus();
}

absl::Status ReferenceComplex(const ReferenceCall& call) {
  call.results[0].SetPart(0, *call.operands[0]);
  call.results[0].SetPart(1, *call.operands[1]);
  return absl::OkStatus();
}

template <int part>
absl::Status ReferencePart(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  if (IsComplex(x.dtype())) {
    call.results[0] = x.Part(part);
  } else if (part == 0) {
    call.results[0] = x;
  }
  return absl::OkStatus();
}

constexpr Sample kComplexSamples[] = {
    {"f32[2,3] f32[2,3]"}, {"f64[4,1] f64[3]"}, {"f32[] f32[5]"}, {"f32[0,3] f32[3]"}};
constexpr Sample kPartSamples[] = {{"c64[2,3]"}, {"c128[5]"}, {"c64[]"}, {"c64[0,3]"}, {"T[2,3]"}};

Splits PlanesOfComplex(const PlanesCall& call) { return Complex({call.operands[0].whole, call.operands[1].whole}); }
Splits PlanesOfReal(const PlanesCall& call) {
  return Real(call.operands[0].complex() ? call.planes(0).re : call.operands[0].whole);
}
Splits PlanesOfImag(const PlanesCall& call) {
  const Split& x = call.operands[0];
  return Real(x.complex() ? x.planes.im : FullLike(call.b, x.whole, 0));
}

}  // namespace

constinit const OpDef kOp_complex = {
    .name = "complex",
    .c_name = "complex",
    .since = 1,
    .doc = "The complex tensor re + i im, c64 of f32 or c128 of f64, with NumPy broadcasting.",
    .example = "z = wf_complex(s, x, y);",
    .operands = kParts,
    .results = kResult,
    .rule = OperandRule::kBroadcast,
    .infer = InferComplex,
    .gradient = GradientComplex,
    .lowering = Lowering::kPlanes,
    .reference = ReferenceComplex,
    .samples = kComplexSamples,
    .tolerance = kExact,
    .planes = PlanesOfComplex,
};

constinit const OpDef kOp_real = {
    .name = "real",
    .c_name = "real",
    .since = 1,
    .doc = "Elementwise real part: f32 of c64, f64 of c128. A real tensor is its own.",
    .example = "x = wf_real(s, wf_complex(s, x, y));",
    .operands = kOperands,
    .results = kResult,
    .infer = InferPart,
    .gradient = GradientReal,
    .lowering = Lowering::kPlanes,
    .reference = ReferencePart<0>,
    .samples = kPartSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = PlanesOfReal,
};

constinit const OpDef kOp_imag = {
    .name = "imag",
    .c_name = "imag",
    .since = 1,
    .doc = "Elementwise imaginary part: f32 of c64, f64 of c128. Of a real tensor it is 0.",
    .example = "y = wf_imag(s, wf_complex(s, x, y));",
    .operands = kOperands,
    .results = kResult,
    .infer = InferPart,
    .gradient = GradientImag,
    .lowering = Lowering::kPlanes,
    .reference = ReferencePart<1>,
    .samples = kPartSamples,
    .tolerance = kExact,
    .rounds_once = true,
    .planes = PlanesOfImag,
};

}  // namespace weft::ops
