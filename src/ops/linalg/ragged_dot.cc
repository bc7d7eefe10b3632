// ragged_dot: rows in groups, each group times a matrix of its own, as the experts of a mixture are applied.
#include <algorithm>

#include "src/ops/elementwise/special.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kF | kC, "[rows, k], the groups one behind the other"},
                                    {"w", kF | kC, "[groups, k, n]"},
                                    {"sizes", kI, "[groups], how many rows each has, at least 0", false, false, 'I'}};

absl::Status Infer(const InferCall& call, Types* results) {
  const Type &x = *call.operands[0], &w = *call.operands[1], &sizes = *call.operands[2];
  if (x.rank() != 2 || w.rank() != 3 || x.dims[1] != w.dims[1]) {
    return UserError("x is ", ShortType(x), " and w ", ShortType(w), "; [rows, k] and [groups, k, n] are needed");
  }
  if (sizes.dims != Dims{w.dims[0]})
    return UserError("sizes have shape ", DimsToString(sizes.dims), "; [", w.dims[0], "] is needed");
  if (x.dims[0] + 2 * w.dims[0] > INT32_MAX / 2)
    return UserError("x has ", x.dims[0], " rows; their places must fit i32");
  const Dims dims = {x.dims[0], w.dims[2]};
  if (!CheckedCount(dims)) return UserError("the result has too many elements");
  results->push_back(Type::Tensor(x.dtype, dims));
  return absl::OkStatus();
}

Value SumsUpTo(Builder& b, const Value& v) { return Call(b, kOp_cumsum, {v}, {int64_t{0}, int64_t{0}}); }
// How many of ascending `ends` are at or before each of 0, 1, …: the group that a row or a block belongs to, the last one behind all.
Value OwnerOf(Builder& b, const Value& ends, int64_t count) {
  const Value found = Call(b, kOp_searchsorted, {ends, Iota(b, DType::kI32, {count}, 0)}, {int64_t{1}});
  return found ? Minimum(b, found, FullLike(b, found, static_cast<double>(ends.dims()[0] - 1))) : found;
}
Value Take(Builder& b, const Value& x, const Value& at) { return Call(b, kOp_take, {x, at}, {int64_t{0}}); }

// Groups are cut into blocks of as many rows as a group has on average. There are at most twice as many blocks as groups, whatever
// the sizes are, so one product of blocks does twice the work of the rows.
absl::Status Expand(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Value &x = call.operands[0], &w = call.operands[1];
  const int64_t rows = x.dims()[0], k = x.dims()[1], groups = w.dims()[0], n = w.dims()[2];
  if (rows == 0 || groups == 0 || k == 0 || n == 0) {
    results[0] = Full(b, x.dtype(), {rows, n}, 0);
    return b.status();
  }
  const int64_t block = (rows + groups - 1) / groups, blocks = 2 * groups;
  const Value sizes = Convert(b, call.operands[2], DType::kI32), ends = SumsUpTo(b, sizes),
              starts = Sub(b, ends, sizes);
  const auto divided = [&](const Value& v) { return Div(b, v, FullLike(b, v, static_cast<double>(block))); };
  const Value own = divided(Add(b, sizes, static_cast<double>(block - 1)));
  const Value block_ends = SumsUpTo(b, own), first = Sub(b, block_ends, own);
  if (!b.ok()) return b.status();
  // The rows of each block.
  const Value of_block = OwnerOf(b, block_ends, blocks);
  const Value number = Sub(b, Iota(b, DType::kI32, {blocks}, 0), Take(b, first, of_block));
  const Value begin = Add(b, Take(b, starts, of_block), Mul(b, number, static_cast<double>(block)));
  const Dims plane = {blocks, block};
  const auto spread = [&](const Value& v) { return BroadcastInDim(b, v, plane, {0}); };
  const Value row = Add(b, spread(begin), Iota(b, DType::kI32, plane, 1));
  const Value there = And(b, Compare(b, Direction::kLt, row, spread(Take(b, ends, of_block))),
                          Compare(b, Direction::kLt, row, static_cast<double>(rows)));
  const Value taken = Take(b, x, Select(b, there, row, FullLike(b, row, 0)));
  if (!taken) return b.status();
  const Value left = Select(b, BroadcastInDim(b, there, taken.dims(), {0, 1}), taken, FullLike(b, taken, 0));
  const Value product = Call(b, kOp_matmul, {left, Take(b, w, of_block)});
  // Where each row's result stands.
  const Value of_row = OwnerOf(b, ends, rows), at = Iota(b, DType::kI32, {rows}, 0);
  const Value behind = Sub(b, at, Take(b, starts, of_row));
  const Value place = Add(b, Mul(b, Take(b, first, of_row), static_cast<double>(block)), behind);
  if (!product || !place) return b.status();
  const Value in_group = Compare(b, Direction::kLt, at, Take(b, ends, of_row));
  const Value found =
      Take(b, Reshape(b, product, {blocks * block, n}), Select(b, in_group, place, FullLike(b, place, 0)));
  if (!found) return b.status();
  results[0] = Select(b, BroadcastInDim(b, in_group, found.dims(), {0}), found, FullLike(b, found, 0));
  return b.status();
}

constexpr Sample kSamples[] = {
    {"T[5,3] T[2,3,4] i32[2]<1:3>"}, {"T[7,2] T[4,2,3] i64[4]<0:3>"}, {"T[0,3] T[2,3,1] i32[2]<0:1>"}};

}  // namespace

constinit const OpDef kOp_ragged_dot = Formula({
    .name = "weft.ragged_dot",
    .c_name = "ragged_dot",
    .doc =
        "Rows in groups, each group times its own matrix: row r of group g gives x[r] w[g]. Rows behind the last group give 0. What the "
        "sizes are is known at run time alone; the work is twice that of the rows. XLA's ragged dot, PyTorch's grouped product.",
    .example = "y = wf_ragged_dot(s, tokens, experts, counts);",
    .operands = kOperands,
    .infer = Infer,
    .expand = Expand,
    .samples = kSamples,
    .tolerance = {.f32 = 1e-5, .f64 = 1e-13, .bf16 = 2e-2, .f16 = 4e-3, .absolute = 1e-5},
});

}  // namespace weft::ops
