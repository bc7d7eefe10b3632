// See hoist_products.h. An LSTM of 100 runs of 32 rows: half of what it multiplies is known before the first run.
#include "src/passes/hoist_products.h"

#include <algorithm>
#include <vector>

#include "src/ir/rewrite.h"
#include "src/ops/build.h"
#include "src/ops/control/counted.h"
#include "src/ops/control/scan.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"

namespace weft::passes {
namespace {

using ir::Builder;
using ir::Function;
using ir::Ints;
using ir::Node;
using ir::Value;
using ir::Values;

using Functions = std::vector<Ref<const Function>>;

bool IsConvert(const Node& node) { return &node.op() == &ops::kOp_convert; }
bool IsReshape(const Node& node) { return &node.op() == &ops::kOp_reshape; }

int64_t BytesOfAll(const ir::Type& type) { return type.count() * BytesOf(type.dtype); }

// The row that a value is a run's copy of, converted and reshaped; null if it is something else.
const Node* SliceUnder(const Value& value) {
  const Node* node = value.node.get();
  while (IsConvert(*node) || IsReshape(*node)) node = node->operands()[0].node.get();
  return &node->op() == &ops::kOp_dynamic_slice ? node : nullptr;
}

// One loop whose number of runs is known, and what leaves it.
class Loop {
 public:
  Loop(Builder& b, const Node& loop, const ops::KnownRuns& runs, const HoistOptions& options)
      : b_(b), loop_(loop), runs_(runs), options_(options), body_(*loop.regions()[1]) {
    for (size_t i = 0; i < body_.parameters().size(); ++i) index_.emplace(body_.parameters()[i].node.get(), i);
  }

  // The loop's results; none where nothing leaves it.
  absl::StatusOr<Values> Run() {
    for (const Node* node : body_.nodes()) {
      if (Leaves(*node)) products_.emplace(node, MakeWhole(*node));
    }
    if (products_.empty() || !b_.ok()) return Values();
    WEFT_ASSIGN_OR_RETURN(const Ref<const Function> body, WithoutProducts());
    return Made(*body);
  }

 private:
  size_t carried() const { return body_.results().size(); }
  size_t first_capture() const { return loop_.regions()[0]->parameters().size(); }  // of the body, among operands

  // The operand that a parameter of the body is in every run; null for what changes.
  const Value* OperandOf(const Node* parameter) const {
    const auto found = index_.find(parameter);
    if (found == index_.end()) return nullptr;
    const size_t i = found->second;
    if (i >= carried()) return &loop_.operands()[first_capture() + i - carried()];
    return body_.results()[i] == body_.parameters()[i] ? &loop_.operands()[i] : nullptr;
  }

  // Whether a value of the body is the same in all runs, and cheap to have outside.
  bool IsCommon(const Value& value, int depth = 4) const {
    const Node& node = *value.node;
    const ir::OpDef* op = &node.op();
    if (op == &ops::kOp_constant) return true;
    if (OperandOf(&node) != nullptr) return true;
    const bool moves = op == &ops::kOp_convert || op == &ops::kOp_reshape || op == &ops::kOp_transpose;
    return moves && depth > 0 && IsCommon(node.operands()[0], depth - 1);
  }
  Value Outside(const Value& value) {
    if (const Value* operand = OperandOf(value.node.get())) return *operand;
    Values operands;
    for (const Value& operand : value.node->operands()) operands.push_back(Outside(operand));
    return {ir::CopyNode(*value.node, std::move(operands), {}), value.result};
  }

  // Whether a node is a product of a row, by the last of its dimensions, and of what all runs have in common; worth it, and
  // within bounds.
  bool Leaves(const Node& node) {
    if (&node.op() != &ops::kOp_dot_general || node.extras() != nullptr || !IsFloat(node.type().dtype)) return false;
    const ops::DotGeneralAttrs a{node.attrs()};
    const Value &x = node.operands()[0], &y = node.operands()[1];
    const Ints& contracting = a.lhs_contracting_dimensions();
    if (!a.lhs_batching_dimensions().empty()) return false;
    const size_t kept = x.dims().size() - contracting.size();
    for (size_t i = 0; i < contracting.size(); ++i) {
      if (contracting[i] != static_cast<int64_t>(kept + i)) return false;
    }
    const int64_t rows = CountOf(std::span(x.dims()).first(kept));
    if (rows < options_.fewest_rows || rows > options_.most_rows || node.type().count() <= rows) return false;
    const Node* const slice = SliceUnder(x);
    if (slice == nullptr || x.type().count() == 0 || !IsCommon(y)) return false;
    return IsRow(*slice) && Fits(*slice, node);
  }
  // Whether each run has another row, and all together the whole stack.
  bool IsRow(const Node& slice) const {
    const Value& stack = slice.operands()[0];
    Dims row = stack.dims();
    if (row.empty() || row[0] != runs_.count || !IsCommon(stack)) return false;
    row[0] = 1;
    return slice.type().dims == row && ops::IsRowOfRun(loop_, runs_, slice.operands()[1]);
  }
  bool Fits(const Node& slice, const Node& product) {
    const ir::Type& stack = slice.operands()[0].type();
    const int64_t most = std::max(options_.most_bytes, options_.most_times * BytesOfAll(stack));
    const int64_t row = BytesOfAll(product.type());
    int64_t& taken = taken_[slice.operands()[0]];
    if (row > (most - taken) / runs_.count) return false;
    taken += row * runs_.count;
    return true;
  }

  // What the runs have of the value, in the order of the stack; of its elements, not of its shape.
  Value Whole(const Value& value) {
    const Node& node = *value.node;
    if (IsReshape(node)) return Whole(node.operands()[0]);
    if (IsConvert(node)) return ops::Convert(b_, Whole(node.operands()[0]), node.type().dtype);
    return Outside(node.operands()[0]);
  }
  Value MakeWhole(const Node& product) {
    const Value& x = product.operands()[0];
    Dims dims = {runs_.count};
    dims.insert(dims.end(), x.dims().begin(), x.dims().end());
    ir::Attrs attrs = product.attrs();
    Ints contracting = attrs.IntList(ops::DotGeneralAttrs::kLhsContractingDimensions);
    for (int64_t& d : contracting) ++d;
    attrs.set(ops::DotGeneralAttrs::kLhsContractingDimensions, std::move(contracting));
    b_.set_location(product.location());
    return b_.Emit(product.op(), {ops::Reshape(b_, Whole(x), dims), Outside(product.operands()[1])}, std::move(attrs));
  }

  // The body with rows of the whole products, which are captures behind the others, in place of its own.
  absl::StatusOr<Ref<const Function>> WithoutProducts() {
    HashMap<const Node*, Value> stacks;
    std::vector<Value> parameters(body_.parameters().begin(), body_.parameters().end());
    for (const Node* node : body_.nodes()) {
      const auto found = products_.find(node);
      if (found == products_.end()) continue;
      wholes_.push_back(found->second);
      parameters.push_back(ops::Parameter(found->second.type()));
      stacks.emplace(node, parameters.back());
    }
    const Ref<const Function> wider =
        Function::Create(body_.name(), std::move(parameters), {body_.results().begin(), body_.results().end()});
    return ir::Rewrite(*wider, [&](const ir::RewriteCall& call) -> Values {
      const auto stack = stacks.find(&call.node);
      if (stack == stacks.end()) return {};
      return {ops::Row(call.b, stack->second, SliceUnder(call.operands[0])->operands()[1])};
    });
  }

  // The loop with that body, less the captures that it does not read any more.
  Values Made(const Function& body) {
    HashSet<const Node*> used;
    for (const Value& result : body.results()) used.insert(result.node.get());
    for (const Node* node : body.nodes()) {
      for (const Value& operand : node->operands()) used.insert(operand.node.get());
    }
    Values operands(loop_.operands().begin(), loop_.operands().begin() + static_cast<ptrdiff_t>(first_capture()));
    std::vector<Value> parameters;
    const size_t captures = body_.parameters().size();
    for (size_t i = 0; i < body.parameters().size(); ++i) {
      if (i >= carried() && !used.contains(body.parameters()[i].node.get())) continue;
      parameters.push_back(body.parameters()[i]);
      if (i < carried()) continue;
      operands.push_back(i < captures ? loop_.operands()[first_capture() + i - carried()] : wholes_[i - captures]);
    }
    const Functions functions = {loop_.regions()[0], Function::Create(body.name(), std::move(parameters),
                                                                      {body.results().begin(), body.results().end()})};
    b_.set_location(loop_.location());
    return b_.EmitAll(loop_.op(), std::move(operands), loop_.attrs(), functions);
  }

  Builder& b_;
  const Node& loop_;
  const ops::KnownRuns& runs_;
  const HoistOptions& options_;
  const Function& body_;
  HashMap<const Node*, size_t> index_;    // of the body's parameters
  HashMap<const Node*, Value> products_;  // of the body, and what stands before the loop for all runs
  std::vector<Value> wholes_;             // in the order of the new captures
  HashMap<Value, int64_t> taken_;         // bytes, by what is multiplied
};

}  // namespace

absl::StatusOr<Ref<const Function>> HoistProducts(const Function& function, const HoistOptions& options) {
  return ir::Rewrite(function, [&](const ir::RewriteCall& call) -> Values {
    if (&call.node.op() != &ops::kOp_while || call.node.extras() != nullptr) return {};
    const Ref<const Node> loop = ir::WithOperands(call.node, call.operands, call.regions);
    const std::optional<ops::KnownRuns> runs = ops::RunsOf(*loop);
    if (!runs.has_value() || runs->count < 2) return {};
    absl::StatusOr<Values> made = Loop(call.b, *loop, *runs, options).Run();
    if (made.ok()) return *std::move(made);
    call.b.Fail(made.status());
    return {};
  });
}

}  // namespace weft::passes
