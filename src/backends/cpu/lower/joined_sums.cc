// Gradients of weights in loops: a product of few steps, added to what a loop carries.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/lower/lowering.h"

namespace weft::cpu {
namespace {

// Tells whether a loop only adds two storages of so many elements, element by element.
bool Adds(const LoopKernel& kernel, int64_t elements) {
  if (kernel.reduces() || kernel.ParallelCount() != elements || kernel.dims.size() != 1 || kernel.buffers != 3 ||
      kernel.loads.size() != 2 || kernel.stores.size() != 1 || kernel.exprs.size() != 3) {
    return false;
  }
  const Access& to = kernel.stores[0].access;
  const auto whole = [&](const Access& a) { return a.offset == 0 && a.strides[0] == 1 && a.dtype == to.dtype; };
  const Expr& sum = kernel.exprs[kernel.stores[0].expr];
  return sum.kind == ExprKind::kBinary && sum.op == ir::ScalarOp::kAdd && sum.args[0] != sum.args[1] && whole(to) &&
         whole(kernel.loads[0]) && whole(kernel.loads[1]);
}

}  // namespace

class Lowering::SumJoiner {
 public:
  explicit SumJoiner(Lowering& lowering) : l_(lowering), uses_(lowering.CountUses()) {}

  void Run() {
    gemm_ = l_.host_of_name_.at("gemm");
    for (size_t list = 1; list < l_.lists_.size(); ++list) Join(l_.lists_[list]);
  }

 private:
  // A product and the loop that adds it to something, by their places in the list.
  struct Sum {
    size_t product = 0, loop = 0;
    GemmCall call;
    StorageId a = -1, b = -1, before = -1, after = -1;
  };

  void Join(Drafts& drafts) {
    std::vector<Sum> sums = Find(drafts);
    std::vector<bool> gone(drafts.size(), false);
    absl::flat_hash_map<size_t, Draft> made;
    while (!sums.empty()) {
      std::vector<Sum> alike, others;
      for (Sum& sum : sums) (IsLike(sum.call, sums[0].call) && sum.b == sums[0].b ? alike : others).push_back(sum);
      const size_t place = std::ranges::max(alike, {}, &Sum::product).product;
      std::erase_if(alike, [&](const Sum& sum) { return !CanStandAt(drafts, sum, place); });
      if (!alike.empty() && std::ranges::find(alike, place, &Sum::product) != alike.end()) {
        made.emplace(place, Joined(drafts, alike));
        for (const Sum& sum : alike) gone[sum.product] = gone[sum.loop] = true;
      }
      sums = std::move(others);
    }
    if (made.empty()) return;
    Drafts rest;
    for (size_t e = 0; e < drafts.size(); ++e) {
      if (const auto at = made.find(e); at != made.end()) rest.push_back(std::move(at->second));
      if (!gone[e]) rest.push_back(std::move(drafts[e]));
    }
    drafts = std::move(rest);
  }

  std::vector<Sum> Find(const Drafts& drafts) const {
    std::vector<Sum> sums;
    for (size_t e = 0; e < drafts.size(); ++e) {
      const Draft& product = drafts[e];
      if (product.entry.type != Entry::Type::kHost || product.entry.code != gemm_ || product.rows == 0) continue;
      const StorageId made = product.storages[2];
      Sum sum{e, 0, DecodeGemm(product.entry.params), product.storages[0], product.storages[1]};
      if (uses_.at(made) != 2 || !AddsSums(l_.target_, sum.call)) continue;
      for (size_t u = e + 1; u < drafts.size(); ++u) {
        const Draft& loop = drafts[u];
        if (std::ranges::find(loop.storages, made) == loop.storages.end()) continue;
        if (loop.loop == nullptr || loop.entry.type != Entry::Type::kLoop || !Adds(*loop.loop, sum.call.m * sum.call.n))
          break;
        const uint32_t to = loop.loop->stores[0].access.buffer, first = loop.loop->loads[0].buffer;
        const StorageId one = loop.storages[first], other = loop.storages[3 - to - first];
        sum.loop = u;
        sum.before = one == made ? other : one;
        sum.after = loop.storages[to];
        sums.push_back(sum);
        break;
      }
    }
    return sums;
  }

  static bool IsLike(const GemmCall& x, const GemmCall& y) {
    return x.n == y.n && x.k == y.k && x.input == y.input && x.b.row_stride == y.b.row_stride &&
           x.b.col_stride == y.b.col_stride;
  }

  // Tells whether a sum's two entries may both stand at the place: nothing between them touches what they use.
  static bool CanStandAt(const Drafts& drafts, const Sum& sum, size_t place) {
    const auto touches = [&](const Draft& draft, StorageId s, bool writes) {
      if (IsControl(draft.entry)) return true;
      for (size_t i = 0; i < draft.storages.size(); ++i) {
        if (draft.storages[i] == s && (draft.written[i] || !writes)) return true;
      }
      return false;
    };
    for (size_t e = sum.product + 1; e < std::max(place, sum.loop); ++e) {
      const Draft& draft = drafts[e];
      if (e == sum.loop || e == place) continue;
      if (touches(draft, sum.a, true) || touches(draft, sum.b, true) || touches(draft, sum.before, true) ||
          touches(draft, sum.after, false)) {
        return false;
      }
    }
    return true;
  }

  Draft Joined(const Drafts& drafts, std::span<const Sum> sums) {
    std::vector<StorageId> storages = {sums[0].b};
    std::vector<int64_t> params = {static_cast<int64_t>(sums.size())};
    double cost = 0;
    for (const Sum& sum : sums) {
      storages.insert(storages.end(), {sum.a, sum.before, sum.after});
      const std::vector<int64_t> call = EncodeGemm(sum.call);
      params.insert(params.end(), call.begin(), call.end());
      cost += static_cast<double>(drafts[sum.product].entry.cost);
    }
    l_.origins_ = drafts[sums[0].product].entry.origins;
    l_.Host("gemm_sums", storages, {}, std::move(params), cost);
    Draft draft = std::move(l_.lists_[0].back());
    l_.lists_[0].pop_back();
    for (size_t i = 0; i < sums.size(); ++i) {
      const int before = static_cast<int>(2 + 3 * i);
      draft.written[before + 1] = true;
      draft.in_place.push_back({before, before + 1});
      draft.entry.writes += l_.storages_[sums[i].after].bytes;
      AddOrigins(drafts[sums[i].product].entry, draft.entry);
      AddOrigins(drafts[sums[i].loop].entry, draft.entry);
    }
    return draft;
  }

  Lowering& l_;
  const Uses uses_;
  uint32_t gemm_ = 0;
};

void Lowering::JoinSums() {
  if (lists_.size() > 1 && host_of_name_.contains("gemm")) SumJoiner(*this).Run();
}

}  // namespace weft::cpu
