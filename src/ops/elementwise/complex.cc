// complex, real, imag: the way between complex tensors and their two planes. passes/split_complex.cc takes all three away.
#include "src/ops/complex.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kParts[] = {{"re", kF, "real parts, f32 or f64"}, {"im", kF, "imaginary parts"}};
constexpr OperandDef kOperands[] = {{"x", kF | kC, "operand"}};
constexpr Absent kNoGradientYet[] = {{Part::kGradient, Reason::kNoComplexGradient}};

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

// Of real operands; through complex ones none flows.
absl::Status GradientReal(const GradCall& call, std::span<Value> grads) {
  if (IsFloat(call.operands[0].dtype())) grads[0] = call.cotangents[0];
  return absl::OkStatus();
}
absl::Status GradientImag(const GradCall&, std::span<Value>) { return absl::OkStatus(); }

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

constexpr Sample kComplexSamples[] = {{"f32[2,3] f32[2,3]", -2, 2, false},
                                      {"f64[4,1] f64[3]", -2, 2, false},
                                      {"f32[] f32[5]", -2, 2, false},
                                      {"f32[0,3] f32[3]", -2, 2, false}};
constexpr Sample kPartSamples[] = {{"c64[2,3]", -2, 2, false},
                                   {"c128[5]", -2, 2, false},
                                   {"c64[]", -2, 2, false},
                                   {"c64[0,3]", -2, 2, false},
                                   {"T[2,3]"}};

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
    .lowering = Lowering::kPlanes,
    .reference = ReferenceComplex,
    .samples = kComplexSamples,
    .tolerance = kExact,
    .absent = kNoGradientYet,
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
};

}  // namespace weft::ops
