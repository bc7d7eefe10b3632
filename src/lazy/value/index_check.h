// Debug mode: whether indices and labels lie where the operation can look.
#pragma once

#include <span>
#include <vector>

#include "src/ir/op_def.h"
#include "src/runtime/buffer.h"

namespace weft::lazy {

// Made under the engine's lock, of a call whose operands are known; run without it, because it waits for them.
class IndexCheck {
 public:
  IndexCheck(const ir::OpDef& op, std::span<const ir::Value> operands, ir::Attrs attrs);
  ~IndexCheck();
  IndexCheck(const IndexCheck&) = delete;
  absl::Status Run();

 private:
  const ir::OpDef& op_;
  const std::span<const ir::Value> operands_;
  ir::Attrs attrs_;
  std::vector<Ref<Buffer>> held_;  // so that no launch of others writes there meanwhile
};

}  // namespace weft::lazy
