// The blocks of tiles that a product needs, and a thread's configuration of its tiles.
#pragma once

#include "absl/status/statusor.h"
#include "src/backends/cpu/kernels/tiles/amx_micro.h"
#include "src/backends/cpu/kernels/tiles/kernels_internal.h"

namespace weft::cpu {

struct TileSet {
  TileFn* block[2][2] = {};  // by tiles of rows and of columns
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};
absl::StatusOr<TileSet> FetchTiles(KernelSet::State& state, DType input);

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
