// StableHLO text as a tree: operations with operands by name, whichever form they were written in. It knows nothing of our
// operations. Views are into the text.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "src/ir/stablehlo_read.h"

namespace weft::stablehlo {

// !quant.uniform<i8<-128:127>:f32:1, {0.5:3, 0.25}>
struct Quantization {
  DType storage = DType::kInvalid, expressed = DType::kInvalid;
  int64_t min = 0, max = 0;  // of the integers
  int64_t axis = -1;         // the dimension that has a scale for each index; -1 where one is for all
  std::vector<double> scales;
  std::vector<int64_t> zero_points;

  friend bool operator==(const Quantization&, const Quantization&) = default;
};

// A type as written. A type that we cannot compute with has no `type` to rely on, only its text. For a quantised tensor
// `type` has the integers.
struct TypeText {
  ir::Type type;
  std::string_view text;
  bool supported = true;
  std::shared_ptr<const Quantization> quantized;  // null where the elements are what they seem
};

struct Use {  // %name or %name#index
  std::string_view name;
  uint32_t index = 0;
  size_t position = 0;
};

struct Bound {  // %name or %name:count
  std::string_view name;
  uint32_t count = 1;
  size_t position = 0;
};

struct Operation;

struct Argument {
  std::string_view name;
  TypeText type;
  ir::ShloAttr::Fields attributes;
};

// One block: more are another dialect's control flow.
struct Region {
  std::vector<Argument> arguments;
  std::vector<Operation> operations;
};

struct Operation {
  std::string_view name;  // "stablehlo.add", "func.call", "return" for every dialect's
  size_t position = 0;
  std::vector<Bound> bounds;
  std::vector<Use> operands;
  ir::ShloAttr::Fields attributes;
  std::vector<Region> regions;
  std::vector<TypeText> operand_types;  // none where the form leaves them out
  std::vector<TypeText> result_types;
  std::string_view location;  // what stands in loc(…)

  size_t ResultCount() const {
    size_t count = 0;
    for (const Bound& bound : bounds) count += bound.count;
    return count;
  }
  const ir::ShloAttr* Find(std::string_view attribute) const {
    for (const auto& [name, value] : attributes) {
      if (name == attribute) return &value;
    }
    return nullptr;
  }
};

}  // namespace weft::stablehlo
