// See canonical.h.
#include "src/compiler/canonical.h"

#include "src/ir/code.h"

namespace weft::compiler {

void AppendCanonical(const Trace& trace, std::string* out) {
  ir::CodeWriter w(out);
  w.Number(trace.arguments.size());
  for (const Trace::Argument& argument : trace.arguments) {
    w.Number(argument.words);
    w.Signed(argument.donated_to);
    w.Type(argument.type());
  }
  w.Number(trace.nodes.size());
  const Trace::Reference* operand = trace.operands.data();
  for (const ir::Node* node : trace.nodes) {
    w.Node(*node);
    const size_t n = node->operands().size();
    w.Number(n);
    for (size_t i = 0; i < n; ++i) w.Number(*operand++);
  }
  w.Number(trace.outputs.size());
  for (Trace::Reference output : trace.outputs) w.Number(output);
}

void AppendCanonical(const ir::Function& function, std::string* out) { ir::CodeWriter(out).Body(function); }

}  // namespace weft::compiler
