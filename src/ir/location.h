// Positions that are more than a file and a line: addresses in the caller's code, and stacks of frames. A Location holds either, as a
// number; what it says is looked up when somebody wants to read it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ir/node.h"

namespace weft::ir {

// The file as it is seen from the folder `root`, if it is in it.
std::string_view FileBelow(std::string_view root, std::string_view file);

// Where a call came from that has no position of its own: the address behind it. Unknown if it is null.
Location LocationOf(const void* return_address);

// One frame as a layer above knows it. Texts may be empty.
struct StackFrame {
  std::string_view function, file;
  uint32_t line = 0;
};
// The innermost frame first. Equal stacks are one; beyond kMostStacks different ones of a process the innermost frame's file and line
// are all that is kept.
inline constexpr size_t kMostStacks = 1 << 16;
Location InternStack(std::span<const StackFrame> frames);
// The same of addresses in the caller's code.
Location InternAddresses(std::span<const void* const> addresses);

// The two parts that ToString joins: "train.c" and 42, or "train+0x12ab" and 0.
struct Position {
  std::string file;
  uint32_t line = 0;
};
// The innermost; both are empty if it is unknown.
Position PositionOf(Location location);
// A line a frame, the innermost first: "step (train.py:42)". One line for what is no stack, none for what is unknown.
std::vector<std::string> FramesOf(Location location);

}  // namespace weft::ir
