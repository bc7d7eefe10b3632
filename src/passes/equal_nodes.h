// When two nodes compute the same of the same operands.
#pragma once

#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "src/ir/node.h"

namespace weft::passes {

struct HashNode {
  size_t operator()(const ir::Node* node) const;
};
struct EqualNodes {
  bool operator()(const ir::Node* a, const ir::Node* b) const;
};
using NodeSet = absl::flat_hash_set<const ir::Node*, HashNode, EqualNodes>;

}  // namespace weft::passes
