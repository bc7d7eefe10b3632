// The frame around operations: modules, functions, meshes and aliases.
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {
namespace {

ir::ShloAttr Text(ir::ShloAttr::Kind kind, std::string_view text) {
  ir::ShloAttr attr;
  attr.kind = kind;
  attr.string = text;
  attr.text = text;
  return attr;
}

}  // namespace

absl::StatusOr<Region> Parser::ParseText() {
  Region top;
  WEFT_RETURN_IF_ERROR(ParseBlock(top, ""));
  return top;
}

std::string_view Parser::LocationAlias(std::string_view name) const {
  auto found = aliases_.find(name);
  return found == aliases_.end() ? std::string_view() : Between(found->second.first, found->second.second);
}

// #loc3 = loc(…), #map = …, !type = …: kept as text, read where it is used.
absl::Status Parser::ParseAlias() {
  const size_t start = Here();
  const bool type = Take("!");
  if (!type) WEFT_RETURN_IF_ERROR(Need("#"));
  if (Suffix().empty()) return Expected("the name of an alias");
  const std::string_view name = Between(start, position());
  WEFT_RETURN_IF_ERROR(Need("="));
  const size_t begin = Here();
  if (type) {
    WEFT_RETURN_IF_ERROR(ParseType().status());
  } else {
    WEFT_RETURN_IF_ERROR(ParseAttr().status());
  }
  aliases_[name] = {begin, position()};
  return absl::OkStatus();
}

// module @name attributes {…} { … }
absl::Status Parser::ParseModule(Operation& op) {
  op.name = "builtin.module";
  if (Peek() == '@') {
    WEFT_ASSIGN_OR_RETURN(Attr name, ParseSymbol());
    op.attributes.emplace_back("sym_name", std::move(name));
  }
  if (TakeWord("attributes")) WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  return ParseRegion(op.regions.emplace_back());
}

// -> (T {…}, U), -> T, or nothing. Attributes of results become res_attrs, as the generic form has them.
absl::Status Parser::ParseResults(Operation& op) {
  if (!Take("->")) return absl::OkStatus();
  if (!Take("(")) {
    WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
    op.result_types.push_back(std::move(type));
    return absl::OkStatus();
  }
  Attr attributes;
  attributes.kind = Attr::Kind::kList;
  for (bool first = true; !Take(")"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
    op.result_types.push_back(std::move(type));
    Attr& said = attributes.list.emplace_back();
    said.kind = Attr::Kind::kFields;
    if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(said.fields));
  }
  op.attributes.emplace_back("res_attrs", std::move(attributes));
  return absl::OkStatus();
}

// func.func public @main(%arg0: T {…}, …) -> (T {…}) attributes {…} { … }
absl::Status Parser::ParseFunction(Operation& op) {
  op.name = "func.func";
  for (std::string_view visibility : {"public", "private", "nested"}) {
    if (TakeWord(visibility)) op.attributes.emplace_back("sym_visibility", Text(Attr::Kind::kString, visibility));
  }
  WEFT_ASSIGN_OR_RETURN(Attr name, ParseSymbol());
  op.attributes.emplace_back("sym_name", std::move(name));
  std::vector<Argument> arguments;
  WEFT_RETURN_IF_ERROR(ParseArguments(arguments));
  WEFT_RETURN_IF_ERROR(ParseResults(op));
  if (TakeWord("attributes")) WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  Region& body = op.regions.emplace_back();
  WEFT_RETURN_IF_ERROR(ParseRegion(body));
  body.arguments = std::move(arguments);
  return absl::OkStatus();
}

// sdy.mesh @mesh = <["x"=2]> {…}: its axes become the attribute "mesh", as text.
absl::Status Parser::ParseMesh(Operation& op) {
  WEFT_ASSIGN_OR_RETURN(Attr name, ParseSymbol());
  op.attributes.emplace_back("sym_name", std::move(name));
  WEFT_RETURN_IF_ERROR(Need("="));
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(SkipBalanced());
  op.attributes.emplace_back("mesh", Text(Attr::Kind::kText, Between(start, position())));
  return Peek() == '{' ? ParseDictionary(op.attributes) : absl::OkStatus();
}

}  // namespace weft::stablehlo
