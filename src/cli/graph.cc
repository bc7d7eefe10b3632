// `weft graph`: a program as a graph, its operations grouped by the kernel that computes them.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>

#include "src/cli/command.h"
#include "src/cli/flat_program.h"
#include "src/cli/measured.h"
#include "src/cli/picture.h"
#include "src/cli/program.h"

namespace weft::cli {
namespace {

constexpr size_t kMostDrawn = 400;  // operations; a graph of more shows kernels alone

std::string FixedText(double value, int digits) {
  char text[40];
  return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr);
}

// Inside Graphviz's quotes.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

// "tensor<2x3xf32>" as "f32[2,3]".
std::string ShortType(std::string_view type) {
  constexpr std::string_view kTensor = "tensor<";
  if (!type.starts_with(kTensor) || !type.ends_with('>')) return std::string(type);
  type = type.substr(kTensor.size(), type.size() - kTensor.size() - 1);
  const size_t letters = type.find_first_not_of("0123456789x");
  if (letters == type.npos) return std::string(type);
  std::string dims(type.substr(0, letters));
  if (!dims.empty()) dims.pop_back();
  std::ranges::replace(dims, 'x', ',');
  return std::string(type.substr(letters)) + "[" + dims + "]";
}

// "12.3 us, 8192 bytes, 4.1 GF/s"
std::string CostOf(const MeasuredKernel& kernel) {
  constexpr int64_t kShort = 100'000;  // nanoseconds; less is said in microseconds
  const auto time = static_cast<double>(kernel.nanoseconds);
  std::string text = kernel.nanoseconds < kShort ? FixedText(time / 1e3, 1) + " us" : FixedText(time / 1e6, 3) + " ms";
  if (kernel.bytes >= 0) text += ", " + std::to_string(kernel.bytes) + " bytes";
  if (kernel.flops > 0 && kernel.nanoseconds > 0) {
    text += ", " + FixedText(static_cast<double>(kernel.flops) / static_cast<double>(kernel.nanoseconds), 1) + " GF/s";
  }
  return text;
}

struct Graph {
  FlatProgram program;
  std::vector<MeasuredKernel> kernels;
  std::vector<size_t> kernel_of;  // a node's; kNone: none computes it, such as a constant's

  void Assign() {
    kernel_of.assign(program.nodes.size(), FlatProgram::kNone);
    // A composite may need several kernels: the dearest has it.
    std::vector<size_t> order(kernels.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](size_t i) { return kernels[i].nanoseconds; });
    for (const size_t i : order) {
      for (const size_t node : kernels[i].nodes) {
        if (node < kernel_of.size()) kernel_of[node] = i;
      }
    }
  }

  std::string LabelOf(size_t node) const {
    const FlatProgram::Node& it = program.nodes[node];
    const std::string type = it.results == 1 ? ShortType(it.types) : std::to_string(it.results) + " results";
    return "%" + std::to_string(node) + (it.operation.empty() ? "" : " " + it.operation) + "\\n" + Escaped(type) +
           (it.position.empty() ? "" : "\\n" + Escaped(it.position));
  }

  std::string NodeLine(size_t node) const {
    const FlatProgram::Node& it = program.nodes[node];
    return "n" + std::to_string(node) + " [" + (it.operation.empty() ? "shape=box, " : "") + "label=\"" +
           LabelOf(node) + "\"" + (it.returned ? ", peripheries=2" : "") + "]\n";
  }

  std::string KernelLabel(size_t i) const {
    const MeasuredKernel& kernel = kernels[i];
    const bool loop = kernel.implementation.starts_with("loop");
    return Escaped(kernel.implementation + (loop ? " " + kernel.name : "")) + "\\n" + CostOf(kernel);
  }

  std::string Whole() const {
    std::string text;
    for (size_t i = 0; i < kernels.size(); ++i) {
      text += "  subgraph cluster_" + std::to_string(i) + " {\n    style=filled; color=\"#dde6f0\"; label=\"" +
              KernelLabel(i) + "\"\n";
      bool any = false;
      for (size_t node = 0; node < kernel_of.size(); ++node) {
        if (kernel_of[node] != i) continue;
        any = true;
        text += "    " + NodeLine(node);
      }
      if (!any) {
        const std::string part = kernels[i].nodes.empty() ? "" : "a part of %" + std::to_string(kernels[i].nodes[0]);
        text += "    k" + std::to_string(i) + " [shape=plaintext, label=\"" + part + "\"]\n";
      }
      text += "  }\n";
    }
    for (size_t node = 0; node < kernel_of.size(); ++node) {
      if (kernel_of[node] == FlatProgram::kNone) text += "  " + NodeLine(node);
    }
    for (size_t node = 0; node < program.nodes.size(); ++node) {
      const auto& operands = program.nodes[node].operands;
      for (size_t k = 0; k < operands.size(); ++k) {
        if (operands[k].first == FlatProgram::kNone) continue;
        text += "  n" + std::to_string(operands[k].first) + " -> n" + std::to_string(node) +
                (operands.size() > 1 ? " [label=\"" + std::to_string(k) + "\"]" : "") + "\n";
      }
    }
    return text;
  }

  // Kernels, and the arguments as one node; what no kernel computes is passed through.
  std::string KernelsAlone() const {
    std::string text = "  arguments [shape=box, label=\"" + std::to_string(program.parameters) + " arguments\"]\n";
    for (size_t i = 0; i < kernels.size(); ++i) {
      text += "  k" + std::to_string(i) + " [shape=box, style=filled, fillcolor=\"#dde6f0\", label=\"" +
              KernelLabel(i) + "\\n" + std::to_string(kernels[i].nodes.size()) + " operations\"]\n";
    }
    std::vector<std::set<std::string>> from(program.nodes.size());
    std::set<std::pair<std::string, std::string>> edges;
    for (size_t node = 0; node < program.nodes.size(); ++node) {
      std::set<std::string> sources;
      if (node < program.parameters) sources.insert("arguments");
      for (const auto& [operand, result] : program.nodes[node].operands) {
        if (operand != FlatProgram::kNone) sources.insert(from[operand].begin(), from[operand].end());
      }
      if (kernel_of[node] == FlatProgram::kNone) {
        from[node] = std::move(sources);
        continue;
      }
      const std::string here = "k" + std::to_string(kernel_of[node]);
      for (const std::string& source : sources) {
        if (source != here) edges.emplace(source, here);
      }
      from[node] = {here};
    }
    for (const auto& [source, here] : edges) text += "  " + source + " -> " + here + "\n";
    return text;
  }

  std::string Dot(std::string_view name) const {
    const size_t operations = program.nodes.size() - program.parameters;
    return "digraph \"" + Escaped(name) + "\" {\n" + (operations > kMostDrawn ? KernelsAlone() : Whole()) + "}\n";
  }

  Fields Json() const {
    List nodes, all;
    for (size_t i = 0; i < program.nodes.size(); ++i) {
      const FlatProgram::Node& node = program.nodes[i];
      List operands;
      for (const auto& [operand, result] : node.operands) {
        operands.emplace_back(operand == FlatProgram::kNone ? int64_t{-1} : static_cast<int64_t>(operand));
      }
      const bool none = kernel_of[i] == FlatProgram::kNone;
      nodes.push_back(Fields{{"node", static_cast<int64_t>(i)},
                             {"operation", node.operation.empty() ? "parameter" : node.operation},
                             {"type", ShortType(node.types)},
                             {"position", node.position},
                             {"operands", std::move(operands)},
                             {"result", node.returned},
                             {"kernel", none ? int64_t{-1} : static_cast<int64_t>(kernel_of[i])}});
    }
    for (const MeasuredKernel& kernel : kernels) {
      List its;
      for (const size_t node : kernel.nodes) its.emplace_back(static_cast<int64_t>(node));
      all.push_back(Fields{{"name", kernel.name},
                           {"implementation", kernel.implementation},
                           {"nanoseconds", kernel.nanoseconds},
                           {"flops", kernel.flops},
                           {"bytes", kernel.bytes},
                           {"nodes", std::move(its)}});
    }
    return {{"nodes", std::move(nodes)}, {"kernels", std::move(all)}};
  }
};

int Fail(const std::string& problem) {
  std::fprintf(stderr, "weft graph: %s\n", problem.c_str());
  return kFailed;
}

// The program's own text; the function is gone behind it, so that another with other positions may be read.
bool ReadFlat(const std::string& path, FlatProgram* out, std::string* problem) {
  Context context;
  *problem = MessageOf(CreateWithoutCache(&context));
  if (!problem->empty()) return false;
  const Function function = ReadProgram(context.get(), path, problem);
  if (function == nullptr) return false;
  weft_blob* made = nullptr;
  weft_error* const error = weft_function_text(function.get(), WEFT_TEXT_IR, &made);
  std::string text;
  return TextOf(error, made, &text, problem) && Flatten(text, out, problem);
}

int Execute(const Arguments& arguments) {
  Graph graph;
  std::string problem;
  const std::string path(arguments.parameter);
  if (!ReadFlat(path, &graph.program, &problem)) return Fail(problem);
  if (!arguments.has("--plain") && !Measure(graph.program, &problem, &graph.kernels)) {
    return Fail("the program cannot be run: " + problem + "; --plain draws it without kernels");
  }
  graph.Assign();
  if (arguments.has("--json")) {
    Print(graph.Json(), true);
    return kDone;
  }
  const std::string dot = graph.Dot(path.substr(path.rfind('/') + 1));
  const std::string svg(arguments.value("--svg", ""));
  if (arguments.has("--svg")) return DrawSvg(dot, svg, &problem) ? kDone : Fail(problem);
  std::fwrite(dot.data(), 1, dot.size(), stdout);
  return kDone;
}

const Registration kGraph(
    {.name = "graph",
     .summary =
         "a program as a graph for Graphviz: a cluster a kernel, with its size and the time that it takes on zeros",
     .parameter = "FILE",
     .flags = {{"--svg", "writes the picture there instead, by Graphviz's program dot", "FILE.svg"},
               {"--plain", "does not run it: operations alone"},
               {"--json", "operations and kernels as one JSON object"}},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
