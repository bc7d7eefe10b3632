// Trees to nodes: names, scopes, captures, functions. See read.h.
#include "src/stablehlo/read.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "src/ir/text.h"
#include "src/ops/build.h"
#include "src/ops/collective/processes.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"
#include "src/stablehlo/custom.h"
#include "src/stablehlo/parser.h"
#include "src/stablehlo/quantization.h"
#include "src/stablehlo/rules.h"
#include "src/stablehlo/shardings.h"
#include "src/stablehlo/streams.h"

namespace weft::stablehlo {
namespace {

using ir::Function;
using ir::Value;
using ir::Values;

// The limits of a location's text, and of aliases that stand for others: a longer text is not meant for a location.
constexpr size_t kLocationText = 512;
constexpr int kLocationHops = 8;

ir::Value Parameter(const ir::Type& type, std::unique_ptr<const ir::NodeExtras> extras = nullptr) {
  return {ir::Node::Create(ops::kOp_parameter, {}, {}, {type}, nullptr, {}, std::move(extras)), 0};
}

// The frame, which is not looked up among operations.
bool IsFrame(std::string_view name) {
  constexpr std::string_view kFrame[] = {"builtin.module", "func.func", "sdy.mesh", "return"};
  return std::ranges::find(kFrame, name) != std::end(kFrame);
}

// The name that rules are kept by: a custom call's is that of its target, if Weft knows it.
std::string RuleName(const Operation& op) {
  const ir::ShloAttr* target = op.name == "stablehlo.custom_call" ? op.Find("call_target_name") : nullptr;
  return target == nullptr ? std::string(op.name) : absl::StrCat(op.name, " @", target->string);
}
const Rule* RuleOf(const Operation& op, const ReadOptions& options) {
  const Rule* rule = FindRule(RuleName(op));
  const bool unknown = op.name == "stablehlo.custom_call" && CustomOf(op, options) == nullptr;
  return rule != nullptr ? rule : unknown ? nullptr : FindRule(op.name);
}

// Tuples and tokens are gone once they are read: a tuple is its elements, and a token nothing, for nothing that is read has
// effects which it could order.
constexpr std::string_view kStructures[] = {"stablehlo.tuple", "stablehlo.get_tuple_element", "stablehlo.after_all",
                                            "stablehlo.create_token"};
// Operations of any number of values, where a tuple's elements stand in its place.
constexpr std::string_view kVariadic[] = {"stablehlo.while", "stablehlo.case",      "stablehlo.if",
                                          "func.call",       "stablehlo.composite", "stablehlo.optimization_barrier"};
bool IsOneOf(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The tensors of a type; a tuple has no quantised ones. Types nest as deep as the parser lets them.
void AppendLeaves(const TypeText& type, std::vector<TypeText>& leaves) {
  if (type.type.is_tensor()) return leaves.push_back(type);
  if (type.type.kind != ir::Type::Kind::kTuple) return;
  for (const ir::Type& element : *type.type.elements) AppendLeaves({.type = element}, leaves);
}
std::vector<TypeText> LeavesOf(std::span<const TypeText> types) {
  std::vector<TypeText> leaves;
  for (const TypeText& type : types) AppendLeaves(type, leaves);
  return leaves;
}
std::vector<TypeText> LeavesOf(const TypeText& type) { return LeavesOf({&type, 1}); }
size_t CountLeaves(const ir::Type& type) { return LeavesOf({.type = type}).size(); }

// The value that a name stands for.
struct Named {
  TypeText type;
  Values leaves;
};
std::vector<TypeText> LeavesOf(std::span<const Named> values) {
  std::vector<TypeText> leaves;
  for (const Named& named : values) AppendLeaves(named.type, leaves);
  return leaves;
}
std::vector<TypeText> LeavesOf(std::span<const Argument> arguments) {
  std::vector<TypeText> leaves;
  for (const Argument& argument : arguments) AppendLeaves(argument.type, leaves);
  return leaves;
}
Values ValuesOf(std::span<const Named> all) {
  Values values;
  for (const Named& named : all) values.insert(values.end(), named.leaves.begin(), named.leaves.end());
  return values;
}

// Values by name. A region sees those around it, which it captures in order of first use.
struct Scope {
  Scope* outer = nullptr;
  HashMap<std::pair<std::string_view, uint32_t>, Named> values = {};
  Values captured = {};                // what they are outside
  std::vector<Value> parameters = {};  // what they are inside
  Stream stream = {};
};

// A function of the text. Null while it is being read.
struct Callable {
  Ref<const Function> function;
  bool draws = false;  // a stream of random numbers is its last parameter
};

class Reader {
 public:
  Reader(std::string_view text, const ReadOptions& options)
      : text_(text), options_(options), parser_(text), shardings_(parser_) {}
  absl::StatusOr<ir::Module> Read();

 private:
  absl::Status At(size_t position, const absl::Status& status) const;
  template <typename... Args>
  absl::Status Wrong(size_t position, const Args&... what) const {
    return At(position, UserError(what...));
  }

  absl::StatusOr<const Operation*> Frame(const Region& top, ir::Module& module);
  absl::Status CheckKnown(const Region& region) const;
  absl::Status ReadArgument(const Operation& function, size_t i, Named& argument,
                            std::vector<ir::ParameterInfo>& infos) const;
  absl::StatusOr<Callable> ReadFunction(const Operation& function);
  absl::StatusOr<ir::ShloRegion> Callee(const Operation& op, std::string_view name, std::vector<Signature>& signatures);
  absl::Status ReadBlock(const Region& region, Scope& scope, std::vector<Named>& results);
  absl::StatusOr<ir::ShloRegion> ReadRegion(const Region& region, std::string_view name, Scope& outer,
                                            Signature& signature);
  absl::Status ReadOperation(const Operation& op, Scope& scope);
  absl::Status ReadRegions(const Operation& op, Scope& scope, ir::StableHloOp& call,
                           std::vector<Signature>& signatures);
  absl::StatusOr<Values> Compute(const Operation& op, const Rule& rule, const QuantizedCall& types,
                                 ir::StableHloOp& call) const;
  absl::StatusOr<Values> Make(const Operation& op, Scope& scope, const Rule& rule);
  absl::StatusOr<Named> MakeStructure(const Operation& op, Scope& scope) const;
  std::optional<Named> Lookup(Scope& scope, const Use& use) const;
  absl::StatusOr<Named> Operand(Scope& scope, const Use& use) const;
  absl::StatusOr<std::vector<Named>> Operands(const Operation& op, Scope& scope) const;
  absl::Status Bind(const Operation& op, const Values& results, Scope& scope) const;
  ir::Location LocationOf(std::string_view text) const;

  const std::string_view text_;
  const ReadOptions& options_;
  Parser parser_;
  TextShardings shardings_;
  HashMap<std::string_view, const Operation*> functions_;
  HashMap<const Operation*, Callable> read_;
  uint64_t processes_ = 1;  // as the text says
  int depth_ = 0;           // of regions and calls, as they nest in the result
};

absl::Status Reader::At(size_t position, const absl::Status& status) const {
  if (status.ok()) return status;
  return WithText(status, absl::StrCat(PlaceIn(text_, position), status.message()));
}

// Indexes the functions, reads what the module says of itself, and finds the entry.
absl::StatusOr<const Operation*> Reader::Frame(const Region& top, ir::Module& module) {
  const Region* frame = &top;
  if (top.operations.size() == 1 && top.operations[0].name == "builtin.module") {
    const Operation& op = top.operations[0];
    if (op.regions.size() != 1) return Wrong(op.position, "a module has one region");
    frame = &op.regions[0];
    const auto number = [&](std::string_view name) {
      const ir::ShloAttr* found = op.Find(name);
      return found == nullptr || found->kind != ir::ShloAttr::Kind::kInt || found->integer < 1 ||
                     found->integer > INT32_MAX
                 ? 1
                 : static_cast<uint32_t>(found->integer);
    };
    module.participants.partitions = number("mhlo.num_partitions");
    module.participants.replicas = number("mhlo.num_replicas");
    processes_ = module.participants.count();
  }
  const Operation* entry = nullptr;
  for (const Operation& op : frame->operations) {
    if (op.name == "sdy.mesh") {
      if (!options_.alone) WEFT_RETURN_IF_ERROR(At(op.position, shardings_.AddMesh(op)));
      continue;
    }
    const ir::ShloAttr* name = op.Find("sym_name");
    if (op.name != "func.func" || name == nullptr || op.regions.size() != 1) {
      return Wrong(op.position, "a module holds functions with a name and a body, not ", op.name);
    }
    if (!functions_.try_emplace(name->string, &op).second) {
      return Wrong(op.position, "two functions are called @", name->string);
    }
    if (name->string == options_.entry || (entry == nullptr && functions_.size() == 1)) entry = &op;
  }
  if (entry == nullptr) return Wrong(0, "the text has no function");
  if (functions_.size() > 1 && !functions_.contains(options_.entry)) {
    return Wrong(entry->position, "none of the ", functions_.size(), " functions is called @", options_.entry);
  }
  return entry;
}

// The first among those that the operation spells out, or null.
const TypeText* QuantizedType(const Operation& op) {
  for (const std::vector<TypeText>* types : {&op.operand_types, &op.result_types}) {
    for (const TypeText& type : *types) {
      if (type.quantized != nullptr) return &type;
    }
  }
  return nullptr;
}

// All that Weft lacks, at once and before anything is made of the rest. Iterative: the tree is as deep as the text says.
absl::Status Reader::CheckKnown(const Region& region) const {
  std::set<std::string> operations;
  std::set<std::string_view> types;
  size_t first = text_.size();
  std::vector<const Region*> open = {&region};
  const auto check = [&](const TypeText& type, size_t position) {
    if (type.supported) return;
    types.insert(type.text);
    first = std::min(first, position);
  };
  while (!open.empty()) {
    const Region& next = *open.back();
    open.pop_back();
    for (const Operation& op : next.operations) {
      if (!IsFrame(op.name) && !IsOneOf(kStructures, op.name) && RuleOf(op, options_) == nullptr) {
        operations.insert(RuleName(op));
        first = std::min(first, op.position);
      } else if (const TypeText* type = QuantizedType(op); type != nullptr && !IsFrame(op.name)) {
        if (QuantizedUseOf(op.name) == QuantizedUse::kRefused) {
          operations.insert(absl::StrCat(RuleName(op), " of ", type->text));
          first = std::min(first, op.position);
        }
      }
      for (const TypeText& type : op.operand_types) check(type, op.position);
      for (const TypeText& type : op.result_types) check(type, op.position);
      for (const Region& inner : op.regions) {
        for (const Argument& argument : inner.arguments) check(argument.type, op.position);
        open.push_back(&inner);
      }
    }
  }
  if (operations.empty() && types.empty()) return absl::OkStatus();
  std::string lacks;
  if (!operations.empty()) absl::StrAppend(&lacks, "operations: ", absl::StrJoin(operations, ", "));
  if (!types.empty()) absl::StrAppend(&lacks, operations.empty() ? "" : "; ", "types: ", absl::StrJoin(types, ", "));
  return At(first, UserErrorOf(absl::StatusCode::kUnimplemented,
                               "this version of Weft does not have all that the text uses; ", lacks));
}

std::optional<Named> Reader::Lookup(Scope& scope, const Use& use) const {
  const auto key = std::pair(use.name, use.index);
  if (auto found = scope.values.find(key); found != scope.values.end()) return found->second;
  if (scope.outer == nullptr) return std::nullopt;
  std::optional<Named> named = Lookup(*scope.outer, use);
  if (!named) return named;
  for (Value& leaf : named->leaves) {
    Value inside = Parameter(leaf.type());
    scope.captured.push_back(std::exchange(leaf, inside));
    scope.parameters.push_back(std::move(inside));
  }
  scope.values[key] = *named;
  return named;
}

absl::StatusOr<Named> Reader::Operand(Scope& scope, const Use& use) const {
  std::optional<Named> named = Lookup(scope, use);
  if (named) return *std::move(named);
  if (use.index > 0 && Lookup(scope, {use.name})) return Wrong(use.position, use.name, " has no result ", use.index);
  return Wrong(use.position, use.name, " is not defined before its use");
}

absl::StatusOr<std::vector<Named>> Reader::Operands(const Operation& op, Scope& scope) const {
  std::vector<Named> operands;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Use& use = op.operands[i];
    WEFT_ASSIGN_OR_RETURN(operands.emplace_back(), Operand(scope, use));
    const Named& operand = operands.back();
    if (op.operand_types.size() <= i || SameType(op.operand_types[i], operand.type)) continue;
    return Wrong(use.position, use.name, " is ", Spell(operand.type), "; ", op.name, " says ",
                 op.operand_types[i].text);
  }
  if (!op.operand_types.empty() && op.operand_types.size() != op.operands.size()) {
    return Wrong(op.position, op.name, " has ", op.operands.size(), " operands and types of ", op.operand_types.size());
  }
  return operands;
}

// The first file and line that the location names, through aliases.
ir::Location Reader::LocationOf(std::string_view text) const {
  for (int hop = 0; hop < kLocationHops; ++hop) {
    text = text.substr(0, kLocationText);
    const size_t at = text.find_first_of("\"#");
    if (at == std::string_view::npos) return {};
    if (text[at] == '#') {
      size_t end = at + 1;
      while (end < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
        ++end;
      text = parser_.LocationAlias(text.substr(at, end - at));
      continue;
    }
    const size_t close = text.find('"', at + 1);
    if (close == std::string_view::npos) return {};
    const std::string_view file = text.substr(at + 1, close - at - 1);
    text.remove_prefix(close + 1);
    if (!text.starts_with(':')) continue;  // "name"("file":1:2): the name goes before
    ir::Location location;
    if (!absl::SimpleAtoi(text.substr(1, text.find_first_not_of("0123456789", 1) - 1), &location.line)) return {};
    location.file = ir::InternFile(file);
    return location;
  }
  return {};
}

absl::StatusOr<ir::ShloRegion> Reader::ReadRegion(const Region& region, std::string_view name, Scope& outer,
                                                  Signature& signature) {
  Scope scope{.outer = &outer};
  std::vector<Value> parameters;
  std::vector<Named> results;
  for (const Argument& argument : region.arguments) {
    Named& named = scope.values[{argument.name, 0}];
    named = {argument.type, {}};
    for (const TypeText& leaf : LeavesOf(named.type)) named.leaves.push_back(Parameter(leaf.type));
    parameters.insert(parameters.end(), named.leaves.begin(), named.leaves.end());
  }
  WEFT_RETURN_IF_ERROR(ReadBlock(region, scope, results));
  std::ranges::move(scope.parameters, std::back_inserter(parameters));
  if (scope.stream.draws()) parameters.push_back(scope.stream.state);
  signature = {LeavesOf(region.arguments), LeavesOf(results)};
  const Values values = ValuesOf(results);
  return ir::ShloRegion{
      ir::Intern(Function::Create(std::string(name), std::move(parameters), {values.begin(), values.end()})),
      std::move(scope.captured), scope.stream.draws()};
}

absl::Status Reader::ReadBlock(const Region& region, Scope& scope, std::vector<Named>& results) {
  for (const Operation& op : region.operations) {
    if (op.name != "return") {
      WEFT_RETURN_IF_ERROR(ReadOperation(op, scope));
      continue;
    }
    if (&op != &region.operations.back()) return Wrong(op.position, "return is the last operation of a region");
    for (const Use& use : op.operands) {
      WEFT_ASSIGN_OR_RETURN(results.emplace_back(), Operand(scope, use));
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadArgument(const Operation& function, size_t i, Named& named,
                                  std::vector<ir::ParameterInfo>& infos) const {
  const Argument& argument = function.regions[0].arguments[i];
  const auto wrong = [&](const auto&... what) {
    return Wrong(function.position, "parameter ", argument.name, ": ", what...);
  };
  ir::ShloAttr::Fields attributes = argument.attributes;
  if (const ir::ShloAttr* all = function.Find("arg_attrs"); all != nullptr && i < all->list.size()) {
    attributes = all->list[i].fields;  // the generic form's
  }
  ir::ParameterInfo info;
  ir::NodeExtras extras;
  for (const auto& [name, value] : attributes) {
    if (name == "tf.aliasing_output") {
      if (value.kind != ir::ShloAttr::Kind::kInt || value.integer < 0 || value.integer > INT32_MAX) {
        return wrong("tf.aliasing_output is ", value.text, "; it is a result's number");
      }
      info.donated_to = static_cast<int32_t>(value.integer);
    } else if (name == "mhlo.sharding") {
      extras.sharding = value.string;
    } else {
      extras.unknown_attributes.emplace_back(NameAsText(name), parser_.TextOf(value));
    }
  }
  const bool plain = extras == ir::NodeExtras();
  named = {argument.type, {}};
  if (!named.type.type.is_tensor() && info.donated_to >= 0)
    return wrong("tf.aliasing_output is for tensors, not for ", argument.type.text);
  for (const TypeText& leaf : LeavesOf(named.type)) {
    named.leaves.push_back(Parameter(leaf.type, plain ? nullptr : std::make_unique<const ir::NodeExtras>(extras)));
    infos.push_back(info);
  }
  return absl::OkStatus();
}

absl::StatusOr<Callable> Reader::ReadFunction(const Operation& function) {
  auto [found, first] = read_.try_emplace(&function);
  if (!first && found->second.function == nullptr) {
    return Wrong(function.position, "@", function.Find("sym_name")->string, " calls itself; recursion has no end here");
  }
  if (!first) return found->second;
  if (depth_ >= ir::kMaxRegionDepth) {
    return Wrong(function.position, "calls and regions nest deeper than ", ir::kMaxRegionDepth);
  }
  ++depth_;
  Scope scope;
  std::vector<Value> parameters;
  std::vector<Named> returned;
  std::vector<ir::ParameterInfo> infos;
  const Region& body = function.regions[0];
  for (size_t i = 0; i < body.arguments.size(); ++i) {
    Named& named = scope.values[{body.arguments[i].name, 0}];
    WEFT_RETURN_IF_ERROR(ReadArgument(function, i, named, infos));
    parameters.insert(parameters.end(), named.leaves.begin(), named.leaves.end());
  }
  WEFT_RETURN_IF_ERROR(ReadBlock(body, scope, returned));
  const std::vector<TypeText> types = LeavesOf(function.result_types), results = LeavesOf(returned);
  for (size_t i = 0; i < types.size(); ++i) {
    if (i < results.size() && results.size() == types.size() && SameType(results[i], types[i])) continue;
    return Wrong(function.position, "@", function.Find("sym_name")->string, " returns ", results.size(), " values",
                 i < results.size() ? absl::StrCat(", value ", i, " of type ", Spell(results[i])) : "",
                 "; the function says ", types.size(), " and ", Spell(types[i]));
  }
  for (ir::ParameterInfo& info : infos) {
    // The text counts a tuple as one.
    const std::span<const TypeText> written = function.result_types;
    if (info.donated_to >= 0 && static_cast<size_t>(info.donated_to) < written.size()) {
      info.donated_to = static_cast<int32_t>(LeavesOf(written.first(static_cast<size_t>(info.donated_to))).size());
    }
    if (info.donated_to < static_cast<int32_t>(results.size())) continue;
    return Wrong(function.position, "tf.aliasing_output is ", info.donated_to, "; there are ", results.size(),
                 " results");
  }
  --depth_;
  if (scope.stream.draws()) {
    parameters.push_back(scope.stream.state);
    infos.emplace_back();
  }
  const Values values = ValuesOf(returned);
  return read_[&function] = {Function::Create(function.Find("sym_name")->string, std::move(parameters),
                                              {values.begin(), values.end()}, std::move(infos)),
                             scope.stream.draws()};
}

absl::StatusOr<ir::ShloRegion> Reader::Callee(const Operation& op, std::string_view name,
                                              std::vector<Signature>& signatures) {
  auto found = functions_.find(name);
  if (found == functions_.end()) return Wrong(op.position, "there is no function @", name);
  const Operation& function = *found->second;
  signatures.push_back({LeavesOf(function.regions[0].arguments), LeavesOf(function.result_types)});
  WEFT_ASSIGN_OR_RETURN(Callable callee, ReadFunction(function));
  // JAX prints some functions several times, under different names.
  return ir::ShloRegion{ir::Intern(std::move(callee.function)), {}, callee.draws};
}

absl::Status Reader::ReadRegions(const Operation& op, Scope& scope, ir::StableHloOp& call,
                                 std::vector<Signature>& signatures) {
  for (std::string_view attribute : {"callee", "decomposition"}) {
    if (op.name != (attribute == "callee" ? "func.call" : "stablehlo.composite")) continue;
    const ir::ShloAttr* name = call.Find(attribute);
    if (name == nullptr) return Wrong(op.position, op.name, " needs the attribute ", attribute);
    WEFT_ASSIGN_OR_RETURN(call.regions.emplace_back(), Callee(op, name->string, signatures));
  }
  if (const ir::ShloAttr* named = call.Find("called_computations"); named != nullptr) {
    for (const ir::ShloAttr& name : named->list) {
      WEFT_ASSIGN_OR_RETURN(call.regions.emplace_back(), Callee(op, name.string, signatures));
    }
  }
  if (!op.regions.empty() && depth_ >= ir::kMaxRegionDepth) {
    return Wrong(op.position, "calls and regions nest deeper than ", ir::kMaxRegionDepth);
  }
  ++depth_;
  for (size_t i = 0; i < op.regions.size(); ++i) {
    const bool named = call.op != nullptr && !call.op->regions.empty();
    const std::string_view name = named ? call.op->regions[std::min(i, call.op->regions.size() - 1)].name : "region";
    WEFT_ASSIGN_OR_RETURN(call.regions.emplace_back(),
                          ReadRegion(op.regions[i], name, scope, signatures.emplace_back()));
  }
  --depth_;
  return absl::OkStatus();
}

// Puts the attributes that the reading did not ask for on the node, which is made once more for them.
Values WithExtras(const Values& results, const ir::StableHloOp& call, const Parser& parser) {
  ir::NodeExtras extras;
  for (size_t i = 0; i < call.attributes().size(); ++i) {
    const auto& [name, value] = call.attributes()[i];
    if (call.understood(i)) continue;
    if (name == "mhlo.sharding") {
      extras.sharding = value.string;
    } else {
      extras.unknown_attributes.emplace_back(NameAsText(name), parser.TextOf(value));
    }
  }
  const ir::Node* node = results.empty() ? nullptr : results[0].node.get();
  bool made_here = node != nullptr && !node->op().parameter && node->results().size() == results.size() &&
                   std::ranges::find(call.operands, results[0]) == call.operands.end();
  // A call that became several operations has no one node to carry them.
  for (uint32_t i = 0; i < results.size(); ++i) {
    made_here = made_here && results[i].node.get() == node && results[i].result == i;
  }
  if (extras == ir::NodeExtras() || !made_here) return results;
  std::unique_ptr<ir::Regions> regions;
  if (!node->regions().empty()) regions.reset(new ir::Regions{{node->regions().begin(), node->regions().end()}});
  const Ref<const ir::Node> copy =
      ir::Node::Create(node->op(), Values(node->operands().begin(), node->operands().end()), node->attrs(),
                       ir::Types(node->results().begin(), node->results().end()), std::move(regions), node->location(),
                       std::make_unique<const ir::NodeExtras>(std::move(extras)));
  Values with;
  for (uint32_t i = 0; i < results.size(); ++i) with.push_back({copy, i});
  return with;
}

// JAX prints calls and branches of which nothing is left: their functions have no results.
bool GivesNothing(const ir::StableHloOp& call) {
  return call.results.empty() && !call.regions.empty() &&
         std::ranges::all_of(call.regions, [](const auto& region) { return region.function->results().empty(); });
}

// Operands that are quantised become floats, and results of the text's quantised types integers.
absl::StatusOr<Values> Reader::Compute(const Operation& op, const Rule& rule, const QuantizedCall& types,
                                       ir::StableHloOp& call) const {
  for (size_t i = 0; i < types.operands.size(); ++i) {
    const auto& quantized = types.operands[i].quantized;
    if (quantized != nullptr && quantized->axis >= 0 && op.operand_types.empty()) {
      // Else a short line could make long constants.
      return Wrong(op.position, op.name, " needs the types of its operands; one is ", types.operands[i].text);
    }
    if (quantized != nullptr) call.operands[i] = Dequantize(call.b, call.operands[i], *quantized);
  }
  for (size_t i = 0; i < types.results.size(); ++i) call.results[i] = ExpressedType(types.results[i]);
  Values results = rule.read(call);
  if (!call.b.ok()) return results;
  results = WithExtras(results, call, parser_);
  for (size_t i = 0; i < std::min(results.size(), types.results.size()); ++i) {
    if (types.results[i].quantized == nullptr) continue;
    if (!results[i] || !(results[i].type() == call.results[i])) {
      return Wrong(op.position, op.name, " gives ", results[i] ? ToString(results[i].type()) : "nothing",
                   " before it is quantised; the text says ", types.results[i].text);
    }
    results[i] = Quantize(call.b, results[i], *types.results[i].quantized);
  }
  return results;
}

// Literals of unsigned quantised elements are written without a sign's word: tensor<2xi8> for u8.
void TakeBits(ir::StableHloOp& call, Values& results) {
  if (!call.b.ok() || results.size() != 1 || call.results.size() != 1) return;
  const ir::Type &found = results[0].type(), &wanted = call.results[0];
  if (found == wanted || found.dims != wanted.dims || !IsInteger(found.dtype) || IsBool(found.dtype) ||
      BitsOf(found.dtype) != BitsOf(wanted.dtype)) {
    return;
  }
  results[0] = ops::Call(call.b, ops::kOp_bitcast_convert, {results[0]}, {wanted.dtype});
}

absl::StatusOr<Values> Reader::Make(const Operation& op, Scope& scope, const Rule& rule) {
  ir::Builder b(LocationOf(op.location));
  ir::StableHloOp call(b, rule.op, op.name, AttributesOf(op, options_));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Named> operands, Operands(op, scope));
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].type.type.is_tensor() && !IsOneOf(kVariadic, op.name)) {
      return Wrong(op.operands[i].position, op.name, " takes tensors; ", op.operands[i].name, " is ",
                   ToString(operands[i].type.type));
    }
  }
  call.operands = ValuesOf(operands);
  QuantizedCall types{LeavesOf(operands), LeavesOf(op.result_types), {}};
  for (const TypeText& type : types.results) call.results.push_back(type.type);
  WEFT_RETURN_IF_ERROR(ReadRegions(op, scope, call, types.functions));
  if (rule.op == &ops::kOp_custom_call) {
    const Ref<const ops::CustomFunction> custom = CustomOf(op, options_);
    if (custom == nullptr) return Wrong(op.position, RuleName(op), " is not registered any more");
    WEFT_RETURN_IF_ERROR(At(op.position, AddCustom(*custom, call)));
  }
  if (GivesNothing(call)) return Values();
  WEFT_RETURN_IF_ERROR(At(op.position, GiveStreams(call, scope.stream)));
  const auto named = [&](const absl::Status& status) {
    return At(op.position, absl::Status(status.code(), absl::StrCat(op.name, ": ", status.message())));
  };
  const absl::StatusOr<QuantizedUse> use = CheckQuantized(types, call);
  if (!use.ok()) return named(use.status());
  Values results;
  if (*use == QuantizedUse::kComputes) {
    WEFT_ASSIGN_OR_RETURN(results, Compute(op, rule, types, call));
  } else {
    std::optional<Values> placed = shardings_.Read(call);
    results = placed ? *std::move(placed) : rule.read(call);
    if (b.ok()) results = WithExtras(results, call, parser_);
    if (!types.results.empty() && types.results[0].quantized != nullptr && op.name == "stablehlo.constant") {
      TakeBits(call, results);
    }
  }
  if (!b.ok()) return named(b.status());
  if (!results.empty() && results[0] && ops::IsCollective(results[0].node->op())) {
    const ir::Node& node = *results[0].node;
    const absl::Status fits = ops::CheckProcesses(node.op(), node.attrs(), options_.alone ? 1 : processes_);
    if (!fits.ok()) return named(fits);
  }
  TakeStreams(call, types.results.size(), scope.stream, results);
  return results;
}

absl::StatusOr<Named> Reader::MakeStructure(const Operation& op, Scope& scope) const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Named> operands, Operands(op, scope));
  if (op.name == "stablehlo.get_tuple_element") {
    const ir::ShloAttr* index = op.Find("index");
    if (operands.size() != 1 || operands[0].type.type.kind != ir::Type::Kind::kTuple || index == nullptr ||
        index->kind != ir::ShloAttr::Kind::kInt) {
      return Wrong(op.position, op.name, " takes one tuple and an index");
    }
    const std::vector<ir::Type>& elements = *operands[0].type.type.elements;
    if (index->integer < 0 || index->integer >= static_cast<int64_t>(elements.size())) {
      return Wrong(op.position, op.name, " has index ", index->integer, " of ", elements.size(), " elements");
    }
    auto first = operands[0].leaves.begin();
    for (int64_t i = 0; i < index->integer; ++i)
      first += static_cast<ptrdiff_t>(CountLeaves(elements[static_cast<size_t>(i)]));
    const ir::Type& element = elements[static_cast<size_t>(index->integer)];
    return Named{{.type = element}, Values(first, first + static_cast<ptrdiff_t>(CountLeaves(element)))};
  }
  const bool tuple = op.name == "stablehlo.tuple";
  std::vector<ir::Type> types;
  for (size_t i = 0; i < operands.size(); ++i) {
    const TypeText& type = operands[i].type;
    types.push_back(type.type);
    if (tuple ? type.quantized == nullptr : type.type == ir::Type::Token()) continue;
    return Wrong(op.operands[i].position, op.name, " takes ", tuple ? "values that are not quantised; " : "tokens; ",
                 op.operands[i].name, " is ", Spell(type));
  }
  if (tuple) return Named{{.type = ir::Type::Tuple(std::move(types))}, ValuesOf(operands)};
  return Named{{.type = ir::Type::Token()}, {}};
}

// One name a type that the text gives.
absl::Status Reader::Bind(const Operation& op, const Values& results, Scope& scope) const {
  size_t next = 0;
  auto leaf = results.begin();
  for (const Bound& bound : op.bounds) {
    for (uint32_t i = 0; i < bound.count; ++i) {
      const TypeText& type = op.result_types[next++];
      const auto end = leaf + static_cast<ptrdiff_t>(CountLeaves(type.type));
      if (!scope.values.try_emplace({bound.name, i}, Named{type, Values(leaf, end)}).second) {
        return Wrong(bound.position, bound.name, " is defined twice");
      }
      leaf = end;
    }
  }
  return absl::OkStatus();
}

absl::Status Reader::ReadOperation(const Operation& op, Scope& scope) {
  if (IsOneOf(kStructures, op.name)) {
    WEFT_ASSIGN_OR_RETURN(const Named made, MakeStructure(op, scope));
    if (op.result_types.size() == 1 && SameType(op.result_types[0], made.type)) return Bind(op, made.leaves, scope);
    return Wrong(op.position, op.name, " gives ", ToString(made.type.type), "; the text says ",
                 op.result_types.empty() ? "nothing" : op.result_types[0].text);
  }
  const Rule* rule = RuleOf(op, options_);
  if (rule == nullptr) return Wrong(op.position, op.name, " cannot stand in a function");
  WEFT_ASSIGN_OR_RETURN(const Values results, Make(op, scope, *rule));
  const std::vector<TypeText> types = LeavesOf(op.result_types);
  if (results.size() != types.size()) {
    return Wrong(op.position, RuleName(op), " has ", results.size(), " results; the text says ", types.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] && results[i].type() == types[i].type) continue;
    return Wrong(op.position, RuleName(op), " gives ", results[i] ? ToString(results[i].type()) : "nothing",
                 "; the text says ", Spell(types[i]));
  }
  return Bind(op, results, scope);
}

absl::StatusOr<ir::Module> Reader::Read() {
  WEFT_ASSIGN_OR_RETURN(const Region top, parser_.ParseText());
  ir::Module module;
  WEFT_ASSIGN_OR_RETURN(const Operation* entry, Frame(top, module));
  WEFT_RETURN_IF_ERROR(CheckKnown(top));
  WEFT_RETURN_IF_ERROR(At(entry->position, shardings_.Entry(*entry, &module.participants)));
  WEFT_ASSIGN_OR_RETURN(Callable main, ReadFunction(*entry));
  module.functions.push_back(std::move(main.function));
  module.draws = main.draws;
  return module;
}

}  // namespace

absl::StatusOr<ir::Module> ReadStableHlo(std::string_view text, const ReadOptions& options) {
  return Reader(text, options).Read();
}

std::vector<std::string> ReadableOperations() {
  std::vector<std::string> names = RuleNames();
  names.insert(names.end(), std::begin(kStructures), std::end(kStructures));
  std::ranges::sort(names);
  return names;
}

}  // namespace weft::stablehlo
