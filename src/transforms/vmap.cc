// See vmap.h. Inside, examples are always in front.
#include "src/transforms/vmap.h"

#include <algorithm>

#include "src/ir/rewrite.h"
#include "src/ops/batching.h"
#include "src/ops/parameter.h"
#include "src/ops/random/bits.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"

namespace weft::transforms {
namespace {

using ir::Builder;
using ir::Function;
using ir::Node;
using ir::Type;
using ir::Value;
using ir::Values;
using ops::Parameter;

// Functions within functions that nest deeper go over their examples one after the other: the stack is the caller's.
constexpr int kMostDepth = 64;

struct Item {
  Value value;
  bool mapped = false;
};
using Items = std::vector<Item>;

Type With(const Type& type, int64_t axis, int64_t size) {
  Dims dims = type.dims;
  dims.insert(dims.begin() + axis, size);
  return Type::Tensor(type.dtype, std::move(dims));
}

// Broadcasts a value that is the same for all examples: one copy for each.
Value Repeated(Builder& b, const Value& value, int64_t axis, int64_t size) {
  ir::Ints positions = ops::Axes(value.dims().size());
  for (int64_t& position : positions) position += position >= axis ? 1 : 0;
  return ops::BroadcastInDim(b, value, With(value.type(), axis, size).dims, std::move(positions));
}

class Batcher {
 public:
  Batcher(int64_t size, std::vector<std::string_view>* loops) : size_(size), loops_(loops) {}

  // The function's results at these arguments, on the builder.
  absl::Status Walk(Builder& b, const Function& function, std::span<const Item> arguments, int depth, Items* results);

 private:
  // See ir::RegionBatchFn. Each function is made once for all that carry it.
  absl::StatusOr<Ref<const Function>> Region(const Function& function, std::span<const bool> batched,
                                             std::span<const bool> wanted, int depth);

  absl::Status Add(Builder& b, const Node& node, const Items& operands, int depth, Items* results);
  absl::Status ByRule(Builder& b, const Node& node, const Items& operands, int depth, Values* results);
  bool ElementByElement(Builder& b, const Node& node, const Items& operands, Values* results) const;
  absl::Status Expansion(Builder& b, const Node& node, const Items& operands, int depth, Items* results);
  absl::Status OneAfterTheOther(Builder& b, const Node& node, const Items& operands, Values* results);

  const int64_t size_;
  std::vector<std::string_view>* const loops_;
  struct Made {
    Ref<const Function> of;  // stays, because its address is the key
    std::vector<bool> batched, wanted;
    Ref<const Function> function;
  };
  HashMap<const Function*, std::vector<Made>> made_;
};

absl::Status Batcher::Walk(Builder& b, const Function& function, std::span<const Item> arguments, int depth,
                           Items* results) {
  HashMap<const Node*, Items> found;
  for (size_t i = 0; i < arguments.size(); ++i) found[function.parameters()[i].node.get()] = {arguments[i]};
  const auto now = [&](const Value& value) { return value ? found.at(value.node.get())[value.result] : Item{}; };
  for (const Node* node : function.nodes()) {
    if (found.contains(node)) continue;
    b.set_location(node->location());
    Items operands, made;
    for (const Value& operand : node->operands()) operands.push_back(now(operand));
    if (std::ranges::any_of(operands, &Item::mapped)) {
      WEFT_RETURN_IF_ERROR(Add(b, *node, operands, depth, &made));
      WEFT_RETURN_IF_ERROR(b.status());
    } else {
      Values same;
      for (const Item& operand : operands) same.push_back(operand.value);
      const Ref<const Node> copy = ir::WithOperands(*node, same, node->regions());
      for (uint32_t i = 0; i < node->results().size(); ++i) made.push_back({{copy, i}});
    }
    found[node] = std::move(made);
  }
  for (const Value& result : function.results()) results->push_back(now(result));
  return absl::OkStatus();
}

absl::StatusOr<Ref<const Function>> Batcher::Region(const Function& function, std::span<const bool> batched,
                                                    std::span<const bool> wanted, int depth) {
  for (const Made& made : made_[&function]) {
    if (std::ranges::equal(made.batched, batched) && std::ranges::equal(made.wanted, wanted)) return made.function;
  }
  Builder b;
  std::vector<Value> parameters, values;
  Items arguments, results;
  for (size_t i = 0; i < batched.size(); ++i) {
    const Type& type = function.parameters()[i].type();
    parameters.push_back(Parameter(batched[i] ? With(type, 0, size_) : type));
    arguments.push_back({parameters.back(), batched[i]});
  }
  WEFT_RETURN_IF_ERROR(Walk(b, function, arguments, depth, &results));
  for (size_t i = 0; i < results.size(); ++i) {
    const bool repeats = i < wanted.size() && wanted[i] && !results[i].mapped;
    values.push_back(repeats ? Repeated(b, results[i].value, 0, size_) : results[i].value);
  }
  WEFT_RETURN_IF_ERROR(b.status());
  Ref<const Function> made = ir::Intern(Function::Create(function.name(), std::move(parameters), std::move(values)));
  made_[&function].push_back(
      {Ref<const Function>::Share(&function), {batched.begin(), batched.end()}, {wanted.begin(), wanted.end()}, made});
  return made;
}

absl::Status Batcher::Add(Builder& b, const Node& node, const Items& operands, int depth, Items* results) {
  Values found(node.results().size());
  if (node.op().batching != nullptr && (node.regions().empty() || depth < kMostDepth)) {
    WEFT_RETURN_IF_ERROR(ByRule(b, node, operands, depth, &found));
  }
  if (!found[0] && !ElementByElement(b, node, operands, &found)) {
    if (node.op().expand != nullptr && node.regions().empty()) return Expansion(b, node, operands, depth, results);
    WEFT_RETURN_IF_ERROR(OneAfterTheOther(b, node, operands, &found));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  for (size_t i = 0; i < found.size(); ++i) {
    results->push_back({found[i], ops::HasExamples(found[i].type(), node.type(i))});
  }
  return absl::OkStatus();
}

absl::Status Batcher::ByRule(Builder& b, const Node& node, const Items& operands, int depth, Values* results) {
  Values values;
  absl::InlinedVector<bool, 4> batched;
  for (const Item& operand : operands) {
    values.push_back(operand.value);
    batched.push_back(operand.mapped);
  }
  const auto region = [&](const Function& function, std::span<const bool> of, std::span<const bool> wanted) {
    return Region(function, of, wanted, depth + 1);
  };
  const ir::BatchCall call{b, node, values, std::span(batched.data(), batched.size()), size_, region};
  WEFT_RETURN_IF_ERROR(node.op().batching(call, std::span(results->data(), results->size())));
  return b.status();
}

// Operands are of the result's shape, or scalars. False where that is not so.
bool Batcher::ElementByElement(Builder& b, const Node& node, const Items& operands, Values* results) const {
  const ir::OpDef& op = node.op();
  if ((op.scalar == nullptr && op.lowering != ir::Lowering::kPlanes) || node.results().size() != 1 ||
      !node.regions().empty())
    return false;
  const Dims& dims = node.type().dims;
  for (const Value& operand : node.operands()) {
    if (operand && operand.dims() != dims && !operand.dims().empty()) return false;
  }
  const Dims all = With(node.type(), 0, size_).dims;
  Values values;
  for (const Item& operand : operands) {
    if (!operand.value) {
      values.emplace_back();
      continue;
    }
    const bool scalar = operand.value.dims().size() == (operand.mapped ? 1 : 0);
    ir::Ints positions;
    if (operand.mapped) positions.push_back(0);
    if (!scalar) {
      for (size_t d = 0; d < dims.size(); ++d) positions.push_back(static_cast<int64_t>(d) + 1);
    }
    values.push_back(operand.value.dims() == all ? operand.value
                                                 : ops::BroadcastInDim(b, operand.value, all, std::move(positions)));
  }
  (*results)[0] = ops::Call(b, op, std::move(values), node.attrs());
  return true;
}

absl::Status Batcher::Expansion(Builder& b, const Node& node, const Items& operands, int depth, Items* results) {
  Builder inside(node.location());
  std::vector<Value> parameters;
  Values inner;
  Items arguments;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].value) {
      inner.emplace_back();
      continue;
    }
    inner.push_back(Parameter(node.operands()[i].type()));
    parameters.push_back(inner.back());
    arguments.push_back(operands[i]);
  }
  Values expanded(node.results().size());
  WEFT_RETURN_IF_ERROR(ops::Expand(inside, node.op(), std::move(inner), node.attrs(), node.results(),
                                   std::span(expanded.data(), expanded.size())));
  WEFT_RETURN_IF_ERROR(inside.status());
  const Ref<const Function> function =
      Function::Create("expansion", std::move(parameters), std::vector<Value>(expanded.begin(), expanded.end()));
  return Walk(b, *function, arguments, depth, results);
}

// A scan whose body is the operation. What has no examples is captured.
absl::Status Batcher::OneAfterTheOther(Builder& b, const Node& node, const Items& operands, Values* results) {
  if (loops_ != nullptr) loops_->push_back(node.op().name);
  for (const Type& type : node.results()) {
    if (type.is_tensor()) continue;
    return UserErrorOf(absl::StatusCode::kUnimplemented, "vmap: ", node.op().name,
                       " gives what is no tensor, which examples cannot have each");
  }
  std::vector<Value> scanned, captured;
  Values inner(operands.size()), outer_captured, outer;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].value) continue;
    inner[i] = Parameter(node.operands()[i].type());
    (operands[i].mapped ? scanned : captured).push_back(inner[i]);
    (operands[i].mapped ? outer : outer_captured).push_back(operands[i].value);
  }
  const auto count = static_cast<int64_t>(scanned.size());
  const Ref<const Node> body = ir::CopyNode(node, std::move(inner), node.regions());
  std::vector<Value> given;
  for (uint32_t i = 0; i < node.results().size(); ++i) given.push_back({body, i});
  scanned.insert(scanned.end(), captured.begin(), captured.end());
  outer.insert(outer.end(), outer_captured.begin(), outer_captured.end());
  const Ref<const Function> example = Function::Create("example", std::move(scanned), std::move(given));
  // length, carried, scanned, reverse, indexed, counted, kept
  *results = ops::CallAll(b, ops::kOp_scan, std::move(outer), {size_, int64_t{0}, count, {}, {}, {}, int64_t{0}},
                          {&example, 1});
  return absl::OkStatus();
}

// Where the examples lie in what has them; `rank` is of what has not.
absl::StatusOr<int64_t> Axis(std::string_view list, size_t i, int64_t axis, const Type& type) {
  const auto rank = static_cast<int64_t>(type.rank());
  if (axis >= -rank - 1 && axis <= rank) return axis < 0 ? axis + rank + 1 : axis;
  return UserError(list, "[", i, "] is ", axis, "; ", list == "in_axes" ? "input " : "result ", i,
                   " of one example is ", ir::ShortType(type), ", so that the examples can lie along axes ", -rank - 1,
                   " to ", rank);
}

// A stream of its own for each example.
absl::StatusOr<Item> Streams(Builder& b, Batcher& batcher, const Value& stream, int64_t size) {
  Builder inside;
  const Value state = Parameter(stream.type()), number = Parameter(Type::Scalar(DType::kU64));
  const Value own = ops::StreamOf(inside, state, number);
  WEFT_RETURN_IF_ERROR(inside.status());
  const Ref<const Function> function = Function::Create("stream", {state, number}, {own});
  Items results;
  WEFT_RETURN_IF_ERROR(batcher.Walk(
      b, *function, std::vector<Item>{{stream}, {ops::Iota(b, DType::kU64, {size}, 0), true}}, 0, &results));
  return results[0];
}

}  // namespace

absl::StatusOr<Ref<const Function>> Vmap(const VmapCall& call, std::vector<std::string_view>* loops) {
  const Function& function = call.function;
  const size_t inputs = function.parameters().size() - (call.draws ? 1 : 0);
  if (call.size < 1) return UserError("size is ", call.size, "; there must be at least one example");
  if (call.in_axes.size() != inputs || call.out_axes.size() != function.results().size()) {
    return UserError("the function @", function.name(), " has ", inputs, " inputs and ", function.results().size(),
                     " results; there are ", call.in_axes.size(), " in_axes and ", call.out_axes.size(), " out_axes");
  }
  if (call.draws && call.randomness == Randomness::kError) {
    return UserError("the function @", function.name(),
                     " draws random numbers, which randomness forbids: examples may draw different ones, or the same");
  }
  const bool draw_each = call.draws && call.randomness == Randomness::kDifferent;
  if (!draw_each && std::ranges::all_of(call.in_axes, [](int64_t axis) { return axis == kNotMapped; })) {
    return UserError("none of the ", inputs, " inputs of the function @", function.name(),
                     " has examples: one of in_axes must be an axis");
  }
  Builder b;
  Batcher batcher(call.size, loops);
  std::vector<Value> parameters;
  Items arguments, results;
  for (size_t i = 0; i < inputs; ++i) {
    const Type& type = function.parameters()[i].type();
    if (call.in_axes[i] == kNotMapped) {
      parameters.push_back(Parameter(type));
      arguments.push_back({parameters.back()});
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(const int64_t axis, Axis("in_axes", i, call.in_axes[i], type));
    const Type all = With(type, axis, call.size);
    if (const auto count = CheckedCount(all.dims); !count || *count > kMostElements || all.rank() > kMaxRank) {
      return UserError("input ", i, ": ", call.size, " examples of ", ir::ShortType(type),
                       " are more elements, or dimensions, than a tensor can have");
    }
    parameters.push_back(Parameter(all));
    arguments.push_back({ops::Moved(b, parameters.back(), axis, 0), true});
  }
  if (call.draws) {
    parameters.push_back(Parameter(function.parameters().back().type()));
    Item stream{parameters.back()};
    if (draw_each) {
      WEFT_ASSIGN_OR_RETURN(stream, Streams(b, batcher, parameters.back(), call.size));
    }
    arguments.push_back(std::move(stream));
  }
  WEFT_RETURN_IF_ERROR(batcher.Walk(b, function, arguments, 0, &results));
  std::vector<Value> given;
  for (size_t i = 0; i < results.size(); ++i) {
    Value value = results[i].value;
    const Type& type = function.results()[i].type();
    if (call.out_axes[i] != kNotMapped) {
      WEFT_ASSIGN_OR_RETURN(const int64_t axis, Axis("out_axes", i, call.out_axes[i], type));
      value = results[i].mapped ? ops::Moved(b, value, 0, axis) : Repeated(b, value, axis, call.size);
    } else if (results[i].mapped) {
      return UserError("out_axes[", i, "] says that the examples share result ", i, " of the function @",
                       function.name(), ", which depends on what they have each: it needs an axis");
    }
    given.push_back(std::move(value));
  }
  WEFT_RETURN_IF_ERROR(b.status());
  return ir::Intern(Function::Create(function.name(), std::move(parameters), std::move(given)));
}

}  // namespace weft::transforms
