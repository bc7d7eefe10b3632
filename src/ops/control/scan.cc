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
    {"unroll", AttrType::kInt, "so many runs of the body in one of the loop", false, "1"},
    {"keep_every", AttrType::kInt, "what is carried into every so many-th run is kept, the rest computed again", false,
     "1"}};
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
  int64_t every;  // of what is carried, what is kept

  int64_t segments() const { return length == 0 ? 0 : (length - 1) / every + 1; }
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
  const int64_t every = Attr<kAttrs, "keep_every">(attrs);
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
  for (size_t i = 0; p.kept && i < p.carried; ++i) results->push_back(Stacked(*operands[i], p.segments()));
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
    for (size_t i = 0; p.kept && i < p.carried; ++i) {
      const Value& stack = state[1 + found.size() + i];
      next.push_back(p.every == 1 ? WithRow(b, stack, at, state[1 + i]) : Keep(b, stack, state[0], state[1 + i]));
    }
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

  Value Cotangent(size_t result) const {
    return call.cotangents[result] ? call.cotangents[result] : FullLike(call.b, call.results[result], 0);
  }
  // Cotangents of what was carried, sums of the captures, cotangents of what was scanned.
  void Give(std::span<const Value> found, std::span<Value> grads) const {
    const size_t first = p.counted + p.carried;
    for (size_t i = 0; i < flows.size(); ++i) {
      if (call.wanted[p.counted + flows[i]]) grads[p.counted + flows[i]] = found[i];
    }
    for (size_t i = 0; i < captured.size(); ++i) grads[first + p.scanned + captured[i]] = found[flows.size() + i];
    for (size_t i = 0; i < scanned.size(); ++i) grads[first + scanned[i]] = found[carried() + i];
  }
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

// A function that is being made: its parameters, one after the other.
struct Signature {
  std::vector<Value> parameters;

  Value One(const Type& type) {
    parameters.push_back({Node::Create(kOp_parameter, {}, {}, {type}), 0});
    return parameters.back();
  }
  std::vector<Value> Many(std::span<const Value> like) {
    std::vector<Value> made;
    for (const Value& value : like) made.push_back(One(value.type()));
    return made;
  }
};

void Append(Values& all, std::span<const Value> more) { all.insert(all.end(), more.begin(), more.end()); }

// The gradient where of what is carried only that into every k-th run was kept. From the last segment of k runs to the first: it runs
// once more and keeps all that it carries, then backwards. Cotangents and sums go on from segment to segment, so that all is added in
// the order of the plain gradient, of which this has the bits. Cotangents of what is scanned are carried, too, and written row by row.
class Segments {
 public:
  explicit Segments(const Backward& w) : w_(w), p_(w.p), ragged_(p_.counted != 0 || p_.length % p_.every != 0) {}

  absl::Status Run(std::span<Value> grads) {
    Builder& b = w_.call.b;
    const GradCall& call = w_.call;
    const size_t first = p_.counted + p_.carried, kept = p_.carried + p_.sliced;
    Around around;
    if (p_.counted != 0) around.count = Minimum(b, call.operands[0], Number(b, p_.length));
    for (size_t i = 0; i < p_.scanned; ++i) around.scanned.push_back(call.operands[first + i]);
    for (size_t i = 0; i < p_.captures; ++i) around.captures.push_back(call.operands[first + p_.scanned + i]);
    for (const size_t i : w_.slices) {
      if (call.cotangents[i]) around.cotangents.push_back(call.cotangents[i]);
    }
    std::vector<Value> state, stacks;
    for (const size_t i : w_.flows) state.push_back(w_.Cotangent(i));
    for (const size_t i : w_.captured) state.push_back(FullLike(b, around.captures[i], 0));
    for (const size_t i : w_.scanned) state.push_back(FullLike(b, around.scanned[i], 0));
    for (size_t i = 0; i < p_.carried; ++i) stacks.push_back(call.results[kept + i]);
    for (size_t i = 0; w_.stacks && i < w_.flows.size(); ++i) stacks.push_back(w_.Cotangent(kept + w_.flows[i]));
    WEFT_RETURN_IF_ERROR(b.status());
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> segment, Segment(around, state, stacks));
    Values operands;
    if (p_.counted != 0) {
      const Value every = Number(b, p_.every), rest = Call(b, kOp_rem, {around.count, every});
      operands.push_back(Add(b, Div(b, around.count, every), Minimum(b, rest, Number(b, 1))));
    }
    Append(operands, state);
    Append(operands, stacks);
    Append(operands, around.All());
    const Runs runs = {p_.segments(), state.size(), 0, true, p_.counted != 0};
    const Values found = CallAll(b, kOp_scan, std::move(operands), runs.Attributes(), {&segment, 1});
    WEFT_RETURN_IF_ERROR(b.status());
    w_.Give(found, grads);
    return absl::OkStatus();
  }

 private:
  // What all runs have in common.
  struct Around {
    Value count;                             // how often the body runs, where that is known at run time
    std::vector<Value> scanned, cotangents;  // whole; of slices only those cotangents that there are
    std::vector<Value> captures;

    Values All() const {
      Values all;
      if (count) all.push_back(count);
      Append(all, scanned);
      Append(all, cotangents);
      Append(all, captures);
      return all;
    }
    Around In(Signature& s) const {
      Around in;
      if (count) in.count = s.One(count.type());
      in.scanned = s.Many(scanned);
      in.cotangents = s.Many(cotangents);
      in.captures = s.Many(captures);
      return in;
    }
  };

  // A scan that takes the index.
  struct Runs {
    int64_t length;
    size_t carried, scanned;
    bool reverse, counted;
    int64_t unroll = 1;

    Attrs Attributes() const {
      Attrs said;
      said.set(AttrPosition<kAttrs, "length">(), length);
      said.set(AttrPosition<kAttrs, "carried">(), static_cast<int64_t>(carried));
      said.set(AttrPosition<kAttrs, "scanned">(), static_cast<int64_t>(scanned));
      said.set(AttrPosition<kAttrs, "reverse">(), int64_t{reverse});
      said.set(AttrPosition<kAttrs, "indexed">(), int64_t{1});
      said.set(AttrPosition<kAttrs, "counted">(), int64_t{counted});
      said.set(AttrPosition<kAttrs, "unroll">(), unroll);
      return said;
    }
  };

  static Value Number(Builder& b, int64_t value) { return Scalar(b, DType::kI32, static_cast<double>(value)); }

  // The body's index in run `i` of the segment whose first run is `first`.
  Value At(Builder& b, const Around& around, const Value& first, const Value& i) const {
    const Value run = Add(b, first, i);
    if (!p_.reverse) return run;
    return Sub(b, Sub(b, around.count ? around.count : Number(b, p_.length), Number(b, 1)), run);
  }

  // What either body begins with: the index, what comes next, slices.
  std::vector<Value> Arguments(Builder& b, const Around& around, const Value& at, std::span<const Value> next) const {
    std::vector<Value> arguments;
    if (p_.indexed != 0) arguments.push_back(at);
    std::ranges::copy(next, std::back_inserter(arguments));
    for (const Value& stack : around.scanned) arguments.push_back(Row(b, stack, at));
    return arguments;
  }

  // One run forwards: its number in the segment, what is carried, the segment's first run and what is around in; what is carried next.
  absl::StatusOr<Ref<const Function>> Forward(const Around& outside) const {
    Signature s;
    Builder b(w_.call.b.location());
    const Value i = s.One(kNumber);
    const std::vector<Value> carried = s.Many(w_.body.parameters().subspan(p_.indexed, p_.carried));
    const Value first = s.One(kNumber);
    const Around around = outside.In(s);
    std::vector<Value> arguments = Arguments(b, around, At(b, around, first, i), carried);
    std::ranges::copy(around.captures, std::back_inserter(arguments));
    WEFT_RETURN_IF_ERROR(b.status());
    const Values found = Inline(w_.body, arguments);
    return Intern(Function::Create(w_.body.name(), std::move(s.parameters),
                                   {found.begin(), found.begin() + static_cast<ptrdiff_t>(p_.carried)}));
  }

  // One run backwards: its number in the segment, `state`, what was carried into it, the segment's first run and what is around in; the
  // next state.
  absl::StatusOr<Ref<const Function>> Back(const Around& outside, std::span<const Value> like) const {
    Backward plain = w_;
    plain.stacks = false;
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> run, BackwardBody(plain));
    Signature s;
    Builder b(w_.call.b.location());
    const Value i = s.One(kNumber);
    const std::vector<Value> state = s.Many(like);
    const std::vector<Value> carried = s.Many(w_.body.parameters().subspan(p_.indexed, p_.carried));
    const Value first = s.One(kNumber);
    const Around around = outside.In(s);
    const Value at = At(b, around, first, i);
    std::vector<Value> arguments = Arguments(b, around, at, std::span(state).first(w_.carried()));
    std::ranges::copy(carried, std::back_inserter(arguments));
    for (size_t k = 0, given = 0; k < w_.slices.size(); ++k) {
      const bool is = static_cast<bool>(w_.call.cotangents[w_.slices[k]]);
      arguments.push_back(is ? Row(b, around.cotangents[given++], at)
                             : FullLike(b, w_.body.results()[w_.slices[k]], 0));
    }
    std::ranges::copy(around.captures, std::back_inserter(arguments));
    WEFT_RETURN_IF_ERROR(b.status());
    const Values found = Inline(*run, arguments);
    std::vector<Value> next(found.begin(), found.begin() + static_cast<ptrdiff_t>(w_.carried()));
    for (size_t k = w_.carried(); k < found.size(); ++k) next.push_back(WithRow(b, state[k], at, found[k]));
    WEFT_RETURN_IF_ERROR(b.status());
    return Intern(Function::Create(run->name(), std::move(s.parameters), std::move(next)));
  }

  // One segment: its number, `state`, what was kept (and the cotangents of that), what is around in; the next state.
  absl::StatusOr<Ref<const Function>> Segment(const Around& outside, std::span<const Value> like,
                                              std::span<const Value> kept) const {
    Signature s;
    Builder b(w_.call.b.location());
    const Value number = s.One(kNumber);
    const std::vector<Value> state = s.Many(like), stacks = s.Many(kept);
    const Around around = outside.In(s);
    const Value first = Mul(b, number, Number(b, p_.every));
    Values again, back;
    if (ragged_) {
      const Value all = around.count ? around.count : Number(b, p_.length);
      again.push_back(Minimum(b, Sub(b, all, first), Number(b, p_.every)));
      back.push_back(again.front());
    }
    Around seen = around;
    seen.cotangents.clear();
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> forward, Forward(seen));
    for (size_t i = 0; i < p_.carried; ++i) again.push_back(Row(b, stacks[i], number));
    again.push_back(first);
    Append(again, seen.All());
    Runs runs = {p_.every, p_.carried, 0, false, ragged_, Attr<kAttrs, "unroll">(w_.call.node.attrs())};
    const Values run = CallAll(b, kOp_scan, std::move(again), runs.Attributes(), {&forward, 1});
    WEFT_RETURN_IF_ERROR(b.status());
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> backward, Back(around, state));
    Append(back, state);
    Append(back, std::span<const Value>(run.begin(), run.end()).subspan(p_.carried));
    back.push_back(first);
    Append(back, around.All());
    runs.carried = state.size(), runs.scanned = p_.carried, runs.reverse = true;
    const Values found = CallAll(b, kOp_scan, std::move(back), runs.Attributes(), {&backward, 1});
    WEFT_RETURN_IF_ERROR(b.status());
    std::vector<Value> next(found.begin(), found.begin() + static_cast<ptrdiff_t>(state.size()));
    for (size_t i = p_.carried; i < stacks.size(); ++i) {
      next[i - p_.carried] = Add(b, next[i - p_.carried], Row(b, stacks[i], number));
    }
    WEFT_RETURN_IF_ERROR(b.status());
    return Intern(Function::Create(absl::StrCat(w_.body.name(), ".segment"), std::move(s.parameters), std::move(next)));
  }

  const Type kNumber = Type::Scalar(DType::kI32);
  const Backward& w_;
  const Parts& p_;
  const bool ragged_;  // not every segment has as many runs
};

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
  if (p.every > 1) return Segments(w).Run(grads);
  WEFT_ASSIGN_OR_RETURN(const Ref<const Function> backward, BackwardBody(w));
  const size_t first = p.counted + p.carried, kept = p.carried + p.sliced;
  Values operands;
  if (p.counted != 0) operands.push_back(call.operands[0]);
  for (const size_t i : w.flows) operands.push_back(w.Cotangent(i));
  for (const size_t i : w.captured) operands.push_back(FullLike(b, call.operands[first + p.scanned + i], 0));
  size_t scanned = operands.size();
  for (size_t i = 0; i < p.scanned; ++i) operands.push_back(call.operands[first + i]);
  for (size_t i = 0; i < p.carried; ++i) operands.push_back(call.results[kept + i]);
  for (const size_t i : w.slices) operands.push_back(w.Cotangent(i));
  for (size_t i = 0; w.stacks && i < w.flows.size(); ++i) operands.push_back(w.Cotangent(kept + w.flows[i]));
  scanned = operands.size() - scanned;
  for (size_t i = 0; i < p.captures; ++i) operands.push_back(call.operands[first + p.scanned + i]);
  Attrs said = attrs;
  said.set(AttrPosition<kAttrs, "carried">(), static_cast<int64_t>(w.carried()));
  said.set(AttrPosition<kAttrs, "scanned">(), static_cast<int64_t>(scanned));
  said.set(AttrPosition<kAttrs, "reverse">(), int64_t{p.reverse ? 0 : 1});
  const Values found = CallAll(b, kOp_scan, std::move(operands), std::move(said), {&backward, 1});
  WEFT_RETURN_IF_ERROR(b.status());
  w.Give(found, grads);
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
        "it gave each time, stacked; then, for gradients, what was carried into each run, or into every keep_every-th, stacked. "
        "JAX's scan. The C functions are weft_scan and weft_for.",
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
