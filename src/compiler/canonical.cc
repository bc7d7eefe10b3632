// See canonical.h.
#include "src/compiler/canonical.h"

#include <algorithm>
#include <span>
#include <vector>

#include "src/ir/code.h"

namespace weft::compiler {
namespace {

// The parts of a trace that grow with the number of calls of one function take a few bytes a call: an argument says which of the
// last few others it is like, and neighbours in longer lists of references are runs.
class TraceWriter {
 public:
  TraceWriter(const Trace& trace, std::string* out) : trace_(trace), w_(out) {}

  void Run() {
    w_.Number(trace_.arguments.size());
    for (const Trace::Argument& argument : trace_.arguments) Argument(argument);
    w_.Number(trace_.nodes.size());
    std::span<const Trace::Reference> operands(trace_.operands);
    for (const ir::Node* node : trace_.nodes) {
      w_.Node(*node);
      References(operands.first(node->operands().size()));
      operands = operands.subspan(node->operands().size());
      values_ += static_cast<uint32_t>(node->results().size());
    }
    References(trace_.outputs);
  }

 private:
  static constexpr size_t kKinds = 16;  // that are remembered
  static constexpr size_t kSingly = 3;  // so many references, the operands of most nodes, are shorter as they are

  void Argument(const Trace::Argument& argument) {
    const bool donated = argument.donated_to >= 0;
    size_t back = 0;
    const size_t known = std::min(kinds_.size(), kKinds);
    const auto same = [&](const Trace::Argument& a) {
      return a.words == argument.words && (a.donated_to >= 0) == donated && a.type() == argument.type();
    };
    while (back < known && !same(*kinds_[kinds_.size() - 1 - back])) ++back;
    if (back < known) {
      w_.Number(kinds_.size() - back);  // the kind's number, from 1
    } else {
      w_.Number(0);
      w_.Number(2 * uint64_t{argument.words} + (donated ? 1 : 0));
      w_.Type(argument.type());
      kinds_.push_back(&argument);
    }
    if (!donated) return;
    w_.Signed(int64_t{argument.donated_to} - taken_);
    taken_ = int64_t{argument.donated_to} + 1;
  }

  void References(std::span<const Trace::Reference> all) {
    w_.Number(all.size());
    if (all.size() <= kSingly) {
      for (const Trace::Reference reference : all) {
        w_.Number(reference);
        if (Trace::IsArgument(reference)) fresh_ = std::max(fresh_, Trace::IndexOf(reference) + 1);
      }
      return;
    }
    while (!all.empty()) {
      size_t run = 1;
      while (run < all.size() && all[0] != Trace::kAbsent && all[run] == all[run - 1] + 2) ++run;
      Start(all[0]);
      w_.Number(run - 1);
      if (Trace::IsArgument(all[0])) {
        fresh_ = std::max(fresh_, Trace::IndexOf(all[run - 1]) + 1);
      }
      all = all.subspan(run);
    }
  }

  // From the first argument that nobody has used, or from the last value.
  void Start(Trace::Reference reference) {
    if (reference == Trace::kAbsent) return w_.Signed(0);
    const int64_t index = Trace::IndexOf(reference);
    const int64_t behind = Trace::IsArgument(reference) ? 2 * (index - fresh_) - 1 : 2 * (values_ - index);
    w_.Signed(behind);
  }

  const Trace& trace_;
  ir::CodeWriter w_;
  std::vector<const Trace::Argument*> kinds_;
  int64_t taken_ = 0;    // the output behind the last that takes over an argument
  uint32_t fresh_ = 0;   // arguments from here on have not been used
  uint32_t values_ = 0;  // so far
};

}  // namespace

void AppendCanonical(const Trace& trace, std::string* out) { TraceWriter(trace, out).Run(); }

void AppendCanonical(const ir::Function& function, std::string* out) { ir::CodeWriter(out).Body(function); }

}  // namespace weft::compiler
