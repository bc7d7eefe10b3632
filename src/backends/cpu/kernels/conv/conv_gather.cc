// Direct NHWC convolution on register tiles. A tile is 6-8 output pixels by up to 64 channels; its K loop runs over the
// window's taps, each tap a pointer per pixel (padding points at a row of zeros) and a run of channels. Taps side by
// side in memory join into one run. Dilated inputs split into phases that each look like a plain strided convolution.
#include "src/backends/cpu/kernels/conv/conv_gather.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/backends/cpu/kernels/conv/conv_padding.h"
#include "src/backends/cpu/kernels/conv/conv_panels.h"
#include "src/backends/cpu/kernels/conv/gather_block.h"
#include "src/backends/cpu/kernels/conv/gather_results.h"
#include "src/runtime/parallel_pieces.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

// Below this many operations the join of two threads is not repaid.
constexpr int64_t kInlineWork = 200'000;

// Bytes of a thread's tables, and of its results in f32 where they shall be narrower.
int64_t TableBytes(const GatherPlan& plan, const Phase& phase) { return phase.block_taps * (plan.rows + 2) * 8 + 64; }
int64_t WideBytes(const GatherPlan& plan, const Phase& phase) {
  return phase.group_tiles * plan.rows * plan.WideStride(phase);
}

// How a phase is shared out, and whether panels are packed by who reads them.
enum class Dealing { kInline, kPanels, kTiles };
struct PhaseDeal {
  Dealing dealing = Dealing::kInline;
  int64_t pieces = 1;  // of a thread's share

  static PhaseDeal Make(const GatherPlan& plan, const Phase& phase, int threads) {
    constexpr int64_t kPieceWork = 250'000, kMostPieces = 64, kMostBytes = 768 << 10;
    const int64_t work = 2 * plan.call.batch * phase.pixels * (phase.steps() + 8) * plan.call.ToChannels();
    if (work < kInlineWork || threads == 1) return {};
    if (DealsPanels(plan.call, plan.columns, phase, threads)) {
      return {Dealing::kPanels, std::clamp<int64_t>(work / threads / kPieceWork, 1, kMostPieces)};
    }
    // Every part of the pixels reads all of the kernel: one that exceeds L2 once.
    const bool once = plan.PackedBytes() > kMostBytes;
    return {Dealing::kTiles, once ? 1 : std::clamp<int64_t>(work / threads / kPieceWork, 1, kMostPieces)};
  }
  // Threads that each have panels of their own pack them as they come to them, into their L2; else, and where K runs
  // along the kernel's memory (which is read in long runs or slowly), all is packed before.
  bool PacksBefore(const GatherCall& call) const { return dealing == Dealing::kTiles || call.from_stride == 1; }
};

// The work of one thread on one phase.
class PhaseRunner {
 public:
  // `sets`: the phase's, or one for each of its parts. `packs_to`: where panels are packed before they are read; null where they
  // are there.
  PhaseRunner(const CpuTarget& target, const GatherOperands& operands, const Phase& phase, const PhaseTiles* sets,
              char* packs_to)
      : target_(target), operands_(operands), plan_(operands.plan), phase_(phase), sets_(sets), packs_to_(packs_to) {}

  // False without memory.
  bool Run(Range tiles, Range panels) const {
    void* memory = ThreadScratch(ScratchSlot::kTables, TableBytes(plan_, phase_));
    PaddedLines lines(plan_.call.padded, phase_, plan_.rows);
    GatherTables tables;
    const bool widens = plan_.Widens(phase_);
    if (widens) tables.wide = static_cast<char*>(ThreadScratch(ScratchSlot::kOutput, WideBytes(plan_, phase_)));
    if (memory == nullptr || (widens && tables.wide == nullptr) || !lines.Reserve()) return false;
    tables.wide_stride = widens ? plan_.WideStride(phase_) : 0;
    tables.a = static_cast<const void**>(memory);
    tables.b_offsets = reinterpret_cast<int64_t*>(tables.a + phase_.block_taps * plan_.rows);
    tables.kept = tables.b_offsets + phase_.block_taps;
    tables.from = static_cast<const char*>(plan_.call.from);
    const int64_t together = GroupTiles(tiles.size());
    for (int64_t chunk = panels.begin; chunk < panels.end; chunk += phase_.chunk_panels) {
      const Range columns = {chunk, std::min(panels.end, chunk + phase_.chunk_panels)};
      for (int64_t tile = tiles.begin; tile < tiles.end; tile += together) {
        const Range group = {tile, std::min(tiles.end, tile + together)};
        const Range rows = {phase_.FirstRow(plan_.call.batch, group.begin),
                            phase_.FirstRow(plan_.call.batch, group.end)};
        if (plan_.call.padded != nullptr) tables.from = lines.Make(rows.begin, rows.end, &tables.behind);
        for (const KBlock& block : phase_.blocks) {
          if (packs_to_ != nullptr && tile == tiles.begin) Pack(block, columns);
          RunBlock(block, group, columns, tables);
        }
        GatherResults(operands_, columns).Finish(phase_, rows, tables.wide);
      }
    }
    return true;
  }

 private:
  // How many tiles go through all of K before others.
  int64_t GroupTiles(int64_t tiles) const {
    // Results that wait for nothing need not stay together.
    const bool ended = plan_.Ends(phase_) && phase_.blocks.size() == 1;
    const int64_t group = ended ? std::max<int64_t>(1, tiles) : phase_.group_tiles;
    return plan_.call.padded != nullptr ? std::min(group, PaddedLines::Tiles(phase_)) : group;
  }

  void Pack(const KBlock& block, Range panels) const {
    for (int64_t flat = panels.begin; flat < panels.end; ++flat) {
      plan_.PackPanel(target_, phase_, block, flat, packs_to_);
    }
  }

  // These tiles of the phase, which may be those of its parts.
  void RunBlock(const KBlock& block, Range tiles, Range panels, const GatherTables& tables) const {
    if (phase_.parts.empty()) return RunGatherBlock(operands_, phase_, block, sets_[0], tiles, panels, tables);
    for (size_t i = 0; i < phase_.parts.size() && tiles.end > 0; ++i) {
      const Phase& part = phase_.parts[i];
      const Range own = {std::max<int64_t>(tiles.begin, 0), std::min(tiles.end, part.tiles)};
      if (own.begin < own.end) {
        RunGatherBlock(operands_, part, part.blocks[&block - phase_.blocks.data()], sets_[i], own, panels, tables);
      }
      tiles = {tiles.begin - part.tiles, tiles.end - part.tiles};
    }
  }

  const CpuTarget& target_;
  const GatherOperands& operands_;
  const GatherPlan& plan_;
  const Phase& phase_;
  const PhaseTiles* const sets_;
  char* const packs_to_;
};

class Gather {
 public:
  Gather(KernelSet::State& state, const GatherCall& call)
      : state_(state), plan_(GatherPlan::Make(state.target(), call)) {
    int64_t steps = 0;
    for (const Phase& phase : plan_.phases) steps = std::max(steps, phase.run_steps);
    zero_bytes_ = (steps + 16) * plan_.element() + 64;
  }

  absl::Status Fetch() {
    for (const Phase& phase : plan_.phases) {
      if (phase.parts.empty()) WEFT_RETURN_IF_ERROR(sets_.emplace_back().Fetch(state_, plan_, phase));
      for (const Phase& part : phase.parts) WEFT_RETURN_IF_ERROR(sets_.emplace_back().Fetch(state_, plan_, part));
    }
    return absl::OkStatus();
  }

  void AddNeeds(ScratchNeeds& needs) const {
    needs.Once(ScratchSlot::kShared, plan_.PackedBytes() + zero_bytes_);
    for (const Phase& phase : plan_.phases) {
      needs.Each(ScratchSlot::kTables, TableBytes(plan_, phase));
      PaddedLines(plan_.call.padded, phase, plan_.rows).Need(needs);
      if (plan_.Widens(phase)) needs.Each(ScratchSlot::kOutput, WideBytes(plan_, phase));
    }
  }

  absl::Status Run(ThreadPool& pool) {
    const char* packed = static_cast<const char*>(plan_.call.packed);
    const int64_t packed_bytes = packed != nullptr ? 0 : plan_.PackedBytes();
    char* const shared = static_cast<char*>(ThreadScratch(ScratchSlot::kShared, packed_bytes + zero_bytes_));
    if (shared == nullptr) return OutOfScratch("a convolution's packed kernel", packed_bytes + zero_bytes_);
    std::memset(shared + packed_bytes, 0, zero_bytes_);
    PhaseDeals deals;
    for (const Phase& phase : plan_.phases) deals.push_back(PhaseDeal::Make(plan_, phase, pool.threads()));
    const bool packs = packed == nullptr;
    if (packs) {
      packed = shared;
      PackBefore(deals, shared, pool);
    }
    const GatherOperands operands(plan_, packed, shared + packed_bytes);
    for (size_t i = 0; i < plan_.phases.size(); ++i) {
      char* const packs_to = packs && !deals[i].PacksBefore(plan_.call) ? shared : nullptr;
      RunPhase(PhaseRunner(state_.target(), operands, plan_.phases[i], &sets_[i], packs_to), plan_.phases[i].tiles,
               deals[i], pool);
    }
    return out_of_memory_.load(std::memory_order_relaxed) ? OutOfScratch("a convolution's tables", 0)
                                                          : absl::OkStatus();
  }

 private:
  using PhaseDeals = absl::InlinedVector<PhaseDeal, 1>;

  void PackBefore(const PhaseDeals& deals, char* packed, ThreadPool& pool) const {
    std::vector<const Phase*> before;
    for (size_t i = 0; i < plan_.phases.size(); ++i) {
      const Phase& phase = plan_.phases[i];
      if (!phase.empty() && deals[i].PacksBefore(plan_.call)) before.push_back(&phase);
    }
    plan_.Pack(state_.target(), before, packed, pool);
  }

  void RunPhase(const PhaseRunner& runner, int64_t tiles, const PhaseDeal& deal, ThreadPool& pool) {
    const int64_t panels = plan_.Panels();
    const auto run = [&](Range tiles, Range panels) {
      if (!runner.Run(tiles, panels)) out_of_memory_.store(true, std::memory_order_relaxed);
    };
    switch (deal.dealing) {
      case Dealing::kInline: return run({0, tiles}, {0, panels});
      case Dealing::kTiles:
        return ParallelPieces(pool, tiles, deal.pieces,
                              [&](int64_t begin, int64_t end, int) { run({begin, end}, {0, panels}); });
      case Dealing::kPanels:
        return ParallelPieces(pool, panels, deal.pieces,
                              [&](int64_t begin, int64_t end, int) { run({0, tiles}, {begin, end}); });
    }
  }

  KernelSet::State& state_;
  const GatherPlan plan_;
  absl::InlinedVector<PhaseTiles, 1> sets_;  // each phase's, or those of the only one's parts
  int64_t zero_bytes_ = 0;                   // of what padding is read from
  std::atomic<bool> out_of_memory_{false};
};

}  // namespace

absl::Status RunGather(KernelSet::State& state, const GatherCall& call, const Duty& duty) {
  if (call.batch * call.geometry.out * call.ToChannels() == 0) return absl::OkStatus();
  Gather gather(state, call);
  if (duty.pool != nullptr || duty.fetches) {
    WEFT_RETURN_IF_ERROR(gather.Fetch());
  }
  if (duty.pool != nullptr) return gather.Run(*duty.pool);
  gather.AddNeeds(*duty.needs);
  return absl::OkStatus();
}

}  // namespace weft::cpu
