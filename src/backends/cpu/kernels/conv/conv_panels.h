// A gathering convolution cut for one target, and its kernel packed into panels: all taps of a panel's columns, K-major. How
// they lie depends on the taps, the channels and the columns alone, so that calls over other images find the same.
#pragma once

#include <algorithm>
#include <vector>

#include "src/backends/cpu/kernels/conv/conv_phases.h"

namespace weft::cpu {

struct GatherPlan {
  GatherCall call;  // its lines joined
  ColumnCut columns;
  MicroForm form = MicroForm::kRows;
  int rows = 1;  // of a tile, at most
  std::vector<Phase> phases;

  static GatherPlan Make(const CpuTarget& target, const GatherCall& call);

  // Tells whether tiles of this phase round the sums, do the epilogue, or leave sums in f32 to be narrowed.
  bool Rounds(const Phase& phase) const { return RoundsSums(call, phase); }
  bool Ends(const Phase& phase) const { return EndsSums(call, phase, phases.size()); }
  bool Widens(const Phase& phase) const { return call.types.narrow && !Rounds(phase); }
  // Bytes of a result as tiles write it, and in the end.
  int64_t TileBytes(const Phase& phase) const { return Rounds(phase) ? 2 : call.types.accumulator_bytes; }
  int64_t ResultBytes() const { return call.types.narrow ? 2 : call.types.accumulator_bytes; }
  // Row stride of the f32 sums of a group of tiles in a chunk's columns, where the results are narrower.
  int64_t WideStride(const Phase& phase) const {
    const int64_t chunk = phase.chunk_panels * columns.MaxVectors() * columns.lanes;
    return std::min(chunk, call.ToChannels()) * 4;
  }

  int64_t element() const { return PackedElementBytes(call.types.pack); }
  // Over all groups; a flat number counts them so.
  int64_t Panels() const { return columns.panels * call.groups; }
  int64_t PanelOffset(const Phase& phase, int64_t flat) const {
    return phase.packed + flat / columns.panels * GroupBytes(phase) +
           phase.steps() * columns.First(flat % columns.panels) * columns.lanes * element();
  }
  int64_t StepBytes(int64_t flat) const {
    return static_cast<int64_t>(columns.Vectors(flat % columns.panels)) * columns.lanes * element();
  }
  int64_t PackedBytes() const {
    return phases.empty() ? 0 : phases.back().packed + GroupBytes(phases.back()) * call.groups;
  }
  // Equal where a kernel of the same bytes is packed to the same bytes.
  std::vector<int64_t> PackedForm() const;

  // A block of K of one panel, to where it lies among all of them.
  void PackPanel(const CpuTarget& target, const Phase& phase, const KBlock& block, int64_t flat, char* packed) const;
  // All of these phases.
  void Pack(const CpuTarget& target, const std::vector<const Phase*>& which, char* packed, ThreadPool& pool) const;
  // Elements of the kernel if all phases together have every one of them, with its bits; else 0.
  int64_t Unpackable() const;
  // The kernel as it lay before all phases were packed.
  void Unpack(const char* packed, char* weights) const;

 private:
  int64_t GroupBytes(const Phase& phase) const { return phase.steps() * columns.vectors * columns.lanes * element(); }
  int64_t StoredTap(const Phase& phase, int64_t tap) const;
  // From where a tap of a panel was packed; `k` counts from there.
  void UnpackTap(const char* from, int64_t k, int64_t flat, int64_t stored_tap, char* weights) const;
  void PackJoinedPairs(const Phase& phase, int64_t tap, const char* base, int64_t lanes, int64_t width,
                       char* out) const;
};

}  // namespace weft::cpu
