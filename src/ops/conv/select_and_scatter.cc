// select_and_scatter: adds each source element to the largest operand element of its window. The gradient of
// max pooling.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ir/stablehlo.h"
#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/nan.h"
#include "src/ops/reducer_read.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {{"operand", kNumber, "what is compared"},
                                    {"source", kNumber, "what is added, one element a window"}};
constexpr std::string_view kSelections[] = {"largest", "ge"};
constexpr AttrDef kAttrs[] = {
    {"window_dimensions", AttrType::kInts, "size of the window in each dimension", true},
    {"window_strides", AttrType::kInts, "step of the window in each dimension; absent: 1"},
    {"padding", AttrType::kInts, "low and high of each dimension: [low0, high0, low1, …]; absent: 0"},
    {"select", AttrType::kEnum,
     "largest: NaN is larger than everything, as max says; ge: an element stays selected while it is >= the next, as StableHLO "
     "programs say, so that NaN gives way",
     false, "largest", kSelections},
};
constexpr Along kAlong[] = {Along::kEach, Along::kEach, Along::kPairs};

constexpr WindowAttrs kWindows = {.sizes = AttrPosition<kAttrs, "window_dimensions">(),
                                  .strides = AttrPosition<kAttrs, "window_strides">(),
                                  .padding = AttrPosition<kAttrs, "padding">()};

constexpr int64_t kLargest = 0, kGe = 1;
bool NanWins(const Attrs& attrs) { return Attr<kAttrs, "select">(attrs) == kLargest; }

absl::StatusOr<std::vector<Window>> Windows(const OpDef& op, const Attrs& attrs, const Dims& dims) {
  return WindowsOf(op, attrs, dims, kWindows);
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Type& x = *call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, x.dims));
  Dims dims;
  for (const Window& w : windows) dims.push_back(w.out());
  if (call.operands[1]->dims != dims) {
    return UserError("source has shape ", DimsToString(call.operands[1]->dims), "; the windows over ",
                     DimsToString(x.dims), " number ", DimsToString(dims));
  }
  results->push_back(x);
  return absl::OkStatus();
}

// The transpose takes from each window the cotangent at its largest element: a tournament over the window's taps, in
// the order of the reference. The operand only decides who wins, so its own slope is 0.
absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  if (!call.wanted[1]) return absl::OkStatus();
  Builder& b = call.b;
  const Value& source = call.operands[1];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows,
                        Windows(call.node.op(), call.node.attrs(), call.operands[0].dims()));
  Ints low, high, strides;
  Dims taps;
  for (const Window& w : windows) {
    low.push_back(w.low);
    high.push_back(w.high);
    strides.push_back(w.stride);
    taps.push_back(w.size);
  }
  constexpr int64_t kMostTaps = 256;  // five nodes each; a window of 16 x 16
  if (CheckedCount(taps).value_or(kMostTaps + 1) > kMostTaps) {
    return absl::UnimplementedError(absl::StrCat("the second derivative of max pooling over windows of ",
                                                 DimsToString(taps), " is not supported; ", kMostTaps,
                                                 " elements are"));
  }
  if (source.type().count() == 0) {
    grads[1] = FullLike(b, source, 0);
    return absl::OkStatus();
  }
  const Ints none(windows.size(), 0);
  // Padding never wins, not even against -inf or NaN: the reference does not see it.
  Value real;
  if (std::any_of(windows.begin(), windows.end(), [](const Window& w) { return w.low > 0 || w.high > 0; })) {
    real = Compare(b, Direction::kEq, Pad(b, Full(b, DType::kU8, call.operands[0].dims(), 1), 0, low, high, none), 1);
  }
  Value x = Pad(b, call.operands[0], -std::numeric_limits<double>::infinity(), low, high, none);
  Value c = Pad(b, call.cotangents[0], 0, low, high, none);
  Value best, taken, found;  // found: some tap so far was no padding
  ForEachIndex(taps, [&](int64_t, const Dims& tap) {
    Ints limit;
    for (size_t d = 0; d < windows.size(); ++d) {
      limit.push_back(tap[d] + (windows[d].out() - 1) * windows[d].stride + 1);
    }
    Value candidate = Slice(b, x, ToInts(tap), limit, strides);
    Value value = Slice(b, c, ToInts(tap), limit, strides);
    Value present = real ? Slice(b, real, ToInts(tap), limit, strides) : Value();
    if (!best) {
      best = candidate;
      taken = value;
      found = present;
      return;
    }
    Value keeps = Compare(b, Direction::kGe, best, candidate);
    if (NanWins(call.node.attrs())) keeps = Either(b, keeps, IsNan(b, best));
    if (present) {
      keeps = Either(b, Unary(b, kOp_bitwise_not, present), And(b, found, keeps));
      found = Either(b, found, present);
    }
    best = Select(b, keeps, best, candidate);
    taken = Select(b, keeps, taken, value);
  });
  grads[1] = taken;
  return absl::OkStatus();
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  results[0] = Call(call.b, call.node.op(), AllBatched(call), WithExamples(call.node.attrs(), kWindows));
  return absl::OkStatus();
}

absl::Status Reference(const ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const HostTensor& source = *call.operands[1];
  HostTensor& y = call.results[0];
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, x.dims()));
  const Dims strides = StridesOf(x.dims());
  const bool is_float = IsFloat(x.dtype()), nan_wins = NanWins(call.attrs);
  // The first of equals keeps the place.
  auto keeps = [&](int64_t selected, int64_t candidate) {
    if (is_float) {
      const double best = x.GetDouble(selected);
      return best >= x.GetDouble(candidate) || (nan_wins && std::isnan(best));
    }
    const int64_t a = x.GetInt(selected), b = x.GetInt(candidate);
    return IsUnsigned(x.dtype()) ? static_cast<uint64_t>(a) >= static_cast<uint64_t>(b) : a >= b;
  };
  std::vector<Accumulator> sums(y.count(), Accumulator(Reducer::kSum, y.dtype()));
  ForEachIndex(source.dims(), [&](int64_t at, const Dims& index) {
    int64_t selected = -1;
    ForEachUnder(windows, index, [&](const Dims& under) {
      int64_t candidate = 0;
      for (size_t d = 0; d < windows.size(); ++d) candidate += under[d] * strides[d];
      if (selected < 0 || !keeps(selected, candidate)) selected = candidate;
    });
    if (selected >= 0) sums[selected].Take(source, at);
  });
  for (int64_t k = 0; k < y.count(); ++k) sums[k].Store(y, k);
  return absl::OkStatus();
}

double LargestNumber(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 0x1.FFCp15;
    case DType::kBF16: return 0x1.FEp127;
    case DType::kF32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

// Makes an operand from which `>=` selects as `largest` does from x: NaN becomes infinite, and infinity the largest
// finite number. Not all plugins know comparisons other than >=. Only a window that holds both inf and that number, in
// the other order, gives another result.
std::string NanLargest(StableHloWriter& writer, const Value& x) {
  const Type& type = x.type();
  const auto full = [&](double value) {
    HostTensor scalar(x.dtype(), {});
    scalar.SetDouble(0, value);
    const std::string operand[] = {writer.Constant(scalar)};
    return writer.Op("broadcast_in_dim", operand, type, {{"broadcast_dimensions", ShloArray({})}});
  };
  const std::string same[] = {writer.Name(x), writer.Name(x)};
  const std::string nan = writer.Op("compare", same, Type::Tensor(DType::kBool, type.dims),
                                    {{"comparison_direction", ShloEnum("comparison_direction", "NE")}});
  const std::string finite[] = {writer.Name(x), full(LargestNumber(x.dtype()))};
  const std::string chosen[] = {nan, full(std::numeric_limits<double>::infinity()), writer.Op("minimum", finite, type)};
  return writer.Op("select", chosen, type);
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const Value& x = node.operands()[0];
  auto windows = Windows(node.op(), node.attrs(), x.dims());
  if (!windows.ok()) return writer.Fail(windows.status());
  Ints strides, low, high;
  for (const Window& w : *windows) {
    strides.push_back(w.stride);
    low.push_back(w.low);
    high.push_back(w.high);
  }
  const bool nan = NanWins(node.attrs()) && IsFloat(x.dtype()) && !IsNarrow(x.dtype());
  const std::string operands[] = {nan ? NanLargest(writer, x) : writer.Name(x), writer.Name(node.operands()[1]),
                                  writer.Constant(Identity(Reducer::kSum, x.dtype()))};
  writer.EmitOn("select_and_scatter", operands,
                {{"window_dimensions", ShloArray(Attr<kAttrs, "window_dimensions">(node.attrs()))},
                 {"window_strides", ShloArray(strides)},
                 {"padding", ShloPairs(low, high)}},
                absl::StrCat(writer.Comparer("GE", x.dtype()), ", ", writer.Reducer("add", x.dtype())));
}

// Without equal elements in a window: StableHLO leaves the order of comparisons open, XLA goes through columns first.
// The first of equals, as `>=` of the element so far and the next one selects.
bool SelectsLargest(const Function& body) {
  const Node& node = *body.results()[0].node;
  return body.parameters().size() == 2 && &node.op() == &kOp_compare && node.operands()[0] == body.parameters()[0] &&
         node.operands()[1] == body.parameters()[1] && node.attrs().Int(0) == static_cast<int64_t>(Direction::kGe);
}

Values Read(StableHloOp& op) {
  if (op.operands.size() != 3 || op.regions.size() != 2) {
    op.b.Fail(UserError(op.operands.size(), " operands and ", op.regions.size(), " regions; 3 and 2 are expected"));
    return {};
  }
  const Function &select = *op.regions[0].function, &scatter = *op.regions[1].function;
  if (select.results().size() != 1 || !SelectsLargest(select) || ReducerOf(scatter) != Reducer::kSum) {
    return ReadByBody(op, kOp_select_and_scatter_by);
  }
  Attrs attrs = op.SchemaAttrs();
  if (IsFloat(op.operands[0].dtype())) attrs.set(AttrPosition<kAttrs, "select">(), kGe);
  const Value sums = Call(op.b, kOp_select_and_scatter, {op.operands[0], op.operands[1]}, std::move(attrs));
  return {StartFrom(op.b, Reducer::kSum, op.operands[2], sums)};
}

constexpr Sample kSamples[] = {
    {"T[1,4,6,2] T[1,2,3,2] window_dimensions=[1,2,2,1] window_strides=[1,2,2,1]", -100, 100},
    {"T[5,7] T[5,3] window_dimensions=[3,2] window_strides=[1,3] padding=[1,1,0,1]", -100, 100},
    {"T[8] T[6] window_dimensions=[3]", -100, 100},
    {"T[0,4] T[0,3] window_dimensions=[1,2]", -100, 100}};

}  // namespace

constinit const OpDef kOp_select_and_scatter = {
    .name = "select_and_scatter",
    .c_name = "select_and_scatter",
    .doc =
        "For each window over operand, adds the window's source element to the place of its largest operand element, "
        "the first of equals, NaN being the largest of all: the gradient of max pooling. Zeros elsewhere.",
    .example = "dx = wf_select_and_scatter(s, x, dy, WF_INTS(1, 2, 2, 1));",
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
    .work = WorkOfElements,
    .along = kAlong,
};

}  // namespace weft::ops
