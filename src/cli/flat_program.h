// Weft's own text of a program, read as a list of operations with all calls written out, for drawing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

struct FlatProgram {
  static constexpr size_t kNone = SIZE_MAX;
  struct Node {
    std::string operation;  // empty: a parameter
    std::string body;       // attributes and functions that it carries, as text
    std::string types, position;
    size_t results = 1;
    std::vector<std::pair<size_t, size_t>> operands;  // node and result; kNone: an operand that is left out
    bool returned = false;
  };
  std::vector<Node> nodes;  // parameters first
  size_t parameters = 0;
  std::vector<std::pair<size_t, size_t>> results;
  std::string types;    // of the results
  std::string callees;  // text of the functions that are called inside what nodes carry

  // The text back, each operation and all that it carries at the position "node:NUMBER".
  std::string Text() const;
};

// False, and the problem, for what the library does not write, and for more than kMostFlatNodes operations.
inline constexpr size_t kMostFlatNodes = 100'000;
bool Flatten(std::string_view text, FlatProgram* out, std::string* problem);

}  // namespace weft::cli
