// Convolutions of many examples at once. The three forms are views of one sum over batch, groups, input and output features.
#include "src/ops/batching.h"
#include "src/ops/conv/conv_shape.h"

namespace weft::ops {
namespace {

using namespace ir;

// Examples become part of this dimension: [groups x n] is [groups x examples x n].
struct Fold {
  int64_t at = -1;  // nowhere: it has none
  int64_t groups = 1;
};

// [examples, …, groups x n, …] as […, groups x examples x n, …].
Value FoldIn(Builder& b, const Value& x, Fold fold) {
  if (!x) return {};
  Dims split(x.dims().begin() + 1, x.dims().end()), merged = split;
  merged[fold.at] *= x.dims()[0];
  split[fold.at] /= fold.groups;
  split.insert(split.begin() + fold.at, fold.groups);
  split.insert(split.begin(), x.dims()[0]);
  return Reshape(b, Moved(b, Reshape(b, x, split), 0, fold.at + 1), merged);
}

// The way back.
Value FoldOut(Builder& b, const Value& x, Fold fold, int64_t examples) {
  if (!x) return {};
  Dims split = x.dims();
  split[fold.at] /= fold.groups * examples;
  Dims merged = split;
  merged[fold.at] *= fold.groups;
  merged.insert(merged.begin(), examples);
  split.insert(split.begin() + fold.at, {fold.groups, examples});
  return Reshape(b, Moved(b, Reshape(b, x, split), fold.at + 1, 0), merged);
}

}  // namespace

// Where one operand is the same for all, examples are more of the dimension that only the others have: of the batch, of output or
// of input features. Where both differ, they are more groups.
Value ConvBatching(const BatchCall& call, std::array<size_t, 2> operands, size_t result) {
  Attrs attrs = call.node.attrs();
  const Ints &in = attrs.IntList(kConvInputDims), &kernel = attrs.IntList(kConvKernelDims),
             &out = attrs.IntList(kConvOutputDims);
  const int64_t feature_groups = attrs.Int(kConvFeatureGroups), batch_groups = attrs.Int(kConvBatchGroups);
  size_t shared = 3;  // no role
  for (size_t i = 0; i < 2; ++i) {
    if (!call.batched[i]) shared = operands[i];
  }
  const int64_t groups = feature_groups * batch_groups;  // one of them is 1
  std::array<Fold, 3> folds;
  switch (shared) {
    case 0: folds = {Fold{}, {kernel[1], groups}, {out[1], groups}}; break;
    case 1: folds = {Fold{in[0], batch_groups}, {}, {out[0]}}; break;
    case 2: folds = {Fold{in[1], feature_groups}, {kernel[0]}, {}}; break;
    default: folds = {Fold{batch_groups > 1 ? in[0] : in[1]}, {kernel[1]}, {out[1]}};
  }
  const Fold made = folds[result];
  if (attrs.has(kConvShape)) {
    Ints shape = attrs.IntList(kConvShape);
    shape[made.at] *= call.size;
    attrs.set(kConvShape, std::move(shape));
  }
  if (shared == 3) attrs.set(batch_groups > 1 ? kConvBatchGroups : kConvFeatureGroups, groups * call.size);
  Values given;
  for (size_t i = 0; i < 2; ++i) {
    given.push_back(call.batched[i] ? FoldIn(call.b, call.operands[i], folds[operands[i]]) : call.operands[i]);
  }
  return FoldOut(call.b, Call(call.b, call.node.op(), std::move(given), std::move(attrs)), made, call.size);
}

}  // namespace weft::ops
