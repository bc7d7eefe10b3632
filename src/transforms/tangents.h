// Forward mode: values beside their tangents.
#pragma once

#include <span>
#include <vector>

#include "src/ir/builder.h"
#include "src/ir/function.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/status.h"

namespace weft::transforms {

struct Dual {
  ir::Value value, tangent;  // no tangent: zero
};
using Duals = std::vector<Dual>;

class Tangents {
 public:
  // The function's results at these arguments, on the builder.
  absl::Status Walk(ir::Builder& b, const ir::Function& function, std::span<const Dual> arguments, Duals* results);

 private:
  using Flags = std::vector<bool>;
  // A function of its parameters, then the tangents of those that have one, to its results, then the tangents of those that have
  // one or are to have one.
  struct Made {
    Ref<const ir::Function> of;  // stays, because its address is the key
    Flags given, wanted;
    Ref<const ir::Function> function;
    Flags has;
  };
  absl::StatusOr<const Made*> Region(const ir::Function& function, const Flags& given, const Flags& wanted);

  absl::Status Add(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);
  absl::Status Transposed(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);
  absl::Status Call(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);
  absl::Status Forward(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);
  absl::Status Choice(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);
  absl::Status While(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);
  absl::Status Scan(ir::Builder& b, const ir::Node& node, std::span<const Dual> operands, Duals* results);

  HashMap<const ir::Function*, std::vector<std::unique_ptr<Made>>> made_;
};

}  // namespace weft::transforms
