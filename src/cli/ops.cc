// `weft ops`: every operation of the library, as its description has it.
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>

#include "src/cli/command.h"
#include "src/cli/json.h"
#include "src/cli/library.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

constexpr std::string_view kOthers[] = {"pytorch", "jax", "numpy"};  // whose names the description has

std::string TextOf(const Value& value, std::string_view name) { return TextIn(FieldsOf(value), name); }
const List& ListOf(const Value& value, std::string_view name) { return ListIn(FieldsOf(value), name); }

bool TruthOf(const Value& value, std::string_view name) {
  const Value* const found = FieldOf(value, name);
  const bool* const truth = found == nullptr ? nullptr : std::get_if<bool>(&found->data);
  return truth != nullptr && *truth;
}

std::string Joined(const List& list, std::string_view between) {
  std::string text;
  for (const Value& element : list) {
    const auto* word = std::get_if<std::string>(&element.data);
    if (word != nullptr) text += (text.empty() ? "" : std::string(between)) + *word;
  }
  return text;
}

// "T", or the element types of an operand that has its own.
std::string TypesOf(const Value& operand) {
  const std::string group = TextOf(operand, "group");
  return group.empty() ? Joined(ListOf(operand, "dtypes"), "|") : group;
}

std::string AttributeText(const Value& attribute) {
  const Value* const value = FieldOf(attribute, "default");
  const auto* const word = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  const bool required = TruthOf(attribute, "required");
  std::string text = TextOf(attribute, "name") + ": " + TextOf(attribute, "type");
  if (required) return text;
  if (value == nullptr || (word != nullptr && word->empty())) return text + "?";
  return text + " = " + (word != nullptr ? *word : ToJson(*value));
}

// "matmul(lhs: T, rhs: T) -> T"
std::string SignatureOf(const Value& op) {
  std::string inside, results;
  const List& operands = ListOf(op, "operands");
  for (const Value& operand : operands) {
    const std::string mark = TruthOf(operand, "variadic") ? "..." : TruthOf(operand, "optional") ? "?" : "";
    const bool many = TextOf(operand, "group").empty() && ListOf(operand, "dtypes").size() > 2;
    inside += (inside.empty() ? "" : ", ") + TextOf(operand, "name") + mark + (many ? "" : ": " + TypesOf(operand));
  }
  for (const Value& attribute : ListOf(op, "attributes")) {
    inside += (inside.empty() ? "" : ", ") + AttributeText(attribute);
  }
  for (const Value& result : ListOf(op, "results")) {
    const Value* const dtype = FieldOf(result, "dtype");
    const auto* const fixed = dtype == nullptr ? nullptr : std::get_if<std::string>(&dtype->data);
    const std::string as = dtype == nullptr || fixed != nullptr ? "" : TextOf(*dtype, "as");
    const auto like = std::ranges::find_if(operands, [&](const Value& x) { return TextOf(x, "name") == as; });
    std::string type = fixed != nullptr ? *fixed : "";
    if (like != operands.end() && !TextOf(*like, "group").empty()) type = TextOf(*like, "group");
    results += (results.empty() ? "" : ", ") + TextOf(result, "name") + (type.empty() ? "" : ": " + type);
  }
  return TextOf(op, "c_name") + "(" + inside + ") -> (" + results + ")";
}

struct Operation {
  std::string name;
  std::vector<std::string> others;  // names elsewhere
  const Value* value;

  // "torch.nn.functional.softmax" is called "softmax", too.
  bool Matches(const std::string& pattern) const {
    const auto fits = [&](const std::string& text) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; };
    return fits(name) || std::ranges::any_of(others, [&](const std::string& other) {
             return fits(other) || fits(other.substr(other.rfind('.') + 1));
           });
  }
};

std::vector<Operation> Operations(const Value& api) {
  std::vector<Operation> all;
  for (const Value& op : ListOf(api, "operations")) {
    Operation& made = all.emplace_back(Operation{TextOf(op, "c_name"), {}, &op});
    const Value* const names = FieldOf(op, "names");
    for (const std::string_view who : kOthers) {
      if (names == nullptr) break;
      for (const Value& name : ListOf(*names, who)) made.others.push_back(std::get<std::string>(name.data));
    }
  }
  std::ranges::sort(all, {}, &Operation::name);
  return all;
}

// `json`: the sentence is a text; else a line of its own.
Fields FieldsFor(const Operation& operation, bool json) {
  const Value& op = *operation.value;
  Fields fields = {{"name", operation.name}, {"signature", SignatureOf(op)}, {"gradient", TruthOf(op, "gradient")}};
  fields.emplace_back("kind", TextOf(op, "kind"));
  fields.emplace_back("group", TextOf(op, "group"));
  fields.emplace_back("since", TextOf(op, "since"));
  List types;
  for (const Value& operand : ListOf(op, "operands")) {
    types.push_back(Fields{{"operand", TextOf(operand, "name")},
                           {"dtypes", Joined(ListOf(operand, "dtypes"), " ")},
                           {"gradient", TruthOf(operand, "gradient")}});
  }
  fields.emplace_back("operands", std::move(types));
  const Value* const names = FieldOf(op, "names");
  for (const std::string_view who : kOthers) {
    fields.emplace_back(std::string(who), names == nullptr ? List() : ListOf(*names, who));
  }
  const std::string doc = TextOf(op, "doc");
  fields.emplace_back("doc", json ? Value(doc) : Value(List{doc}));
  fields.emplace_back("example", TextOf(op, "example"));
  return fields;
}

// The rows of a table: what a line has room for.
Fields RowOf(const Operation& operation) {
  const std::string others = operation.others.empty() ? "" : operation.others[0];
  return {{"signature", SignatureOf(*operation.value)},
          {"gradient", TruthOf(*operation.value, "gradient") ? "gradient" : "-"},
          {"elsewhere", others}};
}

int Unknown(const std::string& pattern, const std::vector<Operation>& all) {
  std::vector<std::string_view> candidates;
  for (const Operation& operation : all) {
    candidates.push_back(operation.name);
    for (const std::string& other : operation.others) {
      candidates.push_back(other);
      candidates.push_back(std::string_view(other).substr(other.rfind('.') + 1));
    }
  }
  const std::string_view nearest = Nearest(pattern, candidates);
  std::fprintf(stderr, "weft ops: there is no operation '%s'%s; 'weft ops' lists all\n", pattern.c_str(),
               nearest.empty() ? "" : (", but '" + std::string(nearest) + "'").c_str());
  return kFailed;
}

int Execute(const Arguments& arguments) {
  size_t length = 0;
  const char* const text = weft_api_json(&length);
  Value api("");
  if (!FromJson({text, length}, &api)) {
    std::fprintf(stderr, "weft ops: the library's description is no JSON\n");
    return kFailed;
  }
  const std::vector<Operation> all = Operations(api);
  const std::string pattern(arguments.parameter);
  std::vector<const Operation*> found;
  for (const Operation& operation : all) {
    if (pattern.empty() || operation.Matches(pattern)) found.push_back(&operation);
  }
  const auto same = std::ranges::find(found, pattern, &Operation::name);
  if (same != found.end()) found = {*same};
  if (found.empty()) return Unknown(pattern, all);
  const bool json = arguments.has("--json");
  if (!json && found.size() == 1) {
    Print(FieldsFor(*found[0], false), false);
    return kDone;
  }
  List rows;
  for (const Operation* operation : found) rows.push_back(json ? FieldsFor(*operation, true) : RowOf(*operation));
  Print({{"operations", std::move(rows)}}, json);
  return kDone;
}

const Registration kOps({.name = "ops",
                         .summary = "the operations: signature, element types, gradient, and what they are called in "
                                    "PyTorch, JAX and NumPy",
                         .parameter = "[PATTERN]",
                         .flags = {{"--json", "as one JSON object"}},
                         .execute = Execute});

}  // namespace
}  // namespace weft::cli
