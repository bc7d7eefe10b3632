// Random numbers of what is read: as recording has it (docs/functions.md), a function or region that draws has a stream of the
// generator behind all other parameters. What draws takes blocks of the stream around it, a function that draws one block as a stream
// of its own, and run i of a loop draws from stream i.
#pragma once

#include "src/ir/stablehlo_read.h"

namespace weft::stablehlo {

// The stream of one function or region.
struct Stream {
  ir::Value state = {};  // a parameter, once something has drawn
  uint64_t drawn = 0;    // blocks
  bool draws() const { return bool{state}; }
};

// An operation that is about to be read gets a state behind its operands if it draws, its regions get streams behind their captures
// if they do, and a while whose regions do carries the number of the run as well.
absl::Status GiveStreams(ir::StableHloOp& call, Stream& around);

// Counts the blocks that an operation has drawn, once it is read. Its results are `seen` again.
void TakeStreams(const ir::StableHloOp& call, size_t seen, Stream& around, ir::Values& results);

}  // namespace weft::stablehlo
