// matmul: NumPy's matrix product.
#include "src/ops/families.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/linalg/precision.h"
#include "src/ops/result_dtype.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "[..., m, k], or [k]"}, {"y", kEveryType, "[..., k, n], or [k]"}};
constexpr AttrDef kAttrs[] = {{"dtype", AttrType::kDType, kResultDTypeDoc}, kPrecisionAttr};

struct Plan {
  Dims x, y;   // with vectors made matrices
  Dims batch;  // common leading dimensions
  Dims result;
};

absl::StatusOr<Plan> MakePlan(const Type& x, const Type& y) {
  if (x.rank() == 0 || y.rank() == 0) return UserError("a scalar has no matrix product; use mul");
  Plan plan{x.dims, y.dims, {}, {}};
  if (x.rank() == 1) plan.x.insert(plan.x.begin(), 1);
  if (y.rank() == 1) plan.y.push_back(1);
  const size_t rx = plan.x.size(), ry = plan.y.size();
  if (plan.x[rx - 1] != plan.y[ry - 2]) {
    return UserError("x has ", plan.x[rx - 1], " columns and y ", plan.y[ry - 2], " rows; they must be equal");
  }
  WEFT_ASSIGN_OR_RETURN(plan.batch, BroadcastDims(std::span(plan.x).first(rx - 2), std::span(plan.y).first(ry - 2)));
  plan.result = plan.batch;
  if (x.rank() > 1) plan.result.push_back(plan.x[rx - 2]);
  if (y.rank() > 1) plan.result.push_back(plan.y[ry - 1]);
  return plan;
}

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(Plan plan, MakePlan(*call.operands[0], *call.operands[1]));
  const DType dtype = ResultDType<kAttrs>(call.attrs, call.operands[0]->dtype);
  WEFT_RETURN_IF_ERROR(CheckResultDType(dtype, call.operands[0]->dtype));
  results->push_back(Type::Tensor(dtype, std::move(plan.result)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  WEFT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(call.operands[0].type(), call.operands[1].type()));
  Value x = Reshape(b, call.operands[0], plan.x);
  Value y = Reshape(b, call.operands[1], plan.y);
  Ints batch;
  if (plan.y.size() > 2) {  // a matrix y serves all batches of x in one product
    batch = Axes(plan.batch.size());
    auto with = [&](const Dims& dims) {
      Dims all = plan.batch;
      all.insert(all.end(), dims.end() - 2, dims.end());
      return all;
    };
    x = BroadcastTo(b, x, with(plan.x));
    y = BroadcastTo(b, y, with(plan.y));
  }
  if (!b.ok()) return absl::OkStatus();
  const int64_t last = x.dims().size() - 1;
  Attrs attrs = {batch, batch, Ints{last}, Ints{static_cast<int64_t>(batch.size())}};
  if (HasAttr<kAttrs, "dtype">(call.attrs)) attrs.set(DotGeneralAttrs::kDtype, Attr<kAttrs, "dtype">(call.attrs));
  attrs.set(DotGeneralAttrs::kPrecision, call.attrs.at(AttrPosition<kAttrs, "precision">()));
  results[0] = Reshape(b, Call(b, kOp_dot_general, {x, y}, std::move(attrs)), plan.result);
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"T[4,5] T[5,3]"},
                               {"T[5] T[5]"},
                               {"T[2,4,5] T[5,3]"},
                               {"T[2,4,5] T[2,5,3]"},
                               {"T[5] T[2,5,3]"},
                               {"T[2,4,5] T[5]"},
                               {"T[3,1,4,5] T[2,5,3]"},
                               {"T[4,5] T[2,5,3]"},
                               {"T[0,5] T[5,3]"},
                               {"bf16[4,5] bf16[5,3] dtype=f32"},
                               {"f32[4,5] f32[5,3] dtype=f64"},
                               {"i8[4,5] i8[5,3] dtype=i32"},
                               {"T[2,3] T[3,4] precision=HIGH"}};

}  // namespace

constinit const OpDef kOp_matmul = {
    .name = "weft.matmul",
    .c_name = "matmul",
    .kind = Kind::kMacro,
    .doc =
        "NumPy's matrix product: [..., m, k] by [..., k, n] gives [..., m, n], leading dimensions broadcast, a vector "
        "counts as a row (x) or a column (y). f32 means f32 on every device; bf16 and f16 are summed in f32. "
        "Of bools sums are or and products and.",
    .example = "h = wf_relu(s, wf_add(s, wf_matmul(s, x, w), b));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-5},
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
