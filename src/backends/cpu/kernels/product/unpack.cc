// The way back from PackB: a matrix, or a part of it, from the panels that it was packed to.
#include <algorithm>
#include <cstring>

#include "src/backends/cpu/kernels/product/amx_driver.h"
#include "src/backends/cpu/kernels/product/gemm_plan.h"

namespace weft::cpu {
namespace {

constexpr int64_t kPairElement = 2;  // tiles of bytes are not unpacked

// Where PackB writes: panels of columns, by blocks of K, whose steps lie one after another.
class Layout {
 public:
  Layout(const CpuTarget& target, const GemmCall& call)
      : tiles_(AmxServes(target, call.input, call.output)), k_(call.k), n_(call.n) {
    if (tiles_) {
      kind_ = PackKind::kPairs;
      return;
    }
    TypePlan types;
    PlanTypes(target, call.input, call.output, &types);
    plan_ = CutGemm(target, call, types);
    kind_ = types.pack;
  }

  PackKind kind() const { return kind_; }
  int64_t Blocks() const { return tiles_ ? 1 : plan_.k_blocks; }
  int64_t BlockStart(int64_t block) const { return tiles_ ? block * k_ : plan_.BlockStart(block); }
  int64_t Column(int64_t panel) const {
    return std::min(n_, tiles_ ? panel * kTileSide : plan_.columns.First(panel) * plan_.columns.lanes);
  }
  int64_t PanelOf(int64_t column) const {
    if (tiles_) return column / kTileSide;
    int64_t panel = column / plan_.columns.lanes * plan_.columns.panels / plan_.columns.vectors;
    while (Column(panel + 1) <= column) ++panel;
    while (Column(panel) > column) --panel;
    return panel;
  }
  // Returns where an element of K, which lies in that block, and of the panel's first column lies.
  int64_t Offset(int64_t block, int64_t panel, int64_t k) const {
    const int64_t base =
        tiles_ ? panel * TilePackedBytes(k_, kTileSide, kPairElement) : plan_.PackedOffset(block, panel);
    const int64_t step = k - BlockStart(block);
    return base + (kind_ == PackKind::kPairs ? step / 2 : step) * StepBytes(panel);
  }
  int64_t StepBytes(int64_t panel) const {
    const int64_t width = tiles_ ? kTileSide : static_cast<int64_t>(plan_.columns.Vectors(panel)) * plan_.columns.lanes;
    return width * PackedElementBytes(kind_);
  }

 private:
  bool tiles_;
  int64_t k_, n_;
  GemmPlan plan_;
  PackKind kind_;
};

// `count` elements of a row, from `k` of a block, whose first lies at `from`.
void UnpackRow(PackKind kind, const char* from, int64_t k, int64_t count, char* to) {
  if (kind == PackKind::kF32 || kind == PackKind::kF64) {
    std::memcpy(to, from, count * PackedElementBytes(kind));
    return;
  }
  const int half = kind == PackKind::kPairs ? static_cast<int>(k % 2) : 1;
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * 2, from + i * 4 + half * 2, 2);
}

// `count` elements of a column, from `k` of a block.
void UnpackColumn(PackKind kind, const char* from, int64_t step_bytes, int64_t k, int64_t count, char* to) {
  switch (kind) {
    case PackKind::kF32:
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * 4, from + i * step_bytes, 4);
      return;
    case PackKind::kF64:
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * 8, from + i * step_bytes, 8);
      return;
    case PackKind::kPairs:
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * 2, from + ((k + i) / 2 - k / 2) * step_bytes + (k + i) % 2 * 2, 2);
      }
      return;
    default:  // widened bf16: the high half
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * 2, from + i * step_bytes + 2, 2);
  }
}

}  // namespace

int64_t UnpackableB(const CpuTarget& target, const GemmCall& call) {
  if (PackedBytesOfB(target, call) == 0) return 0;
  const bool rows = call.b.col_stride == 1 && call.b.row_stride == call.n;
  const bool columns = call.b.row_stride == 1 && call.b.col_stride == call.k;
  if (!rows && !columns) return 0;
  // f16 is not what its widened form narrows to where it is NaN.
  const PackKind kind = Layout(target, call).kind();
  const bool lossy = kind == PackKind::kWidenF16, bytes = BytesOf(call.input) == 1;
  return lossy || bytes ? 0 : call.k * call.n;
}

void UnpackB(const CpuTarget& target, const GemmCall& call, const void* packed, int64_t first, int64_t count,
             void* to) {
  const Layout layout(target, call);
  const char* const from = static_cast<const char*>(packed);
  char* out = static_cast<char*>(to);
  const int64_t element = BytesOf(call.input);
  const bool rows = call.b.col_stride == 1 && call.b.row_stride == call.n;
  const int64_t length = rows ? call.n : call.k;
  while (count > 0) {
    const int64_t line = first / length, begin = first % length, end = std::min(length, begin + count);
    if (rows) {
      int64_t block = 0;
      while (layout.BlockStart(block + 1) <= line) ++block;
      for (int64_t column = begin; column < end;) {
        const int64_t panel = layout.PanelOf(column), stop = std::min(end, layout.Column(panel + 1));
        const char* const at = from + layout.Offset(block, panel, line) +
                               (column - layout.Column(panel)) * PackedElementBytes(layout.kind());
        UnpackRow(layout.kind(), at, line - layout.BlockStart(block), stop - column, out);
        out += (stop - column) * element;
        column = stop;
      }
    } else {
      const int64_t panel = layout.PanelOf(line);
      const int64_t lane = (line - layout.Column(panel)) * PackedElementBytes(layout.kind());
      for (int64_t block = 0; block < layout.Blocks(); ++block) {
        const int64_t k = std::max(begin, layout.BlockStart(block)), stop = std::min(end, layout.BlockStart(block + 1));
        if (k >= stop) continue;
        UnpackColumn(layout.kind(), from + layout.Offset(block, panel, k) + lane, layout.StepBytes(panel),
                     k - layout.BlockStart(block), stop - k, out);
        out += (stop - k) * element;
      }
    }
    first += end - begin;
    count -= end - begin;
  }
}

}  // namespace weft::cpu
