// Operations that only move elements and are no index map: pad, concatenate, and slices at places that are known late.
#include <algorithm>
#include <optional>

#include "src/backends/cpu/launch/box_call.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

Value Self(const Node& node) { return Value{Ref<const Node>::Share(&node), 0}; }

absl::Status LowerPad(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &value = node.operands()[1];
  const ops::PadAttrs a{node.attrs()};
  const Ints &low = a.edge_padding_low(), &interior = a.interior_padding();
  const Dims& out = node.type().dims;
  const Dims from = StridesOf(x.dims()), to = StridesOf(out);
  const StorageId result = lowering.Define(Self(node));
  lowering.CopyBox(x.dtype(), out, {lowering.Of(value), 0, Dims(out.size(), 0)}, {result, 0, to});
  Dims sizes, strides;
  int64_t from_offset = 0, to_offset = 0;
  for (size_t d = 0; d < out.size(); ++d) {
    const int64_t step = interior[d] + 1;
    // Elements that negative padding leaves.
    int64_t first = 0, last = x.dims()[d] - 1;
    if (low[d] < 0) first = (-low[d] + step - 1) / step;
    if (last >= 0) last = std::min(last, out[d] - 1 - low[d] < 0 ? int64_t{-1} : (out[d] - 1 - low[d]) / step);
    sizes.push_back(std::max<int64_t>(0, last - first + 1));
    strides.push_back(to[d] * step);
    from_offset += first * from[d];
    to_offset += (first * step + low[d]) * to[d];
  }
  if (CountOf(sizes) > 0)
    lowering.CopyBox(x.dtype(), sizes, {lowering.Of(x), from_offset, from}, {result, to_offset, strides});
  return absl::OkStatus();
}

absl::Status LowerConcatenate(Lowering& lowering, const Node& node) {
  const Dims& out = node.type().dims;
  int64_t axis = ops::ConcatenateAttrs{node.attrs()}.dimension();
  if (axis < 0) axis += static_cast<int64_t>(out.size());
  const Dims to = StridesOf(out);
  const StorageId result = lowering.Define(Self(node));
  int64_t at = 0;
  for (const Value& x : node.operands()) {
    if (x.type().count() > 0) {
      lowering.CopyBox(x.dtype(), x.dims(), {lowering.Of(x), 0, StridesOf(x.dims())}, {result, at * to[axis], to});
    }
    at += x.dims()[axis];
  }
  return absl::OkStatus();
}

// A box whose corner stands in one scalar a dimension.
BoxCall DynamicBox(const Value& x, std::span<const Value> starts, const Dims& box) {
  BoxCall call;
  call.dtype = x.dtype();
  call.index_type = starts.empty() ? DType::kI32 : starts[0].dtype();
  const Dims strides = StridesOf(x.dims()), box_strides = StridesOf(box);
  for (size_t d = 0; d < box.size(); ++d) {
    call.window.push_back({box[d], strides[d], box_strides[d], 0});
    call.components.push_back({strides[d], x.dims()[d], box[d], static_cast<int64_t>(d), static_cast<int64_t>(d), 0});
  }
  return call;
}

// Such a box that is one run of bytes, whatever the indices are, as host_movement.cc takes it: with the dimensions in which it can be
// in more than one place. Rows of the stacks of loops are such.
struct DenseRun {
  std::vector<int64_t> params;
  std::vector<size_t> dims;
};
std::optional<DenseRun> RunOf(const Value& x, std::span<const Value> starts, const Dims& box) {
  size_t first = 0;
  while (first < box.size() && box[first] == 1) ++first;
  if (first < box.size() && !std::equal(box.begin() + first + 1, box.end(), x.dims().begin() + first + 1)) return {};
  const int64_t bytes = BytesOf(x.dtype());
  const Dims strides = StridesOf(x.dims());
  DenseRun run = {{CountOf(box) * bytes, static_cast<int64_t>(starts.empty() ? DType::kI32 : starts[0].dtype())}, {}};
  for (size_t d = 0; d < box.size(); ++d) {
    if (box[d] == x.dims()[d]) continue;
    run.params.insert(run.params.end(), {strides[d] * bytes, x.dims()[d] - box[d]});
    run.dims.push_back(d);
  }
  return run;
}

absl::Status LowerDynamicSlice(Lowering& lowering, const Node& node) {
  const Value& x = node.operands()[0];
  const std::span<const Value> starts = node.operands().subspan(1);
  std::vector<StorageId> reads = {lowering.Of(x)};
  if (const std::optional<DenseRun> run = RunOf(x, starts, node.type().dims)) {
    for (const size_t d : run->dims) reads.push_back(lowering.Of(starts[d]));
    if (const StorageId row = lowering.RowOf(reads[0], node.type().bytes()); row >= 0) {
      lowering.Alias(Self(node), row);
      lowering.Host("find_run", reads, {row}, run->params, 1e4).writes = 0;
      return absl::OkStatus();
    }
    lowering.Host("read_run", reads, {lowering.Define(Self(node))}, run->params, node.type().bytes() * 50.0 + 1e6);
    return absl::OkStatus();
  }
  for (const Value& start : starts) reads.push_back(lowering.Of(start));
  lowering.Host("gather", reads, {lowering.Define(Self(node))}, EncodeBoxes(DynamicBox(x, starts, node.type().dims)),
                node.type().bytes() * 50.0 + 1e6);
  return absl::OkStatus();
}

absl::Status LowerDynamicUpdateSlice(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &update = node.operands()[1];
  const std::span<const Value> starts = node.operands().subspan(2);
  const double cost = update.type().bytes() * 100.0 + 1e6;
  std::vector<StorageId> reads = {lowering.Of(update)};
  const StorageId out = lowering.Define(Self(node));
  lowering.Copy(x.type().bytes(), lowering.Of(x), out);
  if (const std::optional<DenseRun> run = RunOf(x, starts, update.dims())) {
    for (const size_t d : run->dims) reads.push_back(lowering.Of(starts[d]));
    lowering.Host("write_run", reads, {out}, run->params, cost).writes = update.type().bytes();
    return absl::OkStatus();
  }
  BoxCall call = DynamicBox(x, starts, update.dims());
  call.reducer = BoxCall::kSet;
  call.move_inside = true;
  for (const Value& start : starts) reads.push_back(lowering.Of(start));
  lowering.Host("scatter", reads, {out}, EncodeBoxes(call), cost).writes = update.type().bytes();
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {
    {&ops::kOp_pad, LowerPad},
    {&ops::kOp_concatenate, LowerConcatenate},
    {&ops::kOp_dynamic_slice, LowerDynamicSlice},
    {&ops::kOp_dynamic_update_slice, LowerDynamicUpdateSlice},
};

}  // namespace

std::span<const OpRule> MovementRules() { return kRules; }

}  // namespace weft::cpu
