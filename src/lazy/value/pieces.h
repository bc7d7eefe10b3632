// Pieces of a value that go from the devices that have it to those that are to have it, where it lies otherwise.
#pragma once

#include <vector>

#include "src/lazy/value/sharding.h"

namespace weft::lazy {

// A box of the value on its way from a holder of the source to one of the target.
struct Piece {
  size_t from = 0, to = 0;
  ir::Box box;
  Ref<Buffer> buffer;  // where it is now
};

// Lists what each holder of the target gets: one piece where a holder of the source has all of it, itself first, else one of each
// that has some. The pieces of a holder are in row-major order.
std::vector<Piece> PiecesOf(const Placement& source, const Placement& target, const Dims& dims);

}  // namespace weft::lazy
