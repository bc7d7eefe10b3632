// linear: x w + b.
#include "src/ops/result_dtype.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {"x", kNumber, "[..., in]"}, {"w", kNumber, "weights [in, out]"}, {"b", kNumber, "bias [out]", true}};
constexpr AttrDef kAttrs[] = {{"dtype", AttrType::kDType, kResultDTypeDoc}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Type& w = *call.operands[1];
  if (w.rank() != 2) return UserError("w must have shape [in, out], not ", DimsToString(w.dims));
  if (x.rank() == 0 || x.dims.back() != w.dims[0]) {
    return UserError("x ", DimsToString(x.dims), " must end in ", w.dims[0], ", the rows of w ", DimsToString(w.dims));
  }
  if (call.operands[2] != nullptr && call.operands[2]->dims != Dims{w.dims[1]}) {
    return UserError("b must have shape [", w.dims[1], "], not ", DimsToString(call.operands[2]->dims));
  }
  Dims dims = x.dims;
  dims.back() = w.dims[1];
  const DType dtype = ResultDType<kAttrs>(call.attrs, x.dtype);
  WEFT_RETURN_IF_ERROR(CheckResultDType(dtype, x.dtype));
  results->push_back(Type::Tensor(dtype, std::move(dims)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const DType x = call.operands[0].dtype(), dtype = ResultDType<kAttrs>(call.attrs, x);
  const DType sums = SumDType(x, dtype);
  const auto operand = [&](size_t i) { return Convert(b, call.operands[i], sums); };
  Value y = Call(b, kOp_matmul, {operand(0), operand(1)});
  if (call.operands[2]) y = Add(b, y, operand(2));
  results[0] = Convert(b, y, dtype);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,5] T[5,3] T[3]"},
                               {"T[2,4,5] T[5,3] none"},
                               {"T[5] T[5,3] T[3]"},
                               {"T[0,5] T[5,1] T[1]"},
                               {"bf16[4,5] bf16[5,3] bf16[3] dtype=f32"},
                               {"f32[4,5] f32[5,3] f32[3] dtype=f64"},
                               {"i8[4,5] i8[5,3] dtype=i32"},
                               {"f32[4,5] f32[5,3] f32[3] dtype=f16"}};

}  // namespace

constinit const OpDef kOp_linear = {
    .name = "weft.linear",
    .c_name = "linear",
    .kind = Kind::kMacro,
    .doc = "A dense layer: x w + b over the last dimension of x. The weights are [in, out], as the product reads.",
    .example = "h = wf_relu(s, wf_linear(s, x, w, b));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-5},
    .absent = kMacroAbsent,
};

}  // namespace weft::ops
