// Lists within lists: repeats and branches as entries whose lists are lowered on their own.
#include <algorithm>
#include <utility>

#include "src/backends/cpu/launch/trips.h"
#include "src/backends/cpu/lower/lowering.h"
#include "src/runtime/status.h"

namespace weft::cpu {

// While a repeat's lists are filled.
class Lowering::ChangingScope {
 public:
  ChangingScope(Lowering& lowering, std::span<const Carry> carries)
      : changing_(lowering.changing_), before_(changing_.size()) {
    for (const Carry& carry : carries) changing_.push_back(carry.now);
  }
  ~ChangingScope() { changing_.resize(before_); }
  ChangingScope(const ChangingScope&) = delete;
  ChangingScope& operator=(const ChangingScope&) = delete;

 private:
  std::vector<StorageId>& changing_;
  const size_t before_;
};

absl::StatusOr<int> Lowering::NewList(Fill fill) {
  const int list = static_cast<int>(lists_.size());
  lists_.emplace_back();
  own_.push_back({static_cast<StorageId>(storages_.size()), 0});
  const int outer = std::exchange(list_, list);
  const std::vector<uint32_t> origins = origins_;
  const absl::Status status = fill();
  list_ = outer;
  origins_ = origins;
  own_[list].end = static_cast<StorageId>(storages_.size());
  WEFT_RETURN_IF_ERROR(status);
  return list;
}

// Nothing in a list writes to what was made outside of it, but for what repeats carry; and what is used inside lives on.
StorageId Lowering::RowOf(StorageId stack, int64_t bytes) {
  const bool outside = list_ != 0 && stack < own_[list_].first;
  if (!outside || std::ranges::find(changing_, stack) != changing_.end()) return -1;
  const StorageId row = Temporary(bytes);
  MakeCarried(row);
  storages_[row].row_of = stack;
  return row;
}

void Lowering::DropLost() {
  if (lost_.empty()) return;
  std::vector<bool> read(storages_.size());
  for (const ir::Value& result : module_.main().results()) read[Of(result)] = true;
  for (const Drafts& list : lists_) {
    for (const Draft& draft : list) {
      for (size_t i = 0; i < draft.storages.size(); ++i) {
        const bool reads = !draft.written[i] || IsControl(draft.entry);
        if (reads && draft.storages[i] >= 0) read[draft.storages[i]] = true;
      }
      for (const Carry& carry : draft.carries) read[carry.now] = read[carry.next] = true;
    }
  }
  const auto lost = [&](StorageId s) { return !read[s] && std::ranges::find(lost_, s) != lost_.end(); };
  for (Drafts& list : lists_) {
    std::erase_if(list, [&](const Draft& draft) {
      if (draft.loop == nullptr || draft.entry.type != Entry::Type::kLoop) return false;
      for (size_t i = 0; i < draft.storages.size(); ++i) {
        if (draft.written[i] && !lost(draft.storages[i])) return false;
      }
      return true;
    });
  }
}

Lowering::Carry Lowering::Carried(int64_t bytes) {
  Carry carry;
  for (StorageId* s : {&carry.now, &carry.next}) {
    *s = Temporary(bytes);
    MakeCarried(*s);
  }
  return carry;
}

void Lowering::AddControl(Draft draft, int64_t trips, std::span<const Carry> carries) {
  draft.carries.assign(carries.begin(), carries.end());
  draft.written.resize(draft.storages.size(), true);
  draft.entry.code = static_cast<uint32_t>(out_.program.controls.size());
  Control& control = out_.program.controls.emplace_back();
  control.lists.assign(draft.lists.begin(), draft.lists.end());
  control.trips = trips;
  Add(std::move(draft));
}

absl::Status Lowering::Repeat(int64_t trips, std::span<const Carry> carries, Fill body) {
  if (trips < 0) return InternalError("a repeat of ", trips, " times");
  Draft draft;
  draft.entry.type = Entry::Type::kRepeat;
  const ChangingScope changing(*this, carries);
  WEFT_ASSIGN_OR_RETURN(const int list, NewList(body));
  draft.lists = {list};
  AddControl(std::move(draft), trips, carries);
  return absl::OkStatus();
}

absl::Status Lowering::RepeatWhile(StorageId flag, std::span<const Carry> carries, Fill condition, Fill body,
                                   bool ends) {
  Draft draft;
  draft.entry.type = Entry::Type::kRepeat;
  const ChangingScope changing(*this, carries);
  WEFT_ASSIGN_OR_RETURN(const int asks, NewList(condition));
  WEFT_ASSIGN_OR_RETURN(const int runs, NewList(body));
  draft.lists = {asks, runs};
  draft.storages = {flag};
  AddControl(std::move(draft), ends ? kEndsByItself : kNobodyKnows, carries);
  return absl::OkStatus();
}

absl::Status Lowering::Branch(StorageId index, int cases, absl::FunctionRef<absl::Status(int)> fill) {
  if (cases < 1) return InternalError("a branch of no case");
  Draft draft;
  draft.entry.type = Entry::Type::kBranch;
  for (int i = 0; i < cases; ++i) {
    WEFT_ASSIGN_OR_RETURN(const int list, NewList([&] { return fill(i); }));
    draft.lists.push_back(list);
  }
  draft.storages = {index};
  draft.written = {false};
  AddControl(std::move(draft), -1, {});
  return absl::OkStatus();
}

}  // namespace weft::cpu
