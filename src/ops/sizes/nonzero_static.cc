// nonzero_static: where a tensor is not zero, in a result of a given size.
#include "src/ops/sizes/places.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kAttrs[] = {kSizeAttr,
                              {"fill", AttrType::kInt, "what stands in rows behind the last one, an i32", false, "-1"}};
constexpr std::string_view kResults[] = {"indices", "count"};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_RETURN_IF_ERROR(CheckSize(call.attrs, AttrPosition<kAttrs, "size">()));
  WEFT_RETURN_IF_ERROR(CheckPlaces("x", x));
  const int64_t fill = Attr<kAttrs, "fill">(call.attrs);
  if (fill < INT32_MIN || fill > INT32_MAX) return UserError("fill is ", fill, "; it must fit i32");
  results->push_back(
      Type::Tensor(DType::kI32, {Attr<kAttrs, "size">(call.attrs), static_cast<int64_t>(x.dims.size())}));
  results->push_back(Type::Scalar(DType::kI32));
  return absl::OkStatus();
}

absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Dims dims = call.operands[0].dims();
  const int64_t size = Attr<kAttrs, "size">(call.attrs), rank = dims.size();
  const Places places = FirstTrue(b, Reshape(b, call.operands[0], {CountOf(dims)}), size);
  results[1] = places.count;
  if (rank == 0) {
    results[0] = Full(b, DType::kI32, {size, 0}, 0);
    return absl::OkStatus();
  }
  Values columns;
  const Dims strides = StridesOf(dims);
  for (int64_t d = 0; d < rank && b.ok(); ++d) {
    Value column = places.at;
    if (strides[d] > 1) column = Div(b, column, FullLike(b, column, static_cast<double>(strides[d])));
    if (d > 0 && dims[d] > 0) column = Call(b, kOp_rem, {column, FullLike(b, column, static_cast<double>(dims[d]))});
    column = WhereThere(b, places.there, column, 0, static_cast<double>(Attr<kAttrs, "fill">(call.attrs)));
    columns.push_back(Reshape(b, column, {size, 1}));
  }
  results[0] = Call(b, kOp_concatenate, std::move(columns), {int64_t{1}});
  return absl::OkStatus();
}

constexpr Sample kSamples[] = {{"bool[7] size=7"},          {"bool[3,5] size=4"}, {"i32[2,3,4]<-1:2> size=30 fill=7"},
                               {"bool[2,300] size=200"},    {"bool[0,3] size=2"}, {"bool[] size=2"},
                               {"bool[5] size=0"},          {"f32[2,2] size=4"},  {"u8[300,2]<0:2> size=4"},
                               {"i32[67,61]<-1:2> size=9"}, {"bool[9000] size=1"}};

}  // namespace

constinit const OpDef kOp_nonzero_static = {
    .name = "weft.nonzero_static",
    .c_name = "nonzero_static",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "Where x is not zero, in row-major order: row i of indices [size, rank] is the index of the i-th such element, and rows "
        "behind the last one are full of fill. count says how many there are, those without room included. NaN is not zero. "
        "Never waits; PyTorch's nonzero_static, JAX's nonzero with a size. See weft_nonzero for as many rows as there are.",
    .example = "at = wf_nonzero_static(s, mask, 10);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .lowering = Lowering::kExpand,
    .samples = kSamples,
    .tolerance = kExact,
    .absent = kMacroNoGradient,
    .rounds_once = true,
};

}  // namespace weft::ops
