// See amx_set.h.
#include "src/backends/cpu/kernels/tiles/amx_set.h"

#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

MicroType TypeOf(DType input) {
  if (input == DType::kBF16) return MicroType::kBF16Tiles;
  return IsSigned(input) ? MicroType::kI8Tiles : MicroType::kU8Tiles;
}

}  // namespace

absl::StatusOr<TileSet> FetchTiles(KernelSet::State& state, DType input, bool a_streams) {
  TileSet set;
  for (int rows = 1; rows <= 2; ++rows) {
    for (int columns = 1; columns <= 2; ++columns) {
      WEFT_ASSIGN_OR_RETURN(MicroFn * fn, state.Micro(TileBlock(TypeOf(input), rows, columns, a_streams)));
      set.block[rows - 1][columns - 1] = reinterpret_cast<TileFn*>(fn);
    }
  }
  WEFT_ASSIGN_OR_RETURN(MicroFn * begin, state.Micro(TileBegin()));
  WEFT_ASSIGN_OR_RETURN(MicroFn * end, state.Micro(TileEnd()));
  set.begin = reinterpret_cast<void (*)()>(begin);
  set.end = reinterpret_cast<void (*)()>(end);
  return set;
}

}  // namespace weft::cpu
