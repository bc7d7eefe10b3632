// Where the values lie that repeats carry from run to run: in one place that each run changes, in several that change places,
// copied only where neither can be.
#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {

// Made in the list and nobody's but its own.
bool Lowering::IsOwn(int list, StorageId s) const {
  const bool alone = storages_[s].place == BufferRef::Place::kArena && storages_[s].shares < 0;
  return alone && s >= own_[list].first && s < own_[list].end;
}

void Lowering::MakeCarried(StorageId s) {
  if (storages_[s].place == BufferRef::Place::kCarried) return;
  storages_[s].place = BufferRef::Place::kCarried;
  storages_[s].index = static_cast<uint32_t>(out_.program.carried.size());
  out_.program.carried.push_back(0);
}

// The values that one repeat carries.
class Lowering::CarryPlanner {
 public:
  CarryPlanner(Lowering& lowering, Draft& repeat)
      : l_(lowering), repeat_(repeat), body_(repeat.lists.back()), end_(static_cast<int>(l_.lists_[body_].size())) {}

  void Run() {
    Uses& uses = UsesOf(body_);
    for (const Carry& carry : repeat_.carries) Touch(uses, l_.Root(carry.next), end_);
    std::vector<Carry> rest;
    for (const Carry& carry : repeat_.carries) {
      const StorageId next = l_.Root(carry.next);
      if (next == carry.now || l_.storages_[carry.now].bytes == 0 || ChangesInPlace(carry.now, next)) continue;
      rest.push_back(carry);
    }
    for (const Carry& carry : rest) Move(carry, rest);
    for (const Carry& carry : rest) {
      if (!sources_.contains(carry.now)) ChangePlaces(carry.now);
    }
    for (const Carry& carry : rest) ChangePlaces(carry.now);  // of those that stand in a circle
    repeat_.written.resize(repeat_.storages.size(), true);
  }

 private:
  // First and last use among a list's entries, of which a control has the uses of its lists.
  struct Span {
    int first = -1, last = -1;
  };
  using Uses = absl::flat_hash_map<StorageId, Span>;

  static void Touch(Uses& uses, StorageId s, int entry) {
    Span& span = uses[s];
    if (span.first < 0) span.first = entry;
    span.last = entry;
  }
  void Collect(int list, int entry, Uses& uses) const {
    const Drafts& drafts = l_.lists_[list];
    for (int e = 0; e < static_cast<int>(drafts.size()); ++e) {
      const int at = entry < 0 ? e : entry;
      for (const StorageId s : drafts[e].storages) Touch(uses, l_.Root(s), at);
      for (const Carry& carry : drafts[e].carries) Touch(uses, l_.Root(carry.now), at);
      for (const int child : drafts[e].lists) Collect(child, at, uses);
    }
  }
  // Returns a list's uses. A storage that has joined another one since is found under its old name, which no search
  // meets any more.
  Uses& UsesOf(int list) {
    const auto [it, fresh] = uses_.try_emplace(list);
    if (fresh) Collect(list, -1, it->second);
    return it->second;
  }

  // Nothing reads `now` once `next` begins to be written, or what writes it may overwrite what it reads.
  bool ChangesInPlace(StorageId now, StorageId next) {
    if (!l_.IsOwn(body_, next) || l_.storages_[next].bytes != l_.storages_[now].bytes) return false;
    std::vector<StorageId> joined;
    if (!FindWay(body_, now, next, &joined)) {
      const Uses& uses = UsesOf(body_);
      const auto read = uses.find(now);
      if (read != uses.end() && read->second.last >= uses.at(next).first) return false;
      joined = {next};
    }
    for (const StorageId s : joined) l_.storages_[s].shares = now;
    return true;
  }

  // Goes from `to` backwards to `from` by entries each of which may overwrite what it is the last to read; adds the
  // storages on the way, `to` among them.
  bool FindWay(int list, StorageId from, StorageId to, std::vector<StorageId>* joined) {
    struct Step {
      StorageId storage;
      int leads_to;
      std::vector<StorageId> within;  // lists of the entry between the two
    };
    const Uses& uses = UsesOf(list);
    std::vector<Step> steps = {{to, -1, {}}};
    absl::flat_hash_set<StorageId> seen = {to};
    for (int at = 0; at < static_cast<int>(steps.size()); ++at) {
      const StorageId written = steps[at].storage;
      const auto span = uses.find(written);
      if (span == uses.end() || span->second.first >= static_cast<int>(l_.lists_[list].size())) continue;
      const int e = span->second.first;
      const Draft& draft = l_.lists_[list][e];
      for (const StorageId read : Candidates(draft, written, from)) {
        const auto before = uses.find(read);
        if (before == uses.end() || before->second.last != e || seen.contains(read)) continue;
        const bool own =
            l_.IsOwn(list, read) && before->second.first < e && l_.storages_[read].bytes == l_.storages_[from].bytes;
        Step step{read, at, {}};
        if ((read != from && !own) || !Overwrites(draft, read, written, &step.within)) continue;
        seen.insert(read);
        steps.push_back(std::move(step));
        if (read != from) continue;
        for (int i = static_cast<int>(steps.size()) - 1; i >= 0; i = steps[i].leads_to) {
          if (steps[i].storage != from) joined->push_back(steps[i].storage);
          joined->insert(joined->end(), steps[i].within.begin(), steps[i].within.end());
        }
        return true;
      }
    }
    return false;
  }

  // Returns the storages that an entry, the first to write `written`, might overwrite with it.
  std::vector<StorageId> Candidates(const Draft& draft, StorageId written, StorageId from) const {
    std::vector<StorageId> found;
    if (draft.entry.type == Entry::Type::kBranch) {
      found.push_back(from);
      for (const int child : draft.lists) {
        for (const Draft& inner : l_.lists_[child]) {
          for (const auto& [in, out] : inner.in_place) {
            const StorageId s = l_.Root(inner.storages[in]);
            if (std::ranges::find(found, s) == found.end()) found.push_back(s);
          }
        }
      }
      return found;
    }
    for (const auto& [in, out] : draft.in_place) {
      if (l_.Root(draft.storages[out]) == written) found.push_back(l_.Root(draft.storages[in]));
    }
    return found;
  }

  // Tells whether the entry is right with `written` in place of `read`, which nothing reads afterwards.
  bool Overwrites(const Draft& draft, StorageId read, StorageId written, std::vector<StorageId>* joined) {
    for (int a = 0; a < static_cast<int>(draft.storages.size()); ++a) {
      if (l_.Root(draft.storages[a]) != read) continue;
      const bool pair = std::ranges::any_of(draft.in_place, [&](const std::pair<int, int>& p) {
        return p.first == a && l_.Root(draft.storages[p.second]) == written;
      });
      if (!pair) return false;
    }
    for (const int child : draft.lists) {
      if (draft.entry.type != Entry::Type::kBranch) return false;
      const Uses& uses = UsesOf(child);
      const auto in = uses.find(read), out = uses.find(written);
      if (out == uses.end()) return false;
      if (in == uses.end() || in->second.last < out->second.first) continue;
      if (!FindWay(child, read, written, joined)) return false;
    }
    return true;
  }

  // The next value's storage becomes the value's, if it is one that may, and is not another's already; otherwise a copy.
  void Move(const Carry& carry, std::span<const Carry> rest) {
    const StorageId next = l_.Root(carry.next);
    const bool wanted = std::ranges::any_of(rest, [&](const Carry& c) { return l_.Root(c.next) == carry.now; });
    const bool another = std::ranges::any_of(rest, [&](const Carry& c) { return c.now == next; });
    const bool pair = l_.storages_[carry.now].place == BufferRef::Place::kCarried;  // Carried made it
    const bool movable = l_.storages_[next].row_of < 0 && (another || pair || l_.IsOwn(body_, next)) &&
                         l_.storages_[next].bytes == l_.storages_[carry.now].bytes && !sources_.contains(next);
    StorageId source = next;
    if (!movable) {
      source = wanted ? l_.Temporary(l_.storages_[carry.now].bytes) : carry.now;
      l_.list_ = body_;
      l_.origins_ = repeat_.entry.origins;
      l_.Copy(l_.storages_[carry.now].bytes, next, source);
      l_.list_ = 0;
    }
    if (source == carry.now) return;
    sources_.insert(source);
    source_of_[carry.now] = source;
  }

  // A value's storage, that which it comes from, that which this comes from and so on: after each run the first changes places
  // with the second, then the second with the third.
  void ChangePlaces(StorageId first) {
    std::vector<StorageId> ring = {first};
    while (true) {
      const auto source = source_of_.find(ring.back());
      if (source == source_of_.end()) break;
      const StorageId next = source->second;
      source_of_.erase(source);
      if (next == first) break;
      repeat_.storages.insert(repeat_.storages.end(), {ring.back(), next});
      ring.push_back(next);
    }
    if (ring.size() == 1) return;
    for (const StorageId s : ring) l_.MakeCarried(s);
    l_.rings_.push_back(std::move(ring));
  }

  Lowering& l_;
  Draft& repeat_;
  const int body_, end_;
  std::map<int, Uses> uses_;
  absl::flat_hash_map<StorageId, StorageId> source_of_;
  absl::flat_hash_set<StorageId> sources_;
};

// Values that a list's last copies would bring out of it are written outside at once.
void Lowering::WriteOutside(int list) {
  Drafts& drafts = lists_[list];
  for (auto draft = drafts.rbegin(); draft != drafts.rend() && draft->copy; ++draft) {
    const StorageId from = draft->storages[0], to = draft->storages[1];
    const bool inside = to >= own_[list].first && to < own_[list].end;
    if (IsOwn(list, from) && !inside && storages_[from].bytes == storages_[to].bytes) storages_[from].shares = to;
  }
}

// Inner repeats first: what they change in place is one storage for those around them.
void Lowering::PlanCarries() {
  for (int l = static_cast<int>(lists_.size()) - 1; l >= 0; --l) {
    for (size_t e = 0; e < lists_[l].size(); ++e) {
      Draft& draft = lists_[l][e];
      if (draft.entry.type == Entry::Type::kBranch) {
        for (const int child : draft.lists) WriteOutside(child);
      }
      if (draft.entry.type != Entry::Type::kRepeat) continue;
      if (draft.lists.size() == 2) WriteOutside(draft.lists[0]);
      CarryPlanner(*this, draft).Run();
    }
  }
}

}  // namespace weft::cpu
