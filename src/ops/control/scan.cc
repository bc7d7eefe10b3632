// scan and for: a function so many times, which carries values, reads a slice of some tensors and writes one of others each time.
#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/control/captures.h"

namespace weft::ops {
namespace {

using namespace ir;

constexpr OperandDef kOperands[] = {
    {.name = "operands",
     .types = kEveryType,
     .doc =
         "the count, an i32 scalar, if counted; first values of what is carried, what is scanned, the body's captures",
     .optional = true,
     .variadic = true,
     .group = 0}};
constexpr AttrDef kAttrs[] = {
    {"length", AttrType::kInt, "how often the body runs; counted: at most so often", true},
    {"carried", AttrType::kInt, "so many values are carried", true},
    {"scanned", AttrType::kInt, "so many tensors are scanned along their first axis", true},
    {"reverse", AttrType::kBool, "from the last index to the first", false, "false"},
    {"indexed", AttrType::kBool, "the body's first parameter is the index, an i32 scalar", false, "false"},
    {"counted", AttrType::kBool, "the first operand says how often the body runs", false, "false"},
    {"kept", AttrType::kBool, "what is carried into each run is kept, for gradients", false, "true"},
    {"unroll", AttrType::kInt, "so many runs of the body in one of the loop", false, "1"}};
constexpr RegionDef kRegions[] = {
    {"body", "the index, what is carried, slices, captures in; what is carried next and slices out"}};
constexpr std::string_view kResults[] = {"results"};

// By unrolling: 256 MB of nodes.
constexpr int64_t kMostWritten = int64_t{1} << 20;

// The parts of a scan, by number.
struct Parts {
  int64_t length;
  size_t counted, carried, scanned, indexed, captures, sliced;  // sliced: results of the body behind the carried ones
  bool reverse, kept;

  size_t first_capture() const { return indexed + carried + scanned; }  // of the body's parameters
};

absl::StatusOr<Parts> PartsOf(const Attrs& attrs, const Function& body) {
  Parts p{};
  p.length = Attr<kAttrs, "length">(attrs);
  const int64_t carried = Attr<kAttrs, "carried">(attrs), scanned = Attr<kAttrs, "scanned">(attrs);
  if (p.length < 0 || p.length > INT32_MAX) return UserError("length is ", p.length, "; it must be 0 to ", INT32_MAX);
  const auto parameters = static_cast<int64_t>(body.parameters().size());
  p.counted = Attr<kAttrs, "counted">(attrs) ? 1 : 0;
  p.indexed = Attr<kAttrs, "indexed">(attrs) ? 1 : 0;
  p.reverse = Attr<kAttrs, "reverse">(attrs);
  p.kept = Attr<kAttrs, "kept">(attrs);
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
  WEFT_ASSIGN_OR_RETURN(const Parts p, PartsOf(call.attrs, body));
  WEFT_RETURN_IF_ERROR(CheckUnroll(body, Attr<kAttrs, "unroll">(call.attrs), p.length));
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
  for (size_t i = 0; p.kept && i < p.carried; ++i) results->push_back(Stacked(*operands[i], p.length));
  return absl::OkStatus();
}

// Row `at` of a stack, without its first axis.
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

std::vector<Value> Parameters(std::span<const Type> types) {
  std::vector<Value> parameters;
  for (const Type& type : types) parameters.push_back({Node::Create(kOp_parameter, {}, {}, {type}), 0});
  return parameters;
}

// In terms of while. The loop carries how often it has run, what the body carries, then stacks of slices and of what is kept.
struct Loop {
  const ExpandCall& call;
  const Parts p;
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
    const auto stack = [&](const Type& slice) {
      state.push_back(Full(call.b, slice.dtype, Stacked(slice, p.length).dims, 0));
    };
    for (size_t i = 0; i < p.sliced; ++i) stack(body.results()[p.carried + i].type());
    for (size_t i = 0; p.kept && i < p.carried; ++i) stack(carried[i].type());
    return state;
  }

  // So many runs of the body, one after the other. `outside`: what is scanned, captures.
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
    for (size_t i = 0; p.kept && i < p.carried; ++i)
      next.push_back(WithRow(b, state[1 + found.size() + i], at, state[1 + i]));
    return next;
  }

  // As long as fewer runs than `limit` have been made.
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
  WEFT_ASSIGN_OR_RETURN(const Parts p, PartsOf(call.attrs, body));
  const Loop loop{call, p, body};
  const std::span<const Value> outside = call.operands.subspan(p.counted + p.carried, p.scanned + p.captures);
  const Value count = loop.Count();
  std::vector<Value> state = loop.First();
  WEFT_RETURN_IF_ERROR(b.status());
  if (p.counted != 0) {
    WEFT_ASSIGN_OR_RETURN(state, loop.Repeat(1, state, count, count, outside));
  } else {
    const int64_t unroll = std::max<int64_t>(std::min(Attr<kAttrs, "unroll">(call.attrs), p.length), 1);
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

// Of the gradient's body: where each kind of its parameters begins and what it computes.
struct Backward {
  const GradCall& call;
  const Parts& p;
  const Function& body;
  std::vector<size_t> flows;              // carried values that have a cotangent: the float ones
  std::vector<size_t> slices;             // float results behind the carried ones
  std::vector<size_t> scanned, captured;  // wanted
  bool stacks = false;                    // cotangents of what was kept arrive, as they do of second order

  size_t carried() const { return flows.size() + captured.size(); }
};

Backward Sort(const GradCall& call, const Parts& p, const Function& body) {
  Backward w{call, p, body, {}, {}, {}, {}};
  for (size_t i = 0; i < p.carried; ++i) {
    if (!IsFloat(body.results()[i].dtype())) continue;
    w.flows.push_back(i);
    w.stacks = w.stacks || (p.kept && call.cotangents[p.carried + p.sliced + i]);
  }
  for (size_t i = 0; i < p.sliced; ++i) {
    if (IsFloat(body.results()[p.carried + i].dtype())) w.slices.push_back(p.carried + i);
  }
  const size_t first = p.counted + p.carried;
  for (size_t i = 0; i < p.scanned; ++i) {
    if (call.wanted[first + i]) w.scanned.push_back(i);
  }
  for (size_t i = 0; i < p.captures; ++i) {
    if (call.wanted[first + p.scanned + i]) w.captured.push_back(i);
  }
  return w;
}

// One run backwards: cotangents of what was carried out and sums for the captures, slices of what was scanned and kept and of
// the cotangents, captures in; cotangents of what was carried in and sums, then cotangents of the scanned slices out.
absl::StatusOr<Ref<const Function>> BackwardBody(const Backward& w) {
  const Parts& p = w.p;
  absl::InlinedVector<bool, 16> wanted(w.body.parameters().size(), false);
  for (const size_t i : w.flows) wanted[p.indexed + i] = true;
  for (const size_t i : w.scanned) wanted[p.indexed + p.carried + i] = true;
  for (const size_t i : w.captured) wanted[p.first_capture() + i] = true;
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> gradient,
                        w.call.region_gradient(w.body, std::span(wanted.data(), wanted.size())));
  const auto type = [&](size_t parameter) { return w.body.parameters()[parameter].type(); };
  std::vector<Type> types;
  if (p.indexed != 0) types.push_back(type(0));
  for (const size_t i : w.flows) types.push_back(type(p.indexed + i));
  for (const size_t i : w.captured) types.push_back(type(p.first_capture() + i));
  const size_t scanned = types.size();
  for (size_t i = 0; i < p.scanned; ++i) types.push_back(type(p.indexed + p.carried + i));
  for (size_t i = 0; i < p.carried; ++i) types.push_back(type(p.indexed + i));
  const size_t slices = types.size();
  for (const size_t i : w.slices) types.push_back(w.body.results()[i].type());
  const size_t stacks = types.size();
  for (size_t i = 0; w.stacks && i < w.flows.size(); ++i) types.push_back(type(p.indexed + w.flows[i]));
  const size_t captures = types.size();
  for (size_t i = 0; i < p.captures; ++i) types.push_back(type(p.first_capture() + i));
  std::vector<Value> in = Parameters(types);
  std::vector<Value> arguments;
  if (p.indexed != 0) arguments.push_back(in[0]);
  for (size_t i = 0; i < p.carried; ++i) arguments.push_back(in[scanned + p.scanned + i]);
  for (size_t i = 0; i < p.scanned; ++i) arguments.push_back(in[scanned + i]);
  for (size_t i = 0; i < p.captures; ++i) arguments.push_back(in[captures + i]);
  for (size_t i = 0; i < w.flows.size(); ++i) arguments.push_back(in[p.indexed + i]);
  for (size_t i = 0; i < w.slices.size(); ++i) arguments.push_back(in[slices + i]);
  // In the order of the parameters: carried, scanned, captured.
  const Values found = Inline(*gradient, arguments);
  Builder b(w.call.b.location());
  std::vector<Value> out;
  for (size_t i = 0; i < w.flows.size(); ++i) out.push_back(w.stacks ? Add(b, found[i], in[stacks + i]) : found[i]);
  for (size_t i = 0; i < w.captured.size(); ++i) {
    out.push_back(Add(b, in[p.indexed + w.flows.size() + i], found[w.flows.size() + w.scanned.size() + i]));
  }
  for (size_t i = 0; i < w.scanned.size(); ++i) out.push_back(found[w.flows.size() + i]);
  WEFT_RETURN_IF_ERROR(b.status());
  return Intern(Function::Create(gradient->name(), std::move(in), std::move(out)));
}

absl::Status Gradient(const GradCall& call, std::span<Value> grads) {
  Builder& b = call.b;
  const Function& body = *call.node.regions()[0];
  const Attrs& attrs = call.node.attrs();
  WEFT_ASSIGN_OR_RETURN(const Parts p, PartsOf(attrs, body));
  if (!p.kept) {
    return UserErrorOf(
        absl::StatusCode::kUnimplemented,
        "a loop without a bound on its iterations has no reverse-mode gradient: say how many there are at "
        "most (max_count), so that what is carried into each can be kept");
  }
  const Backward w = Sort(call, p, body);
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> backward, BackwardBody(w));
  const auto cotangent = [&](size_t result) {
    return call.cotangents[result] ? call.cotangents[result] : FullLike(b, call.results[result], 0);
  };
  const size_t first = p.counted + p.carried, kept = p.carried + p.sliced;
  Values operands;
  if (p.counted != 0) operands.push_back(call.operands[0]);
  for (const size_t i : w.flows) operands.push_back(cotangent(i));
  for (const size_t i : w.captured) operands.push_back(FullLike(b, call.operands[first + p.scanned + i], 0));
  size_t scanned = operands.size();
  for (size_t i = 0; i < p.scanned; ++i) operands.push_back(call.operands[first + i]);
  for (size_t i = 0; i < p.carried; ++i) operands.push_back(call.results[kept + i]);
  for (const size_t i : w.slices) operands.push_back(cotangent(i));
  for (size_t i = 0; w.stacks && i < w.flows.size(); ++i) operands.push_back(cotangent(kept + w.flows[i]));
  scanned = operands.size() - scanned;
  for (size_t i = 0; i < p.captures; ++i) operands.push_back(call.operands[first + p.scanned + i]);
  Attrs said = attrs;
  said.set(AttrPosition<kAttrs, "carried">(), static_cast<int64_t>(w.carried()));
  said.set(AttrPosition<kAttrs, "scanned">(), static_cast<int64_t>(scanned));
  said.set(AttrPosition<kAttrs, "reverse">(), int64_t{p.reverse ? 0 : 1});
  const Values found = CallAll(b, kOp_scan, std::move(operands), std::move(said), {&backward, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  for (size_t i = 0; i < w.flows.size(); ++i) {
    if (call.wanted[p.counted + w.flows[i]]) grads[p.counted + w.flows[i]] = found[i];
  }
  for (size_t i = 0; i < w.captured.size(); ++i) grads[first + p.scanned + w.captured[i]] = found[w.flows.size() + i];
  for (size_t i = 0; i < w.scanned.size(); ++i) grads[first + w.scanned[i]] = found[w.carried() + i];
  return absl::OkStatus();
}

constexpr Absent kAbsent[] = {{Part::kSamples, Reason::kCarriesFunctions},
                              {Part::kExample, Reason::kCarriesFunctions},
                              {Part::kReference, Reason::kExpands},
                              {Part::kStableHlo, Reason::kExpands}};

}  // namespace

constinit const OpDef kOp_scan = {
    .name = "weft.scan",
    .c_name = "scan",
    .since = 1,
    .kind = Kind::kComposite,
    .doc =
        "What is carried after the body has run length times, each time on one slice of what is scanned, and the slices that "
        "it gave each time, stacked; then, for gradients, what was carried into each run, stacked. JAX's scan. The C functions "
        "are weft_scan and weft_for.",
    .operands = kOperands,
    .attrs = kAttrs,
    .regions = kRegions,
    .results = kResults,
    .infer = Infer,
    .gradient = Gradient,
    .expand = Expansion,
    .lowering = Lowering::kExpand,
    .absent = kAbsent,
    .exported = false,
    .rounds_once = true,
};

}  // namespace weft::ops
