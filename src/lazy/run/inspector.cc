// See inspector.h.
#include "src/lazy/run/inspector.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/backends/has_workers.h"
#include "src/ir/rewrite.h"
#include "src/lazy/run/evaluator.h"
#include "src/lazy/run/results_to_look.h"
#include "src/lazy/value/index_check.h"
#include "src/lazy/value/read_as.h"
#include "src/ops/control/draws.h"
#include "src/ops/control/scan.h"
#include "src/ops/registry.h"
#include "src/runtime/float_environment.h"

namespace weft::lazy {
namespace {

// Functions in functions that are looked into; deeper ones are named as a whole.
constexpr int kDeepest = 64;

// The end of an error's text that says what operands and results hold: it stays the end when a place is added.
constexpr std::string_view kPayloadValues = "weft.values";

// Check reads one of these: a buffer, held so that no other launch overwrites it meanwhile, or a literal.
struct Looked {
  size_t number;
  Ref<Buffer> buffer;
  Ref<const Literal> literal;
};

std::vector<Looked> Look(std::span<const ir::Value> values) {
  std::vector<Looked> looked;
  for (size_t i = 0; i < values.size(); ++i) {
    const ir::Value& value = values[i];
    if (!value || (!IsFloat(value.dtype()) && !IsComplex(value.dtype()))) continue;
    if (Data* const data = DataOf(value); data != nullptr && data->word_count == 0 && !data->shards().empty()) {
      for (const Ref<Buffer>& shard : data->split() ? data->shards() : data->shards().first(1)) {
        looked.push_back({i, shard, nullptr});
        looked.back().buffer->Hold();
      }
    } else if (data == nullptr && &value.node->op() == &ops::kOp_constant) {
      looked.push_back({i, nullptr, std::get<Ref<const Literal>>(value.node->attrs().at(0))});
    }
  }
  return looked;
}

void LetGo(std::span<const Looked> looked) {
  for (const Looked& one : looked) {
    if (one.buffer) one.buffer->Unhold();
  }
}

absl::StatusOr<Contents> ContentsOf(const Looked& looked, Bad bad) {
  if (looked.literal) return ContentsOf(looked.literal->value, bad);
  Buffer& buffer = *looked.buffer;
  HostTensor host(buffer.dtype(), buffer.dims());
  WEFT_RETURN_IF_ERROR(buffer.device()->backend->FromDevice(buffer, 0, host.mutable_bytes()));
  return ContentsOf(host, bad);
}

// Reads a buffer that is ready: in place on a host, through a copy elsewhere.
absl::StatusOr<bool> HoldsBad(Buffer& buffer, Bad bad) {
  const size_t bytes = static_cast<size_t>(buffer.bytes());
  if (buffer.device()->is_host()) {
    return HoldsBad(buffer.dtype(), {static_cast<const std::byte*>(buffer.host_data()), bytes}, bad);
  }
  HostTensor host(buffer.dtype(), buffer.dims());
  WEFT_RETURN_IF_ERROR(buffer.device()->backend->FromDevice(buffer, 0, host.mutable_bytes()));
  return HoldsBad(host.dtype(), host.bytes(), bad);
}

// The first of these ready buffers that holds a bad number, or their number. Memory that the host reads is looked through in pieces,
// by the threads of kernels if the backend has some: one thread would take a fifth of a short training step for that.
absl::StatusOr<size_t> FirstHolding(std::span<const Looked> all, Bad bad) {
  constexpr size_t kPiece = size_t{64} << 10;  // of whole elements of any type
  struct Piece {
    size_t buffer;
    std::span<const std::byte> bytes;
  };
  std::vector<Piece> pieces;
  HasWorkers* workers = nullptr;
  std::atomic<size_t> first = all.size();
  const auto found_in = [&](size_t buffer) {
    size_t known = first.load(std::memory_order_relaxed);
    while (buffer < known && !first.compare_exchange_weak(known, buffer, std::memory_order_relaxed)) {
    }
  };
  for (size_t i = 0; i < all.size(); ++i) {
    Buffer& buffer = *all[i].buffer;
    if (!buffer.device()->is_host()) {
      WEFT_ASSIGN_OR_RETURN(const bool holds, HoldsBad(buffer, bad));
      if (holds) found_in(i);
      continue;
    }
    if (workers == nullptr) workers = dynamic_cast<HasWorkers*>(buffer.device()->backend);
    std::span<const std::byte> rest(static_cast<const std::byte*>(buffer.host_data()),
                                    static_cast<size_t>(buffer.bytes()));
    for (; !rest.empty(); rest = rest.subspan(std::min(rest.size(), kPiece)))
      pieces.push_back({i, rest.first(std::min(rest.size(), kPiece))});
  }
  const auto look = [&](int64_t begin, int64_t end, int) {
    for (const Piece& piece : std::span(pieces).subspan(begin, end - begin)) {
      if (piece.buffer >= first.load(std::memory_order_relaxed)) continue;
      if (HoldsBad(all[piece.buffer].buffer->dtype(), piece.bytes, bad)) found_in(piece.buffer);
    }
  };
  const auto count = static_cast<int64_t>(pieces.size());
  if (workers != nullptr && count > 1) {
    workers->Split(count, look);
  } else {
    look(0, count, 0);
  }
  return first.load(std::memory_order_relaxed);
}

std::string TypesOf(std::span<const ir::Value> operands) {
  return absl::StrJoin(operands, ", ", [](std::string* out, const ir::Value& operand) {
    absl::StrAppend(out, operand ? ir::ShortType(operand.type()) : "none");
  });
}

}  // namespace

absl::Status Within(const absl::Status& status, std::string_view place) {
  std::string_view text = status.message();
  const std::optional<absl::Cord> values = status.GetPayload(kPayloadValues);
  std::string end = values.has_value() ? std::string(*values) : std::string();
  if (text.ends_with(end)) text.remove_suffix(end.size());
  return WithText(status, absl::StrCat(text, place, end));
}

constinit thread_local bool Inspector::looking_ = false;

class Inspector::Looks {
 public:
  Looks() : before_(std::exchange(looking_, true)) {}
  ~Looks() { looking_ = before_; }
  Looks(const Looks&) = delete;
  Looks& operator=(const Looks&) = delete;

 private:
  const bool before_;
};

absl::Status Inspector::Check(Lock& lock, const ir::OpDef& op, std::span<const ir::Value> operands,
                              std::span<const ir::Value> results) {
  const FloatScope floats;
  // Everything is computed: all operands are known here.
  const std::vector<Looked> inputs = weft::lazy::Look(operands), outputs = weft::lazy::Look(results);
  const absl::Status status = lock.Open([&]() -> absl::Status {
    for (const Looked& output : outputs) {
      WEFT_ASSIGN_OR_RETURN(const Contents made, ContentsOf(output, bad()));
      if (made.bad == 0) continue;
      std::string values;
      for (const Looked& input : inputs) {
        WEFT_ASSIGN_OR_RETURN(const Contents given, ContentsOf(input, bad()));
        if (given.bad > 0) return absl::OkStatus();
        absl::StrAppend(&values, "; operand ", input.number, ": ", TextOf(given, bad()));
      }
      absl::StrAppend(&values, "; result", results.size() > 1 ? absl::StrCat(" ", output.number) : "", ": ",
                      TextOf(made, bad()));
      return WithDetail(UserErrorOf(absl::StatusCode::kFailedPrecondition, op.c_name, "(", TypesOf(operands),
                                    "): element ", made.first, " of the result is ", NameOf(bad()),
                                    ", and no operand holds one (", way(), ")", values),
                        kPayloadValues, values);
    }
    return absl::OkStatus();
  });
  LetGo(inputs);
  LetGo(outputs);
  return status;
}

absl::Status Inspector::CheckInside(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                                    std::span<const ir::Value> results) {
  absl::Status status = Check(lock, node.op(), operands, results);
  return status.ok() ? status : Narrowed(lock, state, node, operands, std::move(status));
}

absl::Status Inspector::Narrowed(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                                 absl::Status status) {
  if (node.regions().empty()) return status;
  const Looks looks;
  const absl::Status inside = Inside(lock, state, node, operands, 0);
  return inside.ok() ? status : inside;
}

// --- Functions, one operation after the other -----------------------------------------------------------------------------

absl::Status Inspector::Step(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                             ir::Values* results) {
  const Ref<const ir::Node> made = ir::CopyNode(node, operands, node.regions());
  for (uint32_t i = 0; i < made->results().size(); ++i) results->push_back({made, i});
  WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, state, *results, CutReason::kEager));
  if (&node.op() == &ops::kOp_constant) return absl::OkStatus();  // a NaN is meant
  if (node.op().indices != nullptr) {
    IndexCheck indices(node.op(), operands, node.attrs());
    WEFT_RETURN_IF_ERROR(lock.Open([&] { return indices.Run(); }));
  }
  return CheckInside(lock, state, node, operands, *results);
}

absl::Status Inspector::StepThrough(Lock& lock, MeshState& state, ir::Values* results) {
  // Calls nest deeper than stacks are.
  struct Running {
    Ref<const ir::Function> function;
    size_t next;
    HashMap<const ir::Node*, ir::Values> made;
  };
  std::vector<Running> stack;
  const auto enter = [&](const ir::Node& call, const ir::Values& operands) {
    Running& top = stack.emplace_back(call.regions()[0], call.regions()[0]->parameters().size());
    const auto parameters = top.function->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) top.made[parameters[i].node.get()] = {operands[i]};
  };
  const Ref<const ir::Node> call = (*results)[0].node;
  // Between steps a stream of random numbers would be held in 32 bits.
  if (options_.held.u64 != DType::kU64 && ops::Draws(*call->regions()[0])) {
    const ir::Values operands(call->operands().begin(), call->operands().end());
    WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, state, *results, CutReason::kEager));
    return Check(lock, call->op(), operands, *results);
  }
  enter(*call, {call->operands().begin(), call->operands().end()});
  while (true) {
    Running& top = stack.back();
    const auto value = [&](const ir::Value& v) { return v ? top.made.at(v.node.get())[v.result] : ir::Value(); };
    if (top.next < top.function->nodes().size()) {
      const ir::Node& node = *top.function->nodes()[top.next];
      ir::Values operands, made;
      for (const ir::Value& operand : node.operands()) operands.push_back(value(operand));
      if (node.op().calls) {
        enter(node, operands);
        continue;
      }
      if (absl::Status status = Step(lock, state, node, operands, &made); !status.ok()) {
        absl::Status named = Within(status, absl::StrCat(", in @", top.function->name()));
        return node.location().file != 0 ? WithPosition(std::move(named), node.location()) : named;
      }
      top.made[&node] = std::move(made);
      ++top.next;
      continue;
    }
    ir::Values out;
    for (const ir::Value& result : top.function->results()) out.push_back(value(result));
    stack.pop_back();
    if (stack.empty()) {
      *results = std::move(out);
      return absl::OkStatus();
    }
    Running& caller = stack.back();
    caller.made[caller.function->nodes()[caller.next++]] = std::move(out);
  }
}

absl::Status Inspector::Run(Lock& lock, MeshState& state, const Body& body, ir::Values* results) {
  const Ref<const ir::Function> function = Ref<const ir::Function>::Share(&body.function);
  const auto parameters = function->parameters();
  const auto nodes = function->nodes().subspan(parameters.size());
  // A value is released after its last use (liveness): all values of a network together need more memory than a step.
  HashMap<const ir::Node*, size_t> last;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const ir::Value& operand : nodes[i]->operands()) {
      if (operand) last[operand.node.get()] = i;
    }
  }
  for (const ir::Value& result : function->results()) last[result.node.get()] = nodes.size();
  HashMap<const ir::Node*, ir::Values> made;
  for (size_t i = 0; i < parameters.size(); ++i) made[parameters[i].node.get()] = {body.arguments[i]};
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ir::Node& node = *nodes[i];
    ir::Values operands, values;
    for (const ir::Value& operand : node.operands()) {
      operands.push_back(operand ? made.at(operand.node.get())[operand.result] : ir::Value());
    }
    const Ref<const ir::Node> copy = ir::CopyNode(node, operands, node.regions());
    for (uint32_t k = 0; k < copy->results().size(); ++k) values.push_back({copy, k});
    // Literals stay in the programs of those that read them.
    if (&node.op() != &ops::kOp_constant) {
      WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, state, values, CutReason::kEager));
      absl::Status status = Check(lock, node.op(), operands, values);
      if (!status.ok()) {
        const absl::Status inside = Inside(lock, state, node, operands, body.depth + 1);
        if (!inside.ok()) status = inside;
        const ir::Location at = i < body.positions.size() ? body.positions[i] : node.location();
        status = Within(status, body.place);
        return at.file != 0 ? WithPosition(std::move(status), at) : status;
      }
    }
    made[&node] = std::move(values);
    for (const ir::Value& operand : node.operands()) {
      if (operand && last[operand.node.get()] == i) made.erase(operand.node.get());
    }
  }
  for (const ir::Value& result : function->results()) results->push_back(made.at(result.node.get())[result.result]);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Inspector::Number(Lock& lock, const ir::Value& value) {
  // A function may give a literal back.
  if (&value.node->op() == &ops::kOp_constant) {
    return std::get<Ref<const Literal>>(value.node->attrs().at(0))->value.GetInt(0);
  }
  const Ref<Data> data = Ref<Data>::Share(DataOf(value));
  HostTensor host(value.dtype(), {});
  if (data->word_count > 0) {
    ReadWordsAs(*data, value.type(), value.dtype(), 0, host.mutable_bytes());
  } else {
    const Ref<Buffer> buffer = data->whole();
    buffer->Hold();
    const absl::Status status = lock.Open([&] { return ReadAs(*buffer, value.dtype(), 0, host.mutable_bytes()); });
    buffer->Unhold();
    WEFT_RETURN_IF_ERROR(status);
  }
  return host.GetInt(0);
}

absl::Status Inspector::Inside(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                               int depth) {
  if (depth >= kDeepest) return absl::OkStatus();
  for (const Ref<const ir::Function>& region : node.regions()) {
    // Between steps a stream of random numbers would be held in 32 bits.
    if (options_.held.u64 != DType::kU64 && ops::Draws(*region)) return absl::OkStatus();
  }
  const ir::OpDef& op = node.op();
  if (&op == &ops::kOp_scan) return InsideScan(lock, state, node, operands, depth);
  if (&op == &ops::kOp_while) return InsideWhile(lock, state, node, operands, depth);
  if (&op == &ops::kOp_case || &op == &ops::kOp_if) return InsideBranch(lock, state, node, operands, depth);
  if (!op.calls) return absl::OkStatus();
  const ir::Function& function = *node.regions()[0];
  ir::Values results;
  return Run(
      lock, state,
      {.function = function, .arguments = operands, .place = absl::StrCat(", in @", function.name()), .depth = depth},
      &results);
}

absl::Status Inspector::InsideScan(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                                   int depth) {
  const ir::Function& body = *node.regions()[0];
  WEFT_ASSIGN_OR_RETURN(const ops::ScanParts p, ops::PartsOf(node.attrs(), body));
  int64_t runs = p.length;
  if (p.counted != 0) {
    WEFT_ASSIGN_OR_RETURN(const int64_t count, Number(lock, operands[0]));
    runs = p.kept || p.sliced > 0 ? std::min(count, p.length) : count;
  }
  const std::span<const ir::Value> given = std::span(operands).subspan(p.counted);
  std::vector<ir::Value> carried(given.begin(), given.begin() + static_cast<ptrdiff_t>(p.carried));
  for (int64_t run = 0; run < runs; ++run) {
    const auto at = static_cast<uint32_t>(p.reverse ? runs - 1 - run : run);
    // An argument, so that one program serves all runs.
    const ir::Value index =
        Recorder::NewLeaf(ir::Type::Scalar(DType::kI32), MakeRef<Data>(std::span<const uint32_t>(&at, 1)));
    ir::Builder b(node.location());
    std::vector<ir::Value> arguments, rows;
    if (p.indexed != 0) arguments.push_back(index);
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    for (size_t i = 0; i < p.scanned; ++i) rows.push_back(ops::Row(b, given[p.carried + i], index));
    WEFT_RETURN_IF_ERROR(b.status());
    if (!rows.empty()) WEFT_RETURN_IF_ERROR(evaluator_.Compute(lock, state, rows, CutReason::kEager));
    arguments.insert(arguments.end(), rows.begin(), rows.end());
    for (size_t i = 0; i < p.captures; ++i) arguments.push_back(given[p.carried + p.scanned + i]);
    const std::string place = absl::StrCat(", in run ", run, " (from 0) of @", body.name());
    ir::Values results;
    WEFT_RETURN_IF_ERROR(
        Run(lock, state, {.function = body, .arguments = arguments, .place = place, .depth = depth}, &results));
    for (size_t i = 0; i < p.carried; ++i) carried[i] = results[i];
  }
  return absl::OkStatus();
}

absl::Status Inspector::InsideWhile(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                                    int depth) {
  const ir::Function &condition = *node.regions()[0], &body = *node.regions()[1];
  const size_t carries = body.results().size(), asks = condition.parameters().size() - carries;
  const std::span<const ir::Value> all(operands);
  std::vector<ir::Value> asked(all.begin(), all.begin() + static_cast<ptrdiff_t>(carries + asks));
  std::vector<ir::Value> given(asked.begin(), asked.begin() + static_cast<ptrdiff_t>(carries));
  given.insert(given.end(), all.begin() + static_cast<ptrdiff_t>(carries + asks), all.end());
  for (int64_t run = 0;; ++run) {
    ir::Values goes_on, next;
    const std::string asking = absl::StrCat(", in question ", run, " (from 0) of @", condition.name());
    WEFT_RETURN_IF_ERROR(
        Run(lock, state, {.function = condition, .arguments = asked, .place = asking, .depth = depth}, &goes_on));
    WEFT_ASSIGN_OR_RETURN(const int64_t again, Number(lock, goes_on[0]));
    if (again == 0) return absl::OkStatus();
    const std::string running = absl::StrCat(", in run ", run, " (from 0) of @", body.name());
    WEFT_RETURN_IF_ERROR(
        Run(lock, state, {.function = body, .arguments = given, .place = running, .depth = depth}, &next));
    for (size_t i = 0; i < carries; ++i) asked[i] = given[i] = next[i];
  }
}

absl::Status Inspector::InsideBranch(Lock& lock, MeshState& state, const ir::Node& node, const ir::Values& operands,
                                     int depth) {
  WEFT_ASSIGN_OR_RETURN(const int64_t choice, Number(lock, operands[0]));
  const auto last = static_cast<int64_t>(node.regions().size()) - 1;
  const bool is_if = &node.op() == &ops::kOp_if;
  const int64_t chosen = is_if ? (choice != 0 ? 0 : 1) : choice < 0 || choice > last ? last : choice;
  size_t first = 1;
  for (int64_t i = 0; i < chosen; ++i) first += node.regions()[static_cast<size_t>(i)]->parameters().size();
  const ir::Function& branch = *node.regions()[static_cast<size_t>(chosen)];
  ir::Values results;
  return Run(lock, state,
             {.function = branch,
              .arguments = std::span<const ir::Value>(operands).subspan(first, branch.parameters().size()),
              .place = absl::StrCat(", in @", branch.name()),
              .depth = depth},
             &results);
}

// --- Behind a launch ------------------------------------------------------------------------------------------------------

absl::Status Inspector::Look(Lock& lock, MeshState& state, const compiler::Program& program,
                             std::span<const Ref<Data>> arguments, std::span<const Ref<Data>> results) {
  if (program.to_look.empty()) {
    program.to_look.assign(results.size(), true);
    // A result where an infinity became a NaN does not show the infinity.
    const auto source = state.programs->Source(program);
    if (source.ok() && options_.first_bad != Bad::kInf) program.to_look = ResultsToLook(**source);
  }
  std::vector<Looked> held;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!program.to_look[i]) continue;
    for (const Ref<Buffer>& shard : results[i]->shards()) {
      if (!IsFloat(shard->dtype()) && !IsComplex(shard->dtype())) continue;
      held.push_back({i, shard, nullptr});
      shard->Hold();
    }
  }
  std::string found;
  const absl::Status status = lock.Open([&]() -> absl::Status {
    for (const Looked& one : held) WEFT_RETURN_IF_ERROR(services_.WaitFor(one.buffer->ready(), Part::kResults));
    WEFT_ASSIGN_OR_RETURN(const size_t at, FirstHolding(held, options_.first_bad));
    if (at == held.size()) return absl::OkStatus();
    const Buffer& buffer = *held[at].buffer;
    WEFT_ASSIGN_OR_RETURN(const Contents contents, ContentsOf(held[at], options_.first_bad));
    found = absl::StrCat("element ", contents.first, " of result ", held[at].number, " of a launch, ",
                         NameOf(buffer.dtype()), DimsToString(buffer.dims()), ", is ", NameOf(options_.first_bad),
                         " (first_bad)");
    return absl::OkStatus();
  });
  LetGo(held);
  // Every launch's failure is reported elsewhere, this one's too.
  if (!status.ok() || found.empty()) return absl::OkStatus();
  const Looks looks;
  return FirstOf(lock, state, program, arguments, found);
}

absl::Status Inspector::FirstOf(Lock& lock, MeshState& state, const compiler::Program& program,
                                std::span<const Ref<Data>> arguments, const std::string& found) {
  const auto error = [&](std::string_view text) {
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, found, text);
  };
  for (const Ref<Data>& argument : arguments) {
    if (argument->gone())
      return error("; what it was launched on is gone, so that nobody can say which operation made it");
  }
  WEFT_ASSIGN_OR_RETURN(const Ref<const ir::Function> source, state.programs->Source(program));
  std::vector<ir::Value> leaves;
  for (size_t i = 0; i < arguments.size(); ++i) {
    leaves.push_back(Recorder::NewLeaf(source->parameters()[i].type(), arguments[i]));
  }
  const std::vector<ir::Location> positions = state.programs->PositionsOf(program);
  ir::Values results;
  const absl::Status first =
      Run(lock, state, {.function = *source, .arguments = leaves, .place = "", .positions = positions}, &results);
  if (absl::IsFailedPrecondition(first) && first.GetPayload(kPayloadValues).has_value()) return first;
  if (!first.ok()) return error(absl::StrCat("; the search for the operation that made it ended: ", first.message()));
  const std::vector<Looked> looked = weft::lazy::Look(leaves);
  std::string given;
  const absl::Status read = lock.Open([&]() -> absl::Status {
    for (const Looked& leaf : looked) {
      WEFT_ASSIGN_OR_RETURN(const Contents contents, ContentsOf(leaf, options_.first_bad));
      if (contents.bad == 0) continue;
      given = absl::StrCat("; no operation made it: argument ", leaf.number, ", ",
                           ir::ShortType(leaves[leaf.number].type()), ", was launched with ",
                           TextOf(contents, options_.first_bad));
      break;
    }
    return absl::OkStatus();
  });
  LetGo(looked);
  WEFT_RETURN_IF_ERROR(read);
  // Callers often pass infinities on purpose, as literals do.
  if (!given.empty()) return options_.first_bad == Bad::kInf ? absl::OkStatus() : error(given);
  return error("; computed one operation after the other, no operation makes it of good numbers");
}

}  // namespace weft::lazy
