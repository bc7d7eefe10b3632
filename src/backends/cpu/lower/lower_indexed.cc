// Gather and scatter: boxes at places that indices name.
#include <optional>

#include "src/backends/cpu/launch/box_rows.h"
#include "src/backends/cpu/launch/box_walk.h"
#include "src/backends/cpu/lower/indexed_boxes.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

Value Self(const Node& node) { return Value{Ref<const Node>::Share(&node), 0}; }

absl::Status LowerGather(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &indices = node.operands()[1];
  const ops::GatherAttrs a{node.attrs()};
  BoxCall call = IndexedBoxes(x.dims(), indices, node.type().dims,
                              {a.offset_dims(), a.collapsed_slice_dims(), a.start_index_map(), a.index_vector_dim(),
                               a.operand_batching_dims(), a.start_indices_batching_dims()});
  call.dtype = x.dtype();
  lowering.Host("gather", {lowering.Of(x), lowering.Of(indices)}, {lowering.Define(Self(node))}, EncodeBoxes(call),
                node.type().bytes() * 100.0 + 1e6);
  return absl::OkStatus();
}

// How many boxes may add to one place without looking at what rounding takes from their sum.
constexpr int64_t kPlainSums = 4096;

// Tells whether updates are sorted by the rows of the result that they name, where floats are added up. It pays where a row is long,
// or where the result is so large that an array beside it costs more than the sorted list.
bool SortsRows(const BoxRows& rows, int64_t elements, int64_t bytes, bool half) {
  constexpr int64_t kLongRow = 8, kNearBytes = 256 << 10, kItemBytes = 16;
  if (!SortOf(rows)) return false;
  if (kItemBytes * rows.boxes < elements * bytes && rows.pieces * rows.regions == 1) return true;
  return rows.run >= kLongRow && (half || elements * bytes > kNearBytes);
}

absl::Status LowerScatter(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &indices = node.operands()[1], &updates = node.operands()[2];
  const ops::ScatterAttrs a{node.attrs()};
  BoxCall call = IndexedBoxes(x.dims(), indices, updates.dims(),
                              {a.update_window_dims(), a.inserted_window_dims(), a.scatter_dims_to_operand_dims(),
                               a.index_vector_dim(), a.input_batching_dims(), a.scatter_indices_batching_dims()});
  call.dtype = x.dtype();
  call.reducer = a.reducer();
  const bool half = IsFloat(x.dtype()) && BytesOf(x.dtype()) == 2, sums = call.reducer <= 1;
  // Sums and products of 16-bit floats run in f32 and are rounded once, however many updates one place gets.
  if (half && sums) call.dtype = DType::kF32;
  const bool adds = call.reducer == static_cast<int64_t>(ops::Reducer::kSum) &&
                    (call.dtype == DType::kF32 || call.dtype == DType::kF64);
  const std::optional<BoxRows> rows = RowsOf(call, false);
  const bool keeps = adds && CountOfBatch(call) > kPlainSums && !(rows && rows->apart);
  const double cost = updates.type().bytes() * (rows ? 100.0 : 500.0) + 1e6;
  if (rows && (keeps || (half && sums)) && SortsRows(*rows, x.type().count(), BytesOf(call.dtype), half)) {
    call.dtype = x.dtype();
    call.lost = keeps ? BoxCall::kApart : BoxCall::kForgotten;
    const StorageId out = lowering.Define(Self(node));
    lowering.Copy(x.type().bytes(), lowering.Of(x), out);
    const StorageId space = lowering.Temporary(SortOf(*rows)->space_bytes());
    lowering.Host("scatter_rows", {lowering.Of(updates), lowering.Of(indices)}, {out, space}, EncodeBoxes(call), cost)
        .writes = updates.type().bytes();
    return absl::OkStatus();
  }
  if (keeps && rows && rows->pieces * rows->regions > 1) {
    call.lost = BoxCall::kOfRegion;
  } else if (keeps) {
    const bool dense = ArePoints(call) && x.type().count() <= updates.type().count();
    call.lost = dense ? BoxCall::kBeside : BoxCall::kApart;
    call.elements = x.type().count();
  }
  const auto scatter = [&](StorageId terms, StorageId to) {
    std::vector<StorageId> writes = {to};
    if (HasSpace(call)) writes.push_back(lowering.Temporary(call.lost * call.elements * BytesOf(call.dtype)));
    lowering.Host("scatter", {terms, lowering.Of(indices)}, writes, EncodeBoxes(call), cost).writes =
        updates.type().count() * BytesOf(call.dtype);
  };
  if (call.dtype != x.dtype()) {
    const StorageId wide = lowering.Converted(lowering.Of(x), x.dtype(), call.dtype, x.type().count());
    scatter(lowering.Converted(lowering.Of(updates), x.dtype(), call.dtype, updates.type().count()), wide);
    lowering.Alias(Self(node), lowering.Converted(wide, call.dtype, x.dtype(), x.type().count()));
    return absl::OkStatus();
  }
  const StorageId out = lowering.Define(Self(node));
  lowering.Copy(x.type().bytes(), lowering.Of(x), out);
  scatter(lowering.Of(updates), out);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {
    {&ops::kOp_gather, LowerGather},
    {&ops::kOp_scatter, LowerScatter},
};

}  // namespace

std::span<const OpRule> IndexedRules() { return kRules; }

}  // namespace weft::cpu
