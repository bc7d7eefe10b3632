// See fold.h.
#include "src/backends/cpu/lower/fold.h"

#include <algorithm>

#include "src/backends/cpu/lower/lower_region.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::ScalarValue;

constexpr int64_t kEnough = 64;    // results at once that keep lanes busy
constexpr int64_t kPieces = 512;   // of a long row
constexpr int64_t kShortest = 64;  // elements of a piece

DType TypeOf(const Fold& fold, size_t parameter) { return fold.body.parameters()[parameter].dtype(); }

// The operands of another fold of the same tensors.
Fold Like(const Fold& fold) { return {fold.body, fold.captures, {}, {}, {}, {}, {}}; }

std::vector<int64_t> Strides(const Dims& dims) {
  const Dims strides = StridesOf(dims);
  return {strides.begin(), strides.end()};
}

// Adjacent reduced dimensions that are walked as one.
void MergeReduced(Fold& fold) {
  for (size_t d = 0; d + 1 < fold.reduced.size();) {
    const bool one = std::ranges::all_of(
        fold.taken, [&](const FoldOperand& x) { return x.reduced[d] == x.reduced[d + 1] * fold.reduced[d + 1]; });
    if (!one) {
      ++d;
      continue;
    }
    fold.reduced[d] *= fold.reduced[d + 1];
    fold.reduced.erase(fold.reduced.begin() + static_cast<int64_t>(d) + 1);
    for (FoldOperand& x : fold.taken) x.reduced.erase(x.reduced.begin() + static_cast<int64_t>(d));
  }
}

// Folds `size` elements of each piece along the innermost reduced dimension, beginning with the first of the piece; `pieces`
// dimensions become kept ones. What is left of the fold goes over their results.
absl::Status FoldPieces(Lowering& lowering, Fold& fold, int64_t size) {
  Fold inner = Like(fold);
  inner.kept = fold.kept;
  inner.kept.insert(inner.kept.end(), fold.reduced.begin(), fold.reduced.end() - 1);
  inner.reduced = {size - 1};
  for (const FoldOperand& x : fold.taken) {
    FoldOperand first = x;
    first.kept.insert(first.kept.end(), x.reduced.begin(), x.reduced.end() - 1);
    first.reduced = {0};
    inner.starts.push_back(first);
    first.offset += x.reduced.back();
    first.reduced = {x.reduced.back()};
    inner.taken.push_back(std::move(first));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> partial, AddFold(lowering, inner));
  const std::vector<int64_t> strides = Strides(inner.kept);
  fold.reduced.pop_back();
  for (size_t i = 0; i < partial.size(); ++i) {
    const auto split = strides.begin() + static_cast<int64_t>(fold.kept.size());
    fold.taken[i] = {partial[i], 0, {strides.begin(), split}, {split, strides.end()}};
  }
  return absl::OkStatus();
}

// Elements of a piece, so that the pieces do not fall on the same lines of the cache.
int64_t PieceOf(int64_t elements, int64_t results, int64_t bytes) {
  const int64_t pieces = std::max<int64_t>(1, kPieces / results);
  int64_t piece = std::max(kShortest, (elements + pieces - 1) / pieces);
  const int64_t page = 4096 / bytes;
  if (piece >= page) piece = piece / page * page + 192 / bytes;
  return piece;
}

}  // namespace

absl::StatusOr<std::vector<StorageId>> AddFold(Lowering& lowering, const Fold& fold) {
  LoopKernel kernel;
  LoopBuilder builder(kernel);
  std::vector<StorageId> buffers;
  for (const int64_t size : fold.kept) kernel.dims.push_back(Dim{size, false});
  for (const int64_t size : fold.reduced) kernel.dims.push_back(Dim{size, true});
  const auto load = [&](const FoldOperand& x, DType dtype) {
    Access access{static_cast<uint32_t>(buffers.size()), dtype, x.offset, x.kept};
    access.strides.insert(access.strides.end(), x.reduced.begin(), x.reduced.end());
    access.strides.resize(kernel.dims.size(), 0);
    buffers.push_back(x.storage);
    return builder.Load(std::move(access));
  };
  const size_t n = fold.taken.size();
  std::vector<ScalarValue> arguments;
  for (size_t i = 0; i < n; ++i) arguments.push_back(builder.Carried(load(fold.starts[i], TypeOf(fold, i))));
  for (size_t i = 0; i < n; ++i) arguments.push_back(load(fold.taken[i], TypeOf(fold, i)));
  for (size_t c = 0; c < fold.captures.size(); ++c) {
    FoldOperand scalar;
    scalar.storage = fold.captures[c];
    scalar.kept.assign(fold.kept.size(), 0);
    arguments.push_back(load(scalar, TypeOf(fold, 2 * n + c)));
  }
  ScalarValue valid;
  if (fold.valid.storage >= 0) valid = load(fold.valid, DType::kBool);
  WEFT_ASSIGN_OR_RETURN(const std::vector<ScalarValue> next, EvalBody(builder, fold.body, arguments));
  if (kernel.exprs.size() > 400) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the function @", fold.body.name(),
                       " is too large for one loop of the CPU backend: ", kernel.exprs.size(), " expressions");
  }
  std::vector<int64_t> dense = Strides(fold.kept);
  dense.resize(kernel.dims.size(), 0);
  std::vector<StorageId> results;
  for (size_t i = 0; i < n; ++i) {
    const bool all = fold.valid.storage < 0;
    kernel.carries[i].next = all ? next[i].id : builder.Select(valid, next[i], arguments[i]).id;
    const DType dtype = TypeOf(fold, i);
    const auto buffer = static_cast<uint32_t>(buffers.size());
    kernel.stores.push_back(
        Store{Access{buffer, dtype, 0, dense}, builder.Folded(static_cast<uint32_t>(i)).id, true, 0});
    results.push_back(lowering.Temporary(CountOf(fold.kept) * BytesOf(dtype)));
    buffers.push_back(results.back());
  }
  kernel.buffers = static_cast<uint32_t>(buffers.size());
  Finish(kernel);
  if (CountOf(fold.kept) > 0) lowering.Loop(std::move(kernel), buffers);
  return results;
}

absl::StatusOr<std::vector<StorageId>> AddReduction(Lowering& lowering, Fold fold) {
  MergeReduced(fold);
  const int64_t results = CountOf(fold.kept), elements = CountOf(fold.reduced);
  if (results == 0 || results >= kEnough || elements < 2 * kShortest) return AddFold(lowering, fold);
  while (fold.reduced.size() > 1) WEFT_RETURN_IF_ERROR(FoldPieces(lowering, fold, fold.reduced.back()));
  const int64_t length = fold.reduced[0];
  const int64_t piece = PieceOf(length, results, std::max(1, BytesOf(TypeOf(fold, 0))));
  const int64_t pieces = length / piece;
  if (pieces < 2) return AddFold(lowering, fold);
  // The elements that do not fill a piece follow one by one.
  Fold rest = Like(fold);
  rest.kept = fold.kept;
  rest.reduced = {length - pieces * piece};
  rest.taken = fold.taken;
  for (FoldOperand& x : rest.taken) x.offset += pieces * piece * x.reduced[0];
  fold.reduced = {pieces, piece};
  for (FoldOperand& x : fold.taken) x.reduced = {x.reduced[0] * piece, x.reduced[0]};
  WEFT_RETURN_IF_ERROR(FoldPieces(lowering, fold, piece));
  WEFT_ASSIGN_OR_RETURN(std::vector<StorageId> folded, AddFold(lowering, fold));
  if (rest.reduced[0] == 0) return folded;
  for (const StorageId storage : folded) rest.starts.push_back({storage, 0, Strides(fold.kept), {0}});
  return AddFold(lowering, rest);
}

}  // namespace weft::cpu
