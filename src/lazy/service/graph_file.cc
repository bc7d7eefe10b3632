// See graph_file.h. A record is laid out as PyTorch/XLA's, whose scripts find graphs by its BEGIN_GRAPH and END_GRAPH.
#include "src/lazy/service/graph_file.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/compiler/lower.h"
#include "src/ir/attr_text.h"
#include "src/ir/location.h"
#include "src/ir/op_def.h"
#include "src/stablehlo/hlo.h"

namespace weft::lazy {

using stablehlo::HloShape;

namespace {

std::string Shapes(const ir::Node& node) {
  if (node.results().size() == 1) return HloShape(node.type(0));
  return absl::StrCat(
      "(", absl::StrJoin(node.results(), ", ", [](std::string* out, const ir::Type& type) { *out += HloShape(type); }),
      ")");
}

// Calls use(number, node, operands) of each node. Arguments have the numbers before those of nodes; an operand is "%3", a result of
// several "%3.1", one that is absent "%none".
template <typename Use>
void ForEachNode(const compiler::Trace& trace, Use&& use) {
  using Trace = compiler::Trace;
  const size_t arguments = trace.arguments.size();
  std::vector<std::string> names;  // of values
  size_t operand = 0;
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const ir::Node& node = *trace.nodes[i];
    std::vector<std::string> operands;
    for (const size_t end = operand + node.operands().size(); operand < end; ++operand) {
      const Trace::Reference reference = trace.operands[operand];
      operands.push_back(reference == Trace::kAbsent    ? "%none"
                         : Trace::IsArgument(reference) ? absl::StrCat("%", Trace::IndexOf(reference))
                                                        : names[Trace::IndexOf(reference)]);
    }
    const size_t number = arguments + i;
    for (size_t r = 0; r < node.results().size(); ++r) {
      names.push_back(node.results().size() == 1 ? absl::StrCat("%", number) : absl::StrCat("%", number, ".", r));
    }
    use(number, node, operands);
  }
}

// ", ROOT=0" of a node, for each output that is a result of it.
std::vector<std::string> Roots(const compiler::Trace& trace) {
  std::vector<std::string> roots(trace.nodes.size());
  std::vector<std::pair<size_t, size_t>> made;  // of values: node and result
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    for (size_t r = 0; r < trace.nodes[i]->results().size(); ++r) made.emplace_back(i, r);
  }
  for (size_t k = 0; k < trace.outputs.size(); ++k) {
    if (compiler::Trace::IsArgument(trace.outputs[k])) continue;
    const auto [node, result] = made[compiler::Trace::IndexOf(trace.outputs[k])];
    const bool one = trace.nodes[node]->results().size() == 1;
    absl::StrAppend(&roots[node], ", ROOT", one ? "" : absl::StrCat(".", result), "=", k);
  }
  return roots;
}

std::string Attributes(const ir::Node& node) {
  std::string text;
  for (size_t i = 0; i < node.attrs().size() && i < node.op().attrs.size(); ++i) {
    if (!node.attrs().has(i)) continue;
    absl::StrAppend(&text, ", ", node.op().attrs[i].name, "=", ir::AttrText(node.op(), i, node.attrs().at(i)));
  }
  return text;
}

// Texts in a record's lines and in Graphviz's quotes: no line ends, quotes and backslashes escaped.
std::string OneLine(std::string_view text, bool quoted) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppend(&out, quoted ? "\\\\x" : "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else if (quoted && (c == '"' || c == '\\')) {
      absl::StrAppend(&out, "\\", std::string_view(&c, 1));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string GraphLines(const compiler::Trace& trace) {
  std::string text;
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    const compiler::Trace::Argument& argument = trace.arguments[i];
    absl::StrAppend(&text, "%", i, " = ", HloShape(argument.type()),
                    " xla::", argument.words > 0 ? "scalar" : "device_data", "()",
                    argument.donated_to >= 0 ? absl::StrCat(", taken_over_by=", argument.donated_to) : "", "\n");
  }
  const std::vector<std::string> roots = Roots(trace);
  ForEachNode(trace, [&](size_t number, const ir::Node& node, const std::vector<std::string>& operands) {
    const std::string at = ir::ToString(node.location());
    absl::StrAppend(&text, "%", number, " = ", Shapes(node), " xla::", node.op().c_name, "(",
                    absl::StrJoin(operands, ", "), ")", OneLine(Attributes(node), false),
                    at.empty() ? "" : absl::StrCat(", location=", OneLine(at, false)),
                    roots[number - trace.arguments.size()], "\n");
  });
  return text;
}

std::string GraphDot(const compiler::Trace& trace, std::string_view name) {
  std::string text = absl::StrCat("digraph \"", OneLine(name, true), "\" {\n");
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    absl::StrAppend(&text, "  n", i, " [shape=box, label=\"%", i, "\\n", HloShape(trace.arguments[i].type()), "\"]\n");
  }
  const std::vector<std::string> roots = Roots(trace);
  ForEachNode(trace, [&](size_t number, const ir::Node& node, const std::vector<std::string>& operands) {
    const std::string at = ir::ToString(node.location());
    const bool root = !roots[number - trace.arguments.size()].empty();
    absl::StrAppend(&text, "  n", number, " [label=\"%", number, " ", node.op().c_name, "\\n", Shapes(node),
                    at.empty() ? "" : absl::StrCat("\\n", OneLine(at, true)), "\"", root ? ", peripheries=2" : "",
                    "]\n");
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] == "%none") continue;
      const std::string from = operands[k].substr(1, operands[k].find('.') - 1);
      absl::StrAppend(&text, "  n", from, " -> n", number,
                      operands.size() > 1 ? absl::StrCat(" [label=\"", k, "\"]") : "", "\n");
    }
  });
  return text + "}\n";
}

void GraphFile::Write(const compiler::Trace& trace, std::string_view name, std::string_view hash,
                      ir::Location at) const {
  std::string graph;
  switch (format_) {
    case Format::kText: graph = GraphLines(trace); break;
    case Format::kDot: graph = GraphDot(trace, hash); break;
    case Format::kStableHlo:
    case Format::kHlo: {
      const bool hlo = format_ == Format::kHlo;
      absl::StatusOr<std::string> text =
          compiler::StableHloText(compiler::BuildModule(trace), absl::AsciiStrToUpper(precision_), hlo);
      if (hlo && text.ok()) text = stablehlo::HloText(*text);
      graph = text.ok() ? *std::move(text) : absl::StrCat("// not written: ", text.status().message(), "\n");
      break;
    }
  }
  std::string frames;
  for (const std::string& frame : ir::FramesOf(at)) absl::StrAppend(&frames, "  ", OneLine(frame, false), "\n");
  file_->Write(absl::StrCat("[", name, "]\nTensorsGraphInfo:\n", frames, "\nHashes: (", hash, ")\n\n## BEGIN_GRAPH\n",
                            graph, graph.ends_with('\n') ? "" : "\n", "## END_GRAPH\n\n"));
}

}  // namespace weft::lazy
