// The blocks of tiles that a product needs, and a thread's configuration of its tiles.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "src/backends/cpu/kernels/tiles/amx_micro.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

struct TileSet {
  TileFn* block[2][2] = {};  // by tiles of rows and of columns
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};
// `a_streams`: A does not stay in L1 from one block of columns to the next.
absl::StatusOr<TileSet> FetchTiles(KernelSet::State& state, DType input, bool a_streams = false);

// Offsets of steps of A that lie kBytes apart (TileArgs::a_steps), as many as one call of a block takes.
inline constexpr int64_t kMostTileSteps = 64;
template <int64_t kBytes>
inline constexpr std::array<int64_t, kMostTileSteps> kTileSteps = [] {
  std::array<int64_t, kMostTileSteps> steps = {};
  for (int64_t i = 0; i < kMostTileSteps; ++i) steps[static_cast<size_t>(i)] = i * kBytes;
  return steps;
}();

// The calling thread's tiles, configured for as long as it does a share of a region.
class TileScope {
 public:
  explicit TileScope(const TileSet& set) : set_(set) { set.begin(); }
  ~TileScope() { set_.end(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const TileSet& set_;
};

}  // namespace weft::cpu
