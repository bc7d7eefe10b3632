// The module verifier.
#include "src/ir/verify.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/builder.h"
#include "src/ir/text.h"
#include "src/runtime/hash_map.h"

namespace weft::ir {
namespace {

absl::Status Broken(const Function& function, const Node* node, std::string_view what) {
  std::string text = absl::StrCat("in function @", function.name(), ": ", what);
  if (node != nullptr) {
    absl::StrAppend(&text, "\n  ", PrintNode(function, *node));
    if (node->location().file != 0) absl::StrAppend(&text, "\n  recorded at ", ToString(node->location()));
  }
  return InternalError(text);
}

std::string TypesText(std::span<const Type> types) {
  return absl::StrJoin(types, ", ", [](std::string* out, const Type& type) { absl::StrAppend(out, ToString(type)); });
}

absl::Status VerifyNode(const Function& function, const Node& node) {
  Attrs attrs = node.attrs();
  Types types;
  if (absl::Status status = CheckCall(node.op(), node.operands(), attrs, &types, node.regions()); !status.ok()) {
    return Broken(function, &node, status.message());
  }
  if (!(attrs == node.attrs())) return Broken(function, &node, "an attribute's default is not filled in");
  // Without a shape rule the types are whatever the maker says: parameter and the compiler's own nodes.
  if (node.op().infer != nullptr && types != Types(node.results().begin(), node.results().end())) {
    return Broken(
        function, &node,
        absl::StrCat("the operation's rule gives ", TypesText(types), ", the node has ", TypesText(node.results())));
  }
  return absl::OkStatus();
}

absl::Status VerifyParameters(const Function& function, uint32_t words) {
  if (function.parameter_infos().size() != function.parameters().size()) {
    return Broken(function, nullptr,
                  absl::StrCat(function.parameters().size(), " parameters have ", function.parameter_infos().size(),
                               " descriptions"));
  }
  HashSet<const Node*> seen;
  HashSet<int32_t> taken;
  for (size_t i = 0; i < function.parameters().size(); ++i) {
    const Value& parameter = function.parameters()[i];
    const ParameterInfo& info = function.parameter_infos()[i];
    if (!parameter) return Broken(function, nullptr, absl::StrCat("parameter ", i, " is empty"));
    const Node* node = parameter.node.get();
    auto broken = [&](const auto&... what) {
      return Broken(function, node, absl::StrCat("parameter ", i, " ", what...));
    };
    if (!node->op().parameter) return broken("is not a parameter node");
    if (node->results().size() != 1 || !node->operands().empty()) return broken("has operands or not one result");
    if (!seen.insert(node).second) return broken("occurs twice");
    if (info.role == ParameterInfo::Role::kWords) {
      if (!parameter.type().is_tensor()) return broken("lies in the argument block but is no tensor");
      const uint64_t end = uint64_t{info.word} + WordsOf(parameter.type());
      if (end > words) return broken("ends at word ", end, " of an argument block of ", words);
      if (info.donated_to >= 0) return broken("lies in the argument block and is donated");
    }
    if (info.donated_to < -1 || info.donated_to >= static_cast<int32_t>(function.results().size())) {
      return broken("is donated to result ", info.donated_to, " of ", function.results().size());
    }
    if (info.donated_to < 0) continue;
    if (!taken.insert(info.donated_to).second) return broken("is donated to a result that has another donor");
    const Type& result = function.results()[info.donated_to].type();
    if (!result.is_tensor() || !parameter.type().is_tensor() || result.bytes() != parameter.type().bytes()) {
      return broken("of type ", ToString(parameter.type()), " is donated to a result of type ", ToString(result));
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyOne(const Function& function, uint32_t words) {
  for (const Value& result : function.results()) {
    if (!result) return Broken(function, nullptr, "a result is empty");
    if (result.result >= result.node->results().size()) {
      return Broken(function, result.node.get(), absl::StrCat("it has no result ", result.result));
    }
  }
  WEFT_RETURN_IF_ERROR(VerifyParameters(function, words));
  HashSet<const Node*> defined;
  defined.reserve(function.nodes().size());
  size_t position = 0;
  for (const Node* node : function.nodes()) {
    const bool is_parameter = node->op().parameter;
    if (is_parameter != (position < function.parameters().size())) {
      return Broken(function, node, "a leaf that is not among the function's parameters");
    }
    if (is_parameter && function.parameters()[position].node.get() != node) {
      return Broken(function, node, "parameters are not in order");
    }
    ++position;
    for (size_t i = 0; i < node->operands().size(); ++i) {
      const Value& operand = node->operands()[i];
      if (!operand) continue;
      if (!defined.contains(operand.node.get())) {
        return Broken(function, node, absl::StrCat("operand ", i, " is not computed before it"));
      }
      if (operand.result >= operand.node->results().size()) {
        return Broken(
            function, node,
            absl::StrCat("operand ", i, " is result ", operand.result, " of ", operand.node->results().size()));
      }
    }
    if (!defined.insert(node).second) return Broken(function, node, "it occurs twice");
    if (!is_parameter) WEFT_RETURN_IF_ERROR(VerifyNode(function, *node));
    for (const Ref<const Function>& region : node->regions()) {
      if (region == nullptr) return Broken(function, node, "a region is empty");
    }
  }
  for (const Value& result : function.results()) {
    if (!defined.contains(result.node.get())) return Broken(function, result.node.get(), "a result is not computed");
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t WordsOf(const Type& type) {
  const int64_t bytes = BytesOf(type.dtype);
  return static_cast<uint32_t>(type.count() * (bytes <= 4 ? 1 : bytes / 4));
}

absl::Status Verify(const Function& function, uint32_t words) {
  if (function.depth() > kMaxRegionDepth) {
    return InternalError("function @", function.name(), ": regions nest ", function.depth(), " deep; at most ",
                         kMaxRegionDepth);
  }
  for (const Function* each : CalleesFirst(function)) {
    WEFT_RETURN_IF_ERROR(VerifyOne(*each, each == &function ? words : 0));
  }
  return absl::OkStatus();
}

namespace {

absl::Status VerifyParticipants(const Module& module) {
  const Participants& who = module.participants;
  if (who.replicas == 0 || who.partitions == 0) {
    return InternalError("the module has ", who.replicas, " replicas and ", who.partitions, " partitions");
  }
  const auto broken = [](const absl::Status& status) { return InternalError("the module: ", status.message()); };
  if (who.mesh.none()) {
    if (AllWhole(who.parameters) && AllWhole(who.results)) return absl::OkStatus();
    return InternalError("the module cuts values along axes and has no mesh");
  }
  if (absl::Status status = Check(who.mesh); !status.ok()) return broken(status);
  // One process may stand for a whole mesh, where its devices share a memory.
  if (who.replicas != 1 || (who.partitions != 1 && who.mesh.size() != who.partitions)) {
    return InternalError("the module's mesh ", ToString(who.mesh), " is for one replica of ", who.mesh.size(),
                         " partitions; the module has ", who.replicas, " of ", who.partitions);
  }
  const Function* const main = module.functions.front().get();
  if (main == nullptr) return InternalError("a function of the module is empty");
  const auto check = [&](std::string_view what, std::span<const Value> values,
                         const std::vector<Sharding>& shardings) -> absl::Status {
    if (shardings.empty()) return absl::OkStatus();
    if (shardings.size() != values.size()) {
      return InternalError("the module has ", shardings.size(), " shardings for ", values.size(), " ", what, "s");
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i]) continue;  // said of the function
      const absl::Status status = Check(who.mesh, shardings[i], values[i].type(), absl::StrCat(what, " ", i));
      if (!status.ok()) return broken(status);
    }
    return absl::OkStatus();
  };
  WEFT_RETURN_IF_ERROR(check("parameter", main->parameters(), who.parameters));
  WEFT_RETURN_IF_ERROR(check("result", main->results(), who.results));
  const auto at = [](const std::vector<Sharding>& shardings, size_t i) {
    return i < shardings.size() ? shardings[i] : Sharding();
  };
  for (size_t i = 0; i < main->parameter_infos().size(); ++i) {
    const ParameterInfo& info = main->parameter_infos()[i];
    const Sharding& its = at(who.parameters, i);
    if (info.role == ParameterInfo::Role::kWords && !its.whole()) {
      return InternalError("parameter ", i, " lies in the argument block and is cut");
    }
    if (info.donated_to >= 0 && !(its == at(who.results, static_cast<size_t>(info.donated_to)))) {
      return InternalError("parameter ", i, " is donated to result ", info.donated_to, ", which lies otherwise");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Module& module) {
  if (module.functions.empty()) return InternalError("the module has no function");
  WEFT_RETURN_IF_ERROR(VerifyParticipants(module));
  HashSet<std::string_view> names;
  for (const Ref<const Function>& function : module.functions) {
    if (function == nullptr) return InternalError("a function of the module is empty");
    if (!names.insert(function->name()).second) {
      return InternalError("two functions of the module are called @", function->name());
    }
    WEFT_RETURN_IF_ERROR(Verify(*function, module.argument_words));
  }
  return absl::OkStatus();
}

}  // namespace weft::ir
