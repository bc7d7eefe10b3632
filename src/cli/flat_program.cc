// See flat_program.h. The text is the library's own (src/ir/text.h), an operation a line but for the functions that it carries.
#include "src/cli/flat_program.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace weft::cli {
namespace {

constexpr std::string_view kCall = "weft.call";
constexpr size_t kDeepest = 256;  // calls in calls; the library's own text has fewer

struct Statement {
  size_t name = 0, results = 1;
  std::string_view operation, body, types, callee;
  std::vector<std::pair<size_t, size_t>> operands;  // names of this function
  std::string position;
};
struct Function {
  std::vector<std::string_view> parameters;  // their types
  std::vector<Statement> statements;
  std::vector<std::pair<size_t, size_t>> results;
  std::string_view types, text;
};

// Where something ends that stands outside of quotes and brackets; the end of the text if it is not there.
size_t FindOutside(std::string_view text, std::string_view what, size_t at = 0) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (depth == 0 && text.substr(at).starts_with(what)) return at;
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
    } else if (c == '{' || c == '(') {
      ++depth;
    } else if (c == '}' || c == ')') {
      --depth;
    }
  }
  return text.size();
}

size_t NumberAt(std::string_view text, size_t* at) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + *at, text.data() + text.size(), number);
  *at = static_cast<size_t>(end - text.data());
  return number;
}

// "%3, %4#1, none"
std::vector<std::pair<size_t, size_t>> Values(std::string_view text) {
  std::vector<std::pair<size_t, size_t>> values;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '%') {
      const size_t node = NumberAt(text, &++at);
      const size_t result = at < text.size() && text[at] == '#' ? NumberAt(text, &++at) : 0;
      values.emplace_back(node, result);
    } else if (text.substr(at).starts_with("none")) {
      values.emplace_back(FlatProgram::kNone, 0);
      at += 4;
    } else {
      ++at;
    }
  }
  return values;
}

// Takes the words behind the types away and gives the position among them.
std::string TakePosition(std::string_view* types) {
  constexpr std::string_view kLocation = " loc(\"";
  std::string position;
  if (const size_t at = types->rfind(kLocation); at != types->npos) {
    for (size_t i = at + kLocation.size(); i < types->size() && (*types)[i] != '"'; ++i) {
      i += (*types)[i] == '\\' && i + 1 < types->size() ? 1 : 0;
      position += (*types)[i];
    }
    *types = types->substr(0, at);
  }
  for (const std::string_view word : {" unknown(", " sharding(", " device("})
    *types = types->substr(0, types->find(word));
  return position;
}

bool ReadStatement(std::string_view text, Statement* out) {
  size_t at = 1;
  out->name = NumberAt(text, &at);
  if (at < text.size() && text[at] == ':') out->results = NumberAt(text, &++at);
  if (!text.substr(at).starts_with(" = ")) return false;
  at += 3;
  const size_t open = text.find('(', at), close = text.find(')', at);
  if (open == text.npos || close == text.npos || close < open) return false;
  out->operation = text.substr(at, open - at);
  out->operands = Values(text.substr(open + 1, close - open - 1));
  const size_t colon = FindOutside(text, " : ", close + 1);
  if (colon == text.size()) return false;
  out->body = text.substr(close + 1, colon - close - 1);
  out->types = text.substr(colon + 3);
  out->position = TakePosition(&out->types);
  if (out->operation == kCall) out->callee = out->body.substr(std::min(out->body.rfind('@') + 1, out->body.size()));
  return true;
}

std::vector<std::string_view> ParameterTypes(std::string_view text) {
  std::vector<std::string_view> types;
  while (!text.empty()) {
    const size_t end = FindOutside(text, ", ");
    std::string_view one = text.substr(0, end);
    one.remove_prefix(std::min(one.find(": ") + 2, one.size()));
    TakePosition(&one);
    types.push_back(one.substr(0, one.find(" {")));
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return types;
}

// From "func @name(" on; takes it off the text.
bool ReadFunction(std::string_view* text, std::string* name, Function* out) {
  constexpr std::string_view kWord = "func @", kBody = ") {\n", kReturn = "return";
  if (!text->starts_with(kWord)) return false;
  const size_t open = FindOutside(*text, "(");
  const size_t close = FindOutside(*text, ")", open + 1);
  if (close == text->size()) return false;
  *name = text->substr(kWord.size(), open - kWord.size());
  out->parameters = ParameterTypes(text->substr(open + 1, close - open - 1));
  constexpr std::string_view kArrow = ") -> (";
  const size_t types = close + kArrow.size(), end = text->find(kBody, types);
  if (!text->substr(close).starts_with(kArrow) || end == text->npos) return false;
  out->types = text->substr(types, end - types);
  size_t at = end + kBody.size();
  while (at < text->size()) {
    at = std::min(text->find_first_not_of(" \n", at), text->size());
    const size_t line = FindOutside(*text, "\n", at);
    const std::string_view one = text->substr(at, line - at);
    at = line;
    if (one.starts_with("%")) {
      if (!ReadStatement(one, &out->statements.emplace_back())) return false;
      continue;
    }
    if (!one.starts_with(kReturn)) return false;
    out->results = Values(one);
    const size_t last = text->find("\n}\n", at);
    if (last == text->npos) return false;
    out->text = text->substr(0, last + 3);
    text->remove_prefix(last + 3);
    return true;
  }
  return false;
}

class Flattener {
 public:
  Flattener(FlatProgram* out, std::map<std::string, Function, std::less<>> functions)
      : out_(*out), functions_(std::move(functions)) {}

  bool Main(const Function& main) {
    std::vector<std::pair<size_t, size_t>> arguments;
    for (const std::string_view type : main.parameters) {
      arguments.emplace_back(out_.nodes.size(), 0);
      out_.nodes.emplace_back().types = type;
    }
    out_.parameters = out_.nodes.size();
    out_.types = main.types;
    if (!Body(main, arguments, "", 0, &out_.results)) return false;
    for (const auto& [node, result] : out_.results) {
      if (node < out_.nodes.size()) out_.nodes[node].returned = true;
    }
    return true;
  }

 private:
  // A call's position is that of what it calls where that has none. Results and calls count as operations do, so that neither functions
  // that call each other nor a number of results take time or memory beyond all bounds.
  bool Body(const Function& function, const std::vector<std::pair<size_t, size_t>>& arguments,
            const std::string& caller, size_t depth, std::vector<std::pair<size_t, size_t>>* results) {
    if (depth > kDeepest) return false;
    std::map<size_t, std::vector<std::pair<size_t, size_t>>> values;  // by name: a value for each result
    for (size_t i = 0; i < arguments.size(); ++i) values[i] = {arguments[i]};
    const auto known = [&](const std::vector<std::pair<size_t, size_t>>& names,
                           std::vector<std::pair<size_t, size_t>>* out) {
      for (const auto& [name, result] : names) {
        const auto found = values.find(name);
        if (name == FlatProgram::kNone) {
          out->emplace_back(FlatProgram::kNone, 0);
        } else if (found == values.end() || result >= found->second.size()) {
          return false;
        } else {
          out->push_back(found->second[result]);
        }
      }
      return true;
    };
    for (const Statement& statement : function.statements) {
      std::vector<std::pair<size_t, size_t>> operands;
      if (statement.results > kMostFlatNodes || (written_ += 1 + statement.results) > 4 * kMostFlatNodes) return false;
      if (!known(statement.operands, &operands)) return false;
      const std::string& position = statement.position.empty() ? caller : statement.position;
      if (const auto callee = functions_.find(statement.callee); !statement.callee.empty()) {
        if (callee == functions_.end() || callee->second.parameters.size() != operands.size()) return false;
        if (!Body(callee->second, operands, position, depth + 1, &values[statement.name])) return false;
        continue;
      }
      if (out_.nodes.size() > kMostFlatNodes) return false;
      FlatProgram::Node& node = out_.nodes.emplace_back();
      node = {std::string(statement.operation),
              std::string(statement.body),
              std::string(statement.types),
              position,
              statement.results,
              std::move(operands)};
      for (size_t i = 0; i < statement.results; ++i) values[statement.name].emplace_back(out_.nodes.size() - 1, i);
    }
    return known(function.results, results);
  }

  FlatProgram& out_;
  size_t written_ = 0;
  const std::map<std::string, Function, std::less<>> functions_;
};

// The text that an operation carries, each line of it at the operation's own position.
std::string Placed(std::string_view body, const std::string& position) {
  std::string out;
  while (!body.empty()) {
    const size_t end = std::min(body.find('\n'), body.size());
    std::string_view line = body.substr(0, end);
    const size_t first = std::min(line.find_first_not_of(' '), line.size());
    const bool ends =
        (line.substr(first).starts_with("%") && !line.ends_with("regions {")) || line.substr(first).starts_with("} : ");
    if (ends) line = line.substr(0, line.rfind(" loc(\""));
    out += std::string(line) + (ends ? " loc(\"" + position + "\")" : "") + (end < body.size() ? "\n" : "");
    body.remove_prefix(std::min(end + 1, body.size()));
  }
  return out;
}

std::string ValueText(const FlatProgram& program, const std::pair<size_t, size_t>& value) {
  if (value.first == FlatProgram::kNone) return "none";
  const bool one = program.nodes[value.first].results == 1;
  return "%" + std::to_string(value.first) + (one ? "" : "#" + std::to_string(value.second));
}

}  // namespace

std::string FlatProgram::Text() const {
  std::string text = callees + "func @main(";
  const auto list = [&](const std::vector<std::pair<size_t, size_t>>& values) {
    std::string out;
    for (const auto& value : values) out += (out.empty() ? "" : ", ") + ValueText(*this, value);
    return out;
  };
  for (size_t i = 0; i < parameters; ++i) text += (i > 0 ? ", %" : "%") + std::to_string(i) + ": " + nodes[i].types;
  text += ") -> (" + types + ") {\n";
  for (size_t i = parameters; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const std::string position = "node:" + std::to_string(i);
    text += "  %" + std::to_string(i) + (node.results == 1 ? "" : ":" + std::to_string(node.results)) + " = " +
            node.operation + "(" + list(node.operands) + ")" + Placed(node.body, position) + " : " + node.types +
            " loc(\"" + position + "\")\n";
  }
  return text + "  return " + list(results) + "\n}\n";
}

bool Flatten(std::string_view text, FlatProgram* out, std::string* problem) {
  *problem = "the program has more than " + std::to_string(kMostFlatNodes) +
             " operations, or its text is not the library's own";
  std::map<std::string, Function, std::less<>> functions;
  Function main;
  bool found = false;
  if (text.starts_with("module")) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  while (!text.empty() && !found) {
    constexpr std::string_view kPrivate = "private ";
    const bool is_private = text.starts_with(kPrivate);
    if (is_private) text.remove_prefix(kPrivate.size());
    std::string name;
    Function function;
    if (!ReadFunction(&text, &name, &function)) return false;
    if (is_private) {
      out->callees += std::string(kPrivate) + std::string(function.text);
      functions.emplace(std::move(name), std::move(function));
    } else {
      main = std::move(function);
      found = true;
    }
  }
  if (!found || !Flattener(out, std::move(functions)).Main(main)) return false;
  const auto carries_call = [](const FlatProgram::Node& node) { return node.body.find(" @") != std::string::npos; };
  if (std::ranges::none_of(out->nodes, carries_call)) out->callees.clear();
  problem->clear();
  return true;
}

}  // namespace weft::cli
