// tile, repeat_interleave: a tensor, or each of its slices, several times.
#include <algorithm>

#include "src/ops/axes.h"
#include "src/ops/families.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"}};
constexpr AttrDef kTileAttrs[] = {
    {"reps", AttrType::kInts, "how often along each axis; the last ones where there are fewer", true}};
constexpr AttrDef kRepeatAttrs[] = {
    {"repeats", AttrType::kInt, "how often each slice", true},
    {"axis", AttrType::kInt, "axis of the slices; negative counts from the end", false, "0"}};

// Both with as many axes as the longer one has: missing axes of x have size 1, missing repetitions are 1.
struct Tiling {
  Dims dims;
  Ints reps;
};
Tiling TilingOf(const Ints& reps, const Dims& dims) {
  const size_t rank = std::max(reps.size(), dims.size());
  Tiling tiling{Dims(rank - dims.size(), 1), Ints(rank - reps.size(), 1)};
  tiling.dims.insert(tiling.dims.end(), dims.begin(), dims.end());
  tiling.reps.insert(tiling.reps.end(), reps.begin(), reps.end());
  return tiling;
}

absl::StatusOr<int64_t> Times(int64_t size, int64_t count) {
  const int64_t both[] = {size, count};
  const auto product = CheckedCount(both);
  if (!product) return UserError(size, " times ", count, " elements are too many");
  return *product;
}

absl::Status InferTile(const InferCall& call, Types* results) {
  Tiling tiling = TilingOf(Attr<kTileAttrs, "reps">(call.attrs), call.operands[0]->dims);
  for (size_t d = 0; d < tiling.dims.size(); ++d) {
    if (tiling.reps[d] < 0) return UserError("reps has ", tiling.reps[d], "; it must not be negative");
    WEFT_ASSIGN_OR_RETURN(tiling.dims[d], Times(tiling.dims[d], tiling.reps[d]));
  }
  results->push_back(Type::Tensor(call.operands[0]->dtype, tiling.dims));
  return absl::OkStatus();
}

// [2, 3] by [4, 5]: [1, 2, 1, 3] → [4, 2, 5, 3] → [8, 15].
absl::Status ExpandTile(const ExpandCall& call, std::span<Value> results) {
  const Tiling tiling = TilingOf(Attr<kTileAttrs, "reps">(call.attrs), call.operands[0].dims());
  Dims spread, merged;
  Ints positions;
  for (size_t d = 0; d < tiling.dims.size(); ++d) {
    spread.push_back(tiling.reps[d]);
    spread.push_back(tiling.dims[d]);
    positions.push_back(static_cast<int64_t>(2 * d + 1));
    merged.push_back(tiling.reps[d] * tiling.dims[d]);
  }
  const Value x = Reshape(call.b, call.operands[0], tiling.dims);
  results[0] = Reshape(call.b, BroadcastInDim(call.b, x, spread, positions), merged);
  return absl::OkStatus();
}

absl::Status InferRepeat(const InferCall& call, Types* results) {
  Type x = Type::Tensor(call.operands[0]->dtype, RowDims(call.operands[0]->dims));
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        AxisOfRow("axis", Attr<kRepeatAttrs, "axis">(call.attrs), call.operands[0]->rank()));
  const int64_t repeats = Attr<kRepeatAttrs, "repeats">(call.attrs);
  if (repeats < 0) return UserError("repeats is ", repeats, "; it must not be negative");
  WEFT_ASSIGN_OR_RETURN(x.dims[axis], Times(x.dims[axis], repeats));
  results->push_back(std::move(x));
  return absl::OkStatus();
}

absl::Status ExpandRepeat(const ExpandCall& call, std::span<Value> results) {
  const Value x = AsRow(call.b, call.operands[0]);
  if (!x) return call.b.status();
  Dims spread = x.dims(), merged = x.dims();
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        NormalizeAxis("axis", Attr<kRepeatAttrs, "axis">(call.attrs), spread.size()));
  const int64_t repeats = Attr<kRepeatAttrs, "repeats">(call.attrs);
  spread.insert(spread.begin() + axis + 1, repeats);
  merged[axis] *= repeats;
  Ints positions = Axes(spread.size());
  positions.erase(positions.begin() + axis + 1);
  results[0] = Reshape(call.b, BroadcastInDim(call.b, x, spread, positions), merged);
  return absl::OkStatus();
}

constexpr Sample kTileSamples[] = {{"T[3] reps=[2]"},     {"T[2,3] reps=[4,5]"}, {"T[2,3] reps=[2]"},
                                   {"T[3] reps=[2,1,2]"}, {"T[0,3] reps=[2,2]"}, {"T[] reps=[2,3]"},
                                   {"T[2,3] reps=[0,1]"}, {"T[2] reps=[]"}};
constexpr Sample kRepeatSamples[] = {{"T[3] repeats=2"},   {"T[2,3] repeats=3 axis=1"}, {"T[2,3,2] repeats=2 axis=-2"},
                                     {"T[0,3] repeats=2"}, {"T[2] repeats=0"},          {"T[] repeats=3"}};

}  // namespace

constinit const OpDef kOp_tile = {
    .name = "weft.tile",
    .c_name = "tile",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "The tensor so many times along each axis, one after the other. Where reps are more than axes, axes of size 1 come "
        "first; where they are fewer, the first axes stay.",
    .example = "y = wf_tile(s, x, WF_INTS(2, 1));",
    .operands = kOperands,
    .attrs = kTileAttrs,
    .results = kResult,
    .infer = InferTile,
    .expand = ExpandTile,
    .lowering = Lowering::kExpand,
    .samples = kTileSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

constinit const OpDef kOp_repeat_interleave = {
    .name = "weft.repeat_interleave",
    .c_name = "repeat_interleave",
    .since = 1,
    .kind = Kind::kMacro,
    .doc =
        "Each slice along an axis so many times, one after the other. PyTorch's repeat_interleave, NumPy's repeat, by one number.",
    .example = "y = wf_repeat_interleave(s, x, 2, .axis = 1);",
    .operands = kOperands,
    .attrs = kRepeatAttrs,
    .results = kResult,
    .infer = InferRepeat,
    .expand = ExpandRepeat,
    .lowering = Lowering::kExpand,
    .samples = kRepeatSamples,
    .tolerance = kExact,
    .absent = kMacroAbsent,
    .rounds_once = true,
};

}  // namespace weft::ops
