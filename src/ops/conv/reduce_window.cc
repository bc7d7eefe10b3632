// reduce_window: combines the elements under a window that slides over all dimensions.
#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/call.h"
#include "src/ops/conv/window_gradient.h"
#include "src/ops/planes.h"
#include "src/ops/reducer_read.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"x", kNumber | kC, "operand"}};
constexpr AttrDef kAttrs[] = {
    {"window_dimensions", AttrType::kInts, "size of the window in each dimension", true},
    {"reducer", AttrType::kEnum, "sum, prod, max, min, and, or", true, {}, kReducerNames},
    {"window_strides", AttrType::kInts, "step of the window in each dimension; absent: 1"},
    {"base_dilations", AttrType::kInts, "spacing of operand elements; absent: 1"},
    {"window_dilations", AttrType::kInts, "spacing of window elements; absent: 1"},
    {"padding", AttrType::kInts, "low and high of each dimension: [low0, high0, low1, …]; absent: 0"},
};
constexpr Along kAlong[] = {Along::kEach, Along::kNothing, Along::kEach, Along::kEach, Along::kEach, Along::kPairs};

constexpr WindowAttrs kWindows = {.sizes = AttrPosition<kAttrs, "window_dimensions">(),
                                  .strides = AttrPosition<kAttrs, "window_strides">(),
                                  .padding = AttrPosition<kAttrs, "padding">(),
                                  .base = AttrPosition<kAttrs, "base_dilations">(),
                                  .dilation = AttrPosition<kAttrs, "window_dilations">()};

absl::StatusOr<std::vector<Window>> Windows(const OpDef& op, const Attrs& attrs, const Dims& dims) {
  return WindowsOf(op, attrs, dims, kWindows);
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, x.dims));
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(call.attrs));
  if (IsComplex(x.dtype)) {
    WEFT_RETURN_IF_ERROR(CheckReducer(kReducerNames[Attr<kAttrs, "reducer">(call.attrs)], x.dtype));
  }
  if ((reducer == Reducer::kAnd || reducer == Reducer::kOr) && IsFloat(x.dtype)) {
    return UserError("reducer ", kReducerNames[Attr<kAttrs, "reducer">(call.attrs)], " takes integers, not ",
                     NameOf(x.dtype));
  }
  Dims dims;
  for (const Window& w : windows) dims.push_back(w.out());
  results->push_back(Type::Tensor(x.dtype, std::move(dims)));
  return absl::OkStatus();
}

// Sums: the cotangent, spread by the strides, under the same window slid the other way.
Value SumGradient(Builder& b, const Value& g, std::span<const Window> windows) {
  Ints sizes, strides, base, dilation, padding;
  for (const Window& w : windows) {
    const int64_t low = w.dilated_size() - 1 - w.low;
    sizes.push_back(w.size);
    strides.push_back(w.base_dilation);
    base.push_back(w.stride);
    dilation.push_back(w.dilation);
    padding.push_back(low);
    padding.push_back(w.dilated_in() + w.dilated_size() - 1 - Window::Dilated(w.out(), w.stride) - low);
  }
  return Call(b, kOp_reduce_window, {g},
              {sizes, static_cast<int64_t>(Reducer::kSum), strides, base, dilation, padding});
}

// Types of 8 bits and less add in f32: some have no sign, and some no zero, which is what most elements are given.
bool AddsWide(DType dtype) { return IsWidened(dtype) && BitsOf(dtype) < 16; }

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Attrs& attrs = call.node.attrs();
  const DType dtype = call.operands[0].dtype();
  const Value x = AddsWide(dtype) ? Widened(b, call.operands[0]) : call.operands[0];
  const Value g = AddsWide(dtype) ? Widened(b, call.cotangents[0]) : call.cotangents[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.node.op(), attrs, x.dims()));
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(attrs));
  if (reducer == Reducer::kSum) {
    grads[0] = Convert(b, SumGradient(b, g, windows), dtype);
    return absl::OkStatus();
  }
  bool plain = reducer == Reducer::kMax || reducer == Reducer::kMin;
  Ints strides, padding;
  for (const Window& w : windows) {
    plain = plain && w.base_dilation == 1 && w.dilation == 1;
    strides.push_back(w.stride);
    padding.push_back(w.low);
    padding.push_back(w.high);
  }
  if (!plain) {
    const bool product = reducer == Reducer::kProd;  // many factors round once
    WEFT_ASSIGN_OR_RETURN(const Value slope,
                          UnderGradient(b, product ? Widened(b, x) : x, product ? Widened(b, g) : g, reducer, windows));
    grads[0] = Convert(b, slope, dtype);
    return absl::OkStatus();
  }
  const Value sums = Call(b, kOp_select_and_scatter, {reducer == Reducer::kMax ? x : Neg(b, x), g},
                          {Attr<kAttrs, "window_dimensions">(attrs), strides, padding});
  grads[0] = Convert(b, sums, dtype);
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = Call(call.b, call.node.op(), {Batched(call, 0)}, WithExamples(call.node.attrs(), kWindows));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, x.dims()));
  const Dims strides = StridesOf(x.dims());
  ForEachIndex(y.dims(), [&](int64_t at, const Dims& index) {
    Accumulator result(static_cast<Reducer>(Attr<kAttrs, "reducer">(call.attrs)), x.dtype());
    ForEachUnder(windows, index, [&](const Dims& under) {
      int64_t from = 0;
      for (size_t d = 0; d < windows.size(); ++d) from += under[d] * strides[d];
      result.Take(x, from);
    });
    result.Store(y, at);
  });
  return absl::OkStatus();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Value& x = node.operands()[0];
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(node.attrs()));
  auto windows = Windows(node.op(), node.attrs(), x.dims());
  if (!windows.ok()) return writer.Fail(windows.status());
  const std::string operands[] = {writer.Name(x), writer.Constant(Identity(reducer, x.dtype()))};
  writer.EmitOn("reduce_window", operands, ShloWindows(*windows), writer.Reducer(StableHloOf(reducer), x.dtype()));
}

Values Read(StableHloOp& op) {
  Attrs attrs = op.SchemaAttrs();
  // For bools there is the general form alone.
  if (!op.operands.empty() && IsBool(op.operands[0].dtype())) return ReadByBody(op, kOp_reduce_window_by);
  return ReadReduction(op, kOp_reduce_window_by, [&](const Value& x, Reducer reducer) {
    attrs.set(AttrPosition<kAttrs, "reducer">(), static_cast<int64_t>(reducer));
    return Call(op.b, kOp_reduce_window, {x}, attrs);
  });
}

constexpr Sample kSamples[] = {
    {"T[1,4,6,2] window_dimensions=[1,2,2,1] reducer=max window_strides=[1,2,2,1]"},
    {"T[5,7] window_dimensions=[3,2] reducer=sum window_strides=[1,3] padding=[1,1,0,2]"},
    {"T[9] window_dimensions=[3] reducer=sum window_strides=[2] base_dilations=[2] window_dilations=[2] "
     "padding=[-1,3]"},
    {"T[8] window_dimensions=[3] reducer=min padding=[1,0]"},
    {"T[4,3] window_dimensions=[2,1] reducer=prod"},
    {"T[5] window_dimensions=[2] reducer=prod base_dilations=[2] padding=[1,1]"},
    {"T[9,3] window_dimensions=[3,2] reducer=max window_strides=[2,1] window_dilations=[2,1]"},
    {"T[2] window_dimensions=[3] reducer=sum"},
    {"T[0,4] window_dimensions=[1,2] reducer=sum"},
    {"T[4] window_dimensions=[2] reducer=max padding=[3,0]", -2, 2, false}};

Splits OnPlanes(const PlanesCall& call) {
  if (static_cast<Reducer>(Attr<kAttrs, "reducer">(call.attrs())) != Reducer::kProd) return EachPlane(call);
  return MultiplyPlanes(call, kOp_reduce_window_by, WithOne(call.b, call.planes(0)),
                        WithoutAttr(call, AttrPosition<kAttrs, "reducer">()));
}

bool GivesEnds(const Attrs& attrs) {
  const auto reducer = static_cast<Reducer>(Attr<kAttrs, "reducer">(attrs));
  return reducer == Reducer::kMax || reducer == Reducer::kMin;
}

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  return WorkOfWindows(call, Attr<kAttrs, "window_dimensions">(call.node.attrs()));
}

}  // namespace

constinit const OpDef kOp_reduce_window = {
    .name = "reduce_window",
    .c_name = "reduce_window",
    .doc =
        "Combines the elements under a window that slides over all dimensions; padding counts as the reducer's "
        "neutral element. Sums of f16 and bf16 are kept in f32. max and min propagate NaN; their gradient goes to the first of equals, "
        "or to the first NaN. For images see max_pool and avg_pool.",
    .example = "y = wf_reduce_window(s, x, WF_INTS(1, 2, 2, 1), WEFT_REDUCE_WINDOW_REDUCER_MAX);",
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
    .tolerance = {.f32 = 4e-6, .f64 = 1e-13, .bf16 = 1e-2, .f16 = 2e-3, .absolute = 4e-6},
    .rounds_once = true,
    .planes = OnPlanes,
    .work = OwnWork,
    .along = kAlong,
    .gives_ends = GivesEnds,
};

}  // namespace weft::ops
