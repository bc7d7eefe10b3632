// Sums and products of bools count: they are those of i64.
#pragma once

#include "src/ops/families.h"

namespace weft::ops {

inline DType CountedType(DType dtype) { return IsBool(dtype) ? DType::kI64 : dtype; }

inline absl::Status InferCounting(const ir::InferCall& call, ir::Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  results->back().dtype = CountedType(results->back().dtype);
  return absl::OkStatus();
}

template <Reducer reducer>
absl::Status ExpandCounting(const ir::ExpandCall& call, std::span<ir::Value> results) {
  const ir::Value& x = call.operands[0];
  const ir::Value counted = IsBool(x.dtype()) ? Convert(call.b, x, DType::kI64) : x;
  WEFT_ASSIGN_OR_RETURN(results[0], ReduceByAttrs(call, reducer, counted));
  return absl::OkStatus();
}

}  // namespace weft::ops
