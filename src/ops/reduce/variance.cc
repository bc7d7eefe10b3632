// What var and std share.
#include "src/ops/reduce/variance.h"

namespace weft::ops {

using namespace ir;

absl::Status InferVariance(const InferCall& call, Types* results) {
  WEFT_RETURN_IF_ERROR(InferReduction(call, results));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, call.operands[0]->dims));
  if (Attr<kVarianceAttrs, "correction">(call.attrs) < 0 || Attr<kVarianceAttrs, "correction">(call.attrs) >= count) {
    return UserError("correction is ", Attr<kVarianceAttrs, "correction">(call.attrs), "; with ", count,
                     " elements it must be 0 to ", count - 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Variance(const ExpandCall& call) {
  Builder& b = call.b;
  const Value& x = call.operands[0];
  WEFT_ASSIGN_OR_RETURN(const Ints axes,
                        AxesOrAll(call.attrs, AttrPosition<kVarianceAttrs, "dims">(), x.dims().size()));
  WEFT_ASSIGN_OR_RETURN(const int64_t count, ReducedCount(call.attrs, x.dims()));
  Value mean = Mul(b, ReduceKeep(b, x, Reducer::kSum, axes), 1.0 / static_cast<double>(count));
  WEFT_ASSIGN_OR_RETURN(Value sum, ReduceByAttrs(call, Reducer::kSum, Square(b, Sub(b, x, mean))));
  return Mul(b, sum, 1.0 / static_cast<double>(count - Attr<kVarianceAttrs, "correction">(call.attrs)));
}

}  // namespace weft::ops
