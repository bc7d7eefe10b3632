// See random_program.h.
#include "tests/support/random_program.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/backends/reference/interpreter.h"
#include "src/ir/text.h"
#include "src/ops/build.h"
#include "src/ops/sample.h"

namespace weft::test {
namespace {

using Item = RandomProgram::Item;

constexpr double kMaxNumber = 1'000;  // larger results are refused, or chaos follows

ir::Value Parameter(const HostTensor& value) {
  return {ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(value.dtype(), value.dims())}), 0};
}

// The item's results on the values so far.
absl::StatusOr<std::vector<ir::Value>> Replay(const Item& item, std::span<const ir::Value> values) {
  ir::Builder b;
  ir::Values operands;
  for (int operand : item.operands) operands.push_back(operand < 0 ? ir::Value() : values[operand]);
  if (item.kind == Item::Kind::kGradient) {
    const std::vector<ir::Value> wrt(operands.begin() + 1, operands.end());
    WEFT_ASSIGN_OR_RETURN(std::vector<ir::Value> slopes, autodiff::Gradient(b, operands[0], wrt));
    WEFT_RETURN_IF_ERROR(b.status());
    return slopes;
  }
  if (item.kind == Item::Kind::kConstant) {
    std::vector<ir::Value> constants;
    for (const HostTensor& value : item.leaf) constants.push_back(ops::Constant(b, value));
    return constants;
  }
  std::vector<Ref<const ir::Function>> functions;
  for (const RandomProgram& body : item.bodies) {
    WEFT_ASSIGN_OR_RETURN(BuiltProgram built, BuildProgram(body));
    functions.push_back(std::move(built.function));
  }
  const ir::Values results = ops::CallAll(b, *item.op, std::move(operands), item.attrs, functions);
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ir::Value>(results.begin(), results.end());
}

bool InRange(const HostTensor& value, bool wild) {
  if (!IsFloat(value.dtype()) || wild) return true;
  for (int64_t i = 0; i < value.count(); ++i) {
    if (!(std::fabs(value.GetDouble(i)) <= kMaxNumber)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<BuiltProgram> BuildProgram(const RandomProgram& program) {
  BuiltProgram built;
  std::vector<ir::Value> parameters;
  for (const Item& item : program.items) {
    if (item.kind == Item::Kind::kDropped) {
      built.values.resize(built.values.size() + item.count);
      continue;
    }
    if (item.kind == Item::Kind::kLeaf) {
      for (const HostTensor& leaf : item.leaf) {
        parameters.push_back(Parameter(leaf));
        built.values.push_back(parameters.back());
        built.arguments.push_back(leaf);
      }
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(std::vector<ir::Value> results, Replay(item, built.values));
    built.values.insert(built.values.end(), results.begin(), results.end());
  }
  std::vector<ir::Value> outputs;
  for (int output : program.outputs) outputs.push_back(built.values[output]);
  built.function = ir::Function::Create("main", std::move(parameters), std::move(outputs));
  return built;
}

int CountBodies(const RandomProgram& program) {
  int count = 0;
  for (const Item& item : program.items) {
    for (const RandomProgram& body : item.bodies) count += 1 + CountBodies(body);
  }
  return count;
}

ProgramMaker::ProgramMaker(uint64_t seed, const RandomOptions& given) : rng(seed), options(given) {}

int ProgramMaker::Append(Item item, std::vector<ir::Value> results) {
  item.first = program_.values;
  item.count = static_cast<int>(results.size());
  program_.values += item.count;
  for (int operand : item.operands) {
    if (operand >= 0) used_[static_cast<size_t>(operand)] = true;
  }
  used_.resize(static_cast<size_t>(program_.values));
  program_.items.push_back(std::move(item));
  values_.insert(values_.end(), results.begin(), results.end());
  return program_.items.back().first;
}

int ProgramMaker::LeafOf(HostTensor value) {
  ir::Value parameter = Parameter(value);
  known_[parameter.node.get()] = {value};
  Item item;
  item.leaf.push_back(std::move(value));
  const int number = Append(std::move(item), {std::move(parameter)});
  leaves_.push_back(number);
  return number;
}

int ProgramMaker::Leaf(DType dtype, const Dims& dims, double low, double high) {
  if (CountOf(dims) > max_elements()) return -1;
  HostTensor value(dtype, dims);
  // Few different numbers make ties, for whatever looks for the largest; zeros come in both signs.
  const bool few = !options.smooth && rng.Chance(0.2);
  const bool edges = wild && rng.Chance(0.3);
  constexpr double kEdges[] = {INFINITY, -INFINITY, NAN, 1e30, -1e30, 1e-40, 0.0, -0.0};
  for (int64_t i = 0; i < value.count(); ++i) {
    if (IsBool(dtype)) {
      value.SetInt(i, rng.Below(2));
    } else if (!IsFloat(dtype)) {
      value.SetInt(i, few ? rng.Between(-2, 3) : wild ? static_cast<int64_t>(rng.Next()) : rng.Between(-9, 10));
    } else if (edges && rng.Chance(0.1)) {
      value.SetDouble(i, rng.Pick(kEdges));
    } else {
      const double x = rng.Uniform(low, high);
      value.SetDouble(i, few ? std::clamp(std::copysign(std::floor(std::fabs(x) * 2) / 2, x), low, high) : x);
    }
  }
  return LeafOf(std::move(value));
}

absl::Status ProgramMaker::Evaluate(std::span<const ir::Value> results, bool* acceptable) {
  *acceptable = true;
  std::vector<const ir::Node*> fresh;
  for (const ir::Node* node : ir::Reachable(results)) {
    if (!known_.contains(node)) fresh.push_back(node);
  }
  for (const ir::Node* node : fresh) {
    for (const ir::Type& type : node->results()) {
      if (type.count() > max_elements()) *acceptable = false;
      if (options.smooth && IsFloat(type.dtype) && type.dtype != DType::kF64) *acceptable = false;
    }
  }
  for (const ir::Node* node : fresh) {
    if (!*acceptable) break;
    std::vector<const HostTensor*> operands;
    for (const ir::Value& operand : node->operands()) {
      operands.push_back(operand ? &known_.at(operand.node.get())[operand.result] : nullptr);
    }
    WEFT_ASSIGN_OR_RETURN(known_[node], reference::InterpretCall(node->op(), operands, node->attrs(), node->results(), node->regions()));
  }
  for (const ir::Value& result : results) {
    if (*acceptable && !InRange(known_.at(result.node.get())[result.result], wild)) *acceptable = false;
  }
  // The nodes of a refused call die, and their addresses come again.
  if (!*acceptable) {
    for (const ir::Node* node : fresh) known_.erase(node);
  }
  return absl::OkStatus();
}

int ProgramMaker::Call(const ir::OpDef& op, std::vector<int> operands, ir::Attrs attrs, std::vector<RandomProgram> bodies) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] < 0 && !op.operands[std::min(i, op.operands.size() - 1)].optional) return -1;
  }
  Item item{.kind = Item::Kind::kCall, .leaf = {}, .op = &op, .operands = std::move(operands), .attrs = std::move(attrs), .bodies = std::move(bodies)};
  auto results = Replay(item, values_);
  bool acceptable = false;
  if (!results.ok() || results->empty() || !Evaluate(*results, &acceptable).ok() || !acceptable) return -1;
  return Append(std::move(item), *std::move(results));
}

int ProgramMaker::Call(const ir::OpDef& op, std::vector<int> operands,
                       std::initializer_list<std::pair<std::string_view, ir::AttrValue>> attrs, std::vector<RandomProgram> bodies) {
  ir::Attrs values;
  for (const auto& [name, value] : attrs) {
    const auto def = std::ranges::find(op.attrs, name, &ir::AttrDef::name);
    if (def != op.attrs.end()) values.set(static_cast<size_t>(def - op.attrs.begin()), value);
  }
  return Call(op, std::move(operands), std::move(values), std::move(bodies));
}

void ProgramMaker::Gradient(int loss, const std::vector<int>& wrt) {
  Item item;
  item.kind = Item::Kind::kGradient;
  item.operands = {loss};
  item.operands.insert(item.operands.end(), wrt.begin(), wrt.end());
  auto results = Replay(item, values_);
  bool acceptable = false;
  if (!results.ok() || !Evaluate(*results, &acceptable).ok() || !acceptable) return;
  Append(std::move(item), *std::move(results));
}

int ProgramMaker::Find(const std::function<bool(const ir::Type&)>& fits) {
  std::vector<int> found;
  for (int i = 0; i < program_.values; ++i) {
    if (fits(type(i))) found.push_back(i);
  }
  if (found.empty()) return -1;
  const auto n = static_cast<int64_t>(found.size());
  return found[static_cast<size_t>(rng.Chance(0.5) ? rng.Between(std::max<int64_t>(0, n - 4), n) : rng.Below(n))];
}

RandomProgram ProgramMaker::Finish(std::vector<int> outputs) {
  program_.outputs = std::move(outputs);
  return std::move(program_);
}

namespace {

// Drops items that no output needs; leaves too, so that small programs have few arguments. A body keeps its parameters.
void DropUnused(RandomProgram& program, bool body) {
  std::vector<bool> used(program.values);
  for (int output : program.outputs) used[output] = true;
  for (size_t i = program.items.size(); i-- > 0;) {
    Item& item = program.items[i];
    bool any = false;
    for (int v = item.first; v < item.first + item.count; ++v) any = any || used[v];
    if (!any && !(body && item.kind == Item::Kind::kLeaf)) {
      item = Item{.kind = Item::Kind::kDropped, .leaf = {}, .op = nullptr, .operands = {}, .attrs = {}, .bodies = {}, .first = item.first, .count = item.count};
    }
    for (int operand : item.operands) {
      if (operand >= 0) used[operand] = true;
    }
  }
}

// All values of the program, by number.
absl::StatusOr<std::vector<HostTensor>> AllValues(const RandomProgram& program) {
  WEFT_ASSIGN_OR_RETURN(const BuiltProgram built, BuildProgram(program));
  std::vector<ir::Value> present;
  for (const ir::Value& value : built.values) {
    if (value) present.push_back(value);
  }
  const std::span<const ir::Value> parameters = built.function->parameters();
  const auto all = ir::Function::Create("all", {parameters.begin(), parameters.end()}, std::move(present));
  WEFT_ASSIGN_OR_RETURN(std::vector<HostTensor> results, reference::Interpret(*all, built.arguments));
  std::vector<HostTensor> values(program.values);
  size_t next = 0;
  for (size_t i = 0; i < built.values.size(); ++i) {
    if (built.values[i]) values[i] = std::move(results[next++]);
  }
  return values;
}

}  // namespace

namespace {

using Fails = std::function<bool(const RandomProgram&)>;

// Calls become what they give: arguments, literals in a body. Halves first, then one at a time until nothing changes.
RandomProgram ShrinkCalls(RandomProgram program, const Fails& fails, bool body) {
  const auto values = AllValues(program);
  if (!values.ok()) return program;
  for (size_t chunk = program.items.size(); chunk > 0; chunk /= 2) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t begin = 0; begin < program.items.size(); begin += chunk) {
        RandomProgram smaller = program;
        bool any = false;
        for (size_t i = begin; i < std::min(begin + chunk, program.items.size()); ++i) {
          Item& item = smaller.items[i];
          if (item.kind != Item::Kind::kCall && item.kind != Item::Kind::kGradient) continue;
          any = true;
          item.kind = body ? Item::Kind::kConstant : Item::Kind::kLeaf;
          item.operands.clear();
          item.bodies.clear();
          item.leaf.assign(values->begin() + item.first, values->begin() + item.first + item.count);
        }
        DropUnused(smaller, body);
        if (!any || !fails(smaller)) continue;
        program = std::move(smaller);
        changed = true;
      }
      if (chunk > 1) break;
    }
  }
  return program;
}

// The same in the bodies of what is left, outer ones first: as many levels as bodies nest.
RandomProgram ShrinkBodies(RandomProgram program, const Fails& fails) {
  for (size_t i = 0; i < program.items.size(); ++i) {
    for (size_t k = 0; k < program.items[i].bodies.size(); ++k) {
      const auto with = [&](const RandomProgram& body) {
        RandomProgram other = program;
        other.items[i].bodies[k] = body;
        return other;
      };
      const auto body_fails = [&](const RandomProgram& body) { return fails(with(body)); };
      const RandomProgram smaller = ShrinkCalls(program.items[i].bodies[k], body_fails, true);
      program = with(ShrinkBodies(smaller, body_fails));
    }
  }
  return program;
}

}  // namespace

RandomProgram Shrink(RandomProgram program, const std::function<bool(const RandomProgram&)>& fails) {
  for (size_t i = program.outputs.size(); i-- > 0 && program.outputs.size() > 1;) {
    if (i >= program.outputs.size()) continue;
    RandomProgram smaller = program;
    smaller.outputs.erase(smaller.outputs.begin() + static_cast<ptrdiff_t>(i));
    if (fails(smaller)) program = std::move(smaller);
  }
  RandomProgram used = program;
  DropUnused(used, false);
  if (fails(used)) program = std::move(used);
  return ShrinkBodies(ShrinkCalls(std::move(program), fails, false), fails);
}

std::string ToString(const RandomProgram& program) {
  const auto built = BuildProgram(program);
  if (!built.ok()) return absl::StrCat(built.status().ToString(), "\n");
  std::string text = ir::Print(*built->function);
  for (size_t i = 0; i < built->arguments.size(); ++i) {
    const HostTensor& x = built->arguments[i];
    absl::StrAppend(&text, "%", i, " =");
    for (int64_t k = 0; k < std::min<int64_t>(x.count(), 20); ++k) {
      absl::StrAppend(&text, " ", IsFloat(x.dtype()) ? absl::StrCat(x.GetDouble(k)) : absl::StrCat(x.GetInt(k)));
    }
    absl::StrAppend(&text, x.count() > 20 ? " …\n" : "\n");
  }
  return text;
}

}  // namespace weft::test
