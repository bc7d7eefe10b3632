// Matrix products over register tiles: B is packed into panels that stay in L2 (or read in place), A is read in place
// or packed tile by tile. Columns, rows or batch members are dealt out to the threads.
#include <algorithm>

#include "src/backends/cpu/kernels/product/gemm_blocks.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"
#include "src/backends/cpu/kernels/product/product.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Below this many operations the join of two threads is not repaid.
constexpr double kInlineWork = 200'000;

double Balance(int64_t items, int threads) {
  return static_cast<double>(items) / static_cast<double>(CeilDiv(items, threads) * threads);
}

// Tells whether parts of C are panels alike, which the threads share as evenly as all of them.
bool ServesParts(const GemmPlan& plan, int64_t members, int64_t parts, int threads) {
  const ColumnCut& cut = plan.columns;
  if (members != 1 || plan.Widens() || plan.n % (parts * cut.lanes) != 0 || cut.panels % parts != 0) return false;
  return Balance(cut.panels / parts, threads) >=
         std::max(Balance(cut.panels, threads), Balance(plan.tiles, threads)) - 0.02;
}

// Deals the members of a batch, or the rows or columns of each, to threads.
class Driver {
 public:
  // `before`: another product, whose columns are computed before those of this one.
  Driver(KernelSet::State& state, const GemmCall& call, const GemmPlan& plan, GemmBlocks* before = nullptr)
      : call_(call),
        plan_(plan),
        blocks_(state.target(), call, plan),
        cuts_(blocks_.cuts()),
        members_(Members(call)),
        before_(before),
        backwards_(before != nullptr && state.pairs.fetch_add(1, std::memory_order_relaxed) % 2 != 0) {}

  absl::Status Run(ThreadPool& pool) {
    const int threads = pool.threads();
    if (DealsMembers(threads)) {
      if (cuts_.work * static_cast<double>(members_) < kInlineWork) {
        for (int64_t i = 0; i < members_; ++i) RunMember(i, nullptr);
      } else {
        pool.ParallelRanges(members_, [&](int64_t begin, int64_t end, int) {
          PieceLook look(cuts_.work);
          for (int64_t i = begin; i < end && !look.Ends(); ++i) RunMember(i, nullptr);
        });
      }
    } else {
      ThreadPool* const inside = threads > 1 && cuts_.work >= kInlineWork ? &pool : nullptr;
      for (int64_t i = 0; i < members_; ++i) RunMember(i, inside);
    }
    if (before_ != nullptr) WEFT_RETURN_IF_ERROR(before_->scratch().status());
    return blocks_.scratch().status();
  }

  // Adds what a run asks for, at most.
  void AddNeeds(int threads, ScratchNeeds& needs) const {
    if (plan_.Widens()) {
      if (DealsMembers(threads)) needs.Each(ScratchSlot::kOutput, cuts_.WideBytes());
      needs.Once(ScratchSlot::kOutput, cuts_.WideBytes());
    }
    if (cuts_.PacksB()) {
      needs.Each(ScratchSlot::kPackB, cuts_.ChunkBytes());
      needs.Once(ScratchSlot::kShared, cuts_.ChunkBytes());
    }
    if (plan_.pack_a) needs.Each(ScratchSlot::kPackA, cuts_.PackedRowsBytes(plan_.k_block));
    if (cuts_.consumed) needs.Each(ScratchSlot::kOutput, cuts_.ConsumedBytes());
  }

 private:
  // Whole members of the batch to the threads, rather than parts of each.
  bool DealsMembers(int threads) const { return members_ > 1 && (members_ >= 2 * threads || cuts_.work < kInlineWork); }

  // With a pool, rows or columns are dealt out.
  void RunMember(int64_t index, ThreadPool* pool) {
    GemmMember member = blocks_.Locate(index);
    if (call_.epilogue.parts > 1 || before_ != nullptr) return RunParts(member, pool);
    if (plan_.Widens()) {
      member.c = static_cast<char*>(blocks_.scratch().Get(ScratchSlot::kOutput, cuts_.WideBytes()));
      if (member.c == nullptr) return;
      member.c_stride = plan_.n * 4;
    }
    const Range tiles = {0, plan_.tiles}, panels = {0, plan_.columns.panels};
    if (pool == nullptr) return blocks_.Compute(member, tiles, panels);
    const int threads = pool->threads();
    const double share_n = Balance(panels.end, threads);
    const double share_m = Balance(tiles.end, threads);
    // Rows where B is ready and each thread would otherwise pack all of A, or an epilogue wants long runs of memory.
    const bool rows_first = plan_.direct_b && (plan_.pack_a || cuts_.consumed || call_.epilogue.run != nullptr) &&
                            share_m >= share_n - 0.05;
    if (!rows_first && share_n >= share_m - 0.02) {
      pool->ParallelRanges(panels.end,
                           [&](int64_t begin, int64_t end, int) { blocks_.Compute(member, tiles, {begin, end}); });
    } else if (!cuts_.PacksB()) {
      pool->ParallelRanges(tiles.end,
                           [&](int64_t begin, int64_t end, int) { blocks_.Compute(member, {begin, end}, panels); });
    } else {
      RunRows(member, *pool);
    }
  }

  // Rows are dealt out: every thread needs all of B, so it is packed once, together.
  void RunRows(const GemmMember& member, ThreadPool& pool) {
    char* shared = static_cast<char*>(blocks_.scratch().Get(ScratchSlot::kShared, cuts_.ChunkBytes()));
    if (shared == nullptr) return;
    const int64_t panels = plan_.columns.panels;
    for (int64_t block = 0; block < plan_.k_blocks; ++block) {
      for (int64_t first = 0; first < panels; first += plan_.chunk_panels) {
        const Range chunk = {first, std::min(panels, first + plan_.chunk_panels)};
        pool.ParallelRanges(chunk.size(), [&](int64_t begin, int64_t end, int) {
          blocks_.panels_of_b().Pack(member.b, block, first, {first + begin, first + end}, shared);
        });
        pool.ParallelRanges(plan_.tiles, [&](int64_t begin, int64_t end, int) {
          blocks_.Compute(member, {begin, end}, chunk, {shared, block});
        });
      }
    }
  }

  // The thread that computes columns of one part of C computes those of the others, too, and then runs the epilogue on them. A pair's
  // panels fill L2, and in a loop the next run finds those there that it begins with if every other one goes backwards.
  void RunParts(const GemmMember& member, ThreadPool* pool) {
    const int64_t all = plan_.columns.panels, panels = all / call_.epilogue.parts;
    const GemmMember other = before_ != nullptr ? before_->Locate(0) : GemmMember();
    const auto compute = [&](int64_t panel) {
      for (int64_t first = 0; before_ != nullptr && first < all; first += panels) {
        before_->Compute(other, {0, before_->cuts().plan.tiles}, {first + panel, first + panel + 1});
      }
      for (int64_t first = 0; first < all; first += panels) {
        blocks_.Compute(member, {0, plan_.tiles}, {first + panel, first + panel + 1});
      }
      if (call_.epilogue.parts == 1) return;  // the product has run it
      const int64_t column = plan_.columns.First(panel) * plan_.columns.lanes;
      const int64_t columns = plan_.columns.First(panel + 1) * plan_.columns.lanes - column;
      call_.epilogue.run(call_.epilogue.context, member.index, 0, plan_.m, column, columns);
    };
    const auto share = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) compute(backwards_ ? begin + end - 1 - i : i);
    };
    if (pool == nullptr) return share(0, panels, 0);
    pool->ParallelRanges(panels, share);
  }

  const GemmCall& call_;
  const GemmPlan& plan_;
  GemmBlocks blocks_;
  const GemmCuts& cuts_;
  const int64_t members_;
  GemmBlocks* const before_;
  const bool backwards_;  // through the panels of a pair
};

const char* Refuses(const Product& product) {
  return product.registers && !product.amx ? nullptr : "no register tile serves the types, or AMX's do";
}
const char* RefusesVnni(const Product& product) {
  return IsQuads(product.types.pack) ? Refuses(product) : "the target has no dot product of bytes, or these are none";
}

absl::Status Run(const Product& product, KernelSet&, KernelSet::State& state, const Duty& duty) {
  GemmPlan own;
  if (product.plan == nullptr) WEFT_RETURN_IF_ERROR(PlanGemm(state, product.call, product.types, &own));
  Driver driver(state, product.call, product.plan != nullptr ? *product.plan : own);
  if (duty.pool != nullptr) return driver.Run(*duty.pool);
  driver.AddNeeds(duty.threads, *duty.needs);
  return absl::OkStatus();
}

int64_t PackedBytes(const Product& product) {
  const GemmPlan plan = CutGemm(product.target, product.call, product.types);
  return plan.direct_b ? 0 : plan.PackedOffset(plan.k_blocks, 0);
}
std::vector<int64_t> PackedForm(const Product& product) {
  const GemmCall& call = product.call;
  const GemmPlan plan = CutGemm(product.target, call, product.types);
  return {static_cast<int64_t>(product.types.pack),
          plan.columns.lanes,
          plan.columns.panels,
          plan.k_block,
          call.k,
          call.n,
          call.b.row_stride,
          call.b.col_stride};
}
void PackB(const Product& product, void* packed, ThreadPool& pool) {
  const GemmCall& call = product.call;
  const GemmPlan plan = CutGemm(product.target, call, product.types);
  const PanelsOfB panels(product.target, plan, call.b);
  pool.ParallelRanges(plan.columns.panels, [&](int64_t begin, int64_t end, int) {
    for (int64_t block = 0; block < plan.k_blocks; ++block) {
      panels.Pack(static_cast<const char*>(call.b.data), block, 0, {begin, end},
                  static_cast<char*>(packed) + plan.PackedOffset(block, 0));
    }
  });
}

}  // namespace

constinit const ProductImplementation kProductTilesVnni = {"gemm tiles vnni", RefusesVnni, Run,
                                                           PackedBytes,       PackedForm,  PackB};
constinit const ProductImplementation kProductTiles = {"gemm tiles", Refuses, Run, PackedBytes, PackedForm, PackB};

bool DealsParts(const Product& product, int64_t parts, int threads) {
  const ProductImplementation& chosen = ChooseProduct(product);
  return (&chosen == &kProductTiles || &chosen == &kProductTilesVnni) &&
         ServesParts(CutGemm(product.target, product.call, product.types), Members(product.call), parts, threads);
}

absl::Status RunPair(const Product& first, const Product& second, KernelSet::State& state, ThreadPool& pool) {
  GemmPlan plan, other;
  WEFT_RETURN_IF_ERROR(PlanGemm(state, first.call, first.types, &other));
  WEFT_RETURN_IF_ERROR(PlanGemm(state, second.call, second.types, &plan));
  GemmBlocks before(state.target(), first.call, other);
  return Driver(state, second.call, plan, &before).Run(pool);
}

}  // namespace weft::cpu
