// scan and for: a function so many times, which carries values, reads a slice of some tensors and writes one of others each time.
#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/control/captures.h"
#include "src/ops/control/scan.h"
#include "src/ops/parameter.h"
#include "src/ops/work.h"

namespace weft::ops {

using namespace ir;

absl::StatusOr<ScanParts> PartsOf(const Attrs& attrs, const Function& body) {
  ScanParts p{};
  p.length = Attr<kScanAttrs, "length">(attrs);
  const int64_t carried = Attr<kScanAttrs, "carried">(attrs), scanned = Attr<kScanAttrs, "scanned">(attrs);
  if (p.length < 0 || p.length > INT32_MAX) return UserError("length is ", p.length, "; it must be 0 to ", INT32_MAX);
  const auto parameters = static_cast<int64_t>(body.parameters().size());
  p.counted = Attr<kScanAttrs, "counted">(attrs) ? 1 : 0;
  p.indexed = Attr<kScanAttrs, "indexed">(attrs) ? 1 : 0;
  p.reverse = Attr<kScanAttrs, "reverse">(attrs);
  p.kept = Attr<kScanAttrs, "kept">(attrs);
  const int64_t every = Attr<kScanAttrs, "keep_every">(attrs);
  if (every < 1) return UserError("keep_every is ", every, "; it must be at least 1");
  const int64_t taken = static_cast<int64_t>(p.indexed) + carried + scanned;
  if (carried < 0 || scanned < 0 || taken > parameters) {
    return UserError("the function @", body.name(), " has ", parameters, " parameters; ", carried,
                     " values are carried and ", scanned, " tensors scanned",
                     p.indexed != 0 ? ", and it takes the index" : "");
  }
  if (static_cast<size_t>(carried) > body.results().size()) {
    return UserError(carried, " values are carried; the function @", body.name(), " has ", body.results().size(),
                     " results");
  }
  p.carried = static_cast<size_t>(carried);
  p.every = carried == 0 ? 1 : std::clamp<int64_t>(p.length, 1, every);  // without what is carried nothing is kept
  p.scanned = static_cast<size_t>(scanned);
  p.captures = static_cast<size_t>(parameters - taken);
  p.sliced = body.results().size() - p.carried;
  return p;
}

Type Stacked(const Type& slice, int64_t length) {
  Dims dims = {length};
  dims.insert(dims.end(), slice.dims.begin(), slice.dims.end());
  return Type::Tensor(slice.dtype, dims);
}

Value Row(Builder& b, const Value& stack, const Value& at) {
  Values operands = {stack, at};
  const Value zero = Scalar(b, DType::kI32, 0);
  for (size_t d = 1; d < stack.dims().size(); ++d) operands.push_back(zero);
  Ints sizes = ToInts(stack.dims());
  sizes[0] = 1;
  const Value row = Call(b, kOp_dynamic_slice, std::move(operands), {std::move(sizes)});
  return Reshape(b, row, Dims(stack.dims().begin() + 1, stack.dims().end()));
}

Value WithRow(Builder& b, const Value& stack, const Value& at, const Value& row) {
  Dims dims = stack.dims();
  dims[0] = 1;
  Values operands = {stack, Reshape(b, row, dims), at};
  const Value zero = Scalar(b, DType::kI32, 0);
  for (size_t d = 1; d < dims.size(); ++d) operands.push_back(zero);
  return Call(b, kOp_dynamic_update_slice, std::move(operands));
}

namespace {

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc =
         "the count, an i32 scalar, if counted; first values of what is carried, what is scanned, the body's captures",
     .optional = true,
     .variadic = true,
     .group = 0}};
constexpr RegionDef kRegions[] = {
    {"body", "the index, what is carried, slices, captures in; what is carried next and slices out"}};
constexpr std::string_view kResults[] = {"results"};

// The limit of operations written by unrolling: 256 MB of nodes.
constexpr int64_t kMostWritten = int64_t{1} << 20;

absl::Status CheckScanned(const Function& body, size_t i, const Type& slice, const Type& given, int64_t length) {
  if (given == Stacked(slice, length)) return absl::OkStatus();
  return UserError("scanned tensor ", i, " is ", ShortType(given), "; the function @", body.name(), " takes slices ",
                   ShortType(slice), ", for ", length, " of which it must be ", ShortType(Stacked(slice, length)));
}

absl::Status CheckUnroll(const Function& body, int64_t unroll, int64_t length) {
  if (unroll < 1) return UserError("unroll is ", unroll, "; it must be at least 1");
  const int64_t runs = std::min(unroll, length);
  if (runs <= 1) return absl::OkStatus();
  const int64_t size = WrittenOut(body);
  if (size <= kMostWritten / runs) return absl::OkStatus();
  return UserError("unroll is ", unroll, "; so many runs of the function @", body.name(), ", of ", size,
                   " operations each, are more than the ", kMostWritten, " operations that may be written out");
}

absl::Status Infer(const InferCall& call, Types* results) {
  const Function& body = *call.regions[0];
  WEFT_ASSIGN_OR_RETURN(const ScanParts p, PartsOf(call.attrs, body));
  WEFT_RETURN_IF_ERROR(CheckUnroll(body, Attr<kScanAttrs, "unroll">(call.attrs), p.length));
  size_t given = call.operands.size();
  while (given > 0 && call.operands[given - 1] == nullptr) --given;
  if (given != p.counted + p.carried + p.scanned + p.captures) {
    return UserError(p.carried, " values are carried, ", p.scanned, " tensors scanned, ", p.captures,
                     " captured; there are ", given - std::min(given, p.counted), " operands");
  }
  if (p.counted != 0 && !(*call.operands[0] == Type::Scalar(DType::kI32))) {
    return UserError("the count is ", ShortType(*call.operands[0]), "; it must be ",
                     ShortType(Type::Scalar(DType::kI32)));
  }
  if (p.indexed != 0 && !(body.parameters()[0].type() == Type::Scalar(DType::kI32))) {
    return UserError("the first parameter of the function @", body.name(), " is ",
                     ShortType(body.parameters()[0].type()), "; the index is ", ShortType(Type::Scalar(DType::kI32)));
  }
  const auto operands = call.operands.subspan(p.counted);
  WEFT_RETURN_IF_ERROR(CheckParameters(body, p.indexed, operands.first(p.carried)));
  for (size_t i = 0; i < p.scanned; ++i) {
    WEFT_RETURN_IF_ERROR(
        CheckScanned(body, i, body.parameters()[p.indexed + p.carried + i].type(), *operands[p.carried + i], p.length));
  }
  WEFT_RETURN_IF_ERROR(CheckParameters(body, p.first_capture(), operands.subspan(p.carried + p.scanned, p.captures)));
  for (size_t i = 0; i < p.carried; ++i) WEFT_RETURN_IF_ERROR(CheckCarried(body, i, *operands[i]));
  for (size_t i = 0; i < body.results().size(); ++i) {
    const Type& result = body.results()[i].type();
    results->push_back(i < p.carried ? result : Stacked(result, p.length));
  }
  for (size_t i = 0; p.kept && i < p.carried; ++i) results->push_back(Stacked(*operands[i], p.segments()));
  return absl::OkStatus();
}

std::vector<Value> Parameters(std::span<const Type> types) {
  std::vector<Value> parameters;
  for (const Type& type : types) parameters.push_back(Parameter(type));
  return parameters;
}

// In terms of while. The loop carries how often it has run, what the body carries, then stacks of slices and of what is kept.
struct Loop {
  const ExpandCall& call;
  const ScanParts p;
  const Function& body;

  // How often the body runs, bounded where rows of stacks are written.
  Value Count() const {
    const Value length = Scalar(call.b, DType::kI32, static_cast<double>(p.length));
    if (p.counted == 0) return length;
    return p.kept || p.sliced > 0 ? Minimum(call.b, call.operands[0], length) : call.operands[0];
  }

  std::vector<Value> First() const {
    const std::span<const Value> carried = call.operands.subspan(p.counted, p.carried);
    std::vector<Value> state = {Scalar(call.b, DType::kI32, 0)};
    state.insert(state.end(), carried.begin(), carried.end());
    const auto stack = [&](const Type& slice, int64_t rows) {
      state.push_back(Full(call.b, slice.dtype, Stacked(slice, rows).dims, 0));
    };
    for (size_t i = 0; i < p.sliced; ++i) stack(body.results()[p.carried + i].type(), p.length);
    for (size_t i = 0; p.kept && i < p.carried; ++i) stack(carried[i].type(), p.segments());
    return state;
  }

  // With what is carried into a run, if its segment begins there; else the row stays what it is.
  Value Keep(Builder& b, const Value& stack, const Value& run, const Value& carried) const {
    const Value every = Scalar(b, DType::kI32, static_cast<double>(p.every)), at = Div(b, run, every);
    const Value begins = Compare(b, Direction::kEq, Call(b, kOp_rem, {run, every}), 0);
    return WithRow(b, stack, at, Select(b, begins, carried, Row(b, stack, at)));
  }

  // Runs the body so many times, one after the other. `outside`: scanned values, captures.
  std::vector<Value> Run(Builder& b, int64_t runs, std::vector<Value> state, const Value& count,
                         std::span<const Value> outside) const {
    for (int64_t i = 0; i < runs && b.ok(); ++i) state = RunOnce(b, state, count, outside);
    return state;
  }
  std::vector<Value> RunOnce(Builder& b, std::span<const Value> state, const Value& count,
                             std::span<const Value> outside) const {
    const Value one = Scalar(b, DType::kI32, 1);
    const Value at = p.reverse ? Sub(b, Sub(b, count, one), state[0]) : state[0];
    std::vector<Value> arguments;
    if (p.indexed != 0) arguments.push_back(at);
    for (size_t i = 0; i < p.carried; ++i) arguments.push_back(state[1 + i]);
    for (size_t i = 0; i < p.scanned; ++i) arguments.push_back(Row(b, outside[i], at));
    for (size_t i = 0; i < p.captures; ++i) arguments.push_back(outside[p.scanned + i]);
    if (!b.ok()) return {};
    const Values found = Inline(body, arguments);
    std::vector<Value> next = {Add(b, state[0], one)};
    for (size_t i = 0; i < p.carried; ++i) next.push_back(found[i]);
    for (size_t i = p.carried; i < found.size(); ++i) next.push_back(WithRow(b, state[1 + i], at, found[i]));
    for (size_t i = 0; p.kept && i < p.carried; ++i) {
      const Value& stack = state[1 + found.size() + i];
      next.push_back(p.every == 1 ? WithRow(b, stack, at, state[1 + i]) : Keep(b, stack, state[0], state[1 + i]));
    }
    return next;
  }

  // Repeats the body as long as fewer runs than `limit` have been made.
  absl::StatusOr<std::vector<Value>> Repeat(int64_t runs, std::span<const Value> state, const Value& limit,
                                            const Value& count, std::span<const Value> outside) const {
    std::vector<Type> types;
    for (const Value& value : state) types.push_back(value.type());
    types.push_back(limit.type());  // of one type with the count, which the body sees in its place
    std::vector<Value> asked = Parameters(types);
    Builder b(call.b.location());
    // A literal where steps are larger than 1: so everybody sees that none of them goes past the largest number.
    const Value last =
        runs > 1 ? Scalar(b, DType::kI32, static_cast<double>(p.length - p.length % runs)) : asked.back();
    const Value goes_on = Compare(b, Direction::kLt, asked.front(), last);
    for (const Value& value : outside) types.push_back(value.type());
    std::vector<Value> given = Parameters(types);
    const std::span<const Value> all(given);
    std::vector<Value> next = Run(b, runs, {all.begin(), all.begin() + static_cast<ptrdiff_t>(state.size())},
                                  all[state.size()], all.subspan(state.size() + 1));
    WEFT_RETURN_IF_ERROR(b.status());
    const Ref<const Function> condition = Function::Create("condition", std::move(asked), {goes_on});
    const Ref<const Function> again = Function::Create(body.name(), std::move(given), std::move(next));
    Values operands(state.begin(), state.end());
    operands.push_back(limit);
    operands.push_back(count);
    for (const Value& value : outside) operands.push_back(value);
    const Values out = CallAll(call.b, kOp_while, std::move(operands), {}, std::vector{condition, again});
    WEFT_RETURN_IF_ERROR(call.b.status());
    return std::vector<Value>(out.begin(), out.end());
  }
};

absl::Status Expansion(const ExpandCall& call, std::span<Value> results) {
  Builder& b = call.b;
  const Function& body = *call.regions[0];
  WEFT_ASSIGN_OR_RETURN(const ScanParts p, PartsOf(call.attrs, body));
  const Loop loop{call, p, body};
  const std::span<const Value> outside = call.operands.subspan(p.counted + p.carried, p.scanned + p.captures);
  const Value count = loop.Count();
  std::vector<Value> state = loop.First();
  WEFT_RETURN_IF_ERROR(b.status());
  if (p.counted != 0) {
    WEFT_ASSIGN_OR_RETURN(state, loop.Repeat(1, state, count, count, outside));
  } else {
    const int64_t unroll = std::max<int64_t>(std::min(Attr<kScanAttrs, "unroll">(call.attrs), p.length), 1);
    const int64_t rest = p.length % unroll;
    if (p.length > unroll) {
      const Value limit = Scalar(b, DType::kI32, static_cast<double>(p.length - rest));
      WEFT_ASSIGN_OR_RETURN(state, loop.Repeat(unroll, state, limit, count, outside));
      state = loop.Run(b, rest, std::move(state), count, outside);
    } else {
      state = loop.Run(b, p.length, std::move(state), count, outside);
    }
  }
  WEFT_RETURN_IF_ERROR(b.status());
  std::ranges::move(state.begin() + 1, state.end(), results.begin());
  return absl::OkStatus();
}

constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions},
                              {Part::kExample, Reason::kCarriesFunctions},
                              {Part::kReference, Reason::kExpands},
                              {Part::kStableHlo, Reason::kExpands}};

absl::StatusOr<Work> OwnWork(const WorkCall& call) {
  return WorkOfTimes(call, static_cast<double>(Attr<kScanAttrs, "length">(call.node.attrs())));
}

}  // namespace

constinit const OpDef kOp_scan = {
    .name = "weft.scan",
    .c_name = "scan",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "What is carried after the body has run length times, each time on one slice of what is scanned, and the slices that "
        "it gave each time, stacked; then, for gradients, what was carried into each run, or into every keep_every-th, stacked. "
        "JAX's scan. The C functions are weft_scan and weft_for.",
    .operands = kOperands,
    .attrs = kScanAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = ScanGradient,
    .expand = Expansion,
    .batching = ScanBatching,
    .lowering = Lowering::kExpand,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
    .work = OwnWork,
};

}  // namespace weft::ops
