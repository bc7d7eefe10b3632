// See program.h.
#include "src/backends/cpu/launch/program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/loop/block_loop.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kLimit = int64_t{1} << 46;

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("compiled program is damaged: ", what));
}

int64_t BytesOfSpec(const ValueSpec& spec) { return CountOf(spec.dims) * BytesOf(spec.dtype); }

// Bytes from where a reference points to the end of what it refers to; negative if it points nowhere.
int64_t BytesBehind(const Program& p, const BufferRef& b) {
  if (b.offset < 0) return -1;
  switch (b.place) {
    case BufferRef::Place::kArgument:
      return b.index < p.arguments.size() && b.offset == 0 ? BytesOfSpec(p.arguments[b.index]) : -1;
    case BufferRef::Place::kResult:
      return b.index < p.results.size() && b.offset == 0 ? BytesOfSpec(p.results[b.index]) : -1;
    case BufferRef::Place::kWords: return int64_t{p.words} * 4 - b.offset;
    case BufferRef::Place::kArena: return p.arena_bytes - b.offset;
    case BufferRef::Place::kConstant: return static_cast<int64_t>(p.constants.size()) - b.offset;
    case BufferRef::Place::kCarried:
      return b.index < p.carried.size() && b.offset == 0 ? p.arena_bytes - p.carried[b.index] : -1;
  }
  return -1;
}

absl::Status CheckKernel(const Program& p, const Entry& e) {
  const size_t codes = e.type == Entry::Type::kLoop ? p.loops.size() : p.host_kernels.size();
  if (e.code >= codes) return Damaged("an entry without code");
  if (e.tasks < 0 || e.cost < 0 || e.cost > kMostCost || e.scratch_bytes < 0 || e.scratch_bytes > kLimit ||
      e.writes < 0 || e.reads < 0 || e.flops < -1)
    return Damaged("an impossible entry");
  if (e.epilogue >= 0 &&
      (e.type != Entry::Type::kHost || static_cast<size_t>(e.epilogue) >= p.loops.size() ||
       e.epilogue_buffers > e.buffers.size() || e.epilogue_consumes >= static_cast<int64_t>(e.epilogue_buffers) ||
       !IsBlockLoop(e.epilogue_params))) {
    return Damaged("an impossible entry");
  }
  return absl::OkStatus();
}

absl::Status CheckControl(const Program& p, const Entry& e) {
  if (e.code >= p.controls.size()) return Damaged("an entry without lists");
  const Control& control = p.controls[e.code];
  if (e.cost < 0 || e.cost > kMostCost || e.epilogue >= 0) return Damaged("an impossible entry");
  if (e.type == Entry::Type::kBranch) {
    if (control.lists.empty() || e.buffers.size() != 1 || BytesBehind(p, e.buffers[0]) < 4)
      return Damaged("an impossible branch");
    return absl::OkStatus();
  }
  const size_t conditions = control.trips < 0 ? 1 : 0;
  if (control.lists.size() != 1 + conditions || e.buffers.size() % 2 != conditions ||
      (conditions == 1 && BytesBehind(p, e.buffers[0]) < 1)) {
    return Damaged("an impossible repeat");
  }
  for (size_t b = conditions; b < e.buffers.size(); ++b) {
    if (e.buffers[b].place != BufferRef::Place::kCarried) return Damaged("a repeat of what is not carried");
  }
  return absl::OkStatus();
}

// Every list but the first in one control, every control in one entry, parents first, not too deep.
absl::Status CheckTree(const Program& p) {
  if (p.lists.empty()) return Damaged("no list of entries");
  std::vector<int> depth(p.lists.size(), -1);
  std::vector<bool> used(p.controls.size(), false);
  depth[0] = 0;
  for (size_t l = 0; l < p.lists.size(); ++l) {
    if (depth[l] < 0) return Damaged("a list that nothing runs");
    if (depth[l] > kMostNesting) return Damaged("lists in too many lists");
    for (const Entry& e : p.lists[l]) {
      if (!IsControl(e)) continue;
      if (used[e.code]) return Damaged("two entries with the same lists");
      used[e.code] = true;
      for (const uint32_t child : p.controls[e.code].lists) {
        if (child <= l || child >= p.lists.size() || depth[child] >= 0) return Damaged("lists that are no tree");
        depth[child] = depth[l] + 1;
      }
    }
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) return Damaged("lists without an entry");
  return absl::OkStatus();
}

// Tells whether nobody knows how long the entry takes, whatever its cost says.
bool MayNeverEnd(const Program& p, const Entry& e) {
  if (!IsControl(e)) return e.type == Entry::Type::kHost && p.host_kernels[e.code].starts_with("custom:");
  const Control& control = p.controls[e.code];
  if (e.type == Entry::Type::kRepeat && control.trips < 0) return true;
  return std::ranges::any_of(control.lists, [&](uint32_t list) {
    return std::ranges::any_of(p.lists[list], [&](const Entry& inner) { return MayNeverEnd(p, inner); });
  });
}

// The lists are a tree.
absl::Status CheckDonations(const Program& p) {
  const std::vector<size_t> first_uses = FirstUses(p);
  const EntryList& whole = p.lists[0];
  for (size_t r = 0; r < p.donor.size(); ++r) {
    if (p.donor[r] < 0) continue;
    const auto from = whole.begin() + static_cast<ptrdiff_t>(first_uses[r]);
    if (CostFrom(whole, first_uses[r]) > kMostToTheEnd ||
        std::any_of(from, whole.end(), [&](const Entry& e) { return MayNeverEnd(p, e); })) {
      return Damaged("a donation to what may never end");
    }
  }
  return absl::OkStatus();
}

class Printer {
 public:
  explicit Printer(const Program& program) : p_(program) {}
  std::string Take() {
    List(0, 0);
    return std::move(text_);
  }

 private:
  void List(uint32_t list, int depth) {
    for (const Entry& e : p_.lists[list]) {
      text_.append(2 * depth, ' ');
      Line(e);
      if (!IsControl(e)) continue;
      const Control& control = p_.controls[e.code];
      for (size_t i = 0; i < control.lists.size(); ++i) {
        const bool named = e.type == Entry::Type::kBranch || control.trips < 0;
        if (named) text_.append(2 * depth, ' ');
        if (e.type == Entry::Type::kBranch) {
          absl::StrAppend(&text_, "case ", i, ":\n");
        } else if (named) {
          absl::StrAppend(&text_, i == 0 ? "while:\n" : "do:\n");
        }
        List(control.lists[i], depth + 1);
      }
    }
  }
  void Line(const Entry& e) {
    switch (e.type) {
      case Entry::Type::kLoop: absl::StrAppend(&text_, "loop ", e.code, " tasks ", e.tasks, ":"); break;
      case Entry::Type::kHost:
        absl::StrAppend(&text_, p_.host_kernels[e.code], e.epilogue < 0 ? "" : absl::StrCat(" then loop ", e.epilogue),
                        ":");
        break;
      case Entry::Type::kRepeat:
        absl::StrAppend(&text_, "repeat");
        if (p_.controls[e.code].trips >= 0) absl::StrAppend(&text_, " ", p_.controls[e.code].trips, " times");
        absl::StrAppend(&text_, ":");
        break;
      case Entry::Type::kBranch: absl::StrAppend(&text_, "branch:"); break;
    }
    for (const BufferRef& b : e.buffers) Buffer(b);
    for (size_t i = 0; i < e.origins.size(); ++i) {
      const Origin& origin = p_.origins[e.origins[i]];
      absl::StrAppend(&text_, i == 0 ? "; " : ", ", origin.op);
      if (!origin.where.empty()) absl::StrAppend(&text_, " (", origin.where, ")");
    }
    absl::StrAppend(&text_, "\n");
  }
  void Buffer(const BufferRef& b) {
    static constexpr std::string_view kNames[] = {" a", " w", " r", " m", " c", " v"};
    const bool indexed = b.place == BufferRef::Place::kArgument || b.place == BufferRef::Place::kResult ||
                         b.place == BufferRef::Place::kCarried;
    absl::StrAppend(&text_, kNames[static_cast<size_t>(b.place)], indexed ? b.index : b.offset);
  }

  const Program& p_;
  std::string text_;
};

}  // namespace

int64_t CostOf(double picoseconds) {
  return picoseconds < static_cast<double>(kMostCost) ? static_cast<int64_t>(picoseconds) : kMostCost;
}

int64_t CostOfRepeat(int64_t trips, int64_t body) {
  return trips < 0 ? kMostCost : CostOf(static_cast<double>(trips) * static_cast<double>(body));
}

int64_t CostFrom(const EntryList& list, size_t first) {
  double cost = 0;
  for (size_t i = first; i < list.size(); ++i) cost += static_cast<double>(list[i].cost);
  return CostOf(cost);
}

int64_t TotalCost(const EntryList& list) { return CostFrom(list, 0); }

std::vector<size_t> FirstUses(const Program& program) {
  const EntryList& whole = program.lists[0];
  std::vector<size_t> first(program.results.size(), whole.size());
  // An entry's own lists stand behind the list that it is in.
  std::vector<size_t> within(program.lists.size());
  for (size_t l = 0; l < program.lists.size(); ++l) {
    for (size_t i = 0; i < program.lists[l].size(); ++i) {
      const Entry& entry = program.lists[l][i];
      const size_t at = l == 0 ? i : within[l];
      for (const BufferRef& ref : entry.buffers) {
        if (ref.place == BufferRef::Place::kResult) first[ref.index] = std::min(first[ref.index], at);
      }
      if (!IsControl(entry)) continue;
      for (const uint32_t list : program.controls[entry.code].lists) within[list] = at;
    }
  }
  return first;
}

int64_t BytesOfProgram(const Program& program) {
  constexpr size_t kRest = 4 << 10;  // of the executable, the vectors of types and names
  size_t bytes = kRest + program.constants.size();
  for (const EntryList& list : program.lists) {
    bytes += list.size() * sizeof(Entry);
    for (const Entry& e : list) {
      bytes += e.buffers.size() * sizeof(BufferRef) + e.origins.size() * sizeof(uint32_t) +
               (e.params.size() + e.epilogue_params.size()) * sizeof(int64_t);
    }
  }
  for (const std::string& loop : program.loops)
    bytes += 2 * (loop.size() + sizeof(loop));  // the cache of code has it, too
  return static_cast<int64_t>(bytes);
}

void ForEachKernel(const Program& program, absl::FunctionRef<void(const Entry&)> visit) {
  for (const EntryList& list : program.lists) {
    for (const Entry& entry : list) {
      if (!IsControl(entry)) visit(entry);
    }
  }
}

absl::StatusOr<Program> ParseProgram(std::string_view bytes) {
  WEFT_ASSIGN_OR_RETURN(Program program, DecodeProgram(bytes));
  WEFT_RETURN_IF_ERROR(CheckProgram(program));
  return program;
}

absl::Status CheckProgram(const Program& p) {
  for (const auto* specs : {&p.arguments, &p.results}) {
    for (const ValueSpec& spec : *specs) {
      if (!IsComputable(spec.dtype)) return Damaged("an unknown element type");
      const std::optional<int64_t> count = CheckedCount(spec.dims);
      if (!count || *count > kLimit) return Damaged("an impossible shape");
    }
  }
  if (p.donor.size() != p.results.size()) return Damaged("donations do not match the results");
  for (size_t r = 0; r < p.donor.size(); ++r) {
    const int32_t d = p.donor[r];
    if (d < -1 || d >= static_cast<int32_t>(p.arguments.size())) return Damaged("a donation of no argument");
    if (d >= 0 && BytesOfSpec(p.arguments[d]) != BytesOfSpec(p.results[r]))
      return Damaged("a donation of another size");
  }
  if (p.arena_bytes < 0 || p.arena_bytes > kLimit) return Damaged("an impossible arena");
  for (const int64_t offset : p.carried) {
    if (offset < 0 || offset > p.arena_bytes) return Damaged("a carried value outside the arena");
  }
  for (const EntryList& list : p.lists) {
    for (const Entry& e : list) {
      if (e.type > Entry::Type::kBranch) return Damaged("an unknown kind of entry");
      for (const BufferRef& b : e.buffers) {
        if (BytesBehind(p, b) < 0) return Damaged("an entry refers to memory outside the plan");
      }
      for (const uint32_t origin : e.origins) {
        if (origin >= p.origins.size()) return Damaged("an entry from nowhere");
      }
      WEFT_RETURN_IF_ERROR(IsControl(e) ? CheckControl(p, e) : CheckKernel(p, e));
    }
  }
  WEFT_RETURN_IF_ERROR(CheckTree(p));
  WEFT_RETURN_IF_ERROR(CheckDonations(p));
  for (const auto& object : p.objects) {
    if (object->keys.size() != object->symbols.size()) return Damaged("machine code without names");
  }
  return absl::OkStatus();
}

std::string ToString(const Program& program) { return Printer(program).Take(); }

}  // namespace weft::cpu
