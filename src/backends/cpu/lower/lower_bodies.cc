// Operations with a function of scalars: reduce_by, sort_by, scatter_by. (reduce_window_by is with the windows.)
#include <algorithm>
#include <optional>
#include <set>

#include "src/backends/cpu/launch/body_calls.h"
#include "src/backends/cpu/lower/fold.h"
#include "src/backends/cpu/lower/indexed_boxes.h"
#include "src/backends/cpu/lower/lower_region.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::ScalarValue;
using ir::Value;

Value ResultOf(const Node& node, size_t i) { return {Ref<const Node>::Share(&node), static_cast<uint32_t>(i)}; }

absl::Status LowerReduceBy(Lowering& lowering, const Node& node) {
  const ir::Function& body = *node.regions()[0];
  const size_t n = body.results().size();
  const Dims& dims = node.operands()[0].dims();
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        ops::NormalizeAxes("dimensions", ops::ReduceByAttrs{node.attrs()}.dimensions(), dims.size()));
  const Dims strides = StridesOf(dims);
  Fold fold{body, {}, {}, {}, {}, {}, {}};
  FoldOperand x;
  for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
    const bool gone = std::ranges::find(axes, d) != axes.end();
    (gone ? fold.reduced : fold.kept).push_back(dims[d]);
    (gone ? x.reduced : x.kept).push_back(strides[d]);
  }
  for (size_t i = 0; i < n; ++i) {
    x.storage = lowering.Of(node.operands()[i]);
    fold.taken.push_back(x);
    fold.starts.push_back({lowering.Of(node.operands()[n + i]), 0, std::vector<int64_t>(fold.kept.size(), 0), {}});
  }
  for (const Value& capture : node.operands().subspan(2 * n)) fold.captures.push_back(lowering.Of(capture));
  WEFT_ASSIGN_OR_RETURN(const std::vector<StorageId> results, AddReduction(lowering, std::move(fold)));
  for (size_t i = 0; i < n; ++i) lowering.Alias(ResultOf(node, i), results[i]);
  return absl::OkStatus();
}

// --- generated code for one element at a time

// A kernel over one element: every parameter and result is a buffer of its own.
struct ElementCode {
  LoopKernel kernel;
  LoopBuilder builder{kernel};
  std::vector<ScalarValue> results;
};
absl::Status MakeElementCode(const ir::Function& body, ElementCode* code) {
  LoopKernel& kernel = code->kernel;
  kernel.dims = {Dim{1}, Dim{1}};
  kernel.vector_dim = 1;
  std::vector<ScalarValue> arguments;
  for (const Value& parameter : body.parameters()) {
    arguments.push_back(code->builder.Load(Access{kernel.buffers++, parameter.dtype(), 0, {0, 0}}));
  }
  WEFT_ASSIGN_OR_RETURN(code->results, EvalBody(code->builder, body, arguments));
  for (size_t i = 0; i < code->results.size(); ++i) {
    const Access access{kernel.buffers++, body.results()[i].dtype(), 0, {0, 1}};
    kernel.stores.push_back(Store{access, code->results[i].id, false, 0});
  }
  return absl::OkStatus();
}

// --- sort

// Tells whether expression `a` computes of parameter `x` alone what `b` computes of parameter `y`. Iterative: a body
// may be one long chain.
bool SameOf(const LoopKernel& kernel, uint32_t a, uint32_t b, uint32_t x, uint32_t y) {
  std::set<std::pair<uint32_t, uint32_t>> asked = {{a, b}};
  std::vector<std::pair<uint32_t, uint32_t>> open = {{a, b}};
  while (!open.empty()) {
    const auto [p, q] = open.back();
    open.pop_back();
    const Expr &left = kernel.exprs[p], &right = kernel.exprs[q];
    if (left.kind != right.kind || left.op != right.op || left.dtype != right.dtype || left.storage != right.storage) {
      return false;
    }
    if (left.kind == ExprKind::kLoad) {
      if (kernel.loads[left.index].buffer != x || kernel.loads[right.index].buffer != y) return false;
      continue;
    }
    if (left.kind == ExprKind::kConstant) {
      if (p != q) return false;
      continue;
    }
    for (int k = 0; k < 3; ++k) {
      if ((left.args[k] == kNoExpr) != (right.args[k] == kNoExpr)) return false;
      if (left.args[k] != kNoExpr && asked.insert({left.args[k], right.args[k]}).second) {
        open.emplace_back(left.args[k], right.args[k]);
      }
    }
  }
  return true;
}

// The key of a comparator that asks whether f(x) < f(y), or f(x) > f(y), of one pair.
struct SortKey {
  uint32_t expr = kNoExpr;  // f
  uint32_t tensor = 0;
  bool descending = false;
};
std::optional<SortKey> FindKey(const ElementCode& code, size_t tensors) {
  const LoopKernel& kernel = code.kernel;
  const Expr& compares = kernel.exprs[code.results[0].id];
  if (compares.kind != ExprKind::kBinary) return std::nullopt;
  if (compares.op != ir::ScalarOp::kLt && compares.op != ir::ScalarOp::kGt) return std::nullopt;
  for (uint32_t t = 0; t < tensors; ++t) {
    const uint32_t a = compares.args[0], b = compares.args[1];
    if (SameOf(kernel, a, b, 2 * t, 2 * t + 1)) return SortKey{a, t, compares.op == ir::ScalarOp::kGt};
    if (SameOf(kernel, a, b, 2 * t + 1, 2 * t)) return SortKey{a, t, compares.op == ir::ScalarOp::kLt};
  }
  return std::nullopt;
}

DType UnsignedOf(DType dtype) {
  switch (BytesOf(dtype)) {
    case 1: return DType::kU8;
    case 2: return DType::kU16;
    case 4: return DType::kU32;
    default: return DType::kU64;
  }
}

// Unsigned integers in the order of x. They follow a float comparison, so -0 is 0; NaN, which it does not order, comes
// last.
ScalarValue OrderedBits(LoopBuilder& b, ScalarValue x) {
  using ir::ScalarOp;
  if (IsBool(x.dtype)) return b.Convert(x, DType::kU8);
  if (IsUnsigned(x.dtype)) return x;
  const DType type = UnsignedOf(x.dtype);
  const int64_t sign = static_cast<int64_t>(uint64_t{1} << (BitsOf(type) - 1));
  if (!IsFloat(x.dtype)) return b.Binary(ScalarOp::kXor, b.Bitcast(x, type), b.IntConstant(type, sign));
  const ScalarValue zero = b.Constant(x.dtype, 0), none = b.IntConstant(type, 0);
  const ScalarValue bits = b.Bitcast(b.Select(b.Binary(ScalarOp::kEq, x, zero), zero, x), type);
  const ScalarValue negative = b.Binary(ScalarOp::kNe, b.Binary(ScalarOp::kAnd, bits, b.IntConstant(type, sign)), none);
  const ScalarValue ordered =
      b.Select(negative, b.Unary(ScalarOp::kNot, bits), b.Binary(ScalarOp::kOr, bits, b.IntConstant(type, sign)));
  return b.Select(b.Unary(ScalarOp::kIsNan, x), b.IntConstant(type, -1), ordered);
}

// The keys of all elements; `bytes` of one.
StorageId AddKeys(Lowering& lowering, const LoopKernel& comparator, const SortKey& key, const Value& tensor,
                  int64_t* bytes) {
  LoopKernel kernel;
  kernel.dims = {Dim{tensor.type().count()}};
  kernel.loads = {Access{0, tensor.dtype(), 0, {1}}};
  kernel.buffers = 2;
  std::vector<bool> needed(comparator.exprs.size(), false);
  std::vector<uint32_t> moved(comparator.exprs.size(), kNoExpr);
  needed[key.expr] = true;
  for (uint32_t i = key.expr + 1; i-- > 0;) {
    for (const uint32_t arg : comparator.exprs[i].args) {
      if (needed[i] && arg != kNoExpr) needed[arg] = true;
    }
  }
  for (uint32_t i = 0; i <= key.expr; ++i) {
    if (!needed[i]) continue;
    Expr e = comparator.exprs[i];
    if (e.kind == ExprKind::kLoad) e.index = 0;
    for (uint32_t& arg : e.args) {
      if (arg != kNoExpr) arg = moved[arg];
    }
    moved[i] = static_cast<uint32_t>(kernel.exprs.size());
    kernel.exprs.push_back(e);
  }
  LoopBuilder builder(kernel);
  ScalarValue bits = OrderedBits(builder, {moved[key.expr], comparator.exprs[key.expr].dtype});
  if (key.descending) bits = builder.Unary(ir::ScalarOp::kNot, bits);
  *bytes = BytesOf(bits.dtype);
  kernel.stores.push_back(Store{Access{1, bits.dtype, 0, {1}}, bits.id, false, 0});
  Finish(kernel);
  const StorageId keys = lowering.Temporary(tensor.type().count() * *bytes);
  lowering.Loop(std::move(kernel), {lowering.Of(tensor), keys});
  return keys;
}

absl::Status LowerSortBy(Lowering& lowering, const Node& node) {
  const size_t n = node.results().size();
  const Dims& dims = node.type().dims;
  WEFT_ASSIGN_OR_RETURN(const int64_t axis,
                        ops::NormalizeAxis("dimension", ops::SortByAttrs{node.attrs()}.dimension(), dims.size()));
  SortCall call;
  call.length = dims[axis];
  call.inner = StridesOf(dims)[axis];
  std::vector<StorageId> tensors, results, captures;
  for (size_t i = 0; i < n; ++i) {
    tensors.push_back(lowering.Of(node.operands()[i]));
    results.push_back(lowering.Define(ResultOf(node, i)));
    call.bytes.push_back(BytesOf(node.operands()[i].dtype()));
  }
  const int64_t count = CountOf(dims);
  if (count == 0) return absl::OkStatus();
  call.outer = count / call.length / call.inner;
  for (const Value& capture : node.operands().subspan(n)) captures.push_back(lowering.Of(capture));
  call.captures = static_cast<int64_t>(captures.size());
  ElementCode code;
  WEFT_RETURN_IF_ERROR(MakeElementCode(*node.regions()[0], &code));
  double steps = 1;
  for (int64_t length = call.length; length > 1; length /= 2) ++steps;
  const auto space = [&] { return lowering.Temporary(2 * count * call.ItemBytes()); };
  if (const std::optional<SortKey> key = FindKey(code, n)) {
    const StorageId keys = AddKeys(lowering, code.kernel, *key, node.operands()[key->tensor], &call.key_bytes);
    tensors.insert(tensors.begin(), keys);
    results.push_back(space());
    lowering.Host("sort_keys", tensors, results, EncodeSort(call), 3000.0 * static_cast<double>(count) * steps);
    return absl::OkStatus();
  }
  lowering.HostWith("sort_by", tensors, results, EncodeSort(call), 20000.0 * static_cast<double>(count) * steps,
                    {std::move(code.kernel), captures, space()});
  return absl::OkStatus();
}

// --- scatter

absl::Status LowerScatterBy(Lowering& lowering, const Node& node) {
  const size_t n = node.results().size();
  const ops::ScatterByAttrs a{node.attrs()};
  const Value &x = node.operands()[0], &indices = node.operands()[n], &updates = node.operands()[n + 1];
  ScatterCall call;
  call.boxes = IndexedBoxes(x.dims(), indices, updates.dims(),
                            {a.update_window_dims(), a.inserted_window_dims(), a.scatter_dims_to_operand_dims(),
                             a.index_vector_dim(), a.input_batching_dims(), a.scatter_indices_batching_dims()});
  std::vector<StorageId> reads, results;
  for (size_t i = 0; i < n; ++i) {
    const Value& operand = node.operands()[i];
    results.push_back(lowering.Define(ResultOf(node, i)));
    lowering.Copy(operand.type().bytes(), lowering.Of(operand), results.back());
    reads.push_back(lowering.Of(node.operands()[n + 1 + i]));
    call.bytes.push_back(BytesOf(operand.dtype()));
  }
  if (x.type().count() == 0 || updates.type().count() == 0) return absl::OkStatus();
  reads.push_back(lowering.Of(indices));
  std::vector<StorageId> captures;
  for (const Value& capture : node.operands().subspan(2 * n + 1)) captures.push_back(lowering.Of(capture));
  call.captures = static_cast<int64_t>(captures.size());
  ElementCode code;
  WEFT_RETURN_IF_ERROR(MakeElementCode(*node.regions()[0], &code));
  Entry& entry =
      lowering.HostWith("scatter_by", reads, results, EncodeScatter(call),
                        20000.0 * static_cast<double>(updates.type().count()), {std::move(code.kernel), captures});
  entry.writes = 0;
  for (size_t i = 0; i < n; ++i) entry.writes += node.operands()[n + 1 + i].type().bytes();
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {
    {&ops::kOp_reduce_by, LowerReduceBy},
    {&ops::kOp_sort_by, LowerSortBy},
    {&ops::kOp_scatter_by, LowerScatterBy},
};

}  // namespace

std::span<const OpRule> BodyRules() { return kRules; }

}  // namespace weft::cpu
