// See canonical.h.
#include "src/compiler/canonical.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "src/ir/code.h"
#include "src/ir/op_def.h"
#include "src/runtime/hash_map.h"

namespace weft::compiler {
namespace {

// The parts of a trace that grow with the number of calls of one function take next to nothing for equal layers:
// arguments that are like those some places before, and calls whose operands are as far from those of the last call as
// those were from the one before it, are counted. All other references are runs of neighbours.
class TraceWriter {
 public:
  // `passed`: see AppendCanonical; may be null.
  TraceWriter(const Trace& trace, std::string* out, PassedNodes* passed)
      : trace_(trace), out_(*out), begin_(out->size()), passed_(passed), w_(out) {}

  void Run() {
    Arguments();
    w_.Number(trace_.nodes.size());
    if (passed_ != nullptr) Begin();
    const std::span<const Trace::Reference> operands(trace_.operands);
    uint32_t first = 0;
    for (const ir::Node* const node : trace_.nodes) {
      if (passed_ != nullptr) Pass(*node, first);
      const auto count = static_cast<uint32_t>(node->operands().size());
      Node(*node, operands.subspan(first, count));
      first += count;
      values_ += static_cast<uint32_t>(node->results().size());
    }
    if (passed_ != nullptr) passed_->nodes.push_back({.first_operand = first, .first_value = values_});
    EndCalls();
    References(trace_.outputs);
    // Behind everything, so that programs of one process have the bytes that they had before there were others.
    if (!trace_.participants.usual()) w_.Participants(trace_.participants);
  }

 private:
  static constexpr size_t kKinds = 16;   // that are looked through
  static constexpr size_t kSingly = 3;   // so many references, the operands of most nodes, are shorter as they are
  static constexpr size_t kRepeats = 4;  // so many arguments are shorter counted
  static constexpr size_t kPlaces = 16;  // that are tried

  // An argument but for its type: which kind it is of, and which output takes it over, counted from the last such, if one does.
  struct Token {
    uint32_t kind;
    int64_t skipped;
    bool operator==(const Token&) const = default;
  };

  void Arguments() {
    const size_t count = trace_.arguments.size();
    w_.Number(count);
    std::vector<Token> tokens;
    tokens.reserve(count);
    for (const Trace::Argument& argument : trace_.arguments) tokens.push_back(TokenOf(argument));
    std::vector<size_t> last, before(count);  // place of a kind, and of the same kind before a place; from 1
    for (size_t i = 0; i < count;) {
      // The longest that was there before, from the last few places where it might begin.
      size_t same = 0, back = 0;
      const bool is_new = tokens[i].kind >= last.size();
      size_t at = is_new ? 0 : last[tokens[i].kind];
      for (size_t looked = 0; at > 0 && looked < kPlaces; ++looked, at = before[at - 1]) {
        size_t n = 0;
        while (i + n < count && tokens[at - 1 + n] == tokens[i + n]) ++n;
        if (n <= same) continue;
        same = n;
        back = i + 1 - at;
      }
      if (same >= kRepeats) {
        w_.Number(1);
        w_.Number(same);
        w_.Number(back);
      } else {
        same = 1;
        One(tokens[i], is_new);
        if (is_new) last.push_back(0);
      }
      for (; same > 0; --same, ++i) before[i] = std::exchange(last[tokens[i].kind], i + 1);
    }
  }

  Token TokenOf(const Trace::Argument& argument) {
    const bool donated = argument.donated_to >= 0;
    const auto like = [&](const Trace::Argument* a) {
      return a->words == argument.words && (a->donated_to >= 0) == donated && a->type() == argument.type();
    };
    size_t kind = kinds_.size();
    const size_t end = kind - std::min(kind, kKinds);
    while (kind > end && !like(kinds_[kind - 1])) --kind;
    Token token = {static_cast<uint32_t>(kind > end ? kind - 1 : kinds_.size()), 0};
    if (token.kind == kinds_.size()) kinds_.push_back(&argument);
    if (donated) {
      token.skipped = argument.donated_to - taken_;
      taken_ = int64_t{argument.donated_to} + 1;
    }
    return token;
  }

  void One(const Token& token, bool is_new) {
    const Trace::Argument& kind = *kinds_[token.kind];
    const bool donated = kind.donated_to >= 0;
    if (is_new) {
      w_.Number(0);
      w_.Number(2 * uint64_t{kind.words} + (donated ? 1 : 0));
      w_.Type(kind.type());
    } else {
      w_.Number(2 + token.kind);
    }
    if (donated) w_.Signed(token.skipped);
  }

  void Node(const ir::Node& node, std::span<const Trace::Reference> operands) {
    if (!node.op().calls) {
      EndCalls();
      const size_t begin = out_.size();
      w_.Node(node);
      if (passed_ != nullptr && node.regions().empty()) Place(begin);
      return References(operands);
    }
    const ir::Function* const callee = node.regions()[0].get();
    std::vector<Trace::Reference>& reached = reached_[callee];
    std::vector<Trace::Reference>& stride = stride_[callee];
    const bool again = w_.Again(node) == callee;
    bool expected = again && stride.size() == operands.size();
    for (size_t i = 0; expected && i < operands.size(); ++i) expected = operands[i] == reached[i] + stride[i];
    if (!expected || counted_ != callee) {
      EndCalls();
      w_.Node(node);
    }
    if (expected) {
      counted_ = callee;
      ++calls_;
      for (const Trace::Reference reference : operands) Use(reference);
    } else {
      if (again) w_.Number(0);
      References(operands);
      if (reached.size() == operands.size()) {
        stride.resize(operands.size());
        for (size_t i = 0; i < operands.size(); ++i) stride[i] = operands[i] - reached[i];
      }
    }
    reached.assign(operands.begin(), operands.end());
  }

  void Begin() {
    passed_->nodes.clear();
    passed_->nodes.reserve(trace_.nodes.size() + 1);
    passed_->least_id = trace_.nodes.empty() ? 0 : UINT64_MAX;
    passed_->greatest_id = 0;
  }

  void Pass(const ir::Node& node, uint32_t first_operand) {
    const uint64_t id = node.id();
    passed_->nodes.push_back({{}, &node.op(), id, node.location(), first_operand, values_});
    passed_->least_id = std::min(passed_->least_id, id);
    passed_->greatest_id = std::max(passed_->greatest_id, id);
  }

  void Place(size_t begin) {
    const size_t end = out_.size() - begin_;
    if (end <= UINT32_MAX)
      passed_->nodes.back().bytes = {static_cast<uint32_t>(begin - begin_), static_cast<uint32_t>(end)};
  }

  // Behind the node that they begin with: how many calls there are.
  void EndCalls() {
    if (calls_ > 0) w_.Number(calls_);
    calls_ = 0;
    counted_ = nullptr;
  }

  void References(std::span<const Trace::Reference> all) {
    w_.Number(all.size());
    if (all.size() <= kSingly) {
      for (const Trace::Reference reference : all) {
        w_.Number(reference);
        Use(reference);
      }
      return;
    }
    while (!all.empty()) {
      size_t run = 1;
      while (run < all.size() && all[0] != Trace::kAbsent && all[run] == all[run - 1] + 2) ++run;
      Start(all[0]);
      w_.Number(run - 1);
      Use(all[run - 1]);
      all = all.subspan(run);
    }
  }

  void Use(Trace::Reference reference) {
    if (Trace::IsArgument(reference)) fresh_ = std::max(fresh_, Trace::IndexOf(reference) + 1);
  }

  // Writes a reference relative to the first argument that nobody has used, or to the last value.
  void Start(Trace::Reference reference) {
    if (reference == Trace::kAbsent) return w_.Signed(0);
    const int64_t index = Trace::IndexOf(reference);
    const int64_t behind = Trace::IsArgument(reference) ? 2 * (index - fresh_) - 1 : 2 * (values_ - index);
    w_.Signed(behind);
  }

  const Trace& trace_;
  const std::string& out_;
  const size_t begin_;  // of the form in it
  PassedNodes* const passed_;
  ir::CodeWriter w_;
  std::vector<const Trace::Argument*> kinds_;
  // Maps a function to the operands of its last call, and to the steps that they take to the next call if all goes on
  // like that.
  HashMap<const ir::Function*, std::vector<Trace::Reference>> reached_, stride_;
  const ir::Function* counted_ = nullptr;  // whose calls are being counted
  uint64_t calls_ = 0;
  int64_t taken_ = 0;    // the output behind the last that takes over an argument
  uint32_t fresh_ = 0;   // arguments from here on have not been used
  uint32_t values_ = 0;  // so far
};

}  // namespace

void AppendCanonical(const Trace& trace, std::string* out) { TraceWriter(trace, out, nullptr).Run(); }
void AppendCanonical(const Trace& trace, std::string* out, PassedNodes* passed) {
  TraceWriter(trace, out, passed).Run();
}

void AppendCanonical(const ir::Function& function, std::string* out) { ir::CodeWriter(out).Body(function); }

}  // namespace weft::compiler
