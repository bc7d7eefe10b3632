// A picture of how a value lies on devices.
#pragma once

#include <span>
#include <string>

#include "src/ir/mesh.h"
#include "src/runtime/buffer.h"

namespace weft::c_api {

// A part of a value, and who has it.
struct ShardPart {
  Device* device = nullptr;
  ir::Box box;
};

// The last two dimensions as a grid, a cell for each part: the devices that have it, by the numbers in their names,
// with a line above that says the shape. All parts along the dimensions before them are taken together.
std::string PictureOf(const Dims& dims, std::span<const ShardPart> parts);

}  // namespace weft::c_api
