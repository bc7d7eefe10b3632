// See conv_panels.h.
#include "src/backends/cpu/kernels/conv/conv_panels.h"

#include <algorithm>
#include <cstring>

namespace weft::cpu {

GatherPlan GatherPlan::Make(const CpuTarget& target, const GatherCall& call) {
  GatherPlan plan;
  plan.call = call;
  JoinLines(&plan.call);
  plan.form = RunsAlongPixels(plan.call) ? MicroForm::kColumns : MicroForm::kRows;
  plan.columns = CutColumns(target, plan.call, plan.form);
  plan.rows = MicroMaxRows(target, plan.form, plan.columns.MaxVectors());
  plan.phases = CutPhases(plan.call, plan.columns, plan.rows);
  return plan;
}

std::vector<int64_t> GatherPlan::PackedForm() const {
  std::vector<int64_t> form = {static_cast<int64_t>(call.types.pack),
                               columns.lanes,
                               columns.panels,
                               call.groups,
                               call.group_from,
                               call.group_to,
                               call.tap_stride,
                               call.from_stride,
                               call.to_stride,
                               call.group_stride};
  for (const Phase& phase : phases) {
    form.insert(form.end(), {phase.joined_pack, phase.inner_taps, phase.outer_taps});
    for (int64_t tap = 0; tap < phase.outer_taps * phase.inner_taps; ++tap) form.push_back(StoredTap(phase, tap));
  }
  return form;
}

// The flat stored tap for a tap of this phase.
int64_t GatherPlan::StoredTap(const Phase& phase, int64_t tap) const {
  int64_t at[kMaxSpatialDims];
  for (int d = kMaxSpatialDims - 1; d >= 0; --d) {
    const auto taps = static_cast<int64_t>(phase.dims[d].taps.size());
    at[d] = tap % taps;
    tap /= taps;
  }
  int64_t flat = 0;
  for (int d = 0; d < kMaxSpatialDims; ++d) {
    const SpatialDim& dim = call.geometry.dims[d];
    flat = flat * dim.window + WeightTap(dim, phase.dims[d].taps[at[d]]);
  }
  return flat;
}

void GatherPlan::PackPanel(const CpuTarget& target, const Phase& phase, const KBlock& block, int64_t flat,
                           char* packed) const {
  const int64_t panel = flat % columns.panels, source = call.types.source_bytes;
  const int64_t lanes = columns.Columns(panel), step_bytes = StepBytes(flat);
  char* out = packed + PanelOffset(phase, flat) + phase.StepsBefore(block, call.types.pack) * step_bytes;
  const char* base = static_cast<const char*>(call.weights) +
                     (flat / columns.panels * call.group_stride +
                      columns.First(panel) * columns.lanes * call.to_stride + block.channel0 * call.from_stride) *
                         source;
  if (phase.joined_pack) {
    // Odd pairs straddle taps: only where the stored taps follow each other, which `joinable` and this check say.
    for (int64_t tap = block.tap0; tap < block.tap1; tap += phase.inner_taps) {
      PackJoinedPairs(phase, tap, base, lanes, step_bytes / element(), out);
      out += phase.run_steps * step_bytes;
    }
    return;
  }
  for (int64_t tap = block.tap0; tap < block.tap1; ++tap) {
    cpu::Pack(target, call.types.pack,
              {base + StoredTap(phase, tap) * call.tap_stride * source, call.from_stride, call.to_stride},
              block.channel1 - block.channel0, lanes, step_bytes / element(), out);
    out += phase.k_steps * step_bytes;
  }
}

void GatherPlan::PackJoinedPairs(const Phase& phase, int64_t tap, const char* base, int64_t lanes, int64_t width,
                                 char* out) const {
  const int64_t length = phase.inner_taps * call.group_from;
  uint16_t* to = reinterpret_cast<uint16_t*>(out);
  std::memset(out, 0, phase.run_steps * width * element());
  for (int64_t k = 0; k < length; ++k) {
    const uint16_t* row = reinterpret_cast<const uint16_t*>(base) +
                          StoredTap(phase, tap + k / call.group_from) * call.tap_stride +
                          k % call.group_from * call.from_stride;
    for (int64_t lane = 0; lane < lanes; ++lane) to[(k / 2 * width + lane) * 2 + k % 2] = row[lane * call.to_stride];
  }
}

void GatherPlan::Pack(const CpuTarget& target, const std::vector<const Phase*>& which, char* packed,
                      ThreadPool& pool) const {
  constexpr int64_t kInlineBytes = 64 << 10;
  const int64_t panels = Panels(), count = static_cast<int64_t>(which.size()) * panels;
  const auto pack = [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const Phase& phase = *which[j / panels];
      PackPanel(target, phase, {0, phase.outer_taps * phase.inner_taps, 0, call.group_from}, j % panels, packed);
    }
  };
  if (PackedBytes() < kInlineBytes) return pack(0, count, 0);
  pool.ParallelRanges(count, pack);
}

int64_t GatherPlan::Unpackable() const {
  if (call.types.pack == PackKind::kWidenF16 || IsQuads(call.types.pack)) return 0;
  int64_t taps = 1;
  for (const SpatialDim& dim : call.geometry.dims) taps *= dim.window;
  std::vector<bool> seen(static_cast<size_t>(taps));
  for (const Phase& phase : phases) {
    if (phase.empty()) continue;
    for (int64_t tap = 0; tap < phase.outer_taps * phase.inner_taps; ++tap) seen[StoredTap(phase, tap)] = true;
  }
  const bool all = std::ranges::find(seen, false) == seen.end();
  return all ? taps * call.groups * call.group_from * call.group_to : 0;
}

void GatherPlan::UnpackTap(const char* from, int64_t k, int64_t flat, int64_t stored_tap, char* weights) const {
  const int64_t panel = flat % columns.panels, source = call.types.source_bytes;
  const int64_t lanes = columns.Columns(panel), step_bytes = StepBytes(flat);
  const bool pairs = call.types.pack == PackKind::kPairs;
  char* const base = weights + (flat / columns.panels * call.group_stride +
                                columns.First(panel) * columns.lanes * call.to_stride + stored_tap * call.tap_stride) *
                                   source;
  for (int64_t channel = 0; channel < call.group_from; ++channel, ++k) {
    // bf16 is half of a pair, or the high half of what it was widened to.
    const char* const row = from + (pairs ? k / 2 : k) * step_bytes + (source != 2 || (pairs && k % 2 == 0) ? 0 : 2);
    char* const to = base + channel * call.from_stride * source;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      std::memcpy(to + lane * call.to_stride * source, row + lane * element(), static_cast<size_t>(source));
    }
  }
}

void GatherPlan::Unpack(const char* packed, char* weights) const {
  for (const Phase& phase : phases) {
    if (phase.empty()) continue;
    for (int64_t flat = 0; flat < Panels(); ++flat) {
      for (int64_t tap = 0; tap < phase.outer_taps * phase.inner_taps; ++tap) {
        const int64_t inner = tap % phase.inner_taps;
        int64_t steps = tap / phase.inner_taps * phase.run_steps;
        if (!phase.joined_pack) steps += inner * phase.k_steps;
        UnpackTap(packed + PanelOffset(phase, flat) + steps * StepBytes(flat),
                  phase.joined_pack ? inner * call.group_from : 0, flat, StoredTap(phase, tap), weights);
      }
    }
  }
}

}  // namespace weft::cpu
