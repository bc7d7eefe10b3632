// Operands of products in repeats that no run changes are packed once, before the repeat.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {
namespace {

// With more rows packing is a small part of the product; what is larger would take too much memory twice.
constexpr int64_t kMostRows = 256;
constexpr int64_t kMostBytes = 32 << 20;

}  // namespace

class Lowering::OperandPacker {
 public:
  explicit OperandPacker(Lowering& lowering) : l_(lowering) {}

  void Run() {
    const auto named = l_.host_of_name_.find("gemm");
    if (named == l_.host_of_name_.end() || l_.lists_.size() == 1) return;
    const uint32_t gemm = named->second;
    l_.FindParents();
    const int lists = static_cast<int>(l_.lists_.size());
    made_.resize(static_cast<size_t>(lists));
    for (int l = 1; l < lists; ++l) {
      for (Draft& draft : l_.lists_[l]) {
        if (draft.entry.type == Entry::Type::kHost && draft.entry.code == gemm) Pack(l, draft);
      }
    }
    for (int l = 0; l < lists; ++l) Insert(l);
  }

 private:
  // Before which entry of its list a packed operand is made.
  struct Packed {
    int entry;
    Draft draft;
  };

  void Pack(int list, Draft& product) {
    const StorageId b = product.storages[1];
    const Parent repeat = Outermost(list, b);
    if (repeat.list < 0) return;
    GemmCall call = DecodeGemm(product.entry.params);
    const int64_t bytes = PackedBytesOfB(l_.target_, call);
    if (bytes == 0 || bytes > kMostBytes || call.m > kMostRows) return;
    product.storages[1] = PackedBefore(repeat, b, call, bytes, product.entry.origins);
    call.b_packed = true;
    product.entry.params = EncodeGemm(call);
  }

  StorageId PackedBefore(const Parent& repeat, StorageId b, const GemmCall& call, int64_t bytes,
                         const std::vector<uint32_t>& origins) {
    const std::vector<int64_t> params = EncodeGemm(call);
    std::vector<Packed>& made = made_[static_cast<size_t>(repeat.list)];
    for (const Packed& other : made) {
      if (other.entry == repeat.entry && other.draft.storages[0] == b && other.draft.entry.params == params) {
        return other.draft.storages[1];
      }
    }
    const StorageId packed = l_.Temporary(bytes);
    l_.origins_ = origins;
    l_.Host("pack_b", {b}, {packed}, params, static_cast<double>(bytes) * 60);
    made.push_back({repeat.entry, std::move(l_.lists_[0].back())});
    l_.lists_[0].pop_back();
    return packed;
  }

  // The repeat furthest out that holds the list and leaves the storage alone; none.
  Parent Outermost(int list, StorageId s) {
    Parent found;
    for (Parent at = l_.parents_[list]; at.list >= 0; at = l_.parents_[at.list]) {
      const Draft& control = l_.lists_[at.list][at.entry];
      if (control.entry.type != Entry::Type::kRepeat) continue;
      if (WrittenBy(control).contains(s)) break;
      found = at;
    }
    return found;
  }

  // Returns the storages that a control writes in any of its runs. Its carried values count, too: one may be written
  // somewhere else and take the place then.
  using Storages = absl::flat_hash_set<StorageId>;
  const Storages& WrittenBy(const Draft& control) {
    Storages& written = written_[control.entry.code];
    if (written.empty()) Collect(control, written);
    return written;
  }
  void Collect(const Draft& control, Storages& written) const {
    for (const Carry& carry : control.carries) written.insert({carry.now, carry.next});
    written.insert(-1);  // collected
    for (const int list : control.lists) {
      for (const Draft& draft : l_.lists_[list]) {
        for (size_t i = 0; i < draft.storages.size(); ++i) {
          if (draft.written[i]) written.insert(draft.storages[i]);
        }
        if (IsControl(draft.entry)) Collect(draft, written);
      }
    }
  }

  void Insert(int list) {
    std::vector<Packed>& made = made_[static_cast<size_t>(list)];
    if (made.empty()) return;
    std::ranges::stable_sort(made, {}, &Packed::entry);
    Drafts drafts;
    size_t next = 0;
    for (int e = 0; e < static_cast<int>(l_.lists_[list].size()); ++e) {
      for (; next < made.size() && made[next].entry == e; ++next) drafts.push_back(std::move(made[next].draft));
      drafts.push_back(std::move(l_.lists_[list][e]));
    }
    l_.lists_[list] = std::move(drafts);
  }

  Lowering& l_;
  std::vector<std::vector<Packed>> made_;            // by list
  absl::flat_hash_map<uint32_t, Storages> written_;  // by control
};

// In loops alone both factors are packed by now, or read where they lie.
void Lowering::JoinProducts(Drafts& drafts) {
  const auto gemm = host_of_name_.find("gemm");
  if (drafts.size() < 2 || gemm == host_of_name_.end()) return;
  Draft &first = drafts[drafts.size() - 2], &second = drafts.back();
  for (const Draft* draft : {&first, &second}) {
    if (draft->entry.type != Entry::Type::kHost || draft->entry.code != gemm->second) return;
    const GemmCall call = DecodeGemm(draft->entry.params);
    if (!call.b_packed && PackedBytesOfB(target_, call) > 0) return;
  }
  if (first.product >= 0 || first.rows != second.rows || first.columns != second.columns) return;
  const StorageId made = first.storages[2];
  if (std::ranges::find(second.storages.begin(), second.storages.begin() + 3, made) != second.storages.begin() + 3 ||
      std::ranges::find(second.storages, made) == second.storages.end()) {
    return;
  }
  const auto put_first = [](auto& into, const auto& from) { into.insert(into.begin(), from.begin(), from.end()); };
  const int shift = static_cast<int>(first.storages.size());
  for (auto& [in, out] : second.in_place) {
    in += shift;
    out += shift;
  }
  second.product += shift;
  put_first(second.storages, first.storages);
  put_first(second.written, first.written);
  put_first(second.entry.params, first.entry.params);
  second.entry.code = HostKernelOf("gemm_pair");
  second.entry.cost = CostOf(static_cast<double>(first.entry.cost) + static_cast<double>(second.entry.cost));
  second.entry.writes += first.entry.writes;
  AddOrigins(second.entry, first.entry);
  second.entry.origins = std::move(first.entry.origins);
  drafts.erase(drafts.end() - 2);
}

void Lowering::PackOutside() { OperandPacker(*this).Run(); }

}  // namespace weft::cpu
