// Where values lie: lifetimes over the tree of lists, what may take another's memory over, offsets in the arena.
#include <algorithm>

#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {

void Lowering::FindParents() {
  parents_.assign(lists_.size(), Parent{});
  for (int l = 0; l < static_cast<int>(lists_.size()); ++l) {
    for (int e = 0; e < static_cast<int>(lists_[l].size()); ++e) {
      for (const int child : lists_[l][e].lists) parents_[child] = {l, e};
    }
  }
}

// Children stand behind their parents.
void Lowering::PlanCosts() {
  for (int l = static_cast<int>(lists_.size()) - 1; l >= 0; --l) {
    for (Draft& draft : lists_[l]) {
      if (!IsControl(draft.entry)) continue;
      int64_t dearest = 0;
      for (const int child : draft.lists) {
        double cost = 0;
        for (const Draft& inner : lists_[child]) cost += static_cast<double>(inner.entry.cost);
        dearest = std::max(dearest, CostOf(cost));
      }
      const bool branch = draft.entry.type == Entry::Type::kBranch;
      draft.entry.cost = branch ? dearest : CostOfRepeat(out_.program.controls[draft.entry.code].trips, dearest);
    }
  }
}

void Lowering::Use(StorageId storage, int list, int entry) {
  Storage& s = storages_[storage];
  const bool planned = s.place == BufferRef::Place::kArena || s.place == BufferRef::Place::kCarried;
  if (s.list < 0) s.list = planned ? list : 0;
  // Up to the innermost list that holds both; the one that stands further behind cannot be it.
  while (s.list != list) {
    if (s.list < list) {
      entry = parents_[list].entry;
      list = parents_[list].list;
    } else {
      s.first = s.last = parents_[s.list].entry;
      s.list = parents_[s.list].list;
    }
  }
  s.first = s.first < 0 ? entry : std::min(s.first, entry);
  s.last = std::max(s.last, entry);
}

void Lowering::Lifetimes() {
  for (int l = 0; l < static_cast<int>(lists_.size()); ++l) {
    for (int e = 0; e < static_cast<int>(lists_[l].size()); ++e) {
      for (const StorageId s : lists_[l][e].storages) {
        Use(s, l, e);
        if (Root(s) != s) Use(Root(s), l, e);
        for (StorageId of = storages_[s].row_of; of >= 0; of = storages_[Root(of)].row_of) Use(Root(of), l, e);
      }
      for (const Carry& carry : lists_[l][e].carries) Use(Root(carry.now), l, e);
    }
  }
  // Storages that change places live together: any of them may hold a value as long as one is used.
  for (const std::vector<StorageId>& ring : rings_) {
    for (const StorageId s : ring) {
      const Storage used = storages_[s];
      for (const int e : {used.first, used.last}) Use(ring[0], used.list, e);
    }
    const Storage all = storages_[ring[0]];
    for (const StorageId s : ring) {
      for (const int e : {all.first, all.last}) Use(s, all.list, e);
    }
  }
  for (int l = 0; l < static_cast<int>(lists_.size()); ++l) {
    for (Draft& draft : lists_[l]) ConsumeProduct(l, draft);
  }
}

// The product's result where nothing but its own epilogue reads it.
void Lowering::ConsumeProduct(int list, Draft& draft) {
  if (draft.product < 0 || draft.parts > 1) return;
  const Storage& product = storages_[Root(draft.storages[draft.product])];
  if (product.place != BufferRef::Place::kArena || product.list != list || product.first != product.last) return;
  const auto buffers = draft.storages.end() - draft.entry.epilogue_buffers;
  draft.entry.epilogue_consumes =
      static_cast<int32_t>(std::find(buffers, draft.storages.end(), draft.storages[draft.product]) - buffers);
}

// A result may lie in a donated argument's memory if the argument is not read after the result begins to be written,
// and where one kernel does both, element by element.
void Lowering::AssignDonors() {
  Program& program = out_.program;
  program.donor.assign(program.results.size(), -1);
  const ir::Function& main = module_.main();
  std::vector<StorageId> result_storage(program.results.size(), -1);
  for (StorageId s = 0; s < static_cast<StorageId>(storages_.size()); ++s) {
    if (storages_[s].place == BufferRef::Place::kResult) result_storage[storages_[s].index] = s;
  }
  for (size_t i = 0; i < main.parameters().size(); ++i) {
    const int32_t r = main.parameter_infos()[i].donated_to;
    if (r < 0 || static_cast<size_t>(r) >= program.results.size()) continue;
    const StorageId from = Of(main.parameters()[i]);
    const StorageId to = result_storage[r];
    if (to < 0 || storages_[from].place != BufferRef::Place::kArgument || storages_[from].bytes != storages_[to].bytes)
      continue;
    const int written = storages_[to].first;
    if (written < 0 || storages_[from].last > written) continue;
    if (storages_[from].last == written) {
      const Draft& draft = lists_[0][written];
      bool safe = !IsControl(draft.entry);
      for (size_t a = 0; a < draft.storages.size(); ++a) {
        if (draft.storages[a] != from) continue;
        bool pair = false;
        for (const auto& [in, out] : draft.in_place) {
          pair = pair || (in == static_cast<int>(a) && draft.storages[out] == to);
        }
        safe = safe && pair;
      }
      if (!safe) continue;
    }
    program.donor[r] = static_cast<int32_t>(storages_[from].index);
  }
}

// Takes back what is written long before the end: the launch may be stopped, or fail, as long as its arguments are whole.
void Lowering::DropEarlyDonors() {
  const std::vector<size_t> first = FirstUses(out_.program);
  for (size_t r = 0; r < first.size(); ++r) {
    if (CostFrom(out_.program.lists[0], first[r]) > kMostToTheEnd) out_.program.donor[r] = -1;
  }
}

void Lowering::ShareInPlace(int list) {
  const Drafts& drafts = lists_[list];
  for (size_t e = 0; e < drafts.size(); ++e) {
    const Draft& draft = drafts[e];
    std::vector<StorageId> taken;
    for (const auto& [in, out] : draft.in_place) {
      const StorageId from = Root(draft.storages[in]);
      const StorageId to = draft.storages[out];
      Storage& to_storage = storages_[to];
      if (to_storage.place != BufferRef::Place::kArena || to_storage.shares >= 0 || to_storage.list != list ||
          to_storage.first != static_cast<int>(e))
        continue;
      const Storage& from_storage = storages_[from];
      if (from == to || from_storage.place != BufferRef::Place::kArena || from_storage.list != list ||
          from_storage.bytes != to_storage.bytes)
        continue;
      // A product's own epilogue may overwrite the product's result, block by block.
      const bool own = draft.product >= 0 && Root(draft.storages[draft.product]) == from;
      if (from_storage.last != static_cast<int>(e) || (from_storage.first >= static_cast<int>(e) && !own)) continue;
      if (std::find(taken.begin(), taken.end(), from) != taken.end()) continue;
      // Every appearance of the operand in this entry must be the safe one.
      bool alone = true;
      for (size_t a = 0; a < draft.storages.size(); ++a) {
        alone = alone && (static_cast<int>(a) == in || (own && static_cast<int>(a) == draft.product) ||
                          Root(draft.storages[a]) != from);
      }
      if (!alone) continue;
      taken.push_back(from);
      to_storage.shares = from;
      storages_[from].last = std::max(storages_[from].last, to_storage.last);
    }
  }
}

// Each list has an arena of its own, which is one block of its parent's for as long as the control runs; the lists of one
// control never run at once and share theirs. Children stand behind their parents.
void Lowering::AssignOffsets() {
  const int count = static_cast<int>(lists_.size());
  std::vector<std::vector<StorageId>> ids(count);
  for (StorageId s = 0; s < static_cast<StorageId>(storages_.size()); ++s) {
    const Storage& storage = storages_[s];
    const bool planned = storage.place == BufferRef::Place::kArena || storage.place == BufferRef::Place::kCarried;
    const bool alone = storage.shares < 0 && storage.row_of < 0;
    if (planned && alone && storage.first >= 0) ids[storage.list].push_back(s);
  }
  std::vector<int64_t> bytes(count), base(count);
  const auto block_bytes = [&](const Draft& control) {
    int64_t most = 0;
    for (const int child : control.lists) most = std::max(most, bytes[child]);
    return most;
  };
  std::vector<std::vector<Lifetime>> plans(count);
  for (int l = count - 1; l >= 0; --l) {
    for (const StorageId s : ids[l]) plans[l].push_back({storages_[s].bytes, storages_[s].first, storages_[s].last, 0});
    for (int e = 0; e < static_cast<int>(lists_[l].size()); ++e) {
      if (const int64_t block = block_bytes(lists_[l][e]); block > 0) plans[l].push_back({block, e, e, 0});
    }
    bytes[l] = PlanArena(plans[l]);
  }
  for (int l = 0; l < count; ++l) {
    size_t at = 0;
    for (const StorageId s : ids[l]) storages_[s].offset = base[l] + plans[l][at++].offset;
    for (const Draft& draft : lists_[l]) {
      if (block_bytes(draft) == 0) continue;
      for (const int child : draft.lists) base[child] = base[l] + plans[l][at].offset;
      ++at;
    }
  }
  for (const Storage& storage : storages_) {
    if (storage.place == BufferRef::Place::kCarried) out_.program.carried[storage.index] = storage.offset;
  }
  out_.program.arena_bytes = bytes[0];
}

}  // namespace weft::cpu
