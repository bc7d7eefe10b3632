// Operations that are library kernels: from attributes to the calls of kernels.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::Value;

// Dimensions walked as one: the stride of the innermost, if each outer one continues it.
struct Merged {
  bool ok = true;
  int64_t size = 1;
  int64_t stride = 0;
};
Merged Merge(const Dims& dims, const Dims& strides, const Ints& chosen) {
  Merged merged;
  for (size_t i = chosen.size(); i-- > 0;) {
    const int64_t d = chosen[i];
    if (dims[d] == 1) continue;
    if (merged.size == 1) {
      merged.stride = strides[d];
    } else if (strides[d] != merged.stride * merged.size) {
      merged.ok = false;
    }
    merged.size *= dims[d];
  }
  return merged;
}

Ints FreeDims(size_t rank, const Ints& batch, const Ints& contract) {
  Ints free;
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (std::find(batch.begin(), batch.end(), d) == batch.end() &&
        std::find(contract.begin(), contract.end(), d) == contract.end()) {
      free.push_back(d);
    }
  }
  return free;
}

// One operand as a batch of matrices [rows, columns], copied only where its dimensions do not merge.
struct Side {
  StorageId storage = -1;
  MatrixView view;
  int64_t rows = 1, columns = 1;
};
Side MakeSide(Lowering& lowering, const Value& value, const Ints& batch, const Ints& rows, const Ints& columns,
              bool dense_batch) {
  Side side;
  Dims dims = value.dims();
  Dims strides = StridesOf(dims);
  Ints b = batch, r = rows, c = columns;
  const Merged merged_rows = Merge(dims, strides, r), merged_columns = Merge(dims, strides, c);
  side.storage = lowering.Of(value);
  const bool unit =
      merged_rows.stride == 1 || merged_columns.stride == 1 || merged_rows.size == 1 || merged_columns.size == 1;
  if (!merged_rows.ok || !merged_columns.ok || !unit || dense_batch) {
    Ints permutation = b;
    permutation.insert(permutation.end(), r.begin(), r.end());
    permutation.insert(permutation.end(), c.begin(), c.end());
    side.storage = lowering.Transposed(value, permutation);
    Dims moved;
    for (int64_t d : permutation) moved.push_back(dims[d]);
    dims = moved;
    strides = StridesOf(dims);
    int64_t next = 0;
    for (Ints* list : {&b, &r, &c}) {
      for (int64_t& d : *list) d = next++;
    }
  }
  const Merged mr = Merge(dims, strides, r), mc = Merge(dims, strides, c);
  side.rows = mr.size;
  side.columns = mc.size;
  side.view.row_stride = mr.size == 1 ? mc.size : mr.stride;
  side.view.col_stride = mc.size == 1 ? 1 : mc.stride;
  if (!dense_batch) {
    for (size_t i = 0; i < b.size(); ++i) side.view.batch_strides[i] = strides[b[i]];
  } else {
    side.view.batch_strides[0] = mr.size * mc.size;
  }
  return side;
}

absl::Status LowerDot(Lowering& lowering, const Node& node) {
  const Value &x = node.operands()[0], &y = node.operands()[1];
  const ops::DotGeneralAttrs a{node.attrs()};
  const Ints &xb = a.lhs_batching_dimensions(), &yb = a.rhs_batching_dimensions();
  const Ints &xc = a.lhs_contracting_dimensions(), &yc = a.rhs_contracting_dimensions();
  const Value result{Ref<const Node>::Share(&node), 0};
  GemmCall call;
  call.input = x.dtype();
  call.output = result.dtype();
  call.batch_rank = static_cast<int>(xb.size());
  const bool dense_batch = xb.size() > static_cast<size_t>(kMaxBatchDims);
  const Side left = MakeSide(lowering, x, xb, FreeDims(x.dims().size(), xb, xc), xc, dense_batch);
  const Side right = MakeSide(lowering, y, yb, yc, FreeDims(y.dims().size(), yb, yc), dense_batch);
  call.m = left.rows;
  call.k = left.columns;
  call.n = right.columns;
  call.a = left.view;
  call.b = right.view;
  call.c_row_stride = call.n;
  int64_t members = 1;
  for (int64_t d : xb) members *= x.dims()[d];
  if (dense_batch) {
    call.batch_rank = 1;
    call.batch_sizes[0] = members;
    call.c_batch_strides[0] = call.m * call.n;
  } else {
    int64_t stride = call.m * call.n;
    for (size_t i = xb.size(); i-- > 0;) {
      call.batch_sizes[i] = x.dims()[xb[i]];
      call.c_batch_strides[i] = stride;
      stride *= call.batch_sizes[i];
    }
  }
  const double cost = 10.0 * members * call.m * call.n * call.k + 1e6;
  const StorageId out = lowering.Define(result);
  const bool one = members == 1;
  lowering.Host("gemm", {left.storage, right.storage}, {out}, EncodeGemm(call), cost, one ? call.m : 0,
                one ? call.n : 0);
  return absl::OkStatus();
}

// Nothing runs: the results are where the operands are.
absl::Status LowerBarrier(Lowering& lowering, const Node& node) {
  for (uint32_t i = 0; i < node.results().size(); ++i) {
    lowering.Alias(Value{Ref<const Node>::Share(&node), i}, lowering.Of(node.operands()[i]));
  }
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {
    {&ops::kOp_dot_general, LowerDot},
    {&ops::kOp_optimization_barrier, LowerBarrier},
};

constexpr std::span<const OpRule> (*kLists[])() = {
#define WEFT_CPU_RULES(name) name##Rules,
#define WEFT_CPU_KERNELS(name)
#define WEFT_CPU_BOTH(name) WEFT_CPU_RULES(name)
#include "src/backends/cpu/launch/operations.list"
#undef WEFT_CPU_RULES
#undef WEFT_CPU_KERNELS
#undef WEFT_CPU_BOTH
};

const OpRule* Find(const ir::OpDef& op) {
  for (const auto list : kLists) {
    for (const OpRule& rule : list()) {
      if (rule.op == &op) return &rule;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const OpRule> ProductRules() { return kRules; }

bool EndsSums(const ir::Node& node) {
  const OpRule* const found = Find(node.op());
  return found != nullptr && found->ends_sums;
}

LowerRule FindLowerRule(const ir::OpDef& op) {
  const OpRule* const found = Find(op);
  return found != nullptr ? found->rule : nullptr;
}

Views::Reads ReadsOf(const ir::OpDef& op) {
  const OpRule* const found = Find(op);
  return found != nullptr ? found->reads : nullptr;
}

bool HasLowerRule(const ir::Node& node, const CpuTarget& target) {
  const OpRule* const found = Find(node.op());
  return found != nullptr && (found->serves == nullptr || found->serves(node, target));
}

}  // namespace weft::cpu
