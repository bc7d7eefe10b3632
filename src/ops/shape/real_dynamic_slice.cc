// real_dynamic_slice: slice by indices and strides that are operands.
#include "src/ir/stablehlo.h"
#include "src/ops/shape/dynamic_shapes.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {kDynamicX, Amounts("start_indices", "[rank]: the first of each dimension"),
                                    Amounts("limit_indices", "[rank]: the end; follows from the shape"),
                                    Amounts("strides", "[rank]: from one to the next")};
constexpr AttrDef kAttrs[] = {kShapeAttr};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Ints& shape = Attr<kAttrs, "shape">(call.attrs);
  WEFT_RETURN_IF_ERROR(CheckStaticShape(shape));
  WEFT_RETURN_IF_ERROR(CheckAmounts(call, 1, x.rank()));
  if (shape.size() != x.rank()) return UserError("shape ", DimsToString(shape), " has another rank than x, ", x.rank());
  for (size_t d = 0; d < x.rank(); ++d) {
    if (shape[d] > x.dims[d]) {
      return UserError("dimension ", d, " of the result has size ", shape[d], ", of x ", x.dims[d]);
    }
  }
  results->push_back(Type::Tensor(x.dtype, ToDims(shape)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims shape = ToDims(Attr<kAttrs, "shape">(call.attrs));
  const auto start = KnownAmounts(call.operands[1]), limit = KnownAmounts(call.operands[2]),
             strides = KnownAmounts(call.operands[3]);
  if (start && limit && strides) {
    const Value fixed = Slice(b, x, *start, *limit, *strides);
    if (fixed && fixed.dims() != shape) {
      return UserError("the indices give ", DimsToString(fixed.dims()), ", the result is ", DimsToString(shape));
    }
    results[0] = fixed;
    return absl::OkStatus();
  }
  if (CountOf(shape) == 0) {
    results[0] = Full(b, x.dtype(), shape, 0);
    return absl::OkStatus();
  }
  Value y = x;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const Value first = Along(b, call.operands[1], d, shape[d]), step = Along(b, call.operands[3], d, shape[d]);
    y = Call(b, kOp_take, {y, Add(b, first, Mul(b, Iota(b, DType::kI64, {shape[d]}, 0), step))}, {d});
  }
  results[0] = y;
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) { writer.Emit(node.op().name); }

constexpr Sample kSamples[] = {{"T[5] i32[1]<1:2> i32[1]<4:5> i32[1]<1:2> shape=[3]"},
                               {"T[4,7] i64[2]<1:2> i64[2]<4:5> i64[2]<2:3> shape=[2,2]"},
                               {"T[4,0] i64[2]<0:1> i64[2]<0:1> i64[2]<1:2> shape=[0,0]"}};

}  // namespace

constinit const OpDef kOp_real_dynamic_slice = {
    .name = "real_dynamic_slice",
    .c_name = "real_dynamic_slice",
    .kind = Kind::kComposite,
    .doc =
        "slice by indices and strides computed while the program runs; indices outside are held to the ends. For StableHLO programs; the result's type must be known.",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kStableHloComposite,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
