// scatter: combines updates into boxes of the operand at computed places.
#include <algorithm>
#include <cstdint>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/nan.h"
#include "src/ops/planes.h"
#include "src/ops/reducer_read.h"
#include "src/ops/shape/gather_dims.h"
#include "src/ops/sort/order.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kEveryType, "operand"},
                                    {"scatter_indices", kI, "where each box begins", false, false, 'I'},
                                    {"updates", kEveryType, "boxes to combine in"}};
constexpr std::string_view kReducers[] = {"sum", "prod", "max", "min", "and", "or", "set"};
constexpr AttrDef kAttrs[] = {
    {"update_window_dims", AttrType::kInts, "update dimensions that run within a box", true},
    {"inserted_window_dims", AttrType::kInts, "operand dimensions of box size 1 that updates do not have", true},
    {"scatter_dims_to_operand_dims", AttrType::kInts, "operand dimension of each component of an index", true},
    {"index_vector_dim", AttrType::kInt, "dimension of scatter_indices that holds the components; its rank: none",
     true},
    {"reducer", AttrType::kEnum, "sum, prod, max, min, and, or, set", true, {}, kReducers},
    {"input_batching_dims", AttrType::kInts, "operand dimensions that run along with …", false, "[]"},
    {"scatter_indices_batching_dims", AttrType::kInts, "… these dimensions of scatter_indices", false, "[]"},
};

// The box has the sizes of the updates' window.
GatherDims Read(const Attrs& a, const Dims& x, const Dims& updates) {
  GatherDims dims{Attr<kAttrs, "update_window_dims">(a),
                  Attr<kAttrs, "inserted_window_dims">(a),
                  Attr<kAttrs, "scatter_dims_to_operand_dims">(a),
                  Attr<kAttrs, "index_vector_dim">(a),
                  Attr<kAttrs, "input_batching_dims">(a),
                  Attr<kAttrs, "scatter_indices_batching_dims">(a),
                  {}};
  SizeByUpdates(dims, x, updates);
  return dims;
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  const Dims& updates = call.operands[2]->dims;
  const GatherDims dims = Read(call.attrs, x.dims, updates);
  WEFT_RETURN_IF_ERROR(CheckGather(dims, x.dims, call.operands[1]->dims));
  const Dims wanted = GatheredDims(dims, x.dims, call.operands[1]->dims);
  if (wanted != updates) {
    return UserError("updates have shape ", DimsToString(updates), "; indices and window ask for ",
                     DimsToString(wanted));
  }
  WEFT_RETURN_IF_ERROR(CheckReducer(kReducers[Attr<kAttrs, "reducer">(call.attrs)], x.dtype));
  results->push_back(x);
  return absl::OkStatus();
}

// Tells of each update whether its whole box lies inside, as bool of the updates' shape.
Value Inside(Builder& b, const GatherDims& dims, const Value& indices, const Value& held, const Dims& updates) {
  Value same = Compare(b, Direction::kEq, indices, held);
  if (dims.index_vector < static_cast<int64_t>(indices.dims().size())) {
    same = Reduce(b, same, Reducer::kAnd, {dims.index_vector});
  }
  return BroadcastInDim(b, same, updates, dims.BatchDims(updates.size()));
}

// The slope of a factor is the product of the others at its place. Sorted by their places, updates stand in runs; multiplied in pairs
// so far apart as 1, 2, 4, …, each has the product of those before it in its run, and from the other end of those behind it. There are
// multiplications alone, never a division: right whichever factors are 0, and so are the derivatives to any order.
struct Runs {
  Builder& b;
  Value places;  // [n], sorted
  int64_t n;

  // x of the one `by` before (behind, where negative), 1 where that is in another run.
  Value Beside(const Value& x, int64_t by) const {
    const auto moved = [&](const Value& v, double beyond) { return v ? Pad(b, v, beyond, {by}, {-by}, {0}) : v; };
    const Value same = Compare(b, Direction::kEq, places, moved(places, -1));
    return x ? Select(b, same, moved(x, 1), FullLike(b, x, 1)) : x;
  }
  // The products of those before (behind) each one in its run.
  Value Products(const Value& x, bool behind) const {
    Value all = x;
    for (int64_t by = 1; by < n && b.ok(); by *= 2) all = Mul(b, all, Beside(all, behind ? -by : by));
    return Beside(all, behind ? -1 : 1);
  }
};

absl::Status ProductGradients(const GradCall& call, const Value& inside, absl::FunctionRef<Value(const Value&)> take,
                              std::span<Value> grads) {
  Builder& b = call.b;
  const Value x = Widened(b, call.operands[0]), updates = Widened(b, call.operands[2]),
              g = Widened(b, call.cotangents[0]);
  if (!x || !updates || !g) return b.status();
  if (call.wanted[0]) {
    const Value rest = Call(b, kOp_scatter, {FullLike(b, x, 1), call.operands[1], updates}, call.node.attrs());
    grads[0] = Convert(b, Mul(b, g, rest), call.operands[0].dtype());
  }
  if (!call.wanted[2]) return b.status();
  const int64_t n = updates.type().count(), size = x.type().count();
  const DType id = std::max(n, size) >= INT32_MAX ? DType::kI64 : DType::kI32;
  // The place of each update, and one behind all for those that are left out.
  const Value numbers = Reshape(b, Iota(b, id, {size}, 0), x.dims());
  const Value at = Select(b, inside, take(numbers), Full(b, id, updates.dims(), static_cast<double>(size)));
  const Values sorted = SortByFirst(b, {Reshape(b, at, {n}), Iota(b, id, {n}, 0)}, 0, /*descending=*/false);
  if (!b.ok()) return b.status();
  const Runs runs{b, sorted[0], n};
  const Value factors = Call(b, kOp_take, {Reshape(b, updates, {n}), sorted[1]}, {int64_t{0}});
  const Value both = Mul(b, runs.Products(factors, false), runs.Products(factors, true));
  const Value back = SortByFirst(b, {sorted[1], Iota(b, id, {n}, 0)}, 0, /*descending=*/false)[1];
  const Value others = Reshape(b, Call(b, kOp_take, {both, back}, {int64_t{0}}), updates.dims());
  const Value slope = Mul(b, Mul(b, take(g), take(x)), others);
  grads[2] = Convert(b, Select(b, inside, slope, FullLike(b, slope, 0)), call.operands[2].dtype());
  return b.status();
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& a = call.node.attrs();
  const Value& x = call.operands[0];
  const Value& indices = call.operands[1];
  const Value& updates = call.operands[2];
  const int64_t reducer = Attr<kAttrs, "reducer">(a);
  if (reducer == 4 || reducer == 5) {
    return absl::UnimplementedError(absl::StrCat("scatter with reducer ", kReducers[reducer], " has no gradient"));
  }
  if (x.type().count() == 0 || updates.type().count() == 0) {  // there is no place, or nothing comes to one
    if (call.wanted[0]) grads[0] = call.cotangents[0];
    if (call.wanted[2]) grads[2] = FullLike(b, updates, 0);
    return absl::OkStatus();
  }
  const GatherDims dims = Read(a, x.dims(), updates.dims());
  Value held = HoldInside(b, dims, indices, x.dims());
  Value inside = Inside(b, dims, indices, held, updates.dims());
  const auto take = [&](const Value& from) {
    return Call(b, kOp_gather, {from, held},
                {Attr<kAttrs, "update_window_dims">(a), Attr<kAttrs, "inserted_window_dims">(a),
                 Attr<kAttrs, "scatter_dims_to_operand_dims">(a), Attr<kAttrs, "index_vector_dim">(a), dims.sizes,
                 Attr<kAttrs, "input_batching_dims">(a), Attr<kAttrs, "scatter_indices_batching_dims">(a)});
  };
  if (reducer == 1) return ProductGradients(call, inside, take, grads);
  Value g = call.cotangents[0];
  Value none = FullLike(b, updates, 0);
  if (reducer == 2 || reducer == 3) {  // equal extremes share, and NaN goes to all, as in reduce
    const Value y = Unary(b, kOp_stop_gradient, call.results[0]), mine = take(y);
    Value kept = Either(b, Compare(b, Direction::kEq, x, y), IsNan(b, y));
    Value won = And(b, inside, Either(b, Compare(b, Direction::kEq, updates, mine), IsNan(b, mine)));
    Attrs sum = a;
    sum.set(AttrPosition<kAttrs, "reducer">(), int64_t{0});
    const Value zero = FullLike(b, x, 0), one = FullLike(b, updates, 1);
    const Value winners = Call(
        b, kOp_scatter, {Select(b, kept, FullLike(b, x, 1), zero), indices, Select(b, won, one, none)}, std::move(sum));
    g = Select(b, IsNan(b, y), Mul(b, g, y), Div(b, g, winners));
    if (call.wanted[0]) grads[0] = Select(b, kept, g, zero);
    if (call.wanted[2]) grads[2] = Select(b, won, take(g), none);
    return absl::OkStatus();
  }
  if (call.wanted[0]) {
    grads[0] = reducer == 0 ? g : Call(b, kOp_scatter, {g, indices, none}, a);
  }
  if (call.wanted[2]) {
    if (reducer == kScatterSet) {  // of several updates to one place, only the one that stayed has a slope
      const int64_t count = updates.type().count();
      const DType id = count > INT32_MAX ? DType::kI64 : DType::kI32;
      Value ids = Reshape(b, Iota(b, id, {count}, 0), updates.dims());
      Value stayed = Call(b, kOp_scatter, {Full(b, id, x.dims(), -1), indices, ids}, a);
      inside = And(b, inside, Compare(b, Direction::kEq, take(stayed), ids));
    }
    grads[2] = Select(b, inside, take(g), none);
  }
  return absl::OkStatus();
}

// A box that reaches outside loses the elements outside, as StableHLO says. Updates arrive in row-major
// order.
absl::Status Reference(const ReferenceCall& call) {
  HostTensor& y = call.results[0];
  y = *call.operands[0];
  const HostTensor& updates = *call.operands[2];
  const GatherDims dims = Read(call.attrs, y.dims(), updates.dims());
  const Dims strides = StridesOf(y.dims());
  const int64_t reducer = Attr<kAttrs, "reducer">(call.attrs);
  std::vector<Accumulator> sums;
  if (reducer != kScatterSet) {
    sums.assign(y.count(), Accumulator(static_cast<Reducer>(reducer), y.dtype()));
    for (int64_t k = 0; k < y.count(); ++k) sums[k].Take(y, k);
  }
  ForEachIndex(updates.dims(), [&](int64_t k, const Dims& index) {
    Dims at;
    if (!Locate(dims, *call.operands[1], y.dims(), index, false, &at)) return;
    int64_t to = 0;
    for (size_t d = 0; d < at.size(); ++d) to += at[d] * strides[d];
    if (reducer == kScatterSet) {
      CopyElement(updates, k, y, to);
    } else {
      sums[to].Take(updates, k);
    }
  });
  for (size_t k = 0; k < sums.size(); ++k) sums[k].Store(y, k);
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Attrs& a = node.attrs();
  const DType dtype = node.type().dtype;
  std::string body;
  if (Attr<kAttrs, "reducer">(a) == kScatterSet) {
    const std::string type = ToString(Type::Scalar(dtype));
    body = absl::StrCat("{^bb0(%old: ", type, ", %new: ", type, "): \"stablehlo.return\"(%new) : (", type, ") -> ()}");
  } else {
    body = writer.Reducer(StableHloOf(static_cast<Reducer>(Attr<kAttrs, "reducer">(a))), dtype);
  }
  writer.Emit("scatter",
              {{"scatter_dimension_numbers", ShloScatterDims(Read(a, node.type().dims, node.operands()[2].dims()))},
               {"indices_are_sorted", ShloBool(false)},
               {"unique_indices", ShloBool(false)}},
              body);
}

// The body as one of the reducers; "set" gives the update. Nothing if it is none of them.
std::optional<int64_t> ReducerOfBody(const ShloRegion& region) {
  const Function& body = *region.function;
  const bool plain = region.captures.empty() && body.parameters().size() == 2 && body.results().size() == 1;
  if (plain && body.results()[0] == body.parameters()[1]) return kScatterSet;
  const std::optional<Reducer> reducer = ReducerOf(body);
  return plain && reducer ? std::optional(static_cast<int64_t>(*reducer)) : std::nullopt;
}

Values Read(StableHloOp& op) {
  op.Understand({"indices_are_sorted", "unique_indices"});
  Attrs attrs = op.SchemaAttrs();
  const auto reducer = op.regions.size() == 1 && op.operands.size() == 3 ? ReducerOfBody(op.regions[0]) : std::nullopt;
  if (!reducer) return ReadByBody(op, kOp_scatter_by);
  attrs.set(AttrPosition<kAttrs, "reducer">(), *reducer);
  return {Call(op.b, kOp_scatter, op.operands, std::move(attrs))};
}

#define WEFT_ROWS " update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1"
constexpr Sample kSamples[] = {
    {"T[5,3] i32[4]<0:5> T[4,3]" WEFT_ROWS " reducer=sum"},
    {"T[5,3] i32[4]<-2:7> T[4,3]" WEFT_ROWS " reducer=sum"},
    {"T[5,3] i64[1]<0:5> T[1,3]" WEFT_ROWS " reducer=set"},
    {"T[5,3] i32[6]<0:5> T[6,3]" WEFT_ROWS " reducer=set"},
    {"T[5,3] i32[6]<0:5> T[6,3]" WEFT_ROWS " reducer=max"},
    {"T[5,3] i32[6]<-1:7> T[6,3]" WEFT_ROWS " reducer=min"},
    {"i32[5,3] i32[6]<0:5> i32[6,3]" WEFT_ROWS " reducer=prod"},
    {"T[5,3] i32[6]<-1:7> T[6,3]" WEFT_ROWS " reducer=prod"},
    {"u8[5,3] i32[6]<0:5> u8[6,3]" WEFT_ROWS " reducer=and"},
    {"bool[5,3] i32[6]<0:5> bool[6,3]" WEFT_ROWS " reducer=or"},
    {"T[4,6] i32[2,2]<0:3> T[2,2,3] update_window_dims=[1,2] inserted_window_dims=[] "
     "scatter_dims_to_operand_dims=[0,1] "
     "index_vector_dim=1 reducer=sum"},
    {"T[2,5,3] i32[2,4]<0:5> T[2,4,3] update_window_dims=[2] inserted_window_dims=[1] "
     "scatter_dims_to_operand_dims=[1] "
     "index_vector_dim=2 reducer=sum input_batching_dims=[0] scatter_indices_batching_dims=[0]"},
    {"T[7] u8[]<0:7> T[] update_window_dims=[] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] "
     "index_vector_dim=0 reducer=set"},
    {"T[5,3] i32[0]<0:5> T[0,3]" WEFT_ROWS " reducer=sum"},
    {"T[0,3] i32[2]<0:5> T[2,3]" WEFT_ROWS " reducer=sum"}};
#undef WEFT_ROWS

// The examples of all three run along.
absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  Attrs attrs = call.node.attrs();
  constexpr size_t kInputBatching = AttrPosition<kAttrs, "input_batching_dims">(),
                   kIndicesBatching = AttrPosition<kAttrs, "scatter_indices_batching_dims">();
  for (const size_t i : {AttrPosition<kAttrs, "update_window_dims">(), AttrPosition<kAttrs, "inserted_window_dims">(),
                         AttrPosition<kAttrs, "scatter_dims_to_operand_dims">(), kInputBatching, kIndicesBatching}) {
    attrs.set(i, Shifted(attrs.IntList(i)));
  }
  attrs.set(AttrPosition<kAttrs, "index_vector_dim">(), Shifted(Attr<kAttrs, "index_vector_dim">(attrs)));
  for (const size_t i : {kInputBatching, kIndicesBatching}) attrs.set(i, Before(0, attrs.IntList(i)));
  results[0] = Call(call.b, call.node.op(), AllBatched(call), std::move(attrs));
  return absl::OkStatus();
}

Splits OnPlanes(const PlanesCall& call) {
  if (static_cast<Reducer>(Attr<kAttrs, "reducer">(call.attrs())) != Reducer::kProd) return EachPlane(call);
  const Planes &x = call.planes(0), &updates = call.planes(2);
  return MultiplyPlanes(call, kOp_scatter_by, {x.re, x.im, call.operands[1].whole, updates.re, updates.im},
                        WithoutAttr(call, AttrPosition<kAttrs, "reducer">()));
}

}  // namespace

constinit const OpDef kOp_scatter = {
    .name = "scatter",
    .c_name = "scatter",
    .doc =
        "x with updates combined into boxes at computed places, StableHLO's scatter with all its dimension numbers. "
        "What would fall outside is left out; where boxes overlap with reducer set, the last one stays on the CPU. "
        "Sums and products of f16 and bf16 are rounded once. The gradient of max and min is shared by equal extremes, and "
        "NaN where the result is; that of prod holds at zeros, too.",
    .example =
        "y = wf_scatter(s, x, ids, rows, WF_INTS(1), WF_INTS(0), WF_INTS(0), 1, "
        "WEFT_SCATTER_REDUCER_SUM);",
    .operands = kOperands,
    .attrs = kAttrs,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .stablehlo = StableHlo,
    .read = Read,
    .samples = kSamples,
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 1e-6},
    .rounds_once = true,
    .planes = OnPlanes,
    .work = WorkOfUpdates,
};

}  // namespace weft::ops
