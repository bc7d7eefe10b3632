// Scatters of rows. Gradients of rows of a parameter that a step of gradient descent subtracts: rows that nothing names stay where they
// are. And rows that a gather takes for a scatter alone: they are added from where they lie.
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "src/backends/cpu/launch/box_rows.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {
namespace {

// Tells whether a loop stores zeros alone.
bool GivesZeros(const LoopKernel& kernel) {
  if (kernel.stores.size() != 1) return false;
  const Expr& value = kernel.exprs[kernel.stores[0].expr];
  return value.kind == ExprKind::kConstant && value.number == 0 && !std::signbit(value.number) && value.integer == 0;
}

// The buffers of a loop that computes p - rate * g, element by element.
struct StepBuffers {
  uint32_t p = 0, g = 0, rate = 0, after = 0;
};
std::optional<StepBuffers> StepOf(const LoopKernel& kernel, int64_t elements, uint32_t g) {
  if (kernel.reduces() || kernel.ParallelCount() != elements || kernel.dims.size() != 1 || kernel.loads.size() != 3 ||
      kernel.stores.size() != 1 || kernel.exprs.size() != 5) {
    return std::nullopt;
  }
  const Access& to = kernel.stores[0].access;
  const Expr& difference = kernel.exprs[kernel.stores[0].expr];
  const auto is = [&](const Expr& e, ir::ScalarOp op) { return e.kind == ExprKind::kBinary && e.op == op; };
  const auto loads = [&](uint32_t expr, int64_t stride) -> const Access* {
    const Expr& e = kernel.exprs[expr];
    if (e.kind != ExprKind::kLoad) return nullptr;
    const Access& a = kernel.loads[e.index];
    return a.offset == 0 && a.strides[0] == stride && a.dtype == to.dtype ? &a : nullptr;
  };
  if (to.offset != 0 || to.strides[0] != 1 || !is(difference, ir::ScalarOp::kSub)) return std::nullopt;
  const Expr& product = kernel.exprs[difference.args[1]];
  if (!is(product, ir::ScalarOp::kMul)) return std::nullopt;
  const Access* const p = loads(difference.args[0], 1);
  for (int k = 0; k < 2; ++k) {
    const Access *const term = loads(product.args[k], 1), *const rate = loads(product.args[1 - k], 0);
    if (p != nullptr && term != nullptr && rate != nullptr && term->buffer == g && p->buffer != g)
      return StepBuffers{p->buffer, g, rate->buffer, to.buffer};
  }
  return std::nullopt;
}

}  // namespace

class Lowering::RowJoiner {
 public:
  explicit RowJoiner(Lowering& lowering) : l_(lowering), uses_(lowering.CountUses()) {}

  // Scatters to zeros: these are written where the result lies, or, where a step alone reads the result, nowhere.
  void StepRows() {
    Drafts drafts = std::move(l_.lists_[0]);
    l_.lists_[0].clear();
    absl::flat_hash_map<size_t, Step> steps;          // by loop
    absl::flat_hash_map<size_t, SharedKernel> fills;  // by copy of zeros
    std::vector<bool> gone(drafts.size(), false);
    for (size_t e = 0; e < drafts.size(); ++e) {
      const std::optional<Zeros> zeros = FindZeros(drafts, e);
      if (!zeros) continue;
      std::optional<Step> step = FindStep(drafts, e);
      const bool steps_rows = step && !steps.contains(step->loop);
      gone[zeros->copy] = true;
      l_.Lose(drafts[zeros->copy].storages[0]);
      if (steps_rows) {
        gone[e] = gone[step->loop] = true;
        steps.emplace(step->loop, *std::move(step));
      } else {
        fills.emplace(zeros->copy, drafts[zeros->fill].loop);
      }
    }
    for (size_t e = 0; e < drafts.size(); ++e) {
      if (const auto at = steps.find(e); at != steps.end()) AddStep(drafts, at->second);
      if (const auto at = fills.find(e); at != fills.end()) {
        l_.origins_ = drafts[e].entry.origins;
        l_.Loop(at->second, {drafts[e].storages[1]});
      }
      if (!gone[e]) l_.lists_[0].push_back(std::move(drafts[e]));
    }
    if (!steps.empty() || !fills.empty()) l_.DropLost();
  }

  void JoinGathers() {
    Drafts drafts = std::move(l_.lists_[0]);
    l_.lists_[0].clear();
    absl::flat_hash_map<size_t, size_t> joined;  // gather by scatter
    std::vector<bool> gone(drafts.size(), false);
    for (size_t e = 0; e < drafts.size(); ++e) {
      const std::optional<size_t> gather = FindGather(drafts, e);
      if (!gather) continue;
      gone[*gather] = gone[e] = true;
      joined.emplace(e, *gather);
    }
    for (size_t e = 0; e < drafts.size(); ++e) {
      if (const auto at = joined.find(e); at != joined.end()) AddScatterGathered(drafts[at->second], drafts[e]);
      if (!gone[e]) l_.lists_[0].push_back(std::move(drafts[e]));
    }
  }

 private:
  // A scatter to zeros whose result is read by a step alone, at `loop`.
  struct Step {
    size_t scatter = 0, loop = 0;
    BoxCall call;
    int64_t space = 0;
    StorageId before = -1, rate = -1, after = -1;
  };
  struct Zeros {
    size_t fill = 0, copy = 0;
  };

  bool IsHost(const Draft& draft, std::string_view name) const {
    const auto named = l_.host_of_name_.find(name);
    return draft.entry.type == Entry::Type::kHost && named != l_.host_of_name_.end() &&
           draft.entry.code == named->second;
  }
  // The position of the one entry before `end` that writes a storage.
  static std::optional<size_t> WriterOf(const Drafts& drafts, size_t end, StorageId s) {
    std::optional<size_t> found;
    for (size_t e = 0; e < end; ++e) {
      for (size_t i = 0; i < drafts[e].storages.size(); ++i) {
        if (drafts[e].storages[i] != s || !drafts[e].written[i]) continue;
        if (found) return std::nullopt;
        found = e;
      }
    }
    return found;
  }

  // Finds where what a scatter changes is filled with zeros, and copied.
  std::optional<Zeros> FindZeros(const Drafts& drafts, size_t e) const {
    if (!IsHost(drafts[e], "scatter") && !IsHost(drafts[e], "scatter_rows")) return std::nullopt;
    const bool has_space = IsHost(drafts[e], "scatter_rows") || HasSpace(DecodeBoxes(drafts[e].entry.params));
    const size_t result = drafts[e].storages.size() - 1 - has_space;
    const std::optional<size_t> copy = WriterOf(drafts, e, drafts[e].storages[result]);
    if (!copy || !drafts[*copy].copy) return std::nullopt;
    const std::optional<size_t> fill = WriterOf(drafts, *copy, drafts[*copy].storages[0]);
    if (!fill || drafts[*fill].entry.type != Entry::Type::kLoop || drafts[*fill].storages.size() != 1 ||
        !GivesZeros(*drafts[*fill].loop))
      return std::nullopt;
    return Zeros{*fill, *copy};
  }

  std::optional<Step> FindStep(const Drafts& drafts, size_t e) const {
    const Draft& scatter = drafts[e];
    Step step;
    step.scatter = e;
    step.call = DecodeBoxes(scatter.entry.params);
    const bool floats = step.call.dtype == DType::kF32 || step.call.dtype == DType::kF64;
    if (!floats || step.call.reducer != 0 || step.call.move_inside) return std::nullopt;
    const std::optional<BoxRows> rows = RowsOf(step.call, false);
    const std::optional<RowSort> sort = rows ? SortOf(*rows) : std::nullopt;
    const StorageId made = scatter.storages[2];
    if (!sort || rows->pieces != 1 || rows->boxes > sort->places.rows || uses_.at(made) != 3) return std::nullopt;
    step.space = sort->space_bytes();
    return FindLoop(drafts, step, made) ? std::optional(std::move(step)) : std::nullopt;
  }

  // Finds the step itself, between which and the scatter nothing changes what is scattered.
  bool FindLoop(const Drafts& drafts, Step& step, StorageId made) const {
    const Draft& scatter = drafts[step.scatter];
    const int64_t elements = l_.storages_[made].bytes / BytesOf(step.call.dtype);
    for (size_t u = step.scatter + 1; u < drafts.size(); ++u) {
      const Draft& draft = drafts[u];
      if (IsControl(draft.entry)) return false;
      const auto read = std::ranges::find(draft.storages, made);
      if (read != draft.storages.end()) {
        if (draft.loop == nullptr || draft.entry.type != Entry::Type::kLoop) return false;
        const auto buffers = StepOf(*draft.loop, elements, static_cast<uint32_t>(read - draft.storages.begin()));
        if (!buffers) return false;
        step.loop = u;
        step.before = draft.storages[buffers->p];
        step.rate = draft.storages[buffers->rate];
        step.after = draft.storages[buffers->after];
        return true;
      }
      for (size_t i = 0; i < draft.storages.size(); ++i) {
        if (draft.written[i] && (draft.storages[i] == scatter.storages[0] || draft.storages[i] == scatter.storages[1]))
          return false;
      }
    }
    return false;
  }

  void AddStep(const Drafts& drafts, const Step& step) {
    const Draft &scatter = drafts[step.scatter], &loop = drafts[step.loop];
    l_.origins_ = loop.entry.origins;
    BoxCall call = step.call;
    if (call.lost != BoxCall::kForgotten) call.lost = BoxCall::kApart;
    const StorageId space = l_.Temporary(step.space);
    l_.Copy(l_.storages_[step.after].bytes, step.before, step.after);
    Entry& entry = l_.Host("step_rows", {scatter.storages[0], scatter.storages[1], step.rate}, {step.after, space},
                           EncodeBoxes(call), static_cast<double>(scatter.entry.cost));
    entry.writes = scatter.entry.writes;
    AddOrigins(scatter.entry, entry);
  }

  // The position of the gather whose rows a scatter adds, if nobody else reads them and nothing changes what it reads.
  std::optional<size_t> FindGather(const Drafts& drafts, size_t e) const {
    const Draft& scatter = drafts[e];
    if (!IsHost(scatter, "scatter_rows") || uses_.at(scatter.storages[0]) != 2) return std::nullopt;
    const std::optional<size_t> found = WriterOf(drafts, e, scatter.storages[0]);
    if (!found || !IsHost(drafts[*found], "gather") || drafts[*found].storages.size() != 3) return std::nullopt;
    const BoxCall to = DecodeBoxes(scatter.entry.params), from = DecodeBoxes(drafts[*found].entry.params);
    const std::optional<BoxRows> rows = RowsOf(to, false), source = RowsOf(from, true);
    const bool alike = rows && source && to.dtype == from.dtype && rows->pieces == 1 && source->pieces == 1 &&
                       rows->run == source->run && rows->boxes == source->boxes && rows->step == source->step;
    if (!alike || source->PlacesOf().rows > INT32_MAX) return std::nullopt;
    for (size_t u = *found + 1; u < e; ++u) {
      if (IsControl(drafts[u].entry)) return std::nullopt;
      for (size_t i = 0; i < drafts[u].storages.size(); ++i) {
        const StorageId s = drafts[u].storages[i];
        if (drafts[u].written[i] && (s == drafts[*found].storages[0] || s == drafts[*found].storages[1]))
          return std::nullopt;
      }
    }
    return found;
  }

  void AddScatterGathered(const Draft& gather, const Draft& scatter) {
    l_.origins_ = scatter.entry.origins;
    std::vector<int64_t> params = {static_cast<int64_t>(scatter.entry.params.size())};
    params.insert(params.end(), scatter.entry.params.begin(), scatter.entry.params.end());
    params.insert(params.end(), gather.entry.params.begin(), gather.entry.params.end());
    Entry& entry =
        l_.Host("scatter_gathered", {gather.storages[0], scatter.storages[1], gather.storages[1]},
                {scatter.storages[2], scatter.storages[3]}, std::move(params), static_cast<double>(scatter.entry.cost));
    entry.writes = scatter.entry.writes;
    AddOrigins(gather.entry, entry);
  }

  Lowering& l_;
  const Uses uses_;
};

void Lowering::JoinRows() {
  const bool rows = host_of_name_.contains("scatter_rows");
  if (rows || host_of_name_.contains("scatter")) RowJoiner(*this).StepRows();
  if (rows && host_of_name_.contains("gather")) RowJoiner(*this).JoinGathers();  // counts uses anew
}

}  // namespace weft::cpu
