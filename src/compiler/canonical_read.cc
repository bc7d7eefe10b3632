// The way back from the canonical form of a trace: see canonical.h and, for the spelling, canonical.cc.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/compiler/canonical.h"
#include "src/ir/code_read.h"
#include "src/ir/op_def.h"
#include "src/ops/registry.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/status.h"

namespace weft::compiler {
namespace {

// Reads the bytes that TraceWriter writes, in the same order and with the same memory of earlier parts.
class TraceReader {
 public:
  explicit TraceReader(std::string_view canonical) : r_(canonical, &ops::FindOp) {}

  absl::StatusOr<Ref<const ir::Function>> Run(ir::Participants* participants) {
    Arguments();
    size_t nodes = r_.Count(kMostNodes);
    while (r_.ok() && nodes > 0) nodes -= Nodes(nodes);
    const std::vector<ir::Value> results = Values(References());
    if (!std::ranges::all_of(results, [](const ir::Value& result) { return static_cast<bool>(result); })) r_.Fail();
    if (r_.ok() && !r_.done()) *participants = r_.Participants();
    if (!r_.done()) return InternalError("the canonical form of a program cannot be read");
    return ir::Function::Create("main", std::move(parameters_), results, std::move(infos_));
  }

  absl::StatusOr<std::vector<CanonicalArgument>> RunArguments() {
    Arguments();
    if (!r_.ok()) return InternalError("the canonical form of a program cannot be read");
    std::vector<CanonicalArgument> arguments;
    for (size_t i = 0; i < parameters_.size(); ++i)
      arguments.push_back({parameters_[i].type(), infos_[i].role == ir::ParameterInfo::Role::kWords});
    return arguments;
  }

 private:
  struct Kind {
    uint32_t words;
    bool donated;
    ir::Type type;
  };
  struct Token {
    size_t kind;
    int64_t skipped;
  };
  // More arguments, operands and nodes no program has. Few bytes may say that there are many.
  static constexpr uint64_t kMost = uint64_t{1} << 20, kMostNodes = uint64_t{1} << 21;

  void Arguments() {
    const size_t count = r_.Count(kMost);
    std::vector<Token> tokens;
    while (r_.ok() && tokens.size() < count) {
      const uint64_t what = r_.Number();
      if (what == 1) {
        const size_t same = r_.Count(count - tokens.size()), back = r_.Count(tokens.size());
        if (same == 0 || back == 0) r_.Fail();
        for (size_t i = 0; r_.ok() && i < same; ++i) tokens.push_back(tokens[tokens.size() - back]);
        continue;
      }
      Token token = {static_cast<size_t>(what - 2), 0};
      if (what == 0) {
        const uint64_t said = r_.Number();
        kinds_.push_back({static_cast<uint32_t>(said / 2), (said & 1) != 0, r_.Type()});
        token.kind = kinds_.size() - 1;
      }
      if (token.kind >= kinds_.size()) return r_.Fail();
      if (kinds_[token.kind].donated) token.skipped = r_.Signed();
      tokens.push_back(token);
    }
    int64_t taken = 0;
    uint32_t word = 0;
    for (const Token& token : tokens) {
      const Kind& kind = kinds_[token.kind];
      ir::ParameterInfo& info = infos_.emplace_back();
      if (kind.words > 0) {
        info.role = ir::ParameterInfo::Role::kWords;
        info.word = std::exchange(word, word + kind.words);
      }
      if (kind.donated) {
        constexpr auto most = static_cast<int64_t>(kMost);
        const int64_t to = taken + std::clamp(token.skipped, -most, most);
        if (to < 0 || to >= most) return r_.Fail();
        info.donated_to = static_cast<int32_t>(to);
        taken = int64_t{info.donated_to} + 1;
      }
      parameters_.push_back({ir::Node::Create(ops::kOp_parameter, {}, {}, {kind.type}), 0});
    }
  }

  // A node, or as many calls of one function as are counted; how many.
  size_t Nodes(size_t left) {
    ir::CodeReader::Header header = r_.Node();
    if (!r_.ok()) return 0;
    if (!header.op->calls) {
      Add(std::move(header), References());
      return 1;
    }
    if (header.regions.empty()) {
      r_.Fail();
      return 0;
    }
    const Ref<const ir::Function> callee = header.regions[0];
    Calls& calls = calls_[callee.get()];
    const size_t counted = header.again ? r_.Count(left) : 0;
    for (size_t i = 0; r_.ok() && i < counted; ++i) {
      if (calls.stride.size() != calls.reached.size()) r_.Fail();
      for (size_t k = 0; r_.ok() && k < calls.stride.size(); ++k) Use(calls.reached[k] += calls.stride[k]);
      ir::CodeReader::Header again;
      again.op = header.op;
      again.results = header.results;
      again.regions = header.regions;
      Add(std::move(again), calls.reached);
    }
    if (counted > 0) return counted;
    std::vector<Trace::Reference> operands = References();
    if (calls.reached.size() == operands.size()) {
      calls.stride.resize(operands.size());
      for (size_t k = 0; k < operands.size(); ++k) calls.stride[k] = operands[k] - calls.reached[k];
    }
    Add(std::move(header), operands);
    calls.reached = std::move(operands);
    return 1;
  }

  void Add(ir::CodeReader::Header header, const std::vector<Trace::Reference>& operands) {
    const std::vector<ir::Value> values = Values(operands);
    if (!r_.ok()) return;
    const Ref<const ir::Node> node = r_.Make(std::move(header), ir::Values(values.begin(), values.end()));
    for (uint32_t i = 0; i < node->results().size(); ++i) values_.push_back({node, i});
  }

  std::vector<ir::Value> Values(const std::vector<Trace::Reference>& references) {
    std::vector<ir::Value> values;
    for (const Trace::Reference reference : references) {
      if (reference != Trace::kAbsent && !IsKnown(reference)) r_.Fail();
      if (!r_.ok()) return {};
      const std::vector<ir::Value>& from = Trace::IsArgument(reference) ? parameters_ : values_;
      values.push_back(reference == Trace::kAbsent ? ir::Value() : from[Trace::IndexOf(reference)]);
    }
    return values;
  }

  std::vector<Trace::Reference> References() {
    std::vector<Trace::Reference> all;
    const size_t count = r_.Count(kMost);
    if (count <= kSingly) {
      for (size_t i = 0; i < count; ++i) Use(all.emplace_back(static_cast<Trace::Reference>(r_.Number())));
      return all;
    }
    while (r_.ok() && all.size() < count) {
      const Trace::Reference first = Start();
      const size_t more = r_.Count(count - all.size() - 1);
      // Before there is memory for a run whose end nobody knows.
      if (more > 0 && !IsKnown(first + 2 * static_cast<uint32_t>(more))) r_.Fail();
      if (!r_.ok()) break;
      for (size_t i = 0; i <= more; ++i) all.push_back(first + 2 * static_cast<uint32_t>(i));
      Use(all.back());
    }
    return all;
  }

  bool IsKnown(Trace::Reference reference) const {
    const std::vector<ir::Value>& from = Trace::IsArgument(reference) ? parameters_ : values_;
    return Trace::IndexOf(reference) < from.size();
  }

  Trace::Reference Start() {
    const int64_t behind = r_.Signed();
    if (behind == 0) return Trace::kAbsent;
    // Nothing is further away than there are bytes; INT64_MIN has no negative.
    if (behind > INT32_MAX || behind < -INT32_MAX) r_.Fail();
    if (!r_.ok()) return Trace::kAbsent;
    if ((behind & 1) != 0) return Trace::OfArgument(static_cast<uint32_t>(fresh_ + (behind + 1) / 2));
    return Trace::OfValue(static_cast<uint32_t>(static_cast<int64_t>(values_.size()) - behind / 2));
  }

  void Use(Trace::Reference reference) {
    if (Trace::IsArgument(reference)) fresh_ = std::max<int64_t>(fresh_, int64_t{Trace::IndexOf(reference)} + 1);
  }

  static constexpr size_t kSingly = 3;

  ir::CodeReader r_;
  std::vector<Kind> kinds_;
  std::vector<ir::Value> parameters_, values_;
  std::vector<ir::ParameterInfo> infos_;
  struct Calls {
    std::vector<Trace::Reference> reached, stride;
  };
  HashMap<const ir::Function*, Calls> calls_;
  int64_t fresh_ = 0;
};

}  // namespace

absl::StatusOr<Ref<const ir::Function>> ReadCanonical(std::string_view canonical, ir::Participants* participants) {
  ir::Participants unwanted;
  return TraceReader(canonical).Run(participants != nullptr ? participants : &unwanted);
}

absl::StatusOr<std::vector<CanonicalArgument>> ReadArguments(std::string_view canonical) {
  return TraceReader(canonical).RunArguments();
}

Ref<const ir::Node> ReadNode(std::string_view bytes) {
  ir::CodeReader reader(bytes, &ops::FindOp);
  ir::CodeReader::Header header = reader.Node();
  return reader.done() && !header.again ? reader.Make(std::move(header), {}) : nullptr;
}

}  // namespace weft::compiler
