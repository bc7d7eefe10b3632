// Strided reads and writes in place of copies. Some kernels take strides (OpRule::reads): an operand of theirs that is
// another value, transposed, cut or reshaped, is read where it lies, and a result that is only transposed is written as
// it is wanted. The loops that would have copied are left out.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "src/ir/function.h"
#include "src/runtime/shape.h"

namespace weft::cpu {

// A value's elements as some of another's: from `offset` on, so far apart along each dimension of the value.
struct View {
  ir::Value base;
  int64_t offset = 0;
  Dims strides;
};

class Views {
 public:
  // Tells whether the kernel of a node reads an operand so.
  using Reads = bool (*)(const ir::Node& node, size_t operand, const View& view);

  // Finds the views of a fused function, before its nodes are lowered. `reads` has one for each operation that takes
  // strides, and null for others.
  void Find(const ir::Function& function, Reads (*reads)(const ir::OpDef& op));
  // Such a node is not lowered.
  bool LeavesOut(const ir::Node& node) const { return left_out_.contains(&node); }
  // An operand of an operation that takes strides, as it is read.
  static View Read(const ir::Node& node, size_t operand, Reads reads);
  // The one result of such an operation as elements of the value that is to be defined.
  View Written(const ir::Node& node) const;

 private:
  absl::flat_hash_set<const ir::Node*> left_out_;
  absl::flat_hash_map<const ir::Node*, View> written_;
};

}  // namespace weft::cpu
