// Cutting matrix products. The numbers: K blocks of at most 448 steps keep a panel of B (448 x 64 x 4 = 112 KiB) and
// its neighbours in a 1 MiB L2 beside few rows of A, and what a tile of columns of A touches in L1. Of many rows C does not stay
// there, and adding to it again costs more: they have 1,024. So have pairs of bf16: up to 2,048 values of K no sum goes through
// memory, and tiles store bf16. Tiles of equal height need two compiled shapes for any M.
#include "src/backends/cpu/kernels/product/gemm_plan.h"

#include <algorithm>

#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr int64_t kFewRows = 256, kMaxStepsOfFewRows = 448, kMaxSteps = 1024;
constexpr int64_t kMaxPairs = 1024;  // or fours
constexpr int64_t kChunkBytes = 480 << 10;
constexpr int64_t kPairsChunkBytes = 768 << 10;
// B is read in place up to this many bytes, and always for few rows: packing would cost as much as the product.
constexpr int64_t kDirectBytes = 256 << 10;
constexpr int64_t kDirectRows = 12;
// Rows of B this near to each other waste neither pages nor cache sets when read in place.
constexpr int64_t kDirectStride = 1024;
// Columns of A this near to each other are read in place, a part of a line with each step: what they miss is asked for before.
constexpr int64_t kInPlaceStride = 8192;

}  // namespace

ColumnCut ColumnCut::Make(const CpuTarget& target, MicroType type, int64_t columns) {
  ColumnCut cut;
  cut.lanes = MicroLanes(target, type);
  cut.columns = columns;
  cut.vectors = CeilDiv(columns, cut.lanes);
  cut.SetPanels(CeilDiv(cut.vectors, MicroMaxVectors(target)));
  return cut;
}

absl::Status FetchTiles(KernelSet::State& state, TileKind kind, int64_t rows, int64_t tiles, const ColumnCut& columns,
                        bool masked, TileSet* out) {
  const int mr_low = static_cast<int>(rows / tiles);
  const int mr_high = static_cast<int>(CeilDiv(rows, tiles));
  const int nv_low = columns.MinVectors();
  out->mr_low = mr_low;
  out->nv_low = nv_low;
  const int last_vectors = columns.Vectors(columns.panels - 1);
  for (int mr = mr_low; mr <= mr_high; ++mr) {
    for (int nv = nv_low; nv <= columns.MaxVectors(); ++nv) {
      const bool last = masked && nv == last_vectors;
      // A single panel with a ragged end is never asked for unmasked.
      if (!(last && columns.panels == 1)) {
        WEFT_ASSIGN_OR_RETURN(out->fn[mr - mr_low][nv - nv_low][0],
                              state.Micro({kind.type, kind.form, mr, nv, false, kind.ending}));
      }
      if (last) {
        WEFT_ASSIGN_OR_RETURN(out->fn[mr - mr_low][nv - nv_low][1],
                              state.Micro({kind.type, kind.form, mr, nv, true, kind.ending}));
      }
    }
  }
  return absl::OkStatus();
}

GemmPlan CutGemm(const CpuTarget& target, const GemmCall& call, const TypePlan& types) {
  GemmPlan plan;
  plan.types = types;
  plan.m = call.m;
  plan.n = call.n;
  plan.k = call.k;
  plan.columns = ColumnCut::Make(target, types.micro, call.n);
  const int64_t element = types.source_bytes;
  const bool pairs = IsPairs(types.pack), quads = IsQuads(types.pack);
  const int64_t max_k = pairs               ? 2 * kMaxPairs
                        : quads             ? 4 * kMaxPairs
                        : call.m > kFewRows ? kMaxSteps
                                            : kMaxStepsOfFewRows;
  plan.k_blocks = std::max<int64_t>(1, CeilDiv(call.k, max_k));
  plan.k_block = CeilDiv(CeilDiv(call.k, plan.k_blocks), 8) * 8;
  plan.k_blocks = std::max<int64_t>(1, CeilDiv(call.k, plan.k_block));
  plan.rounds = types.narrow && call.output == DType::kBF16 && types.micro == MicroType::kBF16Dot && plan.k_blocks == 1;
  // A in place: rows with unit stride for every native type and for pairs and fours of what lies there, columns for f32 and f64.
  const bool together = types.pack == PackKind::kPairs || (quads && call.k >= StepElements(types.pack));
  if (call.a.col_stride == 1 && (types.direct || together)) {
    plan.form = MicroForm::kRows;
  } else {
    plan.form = MicroForm::kColumns;
    plan.pack_a = !(call.a.row_stride == 1 && types.direct &&
                    (plan.columns.panels == 1 || call.a.col_stride * element <= kInPlaceStride));
  }
  if (types.direct && call.b.col_stride == 1 && !call.b_packed) {
    plan.direct_b = call.m <= kDirectRows || call.k * call.n * element <= kDirectBytes ||
                    call.b.row_stride * element <= kDirectStride;
  }
  const int rows = MicroMaxRows(target, plan.form, plan.columns.MaxVectors());
  plan.tiles = CeilDiv(call.m, rows);
  const int64_t panel_bytes = PackedSteps(types.pack, plan.k_block) * plan.columns.MaxVectors() * plan.columns.lanes *
                              PackedElementBytes(types.pack);
  const int64_t chunk_bytes = pairs || quads ? kPairsChunkBytes : kChunkBytes;
  plan.chunk_panels = std::clamp<int64_t>(chunk_bytes / std::max<int64_t>(1, panel_bytes), 1, plan.columns.panels);
  return plan;
}

absl::Status PlanGemm(KernelSet::State& state, const GemmCall& call, const TypePlan& types, GemmPlan* plan) {
  *plan = CutGemm(state.target(), call, types);
  const bool masked = plan->direct_b && call.n % plan->columns.lanes != 0;
  const MicroType micro = plan->rounds ? MicroType::kBF16Rounded : types.micro;
  return FetchTiles(state, {micro, plan->form}, call.m, plan->tiles, plan->columns, masked, &plan->set);
}

int64_t Members(const GemmCall& call) {
  int64_t members = 1;
  for (int d = 0; d < call.batch_rank; ++d) members *= call.batch_sizes[d];
  return members;
}

MemberOffsets OffsetsOf(const GemmCall& call, int64_t index) {
  MemberOffsets offsets;
  ForEachBatchIndex(call.batch_rank, call.batch_sizes, index, [&](size_t d, int64_t i) {
    offsets.a += i * call.a.batch_strides[d];
    offsets.b += i * call.b.batch_strides[d];
    offsets.c += i * call.c_batch_strides[d];
  });
  return offsets;
}

}  // namespace weft::cpu
