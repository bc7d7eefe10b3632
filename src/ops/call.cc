// Broadcasting and macro expansion of calls.
#include "src/ops/call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/ops/promotion.h"

namespace weft::ops {

absl::StatusOr<Dims> BroadcastDims(std::span<const int64_t> a, std::span<const int64_t> b) {
  const size_t rank = std::max(a.size(), b.size());
  Dims result(rank);
  for (size_t i = 0; i < rank; ++i) {  // i counts from the last dimension
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      return UserError("shapes ", DimsToString(a), " and ", DimsToString(b), " do not broadcast: dimension -", i + 1,
                       " is ", x, " and ", y, "; sizes must be equal or 1");
    }
    result[rank - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

namespace {

// The limit of ir::CheckCall, whose bytes fit 63 bits in every type.
constexpr int64_t kTooMany = (int64_t{1} << 59) + 1;

// The common shape of all operands; a failure names the call.
absl::StatusOr<Dims> CommonDims(const ir::OpDef& op, std::span<const ir::Value> operands) {
  Dims dims;
  for (const ir::Value& x : operands) {
    if (!x || x.dims().empty() || x.dims() == dims) continue;
    if (dims.empty()) {
      dims = x.dims();
      continue;
    }
    absl::StatusOr<Dims> joined = BroadcastDims(dims, x.dims());
    if (joined.ok() && CheckedCount(*joined).value_or(kTooMany) >= kTooMany) {
      joined = UserError("the common shape ", DimsToString(*joined), " is too large");
    }
    if (!joined.ok()) return ir::NameCall(op, operands, joined.status());
    dims = *std::move(joined);
  }
  return dims;
}

// Trailing alignment: operand dimension i becomes result dimension i + (rank difference).
ir::Value BroadcastOperand(ir::Builder& b, const ir::Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  ir::Ints positions;
  for (size_t i = 0; i < x.dims().size(); ++i) positions.push_back(dims.size() - x.dims().size() + i);
  ir::Attrs attrs;
  attrs.set(1, std::move(positions));
  attrs.set(0, ir::Ints(dims.begin(), dims.end()));
  return b.EmitKnown(kOp_broadcast_in_dim, {x}, std::move(attrs), ir::Type::Tensor(x.dtype(), dims));
}

}  // namespace

ir::Values CallAll(ir::Builder& b, const ir::OpDef& op, ir::Values operands, ir::Attrs attrs, ir::RegionSpan regions) {
  const size_t count = std::max<size_t>(op.results.size(), 1);
  if (!b.ok()) return ir::Values(count);
  PromoteOperands(b, op, operands);
  if (op.rule == ir::OperandRule::kBroadcast) {
    bool same = true;
    for (const ir::Value& x : operands) same = same && x && x.type().is_tensor() && x.dims() == operands[0].dims();
    if (!same) {
      // Before the broadcast, so that the text shows the caller's shapes.
      if (absl::Status status = ir::CheckOperands(op, operands); !status.ok()) {
        b.Fail(std::move(status));
        return ir::Values(count);
      }
      absl::StatusOr<Dims> dims = CommonDims(op, operands);
      if (!dims.ok()) {
        b.Fail(dims.status());
        return ir::Values(count);
      }
      for (ir::Value& x : operands) {
        if (x) x = BroadcastOperand(b, x, *dims);
      }
    }
  }
  if (op.kind != ir::Kind::kMacro) return b.EmitAll(op, std::move(operands), std::move(attrs), regions);
  ir::Types types;
  if (absl::Status status = ir::CheckCall(op, operands, attrs, &types, regions); !status.ok()) {
    b.Fail(std::move(status));
    return ir::Values(count);
  }
  ir::Values results(count);
  absl::Status status =
      Expand(b, op, std::move(operands), attrs, types, std::span(results.data(), results.size()), regions);
  if (!status.ok()) b.Fail(std::move(status));
  return b.ok() ? results : ir::Values(count);
}

bool ComputesWide(const ir::OpDef& op, std::span<const ir::Value> operands) {
  return !op.rounds_once && std::ranges::any_of(operands, [](const ir::Value& x) {
    return x && x.type().is_tensor() && IsWidened(x.dtype());
  });
}

namespace {

ir::Value WidenedTo(ir::Builder& b, const ir::Value& x, DType dtype) {
  if (!x || !x.type().is_tensor() || !IsWidened(x.dtype())) return x;
  return b.Emit(kOp_convert, {x}, {dtype});
}

}  // namespace

ir::Value Widened(ir::Builder& b, const ir::Value& x) {
  return WidenedTo(b, x, x ? ComputeType(x.dtype()) : DType::kF32);
}

ir::Values Widened(ir::Builder& b, std::span<const ir::Value> values) {
  ir::Values wide;
  for (const ir::Value& x : values) wide.push_back(Widened(b, x));
  return wide;
}

bool IsWidening(const ir::Node& node) {
  if (&node.op() != &kOp_convert) return false;
  const DType from = node.operands()[0].dtype();
  return IsWidened(from) && node.type().dtype == ComputeType(from);
}

absl::Status Expand(ir::Builder& b, const ir::OpDef& op, ir::Values operands, const ir::Attrs& attrs,
                    std::span<const ir::Type> types, std::span<ir::Value> results, ir::RegionSpan regions) {
  operands.resize(std::max(operands.size(), op.operands.size()));
  if (!ComputesWide(op, operands)) return op.expand(ir::ExpandCall{b, op, operands, attrs, regions}, results);
  ir::Values wide;
  for (const ir::Value& x : operands) wide.push_back(op.narrow_in_f64 ? WidenedTo(b, x, DType::kF64) : Widened(b, x));
  WEFT_RETURN_IF_ERROR(op.expand(ir::ExpandCall{b, op, wide, attrs, regions}, results));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] && results[i].dtype() != types[i].dtype) {
      results[i] = b.Emit(kOp_convert, {results[i]}, {types[i].dtype});
    }
  }
  return absl::OkStatus();
}

ir::Value Call(ir::Builder& b, const ir::OpDef& op, ir::Values operands, ir::Attrs attrs, ir::RegionSpan regions) {
  return CallAll(b, op, std::move(operands), std::move(attrs), regions)[0];
}

}  // namespace weft::ops
