// reduce_window_by: combines the elements under a sliding window with a function, several tensors at once.
#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/planes.h"
#include "src/ops/scalar_function.h"
#include "src/ops/work.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc = "n inputs of one shape, then n scalars to begin with, then the scalars that the body captures",
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"window_dimensions", AttrType::kInts, "size of the window in each dimension", true},
    {"window_strides", AttrType::kInts, "step of the window in each dimension; absent: 1"},
    {"base_dilations", AttrType::kInts, "spacing of operand elements; absent: 1"},
    {"window_dilations", AttrType::kInts, "spacing of window elements; absent: 1"},
    {"padding", AttrType::kInts, "low and high of each dimension: [low0, high0, low1, …]; absent: 0"},
};
constexpr RegionDef kRegions[] = {{"body", "n scalars so far, n to be taken in and its captures in, n scalars out"}};
constexpr std::string_view kResults[] = {"results"};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions}, {Part::kExample, Reason::kCarriesFunctions}};

constexpr WindowAttrs kWindows = {.sizes = AttrPosition<kAttrs, "window_dimensions">(),
                                  .strides = AttrPosition<kAttrs, "window_strides">(),
                                  .padding = AttrPosition<kAttrs, "padding">(),
                                  .base = AttrPosition<kAttrs, "base_dilations">(),
                                  .dilation = AttrPosition<kAttrs, "window_dilations">()};

absl::StatusOr<std::vector<Window>> Windows(const OpDef& op, const Attrs& attrs, const Dims& dims) {
  return WindowsOf(op, attrs, dims, kWindows);
}

absl::Status Infer(const InferCall& call, Types* results) {
  WEFT_ASSIGN_OR_RETURN(const BodyOperands is, CheckReducingBody(call));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, call.operands[0]->dims));
  Dims dims;
  for (const Window& w : windows) dims.push_back(w.out());
  for (size_t i = 0; i < is.inputs; ++i) results->push_back(Type::Tensor(call.operands[i]->dtype, dims));
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value>) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "reduce_window by the function @",
                     call.node.regions()[0]->name(),
                     " has no gradient; what adds or compares one tensor's elements is reduce_window, which has");
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  return BatchInputs(call, results.size(), WithExamples(call.node.attrs(), kWindows), results);
}

// Padding and the gaps of dilation are not taken in.
absl::Status Reference(const ReferenceCall& call) {
  const Function& body = *call.regions[0];
  const size_t n = body.results().size();
  const Dims& dims = call.operands[0]->dims();
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, dims));
  const Dims strides = StridesOf(dims);
  std::vector<HostTensor> arguments(2 * n);
  for (size_t i = 2 * n; i < call.operands.size(); ++i) arguments.push_back(*call.operands[i]);
  absl::Status status;
  ForEachIndex(call.results[0].dims(), [&](int64_t at, const Dims& index) {
    for (size_t i = 0; i < n; ++i) CopyElement(*call.operands[n + i], 0, call.results[i], at);
    ForEachUnder(windows, index, [&](const Dims& under) {
      int64_t from = 0;
      for (size_t d = 0; d < windows.size(); ++d) from += under[d] * strides[d];
      for (size_t i = 0; i < n; ++i) {
        arguments[i] = ElementOf(call.results[i], at);
        arguments[n + i] = ElementOf(*call.operands[i], from);
      }
      if (!status.ok()) return;
      const absl::StatusOr<std::vector<HostTensor>> next = call.run(body, arguments);
      status = next.status();
      for (size_t i = 0; i < n && next.ok(); ++i) CopyElement((*next)[i], 0, call.results[i], at);
    });
  });
  return status;
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  const size_t n = node.results().size();
  auto windows = Windows(node.op(), node.attrs(), node.operands()[0].dims());
  if (!windows.ok()) return writer.Fail(windows.status());
  std::vector<std::string> operands;
  for (const Value& operand : node.operands().first(2 * n)) operands.push_back(writer.Name(operand));
  writer.EmitOn("reduce_window", operands, ShloWindows(*windows),
                writer.Body(*node.regions()[0], node.operands().subspan(2 * n)));
}

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  return WorkOfWindows(call, Attr<kAttrs, "window_dimensions">(call.node.attrs()));
}

}  // namespace

constinit const OpDef kOp_reduce_window_by = {
    .name = "reduce_window_by",
    .c_name = "reduce_window_by",
    .doc =
        "Combines the elements of n tensors under a window that slides over all dimensions with a function of scalars, in "
        "row-major order, beginning with given scalars: StableHLO's reduce_window with any body. Padding is not taken in, as "
        "by XLA. What adds, multiplies, compares or masks one tensor's elements is reduce_window. For recorded functions; not "
        "callable from C yet.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .batching = Batching,
    .lowering = Lowering::kKernel,
    .reference = Reference,
    .stablehlo = StableHlo,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .planes = InPlace,
    .work = OwnWork,
    .on_bytes = true,
};

Values ReduceWindowBy(Builder& b, std::span<const Value> inputs, std::span<const Value> inits,
                      const Ref<const Function>& body, const Attrs& windows, std::span<const Value> captures) {
  if (!b.ok()) return Values(inputs.size());
  const std::optional<Reducer> plain = PlainReducer(*body);
  const bool one = inputs.size() == 1 && inits.size() == 1 && captures.empty();
  if (one && plain && IsNeutral(inits[0], *plain) && Contains(kNumber | kC, inputs[0].dtype())) {
    Attrs attrs;
    attrs.set(0, windows.at(0));
    attrs.set(1, static_cast<int64_t>(*plain));
    for (size_t i = 1; i < 5; ++i) {
      if (windows.has(i)) attrs.set(i + 1, windows.at(i));
    }
    return CallAll(b, kOp_reduce_window, {inputs[0]}, std::move(attrs));
  }
  Values operands(inputs.begin(), inputs.end());
  operands.insert(operands.end(), inits.begin(), inits.end());
  operands.insert(operands.end(), captures.begin(), captures.end());
  return CallAll(b, kOp_reduce_window_by, std::move(operands), windows, {&body, 1});
}

}  // namespace weft::ops
