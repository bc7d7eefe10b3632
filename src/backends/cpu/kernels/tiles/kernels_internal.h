// The table of generated tiles, types and cuts, which the drivers of all families share behind kernels.h.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/backends/cpu/kernels/kernels.h"
#include "src/backends/cpu/kernels/scratch.h"
#include "src/backends/cpu/kernels/tiles/micro.h"
#include "src/backends/cpu/kernels/tiles/pack.h"
#include "src/runtime/mutex.h"

namespace weft::cpu {

struct KernelSet::State {
  State(CpuTarget target, CodeWatch watch) : jit(std::move(target), std::move(watch)) {}

  const CpuTarget& target() const { return jit.target(); }

  // The function of a tile, linked now if it was imported and compiled if it is new (about 5 ms). The common case is one
  // relaxed-cost load.
  absl::StatusOr<MicroFn*> Micro(const MicroSpec& spec);
  absl::StatusOr<MicroFn*> Keep(const MicroSpec& spec, std::string object);

  Jit jit;
  std::array<std::atomic<MicroFn*>, MicroSpec::kCount> micro = {};
  std::atomic<int64_t> compiled{0};
  std::atomic<uint32_t> pairs{0};  // of products, so far
  Mutex mutex;
  std::map<int, std::string> objects ABSL_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<JitLibrary>> libraries ABSL_GUARDED_BY(mutex);
};

// The mode of a driver: it runs a call on `pool`, or, where that is null, fetches its tiles and says what scratch a run
// would ask for. One function does both, so that what is said and what is asked for cannot drift apart.
struct Duty {
  ThreadPool* pool = nullptr;
  ScratchNeeds* needs = nullptr;  // without a pool
  int threads = 1;                // likewise, of the pool to come
  bool fetches = true;            // likewise; no: tiles that are hardly ever needed are made when they are
};

// Element types of a call in terms of tiles.
struct TypePlan {
  MicroType micro = MicroType::kF32;
  PackKind pack = PackKind::kF32;
  bool direct = true;   // A and B may be read in place: packed elements equal the source's
  bool narrow = false;  // the output is bf16 or f16: accumulate in f32 and convert
  int source_bytes = 4;
  int accumulator_bytes = 4;  // of C as the tile writes it
};
// False where tiles do not serve the types (integers, odd mixtures): the plain loop's business.
bool PlanTypes(const CpuTarget& target, DType input, DType output, TypePlan* plan);

// Things [begin, end) of some that are counted: rows, tiles, panels, channels.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Even cuts of `count` into `parts`: sizes differ by at most one, so that two tile shapes serve any length.
inline int64_t CutAt(int64_t count, int64_t parts, int64_t index) { return count * index / parts; }
inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls f(d, i) for each batch dimension: member `index` is the i-th along dimension d.
template <typename F>
void ForEachBatchIndex(int rank, const std::array<int64_t, kMaxBatchDims>& sizes, int64_t index, F f) {
  for (int d = rank - 1; d >= 0; --d) {
    f(static_cast<size_t>(d), index % sizes[d]);
    index /= sizes[d];
  }
}

}  // namespace weft::cpu
