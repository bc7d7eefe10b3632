// The parts of a scan and its gradient.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline constexpr ir::AttrDef kScanAttrs[] = {
    {"length", ir::AttrType::kInt, "how often the body runs; counted: at most so often", true},
    {"carried", ir::AttrType::kInt, "so many values are carried", true},
    {"scanned", ir::AttrType::kInt, "so many tensors are scanned along their first axis", true},
    {"reverse", ir::AttrType::kBool, "from the last index to the first", false, "false"},
    {"indexed", ir::AttrType::kBool, "the body's first parameter is the index, an i32 scalar", false, "false"},
    {"counted", ir::AttrType::kBool, "the first operand says how often the body runs", false, "false"},
    {"kept", ir::AttrType::kBool, "what is carried into each run is kept, for gradients", false, "true"},
    {"unroll", ir::AttrType::kInt, "so many runs of the body in one of the loop", false, "1"},
    {"keep_every", ir::AttrType::kInt, "what is carried into every so many-th run is kept, the rest computed again",
     false, "1"}};

// The parts of a scan, by number.
struct ScanParts {
  int64_t length;
  size_t counted, carried, scanned, indexed, captures, sliced;  // sliced: results of the body behind the carried ones
  bool reverse, kept;
  int64_t every;  // of what is carried, what is kept

  int64_t segments() const { return length == 0 ? 0 : (length - 1) / every + 1; }
  size_t first_capture() const { return indexed + carried + scanned; }  // of the body's parameters
};

absl::StatusOr<ScanParts> PartsOf(const ir::Attrs& attrs, const ir::Function& body);

// The type of so many slices, stacked.
ir::Type Stacked(const ir::Type& slice, int64_t length);

// Row `at` of a stack, without its first axis; the stack with another row there.
ir::Value Row(ir::Builder& b, const ir::Value& stack, const ir::Value& at);
ir::Value WithRow(ir::Builder& b, const ir::Value& stack, const ir::Value& at, const ir::Value& row);

// The rules of the operation.
absl::Status ScanGradient(const ir::GradCall& call, std::span<ir::Value> grads);
absl::Status ScanBatching(const ir::BatchCall& call, std::span<ir::Value> results);

}  // namespace weft::ops
