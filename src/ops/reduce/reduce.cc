// reduce: combines the elements along some dimensions into one.
#include <algorithm>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/families.h"
#include "src/ops/lies.h"
#include "src/ops/nan.h"
#include "src/ops/planes.h"
#include "src/ops/reduce/product.h"
#include "src/ops/reducer_read.h"
#include "src/ops/work.h"
#include "src/runtime/launch_look.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"dimensions", AttrType::kInts, "dimensions that vanish", true},
    {"reducer", AttrType::kEnum, "sum, prod, max, min, and, or", true, {}, kReducerNames},
};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& dimensions = Attr<kAttrs, "dimensions">(call.attrs);
  WEFT_ASSIGN_OR_RETURN(const Ints axes, NormalizeAxes("dimensions", dimensions, x.rank()));
  WEFT_RETURN_IF_ERROR(CheckReducer(kReducerNames[Attr<kAttrs, "reducer">(call.attrs)], x.dtype));
  results->push_back(Type::Tensor(x.dtype, Without(x.dims, axes)));
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.node.attrs()), x.dims().size()));
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(call.node.attrs()));
  if (reducer == Reducer::kProd) {
    Dims kept = x.dims();
    for (int64_t axis : axes) kept[axis] = 1;
    grads[0] = ProductGradient(b, x, Reshape(b, call.cotangents[0], kept), axes);
    return absl::OkStatus();
  }
  Value g = Unreduce(b, call.cotangents[0], x.dims(), axes);
  switch (reducer) {
    case Reducer::kSum: grads[0] = g; break;
    case Reducer::kMax:
    case Reducer::kMin: {  // equal extremes share; of NaN nobody is one, and all get it
      Value y = Unreduce(b, Unary(b, kOp_stop_gradient, call.results[0]), x.dims(), axes), nan = IsNan(b, y);
      Value won = Either(b, Compare(b, Direction::kEq, x, y), nan);
      Value zero = FullLike(b, x, 0);
      Value count = Reduce(b, Select(b, won, FullLike(b, x, 1), zero), Reducer::kSum, axes);
      // Times g, also where that makes no difference: rules are linear in the cotangent. An infinite extreme must be no factor: forward
      // mode multiplies the zeros that another choice leaves by it.
      const Value spoilt = Mul(b, g, Select(b, nan, y, zero));
      grads[0] = Select(b, nan, spoilt, Select(b, won, Div(b, g, Unreduce(b, count, x.dims(), axes)), zero));
      break;
    }
    default: break;
  }
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.attrs), x.dims().size()));
  const Dims x_strides = StridesOf(x.dims());
  Dims y_strides(x.dims().size(), 0);  // 0 along the reduced dimensions
  int64_t stride = 1;
  for (size_t d = x.dims().size(); d-- > 0;) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end()) continue;
    y_strides[d] = stride;
    stride *= x.dims()[d];
  }
  std::vector<Accumulator> sums(y.count(),
                                Accumulator(static_cast<Reducer>(Attr<kAttrs, "reducer">(call.attrs)), x.dtype()));
  PieceLook look(100);
  for (int64_t k = 0; k < x.count() && !look.Ends(); ++k) {
    int64_t to = 0;
    for (size_t d = 0; d < x.dims().size(); ++d) to += (k / x_strides[d]) % x.dims()[d] * y_strides[d];
    sums[to].Take(x, k);
  }
  for (int64_t k = 0; k < y.count(); ++k) sums[k].Store(y, k);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(node.attrs()));
  const Value& x = node.operands()[0];
  absl::StatusOr<Ints> axes = NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(node.attrs()), x.dims().size());
  if (!axes.ok()) return writer.Fail(axes.status());
  const std::string operands[] = {writer.Name(x), writer.Constant(Identity(reducer, x.dtype()))};
  writer.EmitOn("reduce", operands, {{"dimensions", ShloArray(*axes)}},
                writer.Reducer(StableHloOf(reducer), x.dtype()));
}

Values Read(StableHloOp& op) {
  const Ints dimensions = op.Ints("dimensions");
  return ReadReduction(op, kOp_reduce_by, [&](const Value& x, Reducer reducer) {
    return Call(op.b, kOp_reduce, {x}, {dimensions, static_cast<int64_t>(reducer)});
  });
}

constexpr Sample kSamples[] = {{"T[2,3] dimensions=[1] reducer=sum"},   {"T[4,5,3] dimensions=[0,2] reducer=max"},
                               {"T[7] dimensions=[0] reducer=prod"},    {"T[3,0] dimensions=[1] reducer=sum"},
                               {"T[0,3] dimensions=[1] reducer=min"},   {"T[3,131] dimensions=[1] reducer=sum"},
                               {"T[131,3] dimensions=[0] reducer=min"}, {"T[2,3] dimensions=[] reducer=sum"},
                               {"bool[3,4] dimensions=[1] reducer=or"}, {"i32[3,4] dimensions=[0] reducer=and"}};

Splits OnPlanes(const PlanesCall& call) {
  if (static_cast<Reducer>(Attr<kAttrs, "reducer">(call.attrs())) != Reducer::kProd) return EachPlane(call);
  return MultiplyPlanes(call, kOp_reduce_by, WithOne(call.b, call.planes(0)),
                        {Attr<kAttrs, "dimensions">(call.attrs())});
}

bool GivesEnds(const Attrs& attrs) {
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(attrs));
  return reducer == Reducer::kMax || reducer == Reducer::kMin;
}

Sharding OwnLie(const LieCall& call) {
  const size_t rank = call.node.operands()[0].dims().size();
  const absl::StatusOr<Ints> axes = NormalizeAxes("dimensions", Attr<kAttrs, "dimensions">(call.node.attrs()), rank);
  Ints kept;
  for (int64_t d = 0; axes.ok() && d < static_cast<int64_t>(rank); ++d) {
    if (std::ranges::find(*axes, d) == axes->end()) kept.push_back(d);
  }
  return LiesAlong(call, kept);
}

}  // namespace

constinit const OpDef kOp_reduce = {
    .name = "reduce",
    .c_name = "reduce",
    .doc =
        "Combines the elements along some dimensions, which vanish. Sums of f16 and bf16 are kept in f32. Over "
        "nothing sum and or give 0, prod 1, max the lowest, min the highest value of the type (-inf, inf) and and all "
        "ones. max and min propagate NaN; their gradient is shared by equal extremes, and NaN where the result is. See also sum, mean, max, min, prod.",
    .example = "y = wf_reduce(s, x, WF_INTS(0), WEFT_REDUCE_REDUCER_SUM);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = BatchAlong<AttrPosition<kAttrs, "dimensions">()>,
    .lowering = Lowering::kReduction,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 4e-6},
    .planes = OnPlanes,
    .work = WorkOfReduction,
    .lies = OwnLie,
    .gives_ends = GivesEnds,
};

}  // namespace weft::ops
