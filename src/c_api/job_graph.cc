// See job_graph.h.
#include "src/c_api/job_graph.h"

#include <utility>
#include <vector>

#include "src/distributed/reduce.h"
#include "src/ops/complex.h"
#include "src/ops/custom/custom_call.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"

namespace weft::c_api {
namespace {

using distributed::CollectiveKind;
using distributed::Reduction;
using ir::Value;

constexpr int kDerivatives = 2;  // of derivatives

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}
bool TakesParts(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
}

ops::Reducer ReducerOf(Reduction reduction) {
  return reduction == Reduction::kProduct ? ops::Reducer::kProd
         : reduction == Reduction::kMin   ? ops::Reducer::kMin
                                          : ops::Reducer::kMax;
}

// The call that brings cotangents back.
JobCall DualOf(const JobCall& call) {
  JobCall dual = call;
  switch (call.kind) {
    case CollectiveKind::kAllGather: dual.kind = CollectiveKind::kReduceScatter; break;
    case CollectiveKind::kReduceScatter: dual.kind = CollectiveKind::kAllGather; break;
    case CollectiveKind::kBroadcast:
      dual.kind = CollectiveKind::kAllReduce;
      dual.only_root = true;
      break;
    case CollectiveKind::kAllReduce:
      if (call.only_root) dual = {.kind = CollectiveKind::kBroadcast, .dtype = call.dtype, .root = call.root};
      break;
    default: break;
  }
  return dual;
}

}  // namespace

absl::StatusOr<ir::Type> JobGraph::ResultOf(const JobCollective& collective, const ir::Type& input, int64_t size) {
  const std::string_view name = distributed::NameOf(collective.kind);
  if (Reduces(collective.kind)) {
    if (collective.mean && !IsFloat(input.dtype) && !IsComplex(input.dtype)) {
      return UserError(name, ": ", NameOf(input.dtype), " has no mean; convert it, or take the sum");
    }
    if (!distributed::HasReduction(input.dtype, collective.reduction)) {
      return UserError(name, ": ", NameOf(input.dtype), " has no ", distributed::NameOf(collective.reduction));
    }
  }
  if (collective.kind == CollectiveKind::kBroadcast && (collective.root < 0 || collective.root >= size)) {
    return UserError("broadcast: the root ", collective.root, " is no rank of a group of ", size);
  }
  Dims dims = input.dims;
  if (TakesParts(collective.kind)) {
    if (dims.empty() || dims[0] % size != 0) {
      return UserError(name, ": the input is ", ir::ShortType(input),
                       "; its first dimension must be a multiple of the ", size, " processes of the job");
    }
    if (collective.kind == CollectiveKind::kReduceScatter) dims[0] /= size;
  } else if (collective.kind == CollectiveKind::kAllGather) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(input.count() * BytesOf(input.dtype), size, &bytes)) {
      return UserError(name, ": the result would not be countable");
    }
    if (dims.empty()) {
      dims = {size};
    } else {
      dims[0] *= size;
    }
  }
  return ir::Type::Tensor(input.dtype, dims);
}

Value JobGraph::Collect(const JobCollective& collective, const Value& x) {
  const absl::StatusOr<ir::Type> type = ResultOf(collective, x.type(), size_);
  if (!type.ok()) {
    b_.Fail(type.status());
    return {};
  }
  const int64_t count = x.type().count();
  if (count == 0) return ops::Full(b_, x.dtype(), type->dims, 0);
  Value rows = ops::Reshape(b_, x, TakesParts(collective.kind) ? Dims{size_, count / size_} : Dims{count});
  const bool derived = IsFloat(x.dtype()) || IsComplex(x.dtype());
  if (Reduces(collective.kind) && collective.reduction != Reduction::kSum && derived) {
    rows = Combined(collective, std::move(rows));
  } else {
    rows = Moved(collective, std::move(rows));
  }
  if (collective.mean) rows = ops::Mul(b_, std::move(rows), 1.0 / static_cast<double>(size_));
  return ops::Reshape(b_, std::move(rows), type->dims);
}

Value JobGraph::Moved(const JobCollective& collective, Value rows) {
  if (!rows) return {};
  const DType dtype = rows.dtype();
  if (IsComplex(dtype)) {
    // The planes side by side in each row.
    ops::Planes planes = ops::PlanesOf(b_, rows);
    const auto axis = static_cast<int64_t>(rows.dims().size()) - 1;
    const int64_t n = rows.dims().back();
    Value both = Moved(collective, ops::Call(b_, ops::kOp_concatenate, {planes.re, planes.im}, {axis}));
    if (!both) return {};
    const auto part = [&](int64_t from) {
      ir::Ints start(both.dims().size(), 0), limit(both.dims().begin(), both.dims().end());
      start.back() = from;
      limit.back() = from + n;
      return ops::Slice(b_, both, start, limit, ir::Ints(both.dims().size(), 1));
    };
    return ops::ComplexFrom(b_, {part(0), part(n)});
  }
  // Narrow types travel as what they are computed in, which has each of their values.
  const DType moved = IsNarrow(dtype) ? ComputeType(dtype) : dtype;
  const JobCall call = {
      .kind = collective.kind, .dtype = moved, .reduction = collective.reduction, .root = collective.root};
  return ops::Convert(b_, Call(call, ops::Convert(b_, std::move(rows), moved), kDerivatives), dtype);
}

Value JobGraph::Combined(const JobCollective& collective, Value rows) {
  const DType dtype = rows.dtype();
  const bool all = collective.kind == CollectiveKind::kAllReduce;
  const int64_t count = rows.type().count(), part = (count + size_ - 1) / size_;
  if (all) {
    if (part * size_ != count) {
      rows = IsComplex(dtype) ? ops::Call(b_, ops::kOp_concatenate,
                                          {rows, ops::Full(b_, dtype, {part * size_ - count}, 0)}, {int64_t{0}})
                              : ops::Pad(b_, std::move(rows), 0, {0}, {part * size_ - count}, {0});
    }
    rows = ops::Reshape(b_, std::move(rows), {size_, part});
  }
  rows = Moved({.kind = CollectiveKind::kAllToAll}, std::move(rows));
  if (!rows) return {};
  Value own;
  if (IsComplex(dtype)) {
    for (int64_t rank = 0; rank < size_; ++rank) {
      Value row = ops::Reshape(b_, ops::Slice(b_, rows, {rank, 0}, {rank + 1, part}, {1, 1}), {part});
      own = rank == 0 ? row : ops::Mul(b_, own, row);
    }
  } else {
    own = ops::Convert(
        b_, ops::Reduce(b_, ops::Convert(b_, rows, ComputeType(dtype)), ReducerOf(collective.reduction), {0}), dtype);
  }
  if (!all) return own;
  rows = ops::Reshape(b_, Moved({.kind = CollectiveKind::kAllGather}, std::move(own)), {size_ * part});
  return part * size_ == count ? rows : ops::Slice(b_, std::move(rows), {0}, {count}, {1});
}

Value JobGraph::Call(const JobCall& call, Value rows, int derivatives) {
  if (!rows) return {};
  const absl::StatusOr<Ref<const ops::CustomFunction>> function = JobFunction(registered_, job_, call);
  if (!function.ok()) {
    b_.Fail(function.status());
    return {};
  }
  const int64_t n = rows.dims().back();
  const bool gathers = call.kind == CollectiveKind::kAllGather || call.kind == CollectiveKind::kAllToAll;
  const ir::Type type = ir::Type::Tensor(rows.dtype(), gathers ? Dims{size_, n} : Dims{n});
  const bool derived =
      derivatives > 0 && IsFloat(call.dtype) && (!Reduces(call.kind) || call.reduction == Reduction::kSum);
  const Ref<const ir::Function> gradient = derived ? GradientOf(call, rows.type(), type, derivatives - 1) : nullptr;
  return b_.Emit(ops::kOp_custom_call, {std::move(rows)}, ops::CustomAttrs(**function, {&type, 1}),
                 gradient != nullptr ? ir::RegionSpan(&gradient, 1) : ir::RegionSpan());
}

Ref<const ir::Function> JobGraph::GradientOf(const JobCall& call, const ir::Type& in, const ir::Type& out,
                                             int derivatives) {
  std::vector<Value> parameters = {ops::Parameter(in), ops::Parameter(out), ops::Parameter(out)};
  const Value back = Call(DualOf(call), parameters[2], derivatives);
  if (!back) return nullptr;
  return Intern(ir::Function::Create("cotangent", std::move(parameters), {back}));
}

}  // namespace weft::c_api
