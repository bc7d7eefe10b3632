// Reads the parts that every operation has, whichever form it is written in: names, operands, attributes, regions,
// types, a location.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/ir/text.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {

// Behind '%'.
absl::StatusOr<std::string_view> Parser::ParseValueName() {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(Need("%"));
  if (Suffix().empty()) return ExpectedAt(start, "the name of a value");
  return Between(start, position());
}

absl::Status Parser::ParseUse(Operation& op) {
  Use use;
  use.position = Here();
  WEFT_ASSIGN_OR_RETURN(use.name, ParseValueName());
  if (LooksAt("#")) {
    set_position(position() + 1);
    WEFT_ASSIGN_OR_RETURN(use.index, Number<uint32_t>("a result's number"));
  }
  op.operands.push_back(use);
  return absl::OkStatus();
}

absl::Status Parser::ParseUses(Operation& op) {
  WEFT_RETURN_IF_ERROR(Need("("));
  for (bool first = true; !Take(")"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_RETURN_IF_ERROR(ParseUse(op));
  }
  return absl::OkStatus();
}

// %0 =, %0:2 =, %values, %indices =
absl::Status Parser::ParseBounds(Operation& op) {
  do {
    Bound bound;
    bound.position = Here();
    WEFT_ASSIGN_OR_RETURN(bound.name, ParseValueName());
    if (LooksAt(":")) {
      set_position(position() + 1);
      WEFT_ASSIGN_OR_RETURN(bound.count, Number<uint32_t>("a number of results"));
    }
    op.bounds.push_back(bound);
  } while (Take(","));
  return Need("=");
}

absl::Status Parser::ParseLocation(std::string_view& location) {
  if (!TakeWord("loc")) return absl::OkStatus();
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(SkipBalanced());
  location = Between(start + 1, position() - 1);
  return absl::OkStatus();
}

absl::Status Parser::ParseArgument(Argument& argument) {
  WEFT_ASSIGN_OR_RETURN(argument.name, ParseValueName());
  WEFT_RETURN_IF_ERROR(Need(":"));
  WEFT_ASSIGN_OR_RETURN(argument.type, ParseType());
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(argument.attributes));
  std::string_view ignored;
  return ParseLocation(ignored);
}

absl::Status Parser::ParseArguments(std::vector<Argument>& arguments) {
  WEFT_RETURN_IF_ERROR(Need("("));
  for (bool first = true; !Take(")"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_RETURN_IF_ERROR(ParseArgument(arguments.emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseBlock(Region& into, std::string_view closer) {
  while (!(closer.empty() ? AtEnd() : Take(closer))) {
    if (Peek() == '^') return Expected("one block in a region: jumps between blocks are not read");
    if (Peek() == '{' && text().substr(position()).starts_with("{-#")) {
      WEFT_RETURN_IF_ERROR(SkipBalanced());
      continue;
    }
    if (closer.empty() && (Peek() == '#' || Peek() == '!')) {
      WEFT_RETURN_IF_ERROR(ParseAlias());
      continue;
    }
    WEFT_RETURN_IF_ERROR(ParseOperation(into.operations.emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseRegion(Region& region) {
  if (depth_ >= ir::kMaxRegionDepth) return Expected(absl::StrCat("regions at most ", ir::kMaxRegionDepth, " deep"));
  ++depth_;
  WEFT_RETURN_IF_ERROR(Need("{"));
  if (Take("^")) {
    (void)Suffix();
    if (Peek() == '(') WEFT_RETURN_IF_ERROR(ParseArguments(region.arguments));
    WEFT_RETURN_IF_ERROR(Need(":"));
  }
  WEFT_RETURN_IF_ERROR(ParseBlock(region, "}"));
  --depth_;
  return absl::OkStatus();
}

absl::Status Parser::ParseOperation(Operation& op) {
  if (Peek() == '%') WEFT_RETURN_IF_ERROR(ParseBounds(op));
  op.position = Here();
  if (Peek() == '"') {
    WEFT_RETURN_IF_ERROR(ParseGeneric(op));
  } else {
    op.name = Word();
    if (op.name.empty()) return Expected("an operation");
    WEFT_RETURN_IF_ERROR(ParsePretty(op));
  }
  WEFT_RETURN_IF_ERROR(ParseLocation(op.location));
  if (op.name == "return" || op.name.ends_with(".return")) op.name = "return";
  if (op.name == "call") op.name = "func.call";
  const size_t results = op.ResultCount();
  if (results != 0 && results != op.result_types.size()) {
    return ExpectedAt(op.position, absl::StrCat("an operation of ", results, results == 1 ? " result" : " results"));
  }
  return absl::OkStatus();
}

// "stablehlo.op"(%a, %b) <{properties}> ({region}, {region}) {attributes} : (T, U) -> V
absl::Status Parser::ParseGeneric(Operation& op) {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(String("the name of an operation").status());
  op.name = Between(start + 1, position() - 1);
  return ParseGenericRest(op);
}

absl::Status Parser::ParseGenericRest(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUses(op));
  if (Peek() == '[') return Expected("an operation without successors: jumps between blocks are not read");
  if (Take("<")) {
    WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
    WEFT_RETURN_IF_ERROR(Need(">"));
  }
  if (Take("(")) {
    do {
      WEFT_RETURN_IF_ERROR(ParseRegion(op.regions.emplace_back()));
    } while (Take(","));
    WEFT_RETURN_IF_ERROR(Need(")"));
  }
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  WEFT_RETURN_IF_ERROR(Need(":"));
  return ParseFunctionType(op);
}

absl::Status Parser::ParsePretty(Operation& op) {
  if (const Form* form = FindForm(op.name); form != nullptr) return (this->*form->parse)(op);
  return ParsePlain(op);
}

// op %a, %b, key = value {attributes} : types
absl::Status Parser::ParsePlain(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseItems(op));
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  if (!Take(":")) return Expected(absl::StrCat("the rest of ", ir::Quote(op.name), ", or ':' and its types"));
  return ParsePrettyTypes(op);
}

absl::Status Parser::ParseItems(Operation& op) {
  const bool parentheses = Take("(");
  for (bool first = true;; first = false) {
    if (parentheses && Peek() == ')') break;
    if (!first && !Take(",")) break;
    if (Peek() == '%') {
      WEFT_RETURN_IF_ERROR(ParseUse(op));
      continue;
    }
    const std::string_view key = Word();
    if (key.empty()) {
      if (first) break;
      return Expected("an operand or a named attribute");
    }
    WEFT_RETURN_IF_ERROR(ParseNamedItem(op, key));
  }
  return parentheses ? Need(")") : absl::OkStatus();
}

}  // namespace weft::stablehlo
