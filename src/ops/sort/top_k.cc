// top_k: the k largest or smallest elements along one axis and where they stand.
#include "src/ops/axes.h"
#include "src/ops/sort/order.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAttrs[] = {{"k", AttrType::kInt, "how many, at most the size of the axis", true},
                              {"axis", AttrType::kInt, "axis to look along; negative counts from the end", false, "-1"},
                              {"largest", AttrType::kBool, "the largest ones; else the smallest", false, "true"}};
constexpr std::string_view kResults[] = {"values", "indices"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, AxisOfRow("axis", Attr<kAttrs, "axis">(call.attrs), x.rank()));
  const int64_t k = Attr<kAttrs, "k">(call.attrs), size = RowDims(x.dims)[axis];
  if (x.rank() == 0 && k != 1) return UserError("k is ", k, "; of a tensor of rank 0 it must be 1");
  if (k < 0 || k > size) return UserError("k is ", k, "; it must be 0 to ", size, ", the size of axis ", axis);
  if (size > INT32_MAX) return UserError("axis ", axis, " has ", size, " elements; their positions must fit i32");
  Dims dims = x.dims;
  if (!dims.empty()) dims[axis] = k;
  results->push_back(Type::Tensor(x.dtype, dims));
  results->push_back(Type::Tensor(DType::kI32, std::move(dims)));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  const Dims& dims = x.dims();
  if (dims.empty()) {
    results[0] = x;
    results[1] = Scalar(b, DType::kI32, 0);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t axis, NormalizeAxis("axis", Attr<kAttrs, "axis">(call.attrs), dims.size()));
  const Values sorted =
      SortByFirst(b, {x, Iota(b, DType::kI32, dims, axis)}, axis, Attr<kAttrs, "largest">(call.attrs));
  Ints limit = ToInts(dims);
  limit[axis] = Attr<kAttrs, "k">(call.attrs);
  for (size_t i = 0; i < 2; ++i) {
    results[i] = Slice(b, sorted[i], Ints(dims.size(), 0), limit, Ints(dims.size(), 1));
  }
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {
    {"T[7] k=3"},   {"T[5,3] k=5 axis=0"}, {.call = "T[2,300] k=4", .gradient = false}, {"T[4,3] k=0"},
    {"T[0,3] k=1"}, {"T[1] k=1"},          {"T[5,3] k=2 axis=0 largest=false"},         {"T[] k=1"}};

}  // namespace

constinit const OpDef kOp_top_k = {
    .name = "weft.top_k",
    .c_name = "top_k",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The k largest elements along one axis, the largest first, and their positions as i32; with largest=false the smallest, "
        "the smallest first. Of equal elements the one that stands first comes first. NaN counts as larger than everything; "
        "a scalar is as one element in a row. The gradient follows the elements.",
    .example = "best = wf_top_k(s, logits, 5);",
    .operands = kSortOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
