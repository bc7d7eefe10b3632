// See hlo.h. The tree of the text becomes computations; what an operation's attributes become is in hlo_attributes.cc.
#include "src/stablehlo/hlo.h"

#include <algorithm>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/text.h"
#include "src/runtime/hash_map.h"
#include "src/stablehlo/hlo_attributes.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {
namespace {

// A value by its name in HLO.
struct Named {
  std::string name;
  ir::Type type;
};
std::string NameOf(const Named& value) { return value.name; }

std::string TupleShape(std::span<const Named> values) {
  return absl::StrCat(
      "(", absl::StrJoin(values, ", ", [](std::string* out, const Named& value) { *out += HloShape(value.type); }),
      ")");
}
std::string Operands(std::span<const Named> values) {
  return absl::StrJoin(values, ", ", [](std::string* out, const Named& value) { *out += NameOf(value); });
}

// The values of around it that a region uses, in the order of first use.
void FindFree(const Region& region, HashSet<std::string_view> bound, std::vector<Use>* free) {
  for (const Argument& argument : region.arguments) bound.insert(argument.name);
  for (const Operation& op : region.operations) {
    for (const Use& use : op.operands) {
      const bool known = std::ranges::any_of(
          *free, [&](const Use& other) { return other.name == use.name && other.index == use.index; });
      if (!bound.contains(use.name) && !known) free->push_back(use);
    }
    for (const Region& inside : op.regions) FindFree(inside, bound, free);
    for (const Bound& made : op.bounds) bound.insert(made.name);
  }
}
std::vector<Use> FreeOf(std::span<const Region> regions) {
  std::vector<Use> free;
  for (const Region& region : regions) FindFree(region, {}, &free);
  return free;
}

// metadata={op_type="add" op_name="add" source_file="a.c" source_line=3} of "a.c":3:1
std::string Metadata(const Operation& op) {
  const std::string_view location = op.location;
  const size_t end = location.rfind('"');
  if (location.empty() || location[0] != '"' || end == 0) return "";
  int64_t line = 0;
  for (size_t i = end + 2; i < location.size() && location[i] >= '0' && location[i] <= '9'; ++i)
    line = 10 * line + (location[i] - '0');
  std::string file;
  for (size_t i = 1; i < end; ++i) {  // MLIR's escapes are two hexadecimal digits
    std::string byte;
    if (location[i] == '\\' && i + 2 < end && absl::HexStringToBytes(location.substr(i + 1, 2), &byte)) {
      file += byte, i += 2;
    } else {
      file += location[i];
    }
  }
  std::string_view name = op.name;
  name.remove_prefix(name.find('.') == name.npos ? 0 : name.find('.') + 1);
  return absl::StrCat(", metadata={op_type=\"", name, "\" op_name=\"", name, "\" source_file=\"", absl::CEscape(file),
                      "\" source_line=", line, "}");
}

// One computation that is being written.
struct Scope {
  const Scope* outer = nullptr;                                // of a region
  HashMap<std::string_view, std::vector<Named>> values;        // by the name in StableHLO
  HashMap<std::string_view, const Operation*> constants = {};  // of the outermost kind: what a region may say again
  std::string text = {};
};

class Writer {
 public:
  absl::StatusOr<std::string> Module(const Region& top) {
    const auto module = std::ranges::find(top.operations, "builtin.module", &Operation::name);
    if (module == top.operations.end() || module->regions.empty()) return UserError("the text has no module");
    const Operation* entry = nullptr;
    for (const Operation& op : module->regions[0].operations) {
      const ir::ShloAttr* name = op.Find("sym_name");
      if (op.name != "func.func" || name == nullptr || op.regions.empty()) continue;
      functions_[name->string] = &op;
      if (name->string == "main") entry = &op;
    }
    if (entry == nullptr) return UserError("the module has no function main");
    const Scope scope = Plain(entry->regions[0], nullptr, true);
    WEFT_RETURN_IF_ERROR(status_);
    return absl::StrCat("HloModule weft", Aliases(entry->regions[0]), "\n\n", computations_, "ENTRY %main {\n",
                        scope.text, "}\n");
  }

 private:
  void Fail(std::string_view what) {
    if (status_.ok()) status_ = UserErrorOf(absl::StatusCode::kUnimplemented, "HLO text has no spelling of ", what);
  }

  std::string Fresh() { return absl::StrCat("%v", next_++); }

  static std::string Aliases(const Region& entry) {
    std::vector<std::string> pairs;
    for (size_t i = 0; i < entry.arguments.size(); ++i) {
      for (const auto& [name, value] : entry.arguments[i].attributes) {
        if (name == "tf.aliasing_output")
          pairs.push_back(absl::StrCat("{", value.integer, "}: (", i, ", {}, may-alias)"));
      }
    }
    return pairs.empty() ? "" : absl::StrCat(", input_output_alias={ ", absl::StrJoin(pairs, ", "), " }");
  }

  Named Line(Scope& scope, const std::string& shape, const ir::Type& type, std::string_view rest) {
    Named made = {Fresh(), type};
    absl::StrAppend(&scope.text, "  ", made.name, " = ", shape, " ", rest, "\n");
    return made;
  }
  Named Line(Scope& scope, const ir::Type& type, std::string_view rest) {
    return Line(scope, HloShape(type), type, rest);
  }
  Named Element(Scope& scope, const Named& tuple, size_t i, const ir::Type& type) {
    return Line(scope, type, absl::StrCat("get-tuple-element(", tuple.name, "), index=", i));
  }
  Named Tuple(Scope& scope, std::span<const Named> values) {
    return Line(scope, TupleShape(values), {}, absl::StrCat("tuple(", Operands(values), ")"));
  }

  // A value as it is called here. A constant of around is said again; anything else must have been carried in.
  Named Value(Scope& scope, const Use& use) {
    if (const auto found = scope.values.find(use.name); found != scope.values.end())
      return use.index < found->second.size() ? found->second[use.index] : Named();
    for (const Scope* around = scope.outer; around != nullptr; around = around->outer) {
      const auto constant = around->constants.find(use.name);
      if (constant == around->constants.end()) continue;
      Constant(scope, *constant->second);
      return scope.values[use.name][0];
    }
    Fail("a region that uses a value of around it");
    return {};
  }
  std::vector<Named> Values(Scope& scope, std::span<const Use> uses) {
    std::vector<Named> values;
    for (const Use& use : uses) values.push_back(Value(scope, use));
    return values;
  }

  // The results of an operation, of a tuple where they are several.
  void Bind(Scope& scope, const Operation& op, std::string_view rest) {
    std::vector<Named> results;
    for (const TypeText& type : op.result_types) results.push_back({"", type.type});
    const bool several = results.size() != 1;
    const Named made = Line(scope, several ? TupleShape(results) : HloShape(results[0].type),
                            several ? ir::Type() : results[0].type, absl::StrCat(rest, Metadata(op)));
    for (size_t i = 0; i < results.size(); ++i) results[i] = several ? Element(scope, made, i, results[i].type) : made;
    Name(scope, op, std::move(results));
  }
  static void Name(Scope& scope, const Operation& op, std::vector<Named> results) {
    size_t next = 0;
    for (const Bound& bound : op.bounds) {
      std::vector<Named>& values = scope.values[bound.name];
      for (uint32_t i = 0; i < bound.count && next < results.size(); ++i) values.push_back(results[next++]);
    }
  }

  // A computation whose parameters are a region's arguments. `outer`: where constants may be found that it uses.
  Scope Plain(const Region& region, const Scope* outer, bool tuple_root) {
    Scope scope = {.outer = outer, .values = {}};
    for (size_t i = 0; i < region.arguments.size(); ++i) {
      const ir::Type& type = region.arguments[i].type.type;
      scope.values[region.arguments[i].name] = {Line(scope, type, absl::StrCat("parameter(", i, ")"))};
    }
    const std::vector<Named> results = Body(scope, region);
    if (status_.ok()) Root(scope, results, tuple_root || results.size() != 1);
    return scope;
  }
  // Gives the name of a computation that takes a tuple of `carried` and `captured`, and returns the results, or those and what was captured.
  std::string Carrying(const Region& region, std::string_view label, std::span<const ir::Type> carried,
                       std::span<const Use> uses, std::span<const Named> captured, bool passes_on, bool tuple_root) {
    Scope scope;
    std::vector<Named> whole;
    for (const ir::Type& type : carried) whole.push_back({"", type});
    whole.insert(whole.end(), captured.begin(), captured.end());
    const Named tuple = Line(scope, TupleShape(whole), {}, "parameter(0)");
    for (size_t i = 0; i < whole.size(); ++i) {
      whole[i] = Element(scope, tuple, i, whole[i].type);
      if (i < region.arguments.size()) scope.values[region.arguments[i].name] = {whole[i]};
      if (i < carried.size()) continue;
      const Use& use = uses[i - carried.size()];
      std::vector<Named>& values = scope.values[use.name];
      if (values.size() <= use.index) values.resize(use.index + 1);
      values[use.index] = whole[i];
    }
    std::vector<Named> results = Body(scope, region);
    if (passes_on) results.insert(results.end(), whole.begin() + static_cast<ptrdiff_t>(carried.size()), whole.end());
    if (status_.ok()) Root(scope, results, tuple_root);
    return Keep(label, scope);
  }
  std::string Keep(std::string_view label, const Scope& scope) {
    const std::string name = absl::StrCat("%", label, "_", next_++);
    absl::StrAppend(&computations_, name, " {\n", scope.text, "}\n\n");
    return name;
  }

  // The last line is the root: a tuple, or a copy of the one result, which may be a parameter.
  void Root(Scope& scope, std::span<const Named> results, bool tuple) {
    const std::string shape = tuple ? TupleShape(results) : HloShape(results[0].type);
    absl::StrAppend(&scope.text, "  ROOT ", Fresh(), " = ", shape, tuple ? " tuple(" : " copy(", Operands(results),
                    ")\n");
  }

  std::vector<Named> Body(Scope& scope, const Region& region) {
    if (++depth_ > ir::kMaxRegionDepth) Fail("regions that nest so deep");
    std::vector<Named> results;
    for (const Operation& op : region.operations) {
      if (!status_.ok()) break;
      if (op.name == "return") {
        results = Values(scope, op.operands);
      } else {
        Write(scope, op);
      }
    }
    --depth_;
    return results;
  }

  void Write(Scope& scope, const Operation& op) {
    struct Own {
      std::string_view name;
      void (Writer::*write)(Scope& scope, const Operation& op);
    };
    constexpr Own kOwn[] = {{"stablehlo.constant", &Writer::Constant},
                            {"stablehlo.broadcast_in_dim", &Writer::Broadcast},
                            {"stablehlo.while", &Writer::While},
                            {"stablehlo.case", &Writer::Case},
                            {"stablehlo.optimization_barrier", &Writer::Barrier},
                            {"func.call", &Writer::Call},
                            {"call", &Writer::Call},
                            {"stablehlo.composite", &Writer::Call}};
    const Own* own = std::ranges::find(kOwn, op.name, &Own::name);
    if (own != std::end(kOwn)) return (this->*own->write)(scope, op);
    const HloSpelling spelling = HloSpellingOf(op);
    if (spelling.name.empty()) return Fail(op.name);
    const std::vector<Named> operands = Values(scope, op.operands);
    std::string roles;
    for (size_t i = 0; i < op.regions.size() && i < spelling.roles.size(); ++i) {
      const Scope inside = Plain(op.regions[i], &scope, false);
      absl::StrAppend(&roles, ", ", spelling.roles[i], "=", Keep("region", inside));
    }
    if (!status_.ok()) return;
    Bind(scope, op, absl::StrCat(spelling.name, "(", Operands(operands), ")", spelling.attributes, roles));
  }

  void Constant(Scope& scope, const Operation& op) {
    const ir::ShloAttr* value = op.Find("value");
    if (value == nullptr || op.result_types.size() != 1 || op.bounds.size() != 1)
      return Fail("a constant of that kind");
    const ir::Type& type = op.result_types[0].type;
    const std::string text = absl::StrCat("constant(", HloLiteral(*value), ")");
    Named made = Line(scope, value->splat ? ir::Type::Scalar(type.dtype) : type, absl::StrCat(text, Metadata(op)));
    if (value->splat) made = Line(scope, type, absl::StrCat("broadcast(", made.name, "), dimensions={}"));
    scope.values[op.bounds[0].name] = {made};
    scope.constants[op.bounds[0].name] = &op;
  }

  // A dimension of one element that becomes longer is no dimension of HLO's operand.
  void Broadcast(Scope& scope, const Operation& op) {
    Named x = Value(scope, op.operands[0]);
    const std::vector<int64_t> places = IntsIn(op, "broadcast_dimensions");
    const Dims& to = op.result_types[0].type.dims;
    std::vector<int64_t> kept;
    Dims dims;
    for (size_t i = 0; i < places.size() && i < x.type.dims.size(); ++i) {
      if (x.type.dims[i] != to[static_cast<size_t>(places[i])]) continue;
      kept.push_back(places[i]);
      dims.push_back(x.type.dims[i]);
    }
    if (dims.size() != x.type.dims.size())
      x = Line(scope, ir::Type::Tensor(x.type.dtype, dims), absl::StrCat("reshape(", x.name, ")"));
    Bind(scope, op, absl::StrCat("broadcast(", x.name, "), dimensions=", HloList(kept)));
  }

  void While(Scope& scope, const Operation& op) {
    if (op.regions.size() != 2) return Fail("a loop of that kind");
    std::vector<Named> whole = Values(scope, op.operands);
    const size_t carried = whole.size();
    const std::vector<Use> uses = FreeOf(op.regions);
    const std::vector<Named> captured = Values(scope, uses);
    std::vector<ir::Type> types;
    for (const Named& value : whole) types.push_back(value.type);
    whole.insert(whole.end(), captured.begin(), captured.end());
    const std::string condition = Carrying(op.regions[0], "condition", types, uses, captured, false, false);
    const std::string body = Carrying(op.regions[1], "body", types, uses, captured, true, true);
    if (!status_.ok()) return;
    const Named tuple = Tuple(scope, whole);
    const Named made =
        Line(scope, TupleShape(whole), {},
             absl::StrCat("while(", tuple.name, "), condition=", condition, ", body=", body, Metadata(op)));
    std::vector<Named> results;
    for (size_t i = 0; i < carried; ++i) results.push_back(Element(scope, made, i, whole[i].type));
    Name(scope, op, std::move(results));
  }

  void Case(Scope& scope, const Operation& op) {
    std::vector<Named> operands = {Value(scope, op.operands[0])};
    std::vector<std::string> branches;
    for (const Region& region : op.regions) {
      const std::vector<Use> uses = FreeOf({&region, 1});
      const std::vector<Named> captured = Values(scope, uses);
      branches.push_back(Carrying(region, "branch", {}, uses, captured, false, op.ResultCount() != 1));
      operands.push_back(Tuple(scope, captured));
    }
    if (!status_.ok()) return;
    Bind(scope, op,
         absl::StrCat("conditional(", Operands(operands), "), branch_computations={", absl::StrJoin(branches, ", "),
                      "}"));
  }

  void Barrier(Scope& scope, const Operation& op) {
    const std::vector<Named> operands = Values(scope, op.operands);
    const Named tuple = Tuple(scope, operands);
    const Named made = Line(scope, TupleShape(operands), {}, absl::StrCat("opt-barrier(", tuple.name, ")"));
    std::vector<Named> results;
    for (size_t i = 0; i < operands.size(); ++i) results.push_back(Element(scope, made, i, operands[i].type));
    Name(scope, op, std::move(results));
  }

  void Call(Scope& scope, const Operation& op) {
    const ir::ShloAttr* callee = op.Find(op.name == "stablehlo.composite" ? "decomposition" : "callee");
    const auto function = callee == nullptr ? functions_.end() : functions_.find(callee->string);
    if (function == functions_.end()) return Fail("a call of no function");
    const std::vector<Named> operands = Values(scope, op.operands);
    if (!written_.contains(callee->string)) {
      const Scope inside = Plain(function->second->regions[0], nullptr, false);
      written_[callee->string] = Keep("function", inside);
    }
    if (status_.ok())
      Bind(scope, op, absl::StrCat("call(", Operands(operands), "), to_apply=", written_[callee->string]));
  }

  absl::Status status_;
  uint64_t next_ = 0;
  int depth_ = 0;
  std::string computations_;
  HashMap<std::string, const Operation*> functions_;
  HashMap<std::string, std::string> written_;  // functions to computations
};

}  // namespace

std::string HloShape(const ir::Type& type) {
  if (!type.is_tensor()) return "token[]";
  std::vector<size_t> order;
  for (size_t i = type.dims.size(); i > 0; --i) order.push_back(i - 1);
  const std::string layout = order.empty() ? "" : absl::StrCat("{", absl::StrJoin(order, ","), "}");
  std::string element(NameOf(type.dtype));
  if (IsBool(type.dtype)) element = "pred";
  if (IsInteger(type.dtype) && IsSigned(type.dtype)) element[0] = 's';
  return absl::StrCat(element, "[", absl::StrJoin(type.dims, ","), "]", layout);
}

absl::StatusOr<std::string> HloText(std::string_view stablehlo) {
  Parser parser(stablehlo);
  WEFT_ASSIGN_OR_RETURN(const Region top, parser.ParseText());
  return Writer().Module(top);
}

}  // namespace weft::stablehlo
