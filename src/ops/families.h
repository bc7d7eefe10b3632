// What many operations of one family share: operand lists, shape rules and reference loops. A rule that only one
// operation needs stays in that operation's file.
#pragma once

#include "src/ir/scalar.h"
#include "src/ops/call.h"

namespace weft::ops {

inline constexpr std::string_view kResult[] = {"result"};
inline constexpr ir::Absent kNoBatching[] = {{ir::Part::kBatching, ir::Reason::kBatchingNotInAbi}};

// Result type = first operand's; all operands must have its shape (CheckCall has matched the dtypes of a group).
absl::Status InferSame(const ir::InferCall& call, ir::Types* results);

// Elementwise reference: `f` on doubles for floats, `i` on int64 images for integers and bools (null where the operation
// takes none). Unsigned 64-bit operations that differ from signed ones write their own.
template <double (*f)(double), int64_t (*i)(int64_t) = nullptr>
absl::Status ReferenceUnary(const ir::ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  HostTensor& y = call.results[0];
  for (int64_t k = 0; k < y.count(); ++k) {
    if (IsFloat(x.dtype())) {
      y.SetDouble(k, f(x.GetDouble(k)));
    } else if constexpr (i != nullptr) {
      y.SetInt(k, i(x.GetInt(k)));
    }
  }
  return absl::OkStatus();
}
template <double (*f)(double, double), int64_t (*i)(int64_t, int64_t) = nullptr>
absl::Status ReferenceBinary(const ir::ReferenceCall& call) {
  const HostTensor& x = *call.operands[0];
  const HostTensor& y = *call.operands[1];
  HostTensor& z = call.results[0];
  for (int64_t k = 0; k < z.count(); ++k) {
    if (IsFloat(x.dtype())) {
      z.SetDouble(k, f(x.GetDouble(k), y.GetDouble(k)));
    } else if constexpr (i != nullptr) {
      z.SetInt(k, i(x.GetInt(k), y.GetInt(k)));
    }
  }
  return absl::OkStatus();
}

template <ir::ScalarOp op>
ir::ScalarValue ScalarUnary(const ir::ScalarCall& call) {
  return call.b.Unary(op, call.operands[0]);
}
template <ir::ScalarOp op>
ir::ScalarValue ScalarBinary(const ir::ScalarCall& call) {
  return call.b.Binary(op, call.operands[0], call.operands[1]);
}

}  // namespace weft::ops
