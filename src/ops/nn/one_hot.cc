// one_hot: a row with a one at each label.
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"labels", kI, "classes"}};
constexpr AttrDef kAttrs[] = {{"depth", AttrType::kInt, "number of classes", true},
                              {"dtype", AttrType::kDType, "element type of the result", false, "f32"}};

absl::Status Infer(const InferCall& call, Types* results) {
  const int64_t depth = Attr<kAttrs, "depth">(call.attrs);
  if (depth < 1) return UserError("depth is ", depth, "; it must be at least 1");
  if (!Contains(kAnyType, Attr<kAttrs, "dtype">(call.attrs)))
    return UserError("dtype ", NameOf(Attr<kAttrs, "dtype">(call.attrs)), " cannot be computed with");
  Dims dims = call.operands[0]->dims;
  dims.push_back(depth);
  results->push_back(Type::Tensor(Attr<kAttrs, "dtype">(call.attrs), std::move(dims)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& labels = call.operands[0];
  Dims dims = labels.dims();
  dims.push_back(Attr<kAttrs, "depth">(call.attrs));
  // Counted in i64, so that 300 classes of ui8 labels do not wrap.
  Value index = Iota(b, DType::kI64, dims, dims.size() - 1);
  Value wanted = BroadcastInDim(b, Convert(b, labels, DType::kI64), dims, Axes(dims.size() - 1));
  results[0] = Convert(b, Compare(b, Direction::kEq, index, wanted), Attr<kAttrs, "dtype">(call.attrs));
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"i32[4]<0:5> depth=5"},
                               {"i64[2,3]<-1:9> depth=8 dtype=bf16"},
                               {"u8[]<0:3> depth=3 dtype=bool"},
                               {"i32[0]<0:3> depth=3"}};

}  // namespace

constinit const OpDef kOp_one_hot = {
    .name = "weft.one_hot",
    .c_name = "one_hot",
    .kind = Kind::kMacro,
    .doc = "For each integer label a row of depth elements: 1 at the label, 0 elsewhere; all 0 for labels outside.",
    .example = "target = wf_one_hot(s, labels, 10);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
