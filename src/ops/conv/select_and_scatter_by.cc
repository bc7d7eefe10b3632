// select_and_scatter_by: takes each source element in where a function has chosen one of the window's elements.
#include "src/ops/batching.h"
#include "src/ops/conv/window.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/scalar_function.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc =
         "operand, what is chosen from; source, one element a window; a scalar that the result begins as; the scalars that "
         "select captures, then those that scatter does",
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"window_dimensions", AttrType::kInts, "size of the window in each dimension", true},
    {"window_strides", AttrType::kInts, "step of the window in each dimension; absent: 1"},
    {"padding", AttrType::kInts, "low and high of each dimension: [low0, high0, low1, …]; absent: 0"},
};
constexpr RegionDef kRegions[] = {
    {"select", "the element chosen so far, another one and its captures in; whether the first stays, a bool, out"},
    {"scatter", "the scalar there, a source element and its captures in, a scalar out"}};
constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions},
                              {Part::kExample, Reason::kCarriesFunctions},
                              {Part::kReference, Reason::kExpands}};

constexpr WindowAttrs kWindows = {.sizes = AttrPosition<kAttrs, "window_dimensions">(),
                                  .strides = AttrPosition<kAttrs, "window_strides">(),
                                  .padding = AttrPosition<kAttrs, "padding">()};

absl::StatusOr<std::vector<Window>> Windows(const OpDef& op, const Attrs& attrs, const Dims& dims) {
  return WindowsOf(op, attrs, dims, kWindows);
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Function &select = *call.regions[0], &scatter = *call.regions[1];
  if (call.operands.size() < 3) {
    return UserError("operand, source and a first value are needed; there are ", call.operands.size(), " operands");
  }
  const Type &x = *call.operands[0], &source = *call.operands[1], &first = *call.operands[2];
  if (source.dtype != x.dtype || !(first == Type::Scalar(x.dtype))) {
    return UserError("operand is ", ShortType(x), ", source ", ShortType(source), ", the first value ",
                     ShortType(first), "; they must have one dtype, and the first value must be a scalar");
  }
  std::vector<DType> captures;
  for (const Type* capture : call.operands.subspan(3)) {
    if (!capture->dims.empty()) return UserError("a capture is ", ShortType(*capture), "; it must be a scalar");
    captures.push_back(capture->dtype);
  }
  const size_t asked = select.parameters().size(), taken = scatter.parameters().size();
  if (asked < 2 || taken < 2 || asked + taken != captures.size() + 4) {
    return UserError("the functions @", select.name(), " and @", scatter.name(), " take ", asked, " and ", taken,
                     " scalars; each takes two and its captures, of which there are ", captures.size());
  }
  const size_t asks = asked - 2;
  const DType truth[] = {DType::kBool}, same[] = {x.dtype};
  std::vector<DType> types = {x.dtype, x.dtype};
  types.insert(types.end(), captures.begin(), captures.begin() + static_cast<int64_t>(asks));
  WEFT_RETURN_IF_ERROR(CheckScalarFunction(select, types, truth));
  types.resize(2);
  types.insert(types.end(), captures.begin() + static_cast<int64_t>(asks), captures.end());
  WEFT_RETURN_IF_ERROR(CheckScalarFunction(scatter, types, same));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Window> windows, Windows(call.op, call.attrs, x.dims));
  Dims dims;
  for (const Window& w : windows) dims.push_back(w.out());
  if (source.dims != dims) {
    return UserError("source has shape ", DimsToString(source.dims), "; the windows over ", DimsToString(x.dims),
                     " number ", DimsToString(dims));
  }
  results->push_back(x);
  return absl::OkStatus();
}

absl::Status Gradient(const GradCall& call, std::span<Value>) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "select_and_scatter by the functions @",
                     call.node.regions()[0]->name(), " and @", call.node.regions()[1]->name(),
                     " has no gradient; what adds to the largest element is select_and_scatter, which has");
}

absl::Status Batching(const BatchCall& call, std::span<Value> results) {
  return BatchInputs(call, 2, WithExamples(call.node.attrs(), kWindows), results);
}

// Which element each window chooses is a reduction of pairs, element and position (-1: none yet); the source is scattered there.
absl::Status Expansion(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Ref<const Function>&select = call.regions[0], &scatter = call.regions[1];
  const Value &x = call.operands[0], &source = call.operands[1], &first = call.operands[2];
  const int64_t count = x.type().count(), sources = source.type().count();
  const DType position = count > INT32_MAX ? DType::kI64 : DType::kI32;
  const size_t asks = select->parameters().size() - 2;
  const Values captures(call.operands.begin() + 3, call.operands.end());
  std::vector<DType> types = {x.dtype(), position, x.dtype(), position};
  for (size_t c = 0; c < asks; ++c) types.push_back(captures[c].dtype());
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> choose,
                        MakeScalarFunction(select->name(), types, [&](Builder& inner, std::span<const Value> p) {
                          std::vector<Value> asked = {p[0], p[2]};
                          asked.insert(asked.end(), p.begin() + 4, p.end());
                          const Value there = Compare(inner, Direction::kGe, p[1], 0),
                                      other = Compare(inner, Direction::kGe, p[3], 0);
                          const Value better = Call(inner, kOp_bitwise_or,
                                                    {Call(inner, kOp_bitwise_not, {other}), Inline(*select, asked)[0]});
                          const Value stays = And(inner, there, better);
                          return Values{Select(inner, stays, p[0], p[2]), Select(inner, stays, p[1], p[3])};
                        }));
  const Value positions = Reshape(b, Iota(b, position, {count}, 0), x.dims());
  Values operands = {x, positions, Scalar(b, x.dtype(), 0), Scalar(b, position, -1)};
  operands.insert(operands.end(), captures.begin(), captures.begin() + static_cast<int64_t>(asks));
  Attrs windows = {call.attrs.at(0)};
  if (call.attrs.has(1)) windows.set(1, call.attrs.at(1));
  if (call.attrs.has(2)) windows.set(4, call.attrs.at(2));
  const Values chosen = CallAll(b, kOp_reduce_window_by, std::move(operands), std::move(windows), {&choose, 1});
  if (!b.ok()) return b.status();
  Values updates = {BroadcastTo(b, first, {count}), Reshape(b, chosen[1], {sources}), Reshape(b, source, {sources})};
  updates.insert(updates.end(), captures.begin() + static_cast<int64_t>(asks), captures.end());
  const Values scattered = ScatterBy(b, std::move(updates), scatter, {Ints{}, Ints{0}, Ints{0}, int64_t{1}});
  results[0] = Reshape(b, scattered[0], x.dims());
  return b.status();
}

void StableHlo(const Node& node, StableHloWriter& writer) {
  auto windows = Windows(node.op(), node.attrs(), node.operands()[0].dims());
  if (!windows.ok()) return writer.Fail(windows.status());
  std::vector<std::string> operands;
  for (const Value& operand : node.operands().first(3)) operands.push_back(writer.Name(operand));
  const size_t asks = node.regions()[0]->parameters().size() - 2;
  const std::span<const Value> captures = node.operands().subspan(3);
  std::string regions = writer.Body(*node.regions()[0], captures.first(asks));
  absl::StrAppend(&regions, ", ", writer.Body(*node.regions()[1], captures.subspan(asks)));
  ShloAttrs attrs;
  for (auto& attr : ShloWindows(*windows)) {
    if (!attr.first.ends_with("dilations")) attrs.push_back(std::move(attr));
  }
  writer.EmitOn("select_and_scatter", operands, std::move(attrs), regions);
}

}  // namespace

constinit const OpDef kOp_select_and_scatter_by = {
    .name = "weft.select_and_scatter_by",
    .c_name = "select_and_scatter_by",
    .kind = Kind::kComposite,
    .doc =
        "A tensor of operand's shape that begins as one scalar everywhere and takes each source element in, by the function "
        "scatter, where the function select has chosen one of the window's elements: StableHLO's select_and_scatter with any "
        "bodies. An element of the window stays chosen as long as select holds of it and the next, in row-major order. What "
        "adds to the largest element is select_and_scatter. For recorded functions; not callable from C yet.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResult,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expansion,
    .batching = Batching,
    .lowering = Lowering::kExpand,
    .stablehlo = StableHlo,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .on_bytes = true,
};

namespace {

// Tells whether the function compares its two scalars by >=.
bool ComparesGe(const Function& select) {
  if (select.parameters().size() != 2 || select.results().size() != 1) return false;
  const Node& node = *select.results()[0].node;
  return &node.op() == &kOp_compare && node.attrs().Int(0) == static_cast<int64_t>(Direction::kGe) &&
         node.operands()[0] == select.parameters()[0] && node.operands()[1] == select.parameters()[1];
}

}  // namespace

Value SelectAndScatterBy(Builder& b, Values operands, const Ref<const Function>& select,
                         const Ref<const Function>& scatter, const Attrs& windows) {
  if (!b.ok()) return {};
  const bool plain = operands.size() == 3 && ComparesGe(*select) && PlainReducer(*scatter) == Reducer::kSum &&
                     IsNeutral(operands[2], Reducer::kSum) && Contains(kNumber, operands[0].dtype());
  if (plain) {
    Attrs attrs = windows;
    attrs.set(SelectAndScatterAttrs::kSelect, int64_t{1});  // ge
    return Call(b, kOp_select_and_scatter, {operands[0], operands[1]}, std::move(attrs));
  }
  return Call(b, kOp_select_and_scatter_by, std::move(operands), windows, std::vector{select, scatter});
}

}  // namespace weft::ops
