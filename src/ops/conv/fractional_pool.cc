// fractional_max_pool: windows whose distances are drawn, so that a size is divided by what is no whole number. Graham, Fractional
// max-pooling (2014).
#include "src/ops/conv/pool.h"
#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr AttrDef kAttrs[] = {{"window", AttrType::kInts, "size of the window in each spatial dimension", true},
                              {"size", AttrType::kInts, "of the result in each spatial dimension, at least 1", true},
                              kChannelsFirstAttr};
constexpr OperandDef kOperands[] = {
    {"x", kF, "[batch, spatial…, features], NHWC for images"},
    {"samples", kF, "[batch, features, spatial dimensions], each from 0 to below 1: where the windows of a plane lie"}};
constexpr std::string_view kResults[] = {"values", "indices"};

struct Sizes {
  Ints window, out;
};
absl::StatusOr<Sizes> SizesOf(const OpDef& op, const Attrs& attrs, const Dims& x) {
  if (x.size() < 3) {
    return UserError("x has shape ", DimsToString(x), "; [batch, spatial…, features] of rank 3 or more is needed");
  }
  Sizes sizes;
  WEFT_ASSIGN_OR_RETURN(sizes.window, PerDimension(op, attrs, AttrPosition<kAttrs, "window">(), x.size() - 2, 1));
  WEFT_ASSIGN_OR_RETURN(sizes.out, PerDimension(op, attrs, AttrPosition<kAttrs, "size">(), x.size() - 2, 1));
  for (size_t d = 0; d < sizes.out.size(); ++d) {
    const int64_t in = x[1 + d], window = sizes.window[d], out = sizes.out[d];
    if (window < 1 || out < 1 || window > in || out > in - window + 1) {
      return UserError("spatial dimension ", d, " has ", in, " elements, the window ", window, " and the result ", out,
                       "; both are at least 1, and together at most one more than the elements");
    }
  }
  return sizes;
}

absl::Status InferLast(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &samples = *call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(call.op, call.attrs, x.dims));
  const Dims wanted = {x.dims[0], x.dims.back(), static_cast<int64_t>(sizes.out.size())};
  if (samples.dims != wanted) {
    return UserError("samples have shape ", DimsToString(samples.dims), ", not ", DimsToString(wanted),
                     ": a number for each plane and spatial dimension");
  }
  WEFT_RETURN_IF_ERROR(CheckPlaces(std::span(x.dims).subspan(1, sizes.out.size())));
  Dims dims = x.dims;
  std::ranges::copy(sizes.out, dims.begin() + 1);
  results->push_back(Type::Tensor(x.dtype, dims));
  results->push_back(Type::Tensor(DType::kI32, dims));
  return absl::OkStatus();
}

// Where each element of each window lies along a dimension of `in` elements, [batch, out, window, features]. Windows begin at
// floor((i + sample) a) - floor(sample a), the last one at the end.
Value PlacesOf(Builder& b, const Value& sample, int64_t in, int64_t window, int64_t out) {
  if (!sample) return {};
  const Dims planes = sample.dims(), starts = {planes[0], planes[1], out};
  const Value at = Iota(b, sample.dtype(), starts, 2);
  const double last = static_cast<double>(in - window), apart = out > 1 ? last / static_cast<double>(out - 1) : 0;
  const auto whole = [&](const Value& x) { return Unary(b, kOp_floor, Mul(b, x, apart)); };
  const Value spread = BroadcastInDim(b, sample, starts, {0, 1, 2});
  Value start = Sub(b, whole(Add(b, at, spread)), whole(spread));
  start = Select(b, Compare(b, Direction::kEq, at, static_cast<double>(out - 1)), FullLike(b, start, last), start);
  start = Convert(b, Minimum(b, Maximum(b, start, FullLike(b, start, 0)), FullLike(b, start, last)), DType::kI32);
  const Dims dims = {planes[0], out, window, planes[1]};
  return Add(b, BroadcastInDim(b, Transpose(b, start, {0, 2, 1}), dims, {0, 1, 3}), Iota(b, DType::kI32, dims, 2));
}

absl::Status ExpandLast(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &samples = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(call.op, call.attrs, x.dims()));
  const int64_t batch = x.dims()[0], features = x.dims().back();
  Values places;
  for (size_t d = 0; d < sizes.out.size(); ++d) {
    const auto k = static_cast<int64_t>(d);
    const Value own = Slice(b, samples, {0, 0, k}, {batch, features, k + 1}, {1, 1, 1});
    places.push_back(PlacesOf(b, own, x.dims()[1 + d], sizes.window[d], sizes.out[d]));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  const auto take = [&](const Value& from, size_t d) {
    const int64_t axis = static_cast<int64_t>(d) + 1, last = static_cast<int64_t>(from.dims().size()) - 1;
    Dims dims = from.dims();
    dims[axis] = sizes.out[d] * sizes.window[d];
    const Value rows = Reshape(b, places[d], {batch, dims[axis], features});
    const Value found = Call(b, kOp_take_along_axis, {from, BroadcastInDim(b, rows, dims, {0, axis, last})}, {axis});
    dims[axis] = sizes.out[d];
    dims.insert(dims.begin() + axis + 1, sizes.window[d]);
    return Reshape(b, found, dims);
  };
  const auto where = [&](const Dims& dims, size_t d) {
    const int64_t axis = static_cast<int64_t>(d) + 1, last = static_cast<int64_t>(dims.size()) - 1;
    return BroadcastInDim(b, places[d], dims, {0, axis, axis + 1, last});
  };
  return LargestOf(b, x, sizes.out.size(), take, where, &results[0], &results[1]);
}

absl::Status Infer(const InferCall& call, Types* results) {
  return InferFirst(call, results, AttrPosition<kAttrs, "channels_first">(), InferLast);
}
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  return ExpandFirst(call, results, AttrPosition<kAttrs, "channels_first">(), ExpandLast);
}

constexpr Sample kSamples[] = {{"T[2,7,6,2] T[2,2,2] window=[3,2] size=[2,3]", 0, 0.99},
                               {"T[1,5,1] T[1,1,1] window=[2] size=[1]", 0, 0.99},
                               {"T[1,2,5,4,3] T[1,2,3] window=[2,2,1] size=[3,2,3] channels_first=true", 0, 0.99},
                               {"T[0,4,1] T[0,1,1] window=[2] size=[3]", 0, 0.99}};

}  // namespace

constinit const OpDef kOp_fractional_max_pool = Formula({
    .name = "weft.fractional_max_pool",
    .c_name = "fractional_max_pool",
    .doc =
        "The largest element under windows whose distances are drawn, and its place, counted over the spatial dimensions as one row, "
        "as i32: of equals the first. Window i of n begins at floor((i + sample) a) - floor(sample a), a = (size - window) / (n - 1), "
        "the last one at the end. PyTorch's fractional_max_pool2d and 3d, whose _random_samples of images are across first. The "
        "gradient is to x.",
    .example = "wf_fractional_max_pool(s, x, samples, WF_INTS(2, 2), WF_INTS(5, 5));",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResults,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = kExact,
});

}  // namespace weft::ops
